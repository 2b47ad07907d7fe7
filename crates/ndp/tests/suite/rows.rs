//! `filter` and `aggregate` of binary rows against Python's struct, fractions and math modules, and their errors.

use crate::common::{Cut, resize, whole};
use crate::oracle::Oracle;
use dcs_abi::operator::Operator;
use dcs_ndp::parameter::{check_aggregate, check_filter};
use dcs_ndp::{ExpressionError, OperatorError};
use proptest::prelude::*;
use std::sync::{LazyLock, Mutex};

/// Reads rows as Python does, and answers as we should. For floating-point sums, the sum of magnitudes follows the sum,
/// because rounding may cost a little of it.
const ORACLE: &str = r##"
import math, operator, struct
from fractions import Fraction
CODES = {"u8": "B", "i8": "b", "u16": "H", "i16": "h", "u32": "I", "i32": "i", "u64": "Q", "i64": "q", "f32": "f", "f64": "d"}
COMPARE = {"=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
def reader(column):
    kind, offset = column.split("@")
    if kind.startswith("text"): return lambda row: row[int(offset):int(offset) + int(kind[4:])].rstrip(b"\0")
    big, kind = kind.endswith("be"), kind.removesuffix("be").removesuffix("le")
    code = (">" if big else "<") + CODES[kind]
    return lambda row: struct.unpack_from(code, row, int(offset))[0]
def plain(value):
    ones = 10**18
    scaled = (abs(value) * ones * 2 + 1) // 2
    text = f"{'-' if value < 0 and scaled else ''}{scaled // ones}.{scaled % ones:018}"
    return text.rstrip("0").rstrip(".")
def answer(width, column, comparison, constant, functions, data):
    width, column, comparison, constant, functions = int(width), column.decode(), comparison.decode(), constant.decode(), functions.decode()
    rows = [data[at:at + width] for at in range(0, len(data), width)]
    read, kind = reader(column), column.split("@")[0]
    if kind.startswith("text"): against = constant.strip('"').encode()
    elif kind[0] == "f":
        against = float(constant)
        if kind.startswith("f32"): against = struct.unpack("f", struct.pack("f", against))[0]
    else: against = Fraction(constant)
    kept = [row for row in rows if (value := read(row)) == value and COMPARE[comparison](value, against)]
    results = []
    for function in functions.split(";"):
        name, _, argument = function.rstrip(")").partition("(")
        if not argument:
            results.append(str(len(rows)))
            continue
        values = [value for value in map(reader(argument), rows) if value == value and value != b""]
        if name == "count": results.append(str(len(values)))
        elif argument[0] == "f":
            if name in ("sum", "mean"):
                divisor = len(values) if name == "mean" else 1
                if divisor == 0: results.append("")
                else: results.append(f"{math.fsum(values) / divisor!r} {math.fsum(map(abs, values)) / divisor!r}")
            else: results.append(repr({"min": min, "max": max}[name](values)) if values else "")
        elif name == "sum": results.append(str(sum(values)))
        elif not values: results.append("")
        elif name == "mean": results.append(plain(Fraction(sum(values), len(values))))
        else: results.append(str({"min": min, "max": max}[name](values)))
    return b"".join(kept), ",".join(results).encode()
serve(answer)
"##;

static PYTHON: LazyLock<Mutex<Oracle>> = LazyLock::new(|| Mutex::new(Oracle::new(ORACLE)));

/// Notation of a column, its size, and a constant near its values.
fn columns() -> impl Strategy<Value = (String, usize, String)> {
    let whole = prop::sample::select(vec![
        ("u", 8),
        ("u", 16),
        ("u", 32),
        ("u", 64),
        ("i", 8),
        ("i", 16),
        ("i", 32),
        ("i", 64),
    ]);
    let order = prop::sample::select(vec!["", "le", "be"]);
    let constant = prop_oneof![
        4 => (-300..300i64).prop_map(|number| number.to_string()),
        1 => any::<i64>().prop_map(|number| number.to_string()),
        1 => any::<u64>().prop_map(|number| number.to_string()),
        2 => (-300..300i64, 1..100u8).prop_map(|(whole, behind)| format!("{whole}.{behind:02}")),
        1 => Just("1e2".to_string()),
        1 => Just("-99999999999999999999999".to_string()),
        1 => Just("99999999999999999999999".to_string()),
    ];
    let float = prop_oneof![
        3 => (-40..40i32).prop_map(|number| (f64::from(number) / 8.0).to_string()),
        1 => Just("0.1".to_string()), 1 => Just("-0".to_string()), 1 => Just("inf".to_string()), 1 => Just("-inf".to_string()), 1 => Just("1e300".to_string()),
    ];
    prop_oneof![
        4 => (whole, order.clone(), constant).prop_map(|((sign, bits), order, constant)| (format!("{sign}{bits}{order}"), bits / 8, constant)),
        2 => (any::<bool>(), order, float).prop_map(|(double, order, constant)| match double && constant != "1e300" {
            true => (format!("f64{order}"), 8, constant),
            false => (format!("f32{order}"), 4, constant.replace("1e300", "2.5")),
        }),
        1 => (1..9usize, "[ab]{1,4}").prop_map(|(size, text)| (format!("text{size}"), size, format!("\"{text}\""))),
    ]
}

/// Makes bytes that are numbers near each other, far from each other, and NaN.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let float = |value: f64| value.to_le_bytes().to_vec();
    let piece = prop_oneof![
        2 => prop::collection::vec(any::<u8>(), 1..40),
        2 => prop::collection::vec(prop::sample::select(vec![0u8, 1, 0xff, b'a', b'b']), 1..40),
        2 => (-40..40i32).prop_map(move |number| float(f64::from(number) / 8.0)),
        2 => (-40..40i32).prop_map(|number| (number as f32 / 8.0).to_le_bytes().to_vec()),
        1 => (-300..300i64).prop_map(|number| number.to_le_bytes().to_vec()),
        1 => (-300..300i32).prop_map(|number| number.to_be_bytes().to_vec()),
        1 => Just(f64::NAN.to_be_bytes().to_vec()),
        1 => Just(f32::NAN.to_le_bytes().to_vec()),
    ];
    prop::collection::vec(piece, 0..300).prop_map(|pieces| pieces.concat())
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

/// Returns the error that rounding may cause in a sum: a last digit, and nearly nothing of the magnitudes. `single`:
/// minimum and maximum have as many digits as single precision needs.
fn near(ours: &str, theirs: &str, single: bool) -> bool {
    let Some((value, magnitude)) = theirs.split_once(' ') else {
        let number = |text: &str| text.parse::<f64>().ok();
        let of_single = |text: &str| text.parse::<f32>().ok();
        // 0.5 and 5e-1 are the same.
        let same = if single { of_single(ours) == of_single(theirs) } else { number(ours) == number(theirs) };
        return ours == theirs || number(ours).is_some() && number(theirs).is_some() && same;
    };
    let [ours, value, magnitude] = [ours, value, magnitude].map(|text| text.parse::<f64>().unwrap());
    ours == value || (ours - value).abs() <= value.abs() * 4e-16 + magnitude * 1e-26
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_and_results_are_those_of_python_however_the_rows_are_cut(
        (kind, size, constant) in columns(), offset in prop_oneof![Just(0usize), 0..30usize],
        behind in prop_oneof![Just(0usize), 0..40usize], data in bytes(),
        comparison in prop::sample::select(vec!["=", "!=", "<", "<=", ">", ">="]), cut in cuts(),
    ) {
        let width = offset + size + behind;
        let data = &data[..data.len() - data.len() % width];
        let column = format!("{kind}@{offset}");
        let functions = match kind.starts_with("text") {
            true => format!("count;count({column});sum(u8@0)"),
            false => format!("count;count({column});sum({column});min({column});max({column});mean({column})"),
        };
        let asked = [&width.to_string(), &column, comparison, &constant, &functions].map(|text| text.as_bytes().to_vec());
        // The sum of infinities of both signs is NaN, which Python reports by failing.
        let infinite = kind.starts_with('f') && data.chunks(width).any(|row| {
            let field = &row[offset..offset + size];
            let mut field = field.to_vec();
            if kind.ends_with("be") { field.reverse(); }
            match size { 4 => f32::from_le_bytes(field.try_into().unwrap()).abs() > 1e30, _ => f64::from_le_bytes(field.try_into().unwrap()).abs() > 1e290 }
        });
        let functions = if infinite { format!("count;count({column});min({column});max({column})") } else { functions };
        let asked = [&asked[0][..], &asked[1], &asked[2], &asked[3], functions.as_bytes(), data];
        let answers = PYTHON.lock().unwrap().ask(&asked);
        let [rows, results] = answers.try_into().unwrap();
        let expression = format!("-w{width}:{column}{comparison}{constant}");
        let (ours, result) = resize(Operator::Filter, expression.as_bytes(), data, &cut);
        prop_assert_eq!(result, Ok(()));
        prop_assert!(ours == rows, "{}: {}: {} != {}", expression, data.escape_ascii(), ours.escape_ascii(), rows.escape_ascii());
        let expression = format!("-w{width}:{functions}");
        let (ours, result) = resize(Operator::Aggregate, expression.as_bytes(), data, &cut);
        prop_assert_eq!(result, Ok(()));
        let (whole, _) = resize(Operator::Aggregate, expression.as_bytes(), data, &crate::common::whole());
        prop_assert!(ours == whole, "it depends on how the rows are cut");
        let [ours, theirs] = [ours, results].map(|bytes| String::from_utf8(bytes).unwrap());
        let (ours, theirs): (Vec<_>, Vec<_>) = (ours.trim_end().split(',').collect(), theirs.split(',').collect());
        let same = ours.len() == theirs.len() && ours.iter().zip(&theirs).all(|(ours, theirs)| near(ours, theirs, kind.starts_with("f32")));
        prop_assert!(same, "{}: {}: {:?} != {:?}", expression, data.escape_ascii(), ours, theirs);
    }
}

fn through(operator: Operator, expression: &str, rows: &[u8]) -> Result<Vec<u8>, OperatorError> {
    let (output, result) = resize(operator, expression.as_bytes(), rows, &whole());
    result.map(|()| output)
}

#[test]
fn forms_of_rows() {
    let filtered = |expression: &str, rows: &[u8]| through(Operator::Filter, expression, rows);
    let aggregated = |expression: &str, rows: &[u8]| {
        through(Operator::Aggregate, expression, rows).map(|text| String::from_utf8(text).unwrap())
    };
    assert_eq!(filtered("-w2:u8@1>=2", &[9, 1, 8, 2, 7, 3]), Ok(vec![8, 2, 7, 3]));
    assert_eq!(filtered("-w2: u16be @ 0 = 258 ", &[1, 2, 2, 1]), Ok(vec![1, 2]));
    assert_eq!(filtered("-w3:text2@1=b", b"abcab\0"), Ok(b"ab\0".to_vec()), "zeros fill up");
    assert_eq!(filtered("-w2:text2@0<abc", b"abac"), Ok(b"ab".to_vec()), "a longer constant is greater");
    assert_eq!(filtered("-w2:text2@0=abc", b"ab"), Ok(vec![]));
    assert_eq!(
        filtered("-w8:f64@0!=1", &f64::NAN.to_le_bytes()),
        Ok(vec![]),
        "what is no number never matches"
    );
    assert_eq!(filtered("-w4:f32@0=0.1", &0.1f32.to_le_bytes()), Ok(0.1f32.to_le_bytes().to_vec()));
    assert_eq!(filtered("-w4:u32@0>1", &[]), Ok(vec![]));
    let rows: Vec<u8> = [u64::MAX; 3].iter().flat_map(|number| number.to_le_bytes()).collect();
    assert_eq!(
        aggregated("-w8:sum(u64@0);mean(u64@0);min(i64@0)", &rows),
        Ok("55340232221128654845,18446744073709551615,-1\n".to_string())
    );
    let rows: Vec<u8> = [0.1f32, 0.2, f32::NAN].iter().flat_map(|number| number.to_be_bytes()).collect();
    assert_eq!(
        aggregated("-w4:count;count(f32be@0);max(f32be@0);mean(f32be@0)", &rows),
        Ok("3,2,0.2,0.15000000223517418\n".to_string())
    );
    assert_eq!(aggregated("-w1:mean(i8@0)", &[255, 255, 254]), Ok("-1.333333333333333333\n".to_string()));
    assert_eq!(aggregated("-w4:sum(f32@0);min(f32@0);min(u8@0);count", &[]), Ok("0,,,0\n".to_string()));
    let infinities: Vec<u8> =
        [f64::INFINITY, 1.0, f64::INFINITY].iter().flat_map(|number| number.to_le_bytes()).collect();
    assert_eq!(aggregated("-w8:sum(f64@0);min(f64@0)", &infinities), Ok("inf,1\n".to_string()));
}

/// A row that is cut short is found, after all rows before it were passed.
#[test]
fn a_row_cut_short_is_an_error() {
    for cut in [whole(), Cut { pieces: vec![3], room: 1, empty_end: true }] {
        let (output, result) = resize(Operator::Filter, b"-w4:u8@0=1", &[1, 2, 3, 4, 1, 2], &cut);
        assert_eq!((output.as_slice(), result), (&[1, 2, 3, 4][..], Err(OperatorError::TruncatedData)));
        let (output, result) = resize(Operator::Aggregate, b"-w4:count", &[0; 9], &cut);
        assert_eq!((output.as_slice(), result), (&[][..], Err(OperatorError::TruncatedData)));
    }
}

/// Rows of a MiB, in pieces and in one.
#[test]
fn wide_rows_pass() {
    let width = 1 << 20;
    let mut rows = crate::common::sample(9, 3 * width);
    (rows[width - 1], rows[2 * width - 1], rows[3 * width - 1]) = (7, 8, 7);
    let wanted = [&rows[..width], &rows[2 * width..]].concat();
    let expression = format!("-w{width}:u8@{}=7", width - 1);
    for cut in [whole(), Cut { pieces: vec![4096, 100_000], room: 5000, empty_end: true }] {
        let (output, result) = resize(Operator::Filter, expression.as_bytes(), &rows, &cut);
        assert!(result == Ok(()) && output == wanted);
    }
}

#[test]
fn wrong_expressions_are_refused_with_a_reason() {
    use ExpressionError::{BinaryColumn, Comparison, Constant, Function, Options, Width};
    for (wrong, reason) in [
        ("-w4", Options),
        ("-w4n:u8@0=1", Width),
        ("-nw4:u8@0=1", Options),
        ("-w0:u8@0=1", Width),
        ("-w:u8@0=1", Width),
        ("-w+4:u8@0=1", Width),
        ("-w1048577:u8@0=1", Width),
        ("-w99999999999999999999:u8@0=1", Width),
        ("-w4:price>5", BinaryColumn),
        ("-w4:u8>5", BinaryColumn),
        ("-w4:u8@4>5", BinaryColumn),
        ("-w4:u32@1>5", BinaryColumn),
        ("-w4:u8@18446744073709551615>5", BinaryColumn),
        ("-w4:u24@0>5", BinaryColumn),
        ("-w4:u8@-1>5", BinaryColumn),
        ("-w4:text@0=a", BinaryColumn),
        ("-w4:text0@0=a", BinaryColumn),
        ("-w4:text2be@0=a", BinaryColumn),
        ("-w4:text2@0=", Comparison),
        ("-w4:u8@0", Comparison),
        ("-w4:u8@0=", Constant),
        ("-w4:u8@0=a", Constant),
        ("-w4:u8@0=\"1\"", Constant),
        ("-w4:f32@0=nan", Constant),
        ("-w4:u8@0=999999999999999999999999999999999999999999", Constant),
    ] {
        assert_eq!(check_filter(wrong), Err(reason), "{wrong}");
    }
    for (wrong, reason) in [
        ("-w4:", Function),
        ("-w4:sum", Function),
        ("-w4:median(u8@0)", Function),
        ("-w4:sum(price)", BinaryColumn),
        ("-w4:sum(text2@0)", Function),
        ("-w4:count;sum(u32@2)", BinaryColumn),
    ] {
        assert_eq!(check_aggregate(wrong), Err(reason), "{wrong}");
    }
}
