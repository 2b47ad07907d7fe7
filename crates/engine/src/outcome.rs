//! Done: what a device's answer means for its row, and for those that wait for it.

use crate::command::Phase;
use crate::completion::is_digest_of;
use crate::engine::Engine;
use crate::interface::{Failure, OperationId, Outcome, QueueId};
use crate::scoreboard::{Device, RowId, State};
use crate::transfer::OperatorSpec;
use dcs_abi::entry::LENGTH_TO_END;
use dcs_abi::operator::OperatorKind;
use dcs_abi::result::{DigestSlot, PATH_GPU};
use dcs_abi::status::{Stage, Status};

impl Engine {
    pub(crate) fn on_done(&mut self, operation: OperationId, outcome: &Outcome) {
        let Some(id) = self.board.issued(operation) else {
            self.counters.stale_events += 1;
            return;
        };
        let output = self.take_back(id, outcome);
        let row = self.board.get(id);
        let (index, device, issued, orphan) = (row.command, row.device, row.issued, row.orphan);
        let command = self.commands.at(index);
        command.in_flight -= 1;
        if orphan {
            return self.orphan_done(id, output);
        }
        let times = &mut command.result.stages[device.slot()];
        times.last_done = self.now;
        times.busy += self.now - issued;
        if let Outcome::Moved { path, .. } = outcome {
            command.result.path |= path;
        }
        if command.failure.is_some() {
            return self.drained(id, outcome);
        }
        if let Err(failure) = self.advance(id, output, outcome) {
            let (stage, at) = device.stage();
            let id = self.commands.id(index);
            self.fail(id, stage, at, failure);
        }
    }

    /// Takes unit and blocks back from a device that is done with a row; tells the block that it filled.
    #[inline]
    fn take_back(&mut self, id: RowId, outcome: &Outcome) -> Option<RowId> {
        let held = matches!(outcome, Outcome::Moved { held: true, .. } | Outcome::FailedHeld(_));
        let has_block = self.board.has_block(id);
        let row = self.board.get_mut(id);
        row.state = State::Wait;
        row.busy -= 1;
        row.holds += u32::from(held && has_block);
        let (output, device, pool) = (row.output.take(), row.device, row.pool);
        if let Some(output) = output {
            self.board.get_mut(output).busy -= 1;
        }
        if matches!(device, Device::Operator(_)) {
            self.units.answered(pool, id, self.now, !matches!(outcome, Outcome::Failed(_)));
        }
        self.return_unit(id);
        output
    }

    /// A device answers what its command no longer waited for.
    fn orphan_done(&mut self, id: RowId, output: Option<RowId>) {
        let index = self.board.get(id).command;
        if self.board.has_block(id) {
            self.free_if_unused(id);
        } else {
            self.board.remove(id);
        }
        if let Some(output) = output {
            self.free_if_unused(output);
        }
        self.release_slot(index);
    }

    /// Takes a row a step on, by what its device did.
    #[inline]
    fn advance(&mut self, id: RowId, output: Option<RowId>, outcome: &Outcome) -> Result<(), Failure> {
        let row = self.board.get(id);
        let (index, asked) = (row.command, row.asked);
        match (row.device, outcome) {
            (Device::Direct, Outcome::Failed(Failure { status: Status::PathUnavailable, .. })) => {
                self.abandon_direct(id);
            }
            (_, Outcome::Failed(failure) | Outcome::FailedHeld(failure)) => return Err(*failure),
            (Device::Source, Outcome::Moved { bytes, held: false, .. }) if *bytes <= asked => {
                self.read_moved(id, *bytes as u32);
            }
            (Device::Destination, Outcome::Moved { bytes, .. }) if (1..=asked).contains(bytes) => {
                self.write_moved(id, *bytes as u32);
            }
            (Device::Direct, Outcome::Moved { bytes, held: false, .. }) if *bytes <= asked => {
                self.direct_moved(id, *bytes);
            }
            (Device::Operator(at), Outcome::Digest(slot)) => return self.digest_done(id, at, slot),
            (Device::Operator(at), Outcome::Processed { consumed, produced, finished }) => {
                return self.processed(id, at, output, (*consumed, *produced, *finished));
            }
            (Device::Operator(at), Outcome::Concluded { produced, value }) => {
                return self.concluded(id, at, output, (*produced, value));
            }
            (Device::Flush, Outcome::Flushed) => {
                self.board.remove(id);
                let id = self.commands.id(index);
                self.finish(id);
            }
            _ => return Err(Failure::new(Status::InternalError)),
        }
        Ok(())
    }

