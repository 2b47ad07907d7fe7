//! The compression function for two streams at once, on the SHA instructions. The latency of SHA256RNDS2 bounds the
//! chain of one stream; a second stream fills the gaps until the unit has none. Three and four streams gain nothing
//! more.
//!
//! The unsafe parts are vector loads and stores, and the call of a function that needs a feature of the processor.
#![allow(unsafe_code)]

use crate::hash::{BLOCK, Job};
use std::arch::x86_64::*;

/// Number of streams in a pass.
const STREAMS_AT_ONCE: usize = 2;

/// Constants of FIPS 180-4 section 4.2.2, by fours as the rounds take them.
#[rustfmt::skip]
const CONSTANTS: [[u32; 4]; 16] = [
    [0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5],
    [0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5],
    [0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3],
    [0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174],
    [0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc],
    [0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da],
    [0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7],
    [0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967],
    [0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13],
    [0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85],
    [0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3],
    [0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070],
    [0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5],
    [0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3],
    [0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208],
    [0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2],
];

/// One register of each stream.
type Registers = [__m128i; STREAMS_AT_ONCE];

/// Returns true if the processor has what [`pair`] needs.
pub(crate) fn is_there() -> bool {
    is_x86_feature_detected!("sha") && is_x86_feature_detected!("ssse3") && is_x86_feature_detected!("sse4.1")
}

/// Advances two streams by `blocks` blocks, which each of them has.
///
/// # Panics
///
/// Panics for other than two streams, or one with fewer blocks.
pub(crate) fn pair(jobs: &mut [Job<'_, [u32; 8]>], blocks: usize) {
    let jobs: &mut [Job<'_, [u32; 8]>; STREAMS_AT_ONCE] = jobs.try_into().expect("two streams");
    let data = jobs.each_ref().map(|job| &job.blocks[..blocks]);
    let mut states = jobs.each_ref().map(|job| *job.state);
    // SAFETY: `Lanes::detect` found what `is_there` checks.
    unsafe { compress(&mut states, data, blocks) };
    for (job, state) in jobs.iter_mut().zip(states) {
        *job.state = state;
    }
}

#[target_feature(enable = "sha,ssse3,sse4.1")]
fn compress(
    states: &mut [[u32; 8]; STREAMS_AT_ONCE],
    data: [&[[u8; BLOCK]]; STREAMS_AT_ONCE],
    blocks: usize,
) {
    // The instructions take the words of a state as ABEF and CDGH.
    let (mut abef, mut cdgh) =
        ([_mm_setzero_si128(); STREAMS_AT_ONCE], [_mm_setzero_si128(); STREAMS_AT_ONCE]);
    for (stream, state) in states.iter().enumerate() {
        let halves = state.as_chunks().0;
        let (low, high) = (load(&halves[0]), load(&halves[1]));
        let (cdab, efgh) = (_mm_shuffle_epi32::<0xb1>(low), _mm_shuffle_epi32::<0x1b>(high));
        abef[stream] = _mm_alignr_epi8::<8>(cdab, efgh);
        cdgh[stream] = _mm_blend_epi16::<0xf0>(efgh, cdab);
    }
    for block in 0..blocks {
        let (abef_before, cdgh_before) = (abef, cdgh);
        let mut message = [[_mm_setzero_si128(); STREAMS_AT_ONCE]; 4];
        for (quarter, words) in message.iter_mut().enumerate() {
            for (words, data) in words.iter_mut().zip(data) {
                *words = load_big_endian(&data[block], quarter);
            }
        }
        // The words of four rounds are replaced by those of sixteen rounds later, while the rounds go on.
        for sixteen in 0..3 {
            for at in 0..4 {
                let next = std::array::from_fn(|stream| {
                    let [oldest, old, new, newest] =
                        std::array::from_fn(|later| message[(at + later) % 4][stream]);
                    let sum = _mm_sha256msg1_epu32(oldest, old);
                    let sum = _mm_add_epi32(sum, _mm_alignr_epi8::<4>(newest, new));
                    _mm_sha256msg2_epu32(sum, newest)
                });
                rounds(&mut abef, &mut cdgh, &message[at], 4 * sixteen + at);
                message[at] = next;
            }
        }
        for (at, words) in message.iter().enumerate() {
            rounds(&mut abef, &mut cdgh, words, 12 + at);
        }
        for stream in 0..STREAMS_AT_ONCE {
            abef[stream] = _mm_add_epi32(abef[stream], abef_before[stream]);
            cdgh[stream] = _mm_add_epi32(cdgh[stream], cdgh_before[stream]);
        }
    }
    for (stream, state) in states.iter_mut().enumerate() {
        let (feba, dchg) = (_mm_shuffle_epi32::<0x1b>(abef[stream]), _mm_shuffle_epi32::<0xb1>(cdgh[stream]));
        let halves = [_mm_blend_epi16::<0xf0>(feba, dchg), _mm_alignr_epi8::<8>(dchg, feba)];
        for (words, half) in state.as_chunks_mut::<4>().0.iter_mut().zip(halves) {
            // SAFETY: four words are there.
            unsafe { _mm_storeu_si128(words.as_mut_ptr().cast(), half) };
        }
    }
}

/// Runs four rounds of each stream.
#[inline]
#[target_feature(enable = "sha,ssse3,sse4.1")]
fn rounds(abef: &mut Registers, cdgh: &mut Registers, words: &Registers, at: usize) {
    let constants = load(&CONSTANTS[at]);
    let sums = words.map(|words| _mm_add_epi32(words, constants));
    for stream in 0..STREAMS_AT_ONCE {
        cdgh[stream] = _mm_sha256rnds2_epu32(cdgh[stream], abef[stream], sums[stream]);
    }
    for stream in 0..STREAMS_AT_ONCE {
        let upper = _mm_shuffle_epi32::<0x0e>(sums[stream]);
        abef[stream] = _mm_sha256rnds2_epu32(abef[stream], cdgh[stream], upper);
    }
}

#[inline]
#[target_feature(enable = "sse2")]
fn load(words: &[u32; 4]) -> __m128i {
    // SAFETY: four words are there.
    unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
}

/// Loads a quarter of a block: four words.
#[inline]
#[target_feature(enable = "ssse3")]
fn load_big_endian(block: &[u8; BLOCK], quarter: usize) -> __m128i {
    let bytes: &[u8; 16] = &block.as_chunks().0[quarter];
    // SAFETY: sixteen bytes are there.
    let words = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
    _mm_shuffle_epi8(words, _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203))
}
