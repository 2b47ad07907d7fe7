//! The state machine: [`Slots`].

use crate::table::{Slot, Table};
use crate::tenants::{Head, Key, Tenants};
use crate::{Config, ConfigError, Job, JobId, Nanos, OperatorId, Order, Policy, Tenant};
use alloc::vec::Vec;

/// The next action for the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Load the slot with the job's operator, then call [`Slots::loaded`] or [`Slots::load_failed`].
    Load {
        /// Slot to load.
        slot: u16,
        /// Job that the slot is loaded for.
        job: Job,
    },
    /// Work on the job's block in the slot, then call [`Slots::done`].
    Run {
        /// Slot to use.
        slot: u16,
        /// Job to run.
        job: Job,
    },
}

/// Reason for which a job was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Its tenant was never [set](Slots::set_tenant).
    #[error("tenant {0} is unknown: set it first")]
    Tenant(u16),
    /// No slot holds its operator, and none is ever loaded.
    #[error("no slot that tenant {tenant} may use holds operator {operator:?}, and the policy loads none")]
    Operator {
        /// Tenant of the job.
        tenant: u16,
        /// Operator of the job.
        operator: OperatorId,
    },
}

/// Slots and the jobs that wait for them. See the [crate](crate).
#[derive(Clone, Debug)]
pub struct Slots {
    table: Table,
    tenants: Tenants,
    policy: Policy,
    lag: Nanos,
    linger: Nanos,
    /// Room for the demand for each slot's operator.
    wanted: Vec<Option<Key>>,
}

impl Slots {
    /// Returns slots without tenants.
    pub fn new(config: &Config) -> Result<Slots, ConfigError> {
        if !(1..=4096).contains(&config.slots.len()) {
            return Err(ConfigError::Slots(config.slots.len()));
        }
        // By arrival the oldest job has the least key, so no job is passed over.
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

    /// Adds or changes a tenant. Its charges stay.
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

    /// Removes a tenant whose jobs have ended; waiting jobs are dropped. A later tenant with its number begins anew.
    pub fn remove_tenant(&mut self, index: u16) {
        self.tenants.remove(index);
    }

    /// Adds a waiting job. Call [`Slots::next`] afterwards.
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

    /// Returns the next action, `None` if no waiting job can be served now. Call it until it returns `None`.
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

    /// Returns the servable head with the least key, and the slot that it can use.
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

    /// Returns the least key of the jobs that wait for the operator of each free slot. Looks at each head once.
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

    /// Returns the slot that a job can use now; `to_load` returns the one to load for it.
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

    /// Returns the slot to load for a job: an empty one, else the one without waiting jobs that was idle longest, else one
    /// whose waiting jobs are far enough behind this one. `wanted` is the [demand](Slots::demand).
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

    /// Reports that a slot is loaded. Returns its job, whose block the owner works on now.
    ///
    /// # Panics
    ///
    /// If the slot was not being loaded.
    pub fn loaded(&mut self, slot: u16, now: Nanos) -> Job {
        self.table.loaded(usize::from(slot), now)
    }

    /// Reports that a slot could not be loaded. Returns its job, which is over. The tenant is charged for the time.
    ///
    /// # Panics
    ///
    /// If the slot was not being loaded.
    pub fn load_failed(&mut self, slot: u16, now: Nanos) -> Job {
        let (job, taken) = self.table.load_failed(usize::from(slot), now);
        self.tenants.charge(job.tenant, now - taken);
        job
    }

    /// Reports that a block is done. Returns its job. Call [`Slots::next`] afterwards.
    ///
    /// # Panics
    ///
    /// If the slot was not working.
    #[inline]
    pub fn done(&mut self, slot: u16, now: Nanos) -> Job {
        let (job, taken) = self.table.done(usize::from(slot), now);
        self.tenants.charge(job.tenant, now - taken);
        job
    }

    /// Removes the waiting jobs for which `keep` returns false: their commands failed, or their tenants are gone. Jobs in slots
    /// end by themselves.
    pub fn retain(&mut self, keep: impl FnMut(Job) -> bool) {
        self.tenants.retain(keep);
    }

    /// Returns the time at which [`Slots::next`] may have an action without further input, since a slot has then been idle for
    /// long enough. `None` if no job waits.
    pub fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        if self.tenants.waiting == 0 || self.policy != Policy::Reconfiguration {
            return None;
        }
        let free = self.table.slots.iter().filter(|slot| slot.is_free());
        free.map(|slot| slot.since + self.linger).filter(|at| *at > now).min()
    }

    /// Returns the slots.
    pub fn slots(&self) -> &[Slot] {
        &self.table.slots
    }

    /// Returns the number of waiting jobs.
    pub fn waiting(&self) -> usize {
        self.tenants.waiting
    }

    /// Returns the slot time that a tenant was charged since the start.
    pub fn charged(&self, tenant: u16) -> Nanos {
        self.tenants.charged(tenant)
    }

    /// Returns the slot that a job is in.
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

    /// Checks the cost where many tenants wait for operators that no slot holds, and others for operators of slots: each
    /// head is looked at twice, once for itself and once for the slots, for any number of slots.
    #[test]
    fn a_decision_looks_at_each_head_twice_at_most() {
        const TENANTS: u16 = 64;
        let mut slots = slots(16, 1 << 40);
        for tenant in 0..TENANTS {
            slots.set_tenant(tenant, Tenant::default()).unwrap();
            // The first of them wait for operators that no slot holds, so that every head requests a load.
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

    /// Checks that a tenant that takes over a number starts like any other, whether the earlier tenant had much or nothing.
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
