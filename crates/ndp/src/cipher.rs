//! Ciphers: the data change in place, their length does not.

use aes::Aes256;
use aes::cipher::{Array, Block, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit, KeyIvInit, StreamCipher};

use crate::{OperatorError, parameter};

/// A cipher that works in place, in the middle of its stream.
pub(crate) enum Cipher {
    Ctr(Box<ctr::Ctr128BE<Aes256>>),
    Xts(Box<Xts>),
}

impl Cipher {
    pub(crate) fn ctr(parameter: &[u8]) -> Result<Cipher, OperatorError> {
        let (key, counter) = parameter::parse_ctr(parameter)?;
        Ok(Cipher::Ctr(Box::new(ctr::Ctr128BE::new(key.into(), counter.into()))))
    }

    pub(crate) fn xts(parameter: &[u8], direction: Direction) -> Result<Cipher, OperatorError> {
        Ok(Cipher::Xts(Box::new(Xts::new(parameter::parse_xts(parameter)?, direction))))
    }

    pub(crate) fn apply(&mut self, data: &mut [u8], last: bool) -> Result<(), OperatorError> {
        match self {
            // It refuses only after 2^128 blocks.
            Cipher::Ctr(state) => state.try_apply_keystream(data).map_err(|_| OperatorError::InternalError),
            Cipher::Xts(state) => state.apply(data, last),
        }
    }
}

/// Which of two inverse operators.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Encrypt,
    Decrypt,
}

const BLOCK: usize = 16;

/// Blocks that go through the cipher together: one call has a price, and 4 KiB of tweaks stay in the first cache.
const BATCH: usize = 256;

/// XTS-AES-256 (IEEE 1619 section 5). Ours because the xts-mode crate encrypts block by block, which leaves most
/// of the AES pipeline empty.
pub(crate) struct Xts {
    data_cipher: Aes256,
    tweak_cipher: Aes256,
    direction: Direction,
    unit_size: usize,
    /// Number of the next data unit. It counts on past 2^64 rather than wrap and use a tweak twice.
    next_unit: u128,
}

impl Xts {
    fn new(parameter: parameter::Xts<'_>, direction: Direction) -> Xts {
        Xts {
            data_cipher: Aes256::new(parameter.data_key.into()),
            tweak_cipher: Aes256::new(parameter.tweak_key.into()),
            direction,
            unit_size: parameter.unit_size,
            next_unit: u128::from(parameter.first_unit),
        }
    }

    fn apply(&mut self, data: &mut [u8], last: bool) -> Result<(), OperatorError> {
        let partial = data.len() % self.unit_size;
        if partial != 0 && !last {
            return Err(OperatorError::InternalError);
        }
        if (1..BLOCK).contains(&partial) {
            return Err(OperatorError::TruncatedData);
        }
        // Where bytes are left over, the last whole block goes with them.
        let stolen = data.len() % BLOCK;
        let whole = data.len() - stolen - if stolen == 0 { 0 } else { BLOCK };
        let (whole, end) = data.split_at_mut(whole);
        let tweak = self.blocks(whole);
        if stolen > 0 {
            let tweak = tweak.unwrap_or_else(|| self.unit_tweak());
            self.steal(end, tweak);
        }
        Ok(())
    }

    /// The tweak of the first block of the next data unit.
    fn unit_tweak(&mut self) -> u128 {
        let mut tweak = Block::<Aes256>::from(self.next_unit.to_le_bytes());
        self.tweak_cipher.encrypt_block(&mut tweak);
        self.next_unit += 1;
        u128::from_le_bytes(tweak.into())
    }

    /// Whole blocks, from the beginning of a data unit. Returns the tweak of the block after them, where that is
    /// in the middle of a unit.
    fn blocks(&mut self, data: &mut [u8]) -> Option<u128> {
        let (blocks, _) = Array::slice_as_chunks_mut(data);
        let mut tweaks = [0; BATCH];
        let (mut next, mut left) = (0, 0);
        for batch in blocks.chunks_mut(BATCH) {
            let mut rest = &mut tweaks[..batch.len()];
            while !rest.is_empty() {
                if left == 0 {
                    (next, left) = (self.unit_tweak(), self.unit_size / BLOCK);
                }
                let (run, after) = rest.split_at_mut(left.min(rest.len()));
                next = fill(run, next);
                left -= run.len();
                rest = after;
            }
            self.cipher(batch, &tweaks);
        }
        (left > 0).then_some(next)
    }

    /// Ciphertext stealing (IEEE 1619 section 5.3.2): the last whole block and 1 to 15 bytes after it.
    /// Decryption takes the two tweaks in the other order.
    fn steal(&self, end: &mut [u8], tweak: u128) {
        let (first, second) = match self.direction {
            Direction::Encrypt => (tweak, double(tweak)),
            Direction::Decrypt => (double(tweak), tweak),
        };
        let (whole, rest) = end.split_at_mut(BLOCK);
        self.cipher(Array::slice_as_chunks_mut(whole).0, &[first]);
        rest.swap_with_slice(&mut whole[..rest.len()]);
        self.cipher(Array::slice_as_chunks_mut(whole).0, &[second]);
    }

    /// Blocks with the tweak of each.
    fn cipher(&self, blocks: &mut [Block<Aes256>], tweaks: &[u128]) {
        mask(blocks, tweaks);
        match self.direction {
            Direction::Encrypt => self.data_cipher.encrypt_blocks(blocks),
            Direction::Decrypt => self.data_cipher.decrypt_blocks(blocks),
        }
        mask(blocks, tweaks);
    }
}

fn mask(blocks: &mut [Block<Aes256>], tweaks: &[u128]) {
    for (block, tweak) in blocks.iter_mut().zip(tweaks) {
        *block = (u128::from_le_bytes((*block).into()) ^ tweak).to_le_bytes().into();
    }
}

/// The tweaks of blocks in a row; returns the one after them. Each comes from the one eight before it, so that they
/// need not wait for each other.
fn fill(tweaks: &mut [u128], first: u128) -> u128 {
    let mut tweak = first;
    for slot in tweaks.iter_mut().take(8) {
        *slot = tweak;
        tweak = double(tweak);
    }
    for at in 8..tweaks.len() {
        tweaks[at] = times_256(tweaks[at - 8]);
    }
    tweaks.last().map_or(first, |last| double(*last))
}

/// Multiplication by x in GF(2^128), where x^128 = x^7 + x^2 + x + 1; without a branch on the secret.
fn double(tweak: u128) -> u128 {
    (tweak << 1) ^ ((tweak >> 127) * 0x87)
}

/// Multiplication by x^8.
fn times_256(tweak: u128) -> u128 {
    let over = tweak >> 120;
    (tweak << 8) ^ over ^ (over << 1) ^ (over << 2) ^ (over << 7)
}
