//! A command's start: entry, descriptor, order, blocks, binding.

use crate::command::Phase;
use crate::config::QueueConfig;
use crate::engine::Engine;
use crate::frontend::Arrival;
use crate::interface::{Action, Binding, CommandId, Failure, Nanos, QueueId};
use crate::validate::Refusal;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use dcs_abi::descriptor::DESCRIPTOR_MAX;
use dcs_abi::entry::{OPCODE_CANCEL, OPCODE_TRANSFER, SubmissionEntry};
use dcs_abi::inline;
use dcs_abi::status::{Stage, Status};

/// Commands that wait for the blocks that they need at least, a line for each queue.
#[derive(Debug)]
pub(crate) struct Admission {
    lines: Vec<VecDeque<CommandId>>,
    /// Queues whose line is not empty; the first one's turn it is.
    round: VecDeque<u16>,
}

impl Admission {
    pub fn new(queues: u16) -> Admission {
        Admission { lines: (0..queues).map(|_| VecDeque::new()).collect(), round: VecDeque::new() }
    }

    fn is_waiting(&self, queue: QueueId) -> bool {
        !self.lines[queue.0 as usize].is_empty()
    }

    fn queues_waiting(&self) -> usize {
        self.round.len()
    }

    pub fn is_empty(&self) -> bool {
        self.round.is_empty()
    }

    fn join(&mut self, queue: QueueId, id: CommandId) {
        if !self.is_waiting(queue) {
            self.round.push_back(queue.0);
        }
        self.lines[queue.0 as usize].push_back(id);
    }

    /// The first command of the queue whose turn it is; the turn passes on.
    fn next(&mut self) -> Option<(QueueId, CommandId)> {
        let queue = self.round.pop_front()?;
        self.round.push_back(queue);
        Some((QueueId(queue), *self.lines[queue as usize].front()?))
    }

    /// Takes a command out of its line: it has started, or failed.
    fn leave(&mut self, queue: QueueId, id: CommandId) {
        let line = &mut self.lines[queue.0 as usize];
        line.retain(|other| *other != id);
        if line.is_empty() {
            self.round.retain(|other| *other != queue.0);
        }
    }
}

impl Engine {
    pub(crate) fn on_entry(&mut self, queue: QueueId, bytes: &[u8; 64]) {
        let arrival = self.frontend.fetched(queue);
        self.counters.entries += u64::from(arrival != Arrival::Unasked);
        match arrival {
            Arrival::Unasked => self.counters.stale_events += 1,
            Arrival::WithSlot => self.begin(queue, bytes, self.now),
            Arrival::Early => self.wait_for_slot(queue, bytes),
        }
    }

    /// Begins the command of an entry that has a slot; `since`: when it was fetched.
    #[inline(always)]
    pub(crate) fn begin(&mut self, queue: QueueId, bytes: &[u8; 64], since: Nanos) {
        let parsed = inline::parse(bytes);
        // A malformed entry is answered under the cid that it carries: bytes 2 and 3 always mean that.
        let cid = u16::from_le_bytes([bytes[2], bytes[3]]);
        let (entry, inline) = parsed.unwrap_or((SubmissionEntry { cid, ..Default::default() }, None));
        let known = self.commands.find_by_cid(queue, cid);
        let id = self.commands.add(queue, entry, since);
        self.counters.commands_peak = self.counters.commands_peak.max(self.commands.in_use() as u64);
        let deleting = self.frontend.get(queue).is_some_and(|queue| queue.deleting);
        let refusal = match (&parsed, known) {
            _ if deleting => Some(Status::QueueDeleted),
            (Err(_), _) => Some(Status::InvalidField),
            (Ok(_), Some(_)) => Some(Status::CommandIdConflict),
            (Ok((entry, _)), None) => opcode_refusal(entry),
        };
        if let Some(status) = refusal {
            return self.fail(id, Stage::Frontend, 0, Failure::new(status));
        }
        self.commands.register(id.index);
        if let Some(queue) = self.frontend.get_mut(queue) {
            queue.commands += 1;
        }
        if entry.opcode == OPCODE_CANCEL {
            return self.on_cancel(id, &entry);
        }
        if entry.timeout_ms > 0 {
            let deadline = since.saturating_add(u64::from(entry.timeout_ms) * 1_000_000);
            self.deadlines.insert((deadline, id));
            self.commands.at(id.index).deadline = Some(deadline);
        }
        if entry.rid != 0 {
            self.order.join(self.tenant(queue), entry.rid, id);
        }
        if let Some(inline) = inline {
            let command = self.commands.at(id.index);
            let spec = Arc::get_mut(&mut command.spec).expect("nobody has it before it is bound");
            let shape = Some(inline.shape());
            let read = if command.shape == shape {
                spec.read_again(&inline, &entry)
            } else {
                // Half of another one's would be none's.
                command.shape = None;
                let read = spec.read_inline(&inline, &entry, &self.units);
                command.shape = shape.filter(|_| read.is_ok());
                read
            };
            return self.accept(id, read);
        }
        self.commands.at(id.index).awaiting_owner = true;
        let (address, length) = (entry.descriptor_address, entry.descriptor_length);
        self.actions.push_back(Action::FetchDescriptor { command: id, queue, address, length });
    }

