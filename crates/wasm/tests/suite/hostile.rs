//! Modules that loop, trap, grow or lie, and bytes that are not modules.

use crate::texts::{self, load, run, says, stepping};
use dcs_ndp::OperatorError;
use dcs_wasm::{Limits, LoadError, MODULE_MAX, Module};

/// Returns the error of a stream through a module whose `dcs_step` has that body.
fn fails(body: &str) -> OperatorError {
    let module = load(&stepping(body)).unwrap_or_else(|error| panic!("{body}: {error}"));
    let (error, output) = run(&module, &[], &[9; 10_000], &[100], 1000).unwrap_err();
    assert!(output.is_empty(), "{body}");
    error
}

#[test]
fn a_module_that_loops_is_out_of_fuel() {
    assert_eq!(fails("(loop $again (br $again)) (unreachable)"), OperatorError::Fuel);
    let fills = "(loop $again (memory.fill (i32.const 1024) (i32.const 1) (i32.const 60000)) (br $again))";
    assert_eq!(fails(&format!("{fills} (unreachable)")), OperatorError::Fuel);
}

#[test]
fn a_module_that_traps_says_so() {
    for body in [
        "(unreachable)",
        "(i32.div_u (i32.const 1) (i32.load (i32.const 512)))",
        "(i32.load (i32.const 65533))",
        "(i32.load (i32.const -1))",
        "(memory.copy (i32.const 1024) (i32.const 65000) (i32.const 1000)) (i32.const 0)",
        "(i32.trunc_f32_s (f32.div (f32.const 0) (f32.const 0)))",
        "(call $step (local.get $n) (local.get $last))",
    ] {
        assert_eq!(fails(body), OperatorError::Trap, "{body}");
    }
}

#[test]
fn a_module_that_grows_is_stopped() {
    let grow = "(drop (memory.grow (i32.const 1)))";
    let forever = format!("(loop $again {grow} (br $again)) (unreachable)");
    // Declared memory is not granted memory: 200 pages are declared, and 4 are available.
    let limits = Limits { memory: 4 << 16, ..Limits::default() };
    let bytes = wat::parse_str(stepping(&forever)).unwrap();
    let module = Module::load(&bytes, limits).unwrap();
    assert_eq!(run(&module, &[], &[1], &[1], 1).unwrap_err().0, OperatorError::Memory);
    let large = texts::passing().replace("\"memory\") 1 200", "\"memory\") 5 200");
    let refused = Module::load(&wat::parse_str(large).unwrap(), limits).err();
    assert_eq!(refused, Some(LoadError::Start(OperatorError::Memory)));
    let tables = texts::passing().replace("(module", "(module (table 100000 funcref)");
    assert_eq!(load(&tables).err(), Some(LoadError::Start(OperatorError::Memory)));
}

#[test]
fn a_module_that_lies_is_found_out() {
    let (all, none) = ("(local.get $n)", "(i32.const 0)");
    for (consumed, produced, answer) in [
        // More than its input; more than the room for output.
        ("(i32.add (local.get $n) (i32.const 1))", none, none),
        (all, "(i32.const 4097)", none),
        ("(i32.const -1)", none, none),
        (all, "(i32.const -1)", none),
        // No progress; no end yet; not all of the input.
        (none, none, none),
        (all, none, "(i32.const 1)"),
        (none, "(i32.const 0)", "(local.get $last)"),
        // An invalid answer.
        (all, none, "(i32.const 4)"),
        (all, none, "(i32.const -1)"),
    ] {
        let error = fails(&says(consumed, produced, answer));
        assert_eq!(error, OperatorError::Answer, "{consumed} {produced} {answer}");
    }
    let value =
        |size: &str| format!("(i32.store (i32.const 28) {size}) {}", says(all, none, "(local.get $last)"));
    assert_eq!(fails(&value("(i32.const 65)")), OperatorError::Answer);
    // The block is read again and again; the places of the buffers are not.
    let moves = "(i32.store (i32.const 4) (i32.const -1)) (i32.store (i32.const 12) (i32.const -1))";
    let copy = "(memory.copy (i32.const 5120) (i32.const 1024) (local.get $n))";
    let moving = stepping(&format!("{moves} {copy} {}", says(all, all, "(local.get $last)")));
    let output = run(&load(&moving).unwrap(), &[], &[3; 9000], &[5000], 700).unwrap().0;
    assert_eq!(output, vec![3; 9000]);
}

#[test]
fn a_module_refuses_data_after_what_it_has_produced() {
    for (answer, error) in [(2, OperatorError::CorruptData), (3, OperatorError::TruncatedData)] {
        let body = says("(local.get $n)", "(i32.const 40)", &format!("(i32.const {answer})"));
        let module = load(&stepping(&body)).unwrap();
        let ended = run(&module, &[], &[1; 100], &[100], 7).unwrap_err();
        assert_eq!(ended, (error, vec![0; 40]));
    }
}

