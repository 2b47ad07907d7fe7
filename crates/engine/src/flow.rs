//! A command's data: blocks are planned, their rows of entries become ready, are dispatched, and are done.

use crate::blocks::Block;
use crate::command::Phase;
use crate::engine::Engine;
use crate::message::{Action, BlockId, Fault, Operation, OperationId, OperationKind, Outcome, Place};
use crate::scoreboard::{Device, Entry, State};
use dcs_abi::CHAIN_MAX;
use dcs_abi::entry::LENGTH_TO_END;
use dcs_abi::operator::OperatorKind;
use dcs_abi::result::{DigestSlot, STAGE_DESTINATION, STAGE_OPERATORS, STAGE_SOURCE};
use dcs_abi::status::{Stage, Status};

/// Place of the destination in `Command::tails`.
const TAIL_DESTINATION: usize = CHAIN_MAX;

impl Device {
    /// The stage, and the operator's place, that a failure names.
    pub(crate) fn stage(self) -> (Stage, u8) {
        match self {
            Device::Source => (Stage::Source, 0),
            Device::Operator(at) | Device::Snapshot(at) => (Stage::Operator, at),
            Device::Destination | Device::Direct | Device::Flush => (Stage::Destination, 0),
        }
    }

    /// The place of its times in the result.
    fn slot(self) -> usize {
        match self {
            Device::Source => STAGE_SOURCE,
            Device::Operator(at) | Device::Snapshot(at) => STAGE_OPERATORS + at as usize,
            Device::Destination | Device::Direct | Device::Flush => STAGE_DESTINATION,
        }
    }
}

// Planning: which blocks, which entries.
impl Engine {
    /// Plans as many reads as window and credits allow.
    pub(crate) fn plan(&mut self, index: u16) {
        loop {
            let command = self.commands.at(index);
            if command.phase != Phase::Run || command.source_done {
                return;
            }
            if command.direct && command.read_at.place == Place::Source {
                return self.plan_direct(index);
            }
            if !command.parallel_reads && command.reads_in_flight > 0 {
                return;
            }
            let Some(block) = self.take_block(index, 0) else { return };
            self.plan_read(index, block);
        }
    }

    fn plan_read(&mut self, index: u16, block: BlockId) {
        let block_size = u64::from(self.config.block_size);
        let command = self.commands.at(index);
        let spec = command.spec();
        let mut wanted = block_size.min(spec.length - command.planned);
        if command.direct {
            // Only the prefix goes by blocks; the source follows by itself.
            let prefix = spec.prefix.as_ref().map_or(0, |prefix| prefix.length());
            wanted = wanted.min(prefix - command.planned);
        }
        let at = command.read_at;
        if command.parallel_reads {
            command.read_at = at.advance(spec, wanted);
        }
        command.planned += wanted;
        command.source_done = command.planned == command.spec().length;
        command.reads_in_flight += 1;
        self.blocks.get_mut(block).last = command.source_done;
        let read = self.board.add(index, Device::Source, Some(block));
        let entry = self.board.get(read);
        (entry.position, entry.end) = (at, wanted as u32);
        self.add_row(index, 0, block, Some(read));
        self.make_ready(read);
    }

    /// Adds the entries of a block's way through its segment, behind its read if there is one.
    fn add_row(&mut self, index: u16, segment: u8, block: BlockId, read: Option<OperationId>) {
        let command = self.commands.at(index);
        let (first, end) = (command.segments[segment as usize].first, command.segments[segment as usize].end);
        let is_last = segment + 1 == command.segment_count;
        let ordered_writes = !command.parallel_writes;
        let mut previous = read;
        for at in first..end {
            let entry = self.add_to_row(index, Device::Operator(at), block, &mut previous);
            self.wait_for_tail(index, at as usize, entry);
        }
        if is_last {
            let entry = self.add_to_row(index, Device::Destination, block, &mut previous);
            if ordered_writes {
                self.wait_for_tail(index, TAIL_DESTINATION, entry);
            }
            let command = self.commands.at(index);
            command.writes.push_back(entry);
            if command.parallel_reads && segment == 0 {
                // Reads of blocks may overtake each other: each block's place at the destination is fixed now.
                let length = u64::from(read.map_or(0, |read| self.board.get(read).end));
                self.board.get(entry).position = command.write_at;
                command.write_at = command.write_at.advance(command.spec(), length);
            }
        }
    }

