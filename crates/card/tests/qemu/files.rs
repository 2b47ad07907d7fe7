//! Tests of files of real file systems on the card, in a guest: programs that may move a file's blocks while the card has them, and
//! transfers that are refused.
//!
//! SSDs: ext4, an XFS that shares blocks between files, one that does not, and an ext4 with unusual kinds of files. The card has the second
//! controller of each. One more is the third one's realtime device.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use dcs::card::{Disk, Options, extents};
use dcs::{Backend, Engine, Op, Session, Sink, Source, Status, TransferError};
use dcs_card::card::Config;
use dcs_card::serve::serve;
use dcs_vm::tools::Flavour;
use dcs_vm::{Error, Initramfs, Machine, Network, Nic, Tools, disk};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::kinds::kinds;
use crate::owners::owners;
use crate::rig::MEMORY;
use crate::wire::{self, Line, Wire};

/// Mount points of the file systems.
pub const EXT4: &str = "/mnt/ext4";
pub const XFS: &str = "/mnt/xfs";
pub const FLAT: &str = "/mnt/flat";
pub const ODD: &str = "/mnt/odd";

const LIMIT: Duration = Duration::from_secs(900);
const MB: usize = 1 << 20;

/// Environment variable for the duration of the stress, in seconds.
const SECONDS: &str = "DCS_FILES_SECONDS";

#[test]
fn files_stay_where_they_are_while_the_card_has_them() {
    run("files::the_files_in_the_guest", 0, &[]);
}

#[test]
fn whatever_others_do_to_files_the_card_touches_no_other_file() {
    let seconds = std::env::var(SECONDS).ok().and_then(|value| value.parse().ok()).unwrap_or(20);
    run("stress::the_stress_in_the_guest", seconds, &[EXT4, XFS]);
}

/// Boots a guest with these file systems that runs an ignored test of this program and must report these strings. The file systems must be
/// intact afterwards.
fn run(test: &str, seconds: u64, tells: &[&str]) {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = dcs_vm::turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("nothing")).unwrap();
    disk::ext4(&tools, &path("ext4"), 96 << 20, &path("nothing")).unwrap();
    let odd = ["-O", "encrypt,verity,inline_data"];
    disk::ext4_with(&tools, &path("odd"), 32 << 20, &path("nothing"), &odd).unwrap();
    let say = |text: &str| eprintln!("dcs-vm: {text}");
    for (name, realtime) in [("xfs", None), ("flat", Some(path("realtime")))] {
        match disk::xfs(&tools, &path(name), 300 << 20, realtime.as_deref(), &say) {
            Err(Error::Unavailable(why)) => return say(&format!("skipped: {why}")),
            done => done.unwrap(),
        }
    }
    let card = serve(&path("card"), MEMORY, Config { key: [5; 16], ..Config::default() }).unwrap();
    let mut initramfs = Initramfs::new(&tools).unwrap();
    initramfs
        .modules(&[
            "vfio-pci",
            "vfio_iommu_type1",
            "virtio_net",
            "xfs",
            "xts",
            "cts",
            "cbc",
            "sha512_generic",
        ])
        .unwrap();
    initramfs.program("bin/guest-side", &std::env::current_exe().unwrap()).unwrap();
    let names = ["ext4", "xfs", "flat", "odd", "realtime"];
    let cases: Vec<String> =
        names.iter().zip(0..).map(|(name, at)| format!("dcs{at}*) D={name};;")).collect();
    let script = format!(
        "while [ $(ls -d /dev/nvme[0-9]n1 2>/dev/null | wc -l) -lt {} ]; do sleep 0.1; done\n\
        for d in /dev/nvme[0-9]n1; do\n\
          case $(cat /sys/class/block/$(basename $d)/device/serial) in {} esac\n\
          mkdir -p /mnt/$D; ln -s $d /dev/$D\n\
        done\n\
        mount -t ext4 /dev/ext4 /mnt/ext4; mount -t ext4 /dev/odd /mnt/odd; mount -t xfs /dev/xfs /mnt/xfs\n\
        mount -t xfs -o rtdev=/dev/realtime /dev/flat /mnt/flat\n\
        ip addr add 10.0.3.2/24 dev eth0; ip link set eth0 up\n\
        export {SECONDS}={seconds} RUST_BACKTRACE=1\n\
        guest-side --ignored --exact {test} --nocapture --test-threads 1\n\
        umount /mnt/ext4 && umount /mnt/xfs && umount /mnt/odd && echo @unmounted",
        names.len(),
        cases.join(" ")
    );
    let limit = LIMIT + Duration::from_secs(2 * seconds);
    let machine = Machine::new().memory(768).processors(2).limit(limit).iommu();
    let machine = names.iter().fold(machine, |machine, name| machine.nvme(&path(name)));
    // One cable, with the guest's kernel at one end and the card at the other.
    let machine = machine.nic(Nic::Virtio, &Network::Cable(1)).nic(Nic::Igb, &Network::Cable(1));
    let machine = machine.card(&path("card"));
    let mut guest = machine.start(&tools, &initramfs.finish(&script), folder.path()).unwrap();
    for done in tells {
        println!("{done} {}", guest.wait_for(&format!("@{done}"), limit).unwrap());
    }
    guest.wait_for("@guest's end", limit).unwrap();
    guest.wait_for("@unmounted", LIMIT).unwrap();
    guest.wait(LIMIT).unwrap();
    drop(card);
    disk::check_ext4(&tools, &path("ext4")).unwrap();
    disk::check_ext4(&tools, &path("odd")).unwrap();
    disk::check_xfs(&tools, &path("xfs"), &say).unwrap();
}

