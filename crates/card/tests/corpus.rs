//! The fuzz target of `fuzz/src/guest` on its corpus.

#[path = "../../../fuzz/src/guest/mod.rs"]
mod guest;
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn card_corpus() {
    replay::replay("card", 30, guest::card);
}
