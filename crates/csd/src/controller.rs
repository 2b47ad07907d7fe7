//! A function as its guest sees it: an NVMe controller, as a state machine.
//!
//! Its owner passes on what the guest does to the registers, calls [`Controller::attend`], [`Controller::step`] and [`Controller::settle`] in turn,
//! and brings the storage's answers; [`Drives`](crate::drives::Drives) does all that for several. Each call does a bounded number of things.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dcs_nvme::command::{self, Command};
use dcs_nvme::register::{ControllerStatus, Shutdown};
use dcs_nvme::{Completion, DataPointer, Status, Walk};

use crate::config::{Config, ConfigError};
use crate::events::Events;
use crate::features::Features;
use crate::host::{HostError, HostPort};
use crate::logs::Logs;
use crate::namespace::Namespace;
use crate::near::NearStorage;
use crate::queue::{CompletionQueue, Shadow, SubmissionQueue};
use crate::registers::Registers;
use crate::shares::Shares;
use crate::slots::{Buffers, Slots, Work};
use crate::storage::{Action, Buffer, Data, Outcome, Request, Storage, Ticket};

/// The cost of a command beside its bytes.
pub(crate) const COMMAND_COST: u64 = 4096;

/// Called with each piece of a command's data: address and length.
type Each<'a> = dyn FnMut(&mut dyn HostPort, u64, usize) -> Result<(), HostError> + 'a;

