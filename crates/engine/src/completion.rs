//! A command's end: success, failure, cancel, timeout, deletion of its queue.

use crate::command::Phase;
use crate::engine::Engine;
use crate::frontend::Posting;
use crate::interface::{Action, CommandId, Failure, OperationKind, Outcome, QueueId};
use crate::scoreboard::{Device, RowId, State};
use alloc::vec::Vec;
use dcs_abi::U48;
use dcs_abi::entry::{CompletionEntry, SubmissionEntry};
use dcs_abi::operator::Operator;
use dcs_abi::result::DigestSlot;
use dcs_abi::status::{Stage, Status};

impl Engine {
    /// Fails a command; the first failure counts. Nothing more is issued for it, what is in flight is
    /// aborted, and when all of that has come back the command completes.
    pub(crate) fn fail(&mut self, id: CommandId, stage: Stage, at: u8, failure: Failure) {
        let Some(command) = self.commands.find(id).filter(|command| command.failure.is_none()) else {
            return;
        };
        command.failure = Some(as_reported(stage, at, failure));
        let is_full = stage == Stage::Destination && failure.status == Status::CapacityExceeded;
        if command.awaiting_owner {
            return;
        }
        let (phase, queue) = (command.phase, command.queue);
        command.phase = Phase::Drain;
        if phase == Phase::Admission {
            self.leave_admission(queue, id);
        }
        if self.commands.at(id.index).bound {
            self.stop_rows(id.index, is_full);
        }
        if self.commands.at(id.index).in_flight > 0 {
            self.start_grace(id);
        }
        self.complete_failed(id);
    }

    /// Aborts operations in flight and stops the others. Finished writes stay: they still count as delivered
    /// if those before them succeed. If the destination is full, writes in flight had room: they go on.
    fn stop_rows(&mut self, index: u16, is_full: bool) {
        let mine: Vec<RowId> = self.board.of_command(index).collect();
        for id in mine {
            // Looked up now: a unit may have been passed on to this row by the one before.
            let row = self.board.get_mut(id);
            match row.state {
                State::Issue if is_full && row.device == Device::Destination => {}
                State::Issue => {
                    self.actions.push_back(Action::Abort { operation: self.board.operation(id) });
                }
                State::Wait | State::Ready | State::Unit | State::Room => {
                    if row.state == State::Unit {
                        self.units.forget(row.pool, id);
                    }
                    row.state = State::Stopped;
                    self.return_unit(id);
                    if !self.board.has_block(id) {
                        self.board.remove(id);
                    }
                }
                State::Done | State::Stopped | State::Free => {}
            }
        }
    }

    /// From now a failed command waits so long for its devices, and no longer.
    fn start_grace(&mut self, id: CommandId) {
        let grace = self.now.saturating_add(self.config.abort_grace);
        if let Some(old) = self.commands.at(id.index).grace.replace(grace) {
            self.deadlines.remove(&(old, id));
        }
        self.deadlines.insert((grace, id));
    }

    /// An operation of a failed command has come back. Its result is still reported; then it is forgotten.
    pub(crate) fn drained(&mut self, id: RowId, outcome: &Outcome) {
        let row = self.board.get_mut(id);
        let index = row.command;
        let command = self.commands.at(index);
        row.state = State::Stopped;
        match (row.device, outcome) {
            (Device::Snapshot(at) | Device::Operator(at), Outcome::Digest(slot))
                if is_digest_of(command.spec.chain[at as usize].operator, slot) =>
            {
                command.result.digests[at as usize] = *slot;
            }
            (Device::Destination, Outcome::Moved { bytes, .. }) if *bytes <= row.asked => {
                row.start += *bytes as u32;
                self.count_delivered(id, *bytes);
            }
            (Device::Direct, Outcome::Moved { bytes, .. }) if *bytes <= row.asked => {
                command.result.bytes_in += bytes;
                command.result.bytes_out += bytes;
            }
            (Device::Source, Outcome::Moved { bytes, .. }) if *bytes <= row.asked => {
                command.result.bytes_in += bytes;
            }
            _ => {}
        }
        if self.board.has_block(id) {
            let row = self.board.get_mut(id);
            if row.device == Device::Destination && row.start == row.length {
                row.state = State::Done;
            }
        } else {
            self.board.remove(id);
        }
        self.retire_writes(index);
        let id = self.commands.id(index);
        self.complete_failed(id);
    }

