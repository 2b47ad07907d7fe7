//! The Tx FSM: one stream's way from its Tx queue to a receiver. [III-B, Fig. 4]

use crate::credit::{CREDIT, is_after, later};
use crate::interface::Nanos;
use crate::pace::Pace;
use crate::queue::Queue;
use crate::register::{Error, Grant, Rate, State};
use alloc::vec::Vec;

/// The settings of a run, from the registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Rx Address of the receiver.
    pub address: u64,
    pub rate: Rate,
    /// Credits that may be under way.
    pub credits: u32,
    /// Credits after which the receiver's aperture wraps.
    pub aperture: u32,
    pub epoch: u16,
    /// Bytes of the stream; `None` until the driver ends it.
    pub end: Option<u64>,
    /// Stall limit in nanoseconds.
    pub stall: Nanos,
    /// True if its source may be silent without limit: a network.
    pub patient: bool,
}

/// A sender. Its owner fills the queue and performs the writes.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    state: State,
    error: Option<Error>,
    plan: Option<Plan>,
    /// Address and epoch of the receiver in the last run.
    last_run: Option<(u64, u16)>,
    paused: bool,
    pub queue: Queue,
    sent: u64,
    /// Credits that the receiver has returned.
    taken: u64,
    /// End of the chunk that is being sent.
    chunk: u64,
    pace: Pace,
    /// Time of the last progress.
    since: Nanos,
    ended: bool,
}

impl Sender {
    /// Begins a run. An invalid plan ends it at once.
    pub fn start(&mut self, plan: Result<Plan, Error>, paused: bool, now: Nanos) {
        let last_run = self.last_run;
        *self = Sender { state: State::Parse, last_run, paused, since: now, ..Sender::default() };
        match plan.and_then(|plan| self.check(plan)) {
            Ok(plan) => {
                self.last_run = Some((plan.address, plan.epoch));
                self.plan = Some(plan);
                self.pace = Pace::new(plan.rate.bytes_per_second, plan.rate.granularity_us, now);
                self.chunk = self.pace.due(now);
                self.state = State::Send;
            }
            Err(error) => self.fail(error),
        }
    }

    fn check(&self, plan: Plan) -> Result<Plan, Error> {
        let aperture = u64::from(plan.aperture) * CREDIT;
        if plan.rate.bytes_per_second != 0 && plan.rate.granularity_us == 0 {
            Err(Error::Rate)
        } else if plan.credits == 0 || plan.credits > plan.aperture / 2 {
            Err(Error::Credits)
        } else if !plan.address.is_multiple_of(CREDIT) || plan.address.checked_add(aperture).is_none() {
            Err(Error::Address)
        } else if self.last_run == Some((plan.address, plan.epoch)) {
            Err(Error::Epoch)
        } else {
            Ok(plan)
        }
    }

    /// Returns to Init, with an empty queue.
    pub fn clear(&mut self) {
        *self = Sender { last_run: self.last_run, paused: self.paused, ..Sender::default() };
    }

    pub fn fail(&mut self, error: Error) {
        if self.state.is_running() {
            self.state = State::Failed;
            self.error = Some(error);
            self.queue.clear();
            self.ended = true;
        }
    }

    /// Pauses or resumes. A resumed run begins a new slot, so the time of the pause is not made up for.
    pub fn pause(&mut self, paused: bool, now: Nanos) {
        if self.paused && !paused {
            self.since = now;
            self.pace.restart(now, self.sent);
            if matches!(self.state, State::Send | State::Wait) {
                self.chunk = self.sent;
                self.state = State::Wait;
            }
        }
        self.paused = paused;
    }

    /// Ends the run after `count` bytes, or at its position if that is later.
    pub fn end_at(&mut self, count: u64, now: Nanos) {
        if let Some(plan) = self.plan.as_mut().filter(|_| self.state.is_running()) {
            plan.end = Some(count.max(self.sent));
            self.since = now;
        }
    }

