//! Target for the operators of `dcs-ndp`.

#[path = "../../crates/ndp/tests/suite/common/mod.rs"]
mod common;

use common::{Cut, in_place, pieces, resize_within, whole};
use dcs_abi::operator::{OPERATORS, Operator, OperatorInfo, OperatorKind};
use dcs_ndp::{Context, Lanes, OperatorError, Piece, library};

/// Passes a stream through an operator in pieces. Checks that the result is the same as in one piece, inverses restore the data,
/// refused calls change nothing, and every call makes progress.
///
/// | bytes | meaning |
/// |---|---|
/// | 1 | row of the table of operators |
/// | 1 | room for output: this many bytes, and one more, squared |
/// | 1 | low 2 bits: sizes of pieces, less one; top bit: an empty piece at the end |
/// | 1 each | a size of a piece, as the room |
/// | 1 | length of the parameter block |
/// | this many | the parameter block |
/// | the rest | the data |
pub fn operators(data: &[u8]) {
    run(data);
}

fn run(data: &[u8]) -> Option<()> {
    let (&[row, room, shape], rest) = data.split_first_chunk()?;
    let info = &OPERATORS[row as usize % OPERATORS.len()];
    let (sizes, rest) = rest.split_at_checked(1 + usize::from(shape & 3))?;
    let (&length, rest) = rest.split_first()?;
    let (parameter, data) = rest.split_at_checked(length.into())?;
    let square = |byte: u8| (usize::from(byte) + 1).pow(2);
    let cut = Cut {
        pieces: sizes.iter().map(|byte| square(*byte)).collect(),
        room: square(room),
        empty_end: shape & 0x80 != 0,
    };
    if let Err(error) = Context::new(info.operator, parameter) {
        assert_eq!(error, OperatorError::BadParameter);
        assert!(!parameter.is_empty() || info.parameter.0 > 0, "empty is the default");
        return None;
    }
    assert!((info.parameter.0..=info.parameter.1).contains(&parameter.len()));
    misused(info, parameter);
    match info.operator {
        Operator::Gzip => compressed(Operator::Gzip, Operator::Gunzip, parameter, data, &cut),
        Operator::Zstd => compressed(Operator::Zstd, Operator::Unzstd, parameter, data, &cut),
        Operator::Gunzip
        | Operator::Unzstd
        | Operator::AwsChunked
        | Operator::Slice
        | Operator::Grep
        | Operator::Filter
        | Operator::Aggregate
        | Operator::Knn
        | Operator::Bitmap => {
            decoded(info.operator, parameter, data, &cut);
        }
        Operator::Aes256Ctr | Operator::BlowfishCtr => ctr(info.operator, parameter, data, &cut),
        Operator::Aes256Xts => xts(Operator::Aes256Xts, Operator::Aes256XtsDecrypt, parameter, data, &cut),
        Operator::Aes256XtsDecrypt => {
            xts(Operator::Aes256XtsDecrypt, Operator::Aes256Xts, parameter, data, &cut);
        }
        digest => digested(digest, parameter, data, &cut),
    }
    Some(())
}

/// Checks that calls for another kind of operator change nothing.
fn misused(info: &OperatorInfo, parameter: &[u8]) {
    let mut context = common::context(info.operator, parameter);
    let mut bytes = *b"misused";
    if !matches!(info.kind, OperatorKind::InPlace { .. }) {
        assert_eq!(context.in_place(&mut bytes, true), Err(OperatorError::InternalError));
        assert_eq!(&bytes, b"misused");
    }
    if info.kind != OperatorKind::Resize {
        assert_eq!(context.resize(b"misused", &mut bytes, true), Err(OperatorError::InternalError));
    }
    if info.operator.digest_size() == 0 {
        context.absorb(b"misused");
        assert_eq!(context.value(), None);
    }
}

/// Limits the output that is followed of a bomb, and the number of calls to some thousands.
fn most(cut: &Cut) -> usize {
    (cut.room * 4096).min(1 << 20)
}

fn decoded(operator: Operator, parameter: &[u8], stream: &[u8], cut: &Cut) {
    let most = most(cut);
    let (output, result) = resize_within(operator, parameter, stream, cut, most);
    assert_ne!(
        result,
        Some(Err(OperatorError::InternalError)),
        "it is used as it should be, and never stands still"
    );
    let (same, same_result) = resize_within(operator, parameter, stream, &whole(), most);
    assert_eq!(result, same_result);
    assert!(output == same, "what comes out depends on how the stream is cut");
}

