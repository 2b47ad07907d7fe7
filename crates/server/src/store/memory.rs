//! Page cache of a file: which of its parts the kernel has in memory, and which of those are not on the disk.

use std::fs::File;
use std::io::{self, IoSliceMut};

use rustix::fs::{Advice, SeekFrom, fadvise, seek};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// Bytes of one of the kernel's pages.
const PAGE: u64 = 4096;

/// Has the kernel drop a file from the page cache. Returns the pages that it keeps: those that are not on the disk, and
/// all pages of a file that is on no disk.
///
/// # Errors
///
/// Fails if the file system can't do that.
pub fn forget(file: &File) -> io::Result<u64> {
    // Reading a page then reads only that page in, not those after it.
    fadvise(file, 0, None, Advice::Random)?;
    fadvise(file, 0, None, Advice::DontNeed)?;
    let length = file.metadata()?.len();
    let (mut at, mut stay) = (0, 0);
    while at < length {
        // Holes have no pages, and reading them takes no time.
        let data = match seek(file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            data => data?,
        };
        let end = seek(file, SeekFrom::Hole(data))?;
        for page in (data / PAGE * PAGE..end.min(length)).step_by(PAGE as usize) {
            let mut byte = [0];
            match preadv2(file, &mut [IoSliceMut::new(&mut byte)], page, ReadWriteFlags::NOWAIT) {
                // The page is not in memory: it would have to be read from the disk.
                Err(Errno::AGAIN) => {}
                read => stay += u64::from(read? == 1),
            }
        }
        at = end;
    }
    Ok(stay)
}
