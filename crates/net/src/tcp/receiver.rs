//! The receiving side: packet gathering. Bytes below what was granted are delivered as they arrive, in whatever order, each to its place in
//! the stream; bytes beyond wait in their receive buffers, within bounds. Positions are in the peer's sequence space: the stream's first
//! byte has position 1.

use crate::config::Limits;
use crate::message::{BufferId, Event, Flow, Piece};
use crate::ranges::Ranges;
use crate::shared::Shared;
use core::ops::Range;

/// Bytes in a receive buffer that wait to be granted.
#[derive(Debug)]
struct Ungranted {
    start: u64,
    piece: Piece,
    buffer: BufferId,
}

/// A segment's payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Payload {
    pub(crate) piece: Piece,
    pub(crate) buffer: BufferId,
}

/// The fate of a segment's payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Set if it continued where the bytes before had ended, and neither fills a gap nor leaves one.
    pub(crate) in_order: bool,
    /// Set if its receive buffer is needed.
    pub(crate) held: bool,
}

#[derive(Debug)]
pub(crate) struct Receiver {
    flow: Flow,
    /// Next expected position.
    nxt: u64,
    /// Position after the bytes for which the owner has place.
    granted: u64,
    /// Position after the window that the peer knows of; never moves back.
    edge: u64,
    /// Ranges that have arrived beyond `nxt`.
    ranges: Ranges,
    /// Position of the latest segment: it is in the first block of a selective acknowledgement.
    last: u64,
    held: Vec<Ungranted>,
    /// Receive buffers promised to the peer: what it may send beyond what was granted, in full segments.
    promised: usize,
    /// Position of the peer's FIN.
    fin: Option<u64>,
    received: u64,
    buffer: u32,
    window: u32,
    held_most: usize,
    ranges_most: usize,
}

impl Receiver {
    pub(crate) fn new(flow: Flow, limits: &Limits) -> Receiver {
        Receiver {
            flow,
            nxt: 1,
            granted: 1,
            edge: 1,
            ranges: Ranges::default(),
            last: 0,
            held: Vec::new(),
            promised: 0,
            fin: None,
            received: 1,
            buffer: limits.buffer,
            window: limits.window,
            held_most: limits.held,
            ranges_most: limits.ranges,
        }
    }

    /// Limits the window to what can be advertised with this scale.
    pub(crate) fn scale(&mut self, scale: u8) {
        self.window = self.window.min(0xffff << scale);
    }

    pub(crate) fn nxt(&self) -> u64 {
        self.nxt
    }

    /// Returns how many bytes from `nxt` the peer may send, as far as it knows.
    pub(crate) fn window(&self) -> u64 {
        self.edge.saturating_sub(self.nxt)
    }

    /// Returns how many bytes beyond what was granted the peer may be told to send. All connections share the receive buffers, and those
    /// promised to others are no longer available: half of the buffers may be promised. Each connection gets a quarter of the rest, and two
    /// segments at least (a window that opens by less is silly: RFC 9293, 3.8.6.2.2), for which the other half is reserved.
    fn allowance(&self, shared: &Shared) -> u64 {
        let half = shared.config.limits.held_total / 2;
        let left = half.saturating_sub(shared.promised - self.promised);
        u64::from(self.buffer).min((left / 4).max(2) as u64 * segment(shared))
    }

    /// Returns the largest end that the window could have now.
    fn possible_edge(&self, shared: &Shared) -> u64 {
        let most = self.nxt + u64::from(self.window);
        (self.granted + self.allowance(shared)).min(most).max(self.edge)
    }

    /// Returns true when the peer should be told of a larger window (RFC 9293, 3.8.6.2.2): larger by two segments, or by half of the
    /// maximum.
    pub(crate) fn is_wider(&self, mss: u32, shared: &Shared) -> bool {
        let more = self.possible_edge(shared) - self.edge;
        more >= u64::from(2 * mss).min(u64::from(self.buffer.min(self.window)) / 2).max(1)
    }

    /// Returns the window to advertise, in units of `1 << scale`, rounded down: bytes in the remainder are accepted all the same.
    pub(crate) fn advertise(&mut self, scale: u8, shared: &mut Shared) -> u16 {
        let units = (self.possible_edge(shared).saturating_sub(self.nxt) >> scale).min(0xffff);
        self.edge = self.edge.max(self.nxt + (units << scale));
        self.promise(shared);
        (self.window() >> scale).min(0xffff) as u16
    }

    /// Counts the buffers for what the peer may send beyond what was granted.
    fn promise(&mut self, shared: &mut Shared) {
        let promised = self.edge.saturating_sub(self.granted).div_ceil(segment(shared)) as usize;
        shared.promised = shared.promised - self.promised + promised;
        self.promised = promised;
    }

    /// Returns true if everything up to and including the FIN has arrived.
    pub(crate) fn ended(&self) -> bool {
        self.fin.is_some_and(|fin| self.nxt > fin)
    }

    /// Returns true if received bytes wait to be granted.
    pub(crate) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns the ranges to acknowledge selectively, newest first.
    pub(crate) fn sacks(&self) -> impl Iterator<Item = Range<u64>> {
        let newest = self.ranges.around(self.last);
        let others = self.ranges.iter().filter({
            let newest = newest.clone();
            move |range| Some(*range) != newest.as_ref()
        });
        newest.into_iter().chain(others.cloned())
    }

