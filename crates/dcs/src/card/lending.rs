//! The disks of a card's backend, and the claims of their block devices of which parts are lent
//! ([`parts`](super::parts)).

use super::disks::DiskMap;
use super::extents::{ExtentError, Purpose};
use super::lease::{Holds, Unheld};
use super::range::HeldRange;
use dcs_abi::admin::{GRANT_READ, GRANT_WRITE, LentPart};
use dcs_abi::descriptor::{EndpointKind, Extent};
use dcs_abi::status::{Stage, Status};
use dcs_devices::Endpoint;
use std::ops::Bound;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reason why a part of an SSD is not lent, not taken back, or not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// The engine has no card.
    #[error("the engine has no card: make it with the card's backend")]
    NoCard,
    /// In a process that was forked from the engine's.
    #[error("this engine belongs to the process that made it: after fork, make a new one")]
    Forked,
    /// A file, a pipe, a socket.
    #[error(
        "a part of an SSD is lent by its block device, for example a partition: the blocks of a file may move"
    )]
    NotDevice,
    /// The block device is open for less than is lent.
    #[error("the block device is not open for {0}: a function is lent what its lender may do itself")]
    NotOpen(&'static str),
    /// The range cannot be lent.
    #[error(
        "{length} bytes from byte {first} on cannot be lent: a part is whole logical blocks of {block} bytes, one at least, and the device has {size} bytes"
    )]
    Range {
        /// First byte of the range.
        first: u64,
        /// Its length in bytes.
        length: u64,
        /// Bytes of a logical block.
        block: u32,
        /// Bytes of the device.
        size: u64,
    },
    /// The card cannot have the block device, or it was used meanwhile.
    #[error(transparent)]
    Device(#[from] ExtentError),
    /// The card refused.
    #[error("the card cannot {what}: {why}")]
    Refused {
        /// The request.
        what: &'static str,
        /// The reason, with what to do.
        why: String,
        /// The status of its answer.
        status: Status,
    },
}

/// The rights of a function to a part that it is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To read it.
    Read,
    /// To write it.
    Write,
    /// To read and write it.
    Both,
}

impl Access {
    fn reads(self) -> bool {
        self != Access::Write
    }

    fn writes(self) -> bool {
        self != Access::Read
    }

    fn grants(self) -> u16 {
        let read = if self.reads() { GRANT_READ } else { 0 };
        let write = if self.writes() { GRANT_WRITE } else { 0 };
        (read | write) as u16
    }
}

/// A card's backend as lending and opening parts sees it: its disks, and the claims of those that are lent.
#[derive(Debug)]
pub(crate) struct Lending {
    /// Differs from every other backend's in this process.
    number: u64,
    disks: Vec<DiskMap>,
    /// Claims of block devices of which parts are lent.
    holds: Mutex<Holds>,
}

impl Lending {
    pub(super) fn new(disks: Vec<DiskMap>) -> Lending {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Lending { number: NEXT.fetch_add(1, Ordering::Relaxed), disks, holds: Mutex::default() }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// Claims a range of a block device, and returns it as the card has it, with the claim.
    pub fn claim(
        &self,
        device: &Endpoint,
        range: (Bound<u64>, Bound<u64>),
        access: Access,
    ) -> Result<(LentPart, HeldRange), PartError> {
        let (Some(given), Some(number)) = (device.file(), device.disk()) else {
            return Err(PartError::NotDevice);
        };
        if device.kind() != EndpointKind::Block {
            return Err(PartError::NotDevice);
        }
        for (needed, open, what) in
            [(access.reads(), device.readable(), "reading"), (access.writes(), device.writable(), "writing")]
        {
            if needed && !open {
                return Err(PartError::NotOpen(what));
            }
        }
        let size = device.size().map_err(ExtentError::Unheld)?.unwrap_or(0);
        let found = self.disks.iter().find_map(|disk| Some((disk, disk.start_of(number)?, disk.block_size?)));
        let missing = ExtentError::Disk(rustix::fs::major(number), rustix::fs::minor(number));
        let (disk, start, block) = found.ok_or(missing)?;
        let (first, length) = whole_blocks(range, size, block)?;
        let purpose = if access.writes() { Purpose::Write } else { Purpose::Read };
        let extent = Extent { offset: first, length };
        let mut holds = self.holds.lock().unwrap_or_else(|error| error.into_inner());
        let held = holds.held_device(given, extent, Stage::Destination, purpose);
        let held = held.map_err(|unheld| match unheld {
            Unheld::Busy => ExtentError::Claimed,
            Unheld::Refused(error) => error,
        })?;
        let grants = access.grants();
        Ok((LentPart { ssd: disk.handle, function: 0, grants, first: start + first, length }, held))
    }
}

/// Returns the first byte and the length of a range of a device, if it is whole logical blocks.
fn whole_blocks(
    (from, to): (Bound<u64>, Bound<u64>),
    size: u64,
    block: u32,
) -> Result<(u64, u64), PartError> {
    let first = match from {
        Bound::Included(from) => from,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match to {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => end,
        Bound::Unbounded => size,
    };
    let length = end.saturating_sub(first);
    let is_whole = (first | length).is_multiple_of(u64::from(block.max(1)));
    if !is_whole || length == 0 || end > size {
        return Err(PartError::Range { first, length, block, size });
    }
    Ok((first, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::os::fd::AsFd;

    #[test]
    fn a_part_is_whole_logical_blocks_of_the_device() {
        let of = |range: (Bound<u64>, Bound<u64>)| whole_blocks(range, 1 << 20, 4096).ok();
        let bounds = |(from, to): (u64, u64)| (Bound::Included(from), Bound::Excluded(to));
        assert_eq!(of((Bound::Unbounded, Bound::Unbounded)), Some((0, 1 << 20)));
        assert_eq!(of((Bound::Excluded(4095), Bound::Included(8191))), Some((4096, 4096)));
        assert_eq!(of(bounds((4096, 1 << 20))), Some((4096, (1 << 20) - 4096)));
        let wrong =
            [(0, 0), (512, 4096), (0, 4097), (4096, (1 << 20) + 4096), (8192, 4096), (1 << 20, u64::MAX)];
        for range in wrong {
            assert_eq!(of(bounds(range)), None, "{range:?}");
        }
    }

    #[test]
    fn what_is_no_block_device_of_the_card_s_is_refused_with_what_to_do() {
        let lending = Lending::new(Vec::new());
        let claim = |endpoint: Endpoint| {
            lending
                .claim(&endpoint, (Bound::Unbounded, Bound::Unbounded), Access::Both)
                .unwrap_err()
                .to_string()
        };
        let file = tempfile::tempfile().unwrap();
        let error = claim(Endpoint::from_fd(file.as_fd()).unwrap());
        assert!(error.contains("by its block device"), "{error}");
        let (reader, _writer) = io::pipe().unwrap();
        let error = claim(Endpoint::from_fd(reader.as_fd()).unwrap());
        assert!(error.contains("by its block device"), "{error}");
    }
}
