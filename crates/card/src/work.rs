//! The engine's operations on the card: checks and binds endpoints, performs reads, writes and operators.

use crate::card::Card;
use crate::handles::{Access, HandleTarget};
use crate::host::PendingRead;
use crate::part::Part;
use dcs_abi::descriptor::{EndpointKind, Pace};
use dcs_abi::entry::LENGTH_TO_END;
use dcs_abi::status::{Stage, Status};
use dcs_drivers::bus::{Buses, Window};
use dcs_drivers::network::{Read, WriteTo};
use dcs_drivers::ssd::{Job, Span, Work};
use dcs_engine::{
    Binding, BlockId, CommandId, EndpointRole, EndpointSpec, Failure, Operation, OperationId, OperationKind,
    Outcome, QueueId, TransferSpec,
};
use std::sync::Arc;

/// A command's endpoints and operators.
#[derive(Debug)]
pub(crate) struct Bound {
    /// The function whose command it is.
    pub(crate) function: usize,
    pub(crate) spec: Arc<TransferSpec>,
    /// Names of the source's and the destination's handle at the command's start.
    pub(crate) names: [Option<u64>; 2],
    /// Bytes requested of the source so far.
    pub(crate) read: u64,
    /// Set once a paced destination has begun its transfer.
    pub(crate) begun: bool,
}

impl Card {
    pub(crate) fn bind(
        &mut self,
        command: CommandId,
        queue: QueueId,
        spec: Arc<TransferSpec>,
    ) -> Result<Binding, (Stage, u8, Failure)> {
        let failed = |stage, status| (stage, 0, Failure::new(status));
        let function = self.owner(queue);
        if let Some(prefix) = &spec.prefix {
            self.check(function, prefix, false).map_err(|status| failed(Stage::Source, status))?;
        }
        self.check(function, &spec.source, false).map_err(|status| failed(Stage::Source, status))?;
        // A stream of datagrams has no end.
        let handles = &self.functions[function].handles;
        let datagrams = matches!(handles.get(spec.source.handle), Some(HandleTarget::Datagrams(..)));
        if datagrams && spec.length == LENGTH_TO_END {
            return Err(failed(Stage::Source, Status::InvalidField));
        }
        self.check(function, &spec.destination, true).map_err(|status| failed(Stage::Destination, status))?;
        // A file, memory and datagrams have no acknowledgements.
        let handles = &self.functions[function].handles;
        let connection = matches!(handles.get(spec.destination.handle), Some(HandleTarget::Flow(..)));
        if spec.acknowledged && !connection {
            return Err(failed(Stage::Destination, Status::PathUnavailable));
        }
        self.units.load(command, &spec).map_err(|(at, failure)| (Stage::Operator, at, failure))?;
        let names = [spec.source.handle, spec.destination.handle].map(|handle| handles.name(handle));
        // A media stream's transfer is done when its last datagram was sent.
        let flush = spec.destination.kind == EndpointKind::Paced;
        self.bound[command.slot()] = Some(Bound { function, spec, names, read: 0, begun: false });
        Ok(Binding { flush, ..Binding::default() })
    }

    /// Checks that the card can drive an endpoint, and may access all of its extents.
    fn check(&self, function: usize, end: &EndpointSpec, write: bool) -> Result<(), Status> {
        let access = if write { Access::Write } else { Access::Read };
        let handles = &self.functions[function].handles;
        let target = handles.get(end.handle).ok_or(Status::BadHandle)?;
        match (end.kind, target) {
            (EndpointKind::Memory, HandleTarget::Memory { .. }) => {
                let allows = |address, length| handles.allows(end.handle, Window { address, length }, access);
                let all = end.extents.iter().all(|extent| allows(extent.offset, extent.length));
                if all { Ok(()) } else { Err(Status::DataTransferError) }
            }
            (EndpointKind::Block, HandleTarget::Ssd(at)) => {
                let ssd = self.ssds.get(at).ok_or(Status::BadHandle)?;
                let refusal =
                    end.extents.iter().find_map(|extent| ssd.refuses(extent.offset, extent.length, write));
                refusal.map_or(Ok(()), Err)
            }
            (EndpointKind::Block, HandleTarget::Part(_, part)) => {
                let ssd = self.ssds.get(part.ssd).ok_or(Status::BadHandle)?;
                if !self.has_part(&part) {
                    return Err(Status::DeviceReset);
                }
                if part.grants & access.bit() == 0 {
                    return Err(Status::UnsupportedEndpoint);
                }
                let refusal =
                    end.extents.iter().find_map(|extent| match part.place(extent.offset, extent.length) {
                        Some(place) => ssd.refuses(place, extent.length, write),
                        None => Some(Status::OutOfRange),
                    });
                refusal.map_or(Ok(()), Err)
            }
            (EndpointKind::Flow, HandleTarget::Flow(at, flow)) => {
                let there = self.networks.get(at).is_some_and(|network| network.has(flow));
                if there { Ok(()) } else { Err(Status::PeerReset) }
            }
            (EndpointKind::Flow, HandleTarget::Datagrams(at, ends)) => {
                let there = self.networks.get(at).is_some_and(|network| network.has_datagrams(ends));
                if there { Ok(()) } else { Err(Status::PeerReset) }
            }
            (EndpointKind::Paced, HandleTarget::Paced(at, stream)) if write => {
                let there = self.networks.get(at).is_some_and(|network| network.has_paced(stream));
                if there { Ok(()) } else { Err(Status::DeviceReset) }
            }
            (EndpointKind::Flow, HandleTarget::Gone) => Err(Status::PeerReset),
            (EndpointKind::Paced | EndpointKind::Block, HandleTarget::Gone) => Err(Status::DeviceReset),
            _ => Err(Status::UnsupportedEndpoint),
        }
    }

