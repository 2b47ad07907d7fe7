//! Things that the tests share: sample data, and a driver that cuts a stream in pieces.
#![allow(dead_code)] // the fuzz targets take a part of it

use dcs_abi::operator::Operator;
use dcs_ndp::parameter::{AwsChunked, Grep};
use dcs_ndp::{Context, OperatorError};

pub fn context(operator: Operator, parameter: &[u8]) -> Context {
    Context::new(operator, parameter).unwrap()
}

/// Returns the digest of `data` in hexadecimal.
pub fn digest(operator: Operator, data: &[u8]) -> String {
    let mut context = context(operator, &[]);
    context.absorb(data);
    context.value().unwrap().to_string()
}

/// Returns `data` after an in-place operator, in one piece.
pub fn in_place(operator: Operator, parameter: &[u8], data: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    context(operator, parameter).in_place(&mut data, true).unwrap();
    data
}

/// The cuts of a stream: sizes of the input pieces, in turn, and of the output buffer.
#[derive(Clone, Debug)]
pub struct Cut {
    pub pieces: Vec<usize>,
    pub room: usize,
    /// True if the last piece is an empty one.
    pub empty_end: bool,
}

pub fn whole() -> Cut {
    Cut { pieces: vec![usize::MAX], room: 1 << 20, empty_end: false }
}

/// Returns pieces of the input, with a mark on the last.
pub fn pieces<'a>(input: &'a [u8], cut: &Cut) -> Vec<(&'a [u8], bool)> {
    let (mut all, mut rest) = (Vec::new(), input);
    for size in cut.pieces.iter().cycle() {
        let (piece, after) = rest.split_at((*size).min(rest.len()));
        rest = after;
        all.push((piece, rest.is_empty() && !cut.empty_end));
        if rest.is_empty() {
            break;
        }
    }
    if cut.empty_end {
        all.push((&[], true));
    }
    all
}

/// Runs a stream through a resizing operator and holds it to its contract at every call. Returns all that
/// came out, also before an error.
pub fn resize(
    operator: Operator,
    parameter: &[u8],
    input: &[u8],
    cut: &Cut,
) -> (Vec<u8>, Result<(), OperatorError>) {
    let (output, result) = resize_within(operator, parameter, input, cut, usize::MAX);
    (output, result.expect("there is no such limit"))
}

/// Runs like [`resize`], but without a result if more than `most` bytes come out: then the first `most` are returned.
pub fn resize_within(
    operator: Operator,
    parameter: &[u8],
    input: &[u8],
    cut: &Cut,
    most: usize,
) -> (Vec<u8>, Option<Result<(), OperatorError>>) {
    let mut context = context(operator, parameter);
    let (mut output, mut room) = (Vec::new(), vec![0; cut.room]);
    for (piece, last) in pieces(input, cut) {
        let mut rest = piece;
        loop {
            let progress = match context.resize(rest, &mut room, last) {
                Ok(progress) => progress,
                Err(error) => {
                    assert_eq!(context.resize(rest, &mut room, last), Err(error), "an error stays");
                    return (output, Some(Err(error)));
                }
            };
            let moved = progress.consumed > 0 || progress.produced > 0 || progress.finished;
            assert!(moved || rest.is_empty() && !last, "a call with room and something to do did nothing");
            output.extend_from_slice(&room[..progress.produced]);
            rest = &rest[progress.consumed..];
            if output.len() > most {
                output.truncate(most);
                return (output, None);
            }
            if progress.finished {
                assert!(last && rest.is_empty());
                assert!(context.resize(&[], &mut room, true).unwrap().finished);
                assert_eq!(context.resize(b"x", &mut room, true), Err(OperatorError::InternalError));
                return (output, Some(Ok(())));
            }
            if !last && rest.is_empty() && progress.produced < room.len() {
                break;
            }
        }
    }
    panic!("the stream ended neither well nor badly");
}

/// Returns the output of a resizing operator, in one piece.
pub fn resized(operator: Operator, parameter: &[u8], input: &[u8]) -> Vec<u8> {
    let (output, result) = resize(operator, parameter, input, &whole());
    result.unwrap();
    output
}

/// Returns the parameters of `aws-chunked` for this many bytes in chunks without signatures and trailers.
pub fn unsigned_chunks(length: usize) -> Vec<u8> {
    let decoded_length = length as u64;
    AwsChunked { decoded_length, trailers: false, checksum: None, signature: None }.block()
}

/// Returns the parameters of `grep` for lines that match.
pub fn grep(pattern: &str) -> Grep {
    Grep { pattern: pattern.to_string(), ..Grep::default() }
}

/// Makes bytes that compress like files: runs, repetitions from further back, noise.
pub fn sample(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = move || {
        // xorshift64 (Marsaglia)
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut data = Vec::with_capacity(length + 4096);
    while data.len() < length {
        let size = (next() % 1500 + 1) as usize;
        match next() % 3 {
            0 => data.extend((0..size).map(|_| next() as u8)),
            1 => data.extend(std::iter::repeat_n(next() as u8, size)),
            _ => {
                let from = (next() % (data.len() as u64 + 1)) as usize;
                let to = (from + size).min(data.len());
                data.extend_from_within(from..to);
            }
        }
    }
    data.truncate(length);
    data
}
