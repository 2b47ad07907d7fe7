//! Short commands: those whose data fit into one block. An owner that performs operations at once may take
//! one through its stages by itself, and reports the results together.
//!
//! The core keeps its usual records: who may start, the owner of each block, the bytes that a command has
//! delivered. If the owner stops (a device that needs time, an operator that waits for company, a failure)
//! the command goes on like any other.

use crate::command::{Command, Phase};
use crate::engine::Engine;
use crate::interface::{
    Action, Binding, CommandId, Failure, Nanos, OperationId, Ran, SHORT_CHAIN_MAX, Short, Then,
};
use crate::multi_lane::Occasion;
use crate::scoreboard::{Device, RowId, State};
use crate::transfer::TransferSpec;
use alloc::sync::Arc;
use dcs_abi::descriptor::EndpointKind;
use dcs_abi::operator::OperatorKind;
use dcs_abi::result::{ResultArea, STAGE_DESTINATION, STAGE_OPERATORS, STAGE_SOURCE, StageTimes};
use dcs_abi::status::{Stage, Status};

impl Ran {
    /// Writes the results of the finished stages into a result area; returns false if they are invalid.
    #[inline]
    pub(crate) fn write_result(&self, spec: &TransferSpec, result: &mut ResultArea) -> bool {
        if self.done > spec.stages() {
            return false;
        }
        let times = |stage: usize| {
            let (from, to) = (self.times[stage], self.times[stage + 1]);
            let busy = to.saturating_sub(from);
            StageTimes { first_issue: from.max(1), last_done: to, busy, operations: 1 }
        };
        result.path |= self.path;
        if self.done > 0 {
            result.bytes_in = spec.length;
            result.stages[STAGE_SOURCE] = times(0);
        }
        let operators = spec.chain.iter().take(usize::from(self.done.saturating_sub(1)));
        for (at, operator) in operators.enumerate() {
            if let OperatorKind::Digest { size } = operator.kind {
                let value = &self.digests[at];
                if value.operator != operator.operator as u8 || usize::from(value.size) != size {
                    return false;
                }
                result.digests[at] = *value;
            }
            result.stages[STAGE_OPERATORS + at] = times(at + 1);
        }
        if self.done == spec.stages() {
            result.bytes_out = spec.length;
            result.stages[STAGE_DESTINATION] = times(spec.chain.len() + 1);
        }
        true
    }

    /// Becomes that of another command, of which nothing is done.
    #[inline]
    pub(crate) fn begin_again(&mut self, now: Nanos) {
        (self.binding, self.done, self.path, self.then) = (Binding::default(), 0, 0, Then::Nothing);
        self.times[0] = now;
        // Those of the command before are no values of this one's.
        self.digests.iter_mut().for_each(|digest| digest.operator = 0);
    }
}

impl TransferSpec {
    /// Returns true if a command of it can be short, as far as the specification alone shows.
    fn is_short(&self, block_size: u32) -> bool {
        let few = self.chain.len() <= SHORT_CHAIN_MAX && self.prefix.is_none();
        let fits = (1..=u64::from(block_size)).contains(&self.length);
        let single = self.source.extents.len() <= 1 && self.destination.extents.len() <= 1;
        let unpaced = self.source.kind != EndpointKind::Paced && self.destination.kind != EndpointKind::Paced;
        let sent = !self.durable && !self.acknowledged;
        few && fits && single && unpaced && sent && !self.chain.iter().any(|operator| operator.on_gpu)
    }

    /// Stages of a short command.
    #[inline]
    pub fn stages(&self) -> u8 {
        self.chain.len() as u8 + 2
    }

    fn device(&self, stage: u8) -> Device {
        match stage {
            0 => Device::Source,
            at if usize::from(at) <= self.chain.len() => Device::Operator(at - 1),
            _ => Device::Destination,
        }
    }
}

impl Command {
    #[inline]
    fn can_be_short(&self, block_size: u32) -> bool {
        self.segment_count == 1 && !self.withholds && self.spec.is_short(block_size)
    }
}

impl Engine {
    /// Has the owner run a command that has its block, if it can be short; returns false if it cannot.
    #[inline]
    pub(crate) fn start_short(&mut self, id: CommandId) -> bool {
        let block_size = self.config.block_size;
        if !self.config.short || !self.commands.at(id.index).can_be_short(block_size) {
            return false;
        }
        let Some(row) = self.take_block(id.index, 0) else { return false };
        let until = self.may_run(id.index);
        let command = self.commands.at(id.index);
        command.short = Some(row);
        let (queue, spec) = (command.queue, Arc::clone(&command.spec));
        let operation = self.board.operation(row).later(1);
        let short = Short { command: id, queue, spec, operation, block: row.block(), until };
        self.actions.push_back(Action::Run(short));
        true
    }

    /// The stages that the owner may do: not an operator whose lanes others may share, and no write whose bytes the
    /// source still has.
    #[inline]
    fn may_run(&mut self, index: u16) -> u8 {
        let alone = self.commands.in_use() == 1 && self.frontend.is_quiet() && !self.units.has_filled_lanes();
        let command = self.commands.at(index);
        let stages = command.spec.stages() - u8::from(command.repeats_source);
        if alone {
            return stages;
        }
        let gathers = command.spec.chain.iter().position(|operator| self.units.gathers(operator.pool));
        gathers.map_or(stages, |at| stages.min(at as u8 + 1))
    }

