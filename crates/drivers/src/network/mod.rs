//! A NIC with TCP and UDP on top: moves frames between the two, and serves connections and datagrams as endpoints of transfers. A card has
//! one, and so does an engine that drives one of this machine's NICs over VFIO.
//!
//! Payload never passes through here. The NIC fetches what it sends out of the blocks and puts what it receives into its buffers; this
//! module passes places on, and copies received payload into the blocks of reads (packet gathering). Sent bytes stay in their block until
//! the peer has acknowledged them: what is lost on the way is sent again from there. Hardware may do both in the place of the NIC's driver,
//! over rings that it is lent (`sender`, `receiver`).

mod connections;
mod datagrams;
mod flow;
mod frames;
mod paced;
mod receiver;
mod sender;
mod udp;

pub use datagrams::Read;
pub use paced::Sending;
pub use receiver::{BUFFER, Kept, Peer, Receiver, ReceiverCounts, ReceiverEvent};
pub use sender::{MakeSender, Makers, Request, Sender, SenderCounts, SenderEvent, Sizes, Template, Write};
pub use udp::Ends;

use crate::bus::{Bus, ReadDone, Region, Window};
use crate::nic::{self, Nic, Received};
use connections::Listener;
use core::net::Ipv4Addr;
use dcs_abi::status::Status;
use dcs_engine::{BlockId, DeviceEvent, Failure, Nanos, OperationId, Outcome};
use dcs_net::{self as net, Chunk, Event, FrameId, Owner, Piece, Reason, Stack};
use flow::Flow;
use paced::Streams;
use receiver::Reception;
use sender::Transmission;
use std::collections::{HashMap, VecDeque};
use udp::Udp;

/// Most frames at the NIC at once, each with a buffer for its headers.
const FRAMES: usize = 64;
/// Size of such a buffer, in bytes.
const HEADER: u64 = 128;
/// Largest payload of a frame that the NIC segments.
const SEGMENTED: u32 = 60_000;
/// Time for which a connection may keep blocks without returning any while others wait for one.
const HOLD_LIMIT: Nanos = 5_000_000_000;
/// Connections to one port that may wait to be accepted; more are reset.
const UNACCEPTED: usize = 128;
/// Silence after which a connection is probed: one whose peer has gone ends.
const KEEP_ALIVE: Nanos = 2 * 3600 * 1_000_000_000;
/// Size below which a block may wait briefly for the next one of its stream, to share a segment with it (MSG_MORE). The end of a larger
/// block does not wait: the next block may be waiting for just this one to be acknowledged.
const WORTH_WAITING: u32 = 4096;

/// The network address that the NIC uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// IPv4 address.
    pub ip: Ipv4Addr,
    /// Prefix length of the network.
    pub prefix: u8,
    /// The gateway, if there is one.
    pub gateway: Option<Ipv4Addr>,
    /// Largest packet, in bytes.
    pub mtu: u16,
}

/// The state of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The NIC is being brought up.
    Starting,
    /// Connections can be made.
    Ready,
    /// The NIC is gone, or given up, or was never started.
    Failed,
}

/// An action that a network requests of its owner.
#[derive(Debug)]
pub enum NetworkAction {
    /// Hand this event to the engine.
    Device(DeviceEvent),
    /// Answer the admin command that requested a connection: the connection and its peer, or why there is none.
    Connection(u16, Result<(net::Flow, Ipv4Addr), Status>),
}

