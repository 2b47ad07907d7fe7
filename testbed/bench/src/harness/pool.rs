//! Objects as slices of one pool of text, at different offsets, so that no two streams carry the same bytes and a checker needs
//! only the pool.

use super::random::{Random, text};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Least bytes of all objects together: more than a core's caches hold.
pub const WORKING_SET: u64 = 64 << 20;
/// Objects begin within this many bytes of the pool.
const SPREAD: u64 = 1 << 20;
/// Distance between the beginnings of objects, in bytes.
pub const STEP: u64 = 4099;

pub struct Pool {
    /// Bytes of each object.
    pub size: u64,
    /// Path of the pool as a file, for senders.
    pub path: PathBuf,
    bytes: Vec<u8>,
}

impl Pool {
    pub fn new(folder: &Path, size: u64, seed: u64) -> io::Result<Pool> {
        let mut bytes = Vec::with_capacity((size + SPREAD) as usize);
        text(&mut bytes, size + SPREAD, &mut Random(seed))?;
        let path = folder.join("pool");
        std::fs::write(&path, &bytes)?;
        Ok(Pool { size, path, bytes })
    }

    /// Returns the offset of an object in the pool.
    pub fn offset(number: usize) -> u64 {
        number as u64 * STEP % SPREAD
    }

    /// Returns the bytes of the object at that offset.
    pub fn object(&self, offset: u64) -> &[u8] {
        &self.bytes[offset as usize..][..self.size as usize]
    }
}

/// Describes the first difference between delivered and expected bytes.
pub fn difference(delivered: &[u8], expected: &[u8]) -> Option<String> {
    if delivered.len() != expected.len() {
        return Some(format!("{} bytes, not {}", delivered.len(), expected.len()));
    }
    let at = delivered.iter().zip(expected).position(|(one, other)| one != other);
    at.map(|at| format!("byte {at} of {} is wrong", expected.len()))
}

/// Drops a file from the page cache.
pub fn drop_from_page_cache(file: &Path) -> io::Result<()> {
    Ok(posix_fadvise(File::open(file)?, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?)
}
