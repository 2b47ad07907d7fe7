//! Tests of files that a card cannot have: their bytes on the disk are not those that are read, or they must not be written.
//!
//! Not available here: DAX files, which no NVMe SSD offers, and compressed ones, which neither ext4 nor XFS has.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use dcs::Session;

use crate::files::{EOPNOTSUPP, EXT4, FLAT, ODD, create, data, read, refused, shell, write};

const MB: usize = 1 << 20;

/// Flags of a file (FS_IOC_SETFLAGS). [linux/fs.h]
const EXTENTS: usize = 0x8_0000;
const IMMUTABLE: usize = 0x10;
const APPEND: usize = 0x20;
const JOURNALLED: usize = 0x4000;

/// Tests all kinds. Changes the mounts of ext4.
pub fn kinds(session: &Session) {
    elsewhere(session);
    unwritable(session);
    inline(session);
    verity(session);
    realtime(session);
    journalled(session);
    encrypted(session);
}

fn set_flags(file: &File, flags: usize) {
    // FS_IOC_SETFLAGS: _IOW('f', 2, long), of which an int is read.
    const SETFLAGS: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<usize>(b'f', 2);
    // SAFETY: FS_IOC_SETFLAGS reads an int.
    unsafe { rustix::ioctl::ioctl(file, rustix::ioctl::Setter::<SETFLAGS, usize>::new(flags)) }.unwrap();
}

fn both(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn elsewhere(session: &Session) {
    let elsewhere = create(Path::new("/tmp/elsewhere"));
    elsewhere.write_all_at(&[1; 5000], 0).unwrap();
    refused(read(session, &elsewhere, 0..5000), 18, "on no disk that the card drives");
}

/// Tests files that the kernel allows to be written only through descriptors that were opened before.
fn unwritable(session: &Session) {
    let path = Path::new(ODD).join("unwritable");
    std::fs::write(&path, data(MB, 3)).unwrap();
    let file = both(&path);
    for (flag, words) in [(IMMUTABLE, "immutable"), (APPEND, "appended")] {
        set_flags(&file, EXTENTS | flag);
        refused(write(session, &[1; 4096], &file, 0), EOPNOTSUPP, words);
    }
    set_flags(&file, EXTENTS);
    write(session, &[1; 4096], &file, 0).unwrap();
}

fn inline(session: &Session) {
    let path = Path::new(ODD).join("inline");
    std::fs::write(&path, "a few bytes").unwrap();
    refused(read(session, &File::open(&path).unwrap(), 0..11), EOPNOTSUPP, "lie in its inode");
    refused(write(session, &[1; 11], &both(&path), 0), EOPNOTSUPP, "lie in its inode");
}

/// Tests a file whose reads the kernel compares with its tree of hashes; the card does not.
fn verity(session: &Session) {
    /// struct fsverity_enable_arg. [linux/fsverity.h]
    #[repr(C)]
    struct Enable {
        version: u32,
        algorithm: u32,
        block_size: u32,
        salt_size: u32,
        salt: u64,
        signature_size: u32,
        reserved: u32,
        signature: u64,
        more: [u64; 11],
    }
    const ENABLE: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<Enable>(b'f', 133);
    let path = Path::new(ODD).join("verity");
    std::fs::write(&path, data(MB, 4)).unwrap();
    let file = File::open(&path).unwrap();
    assert!(read(session, &file, 0..4096).unwrap() == data(MB, 4)[..4096]);
    let (version, algorithm, block_size) = (1, 1, 4096);
    let enable = Enable {
        version,
        algorithm,
        block_size,
        salt_size: 0,
        salt: 0,
        signature_size: 0,
        reserved: 0,
        signature: 0,
        more: [0; 11],
    };
    // SAFETY: FS_IOC_ENABLE_VERITY reads a struct fsverity_enable_arg, in which there are no pointers.
    unsafe { rustix::ioctl::ioctl(&file, rustix::ioctl::Setter::<ENABLE, Enable>::new(enable)) }.unwrap();
    refused(read(session, &file, 0..4096), EOPNOTSUPP, "fs-verity");
}

/// Tests a file on a device other than the one that its file system is named by.
fn realtime(session: &Session) {
    /// struct fsxattr. [linux/fs.h]
    #[repr(C)]
    struct Attributes {
        flags: u32,
        rest: [u32; 6],
    }
    const SETXATTR: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<Attributes>(b'X', 32);
    let path = Path::new(FLAT).join("realtime");
    let file = create(&path);
    let attributes = Attributes { flags: 1, rest: [0; 6] };
    // SAFETY: FS_IOC_FSSETXATTR reads a struct fsxattr; FS_XFLAG_REALTIME alone is set.
    unsafe { rustix::ioctl::ioctl(&file, rustix::ioctl::Setter::<SETXATTR, Attributes>::new(attributes)) }
        .unwrap();
    file.write_all_at(&data(MB, 5), 0).unwrap();
    refused(write(session, &[1; 4096], &file, 0), EOPNOTSUPP, "realtime device");
    drop(file);
    refused(read(session, &File::open(&path).unwrap(), 0..4096), EOPNOTSUPP, "realtime device");
}

fn journalled(session: &Session) {
    let path = Path::new(EXT4).join("journalled");
    let file = create(&path);
    set_flags(&file, EXTENTS | JOURNALLED);
    file.write_all_at(&data(MB, 5), 0).unwrap();
    drop(file);
    refused(read(session, &File::open(&path).unwrap(), 0..4096), EOPNOTSUPP, "journal");
    // The whole file system, mounted differently.
    shell("umount /mnt/ext4 && mount -t ext4 -o data=journal /dev/ext4 /mnt/ext4");
    std::fs::write(&path, data(MB, 6)).unwrap();
    refused(read(session, &File::open(&path).unwrap(), 0..4096), EOPNOTSUPP, "journal");
}

fn encrypted(session: &Session) {
    shell("umount /mnt/odd && mount -t ext4 -o test_dummy_encryption /dev/odd /mnt/odd");
    std::fs::create_dir("/mnt/odd/secrets").unwrap();
    let path = Path::new("/mnt/odd/secrets/one");
    std::fs::write(path, data(MB, 7)).unwrap();
    refused(read(session, &File::open(path).unwrap(), 0..4096), EOPNOTSUPP, "encrypted");
    let file = both(path);
    refused(write(session, &[1; 4096], &file, 0), EOPNOTSUPP, "encrypted");
    drop(file);
    assert!(std::fs::read(path).unwrap() == data(MB, 7));
}
