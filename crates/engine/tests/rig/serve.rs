//! The engine's actions, served; what it promised in its interface is checked with each of them.

use super::device::Device;
use super::fault::{self, Kind, Where};
use super::short::Core;
use super::{Due, LATE, Rig};
use dcs_abi::descriptor::EndpointKind;
use dcs_abi::operator::Operator;
use dcs_abi::result::{STAGE_DESTINATION, STAGE_OPERATORS, STAGE_SLOTS, STAGE_SOURCE, StageTimes};
use dcs_abi::status::{Stage, Status};
use dcs_engine::{
    Action, Binding, BlockId, CommandId, EndpointRole, EndpointSpec, Event, Failure, Nanos, Operation,
    OperationId, OperationKind, Outcome, QueueId, TransferSpec,
};
use dcs_ndp::Context;
use std::sync::Arc;

/// A block's memory, and who has it.
#[derive(Debug)]
pub struct Block {
    pub bytes: Vec<u8>,
    pub(super) user: Option<OperationId>,
    /// Zero-copy sends that still read it.
    pub holds: u32,
}

impl Block {
    pub fn new(size: u32) -> Block {
        Block { bytes: vec![0xdb; size as usize], user: None, holds: 0 }
    }
}

/// A command that was bound.
pub struct Bound {
    pub queue: QueueId,
    pub spec: Arc<TransferSpec>,
    pub contexts: Vec<Context>,
    /// Bytes that went into each operator.
    pub covered: Vec<u64>,
    /// Times of its stages: what its result has to say.
    pub times: [StageTimes; STAGE_SLOTS],
}

/// An operation with its device.
#[derive(Clone, Debug)]
pub struct Flight {
    pub operation: Operation,
    /// The physical unit that works on it, with its operator.
    pub unit: Option<(Operator, u16)>,
    pub kind: Option<Kind>,
    /// It will be answered, when its time comes or when it is aborted.
    pub hangs: bool,
    pub aborted: bool,
    /// The device was reset under it.
    pub reset: bool,
    pub issued: Nanos,
}

impl<E: Core> Rig<E> {
    pub(super) fn serve(&mut self, action: Action) {
        match action {
            Action::FetchEntry { queue, slot } => self.fetch_entry(queue, slot),
            Action::FetchDescriptor { command, queue: _, address, length } => {
                self.soon(Due::Descriptor { command, address, length });
            }
            Action::Bind { command, queue, spec } => self.soon(Due::Bind { command, queue, spec }),
            Action::Run(short) => self.soon(Due::Run { short }),
            Action::Unbind { command } => self.unbind(command),
            Action::Issue(operation) => self.issue(operation),
            Action::StartPass { operator } => self.start_pass(operator),
            Action::Abort { operation } => self.abort(operation),
            Action::Complete { queue, slot, entry, result } => {
                self.on_completion(queue, slot, entry, result);
                if self.options.consume {
                    self.consume(queue);
                }
            }
            Action::QueueDeleted { queue } => self.queue_deleted(queue),
        }
    }

    /// At once or after a while.
    fn soon(&mut self, due: Due) {
        if self.options.immediate {
            return self.hand_in(due);
        }
        let delay = self.random.range(1, self.options.latency);
        self.later(delay, due);
    }

    fn fetch_entry(&mut self, queue: QueueId, slot: u16) {
        if self.options.immediate {
            return self.hand_in(Due::Entry { queue, slot });
        }
        // Entries of one queue come in order.
        let latency = self.random.range(1, self.options.latency);
        let state = self.queues.get_mut(&queue).expect("entries are fetched of queues that are there");
        state.fetch_at = state.fetch_at.max(self.now) + latency;
        let delay = state.fetch_at - self.now;
        self.later(delay, Due::Entry { queue, slot });
    }

    fn queue_deleted(&mut self, queue: QueueId) {
        assert!(self.bound.values().all(|bound| bound.queue != queue), "its commands are finished first");
        self.queues.remove(&queue).expect("a queue is deleted once");
        for command in self.submitted.iter_mut().filter(|command| command.queue == queue) {
            command.excused = true;
        }
        self.deleted.push(queue);
    }

