//! Dispatch: a ready entry goes to its device, or waits for a unit or a block.

use crate::blocks::Block;
use crate::engine::Engine;
use crate::message::{Action, BlockId, Fault, Operation, OperationKind, Place};
use crate::scoreboard::{Device, Entry, EntryId, State};
use dcs_abi::operator::OperatorKind;
use dcs_abi::status::Status;

impl Engine {
    pub(crate) fn dispatch(&mut self, id: EntryId) {
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

    fn dispatch_read(&mut self, id: EntryId, entry: Entry, block: BlockId) {
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

    fn dispatch_operator(&mut self, id: EntryId, entry: Entry, at: u8, block: BlockId) {
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
    fn has_output(&mut self, id: EntryId, index: u16, segment: u8) -> bool {
        if self.commands.at(index).segments[segment as usize].filling.is_some() {
            return true;
        }
        let taken = self.take_block(index, segment);
        let state = &mut self.commands.at(index).segments[segment as usize];
        state.filling = taken;
        state.stalled = if taken.is_none() { Some(id) } else { None };
        taken.is_some()
    }

    fn dispatch_write(&mut self, id: EntryId, entry: Entry, block: BlockId) {
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
            let (id, (stage, at)) = (self.commands.id(entry.command), entry.device.stage());
            return self.fail(id, stage, at, Fault::new(Status::CapacityExceeded));
        }
        let spec = command.spec();
        let more = if last { spec.more } else { spec.surely_goes_on() };
        let length = run.min(u64::from(length - entry.start)) as u32;
        let kind = OperationKind::Write { offset, block, start: entry.start, length, more };
        self.issue(id, kind, u64::from(length));
    }

    fn dispatch_direct(&mut self, id: EntryId, entry: Entry) {
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
            // Full, and perhaps the source is at its end too: the way by blocks finds out.
            return self.leave_direct(id, entry.command);
        }
        let length = left.min(source_run).min(destination_run).min(chunk);
        let more = if length == left { spec.more } else { spec.surely_goes_on() };
        self.issue(id, OperationKind::Direct { source, destination, length, more }, length);
    }

    fn issue(&mut self, id: EntryId, kind: OperationKind, asked: u64) {
        let now = self.now;
        let operation = self.board.issue(id, asked, now);
        let Entry { command: index, device, block, output, .. } = *self.board.get(id);
        for block in [block, output].into_iter().flatten() {
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
        self.actions.push_back(Action::Issue(Operation { id: operation, command, kind }));
    }

    /// True for a block after the one with which the source ended.
    pub(crate) fn is_dropped(&mut self, index: u16, block: BlockId) -> bool {
        let block = self.blocks.get(block);
        block.segment == 0 && block.sequence > self.commands.at(index).last_block
    }
}
