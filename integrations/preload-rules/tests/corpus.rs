//! The fuzz target of `fuzz/src/preload.rs` on its corpus.

#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/preload.rs"]
mod targets;

#[test]
fn preload_corpus() {
    replay::replay("preload", 20_000, targets::preload);
}
