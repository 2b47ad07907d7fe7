//! An SSD as the engine's source and destination: block operations become commands of an NVMe host
//! ([`Nvme`]).
//!
//! The engine counts in bytes, an SSD in logical blocks. A read that does not begin and end with one goes through a bounce buffer. A write
//! must begin with one. If it ends inside one, that block is read into a bounce buffer, changed there and written back: the bytes behind
//! the end are preserved. A request beyond the controller's limit is cut: the engine submits the rest next.
//!
//! All that may also be done by something else, a [`Controller`], which the host lends its queue pair to.

mod hardware;

pub use hardware::{Controller, ControllerEvent, Lent};

use crate::bus::{Bus, ReadDone, Region, Window};
use crate::nvme::{self, Memory, Nvme, NvmeError, Request, State, SubmitError};
use dcs_abi::status::Status;
use dcs_engine::{BlockId, DeviceEvent, Failure, Nanos, OperationId, Outcome};
use hardware::Hardware;
use std::collections::{HashMap, VecDeque};

/// Number of bounce buffers of an SSD.
const BOUNCES: usize = 4;

/// A read, write or flush of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Operation that it belongs to.
    pub operation: OperationId,
    /// Work to do.
    pub work: Work,
}

/// The work of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Read into a block.
    Read(Span),
    /// Write from a block.
    Write(Span),
    /// Make earlier writes durable.
    Flush,
}

/// Bytes of the SSD, and their place in the card's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte on the SSD.
    pub position: u64,
    /// Length in bytes.
    pub length: u32,
    /// Offset in the card's own memory.
    pub memory: u64,
    /// Block that contains the memory.
    pub block: BlockId,
}

/// A command in progress.
#[derive(Clone, Copy, Debug)]
struct Flight {
    job: Job,
    /// Bytes that it moves for the engine.
    bytes: u32,
    /// Bounce buffer, if the bytes do not go directly to or from their place, and the first byte's offset in it.
    bounce: Option<(usize, u64)>,
    /// Set for a write inside a logical block that is being read first.
    filling: bool,
    /// Set if it is over, but the SSD may still write.
    held: bool,
}

/// An SSD.
pub struct Ssd {
    host: Nvme,
    registers: Window,
    waiting: VecDeque<Job>,
    /// Writes whose logical block was read and changed, and is to be written back.
    filled: VecDeque<Flight>,
    flights: HashMap<u64, Flight>,
    /// Most flights: this many blocks are lost if the SSD hangs for good.
    most: usize,
    path: u32,
    bounces: Vec<(Region, bool)>,
    /// Size of a bounce buffer: most of a logical block may precede and follow a bounced read.
    bounce_length: u64,
    events: VecDeque<DeviceEvent>,
    /// Hardware that does reads, writes and flushes in its place.
    hardware: Option<Hardware>,
    namespace: Option<u32>,
    /// Size of a logical block in bytes, as the SSD reported it at its start.
    size: Option<u32>,
    detached: bool,
}

impl core::fmt::Debug for Ssd {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Ssd at {:?}, {:?}, {:?}", self.registers, self.host.state(), self.host.counters())
    }
}

/// Largest logical block that is supported, in bytes.
pub const LOGICAL_BLOCK_MAX: u32 = 4096;

impl Ssd {
    /// Returns how many bytes [`Ssd::new`] takes of its memory.
    pub fn memory(config: &nvme::Config, block_size: u32) -> u64 {
        // Bounce buffers begin at pages; the queues may have to as well.
        let bounce = (u64::from(block_size) + 2 * u64::from(LOGICAL_BLOCK_MAX)).next_multiple_of(4096);
        config.memory() + config.page + BOUNCES as u64 * bounce
    }

