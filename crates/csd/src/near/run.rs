//! A near-storage command under way: a piece of its source at a time passes the chain, and what comes out
//! goes to its destination.

use std::sync::Arc;

use dcs_nvme::Status;
use dcs_nvme::command::{self, Command};

use super::pipeline::{Pipeline, Pulled, UNIT};
use super::program::{LONGEST, Program};
use super::{Fields, Place, RESULT_SIZE};
use crate::chain::Chain;
use crate::controller::{COMMAND_COST, Controller};
use crate::host::HostPort;
use crate::slots::{Slot, Work};
use crate::storage::{Action, Buffer, Data, Request, Storage, Ticket, VolumeId};

/// Bytes of a source that are taken at once.
const PIECE: u64 = 128 << 10;

/// Pulls from a chain before others have their turn: for so long a guest's operators hold them up.
const PULLS: usize = 4;

/// Bytes of a source at most.
const SOURCE_MOST: u64 = 1 << 40;

/// A near-storage command under way.
pub struct Near {
    request: u32,
    pipeline: Pipeline,
    source: Source,
    target: Target,
    /// Bytes that went in, and that came out.
    taken: u64,
    made: u64,
    /// Output on its way to logical blocks.
    pending: Vec<u8>,
    /// All has come out.
    ended: bool,
}

/// Logical blocks, as they lie on a volume.
struct Run {
    volume: VolumeId,
    chain: Option<Arc<Chain>>,
    shift: u8,
}

enum Source {
    Guest { next: u64, left: u64 },
    Blocks { run: Run, next: u64, left: u64 },
    Memory { next: u64, left: u64 },
}

impl Source {
    fn left(&mut self) -> (&mut u64, &mut u64) {
        match self {
            Source::Guest { next, left }
            | Source::Blocks { next, left, .. }
            | Source::Memory { next, left } => (next, left),
        }
    }
}

enum Target {
    Guest { room: u64 },
    Blocks { run: Run, next: u64, room: u64, durable: bool },
    Memory { next: u64, room: u64 },
}

impl std::fmt::Debug for Near {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Near({}, {} bytes in, {} out)", self.request, self.taken, self.made)
    }
}

impl Run {
    /// Turns the guest's bytes into those that lie at this byte of the volume, or the other way round.
    fn pass(&self, encrypt: bool, at: u64, bytes: &mut [u8]) -> bool {
        let first = at >> self.shift;
        match &self.chain {
            None => true,
            Some(chain) if encrypt => chain.encrypt(first, self.shift, bytes),
            Some(chain) => chain.decrypt(first, self.shift, bytes),
        }
    }
}

impl Controller {
    /// Begins a near-storage command; what it cost.
    pub(crate) fn near_command(
        &mut self,
        port: &mut dyn HostPort,
        queue: u16,
        command: &Command,
        entry: &[u8; command::SIZE],
    ) -> Result<u64, Status> {
        let fields = Fields::from_entry(entry).map_err(Status::with_do_not_retry)?;
        if fields.buffer > 1 << self.config.transfer_shift && entry[0] != super::NO_DATA {
            return Err(Status::INVALID_FIELD.with_do_not_retry());
        }
        let simple = match (fields.source, fields.destination) {
            (Place::Parameters, _) => Some(match self.near.unload(fields.handle) {
                true => (Status::SUCCESS, 0),
                false => (Status::INVALID_FIELD.with_do_not_retry(), 0),
            }),
            (_, Place::Parameters) => Some(self.load_parameters(port, command, &fields)),
            (Place::Results, _) => Some((self.result_page(port, command, &fields), 0)),
            _ => None,
        };
        if let Some((status, result)) = simple {
            self.end(port, queue, command.cid, status, result);
            return Ok(COMMAND_COST);
        }
        let near = self.near_transfer(command, &fields).map_err(Status::with_do_not_retry)?;
        let index = self.slots.take(Work::Near, queue, command.cid).ok_or(Status::INTERRUPTED)?;
        let slot = self.slots.get(index);
        let mut places = std::mem::take(&mut slot.places);
        let found = match fields.buffer {
            _ if entry[0] == super::NO_DATA => Ok(()),
            length => self.find(port, &command.data, length, &mut places),
        };
        let (slot, mut near) = (self.slots.get(index), near);
        slot.places = places;
        if let Err(status) = found {
            self.slots.give(index);
            return Err(status);
        }
        let cost = COMMAND_COST + *near.source.left().1;
        self.slots.get(index).near = Some(Box::new(near));
        self.near.ready.push_back(index);
        Ok(cost)
    }

