//! Holds a file's blocks where they are while the card has them. docs/server.md, *Who may move a file's
//! blocks*, says why this is enough.
//!
//! | end | held by |
//! |---|---|
//! | source, XFS that shares blocks | a snapshot: an unnamed file of our own that shares the blocks, with a write lease on it |
//! | source, else | a read lease on a description of our own: nobody has the file open for writing, or mapped so |
//! | destination | a write lease on the description that was given: nobody else has the file open at all |
//! | block device | O_EXCL: it is not mounted, and nobody else has claimed it |
//!
//! A program that opens a leased file waits up to the kernel's lease-break-time. No signal is sent that would
//! end the process: the lease is polled ([`Hold::is_wanted`]).

use super::extents::ExtentError;
use super::files;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

/// F_SETSIG: which signal tells of a lease. [linux, asm-generic/fcntl.h]
const SETSIG: libc::c_int = 10;

/// Reason why something is not held.
#[derive(Debug)]
pub(crate) enum Unheld {
    /// Another transfer of this engine has it, in a way that excludes this one: it can be tried again when
    /// that is done.
    Busy,
    /// The card cannot have it.
    Refused(ExtentError),
}

impl From<ExtentError> for Unheld {
    fn from(error: ExtentError) -> Unheld {
        Unheld::Refused(error)
    }
}

/// Something that stays as it is until this is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    file: OwnedFd,
    way: Way,
    wanted: OnceLock<Instant>,
    /// When the file was modified last, as far as it may have been: seconds and nanoseconds.
    modified: Mutex<(i64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Reading,
    Snapshot,
    Writing,
    Claim,
}

impl Hold {
    /// The file whose blocks are held: another than the given one if it is a snapshot.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the time since which another program waits for it, if one does. It must not be used any more
    /// when [`limits`] are over.
    pub fn is_wanted(&self) -> Option<Instant> {
        if self.way == Way::Claim || self.wanted.get().is_some() {
            return self.wanted.get().copied();
        }
        // SAFETY: F_GETLEASE has no argument.
        let lease = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_GETLEASE) };
        let kept = if self.way == Way::Reading { libc::F_RDLCK } else { libc::F_WRLCK };
        if lease == kept {
            return None;
        }
        Some(*self.wanted.get_or_init(Instant::now))
    }

    /// Returns true if the file was modified since it is held: its owner can do that, by the descriptor that
    /// was given.
    pub fn is_changed(&self) -> io::Result<bool> {
        Ok(modified(self.file())? != *self.modified.lock().unwrap_or_else(|error| error.into_inner()))
    }

    /// The card has modified the file.
    pub fn touch(&self) -> io::Result<()> {
        let keep = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
        let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        rustix::fs::futimens(&self.file, &Timestamps { last_access: keep, last_modification: now })?;
        *self.modified.lock().unwrap_or_else(|error| error.into_inner()) = modified(self.file())?;
        Ok(())
    }

    fn lease(file: OwnedFd, way: Way) -> Result<Hold, Errno> {
        let kind = if way == Way::Reading { libc::F_RDLCK } else { libc::F_WRLCK };
        let set = |command, value: libc::c_int| {
            // SAFETY: F_SETSIG and F_SETLEASE take an int.
            let code = unsafe { libc::fcntl(file.as_raw_fd(), command, value) };
            if code < 0 {
                Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
            } else {
                Ok(())
            }
        };
        // Not SIGIO, which ends a process without a handler: SIGURG is ignored then.
        set(SETSIG, libc::SIGURG)?;
        set(libc::F_SETLEASE, kind)?;
        let hold = Hold { file, way, wanted: OnceLock::new(), modified: Mutex::default() };
        // Changes from before it was held do not count.
        *hold.modified.lock().unwrap_or_else(|error| error.into_inner()) = modified(hold.file())?;
        Ok(hold)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.way == Way::Snapshot {
            // At once, and not when the file system comes to it: nothing may seem to share these blocks any
            // more.
            let _ = rustix::fs::ftruncate(&self.file, 0);
        }
        if self.way != Way::Claim {
            // Not only by closing: a process that was forked meanwhile may have the description too.
            // SAFETY: F_SETLEASE and F_SETSIG take an int.
            unsafe {
                libc::fcntl(self.file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK);
                libc::fcntl(self.file.as_raw_fd(), SETSIG, 0);
            }
        }
    }
}

/// Time for which a transfer may go on while another program waits for its file, and time after which the
/// card must have released it in any case. The kernel lets the program in after the whole lease-break-time.
pub(crate) fn limits() -> (Duration, Duration) {
    let text = std::fs::read_to_string("/proc/sys/fs/lease-break-time").unwrap_or_default();
    // 0: for ever.
    let seconds = text.trim().parse().ok().filter(|seconds| *seconds > 0).unwrap_or(45);
    let whole = Duration::from_secs(seconds);
    (whole / 8, whole * 3 / 4)
}

/// All that is held.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// By device and inode. One lease is shared by all transfers that have the file in the same way.
    held: HashMap<(u64, u64), Weak<Hold>>,
}

impl Holds {
    /// Holds a file that is read from `offset` on.
    pub fn source(&mut self, given: BorrowedFd<'_>, offset: u64, length: u64) -> Result<Arc<Hold>, Unheld> {
        let identity = identity(given)?;
        if let Some(hold) = self.shared(identity, Way::Reading)? {
            return Ok(hold);
        }
        if files::system(given)? == files::XFS
            && let Some(copy) = snapshot(given, offset, length)?
        {
            let hold = Hold::lease(copy, Way::Snapshot);
            return Ok(Arc::new(hold.map_err(|errno| ExtentError::Snapshot(errno.into()))?));
        }
        let hold = Hold::lease(again(given, OFlags::RDONLY, identity)?, Way::Reading);
        self.keep(identity, hold.map_err(|errno| unleased(errno, ExtentError::Writers)))
    }

