//! Drops the kernel's page cache of a range that a card writes, and checks that it is gone.

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::Advice;
use std::io;
use std::num::NonZeroU64;

/// Has the kernel drop its cached pages of a range of a file or block device. Returns false if some stay,
/// since they are mapped or dirty.
///
/// # Errors
///
/// Fails if the kernel does not report whether the pages are gone.
pub(super) fn forget(file: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<bool> {
    let page = rustix::param::page_size() as u64;
    let begin = offset / page * page;
    let Some(whole) = NonZeroU64::new(offset.saturating_add(length).next_multiple_of(page) - begin) else {
        return Ok(true);
    };
    // Only whole pages are dropped, and only whole folios, which may be larger than what was asked for: then
    // all of the file goes.
    for (offset, length) in [(begin, Some(whole)), (0, None)] {
        rustix::fs::fadvise(file, offset, length, Advice::DontNeed)?;
        if !is_cached(file, begin, whole.get())? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Writes back what is dirty of a block device, and drops all that is cached of it and not mapped; needs
/// CAP_SYS_ADMIN.
pub(super) fn flush(device: BorrowedFd<'_>) -> io::Result<()> {
    // BLKFLSBUF: _IO(0x12, 97). [linux/fs.h]
    const BLKFLSBUF: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 97);
    // SAFETY: BLKFLSBUF has no argument.
    unsafe { rustix::ioctl::ioctl(device, rustix::ioctl::NoArg::<BLKFLSBUF>::new()) }?;
    Ok(())
}

/// True if the page cache has any page of a range.
fn is_cached(file: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<bool> {
    // cachestat(2): the number is the same on all architectures but alpha.
    const CACHESTAT: libc::c_long = 451;
    let (range, mut counted) = ([offset, length], [0u64; 5]);
    // SAFETY: struct cachestat_range is an offset and a length, struct cachestat five numbers, of which the
    // first counts cached pages.
    let code = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), counted.as_mut_ptr(), 0) };
    match (code, io::Error::last_os_error()) {
        (0, _) => Ok(counted[0] > 0),
        // Before 6.5.
        (_, error) if error.raw_os_error() == Some(libc::ENOSYS) => is_resident(file, offset, length),
        (_, error) => Err(error),
    }
}

/// The same by mincore(2).
fn is_resident(file: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<bool> {
    let size = usize::try_from(length).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    let (null, read, shared) = (std::ptr::null_mut(), libc::PROT_READ, libc::MAP_SHARED);
    // SAFETY: a new mapping, of which no byte is touched; it is unmapped below.
    let memory = unsafe { libc::mmap(null, size, read, shared, file.as_raw_fd(), offset as libc::off_t) };
    if memory == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mut pages = vec![0u8; size.div_ceil(rustix::param::page_size())];
    // SAFETY: the mapping above, and a byte for each of its pages.
    let code = unsafe { libc::mincore(memory, size, pages.as_mut_ptr()) };
    let error = io::Error::last_os_error();
    // SAFETY: the mapping above, which nobody else has.
    unsafe { libc::munmap(memory, size) };
    if code == 0 { Ok(pages.iter().any(|page| page & 1 != 0)) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::path::Path;

    #[test]
    fn whole_pages_go_and_mapped_ones_are_told() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
        let mut file: File = tempfile::tempfile_in(folder).unwrap();
        file.write_all(&vec![7; 3 << 20]).unwrap();
        file.sync_all().unwrap();
        // From somewhere in a page to somewhere in another, amid a folio that may be larger.
        assert!(is_cached(file.as_fd(), 512, 4096).unwrap());
        assert!(is_resident(file.as_fd(), 0, 8192).unwrap());
        if rustix::fs::fstatfs(&file).unwrap().f_type == 0x0102_1994 {
            println!("skipped: tmpfs drops nothing");
            return;
        }
        assert!(forget(file.as_fd(), 512, 4096).unwrap());
        assert!(!is_cached(file.as_fd(), 0, 8192).unwrap() && !is_resident(file.as_fd(), 0, 8192).unwrap());
        // Mapped pages stay.
        let (null, read, shared) = (std::ptr::null_mut(), libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping of bytes that the file has; it stays until the process ends.
        let memory = unsafe { libc::mmap(null, 8192, read, shared, file.as_raw_fd(), 0) };
        assert!(memory != libc::MAP_FAILED);
        // SAFETY: the first byte of the mapping above.
        assert_eq!(unsafe { memory.cast::<u8>().read_volatile() }, 7);
        assert!(!forget(file.as_fd(), 0, 4096).unwrap());
    }
}
