//! The fuzz target of `fuzz/src/vfio_user.rs` on its corpus.

#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/vfio_user.rs"]
mod targets;

#[test]
fn vfio_user_corpus() {
    replay::replay("vfio_user", 3_000, targets::vfio_user);
}
