//! The fuzz targets of `fuzz/src/card.rs` and `fuzz/src/guest` on their corpora.

#[path = "../../../fuzz/src/guest/mod.rs"]
mod guest;
#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/card.rs"]
mod targets;

#[test]
fn vfio_user_corpus() {
    replay::replay("vfio_user", 3_000, targets::vfio_user);
}

#[test]
fn card_corpus() {
    replay::replay("card", 30, guest::card);
}
