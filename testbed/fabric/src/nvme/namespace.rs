//! The medium: a namespace, which several controllers may share. No protection information, no metadata.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::memory::Memory;

/// A range of logical blocks. A clone is the same namespace.
#[derive(Clone)]
pub struct Namespace {
    blocks: u64,
    shift: u8,
    stored: Arc<Mutex<Stored>>,
}

#[derive(Default)]
struct Stored {
    memory: Memory,
    /// Earlier contents of pages written since the last flush.
    before: Memory,
}

impl Namespace {
    /// Returns `blocks` logical blocks of `1 << shift` bytes, all zero.
    ///
    /// # Panics
    ///
    /// If a block is not of 512 to 65,536 bytes.
    pub fn new(blocks: u64, shift: u8) -> Namespace {
        assert!((9..=16).contains(&shift), "blocks of {} bytes", 1u64 << shift);
        Namespace { blocks, shift, stored: Arc::default() }
    }

    /// Returns the number of logical blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the base-2 logarithm of the block size.
    pub fn shift(&self) -> u8 {
        self.shift
    }

    /// Copies from byte `offset`, bypassing all controllers.
    ///
    /// # Panics
    ///
    /// Outside of the namespace.
    pub fn load(&self, offset: u64, bytes: &mut [u8]) {
        self.check(offset, bytes.len() as u64);
        self.lock().memory.load(offset, bytes);
    }

    /// Copies to byte `offset`, bypassing all controllers.
    ///
    /// # Panics
    ///
    /// The same as [`Namespace::load`].
    pub fn store(&self, offset: u64, bytes: &[u8]) {
        self.check(offset, bytes.len() as u64);
        self.write(offset, bytes, true);
    }

    /// Simulates a power failure: everything that controllers wrote into a volatile cache and did not flush is lost. (A real
    /// device may lose any part of it.)
    pub fn lose_power(&self) {
        let mut stored = self.lock();
        let before = std::mem::take(&mut stored.before);
        stored.memory.restore(before);
    }

    /// Writes for a controller: into its cache, or past it.
    pub(super) fn write(&self, offset: u64, bytes: &[u8], durable: bool) {
        let mut stored = self.lock();
        let Stored { memory, before } = &mut *stored;
        if durable {
            before.store_where_kept(offset, bytes);
        } else {
            memory.keep_in(before, offset, bytes.len() as u64);
        }
        memory.store(offset, bytes);
    }

    /// Writes zeros, as [`Namespace::write`] does.
    pub(super) fn clear(&self, offset: u64, length: u64, durable: bool) {
        let mut stored = self.lock();
        let Stored { memory, before } = &mut *stored;
        if durable {
            before.store_where_kept(offset, &vec![0; length as usize]);
        } else {
            memory.keep_in(before, offset, length);
        }
        memory.clear(offset, length);
    }

    /// Makes all writes durable.
    pub(super) fn flush(&self) {
        self.lock().before = Memory::default();
    }

    fn check(&self, offset: u64, length: u64) {
        let end = offset.checked_add(length).expect("an end");
        assert!(end <= self.blocks << self.shift, "outside of the namespace");
    }

    fn lock(&self) -> MutexGuard<'_, Stored> {
        self.stored.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}

/// Latencies and rate of a medium.
#[derive(Clone, Copy, Debug)]
pub struct Media {
    /// Latency of a read.
    pub read: Duration,
    /// Latency of a write into the device's cache.
    pub write: Duration,
    /// Latency of a flush.
    pub flush: Duration,
    /// Most random time added to each: commands overtake each other.
    pub jitter: Duration,
    /// Bytes per second of all commands together.
    pub rate: u64,
}

impl Default for Media {
    /// Returns the figures of a flash SSD of the papers' time, the Intel 750: 20 us for a write through a host's stack (its
    /// specification), less the stack, and 2.2 GB/s. 80 us for a random read of 4 KiB from flash is assumed.
    fn default() -> Media {
        Media {
            read: Duration::from_micros(80),
            write: Duration::from_micros(15),
            flush: Duration::from_micros(100),
            jitter: Duration::from_micros(10),
            rate: 2_200_000_000,
        }
    }
}
