//! Lines of entries that wait for a command slot. Their timeouts count, though nothing of them has begun.

use crate::interface::{Nanos, QueueId};
use alloc::collections::{BTreeSet, VecDeque};
use dcs_abi::entry::SubmissionEntry;
use dcs_abi::inline;

/// An entry that was fetched before there was a slot for its command.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Its number among all that ever waited.
    pub serial: u64,
    pub bytes: [u8; 64],
    /// When it was fetched: its timeout counts from here.
    pub since: Nanos,
    deadline: Option<Nanos>,
}

/// One queue's entries without a slot, in their order.
pub(crate) type Line = VecDeque<Waiting>;

/// Timeouts of the entries without a slot.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    serial: u64,
    due: BTreeSet<(Nanos, u16, u64)>,
}

impl Deadlines {
    /// Adds an entry that waits.
    pub fn join(&mut self, queue: QueueId, bytes: &[u8; 64], now: Nanos) -> Waiting {
        self.serial += 1;
        let timeout = parse(bytes).map_or(0, |entry| u64::from(entry.timeout_ms) * 1_000_000);
        let deadline = (timeout > 0).then(|| now.saturating_add(timeout));
        self.due.extend(deadline.map(|at| (at, queue.0, self.serial)));
        Waiting { serial: self.serial, bytes: *bytes, since: now, deadline }
    }

    /// Removes an entry that waits no more.
    pub fn leave(&mut self, queue: QueueId, waiting: &Waiting) {
        if let Some(at) = waiting.deadline {
            self.due.remove(&(at, queue.0, waiting.serial));
        }
    }

    /// Returns the first timeout.
    pub fn first(&self) -> Option<Nanos> {
        self.due.first().map(|(at, ..)| *at)
    }

    /// Removes the first one that is due.
    pub fn pop(&mut self, now: Nanos) -> Option<(QueueId, u64)> {
        let (_, queue, serial) = *self.due.first().filter(|(at, ..)| *at <= now)?;
        self.due.pop_first();
        Some((QueueId(queue), serial))
    }
}

pub(crate) fn parse(bytes: &[u8; 64]) -> Option<SubmissionEntry> {
    inline::parse(bytes).ok().map(|(entry, _)| entry)
}
