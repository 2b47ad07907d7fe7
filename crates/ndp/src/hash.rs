//! Hash functions that chain blocks of 64 bytes (Merkle-Damgard construction): the state of a stream, and the padding
//! at its end. The compression functions are elsewhere. A stream goes through one of them alone ([`Hash::absorb`]) or
//! together with other streams ([`crate::lanes`]).

/// Bytes that a compression function takes at a time.
pub(crate) const BLOCK: usize = 64;

/// A hash function.
pub(crate) trait Function {
    /// Words that are chained from block to block.
    type State: Copy + AsRef<[u32]>;
    /// State before the first block.
    const START: Self::State;
    /// Byte order of words, and of the length at the end.
    const BIG_ENDIAN: bool;
    /// Applies the compression function, block by block.
    fn compress(state: &mut Self::State, blocks: &[[u8; BLOCK]]);
}

/// A stream in a pass: its state, and the blocks that it still has.
pub(crate) struct Job<'a, S> {
    pub state: &'a mut S,
    pub blocks: &'a [[u8; BLOCK]],
}

/// State of one stream.
pub(crate) struct Hash<F: Function> {
    pub(crate) state: F::State,
    /// Bytes that do not fill a block yet, with room for the padding after them.
    tail: [[u8; BLOCK]; 2],
    /// Number of these bytes.
    filled: usize,
    /// Bytes of the stream so far.
    length: u64,
    /// State after the padding, if that was already processed.
    padded: Option<F::State>,
}

impl<F: Function> Hash<F> {
    pub fn new() -> Hash<F> {
        Hash { state: F::START, tail: [[0; BLOCK]; 2], filled: 0, length: 0, padded: None }
    }

    /// Takes bytes of this stream alone.
    pub fn absorb(&mut self, data: &[u8]) {
        let blocks = self.take_ends(data);
        F::compress(&mut self.state, blocks);
    }

    /// Returns true if some bytes wait for the rest of their block.
    pub fn has_begun_block(&self) -> bool {
        self.filled > 0
    }

    /// Takes the bytes of `data` before and after its whole blocks. Returns these blocks, which the caller must
    /// compress before anything else is taken.
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

    /// Returns the last blocks of the stream with its padding, and the state that the caller must compress them into.
    /// The stream may still go on.
    pub fn pad(&mut self) -> (&mut F::State, &[[u8; BLOCK]]) {
        let blocks = padding::<F>(&mut self.tail, self.filled, self.length);
        (self.padded.insert(self.state), blocks)
    }

    /// Returns the value of everything taken so far; the state goes on.
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

/// Value of a hash, with as many bytes as its state.
pub(crate) struct Value {
    bytes: [u8; 32],
    size: usize,
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.size]
    }
}

/// Appends a 1 bit, zeros and the length in bits (modulo 2^64) to the bytes that do not fill a block, up to the end of
/// a block (RFC 1321 sections 3.1 and 3.2, FIPS 180-4 section 5.1.1).
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
