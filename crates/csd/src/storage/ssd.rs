//! Volumes on a namespace of an NVMe SSD that this process drives itself, without the kernel's driver: over
//! VFIO, or any other [`Bus`].
//!
//! Data are copied through memory that the SSD reaches, in both directions. Requests are cut into pieces of
//! [`PIECE`] bytes, of which the SSD has [`SLOTS`] at once; the others wait in order.

use std::collections::{BTreeMap, VecDeque};

use dcs_drivers::bus::{Bus, ReadDone, Region, Window};
use dcs_drivers::nvme::{Config, Finished, Memory, Nvme, NvmeError, Request as Ask, State, SubmitError};
use dcs_nvme::Status;

use super::{Action, Data, Request, Response, Storage, Ticket, VolumeError, VolumeId, VolumeInfo};

/// Maximum number of bytes of a command to the SSD.
const PIECE: u64 = 128 << 10;

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

/// A namespace of an SSD, and volumes on it.
pub struct SsdStorage<B: SsdBus> {
    host: Nvme,
    bus: B,
    volumes: BTreeMap<u32, Volume>,
    next_volume: u32,
    /// Offset of each slot's memory.
    slots: Vec<u64>,
    /// Each slot's command, and the slots that are free.
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    waiting: VecDeque<Piece>,
    requests: Vec<Held>,
    free_requests: Vec<u32>,
    done: Vec<Response>,
    scratch: Vec<u8>,
    /// Bytes of a logical block, and of a command, at the SSD's first start.
    block: u64,
    most: u64,
}

struct Volume {
    offset: u64,
    info: VolumeInfo,
}

/// A request in progress.
struct Held {
    ticket: Ticket,
    action: Action,
    data: Data,
    pieces: u32,
    result: Result<(), VolumeError>,
}

/// A piece of a request: its first byte in the request and in the namespace, and its length.
#[derive(Clone, Copy)]
struct Piece {
    request: u32,
    at: u64,
    position: u64,
    length: u64,
}

/// A slot's command.
#[derive(Clone, Copy)]
enum Flight {
    Under(Piece),
    /// It has failed, and the SSD may still access the slot's memory.
    Held,
}

impl<B: SsdBus> SsdStorage<B> {
    /// Returns the number of bytes of the bus's own memory that it takes.
    pub fn memory() -> u64 {
        config(Window { address: 0, length: 0x4000 }, None).memory() + PAGE + SLOTS as u64 * PIECE
    }

    /// Makes a driver of the SSD with these registers, and of one of its namespaces (the first one by
    /// default). It is not [started](Self::start) yet. Returns `None` if these are not registers, or the bus
    /// has too little memory.
    pub fn new(bus: B, registers: Window, namespace: Option<u32>) -> Option<SsdStorage<B>> {
        let config = config(registers, namespace);
        let mut memory = Region::whole(bus.window());
        let own = memory.take(config.memory(), PAGE)?;
        let slot = |_| Some(memory.take(PIECE, PAGE)?.offset());
        let slots: Vec<u64> = (0..SLOTS).map(slot).collect::<Option<_>>()?;
        Some(SsdStorage {
            host: Nvme::new(config, own).ok()?,
            bus,
            volumes: BTreeMap::new(),
            next_volume: 0,
            flights: vec![None; slots.len()],
            free: (0..slots.len()).rev().collect(),
            slots,
            waiting: VecDeque::new(),
            requests: Vec::new(),
            free_requests: Vec::new(),
            done: Vec::new(),
            scratch: vec![0; PIECE as usize],
            block: 0,
            most: PIECE,
        })
    }

    /// Starts the SSD: call [`SsdStorage::look`] until it is no longer [`State::Starting`].
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

    /// Returns the time by which [`SsdStorage::look`] is to be called again, by the bus's clock.
    pub fn deadline(&self) -> Option<u64> {
        self.host.deadline()
    }

