//! The renaming table: the operator in each slot, and the slot's work.

use crate::{Job, JobId, Nanos, OperatorId};
use alloc::vec::Vec;

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Operator that it holds, or is being loaded with.
    pub operator: Option<OperatorId>,
    /// Current work.
    pub doing: Doing,
    /// Time at which the current work began.
    pub since: Nanos,
    /// Blocks that were done.
    pub blocks: u64,
    /// Loads that were begun.
    pub loads: u64,
    /// Time spent on blocks.
    pub working: Nanos,
    /// Time spent on loading.
    pub loading: Nanos,
}

/// Work of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// The slot is idle.
    Idle,
    /// The slot is being loaded for this job.
    Loading(Job),
    /// The slot works on this job's block; the time is when the job took the slot.
    Working(Job, Nanos),
}

impl Slot {
    fn new(operator: Option<OperatorId>) -> Slot {
        Slot { operator, doing: Doing::Idle, since: 0, blocks: 0, loads: 0, working: 0, loading: 0 }
    }

    /// Returns true if it is idle.
    pub fn is_free(&self) -> bool {
        self.doing == Doing::Idle
    }

    /// Returns true if it is idle, and holds that operator.
    pub(crate) fn can_run(&self, operator: OperatorId) -> bool {
        self.is_free() && self.operator == Some(operator)
    }
}

/// All slots.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub slots: Vec<Slot>,
    pub free: usize,
}

impl Table {
    pub fn new(held: &[Option<OperatorId>]) -> Table {
        Table { slots: held.iter().map(|operator| Slot::new(*operator)).collect(), free: held.len() }
    }

    /// Returns the first free slot that holds this operator.
    #[inline]
    pub fn find(&self, operator: OperatorId) -> Option<usize> {
        self.slots.iter().position(|slot| slot.can_run(operator))
    }

    pub fn holds(&self, operator: OperatorId) -> bool {
        self.slots.iter().any(|slot| slot.operator == Some(operator))
    }

    #[inline]
    pub fn run(&mut self, at: usize, job: Job, now: Nanos) {
        let slot = &mut self.slots[at];
        debug_assert!(slot.can_run(job.operator));
        slot.doing = Doing::Working(job, now);
        slot.since = now;
        self.free -= 1;
    }

    pub fn load(&mut self, at: usize, job: Job, now: Nanos) {
        let slot = &mut self.slots[at];
        debug_assert!(slot.is_free());
        slot.operator = Some(job.operator);
        slot.doing = Doing::Loading(job);
        slot.since = now;
        slot.loads += 1;
        self.free -= 1;
    }

    /// Ends a load. Returns the job that it was for.
    pub fn loaded(&mut self, at: usize, now: Nanos) -> Job {
        let slot = &mut self.slots[at];
        let Doing::Loading(job) = slot.doing else { panic!("slot {at} is not being loaded") };
        slot.loading += now - slot.since;
        slot.doing = Doing::Working(job, slot.since);
        slot.since = now;
        job
    }

    /// Ends a failed load: the slot is empty. Returns the job that it was for, and when the job took the slot.
    pub fn load_failed(&mut self, at: usize, now: Nanos) -> (Job, Nanos) {
        let slot = &mut self.slots[at];
        let Doing::Loading(job) = slot.doing else { panic!("slot {at} is not being loaded") };
        let taken = slot.since;
        slot.loading += now - taken;
        (slot.operator, slot.doing, slot.since) = (None, Doing::Idle, now);
        self.free += 1;
        (job, taken)
    }

    /// Ends a block. Returns its job, and when the job took the slot, including loading.
    #[inline]
    pub fn done(&mut self, at: usize, now: Nanos) -> (Job, Nanos) {
        let slot = &mut self.slots[at];
        let Doing::Working(job, taken) = slot.doing else { panic!("slot {at} works on nothing") };
        slot.working += now - slot.since;
        slot.blocks += 1;
        (slot.doing, slot.since) = (Doing::Idle, now);
        self.free += 1;
        (job, taken)
    }

    /// Returns the slot that a job is in.
    pub fn slot_of(&self, id: JobId) -> Option<usize> {
        let is =
            |slot: &Slot| matches!(slot.doing, Doing::Loading(job) | Doing::Working(job, _) if job.id == id);
        self.slots.iter().position(is)
    }
}
