//! Handmade Zstandard frames: neither output nor error depends on how they are cut.

use crate::common::{Cut, resize, resized, whole};
use dcs_abi::operator::Operator;
use dcs_ndp::OperatorError;

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Makes an uncompressed block (RFC 8878, 3.1.1.2).
fn raw_block(data: &[u8], last: bool) -> Vec<u8> {
    let header = (data.len() as u32) << 3 | u32::from(last);
    [&header.to_le_bytes()[..3], data].concat()
}

/// Makes a frame whose header has a content size, which may be wrong.
fn frame(told: u8, blocks: &[&[u8]]) -> Vec<u8> {
    const SINGLE_SEGMENT: u8 = 1 << 5;
    [&MAGIC[..], &[SINGLE_SEGMENT, told], &blocks.concat()].concat()
}

/// Returns output and result in one piece, after checking that every other cut gives the same.
fn cut_alike(stream: &[u8]) -> (Vec<u8>, Result<(), OperatorError>) {
    let in_one_piece = resize(Operator::Unzstd, &[], stream, &whole());
    for piece in [1, 2, 3, 5, 7, 11, 40, 1000, 100_000] {
        for room in [1, 3, 64, 1 << 20] {
            for empty_end in [false, true] {
                let cut = Cut { pieces: vec![piece, piece + 1], room, empty_end };
                assert!(resize(Operator::Unzstd, &[], stream, &cut) == in_one_piece, "{cut:?}");
            }
        }
    }
    in_one_piece
}

#[test]
fn a_flag_that_makes_the_window_a_content_size() {
    let mut stream = resized(Operator::Zstd, &[], b"8 bytes.");
    stream[4] ^= 1 << 5;
    assert_eq!(cut_alike(&stream).1, Err(OperatorError::CorruptData));
}

#[test]
fn raw_blocks_of_another_size_than_the_frame_tells() {
    let block = [b'x'; 30];
    for told in [0, 1, 29, 30, 31, 59, 61, 255] {
        let stream = frame(told, &[&raw_block(&block, false), &raw_block(&block, true)]);
        assert_eq!(cut_alike(&stream).1, Err(OperatorError::CorruptData), "{told}");
    }
    let stream = frame(60, &[&raw_block(&block, false), &raw_block(&block, true)]);
    assert_eq!(cut_alike(&stream), (vec![b'x'; 60], Ok(())));
}

#[test]
fn a_header_that_holds_what_looks_like_a_frame() {
    // A missing dictionary, and a content size of 4: together they look like a skippable frame of 4 bytes.
    const DICTIONARY_AND_SIZE_FLAGS: u8 = 3 | 3 << 6;
    let dictionary = 0x184d_2a50_u32.to_le_bytes();
    let stream = [&MAGIC[..], &[DICTIONARY_AND_SIZE_FLAGS, 0], &dictionary, &4u64.to_le_bytes()].concat();
    assert_eq!(cut_alike(&stream), (vec![], Err(OperatorError::CorruptData)));
}

#[test]
fn skippable_frames_of_every_size_are_passed_over() {
    let data = frame(30, &[&raw_block(&[b'x'; 30], true)]);
    for size in [0, 1, 3, 4, 12, 200, 128 << 10, (128 << 10) + 1, 300_000] {
        let skippable =
            [&0x184d_2a5f_u32.to_le_bytes()[..], &(size as u32).to_le_bytes(), &vec![0; size]].concat();
        let stream = [&skippable[..], &data, &skippable].concat();
        assert_eq!(cut_alike(&stream), (vec![b'x'; 30], Ok(())), "{size}");
        let cut_short = &stream[..stream.len() - 1];
        assert_eq!(cut_alike(cut_short), (vec![b'x'; 30], Err(OperatorError::TruncatedData)), "{size}");
    }
}
