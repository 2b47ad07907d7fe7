//! Files of the kernel, below a folder that is `/` on a machine and anything in a test.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The result of reading something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen<T> {
    /// The value.
    Is(T),
    /// The file is absent.
    Absent,
    /// The file may exist, but could not be read, for this reason.
    Unreadable(String),
}

impl<T> Seen<T> {
    fn of(result: io::Result<T>) -> Seen<T> {
        match result {
            Ok(value) => Seen::Is(value),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Seen::Absent
            }
            Err(error) => Seen::Unreadable(error.to_string()),
        }
    }

    /// Returns the value, if there is one.
    pub fn ok(self) -> Option<T> {
        if let Seen::Is(value) = self { Some(value) } else { None }
    }
}

/// The folder that contains /sys, /proc, /dev and /boot.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Root {
    /// Uses this folder.
    pub fn new(path: impl Into<PathBuf>) -> Root {
        Root(path.into())
    }

    /// Returns true if the folder is this machine's root, so that devices may be opened.
    pub fn is_real(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Returns the path of a name.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Reads the text of a file, without surrounding white space.
    pub fn text(&self, name: &str) -> Seen<String> {
        Seen::of(fs::read(self.path(name)).map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
    }

    /// Reads the number in a file: decimal, or hexadecimal with 0x.
    pub fn number(&self, name: &str) -> Seen<u64> {
        match self.text(name) {
            Seen::Is(text) => match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                None => text.parse().ok(),
            }
            .map_or_else(|| Seen::Unreadable(format!("{text:?} is not a number")), Seen::Is),
            Seen::Absent => Seen::Absent,
            Seen::Unreadable(why) => Seen::Unreadable(why),
        }
    }

    /// Reads the names in a folder, in order.
    pub fn names(&self, name: &str) -> Seen<Vec<String>> {
        let names = |entries: fs::ReadDir| {
            let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
            let mut names: Vec<String> = entries.filter_map(name).collect();
            names.sort();
            names
        };
        Seen::of(fs::read_dir(self.path(name)).map(names))
    }

    /// Returns true if the name exists.
    pub fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// Returns the last part of a link's target.
    pub fn link(&self, name: &str) -> Option<String> {
        let to = fs::read_link(self.path(name)).ok()?;
        Some(to.file_name()?.to_string_lossy().into_owned())
    }

    /// Returns the resolved target of a link.
    pub fn resolved(&self, name: &str) -> Option<PathBuf> {
        fs::canonicalize(self.path(name)).ok()
    }
}
