//! The memory that all devices of an engine reach, and its addresses on the bus: memory of this process, with
//! their queues and rings; and the engine's blocks, behind those, or in the memory of one of the SSDs.

#![forbid(unsafe_code)]

use super::bus::VfioBus;
use super::error::DriveError;
use super::{HUGE_PAGE, PAGE};
use crate::buffer::BlockPool;
use dcs_drivers::bus::{Region, Window};
use dcs_drivers::nvme::PmrBar;
use dcs_nvme::{Capabilities, pmr, register};
use dcs_vfio::{Access, Container, Function, Mapping};
use std::sync::Arc;

/// Addresses of the memory on the bus: the first one that the IOMMU allows is taken. Below 4 GiB there are
/// holes.
const PLACES: [u64; 4] = [4 << 30, 16 << 30, 64 << 30, 1 << 30];

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Memory {
    own: Arc<Mapping>,
    place: u64,
    /// An SSD's, and its BAR. On the bus it lies right behind the other.
    peer: Option<(Arc<Mapping>, u8)>,
    /// This process' part is of huge pages.
    pub huge_pages: bool,
}

impl Memory {
    /// Maps `own` bytes for the devices, and `blocks` for blocks: in the memory of `holder`, where one is to
    /// have them.
    pub fn new(
        container: &Container,
        (own, blocks): (u64, u64),
        holder: Option<&Function>,
    ) -> Result<Memory, DriveError> {
        let peer = holder.map(|holder| region(holder, blocks)).transpose()?;
        let length = if peer.is_some() { own } else { own + blocks };
        let (memory, huge_pages) =
            Mapping::huge(length).map_err(|error| DriveError::Memory(length, error))?;
        let (own, place) = map(container, memory)?;
        if let Some((peer, _)) = &peer {
            container.map(peer, place + own.length(), Access::Both)?;
        }
        Ok(Memory { own, place, peer, huge_pages })
    }

    /// Bytes of the pages that blocks lie in together in the machine, as far as is known. Of an SSD's memory
    /// it is not.
    pub fn page(&self) -> u64 {
        if self.huge_pages && self.peer.is_none() { HUGE_PAGE } else { PAGE }
    }

    /// The part that lies in this process.
    pub fn own(&self) -> Window {
        Window { address: self.place, length: self.own.length() }
    }

    /// Addresses by which the SSD that has the blocks is to name them.
    pub fn pmr(&self) -> Option<PmrBar> {
        let window = |memory: &Arc<Mapping>| Window {
            address: self.place + self.own.length(),
            length: memory.length(),
        };
        self.peer.as_ref().map(|(memory, bar)| PmrBar { bar: *bar, window: window(memory) })
    }

    /// The bus of a device, with the driver's address for its registers.
    pub fn bus(&self, registers: Mapping, bar: u64) -> VfioBus {
        let bus = VfioBus::new(Arc::clone(&self.own), self.place, registers, bar);
        match &self.peer {
            Some((peer, _)) => bus.go_on_in(peer),
            None => bus,
        }
    }

    /// The blocks, and where they begin in all of this memory. `left` is what the devices have left of this
    /// process' part.
    pub fn blocks(&self, count: u32, size: u32, left: &mut Region) -> (BlockPool, u64) {
        match &self.peer {
            Some((peer, _)) => (BlockPool::shared(count, size, peer, 0), self.own.length()),
            None => {
                let first = left.take(0, 4096).map_or(0, |at| at.offset());
                (BlockPool::shared(count, size, &self.own, first), first)
            }
        }
    }
}

/// An SSD's persistent memory region of this many bytes at least, and its BAR.
fn region(ssd: &Function, bytes: u64) -> Result<(Arc<Mapping>, u8), DriveError> {
    let none = || DriveError::NoMemory(ssd.address().to_owned());
    let registers = ssd.bar(0)?;
    if registers.length() < register::DOORBELLS
        || !Capabilities::from_bits(registers.read64(register::CAP)).pmr
    {
        return Err(none());
    }
    let bar =
        pmr::Capabilities::from_bits(registers.read32(register::PMRCAP)).valid_bar().ok_or_else(none)?;
    let memory = ssd.bar(bar.into())?;
    if memory.length() < bytes {
        return Err(DriveError::LittleMemory(ssd.address().to_owned(), memory.length(), bytes));
    }
    Ok((Arc::new(memory), bar))
}

/// Maps the memory at the first place that can be had.
fn map(container: &Container, memory: Mapping) -> Result<(Arc<Mapping>, u64), DriveError> {
    let memory = Arc::new(memory);
    let mut refused = None;
    for place in PLACES {
        match container.map(&memory, place, Access::Both) {
            Ok(()) => return Ok((memory, place)),
            // Memory that may not be pinned at one address may not be at any.
            Err(error) if error.is_out_of_memory() => return Err(DriveError::Pinned(memory.length())),
            Err(error) => _ = refused.get_or_insert(error),
        }
    }
    Err(refused.map_or(DriveError::Pinned(memory.length()), DriveError::Vfio))
}