    fn load_parameters(
        &mut self,
        port: &mut dyn HostPort,
        command: &Command,
        fields: &Fields,
    ) -> (Status, u64) {
        let length = fields.length.min(fields.buffer) as usize;
        if fields.length > fields.buffer || length > LONGEST {
            return (Status::INVALID_FIELD.with_do_not_retry(), 0);
        }
        let mut bytes = vec![0; length];
        let mut status = self.copy_in(port, &command.data, &mut bytes);
        let mut handle = 0;
        if status.is_success() {
            match Program::read(&bytes) {
                Ok(program) => match self.near.load(program) {
                    Some(loaded) => handle = loaded,
                    None => status = Program::too_many(),
                },
                Err(error) => status = error.with_do_not_retry(),
            }
        }
        // It may hold keys.
        bytes.fill(0);
        std::hint::black_box(&bytes);
        (status, handle.into())
    }

    fn result_page(&mut self, port: &mut dyn HostPort, command: &Command, fields: &Fields) -> Status {
        let Some(page) = self.near.result(fields.request) else {
            return Status::INVALID_FIELD.with_do_not_retry();
        };
        let length = page.len().min(fields.buffer as usize);
        self.copy_out(port, &command.data, &page[..length])
    }

    /// Checks a transfer.
    fn near_transfer(&self, command: &Command, fields: &Fields) -> Result<Near, Status> {
        let contexts = match fields.handle {
            0 => Vec::new(),
            handle => self.near.program(handle).ok_or(Status::INVALID_FIELD)?.contexts()?,
        };
        let blocks = |first, count, writes: bool| {
            let namespace = self.known(command.namespace)?.ok_or(Status::INVALID_FIELD)?;
            if writes && namespace.read_only {
                return Err(Status::WRITE_PROTECTED);
            }
            let (offset, length) = namespace.bytes(first, count).ok_or(Status::LBA_OUT_OF_RANGE)?;
            let (volume, chain, shift) = (namespace.volume, namespace.chain.clone(), namespace.shift);
            Ok((Run { volume, chain, shift }, offset, length))
        };
        let memory = |first, length| match self.near.range(first, length) {
            Some(_) => Ok(()),
            None => Err(Status::INVALID_FIELD),
        };
        let source = match fields.source {
            Place::Blocks => {
                let (run, next, left) = blocks(fields.first, fields.length, false)?;
                Source::Blocks { run, next, left }
            }
            Place::Memory => {
                memory(fields.first, fields.length)?;
                Source::Memory { next: fields.first, left: fields.length }
            }
            _ if fields.length > fields.buffer => return Err(Status::INVALID_FIELD),
            _ => Source::Guest { next: 0, left: fields.length },
        };
        let target = match fields.destination {
            Place::Blocks => {
                let (run, next, room) = blocks(fields.target, fields.room, true)?;
                Target::Blocks { run, next, room, durable: !self.features.write_cache }
            }
            Place::Memory => {
                memory(fields.target, fields.room)?;
                Target::Memory { next: fields.target, room: fields.room }
            }
            _ => Target::Guest { room: fields.room },
        };
        let (pipeline, request) = (Pipeline::new(contexts), fields.request);
        let mut near =
            Near { request, pipeline, source, target, taken: 0, made: 0, pending: Vec::new(), ended: false };
        if *near.source.left().1 > SOURCE_MOST {
            return Err(Status::INVALID_FIELD);
        }
        Ok(near)
    }

