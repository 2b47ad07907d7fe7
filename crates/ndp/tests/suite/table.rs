//! `filter` and `aggregate` against Python's csv and decimal modules, and their errors.

use crate::common::{Cut, resize, resized, whole};
use crate::oracle::Oracle;
use dcs_abi::operator::Operator;
use dcs_ndp::parameter::{check_aggregate, check_filter};
use dcs_ndp::{ExpressionError, OperatorError, sequential};
use proptest::prelude::*;
use std::sync::{LazyLock, Mutex};

/// Reads a table as Python does, and answers as we should: kept rows are written unchanged.
const ORACLE: &str = r##"
import csv, io, operator, re
from decimal import Decimal, getcontext, ROUND_HALF_UP
getcontext().prec = 80
def answer(column, comparison, constant, is_number, functions, text):
    # A row as it stands in the text: Python does not tell where its rows lie.
    raw = [match for match in re.findall(r'(?:[^"\n]|"(?:[^"])*")*\n|(?:[^"\n]|"(?:[^"])*")+$', text)]
    rows = [next(csv.reader(io.StringIO(line, newline=""), strict=True), []) for line in raw]
    def number(field):
        field = field.strip(" \t\r\n\x0c")
        if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", field, re.A): return Decimal(field)
    def field(row, name):
        at = int(name[1:]) - 1 if name[0] == "#" else [cell.strip() for cell in header].index(name)
        return row[at] if at < len(row) else ""
    table = [(row, line) for row, line in zip(rows, raw) if line.rstrip("\n") not in ("", "\r")]
    header = table[0][0]
    compare = {"=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[comparison]
    def wanted(row):
        value = field(row, column)
        if is_number == "no": return compare(value, constant)
        value = number(value)
        return value is not None and compare(value, Decimal(constant))
    kept = [table[0]] + [(row, line) for row, line in table[1:] if wanted(row)]
    rows_out = "".join(line for _, line in kept).encode("latin-1")
    def plain(value):
        # Zero has no sign in exact numbers.
        text = f"{value or Decimal(0):f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    results = []
    for function in functions.split(";"):
        name, _, argument = function.rstrip(")").partition("(")
        if not argument:
            results.append(str(len(kept) - 1))
            continue
        cells = [cell for cell in (field(row, argument) for row, _ in kept[1:]) if cell.strip(" \t\r\n\x0c")]
        if name == "count":
            results.append(str(len(cells)))
            continue
        numbers = [number(cell) for cell in cells]
        if not numbers: results.append("0" if name == "sum" else "")
        elif name == "sum": results.append(plain(sum(numbers)))
        elif name == "mean": results.append(plain((sum(numbers) / len(numbers)).quantize(Decimal(1).scaleb(-18), ROUND_HALF_UP)))
        else: results.append(plain({"min": min, "max": max}[name](numbers)))
    return rows_out, (",".join(results) + "\n").encode()
serve(lambda *arguments: answer(*(argument.decode("latin-1") for argument in arguments)))
"##;

/// Process of the oracle. It ends with this one, when its questions end.
static PYTHON: LazyLock<Mutex<Oracle>> = LazyLock::new(|| Mutex::new(Oracle::new(ORACLE)));

/// Makes a number with zeros and a sign, as people write them.
fn numbers() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (-1000..1000i32).prop_map(|number| number.to_string()),
        3 => (-99_999..99_999i32, 1..4u32).prop_map(|(number, digits)| format!("{:.*}", digits as usize, f64::from(number) / 100.0)),
        1 => Just("100".to_string()), 1 => Just("100.00".to_string()), 1 => Just("+0100.0".to_string()),
        1 => "[1-9][0-9]{12,17}\\.[0-9]{15,18}", 1 => "-?[0-9]\\.[0-9]e-?[0-9]",
    ]
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-c ]{0,5}", 1 => Just("\"a, b\"".to_string()), 1 => Just("\"two\nlines\"".to_string()),
        1 => Just("\"\"\"marks\"\"\"".to_string()), 1 => Just("\"\"".to_string()), 1 => Just("\"x\r\ny\"".to_string()),
    ]
}

