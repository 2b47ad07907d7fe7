//! Units that take several streams at once, against each stream alone, which the vectors and the independent
//! implementations check.

use dcs_abi::operator::{OPERATORS, Operator};
use dcs_ndp::{Context, Lanes, Piece};
use dcs_testkit::bytes;
use proptest::prelude::*;

/// Returns every unit of this machine, with its operator.
fn units() -> Vec<(Operator, Lanes)> {
    let operators = OPERATORS.iter().map(|info| info.operator);
    operators
        .flat_map(|operator| Lanes::available(operator).into_iter().map(move |lanes| (operator, lanes)))
        .collect()
}

/// Makes a digest of every operator that has a unit.
fn digests() -> Vec<(Operator, Lanes)> {
    units().into_iter().filter(|(operator, _)| operator.digest_size() > 0).collect()
}

/// Streams take their pieces round by round, together; each must have the same value as alone. Some pieces are marked
/// as the last, even some that are not.
fn check(operator: Operator, lanes: Lanes, streams: &[Vec<usize>]) {
    let data: Vec<Vec<u8>> =
        streams.iter().enumerate().map(|(at, pieces)| bytes(pieces.iter().sum(), at as u64 + 1)).collect();
    let new = || Context::new(operator, &[]).unwrap();
    let mut together: Vec<Context> = streams.iter().map(|_| new()).collect();
    let rounds = streams.iter().map(Vec::len).max().unwrap_or(0);
    let mut taken = vec![0; streams.len()];
    for round in 0..rounds {
        let mut work = Vec::new();
        for (at, context) in together.iter_mut().enumerate() {
            if let Some(piece) = streams[at].get(round) {
                let data = &data[at][taken[at]..taken[at] + piece];
                work.push(Piece { context, data, last: (at + round) % 3 > 0 });
                taken[at] += piece;
            }
        }
        Context::absorb_together(lanes, &mut work);
        for (at, context) in together.iter().enumerate() {
            let mut alone = new();
            alone.absorb(&data[at][..taken[at]]);
            assert_eq!(context.value(), alone.value(), "{operator:?} {lanes:?}, stream {at} of {streams:?}");
        }
    }
}

#[test]
fn every_number_of_streams_up_to_more_than_the_lanes() {
    for (operator, lanes) in digests() {
        for count in 0..=70 {
            check(operator, lanes, &vec![vec![640, 64, 128]; count]);
        }
    }
}

#[test]
fn streams_of_different_lengths_join_and_leave_at_any_block() {
    for (operator, lanes) in digests() {
        let streams: Vec<Vec<usize>> = (0..50).map(|at| vec![at * 64 + at % 7, 3000 - at * 50, at]).collect();
        check(operator, lanes, &streams);
    }
}

/// Padding takes one block or two, after any bytes.
#[test]
fn streams_end_anywhere_in_a_block() {
    for (operator, lanes) in digests() {
        let streams: Vec<Vec<usize>> = (0..130).map(|at| vec![at]).collect();
        check(operator, lanes, &streams);
    }
}

/// Gives a unit of one operator streams of all operators.
#[test]
fn other_operators_may_stand_between() {
    let data = bytes(1000, 5);
    for (_, lanes) in units() {
        let digests = OPERATORS.iter().filter(|info| info.parameter.0 == 0).map(|info| info.operator);
        let mut contexts: Vec<Context> = digests
            .flat_map(|operator| [operator; 3])
            .map(|operator| Context::new(operator, &[]).unwrap())
            .collect();
        let pieces = contexts.iter_mut().map(|context| Piece { context, data: &data, last: true });
        Context::absorb_together(lanes, &mut pieces.collect::<Vec<_>>());
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
        for (operator, lanes) in digests() {
            if lanes != Lanes::Alone {
                check(operator, lanes, &streams);
            }
        }
    }
}
