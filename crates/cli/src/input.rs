//! Where bytes come from, as people name it: a file, a FIFO, a block device, standard input, an SSD that the engine drives itself.

use crate::failure::Failure;
use crate::nvme;
use dcs::{Engine, Mode, Source};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::sync::Arc;

/// An open input.
pub struct Input {
    pub name: String,
    from: From,
    /// Where its bytes start and how many there are; `None` for a stream.
    range: Option<(u64, u64)>,
    is_stdin: bool,
    /// Permission bits of a regular file.
    pub mode: Option<u32>,
}

enum From {
    File(File),
    Ssd(nvme::Range),
}

impl Input {
    /// Opens it. A range must lie inside a file; a stream has no offset. `drives` is the engine that drives what the name may name.
    pub fn open(
        name: &str,
        offset: u64,
        length: Option<u64>,
        drives: Option<&Arc<Engine>>,
    ) -> Result<Input, Failure> {
        if let Some(range) = nvme::range(drives, name)? {
            if offset != 0 || length.is_some() {
                return Err(Failure::usage(format!("{name}: an SSD's range is part of its name"))
                    .advise("say @LBA+LENGTH there, instead of --offset and --length"));
            }
            let from = From::Ssd(range);
            return Ok(Input { name: name.to_string(), from, range: None, is_stdin: false, mode: None });
        }
        let failed = |error| Failure::io(name, &error);
        let is_stdin = name == "-";
        let mut file = match is_stdin {
            true => File::from(std::io::stdin().as_fd().try_clone_to_owned().map_err(failed)?),
            false => File::open(name).map_err(failed)?,
        };
        let metadata = file.metadata().map_err(failed)?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            return Err(Failure::usage(format!("{name} is a folder"))
                .advise("send an archive: tar c FOLDER | dcs send - ..."));
        }
        let is_positional = kind.is_file() || kind.is_block_device();
        let range = match is_positional {
            true => Some(range(name, &mut file, offset, length, is_stdin)?),
            false if offset != 0 => {
                return Err(Failure::usage(format!("{name} is a stream: it has no --offset")));
            }
            false => None,
        };
        let mode = (kind.is_file() && !is_stdin).then(|| metadata.permissions().mode() & 0o7777);
        Ok(Input { name: name.to_string(), from: From::File(file), range, is_stdin, mode })
    }

    pub fn source(&self, cache: Mode, zero_copy: Mode) -> Source {
        let source = match (&self.from, self.range) {
            (From::Ssd(range), _) => return range.source(cache),
            (From::File(file), Some((start, length))) => Source::file(file, start..start + length),
            (From::File(file), None) => Source::fd(file),
        };
        source.cache(cache).zero_copy(zero_copy)
    }

    /// Bytes that it has, where that is known.
    pub fn length(&self) -> Option<u64> {
        match &self.from {
            From::Ssd(range) => Some(range.length()),
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

fn range(
    name: &str,
    file: &mut File,
    offset: u64,
    length: Option<u64>,
    from_here: bool,
) -> Result<(u64, u64), Failure> {
    let failed = |error| Failure::io(name, &error);
    let here = file.stream_position().map_err(failed)?;
    // Of a block device this is its size, too.
    let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
    file.seek(SeekFrom::Start(here)).map_err(failed)?;
    let start = if from_here { here } else { 0 }.saturating_add(offset);
    let length = length.unwrap_or(size.saturating_sub(start));
    if start > size || length > size - start {
        let line = format!(
            "{name}: range {start}+{length} reaches beyond its {size} bytes; 0 bytes had been delivered"
        );
        return Err(Failure::usage(line).advise("ask for a range that lies inside the file"));
    }
    Ok((start, length))
}
