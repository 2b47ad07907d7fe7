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
/// Most bytes of these files, 1 TiB: a file may be much longer than the memory that it takes, and the process
/// has 128 TiB of addresses for all its clients.
const MAPPED_MAX: u64 = 1 << 40;

/// The pieces of the address space that the client has mapped.
#[derive(Debug, Default)]
pub struct Maps {
    pieces: BTreeMap<u64, Piece>,
    /// Mapped files, each once, however many pieces are in it; by device, inode number, and whether it is writable.
    files: HashMap<(u64, u64, bool), Memory>,
    /// Shared by all who use the memory since the last unmapping or reset.
    pub hold: Arc<Hold>,
}

/// The client's memory that was removed. It takes long to give back much of it, or many pieces: drop this
/// when the lock is released.
#[derive(Debug, Default)]
#[must_use]
pub struct Removed {
    _pieces: BTreeMap<u64, Piece>,
    _files: Vec<Memory>,
}

/// Pieces from which on they are removed together.
const MANY: usize = 64;

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
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the files would have more than 1 TiB; those of fstat(2).
    pub fn file(&mut self, file: BorrowedFd<'_>, writable: bool) -> io::Result<Option<Memory>> {
        if !Memory::may_be(file) {
            return Ok(None);
        }
        let known = rustix::fs::fstat(file)?;
        let id = (known.st_dev, known.st_ino, writable);
        if let Some(memory) = self.files.get(&id) {
            return Ok(Some(memory.clone()));
        }
        let left = MAPPED_MAX.saturating_sub(self.files.values().map(|memory| memory.length()).sum());
        let memory = match Memory::of(file, writable, left) {
            Ok(memory) => memory,
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => return Err(error),
            Err(_) => return Ok(None),
        };
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
    pub fn remove(&mut self, unmap: &DmaUnmap) -> Result<Removed, MapError> {
        if unmap.all {
            return Ok(Removed { _pieces: std::mem::take(&mut self.pieces), ..Removed::default() });
        }
        let last = unmap.length.checked_sub(1).and_then(|rest| unmap.address.checked_add(rest));
        let last = last.ok_or(MapError::Part)?;
        let crosses = |at: u64| {
            self.before(at).is_some_and(|(start, piece)| start < at && start + (piece.length - 1) >= at)
        };
        if crosses(unmap.address) || last.checked_add(1).is_some_and(crosses) {
            return Err(MapError::Part);
        }
        Ok(Removed { _pieces: self.take(unmap.address, last), ..Removed::default() })
    }

    /// Takes out the pieces from the first address to the last.
    fn take(&mut self, first: u64, last: u64) -> BTreeMap<u64, Piece> {
        let inside: Vec<u64> = self.pieces.range(first..=last).map(|(start, _)| *start).take(MANY).collect();
        if inside.len() < MANY {
            return inside.into_iter().filter_map(|start| self.pieces.remove_entry(&start)).collect();
        }
        let mut taken = self.pieces.split_off(&first);
        if let Some(next) = last.checked_add(1) {
            let mut behind = taken.split_off(&next);
            self.pieces.append(&mut behind);
        }
        taken
    }

    /// Takes out the files of which no piece is left, and which nobody uses any more, so that their memory
    /// goes back to the host, as of a DIMM that was unplugged.
    pub fn unused(&mut self) -> Removed {
        let unused = self.files.extract_if(|_, memory| Arc::strong_count(memory.mapping()) == 1);
        Removed { _files: unused.map(|(_, memory)| memory).collect(), ..Removed::default() }
    }

    /// Removes all pieces and files.
    pub fn remove_all(&mut self) -> Removed {
        let _files = self.files.drain().map(|(_, memory)| memory).collect();
        Removed { _pieces: std::mem::take(&mut self.pieces), _files }
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
    use std::io::Read;
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
        assert!(maps.unused()._files.is_empty(), "they are used");
        drop((first, second));
        assert_eq!(maps.unused()._files.len(), 1);
        assert!(maps.file(file.as_fd(), false).unwrap().is_some());
        let exe = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(maps.file(exe.as_fd(), false).unwrap().is_none());
    }

    /// Long files take addresses, which other clients need, and no memory.
    #[test]
    fn a_client_s_files_have_a_terabyte() {
        let mut maps = Maps::default();
        let file = |length| {
            let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
            rustix::fs::ftruncate(&file, length).unwrap();
            file
        };
        let kind = |result: io::Result<Option<Memory>>| {
            result.map(|memory| memory.is_some()).map_err(|error| error.kind())
        };
        let too_long = Err(io::ErrorKind::OutOfMemory);
        let (longer, half, rest) = (file(MAPPED_MAX + 1), file(MAPPED_MAX / 2), file(MAPPED_MAX / 2 + 1));
        assert_eq!(kind(maps.file(longer.as_fd(), true)), too_long);
        assert_eq!(kind(maps.file(half.as_fd(), true)), Ok(true));
        assert_eq!(kind(maps.file(half.as_fd(), true)), Ok(true), "it is known");
        assert_eq!(kind(maps.file(rest.as_fd(), true)), too_long);
        assert_eq!(maps.unused()._files.len(), 1);
        assert_eq!(kind(maps.file(rest.as_fd(), true)), Ok(true));
        let executable = std::fs::File::open("/proc/self/exe").unwrap();
        let (pipe, _) = std::io::pipe().unwrap();
        assert!(!Memory::may_be(executable.as_fd()) && !Memory::may_be(pipe.as_fd()));
    }

    /// A file system in user space (FUSE) whose program answers nothing, until this is dropped.
    struct Silent {
        program: std::process::Child,
        folder: tempfile::TempDir,
    }

    impl Silent {
        /// Mounts it; `None` without the right to do so.
        fn mount() -> Option<Silent> {
            const MOUNT: &str = "exec 9<>/dev/fuse && mount -i -t fuse \
                -o fd=9,rootmode=40000,user_id=0,group_id=0 none \"$0\" && echo mounted && exec cat";
            let folder = tempfile::tempdir().unwrap();
            let program = std::process::Command::new("sh")
                .args(["-c", MOUNT])
                .arg(folder.path())
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::null())
                .spawn();
            let mut silent = Silent { program: program.unwrap(), folder };
            let mut said = [0; 7];
            let mounted = silent.program.stdout.as_mut().unwrap().read_exact(&mut said);
            mounted.is_ok_and(|()| &said == b"mounted").then_some(silent)
        }
    }

    impl Drop for Silent {
        fn drop(&mut self) {
            let _ = self.program.kill();
            let _ = self.program.wait();
            // Its folder can be removed then.
            let _ = std::process::Command::new("umount").args(["-l".as_ref(), self.folder.path()]).output();
        }
    }

    /// The lock of a drive's memory is held meanwhile, for which the loop of all drives waits.
    #[test]
    fn a_file_system_that_does_not_answer_is_not_asked() {
        let Some(silent) = Silent::mount() else { return println!("skipped: needs root and FUSE") };
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        let file = rustix::fs::open(silent.folder.path(), flags, rustix::fs::Mode::empty()).unwrap();
        let (sender, answer) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(Maps::default().file(file.as_fd(), true).unwrap().is_none()));
        assert_eq!(answer.recv_timeout(std::time::Duration::from_secs(20)), Ok(true));
    }

    #[test]
    fn pieces_are_forgotten_whole() {
        let mut maps = Maps::default();
        let remove = |maps: &mut Maps, unmap: &DmaUnmap| maps.remove(unmap).map(drop);
        maps.add(&map(0x1000, 0x1000), None).unwrap();
        maps.add(&map(0x2000, 0x1000), None).unwrap();
        for (address, length) in [(0x1000, 0x800), (0x1800, 0x800), (0x1800, 0x1000), (u64::MAX, 2), (0, 0)] {
            assert_eq!(remove(&mut maps, &unmap(address, length)), Err(MapError::Part), "{address:#x}");
        }
        remove(&mut maps, &unmap(0x1000, 0x2000)).unwrap();
        remove(&mut maps, &unmap(0x1000, 0x2000)).unwrap();
        remove(&mut maps, &unmap(0, u64::MAX)).unwrap();
        maps.add(&map(0, u64::MAX), None).unwrap();
        remove(&mut maps, &DmaUnmap { all: true, address: 0, length: 0 }).unwrap();
        maps.add(&map(0, u64::MAX), None).unwrap();
    }

    /// However many pieces there are, exactly those of the range go.
    #[test]
    fn many_pieces_are_removed_as_few_are() {
        for (first, count) in [(0, 10), (0, 300), (7, 10), (100, 150), (100, 200), (299, 1), (0, 63), (1, 64)]
        {
            let mut maps = Maps::default();
            (0..300).for_each(|at| maps.add(&map(at * 0x1000, 0x1000), None).unwrap());
            drop(maps.remove(&unmap(first * 0x1000, count * 0x1000)).unwrap());
            let left: Vec<u64> = maps.pieces.keys().map(|start| start / 0x1000).collect();
            let wanted = (0..300).filter(|at| !(first..first + count).contains(at));
            assert!(left.into_iter().eq(wanted), "{first} {count}");
        }
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
