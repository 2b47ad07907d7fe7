//! Ciphers: the data change in place, their length does not. Counter mode and XTS are our own, over the block cipher of
//! the `aes` crate: the work of a mode is a closure that `aes` compiles for each of its backends, so that counters,
//! tweaks and masks go through the same vector registers as the rounds. The `ctr` crate leaves them in general
//! registers, and the `xts-mode` crate goes block by block. Blowfish has no such registers: see `blowfish`.

use aes::Aes256;
use aes::cipher::consts::U16;
use aes::cipher::zeroize::Zeroizing;
use aes::cipher::{
    Array, Block, BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherDecrypt, BlockCipherEncBackend,
    BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, KeyInit,
};

use crate::blowfish::Blowfish;
use crate::{OperatorError, parameter};

/// A cipher that works in place, in the middle of its stream.
pub(crate) enum Cipher {
    Ctr(Box<Ctr>),
    Xts(Box<Xts>),
    Blowfish(Box<Blowfish>),
}

impl Cipher {
    pub(crate) fn ctr(parameter: &[u8]) -> Result<Cipher, OperatorError> {
        let (key, counter) = parameter::parse_ctr(parameter)?;
        Ok(Cipher::Ctr(Box::new(Ctr::new(key, counter))))
    }

    pub(crate) fn xts(parameter: &[u8], direction: Direction) -> Result<Cipher, OperatorError> {
        Ok(Cipher::Xts(Box::new(Xts::new(parameter::parse_xts(parameter)?, direction))))
    }

    pub(crate) fn blowfish(parameter: &[u8]) -> Result<Cipher, OperatorError> {
        Ok(Cipher::Blowfish(Box::new(Blowfish::new(parameter)?)))
    }

    pub(crate) fn apply(&mut self, data: &mut [u8], last: bool) -> Result<(), OperatorError> {
        match self {
            Cipher::Ctr(state) => {
                state.apply(data);
                Ok(())
            }
            Cipher::Xts(state) => state.apply(data, last),
            Cipher::Blowfish(state) => state.apply(data),
        }
    }
}

const BLOCK: usize = 16;

/// Blocks that go through the cipher together: 1 KiB, the most that the widest backend of `aes` takes at once.
const BATCH: usize = 64;

/// A block cipher in one direction, with the backend of this machine.
trait Direct {
    fn run(&self, blocks: &mut [Block<Aes256>]);
}

struct Encrypting<'a, B>(&'a B);
struct Decrypting<'a, B>(&'a B);

impl<B: BlockCipherEncBackend<BlockSize = U16>> Direct for Encrypting<'_, B> {
    #[inline(always)]
    fn run(&self, blocks: &mut [Block<Aes256>]) {
        let (together, rest) = Array::slice_as_chunks_mut(blocks);
        together.iter_mut().for_each(|blocks| self.0.encrypt_par_blocks(blocks.into()));
        rest.iter_mut().for_each(|block| self.0.encrypt_block(block.into()));
    }
}

impl<B: BlockCipherDecBackend<BlockSize = U16>> Direct for Decrypting<'_, B> {
    #[inline(always)]
    fn run(&self, blocks: &mut [Block<Aes256>]) {
        let (together, rest) = Array::slice_as_chunks_mut(blocks);
        together.iter_mut().for_each(|blocks| self.0.decrypt_par_blocks(blocks.into()));
        rest.iter_mut().for_each(|block| self.0.decrypt_block(block.into()));
    }
}

/// Counter mode (SP 800-38A section 6.5) with a big-endian counter of 128 bits.
pub(crate) struct Ctr {
    cipher: Aes256,
    /// Counter of the next block of the key stream.
    counter: u128,
    /// Last block of the key stream.
    stream: Zeroizing<[u8; BLOCK]>,
    /// Unused bytes at the end of that block.
    left: usize,
}

impl Ctr {
    fn new(key: &[u8; 32], counter: &[u8; BLOCK]) -> Ctr {
        let stream = Zeroizing::new([0; BLOCK]);
        Ctr { cipher: Aes256::new(key.into()), counter: u128::from_be_bytes(*counter), stream, left: 0 }
    }

    fn apply(&mut self, data: &mut [u8]) {
        let (head, data) = data.split_at_mut(self.left.min(data.len()));
        self.xor_left(head);
        let (blocks, tail) = Array::slice_as_chunks_mut(data);
        if !blocks.is_empty() {
            self.cipher.encrypt_with_backend(KeyStream { counter: &mut self.counter, blocks });
        }
        if !tail.is_empty() {
            let mut block = self.counter.to_be_bytes().into();
            self.cipher.encrypt_block(&mut block);
            *self.stream = block.into();
            self.counter = self.counter.wrapping_add(1);
            self.left = BLOCK;
            self.xor_left(tail);
        }
    }