    /// Adds one entry; the one before it in the row, or the first of a row without a read, decides when it is ready.
    fn add_to_row(
        &mut self,
        index: u16,
        device: Device,
        block: BlockId,
        previous: &mut Option<OperationId>,
    ) -> OperationId {
        let entry = self.board.add(index, device, Some(block));
        if let Some(previous) = *previous {
            self.board.get(previous).next_stage = Some(entry);
            self.board.get(entry).waits += 1;
        } else {
            // Ready as soon as the tail of its stage allows: `wait_for_tail` runs before the line is looked at.
            self.ready.push_back(entry);
        }
        *previous = Some(entry);
        entry
    }

    /// Lets an entry wait for the same stage's entry of the block before.
    fn wait_for_tail(&mut self, index: u16, tail: usize, entry: OperationId) {
        let before = self.commands.at(index).tails[tail].replace(entry);
        if let Some(before) = before {
            self.board.get(before).next_block = Some(entry);
            self.board.get(entry).waits += 1;
        }
    }

    fn plan_direct(&mut self, index: u16) {
        let command = self.commands.at(index);
        if command.in_flight > 0 || command.reads_in_flight > 0 || !command.writes.is_empty() {
            return;
        }
        command.source_done = true;
        let entry = self.board.add(index, Device::Direct, None);
        self.make_ready(entry);
    }

    fn make_ready(&mut self, id: OperationId) {
        self.ready.push_back(id);
    }
}

// Blocks and credits.
impl Engine {
    /// Takes a block for a segment: its reserved one, or one on credit. Where there is none the segment gets in line,
    /// or, at its window, waits for one of its own.
    fn take_block(&mut self, index: u16, segment: u8) -> Option<BlockId> {
        let id = self.commands.id(index);
        let command = self.commands.at(index);
        let state = &mut command.segments[segment as usize];
        if state.held >= self.config.window {
            return None;
        }
        let on_credit = state.held > 0;
        if on_credit && !self.blocks.quota.take(command.queue.0 as usize, 1) {
            if !core::mem::replace(&mut state.hungry, true) {
                self.hungry.push_back((id, segment));
            }
            return None;
        }
        command.charged += u32::from(on_credit);
        let (queue, sequence) = (command.queue.0, state.sequence);
        state.held += 1;
        state.sequence += 1;
        let block = Block { command: index, queue, segment, sequence, ..Block::default() };
        let taken = self.blocks.take(block);
        debug_assert!(taken.is_some(), "the quota counts blocks");
        taken
    }

    /// Gives blocks to segments in line, each one block a turn.
    pub(crate) fn feed(&mut self) {
        for _ in 0..self.hungry.len() {
            if self.blocks.quota.free() == 0 {
                return;
            }
            let Some((id, segment)) = self.hungry.pop_front() else { return };
            let Some(command) = self.commands.find(id) else { continue };
            command.segments[segment as usize].hungry = false;
            self.refill(id.index, segment);
        }
    }

    /// A segment may have a block now: reads on, or lets the entry go on that waits to fill one.
    fn refill(&mut self, index: u16, segment: u8) {
        if segment == 0 {
            self.plan(index);
        } else if let Some(entry) = self.commands.at(index).segments[segment as usize].stalled.take() {
            self.ready.push_back(entry);
        }
    }