/// A NIC with TCP on top.
pub struct Network {
    nic: Nic,
    /// Hardware that sends frames with data in the place of the NIC's driver.
    transmission: Option<Transmission>,
    /// Hardware that receives frames in the place of the NIC's driver.
    reception: Option<Reception>,
    stack: Option<Stack>,
    /// Set if the stack was made after the NIC was started.
    fresh: bool,
    registers: Window,
    address: Address,
    key: [u8; 16],
    /// `PATH_*` of the command set, reported for the network's bytes.
    path: u32,
    headers: Vec<Region>,
    free_headers: Vec<usize>,
    /// Frames at the NIC: the stack's name for each, its header buffer, and the place of its payload, if it has one.
    frames: HashMap<u64, (FrameId, usize, Option<u64>)>,
    frames_given: u64,
    /// Frame for which the NIC's ring has no room yet.
    back: Option<(net::Frame, usize)>,
    received: HashMap<u64, Received>,
    next_buffer: u64,
    flows: HashMap<net::Flow, Flow>,
    /// Connections whose blocks the stack has.
    tokens: HashMap<u64, net::Flow>,
    next_token: u64,
    listeners: HashMap<u16, Listener>,
    connecting: HashMap<net::Flow, u16>,
    udp: Udp,
    paced: Streams,
    events: VecDeque<DeviceEvent>,
    actions: VecDeque<NetworkAction>,
    model: nic::Model,
    now: Nanos,
    /// Set while a command waits for a block.
    short: bool,
    detached: bool,
    /// Set if it is detached and the NIC was told to stop.
    stopping: bool,
}

impl core::fmt::Debug for Network {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let usage = self.stack.as_ref().map(Stack::usage);
        write!(
            f,
            "Network {{ {:?}, {:?}, {:?}, {usage:?}, {:?}, {:?} }}",
            self.registers,
            self.nic.state(),
            self.nic.counters(),
            self.transmission,
            self.reception,
        )
    }
}

impl Network {
    /// Returns how many bytes [`Network::new`] takes of its memory, if that begins at a page.
    pub fn memory(config: &nic::Config) -> u64 {
        let headers = (FRAMES as u64 * HEADER).next_multiple_of(4096);
        config.memory().next_multiple_of(4096) + headers + paced::MEMORY
    }

    /// Makes the driver of a NIC, with rings and buffers in `memory`; returns `None` if that is too small. `key`: the secret of TCP's
    /// sequence numbers. `path` (`PATH_*` of the command set) is reported for its bytes.
    pub fn new(
        config: nic::Config,
        address: Address,
        (key, path): ([u8; 16], u32),
        memory: &mut Region,
    ) -> Option<Network> {
        let region = memory.take(config.memory(), 4096)?;
        let headers = (0..FRAMES).map(|_| memory.take(HEADER, 64)).collect::<Option<Vec<_>>>()?;
        let paced = Streams::new(memory)?;
        let (registers, model) = (config.registers, config.model);
        let nic = Nic::new(config, region).ok()?;
        let (frames, received, flows, tokens, listeners, connecting) = Default::default();
        let (events, actions) = Default::default();
        Some(Network {
            nic,
            transmission: None,
            reception: None,
            stack: None,
            fresh: false,
            registers,
            address,
            key,
            path,
            free_headers: (0..headers.len()).collect(),
            headers,
            frames,
            frames_given: 0,
            back: None,
            received,
            next_buffer: 0,
            flows,
            tokens,
            next_token: 0,
            listeners,
            connecting,
            udp: Udp::default(),
            paced,
            events,
            actions,
            model,
            now: 0,
            short: false,
            detached: false,
            stopping: false,
        })
    }

    /// Detaches it from its host, after a reset of the card: connections end, no command is answered, and the NIC is stopped once the peers
    /// were told.
    pub fn detach(&mut self, bus: &mut dyn Bus) {
        self.drop_all(bus);
        self.actions.clear();
        self.detached = true;
    }

    /// Returns true if the NIC may receive something at any time.
    pub fn is_busy(&self) -> bool {
        !self.detached || !matches!(self.nic.state(), nic::State::Off | nic::State::Failed(_))
    }

    /// Returns true if it was detached from its host.
    pub fn is_detached(&self) -> bool {
        self.detached
    }

    /// Returns the model of the NIC.
    pub fn model(&self) -> nic::Model {
        self.model
    }

    /// Drives another NIC instead; returns false unless this one is detached and can do nothing any more.
    pub fn relocate(&mut self, registers: Window, model: nic::Model) -> bool {
        let busy = !self.has_no_frames() || !self.flows.is_empty() || !self.events.is_empty();
        if busy || !self.detached || !self.nic.relocate(registers, model) {
            return false;
        }
        self.stack = None;
        self.transmission.iter_mut().for_each(|transmission| transmission.relocate(model));
        self.received.clear();
        (self.registers, self.model) = (registers, model);
        true
    }

