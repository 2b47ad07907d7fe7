//! The Rx FSM: one stream's way from its aperture into its Rx queue, and the credits that it returns. [III-C, Fig. 5] Its owner takes the
//! data out of the queue, as frames or blocks, and reports when they have left.

use crate::credit::CREDIT;
use crate::interface::Nanos;
use crate::queue::Queue;
use crate::register::{Error, Grant, State, Times};
use alloc::vec::Vec;

/// Number of times that the last grant of a run is repeated.
const FAREWELLS: u8 = 8;

/// The settings of a run, from the registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Bytes of the stream; `None` until the driver ends it.
    pub end: Option<u64>,
    /// Bytes that leave the queue together, except at the end of the stream: a packet's or a block's.
    pub unit: u64,
    /// Refresh interval of grants in nanoseconds.
    pub refresh: Nanos,
    /// Stall limit in nanoseconds; `None` for no limit.
    pub stall: Option<Nanos>,
}

/// A receiver.
#[derive(Debug)]
pub(crate) struct Receiver {
    state: State,
    error: Option<Error>,
    plan: Plan,
    /// Size of the queue in credits.
    window: u64,
    epoch: u16,
    paused: bool,
    pub queue: Queue,
    received: u64,
    consumed: u64,
    /// Credits that the last grant returned.
    told: u64,
    /// True if a grant has to be written, or reported to the driver.
    owed: bool,
    farewells: u8,
    refresh_at: Nanos,
    since: Nanos,
    ended: bool,
}

/// The result of a data write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The data are in the queue.
    Taken,
    /// The write was another run's, or a duplicate, and was dropped.
    Late,
    /// The write ended the run with an error.
    Failed,
}

const IDLE: Plan = Plan { end: None, unit: 1, refresh: Times::REFRESH_US as Nanos * 1000, stall: None };

impl Receiver {
    /// Creates a receiver whose queue has that many credits, and whose first run has the epoch after this one.
    pub fn new(window: u32, epoch: u16) -> Receiver {
        Receiver {
            state: State::Init,
            error: None,
            plan: IDLE,
            window: u64::from(window),
            epoch,
            paused: false,
            queue: Queue::default(),
            received: 0,
            consumed: 0,
            told: 0,
            owed: false,
            farewells: 0,
            refresh_at: 0,
            since: 0,
            ended: false,
        }
    }

    /// Returns the bytes after which positions in the aperture wrap: twice the queue, so that old and new positions differ.
    pub fn aperture(&self) -> u64 {
        2 * self.window * CREDIT
    }

    /// Begins a run with the next epoch. An invalid plan ends it at once.
    pub fn start(&mut self, plan: Result<Plan, Error>, paused: bool, now: Nanos) {
        let epoch = self.epoch.wrapping_add(1);
        *self = Receiver {
            state: State::Fetch,
            paused,
            since: now,
            owed: true,
            ..Receiver::new(self.window as u32, epoch)
        };
        match plan {
            // A sender that has used all its credits must leave a unit, and a credit more, in the queue.
            Ok(plan) if plan.unit.div_ceil(CREDIT) >= self.window => self.fail(Error::Credits),
            Ok(plan) => self.plan = plan,
            Err(error) => self.fail(error),
        }
    }

    /// Returns to Init, with an empty queue.
    pub fn clear(&mut self) {
        *self = Receiver { paused: self.paused, ..Receiver::new(self.window as u32, self.epoch) };
    }

    pub fn fail(&mut self, error: Error) {
        if self.state.is_running() {
            self.error = Some(error);
            self.end(State::Failed);
        }
    }

    fn end(&mut self, state: State) {
        self.state = state;
        self.queue.clear();
        self.ended = true;
        self.owed = true;
        self.farewells = FAREWELLS;
    }

    pub fn pause(&mut self, paused: bool, now: Nanos) {
        if self.paused != paused && self.state.is_running() {
            self.owed = true;
            self.since = now;
        }
        self.paused = paused;
    }

    /// Ends the run after `count` bytes, or at its position if that is later.
    pub fn end_at(&mut self, count: u64) {
        if self.state.is_running() {
            self.plan.end = Some(count.max(self.received));
            self.finish_if_taken();
        }
    }

    /// Takes a data write at `offset` of the aperture, in its place `place` of `places`.
    pub fn data(&mut self, place: u64, places: u64, offset: u64, bytes: &[u8], now: Nanos) -> Arrival {
        if !self.state.is_running() || u64::from(self.epoch) % places != place {
            return Arrival::Late;
        }
        let (aperture, count) = (self.aperture(), bytes.len() as u64);
        if count > aperture - offset {
            self.fail(Error::Overrun);
            return Arrival::Failed;
        }
        let ahead = (offset + aperture - self.received % aperture) % aperture;
        if ahead >= aperture / 2 && count <= aperture - ahead {
            return Arrival::Late;
        }
        if ahead != 0 {
            self.fail(Error::Sequence);
            return Arrival::Failed;
        }
        let until = self.received + count;
        if until > self.consumed + self.window * CREDIT || until > self.plan.end.unwrap_or(u64::MAX) {
            self.fail(Error::Overrun);
            return Arrival::Failed;
        }
        self.queue.push(bytes);
        self.received = until;
        self.since = now;
        Arrival::Taken
    }