    pub(super) fn happen(&mut self, due: Due) {
        self.hand_in(due);
        self.act();
    }

    fn hand_in(&mut self, due: Due) {
        match due {
            Due::Entry { queue, slot } => {
                let state = self.queues.get_mut(&queue).expect("a queue with fetches under way stays");
                assert_eq!(u64::from(slot), state.fetched % u64::from(state.config.depth), "in order");
                state.fetched += 1;
                let bytes = state.ring[slot as usize];
                E::enter(self, queue, &bytes);
            }
            Due::Descriptor { command, address, length } => {
                let bytes = self.memory.read(address, length);
                self.engine.handle(self.now, Event::Descriptor { command, bytes });
                self.memory.remove(address);
            }
            Due::Bind { command, queue, spec } => {
                let binding = self.bind(command, queue, spec);
                self.engine.handle(self.now, Event::Bound { command, binding });
            }
            Due::Run { short } => E::run(self, short),
            Due::Answer { operation } => self.answer(operation),
            Due::Again { operation, outcome } => {
                self.engine.handle(self.now, Event::Done { operation, outcome });
            }
            Due::Release { block, content } => {
                let state = &mut self.blocks[block.index()];
                assert!(state.bytes.starts_with(&content), "a block that a device still reads was changed");
                state.holds -= 1;
                self.engine.handle(self.now, Event::Released { block });
            }
        }
    }

    pub(super) fn bind(
        &mut self,
        command: CommandId,
        queue: QueueId,
        spec: Arc<TransferSpec>,
    ) -> Result<Binding, (Stage, u8, Failure)> {
        let ends = [(Stage::Source, Some(&spec.source)), (Stage::Destination, Some(&spec.destination))];
        for (stage, end) in ends.into_iter().chain([(Stage::Source, spec.prefix.as_ref())]) {
            if let Some(end) = end {
                self.check_end(stage, end).map_err(|status| (stage, 0, Failure::new(status)))?;
            }
        }
        let mut contexts = Vec::new();
        for (at, operator) in spec.chain.iter().enumerate() {
            let context = Context::new(operator.operator, &operator.parameter);
            contexts
                .push(context.map_err(|error| (Stage::Operator, at as u8, Failure::new(error.status())))?);
        }
        let direct = self.options.direct;
        let covered = vec![0; spec.chain.len()];
        let times = Default::default();
        let bound = Bound { queue, spec, contexts, covered, times };
        let has_slot = |other: &CommandId| other.slot() == command.slot();
        assert!(!self.bound.keys().any(has_slot), "the last command of its slot was let go of");
        assert!(self.bound.insert(command, bound).is_none(), "a command is bound once");
        Ok(Binding { direct, flush: self.options.flush })
    }

    fn check_end(&self, stage: Stage, end: &EndpointSpec) -> Result<(), Status> {
        let device = self.devices.get(end.handle as usize).ok_or(Status::BadHandle)?;
        if !device.is(end.kind) {
            return Err(Status::UnsupportedEndpoint);
        }
        let file = matches!(device, Device::File { .. });
        let inside = end.extents.iter().all(|at| at.offset + at.length <= device.bytes().len() as u64);
        if stage == Stage::Source && file && !inside { Err(Status::OutOfRange) } else { Ok(()) }
    }

    pub(super) fn unbind(&mut self, command: CommandId) {
        let bound = self.bound.remove(&command).expect("what is let go of was bound");
        self.times.push((bound.spec.destination.handle, bound.times));
        let mut mine = self.flights.values().filter(|flight| flight.operation.command == command);
        assert!(
            mine.all(|flight| flight.kind == Some(Kind::Drop)),
            "only hung operations outlive their command"
        );
    }

