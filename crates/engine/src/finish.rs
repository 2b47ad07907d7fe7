//! A command's end: success, failure, cancel, timeout, deletion of its queue.

use crate::command::Phase;
use crate::engine::Engine;
use crate::frontend::Posting;
use crate::message::{Action, CommandId, Fault, Outcome, QueueId};
use crate::scoreboard::{Device, Entry, EntryId, State};
use alloc::boxed::Box;
use alloc::vec::Vec;
use dcs_abi::U48;
use dcs_abi::entry::{CompletionEntry, SubmissionEntry};
use dcs_abi::operator::{Operator, OperatorKind};
use dcs_abi::result::DigestSlot;
use dcs_abi::status::{Stage, Status};

impl Engine {
    /// Fails a command; the first failure counts. Nothing more is issued for it, what is in flight is aborted, and
    /// when all of that has come back the command completes.
    pub(crate) fn fail(&mut self, id: CommandId, stage: Stage, at: u8, fault: Fault) {
        let Some(command) = self.commands.find(id).filter(|command| command.failure.is_none()) else {
            return;
        };
        command.failure = Some(named(stage, at, fault));
        if command.awaiting {
            return;
        }
        let (phase, queue) = (command.phase, command.queue);
        command.phase = Phase::Drain;
        if phase == Phase::Admission {
            self.admission.leave(queue, id);
        }
        if self.commands.at(id.index).bound {
            self.stop_entries(id.index);
        }
        if self.commands.at(id.index).in_flight > 0 {
            self.start_grace(id);
        }
        self.conclude(id);
    }