    /// Returns the address of the NIC's registers.
    pub fn registers(&self) -> Window {
        self.registers
    }

    /// Returns its state.
    pub fn state(&self) -> State {
        match self.nic.state() {
            nic::State::Ready if self.fresh => State::Ready,
            nic::State::Ready | nic::State::Starting => State::Starting,
            nic::State::Off | nic::State::Failed(_) => State::Failed,
        }
    }

    /// Starts the NIC, or resets it. Earlier connections are gone.
    pub fn start(&mut self, bus: &mut dyn Bus, now: Nanos, address: Address) {
        self.address = address;
        (self.detached, self.stopping) = (false, false);
        self.drop_all(bus);
        self.fresh = false;
        match self.nic.state() {
            nic::State::Off => self.nic.start(bus, now),
            _ => self.nic.reset(bus, now),
        }
    }

    /// Ends all connections and datagram endpoints. Their blocks are returned as the NIC releases them.
    pub fn drop_all(&mut self, bus: &mut dyn Bus) {
        for port in self.listeners.keys().copied().collect::<Vec<_>>() {
            self.unlisten(port);
        }
        if let Some(stack) = &mut self.stack {
            let connecting = self.connecting.keys();
            self.flows.keys().chain(connecting).for_each(|flow| stack.abort(*flow));
        }
        if let Some((frame, slot)) = self.back.take() {
            self.free_headers.push(slot);
            self.frame_is_done(frame.id);
        }
        self.close_all_datagrams(bus);
        self.drop_all_paced();
        self.take_events(bus);
        let now = self.now;
        self.transmission.iter_mut().for_each(|transmission| transmission.end_all(bus, now));
        self.flows.values_mut().for_each(|flow| flow.released = true);
        self.flows.retain(|_, flow| !flow.is_over());
    }

    /// Ends everything, when the owner of the bus knows that the NIC can do nothing any more.
    pub fn on_reset(&mut self, bus: &mut dyn Bus) {
        self.nic.on_reset();
        self.follow_nic(bus);
        self.drop_all(bus);
        self.poll_sender(bus);
        self.take_sent();
        self.take_events(bus);
    }

    /// Returns the next action for its owner to carry out.
    pub fn next_action(&mut self) -> Option<NetworkAction> {
        self.events.pop_front().map(NetworkAction::Device).or_else(|| self.actions.pop_front())
    }

    /// Returns the NIC's Ethernet address, once it has been read.
    pub fn mac(&self) -> Option<[u8; 6]> {
        self.nic.address()
    }

    /// Returns true if there was a link at the last check.
    pub fn link(&self) -> bool {
        self.nic.link()
    }

