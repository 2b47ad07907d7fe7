//! Allocates disk space for a body that bypasses the page cache.
//!
//! Writes to a file that grows are done one at a time, so the file gets its size first. Allocation runs a bounded
//! length ahead of what has come, because a client may announce any length and send nothing.

use super::{DataPathError, GivenUp};
use crate::store::RESERVE;
use dcs::Mode;
use rustix::fs::{FallocateFlags, fallocate, fstatvfs, ftruncate};
use rustix::io::Errno;
use std::fs::File;
use std::io;

/// Most bytes that are allocated ahead of what has come.
const AHEAD_MAX: u64 = 64 << 20;
const AHEAD_MIN: u64 = 1 << 20;

/// Part of the free space that may be allocated ahead, as a divisor.
const AHEAD_PART: u64 = 64;

/// A file that is allocated while it fills.
#[derive(Debug)]
pub(super) struct Allocation<'a> {
    file: &'a File,
    size: u64,
    allocated: u64,
}

impl Allocation<'_> {
    /// Gives a file its size, and allocates its first bytes; `None` if the file system can't.
    ///
    /// # Errors
    ///
    /// Fails if there is no room.
    pub(super) fn begin(file: &File, size: u64) -> Result<Option<Allocation<'_>>, DataPathError> {
        if ftruncate(file, size).is_err() {
            return Ok(None);
        }
        let mut allocation = Allocation { file, size, allocated: 0 };
        match allocation.allocate(ahead(file)) {
            Ok(()) => Ok(Some(allocation)),
            Err(Errno::NOSPC | Errno::DQUOT) => Err(io::Error::from(io::ErrorKind::StorageFull).into()),
            Err(_) => {
                ftruncate(file, 0).map_err(io::Error::from)?;
                Ok(None)
            }
        }
    }

    /// Allocates ahead, after this many bytes have come.
    pub(super) fn grow(&mut self, came: u64) -> Result<(), GivenUp> {
        let wanted = came.saturating_mul(2).saturating_add(ahead(self.file)).min(self.size);
        // Grows by half at least, not at every check.
        if wanted <= self.allocated || (wanted < self.size && wanted < self.allocated + self.allocated / 2) {
            return Ok(());
        }
        if free(self.file).saturating_sub(RESERVE) < wanted - self.allocated {
            return Err(GivenUp::Full);
        }
        match self.allocate(wanted) {
            Err(Errno::NOSPC | Errno::DQUOT) => Err(GivenUp::Full),
            // Writing fills the holes if the file system can't allocate.
            _ => Ok(()),
        }
    }

    /// Allocates all of the file, because all of its data are certain to come. Returns the mode in which it is written
    /// then.
    ///
    /// # Errors
    ///
    /// Fails if there is no room.
    pub(super) fn allocate_all(mut self) -> Result<Mode, DataPathError> {
        match self.allocate(self.size) {
            Err(Errno::NOSPC | Errno::DQUOT) => Err(io::Error::from(io::ErrorKind::StorageFull).into()),
            _ => Ok(Mode::Off),
        }
    }

    fn allocate(&mut self, wanted: u64) -> Result<(), Errno> {
        let wanted = wanted.min(self.size);
        if wanted > self.allocated {
            fallocate(self.file, FallocateFlags::empty(), self.allocated, wanted - self.allocated)?;
            self.allocated = wanted;
        }
        Ok(())
    }
}

fn free(file: &File) -> u64 {
    fstatvfs(file).map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn ahead(file: &File) -> u64 {
    (free(file) / AHEAD_PART).clamp(AHEAD_MIN, AHEAD_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn room_runs_ahead_of_what_comes_and_no_further() {
        let file = tempfile::tempfile().unwrap();
        let on_disk = || file.metadata().unwrap().blocks() * 512;
        let size = 256 << 20;
        let Some(mut allocation) = Allocation::begin(&file, size).unwrap() else { return };
        assert_eq!(file.metadata().unwrap().len(), size);
        assert!(on_disk() > 0 && on_disk() <= AHEAD_MAX + AHEAD_MIN, "{}", on_disk());
        allocation.grow(1 << 20).unwrap();
        assert!(on_disk() <= AHEAD_MAX + (4 << 20), "{}", on_disk());
        allocation.grow(200 << 20).unwrap();
        assert!(on_disk() >= size);
    }
}
