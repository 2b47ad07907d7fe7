//! The SSD. As a sender it reads the blocks of its tasks, ahead of their due time; as a receiver it stores them.

use crate::credit::CREDIT;
use crate::interface::{Action, ConfigError, Nanos, Operator, Origin, Token};
use crate::register;
use crate::register::{END_HERE, Error, Kind, Medium, Role, State, Status, Task};
use crate::schedule::Circle;
use crate::streams::{Access, Command, Decoded, Settings, Streams, read};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// The settings of an SSD.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Number of streams.
    pub streams: u16,
    /// Credits of an Rx queue.
    pub window: u32,
    /// Places in the aperture that a stream's runs use in turn.
    pub places: u8,
    /// Epoch before each stream's first run. Choose it at random: a sender refuses the epoch that it used last at the same address.
    pub epoch: u16,
    /// Bytes of a write to another function, at most.
    pub payload: u32,
    /// Tasks of a stream's list.
    pub tasks: u32,
    /// Bytes of a block as a power of two, 9 to 12.
    pub block_shift: u8,
    /// Blocks of the medium.
    pub blocks: u64,
    /// Bytes of a read or a store, at most: whole blocks.
    pub transfer: u32,
    /// Bytes that a stream reads ahead of what was sent, at most.
    pub read_ahead: u32,
    /// Reads and stores in progress at the medium, at most.
    pub outstanding: usize,
}

impl Config {
    /// Returns the usual settings, for a medium of this many blocks of 4 KiB: 128 KiB of credits, writes of 256 bytes,
    /// reads of 32 KiB, 64 KiB ahead.
    pub fn new(streams: u16, blocks: u64) -> Config {
        Config {
            streams,
            window: 32,
            places: 4,
            epoch: 0,
            payload: 256,
            tasks: 256,
            block_shift: 12,
            blocks,
            transfer: 32 << 10,
            read_ahead: 64 << 10,
            outstanding: 256,
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            kind: Kind::Ssd,
            streams: self.streams,
            window: self.window,
            places: self.places,
            epoch: self.epoch,
            payload: self.payload,
            tasks: self.tasks,
            medium: Medium { block_shift: self.block_shift, mtu: 0 },
            blocks: self.blocks,
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        let is_good = (9..=12).contains(&self.block_shift)
            && self.transfer != 0
            && self.transfer.trailing_zeros() >= u32::from(self.block_shift)
            && self.transfer <= self.read_ahead
            && u64::from(self.transfer) <= u64::from(self.window) * CREDIT
            && self.outstanding > 0;
        if is_good { Ok(()) } else { Err(ConfigError::Blocks) }
    }

    /// Returns the size of BAR0 in bytes.
    pub fn registers(&self) -> u64 {
        self.settings().bar()
    }

    /// Returns the size of the aperture in bytes.
    pub fn aperture(&self) -> u64 {
        self.settings().place() * u64::from(self.places) * u64::from(self.streams)
    }
}

/// The medium has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the medium has failed")]
pub struct MediumError;

/// A sender's read.
struct Reading {
    token: u64,
    bytes: u64,
    data: Option<Vec<u8>>,
}

/// The medium's side of a stream.
#[derive(Default)]
struct Tasks {
    /// List in BAR0, as far as it was ever written.
    memory: Vec<[u64; 2]>,
    /// List of the run.
    list: Vec<Task>,
    /// Tasks that have begun.
    begun: usize,
    /// Blocks of the last task begun that are done.
    within: u32,
    /// Bytes for which reads were issued.
    issued: u64,
    reads: VecDeque<Reading>,
    /// Bytes of the stream in the run's store in progress.
    store: Option<u64>,
    /// Store of the run in progress; there is one at a time.
    storing: Option<u64>,
    /// Last operation at the medium that began before the run.
    after: u64,
}

impl Tasks {
    /// Discards the run, whose store must have been removed. The list in BAR0 stays.
    fn rewind(&mut self) {
        let memory = core::mem::take(&mut self.memory);
        *self = Tasks { memory, ..Tasks::default() };
    }

