//! Modules in WebAssembly's text format.

use dcs_abi::operator::Operator;
use dcs_ndp::module::{self, Module as _};
use dcs_ndp::{Context, DigestValue, OperatorError};
use dcs_wasm::{Limits, LoadError, Module};

/// The block at 0, the input at 1024, the output at 1024 + 4096, each of 4096 bytes, and enough memory.
pub const BLOCK: &str =
    r#"(data (i32.const 0) "\01\00\00\00\00\04\00\00\00\10\00\00\00\14\00\00\00\10\00\00")"#;

/// Returns a module whose `dcs_step` has that body. It has the parameters `$n` and `$last`.
pub fn stepping(body: &str) -> String {
    format!(
        r#"(module (memory (export "memory") 1 200) {BLOCK}
        (func (export "dcs_operator") (result i32) (i32.const 0))
        (func (export "dcs_start") (param i32) (result i32) (i32.const 0))
        (func $step (export "dcs_step") (param $n i32) (param $last i32) (result i32) {body}))"#
    )
}

/// Returns the text of an answer of `dcs_step`: consumed, produced, answer.
pub fn says(consumed: &str, produced: &str, answer: &str) -> String {
    format!("(i32.store (i32.const 20) {consumed}) (i32.store (i32.const 24) {produced}) {answer}")
}

/// Returns a module that passes its input on.
pub fn passing() -> String {
    let copy = "(memory.copy (i32.const 5120) (i32.const 1024) (local.get $n))";
    stepping(&format!("{copy} {}", says("(local.get $n)", "(local.get $n)", "(local.get $last)")))
}

/// XORs each byte with the byte that is its parameter, in place; its input and output are 3,000 bytes at 1024.
pub const XOR: &str = r#"(module (memory (export "memory") 1) (global $key (mut i32) (i32.const 0))
    (data (i32.const 0) "\01\00\00\00\00\04\00\00\b8\0b\00\00\00\04\00\00\b8\0b\00\00")
    (func (export "dcs_operator") (result i32) (i32.const 0))
    (func (export "dcs_start") (param $n i32) (result i32)
        (global.set $key (i32.load8_u (i32.const 1024)))
        (i32.ne (local.get $n) (i32.const 1)))
    (func (export "dcs_step") (param $n i32) (param $last i32) (result i32) (local $at i32)
        (i32.store (i32.const 20) (local.get $n)) (i32.store (i32.const 24) (local.get $n))
        (block $done (loop $next
            (br_if $done (i32.eq (local.get $at) (local.get $n)))
            (i32.store8 offset=1024 (local.get $at)
                (i32.xor (i32.load8_u offset=1024 (local.get $at)) (global.get $key)))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (br $next)))
        (local.get $last)))"#;

pub fn load(text: &str) -> Result<Module, LoadError> {
    Module::load(&wat::parse_str(text).unwrap(), Limits::default())
}

/// Output of a whole stream, and its value.
type Whole = (Vec<u8>, Option<DigestValue>);

/// Runs a whole stream through a module, in pieces, with this much room for output at once.
pub fn run(
    module: &Module,
    parameter: &[u8],
    data: &[u8],
    pieces: &[usize],
    room: usize,
) -> Result<Whole, (OperatorError, Vec<u8>)> {
    let mut output = Vec::new();
    let mut context = Context::of_module(module, parameter).map_err(|error| (error, Vec::new()))?;
    let (mut rest, mut turn) = (data, 0);
    let mut room = vec![0; room];
    loop {
        let piece = pieces[turn % pieces.len()].min(rest.len());
        turn += 1;
        let (mut input, last) = (&rest[..piece], piece == rest.len());
        rest = &rest[piece..];
        loop {
            let progress = context.resize(input, &mut room, last).map_err(|error| (error, output.clone()))?;
            output.extend_from_slice(&room[..progress.produced]);
            input = &input[progress.consumed..];
            if progress.finished {
                assert!(input.is_empty() && last);
                return Ok((output, context.value()));
            }
            if input.is_empty() && progress.produced < room.len() && !last {
                break;
            }
        }
    }
}

#[test]
fn a_module_is_named_by_its_bytes() {
    // A module that no other test uses.
    let text = XOR.replacen("\"memory\") 1", "\"memory\") 2", 1);
    let module = load(&text).unwrap();
    assert_eq!(module.buffers(), (3000, 3000));
    let name = *module.name();
    let bytes = wat::parse_str(&text).unwrap();
    let mut sha256 = Context::new(Operator::Sha256, &[]).unwrap();
    sha256.absorb(&bytes);
    assert_eq!(sha256.value().unwrap().as_bytes(), name);
    let block = module::parameter(&name, b"x");
    assert_eq!(Context::new(Operator::Module, &block).err(), Some(OperatorError::NoModule));
    assert!(module.install());
    assert!(Context::new(Operator::Module, &block).is_ok());
    assert_eq!(Context::new(Operator::Module, &name).err(), Some(OperatorError::BadParameter));
    assert_eq!(Context::new(Operator::Module, &name[1..]).err(), Some(OperatorError::BadParameter));
    let long = module::parameter(&name, &[0; 1025]);
    assert_eq!(Context::new(Operator::Module, &long).err(), Some(OperatorError::BadParameter));
    module::remove(&name);
    assert_eq!(Context::new(Operator::Module, &block).err(), Some(OperatorError::NoModule));
}

#[test]
fn a_parameter_longer_than_the_input_is_refused() {
    let small = passing().replace(r"\00\04\00\00\00\10\00\00", r"\00\04\00\00\08\00\00\00");
    let module = load(&small).unwrap();
    assert_eq!(module.buffers(), (8, 4096));
    assert!(module.start(&[0; 8]).is_ok());
    assert_eq!(module.start(&[0; 9]).err(), Some(OperatorError::BadParameter));
}
