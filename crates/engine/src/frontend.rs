//! The frontend: queue pairs, weighted round robin, phase bits.

use crate::backlog::{Deadlines, Line};
use crate::config::QueueConfig;
use crate::interface::QueueId;
use crate::quota::Quota;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use dcs_abi::entry::CompletionEntry;
use dcs_abi::result::ResultArea;

/// A completion that is ready to be posted.
#[derive(Debug)]
pub(crate) struct Posting {
    /// Slot of its command, which stays taken until this is posted; `None` if it had none.
    pub command: Option<u16>,
    pub entry: CompletionEntry,
    pub result: Option<(u64, Box<ResultArea>)>,
}

/// The next thing to do for a queue.
#[derive(Debug)]
pub(crate) enum Pick {
    /// Fetch the entry in this slot of its ring.
    Fetch(QueueId, u16),
    /// Begin the command of the first entry that waited for a slot, which it has now.
    Begin(QueueId),
}

/// The meaning of an entry that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// An answer without a request.
    Unasked,
    /// Its command has a slot.
    WithSlot,
    /// It has to wait for one.
    Early,
}

/// One queue pair.
#[derive(Debug)]
pub(crate) struct Queue {
    pub config: QueueConfig,
    sq_tail: u16,
    /// The next entry to fetch.
    sq_fetch: u16,
    /// Entries before it may be reused by the host.
    pub sq_head: u16,
    cq_tail: u16,
    cq_head: u16,
    phase: bool,
    /// Entries on their way whose commands have slots; they come in the order in which they were asked for.
    fetching: u16,
    /// Entries on their way behind those, without slots.
    early: u16,
    /// Entries that came and have no slot.
    pub waiting: Line,
    /// Entries that may still be fetched in this turn.
    turn: u16,
    /// It is in the round of those that have entries to fetch.
    in_round: bool,
    /// Commands from the fetch of their entries to their completions.
    pub commands: u32,
    /// Completions for which the ring has no room yet.
    postings: VecDeque<Posting>,
    /// No new entries; goes when its commands are finished.
    pub deleting: bool,
}

impl Queue {
    /// The next entry of its ring, which is fetched now.
    #[inline]
    fn next_slot(&mut self) -> u16 {
        let slot = self.sq_fetch;
        self.sq_fetch = self.after(slot);
        slot
    }

    /// The number by which its host knows it.
    pub fn number(&self, id: QueueId) -> u16 {
        self.config.number.unwrap_or(id.0)
    }

    /// Returns the next completion for which there is room, and its slot; `None` without room. If the queue
    /// is being deleted, a completion without room comes without a slot.
    #[inline]
    pub fn next_posting(&mut self, id: QueueId) -> Option<(Posting, Option<u16>)> {
        if self.postings.is_empty() {
            return None;
        }
        if self.after(self.cq_tail) == self.cq_head {
            return if self.deleting {
                self.postings.pop_front().map(|posting| (posting, None))
            } else {
                None
            };
        }
        let mut posting = self.postings.pop_front()?;
        let (slot, entry) = self.next_completion(id, posting.entry);
        posting.entry = entry;
        Some((posting, Some(slot)))
    }

    /// Completes an entry for the next slot of the completion ring, which has room, and tells the slot.
    #[inline]
    pub fn next_completion(&mut self, id: QueueId, mut entry: CompletionEntry) -> (u16, CompletionEntry) {
        let slot = self.cq_tail;
        entry.sq_head = self.sq_head;
        entry.sq_id = self.number(id);
        entry.status |= u16::from(self.phase);
        self.cq_tail = self.after(slot);
        self.phase ^= self.cq_tail == 0;
        (slot, entry)
    }

    /// The slot behind that one, in either ring.
    #[inline]
    fn after(&self, slot: u16) -> u16 {
        if slot + 1 == self.config.depth { 0 } else { slot + 1 }
    }

    /// Returns true if nothing of this queue is in progress, and this tail adds one entry.
    #[inline]
    pub fn is_next(&self, tail: u32) -> bool {
        let is_read = self.cq_head == self.cq_tail && self.postings.is_empty();
        let is_fetched =
            self.sq_fetch == self.sq_tail && self.sq_head == self.sq_tail && self.waiting.is_empty();
        is_read && is_fetched && !self.deleting && u32::from(self.after(self.sq_tail)) == tail
    }

