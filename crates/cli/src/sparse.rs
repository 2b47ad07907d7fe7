//! Holes: parts of a file that take no room and read as zeros. A copy of such a file has them too.

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::unistd::{Whence, lseek};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// Bytes compared with zeros at a time.
const PIECE: usize = 1 << 20;

/// Returns the runs of data of a file between two offsets, as (offset, length). Moves the file's position.
pub fn data(file: &File, start: u64, end: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut runs = Vec::new();
    let mut at = start;
    while at < end {
        let first = match seek(file, at, Whence::SeekData) {
            // There is only a hole up to the end.
            Err(Errno::ENXIO) => break,
            // This file system can't tell, so all of it counts as data.
            Err(Errno::EINVAL | Errno::EOPNOTSUPP) => at,
            found => found?,
        };
        let last = match seek(file, first, Whence::SeekHole) {
            Err(Errno::ENXIO | Errno::EINVAL | Errno::EOPNOTSUPP) => end,
            found => found?,
        };
        if first >= end {
            break;
        }
        let last = last.min(end);
        runs.push((first, last - first));
        at = last;
    }
    Ok(runs)
}

fn seek(file: &File, at: u64, whence: Whence) -> Result<u64, Errno> {
    let at = at.try_into().map_err(|_| Errno::EOVERFLOW)?;
    lseek(file.as_fd(), at, whence).map(|at| at as u64)
}

/// Returns the holes between runs of data, up to `end`.
pub fn holes(runs: &[(u64, u64)], start: u64, end: u64) -> Vec<(u64, u64)> {
    let mut holes = Vec::new();
    let mut at = start;
    for (first, length) in runs.iter().copied().chain([(end, 0)]) {
        if first > at {
            holes.push((at, first - at));
        }
        at = first + length;
    }
    holes
}

/// Frees a range if it holds nothing but zeros: a writer may have used it since the holes were found.
pub fn dig(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let mut piece = vec![0; PIECE.min(length as usize)];
    let mut done = 0;
    while done < length {
        let wanted = piece.len().min((length - done) as usize);
        file.read_exact_at(&mut piece[..wanted], offset + done)?;
        if piece[..wanted].iter().all(|byte| *byte == 0) {
            let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            match fallocate(file, flags, (offset + done) as i64, wanted as i64) {
                // Without holes the file is just as right, but larger.
                Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => return Ok(()),
                result => result?,
            }
        }
        done += wanted as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_what_lies_between() {
        assert_eq!(holes(&[(0, 4), (8, 2)], 0, 12), [(4, 4), (10, 2)]);
        assert_eq!(holes(&[(4, 4)], 4, 8), []);
        assert_eq!(holes(&[], 3, 5), [(3, 2)]);
        assert_eq!(holes(&[], 0, 0), []);
    }

    #[test]
    fn what_was_written_meanwhile_is_not_dug_away() {
        let file = tempfile::tempfile().unwrap();
        let end = 3 * PIECE as u64;
        file.write_all_at(&vec![0; 3 * PIECE], 0).unwrap();
        file.write_all_at(b"new", PIECE as u64 + 5).unwrap();
        dig(&file, 0, end).unwrap();
        assert_eq!(file.metadata().unwrap().len(), end);
        let mut word = [0; 3];
        file.read_exact_at(&mut word, PIECE as u64 + 5).unwrap();
        assert_eq!(&word, b"new");
        let left = data(&file, 0, end).unwrap();
        assert!(left.iter().map(|(_, length)| length).sum::<u64>() <= PIECE as u64, "{left:?}");
    }
}
