//! The stack: its owner's interface.
//!
//! | module | contents |
//! |---|---|
//! | `egress` | outgoing frames: ARP, connections and datagrams in turn |
//! | `flows` | connections in the stack's tables |
//! | `ingress` | incoming frames, checked layer by layer |
//! | `time_wait` | remains of connections in TIME-WAIT (RFC 9293, 3.3.2; RFC 6191) |
//! | `udp` | open ports, and the senders that use them |

mod egress;
mod flows;
mod ingress;
mod time_wait;
mod udp;

use crate::arp::Neighbours;
use crate::config::Config;
use crate::message::{
    BufferId, Chunk, ConnectError, Event, Flow, Frame, FrameId, Nanos, OpenError, Piece, Reason,
    ReceivedFrame, SendError,
};
use crate::shared::Shared;
use crate::slab::{Key, Slab};
use crate::statistics::{Statistics, Usage};
use crate::tcp::segment::Header;
use crate::tcp::{Secrets, State, Tcb};
use core::hash::Hasher;
use core::net::{Ipv4Addr, SocketAddrV4};
use siphasher::sip::SipHasher24;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use time_wait::TimeWaits;
use udp::Sender;

/// A connection as its segments name it: the local port and the peer.
type Tuple = (u16, SocketAddrV4);

#[derive(Debug)]
struct Connection {
    tcb: Box<Tcb>,
    /// Set while it is in the queue of those that may have something to send.
    queued: bool,
    scheduled: Option<Nanos>,
}

#[derive(Debug, Default)]
struct Listener {
    /// Connections that are not yet established, oldest first.
    half_open: VecDeque<Key>,
}

/// A sender that may have something to send: one frame, then the next one's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Flow(Key),
    Sender(Tuple),
}

/// A packet without a connection.
#[derive(Debug)]
enum Packet {
    /// A segment to an address; with the Ethernet address, if it answers a frame from there.
    Tcp(Ipv4Addr, Option<[u8; 6]>, Header),
    Echo {
        to: (Ipv4Addr, [u8; 6]),
        icmp: [u8; 8],
        piece: Piece,
        buffer: BufferId,
    },
}

/// A frame that the NIC has.
#[derive(Debug, Default)]
struct Sending {
    /// Connection whose new bytes it contains.
    flow: Option<Flow>,
    blocks: Vec<Key>,
    buffer: Option<BufferId>,
}

/// TCP, UDP, ARP and ICMP of one card on one Ethernet link.
///
/// After each call that passes something in, the owner takes the results out: frames by [`Stack::next_frame`] as far as the NIC has room,
/// events by [`Stack::next_event`]. It also calls [`Stack::poll`] at [`Stack::deadline`].
#[derive(Debug)]
pub struct Stack {
    shared: Shared,
    flows: Slab<Connection>,
    tuples: BTreeMap<Tuple, Key>,
    listeners: BTreeMap<u16, Listener>,
    time_waits: TimeWaits,
    /// Ports that take datagrams.
    ports: BTreeSet<u16>,
    /// Senders of datagrams, each from such a port to a peer.
    senders: BTreeMap<Tuple, Sender>,
    ready: VecDeque<Turn>,
    timers: BTreeSet<(Nanos, Key)>,
    neighbours: Neighbours<Turn, Packet>,
    /// Connections for whose neighbours there was no room.
    stranded: Vec<Key>,
    /// Connections that their owner has released, oldest first.
    orphans: VecDeque<Key>,
    /// Number of echo replies that are not sent yet.
    echoes: usize,
    /// Addresses to send ARP replies to.
    replies: VecDeque<([u8; 6], Ipv4Addr)>,
    packets: VecDeque<Packet>,
    sending: Slab<Sending>,
    identification: u16,
    ports_given: u16,
}

impl Stack {
    /// Makes a stack without connections.
    pub fn new(mut config: Config) -> Stack {
        config.mtu = config.mtu.clamp(576, 9216);
        config.limits.window = config.limits.window.min(0xffff << 14);
        let neighbours = Neighbours::new(config.limits.neighbours);
        Stack {
            shared: Shared::new(config),
            flows: Slab::new(),
            tuples: BTreeMap::new(),
            listeners: BTreeMap::new(),
            time_waits: TimeWaits::default(),
            ports: BTreeSet::new(),
            senders: BTreeMap::new(),
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
            neighbours,
            stranded: Vec::new(),
            orphans: VecDeque::new(),
            echoes: 0,
            replies: VecDeque::new(),
            packets: VecDeque::new(),
            sending: Slab::new(),
            identification: 0,
            ports_given: 0,
        }
    }

