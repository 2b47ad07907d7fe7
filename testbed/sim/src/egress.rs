//! A peer's frames on their way into the wire, held back while the NIC at the other end has no room for them (IEEE 802.3, annex 31B:
//! PAUSE).
//!
//! Without it a NIC whose server is late drops frames of all connections at once; smoltcp has no selective acknowledgements, and repeats
//! a lost tail after a second, as its least timeout is. The link then stands still for seconds of which the measured time has less than
//! one. Drivers of such NICs have PAUSE on: mlx4's, for 40 Gb/s, sends and obeys it unless told otherwise (its `en_main.c`, `rx_pause` and
//! `tx_pause`).

use dcs_engine::Nanos;
use std::collections::VecDeque;

/// Bits of a frame on the wire beside its bytes: preamble, frame check sequence, gap.
const FRAMING: u64 = 24;

/// Frames of a peer.
pub struct Egress {
    waiting: VecDeque<Vec<u8>>,
    /// Arrival and bytes of those on the wire.
    flying: VecDeque<(Nanos, usize)>,
    /// Bytes of those.
    bytes: usize,
    /// Time at which the wire is free, in picoseconds.
    free: u128,
    rate: u64,
    /// Bytes that the NIC has room for.
    room: usize,
}

impl Egress {
    /// Returns an empty one, for a wire of this rate in bits per second to a NIC with this much room for frames.
    pub fn new(rate: u64, room: usize) -> Egress {
        Egress { waiting: VecDeque::new(), flying: VecDeque::new(), bytes: 0, free: 0, rate, room }
    }

    /// Adds frames to send.
    pub fn add(&mut self, frames: Vec<Vec<u8>>) {
        self.waiting.extend(frames);
    }

    /// Returns true if frames wait.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the next frame to send; `None` while the NIC, which holds `held` bytes, would have no room for it.
    pub fn next(&mut self, now: Nanos, held: usize) -> Option<Vec<u8>> {
        while self.flying.front().is_some_and(|(at, _)| *at <= now) {
            self.bytes -= self.flying.pop_front().map_or(0, |(_, bytes)| bytes);
        }
        let length = self.waiting.front()?.len();
        if self.bytes + held + length > self.room {
            return None;
        }
        let bits = u128::from((length.max(60) as u64 + FRAMING) * 8);
        self.free = self.free.max(u128::from(now) * 1000) + bits * 1_000_000_000_000 / u128::from(self.rate);
        // A microsecond for the wire's delay, and for the frame's way into the NIC.
        self.flying.push_back(((self.free / 1000) as Nanos + 1000, length));
        self.bytes += length;
        self.waiting.pop_front()
    }

    /// Returns the time at which there may be room without any other event.
    pub fn deadline(&self) -> Option<Nanos> {
        self.flying.front().filter(|_| self.is_waiting()).map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_sent_than_there_is_room_for() {
        let mut egress = Egress::new(1_000_000_000, 3000);
        egress.add((0..5).map(|_| vec![0; 1000]).collect());
        // 1,024 bytes of a gigabit a second are 8,192 ns.
        assert_eq!((0..5).filter_map(|_| egress.next(0, 0)).count(), 3);
        assert_eq!(egress.deadline(), Some(9192));
        assert!(egress.next(9191, 0).is_none());
        assert!(egress.next(9192, 1000).is_none(), "it has arrived, and the NIC still holds it");
        assert!(egress.next(9192, 0).is_some());
        assert_eq!((0..5).filter_map(|_| egress.next(1_000_000, 0)).count(), 1);
        assert_eq!((egress.is_waiting(), egress.deadline()), (false, None));
    }
}
