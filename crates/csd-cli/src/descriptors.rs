//! File descriptors: as many as drives, their clients and their backings may need at once. A process that has
//! too few would lose a guest's connection or interrupts while it runs; so a drive for which there are too
//! few is refused.

use crate::layout::ssd;
use crate::refused::Refused;
use dcs_csd_cli::spec::Drive;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::path::PathBuf;

/// Descriptors of the storage's ring, the loop, the management socket's connections, metrics, and the
/// standard ones.
const BASE: u64 = 64;

/// Descriptors of a drive's socket and its connection, and those that come with a client's messages.
const OF_SOCKET: u64 = 32;

/// Descriptors of a slice of a file: its lock, two ways to read and write it, and those while its size is
/// changed.
const OF_FILE: u64 = 5;

/// Descriptors of an SSD that the process drives: of VFIO, and its interrupts.
const OF_SSD: u64 = 16;

/// Raises the limit as far as it may be raised, and returns it.
pub fn raise() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return u64::MAX };
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_or(soft, |()| hard)
}

/// Returns the descriptors that a drive needs for its socket and its client: each vector has one.
pub fn of_drive(drive: &Drive) -> u64 {
    // A drive that asks for more is refused.
    let vectors = u64::from(drive.queues.min(64)) + 1;
    OF_SOCKET + if drive.msi { vectors.next_power_of_two() } else { vectors }
}

/// Returns the descriptors of slices on these backings.
pub fn of_backings<'a>(backings: impl Iterator<Item = &'a PathBuf>) -> u64 {
    backings.map(|backing| if ssd(backing).is_some() { OF_SSD } else { OF_FILE }).sum()
}

/// Checks that as many as these are allowed.
pub fn check(limit: u64, drives: u64) -> Result<(), Refused> {
    let needed = BASE + drives;
    if needed <= limit {
        return Ok(());
    }
    let why = format!("{limit} files may be open at once; with all drives it takes {needed}");
    Err(Refused::new(why).advise(format!("raise the limit: ulimit -n {needed}; of a service, LimitNOFILE=")))
}
