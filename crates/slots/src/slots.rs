//! The state machine: [`Slots`].

use crate::table::{Slot, Table};
use crate::tenants::{Head, Key, Tenants};
use crate::{Config, ConfigError, Job, JobId, Nanos, OperatorId, Order, Policy, Tenant};

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
        let servable = self.tenants.heads().filter_map(|head| Some((self.place(&head, now)?, head)));
        let (at, head) = servable.min_by_key(|(_, head)| head.key)?;
        let (slot, job) = (at as u16, head.job);
        self.tenants.start(&head);
        if self.table.slots[at].operator == Some(job.operator) {
            self.table.run(at, job, now);
            return Some(Action::Run { slot, job });
        }
        self.table.load(at, job, now);
        Some(Action::Load { slot, job })
    }

    /// The slot that a job can have now.
    #[inline]
    fn place(&self, head: &Head, now: Nanos) -> Option<usize> {
        let Job { tenant, operator, .. } = head.job;
        if self.policy == Policy::Static {
            let own = usize::from(self.tenants.get(tenant)?.slot);
            return self.table.slots[own].can_run(operator).then_some(own);
        }
        let held = self.table.find(operator);
        if self.policy == Policy::Dynamic { held } else { held.or_else(|| self.to_load(head.key, now)) }
    }

    /// The slot to load for a job: an empty one, else one that nobody waits for and that was idle longest, else
    /// one that others wait for who are far enough ahead.
    fn to_load(&self, key: Key, now: Nanos) -> Option<usize> {
        let rank = |(at, slot): (usize, &Slot)| {
            let held = slot.operator.filter(|_| slot.is_free());
            let rank = match held {
                None => slot.is_free().then_some(0),
                Some(operator) => match self.least_key(operator) {
                    None => (now >= slot.since + self.linger).then_some(1),
                    Some(least) => (least.0 > key.0.saturating_add_unsigned(self.lag)).then_some(2),
                },
            };
            Some((rank?, slot.since, at))
        };
        self.table.slots.iter().enumerate().filter_map(rank).min().map(|(.., at)| at)
    }

    /// The least key of the jobs that wait for an operator.
    fn least_key(&self, operator: OperatorId) -> Option<Key> {
        self.tenants.heads().filter(|head| head.job.operator == operator).map(|head| head.key).min()
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
