//! Arbitrary event streams: whatever the bytes say, the engine neither panics nor breaks its promises.
//!
//! [`run`] is what a fuzz target calls. The bytes decide which events come: right answers, wrong answers,
//! answers to nothing, doorbells, entries and descriptors. At the end every device answers, and the engine
//! must be idle.

use super::serve::{blocks_of, granted};
use dcs_abi::descriptor::{Builder, Endpoint, EndpointKind, EndpointRole, Extent, OPEN_END, Plain};
use dcs_abi::entry::{LENGTH_TO_END, OPCODE_TRANSFER, SubmissionEntry};
use dcs_abi::inline::InlineEntry;
use dcs_abi::operator::OPERATORS;
use dcs_abi::result::DigestSlot;
use dcs_abi::status::{STATUSES, Stage};
use dcs_engine::{
    Action, Binding, BlockId, CommandId, Config, Engine, Event, Failure, Operation, OperationId,
    OperationKind, Outcome, Passage, Posted, Progress, QueueConfig, QueueId, Ran, Short, Then, TransferSpec,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Handles of an inline entry's ends.
const INLINE_HANDLE: u32 = 77;

/// Runs an engine on the events that `data` spells; tells how many inline entries came so far that they were to be run, and how many
/// commands went through.
pub fn run(data: &[u8]) -> (usize, usize) {
    let mut world = World::new(data);
    while !world.bytes.is_empty() {
        world.event();
        world.act();
    }
    world.end();
    (world.inlined, world.through)
}

/// The read or write of a short command.
fn operation_of(short: &Short, stage: u8) -> Operation {
    let kind = super::short::kind(short, stage);
    Operation { id: short.operation.later(stage.into()), command: short.command, kind }
}

const QUEUES: u16 = 3;
const BLOCK: u32 = 4096;

struct World<'a> {
    bytes: &'a [u8],
    engine: Engine,
    now: u64,
    /// The answers that the engine waits for.
    fetches: VecDeque<QueueId>,
    descriptors: Vec<(CommandId, u32)>,
    binds: Vec<(CommandId, Arc<TransferSpec>)>,
    /// Short commands that are to be run.
    shorts: Vec<Short>,
    flights: Vec<Operation>,
    /// The commands that are bound.
    bound: BTreeMap<CommandId, Arc<TransferSpec>>,
    /// Everything that was in flight once.
    past: Vec<OperationId>,
    users: BTreeMap<BlockId, OperationId>,
    holds: BTreeMap<BlockId, u32>,
    /// A finished command may leave operations behind where its grace has run out.
    expired: bool,
    /// Inline entries that were to be run.
    inlined: usize,
    through: usize,
}

impl<'a> World<'a> {
    fn new(bytes: &'a [u8]) -> World<'a> {
        let units = OPERATORS.iter().map(|info| (info.operator, 1)).collect();
        let config = Config {
            block_size: BLOCK,
            blocks: 20,
            window: 2,
            cached_blocks: 4,
            commands: 8,
            queues: QUEUES,
            units,
            gpu: Vec::new(),
            multi_lane: vec![OPERATORS[0].operator, OPERATORS[7].operator],
            direct_chunk: 5000,
            short: true,
            weights: vec![2, 1],
            abort_grace: 1000,
        };
        let mut world = World {
            bytes,
            engine: Engine::new(config).expect("sound sizes"),
            now: 0,
            fetches: VecDeque::new(),
            descriptors: Vec::new(),
            binds: Vec::new(),
            shorts: Vec::new(),
            flights: Vec::new(),
            bound: BTreeMap::new(),
            past: Vec::new(),
            users: BTreeMap::new(),
            holds: BTreeMap::new(),
            expired: false,
            inlined: 0,
            through: 0,
        };
        world.add_queue();
        world
    }

    /// The next byte; 0 after the end.
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n.max(1)
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes(core::array::from_fn(|_| self.byte()))
    }

    fn tell(&mut self, event: Event<'_>) {
        self.now += 10;
        self.engine.handle(self.now, event);
    }

    fn add_queue(&mut self) {
        let (tenant, weight) = (u16::from(self.byte() & 1), 1 + u16::from(self.byte() & 3));
        let function = tenant * (weight & 1);
        self.engine.add_queue(QueueConfig { function, tenant, depth: 8, weight, number: None });
    }

