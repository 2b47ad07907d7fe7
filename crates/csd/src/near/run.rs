//! A near-storage command in progress: a piece of its source at a time passes the chain, and the output goes
//! to its destination.

use std::sync::Arc;

use dcs_nvme::bytes::u32_at;
use dcs_nvme::command::{self, Command};
use dcs_nvme::{DataPointer, Status};

use super::batch::{Batch, End, Operated};
use super::entry::{DataLocation, FROM_GUEST, Fields, NO_DATA};
use super::flow::{Near, Origin, Run, Source, Target};
use super::program::{PARAMETERS_MAX, Program};
use super::ranges::{ENDED, FED, HUNGRY, REST, Ranges};
use crate::controller::{COMMAND_COST, Controller};
use crate::host::HostPort;
use crate::slots::Work;
use crate::storage::{Action, Buffer, Data, Request, Storage, Ticket, VolumeId};

/// Bytes of a source that are read at once.
const PIECE: u64 = 128 << 10;

/// The cost of a step in addition to its time, in nanoseconds.
const STEP_COST: u64 = 1000;

/// Maximum number of bytes of a source that a stream's command is charged for: it ends after a while,
/// whatever is left.
const TURN_BYTES: u64 = 1 << 30;

/// Maximum room of a command that brings a stream's input: its result has 32 bits for the length of the
/// output.
const FED_ROOM_MAX: u64 = u32::MAX as u64;

/// Maximum number of bytes of a source.
const SOURCE_MAX: u64 = 1 << 40;

impl Controller {
    /// Begins a near-storage command; returns its cost.
    pub(crate) fn near_command(
        &mut self,
        port: &mut dyn HostPort,
        queue: u16,
        command: &Command,
        entry: &[u8; command::SIZE],
    ) -> Result<u64, Status> {
        let fields = Fields::from_entry(entry).map_err(Status::with_do_not_retry)?;
        if fields.buffer > 1 << self.config.transfer_shift && entry[0] != NO_DATA {
            return Err(Status::INVALID_FIELD.with_do_not_retry());
        }
        let simple = match (fields.source, fields.destination) {
            (DataLocation::Parameters, _) => Some(match self.near.unload(fields.handle) {
                true => (Status::SUCCESS, 0),
                false => (Status::INVALID_FIELD.with_do_not_retry(), 0),
            }),
            (DataLocation::Stream, DataLocation::Guest) if entry[0] == NO_DATA => {
                self.near.close(fields.handle).map_err(Status::with_do_not_retry)?;
                Some((Status::SUCCESS, 0))
            }
            (DataLocation::Results, _) => Some((self.result_page(port, command, &fields), 0)),
            _ => None,
        };
        if let Some((status, result)) = simple {
            self.end(port, queue, command.cid, status, result);
            return Ok(COMMAND_COST);
        }
        if fields.source == DataLocation::Stream {
            let flow = self.near.idle(fields.handle).map_err(Status::with_do_not_retry)?;
            if entry[0] == FROM_GUEST && (!flow.source.starves() || fields.length > fields.buffer) {
                return Err(Status::INVALID_FIELD.with_do_not_retry());
            }
        }
        if matches!(fields.destination, DataLocation::Parameters | DataLocation::Stream) {
            let near = self.load(port, command, &fields);
            return self.start(port, (queue, command.cid), None, |_| near);
        }
        let buffer = (entry[0] != NO_DATA).then_some((&command.data, fields.buffer));
        self.start(port, (queue, command.cid), buffer, |controller| {
            controller.near_transfer(command, &fields)
        })
    }

