//! The submission ring of a queue pair, in memory that both sides copy and neither trusts.

use dcs_abi::Wire;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of an entry.
const WORDS: usize = 8;

/// A ring of entries of 64 bytes.
#[derive(Debug)]
pub(crate) struct Ring(Box<[[AtomicU64; WORDS]]>);

impl Ring {
    pub fn new(depth: usize) -> Self {
        Ring((0..depth).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect())
    }

    #[inline(always)]
    pub fn read(&self, at: usize) -> [u8; 64] {
        let mut bytes = [0; 64];
        let (chunks, _) = bytes.as_chunks_mut::<8>();
        for (word, chunk) in self.0[at % self.0.len()].iter().zip(chunks) {
            *chunk = word.load(Ordering::Acquire).to_le_bytes();
        }
        bytes
    }

    #[inline(always)]
    pub fn write(&self, at: usize, bytes: &[u8; 64]) {
        for (word, chunk) in self.0[at % self.0.len()].iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::get(chunk), Ordering::Release);
        }
    }
}