    fn event(&mut self) {
        let queue = QueueId(self.below(QUEUES as usize + 1) as u16);
        match self.byte() % 16 {
            0 => self.add_queue(),
            1 => {
                let tail = u32::from(self.byte() % 10);
                self.tell(Event::SubmissionDoorbell { queue, tail });
            }
            2 => {
                let head = u32::from(self.byte() % 10);
                self.tell(Event::CompletionDoorbell { queue, head });
            }
            3 => self.tell(Event::DeleteQueue { queue }),
            4 => {
                let block = BlockId(u32::from(self.byte() % 24));
                self.release(block);
            }
            5 => {
                let operation = OperationId::from_bits(u64::from(self.word()) << 32 | u64::from(self.byte()));
                if !self.flights.iter().any(|flight| flight.id == operation) {
                    self.stale_done(operation);
                }
            }
            6 if !self.past.is_empty() => {
                let at = self.below(self.past.len());
                self.stale_done(self.past[at]);
            }
            7 => {
                let at = self.now.max(self.engine.next_timeout().unwrap_or(0));
                self.expired = true;
                self.now = at;
                self.engine.handle_timeout(at);
            }
            8 | 9 => self.entry(),
            10 | 11 => self.descriptor(),
            12 if !self.shorts.is_empty() => self.run_short(),
            12 => self.bind(),
            _ => self.done(),
        }
    }

    /// An answer to what is not in flight changes nothing.
    fn stale_done(&mut self, operation: OperationId) {
        let outcome = self.any_outcome();
        let before = self.engine.counters().stale_events;
        self.tell(Event::Done { operation, outcome });
        assert_eq!(self.engine.counters().stale_events, before + 1);
    }

    fn release(&mut self, block: BlockId) {
        if let Some(holds) = self.holds.get_mut(&block) {
            *holds -= 1;
            if *holds == 0 {
                self.holds.remove(&block);
            }
        }
        self.tell(Event::Released { block });
    }

    /// An entry: a transfer for the most part, or anything.
    fn entry(&mut self) {
        let Some(queue) = self.fetches.pop_front() else { return };
        let mut entry = SubmissionEntry {
            opcode: OPCODE_TRANSFER,
            cid: u16::from(self.byte() % 16),
            rid: u32::from(self.byte() % 3),
            descriptor_length: 600,
            length: LENGTH_TO_END,
            timeout_ms: u32::from(self.byte() % 3),
            flags: u16::from(self.byte() % 8),
            result_address: u64::from(self.byte() & 1),
            ..Default::default()
        };
        for at in 0..self.below(9) {
            entry.op_chain[at] = OPERATORS[self.below(OPERATORS.len())].operator as u8;
        }
        match self.byte() % 8 {
            0 => entry = SubmissionEntry::cancel(entry.cid, queue.0, u16::from(self.byte() % 16)),
            1 => entry.length = u64::from(self.word() % 50_000),
            _ => {}
        }
        let inline = if self.byte().is_multiple_of(2) { self.inline(entry) } else { None };
        let mut bytes = inline.map_or_else(|| entry.to_bytes(), |inline| inline.to_bytes());
        if self.byte().is_multiple_of(8) {
            let at = self.below(64);
            bytes[at] ^= self.byte();
        }
        if self.byte().is_multiple_of(2) {
            return self.tell(Event::Entry { queue, bytes: &bytes });
        }
        self.enter(queue, &bytes);
    }

    /// Hands an entry in, and runs it if it goes through.
    fn enter(&mut self, queue: QueueId, bytes: &[u8; 64]) {
        self.now += 10;
        // Whoever runs it has no engine to ask meanwhile.
        let tiny = Config { blocks: 100, commands: 2, queues: 1, ..self.engine.config().clone() };
        let mut engine = std::mem::replace(&mut self.engine, Engine::new(tiny).expect("its sizes are sound"));
        let posted = engine.enter(self.now, queue, bytes, |passage, ran| {
            let Passage { command, queue, operation, block, until, .. } = *passage;
            let spec = Arc::new(passage.spec.clone());
            let until = until.unwrap_or(spec.stages());
            self.through += 1;
            let short = Short { command, queue, spec, operation, block, until };
            if self.byte().is_multiple_of(8) {
                let refused = (Stage::from_number(self.byte() % 6), self.byte() % 9, self.failure());
                return Progress::Bound(Err(refused));
            }
            self.run_as_told(&short, ran);
            Progress::Ran(self.now + u64::from(self.byte()))
        });
        self.engine = engine;
        if let Some(Posted { entry, .. }) = posted {
            assert!(entry.status().is_success());
        }
    }

