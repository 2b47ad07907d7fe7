//! The compression function on x86 vector units: for many streams, one in each lane, with two sets of lanes
//! interleaved, because the chain of one set leaves half of the unit idle; and for one stream in one lane.
//!
//! The unsafe parts are vector loads from the streams' blocks, and calls of functions that need a feature of the
//! processor.
#![allow(unsafe_code)]

use crate::hash::{self, BLOCK};
use std::arch::x86_64::*;

/// A stream of MD5.
type Job<'a> = hash::Job<'a, [u32; 4]>;

/// Most lanes of either unit.
const LANES_MAX: usize = 32;

/// Advances one stream, in the lowest lane of 128-bit registers. Round functions and rotations take one instruction
/// each there, so that a step's chain is four instructions long; general registers need five for half of the steps.
/// Returns false, and does nothing, if the processor lacks these instructions.
pub(super) fn lone(state: &mut [u32; 4], blocks: &[[u8; BLOCK]]) -> bool {
    let there = is_x86_feature_detected!("avx512vl");
    if there {
        // SAFETY: the processor was found to have avx512vl, and with it avx512f.
        unsafe { avx512_lone(state, blocks) };
    }
    there
}

#[target_feature(enable = "avx512f,avx512vl")]
fn avx512_lone(state: &mut [u32; 4], blocks: &[[u8; BLOCK]]) {
    let mut registers = state.map(|word| _mm_cvtsi32_si128(word.cast_signed()));
    for block in blocks {
        let words = block.as_chunks().0;
        let before = registers;
        macro_rules! function {
            (F, $b:expr, $c:expr, $d:expr) => {
                _mm_ternarylogic_epi32::<0xca>($b, $c, $d)
            };
            (G, $b:expr, $c:expr, $d:expr) => {
                _mm_ternarylogic_epi32::<0xca>($d, $b, $c)
            };
            (H, $b:expr, $c:expr, $d:expr) => {
                _mm_ternarylogic_epi32::<0x96>($b, $c, $d)
            };
            (I, $b:expr, $c:expr, $d:expr) => {
                _mm_ternarylogic_epi32::<0x39>($b, $c, $d)
            };
        }
        macro_rules! step {
            ($f:ident, $a:literal, $b:literal, $c:literal, $d:literal, $word:literal, $rotation:literal, $constant:literal) => {
                // Constant and message word are added off the chain, in a general register. The compiler cannot move
                // that sum behind the round function, as it does with vectors.
                let early = i32::from_le_bytes(words[$word]).wrapping_add(($constant as u32).cast_signed());
                let early = _mm_add_epi32(registers[$a], _mm_cvtsi32_si128(early));
                let sum = _mm_add_epi32(early, function!($f, registers[$b], registers[$c], registers[$d]));
                registers[$a] = _mm_add_epi32(registers[$b], _mm_rol_epi32::<$rotation>(sum));
            };
        }
        steps!(step);
        for (register, before) in registers.iter_mut().zip(before) {
            *register = _mm_add_epi32(*register, before);
        }
    }
    *state = registers.map(|register| _mm_cvtsi128_si32(register).cast_unsigned());
}

/// Block that lanes without a stream read.
static IDLE: [u8; BLOCK] = [0; BLOCK];

/// States by register, then by lane, and the position of each lane's next block. Idle lanes stay on [`IDLE`].
struct Loaded {
    states: [[u32; LANES_MAX]; 4],
    at: [*const u8; LANES_MAX],
    /// Bytes from one block to the next: 0 in an idle lane.
    stride: [usize; LANES_MAX],
}

