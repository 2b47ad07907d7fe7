//! The client's memory that the device may reach, by bus address.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::link::Hold;
use crate::memory::Memory;
use crate::wire::{DmaMap, DmaUnmap};

/// Most pieces that a client may have mapped at once: behind an IOMMU, each page of a guest's memory is one.
const PIECES_MAX: usize = 1 << 18;
/// Most files for them.
const FILES_MAX: usize = 256;

/// The pieces of the address space that the client has mapped.
#[derive(Debug, Default)]
pub struct Maps {
    pieces: BTreeMap<u64, Piece>,
    /// Mapped files, each once, however many pieces are in it; by device, inode number, and whether it is writable.
    files: HashMap<(u64, u64, bool), Memory>,
    /// Shared by all who use the memory since the last unmapping or reset.
    pub hold: Arc<Hold>,
}

#[derive(Debug)]
struct Piece {
    length: u64,
    readable: bool,
    writable: bool,
    memory: Option<(Memory, u64)>,
}

/// The path to the bytes from an address on.
#[derive(Debug)]
pub enum Path<'a> {
    /// Mapped memory, at this offset.
    Memory(&'a Memory, u64),
    /// Message to the client, which decides: another device's BAR, or memory without a file.
    Message,
    /// No path: the client maps the memory for the other direction only.
    Denied,
}

/// An invalid request of the client about its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// The piece has no length, exceeds the address space, or overlaps another.
    #[error("a piece of memory that is empty, endless, or overlaps another")]
    Range,
    /// The piece exceeds the end of its file.
    #[error("a piece of memory beyond the end of its file")]
    File,
    /// There are too many pieces.
    #[error("more than {PIECES_MAX} pieces of memory")]
    Many,
    /// The range cuts a piece.
    #[error("a range that is empty, endless, or cuts a piece of memory")]
    Part,
}

impl Maps {
    /// Returns the memory of a file, `None` if it cannot be mapped safely: then it is reached by messages.
    pub fn file(&mut self, file: BorrowedFd<'_>, writable: bool) -> io::Result<Option<Memory>> {
        let known = rustix::fs::fstat(file)?;
        let id = (known.st_dev, known.st_ino, writable);
        if let Some(memory) = self.files.get(&id) {
            return Ok(Some(memory.clone()));
        }
        let Ok(memory) = Memory::of(file, writable) else { return Ok(None) };
        self.files.retain(|_, memory| Arc::strong_count(memory.mapping()) > 1);
        if self.files.len() >= FILES_MAX {
            return Ok(None);
        }
        self.files.insert(id, memory.clone());
        Ok(Some(memory))
    }

    /// Adds a piece. Without `memory`, it is reached by messages.
    ///
    /// # Errors
    ///
    /// [`MapError::Range`], [`MapError::File`], [`MapError::Many`]; the piece is not added then.
    pub fn add(&mut self, map: &DmaMap, memory: Option<Memory>) -> Result<(), MapError> {
        let last = map.length.checked_sub(1).and_then(|rest| map.address.checked_add(rest));
        let last = last.ok_or(MapError::Range)?;
        if self.before(last).is_some_and(|(start, piece)| start + (piece.length - 1) >= map.address) {
            return Err(MapError::Range);
        }
        if self.pieces.len() >= PIECES_MAX {
            return Err(MapError::Many);
        }
        let memory = memory.map(|memory| (memory, map.offset));
        if memory.as_ref().is_some_and(|(memory, offset)| !memory.contains(*offset, map.length)) {
            return Err(MapError::File);
        }
        let (readable, writable) = (map.readable, map.writable);
        self.pieces.insert(map.address, Piece { length: map.length, readable, writable, memory });
        Ok(())
    }

