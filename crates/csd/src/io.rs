//! Commands of the I/O queues: the NVM command set [NVM 3.2]; those of other command sets are passed on.

use dcs_nvme::command::{self, ALL_NAMESPACES, Blocks, Command, Datasets, Range, nvm};
use dcs_nvme::identify::set;
use dcs_nvme::walk::HostRange;
use dcs_nvme::{DataPointer, Status, Walk};

use crate::controller::{COMMAND_COST, Controller};
use crate::host::{Direction, HostPort};
use crate::namespace::Namespace;
use crate::near;
use crate::slots::Work;
use crate::storage::{Action, Buffer, Data, Request, Storage, Ticket, VolumeError, VolumeId};

/// Maximum number of pieces of the guest's memory in one request; if there are more, data are copied.
const PIECES: usize = 512;

/// The cost of a list entry or descriptor of a command's data, in bytes.
const PIECE_COST: u64 = 512;
const PIECES_FREE: u64 = 16;

/// Bytes that cost as much as one read or written byte if they are zeroed or deallocated without being
/// written.
const DEALLOCATED_PER_BYTE: u64 = 64;

/// Maximum cost of a deallocated range, in bytes. Guests deallocate terabytes with one range: otherwise their
/// next command would wait longer than their drivers' timeout. Freed data were paid for when they were
/// written.
const RANGE_BYTES_COST_MAX: u64 = 1 << 20;

/// Returns the status of a command whose request failed at the storage.
pub(crate) fn status_of(error: VolumeError, action: Action) -> Status {
    match (error, action) {
        (VolumeError::Medium(_), Action::Read) => Status::UNRECOVERED_READ_ERROR,
        (VolumeError::Medium(_), _) => Status::WRITE_FAULT,
        (VolumeError::Full, _) => Status::CAPACITY_EXCEEDED,
        (VolumeError::Refused, _) => Status::INTERNAL_ERROR,
    }
}

impl Controller {
    /// Begins a command of an I/O queue; returns its cost.
    pub(crate) fn io(
        &mut self,
        drive: u32,
        port: &mut dyn HostPort,
        storage: &mut dyn Storage,
        queue: u16,
        entry: &[u8; command::SIZE],
    ) -> u64 {
        let command = Command::from_bytes(entry);
        self.limiter.commands(self.slots.now, 1);
        let begun = match (self.set_of(command.namespace), command.opcode) {
            (set::LOCAL_MEMORY, _) => self.local_memory(port, queue, &command, entry),
            (set::PROGRAMS, _) => self.execute(port, queue, &command, entry),
            (_, near::NO_DATA | near::FROM_GUEST | near::TO_GUEST) if command.fused == 0 => {
                self.near_command(port, queue, &command, entry)
            }
            (_, nvm::COPY) if command.fused == 0 => self.copy_into_blocks(port, queue, &command),
            _ => self.begin_io(drive, port, storage, queue, &command),
        };
        let cost = match begun {
            Ok(cost) => cost,
            Err(status) => {
                self.end(port, queue, command.cid, status, 0);
                COMMAND_COST
            }
        };
        // Small pieces take as long as larger ones; a few of them are part of any command.
        let pieces = std::mem::take(&mut self.walked).saturating_sub(PIECES_FREE);
        cost.max(COMMAND_COST + PIECE_COST * pieces)
    }

    fn begin_io(
        &mut self,
        drive: u32,
        port: &mut dyn HostPort,
        storage: &mut dyn Storage,
        queue: u16,
        command: &Command,
    ) -> Result<u64, Status> {
        if command.fused != 0 {
            return Err(Status::INVALID_FIELD.with_do_not_retry());
        }
        match command.opcode {
            nvm::FLUSH if command.namespace == ALL_NAMESPACES => {
                self.flush_all(drive, storage, port, Work::Plain, (queue, command.cid));
                Ok(COMMAND_COST)
            }
            nvm::FLUSH => {
                let namespace = self.active(command.namespace)?;
                let volume = namespace.volume;
                let index = self.take(Work::Plain, queue, command)?;
                let request = (volume, Action::Flush, 0, 0);
                self.submit(drive, storage, index, request, Data::None);
                Ok(COMMAND_COST)
            }
            nvm::READ | nvm::WRITE | nvm::COMPARE => {
                let (index, length) = self.data_command(port, queue, command)?;
                if !self.begin(drive, index, port, storage) {
                    self.parked.push_back(index);
                }
                Ok(COMMAND_COST + length)
            }
            nvm::WRITE_ZEROES => self.write_zeroes(drive, port, storage, queue, command),
            nvm::DATASET_MANAGEMENT => self.manage_datasets(drive, port, storage, queue, command),
            _ => Err(Status::INVALID_OPCODE.with_do_not_retry()),
        }
    }

