//! A NIC with TCP and UDP on top: moves frames between the two, and serves connections and datagrams as endpoints of transfers. A card has
//! one, and so does an engine that drives one of this machine's NICs over VFIO.
//!
//! Payload never passes through here. The NIC fetches what it sends out of the blocks and puts what it receives into its buffers; this
//! module passes places on, and copies received payload into the blocks of reads (packet gathering). Sent bytes stay in their block until
//! the peer has acknowledged them: what is lost on the way is sent again from there. Hardware may do that in the place of the NIC's driver,
//! over a ring of its own (`hardware`).

mod connections;
mod datagrams;
mod flow;
mod hardware;
mod paced;
mod udp;

pub use datagrams::Read;
pub use hardware::{HardwareCounts, MakeSender, Request, Sender, SenderEvent, Sizes, Template, Write};
pub use paced::Sending;
pub use udp::Ends;

use crate::bus::{Bus, ReadDone, Region, Window};
use crate::nic::{self, Checksum, Nic, Offload, Received, Segmentation, Transport};
use connections::Listener;
use core::net::Ipv4Addr;
use dcs_abi::status::Status;
use dcs_engine::{BlockId, DeviceEvent, Failure, Nanos, OperationId, Outcome};
use dcs_net::{self as net, Chunk, Event, FrameId, Owner, Piece, Reason, Stack, Verdict, checksum};
use flow::Flow;
use hardware::{Given, Hardware};
use paced::Streams;
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
/// Offset of the checksum in a TCP header.
const TCP_CHECKSUM: u16 = 16;
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
    /// What sends frames with data, if that is not the NIC's driver.
    hardware: Option<Hardware>,
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
            "Network {{ {:?}, {:?}, {:?}, {usage:?}, {:?} }}",
            self.registers,
            self.nic.state(),
            self.nic.counters(),
            self.hardware,
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
            hardware: None,
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
        self.hardware.iter_mut().for_each(|hardware| hardware.relocate(model));
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
        self.hardware.iter_mut().for_each(|hardware| hardware.end_all(bus, now));
        self.flows.values_mut().for_each(|flow| flow.released = true);
        self.flows.retain(|_, flow| !flow.is_over());
    }

    /// Ends everything, when the owner of the bus knows that the NIC can do nothing any more.
    pub fn on_reset(&mut self, bus: &mut dyn Bus) {
        self.nic.on_reset();
        self.drop_all(bus);
        self.poll_hardware(bus);
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
        self.nic.read_done(bus, now, done);
    }

    /// Does everything that is due.
    pub fn poll(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.now = self.now.max(now);
        self.nic.poll(bus, now);
        self.poll_hardware(bus);
        self.take_sent();
        match self.nic.state() {
            // The old stack's last frame must be returned first.
            nic::State::Ready if !self.fresh && self.has_no_frames() => {
                if let Some(mac) = self.nic.address() {
                    self.take_events(bus);
                    self.paced.renew();
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
        self.poll_hardware(bus);
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
            // Hardware has no options in its headers.
            tcp: net::TcpConfig {
                keep_alive: Some(KEEP_ALIVE),
                timestamps: self.hardware.is_none(),
                ..net::TcpConfig::default()
            },
            ..net::Config::new(mac, ip, prefix, self.key)
        }
    }

    fn take_sent(&mut self) {
        while let Some(sent) = self.nic.sent() {
            let place = self.frames.get(&sent.id).and_then(|(_, _, place)| *place);
            if let (Err(_), Some(place)) = (sent.result, place) {
                self.paced.reset_at(place);
            }
            if sent.memory == nic::Memory::Quiet {
                self.frame_is_over(sent.id);
            }
        }
        while let Some(id) = self.nic.freed() {
            self.frame_is_over(id);
        }
    }

    fn frame_is_over(&mut self, id: u64) {
        let Some((frame, slot, _)) = self.frames.remove(&id) else { return };
        self.free_headers.push(slot);
        self.frame_is_done(frame);
    }

    /// Notes that the NIC's driver is done with a frame.
    fn frame_is_done(&mut self, frame: FrameId) {
        self.hardware.iter_mut().for_each(|hardware| hardware.driver_is_done(frame));
        self.stack.iter_mut().for_each(|stack| stack.frame_sent(frame));
    }

    fn take_received(&mut self, bus: &mut dyn Bus, now: Nanos) {
        while let Some(frame) = self.nic.received() {
            let buffer = self.next_buffer;
            self.next_buffer += 1;
            let pieces = frame.pieces();
            let (Some(stack), Some(first)) = (&mut self.stack, pieces.first().copied()) else {
                self.nic.give_back(frame);
                continue;
            };
            let split = match (frame.split, pieces.len()) {
                (_, 1) => None,
                (true, 2) => Some((first.length, pieces[1].offset)),
                // Longer than a buffer: not a frame that this network's MTU allows.
                _ => {
                    self.nic.give_back(frame);
                    continue;
                }
            };
            let mut head = [0; net::HEAD];
            let head = &mut head[..net::HEAD.min(first.length as usize)];
            bus.load(first.offset, head);
            let mut arrived = net::ReceivedFrame {
                buffer,
                head,
                length: frame.length(),
                offset: first.offset,
                split,
                checksum: Verdict::Good,
            };
            arrived.checksum = match frame.transport {
                Checksum::Good => Verdict::Good,
                Checksum::Bad => Verdict::Bad,
                Checksum::Unknown => checksum::verify(&arrived, |piece, sum| {
                    let mut bytes = vec![0; piece.length as usize];
                    bus.load(piece.offset, &mut bytes);
                    sum.add(&bytes);
                }),
            };
            stack.receive(&arrived, now);
            self.received.insert(buffer, frame);
            self.take_events(bus);
        }
    }

    fn take_events(&mut self, bus: &mut dyn Bus) {
        while let Some(event) = self.stack.as_mut().and_then(Stack::next_event) {
            match event {
                Event::Connected { flow } => self.connected(flow),
                Event::Accepted { flow, port, .. } => self.accepted(flow, port),
                Event::Deliver { flow, offset, piece } => {
                    self.with(flow, |flow, _| flow.deliver(bus, offset, piece))
                }
                Event::Received { flow, offset } => self.with(flow, |flow, _| flow.received(offset)),
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
                    if let Some(frame) = self.received.remove(&buffer) {
                        self.nic.give_back(frame);
                    }
                }
                Event::Closed { flow, reason } => {
                    let now = self.now;
                    self.hardware.iter_mut().for_each(|hardware| hardware.closed(bus, now, flow));
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
        self.hardware.iter_mut().for_each(|hardware| hardware.acknowledged(bus, now, flow, offset));
        self.with(flow, |flow, _| flow.acknowledged(offset));
    }

    /// Gives the hardware and the NIC the stack's frames, as far as there is room.
    fn transmit(&mut self, bus: &mut dyn Bus, now: Nanos) {
        while self.fresh && self.nic.state() == nic::State::Ready && self.nic.link() {
            let Some((frame, slot)) = self.back.take().or_else(|| self.next_frame(now)) else { return };
            match self.give_hardware(bus, &frame) {
                Given::Driver => {}
                Given::Later => {
                    self.back = Some((frame, slot));
                    return;
                }
                Given::Hardware | Given::Over => {
                    self.free_headers.push(slot);
                    continue;
                }
            }
            let base = bus.window().address;
            let (header, offload) = prepare(&frame);
            let place = self.headers[slot].offset();
            bus.store(place, &header);
            let mut data = vec![Window { address: base + place, length: header.len() as u64 }];
            data.extend(
                frame
                    .payload
                    .iter()
                    .map(|piece| Window { address: base + piece.offset, length: piece.length.into() }),
            );
            self.frames_given += 1;
            let id = self.frames_given;
            self.frames.insert(id, (frame.id, slot, frame.payload.first().map(|piece| piece.offset)));
            match self.nic.transmit(bus, now, id, &nic::Frame { data: &data, offload }) {
                Ok(()) => {}
                Err(nic::TransmitError::Full) => {
                    self.frames.remove(&id);
                    self.back = Some((frame, slot));
                    return;
                }
                // The NIC cannot send such a frame: it counts as lost on the wire.
                Err(_) => return self.frame_is_over(id),
            }
        }
    }

    /// Returns the stack's next frame, and a place for its headers.
    fn next_frame(&mut self, now: Nanos) -> Option<(net::Frame, usize)> {
        let slot = *self.free_headers.last()?;
        let frame = self.stack.as_mut()?.next_frame(now)?;
        self.free_headers.pop();
        Some((frame, slot))
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

/// Returns a frame's headers as the NIC wants them, and the work that is left to it.
fn prepare(frame: &net::Frame) -> (Vec<u8>, Option<Offload>) {
    let mut header = frame.header.to_vec();
    let Some(checksum) = frame.checksum else { return (header, None) };
    let tcp = checksum.offset == TCP_CHECKSUM;
    let segment = frame.segment.filter(|_| tcp).map(|size| {
        // The NIC fills in lengths and checksums of each segment.
        header[16..18].fill(0);
        header[24..26].fill(0);
        Segmentation { header: (header.len() - usize::from(checksum.start)) as u8, size }
    });
    let offload = Offload {
        link: 14,
        network: checksum.start - 14,
        ipv4: true,
        ip_checksum: segment.is_some(),
        transport: Some(if tcp { Transport::Tcp } else { Transport::Udp }),
        segment,
    };
    (header, Some(offload))
}
