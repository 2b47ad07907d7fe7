//! The folder of the data, and the room in it.

use crate::failure::{Exit, Failure};
use crate::interrupt::{self, Leftover};
use crate::units::human;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder that is removed when this is dropped, or when a signal ends the process.
pub struct Folder {
    _leftover: Leftover,
    folder: TempDir,
}

impl Folder {
    /// Makes a folder, in `parent` if given.
    pub fn new(parent: Option<&Path>, prefix: &str) -> Result<Folder, Failure> {
        let failed = |error| Failure::io("data folder", &error);
        let parent =
            parent.map_or_else(std::env::temp_dir, Path::to_path_buf).canonicalize().map_err(failed)?;
        let make = || tempfile::Builder::new().prefix(prefix).tempdir_in(parent);
        let (folder, _leftover) = interrupt::folder_of(make).map_err(failed)?;
        Ok(Folder { _leftover, folder })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Makes a folder in it.
    pub fn make(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.path().join(name);
        std::fs::create_dir(&path).map_err(|error| Failure::io("data folder", &error))?;
        Ok(path)
    }
}

/// Fails if a file system has fewer bytes free. `by`: the options that reduce the need.
pub fn has_free(folder: &Path, needed: u64, by: &str) -> Result<(), Failure> {
    let what = folder.display();
    let room = nix::sys::statvfs::statvfs(folder).map_err(|errno| Failure::io(&what, &errno.into()))?;
    let free = room.blocks_available() * room.fragment_size();
    if free >= needed {
        return Ok(());
    }
    let line = format!("{what} has {} free; {} are needed", human(free), human(needed));
    Err(Failure::new(Exit::NoSpace, line).advise(format!("choose another folder with --dir, or reduce {by}")))
}
