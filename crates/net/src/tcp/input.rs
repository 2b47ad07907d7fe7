//! Incoming segments (RFC 9293, 3.10.7; RFC 5961 against forged ones).

use super::congestion::Recovery;
use super::output::clock;
use super::scoreboard::Delivery;
use super::segment::{Segment, Timestamp};
use super::timers::Timer;
use super::{Fate, State, Tcb};
use crate::message::{Event, Nanos, Reason};
use crate::shared::Shared;

/// Most challenge acknowledgements per second (RFC 5961, 10).
const CHALLENGES: u32 = 10;
/// Recoveries after which the patience raised by an unneeded one ends (RFC 8985, 6.2).
const RECOVERIES_MAX: u32 = 16;

const SECOND: Nanos = 1_000_000_000;

/// Age after which a timestamp is no longer compared (RFC 7323, 5.5).
const STAMP_LIFETIME: Nanos = 24 * 24 * 3600 * SECOND;

impl Tcb {
    /// Processes a segment; returns the connection's fate, and true if the receive buffer is needed.
    pub(crate) fn segment(&mut self, segment: &Segment, now: Nanos, shared: &mut Shared) -> (Fate, bool) {
        if self.state == State::SynSent {
            return (self.in_syn_sent(segment, now, shared), false);
        }
        let mut held = false;
        let fate = match self.check(segment, now, shared) {
            Some(fate) => fate,
            None => self.accepted(segment, now, shared, &mut held),
        };
        (fate, held)
    }

    fn in_syn_sent(&mut self, segment: &Segment, now: Nanos, shared: &mut Shared) -> Fate {
        // Nothing can answer a SYN that was not sent yet.
        let acknowledges = segment.ack.map(|ack| self.nxt == 1 && self.ours(ack) == 1);
        match (acknowledges, segment.flags.rst, segment.flags.syn) {
            (Some(false), true, _) | (None, true, _) => return Fate::Keep,
            (Some(false), false, _) => {
                self.reset_due = segment.ack;
                return Fate::Keep;
            }
            (Some(true), true, _) => {
                shared.statistics.resets_in += 1;
                return Fate::Closed(Reason::Refused);
            }
            (_, false, false) => return Fate::Keep,
            _ => {}
        }
        self.heard_at = now;
        self.negotiate(segment, now, &shared.config);
        if acknowledges.is_some() {
            // A SYN may have been sent more than once; its round trip is then unknown.
            if self.rtt.backoff() == 0 {
                self.rtt.sample(now.saturating_sub(self.sent_at));
            }
            self.open(now, shared);
            self.ack_due = true;
        } else {
            // Both sides open at once.
            self.state = State::SynReceived;
            self.syn_due = true;
        }
        Fate::Keep
    }

    /// Opens the connection: the SYN is acknowledged.
    fn open(&mut self, now: Nanos, shared: &mut Shared) {
        self.una = 1;
        self.silent_since = None;
        self.syn_due = false;
        self.rtt.progress();
        self.state = State::Established;
        self.arm(now);
        shared.statistics.opened += 1;
        let flow = self.flow;
        shared.event(match self.passive {
            true => Event::Accepted { flow, port: self.local.port(), from: self.remote },
            false => Event::Connected { flow },
        });
        if self.fin {
            self.state = State::FinWait1;
        }
    }

    /// Checks a segment before any of it is used; returns a fate if processing ends here.
    fn check(&mut self, segment: &Segment, now: Nanos, shared: &mut Shared) -> Option<Fate> {
        let seq = self.theirs(segment.seq);
        let (nxt, window) = (self.receiver.nxt() as i64, self.receiver.window() as i64);
        let length = i64::from(segment.sequence_length());
        if self.is_old(segment.options.timestamp, segment.flags.rst, now) {
            shared.statistics.old_timestamps += 1;
            self.ack_due |= segment.sequence_length() > 0;
            return Some(Fate::Keep);
        }
        let overlaps = seq < nxt + window.max(1) && seq + length.max(1) > nxt;
        let acceptable = overlaps && (window > 0 || length == 0 || seq < nxt || segment.flags.fin);
        if !acceptable {
            self.out_of_window(segment, seq, now, shared);
            return Some(Fate::Keep);
        }
        if segment.flags.rst {
            if seq != nxt {
                self.challenge(now, shared);
                return Some(Fate::Keep);
            }
            shared.statistics.resets_in += 1;
            let reason = if self.is_open() || self.passive { Reason::Reset } else { Reason::Refused };
            return Some(Fate::Closed(reason));
        }
        if segment.flags.syn {
            self.challenge(now, shared);
            return Some(Fate::Keep);
        }
        None
    }