    /// Returns the namespace of a command.
    fn active(&self, number: u32) -> Result<&Namespace, Status> {
        let known = self.known(number).map_err(Status::with_do_not_retry)?;
        known.ok_or(Status::INVALID_FIELD.with_do_not_retry())
    }

    /// The same, for a command that writes.
    fn writable(&self, number: u32) -> Result<&Namespace, Status> {
        let namespace = self.active(number)?;
        if namespace.read_only {
            return Err(Status::WRITE_PROTECTED.with_do_not_retry());
        }
        Ok(namespace)
    }

    /// Takes a slot: commands are only taken while there is a free one.
    fn take(&mut self, work: Work, queue: u16, command: &Command) -> Result<u16, Status> {
        let index = self.slots.take(work, queue, command.cid).ok_or(Status::INTERRUPTED)?;
        self.slots.get(index).namespace = command.namespace;
        Ok(index)
    }

    fn submit(
        &mut self,
        drive: u32,
        storage: &mut dyn Storage,
        index: u16,
        (volume, action, offset, length): (crate::storage::VolumeId, Action, u64, u64),
        data: Data,
    ) {
        let slot = self.slots.get(index);
        (slot.volume, slot.action) = (volume, action);
        slot.remaining += 1;
        if slot.remaining == 1 {
            self.clocked.hands(index);
        }
        if matches!(action, Action::Read | Action::Write { .. }) {
            self.limiter.bytes(self.slots.now, length);
        }
        let ticket = Ticket { drive, slot: index };
        storage.submit(Request { ticket, volume, action, offset, length, data });
    }

    /// Checks a command with data, and stores the places of its data: returns its slot and the number of
    /// bytes.
    fn data_command(
        &mut self,
        port: &mut dyn HostPort,
        queue: u16,
        command: &Command,
    ) -> Result<(u16, u64), Status> {
        let namespace = match command.opcode {
            nvm::WRITE => self.writable(command.namespace)?,
            _ => self.active(command.namespace)?,
        };
        let blocks = Blocks::from_words(&command.words);
        let place = namespace.bytes(blocks.first, blocks.count.into());
        let (volume, chain, shift) = (namespace.volume, namespace.chain.clone(), namespace.shift);
        if u64::from(blocks.count) << namespace.shift > 1 << self.config.transfer_shift {
            return Err(Status::INVALID_FIELD.with_do_not_retry());
        }
        let (offset, length) = place.ok_or(Status::LBA_OUT_OF_RANGE.with_do_not_retry())?;
        let (work, action) = match command.opcode {
            nvm::READ => (Work::Transfer(Direction::ToGuest), Action::Read),
            nvm::COMPARE => (Work::Compare, Action::Read),
            _ => {
                let durable = self.is_durable(blocks.durable);
                (Work::Transfer(Direction::FromGuest), Action::Write { durable })
            }
        };
        let index = self.take(work, queue, command)?;
        let slot = self.slots.get(index);
        (slot.volume, slot.action, slot.offset, slot.length) = (volume, action, offset, length);
        (slot.chain, slot.shift) = (chain, shift);
        let mut places = std::mem::take(&mut slot.places);
        let found = self.find(port, &command.data, length, &mut places);
        self.slots.get(index).places = places;
        if let Err(status) = found {
            self.slots.give(index);
            return Err(status);
        }
        Ok((index, length))
    }

    /// Adds the places of a command's data to `places`; adjacent ones are joined.
    pub(crate) fn find(
        &mut self,
        port: &mut dyn HostPort,
        pointer: &DataPointer,
        length: u64,
        places: &mut Vec<HostRange>,
    ) -> Result<(), Status> {
        if let Some(place) = HostRange::of_one_page(pointer, length, self.registers.page()) {
            self.walked = 1;
            places.push(place);
            return Ok(());
        }
        let mut walk =
            Walk::new(pointer, length, self.registers.page()).map_err(Status::with_do_not_retry)?;
        let read = &mut |address, bytes: &mut [u8]| port.read(address, bytes).is_ok();
        loop {
            let place = walk.next(read).map_err(Status::with_do_not_retry);
            self.walked = walk.steps();
            let Some(place) = place? else { return Ok(()) };
            match places.last_mut() {
                Some(last) if last.address.checked_add(last.length) == Some(place.address) => {
                    last.length += place.length;
                }
                _ => places.push(place),
            }
        }
    }