    /// Starts a transfer, with the guest's buffer if it has one; returns its cost.
    pub(super) fn start(
        &mut self,
        port: &mut dyn HostPort,
        (queue, cid): (u16, u16),
        buffer: Option<(&DataPointer, u64)>,
        make: impl FnOnce(&mut Controller) -> Result<Near, Status>,
    ) -> Result<u64, Status> {
        let index = self.slots.take(Work::Near, queue, cid).ok_or(Status::INTERRUPTED)?;
        let mut places = std::mem::take(&mut self.slots.get(index).places);
        let found = match buffer {
            None => Ok(()),
            Some((pointer, length)) => self.find(port, pointer, length, &mut places),
        };
        self.slots.get(index).places = places;
        let near = found.and_then(|()| make(self).map_err(final_unless_interrupted));
        let mut near = match near {
            Ok(near) if near.flow.memory.is_some() || self.near.budget.fits(near.needs_in_all()) => near,
            refused => {
                self.slots.give(index);
                return Err(refused.err().unwrap_or(Program::too_many()));
            }
        };
        let limit = near.stream.map_or(u64::MAX, |(_, limit)| limit.min(TURN_BYTES));
        let moves = near.flow.source.left().min(limit).min(near.target.room().max(PIECE));
        // Neither making operators nor a stream that has failed moves data.
        let moves_none = near.prepares() || !near.flow.status.is_success();
        near.paid = if moves_none { 0 } else { moves };
        let cost = COMMAND_COST + near.paid;
        let has_memory = near.flow.memory.is_some();
        self.slots.get(index).near = Some(Box::new(near));
        match has_memory {
            true => self.near.ready.push(queue, index),
            false => self.near.wanting.push_back(index),
        }
        Ok(cost)
    }

    /// Gives commands, including those that open streams, their memory in order, as far as it is free. They
    /// wait for commands in progress, which end by themselves. One that would have to wait for streams, which
    /// last as long as the guest likes, goes on without memory and ends: its parameters may be what the next
    /// one needs.
    fn admit(&mut self) {
        if let Some(index) = self.near.refused {
            if self.slots.get(index).near.as_ref().is_some_and(|near| near.refused) {
                return;
            }
            self.near.refused = None;
        }
        while let Some(index) = self.near.wanting.front().copied() {
            let now = self.slots.now;
            let slot = self.slots.get(index);
            if let Some(near) = &mut slot.near {
                let lasts = near.lasts();
                loop {
                    near.flow.memory = self.near.budget.take(near.need, lasts);
                    if near.flow.memory.is_some() {
                        near.begins();
                        break;
                    }
                    if self.near.budget.will_fit(near.need) {
                        return;
                    }
                    if !self.near.close_abandoned(now) {
                        break;
                    }
                }
            }
            if let Some(near) = slot.near.as_mut().filter(|near| near.flow.memory.is_none()) {
                near.refused = true;
                self.near.refused = Some(index);
            }
            self.near.wanting.pop_front();
            self.near.ready.push(slot.queue, index);
            if self.near.refused.is_some() {
                return;
            }
        }
    }

    /// Returns true if a near-storage command can go on.
    pub(crate) fn is_near_ready(&mut self) -> bool {
        if !self.is_running() || !self.limiter.is_free(self.slots.now) {
            return false;
        }
        self.admit();
        self.near.ready.len() > 0
    }

    /// Loads parameters or opens a stream; either ends when the operators have been made.
    fn load(&mut self, port: &mut dyn HostPort, command: &Command, fields: &Fields) -> Result<Near, Status> {
        let length = fields.length.min(fields.buffer) as usize;
        if fields.length > fields.buffer || length > PARAMETERS_MAX {
            return Err(Status::INVALID_FIELD);
        }
        // Long-lived: a handle or a stream is kept as long as the guest likes.
        let taken = self.near.budget.take(length as u64, true).ok_or(Status::INTERRUPTED)?;
        let mut bytes = vec![0; length];
        let status = self.copy_in(port, &command.data, &mut bytes);
        let loaded = match fields.destination {
            _ if !status.is_success() => Err(status),
            DataLocation::Stream => self.open(command.namespace, &bytes),
            _ => Program::read(&bytes, &self.near.loads).map(|program| {
                let program = Arc::new(program);
                (Origin::Load(program.clone()), program, Source::Zeros { left: 0 })
            }),
        };
        // It may hold keys.
        bytes.fill(0);
        std::hint::black_box(&bytes);
        let (origin, program, source) = loaded?;
        let near = Near::new(origin, program, source, Target::Nowhere);
        Ok(Near { parameters: Some(taken), ..near })
    }

