//! Objects of a [`Pool`], with keys and MD5s.

use crate::harness::pool::{self, Pool, WORKING_SET};
use crate::operate::Operators;
use crate::units::to_hex;
use dcs::Op;
use std::fs;
use std::io;
use std::path::Path;

/// Least bytes of all objects to get, if they are to come from the disk.
const COLD_SET: u64 = 512 << 20;
/// Most bytes of all objects, as long as each client has one of its own.
const SET_MAX: u64 = 512 << 20;
/// Most objects: of small ones there are thousands.
const COUNT_MAX: u64 = 4096;

pub struct Objects {
    pub pool: Pool,
    etags: Vec<String>,
}

impl Objects {
    pub fn new(folder: &Path, size: u64, count: usize) -> io::Result<Objects> {
        let mut objects = Objects { pool: Pool::new(folder, size, 20_180_602)?, etags: Vec::new() };
        objects.etags = (0..count).map(|number| md5(objects.bytes(number))).collect::<io::Result<_>>()?;
        Ok(objects)
    }

    pub fn count(&self) -> usize {
        self.etags.len()
    }

    pub fn bytes(&self, number: usize) -> &[u8] {
        self.pool.object(Pool::offset(number))
    }

    pub fn etag(&self, number: usize) -> &str {
        &self.etags[number]
    }

    /// Describes the error in an answer that should be this object, if there is one. `etag`: an S3 server's.
    pub fn fault(&self, number: usize, body: &[u8], etag: Option<&str>) -> Option<String> {
        let known = self.etag(number);
        let wrong = || etag.filter(|etag| *etag != known);
        pool::difference(body, self.bytes(number))
            .or_else(|| wrong().map(|etag| format!("its ETag is {etag:?}, not {known}")))
    }
}

pub fn key(number: usize) -> String {
    format!("object-{number}")
}

/// Returns the number of objects to get.
pub fn count(size: u64, clients: usize, cold: bool) -> usize {
    let least = if cold { COLD_SET } else { WORKING_SET }.div_ceil(size);
    let each = (clients as u64).min(SET_MAX.div_ceil(size));
    least.max(each).min(COUNT_MAX) as usize
}

fn md5(bytes: &[u8]) -> io::Result<String> {
    let mut operators = Operators::new(&[Op::Md5])?;
    operators.pass(&mut bytes.to_vec(), true, &mut |_| Ok(()))?;
    Ok(operators.values().iter().map(|value| to_hex(value)).collect())
}

/// Drops all files of a folder from the page cache.
pub fn drop_from_page_cache(folder: &Path) -> io::Result<()> {
    nix::unistd::sync();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            match entry.file_type()? {
                kind if kind.is_dir() => folders.push(entry.path()),
                kind if kind.is_file() => pool::drop_from_page_cache(&entry.path())?,
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
        assert_eq!(fs::read(&objects.pool.path).unwrap()[pool::STEP as usize..][..70_001], *objects.bytes(1));
        let (right, etag) = (objects.bytes(1).to_vec(), objects.etag(1));
        assert_eq!((etag.len(), objects.fault(1, &right, Some(etag))), (32, None));
        assert_eq!(objects.fault(1, &right, None), None);
        assert!(objects.fault(1, &right, Some("0")).is_some());
        assert!(objects.fault(1, &right[1..], None).is_some() && objects.fault(2, &right, None).is_some());
        let mut wrong = right;
        wrong[70_000] ^= 1;
        assert_eq!(objects.fault(1, &wrong, None).unwrap(), "byte 70000 of 70001 is wrong");
        drop_from_page_cache(folder.path()).unwrap();
    }

    #[test]
    fn there_is_enough_to_get_and_not_too_much() {
        assert_eq!(count(64 << 10, 64, false), 1024);
        assert_eq!(count(16 << 20, 8, false), 8);
        assert_eq!((count(128 << 20, 64, false), count(128 << 20, 1, false)), (4, 1));
        assert_eq!((count(16 << 20, 8, true), count(1, 64, false)), (32, 4096));
    }
}