    /// The entry with its ends in it, as far as they, and two of its operators, can be there.
    fn inline(&mut self, mut entry: SubmissionEntry) -> Option<InlineEntry> {
        entry.op_chain[2..].fill(0);
        if !self.byte().is_multiple_of(4) {
            (entry.rid, entry.timeout_ms, entry.flags, entry.result_address) = (0, 0, 0, 8);
        }
        entry.length = 1 + u64::from(self.word() % 5_000);
        let mut end = |length| {
            let kind = [EndpointKind::File, EndpointKind::Flow, EndpointKind::Memory, EndpointKind::Stream]
                [self.below(4)];
            let endpoint = Endpoint { kind: kind as u8, handle: INLINE_HANDLE, ..Default::default() };
            let offset = u64::from(self.word());
            let length = if kind == EndpointKind::File { length } else { Some(entry.length) };
            let length = length.unwrap_or(OPEN_END - offset);
            (endpoint, kind.is_positional().then_some(Extent { offset, length }))
        };
        let plain = Plain { source: end(Some(entry.length)), destination: end(None) };
        InlineEntry::new(&entry, &plain)
    }

    /// A descriptor: a sound one for the most part.
    fn descriptor(&mut self) {
        if self.descriptors.is_empty() {
            return;
        }
        let at = self.below(self.descriptors.len());
        let (command, length) = self.descriptors.swap_remove(at);
        let mut bytes = vec![0; 4096];
        let mut builder = Builder::new(&mut bytes).expect("a header fits");
        for role in [EndpointRole::Prefix, EndpointRole::Source, EndpointRole::Destination] {
            let kind = if role == EndpointRole::Prefix {
                [0, 4][self.below(2)]
            } else {
                [1, 3, 4, 6][self.below(4)]
            };
            let endpoint = Endpoint { kind, ..Default::default() };
            let count = if matches!(kind, 1 | 4) { 1 + self.below(3) } else { 0 };
            let extents: Vec<Extent> = (0..count)
                .map(|_| Extent {
                    offset: u64::from(self.word()),
                    length: 1 + u64::from(self.word() % 20_000),
                })
                .collect();
            builder.endpoint(role, endpoint, &extents).expect("there is room");
        }
        for at in 0..self.below(9) {
            let length = [0, 1, 48, 80][self.below(4)];
            builder.parameter(at, &vec![9; length]).expect("there is room");
        }
        builder.finish();
        bytes.truncate(length as usize);
        bytes.resize(length as usize, 0);
        let total = length.min(4096);
        bytes.get_mut(4..8).into_iter().for_each(|field| field.copy_from_slice(&total.to_le_bytes()));
        if self.byte().is_multiple_of(8) && !bytes.is_empty() {
            let at = self.below(bytes.len());
            bytes[at] ^= self.byte();
        }
        let bytes = (!self.byte().is_multiple_of(16)).then_some(bytes);
        self.tell(Event::Descriptor { command, bytes: bytes.as_deref() });
    }

    fn bind(&mut self) {
        if self.binds.is_empty() {
            return;
        }
        let at = self.below(self.binds.len());
        let (command, spec) = self.binds.swap_remove(at);
        let binding = match self.byte() % 8 {
            0 => Err((Stage::from_number(self.byte() % 6), self.byte() % 9, self.failure())),
            bits => Ok(Binding { direct: bits & 1 == 1, flush: bits & 2 == 2 }),
        };
        if binding.is_ok() {
            self.bound.insert(command, spec);
        }
        self.tell(Event::Bound { command, binding });
        self.tell(Event::Bound { command, binding: Ok(Binding::default()) });
    }

    /// Runs a short command as far as the bytes say, and perhaps tells of it what cannot be.
    fn run_short(&mut self) {
        let at = self.below(self.shorts.len());
        let short = self.shorts.swap_remove(at);
        let mut ran = Ran::new(Binding::default(), self.now);
        self.run_as_told(&short, &mut ran);
        let command = short.command;
        self.tell(Event::Ran { command, ran: &ran });
        self.tell(Event::Ran { command, ran: &ran });
    }

