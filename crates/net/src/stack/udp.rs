//! Datagrams: open ports, and the senders that use them.

use super::egress::HOPS;
use super::{Stack, Tuple, Turn};
use crate::message::{BlockId, Chunk, Event, Nanos, OpenError, Owner, Piece, SendError};
use crate::slab::Key;
use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::VecDeque;

/// Size of the IPv4 and UDP headers, in bytes.
const HEADERS: u16 = 28;

/// The chunks from one port to one peer.
#[derive(Debug, Default)]
pub(super) struct Sender {
    chunks: VecDeque<Cut>,
    /// Set while it is in the queue of those that may have something to send.
    pub(super) queued: bool,
}

/// The rest of a chunk that is being cut into datagrams.
#[derive(Debug)]
struct Cut {
    piece: Piece,
    /// Payload of each datagram except the last, in bytes.
    payload: u32,
    /// Time to live of each datagram, in hops.
    hops: u8,
    block: Key,
    name: BlockId,
}

impl Stack {
    /// Starts receiving datagrams to a port: [`Event::Datagram`].
    pub fn open_udp(&mut self, port: u16) -> Result<(), OpenError> {
        if port == 0 || !self.ports.insert(port) {
            return Err(OpenError::Taken(port));
        }
        Ok(())
    }

    /// Stops receiving, and sends no waiting datagram: [`Event::Unsent`].
    pub fn close_udp(&mut self, port: u16) {
        self.ports.remove(&port);
        let from_there: Vec<Tuple> = self.senders.keys().filter(|ends| ends.0 == port).copied().collect();
        from_there.into_iter().for_each(|ends| _ = self.drop_chunks(ends));
    }

    /// Returns the most bytes that a datagram can carry.
    pub fn datagram_max(&self) -> u16 {
        self.shared.config.mtu - HEADERS
    }

    /// Returns true if there is a route to an address.
    pub fn has_route(&self, to: Ipv4Addr) -> bool {
        self.shared.config.next_hop(to).is_some()
    }

    /// Returns true if a datagram to an address could leave now: it is a group's, or the neighbour that it goes to is known; otherwise that
    /// is asked for its address.
    pub fn can_reach(&mut self, to: Ipv4Addr, now: Nanos) -> bool {
        if to.is_multicast() {
            return true;
        }
        self.shared.config.next_hop(to).is_some_and(|hop| self.neighbours.find(hop, true, now).is_some())
    }

    /// Sends a datagram from an open port. Its block is free when the NIC has sent it.
    pub fn send_udp(&mut self, port: u16, to: SocketAddrV4, chunk: Chunk) -> Result<(), SendError> {
        let most = self.datagram_max();
        if chunk.piece.length > most.into() {
            return Err(SendError::Length);
        }
        self.send_datagrams(port, to, chunk, most)
    }

    /// Sends one datagram from an open port to a host or a group (multicast), which may take this many hops. Its block is free when the NIC
    /// has sent it.
    pub fn send_to(&mut self, port: u16, to: SocketAddrV4, chunk: Chunk, hops: u8) -> Result<(), SendError> {
        let fits = (1..=u32::from(self.datagram_max())).contains(&chunk.piece.length);
        if !fits || chunk.piece.offset.checked_add(chunk.piece.length.into()).is_none() {
            return Err(SendError::Length);
        }
        if !to.ip().is_multicast() && !self.has_route(*to.ip()) {
            return Err(SendError::Unreachable(*to.ip()));
        }
        self.queue(port, to, chunk, (chunk.piece.length, hops))
    }

    /// Sends a chunk from an open port as datagrams of `payload` bytes each, the last one with the rest; in order, one per turn, as
    /// connections and other peers have theirs. Its block is free when the NIC has sent all of them.
    pub fn send_datagrams(
        &mut self,
        port: u16,
        to: SocketAddrV4,
        chunk: Chunk,
        payload: u16,
    ) -> Result<(), SendError> {
        let piece = chunk.piece;
        if !self.ports.contains(&port) || to.port() == 0 {
            return Err(SendError::Closed);
        }
        let fits = (1..=self.datagram_max()).contains(&payload);
        if !fits || piece.offset.checked_add(piece.length.into()).is_none() {
            return Err(SendError::Length);
        }
        if !self.has_route(*to.ip()) {
            return Err(SendError::Unreachable(*to.ip()));
        }
        self.queue(port, to, chunk, (payload.into(), HOPS))
    }

