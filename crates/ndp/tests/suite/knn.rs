//! `knn` against Python's own arithmetic and, if installed, numpy's; and its errors.

use crate::common::{Cut, resize, whole};
use crate::oracle::Oracle;
use dcs_abi::operator::Operator;
use dcs_ndp::OperatorError;
use dcs_ndp::parameter::{Element, Knn, KnnError};
use proptest::prelude::*;
use std::process::Command;
use std::sync::{LazyLock, Mutex};

/// Computes exact distances of all rows, as fractions print them, in the rows' order; "nan" if there is none.
const EXACT: &str = r##"
import struct
from fractions import Fraction
def answer(element, query, data):
    code = {b"u8": "B", b"f32": "f"}[element]
    size = len(query)
    read = lambda row: struct.unpack(f"<{size // struct.calcsize(code)}{code}", row)
    wanted = read(query)
    def distance(row):
        if any(value != value for value in row): return "nan"
        if any(abs(value) == float("inf") for value in row): return "inf"
        return repr(float(sum((Fraction(value) - Fraction(query)) ** 2 for value, query in zip(row, wanted))))
    return [" ".join(distance(read(data[at:at + size])) for at in range(0, len(data), size)).encode()]
serve(answer)
"##;

/// Computes the distances with numpy.
const NUMPY: &str = r##"
import numpy
def answer(element, query, data):
    kind = {b"u8": "u1", b"f32": "<f4"}[element]
    wanted = numpy.frombuffer(query, kind).astype("f8")
    rows = numpy.frombuffer(data, kind).astype("f8").reshape(-1, len(wanted))
    return [" ".join(map(repr, ((rows - wanted) ** 2).sum(axis=1).tolist())).encode()]
serve(answer)
"##;

static PYTHON: LazyLock<Mutex<Oracle>> = LazyLock::new(|| Mutex::new(Oracle::new(EXACT)));
static BY_NUMPY: LazyLock<Option<Mutex<Oracle>>> = LazyLock::new(|| {
    let there = Command::new("python3").args(["-c", "import numpy"]).output();
    if there.is_ok_and(|done| done.status.success()) {
        return Some(Mutex::new(Oracle::new(NUMPY)));
    }
    println!("skipped: python3 has no numpy: knn is tested against Python's fractions alone");
    None
});

fn distances(oracle: &Mutex<Oracle>, element: &str, query: &[u8], data: &[u8]) -> Vec<f64> {
    let answers = oracle.lock().unwrap().ask(&[element.as_bytes(), query, data]);
    let text = String::from_utf8(answers.into_iter().next().unwrap()).unwrap();
    text.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

fn cuts() -> impl Strategy<Value = Cut> {
    let piece = prop_oneof![1..4usize, 1..300usize, 1..4000usize];
    let room = prop_oneof![Just(1usize), 2..20usize, 100..10_000usize];
    (prop::collection::vec(piece, 1..8), room, any::<bool>()).prop_map(|(pieces, room, empty_end)| Cut {
        pieces,
        room,
        empty_end,
    })
}

fn element() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => (-40..40i8).prop_map(|number| f32::from(number) / 4.0),
        3 => -1e3..1e3f32,
        1 => any::<f32>(),
    ]
}

/// Makes a query, and rows some of which are at the same distance.
fn vectors() -> impl Strategy<Value = (Element, Vec<u8>, Vec<u8>)> {
    let bytes = (1..70usize).prop_flat_map(|dimension| {
        let row = prop_oneof![
            prop::collection::vec(any::<u8>(), dimension),
            prop::collection::vec(0..2u8, dimension)
        ];
        (row.clone(), prop::collection::vec(row, 0..300))
    });
    let floats = (1..40usize).prop_flat_map(|dimension| {
        let number = prop_oneof![(-40..40i8).prop_map(|number| f32::from(number) / 4.0), -1e3..1e3f32];
        let row = |number: BoxedStrategy<f32>| prop::collection::vec(number, dimension);
        (row(number.boxed()), prop::collection::vec(row(element().boxed()), 0..300))
    });
    let raw = |numbers: Vec<f32>| numbers.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<u8>>();
    prop_oneof![
        bytes.prop_map(|(query, rows)| (Element::U8, query, rows.concat())),
        floats.prop_map(move |(query, rows)| (Element::F32, raw(query), raw(rows.concat()))),
    ]
}

