//! One connection as source and destination of transfers: it matches operations with bytes of its streams.
//!
//! Reads are places in blocks, laid out in sequence along the incoming stream (packet gathering). Payload is copied to its place in
//! whatever order it arrives, and a read is done when its place is full or the stream has ended. An aborted read leaves its place to be
//! kept aside, so that the next transfer loses no byte of the stream. Writes are done when the NIC has sent them, as long as no more than
//! [`SHARE`] blocks of the connection wait for its peer; a flush is done when the peer has acknowledged everything written before it.

use super::receiver::Reception;
use crate::bus::Bus;
use dcs_abi::status::Status;
use dcs_engine::{BlockId, DeviceEvent, Failure, Nanos, OperationId, Outcome};
use dcs_net::{Piece, Reason};
use std::collections::VecDeque;

/// Blocks of one connection that may wait for the peer's acknowledgement while the commands that filled them go on. Further writes are done
/// when earlier blocks are returned.
const SHARE: usize = 8;

/// A piece of the incoming stream, and its place.
#[derive(Debug)]
struct IncomingPiece {
    start: u64,
    length: u32,
    to: To,
}

#[derive(Debug)]
enum To {
    /// A read's block, from this offset in own memory on.
    Block(OperationId, u64),
    /// Bytes kept aside for later reads.
    Aside(Vec<u8>),
}

/// A write whose block is not returned yet.
#[derive(Debug)]
struct Write {
    operation: OperationId,
    block: BlockId,
    end: u64,
    /// Set once its operation was answered.
    answered: bool,
    length: u32,
}

/// A connection's transfers.
#[derive(Debug, Default)]
pub struct Flow {
    /// `PATH_*` of the command set, reported for the connection's bytes.
    path: u32,
    places: VecDeque<IncomingPiece>,
    /// Offset before which all bytes have arrived.
    arrived: u64,
    /// Offset up to which reads had or have places.
    granted: u64,
    /// Length of the incoming stream, once it is known.
    ended: Option<u64>,
    /// Reason why the connection is gone, if it is.
    closed: Option<Reason>,
    /// Set once the NIC was given up.
    pub nic_given_up: bool,
    writes: Vec<(u64, Write)>,
    /// Bytes appended to the outgoing stream.
    appended: u64,
    /// Bytes that the NIC has sent.
    sent: u64,
    /// Bytes that the peer has acknowledged.
    acknowledged: u64,
    /// Flushes, each with the number of bytes whose acknowledgement it waits for.
    flushes: Vec<(OperationId, u64)>,
    /// Blocks that it had at the last count.
    counted: usize,
    /// Time at which a block was last returned, or the first one came.
    moved_at: Nanos,
    /// Set if it kept blocks that others waited for.
    pub starved: bool,
    /// Set if the host has ended its own stream.
    pub shut: bool,
    /// Set if the host has released it.
    pub released: bool,
}

impl Flow {
    /// Makes a connection whose bytes are reported as `path`.
    pub fn new(path: u32) -> Flow {
        Flow { path, ..Flow::default() }
    }

    /// Returns true if it can be forgotten: it is gone, released, and has no block.
    pub fn is_over(&self) -> bool {
        let reads = self.places.iter().any(|place| matches!(place.to, To::Block(..)));
        self.closed.is_some() && self.released && self.writes.is_empty() && self.flushes.is_empty() && !reads
    }