    /// Aborts what is in flight and forgets what is not. Writes that are done stay: they still count as delivered
    /// if those before them come through.
    fn stop_entries(&mut self, index: u16) {
        let mine: Vec<EntryId> = self.board.of_command(index).map(|(id, _)| id).collect();
        for id in mine {
            // Looked up now: a unit may have been passed on to this entry by the one before.
            let entry = *self.board.get(id);
            match entry.state {
                State::Issue => {
                    self.actions.push_back(Action::Abort { operation: self.board.operation(id) });
                }
                State::Wait | State::Ready => {
                    self.board.remove(id);
                    if entry.state == State::Ready && matches!(entry.device, Device::Operator(_)) {
                        self.units.forget(entry.pool, id);
                    }
                    self.return_unit(entry.pool, entry.unit);
                }
                State::Done | State::Free => {}
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

    /// An operation of a failed command came back. What it did is still told; then it is forgotten.
    pub(crate) fn drained(&mut self, id: EntryId, entry: Entry, outcome: Outcome) {
        let index = entry.command;
        let command = self.commands.at(index);
        match (entry.device, outcome) {
            (Device::Snapshot(at) | Device::Operator(at), Outcome::Digest(slot))
                if is_sound(command.spec().chain[at as usize].operator, &slot) =>
            {
                command.digests[at as usize] = Some(slot);
            }
            (Device::Destination, Outcome::Moved { bytes, .. }) if bytes <= entry.asked => {
                self.board.get(id).start += bytes as u32;
                self.count_delivered(id, entry, bytes);
            }
            (Device::Direct, Outcome::Moved { bytes, .. }) if bytes <= entry.asked => {
                command.result.bytes_in += bytes;
                command.result.bytes_out += bytes;
            }
            (Device::Source, Outcome::Moved { bytes, .. }) if bytes <= entry.asked => {
                command.result.bytes_in += bytes;
            }
            _ => {}
        }
        let length = entry.block.map_or(0, |block| self.blocks.get(block).length);
        if entry.device == Device::Destination && self.board.get(id).start == length {
            self.board.get(id).state = State::Done;
        } else {
            self.board.remove(id);
        }
        self.retire_writes(index);
        let id = self.commands.id(index);
        self.conclude(id);
    }

    /// Completes a failed command once nothing of it is in flight and its digests have told their values.
    pub(crate) fn conclude(&mut self, id: CommandId) {
        let Some(command) = self.commands.find(id) else { return };
        if command.awaiting || command.in_flight > 0 || command.failure.is_none() {
            return;
        }
        if command.phase != Phase::Collect && command.bound {
            command.phase = Phase::Collect;
            let missing: Vec<u8> = (0..command.spec().chain.len() as u8)
                .filter(|at| command.digests[*at as usize].is_none())
                .filter(|at| {
                    matches!(command.spec().chain[*at as usize].operator.kind(), OperatorKind::Digest { .. })
                })
                .collect();
            for at in &missing {
                let snapshot = self.board.add(id.index, Device::Snapshot(*at), None);
                self.dispatch(snapshot);
            }
            if !missing.is_empty() {
                return self.start_grace(id);
            }
        }
        self.finish(id);
    }

    /// Gives back all that a command has and posts its completion.
    pub(crate) fn finish(&mut self, id: CommandId) {
        let orphans = self.drop_resources(id.index);
        let posting = self.posting(id.index);
        let command = self.commands.at(id.index);
        let (queue, rid, bound) = (command.queue, command.entry.rid, command.bound);
        self.blocks.quota.give(queue.0 as usize, command.charged - orphans);
        for at in [command.deadline, command.grace].into_iter().flatten() {
            self.deadlines.remove(&(at, id));
        }
        // The specification may hold keys: it goes now, not when the slot is used again.
        command.spec = None;
        command.phase = Phase::Over;
        if bound {
            self.actions.push_back(Action::Unbind { command: id });
        }
        if let Some(queue) = self.frontend.get_mut(queue)
            && let Some(at) = queue.in_flight.iter().position(|(_, command)| *command == id)
        {
            queue.in_flight.swap_remove(at);
        }
        if let Some(next) = self.order.leave(self.tenant(queue), rid, id) {
            self.enter_admission(next);
        }
        self.counters.failures += u64::from(!posting.entry.status().is_success());
        self.frontend.post(queue, posting);
        self.post_completions(queue);
    }

    /// What a finished command's completion says.
    fn posting(&mut self, index: u16) -> Posting {
        let now = self.now;
        let command = self.commands.at(index);
        let (stage, at, fault) = command.failure.unwrap_or((Stage::None, 0, Fault::new(Status::Success)));
        let result = &mut command.result;
        (result.status, result.errno) = (fault.status.code(), fault.errno);
        (result.stage, result.stage_index) = (stage as u8, at);
        result.finished = now;
        for (slot, digest) in result.digests.iter_mut().zip(command.digests) {
            *slot = digest.unwrap_or_default();
        }
        let mut entry = CompletionEntry {
            delivered: U48::saturating(result.bytes_out),
            stage: stage as u8,
            stage_index: at,
            cid: command.entry.cid,
            ..Default::default()
        };
        entry.set_status(fault.status, false);
        let address = command.entry.result_address;
        let result = (address != 0).then(|| (address, Box::new(command.result)));
        Posting { command: index, entry, result }
    }

    /// Frees a finished command's slot, once its completion is posted and no device has an operation of it any
    /// more: a tenant whose devices hang runs out of its own slots, not of everybody's scoreboard.
    pub(crate) fn release_slot(&mut self, index: u16) {
        let command = self.commands.at(index);
        if command.posted && command.in_flight == 0 {
            let queue = command.queue;
            self.commands.remove(index);
            self.frontend.slots.give(queue.0 as usize, 1);
        }
    }

    /// Lets go of a finished command's entries and blocks; tells how many blocks devices still have. A command that
    /// succeeded has no entries, and no blocks but those.
    fn drop_resources(&mut self, index: u16) -> u32 {
        let command = self.commands.at(index);
        if command.failure.is_some() && command.bound {
            self.drop_entries(index);
        }
        let command = self.commands.at(index);
        if command.segments.iter().all(|segment| segment.held == 0) {
            return 0;
        }
        self.drop_blocks(index)
    }

    /// Removes a finished command's entries. One that is still with its device (it outlived the abort grace) stays
    /// until it is answered, and with it its blocks and its unit.
    fn drop_entries(&mut self, index: u16) {
        let mine: Vec<(EntryId, State)> =
            self.board.of_command(index).map(|(id, entry)| (id, entry.state)).collect();
        for (id, state) in mine {
            match state {
                State::Issue => self.board.get(id).orphan = true,
                _ => self.board.remove(id),
            }
        }
    }

    /// Frees a finished command's blocks; those that devices still use are orphans. Tells how many these are.
    fn drop_blocks(&mut self, index: u16) -> u32 {
        let mine: Vec<_> = self.blocks.of_command(index).collect();
        let mut orphans = 0;
        for id in mine {
            let block = self.blocks.get_mut(id);
            if block.busy > 0 || block.holds > 0 {
                (block.orphan, block.retired) = (true, true);
                orphans += 1;
            } else {
                self.blocks.put(id);
            }
        }
        orphans
    }

    pub(crate) fn post_completions(&mut self, queue: QueueId) {
        while let Some((command, action)) = self.frontend.next_posting(queue) {
            match action {
                Some(action) => {
                    self.counters.completions += 1;
                    self.actions.push_back(action);
                }
                None => self.counters.dropped += 1,
            }
            self.commands.at(command).posted = true;
            self.release_slot(command);
        }
        if self.frontend.remove_if_drained(queue) {
            self.actions.push_back(Action::QueueDeleted { queue });
        }
    }

    /// NVMe's Cancel: of one command, of the same queue only. It is done once the command is on its way out.
    pub(crate) fn on_cancel(&mut self, id: CommandId, entry: &SubmissionEntry) {
        let command = self.commands.at(id.index);
        let (sq_id, cid) = entry.cancel_target();
        let queue = command.queue;
        if sq_id != queue.0 || cid == entry.cid {
            return self.fail(id, Stage::Frontend, 0, Fault::new(Status::InvalidField));
        }
        if self.abort(queue, cid) {
            self.commands.at(id.index).result.bytes_out = 1 << 16;
        }
        self.finish(id);
    }

    /// Aborts a command; false where it is not in flight.
    pub(crate) fn abort(&mut self, queue: QueueId, cid: u16) -> bool {
        let Some(target) = self.frontend.find(queue, cid) else { return false };
        let (stage, at) = self.held_up_at(target);
        self.fail(target, stage, at, Fault::new(Status::Cancelled));
        true
    }

    /// A command's time, or the time that its aborted operations were given, is over.
    pub(crate) fn on_deadline(&mut self, id: CommandId) {
        let Some(command) = self.commands.find(id) else { return };
        if command.grace.is_some_and(|grace| grace <= self.now) {
            // The devices hang: their answers will find orphans. A digest in such a device has no value to tell.
            return self.finish(id);
        }
        let (stage, at) = self.held_up_at(id);
        self.fail(id, stage, at, Fault::new(Status::Timeout));
    }

    /// The stage that a command is waiting for: of its operations in flight, the one farthest down its chain.
    fn held_up_at(&mut self, id: CommandId) -> (Stage, u8) {
        let issued = self.board.of_command(id.index).filter(|(_, entry)| entry.state == State::Issue);
        issued
            .map(|(_, entry)| entry.device.stage())
            .max()
            .map_or((Stage::Queue, 0), |(stage, at)| (stage, at))
    }

    pub(crate) fn on_delete_queue(&mut self, id: QueueId) {
        let Some(queue) = self.frontend.get_mut(id) else {
            self.counters.stale_events += 1;
            return;
        };
        queue.deleting = true;
        let commands: Vec<CommandId> = queue.in_flight.iter().map(|(_, command)| *command).collect();
        for command in commands {
            let (stage, at) = self.held_up_at(command);
            self.fail(command, stage, at, Fault::new(Status::QueueDeleted));
        }
        self.post_completions(id);
    }
}

/// A failure as it is told: one without a stage is the frontend's, and success is none.
fn named(stage: Stage, at: u8, fault: Fault) -> (Stage, u8, Fault) {
    let stage = if stage == Stage::None { Stage::Frontend } else { stage };
    let at = if stage == Stage::Operator { at } else { 0 };
    let status = if fault.status.code() == 0 { Status::InternalError } else { fault.status };
    (stage, at, Fault { status, ..fault })
}

/// True where a digest's value is one that this operator can have.
pub(crate) fn is_sound(operator: Operator, slot: &DigestSlot) -> bool {
    let size = operator.digest_size();
    size > 0 && slot.operator == operator as u8 && slot.size as usize == size
}