    pub(super) fn issue(&mut self, operation: Operation) {
        let bound = self.bound.get(&operation.command).expect("operations are those of bound commands");
        let (queue, spec) = (bound.queue, Arc::clone(&bound.spec));
        let unit = self.check_operation(&operation, &spec);
        self.trace.push((queue, operation.kind));
        let place = Where::of(&operation.kind);
        let struck =
            self.faults.iter_mut().find_map(|fault| fault.strikes(queue, place).then_some(fault.kind));
        let hangs = self.device_hangs(&operation.kind, &spec);
        if struck == Some(Kind::Reset) {
            self.reset_device(operation.command, place);
        }
        if struck == Some(Kind::Truncate) {
            self.truncate(&operation.kind, &spec);
        }
        let reset = struck == Some(Kind::Reset);
        let (aborted, issued) = (false, self.now);
        self.time_issue(&operation);
        let flight = Flight { operation, unit, kind: struck, hangs, aborted, reset, issued };
        let known = self.flights.insert(operation.id, flight);
        assert!(known.is_none(), "an operation's identifier is its own");
        let delay = match struck {
            Some(Kind::Drop) => LATE,
            Some(Kind::Delay) => self.random.range(1, 1000) * self.options.latency,
            _ => self.random.range(1, self.options.latency),
        };
        let paced = match operation.kind {
            OperationKind::Write { .. } if struck.is_none() => {
                self.devices[spec.destination.handle as usize].write_takes(self.now)
            }
            _ => None,
        };
        let delay = paced.unwrap_or(delay);
        let multi_lane = unit.filter(|(operator, _)| self.engine.config().multi_lane.contains(operator));
        if let Some((operator, _)) =
            multi_lane.filter(|_| matches!(operation.kind, OperationKind::Process { .. }))
        {
            let extra = if struck.is_some() { delay } else { 0 };
            self.in_lanes.push((operator, operation.id, extra));
            self.joined.insert(operation.id, self.now);
        } else if !hangs || struck == Some(Kind::Drop) {
            self.later(delay, Due::Answer { operation: operation.id });
        }
    }

    /// All that is in the lanes of an operator is processed in the same time.
    fn start_pass(&mut self, operator: Operator) {
        let (now, later) =
            std::mem::take(&mut self.in_lanes).into_iter().partition(|entry| entry.0 == operator);
        self.in_lanes = later;
        let now: Vec<(Operator, OperationId, u64)> = now;
        let lanes =
            self.engine.config().units.iter().find(|unit| unit.0 == operator).map_or(0, |unit| unit.1);
        assert!((1..=lanes as usize).contains(&now.len()), "a pass has blocks, and no more than lanes");
        self.passes.push((self.now, operator, now.len()));
        let time = self.options.pass_time.unwrap_or_else(|| self.random.range(1, self.options.latency));
        for (_, operation, extra) in now {
            let joined = self.joined.remove(&operation).expect("it came into its lane");
            self.waits.push(self.now - joined);
            self.later(time + extra, Due::Answer { operation });
        }
    }

    pub(super) fn device_hangs(&self, kind: &OperationKind, spec: &TransferSpec) -> bool {
        let hangs = |end: &EndpointSpec| self.devices[end.handle as usize].hangs();
        match kind {
            OperationKind::Read { role: EndpointRole::Source, .. } => hangs(&spec.source),
            OperationKind::Write { .. } | OperationKind::Flush => hangs(&spec.destination),
            OperationKind::Direct { .. } => hangs(&spec.source) || hangs(&spec.destination),
            _ => false,
        }
    }

    /// The other operations that the device has of the command fail with this one.
    fn reset_device(&mut self, command: CommandId, place: Where) {
        let mine = self.flights.values_mut().filter(|flight| flight.operation.command == command);
        for flight in mine.filter(|flight| Where::of(&flight.operation.kind) == place) {
            flight.reset = true;
        }
    }

    /// The source is cut off where this operation reads it.
    fn truncate(&mut self, kind: &OperationKind, spec: &TransferSpec) {
        let (OperationKind::Read { role: EndpointRole::Source, offset, .. }
        | OperationKind::Direct { source: offset, .. }) = *kind
        else {
            return;
        };
        if let Device::File { bytes, .. } = &mut self.devices[spec.source.handle as usize] {
            bytes.truncate(offset as usize);
        }
    }

    fn abort(&mut self, operation: OperationId) {
        let flight = self.flights.get_mut(&operation).expect("only what is in flight is aborted");
        assert!(!flight.aborted, "an operation is aborted once");
        flight.aborted = true;
        if flight.kind != Some(Kind::Drop) {
            let delay = self.random.range(1, self.options.latency);
            self.later(delay, Due::Answer { operation });
        }
    }