    /// Uses the rest of the key stream's last block, as far as `data` go.
    fn xor_left(&mut self, data: &mut [u8]) {
        for (byte, key) in data.iter_mut().zip(&self.stream[BLOCK - self.left..]) {
            *byte ^= key;
        }
        self.left -= data.len();
    }
}

/// Whole blocks, and the counter of the first.
struct KeyStream<'a> {
    counter: &'a mut u128,
    blocks: &'a mut [Block<Aes256>],
}

impl BlockSizeUser for KeyStream<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for KeyStream<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let mut stream = [Block::<Aes256>::default(); BATCH];
        for blocks in self.blocks.chunks_mut(BATCH) {
            let stream = &mut stream[..blocks.len()];
            let (high, low) = ((*self.counter >> 64) as u64, *self.counter as u64);
            if low.checked_add(BATCH as u64).is_some() {
                // The usual case, without carries, which vector registers can do.
                for (block, low) in stream.iter_mut().zip(low..) {
                    block[..8].copy_from_slice(&high.to_be_bytes());
                    block[8..].copy_from_slice(&low.to_be_bytes());
                }
            } else {
                for (block, at) in stream.iter_mut().zip(0..) {
                    *block = self.counter.wrapping_add(at).to_be_bytes().into();
                }
            }
            *self.counter = self.counter.wrapping_add(blocks.len() as u128);
            Encrypting(backend).run(stream);
            for (block, key) in blocks.iter_mut().zip(stream) {
                *block = (u128::from_ne_bytes((*block).into()) ^ u128::from_ne_bytes((*key).into()))
                    .to_ne_bytes()
                    .into();
            }
        }
    }
}

/// Direction: one of two inverse operators.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Encrypt,
    Decrypt,
}

/// XTS-AES-256 (IEEE 1619 section 5).
pub(crate) struct Xts {
    cipher: Aes256,
    direction: Direction,
    tweaks: Tweaks,
}

impl Xts {
    fn new(parameter: parameter::Xts<'_>, direction: Direction) -> Xts {
        let tweaks = Tweaks {
            cipher: Aes256::new(parameter.tweak_key.into()),
            unit_size: parameter.unit_size,
            next_unit: u128::from(parameter.first_unit),
            next: Zeroizing::new([[0; 2]; 8]),
            left: 0,
        };
        Xts { cipher: Aes256::new(parameter.data_key.into()), direction, tweaks }
    }

    fn apply(&mut self, data: &mut [u8], last: bool) -> Result<(), OperatorError> {
        let partial = data.len() % self.tweaks.unit_size;
        if partial != 0 && !last {
            return Err(OperatorError::InternalError);
        }
        if (1..BLOCK).contains(&partial) {
            return Err(OperatorError::TruncatedData);
        }
        // If bytes are left over, the last whole block is processed with them.
        let stolen = data.len() % BLOCK;
        let whole = data.len() - stolen - if stolen == 0 { 0 } else { BLOCK };
        let (whole, end) = data.split_at_mut(whole);
        let run = Run { tweaks: &mut self.tweaks, blocks: Array::slice_as_chunks_mut(whole).0 };
        match self.direction {
            _ if run.blocks.is_empty() => {}
            Direction::Encrypt => self.cipher.encrypt_with_backend(run),
            Direction::Decrypt => self.cipher.decrypt_with_backend(run),
        }
        if stolen > 0 {
            self.steal(end);
        }
        Ok(())
    }

    /// Does ciphertext stealing (IEEE 1619 section 5.3.2) on the last whole block and the 1 to 15 bytes after it.
    /// Decryption takes the two tweaks in the other order.
    fn steal(&mut self, end: &mut [u8]) {
        let mut tweaks = [[0; 2]; 2];
        self.tweaks.fill(&mut tweaks[..1]);
        tweaks[1] = double(tweaks[0]);
        let [first, second] = match self.direction {
            Direction::Encrypt => tweaks,
            Direction::Decrypt => [tweaks[1], tweaks[0]],
        };
        let (whole, rest) = end.split_at_mut(BLOCK);
        let whole = &mut Array::slice_as_chunks_mut(whole).0[0];
        self.block(whole, first);
        rest.swap_with_slice(&mut whole[..rest.len()]);
        self.block(whole, second);
    }