/// Returns the controllers, in the order of the SSDs: the kernel's, then the card's.
pub fn controllers() -> Vec<String> {
    dcs_vfio::functions(None, None, Some(0x01_0802))
}

pub fn options() -> Options {
    let controllers = controllers();
    let disk = |(device, pair): (&str, &[String])| Disk {
        function: pair[1].clone(),
        device: Some(PathBuf::from(device)),
    };
    let disks = ["/dev/ext4", "/dev/xfs", "/dev/flat", "/dev/odd"].into_iter().zip(controllers.chunks(2));
    Options { card: None, disks: disks.map(disk).collect(), nics: Vec::new() }
}

/// Makes the card's engine, with its SSDs and its NIC.
pub fn engine() -> Engine {
    let options = Options { nics: vec![wire::nic()], ..options() };
    Engine::builder().backend(Backend::Card).card(options).start().unwrap()
}

pub fn create(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap()
}

/// Returns bytes that differ from place to place.
pub fn data(length: usize, seed: u8) -> Vec<u8> {
    (0..length as u64).map(|n| (n.wrapping_mul(0x9e37_79b9) >> 11 ^ n >> 3) as u8 ^ seed).collect()
}

pub fn read(session: &Session, file: &File, range: std::ops::Range<u64>) -> Result<Vec<u8>, TransferError> {
    let capacity = (range.end - range.start) as usize;
    let transfer = session.transfer(Source::file(file, range), [Op::Md5], Sink::memory(capacity)).unwrap();
    transfer.wait().map(|done| done.memory.unwrap())
}

pub fn write(session: &Session, bytes: &[u8], file: &File, offset: u64) -> Result<(), TransferError> {
    session.transfer(Source::memory(bytes.to_vec()), [], Sink::file(file, offset)).unwrap().wait().map(drop)
}

