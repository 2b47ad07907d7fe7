//! A module's answers in its own memory: the block at the address that `dcs_operator` returns, little-endian.
//!
//! | bytes | contents | written by |
//! |---|---|---|
//! | 0..3 | version, 1 | the module, before `dcs_operator` returns |
//! | 4..7, 8..11 | address and size of the input | the same |
//! | 12..15, 16..19 | address and size of the output | the same |
//! | 20..23, 24..27 | bytes consumed; bytes produced | the module, in `dcs_step` |
//! | 28..31, 32..95 | size of the value; the value | the module, before it is finished |
//!
//! The memory belongs to the module, which may write anything, at any time. So each part is read once, into a copy, and only the
//! checked copy is used.

use std::ops::Range;

use dcs_ndp::DigestValue;

/// Version of the interface.
pub const VERSION: u32 = 1;
/// Bytes of the block.
pub const SIZE: usize = 96;
/// Most bytes of the input and of the output.
pub const BUFFER_MAX: u32 = 1 << 20;

/// Places of the block and the buffers. Memory only grows, so they stay inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Offset of the block.
    pub block: usize,
    /// Range of the input.
    pub input: Range<usize>,
    /// Range of the output, which may be the input's.
    pub output: Range<usize>,
}

/// Errors of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The block is outside of the memory.
    #[error("dcs_operator returned {0:#x}, where the memory has no {SIZE} bytes")]
    Outside(u32),
    /// The block has another version.
    #[error("it has version {0} of the interface; expected version {VERSION}")]
    Version(u32),
    /// A buffer is too large, or empty.
    #[error("its {0} has {1} bytes; expected 1 to {BUFFER_MAX}")]
    Size(&'static str, u32),
    /// A buffer is not in the memory.
    #[error("its {0} is outside of its memory")]
    Buffer(&'static str),
}

impl Layout {
    /// Reads the places of all buffers.
    pub fn read(memory: &[u8], address: u32) -> Result<Layout, BlockError> {
        let block = address as usize;
        let header = copy::<20>(memory, block).filter(|_| block + SIZE <= memory.len());
        let header = header.ok_or(BlockError::Outside(address))?;
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if word(0) != VERSION {
            return Err(BlockError::Version(word(0)));
        }
        let buffer = |name, at| {
            let (first, size) = (word(at) as usize, word(at + 4));
            if size == 0 || size > BUFFER_MAX {
                return Err(BlockError::Size(name, size));
            }
            let range = first..first + size as usize;
            if range.end <= memory.len() { Ok(range) } else { Err(BlockError::Buffer(name)) }
        };
        Ok(Layout { block, input: buffer("input", 4)?, output: buffer("output", 12)? })
    }

    /// Returns the bytes consumed and produced by the last step, according to the module; `None` if they are out of range.
    pub fn progress(&self, memory: &[u8]) -> Option<(usize, usize)> {
        let words = copy::<8>(memory, self.block + 20)?;
        let [a, b, c, d, e, f, g, h] = words;
        let (consumed, produced) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        Some((consumed as usize, produced as usize))
    }

    /// Returns the value: `Some(None)` if there is none, `None` if it is too long.
    pub fn value(&self, memory: &[u8]) -> Option<Option<DigestValue>> {
        let tail = copy::<68>(memory, self.block + 28)?;
        let (size, value) = tail.split_first_chunk::<4>()?;
        match u32::from_le_bytes(*size) as usize {
            0 => Some(None),
            size => value.get(..size).and_then(DigestValue::from_bytes).map(Some),
        }
    }
}

fn copy<const N: usize>(memory: &[u8], at: usize) -> Option<[u8; N]> {
    memory.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(words: [u32; 5]) -> Vec<u8> {
        let mut memory = vec![0; 1000];
        memory[100..120].copy_from_slice(words.map(u32::to_le_bytes).as_flattened());
        memory
    }

    #[test]
    fn a_block_is_checked_before_it_is_used() {
        let good = [1, 200, 300, 500, 500];
        let layout = Layout::read(&memory(good), 100).unwrap();
        assert_eq!(layout, Layout { block: 100, input: 200..500, output: 500..1000 });
        let read = |words| Layout::read(&memory(words), 100).unwrap_err();
        assert_eq!(read([2, 200, 300, 500, 500]), BlockError::Version(2));
        assert_eq!(read([1, 200, 0, 500, 500]), BlockError::Size("input", 0));
        assert_eq!(read([1, 200, 300, 500, u32::MAX]), BlockError::Size("output", u32::MAX));
        assert_eq!(read([1, 200, 300, 501, 500]), BlockError::Buffer("output"));
        assert_eq!(read([1, u32::MAX, 300, 500, 500]), BlockError::Buffer("input"));
        for outside in [905, 1000, u32::MAX] {
            assert_eq!(Layout::read(&memory(good), outside), Err(BlockError::Outside(outside)));
        }
    }

    #[test]
    fn a_value_has_up_to_64_bytes() {
        let layout = Layout { block: 0, input: 0..1, output: 0..1 };
        let mut memory = vec![7; SIZE];
        let mut value = |size: u32| {
            memory[28..32].copy_from_slice(&size.to_le_bytes());
            layout.value(&memory).map(|value| value.map(|value| value.as_bytes().to_vec()))
        };
        assert_eq!(value(0), Some(None));
        assert_eq!(value(3), Some(Some(vec![7; 3])));
        assert_eq!(value(64), Some(Some(vec![7; 64])));
        assert_eq!(value(65), None);
        assert_eq!(value(u32::MAX), None);
    }
}