    /// Begins a read into `length` bytes of own memory. Returns how many more bytes the peer may send.
    pub fn read(&mut self, bus: &mut dyn Bus, operation: OperationId, memory: u64, length: u32) -> u64 {
        let aside = self.places.iter().position(|place| matches!(place.to, To::Aside(_)));
        let Some(at) = aside else {
            let start = self.granted;
            self.granted += u64::from(length);
            self.places.push_back(IncomingPiece { start, length, to: To::Block(operation, memory) });
            return length.into();
        };
        // Bytes kept aside come first. They may not all have arrived.
        let place = &mut self.places[at];
        let To::Aside(bytes) = &mut place.to else { return 0 };
        let taken = length.min(place.length);
        bus.store(memory, &bytes[..taken as usize]);
        bytes.drain(..taken as usize);
        let start = place.start;
        place.start += u64::from(taken);
        place.length -= taken;
        if place.length == 0 {
            self.places.remove(at);
        }
        self.places.insert(at, IncomingPiece { start, length: taken, to: To::Block(operation, memory) });
        0
    }

    /// Moves bytes of the incoming stream to their places: a receiver those that it has, software all others. They must be below the granted
    /// offset.
    pub fn deliver(
        &mut self,
        bus: &mut dyn Bus,
        mut receiver: Option<&mut Reception>,
        offset: u64,
        piece: Piece,
    ) {
        let end = offset + u64::from(piece.length);
        for place in &mut self.places {
            let (from, to) = (offset.max(place.start), end.min(place.start + u64::from(place.length)));
            if from >= to {
                continue;
            }
            let (there, at, length) = (piece.offset + (from - offset), from - place.start, to - from);
            match &mut place.to {
                To::Block(_, memory) => {
                    let receiver = receiver.as_deref_mut();
                    let gather =
                        |receiver: &mut Reception| receiver.gather(bus, there, *memory + at, length as u32);
                    if !receiver.is_some_and(gather) {
                        bus.copy(there, *memory + at, length);
                    }
                }
                To::Aside(aside) => {
                    bus.load(there, &mut aside[at as usize..(at + length) as usize]);
                    if let Some(receiver) = receiver.as_deref_mut() {
                        receiver.skip(bus, there, length as u32);
                    }
                }
            }
        }
    }

    /// Notes that the incoming stream has no holes before this byte.
    pub fn received(&mut self, offset: u64) {
        self.arrived = self.arrived.max(offset);
    }

    /// Notes the length of the incoming stream.
    pub fn ended(&mut self, offset: u64) {
        self.ended = Some(offset);
    }

    /// Notes that the connection is gone.
    pub fn closed(&mut self, reason: Reason) {
        self.closed = Some(reason);
    }

    /// Notes a write: its bytes end at `end` of the outgoing stream, and its block is returned under `token`.
    pub fn wrote(&mut self, token: u64, operation: OperationId, block: BlockId, end: u64, length: u32) {
        self.appended = end;
        self.writes.push((token, Write { operation, block, end, answered: false, length }));
    }

    /// Notes that the peer has all bytes before this one.
    pub fn acknowledged(&mut self, offset: u64) {
        self.acknowledged = self.acknowledged.max(offset);
    }

    /// Begins a flush: it is done when the peer has acknowledged all bytes written so far.
    pub fn flush(&mut self, operation: OperationId) {
        self.flushes.push((operation, self.appended));
    }

    /// Stops waiting for acknowledgements; returns false if the operation is not a flush of this connection.
    pub fn abort_flush(&mut self, operation: OperationId, events: &mut VecDeque<DeviceEvent>) -> bool {
        let Some(at) = self.flushes.iter().position(|(other, _)| *other == operation) else { return false };
        self.flushes.remove(at);
        events.push_back(DeviceEvent::Done(operation, Outcome::Failed(Failure::new(Status::Cancelled))));
        true
    }

    /// Returns the time since which none of its blocks was returned, if it has some that others could use: those that wait for the peer's
    /// acknowledgements, or more than one that waits for its bytes.
    pub fn stuck_since(&self) -> Option<Nanos> {
        let keeps = self.closed.is_none() && (!self.writes.is_empty() || self.reads() > 1);
        keeps.then_some(self.moved_at)
    }

    /// Returns the number of blocks that wait for bytes from the peer.
    fn reads(&self) -> usize {
        self.places.iter().filter(|place| matches!(place.to, To::Block(..))).count()
    }