/// What a controller has done. Commands that failed are errors, and nothing else.
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
    pub(crate) queue_shares: Shares,
    pub(crate) slots: Slots,
    pub(crate) buffers: Buffers,
    /// Commands that wait for a buffer.
    pub(crate) parked: VecDeque<u16>,
    pub(crate) namespaces: BTreeMap<u32, Namespace>,
    pub(crate) changed: BTreeSet<u32>,
    pub(crate) events: Events,
    pub(crate) features: Features,
    pub(crate) logs: Logs,
    pub(crate) near: NearStorage,
    /// A reset waits until the storage has answered.
    resetting: bool,
    pub(crate) shutdown_wanted: bool,
    interrupts: u64,
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
            registers: Registers::new(config.entries),
            submissions: (0..pairs).map(|_| None).collect(),
            completions: (0..pairs).map(|_| None).collect(),
            shadow: None,
            queue_shares: Shares::default(),
            slots: Slots::new(config.commands),
            buffers: Buffers::new(config.buffers, 1 << config.transfer_shift),
            parked: VecDeque::with_capacity(config.commands.into()),
            namespaces: BTreeMap::new(),
            changed: BTreeSet::new(),
            events: Events::default(),
            features: Features::new(config.queues),
            logs: Logs::default(),
            near: NearStorage::new(config.memory),
            resetting: false,
            shutdown_wanted: false,
            interrupts: 0,
            has_cache: false,
            config,
        })
    }

    /// Interrupt vectors that it raises: 0 for the admin queue, and one for each I/O queue pair.
    pub fn vectors(&self) -> u16 {
        self.config.queues + 1
    }

    /// What it has done since it was made.
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

    /// What it was made of.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Commands that the storage has.
    pub fn outstanding(&self) -> usize {
        self.slots.used() - self.parked.len() - self.near.waiting()
    }

    /// It takes commands.
    pub fn is_running(&self) -> bool {
        let status = self.registers.csts;
        status.ready && !status.fatal && !self.resetting && status.shutdown == Shutdown::None
    }

    /// A reset of the function: all registers are as after power-on. What the storage still has is not answered; until it is back, the
    /// controller does not become ready again. (`HostPort` refuses what the guest does not want to be reached any more.)
    pub fn reset(&mut self) {
        self.registers.reset();
        self.begin_reset();
    }

    /// CC.EN is zero: deletes the queues. CSTS.RDY follows when the storage has answered: until then it may write to the guest's memory.
    pub(crate) fn begin_reset(&mut self) {
        self.submissions.iter_mut().for_each(|queue| *queue = None);
        self.completions.iter_mut().for_each(|queue| *queue = None);
        (self.shadow, self.queue_shares, self.shutdown_wanted) = (None, Shares::default(), false);
        (self.events, self.features) = (Events::default(), Features::new(self.config.queues));
        self.changed.clear();
        while let Some(index) = self.parked.pop_front() {
            self.slots.give(index);
        }
        while let Some(index) = self.near.take_ready() {
            self.slots.give(index);
        }
        self.near.reset();
        self.slots.in_use().for_each(|slot| slot.stale = true);
        self.resetting = true;
        self.end_reset();
    }

    /// The reset is through, if the storage has answered.
    fn end_reset(&mut self) {
        if self.resetting && self.slots.used() == 0 {
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

    /// Whether [`Controller::step`] has something to do, as far as doorbells say.
    pub fn is_ready(&self) -> bool {
        self.is_running() && (0..self.submissions.len()).any(|queue| self.queue_is_ready(queue))
    }

    /// Whether the next command of a queue can be taken: there is one, and room for its end.
    fn queue_is_ready(&self, queue: usize) -> bool {
        let Some(Some(submissions)) = self.submissions.get(queue) else { return false };
        let completions = self.completions.get(usize::from(submissions.completion_queue));
        let room = completions.and_then(Option::as_ref).is_some_and(|held| held.waiting.is_empty());
        let free = self.slots.has_free() && (queue == 0 || self.parked.is_empty());
        submissions.has_entries() && room && free
    }

    /// Looks after what needs no new command: shadow doorbells, completions that wait for room, commands that wait for a buffer, events, a
    /// shutdown. True where anything was done.
    pub fn attend(&mut self, drive: u32, port: &mut dyn HostPort, storage: &mut dyn Storage) -> bool {
        let mut busy = false;
        if self.is_running() {
            busy |= self.look_at_shadows(port);
            busy |= self.drain(port);
            while let Some((cid, result)) = self.waiting_event() {
                busy = true;
                self.end(port, 0, cid, Status::SUCCESS, result.into());
            }
            busy |= self.unpark(drive, port, storage);
            busy |= self.near_step(drive, port, storage);
        }
        if self.shutdown_wanted && !self.resetting && self.parked.is_empty() && self.slots.has_free() {
            self.shutdown_wanted = false;
            self.flush_all(drive, storage, port, Work::Shutdown, (0, 0));
            busy = true;
        }
        busy
    }

    fn waiting_event(&mut self) -> Option<(u16, u32)> {
        let room = self.completions[0].as_ref().is_some_and(|queue| queue.waiting.is_empty());
        if room { self.events.take() } else { None }
    }

    fn look_at_shadows(&mut self, port: &mut dyn HostPort) -> bool {
        let Some(shadow) = self.shadow else { return false };
        let mut busy = false;
        for queue in 1..self.submissions.len() {
            if let Some(held) = &mut self.submissions[queue]
                && let Ok(tail) = shadow.load(port, 2 * queue)
                && tail != held.tail
            {
                busy = true;
                if !held.ring(tail) {
                    self.events.doorbell(true);
                    // It is not looked at again before it is right.
                    busy = false;
                }
            }
            if let Some(held) = &mut self.completions[queue]
                && (!held.waiting.is_empty() || held.is_full())
                && let Ok(head) = shadow.load(port, 2 * queue + 1)
                && head != held.head
            {
                held.ring(head);
            }
        }
        busy
    }

    /// Nothing is to do: from now on the guest is to write the real doorbells. True where it has written a shadow meanwhile.
    pub fn arm(&mut self, port: &mut dyn HostPort) -> bool {
        let Some(shadow) = self.shadow.filter(|_| self.is_running()) else { return false };
        for queue in 1..self.submissions.len() {
            if let Some(held) = &self.submissions[queue] {
                let _ = shadow.arm(port, 2 * queue, held.tail);
            }
            if let Some(held) = &self.completions[queue] {
                let _ = shadow.arm(port, 2 * queue + 1, held.head);
            }
        }
        // Or the guest reads the index before we wrote it, and we its doorbell before it wrote that: nobody would tell anybody.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.look_at_shadows(port)
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

    /// Takes the next command and begins it: the admin queue's before those of the I/O queues, and those in turn. What it cost in shares
    /// of the storage; nothing where there is none.
    pub fn step(&mut self, drive: u32, port: &mut dyn HostPort, storage: &mut dyn Storage) -> Option<u64> {
        if !self.is_running() {
            return None;
        }
        if self.queue_is_ready(0) {
            let entry = self.fetch(port, 0)?;
            self.admin(drive, port, storage, &Command::from_bytes(&entry));
            return Some(COMMAND_COST);
        }
        let mut shares = std::mem::take(&mut self.queue_shares);
        let next = shares.next(|queue| self.queue_is_ready(queue));
        let cost = next.and_then(|queue| {
            let entry = self.fetch(port, queue)?;
            let cost = self.io(drive, port, storage, queue as u16, &entry);
            shares.charge(queue, cost);
            Some(cost)
        });
        // A command of an I/O queue creates and deletes none.
        self.queue_shares = shares;
        cost
    }

    /// Copies the next entry of a queue. A queue that cannot be read is the end: only a reset helps.
    fn fetch(&mut self, port: &mut dyn HostPort, queue: usize) -> Option<[u8; command::SIZE]> {
        let held = self.submissions[queue].as_mut()?;
        let mut entry = [0; command::SIZE];
        let address = held.base.wrapping_add(u64::from(held.head) * command::SIZE as u64);
        if port.read(address, &mut entry).is_err() {
            self.fail();
            return None;
        }
        held.head = (held.head + 1) % held.size;
        held.outstanding += 1;
        Some(entry)
    }

    /// A command ends.
    pub(crate) fn end(&mut self, port: &mut dyn HostPort, queue: u16, cid: u16, status: Status, result: u64) {
        let Some(Some(held)) = self.submissions.get_mut(usize::from(queue)) else { return };
        held.outstanding = held.outstanding.saturating_sub(1);
        let done = Completion {
            result: result as u32,
            result_high: (result >> 32) as u32,
            submission_head: held.head as u16,
            submission_queue: queue,
            cid,
            phase: false,
            status,
        };
        if !status.is_success() {
            self.logs.failed(&done);
        }
        let target = usize::from(held.completion_queue);
        if let Some(Some(completions)) = self.completions.get_mut(target)
            && completions.post(port, done).is_err()
        {
            self.registers.csts.fatal = true;
        }
        self.end_deletion(port, queue);
    }

    /// A queue that is to be deleted is, when its last command has ended.
    pub(crate) fn end_deletion(&mut self, port: &mut dyn HostPort, queue: u16) {
        let place = &mut self.submissions[usize::from(queue)];
        if let Some(held) = place
            && held.outstanding == 0
            && let Some(cid) = held.deleted_by
        {
            let target = usize::from(held.completion_queue);
            *place = None;
            self.queue_shares.remove(queue.into());
            if let Some(Some(completions)) = self.completions.get_mut(target) {
                completions.users -= 1;
            }
            self.end(port, 0, cid, Status::SUCCESS, 0);
        }
    }

    /// A batch is through: one interrupt for each vector with new completions.
    pub fn settle(&mut self, port: &mut dyn HostPort) {
        let mut raised = 0u128;
        for queue in self.completions.iter_mut().flatten() {
            if std::mem::take(&mut queue.dirty)
                && let Some(vector) = queue.vector
                && raised >> vector & 1 == 0
            {
                raised |= 1 << vector;
                self.interrupts += 1;
                port.interrupt(vector);
            }
        }
    }

    /// The storage has answered: the command goes on, or ends.
    pub fn complete(&mut self, port: &mut dyn HostPort, storage: &mut dyn Storage, outcome: Outcome) {
        let index = outcome.ticket.slot;
        let slot = self.slots.get(index);
        let action = slot.action;
        let mut buffer = None;
        match outcome.data {
            Data::None => {}
            Data::Pieces(mut pieces) => {
                pieces.clear();
                slot.pieces = pieces;
            }
            Data::Buffer(held) => buffer = Some(held),
        }
        if let Err(fault) = outcome.result
            && slot.status.is_success()
        {
            slot.status = crate::io::status_of(fault, action);
        }
        slot.remaining = slot.remaining.saturating_sub(1);
        if slot.work == Work::Zeros
            && !slot.stale
            && let Some(held) = buffer
        {
            buffer = self.more_zeros(outcome.ticket, storage, held);
        }
        let slot = self.slots.get(index);
        let (more, stale) = (slot.remaining > 0, slot.stale);
        if slot.work == Work::Near && !stale {
            return self.near_answered(outcome.ticket, port, buffer);
        }
        if !more && !stale {
            self.finish(port, index, buffer.as_mut());
        }
        if let Some(buffer) = buffer {
            self.buffers.give(buffer);
        }
        if !more {
            self.slots.give(index);
            self.end_reset();
        }
    }

    /// All requests of a command are answered.
    fn finish(&mut self, port: &mut dyn HostPort, index: u16, buffer: Option<&mut Buffer>) {
        let slot = self.slots.get(index);
        let (queue, cid, work) = (slot.queue, slot.cid, slot.work);
        let mut status = slot.status;
        match work {
            Work::Shutdown => {
                self.registers.csts.shutdown = Shutdown::Complete;
                return;
            }
            Work::Plain | Work::Zeros => self.logs.flushes += u64::from(status.is_success()),
            Work::CacheOff if status.is_success() => self.features.write_cache = false,
            Work::Transfer(_) | Work::Compare if status.is_success() => {
                if let Some(buffer) = buffer {
                    status = self.through_buffer(port, index, buffer.bytes_mut());
                }
                self.count(index, status);
            }
            _ => {}
        }
        self.end(port, queue, cid, status, 0);
    }

    /// Begins to flush the volumes of all namespaces. The command in `from` ends when that is done.
    pub(crate) fn flush_all(
        &mut self,
        drive: u32,
        storage: &mut dyn Storage,
        port: &mut dyn HostPort,
        work: Work,
        from: (u16, u16),
    ) {
        let Some(index) = self.slots.take(work, from.0, from.1) else { return };
        let volumes: BTreeSet<_> = self.namespaces.values().map(|namespace| namespace.volume).collect();
        self.slots.get(index).action = Action::Flush;
        self.slots.get(index).remaining = volumes.len() as u32;
        if volumes.is_empty() {
            self.finish(port, index, None);
            self.slots.give(index);
        }
        for volume in volumes {
            let ticket = Ticket { drive, slot: index };
            let (action, data) = (Action::Flush, Data::None);
            storage.submit(Request { ticket, volume, action, offset: 0, length: 0, data });
        }
    }

    /// Copies to where a command's data pointer says.
    pub(crate) fn copy_out(&self, port: &mut dyn HostPort, pointer: &DataPointer, data: &[u8]) -> Status {
        let mut done = 0;
        self.walk(port, pointer, data.len() as u64, &mut |port, address, length| {
            let part = &data[done..done + length];
            done += length;
            port.write(address, part)
        })
    }

    /// Copies from where a command's data pointer says.
    pub(crate) fn copy_in(&self, port: &mut dyn HostPort, pointer: &DataPointer, data: &mut [u8]) -> Status {
        let mut done = 0;
        self.walk(port, pointer, data.len() as u64, &mut |port, address, length| {
            let part = &mut data[done..done + length];
            done += length;
            port.read(address, part)
        })
    }

    /// Calls `each` with every piece of a command's data.
    fn walk(
        &self,
        port: &mut dyn HostPort,
        pointer: &DataPointer,
        length: u64,
        each: &mut Each<'_>,
    ) -> Status {
        let mut walk = match Walk::new(pointer, length, self.registers.page()) {
            Ok(walk) => walk,
            Err(status) => return status.with_do_not_retry(),
        };
        loop {
            match walk.next(&mut |address, bytes| port.read(address, bytes).is_ok()) {
                Ok(None) => return Status::SUCCESS,
                Ok(Some(place)) => {
                    if each(port, place.address, place.length as usize).is_err() {
                        return Status::DATA_TRANSFER_ERROR;
                    }
                }
                Err(status) => return status.with_do_not_retry(),
            }
        }
    }

    /// Attaches a namespace; the guest is told.
    ///
    /// # Errors
    ///
    /// Where its number is taken or too large.
    pub fn attach(&mut self, namespace: Namespace, storage: &dyn Storage) -> Result<(), ConfigError> {
        let most = u64::from(self.config.namespaces);
        let number = namespace.number;
        if number == 0 || u64::from(number) > most {
            return Err(ConfigError::Range {
                name: "a namespace's number",
                value: number.into(),
                least: 1,
                most,
            });
        }
        if self.namespaces.contains_key(&number) {
            return Err(ConfigError::Taken(number));
        }
        namespace.check(storage.volume(namespace.volume).as_ref())?;
        self.has_cache |= storage.volume(namespace.volume).is_some_and(|volume| volume.volatile_cache);
        self.namespaces.insert(number, namespace);
        self.has_changed(number);
        Ok(())
    }

    /// Detaches a namespace; the guest is told. What is under way on it goes on.
    ///
    /// # Errors
    ///
    /// Where there is none.
    pub fn detach(&mut self, number: u32) -> Result<(), ConfigError> {
        self.namespaces.remove(&number).ok_or(ConfigError::Missing(number))?;
        self.has_changed(number);
        Ok(())
    }

    /// Gives a namespace another size, in logical blocks; the guest is told.
    ///
    /// # Errors
    ///
    /// Where there is none, or its volume is smaller.
    pub fn resize(&mut self, number: u32, blocks: u64, storage: &dyn Storage) -> Result<(), ConfigError> {
        let namespace = self.namespaces.get(&number).ok_or(ConfigError::Missing(number))?;
        let changed = Namespace { blocks, ..namespace.clone() };
        changed.check(storage.volume(changed.volume).as_ref())?;
        self.namespaces.insert(number, changed);
        self.has_changed(number);
        Ok(())
    }

    /// The namespaces that are attached, by number.
    pub fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.namespaces.values()
    }

    fn has_changed(&mut self, number: u32) {
        if self.is_running() {
            self.changed.insert(number);
            self.events.namespaces();
        }
    }
}
