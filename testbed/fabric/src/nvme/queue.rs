//! Submission and completion queues as the controller keeps them.

use std::collections::VecDeque;

use dcs_nvme::{Completion, command, completion};

/// Bytes of a submission queue entry.
pub(super) const SQE: u64 = command::SIZE as u64;
/// Bytes of a completion queue entry.
pub(super) const CQE: u64 = completion::SIZE as u64;

/// A submission queue: entries from `head` up to `tail` have yet to be fetched.
#[derive(Debug)]
pub(super) struct SubmissionQueue {
    base: u64,
    pub(super) size: u32,
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) completion: u16,
    pub(super) fetching: bool,
}

impl SubmissionQueue {
    pub(super) fn new(base: u64, size: u32, completion: u16) -> SubmissionQueue {
        SubmissionQueue { base, size, head: 0, tail: 0, completion, fetching: false }
    }

    /// Returns the address and number of entries to fetch now, at most `room`, not past the end of the queue.
    pub(super) fn next(&self, room: u32) -> Option<(u64, u32)> {
        let to_end = if self.tail < self.head { self.size - self.head } else { self.tail - self.head };
        let count = to_end.min(room);
        (count > 0 && !self.fetching).then(|| (self.base.wrapping_add(u64::from(self.head) * SQE), count))
    }

    pub(super) fn fetched(&mut self, count: u32) {
        self.head = (self.head + count) % self.size;
        self.fetching = false;
    }
}

/// A completion queue: entries from `head` up to `tail` have yet to be taken by the host.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    base: u64,
    size: u32,
    head: u32,
    tail: u32,
    phase: bool,
    /// MSI-X vector, if interrupts are enabled.
    pub(super) vector: Option<u16>,
    /// Completions that wait for room.
    pub(super) waiting: VecDeque<Posted>,
}

/// A completion, and the fault to apply to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    pub(super) entry: Completion,
    pub(super) wrong_phase: bool,
}

impl CompletionQueue {
    pub(super) fn new(base: u64, size: u32, vector: Option<u16>) -> CompletionQueue {
        CompletionQueue { base, size, head: 0, tail: 0, phase: true, vector, waiting: VecDeque::new() }
    }

    fn full(&self) -> bool {
        (self.tail + 1) % self.size == self.head
    }

    /// Frees entries that the host has taken. Returns false if the value is invalid.
    pub(super) fn take(&mut self, head: u32) -> bool {
        let distance = |to: u32| (to + self.size - self.head) % self.size;
        if head >= self.size || distance(head) > distance(self.tail) {
            return false;
        }
        self.head = head;
        true
    }

    /// Returns the next waiting completion and its place, if there is room.
    pub(super) fn next(&mut self) -> Option<(u64, bool, Posted)> {
        if self.full() {
            return None;
        }
        let posted = self.waiting.pop_front()?;
        let (address, phase) = (self.base.wrapping_add(u64::from(self.tail) * CQE), self.phase);
        self.tail += 1;
        if self.tail == self.size {
            self.tail = 0;
            self.phase = !self.phase;
        }
        Some((address, phase, posted))
    }
}