    /// Processes a frame that the NIC has put into a receive buffer.
    pub fn receive(&mut self, frame: &ReceivedFrame<'_>, now: Nanos) {
        self.shared.statistics.frames_in += 1;
        if !self.ingress(frame, now) {
            self.shared.event(Event::Release { buffer: frame.buffer });
        }
    }

    /// Lets time pass. Calling it too often does no harm.
    pub fn poll(&mut self, now: Nanos) {
        while let Some((at, key)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, key));
            let Some(connection) = self.flows.get_mut(key) else { continue };
            connection.scheduled = None;
            let fate = connection.tcb.on_time(now, &mut self.shared);
            if connection.tcb.is_in_doubt()
                && let Some(hop) = self.shared.config.next_hop(*connection.tcb.remote.ip())
            {
                self.neighbours.doubt(hop);
            }
            self.settle(key, fate, now);
        }
        self.time_waits.poll(now);
        for waiting in self.neighbours.poll(now) {
            self.unreachable(waiting, now);
            self.retry_stranded();
        }
    }

    /// Retries connections for whose neighbours there was no room: there may be now.
    fn retry_stranded(&mut self) {
        std::mem::take(&mut self.stranded).into_iter().for_each(|key| self.touch(key));
    }

    /// Returns the time of the next call of [`Stack::poll`], `None` if none is due.
    pub fn deadline(&self) -> Option<Nanos> {
        let timer = self.timers.first().map(|(at, _)| *at);
        [timer, self.time_waits.deadline(), self.neighbours.deadline()].into_iter().flatten().min()
    }

    /// Returns the next frame to send, if there is one. Call it only when the NIC has room, so that the frame has the latest state.
    pub fn next_frame(&mut self, now: Nanos) -> Option<Frame> {
        let frame = self.egress(now)?;
        self.shared.statistics.frames_out += 1;
        Some(frame)
    }

    /// Notes that the NIC has sent a frame, whose bytes may be read again until [`Stack::frame_sent`].
    pub fn frame_left(&mut self, frame: FrameId) {
        let flow = self.sending.get(frame.0).and_then(|sending| sending.flow);
        if let Some(connection) = flow.and_then(|flow| self.flows.get_mut(flow.0)) {
            connection.tcb.frame_sent(frame, &mut self.shared);
        }
    }

    /// Notes that the NIC is done with a frame: it has sent it, or never will. Ignores names that are no longer valid.
    pub fn frame_sent(&mut self, frame: FrameId) {
        let Some(sending) = self.sending.remove(frame.0) else { return };
        if let Some(flow) = sending.flow
            && let Some(connection) = self.flows.get_mut(flow.0)
        {
            connection.tcb.frame_sent(frame, &mut self.shared);
        }
        for block in sending.blocks {
            self.shared.unframed(block);
        }
        if let Some(buffer) = sending.buffer {
            self.echoes -= 1;
            self.shared.event(Event::Release { buffer });
        }
    }

    /// Returns the next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// Starts accepting connections to a port.
    pub fn listen(&mut self, port: u16) -> Result<(), OpenError> {
        if port == 0 || self.listeners.contains_key(&port) {
            return Err(OpenError::Taken(port));
        }
        self.listeners.insert(port, Listener::default());
        Ok(())
    }

    /// Stops accepting connections. Established ones stay.
    pub fn unlisten(&mut self, port: u16) {
        if let Some(listener) = self.listeners.remove(&port) {
            listener.half_open.into_iter().for_each(|key| self.remove(key));
        }
    }

    /// Begins a connection. [`Event::Connected`] or [`Event::Closed`] follows.
    pub fn connect(&mut self, to: SocketAddrV4, now: Nanos) -> Result<Flow, ConnectError> {
        if to.port() == 0 || self.shared.config.next_hop(*to.ip()).is_none() {
            return Err(ConnectError::Unreachable(to));
        }
        if !self.has_room() {
            return Err(ConnectError::Full);
        }
        let port = self.ephemeral(to).ok_or(ConnectError::NoPort)?;
        let local = SocketAddrV4::new(self.shared.config.address, port);
        let secrets = self.secrets(local, to, now);
        let flow = Flow(self.flows.next_key());
        let tcb = Tcb::connect(flow, local, to, secrets, now, &self.shared.config);
        self.insert(tcb);
        Ok(flow)
    }

    /// Appends bytes to a connection's stream, which need not be established; returns the offset of the first one in the stream.
    pub fn send(&mut self, flow: Flow, chunk: Chunk) -> Result<u64, SendError> {
        let connection = self.flows.get_mut(flow.0).ok_or(SendError::Gone)?;
        let offset = connection.tcb.send(&chunk, &mut self.shared)?;
        self.touch(flow.0);
        Ok(offset)
    }

    /// Ends this side's stream, after the bytes appended so far. The other side's continues.
    pub fn shutdown(&mut self, flow: Flow) {
        if let Some(connection) = self.flows.get_mut(flow.0) {
            connection.tcb.shutdown();
            self.touch(flow.0);
        }
    }

    /// Returns true if all of a stream that was ended ([`Stack::shutdown`]), including its end, is acknowledged; or if the connection is
    /// gone.
    pub fn has_sent_all(&self, flow: Flow) -> bool {
        let connection = self.flows.get(flow.0);
        connection.is_none_or(|connection| matches!(connection.tcb.state, State::FinWait2 | State::Over))
    }

    /// Releases a connection that its owner no longer uses. If its stream was ended by [`Stack::shutdown`], the rest is sent and the
    /// connection closed with the peer, within a time limit ([`TcpConfig::linger`](crate::TcpConfig)); otherwise it is reset.
    pub fn release(&mut self, flow: Flow, now: Nanos) {
        let Some(Connection { tcb, .. }) = self.flows.get_mut(flow.0) else { return };
        if !tcb.is_ended() {
            return self.reset(flow.0, Reason::Aborted);
        }
        if !tcb.is_orphan() {
            tcb.release(now);
            self.orphans.push_back(flow.0);
            self.schedule(flow.0);
            if self.orphans.len() > self.shared.config.limits.orphans {
                self.reset_orphan();
            }
        }
    }

    /// Ends a connection at once, with a reset.
    pub fn abort(&mut self, flow: Flow) {
        if self.flows.get(flow.0).is_some() {
            self.reset(flow.0, Reason::Aborted);
        }
    }

    /// Grants the peer this many more bytes of a connection's stream: the owner has place for them.
    pub fn grant(&mut self, flow: Flow, bytes: u64, now: Nanos) {
        if let Some(connection) = self.flows.get_mut(flow.0) {
            let fate = connection.tcb.grant(bytes, &mut self.shared);
            self.settle(flow.0, fate, now);
        }
    }

    /// Returns the two ends of a connection: this one and the peer.
    pub fn ends(&self, flow: Flow) -> Option<(SocketAddrV4, SocketAddrV4)> {
        self.flows.get(flow.0).map(|connection| (connection.tcb.local, connection.tcb.remote))
    }

    /// Returns the sequence number of the next byte of a connection's incoming stream; `None` if something has come from behind it, or
    /// nothing comes any more.
    pub fn expects(&self, flow: Flow) -> Option<u32> {
        self.flows.get(flow.0).and_then(|connection| connection.tcb.expects())
    }

    /// Returns the counters.
    pub fn statistics(&self) -> &Statistics {
        &self.shared.statistics
    }

    /// Returns the resources in use now.
    pub fn usage(&self) -> Usage {
        Usage {
            flows: self.flows.len(),
            time_wait: self.time_waits.len(),
            chunks: self.shared.blocks.len(),
            buffers: self.shared.held,
            frames: self.sending.len(),
            pending: self.packets.len() + self.neighbours.pending() + self.chunks_to_send(),
            orphans: self.orphans.len(),
            echoes: self.echoes,
            asked: self.neighbours.asked(),
            segments: self
                .tuples
                .values()
                .filter_map(|key| self.flows.get(*key))
                .map(|it| it.tcb.segments())
                .max()
                .unwrap_or(0),
        }
    }

    fn hash(&self, what: u8, local: SocketAddrV4, remote: SocketAddrV4) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.shared.config.key);
        hasher.write(&[what]);
        for end in [local, remote] {
            hasher.write(&end.ip().octets());
            hasher.write(&end.port().to_be_bytes());
        }
        hasher.finish()
    }

    /// Makes a connection's secrets. The initial sequence number is a keyed hash of the ends plus a clock of 4 us (RFC 6528).
    fn secrets(&self, local: SocketAddrV4, remote: SocketAddrV4, now: Nanos) -> Secrets {
        let hash = self.hash(0, local, remote);
        let iss = (hash as u32).wrapping_add((now / 4_000) as u32);
        Secrets { iss, stamp_offset: (hash >> 32) as u32 }
    }

    /// Chooses a local port for a connection (RFC 6056, algorithm 3).
    fn ephemeral(&mut self, to: SocketAddrV4) -> Option<u16> {
        const FIRST: u16 = 49152;
        const COUNT: u16 = 16384;
        let address = SocketAddrV4::new(self.shared.config.address, 0);
        let offset = self.hash(1, address, to) as u16;
        (0..COUNT).find_map(|_| {
            let port = FIRST + offset.wrapping_add(self.ports_given) % COUNT;
            self.ports_given = self.ports_given.wrapping_add(1);
            let tuple = (port, to);
            let free = !self.tuples.contains_key(&tuple)
                && !self.time_waits.contains(&tuple)
                && !self.listeners.contains_key(&port);
            free.then_some(port)
        })
    }
}
