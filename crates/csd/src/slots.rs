//! Commands in progress.

use std::sync::Arc;

use dcs_nvme::Status;
use dcs_nvme::walk::HostRange;

use crate::chain::Chain;
use crate::host::{Direction, HostPort, Piece};
use crate::latency::Times;
use crate::near::flow::Near;
use crate::storage::{Action, Buffer, VolumeId};

/// The work that is left when the storage has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The slot is free.
    Free,
    /// Data went one way.
    Transfer(Direction),
    /// Compare the data that were read with the guest's.
    Compare,
    /// There are no data, in one request or several.
    Plain,
    /// Writing zeros that pass a chain, a buffer at a time.
    Zeros,
    /// Deallocating ranges, one at a time.
    Ranges,
    /// A near-storage command.
    Near,
    /// Switching the write cache off.
    CacheOff,
    /// Shutting down the controller.
    Shutdown,
}

/// Number of pieces of a command's data for which memory is allocated in advance.
const USUAL: usize = 8;

/// A command in progress.
#[derive(Debug)]
pub struct Slot {
    pub work: Work,
    /// The submission queue that it came from, and its identifier there.
    pub queue: u16,
    pub cid: u16,
    /// The first error.
    pub status: Status,
    /// Number of requests without an answer.
    pub remaining: u32,
    pub times: Times,
    /// The controller was reset since: the command is not completed.
    pub stale: bool,
    /// The namespace's number.
    pub namespace: u32,
    pub volume: VolumeId,
    pub action: Action,
    /// Offset in the volume; of a command without data, the bytes that it was charged for.
    pub offset: u64,
    pub length: u64,
    /// State of a near-storage command.
    pub near: Option<Box<Near>>,
    /// The operators that its data pass.
    pub chain: Option<Arc<Chain>>,
    /// Bytes of a logical block, as a power of two.
    pub shift: u8,
    /// Ranges of the volume that are still to be deallocated, the last ones first.
    pub ranges: Vec<(u64, u64)>,
    /// Places of its data in the guest's memory.
    pub places: Vec<HostRange>,
    /// Memory for the same as pieces, while the storage does not have them.
    pub pieces: Vec<Piece>,
}

impl Slot {
    fn new() -> Slot {
        Slot {
            work: Work::Free,
            queue: 0,
            cid: 0,
            status: Status::SUCCESS,
            remaining: 0,
            times: Times::default(),
            stale: false,
            namespace: 0,
            volume: VolumeId(0),
            action: Action::Flush,
            offset: 0,
            length: 0,
            near: None,
            chain: None,
            shift: 0,
            ranges: Vec::new(),
            places: Vec::with_capacity(USUAL),
            pieces: Vec::with_capacity(USUAL),
        }
    }

    /// Returns true if it has the command of this queue and identifier.
    pub fn is(&self, queue: u16, cid: u16) -> bool {
        (self.queue, self.cid) == (queue, cid)
    }

    /// Decrypts the bytes at the slot's offset of the volume, or encrypts the guest's.
    pub fn pass(&self, encrypt: bool, bytes: &mut [u8]) -> bool {
        let first = self.offset >> self.shift;
        match &self.chain {
            None => true,
            Some(chain) if encrypt => chain.encrypt(first, self.shift, bytes),
            Some(chain) => chain.decrypt(first, self.shift, bytes),
        }
    }

    /// Writes zeros as they are on the volume.
    pub fn zeros(&self, bytes: &mut [u8]) -> Status {
        bytes.fill(0);
        if self.pass(true, bytes) { Status::SUCCESS } else { Status::INTERNAL_ERROR }
    }

    /// Copies the guest's data as they are on the volume.
    pub fn fetch(&self, port: &mut dyn HostPort, bytes: &mut [u8]) -> Status {
        match self.load(port, bytes) {
            true if self.pass(true, bytes) => Status::SUCCESS,
            true => Status::INTERNAL_ERROR,
            false => Status::DATA_TRANSFER_ERROR,
        }
    }

    /// Copies the guest's data; returns false if they cannot be reached.
    fn load(&self, port: &mut dyn HostPort, mut bytes: &mut [u8]) -> bool {
        self.places.iter().all(|place| {
            let (part, rest) = std::mem::take(&mut bytes).split_at_mut(place.length as usize);
            bytes = rest;
            port.read(place.address, part).is_ok()
        })
    }

    /// Copies to the guest's memory; returns false if it cannot be reached.
    pub fn store(&self, port: &mut dyn HostPort, mut bytes: &[u8]) -> bool {
        self.places.iter().all(|place| {
            let (part, rest) = bytes.split_at(place.length as usize);
            bytes = rest;
            port.write(place.address, part).is_ok()
        })
    }

