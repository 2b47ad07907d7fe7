//! The fuzz target of `fuzz/src/ssd.rs`, on its corpus and on arbitrary input.

#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/ssd.rs"]
mod targets;

use proptest::prelude::*;

#[test]
fn ssd_corpus() {
    replay::replay("ssd", 3_000, targets::ssd);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        targets::ssd(&bytes);
    }
}