#[test]
fn work_is_linear_in_the_data() {
    // A tenth of a block's fuel for each byte of output, and the output never ends.
    let work = "(local $i i32) (loop $again (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $again (i32.lt_u (local.get $i) (i32.const 1000000))))";
    let module =
        load(&stepping(&format!("{work} {}", says("(i32.const 0)", "(i32.const 1)", "(i32.const 0)"))));
    let (error, output) = run(&module.unwrap(), &[], &[1; 100], &[100], 7).unwrap_err();
    assert_eq!(error, OperatorError::Fuel);
    assert!(output.len() < 64, "{}", output.len());
}

#[test]
fn copies_are_work_too() {
    // Consumes a block byte by byte, so that the rest is copied each time.
    let one = says("(i32.gt_u (local.get $n) (i32.const 0))", "(i32.const 0)", "(i32.const 0)");
    let wide =
        stepping(&one).replace(r"\00\10\00\00\00\14", r"\00\00\02\00\00\04").replace("1 200", "20 200");
    let bytes = wat::parse_str(wide).unwrap();
    let module = Module::load(&bytes, Limits::of_drive()).unwrap();
    assert_eq!(module.buffers().0, 128 << 10);
    let data = vec![0; 128 << 10];
    assert_eq!(run(&module, &[], &data, &[data.len()], 9).unwrap_err().0, OperatorError::Fuel);
}

#[test]
fn a_parameter_that_is_refused_is_a_bad_one() {
    let refuses = texts::passing()
        .replace("(param i32) (result i32) (i32.const 0)", "(param i32) (result i32) (local.get 0)");
    let module = load(&refuses).unwrap();
    assert_eq!(run(&module, b"x", &[], &[1], 1).unwrap_err().0, OperatorError::BadParameter);
    assert!(run(&module, b"", &[], &[1], 1).is_ok());
    let loops = refuses.replace("(local.get 0)", "(loop $again (br $again)) (unreachable)");
    let module = load(&loops).unwrap();
    assert_eq!(run(&module, b"", &[], &[1], 1).unwrap_err().0, OperatorError::Fuel);
}

