//! Sources of bytes, as users name them: a file, a FIFO, a block device, standard input, an SSD that the engine drives
//! itself.

use crate::closed_stdio;
use crate::deadline;
use crate::failure::Failure;
use crate::identity::Identity;
use crate::names::shown;
use crate::nvme;
use crate::sparse;
use dcs::{Engine, Mode, Source};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::sync::Arc;

/// Size that files of /sys report.
const PAGE: u64 = 4096;
/// Most bytes of a file that the kernel generates.
const GENERATED_MAX: u64 = 64 << 20;

/// An open source.
pub struct NamedSource {
    /// Name in messages.
    pub name: String,
    from: From,
    /// Offset and number of its bytes; `None` for a stream.
    range: Option<(u64, u64)>,
    is_stdin: bool,
    /// Permission bits of a regular file, without set-uid, set-gid and the sticky bit, because a copy belongs to
    /// another user.
    pub mode: Option<u32>,
    /// Identity of the file, whatever its name.
    pub identity: Option<Identity>,
}

enum From {
    File(File),
    /// Bytes of a file that the kernel generates whenever it is read.
    Generated(Arc<[u8]>),
    Ssd(nvme::Range),
}

impl NamedSource {
    /// Opens a source. A range must be inside a file; a stream has no offset. `drives` is the engine that drives named
    /// SSDs.
    pub fn open(
        path: &OsStr,
        offset: u64,
        length: Option<u64>,
        drives: Option<&Arc<Engine>>,
    ) -> Result<NamedSource, Failure> {
        let name = &shown(path).to_string();
        if let Some(range) = nvme::range(drives, path)? {
            if offset != 0 || length.is_some() {
                return Err(Failure::usage(format!("{name}: an SSD's range is part of its name"))
                    .advise("say @LBA+LENGTH there, instead of --offset and --length"));
            }
            let from = From::Ssd(range);
            return Ok(NamedSource {
                name: name.to_string(),
                from,
                range: None,
                is_stdin: false,
                mode: None,
                identity: None,
            });
        }
        deadline::opening(name);
        let failed = |error| Failure::io(name, &error);
        let is_stdin = path == "-";
        if is_stdin {
            closed_stdio::check_input().map_err(failed)?;
        }
        let mut file = match is_stdin {
            true => File::from(std::io::stdin().as_fd().try_clone_to_owned().map_err(failed)?),
            false => File::open(path).map_err(failed)?,
        };
        let metadata = file.metadata().map_err(failed)?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            return Err(Failure::usage(format!("{name} is a folder"))
                .advise("send an archive: tar c DIR | dcs send - ..."));
        }
        if kind.is_file() && is_generated(&file, &metadata) {
            return generated(name, file, offset, length);
        }
        let is_positional = kind.is_file() || kind.is_block_device();
        let range = match is_positional {
            true => Some(range(name, &mut file, offset, length, is_stdin)?),
            false if offset != 0 => {
                return Err(Failure::usage(format!("{name} is a stream: it has no --offset")));
            }
            false => None,
        };
        let mode = (kind.is_file() && !is_stdin).then(|| metadata.permissions().mode() & 0o777);
        let identity = Identity::of(&metadata);
        Ok(NamedSource { name: name.to_string(), from: From::File(file), range, is_stdin, mode, identity })
    }

    pub fn source(&self, cache: Mode, zero_copy: Mode) -> Source {
        let source = match (&self.from, self.range) {
            (From::Ssd(range), _) => return range.source(cache),
            (From::File(file), Some((start, length))) => Source::file(file, start..start + length),
            (From::File(file), None) => Source::fd(file),
            (From::Generated(bytes), _) => return Source::memory(Arc::clone(bytes)),
        };
        source.cache(cache).zero_copy(zero_copy)
    }

    /// Returns the runs of data of a regular file, as (offset, length); between them it has holes.
    pub fn data(&self) -> io::Result<Option<Vec<(u64, u64)>>> {
        match (&self.from, self.range, self.identity) {
            (From::File(file), Some((start, length)), Some(Identity::File { .. })) => {
                let mut position = file;
                let here = position.stream_position()?;
                let runs = sparse::data(file, start, start + length);
                // A file that is standard input is read from its position on.
                position.seek(SeekFrom::Start(here))?;
                runs.map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Returns its first offset.
    pub fn start(&self) -> u64 {
        self.range.map_or(0, |(start, _)| start)
    }

    /// Makes a source of these runs of it, as (offset, length).
    pub fn runs(&self, runs: &[(u64, u64)], cache: Mode) -> Option<Source> {
        match &self.from {
            From::File(file) => Some(Source::extents(file, runs).cache(cache)),
            From::Generated(_) | From::Ssd(_) => None,
        }
    }

    /// Returns its bytes, if their number is known.
    pub fn length(&self) -> Option<u64> {
        match &self.from {
            From::Ssd(range) => Some(range.length()),
            From::Generated(bytes) => Some(bytes.len() as u64),
            From::File(_) => self.range.map(|(_, length)| length),
        }
    }

    /// Moves the position of a file that is standard input past what was read, as reading does.
    pub fn advance(&mut self, bytes: u64) {
        if let (From::File(file), Some((start, _))) = (&mut self.from, self.range.filter(|_| self.is_stdin)) {
            let _ = file.seek(SeekFrom::Start(start + bytes));
        }
    }
}

/// Returns true if reading gives another size than the file's, as in /proc (0) and /sys (a page).
fn is_generated(file: &File, metadata: &Metadata) -> bool {
    use nix::sys::statfs::{
        CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, PROC_SUPER_MAGIC, SYSFS_MAGIC, TRACEFS_MAGIC,
    };
    let generated = [CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, PROC_SUPER_MAGIC, SYSFS_MAGIC, TRACEFS_MAGIC];
    metadata.len() <= PAGE
        && nix::sys::statfs::fstatfs(file).is_ok_and(|system| generated.contains(&system.filesystem_type()))
}

/// Reads such a file to its end.
fn generated(name: &str, file: File, offset: u64, length: Option<u64>) -> Result<NamedSource, Failure> {
    let mut bytes = Vec::new();
    let read = file.take(GENERATED_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| Failure::io(name, &error))?;
    let size = bytes.len() as u64;
    if size > GENERATED_MAX {
        let line =
            format!("{name}: the kernel generates this file, and it has more than {GENERATED_MAX} bytes");
        return Err(Failure::usage(line).advise(format!("send it as a stream: cat {name} | dcs send - ...")));
    }
    let length = length.unwrap_or(size.saturating_sub(offset));
    if offset > size || length > size - offset {
        return Err(beyond(name, offset, length, size));
    }
    let bytes = bytes[offset as usize..(offset + length) as usize].into();
    let from = From::Generated(bytes);
    Ok(NamedSource { name: name.to_string(), from, range: None, is_stdin: false, mode: None, identity: None })
}

fn beyond(name: &str, start: u64, length: u64, size: u64) -> Failure {
    let line =
        format!("{name}: range {start}+{length} reaches beyond its {size} bytes; 0 bytes had been delivered");
    Failure::usage(line).advise("give a range inside the file")
}

fn range(
    name: &str,
    file: &mut File,
    offset: u64,
    length: Option<u64>,
    from_here: bool,
) -> Result<(u64, u64), Failure> {
    let failed = |error| Failure::io(name, &error);
    let here = file.stream_position().map_err(failed)?;
    // For a block device this is its size too.
    let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
    file.seek(SeekFrom::Start(here)).map_err(failed)?;
    let start = if from_here { here } else { 0 }.saturating_add(offset);
    let length = length.unwrap_or(size.saturating_sub(start));
    if start > size || length > size - start {
        return Err(beyond(name, start, length, size));
    }
    Ok((start, length))
}
