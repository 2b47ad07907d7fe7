//! Mapped memory that is shared: a function's own, which is a BAR to the other devices, and that of the guest.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use dcs_vfio::Mapping;
use rustix::fs::{self, MemfdFlags, SealFlags};

/// `f_type` of the file system of memfd files. [statfs(2)]
const TMPFS: u64 = 0x0102_1994;

/// A mapping of a file that cannot become shorter.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Mapping>);

impl Deref for Memory {
    type Target = Mapping;

    fn deref(&self) -> &Mapping {
        &self.0
    }
}

impl Memory {
    /// Makes zeroed memory, and its file for others to map. Neither grows nor shrinks.
    ///
    /// # Errors
    ///
    /// Those of memfd_create(2), ftruncate(2) and mmap(2).
    pub fn create(name: &str, length: u64) -> io::Result<(Memory, OwnedFd)> {
        let file = fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        fs::ftruncate(&file, length)?;
        fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let memory = Memory::of(file.as_fd(), true, u64::MAX)?;
        Ok((memory, file))
    }

    /// Returns false for files that [`Memory::of`] refuses in any case. Their file systems are not asked:
    /// another program may be that, and not answer.
    pub fn may_be(file: BorrowedFd<'_>) -> bool {
        fs::fcntl_get_seals(file).is_ok()
    }

    /// Maps all of a file from another process, if it has at most this many bytes.
    ///
    /// An access to a page that the file no longer has, or for which its file system has no memory, would kill this process (SIGBUS). So
    /// only files are mapped that are sealed against shrinking, and that are on tmpfs with ordinary pages (not huge ones, which may run
    /// out): memfd files.
    ///
    /// # Errors
    ///
    /// `Unsupported` for any other file; `OutOfMemory` for a longer one; those of mmap(2).
    pub fn of(file: BorrowedFd<'_>, writable: bool, most: u64) -> io::Result<Memory> {
        if !Memory::may_be(file) || fs::fstatfs(file)?.f_type as u64 != TMPFS || !sealed(file) {
            let why = "not a memfd file, or one that may shrink";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        // Read after the seal: before it the size may still change.
        let size = u64::try_from(fs::fstat(file)?.st_size).unwrap_or(0);
        if size > most {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let page = rustix::param::page_size() as u64;
        Mapping::file(file, 0, size.next_multiple_of(page), writable).map(|mapping| Memory(Arc::new(mapping)))
    }

    /// Returns the mapping, to keep it while the kernel or a device has it.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.0
    }

    /// Returns true if this many bytes at this offset are in it.
    pub fn contains(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.length())
    }
}

/// Returns true if the file can no longer shrink; seals it if it is not sealed, and may be.
fn sealed(file: BorrowedFd<'_>) -> bool {
    let shrinks = || !fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    !shrinks() || (fs::fcntl_add_seals(file, SealFlags::SHRINK).is_ok() && !shrinks())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_shows_the_file() {
        let (memory, file) = Memory::create("test", 8192).unwrap();
        let second = Memory::of(file.as_fd(), false, u64::MAX).unwrap();
        memory.store(4100, b"seen");
        let mut seen = [0; 4];
        second.load(4100, &mut seen);
        assert_eq!(&seen, b"seen");
        assert!(second.contains(4096, 4096) && !second.contains(4097, 4096) && !second.contains(1, u64::MAX));
    }

    #[test]
    fn files_that_may_shrink_are_not_mapped() {
        let (_memory, file) = Memory::create("test", 4096).unwrap();
        let kind = |result: io::Result<Memory>| result.unwrap_err().kind();
        assert!(fs::ftruncate(&file, 0).is_err(), "sealed");
        // This one cannot be sealed.
        let open = fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        fs::ftruncate(&open, 4096).unwrap();
        assert_eq!(kind(Memory::of(open.as_fd(), true, u64::MAX)), io::ErrorKind::Unsupported);
        // This one is sealed when it is mapped.
        let open = fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        assert_eq!(kind(Memory::of(open.as_fd(), true, u64::MAX)), io::ErrorKind::InvalidInput, "empty");
        let open = fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        fs::ftruncate(&open, 4096).unwrap();
        let _mapped = Memory::of(open.as_fd(), true, u64::MAX).unwrap();
        assert!(fs::ftruncate(&open, 0).is_err());
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(kind(Memory::of(file.as_fd(), false, u64::MAX)), io::ErrorKind::Unsupported);
    }
}