    /// Removes the pieces in a range, if there are any: QEMU with an IOMMU removes the whole address space that way.
    ///
    /// # Errors
    ///
    /// [`MapError::Part`] if a piece is only partly in the range, or the range is invalid; nothing is removed then.
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
        let inside: Vec<u64> = self.pieces.range(unmap.address..=last).map(|(start, _)| *start).collect();
        inside.iter().for_each(|start| drop(self.pieces.remove(start)));
        // A file of which no piece is left gives its memory back to the host, as of a DIMM that was unplugged.
        self.files.retain(|_, memory| Arc::strong_count(memory.mapping()) > 1);
        Ok(())
    }

    /// Removes all pieces.
    pub fn remove_all(&mut self) {
        self.pieces.clear();
        self.files.clear();
    }

    /// Returns how many of the `length` bytes at `address` are reached by the same path, and that path.
    pub fn path(&self, address: u64, length: u64, write: bool) -> (u64, Path<'_>) {
        if let Some((start, piece)) = self.before(address) {
            let offset = address - start;
            if offset < piece.length {
                let here = length.min(piece.length - offset);
                let allowed = if write { piece.writable } else { piece.readable };
                return (
                    here,
                    match &piece.memory {
                        _ if !allowed => Path::Denied,
                        Some((memory, start)) => Path::Memory(memory, start + offset),
                        None => Path::Message,
                    },
                );
            }
        }
        let next = self.pieces.range(address..).next().map(|(start, _)| start - address);
        (next.unwrap_or(length).min(length), Path::Message)
    }

    /// Returns true if all of the `length` bytes at `address` are in mapped memory, with this access allowed.
    pub fn reaches(&self, address: u64, length: u64, write: bool) -> bool {
        let mut done = 0;
        address.checked_add(length).is_some()
            && loop {
                match self.path(address + done, length - done, write) {
                    _ if done == length => break true,
                    (count, Path::Memory(..)) => done += count,
                    _ => break false,
                }
            }
    }

    fn before(&self, address: u64) -> Option<(u64, &Piece)> {
        self.pieces.range(..=address).next_back().map(|(start, piece)| (*start, piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

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
    fn a_file_is_mapped_once() {
        let (_memory, file) = Memory::create("test", 0x2000).unwrap();
        let mut maps = Maps::default();
        let mapped = |maps: &mut Maps| maps.file(file.as_fd(), true).unwrap().unwrap();
        let (first, second) = (mapped(&mut maps), mapped(&mut maps));
        assert!(Arc::ptr_eq(first.mapping(), second.mapping()));
        drop((first, second));
        maps.remove_all();
        assert!(maps.file(file.as_fd(), false).unwrap().is_some());
        let exe = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(maps.file(exe.as_fd(), false).unwrap().is_none());
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
        let beyond = DmaMap { offset: 0x800, ..map(0x8000, 0x1000) };
        assert_eq!(maps.add(&beyond, Some(memory.clone())), Err(MapError::File));
        maps.add(&DmaMap { offset: 0x800, ..map(0x8000, 0x800) }, Some(memory.clone())).unwrap();
        assert!(matches!(maps.path(0x8010, 8, false), (8, Path::Memory(_, 0x810))));
        maps.add(&map(0x1000, 0x1000), Some(memory)).unwrap();
        maps.add(&DmaMap { writable: false, ..map(0x2000, 0x1000) }, None).unwrap();
        assert!(matches!(maps.path(0xf00, 0x1000, true), (0x100, Path::Message)));
        assert!(matches!(maps.path(0x1010, 0x1000, true), (0xff0, Path::Memory(_, 0x10))));
        assert!(matches!(maps.path(0x2000, 8, true), (8, Path::Denied)));
        assert!(
            maps.reaches(0x1000, 0x1000, true)
                && maps.reaches(0x1fff, 1, false)
                && maps.reaches(0x1800, 0, true)
        );
        assert!(
            !maps.reaches(0x1fff, 2, false)
                && !maps.reaches(u64::MAX, 2, false)
                && !maps.reaches(0, 1, false)
        );
        assert!(matches!(maps.path(0x2000, 8, false), (8, Path::Message)));
        assert!(matches!(maps.path(0x3000, u64::MAX, false), (0x5000, Path::Message)));
        assert!(matches!(maps.path(0x8800, u64::MAX, false), (u64::MAX, Path::Message)));
    }
}
