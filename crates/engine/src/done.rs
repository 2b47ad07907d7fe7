//! Done: what a device's answer means for its entry, and for those that wait for it.

use crate::blocks::Block;
use crate::command::Phase;
use crate::engine::Engine;
use crate::finish::is_sound;
use crate::message::{BlockId, Fault, OperationId, Outcome};
use crate::plan::TAIL_DESTINATION;
use crate::scoreboard::{Device, Entry, EntryId, State};
use dcs_abi::entry::LENGTH_TO_END;
use dcs_abi::operator::OperatorKind;
use dcs_abi::result::DigestSlot;
use dcs_abi::status::{Stage, Status};

impl Engine {
    pub(crate) fn on_done(&mut self, operation: OperationId, outcome: Outcome) {
        let Some(id) = self.board.issued(operation) else {
            self.counters.stale_events += 1;
            return;
        };
        let entry = self.take_back(id, outcome);
        let now = self.now;
        let index = entry.command;
        let command = self.commands.at(index);
        command.in_flight -= 1;
        if entry.orphan {
            self.board.remove(id);
            [entry.block, entry.output].into_iter().flatten().for_each(|block| self.free_if_unused(block));
            return self.release_slot(index);
        }
        let times = &mut command.result.stages[entry.device.slot()];
        times.last_done = now;
        times.busy += now - entry.issued;
        if let Outcome::Moved { path, .. } = outcome {
            command.result.path |= path;
        }
        if command.failure.is_some() {
            return self.drained(id, entry, outcome);
        }
        if let Err(fault) = self.advance(id, entry, outcome) {
            let (stage, at) = entry.device.stage();
            let id = self.commands.id(index);
            self.fail(id, stage, at, fault);
        }
    }

    /// Takes unit and blocks back from a device that is done with an entry.
    fn take_back(&mut self, id: EntryId, outcome: Outcome) -> Entry {
        let entry = self.board.get(id);
        entry.state = State::Ready;
        let unit = entry.unit.take();
        let entry = *entry;
        if let Outcome::Moved { held: true, .. } = outcome
            && let Some(block) = entry.block
        {
            self.blocks.get_mut(block).holds += 1;
        }
        for block in [entry.block, entry.output].into_iter().flatten() {
            self.blocks.get_mut(block).busy -= 1;
        }
        self.return_unit(entry.pool, unit);
        entry
    }

    /// Takes an entry a step on, by what its device did.
    fn advance(&mut self, id: EntryId, entry: Entry, outcome: Outcome) -> Result<(), Fault> {
        let broken = Err(Fault::new(Status::InternalError));
        match (entry.device, outcome) {
            (Device::Direct, Outcome::Failed(Fault { status: Status::PathUnavailable, .. })) => {
                self.leave_direct(id, entry.command);
            }
            (_, Outcome::Failed(fault)) => return Err(fault),
            (Device::Source, Outcome::Moved { bytes, held: false, .. }) if bytes <= entry.asked => {
                self.read_moved(id, entry, bytes as u32);
            }
            (Device::Destination, Outcome::Moved { bytes, .. }) if (1..=entry.asked).contains(&bytes) => {
                self.write_moved(id, entry, bytes as u32);
            }
            (Device::Direct, Outcome::Moved { bytes, held: false, .. }) if bytes <= entry.asked => {
                self.direct_moved(id, entry.command, bytes);
            }
            (Device::Operator(at), Outcome::Digest(slot)) => return self.digest_done(id, entry, at, slot),
            (Device::Operator(at), Outcome::Processed { consumed, produced, finished }) => {
                return self.processed(id, entry, at, (consumed, produced, finished));
            }
            (Device::Flush, Outcome::Flushed) => {
                self.board.remove(id);
                let id = self.commands.id(entry.command);
                self.finish(id);
            }
            _ => return broken,
        }
        Ok(())
    }

    fn read_moved(&mut self, id: EntryId, mut entry: Entry, bytes: u32) {
        let Some(block) = entry.block else { return };
        let command = self.commands.at(entry.command);
        command.result.bytes_in += u64::from(bytes);
        if bytes == 0 {
            return self.source_ended(id, entry, block);
        }
        entry.start += bytes;
        if command.parallel_reads {
            entry.position = entry.position.advance(command.spec(), u64::from(bytes));
        } else {
            command.read_at = command.read_at.advance(command.spec(), u64::from(bytes));
        }
        let ends_short = entry.start < entry.end && !command.parallel_reads && !command.gather;
        if ends_short {
            // What a stream has is passed on; the rest of the block's plan is taken back.
            command.planned -= u64::from(entry.end - entry.start);
            command.source_done = false;
            self.blocks.get_mut(block).last = false;
            entry.end = entry.start;
        }
        *self.board.get(id) = entry;
        self.ready.push_back(id);
    }

