//! Properties: how a stream is cut does not matter, inverses restore, damage is found, garbage does no harm.

use crate::common::{Cut, context, digest, in_place, pieces, resize, resized, sample, whole};
use dcs_abi::operator::{OPERATORS, Operator, OperatorKind};
use dcs_ndp::{OperatorError, library, parameter, sequential};
use proptest::prelude::*;

const KEY: [u8; 64] = {
    let mut key = [0; 64];
    let mut at = 0;
    while at < key.len() {
        key[at] = at as u8;
        at += 1;
    }
    key
};

fn digests() -> impl Iterator<Item = Operator> {
    OPERATORS.iter().map(|info| info.operator).filter(|operator| operator.digest_size() > 0)
}

/// Makes ways to cut a stream: pieces and room from single bytes to more than there is.
fn cuts() -> impl Strategy<Value = Cut> {
    let piece = prop_oneof![1..4usize, 1..300usize, 1..100_000usize];
    let room = prop_oneof![Just(1usize), 2..20usize, 100..10_000usize, Just(1usize << 18)];
    (prop::collection::vec(piece, 1..8), room, any::<bool>()).prop_map(|(pieces, room, empty_end)| Cut {
        pieces,
        room,
        empty_end,
    })
}

fn samples(most: usize) -> impl Strategy<Value = Vec<u8>> {
    (any::<u64>(), prop_oneof![0..50usize, 0..most]).prop_map(|(seed, length)| sample(seed, length))
}

/// Compressors at levels that take different paths in their libraries, with their inverses.
fn codecs() -> impl Strategy<Value = (Operator, u8, Operator)> {
    prop_oneof![
        (0..=9u8).prop_map(|level| (Operator::Gzip, level, Operator::Gunzip)),
        (1..=7u8).prop_map(|level| (Operator::Zstd, level, Operator::Unzstd)),
    ]
}