    /// Returns true if PAWS rejects the segment: its timestamp is old (RFC 7323, 5.3) or missing (3.2).
    fn is_old(&self, stamp: Option<Timestamp>, rst: bool, now: Nanos) -> bool {
        let Some(stamps) = self.stamps.filter(|_| !rst) else { return false };
        let Some(stamp) = stamp else { return true };
        let older = (stamp.value.wrapping_sub(stamps.recent) as i32) < 0;
        older && now.saturating_sub(stamps.recent_at) < STAMP_LIFETIME
    }

    fn out_of_window(&mut self, segment: &Segment, seq: i64, now: Nanos, shared: &mut Shared) {
        shared.statistics.out_of_window += 1;
        if segment.flags.rst {
            return;
        }
        if self.state == State::SynReceived && segment.flags.syn && seq == 0 {
            if !self.passive && segment.ack.is_some_and(|ack| self.ours(ack) == 1) && self.nxt == 1 {
                // Both sides opened at once, and this is the peer's answer.
                self.open(now, shared);
                self.ack_due = true;
            } else {
                // Our answer was lost.
                self.syn_due = true;
            }
            return;
        }
        // If the window is closed, acknowledgements still count.
        if seq == self.receiver.nxt() as i64
            && self.is_open()
            && let Some(ack) = segment.ack
        {
            self.acknowledge(segment, seq, self.ours(ack), now, shared);
        }
        if segment.sequence_length() > 0 && !segment.flags.syn {
            // A retransmission, as our acknowledgement was lost; or a probe of the window.
            self.ack_due = true;
        } else {
            self.challenge(now, shared);
        }
    }

    fn challenge(&mut self, now: Nanos, shared: &mut Shared) {
        if now.saturating_sub(self.challenges.0) >= SECOND {
            self.challenges = (now, 0);
        }
        if self.challenges.1 < CHALLENGES {
            self.challenges.1 += 1;
            shared.statistics.challenges += 1;
            self.ack_due = true;
        }
    }

    /// Processes an acceptable segment.
    fn accepted(&mut self, segment: &Segment, now: Nanos, shared: &mut Shared, held: &mut bool) -> Fate {
        let seq = self.theirs(segment.seq);
        let Some(ack) = segment.ack.map(|number| self.ours(number)) else { return Fate::Keep };
        self.heard_at = now;
        if self.state == State::SynReceived {
            if ack != 1 || self.nxt == 0 {
                self.reset_due = segment.ack;
                return Fate::Keep;
            }
            if self.rtt.backoff() == 0 {
                self.rtt.sample(now.saturating_sub(self.sent_at));
            }
            self.open(now, shared);
            self.wnd = u64::from(segment.window) << self.send_scale;
            self.most_wnd = self.most_wnd.max(self.wnd);
        }
        if ack > self.nxt as i64 || ack < self.una as i64 - self.most_wnd as i64 {
            self.challenge(now, shared);
            return Fate::Keep;
        }
        self.take_stamp(segment, seq, now);
        self.acknowledge(segment, seq, ack, now, shared);
        if self.state == State::Over {
            self.ack_due |= segment.sequence_length() > 0;
            return Fate::Keep;
        }
        match self.fin_acknowledged() {
            Fate::Keep => self.data(segment, seq, now, shared, held),
            fate => fate,
        }
    }

