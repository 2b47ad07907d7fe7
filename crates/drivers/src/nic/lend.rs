//! Rings that the driver sets up and lends: a second transmit ring ([`Config::lend`](super::Config::lend)), and the receive ring
//! ([`Config::lend_receive`](super::Config::lend_receive)). Somebody else writes their descriptors and tails, and looks for their done bits.
//!
//! The driver starts and resets the NIC. What the holder of a ring has is not done when the driver has left
//! [`State::Ready`](super::State::Ready), but only when the ring isn't lent any more: the NIC has stopped then.

use super::config::ResetCause;
use super::descriptor::LENGTH;
use super::host::Nic;
use super::model::ring;
use super::start::Stage;
use crate::bus::Bus;
use dcs_engine::Nanos;

/// A lent ring, which is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentRing {
    /// Offset of the descriptors in the card's own memory.
    pub descriptors: u64,
    /// Offset of places for headers in the card's own memory, of 64 bytes for each descriptor.
    pub headers: u64,
    /// Bus address of the ring's tail register.
    pub tail: u64,
    /// Number of the NIC's start that has set it up.
    pub start: u64,
}

/// A lent receive ring, which is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentReceive {
    /// Offset of the descriptors in the card's own memory.
    pub descriptors: u64,
    /// Offset of the buffers in the card's own memory.
    pub buffers: u64,
    /// Bus address of the ring's tail register.
    pub tail: u64,
    /// Number of the NIC's start that has set it up.
    pub start: u64,
}

/// State of the rings that are lent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lending {
    /// Set while the NIC may reach memory by it.
    pub is_lent: bool,
    /// Time since which the NIC has the oldest frame in it.
    pub oldest: Option<Nanos>,
    /// Times that they were set up.
    pub starts: u64,
}

impl Nic {
    /// Returns the ring that it lends, while the NIC is ready.
    pub fn lent(&self) -> Option<LentRing> {
        let is_there = self.config.lend > 0 && self.stage == Stage::Ready;
        is_there.then(|| LentRing {
            descriptors: self.layout.lent,
            headers: self.layout.lent_headers,
            tail: self.config.registers.address + self.lent_registers() + ring::TAIL,
            start: self.lending.starts,
        })
    }

    /// Returns the receive ring, if it lends that, while the NIC is ready.
    pub fn lent_receive(&self) -> Option<LentReceive> {
        let is_there = self.config.lend_receive && self.stage == Stage::Ready;
        is_there.then(|| LentReceive {
            descriptors: self.layout.receive.ring,
            buffers: self.layout.receive.packets,
            tail: self.config.registers.address + self.chip.receive + ring::TAIL,
            start: self.lending.starts,
        })
    }

    /// Notes where a lent receive ring is: its next frame, and the tail that the NIC knows.
    pub fn follow_receive(&mut self, (next, tail): (u16, u16)) {
        self.receive.follow(next, tail);
    }

    /// Counts a frame that was received by a lent ring.
    pub fn note_received(&mut self) {
        self.counters.received += 1;
    }

    /// Resets the NIC, which has told of a frame that no buffer of a lent ring holds.
    pub fn fail_impossible(&mut self, bus: &mut dyn Bus, now: Nanos) {
        if self.stage == Stage::Ready {
            self.fail(bus, now, ResetCause::Impossible);
        }
    }

    /// Returns true if the NIC may reach memory by a ring that is lent.
    pub fn is_lent(&self) -> bool {
        self.lending.is_lent
    }

    /// Notes since when the NIC has the oldest frame of the lent ring, and whether one was sent: earlier resets don't count any more then.
    pub fn note_lent(&mut self, oldest: Option<Nanos>, has_sent: bool) {
        if self.stage == Stage::Ready {
            self.lending.oldest = oldest;
            if has_sent {
                self.attempts = 0;
            }
        }
    }

    /// Returns the first register of the ring that is lent.
    pub(super) fn lent_registers(&self) -> u64 {
        self.chip.transmit + self.chip.next_ring
    }

    /// Empties the ring that is lent, before the NIC is told of it.
    pub(super) fn clear_lent(&mut self, bus: &mut dyn Bus) {
        for entry in 0..u64::from(self.config.lend) {
            bus.store(self.layout.lent + entry * LENGTH, &[0; LENGTH as usize]);
        }
        self.lending.starts += 1;
    }
}
