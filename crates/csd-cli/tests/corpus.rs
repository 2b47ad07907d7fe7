//! The fuzz target of `fuzz/src/control.rs` on its corpus, and on anything.

#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/control.rs"]
mod targets;

#[test]
fn control_corpus() {
    replay::replay("control", 20_000, targets::control);
}
