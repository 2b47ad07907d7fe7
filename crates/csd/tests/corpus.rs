//! Runs the fuzz target `fuzz/src/csd.rs` on its corpus and on random bytes.

#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/csd.rs"]
mod targets;

use proptest::prelude::*;

#[test]
fn csd_corpus() {
    replay::replay("csd", 2_000, targets::csd);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        targets::csd(&bytes);
    }
}
