//! Runs the fuzz target `fuzz/src/control.rs` on its corpus and on random bytes.

#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/control.rs"]
mod targets;

#[test]
fn control_corpus() {
    replay::replay("control", 20_000, targets::control);
}