fn compressed(compress: Operator, decompress: Operator, parameter: &[u8], data: &[u8], cut: &Cut) {
    let most = data.len() + data.len() / 7 + 64;
    let (stream, result) = resize_within(compress, parameter, data, cut, most);
    assert_eq!(result, Some(Ok(())), "data grow by a seventh and a header at most");
    let (same, _) = resize_within(compress, parameter, data, &whole(), most);
    // ISA-L may write other bytes for the same data.
    let is_any = compress == Operator::Gzip
        && matches!(parameter, [] | [1])
        && library(compress).is_some_and(|name| name.starts_with("ISA-L"));
    assert!(is_any || stream == same, "what comes out depends on how the data are cut");
    let (restored, result) = resize_within(decompress, &[], &stream, cut, usize::MAX);
    assert_eq!(result, Some(Ok(())));
    assert!(restored == data);
}

fn ctr(operator: Operator, parameter: &[u8], data: &[u8], cut: &Cut) {
    let mut context = common::context(operator, parameter);
    let mut output = Vec::new();
    for (piece, last) in pieces(data, cut) {
        let mut piece = piece.to_vec();
        assert_eq!(context.in_place(&mut piece, last), Ok(()));
        output.extend(piece);
    }
    assert_eq!(context.in_place(&mut [], true), Err(OperatorError::InternalError), "it has ended");
    assert!(output == in_place(operator, parameter, data));
    assert!(data == in_place(operator, parameter, &output));
}

fn xts(operator: Operator, inverse: Operator, parameter: &[u8], data: &[u8], cut: &Cut) {
    let unit = parameter[64..68].try_into().map_or(0, u32::from_le_bytes) as usize;
    let mut context = common::context(operator, parameter);
    let (mut output, mut rest) = (Vec::new(), data);
    for size in cut.pieces.iter().cycle() {
        // A call that ends inside a data unit is refused without effect.
        let refused = rest.len().min(*size);
        if refused % unit != 0 {
            let mut piece = rest[..refused].to_vec();
            assert_eq!(context.in_place(&mut piece, false), Err(OperatorError::InternalError));
            assert!(piece == rest[..refused]);
        }
        let (piece, after) = rest.split_at(rest.len().min(size.next_multiple_of(unit)));
        rest = after;
        let mut piece = piece.to_vec();
        let result = context.in_place(&mut piece, rest.is_empty());
        if rest.is_empty() && (1..16).contains(&(data.len() % unit)) {
            assert_eq!(result, Err(OperatorError::TruncatedData));
            assert!(data.ends_with(&piece));
            return;
        }
        assert_eq!(result, Ok(()));
        output.extend(piece);
        if rest.is_empty() {
            break;
        }
    }
    assert!(output == in_place(operator, parameter, data));
    assert!(data == in_place(inverse, parameter, &output));
}

fn digested(operator: Operator, expected: &[u8], data: &[u8], cut: &Cut) {
    let mut context = common::context(operator, expected);
    let pieces = pieces(data, cut);
    pieces.iter().for_each(|(piece, _)| context.absorb(piece));
    let value = context.value().expect("a digest has a value");
    assert_eq!(value.as_bytes().len(), operator.digest_size());
    assert_eq!(value.to_string(), common::digest(operator, data));
    let right = expected.is_empty() || expected == value.as_bytes();
    assert_eq!(context.check(), if right { Ok(()) } else { Err(OperatorError::Mismatch) });
    for lanes in Lanes::available(operator) {
        together(operator, lanes, &pieces);
    }
}

/// Passes each piece as a separate stream, in two calls.
fn together(operator: Operator, lanes: Lanes, pieces: &[(&[u8], bool)]) {
    let streams = &pieces[..pieces.len().min(40)];
    let mut contexts: Vec<_> = streams.iter().map(|_| common::context(operator, &[])).collect();
    let halves = streams.iter().map(|(piece, _)| piece.split_at(piece.len() / 3));
    let (first, second): (Vec<_>, Vec<_>) = halves.unzip();
    for (parts, last) in [(first, false), (second, true)] {
        let pieces = contexts.iter_mut().zip(parts).map(|(context, data)| Piece { context, data, last });
        Context::absorb_together(lanes, &mut pieces.collect::<Vec<_>>());
    }
    for (context, (piece, _)) in contexts.iter().zip(streams) {
        let value = context.value().map(|value| value.to_string());
        assert_eq!(value, Some(common::digest(operator, piece)), "{lanes:?}");
    }
}
