//! Multi-lane MD5 against the scalar unit, which the vectors and the independent implementations check.

use dcs_abi::operator::Operator;
use dcs_ndp::{Context, Lanes};
use proptest::prelude::*;

fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(next).collect()
}

fn md5() -> Context {
    Context::new(Operator::Md5, &[]).unwrap()
}

/// Streams take in their pieces round by round, together; each must come to what it comes to alone.
fn check(lanes: Lanes, streams: &[Vec<usize>]) {
    let data: Vec<Vec<u8>> =
        streams.iter().enumerate().map(|(at, pieces)| bytes(pieces.iter().sum(), at as u64 + 1)).collect();
    let mut together: Vec<Context> = streams.iter().map(|_| md5()).collect();
    let rounds = streams.iter().map(Vec::len).max().unwrap_or(0);
    let mut taken = vec![0; streams.len()];
    for round in 0..rounds {
        let mut work: Vec<(&mut Context, &[u8])> = Vec::new();
        for (at, context) in together.iter_mut().enumerate() {
            if let Some(piece) = streams[at].get(round) {
                work.push((context, &data[at][taken[at]..taken[at] + piece]));
                taken[at] += piece;
            }
        }
        Context::absorb_together(lanes, &mut work);
    }
    for (at, context) in together.iter().enumerate() {
        let mut alone = md5();
        alone.absorb(&data[at]);
        assert_eq!(context.value(), alone.value(), "{lanes:?}, stream {at} of {streams:?}");
    }
}

#[test]
fn every_number_of_streams_up_to_more_than_the_lanes() {
    for lanes in Lanes::available() {
        for count in 0..=70 {
            check(lanes, &vec![vec![640, 64, 128]; count]);
        }
    }
}

#[test]
fn streams_of_different_lengths_join_and_leave_at_any_block() {
    for lanes in Lanes::available() {
        let streams: Vec<Vec<usize>> = (0..50).map(|at| vec![at * 64 + at % 7, 3000 - at * 50, at]).collect();
        check(lanes, &streams);
    }
}

#[test]
fn other_digests_may_stand_between() {
    let data = bytes(1000, 5);
    for lanes in Lanes::available() {
        let mut contexts: Vec<Context> = [Operator::Md5, Operator::Sha1, Operator::Md5]
            .map(|operator| Context::new(operator, &[]).unwrap())
            .into();
        let mut work: Vec<_> = contexts.iter_mut().map(|context| (context, data.as_slice())).collect();
        Context::absorb_together(lanes, &mut work);
        for context in &contexts {
            let mut alone = Context::new(context.operator(), &[]).unwrap();
            alone.absorb(&data);
            assert_eq!(context.value(), alone.value());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_streams_in_any_pieces(
        streams in prop::collection::vec(prop::collection::vec(0usize..700, 0..5), 0..40)
    ) {
        for lanes in Lanes::available() {
            check(lanes, &streams);
        }
    }
}
