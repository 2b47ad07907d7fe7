//! Queue pairs in host memory: their rings' addresses, entries on their way in, entries going out.

use dcs_abi::entry::{CompletionEntry, SubmissionEntry};
use dcs_drivers::bus::Window;
use dcs_engine::QueueId;
use std::collections::VecDeque;

/// Size of a submission entry in bytes.
pub const SUBMISSION: u64 = SubmissionEntry::SIZE as u64;
/// Size of a completion entry in bytes.
pub const COMPLETION: u64 = CompletionEntry::SIZE as u64;

/// A ring of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Bus address.
    pub base: u64,
    /// Number of entries.
    pub depth: u16,
}

impl Ring {
    /// Returns all of its memory, for entries of this many bytes.
    pub fn window(self, entry: u64) -> Window {
        Window { address: self.base, length: u64::from(self.depth) * entry }
    }

    /// Returns true if it does not exceed the address space, and does not reach into the card's own memory.
    pub fn is_sound(self, entry: u64, own: Window) -> bool {
        let length = u64::from(self.depth) * entry;
        let end = self.base.checked_add(length);
        end.is_some_and(|end| end <= own.address || self.base >= own.address.saturating_add(own.length))
    }

    /// Returns one entry of this many bytes.
    pub fn entry(self, slot: u16, entry: u64) -> Window {
        Window { address: self.base + u64::from(slot) * entry, length: entry }
    }
}

/// A completion queue, and its interrupt.
#[derive(Clone, Copy, Debug)]
pub struct CompletionQueue {
    /// Ring of the queue.
    pub ring: Ring,
    /// MSI-X vector, if the host wants interrupts.
    pub vector: Option<u16>,
}

/// A queue pair for commands.
#[derive(Debug)]
pub struct Pair {
    /// Queue number of the engine.
    pub id: QueueId,
    /// Queue number of the host.
    pub number: u16,
    /// Ring of submission entries.
    pub submissions: Ring,
    /// Completion queue of the pair.
    pub completions: CompletionQueue,
    /// Entries that are being fetched, in the engine's order: a number, and the bytes once they have arrived.
    pub fetches: VecDeque<(u32, Option<[u8; 64]>)>,
    /// Admin command that waits for the pair's deletion.
    pub deleted_by: Option<u16>,
}

impl Pair {
    /// Stores an entry that has arrived.
    pub fn fetched(&mut self, number: u32, bytes: [u8; 64]) {
        if let Some((_, place)) = self.fetches.iter_mut().find(|(other, _)| *other == number) {
            *place = Some(bytes);
        }
    }

    /// Takes the next entry in order, once it has arrived.
    pub fn next_entry(&mut self) -> Option<[u8; 64]> {
        let bytes = self.fetches.front()?.1?;
        self.fetches.pop_front();
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_in_the_order_in_which_they_were_asked_for() {
        let ring = Ring { base: 0x1000, depth: 4 };
        let completions = CompletionQueue { ring, vector: None };
        let fetches = [(1, None), (2, None)].into();
        let mut pair =
            Pair { id: QueueId(0), number: 1, submissions: ring, completions, fetches, deleted_by: None };
        pair.fetched(2, [2; 64]);
        assert_eq!(pair.next_entry(), None);
        pair.fetched(9, [9; 64]);
        pair.fetched(1, [1; 64]);
        assert_eq!(pair.next_entry(), Some([1; 64]));
        assert_eq!(pair.next_entry(), Some([2; 64]));
        assert_eq!(pair.next_entry(), None);
        assert_eq!(ring.entry(3, SUBMISSION), Window { address: 0x10c0, length: 64 });
    }
}
