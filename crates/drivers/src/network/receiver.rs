//! Frames that something else receives, in the place of the NIC's driver: hardware, over the receive ring that the driver has set up and
//! lends it.
//!
//! The hardware keeps the payload of a frame that is the next data of a connection to which it listens. Software is told of each frame, and
//! reads its headers: the stack acknowledges, and says where payload goes. What the hardware has kept, the hardware gathers there, in the
//! order of the stream. Of all other frames software has the buffer, and copies the payload.
//!
//! | payload that | is moved by |
//! |---|---|
//! | the hardware has kept, and that is the next of its connection | the hardware |
//! | came out of order, with options, FIN, or without room in the hardware; or of a connection beyond the hardware's | software |

use super::Network;
use crate::bus::{Bus, Region};
use crate::nic::{LentReceive, Nic};
use core::net::SocketAddrV4;
use dcs_net::{self as net, Piece, ReceivedFrame, Stack, Verdict, checksum};
use std::collections::{HashMap, VecDeque};

/// Bytes of a receive buffer.
pub const BUFFER: u32 = 2048;
/// Bytes of the page to which goes what nobody reads.
const PAGE: u64 = 4096;
/// Bytes before the payload of a frame that is kept: headers of Ethernet, IPv4 and TCP.
const HEADERS: u64 = 14 + 20 + 20;

/// Hardware that receives frames by a NIC's ring.
pub trait Receiver: core::fmt::Debug + Send {
    /// Returns the number of its ring's descriptors, which is that of its buffers too.
    fn entries(&self) -> u16;

    /// Returns how many buffers it keeps at most.
    fn keeps(&self) -> u16;

    /// Returns the number of connections to which it listens at once.
    fn connections(&self) -> usize;

    /// Uses this ring, which is empty. The frames that it was told of keep their buffers, and so does what it has kept.
    fn start(&mut self, bus: &mut dyn Bus, ring: &LentReceive);

    /// Leaves the ring alone: the NIC is reset.
    fn stop(&mut self, bus: &mut dyn Bus);

    /// Listens to a connection by this number, and drops what it has kept by it; with `None` it listens to none by it.
    fn listen(&mut self, bus: &mut dyn Bus, connection: usize, to: Option<&Peer>);

    /// Returns the next frame that has come.
    fn receive(&mut self, bus: &mut dyn Bus) -> Option<ReceiverEvent>;

    /// Takes a buffer back.
    fn give_back(&mut self, bus: &mut dyn Bus, buffer: u16);

    /// Moves the next bytes that it has kept of a connection to own memory, within a page; returns false if it could not.
    fn gather(&mut self, bus: &mut dyn Bus, connection: usize, memory: u64, length: u32) -> bool;

    /// Returns the descriptor of the next frame, and the tail that the NIC knows.
    fn ring(&self) -> (u16, u16);
}

/// A connection to listen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Ethernet address of this side.
    pub mac: [u8; 6],
    /// This side.
    pub local: SocketAddrV4,
    /// The other side.
    pub remote: SocketAddrV4,
    /// Number of the next byte.
    pub next: u32,
}

/// A frame that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverEvent {
    /// Buffer of the frame.
    pub buffer: u16,
    /// Length of the frame in bytes, as the NIC has told it.
    pub length: u32,
    /// Set if the hardware keeps the payload, and with it the buffer.
    pub kept: Option<Kept>,
}

/// The header's part of a frame whose payload the hardware keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Number of its connection.
    pub connection: usize,
    /// Number that the frame acknowledges.
    pub acknowledges: u32,
    /// Window of the frame, as its header has it.
    pub window: u16,
    /// Number of the byte behind the payload.
    pub next: u32,
}

/// Counts of payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounts {
    /// Frames whose payload the hardware has kept.
    pub kept: u64,
    /// All other frames.
    pub told: u64,
    /// Bytes that the hardware has moved to where they were read.
    pub gathered: u64,
    /// Buffers that the NIC has now. All but one, if nobody else has any.
    pub posted: u16,
}

/// Holder of a frame's buffer.
#[derive(Clone, Copy, Debug)]
enum Holder {
    Software(u16),
    /// The hardware, for a connection.
    Hardware(usize),
}

