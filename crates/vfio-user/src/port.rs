//! The host as seen by a function that only reaches its memory and interrupts it: an NVMe controller, say.
//!
//! Only memory for which the client passed a descriptor is reached. Everything else (other devices' BARs, a guest whose memory is not
//! shared) would take a message and its answer: a process that serves many guests on one thread does not wait for one of them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLockReadGuard};

use dcs_vfio::Mapping;

use crate::link::{Hold, Link};
use crate::maps::{Maps, Path};
use crate::pci::Region;

/// The owner's access to the host of one function. Clones share it.
#[derive(Clone)]
pub struct Port {
    link: Arc<Link>,
    /// Count of resets that the owner knows of, if it counts them.
    known: Option<u64>,
}

/// A piece of the host's memory, for the kernel or a device to read or write. The client is told that its memory is free when the hold is
/// dropped.
#[derive(Clone, Debug)]
pub struct MappedPiece {
    /// Memory that contains it.
    pub memory: Arc<Mapping>,
    /// Offset in the memory.
    pub offset: u64,
    /// Hold that keeps it in use.
    pub hold: Arc<Hold>,
}

/// The reason why the function cannot reach the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreachable {
    /// Bus mastering is off, or there is no host.
    #[error("the function may not reach its host's memory: bus mastering is off")]
    Off,
    /// The memory is not mapped, not for this direction, or without a descriptor.
    #[error(
        "this memory of the host was not shared with the function: start QEMU with a memory backend with share=on"
    )]
    Unmapped,
}

impl Port {
    pub(crate) fn new(link: Arc<Link>) -> Port {
        Port { link, known: None }
    }

    /// Copies from the host's memory, everything or nothing.
    ///
    /// # Errors
    ///
    /// [`Unreachable`].
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Unreachable> {
        self.each(address, bytes.len(), false, |at, count, memory, offset| {
            memory.load(offset, &mut bytes[at..at + count]);
        })
    }

    /// Copies into the host's memory, everything or nothing.
    ///
    /// # Errors
    ///
    /// [`Unreachable`].
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Unreachable> {
        self.each(address, bytes.len(), true, |at, count, memory, offset| {
            memory.store(offset, &bytes[at..at + count]);
        })
    }

    /// Returns the place of this many bytes in this process, for the kernel to read or `write`; `None` if they are not in one piece.
    pub fn direct(&self, address: u64, length: u64, write: bool) -> Option<MappedPiece> {
        let maps = self.maps().ok()?;
        match maps.path(address, length, write) {
            (count, Path::Memory(memory, offset)) if count == length => {
                // Under the lock of the maps, so that an unmapping that comes now waits for this hold.
                Some(MappedPiece { memory: memory.mapping().clone(), offset, hold: maps.hold.clone() })
            }
            _ => None,
        }
    }

    /// Interrupts the host. Does nothing if the host has not set up that vector.
    pub fn interrupt(&self, vector: u16) {
        if self.knows_resets() {
            self.link.interrupt(vector.into());
        }
    }

    /// Ends the time before a reset, as [`VfioUserBus::acknowledge_resets`](crate::VfioUserBus::acknowledge_resets) does. From the first call
    /// on this port reaches nothing between a reset, or the loss of its host, and the next call.
    pub fn acknowledge_resets(&mut self) {
        self.known = Some(self.link.state.resets.load(Ordering::Acquire));
    }

    fn knows_resets(&self) -> bool {
        self.known.is_none_or(|known| known == self.link.state.resets.load(Ordering::Acquire))
    }

    /// Returns true if the function may access other devices now: it is bus master.
    pub fn is_master(&self) -> bool {
        self.link.state.master.load(Ordering::Acquire)
    }

    /// Returns a hold for writes past the client ([`switch`](crate::switch)), `None` if the function is not bus master. A request to end
    /// bus mastering is answered when the hold is dropped, or after 3 s.
    pub fn hold_mastering(&self) -> Option<Arc<Hold>> {
        // In this order, so that a request to end it in between waits for the hold.
        let hold = self.link.hold();
        self.is_master().then_some(hold)
    }

    /// Returns the BAR (0 or 2) that contains this many bytes at this bus address, and the offset in it; `None` if they are not all in one,
    /// or the function's BARs are disabled.
    pub fn bar(&self, address: u64, length: u64) -> Option<(Region, u64)> {
        let state = &self.link.state;
        let bars = [(Region::Bar0, &state.registers_address), (Region::Bar2, &state.memory_address)];
        bars.into_iter().zip(state.sizes).find_map(|((region, base), size)| {
            let base = Some(base.load(Ordering::Acquire)).filter(|base| *base != 0)?;
            let offset = address.checked_sub(base)?;
            (offset.checked_add(length)? <= size).then_some((region, offset))
        })
    }

    /// Returns true if a client is connected.
    pub fn is_connected(&self) -> bool {
        self.link.is_connected()
    }

    /// Returns the host's memory, to be held while it is accessed: a request to end bus mastering waits for that.
    fn maps(&self) -> Result<RwLockReadGuard<'_, Maps>, Unreachable> {
        let maps = self.link.maps();
        let is_on = self.link.state.master.load(Ordering::Acquire) && self.knows_resets();
        if is_on { Ok(maps) } else { Err(Unreachable::Off) }
    }

    /// Calls `take` for the pieces of mapped memory that an access covers: the position in the access, the bytes, and their place.
    fn each(
        &self,
        address: u64,
        length: usize,
        write: bool,
        mut take: impl FnMut(usize, usize, &Mapping, u64),
    ) -> Result<(), Unreachable> {
        let maps = self.maps()?;
        // Most accesses are in one piece.
        if let (count, Path::Memory(memory, offset)) = maps.path(address, length as u64, write)
            && count == length as u64
        {
            take(0, length, memory, offset);
            return Ok(());
        }
        if !maps.reaches(address, length as u64, write) {
            return Err(Unreachable::Unmapped);
        }
        let mut at = 0;
        while at < length {
            let (count, path) = maps.path(address + at as u64, (length - at) as u64, write);
            let Path::Memory(memory, offset) = path else { return Err(Unreachable::Unmapped) };
            take(at, count as usize, memory, offset);
            at += count as usize;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Port {{ connected: {} }}", self.is_connected())
    }
}
