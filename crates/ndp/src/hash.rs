//! Hash functions that chain blocks of 64 bytes (Merkle and Damgård's construction): the state of a stream,
//! and the padding at its end. The compression functions stand elsewhere; a stream goes through one of them
//! alone ([`Hash::absorb`]) or beside other streams ([`crate::lanes`]).

/// Bytes that a compression function takes at once.
pub(crate) const BLOCK: usize = 64;

/// A hash function.
pub(crate) trait Function {
    /// Words that are chained from block to block.
    type State: Copy + AsRef<[u32]>;
    /// The state before the first block.
    const START: Self::State;
    /// The byte order of words and of the length at the end.
    const BIG_ENDIAN: bool;
    /// The compression function, block by block.
    fn compress(state: &mut Self::State, blocks: &[[u8; BLOCK]]);
}

/// One stream in a pass: its state, and the blocks that it still has.
pub(crate) struct Job<'a, S> {
    pub state: &'a mut S,
    pub blocks: &'a [[u8; BLOCK]],
}

/// The state of one stream.
pub(crate) struct Hash<F: Function> {
    pub(crate) state: F::State,
    /// Bytes that do not yet fill a block, and room for the padding behind them;
    tail: [[u8; BLOCK]; 2],
    /// this many of them.
    filled: usize,
    /// Bytes in all.
    length: u64,
    /// The state after the padding, where that went through already.
    padded: Option<F::State>,
}

impl<F: Function> Hash<F> {
    pub fn new() -> Hash<F> {
        Hash { state: F::START, tail: [[0; BLOCK]; 2], filled: 0, length: 0, padded: None }
    }

    /// Takes bytes in, alone.
    pub fn absorb(&mut self, data: &[u8]) {
        let blocks = self.take_ends(data);
        F::compress(&mut self.state, blocks);
    }

    /// Some bytes wait for the rest of their block.
    pub fn has_begun_block(&self) -> bool {
        self.filled > 0
    }

    /// Takes in what is before and behind the whole blocks of `data`; returns these blocks, which the caller
    /// is to compress before anything else is taken in.
    pub fn take_ends<'a>(&mut self, data: &'a [u8]) -> &'a [[u8; BLOCK]] {
        self.padded = None;
        self.length = self.length.wrapping_add(data.len() as u64);
        let mut data = data;
        if self.filled > 0 {
            let (head, rest) = data.split_at(data.len().min(BLOCK - self.filled));
            self.tail[0][self.filled..self.filled + head.len()].copy_from_slice(head);
            self.filled += head.len();
            data = rest;
            if self.filled < BLOCK {
                return &[];
            }
            F::compress(&mut self.state, &self.tail[..1]);
        }
        let (blocks, tail) = data.as_chunks();
        self.tail[0][..tail.len()].copy_from_slice(tail);
        self.filled = tail.len();
        blocks
    }

    /// The last blocks of the stream with its padding, and the state that the caller is to compress them
    /// into. The stream may go on all the same.
    pub fn pad(&mut self) -> (&mut F::State, &[[u8; BLOCK]]) {
        let blocks = padding::<F>(&mut self.tail, self.filled, self.length);
        (self.padded.insert(self.state), blocks)
    }

    /// The value over all that was taken in; the state goes on.
    pub fn value(&self) -> Value {
        let state = self.padded.unwrap_or_else(|| {
            let (mut state, mut tail) = (self.state, self.tail);
            F::compress(&mut state, padding::<F>(&mut tail, self.filled, self.length));
            state
        });
        let mut value = Value { bytes: [0; 32], size: 4 * state.as_ref().len() };
        for (bytes, word) in value.bytes.as_chunks_mut().0.iter_mut().zip(state.as_ref()) {
            *bytes = if F::BIG_ENDIAN { word.to_be_bytes() } else { word.to_le_bytes() };
        }
        value
    }
}

/// A hash's value: as many bytes as its state has.
pub(crate) struct Value {
    bytes: [u8; 32],
    size: usize,
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.size]
    }
}

/// Puts a 1 bit, zeros and the length in bits (modulo 2^64) behind the bytes that do not fill a block, up to
/// the end of a block: RFC 1321 sections 3.1 and 3.2, FIPS 180-4 section 5.1.1.
fn padding<F: Function>(tail: &mut [[u8; BLOCK]; 2], filled: usize, length: u64) -> &[[u8; BLOCK]] {
    let size = if filled < BLOCK - 8 { BLOCK } else { 2 * BLOCK };
    let bytes = tail.as_flattened_mut();
    bytes[filled] = 0x80;
    bytes[filled + 1..size - 8].fill(0);
    let bits = length.wrapping_mul(8);
    let bits = if F::BIG_ENDIAN { bits.to_be_bytes() } else { bits.to_le_bytes() };
    bytes[size - 8..size].copy_from_slice(&bits);
    &tail[..size / BLOCK]
}
