//! Scatter gather lists: their descriptors. [base 4.1.2]

use crate::bytes::{array_at, put, u32_at, u64_at};

/// Size of a descriptor in bytes.
pub const SIZE: usize = 16;

/// Type: data at `address`. [base figure 96]
pub const DATA_BLOCK: u8 = 0x0;
/// Type: data that are dropped. [base figure 97]
pub const BIT_BUCKET: u8 = 0x1;
/// Type: the next descriptors, at `address`; the last of them names those that follow. [base figure 99]
pub const SEGMENT: u8 = 0x2;
/// Type: the last descriptors, at `address`. [base figure 100]
pub const LAST_SEGMENT: u8 = 0x3;

/// A descriptor of one of the types above; others have other fields. [base figure 93]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Start address of the target.
    pub address: u64,
    /// Length of the target in bytes.
    pub length: u32,
    /// Type of the target, of 4 bits.
    pub kind: u8,
    /// Meaning of `address`, of 4 bits: 0 for a bus address.
    pub subtype: u8,
}

impl Descriptor {
    /// Makes a descriptor of data.
    pub const fn data(address: u64, length: u32) -> Descriptor {
        Descriptor { address, length, kind: DATA_BLOCK, subtype: 0 }
    }

    /// Makes a descriptor of the last (or only) array of further descriptors.
    pub const fn last_segment(address: u64, length: u32) -> Descriptor {
        Descriptor { address, length, kind: LAST_SEGMENT, subtype: 0 }
    }

    /// Decodes a descriptor. Bytes past the end of `bytes` count as zero.
    pub fn from_bytes(bytes: &[u8]) -> Descriptor {
        let [identifier] = array_at(bytes, 15);
        Descriptor {
            address: u64_at(bytes, 0),
            length: u32_at(bytes, 8),
            kind: identifier >> 4,
            subtype: identifier & 0xf,
        }
    }

    /// Encodes it as bytes.
    pub fn bytes(self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        put(&mut bytes, 0, &self.address.to_le_bytes());
        put(&mut bytes, 8, &self.length.to_le_bytes());
        bytes[15] = self.kind << 4 | self.subtype & 0xf;
        bytes
    }
}
