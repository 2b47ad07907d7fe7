//! The settings of a host, and the layout of its region.

use super::data::list_length;
use super::slots;
use crate::bus::Window;
use dcs_engine::Nanos;
use dcs_nvme::{command, completion, identify};

/// Size of a submission entry in bytes.
pub(super) const SUBMISSION: u64 = command::SIZE as u64;
/// Size of a completion entry in bytes.
pub(super) const COMPLETION: u64 = completion::SIZE as u64;
/// Size of identify data in bytes.
pub(super) const IDENTIFY: u64 = identify::SIZE as u64;

/// Entries of the admin queues.
pub(super) const ADMIN_ENTRIES: u16 = 32;

/// The settings of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// BAR 0 of the controller. No write goes outside of it (except for [`Config::cmb`]).
    pub registers: Window,
    /// Number of this controller in the tags of its register reads.
    pub controller: u32,
    /// Namespace number; `None`: the first active one.
    pub namespace: Option<u32>,
    /// I/O queue pairs to request; the controller may grant fewer.
    pub queues: u16,
    /// Entries to request for each I/O queue, 2 to 4,096; the controller may have fewer. One less can be outstanding.
    pub depth: u16,
    /// Most bytes of a request. It decides how much memory lists take.
    pub max_transfer: u64,
    /// Memory page to request (CC.MPS), a power of two of at least 4,096; the nearest one that the controller supports is used. Larger ones
    /// make lists shorter, but all pieces of a request except its ends must be aligned to it.
    pub page: u64,
    /// Use of scatter gather lists.
    pub sgl: SglUse,
    /// BAR of the controller memory buffer, if that is to hold the I/O submission queues and the controller has one.
    pub cmb: Option<CmbBar>,
    /// Place for the controller's persistent memory region, if data of requests are to be there: the controller must have one then.
    pub pmr: Option<PmrBar>,
    /// Set to have the I/O queue pair used by somebody else ([`Nvme::queue_pair`](super::Nvme::queue_pair)): one, of exactly
    /// [`Config::depth`] entries, in the card's own memory. The host takes no requests then.
    pub lend: bool,
    /// Set to have completions raise interrupts, all by MSI-X vector 0, which must then be set up. Otherwise they are found by polling.
    pub interrupts: bool,
    /// Time limit of an I/O command.
    pub timeout: Nanos,
    /// Time limit of a command of the start, an Abort, and a register read; also of an aborted command's completion.
    pub admin_timeout: Nanos,
    /// Interval at which CSTS is read while the controller starts or stops.
    pub interval: Nanos,
    /// Resets in a row, without any command succeeding in between, after which the controller is given up.
    pub resets: u32,
}

impl Config {
    /// Makes the usual settings: one queue pair of 128 entries, requests up to 1 MiB, pages of 4 KiB, SGLs if PRPs won't do.
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
            lend: false,
            interrupts: false,
            timeout: 10_000_000_000,
            admin_timeout: 5_000_000_000,
            interval: 1_000_000,
            resets: 3,
        }
    }

    /// Returns how many bytes of own memory a host with these settings takes, if the controller has the requested page size.
    pub fn memory(&self) -> u64 {
        let layout = Layout::new(0, self.queues, self.depth, self.page, self.max_transfer);
        layout.end + self.page
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let depth = (2..=slots::SLOTS_MAX).contains(&self.depth);
        let page = self.page.is_power_of_two() && (1 << 12..=1 << 27).contains(&self.page);
        let transfer = (512..=1 << 32).contains(&self.max_transfer);
        let lends = !self.lend || (self.queues == 1 && self.cmb.is_none());
        let pmr = self.pmr.is_none_or(|pmr| {
            let end = pmr.window.address.checked_add(pmr.window.length);
            pmr.window.address.is_multiple_of(4096) && end.is_some()
        });
        if self.queues == 0
            || !pmr
            || !lends
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

/// The use of scatter gather lists instead of PRP lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SglUse {
    /// Never.
    Never,
    /// If a PRP list can't describe the data, and the controller supports them.
    WhereNeeded,
    /// Always, if the controller supports them.
    Preferred,
}

/// The BAR of a controller memory buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmbBar {
    /// Number of the BAR. A controller whose buffer is in another one keeps its queues in the card's own memory.
    pub bar: u8,
    /// Address on the bus.
    pub window: Window,
}

/// The address for a controller's persistent memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmrBar {
    /// Number of the BAR. A controller whose region is in another one, or that has none, is refused.
    pub bar: u8,
    /// Addresses by which commands name the region: those at which other devices find that BAR. Aligned to 4 KiB.
    pub window: Window,
}

/// The reason why settings are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A number is out of its range.
    #[error("a number in the NVMe settings is out of range")]
    Range,
    /// The region is smaller than [`Config::memory`].
    #[error("the region has {length} bytes, and {needed} are needed")]
    Region {
        /// Size of the region in bytes.
        length: u64,
        /// Bytes needed.
        needed: u64,
    },
}

/// Layout of own memory: offsets from an address that is aligned to the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    base: u64,
    page: u64,
    depth: u16,
    /// Size of one command's list in bytes.
    pub list: u64,
    queue: u64,
    /// Offset of the first byte that is not taken.
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

    /// Returns the offset of the submission queue of I/O queue pair `index`, from 0.
    pub fn submissions(&self, index: u16) -> u64 {
        self.identify() + up(IDENTIFY, self.page) + u64::from(index) * self.queue
    }

    pub fn completions(&self, index: u16) -> u64 {
        self.submissions(index) + self.submission_bytes()
    }

    /// Returns the size of a submission queue in bytes, in whole pages.
    pub fn submission_bytes(&self) -> u64 {
        up(u64::from(self.depth) * SUBMISSION, self.page)
    }

    /// Returns the offset of the list of slot `slot`.
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
