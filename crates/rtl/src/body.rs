//! The body: events become signals at the engine's ports, and what it puts out becomes actions.

use crate::flights::Flights;
use crate::model::engine::{self, In, Out};
use crate::model::{self, BLOCK_SIZE, BLOCKS, COMMANDS, Model, OPERATORS, QUEUES, UNITS, WINDOW};
use crate::slots::{Slot, operator};
use dcs_abi::result::{DigestSlot, ResultArea};
use dcs_engine::{
    Action, Binding, BlockId, CommandId, Config, Core, Counters, EndpointRole, Event, Failure, Nanos,
    Operation, OperationId, OperationKind, Outcome, QueueConfig, QueueId,
};
use std::collections::VecDeque;
use std::sync::Arc;

/// Cycles without a sign of life after which nothing happens by itself: an answer within the core takes two.
const CALM: u32 = 4;
/// Cycles in which every command's deadline is looked at.
const LOOK: u32 = COMMANDS as u32 + 2;
/// Cycles in which everything that one event leads to is done.
const MOST: u32 = 100_000;
/// Nanoseconds of a millisecond, the accuracy of timeouts.
const MILLISECOND: Nanos = 1_000_000;
/// More bytes than any operation asks for: an answer that makes no sense.
const NONSENSE: u64 = (1 << 13) - 1;
/// The highest errno of Linux.
const MOST_ERRNO: u64 = (1 << 12) - 1;

/// A read of host memory that the owner has yet to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// For this slot.
    Entry(QueueId, usize),
    /// Of so many bytes.
    Descriptor(CommandId, u64),
}

/// The engine in SystemVerilog, as a core.
pub struct Body {
    model: Model<In, Out>,
    input: In,
    /// Its outputs in the last cycle.
    out: Out,
    config: Config,
    now: Nanos,
    cycles: u64,
    counters: Counters,
    /// The function of each queue that there is: its number in the card, and in the core.
    queues: [Option<(u16, u64)>; QUEUES as usize],
    slots: Vec<Slot>,
    flights: Flights,
    /// Number of times that a device still has each block.
    holds: [u32; BLOCKS as usize],
    reading: Option<Reading>,
    /// Words that were read, and whether that failed.
    words: VecDeque<(u64, bool)>,
    /// Commands to stop, by queue and identifier: the core takes them when it checks no entry.
    stops: VecDeque<(QueueId, u16)>,
    actions: VecDeque<Action>,
}

impl core::fmt::Debug for Body {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Body { cycles, counters, queues, flights, holds, reading, out, .. } = self;
        let flags =
            [("idle", out.idle_o), ("quiet", out.quiet_o), ("timed", out.timed_o), ("short", out.short_o)];
        f.debug_struct("Body")
            .field("cycles", cycles)
            .field("counters", counters)
            .field("queues", queues)
            .field("flights", flights)
            .field("holds", holds)
            .field("reading", reading)
            .field("flags", &flags)
            .finish_non_exhaustive()
    }
}

impl Default for Body {
    fn default() -> Body {
        Body::new(&Config::default())
    }
}

impl Body {
    /// Makes a core with these weights of functions and this grace. Its sizes are those of `rtl/tools/body.py`.
    pub fn new(asked: &Config) -> Body {
        let abort_grace = asked.abort_grace;
        let config = Config {
            block_size: BLOCK_SIZE as u32,
            blocks: BLOCKS as u32,
            window: WINDOW as u16,
            cached_blocks: BLOCKS as u32,
            commands: COMMANDS as u16,
            queues: QUEUES as u16,
            weights: asked.weights.clone(),
            units: (0..OPERATORS.len() as u64).map(|pool| (operator(pool), UNITS as u16)).collect(),
            gpu: Vec::new(),
            multi_lane: Vec::new(),
            // It has no direct paths, and runs nothing by itself.
            direct_chunk: 1,
            short: false,
            abort_grace,
        };
        let always = In {
            grace_i: abort_grace.div_ceil(MILLISECOND).min(u32::MAX.into()),
            read_ready_i: true,
            write_ready_i: true,
            interrupt_ready_i: true,
            bind_ready_i: true,
            unbind_ready_i: true,
            operation_ready_i: true,
            abort_ready_i: true,
            digest_ready_i: true,
            deleted_ready_i: true,
            ..In::default()
        };
        let mut body = Body {
            model: Model::new(&engine::MODELS[0]),
            input: always,
            out: Out::default(),
            config,
            now: 0,
            cycles: 0,
            counters: Counters::default(),
            queues: Default::default(),
            slots: (0..COMMANDS).map(|_| Slot::new()).collect(),
            flights: Flights::new(),
            holds: [0; BLOCKS as usize],
            reading: None,
            words: VecDeque::new(),
            stops: VecDeque::new(),
            actions: VecDeque::new(),
        };
        (0..3).for_each(|_| body.clock());
        body.input.rst_ni = true;
        body.run(0);
        body.cycles = 0;
        body
    }

