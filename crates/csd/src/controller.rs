//! A function as its guest sees it: an NVMe controller, as a state machine.
//!
//! Its owner passes on what the guest does to the registers, calls [`Controller::attend`],
//! [`Controller::step`], [`Controller::operate`] and [`Controller::settle`] in turn, and brings the storage's answers;
//! [`Drives`](crate::drives::Drives) does all that for several. Each call does a bounded number of things.

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
use crate::queue::{CompletionQueue, Shadow, SubmissionQueue, after, in_second_half};
use crate::registers::Registers;
use crate::shares::Shares;
use crate::slots::{Buffers, Slots, Work};
use crate::storage::Storage;
use crate::timers::Timers;
use crate::waste::Waste;

/// How long shadow doorbells are not looked at that could not be armed, in nanoseconds.
const LOOK_AGAIN: u64 = 1_000_000;

/// The cost of a command beside its bytes.
pub(crate) const COMMAND_COST: u64 = 4096;

/// Counters of a controller. Commands that failed are errors, and nothing else.
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
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
    /// Commands that failed.
    pub errors: u64,
    /// Those of them that the medium failed.
    pub media_errors: u64,
    /// Interrupts that were raised.
    pub interrupts: u64,
}

/// An NVMe controller.
pub struct Controller {
    pub(crate) config: Config,
    pub(crate) registers: Registers,
    /// By number; the admin queues are 0.
    pub(crate) submissions: Vec<Option<SubmissionQueue>>,
    pub(crate) completions: Vec<Option<CompletionQueue>>,
    pub(crate) shadow: Option<Shadow>,
    /// When the shadow doorbells are looked at again though nobody rings: the guest could not be told to.
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
    /// A reset waits until the storage has answered.
    resetting: bool,
    pub(crate) shutdown_wanted: bool,
    pub(crate) interrupts: u64,
    /// Entries and descriptors of the data of the command that begins.
    pub(crate) walked: u64,
    /// Bytes that were read and written since somebody asked, and that no command was charged for when it began.
    unpaid: u64,
    /// Namespaces lie on volumes with a volatile cache.
    pub(crate) has_cache: bool,
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Controller({}, {} under way)", self.config.serial, self.slots.used())
    }
}