    /// A short command was only bound, or not even that: it goes the way of every other.
    pub(crate) fn forget_short(&mut self, index: u16) {
        let command = self.commands.at(index);
        if let Some(row) = command.short.take() {
            let segment = &mut command.segments[0];
            (segment.held, segment.sequence) = (0, 0);
            self.board.put(row);
        }
    }

    /// True for a command that has failed.
    #[inline]
    pub(crate) fn is_stopped(&mut self, id: CommandId) -> bool {
        self.commands.find(id).is_some_and(|command| command.failure.is_some())
    }

    /// Ends a command that failed before its owner was asked to run it.
    #[cold]
    pub(crate) fn end_stopped(&mut self, short: Short) {
        let id = short.command;
        // The core reuses its memory, if it is the core's alone when the command ends.
        drop(short);
        self.commands.at(id.index).awaiting_owner = false;
        self.forget_short(id.index);
        self.complete_failed(id);
        self.settle();
        self.start_passes(Occasion::Step);
    }

    pub(crate) fn on_ran(&mut self, id: CommandId, ran: &Ran) {
        let Some(command) = self.commands.find(id).filter(|command| command.phase == Phase::Bind) else {
            self.counters.stale_events += 1;
            return;
        };
        let Some(row) = command.short else {
            self.counters.stale_events += 1;
            return;
        };
        command.awaiting_owner = false;
        let stages = command.spec.stages();
        // Who is to flush it is bound for that.
        command.bound = ran.done < stages || ran.binding.flush;
        command.result.started = ran.times[0];
        // Whatever else: answers to identifiers that were given away are none to a later command.
        let serial = self.board.operation(row);
        self.board.get_mut(row).skip(u32::from(stages));
        if !self.take_results(id.index, ran) {
            let refusal = (Stage::Frontend, 0, Failure::new(Status::InternalError));
            self.commands.at(id.index).failure = Some(refusal);
        }
        let command = self.commands.at(id.index);
        if ran.done < stages {
            // If it has failed too: operations that were begun are with their devices, and so may be its
            // block.
            return self.go_on(id, row, ran, serial.later(1 + u32::from(ran.done)));
        }
        (command.phase, command.flush) = (Phase::Run, ran.binding.flush);
        let is_stopped = command.failure.is_some();
        self.forget_short(id.index);
        // The abort came too late for its bytes, but was answered already: the command has failed.
        if is_stopped { self.complete_failed(id) } else { self.data_done(id.index) }
    }

    /// Takes the results of the finished stages; returns false if they are invalid.
    #[inline]
    fn take_results(&mut self, index: u16, ran: &Ran) -> bool {
        let command = self.commands.at(index);
        if !ran.write_result(&command.spec, &mut command.result) {
            return false;
        }
        self.now = self.now.max(ran.times[ran.done as usize]);
        self.counters.operations += u64::from(ran.done);
        true
    }

    /// Goes on with a short command where its owner stopped. `operation`: what the next stage was begun under.
    fn go_on(&mut self, id: CommandId, block: RowId, ran: &Ran, operation: OperationId) {
        // Not since the report: operations that were answered took their time before.
        let began = ran.times[usize::from(ran.done)].min(self.now);
        let command = self.commands.at(id.index);
        command.short = None;
        command.phase = Phase::Run;
        command.flush = ran.binding.flush;
        let refused = command.failure.take();
        let (spec, length) = (&*command.spec, command.spec.length);
        let device = spec.device(ran.done);
        (command.planned, command.source_done) = (length, true);
        let row = self.board.get_mut(block);
        (row.device, row.end, row.last) = (device, length as u32, true);
        if command.parallel_reads {
            row.from = command.read_at;
            row.to = Some(command.write_at);
            command.write_at = command.write_at.advance(spec, length);
        }
        if command.parallel_reads || ran.done > 0 {
            command.read_at = command.read_at.advance(spec, length);
        }
        if ran.done == 0 {
            command.reads_in_flight = 1;
        } else {
            row.length = length as u32;
        }
        if let Device::Operator(at) = device {
            row.pool = spec.chain[at as usize].pool;
        }
        if ran.then != Then::Nothing {
            if device == Device::Destination && row.to.is_none() {
                row.to = Some(command.write_at);
                command.write_at = command.write_at.advance(spec, length);
            }
            row.set_issued(operation, length, began);
            command.in_flight += 1;
            let times = &mut command.result.stages[device.slot()];
            (times.first_issue, times.operations) = (began.max(1), 1);
            self.counters.operations += 1;
        }
        self.join_segment(id.index, block);
        match &ran.then {
            Then::Nothing => self.make_ready(block),
            Then::Begun => {}
            Then::Answered(outcome) => self.on_done(operation, outcome),
        }
        if let Some((stage, at, failure)) = refused {
            self.fail(id, stage, at, failure);
        }
    }
}

impl crate::scoreboard::Row {
    /// It is with its device, under an identifier that was given away before.
    fn set_issued(&mut self, operation: OperationId, asked: u64, began: Nanos) {
        (self.state, self.asked, self.issued) = (State::Issue, asked, began);
        self.busy += 1;
        self.adopt(operation);
    }
}