    /// Takes the first `tail` tasks for a run. Returns their bytes; `None` if they are invalid.
    fn parse(&mut self, tail: u32, config: &Config) -> Option<u64> {
        let list: Vec<Task> =
            self.memory.iter().take(tail as usize).map(|bits| Task::from_bits(*bits)).collect();
        self.rewind();
        let is_within = |task: &Task| {
            task.blocks != 0
                && task.lba.checked_add(task.blocks.into()).is_some_and(|end| end <= config.blocks)
        };
        if list.is_empty() || list.len() < tail as usize || !list.iter().all(is_within) {
            return None;
        }
        let blocks: u64 = list.iter().map(|task| u64::from(task.blocks)).sum();
        self.list = list;
        blocks.checked_mul(1 << config.block_shift)
    }

    /// Returns the next block, and how many are left in its task; `None` at the end of the list.
    fn next_blocks(&self) -> Option<(u64, u32)> {
        let at = if self.within == 0 { self.begun } else { self.begun - 1 };
        let task = self.list.get(at)?;
        Some((task.lba + u64::from(self.within), task.blocks - self.within))
    }

    /// Advances by this many of the blocks left.
    fn advance(&mut self, blocks: u32, left: u32) {
        self.begun += usize::from(self.within == 0);
        self.within = if blocks == left { 0 } else { self.within + blocks };
    }
}

/// An SSD's D2D function: BAR0, and an aperture to which others write.
pub struct Ssd {
    config: Config,
    streams: Streams,
    tasks: Vec<Tasks>,
    /// Streams of the operations in progress at the medium.
    outstanding: BTreeMap<u64, u16>,
    tokens: u64,
    /// Stores in progress whose runs have ended. Later runs of any stream may name the same blocks, so they wait.
    orphans: BTreeSet<u64>,
    /// Streams that wait for room among the operations in progress.
    waiting: Circle,
}

impl Ssd {
    /// Creates an SSD as after power-on.
    pub fn new(config: Config) -> Result<Ssd, ConfigError> {
        config.check()?;
        Ok(Ssd {
            config,
            streams: Streams::new(config.settings())?,
            tasks: (0..config.streams).map(|_| Tasks::default()).collect(),
            outstanding: BTreeMap::new(),
            tokens: 0,
            orphans: BTreeSet::new(),
            waiting: Circle::new(config.streams),
        })
    }

    /// Sets the operator of a sending stream, from its next start on.
    pub fn set_operator(&mut self, stream: u16, operator: Option<Box<dyn Operator + Send>>) {
        self.streams.set_operator(stream, operator);
    }

    /// Resets the function. Epochs go on. Operations at the medium stay in progress until they are answered, and later runs wait for the
    /// stores.
    pub fn reset(&mut self) {
        self.streams.reset();
        self.waiting.clear();
        self.orphan();
        for tasks in &mut self.tasks {
            tasks.rewind();
            tasks.memory.clear();
        }
    }

    /// Notes the stores whose runs have ended.
    fn orphan(&mut self) {
        for (number, tasks) in self.tasks.iter_mut().enumerate() {
            if !self.streams.stream(number as u16).is_running() {
                self.orphans.extend(tasks.storing.take());
            }
        }
    }

    /// Returns true if a store of an earlier run, of any stream, is in progress.
    fn waits_for_earlier(&self, stream: u16) -> bool {
        let after = self.tasks[usize::from(stream)].after;
        self.orphans.first().is_some_and(|token| *token <= after)
    }

