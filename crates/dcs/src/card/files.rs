//! Checks that a card may have a file: its file system's bytes lie on the disk as they are read, where
//! FIEMAP says.

use super::extents::{ExtentError, Purpose};
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, StatxFlags};

/// File systems that are known to be right, by their magic numbers. [linux/magic.h]
const EXT4: i64 = 0xef53;
pub(super) const XFS: i64 = 0x5846_5342;
/// Others that people have on a disk, for a clear answer.
const OTHERS: [(i64, &str); 6] = [
    (0x9123_683e, "btrfs, whose addresses are not the disk's"),
    (0xf2f5_2010, "f2fs, which may lie on several devices"),
    (0xca45_1a4e, "bcachefs, which may lie on several devices"),
    (0x2fc1_2fc1, "ZFS, which may lie on several devices"),
    (0x0102_1994, "tmpfs, which lies in memory"),
    (0x794c_7630, "an overlay, whose files lie elsewhere"),
];

/// Attributes that statx(2) tells. [linux/stat.h]
const COMPRESSED: u64 = 0x4;
const IMMUTABLE: u64 = 0x10;
const APPEND: u64 = 0x20;
const ENCRYPTED: u64 = 0x800;
const VERITY: u64 = 0x10_0000;
const DAX: u64 = 0x20_0000;
/// In its mask: it tells how direct I/O is to be aligned. [linux/stat.h]
const DIOALIGN: u32 = 0x2000;

/// Flags of an ext4 file. [linux/fs.h, fs/ext4/ext4.h]
const JOURNAL_DATA: u32 = 0x4000;
const INLINE_DATA: u32 = 0x1000_0000;

/// The file system's number.
pub(super) fn system(file: BorrowedFd<'_>) -> Result<i64, ExtentError> {
    let stat = rustix::fs::fstatfs(file).map_err(|errno| ExtentError::Unknown(errno.into()))?;
    Ok(stat.f_type)
}

/// Refuses a file whose bytes on the disk are not those that a reader gets, or which cannot be written.
pub(super) fn check(file: BorrowedFd<'_>, purpose: Purpose) -> Result<(), ExtentError> {
    let system = system(file)?;
    if !matches!(system, EXT4 | XFS) {
        let name = OTHERS.iter().find(|(number, _)| *number == system).map(|(_, name)| (*name).to_owned());
        return Err(ExtentError::System(name.unwrap_or_else(|| format!("number {system:#x}"))));
    }
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::from_bits_retain(DIOALIGN);
    let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted)
        .map_err(|errno| ExtentError::Unknown(errno.into()))?;
    let has = |attribute: u64| stat.stx_attributes.bits() & attribute != 0;
    let write = purpose == Purpose::Write;
    match () {
        () if has(ENCRYPTED) => return Err(ExtentError::Kind("it is encrypted on the disk")),
        () if has(COMPRESSED) => return Err(ExtentError::Kind("it is compressed on the disk")),
        () if has(VERITY) => return Err(ExtentError::Kind("only the kernel verifies it (fs-verity)")),
        () if has(DAX) => return Err(ExtentError::Kind("it is accessed without blocks (DAX)")),
        () if write && has(IMMUTABLE) => return Err(ExtentError::Kind("it is immutable")),
        () if write && has(APPEND) => return Err(ExtentError::Kind("it may only be appended to")),
        () => {}
    }
    match system {
        XFS => check_xfs(file),
        _ => check_ext4(file, (stat.stx_mask & DIOALIGN != 0).then_some(stat.stx_dio_mem_align)),
    }
}

/// `direct`: the alignment of memory for direct I/O, 0 if there is none because the data go through the
/// journal or are in the inode. Kernels before 6.1 do not report it.
fn check_ext4(file: BorrowedFd<'_>, direct: Option<u32>) -> Result<(), ExtentError> {
    const JOURNALLED: ExtentError = ExtentError::Kind("its data go through the journal (data=journal)");
    let flags = ext4_flags(file).map_err(ExtentError::Unknown)?;
    if flags & INLINE_DATA != 0 {
        return Err(ExtentError::Kind("it is small enough to lie in its inode"));
    }
    if flags & JOURNAL_DATA != 0 || direct == Some(0) {
        return Err(JOURNALLED);
    }
    if direct.is_none() && mounted_with(file, "data=journal").map_err(ExtentError::Unknown)? {
        return Err(JOURNALLED);
    }
    Ok(())
}

fn ext4_flags(file: BorrowedFd<'_>) -> std::io::Result<u32> {
    // FS_IOC_GETFLAGS: _IOR('f', 1, long); it writes an int.
    const GETFLAGS: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<libc::c_long>(b'f', 1);
    // SAFETY: FS_IOC_GETFLAGS writes an int, which is shorter than the long of its number (linux/fs.h).
    let flags =
        unsafe { rustix::ioctl::ioctl(file, rustix::ioctl::Getter::<GETFLAGS, libc::c_long>::new()) }?;
    Ok(flags as u32)
}

/// True if the file's file system is mounted with an option of its own.
fn mounted_with(file: BorrowedFd<'_>, option: &str) -> std::io::Result<bool> {
    let device = rustix::fs::fstat(file)?.st_dev;
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let of_it = mounts.lines().filter(|line| line.split(' ').nth(2) == Some(&number));
    let options = of_it.filter_map(|line| line.rsplit(' ').next());
    Ok(options.flat_map(|options| options.split(',')).any(|one| one == option))
}

/// struct fsxattr. [linux/fs.h]
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_on_write_extent_size: u32,
    padding: [u8; 8],
}

fn check_xfs(file: BorrowedFd<'_>) -> Result<(), ExtentError> {
    const GETXATTR: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<Attributes>(b'X', 31);
    const REALTIME: u32 = 1;
    // SAFETY: FS_IOC_FSGETXATTR writes a struct fsxattr and nothing else (linux/fs.h).
    let found = unsafe { rustix::ioctl::ioctl(file, rustix::ioctl::Getter::<GETXATTR, Attributes>::new()) };
    let attributes = found.map_err(|errno| ExtentError::Unknown(errno.into()))?;
    if attributes.flags & REALTIME != 0 {
        return Err(ExtentError::Kind("it lies on the file system's realtime device"));
    }
    Ok(())
}