    pub(crate) fn has_gaps(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Grants this many more bytes, for which the owner has place.
    pub(crate) fn grant(&mut self, bytes: u64, shared: &mut Shared) {
        self.granted = self.granted.saturating_add(bytes).min(1 << 62);
        let flow = self.flow;
        let granted = self.granted;
        let mut held = std::mem::take(&mut self.held);
        held.retain_mut(|held| {
            let length = granted.saturating_sub(held.start).min(held.piece.length.into()) as u32;
            if length > 0 {
                let piece = held.piece.part(0, length);
                shared.event(Event::Deliver { flow, offset: held.start - 1, piece });
                held.piece = held.piece.part(length.into(), held.piece.length - length);
                held.start += u64::from(length);
            }
            let is_done = held.piece.length == 0;
            if is_done {
                shared.held -= 1;
                shared.event(Event::Release { buffer: held.buffer });
            }
            !is_done
        });
        self.held = held;
        self.promise(shared);
        self.progress(shared);
    }

    /// Reports up to where everything has been delivered.
    fn progress(&mut self, shared: &mut Shared) {
        let data_end = if self.ended() { self.nxt - 1 } else { self.nxt };
        let received = data_end.min(self.granted);
        if received > self.received {
            self.received = received;
            shared.event(Event::Received { flow: self.flow, offset: received - 1 });
        }
    }

    /// Processes a segment's payload, whose first byte has position `start`, followed by a FIN if `fin`. It overlaps the window.
    pub(crate) fn arrive(
        &mut self,
        start: i64,
        payload: Option<Payload>,
        fin: bool,
        shared: &mut Shared,
    ) -> Arrival {
        let length = payload.map_or(0, |payload| i64::from(payload.piece.length));
        let end = start.saturating_add(length);
        let from = (start.max(0) as u64).max(self.nxt);
        let upto = (end.max(0) as u64).min(self.edge.max(self.nxt));
        let upto = self.fin.map_or(upto, |fin| upto.min(fin));
        let before = self.nxt;
        let had_gaps = self.has_gaps();
        let mut arrival = Arrival::default();
        if let Some(payload) = payload.filter(|_| from < upto) {
            arrival.held = self.place(start, payload, from..upto, shared);
        }
        if fin && end > 0 && end as u64 >= self.nxt && upto as i64 == end && self.highest() <= end as u64 {
            self.fin.get_or_insert(end as u64);
        }
        if let Some(range) = self.ranges.around(self.nxt) {
            self.nxt = range.end;
            self.ranges.remove(range);
        }
        if self.fin == Some(self.nxt) {
            self.nxt += 1;
        }
        arrival.in_order = self.nxt > before && !had_gaps && !self.has_gaps();
        self.progress(shared);
        if self.ended() && self.nxt > before {
            shared.event(Event::Ended { flow: self.flow, offset: self.nxt - 2 });
        }
        arrival
    }

    fn highest(&self) -> u64 {
        self.ranges.iter().last().map_or(self.nxt, |range| range.end)
    }

    /// Delivers or holds the new bytes of `bytes`; returns true if the receive buffer is needed.
    fn place(&mut self, start: i64, payload: Payload, bytes: Range<u64>, shared: &mut Shared) -> bool {
        let piece_of = |bytes: &Range<u64>| {
            payload.piece.part((bytes.start as i64 - start) as u64, (bytes.end - bytes.start) as u32)
        };
        self.last = bytes.start;
        let missing = self.ranges.missing(bytes.clone());
        if missing.is_empty() {
            shared.statistics.duplicates += 1;
        }
        let mut is_held = false;
        for new in missing {
            if new.start > self.nxt && self.ranges.around(self.nxt).is_none() {
                shared.statistics.out_of_order += 1;
            }
            let is_apart = new.start > self.nxt && self.ranges.around(new.start - 1).is_none();
            if is_apart && self.ranges.len() >= self.ranges_most {
                shared.statistics.bytes_dropped += new.end - new.start;
                continue;
            }
            let granted = new.start..new.end.min(self.granted).max(new.start);
            if !granted.is_empty() {
                let (flow, offset) = (self.flow, granted.start - 1);
                shared.event(Event::Deliver { flow, offset, piece: piece_of(&granted) });
                self.ranges.insert(granted.clone());
            }
            let beyond = granted.end..new.end;
            if beyond.is_empty() {
                continue;
            }
            let is_full = self.held.len() >= self.held_most || shared.held >= shared.config.limits.held_total;
            if is_held || is_full {
                shared.statistics.bytes_dropped += beyond.end - beyond.start;
                continue;
            }
            self.held.push(Ungranted {
                start: beyond.start,
                piece: piece_of(&beyond),
                buffer: payload.buffer,
            });
            shared.held += 1;
            self.ranges.insert(beyond);
            is_held = true;
        }
        is_held
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self, shared: &mut Shared) {
        for held in self.held.drain(..) {
            shared.held -= 1;
            shared.event(Event::Release { buffer: held.buffer });
        }
        self.ranges.clear();
        shared.promised -= std::mem::take(&mut self.promised);
    }
}

/// Returns the payload of a full segment with timestamps, in bytes.
fn segment(shared: &Shared) -> u64 {
    u64::from(shared.config.mtu) - 52
}
