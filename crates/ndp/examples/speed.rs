//! Measures each operator on one core, compared with OpenSSL if that has the same: `cargo run --release --example speed
//! -p dcs-ndp [-- --json]`. One stream, in 64 KiB blocks that stay in the cache, as an engine's do, in place on both
//! sides; the best of many alternating rounds, so that both sides see the same machine.

use std::time::{Duration, Instant};

use dcs_abi::operator::{OPERATORS, Operator, OperatorInfo, OperatorKind};
use dcs_ndp::parameter::Element;
use dcs_ndp::{Context, parameter};
use openssl::cipher::{Cipher, CipherRef};
use openssl::cipher_ctx::{CipherCtx, CipherCtxRef};
use openssl::hash::{Hasher, MessageDigest};

const BLOCK: usize = 64 * 1024;
const BLOCKS: usize = 16;
const ROUNDS: usize = 60;
const UNIT: usize = 4096;
const KEY: [u8; 64] = {
    let mut key = [1; 64];
    key[63] = 2;
    key
};

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    let data = text();
    if !json {
        println!("{:28} {:>8} {:>8} {:>6}", "operator", "GiB/s", "OpenSSL", "ratio");
    }
    for (name, operator, parameter, input) in OPERATORS.iter().flat_map(|info| cases(info, &data)) {
        let (mut best, mut best_theirs) = (Duration::MAX, None);
        for _ in 0..ROUNDS {
            best = best.min(ours(operator, &parameter, &input).0);
            best_theirs = theirs(operator, &data).map(|time| time.min(best_theirs.unwrap_or(time)));
        }
        // Operators that undo compression or framing are measured by their output, others by their input: both are
        // `data`.
        let speed = |time: Duration| data.len() as f64 / time.as_secs_f64() / (1u64 << 30) as f64;
        let (best, theirs) = (speed(best), best_theirs.map(speed));
        match theirs {
            _ if json => {
                let theirs = theirs.map_or("null".to_owned(), |theirs| format!("{theirs:.3}"));
                println!(r#"{{"operator":"{name}","gib_per_s":{best:.3},"openssl_gib_per_s":{theirs}}}"#);
            }
            Some(theirs) => println!("{name:28} {best:8.2} {theirs:8.2} {:6.2}", best / theirs),
            None => println!("{name:28} {best:8.2}"),
        }
    }
}

/// Makes text of words drawn at random from a few; it compresses to about a third.
fn text() -> Vec<u8> {
    let mut random = dcs_testkit::Random(1);
    let mut data = Vec::new();
    while data.len() < BLOCK * BLOCKS {
        data.extend_from_slice(format!("{:x} ", (random.next() >> 52) * 2_654_435_761).as_bytes());
    }
    data.truncate(BLOCK * BLOCKS);
    data
}

/// Measurement of an operator: a name, its parameter block, its input.
type Case = (String, Operator, Vec<u8>, Vec<u8>);

fn cases(info: &OperatorInfo, data: &[u8]) -> Vec<Case> {
    let operator = info.operator;
    let case = |form: &str, parameter: &[u8], input: &[u8]| {
        let name = if form.is_empty() { info.name.to_string() } else { format!("{}:{form}", info.name) };
        (name, operator, parameter.to_vec(), input.to_vec())
    };
    let plain = |parameter: &[u8]| vec![case("", parameter, data)];
    let texts = |expressions: &[&str], input: &[u8]| -> Vec<Case> {
        expressions.iter().map(|text| case(text, text.as_bytes(), input)).collect()
    };
    match operator {
        Operator::Aes256Ctr => plain(&parameter::aes256_ctr(KEY.last_chunk().unwrap(), &[0; 16])),
        Operator::Aes256Xts | Operator::Aes256XtsDecrypt => {
            plain(&parameter::aes256_xts(&KEY, UNIT as u32, 0))
        }
        Operator::BlowfishCtr => plain(&parameter::blowfish_ctr(&KEY[..16], &[0; 8])),
        Operator::Gunzip => vec![case("", &[], &ours(Operator::Gzip, &[], data).1)],
        Operator::Unzstd => vec![case("", &[], &ours(Operator::Zstd, &[], data).1)],
        Operator::AwsChunked => vec![case("", &unsigned(data.len()), &framed(data))],
        Operator::Slice => plain(&parameter::slice(0, data.len() as u64)),
        Operator::Grep => {
            let grep = parameter::Grep { pattern: "ERROR".to_string(), ..Default::default() };
            vec![case("ERROR", &grep.block(), &in_lines(data))]
        }
        Operator::Filter => [
            texts(&["-n:#2=x"], &table(data)),
            texts(
                &["-w4:u32@0<128", "-w16:u32@8<2147483648", "-w100:text4@50=\"none\""],
                &random(data.len()),
            ),
        ]
        .concat(),
        Operator::Aggregate => [
            texts(&["-n:count(#2)"], &table(data)),
            texts(&["-w4:sum(u32@0)", "-w16:max(i64@8)", "-w8:sum(f64@0)"], &random(data.len())),
        ]
        .concat(),
        Operator::Knn => {
            let of = |element, form: &str, size: usize| {
                let knn = parameter::Knn { element, k: 10, query: [128, 63, 128, 63].repeat(size / 4) };
                case(form, &knn.block(), &halves(data.len()))
            };
            vec![of(Element::U8, "10:u8 of 128", 128), of(Element::F32, "10:f32 of 96", 384)]
        }
        Operator::Bitmap => {
            let bits = |bits: usize| roaring(data.len() / 8192, bits);
            vec![
                case("of arrays", &[], &bits(655)),
                case("of bits", &[], &bits(6554)),
                case("or of 8, of bits", &[2, 0], &roaring(data.len() / 8192 / 8, 6554).repeat(8)),
            ]
        }
        _ => plain(&[]),
    }
}