    /// A block's row is done: it is free once no device uses it.
    fn retire_block(&mut self, id: BlockId) {
        self.blocks.get_mut(id).retired = true;
        self.free_if_unused(id);
    }

    pub(crate) fn free_if_unused(&mut self, id: BlockId) {
        let block = *self.blocks.get(id);
        if !block.retired || block.busy > 0 || block.holds > 0 {
            return;
        }
        self.blocks.put(id);
        if block.orphan {
            return self.blocks.quota.give(block.queue as usize, 1);
        }
        let generation = self.commands.id(block.command);
        let command = self.commands.at(block.command);
        let state = &mut command.segments[block.segment as usize];
        state.held -= 1;
        let was_credit = state.held > 0;
        if was_credit {
            command.charged -= 1;
            self.blocks.quota.give(block.queue as usize, 1);
        }
        if was_credit && !self.hungry.is_empty() {
            // Others are in line: this segment joins them at the end.
            if !core::mem::replace(&mut state.hungry, true) {
                self.hungry.push_back((generation, block.segment));
            }
        } else {
            self.refill(block.command, block.segment);
        }
    }

    pub(crate) fn on_released(&mut self, id: BlockId) {
        if self.blocks.find(id).is_none_or(|block| block.holds == 0) {
            self.counters.stale_events += 1;
            return;
        }
        self.blocks.get_mut(id).holds -= 1;
        self.free_if_unused(id);
    }
}

// Dispatch: a ready entry goes to its device, or waits for a unit or a block.
impl Engine {
    pub(crate) fn dispatch(&mut self, id: OperationId) {
        let Some(entry) = self.board.find(id) else { return };
        if entry.waits > 0 || !matches!(entry.state, State::Wait | State::Ready) {
            return;
        }
        entry.state = State::Ready;
        let entry = *entry;
        match (entry.device, entry.block) {
            (Device::Source, Some(block)) => self.dispatch_read(id, entry, block),
            (Device::Operator(at), Some(block)) => self.dispatch_operator(id, entry, at, block),
            (Device::Destination, Some(block)) => self.dispatch_write(id, entry, block),
            (Device::Direct, _) => self.dispatch_direct(id, entry),
            (Device::Snapshot(operator), _) => self.issue(id, OperationKind::Snapshot { operator }, 0),
            (Device::Flush, _) => self.issue(id, OperationKind::Flush, 0),
            _ => {}
        }
    }

    fn dispatch_read(&mut self, id: OperationId, entry: Entry, block: BlockId) {
        let command = self.commands.at(entry.command);
        if entry.start == entry.end {
            return self.read_done(id, entry, block);
        }
        let position = if command.parallel_reads { entry.position } else { command.read_at };
        let (offset, run) = position.run(command.spec());
        let length = run.min(u64::from(entry.end - entry.start)) as u32;
        let kind = OperationKind::Read { place: position.place, offset, block, start: entry.start, length };
        self.issue(id, kind, u64::from(length));
    }

    fn dispatch_operator(&mut self, id: OperationId, entry: Entry, at: u8, block: BlockId) {
        let Block { length, last, segment, .. } = *self.blocks.get(block);
        let command = self.commands.at(entry.command);
        let operator = &command.spec().chain[at as usize];
        let (kind, pool) = (operator.operator.kind(), operator.pool);
        if self.is_dropped(entry.command, block) || (length == 0 && !last) {
            return self.operator_done(id, entry, kind, block);
        }
        if kind == OperatorKind::Resize && !self.has_output(id, entry.command, segment + 1) {
            return;
        }
        let unit = entry.unit.or_else(|| self.units.rename(pool, id));
        let state = self.board.get(id);
        (state.pool, state.unit) = (pool, unit);
        let Some(unit) = unit else { return };
        if kind != OperatorKind::Resize {
            let kind = OperationKind::Process { unit, operator: at, block, length, last };
            return self.issue(id, kind, u64::from(length));
        }
        let Some(output) = self.commands.at(entry.command).segments[segment as usize + 1].filling else {
            return;
        };
        let output_start = self.blocks.get(output).length;
        self.board.get(id).output = Some(output);
        let asked = length - entry.start;
        let kind = OperationKind::Resize {
            unit,
            operator: at,
            block,
            start: entry.start,
            length: asked,
            output,
            output_start,
            output_length: self.config.block_size - output_start,
            last,
        };
        self.issue(id, kind, u64::from(asked));
    }

