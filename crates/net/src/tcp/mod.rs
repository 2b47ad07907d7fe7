//! One TCP connection (RFC 9293): incoming segments in `input`, outgoing ones in `output`, the passing of time in `timers`.
//!
//! | module | contents |
//! |---|---|
//! | `congestion` | slow start, congestion avoidance, the window after a loss |
//! | `queue` | the send queue |
//! | `receiver` | the receiving side: packet gathering |
//! | `rtt` | the retransmission timeout (RFC 6298) |
//! | `scoreboard` | the bytes that were sent and are not acknowledged |
//!
//! Internally both sequence spaces are counted in 64 bits, so that nothing wraps: position 0 is the SYN, position 1 the stream's first
//! byte. Only [`segment`] has the 32 bits of the wire.

mod congestion;
mod input;
mod output;
mod queue;
pub(crate) mod receiver;
mod rtt;
mod scoreboard;
pub(crate) mod segment;
mod timers;

pub(crate) use output::Outgoing;

use crate::config::Config;
use crate::message::{Chunk, Event, Flow, FrameId, Nanos, Owner, Reason, SendError};
use crate::shared::Shared;
use congestion::Congestion;
use core::net::SocketAddrV4;
use queue::Queue;
use receiver::Receiver;
use rtt::Rtt;
use scoreboard::Scoreboard;
use segment::Segment;
use std::collections::VecDeque;
use timers::Timer;

/// States of RFC 9293, 3.3.2. LISTEN and TIME-WAIT belong to the stack; CLOSED does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    /// Both sides are done, but received bytes wait to be granted.
    Over,
}

/// The fate of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Fate {
    Keep,
    /// The connection continues as a TIME-WAIT.
    TimeWait,
    /// The connection is gone.
    Closed(Reason),
    /// The connection is gone, and the peer must be told.
    Reset(Reason),
}

/// The peer's timestamps, if both sides use them.
#[derive(Clone, Copy, Debug)]
struct Stamps {
    /// Offset added to our clock of milliseconds.
    offset: u32,
    /// TS.Recent.
    recent: u32,
    /// Time at which TS.Recent was recorded.
    recent_at: Nanos,
}

#[derive(Debug)]
pub(crate) struct Tcb {
    pub(crate) flow: Flow,
    pub(crate) local: SocketAddrV4,
    pub(crate) remote: SocketAddrV4,
    /// Set if the peer opened it.
    pub(crate) passive: bool,
    pub(crate) state: State,

    iss: u32,
    irs: u32,
    una: u64,
    nxt: u64,
    wnd: u64,
    most_wnd: u64,
    /// Sequence position and acknowledgement of the last window update.
    updated: (i64, u64),
    send_scale: u8,
    receive_scale: u8,
    /// Payload of a full segment, in bytes.
    mss: u32,
    /// Set if the owner has ended its stream.
    fin: bool,
    /// Set if this side must enter TIME-WAIT.
    time_waits: bool,
    sack: bool,
    stamp_offset: u32,
    stamps: Option<Stamps>,
    acknowledged: u64,

    queue: Queue,
    scoreboard: Scoreboard,
    congestion: Congestion,
    rtt: Rtt,
    receiver: Receiver,
    duplicates: u32,

    syn_due: bool,
    ack_due: bool,
    probe_due: bool,
    reset_due: Option<u32>,
    /// Set to send one segment regardless of the congestion window.
    force: bool,
    /// Set to send the pending bytes, however few.
    push: bool,

    timer: Timer,
    ack_at: Option<Nanos>,
    reorder_at: Option<Nanos>,
    unacknowledged: u32,
    heard_at: Nanos,
    silent_since: Option<Nanos>,
    /// Time of the last acknowledgement of something new.
    advanced_at: Nanos,
    /// Time at which the owner released it.
    orphan: Option<Nanos>,
    sent_at: Nanos,
    /// Position up to which the tail was probed, and the time of the probe.
    tail: Option<(u64, Nanos)>,
    challenges: (Nanos, u32),
    /// Our timestamp of the first retransmission of this recovery.
    again: Option<u32>,
    /// Time to wait for segments that may have been overtaken, in quarters of the shortest round trip; and recoveries since that was found
    /// too short.
    patience: (u32, u32),

