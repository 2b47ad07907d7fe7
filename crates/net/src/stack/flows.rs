//! Connections in the stack's tables.

use super::time_wait::TimeWait;
use super::{Connection, Packet, Stack, Turn};
use crate::arp::Waiting;
use crate::message::{Event, Nanos, Reason};
use crate::slab::Key;
use crate::tcp::segment::{Flags, Header, OptionBytes, Segment};
use crate::tcp::{Fate, State, Tcb};
use core::net::Ipv4Addr;

impl Stack {
    pub(super) fn insert(&mut self, tcb: Tcb) -> Key {
        let tuple = (tcb.local.port(), tcb.remote);
        let connection = Connection { tcb: Box::new(tcb), queued: false, scheduled: None };
        let key = self.flows.insert(connection);
        self.tuples.insert(tuple, key);
        self.touch(key);
        key
    }

    /// Notes a change to a connection: it may have something to send, and its deadline may be different.
    pub(super) fn touch(&mut self, key: Key) {
        let Some(connection) = self.flows.get_mut(key) else { return };
        if !std::mem::replace(&mut connection.queued, true) {
            self.ready.push_back(Turn::Flow(key));
        }
        self.schedule(key);
    }

    pub(super) fn schedule(&mut self, key: Key) {
        let Some(connection) = self.flows.get_mut(key) else { return };
        let deadline = connection.tcb.deadline(&self.shared);
        if deadline == connection.scheduled {
            return;
        }
        if let Some(old) = std::mem::replace(&mut connection.scheduled, deadline) {
            self.timers.remove(&(old, key));
        }
        if let Some(at) = deadline {
            self.timers.insert((at, key));
        }
    }

    pub(super) fn settle(&mut self, key: Key, fate: Fate, now: Nanos) {
        match fate {
            Fate::Keep => self.touch(key),
            Fate::Closed(reason) => self.close(key, reason),
            Fate::Reset(reason) => self.reset(key, reason),
            Fate::TimeWait => {
                if let Some(Connection { tcb, .. }) = self.flows.get_mut(key) {
                    let last = tcb.last_acknowledgement(now, &mut self.shared);
                    let (snd_nxt, rcv_nxt) = tcb.numbers();
                    let until = now.saturating_add(self.shared.config.tcp.time_wait);
                    let entry = TimeWait { snd_nxt, rcv_nxt, stamps: tcb.stamps(), until };
                    let tuple = (tcb.local.port(), tcb.remote);
                    self.time_waits.insert(tuple, entry, self.shared.config.limits.time_wait);
                    if let Some(header) = last {
                        self.reply((*tuple.1.ip(), None), header);
                    }
                }
                self.close(key, Reason::Finished);
            }
        }
    }

    /// Removes a connection, and tells its owner if the owner knew of it.
    pub(super) fn close(&mut self, key: Key, reason: Reason) {
        let Some(Connection { tcb, .. }) = self.flows.get(key) else { return };
        let flow = tcb.flow;
        let known = tcb.is_open() || !tcb.passive;
        self.remove(key);
        if known {
            self.shared.event(Event::Closed { flow, reason });
        }
    }

    /// Removes a connection likewise, and sends a reset if the peer knows of it.
    pub(super) fn reset(&mut self, key: Key, reason: Reason) {
        let Some(Connection { tcb, .. }) = self.flows.get(key) else { return };
        let (seq, ack) = tcb.numbers();
        let (local, remote) = (tcb.local, tcb.remote);
        if tcb.state != State::SynSent {
            let flags = Flags { rst: true, ..Flags::default() };
            let ports = (local.port(), remote.port());
            let options = OptionBytes::default();
            self.reply(
                (*remote.ip(), None),
                Header { ports, seq, ack: Some(ack), flags, window: 0, options },
            );
        }
        self.close(key, reason);
    }

