//! The state machine: [`Slots`].

use crate::table::{Slot, Table};
use crate::tenants::{Head, Key, Tenants};
use crate::{Config, ConfigError, Job, JobId, Nanos, OperatorId, Order, Policy, Tenant};
use alloc::vec::Vec;

/// The next thing for the owner to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Loads the slot with the job's operator, then says [`Slots::loaded`] or [`Slots::load_failed`].
    Load {
        /// The slot.
        slot: u16,
        /// The job that it is loaded for.
        job: Job,
    },
    /// Works on the job's block in the slot, then says [`Slots::done`].
    Run {
        /// The slot.
        slot: u16,
        /// The job.
        job: Job,
    },
}

/// Why a job was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Its tenant was never [set](Slots::set_tenant).
    #[error("tenant {0} is unknown: set it first")]
    Tenant(u16),
    /// No slot holds its operator, and none is ever loaded.
    #[error("no slot that tenant {tenant} may use holds operator {operator:?}, and the policy loads none")]
    Operator {
        /// The tenant.
        tenant: u16,
        /// The operator.
        operator: OperatorId,
    },
}

/// Slots, with the jobs that wait for them. See the [crate](crate).
#[derive(Clone, Debug)]
pub struct Slots {
    table: Table,
    tenants: Tenants,
    policy: Policy,
    lag: Nanos,
    linger: Nanos,
    /// Room for the demand for what each slot holds.
    wanted: Vec<Option<Key>>,
}

impl Slots {
    /// Slots without tenants.
    pub fn new(config: &Config) -> Result<Slots, ConfigError> {
        if !(1..=4096).contains(&config.slots.len()) {
            return Err(ConfigError::Slots(config.slots.len()));
        }
        // By arrival the oldest job has the least key: nothing is passed over.
        let shares = config.order == Order::Shares && config.policy == Policy::Reconfiguration;
        let patience = if shares { config.lag } else { u64::MAX };
        Ok(Slots {
            table: Table::new(&config.slots),
            tenants: Tenants::new(config.order, config.lag, patience),
            policy: config.policy,
            lag: config.lag,
            linger: config.linger,
            wanted: Vec::with_capacity(config.slots.len()),
        })
    }

    /// Adds a tenant, or changes it. What it was charged stays.
    pub fn set_tenant(&mut self, index: u16, tenant: Tenant) -> Result<(), ConfigError> {
        let slots = self.table.slots.len();
        if !(1..=1000).contains(&tenant.weight) {
            return Err(ConfigError::Weight(tenant.weight));
        }
        if usize::from(tenant.slot) >= slots {
            return Err(ConfigError::TenantSlot { slot: tenant.slot, slots });
        }
        self.tenants.set(index, tenant);
        Ok(())
    }

    /// Takes a tenant out, whose jobs have ended: those that wait are dropped. Who gets its number begins anew, as one
    /// that was never there.
    pub fn remove_tenant(&mut self, index: u16) {
        self.tenants.remove(index);
    }

    /// A job begins to wait. Call [`Slots::next`] after it.
    pub fn request(&mut self, job: Job, now: Nanos) -> Result<(), Refused> {
        let Job { tenant, operator, .. } = job;
        let known = self.tenants.get(tenant).ok_or(Refused::Tenant(tenant))?;
        let possible = match self.policy {
            Policy::Static => self.table.slots[usize::from(known.slot)].operator == Some(operator),
            Policy::Dynamic => self.table.holds(operator),
            Policy::Reconfiguration => true,
        };
        if !possible {
            return Err(Refused::Operator { tenant, operator });
        }
        self.tenants.push(job, now);
        Ok(())
    }

    /// The next thing to do; nothing where no waiting job can be served now. Call it again until then.
    #[inline]
    pub fn next(&mut self, now: Nanos) -> Option<Action> {
        if self.table.free == 0 || self.tenants.waiting == 0 {
            return None;
        }
        let (at, head) = self.best(now)?;
        let (slot, job) = (at as u16, head.job);
        self.tenants.start(&head);
        if self.table.slots[at].operator == Some(job.operator) {
            self.table.run(at, job, now);
            return Some(Action::Run { slot, job });
        }
        self.table.load(at, job, now);
        Some(Action::Load { slot, job })
    }

