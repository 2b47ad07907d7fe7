//! Multi-lane units: when the blocks of many streams go through a multi-lane unit together.
//!
//! A pass takes about the same time however few lanes are filled. So a block that is in its lane waits for
//! others while the owner has other things to do, since these may bring more blocks; and no longer:
//!
//! * a pass starts when the owner has nothing else to do, or when all lanes are filled;
//! * whatever else there is to do, no block waits longer than [`PATIENCE`] times what a pass takes, or than
//!   [`BRIEF`] if that is more. What a pass takes is learned from the answers.
//!
//! Streams are not counted, and there is no timer: a lone stream on an idle owner does not wait for others.
//! While a pass runs beside its owner, no other is started, since its streams come back when it ends; but a
//! lane that hangs holds up the others for no longer than another pass would take.

use crate::interface::Nanos;
use crate::scoreboard::RowId;
use alloc::vec::Vec;

/// The weight of a new measurement in the average time of a pass: one part of this many.
const WEIGHT: u64 = 8;

/// The longest wait of the first block for more, in times that a pass takes. A stream that comes too late
/// costs one more pass, and an owner that is this long busy otherwise has more to do than that.
const PATIENCE: u64 = 4;

/// A wait for company that is always short enough, nanoseconds. A pass of small blocks takes less time than an
/// owner takes to bring the blocks that fill it.
const BRIEF: Nanos = 250_000;

/// Reason why a pass may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// Something has happened, or a moment has come.
    Step,
    /// The owner has nothing else to do.
    Idle,
}

#[derive(Debug)]
pub(crate) struct MultiLaneUnit {
    lanes: usize,
    /// Rows that are in their lanes for the next pass.
    waiting: Vec<RowId>,
    /// When the first of them came.
    oldest: Nanos,
    /// When the last pass was started.
    started: Nanos,
    /// Blocks of passes that were started and are not answered.
    running: usize,
    /// The average time of a pass.
    time: Nanos,
}

impl MultiLaneUnit {
    pub fn new(lanes: u16) -> MultiLaneUnit {
        let lanes = lanes as usize;
        let waiting = Vec::with_capacity(lanes);
        MultiLaneUnit { lanes, waiting, oldest: 0, started: 0, running: 0, time: 0 }
    }

    /// A row is in its lane.
    pub fn join(&mut self, row: RowId, now: Nanos) {
        if self.waiting.is_empty() {
            self.oldest = now;
        }
        self.waiting.push(row);
    }

    /// A row's operation was answered: by a pass, or because it was aborted while it waited for one (true
    /// then).
    pub fn answered(&mut self, row: RowId, now: Nanos, processed: bool) -> bool {
        if let Some(at) = self.waiting.iter().position(|other| *other == row) {
            self.waiting.remove(at);
            return true;
        }
        self.running = self.running.saturating_sub(1);
        if processed {
            let took = now - self.started;
            // One that was very late says little of the others.
            let took = if self.time == 0 { took } else { took.min(self.time * WEIGHT) };
            self.time = if self.time == 0 { took } else { self.time - self.time / WEIGHT + took / WEIGHT };
        }
        false
    }

    /// When a pass is to start at the latest; `None` where no block waits.
    pub fn deadline(&self) -> Option<Nanos> {
        let patience = if self.time == 0 { 0 } else { BRIEF.max(PATIENCE * self.time) };
        let patience = self.oldest.saturating_add(patience);
        (!self.waiting.is_empty()).then(|| patience.max(self.busy_until()))
    }

    /// The time until which the unit counts as busy with its last pass.
    fn busy_until(&self) -> Nanos {
        if self.running > 0 { self.started.saturating_add(2 * self.time) } else { 0 }
    }

    /// Starts a pass if it is time for one; returns its number of rows.
    pub fn start(&mut self, now: Nanos, occasion: Occasion) -> Option<usize> {
        let deadline = self.deadline()?;
        let due = occasion == Occasion::Idle || self.waiting.len() >= self.lanes || deadline <= now;
        if !due || self.busy_until() > now {
            return None;
        }
        let rows = self.waiting.len();
        self.running += rows;
        self.waiting.clear();
        self.started = now;
        Some(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Occasion::{Idle, Step};

    /// A unit of four lanes whose passes take 64,000 ns.
    fn four() -> MultiLaneUnit {
        MultiLaneUnit { time: 64_000, ..MultiLaneUnit::new(4) }
    }

    #[test]
    fn an_idle_owner_and_full_lanes_wait_for_nobody() {
        let mut lone = four();
        assert!(lone.start(9, Idle).is_none(), "there is nothing to process");
        lone.join(RowId(0), 10);
        assert!(
            lone.start(10, Step).is_none()
                && lone.start(10, Idle).is_some()
                && lone.start(10, Idle).is_none()
        );
        lone.join(RowId(1), 20);
        assert!(lone.start(20, Idle).is_none(), "the unit is busy");
        lone.answered(RowId(0), 64_010, true);
        assert!(lone.start(64_010, Idle).is_some());
        let mut full = four();
        for row in 0..4 {
            assert!(full.start(10, Step).is_none());
            full.join(RowId(row), 10);
        }
        assert_eq!(full.start(10, Step), Some(4));
        let mut unknown = MultiLaneUnit::new(4);
        unknown.join(RowId(0), 10);
        assert!(unknown.start(10, Step).is_some(), "what a pass takes is not known yet");
    }

    #[test]
    fn the_oldest_block_waits_for_a_few_passes_at_most() {
        let mut busy = four();
        busy.join(RowId(0), 1000);
        busy.join(RowId(1), 5000);
        assert_eq!(busy.deadline(), Some(1000 + PATIENCE * 64_000));
        assert!(busy.answered(RowId(0), 6000, false));
        assert!(busy.start(1000 + PATIENCE * 64_000 - 1, Step).is_none());
        assert!(busy.start(1000 + PATIENCE * 64_000, Step).is_some());
        assert_eq!(busy.deadline(), None);
    }

    #[test]
    fn a_lane_that_hangs_holds_the_others_up_for_one_more_pass() {
        let mut hung = four();
        hung.join(RowId(0), 0);
        assert!(hung.start(0, Idle).is_some());
        hung.join(RowId(1), 10);
        assert!(hung.start(2 * 64_000 - 1, Idle).is_none());
        assert!(hung.start(2 * 64_000, Idle).is_some());
    }

    #[test]
    fn the_time_of_a_pass_is_learned_and_one_late_answer_does_not_spoil_it() {
        let mut unit = MultiLaneUnit::new(2);
        for round in 0..50 {
            unit.join(RowId(0), round * 10_000);
            assert!(unit.start(round * 10_000, Idle).is_some());
            unit.answered(RowId(0), round * 10_000 + 800, true);
        }
        assert!((700..=800).contains(&unit.time), "{}", unit.time);
        unit.answered(RowId(1), 60_000_000_000, true);
        assert!(unit.time < 1600);
    }
}