    #[inline]
    fn read_moved(&mut self, id: RowId, bytes: u32) {
        let row = self.board.get_mut(id);
        let command = self.commands.at(row.command);
        command.result.bytes_in += u64::from(bytes);
        row.start += bytes;
        if bytes == 0 {
            // The source gave no more bytes: this block is the last one, whatever was planned.
            row.last = true;
            row.end = row.start;
            command.source_done = true;
            command.source_short = command.spec.length != LENGTH_TO_END;
            command.last_block = command.last_block.min(row.sequence);
        } else if command.parallel_reads {
            if row.start < row.end {
                row.from = row.from.advance(&command.spec, u64::from(bytes));
            }
        } else {
            command.read_at = command.read_at.advance(&command.spec, u64::from(bytes));
            if row.start < row.end && !command.gather {
                // A stream's available bytes are passed on; the rest of the block's plan is taken back.
                command.planned -= u64::from(row.end - row.start);
                command.source_done = false;
                row.last = false;
                row.end = row.start;
            }
        }
        self.make_ready(id);
    }

    #[inline]
    pub(crate) fn read_done(&mut self, id: RowId) {
        let row = self.board.get_mut(id);
        row.length = row.start;
        let index = row.command;
        self.commands.at(index).reads_in_flight -= 1;
        self.next_stage(id);
        self.plan(index);
    }

    #[inline]
    fn write_moved(&mut self, id: RowId, bytes: u32) {
        let row = self.board.get_mut(id);
        row.start += bytes;
        if row.start < row.length {
            let command = self.commands.at(row.command);
            row.to = row.to.map(|at| at.advance(&command.spec, u64::from(bytes)));
        }
        self.count_delivered(id, u64::from(bytes));
        self.make_ready(id);
    }

    /// Delivered bytes are those that the destination took in order: a write after an unfinished one counts
    /// when its turn comes, and never if the source ended before it.
    #[inline]
    pub(crate) fn count_delivered(&mut self, id: RowId, bytes: u64) {
        let row = self.board.get(id);
        if row.previous.is_none() && !self.is_dropped(id) {
            let index = self.board.get(id).command;
            self.commands.at(index).result.bytes_out += bytes;
        }
    }

    #[inline]
    pub(crate) fn write_done(&mut self, id: RowId) {
        let is_final = self.board.get(id).last && !self.is_dropped(id);
        let row = self.board.get_mut(id);
        row.state = State::Done;
        let (index, follower) = (row.command, row.next);
        self.wake_follower(follower, Device::Destination);
        self.commands.at(index).final_written |= is_final;
        self.retire_writes(index);
        let command = self.commands.at(index);
        if command.final_written && command.last_segment().head.is_none() && command.phase == Phase::Run {
            self.data_done(index);
        } else if command.direct {
            self.plan(index);
        }
    }

    /// Removes finished writes from the front, and frees their blocks: only now, so that a slow write holds
    /// up reading at the window. The part of the next one that is written so far counts as delivered.
    pub(crate) fn retire_writes(&mut self, index: u16) {
        while let Some(front) = self.commands.at(index).last_segment().head {
            let row = self.board.get(front);
            if row.state != State::Done {
                if row.state == State::Wait && row.device == Device::Destination && !self.is_withheld(front) {
                    // It found no room, and nothing is before it any more.
                    self.make_ready(front);
                }
                return;
            }
            let next = row.next;
            self.retire_block(front);
            if let Some(next) = next {
                let row = self.board.get(next);
                if row.device == Device::Destination {
                    let written = u64::from(row.start);
                    self.count_delivered(next, written);
                }
            }
        }
    }

    fn direct_moved(&mut self, id: RowId, bytes: u64) {
        let index = self.board.get(id).command;
        let command = self.commands.at(index);
        if bytes == 0 {
            // That nothing moved need not be the source's end (splice(2) stops at urgent data): a read says
            // what it is.
            return self.abandon_direct(id);
        }
        command.planned += bytes;
        command.read_at = command.read_at.advance(&command.spec, bytes);
        command.write_at = command.write_at.advance(&command.spec, bytes);
        command.result.bytes_in += bytes;
        command.result.bytes_out += bytes;
        self.make_ready(id);
    }

    /// The direct path turned out not to be there: the rest goes by blocks.
    pub(crate) fn abandon_direct(&mut self, id: RowId) {
        let index = self.board.get(id).command;
        self.board.remove(id);
        let command = self.commands.at(index);
        command.direct = false;
        command.source_done = false;
        self.plan(index);
    }

    #[inline]
    fn digest_done(&mut self, id: RowId, at: u8, slot: &DigestSlot) -> Result<(), Failure> {
        let row = self.board.get(id);
        let command = self.commands.at(row.command);
        let OperatorSpec { operator, kind, on_gpu, .. } = command.spec.chain[at as usize];
        if !is_digest_of(operator, slot) || !row.last {
            return Err(Failure::new(Status::InternalError));
        }
        command.result.digests[at as usize] = *slot;
        command.result.path |= if on_gpu { PATH_GPU } else { 0 };
        self.operator_done(id, kind);
        Ok(())
    }

