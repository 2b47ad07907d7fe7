//! One SSD: its driver, the memory by which it is given data, and the pieces of requests that it has or that wait for it.

use std::collections::VecDeque;

use dcs_drivers::bus::{Bus, ReadDone, Region, Window};
use dcs_drivers::nvme::{Config, Finished, Memory, Nvme, NvmeError, Request as Ask, State, SubmitError};
use dcs_nvme::Status;
use dcs_nvme::command::Range;

use super::requests::{Piece, Requests};
use crate::storage::{Action, VolumeError};

/// Maximum number of bytes of a command to the SSD that has data.
const PIECE: u64 = 128 << 10;

/// Maximum number of bytes of a range that is deallocated.
const DEALLOCATED: u64 = 1 << 30;

/// Maximum number of commands that the SSD has at once.
const SLOTS: usize = 64;

/// Bytes of a page of the SSD.
const PAGE: u64 = 4096;

/// Time that an SSD may take to stop, in nanoseconds.
const STOP: u64 = 5_000_000_000;

/// The errno of a media error.
const EIO: i32 = 5;

/// The bus of the SSD, with memory of its own, and the answers to reads of its registers.
pub trait SsdBus: Bus {
    /// Returns the next answer.
    fn answer(&mut self) -> Option<ReadDone>;

    /// Returns the time, in nanoseconds, of a monotonic clock.
    fn now(&mut self) -> u64;
}

/// A namespace of an NVMe SSD that this process drives itself.
pub struct Ssd<B: SsdBus> {
    host: Nvme,
    bus: B,
    /// Offset of each slot's memory.
    slots: Vec<u64>,
    /// Each slot's command, and the slots that are free.
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    waiting: VecDeque<Piece>,
    scratch: Vec<u8>,
    /// Bytes of a logical block, and of a command, when volumes were first made on it.
    block: u64,
    most: u64,
}

/// A slot's command.
#[derive(Clone, Copy)]
enum Flight {
    Under(Piece),
    /// It has failed, and the SSD may still access the slot's memory.
    Held,
}

impl<B: SsdBus> Ssd<B> {
    /// Returns the number of bytes of the bus's own memory that it takes.
    pub fn memory() -> u64 {
        config(Window { address: 0, length: 0x4000 }, None).memory() + PAGE + SLOTS as u64 * PIECE
    }

    /// Makes a driver of the SSD with these registers, and of one of its namespaces (the first one by
    /// default). It is not [started](Self::start) yet. Returns `None` if these are not registers, or the bus
    /// has too little memory.
    pub fn new(bus: B, registers: Window, namespace: Option<u32>) -> Option<Ssd<B>> {
        let config = config(registers, namespace);
        let mut memory = Region::whole(bus.window());
        let own = memory.take(config.memory(), PAGE)?;
        let slot = |_| Some(memory.take(PIECE, PAGE)?.offset());
        let slots: Vec<u64> = (0..SLOTS).map(slot).collect::<Option<_>>()?;
        Some(Ssd {
            host: Nvme::new(config, own).ok()?,
            bus,
            flights: vec![None; slots.len()],
            free: (0..slots.len()).rev().collect(),
            slots,
            waiting: VecDeque::new(),
            scratch: vec![0; PIECE as usize],
            block: 0,
            most: PIECE,
        })
    }

    /// Starts the SSD: call [`Ssd::look`] until it is no longer [`State::Starting`].
    pub fn start(&mut self) {
        let now = self.bus.now();
        self.host.start(&mut self.bus, now);
    }

    /// Returns the driver's state.
    pub fn state(&self) -> State {
        self.host.state()
    }

    /// Returns the bytes of the namespace and of a logical block, `None` before the SSD is up.
    pub fn size(&self) -> Option<(u64, u64)> {
        let namespace = self.host.namespace()?;
        let block = u64::from(namespace.block_size);
        Some((namespace.blocks.saturating_mul(block), block))
    }

    /// Returns the namespace's number and its bytes, `None` before the SSD is up.
    pub fn namespace(&self) -> Option<(u32, u64)> {
        Some((self.host.namespace()?.number, self.size()?.0))
    }

    /// Returns true if it takes hints that blocks are not needed any more (Dataset Management).
    pub fn deallocates(&self) -> bool {
        self.host.controller().is_some_and(|controller| controller.deallocates)
    }

    /// Returns the time by which [`Ssd::look`] is to be called again, by the bus's clock.
    pub fn deadline(&self) -> Option<u64> {
        self.host.deadline()
    }

    /// Takes the SSD's answers while it has no requests, and acts on time limits.
    pub fn look(&mut self) {
        self.take_answers(&mut Requests::default());
    }

    /// Takes the size of its blocks as they are now for those of volumes. Returns false if the SSD is not up, or they cannot be moved.
    pub(super) fn settle_blocks(&mut self) -> bool {
        let (Some(found), Some((_, block))) = (self.host.namespace(), self.size()) else { return false };
        if self.block == 0 {
            (self.block, self.most) = (block, PIECE.min(found.max_transfer) / block * block);
        }
        self.most > 0
    }

    /// Returns the bytes of a logical block of volumes.
    pub(super) fn block(&self) -> u64 {
        self.block
    }

