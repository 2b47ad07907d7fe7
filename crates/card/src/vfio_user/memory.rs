//! Memory that others write while we read it: the card's own, which is a BAR to the other devices, and that of the
//! guest. All of this crate's unsafe code is here.
//!
//! Bytes are only ever copied in and out, through atomics: there is no reference to memory that changes behind it. A
//! copy in goes upwards, a copy out **downwards**, in aligned words of 8 bytes where they fit. So who writes an entry
//! whose last word says that it is new, and who reads one, each in one call, agree: the word is written last and read first.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use rustix::fs::{self, MemfdFlags, SealFlags};
use rustix::mm::{self, MapFlags, ProtFlags};

/// `f_type` of the file system that memfd files lie on. [statfs(2)]
const TMPFS: u64 = 0x0102_1994;

/// A mapping of a file that cannot become shorter.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    length: usize,
    writable: bool,
}

// SAFETY: the mapping belongs to this value until it is dropped, and is only accessed through atomics.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// New memory of zeros, and the file that it is, for others to map. Neither grows nor shrinks.
    ///
    /// # Errors
    ///
    /// Those of memfd_create(2), ftruncate(2) and mmap(2).
    pub fn create(name: &str, length: u64) -> io::Result<(Memory, OwnedFd)> {
        let file = fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        fs::ftruncate(&file, length)?;
        fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let memory = Memory::map(file.as_fd(), 0, length, true)?;
        Ok((memory, file))
    }

    /// Maps a piece of a file that someone else made.
    ///
    /// Access to a page that the file has no more, or that its file system has no memory for, would end this process (SIGBUS). So
    /// only files are mapped that are sealed against shrinking, and that lie on tmpfs with ordinary pages (not huge ones, of
    /// which there may be none left): memfd files.
    ///
    /// # Errors
    ///
    /// `Unsupported` for any other file; `InvalidInput` where the piece is not in the file; those of mmap(2).
    pub fn map(file: BorrowedFd<'_>, offset: u64, length: u64, writable: bool) -> io::Result<Memory> {
        let refused = |kind, why: &str| Err(io::Error::new(kind, why));
        let page = rustix::param::page_size() as u64;
        let length_here = usize::try_from(length).unwrap_or(0);
        if length_here == 0 || !offset.is_multiple_of(page) {
            return refused(io::ErrorKind::InvalidInput, "no length, or an offset within a page");
        }
        if fs::fstatfs(file)?.f_type as u64 != TMPFS || !sealed(file) {
            return refused(io::ErrorKind::Unsupported, "not a memfd file, or one that may shrink");
        }
        // After the seal: before it the size may still change.
        let size = u64::try_from(fs::fstat(file)?.st_size).unwrap_or(0);
        if offset.checked_add(length).is_none_or(|end| end > size.next_multiple_of(page)) {
            return refused(io::ErrorKind::InvalidInput, "the file ends before");
        }
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let base = unsafe {
            mm::mmap(std::ptr::null_mut(), length_here, protection, MapFlags::SHARED, file, offset)
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Memory { base, length: length_here, writable })
    }

    /// Bytes.
    pub fn length(&self) -> u64 {
        self.length as u64
    }

    /// Copies out, last word first.
    ///
    /// # Panics
    ///
    /// Beyond the end.
    pub fn load(&self, offset: u64, bytes: &mut [u8]) {
        let start = self.check(offset, bytes.len());
        let mut end = bytes.len();
        while end > 0 {
            let width = width(start + end, end, true);
            let at = self.at(start + end - width);
            let to = &mut bytes[end - width..end];
            // SAFETY: `check` says that the word is in the mapping, `width` that it is aligned (a mapping starts at a page), and
            // all accesses of this process are atomic. The memory may be read-only: loads are relaxed, for which that is allowed.
            unsafe {
                match width {
                    8 => to.copy_from_slice(
                        &AtomicU64::from_ptr(at.cast()).load(Ordering::Relaxed).to_ne_bytes(),
                    ),
                    4 => to.copy_from_slice(
                        &AtomicU32::from_ptr(at.cast()).load(Ordering::Relaxed).to_ne_bytes(),
                    ),
                    2 => to.copy_from_slice(
                        &AtomicU16::from_ptr(at.cast()).load(Ordering::Relaxed).to_ne_bytes(),
                    ),
                    _ => to[0] = AtomicU8::from_ptr(at).load(Ordering::Relaxed),
                }
            }
            fence(Ordering::Acquire);
            end -= width;
        }
    }

    /// Copies in, first word first.
    ///
    /// # Panics
    ///
    /// Beyond the end, and where the memory is read-only.
    pub fn store(&self, offset: u64, bytes: &[u8]) {
        assert!(self.writable, "a store to read-only memory");
        let start = self.check(offset, bytes.len());
        let mut done = 0;
        while done < bytes.len() {
            let width = width(start + done, bytes.len() - done, false);
            let (at, from) = (self.at(start + done), &bytes[done..done + width]);
            // SAFETY: as in `load`, and the mapping is writable.
            unsafe {
                match width {
                    8 => AtomicU64::from_ptr(at.cast())
                        .store(u64::from_ne_bytes(array(from)), Ordering::Release),
                    4 => AtomicU32::from_ptr(at.cast())
                        .store(u32::from_ne_bytes(array(from)), Ordering::Release),
                    2 => AtomicU16::from_ptr(at.cast())
                        .store(u16::from_ne_bytes(array(from)), Ordering::Release),
                    _ => AtomicU8::from_ptr(at).store(from[0], Ordering::Release),
                }
            }
            done += width;
        }
    }

    fn check(&self, offset: u64, length: usize) -> usize {
        let end = offset.checked_add(length as u64);
        assert!(
            end.is_some_and(|end| end <= self.length as u64),
            "{length} bytes at {offset:#x} of {}",
            self.length
        );
        offset as usize
    }

    fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: `check` was asked: the offset lies in the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing borrows from it.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// The widest word that starts (`down`: ends) at this offset, is aligned, and is not longer than `left`.
