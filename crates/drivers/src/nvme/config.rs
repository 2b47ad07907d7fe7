//! The settings of a host, and the layout of its region.

use super::data::list_length;
use super::slots;
use crate::bus::Window;
use dcs_engine::Nanos;
use dcs_nvme::{command, completion, identify};

/// Bytes of a submission entry.
pub(super) const SUBMISSION: u64 = command::SIZE as u64;
/// Bytes of a completion entry.
pub(super) const COMPLETION: u64 = completion::SIZE as u64;
/// Bytes of identify data.
pub(super) const IDENTIFY: u64 = identify::SIZE as u64;

/// Entries of the admin queues.
pub(super) const ADMIN_ENTRIES: u16 = 32;

/// The settings of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The controller's BAR 0. No write goes outside of it (but for [`Config::cmb`]).
    pub registers: Window,
    /// Which controller this is in the tags of its register reads.
    pub controller: u32,
    /// The namespace; none: the first active one.
    pub namespace: Option<u32>,
    /// I/O queue pairs wanted; the controller may grant fewer.
    pub queues: u16,
    /// Entries of each I/O queue wanted, 2 to 4,096; the controller may have fewer. One less can be
    /// outstanding.
    pub depth: u16,
    /// Bytes that a request may have at most. It decides how much memory lists take.
    pub max_transfer: u64,
    /// The memory page wanted (CC.MPS), a power of two of at least 4,096; the nearest that the controller has
    /// is taken. Larger ones make lists shorter, but all pieces of a request but its ends have to be aligned
    /// to it.
    pub page: u64,
    /// When scatter gather lists are used.
    pub sgl: SglUse,
    /// Where the controller memory buffer is to hold the I/O submission queues, if the controller has one:
    /// its BAR.
    pub cmb: Option<CmbBar>,
    /// Where the controller's persistent memory region is to be, if data of requests are to lie there: the
    /// controller has to have one then.
    pub pmr: Option<PmrBar>,
    /// Completions raise interrupts, all by vector 0 of MSI-X, which then has to be set up. Without, they are
    /// found by polling.
    pub interrupts: bool,
    /// Time that an I/O command may take.
    pub timeout: Nanos,
    /// Time that a command of the bring-up, an Abort, or a register read may take; also the time that an
    /// aborted command may take to complete.
    pub admin_timeout: Nanos,
    /// Interval at which CSTS is read while the controller starts or stops.
    pub interval: Nanos,
    /// Resets in a row, without any command succeeding in between, after which the controller is given up.
    pub resets: u32,
}

impl Config {
    /// The usual set-up: one queue pair of 128 entries, requests up to 1 MiB, pages of 4 KiB, SGLs where PRPs
    /// can't do.
    pub fn new(registers: Window, controller: u32) -> Config {
        Config {
            registers,
            controller,
            namespace: None,
            queues: 1,
            depth: 128,
            max_transfer: 1 << 20,
            page: 4096,
            sgl: SglUse::WhereNeeded,
            cmb: None,
            pmr: None,
            interrupts: false,
            timeout: 10_000_000_000,
            admin_timeout: 5_000_000_000,
            interval: 1_000_000,
            resets: 3,
        }
    }

    /// Bytes of own memory that a host of this set-up takes, with a controller that has the page size wanted.
    pub fn memory(&self) -> u64 {
        let layout = Layout::new(0, self.queues, self.depth, self.page, self.max_transfer);
        layout.end + self.page
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let depth = (2..=slots::SLOTS_MAX).contains(&self.depth);
        let page = self.page.is_power_of_two() && (1 << 12..=1 << 27).contains(&self.page);
        let transfer = (512..=1 << 32).contains(&self.max_transfer);
        let pmr = self.pmr.is_none_or(|pmr| {
            let end = pmr.window.address.checked_add(pmr.window.length);
            pmr.window.address.is_multiple_of(4096) && end.is_some()
        });
        if self.queues == 0
            || !pmr
            || self.registers.length < 0x1010
            || !depth
            || !page
            || !transfer
            || self.interval == 0
        {
            return Err(ConfigError::Range);
        }
        Ok(())
    }
}

