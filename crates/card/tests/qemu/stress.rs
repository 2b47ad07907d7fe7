//! Others truncate, punch, extend, overwrite, map, move, share, merge and delete files while the card reads and writes them.
//!
//! Every 512 bytes of every file say whose they are, which of its they are, and when they were written. No byte of another file may
//! come out of a file, and none may get into one.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dcs::card::extents;
use dcs::{Op, Session, Sink, Source, Status, TransferError};
use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

use crate::files::{EXT4, XFS, create, engine};

const SECTOR: usize = 512;
const PAGE: u64 = 4096;
/// Bytes of a file at most.
const MOST: u64 = 1 << 20;
/// Files that are there at once.
const FILES: usize = 24;

/// Numbers that seem to be chance, and are the same every time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end.max(1)
    }

    fn pages(&mut self, end: u64) -> u64 {
        self.below(end / PAGE) * PAGE
    }
}

/// Sectors from a place of a file on. `whose`: the number under which its contents were made.
fn sectors(whose: u64, offset: u64, length: u64, version: u64) -> Vec<u8> {
    let first = offset / SECTOR as u64;
    let mut bytes = vec![0; length as usize];
    for (index, sector) in (first..).zip(bytes.chunks_mut(SECTOR)) {
        let sum = whose.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index.rotate_left(32) ^ version;
        for (at, word) in [whose, index, version, sum].into_iter().enumerate() {
            sector[at * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        (0..4).for_each(|double| sector.copy_within(..32 << double, 32 << double));
    }
    bytes
}

/// The versions of sectors, all of which must be that file's: those of a hole have none.
fn versions(bytes: &[u8], whose: u64, offset: u64, what: &str) -> Vec<Option<u64>> {
    let word = |sector: &[u8], at: usize| u64::from_le_bytes(sector[at * 8..][..8].try_into().unwrap());
    let one = |(at, sector): (usize, &[u8])| {
        let (version, place) = (word(sector, 2), offset + (at * SECTOR) as u64);
        let right = sectors(whose, place, SECTOR as u64, version);
        if sector == [0; SECTOR] {
            return None;
        }
        let (found, index) = (word(sector, 0), word(sector, 1));
        assert!(
            sector == right,
            "{what}: at {place} of {whose} is sector {index} of {found}, version {version}"
        );
        Some(version)
    };
    bytes.chunks(SECTOR).enumerate().map(one).collect()
}

/// The files of a folder, by their numbers: whose their contents are, and how often somebody was about to change them.
struct Pool {
    folder: PathBuf,
    files: Mutex<HashMap<u64, Entry>>,
    next: AtomicU64,
}

#[derive(Clone)]
struct Entry {
    number: u64,
    whose: u64,
    touched: Arc<AtomicU64>,
}

impl Pool {
    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("file{number}"))
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn add(&self, number: u64, whose: u64) -> Entry {
        let entry = Entry { number, whose, touched: Arc::default() };
        self.files.lock().unwrap().insert(number, entry.clone());
        entry
    }

    fn any(&self, chance: &mut Chance) -> Option<Entry> {
        let files = self.files.lock().unwrap();
        let mut numbers: Vec<&u64> = files.keys().collect();
        numbers.sort();
        let number = **numbers.get(chance.below(numbers.len() as u64) as usize)?;
        Some(files[&number].clone())
    }

    fn remove(&self, number: u64) {
        self.files.lock().unwrap().remove(&number);
        let _ = std::fs::remove_file(self.path(number));
    }

    fn is_full(&self) -> bool {
        self.files.lock().unwrap().len() >= FILES
    }

    /// A new file of the kernel's, in blocks that others have left.
    fn new_file(&self, chance: &mut Chance) {
        let number = self.number();
        let bytes = sectors(number, 0, chance.pages(MOST) + PAGE, 1);
        match std::fs::write(self.path(number), bytes) {
            Ok(()) => _ = self.add(number, number),
            Err(_) => self.remove(number),
        }
    }
}

#[derive(Default)]
struct Counts {
    read: AtomicU64,
    written: AtomicU64,
    copied: AtomicU64,
    refused: AtomicU64,
    cancelled: AtomicU64,
    changed: AtomicU64,
}

impl Counts {
    /// Everything has been done at least once: on a machine with much else to do that may take longer than it was given.
    fn all_tried(&self) -> bool {
        let Counts { read, written, copied, changed, .. } = self;
        [read, written, copied, changed].iter().all(|count| count.load(Ordering::Relaxed) > 0)
    }

    fn failed(&self, error: &TransferError, what: &str) {
        const ECANCELED: i32 = 125;
        let expected =
            matches!(error.status, Status::PathUnavailable | Status::OutOfRange | Status::CapacityExceeded);
        assert!(expected, "{what}: {error}");
        let count = if error.errno == ECANCELED { &self.cancelled } else { &self.refused };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
#[ignore = "runs in the guest of whatever_others_do_to_files_the_card_touches_no_other_file"]
fn the_stress_in_the_guest() {
    let seconds: u64 = std::env::var("DCS_FILES_SECONDS").unwrap().parse().unwrap();
    std::fs::write("/proc/sys/fs/lease-break-time", "8").unwrap();
    let engine = engine();
    for folder in [EXT4, XFS].map(Path::new) {
        let pool = Pool { folder: folder.into(), files: Mutex::default(), next: AtomicU64::new(1) };
        let counts = Counts::default();
        // Nobody touches these.
        let bystanders: Vec<u64> = (0..8).map(|at| 1 << 32 | at).collect();
        for number in &bystanders {
            std::fs::write(pool.path(*number), sectors(*number, 0, MOST / 2, 7)).unwrap();
        }
        let mut chance = Chance(0x5eed);
        (0..FILES / 2).for_each(|_| pool.new_file(&mut chance));
        let end = Instant::now() + Duration::from_secs(seconds) / 2;
        std::thread::scope(|scope| {
            for seed in 1..=3u64 {
                let session = engine.session().unwrap();
                let (pool, counts) = (&pool, &counts);
                scope.spawn(move || {
                    let mut chance = Chance(seed << 40 | 1);
                    while Instant::now() < end || !counts.all_tried() {
                        match chance.below(3) {
                            0 => write(&session, pool, &mut chance, counts),
                            _ => read(&session, pool, &mut chance, counts),
                        }
                    }
                });
            }
            for seed in 1..=2u64 {
                let (pool, counts) = (&pool, &counts);
                scope.spawn(move || {
                    let mut chance = Chance(seed << 20 | 1);
                    while Instant::now() < end || !counts.all_tried() {
                        disturb(pool, &mut chance);
                        counts.changed.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        // From the disk, not from what the kernel has cached.
        rustix::fs::sync();
        std::fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        for entry in pool.files.lock().unwrap().values() {
            let bytes = std::fs::read(pool.path(entry.number)).unwrap();
            versions(&bytes[..bytes.len() / SECTOR * SECTOR], entry.whose, 0, "afterwards");
        }
        for number in bystanders {
            let bytes = std::fs::read(pool.path(number)).unwrap();
            assert!(bytes == sectors(number, 0, MOST / 2, 7), "a file that nobody touched");
        }
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { read, written, copied, refused, cancelled, changed } = &counts;
        println!(
            "@{}: {} read, {} written, {} copied, {} refused, {} cancelled, {} changes",
            folder.display(),
            count(read),
            count(written),
            count(copied),
            count(refused),
            count(cancelled),
            count(changed),
        );
    }
    drop(engine);
    println!("@guest's end");
}

/// The card reads a part of a file.
fn read(session: &Session, pool: &Pool, chance: &mut Chance, counts: &Counts) {
    let Some(entry) = pool.any(chance) else { return };
    let Ok(file) = File::open(pool.path(entry.number)) else { return };
    let size = file.metadata().map_or(0, |metadata| metadata.len()) / SECTOR as u64;
    let begin = chance.below(size) * SECTOR as u64;
    let length = (chance.below(size) + 1) * SECTOR as u64;
    let source = Source::file(&file, begin..begin + length);
    match session.transfer(source, [Op::Crc32c], Sink::memory(length as usize)).unwrap().wait() {
        Ok(done) => {
            versions(&done.memory.unwrap(), entry.whose, begin, "read by the card");
            counts.read.fetch_add(1, Ordering::Relaxed);
        }
        Err(error) => counts.failed(&error, "reading"),
    }
}

/// The card writes a file, from memory or from another file.
fn write(session: &Session, pool: &Pool, chance: &mut Chance, counts: &Counts) {
    if pool.is_full() {
        let Some(entry) = pool.any(chance) else { return };
        return pool.remove(entry.number);
    }
    let copied = pool.any(chance).filter(|_| chance.below(2) == 0);
    let from = copied.as_ref().and_then(|entry| File::open(pool.path(entry.number)).ok());
    let number = pool.number();
    let whose = copied.as_ref().filter(|_| from.is_some()).map_or(number, |entry| entry.whose);
    let length = match &from {
        Some(file) => file.metadata().map_or(0, |metadata| metadata.len()) / PAGE * PAGE,
        None => chance.pages(MOST) + PAGE,
    };
    let file = create(&pool.path(number));
    // From here on others come for it.
    let entry = pool.add(number, whose);
    if length == 0 || extents::prepare(&file, length).is_err() {
        return pool.remove(number);
    }
    let source = match &from {
        Some(from) => Source::file(from, ..length),
        None => Source::memory(sectors(whose, 0, length, number)),
    };
    match session.transfer(source, [Op::Md5], Sink::file(&file, 0)).unwrap().wait() {
        Ok(_) => {
            let mut bytes = vec![0; length as usize];
            let all = file.read_exact_at(&mut bytes, 0).is_ok();
            let untouched = entry.touched.load(Ordering::SeqCst) == 0;
            let found = versions(&bytes, whose, 0, "written by the card");
            if untouched {
                let right = |version: &Option<u64>| from.is_some() || *version == Some(number);
                assert!(all && found.iter().all(right), "what was written is not what is read");
            }
            let count = if from.is_some() { &counts.copied } else { &counts.written };
            count.fetch_add(1, Ordering::Relaxed);
        }
        Err(error) => {
            counts.failed(&error, "writing");
            pool.remove(number);
        }
    }
}

/// Somebody does something to a file, or to two. What comes of it does not matter here: the file system may be full, the file gone.
fn disturb(pool: &Pool, chance: &mut Chance) {
    let Some(entry) = pool.any(chance) else { return pool.new_file(chance) };
    let path = pool.path(entry.number);
    let what = chance.below(11);
    if what == 10 {
        // To look at it changes nothing.
        drop(File::open(path));
        return;
    }
    entry.touched.fetch_add(1, Ordering::SeqCst);
    if what < 7 {
        let Ok(file) = OpenOptions::new().read(true).write(true).open(&path) else { return };
        let size = file.metadata().map_or(0, |metadata| metadata.len()).max(PAGE);
        return change(&file, entry.whose, size, what, (pool, chance));
    }
    match what {
        7 => {
            pool.remove(entry.number);
            pool.new_file(chance);
        }
        8 if !pool.is_full() => share(pool, &entry),
        _ => merge(pool, &entry),
    }
}

fn change(file: &File, whose: u64, size: u64, what: u64, (pool, chance): (&Pool, &mut Chance)) {
    let (at, length) = (chance.pages(size), chance.pages(size / 2) + PAGE);
    let bytes = || sectors(whose, at, length, 3);
    match what {
        0 => _ = file.set_len(chance.pages(size)),
        1 => {
            _ = rustix::fs::fallocate(
                file,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                at,
                length,
            )
        }
        2 => _ = file.write_all_at(&bytes(), at),
        3 => {
            let _ = file.write_all_at(&bytes(), at);
            let _ = file.sync_all();
        }
        4 => {
            let end = size.min(MOST);
            let _ = file.write_all_at(&sectors(whose, end / PAGE * PAGE, PAGE, 4), end / PAGE * PAGE);
        }
        5 => by_mapping(file, whose, at),
        _ => defragment(file, size, pool),
    }
}

/// Writes a page by a mapping whose descriptor is closed.
fn by_mapping(file: &File, whose: u64, at: u64) {
    if file.metadata().map_or(0, |metadata| metadata.len()) < at + PAGE {
        return;
    }
    let (both, length) = (ProtFlags::READ | ProtFlags::WRITE, PAGE as usize);
    // SAFETY: a new mapping of a page that the file has. It may be cut off by another thread meanwhile, which ends this
    // program by SIGBUS; so the bytes are written by the kernel, which answers with an error then.
    let Ok(memory) =
        (unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, both, MapFlags::SHARED, file, at) })
    else {
        return;
    };
    let pipe = rustix::pipe::pipe().unwrap();
    rustix::io::write(&pipe.1, &sectors(whose, at, PAGE, 5)).unwrap();
    // SAFETY: read(2) into the mapping above.
    unsafe {
        let into = std::slice::from_raw_parts_mut(memory.cast::<std::mem::MaybeUninit<u8>>(), length);
        let _ = rustix::io::read(&pipe.0, into);
        let _ = rustix::mm::msync(memory, length, MsyncFlags::ASYNC);
        let _ = rustix::mm::munmap(memory, length);
    }
}

/// Moves a file's blocks elsewhere, as e4defrag does.
fn defragment(file: &File, size: u64, pool: &Pool) {
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
    let path = pool.folder.join(format!("donor{}", pool.number()));
    let donor = create(&path);
    let blocks = size / PAGE;
    if rustix::fs::fallocate(&donor, FallocateFlags::empty(), 0, blocks * PAGE).is_ok() {
        let donor = donor.as_raw_fd() as u32;
        let mut all = Move { reserved: 0, donor, from: 0, to: 0, blocks, moved: 0 };
        // SAFETY: EXT4_IOC_MOVE_EXT reads and writes a struct move_extent; other file systems do not know it.
        let _ =
            unsafe { rustix::ioctl::ioctl(file, rustix::ioctl::Updater::<MOVE_EXT, Move>::new(&mut all)) };
    }
    let _ = std::fs::remove_file(path);
}

/// Makes a file that shares all blocks with another one; where the file system shares none, a copy.
fn share(pool: &Pool, entry: &Entry) {
    let Ok(file) = File::open(pool.path(entry.number)) else { return };
    let number = pool.number();
    let copy = create(&pool.path(number));
    let done = match rustix::fs::ioctl_ficlone(&copy, &file) {
        Ok(()) => Ok(()),
        Err(_) => std::io::copy(&mut &file, &mut &copy).map(drop),
    };
    match done {
        Ok(()) => _ = pool.add(number, entry.whose),
        Err(_) => pool.remove(number),
    }
}

/// Has the file system merge the blocks of a file with those of another one that has the same bytes. That needs no descriptor that
/// may write, and frees the blocks of the second.
fn merge(pool: &Pool, entry: &Entry) {
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
    /// The number of the request counts the header alone.
    type Header = [u64; 3];
    const DEDUPE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Header>(0x94, 54);
    let Ok(into) = File::open(pool.path(entry.number)) else { return };
    let size = into.metadata().map_or(0, |metadata| metadata.len());
    let mut bytes = vec![0; size as usize];
    let other = create(&pool.folder.join(format!("same{}", pool.number())));
    if into.read_exact_at(&mut bytes, 0).is_ok() && other.write_all_at(&bytes, 0).is_ok() {
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
        let _ =
            unsafe { rustix::ioctl::ioctl(&other, rustix::ioctl::Updater::<DEDUPE, Merge>::new(&mut merge)) };
    }
    let _ = std::fs::read_dir(&pool.folder).map(|all| {
        for same in all.flatten().filter(|one| one.file_name().to_string_lossy().starts_with("same")) {
            let _ = std::fs::remove_file(same.path());
        }
    });
}
