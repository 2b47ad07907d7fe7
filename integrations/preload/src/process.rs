//! Data that a forked child must not have: the state of this process, and its counters.
//!
//! Both are reached through one page that the kernel wipes in a child (MADV_WIPEONFORK). So the child, however it was
//! made, begins with nothing: no lock that a thread of the parent held, no engine whose thread is missing, none of the
//! parent's counts. The parent's data stay in the child's memory unused.

use crate::streams::State;
use crate::sys::{self, Errno};
use dcs_preload_rules::Counter;
use dcs_preload_rules::counters::{self, FILE_SIZE, MAGIC};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

const COUNTERS: usize = Counter::ALL.len();

/// Page that is wiped in a child: zero is the initial value of every field.
struct Page {
    state: AtomicPtr<State>,
    /// True while a thread makes the state.
    making: AtomicBool,
    counts: [AtomicU64; COUNTERS],
}

static PAGE: AtomicPtr<Page> = AtomicPtr::new(null_mut());

/// Counters that processes share, if there is a file of them.
static SHARED: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());

fn map(length: usize, flags: libc::c_int, fd: libc::c_int) -> Result<*mut u8, Errno> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at a place that the kernel chooses touches nothing that is there.
    let at = unsafe { libc::mmap(null_mut(), length, protection, flags, fd, 0) };
    if at == libc::MAP_FAILED { Err(sys::errno()) } else { Ok(at.cast()) }
}

/// Makes the page, which is never freed.
pub fn prepare() -> Result<(), Errno> {
    let size = std::mem::size_of::<Page>();
    let page = map(size, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
    // SAFETY: the mapping was just made and has that length, which the kernel rounds up to pages.
    if unsafe { libc::madvise(page.cast(), size, libc::MADV_WIPEONFORK) } != 0 {
        return Err(sys::errno());
    }
    PAGE.store(page.cast(), Ordering::Release);
    Ok(())
}

/// Maps the file of counters. Makes it if it does not exist.
pub fn share_counters(path: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o644);
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    check_owner(&file)?;
    make_counters(&file)?;
    let mapped = map(FILE_SIZE, libc::MAP_SHARED, file.as_raw_fd());
    let at = mapped.map_err(std::io::Error::from_raw_os_error)?;
    // SAFETY: inside the mapping, behind the magic, whose length is a multiple of the counters' alignment.
    SHARED.store(unsafe { at.add(MAGIC.len()) }.cast(), Ordering::Release);
    Ok(())
}

fn check_owner(file: &File) -> std::io::Result<()> {
    // SAFETY: it only returns a number.
    let own = unsafe { libc::geteuid() };
    let refused = counters::refusal(&file.metadata()?, own);
    refused.map_or(Ok(()), |what| Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, what)))
}

/// Turns an empty file into one of counters; any other must already be one. Processes that start at the same time all
/// write the same, in any order, so that none waits for another.
fn make_counters(file: &File) -> std::io::Result<()> {
    use std::io::{Error, ErrorKind};
    use std::os::unix::fs::FileExt;
    if file.metadata()?.len() == 0 {
        file.set_len(FILE_SIZE as u64)?;
    }
    let mut magic = [0; MAGIC.len()];
    if file.metadata()?.len() == FILE_SIZE as u64 && file.read_exact_at(&mut magic, 0).is_ok() {
        match magic {
            MAGIC => return Ok(()),
            // Writing this allocates the file's only block, so a counter never meets a full disk.
            [0, ..] => return file.write_all_at(&MAGIC, 0),
            _ => {}
        }
    }
    Err(Error::new(ErrorKind::InvalidData, "it exists, and is not a file of counters"))
}

fn page() -> Option<&'static Page> {
    // SAFETY: NULL, or the page of `prepare`, which stays; zeroed memory is a valid Page, and all fields are
    // atomic.
    unsafe { PAGE.load(Ordering::Acquire).as_ref() }
}

/// Returns the process's state, if there is one yet.
pub fn existing() -> Option<&'static State> {
    // SAFETY: NULL, or a State that was leaked.
    page().and_then(|page| unsafe { page.state.load(Ordering::Acquire).as_ref() })
}

/// Returns the process's state. Makes it if there is none.
pub fn state() -> Option<&'static State> {
    let page = page()?;
    loop {
        if let Some(state) = existing() {
            return Some(state);
        }
        if !page.making.swap(true, Ordering::Acquire) {
            // Another thread may have been faster.
            if page.state.load(Ordering::Acquire).is_null() {
                page.state.store(Box::leak(Box::default()), Ordering::Release);
            }
            page.making.store(false, Ordering::Release);
        } else {
            std::thread::yield_now();
        }
    }
}

/// Adds to a counter.
pub fn count(counter: Counter, by: u64) {
    if let Some(page) = page() {
        page.counts[counter as usize].fetch_add(by, Ordering::Relaxed);
    }
    let shared = SHARED.load(Ordering::Acquire);
    if !shared.is_null() {
        // SAFETY: `share_counters` mapped a counter for each place, permanently. Only this user or root can truncate
        // the file.
        unsafe { (*shared.add(counter as usize)).fetch_add(by, Ordering::Relaxed) };
    }
}

/// Returns this process's count.
pub fn counted(counter: Counter) -> u64 {
    page().map_or(0, |page| page.counts[counter as usize].load(Ordering::Relaxed))
}
