//! Objects as slices of one pool of text, each from a place of its own, so that no two streams carry the same
//! bytes and whoever checks needs the pool only.

use super::random::{Random, text};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of all objects together, at least: more than a core's caches hold.
pub const WORKING_SET: u64 = 64 << 20;
/// Objects begin within this many bytes of the pool, this far apart.
const SPREAD: u64 = 1 << 20;
pub const STEP: u64 = 4099;

pub struct Pool {
    /// Bytes of each object.
    pub size: u64,
    /// The pool as a file, for whoever sends from it.
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

    /// Where an object begins.
    pub fn offset(number: usize) -> u64 {
        number as u64 * STEP % SPREAD
    }

    /// The bytes of the object that begins there.
    pub fn object(&self, offset: u64) -> &[u8] {
        &self.bytes[offset as usize..][..self.size as usize]
    }
}

/// The first difference between what was delivered and what should have been.
pub fn difference(delivered: &[u8], expected: &[u8]) -> Option<String> {
    if delivered.len() != expected.len() {
        return Some(format!("{} bytes, not {}", delivered.len(), expected.len()));
    }
    let at = delivered.iter().zip(expected).position(|(one, other)| one != other);
    at.map(|at| format!("byte {at} of {} is wrong", expected.len()))
}

/// Has the page cache forget a file.
pub fn chill(file: &Path) -> io::Result<()> {
    Ok(posix_fadvise(File::open(file)?, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?)
}
