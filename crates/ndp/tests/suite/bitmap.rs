//! `bitmap` against the `roaring` crate, and what it refuses.

use crate::common::{Cut, resize, whole};
use dcs_abi::operator::Operator;
use dcs_ndp::OperatorError;
use dcs_ndp::parameter::{Bitmap, BitmapOperation};
use proptest::prelude::*;
use roaring::RoaringBitmap;

/// Makes single values, runs, and dense values, over some pages including the last.
fn bitmaps() -> impl Strategy<Value = RoaringBitmap> {
    let base = prop_oneof![4 => 0..4u32, 1 => 0..50u32].prop_map(|page| page << 16);
    let piece = prop_oneof![
        3 => (base.clone(), any::<u16>()).prop_map(|(base, value)| vec![base + u32::from(value)..=base + u32::from(value)]),
        2 => (base.clone(), any::<u16>(), 0..70_000u32).prop_map(|(base, from, length)| vec![base + u32::from(from)..=base + u32::from(from) + length]),
        1 => (base, 0..7u32, 2..20u32).prop_map(|(base, from, step)| (0..65_536 / step).map(|at| base + from + at * step..=base + from + at * step).collect()),
    ];
    (prop::collection::vec(piece, 0..8), any::<bool>()).prop_map(|(pieces, optimize)| {
        let mut bitmap = RoaringBitmap::new();
        pieces.into_iter().flatten().for_each(|range| _ = bitmap.insert_range(range));
        if optimize {
            bitmap.optimize();
        }
        bitmap
    })
}

fn bytes(bitmap: &RoaringBitmap) -> Vec<u8> {
    let mut bytes = Vec::new();
    bitmap.serialize_into(&mut bytes).unwrap();
    bytes
}

/// Writes the lowest bit of the first byte first, up to the last set bit.
fn bits(bitmap: &RoaringBitmap) -> Vec<u8> {
    let mut bits = vec![0; bitmap.max().map_or(0, |max| max as usize / 8 + 1)];
    bitmap.iter().for_each(|value| bits[value as usize / 8] |= 1 << (value % 8));
    bits
}

fn cuts() -> impl Strategy<Value = Cut> {
    let piece = prop_oneof![1..4usize, 1..300usize, 1..40_000usize];
    let room = prop_oneof![1..200usize, 1000..100_000usize];
    (prop::collection::vec(piece, 1..8), room, any::<bool>()).prop_map(|(pieces, room, empty_end)| Cut {
        pieces,
        room,
        empty_end,
    })
}

fn parameter(operation: BitmapOperation, count: bool) -> Vec<u8> {
    Bitmap { operation, count }.block()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bits_are_those_of_the_roaring_crate_however_the_stream_is_cut(
        all in prop::collection::vec(bitmaps(), 1..4), cut in cuts(),
    ) {
        let stream: Vec<u8> = all.iter().flat_map(bytes).collect();
        let [and, or]: [fn(RoaringBitmap, &RoaringBitmap) -> RoaringBitmap; 2] = [|a, b| a & b, |a, b| a | b];
        let fold = |with: fn(RoaringBitmap, &RoaringBitmap) -> RoaringBitmap| all[1..].iter().fold(all[0].clone(), with);
        for (operation, stream, expected) in [
            (BitmapOperation::One, &bytes(&all[0]), all[0].clone()),
            (BitmapOperation::And, &stream, fold(and)),
            (BitmapOperation::Or, &stream, fold(or)),
        ] {
            let (output, result) = resize(Operator::Bitmap, &parameter(operation, false), stream, &cut);
            prop_assert_eq!(result, Ok(()));
            prop_assert!(output == bits(&expected), "{:?} of {:?}", operation, all);
            let (output, result) = resize(Operator::Bitmap, &parameter(operation, true), stream, &cut);
            prop_assert_eq!(result, Ok(()));
            prop_assert_eq!(String::from_utf8(output).unwrap(), format!("{}\n", expected.len()));
        }
    }

    /// Checks that a bitmap is refused, or gives what the crate reads from it; nothing else, however it is cut.
    #[test]
    fn damage_does_no_harm(bitmap in bitmaps(), at in any::<prop::sample::Index>(), bit in 0..8u32, cut in cuts()) {
        let mut stream = bytes(&bitmap);
        let at = at.index(stream.len());
        stream[at] ^= 1 << bit;
        let block = parameter(BitmapOperation::One, true);
        let (output, result) = resize(Operator::Bitmap, &block, &stream, &cut);
        prop_assert_eq!((&output, &result), (&resize(Operator::Bitmap, &block, &stream, &whole()).0, &resize(Operator::Bitmap, &block, &stream, &whole()).1));
        if result.is_ok() {
            let theirs = RoaringBitmap::deserialize_from(&stream[..]).expect("what we read they read");
            prop_assert_eq!(String::from_utf8(output).unwrap(), format!("{}\n", theirs.len()));
        }
    }

    #[test]
    fn a_cut_bitmap_is_truncated(bitmap in bitmaps(), at in any::<prop::sample::Index>(), cut in cuts()) {
        let stream = bytes(&bitmap);
        let (output, result) = resize(Operator::Bitmap, &[], &stream[..at.index(stream.len())], &cut);
        prop_assert_eq!(result, Err(OperatorError::TruncatedData));
        prop_assert!(bits(&bitmap).starts_with(&output));
    }
}