    /// Opens a stream of ranges of a namespace.
    fn open(&self, namespace: u32, bytes: &[u8]) -> Result<(Origin, Arc<Program>, Source), Status> {
        let (program, [ranges, first]) = Program::read_stream(bytes, &self.near.loads)?;
        let ranges = Ranges::read(namespace, ranges)?;
        let within = self.known(namespace)?.ok_or(Status::INVALID_FIELD)?;
        let run = Run { volume: within.volume, chain: within.chain.clone(), shift: within.shift };
        let most = within.blocks << within.shift;
        if ranges.all().any(|(first, length)| first + length > most) {
            return Err(Status::LBA_OUT_OF_RANGE);
        }
        let source = match first {
            [] if u32_at(bytes, 4) == FED => Source::Fed { next: 0, left: 0, last: false },
            _ if u32_at(bytes, 4) == FED => return Err(Status::INVALID_FIELD),
            [] => Source::Ranges(run, ranges),
            first => {
                let first = Source::Bytes { bytes: first.to_vec(), next: 0 };
                Source::Several([first, Source::Ranges(run, ranges)].into())
            }
        };
        Ok((Origin::Open, Arc::new(program), source))
    }

    fn result_page(&mut self, port: &mut dyn HostPort, command: &Command, fields: &Fields) -> Status {
        let page = match fields.handle {
            0 => self.near.result(fields.request).copied().ok_or(Status::INVALID_FIELD),
            number => self.near.idle(number).map(|flow| *flow.page(fields.request, flow.status)),
        };
        match page {
            Ok(page) => {
                let length = page.len().min(fields.buffer as usize);
                self.copy_out(port, &command.data, &page[..length])
            }
            Err(status) => status.with_do_not_retry(),
        }
    }

    /// Checks a transfer.
    fn near_transfer(&mut self, command: &Command, fields: &Fields) -> Result<Near, Status> {
        if fields.source == DataLocation::Stream {
            return self.near_stream(command, fields);
        }
        let program = match fields.handle {
            0 => Arc::default(),
            handle => self.near.program(handle).ok_or(Status::INVALID_FIELD)?.clone(),
        };
        let blocks = |first, count, writes| self.near_blocks(command.namespace, first, count, writes);
        let memory = |first, length| match self.near.range(first, length) {
            Some(_) => Ok(()),
            None => Err(Status::INVALID_FIELD),
        };
        let source = match fields.source {
            DataLocation::Blocks => {
                let (run, next, left) = blocks(fields.first, fields.length, false)?;
                Source::Blocks { run, next, left }
            }
            DataLocation::Memory => {
                memory(fields.first, fields.length)?;
                Source::Memory { next: fields.first, left: fields.length }
            }
            _ if fields.length > fields.buffer => return Err(Status::INVALID_FIELD),
            _ => Source::Guest { next: 0, left: fields.length },
        };
        let target = match fields.destination {
            DataLocation::Blocks => self.near_written(command.namespace, fields)?,
            _ => self.near_target(fields)?,
        };
        if source.left() > SOURCE_MAX {
            return Err(Status::INVALID_FIELD);
        }
        Ok(Near::new(Origin::Request(fields.request), program, source, target))
    }

    /// Returns logical blocks of a namespace on its volume: first byte and length.
    pub(super) fn near_blocks(
        &self,
        number: u32,
        first: u64,
        count: u64,
        writes: bool,
    ) -> Result<(Run, u64, u64), Status> {
        let namespace = self.known(number)?.ok_or(Status::INVALID_FIELD)?;
        if writes && namespace.read_only {
            return Err(Status::WRITE_PROTECTED);
        }
        let (offset, length) = namespace.bytes(first, count).ok_or(Status::LBA_OUT_OF_RANGE)?;
        let (volume, chain, shift) = (namespace.volume, namespace.chain.clone(), namespace.shift);
        Ok((Run { volume, chain, shift }, offset, length))
    }

    /// Returns a destination of logical blocks.
    fn near_written(&self, namespace: u32, fields: &Fields) -> Result<Target, Status> {
        let (run, next, room) = self.near_blocks(namespace, fields.target, fields.room, true)?;
        Ok(Target::Blocks { run, next, room })
    }