pub fn bytes_of(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

/// Checks that a transfer was refused before anything was moved, with this errno and these words.
pub fn refused<T>(done: Result<T, TransferError>, errno: i32, words: &str) {
    let error = done.err().unwrap_or_else(|| panic!("it succeeds: {words}"));
    assert_eq!((error.errno, error.completion.bytes_out), (errno, 0), "{error}");
    assert!(error.to_string().contains(words), "{error}");
    assert!(error.advice().contains("docs/server.md"), "{}", error.advice());
}

const ENODATA: i32 = 61;
const EBUSY: i32 = 16;
const ETXTBSY: i32 = 26;
pub const EOPNOTSUPP: i32 = 95;
const ESTALE: i32 = 116;
const ECANCELED: i32 = 125;

#[test]
#[ignore = "runs in the guest of files_stay_where_they_are_while_the_card_has_them"]
fn the_files_in_the_guest() {
    // The kernel's default is 45 s, of which a writer waits an eighth. The card has three quarters to release the file, however busy the
    // machine is.
    std::fs::write("/proc/sys/fs/lease-break-time", "24").unwrap();
    wrong_disks();
    let engine = engine();
    let wire = Wire::new(&engine);
    only_path();
    let session = engine.session().unwrap();
    for folder in [EXT4, XFS, FLAT].map(Path::new) {
        let said = |what: &str| println!("@{} {what}", folder.display());
        ranges(&session, folder);
        said("ranges");
        sources_with_writers(&session, folder, folder == Path::new(XFS));
        said("sources with writers");
        writers_wait(&engine, &session, folder);
        said("writers wait");
        destinations(&session, folder);
        said("destinations");
        given_descriptors(&engine, &session, &wire, folder);
        said("given descriptors");
    }
    kinds(&session);
    println!("@kinds");
    owners(&session);
    println!("@owners");
    block_devices(&session);
    println!("@block devices");
    drop((session, wire, engine));
    println!("@guest's end");
}

fn ranges(session: &Session, folder: &Path) {
    let (path, bytes) = (folder.join("ranges"), data(3 * MB + 500, 1));
    std::fs::write(&path, &bytes).unwrap();
    let file = File::open(&path).unwrap();
    // Bytes that are not written back yet are sent as they are.
    assert!(read(session, &file, 0..bytes.len() as u64).unwrap() == bytes);
    assert!(read(session, &file, 777..1_000_000).unwrap() == bytes[777..1_000_000]);
    // There is nothing beyond the end, even if the last block has room.
    let error = read(session, &file, 3 * MB as u64..3 * MB as u64 + 501).unwrap_err();
    assert_eq!((error.status, error.completion.bytes_out), (Status::OutOfRange, 0), "{error}");
    drop(file);
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let error = write(session, &[1; 1000], &file, 3 * MB as u64).unwrap_err();
    assert_eq!((error.status, error.completion.bytes_out), (Status::CapacityExceeded, 0), "{error}");
    // A write that ends inside a block leaves the rest of it, in one extent or two, with a known length or not.
    let mut expected = bytes.clone();
    write(session, &[1; 1000], &file, 4096).unwrap();
    expected[4096..5096].fill(1);
    let two = Sink::extents(&file, &[(8192, 512), (16_384, 700)]);
    session.transfer(Source::memory(vec![2; 1212]), [], two).unwrap().wait().unwrap();
    expected[8192..8704].fill(2);
    expected[16_384..17_084].fill(2);
    let packed = session.transfer(Source::memory(vec![3; 9000]), [Op::Gzip { level: 1 }], Sink::memory(9000));
    let packed = packed.unwrap().wait().unwrap().memory.unwrap();
    let gzip =
        session.transfer(Source::memory(vec![3; 9000]), [Op::Gzip { level: 1 }], Sink::file(&file, 32_768));
    assert_eq!(gzip.unwrap().wait().unwrap().bytes_out, packed.len() as u64);
    expected[32_768..32_768 + packed.len()].copy_from_slice(&packed);
    assert!(bytes_of(&path) == expected, "every byte that was not written is as it was");
    file.set_len(10 * MB as u64).unwrap();
    drop(file);
    refused(read(session, &File::open(&path).unwrap(), 0..10 * MB as u64), ENODATA, "hole");
}

/// Tests sources that others write to. `shares`: the file system shares blocks between files, so that the card has a snapshot.
fn sources_with_writers(session: &Session, folder: &Path, shares: bool) {
    let (path, bytes) = (folder.join("written"), data(MB, 2));
    std::fs::write(&path, &bytes).unwrap();
    let check = |what: &str| {
        let done = read(session, &File::open(&path).unwrap(), 0..MB as u64);
        match shares {
            true => assert!(done.unwrap() == bytes, "{what}"),
            false => refused(done, ETXTBSY, "open for writing"),
        }
    };
    let writer = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    check("somebody has it open");
    let (whole, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping, of which nothing is touched before it is unmapped.
    let memory = unsafe { rustix::mm::mmap(std::ptr::null_mut(), MB, whole, flags, &writer, 0) }.unwrap();
    drop(writer);
    check("somebody has it mapped, and no descriptor");
    // SAFETY: the mapping above.
    unsafe { rustix::mm::munmap(memory, MB) }.unwrap();
    assert!(read(session, &File::open(&path).unwrap(), 0..MB as u64).unwrap() == bytes);
    // A deleted file keeps its blocks as long as it is open.
    let file = File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(read(session, &file, 0..MB as u64).unwrap() == bytes);
}

fn writers_wait(engine: &Engine, session: &Session, folder: &Path) {
    let path = folder.join("wanted");
    let lines: Vec<u8> =
        (0..MB).flat_map(|number| (number / 9).to_string().into_bytes()).take(4 * MB).collect();
    std::fs::write(&path, &lines).unwrap();
    let file = File::open(&path).unwrap();
    // Far more than the card moves until it must release the file.
    let source = Source::extents(&file, &[(0, 4 * MB as u64); 100]);
    let chain = [Op::Md5, Op::Sha256, Op::Sha512, Op::Gzip { level: 9 }];
    let transfer = session.request(source, chain, Sink::memory(12 * MB)).submit();
    let transfer = transfer.unwrap();
    while engine.statistics().transfers == 0 {
        assert!(!transfer.is_done(), "it ends before another program wants the file");
        std::thread::sleep(Duration::from_millis(10));
    }
    let start = Instant::now();
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    writer.set_len(0).unwrap();
    writer.write_all_at(&[9; 100_000], 0).unwrap();
    println!("a writer waited for {:?}", start.elapsed());
    if folder == Path::new(XFS) {
        // The card has the file's content as it was, whatever happens to the file: nothing waits, and only we cancel.
        transfer.cancel();
        let error = transfer.wait().unwrap_err();
        assert_eq!(error.status, Status::Cancelled, "{error}");
        return;
    }
    let error = transfer.wait().unwrap_err();
    assert_eq!((error.status, error.errno), (Status::PathUnavailable, ECANCELED), "{error}");
    assert!(error.to_string().contains("somebody opened the file"), "{error}");
}

fn destinations(session: &Session, folder: &Path) {
    let (path, bytes) = (folder.join("destination"), data(2 * MB, 4));
    let file = create(&path);
    refused(write(session, &[1; 4096], &sized(&file, 4096), 0), ENODATA, "hole");
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 2 * MB as u64).unwrap();
    refused(write(session, &bytes, &file, 0), ENODATA, "never written");
    extents::prepare(&file, 2 * MB as u64).unwrap();
    // Another descriptor has it open, even if only to read it.
    let other = File::open(&path).unwrap();
    refused(write(session, &bytes, &file, 0), ETXTBSY, "somebody else");
    drop(other);
    // It is mapped: mapped pages cannot be dropped.
    // SAFETY: a new mapping, whose first byte is read before it is unmapped.
    let memory =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), 8192, ProtFlags::READ, MapFlags::SHARED, &file, 0) };
    let memory = memory.unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { memory.cast::<u8>().read_volatile() }, 0);
    refused(write(session, &bytes, &file, 0), EBUSY, "mapped");
    // SAFETY: as above.
    unsafe { rustix::mm::munmap(memory, 8192) }.unwrap();
    // Cached pages, however large, are not what is read afterwards; and the file reports that it was changed.
    let mut expected = vec![0; 2 * MB];
    for (offset, length) in
        [(512, 3584), (4096, 65_536), (MB, 65_536 + 512), (3 * 512, 512), (MB + 4096, 100_000)]
    {
        let mut cached = vec![0; 2 * MB];
        file.read_exact_at(&mut cached, 0).unwrap();
        rustix::fs::futimens(&file, &long_ago()).unwrap();
        write(session, &bytes[offset..offset + length], &file, offset as u64).unwrap();
        expected[offset..offset + length].copy_from_slice(&bytes[offset..offset + length]);
        file.read_exact_at(&mut cached, 0).unwrap();
        assert!(cached == expected, "{offset}+{length}");
        assert!(file.metadata().unwrap().mtime() > 1, "its time of modification");
    }
    // Several at once, to one file; and from one file to another.
    extents::prepare(&file, 2 * MB as u64).unwrap();
    let pieces = bytes.chunks(MB / 4).enumerate().map(|(at, piece)| {
        let to = Sink::file(&file, (at * MB / 4) as u64);
        session.transfer(Source::memory(piece.to_vec()), [], to).unwrap()
    });
    pieces.collect::<Vec<_>>().into_iter().for_each(|piece| _ = piece.wait().unwrap());
    assert!(bytes_of(&path) == bytes);
    drop(file);
    let (from, to) = (File::open(&path).unwrap(), create(&folder.join("copy")));
    extents::prepare(&to, 2 * MB as u64).unwrap();
    session.transfer(Source::file(&from, ..), [Op::Md5], Sink::file(&to, 0)).unwrap().wait().unwrap();
    assert!(bytes_of(&folder.join("copy")) == bytes);
}

