//! Interference with files while the card has them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::Ordering;

use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

use super::pool::{Entry, FILE_MAX, PAGE, Pool, pages, sectors};
use super::tally::Tally;
use crate::files::{XFS, create};
use dcs_testkit::Random;

/// Does something to one or two files. Failures do not matter here (the file system may be full, the file gone), and are counted.
pub fn disturb(pool: &Pool, chance: &mut Random, tally: &Tally) {
    let Some(entry) = pool.any(chance) else { return pool.new_file(chance) };
    let path = pool.path(entry.number);
    let what = chance.below(11);
    if what == 10 {
        // Looking at it changes nothing.
        return count(tally, "opened", File::open(path));
    }
    entry.touched.fetch_add(1, Ordering::SeqCst);
    if what < 7 {
        let Ok(file) = OpenOptions::new().read(true).write(true).open(&path) else { return };
        let size = file.metadata().map_or(0, |metadata| metadata.len()).max(PAGE);
        return change(&file, entry.whose, size, what, (pool, chance, tally));
    }
    match what {
        7 => {
            pool.remove(entry.number);
            pool.new_file(chance);
            tally.add("replaced");
        }
        8 if !pool.is_full() => count(tally, "shared", share(pool, &entry)),
        _ => count(tally, "merged", merge(pool, &entry)),
    }
}

fn count<T>(tally: &Tally, what: &str, done: io::Result<T>) {
    tally.add(if done.is_ok() { what.to_owned() } else { format!("not {what}") });
}

fn change(
    file: &File,
    whose: u64,
    size: u64,
    what: u64,
    (pool, chance, tally): (&Pool, &mut Random, &Tally),
) {
    let (at, length) = (pages(chance, size), pages(chance, size / 2) + PAGE);
    let bytes = || sectors(whose, at, length, 3);
    match what {
        0 => count(tally, "truncated", file.set_len(pages(chance, size))),
        1 => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let done = rustix::fs::fallocate(file, flags, at, length);
            count(tally, "punched", done.map_err(io::Error::from));
        }
        2 => count(tally, "overwritten", file.write_all_at(&bytes(), at)),
        3 => {
            let done = file.write_all_at(&bytes(), at).and_then(|()| file.sync_all());
            count(tally, "overwritten and synced", done);
        }
        4 => {
            let end = size.min(FILE_MAX) / PAGE * PAGE;
            count(tally, "extended", file.write_all_at(&sectors(whose, end, PAGE, 4), end));
        }
        5 => count(tally, "mapped and written", by_mapping(file, whose, at)),
        _ => count(tally, "defragmented", defragment(file, pool)),
    }
}

/// Writes a page through a mapping whose descriptor is closed.
fn by_mapping(file: &File, whose: u64, at: u64) -> io::Result<()> {
    if file.metadata()?.len() < at + PAGE {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let (both, length) = (ProtFlags::READ | ProtFlags::WRITE, PAGE as usize);
    // SAFETY: a new mapping of a page that the file has. Another thread may cut it off meanwhile, which would end this program with SIGBUS;
    // so the kernel writes the bytes, and returns an error then.
    let memory = unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, both, MapFlags::SHARED, file, at) }?;
    let pipe = rustix::pipe::pipe()?;
    rustix::io::write(&pipe.1, &sectors(whose, at, PAGE, 5))?;
    // SAFETY: read(2) into the mapping above.
    unsafe {
        let into = std::slice::from_raw_parts_mut(memory.cast::<std::mem::MaybeUninit<u8>>(), length);
        let done = rustix::io::read(&pipe.0, into).map(drop);
        let _ = rustix::mm::msync(memory, length, MsyncFlags::ASYNC);
        rustix::mm::munmap(memory, length)?;
        done?;
    }
    Ok(())
}

/// Moves a file's blocks elsewhere: its contents are in the blocks of another file afterwards, and that one, with the old blocks, is
/// deleted.
fn defragment(file: &File, pool: &Pool) -> io::Result<()> {
    let path = pool.folder.join(format!("donor{}", pool.number()));
    let donor = create(&path);
    let done = match pool.folder.as_os_str() == XFS {
        true => by_swapping(file, &donor),
        false => by_moving(file, &donor),
    };
    std::fs::remove_file(path)?;
    done
}

/// Moves blocks as e4defrag does: the kernel moves the bytes.
fn by_moving(file: &File, donor: &File) -> io::Result<()> {
    /// struct move_extent. [linux, fs/ext4/ext4.h]
    #[repr(C)]
    struct Move {
        reserved: u32,
        donor: u32,
        from: u64,
        to: u64,
        blocks: u64,
        moved: u64,
    }
    const MOVE_EXT: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Move>(b'f', 15);
    let blocks = file.metadata()?.len() / PAGE;
    rustix::fs::fallocate(donor, FallocateFlags::empty(), 0, blocks * PAGE)?;
    let donor = donor.as_raw_fd() as u32;
    let mut all = Move { reserved: 0, donor, from: 0, to: 0, blocks, moved: 0 };
    // SAFETY: EXT4_IOC_MOVE_EXT reads and writes a struct move_extent.
    unsafe { rustix::ioctl::ioctl(file, rustix::ioctl::Updater::<MOVE_EXT, Move>::new(&mut all)) }?;
    Ok(())
}

