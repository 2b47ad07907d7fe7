//! Slots that do operators' work outside the loop that drives the controllers. `dcs_slots` decides which
//! batch is next in which slot, by the policy and the bindings of a [`Placement`].

use std::collections::{BTreeMap, VecDeque};

use dcs_abi::operator::Operator;
use dcs_abi::status::Status as Reason;
use dcs_slots::{Action, Config, Job, JobId, OperatorId, Order, Slots, Tenant};

use crate::drives::DriveId;
use crate::near::Batch;
use crate::placement::{Binding, Placement, PlacementError, Policy};

/// Time by which a drive may be ahead of its share to keep its operators in a slot, in nanoseconds.
const LAG: u64 = 1_000_000;

/// Stands for all operators of bound slots: all slots of their group can do the group's work.
const BOUND: OperatorId = OperatorId(0);

/// The workers of slots, one for each: threads, in a process.
pub trait Workers: Send {
    /// Returns the number of slots.
    fn count(&self) -> usize;

    /// Has a free slot run a batch ([`Batch::run`]).
    fn run(&mut self, slot: u16, batch: Batch);

    /// Returns a slot that has finished its batch, and the batch.
    fn done(&mut self) -> Option<(u16, Batch)>;
}

/// Slots, and the work that waits for them.
pub struct Pool {
    /// Groups of slots that share their work. Each group has shares of its own.
    groups: Vec<Group>,
    /// Each slot's group, and its place in the group.
    places: Vec<(usize, u16)>,
    workers: Box<dyn Workers>,
    placement: Placement,
    drives: BTreeMap<usize, Member>,
    waiting: BTreeMap<u64, Batch>,
    /// Work that no slot may do.
    refused: VecDeque<Batch>,
    next: u64,
    held: Vec<BoundSlot>,
}

/// Slots that share a queue of work: all, those with the same binding, or a drive's own one. Every drive is a
/// tenant.
struct Group {
    slots: Slots,
    /// The numbers of its slots.
    numbers: Vec<u16>,
}

/// A drive.
struct Member {
    weight: u32,
    load: u32,
    /// Its slots if drives have their own: one of each kind.
    own: Vec<u16>,
}

/// State of a slot: its chain and its counters.
#[derive(Clone, Default)]
struct BoundSlot {
    /// Numbers of the chain's operators, then zeros.
    chain: [u8; 8],
    /// Batches of each drive, by number.
    batches: Vec<u64>,
}

/// The operators that a slot is bound to and holds, and the work that it has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotState {
    /// The policy of all slots.
    pub policy: Policy,
    /// The operators that it is bound to.
    pub binding: Binding,
    /// The drives that it belongs to, with a static policy.
    pub owners: Vec<DriveId>,
    /// Numbers of the operators that it holds, then zeros.
    pub chain: [u8; 8],
    /// It is working.
    pub is_busy: bool,
    /// Batches that it has run.
    pub batches: u64,
    /// Batches of each drive that has had some and still exists.
    pub drives: Vec<(DriveId, u64)>,
    /// Number of times that it was loaded with other operators.
    pub loads: u64,
    /// Nanoseconds that it has worked.
    pub nanoseconds: u64,
}

impl SlotState {
    /// Returns the names of the operators that it holds.
    pub fn operators(&self) -> impl Iterator<Item = &'static str> {
        self.chain.iter().filter_map(|number| Operator::from_number(*number)).map(Operator::name)
    }
}

impl Pool {
    /// Makes slots that are loaded with the operators that are needed. `None` if there are no slots, or too
    /// many (4,096).
    pub fn new(workers: Box<dyn Workers>) -> Option<Pool> {
        let slots = vec![Binding::Any; workers.count()];
        Pool::placed(workers, Placement::new(Policy::Reconfiguration, slots).ok()?).ok()
    }