impl Loaded {
    fn new(jobs: &[Job<'_>]) -> Loaded {
        let mut loaded =
            Loaded { states: [[0; LANES_MAX]; 4], at: [IDLE.as_ptr(); LANES_MAX], stride: [0; LANES_MAX] };
        for (lane, job) in jobs.iter().enumerate() {
            for (register, word) in loaded.states.iter_mut().zip(*job.state) {
                register[lane] = word;
            }
            loaded.at[lane] = job.blocks.as_ptr().cast();
            loaded.stride[lane] = BLOCK;
        }
        loaded
    }

    fn store(&self, jobs: &mut [Job<'_>]) {
        for (lane, job) in jobs.iter_mut().enumerate() {
            *job.state = std::array::from_fn(|register| self.states[register][lane]);
        }
    }

    /// Moves every lane to its next block.
    #[inline(always)]
    fn advance(&mut self) {
        for (at, stride) in self.at.iter_mut().zip(self.stride) {
            *at = at.wrapping_add(stride);
        }
    }
}

/// Advances up to 32 streams by `blocks` blocks, which each of them has.
///
/// # Panics
///
/// Panics for more than 32 streams, or one with fewer blocks.
pub(crate) fn avx512(jobs: &mut [Job<'_>], blocks: usize) {
    check(jobs, blocks, 32);
    let mut loaded = Loaded::new(jobs);
    // SAFETY: `Lanes::detect` found avx512f; every lane that is in use has `blocks` blocks, as was checked.
    unsafe {
        if jobs.len() <= 16 {
            avx512_sets::<1>(&mut loaded, blocks)
        } else {
            avx512_sets::<2>(&mut loaded, blocks)
        }
    }
    loaded.store(jobs);
}

/// Advances up to 16 streams by `blocks` blocks, which each of them has.
///
/// # Panics
///
/// Panics for more than 16 streams, or one with fewer blocks.
pub(crate) fn avx2(jobs: &mut [Job<'_>], blocks: usize) {
    check(jobs, blocks, 16);
    let mut loaded = Loaded::new(jobs);
    // SAFETY: `Lanes::detect` found avx2; every lane that is in use has `blocks` blocks, as was checked.
    unsafe {
        if jobs.len() <= 8 {
            avx2_sets::<1>(&mut loaded, blocks)
        } else {
            avx2_sets::<2>(&mut loaded, blocks)
        }
    }
    loaded.store(jobs);
}

fn check(jobs: &[Job<'_>], blocks: usize, lanes: usize) {
    assert!(jobs.len() <= lanes, "more streams than lanes");
    assert!(jobs.iter().all(|job| job.blocks.len() >= blocks), "a stream has too few blocks");
}

/// Computes one of RFC 1321's functions, section 3.4.
macro_rules! function512 {
    (F, $b:expr, $c:expr, $d:expr) => {
        _mm512_ternarylogic_epi32::<0xca>($b, $c, $d)
    };
    (G, $b:expr, $c:expr, $d:expr) => {
        _mm512_ternarylogic_epi32::<0xca>($d, $b, $c)
    };
    (H, $b:expr, $c:expr, $d:expr) => {
        _mm512_ternarylogic_epi32::<0x96>($b, $c, $d)
    };
    (I, $b:expr, $c:expr, $d:expr) => {
        _mm512_ternarylogic_epi32::<0x39>($b, $c, $d)
    };
}

/// # Safety
///
/// The processor has avx512f, and `blocks` blocks may be read at each lane's position.
#[target_feature(enable = "avx512f")]
unsafe fn avx512_sets<const SETS: usize>(loaded: &mut Loaded, blocks: usize) {
    let load = |register: &[u32; LANES_MAX], set: usize| {
        // SAFETY: 16 words from `16 * set` lie inside the 32 of the array.
        unsafe { _mm512_loadu_si512(register.as_ptr().add(16 * set).cast()) }
    };
    let mut state: [[__m512i; SETS]; 4] =
        std::array::from_fn(|register| std::array::from_fn(|set| load(&loaded.states[register], set)));
    let mut words = [[_mm512_setzero_si512(); SETS]; 16];
    for _ in 0..blocks {
        for set in 0..SETS {
            // SAFETY: each lane's position has a block to be read, by this function's own contract.
            let rows =
                std::array::from_fn(|lane| unsafe { _mm512_loadu_si512(loaded.at[16 * set + lane].cast()) });
            for (word, row) in words.iter_mut().zip(transpose16(rows)) {
                word[set] = row;
            }
        }
        loaded.advance();
        let mut registers = state;
        macro_rules! step {
            ($f:ident, $a:literal, $b:literal, $c:literal, $d:literal, $word:literal, $rotation:literal, $constant:literal) => {
                for set in 0..SETS {
                    // Added off the chain: constant, message word and the oldest register.
                    let early = _mm512_add_epi32(
                        registers[$a][set],
                        _mm512_add_epi32(
                            words[$word][set],
                            _mm512_set1_epi32(($constant as u32).cast_signed()),
                        ),
                    );
                    let sum = _mm512_add_epi32(
                        early,
                        function512!($f, registers[$b][set], registers[$c][set], registers[$d][set]),
                    );
                    registers[$a][set] =
                        _mm512_add_epi32(registers[$b][set], _mm512_rol_epi32::<$rotation>(sum));
                }
            };
        }
        steps!(step);
        for set in 0..SETS {
            for (register, new) in state.iter_mut().zip(registers) {
                register[set] = _mm512_add_epi32(register[set], new[set]);
            }
        }
    }
    for (register, words) in loaded.states.iter_mut().zip(state) {
        for (set, word) in words.into_iter().enumerate() {
            // SAFETY: 16 words from `16 * set` lie inside the 32 of the array.
            unsafe { _mm512_storeu_si512(register.as_mut_ptr().add(16 * set).cast(), word) };
        }
    }
}

/// Transposes sixteen rows of sixteen words.
#[target_feature(enable = "avx512f")]
fn transpose16(rows: [__m512i; 16]) -> [__m512i; 16] {
    let mut pairs = rows;
    for at in (0..16).step_by(2) {
        pairs[at] = _mm512_unpacklo_epi32(rows[at], rows[at + 1]);
        pairs[at + 1] = _mm512_unpackhi_epi32(rows[at], rows[at + 1]);
    }
    let mut fours = pairs;
    for at in (0..16).step_by(4) {
        fours[at] = _mm512_unpacklo_epi64(pairs[at], pairs[at + 2]);
        fours[at + 1] = _mm512_unpackhi_epi64(pairs[at], pairs[at + 2]);
        fours[at + 2] = _mm512_unpacklo_epi64(pairs[at + 1], pairs[at + 3]);
        fours[at + 3] = _mm512_unpackhi_epi64(pairs[at + 1], pairs[at + 3]);
    }
    // `fours[4 * r + c]` holds, in its quarter q, word 4 * q + c of the rows 4 * r to 4 * r + 3.
    let mut columns = rows;
    for column in 0..4 {
        let [r0, r1, r2, r3] = [fours[column], fours[4 + column], fours[8 + column], fours[12 + column]];
        let low01 = _mm512_shuffle_i32x4::<0x44>(r0, r1);
        let high01 = _mm512_shuffle_i32x4::<0xee>(r0, r1);
        let low23 = _mm512_shuffle_i32x4::<0x44>(r2, r3);
        let high23 = _mm512_shuffle_i32x4::<0xee>(r2, r3);
        columns[column] = _mm512_shuffle_i32x4::<0x88>(low01, low23);
        columns[4 + column] = _mm512_shuffle_i32x4::<0xdd>(low01, low23);
        columns[8 + column] = _mm512_shuffle_i32x4::<0x88>(high01, high23);
        columns[12 + column] = _mm512_shuffle_i32x4::<0xdd>(high01, high23);
    }
    columns
}

/// Computes one of RFC 1321's functions, section 3.4.
macro_rules! function256 {
    (F, $b:expr, $c:expr, $d:expr) => {
        _mm256_xor_si256($d, _mm256_and_si256($b, _mm256_xor_si256($c, $d)))
    };
    (G, $b:expr, $c:expr, $d:expr) => {
        _mm256_xor_si256($c, _mm256_and_si256($d, _mm256_xor_si256($b, $c)))
    };
    (H, $b:expr, $c:expr, $d:expr) => {
        _mm256_xor_si256($b, _mm256_xor_si256($c, $d))
    };
    (I, $b:expr, $c:expr, $d:expr) => {
        _mm256_xor_si256($c, _mm256_or_si256($b, _mm256_xor_si256($d, _mm256_set1_epi32(-1))))
    };
}

/// # Safety
///
/// The processor has avx2, and `blocks` blocks may be read at each lane's position.
#[target_feature(enable = "avx2")]
unsafe fn avx2_sets<const SETS: usize>(loaded: &mut Loaded, blocks: usize) {
    let load = |register: &[u32; LANES_MAX], set: usize| {
        // SAFETY: 8 words from `8 * set` lie inside the 32 of the array.
        unsafe { _mm256_loadu_si256(register.as_ptr().add(8 * set).cast()) }
    };
    let mut state: [[__m256i; SETS]; 4] =
        std::array::from_fn(|register| std::array::from_fn(|set| load(&loaded.states[register], set)));
    let mut words = [[_mm256_setzero_si256(); SETS]; 16];
    for _ in 0..blocks {
        for set in 0..SETS {
            for half in 0..2 {
                // SAFETY: half of a block at each lane's position, by this function's own contract.
                let rows = std::array::from_fn(|lane| unsafe {
                    _mm256_loadu_si256(loaded.at[8 * set + lane].add(32 * half).cast())
                });
                for (word, row) in words[8 * half..].iter_mut().zip(transpose8(rows)) {
                    word[set] = row;
                }
            }
        }
        loaded.advance();
        let mut registers = state;
        macro_rules! step {
            ($f:ident, $a:literal, $b:literal, $c:literal, $d:literal, $word:literal, $rotation:literal, $constant:literal) => {
                for set in 0..SETS {
                    let early = _mm256_add_epi32(
                        registers[$a][set],
                        _mm256_add_epi32(
                            words[$word][set],
                            _mm256_set1_epi32(($constant as u32).cast_signed()),
                        ),
                    );
                    let sum = _mm256_add_epi32(
                        early,
                        function256!($f, registers[$b][set], registers[$c][set], registers[$d][set]),
                    );
                    let rotated = _mm256_or_si256(
                        _mm256_slli_epi32::<$rotation>(sum),
                        _mm256_srli_epi32::<{ 32 - $rotation }>(sum),
                    );
                    registers[$a][set] = _mm256_add_epi32(registers[$b][set], rotated);
                }
            };
        }
        steps!(step);
        for set in 0..SETS {
            for (register, new) in state.iter_mut().zip(registers) {
                register[set] = _mm256_add_epi32(register[set], new[set]);
            }
        }
    }
    for (register, words) in loaded.states.iter_mut().zip(state) {
        for (set, word) in words.into_iter().enumerate() {
            // SAFETY: 8 words from `8 * set` lie inside the 32 of the array.
            unsafe { _mm256_storeu_si256(register.as_mut_ptr().add(8 * set).cast(), word) };
        }
    }
}

/// Transposes eight rows of eight words.
#[target_feature(enable = "avx2")]
fn transpose8(rows: [__m256i; 8]) -> [__m256i; 8] {
    let mut pairs = rows;
    for at in (0..8).step_by(2) {
        pairs[at] = _mm256_unpacklo_epi32(rows[at], rows[at + 1]);
        pairs[at + 1] = _mm256_unpackhi_epi32(rows[at], rows[at + 1]);
    }
    let mut fours = pairs;
    for at in (0..8).step_by(4) {
        fours[at] = _mm256_unpacklo_epi64(pairs[at], pairs[at + 2]);
        fours[at + 1] = _mm256_unpackhi_epi64(pairs[at], pairs[at + 2]);
        fours[at + 2] = _mm256_unpacklo_epi64(pairs[at + 1], pairs[at + 3]);
        fours[at + 3] = _mm256_unpackhi_epi64(pairs[at + 1], pairs[at + 3]);
    }
    let mut columns = rows;
    for column in 0..4 {
        columns[column] = _mm256_permute2x128_si256::<0x20>(fours[column], fours[4 + column]);
        columns[4 + column] = _mm256_permute2x128_si256::<0x31>(fours[column], fours[4 + column]);
    }
    columns
}
