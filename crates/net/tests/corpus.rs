//! The fuzz target of `fuzz/src/net.rs`, on its corpus and on arbitrary input.

#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/net.rs"]
mod targets;

use proptest::prelude::*;

#[test]
fn net_corpus() {
    replay::replay("net", 3_000, targets::net);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        targets::net(&bytes);
    }
}
