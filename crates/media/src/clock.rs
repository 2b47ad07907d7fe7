//! Due times of a stream's positions.
//!
//! With PCR, time is distributed evenly over the bytes between two clock references. So the bytes after the last reference have no time
//! before the next one arrives, or the stream ends: then they get the last rate.

use crate::Nanos;
use crate::ts;

/// The source of due times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// No pace: bytes are sent as soon as possible.
    #[default]
    Free,
    /// Constant rate of the stream in bits per second, not counting headers of datagrams; not 0.
    Constant(u64),
    /// Clock references of an MPEG transport stream.
    Pcr,
}

/// Longest time between two references of one clock, in ticks. The specification requires 0.1 s; files from careless multiplexers have
/// more.
const PCR_INTERVAL_MAX: u64 = ts::CLOCK;
/// Time without a reference of the current PID, in ticks of another PID's clock, after which that other one is used.
const SILENT: u64 = ts::CLOCK / 4;
/// Most other PIDs that are watched for that.
const WATCHED: usize = 64;

/// A run of bytes over which time is distributed evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First position.
    pub from: u64,
    /// Position after the last byte.
    pub until: u64,
    start: Nanos,
    /// Nanoseconds of the rate.
    nanos: u64,
    /// Bytes of the rate; not 0.
    bytes: u64,
}

impl Span {
    /// Returns the time at which the byte at this position is due.
    pub fn due(&self, position: u64) -> Nanos {
        self.start.saturating_add(scaled(position.saturating_sub(self.from), self.nanos, self.bytes))
    }
}

fn scaled(value: u64, by: u64, of: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(by) / u128::from(of.max(1))).unwrap_or(u64::MAX)
}

/// The clock of one stream.
#[derive(Debug)]
pub struct Clock {
    pacing: Pacing,
    /// Set while the clock runs: a position has a time.
    runs: bool,
    /// Position before which all bytes have their times.
    timed: u64,
    /// Time of that position.
    at: Nanos,
    /// Last clock reference: its position and value.
    last: Option<(u64, u64)>,
    /// Time of the first reference that the clock has counted from without a jump.
    base: Nanos,
    /// Ticks since then.
    elapsed: u64,
    /// Nanoseconds and bytes between the last two references.
    rate: Option<(u64, u64)>,
    /// PID whose references are used.
    pid: Option<u16>,
    /// Other PIDs that have had references since the current one's last: each with the first one's value.
    others: Vec<(u16, u64)>,
    /// Number of references that jumped without a discontinuity indicator.
    pub jumps: u64,
}

impl Clock {
    /// Makes a clock that does not run.
    pub fn new() -> Clock {
        Clock {
            pacing: Pacing::Free,
            runs: false,
            timed: 0,
            at: 0,
            last: None,
            base: 0,
            elapsed: 0,
            rate: None,
            pid: None,
            others: Vec::new(),
            jumps: 0,
        }
    }

    /// Returns the current pacing.
    pub fn pacing(&self) -> Pacing {
        self.pacing
    }

    /// Begins new bytes at this position. `joined`: they follow without a pause.
    pub fn begin(&mut self, pacing: Pacing, position: u64, joined: bool) {
        debug_assert!(position >= self.timed, "earlier bytes have their times");
        (self.pacing, self.last, self.pid) = (pacing, None, None);
        self.others.clear();
        if !joined {
            (self.runs, self.rate) = (false, None);
        }
        if pacing != Pacing::Pcr {
            self.timed = position;
        }
    }

    /// Takes a clock reference at a position: the bytes before it get their times now, unless it is the first one.
    pub fn reference(&mut self, packet: &ts::Packet, position: u64, now: Nanos) -> Option<Span> {
        let pcr = packet.pcr?;
        let changed = self.changes(packet.pid, pcr)?;
        let Some((before, value)) = self.last else {
            self.last = Some((position, pcr));
            // Another file, at the rate of the previous one.
            let span = self.at_rate(position, now);
            (self.base, self.elapsed) = (self.at, 0);
            return span;
        };
        let ticks = ts::ticks(value, pcr);
        let bytes = position - before;
        if (ticks == 0 && !changed) || bytes == 0 {
            return None;
        }
        self.last = Some((position, pcr));
        if changed || packet.discontinuity || ticks > PCR_INTERVAL_MAX {
            self.jumps += u64::from(!changed && !packet.discontinuity);
            let span = self.at_rate(position, now);
            (self.base, self.elapsed) = (self.at, 0);
            return span;
        }
        let nanos = (ticks * 1000).div_ceil(27);
        self.rate = Some((nanos, bytes));
        self.start(now);
        if self.timed < before {
            // The first two references: the bytes before them get the same rate.
            self.base = self.at.saturating_add(scaled(before - self.timed, nanos, bytes));
            self.elapsed = 0;
        }
        self.elapsed += ticks;
        let end = self.base.saturating_add(scaled(self.elapsed, 1000, 27));
        Some(self.span(position, end))
    }