/// Tests changes by the program that passed a destination's descriptor, which no other program can make: the transfer then fails, even if
/// the file seems to be where it was.
fn given_descriptors(engine: &Engine, session: &Session, wire: &Wire, folder: &Path) {
    const LENGTH: u64 = MB as u64;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    type Act<'a> = &'a dyn Fn(&File);
    let meanwhile: [(&str, Act<'_>); 4] = [
        ("cuts it", &|file| file.set_len(0).unwrap()),
        ("punches it", &|file| rustix::fs::fallocate(file, punch, 0, LENGTH / 2).unwrap()),
        ("makes it anew", &|file| {
            file.set_len(0).unwrap();
            extents::prepare(file, LENGTH).unwrap();
        }),
        ("writes to it", &|file| file.write_all_at(&[9; 4096], LENGTH / 2).unwrap()),
    ];
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    for (what, act) in meanwhile {
        let file = File::from(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR).unwrap());
        extents::prepare(&file, LENGTH).unwrap();
        rustix::fs::futimens(&file, &long_ago()).unwrap();
        let Line { card, peer } = wire.connect();
        let (first, rest) = (data(MB / 2, 10), data(MB / 2, 11));
        let request = session.request(Source::connection(&card), [Op::Md5], Sink::file(&file, 0));
        let transfer = request.length(LENGTH).submit().unwrap();
        while engine.statistics().transfers == 0 {
            assert!(!transfer.is_done(), "it ends before its peer has said anything");
        }
        wire::give(&peer, &first, Duration::ZERO).unwrap();
        act(&file);
        wire::give(&peer, &rest, Duration::ZERO).unwrap();
        let error = transfer.wait().expect_err(what);
        assert_eq!((error.status, error.errno), (Status::WriteError, ESTALE), "{what}: {error}");
        assert!(error.to_string().contains("by the descriptor that the card was given"), "{what}: {error}");
    }
    // Left alone, it is right, and then others get it.
    let file = File::from(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR).unwrap());
    extents::prepare(&file, LENGTH).unwrap();
    write(session, &data(MB, 12), &file, 0).unwrap();
    let path = folder.join("appears");
    rustix::fs::linkat(
        CWD,
        format!("/proc/self/fd/{}", file.as_raw_fd()),
        CWD,
        &path,
        AtFlags::SYMLINK_FOLLOW,
    )
    .unwrap();
    assert!(bytes_of(&path) == data(MB, 12));
}