    fn run_as_told(&mut self, short: &Short, ran: &mut Ran) {
        let (command, spec) = (short.command, Arc::clone(&short.spec));
        let stages = spec.stages();
        self.bound.insert(command, spec);
        ran.binding = Binding { direct: false, flush: self.byte() & 1 == 1 };
        for stage in 0..self.below(short.until as usize + 1) as u8 {
            if stage > 0 && usize::from(stage) <= short.spec.chain.len() {
                let sound = self.digest_of(command, stage - 1).filter(|_| !self.byte().is_multiple_of(8));
                ran.digests[usize::from(stage) - 1] = sound.unwrap_or_default();
            }
            ran.pass(self.now + u64::from(self.byte()), 1);
        }
        let next = ran.done;
        let is_end = next == 0 || next + 1 == stages;
        match self.byte() % 4 {
            0 if next < stages && is_end => {
                ran.then = Then::Begun;
                self.issue(operation_of(short, next));
            }
            1 if next < stages => {
                let outcome = self.any_outcome();
                if matches!(outcome, Outcome::Moved { held: true, .. } | Outcome::FailedHeld(_)) {
                    *self.holds.entry(short.block).or_default() += 1;
                }
                ran.then = Then::Answered(outcome);
            }
            _ => {}
        }
        if next == stages && !ran.binding.flush {
            self.bound.remove(&command);
        }
    }

    fn failure(&mut self) -> Failure {
        Failure::new(STATUSES[self.below(STATUSES.len())].status)
    }

    fn done(&mut self) {
        if self.flights.is_empty() {
            return;
        }
        let at = self.below(self.flights.len());
        let operation = self.flights.swap_remove(at);
        let outcome = self.outcome(&operation);
        self.answer(&operation, outcome);
    }

    fn answer(&mut self, operation: &Operation, outcome: Outcome) {
        for block in blocks_of(&operation.kind).into_iter().flatten() {
            assert_eq!(self.users.remove(&block), Some(operation.id));
        }
        let held = matches!(outcome, Outcome::Moved { held: true, .. } | Outcome::FailedHeld(_));
        if let (true, [Some(block), _]) = (held, blocks_of(&operation.kind)) {
            *self.holds.entry(block).or_default() += 1;
        }
        self.past.push(operation.id);
        self.tell(Event::Done { operation: operation.id, outcome });
    }

    /// A right outcome for the most part, or any.
    fn outcome(&mut self, operation: &Operation) -> Outcome {
        let sound = self.byte() % 8;
        if sound == 0 {
            return self.any_outcome();
        }
        let part = |length: u32, byte: u8| if byte & 3 == 0 { length.div_ceil(2) } else { length };
        let shape = self.byte();
        let command = operation.command;
        match operation.kind {
            OperationKind::Read { length, .. } => {
                let bytes = if shape.is_multiple_of(16) { 0 } else { u64::from(part(length, shape)) };
                Outcome::Moved { bytes, path: 1, held: false }
            }
            OperationKind::Write { length, .. } => {
                Outcome::Moved { bytes: u64::from(part(length, shape)), path: 4, held: shape & 16 != 0 }
            }
            OperationKind::Direct { length, .. } => {
                let bytes = if shape.is_multiple_of(4) { 0 } else { length };
                Outcome::Moved { bytes, path: 16, held: false }
            }
            OperationKind::Process { length, last, operator, .. } => {
                match self.digest_of(command, operator) {
                    Some(digest) if last => Outcome::Digest(digest),
                    _ => Outcome::Processed { consumed: length, produced: 0, finished: false },
                }
            }
            OperationKind::Resize { length, output_length, last, .. } => {
                let produced = part(output_length, shape).min(length + 1);
                Outcome::Processed { consumed: length, produced, finished: last }
            }
            OperationKind::Snapshot { operator } => {
                self.digest_of(command, operator).map_or(Outcome::Flushed, Outcome::Digest)
            }
            OperationKind::Flush => Outcome::Flushed,
        }
    }

    /// A digest that the operator at that place of a command's chain could tell, if it is one.
    fn digest_of(&self, command: CommandId, at: u8) -> Option<DigestSlot> {
        let operator = self.bound.get(&command)?.chain[at as usize].operator;
        let (size, operator) = (operator.digest_size() as u8, operator as u8);
        (size > 0).then_some(DigestSlot { operator, size, ..Default::default() })
    }

