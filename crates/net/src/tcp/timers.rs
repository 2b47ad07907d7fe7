//! Timers of a connection: retransmission, probes, delayed acknowledgements, giving up.

use super::{Fate, State, Tcb};
use crate::message::{Nanos, Reason};
use crate::shared::Shared;

const MILLISECOND: Nanos = 1_000_000;

/// Time that a small segment waits for more bytes (RFC 9293, 3.8.6.2.1: 0.1 to 1 s).
const OVERRIDE: Nanos = 200 * MILLISECOND;

/// Delay of the peer's acknowledgement that tail probes allow for (RFC 8985, 7.2).
const PEERS_DELAY: Nanos = 200 * MILLISECOND;

/// Interval between probes of an idle connection that does not answer.
const KEEP_ALIVE_INTERVAL: Nanos = 10_000 * MILLISECOND;

/// Most answers to a SYN.
const SYN_ACKS: u32 = 5;

/// The timer that is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    Off,
    /// Retransmission timer of RFC 6298.
    Retransmit(Nanos),
    /// Tail loss probe, which detects a loss without a timeout (RFC 8985, 7).
    Tail(Nanos),
    /// Persist timer: bytes wait for the window to open, or for more bytes.
    Persist(Nanos),
}

impl Tcb {
    /// Returns the time of the next call of [`Tcb::on_time`].
    pub(crate) fn deadline(&self, shared: &Shared) -> Option<Nanos> {
        let timer = match self.timer {
            Timer::Off => None,
            Timer::Retransmit(at) | Timer::Tail(at) | Timer::Persist(at) => Some(at),
        };
        let gives_up = self.silent_since.map(|since| since.saturating_add(shared.config.tcp.user_timeout));
        let all = [
            timer,
            self.ack_at,
            self.reorder_at,
            gives_up,
            self.orphan_until(shared),
            self.keep_alive_at(shared),
        ];
        all.into_iter().flatten().min()
    }

    /// Returns true after several timeouts in a row: the peer's Ethernet address may have changed.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.rtt.backoff() >= 3
    }

    /// Returns how long a released connection may stay in FIN-WAIT-2, with a window that does not open, or in any other state that its peer
    /// keeps it in.
    fn orphan_until(&self, shared: &Shared) -> Option<Nanos> {
        let since = self.orphan?.max(self.advanced_at);
        Some(since.saturating_add(shared.config.tcp.linger))
    }

    /// Notes that there is no route to the peer yet. If there is something to send, that counts as silence, which has a limit.
    pub(crate) fn note_no_route(&mut self, now: Nanos) {
        if self.syn_due || self.una < self.queue.end() + u64::from(self.fin) {
            self.silent_since.get_or_insert(now);
        }
    }

    fn keep_alive_at(&self, shared: &Shared) -> Option<Nanos> {
        let idle = shared.config.tcp.keep_alive.filter(|_| self.is_open() && self.una == self.nxt)?;
        let next = self.heard_at.saturating_add(idle);
        // A probe is sent `idle` after the peer's last segment, then regularly.
        let again = self.silent_since.map(|_| self.sent_at.saturating_add(KEEP_ALIVE_INTERVAL));
        Some(again.map_or(next, |again| again.max(next)))
    }

    pub(crate) fn on_time(&mut self, now: Nanos, shared: &mut Shared) -> Fate {
        if self.silent_since.is_some_and(|since| since.saturating_add(shared.config.tcp.user_timeout) <= now)
            || self.orphan_until(shared).is_some_and(|until| until <= now)
        {
            return Fate::Reset(Reason::TimedOut);
        }
        if self.ack_at.is_some_and(|at| at <= now) {
            self.ack_at = None;
            self.ack_due = true;
        }
        if self.reorder_at.is_some_and(|at| at <= now) {
            self.detect(now, shared);
        }
        if self.keep_alive_at(shared).is_some_and(|at| at <= now) {
            self.probe_due = true;
            self.silent_since.get_or_insert(now);
            self.sent_at = now;
        }
        match self.timer {
            Timer::Retransmit(at) if at <= now => return self.timed_out(now, shared),
            Timer::Tail(at) if at <= now => self.probe_tail(now, shared),
            Timer::Persist(at) if at <= now => self.persist(now),
            _ => {}
        }
        Fate::Keep
    }

    fn timed_out(&mut self, now: Nanos, shared: &mut Shared) -> Fate {
        shared.statistics.timeouts += 1;
        let first = self.rtt.backoff() == 0;
        self.rtt.back_off();
        self.timer = Timer::Retransmit(now.saturating_add(self.rtt.timeout()));
        if self.una == 0 {
            if self.passive && self.rtt.backoff() > SYN_ACKS {
                return Fate::Closed(Reason::TimedOut);
            }
            self.syn_due = true;
            return Fate::Keep;
        }
        self.congestion.timed_out(self.nxt - self.una, self.nxt, first);
        self.scoreboard.all_lost();
        self.duplicates = 0;
        self.tail = None;
        self.reorder_at = None;
        self.force = true;
        Fate::Keep
    }

    fn probe_tail(&mut self, now: Nanos, shared: &mut Shared) {
        shared.statistics.tail_probes += 1;
        self.timer = Timer::Retransmit(now.saturating_add(self.rtt.timeout()));
        self.tail = Some((self.nxt, now));
        self.force = true;
        self.scoreboard.last_lost(self.mss.into());
    }

    /// Acts when something waits and nothing is in flight.
    fn persist(&mut self, now: Nanos) {
        self.timer = Timer::Off;
        if self.una + self.wnd > self.nxt {
            self.push = true;
            return;
        }
        self.probe_due = true;
        self.silent_since.get_or_insert(now);
        self.rtt.back_off();
        self.timer = Timer::Persist(now.saturating_add(self.rtt.timeout()));
    }

    /// Starts the appropriate timer, from now.
    pub(super) fn arm(&mut self, now: Nanos) {
        let timeout = now.saturating_add(self.rtt.timeout());
        self.timer = if self.una < self.nxt {
            let probe = self.tail_delay().map(|delay| now.saturating_add(delay)).filter(|at| *at < timeout);
            probe.map_or(Timer::Retransmit(timeout), Timer::Tail)
        } else {
            Timer::Off
        };
    }

    fn tail_delay(&self) -> Option<Nanos> {
        let calm = self.sack
            && self.is_open()
            && self.congestion.recovery.is_none()
            && self.scoreboard.sacked() == 0
            && self.scoreboard.lost() == 0
            && self.tail.is_none()
            && self.rtt.backoff() == 0;
        let smoothed = self.rtt.smoothed().filter(|_| calm)?;
        let delay = if self.scoreboard.is_single() { PEERS_DELAY } else { 0 };
        Some((2 * smoothed).max(10 * MILLISECOND) + delay)
    }

    /// Starts the persist timer if nothing was sent, bytes wait, and nothing else would wake the connection.
    pub(super) fn arm_persist(&mut self, now: Nanos) {
        let unsent = self.queue.end() + u64::from(self.fin) > self.nxt;
        let idle = self.una == self.nxt && unsent && self.timer == Timer::Off && self.state != State::Over;
        if idle && self.is_open() {
            let closed = self.una + self.wnd <= self.nxt;
            let delay = if closed { self.rtt.timeout() } else { OVERRIDE };
            self.timer = Timer::Persist(now.saturating_add(delay));
        }
    }
}
