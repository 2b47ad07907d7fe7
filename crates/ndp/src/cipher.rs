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

/// Blocks that go through the cipher together: enough to fill the widest pipeline of the `aes` crate.
const BATCH: usize = 64;

/// XTS-AES-256 (IEEE 1619 section 5). Ours because the crates that have it encrypt block by block, which leaves
/// most of the AES pipeline empty.
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
        for unit in data.chunks_mut(self.unit_size) {
            self.unit(unit);
            self.next_unit += 1;
        }
        Ok(())
    }

    /// One data unit of at least one block.
    fn unit(&self, unit: &mut [u8]) {
        let mut tweak = Block::<Aes256>::from(self.next_unit.to_le_bytes());
        self.tweak_cipher.encrypt_block(&mut tweak);
        let tweak = u128::from_le_bytes(tweak.into());
        match unit.len() % BLOCK {
            0 => {
                self.blocks(unit, tweak);
            }
            rest => {
                let (whole, end) = unit.split_at_mut(unit.len() - rest - BLOCK);
                let tweak = self.blocks(whole, tweak);
                self.steal(end, tweak);
            }
        }
    }

    /// Whole blocks; returns the tweak of the block after them.
    fn blocks(&self, data: &mut [u8], mut tweak: u128) -> u128 {
        let (blocks, _) = Array::slice_as_chunks_mut(data);
        let mut tweaks = [0; BATCH];
        for batch in blocks.chunks_mut(BATCH) {
            for (block, kept) in batch.iter_mut().zip(&mut tweaks) {
                *kept = tweak;
                mask(block, tweak);
                tweak = double(tweak);
            }
            match self.direction {
                Direction::Encrypt => self.data_cipher.encrypt_blocks(batch),
                Direction::Decrypt => self.data_cipher.decrypt_blocks(batch),
            }
            for (block, kept) in batch.iter_mut().zip(&tweaks) {
                mask(block, *kept);
            }
        }
        tweak
    }

    /// Ciphertext stealing (IEEE 1619 section 5.3.2): the last whole block and 1 to 15 bytes after it.
    /// Decryption takes the two tweaks in the other order.
    fn steal(&self, end: &mut [u8], tweak: u128) {
        let (first, second) = match self.direction {
            Direction::Encrypt => (tweak, double(tweak)),
            Direction::Decrypt => (double(tweak), tweak),
        };
        let (whole, rest) = end.split_at_mut(BLOCK);
        self.blocks(whole, first);
        rest.swap_with_slice(&mut whole[..rest.len()]);
        self.blocks(whole, second);
    }
}

fn mask(block: &mut Block<Aes256>, tweak: u128) {
    *block = (u128::from_le_bytes((*block).into()) ^ tweak).to_le_bytes().into();
}

/// Multiplication by the primitive element of GF(2^128), without a branch on the secret.
fn double(tweak: u128) -> u128 {
    tweak << 1 ^ (tweak >> 127) * 0x87
}