    /// Completes a failed command once it has no operation in flight and its digests have reported their
    /// values.
    pub(crate) fn complete_failed(&mut self, id: CommandId) {
        let Some(command) = self.commands.find(id) else { return };
        if command.awaiting_owner || command.in_flight > 0 || command.failure.is_none() {
            return;
        }
        if command.phase != Phase::Collect && command.bound {
            command.phase = Phase::Collect;
            let mut missing = false;
            for at in 0..self.commands.at(id.index).spec.chain.len() as u8 {
                let command = self.commands.at(id.index);
                let is_digest = command.spec.chain[at as usize].operator.digest_size() > 0;
                if is_digest && command.result.digests[at as usize].operator == 0 {
                    let snapshot = self.board.add_blockless(id.index, Device::Snapshot(at));
                    self.issue(snapshot, OperationKind::Snapshot { operator: at }, 0);
                    missing = true;
                }
            }
            if missing {
                return self.start_grace(id);
            }
        }
        self.finish(id);
    }

    /// Gives back all that a command has and posts its completion.
    pub(crate) fn finish(&mut self, id: CommandId) {
        let orphans = self.drop_rows(id.index);
        let posting = self.posting(id.index);
        let command = self.commands.at(id.index);
        let (queue, rid, bound) = (command.queue, command.entry.rid, command.bound);
        self.quota.give(queue.0 as usize, command.charged - orphans);
        if command.deadline.is_some() || command.grace.is_some() {
            for at in [command.deadline, command.grace].into_iter().flatten() {
                self.deadlines.remove(&(at, id));
            }
        }
        command.forget_spec();
        command.phase = Phase::Finished;
        if self.commands.unregister(id.index)
            && let Some(queue) = self.frontend.get_mut(queue)
        {
            queue.commands -= 1;
        }
        if bound {
            self.actions.push_back(Action::Unbind { command: id });
        }
        if rid != 0
            && let Some(next) = self.order.leave(self.tenant(queue), rid, id)
        {
            self.enter_admission(next);
        }
        self.counters.failures += u64::from(!posting.entry.status().is_success());
        self.frontend.post(queue, posting);
        self.post_completions(queue);
    }

    /// Makes a finished command's completion.
    #[inline]
    fn posting(&mut self, index: u16) -> Posting {
        let now = self.now;
        let command = self.commands.at(index);
        let (stage, at, failure) = command.failure.unwrap_or((Stage::None, 0, Failure::new(Status::Success)));
        let result = &mut command.result;
        (result.status, result.errno) = (failure.status.code(), failure.errno);
        (result.stage, result.stage_index) = (stage as u8, at);
        result.finished = now;
        let mut entry = CompletionEntry {
            delivered: U48::saturating(result.bytes_out),
            stage: stage as u8,
            stage_index: at,
            cid: command.entry.cid,
            ..Default::default()
        };
        entry.set_status(failure.status, false);
        let address = command.entry.result_address;
        let result = (address != 0).then(|| {
            let fresh = self.areas.pop().unwrap_or_default();
            (address, core::mem::replace(&mut command.result, fresh))
        });
        Posting { command: Some(index), entry, result }
    }

    /// Frees a finished command's slot, once its completion is posted and no device has an operation of it
    /// any more: a tenant whose devices hang runs out of its own slots, not of everybody's scoreboard.
    #[inline]
    pub(crate) fn release_slot(&mut self, index: u16) {
        let command = self.commands.at(index);
        if command.posted && command.in_flight == 0 {
            let queue = command.queue;
            self.commands.remove(index);
            self.frontend.slots.give(queue.0 as usize, 1);
        }
    }

    /// Lets go of a finished command's rows and blocks. Those that are still with a device (it outlived the
    /// abort grace, or reads on) are orphans until it is through with them; tells how many blocks these are.
    /// A command that succeeded has no rows, and no blocks but those.
    #[inline]
    fn drop_rows(&mut self, index: u16) -> u32 {
        let command = self.commands.at(index);
        let segments = &command.segments[..command.segment_count as usize];
        if command.failure.is_none() && segments.iter().all(|segment| segment.held == 0) {
            return 0;
        }
        let mine: Vec<RowId> = self.board.of_command(index).collect();
        let mut orphans = 0;
        for id in mine {
            let has_block = self.board.has_block(id);
            let row = self.board.get_mut(id);
            if row.busy > 0 || row.holds > 0 {
                (row.orphan, row.retired) = (true, true);
                orphans += u32::from(has_block);
            } else if has_block {
                self.board.put(id);
            } else {
                self.board.remove(id);
            }
        }
        orphans
    }

