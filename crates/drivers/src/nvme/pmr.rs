//! The persistent memory region: memory of the controller, in a separate BAR, that other devices reach too.
//!
//! Here it is a place for data between two devices: this controller moves data there by itself, without a transaction on the bus, and the
//! next device fetches them from there. That the region survives a loss of power is not used. [base 3.1.3.22 to 3.1.3.28]
//!
//! At each start the region is switched on, and the controller is told (PMRMSC) at which addresses commands name it: otherwise it would
//! take them for memory on the bus.

use super::error::ResetCause;
use super::host::Nvme;
use super::start::Stage;
use crate::bus::Bus;
use dcs_engine::Nanos;
use dcs_nvme::{pmr, register};

/// Returns true if commands may name the region: the controller reads and writes data there, and accepts addresses for it.
fn takes_data(found: pmr::Capabilities) -> bool {
    found.read_data && found.write_data && found.space
}

/// Returns true if it has no error, and is neither read-only nor unreliable. Its earlier content may be lost, which does not matter.
fn works(status: pmr::Status) -> bool {
    status.error == 0 && status.health <= 1
}

/// Steps of a start, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PmrStep {
    /// Reading PMRCAP.
    Capabilities,
    /// Waiting for PMRSTS.NRDY = 0.
    Ready,
    /// Reading PMRSTS, which says whether the addresses will do.
    Address,
}

impl Nvme {
    /// Switches the region on, if one is wanted; then the start goes on.
    pub(super) fn start_pmr(&mut self, bus: &mut dyn Bus, now: Nanos) {
        if self.config.pmr.is_none() {
            return self.start_cmb(bus, now);
        }
        if !self.bringup.capabilities.pmr {
            return self.fail(bus, now, ResetCause::Unsupported("a persistent memory region (CAP.PMRS)"));
        }
        self.enter(Stage::Pmr(PmrStep::Capabilities), now, self.config.admin_timeout);
        self.look(bus, now);
    }

    /// Processes a register of the region.
    pub(super) fn pmr(&mut self, bus: &mut dyn Bus, now: Nanos, step: PmrStep, value: u32) {
        let status = pmr::Status::from_bits(value);
        match step {
            PmrStep::Capabilities => {
                let found = pmr::Capabilities::from_bits(value);
                if found.valid_bar() != self.config.pmr.map(|pmr| pmr.bar) || !takes_data(found) {
                    let lacks = "a persistent memory region that commands may name, in this BAR (PMRCAP)";
                    return self.fail(bus, now, ResetCause::Unsupported(lacks));
                }
                self.write32(bus, register::PMRCTL, pmr::Control { enabled: true }.bits());
                self.enter(Stage::Pmr(PmrStep::Ready), now, found.timeout_nanos());
                self.look(bus, now);
            }
            PmrStep::Ready if status.not_ready => {
                self.bringup.look = Some(now.saturating_add(self.config.interval));
            }
            PmrStep::Ready if !works(status) => {
                self.fail(
                    bus,
                    now,
                    ResetCause::Unsupported("a persistent memory region that works (PMRSTS)"),
                );
            }
            PmrStep::Ready => {
                let base = self.config.pmr.map_or(0, |pmr| pmr.window.address);
                let space = pmr::Space { enabled: true, base }.bits();
                // The lower half switches it on.
                self.write32(bus, register::PMRMSCU, (space >> 32) as u32);
                self.write32(bus, register::PMRMSCL, space as u32);
                self.enter(Stage::Pmr(PmrStep::Address), now, self.config.admin_timeout);
                self.look(bus, now);
            }
            PmrStep::Address if status.address_invalid => {
                let lacks = "a persistent memory region at this address (PMRSTS.CBAI)";
                self.fail(bus, now, ResetCause::Unsupported(lacks));
            }
            PmrStep::Address => self.start_cmb(bus, now),
        }
    }
}
