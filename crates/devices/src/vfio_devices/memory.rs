//! The memory that all devices of an engine reach, and its addresses on the bus: process memory with their queues and rings, followed by
//! the engine's blocks, which may instead be in the memory of one of the SSDs.

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

/// Candidate addresses of the memory on the bus: the first one that the IOMMU allows is used. There are holes below 4 GiB.
const BASE_ADDRESSES: [u64; 4] = [4 << 30, 16 << 30, 64 << 30, 1 << 30];

/// The memory of all devices; see the [module](self).
#[derive(Debug)]
pub(super) struct Memory {
    own: Arc<Mapping>,
    place: u64,
    /// Memory of an SSD and its BAR. On the bus it directly follows the process memory.
    peer: Option<(Arc<Mapping>, u8)>,
    /// Set if the process memory is in huge pages.
    pub huge_pages: bool,
}

impl Memory {
    /// Maps `own` bytes for the devices, and `blocks` for blocks: in the memory of `holder`, if there is one.
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

    /// Returns the size of the physically contiguous pages that hold the blocks, in bytes, as far as is known. It is not known of an SSD's
    /// memory.
    pub fn page(&self) -> u64 {
        if self.huge_pages && self.peer.is_none() { HUGE_PAGE } else { PAGE }
    }

    /// Returns the part in this process.
    pub fn own(&self) -> Window {
        Window { address: self.place, length: self.own.length() }
    }

    /// Returns the addresses by which the SSD that has the blocks must name them.
    pub fn pmr(&self) -> Option<PmrBar> {
        let window = |memory: &Arc<Mapping>| Window {
            address: self.place + self.own.length(),
            length: memory.length(),
        };
        self.peer.as_ref().map(|(memory, bar)| PmrBar { bar: *bar, window: window(memory) })
    }

    /// Returns the bus of a device, with the driver's address for its registers.
    pub fn bus(&self, registers: Mapping, bar: u64) -> VfioBus {
        let bus = VfioBus::new(Arc::clone(&self.own), self.place, registers, bar);
        match &self.peer {
            Some((peer, _)) => bus.go_on_in(peer),
            None => bus,
        }
    }

    /// Returns the blocks, and their offset in all of this memory. `left` is the part of the process memory that the devices have not used.
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

/// Returns an SSD's persistent memory region of at least this many bytes, and its BAR.
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

/// Maps the memory at the first address that is available.
fn map(container: &Container, memory: Mapping) -> Result<(Arc<Mapping>, u64), DriveError> {
    let memory = Arc::new(memory);
    let mut refused = None;
    for place in BASE_ADDRESSES {
        match container.map(&memory, place, Access::Both) {
            Ok(()) => return Ok((memory, place)),
            // Memory that cannot be pinned at one address cannot be pinned at any other.
            Err(error) if error.is_out_of_memory() => return Err(DriveError::Pinned(memory.length())),
            Err(error) => _ = refused.get_or_insert(error),
        }
    }
    Err(refused.map_or(DriveError::Pinned(memory.length()), DriveError::Vfio))
}
