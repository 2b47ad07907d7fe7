//! What a module says in its own memory: the block at the address that `dcs_operator` tells, little-endian.
//!
//! | bytes | | who writes it |
//! |---|---|---|
//! | 0..3 | version, 1 | the module, before `dcs_operator` returns |
//! | 4..7, 8..11 | address and size of the input | the same |
//! | 12..15, 16..19 | address and size of the output | the same |
//! | 20..23, 24..27 | bytes consumed; bytes produced | the module, in `dcs_step` |
//! | 28..31, 32..95 | size of the value; the value | the module, before it is finished |
//!
//! The memory is the module's, which may say anything, and at any time something else. So each part is read once,
//! into a copy, and what is used is the copy that was checked.

use std::ops::Range;

use dcs_ndp::DigestValue;

/// The version of the interface.
pub const VERSION: u32 = 1;
/// Bytes of the block.
pub const SIZE: usize = 96;
/// Bytes of the input and of the output at most.
pub const BUFFER_MAX: u32 = 1 << 20;

/// Where the block and the buffers lie. The memory only grows, so they stay inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The block.
    pub block: usize,
    /// The input.
    pub input: Range<usize>,
    /// The output, which may be the input.
    pub output: Range<usize>,
}

/// A rule that a block breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// It is not in the memory.
    #[error("dcs_operator told {0:#x}, and there are no {SIZE} bytes of memory")]
    Outside(u32),
    /// It is of another version.
    #[error("it is of version {0} of the interface; this is version {VERSION}")]
    Version(u32),
    /// A buffer is too large, or has no bytes.
    #[error("its {0} has {1} bytes; 1 to {BUFFER_MAX} are possible")]
    Size(&'static str, u32),
    /// A buffer is not in the memory.
    #[error("its {0} lies outside its memory")]
    Buffer(&'static str),
}

impl Layout {
    /// Reads where everything lies.
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

    /// Bytes consumed and bytes produced by the last step, as far as the module says it.
    pub fn progress(&self, memory: &[u8]) -> Option<(usize, usize)> {
        let words = copy::<8>(memory, self.block + 20)?;
        let [a, b, c, d, e, f, g, h] = words;
        let (consumed, produced) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        Some((consumed as usize, produced as usize))
    }

    /// The value; `Some(None)` where it tells none, `None` where it is longer than any value.
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