    /// Returns how many bytes, `most` at most, can leave the queue now: whole units, or the rest of the stream.
    pub fn ready(&self, most: u64) -> u64 {
        if self.paused || !self.state.is_running() {
            return 0;
        }
        let queued = self.queue.len();
        let units = queued.min(most) / self.plan.unit * self.plan.unit;
        if units == 0 && queued <= most && self.plan.end == Some(self.received) { queued } else { units }
    }

    /// Takes bytes out of the queue, into a buffer with capacity for `room` more. They keep their credits until they are consumed.
    pub fn take(&mut self, count: u64, room: usize) -> Vec<u8> {
        self.queue.take(count, room)
    }

    /// Notes that this many of the bytes taken have left the function.
    pub fn consume(&mut self, count: u64, now: Nanos) {
        if !self.state.is_running() {
            return;
        }
        self.consumed += count;
        self.since = now;
        // With a large window not for each credit, but often enough that a starved sender always gets a grant.
        let step = (self.window.saturating_sub(self.plan.unit.div_ceil(CREDIT)) / 4).max(1);
        if self.credits() >= self.told + step {
            self.owed = true;
        }
        self.finish_if_taken();
    }

    fn finish_if_taken(&mut self) {
        if self.plan.end == Some(self.consumed) {
            self.end(State::Idle);
        }
    }

    /// Returns the credits taken: whole ones, and at the end of the stream the last one too.
    fn credits(&self) -> u64 {
        match self.plan.end {
            Some(end) if end == self.consumed => end.div_ceil(CREDIT),
            _ => self.consumed / CREDIT,
        }
    }

    /// Returns the present grant.
    pub fn grant(&self) -> Grant {
        Grant {
            taken: self.credits() as u32,
            epoch: self.epoch,
            failed: self.state == State::Failed,
            paused: self.paused && self.state.is_running(),
        }
    }

    /// Returns the grant to write at `now`, if any. `repeats`: grants are written to a sender, and may get lost.
    pub fn next_grant(&mut self, repeats: bool, now: Nanos) -> Option<Grant> {
        let is_due = repeats && self.refreshes() && self.refresh_at <= now;
        if !self.owed && !is_due {
            return None;
        }
        if !self.owed && !self.state.is_running() {
            self.farewells -= 1;
        }
        self.owed = false;
        self.told = self.credits();
        self.refresh_at = now.saturating_add(self.plan.refresh);
        Some(self.grant())
    }

    fn refreshes(&self) -> bool {
        self.state.is_running() || self.farewells > 0
    }

    /// Fails a run in which nothing has moved for too long.
    pub fn expire(&mut self, now: Nanos) {
        if self.stall_deadline().is_some_and(|deadline| deadline <= now) {
            self.fail(Error::Stalled);
        }
    }

    fn stall_deadline(&self) -> Option<Nanos> {
        let stall = self.plan.stall.filter(|_| self.state.is_running() && !self.paused)?;
        Some(self.since.saturating_add(stall))
    }

    /// Returns the time of the next refresh or of the stall limit.
    pub fn deadline(&self, repeats: bool) -> Option<Nanos> {
        let refresh = (repeats && self.refreshes()).then_some(self.refresh_at);
        [refresh, self.stall_deadline()].into_iter().flatten().min()
    }

    /// Returns the state, if its owner has no frame or block of it in progress.
    pub fn state(&self) -> State {
        if self.state == State::Fetch && self.ready(u64::MAX) > 0 { State::Calc } else { self.state }
    }

    pub fn error(&self) -> Option<Error> {
        self.error
    }

    pub fn epoch(&self) -> u16 {
        self.epoch
    }

    pub fn end_of_stream(&self) -> Option<u64> {
        self.plan.end
    }

    pub fn received(&self) -> u64 {
        self.received
    }

    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Returns true once after each end.
    pub fn take_ended(&mut self) -> bool {
        core::mem::take(&mut self.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_given_more_than_asked_for() {
        let mut receiver = Receiver::new(8, 0);
        receiver.start(Ok(Plan { end: Some(700), unit: 256, ..IDLE }), false, 0);
        receiver.data(1, 4, 0, &[7; 700], 0);
        assert_eq!([255, 256, 600, 700].map(|most| receiver.ready(most)), [0, 256, 512, 512]);
        receiver.take(512, 0);
        // The rest of the stream.
        assert_eq!([0, 187, 188, u64::MAX].map(|most| receiver.ready(most)), [0, 0, 188, 188]);
    }
}