    /// Holds a file that is written.
    pub fn destination(&mut self, given: BorrowedFd<'_>) -> Result<Arc<Hold>, Unheld> {
        let identity = identity(given)?;
        if let Some(hold) = self.shared(identity, Way::Writing)? {
            return Ok(hold);
        }
        let same = rustix::io::fcntl_dupfd_cloexec(given, 3);
        let same = same.map_err(|errno| ExtentError::Unheld(errno.into()))?;
        let hold = Hold::lease(same, Way::Writing);
        self.keep(identity, hold.map_err(|errno| unleased(errno, ExtentError::Open)))
    }

    /// Holds a block device.
    pub fn device(&mut self, given: BorrowedFd<'_>) -> Result<Arc<Hold>, Unheld> {
        let stat = rustix::fs::fstat(given).map_err(|errno| ExtentError::Unheld(errno.into()))?;
        let identity = (stat.st_rdev, u64::MAX);
        if let Some(hold) = self.found(identity) {
            return Ok(hold);
        }
        let claimed = open_again(given, OFlags::RDONLY | OFlags::EXCL).map_err(|errno| match errno {
            Errno::BUSY => ExtentError::Claimed,
            errno => ExtentError::Unheld(errno.into()),
        });
        let hold = claimed.map(|file| Hold {
            file,
            way: Way::Claim,
            wanted: OnceLock::new(),
            modified: Mutex::default(),
        });
        self.keep(identity, hold)
    }

    /// Returns the file's hold, if it is already held in the same way.
    fn shared(&self, identity: (u64, u64), way: Way) -> Result<Option<Arc<Hold>>, Unheld> {
        match self.found(identity) {
            None => Ok(None),
            Some(hold) if hold.is_wanted().is_some() => Err(ExtentError::Wanted.into()),
            Some(hold) if hold.way == way => Ok(Some(hold)),
            Some(_) => Err(Unheld::Busy),
        }
    }

    fn found(&self, identity: (u64, u64)) -> Option<Arc<Hold>> {
        self.held.get(&identity).and_then(Weak::upgrade)
    }

    fn keep(&mut self, identity: (u64, u64), hold: Result<Hold, ExtentError>) -> Result<Arc<Hold>, Unheld> {
        let hold = Arc::new(hold?);
        self.held.retain(|_, hold| hold.strong_count() > 0);
        self.held.insert(identity, Arc::downgrade(&hold));
        Ok(hold)
    }
}

fn unleased(errno: Errno, taken: ExtentError) -> ExtentError {
    match errno {
        Errno::AGAIN => taken,
        Errno::ACCESS => ExtentError::Owner,
        errno => ExtentError::Unheld(errno.into()),
    }
}

fn modified(file: BorrowedFd<'_>) -> Result<(i64, u64), Errno> {
    let stat = rustix::fs::fstat(file)?;
    Ok((stat.st_mtime, stat.st_mtime_nsec))
}

fn identity(file: BorrowedFd<'_>) -> Result<(u64, u64), ExtentError> {
    let stat = rustix::fs::fstat(file).map_err(|errno| ExtentError::Unheld(errno.into()))?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Opens what a descriptor stands for again, without waiting: a description of its own.
fn open_again(given: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", given.as_raw_fd());
    rustix::fs::open(path, flags | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
}

fn again(given: BorrowedFd<'_>, flags: OFlags, expected: (u64, u64)) -> Result<OwnedFd, ExtentError> {
    let file = open_again(given, flags).map_err(|errno| match errno {
        // Another program has a lease on it, and has just been notified.
        Errno::AGAIN => ExtentError::Writers,
        errno => ExtentError::Unheld(errno.into()),
    })?;
    let same = identity(file.as_fd())? == expected;
    same.then_some(file).ok_or(ExtentError::Unheld(io::Error::from_raw_os_error(libc::ESTALE)))
}

/// Makes an unnamed file that shares a range's blocks with a file, at the same offset; `None` if this file
/// system cannot share blocks.
fn snapshot(given: BorrowedFd<'_>, offset: u64, length: u64) -> Result<Option<OwnedFd>, ExtentError> {
    /// struct file_clone_range. [linux/fs.h]
    #[repr(C)]
    struct Range {
        source: i64,
        offset: u64,
        length: u64,
        destination: u64,
    }
    const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<Range>(0x94, 13);
    let failed = |errno: Errno| ExtentError::Snapshot(errno.into());
    let folder = folder_of(given).ok_or_else(|| failed(Errno::NOENT))?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let copy = rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    let block = rustix::fs::fstatvfs(given).map_err(failed)?.f_bsize.max(1);
    let size = rustix::fs::fstat(given).map_err(failed)?.st_size as u64;
    let begin = offset / block * block;
    let end = offset.saturating_add(length).next_multiple_of(block).min(size);
    if end <= begin {
        return Ok(None);
    }
    let (source, length) = (given.as_raw_fd().into(), end - begin);
    let range = Range { source, offset: begin, length, destination: begin };
    // SAFETY: FICLONERANGE reads a struct file_clone_range (linux/fs.h), whose descriptor is open.
    let cloned = unsafe { rustix::ioctl::ioctl(&copy, rustix::ioctl::Setter::<CLONE, Range>::new(range)) };
    match cloned {
        Ok(()) => Ok(Some(copy)),
        Err(Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(failed(errno)),
    }
}

/// The folder in which a file lies, or lay before it was deleted.
fn folder_of(file: BorrowedFd<'_>) -> Option<PathBuf> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    path.parent().map(Path::to_owned)
}