/// Moves blocks as xfs_fsr does: the bytes are copied, and the blocks swapped if the file is unchanged.
fn by_swapping(file: &File, donor: &File) -> io::Result<()> {
    /// struct xfs_bstime. [xfsprogs, xfs_fs.h]
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Time {
        seconds: i64,
        nanoseconds: i32,
    }
    /// struct xfs_swapext, with its struct xfs_bstat, of which only the times are checked. [xfsprogs, xfs_fs.h]
    #[repr(C)]
    struct Swap {
        version: i64,
        file: i64,
        donor: i64,
        offset: i64,
        length: i64,
        padding: [u64; 2],
        identity: [u64; 5],
        accessed: Time,
        modified: Time,
        changed: Time,
        rest: [u64; 6],
    }
    const SWAPEXT: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Swap>(b'X', 109);
    const _: () = assert!(size_of::<Swap>() == 192);
    let before = file.metadata()?;
    let mut bytes = vec![0; before.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    donor.write_all_at(&bytes, 0)?;
    donor.sync_all()?;
    let time = |seconds, nanoseconds: i64| Time { seconds, nanoseconds: nanoseconds as i32 };
    let mut swap = Swap {
        version: 0,
        file: file.as_raw_fd().into(),
        donor: donor.as_raw_fd().into(),
        offset: 0,
        length: before.len() as i64,
        padding: [0; 2],
        identity: [0; 5],
        accessed: time(before.atime(), before.atime_nsec()),
        modified: time(before.mtime(), before.mtime_nsec()),
        changed: time(before.ctime(), before.ctime_nsec()),
        rest: [0; 6],
    };
    // SAFETY: XFS_IOC_SWAPEXT reads a struct xfs_swapext, whose descriptors are open.
    unsafe { rustix::ioctl::ioctl(file, rustix::ioctl::Updater::<SWAPEXT, Swap>::new(&mut swap)) }?;
    Ok(())
}

/// Makes a file that shares all blocks with another one; a copy if the file system shares none.
fn share(pool: &Pool, entry: &Entry) -> io::Result<()> {
    let file = File::open(pool.path(entry.number))?;
    let number = pool.number();
    let copy = create(&pool.path(number));
    let done = match rustix::fs::ioctl_ficlone(&copy, &file) {
        Ok(()) => Ok(()),
        Err(_) => io::copy(&mut &file, &mut &copy).map(drop),
    };
    match &done {
        Ok(()) => _ = pool.add(number, entry.whose),
        Err(_) => pool.remove(number),
    }
    done
}

/// Merges a file's blocks with those of another file that has the same bytes. That needs no writable descriptor, and frees the blocks of
/// the second.
fn merge(pool: &Pool, entry: &Entry) -> io::Result<()> {
    /// struct file_dedupe_range with one file_dedupe_range_info. [linux/fs.h]
    #[repr(C)]
    struct Merge {
        offset: u64,
        length: u64,
        count: u16,
        reserved: [u16; 3],
        file: i64,
        at: u64,
        merged: u64,
        status: i32,
        reserved_too: u32,
    }
    /// Part of the structure that the request's number counts: the header alone.
    type Header = [u64; 3];
    const DEDUPE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Header>(0x94, 54);
    let into = File::open(pool.path(entry.number))?;
    let size = into.metadata()?.len();
    let mut bytes = vec![0; size as usize];
    let path = pool.folder.join(format!("same{}", pool.number()));
    let other = create(&path);
    let copied = into.read_exact_at(&mut bytes, 0).and_then(|()| other.write_all_at(&bytes, 0));
    std::fs::remove_file(path)?;
    copied?;
    let (file, length) = (into.as_fd().as_raw_fd().into(), size / PAGE * PAGE);
    let mut merge = Merge {
        offset: 0,
        length,
        count: 1,
        reserved: [0; 3],
        file,
        at: 0,
        merged: 0,
        status: 0,
        reserved_too: 0,
    };
    // SAFETY: FIDEDUPERANGE reads and writes the header and as many infos as it counts (linux/fs.h).
    unsafe { rustix::ioctl::ioctl(&other, rustix::ioctl::Updater::<DEDUPE, Merge>::new(&mut merge)) }?;
    if merge.merged == 0 { Err(io::Error::from_raw_os_error(-merge.status)) } else { Ok(()) }
}