    /// The source gave no more bytes: this block is the last one, whatever was planned.
    fn source_ended(&mut self, id: EntryId, mut entry: Entry, block: BlockId) {
        let sequence = self.blocks.get(block).sequence;
        self.blocks.get_mut(block).last = true;
        let command = self.commands.at(entry.command);
        command.source_done = true;
        command.source_short = command.spec().length != LENGTH_TO_END;
        command.last_block = command.last_block.min(sequence);
        entry.end = entry.start;
        *self.board.get(id) = entry;
        self.ready.push_back(id);
    }

    pub(crate) fn read_done(&mut self, id: EntryId, entry: Entry, block: BlockId) {
        self.blocks.get_mut(block).length = entry.start;
        self.commands.at(entry.command).reads_in_flight -= 1;
        self.go_on(id, entry);
        self.plan(entry.command);
    }

    fn write_moved(&mut self, id: EntryId, mut entry: Entry, bytes: u32) {
        entry.start += bytes;
        entry.position = entry.position.advance(self.commands.at(entry.command).spec(), u64::from(bytes));
        *self.board.get(id) = entry;
        self.count_delivered(id, entry, u64::from(bytes));
        self.ready.push_back(id);
    }

    /// Delivered is what the destination took in order: what a write puts behind one that is not done yet counts
    /// when its turn comes, and never where the source ended before it.
    pub(crate) fn count_delivered(&mut self, id: EntryId, entry: Entry, bytes: u64) {
        let in_order = self.commands.at(entry.command).writes.front() == Some(&id);
        if in_order && entry.block.is_some_and(|block| !self.is_dropped(entry.command, block)) {
            self.commands.at(entry.command).result.bytes_out += bytes;
        }
    }

    pub(crate) fn write_done(&mut self, id: EntryId, entry: Entry, block: BlockId) {
        self.follow(entry);
        self.board.get(id).state = State::Done;
        let is_final = self.blocks.get(block).last && !self.is_dropped(entry.command, block);
        let command = self.commands.at(entry.command);
        command.final_written |= is_final;
        if command.tails[TAIL_DESTINATION] == Some(id) {
            command.tails[TAIL_DESTINATION] = None;
        }
        self.retire_writes(entry.command);
        let command = self.commands.at(entry.command);
        if command.final_written && command.writes.is_empty() && command.phase == Phase::Run {
            self.data_done(entry.command);
        } else if command.direct {
            self.plan(entry.command);
        }
    }

    /// Takes writes that are done off the front, and frees their blocks: only now, so that a slow write holds up
    /// reading at the window. What the next one has written so far counts as delivered.
    pub(crate) fn retire_writes(&mut self, index: u16) {
        while let Some(front) = self.commands.at(index).writes.front().copied() {
            let Some(entry) = self.board.find(front).copied() else {
                // Removed when its command failed: nothing after it is in order any more.
                return self.commands.at(index).writes.clear();
            };
            if entry.state != State::Done {
                return;
            }
            self.board.remove(front);
            self.commands.at(index).writes.pop_front();
            if let Some(block) = entry.block {
                self.retire_block(block);
            }
            if let Some(next) = self.commands.at(index).writes.front().copied()
                && let Some(entry) = self.board.find(next).copied()
            {
                self.count_delivered(next, entry, u64::from(entry.start));
            }
        }
    }

    fn direct_moved(&mut self, id: EntryId, index: u16, bytes: u64) {
        let command = self.commands.at(index);
        if bytes == 0 {
            command.source_short = command.spec().length != LENGTH_TO_END;
            self.board.remove(id);
            return self.data_done(index);
        }
        command.planned += bytes;
        command.read_at = command.read_at.advance(command.spec(), bytes);
        command.write_at = command.write_at.advance(command.spec(), bytes);
        command.result.bytes_in += bytes;
        command.result.bytes_out += bytes;
        self.ready.push_back(id);
    }

    /// The direct path turned out not to be there: the rest goes by blocks.
    pub(crate) fn leave_direct(&mut self, id: EntryId, index: u16) {
        self.board.remove(id);
        let command = self.commands.at(index);
        command.direct = false;
        command.source_done = false;
        self.plan(index);
    }