    /// Records a segment's timestamp (RFC 7323, 4.3).
    fn take_stamp(&mut self, segment: &Segment, seq: i64, now: Nanos) {
        if let (Some(stamps), Some(stamp)) = (&mut self.stamps, segment.options.timestamp)
            && seq <= self.acknowledged as i64
        {
            stamps.recent = stamp.value;
            stamps.recent_at = now;
        }
    }

    fn acknowledge(&mut self, segment: &Segment, seq: i64, ack: i64, now: Nanos, shared: &mut Shared) {
        let Ok(position) = u64::try_from(ack) else { return };
        if position > self.nxt {
            return;
        }
        let before = self.una;
        let window = u64::from(segment.window) << self.send_scale;
        let duplicate =
            position == before && self.una < self.nxt && segment.sequence_length() == 0 && window == self.wnd;
        if position > before {
            self.advance(segment, position, now, shared);
        } else if self.una == self.nxt || window == 0 {
            // The peer answers, if only to say that it has no room.
            self.silent_since = None;
        }
        self.selective(segment, now);
        match self.sack {
            true if self.scoreboard.sacked() > 0 || self.congestion.recovery.is_some() => {
                self.detect(now, shared)
            }
            true => self.reorder_at = None,
            false => self.new_reno(duplicate, position > before, shared),
        }
        if position > before {
            self.arm(now);
        }
        if position >= before && (self.updated.0 < seq || self.updated.0 == seq && self.updated.1 <= position)
        {
            self.update_window(window, seq, position);
        }
    }

    /// Processes an acknowledgement of new bytes.
    fn advance(&mut self, segment: &Segment, ack: u64, now: Nanos, shared: &mut Shared) {
        let before = std::mem::replace(&mut self.una, ack);
        self.advanced_at = now;
        let delivery = self.scoreboard.acknowledge(ack, now, self.rtt.least());
        self.queue.acknowledge(ack, shared);
        self.rtt.progress();
        self.silent_since = (self.una < self.nxt).then_some(now);
        self.measure(&delivery, segment.options.timestamp, now);
        if let Some((end, at)) = self.tail.filter(|(end, _)| ack >= *end) {
            // The probe repaired the tail, unless the answer came too soon for that.
            let repaired = now.saturating_sub(at) >= self.rtt.least().unwrap_or(0) && delivery.again;
            if repaired && self.congestion.recovery.is_none() {
                self.congestion.halve(end - before);
            }
            self.tail = None;
        }
        self.undo(segment.options.timestamp, shared);
        self.congestion.acknowledged(ack - before);
        self.congestion.reached(ack);
        if self.congestion.recovery.is_none() {
            self.again = None;
        }
        let data = ack.min(self.queue.end());
        if data > before.max(1) {
            shared.event(Event::Acknowledged { flow: self.flow, offset: data - 1 });
        }
    }

    /// Undoes a recovery that was not needed: the acknowledged bytes had been sent before the first retransmission (RFC 3522).
    fn undo(&mut self, stamp: Option<Timestamp>, shared: &mut Shared) {
        if let (Some(first), Some(stamp)) = (self.again, stamp)
            && (stamp.echo.wrapping_sub(first) as i32) < 0
        {
            shared.statistics.undone += 1;
            self.again = None;
            self.congestion.undo();
            self.scoreboard.none_lost();
            self.patience = ((self.patience.0 + 1).min(40), 0);
        }
    }

    fn measure(&mut self, delivery: &Delivery, stamp: Option<Timestamp>, now: Nanos) {
        if let Some(at) = delivery.sent_once_at.filter(|_| !delivery.again) {
            self.rtt.sample(now.saturating_sub(at));
        } else if let (Some(stamps), Some(stamp)) = (self.stamps, stamp) {
            let milliseconds = clock(stamps.offset, now).wrapping_sub(stamp.echo);
            if milliseconds < 60_000 {
                self.rtt.coarse(u64::from(milliseconds.max(1)) * 1_000_000);
            }
        }
    }

