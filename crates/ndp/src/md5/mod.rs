//! MD5 (RFC 1321): one stream on a scalar unit, many streams side by side on the lanes of a vector unit.
//!
//! MD5 is one serial chain of additions and rotations per stream: a core cannot make one stream faster, but the
//! lanes of its vector registers can hold 16 streams and more. Lanes are physical units: a pass takes whatever
//! streams have data, each with its own state and its own length, and streams join and leave lanes at any block.
//! The scalar compression function is the `md-5` crate's.

mod lanes;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use lanes::Lanes;

/// Bytes that the compression function takes at once.
pub(crate) const BLOCK: usize = 64;

/// The state of one stream.
#[derive(Clone)]
pub(crate) struct Md5 {
    state: [u32; 4],
    /// Bytes that do not yet fill a block,
    partial: [u8; BLOCK],
    /// so many of them.
    filled: usize,
    /// Bytes in all.
    length: u64,
}

impl Md5 {
    pub fn new() -> Md5 {
        let state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
        Md5 { state, partial: [0; BLOCK], filled: 0, length: 0 }
    }

    /// Takes bytes in, alone.
    pub fn absorb(&mut self, data: &[u8]) {
        let blocks = self.take_ends(data);
        ::md5::block_api::compress(&mut self.state, blocks.as_chunks().0);
    }

    /// Takes in what is before and behind the whole blocks of `data`; returns these blocks, which the caller is to
    /// compress before anything else is taken in.
    fn take_ends<'a>(&mut self, data: &'a [u8]) -> &'a [u8] {
        self.length = self.length.wrapping_add(data.len() as u64);
        let mut data = data;
        if self.filled > 0 {
            let (head, rest) = data.split_at(data.len().min(BLOCK - self.filled));
            self.partial[self.filled..self.filled + head.len()].copy_from_slice(head);
            self.filled += head.len();
            data = rest;
            if self.filled < BLOCK {
                return &[];
            }
            ::md5::block_api::compress(&mut self.state, &[self.partial]);
        }
        let (blocks, tail) = data.split_at(data.len() / BLOCK * BLOCK);
        self.partial[..tail.len()].copy_from_slice(tail);
        self.filled = tail.len();
        blocks
    }

    /// The value over all that was taken in; the state goes on.
    pub fn value(&self) -> [u8; 16] {
        let mut last = Md5 { length: 0, ..self.clone() };
        // RFC 1321 sections 3.1 and 3.2: a 1 bit, zeros, the length in bits, up to a whole block.
        let mut padding = [0; 2 * BLOCK];
        padding[0] = 0x80;
        let zeros = if self.filled < BLOCK - 8 { BLOCK - 8 } else { 2 * BLOCK - 8 } - self.filled;
        padding[zeros..zeros + 8].copy_from_slice(&self.length.wrapping_mul(8).to_le_bytes());
        last.absorb(&padding[..zeros + 8]);
        let mut value = [0; 16];
        for (bytes, word) in value.chunks_exact_mut(4).zip(last.state) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        value
    }
}