    /// Takes one command on by one step, of those that do not wait for the storage. True where that did
    /// something.
    pub(crate) fn near_step(
        &mut self,
        drive: u32,
        port: &mut dyn HostPort,
        storage: &mut dyn Storage,
    ) -> bool {
        let Some(index) = self.near.ready.pop_front() else { return false };
        let Some(mut near) = self.slots.get(index).near.take() else { return false };
        let ticket = Ticket { drive, slot: index };
        let (done, busy) = match self.near_next(ticket, &mut near, port, storage) {
            Ok(Next::Done) => (Some(Status::SUCCESS), true),
            Ok(Next::Again) => {
                self.near.ready.push_back(index);
                (None, true)
            }
            Ok(Next::Waits) => (None, true),
            Ok(Next::NoBuffer) => {
                self.near.ready.push_front(index);
                (None, false)
            }
            Err(status) => (Some(status), true),
        };
        self.slots.get(index).near = Some(near);
        if let Some(status) = done {
            self.end_near(port, index, status);
        }
        busy
    }

    /// Ends the command in this slot, and gives that back.
    fn end_near(&mut self, port: &mut dyn HostPort, index: u16, status: Status) {
        let slot = self.slots.get(index);
        let (queue, cid, near) = (slot.queue, slot.cid, slot.near.take());
        let mut result = 0;
        if let Some(near) = near {
            result = near.made;
            self.logs.near += u64::from(status.is_success());
            self.near.keep(near.request, near.page(status));
        }
        self.slots.give(index);
        self.end(port, queue, cid, status, result);
    }

    fn near_next(
        &mut self,
        ticket: Ticket,
        near: &mut Near,
        port: &mut dyn HostPort,
        storage: &mut dyn Storage,
    ) -> Result<Next, Status> {
        let most = PIECE.min(1 << self.config.transfer_shift);
        if let Target::Blocks { run, next, durable, .. } = &mut near.target
            && (near.pending.len() as u64 >= most || (near.ended && !near.pending.is_empty()))
        {
            let length = (near.pending.len() as u64).min(most).next_multiple_of(1 << run.shift);
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
            let action = Action::Write { durable: *durable };
            self.near_submit(ticket, storage, (run.volume, action, *next, length), buffer);
            *next += length;
            return Ok(Next::Waits);
        }
        if near.ended {
            return Ok(Next::Done);
        }
        let mut out = vec![0; UNIT];
        for _ in 0..PULLS {
            let (length, last) = match near.pipeline.pull(&mut out)? {
                Pulled::Bytes(length) => (length, false),
                Pulled::Last(length) => (length, true),
                Pulled::Hungry => return self.near_source(ticket, near, port, storage),
            };
            near.ended = last;
            let (slot, memory) = (self.slots.get(ticket.slot), &mut self.near.memory);
            near.deliver(slot, memory, port, &out[..length])?;
            if last {
                break;
            }
        }
        Ok(Next::Again)
    }

    /// More of the source goes in.
    fn near_source(
        &mut self,
        ticket: Ticket,
        near: &mut Near,
        port: &mut dyn HostPort,
        storage: &mut dyn Storage,
    ) -> Result<Next, Status> {
        let most = PIECE.min(1 << self.config.transfer_shift);
        let (next, left) = near.source.left();
        let (at, length) = (*next, most.min(*left));
        if let Source::Blocks { run, .. } = &near.source
            && length > 0
        {
            let Some(buffer) = self.buffers.take(length as usize) else { return Ok(Next::NoBuffer) };
            self.near_submit(ticket, storage, (run.volume, Action::Read, at, length), buffer);
            return Ok(Next::Waits);
        }
        let mut bytes = vec![0; length as usize];
        match near.source {
            Source::Guest { .. } => {
                if !self.slots.get(ticket.slot).load_at(port, at, &mut bytes) {
                    return Err(Status::DATA_TRANSFER_ERROR);
                }
            }
            Source::Memory { .. } => {
                let range = self.near.range(at, length).ok_or(Status::INTERNAL_ERROR)?;
                bytes.copy_from_slice(&self.near.memory[range]);
            }
            Source::Blocks { .. } => {}
        }
        near.give(&bytes);
        Ok(Next::Again)
    }

