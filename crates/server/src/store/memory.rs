//! The parts of a file that the kernel has in memory, and which of them are not on the disk.

use std::fs::File;
use std::io::{self, IoSliceMut};

use rustix::fs::{Advice, SeekFrom, fadvise, seek};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// Bytes of a page of the kernel's.
const PAGE: u64 = 4096;

/// Has the kernel forget what it has of a file in memory, and counts the pages that it does not: those that
/// are not on the disk, and all of a file that is on none.
///
/// # Errors
///
/// The file system can't do that.
pub fn forget(file: &File) -> io::Result<u64> {
    // To look at a page reads it in, but not those behind it then.
    fadvise(file, 0, None, Advice::Random)?;
    fadvise(file, 0, None, Advice::DontNeed)?;
    let length = file.metadata()?.len();
    let (mut at, mut stay) = (0, 0);
    while at < length {
        // Holes are nowhere, and read at once.
        let data = match seek(file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            data => data?,
        };
        let end = seek(file, SeekFrom::Hole(data))?;
        for page in (data / PAGE * PAGE..end.min(length)).step_by(PAGE as usize) {
            let mut byte = [0];
            match preadv2(file, &mut [IoSliceMut::new(&mut byte)], page, ReadWriteFlags::NOWAIT) {
                // It would have to wait for the disk.
                Err(Errno::AGAIN) => {}
                read => stay += u64::from(read? == 1),
            }
        }
        at = end;
    }
    Ok(stay)
}
