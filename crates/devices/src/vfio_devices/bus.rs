//! The bus as one device's driver in this process sees it. Own memory is process memory that the IOMMU maps; the device's registers are its
//! BAR.

#![forbid(unsafe_code)]

use dcs_drivers::bus::{Bus, BusError, ReadDone, Tag, Window};
use dcs_vfio::Mapping;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A register that may be read at any time: STATUS of a NIC, VS of an NVMe controller.
const FLUSHING: u64 = 8;

/// The bus of one device; see the [module](self).
#[derive(Debug)]
pub(super) struct VfioBus {
    /// Own memory; the device sees it at `own`.
    memory: Arc<Mapping>,
    own: Window,
    /// Part of the memory that is in a device, following the part in this process.
    peer: Option<Peer>,
    /// Registers of the device. The driver addresses them at `bar`, which no device uses.
    registers: Mapping,
    bar: Window,
    answers: VecDeque<ReadDone>,
}

/// Memory of a device, and how many bytes this process has copied into it and out of it.
#[derive(Debug)]
struct Peer {
    memory: Arc<Mapping>,
    copied: AtomicU64,
}

impl VfioBus {
    pub fn new(memory: Arc<Mapping>, own: u64, registers: Mapping, bar: u64) -> VfioBus {
        let own = Window { address: own, length: memory.length() };
        let bar = Window { address: bar, length: registers.length() };
        VfioBus { memory, own, peer: None, registers, bar, answers: VecDeque::new() }
    }

    /// Extends own memory by a device's memory, which the devices find directly after it.
    pub fn go_on_in(mut self, memory: &Arc<Mapping>) -> VfioBus {
        self.own.length += memory.length();
        self.peer = Some(Peer { memory: Arc::clone(memory), copied: AtomicU64::new(0) });
        self
    }

    /// Returns the bytes that this process has copied into a device's memory or out of it.
    pub fn copied(&self) -> u64 {
        self.peer.as_ref().map_or(0, |peer| peer.copied.load(Ordering::Relaxed))
    }

    /// Returns the mapping that an offset is in, and the offset in it.
    fn place(&self, offset: u64, length: usize) -> (&Mapping, u64) {
        match (&self.peer, offset.checked_sub(self.memory.length())) {
            (Some(peer), Some(offset)) => {
                peer.copied.fetch_add(length as u64, Ordering::Relaxed);
                (&peer.memory, offset)
            }
            _ => (&self.memory, offset),
        }
    }

    /// Waits until all writes to the device have arrived, and all its earlier writes are visible.
    pub fn flush(&self) {
        self.registers.read32(FLUSHING);
    }

    /// Returns the next answer to a read.
    pub fn answer(&mut self) -> Option<ReadDone> {
        self.answers.pop_front()
    }
}

impl Bus for VfioBus {
    fn window(&self) -> Window {
        self.own
    }

    fn load(&self, offset: u64, bytes: &mut [u8]) {
        let (memory, offset) = self.place(offset, bytes.len());
        memory.load(offset, bytes);
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        let (memory, offset) = self.place(offset, bytes.len());
        memory.store(offset, bytes);
    }

    /// Writes to registers of 4 or 8 bytes, or to memory. Other writes go nowhere, as on a bus where nothing answers.
    fn write(&mut self, address: u64, bytes: &[u8]) {
        let offset = address.wrapping_sub(self.bar.address);
        match (self.bar.contains(address, bytes.len() as u64), bytes) {
            (true, [a, b, c, d]) if offset.is_multiple_of(4) => {
                self.registers.write32(offset, u32::from_le_bytes([*a, *b, *c, *d]));
            }
            (true, _) if offset.is_multiple_of(8) => {
                if let Ok(bytes) = <[u8; 8]>::try_from(bytes) {
                    self.registers.write64(offset, u64::from_le_bytes(bytes));
                }
            }
            _ => {}
        }
    }

    fn read(&mut self, address: u64, length: u32, tag: Tag) {
        let offset = address.wrapping_sub(self.bar.address);
        let data = match length {
            _ if !self.bar.contains(address, length.into()) => Err(BusError::Unsupported),
            4 if offset.is_multiple_of(4) => Ok(self.registers.read32(offset).to_le_bytes().to_vec()),
            8 if offset.is_multiple_of(8) => Ok(self.registers.read64(offset).to_le_bytes().to_vec()),
            _ => Err(BusError::Aborted),
        };
        self.answers.push_back(ReadDone { tag, data });
    }

    /// Does nothing: this process is the host, so there is none to interrupt.
    fn interrupt(&mut self, _vector: u16) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bus() -> VfioBus {
        let map = |length| Mapping::anonymous(length).unwrap();
        VfioBus::new(Arc::new(map(8192)), 4 << 30, map(4096), 0xfe00_0000)
    }

    #[test]
    fn registers_are_written_and_read_whole() {
        let mut bus = bus();
        bus.write(0xfe00_0008, &[1, 2, 3, 4]);
        bus.write(0xfe00_0010, &[1, 2, 3, 4, 5, 6, 7, 8]);
        for (at, length, data) in [
            (0xfe00_0008, 4, Ok(vec![1, 2, 3, 4])),
            (0xfe00_0010, 8, Ok(vec![1, 2, 3, 4, 5, 6, 7, 8])),
            (0xfe00_0010, 2, Err(BusError::Aborted)),
            (0xfe00_0002, 4, Err(BusError::Aborted)),
            (0xfe00_0ffc, 8, Err(BusError::Unsupported)),
            (4 << 30, 4, Err(BusError::Unsupported)),
        ] {
            bus.read(at, length, Tag(at));
            assert_eq!(bus.answer(), Some(ReadDone { tag: Tag(at), data }));
        }
        assert_eq!(bus.answer(), None);
    }

    #[test]
    fn own_memory_goes_on_in_a_device_s_and_what_is_copied_there_is_counted() {
        let peer = Arc::new(Mapping::anonymous(4096).unwrap());
        let mut bus = bus().go_on_in(&peer);
        assert_eq!(bus.window(), Window { address: 4 << 30, length: 12288 });
        bus.store(8190, &[1, 2]);
        assert_eq!(bus.copied(), 0);
        bus.store(8192, &[3, 4, 5]);
        bus.copy(8190, 8195, 2);
        let mut there = [0; 6];
        peer.load(0, &mut there);
        assert_eq!((there, bus.copied()), ([3, 4, 5, 1, 2, 0], 5));
        bus.load(8193, &mut there);
        assert_eq!((there, bus.copied()), ([4, 5, 1, 2, 0, 0], 11));
    }

    #[test]
    fn what_is_no_register_is_not_written() {
        let mut bus = bus();
        for address in [0xfe00_0001, 0xfe00_0ffd, 0xfdff_fffc, 4 << 30, u64::MAX] {
            bus.write(address, &[0xff; 4]);
            bus.write(address, &[0xff; 8]);
            bus.write(address, &[0xff; 3]);
        }
        for at in (0..4096).step_by(8) {
            assert_eq!(bus.registers.read64(at), 0, "{at:#x}");
        }
        let mut own = [1; 64];
        bus.load(0, &mut own);
        assert_eq!(own, [0; 64]);
    }
}