    /// Returns whether the clock changes to this PID; `None` if its references are not used.
    fn changes(&mut self, pid: u16, pcr: u64) -> Option<bool> {
        if *self.pid.get_or_insert(pid) == pid {
            self.others.clear();
            return Some(false);
        }
        match self.others.iter().find(|(other, _)| *other == pid) {
            Some((_, since)) if ts::ticks(*since, pcr) >= SILENT => {
                self.pid = Some(pid);
                self.others.clear();
                Some(true)
            }
            None if self.others.len() < WATCHED => {
                self.others.push((pid, pcr));
                None
            }
            _ => None,
        }
    }

    /// Returns true if the duration of bytes is known: from two references, or from what these bytes join.
    pub fn has_rate(&self) -> bool {
        self.rate.is_some()
    }

    /// Ends or pauses the stream at this position: returns times for the bytes that have none yet.
    pub fn finish(&mut self, position: u64, now: Nanos) -> Option<Span> {
        match self.pacing {
            Pacing::Pcr if self.rate.is_some() => self.at_rate(position, now),
            // Fewer than two references: the duration is unknown.
            Pacing::Pcr => {
                self.start(now);
                (position > self.timed).then(|| self.span(position, self.at))
            }
            Pacing::Constant(_) | Pacing::Free => self.advance(position, now),
        }
    }

    /// Returns times up to this position, if the pace does not depend on the bytes.
    pub fn advance(&mut self, position: u64, now: Nanos) -> Option<Span> {
        let bits = match self.pacing {
            Pacing::Pcr => return None,
            Pacing::Free => {
                self.at = self.at.max(now);
                return (position > self.timed).then(|| self.span(position, self.at));
            }
            Pacing::Constant(bits) => bits.max(1),
        };
        if !self.runs || self.rate != Some((8_000_000_000, bits)) {
            self.start(now);
            (self.base, self.elapsed) = (self.at, 0);
            self.rate = Some((8_000_000_000, bits));
        }
        if position <= self.timed {
            return None;
        }
        // Computed from the total each time, so that nothing drifts.
        self.elapsed += position - self.timed;
        let end = self.base.saturating_add(scaled(self.elapsed, 8_000_000_000, bits));
        Some(self.span(position, end))
    }

    /// Delays everything that has no time yet.
    pub fn shift(&mut self, by: u64) {
        self.at = self.at.saturating_add(by);
        self.base = self.base.saturating_add(by);
    }

    /// Returns the time of the first position that has none yet.
    pub fn at(&self) -> Nanos {
        self.at
    }

    fn start(&mut self, now: Nanos) {
        if !std::mem::replace(&mut self.runs, true) {
            self.at = self.at.max(now);
            self.base = self.at;
        }
    }

    /// Returns times up to this position at the last rate, if there was one.
    fn at_rate(&mut self, position: u64, now: Nanos) -> Option<Span> {
        let (nanos, bytes) = self.rate?;
        self.start(now);
        let end = self.at.saturating_add(scaled(position.checked_sub(self.timed)?, nanos, bytes));
        (position > self.timed).then(|| self.span(position, end))
    }

