//! Recovery from commands that take too long, and controllers that must be reset or given up.
//!
//! When a command exceeds its time limit, the host checks CSTS. A controller that is alive gets an Abort for the command. If the command is
//! still outstanding after that, or the controller is not alive, the controller is reset. All outstanding commands then end at once, and
//! their memory is held until the controller has stopped.

use super::error::{NvmeError, ResetCause};
use super::host::{Finished, Memory, Nvme};
use super::start::{Purpose, Stage};
use crate::bus::Bus;
use dcs_engine::Nanos;
use dcs_nvme::ControllerStatus;
use dcs_nvme::command::{Abort, Command, admin};
use std::collections::VecDeque;

/// The state of recovery.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// Lower bound of the first deadline of a command.
    earliest: Option<Nanos>,
    /// Resets since a command last succeeded.
    pub attempts: u32,
    /// Commands whose memory the controller may still write to.
    pub held: Vec<u64>,
    /// Set while the controller may reach memory by a queue pair that is lent.
    pub is_lent: bool,
    /// Commands to be aborted: queue pair (from 0) and cid.
    pub aborts: VecDeque<(usize, u16)>,
    /// Abort commands outstanding.
    aborting: u16,
}

impl Recovery {
    pub fn deadline(&self) -> Option<Nanos> {
        self.earliest
    }

    /// Notes a command's deadline.
    pub fn watch(&mut self, deadline: Nanos) {
        self.earliest = Some(self.earliest.map_or(deadline, |earliest| earliest.min(deadline)));
    }

    pub fn succeeded(&mut self) {
        self.attempts = 0;
    }
}

impl Nvme {
    /// Resets the controller: outstanding commands fail with [`ResetCause::Asked`], then it is started again. This is also the way back
    /// from [`State::Failed`](super::State::Failed).
    pub fn reset(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.recovery.attempts = 0;
        self.bringup.then = None;
        self.end_all(ResetCause::Asked);
        self.counters.resets += u64::from(self.stage != Stage::Off);
        self.restart(bus, now);
    }

    /// Aborts the command `id`, as far as the controller can. The command ends like any other, and only then. Returns false if it is not
    /// outstanding.
    pub fn abort(&mut self, bus: &mut dyn Bus, now: Nanos, id: u64) -> bool {
        for pair in 0..self.io.len() {
            let Some((cid, io)) = self.io[pair].slots.iter_mut().find(|(_, io)| io.id == id) else {
                continue;
            };
            if io.ending.is_none() {
                io.ending = Some(NvmeError::Aborted);
                self.recovery.aborts.push_back((pair, cid));
                self.send_aborts(bus, now);
            }
            return true;
        }
        false
    }

    /// Ends everything, when the owner knows that the function can't write to memory any more: it was removed, reset by the bus, or lost
    /// its bus mastering. Outstanding commands fail, all memory is free, and the state is [`State::Failed`](super::State::Failed).
    pub fn on_reset(&mut self) {
        self.end_all(ResetCause::Gone);
        self.free_all();
        self.rest(Stage::Failed(ResetCause::Gone));
    }

    /// Does what is due.
    pub(super) fn check_time(&mut self, bus: &mut dyn Bus, now: Nanos) {
        if matches!(self.stage, Stage::Off | Stage::Failed(_)) {
            return;
        }
        if self.admin_deadline().is_some_and(|deadline| deadline <= now) {
            return self.fail(bus, now, ResetCause::TimedOut);
        }
        if self.recovery.earliest.is_some_and(|deadline| deadline <= now) {
            self.expire(bus, now);
        }
        if self.bringup.look.is_some_and(|at| at <= now) {
            self.look(bus, now);
        }
        if self.bringup.until.is_some_and(|until| until <= now) {
            self.late(bus, now);
        }
    }