    /// Makes the driver of an SSD, with queues and buffers in `memory`; returns `None` if that is too small. The SSD has at most `most`
    /// commands at once. `path` is reported for its bytes (`PATH_*` of the command set).
    pub fn new(
        config: nvme::Config,
        (most, path): (usize, u32),
        block_size: u32,
        memory: &mut Region,
    ) -> Option<Ssd> {
        let region = memory.take(config.memory(), config.page)?;
        let bounce_length = u64::from(block_size) + 2 * u64::from(LOGICAL_BLOCK_MAX);
        let bounces =
            (0..BOUNCES).map(|_| Some((memory.take(bounce_length, 4096)?, false))).collect::<Option<_>>()?;
        let ssd = Ssd::over(config, (most, path), region)?;
        Some(Ssd { bounces, bounce_length, ..ssd })
    }

    /// Makes the driver of an SSD whose reads, writes and flushes `controller` does, in blocks of which the first is at the offset `blocks` of
    /// own memory; else as [`Ssd::new`].
    pub fn with_controller(
        config: nvme::Config,
        (most, path): (usize, u32),
        (controller, blocks): (Box<dyn Controller>, u64),
        memory: &mut Region,
    ) -> Option<Ssd> {
        let depth = controller.entries();
        let config = nvme::Config { lend: true, queues: 1, depth, cmb: None, ..config };
        let region = memory.take(config.memory(), config.page)?;
        let page = memory.take(4096, 4096)?;
        let ssd = Ssd::over(config, (most, path), region)?;
        Some(Ssd { hardware: Some(Hardware::new(controller, blocks, page)), ..ssd })
    }

    /// Makes the driver of an SSD, without buffers.
    fn over(config: nvme::Config, (most, path): (usize, u32), region: Region) -> Option<Ssd> {
        let (registers, namespace) = (config.registers, config.namespace);
        let host = Nvme::new(config, region).ok()?;
        let (waiting, filled, flights, events) = Default::default();
        let (size, detached) = (None, false);
        Some(Ssd {
            host,
            registers,
            waiting,
            filled,
            flights,
            most,
            path,
            bounces: Vec::new(),
            bounce_length: 0,
            events,
            hardware: None,
            namespace,
            size,
            detached,
        })
    }

    /// Detaches it from its host, after a reset of the card: the SSD is told to stop, and operations that wait for it fail.
    pub fn detach(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.detached = true;
        self.host.halt(bus, now);
        // It may be started again before it has stopped: nothing from before is submitted then.
        self.give_up_waiting();
    }

    /// Returns true if it was detached from its host.
    pub fn is_detached(&self) -> bool {
        self.detached
    }

    /// Drives another SSD instead; returns false unless this one is detached and can do nothing any more.
    pub fn relocate(&mut self, registers: Window, namespace: Option<u32>) -> bool {
        let may = self.detached && !self.is_busy() && self.events.is_empty();
        if !may || !self.host.relocate(registers, namespace) {
            return false;
        }
        (self.registers, self.namespace) = (registers, namespace);
        true
    }

    /// Returns the namespace that the host has named.
    pub fn namespace(&self) -> Option<u32> {
        self.namespace
    }

    /// Returns the address of its registers.
    pub fn registers(&self) -> Window {
        self.registers
    }

    /// Returns its NVMe host.
    pub fn host(&self) -> &Nvme {
        &self.host
    }

    /// Returns the size of a logical block in bytes, since the host started it and it was ready, and until it fails.
    pub fn block_size(&self) -> Option<u32> {
        self.size.filter(|_| !matches!(self.host.state(), State::Failed(_)))
    }

    /// Starts the controller, or resets it and starts it again. Operations that wait for it fail: its logical blocks may be others.
    pub fn start(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.give_up_waiting();
        (self.detached, self.size) = (false, None);
        match self.host.state() {
            State::Off => self.host.start(bus, now),
            _ => self.host.reset(bus, now),
        }
    }

    /// Returns the status with which a transfer of these bytes is refused, if it is.
    pub fn refuses(&self, position: u64, length: u64, write: bool) -> Option<Status> {
        let Some(namespace) = self.host.namespace() else { return Some(Status::DeviceReset) };
        let size = u64::from(namespace.block_size);
        let end = position.checked_add(length);
        if self.size.is_some_and(|size| size != namespace.block_size) {
            return Some(Status::DeviceReset);
        }
        if namespace.block_size > LOGICAL_BLOCK_MAX {
            return Some(Status::UnsupportedEndpoint);
        }
        if end.is_none_or(|end| end.div_ceil(size) > namespace.blocks) {
            return Some(Status::OutOfRange);
        }
        (write && !position.is_multiple_of(size)).then_some(Status::InvalidField)
    }