    /// Hands a command with data to the storage; returns false if it needs a buffer and none is free.
    fn begin(&mut self, drive: u32, index: u16, port: &mut dyn HostPort, storage: &mut dyn Storage) -> bool {
        let slot = self.slots.get(index);
        let (work, queue, cid) = (slot.work, slot.queue, slot.cid);
        let request = (slot.volume, slot.action, slot.offset, slot.length);
        let Some(info) = storage.volume(slot.volume) else {
            self.slots.give(index);
            self.end(port, queue, cid, Status::INTERNAL_ERROR, 0);
            return true;
        };
        let mut pieces = std::mem::take(&mut slot.pieces);
        let direct = match work {
            Work::Transfer(direction) if slot.chain.is_none() && slot.places.len() <= PIECES => {
                slot.places.iter().all(|place| {
                    let piece = port.direct(place.address, place.length, direction);
                    let alignment = (info.memory_alignment as usize, info.alignment as usize);
                    let piece = piece.filter(|piece| piece.is_aligned(alignment));
                    piece.map(|piece| pieces.push(piece)).is_some()
                })
            }
            _ => false,
        };
        if direct {
            self.submit(drive, storage, index, request, Data::Pieces(pieces));
            return true;
        }
        pieces.clear();
        slot.pieces = pieces;
        let length = slot.length.min(1 << self.config.transfer_shift);
        let Some(mut buffer) = self.buffers.take(length as usize) else { return false };
        let slot = self.slots.get(index);
        let status = match work {
            Work::Zeros => slot.zeros(buffer.bytes_mut()),
            Work::Transfer(Direction::FromGuest) => slot.fetch(port, buffer.bytes_mut()),
            _ => Status::SUCCESS,
        };
        if !status.is_success() {
            self.buffers.give(buffer);
            self.slots.give(index);
            self.end(port, queue, cid, status, 0);
            return true;
        }
        let request = (request.0, request.1, request.2, length);
        self.submit(drive, storage, index, request, Data::Buffer(buffer));
        true
    }

    /// Begins the commands that wait for a buffer, as far as buffers are free.
    pub(crate) fn unpark(&mut self, drive: u32, port: &mut dyn HostPort, storage: &mut dyn Storage) -> bool {
        let mut busy = false;
        while let Some(index) = self.parked.front().copied() {
            if !self.begin(drive, index, port, storage) {
                break;
            }
            self.parked.pop_front();
            busy = true;
        }
        busy
    }

    /// Takes a buffer back that the storage has filled or written.
    pub(crate) fn through_buffer(&mut self, port: &mut dyn HostPort, index: u16, bytes: &mut [u8]) -> Status {
        let slot = self.slots.get(index);
        match slot.work {
            Work::Transfer(Direction::ToGuest) | Work::Compare if !slot.pass(false, bytes) => {
                Status::INTERNAL_ERROR
            }
            Work::Transfer(Direction::ToGuest) if !slot.store(port, bytes) => Status::DATA_TRANSFER_ERROR,
            Work::Compare => slot.compare(port, bytes),
            _ => Status::SUCCESS,
        }
    }

    /// Writes the next zeros that pass a chain, in the buffer of the last ones. Returns the buffer if there are
    /// none, or the command has failed.
    pub(crate) fn more_zeros(
        &mut self,
        ticket: Ticket,
        storage: &mut dyn Storage,
        mut buffer: Buffer,
    ) -> Option<Buffer> {
        let slot = self.slots.get(ticket.slot);
        let done = buffer.bytes().len() as u64;
        (slot.offset, slot.length) = (slot.offset + done, slot.length.saturating_sub(done));
        if slot.length == 0 || !slot.status.is_success() {
            return Some(buffer);
        }
        let (namespace, volume, offset) = (slot.namespace, slot.volume, slot.offset);
        let length = slot.length.min(buffer.room() as u64);
        buffer.resize(length as usize);
        let there = self.still_has(namespace, volume, offset + length);
        let slot = self.slots.get(ticket.slot);
        slot.status = there.map_or_else(|status| status, |()| slot.zeros(buffer.bytes_mut()));
        if !slot.status.is_success() {
            return Some(buffer);
        }
        let request = (slot.volume, slot.action, slot.offset, length);
        self.submit(ticket.drive, storage, ticket.slot, request, Data::Buffer(buffer));
        None
    }

    /// Counts the bytes moved.
    pub(crate) fn count(&mut self, index: u16, status: Status) {
        let slot = self.slots.get(index);
        let (work, length) = (slot.work, slot.length);
        if status.is_success() {
            match work {
                Work::Transfer(Direction::FromGuest) => {
                    self.logs.counters.writes += 1;
                    self.logs.counters.bytes_written += length;
                }
                _ => {
                    self.logs.counters.reads += 1;
                    self.logs.counters.bytes_read += length;
                }
            }
        }
    }

