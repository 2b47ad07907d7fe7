//! The benchmark's files: slices of one pool of text, each from a place of its own, so that no two streams
//! carry the same bytes and whoever checks needs the pool only.

use super::job::{Job, is_resize};
use super::library::libraries;
use super::protocol::Item;
use crate::harness::data::Direction;
use crate::harness::random::{self, Random};
use crate::units::to_hex;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::libc;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of all files together, at least: more than a core's caches hold.
const WORKING_SET: u64 = 64 << 20;
/// Small objects are thousands.
const SMALL_FILES: usize = 4096;
/// Objects up to here are small: what they cost each counts, not what a GiB of them costs.
pub const SMALL: u64 = 256 << 10;
/// Files begin within so many bytes of the pool, this far apart.
const SPREAD: u64 = 1 << 20;
const STEP: u64 = 4099;
/// The contents of copies before a run.
const BLANK: u8 = 0xee;
const ALIGNMENT: usize = 4096;

/// The files of one size, for any number of streams up to that which they were made for.
pub struct Data {
    pub folder: PathBuf,
    pub size: u64,
    pub pool: Vec<u8>,
    files: usize,
}

impl Data {
    pub fn new(folder: &Path, size: u64, streams: usize) -> io::Result<Data> {
        let mut pool = Vec::with_capacity((size + SPREAD) as usize);
        random::text(&mut pool, size + SPREAD, &mut Random(20_150_612))?;
        let data = Data { folder: folder.to_path_buf(), size, pool, files: files(size, streams) };
        std::fs::write(data.pool_path(), &data.pool)?;
        for number in 0..data.files {
            let mut file = File::create(data.original(number))?;
            file.write_all(data.slice(offset(number)))?;
            // Written now, so that writing it back disturbs no run.
            if !is_small(size) {
                file.sync_data()?;
            }
        }
        nix::unistd::sync();
        Ok(data)
    }

    pub fn pool_path(&self) -> PathBuf {
        self.folder.join("pool")
    }

    fn original(&self, number: usize) -> PathBuf {
        self.folder.join(format!("file-{number}"))
    }

    fn copy(&self, number: usize) -> PathBuf {
        self.folder.join(format!("copy-{number}"))
    }

    /// The bytes of a whole object.
    pub fn slice(&self, offset: u64) -> &[u8] {
        &self.pool[offset as usize..(offset + self.size) as usize]
    }

    /// The files dealt out to so many streams, with the digests that a job must give.
    pub fn streams(&self, job: &Job, streams: usize) -> io::Result<Vec<Vec<Item>>> {
        let mut dealt = vec![Vec::new(); streams];
        for number in 0..self.files - self.files % streams {
            let path = match job.direction {
                Direction::Send => self.original(number),
                Direction::Receive => self.copy(number),
            };
            let expected = self.expected(job, offset(number))?;
            dealt[number % streams].push(Item {
                path,
                offset: offset(number),
                length: self.size,
                counter: None,
                expected,
            });
        }
        Ok(dealt)
    }

    /// None where a digest covers what a compressor made: that is the compressor's own affair.
    fn expected(&self, job: &Job, offset: u64) -> io::Result<Vec<String>> {
        if !job.keeps_length() && job.chain.iter().rev().take_while(|word| !is_resize(word)).count() > 0 {
            return Ok(Vec::new());
        }
        let ops = job.ops().map_err(|failure| io::Error::other(failure.line))?;
        let before = job.chain.iter().take_while(|word| !is_resize(word)).count();
        let mut chain = libraries().chain(&ops[..before])?;
        chain.begin()?;
        chain.pass(&mut self.slice(offset).to_vec(), true, &mut |_| Ok(()))?;
        Ok(chain.digests()?.iter().map(|digest| to_hex(digest)).collect())
    }

    /// Copies without anything of an earlier run, in their full length and on disk.
    pub fn blank_copies(&self) -> io::Result<()> {
        let whole = (self.size as usize).next_multiple_of(ALIGNMENT);
        let memory = vec![BLANK; whole + ALIGNMENT];
        let blank = &memory[memory.as_ptr().align_offset(ALIGNMENT)..][..whole];
        for number in 0..self.files {
            let mut options = File::options();
            options.write(true).create(true).truncate(false);
            let direct = if is_small(self.size) { 0 } else { libc::O_DIRECT };
            let path = self.copy(number);
            // Not every file system has O_DIRECT.
            let file = options.clone().custom_flags(direct).open(&path).or_else(|_| options.open(&path))?;
            file.write_all_at(blank, 0)?;
            file.set_len(self.size)?;
        }
        Ok(())
    }

    /// Has the page cache forget the originals.
    pub fn chill(&self) -> io::Result<()> {
        for number in 0..self.files {
            let file = File::open(self.original(number))?;
            posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        }
        Ok(())
    }
}

fn files(size: u64, streams: usize) -> usize {
    let least = if is_small(size) { SMALL_FILES } else { WORKING_SET.div_ceil(size.max(1)) as usize };
    least.max(streams)
}

/// Bytes of all files.
pub fn total(size: u64, streams: usize) -> u64 {
    size.saturating_mul(files(size, streams) as u64).min(u64::MAX / 4)
}

pub fn is_small(size: u64) -> bool {
    size <= SMALL
}

fn offset(number: usize) -> u64 {
    number as u64 * STEP % SPREAD
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
        assert!(std::fs::read(&other.path).unwrap() == data.slice(other.offset));
        let unknown = data.streams(&Job::parse("file>md5,gzip,md5>socket").unwrap(), 1).unwrap();
        assert!(unknown[0][0].expected.is_empty());
        data.blank_copies().unwrap();
        let blank = std::fs::read(data.copy(0)).unwrap();
        assert!(blank.len() as u64 == data.size && blank.iter().all(|byte| *byte == BLANK));
    }
}
