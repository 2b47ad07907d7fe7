//! The extents of a file on its disk (FIEMAP), and the reasons not to read them there.

use dcs_abi::descriptor::Extent;
use dcs_devices::page_cache;
use rustix::fd::{AsFd, BorrowedFd};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Reason why a card cannot have a range of a file.
#[derive(Debug, thiserror::Error)]
pub enum ExtentError {
    /// The file lies on no disk that the card drives.
    #[error("the file is on no disk that the card drives (device {0}:{1})")]
    Disk(u32, u32),
    /// The file system does not tell where its files lie.
    #[error("the file system does not tell where the file lies: {0}")]
    Unknown(#[source] io::Error),
    /// There is no data at this place of the file.
    #[error("the file has a hole at byte {0}")]
    Hole(u64),
    /// Room was allocated there, but nothing was ever written: it reads as zeros, whatever the disk has.
    #[error("the file has room at byte {0} that was never written")]
    Unwritten(u64),
    /// The data are stored among the file system's own (inline, packed tails).
    #[error("the file's data at byte {0} are stored among the file system's own")]
    Inline(u64),
    /// The data are compressed or encrypted on the disk.
    #[error("the file's data at byte {0} are compressed or encrypted on the disk")]
    Encoded(u64),
    /// The data have no place on the disk yet, although they were asked to be written back.
    #[error("the file's data at byte {0} have no place on the disk yet")]
    Delayed(u64),
    /// Other files share these extents: writing them would change those.
    #[error("the file shares its data at byte {0} with other files")]
    Shared(u64),
    /// In more pieces than a command can name.
    #[error("the file is in more than {0} pieces: copy it, so that it lies together")]
    Pieces(usize),
    /// A file system that is not known to keep its files as they are read.
    #[error("a card can have files of ext4 and XFS, and this is on {0}")]
    System(String),
    /// The file's bytes on the disk are not those that are read, or it cannot be written.
    #[error("a card cannot have this file: {0}")]
    Kind(&'static str),
    /// A source that others could change.
    #[error(
        "the file is open for writing, or mapped so, somewhere: close it there, and open it for reading alone"
    )]
    Writers,
    /// A destination that others have open.
    #[error("somebody else has the file open: a card writes to a file that nobody else has open")]
    Open,
    /// A lease is its owner's to take.
    #[error(
        "the file is another user's: only its owner, or a process with CAP_LEASE, can have it held in place"
    )]
    Owner,
    /// It could not be held in place.
    #[error("the file could not be held in place: {0}")]
    Unheld(#[source] io::Error),
    /// A file that shares its blocks with it could not be made.
    #[error("no unnamed file that shares its blocks could be made in the file's folder: {0}")]
    Snapshot(#[source] io::Error),
    /// The kernel keeps what it has cached.
    #[error("the kernel does not let go of what it has cached of the file: somebody has it mapped")]
    Cached,
    /// A block device that is in use.
    #[error("the block device is mounted, or another has it open exclusively: end that first")]
    Claimed,
    /// Another program wanted the file while the card had it.
    #[error("somebody opened the file, or cut it, while the card had it: nobody may meanwhile")]
    Wanted,
    /// Its blocks were moved all the same.
    #[error("the file's blocks were moved while the card had them")]
    Moved,
    /// The program did something to it by the descriptor that it gave.
    #[error("the file was written or cut by the descriptor that the card was given, while the card had it")]
    Changed,
    /// Its time of modification could not be set.
    #[error("the bytes are written, but not the file's time of modification: {0}")]
    Time(#[source] io::Error),
}

impl ExtentError {
    /// The nearest errno, for completions.
    pub(crate) fn errno(&self) -> i32 {
        let system = |error: &io::Error, else_: i32| error.raw_os_error().unwrap_or(else_);
        match self {
            ExtentError::Disk(..) => libc::EXDEV,
            ExtentError::Unknown(error) => system(error, libc::EOPNOTSUPP),
            ExtentError::Hole(_) | ExtentError::Unwritten(_) => libc::ENODATA,
            ExtentError::Inline(_) | ExtentError::Encoded(_) => libc::EOPNOTSUPP,
            ExtentError::System(_) | ExtentError::Kind(_) => libc::EOPNOTSUPP,
            ExtentError::Delayed(_) => libc::EAGAIN,
            ExtentError::Shared(_) | ExtentError::Writers | ExtentError::Open => libc::ETXTBSY,
            ExtentError::Pieces(_) => libc::E2BIG,
            ExtentError::Owner => libc::EACCES,
            ExtentError::Unheld(error) | ExtentError::Snapshot(error) => system(error, libc::EIO),
            ExtentError::Cached | ExtentError::Claimed => libc::EBUSY,
            ExtentError::Wanted => libc::ECANCELED,
            ExtentError::Moved | ExtentError::Changed => libc::ESTALE,
            ExtentError::Time(error) => system(error, libc::EIO),
        }
    }
}

/// Flags of an extent. [linux/fiemap.h]
const LAST: u32 = 1;
const UNKNOWN: u32 = 2;
const DELALLOC: u32 = 4;
const ENCODED: u32 = 8;
const ENCRYPTED: u32 = 0x80;
const NOT_ALIGNED: u32 = 0x100;
const INLINE: u32 = 0x200;
const TAIL: u32 = 0x400;
const UNWRITTEN: u32 = 0x800;
const SHARED: u32 = 0x2000;
/// Write back what is dirty first.
const SYNC: u32 = 1;
/// Extents that are asked for at once.
const EXTENTS_AT_ONCE: usize = 64;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Header {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mapped {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Map {
    header: Header,
    extents: [Mapped; EXTENTS_AT_ONCE],
}

/// The use that is made of extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The card reads them.
    Read,
    /// The card writes them.
    Write,
}

/// Returns the ranges of the device, in bytes and in order, that hold a range of a file. Dirty pages are
/// written back first.
///
/// # Errors
///
/// [`ExtentError`]: a clear answer for each kind of extent that a card cannot have.
pub fn of(
    file: &impl AsFd,
    offset: u64,
    length: u64,
    purpose: Purpose,
    most: usize,
) -> Result<Vec<Extent>, ExtentError> {
    let (mut at, end) = (offset, offset.saturating_add(length));
    let mut found: Vec<Extent> = Vec::new();
    while at < end {
        let map = ask(file.as_fd(), at, end - at).map_err(ExtentError::Unknown)?;
        let count = (map.header.mapped as usize).min(EXTENTS_AT_ONCE);
        for extent in &map.extents[..count] {
            if at >= end {
                break;
            }
            if extent.logical > at || extent.logical.saturating_add(extent.length) <= at {
                return Err(ExtentError::Hole(at));
            }
            check(extent.flags, at, purpose)?;
            let ahead = at - extent.logical;
            let taken = (extent.length - ahead).min(end - at);
            let place = Extent { offset: extent.physical + ahead, length: taken };
            match found.last_mut().filter(|last| last.offset + last.length == place.offset) {
                Some(last) => last.length += taken,
                None => found.push(place),
            }
            if found.len() > most {
                return Err(ExtentError::Pieces(most));
            }
            at += taken;
        }
        let last = map.extents[..count].last().is_none_or(|extent| extent.flags & LAST != 0);
        if at < end && (count == 0 || last) {
            return Err(ExtentError::Hole(at));
        }
    }
    Ok(found)
}

fn check(flags: u32, at: u64, purpose: Purpose) -> Result<(), ExtentError> {
    let has = |bits: u32| flags & bits != 0;
    match () {
        () if has(INLINE | TAIL) => Err(ExtentError::Inline(at)),
        () if has(ENCODED | ENCRYPTED) => Err(ExtentError::Encoded(at)),
        () if has(DELALLOC | UNKNOWN) => Err(ExtentError::Delayed(at)),
        () if has(UNWRITTEN) => Err(ExtentError::Unwritten(at)),
        () if has(NOT_ALIGNED) => Err(ExtentError::Inline(at)),
        () if has(SHARED) && purpose == Purpose::Write => Err(ExtentError::Shared(at)),
        () => Ok(()),
    }
}

fn ask(file: BorrowedFd<'_>, start: u64, length: u64) -> io::Result<Box<Map>> {
    const FIEMAP: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Header>(b'f', 11);
    let header = Header { start, length, flags: SYNC, count: EXTENTS_AT_ONCE as u32, ..Default::default() };
    let mut map = Box::new(Map { header, extents: [Mapped::default(); EXTENTS_AT_ONCE] });
    // SAFETY: FS_IOC_FIEMAP reads a header and writes it and as many extents after it as `count` says
    // (linux/fiemap.h), which is as many as there are.
    unsafe { rustix::ioctl::ioctl(file, rustix::ioctl::Updater::<FIEMAP, Map>::new(&mut map)) }?;
    Ok(map)
}

/// Prepares a file for writing by the card: `length` bytes, each at a written place on the disk. Existing
/// data are overwritten with zeros. The file may be longer.
///
/// # Errors
///
/// Fails if the file cannot be written.
pub fn prepare(file: &File, length: u64) -> io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut at = 0;
    // To the end of its last file system block, all of which the card may write.
    // A file that goes on behind that keeps what it has there.
    let longer = file.metadata()?.len() > length;
    let whole = if longer { length } else { length.next_multiple_of(4096) };
    while at < whole {
        let now = (whole - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..now as usize], at)?;
        at += now;
    }
    if !longer {
        file.set_len(length)?;
    }
    file.sync_data()?;
    page_cache::forget(file.as_fd(), 0, whole)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::path::Path;

    /// A file on a real disk: the build folder's, as tmpfs has no extents.
    fn file() -> File {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
        std::fs::create_dir_all(&folder).unwrap();
        tempfile::tempfile_in(folder).unwrap()
    }

    /// True if this file system tells at all: overlayfs and tmpfs do not.
    fn tells(file: &File) -> bool {
        let told = ask(file.as_fd(), 0, 4096).is_ok();
        if !told {
            println!("skipped: the file system of the build folder does not tell where files lie (FIEMAP)");
        }
        told
    }

    #[test]
    fn written_bytes_have_places_and_holes_are_said() {
        let mut file = file();
        if !tells(&file) {
            return;
        }
        file.write_all(&vec![7; 300_000]).unwrap();
        let places = of(&file, 5000, 200_000, Purpose::Read, 64).unwrap();
        assert_eq!(places.iter().map(|place| place.length).sum::<u64>(), 200_000);
        file.set_len(10 << 20).unwrap();
        assert!(matches!(of(&file, 0, 10 << 20, Purpose::Read, 64), Err(ExtentError::Hole(_))));
        assert!(
            matches!(of(&file, 5 << 20, 1, Purpose::Read, 64), Err(ExtentError::Hole(at)) if at == 5 << 20)
        );
    }

    #[test]
    fn room_that_was_never_written_is_not_data() {
        let file = file();
        let allocated = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 20);
        if !tells(&file) || allocated.is_err() {
            return;
        }
        assert!(matches!(of(&file, 0, 4096, Purpose::Write, 64), Err(ExtentError::Unwritten(0))));
        prepare(&file, 100_000).unwrap();
        assert!(of(&file, 0, 100_000, Purpose::Write, 64).is_ok());
        // A longer file keeps its rest.
        file.write_all_at(&[7; 9000], 0).unwrap();
        file.set_len(9000).unwrap();
        prepare(&file, 5000).unwrap();
        let mut bytes = [1; 9000];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes[..5000].iter().all(|byte| *byte == 0) && bytes[5000..].iter().all(|byte| *byte == 7));
    }

    #[test]
    fn every_kind_of_extent_has_its_answer() {
        let answer = |flags| format!("{:?}", check(flags, 9, Purpose::Write).unwrap_err());
        let cases = [
            (INLINE, "Inline(9)"),
            (TAIL, "Inline(9)"),
            (ENCODED, "Encoded(9)"),
            (ENCRYPTED | ENCODED, "Encoded(9)"),
            (DELALLOC | UNKNOWN, "Delayed(9)"),
            (UNWRITTEN, "Unwritten(9)"),
            (NOT_ALIGNED, "Inline(9)"),
            (SHARED, "Shared(9)"),
        ];
        for (flags, expected) in cases {
            assert_eq!(answer(flags | LAST), expected);
        }
        assert!(check(SHARED, 9, Purpose::Read).is_ok() && check(LAST, 9, Purpose::Write).is_ok());
    }

    #[test]
    fn a_file_system_that_tells_nothing_is_said() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert!(matches!(of(&reader, 0, 1, Purpose::Read, 1), Err(ExtentError::Unknown(_))));
    }
}