/// Payload that the hardware keeps.
#[derive(Debug)]
struct Payload {
    /// The stack's name of the buffer.
    buffer: u64,
    /// Place of the next byte in own memory.
    at: u64,
    left: u32,
    /// Set if the stack needs none of it any more.
    is_dropped: bool,
}

/// A connection to which the hardware listens.
#[derive(Debug)]
struct Connection {
    flow: net::Flow,
    next: u32,
    payload: VecDeque<Payload>,
    /// Set if the hardware could not move bytes of it. Software copies what is left, from the hardware's buffers.
    is_broken: bool,
}

/// A receiver, and what it has.
pub(super) struct Reception {
    receiver: Box<dyn Receiver>,
    page: Region,
    /// The ring that it uses.
    ring: Option<LentReceive>,
    heard: Vec<Option<Connection>>,
    holders: HashMap<u64, Holder>,
    /// Connections of which something has come since the hardware was told where they are.
    changed: Vec<net::Flow>,
    counts: ReceiverCounts,
}

impl core::fmt::Debug for Reception {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Reception {{ {:?}, {:?} }}", self.receiver, self.counts)
    }
}

impl Reception {
    /// Takes a page of the memory for a receiver.
    pub fn new(receiver: Box<dyn Receiver>, memory: &mut Region) -> Option<Reception> {
        let heard = (0..receiver.connections()).map(|_| None).collect();
        let page = memory.take(PAGE, PAGE)?;
        let (ring, holders, changed, counts) = Default::default();
        Some(Reception { receiver, page, ring, heard, holders, changed, counts })
    }

    /// Returns its counts.
    pub fn counts(&self) -> ReceiverCounts {
        let (next, tail) = self.receiver.ring();
        let entries = self.receiver.entries();
        ReceiverCounts { posted: (tail + entries - next) % entries, ..self.counts }
    }

    /// Returns the number of its buffers.
    pub fn entries(&self) -> u16 {
        self.receiver.entries()
    }

    /// Returns the stack's limits. Besides what the hardware keeps, the stack has three quarters of the buffers at most: the NIC always has
    /// the rest.
    pub fn limits(&self) -> net::Limits {
        let left = usize::from(self.entries() - self.receiver.keeps());
        let (held, echoes) = (left * 5 / 8, left / 8);
        net::Limits { held, held_total: held, echoes, ..net::Limits::default() }
    }

    /// Follows what the driver does with the NIC.
    pub fn follow(&mut self, nic: &Nic, bus: &mut dyn Bus) {
        let lent = nic.lent_receive();
        if self.ring == lent {
            return;
        }
        if self.ring.take().is_some() {
            self.receiver.stop(bus);
        }
        if let Some(ring) = &lent {
            self.receiver.start(bus, ring);
        }
        self.ring = lent;
    }

    /// Takes back all buffers, and forgets all connections: the stack is gone.
    pub fn clear(&mut self, bus: &mut dyn Bus) {
        for (_, holder) in self.holders.drain() {
            if let Holder::Software(buffer) = holder {
                self.receiver.give_back(bus, buffer);
            }
        }
        for connection in 0..self.heard.len() {
            self.forget(bus, connection);
        }
        self.changed.clear();
    }

    /// Notes that something has come of a connection.
    pub fn note_change(&mut self, flow: net::Flow) {
        if !self.changed.contains(&flow) {
            self.changed.push(flow);
        }
    }

    /// Tells the hardware where connections are of which something has come.
    pub fn listen(&mut self, bus: &mut dyn Bus, stack: &Stack, mac: [u8; 6]) {
        for flow in core::mem::take(&mut self.changed) {
            if let (Some((local, remote)), Some(next)) = (stack.ends(flow), stack.expects(flow)) {
                self.listen_to(bus, flow, &Peer { mac, local, remote, next });
            }
        }
    }

    /// Has the hardware listen to a connection of which nobody has the next byte, if it has a number for it.
    fn listen_to(&mut self, bus: &mut dyn Bus, flow: net::Flow, peer: &Peer) {
        let free = || self.heard.iter().position(Option::is_none);
        let Some(at) = self.of(flow).or_else(free) else { return };
        // What it has kept is read before it listens from elsewhere.
        let stays = |heard: &Connection| heard.next == peer.next || !heard.payload.is_empty();
        if !self.heard[at].as_ref().is_some_and(stays) {
            self.receiver.listen(bus, at, Some(peer));
            self.heard[at] =
                Some(Connection { flow, next: peer.next, payload: VecDeque::new(), is_broken: false });
        }
    }

