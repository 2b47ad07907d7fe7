//! A queue pair's memory: descriptors and result areas, at bus addresses from [`BASE`].

use super::{BASE, QueuePair};
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns so many words, all 0. The kernel gives their pages when they are first used: a long queue's are many.
pub(super) fn zeros(words: usize) -> Box<[AtomicU64]> {
    let words = Box::<[AtomicU64]>::new_zeroed_slice(words);
    // SAFETY: zeros are an AtomicU64: it has the representation of a u64.
    unsafe { words.assume_init() }
}

impl QueuePair {
    /// Copies memory out; `None` if the range is not entirely inside.
    pub fn read_bus(&self, address: u64, length: u32, into: &mut Vec<u8>) -> Option<()> {
        let range = self.range(address, u64::from(length))?;
        // What was in it is overwritten.
        into.resize(length as usize, 0);
        self.read_memory(range.start, into);
        Some(())
    }

    pub(super) fn read_memory(&self, at: usize, into: &mut [u8]) {
        let (words, tail) = into.as_chunks_mut::<8>();
        let memory = &self.memory[at / 8..];
        for (chunk, word) in words.iter_mut().zip(memory) {
            *chunk = word.load(Ordering::Relaxed).to_le_bytes();
        }
        if !tail.is_empty() {
            let last = memory[words.len()].load(Ordering::Relaxed).to_le_bytes();
            tail.copy_from_slice(&last[..tail.len()]);
        }
    }

    pub(super) fn clear_memory(&self, at: usize, length: usize) {
        let words = &self.memory[at / 8..(at + length).div_ceil(8)];
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Addresses are multiples of 8: words are the unit of this memory.
    fn range(&self, address: u64, length: u64) -> Option<std::ops::Range<usize>> {
        let start = address.checked_sub(BASE).filter(|start| start.is_multiple_of(8))?;
        let end = start.checked_add(length).filter(|end| *end <= self.memory.len() as u64 * 8)?;
        Some(start as usize..end as usize)
    }

    pub(super) fn write_memory(&self, at: usize, bytes: &[u8]) {
        let (words, tail) = bytes.as_chunks::<8>();
        let memory = &self.memory[at / 8..];
        for (chunk, word) in words.iter().zip(memory) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
        if !tail.is_empty() {
            let mut raw = [0; 8];
            raw[..tail.len()].copy_from_slice(tail);
            memory[words.len()].store(u64::from_le_bytes(raw), Ordering::Relaxed);
        }
    }
}
