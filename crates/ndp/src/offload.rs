//! Streams whose bytes another device (a GPU) processes: the part of their state that is kept here, and the device's
//! task for each piece.
//!
//! The device gets whole units and the stream's state, and returns the new state. Bytes before and after whole units,
//! padding, and joining the remainders of a CRC are handled here: a few bytes of each piece.

use crate::digest::DigestValue;
use crate::hash::{BLOCK, Hash};
use crate::md5::Md5;
use crate::sha256::Sha256;
use crate::{OperatorError, parameter};
use dcs_abi::operator::Operator;
use std::ops::Range;

/// Operators whose streams can be handed out.
pub const OFFLOADED: [Operator; 5] =
    [Operator::Md5, Operator::Sha256, Operator::Crc32, Operator::Crc32c, Operator::Aes256Ctr];

/// Task of a device for one piece.
pub enum Task {
    /// Apply MD5's compression function to whole blocks of 64 bytes.
    Md5 {
        /// State before the blocks.
        state: [u32; 4],
        /// Range of the blocks in the piece.
        blocks: Range<usize>,
    },
    /// Apply SHA-256's compression function to whole blocks of 64 bytes.
    Sha256 {
        /// State before the blocks.
        state: [u32; 8],
        /// Range of the blocks in the piece.
        blocks: Range<usize>,
    },
    /// Compute the CRC remainder of the piece, starting from zero, without a final inversion.
    Crc32 {
        /// Polynomial, reflected.
        polynomial: u32,
    },
    /// Encrypt the piece in counter mode, in place.
    Aes256Ctr {
        /// Expanded key (FIPS 197 section 5.2).
        keys: Box<[u32; 60]>,
        /// Counter block of the 16-byte unit in which the piece begins.
        counter: u128,
        /// Bytes of that unit before the piece.
        skip: u8,
    },
}

/// Answer of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// State after MD5's blocks.
    Md5([u32; 4]),
    /// State after SHA-256's blocks.
    Sha256([u32; 8]),
    /// Remainder of the CRC.
    Crc32(u32),
    /// The data have been changed in place.
    Changed,
}

/// State of a stream between pieces.
pub(crate) struct Offload {
    state: State,
    /// Bytes of the piece that a device has.
    out: Option<usize>,
    /// True if a device failed, or a rule was broken: the stream no longer has a value.
    broken: bool,
}

enum State {
    Md5(Box<Hash<Md5>>),
    Sha256(Box<Hash<Sha256>>),
    Crc { polynomial: u32, register: u32 },
    Ctr { keys: Box<[u32; 60]>, counter: u128, position: u64 },
}

impl Drop for State {
    fn drop(&mut self) {
        if let State::Ctr { keys, .. } = self {
            keys.fill(0);
            // Keeps the compiler from removing the fill.
            core::hint::black_box(keys);
        }
    }
}

impl Offload {
    /// Makes the operator at the beginning of its stream.
    pub fn new(operator: Operator, parameter: &[u8]) -> Result<Offload, OperatorError> {
        let state = match operator {
            Operator::Md5 => State::Md5(Box::new(Hash::new())),
            Operator::Sha256 => State::Sha256(Box::new(Hash::new())),
            Operator::Crc32 => State::Crc { polynomial: CRC32, register: !0 },
            Operator::Crc32c => State::Crc { polynomial: CRC32C, register: !0 },
            Operator::Aes256Ctr => {
                let (key, counter) = parameter::parse_ctr(parameter)?;
                State::Ctr { keys: expand(key), counter: u128::from_be_bytes(*counter), position: 0 }
            }
            _ => return Err(OperatorError::InternalError),
        };
        Ok(Offload { state, out: None, broken: false })
    }

    /// Returns true if [`Offload::hand_out`] reads the next bytes, if there are that many; otherwise only their number
    /// matters.
    pub fn looks(&self, length: usize) -> bool {
        let ends = |begun: bool| begun || !length.is_multiple_of(BLOCK);
        match &self.state {
            State::Md5(hash) => ends(hash.has_begun_block()),
            State::Sha256(hash) => ends(hash.has_begun_block()),
            State::Crc { .. } | State::Ctr { .. } => false,
        }
    }

    /// Hands out the next bytes of the stream. Returns the device's task, if anything is left for it.
    pub fn hand_out(&mut self, data: &[u8]) -> Result<Option<Task>, OperatorError> {
        if self.out.is_some() || self.broken {
            self.broken = true;
            return Err(OperatorError::InternalError);
        }
        if data.is_empty() {
            return Ok(None);
        }
        let task = match &mut self.state {
            State::Md5(hash) => {
                let blocks = blocks(hash.take_ends(data), data);
                (!blocks.is_empty()).then_some(Task::Md5 { state: hash.state, blocks })
            }
            State::Sha256(hash) => {
                let blocks = blocks(hash.take_ends(data), data);
                (!blocks.is_empty()).then_some(Task::Sha256 { state: hash.state, blocks })
            }
            State::Crc { polynomial, .. } => Some(Task::Crc32 { polynomial: *polynomial }),
            State::Ctr { keys, counter, position } => Some(Task::Aes256Ctr {
                keys: keys.clone(),
                counter: counter.wrapping_add(u128::from(*position / 16)),
                skip: (*position % 16) as u8,
            }),
        };
        self.out = task.as_ref().map(|_| data.len());
        Ok(task)
    }