    fn of(&self, flow: net::Flow) -> Option<usize> {
        self.heard.iter().position(|heard| heard.as_ref().is_some_and(|heard| heard.flow == flow))
    }

    /// Forgets a connection that is gone, and what was kept of it.
    pub fn closed(&mut self, bus: &mut dyn Bus, flow: net::Flow) {
        self.changed.retain(|other| *other != flow);
        if let Some(connection) = self.of(flow) {
            self.forget(bus, connection);
        }
    }

    fn forget(&mut self, bus: &mut dyn Bus, connection: usize) {
        if self.heard[connection].take().is_some() {
            self.receiver.listen(bus, connection, None);
        }
    }

    /// Notes a frame, whose buffer the stack calls `buffer`; returns its place, or `None` if no buffer holds a frame of its length.
    fn arrived(&mut self, told: &ReceiverEvent, buffer: u64) -> Option<u64> {
        let place = self.ring?.buffers + u64::from(told.buffer) * u64::from(BUFFER);
        let Some(kept) = told.kept else {
            self.counts.told += 1;
            self.holders.insert(buffer, Holder::Software(told.buffer));
            return (told.length <= BUFFER).then_some(place);
        };
        self.counts.kept += 1;
        let heard = self.heard.get_mut(kept.connection)?.as_mut()?;
        let left = kept.next.wrapping_sub(heard.next);
        if HEADERS + u64::from(left) > u64::from(told.length.min(BUFFER)) {
            return None;
        }
        heard.next = kept.next;
        heard.payload.push_back(Payload { buffer, at: place + HEADERS, left, is_dropped: false });
        self.holders.insert(buffer, Holder::Hardware(kept.connection));
        Some(place)
    }

    /// Moves payload from its buffer to own memory, if the hardware has it and can move it now.
    pub fn gather(&mut self, bus: &mut dyn Bus, from: u64, to: u64, length: u32) -> bool {
        let is_next = |heard: &Connection| {
            let next = heard.payload.front().filter(|_| !heard.is_broken);
            next.is_some_and(|payload| payload.at == from && payload.left >= length)
        };
        let next = self.heard.iter().position(|heard| heard.as_ref().is_some_and(is_next));
        let Some(connection) = next.filter(|_| to % PAGE + u64::from(length) <= PAGE) else { return false };
        let is_moved = self.take(bus, connection, to, length);
        self.counts.gathered += if is_moved { u64::from(length) } else { 0 };
        is_moved
    }

    /// Notes that software has taken payload itself.
    pub fn skip(&mut self, bus: &mut dyn Bus, from: u64, length: u32) {
        let page = self.page.offset();
        self.gather(bus, from, page, length);
    }

    /// Moves the next bytes of a connection, and drops those behind them that nobody needs.
    fn take(&mut self, bus: &mut dyn Bus, connection: usize, to: u64, length: u32) -> bool {
        let is_moved = self.receiver.gather(bus, connection, to, length);
        let Some(heard) = self.heard[connection].as_mut() else { return false };
        if !is_moved {
            heard.is_broken = true;
            return false;
        }
        if let Some(payload) = heard.payload.front_mut() {
            payload.at += u64::from(length);
            payload.left -= length;
            if payload.left == 0 {
                heard.payload.pop_front();
            }
        }
        self.drop_next(bus, connection);
        true
    }

    fn drop_next(&mut self, bus: &mut dyn Bus, connection: usize) {
        if let Some(heard) = self.heard[connection].as_mut().filter(|heard| heard.is_broken) {
            heard.payload.retain(|payload| !payload.is_dropped);
            if heard.payload.is_empty() {
                self.forget(bus, connection);
            }
            return;
        }
        let next = self.heard[connection].as_ref().and_then(|heard| heard.payload.front());
        if let Some(length) = next.filter(|next| next.is_dropped).map(|next| next.left) {
            self.take(bus, connection, self.page.offset(), length);
        }
    }