    /// Makes slots with a policy, bound to operators.
    ///
    /// # Errors
    ///
    /// Fails if the placement is for another number of slots.
    pub fn placed(workers: Box<dyn Workers>, placement: Placement) -> Result<Pool, PlacementError> {
        let count = workers.count();
        if placement.slots().len() != count {
            return Err(PlacementError::Count { slots: count, bound: placement.slots().len() });
        }
        let mut places = vec![(0, 0); count];
        let mut groups = Vec::new();
        for numbers in placement.groups() {
            for (place, number) in numbers.iter().enumerate() {
                places[usize::from(*number)] = (groups.len(), place as u16);
            }
            groups.push(Group::new(placement.policy(), numbers)?);
        }
        let (drives, waiting, refused) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        let held = vec![BoundSlot::default(); count];
        Ok(Pool { groups, places, workers, placement, drives, waiting, refused, next: 0, held })
    }

    /// Returns the number of slots.
    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// Adds a drive, or changes its weight.
    pub fn set(&mut self, drive: usize, weight: u32) {
        let (weight, own) = (weight.clamp(1, 1000), Vec::new());
        self.drives.entry(drive).or_insert(Member { weight, load: 1, own }).weight = weight;
        self.assign();
    }

    /// Sets a drive's load relative to others, by which drives get slots of their own.
    pub fn set_load(&mut self, drive: usize, load: u32) {
        if let Some(member) = self.drives.get_mut(&drive) {
            member.load = load.max(1);
            self.assign();
        }
    }

    /// Removes a drive that has no work left: the next one at its place inherits neither debt nor credit.
    pub fn remove(&mut self, drive: usize) {
        self.drives.remove(&drive);
        self.groups.iter_mut().for_each(|group| group.slots.remove_tenant(drive as u16));
        self.held.iter_mut().filter_map(|held| held.batches.get_mut(drive)).for_each(|batches| *batches = 0);
        self.assign();
    }

    /// Assigns slots to drives again, with their weights. Waiting work stays where it is.
    fn assign(&mut self) {
        let loads: Vec<f64> = self.drives.values().map(|member| f64::from(member.load)).collect();
        let own = self.placement.assign(&loads);
        for (place, (drive, member)) in self.drives.iter_mut().enumerate() {
            member.own = own.iter().flatten().map(|slots| slots[place]).collect();
            let tenant = Tenant { weight: member.weight, ..Tenant::default() };
            for group in &mut self.groups {
                // Slot 0 exists, and the weight is valid.
                let _ = group.slots.set_tenant(*drive as u16, tenant);
            }
        }
    }

    /// Adds work that waits for a slot. If no slot has its operators it is returned as refused.
    pub fn request(&mut self, mut batch: Batch, now: u64) {
        self.next += 1;
        if let Err(reason) = self.line_up(&batch, now) {
            batch.refuse(reason);
            self.refused.push_back(batch);
            return;
        }
        self.waiting.insert(self.next, batch);
    }

    fn line_up(&mut self, batch: &Batch, now: u64) -> Result<(), Reason> {
        let (drive, chain) = (batch.ticket.drive as usize, batch.chain());
        let kind = self.placement.kind_of(chain).ok_or(Reason::UnknownOperator)?;
        let own = self.drives.get(&drive).and_then(|member| member.own.get(kind));
        let (group, operator) = match self.placement.policy() {
            Policy::Reconfiguration => (0, operator(chain)),
            Policy::Dynamic => (kind, BOUND),
            Policy::StaticWorst | Policy::StaticBest => {
                (own.map_or(0, |slot| self.places[usize::from(*slot)].0), BOUND)
            }
        };
        let job = Job { id: JobId(self.next), tenant: drive as u16, operator };
        let taken = self.groups[group].slots.request(job, now);
        debug_assert_eq!(taken, Ok(()), "every drive is a tenant");
        Ok(())
    }

    /// Removes a drive's waiting work. Work in slots ends soon.
    pub fn recall(&mut self, drive: usize) -> Vec<Batch> {
        let is_its = |batch: &Batch| batch.ticket.drive as usize == drive;
        if !self.waiting.values().any(is_its) {
            return Vec::new();
        }
        self.groups.iter_mut().for_each(|group| group.slots.retain(|job| usize::from(job.tenant) != drive));
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let (its, others) = waiting.partition(|(_, batch)| is_its(batch));
        self.waiting = others;
        let its: BTreeMap<u64, Batch> = its;
        its.into_values().collect()
    }