/// When scatter gather lists are used instead of PRP lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SglUse {
    /// Never.
    Never,
    /// Where a PRP list can't describe the data, and the controller has them.
    WhereNeeded,
    /// Always, where the controller has them.
    Preferred,
}

/// The BAR that a controller memory buffer lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmbBar {
    /// Its number. A controller whose buffer lies in another one keeps its queues in the card's own memory.
    pub bar: u8,
    /// Where it is on the bus.
    pub window: Window,
}

/// The address for a controller's persistent memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmrBar {
    /// The BAR that it is. A controller whose region is in another one, or that has none, is of no use then.
    pub bar: u8,
    /// Addresses by which commands name it: those at which other devices find that BAR. Aligned to 4 KiB.
    pub window: Window,
}

/// Why a set-up is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A number is out of its range.
    #[error("a number of the NVMe set-up is out of range")]
    Range,
    /// The region is smaller than [`Config::memory`].
    #[error("the region has {length} bytes, {needed} are needed")]
    Region {
        /// Bytes of the region.
        length: u64,
        /// Bytes needed.
        needed: u64,
    },
}

/// Where everything lies: offsets from an address that is aligned to the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    base: u64,
    page: u64,
    depth: u16,
    /// Bytes of one command's list.
    pub list: u64,
    queue: u64,
    /// The first byte that is not taken.
    pub end: u64,
}

impl Layout {
    pub fn new(base: u64, queues: u16, depth: u16, page: u64, max_transfer: u64) -> Layout {
        let list = list_length(max_transfer, page);
        let rings = up(u64::from(depth) * SUBMISSION, page) + up(u64::from(depth) * COMPLETION, page);
        let queue = rings + up(u64::from(depth) * list, page);
        let admin = 2 * page + up(IDENTIFY, page);
        Layout { base, page, depth, list, queue, end: base + admin + u64::from(queues) * queue }
    }

    pub fn admin_submissions(&self) -> u64 {
        self.base
    }

    pub fn admin_completions(&self) -> u64 {
        self.base + self.page
    }

    pub fn identify(&self) -> u64 {
        self.base + 2 * self.page
    }

    /// The submission queue of I/O queue pair `index`, from 0.
    pub fn submissions(&self, index: u16) -> u64 {
        self.identify() + up(IDENTIFY, self.page) + u64::from(index) * self.queue
    }

    pub fn completions(&self, index: u16) -> u64 {
        self.submissions(index) + self.submission_bytes()
    }

    /// Bytes of a submission queue, in whole pages.
    pub fn submission_bytes(&self) -> u64 {
        up(u64::from(self.depth) * SUBMISSION, self.page)
    }

    /// The list of slot `slot`.
    pub fn list(&self, index: u16, slot: u16) -> u64 {
        self.completions(index)
            + up(u64::from(self.depth) * COMPLETION, self.page)
            + u64::from(slot) * self.list
    }
}

fn up(length: u64, page: u64) -> u64 {
    length.next_multiple_of(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_everything_is_aligned() {
        for (depth, page, most) in [(2, 4096, 4096), (128, 4096, 1 << 20), (1000, 65536, 8 << 20)] {
            let layout = Layout::new(1 << 20, 3, depth, page, most);
            let mut parts = vec![
                (layout.admin_submissions(), u64::from(ADMIN_ENTRIES) * SUBMISSION, page),
                (layout.admin_completions(), u64::from(ADMIN_ENTRIES) * COMPLETION, page),
                (layout.identify(), IDENTIFY, page),
            ];
            for queue in 0..3 {
                parts.push((layout.submissions(queue), u64::from(depth) * SUBMISSION, page));
                parts.push((layout.completions(queue), u64::from(depth) * COMPLETION, page));
                parts.extend(
                    (0..depth).map(|slot| (layout.list(queue, slot), layout.list, layout.list.min(page))),
                );
            }
            for (at, length, align) in &parts {
                assert_eq!(at % align, 0);
                assert!(at + length <= layout.end);
            }
            assert!(parts.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0), "in order, without overlap");
        }
    }
}
