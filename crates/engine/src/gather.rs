//! Gathering: when the blocks of many streams go through a multi-lane unit together.
//!
//! A pass takes about the same time however few lanes are filled. So a block that is in its lane waits for others, but
//! only while that can be expected to pay:
//!
//! * not at all where no other stream of this operator is under way, all lanes are filled, or the owner has nothing
//!   else to do;
//! * else for the share of a pass's time that the streams under way have among all: `time * coming / (waiting + coming)`.
//!   To go without one stream that would have come costs one more pass, so that much is worth waiting for, and no more.
//!
//! While a pass runs, no other is started: its streams come back when it ends. The time of a pass is learned from the
//! answers. A block never waits longer than one pass's time for company and two for the unit, whatever the other
//! streams' sources and lanes do.

use crate::message::Nanos;
use crate::scoreboard::RowId;
use alloc::vec::Vec;

/// How much of a new measurement of a pass's time goes into what is known: one part of so many.
const WEIGHT: u64 = 8;

/// Why a pass may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// Something has happened, or a moment has come.
    Step,
    /// The owner has nothing else to do.
    Idle,
}

#[derive(Debug)]
pub(crate) struct Gathering {
    lanes: usize,
    /// Rows that are in their lanes for the next pass.
    waiting: Vec<RowId>,
    /// When the first of them came.
    oldest: Nanos,
    /// Operators of running commands whose data will pass, each a stream.
    pub streams: usize,
    /// When the last pass was started.
    started: Nanos,
    /// Blocks of passes that were started and are not answered.
    running: usize,
    /// What a pass takes.
    time: Nanos,
}

impl Gathering {
    pub fn new(lanes: u16) -> Gathering {
        let lanes = lanes as usize;
        let waiting = Vec::with_capacity(lanes);
        Gathering { lanes, waiting, oldest: 0, streams: 0, started: 0, running: 0, time: 0 }
    }

    /// A row is in its lane.
    pub fn join(&mut self, row: RowId, now: Nanos) {
        if self.waiting.is_empty() {
            self.oldest = now;
        }
        self.waiting.push(row);
    }

    /// A row's operation was answered, by a pass or because it was aborted before one.
    pub fn answered(&mut self, row: RowId, now: Nanos, processed: bool) {
        if let Some(at) = self.waiting.iter().position(|other| *other == row) {
            self.waiting.remove(at);
            return;
        }
        self.running = self.running.saturating_sub(1);
        if processed {
            let took = now - self.started;
            // One that was very late says little of the others.
            let took = if self.time == 0 { took } else { took.min(self.time * WEIGHT) };
            self.time = if self.time == 0 { took } else { self.time - self.time / WEIGHT + took / WEIGHT };
        }
    }

    /// When a pass is to start at the latest; `None` where no block waits.
    pub fn deadline(&self) -> Option<Nanos> {
        let waiting = self.waiting.len();
        let coming = self.streams.saturating_sub(waiting).min(self.lanes - waiting.min(self.lanes)) as u64;
        let wait = self.time * coming / (waiting as u64 + coming).max(1);
        (waiting > 0).then(|| self.oldest.saturating_add(wait).max(self.busy_until()))
    }

    /// Until when the unit is taken to be busy with its last pass: a lane that hangs holds up the others for no longer
    /// than another one would take.
    fn busy_until(&self) -> Nanos {
        if self.running > 0 { self.started.saturating_add(2 * self.time) } else { 0 }
    }

    /// Starts a pass where it is time for one.
    pub fn start(&mut self, now: Nanos, occasion: Occasion) -> bool {
        let waiting = self.waiting.len();
        if waiting == 0 {
            return false;
        }
        let expected = self.streams > waiting && waiting < self.lanes;
        let run_out = self.deadline().is_some_and(|deadline| deadline <= now);
        if occasion == Occasion::Step && !run_out && (expected || self.busy_until() > now) {
            return false;
        }
        self.running += waiting;
        self.waiting.clear();
        self.started = now;
        true
    }

    /// True where nobody is in a lane and no stream is counted.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.streams == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Occasion::{Idle, Step};

    /// A gathering of four lanes whose passes take 64,000 ns, with so many streams.
    fn four(streams: usize) -> Gathering {
        Gathering { streams, time: 64_000, ..Gathering::new(4) }
    }

    #[test]
    fn a_lone_stream_and_full_lanes_wait_for_nobody() {
        let mut lone = four(1);
        assert!(!lone.start(9, Idle), "there is nothing to process");
        lone.join(RowId(0), 10);
        assert!(lone.start(10, Step) && !lone.start(10, Step));
        lone.join(RowId(1), 20);
        assert!(!lone.start(20, Step), "the unit is busy");
        assert_eq!(lone.deadline(), Some(10 + 2 * 64_000), "or a lane hangs");
        lone.answered(RowId(0), 64_010, true);
        assert!(lone.start(64_010, Step));
        let mut full = four(40);
        for row in 0..4 {
            assert!(!full.start(10, Step));
            full.join(RowId(row), 10);
        }
        assert!(full.start(10, Step));
        let mut unknown = Gathering { time: 0, ..four(3) };
        unknown.join(RowId(0), 10);
        assert!(unknown.start(10, Step), "what a pass takes is not known yet");
    }

    #[test]
    fn waiting_takes_the_share_of_a_pass_that_those_to_come_have() {
        let mut gathering = four(4);
        gathering.join(RowId(0), 1000);
        assert_eq!(gathering.deadline(), Some(1000 + 64_000 * 3 / 4));
        gathering.join(RowId(1), 5000);
        assert_eq!(gathering.deadline(), Some(1000 + 64_000 / 2));
        gathering.answered(RowId(0), 6000, false);
        assert!(!gathering.start(6000, Step) && gathering.start(6000, Idle));
        assert_eq!(gathering.deadline(), None);
    }

    #[test]
    fn the_time_of_a_pass_is_learned_and_one_late_answer_does_not_spoil_it() {
        let mut gathering = Gathering::new(2);
        for round in 0..50 {
            gathering.streams = 1;
            gathering.join(RowId(0), round * 10_000);
            assert!(gathering.start(round * 10_000, Step));
            gathering.answered(RowId(0), round * 10_000 + 800, true);
        }
        assert!((700..=800).contains(&gathering.time), "{}", gathering.time);
        gathering.answered(RowId(1), 60_000_000_000, true);
        assert!(gathering.time < 1600);
    }
}