    /// Takes a job. Its end is one event.
    pub fn submit(&mut self, bus: &mut dyn Bus, now: Nanos, job: Job) {
        self.waiting.push_back(job);
        self.feed(bus, now);
    }

    /// Aborts an operation soon, if possible.
    pub fn abort(&mut self, bus: &mut dyn Bus, now: Nanos, operation: OperationId) {
        if let Some(at) = self.waiting.iter().position(|job| job.operation == operation) {
            self.waiting.remove(at);
            self.fail(operation, Status::Cancelled);
        } else if let Some(at) = self.filled.iter().position(|flight| flight.job.operation == operation) {
            self.give_up_filled(at, Status::Cancelled);
        } else if let Some(hardware) = &mut self.hardware {
            hardware.abort(bus, now, operation);
        } else {
            self.host.abort(bus, now, operation.to_bits());
        }
    }

    /// Ends everything, when the owner of the bus knows that the function can do nothing any more.
    pub fn on_reset(&mut self) {
        self.host.on_reset();
        self.reap_all();
    }

    /// Does everything that is due.
    pub fn poll(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.host.poll(bus, now);
        if let (State::Ready, Some(namespace)) = (self.host.state(), self.host.namespace()) {
            self.size.get_or_insert(namespace.block_size);
        }
        if self.host.state() == State::Failed(nvme::ResetCause::Gone) && self.flights() > 0 {
            // A function that was removed writes nowhere; one that the host has switched off belongs to the host.
            self.host.on_reset();
        }
        self.poll_hardware(bus, now);
        self.reap(bus);
        self.feed(bus, now);
        if self.hardware.as_ref().is_some_and(Hardware::is_stirred) {
            self.poll_hardware(bus, now);
        }
        self.host.ring(bus);
    }

    /// Processes the answer to a register read of its NVMe host.
    pub fn read_done(&mut self, bus: &mut dyn Bus, now: Nanos, done: ReadDone) {
        self.host.read_done(bus, now, done);
        self.poll_hardware(bus, now);
    }

    fn poll_hardware(&mut self, bus: &mut dyn Bus, now: Nanos) {
        if let Some(hardware) = &mut self.hardware {
            hardware.poll(&mut self.host, bus, now, self.path, &mut self.events);
        }
    }

    /// Returns the number of commands that the SSD may have.
    fn flights(&self) -> usize {
        self.flights.len() + self.hardware.as_ref().map_or(0, Hardware::flights)
    }

    /// Returns the latest time for the next call of [`Ssd::poll`].
    pub fn deadline(&self) -> Option<Nanos> {
        let hardware = self.hardware.as_ref().and_then(|hardware| hardware.deadline(&self.host));
        self.host.deadline().into_iter().chain(hardware).min()
    }

    /// Returns the next event for the engine.
    pub fn next_event(&mut self) -> Option<DeviceEvent> {
        self.events.pop_front()
    }