    /// The servable head with the least key, and the slot that it can have.
    #[inline]
    fn best(&mut self, now: Nanos) -> Option<(usize, Head)> {
        let (mut wanted, mut is_known) = (core::mem::take(&mut self.wanted), false);
        let mut best: Option<(usize, Head)> = None;
        for head in self.tenants.heads() {
            if best.as_ref().is_some_and(|(_, best)| best.key < head.key) {
                continue;
            }
            let place = self.place(&head, || {
                if !core::mem::replace(&mut is_known, true) {
                    self.demand(&mut wanted);
                }
                self.to_load(head.key, &wanted, now)
            });
            if let Some(at) = place {
                best = Some((at, head));
            }
        }
        self.wanted = wanted;
        best
    }

    /// The least key of the jobs that wait for what each free slot holds. Looks at each head once.
    fn demand(&self, wanted: &mut Vec<Option<Key>>) {
        wanted.clear();
        wanted.resize(self.table.slots.len(), None);
        for head in self.tenants.heads() {
            for (slot, least) in self.table.slots.iter().zip(&mut *wanted) {
                if slot.can_run(head.job.operator) {
                    *least = Some(least.map_or(head.key, |least| least.min(head.key)));
                }
            }
        }
    }

    /// The slot that a job can have now; `to_load` says which one is loaded for it.
    #[inline]
    fn place(&self, head: &Head, to_load: impl FnOnce() -> Option<usize>) -> Option<usize> {
        let Job { tenant, operator, .. } = head.job;
        if self.policy == Policy::Static {
            let own = usize::from(self.tenants.get(tenant)?.slot);
            return self.table.slots[own].can_run(operator).then_some(own);
        }
        let held = self.table.find(operator);
        if self.policy == Policy::Dynamic { held } else { held.or_else(to_load) }
    }

    /// The slot to load for a job: an empty one, else one that nobody waits for and that was idle longest, else
    /// one that others wait for who are far enough ahead. `wanted` is the [demand](Slots::demand).
    fn to_load(&self, key: Key, wanted: &[Option<Key>], now: Nanos) -> Option<usize> {
        let rank = |(at, (slot, least)): (usize, (&Slot, &Option<Key>))| {
            let rank = match (slot.operator, least) {
                _ if !slot.is_free() => None,
                (None, _) => Some(0),
                (Some(_), None) => (now >= slot.since + self.linger).then_some(1),
                (Some(_), Some(least)) => (least.0 > key.0.saturating_add_unsigned(self.lag)).then_some(2),
            };
            Some((rank?, slot.since, at))
        };
        self.table.slots.iter().zip(wanted).enumerate().filter_map(rank).min().map(|(.., at)| at)
    }

    /// A slot is loaded: its job, on whose block the owner works now.
    ///
    /// # Panics
    ///
    /// If the slot was not being loaded.
    pub fn loaded(&mut self, slot: u16, now: Nanos) -> Job {
        self.table.loaded(usize::from(slot), now)
    }

    /// A slot could not be loaded: its job, which is over. Its tenant is charged for the time.
    ///
    /// # Panics
    ///
    /// If the slot was not being loaded.
    pub fn load_failed(&mut self, slot: u16, now: Nanos) -> Job {
        let (job, taken) = self.table.load_failed(usize::from(slot), now);
        self.tenants.charge(job.tenant, now - taken);
        job
    }

    /// A block is done: its job. Call [`Slots::next`] after it.
    ///
    /// # Panics
    ///
    /// If the slot worked on nothing.
    #[inline]
    pub fn done(&mut self, slot: u16, now: Nanos) -> Job {
        let (job, taken) = self.table.done(usize::from(slot), now);
        self.tenants.charge(job.tenant, now - taken);
        job
    }