    /// Returns true if the namespace has these bytes, and they are whole blocks.
    pub(super) fn fits(&self, offset: u64, length: u64) -> bool {
        let whole = length > 0 && (offset | length).is_multiple_of(self.block.max(1));
        let end = offset.checked_add(length);
        whole && self.size().is_some_and(|(size, _)| end.is_some_and(|end| end <= size))
    }

    /// Returns the most bytes of a piece.
    pub(super) fn most(&self, action: Action) -> u64 {
        if action == Action::Deallocate { DEALLOCATED } else { self.most }
    }

    /// Lets a piece wait until the SSD has room for it.
    pub(super) fn push(&mut self, piece: Piece) {
        self.waiting.push_back(piece);
    }

    /// Returns true if pieces wait.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the SSD's answers, and acts on time limits.
    pub(super) fn take_answers(&mut self, requests: &mut Requests) {
        let now = self.bus.now();
        self.host.poll(&mut self.bus, now);
        while let Some(done) = self.bus.answer() {
            self.host.read_done(&mut self.bus, now, done);
            self.host.poll(&mut self.bus, now);
        }
        while let Some(finished) = self.host.finished() {
            self.finish(&finished, requests);
        }
        while let Some(id) = self.host.freed() {
            let slot = id as usize;
            if matches!(self.flights.get(slot), Some(Some(Flight::Held))) {
                self.flights[slot] = None;
                self.free.push(slot);
            }
        }
    }

    /// Gives the SSD as many pieces as it has room for.
    pub(super) fn feed(&mut self, requests: &mut Requests) {
        let now = self.bus.now();
        while let Some(piece) = self.waiting.front().copied() {
            match self.host.state() {
                State::Ready if self.same_blocks() => {}
                State::Starting => break,
                // It has failed for good, or has come back with other blocks.
                _ => {
                    self.waiting.pop_front();
                    requests.end_piece(piece, Err(VolumeError::Medium(EIO)));
                    continue;
                }
            }
            let Some(slot) = self.free.last().copied() else { break };
            match self.give(slot, piece, now, requests) {
                Ok(()) => {
                    self.free.pop();
                    self.flights[slot] = Some(Flight::Under(piece));
                }
                Err(SubmitError::Full | SubmitError::NotReady) => break,
                Err(_) => requests.end_piece(piece, Err(VolumeError::Refused)),
            }
            self.waiting.pop_front();
        }
        self.host.ring(&mut self.bus);
    }

    /// Returns true if blocks have the size that volumes were made for: a reset may bring the SSD back with another one.
    fn same_blocks(&self) -> bool {
        self.size().is_some_and(|(_, block)| block == self.block)
    }

    /// Gives the SSD a piece.
    fn give(
        &mut self,
        slot: usize,
        piece: Piece,
        now: u64,
        requests: &mut Requests,
    ) -> Result<(), SubmitError> {
        let (place, held) = (self.slots[slot], requests.of(piece));
        let address = self.bus.window().address + place;
        let data = [Window { address, length: piece.length }];
        let (lba, data) = (piece.position / self.block.max(1), &data[..]);
        let ask = match held.action {
            Action::Read => Ask::Read { lba, data },
            Action::Flush => Ask::Flush,
            Action::Deallocate => {
                let count = (piece.length / self.block.max(1)) as u32;
                self.bus.store(place, &Range { first: lba, count }.bytes());
                Ask::Deallocate { ranges: Window { address, length: Range::SIZE as u64 } }
            }
            Action::Write { durable } | Action::Zero { durable, .. } => {
                let bytes = &mut self.scratch[..piece.length as usize];
                held.data.load_at(piece.at as usize, bytes);
                self.bus.store(place, bytes);
                Ask::Write { lba, data, durable }
            }
        };
        self.host.submit(&mut self.bus, now, slot as u64, &ask)
    }

    /// Ends a command's piece.
    fn finish(&mut self, finished: &Finished, requests: &mut Requests) {
        let slot = finished.id as usize;
        let Some(Some(Flight::Under(piece))) = self.flights.get(slot).copied() else { return };
        let held = requests.of(piece);
        if held.action == Action::Read && finished.result.is_ok() {
            let bytes = &mut self.scratch[..piece.length as usize];
            self.bus.load(self.slots[slot], bytes);
            held.data.store_at(piece.at as usize, bytes);
        }
        match finished.memory {
            Memory::Held => self.flights[slot] = Some(Flight::Held),
            Memory::Quiet => {
                self.flights[slot] = None;
                self.free.push(slot);
            }
        }
        requests.end_piece(piece, finished.result.map_err(failure));
    }
}

fn config(registers: Window, namespace: Option<u32>) -> Config {
    Config { namespace, max_transfer: PIECE, interrupts: true, ..Config::new(registers, 1) }
}

fn failure(error: NvmeError) -> VolumeError {
    match error {
        NvmeError::Status(status) if status.is(Status::CAPACITY_EXCEEDED) => VolumeError::Full,
        _ => VolumeError::Medium(EIO),
    }
}

impl<B: SsdBus> Drop for Ssd<B> {
    /// Stops the SSD before its memory goes. One that does not stop in time is left to its bus.
    fn drop(&mut self) {
        let now = self.bus.now();
        self.host.halt(&mut self.bus, now);
        while matches!(self.host.state(), State::Starting | State::Ready) && self.bus.now() < now + STOP {
            self.look();
            std::thread::yield_now();
        }
    }
}
