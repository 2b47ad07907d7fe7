//! Destinations of bytes, as users name them. A regular file appears under its name only when it is complete.

use crate::args::SinkOptions;
use crate::closed_stdio;
use crate::deadline;
use crate::failure::{Exit, Failure};
use crate::identity::{Identity, differ};
use crate::names::shown;
use crate::nvme;
use crate::replace::{self, Replaced};
use crate::temp_file::{Entry, TempFile, TempFileOptions};
use dcs::{Mode, Sink};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Options for making a sink.
pub struct Options<'a> {
    pub file: &'a SinkOptions,
    pub no_clobber: bool,
    /// Permission bits of a new file, before the umask.
    pub mode: u32,
    /// Identity of the file that is read: the sink must be another.
    pub source: Option<Identity>,
}

/// An open sink.
pub struct NamedSink {
    /// Name in messages.
    pub name: String,
    kind: Kind,
}

enum Kind {
    /// A temporary file next to the final name.
    TempFile(Box<TempFile>),
    /// The destination itself (a pipe, a device, a file written in place), and the new entry in its folder that must be
    /// durable too.
    Itself(File, Option<Entry>),
    /// Standard output, with its position if it is a file.
    Stdout(File, u64),
    /// Range of an SSD that the engine drives itself.
    Ssd(nvme::Range),
}

impl NamedSink {
    pub fn open(path: &OsStr, options: &Options<'_>) -> Result<NamedSink, Failure> {
        let name = &shown(path).to_string();
        deadline::opening(name);
        let failed = |error| Failure::io(name, &error);
        if path == "-" {
            let kind = stdout(options)?;
            return Ok(NamedSink { name: "standard output".into(), kind });
        }
        let path = Path::new(path);
        let kind = match std::fs::metadata(path) {
            Ok(there) if there.is_dir() => return Err(Failure::usage(format!("{name} is a folder"))),
            Ok(_) if options.no_clobber => return Err(failed(io::ErrorKind::AlreadyExists.into())),
            Ok(_) => existing(path, name, options)?,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Err(_) if path.is_symlink() => {
                let line = format!("{name} is a symbolic link to a missing file");
                return Err(Failure::new(Exit::Failed, line)
                    .advise("remove it, or name the file that it should lead to"));
            }
            Err(_) if options.file.in_place => {
                let entry = options.file.durable.then(|| Entry::of(path)).transpose().map_err(failed)?;
                let file = OpenOptions::new().write(true).create_new(true).mode(options.mode).open(path);
                Kind::Itself(file.map_err(failed)?, entry)
            }
            Err(_) => Entry::of(path).and_then(|at| beside(at, options, None)).map_err(failed)?,
        };
        Ok(NamedSink { name: name.to_string(), kind })
    }

    /// Makes a sink of a range of an SSD that the engine drives itself.
    pub fn ssd(name: &OsStr, range: nvme::Range) -> NamedSink {
        NamedSink { name: shown(name).to_string(), kind: Kind::Ssd(range) }
    }

    /// Returns its file, if it has one.
    pub fn file(&self) -> Option<&File> {
        match &self.kind {
            Kind::TempFile(temp) => Some(&temp.file),
            Kind::Itself(file, _) | Kind::Stdout(file, _) => Some(file),
            Kind::Ssd(_) => None,
        }
    }

    pub fn sink(&self, cache: Mode) -> Sink {
        match &self.kind {
            Kind::TempFile(temp) => Sink::file(&temp.file, 0).cache(cache),
            Kind::Itself(file, _) => Sink::file(file, 0).cache(cache),
            Kind::Stdout(file, position) => Sink::file(file, *position).cache(cache),
            Kind::Ssd(range) => range.sink(cache),
        }
    }

    /// Makes a sink of runs of its file, as (offset, length).
    pub fn runs(&self, runs: &[(u64, u64)], cache: Mode) -> Option<Sink> {
        self.file().map(|file| Sink::extents(file, runs).cache(cache))
    }

