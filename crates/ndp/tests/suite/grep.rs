//! `grep` against GNU grep and Python's `re`, and its error messages.

use crate::common::{Cut, grep, resize, resized, whole};
use dcs_abi::operator::Operator;
use dcs_ndp::parameter::Grep;
use dcs_ndp::{Context, OperatorError, PatternError};
use proptest::prelude::*;
use std::io::Write;
use std::process::{Command, Stdio};

/// Bytes of the longest line.
const LINE_MAX: usize = 1 << 20;

fn lines(grep: &Grep, text: &[u8]) -> Vec<u8> {
    resized(Operator::Grep, &grep.block(), text)
}

fn run(program: &mut Command, input: &[u8]) -> Option<Vec<u8>> {
    let child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{program:?} is needed for this test: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // grep may stop reading if it does not like its arguments.
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join().unwrap();
    // 1: no line.
    matches!(output.status.code(), Some(0 | 1)).then_some(output.stdout)
}

/// Returns GNU grep's answer, without the line feed that it adds to an unterminated last line.
fn gnu(grep: &Grep, text: &[u8]) -> Vec<u8> {
    let mut command = Command::new("grep");
    command.env("LC_ALL", "C").args(["-a", "-E"]);
    command.args(grep.ignore_case.then_some("-i")).args(grep.invert.then_some("-v"));
    command.args(grep.count.then_some("-c")).args(["-e", &grep.pattern]);
    let mut output = run(&mut command, text).unwrap_or_else(|| panic!("grep refuses {:?}", grep.pattern));
    let added = !grep.count && text.last().is_some_and(|byte| *byte != b'\n');
    if added && ends_with_last_line(&output, text) {
        output.pop();
    }
    output
}

/// The output ends with the text's last line, which had no line feed and got one. (An identical line elsewhere would
/// match too.)
fn ends_with_last_line(output: &[u8], text: &[u8]) -> bool {
    let last = |text: &[u8]| text.rsplit(|byte| *byte == b'\n').next().map(<[u8]>::to_vec);
    output.strip_suffix(b"\n").is_some_and(|printed| last(printed) == last(text))
}

fn grep_like() -> impl Strategy<Value = Grep> {
    // Expressions that POSIX's extended syntax and ours read alike.
    let atom = prop_oneof![
        4 => "[abc]{1,3}", 1 => Just(".".to_string()), 1 => Just("[ab]".to_string()), 1 => Just("[^a]".to_string()),
        1 => Just("[^abc ]".to_string()), 1 => Just("foo".to_string()), 1 => Just(" ".to_string()),
        1 => Just("\\w".to_string()), 1 => Just("\\b".to_string()), 1 => Just("\\W".to_string()),
        1 => Just("[[:digit:]]".to_string()), 1 => Just("\\.".to_string()), 1 => Just("ERROR".to_string()),
    ];
    let expression = atom.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
            1 => prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| format!("({})", parts.join("|"))),
            2 => (inner, prop_oneof![Just("*"), Just("+"), Just("?"), Just("{2}"), Just("{1,3}")])
                .prop_map(|(inner, times)| format!("({inner}){times}")),
        ]
    });
    let anchored = (expression, any::<bool>(), any::<bool>(), 0..8u8);
    anchored.prop_map(|(inner, start, end, flags)| Grep {
        pattern: format!("{}{inner}{}", if start { "^" } else { "" }, if end { "$" } else { "" }),
        ignore_case: flags & 1 != 0,
        invert: flags & 2 != 0,
        count: flags & 4 != 0,
    })
}

