//! The Subsystem Local Memory command set (CSI 3): memory of a controller as a namespace of bytes.
//!
//! The specification (revision 1.0 of December 2023, and later) was not available. Opcodes and fields are those on which two
//! implementations agree, SPDK's of `hsung-yang/spdk` and CEMU's; they differ in the opcode of [`FILL`], which is SPDK's here: 00h is Flush
//! in every command set (base 2.2 figure 556). Statuses are from base 2.2 figure 104.

use crate::bytes::{put, u16_at, u32_at, u64_at};
use crate::command;

/// Memory copy, within local memory or into it from logical blocks: [`Copy`].
pub const COPY: u8 = 0x01;
/// Memory read: [`Range`].
pub const READ: u8 = 0x02;
/// Memory fill, with zeros: [`Range`].
pub const FILL: u8 = 0x04;
/// Memory write: [`Range`].
pub const WRITE: u8 = 0x05;

/// A range of bytes to read, write or fill: double words 10 to 12.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// First byte (SB).
    pub first: u64,
    /// Length in bytes.
    pub length: u32,
}

impl Range {
    /// Decodes a command's double words.
    pub fn from_words(words: &[u32; 6]) -> Range {
        Range { first: u64::from(words[1]) << 32 | u64::from(words[0]), length: words[2] }
    }

    /// Encodes it as a command's double words.
    pub fn words(self) -> [u32; 6] {
        [self.first as u32, (self.first >> 32) as u32, self.length, 0, 0, 0]
    }
}

/// A copy, which concatenates its sources in the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copy {
    /// Total length in bytes: double words 2 and 3 (LEN).
    pub length: u64,
    /// First byte of the destination: double words 10 and 11 (SDADDR).
    pub target: u64,
    /// Number of sources, 1 to 256, whose descriptors are the data. Double word 12 bits 7:0 are one less (NR).
    pub sources: u16,
    /// Form of the descriptors: double word 12 bits 11:8 (CDFT): 2 for [`Blocks`], 4 for [`Bytes`].
    pub form: u8,
}

impl Copy {
    /// Decodes an entry.
    pub fn from_entry(entry: &[u8; command::SIZE]) -> Copy {
        let word = u32_at(entry, 48);
        Copy {
            length: u64_at(entry, 8),
            target: u64_at(entry, 40),
            sources: u16::from(word as u8) + 1,
            form: (word >> 8 & 0xf) as u8,
        }
    }

    /// Writes its fields to an entry.
    pub fn put(self, entry: &mut [u8; command::SIZE]) {
        let word = u32::from(self.form & 0xf) << 8 | u32::from(self.sources.saturating_sub(1) as u8);
        put(entry, 8, &self.length.to_le_bytes());
        put(entry, 40, &self.target.to_le_bytes());
        put(entry, 48, &word.to_le_bytes());
    }
}

/// Size of a source's descriptor in bytes.
pub const SOURCE_SIZE: usize = 32;

/// Form number of [`Blocks`] of the destination's own namespace, which is not named: in the NVM command set's copy alone.
pub const FORM_OWN_BLOCKS: u8 = 0;
/// Form number of [`Blocks`].
pub const FORM_BLOCKS: u8 = 2;
/// Form number of [`Bytes`].
pub const FORM_BYTES: u8 = 4;

/// Bit of a source's options (SOPT): copy it fast, or not at all.
const FAST_ONLY: u16 = 1 << 15;

/// A source of logical blocks: descriptor format 2h of the NVM command set's copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// Namespace of the blocks (SNSID).
    pub namespace: u32,
    /// First logical block (SLBA).
    pub first: u64,
    /// Number of logical blocks, 1 to 65,536. NLB is one less.
    pub count: u32,
    /// Set to copy it fast, or not at all (SOPT bit 15).
    pub fast_only: bool,
}

impl Blocks {
    /// Decodes a descriptor. Bytes past the end of `bytes` count as zero.
    pub fn from_bytes(bytes: &[u8]) -> Blocks {
        Blocks {
            namespace: u32_at(bytes, 0),
            first: u64_at(bytes, 8),
            count: u32::from(u16_at(bytes, 16)) + 1,
            fast_only: u16_at(bytes, 22) & FAST_ONLY != 0,
        }
    }

    /// Encodes it as bytes.
    pub fn bytes(self) -> [u8; SOURCE_SIZE] {
        let mut bytes = [0; SOURCE_SIZE];
        put(&mut bytes, 0, &self.namespace.to_le_bytes());
        put(&mut bytes, 8, &self.first.to_le_bytes());
        put(&mut bytes, 16, &(self.count.saturating_sub(1) as u16).to_le_bytes());
        put(&mut bytes, 22, &(if self.fast_only { FAST_ONLY } else { 0 }).to_le_bytes());
        bytes
    }
}

/// A source of local memory: descriptor format 4h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Namespace of the bytes (SNSID).
    pub namespace: u32,
    /// First byte (SADDR).
    pub first: u64,
    /// Length in bytes (NBYTE).
    pub length: u32,
    /// Set to copy it fast, or not at all (SOPT bit 15).
    pub fast_only: bool,
}

impl Bytes {
    /// Decodes a descriptor. Bytes past the end of `bytes` count as zero.
    pub fn from_bytes(bytes: &[u8]) -> Bytes {
        Bytes {
            namespace: u32_at(bytes, 0),
            first: u64_at(bytes, 8),
            length: u32_at(bytes, 16),
            fast_only: u16_at(bytes, 22) & FAST_ONLY != 0,
        }
    }

    /// Encodes it as bytes.
    pub fn bytes(self) -> [u8; SOURCE_SIZE] {
        let mut bytes = [0; SOURCE_SIZE];
        put(&mut bytes, 0, &self.namespace.to_le_bytes());
        put(&mut bytes, 8, &self.first.to_le_bytes());
        put(&mut bytes, 16, &self.length.to_le_bytes());
        put(&mut bytes, 22, &(if self.fast_only { FAST_ONLY } else { 0 }).to_le_bytes());
        bytes
    }
}
