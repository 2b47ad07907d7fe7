//! The objects: slices of one pool of text, each from a place of its own, with keys and MD5s.

use crate::harness::random::{self, Random};
use crate::operate::Operators;
use crate::units::to_hex;
use dcs::Op;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of all objects that are got, at least: more than a core's caches hold; and where they are to come
/// from the disk.
const WORKING_SET: u64 = 64 << 20;
const COLD_SET: u64 = 512 << 20;
/// And at most, as far as each client has one of its own.
const MOST: u64 = 512 << 20;
/// Objects, at most: small ones are thousands.
const COUNT_MAX: u64 = 4096;
/// Objects begin within so many bytes of the pool, this far apart.
const SPREAD: u64 = 1 << 20;
const STEP: u64 = 4099;

pub struct Objects {
    pub size: u64,
    /// The pool as a file, for whoever sends from it.
    pub path: PathBuf,
    pool: Vec<u8>,
    etags: Vec<String>,
}

impl Objects {
    pub fn new(folder: &Path, size: u64, count: usize) -> io::Result<Objects> {
        let mut pool = Vec::with_capacity((size + SPREAD) as usize);
        random::text(&mut pool, size + SPREAD, &mut Random(20_180_602))?;
        let path = folder.join("pool");
        fs::write(&path, &pool)?;
        let mut objects = Objects { size, path, pool, etags: Vec::new() };
        objects.etags = (0..count).map(|number| md5(objects.bytes(number))).collect::<io::Result<_>>()?;
        Ok(objects)
    }

    pub fn count(&self) -> usize {
        self.etags.len()
    }

    pub fn offset(&self, number: usize) -> u64 {
        number as u64 * STEP % SPREAD
    }

    pub fn bytes(&self, number: usize) -> &[u8] {
        &self.pool[self.offset(number) as usize..][..self.size as usize]
    }

    pub fn etag(&self, number: usize) -> &str {
        &self.etags[number]
    }

    /// The mistake in an answer that should be this object, if there is one. `etag`: that of an S3 server.
    pub fn fault(&self, number: usize, body: &[u8], etag: Option<&str>) -> Option<String> {
        let expected = self.bytes(number);
        if body.len() != expected.len() {
            return Some(format!("{} bytes, not {}", body.len(), expected.len()));
        }
        if let Some(at) = body.iter().zip(expected).position(|(one, other)| one != other) {
            return Some(format!("byte {at} of {} is wrong", body.len()));
        }
        let known = self.etag(number);
        etag.filter(|etag| *etag != known).map(|etag| format!("its ETag is {etag:?}, not {known}"))
    }
}

pub fn key(number: usize) -> String {
    format!("object-{number}")
}

/// Objects that are got.
pub fn count(size: u64, clients: usize, cold: bool) -> usize {
    let least = if cold { COLD_SET } else { WORKING_SET }.div_ceil(size);
    let each = (clients as u64).min(MOST.div_ceil(size));
    least.max(each).min(COUNT_MAX) as usize
}

fn md5(bytes: &[u8]) -> io::Result<String> {
    let mut operators = Operators::new(&[Op::Md5])?;
    operators.pass(&mut bytes.to_vec(), true, &mut |_| Ok(()))?;
    Ok(operators.values().iter().map(|value| to_hex(value)).collect())
}

/// Has the page cache forget all files of a folder.
pub fn chill(folder: &Path) -> io::Result<()> {
    nix::unistd::sync();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            match entry.file_type()? {
                kind if kind.is_dir() => folders.push(entry.path()),
                kind if kind.is_file() => {
                    let file = File::open(entry.path())?;
                    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_found_and_right_objects_are_not_blamed() {
        let folder = tempfile::tempdir().unwrap();
        let objects = Objects::new(folder.path(), 70_001, 3).unwrap();
        assert_eq!(fs::read(&objects.path).unwrap()[STEP as usize..][..70_001], *objects.bytes(1));
        let (right, etag) = (objects.bytes(1).to_vec(), objects.etag(1));
        assert_eq!((etag.len(), objects.fault(1, &right, Some(etag))), (32, None));
        assert_eq!(objects.fault(1, &right, None), None);
        assert!(objects.fault(1, &right, Some("0")).is_some());
        assert!(objects.fault(1, &right[1..], None).is_some() && objects.fault(2, &right, None).is_some());
        let mut wrong = right;
        wrong[70_000] ^= 1;
        assert_eq!(objects.fault(1, &wrong, None).unwrap(), "byte 70000 of 70001 is wrong");
        chill(folder.path()).unwrap();
    }

    #[test]
    fn there_is_enough_to_get_and_not_too_much() {
        assert_eq!(count(64 << 10, 64, false), 1024);
        assert_eq!(count(16 << 20, 8, false), 8);
        assert_eq!((count(128 << 20, 64, false), count(128 << 20, 1, false)), (4, 1));
        assert_eq!((count(16 << 20, 8, true), count(1, 64, false)), (32, 4096));
    }
}