fn width(offset: usize, left: usize, down: bool) -> usize {
    debug_assert!(left > 0 && (!down || left <= offset));
    [8, 4, 2].into_iter().find(|width| offset.is_multiple_of(*width) && left >= *width).unwrap_or(1)
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

/// Whether the file can no more shrink: seals it where nobody did, and may.
fn sealed(file: BorrowedFd<'_>) -> bool {
    let shrinks = || !fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    !shrinks() || (fs::fcntl_add_seals(file, SealFlags::SHRINK).is_ok() && !shrinks())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_right_wherever_they_start_and_end() {
        let (memory, _file) = Memory::create("test", 4096).unwrap();
        for offset in 0..24u64 {
            for length in 0..40usize {
                let bytes: Vec<u8> = (0..length).map(|n| (n as u8) ^ (offset as u8) | 0x80).collect();
                memory.store(0, &[0; 80]);
                memory.store(offset, &bytes);
                let (mut same, mut all) = (vec![0; length], vec![0; 80]);
                memory.load(offset, &mut same);
                memory.load(0, &mut all);
                assert_eq!(same, bytes);
                assert_eq!(all.iter().filter(|byte| **byte != 0).count(), length, "nothing beside them");
            }
        }
    }

    #[test]
    fn a_word_is_not_torn() {
        assert_eq!((width(4, 4, false), width(8, 4, true), width(12, 12, true)), (4, 4, 4));
        assert_eq!(
            (width(8, 8, false), width(16, 16, true), width(6, 8, false), width(7, 7, true)),
            (8, 8, 2, 1)
        );
    }

    #[test]
    #[should_panic(expected = "bytes at")]
    fn nothing_lies_behind_the_end() {
        let (memory, _file) = Memory::create("test", 4096).unwrap();
        memory.load(4090, &mut [0; 8]);
    }

    #[test]
    fn a_mapping_shows_the_file() {
        let (memory, file) = Memory::create("test", 8192).unwrap();
        let second = Memory::map(file.as_fd(), 4096, 4096, false).unwrap();
        memory.store(4100, b"seen");
        let mut seen = [0; 4];
        second.load(4, &mut seen);
        assert_eq!(&seen, b"seen");
    }

    #[test]
    fn files_that_may_shrink_or_are_too_short_are_not_mapped() {
        let (_memory, file) = Memory::create("test", 4096).unwrap();
        let kind = |result: io::Result<Memory>| result.unwrap_err().kind();
        assert_eq!(kind(Memory::map(file.as_fd(), 0, 8192, true)), io::ErrorKind::InvalidInput);
        assert_eq!(kind(Memory::map(file.as_fd(), 4096, u64::MAX - 4095, true)), io::ErrorKind::InvalidInput);
        assert_eq!(kind(Memory::map(file.as_fd(), 1, 4095, true)), io::ErrorKind::InvalidInput);
        assert_eq!(kind(Memory::map(file.as_fd(), 0, 0, true)), io::ErrorKind::InvalidInput);
        assert!(fs::ftruncate(&file, 0).is_err(), "sealed");
        // Nobody may seal this one.
        let open = fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        fs::ftruncate(&open, 4096).unwrap();
        assert_eq!(kind(Memory::map(open.as_fd(), 0, 4096, true)), io::ErrorKind::Unsupported);
        // This one is sealed when it is mapped.
        let open = fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        fs::ftruncate(&open, 4096).unwrap();
        let _mapped = Memory::map(open.as_fd(), 0, 4096, true).unwrap();
        assert!(fs::ftruncate(&open, 0).is_err());
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(kind(Memory::map(file.as_fd(), 0, 4096, false)), io::ErrorKind::Unsupported);
    }
}
