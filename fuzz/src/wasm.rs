//! Target for users' own operators, `dcs-wasm`.

use dcs_ndp::{Context, OperatorError};
use dcs_wasm::{Limits, Module};
use std::sync::LazyLock;

/// Small limits, so that a run is short.
const LIMITS: Limits = Limits { fuel: 100_000, fuel_per_byte: 10, memory: 2 << 16 };
/// Bytes of the stream.
const DATA: usize = 3000;
/// Bytes of output after which the end is not awaited.
const ENOUGH: usize = 200_000;
/// Bytes of a script.
const SCRIPT: usize = 120;

/// A module that answers from its script, with any values: the place of its block and the contents, and for each step in turn the
/// bytes consumed and produced, the answer (low 8 bits) and the size of the value.
const LIAR: &str = r#"(module (memory (export "memory") 1) (global $turn (mut i32) (i32.const 0))
    (data (i32.const 4096) "script::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::")
    (func (export "dcs_operator") (result i32)
        (memory.copy (i32.load (i32.const 4096)) (i32.const 4100) (i32.const 20)) (i32.load (i32.const 4096)))
    (func (export "dcs_start") (param i32) (result i32) (i32.const 0))
    (func (export "dcs_step") (param i32 i32) (result i32) (local $at i32) (local $block i32)
        (local.set $at (i32.add (i32.const 4120) (i32.mul (i32.const 12) (global.get $turn))))
        (global.set $turn (i32.rem_u (i32.add (global.get $turn) (i32.const 1)) (i32.const 8)))
        (local.set $block (i32.load (i32.const 4096)))
        (i32.store offset=20 (local.get $block) (i32.load (local.get $at)))
        (i32.store offset=24 (local.get $block) (i32.load offset=4 (local.get $at)))
        (i32.store offset=28 (local.get $block) (i32.load16_u offset=9 (local.get $at)))
        (i32.load8_u offset=8 (local.get $at))))"#;

/// The liar, and the offset of its script.
static LYING: LazyLock<(Vec<u8>, usize)> = LazyLock::new(|| {
    let bytes = wat::parse_str(LIAR).expect("the text above");
    let at = bytes.windows(7).position(|window| window == b"script:").expect("its data");
    (bytes, at)
});

/// Loads a module, or runs a stream through it. Checks that it consumes no more than there is, produces no more than there is
/// room for, fails permanently, and does the same a second time.
///
/// | bytes | meaning |
/// |---|---|
/// | 1 | even: the rest is a module; odd: the rest is the script of a liar |
/// | 1 | bytes of a piece of the stream, less one, times 16 |
/// | 1 | room for output, less one, times 16 |
/// | the rest | the module, or the script |
pub fn wasm(data: &[u8]) {
    let first = ended(data);
    assert_eq!(first, ended(data), "the same again");
}

/// Returns the outcome, `None` if the module is refused.
pub fn ended(data: &[u8]) -> Option<Ended> {
    let (&[kind, piece, room], rest) = data.split_first_chunk()?;
    let size = |byte: u8| (usize::from(byte) + 1) * 16;
    outcome(kind % 2 == 1, rest, size(piece), size(room))
}

/// Bytes of output and the value, or the failure.
pub type Ended = Result<(usize, Option<Vec<u8>>), OperatorError>;

fn outcome(lies: bool, bytes: &[u8], piece: usize, room: usize) -> Option<Ended> {
    let module = match lies {
        false => Module::load(bytes, LIMITS).ok()?,
        true => {
            let (mut module, at) = LYING.clone();
            let script = bytes.len().min(SCRIPT);
            module[at..at + SCRIPT].fill(0);
            module[at..at + script].copy_from_slice(&bytes[..script]);
            Module::load(&module, LIMITS).ok()?
        }
    };
    let mut context = match Context::of_module(&module, b"parameter") {
        Ok(context) => context,
        Err(error) => return Some(Err(error)),
    };
    Some(stream(&mut context, piece, room))
}

fn stream(context: &mut Context, piece: usize, room: usize) -> Ended {
    let data = [b'x'; DATA];
    let (mut at, mut made, mut room) = (0, 0, vec![0; room]);
    while made < ENOUGH {
        let end = (at + piece).min(DATA);
        let last = end == DATA;
        match context.resize(&data[at..end], &mut room, last) {
            Ok(progress) => {
                assert!(progress.consumed <= end - at && progress.produced <= room.len());
                assert!(progress.finished || progress.consumed + progress.produced > 0, "it gets on");
                at += progress.consumed;
                made += progress.produced;
                if progress.finished {
                    assert_eq!(at, DATA);
                    return Ok((made, context.value().map(|value| value.as_bytes().to_vec())));
                }
            }
            Err(error) => {
                assert_eq!(context.resize(&[], &mut room, true), Err(error), "for good");
                assert_ne!(error, OperatorError::InternalError);
                return Err(error);
            }
        }
    }
    Ok((made, None))
}