    /// Posts the completions for which there is room. Those of a queue that is being deleted are dropped if
    /// there is none: no room would ever be made.
    pub(crate) fn post_completions(&mut self, id: QueueId) {
        while let Some(queue) = self.frontend.get_mut(id) {
            let Some((posting, slot)) = queue.next_posting(id) else { break };
            let Posting { command, entry, result } = posting;
            match slot {
                Some(slot) => {
                    self.counters.completions += 1;
                    self.actions.push_back(Action::Complete { queue: id, slot, entry, result });
                }
                None => self.counters.dropped += 1,
            }
            if let Some(command) = command {
                self.commands.at(command).posted = true;
                self.release_slot(command);
            }
        }
        if self.frontend.remove_if_drained(id) {
            self.share_pools();
            self.actions.push_back(Action::QueueDeleted { queue: id });
        }
    }

    /// NVMe's Cancel: of one command, of the same queue only. It is done once the command is on its way out.
    pub(crate) fn on_cancel(&mut self, id: CommandId, entry: &SubmissionEntry) {
        let command = self.commands.at(id.index);
        let (sq_id, cid) = entry.cancel_target();
        let queue = command.queue;
        let number = self.frontend.get(queue).map(|known| known.number(queue));
        if number != Some(sq_id) || cid == entry.cid {
            return self.fail(id, Stage::Frontend, 0, Failure::new(Status::InvalidField));
        }
        if self.abort(queue, cid) {
            self.commands.at(id.index).result.bytes_out = 1 << 16;
        }
        self.finish(id);
    }

    /// Aborts a command; returns false if it is not in flight.
    pub(crate) fn abort(&mut self, queue: QueueId, cid: u16) -> bool {
        let Some(target) = self.commands.find_by_cid(queue, cid) else {
            return self.abort_waiting(queue, cid);
        };
        let (stage, at) = self.stage_in_flight(target);
        self.fail(target, stage, at, Failure::new(Status::Cancelled));
        true
    }

    /// A command's time, or the time that its aborted operations were given, is over.
    pub(crate) fn on_deadline(&mut self, id: CommandId) {
        let Some(command) = self.commands.find(id) else { return };
        if command.grace.is_some_and(|grace| grace <= self.now) {
            // The devices hang: their answers will find orphans. A digest in such a device has no value to
            // tell.
            return self.finish(id);
        }
        let (stage, at) = self.stage_in_flight(id);
        self.fail(id, stage, at, Failure::new(Status::Timeout));
    }

    /// The stage that a command is waiting for: of its operations in flight, the one farthest down its chain.
    fn stage_in_flight(&self, id: CommandId) -> (Stage, u8) {
        let rows = self.board.of_command(id.index).map(|id| self.board.get(id));
        let issued = rows.filter(|row| row.state == State::Issue);
        issued.map(|row| row.device.stage()).max().unwrap_or((Stage::Queue, 0))
    }

    pub(crate) fn on_delete_queue(&mut self, id: QueueId) {
        let Some(queue) = self.frontend.get_mut(id) else {
            self.counters.stale_events += 1;
            return;
        };
        queue.deleting = true;
        self.delete_waiting(id);
        let commands = self.commands.of_queue(id);
        for command in commands {
            let (stage, at) = self.stage_in_flight(command);
            self.fail(command, stage, at, Failure::new(Status::QueueDeleted));
        }
        self.post_completions(id);
    }
}

/// Returns a failure as it is reported: one without a stage is the frontend's, and success is `None`.
pub(crate) fn as_reported(stage: Stage, at: u8, failure: Failure) -> (Stage, u8, Failure) {
    let stage = if stage == Stage::None { Stage::Frontend } else { stage };
    let at = if stage == Stage::Operator { at } else { 0 };
    let status = if failure.status.code() == 0 { Status::InternalError } else { failure.status };
    (stage, at, Failure { status, ..failure })
}

/// Returns true if this operator can have this digest value.
pub(crate) fn is_digest_of(operator: Operator, slot: &DigestSlot) -> bool {
    let size = operator.digest_size();
    size > 0 && slot.operator == operator as u8 && slot.size as usize == size
}