    fn digest_done(&mut self, id: EntryId, entry: Entry, at: u8, slot: DigestSlot) -> Result<(), Fault> {
        let Some(block) = entry.block else { return Ok(()) };
        let command = self.commands.at(entry.command);
        let operator = command.spec().chain[at as usize].operator;
        if !is_sound(operator, &slot) || !self.blocks.get(block).last {
            return Err(Fault::new(Status::InternalError));
        }
        command.digests[at as usize] = Some(slot);
        self.operator_done(id, entry, operator.kind(), block);
        Ok(())
    }

    fn processed(&mut self, id: EntryId, entry: Entry, at: u8, done: (u32, u32, bool)) -> Result<(), Fault> {
        let Some(block) = entry.block else { return Ok(()) };
        let kind = self.commands.at(entry.command).spec().chain[at as usize].operator.kind();
        let last = self.blocks.get(block).last;
        let sound = match kind {
            OperatorKind::Resize => return self.resized(id, entry, block, done),
            OperatorKind::Digest { .. } => !last && u64::from(done.0) == entry.asked,
            OperatorKind::InPlace { .. } => u64::from(done.0) == entry.asked,
        };
        if !sound {
            return Err(Fault::new(Status::InternalError));
        }
        self.operator_done(id, entry, kind, block);
        Ok(())
    }

    fn resized(
        &mut self,
        id: EntryId,
        mut entry: Entry,
        block: BlockId,
        done: (u32, u32, bool),
    ) -> Result<(), Fault> {
        let (consumed, produced, finished) = done;
        let Some(output) = entry.output.take() else { return Err(Fault::new(Status::InternalError)) };
        let Block { length, last, segment, .. } = *self.blocks.get(block);
        let room = self.config.block_size - self.blocks.get(output).length;
        let all = u64::from(consumed) == entry.asked;
        let moved = consumed > 0 || produced > 0 || finished;
        if u64::from(consumed) > entry.asked || produced > room || !moved || (finished && !(last && all)) {
            return Err(Fault::new(Status::InternalError));
        }
        entry.start += consumed;
        *self.board.get(id) = entry;
        self.blocks.get_mut(output).length += produced;
        if finished || produced == room {
            self.blocks.get_mut(output).last = finished;
            self.commands.at(entry.command).segments[segment as usize + 1].filling = None;
            self.add_row(entry.command, segment + 1, output, None);
        }
        if finished || (entry.start == length && !last) {
            self.operator_done(id, entry, OperatorKind::Resize, block);
        } else {
            self.ready.push_back(id);
        }
        Ok(())
    }

    pub(crate) fn operator_done(&mut self, id: EntryId, entry: Entry, kind: OperatorKind, block: BlockId) {
        self.go_on(id, entry);
        if kind == OperatorKind::Resize {
            self.retire_block(block);
        }
    }

    /// Lets the entries go on that wait for this one, and removes it.
    fn go_on(&mut self, id: EntryId, entry: Entry) {
        if let Device::Operator(at) = entry.device {
            let tail = &mut self.commands.at(entry.command).tails[at as usize];
            if *tail == Some(id) {
                *tail = None;
            }
        }
        // It may have been given a unit that it turned out not to need.
        self.return_unit(entry.pool, entry.unit);
        self.follow(entry);
        self.board.remove(id);
    }

    fn follow(&mut self, entry: Entry) {
        for next in [entry.next_stage, entry.next_block].into_iter().flatten() {
            let waiting = self.board.get(next);
            waiting.waits -= 1;
            if waiting.waits == 0 {
                self.ready.push_back(next);
            }
        }
    }

    /// A unit is free: it goes to the entry that waited longest for one of its kind.
    pub(crate) fn return_unit(&mut self, pool: u8, unit: Option<u16>) {
        let Some(unit) = unit else { return };
        if let Some(next) = self.units.release(pool, unit) {
            self.board.get(next).unit = Some(unit);
            self.ready.push_back(next);
        }
    }

    /// All bytes are at the destination.
    pub(crate) fn data_done(&mut self, index: u16) {
        let id = self.commands.id(index);
        let command = self.commands.at(index);
        if command.source_short {
            return self.fail(id, Stage::Source, 0, Fault::new(Status::EndOfSource));
        }
        if !command.spec().durable {
            return self.finish(id);
        }
        command.phase = Phase::Flush;
        let flush = self.board.add(index, Device::Flush, None);
        self.ready.push_back(flush);
    }
}
