//! The host: takes requests, turns them into commands, and answers each once.

use super::config::{Config, ConfigError, Layout, SglUse};
use super::data::{self, ListPlace, Unfit};
use super::error::{NvmeError, ResetCause, SubmitError};
use super::identify::{Controller, Namespace};
use super::queue::{Queue, Reaped};
use super::recover::Recovery;
use super::start::{Admin, Bringup, Stage};
use crate::bus::{Bus, ReadDone, Region, Window};
use dcs_engine::Nanos;
use dcs_nvme::command::{Blocks, Command, DataPointer, Datasets, nvm};
use dcs_nvme::identify::Sgl;
use dcs_nvme::{Completion, Status};
use std::collections::VecDeque;

/// A request to a controller. Data may be in any pieces, anywhere on the bus that the controller may access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Read logical blocks.
    Read {
        /// First logical block.
        lba: u64,
        /// Places to read into: whole logical blocks in all.
        data: &'a [Window],
    },
    /// Write logical blocks.
    Write {
        /// First logical block.
        lba: u64,
        /// Places to write from: whole logical blocks in all.
        data: &'a [Window],
        /// Set for force unit access: done only when the blocks are on the medium.
        durable: bool,
    },
    /// Bring everything that was written and completed to the medium.
    Flush,
    /// Deallocate blocks: a hint, for a controller that [takes it](super::identify::Controller::deallocates).
    Deallocate {
        /// Place of one range ([`Range`](dcs_nvme::command::Range)) that the owner has stored.
        ranges: Window,
    },
}

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The owner's name for it.
    pub id: u64,
    /// Result of the command.
    pub result: Result<(), NvmeError>,
    /// Owner of the data's memory now.
    pub memory: Memory,
}

/// The owner of a finished command's data memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The owner of the data: the controller no longer accesses it.
    Quiet,
    /// The controller still, until [`Nvme::freed`] names the command.
    Held,
}

/// The state of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not started.
    Off,
    /// Starting the controller, for the first time or after a reset.
    Starting,
    /// Taking requests.
    Ready,
    /// Given up. [`Nvme::reset`] tries again.
    Failed(ResetCause),
}

/// Counters since the host was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands given to the controller.
    pub submitted: u64,
    /// Commands that ended with a completion.
    pub completed: u64,
    /// Completions that match no outstanding command: unknown, repeated, or late.
    pub unknown: u64,
    /// Commands that took too long.
    pub timeouts: u64,
    /// Abort commands sent.
    pub aborts: u64,
    /// Resets, not counting the first start.
    pub resets: u64,
    /// Doorbell writes, to the tail of a submission queue and the head of a completion queue.
    pub doorbells: u64,
}

/// An I/O command that is outstanding.
#[derive(Debug)]
pub(super) struct Io {
    pub id: u64,
    pub deadline: Nanos,
    /// Set once its time limit has passed.
    pub late: bool,
    /// Reason for aborting it, if it is to be aborted.
    pub ending: Option<NvmeError>,
}

/// An NVMe host; see the [module](super).
#[derive(Debug)]
pub struct Nvme {
    pub(super) config: Config,
    pub(super) region: Region,
    pub(super) stage: Stage,
    pub(super) bringup: Bringup,
    pub(super) recovery: Recovery,
    pub(super) admin: Option<Queue<Admin>>,
    pub(super) io: Vec<Queue<Io>>,
    pub(super) layout: Layout,
    pub(super) window: Window,
    pub(super) page_shift: u32,
    pub(super) controller: Option<Controller>,
    pub(super) namespace: Option<Namespace>,
    pub(super) finished: VecDeque<Finished>,
    pub(super) freed: VecDeque<u64>,
    pub(super) counters: Counters,
    turn: usize,
    list: Vec<u8>,
}

impl Nvme {
    /// Makes a host with its queues and lists in `region`. The controller may read and write that from now on. It is free again when the
    /// host is dropped after a reset that led to [`State::Off`], or after [`Nvme::on_reset`].
    ///
    /// # Errors
    ///
    /// [`ConfigError`](super::ConfigError) if the settings make no sense, or the region is too small.
    pub fn new(config: Config, region: Region) -> Result<Nvme, ConfigError> {
        config.check()?;
        let (length, needed) = (region.length(), config.memory());
        if length < needed {
            return Err(ConfigError::Region { length, needed });
        }
        Ok(Nvme {
            layout: Layout::new(0, config.queues, config.depth, config.page, config.max_transfer),
            config,
            region,
            stage: Stage::Off,
            bringup: Bringup::new(&config),
            recovery: Recovery::default(),
            admin: None,
            io: Vec::new(),
            window: Window { address: 0, length: 0 },
            page_shift: 12,
            controller: None,
            namespace: None,
            finished: VecDeque::new(),
            freed: VecDeque::new(),
            counters: Counters::default(),
            turn: 0,
            list: Vec::new(),
        })
    }