    /// Queues a chunk for datagrams of `payload` bytes each, which may take `hops` hops.
    fn queue(
        &mut self,
        port: u16,
        to: SocketAddrV4,
        Chunk { piece, block: name, .. }: Chunk,
        (payload, hops): (u32, u8),
    ) -> Result<(), SendError> {
        if !self.ports.contains(&port) || to.port() == 0 {
            return Err(SendError::Closed);
        }
        if self.senders.get(&(port, to)).is_some_and(|it| it.chunks.len() >= self.shared.config.limits.chunks)
        {
            return Err(SendError::Full);
        }
        let block = self.shared.block(Owner::Port(port), name);
        let cut = Cut { piece, payload, hops, block, name };
        self.senders.entry((port, to)).or_default().chunks.push_back(cut);
        self.take_turn(Turn::Sender((port, to)));
        Ok(())
    }

    /// Stops sending a chunk's datagrams: [`Event::Unsent`]. Returns false if all of them are at the NIC already.
    pub fn recall(&mut self, port: u16, to: SocketAddrV4, block: BlockId) -> bool {
        let ends = (port, to);
        let Some(sender) = self.senders.get_mut(&ends) else { return false };
        let Some(at) = sender.chunks.iter().position(|cut| cut.name == block) else { return false };
        if let Some(cut) = sender.chunks.remove(at) {
            self.give_up(port, &cut);
        }
        self.drop_idle(ends);
        true
    }

    /// Queues a sender that may have something to send.
    pub(super) fn take_turn(&mut self, turn: Turn) {
        match turn {
            Turn::Flow(key) => self.touch(key),
            Turn::Sender(ends) => {
                if let Some(sender) = self.senders.get_mut(&ends)
                    && !std::mem::replace(&mut sender.queued, true)
                {
                    self.ready.push_back(turn);
                }
            }
        }
    }

    /// Returns the next datagram's payload, its hops, and its block, which the frame now has.
    pub(super) fn next_datagram(&mut self, ends: Tuple) -> Option<(Piece, u8, Key)> {
        let chunks = &mut self.senders.get_mut(&ends)?.chunks;
        let cut = chunks.front_mut()?;
        let (length, hops, block) = (cut.piece.length.min(cut.payload), cut.hops, cut.block);
        let piece = cut.piece.part(0, length);
        cut.piece = cut.piece.part(length.into(), cut.piece.length - length);
        self.shared.blocks.framed(block);
        if cut.piece.length == 0 {
            chunks.pop_front();
            self.shared.unwanted(block);
        }
        if !self.drop_idle(ends) {
            self.take_turn(Turn::Sender(ends));
        }
        Some((piece, hops, block))
    }

    /// Drops a sender's chunks, since there is no route to the peer.
    pub(super) fn drop_unroutable(&mut self, ends: Tuple) {
        self.shared.statistics.pending_dropped += self.drop_chunks(ends);
    }

    /// Drops all waiting chunks of a sender; returns their number.
    fn drop_chunks(&mut self, ends: Tuple) -> u64 {
        let Some(sender) = self.senders.remove(&ends) else { return 0 };
        self.ready.retain(|turn| *turn != Turn::Sender(ends));
        sender.chunks.iter().for_each(|cut| self.give_up(ends.0, cut));
        sender.chunks.len() as u64
    }

    fn give_up(&mut self, port: u16, cut: &Cut) {
        self.shared.event(Event::Unsent { port, block: cut.name });
        self.shared.unwanted(cut.block);
    }

    /// Removes a sender that has nothing left to send; returns true if it did.
    fn drop_idle(&mut self, ends: Tuple) -> bool {
        let idle = self.senders.get(&ends).is_none_or(|sender| sender.chunks.is_empty());
        if idle {
            self.senders.remove(&ends);
            self.ready.retain(|turn| *turn != Turn::Sender(ends));
        }
        idle
    }

    /// Returns the number of chunks whose datagrams were not all returned as frames.
    pub(super) fn chunks_to_send(&self) -> usize {
        self.senders.values().map(|sender| sender.chunks.len()).sum()
    }
}
