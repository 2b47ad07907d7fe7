//! An NVMe controller as its guest sees it: a state machine.
//!
//! Its owner passes on the guest's register accesses, calls [`Controller::attend`], [`Controller::step`],
//! [`Controller::operate`] and [`Controller::settle`] in turn, and brings the storage's answers;
//! [`Drives`](crate::drives::Drives) does that for several controllers. Each call does a bounded amount of
//! work.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dcs_nvme::Status;
use dcs_nvme::bytes::u16_at;
use dcs_nvme::command::{self, Command};
use dcs_nvme::register::{ControllerStatus, Shutdown};

use crate::coalescing::Coalescing;
use crate::config::{Config, ConfigError};
use crate::events::Events;
use crate::features::Features;
use crate::host::HostPort;
use crate::latency::Clocked;
use crate::limits::{Limiter, Limits};
use crate::logs::Logs;
use crate::namespace::Namespace;
use crate::near::{Batch, Builder, NearStorage, Operated};
use crate::queue::{CompletionQueue, Shadow, SubmissionQueue, in_second_half};
use crate::registers::Registers;
use crate::shares::Shares;
use crate::slots::{Buffers, Slots, Work};
use crate::storage::Storage;
use crate::timers::Timers;
use crate::waste::Waste;

/// Time before shadow doorbells that could not be armed are read again, in nanoseconds.
const LOOK_AGAIN: u64 = 1_000_000;

/// The cost of a command in addition to its bytes.
pub(crate) const COMMAND_COST: u64 = 4096;

/// Counters of a controller. A command that failed counts as an error only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads and compares.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes, and other commands without data.
    pub flushes: u64,
    /// Near-storage transfers.
    pub near: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Commands that failed.
    pub errors: u64,
    /// Commands that failed because of the medium.
    pub media_errors: u64,
    /// Interrupts raised.
    pub interrupts: u64,
}

/// An NVMe controller.
pub struct Controller {
    pub(crate) config: Config,
    pub(crate) registers: Registers,
    /// By queue number; 0 is the admin queue.
    pub(crate) submissions: Vec<Option<SubmissionQueue>>,
    pub(crate) completions: Vec<Option<CompletionQueue>>,
    pub(crate) shadow: Option<Shadow>,
    /// Time at which the shadow doorbells are read again without a ring: the guest could not be told to ring.
    look_again: Option<u64>,
    pub(crate) queue_shares: Shares,
    pub(crate) slots: Slots,
    pub(crate) buffers: Buffers,
    /// Commands that wait for a buffer.
    pub(crate) parked: VecDeque<u16>,
    pub(crate) namespaces: BTreeMap<u32, Namespace>,
    pub(crate) changed: BTreeSet<u32>,
    pub(crate) events: Events,
    pub(crate) features: Features,
    pub(crate) timers: Timers,
    pub(crate) logs: Logs,
    pub(crate) near: NearStorage,
    pub(crate) clocked: Clocked,
    pub(crate) limiter: Limiter,
    pub(crate) coalescing: Coalescing,
    /// A reset waits for the storage's answers.
    resetting: bool,
    pub(crate) shutdown_wanted: bool,
    /// List entries and descriptors read for the data of the command that begins.
    pub(crate) walked: u64,
    /// Bytes read and written since the last [`Controller::take_unpaid`] that no command was charged for when
    /// it began.
    unpaid: u64,
    /// Some namespace is on a volume with a volatile cache.
    pub(crate) has_cache: bool,
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Controller({}, {} under way)", self.config.serial, self.slots.used())
    }
}