    /// Returns true if operations wait or are in progress.
    pub fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || !self.filled.is_empty() || self.flights() > 0
    }

    /// Returns the operations that wait to read or write some of these bytes, or do so now.
    pub fn operations_on(&self, first: u64, length: u64) -> Vec<OperationId> {
        let end = first.saturating_add(length);
        let is_there = |job: &&Job| match job.work {
            Work::Read(span) | Work::Write(span) => {
                span.position < end && first < span.position.saturating_add(span.length.into())
            }
            Work::Flush => false,
        };
        self.jobs().filter(is_there).map(|job| job.operation).collect()
    }

    /// Returns true if an operation waits or is in progress, or has failed and the SSD may still access its memory.
    pub fn has(&self, operation: OperationId) -> bool {
        self.jobs().any(|job| job.operation == operation)
    }

    fn jobs(&self) -> impl Iterator<Item = &Job> {
        let given = self.filled.iter().chain(self.flights.values()).map(|flight| &flight.job);
        self.waiting.iter().chain(given).chain(self.hardware.iter().flat_map(Hardware::jobs))
    }

    fn fail(&mut self, operation: OperationId, status: Status) {
        self.events.push_back(DeviceEvent::Done(operation, Outcome::Failed(Failure::new(status))));
    }

    /// Fails a write whose logical block was read and that is not made.
    fn give_up_filled(&mut self, at: usize, status: Status) {
        let Some(flight) = self.filled.remove(at) else { return };
        if let Some((slot, _)) = flight.bounce {
            self.bounces[slot].1 = false;
        }
        self.fail(flight.job.operation, status);
    }

    /// Writes back the blocks that were read and changed; returns false if there is no room for one now.
    fn write_back(&mut self, bus: &mut dyn Bus, now: Nanos) -> bool {
        while let Some(flight) = self.filled.front().copied() {
            if self.host.state() == State::Starting {
                return false;
            }
            let submitted = match (self.limits(), flight.job.work, flight.bounce) {
                (Ok((size, _)), Work::Write(span), Some((slot, _))) => {
                    let address = bus.window().address + self.bounces[slot].0.offset();
                    let (lba, data) = (span.position / size, [Window { address, length: size }]);
                    let request = Request::Write { lba, data: &data, durable: false };
                    self.host.submit(bus, now, flight.job.operation.to_bits(), &request)
                }
                (Err(status), ..) => {
                    self.give_up_filled(0, status);
                    continue;
                }
                _ => {
                    self.give_up_filled(0, Status::InternalError);
                    continue;
                }
            };
            match submitted {
                Ok(()) => {
                    self.filled.pop_front();
                    self.flights.insert(flight.job.operation.to_bits(), flight);
                }
                Err(SubmitError::Full | SubmitError::NotReady) if self.host.state() == State::Ready => {
                    return false;
                }
                Err(SubmitError::Full | SubmitError::NotReady) => self.give_up_filled(0, Status::DeviceReset),
                Err(_) => self.give_up_filled(0, Status::InternalError),
            }
        }
        true
    }

    /// Gives the controller what it has room for.
    fn feed(&mut self, bus: &mut dyn Bus, now: Nanos) {
        if !self.write_back(bus, now) {
            return;
        }
        while let Some(job) = self.waiting.front().copied() {
            if self.flights() >= self.most && self.host.state() == State::Ready {
                return;
            }
            match self.host.state() {
                State::Ready => {}
                State::Starting => return,
                State::Off | State::Failed(_) => {
                    self.waiting.pop_front();
                    self.fail(job.operation, Status::DeviceReset);
                    continue;
                }
            }
            match self.give(bus, now, job) {
                Ok(true) => _ = self.waiting.pop_front(),
                Ok(false) => return,
                Err(status) => {
                    self.waiting.pop_front();
                    self.fail(job.operation, status);
                }
            }
        }
    }

    /// Makes a command of a job; returns false if there is no room for it now.
    fn give(&mut self, bus: &mut dyn Bus, now: Nanos, job: Job) -> Result<bool, Status> {
        let limits = self.limits();
        if let Some(hardware) = &mut self.hardware {
            return limits.map(|_| hardware.give(bus, now, job));
        }
        let id = job.operation.to_bits();
        let (flight, submitted) = match job.work {
            Work::Flush => {
                let flight = Flight { job, bytes: 0, bounce: None, filling: false, held: false };
                (flight, self.host.submit(bus, now, id, &Request::Flush))
            }
            Work::Read(span) => {
                let Some((flight, lba, data)) = self.plan_read(bus, job, span)? else { return Ok(false) };
                (flight, self.host.submit(bus, now, id, &Request::Read { lba, data: &[data] }))
            }
            Work::Write(span) => {
                let Some((flight, lba, data)) = self.plan_write(bus, job, span)? else { return Ok(false) };
                let data = [data];
                let request = match flight.filling {
                    true => Request::Read { lba, data: &data },
                    false => Request::Write { lba, data: &data, durable: false },
                };
                (flight, self.host.submit(bus, now, id, &request))
            }
        };
        if let (Err(_), Some((slot, _))) = (submitted, flight.bounce) {
            self.bounces[slot].1 = false;
        }
        match submitted {
            Ok(()) => {
                self.flights.insert(id, flight);
                Ok(true)
            }
            Err(SubmitError::Full | SubmitError::NotReady) => Ok(false),
            Err(SubmitError::OutOfRange { .. }) => Err(Status::OutOfRange),
            Err(_) => Err(Status::InternalError),
        }
    }

    /// Returns the size of a logical block, and the most that one command may move, in bytes.
    fn limits(&self) -> Result<(u64, u64), Status> {
        let namespace = self.host.namespace().ok_or(Status::DeviceReset)?;
        let size = u64::from(namespace.block_size);
        let most = namespace.max_transfer - namespace.max_transfer % size;
        // A reset may have changed the block size: places and lengths would be wrong then.
        let same = self.size.is_none_or(|size| size == namespace.block_size);
        let drivable = same && namespace.block_size <= LOGICAL_BLOCK_MAX && most > 0;
        drivable.then_some((size, most)).ok_or(Status::DeviceReset)
    }

    fn plan_read(
        &mut self,
        bus: &dyn Bus,
        job: Job,
        span: Span,
    ) -> Result<Option<(Flight, u64, Window)>, Status> {
        let (size, most) = self.limits()?;
        let base = bus.window().address;
        let length = u64::from(span.length);
        let aligned = span.position.is_multiple_of(size) && span.memory.is_multiple_of(4);
        // The tail of an aligned read that is not a whole logical block is left to the engine's next read.
        let whole = length.min(most) / size * size;
        if aligned && whole > 0 {
            let flight = Flight { job, bytes: whole as u32, bounce: None, filling: false, held: false };
            let data = Window { address: base + span.memory, length: whole };
            return Ok(Some((flight, span.position / size, data)));
        }
        let Some(slot) = self.bounces.iter().position(|(_, taken)| !taken) else { return Ok(None) };
        let first = span.position / size;
        let ahead = span.position - first * size;
        let room = self.bounce_length.min(most) / size * size;
        let bytes = length.min(room - ahead);
        let blocks = (ahead + bytes).div_ceil(size);
        self.bounces[slot].1 = true;
        let flight =
            Flight { job, bytes: bytes as u32, bounce: Some((slot, ahead)), filling: false, held: false };
        let data = Window { address: base + self.bounces[slot].0.offset(), length: blocks * size };
        Ok(Some((flight, first, data)))
    }

    /// Plans a write. Whole logical blocks are written from where they are; the rest of the engine's write comes as another. A part of a
    /// logical block goes through a bounce buffer, into which the block is read first.
    fn plan_write(
        &mut self,
        bus: &dyn Bus,
        job: Job,
        span: Span,
    ) -> Result<Option<(Flight, u64, Window)>, Status> {
        let (size, most) = self.limits()?;
        if !span.position.is_multiple_of(size) || !span.memory.is_multiple_of(4) {
            return Err(Status::UnsupportedEndpoint);
        }
        let (base, lba) = (bus.window().address, span.position / size);
        let whole = u64::from(span.length).min(most) / size * size;
        if whole > 0 {
            let flight = Flight { job, bytes: whole as u32, bounce: None, filling: false, held: false };
            return Ok(Some((flight, lba, Window { address: base + span.memory, length: whole })));
        }
        let Some(slot) = self.bounces.iter().position(|(_, taken)| !taken) else { return Ok(None) };
        self.bounces[slot].1 = true;
        let flight = Flight { job, bytes: span.length, bounce: Some((slot, 0)), filling: true, held: false };
        Ok(Some((flight, lba, Window { address: base + self.bounces[slot].0.offset(), length: size })))
    }

    fn reap(&mut self, bus: &mut dyn Bus) {
        while let Some(finished) = self.host.finished() {
            self.finish(Some(&mut *bus), finished);
        }
        while let Some(id) = self.host.freed() {
            self.freed(id);
        }
    }

    /// Reaps like [`Ssd::reap`], if nothing has succeeded.
    fn reap_all(&mut self) {
        while let Some(finished) = self.host.finished() {
            self.finish(None, finished);
        }
        while let Some(id) = self.host.freed() {
            self.freed(id);
        }
        self.give_up_waiting();
    }

    /// Fails everything that the SSD has not been given.
    fn give_up_waiting(&mut self) {
        while !self.filled.is_empty() {
            self.give_up_filled(0, Status::DeviceReset);
        }
        while let Some(job) = self.waiting.pop_front() {
            self.fail(job.operation, Status::DeviceReset);
        }
    }

    fn finish(&mut self, mut bus: Option<&mut dyn Bus>, finished: nvme::Finished) {
        let Some(mut flight) = self.flights.remove(&finished.id) else { return };
        let operation = flight.job.operation;
        if let (true, Ok(()), Work::Write(span), Some((slot, _)), Some(bus)) =
            (flight.filling, &finished.result, flight.job.work, flight.bounce, bus.as_deref_mut())
        {
            let mut bytes = vec![0; flight.bytes as usize];
            bus.load(span.memory, &mut bytes);
            bus.store(self.bounces[slot].0.offset(), &bytes);
            flight.filling = false;
            return self.filled.push_back(flight);
        }
        let outcome = match (finished.result, flight.job.work, bus) {
            (Ok(()), Work::Flush, _) => Outcome::Flushed,
            (Ok(()), Work::Read(span), Some(bus)) => {
                if let Some((slot, ahead)) = flight.bounce {
                    let mut bytes = vec![0; flight.bytes as usize];
                    bus.load(self.bounces[slot].0.offset() + ahead, &mut bytes);
                    bus.store(span.memory, &bytes);
                }
                self.moved(flight.bytes)
            }
            (Ok(()), Work::Write(_), _) => self.moved(flight.bytes),
            (Ok(()), ..) => Outcome::Failed(Failure::new(Status::DeviceReset)),
            (Err(error), work, _) => {
                let failure = failure(error, matches!(work, Work::Read(_)));
                match (finished.memory, work, flight.bounce) {
                    (Memory::Held, Work::Read(_) | Work::Write(_), None) => Outcome::FailedHeld(failure),
                    _ => Outcome::Failed(failure),
                }
            }
        };
        if finished.memory == Memory::Held {
            flight.held = true;
            self.flights.insert(finished.id, flight);
        } else if let Some((slot, _)) = flight.bounce {
            self.bounces[slot].1 = false;
        }
        self.events.push_back(DeviceEvent::Done(operation, outcome));
    }

    fn moved(&self, bytes: u32) -> Outcome {
        Outcome::Moved { bytes: bytes.into(), path: self.path, held: false }
    }

    fn freed(&mut self, id: u64) {
        let Some(flight) = self.flights.remove(&id).filter(|flight| flight.held) else { return };
        match (flight.bounce, flight.job.work) {
            (Some((slot, _)), _) => self.bounces[slot].1 = false,
            (None, Work::Read(span) | Work::Write(span)) => {
                self.events.push_back(DeviceEvent::Released(span.block))
            }
            (None, Work::Flush) => {}
        }
    }
}

/// Returns the failure that the completion will report.
fn failure(error: NvmeError, read: bool) -> Failure {
    let failed = if read { Status::ReadError } else { Status::WriteError };
    Failure::new(match error {
        NvmeError::Status(status) if status.is(nvme::Status::LBA_OUT_OF_RANGE) => Status::OutOfRange,
        NvmeError::Status(status) if status.is(nvme::Status::CAPACITY_EXCEEDED) => Status::CapacityExceeded,
        NvmeError::Status(status) if status.is(nvme::Status::ACCESS_DENIED) => Status::AccessDenied,
        NvmeError::Status(_) => failed,
        NvmeError::Aborted => Status::Cancelled,
        NvmeError::TimedOut | NvmeError::Reset(_) => Status::DeviceReset,
    })
}
