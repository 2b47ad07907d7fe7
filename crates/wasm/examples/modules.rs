//! Cost of modules compared with the same in Rust and with operators of `dcs-ndp`: MiB/s of one stream on one core, blocks of 64
//! KiB, the best of several rounds in turns. `cargo run --release -p dcs-wasm --example modules`

use dcs_abi::operator::Operator;
use dcs_ndp::{Context, parameter};
use dcs_wasm::{Limits, Module};
use std::path::Path;
use std::time::{Duration, Instant};

const SIZE: usize = 16 << 20;
const BLOCK: usize = 64 << 10;
const ROUNDS: usize = 9;

/// XORs eight bytes at a time, and the rest byte by byte.
const XOR: &str = r#"(module (memory (export "memory") 3)
    (data (i32.const 0) "\01\00\00\00\00\04\00\00\00\00\01\00\00\04\00\00\00\00\01\00")
    (func (export "dcs_operator") (result i32) (i32.const 0))
    (func (export "dcs_start") (param i32) (result i32) (i32.const 0))
    (func (export "dcs_step") (param $n i32) (param $last i32) (result i32) (local $at i32)
        (i32.store (i32.const 20) (local.get $n)) (i32.store (i32.const 24) (local.get $n))
        (loop $next
            (i64.store offset=1024 (local.get $at)
                (i64.xor (i64.load offset=1024 (local.get $at)) (i64.const 0x5a5a5a5a5a5a5a5a)))
            (local.set $at (i32.add (local.get $at) (i32.const 8)))
            (br_if $next (i32.lt_u (local.get $at) (local.get $n))))
        (local.get $last)))"#;

type Pass = Box<dyn FnMut(&mut [u8])>;

fn main() {
    let mut lines = Vec::new();
    for (name, mut pass) in passes() {
        lines.push((name, pass_once(&mut pass), pass));
    }
    for _ in 1..ROUNDS {
        for (_, best, pass) in &mut lines {
            *best = pass_once(pass).min(*best);
        }
    }
    for (name, best, _) in lines {
        println!("{name:34} {:>9.0} MiB/s", (SIZE >> 20) as f64 / best.as_secs_f64());
    }
}

fn pass_once(pass: &mut Pass) -> Duration {
    let mut data: Vec<u8> = (0..SIZE).map(|at| b" etaoinshrdlu\n"[at * 7919 % 14]).collect();
    let start = Instant::now();
    pass(&mut data);
    let elapsed = start.elapsed();
    std::hint::black_box(data);
    elapsed
}

fn passes() -> Vec<(&'static str, Pass)> {
    let example = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../sdk/examples/{name}.wat"));
        wat::parse_file(path).expect("it is there")
    };
    let module = |bytes: Vec<u8>| -> Pass {
        let module = Module::load(&bytes, Limits::default()).expect("a good module");
        Box::new(move |data| resize(&mut Context::of_module(&module, b"").expect("no parameter"), data))
    };
    let native =
        |step: fn(&mut [u8])| -> Pass { Box::new(move |data| data.chunks_mut(BLOCK).for_each(step)) };
    vec![
        ("xor, eight bytes: module", module(wat::parse_str(XOR).expect("the text above"))),
        ("xor: Rust", native(|block| block.iter_mut().for_each(|byte| *byte ^= 0x5a))),
        ("upper: module", module(example("upper"))),
        ("upper: Rust", native(|block| block.make_ascii_uppercase())),
        ("count: module", module(example("count"))),
        (
            "count: Rust",
            native(|block| _ = std::hint::black_box(block.iter().filter(|b| **b == b'\n').count())),
        ),
        (
            "aes256-ctr: operator",
            operator(Operator::Aes256Ctr, parameter::aes256_ctr(&[1; 32], &[0; 16]).to_vec()),
        ),
        ("grep for what is not there: operator", operator(Operator::Grep, [&[0; 8][..], b"ERROR"].concat())),
    ]
}

fn operator(operator: Operator, parameter: Vec<u8>) -> Pass {
    Box::new(move |data| {
        let mut context = Context::new(operator, &parameter).expect("good parameters");
        match operator {
            Operator::Aes256Ctr => {
                data.chunks_mut(BLOCK)
                    .for_each(|block| context.in_place(block, false).expect("it takes anything"));
            }
            _ => resize(&mut context, data),
        }
    })
}

fn resize(context: &mut Context, data: &[u8]) {
    let mut room = vec![0; BLOCK];
    for (at, mut input) in data.chunks(BLOCK).enumerate() {
        let last = (at + 1) * BLOCK >= data.len();
        loop {
            let progress = context.resize(input, &mut room, last).expect("good data");
            std::hint::black_box(&room[..progress.produced]);
            input = &input[progress.consumed..];
            if progress.finished || (input.is_empty() && !last) {
                break;
            }
        }
    }
}