    /// Processes one block with its tweak.
    fn block(&self, block: &mut Block<Aes256>, tweak: Tweak) {
        mask(std::slice::from_mut(block), &[tweak]);
        match self.direction {
            Direction::Encrypt => self.cipher.encrypt_block(block),
            Direction::Decrypt => self.cipher.decrypt_block(block),
        }
        mask(std::slice::from_mut(block), &[tweak]);
    }
}

/// An element of GF(2^128), where x^128 = x^7 + x^2 + x + 1, with the lower coefficients first.
type Tweak = [u64; 2];

/// Source of the blocks' tweaks.
struct Tweaks {
    cipher: Aes256,
    unit_size: usize,
    /// Number of the next data unit. It counts on past 2^64 instead of wrapping, which would use a tweak twice.
    next_unit: u128,
    /// Tweaks of the next eight blocks.
    next: Zeroizing<[Tweak; 8]>,
    /// Blocks of the unit that are left.
    left: usize,
}

impl Tweaks {
    /// Fills in the tweaks of the next blocks.
    #[inline(always)]
    fn fill(&mut self, tweaks: &mut [Tweak]) {
        let mut rest = tweaks;
        while !rest.is_empty() {
            if self.left == 0 {
                let mut tweak = Block::<Aes256>::from(self.next_unit.to_le_bytes());
                self.cipher.encrypt_block(&mut tweak);
                self.next_unit += 1;
                self.left = self.unit_size / BLOCK;
                let tweak = u128::from_le_bytes(tweak.into());
                *self.next = eight([tweak as u64, (tweak >> 64) as u64]);
            }
            let (run, after) = rest.split_at_mut(self.left.min(rest.len()));
            self.left -= run.len();
            rest = after;
            let mut next = *self.next;
            let (eights, end) = run.as_chunks_mut();
            for tweaks in eights {
                *tweaks = next;
                next = times_256(&next);
            }
            if !end.is_empty() {
                end.copy_from_slice(&next[..end.len()]);
                next = eight(next[end.len()]);
            }
            *self.next = next;
        }
    }
}

/// Whole blocks, from the beginning of a data unit.
struct Run<'a> {
    tweaks: &'a mut Tweaks,
    blocks: &'a mut [Block<Aes256>],
}

impl Run<'_> {
    #[inline(always)]
    fn with(self, cipher: &impl Direct) {
        let mut tweaks = [[0; 2]; BATCH];
        for blocks in self.blocks.chunks_mut(BATCH) {
            let tweaks = &mut tweaks[..blocks.len()];
            self.tweaks.fill(tweaks);
            mask(blocks, tweaks);
            cipher.run(blocks);
            mask(blocks, tweaks);
        }
    }
}

impl BlockSizeUser for Run<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Run<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        self.with(&Encrypting(backend));
    }
}

impl BlockCipherDecClosure for Run<'_> {
    #[inline(always)]
    fn call<B: BlockCipherDecBackend<BlockSize = U16>>(self, backend: &B) {
        self.with(&Decrypting(backend));
    }
}

#[inline(always)]
fn mask(blocks: &mut [Block<Aes256>], tweaks: &[Tweak]) {
    for (block, tweak) in blocks.iter_mut().zip(tweaks) {
        for (half, tweak) in block.0.as_chunks_mut().0.iter_mut().zip(tweak) {
            *half = (u64::from_le_bytes(*half) ^ tweak).to_le_bytes();
        }
    }
}

/// Multiplies by x, without a branch on the secret.
#[inline(always)]
fn double([low, high]: Tweak) -> Tweak {
    [(low << 1) ^ ((high >> 63) * 0x87), (high << 1) | (low >> 63)]
}

/// Returns a tweak and the seven after it.
#[inline(always)]
fn eight(first: Tweak) -> [Tweak; 8] {
    let mut next = first;
    std::array::from_fn(|_| {
        let tweak = next;
        next = double(next);
        tweak
    })
}

/// Multiplies each by x^8, for the tweaks of the eight blocks after these. They don't wait for each other, so vector
/// registers can do it.
#[inline(always)]
fn times_256(tweaks: &[Tweak; 8]) -> [Tweak; 8] {
    let words: &[u64] = tweaks.as_flattened();
    let mut product = [[0; 2]; 8];
    for (at, word) in product.as_flattened_mut().iter_mut().enumerate() {
        // The bits shifted out of the other half come into this one; in the lower half they are reduced.
        let over = words[at ^ 1] >> 56;
        let reduced = if at % 2 == 0 { over } else { 0 };
        *word = (words[at] << 8) ^ over ^ (reduced << 1) ^ (reduced << 2) ^ (reduced << 7);
    }
    product
}