fn one(stream: &[u8]) -> Result<Vec<u8>, OperatorError> {
    let (output, result) = resize(Operator::Bitmap, &[], stream, &whole());
    result.map(|()| output)
}

/// The format's own example, byte by byte (RoaringFormatSpec, sections 1 to 4): without runs 3 and 65,537; with
/// runs 1 to 4.
#[test]
fn bytes_of_the_specification() {
    let words = |words: &[u16]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let plain = words(&[12346, 0, 2, 0, 0, 0, 1, 0, 24, 0, 26, 0, 3, 1]);
    let mut expected = vec![0; 8193];
    (expected[0], expected[8192]) = (1 << 3, 1 << 1);
    assert_eq!(one(&plain), Ok(expected));
    let runs = [words(&[12347, 0]), vec![1], words(&[0, 3, 1, 1, 3])].concat();
    assert_eq!(one(&runs), Ok(vec![0b11110]));
    assert_eq!(one(&words(&[12346, 0, 0, 0])), Ok(vec![]), "an empty one");

    let corrupt = Err(OperatorError::CorruptData);
    assert_eq!(one(&words(&[12348, 0, 0, 0])), corrupt, "no cookie");
    assert_eq!(one(&words(&[12346, 0, 1, 1])), corrupt, "too many containers");
    assert_eq!(one(&[&plain[..], &plain].concat()), corrupt, "two bitmaps, and none of both was asked for");
    assert_eq!(
        one(&words(&[12346, 0, 2, 0, 1, 0, 1, 0, 24, 0, 26, 0, 3, 1])),
        corrupt,
        "keys that do not rise"
    );
    assert_eq!(one(&words(&[12346, 0, 1, 0, 0, 0, 18, 0, 3])), corrupt, "an offset of something else");
    assert_eq!(one(&words(&[12346, 0, 1, 0, 0, 1, 16, 0, 3, 3])), corrupt, "values that do not rise");
    let of_runs = |of: &[u16]| [words(&[12347, 0]), vec![1], words(of)].concat();
    assert_eq!(one(&of_runs(&[0, 3, 0])), corrupt, "no runs");
    assert_eq!(one(&of_runs(&[0, 3, 1, 1, 4])), corrupt, "another number of bits");
    assert_eq!(one(&of_runs(&[0, 3, 1, 65534, 3])), corrupt, "a run over the end");
    assert_eq!(one(&of_runs(&[0, 3, 2, 1, 1, 2, 1])), corrupt, "runs over each other");
    assert_eq!(one(&of_runs(&[0, 3, 2, 1, 1, 3, 1])), corrupt, "two runs that are one");
    assert_eq!(one(&of_runs(&[0, 3, 2, 1, 1, 4, 1])), Ok(vec![0b110110]));
    assert_eq!(one(&[]), Err(OperatorError::TruncatedData));
    for wrong in [&[3][..], &[3, 0], &[0, 2], &[0, 0, 0]] {
        assert!(dcs_ndp::Context::new(Operator::Bitmap, wrong).is_err());
    }
}

/// Memory is bounded: a result of AND or OR has 4,096 pages at most; one bitmap may have all.
#[test]
fn a_result_of_too_many_pages_is_refused() {
    let of = |pages: u32| (0..pages).map(|page| page << 16).collect::<RoaringBitmap>();
    let number = |operation, stream: &[u8]| {
        let (output, result) = resize(Operator::Bitmap, &parameter(operation, true), stream, &whole());
        result.map(|()| String::from_utf8(output).unwrap())
    };
    let (most, more) = (bytes(&of(4096)), bytes(&of(4097)));
    for operation in [BitmapOperation::And, BitmapOperation::Or] {
        assert_eq!(number(operation, &most), Ok("4096\n".to_string()));
        assert_eq!(number(operation, &more), Err(OperatorError::CorruptData));
    }
    assert_eq!(number(BitmapOperation::And, &[most, more].concat()), Ok("4096\n".to_string()));
    assert_eq!(number(BitmapOperation::One, &bytes(&of(65_536))), Ok("65536\n".to_string()));
}
