//! A queue pair that the host makes and lends ([`Config::lend`](super::Config::lend)): somebody else writes its entries, rings its doorbells
//! and takes its completions.
//!
//! The host starts and resets the controller, and sends Aborts. What the holder of the queue pair has is not done when the host has left
//! [`State::Ready`](super::State::Ready), but only when the queue pair isn't lent any more: the controller has stopped then.

use super::error::ResetCause;
use super::host::Nvme;
use super::start::Stage;
use crate::bus::Bus;
use dcs_engine::Nanos;

/// A lent queue pair, with empty rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePair {
    /// Number of both queues.
    pub number: u16,
    /// Namespace that commands are for.
    pub namespace: u32,
    /// Size of its logical blocks in bytes.
    pub block_size: u32,
    /// Offset of the submission queue in the card's own memory.
    pub submissions: u64,
    /// Offset of the completion queue in the card's own memory.
    pub completions: u64,
    /// Bus address of the submission queue's tail doorbell.
    pub tail_doorbell: u64,
    /// Bus address of the completion queue's head doorbell.
    pub head_doorbell: u64,
    /// Time that a command may take, before the controller is reset.
    pub patience: Nanos,
}

impl Nvme {
    /// Returns the queue pair that it lends, while the controller is ready.
    pub fn queue_pair(&self) -> Option<QueuePair> {
        let namespace = self.namespace.filter(|_| self.config.lend && self.stage == Stage::Ready)?;
        let number = 1;
        let (tail_doorbell, head_doorbell) = self.doorbells(number);
        Some(QueuePair {
            number,
            namespace: namespace.number,
            block_size: namespace.block_size,
            submissions: self.layout.submissions(0),
            completions: self.layout.completions(0),
            tail_doorbell,
            head_doorbell,
            patience: self.config.timeout.saturating_add(self.config.admin_timeout),
        })
    }

    /// Returns true if the controller may reach memory by a queue pair that is lent.
    pub fn is_lent(&self) -> bool {
        self.recovery.is_lent
    }

    /// Aborts a command of the lent queue pair, as far as the controller can.
    pub fn abort_lent(&mut self, bus: &mut dyn Bus, now: Nanos, cid: u16) {
        if self.config.lend && self.stage == Stage::Ready {
            self.recovery.aborts.push_back((0, cid));
            self.send_aborts(bus, now);
        }
    }

    /// Resets the controller, if that may help: the holder of the lent queue pair can't go on.
    pub fn lent_is_broken(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.fail(bus, now, ResetCause::TimedOut);
    }

    /// Notes that a command of the lent queue pair has succeeded: earlier resets don't count any more.
    pub fn lent_has_succeeded(&mut self) {
        self.recovery.succeeded();
    }
}
