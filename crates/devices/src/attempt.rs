//! The results of trying an operation once.

use crate::vfio_devices::{DriveWork, Driven};
use dcs_engine::{BlockId, Outcome};
use rustix::fd::RawFd;
use std::time::Duration;

/// The result of trying an operation without waiting.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// Done, or failed.
    Done(Outcome),
    /// A socket or pipe is not ready: try again when it is.
    NotReady(RawFd, Interest),
    /// The kernel still has the block, from a zero-copy send that came short: try again when it is returned.
    BlockIsLent(BlockId),
    /// A device that the engine drives directly does it.
    Drive(Driven, DriveWork),
    /// Would wait for a disk: the ring does it, or a plain system call if there is no ring.
    Disk(DiskRequest),
    /// May wait: best done by a plain system call on another thread.
    Call(DiskRequest),
    /// A copy within the kernel that may wait for a disk.
    Copy,
    /// No signal tells when it can continue: try again after this long.
    Later(Duration),
    /// A paced stream has no room, or has not sent everything: try again when it has.
    Paced,
}

/// The readiness to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    Readable,
    Writable,
}

/// A request that the kernel carries out asynchronously.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DiskRequest {
    /// Read `length` bytes at `offset`, of which `wanted` count.
    Read { fd: RawFd, offset: u64, start: u32, length: u32, wanted: u32, path: u32 },
    /// Write `length` bytes at `offset`.
    Write { fd: RawFd, offset: u64, start: u32, length: u32, path: u32 },
    /// Send with zero copy. `demanded`: a plain send will not do.
    SendZeroCopy { fd: RawFd, start: u32, length: u32, more: bool, demanded: bool },
    /// fdatasync, if the data must be durable; and a close, if the file system reports errors only then.
    Sync { fd: RawFd, data: bool, close: bool },
}

impl Attempt {
    pub fn moved(bytes: usize, path: u32) -> Attempt {
        Attempt::Done(Outcome::Moved { bytes: bytes as u64, path, held: false })
    }

    pub fn failed(failure: dcs_engine::Failure) -> Attempt {
        Attempt::Done(Outcome::Failed(failure))
    }
}
