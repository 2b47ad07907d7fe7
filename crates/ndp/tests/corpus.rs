//! The fuzz target of `fuzz/src/ndp.rs` on its corpus.

#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/ndp.rs"]
mod targets;

#[test]
fn operators_corpus() {
    replay::replay("operators", 5_000, targets::operators);
}
