//! The persistent memory region: memory of the controller's, in a BAR of its own, that other devices reach too.
//!
//! Here it is a place for data between two devices: this controller moves data there by itself, without a transaction on the bus, and
//! the next device fetches them from there. That what lies there outlives a loss of power is of no use to us. [base 3.1.3.22 to 3.1.3.28]
//!
//! At each start the region is switched on, and the controller is told at which addresses commands name it: without that (PMRMSC) it would
//! take them for memory on the bus.

use super::error::Failure;
use super::host::Nvme;
use super::spec::register;
use super::start::Stage;
use crate::bus::{Bus, Window};
use dcs_engine::Nanos;

/// Where a controller's persistent memory region is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmrBar {
    /// The BAR that it is. A controller whose region is in another one, or that has none, is of no use then.
    pub bar: u8,
    /// By which addresses commands name it: those at which other devices find that BAR. Aligned to 4 KiB.
    pub window: Window,
}

/// What the region of a controller is like: PMRCAP. [base 3.1.3.22]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmrCapabilities(pub u32);

impl PmrCapabilities {
    /// Its BAR, of which it has the whole; nothing where that is none that it may be.
    pub fn bar(self) -> Option<u8> {
        Some((self.0 >> 5 & 7) as u8).filter(|bar| (2..=5).contains(bar))
    }

    /// Whether commands may name it: the controller reads and writes data there, and takes addresses for it.
    fn takes_data(self) -> bool {
        const READ_DATA: u32 = 1 << 3;
        const WRITE_DATA: u32 = 1 << 4;
        const ADDRESSES: u32 = 1 << 24;
        const ALL: u32 = READ_DATA | WRITE_DATA | ADDRESSES;
        self.0 & ALL == ALL
    }

    /// How long it may take to be ready, in nanoseconds.
    fn timeout(self) -> Nanos {
        const MINUTES: u32 = 1;
        let unit = if self.0 >> 8 & 3 == MINUTES { 60_000_000_000 } else { 500_000_000 };
        Nanos::from(self.0 >> 16 & 0xff).max(1) * unit
    }
}

/// How the region is: PMRSTS. [base 3.1.3.24]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PmrStatus(u32);

impl PmrStatus {
    fn ready(self) -> bool {
        self.0 >> 8 & 1 == 0
    }

    /// It has no error, and is neither read-only nor unreliable. What it had before may be lost: nobody asks for that.
    fn works(self) -> bool {
        self.0 & 0xff == 0 && self.0 >> 9 & 7 <= 1
    }

    fn address_refused(self) -> bool {
        self.0 >> 12 & 1 != 0
    }
}

/// Steps of a start, in their order.
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
    /// Switches the region on, where one is wanted; then the start goes on.
    pub(super) fn start_pmr(&mut self, bus: &mut dyn Bus, now: Nanos) {
        if self.config.pmr.is_none() {
            return self.start_cmb(bus, now);
        }
        if !self.bringup.capabilities.has_pmr() {
            return self.fail(bus, now, Failure::Unsupported("a persistent memory region (CAP.PMRS)"));
        }
        self.enter(Stage::Pmr(PmrStep::Capabilities), now, self.config.admin_timeout);
        self.look(bus, now);
    }

    /// A register of the region was read.
    pub(super) fn pmr(&mut self, bus: &mut dyn Bus, now: Nanos, step: PmrStep, value: u32) {
        const ENABLE: u32 = 1;
        let status = PmrStatus(value);
        match step {
            PmrStep::Capabilities => {
                let found = PmrCapabilities(value);
                if found.bar() != self.config.pmr.map(|pmr| pmr.bar) || !found.takes_data() {
                    let lacks = "a persistent memory region that commands may name, in this BAR (PMRCAP)";
                    return self.fail(bus, now, Failure::Unsupported(lacks));
                }
                self.write32(bus, register::PMRCTL, ENABLE);
                self.enter(Stage::Pmr(PmrStep::Ready), now, found.timeout());
                self.look(bus, now);
            }
            PmrStep::Ready if !status.ready() => {
                self.bringup.look = Some(now.saturating_add(self.config.interval));
            }
            PmrStep::Ready if !status.works() => {
                self.fail(bus, now, Failure::Unsupported("a persistent memory region that works (PMRSTS)"));
            }
            PmrStep::Ready => {
                const ADDRESSES: u32 = 1 << 1;
                let base = self.config.pmr.map_or(0, |pmr| pmr.window.address);
                // The lower half switches it on.
                self.write32(bus, register::PMRMSCU, (base >> 32) as u32);
                self.write32(bus, register::PMRMSCL, base as u32 & !0xfff | ADDRESSES);
                self.enter(Stage::Pmr(PmrStep::Address), now, self.config.admin_timeout);
                self.look(bus, now);
            }
            PmrStep::Address if status.address_refused() => {
                let lacks = "a persistent memory region at this address (PMRSTS.CBAI)";
                self.fail(bus, now, Failure::Unsupported(lacks));
            }
            PmrStep::Address => self.start_cmb(bus, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_taken_apart() {
        let found = PmrCapabilities(1 << 24 | 3 << 16 | 1 << 8 | 4 << 5 | 3 << 3);
        assert_eq!((found.bar(), found.timeout()), (Some(4), 180_000_000_000));
        assert!(found.takes_data());
        for missing in [24, 4, 3] {
            assert!(!PmrCapabilities(found.0 & !(1 << missing)).takes_data(), "bit {missing}");
        }
        assert_eq!(PmrCapabilities(2 << 16).timeout(), 1_000_000_000);
        assert_eq!((PmrCapabilities(0).bar(), PmrCapabilities(7 << 5).bar()), (None, None));
    }
}