    fn selective(&mut self, segment: &Segment, now: Nanos) {
        if !self.sack {
            return;
        }
        for (start, end) in segment.options.sacks.into_iter().flatten() {
            let (start, end) = (self.ours(start), self.ours(end));
            if start < end && start >= self.una as i64 && end <= self.nxt as i64 {
                let delivery =
                    self.scoreboard.sack(start as u64..end as u64, self.mss, now, self.rtt.least());
                // Delayed by the bytes before it: its round trip counts all the same.
                if delivery.sacked > 0 {
                    self.measure(&delivery, None, now);
                }
            }
        }
    }

    /// Detects losses from what arrived later.
    pub(super) fn detect(&mut self, now: Nanos, shared: &mut Shared) {
        let before = self.scoreboard.lost();
        let recovering = self.congestion.recovery.is_some();
        let least = self.rtt.least().unwrap_or(0);
        let patience = (least / 4).saturating_mul(self.patience.0.into());
        let patience = patience.min(self.rtt.smoothed().unwrap_or(0).max(least / 4));
        self.reorder_at = self.scoreboard.detect(now, patience, self.mss, recovering);
        if self.scoreboard.lost() > before {
            self.lost(shared);
        }
    }

    fn lost(&mut self, shared: &mut Shared) {
        if self.congestion.recovery.is_none() {
            shared.statistics.fast_recoveries += 1;
            self.patience.1 += 1;
            if self.patience.1 > RECOVERIES_MAX {
                self.patience = (1, 0);
            }
            self.congestion.lost(self.nxt - self.una, self.nxt);
            self.force = true;
        }
    }

    /// Recovers as in RFC 6582, for peers without selective acknowledgements.
    fn new_reno(&mut self, duplicate: bool, advanced: bool, shared: &mut Shared) {
        if advanced {
            self.duplicates = 0;
            if matches!(self.congestion.recovery, Some(Recovery::Fast { .. })) {
                self.force |= self.scoreboard.first_lost(self.mss.into());
            }
        } else if duplicate {
            self.duplicates += 1;
            if self.duplicates == 3
                && self.congestion.recovery.is_none()
                && self.scoreboard.first_lost(self.mss.into())
            {
                self.lost(shared);
            }
        }
    }

    fn update_window(&mut self, window: u64, seq: i64, ack: u64) {
        self.updated = (seq, ack);
        self.wnd = window;
        self.most_wnd = self.most_wnd.max(window);
        if matches!(self.timer, Timer::Persist(_)) && self.una + window > self.nxt {
            self.timer = Timer::Off;
            self.rtt.progress();
        }
    }

    /// Handles the acknowledgement of our FIN, if the peer has it.
    fn fin_acknowledged(&mut self) -> Fate {
        if !self.fin || self.una <= self.queue.end() {
            return Fate::Keep;
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                Fate::Keep
            }
            State::Closing | State::LastAck => self.over(),
            _ => Fate::Keep,
        }
    }

    /// Processes payload and FIN.
    fn data(
        &mut self,
        segment: &Segment,
        seq: i64,
        now: Nanos,
        shared: &mut Shared,
        held: &mut bool,
    ) -> Fate {
        let takes = matches!(self.state, State::Established | State::FinWait1 | State::FinWait2);
        if segment.sequence_length() == 0 {
            return Fate::Keep;
        }
        if !takes {
            self.ack_due = true;
            return Fate::Keep;
        }
        let start = seq + i64::from(segment.flags.syn);
        let arrival = self.receiver.arrive(start, segment.payload, segment.flags.fin, shared);
        *held = arrival.held;
        self.unacknowledged += 1;
        if !arrival.in_order
            || segment.flags.fin
            || self.unacknowledged >= 2
            || self.receiver.is_wider(self.mss, shared)
        {
            self.ack_due = true;
        } else {
            self.ack_at.get_or_insert(now.saturating_add(shared.config.tcp.delayed_ack));
        }
        if !self.receiver.ended() {
            return Fate::Keep;
        }
        self.ack_due = true;
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => {
                self.time_waits = true;
                self.state = State::Closing;
            }
            State::FinWait2 => {
                self.time_waits = true;
                return self.over();
            }
            _ => {}
        }
        Fate::Keep
    }
}
