//! Dispatch: a ready row goes to its device, or waits for a unit or a block.

use crate::engine::Engine;
use crate::interface::{Action, EndpointRole, Failure, Operation, OperationKind};
use crate::position::Position;
use crate::scoreboard::{Device, Row, RowId, State};
use crate::transfer::TransferSpec;
use dcs_abi::operator::OperatorKind;
use dcs_abi::status::Status;

/// The source's position of a block's next bytes; none if they are the prefix's, or of two extents.
#[cold]
fn origin(spec: &TransferSpec, row: &Row, block_size: u32, length: u32) -> Option<u64> {
    // Reads that overlap fill their blocks, all but the last.
    let before = row.sequence * u64::from(block_size) + u64::from(row.start);
    let at = Position::first_in(spec).advance(spec, before);
    let (offset, run) = at.run(spec);
    (at.role == EndpointRole::Source && run >= u64::from(length)).then_some(offset)
}

impl Engine {
    pub(crate) fn dispatch(&mut self, id: RowId) {
        let row = self.board.get(id);
        if row.state != State::Ready {
            // Its command failed after it got in line.
            return;
        }
        match row.device {
            Device::Source => self.dispatch_read(id),
            Device::Operator(at) => self.dispatch_operator(id, at),
            Device::Destination => self.dispatch_write(id),
            Device::Direct => self.dispatch_direct(id),
            Device::Snapshot(operator) => self.issue(id, OperationKind::Snapshot { operator }, 0),
            Device::Flush => self.issue(id, OperationKind::Flush, 0),
        }
    }

    #[inline]
    fn dispatch_read(&mut self, id: RowId) {
        let row = self.board.get(id);
        if row.start == row.end {
            return self.read_done(id);
        }
        let command = self.commands.at(row.command);
        let position = if command.parallel_reads { row.from } else { command.read_at };
        let (offset, run) = position.run(&command.spec);
        let length = run.min(u64::from(row.end - row.start)) as u32;
        let block = id.block();
        let kind = OperationKind::Read { role: position.role, offset, block, start: row.start, length };
        self.issue(id, kind, u64::from(length));
    }

    #[inline]
    fn dispatch_operator(&mut self, id: RowId, at: u8) {
        let row = self.board.get(id);
        let (length, last, start, segment, index) =
            (row.length, row.last, row.start, row.segment, row.command);
        let operator = &self.commands.at(index).spec.chain[at as usize];
        let (kind, pool) = (operator.kind, operator.pool);
        if (length == 0 && !last) || self.is_dropped(id) {
            return self.operator_done(id, kind);
        }
        if kind == OperatorKind::Resize && !self.has_output(id, index, segment + 1) {
            return;
        }
        let row = self.board.get_mut(id);
        row.pool = pool;
        if row.unit.is_none() {
            row.unit = self.units.rename(pool, id);
        }
        let Some(unit) = row.unit else {
            row.state = State::Unit;
            return;
        };
        let block = id.block();
        if kind != OperatorKind::Resize {
            let kind = OperationKind::Process { unit, operator: at, block, length, last };
            self.issue(id, kind, u64::from(length));
            return self.units.join(pool, id, self.now);
        }
        let Some(output) = self.commands.at(index).segments[segment as usize + 1].filling else { return };
        self.board.get_mut(id).output = Some(output);
        let into = self.board.get_mut(output);
        into.busy += 1;
        let kind = OperationKind::Resize {
            unit,
            operator: at,
            block,
            start,
            length: length - start,
            output: output.block(),
            output_start: into.length,
            output_length: self.config.block_size - into.length,
            last,
        };
        self.issue(id, kind, u64::from(length - start));
    }

    /// Returns true if the segment has a block to fill, now or already; otherwise the row waits for one.
    fn has_output(&mut self, id: RowId, index: u16, segment: u8) -> bool {
        if self.commands.at(index).segments[segment as usize].filling.is_some() {
            return true;
        }
        let taken = self.take_block(index, segment);
        let state = &mut self.commands.at(index).segments[segment as usize];
        state.filling = taken;
        if taken.is_none() {
            state.stalled = Some(id);
            self.board.get_mut(id).state = State::Room;
        }
        taken.is_some()
    }

    #[inline]
    fn dispatch_write(&mut self, id: RowId) {
        if self.is_dropped(id) {
            return self.write_done(id);
        }
        let row = self.board.get_mut(id);
        if row.start == row.length {
            return self.write_done(id);
        }
        let command = self.commands.at(row.command);
        let spec = &*command.spec;
        let position = *row.to.get_or_insert_with(|| {
            let at = command.write_at;
            command.write_at = at.advance(spec, u64::from(row.length));
            at
        });
        let (offset, run) = position.run(spec);
        if run == 0 {
            if row.previous.is_some() {
                // The blocks before it have room: they are all written first.
                row.state = State::Wait;
                return;
            }
            let (id, (stage, at)) = (self.commands.id(row.command), row.device.stage());
            return self.fail(id, stage, at, Failure::new(Status::CapacityExceeded));
        }
        let more = if row.last { spec.more } else { command.certainly_continues() };
        let length = run.min(u64::from(row.length - row.start)) as u32;
        let origin =
            if command.repeats_source { origin(spec, row, self.config.block_size, length) } else { None };
        let (block, start) = (id.block(), row.start);
        self.issue(
            id,
            OperationKind::Write { offset, block, start, length, origin, more },
            u64::from(length),
        );
    }

    fn dispatch_direct(&mut self, id: RowId) {
        let chunk = self.config.direct_chunk;
        let index = self.board.get(id).command;
        let command = self.commands.at(index);
        let spec = &*command.spec;
        let left = spec.length - command.planned;
        if left == 0 {
            self.board.remove(id);
            return self.data_done(index);
        }
        let (source, source_run) = command.read_at.run(spec);
        let (destination, destination_run) = command.write_at.run(spec);
        if destination_run == 0 {
            // Full, and perhaps the source is at its end too: the way by blocks finds out.
            return self.abandon_direct(id);
        }
        let length = left.min(source_run).min(destination_run).min(chunk);
        let more = if length == left { spec.more } else { command.certainly_continues() };
        self.issue(id, OperationKind::Direct { source, destination, length, more }, length);
    }

    #[inline]
    pub(crate) fn issue(&mut self, id: RowId, kind: OperationKind, asked: u64) {
        let operation = self.board.issue(id, asked, self.now);
        let row = self.board.get(id);
        let (command, device) = (self.commands.id(row.command), row.device);
        let state = self.commands.at(command.index);
        state.in_flight += 1;
        let times = &mut state.result.stages[device.slot()];
        if times.operations == 0 {
            // 0 means never: a clock that starts at 0 is off by a nanosecond here.
            times.first_issue = self.now.max(1);
        }
        times.operations += 1;
        self.counters.operations += 1;
        let action = Action::Issue(Operation { id: operation, command, kind });
        // Blocks that are near are finished before others are fetched, while they are still near. Fetching
        // takes turns.
        match kind {
            OperationKind::Process { .. } | OperationKind::Resize { .. } | OperationKind::Write { .. } => {
                self.actions.push_front(action);
            }
            _ => self.actions.push_back(action),
        }
    }

    /// True for a block after the one with which the source ended.
    #[inline]
    pub(crate) fn is_dropped(&mut self, id: RowId) -> bool {
        let row = self.board.get(id);
        row.segment == 0 && row.sequence > self.commands.at(row.command).last_block
    }
}