impl Controller {
    /// A controller without namespaces, as after power-on.
    ///
    /// # Errors
    ///
    /// Where there can be none of this configuration.
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
            interrupts: 0,
            walked: 0,
            unpaid: 0,
            has_cache: false,
            config,
        })
    }

    /// Interrupt vectors that it raises: 0 for the admin queue, and one for each I/O queue pair.
    pub fn vectors(&self) -> u16 {
        self.config.queues + 1
    }

    /// Its counters since it was made.
    pub fn counters(&self) -> Counters {
        Counters {
            reads: self.logs.reads,
            writes: self.logs.writes,
            flushes: self.logs.flushes,
            near: self.logs.near,
            bytes_read: self.logs.bytes_read,
            bytes_written: self.logs.bytes_written,
            errors: self.logs.errors(),
            media_errors: self.logs.media_errors,
            interrupts: self.interrupts,
        }
    }

    /// Its limits.
    pub fn limits(&self) -> Limits {
        self.limiter.limits()
    }

    /// Other limits from now on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limiter.set(limits);
    }

    /// Lets the guest load programs of its own, of which `builder` makes operators. Slots should do operators' work
    /// then: whoever drives the controller without would make them itself.
    pub fn set_builder(&mut self, builder: Builder) {
        self.near.set_builder(builder);
    }

    /// The number of programs that the guest has loaded, and the bytes of all, with those that are on their way.
    pub fn loaded(&self) -> (usize, u64) {
        self.near.loaded()
    }

    /// Slots of commands that are used. [`Config::commands`] says how many there are.
    pub fn slots_used(&self) -> usize {
        self.slots.used()
    }

    /// When something is to be done though neither the guest nor the storage says anything, by the port's
    /// clock: the guest's keep alive runs out, completions have waited long enough for others, a limit lets
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

    /// Its configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Commands that the storage has.
    pub fn outstanding(&self) -> usize {
        self.slots.used() - self.parked.len() - self.near.waiting() - self.near.away()
    }

    /// It takes commands.
    pub fn is_running(&self) -> bool {
        let status = self.registers.csts;
        status.ready && !status.fatal && !self.resetting && status.shutdown == Shutdown::None
    }

    /// A reset of the function: all registers are as after power-on. What the storage still has is not
    /// answered; until it is back, the controller does not become ready again. (`HostPort` refuses what the
    /// guest does not want to be reached any more.)
    pub fn reset(&mut self) {
        self.registers.reset();
        self.begin_reset();
    }

    /// CC.EN is zero: deletes the queues. CSTS.RDY follows when the storage has answered: until then it may
    /// write to the guest's memory.
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

    /// The reset is through, if the storage has answered and the memory of before is given back.
    pub(crate) fn end_reset(&mut self) {
        if self.resetting && self.slots.used() == 0 && self.near.is_clean() {
            self.resetting = false;
            self.registers.csts = ControllerStatus::default();
            self.try_enable();
        }
    }

    /// Becomes ready, if CC says so and no reset is under way.
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

    /// Only a reset helps now: CSTS.CFS.
    pub(crate) fn fail(&mut self) {
        self.registers.csts.fatal = true;
    }

    /// True if [`Controller::step`] has something to do, as far as doorbells say.
    pub fn is_ready(&self) -> bool {
        self.is_running() && (0..self.submissions.len()).any(|queue| self.queue_is_ready(queue))
    }

    /// Returns true if [`Controller::step`] has an admin command to begin.
    pub fn is_admin_ready(&self) -> bool {
        self.is_running() && self.queue_is_ready(0)
    }

    /// True if the next command of a queue can be taken: there is one, and room for its end.
    fn queue_is_ready(&self, queue: usize) -> bool {
        let Some(Some(submissions)) = self.submissions.get(queue) else { return false };
        let completions = self.completions.get(usize::from(submissions.completion_queue));
        let room = completions.and_then(Option::as_ref).is_some_and(|held| held.waiting.is_empty());
        // Admin commands do without a slot, or say that there is none: one may be to end what the slots have.
        let free = queue == 0
            || (self.slots.has_free() && self.parked.is_empty() && self.limiter.is_free(self.slots.now));
        submissions.has_entries() && room && free
    }

    /// Looks after what needs no new command: shadow doorbells, completions that wait for room, commands that
    /// wait for a buffer, events, a shutdown. True where anything was done.
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
            // The guest waits for none of them: their slots are for the flush.
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

    /// Memory that it has done with, and that somebody is to give back.
    pub fn waste(&mut self) -> &mut Vec<Waste> {
        self.near.waste()
    }

    /// True where [`Controller::operate`] has something to do.
    pub fn operates(&mut self) -> bool {
        self.is_near_ready()
    }

    /// Takes a near-storage command on by a bounded piece; nothing where there is none that could be. Whoever calls it
    /// for several controllers does so for one of them at a time, with everybody's plain commands between. Where it
    /// `hands_over`, operators' work is not done, but handed to the caller: [`Controller::take_back`] wants it done.
    pub fn operate(
        &mut self,
        drive: u32,
        port: &mut dyn HostPort,
        storage: &mut dyn Storage,
        hands_over: bool,
    ) -> Option<Operated> {
        self.near_step(drive, port, storage, hands_over)
    }

    /// Returns the bytes that commands have read and written since the last call, and that [`Controller::step`] did not count: how many they
    /// would be, nobody knew.
    pub fn take_unpaid(&mut self) -> u64 {
        std::mem::take(&mut self.unpaid)
    }

    /// A command reads or writes bytes that it was not charged for when it began.
    pub(crate) fn pay(&mut self, slot: u16, bytes: u64) {
        self.queue_shares.charge(self.slots.get(slot).queue.into(), bytes);
        self.unpaid += bytes;
    }

    /// Takes work back that was handed over and is done, also where the controller was reset meanwhile.
    pub fn take_back(&mut self, port: &mut dyn HostPort, batch: Batch) {
        self.near_back(port, batch);
    }

    /// True while a reset waits for the storage, and for slots.
    pub(crate) fn is_resetting(&self) -> bool {
        self.resetting
    }

    /// Commands on which slots work.
    pub fn away(&self) -> usize {
        self.near.away()
    }

    /// Bytes of memory that operators have, or may yet take. [`Config::operator_memory`] says how many there are.
    pub fn operator_memory(&self) -> u64 {
        self.near.operator_memory()
    }

    fn waiting_event(&mut self) -> Option<(u16, u32)> {
        let room = self.completions[0].as_ref().is_some_and(|queue| queue.waiting.is_empty());
        if room { self.events.take() } else { None }
    }

    /// Takes the doorbells that the guest has written to its shadows; true where there are new ones. Where they cannot
    /// be reached, [`Controller::deadline`] says when to look again.
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
                    // It is not looked at again before it is right.
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

    /// Nothing is to do: from now on the guest is to write the real doorbells. True where it has written a
    /// shadow meanwhile. Where it cannot be told, since its memory is elsewhere for a while,
    /// [`Controller::deadline`] says when to look again.
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
        // Or the guest reads the index before we wrote it, and we its doorbell before it wrote that: nobody
        // would tell anybody.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.look_at_shadows(port)
    }

    /// Somebody looks again: guests need not ring.
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

    /// Takes the next command and begins it: the admin queue's before those of the I/O queues, and those in
    /// turn. What it cost in shares of the storage; nothing where there is none.
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
        // A command of an I/O queue creates and deletes none.
        self.queue_shares = shares;
        cost
    }

    /// Takes down a command's identifier; false where another one has it: then the command has ended.
    fn begin_command(&mut self, port: &mut dyn HostPort, queue: u16, entry: &[u8; command::SIZE]) -> bool {
        let cid = u16_at(entry, 2);
        let free = self.submissions[usize::from(queue)].as_mut().is_some_and(|held| held.begin(cid));
        if !free {
            self.end_conflict(port, queue, cid);
        }
        free
    }

    /// Copies the next entry of a queue. A queue that cannot be read is the end: only a reset helps.
    fn fetch(&mut self, port: &mut dyn HostPort, queue: usize) -> Option<[u8; command::SIZE]> {
        let held = self.submissions[queue].as_mut()?;
        let mut entry = [0; command::SIZE];
        let address = held.base.checked_add(u64::from(held.head) * command::SIZE as u64);
        if address.is_none_or(|address| port.read(address, &mut entry).is_err()) {
            self.fail();
            return None;
        }
        held.head = after(held.head, held.size);
        held.outstanding += 1;
        Some(entry)
    }
}