    /// Counts its blocks, and notes when some were returned.
    pub fn count(&mut self, now: Nanos) {
        let blocks = self.writes.len() + self.reads();
        if blocks < self.counted || self.counted == 0 {
            self.moved_at = now;
        }
        self.counted = blocks;
    }

    /// Notes that the NIC has taken all bytes before this one.
    pub fn sent(&mut self, offset: u64, events: &mut VecDeque<DeviceEvent>) {
        self.sent = self.sent.max(offset);
        self.answer_sent(events);
    }

    /// Answers writes that are sent, within the connection's share of blocks.
    fn answer_sent(&mut self, events: &mut VecDeque<DeviceEvent>) {
        let waiting = self.writes.iter().filter(|(_, write)| write.answered).count();
        let sent = self.sent;
        let due = self.writes.iter_mut().filter(|(_, write)| !write.answered && write.end <= sent);
        for (_, write) in due.take(SHARE.saturating_sub(waiting)) {
            write.answered = true;
            let outcome = Outcome::Moved { bytes: write.length.into(), path: self.path, held: true };
            events.push_back(DeviceEvent::Done(write.operation, outcome));
        }
    }

    /// Takes a block back; returns false if it is not one of this connection's.
    pub fn freed(&mut self, token: u64, events: &mut VecDeque<DeviceEvent>) -> bool {
        let Some(at) = self.writes.iter().position(|(other, _)| *other == token) else { return false };
        let (_, write) = self.writes.remove(at);
        if write.answered {
            events.push_back(DeviceEvent::Released(write.block));
        } else {
            // Its bytes are acknowledged, or the connection is gone and closed() was called first.
            let outcome = match self.closed {
                None => Outcome::Moved { bytes: write.length.into(), path: self.path, held: false },
                Some(reason) => Outcome::Failed(self.failure(reason)),
            };
            events.push_back(DeviceEvent::Done(write.operation, outcome));
        }
        self.answer_sent(events);
        true
    }

    /// Fails a read that was aborted. Bytes for its place are kept aside.
    pub fn abort_read(
        &mut self,
        bus: &dyn Bus,
        operation: OperationId,
        events: &mut VecDeque<DeviceEvent>,
    ) -> bool {
        let mine = |place: &&mut IncomingPiece| matches!(place.to, To::Block(other, _) if other == operation);
        let Some(place) = self.places.iter_mut().find(mine) else { return false };
        if let To::Block(_, memory) = place.to {
            let mut bytes = vec![0; place.length as usize];
            bus.load(memory, &mut bytes);
            place.to = To::Aside(bytes);
        }
        events.push_back(DeviceEvent::Done(operation, Outcome::Failed(Failure::new(Status::Cancelled))));
        true
    }

    /// Returns true if the operation is a write that waits.
    pub fn is_writing(&self, operation: OperationId) -> bool {
        self.writes.iter().any(|(_, write)| write.operation == operation && !write.answered)
    }

    /// Ends all operations that can end now.
    pub fn settle(&mut self, events: &mut VecDeque<DeviceEvent>) {
        let mut at = 0;
        while let Some(place) = self.places.get(at) {
            match (&place.to, self.end_of(place)) {
                (To::Block(operation, _), Some(outcome)) => {
                    events.push_back(DeviceEvent::Done(*operation, outcome));
                    self.places.remove(at);
                }
                _ => at += 1,
            }
        }
        let acknowledged = self.acknowledged;
        let mut answer = |operation, outcome| events.push_back(DeviceEvent::Done(operation, outcome));
        self.flushes.retain(|(operation, upto)| {
            let waits = acknowledged < *upto;
            if !waits {
                answer(*operation, Outcome::Flushed);
            }
            waits
        });
        let Some(failure) = self.closed.map(|reason| self.failure(reason)) else { return };
        for (operation, _) in self.flushes.drain(..) {
            answer(operation, Outcome::Failed(failure));
        }
        for (_, write) in &mut self.writes {
            if !core::mem::replace(&mut write.answered, true) {
                let outcome = Outcome::FailedHeld(failure);
                events.push_back(DeviceEvent::Done(write.operation, outcome));
            }
        }
    }