    /// Takes a grant. Returns false if it is another run's, or has nothing new.
    pub fn grant(&mut self, grant: Grant, now: Nanos) -> bool {
        let Some(plan) = self.plan else { return false };
        if !self.state.is_running() {
            return grant.epoch == plan.epoch;
        }
        if grant.epoch != plan.epoch {
            if is_after(grant.epoch, plan.epoch) {
                self.fail(Error::Restarted);
                return true;
            }
            return false;
        }
        if grant.failed {
            self.fail(Error::Peer);
            return true;
        }
        if grant.paused {
            self.since = now;
        }
        match later(self.taken, grant.taken) {
            Some(taken) if taken > self.sent.div_ceil(CREDIT) => self.fail(Error::Grant),
            Some(taken) => {
                self.taken = taken;
                self.since = now;
            }
            None => return grant.paused || grant.taken == self.taken as u32,
        }
        true
    }

    /// Restarts the stall limit, as its source has made progress.
    pub fn touch(&mut self, now: Nanos) {
        self.since = now;
    }

    /// Proceeds as far as possible. Returns the next write: an address, and bytes that do not cross a multiple of `payload`.
    pub fn next(&mut self, now: Nanos, payload: u64) -> Option<(u64, Vec<u8>)> {
        let plan = self.plan.filter(|_| self.state.is_running())?;
        let end = plan.end.unwrap_or(u64::MAX);
        loop {
            match self.state {
                State::Send if self.paused => return None,
                State::Send => {
                    let chunk = self.chunk.min(end);
                    if self.sent >= chunk {
                        self.state = State::Wait;
                        continue;
                    }
                    let offset = self.sent % (u64::from(plan.aperture) * CREDIT);
                    let ready = self.queue.len().min(chunk - self.sent).min(self.limit() - self.sent);
                    let count = ready.min(payload - offset % payload);
                    if count == 0 {
                        return None;
                    }
                    self.sent += count;
                    self.since = now;
                    return Some((plan.address + offset, self.queue.take(count, 0)));
                }
                State::Wait if self.sent == end => self.state = State::Check,
                State::Wait if self.paused || self.pace.when(self.sent) > now => return None,
                State::Wait => {
                    self.since = now;
                    self.state = State::Check;
                }
                State::Check if self.sent < end => {
                    self.chunk = self.pace.due(now);
                    self.state = State::Send;
                }
                State::Check if self.taken >= end.div_ceil(CREDIT) => {
                    self.state = State::Idle;
                    self.queue.clear();
                    self.ended = true;
                }
                _ => return None,
            }
        }
    }

    /// Fails a run that has waited for longer than its stall limit.
    pub fn expire(&mut self, now: Nanos) {
        if self.stall_deadline().is_some_and(|deadline| deadline <= now) {
            self.fail(Error::Stalled);
        }
    }

    /// Returns the time of the next slot or of the stall limit.
    pub fn deadline(&self) -> Option<Nanos> {
        if self.state == State::Wait && !self.paused {
            return Some(self.pace.when(self.sent));
        }
        self.stall_deadline()
    }

    fn stall_deadline(&self) -> Option<Nanos> {
        let plan = self.plan?;
        let waits = match self.state {
            State::Check => true,
            // Data that may be sent wait only for the owner.
            State::Send => self.is_starved() || (self.queue.len() == 0 && !plan.patient),
            _ => false,
        };
        (waits && !self.paused).then(|| self.since.saturating_add(plan.stall))
    }

    /// Returns the position up to which credits reach.
    fn limit(&self) -> u64 {
        let credits = self.plan.map_or(0, |plan| plan.credits);
        (self.taken + u64::from(credits)).saturating_mul(CREDIT)
    }

    /// Returns true if it waits for credits.
    pub fn is_starved(&self) -> bool {
        self.state == State::Send && self.sent == self.limit()
    }

    pub fn state(&self) -> State {
        self.state
    }

    pub fn error(&self) -> Option<Error> {
        self.error
    }

    pub fn epoch(&self) -> u16 {
        self.plan.map_or(0, |plan| plan.epoch)
    }

    pub fn end(&self) -> Option<u64> {
        self.plan?.end
    }

    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the bytes that the receiver is known to have taken.
    pub fn taken(&self) -> u64 {
        self.taken.saturating_mul(CREDIT).min(self.sent)
    }

    /// Returns the credits that the receiver has returned, as in its grants.
    pub fn taken_credits(&self) -> u32 {
        self.taken as u32
    }

    /// Returns true once after each end.
    pub fn take_ended(&mut self) -> bool {
        core::mem::take(&mut self.ended)
    }
}
