//! The drive backend: in a guest, chains on files of a virtual drive (`dcs csd`) run beside the disk.
//!
//! # Architecture
//!
//! ```text
//!   Session: a file, a chain, a sink
//!      |                                    FIEMAP, lease
//!      +--> work, a thread for each transfer --- commands (/dev/ngXnY) ---> the drive: blocks, operators
//!      |       | what comes out, by a pipe <------------------------------------------------+
//!      +--> kernel backend: pipe to sink
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `device` | the drive on which a file lies, and commands by the kernel driver's passthrough |
//! | `landing` | a file of the drive that it writes itself |
//! | `feed` | one transfer from elsewhere to such a file |
//! | `work` | one transfer: where its file lies, the stream, what comes out |
//!
//! Only the chain's output reaches the guest, not the file's bytes; if the sink is `/dev/null`, only the
//! digests do. Sinks, order, timeouts and cancelling are the kernel backend's. So are transfers without
//! operators, and transfers whose source is not a file: there is nothing to compute next to a disk. A file
//! that the drive cannot use is refused, and never read by the guest instead: the path would show that, but
//! the cost would be a surprise.
//!
//! Sinks are written by the guest's kernel, except for files of a drive of which that is asked
//! ([`Sink::near_storage`](crate::Sink::near_storage)): the drive writes those. If the source is a file of the same namespace, nothing
//! crosses the bus. Else the kernel backend reads the source into a pipe, and its bytes pass the chain in the drive, on their way to the
//! disk.
//!
//! Blocks are kept in place as for a card (`card::lease`): by a read lease, so that no program writes to the
//! file meanwhile; dirty pages are written back first. A file with holes, or with space that was never
//! written, is refused.
//!
//! # What it doesn't implement
//!
//! * More than 32 KiB that come first ([`Request::prefix`](crate::Request::prefix)) with operators.
//! * When operators worked ([`StageTime`](crate::StageTime)'s first and last): the drive tells how long.
//! * More than [`TRANSFERS_MAX`](Near) transfers at the drive at once: others wait for one of them to end.
//! * An order by request id between a transfer's reading and the ends of earlier ones: what comes out keeps
//!   it.

mod device;
mod feed;
mod landing;
mod work;

use crate::card::extents::ExtentError;
use crate::card::lease::Holds;
use crate::op::Op;
use crate::outcome::DriveFailure;
use dcs_devices::Endpoint;
pub(crate) use feed::Feed;
pub(crate) use landing::Landing;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
pub(crate) use work::{Job, Work};

/// Transfers that are at drives at once.
const TRANSFERS_MAX: usize = 32;

/// Near storage, as an engine has it.
#[derive(Debug, Default)]
pub(crate) struct Near {
    holds: Mutex<Holds>,
    running: Mutex<usize>,
    ended: Condvar,
}

impl From<ExtentError> for DriveFailure {
    fn from(error: ExtentError) -> DriveFailure {
        DriveFailure::unavailable(error.errno(), error.to_string())
    }
}

/// The place of a transfer among those that are at drives.
#[derive(Debug)]
struct Turn<'a>(&'a Near);

impl Near {
    fn holds(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place.
    fn turn(&self) -> Turn<'_> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while *running >= TRANSFERS_MAX {
            running = self.ended.wait(running).unwrap_or_else(PoisonError::into_inner);
        }
        *running += 1;
        Turn(self)
    }

    /// Waits until no drive works for a transfer any more: what it was to write, it does not write later.
    pub fn wait(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while *running > 0 {
            running = self.ended.wait(running).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns true for a transfer whose bytes come from elsewhere than the drive that is to write them: the guest sends them.
    pub fn feeds(source: &Endpoint, destination: &Endpoint, chain: &[Op]) -> bool {
        let same = source.file().is_some() && source.disk() == destination.disk();
        !same && !chain.is_empty() && chain.iter().all(|op| op.gpu_name().is_none())
    }

    /// True for a transfer of this source that has something to compute beside a disk. A GPU is none.
    pub fn takes(source: &Endpoint, chain: &[Op]) -> bool {
        source.file().is_some() && !chain.is_empty() && chain.iter().all(|op| op.gpu_name().is_none())
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.running.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.ended.notify_all();
    }
}