    /// Releases the endpoints and operators of a command that is over.
    pub(crate) fn unbind(&mut self, bus: &mut dyn Buses, command: CommandId) {
        let Some(bound) = self.bound[command.slot()].take() else { return };
        self.units.unload(command);
        let handles = &self.functions[bound.function].handles;
        let handle = bound.spec.destination.handle;
        if let Some(HandleTarget::Paced(at, stream)) = handles.get(handle)
            && bound.begun
            && bound.names[1] == handles.name(handle)
        {
            self.networks[at].set_now(self.now);
            self.networks[at].end_paced(stream);
        }
        let handle = bound.spec.source.handle;
        if let Some(HandleTarget::Datagrams(at, ends)) = handles.get(handle)
            && bound.names[0] == handles.name(handle)
        {
            self.networks[at].forget_command(bus, ends, command);
        }
    }

    pub(crate) fn issue(&mut self, bus: &mut dyn Buses, operation: &Operation) {
        let Some(bound) = self.bound[operation.command.slot()].as_ref() else {
            return self.done(operation.id, Outcome::Failed(Failure::new(Status::InternalError)));
        };
        let (function, spec, names) = (bound.function, Arc::clone(&bound.spec), bound.names);
        let (name, handle) = match operation.kind {
            OperationKind::Read { role: EndpointRole::Source, .. } => (names[0], spec.source.handle),
            OperationKind::Write { .. } | OperationKind::Flush => (names[1], spec.destination.handle),
            _ => (None, 0),
        };
        // The number may have been reused for another target.
        if name != self.functions[function].handles.name(handle) {
            return self.done(operation.id, Outcome::Failed(Failure::new(Status::BadHandle)));
        }
        match operation.kind {
            OperationKind::Read { role, offset, block, start, length } => {
                let end =
                    if role == EndpointRole::Prefix { spec.prefix.as_ref() } else { Some(&spec.source) };
                let span = self.span(offset, block, start, length);
                match end {
                    Some(end) if role == EndpointRole::Source => {
                        self.read_source(bus, function, operation, end, span);
                    }
                    Some(end) => self.read(bus, function, operation.id, end, span),
                    None => self.done(operation.id, Outcome::Failed(Failure::new(Status::InternalError))),
                }
            }
            OperationKind::Write { offset, block, start, length, more, .. } => {
                let span = self.span(offset, block, start, length);
                self.write_to(bus, function, operation, &spec.destination, (span, more));
            }
            OperationKind::Flush => self.flush(bus, function, operation, &spec),
            OperationKind::Direct { .. } => {
                self.done(operation.id, Outcome::Failed(Failure::new(Status::PathUnavailable)));
            }
            _ => self.process(bus, operation),
        }
    }

    /// Writes a span to a command's destination.
    fn write_to(
        &mut self,
        bus: &mut dyn Buses,
        function: usize,
        operation: &Operation,
        destination: &EndpointSpec,
        (span, more): (Span, bool),
    ) {
        let piece = dcs_net::Piece { offset: span.memory, length: span.length };
        match (destination.kind, self.functions[function].handles.get(destination.handle)) {
            (EndpointKind::Flow, Some(HandleTarget::Flow(at, flow))) => {
                self.send(bus, at, flow, operation, span, more);
            }
            (EndpointKind::Flow, Some(HandleTarget::Datagrams(at, ends))) => {
                self.networks[at].write_datagrams(ends, operation.id, piece);
                self.networks[at].poll(bus, self.now);
            }
            (EndpointKind::Paced, Some(HandleTarget::Paced(at, stream))) => {
                let begin = self.begin_paced(operation.command);
                self.networks[at].set_now(self.now);
                self.networks[at].write_paced(bus, stream, (operation.id, piece), begin.as_ref());
                self.networks[at].poll(bus, self.now);
            }
            _ => self.write(bus, function, operation.id, destination, span),
        }
    }

