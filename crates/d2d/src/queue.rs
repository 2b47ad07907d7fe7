//! A queue of bytes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The bytes of a Tx or an Rx queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue(VecDeque<u8>);

impl Queue {
    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// Takes the first `count` bytes, or all if there are fewer, into a buffer with capacity for `room` more.
    pub fn take(&mut self, count: u64, room: usize) -> Vec<u8> {
        let count = count.min(self.len()) as usize;
        let mut bytes = Vec::with_capacity(count + room);
        let (first, second) = self.0.as_slices();
        let here = count.min(first.len());
        bytes.extend_from_slice(&first[..here]);
        bytes.extend_from_slice(&second[..count - here]);
        self.0.drain(..count);
        bytes
    }

    /// Empties the queue and frees its memory.
    pub fn clear(&mut self) {
        self.0 = VecDeque::new();
    }
}
