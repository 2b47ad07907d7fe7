//! Where bytes go, as people name it. A regular file appears under its name only when it is whole.

use crate::args::TargetOptions;
use crate::failure::Failure;
use crate::interrupt::{self, Leftover};
use crate::nvme;
use dcs::{Mode, Sink};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// How a target is to be made.
pub struct Options<'a> {
    pub file: &'a TargetOptions,
    pub no_clobber: bool,
    /// Permission bits of a new file, before the umask.
    pub mode: u32,
}

/// An open target.
pub struct Target {
    pub name: String,
    kind: Kind,
}

enum Kind {
    /// A temporary file beside the final name.
    Beside { temporary: NamedTempFile, path: PathBuf, no_clobber: bool, durable: bool, _leftover: Leftover },
    /// The thing itself: a pipe, a device, a file that is written in place.
    Itself(File),
    /// Standard output, and the position of the file that it is, if it is one.
    Stdout(File, u64),
    /// Part of an SSD that the engine drives itself.
    Ssd(nvme::Range),
}

impl Target {
    pub fn open(name: &str, options: &Options<'_>) -> Result<Target, Failure> {
        let failed = |error| Failure::io(name, &error);
        if name == "-" {
            let kind = stdout().map_err(failed)?;
            return Ok(Target { name: "standard output".into(), kind });
        }
        let path = Path::new(name);
        let kind = match std::fs::metadata(path) {
            Ok(there) if there.is_dir() => return Err(Failure::usage(format!("{name} is a folder"))),
            Ok(_) if options.no_clobber => return Err(failed(io::ErrorKind::AlreadyExists.into())),
            Ok(there) if !there.is_file() || options.file.in_place => {
                let file = OpenOptions::new().write(true).truncate(there.is_file()).open(path);
                Kind::Itself(file.map_err(failed)?)
            }
            Ok(there) => {
                // Whoever may not write to the file may not replace it either.
                OpenOptions::new().write(true).open(path).map_err(failed)?;
                // The file that a link points to is replaced, not the link.
                let path = path.canonicalize().map_err(failed)?;
                beside(path, options, there.permissions().mode() & 0o7777).map_err(failed)?
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Err(_) if options.file.in_place => {
                let file = OpenOptions::new().write(true).create_new(true).mode(options.mode).open(path);
                Kind::Itself(file.map_err(failed)?)
            }
            Err(_) => beside(path.to_path_buf(), options, options.mode).map_err(failed)?,
        };
        Ok(Target { name: name.to_string(), kind })
    }

    /// Part of an SSD that the engine drives itself.
    pub fn ssd(name: &str, range: nvme::Range) -> Target {
        Target { name: name.to_string(), kind: Kind::Ssd(range) }
    }

    /// The file that it is, if it is one.
    pub fn file(&self) -> Option<&File> {
        match &self.kind {
            Kind::Beside { temporary, .. } => Some(temporary.as_file()),
            Kind::Itself(file) | Kind::Stdout(file, _) => Some(file),
            Kind::Ssd(_) => None,
        }
    }

    pub fn sink(&self, cache: Mode) -> Sink {
        match &self.kind {
            Kind::Beside { temporary, .. } => Sink::file(temporary.as_file(), 0).cache(cache),
            Kind::Itself(file) => Sink::file(file, 0).cache(cache),
            Kind::Stdout(file, position) => Sink::file(file, *position).cache(cache),
            Kind::Ssd(range) => range.sink(cache),
        }
    }

    /// A regular file, whose growth can be watched.
    pub fn growing(&self) -> Option<io::Result<File>> {
        let is_file = |file: &&File| file.metadata().is_ok_and(|metadata| metadata.is_file());
        let file = self.file().filter(is_file).filter(|_| !matches!(self.kind, Kind::Stdout(..)));
        file.map(File::try_clone)
    }

    /// What was received is bound for its name and not yet there.
    pub fn is_withheld(&self) -> bool {
        matches!(self.kind, Kind::Beside { .. })
    }

    /// All is well: puts the file in its place. `bytes` were written.
    pub fn commit(self, bytes: u64) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::io(&self.name, &error);
        match self.kind {
            Kind::Beside { temporary, path, no_clobber, durable, _leftover } => {
                let placed =
                    if no_clobber { temporary.persist_noclobber(&path) } else { temporary.persist(&path) };
                placed.map_err(|error| failed(error.error))?;
                if durable {
                    File::open(folder(&path)).and_then(|folder| folder.sync_all()).map_err(failed)?;
                }
            }
            Kind::Stdout(mut file, position) => {
                // What is written next comes after; a pipe has no position.
                let _ = file.seek(SeekFrom::Start(position + bytes));
            }
            Kind::Itself(_) | Kind::Ssd(_) => {}
        }
        Ok(())
    }
}

fn stdout() -> io::Result<Kind> {
    let mut file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let is_file = file.metadata()?.is_file();
    let position = if is_file { file.stream_position()? } else { 0 };
    Ok(Kind::Stdout(file, position))
}

fn beside(path: PathBuf, options: &Options<'_>, mode: u32) -> io::Result<Kind> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
    let temporary = tempfile::Builder::new()
        .prefix(&format!(".{name}."))
        .suffix(".part")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder(&path))?;
    if path.exists() {
        // The umask is for new files.
        temporary.as_file().set_permissions(Permissions::from_mode(mode))?;
    }
    let _leftover = interrupt::leftover(temporary.path());
    let (no_clobber, durable) = (options.no_clobber, options.file.durable);
    Ok(Kind::Beside { temporary, path, no_clobber, durable, _leftover })
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