    /// Returns a destination that is not logical blocks.
    fn near_target(&self, fields: &Fields) -> Result<Target, Status> {
        match fields.destination {
            DataLocation::Memory => {
                self.near.range(fields.target, fields.room).ok_or(Status::INVALID_FIELD)?;
                Ok(Target::Memory { next: fields.target, room: fields.room })
            }
            DataLocation::Nowhere => Ok(Target::Nowhere),
            _ => Ok(Target::Guest { room: fields.room }),
        }
    }

    /// Begins a command that takes output of a stream.
    fn near_stream(&mut self, command: &Command, fields: &Fields) -> Result<Near, Status> {
        let target = match fields.destination {
            DataLocation::Blocks => self.near_written(command.namespace, fields)?,
            _ => self.near_target(fields)?,
        };
        let feeds = command.opcode == FROM_GUEST;
        if feeds && target.room() > FED_ROOM_MAX && fields.destination != DataLocation::Nowhere {
            return Err(Status::INVALID_FIELD);
        }
        let mut flow = self.near.take_stream(fields.handle)?;
        let limit = if feeds || fields.length == 0 { u64::MAX } else { fields.length };
        if feeds {
            flow.source = Source::Fed { next: 0, left: fields.length, last: fields.first == 1 };
        }
        let stream = Some((fields.handle, limit));
        let origin = Origin::Request(fields.request);
        let (parameters, began, pending) = (None, None, Vec::new());
        let (need, made, paid, refused, durable) = (0, 0, 0, false, false);
        Ok(Near {
            origin,
            flow,
            need,
            stream,
            target,
            made,
            pending,
            parameters,
            paid,
            began,
            refused,
            durable,
        })
    }

    /// Does a step of one command that does not wait for the storage. Returns `None` if none could go on.
    pub(crate) fn near_step(
        &mut self,
        drive: u32,
        port: &mut dyn HostPort,
        storage: &mut dyn Storage,
        hands_over: bool,
    ) -> Option<Operated> {
        if !self.is_near_ready() {
            return None;
        }
        let index = self.near.ready.pop()?;
        let began = port.uptime();
        let slot = self.slots.get(index);
        let (queue, mut near) = (slot.queue, slot.near.take()?);
        let ticket = Ticket { drive, slot: index };
        let next = self.near_next(ticket, &mut near, port, storage);
        let mut batch = matches!(next, Ok(Next::Work)).then(|| near.batch(ticket, hands_over));
        self.at(port.uptime());
        let now = self.slots.now;
        let slot = self.slots.get(index);
        slot.near = Some(near);
        slot.times.operators += now.saturating_sub(began);
        match next {
            Ok(Next::Work) if hands_over => self.near.away += 1,
            Ok(Next::Work) => {
                if let Some(mut batch) = batch.take() {
                    batch.run(&mut || port.uptime());
                    self.near_worked(port, batch);
                }
            }
            Ok(Next::Waits) => {}
            Ok(Next::Again) => self.near.ready.push(queue, index),
            Ok(Next::NoBuffer) => {
                self.near.ready.push_first(queue, index);
                return None;
            }
            Ok(Next::Done) => self.end_near(port, index, Status::SUCCESS),
            Err(status) => self.end_near(port, index, status),
        }
        self.at(port.uptime());
        let cost = STEP_COST + self.slots.now.saturating_sub(began);
        self.near.ready.charge(queue, cost);
        Some(Operated { cost, batch })
    }

    /// Ends the command in this slot, and frees the slot.
    fn end_near(&mut self, port: &mut dyn HostPort, index: u16, status: Status) {
        let slot = self.slots.get(index);
        let (queue, cid, near, times) = (slot.queue, slot.cid, slot.near.take(), slot.times);
        let (status, result) = match near {
            Some(near) if near.prepares() => self.end_preparation(*near, status),
            near => {
                self.clocked.ends(times, self.slots.now, true);
                (status, near.map_or(0, |near| self.end_transfer(*near, status)))
            }
        };
        self.slots.give(index);
        self.end(port, queue, cid, status, result);
    }