    /// Returns work that is done or refused.
    pub fn done(&mut self, now: u64) -> Option<Batch> {
        if let Some(refused) = self.refused.pop_front() {
            return Some(refused);
        }
        let (slot, batch) = self.workers.done()?;
        let (group, place) = self.places[usize::from(slot)];
        self.groups[group].slots.done(place, now);
        Some(batch)
    }

    /// Gives free slots their next work.
    pub fn dispatch(&mut self, now: u64) {
        for group in &mut self.groups {
            while let Some((slot, job)) = group.next(now) {
                if let Some(batch) = self.waiting.remove(&job.id.0) {
                    self.held[usize::from(slot)].gets(&batch);
                    self.workers.run(slot, batch);
                }
            }
        }
    }

    /// Returns the slots.
    pub fn state(&self) -> impl Iterator<Item = SlotState> {
        let slots = self.places.iter().zip(&self.held).zip(self.placement.slots()).enumerate();
        slots.map(|(number, (((group, place), held), binding))| {
            let slot = &self.groups[*group].slots.slots()[usize::from(*place)];
            SlotState {
                policy: self.placement.policy(),
                binding: binding.clone(),
                owners: self.owners(number as u16),
                chain: held.chain,
                is_busy: !slot.is_free(),
                batches: slot.blocks,
                drives: held.drives(),
                loads: slot.loads,
                nanoseconds: slot.working,
            }
        })
    }

    /// Returns the drives that this slot belongs to.
    fn owners(&self, slot: u16) -> Vec<DriveId> {
        let own = self.drives.iter().filter(|(_, member)| member.own.contains(&slot));
        own.map(|(drive, _)| DriveId(*drive as u32)).collect()
    }
}

impl Group {
    fn new(policy: Policy, numbers: Vec<u16>) -> Result<Group, PlacementError> {
        let (held, policy) = match policy {
            Policy::StaticWorst | Policy::StaticBest => (Some(BOUND), dcs_slots::Policy::Static),
            Policy::Dynamic => (Some(BOUND), dcs_slots::Policy::Dynamic),
            Policy::Reconfiguration => (None, dcs_slots::Policy::Reconfiguration),
        };
        // Loading a slot's operators takes no time: nothing is gained by keeping others.
        let (slots, order, lag, linger) = (vec![held; numbers.len()], Order::Shares, LAG, 0);
        let slots = Slots::new(&Config { slots, policy, order, lag, linger })
            .map_err(|_| PlacementError::Slots(numbers.len()))?;
        Ok(Group { slots, numbers })
    }

    /// Returns the group's next work, and the number of the slot that does it.
    fn next(&mut self, now: u64) -> Option<(u16, Job)> {
        let (place, job) = match self.slots.next(now)? {
            Action::Run { slot, job } => (slot, job),
            // Operators' code is shared, and their state is the stream's: naming the operators loads them.
            Action::Load { slot, .. } => (slot, self.slots.loaded(slot, now)),
        };
        Some((self.numbers[usize::from(place)], job))
    }
}

impl BoundSlot {
    /// Gives a batch to a slot.
    fn gets(&mut self, batch: &Batch) {
        self.chain = batch.chain();
        let drive = batch.ticket.drive as usize;
        if self.batches.len() <= drive {
            self.batches.resize(drive + 1, 0);
        }
        self.batches[drive] += 1;
    }

    fn drives(&self) -> Vec<(DriveId, u64)> {
        let drives = self.batches.iter().enumerate().filter(|(_, batches)| **batches > 0);
        drives.map(|(drive, batches)| (DriveId(drive as u32), *batches)).collect()
    }
}

/// Returns a number for a chain: its operator's number if it has only one, otherwise a hash (FNV-1a).
fn operator(chain: [u8; 8]) -> OperatorId {
    match chain {
        [one, 0, ..] => OperatorId(one.into()),
        several => {
            let mix = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
            OperatorId(several.iter().fold(0x811c_9dc5, mix) | 1 << 31)
        }
    }
}