    /// Flushes a command's destination.
    fn flush(&mut self, bus: &mut dyn Buses, function: usize, operation: &Operation, spec: &TransferSpec) {
        match self.functions[function].handles.get(spec.destination.handle) {
            Some(HandleTarget::Ssd(at) | HandleTarget::Part(_, Part { ssd: at, .. })) => {
                self.submit(bus, at, Job { operation: operation.id, work: Work::Flush })
            }
            _ if spec.destination.kind == EndpointKind::Block => {
                self.done(operation.id, Outcome::Failed(Failure::new(Status::DeviceReset)));
            }
            Some(HandleTarget::Flow(at, flow)) if spec.acknowledged => {
                self.networks[at].flush(flow, operation.id);
            }
            Some(HandleTarget::Paced(at, stream)) => {
                let begin = self.begin_paced(operation.command);
                self.networks[at].set_now(self.now);
                self.networks[at].flush_paced(bus, stream, operation.id, spec.more, begin.as_ref());
                self.networks[at].poll(bus, self.now);
            }
            _ if spec.destination.kind == EndpointKind::Paced => {
                self.done(operation.id, Outcome::Failed(Failure::new(Status::DeviceReset)));
            }
            _ => self.done(operation.id, Outcome::Flushed),
        }
    }

    /// Returns the pace of a command's transfer, if it has not begun yet; it has now.
    fn begin_paced(&mut self, command: CommandId) -> Option<Pace> {
        let bound = self.bound[command.slot()].as_mut()?;
        (!core::mem::replace(&mut bound.begun, true)).then_some(bound.spec.destination.pace)
    }

    pub(crate) fn span(&self, position: u64, block: BlockId, start: u32, length: u32) -> Span {
        Span { position, length, memory: self.block_address(block) + u64::from(start), block }
    }

    /// Returns the offset of a block in own memory.
    pub(crate) fn block_address(&self, block: BlockId) -> u64 {
        self.blocks.offset() + block.index() as u64 * u64::from(self.config.engine.block_size)
    }

    pub(crate) fn submit(&mut self, bus: &mut dyn Buses, at: usize, job: Job) {
        match self.ssds.get_mut(at) {
            Some(ssd) => ssd.submit(bus, self.now, job),
            None => self.done(job.operation, Outcome::Failed(Failure::new(Status::DeviceReset))),
        }
    }

    /// Gives an SSD work on bytes of a part of it.
    fn submit_in_part(
        &mut self,
        bus: &mut dyn Buses,
        operation: OperationId,
        (part, span): (&Part, Span),
        work: impl FnOnce(Span) -> Work,
    ) {
        match part.place(span.position, span.length.into()) {
            _ if !self.has_part(part) => {
                self.done(operation, Outcome::Failed(Failure::new(Status::DeviceReset)));
            }
            Some(position) => {
                self.submit(bus, part.ssd, Job { operation, work: work(Span { position, ..span }) });
            }
            None => self.done(operation, Outcome::Failed(Failure::new(Status::OutOfRange))),
        }
    }

    /// Reads from a command's source. Datagrams also need to know how much the command still lacks.
    fn read_source(
        &mut self,
        bus: &mut dyn Buses,
        function: usize,
        operation: &Operation,
        end: &EndpointSpec,
        span: Span,
    ) {
        let Some(bound) = &mut self.bound[operation.command.slot()] else { return };
        let before = bound.read + bound.spec.prefix.as_ref().map_or(0, EndpointSpec::length);
        let missing = bound.spec.length.saturating_sub(before);
        bound.read += u64::from(span.length);
        match (end.kind, self.functions[function].handles.get(end.handle)) {
            (EndpointKind::Flow, Some(HandleTarget::Datagrams(at, ends))) => {
                let (command, operation) = (operation.command, operation.id);
                let (memory, length) = (span.memory, span.length);
                self.networks[at].read_datagrams(
                    bus,
                    ends,
                    Read { command, operation, memory, length, missing },
                );
            }
            _ => self.read(bus, function, operation.id, end, span),
        }
    }