    /// Takes the outcome of the task; `None` if the device failed.
    pub fn take_in(&mut self, answer: Option<Answer>) -> Result<(), OperatorError> {
        let length = self.out.take();
        match (&mut self.state, answer, length) {
            (State::Md5(hash), Some(Answer::Md5(state)), Some(_)) => hash.state = state,
            (State::Sha256(hash), Some(Answer::Sha256(state)), Some(_)) => hash.state = state,
            (State::Crc { polynomial, register }, Some(Answer::Crc32(remainder)), Some(length)) => {
                *register = shift(*register, length as u64, *polynomial) ^ remainder;
            }
            (State::Ctr { position, .. }, Some(Answer::Changed), Some(length)) => *position += length as u64,
            _ => {
                self.broken = true;
                return Err(OperatorError::InternalError);
            }
        }
        Ok(())
    }

    /// Marks the stream as broken: nothing that it returns can be trusted any more.
    pub fn spoil(&mut self) {
        self.broken = true;
    }

    pub fn value(&self) -> Option<DigestValue> {
        if self.broken || self.out.is_some() {
            return None;
        }
        match &self.state {
            State::Md5(hash) => Some(DigestValue::new(hash.value().as_ref())),
            State::Sha256(hash) => Some(DigestValue::new(hash.value().as_ref())),
            State::Crc { register, .. } => Some(DigestValue::new(&(!register).to_be_bytes())),
            State::Ctr { .. } => None,
        }
    }
}

/// Returns the range of the whole blocks in the data, after the end of a block that began before.
fn blocks(whole: &[[u8; BLOCK]], data: &[u8]) -> Range<usize> {
    if whole.is_empty() {
        return 0..0;
    }
    let start = whole.as_ptr().addr() - data.as_ptr().addr();
    start..start + whole.len() * BLOCK
}

const CRC32: u32 = 0xedb8_8320;
const CRC32C: u32 = 0x82f6_3b78;

/// Multiplies a and b modulo a reflected polynomial: the coefficient of x^0 is the highest bit.
const fn multiply(a: u32, mut b: u32, polynomial: u32) -> u32 {
    let (mut product, mut bit) = (0, 32);
    while bit > 0 {
        bit -= 1;
        if a >> bit & 1 == 1 {
            product ^= b;
        }
        b = b >> 1 ^ if b & 1 == 1 { polynomial } else { 0 };
    }
    product
}

/// Returns x to the power of 8 * 2^k, for each k.
const fn powers(polynomial: u32) -> [u32; 64] {
    let mut power = 1 << (31 - 8);
    let mut all = [0; 64];
    let mut at = 0;
    while at < all.len() {
        all[at] = power;
        power = multiply(power, power, polynomial);
        at += 1;
    }
    all
}

const POWERS: [[u32; 64]; 2] = [powers(CRC32), powers(CRC32C)];

/// Returns a remainder after this many zero bytes.
fn shift(mut register: u32, bytes: u64, polynomial: u32) -> u32 {
    let powers = &POWERS[usize::from(polynomial == CRC32C)];
    for (bit, power) in powers.iter().enumerate() {
        if bytes >> bit & 1 == 1 {
            register = multiply(register, *power, polynomial);
        }
    }
    register
}