    /// Adds a volume of `length` bytes from this byte of the namespace on. Returns `None` if the namespace
    /// does not have them, or they are not whole blocks.
    pub fn add(&mut self, offset: u64, length: u64, read_only: bool) -> Option<VolumeId> {
        if self.volumes.is_empty() {
            let (found, block) = (self.host.namespace()?, self.size()?.1);
            (self.block, self.most) = (block, PIECE.min(found.max_transfer) / block * block);
        }
        let info = VolumeInfo {
            length,
            alignment: self.block,
            // Data are copied, so that memory need not be aligned.
            memory_alignment: 1,
            volatile_cache: true,
            thin: false,
            read_only,
            writes_zeros: true,
        };
        if self.most == 0 || !self.fits(offset, length) {
            return None;
        }
        let id = self.next_volume;
        self.next_volume += 1;
        self.volumes.insert(id, Volume { offset, info });
        Some(VolumeId(id))
    }

    fn fits(&self, offset: u64, length: u64) -> bool {
        let whole = length > 0 && (offset | length).is_multiple_of(self.block.max(1));
        let end = offset.checked_add(length);
        whole && self.size().is_some_and(|(size, _)| end.is_some_and(|end| end <= size))
    }

    /// Removes a volume. Its requests in progress go on.
    pub fn remove(&mut self, volume: VolumeId) {
        self.volumes.remove(&volume.0);
    }

    /// Changes a volume's length. Returns false if the length is not possible.
    pub fn resize(&mut self, volume: VolumeId, length: u64) -> bool {
        let fits = self.volumes.get(&volume.0).is_some_and(|held| self.fits(held.offset, length));
        if let Some(held) = self.volumes.get_mut(&volume.0).filter(|_| fits) {
            held.info.length = length;
        }
        fits
    }

    /// Returns true if requests are in progress.
    pub fn is_busy(&self) -> bool {
        self.requests.len() > self.free_requests.len() || !self.done.is_empty()
    }

    /// Takes the SSD's answers, and acts on timeouts.
    pub fn look(&mut self) {
        let now = self.bus.now();
        self.host.poll(&mut self.bus, now);
        while let Some(done) = self.bus.answer() {
            self.host.read_done(&mut self.bus, now, done);
            self.host.poll(&mut self.bus, now);
        }
        while let Some(finished) = self.host.finished() {
            self.finish(&finished);
        }
        while let Some(id) = self.host.freed() {
            let slot = id as usize;
            if matches!(self.flights.get(slot), Some(Some(Flight::Held))) {
                self.flights[slot] = None;
                self.free.push(slot);
            }
        }
    }

    /// Checks a request, and cuts it into pieces.
    fn cut(&mut self, request: Request) -> Result<(), (Request, VolumeError)> {
        let Some(volume) = self.volumes.get(&request.volume.0) else {
            return Err((request, VolumeError::Refused));
        };
        let info = &volume.info;
        let end = request.offset.checked_add(request.length);
        let aligned = (request.offset | request.length).is_multiple_of(info.alignment);
        let writes = !matches!(request.action, Action::Read | Action::Flush);
        if !aligned || end.is_none_or(|end| end > info.length) || (writes && info.read_only) {
            return Err((request, VolumeError::Refused));
        }
        let index = self.free_requests.pop().unwrap_or(self.requests.len() as u32);
        // Deallocation is a hint, and is not passed on.
        let total = if request.action == Action::Deallocate { 0 } else { request.length };
        let (first, most) = (volume.offset + request.offset, self.most);
        let mut pieces = 0;
        let mut push = |at, length| {
            pieces += 1;
            self.waiting.push_back(Piece { request: index, at, position: first + at, length });
        };
        match request.action {
            Action::Flush => push(0, 0),
            _ => (0..total).step_by(most as usize).for_each(|at| push(at, most.min(total - at))),
        }
        let held = Held {
            ticket: request.ticket,
            action: request.action,
            data: request.data,
            pieces,
            result: Ok(()),
        };
        match self.requests.get_mut(index as usize) {
            Some(place) => *place = held,
            None => self.requests.push(held),
        }
        if pieces == 0 {
            self.end(index);
        }
        Ok(())
    }

    fn end(&mut self, request: u32) {
        let held = &mut self.requests[request as usize];
        let data = std::mem::take(&mut held.data);
        self.done.push(Response { ticket: held.ticket, data, result: held.result, written: 0 });
        self.free_requests.push(request);
    }

    fn end_piece(&mut self, piece: Piece, result: Result<(), VolumeError>) {
        let held = &mut self.requests[piece.request as usize];
        held.result = held.result.and(result);
        held.pieces -= 1;
        if held.pieces == 0 {
            self.end(piece.request);
        }
    }

