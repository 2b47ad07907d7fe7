//! Slots that run operators' work beside the loop that drives the controllers: which batch is next in which slot is
//! `dcs_slots`' to say.

use std::collections::BTreeMap;

use dcs_abi::operator::Operator;
use dcs_slots::{Action, Config, Job, JobId, OperatorId, Order, Policy, Slots, Tenant};

use crate::near::Batch;

/// How far ahead of its share a drive's work may be that finds its operators in a slot, in nanoseconds.
const LAG: u64 = 1_000_000;

/// Those who do the work, one for each slot: threads, in a process.
pub trait Workers: Send {
    /// Slots that there are.
    fn count(&self) -> usize;

    /// Has a slot, which is free, run a batch ([`Batch::run`]).
    fn run(&mut self, slot: u16, batch: Batch);

    /// A slot that has done its batch, and this.
    fn done(&mut self) -> Option<(u16, Batch)>;
}

/// Slots, and what waits for them.
pub struct Pool {
    slots: Slots,
    workers: Box<dyn Workers>,
    waiting: BTreeMap<u64, Batch>,
    next: u64,
    /// The chains that slots hold: numbers of operators, then zeros.
    chains: Vec<[u8; 8]>,
}

/// The operators that a slot holds, and the work that it has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotState {
    /// Numbers of the operators that it holds, then zeros.
    pub chain: [u8; 8],
    /// It works.
    pub is_busy: bool,
    /// Batches that it has run.
    pub batches: u64,
    /// How often it got other operators.
    pub loads: u64,
    /// How long it has worked, in nanoseconds.
    pub nanoseconds: u64,
}

impl SlotState {
    /// The names of the operators that it holds.
    pub fn operators(&self) -> impl Iterator<Item = &'static str> {
        self.chain.iter().filter_map(|number| Operator::from_number(*number)).map(Operator::name)
    }
}

impl Pool {
    /// Slots that hold nothing. Nothing where there are none, or too many (4,096).
    pub fn new(workers: Box<dyn Workers>) -> Option<Pool> {
        let count = workers.count();
        let config = Config {
            slots: vec![None; count],
            policy: Policy::Reconfiguration,
            order: Order::Shares,
            lag: LAG,
            // A slot's operators are there at once: nothing is gained from keeping others.
            linger: 0,
        };
        let slots = Slots::new(&config).ok()?;
        let (waiting, chains) = (BTreeMap::new(), vec![[0; 8]; count]);
        Some(Pool { slots, workers, waiting, next: 0, chains })
    }

    /// Slots that there are.
    pub fn count(&self) -> usize {
        self.chains.len()
    }

    /// Adds a drive, or changes its weight.
    pub fn set(&mut self, drive: usize, weight: u32) {
        let weight = weight.clamp(1, 1000);
        // Slot 0 is there, and the weight one that can be.
        let _ = self.slots.set_tenant(drive as u16, Tenant { weight, ..Tenant::default() });
    }

    /// Takes a drive out, none of whose work is left: who gets its place has neither its debt nor its credit.
    pub fn remove(&mut self, drive: usize) {
        self.slots.remove_tenant(drive as u16);
    }

    /// Work that waits for a slot.
    pub fn request(&mut self, batch: Batch, now: u64) {
        self.next += 1;
        let (id, tenant, operator) = (JobId(self.next), batch.ticket.drive as u16, operator(batch.chain()));
        self.waiting.insert(self.next, batch);
        let refused = self.slots.request(Job { id, tenant, operator }, now);
        debug_assert_eq!(refused, Ok(()), "every drive is a tenant");
    }

    /// Takes out a drive's work that waits for a slot. What slots work on is done soon.
    pub fn recall(&mut self, drive: usize) -> Vec<Batch> {
        let is_its = |batch: &Batch| batch.ticket.drive as usize == drive;
        if !self.waiting.values().any(is_its) {
            return Vec::new();
        }
        self.slots.retain(|job| usize::from(job.tenant) != drive);
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let (its, others) = waiting.partition(|(_, batch)| is_its(batch));
        self.waiting = others;
        let its: BTreeMap<u64, Batch> = its;
        its.into_values().collect()
    }

    /// Work that is done.
    pub fn done(&mut self, now: u64) -> Option<Batch> {
        let (slot, batch) = self.workers.done()?;
        self.slots.done(slot, now);
        Some(batch)
    }

    /// Gives free slots what is next.
    pub fn dispatch(&mut self, now: u64) {
        while let Some(action) = self.slots.next(now) {
            let (slot, job) = match action {
                Action::Run { slot, job } => (slot, job),
                // Operators' code is everybody's, and their state the stream's: it is loaded when it is named.
                Action::Load { slot, .. } => (slot, self.slots.loaded(slot, now)),
            };
            if let Some(batch) = self.waiting.remove(&job.id.0) {
                self.chains[usize::from(slot)] = batch.chain();
                self.workers.run(slot, batch);
            }
        }
    }

    /// The slots.
    pub fn state(&self) -> impl Iterator<Item = SlotState> {
        self.slots.slots().iter().zip(&self.chains).map(|(slot, chain)| SlotState {
            chain: *chain,
            is_busy: !slot.is_free(),
            batches: slot.blocks,
            loads: slot.loads,
            nanoseconds: slot.working,
        })
    }
}

/// A number for a chain: its operator's, where there is one; else one that chains hardly share (FNV-1a).
fn operator(chain: [u8; 8]) -> OperatorId {
    match chain {
        [one, 0, ..] => OperatorId(one.into()),
        several => {
            let mix = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
            OperatorId(several.iter().fold(0x811c_9dc5, mix) | 1 << 31)
        }
    }
}
