//! Regular files and block devices: the page cache by plain calls that do not wait, the disk by the ring.
//!
//! A cached read is cheapest as a plain `preadv2` with RWF_NOWAIT: it only copies. Reads that are not cached, and all O_DIRECT, go to the
//! ring, so that the engine does not wait for a disk. A buffered write usually only copies; but if too much is dirty, or the file system is
//! frozen, it waits, and no flag prevents that. So a thread makes it.

use crate::attempt::{Attempt, DiskRequest};
use crate::buffer::ALIGNMENT;
use crate::endpoint::File;
use crate::failure;
use dcs_abi::result::{
    PATH_DESTINATION_CACHED, PATH_DESTINATION_DIRECT, PATH_SOURCE_CACHED, PATH_SOURCE_DIRECT, PATH_SYSCALL,
};
use rustix::fd::AsRawFd;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;

/// Reads into `block[start..start + length]`.
pub(crate) fn read(
    file: &File,
    direct: bool,
    offset: u64,
    block: &mut [u8],
    start: u32,
    length: u32,
) -> Attempt {
    if direct && let Some(request) = direct_read(file, offset, block.len(), start, length) {
        return Attempt::Disk(request);
    }
    let cached = PATH_SOURCE_CACHED;
    let uncached = DiskRequest::Read {
        fd: file.cached().as_raw_fd(),
        offset,
        start,
        length,
        wanted: length,
        path: cached,
    };
    let into = &mut block[start as usize..(start + length) as usize];
    if file.in_memory {
        return read_memory(file, into, offset);
    }
    if !file.nowait.load(Ordering::Relaxed) {
        return Attempt::Call(uncached);
    }
    let read = read_cached(file, into, offset);
    after_read(file, read, uncached)
}

/// Returns the outcome of [`read_cached`]. `uncached` is the request that reads what is not cached.
fn after_read(file: &File, read: Result<usize, Errno>, uncached: DiskRequest) -> Attempt {
    let cached = PATH_SOURCE_CACHED;
    match read {
        // Not always the end of the file (BUGS in preadv2(2)): a read that may wait tells.
        Ok(0) => Attempt::Disk(uncached),
        Ok(bytes) => Attempt::moved(bytes, cached | PATH_SYSCALL),
        Err(Errno::AGAIN | Errno::INTR) => Attempt::Disk(uncached),
        Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
            file.nowait.store(false, Ordering::Relaxed);
            Attempt::Call(uncached)
        }
        Err(errno) => Attempt::failed(failure::reading(errno)),
    }
}

/// Reads what the page cache has.
#[inline]
pub(crate) fn read_cached(file: &File, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
    rustix::io::preadv2(file.cached(), &mut [IoSliceMut::new(into)], offset, ReadWriteFlags::NOWAIT)
}

/// Returns the outcome of a [`read_cached`] into a block that was short.
#[cold]
pub(crate) fn after_short_read(file: &File, read: Result<usize, Errno>, offset: u64, length: u32) -> Attempt {
    let (fd, path) = (file.cached().as_raw_fd(), PATH_SOURCE_CACHED);
    let uncached = DiskRequest::Read { fd, offset, start: 0, length, wanted: length, path };
    after_read(file, read, uncached)
}

/// Returns true if all of a cached range is read as [`read_cached`] does.
#[inline]
pub(crate) fn has_cache(file: &File, direct: bool) -> bool {
    !direct && !file.in_memory && file.nowait.load(Ordering::Relaxed)
}

/// Reads a file of a file system in memory: there is no disk to wait for.
fn read_memory(file: &File, into: &mut [u8], offset: u64) -> Attempt {
    match rustix::io::retry_on_intr(|| rustix::io::pread(file.cached(), &mut *into, offset)) {
        Ok(bytes) => Attempt::moved(bytes, PATH_SOURCE_CACHED | PATH_SYSCALL),
        Err(errno) => Attempt::failed(failure::reading(errno)),
    }
}

/// Returns an O_DIRECT read, if offset and memory are aligned. It may read past the requested range, up to alignment.
fn direct_read(file: &File, offset: u64, block: usize, start: u32, length: u32) -> Option<DiskRequest> {
    let (fd, alignment) = file.direct().ok()?;
    let padded = u64::from(length).next_multiple_of(alignment);
    let aligned = offset.is_multiple_of(alignment) && u64::from(start).is_multiple_of(alignment);
    if !aligned || u64::from(start) + padded > block as u64 {
        return None;
    }
    let path = PATH_SOURCE_DIRECT;
    Some(DiskRequest::Read { fd: fd.as_raw_fd(), offset, start, length: padded as u32, wanted: length, path })
}

/// Writes `bytes`, which are `block[start..]`.
pub(crate) fn write(file: &File, direct: bool, offset: u64, bytes: &[u8], start: u32) -> Attempt {
    if direct && let Some(request) = direct_write(file, offset, start, bytes.len()) {
        return Attempt::Disk(request);
    }
    if !file.in_memory {
        let (fd, length) = (file.cached().as_raw_fd(), bytes.len() as u32);
        return Attempt::Call(DiskRequest::Write {
            fd,
            offset,
            start,
            length,
            path: PATH_DESTINATION_CACHED,
        });
    }
    match rustix::io::retry_on_intr(|| write_at(file, bytes, offset)) {
        Ok(bytes) => failure::written(bytes, PATH_DESTINATION_CACHED | PATH_SYSCALL),
        Err(errno) => Attempt::failed(failure::writing(errno)),
    }
}

/// Calls pwrite(2), which writes at the offset even if the descriptor's owner has set O_APPEND since the check (Linux 6.9).
pub(crate) fn write_at(file: &File, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
    // RWF_NOAPPEND, linux/fs.h.
    const NOAPPEND: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x20);
    if file.noappend.load(Ordering::Relaxed) {
        match rustix::io::pwritev2(file.cached(), &[IoSlice::new(bytes)], offset, NOAPPEND) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.noappend.store(false, Ordering::Relaxed),
            result => return result,
        }
    }
    rustix::io::pwrite(file.cached(), bytes, offset)
}

/// Returns an O_DIRECT write of whole pages; the engine comes back with the rest, which goes through the page cache. Always whole pages,
/// even if the device takes less: a page that is written both ways at once would lose one of the two writes.
fn direct_write(file: &File, offset: u64, start: u32, length: usize) -> Option<DiskRequest> {
    let (fd, _) = file.direct().ok()?;
    let page = ALIGNMENT as u64;
    let whole = length as u64 / page * page;
    let aligned = offset.is_multiple_of(page) && u64::from(start).is_multiple_of(page);
    if !aligned || whole == 0 {
        return None;
    }
    let path = PATH_DESTINATION_DIRECT;
    Some(DiskRequest::Write { fd: fd.as_raw_fd(), offset, start, length: whole as u32, path })
}
