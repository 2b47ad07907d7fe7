//! What the client lets the device reach, by bus address.

use std::collections::BTreeMap;

use super::memory::Memory;
use super::wire::{DmaMap, DmaUnmap};

/// Most pieces a client may have mapped at once.
const MOST: usize = 4096;

/// The pieces of the address space that the client spoke of.
#[derive(Debug, Default)]
pub struct Maps(BTreeMap<u64, Piece>);

#[derive(Debug)]
struct Piece {
    length: u64,
    readable: bool,
    writable: bool,
    memory: Option<Memory>,
}

/// How the bytes from an address on are reached.
#[derive(Debug)]
pub enum Way<'a> {
    /// In mapped memory, at this offset.
    Memory(&'a Memory, u64),
    /// By a message to the client, who decides: another device's BAR, or memory without a file.
    Message,
    /// Not at all: the client maps it for the other direction only.
    Denied,
}

/// The client said something about its memory that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// No length, beyond the address space, or over another piece.
    #[error("a piece of memory that is empty, endless, or overlaps another")]
    Range,
    /// Too many pieces.
    #[error("more than {MOST} pieces of memory")]
    Many,
    /// Not a whole piece.
    #[error("a range that is empty, endless, or cuts a piece of memory")]
    Part,
}

impl Maps {
    /// Adds a piece. Without `memory` it is reached by messages.
    ///
    /// # Errors
    ///
    /// [`MapError::Range`], [`MapError::Many`]; the piece is not added then.
    pub fn add(&mut self, map: &DmaMap, memory: Option<Memory>) -> Result<(), MapError> {
        let last = map.length.checked_sub(1).and_then(|rest| map.address.checked_add(rest));
        let last = last.ok_or(MapError::Range)?;
        if self.before(last).is_some_and(|(start, piece)| start + (piece.length - 1) >= map.address) {
            return Err(MapError::Range);
        }
        if self.0.len() >= MOST {
            return Err(MapError::Many);
        }
        let (readable, writable) = (map.readable, map.writable);
        self.0.insert(map.address, Piece { length: map.length, readable, writable, memory });
        Ok(())
    }

    /// Forgets the pieces in a range, if there are any: QEMU with an IOMMU forgets the whole address space that way.
    ///
    /// # Errors
    ///
    /// [`MapError::Part`] where one lies in it only in part, or the range is none; none is forgotten then.
    pub fn remove(&mut self, unmap: &DmaUnmap) -> Result<(), MapError> {
        if unmap.all {
            self.remove_all();
            return Ok(());
        }
        let last = unmap.length.checked_sub(1).and_then(|rest| unmap.address.checked_add(rest));
        let last = last.ok_or(MapError::Part)?;
        let crosses = |at: u64| {
            self.before(at).is_some_and(|(start, piece)| start < at && start + (piece.length - 1) >= at)
        };
        if crosses(unmap.address) || last.checked_add(1).is_some_and(crosses) {
            return Err(MapError::Part);
        }
        let inside: Vec<u64> = self.0.range(unmap.address..=last).map(|(start, _)| *start).collect();
        inside.iter().for_each(|start| drop(self.0.remove(start)));
        Ok(())
    }

    /// Forgets all.
    pub fn remove_all(&mut self) {
        self.0.clear();
    }

    /// How many of the `length` bytes at `address` are reached in one way, and which that is.
    pub fn way(&self, address: u64, length: u64, write: bool) -> (u64, Way<'_>) {
        if let Some((start, piece)) = self.before(address) {
            let offset = address - start;
            if offset < piece.length {
                let here = length.min(piece.length - offset);
                let allowed = if write { piece.writable } else { piece.readable };
                return (
                    here,
                    match &piece.memory {
                        _ if !allowed => Way::Denied,
                        Some(memory) => Way::Memory(memory, offset),
                        None => Way::Message,
                    },
                );
            }
        }
        let next = self.0.range(address..).next().map(|(start, _)| start - address);
        (next.unwrap_or(length).min(length), Way::Message)
    }

    fn before(&self, address: u64) -> Option<(u64, &Piece)> {
        self.0.range(..=address).next_back().map(|(start, piece)| (*start, piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(address: u64, length: u64) -> DmaMap {
        DmaMap { readable: true, writable: true, offset: 0, address, length }
    }

    fn unmap(address: u64, length: u64) -> DmaUnmap {
        DmaUnmap { all: false, address, length }
    }

    #[test]
    fn pieces_do_not_overlap() {
        let mut maps = Maps::default();
        maps.add(&map(0x1000, 0x1000), None).unwrap();
        for (address, length) in [(0x1000, 1), (0x1fff, 1), (0, 0x1001), (0, u64::MAX), (0x1800, 0x10)] {
            assert_eq!(maps.add(&map(address, length), None), Err(MapError::Range));
        }
        assert_eq!(maps.add(&map(0x5000, 0), None), Err(MapError::Range));
        assert_eq!(maps.add(&map(u64::MAX, 2), None), Err(MapError::Range));
        maps.add(&map(u64::MAX, 1), None).unwrap();
        maps.add(&map(0, 0x1000), None).unwrap();
        maps.add(&map(0x2000, 0x1000), None).unwrap();
    }

    #[test]
    fn pieces_are_forgotten_whole() {
        let mut maps = Maps::default();
        maps.add(&map(0x1000, 0x1000), None).unwrap();
        maps.add(&map(0x2000, 0x1000), None).unwrap();
        for (address, length) in [(0x1000, 0x800), (0x1800, 0x800), (0x1800, 0x1000), (u64::MAX, 2), (0, 0)] {
            assert_eq!(maps.remove(&unmap(address, length)), Err(MapError::Part), "{address:#x}");
        }
        maps.remove(&unmap(0x1000, 0x2000)).unwrap();
        maps.remove(&unmap(0x1000, 0x2000)).unwrap();
        maps.remove(&unmap(0, u64::MAX)).unwrap();
        maps.add(&map(0, u64::MAX), None).unwrap();
        maps.remove(&DmaUnmap { all: true, address: 0, length: 0 }).unwrap();
        maps.add(&map(0, u64::MAX), None).unwrap();
    }

    #[test]
    fn an_access_is_cut_where_the_way_changes() {
        let mut maps = Maps::default();
        let (memory, _file) = Memory::create("test", 0x1000).unwrap();
        maps.add(&map(0x1000, 0x1000), Some(memory)).unwrap();
        maps.add(&DmaMap { writable: false, ..map(0x2000, 0x1000) }, None).unwrap();
        assert!(matches!(maps.way(0xf00, 0x1000, true), (0x100, Way::Message)));
        assert!(matches!(maps.way(0x1010, 0x1000, true), (0xff0, Way::Memory(_, 0x10))));
        assert!(matches!(maps.way(0x2000, 8, true), (8, Way::Denied)));
        assert!(matches!(maps.way(0x2000, 8, false), (8, Way::Message)));
        assert!(matches!(maps.way(0x3000, u64::MAX, false), (u64::MAX, Way::Message)));
    }
}