    fn answer(&mut self, operation: OperationId) {
        // An aborted operation is due twice; the first time counts.
        let Some(flight) = self.flights.remove(&operation) else { return };
        self.in_lanes.retain(|(_, other, _)| *other != operation);
        let outcome = self.outcome(&flight);
        self.give_back(&flight);
        self.time_answer(&flight);
        self.engine.handle(self.now, Event::Done { operation, outcome });
        if flight.kind == Some(Kind::Duplicate) {
            let delay = self.random.range(1, 10 * self.options.latency);
            self.later(delay, Due::Again { operation, outcome });
            self.act();
            self.engine.handle(self.now, Event::Done { operation, outcome });
        }
    }

    pub(super) fn outcome(&mut self, flight: &Flight) -> Outcome {
        let kind = flight.operation.kind;
        let failed = |status| Outcome::Failed(Failure::new(status));
        match flight.kind {
            _ if flight.reset => failed(Status::DeviceReset),
            Some(Kind::BadStatus) => Outcome::Failed(fault::failure(Where::of(&kind))),
            Some(Kind::Stuck) => {
                blocks_of(&kind).into_iter().flatten().for_each(|block| self.hold(block));
                Outcome::FailedHeld(fault::failure(Where::of(&kind)))
            }
            Some(Kind::FalseSuccess) => failed(Status::Success),
            Some(Kind::Hole) => Outcome::Moved { bytes: 0, path: 0, held: false },
            Some(Kind::Lie) => fault::lie(&kind, flight.unit.map(|unit| unit.0), &mut self.random),
            // Late: the world has gone on.
            Some(Kind::Drop) => failed(Status::DeviceReset),
            _ if flight.aborted && (flight.hangs || self.random.one_in(2)) => failed(Status::Cancelled),
            _ => self.carry_out(flight),
        }
    }

    /// The blocks and the unit of an operation are the engine's again.
    fn give_back(&mut self, flight: &Flight) {
        for block in blocks_of(&flight.operation.kind).into_iter().flatten() {
            assert_eq!(self.blocks[block.index()].user.take(), Some(flight.operation.id));
        }
        if let Some(unit) = &flight.unit {
            assert!(self.units.remove(unit));
        }
    }
}

// The times of stages, as the results are to have them.
impl<E: Core> Rig<E> {
    fn time_issue(&mut self, operation: &Operation) {
        let now = self.now;
        if let Some(bound) = self.bound.get_mut(&operation.command) {
            let times = &mut bound.times[timed(&operation.kind)];
            if times.operations == 0 {
                times.first_issue = now.max(1);
            }
            times.operations += 1;
        }
    }

    /// An answer; one to a command that is over is told nowhere.
    fn time_answer(&mut self, flight: &Flight) {
        let now = self.now;
        if let Some(bound) = self.bound.get_mut(&flight.operation.command) {
            let times = &mut bound.times[timed(&flight.operation.kind)];
            times.last_done = now;
            times.busy += now - flight.issued;
        }
    }
}

/// The place of an operation's stage among the times.
fn timed(kind: &OperationKind) -> usize {
    match *kind {
        OperationKind::Read { .. } => STAGE_SOURCE,
        OperationKind::Write { .. } | OperationKind::Direct { .. } | OperationKind::Flush => {
            STAGE_DESTINATION
        }
        OperationKind::Process { operator, .. }
        | OperationKind::Resize { operator, .. }
        | OperationKind::Snapshot { operator } => STAGE_OPERATORS + usize::from(operator),
    }
}

/// The blocks that an operation uses.
pub(super) fn blocks_of(kind: &OperationKind) -> [Option<BlockId>; 2] {
    match *kind {
        OperationKind::Read { block, .. }
        | OperationKind::Write { block, .. }
        | OperationKind::Process { block, .. } => [Some(block), None],
        OperationKind::Resize { block, output, .. } => [Some(block), Some(output)],
        _ => [None, None],
    }
}