    /// Operators have been made, or failed: returns the status, and the handle of the parameters or the
    /// number of the stream.
    fn end_preparation(&mut self, mut near: Near, status: Status) -> (Status, u64) {
        let parameters = near.parameters.take();
        let number = match (status.is_success(), near.origin) {
            (true, Origin::Open) => {
                near.flow.parameters = parameters;
                self.near.open(near.flow, self.slots.now)
            }
            (true, Origin::Install(install)) => {
                let memory = near.flow.memory.take().ok_or(Status::INTERNAL_ERROR);
                let installed = memory.and_then(|memory| self.near.loads.install(*install, memory));
                return (installed.err().unwrap_or(status), 0);
            }
            (false, Origin::Install(install)) => {
                install.discard(near.flow.memory.take());
                return (status, 0);
            }
            (succeeded, origin) => {
                self.near.discard(near.flow);
                match origin {
                    Origin::Load(program) if succeeded => self.near.load(program, parameters),
                    _ => return (status, 0),
                }
            }
        };
        number.map_or((Program::too_many(), 0), |number| (status, number.into()))
    }

    /// Ends a transfer: returns its result.
    fn end_transfer(&mut self, mut near: Near, status: Status) -> u64 {
        let mut result = near.made;
        near.flow.pipeline.report(|operator, work| self.near.work(operator, work));
        self.logs.counters.near += u64::from(status.is_success());
        match &near.origin {
            Origin::Request(request) => self.near.keep(*request, near.flow.page(*request, status)),
            Origin::Program(execution) => {
                result = self.near.end_execution(execution, &near.flow, status).unwrap_or(result);
            }
            _ => result = 0,
        }
        if let Some((number, _)) = near.stream {
            near.flow.status = status;
            let to_blocks = matches!(near.target, Target::Blocks { .. });
            let is_rest = to_blocks && near.flow.surplus.len() < near.target.block();
            result |= match (near.flow.ended, near.flow.surplus.is_empty()) {
                (true, true) => ENDED,
                (true, false) if is_rest => REST,
                (false, is_empty)
                    if near.flow.hungry && near.flow.source.starves() && (is_empty || is_rest) =>
                {
                    HUNGRY
                }
                _ => 0,
            };
            let fed = near.flow.source.end_feeding();
            result |= fed << 32;
            self.near.give_stream(number, near.flow, self.slots.now);
        } else {
            self.near.discard(near.flow);
        }
        result
    }

    fn near_next(
        &mut self,
        ticket: Ticket,
        near: &mut Near,
        port: &mut dyn HostPort,
        storage: &mut dyn Storage,
    ) -> Result<Next, Status> {
        if near.flow.memory.is_none() {
            // The stream keeps the memory.
            return Err(Status::INTERRUPTED);
        }
        if near.prepares() {
            return Ok(Next::Work);
        }
        let most = PIECE.min(1 << self.config.transfer_shift);
        if near.pending.len() as u64 >= most {
            return self.near_write(ticket, near, storage);
        }
        if !near.flow.status.is_success() {
            return Err(near.flow.status);
        }
        let (slot, memory) = (self.slots.get(ticket.slot), &mut self.near.memory);
        near.deliver_surplus(slot, memory, port)?;
        // Input is taken even without room: its output is for a later command.
        let takes = near.flow.hungry && near.flow.source.brings();
        let is_full = near.stream.is_some() && near.target.room() == 0 && !takes;
        if near.is_long(port.uptime()) || near.flow.ended || is_full {
            return self.near_write(ticket, near, storage);
        }
        match near.flow.hungry {
            true if near.is_sated() => self.near_write(ticket, near, storage),
            true => self.near_source(ticket, near, port, storage),
            false => Ok(Next::Work),
        }
    }

    /// Takes back a batch from a slot.
    pub(crate) fn near_back(&mut self, port: &mut dyn HostPort, batch: Batch) {
        self.near.away -= 1;
        let slot = self.slots.get(batch.ticket.slot);
        if !slot.stale {
            self.near.ready.charge(slot.queue, batch.took);
        }
        self.near_worked(port, batch);
    }