    fn read(
        &mut self,
        bus: &mut dyn Buses,
        function: usize,
        operation: OperationId,
        end: &EndpointSpec,
        span: Span,
    ) {
        let window = Window { address: span.position, length: span.length.into() };
        let handles = &self.functions[function].handles;
        match (end.kind, handles.get(end.handle)) {
            (EndpointKind::Block, Some(HandleTarget::Ssd(at))) => {
                self.submit(bus, at, Job { operation, work: Work::Read(span) });
            }
            (EndpointKind::Block, Some(HandleTarget::Part(_, part))) => {
                self.submit_in_part(bus, operation, (&part, span), Work::Read);
            }
            (EndpointKind::Flow, Some(HandleTarget::Flow(at, flow))) => {
                let place = (operation, span.memory, span.length);
                self.networks[at].read(bus, self.now, flow, place);
            }
            (EndpointKind::Memory, _) if handles.allows(end.handle, window, Access::Read) => {
                self.read_host(bus, function, window, PendingRead::Memory { operation, to: span.memory });
            }
            (EndpointKind::Flow, Some(HandleTarget::Gone)) => {
                self.done(operation, Outcome::Failed(Failure::new(Status::PeerReset)));
            }
            (EndpointKind::Block, Some(HandleTarget::Gone)) => {
                self.done(operation, Outcome::Failed(Failure::new(Status::DeviceReset)));
            }
            _ => self.done(operation, Outcome::Failed(Failure::new(Status::BadHandle))),
        }
    }

    fn write(
        &mut self,
        bus: &mut dyn Buses,
        function: usize,
        operation: OperationId,
        end: &EndpointSpec,
        span: Span,
    ) {
        let window = Window { address: span.position, length: span.length.into() };
        let handles = &self.functions[function].handles;
        match (end.kind, handles.get(end.handle)) {
            (EndpointKind::Block, Some(HandleTarget::Ssd(at))) => {
                self.submit(bus, at, Job { operation, work: Work::Write(span) });
            }
            (EndpointKind::Block, Some(HandleTarget::Part(_, part))) => {
                self.submit_in_part(bus, operation, (&part, span), Work::Write);
            }
            (EndpointKind::Memory, _) if handles.allows(end.handle, window, Access::Write) => {
                let mut bytes = vec![0; span.length as usize];
                bus.load(span.memory, &mut bytes);
                bus.write_host(function, span.position, &bytes);
                self.done(operation, moved(span.length.into(), 0));
            }
            (EndpointKind::Flow, Some(HandleTarget::Gone)) => {
                self.done(operation, Outcome::Failed(Failure::new(Status::PeerReset)));
            }
            (EndpointKind::Block, Some(HandleTarget::Gone)) => {
                self.done(operation, Outcome::Failed(Failure::new(Status::DeviceReset)));
            }
            _ => self.done(operation, Outcome::Failed(Failure::new(Status::BadHandle))),
        }
    }

    /// Passes a block's bytes to a connection.
    pub(crate) fn send(
        &mut self,
        bus: &mut dyn Buses,
        at: usize,
        flow: dcs_net::Flow,
        operation: &Operation,
        span: Span,
        more: bool,
    ) {
        let piece = dcs_net::Piece { offset: span.memory, length: span.length };
        let write = WriteTo { operation: operation.id, block: span.block, piece, more };
        self.networks[at].write(flow, write);
        self.networks[at].poll(bus, self.now);
    }

    /// Runs a block through an operator. A device may still write to the block, so it is copied first.
    pub(crate) fn process(&mut self, bus: &mut dyn Buses, operation: &Operation) {
        let loaded = |at: u8| {
            let bound = self.bound[operation.command.slot()].as_ref();
            bound.and_then(|bound| bound.spec.chain.get(usize::from(at))).map(|spec| spec.operator)
        };
        let operator = match operation.kind {
            OperationKind::Process { operator, .. } | OperationKind::Resize { operator, .. } => {
                loaded(operator)
            }
            _ => None,
        };
        let (outcome, bytes) = match operation.kind {
            OperationKind::Process { block, length, .. } => {
                let (at, mut bytes) = (self.block_address(block), vec![0; length as usize]);
                bus.load(at, &mut bytes);
                let outcome = self.units.process(operation, &mut bytes);
                if operator.is_some_and(|operator| operator.digest_size() == 0) {
                    bus.store(at, &bytes);
                }
                (outcome, length)
            }
            OperationKind::Resize { block, start, length, output, output_start, output_length, .. } => {
                let (from, to) = (
                    self.block_address(block) + u64::from(start),
                    self.block_address(output) + u64::from(output_start),
                );
                let (mut input, mut made) = (vec![0; length as usize], vec![0; output_length as usize]);
                bus.load(from, &mut input);
                let outcome = self.units.resize(operation, &input, &mut made);
                if let Outcome::Processed { produced, .. } | Outcome::Concluded { produced, .. } = outcome {
                    bus.store(to, &made[..produced as usize]);
                }
                (outcome, length)
            }
            OperationKind::Snapshot { .. } => (self.units.snapshot(operation), 0),
            _ => (Outcome::Failed(Failure::new(Status::InternalError)), 0),
        };
        match self.config.costs.processing(operator, bytes) {
            0 => self.done(operation.id, outcome),
            cost => self.timers.set(self.now + cost, (operation.id, outcome)),
        }
    }
}

pub(crate) fn moved(bytes: u64, path: u32) -> Outcome {
    Outcome::Moved { bytes, path, held: false }
}