fn texts() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        8 => "[abcA ]{0,6}".prop_map(String::into_bytes), 2 => Just(b"foo".to_vec()), 2 => Just(b"ERROR".to_vec()),
        4 => Just(b"\n".to_vec()), 1 => Just(b"\r\n".to_vec()), 1 => Just(b"\0".to_vec()),
        1 => Just(b"42.0".to_vec()), 1 => prop::collection::vec(any::<u8>(), 1..4),
        1 => Just(vec![b'a'; 300]),
    ];
    prop::collection::vec(word, 0..400).prop_map(|words| words.concat())
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lines_are_those_of_gnu_grep_however_the_text_is_cut(grep in grep_like(), text in texts(), cut in cuts()) {
        let (output, result) = resize(Operator::Grep, &grep.block(), &text, &cut);
        prop_assert_eq!(result, Ok(()));
        prop_assert!(output == gnu(&grep, &text), "{:?} of {:?}: {:?}", grep, text, output);
        prop_assert!(output == lines(&grep, &text));
    }

    /// Matching lines and the others together make up the text.
    #[test]
    fn every_line_matches_or_not(grep in grep_like(), text in texts()) {
        let [straight, inverted] = [false, true].map(|invert| {
            lines(&Grep { invert, count: false, ..grep.clone() }, &text)
        });
        prop_assert_eq!(straight.len() + inverted.len(), text.len());
        let (mut one, mut other) = (&straight[..], &inverted[..]);
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let side = if one.starts_with(line) { &mut one } else { &mut other };
            prop_assert!(side.starts_with(line));
            *side = &side[line.len()..];
        }
    }
}

/// Expressions that POSIX lacks: Python's `re` on bytes, line by line.
#[test]
fn expressions_against_python() {
    let patterns = [
        r"\d+",
        r"\s$",
        r"^\s*$",
        r"^\S+\s+\S+$",
        r"(?i)error",
        r"(?i:e)rror",
        r"a+?b",
        r"\x41",
        r"[\x80-\xff]",
        r"\bfoo\b",
        r"\Boo",
        r"foo|bar|baz",
        r"(?:foo|ba)r?",
        r"^$",
        r"\Afoo",
        r"o\Z",
        r"[^\d\s]{5}",
        r".",
        r"x*",
        r"\.\d{2,}",
        r"(ab|cd)+e",
        r"a.c",
        r"[^\n]o",
        r"\W\W",
        r"(?s)a.b",
        r"\Dx",
        r"a,b",
        r"\t",
    ];
    let text = b"foo bar\nError 42.10\n\n \t\nfoo\n\xc3\xa4\xff ab,a,b cde\nERROR\r\na\0c ababe\nxx\naab\nbaz foo\ntoo\nA.c\nlast foo";
    for pattern in patterns {
        // `\A` and `\Z` are an end of the line here; `\Z` is written `\z`.
        let program = format!(
            "import re, sys\npattern = re.compile({pattern:?}.encode())\n\
             for line in re.findall(rb'[^\\n]*\\n|[^\\n]+$', sys.stdin.buffer.read()):\n\
             \tif pattern.search(line.removesuffix(b'\\n')): sys.stdout.buffer.write(line)"
        );
        let theirs = run(Command::new("python3").args(["-c", &program]), text).expect("Python takes it");
        let ours = lines(&grep(&pattern.replace("\\Z", "\\z")), text);
        assert!(
            ours == theirs,
            "{pattern}: {:?}, {:?}",
            ours.escape_ascii().to_string(),
            theirs.escape_ascii().to_string()
        );
    }
}

#[test]
fn a_line_may_have_a_mebibyte_and_no_more() {
    let long =
        |length: usize| [b"first ERROR\n", vec![b'x'; length].as_slice(), b" ERROR\nlast ERROR"].concat();
    let fits = LINE_MAX - " ERROR".len();
    let cuts = [
        whole(),
        Cut { pieces: vec![65_536], room: 4096, empty_end: true },
        Cut { pieces: vec![7, 1_000_003], ..whole() },
    ];
    for cut in &cuts {
        let text = long(fits);
        assert_eq!(resize(Operator::Grep, &grep("ERROR").block(), &text, cut), (text, Ok(())));
        for (pattern, before) in [("ERROR", b"first ERROR\n".as_slice()), ("nothing", b"")] {
            let (output, result) = resize(Operator::Grep, &grep(pattern).block(), &long(fits + 1), cut);
            assert_eq!((output.as_slice(), result), (before, Err(OperatorError::CorruptData)));
        }
        // The last line as well, which has no line feed.
        for (length, result) in [(LINE_MAX, Ok(())), (LINE_MAX + 1, Err(OperatorError::CorruptData))] {
            let (output, ended) = resize(Operator::Grep, &grep("x$").block(), &vec![b'x'; length], cut);
            assert_eq!((output.len(), ended), (if result.is_ok() { length } else { 0 }, result));
        }
    }
}