    #[inline(never)]
    fn write_zeroes(
        &mut self,
        drive: u32,
        port: &mut dyn HostPort,
        storage: &mut dyn Storage,
        queue: u16,
        command: &Command,
    ) -> Result<u64, Status> {
        let namespace = self.writable(command.namespace)?;
        let blocks = Blocks::from_words(&command.words);
        let place = namespace.bytes(blocks.first, blocks.count.into());
        let (offset, length) = place.ok_or(Status::LBA_OUT_OF_RANGE.with_do_not_retry())?;
        let (volume, thin) = (namespace.volume, namespace.thin);
        let durable = self.is_durable(blocks.durable);
        if let Some(chain) = namespace.chain.clone() {
            let shift = namespace.shift;
            let index = self.take(Work::Zeros, queue, command)?;
            let slot = self.slots.get(index);
            (slot.volume, slot.action) = (volume, Action::Write { durable });
            (slot.offset, slot.length, slot.chain, slot.shift) = (offset, length, Some(chain), shift);
            if !self.begin(drive, index, port, storage) {
                self.parked.push_back(index);
            }
            return Ok(COMMAND_COST + length);
        }
        let deallocate = thin && command.words[2] & Blocks::DEALLOCATE != 0;
        let action = Action::Zero { deallocate, durable };
        // The disk may have to write all of them.
        let is_written = !thin || !deallocate && storage.volume(volume).is_some_and(|info| info.writes_zeros);
        let index = self.take(Work::Plain, queue, command)?;
        self.slots.get(index).length = if is_written { length } else { 0 };
        self.submit(drive, storage, index, (volume, action, offset, length), Data::None);
        if !is_written {
            return Ok(COMMAND_COST + length / DEALLOCATED_PER_BYTE);
        }
        self.limiter.bytes(self.slots.now, length);
        Ok(COMMAND_COST + length)
    }

    #[inline(never)]
    fn manage_datasets(
        &mut self,
        drive: u32,
        port: &mut dyn HostPort,
        storage: &mut dyn Storage,
        queue: u16,
        command: &Command,
    ) -> Result<u64, Status> {
        let datasets = Datasets::from_words(&command.words);
        let namespace = match datasets.deallocate {
            true => self.writable(command.namespace)?,
            false => self.active(command.namespace)?,
        };
        let mut bytes = [0; 256 * Range::SIZE];
        let bytes = &mut bytes[..usize::from(datasets.ranges) * Range::SIZE];
        match self.copy_in(port, &command.data, bytes) {
            Status::SUCCESS => {}
            status => return Err(status),
        }
        let ranges = || bytes.chunks_exact(Range::SIZE).map(Range::from_bytes);
        let place = |range: Range| namespace.bytes(range.first, range.count.into());
        if ranges().any(|range| place(range).is_none()) {
            return Err(Status::LBA_OUT_OF_RANGE.with_do_not_retry());
        }
        let (volume, wanted) =
            (namespace.volume, datasets.deallocate && (namespace.thin || namespace.takes_hints));
        let places: Vec<_> =
            ranges().filter_map(place).filter(|(_, length)| wanted && *length > 0).rev().collect();
        if places.is_empty() {
            self.end(port, queue, command.cid, Status::SUCCESS, 0);
            return Ok(COMMAND_COST + bytes.len() as u64);
        }
        let index = self.take(Work::Ranges, queue, command)?;
        // Each range counts as a command, for the limits too.
        self.limiter.commands(self.slots.now, places.len() as u64 - 1);
        let cost_of = |length: u64| COMMAND_COST + RANGE_BYTES_COST_MAX.min(length / DEALLOCATED_PER_BYTE);
        let cost = places.iter().map(|(_, length)| cost_of(*length)).sum();
        let slot = self.slots.get(index);
        (slot.volume, slot.ranges, slot.length) = (volume, places, 0);
        self.next_range(Ticket { drive, slot: index }, storage);
        Ok(cost)
    }

    /// Deallocates a command's next range. It is one at a time, so that a command has one request at the
    /// storage, however many ranges it has. Returns false if there is none, or the namespace does not have it
    /// any more.
    pub(crate) fn next_range(&mut self, ticket: Ticket, storage: &mut dyn Storage) -> bool {
        let slot = self.slots.get(ticket.slot);
        let (namespace, volume) = (slot.namespace, slot.volume);
        let Some((offset, length)) = slot.ranges.pop() else { return false };
        if let Err(status) = self.still_has(namespace, volume, offset + length) {
            self.slots.get(ticket.slot).status = status;
            return false;
        }
        let request = (volume, Action::Deallocate, offset, length);
        self.submit(ticket.drive, storage, ticket.slot, request, Data::None);
        true
    }

    /// Checks that a namespace is on this volume and has at least this many bytes: it may have been cut or
    /// replaced since a command on it began.
    fn still_has(&self, namespace: u32, volume: VolumeId, end: u64) -> Result<(), Status> {
        let namespace = self.writable(namespace)?;
        if namespace.volume != volume {
            return Err(Status::INVALID_FIELD.with_do_not_retry());
        }
        match end <= namespace.blocks << namespace.shift {
            true => Ok(()),
            false => Err(Status::LBA_OUT_OF_RANGE.with_do_not_retry()),
        }
    }
}