    pub(super) fn remove(&mut self, key: Key) {
        let Some(Connection { mut tcb, scheduled, .. }) = self.flows.remove(key) else { return };
        if let Some(at) = scheduled {
            self.timers.remove(&(at, key));
        }
        self.tuples.remove(&(tcb.local.port(), tcb.remote));
        if tcb.passive && !tcb.is_open() {
            self.no_longer_half_open(tcb.local.port(), key);
        }
        if tcb.is_open() {
            self.shared.statistics.closed += 1;
        }
        if tcb.is_orphan() {
            self.orphans.retain(|orphan| *orphan != key);
        }
        tcb.clear(&mut self.shared);
    }

    /// Returns true if there is room for a connection. An orphan is reset to make room.
    pub(super) fn has_room(&mut self) -> bool {
        let full = |stack: &Stack| stack.flows.len() >= stack.shared.config.limits.flows;
        if full(self) {
            self.reset_orphan();
        }
        !full(self)
    }

    /// Resets the connection that was released first.
    pub(super) fn reset_orphan(&mut self) {
        if let Some(oldest) = self.orphans.front().copied() {
            self.reset(oldest, Reason::TimedOut);
        }
    }

    pub(super) fn no_longer_half_open(&mut self, port: u16, key: Key) {
        if let Some(listener) = self.listeners.get_mut(&port) {
            listener.half_open.retain(|half_open| *half_open != key);
        }
    }

    /// Handles a SYN for a port that listens.
    pub(super) fn accept(&mut self, syn: &Segment, now: Nanos) {
        let limits = &self.shared.config.limits;
        let Some(listener) = self.listeners.get_mut(&syn.to.port()) else { return };
        let oldest =
            (listener.half_open.len() >= limits.backlog).then(|| listener.half_open.pop_front()).flatten();
        if let Some(oldest) = oldest {
            self.shared.statistics.backlog_dropped += 1;
            self.remove(oldest);
        }
        if self.shared.config.next_hop(*syn.from.ip()).is_none() || !self.has_room() {
            self.shared.statistics.backlog_dropped += 1;
            return;
        }
        let secrets = self.secrets(syn.to, syn.from, now);
        let flow = crate::message::Flow(self.flows.next_key());
        let tcb = Tcb::accept(flow, syn, secrets, now, &self.shared.config);
        let key = self.insert(tcb);
        if let Some(listener) = self.listeners.get_mut(&syn.to.port()) {
            listener.half_open.push_back(key);
        }
    }

    /// Queues a segment without a connection.
    pub(super) fn reply(&mut self, (to, mac): (Ipv4Addr, Option<[u8; 6]>), header: Header) {
        if self.packets.len() >= self.shared.config.limits.pending {
            self.shared.statistics.pending_dropped += 1;
            return;
        }
        if header.flags.rst {
            self.shared.statistics.resets_out += 1;
        }
        self.packets.push_back(Packet::Tcp(to, mac, header));
    }

    /// Handles a neighbour that has not answered ARP.
    pub(super) fn unreachable(&mut self, waiting: Waiting<Turn, Packet>, now: Nanos) {
        waiting.packets.into_iter().for_each(|packet| self.drop_packet(packet));
        for turn in waiting.turns {
            let key = match turn {
                Turn::Flow(key) => key,
                Turn::Sender(ends) => {
                    self.drop_unroutable(ends);
                    continue;
                }
            };
            match self.flows.get(key) {
                Some(connection) if !connection.tcb.is_open() => {
                    self.settle(key, Fate::Closed(Reason::Unreachable), now);
                }
                // It was known once: it is requested again, until the connection gives up.
                _ => self.touch(key),
            }
        }
    }

    pub(super) fn drop_packet(&mut self, packet: Packet) {
        self.shared.statistics.pending_dropped += 1;
        match packet {
            Packet::Tcp(..) => {}
            Packet::Echo { buffer, .. } => {
                self.echoes -= 1;
                self.shared.event(Event::Release { buffer });
            }
        }
    }
}
