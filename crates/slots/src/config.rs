//! Configuration of slots, and its errors.

use crate::{Nanos, OperatorId};
use alloc::vec::Vec;

/// Configuration of slots and their scheduling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Slots, each with its initial operator.
    pub slots: Vec<Option<OperatorId>>,
    /// Rule for the jobs that may run in a slot.
    pub policy: Policy,
    /// Order in which waiting jobs are served.
    pub order: Order,
    /// Hysteresis: the least key of the jobs that wait for a slot's operator must exceed the key of the job to load for by more
    /// than this. Nanoseconds of arrival, or of slot time for a weight of 1.
    pub lag: Nanos,
    /// Time for which a slot without waiting jobs keeps its operator.
    pub linger: Nanos,
}

/// Rule for the jobs that may run in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Jobs run in the tenant's own slot ([`Tenant::slot`]).
    Static,
    /// Jobs run in any slot that holds their operator.
    Dynamic,
    /// Jobs run as with `Dynamic`, and slots are loaded with other operators.
    Reconfiguration,
}

/// Order in which waiting jobs are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Order of arrival.
    Arrival,
    /// Order by shares: the tenant with the least slot time, by weight, is next.
    Shares,
}

/// Settings of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Share relative to other tenants', from 1 to 1,000.
    pub weight: u32,
    /// Priority: how far the tenant may be ahead of its share and still go first. Nanoseconds, as [`Config::lag`].
    pub head_start: Nanos,
    /// Slot of the tenant, if slots are static.
    pub slot: u16,
}

impl Default for Tenant {
    fn default() -> Tenant {
        Tenant { weight: 1, head_start: 0, slot: 0 }
    }
}

/// Errors of a configuration or a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No slots, or too many.
    #[error("{0} slots: give 1 to 4096")]
    Slots(usize),
    /// A weight out of range.
    #[error("a weight of {0}: give 1 to 1000")]
    Weight(u32),
    /// A tenant's slot does not exist.
    #[error("a tenant in slot {slot} of {slots}: they are numbered from 0")]
    TenantSlot {
        /// Slot that was requested.
        slot: u16,
        /// Number of slots.
        slots: usize,
    },
}