    /// Ends a batch of a command's work: output goes to its destination.
    fn near_worked(&mut self, port: &mut dyn HostPort, batch: Batch) {
        self.at(port.uptime());
        let index = batch.ticket.slot;
        let slot = self.slots.get(index);
        if slot.stale {
            if let Some(near) = &mut slot.near {
                near.flow.pipeline = batch.pipeline;
                near.built(batch.build);
            }
            self.release(index);
            return self.end_reset();
        }
        let queue = slot.queue;
        slot.times.operators += batch.took;
        let Some(mut near) = slot.near.take() else { return };
        near.flow.pipeline = batch.pipeline;
        near.built(batch.build);
        let delivered = near.deliver(slot, &mut self.near.memory, port, &batch.out);
        let end = delivered.and(batch.end);
        near.flow.hungry = end == Ok(End::Hungry);
        near.flow.ended = end == Ok(End::Last);
        slot.near = Some(near);
        match end {
            Ok(End::Prepared) => self.end_near(port, index, Status::SUCCESS),
            Ok(_) => self.near.ready.push(queue, index),
            Err(status) => self.end_near(port, index, status),
        }
    }

    /// Writes output to logical blocks, if that is its destination and there is some; otherwise the command
    /// has ended.
    fn near_write(
        &mut self,
        ticket: Ticket,
        near: &mut Near,
        storage: &mut dyn Storage,
    ) -> Result<Next, Status> {
        let unwritten = near.unwritten(near.target.block() as u64);
        let durable = self.is_durable(near.durable);
        let Target::Blocks { run, next, .. } = &mut near.target else { return Ok(Next::Done) };
        if unwritten == 0 {
            near.put_back();
            return Ok(Next::Done);
        }
        let most = PIECE.min(1 << self.config.transfer_shift);
        let length = unwritten.min(most).next_multiple_of(1 << run.shift);
        let Some(mut buffer) = self.buffers.take(length as usize) else { return Ok(Next::NoBuffer) };
        let used = near.pending.len().min(length as usize);
        let bytes = buffer.bytes_mut();
        bytes[..used].copy_from_slice(&near.pending[..used]);
        bytes[used..].fill(0);
        near.pending.drain(..used);
        if !run.pass(true, *next, bytes) {
            self.buffers.give(buffer);
            return Err(Status::INTERNAL_ERROR);
        }
        let (action, at) = (Action::Write { durable }, *next);
        *next += length;
        let request = (run.volume, action, at, length);
        self.near_submit(ticket, near, storage, request, buffer);
        Ok(Next::Waits)
    }