impl Controller {
    /// Makes a controller without namespaces, as after power-on.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is invalid.
    pub fn new(config: Config) -> Result<Controller, ConfigError> {
        config.check()?;
        let pairs = usize::from(config.queues) + 1;
        Ok(Controller {
            registers: Registers::new(config.entries, config.programs),
            submissions: (0..pairs).map(|_| None).collect(),
            completions: (0..pairs).map(|_| None).collect(),
            shadow: None,
            look_again: None,
            queue_shares: Shares::default(),
            slots: Slots::new(config.commands),
            buffers: Buffers::new(config.buffers, 1 << config.transfer_shift),
            parked: VecDeque::with_capacity(config.commands.into()),
            namespaces: BTreeMap::new(),
            changed: BTreeSet::new(),
            events: Events::default(),
            features: Features::new(config.queues),
            timers: Timers::default(),
            logs: Logs::default(),
            near: NearStorage::new(config.memory, config.operator_memory),
            clocked: Clocked::new(config.commands.into()),
            limiter: Limiter::default(),
            coalescing: Coalescing::default(),
            resetting: false,
            shutdown_wanted: false,
            walked: 0,
            unpaid: 0,
            has_cache: false,
            config,
        })
    }

    /// Returns the number of interrupt vectors that it raises: 0 is the admin queue's, and each I/O queue
    /// pair has one.
    pub fn vectors(&self) -> u16 {
        self.config.queues + 1
    }

    /// Returns its counters since it was made.
    pub fn counters(&self) -> Counters {
        self.logs.counters
    }

    /// Returns its limits.
    pub fn limits(&self) -> Limits {
        self.limiter.limits()
    }