#[test]
fn what_is_no_pattern_is_refused_with_a_reason() {
    let check = |pattern: &str| grep(pattern).check();
    assert_eq!(check(""), Err(PatternError::Length));
    assert_eq!(check(&"a".repeat(1016)), Ok(()));
    assert_eq!(check(&"a".repeat(1017)), Err(PatternError::Length));
    assert_eq!(check("a\nb"), Err(PatternError::LineFeed));
    assert_eq!(check(r"a\nb"), Err(PatternError::LineFeed));
    assert_eq!(check("(?:(?:a{100}){100}){100}"), Err(PatternError::TooLarge));
    for unicode in [r"\p{Greek}", r"(?u:\w)", r"(?u)\b", "[äö]", "(?u:[äö])"] {
        assert!(check(unicode).is_err(), "{unicode}");
    }
    assert_eq!(check("ä|ö"), Ok(()), "bytes of UTF-8");
    for wrong in ["(", "a{2,1}", "[b-a]", "*", r"\q", &"(".repeat(200)] {
        assert!(matches!(check(wrong), Err(PatternError::Syntax(text)) if !text.contains('\n')), "{wrong}");
    }
    let refused = |block: &[u8]| Context::new(Operator::Grep, block).err();
    for block in [
        &b""[..],
        &[0; 8],
        b"\x08\0\0\0\0\0\0\0a",
        b"\0\0\0\0\0\0\0\x01a",
        b"\0\0\0\0\0\0\0\0\xff",
        b"\0\0\0\0\0\0\0\0(",
    ] {
        assert_eq!(refused(block), Some(OperatorError::BadParameter), "{block:?}");
    }
}

/// Checks that these end: expressions that take quadratic time or worse in libraries that backtrack, and in searches
/// that restart at every match.
#[test]
fn hostile_expressions_take_linear_time() {
    let text =
        [vec![b'a'; LINE_MAX - 1], b"\n".to_vec(), b"ab".repeat(LINE_MAX / 3), b"\n".to_vec()].concat();
    let dense = b"a\n".repeat(LINE_MAX);
    for pattern in [
        r"(a+)+$b",
        r"(a*)*c",
        r"(a|aa)+$c",
        r"a.*b.*c",
        r"[^b]*b[^b]*x",
        r"(?:a?){60}a{60}c",
        r"(a|b)*a(a|b){12}x",
        "x*y",
        "x[^x]*ab",
        "(x|xa)[ab]*aa$",
        "c.*abab",
    ] {
        assert!(lines(&grep(pattern), &text).is_empty(), "{pattern}");
        assert!(lines(&grep(pattern), &dense).is_empty(), "{pattern}");
    }
}

/// A line is searched part by part, as it comes; the automaton's state cache is emptied in between.
#[test]
fn a_line_in_parts_is_found_as_in_one() {
    let mixed: Vec<u8> =
        (0..40_000u32).map(|at| b"ab"[(at.wrapping_mul(2_654_435_761) >> 31) as usize]).collect();
    let text = [&mixed[..], b"c\n\nword end\n", &mixed[..], b"\nend"].concat();
    for pattern in
        ["a[ab]{600}c", "^$", r"\bend$", r"end\z", r"^[ab]+$", r"x|\Aw\w+ e", "b$", "nothing|[0-9]+$"]
    {
        for invert in [false, true] {
            let block = Grep { invert, ..grep(pattern) };
            let one = lines(&block, &text);
            for piece in [1, 7, 1000] {
                let cut = Cut { pieces: vec![piece], room: 4096, empty_end: false };
                let (output, result) = resize(Operator::Grep, &block.block(), &text, &cut);
                assert!(result.is_ok() && output == one, "{pattern} in pieces of {piece}");
            }
        }
    }
}

