//! The bytes that were sent and are not acknowledged: which of them the peer has, and which are presumed lost (RFC 2018, 6675, and the
//! time-based RACK of RFC 8985; without selective acknowledgements, NewReno of RFC 6582).

use crate::message::Nanos;
use core::ops::Range;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In flight.
    Flying,
    /// The peer has it.
    Sacked,
    /// To be retransmitted.
    Lost,
}

#[derive(Clone, Debug)]
struct Sent {
    start: u64,
    end: u64,
    at: Nanos,
    again: bool,
    state: State,
}

impl Sent {
    /// Returns the indices of its packets of `size` bytes that are inside `bytes`; the last packet may be shorter.
    fn packets(&self, bytes: &Range<u64>, size: u64) -> Range<u64> {
        let from = self.start + (bytes.start.max(self.start) - self.start).next_multiple_of(size);
        let to = bytes.end.min(self.end);
        let to = if to == self.end { to } else { to - (to - self.start) % size };
        from..to
    }
}

/// The effect of an acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    /// Bytes newly known to have arrived.
    pub(crate) bytes: u64,
    /// Bytes among them that were selectively acknowledged.
    pub(crate) sacked: u64,
    /// Time at which the last of them that was sent only once was sent.
    pub(crate) sent_once_at: Option<Nanos>,
    /// Set if some of them were sent more than once.
    pub(crate) again: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Scoreboard {
    segments: VecDeque<Sent>,
    flying: u64,
    sacked: u64,
    lost: u64,
    /// Time and end of the latest-sent segment that has arrived.
    newest: Option<(Nanos, u64)>,
    /// Round-trip time of that segment.
    newest_rtt: Nanos,
    /// Highest position that has arrived.
    forward: u64,
    reordered: bool,
}

impl Scoreboard {
    /// Returns the bytes in flight: the pipe of RFC 6675.
    pub(crate) fn pipe(&self) -> u64 {
        self.flying
    }