    /// True where the segment has a block to fill, now or already; else the entry waits for one.
    fn has_output(&mut self, id: OperationId, index: u16, segment: u8) -> bool {
        if self.commands.at(index).segments[segment as usize].filling.is_some() {
            return true;
        }
        let taken = self.take_block(index, segment);
        let state = &mut self.commands.at(index).segments[segment as usize];
        state.filling = taken;
        state.stalled = if taken.is_none() { Some(id) } else { None };
        taken.is_some()
    }

    fn dispatch_write(&mut self, id: OperationId, entry: Entry, block: BlockId) {
        let Block { length, last, .. } = *self.blocks.get(block);
        if self.is_dropped(entry.command, block) || entry.start == length {
            return self.write_done(id, entry, block);
        }
        let command = self.commands.at(entry.command);
        let mut position = entry.position;
        if position.place != Place::Destination {
            position = command.write_at;
            command.write_at = position.advance(command.spec(), u64::from(length));
            self.board.get(id).position = position;
        }
        let (offset, run) = position.run(command.spec());
        if run == 0 {
            let id = self.commands.id(entry.command);
            return self.fail(id, Stage::Destination, 0, Fault::new(Status::CapacityExceeded));
        }
        let more = !last || command.spec().more;
        let length = run.min(u64::from(length - entry.start)) as u32;
        let kind = OperationKind::Write { offset, block, start: entry.start, length, more };
        self.issue(id, kind, u64::from(length));
    }

    fn dispatch_direct(&mut self, id: OperationId, entry: Entry) {
        let chunk = self.config.direct_chunk;
        let command = self.commands.at(entry.command);
        let spec = command.spec();
        let left = spec.length - command.planned;
        if left == 0 {
            self.board.remove(id);
            return self.data_done(entry.command);
        }
        let (source, source_run) = command.read_at.run(spec);
        let (destination, destination_run) = command.write_at.run(spec);
        if destination_run == 0 {
            let id = self.commands.id(entry.command);
            return self.fail(id, Stage::Destination, 0, Fault::new(Status::CapacityExceeded));
        }
        let length = left.min(source_run).min(destination_run).min(chunk);
        let more = length < left || spec.more;
        self.issue(id, OperationKind::Direct { source, destination, length, more }, length);
    }

    pub(crate) fn issue(&mut self, id: OperationId, kind: OperationKind, asked: u64) {
        let now = self.now;
        let entry = self.board.get(id);
        (entry.state, entry.issued, entry.asked) = (State::Issue, now, asked);
        let (index, device) = (entry.command, entry.device);
        for block in [entry.block, entry.output].into_iter().flatten() {
            self.blocks.get_mut(block).busy += 1;
        }
        let command = self.commands.id(index);
        let state = self.commands.at(index);
        state.in_flight += 1;
        let times = &mut state.result.stages[device.slot()];
        if times.operations == 0 {
            // 0 means never: a clock that starts at 0 is off by a nanosecond here.
            times.first_issue = now.max(1);
        }
        times.operations += 1;
        self.counters.operations += 1;
        self.actions.push_back(Action::Issue(Operation { id, command, kind }));
    }

    /// True for a block after the one with which the source ended.
    fn is_dropped(&mut self, index: u16, block: BlockId) -> bool {
        let block = self.blocks.get(block);
        block.segment == 0 && block.sequence > self.commands.at(index).last_block
    }
}