    fn any_outcome(&mut self) -> Outcome {
        match self.byte() % 7 {
            0 => {
                let held = self.byte() & 1 == 1;
                Outcome::Moved { bytes: u64::from(self.word()), path: self.word(), held }
            }
            1 => Outcome::Processed {
                consumed: self.word() % 9000,
                produced: self.word() % 9000,
                finished: self.byte() & 1 == 1,
            },
            2 => {
                Outcome::Digest(DigestSlot { operator: self.byte(), size: self.byte(), ..Default::default() })
            }
            3 => Outcome::Flushed,
            4 => Outcome::FailedHeld(self.failure()),
            5 => Outcome::Concluded {
                produced: self.word() % 9000,
                value: DigestSlot { operator: self.byte(), size: self.byte(), ..Default::default() },
            },
            _ => Outcome::Failed(self.failure()),
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.engine.poll_action() {
            match action {
                Action::FetchEntry { queue, .. } => self.fetches.push_back(queue),
                Action::FetchDescriptor { command, length, .. } => self.descriptors.push((command, length)),
                Action::Bind { command, spec, .. } => self.binds.push((command, spec)),
                Action::Run(short) => {
                    self.inlined += usize::from(short.spec.source.handle == INLINE_HANDLE);
                    self.shorts.push(short);
                }
                Action::Issue(operation) => self.issue(operation),
                Action::Unbind { command } => {
                    assert!(self.bound.remove(&command).is_some(), "what is let go of was bound");
                    let left = self.flights.iter().any(|flight| flight.command == command);
                    assert!(!left || self.expired, "nothing is in flight but what hung");
                }
                Action::Abort { operation } => {
                    assert!(self.flights.iter().any(|flight| flight.id == operation));
                }
                Action::Complete { entry, .. } => {
                    assert_eq!(entry.status().is_success(), entry.stage() == Stage::None);
                }
                Action::QueueDeleted { .. } | Action::StartPass { .. } => {}
            }
        }
    }

    fn issue(&mut self, operation: Operation) {
        let spec = Arc::clone(&self.bound[&operation.command]);
        match operation.kind {
            OperationKind::Read { role, offset, length, start, .. } => {
                let end =
                    if role == EndpointRole::Prefix { spec.prefix.as_ref() } else { Some(&spec.source) };
                granted(end.expect("there is a prefix"), offset, u64::from(length));
                assert!(start + length <= BLOCK);
            }
            OperationKind::Write { offset, length, start, .. } => {
                granted(&spec.destination, offset, u64::from(length));
                assert!(start + length <= BLOCK);
            }
            OperationKind::Direct { source, destination, length, .. } => {
                granted(&spec.source, source, length);
                granted(&spec.destination, destination, length);
            }
            _ => {}
        }
        let reads_only = matches!(operation.kind, OperationKind::Write { .. });
        for block in blocks_of(&operation.kind).into_iter().flatten() {
            assert_eq!(self.users.insert(block, operation.id), None, "two users: {operation:?}");
            assert!(reads_only || !self.holds.contains_key(&block), "still read: {operation:?}");
        }
        self.flights.push(operation);
    }

    /// Everything is answered, everything is read; then nothing may be left.
    fn end(&mut self) {
        for _ in 0..10_000 {
            (0..QUEUES).for_each(|queue| self.tell(Event::DeleteQueue { queue: QueueId(queue) }));
            self.act();
            while let Some(queue) = self.fetches.pop_front() {
                self.tell(Event::Entry { queue, bytes: &[0; 64] });
            }
            for (command, _) in std::mem::take(&mut self.descriptors) {
                self.tell(Event::Descriptor { command, bytes: None });
            }
            for (command, spec) in std::mem::take(&mut self.binds) {
                self.bound.insert(command, spec);
                self.tell(Event::Bound { command, binding: Ok(Binding::default()) });
            }
            for short in std::mem::take(&mut self.shorts) {
                let binding = Err((Stage::Source, 0, self.failure()));
                self.tell(Event::Bound { command: short.command, binding });
            }
            for operation in std::mem::take(&mut self.flights) {
                let failure = self.failure();
                self.answer(&operation, Outcome::Failed(failure));
            }
            let holds: Vec<_> = self.holds.keys().copied().collect();
            holds.into_iter().for_each(|block| self.release(block));
            self.act();
            if self.engine.is_idle() {
                return;
            }
        }
        panic!("a leak: {:#?}", self.engine);
    }
}