    /// Cycles of the clock so far.
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    // ---- The clock ----

    /// Clocks until nothing goes on any more, and at least so often.
    fn run(&mut self, least: u32) {
        let (mut calm, mut cycles) = (0, 0);
        while calm < CALM || cycles < least {
            self.clock();
            let out = &self.out;
            let asks = out.read_valid_o || out.write_valid_o || out.bind_valid_o || out.unbind_valid_o;
            let tells = out.operation_valid_o || out.abort_valid_o || out.deleted_valid_o || out.posted_o;
            let is_calm = out.quiet_o && !asks && !tells && self.words.is_empty();
            calm = if is_calm { calm + 1 } else { 0 };
            cycles += 1;
            assert!(cycles < MOST, "the core runs in circles: {self:?}");
        }
    }

    /// Clocks until the core has taken what is offered, then takes the offer back and runs.
    fn offer(&mut self, valid: fn(&mut In) -> &mut bool, ready: fn(&Out) -> bool) {
        *valid(&mut self.input) = true;
        for cycle in 0.. {
            self.clock();
            if ready(&self.out) {
                break;
            }
            assert!(cycle < MOST, "the core takes nothing: {self:?}");
        }
        *valid(&mut self.input) = false;
        self.run(0);
    }

    /// A cycle: what the core puts out before the edge is taken then.
    fn clock(&mut self) {
        let (word, failed) = self.words.front().copied().unwrap_or_default();
        let given = !self.words.is_empty();
        self.input.data_valid_i = given;
        (self.input.data_i, self.input.data_error_i) = (word, failed);
        let (queue, cid) = self.stops.front().copied().unwrap_or((QueueId(0), 0));
        self.input.stop_valid_i = !self.stops.is_empty();
        (self.input.stop_queue_i, self.input.stop_cid_i) = (queue.0.into(), cid.into());
        (self.input.now_i, self.input.millis_i) = (self.now, self.now / MILLISECOND);
        let mut out = self.model.settle(&self.input);
        if out.digest_valid_o || out.bind_valid_o {
            let slot = &self.slots[out.digest_command_o as usize];
            self.input.digest_i = slot.digest(out.digest_at_o, out.digest_index_o.min(9));
            self.input.look_command_i = out.bind_command_o;
            out = self.model.settle(&self.input);
        }
        self.model.edge();
        self.cycles += 1;
        if given && out.data_ready_o {
            self.words.pop_front();
        }
        if out.stop_ready_o {
            self.stops.pop_front();
        }
        self.out = out;
        self.take(&out);
    }

    // ---- What comes out ----

    fn command(&self, slot: u64) -> CommandId {
        CommandId::new(slot as u16, self.slots[slot as usize].generation)
    }

    fn take(&mut self, out: &Out) {
        if out.read_valid_o {
            self.read(out);
        }
        let checked = &mut self.slots[out.checked_o as usize];
        if out.extent_valid_o {
            checked.extent(out.extent_index_o, out.extent_o);
        }
        if out.parameter_valid_o {
            checked.parameter(
                out.parameter_at_o,
                out.parameter_index_o,
                out.parameter_o,
                out.parameter_bytes_o,
            );
        }
        if out.bind_valid_o {
            let (command, transfer) =
                (self.command(out.bind_command_o), model::Transfer::unpack(out.look_transfer_o));
            let spec = Arc::new(self.slots[out.bind_command_o as usize].spec(&transfer));
            self.actions.push_back(Action::Bind { command, queue: QueueId(transfer.owner as u16), spec });
        }
        if out.operation_valid_o {
            self.issue(out);
        }
        if out.abort_valid_o {
            let id = model::OperationId::unpack(out.abort_id_o);
            if let Some((operation, command)) = self.flights.find(&id) {
                self.wait_no_longer(command);
                self.actions.push_back(Action::Abort { operation });
            }
        }
        if out.unbind_valid_o {
            let command = self.command(out.unbind_command_o);
            self.actions.push_back(Action::Unbind { command });
        }
        if out.write_valid_o {
            self.write(out);
        }
        if out.posted_o {
            self.posted(out.posted_command_o);
        }
        if out.deleted_valid_o {
            self.queues[out.deleted_queue_o as usize] = None;
            self.actions.push_back(Action::QueueDeleted { queue: QueueId(out.deleted_queue_o as u16) });
        }
    }