fn sized(file: &File, length: u64) -> File {
    file.set_len(length).unwrap();
    file.try_clone().unwrap()
}

fn long_ago() -> rustix::fs::Timestamps {
    let first = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 };
    rustix::fs::Timestamps { last_access: first, last_modification: first }
}

pub fn shell(line: &str) {
    let done = Command::new("/bin/sh").args(["-c", line]).status().unwrap();
    assert!(done.success(), "{line}");
}

fn block_devices(session: &Session) {
    let device = OpenOptions::new().read(true).write(true).open("/dev/flat").unwrap();
    refused(read(session, &device, 0..4096), EBUSY, "mounted");
    refused(write(session, &[1; 4096], &device, 0), EBUSY, "mounted");
    shell("umount /mnt/flat");
    // Bytes not written back yet are read; the kernel then reads what the card writes.
    let (old, new) = (data(MB, 8), data(MB, 9));
    device.write_all_at(&old, 4096).unwrap();
    assert!(read(session, &device, 4096..4096 + MB as u64).unwrap() == old);
    write(session, &new[..MB - 100], &device, 4096).unwrap();
    let mut found = vec![0; MB];
    device.read_exact_at(&mut found, 4096).unwrap();
    assert!(found[..MB - 100] == new[..MB - 100] && found[MB - 100..] == old[MB - 100..]);
    assert!(write(session, &new, &device, 300 * MB as u64 - 4096).is_err(), "beyond its end");
    // A partition: BLKPG, BLKPG_ADD_PARTITION, at 1 MiB.
    partition(&device);
    let part = OpenOptions::new().read(true).write(true).open("/dev/part").unwrap();
    write(session, &new, &part, 0).unwrap();
    device.read_exact_at(&mut found, MB as u64).unwrap();
    rustix::fs::fadvise(&device, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    device.read_exact_at(&mut found, MB as u64).unwrap();
    assert!(found == new, "the partition's first bytes");
    let error = write(session, &new, &part, 16 * MB as u64 - 4096).unwrap_err();
    assert_eq!(error.status, Status::OutOfRange, "{error}");
    // Named as the disk, it would have all of its content at the wrong place.
    let mut wrong = options();
    wrong.disks[2].device = Some("/dev/part".into());
    says(&wrong, "partition");
}

/// Adds a partition of 16 MiB at 1 MiB, as `/dev/part`.
fn partition(disk: &File) {
    /// struct blkpg_partition and blkpg_ioctl_arg. [linux/blkpg.h]
    #[repr(C)]
    struct Partition {
        start: i64,
        length: i64,
        number: i32,
        names: [u8; 128],
    }
    #[repr(C)]
    struct Argument {
        operation: i32,
        flags: i32,
        length: i32,
        data: *mut Partition,
    }
    const BLKPG: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 105);
    let mut partition = Partition { start: MB as i64, length: 16 * MB as i64, number: 1, names: [0; 128] };
    let length = size_of::<Partition>() as i32;
    let argument = Argument { operation: 1, flags: 0, length, data: &mut partition };
    // SAFETY: BLKPG reads a struct blkpg_ioctl_arg, and the partition that it points to.
    unsafe { rustix::ioctl::ioctl(disk, rustix::ioctl::Setter::<BLKPG, Argument>::new(argument)) }.unwrap();
    shell("P=$(readlink -f /dev/flat)p1; while [ ! -b $P ]; do sleep 0.1; done; ln -s $P /dev/part");
}

/// Checks that the engine does not start, and says this.
pub fn says(options: &Options, words: &str) {
    let error =
        Engine::builder().backend(Backend::Card).card(options.clone()).start().unwrap_err().to_string();
    assert!(error.contains(words), "{error}");
}

/// Tests names of a different disk.
fn wrong_disks() {
    let mut wrong = options();
    wrong.disks[0].device = Some("/dev/null".into());
    says(&wrong, "no block device");
    let mut wrong = options();
    wrong.disks[0].device = Some("/dev/xfs".into());
    says(&wrong, "is not the SSD that the card was given: its serial number is dcs1, the card's dcs0");
}

/// Checks that the kernel's own controller of a mounted disk is not taken, since it is the only way to the disk.
fn only_path() {
    for controller in controllers().chunks(2).take(options().disks.len()) {
        let error = dcs_vfio::take(&controller[0]).unwrap_err().to_string();
        assert!(error.contains("is mounted at /mnt/"), "{error}");
        assert_eq!(dcs_vfio::driver(&controller[0]).as_deref(), Some("nvme"));
    }
}
