//! Room on the disk for a body that goes past the page cache.
//!
//! A file that grows is written one piece at a time, so it has its size before. What is allocated runs ahead of what has come, and no more:
//! a client may announce any length and send nothing.

use super::{GivenUp, PathError};
use crate::store::RESERVE;
use dcs::Mode;
use rustix::fs::{FallocateFlags, fallocate, fstatvfs, ftruncate};
use rustix::io::Errno;
use std::fs::File;
use std::io;

/// Bytes that are allocated ahead of what has come.
const AHEAD_MAX: u64 = 64 << 20;
const AHEAD_MIN: u64 = 1 << 20;

/// The same, as a part of what is free.
const AHEAD_PART: u64 = 64;

/// A file that is allocated as it fills.
#[derive(Debug)]
pub(super) struct Room<'a> {
    file: &'a File,
    size: u64,
    given: u64,
}

impl Room<'_> {
    /// Gives a file its size, and its first bytes their room; `None` where the file system can't.
    ///
    /// # Errors
    ///
    /// There is no room.
    pub(super) fn begin(file: &File, size: u64) -> Result<Option<Room<'_>>, PathError> {
        if ftruncate(file, size).is_err() {
            return Ok(None);
        }
        let mut room = Room { file, size, given: 0 };
        match room.give(ahead(file)) {
            Ok(()) => Ok(Some(room)),
            Err(Errno::NOSPC | Errno::DQUOT) => Err(io::Error::from(io::ErrorKind::StorageFull).into()),
            Err(_) => {
                ftruncate(file, 0).map_err(io::Error::from)?;
                Ok(None)
            }
        }
    }

    /// So many bytes have come: the next ones get their room.
    pub(super) fn grow(&mut self, came: u64) -> Result<(), GivenUp> {
        let wanted = came.saturating_mul(2).saturating_add(ahead(self.file)).min(self.size);
        // By half as much at least, not at every look.
        if wanted <= self.given || (wanted < self.size && wanted < self.given + self.given / 2) {
            return Ok(());
        }
        if free(self.file).saturating_sub(RESERVE) < wanted - self.given {
            return Err(GivenUp::Full);
        }
        match self.give(wanted) {
            Err(Errno::NOSPC | Errno::DQUOT) => Err(GivenUp::Full),
            // Holes are filled by whoever writes to them.
            _ => Ok(()),
        }
    }

    /// Gives all of it its room, since it is on its way for certain: the mode in which it is written then.
    ///
    /// # Errors
    ///
    /// There is no room.
    pub(super) fn give_all(mut self) -> Result<Mode, PathError> {
        match self.give(self.size) {
            Err(Errno::NOSPC | Errno::DQUOT) => Err(io::Error::from(io::ErrorKind::StorageFull).into()),
            _ => Ok(Mode::Off),
        }
    }

    fn give(&mut self, wanted: u64) -> Result<(), Errno> {
        let wanted = wanted.min(self.size);
        if wanted > self.given {
            fallocate(self.file, FallocateFlags::empty(), self.given, wanted - self.given)?;
            self.given = wanted;
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
        let allocated = || file.metadata().unwrap().blocks() * 512;
        let size = 256 << 20;
        let Some(mut room) = Room::begin(&file, size).unwrap() else { return };
        assert_eq!(file.metadata().unwrap().len(), size);
        assert!(allocated() > 0 && allocated() <= AHEAD_MAX + AHEAD_MIN, "{}", allocated());
        room.grow(1 << 20).unwrap();
        assert!(allocated() <= AHEAD_MAX + (4 << 20), "{}", allocated());
        room.grow(200 << 20).unwrap();
        assert!(allocated() >= size);
    }
}