    /// Changes its limits.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limiter.set(limits);
    }

    /// Lets the guest load programs of its own, of which `builder` makes operators. Operators should have
    /// slots then: without them the caller of [`Controller::operate`] would make the modules itself.
    pub fn set_builder(&mut self, builder: Builder) {
        self.near.set_builder(builder);
    }

    /// Returns the number of programs that the guest has loaded, and the bytes of all, including those that
    /// are being loaded.
    pub fn loaded(&self) -> (usize, u64) {
        self.near.loaded()
    }

    /// Returns the number of slots for commands in use, of [`Config::commands`].
    pub fn slots_used(&self) -> usize {
        self.slots.used()
    }

    /// Returns the time, by the port's clock, at which something is due though neither the guest nor the
    /// storage does anything: the guest's keep alive expires, pending completions are due, or a limit lets
    /// the next command begin.
    pub fn deadline(&self) -> Option<u64> {
        if !self.is_running() {
            return None;
        }
        let held_back = !self.limiter.is_free(self.slots.now)
            && (self.near.waiting() > 0
                || self.submissions.iter().skip(1).flatten().any(|queue| queue.has_entries()));
        let limit = held_back.then(|| self.limiter.due());
        let coalescing = self.coalescing.deadline(self.features.coalescing);
        [self.timers.deadline(), coalescing, limit, self.look_again].into_iter().flatten().min()
    }

    /// Returns its configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the number of commands that the storage has.
    pub fn outstanding(&self) -> usize {
        self.slots.used() - self.parked.len() - self.near.waiting() - self.near.away()
    }

    /// Returns true if it takes commands.
    pub fn is_running(&self) -> bool {
        let status = self.registers.csts;
        status.ready && !status.fatal && !self.resetting && status.shutdown == Shutdown::None
    }

    /// Resets the function: all registers are as after power-on. Commands that the storage still has are not
    /// completed; the controller becomes ready again when all have come back. (`HostPort` refuses access to
    /// memory that the guest has unmapped.)
    pub fn reset(&mut self) {
        self.registers.reset();
        self.begin_reset();
    }

    /// Deletes the queues since CC.EN is zero. CSTS.RDY changes when the storage has answered: until then it
    /// may write to the guest's memory.
    pub(crate) fn begin_reset(&mut self) {
        self.submissions.iter_mut().for_each(|queue| *queue = None);
        self.completions.iter_mut().for_each(|queue| *queue = None);
        (self.shadow, self.look_again) = (None, None);
        (self.queue_shares, self.shutdown_wanted) = (Shares::default(), false);
        (self.events, self.features) = (Events::default(), Features::new(self.config.queues));
        (self.timers, self.coalescing) = (Timers::default(), Coalescing::default());
        self.changed.clear();
        while let Some(index) = self.parked.pop_front() {
            self.slots.give(index);
        }
        while let Some(index) = self.near.take_waiting() {
            self.release(index);
        }
        self.near.reset(self.resetting);
        self.slots.in_use().for_each(|slot| slot.stale = true);
        self.resetting = true;
        self.end_reset();
    }

    /// Ends the reset if the storage has answered and memory from before is freed.
    pub(crate) fn end_reset(&mut self) {
        if self.resetting && self.slots.used() == 0 && self.near.is_clean() {
            self.resetting = false;
            self.registers.csts = ControllerStatus::default();
            self.try_enable();
        }
    }

    /// Becomes ready if CC allows it and no reset is in progress.
    pub(crate) fn try_enable(&mut self) {
        let wanted = self.registers.configuration();
        if !wanted.enabled || self.resetting {
            return;
        }
        let Some(queues) = self.registers.admin_queues() else { return self.fail() };
        self.registers.enabled_by = wanted;
        let most = usize::from(self.config.commands) + 16;
        self.submissions[0] = Some(SubmissionQueue::new(queues.submissions, 0));
        self.completions[0] = Some(CompletionQueue::new(queues.completions, Some(0), most));
        self.registers.csts.ready = true;
    }

    /// Fails the controller (CSTS.CFS): only a reset helps.
    pub(crate) fn fail(&mut self) {
        self.registers.csts.fatal = true;
    }

    /// Returns true if [`Controller::step`] has something to do, as far as the doorbells show.
    pub fn is_ready(&self) -> bool {
        self.is_running() && (0..self.submissions.len()).any(|queue| self.queue_is_ready(queue))
    }

    /// Returns true if [`Controller::step`] has an admin command to begin.
    pub fn is_admin_ready(&self) -> bool {
        self.is_running() && self.queue_is_ready(0)
    }

    /// Returns true if the next command of a queue can be taken: there is one, and room for its completion.
    fn queue_is_ready(&self, queue: usize) -> bool {
        let Some(Some(submissions)) = self.submissions.get(queue) else { return false };
        let completions = self.completions.get(usize::from(submissions.completion_queue));
        let room = completions.and_then(Option::as_ref).is_some_and(|held| held.waiting.is_empty());
        // Admin commands need no slot, or report that none is free: one may abort the commands that have the
        // slots.
        let free = queue == 0
            || (self.slots.has_free() && self.parked.is_empty() && self.limiter.is_free(self.slots.now));
        submissions.has_entries() && room && free
    }

    /// Does the work that needs no new command: shadow doorbells, completions that wait for room, commands
    /// that wait for a buffer, events, a shutdown. Returns true if it did anything.
    pub fn attend(&mut self, drive: u32, port: &mut dyn HostPort, storage: &mut dyn Storage) -> bool {
        let mut busy = false;
        if self.resetting {
            self.end_reset();
            busy = !self.resetting;
        }
        if self.limiter.is_on() {
            self.at(port.uptime());
        }
        if self.is_running() && self.timers.is_over(|| port.uptime()) {
            self.fail();
        }
        if self.is_running() {
            busy |= self.look_at_shadows(port);
            busy |= self.drain(port);
            while let Some((cid, result)) = self.waiting_event() {
                busy = true;
                self.end(port, 0, cid, Status::SUCCESS, result.into());
            }
        }
        if self.is_running() || self.shutdown_wanted && !self.resetting {
            busy |= self.unpark(drive, port, storage);
        }
        if self.shutdown_wanted {
            // The guest does not wait for these commands any more: their slots are for the flush.
            while let Some(index) = self.near.take_waiting() {
                self.release(index);
            }
        }
        if self.shutdown_wanted && !self.resetting && self.parked.is_empty() && self.slots.has_free() {
            self.shutdown_wanted = false;
            self.flush_all(drive, storage, port, Work::Shutdown, (0, 0));
            busy = true;
        }
        busy
    }

    /// Returns memory that it does not use any more, to be freed by its owner.
    pub fn waste(&mut self) -> &mut Vec<Waste> {
        self.near.waste()
    }

    /// Returns true if [`Controller::operate`] has something to do.
    pub fn operates(&mut self) -> bool {
        self.is_near_ready()
    }

    /// Does the next bounded piece of a near-storage command; `None` if no command can go on. With several
    /// controllers, call it for one at a time, and serve all plain commands in between. With `hands_over`,
    /// operators' work is not done but returned: do it and call [`Controller::take_back`].
    pub fn operate(
        &mut self,
        drive: u32,
        port: &mut dyn HostPort,
        storage: &mut dyn Storage,
        hands_over: bool,
    ) -> Option<Operated> {
        self.near_step(drive, port, storage, hands_over)
    }

    /// Returns the bytes that commands have read and written since the last call and that
    /// [`Controller::step`] did not count, since their number was unknown then.
    pub fn take_unpaid(&mut self) -> u64 {
        std::mem::take(&mut self.unpaid)
    }

    /// Charges a command for bytes that it was not charged for when it began.
    pub(crate) fn pay(&mut self, slot: u16, bytes: u64) {
        self.queue_shares.charge(self.slots.get(slot).queue.into(), bytes);
        self.unpaid += bytes;
    }

    /// Takes back work that was handed over and is done, even if the controller was reset since.
    pub fn take_back(&mut self, port: &mut dyn HostPort, batch: Batch) {
        self.near_back(port, batch);
    }

    /// Returns true while a reset waits for the storage or for slots.
    pub(crate) fn is_resetting(&self) -> bool {
        self.resetting
    }

    /// Returns the number of commands on which slots work.
    pub fn away(&self) -> usize {
        self.near.away()
    }

    /// Returns the bytes of memory that operators have reserved, of [`Config::operator_memory`].
    pub fn operator_memory(&self) -> u64 {
        self.near.operator_memory()
    }

    fn waiting_event(&mut self) -> Option<(u16, u32)> {
        let room = self.completions[0].as_ref().is_some_and(|queue| queue.waiting.is_empty());
        if room { self.events.take() } else { None }
    }

    /// Reads the shadow doorbells; returns true if there are new values. If they cannot be read,
    /// [`Controller::deadline`] says when to try again.
    fn look_at_shadows(&mut self, port: &mut dyn HostPort) -> bool {
        let Some(shadow) = self.shadow else { return false };
        let (mut busy, mut all) = (false, true);
        for queue in 1..self.submissions.len() {
            if let Some(held) = &mut self.submissions[queue]
                && let Some(tail) = shadow.load(port, 2 * queue).inspect_err(|_| all = false).ok()
                && tail != held.tail
            {
                let half = in_second_half(held.tail, held.size);
                if !held.ring(tail) {
                    // It is not read again until it is valid.
                    self.events.doorbell(true);
                    continue;
                }
                busy = true;
                if half != in_second_half(tail, held.size) {
                    let _ = shadow.quiet(port, 2 * queue, (tail, held.size));
                }
            }
            if let Some(held) = &mut self.completions[queue]
                && (!held.waiting.is_empty() || held.is_full())
                && let Some(head) = shadow.load(port, 2 * queue + 1).inspect_err(|_| all = false).ok()
                && head != held.head
            {
                // Completions that wait have room now.
                busy |= held.ring(head);
            }
        }
        if !all {
            self.look_again = Some(port.uptime() + LOOK_AGAIN);
        }
        busy
    }

    /// Asks the guest to ring the real doorbells, since there is nothing to do. Returns true if it has
    /// written a shadow doorbell meanwhile. If the guest's memory cannot be reached for now,
    /// [`Controller::deadline`] says when to try again.
    pub fn arm(&mut self, port: &mut dyn HostPort) -> bool {
        let Some(shadow) = self.shadow.filter(|_| self.is_running()) else { return false };
        let mut told = true;
        for queue in 1..self.submissions.len() {
            if let Some(held) = &mut self.submissions[queue] {
                held.armed = true;
                told &= shadow.arm(port, 2 * queue, held.tail).is_ok();
            }
            if let Some(held) = &mut self.completions[queue]
                && (!held.waiting.is_empty() || held.is_full())
            {
                held.armed = true;
                told &= shadow.arm(port, 2 * queue + 1, held.head).is_ok();
            }
        }
        self.look_again = if told { None } else { Some(port.uptime() + LOOK_AGAIN) };
        // Otherwise the guest could read the index before we wrote it, and we its doorbell before it wrote
        // that: nobody would notice the command.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.look_at_shadows(port)
    }

    /// Tells guests not to ring: the shadow doorbells are being read.
    pub fn disarm(&mut self, port: &mut dyn HostPort) {
        let Some(shadow) = self.shadow.filter(|_| self.is_running()) else { return };
        for (queue, held) in self.submissions.iter_mut().enumerate().skip(1) {
            if let Some(held) = held.as_mut().filter(|held| held.armed) {
                held.armed = false;
                let _ = shadow.quiet(port, 2 * queue, (held.tail, held.size));
            }
        }
    }

    fn drain(&mut self, port: &mut dyn HostPort) -> bool {
        let mut busy = false;
        for queue in self.completions.iter_mut().flatten() {
            if !queue.waiting.is_empty() && !queue.is_full() {
                busy = true;
                if queue.drain(port).is_err() {
                    self.registers.csts.fatal = true;
                }
            }
        }
        busy
    }

    /// Takes the next command and begins it: admin commands first, then those of the I/O queues in turn.
    /// Returns its cost in shares of the storage; `None` if there is no command.
    pub fn step(&mut self, drive: u32, port: &mut dyn HostPort, storage: &mut dyn Storage) -> Option<u64> {
        if !self.is_running() {
            return None;
        }
        if self.queue_is_ready(0) {
            let entry = self.fetch(port, 0)?;
            let command = Command::from_bytes(&entry);
            let copied = self.piece_of_program(&command);
            if self.begin_command(port, 0, &entry) {
                self.admin(drive, port, storage, &command);
            }
            self.limiter.bytes(self.slots.now, copied);
            return Some(COMMAND_COST + copied);
        }
        let mut shares = std::mem::take(&mut self.queue_shares);
        let next = shares.next(|queue| self.queue_is_ready(queue));
        let cost = next.and_then(|queue| {
            let entry = self.fetch(port, queue)?;
            let cost = match self.begin_command(port, queue as u16, &entry) {
                true => self.io(drive, port, storage, queue as u16, &entry),
                false => COMMAND_COST,
            };
            shares.charge(queue, cost);
            Some(cost)
        });
        // Commands of I/O queues do not create or delete queues.
        self.queue_shares = shares;
        cost
    }

    /// Registers a command's identifier. Returns false if another command has it: then the command has ended.
    fn begin_command(&mut self, port: &mut dyn HostPort, queue: u16, entry: &[u8; command::SIZE]) -> bool {
        let cid = u16_at(entry, 2);
        let free = self.submissions[usize::from(queue)].as_mut().is_some_and(|held| held.begin(cid));
        if !free {
            self.end_conflict(port, queue, cid);
        }
        free
    }

    /// Copies the next entry of a queue. If the queue cannot be read the controller fails: only a reset
    /// helps.
    fn fetch(&mut self, port: &mut dyn HostPort, queue: usize) -> Option<[u8; command::SIZE]> {
        let entry = self.submissions[queue].as_mut()?.fetch(port);
        if entry.is_err() {
            self.fail();
        }
        entry.ok()
    }
}