    /// Takes out the waiting jobs that `keep` says no to: their commands failed, or their tenants are gone. Jobs
    /// in slots end by themselves.
    pub fn retain(&mut self, keep: impl FnMut(Job) -> bool) {
        self.tenants.retain(keep);
    }

    /// When [`Slots::next`] may have something to do though nothing was told: a slot has been idle for long
    /// enough. Nothing where no job waits.
    pub fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        if self.tenants.waiting == 0 || self.policy != Policy::Reconfiguration {
            return None;
        }
        let free = self.table.slots.iter().filter(|slot| slot.is_free());
        free.map(|slot| slot.since + self.linger).filter(|at| *at > now).min()
    }

    /// The slots.
    pub fn slots(&self) -> &[Slot] {
        &self.table.slots
    }

    /// Jobs that wait.
    pub fn waiting(&self) -> usize {
        self.tenants.waiting
    }

    /// The slot time that a tenant was charged since the start.
    pub fn charged(&self, tenant: u16) -> Nanos {
        self.tenants.charged(tenant)
    }

    /// The slot in which a job is.
    pub fn slot_of(&self, job: JobId) -> Option<u16> {
        self.table.slot_of(job).map(|at| at as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn slots(count: u32, lag: Nanos) -> Slots {
        let config = Config {
            slots: (0..count).map(|operator| Some(OperatorId(operator))).collect(),
            policy: Policy::Reconfiguration,
            order: Order::Shares,
            lag,
            linger: 0,
        };
        Slots::new(&config).unwrap()
    }

    fn request(slots: &mut Slots, tenant: u16, operator: u32) {
        let id = JobId(u64::from(tenant) << 32 | u64::from(operator));
        slots.request(Job { id, tenant, operator: OperatorId(operator) }, 0).unwrap();
    }

    /// Many tenants wait for what no slot holds, and others for what the slots hold: each head is looked at twice, once for
    /// itself and once for the slots, however many slots there are.
    #[test]
    fn a_decision_looks_at_each_head_twice_at_most() {
        const TENANTS: u16 = 64;
        let mut slots = slots(16, 1 << 40);
        for tenant in 0..TENANTS {
            slots.set_tenant(tenant, Tenant::default()).unwrap();
            // The first of them wait for what nobody holds, so that every head asks for a slot to be loaded.
            (0..16).for_each(|at| request(&mut slots, tenant, if tenant == 0 { 100 + at } else { at }));
        }
        let heads = usize::from(TENANTS) * 16;
        assert_eq!(slots.waiting(), heads);
        while slots.table.free > 0 {
            slots.tenants.looks.set(0);
            assert!(slots.next(0).is_some());
            assert!(slots.tenants.looks.get() <= 2 * heads, "{} for {heads}", slots.tenants.looks.get());
        }
    }

    /// Who comes to the place of one that had much, or had nothing for long, is a tenant like any other.
    #[test]
    fn a_place_s_next_tenant_inherits_neither_debt_nor_jobs() {
        let mut slots = slots(1, 0);
        (0..2).for_each(|tenant| slots.set_tenant(tenant, Tenant::default()).unwrap());
        request(&mut slots, 0, 0);
        assert!(slots.next(0).is_some());
        // It has the slot for a second, and goes with work that waits.
        slots.done(0, 1_000_000_000);
        request(&mut slots, 0, 0);
        slots.remove_tenant(0);
        assert_eq!((slots.waiting(), slots.charged(0)), (0, 0));
        slots.set_tenant(0, Tenant::default()).unwrap();
        let mut order = vec![];
        for tenant in [0, 1, 0, 1] {
            request(&mut slots, tenant, 0);
        }
        let mut now = 1_000_000_000;
        while let Some(Action::Run { job, .. }) = slots.next(now) {
            order.push(job.tenant);
            now += 1000;
            slots.done(0, now);
        }
        assert_eq!(order, [0, 1, 0, 1]);
        // One that is taken out while its block is worked on leaves the slot to others.
        request(&mut slots, 1, 0);
        assert!(slots.next(now).is_some());
        slots.remove_tenant(1);
        slots.done(0, now + 5);
        assert_eq!(slots.charged(1), 0);
    }
}
