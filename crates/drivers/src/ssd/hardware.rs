//! An SSD whose reads, writes and flushes something else does, in the place of [`Ssd`](super::Ssd)'s own way: hardware, over the queue pair
//! that the NVMe host has made and lends it.
//!
//! Software does the rest for it: Aborts on the admin queue, and the reset where the controller says that it is
//! broken. Its operations fail then at once, but it has them, and with them their blocks, until the SSD has stopped.

use super::{Job, LOGICAL_BLOCK_MAX, Work};
use crate::bus::{Bus, Region};
use crate::nvme::{Nvme, QueuePair};
use dcs_abi::status::Status;
use dcs_engine::{DeviceEvent, Failure, Nanos, OperationId, Outcome};
use std::collections::{BTreeMap, VecDeque};

/// A controller of an SSD: it has a queue pair, and makes commands of jobs.
pub trait Controller: core::fmt::Debug + Send {
    /// Returns how many entries both of its rings have.
    fn entries(&self) -> u16;

    /// Takes the queue pair of an SSD that has been started. Its rings are empty.
    fn enable(&mut self, bus: &mut dyn Bus, now: Nanos, lent: &Lent);

    /// Gives the queue pair back: the SSD has stopped, and reaches no memory. What it had fails before this returns.
    fn disable(&mut self, bus: &mut dyn Bus, now: Nanos);

    /// Takes a job, whose memory is a block's; returns false if it has no room. It begins with the next [`Controller::poll`].
    fn submit(&mut self, bus: &mut dyn Bus, now: Nanos, job: &Job) -> bool;

    /// Aborts an operation that it has, if that is still possible.
    fn abort(&mut self, bus: &mut dyn Bus, now: Nanos, operation: OperationId);

    /// Does everything that is due.
    fn poll(&mut self, bus: &mut dyn Bus, now: Nanos);

    /// Returns its next event.
    fn next_event(&mut self) -> Option<ControllerEvent>;

    /// Returns true if it can't go on before its SSD is reset.
    fn is_broken(&self) -> bool;

    /// Returns the latest time for the next call of [`Controller::poll`].
    fn deadline(&self) -> Option<Nanos>;
}

/// An event of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerEvent {
    /// An operation has ended, and moved so many bytes if it succeeded.
    Ended(OperationId, Result<u32, Failure>),
    /// An Abort of the command with this identifier is to be sent.
    Abort(u16),
}

/// The queue pair and the memory that a controller is lent. Offsets are in the card's own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent {
    /// The queue pair.
    pub pair: QueuePair,
    /// Offset of the first block.
    pub blocks: u64,
    /// Offset of a page for what is not whole logical blocks.
    pub page: u64,
}

/// A job that the controller has.
#[derive(Clone, Copy, Debug)]
struct Flight {
    job: Job,
    aborted: bool,
    /// Set if the engine knows that it has failed.
    held: bool,
}

/// A controller and its jobs.
#[derive(Debug)]
pub(super) struct Hardware {
    controller: Box<dyn Controller>,
    blocks: u64,
    page: Region,
    flights: BTreeMap<OperationId, Flight>,
    is_enabled: bool,
    /// Set if it was given something since it was polled.
    is_stirred: bool,
}

impl Hardware {
    pub fn new(controller: Box<dyn Controller>, blocks: u64, page: Region) -> Hardware {
        let (flights, is_enabled, is_stirred) = (BTreeMap::new(), false, false);
        Hardware { controller, blocks, page, flights, is_enabled, is_stirred }
    }

    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.flights.values().map(|flight| &flight.job)
    }

    pub fn flights(&self) -> usize {
        self.flights.len()
    }

    pub fn is_stirred(&self) -> bool {
        self.is_stirred
    }

    /// Returns the latest time for the next poll. While the SSD is being stopped that is the host's alone.
    pub fn deadline(&self, host: &Nvme) -> Option<Nanos> {
        self.controller.deadline().filter(|_| self.is_enabled && host.queue_pair().is_some())
    }

    /// Gives it a job; returns false if it has no room now.
    pub fn give(&mut self, bus: &mut dyn Bus, now: Nanos, job: Job) -> bool {
        let taken = self.is_enabled && self.controller.submit(bus, now, &job);
        if taken {
            self.flights.insert(job.operation, Flight { job, aborted: false, held: false });
            self.is_stirred = true;
        }
        taken
    }

    pub fn abort(&mut self, bus: &mut dyn Bus, now: Nanos, operation: OperationId) {
        if let Some(flight) = self.flights.get_mut(&operation).filter(|flight| !flight.held) {
            flight.aborted = true;
            self.controller.abort(bus, now, operation);
            self.is_stirred = true;
        }
    }

    /// Follows what the host does with the SSD, and does everything that is due.
    pub fn poll(
        &mut self,
        host: &mut Nvme,
        bus: &mut dyn Bus,
        now: Nanos,
        path: u32,
        events: &mut VecDeque<DeviceEvent>,
    ) {
        self.is_stirred = false;
        match host.queue_pair() {
            _ if self.is_enabled && !host.is_lent() => {
                self.controller.disable(bus, now);
                self.is_enabled = false;
            }
            Some(pair) if pair.block_size <= LOGICAL_BLOCK_MAX => {
                if !self.is_enabled {
                    let lent = Lent { pair, blocks: self.blocks, page: self.page.offset() };
                    self.controller.enable(bus, now, &lent);
                    self.is_enabled = true;
                }
                self.controller.poll(bus, now);
            }
            // It stands still while the SSD is being stopped.
            _ => self.fail_all(events),
        }
        while let Some(event) = self.controller.next_event() {
            match event {
                ControllerEvent::Abort(cid) => host.abort_lent(bus, now, cid),
                ControllerEvent::Ended(operation, result) => {
                    self.ended(host, operation, result, path, events)
                }
            }
        }
        if self.is_enabled && host.queue_pair().is_some() && self.controller.is_broken() {
            host.lent_is_broken(bus, now);
            self.fail_all(events);
        }
    }

    fn ended(
        &mut self,
        host: &mut Nvme,
        operation: OperationId,
        result: Result<u32, Failure>,
        path: u32,
        events: &mut VecDeque<DeviceEvent>,
    ) {
        let Some(Flight { job, held, .. }) = self.flights.remove(&operation) else { return };
        let outcome = match (job.work, result) {
            (Work::Read(span) | Work::Write(span), _) if held => {
                return events.push_back(DeviceEvent::Released(span.block));
            }
            (Work::Flush, _) if held => return,
            (Work::Flush, Ok(_)) => Outcome::Flushed,
            (_, Ok(bytes)) => Outcome::Moved { bytes: bytes.into(), path, held: false },
            (_, Err(failure)) => Outcome::Failed(failure),
        };
        if result.is_ok() {
            host.lent_has_succeeded();
        }
        events.push_back(DeviceEvent::Done(operation, outcome));
    }

    /// Fails all that it has, which it still has: the SSD may still reach its memory.
    fn fail_all(&mut self, events: &mut VecDeque<DeviceEvent>) {
        for (operation, flight) in self.flights.iter_mut().filter(|(_, flight)| !flight.held) {
            flight.held = true;
            let failure = Failure::new(if flight.aborted { Status::Cancelled } else { Status::DeviceReset });
            let outcome = match flight.job.work {
                Work::Flush => Outcome::Failed(failure),
                Work::Read(_) | Work::Write(_) => Outcome::FailedHeld(failure),
            };
            events.push_back(DeviceEvent::Done(*operation, outcome));
        }
    }
}