    /// Returns the failure for which the NIC was given up, if it was.
    pub fn failure(&self) -> Option<nic::ResetCause> {
        match self.nic.state() {
            nic::State::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// Clears the causes of pending interrupts; see [`Nic::quiet`].
    pub fn quiet(&mut self, bus: &mut dyn Bus) {
        self.nic.quiet(bus);
    }

    /// Returns true if its owner has something to do; see [`Network::next_action`].
    pub fn has_action(&self) -> bool {
        !self.events.is_empty() || !self.actions.is_empty()
    }

    /// Enables the interrupt of the next frame; see [`Nic::arm`].
    pub fn arm(&mut self, bus: &mut dyn Bus) {
        self.nic.arm(bus);
    }

    /// Disables interrupts; see [`Nic::disarm`].
    pub fn disarm(&mut self, bus: &mut dyn Bus) {
        self.nic.disarm(bus);
    }

    /// Resets connections that the host has not ended, and ends media streams. Connections that it has ended send the rest: returns true as
    /// long as some of it, or an end, is not acknowledged.
    pub fn finish(&mut self, bus: &mut dyn Bus) -> bool {
        let open = self.flows.iter().filter(|(_, flow)| !flow.shut).map(|(name, _)| *name);
        let open: Vec<net::Flow> = open.chain(self.connecting.keys().copied()).collect();
        if let Some(stack) = &mut self.stack {
            open.into_iter().for_each(|flow| stack.abort(flow));
        }
        self.flows.values_mut().for_each(|flow| flow.released = true);
        self.take_events(bus);
        self.flows.retain(|_, flow| !flow.is_over());
        let leaving = self.finish_paced(bus);
        let stack = self.stack.as_ref();
        leaving || self.flows.keys().any(|flow| stack.is_some_and(|stack| !stack.has_sent_all(*flow)))
    }

    /// Returns the latest time for the next call of [`Network::poll`].
    pub fn deadline(&self) -> Option<Nanos> {
        let stack = self.stack.as_ref().and_then(Stack::deadline);
        let stuck = self.flows.values().filter(|_| self.short).filter_map(Flow::stuck_since).min();
        let patience = stuck.map(|since| since.saturating_add(HOLD_LIMIT));
        let paced = self.paced.deadline();
        [self.nic.deadline(), stack, patience, paced].into_iter().flatten().min()
    }

    /// Processes the answer to a register read of the NIC's driver.
    pub fn read_done(&mut self, bus: &mut dyn Bus, now: Nanos, done: ReadDone) {
        self.follow_ring();
        self.nic.read_done(bus, now, done);
        self.follow_nic(bus);
    }

    /// Does everything that is due.
    pub fn poll(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.now = self.now.max(now);
        // What was sent long ago is no sign of a NIC that hangs.
        self.poll_sender(bus);
        self.nic.poll(bus, now);
        self.follow_nic(bus);
        self.take_sent();
        match self.nic.state() {
            // The old stack's last frame must be returned first.
            nic::State::Ready if !self.fresh && self.has_no_frames() => {
                if let Some(mac) = self.nic.address() {
                    self.take_events(bus);
                    self.paced.renew();
                    self.reception.iter_mut().for_each(|reception| reception.clear(bus));
                    self.stack = Some(Stack::new(self.stack_config(mac)));
                    self.fresh = true;
                }
            }
            nic::State::Failed(failure) if self.fresh => {
                self.fresh = false;
                self.flows.values_mut().for_each(|flow| flow.nic_given_up = true);
                // A function that was removed writes nowhere; one that the host has switched off belongs to the host.
                match failure {
                    nic::ResetCause::Gone => self.on_reset(bus),
                    _ => self.drop_all(bus),
                }
            }
            _ => {}
        }
        self.take_received(bus, now);
        if let Some(stack) = &mut self.stack {
            stack.poll(now);
        }
        self.take_events(bus);
        self.reset_stuck(bus);
        self.send_paced(bus);
        self.transmit(bus, now);
        self.poll_sender(bus);
        self.take_events(bus);
        if self.detached && !self.stopping && self.has_no_frames() {
            self.nic.stop(bus, now);
            (self.stopping, self.fresh) = (true, false);
        }
        self.nic.ring(bus);
    }

    fn stack_config(&self, mac: [u8; 6]) -> net::Config {
        let Address { ip, prefix, gateway, mtu } = self.address;
        net::Config {
            gateway,
            mtu,
            segmentation: Some(SEGMENTED),
            limits: self.reception.as_ref().map(Reception::limits).unwrap_or_default(),
            // Hardware has no options in its headers.
            tcp: net::TcpConfig {
                keep_alive: Some(KEEP_ALIVE),
                timestamps: self.transmission.is_none(),
                ..net::TcpConfig::default()
            },
            ..net::Config::new(mac, ip, prefix, self.key)
        }
    }

    fn take_events(&mut self, bus: &mut dyn Bus) {
        while let Some(event) = self.stack.as_mut().and_then(Stack::next_event) {
            match event {
                Event::Connected { flow } => {
                    self.note_change(flow);
                    self.connected(flow);
                }
                Event::Accepted { flow, port, .. } => {
                    self.note_change(flow);
                    self.accepted(flow, port);
                }
                Event::Deliver { flow, offset, piece } => self.deliver(bus, flow, offset, piece),
                Event::Received { flow, offset } => {
                    self.note_change(flow);
                    self.with(flow, |flow, _| flow.received(offset));
                }
                Event::Ended { flow, offset } => self.with(flow, |flow, _| flow.ended(offset)),
                Event::Sent { flow, offset } => self.with(flow, |flow, events| flow.sent(offset, events)),
                Event::Acknowledged { flow, offset } => self.acknowledged(bus, flow, offset),
                Event::Free { owner: Owner::Flow(_), block } => self.free(block),
                Event::Free { owner: Owner::Port(_), block } => {
                    if !self.paced_sent(bus, block) {
                        self.datagrams_sent(block);
                    }
                }
                Event::Unsent { block, .. } => {
                    if !self.paced_unsent(block) {
                        self.unsent(block);
                    }
                }
                Event::Datagram { port, from, piece } => self.datagram(bus, (port, from), piece),
                Event::Release { buffer } => {
                    if let Some(reception) = &mut self.reception {
                        reception.release(bus, buffer);
                    } else if let Some(frame) = self.received.remove(&buffer) {
                        self.nic.give_back(frame);
                    }
                }
                Event::Closed { flow, reason } => {
                    let now = self.now;
                    self.transmission.iter_mut().for_each(|transmission| transmission.closed(bus, now, flow));
                    self.reception.iter_mut().for_each(|reception| reception.closed(bus, flow));
                    self.closed(flow, reason);
                }
            }
        }
    }

    /// Sets whether a command waits for a block. If so, connections that keep theirs are reset once they have made no progress for a while:
    /// a peer that acknowledges, takes or sends nothing holds others up no longer than that.
    pub fn short_of_blocks(&mut self, short: bool) {
        self.short = short;
    }

    fn reset_stuck(&mut self, bus: &mut dyn Bus) {
        if !self.short {
            return;
        }
        let latest = self.now.saturating_sub(HOLD_LIMIT);
        for (name, flow) in &mut self.flows {
            if flow.stuck_since().is_some_and(|since| since <= latest) {
                flow.starved = true;
                self.stack.iter_mut().for_each(|stack| stack.abort(*name));
            }
        }
        self.take_events(bus);
    }

    fn with(&mut self, name: net::Flow, act: impl FnOnce(&mut Flow, &mut VecDeque<DeviceEvent>)) {
        if let Some(flow) = self.flows.get_mut(&name) {
            act(flow, &mut self.events);
            flow.settle(&mut self.events);
            flow.count(self.now);
            if flow.is_over() {
                self.flows.remove(&name);
            }
        }
    }

    fn connected(&mut self, flow: net::Flow) {
        self.flows.entry(flow).or_insert_with(|| Flow::new(self.path));
        if let Some(cid) = self.connecting.remove(&flow) {
            self.actions.push_back(NetworkAction::Connection(cid, Ok((flow, self.peer(flow)))));
        }
    }

    fn peer(&self, flow: net::Flow) -> Ipv4Addr {
        let ends = self.stack.as_ref().and_then(|stack| stack.ends(flow));
        ends.map_or(Ipv4Addr::UNSPECIFIED, |(_, peer)| *peer.ip())
    }

    fn accepted(&mut self, flow: net::Flow, port: u16) {
        self.flows.entry(flow).or_insert_with(|| Flow::new(self.path));
        let listener = self.listeners.get_mut(&port).filter(|listener| listener.accepted.len() < UNACCEPTED);
        if let Some(listener) = listener {
            listener.accepted.push_back(flow);
            self.match_accepts(port);
        } else if let Some(stack) = &mut self.stack {
            stack.abort(flow);
        }
    }

    fn match_accepts(&mut self, port: u16) {
        while let Some(listener) = self.listeners.get_mut(&port)
            && !listener.waiting.is_empty()
            && let Some(flow) = listener.accepted.pop_front()
            && let Some(cid) = listener.waiting.pop_front()
        {
            self.actions.push_back(NetworkAction::Connection(cid, Ok((flow, self.peer(flow)))));
        }
    }

    fn closed(&mut self, name: net::Flow, reason: Reason) {
        if let Some(cid) = self.connecting.remove(&name) {
            self.actions.push_back(NetworkAction::Connection(cid, Err(Status::PeerReset)));
        }
        for listener in self.listeners.values_mut() {
            listener.accepted.retain(|flow| *flow != name);
        }
        self.with(name, |flow, _| flow.closed(reason));
    }

    fn free(&mut self, token: u64) {
        if let Some(name) = self.tokens.remove(&token) {
            self.with(name, |flow, events| _ = flow.freed(token, events));
        }
    }

    /// Notes that the peer has all bytes of a stream before this one.
    fn acknowledged(&mut self, bus: &mut dyn Bus, flow: net::Flow, offset: u64) {
        let now = self.now;
        self.transmission
            .iter_mut()
            .for_each(|transmission| transmission.acknowledged(bus, now, flow, offset));
        self.with(flow, |flow, _| flow.acknowledged(offset));
    }

    /// Reads from a connection into own memory.
    pub fn read(&mut self, bus: &mut dyn Bus, now: Nanos, name: net::Flow, place: (OperationId, u64, u32)) {
        let (operation, memory, length) = place;
        let Some(flow) = self.flows.get_mut(&name) else {
            return self.fail(operation, self.gone());
        };
        let more = flow.read(bus, operation, memory, length);
        flow.settle(&mut self.events);
        flow.count(self.now);
        if let Some(stack) = self.stack.as_mut().filter(|_| more > 0) {
            stack.grant(name, more, now);
        }
        self.take_events(bus);
    }

    /// Writes a block's bytes to a connection.
    pub fn write(&mut self, name: net::Flow, write: WriteTo) {
        let WriteTo { operation, block, piece, more } = write;
        let more = more && piece.length < WORTH_WAITING;
        let (Some(stack), Some(flow)) = (self.stack.as_mut(), self.flows.get_mut(&name)) else {
            return self.fail(operation, self.gone());
        };
        self.next_token += 1;
        let token = self.next_token;
        match stack.send(name, Chunk { piece, block: token, more }) {
            Ok(start) => {
                self.tokens.insert(token, name);
                let end = start + u64::from(piece.length);
                flow.wrote(token, operation, block, end, piece.length);
                flow.count(self.now);
            }
            Err(net::SendError::Full) => self.fail(operation, Status::OutOfResources),
            Err(_) => self.fail(operation, self.gone()),
        }
    }

    /// Begins a flush, which is done when the peer has acknowledged everything written to the connection so far.
    pub fn flush(&mut self, name: net::Flow, operation: OperationId) {
        match self.flows.contains_key(&name) {
            true => self.with(name, |flow, _| flow.flush(operation)),
            false => self.fail(operation, self.gone()),
        }
    }

    /// Returns the status of operations on connections that are gone.
    fn gone(&self) -> Status {
        match self.nic.state() {
            nic::State::Failed(_) => Status::DeviceReset,
            _ => Status::PeerReset,
        }
    }

    fn fail(&mut self, operation: OperationId, status: Status) {
        self.events.push_back(DeviceEvent::Done(operation, Outcome::Failed(Failure::new(status))));
    }

    /// Aborts an operation. Bytes that a read already had are kept for the next one. A write cannot be taken out of a stream, so its
    /// connection ends.
    pub fn abort(&mut self, bus: &mut dyn Bus, operation: OperationId) {
        if self.abort_paced(operation) {
            return;
        }
        if self.abort_datagrams(operation) {
            return self.take_events(bus);
        }
        let mut writing = None;
        for (name, flow) in &mut self.flows {
            if flow.abort_read(bus, operation, &mut self.events)
                || flow.abort_flush(operation, &mut self.events)
            {
                return;
            }
            if flow.is_writing(operation) {
                writing = Some(*name);
            }
        }
        if let (Some(name), Some(stack)) = (writing, &mut self.stack) {
            stack.abort(name);
            self.take_events(bus);
        }
    }
}

/// A write to a connection.
#[derive(Debug)]
pub struct WriteTo {
    /// Operation of the engine.
    pub operation: OperationId,
    /// Block that holds the bytes.
    pub block: BlockId,
    /// Place of the bytes.
    pub piece: Piece,
    /// Set if more follow soon.
    pub more: bool,
}