    pub(crate) fn sacked(&self) -> u64 {
        self.sacked
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the number of recorded segments.
    pub(crate) fn len(&self) -> usize {
        self.segments.len()
    }

    pub(crate) fn is_single(&self) -> bool {
        self.segments.len() == 1
    }

    /// Records that new bytes were sent.
    pub(crate) fn sent(&mut self, bytes: Range<u64>, at: Nanos) {
        self.flying += bytes.end - bytes.start;
        self.segments.push_back(Sent {
            start: bytes.start,
            end: bytes.end,
            at,
            again: false,
            state: State::Flying,
        });
    }

    fn count(&mut self, state: State) -> &mut u64 {
        match state {
            State::Flying => &mut self.flying,
            State::Sacked => &mut self.sacked,
            State::Lost => &mut self.lost,
        }
    }

    fn set(&mut self, index: usize, state: State) {
        let Sent { start, end, state: old, .. } = self.segments[index];
        *self.count(old) -= end - start;
        *self.count(state) += end - start;
        self.segments[index].state = state;
    }

    /// Splits the segment around `at` in two; returns the index of the one that starts there.
    fn split(&mut self, at: u64) -> usize {
        let index = self.segments.partition_point(|sent| sent.end <= at);
        match self.segments.get_mut(index) {
            Some(sent) if sent.start < at => {
                let right = Sent { start: at, ..sent.clone() };
                sent.end = at;
                self.segments.insert(index + 1, right);
                index + 1
            }
            _ => index,
        }
    }

    fn arrived(&mut self, sent: &Sent, now: Nanos, least_rtt: Option<Nanos>, delivery: &mut Delivery) {
        delivery.bytes += sent.end - sent.start;
        delivery.again |= sent.again;
        let rtt = now.saturating_sub(sent.at);
        if !sent.again {
            delivery.sent_once_at = delivery.sent_once_at.max(Some(sent.at));
            self.reordered |= sent.end < self.forward;
        }
        self.forward = self.forward.max(sent.end);
        // A round trip shorter than the shortest was another transmission's (RFC 8985, 6.2, step 2).
        let ambiguous = sent.again && least_rtt.is_some_and(|least| rtt < least);
        if !ambiguous && Some((sent.at, sent.end)) > self.newest {
            self.newest = Some((sent.at, sent.end));
            self.newest_rtt = rtt;
        }
    }

    /// Records that everything before `upto` has arrived.
    pub(crate) fn acknowledge(&mut self, upto: u64, now: Nanos, least_rtt: Option<Nanos>) -> Delivery {
        let mut delivery = Delivery::default();
        let index = self.split(upto);
        for _ in 0..index.min(self.segments.len()) {
            let Some(sent) = self.segments.pop_front() else { break };
            *self.count(sent.state) -= sent.end - sent.start;
            if sent.state != State::Sacked {
                self.arrived(&sent, now, least_rtt, &mut delivery);
            }
        }
        delivery
    }

    /// Records that the peer has these bytes. Only whole packets count, as they were sent, of `packet` bytes each: a peer that acknowledges
    /// scattered bytes creates no more segments than there were packets.
    pub(crate) fn sack(
        &mut self,
        bytes: Range<u64>,
        packet: u32,
        now: Nanos,
        least_rtt: Option<Nanos>,
    ) -> Delivery {
        let mut delivery = Delivery::default();
        let mut at = bytes.start;
        loop {
            let index = self.segments.partition_point(|sent| sent.end <= at);
            let Some(sent) = self.segments.get(index).filter(|sent| sent.start < bytes.end) else { break };
            at = sent.end;
            let whole = sent.packets(&bytes, packet.into());
            if sent.state == State::Sacked || whole.is_empty() {
                continue;
            }
            let index = self.split(whole.start);
            self.split(whole.end);
            let sent = self.segments[index].clone();
            self.set(index, State::Sacked);
            self.arrived(&sent, now, least_rtt, &mut delivery);
        }
        delivery.sacked = delivery.bytes;
        delivery
    }

    /// Marks as lost what was sent well before something that has arrived (RFC 8985, 6.2, steps 4 and 5): earlier by more than a round
    /// trip, to allow for packets that overtake each other. Returns the time of the next check.
    pub(crate) fn detect(
        &mut self,
        now: Nanos,
        patience: Nanos,
        mss: u32,
        recovering: bool,
    ) -> Option<Nanos> {
        let newest = self.newest?;
        let exact = !self.reordered && (recovering || self.sacked >= 3 * u64::from(mss));
        let patience = if exact { 0 } else { patience };
        let mut again = None;
        for index in 0..self.segments.len() {
            let sent = &self.segments[index];
            if sent.state != State::Flying || (sent.at, sent.end) >= newest {
                continue;
            }
            let late = sent.at.saturating_add(self.newest_rtt).saturating_add(patience);
            if late <= now {
                self.set(index, State::Lost);
            } else {
                again = again.max(Some(late));
            }
        }
        again
    }

    /// Marks everything as lost, since the timer has expired. A peer that selectively acknowledged the first byte and does not acknowledge
    /// it has discarded it (RFC 2018, 8).
    pub(crate) fn all_lost(&mut self) {
        let thrown_away = self.segments.front().is_some_and(|sent| sent.state == State::Sacked);
        for index in 0..self.segments.len() {
            match self.segments[index].state {
                State::Flying => self.set(index, State::Lost),
                State::Sacked if thrown_away => self.set(index, State::Lost),
                _ => {}
            }
        }
    }

    /// Undoes a loss: the bytes are in flight after all.
    pub(crate) fn none_lost(&mut self) {
        for index in 0..self.segments.len() {
            if self.segments[index].state == State::Lost {
                self.set(index, State::Flying);
            }
        }
    }

    /// Marks the first `length` unacknowledged bytes as lost (NewReno); returns true if they were not marked before.
    pub(crate) fn first_lost(&mut self, length: u64) -> bool {
        let Some(first) = self.segments.front().filter(|sent| sent.state == State::Flying) else {
            return false;
        };
        let at = first.start + length;
        self.split(at);
        self.set(0, State::Lost);
        true
    }

    /// Marks the last bytes, `length` at most, for retransmission.
    pub(crate) fn last_lost(&mut self, length: u64) -> bool {
        let Some(last) = self.segments.back().filter(|sent| sent.state == State::Flying) else {
            return false;
        };
        let at = last.start.max(last.end.saturating_sub(length));
        let index = self.split(at);
        self.set(index, State::Lost);
        true
    }

    /// Returns the first bytes to retransmit, merged with all adjacent ones.
    pub(crate) fn next_lost(&self) -> Option<Range<u64>> {
        if self.lost == 0 {
            return None;
        }
        let first = self.segments.iter().position(|sent| sent.state == State::Lost)?;
        let run = self.segments.range(first..).take_while(|sent| sent.state == State::Lost);
        Some(self.segments[first].start..run.last()?.end)
    }

    /// Records that lost bytes were retransmitted.
    pub(crate) fn sent_again(&mut self, bytes: Range<u64>, at: Nanos) {
        let first = self.split(bytes.start);
        let last = self.split(bytes.end);
        for index in first..last {
            if self.segments[index].state == State::Lost {
                self.set(index, State::Flying);
            }
            (self.segments[index].at, self.segments[index].again) = (at, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(count: u64) -> Scoreboard {
        let mut board = Scoreboard::default();
        (0..count).for_each(|n| board.sent(n * 10..n * 10 + 10, n));
        board
    }

    fn check(board: &Scoreboard) {
        let sum = |state| -> u64 {
            let those = board.segments.iter().filter(|sent| state == sent.state);
            those.map(|sent| sent.end - sent.start).sum()
        };
        assert_eq!(board.flying, sum(State::Flying));
        assert_eq!(board.sacked, sum(State::Sacked));
        assert_eq!(board.lost, sum(State::Lost));
        assert!(board.segments.iter().all(|sent| sent.start < sent.end));
        assert!(board.segments.iter().zip(board.segments.iter().skip(1)).all(|(a, b)| a.end == b.start));
    }

    #[test]
    fn what_was_sent_before_something_that_arrived_is_lost() {
        let mut board = sent(5);
        assert_eq!(board.pipe(), 50);
        let delivery = board.sack(25..40, 5, 100, None);
        assert_eq!((delivery.bytes, delivery.sacked, delivery.sent_once_at), (15, 15, Some(3)));
        // Sent at 0 to 2, arrived later than what was sent at 3 plus a quarter of the round trip: not yet.
        assert_eq!(board.detect(100, 10, 10, false), Some(2 + 97 + 10));
        assert_eq!(board.lost(), 0);
        assert_eq!(board.detect(109, 10, 10, false), None);
        check(&board);
        assert_eq!((board.next_lost(), board.pipe()), (Some(0..25), 10));
        board.sent_again(5..15, 110);
        check(&board);
        assert_eq!((board.next_lost(), board.pipe()), (Some(0..5), 20));
        let delivery = board.acknowledge(42, 120, None);
        assert_eq!((delivery.bytes, delivery.sent_once_at), (27, Some(4)));
        assert_eq!((board.pipe(), board.sacked(), board.lost()), (8, 0, 0));
        check(&board);
    }

    #[test]
    fn bytes_here_and_there_make_no_segments() {
        let mut board = Scoreboard::default();
        board.sent(0..60_500, 0);
        for at in (1..60_500).step_by(2) {
            board.sack(at..at + 1, 1000, 100, None);
        }
        assert_eq!((board.len(), board.sacked()), (1, 0));
        for at in (500..60_500).step_by(3000) {
            board.sack(at..at + 2600, 1000, 100, None);
        }
        assert_eq!((board.len(), board.sacked()), (41, 40_000), "two of every three packets");
        board.sack(59_999..60_500, 1000, 100, None);
        assert_eq!(board.sacked(), 40_500, "the last one is shorter");
        check(&board);
    }

    #[test]
    fn a_timeout_loses_what_flies_and_what_was_thrown_away() {
        let mut board = sent(4);
        board.sack(10..20, 10, 50, None);
        board.all_lost();
        assert_eq!((board.lost(), board.sacked()), (30, 10));
        board.acknowledge(10, 60, None);
        board.all_lost();
        assert_eq!((board.lost(), board.sacked()), (30, 0), "the first byte was selectively acknowledged");
        check(&board);
    }

    #[test]
    fn without_sack_the_first_segment_is_lost() {
        let mut board = sent(2);
        assert!(board.first_lost(4));
        assert!(!board.first_lost(4));
        assert_eq!(board.next_lost(), Some(0..4));
        assert!(board.last_lost(3));
        check(&board);
        assert_eq!((board.lost(), board.pipe()), (7, 13));
    }

    #[test]
    fn a_retransmission_that_is_acknowledged_too_soon_says_nothing() {
        let mut board = sent(3);
        board.all_lost();
        board.sent_again(0..10, 100);
        board.acknowledge(10, 105, Some(50));
        assert_eq!(board.newest, None);
        board.sent_again(10..30, 110);
        board.acknowledge(20, 200, Some(50));
        assert_eq!(board.newest, Some((110, 20)));
    }
}