    fn near_submit(
        &mut self,
        ticket: Ticket,
        storage: &mut dyn Storage,
        (volume, action, offset, length): (VolumeId, Action, u64, u64),
        buffer: Buffer,
    ) {
        let slot = self.slots.get(ticket.slot);
        (slot.action, slot.remaining) = (action, 1);
        let data = Data::Buffer(buffer);
        storage.submit(Request { ticket, volume, action, offset, length, data });
    }

    /// The storage has answered a near-storage command.
    pub(crate) fn near_answered(&mut self, ticket: Ticket, port: &mut dyn HostPort, buffer: Option<Buffer>) {
        let index = ticket.slot;
        let slot = self.slots.get(index);
        let (mut status, action) = (slot.status, slot.action);
        let Some(mut near) = slot.near.take() else { return self.slots.give(index) };
        if let Some(mut buffer) = buffer {
            if action == Action::Read && status.is_success() {
                status = match &near.source {
                    Source::Blocks { run, next, .. } if run.pass(false, *next, buffer.bytes_mut()) => {
                        near.give(buffer.bytes());
                        Status::SUCCESS
                    }
                    _ => Status::INTERNAL_ERROR,
                };
            }
            self.buffers.give(buffer);
        }
        self.slots.get(index).near = Some(near);
        match status.is_success() {
            true => self.near.ready.push_back(index),
            false => self.end_near(port, index, status),
        }
    }
}

/// The next step of a command.
enum Next {
    /// By another step.
    Again,
    /// When the storage has answered.
    Waits,
    /// When a buffer is free.
    NoBuffer,
    Done,
}

impl Near {
    /// The next bytes of the source go into the chain.
    fn give(&mut self, bytes: &[u8]) {
        let (next, left) = self.source.left();
        (*next, *left) = (*next + bytes.len() as u64, left.saturating_sub(bytes.len() as u64));
        let last = *left == 0;
        self.taken += bytes.len() as u64;
        self.pipeline.give(bytes, last);
    }

    /// Delivers the chain's output to its destination.
    fn deliver(
        &mut self,
        slot: &Slot,
        memory: &mut [u8],
        port: &mut dyn HostPort,
        bytes: &[u8],
    ) -> Result<(), Status> {
        let length = bytes.len() as u64;
        let room = match &mut self.target {
            Target::Guest { room } | Target::Blocks { room, .. } | Target::Memory { room, .. } => room,
        };
        *room = room.checked_sub(length).ok_or(Status::CAPACITY_EXCEEDED)?;
        match &mut self.target {
            Target::Guest { .. } => {
                if !slot.store_at(port, self.made, bytes) {
                    return Err(Status::DATA_TRANSFER_ERROR);
                }
            }
            Target::Blocks { .. } => self.pending.extend_from_slice(bytes),
            Target::Memory { next, .. } => {
                let place = memory.get_mut(*next as usize..).and_then(|rest| rest.get_mut(..bytes.len()));
                place.ok_or(Status::INTERNAL_ERROR)?.copy_from_slice(bytes);
                *next += length;
            }
        }
        self.made += length;
        Ok(())
    }

    /// The result page: status, the operator that failed, bytes in and out, then a digest slot for each
    /// operator.
    fn page(&self, status: Status) -> Box<[u8; RESULT_SIZE]> {
        let mut page = Box::new([0; RESULT_SIZE]);
        let digests = self.pipeline.digests().enumerate();
        page[..4].copy_from_slice(&self.request.to_le_bytes());
        page[4..6].copy_from_slice(&status.0.to_le_bytes());
        page[6] = self.pipeline.failed.unwrap_or(0xff);
        page[8..16].copy_from_slice(&self.taken.to_le_bytes());
        page[16..24].copy_from_slice(&self.made.to_le_bytes());
        let mut count = 0;
        for (place, slot) in digests {
            let at = 64 + place * slot.len();
            page[at..at + slot.len()].copy_from_slice(&slot);
            count += 1;
        }
        page[7] = count;
        page
    }
}
