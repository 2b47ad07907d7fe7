//! A file that is written under a temporary name, next to its final name, until it is complete.
//!
//! Its folder is held by its descriptor: if the folder is renamed meanwhile, the file moves with it, and nothing is
//! left behind.

use crate::deadline;
use crate::interrupt::{self, Leftover};
use crate::names::shown;
use crate::replace::Replaced;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, RenameFlags, openat, renameat, renameat2};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most bytes of a file's name that its temporary file's name repeats.
const SHOWN_NAME_MAX: usize = 100;
/// Names that are tried.
const NAMES_MAX: usize = 100;

/// A name in a folder that is held by its descriptor.
#[derive(Clone, Debug)]
pub struct Entry {
    folder: Arc<File>,
    name: OsString,
    /// Path as the user gave it.
    path: PathBuf,
}

/// A file under a temporary name.
pub struct TempFile {
    pub file: File,
    temporary: Entry,
    /// Final place of the file.
    at: Entry,
    /// File that it replaces.
    replaced: Option<Replaced>,
    no_clobber: bool,
    durable: bool,
    /// Removes the temporary file; `None` once it is under its final name.
    leftover: Option<Leftover>,
}

/// Properties of a file to make.
pub struct TempFileOptions {
    pub replaced: Option<Replaced>,
    /// Permission bits of a new file, before the umask.
    pub mode: u32,
    pub no_clobber: bool,
    pub durable: bool,
}

impl Entry {
    /// Finds the entry that a path names.
    pub fn of(path: &Path) -> io::Result<Entry> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        // A user who may make files in a folder may not always read it.
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let folder = File::from(openat(AT_FDCWD, folder(path), flags, Mode::empty())?);
        Ok(Entry { folder: Arc::new(folder), name: name.to_os_string(), path: path.to_path_buf() })
    }

    /// Returns the folder. Its descriptor is good only for looking names up in it.
    pub fn folder(&self) -> &File {
        &self.folder
    }

    /// Makes the folder's entries durable.
    pub fn sync_folder(&self) -> io::Result<()> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        File::from(openat(&*self.folder, ".", flags, Mode::empty())?).sync_all()
    }

    pub fn remove(&self) -> io::Result<()> {
        Ok(unlinkat(&*self.folder, self.name.as_os_str(), UnlinkatFlags::NoRemoveDir)?)
    }

    fn create(&self, mode: u32) -> Result<File, Errno> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        openat(&*self.folder, self.name.as_os_str(), flags, Mode::from_bits_truncate(mode)).map(File::from)
    }
}

impl TempFile {
    /// Makes a temporary file next to this entry.
    pub fn new(at: Entry, options: TempFileOptions) -> io::Result<TempFile> {
        // The umask is for new files. A file that replaces another gets that one's owner first, then its permissions.
        let mode = if options.replaced.is_some() { 0o600 } else { options.mode };
        let (temporary, file, leftover) = create(&at, mode)?;
        deadline::leaves(Some(shown(&temporary.path).to_string()));
        let TempFileOptions { replaced, no_clobber, durable, .. } = options;
        Ok(TempFile { file, temporary, at, replaced, no_clobber, durable, leftover: Some(leftover) })
    }

    /// Puts the file in its place. If it replaces another, its data are on the disk first: after a crash, the name
    /// stands for one file or the other, complete. Otherwise nothing is waited for, unless the file must be durable.
    pub fn place(mut self) -> io::Result<()> {
        self.say_not_placed();
        if let Some(replaced) = &self.replaced {
            replaced.give(&self.file)?;
        }
        if self.durable {
            self.file.sync_all()?;
        } else if self.replaced.as_ref().is_some_and(Replaced::has_data) {
            self.file.sync_data()?;
        }
        self.say("it is not known whether the new data are in its place: they are there, or", true);
        self.rename()?;
        self.leftover = None;
        deadline::leaves(None);
        if self.durable {
            self.say("the new data are in its place, and a power loss may undo that", false);
            self.temporary.sync_folder()?;
        }
        Ok(())
    }

    /// Sets the message for a timeout now: the file is not in its place.
    pub fn say_not_placed(&self) {
        match self.replaced {
            Some(_) => self.say("it is as it was, and the new data are", true),
            None => self.say("it is not there, and the new data are", true),
        }
    }

    /// Sets the message for a timeout now.
    fn say(&self, state: &str, is_beside: bool) {
        let name = shown(&self.at.path).to_string();
        let state = match is_beside {
            true => format!("{state} in {}", shown(&self.temporary.path)),
            false => state.to_string(),
        };
        deadline::step(|| deadline::late(&name, &state));
    }

    fn rename(&self) -> io::Result<()> {
        let (folder, from, to) =
            (&*self.temporary.folder, self.temporary.name.as_os_str(), self.at.name.as_os_str());
        if !self.no_clobber {
            return Ok(renameat(folder, from, folder, to)?);
        }
        match renameat2(folder, from, folder, to, RenameFlags::RENAME_NOREPLACE) {
            // This file system can't do that.
            Err(Errno::EINVAL | Errno::ENOSYS) => {
                linkat(folder, from, folder, to, AtFlags::empty())?;
                self.temporary.remove()
            }
            result => Ok(result?),
        }
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if self.leftover.is_some() {
            let _ = self.temporary.remove();
        }
    }
}

/// Returns the folder that a path leads into.
pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the file next to an entry. A signal that comes meanwhile removes it, which is safe because its name is drawn
/// at random.
fn create(at: &Entry, mode: u32) -> io::Result<(Entry, File, Leftover)> {
    for _ in 0..NAMES_MAX {
        let mut number = [0; 8];
        getrandom::fill(&mut number).map_err(io::Error::other)?;
        let mut name = OsString::from(".");
        name.push(beginning(&at.name));
        name.push(format!(".{}.part", crate::units::to_hex(&number)));
        let path = folder(&at.path).join(&name);
        let entry = Entry { folder: Arc::clone(&at.folder), name, path };
        let left = entry.clone();
        let leftover = interrupt::leftover_by(move || _ = left.remove());
        match entry.create(mode) {
            Err(Errno::EEXIST) => {}
            Err(error) => return Err(error.into()),
            Ok(file) => return Ok((entry, file, leftover)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Returns the beginning of a name, which shows whose temporary file it is, but leaves room for what is added. Text
/// stays text, because some file systems require that.
fn beginning(name: &OsStr) -> &OsStr {
    match name.to_str() {
        Some(text) => OsStr::new(&text[..text.floor_char_boundary(SHOWN_NAME_MAX)]),
        None => OsStr::from_bytes(&name.as_bytes()[..name.len().min(SHOWN_NAME_MAX)]),
    }
}