/// Makes a table with a header, an id, a price that may be empty, and a note; rows may be short, lines empty.
fn tables() -> impl Strategy<Value = Vec<u8>> {
    let price = prop_oneof![8 => numbers(), 1 => Just(String::new()), 1 => numbers().prop_map(|number| format!("\"{number}\""))];
    let row = (0..9999u32, price, texts(), 0..40u8).prop_map(|(id, price, note, shape)| match shape {
        0 => String::new(),
        1 => format!("{id}"),
        2 => format!("{id},{price}"),
        3 => format!("{id},{price},{note},more"),
        _ => format!("{id},{price},{note}"),
    });
    (prop::collection::vec(row, 0..60), any::<bool>(), any::<bool>()).prop_map(|(rows, crlf, ended)| {
        let end = if crlf { "\r\n" } else { "\n" };
        let mut text = [vec!["id,price,\"the, note\"".to_string()], rows].concat().join(end);
        text.push_str(if ended { end } else { "" });
        text.into_bytes()
    })
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

const FUNCTIONS: &str =
    "count;count(price);sum(price);min(price);max(price);mean(price);count(the, note);sum(#1)";

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_and_results_are_those_of_python_however_the_table_is_cut(
        table in tables(), comparison in prop::sample::select(vec!["=", "!=", "<", "<=", ">", ">="]),
        (column, constant, is_number) in prop_oneof![
            2 => numbers().prop_map(|number| ("price", number, true)),
            1 => Just(("#1", "5000".to_string(), true)),
            1 => "[a-c]{1,3}".prop_map(|text| ("the, note", text, false)),
            1 => Just(("#3", "a, b".to_string(), false)),
        ],
        cut in cuts(),
    ) {
        let flag = if is_number { "yes" } else { "no" };
        let [name, sign, value, flag, functions] = [column, comparison, &constant, flag, FUNCTIONS].map(str::as_bytes);
        let answers = PYTHON.lock().unwrap().ask(&[name, sign, value, flag, functions, &table]);
        let [rows, results] = answers.try_into().unwrap();
        let constant = if is_number { constant } else { format!("\"{constant}\"") };
        let expression = format!("{column}{comparison}{constant}");
        let (output, result) = resize(Operator::Filter, expression.as_bytes(), &table, &cut);
        prop_assert_eq!(result, Ok(()));
        prop_assert!(output == rows, "{}: {}: {} != {}", expression, table.escape_ascii(), output.escape_ascii(), rows.escape_ascii());
        let chain = [(Operator::Filter, expression.into_bytes()), (Operator::Aggregate, FUNCTIONS.as_bytes().to_vec())];
        let ours = sequential::run(&chain, &table).unwrap().output;
        prop_assert!(ours == results, "{}: {} != {}", table.escape_ascii(), ours.escape_ascii(), results.escape_ascii());
        let (ours, result) = resize(Operator::Aggregate, FUNCTIONS.as_bytes(), &rows, &cut);
        prop_assert!(result == Ok(()) && ours == results);
    }
}

fn filtered(expression: &str, table: &str) -> Result<String, OperatorError> {
    let (output, result) = resize(Operator::Filter, expression.as_bytes(), table.as_bytes(), &whole());
    result.map(|()| String::from_utf8(output).unwrap())
}

fn aggregated(expression: &str, table: &str) -> Result<String, OperatorError> {
    let (output, result) = resize(Operator::Aggregate, expression.as_bytes(), table.as_bytes(), &whole());
    result.map(|()| String::from_utf8(output).unwrap())
}

#[test]
fn forms_of_tables() {
    assert_eq!(filtered("-n:#2=b", "a,b\nb,a\n"), Ok("a,b\n".to_string()));
    assert_eq!(filtered("-t:y>1", "x\ty\n1,5\t2\n\t1\n"), Ok("x\ty\n1,5\t2\n".to_string()));
    assert_eq!(filtered("-nd;:#1>1", "1,5;x\n2;\"y;z\"\n"), Ok("2;\"y;z\"\n".to_string()));
    assert_eq!(filtered("-d::b=1", "a:b\n1:1\n"), Ok("a:b\n1:1\n".to_string()));
    assert_eq!(
        filtered("a<=1", "\u{feff}a\n1\n2\n"),
        Ok("\u{feff}a\n1\n".to_string()),
        "a mark in front is no part of a name"
    );
    assert_eq!(filtered("a=1", ""), Ok(String::new()));
    assert_eq!(aggregated("count;mean(#1)", ""), Ok("0,\n".to_string()));
    assert_eq!(
        aggregated("sum(a);mean(a)", "a\n0.1\n0.2\n0.30\n"),
        Ok("0.6,0.2\n".to_string()),
        "decimals are exact"
    );
    let zeros = aggregated("sum(a);min(a);max(a);mean(a)", "a\n-0.0\n-0e0\n");
    assert_eq!(zeros, Ok("0,0,0,0\n".to_string()), "zero has no sign");
}