    /// Takes a frame's buffer back from the stack.
    pub fn release(&mut self, bus: &mut dyn Bus, buffer: u64) {
        match self.holders.remove(&buffer) {
            Some(Holder::Software(number)) => self.receiver.give_back(bus, number),
            Some(Holder::Hardware(connection)) => {
                let payload = self.heard[connection].iter_mut().flat_map(|heard| &mut heard.payload);
                if let Some(payload) = { payload }.find(|payload| payload.buffer == buffer) {
                    payload.is_dropped = true;
                    self.drop_next(bus, connection);
                }
            }
            None => {}
        }
    }
}

impl Network {
    /// Takes the frames that the hardware has received; at most as many as its ring has, so that a NIC that writes without end doesn't hold
    /// the caller up.
    pub(super) fn receive_frames(&mut self, bus: &mut dyn Bus) {
        let Some(reception) = &mut self.reception else { return };
        reception.follow(&self.nic, bus);
        let entries = reception.receiver.entries();
        let has_more = (0..entries).all(|_| self.receive_frame(bus));
        let (Some(reception), Some(stack)) = (&mut self.reception, &self.stack) else { return };
        // What it has told of is taken first: it may have kept the next byte.
        if let Some(mac) = self.nic.address().filter(|_| !has_more) {
            reception.listen(bus, stack, mac);
        }
        self.follow_ring();
    }

    fn receive_frame(&mut self, bus: &mut dyn Bus) -> bool {
        let Some(reception) = self.reception.as_mut().filter(|reception| reception.ring.is_some()) else {
            return false;
        };
        let Some(told) = reception.receiver.receive(bus) else { return false };
        let buffer = self.next_buffer;
        self.next_buffer += 1;
        let Some(place) = reception.arrived(&told, buffer) else {
            match told.kept {
                Some(kept) => reception.forget(bus, kept.connection),
                None => reception.release(bus, buffer),
            }
            self.nic.fail_impossible(bus, self.now);
            return false;
        };
        self.nic.note_received();
        let Some(stack) = &mut self.stack else {
            reception.release(bus, buffer);
            return true;
        };
        let mut head = [0; net::HEAD];
        let head = &mut head[..net::HEAD.min(told.length as usize)];
        bus.load(place, head);
        if let Some(kept) = told.kept {
            head[42..46].copy_from_slice(&kept.acknowledges.to_be_bytes());
            head[48..50].copy_from_slice(&kept.window.to_be_bytes());
        }
        let checksum = Verdict::Good;
        let mut frame =
            ReceivedFrame { buffer, head, length: told.length, offset: place, split: None, checksum };
        if told.kept.is_none() {
            // It was not told what the NIC says of the frame.
            frame.checksum = checksum::verify(&frame, |piece, sum| {
                let mut bytes = vec![0; piece.length as usize];
                bus.load(piece.offset, &mut bytes);
                sum.add(&bytes);
            });
        }
        stack.receive(&frame, self.now);
        self.take_events(bus);
        true
    }

    /// Has the hardware follow what the driver does with the NIC: it leaves the rings alone from the first sign of a reset on.
    pub(super) fn follow_nic(&mut self, bus: &mut dyn Bus) {
        self.poll_sender(bus);
        self.reception.iter_mut().for_each(|reception| reception.follow(&self.nic, bus));
    }

    /// Tells the driver where the hardware's receive ring is.
    pub(super) fn follow_ring(&mut self) {
        if let Some(reception) = self.reception.as_ref().filter(|reception| reception.ring.is_some()) {
            self.nic.follow_receive(reception.receiver.ring());
        }
    }

    /// Notes that something has come of a connection.
    pub(super) fn note_change(&mut self, flow: net::Flow) {
        self.reception.iter_mut().for_each(|reception| reception.note_change(flow));
    }

    /// Moves payload to where a connection's stream is read.
    pub(super) fn deliver(&mut self, bus: &mut dyn Bus, name: net::Flow, offset: u64, piece: Piece) {
        if let Some(flow) = self.flows.get_mut(&name) {
            flow.deliver(bus, self.reception.as_mut(), offset, piece);
            self.with(name, |_, _| ());
        }
    }

    /// Returns counts of the payload, if hardware receives it.
    pub fn receiver_counts(&self) -> Option<ReceiverCounts> {
        self.reception.as_ref().map(Reception::counts)
    }
}

#[cfg(test)]
mod tests;