#[test]
fn what_is_no_operator_is_not_loaded() {
    let refused = |text: String| load(&text).err().unwrap_or_else(|| panic!("{text}")).to_string();
    let good = texts::passing();
    let with = |part: &str| good.replace("(module", &format!("(module {part}"));
    let without = |name: &str| good.replace(&format!("{name:?}"), "\"other\"");
    assert!(refused(with(r#"(import "env" "clock" (func))"#)).contains("env.clock"));
    for name in ["memory", "dcs_operator", "dcs_start", "dcs_step"] {
        assert!(refused(without(name)).contains(name), "{name}");
    }
    let other =
        good.replace("(param i32) (result i32) (i32.const 0)", "(param i64) (result i32) (i32.const 0)");
    assert!(refused(other).contains("dcs_start"));
    assert!(refused(good.replace(r"\01\00\00\00\00", r"\02\00\00\00\00")).contains("version 2"));
    assert!(
        refused(good.replace("(result i32) (i32.const 0)", "(result i32) (i32.const 65500)"))
            .contains("0xffdc")
    );
    assert!(refused(with("(func $start (loop $again (br $again))) (start $start)")).contains("longer"));
    assert!(refused(with("(func (drop (v128.const i64x2 1 2)))")).contains("not a valid WebAssembly"));
    assert!(refused(with("(memory 1)")).contains("not a valid WebAssembly"));
    for bytes in [&b""[..], b"\0asm", b"\x7fELF", b"(module)"] {
        let Err(LoadError::Invalid(why)) = Module::load(bytes, Limits::default()) else {
            panic!("{bytes:?}")
        };
        assert!(!why.contains('\n'), "{bytes:?}: a reason has one line: {why}");
    }
    let long = vec![0; MODULE_MAX + 1];
    assert_eq!(Module::load(&long, Limits::default()).err(), Some(LoadError::TooLong(MODULE_MAX + 1)));
}

/// Returns the reason for which a module with this additional part is refused.
fn refused(part: &str) -> String {
    let text = texts::passing().replace("(module", &format!("(module {part}"));
    load(&text).err().unwrap_or_else(|| panic!("{:.200}", part)).to_string()
}

fn taken(part: &str) {
    let text = texts::passing().replace("(module", &format!("(module {part}"));
    load(&text).unwrap_or_else(|error| panic!("{:.200}: {error}", part));
}

#[test]
fn frames_that_are_dear_to_call_are_refused() {
    // The interpreter clears a frame and copies constants into it for each call, without charging fuel.
    let locals = |count: usize| format!("(func (param i32 i64) (local {}))", "i64 ".repeat(count));
    taken(&locals(256));
    assert!(refused(&locals(257)).contains("256 local variables"));
    assert!(refused(&locals(30_000)).contains("256 local variables"));
    let operands = |count: usize| {
        let (push, pop) = ("(memory.size) ".repeat(count), "(drop) ".repeat(count));
        format!("(func (if (i32.eqz (memory.size)) (then {push} {pop})))")
    };
    taken(&operands(256));
    assert!(refused(&operands(257)).contains("256 operands"));
    let call = "(func $many (result i64 i64 i64 i64 i64 i64 i64 i64) (unreachable))";
    let many = format!("{call} (func {} (unreachable))", "(call $many) ".repeat(1000));
    assert!(refused(&many).contains("256 operands"));
    // The interpreter panics at a block above this many operands.
    let deep = format!("(func {} (block) (unreachable))", "(i32.const 1) ".repeat(70_000));
    assert!(refused(&deep).contains("256 operands"));
    let constants = |count: usize| {
        let sets: Vec<_> =
            (1..=count).map(|at| format!("(local.set 0 (i64.const {at}00000000000))")).collect();
        format!("(func (local i64) {})", sets.concat())
    };
    taken(&constants(2048));
    assert!(refused(&constants(2049)).contains("2048 constants"));
    let sums = "(local.set 0 (i64.add (i64.const 1) (global.get $g))) ".repeat(1025);
    let sums = format!("(global $g i64 (i64.const 5)) (func (local i64) {sums})");
    assert!(refused(&sums).contains("2048 constants"));
    let branches = "(br_if 0 (local.get 0)) ".repeat(2049);
    assert!(refused(&format!("(func (local i32) {branches})")).contains("2048 constants"));
    let wide = format!("(type (func (param {})))", "i32 ".repeat(33));
    assert!(refused(&wide).contains("32 parameters"));
}

#[test]
fn locals_are_added_without_a_limit_of_bits() {
    // Two groups of 2^32 - 1 locals each; 257 in two groups; more groups than bytes.
    let bytes = |code: &[u8]| {
        let head = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x0a";
        let body = [&[code.len() as u8], code].concat();
        [&head[..], &[body.len() as u8 + 1, 1], &body].concat()
    };
    let why = |code: &[u8]| Module::load(&bytes(code), Limits::default()).err().unwrap();
    let most = b"\xff\xff\xff\xff\x0f\x7f";
    assert!(matches!(why(&[b"\x02", &most[..], most, b"\x0b"].concat()), LoadError::TooMany { .. }));
    assert!(matches!(why(b"\x02\x81\x01\x7f\x80\x01\x7f\x0b"), LoadError::TooMany { .. }));
    assert!(matches!(why(b"\xff\xff\xff\xff\x0f\x01\x7f\x0b"), LoadError::Invalid(_)));
    // It lacks an export, and nothing else.
    assert!(matches!(why(b"\x02\x80\x01\x7f\x80\x01\x7f\x0b"), LoadError::Export(_)));
    // A truncated module is refused; the names at the end may be missing.
    let whole = wat::parse_str(texts::passing().replace("$step ", "")).unwrap();
    let loads = |length| Module::load(&whole[..length], Limits::default()).is_ok();
    assert_eq!((0..whole.len()).filter(|length| loads(*length)).count(), 1);
}

#[test]
fn instances_that_are_dear_to_have_are_refused() {
    // A module has four exports to begin with.
    let exports = |count: usize| {
        let all: Vec<_> = (0..count).map(|at| format!("(export \"{at}\" (func $f))")).collect();
        format!("(func $f) {}", all.concat())
    };
    let with = |count| {
        let text = texts::passing();
        let end = text.rfind(')').unwrap();
        load(&format!("{} {})", &text[..end], exports(count)))
    };
    assert!(with(996).is_ok());
    assert_eq!(with(997).err(), Some(LoadError::TooMany { what: "exports", most: 1000 }));
    let items = |counts: &[usize]| {
        let segments: Vec<_> =
            counts.iter().map(|count| format!("(elem func {})", "$f ".repeat(*count))).collect();
        format!("(func $f) {}", segments.concat())
    };
    taken(&items(&[65_000, 536]));
    assert!(refused(&items(&[65_000, 537])).contains("65536 items"));
    let expressions = format!("(func $f) (elem funcref {})", "(ref.null func) ".repeat(65_537));
    assert!(refused(&expressions).contains("65536 items"));
}