/// ISA-L may write other bytes for the same data.
fn is_any(compress: Operator, level: &[u8]) -> bool {
    compress == Operator::Gzip
        && level == parameter::level(1)
        && library(compress).is_some_and(|name| name.starts_with("ISA-L"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_slice_is_that_range(data in samples(20_000), skip in 0..20_000u64, take in 0..20_000u64, cut in cuts()) {
        let (output, result) = resize(Operator::Slice, &parameter::slice(skip, take), &data, &cut);
        let range = skip as usize..(skip + take) as usize;
        match data.get(range) {
            Some(expected) => prop_assert!(result == Ok(()) && output == expected),
            None => {
                prop_assert_eq!(result, Err(OperatorError::TruncatedData));
                prop_assert!(output == data[data.len().min(skip as usize)..]);
            }
        }
    }

    #[test]
    fn a_digest_that_is_not_the_expected_one_fails(data in samples(5_000), at in any::<prop::sample::Index>()) {
        for operator in digests() {
            let mut plain = context(operator, &[]);
            plain.absorb(&data);
            prop_assert_eq!(plain.check(), Ok(()));
            let mut value = plain.value().unwrap().as_bytes().to_vec();
            prop_assert!(sequential::run(&[(operator, value.clone())], &data).is_ok());
            let at = at.index(value.len());
            value[at] ^= 1;
            let result = sequential::run(&[(Operator::Gzip, vec![]), (Operator::Gunzip, vec![]), (operator, value)], &data);
            prop_assert_eq!(result, Err((2, OperatorError::Mismatch)));
        }
    }

    #[test]
    fn a_digest_does_not_depend_on_the_pieces(data in samples(100_000), cut in cuts()) {
        for operator in digests() {
            let mut context = context(operator, &[]);
            for (piece, _) in pieces(&data, &cut) {
                context.absorb(piece);
            }
            prop_assert_eq!(context.value().unwrap().to_string(), digest(operator, &data));
        }
    }

    #[test]
    fn a_digest_in_the_middle_is_that_of_the_prefix(data in samples(20_000), at in any::<prop::sample::Index>()) {
        let (prefix, rest) = data.split_at(at.index(data.len() + 1));
        for operator in digests() {
            let mut context = context(operator, &[]);
            context.absorb(prefix);
            prop_assert_eq!(context.value().unwrap().to_string(), digest(operator, prefix));
            context.absorb(rest);
            prop_assert_eq!(context.value().unwrap().to_string(), digest(operator, &data));
        }
    }

    #[test]
    fn ctr_does_not_depend_on_the_pieces_and_restores(data in samples(100_000), cut in cuts(), counter: [u8; 16]) {
        let parameter = parameter::aes256_ctr(KEY.first_chunk().unwrap(), &counter);
        let mut context = context(Operator::Aes256Ctr, &parameter);
        let mut cipher = Vec::new();
        for (piece, last) in pieces(&data, &cut) {
            let mut piece = piece.to_vec();
            context.in_place(&mut piece, last).unwrap();
            cipher.extend(piece);
        }
        prop_assert!(cipher == in_place(Operator::Aes256Ctr, &parameter, &data));
        prop_assert!(data == in_place(Operator::Aes256Ctr, &parameter, &cipher));
    }

    #[test]
    fn blowfish_does_not_depend_on_the_pieces_and_restores(
        data in samples(50_000), cut in cuts(), counter: [u8; 8], key in prop::collection::vec(any::<u8>(), 4..=56),
    ) {
        let parameter = parameter::blowfish_ctr(&key, &counter);
        let mut context = context(Operator::BlowfishCtr, &parameter);
        let mut cipher = Vec::new();
        for (piece, last) in pieces(&data, &cut) {
            let mut piece = piece.to_vec();
            context.in_place(&mut piece, last).unwrap();
            cipher.extend(piece);
        }
        prop_assert!(cipher == in_place(Operator::BlowfishCtr, &parameter, &data));
        prop_assert!(data == in_place(Operator::BlowfishCtr, &parameter, &cipher));
    }

    #[test]
    fn xts_does_not_depend_on_the_pieces_and_restores(
        mut data in samples(50_000), cut in cuts(), power in 4..=12u32, first_unit: u64,
    ) {
        let unit_size = 1usize << power;
        if (1..16).contains(&(data.len() % unit_size)) {
            data.truncate(data.len() / unit_size * unit_size);
        }
        let parameter = parameter::aes256_xts(&KEY, unit_size as u32, first_unit);
        let whole_units = Cut { pieces: cut.pieces.iter().map(|size| size * unit_size).collect(), ..cut };
        let mut context = context(Operator::Aes256Xts, &parameter);
        let mut cipher = Vec::new();
        for (piece, last) in pieces(&data, &whole_units) {
            // An empty end would come after the partial unit, which must be in the last call.
            let last = last || cipher.len() + piece.len() == data.len();
            let mut piece = piece.to_vec();
            context.in_place(&mut piece, last).unwrap();
            cipher.extend(piece);
            if last {
                break;
            }
        }
        prop_assert!(cipher == in_place(Operator::Aes256Xts, &parameter, &data));
        prop_assert!(data == in_place(Operator::Aes256XtsDecrypt, &parameter, &cipher));
    }

    #[test]
    fn compression_does_not_depend_on_the_pieces_and_restores(
        data in samples(400_000), (compress, level, decompress) in codecs(), one in cuts(), other in cuts(),
    ) {
        let level = parameter::level(level);
        let (stream, result) = resize(compress, &level, &data, &one);
        prop_assert_eq!(result, Ok(()));
        prop_assert!(is_any(compress, &level) || stream == resized(compress, &level, &data));
        let (restored, result) = resize(decompress, &[], &stream, &other);
        prop_assert_eq!(result, Ok(()));
        prop_assert!(restored == data);
    }

    /// The output before the error is the beginning of the whole stream's.
    #[test]
    fn a_cut_stream_is_truncated(
        data in samples(300_000), (compress, level, decompress) in codecs(),
        at in any::<prop::sample::Index>(), cut in cuts(),
    ) {
        let stream = resized(compress, &parameter::level(level), &data);
        let (output, result) = resize(decompress, &[], &stream[..at.index(stream.len())], &cut);
        prop_assert_eq!(result, Err(OperatorError::TruncatedData));
        prop_assert!(data.starts_with(&output));
    }

    /// Gives the same error, with the same output before it, however the stream is cut.
    #[test]
    fn damage_is_found(
        data in samples(300_000), (compress, level, decompress) in codecs(),
        at in any::<prop::sample::Index>(), bit in 0..8u32, cut in cuts(),
    ) {
        let mut stream = resized(compress, &parameter::level(level), &data);
        let at = at.index(stream.len());
        stream[at] ^= 1 << bit;
        let (output, result) = resize(decompress, &[], &stream, &cut);
        prop_assert!(result.is_err() || output == data, "damage passed as good data");
        let in_one_piece = resize(decompress, &[], &stream, &whole());
        prop_assert!((output, result) == in_one_piece);
    }

    /// Bytes behind a real header, so that they are not all refused at the magic number.
    #[test]
    fn garbage_does_no_harm(
        garbage in prop::collection::vec(any::<u8>(), 0..2000), kept in 0..24usize, cut in cuts(),
        (compress, level, decompress) in codecs(),
    ) {
        let mut stream = resized(compress, &parameter::level(level), &sample(1, 5000));
        stream.truncate(kept);
        stream.extend(garbage);
        // The driver fails on a panic and on a call that does nothing; the garbage has no valid checksum.
        let (_, result) = resize(decompress, &[], &stream, &cut);
        prop_assert!(result.is_err());
    }

    #[test]
    fn a_chain_and_its_inverse_restore(data in samples(60_000), level in 1..=9u8, counter: [u8; 16]) {
        let ctr = parameter::aes256_ctr(KEY.first_chunk().unwrap(), &counter).to_vec();
        let there = [
            (Operator::Sha256, vec![]),
            (Operator::Gzip, parameter::level(level).to_vec()),
            (Operator::Aes256Ctr, ctr.clone()),
            (Operator::Crc64Nvme, vec![]),
        ];
        let back = [
            (Operator::Crc64Nvme, vec![]),
            (Operator::Aes256Ctr, ctr),
            (Operator::Gunzip, vec![]),
            (Operator::Sha256, vec![]),
        ];
        let sent = sequential::run(&there, &data).unwrap();
        let received = sequential::run(&back, &sent.output).unwrap();
        prop_assert!(received.output == data);
        prop_assert_eq!(received.digests[0], sent.digests[3]);
        prop_assert_eq!(received.digests[3], sent.digests[0]);
    }
}

/// A short stream of each format, with literals, a match and a run.
fn short_streams() -> impl Iterator<Item = (Vec<u8>, Vec<u8>, Operator)> {
    let data = [b"a short text, a short text ".to_vec(), vec![b'-'; 100], sample(5, 200)].concat();
    [
        (Operator::Gzip, 1, Operator::Gunzip),
        (Operator::Gzip, 9, Operator::Gunzip),
        (Operator::Zstd, 3, Operator::Unzstd),
    ]
    .into_iter()
    .map(move |(compress, level, decompress)| {
        (resized(compress, &parameter::level(level), &data), data.clone(), decompress)
    })
}

#[test]
fn every_truncation_is_found() {
    for (stream, data, decompress) in short_streams() {
        for length in 0..stream.len() {
            for room in [1, 1 << 16] {
                let (output, result) = resize(decompress, &[], &stream[..length], &Cut { room, ..whole() });
                assert_eq!(result, Err(OperatorError::TruncatedData), "{decompress:?} cut to {length}");
                assert!(data.starts_with(&output));
            }
        }
    }
}

#[test]
fn every_flipped_bit_is_found_or_does_no_harm() {
    for (stream, data, decompress) in short_streams() {
        let mut harmless = 0;
        for bit in 0..stream.len() * 8 {
            let mut damaged = stream.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let (output, result) = resize(decompress, &[], &damaged, &whole());
            assert!(result.is_err() || output == data, "{decompress:?}: bit {bit} passed as good data");
            harmless += usize::from(result.is_ok());
        }
        // gzip: FTEXT, time, extra flags, system, the bits that fill the last byte. zstd: the size of the
        // window.
        assert!(harmless <= 1 + 32 + 8 + 8 + 7, "{harmless} flips were not noticed");
    }
}

/// Checks that every operator keeps its promise about length.
#[test]
fn only_resize_changes_the_length() {
    let data = sample(6, 4096);
    for info in OPERATORS {
        let parameter = match info.operator {
            Operator::Aes256Ctr => parameter::aes256_ctr(KEY.first_chunk().unwrap(), &[0; 16]).to_vec(),
            Operator::Aes256Xts | Operator::Aes256XtsDecrypt => parameter::aes256_xts(&KEY, 512, 0).to_vec(),
            Operator::BlowfishCtr => parameter::blowfish_ctr(&KEY[..16], &[0; 8]),
            Operator::Knn => {
                parameter::Knn { element: parameter::Element::U8, k: 3, query: vec![9; 16] }.block()
            }
            Operator::AwsChunked => crate::common::unsigned_chunks(data.len()),
            Operator::Slice => parameter::slice(1, 4000).to_vec(),
            Operator::Grep => crate::common::grep("not there").block(),
            Operator::Filter => b"-n:#1=not there".to_vec(),
            Operator::Aggregate => b"count".to_vec(),
            _ => vec![],
        };
        let input = match info.operator {
            Operator::Gunzip => resized(Operator::Gzip, &[], &data),
            Operator::Bitmap => {
                [&12347u16.to_le_bytes()[..], &[0, 0, 1, 0, 0, 99, 0, 1, 0, 7, 0, 99, 0]].concat()
            }
            Operator::Unzstd => resized(Operator::Zstd, &[], &data),
            Operator::AwsChunked => [b"1000\r\n", &data[..], b"\r\n0\r\n\r\n"].concat(),
            Operator::Filter | Operator::Aggregate => b"a table, \nof 2 rows".to_vec(),
            _ => data.clone(),
        };
        let output = sequential::run(&[(info.operator, parameter)], &input).unwrap().output;
        match info.kind {
            OperatorKind::Digest { .. } => assert!(output == input),
            OperatorKind::InPlace { .. } => assert!(output.len() == input.len() && output != input),
            OperatorKind::Resize => assert_ne!(output.len(), input.len()),
        }
    }
}
