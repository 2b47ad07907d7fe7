//! Parts of SSDs that function 0 lends to other functions.

use dcs_drivers::bus::Window;

/// A part of an SSD's namespace that function 0 lends to another function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The SSD, by its place in the card's list.
    pub ssd: usize,
    /// First byte in the namespace, and length in bytes: whole logical blocks.
    pub first: u64,
    pub length: u64,
    /// Bytes of a logical block. With blocks of another size the SSD does not have the part any more.
    pub block_size: u32,
    /// Rights: `GRANT_*`.
    pub grants: u32,
}

impl Part {
    /// Returns the place in the namespace of bytes of the part; `None` if it does not have them.
    pub fn place(&self, offset: u64, length: u64) -> Option<u64> {
        let own = Window { address: 0, length: self.length };
        own.contains(offset, length).then(|| self.first + offset)
    }
}