    /// Returns the failure of transfers of a connection that is gone.
    fn failure(&self, reason: Reason) -> Failure {
        // errno of connections whose peer no longer answers (ETIMEDOUT), or has no route (EHOSTUNREACH).
        match reason {
            _ if self.nic_given_up => Failure::new(Status::DeviceReset),
            _ if self.starved => Failure { status: Status::PeerReset, errno: 110 },
            Reason::TimedOut => Failure { status: Status::PeerReset, errno: 110 },
            Reason::Unreachable => Failure { status: Status::PeerReset, errno: 113 },
            _ => Failure::new(Status::PeerReset),
        }
    }

    /// Returns the outcome of a read, if it is over.
    fn end_of(&self, place: &IncomingPiece) -> Option<Outcome> {
        let moved = |bytes: u64| Outcome::Moved { bytes, path: self.path, held: false };
        let here = self.arrived.saturating_sub(place.start).min(place.length.into());
        if here == u64::from(place.length) {
            return Some(moved(here));
        }
        // The end of a stream is known before its last bytes are delivered, if there was no place for them.
        let is_all = self.ended.is_some_and(|end| self.arrived >= end || place.start >= end);
        match self.closed {
            _ if is_all => Some(moved(here)),
            None => None,
            Some(_) if here > 0 => Some(moved(here)),
            // The rest is lost, which is not the end of a stream.
            Some(reason) => Some(Outcome::Failed(self.failure(reason))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbus::TestBus;
    use dcs_abi::result::PATH_VFIO;

    fn operation(number: u64) -> OperationId {
        OperationId::from_bits(number)
    }

    fn moved(events: &VecDeque<DeviceEvent>) -> Vec<(u64, u64)> {
        let bytes = |event: &DeviceEvent| match event {
            DeviceEvent::Done(operation, Outcome::Moved { bytes, .. }) => Some((operation.to_bits(), *bytes)),
            _ => None,
        };
        events.iter().filter_map(bytes).collect()
    }

    /// Delivers bytes: the stream is 0, 1, 2, ...; receive buffers are at 1000.
    fn arrive(flow: &mut Flow, bus: &mut TestBus, offset: u64, length: u32) {
        let bytes: Vec<u8> = (0..u64::from(length)).map(|at| (offset + at) as u8).collect();
        bus.store(1000, &bytes);
        flow.deliver(bus, None, offset, Piece { offset: 1000, length });
    }

    #[test]
    fn packets_are_gathered_into_the_places_of_reads_in_any_order() {
        let (mut flow, mut bus, mut events) = (Flow::default(), TestBus::memory(2000), VecDeque::new());
        assert_eq!(flow.read(&mut bus, operation(1), 0, 10), 10);
        assert_eq!(flow.read(&mut bus, operation(2), 100, 10), 10);
        arrive(&mut flow, &mut bus, 8, 6);
        flow.settle(&mut events);
        assert!(events.is_empty());
        arrive(&mut flow, &mut bus, 0, 8);
        flow.received(14);
        flow.settle(&mut events);
        assert_eq!(moved(&events), [(1, 10)]);
        assert_eq!(bus.memory[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        flow.ended(14);
        flow.settle(&mut events);
        assert_eq!(moved(&events), [(1, 10), (2, 4)]);
        assert_eq!(bus.memory[100..104], [10, 11, 12, 13]);
        flow.read(&mut bus, operation(3), 0, 10);
        flow.settle(&mut events);
        assert_eq!(moved(&events)[2..], [(3, 0)], "the end");
    }

    #[test]
    fn an_end_that_is_known_before_the_last_bytes_have_come_is_no_end_yet() {
        let (mut flow, mut bus, mut events) = (Flow::default(), TestBus::memory(2000), VecDeque::new());
        flow.ended(14);
        flow.read(&mut bus, operation(1), 0, 10);
        flow.settle(&mut events);
        assert!(events.is_empty(), "nothing has arrived");
        arrive(&mut flow, &mut bus, 0, 10);
        flow.received(10);
        flow.settle(&mut events);
        flow.read(&mut bus, operation(2), 100, 10);
        flow.settle(&mut events);
        assert_eq!(moved(&events), [(1, 10)]);
        // The connection goes before the last four bytes were delivered: they are lost, and the read fails.
        flow.closed(Reason::Finished);
        flow.settle(&mut events);
        let lost = Outcome::Failed(Failure::new(Status::PeerReset));
        assert_eq!(events.back(), Some(&DeviceEvent::Done(operation(2), lost)));
        let mut whole = Flow::new(PATH_VFIO);
        whole.read(&mut bus, operation(3), 0, 10);
        arrive(&mut whole, &mut bus, 0, 4);
        whole.received(4);
        whole.ended(4);
        whole.closed(Reason::Finished);
        whole.settle(&mut events);
        assert_eq!(
            events.back(),
            Some(&DeviceEvent::Done(operation(3), Outcome::Moved { bytes: 4, path: PATH_VFIO, held: false }))
        );
    }

    #[test]
    fn what_a_read_that_was_given_up_had_is_the_next_one_s() {
        let (mut flow, mut bus, mut events) = (Flow::default(), TestBus::memory(2000), VecDeque::new());
        flow.read(&mut bus, operation(1), 0, 20);
        arrive(&mut flow, &mut bus, 0, 5);
        arrive(&mut flow, &mut bus, 9, 2);
        flow.received(5);
        assert!(
            flow.abort_read(&bus, operation(1), &mut events)
                && !flow.abort_read(&bus, operation(1), &mut events)
        );
        bus.memory[..20].fill(0xee);
        events.clear();
        arrive(&mut flow, &mut bus, 5, 2);
        flow.received(7);
        assert_eq!(flow.read(&mut bus, operation(2), 100, 10), 0, "there is a place for it already");
        assert_eq!(flow.read(&mut bus, operation(3), 200, 30), 0);
        arrive(&mut flow, &mut bus, 7, 2);
        arrive(&mut flow, &mut bus, 11, 9);
        flow.received(20);
        flow.settle(&mut events);
        assert_eq!(moved(&events), [(2, 10), (3, 10)]);
        assert_eq!(bus.memory[100..110], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(bus.memory[200..210], [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
        assert!(
            bus.memory[..20].iter().all(|byte| *byte == 0xee),
            "nothing comes into a block that was given back"
        );
    }

    #[test]
    fn a_write_is_done_when_it_is_sent_and_its_block_is_free_later() {
        let (mut flow, mut events) = (Flow::default(), VecDeque::new());
        flow.wrote(7, operation(1), BlockId(3), 100, 100);
        flow.wrote(8, operation(2), BlockId(4), 150, 50);
        flow.sent(99, &mut events);
        assert!(events.is_empty() && flow.is_writing(operation(1)));
        flow.sent(100, &mut events);
        assert_eq!(moved(&events), [(1, 100)]);
        assert!(flow.freed(7, &mut events) && !flow.freed(7, &mut events));
        assert_eq!(events[1], DeviceEvent::Released(BlockId(3)));
        flow.closed(Reason::Reset);
        flow.settle(&mut events);
        let failed = Outcome::FailedHeld(Failure::new(Status::PeerReset));
        assert_eq!(events[2], DeviceEvent::Done(operation(2), failed));
        assert!(
            flow.freed(8, &mut events) && events[3] == DeviceEvent::Released(BlockId(4)) && !flow.is_over()
        );
        flow.released = true;
        assert!(flow.is_over());
    }
}