fn unsigned(length: usize) -> Vec<u8> {
    let decoded_length = length as u64;
    parameter::AwsChunked { decoded_length, trailers: false, checksum: None, signature: None }.block()
}

/// Frames data as aws-chunked, in chunks of a block.
fn framed(data: &[u8]) -> Vec<u8> {
    let head = |chunk: &[u8]| format!("{:x}\r\n", chunk.len()).into_bytes();
    let chunks = data.chunks(BLOCK).flat_map(|chunk| [&head(chunk), chunk, b"\r\n"].concat());
    chunks.chain(*b"0\r\n\r\n").collect()
}

/// Breaks text into lines of eight words each, as in a log.
fn in_lines(data: &[u8]) -> Vec<u8> {
    let mut lines = data.to_vec();
    lines.iter_mut().filter(|byte| **byte == b' ').step_by(8).for_each(|byte| *byte = b'\n');
    lines
}

/// Makes a table of text.
fn table(data: &[u8]) -> Vec<u8> {
    let mut table = in_lines(data);
    table.iter_mut().filter(|byte| **byte == b' ').for_each(|byte| *byte = b',');
    table
}

/// Makes random bytes; the length is rounded down to rows of any measured size.
fn random(length: usize) -> Vec<u8> {
    let mut random = dcs_testkit::Random(2);
    let words = (0..length / 400 * 50).flat_map(|_| random.next().to_le_bytes());
    words.collect()
}

/// Makes floating-point numbers around one, for data that must be finite.
fn halves(length: usize) -> Vec<u8> {
    let mut random = dcs_testkit::Random(3);
    let numbers = length / 1536 * 384;
    (0..numbers)
        .flat_map(|_| ((random.next() >> 40) as f32 / (1u64 << 24) as f32 + 0.5).to_le_bytes())
        .collect()
}

/// Makes a Roaring bitmap of this many containers, each with this many bits.
fn roaring(containers: usize, bits: usize) -> Vec<u8> {
    let mut random = dcs_testkit::Random(4);
    let values: Vec<u32> =
        (0..containers * bits).map(|_| (random.next() % ((containers as u64) << 16)) as u32).collect();
    let mut bitmap = Vec::new();
    roaring::RoaringBitmap::from_iter(values).serialize_into(&mut bitmap).unwrap();
    bitmap
}

/// Measures one run. Returns the time, and the output if the length changes.
fn ours(operator: Operator, parameter: &[u8], input: &[u8]) -> (Duration, Vec<u8>) {
    let mut context = Context::new(operator, parameter).unwrap();
    let (mut data, mut output, mut room) =
        (input.to_vec(), Vec::with_capacity(input.len() * 4), vec![0; BLOCK]);
    let start = Instant::now();
    match operator.kind() {
        OperatorKind::Digest { .. } => {
            data.chunks(BLOCK).for_each(|block| context.absorb(block));
            std::hint::black_box(context.value());
        }
        OperatorKind::InPlace { .. } => {
            data.chunks_mut(BLOCK).for_each(|block| context.in_place(block, false).unwrap());
        }
        OperatorKind::Resize => {
            let mut at = 0;
            loop {
                let end = input.len().min(at + BLOCK);
                let progress = context.resize(&input[at..end], &mut room, end == input.len()).unwrap();
                output.extend_from_slice(&room[..progress.produced]);
                at += progress.consumed;
                if progress.finished {
                    break;
                }
            }
        }
    }
    (start.elapsed(), output)
}

/// Measures OpenSSL's equivalent.
fn theirs(operator: Operator, data: &[u8]) -> Option<Duration> {
    let digest = |kind| {
        let mut hasher = Hasher::new(kind).unwrap();
        let start = Instant::now();
        data.chunks(BLOCK).for_each(|block| hasher.update(block).unwrap());
        std::hint::black_box(hasher.finish().unwrap());
        Some(start.elapsed())
    };
    // The key is expanded once; each unit sets the tweak.
    let cipher = |kind: &CipherRef, encrypt: bool, key: &[u8], unit| {
        let mut data = data.to_vec();
        let mut context = CipherCtx::new().unwrap();
        let init = if encrypt { CipherCtxRef::encrypt_init } else { CipherCtxRef::decrypt_init };
        init(&mut context, Some(kind), Some(key), Some(&[0; 16])).unwrap();
        let start = Instant::now();
        for unit in data.chunks_mut(unit) {
            init(&mut context, None, None, Some(&[0; 16])).unwrap();
            context.cipher_update_inplace(unit, unit.len()).unwrap();
        }
        let time = start.elapsed();
        std::hint::black_box(data);
        Some(time)
    };
    match operator {
        Operator::Md5 => digest(MessageDigest::md5()),
        Operator::Sha1 => digest(MessageDigest::sha1()),
        Operator::Sha256 => digest(MessageDigest::sha256()),
        Operator::Sha512 => digest(MessageDigest::sha512()),
        Operator::Aes256Ctr => cipher(Cipher::aes_256_ctr(), true, &KEY[32..], BLOCK),
        Operator::Aes256Xts => cipher(Cipher::aes_256_xts(), true, &KEY, UNIT),
        Operator::Aes256XtsDecrypt => cipher(Cipher::aes_256_xts(), false, &KEY, UNIT),
        _ => None,
    }
}