#[test]
fn what_is_no_table_is_an_error() {
    let (corrupt, truncated) = (Err(OperatorError::CorruptData), Err(OperatorError::TruncatedData));
    assert_eq!(filtered("b=1", "a\n1\n"), corrupt, "no such column");
    assert_eq!(filtered("a=1", "a\nx\"y\"\n"), corrupt, "marks inside a field");
    assert_eq!(filtered("a=1", "a\n\"y\"x\n"), corrupt, "something behind the marks");
    assert_eq!(filtered("a=1", "a\n\"1\n"), truncated, "marks that stay open");
    assert_eq!(filtered("a=1", "a,b\n1,x\"y\"\n"), Ok("a,b\n1,x\"y\"\n".to_string()), "nobody looked there");
    assert_eq!(aggregated("sum(a)", "a\n1\nx\n"), corrupt, "no number");
    assert_eq!(aggregated("sum(a)", ""), truncated, "no header");
    let most = "999999999999999999\n";
    assert_eq!(
        aggregated("sum(a)", &format!("a\n{}", most.repeat(100))),
        Ok("99999999999999999900\n".to_string())
    );
    assert_eq!(aggregated("sum(a)", &format!("a\n{}", most.repeat(200))), corrupt, "the sum is too large");
    // A row, like a line, may have a MiB; here between quotation marks, with line feeds in it.
    let long = |length: usize| format!("a\n\"{}\"\n", "x\n".repeat(length / 2));
    assert!(filtered("a!=\"1\"", &long((1 << 20) - 2)).is_ok_and(|output| output == long((1 << 20) - 2)));
    for cut in [whole(), Cut { pieces: vec![4096], room: 512, empty_end: true }] {
        let (output, result) = resize(Operator::Filter, b"a!=\"1\"", long(1 << 20).as_bytes(), &cut);
        assert_eq!((output.as_slice(), result), (b"a\n".as_slice(), corrupt.clone().map(|_| ())));
    }
}

/// A header of a million columns: a look-up that restarted at each column would not end here.
#[test]
fn the_longest_header_is_gone_through_once() {
    let commas = ",".repeat((1 << 20) - 1);
    let rows = format!("{commas}b\n{commas}1\n{commas}2\n");
    assert_eq!(filtered("b=1", &rows).map(|rows| rows.len()), Ok(2 * ((1 << 20) + 1)));
    assert_eq!(aggregated("sum(b)", &rows), Ok("3\n".to_string()));
    assert_eq!(filtered("c=1", &rows), Err(OperatorError::CorruptData));
}

#[test]
fn wrong_expressions_are_refused_with_a_reason() {
    use ExpressionError::{Column, Comparison, Function, Length, Options};
    for (wrong, reason) in [
        ("", Length),
        ("price", Comparison),
        ("price>", Comparison),
        ("price!5", Comparison),
        (">5", Column),
        ("#0>5", Column),
        ("#x>5", Column),
        ("-n:price>5", Column),
        ("-x:a>5", Options),
        ("-n", Options),
        ("-d\":a>5", Options),
        (&"a".repeat(1025), Length),
    ] {
        assert_eq!(check_filter(wrong), Err(reason), "{wrong}");
    }
    for (wrong, reason) in [
        ("", Length),
        ("sum", Function),
        ("sum(a", Function),
        ("median(a)", Function),
        ("sum()", Column),
        ("count;", Function),
    ] {
        // A bracket may be part of a name: then the header does not have the name.
        let refused = check_aggregate(wrong);
        assert!(refused == Err(reason) || wrong == "sum(a)sum(b)" && refused.is_ok(), "{wrong}: {refused:?}");
    }
    assert_eq!(resized(Operator::Aggregate, b"count", b"h\n1\n"), b"1\n");
}