/// Checks that our lines are the `k` nearest, the first ones among those at the same distance, with the distances
/// computed elsewhere; if sums are not exact, up to their rounding, which may change the order of two.
fn check(lines: &[u8], k: usize, distances: &[f64], exact: bool) -> Result<(), TestCaseError> {
    let near = |a: f64, b: f64| a == b || (a - b).abs() <= a.abs() * 1e-13;
    let mut expected: Vec<_> =
        distances.iter().copied().enumerate().filter(|(_, distance)| !distance.is_nan()).collect();
    expected.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    expected.truncate(k);
    let lines = std::str::from_utf8(lines).unwrap().lines();
    let ours: Vec<(usize, f64)> = lines
        .map(|line| line.split_once(',').unwrap())
        .map(|(index, distance)| (index.parse().unwrap(), distance.parse().unwrap()))
        .collect();
    prop_assert_eq!(ours.len(), expected.len());
    for ((ours, expected), place) in ours.iter().zip(&expected).zip(0..) {
        prop_assert!(near(distances[ours.0], ours.1), "row {} is not {} away", ours.0, ours.1);
        prop_assert!(near(ours.1, expected.1), "place {place}: {ours:?} is not {expected:?}");
        prop_assert!(!exact || ours == expected, "place {place}: {ours:?}, {expected:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn neighbours_are_the_nearest_however_the_rows_are_cut(
        (element, query, data) in vectors(), k in prop_oneof![1..5u32, 1..400u32], cut in cuts(),
    ) {
        let name = match element { Element::U8 => "u8", Element::F32 => "f32" };
        let block = Knn { element, k, query: query.clone() }.block();
        let (lines, result) = resize(Operator::Knn, &block, &data, &cut);
        prop_assert_eq!(result, Ok(()));
        prop_assert!(lines == resize(Operator::Knn, &block, &data, &whole()).0, "it depends on cuts");
        // Quarters, and not too large.
        let quarter = |bytes: &[u8; 4]| (f32::from_le_bytes(*bytes) * 4.0).fract() == 0.0 && f32::from_le_bytes(*bytes).abs() < 1e3;
        let exact = element == Element::U8 || [&query, &data].iter().all(|bytes| bytes.as_chunks().0.iter().all(quarter));
        check(&lines, k as usize, &distances(&PYTHON, name, &query, &data), exact)?;
        if let Some(numpy) = &*BY_NUMPY {
            check(&lines, k as usize, &distances(numpy, name, &query, &data), exact)?;
        }
    }
}

fn nearest(knn: &Knn, data: &[u8]) -> Result<String, OperatorError> {
    let (output, result) = resize(Operator::Knn, &knn.block(), data, &whole());
    result.map(|()| String::from_utf8(output).unwrap())
}

#[test]
fn forms_of_neighbours() {
    let bytes = |k| Knn { element: Element::U8, k, query: vec![10, 20] };
    let rows = [10, 21, 9, 20, 255, 255, 10, 20];
    assert_eq!(nearest(&bytes(3), &rows), Ok("3,0\n0,1\n1,1\n".to_string()), "the first of those as near");
    assert_eq!(nearest(&bytes(2), &rows), Ok("3,0\n0,1\n".to_string()));
    assert_eq!(nearest(&bytes(9), &rows[..4]), Ok("0,1\n1,1\n".to_string()), "there are no more");
    assert_eq!(nearest(&bytes(1), &[]), Ok(String::new()));
    assert_eq!(nearest(&bytes(1), &rows[..5]), Err(OperatorError::TruncatedData));
    let raw = |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let floats = Knn { element: Element::F32, k: 9, query: raw(&[0.5]) };
    let rows = raw(&[f32::NAN, 1.0, f32::MAX, f32::INFINITY, 0.5]);
    let lines = "4,0\n1,0.25\n2,1.1579207543382391e77\n3,inf\n";
    assert_eq!(nearest(&floats, &rows), Ok(lines.to_string()), "what is no number is nobody's neighbour");
    // The greatest possible distance, in the widest row.
    let wide = Knn { element: Element::U8, k: 1, query: vec![0; 2048] };
    assert_eq!(nearest(&wide, &[255; 2048]), Ok(format!("0,{}\n", 2048 * 255 * 255)));
}

#[test]
fn wrong_parameters_are_refused_with_a_reason() {
    let knn = |element, k, query: &[u8]| Knn { element, k, query: query.to_vec() };
    for (wrong, reason) in [
        (knn(Element::U8, 0, &[1]), KnnError::Count),
        (knn(Element::U8, 65_537, &[1]), KnnError::Count),
        (knn(Element::U8, 1, &[]), KnnError::Length),
        (knn(Element::U8, 1, &[0; 2049]), KnnError::Length),
        (knn(Element::F32, 1, &[0; 5]), KnnError::Length),
        (knn(Element::F32, 1, &f32::NAN.to_le_bytes()), KnnError::Number),
        (knn(Element::F32, 1, &f32::INFINITY.to_le_bytes()), KnnError::Number),
    ] {
        assert_eq!(wrong.check(), Err(reason));
        assert!(dcs_ndp::Context::new(Operator::Knn, &wrong.block()).is_err());
    }
    for wrong in [&[2, 0, 0, 0, 1, 0, 0, 0, 1][..], &[0, 1, 0, 0, 1, 0, 0, 0, 1], &[0, 0, 0, 0, 1]] {
        assert!(dcs_ndp::Context::new(Operator::Knn, wrong).is_err());
    }
}