    /// Reads BAR0.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        read(offset, bytes, |at| match self.streams.decode(at) {
            Decoded::Global(at) => self.streams.read_global(at),
            Decoded::Stream(stream, at) => self.read_stream(stream, at),
            Decoded::Task(stream, word) => {
                self.tasks[usize::from(stream)].memory.get(word / 2).map_or(0, |task| task[word % 2])
            }
            Decoded::Uoe(..) | Decoded::Nothing => 0,
        });
    }

    fn read_stream(&self, stream: u16, at: u64) -> u64 {
        let tasks = &self.tasks[usize::from(stream)];
        let value = self.streams.read_stream(stream, at, tasks.begun as u32);
        if at == register::STATUS && tasks.store.is_some() {
            let status = Status::from_bits(value);
            if matches!(status.state, State::Fetch | State::Calc) {
                return Status { state: State::Send, ..status }.bits();
            }
        }
        value
    }

    /// Writes BAR0: eight bytes, or either half of them. Other writes have no effect.
    pub fn write(&mut self, offset: u64, bytes: &[u8], now: Nanos) {
        let Some(access) = Access::of(offset, bytes) else { return };
        match self.streams.decode(access.at) {
            Decoded::Global(_) => self.streams.write_global(access),
            Decoded::Stream(stream, _) => {
                let command = self.streams.write_stream(stream, access, now);
                self.obey(stream, command, now);
            }
            Decoded::Task(stream, word) => {
                let memory = &mut self.tasks[usize::from(stream)].memory;
                if memory.len() <= word / 2 {
                    memory.resize(word / 2 + 1, [0; 2]);
                }
                let bits = &mut memory[word / 2][word % 2];
                *bits = access.into(*bits);
            }
            Decoded::Uoe(..) | Decoded::Nothing => {}
        }
    }

    fn obey(&mut self, stream: u16, command: Command, now: Nanos) {
        if command.clear {
            self.streams.clear(stream);
            self.streams.stream(stream).tail = 0;
            self.orphan();
            self.tasks[usize::from(stream)].rewind();
        }
        if command.start {
            self.start(stream, now);
        }
        if let Some(count) = command.end {
            self.end_at(stream, count, now);
        }
    }

    fn start(&mut self, number: u16, now: Nanos) {
        let role = self.streams.begin(number);
        self.orphan();
        let stream = self.streams.stream(number);
        let tasks = &mut self.tasks[usize::from(number)];
        let total = tasks.parse(stream.tail, &self.config);
        tasks.after = self.tokens;
        // Without a count, a sender sends everything.
        let total = total.filter(|total| stream.count <= *total).ok_or(Error::Tasks);
        match role {
            Role::Sender => {
                let plan = total.map(|total| {
                    let end = if stream.count == 0 { total } else { stream.count };
                    stream.sender_plan(Some(end), false)
                });
                self.streams.start_sender(number, plan, now);
            }
            Role::Receiver | Role::None => {
                let plan = total.map(|_| stream.receiver_plan(1 << self.config.block_shift));
                self.streams.start_receiver(number, plan, now);
            }
        }
    }

    fn end_at(&mut self, number: u16, count: u64, now: Nanos) {
        let tasks = &self.tasks[usize::from(number)];
        let blocks: u64 = tasks.list.iter().map(|task| u64::from(task.blocks)).sum();
        let count = if count == END_HERE { 0 } else { count };
        let stream = self.streams.stream(number);
        if count > blocks << self.config.block_shift {
            return stream.fail(Error::Tasks);
        }
        match stream.role {
            Role::Sender => stream.sender.end_at(count, now),
            Role::Receiver => stream.receiver.end_at(count),
            Role::None => {}
        }
    }

    /// Takes a write to the aperture.
    pub fn data(&mut self, offset: u64, bytes: &[u8], now: Nanos) {
        self.streams.data(offset, bytes, now);
    }

    /// Returns the next action; `None` if there is nothing to do before an event or [`Ssd::next_deadline`].
    pub fn poll(&mut self, now: Nanos) -> Option<Action> {
        while let Some(stream) = self.streams.turn(now) {
            if let Some(action) = self.step(stream, now) {
                self.streams.circle.add(stream);
                return Some(action);
            }
            self.streams.rest(stream);
            // The stream that was woken for the room may not need it any more.
            if self.outstanding.len() < self.config.outstanding {
                self.wake_waiting();
            }
        }
        None
    }

    /// Gives the stream that has waited longest for room a turn.
    fn wake_waiting(&mut self) {
        if let Some(waiting) = self.waiting.next() {
            self.streams.circle.add(waiting);
        }
    }

    fn step(&mut self, stream: u16, now: Nanos) -> Option<Action> {
        let grant = self.streams.grant_action(stream, now);
        let action = grant.or_else(|| self.read_action(stream)).or_else(|| self.store_action(stream));
        action
            .or_else(|| self.streams.data_action(stream, now))
            .or_else(|| self.streams.end_action(stream))
            // An end found just now is reported at once.
            .or_else(|| self.streams.grant_action(stream, now))
    }

    /// Returns the time to poll again if nothing happens before. 0: at once.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.streams.next_deadline()
    }

    fn begin_operation(&mut self, stream: u16) -> u64 {
        self.tokens += 1;
        self.outstanding.insert(self.tokens, stream);
        self.tokens
    }

    fn read_action(&mut self, number: u16) -> Option<Action> {
        let (config, waits) = (self.config, self.waits_for_earlier(number));
        let stream = self.streams.stream(number);
        if stream.role != Role::Sender || !stream.is_running() {
            return None;
        }
        let tasks = &self.tasks[usize::from(number)];
        let end = stream.sender.end()?.next_multiple_of(1 << config.block_shift);
        let (lba, left) = tasks.next_blocks()?;
        let wanted = (u64::from(left) << config.block_shift)
            .min(config.transfer.into())
            .min(end.saturating_sub(tasks.issued));
        // What was issued and not sent is in the queue, or on its way there.
        let held = tasks.issued.saturating_sub(stream.sender.sent());
        if wanted == 0 || held + wanted > config.read_ahead.into() || waits {
            return None;
        }
        if self.outstanding.len() >= config.outstanding {
            self.waiting.add(number);
            return None;
        }
        let token = self.begin_operation(number);
        let blocks = (wanted >> config.block_shift) as u32;
        let tasks = &mut self.tasks[usize::from(number)];
        tasks.advance(blocks, left);
        tasks.issued += wanted;
        tasks.reads.push_back(Reading { token, bytes: wanted, data: None });
        Some(Action::Read { token: Token(token), lba, blocks })
    }

    fn store_action(&mut self, number: u16) -> Option<Action> {
        let (config, waits) = (self.config, self.waits_for_earlier(number));
        let stream = self.streams.stream(number);
        let tasks = &self.tasks[usize::from(number)];
        if stream.role != Role::Receiver || tasks.storing.is_some() {
            return None;
        }
        let Some((lba, left)) = tasks.next_blocks() else {
            if stream.receiver.ready(u64::MAX) > 0 {
                stream.receiver.fail(Error::Tasks);
            }
            return None;
        };
        let most = (u64::from(left) << config.block_shift).min(config.transfer.into());
        let bytes = stream.receiver.ready(most);
        if bytes == 0 || waits {
            return None;
        }
        if self.outstanding.len() >= config.outstanding {
            self.waiting.add(number);
            return None;
        }
        let whole = bytes.next_multiple_of(1 << config.block_shift);
        let mut data = stream.receiver.take(bytes, (whole - bytes) as usize);
        data.resize(whole as usize, 0);
        let token = self.begin_operation(number);
        let tasks = &mut self.tasks[usize::from(number)];
        tasks.advance((whole >> config.block_shift) as u32, left);
        tasks.store = Some(bytes);
        tasks.storing = Some(token);
        Some(Action::Store { token: Token(token), lba, data })
    }

    /// Returns the stream of an operation that has ended. The stream may be in a later run, which does not have the operation.
    fn ended(&mut self, token: Token) -> Option<u16> {
        let stream = self.outstanding.remove(&token.0)?;
        self.tasks[usize::from(stream)].storing.take_if(|storing| *storing == token.0);
        if self.orphans.remove(&token.0) {
            (0..self.config.streams).for_each(|waiting| self.streams.circle.add(waiting));
        }
        self.wake_waiting();
        self.streams.circle.add(stream);
        Some(stream)
    }

    /// Reports that a read has ended, with the contents of its blocks.
    pub fn read_done(&mut self, token: Token, data: Result<Vec<u8>, MediumError>, now: Nanos) {
        let Some(number) = self.ended(token) else { return };
        let reads = &mut self.tasks[usize::from(number)].reads;
        let stream = self.streams.stream(number);
        let Some(read) = reads.iter_mut().find(|read| read.token == token.0) else { return };
        match data {
            Ok(data) if data.len() as u64 == read.bytes => read.data = Some(data),
            _ => return stream.fail(Error::Read),
        }
        stream.sender.touch(now);
        while let Some(data) = reads.front_mut().and_then(|read| read.data.take()) {
            stream.sender.queue.push(&data);
            reads.pop_front();
        }
    }

    /// Reports that a store has ended.
    pub fn store_done(&mut self, token: Token, result: Result<(), MediumError>, now: Nanos) {
        let is_orphan = self.orphans.contains(&token.0);
        let Some(number) = self.ended(token).filter(|_| !is_orphan) else { return };
        let Some(bytes) = self.tasks[usize::from(number)].store.take() else { return };
        let stream = self.streams.stream(number);
        match result {
            Ok(()) => stream.receiver.consume(bytes, now),
            Err(MediumError) => stream.fail(Error::Store),
        }
    }

    /// Reports that a write could not be delivered.
    pub fn write_failed(&mut self, origin: Origin) {
        self.streams.write_failed(origin);
    }
}
