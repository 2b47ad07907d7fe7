//! The kernel's page cache of a file: what it has in memory, what of that is not on the disk, and how it is dropped.
//!
//! A read with RWF_NOWAIT does not tell what is in memory: the kernel reads the page in, and a fast disk has it there before the
//! read looks.

use std::io;
use std::num::NonZeroU64;

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::Advice;

/// Pages of a range of a file, by where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Pages in memory.
    pub cached: u64,
    /// Pages in memory that are not on the disk yet, or on their way there. A file system in memory has none.
    pub unwritten: u64,
}

/// Counts pages of a range by cachestat(2).
///
/// # Errors
///
/// [`io::ErrorKind::Unsupported`] before Linux 6.5; `EPERM` for a file that this process may neither write nor owns.
pub fn counts(file: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<Counts> {
    if length == 0 {
        // For the kernel this is all up to the end.
        return Ok(Counts { cached: 0, unwritten: 0 });
    }
    // cachestat(2): the number is the same on all architectures but alpha.
    const CACHESTAT: libc::c_long = 451;
    let (range, mut counted) = ([offset, length], [0u64; 5]);
    // SAFETY: struct cachestat_range is an offset and a length; struct cachestat is five numbers, the first three of which count pages:
    // cached, dirty, under writeback.
    let code = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), counted.as_mut_ptr(), 0) };
    match code {
        0 => Ok(Counts { cached: counted[0], unwritten: counted[1] + counted[2] }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the pages of a range that are in memory.
///
/// # Errors
///
/// Fails if the kernel does not tell.
pub fn cached(file: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<u64> {
    match counts(file, offset, length) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => resident(file, offset, length),
        counts => Ok(counts?.cached),
    }
}

/// Has the kernel drop its pages of a range of a file or block device. Returns the pages that stay: they are not on the disk yet,
/// mapped, or in use.
///
/// # Errors
///
/// Fails if the kernel does not tell whether the pages are gone.
pub fn forget(file: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<u64> {
    let page = rustix::param::page_size() as u64;
    let begin = offset / page * page;
    let Some(whole) = NonZeroU64::new(offset.saturating_add(length).next_multiple_of(page) - begin) else {
        return Ok(0);
    };
    let mut stay = 0;
    // Only whole pages are dropped, and only whole folios, which may be larger than what was asked for: then
    // all of the file goes.
    for (offset, length) in [(begin, Some(whole)), (0, None)] {
        rustix::fs::fadvise(file, offset, length, Advice::DontNeed)?;
        stay = cached(file, begin, whole.get())?;
        if stay == 0 {
            break;
        }
    }
    Ok(stay)
}

/// Writes back what is dirty of a block device, and drops all that is cached of it and not mapped.
///
/// # Errors
///
/// Fails without CAP_SYS_ADMIN.
pub fn flush(device: BorrowedFd<'_>) -> io::Result<()> {
    // BLKFLSBUF: _IO(0x12, 97). [linux/fs.h]
    const BLKFLSBUF: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 97);
    // SAFETY: BLKFLSBUF has no argument.
    unsafe { rustix::ioctl::ioctl(device, rustix::ioctl::NoArg::<BLKFLSBUF>::new()) }?;
    Ok(())
}

/// Returns the pages of a range that are in memory, by mincore(2).
fn resident(file: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<u64> {
    let page = rustix::param::page_size();
    // A mapping begins with a page.
    let begin = offset / page as u64 * page as u64;
    let size = usize::try_from(offset.saturating_add(length) - begin)
        .map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    let (null, read, shared) = (std::ptr::null_mut(), libc::PROT_READ, libc::MAP_SHARED);
    // SAFETY: a new mapping, of which no byte is touched; it is unmapped below.
    let memory = unsafe { libc::mmap(null, size, read, shared, file.as_raw_fd(), begin as libc::off_t) };
    if memory == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mut pages = vec![0u8; size.div_ceil(page)];
    // SAFETY: the mapping above, and a byte for each of its pages.
    let code = unsafe { libc::mincore(memory, size, pages.as_mut_ptr()) };
    let error = io::Error::last_os_error();
    // SAFETY: the mapping above, which nobody else has.
    unsafe { libc::munmap(memory, size) };
    if code == 0 { Ok(pages.iter().filter(|&page| page & 1 != 0).count() as u64) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    fn file_of(bytes: usize) -> Option<File> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
        let mut file: File = tempfile::tempfile_in(folder).unwrap();
        if rustix::fs::fstatfs(&file).unwrap().f_type == 0x0102_1994 {
            println!("skipped: tmpfs drops nothing");
            return None;
        }
        file.write_all(&vec![7; bytes]).unwrap();
        file.sync_all().unwrap();
        Some(file)
    }

    #[test]
    fn whole_pages_go_and_mapped_ones_are_told() {
        let Some(file) = file_of(3 << 20) else { return };
        // From somewhere in a page to somewhere in another, amid a folio that may be larger.
        assert_eq!(cached(file.as_fd(), 512, 4096).unwrap(), 2);
        assert_eq!(resident(file.as_fd(), 512, 4096).unwrap(), 2);
        assert_eq!(forget(file.as_fd(), 512, 4096).unwrap(), 0);
        assert_eq!(cached(file.as_fd(), 0, 8192).unwrap(), 0);
        assert_eq!(resident(file.as_fd(), 0, 8192).unwrap(), 0);
        // Mapped pages stay.
        let (null, read, shared) = (std::ptr::null_mut(), libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping of bytes that the file has; it stays until the process ends.
        let memory = unsafe { libc::mmap(null, 8192, read, shared, file.as_raw_fd(), 0) };
        assert!(memory != libc::MAP_FAILED);
        // SAFETY: the first byte of the mapping above.
        assert_eq!(unsafe { memory.cast::<u8>().read_volatile() }, 7);
        assert_ne!(forget(file.as_fd(), 0, 4096).unwrap(), 0);
    }

    #[test]
    fn what_is_not_on_the_disk_is_told() {
        let Some(file) = file_of(3 << 20) else { return };
        let unwritten = || counts(file.as_fd(), 0, 3 << 20).map(|counts| counts.unwritten);
        match unwritten() {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                return println!("skipped: this kernel has no cachestat");
            }
            unwritten => assert_eq!(unwritten.unwrap(), 0),
        }
        // The kernel may have written it by the time that it is asked, but not every time.
        let seen = (0..100).any(|_| {
            file.write_all_at(&[8; 2], 4095).unwrap();
            unwritten().unwrap() > 0
        });
        assert!(seen);
        file.sync_data().unwrap();
        assert_eq!(unwritten().unwrap(), 0);
        // The answer is right however often it is asked: asking reads nothing in.
        for _ in 0..1000 {
            assert_eq!(forget(file.as_fd(), 0, 3 << 20).unwrap(), 0);
        }
    }
}