    /// Drives the controller at `registers` from now on, and its namespace `namespace`, which is not started yet. Returns false if the
    /// previous one may still reach the memory of its commands, or if `registers` can't be a controller's.
    pub fn relocate(&mut self, registers: Window, namespace: Option<u32>) -> bool {
        let config = Config { registers, namespace, ..self.config };
        let rests = matches!(self.stage, Stage::Off | Stage::Failed(_))
            && self.recovery.held.is_empty()
            && !self.recovery.is_lent;
        if !rests || config.check().is_err() {
            return false;
        }
        self.config = config;
        self.bringup.registers.relocate(registers);
        (self.controller, self.namespace, self.stage) = (None, None, Stage::Off);
        true
    }

    /// Returns its state.
    pub fn state(&self) -> State {
        match self.stage {
            Stage::Off => State::Off,
            Stage::Ready => State::Ready,
            Stage::Failed(failure) => State::Failed(failure),
            _ => State::Starting,
        }
    }

    /// Returns the namespace, once it was identified.
    pub fn namespace(&self) -> Option<&Namespace> {
        self.namespace.as_ref()
    }

    /// Returns the controller's identify data.
    pub fn controller(&self) -> Option<&Controller> {
        self.controller.as_ref()
    }

    /// Returns true if the I/O submission queues are in the controller memory buffer; see [`Config::cmb`].
    pub fn queues_in_cmb(&self) -> bool {
        self.bringup.cmb.is_some()
    }

    /// Returns the counters since the host was made.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the number of commands that have not ended. While there are any, keep calling [`Nvme::poll`].
    pub fn outstanding(&self) -> usize {
        self.io.iter().map(|queue| queue.slots.used()).sum()
    }

    /// Takes a request under the name `id`, which [`Finished::id`] returns. The controller learns of it by the next [`Nvme::ring`] or
    /// [`Nvme::poll`].
    ///
    /// # Errors
    ///
    /// [`SubmitError`]; nothing was done then.
    pub fn submit(
        &mut self,
        bus: &mut dyn Bus,
        now: Nanos,
        id: u64,
        request: &Request<'_>,
    ) -> Result<(), SubmitError> {
        let namespace = self.namespace.filter(|_| self.stage == Stage::Ready).ok_or(SubmitError::NotReady)?;
        let mut entry = Command { namespace: namespace.number, ..Command::default() };
        let data: &[Window] = match *request {
            Request::Read { lba, data } => {
                entry.opcode = nvm::READ;
                entry.words = blocks(&namespace, lba, data)?.words();
                data
            }
            Request::Write { lba, data, durable } => {
                entry.opcode = nvm::WRITE;
                entry.words = Blocks { durable, ..blocks(&namespace, lba, data)? }.words();
                data
            }
            Request::Flush => {
                entry.opcode = nvm::FLUSH;
                &[]
            }
            Request::Deallocate { ref ranges } => {
                entry.opcode = nvm::DATASET_MANAGEMENT;
                entry.words = Datasets { ranges: 1, deallocate: true }.words();
                core::slice::from_ref(ranges)
            }
        };
        let index = self.next_queue().ok_or(SubmitError::Full)?;
        if !data.is_empty() {
            entry.data = self.describe(bus, index, data)?;
        }
        let deadline = now.saturating_add(self.config.timeout);
        if self.io[index].push(bus, Io { id, deadline, late: false, ending: None }, entry).is_none() {
            return Err(SubmitError::Full);
        }
        self.recovery.watch(deadline);
        self.counters.submitted += 1;
        Ok(())
    }

    /// Returns the next queue in turn that has room.
    fn next_queue(&mut self) -> Option<usize> {
        let count = self.io.len();
        let index = (0..count).map(|i| (self.turn + i) % count).find(|i| self.io[*i].has_room())?;
        self.turn = (index + 1) % count;
        Some(index)
    }

