//! Ranges of files and block devices whose blocks neither move nor change while a device uses them.

use super::extents::{self, ExtentError, Purpose};
use super::files;
use super::lease::{Hold, Holds, Unheld};
use dcs_abi::descriptor::Extent;
use dcs_abi::status::Stage;
use dcs_devices::page_cache;
use rustix::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

/// A range that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldRange {
    hold: Arc<Hold>,
    stage: Stage,
    purpose: Purpose,
    offset: u64,
    length: u64,
    /// Extents of a file; `None`: it is a block device.
    extents: Option<Vec<Extent>>,
}

impl Holds {
    /// Holds a range of a file, and finds its places: at most this many pieces.
    pub fn held_file(
        &mut self,
        given: BorrowedFd<'_>,
        range: Extent,
        stage: Stage,
        purpose: Purpose,
        most: usize,
    ) -> Result<HeldRange, Unheld> {
        let Extent { offset, length } = range;
        files::check(given, purpose)?;
        let hold = match purpose {
            Purpose::Read => self.source(given, offset, length)?,
            Purpose::Write => self.destination(given)?,
        };
        // From here on it stays as it is: what was true before may have changed until then.
        let size = rustix::fs::fstat(hold.file()).map_err(|errno| ExtentError::Unheld(errno.into()))?.st_size;
        if offset + length > size as u64 {
            return Err(ExtentError::Hole(size as u64).into());
        }
        let extents = extents::of(&hold.file(), offset, length, purpose, most)?;
        if purpose == Purpose::Write {
            forget(&hold, offset, length, false)?;
        }
        Ok(HeldRange { hold, stage, purpose, offset, length, extents: Some(extents) })
    }

    /// Holds a block device.
    pub fn held_device(
        &mut self,
        given: BorrowedFd<'_>,
        range: Extent,
        stage: Stage,
        purpose: Purpose,
    ) -> Result<HeldRange, Unheld> {
        let Extent { offset, length } = range;
        let hold = self.device(given)?;
        rustix::fs::fdatasync(given).map_err(|errno| ExtentError::Unheld(errno.into()))?;
        if purpose == Purpose::Write {
            forget(&hold, offset, length, true)?;
        }
        Ok(HeldRange { hold, stage, purpose, offset, length, extents: None })
    }
}

/// Nothing of the range may be cached: the card writes past the cache.
fn forget(hold: &Hold, offset: u64, length: u64, block: bool) -> Result<(), ExtentError> {
    let mut stay = page_cache::forget(hold.file(), offset, length);
    if block && matches!(stay, Ok(1..)) {
        stay = page_cache::flush(hold.file()).and_then(|()| page_cache::forget(hold.file(), offset, length));
    }
    match stay.map_err(ExtentError::Unheld)? {
        0 => Ok(()),
        _ => Err(ExtentError::Cached),
    }
}

impl HeldRange {
    /// The stage whose end it is.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns the extents of a file's range on its device; of a block device, the range itself.
    pub fn places(&self) -> Vec<Extent> {
        let range = Extent { offset: self.offset, length: self.length };
        self.extents.clone().unwrap_or_else(|| vec![range])
    }

    /// Returns the time since which another program waits for it, if one does.
    pub fn is_wanted(&self) -> Option<Instant> {
        self.hold.is_wanted()
    }

    /// Releases it: data that the device wrote are not in the page cache, and a file's blocks must not have
    /// moved.
    pub fn finish(&self) -> Result<(), ExtentError> {
        let HeldRange { hold, purpose, offset, length, .. } = self;
        let Some(extents) = &self.extents else {
            return if *purpose == Purpose::Write { forget(hold, *offset, *length, true) } else { Ok(()) };
        };
        let write = *purpose == Purpose::Write;
        if write && hold.is_changed().map_err(ExtentError::Unheld)? {
            return Err(ExtentError::Changed);
        }
        if write {
            forget(hold, *offset, *length, false)?;
        }
        let now = extents::of(&hold.file(), *offset, *length, *purpose, extents.len());
        if !now.is_ok_and(|now| now == *extents) {
            return Err(ExtentError::Moved);
        }
        if write {
            hold.touch().map_err(ExtentError::Time)?;
        }
        Ok(())
    }
}
