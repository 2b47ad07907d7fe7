//! Extents: runs of blocks in a [pack](super::pack), and the ids that stand for them in records.
//!
//! It reads and writes nothing.

use std::ops::Range;

/// Bytes in a block.
pub(super) const BLOCK: u64 = 4096;

/// Blocks in a pack.
pub(super) const PACK_BLOCKS: u64 = 1 << 14;

const FLAG: u64 = 1 << 63;
const BLOCKS_BITS: u32 = 9;
const FIRST_BITS: u32 = 14;

/// Most blocks of an extent.
pub(super) const EXTENT_MAX: u64 = (1 << BLOCKS_BITS) - 1;

/// A run of blocks in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Id of the pack.
    pub(super) pack: u64,
    /// First block.
    pub(super) first: u64,
    /// Number of blocks; 0 stands for the whole pack.
    pub(super) blocks: u64,
}

impl Extent {
    /// Returns the extent of an id; `None` for a file's id.
    pub(super) fn of(id: u64) -> Option<Extent> {
        let field = |shift: u32, bits: u32| id >> shift & ((1 << bits) - 1);
        (id & FLAG != 0).then(|| Extent {
            pack: (id & !FLAG) >> (BLOCKS_BITS + FIRST_BITS),
            first: field(BLOCKS_BITS, FIRST_BITS),
            blocks: field(0, BLOCKS_BITS),
        })
    }

    pub(super) fn id(self) -> u64 {
        FLAG | self.pack << (BLOCKS_BITS + FIRST_BITS) | self.first << BLOCKS_BITS | self.blocks
    }

    /// Returns its range of bytes in the pack.
    pub(super) fn bytes(self) -> Range<u64> {
        self.first * BLOCK..(self.first + self.blocks) * BLOCK
    }
}

/// Returns the id of a whole pack.
pub(super) fn whole(pack: u64) -> u64 {
    Extent { pack, first: 0, blocks: 0 }.id()
}

/// Returns the ids of all extents of a pack.
pub(super) fn extents(pack: u64) -> Range<u64> {
    whole(pack) + 1..whole(pack + 1)
}

/// Returns true for the id of a whole pack.
pub(super) fn is_whole(id: u64) -> bool {
    Extent::of(id).is_some_and(|extent| extent.blocks == 0)
}

/// Returns true if the segment of that id is in a pack.
pub(super) fn is_packed(id: u64) -> bool {
    id & FLAG != 0
}

/// Returns true if the ids are of extents and the second begins where the first ends.
pub(super) fn are_neighbours(id: u64, next: u64) -> bool {
    let (Some(extent), Some(next)) = (Extent::of(id), Extent::of(next)) else { return false };
    let both = extent.blocks > 0 && next.blocks > 0 && extent.pack == next.pack;
    both && extent.first + extent.blocks == next.first
}

/// Describes the place of a segment's data, for people.
pub fn place(id: u64) -> String {
    match Extent::of(id) {
        None => format!("data file {id:016x}"),
        Some(Extent { pack, first, .. }) => format!("data in pack {pack:016x} from byte {}", first * BLOCK),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_where_its_extent_is() {
        let last = Extent { pack: (1 << 40) - 2, first: PACK_BLOCKS - 1, blocks: 511 };
        for extent in
            [Extent { pack: 1, first: 0, blocks: 1 }, Extent { pack: 7, first: 3, blocks: 16 }, last]
        {
            assert_eq!(Extent::of(extent.id()), Some(extent));
            assert!(extents(extent.pack).contains(&extent.id()));
            assert!(!extents(extent.pack - 1).contains(&extent.id()));
        }
        assert_eq!(Extent::of((1 << 40) - 1), None);
        let id = |pack, first, blocks| Extent { pack, first, blocks }.id();
        assert!(are_neighbours(id(1, 0, 3), id(1, 3, 1)));
        for other in [id(2, 3, 1), id(1, 4, 1), id(1, 3, 0), 3] {
            assert!(!are_neighbours(id(1, 0, 3), other), "{other:x}");
        }
        assert!(!are_neighbours(whole(1), id(1, 0, 3)));
    }
}
