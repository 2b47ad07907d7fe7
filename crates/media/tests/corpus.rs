//! The fuzz target of `fuzz/src/media.rs`, on its corpus and on arbitrary input.

#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/media.rs"]
mod targets;

use proptest::prelude::*;

#[test]
fn media_corpus() {
    replay::replay("media", 2_000, targets::media);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        targets::media(&bytes);
    }
}