    /// Passes over an entry, and over its completion, which the host has taken.
    #[inline]
    pub fn pass(&mut self, id: QueueId, entry: CompletionEntry) -> (u16, CompletionEntry) {
        self.sq_tail = self.after(self.sq_tail);
        (self.sq_fetch, self.sq_head) = (self.sq_tail, self.sq_tail);
        let completion = self.next_completion(id, entry);
        self.cq_head = self.cq_tail;
        completion
    }

    /// Returns true if completions wait for room.
    #[inline]
    pub fn has_postings(&self) -> bool {
        !self.postings.is_empty()
    }

    /// Returns true if the next entry would get its slot, and its completion room, before all others.
    #[inline]
    pub fn lets_through(&self) -> bool {
        let has_room = self.postings.is_empty() && self.after(self.cq_tail) != self.cq_head;
        !self.deleting && self.fetching > 0 && has_room
    }
}

#[derive(Debug)]
pub(crate) struct Frontend {
    queues: Vec<Option<Queue>>,
    /// Queues with entries to fetch; the first one's turn it is.
    round: VecDeque<u16>,
    /// Command slots.
    pub slots: Quota,
    /// Deadlines of the entries that wait for one.
    pub deadlines: Deadlines,
    /// Entries that wait for one, of all queues.
    pub waiting: usize,
}

impl Frontend {
    pub fn new(queues: u16, commands: u16) -> Frontend {
        Frontend {
            queues: (0..queues).map(|_| None).collect(),
            round: VecDeque::new(),
            slots: Quota::new(u32::from(commands), queues),
            deadlines: Deadlines::default(),
            waiting: 0,
        }
    }

    pub fn add(&mut self, config: QueueConfig) -> Option<QueueId> {
        let sound = (2..=32768).contains(&config.depth) && (1..=256).contains(&config.weight);
        let at = self.queues.iter().position(Option::is_none).filter(|_| sound)?;
        self.queues[at] = Some(Queue {
            config,
            sq_tail: 0,
            sq_fetch: 0,
            sq_head: 0,
            cq_tail: 0,
            cq_head: 0,
            phase: true,
            fetching: 0,
            early: 0,
            waiting: Line::new(),
            turn: config.weight,
            in_round: false,
            commands: 0,
            postings: VecDeque::new(),
            deleting: false,
        });
        Some(QueueId(at as u16))
    }

    /// The function of each queue, of those that there are.
    pub fn functions(&self) -> Vec<Option<u16>> {
        self.queues.iter().map(|queue| Some(queue.as_ref()?.config.function)).collect()
    }

    #[inline]
    pub fn get(&self, id: QueueId) -> Option<&Queue> {
        self.queues.get(id.0 as usize)?.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, id: QueueId) -> Option<&mut Queue> {
        self.queues.get_mut(id.0 as usize)?.as_mut()
    }

    /// Takes the submission doorbell; returns false if the value is not a slot of the queue.
    pub fn submission_doorbell(&mut self, id: QueueId, tail: u32) -> bool {
        let Some(queue) = self.get_mut(id).filter(|queue| tail < u32::from(queue.config.depth)) else {
            return false;
        };
        queue.sq_tail = tail as u16;
        if !core::mem::replace(&mut queue.in_round, true) {
            self.round.push_back(id.0);
        }
        true
    }

    /// Puts a queue into the round of those that have entries.
    pub fn join_round(&mut self, id: QueueId) {
        if let Some(queue) = self.get_mut(id)
            && !core::mem::replace(&mut queue.in_round, true)
        {
            self.round.push_back(id.0);
        }
    }

    /// Takes the completion doorbell; returns false if the head would pass the posted completions.
    pub fn completion_doorbell(&mut self, id: QueueId, head: u32) -> bool {
        let Some(queue) = self.get_mut(id) else { return false };
        let depth = u32::from(queue.config.depth);
        let distance = |from: u32, to: u32| if to >= from { to - from } else { to + depth - from };
        let (old, tail) = (u32::from(queue.cq_head), u32::from(queue.cq_tail));
        if head >= depth || distance(old, head) > distance(old, tail) {
            return false;
        }
        queue.cq_head = head as u16;
        true
    }