// What the engine promises of each operation.
impl<E: Core> Rig<E> {
    fn check_operation(&mut self, operation: &Operation, spec: &TransferSpec) -> Option<(Operator, u16)> {
        let size = u64::from(self.engine.config().block_size);
        match operation.kind {
            OperationKind::Read { role, offset, start, length, .. } => {
                let end =
                    if role == EndpointRole::Prefix { spec.prefix.as_ref() } else { Some(&spec.source) };
                granted(end.expect("there is a prefix"), offset, u64::from(length));
                self.check_alone(operation, role);
                assert!(u64::from(start) + u64::from(length) <= size);
            }
            OperationKind::Write { offset, start, length, .. } => {
                granted(&spec.destination, offset, u64::from(length));
                self.check_alone(operation, EndpointRole::Destination);
                assert!(u64::from(start) + u64::from(length) <= size);
            }
            OperationKind::Direct { source, destination, length, .. } => {
                granted(&spec.source, source, length);
                granted(&spec.destination, destination, length);
                assert!(spec.chain.is_empty(), "a direct path has no operators");
            }
            OperationKind::Process { length, .. } => assert!(u64::from(length) <= size),
            OperationKind::Resize { start, length, output_start, output_length, .. } => {
                assert!(u64::from(start) + u64::from(length) <= size && output_length > 0);
                assert!(u64::from(output_start) + u64::from(output_length) <= size);
            }
            OperationKind::Snapshot { .. } | OperationKind::Flush => {}
        }
        self.check_blocks(operation);
        self.check_unit(operation, spec)
    }

    /// No block is given to two operations; what a device still reads is only read.
    fn check_blocks(&mut self, operation: &Operation) {
        let reads_only = matches!(operation.kind, OperationKind::Write { .. });
        for id in blocks_of(&operation.kind).into_iter().flatten() {
            let block = &mut self.blocks[id.index()];
            assert_eq!(block.user.replace(operation.id), None, "block {id:?} has two users: {operation:?}");
            assert!(block.holds == 0 || reads_only, "block {id:?} is still being sent: {operation:?}");
        }
    }

    fn check_unit(&mut self, operation: &Operation, spec: &TransferSpec) -> Option<(Operator, u16)> {
        let (OperationKind::Process { unit, operator, .. } | OperationKind::Resize { unit, operator, .. }) =
            operation.kind
        else {
            return None;
        };
        let operator = spec.chain[operator as usize].operator;
        let units = &self.engine.config().units;
        assert!(units.iter().any(|(other, count)| *other == operator && unit < *count));
        assert!(self.units.insert((operator, unit)), "one block at a time in a unit");
        Some((operator, unit))
    }

    /// A stream has one operation at a time of each command, or its bytes would be in no order.
    fn check_alone(&self, operation: &Operation, role: EndpointRole) {
        let bound = &self.bound[&operation.command];
        let kind = if role == EndpointRole::Destination {
            bound.spec.destination.kind
        } else {
            bound.spec.source.kind
        };
        if role == EndpointRole::Prefix || kind.is_positional() {
            return;
        }
        let same = |other: &OperationKind| {
            matches!(
                (role, other),
                (EndpointRole::Source, OperationKind::Read { .. })
                    | (EndpointRole::Destination, OperationKind::Write { .. })
            )
        };
        let mut mine = self.flights.values().filter(|flight| flight.operation.command == operation.command);
        assert!(!mine.any(|flight| same(&flight.operation.kind)), "a stream is in order");
    }
}

/// Inside one extent of the endpoint, and not empty.
pub(super) fn granted(end: &EndpointSpec, offset: u64, length: u64) {
    assert!(length > 0, "an operation moves something");
    if end.kind.is_positional() {
        let inside = |at: &dcs_abi::descriptor::Extent| {
            at.offset <= offset && offset + length <= at.offset + at.length
        };
        assert!(end.extents.iter().any(inside), "{offset}+{length} is outside of {:?}", end.extents);
    } else {
        assert_eq!(offset, 0);
        assert!(matches!(end.kind, EndpointKind::Flow | EndpointKind::Stream | EndpointKind::Paced));
    }
}