    /// Frames with new bytes that the NIC has: name, end position, and whether the NIC has sent it.
    taken: VecDeque<(FrameId, u64, bool)>,
}

/// Unpredictable numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secrets {
    pub(crate) iss: u32,
    pub(crate) stamp_offset: u32,
}

impl Tcb {
    fn new(
        flow: Flow,
        local: SocketAddrV4,
        remote: SocketAddrV4,
        secrets: Secrets,
        now: Nanos,
        config: &Config,
    ) -> Tcb {
        let mss = u32::from(config.mtu) - 40;
        let scale = (0..14).find(|scale| config.limits.window >> scale <= 0xffff).unwrap_or(14);
        Tcb {
            flow,
            local,
            remote,
            passive: false,
            state: State::SynSent,
            iss: secrets.iss,
            irs: 0,
            una: 0,
            nxt: 0,
            wnd: 0,
            most_wnd: 0,
            updated: (0, 0),
            send_scale: 0,
            receive_scale: scale,
            mss,
            fin: false,
            time_waits: false,
            sack: config.tcp.sack,
            stamp_offset: secrets.stamp_offset,
            stamps: None,
            acknowledged: 0,
            queue: Queue::new(),
            scoreboard: Scoreboard::default(),
            congestion: Congestion::new(mss),
            rtt: Rtt::new(&config.tcp),
            receiver: Receiver::new(flow, &config.limits),
            duplicates: 0,
            syn_due: true,
            ack_due: false,
            probe_due: false,
            reset_due: None,
            force: false,
            push: false,
            timer: Timer::Off,
            ack_at: None,
            reorder_at: None,
            unacknowledged: 0,
            heard_at: now,
            silent_since: None,
            advanced_at: now,
            orphan: None,
            sent_at: now,
            tail: None,
            challenges: (now, 0),
            again: None,
            patience: (1, 0),
            taken: VecDeque::new(),
        }
    }

    /// Opens a connection actively.
    pub(crate) fn connect(
        flow: Flow,
        local: SocketAddrV4,
        remote: SocketAddrV4,
        secrets: Secrets,
        now: Nanos,
        config: &Config,
    ) -> Tcb {
        Tcb::new(flow, local, remote, secrets, now, config)
    }

    /// Opens a connection passively, for a SYN to a port that listens.
    pub(crate) fn accept(flow: Flow, syn: &Segment, secrets: Secrets, now: Nanos, config: &Config) -> Tcb {
        let mut tcb = Tcb::new(flow, syn.to, syn.from, secrets, now, config);
        tcb.passive = true;
        tcb.state = State::SynReceived;
        tcb.negotiate(syn, now, config);
        tcb
    }

    /// Negotiates options from the peer's SYN.
    fn negotiate(&mut self, syn: &Segment, now: Nanos, config: &Config) {
        self.irs = syn.seq;
        self.acknowledged = 1;
        let stamp = syn.options.timestamp.filter(|_| config.tcp.timestamps);
        self.stamps =
            stamp.map(|stamp| Stamps { offset: self.stamp_offset, recent: stamp.value, recent_at: now });
        self.sack &= syn.options.sack_permitted;
        match syn.options.scale {
            Some(scale) => self.send_scale = scale,
            None => (self.send_scale, self.receive_scale) = (0, 0),
        }
        self.receiver.scale(self.receive_scale);
        let peers = u32::from(syn.options.mss.unwrap_or(536)).clamp(88, u32::from(config.mtu) - 40);
        self.mss = peers - if self.stamps.is_some() { 12 } else { 0 };
        self.congestion = Congestion::new(self.mss);
        self.wnd = syn.window.into();
        self.most_wnd = self.wnd;
        self.updated = (0, 0);
    }