    /// Takes more of the source.
    fn near_source(
        &mut self,
        ticket: Ticket,
        near: &mut Near,
        port: &mut dyn HostPort,
        storage: &mut dyn Storage,
    ) -> Result<Next, Status> {
        let most = PIECE.min(1 << self.config.transfer_shift);
        let source = near.flow.source.current();
        let length = most.min(source.left());
        let blocks = match source {
            Source::Blocks { run, next, .. } if length > 0 => Some((run.volume, *next, length)),
            Source::Ranges(run, ranges) if length > 0 => Some(self.next_blocks(run, ranges, most)?),
            _ => None,
        };
        if let Some((volume, at, length)) = blocks {
            let Some(buffer) = self.buffers.take(length as usize) else { return Ok(Next::NoBuffer) };
            self.near_submit(ticket, near, storage, (volume, Action::Read, at, length), buffer);
            return Ok(Next::Waits);
        }
        let slot = self.slots.get(ticket.slot);
        near.give(length as usize, |source, bytes| {
            match source {
                Source::Guest { next: at, .. } | Source::Fed { next: at, .. }
                    if !slot.load_at(port, *at, bytes) =>
                {
                    return Err(Status::DATA_TRANSFER_ERROR);
                }
                Source::Bytes { bytes: all, next } => bytes.copy_from_slice(&all[*next..][..bytes.len()]),
                Source::Memory { next: at, .. } => {
                    let range = self.near.range(*at, length).ok_or(Status::INTERNAL_ERROR)?;
                    bytes.copy_from_slice(&self.near.memory[range]);
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(Next::Again)
    }

    /// Returns the next blocks of a stream's ranges: volume, first byte and length. The namespace may have
    /// been cut or replaced since the stream was opened: then the stream fails.
    fn next_blocks(&self, run: &Run, ranges: &mut Ranges, most: u64) -> Result<(VolumeId, u64, u64), Status> {
        let namespace = self.known(ranges.namespace)?.filter(|namespace| run.is_of(namespace));
        let namespace = namespace.ok_or(Status::INVALID_FIELD)?;
        let (first, bytes) = ranges.next(most, namespace.shift).ok_or(Status::INTERNAL_ERROR)?;
        let (first, blocks) = (first >> namespace.shift, bytes >> namespace.shift);
        let (at, length) = namespace.bytes(first, blocks).ok_or(Status::LBA_OUT_OF_RANGE)?;
        Ok((namespace.volume, at, length))
    }

    fn near_submit(
        &mut self,
        ticket: Ticket,
        near: &mut Near,
        storage: &mut dyn Storage,
        (volume, action, offset, length): (VolumeId, Action, u64, u64),
        buffer: Buffer,
    ) {
        let slot = self.slots.get(ticket.slot);
        (slot.volume, slot.action, slot.remaining) = (volume, action, 1);
        self.clocked.hands(ticket.slot);
        self.limiter.bytes(self.slots.now, length);
        let paid = near.paid.min(length);
        near.paid -= paid;
        self.pay(ticket.slot, length - paid);
        let data = Data::Buffer(buffer);
        storage.submit(Request { ticket, volume, action, offset, length, data });
    }

    /// Takes an answer of the storage to a near-storage command.
    pub(crate) fn near_answered(&mut self, ticket: Ticket, port: &mut dyn HostPort, buffer: Option<Buffer>) {
        let index = ticket.slot;
        let slot = self.slots.get(index);
        let (queue, mut status, action) = (slot.queue, slot.status, slot.action);
        let Some(mut near) = slot.near.take() else { return self.slots.give(index) };
        if let Some(mut buffer) = buffer {
            if action == Action::Read && status.is_success() {
                status = Controller::arrived(&mut near, buffer.bytes_mut());
            }
            self.buffers.give(buffer);
        }
        self.slots.get(index).near = Some(near);
        match status.is_success() {
            true => self.near.ready.push(queue, index),
            false => self.end_near(port, index, status),
        }
    }
}

impl Controller {
    /// Frees the slot of a command whose result is not needed any more.
    pub(crate) fn release(&mut self, index: u16) {
        if let Some(mut near) = self.slots.get(index).near.take() {
            if let Origin::Install(install) = near.origin {
                install.discard(near.flow.memory.take());
            }
            self.near.discard(near.flow);
        }
        self.slots.give(index);
    }

    /// Puts blocks of a command's source into the chain. They are decrypted with the key from when they were
    /// read, whatever was done to the namespace since.
    fn arrived(near: &mut Near, bytes: &mut [u8]) -> Status {
        let wanted = match &*near.flow.source.current() {
            Source::Blocks { run, next, .. } => {
                run.pass(false, *next, bytes).then_some((0, bytes.len() as u64))
            }
            Source::Ranges(run, ranges) => {
                run.pass(false, ranges.first(run.shift), bytes).then_some(ranges.reading)
            }
            _ => None,
        };
        let Some((skip, length)) = wanted else { return Status::INTERNAL_ERROR };
        let Some(bytes) = bytes.get(skip as usize..(skip + length) as usize) else {
            return Status::INTERNAL_ERROR;
        };
        let given = near.give(bytes.len(), |_, input| {
            input.copy_from_slice(bytes);
            Ok(())
        });
        given.err().unwrap_or(Status::SUCCESS)
    }
}

/// Sets Do Not Retry, unless the command only had to wait for others.
fn final_unless_interrupted(status: Status) -> Status {
    if status == Status::INTERRUPTED { status } else { status.with_do_not_retry() }
}

/// The next step of a command.
enum Next {
    /// In the chain, by the loop or a slot.
    Work,
    /// Another step of the loop.
    Again,
    /// Waits for the storage.
    Waits,
    /// Waits for a buffer.
    NoBuffer,
    Done,
}
