//! The benchmark's files: objects of a [`Pool`], and their copies.

use super::job::{Job, is_resize};
use super::library::libraries;
use super::protocol::Item;
use crate::harness::data::Direction;
use crate::harness::pool::{self, Pool, WORKING_SET};
use crate::units::to_hex;
use nix::libc;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Number of files with small objects.
const SMALL_FILES: usize = 4096;
/// Largest size of a small object, whose figures are per object and not per GiB.
pub const SMALL: u64 = 256 << 10;
/// Contents of copies before a run.
const BLANK: u8 = 0xee;
const ALIGNMENT: usize = 4096;

/// Files of one size, for up to as many streams as they were made for.
pub struct Data {
    pub folder: PathBuf,
    pub pool: Pool,
    files: usize,
}

impl Data {
    pub fn new(folder: &Path, size: u64, streams: usize) -> io::Result<Data> {
        let pool = Pool::new(folder, size, 20_150_612)?;
        let data = Data { folder: folder.to_path_buf(), pool, files: files(size, streams) };
        for number in 0..data.files {
            let mut file = File::create(data.original(number))?;
            file.write_all(data.pool.object(Pool::offset(number)))?;
            // Written now, so that write-back does not disturb a run.
            if !is_small(size) {
                file.sync_data()?;
            }
        }
        nix::unistd::sync();
        Ok(data)
    }

    fn original(&self, number: usize) -> PathBuf {
        self.folder.join(format!("file-{number}"))
    }

    fn copy(&self, number: usize) -> PathBuf {
        self.folder.join(format!("copy-{number}"))
    }

    /// Distributes the files to this many streams, with the digests that a job must give.
    pub fn streams(&self, job: &Job, streams: usize) -> io::Result<Vec<Vec<Item>>> {
        let mut dealt = vec![Vec::new(); streams];
        for number in 0..self.files - self.files % streams {
            let path = match job.direction {
                Direction::Send => self.original(number),
                Direction::Receive => self.copy(number),
            };
            let expected = self.expected(job, Pool::offset(number))?;
            dealt[number % streams].push(Item {
                path,
                offset: Pool::offset(number),
                length: self.pool.size,
                counter: None,
                expected,
            });
        }
        Ok(dealt)
    }

    /// Returns the expected digests, none if a digest covers compressed data, which differ between compressors.
    fn expected(&self, job: &Job, offset: u64) -> io::Result<Vec<String>> {
        if !job.keeps_length() && job.chain.iter().rev().take_while(|word| !is_resize(word)).count() > 0 {
            return Ok(Vec::new());
        }
        let ops = job.ops().map_err(|failure| io::Error::other(failure.line))?;
        let before = job.chain.iter().take_while(|word| !is_resize(word)).count();
        let mut chain = libraries().chain(&ops[..before])?;
        chain.begin()?;
        chain.pass(&mut self.pool.object(offset).to_vec(), true, &mut |_| Ok(()))?;
        Ok(chain.digests()?.iter().map(|digest| to_hex(digest)).collect())
    }

    /// Overwrites the copies so that they hold nothing of an earlier run, in full length and on disk.
    pub fn blank_copies(&self) -> io::Result<()> {
        let whole = (self.pool.size as usize).next_multiple_of(ALIGNMENT);
        let memory = vec![BLANK; whole + ALIGNMENT];
        let blank = &memory[memory.as_ptr().align_offset(ALIGNMENT)..][..whole];
        for number in 0..self.files {
            let mut options = File::options();
            options.write(true).create(true).truncate(false);
            let direct = if is_small(self.pool.size) { 0 } else { libc::O_DIRECT };
            let path = self.copy(number);
            // Some file systems have no O_DIRECT.
            let file = options.clone().custom_flags(direct).open(&path).or_else(|_| options.open(&path))?;
            file.write_all_at(blank, 0)?;
            file.set_len(self.pool.size)?;
        }
        Ok(())
    }

    /// Drops the originals from the page cache.
    pub fn drop_from_page_cache(&self) -> io::Result<()> {
        for number in 0..self.files {
            pool::drop_from_page_cache(&self.original(number))?;
        }
        Ok(())
    }
}

fn files(size: u64, streams: usize) -> usize {
    let least = if is_small(size) { SMALL_FILES } else { WORKING_SET.div_ceil(size.max(1)) as usize };
    least.max(streams)
}

/// Returns the bytes of all files.
pub fn total(size: u64, streams: usize) -> u64 {
    size.saturating_mul(files(size, streams) as u64).min(u64::MAX / 4)
}

pub fn is_small(size: u64) -> bool {
    size <= SMALL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_have_files_of_their_own_and_known_digests() {
        let folder = tempfile::tempdir().unwrap();
        let data = Data::new(folder.path(), 9 << 20, 3).unwrap();
        let streams = data.streams(&Job::parse("file>md5>socket").unwrap(), 3).unwrap();
        assert!(streams.len() == 3 && streams.iter().all(|items| items.len() == 2));
        let (one, other) = (&streams[0][0], &streams[1][0]);
        assert!(one.expected != other.expected && one.expected[0].len() == 32);
        assert!(std::fs::read(&other.path).unwrap() == data.pool.object(other.offset));
        let unknown = data.streams(&Job::parse("file>md5,gzip,md5>socket").unwrap(), 1).unwrap();
        assert!(unknown[0][0].expected.is_empty());
        data.blank_copies().unwrap();
        let blank = std::fs::read(data.copy(0)).unwrap();
        assert!(blank.len() as u64 == data.pool.size && blank.iter().all(|byte| *byte == BLANK));
    }
}