    /// Gives the SSD as many pieces as it has room for.
    fn feed(&mut self) {
        let now = self.bus.now();
        while let Some(piece) = self.waiting.front().copied() {
            match self.host.state() {
                State::Ready if self.same_blocks() => {}
                State::Starting => break,
                // It has failed permanently, or has come back with other blocks.
                _ => {
                    self.waiting.pop_front();
                    self.end_piece(piece, Err(VolumeError::Medium(EIO)));
                    continue;
                }
            }
            let Some(slot) = self.free.last().copied() else { break };
            match self.give(slot, piece, now) {
                Ok(()) => {
                    self.free.pop();
                    self.flights[slot] = Some(Flight::Under(piece));
                }
                Err(SubmitError::Full | SubmitError::NotReady) => break,
                Err(_) => self.end_piece(piece, Err(VolumeError::Refused)),
            }
            self.waiting.pop_front();
        }
        self.host.ring(&mut self.bus);
    }

    /// Returns true if the blocks still have the size for which volumes were made: a reset may change it.
    fn same_blocks(&self) -> bool {
        self.size().is_some_and(|(_, block)| block == self.block)
    }

    /// Gives the SSD a piece.
    fn give(&mut self, slot: usize, piece: Piece, now: u64) -> Result<(), SubmitError> {
        let (place, held) = (self.slots[slot], &self.requests[piece.request as usize]);
        let data = [Window { address: self.bus.window().address + place, length: piece.length }];
        let (lba, data) = (piece.position / self.block.max(1), &data[..]);
        let ask = match held.action {
            Action::Read => Ask::Read { lba, data },
            Action::Flush | Action::Deallocate => Ask::Flush,
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
    fn finish(&mut self, finished: &Finished) {
        let slot = finished.id as usize;
        let Some(Some(Flight::Under(piece))) = self.flights.get(slot).copied() else { return };
        let held = &mut self.requests[piece.request as usize];
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
        self.end_piece(piece, finished.result.map_err(failure));
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

impl Data {
    /// Copies the request's bytes from `at` on; zeros if it has no data.
    fn load_at(&self, mut at: usize, mut bytes: &mut [u8]) {
        match self {
            Data::None => bytes.fill(0),
            Data::Buffer(buffer) => bytes.copy_from_slice(&buffer.bytes()[at..at + bytes.len()]),
            Data::Pieces(pieces) => {
                for piece in pieces {
                    let skip = at.min(piece.length());
                    let length = (piece.length() - skip).min(bytes.len());
                    let (part, rest) = std::mem::take(&mut bytes).split_at_mut(length);
                    piece.load_at(skip, part);
                    (at, bytes) = (at - skip, rest);
                }
            }
        }
    }

    /// Copies bytes to the request's memory, from its byte `at` on.
    fn store_at(&mut self, mut at: usize, mut bytes: &[u8]) {
        match self {
            Data::None => {}
            Data::Buffer(buffer) => buffer.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes),
            Data::Pieces(pieces) => {
                for piece in pieces {
                    let skip = at.min(piece.length());
                    let (part, rest) = bytes.split_at((piece.length() - skip).min(bytes.len()));
                    piece.store_at(skip, part);
                    (at, bytes) = (at - skip, rest);
                }
            }
        }
    }
}

impl<B: SsdBus> Drop for SsdStorage<B> {
    /// Stops the SSD before its memory is freed. One that does not stop in time is left to its bus.
    fn drop(&mut self) {
        let now = self.bus.now();
        self.host.halt(&mut self.bus, now);
        while matches!(self.host.state(), State::Starting | State::Ready) && self.bus.now() < now + STOP {
            self.look();
            std::thread::yield_now();
        }
    }
}

impl<B: SsdBus> Storage for SsdStorage<B> {
    fn volume(&self, volume: VolumeId) -> Option<VolumeInfo> {
        self.volumes.get(&volume.0).map(|held| held.info)
    }

    fn submit(&mut self, request: Request) {
        if let Err((request, error)) = self.cut(request) {
            self.done.push(Response::refused(request, error));
        }
    }

    fn commit(&mut self) {
        self.feed();
    }

    fn reap(&mut self, responses: &mut Vec<Response>) {
        self.look();
        if !self.waiting.is_empty() {
            self.feed();
        }
        responses.append(&mut self.done);
    }
}