    fn describe(
        &mut self,
        bus: &mut dyn Bus,
        index: usize,
        data: &[Window],
    ) -> Result<DataPointer, SubmitError> {
        let (slot, _) = self.io[index].slots.next().ok_or(SubmitError::Full)?;
        let offset = self.layout.list(index as u16, slot);
        let place = ListPlace { address: self.window.address + offset, length: self.layout.list };
        let has = self.controller.map_or(Sgl::No, |controller| controller.sgl);
        let (sgl, preferred) = match self.config.sgl {
            SglUse::Never => (Sgl::No, false),
            SglUse::WhereNeeded => (has, false),
            SglUse::Preferred => (has, true),
        };
        let pointer = data::describe(data, self.page_shift, (sgl, preferred), place, &mut self.list);
        let pointer = pointer.map_err(|unfit| match unfit {
            Unfit::Misaligned => SubmitError::Misaligned,
            Unfit::Pieces => SubmitError::Pieces,
        })?;
        if !self.list.is_empty() {
            bus.store(offset, &self.list);
        }
        Ok(pointer)
    }

    /// Rings the doorbells, at most one per queue, for everything submitted and reaped since.
    pub fn ring(&mut self, bus: &mut dyn Bus) {
        if self.stage.has_admin() {
            self.counters.doorbells += self.admin.as_mut().map_or(0, |queue| queue.ring(bus));
        }
        if self.stage == Stage::Ready {
            self.counters.doorbells += self.io.iter_mut().map(|queue| queue.ring(bus)).sum::<u64>();
        }
    }

    /// Reaps completions, does what is due, rings.
    pub fn poll(&mut self, bus: &mut dyn Bus, now: Nanos) {
        if self.stage.has_admin() {
            self.reap_admin(bus, now);
        }
        if self.stage == Stage::Ready {
            self.reap_io(bus, now);
        }
        self.check_time(bus, now);
        self.ring(bus);
    }

    /// Processes the answer to one of this host's register reads. Others, and late ones, are ignored.
    pub fn read_done(&mut self, bus: &mut dyn Bus, now: Nanos, done: ReadDone) {
        if let Some(answer) = self.bringup.registers.answer(&done) {
            self.register(bus, now, answer);
            self.ring(bus);
        }
    }

    /// Returns the latest time for the next call of [`Nvme::poll`].
    pub fn deadline(&self) -> Option<Nanos> {
        match self.stage {
            Stage::Off | Stage::Failed(_) => None,
            _ => [self.bringup.deadline(), self.recovery.deadline(), self.admin_deadline()]
                .into_iter()
                .flatten()
                .min(),
        }
    }

    /// Returns the next command that ended, in the order in which they did. Each one that was taken ends once.
    pub fn finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    /// Returns the next command whose memory was [`Memory::Held`] and is its owner's again.
    pub fn freed(&mut self) -> Option<u64> {
        self.freed.pop_front()
    }

    /// Reaps at most one round of the ring per call, so that a controller that writes without end doesn't hold the caller up.
    fn reap_io(&mut self, bus: &mut dyn Bus, now: Nanos) {
        for index in 0..self.io.len() {
            for _ in 0..self.io[index].entries() {
                match self.io[index].reap(bus) {
                    None => break,
                    Some(Reaped::Done(io, completion)) => self.retire(&io, completion),
                    Some(Reaped::Unknown) => self.counters.unknown += 1,
                    Some(Reaped::Impossible) => return self.fail(bus, now, ResetCause::Impossible),
                }
            }
            if self.io[index].is_stuck() {
                return self.fail(bus, now, ResetCause::Impossible);
            }
        }
    }

    fn retire(&mut self, io: &Io, completion: Completion) {
        let status = completion.status;
        let result = match io.ending {
            _ if status.is_success() => Ok(()),
            Some(error) if status.is(Status::ABORT_REQUESTED) => Err(error),
            _ => Err(NvmeError::Status(status)),
        };
        if result.is_ok() {
            self.recovery.succeeded();
        }
        self.counters.completed += 1;
        self.finished.push_back(Finished { id: io.id, result, memory: Memory::Quiet });
    }
}

/// Checks and returns the blocks of a read or write.
fn blocks(namespace: &Namespace, first: u64, data: &[Window]) -> Result<Blocks, SubmitError> {
    let max = namespace.max_transfer;
    let length = data.iter().try_fold(0u64, |sum, piece| sum.checked_add(piece.length));
    let length = length.filter(|length| *length <= max).ok_or(SubmitError::TooLong { max })?;
    let size = u64::from(namespace.block_size);
    if length == 0 {
        return Err(SubmitError::Empty);
    }
    if length % size != 0 {
        return Err(SubmitError::Misaligned);
    }
    let end = first.checked_add(length / size);
    if end.is_none_or(|end| end > namespace.blocks) {
        return Err(SubmitError::OutOfRange { blocks: namespace.blocks });
    }
    Ok(Blocks { first, count: (length / size) as u32, durable: false })
}
