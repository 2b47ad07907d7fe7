//! Configuration of slots, and the errors of one that cannot be.

use crate::{Nanos, OperatorId};
use alloc::vec::Vec;

/// Slots, and how they are given away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The slots, each with the operator that it holds at first.
    pub slots: Vec<Option<OperatorId>>,
    /// Which jobs may run where.
    pub policy: Policy,
    /// Whose job is next.
    pub order: Order,
    /// How much further ahead than the job that a slot would be loaded for those have to be that wait for what it
    /// holds: nanoseconds of arrival, or of slot time for a weight of 1.
    pub lag: Nanos,
    /// How long a slot that nobody waits for keeps its operator.
    pub linger: Nanos,
}

/// Which jobs may run in which slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// In the tenant's own ([`Tenant::slot`]).
    Static,
    /// In every one that holds the job's operator.
    Dynamic,
    /// The same, and slots are loaded with other operators.
    Reconfiguration,
}

/// Whose job is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The one that came first.
    Arrival,
    /// That of the tenant that had least, by weight.
    Shares,
}

/// A tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its share beside the others', from 1 to 1,000.
    pub weight: u32,
    /// Its priority: how far it may be ahead of its share and still go first. Nanoseconds, as [`Config::lag`].
    pub head_start: Nanos,
    /// Its slot, where they are static.
    pub slot: u16,
}

impl Default for Tenant {
    fn default() -> Tenant {
        Tenant { weight: 1, head_start: 0, slot: 0 }
    }
}

/// Why slots or a tenant cannot be as asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No slots, or too many.
    #[error("{0} slots: give 1 to 4096")]
    Slots(usize),
    /// A weight out of range.
    #[error("a weight of {0}: give 1 to 1000")]
    Weight(u32),
    /// A tenant's slot that there is none of.
    #[error("a tenant in slot {slot} of {slots}: they are numbered from 0")]
    TenantSlot {
        /// The slot asked for.
        slot: u16,
        /// The number of slots.
        slots: usize,
    },
}
