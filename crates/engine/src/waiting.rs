//! Entries that wait for a command slot: they begin when there is one, or end by their timeout or a cancel.

use crate::backlog::{Waiting, parse};
use crate::completion::as_reported;
use crate::engine::Engine;
use crate::frontend::Posting;
use crate::interface::{Failure, QueueId};
use alloc::boxed::Box;
use dcs_abi::entry::CompletionEntry;
use dcs_abi::result::ResultArea;
use dcs_abi::status::{Stage, Status};

/// The command identifier of an entry, however malformed the rest of it is.
fn cid(bytes: &[u8; 64]) -> u16 {
    u16::from_le_bytes([bytes[2], bytes[3]])
}

impl Engine {
    /// An entry was fetched for which there was no slot.
    #[cold]
    pub(crate) fn wait_for_slot(&mut self, queue: QueueId, bytes: &[u8; 64]) {
        let waiting = self.frontend.deadlines.join(queue, bytes, self.now);
        let deleting = self.frontend.get(queue).is_some_and(|queue| queue.deleting);
        match self.frontend.get_mut(queue) {
            Some(state) if !deleting => state.waiting.push_back(waiting),
            _ => return self.refuse(queue, waiting, Status::QueueDeleted),
        }
        self.frontend.waiting += 1;
        self.frontend.join_round(queue);
    }

    /// Begins the command of the first entry in a queue's line, which has a slot now.
    #[cold]
    pub(crate) fn begin_waiting(&mut self, queue: QueueId) {
        let Some(waiting) = self.frontend.get_mut(queue).and_then(|state| state.waiting.pop_front()) else {
            return;
        };
        self.frontend.waiting -= 1;
        self.frontend.deadlines.leave(queue, &waiting);
        self.begin(queue, &waiting.bytes, waiting.since);
        self.settle();
    }

    /// Ends an entry that has no slot.
    #[cold]
    fn refuse(&mut self, queue: QueueId, waiting: Waiting, status: Status) {
        self.frontend.deadlines.leave(queue, &waiting);
        let (stage, at, failure) = as_reported(Stage::Queue, 0, Failure::new(status));
        let cid = cid(&waiting.bytes);
        let mut entry = CompletionEntry { stage: stage as u8, stage_index: at, cid, ..Default::default() };
        entry.set_status(failure.status, false);
        let address = parse(&waiting.bytes).map_or(0, |entry| entry.result_address);
        let result = (address != 0).then(|| {
            let mut area: Box<ResultArea> = self.areas.pop().unwrap_or_default();
            *area = ResultArea {
                status: failure.status.code(),
                stage: stage as u8,
                queued: waiting.since,
                finished: self.now,
                ..Default::default()
            };
            (address, area)
        });
        self.counters.failures += 1;
        self.frontend.post(queue, Posting { command: None, entry, result });
        self.post_completions(queue);
    }

    /// Aborts an entry that has no slot; returns false if there is none with this identifier.
    #[cold]
    pub(crate) fn abort_waiting(&mut self, queue: QueueId, target: u16) -> bool {
        let waiting = self.frontend.get_mut(queue).and_then(|state| {
            let at = state.waiting.iter().position(|waiting| cid(&waiting.bytes) == target)?;
            state.waiting.remove(at)
        });
        let found = waiting.is_some();
        self.frontend.waiting -= usize::from(found);
        waiting.into_iter().for_each(|waiting| self.refuse(queue, waiting, Status::Cancelled));
        found
    }

    /// Fails what has run out of time without having had a slot.
    pub(crate) fn on_deadlines_of_waiting(&mut self) {
        while let Some((queue, serial)) = self.frontend.deadlines.pop(self.now) {
            let waiting = self.frontend.get_mut(queue).and_then(|state| {
                let at = state.waiting.binary_search_by_key(&serial, |waiting| waiting.serial).ok()?;
                state.waiting.remove(at)
            });
            self.frontend.waiting -= usize::from(waiting.is_some());
            waiting.into_iter().for_each(|waiting| self.refuse(queue, waiting, Status::Timeout));
        }
    }

    /// All entries of a queue that have no slot go with it.
    pub(crate) fn delete_waiting(&mut self, queue: QueueId) {
        let Some(state) = self.frontend.get_mut(queue) else { return };
        let line = core::mem::take(&mut state.waiting);
        self.frontend.waiting -= line.len();
        for waiting in line {
            self.refuse(queue, waiting, Status::QueueDeleted);
        }
    }
}
