//! Files of the kernel's, below a folder that is `/` on a machine and anything in a test.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The result of looking at something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen<T> {
    /// This.
    Is(T),
    /// It is not there.
    Absent,
    /// It may be there: it could not be read, and why.
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

    /// Its kind, if that is known.
    pub fn ok(self) -> Option<T> {
        if let Seen::Is(value) = self { Some(value) } else { None }
    }
}

/// Where /sys, /proc, /dev and /boot are.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Root {
    /// This folder.
    pub fn new(path: impl Into<PathBuf>) -> Root {
        Root(path.into())
    }

    /// True where that is this machine, so that devices may be opened.
    pub fn is_real(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Where something is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The text of a file, without white space around it.
    pub fn text(&self, name: &str) -> Seen<String> {
        Seen::of(fs::read(self.path(name)).map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
    }

    /// The number that a file is: decimal, or hexadecimal behind 0x.
    pub fn number(&self, name: &str) -> Seen<u64> {
        match self.text(name) {
            Seen::Is(text) => match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                None => text.parse().ok(),
            }
            .map_or_else(|| Seen::Unreadable(format!("{text:?} is no number")), Seen::Is),
            Seen::Absent => Seen::Absent,
            Seen::Unreadable(why) => Seen::Unreadable(why),
        }
    }

    /// The names in a folder, in order.
    pub fn names(&self, name: &str) -> Seen<Vec<String>> {
        let names = |entries: fs::ReadDir| {
            let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
            let mut names: Vec<String> = entries.filter_map(name).collect();
            names.sort();
            names
        };
        Seen::of(fs::read_dir(self.path(name)).map(names))
    }

    /// True where there is something of that name.
    pub fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// The last part of what a link leads to.
    pub fn link(&self, name: &str) -> Option<String> {
        let to = fs::read_link(self.path(name)).ok()?;
        Some(to.file_name()?.to_string_lossy().into_owned())
    }

    /// All of where a link leads to.
    pub fn resolved(&self, name: &str) -> Option<PathBuf> {
        fs::canonicalize(self.path(name)).ok()
    }
}