    fn processed(
        &mut self,
        id: RowId,
        at: u8,
        output: Option<RowId>,
        done: (u32, u32, bool),
    ) -> Result<(), Failure> {
        let row = self.board.get(id);
        let command = self.commands.at(row.command);
        let OperatorSpec { kind, on_gpu, .. } = command.spec.chain[at as usize];
        command.result.path |= if on_gpu { PATH_GPU } else { 0 };
        let all = u64::from(done.0) == row.asked;
        let sound = match kind {
            OperatorKind::Resize => return self.resized(id, output, done),
            OperatorKind::Digest { .. } => !row.last && all,
            OperatorKind::InPlace { .. } => all,
        };
        if !sound {
            return Err(Failure::new(Status::InternalError));
        }
        self.operator_done(id, kind);
        Ok(())
    }

    /// A resizing operator is through, and tells a value.
    #[cold]
    fn concluded(
        &mut self,
        id: RowId,
        at: u8,
        output: Option<RowId>,
        (produced, value): (u32, &DigestSlot),
    ) -> Result<(), Failure> {
        let row = self.board.get(id);
        let (index, asked) = (row.command, row.asked);
        let OperatorSpec { operator, kind, .. } = self.commands.at(index).spec.chain[at as usize];
        let sound =
            value.operator == operator as u8 && (1..=operator.value_max()).contains(&(value.size as usize));
        if kind != OperatorKind::Resize || !sound {
            return Err(Failure::new(Status::InternalError));
        }
        self.resized(id, output, (asked as u32, produced, true))?;
        self.commands.at(index).result.digests[at as usize] = *value;
        Ok(())
    }

    fn resized(&mut self, id: RowId, output: Option<RowId>, done: (u32, u32, bool)) -> Result<(), Failure> {
        let (consumed, produced, finished) = done;
        let Some(output) = output else { return Err(Failure::new(Status::InternalError)) };
        let room = self.config.block_size - self.board.get(output).length;
        let row = self.board.get_mut(id);
        let all = u64::from(consumed) == row.asked;
        let moved = consumed > 0 || produced > 0 || finished;
        if u64::from(consumed) > row.asked || produced > room || !moved || (finished && !(row.last && all)) {
            return Err(Failure::new(Status::InternalError));
        }
        row.start += consumed;
        let (index, segment) = (row.command, row.segment);
        let through = finished || (row.start == row.length && !row.last);
        let into = self.board.get_mut(output);
        into.length += produced;
        if finished || produced == room {
            into.last = finished;
            self.commands.at(index).segments[segment as usize + 1].filling = None;
            self.start_filled(index, output);
        }
        if through {
            self.operator_done(id, OperatorKind::Resize);
        } else {
            self.make_ready(id);
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn operator_done(&mut self, id: RowId, kind: OperatorKind) {
        // It may have been given a unit that it turned out not to need.
        self.return_unit(id);
        self.next_stage(id);
        if kind == OperatorKind::Resize {
            self.retire_block(id);
        }
    }

    /// A row's unit is free, if it has one.
    #[inline]
    pub(crate) fn return_unit(&mut self, id: RowId) {
        let row = self.board.get_mut(id);
        if let Some(unit) = row.unit.take() {
            let (pool, queue) = (row.pool, row.queue);
            if self.has_functions {
                let frontend = &self.frontend;
                let of = |queue| frontend.get(QueueId(queue)).map_or(0, |queue| queue.config.function);
                let (last, weight) = (of(queue), self.config.weight(of(queue)));
                self.units.pass_turn(pool, unit, (last, weight), |row| of(self.board.get(row).queue));
            }
            self.pass_unit_on(pool, unit);
        }
    }

    /// A free unit goes to the first row in line for one of its kind.
    fn pass_unit_on(&mut self, pool: u8, unit: u16) {
        if let Some(next) = self.units.release(pool, unit) {
            self.board.get_mut(next).unit = Some(unit);
            self.make_ready(next);
        }
    }

    /// All bytes are at the destination.
    #[inline]
    pub(crate) fn data_done(&mut self, index: u16) {
        let id = self.commands.id(index);
        let command = self.commands.at(index);
        if command.source_short {
            return self.fail(id, Stage::Source, 0, Failure::new(Status::EndOfSource));
        }
        if !command.flush {
            return self.finish(id);
        }
        command.phase = Phase::Flush;
        let flush = self.board.add_blockless(index, Device::Flush);
        self.make_ready(flush);
    }
}