    /// A read of host memory. The rings' addresses are ours: a queue's number, then the place in its ring.
    fn read(&mut self, out: &Out) {
        let queue = QueueId(out.read_queue_o as u16);
        let (address, bytes) = (out.read_address_o, out.read_bytes_o);
        if out.read_entry_o {
            self.counters.entries += 1;
            self.slots[out.checked_o as usize].begin();
            self.reading = Some(Reading::Entry(queue, out.checked_o as usize));
            self.actions.push_back(Action::FetchEntry { queue, slot: (address as u32 / 64) as u16 });
        } else {
            let command = self.command(out.checked_o);
            self.reading = Some(Reading::Descriptor(command, bytes));
            self.actions.push_back(Action::FetchDescriptor { command, queue, address, length: bytes as u32 });
        }
    }

    fn write(&mut self, out: &Out) {
        let (address, word) = (out.write_address_o, out.write_data_o);
        let slot = &mut self.slots[out.write_command_o as usize];
        if out.write_entry_o {
            let place = address as u32;
            slot.write_entry((address >> 32) as u16, (place / 16) as u16, (place / 8 % 2) as usize, word);
        } else {
            slot.write_result(address, word);
        }
    }

    fn posted(&mut self, command: u64) {
        match self.slots[command as usize].end() {
            Some((queue, slot, entry, result)) => {
                self.counters.completions += 1;
                self.counters.failures += u64::from(!entry.status().is_success());
                self.actions.push_back(Action::Complete { queue: QueueId(queue), slot, entry, result });
            }
            None => self.counters.dropped += 1,
        }
    }

    fn issue(&mut self, out: &Out) {
        let operation = model::Operation::unpack(out.operation_o);
        let id = model::OperationId::unpack(operation.id);
        let command = self.command(out.operation_command_o);
        let (block, offset) = (BlockId(id.row as u32), operation.offset);
        let [start, length] = [operation.start, operation.length].map(|bytes| bytes as u32);
        let (at, unit) = (id.at as u8, operation.unit as u16);
        let (last, more) = (operation.last != 0, operation.more != 0);
        let role = if operation.prefix != 0 { EndpointRole::Prefix } else { EndpointRole::Source };
        let kind = match operation.kind {
            model::DO_READ => OperationKind::Read { role, offset, block, start, length },
            model::DO_WRITE => OperationKind::Write { offset, block, start, length, origin: None, more },
            model::DO_PROCESS => OperationKind::Process { unit, operator: at, block, length, last },
            model::DO_SNAPSHOT => OperationKind::Snapshot { operator: at },
            _ => OperationKind::Flush,
        };
        self.counters.operations += 1;
        if matches!(kind, OperationKind::Snapshot { .. }) {
            self.wait_no_longer(command);
        }
        let id = self.flights.begin(&id, kind == OperationKind::Flush, command);
        self.actions.push_back(Action::Issue(Operation { id, command, kind }));
    }

    /// A command has failed: its time is over when that of its devices is.
    fn wait_no_longer(&mut self, command: CommandId) {
        let due = (self.now / MILLISECOND + self.input.grace_i + 1) * MILLISECOND;
        self.slots[command.slot()].due = Some(due);
    }

    // ---- What goes in ----

    fn doorbell(&mut self, queue: QueueId, value: u32, is_completion: bool) {
        if u64::from(queue.0) >= QUEUES {
            self.counters.bad_doorbells += 1;
            return;
        }
        self.input.doorbell_valid_i = true;
        self.input.doorbell_completion_i = is_completion;
        (self.input.doorbell_queue_i, self.input.doorbell_value_i) = (queue.0.into(), value.into());
        self.clock();
        self.counters.bad_doorbells += u64::from(self.out.doorbell_bad_o);
        self.input.doorbell_valid_i = false;
        self.run(0);
    }

    /// The bytes of a read, or none where it failed.
    fn answer(&mut self, reading: Reading, bytes: Option<&[u8]>) {
        self.reading = None;
        let length = match reading {
            Reading::Entry(..) => 64,
            Reading::Descriptor(_, length) => length as usize,
        };
        let bytes = bytes.filter(|bytes| bytes.len() == length);
        for at in (0..length).step_by(8) {
            let mut word = [0; 8];
            let part = bytes.map_or(&[][..], |bytes| &bytes[at..(at + 8).min(length)]);
            word[..part.len()].copy_from_slice(part);
            self.words.push_back((u64::from_le_bytes(word), bytes.is_none()));
        }
        self.run(0);
    }