    /// Checks for commands that have exceeded their time limit.
    fn expire(&mut self, bus: &mut dyn Bus, now: Nanos) {
        let grace = now.saturating_add(self.config.admin_timeout);
        let (mut expired, mut hopeless) = (false, false);
        self.recovery.earliest = None;
        for (pair, queue) in self.io.iter_mut().enumerate() {
            for (cid, io) in queue.slots.iter_mut() {
                if io.deadline <= now {
                    hopeless |= io.late;
                    expired = true;
                    io.late = true;
                    io.deadline = grace;
                    io.ending.get_or_insert(NvmeError::TimedOut);
                    self.counters.timeouts += 1;
                    self.recovery.aborts.push_back((pair, cid));
                }
                self.recovery.watch(io.deadline);
            }
        }
        if hopeless {
            self.fail(bus, now, ResetCause::TimedOut);
        } else if expired {
            self.look(bus, now);
        }
    }

    /// Processes CSTS, read because a command takes too long.
    pub(super) fn looked(&mut self, bus: &mut dyn Bus, now: Nanos, status: ControllerStatus) {
        if status.fatal {
            self.fail(bus, now, ResetCause::Fatal);
        } else if !status.ready {
            self.fail(bus, now, ResetCause::Stopped);
        } else {
            self.send_aborts(bus, now);
        }
    }

    /// Sends as many of the pending aborts as the controller takes at a time. [base 5.1]
    pub(super) fn send_aborts(&mut self, bus: &mut dyn Bus, now: Nanos) {
        let limit = self.controller.map_or(1, |controller| controller.abort_limit);
        while self.stage == Stage::Ready && self.recovery.aborting < limit {
            let Some((pair, cid)) = self.recovery.aborts.pop_front() else { return };
            let number = match self.io.get(pair) {
                Some(queue) if queue.slots.has(cid) => queue.number(),
                // Its holder knows its commands.
                None if self.config.lend => pair as u16 + 1,
                _ => continue,
            };
            let words = Abort { submission_queue: number, cid }.words();
            let entry = Command { opcode: admin::ABORT, words, ..Command::default() };
            if !self.send_admin(bus, now, Purpose::Abort, entry) {
                return self.recovery.aborts.push_front((pair, cid));
            }
            self.recovery.aborting += 1;
            self.counters.aborts += 1;
        }
    }

    /// Processes the answer to an Abort. The command's own completion shows whether it was found.
    pub(super) fn aborted(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.recovery.aborting = self.recovery.aborting.saturating_sub(1);
        self.send_aborts(bus, now);
    }

    /// Recovers a controller that can't go on. Resets it, if that may help and was not tried too often; otherwise stops it as far as
    /// possible, and gives it up.
    pub(super) fn fail(&mut self, bus: &mut dyn Bus, now: Nanos, failure: ResetCause) {
        self.end_all(failure);
        if failure == ResetCause::Gone {
            return self.rest(Stage::Failed(failure));
        }
        if let Some(stage) = self.bringup.then.take() {
            let stage = if stage == Stage::Off { Stage::Failed(failure) } else { stage };
            return self.rest(stage);
        }
        if self.recovery.attempts >= self.config.resets || !failure.may_pass() {
            self.bringup.then = Some(Stage::Failed(failure));
        } else {
            self.counters.resets += 1;
        }
        self.recovery.attempts += 1;
        self.restart(bus, now);
    }

    /// Frees the memory of commands that ended: the controller can't write to it any more.
    pub(super) fn free_all(&mut self) {
        self.recovery.is_lent = false;
        // Commands whose end was not taken yet become not held; they are the last ones in the queue.
        let held = self.finished.iter_mut().filter(|finished| finished.memory == Memory::Held);
        let untold = held.map(|finished| finished.memory = Memory::Quiet).count();
        let settled = self.recovery.held.len().saturating_sub(untold);
        self.freed.extend(self.recovery.held.drain(..).take(settled));
    }

    /// Ends all outstanding commands. Their memory stays held.
    pub(super) fn end_all(&mut self, failure: ResetCause) {
        for io in self.io.iter_mut().flat_map(|queue| queue.slots.take_all()) {
            let error = io.ending.unwrap_or(NvmeError::Reset(failure));
            self.recovery.held.push(io.id);
            self.finished.push_back(Finished { id: io.id, result: Err(error), memory: Memory::Held });
        }
        if let Some(queue) = &mut self.admin {
            queue.slots.take_all();
        }
        self.bringup.registers.forget();
        self.recovery.earliest = None;
        self.recovery.aborts.clear();
        self.recovery.aborting = 0;
    }
}