    /// Returns true if both sides have sent and received a SYN.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.state, State::SynSent | State::SynReceived)
    }

    fn seq(&self, position: u64) -> u32 {
        self.iss.wrapping_add(position as u32)
    }

    /// Converts to a position in our sequence space.
    fn ours(&self, number: u32) -> i64 {
        self.una as i64 + i64::from(number.wrapping_sub(self.seq(self.una)) as i32)
    }

    /// Converts to a position in the peer's sequence space.
    fn theirs(&self, number: u32) -> i64 {
        let nxt = self.receiver.nxt();
        nxt as i64 + i64::from(number.wrapping_sub(self.irs.wrapping_add(nxt as u32)) as i32)
    }

    /// Returns SND.NXT and RCV.NXT, for a reset or a TIME-WAIT.
    pub(crate) fn numbers(&self) -> (u32, u32) {
        (self.seq(self.nxt), self.irs.wrapping_add(self.receiver.nxt() as u32))
    }

    /// Returns RCV.NXT, if the connection is open, nothing has come from behind that, and something may come.
    pub(crate) fn expects(&self) -> Option<u32> {
        let goes_on = self.is_open() && !self.receiver.has_gaps() && !self.receiver.ended();
        goes_on.then(|| self.irs.wrapping_add(self.receiver.nxt() as u32))
    }

    /// Returns TS.Recent and our own offset, for a TIME-WAIT.
    pub(crate) fn stamps(&self) -> Option<(u32, u32)> {
        self.stamps.map(|stamps| (stamps.recent, stamps.offset))
    }

    /// Appends a chunk to the stream.
    pub(crate) fn send(&mut self, chunk: &Chunk, shared: &mut Shared) -> Result<u64, SendError> {
        if self.fin {
            return Err(SendError::Ended);
        }
        let length = chunk.piece.length;
        if length == 0 || chunk.piece.offset.checked_add(length.into()).is_none() {
            return Err(SendError::Length);
        }
        if self.queue.len() >= shared.config.limits.chunks {
            return Err(SendError::Full);
        }
        let block = shared.block(Owner::Flow(self.flow), chunk.block);
        Ok(self.queue.push(chunk, block) - 1)
    }

    /// Ends the owner's stream.
    pub(crate) fn shutdown(&mut self) {
        if std::mem::replace(&mut self.fin, true) {
            return;
        }
        self.queue.flush();
        match self.state {
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            _ => {}
        }
    }

    /// Releases the connection: the owner wants only to hear of its end.
    pub(crate) fn release(&mut self, now: Nanos) {
        self.orphan.get_or_insert(now);
    }

    /// Returns true if the owner has ended its stream.
    pub(crate) fn is_ended(&self) -> bool {
        self.fin
    }

    pub(crate) fn is_orphan(&self) -> bool {
        self.orphan.is_some()
    }

    /// Returns the number of segments recorded as sent.
    pub(crate) fn segments(&self) -> usize {
        self.scoreboard.len()
    }

    /// Grants this many more bytes, for which the owner has place.
    pub(crate) fn grant(&mut self, bytes: u64, shared: &mut Shared) -> Fate {
        self.receiver.grant(bytes, shared);
        if self.is_open() && self.receiver.is_wider(self.mss, shared) && !self.receiver.ended() {
            self.ack_due = true;
        }
        if self.state == State::Over { self.over() } else { Fate::Keep }
    }

    /// Notes that the NIC has sent a frame with new bytes.
    pub(crate) fn frame_sent(&mut self, frame: FrameId, shared: &mut Shared) {
        if let Some(taken) = self.taken.iter_mut().find(|taken| taken.0 == frame) {
            taken.2 = true;
        }
        let mut sent = None;
        while let Some((_, end, true)) = self.taken.front() {
            sent = Some(*end);
            self.taken.pop_front();
        }
        if let Some(end) = sent {
            shared.event(Event::Sent { flow: self.flow, offset: end - 1 });
        }
    }

    pub(crate) fn frame_taken(&mut self, frame: FrameId, end: u64) {
        self.taken.push_back((frame, end, false));
    }

    /// Returns all blocks and buffers.
    pub(crate) fn clear(&mut self, shared: &mut Shared) {
        self.queue.clear(shared);
        self.receiver.clear(shared);
    }

    /// Ends the connection once both sides are done: it stays only for bytes that wait to be granted.
    fn over(&mut self) -> Fate {
        self.state = State::Over;
        self.timer = Timer::Off;
        if self.receiver.holds() {
            return Fate::Keep;
        }
        if self.time_waits { Fate::TimeWait } else { Fate::Closed(Reason::Finished) }
    }
}