    fn bound(&mut self, command: CommandId, binding: Result<Binding, (dcs_abi::status::Stage, u8, Failure)>) {
        if command != self.command(command.slot() as u64) {
            self.counters.stale_events += 1;
            return;
        }
        self.input.bound_command_i = command.slot() as u64;
        self.input.bound_ok_i = binding.is_ok();
        self.input.bound_flush_i = binding.is_ok_and(|binding| binding.flush);
        if let Err((stage, at, failure)) = binding {
            let (status, errno) = (failure.status.code().into(), errno(&failure));
            let (stage, at) = (stage as u64, at.into());
            self.input.bound_failure_i = model::Failure { stage, at, status, errno }.pack();
        }
        self.offer(|input| &mut input.bound_valid_i, |out| out.bound_ready_o);
    }

    fn done(&mut self, operation: OperationId, outcome: Outcome) {
        let Some(flight) = self.flights.end(operation) else {
            self.counters.stale_events += 1;
            return;
        };
        let (mut told, is_held) = outcome_of(&outcome);
        if let Outcome::Digest(slot) = &outcome {
            let transfer = self.transfer(flight.command);
            let pool = transfer.chain >> (3 * u32::from(flight.at)) & 7;
            if is_digest_of(pool, slot) {
                self.slots[flight.command.slot()].set_digest(flight.at, slot);
            } else {
                // It is no value of this operator.
                (told.kind, told.bytes) = (model::PROCESSED, NONSENSE);
            }
        }
        if is_held && operation.slot() < BLOCKS as usize {
            self.hold(operation.slot(), 1);
        }
        self.input.outcome_i = model::Outcome { id: flight.id, ..told }.pack();
        self.offer(|input| &mut input.outcome_valid_i, |out| out.outcome_ready_o);
        self.counters.stale_events += u64::from(self.out.stale_o);
    }

    /// The transfer of a command, as the core has it.
    fn transfer(&mut self, command: CommandId) -> model::Transfer {
        self.input.look_command_i = command.slot() as u64;
        model::Transfer::unpack(self.model.settle(&self.input).look_transfer_o)
    }

    fn hold(&mut self, block: usize, change: i32) {
        self.holds[block] = self.holds[block].saturating_add_signed(change);
        let bit = 1 << block;
        let held = self.input.held_i & !bit;
        self.input.held_i = if self.holds[block] > 0 { held | bit } else { held };
    }

    fn released(&mut self, block: BlockId) {
        if self.holds.get(block.index()).is_none_or(|holds| *holds == 0) {
            self.counters.stale_events += 1;
            return;
        }
        self.hold(block.index(), -1);
        if self.holds[block.index()] == 0 {
            self.input.released_row_i = block.index() as u64;
            self.offer(|input| &mut input.released_valid_i, |out| out.released_ready_o);
        }
    }

    /// Returns the core's number of a function: that of its other queues, or the first that is free.
    fn function(&self, function: u16) -> u64 {
        let there = || self.queues.iter().flatten();
        let known = there().find(|(other, _)| *other == function).map(|(_, func)| *func);
        let free = || (0..QUEUES).find(|func| there().all(|(_, other)| other != func));
        known.or_else(free).expect("a function for each queue")
    }

    fn delete(&mut self, queue: QueueId) {
        if !self.queues.get(usize::from(queue.0)).is_some_and(Option::is_some) {
            self.counters.stale_events += 1;
            return;
        }
        self.input.delete_i = true;
        self.input.delete_queue_i = queue.0.into();
        self.clock();
        self.input.delete_i = false;
        self.run(0);
    }
}

/// An outcome as the core takes it, and whether the device still has the block.
fn outcome_of(outcome: &Outcome) -> (model::Outcome, bool) {
    let told = |kind, bytes: u64| model::Outcome { kind, bytes: bytes.min(NONSENSE), ..Default::default() };
    let failed = |failure: &Failure| {
        let (status, errno) = (failure.status.code().into(), errno(failure));
        model::Outcome { status, errno, ..told(model::FAILED, 0) }
    };
    match outcome {
        Outcome::Moved { bytes, path, held } => {
            (model::Outcome { path: (*path & 0xffff).into(), ..told(model::MOVED, *bytes) }, *held)
        }
        Outcome::Processed { consumed, produced: 0, finished: false } => {
            (told(model::PROCESSED, (*consumed).into()), false)
        }
        // It has no operator that changes the length.
        Outcome::Processed { .. } | Outcome::Concluded { .. } => (told(model::PROCESSED, NONSENSE), false),
        Outcome::Digest(_) => (told(model::DIGEST, 0), false),
        Outcome::Flushed => (told(model::FLUSHED, 0), false),
        Outcome::Failed(failure) => (failed(failure), false),
        Outcome::FailedHeld(failure) => (failed(failure), true),
    }
}

