//! The receiver of one stream: datagrams go in as they arrive, bytes come out in order.

use crate::rtp::{self, Header};
use crate::window::Window;
use crate::{Framing, Nanos};
use std::collections::VecDeque;

/// Counts of a stream's datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Datagrams received.
    pub datagrams: u64,
    /// Bytes of the payloads that were passed on.
    pub bytes: u64,
    /// Datagrams that never arrived. Unknown without RTP.
    pub lost: u64,
    /// Datagrams that arrived twice, or too late.
    pub surplus: u64,
    /// Datagrams that were put back into order.
    pub reordered: u64,
    /// Number of times that the sender restarted.
    pub restarts: u64,
    /// Datagrams that are not RTP, or have another payload type or stream.
    pub foreign: u64,
}

/// A stream's receiver.
#[derive(Debug)]
pub struct Receiver {
    framing: Framing,
    window: Window<Box<[u8]>>,
    /// Number of bytes in the window.
    waiting: usize,
    /// Payloads in order.
    ready: VecDeque<Box<[u8]>>,
    /// Bytes of the first payload that were read.
    taken: usize,
    /// Identifier of the stream: the first one received.
    ssrc: Option<u32>,
    /// Another stream's identifier, and its number of datagrams in a row: the sender may have restarted.
    strangers: (u32, u32),
    datagrams: u64,
    bytes: u64,
    foreign: u64,
}

/// Most bytes that a receiver holds while it waits for missing ones. A window full of a video's datagrams has a third of that.
const WAITING: usize = 16 << 20;
/// Datagrams in a row after which another stream replaces the current one.
const CHANGE: u32 = 16;

impl Receiver {
    /// Makes a receiver. `patience`: the time to wait for missing datagrams, in nanoseconds.
    pub fn new(framing: Framing, patience: u64) -> Receiver {
        Receiver {
            framing,
            window: Window::new(patience),
            waiting: 0,
            ready: VecDeque::new(),
            taken: 0,
            ssrc: None,
            strangers: (0, 0),
            datagrams: 0,
            bytes: 0,
            foreign: 0,
        }
    }

    /// Takes a datagram.
    pub fn put(&mut self, datagram: &[u8], now: Nanos) {
        self.datagrams += 1;
        if self.framing == Framing::Plain {
            self.ready.push_back(datagram.into());
            return;
        }
        match Header::parse(datagram).filter(|(header, _)| header.payload_type == rtp::MP2T) {
            Some((header, payload)) if self.is_ours(header.ssrc) => {
                if self.window.put(header.sequence, payload.into(), now) {
                    self.waiting += payload.len();
                }
                while self.waiting > WAITING && self.pass_on(now, true) {}
            }
            _ => self.foreign += 1,
        }
        self.advance(now, false);
    }

    /// Passes on what was waited for long enough; `all`: everything, since nothing follows.
    pub fn advance(&mut self, now: Nanos, all: bool) {
        while self.pass_on(now, all) {}
    }

    fn pass_on(&mut self, now: Nanos, all: bool) -> bool {
        let Some(payload) = self.window.take(now, all) else { return false };
        self.waiting -= payload.len();
        self.ready.push_back(payload);
        true
    }

    /// Copies bytes out, in order; returns how many.
    pub fn read(&mut self, into: &mut [u8]) -> usize {
        let mut count = 0;
        while let Some(first) = self.ready.front() {
            let left = &first[self.taken..];
            let length = left.len().min(into.len() - count);
            into[count..count + length].copy_from_slice(&left[..length]);
            count += length;
            self.taken += length;
            if self.taken < first.len() {
                break;
            }
            self.ready.pop_front();
            self.taken = 0;
        }
        self.bytes += count as u64;
        count
    }

    /// Returns the time of the next call of [`Receiver::advance`] if nothing arrives.
    pub fn deadline(&self) -> Option<Nanos> {
        self.window.deadline()
    }

    /// Returns the counts so far.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            datagrams: self.datagrams,
            bytes: self.bytes,
            lost: self.window.lost,
            surplus: self.window.surplus,
            reordered: self.window.reordered,
            restarts: self.window.restarts,
            foreign: self.foreign,
        }
    }

    /// Returns true if a datagram belongs to the current stream. The first stream is received; one that replaces it is accepted after a
    /// while.
    fn is_ours(&mut self, ssrc: u32) -> bool {
        if *self.ssrc.get_or_insert(ssrc) == ssrc {
            self.strangers.1 = 0;
            return true;
        }
        let (stranger, count) = self.strangers;
        self.strangers = (ssrc, if stranger == ssrc { count + 1 } else { 1 });
        if self.strangers.1 < CHANGE {
            return false;
        }
        (self.ssrc, self.strangers.1) = (Some(ssrc), 0);
        self.window.renew(|payload| self.ready.push_back(payload));
        self.waiting = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(ssrc: u32, sequence: u16, payload: &[u8]) -> Vec<u8> {
        let header = Header { payload_type: rtp::MP2T, sequence, ssrc, ..Header::default() };
        let mut bytes = [0; rtp::HEADER];
        header.write(&mut bytes);
        [&bytes[..], payload].concat()
    }

    #[test]
    fn order_is_made_and_another_stream_is_not_mixed_in() {
        let mut receiver = Receiver::new(Framing::Rtp, 1000);
        for (ssrc, sequence, payload) in [(1, 9, "one "), (1, 11, "three"), (2, 10, "not"), (1, 10, "two ")] {
            receiver.put(&datagram(ssrc, sequence, payload.as_bytes()), 0);
        }
        receiver.put(b"no RTP", 0);
        let mut bytes = [0; 6];
        assert_eq!((receiver.read(&mut bytes), &bytes), (6, b"one tw"));
        let mut bytes = [0; 20];
        assert_eq!((receiver.read(&mut bytes), &bytes[..7]), (7, &b"o three"[..]));
        let counted = receiver.statistics();
        assert_eq!((counted.datagrams, counted.bytes, counted.foreign, counted.reordered), (5, 13, 2, 1));
    }

    #[test]
    fn long_datagrams_behind_a_missing_one_do_not_pile_up() {
        let mut receiver = Receiver::new(Framing::Rtp, Nanos::MAX);
        let payload = [7; 60_000];
        let held = (WAITING / payload.len()) as u16;
        for sequence in (0..=held + 10).filter(|sequence| *sequence != 1) {
            receiver.put(&datagram(1, sequence, &payload), 0);
        }
        // Only the missing one was given up: everything else can be read.
        assert!(receiver.waiting <= WAITING);
        assert_eq!((receiver.statistics().lost, receiver.ready.len()), (1, usize::from(held) + 10));
        receiver.put(&datagram(1, 1, &payload), 0);
        assert_eq!(receiver.statistics().surplus, 1);
    }

    #[test]
    fn a_sender_that_was_started_anew_is_heard_after_a_while() {
        let mut receiver = Receiver::new(Framing::Rtp, 1000);
        receiver.put(&datagram(1, 9, b"a"), 0);
        for sequence in 0..20 {
            receiver.put(&datagram(2, 40_000 + sequence, b"b"), 0);
        }
        receiver.advance(0, true);
        let mut bytes = [0; 100];
        let count = receiver.read(&mut bytes);
        assert_eq!(&bytes[..count], b"abbbbb");
    }
}
