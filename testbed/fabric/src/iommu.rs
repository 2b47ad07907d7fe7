//! IOMMU: address ranges that a requester may reach, and their bus addresses. No page tables and no caches of them.

use dcs_drivers::bus::Window;

/// Granularity of mappings, and boundary that no request crosses [PCIe 5.0, 2.2.7]. Bytes.
pub const PAGE: u64 = 4096;

/// Accesses that a mapping permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads only.
    Read,
    /// Writes only.
    Write,
    /// Both.
    ReadWrite,
}

/// IOMMU of one requester: only mapped addresses are reachable.
#[derive(Clone, Debug, Default)]
pub struct Iommu {
    mappings: Vec<(Window, u64, Access)>,
}

impl Iommu {
    /// Returns an IOMMU that permits nothing.
    pub fn new() -> Iommu {
        Iommu::default()
    }

    /// Maps `window` of the requester's addresses to as many bytes of the bus from `address` on.
    ///
    /// # Panics
    ///
    /// If an end is not on a page boundary, or the window overlaps another one.
    pub fn map(&mut self, window: Window, address: u64, access: Access) {
        assert!([window.address, window.length, address].iter().all(|at| at % PAGE == 0), "whole pages");
        let overlaps = |other: &Window| {
            window.address < other.address + other.length && other.address < window.address + window.length
        };
        assert!(!self.mappings.iter().any(|(other, ..)| overlaps(other)), "{window:?} is mapped already");
        self.mappings.push((window, address, access));
    }

    /// Removes the mapping that starts at `address`, if there is one.
    pub fn unmap(&mut self, address: u64) {
        self.mappings.retain(|(window, ..)| window.address != address);
    }

    /// Returns the bus address for a request within a page, if permitted.
    pub(crate) fn translate(&self, address: u64, length: u64, write: bool) -> Option<u64> {
        let (window, to, access) = self.mappings.iter().find(|(w, ..)| w.contains(address, length))?;
        let forbidden = if write { Access::Read } else { Access::Write };
        (*access != forbidden).then(|| to + (address - window.address))
    }
}

/// A request that an IOMMU refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Address, as the requester gave it.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// True for a write, false for a read.
    pub write: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_mapped_and_allowed_is_translated() {
        let mut iommu = Iommu::new();
        iommu.map(Window { address: 0x1000, length: 0x2000 }, 0x9000, Access::Read);
        iommu.map(Window { address: 0x3000, length: 0x1000 }, 0x1000, Access::Write);
        assert_eq!(iommu.translate(0x2ffc, 4, false), Some(0xaffc));
        assert_eq!(iommu.translate(0x2ffc, 4, true), None);
        assert_eq!(iommu.translate(0x3000, 4, true), Some(0x1000));
        assert_eq!(iommu.translate(0x3000, 4, false), None);
        assert_eq!(iommu.translate(0x4000, 1, true), None);
        iommu.unmap(0x1000);
        assert_eq!(iommu.translate(0x2ffc, 4, false), None);
    }

    #[test]
    #[should_panic(expected = "mapped already")]
    fn mappings_do_not_overlap() {
        let mut iommu = Iommu::new();
        iommu.map(Window { address: 0x1000, length: 0x2000 }, 0, Access::ReadWrite);
        iommu.map(Window { address: 0x2000, length: 0x1000 }, 0, Access::ReadWrite);
    }
}