    /// Returns its file if that is a regular file, whose growth can be watched.
    pub fn growing(&self) -> Option<io::Result<File>> {
        let is_file = |file: &&File| file.metadata().is_ok_and(|metadata| metadata.is_file());
        let file = self.file().filter(is_file).filter(|_| !matches!(self.kind, Kind::Stdout(..)));
        file.map(File::try_clone)
    }

    /// Sets a file's length, which may be past the last byte that was written.
    pub fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.file().map_or(Ok(()), |file| file.set_len(bytes))
    }

    /// Returns true if received data are not yet under their name.
    pub fn is_withheld(&self) -> bool {
        matches!(self.kind, Kind::TempFile(_))
    }

    /// Puts the file in its place after success. `bytes` were written.
    pub fn commit(self, bytes: u64) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::io(&self.name, &error);
        match &self.kind {
            Kind::TempFile(temp) => temp.say_not_placed(),
            _ => deadline::step(|| {
                deadline::late(
                    &self.name,
                    "it is not known whether its file system has kept what was written",
                )
            }),
        }
        self.file().map_or(Ok(()), check_close).map_err(failed)?;
        match self.kind {
            Kind::TempFile(temp) => temp.place().map_err(failed)?,
            Kind::Stdout(mut file, position) => {
                // Later output comes after this one's; a pipe has no position.
                let _ = file.seek(SeekFrom::Start(position + bytes));
            }
            Kind::Itself(_, Some(entry)) => entry.sync_folder().map_err(failed)?,
            Kind::Itself(_, None) | Kind::Ssd(_) => {}
        }
        Ok(())
    }
}

/// Checks the result of closing the file: network file systems and quotas may report lost writes only then. Closing a
/// duplicate is enough.
fn check_close(file: &File) -> io::Result<()> {
    let duplicate = file.as_fd().try_clone_to_owned()?;
    nix::unistd::close(duplicate).map_err(io::Error::from)
}

fn stdout(options: &Options<'_>) -> Result<Kind, Failure> {
    let failed = |error| Failure::io("standard output", &error);
    closed_stdio::check_output().map_err(failed)?;
    let mut file = File::from(io::stdout().as_fd().try_clone_to_owned().map_err(failed)?);
    let metadata = file.metadata().map_err(failed)?;
    differ(options.source, &metadata, "standard output")?;
    let position = if metadata.is_file() { file.stream_position().map_err(failed)? } else { 0 };
    Ok(Kind::Stdout(file, position))
}

/// Opens an existing sink, to write to it or, if it is a regular file, to replace it.
fn existing(path: &Path, name: &str, options: &Options<'_>) -> Result<Kind, Failure> {
    let failed = |error| Failure::io(name, &error);
    // A user who may not write to the file may not replace it either.
    let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    differ(options.source, &metadata, name)?;
    if !metadata.is_file() {
        return Ok(Kind::Itself(file, None));
    }
    if options.file.in_place {
        deadline::step(|| {
            deadline::late(name, "it is not known whether it was emptied to be written in place")
        });
        file.set_len(0).map_err(failed)?;
        return Ok(Kind::Itself(file, None));
    }
    // Replaces the file that a link points to, not the link.
    let path = path.canonicalize().map_err(failed)?;
    let at = Entry::of(&path).map_err(failed)?;
    if let Some(obstacle) = replace::obstacle(&file, at.folder()).map_err(failed)? {
        return Err(Failure::new(
            Exit::Permission,
            format!("{name}: {obstacle}, so no other file can take its place"),
        )
        .advise("write into the file itself: --in-place"));
    }
    let replaced = Replaced::new(&file).map_err(failed)?;
    beside(at, options, Some(replaced)).map_err(failed)
}

fn beside(at: Entry, options: &Options<'_>, replaced: Option<Replaced>) -> io::Result<Kind> {
    let (no_clobber, durable) = (options.no_clobber, options.file.durable);
    let made = TempFileOptions { replaced, mode: options.mode, no_clobber, durable };
    Ok(Kind::TempFile(Box::new(TempFile::new(at, made)?)))
}
