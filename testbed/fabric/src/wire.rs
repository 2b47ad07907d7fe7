//! An Ethernet cable: a rate, a delay, and faults. No collisions, no pause frames.

use std::time::Duration;

use crate::fabric::FunctionId;
use crate::link::{Ps, to_ps};

/// One end of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireEnd {
    pub(crate) wire: usize,
    pub(crate) side: usize,
}

impl WireEnd {
    pub(crate) fn other(self) -> WireEnd {
        WireEnd { side: 1 - self.side, ..self }
    }
}

/// Properties of a wire. Chances are out of 1,000 frames, drawn from the fabric's seed.
#[derive(Clone, Copy, Debug)]
pub struct Wire {
    /// Bits per second.
    pub rate: u64,
    /// Delay from end to end: 5 ns per metre.
    pub delay: Duration,
    /// Chance that a frame is lost.
    pub lose: u16,
    /// Chance that a frame arrives twice.
    pub duplicate: u16,
    /// Chance that a frame arrives `late` later, so that others pass it.
    pub reorder: u16,
    /// Additional delay of reordered frames.
    pub late: Duration,
    /// Longest frame that passes, in bytes without the frame check sequence. Longer ones are lost.
    pub longest: usize,
}

impl Default for Wire {
    /// Returns Gigabit Ethernet over 20 m, without faults.
    fn default() -> Wire {
        Wire {
            rate: 1_000_000_000,
            delay: Duration::from_nanos(100),
            lose: 0,
            duplicate: 0,
            reorder: 0,
            late: Duration::from_micros(200),
            longest: 9216,
        }
    }
}

/// Traffic on a wire in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCount {
    /// Frames sent into it.
    pub frames: u64,
    /// Bytes sent, without preamble, frame check sequence and gap.
    pub bytes: u64,
    /// Frames that the wire lost.
    pub lost: u64,
    /// Frames that the wire duplicated.
    pub duplicated: u64,
    /// Frames that the wire delayed.
    pub reordered: u64,
}

#[derive(Debug)]
pub(crate) struct WireState {
    pub(crate) wire: Wire,
    pub(crate) ends: [Option<FunctionId>; 2],
    pub(crate) up: bool,
    pub(crate) counts: [WireCount; 2],
    free: [Ps; 2],
}

impl WireState {
    pub(crate) fn new(wire: Wire, ends: [Option<FunctionId>; 2]) -> WireState {
        WireState { wire, ends, up: true, counts: Default::default(), free: [0; 2] }
    }

    /// Returns the arrival times of a frame that `side` sends now: none, one or two.
    pub(crate) fn send(
        &mut self,
        side: usize,
        now: Ps,
        length: usize,
        mut chance: impl FnMut() -> u16,
    ) -> Vec<Ps> {
        // Preamble, frame check sequence and gap [IEEE 802.3, 4.4.2], and padding to 60 bytes.
        let bits = (length.max(60) as u64 + 24) * 8;
        let end = now.max(self.free[side]) + bits * 1_000_000_000_000 / self.wire.rate;
        self.free[side] = end;
        let count = &mut self.counts[side];
        count.frames += 1;
        count.bytes += length as u64;
        let mut drawn = |limit: u16| limit > 0 && chance() < limit;
        if !self.up || length > self.wire.longest || drawn(self.wire.lose) {
            count.lost += 1;
            return Vec::new();
        }
        let mut at = end + to_ps(self.wire.delay);
        if drawn(self.wire.reorder) {
            count.reordered += 1;
            at += to_ps(self.wire.late);
        }
        let mut copies = vec![at];
        if drawn(self.wire.duplicate) {
            count.duplicated += 1;
            copies.push(at);
        }
        copies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_takes_its_bits_and_the_next_waits() {
        let mut state = WireState::new(Wire::default(), [None; 2]);
        let first = state.send(0, 0, 1514, || 999);
        let second = state.send(0, 0, 10, || 999);
        assert_eq!(first, [1538 * 8000 + 100_000]);
        assert_eq!(second, [first[0] + 84 * 8000]);
        assert_eq!(state.send(1, 0, 10, || 999), [84 * 8000 + 100_000]);
    }

    #[test]
    fn frames_are_lost_doubled_and_held_back_as_drawn() {
        let wire = Wire { lose: 10, duplicate: 10, reorder: 10, ..Wire::default() };
        let mut state = WireState::new(wire, [None; 2]);
        let mut draws = [9, 10, 9, 10, 10, 10, 9].into_iter();
        assert!(state.send(0, 0, 60, || draws.next().unwrap()).is_empty());
        assert_eq!(state.send(0, 0, 60, || draws.next().unwrap()).len(), 1);
        assert_eq!(state.send(0, 0, 60, || draws.next().unwrap()).len(), 2);
        let WireCount { lost, duplicated, reordered, frames, .. } = state.counts[0];
        assert_eq!((frames, lost, duplicated, reordered), (3, 1, 1, 1));
    }
}