/// The errno of a failure, as the core takes it: it has none above Linux's.
fn errno(failure: &Failure) -> u64 {
    u64::from(failure.errno).min(MOST_ERRNO)
}

/// True where a digest's value is one that the pool's operator can have.
fn is_digest_of(pool: u64, slot: &DigestSlot) -> bool {
    let operator = operator(pool);
    let size = operator.digest_size();
    size > 0 && slot.operator == operator as u8 && usize::from(slot.size) == size
}

impl Core for Body {
    fn config(&self) -> &Config {
        &self.config
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn add_queue(&mut self, config: QueueConfig) -> Option<QueueId> {
        let sound = (2..=1 << 15).contains(&config.depth) && (1..=256).contains(&config.weight);
        let at = self.queues.iter().position(Option::is_none).filter(|_| sound)?;
        let func = self.function(config.function);
        self.queues[at] = Some((config.function, func));
        let base = (at as u64) << 32;
        let queue = model::QueueConfig {
            submission: base,
            completion: base,
            depth: config.depth.into(),
            weight: config.weight.into(),
            func,
            func_weight: self.config.weight(config.function).into(),
            tenant: config.tenant.into(),
            number: config.number.unwrap_or(at as u16).into(),
            interrupts: 0,
            vector: 0,
        };
        self.input.create_i = true;
        self.input.create_queue_i = at as u64;
        self.input.create_config_i = queue.pack();
        self.clock();
        self.input.create_i = false;
        self.run(0);
        Some(QueueId(at as u16))
    }

    fn handle(&mut self, now: Nanos, event: Event<'_>) {
        self.now = self.now.max(now);
        match event {
            Event::SubmissionDoorbell { queue, tail } => self.doorbell(queue, tail, false),
            Event::CompletionDoorbell { queue, head } => self.doorbell(queue, head, true),
            Event::Entry { queue, bytes } => match self.reading {
                Some(reading @ Reading::Entry(other, slot)) if other == queue => {
                    let timeout = u32::from_le_bytes([bytes[56], bytes[57], bytes[58], bytes[59]]);
                    let due = (self.now / MILLISECOND + u64::from(timeout) + 1) * MILLISECOND;
                    self.slots[slot].due = (timeout > 0).then_some(due);
                    self.answer(reading, Some(bytes));
                }
                _ => self.counters.stale_events += 1,
            },
            Event::Descriptor { command, bytes } => match self.reading {
                Some(reading @ Reading::Descriptor(other, _)) if other == command => {
                    self.answer(reading, bytes)
                }
                _ => self.counters.stale_events += 1,
            },
            Event::Bound { command, binding } => self.bound(command, binding),
            // It offers nothing that an owner could run by itself.
            Event::Ran { .. } => self.counters.stale_events += 1,
            Event::Done { operation, outcome } => self.done(operation, outcome),
            Event::Released { block } => self.released(block),
            Event::Abort { queue, cid } if u64::from(queue.0) < QUEUES => {
                self.stops.push_back((queue, cid));
                self.run(0);
            }
            Event::Abort { .. } => {}
            Event::DeleteQueue { queue } => self.delete(queue),
        }
    }

    fn handle_idle(&mut self, now: Nanos) {
        self.now = self.now.max(now);
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn next_timeout(&self) -> Option<Nanos> {
        let next = (self.now / MILLISECOND + 1) * MILLISECOND;
        let due = self.slots.iter().filter_map(|slot| slot.due).min();
        self.out.timed_o.then(|| due.map_or(next, |due| due.max(next)))
    }

    fn handle_timeout(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        if self.out.timed_o {
            self.run(LOOK);
        }
    }

    fn blocks_free(&self) -> u32 {
        self.out.free_o.count_ones()
    }

    fn is_short_of_blocks(&self) -> bool {
        self.out.short_o
    }

    fn is_idle(&self) -> bool {
        self.out.idle_o && self.flights.is_empty() && self.stops.is_empty() && self.actions.is_empty()
    }

    fn recycle(&mut self, _area: Box<ResultArea>) {}
}