    pub(crate) fn on_descriptor(&mut self, id: CommandId, bytes: Option<&[u8]>) {
        let Some(command) = self.commands.find(id).filter(|command| command.phase == Phase::Fetch) else {
            self.counters.stale_events += 1;
            return;
        };
        command.awaiting_owner = false;
        command.shape = None;
        if command.failure.is_some() {
            return self.complete_failed(id);
        }
        let refused =
            match bytes.filter(|bytes| bytes.len() == command.entry.descriptor_length as usize) {
                Some(bytes) => Arc::get_mut(&mut command.spec)
                    .expect("nobody has it before it is bound")
                    .read(&command.entry, bytes, &self.units, self.config.block_size),
                None => Err((Stage::Frontend, 0, Failure::new(Status::DataTransferError))),
            };
        self.accept(id, refused);
    }

    /// A command is known, or refused: it waits for its turn.
    #[inline]
    fn accept(&mut self, id: CommandId, read: Result<(), Refusal>) {
        if let Err((stage, index, failure)) = read {
            return self.fail(id, stage, index, failure);
        }
        let command = self.commands.at(id.index);
        command.prepare();
        command.phase = Phase::Order;
        let (queue, rid) = (command.queue, command.entry.rid);
        if rid == 0 || self.order.may_start(self.tenant(queue), rid, id) {
            self.enter_admission(id);
        }
    }

    /// An ordered command's turn has come, or it needs no order: it starts, or gets in its queue's line for
    /// blocks.
    #[inline]
    pub(crate) fn enter_admission(&mut self, id: CommandId) {
        if let Some(command) = self.commands.find(id).filter(|command| command.phase == Phase::Order) {
            command.phase = Phase::Admission;
            let queue = command.queue;
            if self.admission.is_waiting(queue) || !self.start(id) {
                self.admission.join(queue, id);
            }
        }
    }

    /// Starts commands for which there are blocks now: each queue in turn, its commands in order. A queue
    /// that must wait does not hold up the others.
    pub(crate) fn admit(&mut self) {
        let mut in_vain = 0;
        while in_vain < self.admission.queues_waiting() && self.quota.free() > 0 {
            let Some((queue, id)) = self.admission.next() else { return };
            if self.start(id) {
                self.leave_admission(queue, id);
                in_vain = 0;
            } else {
                in_vain += 1;
            }
        }
    }

    /// Takes a command out of its queue's line.
    pub(crate) fn leave_admission(&mut self, queue: QueueId, id: CommandId) {
        self.admission.leave(queue, id);
        // It was the first one's; the next one has its own.
        self.quota.unclaim(queue.0 as usize);
    }

    /// Takes the blocks that each segment of a command's chain always has, all or none, and has its endpoints
    /// bound.
    #[inline]
    fn start(&mut self, id: CommandId) -> bool {
        let command = self.commands.at(id.index);
        let needed = u32::from(command.segment_count) + u32::from(command.withholds);
        let queue = command.queue;
        if !self.quota.take(queue.0 as usize, needed) {
            self.quota.claim(queue.0 as usize, needed);
            return false;
        }
        command.charged = needed;
        command.phase = Phase::Bind;
        command.awaiting_owner = true;
        if self.start_short(id) {
            return true;
        }
        let spec = Arc::clone(&self.commands.at(id.index).spec);
        self.actions.push_back(Action::Bind { command: id, queue, spec });
        true
    }

    pub(crate) fn on_bound(&mut self, id: CommandId, binding: Result<Binding, Refusal>) {
        let Some(command) = self.commands.find(id).filter(|command| command.phase == Phase::Bind) else {
            self.counters.stale_events += 1;
            return;
        };
        command.awaiting_owner = false;
        command.bound = binding.is_ok();
        if command.short.is_some() {
            self.forget_short(id.index);
        }
        let command = self.commands.at(id.index);
        if command.failure.is_some() {
            return self.complete_failed(id);
        }
        match binding {
            Ok(binding) => {
                command.phase = Phase::Run;
                command.result.started = self.now;
                command.direct = binding.direct && command.spec.chain.is_empty();
                command.flush = binding.flush || command.spec.durable || command.spec.acknowledged;
                self.plan(id.index);
            }
            Err((stage, index, failure)) => self.fail(id, stage, index, failure),
        }
    }

    /// The tenant of a queue, with its function in the upper half.
    pub(crate) fn tenant(&self, queue: QueueId) -> u32 {
        let tenant = |config: QueueConfig| u32::from(config.function) << 16 | u32::from(config.tenant);
        self.frontend.get(queue).map_or(0, |queue| tenant(queue.config))
    }

    /// Shares slots and blocks among the functions that have queues: a queue came or went.
    pub(crate) fn share_pools(&mut self) {
        let functions = self.frontend.functions();
        let weight = |function| self.config.weight(function);
        self.frontend.slots.share(&functions, weight);
        self.quota.share(&functions, weight);
        let mut there = functions.into_iter().flatten();
        let first = there.next();
        self.has_functions = there.any(|function| Some(function) != first);
    }
}

fn opcode_refusal(entry: &SubmissionEntry) -> Option<Status> {
    let length = entry.descriptor_length as usize;
    match entry.opcode {
        OPCODE_TRANSFER if length > DESCRIPTOR_MAX => Some(Status::InvalidField),
        OPCODE_TRANSFER | OPCODE_CANCEL => None,
        _ => Some(Status::InvalidOpcode),
    }
}
