//! The fuzz target of `fuzz/src/d2d.rs` on its corpus, and on anything.

#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/d2d.rs"]
mod targets;

use proptest::prelude::*;

#[test]
fn d2d_corpus() {
    replay::replay("d2d", 2_000, targets::d2d);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        targets::d2d(&bytes);
    }
}
