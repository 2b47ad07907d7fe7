//! Measures each operator on one core, beside OpenSSL where it has the same: `cargo run --release --example
//! speed -p dcs-ndp [-- --json]`. One stream, in 64 KiB blocks that stay in the cache, as those of an engine
//! do, and in place on both sides; the best of many rounds that take turns, so that both sides see the same
//! machine.

use std::time::{Duration, Instant};

use dcs_abi::operator::{OPERATORS, Operator, OperatorKind};
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
        println!("{:20} {:>8} {:>8} {:>6}", "operator", "GiB/s", "OpenSSL", "ratio");
    }
    for info in OPERATORS {
        let input = match info.operator {
            Operator::Gunzip => ours(Operator::Gzip, &data).1,
            Operator::Unzstd => ours(Operator::Zstd, &data).1,
            _ => data.clone(),
        };
        let (mut best, mut best_theirs) = (Duration::MAX, None);
        for _ in 0..ROUNDS {
            best = best.min(ours(info.operator, &input).0);
            best_theirs = theirs(info.operator, &data).map(|time| time.min(best_theirs.unwrap_or(time)));
        }
        // Of a decompressor what it writes counts, else what it reads: both are `data`.
        let speed = |time: Duration| data.len() as f64 / time.as_secs_f64() / (1u64 << 30) as f64;
        let (name, best, theirs) = (info.name, speed(best), best_theirs.map(speed));
        match theirs {
            _ if json => {
                let theirs = theirs.map_or("null".to_owned(), |theirs| format!("{theirs:.3}"));
                println!(r#"{{"operator":"{name}","gib_per_s":{best:.3},"openssl_gib_per_s":{theirs}}}"#);
            }
            Some(theirs) => println!("{name:20} {best:8.2} {theirs:8.2} {:6.2}", best / theirs),
            None => println!("{name:20} {best:8.2}"),
        }
    }
}

/// Words drawn at random from a few: compresses to about a third.
fn text() -> Vec<u8> {
    let mut random = dcs_testkit::Random(1);
    let mut data = Vec::new();
    while data.len() < BLOCK * BLOCKS {
        data.extend_from_slice(format!("{:x} ", (random.next() >> 52) * 2_654_435_761).as_bytes());
    }
    data.truncate(BLOCK * BLOCKS);
    data
}

/// The time of one run, and what came out where the length changes.
fn ours(operator: Operator, input: &[u8]) -> (Duration, Vec<u8>) {
    let parameter = match operator {
        Operator::Aes256Ctr => parameter::aes256_ctr(KEY.last_chunk().unwrap(), &[0; 16]).to_vec(),
        Operator::Aes256Xts | Operator::Aes256XtsDecrypt => {
            parameter::aes256_xts(&KEY, UNIT as u32, 0).to_vec()
        }
        _ => vec![],
    };
    let mut context = Context::new(operator, &parameter).unwrap();
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

/// OpenSSL at the same.
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
