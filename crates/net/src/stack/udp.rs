//! Datagrams: ports that are open, and what goes out from them.

use super::{Stack, Tuple, Turn};
use crate::message::{BlockId, Chunk, Event, OpenError, Owner, Piece, SendError};
use crate::slab::Key;
use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::VecDeque;

/// Bytes of IPv4 and UDP headers.
const HEADERS: u16 = 28;

/// Chunks that go from a port to a peer.
#[derive(Debug, Default)]
pub(super) struct Sender {
    chunks: VecDeque<Cut>,
    /// It is in the queue of those that may have something to send.
    pub(super) queued: bool,
}

/// The rest of a chunk that is cut into datagrams.
#[derive(Debug)]
struct Cut {
    piece: Piece,
    /// Bytes of each but the last.
    payload: u32,
    block: Key,
    name: BlockId,
}

impl Stack {
    /// Takes datagrams to a port: [`Event::Datagram`].
    pub fn open_udp(&mut self, port: u16) -> Result<(), OpenError> {
        if port == 0 || !self.ports.insert(port) {
            return Err(OpenError::Taken(port));
        }
        Ok(())
    }

    /// Takes no more, and sends none of what waits: [`Event::Unsent`].
    pub fn close_udp(&mut self, port: u16) {
        self.ports.remove(&port);
        let from_there: Vec<Tuple> = self.senders.keys().filter(|ends| ends.0 == port).copied().collect();
        from_there.into_iter().for_each(|ends| _ = self.unsend(ends));
    }

    /// Bytes that a datagram can carry.
    pub fn datagram_max(&self) -> u16 {
        self.shared.config.mtu - HEADERS
    }

    /// True if there is a way to an address.
    pub fn has_way(&self, to: Ipv4Addr) -> bool {
        self.shared.config.next_hop(to).is_some()
    }

    /// Sends a datagram from an open port. Its block is free when the NIC has sent it.
    pub fn send_udp(&mut self, port: u16, to: SocketAddrV4, chunk: Chunk) -> Result<(), SendError> {
        let most = self.datagram_max();
        if chunk.piece.length > most.into() {
            return Err(SendError::Length);
        }
        self.send_datagrams(port, to, chunk, most)
    }

    /// Sends a chunk from an open port as datagrams of `payload` bytes each, the last one of what is left; in
    /// order, one for each turn that connections and other peers have too. Its block is free when the NIC has
    /// sent all of them.
    pub fn send_datagrams(
        &mut self,
        port: u16,
        to: SocketAddrV4,
        chunk: Chunk,
        payload: u16,
    ) -> Result<(), SendError> {
        let Chunk { piece, block: name, .. } = chunk;
        if !self.ports.contains(&port) || to.port() == 0 {
            return Err(SendError::Closed);
        }
        let fits = (1..=self.datagram_max()).contains(&payload);
        if !fits || piece.offset.checked_add(piece.length.into()).is_none() {
            return Err(SendError::Length);
        }
        if !self.has_way(*to.ip()) {
            return Err(SendError::Unreachable(*to.ip()));
        }
        if self.senders.get(&(port, to)).is_some_and(|it| it.chunks.len() >= self.shared.config.limits.chunks)
        {
            return Err(SendError::Full);
        }
        let block = self.shared.block(Owner::Port(port), name);
        let cut = Cut { piece, payload: payload.into(), block, name };
        self.senders.entry((port, to)).or_default().chunks.push_back(cut);
        self.take_turn(Turn::Sender((port, to)));
        Ok(())
    }

    /// Sends no more of a chunk's datagrams: [`Event::Unsent`]. False where all of them are at the NIC
    /// already.
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

    /// It may have something to send.
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

    /// The next datagram's payload, and its block, which the frame has now.
    pub(super) fn next_datagram(&mut self, ends: Tuple) -> Option<(Piece, Key)> {
        let chunks = &mut self.senders.get_mut(&ends)?.chunks;
        let cut = chunks.front_mut()?;
        let (length, block) = (cut.piece.length.min(cut.payload), cut.block);
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
        Some((piece, block))
    }

    /// There is no way to a peer.
    pub(super) fn no_way(&mut self, ends: Tuple) {
        self.shared.statistics.pending_dropped += self.unsend(ends);
    }

    /// Nothing of what waits is sent: this many chunks.
    fn unsend(&mut self, ends: Tuple) -> u64 {
        let Some(sender) = self.senders.remove(&ends) else { return 0 };
        self.ready.retain(|turn| *turn != Turn::Sender(ends));
        sender.chunks.iter().for_each(|cut| self.give_up(ends.0, cut));
        sender.chunks.len() as u64
    }

    fn give_up(&mut self, port: u16, cut: &Cut) {
        self.shared.event(Event::Unsent { port, block: cut.name });
        self.shared.unwanted(cut.block);
    }

    /// True if a sender had nothing to send any more, and is gone.
    fn drop_idle(&mut self, ends: Tuple) -> bool {
        let idle = self.senders.get(&ends).is_none_or(|sender| sender.chunks.is_empty());
        if idle {
            self.senders.remove(&ends);
            self.ready.retain(|turn| *turn != Turn::Sender(ends));
        }
        idle
    }

    /// Chunks of which not all datagrams were handed out.
    pub(super) fn chunks_to_send(&self) -> usize {
        self.senders.values().map(|sender| sender.chunks.len()).sum()
    }
}
