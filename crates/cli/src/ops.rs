//! `dcs ops`: the operators, and their rates on one core of this machine.

use crate::args;
use crate::chain::usage_of;
use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::modules;
use crate::operate::Operators;
use crate::report::Report;
use crate::units::gib_per_s;
use dcs::op::{Element, Knn};
use dcs::{AwsChunked, Grep, Op, Operator};
use dcs_abi::operator::{OPERATORS, OperatorInfo, OperatorKind};
use indicatif::ProgressBar;
use serde_json::json;
use std::io;
use std::time::{Duration, Instant};

const BLOCK: usize = 64 * 1024;
const SAMPLE: usize = 4 << 20;
/// Bytes of a container of plain bits in a Roaring bitmap.
const PAGE: usize = 8192;
/// Time for which each operator is measured.
const MEASURE: Duration = Duration::from_millis(50);

pub fn run(ops: &args::Ops, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    if let Some(file) = &ops.load {
        let name = modules::keep(file)?;
        report.object(&json!({ "event": "loaded", "name": name }));
        report.remark(format_args!("dcs: {name} is an operator now: --through {name}"));
        return Ok(());
    }
    if let Some(name) = &ops.unload {
        modules::forget(name)?;
        report.object(&json!({ "event": "unloaded", "name": name }));
        return Ok(());
    }
    let bar = (report.shows_progress() && !ops.no_measure).then(|| ProgressBar::new(OPERATORS.len() as u64));
    report
        .text(format_args!("{:20} {:4} {:9} {:>6} {:>8}  what", "operator", "no", "kind", "digest", "GiB/s"));
    for info in OPERATORS {
        let rate = if ops.no_measure { None } else { Some(measure(info.operator).map_err(failed)?) };
        let print = || print(info, rate, report);
        match &bar {
            Some(bar) => {
                bar.suspend(print);
                bar.inc(1);
            }
            None => print(),
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    for module in modules::kept() {
        let (name, path) = (&module.name, module.path.display());
        report.text(format_args!("{name:20} 3fh  {:9} {:>6} {:>8}  module {path}", "resize", "", "-"));
        report.object(&json!({
            "name": name, "number": Operator::Module as u8, "kind": "resize", "module": path.to_string(),
        }));
    }
    if !ops.no_measure && cfg!(debug_assertions) {
        report.remark("dcs: this is a debug build: its rates mean nothing");
    }
    Ok(())
}

fn failed(error: io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("an operator could not be measured: {error}"))
}

fn print(info: &OperatorInfo, rate: Option<f64>, report: &Report) {
    let (kind, digest) = match info.kind {
        OperatorKind::Digest { size } => ("digest", size.to_string()),
        OperatorKind::InPlace { .. } => ("in place", String::new()),
        OperatorKind::Resize => ("resize", String::new()),
    };
    let shown = rate.map_or("-".into(), |rate| format!("{rate:.2}"));
    let number = format!("{:02x}h", info.operator as u8);
    let library = dcs_ndp::library(info.operator);
    let by = library.map_or(String::new(), |library| format!("; by {library}"));
    let gpu = info.gpu.map_or(String::new(), |name| format!("; on a GPU: {name}"));
    report.text(format_args!(
        "{:20} {number:4} {kind:9} {digest:>6} {shown:>8}  {}{by}{gpu}",
        info.name, info.doc
    ));
    report.object(&json!({
        "name": info.name, "number": info.operator as u8, "kind": kind, "digest_bytes": info.operator.digest_size(),
        "usage": usage_of(info.operator), "parameter_block": info.parameter_doc, "doc": info.doc, "gib_per_s": rate,
        "library": library, "gpu": info.gpu,
    }));
}

/// Measures GiB per second: bytes written for operators that undo compression or framing, else bytes read.
fn measure(operator: Operator) -> io::Result<f64> {
    let text = text();
    let op = sample_op(operator);
    let mut input = match operator {
        Operator::Gunzip => once(&Op::Gzip { level: 1 }, &mut text.clone())?.0,
        Operator::Unzstd => once(&Op::Zstd { level: 3 }, &mut text.clone())?.0,
        Operator::AwsChunked => framed(&text),
        Operator::Grep => in_lines(text),
        Operator::Filter | Operator::Aggregate => table(text),
        Operator::Bitmap => bitmap(),
        _ => text,
    };
    let (mut bytes, mut time) = (0, Duration::ZERO);
    while time < MEASURE {
        let (_, elapsed) = once(&op, &mut input)?;
        time += elapsed;
        bytes += SAMPLE as u64;
    }
    Ok(gib_per_s(bytes, time))
}

/// Runs one pass over the data. Returns the output and the time. Digests and ciphers have no output to keep.
fn once(op: &Op, data: &mut [u8]) -> io::Result<(Vec<u8>, Duration)> {
    let mut operators = Operators::new(std::slice::from_ref(op))?;
    let resizes = Operator::from_number(op.number()).is_some_and(|op| op.kind() == OperatorKind::Resize);
    let mut output = Vec::with_capacity(if resizes { 2 * SAMPLE } else { 0 });
    let blocks = data.len().div_ceil(BLOCK);
    let start = Instant::now();
    for (at, block) in data.chunks_mut(BLOCK).enumerate() {
        operators.pass(block, at + 1 == blocks, &mut |bytes| {
            if resizes {
                output.extend_from_slice(bytes);
            }
            Ok(())
        })?;
    }
    std::hint::black_box(operators.digests());
    Ok((output, start.elapsed()))
}

fn sample_op(operator: Operator) -> Op {
    let mut key = [1; 64];
    key[63] = 2;
    match operator {
        Operator::Aes256Ctr => Op::Aes256Ctr { key: [1; 32], counter: [0; 16] },
        Operator::Aes256Xts => Op::Aes256Xts { key, unit_size: 4096, first_unit: 0 },
        Operator::Aes256XtsDecrypt => Op::Aes256XtsDecrypt { key, unit_size: 4096, first_unit: 0 },
        Operator::Gzip => Op::Gzip { level: 1 },
        Operator::Zstd => Op::Zstd { level: 3 },
        Operator::BlowfishCtr => Op::BlowfishCtr { key: vec![1; 32], counter: [0; 8] },
        Operator::Knn => Op::Knn(Knn { element: Element::U8, k: 10, query: vec![100; 128] }),
        Operator::Slice => Op::Slice { skip: 0, take: SAMPLE as u64 },
        Operator::Filter => Op::Filter("-n:#2=x".to_string()),
        Operator::Aggregate => Op::Aggregate("-n:count(#2)".to_string()),
        Operator::Grep => Op::Grep(Grep { pattern: "ERROR".to_string(), ..Grep::default() }),
        Operator::AwsChunked => Op::AwsChunked(Box::new(AwsChunked {
            decoded_length: SAMPLE as u64,
            trailers: false,
            checksum: None,
            signature: None,
        })),
        other => Op::Raw { number: other as u8, parameter: Vec::new() },
    }
}

/// Breaks text into lines of eight words each, as in a log.
fn in_lines(mut text: Vec<u8>) -> Vec<u8> {
    text.iter_mut().filter(|byte| **byte == b' ').step_by(8).for_each(|byte| *byte = b'\n');
    text
}

/// Makes a table of text.
fn table(text: Vec<u8>) -> Vec<u8> {
    let mut table = in_lines(text);
    table.iter_mut().filter(|byte| **byte == b' ').for_each(|byte| *byte = b',');
    table
}

/// Makes a Roaring bitmap with as many bits as the sample has, every ninth set, so that all of its containers are plain
/// bits.
fn bitmap() -> Vec<u8> {
    let pages = (SAMPLE / PAGE) as u32;
    let page: Vec<u8> =
        (0..PAGE).map(|at| [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x00][at % 9]).collect();
    let set: u32 = page.iter().map(|byte| byte.count_ones()).sum();
    let mut bitmap = [12346u32, pages].map(u32::to_le_bytes).concat();
    bitmap.extend((0..pages).flat_map(|key| (key | (set - 1) << 16).to_le_bytes()));
    let first = bitmap.len() as u32 + pages * 4;
    bitmap.extend((0..pages).flat_map(|key| (first + key * PAGE as u32).to_le_bytes()));
    (0..pages).for_each(|_| bitmap.extend_from_slice(&page));
    bitmap
}

/// Frames data as aws-chunked, in chunks of a block.
fn framed(data: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(data.len() + data.len() / 1024);
    for chunk in data.chunks(BLOCK) {
        framed.extend(format!("{:x}\r\n", chunk.len()).bytes());
        framed.extend_from_slice(chunk);
        framed.extend(b"\r\n");
    }
    framed.extend(b"0\r\n\r\n");
    framed
}

/// Makes text of words drawn at random from a few; it compresses to about a third.
fn text() -> Vec<u8> {
    let mut state = 1u64;
    let mut data = Vec::with_capacity(SAMPLE + 64);
    while data.len() < SAMPLE {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        data.extend_from_slice(format!("{:x} ", (state >> 52) * 2_654_435_761).as_bytes());
    }
    data.truncate(SAMPLE);
    data
}