    /// Returns the places of a command's data from byte `at` on.
    fn part(&self, at: u64, length: u64) -> impl Iterator<Item = HostRange> {
        let (mut skip, mut left) = (at, length);
        self.places.iter().filter_map(move |place| {
            let skipped = skip.min(place.length);
            skip -= skipped;
            let length = (place.length - skipped).min(left);
            left -= length;
            (length > 0).then_some(HostRange { address: place.address + skipped, length })
        })
    }

    /// Copies the guest's data from byte `at` on; returns false if they cannot be reached.
    pub fn load_at(&self, port: &mut dyn HostPort, at: u64, mut bytes: &mut [u8]) -> bool {
        self.part(at, bytes.len() as u64).all(|place| {
            let (part, rest) = std::mem::take(&mut bytes).split_at_mut(place.length as usize);
            bytes = rest;
            port.read(place.address, part).is_ok()
        }) && bytes.is_empty()
    }

    /// Copies to the guest's memory from byte `at` on; returns false if it cannot be reached.
    pub fn store_at(&self, port: &mut dyn HostPort, at: u64, mut bytes: &[u8]) -> bool {
        self.part(at, bytes.len() as u64).all(|place| {
            let (part, rest) = bytes.split_at(place.length as usize);
            bytes = rest;
            port.write(place.address, part).is_ok()
        }) && bytes.is_empty()
    }

    /// Compares the guest's data with these.
    #[inline(never)]
    pub fn compare(&self, port: &mut dyn HostPort, mut bytes: &[u8]) -> Status {
        let mut theirs = [0; 4096];
        for place in &self.places {
            let (mut part, rest) = bytes.split_at(place.length as usize);
            bytes = rest;
            let mut address = place.address;
            while !part.is_empty() {
                let length = part.len().min(theirs.len());
                let (ours, further) = part.split_at(length);
                if port.read(address, &mut theirs[..length]).is_err() {
                    return Status::DATA_TRANSFER_ERROR;
                }
                if ours != &theirs[..length] {
                    return Status::COMPARE_FAILURE;
                }
                (part, address) = (further, address.wrapping_add(length as u64));
            }
        }
        Status::SUCCESS
    }
}

/// All slots.
pub struct Slots {
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// The port's clock at the beginning of the batch.
    pub now: u64,
}

impl Slots {
    pub fn new(count: u16) -> Slots {
        let slots = (0..count).map(|_| Slot::new()).collect();
        Slots { slots, free: (0..count).rev().collect(), now: 0 }
    }

    pub fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    pub fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes a free slot for a command; `None` if there is none.
    pub fn take(&mut self, work: Work, queue: u16, cid: u16) -> Option<u16> {
        let (index, fetched) = (self.free.pop()?, self.now);
        let slot = self.get(index);
        slot.times = Times::new(fetched);
        (slot.work, slot.queue, slot.cid) = (work, queue, cid);
        (slot.status, slot.remaining, slot.stale) = (Status::SUCCESS, 0, false);
        Some(index)
    }

    /// Returns the slot with this number, which must be in use.
    pub fn get(&mut self, index: u16) -> &mut Slot {
        &mut self.slots[usize::from(index)]
    }

    pub fn give(&mut self, index: u16) {
        let slot = self.get(index);
        slot.work = Work::Free;
        (slot.chain, slot.near, slot.ranges) = (None, None, Vec::new());
        slot.places.clear();
        slot.pieces.clear();
        self.free.push(index);
    }

    /// Returns the slots in use, by number.
    pub fn in_use(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut().filter(|slot| slot.work != Work::Free)
    }
}

/// Buffers for data that are copied: allocated when first needed, and kept.
pub struct Buffers {
    free: Vec<Buffer>,
    made: u16,
    most: u16,
    room: usize,
}

impl Buffers {
    pub fn new(most: u16, room: usize) -> Buffers {
        Buffers { free: Vec::new(), made: 0, most, room }
    }

    /// Takes a buffer of this length; `None` if all are in use.
    pub fn take(&mut self, length: usize) -> Option<Buffer> {
        let mut buffer = match self.free.pop() {
            Some(buffer) => buffer,
            None if self.made < self.most => {
                self.made += 1;
                Buffer::new(self.room)
            }
            None => return None,
        };
        buffer.resize(length);
        Some(buffer)
    }

    pub fn give(&mut self, buffer: Buffer) {
        self.free.push(buffer);
    }
}