    /// Returns true if no queue has entries to fetch or to begin.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.round.is_empty()
    }

    /// Picks the next command: each queue in turn, `weight` commands a turn. Takes a command slot for it. If
    /// none is free, entries are fetched without one, so that their timeouts can be noticed.
    #[inline]
    pub fn pick(&mut self) -> Option<Pick> {
        self.pick_with_slot().or_else(|| self.pick_early())
    }

    #[inline]
    fn pick_with_slot(&mut self) -> Option<Pick> {
        // Once more than there are queues: the first may come round again after its turn.
        for _ in 0..=self.round.len() {
            let at = *self.round.front()?;
            if let Some(pick) = self.pick_of(at) {
                return Some(pick);
            }
        }
        None
    }

    /// Picks an entry to be fetched without a slot. As many of a queue as its ring has are kept at most, with
    /// the completions of those that ended so.
    #[cold]
    fn pick_early(&mut self) -> Option<Pick> {
        for at in self.round.iter().copied() {
            let Some(queue) = self.queues[at as usize].as_mut().filter(|queue| !queue.deleting) else {
                continue;
            };
            let ended = queue.postings.iter().filter(|posting| posting.command.is_none()).count();
            let kept = queue.waiting.len() + usize::from(queue.early) + ended;
            if queue.sq_fetch != queue.sq_tail && kept < usize::from(queue.config.depth) {
                queue.early += 1;
                return Some(Pick::Fetch(QueueId(at), queue.next_slot()));
            }
        }
        None
    }

    /// Takes the next entry of the queue whose turn it is, or ends its turn.
    #[inline]
    fn pick_of(&mut self, at: u16) -> Option<Pick> {
        let queue = self.queues[at as usize].as_mut().filter(|queue| !queue.deleting);
        let has_entries = |queue: &&mut Queue| queue.sq_fetch != queue.sq_tail || !queue.waiting.is_empty();
        let Some(queue) = queue.filter(has_entries) else {
            self.leave_round(at);
            return None;
        };
        // Fetches in progress without a slot come first.
        let overtakes = queue.waiting.is_empty() && queue.early > 0;
        if queue.turn == 0 || overtakes || !self.slots.take(at as usize, 1) {
            // Its weight is spent, or it has no command slot now.
            queue.turn = queue.config.weight;
            self.round.rotate_left(1);
            return None;
        }
        queue.turn -= 1;
        if !queue.waiting.is_empty() {
            return Some(Pick::Begin(QueueId(at)));
        }
        queue.fetching += 1;
        let slot = queue.next_slot();
        if queue.sq_fetch == queue.sq_tail {
            (queue.in_round, queue.turn) = (false, queue.config.weight);
            self.round.pop_front();
        }
        Some(Pick::Fetch(QueueId(at), slot))
    }

    fn leave_round(&mut self, at: u16) {
        if self.round.front() == Some(&at) {
            self.round.pop_front();
        } else {
            self.round.retain(|other| *other != at);
        }
        if let Some(queue) = &mut self.queues[at as usize] {
            (queue.in_round, queue.turn) = (false, queue.config.weight);
        }
    }

    /// An entry was fetched.
    #[inline]
    pub fn fetched(&mut self, id: QueueId) -> Arrival {
        let Some(queue) = self.get_mut(id) else { return Arrival::Unasked };
        let arrival = if queue.fetching > 0 {
            queue.fetching -= 1;
            Arrival::WithSlot
        } else if queue.early > 0 {
            queue.early -= 1;
            Arrival::Early
        } else {
            return Arrival::Unasked;
        };
        queue.sq_head = queue.after(queue.sq_head);
        arrival
    }

    /// Hands a completion to its queue, to be posted when the ring has room.
    pub fn post(&mut self, id: QueueId, posting: Posting) {
        if let Some(queue) = self.get_mut(id) {
            queue.postings.push_back(posting);
        }
    }

    /// Returns true if no entry waits for a slot.
    pub fn nobody_waits(&self) -> bool {
        let waiting = |queue: &Queue| queue.waiting.len();
        debug_assert_eq!(self.waiting, self.queues.iter().flatten().map(waiting).sum::<usize>());
        self.waiting == 0
    }

    /// Removes a queue that is to be deleted and has nothing in flight.
    #[inline]
    pub fn remove_if_drained(&mut self, id: QueueId) -> bool {
        let drained = self.get(id).is_some_and(|queue| {
            let fetches = queue.fetching + queue.early;
            queue.deleting && fetches == 0 && queue.commands == 0 && queue.postings.is_empty()
        });
        if drained {
            self.leave_round(id.0);
            self.queues[id.0 as usize] = None;
        }
        drained
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frontend(weights: &[u16], commands: u16) -> Frontend {
        let mut frontend = Frontend::new(weights.len() as u16, commands);
        for weight in weights {
            let config = QueueConfig { weight: *weight, depth: 128, ..QueueConfig::default() };
            frontend.add(config).expect("there is room");
        }
        frontend
    }

    /// The queues of the next entries to fetch for which there are slots.
    fn picks(frontend: &mut Frontend, count: usize) -> Vec<u16> {
        (0..count)
            .map_while(|_| match frontend.pick_with_slot()? {
                Pick::Fetch(queue, _) => Some(queue.0),
                other => panic!("not a fetch: {other:?}"),
            })
            .collect()
    }

    #[test]
    fn queues_take_turns_by_their_weights() {
        let mut frontend = frontend(&[1, 3, 2], 1000);
        for queue in 0..3 {
            assert!(frontend.submission_doorbell(QueueId(queue), 100));
        }
        assert_eq!(picks(&mut frontend, 12), [0, 1, 1, 1, 2, 2, 0, 1, 1, 1, 2, 2]);
        // Queue 1 runs dry; the others keep their ratio.
        let rest = picks(&mut frontend, 288);
        let share = |queue| rest.iter().filter(|other| **other == queue).count();
        assert_eq!([share(0), share(1), share(2)], [98, 94, 96]);
        assert!(frontend.pick().is_none());
    }

    #[test]
    fn a_queue_without_slots_passes_its_turn_and_comes_back() {
        let mut frontend = frontend(&[4, 1], 8); // two slots guaranteed to each
        assert!(frontend.submission_doorbell(QueueId(0), 100));
        assert_eq!(picks(&mut frontend, 100), [0; 6], "all but the other's guarantee");
        assert!(frontend.submission_doorbell(QueueId(1), 100));
        assert_eq!(picks(&mut frontend, 100), [1, 1]);
        frontend.slots.give(0, 1);
        assert_eq!(picks(&mut frontend, 100), [0]);
    }

    #[test]
    fn without_slots_no_more_entries_are_kept_than_the_ring_has() {
        let mut frontend = frontend(&[1], 2);
        let id = QueueId(0);
        assert!(frontend.submission_doorbell(id, 2));
        assert_eq!(picks(&mut frontend, 100), [0; 2]);
        assert!((0..2).all(|_| frontend.fetched(id) == Arrival::WithSlot));
        let mut early = 0;
        for tail in [127, 100, 50] {
            assert!(frontend.submission_doorbell(id, tail));
            while matches!(frontend.pick(), Some(Pick::Fetch(..))) {
                early += 1;
                assert_eq!(frontend.fetched(id), Arrival::Early);
                // Its time is up at once, and the host makes no room for its completion.
                frontend.post(id, Posting { command: None, entry: CompletionEntry::default(), result: None });
            }
        }
        assert_eq!(early, 128);
        let posted = frontend.get_mut(id).and_then(|queue| queue.next_posting(id));
        assert!(posted.is_some() && matches!(frontend.pick(), Some(Pick::Fetch(..))));
    }

    #[test]
    fn sizes_out_of_range_make_no_queue() {
        let mut frontend = Frontend::new(1, 2);
        for (depth, weight) in [(0, 1), (1, 1), (32_769, 1), (2, 0), (2, 257)] {
            assert_eq!(frontend.add(QueueConfig { depth, weight, ..QueueConfig::default() }), None);
        }
        let largest = QueueConfig { depth: 32_768, weight: 256, ..QueueConfig::default() };
        assert_eq!(frontend.add(largest), Some(QueueId(0)));
        assert_eq!(frontend.add(largest), None, "all are in use");
    }

    #[test]
    fn a_completion_head_never_passes_the_tail() {
        let mut frontend = frontend(&[1], 8);
        let id = QueueId(0);
        for command in 0..3 {
            let entry = CompletionEntry::default();
            frontend.post(id, Posting { command: Some(command), entry, result: None });
            let posted = frontend.get_mut(id).and_then(|queue| queue.next_posting(id));
            let matches = |(posting, slot): (Posting, _)| posting.command == slot && slot == Some(command);
            assert!(posted.is_some_and(matches));
        }
        assert!(!frontend.completion_doorbell(id, 4) && !frontend.completion_doorbell(id, 128));
        assert!(frontend.completion_doorbell(id, 2) && frontend.completion_doorbell(id, 3));
        assert!(!frontend.completion_doorbell(id, 2), "and never goes back");
    }
}
