//! The log: a JSON object per line, each written by one call, so that the lines of several processes do not mix.

use crate::process;
use crate::sys::{self, Identity};
use dcs_preload_rules::Counter;
use libc::c_int;
use serde_json::{Map, Value};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Log file. It has no lock: a forked child would wait forever for a thread that it does not have.
pub struct Record {
    path: Option<PathBuf>,
    /// Open file; NULL for standard error. Earlier ones are never freed.
    open: AtomicPtr<Open>,
}

/// An open descriptor. A program that closes descriptors it does not know may have closed it.
struct Open {
    fd: c_int,
    identity: Identity,
}

impl Record {
    pub fn new(path: Option<PathBuf>) -> Record {
        Record { path, open: AtomicPtr::new(null_mut()) }
    }

    /// Opens the log. If that fails, each line tries again, and is counted as lost if it fails too.
    pub fn open(&self) -> Result<(), String> {
        let Some(path) = &self.path else { return Ok(()) };
        let opened = self.open_file().map_err(|error| format!("{}: {error}", path.display()))?;
        self.put(opened);
        Ok(())
    }

    fn open_file(&self) -> std::io::Result<Open> {
        let path = self.path.as_deref().unwrap_or(Path::new(""));
        let mut options = std::fs::OpenOptions::new();
        // A FIFO without a reader is refused, and a full one is not waited for.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = options.append(true).create(true).mode(0o640).custom_flags(flags).open(path)?;
        let metadata = file.metadata()?;
        Ok(Open {
            fd: sys::move_to_high_number(file.into()).into_raw_fd(),
            identity: (metadata.dev(), metadata.ino()),
        })
    }

    fn put(&self, open: Open) {
        self.open.store(Box::leak(Box::new(open)), Ordering::Release);
    }

    /// Writes a line: an event and its fields.
    pub fn line(&self, event: &str, mut fields: Map<String, Value>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        fields.insert("time".into(), Value::from(now.as_millis() as f64 / 1e3));
        fields.insert("event".into(), event.into());
        fields.insert("pid".into(), std::process::id().into());
        let line = format!("{}\n", Value::Object(fields));
        if !self.write(line.as_bytes()) {
            process::count(Counter::LogLost, 1);
        }
    }

    fn write(&self, line: &[u8]) -> bool {
        if self.path.is_none() {
            return sys::write(libc::STDERR_FILENO, line);
        }
        // SAFETY: NULL, or an Open that was leaked.
        let open = unsafe { self.open.load(Ordering::Acquire).as_ref() };
        match open.filter(|open| open.is_ours()) {
            Some(open) if self.is_named(open) => sys::write(open.fd, line),
            // The log was rotated, or the program closed it. The process may have lost the right to open it.
            current => match (self.open_file(), current) {
                (Ok(new), Some(open)) => {
                    sys::replace(open.fd, new.fd);
                    self.put(Open { fd: open.fd, identity: new.identity });
                    sys::write(open.fd, line)
                }
                (Ok(new), None) => {
                    let written = sys::write(new.fd, line);
                    self.put(new);
                    written
                }
                (Err(_), Some(open)) => sys::write(open.fd, line),
                (Err(_), None) => false,
            },
        }
    }

    /// Returns true if the file still has its name, or that can't be found out.
    fn is_named(&self, open: &Open) -> bool {
        let named = self.path.as_ref().map(std::fs::metadata);
        !matches!(named, Some(Ok(named)) if (named.dev(), named.ino()) != open.identity)
    }
}

impl Open {
    fn is_ours(&self) -> bool {
        sys::stat(self.fd).is_some_and(|stat| sys::identity(&stat) == self.identity)
    }
}