    fn span(&mut self, until: u64, end: Nanos) -> Span {
        let (from, start) = (self.timed, self.at);
        let span = Span { from, until, start, nanos: end.saturating_sub(start), bytes: until - from };
        (self.timed, self.at) = (until, start.max(end));
        span
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reference(pcr: u64, discontinuity: bool) -> ts::Packet {
        ts::Packet { pid: 5, counter: 0, has_payload: false, discontinuity, pcr: Some(pcr) }
    }

    #[test]
    fn time_goes_evenly_between_references_and_on_after_the_last() {
        let mut clock = Clock::new();
        clock.begin(Pacing::Pcr, 0, false);
        assert_eq!(clock.reference(&reference(ts::WRAP - 27_000, false), 1000, 7), None);
        // 2 ms for 2,000 bytes; the 1,000 before go at the same rate, and the clock wraps meanwhile.
        let span = clock.reference(&reference(27_000, false), 3000, 50).unwrap();
        assert_eq!((span.from, span.until), (0, 3000));
        assert_eq!([0, 1000, 2000].map(|at| span.due(at)), [50, 1_000_050, 2_000_050]);
        let span = clock.finish(5000, 60).unwrap();
        assert_eq!([3000, 4000].map(|at| span.due(at)), [3_000_050, 4_000_050]);
        // Another file follows: its first reference takes no time.
        clock.begin(Pacing::Pcr, 5000, true);
        let span = clock.reference(&reference(99, false), 5500, 70).unwrap();
        assert_eq!(span.due(5000), 5_000_050);
        let span = clock.reference(&reference(99 + 54_000, false), 6500, 70).unwrap();
        assert_eq!([5500, 6000].map(|at| span.due(at)), [5_500_050, 6_500_050]);
        assert_eq!(clock.jumps, 0);
    }

    #[test]
    fn a_jump_goes_on_at_the_rate_before_it() {
        let mut clock = Clock::new();
        clock.begin(Pacing::Pcr, 0, false);
        clock.reference(&reference(0, false), 0, 0);
        clock.reference(&reference(27_000, false), 1000, 0);
        let span = clock.reference(&reference(5_000_000_000, false), 2000, 0).unwrap();
        assert_eq!((span.due(1000), span.due(1500), clock.jumps), (1_000_000, 1_500_000, 1));
        let span = clock.reference(&reference(4, true), 3000, 0).unwrap();
        assert_eq!((span.due(2000), clock.jumps), (2_000_000, 1));
    }

    #[test]
    fn another_pid_gives_the_time_when_the_first_one_is_silent() {
        let mut clock = Clock::new();
        clock.begin(Pacing::Pcr, 0, false);
        let of = |pid, ms: u64| ts::Packet { pid, ..reference(ms * 27_000, false) };
        clock.reference(&of(5, 0), 0, 0);
        clock.reference(&of(5, 100), 1000, 0);
        // With two programs, one is used as long as it continues.
        for step in 2..10 {
            assert_eq!(clock.reference(&of(6, 7_000 + step * 100), step * 1000 - 500, 0), None);
            assert!(clock.reference(&of(5, step * 100), step * 1000, 0).is_some());
        }
        // It ends: the other one is used from its next reference on, at the previous rate before that.
        for step in [10, 11] {
            assert_eq!(clock.reference(&of(6, 7_000 + step * 100), step * 1000 - 500, 0), None);
        }
        let spans: Vec<Span> =
            (12..15).filter_map(|step| clock.reference(&of(6, 7_000 + step * 100), step * 1000, 0)).collect();
        assert_eq!(spans.iter().map(|span| span.until).collect::<Vec<_>>(), [13_000, 14_000]);
        assert_eq!((spans[1].due(13_500), clock.jumps), (1_350_000_000, 0));
    }

    #[test]
    fn a_constant_rate_does_not_drift_and_may_change() {
        let mut clock = Clock::new();
        clock.begin(Pacing::Constant(7_000_000), 0, false);
        for position in 1..=70_000u64 {
            clock.advance(position * 100, 9);
        }
        assert_eq!(clock.at(), 8_000_000_009);
        clock.begin(Pacing::Constant(8_000_000_000), 7_000_000, true);
        clock.advance(7_000_100, 10);
        assert_eq!(clock.at(), 8_000_000_109);
    }

    proptest! {
        /// Checks that with any references, times never go back and every position has one at the end.
        #[test]
        fn times_never_go_back(
            steps in prop::collection::vec((1u64..5000, any::<u64>(), any::<bool>(), 0u64..100_000_000, any::<bool>()), 1..100),
        ) {
            let mut clock = Clock::new();
            clock.begin(Pacing::Pcr, 0, false);
            let (mut position, mut now, mut timed, mut last) = (0, 0, 0, 0);
            let mut check = |span: Option<Span>| {
                if let Some(span) = span {
                    assert_eq!(span.from, timed);
                    assert!(span.due(span.from) >= last && span.due(span.until) >= span.due(span.from));
                    (timed, last) = (span.until, span.due(span.until - 1));
                }
            };
            for (bytes, pcr, discontinuity, later, ends) in steps {
                position += bytes;
                now += later;
                check(clock.reference(&reference(pcr % ts::WRAP, discontinuity), position, now));
                if ends {
                    check(clock.finish(position, now));
                    clock.begin(Pacing::Pcr, position, discontinuity);
                }
            }
            check(clock.finish(position + 1, now));
            prop_assert_eq!(timed, position + 1);
        }
    }
}
