//! The fuzz target of `fuzz/src/wasm.rs` on its corpus.

#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/wasm.rs"]
mod targets;

#[test]
fn wasm_corpus() {
    replay::replay("wasm", 5_000, targets::wasm);
}

/// Checks that the seeds have their intended effects: otherwise the target would test nothing.
#[test]
fn seeds_come_to_what_they_are_named() {
    use dcs_ndp::OperatorError;
    let seed = |name: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/wasm");
        targets::ended(&std::fs::read(format!("{folder}/{name}.bin")).unwrap())
    };
    assert_eq!(seed("liar_honest"), Some(Err(OperatorError::Answer)), "it is never finished");
    assert_eq!(seed("liar_whole_at_once"), Some(Ok((3000, Some(vec![0; 64])))));
    assert_eq!(seed("liar_value_too_long"), Some(Err(OperatorError::Answer)));
    assert_eq!(seed("liar_corrupt"), Some(Err(OperatorError::CorruptData)));
    assert_eq!(seed("liar_block_outside"), None);
    assert_eq!(seed("module_passes"), Some(Ok((3000, None))));
    assert_eq!(seed("module_loops"), Some(Err(OperatorError::Fuel)));
    assert_eq!(seed("module_grows"), Some(Err(OperatorError::Memory)));
    assert_eq!(seed("module_traps"), Some(Err(OperatorError::Trap)));
    assert_eq!(seed("module_imports"), None);
}
