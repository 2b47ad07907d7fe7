//! The files that the card and others use at once, and their contents.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dcs_testkit::Random;

pub const SECTOR: usize = 512;
pub const PAGE: u64 = 4096;
/// Largest size of a file in bytes.
pub const FILE_MAX: u64 = 1 << 20;
/// Number of files at once.
pub const FILES: usize = 24;

/// Chooses a position below `end`, in whole pages.
pub fn pages(chance: &mut Random, end: u64) -> u64 {
    chance.below(end / PAGE) * PAGE
}

/// Makes sectors from a position of a file on. `whose`: the number under which its contents were made.
pub fn sectors(whose: u64, offset: u64, length: u64, version: u64) -> Vec<u8> {
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

/// Returns the versions of sectors, all of which must be that file's; those of a hole have none.
pub fn versions(bytes: &[u8], whose: u64, offset: u64, what: &str) -> Vec<Option<u64>> {
    look(bytes, whose, offset).unwrap_or_else(|wrong| panic!("{what}: {wrong}"))
}

/// Returns the versions, or the first error.
pub fn look(bytes: &[u8], whose: u64, offset: u64) -> Result<Vec<Option<u64>>, String> {
    let one = |(at, sector): (usize, &[u8])| {
        if sector == [0; SECTOR] {
            return Ok(None);
        }
        let (version, place) = (words(sector)[2], offset + (at * SECTOR) as u64);
        let right = sectors(whose, place, SECTOR as u64, version);
        let wrong = sector.iter().zip(&right).position(|(found, right)| found != right);
        let Some(wrong) = wrong else { return Ok(Some(version)) };
        let there = &sector[wrong / 32 * 32..][..32];
        Err(format!(
            "at {place} of {whose} is {:?} (whose, sector, version, sum), and from byte {wrong} of it on {:?}",
            words(sector),
            words(there)
        ))
    };
    bytes.chunks(SECTOR).enumerate().map(one).collect()
}

fn words(bytes: &[u8]) -> [u64; 4] {
    std::array::from_fn(|at| u64::from_le_bytes(bytes[at * 8..][..8].try_into().expect("8 bytes")))
}

/// The files of a folder, by their numbers: the origin of their contents, and how often a change was about to be made.
pub struct Pool {
    pub folder: PathBuf,
    files: Mutex<HashMap<u64, Entry>>,
    next: AtomicU64,
}

#[derive(Clone)]
pub struct Entry {
    pub number: u64,
    pub whose: u64,
    pub touched: Arc<AtomicU64>,
}

impl Pool {
    pub fn new(folder: PathBuf) -> Pool {
        Pool { folder, files: Mutex::default(), next: AtomicU64::new(1) }
    }

    pub fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("file{number}"))
    }

    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub fn add(&self, number: u64, whose: u64) -> Entry {
        let entry = Entry { number, whose, touched: Arc::default() };
        self.files.lock().unwrap().insert(number, entry.clone());
        entry
    }

    pub fn any(&self, chance: &mut Random) -> Option<Entry> {
        let files = self.files.lock().unwrap();
        let mut numbers: Vec<&u64> = files.keys().collect();
        numbers.sort();
        let number = **numbers.get(chance.below(numbers.len() as u64) as usize)?;
        Some(files[&number].clone())
    }

    pub fn all(&self) -> Vec<Entry> {
        self.files.lock().unwrap().values().cloned().collect()
    }

    pub fn remove(&self, number: u64) {
        self.files.lock().unwrap().remove(&number);
        let _ = std::fs::remove_file(self.path(number));
    }

    pub fn is_full(&self) -> bool {
        self.files.lock().unwrap().len() >= FILES
    }

    /// Makes a new file with the kernel, in blocks that were freed.
    pub fn new_file(&self, chance: &mut Random) {
        let number = self.number();
        let bytes = sectors(number, 0, pages(chance, FILE_MAX) + PAGE, 1);
        match std::fs::write(self.path(number), bytes) {
            Ok(()) => _ = self.add(number, number),
            Err(_) => self.remove(number),
        }
    }
}
