//! The fuzz targets of `fuzz/src/abi.rs` on their corpus.

#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/abi.rs"]
mod targets;

use replay::replay;

const MUTATIONS: u64 = 6_000;

#[test]
fn entry_corpus() {
    replay("entry", MUTATIONS, targets::entry);
}

#[test]
fn descriptor_corpus() {
    replay("descriptor", MUTATIONS, |bytes| {
        targets::descriptor(bytes);
        targets::descriptor(&fitting(bytes));
    });
}

/// With a total length that fits: else the length check would hide what lies behind it.
fn fitting(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let length = bytes.len() as u32;
    if let Some(field) = bytes.get_mut(4..8) {
        field.copy_from_slice(&length.to_le_bytes());
    }
    bytes
}
