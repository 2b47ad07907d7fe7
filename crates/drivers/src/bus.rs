//! The bus as a device controller sees it: its only way to reach anything outside itself.
//!
//! A controller (an NVMe host, a NIC's driver) runs inside a card, or in a process that drives devices over VFIO. Its owner has memory that
//! the other devices of the bus can reach too (a BAR): queues, descriptor rings and blocks are there. Everything else that a controller
//! does is what a PCIe function can do: a memory write, a memory read, an interrupt to its host. No controller knows which bus it is on:
//! the in-memory fabric of the tests, QEMU's over vfio-user, or a real one over VFIO.
//!
//! **Order** [PCIe 5.0, 2.4]: writes arrive in the order in which they were made, and a read pushes the
//! writes before it ahead of itself. So a doorbell written after a queue entry was stored never overtakes it.
//!
//! **Trust**: the bytes from [`Bus::load`] and a [`ReadDone`] may come from a device that lies, or that is still writing. A controller
//! copies first (both calls do), then checks, then uses.

use core::fmt;

/// The bus as one function on it sees it.
pub trait Bus {
    /// Returns the card's own memory as other devices address it, for PRPs and descriptor rings.
    fn window(&self) -> Window;

    /// Copies from the card's own memory.
    ///
    /// # Panics
    ///
    /// If the range is outside of it: offsets are the controller's own, never a device's.
    fn load(&self, offset: u64, bytes: &mut [u8]);

    /// Copies into the card's own memory.
    ///
    /// # Panics
    ///
    /// As [`Bus::load`].
    fn store(&mut self, offset: u64, bytes: &[u8]);

    /// Copies within the card's own memory, between places that don't overlap.
    ///
    /// # Panics
    ///
    /// As [`Bus::load`].
    fn copy(&mut self, from: u64, to: u64, length: u64) {
        let mut bytes = [0; 2048];
        let mut done = 0;
        while done < length {
            let part = (length - done).min(bytes.len() as u64);
            self.load(from + done, &mut bytes[..part as usize]);
            self.store(to + done, &bytes[..part as usize]);
            done += part;
        }
    }

    /// Makes a memory write to a bus address: a doorbell, a register, host memory. It is posted: nothing tells whether it arrived, and a
    /// controller that needs to know reads back or waits for the effect. Aligned writes of 4 and 8 bytes are not torn.
    fn write(&mut self, address: u64, bytes: &[u8]);

    /// Makes a memory read from a bus address. The answer comes later, to the owner of the bus, which hands it to the controller that the
    /// tag names.
    fn read(&mut self, address: u64, length: u32, tag: Tag);

    /// Interrupts the card's host with MSI-X vector `vector`. Ignored if the host has not set up that vector.
    fn interrupt(&mut self, vector: u16);
}

/// The buses of a card with several functions. Over its own, the [`Bus`], it reaches its devices; over each function's it reaches that
/// function's host, with that function's rights. Function 0 has the card's own bus. A card with one function needs no methods.
///
/// Answers to reads come to the card as those over its own bus do: their tags are unique among all.
pub trait Buses: Bus {
    /// Makes a memory write to an address of a function's host.
    fn write_host(&mut self, function: usize, address: u64, bytes: &[u8]) {
        if function == 0 {
            self.write(address, bytes);
        }
    }

    /// Makes a memory read from an address of a function's host.
    fn read_host(&mut self, function: usize, address: u64, length: u32, tag: Tag) {
        if function == 0 {
            self.read(address, length, tag);
        }
    }

    /// Interrupts a function's host.
    fn interrupt_host(&mut self, function: usize, vector: u16) {
        if function == 0 {
            self.interrupt(vector);
        }
    }
}

/// The name of a read. The upper half names a controller (the owner of the bus assigns it), the lower half is the controller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

impl Tag {
    /// Makes the tag `number` of controller `controller`.
    pub fn new(controller: u32, number: u32) -> Tag {
        Tag(u64::from(controller) << 32 | u64::from(number))
    }

    /// Returns the controller that made the read.
    pub fn controller(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the controller's own number for the read.
    pub fn number(self) -> u32 {
        self.0 as u32
    }
}

/// The answer to a read. Reads are answered once each, in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadDone {
    /// The read.
    pub tag: Tag,
    /// The requested bytes, or why there are none.
    pub data: Result<Vec<u8>, BusError>,
}

/// The reason why a read failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// Nothing answers at this address, or the requester may not access it (no bus mastering, an IOMMU without a mapping). [PCIe 5.0,
    /// 2.3.1: Unsupported Request]
    #[error("no device answers at this bus address, or it may not be reached")]
    Unsupported,
    /// The device at this address refused. [PCIe 5.0, 2.3.1: Completer Abort]
    #[error("the device at this bus address refused to answer")]
    Aborted,
    /// No answer came in time. [PCIe 5.0, 2.8: Completion Timeout]
    #[error("no answer came over the bus in time")]
    Timeout,
}

/// A piece of the bus's address space.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}+{:#x}", self.address, self.length)
    }
}

impl Window {
    /// Returns true if `length` bytes from `address` are inside it.
    pub fn contains(&self, address: u64, length: u64) -> bool {
        address
            .checked_sub(self.address)
            .and_then(|offset| offset.checked_add(length))
            .is_some_and(|end| end <= self.length)
    }
}

/// A piece of the card's own memory. Regions are taken from a larger one, and never overlap then.
#[derive(Debug, PartialEq, Eq)]
pub struct Region {
    offset: u64,
    length: u64,
}

impl Region {
    /// Returns all of the card's own memory.
    pub fn whole(window: Window) -> Region {
        Region { offset: 0, length: window.length }
    }

    /// Returns the offset of its first byte in the card's own memory.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns its length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Takes the first `length` bytes that are aligned to `align` (a power of two) from this region; returns `None` if too few are left.
    pub fn take(&mut self, length: u64, align: u64) -> Option<Region> {
        let offset = self.offset.checked_next_multiple_of(align)?;
        let used = (offset - self.offset).checked_add(length).filter(|used| *used <= self.length)?;
        self.offset += used;
        self.length -= used;
        Some(Region { offset, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_its_two_halves() {
        let tag = Tag::new(7, u32::MAX);
        assert_eq!((tag.controller(), tag.number()), (7, u32::MAX));
    }

    #[test]
    fn a_window_contains_what_lies_wholly_in_it() {
        let window = Window { address: 0x1000, length: 0x100 };
        assert!(window.contains(0x1000, 0x100));
        assert!(!window.contains(0x1000, 0x101));
        assert!(!window.contains(0xfff, 1));
        assert!(!window.contains(0x1001, u64::MAX));
    }

    #[test]
    fn regions_are_aligned_and_never_overlap() {
        let mut left = Region::whole(Window { address: 0xdead_0000, length: 0x3000 });
        let first = left.take(10, 1).unwrap();
        let second = left.take(0x1000, 0x1000).unwrap();
        assert_eq!((first.offset(), second.offset(), left.offset()), (0, 0x1000, 0x2000));
        assert_eq!(left.length(), 0x1000);
        assert!(left.take(0x1001, 1).is_none());
        assert!(left.take(u64::MAX, 1).is_none());
        assert_eq!(left.take(0x1000, 0x1000).unwrap().length(), 0x1000);
    }
}