// Done: what an outcome means for its entry.
impl Engine {
    pub(crate) fn on_done(&mut self, id: OperationId, outcome: Outcome) {
        let Some(entry) = self.board.find(id).filter(|entry| entry.state == State::Issue) else {
            self.counters.stale_events += 1;
            return;
        };
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
        self.return_unit(&entry, unit);
        if entry.orphan {
            self.board.remove(id);
            [entry.block, entry.output].into_iter().flatten().for_each(|block| self.free_if_unused(block));
            return;
        }
        let now = self.now;
        let command = self.commands.at(entry.command);
        command.in_flight -= 1;
        let times = &mut command.result.stages[entry.device.slot()];
        times.last_done = now;
        times.busy += now - entry.issued;
        if let Outcome::Moved { path, .. } = outcome {
            command.result.path |= path;
        }
        if command.failure.is_some() {
            return self.drained(id, entry, outcome);
        }
        let index = entry.command;
        if let Err(fault) = self.advance(id, entry, outcome) {
            let (stage, at) = entry.device.stage();
            let id = self.commands.id(index);
            self.fail(id, stage, at, fault);
        }
    }

    /// Takes an entry a step on, by what its device did.
    fn advance(&mut self, id: OperationId, entry: Entry, outcome: Outcome) -> Result<(), Fault> {
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

    fn read_moved(&mut self, id: OperationId, mut entry: Entry, bytes: u32) {
        let Some(block) = entry.block else { return };
        let command = self.commands.at(entry.command);
        let spec = command.spec.clone();
        let Some(spec) = spec.as_deref() else { return };
        command.result.bytes_in += u64::from(bytes);
        if bytes == 0 {
            return self.source_ended(id, entry, block);
        }
        entry.start += bytes;
        if command.parallel_reads {
            entry.position = entry.position.advance(spec, u64::from(bytes));
        } else {
            command.read_at = command.read_at.advance(spec, u64::from(bytes));
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
        self.make_ready(id);
    }

    /// The source gave no more bytes: this block is the last one, whatever was planned.
    fn source_ended(&mut self, id: OperationId, mut entry: Entry, block: BlockId) {
        let sequence = self.blocks.get(block).sequence;
        self.blocks.get_mut(block).last = true;
        let command = self.commands.at(entry.command);
        command.source_done = true;
        command.source_short = command.spec().length != LENGTH_TO_END;
        command.last_block = command.last_block.min(sequence);
        entry.end = entry.start;
        *self.board.get(id) = entry;
        self.make_ready(id);
    }

    fn read_done(&mut self, id: OperationId, entry: Entry, block: BlockId) {
        self.blocks.get_mut(block).length = entry.start;
        self.commands.at(entry.command).reads_in_flight -= 1;
        self.go_on(id, entry);
        self.plan(entry.command);
    }

    fn write_moved(&mut self, id: OperationId, mut entry: Entry, bytes: u32) {
        entry.start += bytes;
        let command = self.commands.at(entry.command);
        if command.writes.front() == Some(&id) {
            command.result.bytes_out += u64::from(bytes);
        }
        entry.position = entry.position.advance(command.spec(), u64::from(bytes));
        *self.board.get(id) = entry;
        self.make_ready(id);
    }

    fn write_done(&mut self, id: OperationId, entry: Entry, block: BlockId) {
        let is_final = self.blocks.get(block).last && !self.is_dropped(entry.command, block);
        self.follow(entry);
        self.board.get(id).state = State::Done;
        let command = self.commands.at(entry.command);
        command.final_written |= is_final;
        if command.tails[TAIL_DESTINATION] == Some(id) {
            command.tails[TAIL_DESTINATION] = None;
        }
        self.retire_writes(entry.command);
        self.retire_block(block);
        let command = self.commands.at(entry.command);
        if command.final_written && command.writes.is_empty() && command.phase == Phase::Run {
            self.data_done(entry.command);
        } else if command.direct {
            self.plan(entry.command);
        }
    }

    /// Takes writes that are done off the front; what the next one has written so far counts as delivered now.
    pub(crate) fn retire_writes(&mut self, index: u16) {
        while let Some(front) = self.commands.at(index).writes.front().copied() {
            match self.board.find(front).map(|entry| entry.state) {
                Some(State::Done) => self.board.remove(front),
                Some(_) => return,
                // Removed when its command failed: nothing after it is in order any more.
                None => return self.commands.at(index).writes.clear(),
            }
            let command = self.commands.at(index);
            command.writes.pop_front();
            if let Some(next) = command.writes.front().copied() {
                command.result.bytes_out += self.board.find(next).map_or(0, |entry| u64::from(entry.start));
            }
        }
    }

    fn direct_moved(&mut self, id: OperationId, index: u16, bytes: u64) {
        let command = self.commands.at(index);
        let spec = command.spec.clone();
        let Some(spec) = spec.as_deref() else { return };
        if bytes == 0 {
            command.source_short = spec.length != LENGTH_TO_END;
            self.board.remove(id);
            return self.data_done(index);
        }
        command.planned += bytes;
        command.read_at = command.read_at.advance(spec, bytes);
        command.write_at = command.write_at.advance(spec, bytes);
        command.result.bytes_in += bytes;
        command.result.bytes_out += bytes;
        self.make_ready(id);
    }

    /// The direct path turned out not to be there: the rest goes by blocks.
    fn leave_direct(&mut self, id: OperationId, index: u16) {
        self.board.remove(id);
        let command = self.commands.at(index);
        command.direct = false;
        command.source_done = false;
        self.plan(index);
    }

    fn digest_done(&mut self, id: OperationId, entry: Entry, at: u8, slot: DigestSlot) -> Result<(), Fault> {
        let Some(block) = entry.block else { return Ok(()) };
        let command = self.commands.at(entry.command);
        let operator = command.spec().chain[at as usize].operator;
        let size = operator.digest_size();
        let sound = size > 0 && slot.operator == operator as u8 && slot.size as usize == size;
        if !sound || !self.blocks.get(block).last {
            return Err(Fault::new(Status::InternalError));
        }
        command.digests[at as usize] = Some(slot);
        self.operator_done(id, entry, operator.kind(), block);
        Ok(())
    }

    fn processed(
        &mut self,
        id: OperationId,
        entry: Entry,
        at: u8,
        done: (u32, u32, bool),
    ) -> Result<(), Fault> {
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
        id: OperationId,
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
            self.make_ready(id);
        }
        Ok(())
    }

    fn operator_done(&mut self, id: OperationId, entry: Entry, kind: OperatorKind, block: BlockId) {
        self.go_on(id, entry);
        if kind == OperatorKind::Resize {
            self.retire_block(block);
        }
    }

    /// Lets the entries go on that wait for this one, and removes it.
    fn go_on(&mut self, id: OperationId, entry: Entry) {
        if let Device::Operator(at) = entry.device {
            let tail = &mut self.commands.at(entry.command).tails[at as usize];
            if *tail == Some(id) {
                *tail = None;
            }
        }
        // It may have been given a unit that it turned out not to need.
        self.return_unit(&entry, entry.unit);
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
    pub(crate) fn return_unit(&mut self, entry: &Entry, unit: Option<u16>) {
        let Some(unit) = unit else { return };
        while let Some(waiting) = self.units.next_waiting(entry.pool) {
            if let Some(next) = self.board.find(waiting)
                && next.state == State::Ready
                && next.unit.is_none()
            {
                next.unit = Some(unit);
                self.ready.push_back(waiting);
                return;
            }
        }
        self.units.release(entry.pool, unit);
    }

    /// All bytes are at the destination.
    fn data_done(&mut self, index: u16) {
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
        self.make_ready(flush);
    }
}