/// The time per byte grows with the places of an automaton: there are as many as the longest plain pattern has.
#[test]
fn automata_of_many_places_are_refused() {
    for longest in ["aB".repeat(508), "a*".repeat(508), "ab|".repeat(338) + "cd", "a[bc]".repeat(203)] {
        assert_eq!(Grep { ignore_case: true, ..grep(&longest) }.check(), Ok(()), "{longest}");
    }
    assert_eq!(grep("a[ab]{1000}c").check(), Ok(()));
    for large in ["a[ab]{3900}c", "a[ab]{1300}c", "([ab]{40}){40}"] {
        let refused = grep(large).check().unwrap_err();
        assert!(refused.to_string().contains("1200 places"), "{refused}");
    }
}

/// Nearly every line has these literals: the automaton takes over in the middle, and no line is lost.
#[test]
fn literals_that_are_everywhere_are_given_up() {
    let line = |number: usize| format!("{number} e{}\n", if number.is_multiple_of(97) { "7" } else { "x" });
    let text: String = (0..20_000).map(line).collect();
    let expected: String = (0..20_000).filter(|number| number % 97 == 0).map(line).collect();
    for pattern in [r"\d+ e\d", r"e\d", r" e7|\d ez"] {
        assert_eq!(lines(&grep(pattern), text.as_bytes()), expected.as_bytes(), "{pattern}");
    }
}

/// Every match of these ends alike: they are found from their ends, also where ends overlap, are on lines that do not match, or are
/// so many that each line is searched forwards.
#[test]
fn matches_that_end_alike_are_those_of_gnu_grep() {
    let mut random = dcs_testkit::Random(7);
    let words = ["12ms", "ms", "7.25ms", "msms", "aa", "aaa", "x aaa", "ab", "b", " ", "x", "bab", "m"];
    for lines_each in [1, 3, 40] {
        let mut text = Vec::new();
        for number in 0..600 {
            for _ in 0..random.below(lines_each) {
                text.extend_from_slice(random.pick(&words).as_bytes());
            }
            text.extend_from_slice(if number == 599 { b"" } else { b"\n" });
        }
        for pattern in [
            "[0-9]ms$",
            "[0-9.]+ms",
            "x.*ms$",
            "^[^x]*ms$",
            "[a-z]aa$",
            "(^|x)a?aa",
            "[ab]+ab$",
            "\\bx.*aa\\b",
            "[^m]ms( |$)ms",
        ] {
            let wanted = gnu(&grep(pattern), &text);
            for piece in [5, 300, 1 << 20] {
                let cut = Cut { pieces: vec![piece], room: 4096, empty_end: false };
                let (output, result) = resize(Operator::Grep, &grep(pattern).block(), &text, &cut);
                assert!(
                    result.is_ok() && output == wanted,
                    "{pattern} in pieces of {piece}, lines of {lines_each}"
                );
            }
        }
    }
}

#[test]
fn a_count_stands_alone() {
    let count = Grep { count: true, ..grep("o") };
    for (text, number) in
        [(&b""[..], "0\n"), (b"o", "1\n"), (b"o\no\n", "2\n"), (b"x\n", "0\n"), (b"x\no", "1\n")]
    {
        assert_eq!(lines(&count, text), number.as_bytes(), "{text:?}");
        let inverted = Grep { invert: true, ..count.clone() };
        let all = text.split_inclusive(|byte| *byte == b'\n').count();
        let rest = all - number.trim().parse::<usize>().unwrap();
        assert_eq!(lines(&inverted, text), format!("{rest}\n").as_bytes());
    }
}