/// Computes the key schedule of AES-256 (FIPS 197 section 5.2). It looks bytes up in a table, but once for each key,
/// not for each block.
fn expand(key: &[u8; 32]) -> Box<[u32; 60]> {
    let mut words = Box::new([0; 60]);
    for (word, bytes) in words.iter_mut().zip(key.as_chunks().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    let substitute =
        |word: u32| u32::from_be_bytes(word.to_be_bytes().map(|byte| SUBSTITUTION[usize::from(byte)]));
    for at in 8..60 {
        let before = words[at - 1];
        let change = match at % 8 {
            0 => substitute(before.rotate_left(8)) ^ 1 << (23 + at / 8),
            4 => substitute(before),
            _ => before,
        };
        words[at] = words[at - 8] ^ change;
    }
    words
}

/// S-box (FIPS 197 section 5.1.1): the inverse in the field of 256 elements, then an affine map.
const SUBSTITUTION: [u8; 256] = {
    let mut table = [0; 256];
    // Two elements whose product stays 1: 3 to the power of k, and of -k.
    let (mut p, mut q) = (1u8, 1u8);
    loop {
        p ^= p << 1 ^ if p & 0x80 != 0 { 0x1b } else { 0 };
        q ^= q << 1;
        q ^= q << 2;
        q ^= q << 4;
        q ^= if q & 0x80 != 0 { 0x09 } else { 0 };
        table[p as usize] =
            q ^ q.rotate_left(1) ^ q.rotate_left(2) ^ q.rotate_left(3) ^ q.rotate_left(4) ^ 0x63;
        if p == 1 {
            break;
        }
    }
    table[0] = 0x63;
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;

    /// Does a device's work on the CPU.
    fn device(task: &Task, data: &mut [u8]) -> Answer {
        match task {
            Task::Md5 { state, blocks } => {
                let mut state = *state;
                <Md5 as crate::hash::Function>::compress(&mut state, data[blocks.clone()].as_chunks().0);
                Answer::Md5(state)
            }
            Task::Sha256 { state, blocks } => {
                let mut state = *state;
                <Sha256 as crate::hash::Function>::compress(&mut state, data[blocks.clone()].as_chunks().0);
                Answer::Sha256(state)
            }
            Task::Crc32 { polynomial } => {
                let step = |register: u32| register >> 1 ^ if register & 1 == 1 { *polynomial } else { 0 };
                let byte =
                    |register: u32, byte: &u8| (0..8).fold(register ^ u32::from(*byte), |r, _| step(r));
                Answer::Crc32(data.iter().fold(0, byte))
            }
            Task::Aes256Ctr { keys, counter, skip } => {
                // The schedule begins with the key.
                let mut block = [0; 48];
                for (bytes, word) in block.as_chunks_mut().0.iter_mut().zip(&keys[..8]) {
                    *bytes = word.to_be_bytes();
                }
                block[32..].copy_from_slice(&counter.to_be_bytes());
                let mut cipher = Context::new(Operator::Aes256Ctr, &block).unwrap();
                cipher.in_place(&mut vec![0; usize::from(*skip)], false).unwrap();
                cipher.in_place(data, true).unwrap();
                Answer::Changed
            }
        }
    }

    #[test]
    fn pieces_of_any_length_come_to_the_same_as_here() {
        let data: Vec<u8> = (0..40_000u32).map(|at| ((at * at) >> 7) as u8).collect();
        let lengths = [0, 1, 63, 64, 65, 127, 3, 1000, 5, 16, 4096, 15, 17, 64, 8192];
        let mut block = [7; 48];
        block[32..].fill(0xff);
        for operator in OFFLOADED {
            let parameter: &[u8] = if operator == Operator::Aes256Ctr { &block } else { &[] };
            let (mut here, mut there) = (
                Context::new(operator, parameter).unwrap(),
                Context::offloaded(operator, parameter).unwrap(),
            );
            let (mut expected, mut got) = (data.clone(), data.clone());
            let mut from = 0;
            for round in 0.. {
                let length = lengths[round % lengths.len()].min(data.len() - from);
                let piece = from..from + length;
                if operator.digest_size() > 0 {
                    here.absorb(&expected[piece.clone()]);
                } else {
                    here.in_place(&mut expected[piece.clone()], false).unwrap();
                }
                if let Some(task) = there.hand_out(&got[piece.clone()]).unwrap() {
                    assert!(there.value().is_none(), "a device has a piece");
                    let answer = device(&task, &mut got[piece]);
                    there.take_in(Some(answer)).unwrap();
                }
                assert_eq!(here.value(), there.value(), "{} after {from}", operator.name());
                from += length;
                if from == data.len() {
                    break;
                }
            }
            assert!(expected == got, "{}", operator.name());
        }
    }

    #[test]
    fn the_key_schedule_is_the_standards() {
        // FIPS 197 appendix A.3.
        let key = hex_literal::hex!("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4");
        let words = expand(&key);
        assert_eq!(words[8..12], [0x9ba3_5411, 0x8e69_25af, 0xa51a_8b5f, 0x2067_fcde]);
        assert_eq!(words[56..], [0xfe48_90d1, 0xe618_8d0b, 0x046d_f344, 0x706c_631e]);
    }

    #[test]
    fn a_device_that_fails_leaves_no_value() {
        for spoil in [
            |context: &mut Context| _ = context.take_in(None).unwrap_err(),
            |context: &mut Context| {
                context.absorb(b"here, not there");
            },
        ] {
            let mut context = Context::offloaded(Operator::Md5, &[]).unwrap();
            let task = context.hand_out(&[1; 64]).unwrap();
            assert!(task.is_some());
            spoil(&mut context);
            assert!(context.value().is_none() && context.hand_out(&[1; 64]).is_err());
        }
        assert!(Context::offloaded(Operator::Gzip, &[]).is_err());
    }
}
