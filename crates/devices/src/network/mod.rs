//! A NIC and the TCP and UDP behind it: frames between the two, connections and datagrams as endpoints of transfers. A card has it, and so has an
//! engine that drives a NIC of this machine itself ([`drives`](crate::drives)).
//!
//! Payload never comes here. The NIC fetches what is sent out of the blocks and puts what it receives into its buffers; this
//! moves places about, and copies what was received into the blocks of reads (packet gathering). What was lost on the way
//! and is no longer in a block is read from its SSD again, where its owner said where it is.

mod connections;
mod datagrams;
mod flow;
mod udp;

pub use datagrams::Read;
pub use flow::Origin;
pub use udp::Ends;

use crate::bus::{Bus, ReadDone, Region, Window};
use crate::nic::{self, Checksum, Nic, Offload, Received, Segmentation, Transport};
use crate::ssd::Told;
use connections::Listener;
use dcs_abi::status::Status;
use dcs_engine::{BlockId, Fault, Nanos, OperationId, Outcome};
use dcs_net::{self as net, Chunk, Event, FrameId, Owner, Piece, Policy, Reason, Stack, Verdict, checksum};
use flow::Flow;
use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;
use udp::Udp;

/// Frames that may be at the NIC at once, each with a place for its headers.
const FRAMES: usize = 64;
/// Bytes of such a place.
const HEADER: u64 = 128;
/// Buffers for what is read again, and their size.
const REREADS: usize = 4;
const REREAD: u32 = 64 << 10;
/// Largest payload of a frame that the NIC cuts into segments.
const SEGMENTED: u32 = 60_000;
/// Where a TCP header's checksum is.
const TCP_CHECKSUM: u16 = 16;

/// How whoever drives the NIC is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its IPv4 address.
    pub ip: Ipv4Addr,
    /// Length of the network's prefix.
    pub prefix: u8,
    /// The gateway, if there is one.
    pub gateway: Option<Ipv4Addr>,
    /// Largest packet.
    pub mtu: u16,
}

/// What a network is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The NIC is being brought up.
    Starting,
    /// Connections can be made.
    Ready,
    /// The NIC is gone, or given up, or was never started.
    Failed,
}

/// What a network wants of its owner.
#[derive(Debug)]
pub enum Wish {
    /// To be told to the engine.
    Tell(Told),
    /// A connection is there, for the admin command that asked for one; or why not.
    Connection(u16, Result<(net::Flow, Ipv4Addr), Status>),
    /// Read these bytes again, to that place: for [`Network::reread`] under this number.
    Reread(usize, Origin, u64),
}

/// Whose block it is that the stack has.
#[derive(Clone, Copy, Debug)]
enum Token {
    Write(net::Flow),
    Reread(usize),
}

/// A buffer for what is read again.
#[derive(Debug)]
struct Reread {
    region: Region,
    /// For which bytes of which stream.
    wanted: Option<(net::Flow, u64, u32)>,
}

/// A NIC and the TCP behind it.
pub struct Network {
    nic: Nic,
    stack: Option<Stack>,
    /// The stack is one that was made since the NIC was started.
    fresh: bool,
    registers: Window,
    address: Address,
    key: [u8; 16],
    /// `PATH_*` of the command set: by what its bytes go.
    path: u32,
    headers: Vec<Region>,
    free_headers: Vec<usize>,
    /// Frames at the NIC: the stack's name, and the place of the headers.
    frames: HashMap<u64, (FrameId, usize)>,
    frames_given: u64,
    /// A frame for which the NIC's ring has no room yet.
    back: Option<(net::Frame, usize)>,
    received: HashMap<u64, Received>,
    next_buffer: u64,
    flows: HashMap<net::Flow, Flow>,
    tokens: HashMap<u64, Token>,
    next_token: u64,
    listeners: HashMap<u16, Listener>,
    connecting: HashMap<net::Flow, u16>,
    udp: Udp,
    rereads: Vec<Reread>,
    /// What is to be read again, once there is a buffer.
    lost: VecDeque<(net::Flow, u64, u32)>,
    told: VecDeque<Told>,
    wishes: VecDeque<Wish>,
    model: nic::Model,
    left: bool,
    /// It is left, and the NIC was told to stop.
    stopping: bool,
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let usage = self.stack.as_ref().map(Stack::usage);
        write!(
            f,
            "Network {{ {:?}, {:?}, {:?}, {usage:?} }}",
            self.registers,
            self.nic.state(),
            self.nic.counters()
        )
    }
}

impl Network {
    /// Bytes that [`Network::new`] takes of its memory, where that begins at a page.
    pub fn memory(config: &nic::Config) -> u64 {
        let headers = (FRAMES as u64 * HEADER).next_multiple_of(4096);
        config.memory().next_multiple_of(4096) + headers + REREADS as u64 * u64::from(REREAD)
    }

    /// A NIC that is driven out of `memory`; nothing where there is too little. `key`: the secret of TCP's sequence
    /// numbers. Its bytes go by `path` (`PATH_*` of the command set).
    pub fn new(
        config: nic::Config,
        address: Address,
        (key, path): ([u8; 16], u32),
        memory: &mut Region,
    ) -> Option<Network> {
        let region = memory.take(config.memory(), 4096)?;
        let headers = (0..FRAMES).map(|_| memory.take(HEADER, 64)).collect::<Option<Vec<_>>>()?;
        let reread = |region| Reread { region, wanted: None };
        let rereads =
            (0..REREADS).map(|_| memory.take(REREAD.into(), 4096).map(reread)).collect::<Option<_>>()?;
        let (registers, model) = (config.registers, config.model);
        let nic = Nic::new(config, region).ok()?;
        let (frames, received, flows, tokens, listeners, connecting) = Default::default();
        let (lost, told, wishes) = Default::default();
        Some(Network {
            nic,
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
            rereads,
            lost,
            told,
            wishes,
            model,
            left: false,
            stopping: false,
        })
    }

    /// The host has let go of it, by a reset of the card: connections end, nobody is answered, and the NIC is to stop when the
    /// peers were told.
    pub fn leave(&mut self, bus: &mut dyn Bus) {
        self.drop_all(bus);
        self.wishes.retain(|wish| !matches!(wish, Wish::Connection(..)));
        self.left = true;
    }

    /// Whether something may come by the NIC at any time.
    pub fn is_busy(&self) -> bool {
        !self.left || !matches!(self.nic.state(), nic::State::Off | nic::State::Failed(_))
    }

    /// Whether the host has let go of it.
    pub fn is_left(&self) -> bool {
        self.left
    }

    /// Which NIC it is.
    pub fn model(&self) -> nic::Model {
        self.model
    }

    /// Drives another one in its place, where the host has let go of it and it can do nothing any more.
    pub fn relocate(&mut self, registers: Window, model: nic::Model) -> bool {
        let rereading = self.rereads.iter().any(|reread| reread.wanted.is_some());
        let busy = !self.frames.is_empty() || !self.flows.is_empty() || rereading || !self.told.is_empty();
        if busy || !self.left || !self.nic.relocate(registers, model) {
            return false;
        }
        self.stack = None;
        self.received.clear();
        (self.registers, self.model) = (registers, model);
        true
    }

    /// Where the NIC's registers are.
    pub fn registers(&self) -> Window {
        self.registers
    }

    /// What it is at.
    pub fn state(&self) -> State {
        match self.nic.state() {
            nic::State::Ready if self.fresh => State::Ready,
            nic::State::Ready | nic::State::Starting => State::Starting,
            nic::State::Off | nic::State::Failed(_) => State::Failed,
        }
    }

    /// Brings the NIC up, or resets it. Connections of before are gone.
    pub fn start(&mut self, bus: &mut dyn Bus, now: Nanos, address: Address) {
        self.address = address;
        (self.left, self.stopping) = (false, false);
        self.drop_all(bus);
        self.fresh = false;
        match self.nic.state() {
            nic::State::Off => self.nic.start(bus, now),
            _ => self.nic.reset(bus, now),
        }
    }

    /// All connections and datagrams end. Their blocks come back as the NIC lets go of them.
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
            self.stack.iter_mut().for_each(|stack| stack.frame_sent(frame.id));
        }
        self.lost.clear();
        self.close_all_datagrams(bus);
        self.take_events(bus);
        self.flows.values_mut().for_each(|flow| flow.released = true);
        self.flows.retain(|_, flow| !flow.is_over());
    }

    /// The NIC can do nothing any more, as the owner of the bus knows.
    pub fn silenced(&mut self, bus: &mut dyn Bus) {
        self.nic.silenced();
        self.drop_all(bus);
        self.take_sent();
        self.take_events(bus);
    }

    /// The next thing that it wants.
    pub fn wish(&mut self) -> Option<Wish> {
        self.told.pop_front().map(Wish::Tell).or_else(|| self.wishes.pop_front())
    }

    /// The NIC's Ethernet address, once it has told.
    pub fn mac(&self) -> Option<[u8; 6]> {
        self.nic.address()
    }

    /// Whether there is a link, as far as is known.
    pub fn link(&self) -> bool {
        self.nic.link()
    }

    /// Why the NIC was given up, if it was.
    pub fn failure(&self) -> Option<nic::Failure> {
        match self.nic.state() {
            nic::State::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// Has the NIC forget what came by now: see [`Nic::quiet`].
    pub fn quiet(&mut self, bus: &mut dyn Bus) {
        self.nic.quiet(bus);
    }

    /// There is something that it wants.
    pub fn has_wish(&self) -> bool {
        !self.told.is_empty() || !self.wishes.is_empty()
    }

    /// Has the next frame interrupt: see [`Nic::arm`].
    pub fn arm(&mut self, bus: &mut dyn Bus) {
        self.nic.arm(bus);
    }

    /// Has none interrupt: see [`Nic::disarm`].
    pub fn disarm(&mut self, bus: &mut dyn Bus) {
        self.nic.disarm(bus);
    }

    /// Resets connections that the host has not ended. Of those that it has, the rest is sent: true as long as some of it, or its end, is not
    /// acknowledged.
    pub fn finish(&mut self, bus: &mut dyn Bus) -> bool {
        let open = self.flows.iter().filter(|(_, flow)| !flow.shut).map(|(name, _)| *name);
        let open: Vec<net::Flow> = open.chain(self.connecting.keys().copied()).collect();
        if let Some(stack) = &mut self.stack {
            open.into_iter().for_each(|flow| stack.abort(flow));
        }
        self.flows.values_mut().for_each(|flow| flow.released = true);
        self.take_events(bus);
        self.flows.retain(|_, flow| !flow.is_over());
        let stack = self.stack.as_ref();
        self.flows.keys().any(|flow| stack.is_some_and(|stack| !stack.has_sent_all(*flow)))
    }

    /// When [`Network::poll`] is to be called at the latest.
    pub fn deadline(&self) -> Option<Nanos> {
        let stack = self.stack.as_ref().and_then(Stack::deadline);
        [self.nic.deadline(), stack].into_iter().flatten().min()
    }

    /// The answer to a register read of the NIC's driver.
    pub fn read_done(&mut self, bus: &mut dyn Bus, now: Nanos, done: ReadDone) {
        self.nic.read_done(bus, now, done);
    }

    /// Looks after everything.
    pub fn poll(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.nic.poll(bus, now);
        self.take_sent();
        match self.nic.state() {
            // The old one had to see its last frame come back.
            nic::State::Ready if !self.fresh && self.frames.is_empty() => {
                if let Some(mac) = self.nic.address() {
                    self.take_events(bus);
                    self.stack = Some(Stack::new(self.stack_config(mac)));
                    self.fresh = true;
                }
            }
            nic::State::Failed(failure) if self.fresh => {
                self.fresh = false;
                self.flows.values_mut().for_each(|flow| flow.forsaken = true);
                // What was pulled out writes nowhere; what the host has switched off is the host's.
                match failure {
                    nic::Failure::Gone => self.silenced(bus),
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
        self.read_again();
        self.transmit(bus, now);
        self.take_events(bus);
        if self.left && !self.stopping && self.frames.is_empty() {
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
            ..net::Config::new(mac, ip, prefix, self.key)
        }
    }

    fn take_sent(&mut self) {
        while let Some(sent) = self.nic.sent() {
            if sent.memory == nic::Memory::Quiet {
                self.frame_is_over(sent.id);
            }
        }
        while let Some(id) = self.nic.freed() {
            self.frame_is_over(id);
        }
    }

    fn frame_is_over(&mut self, id: u64) {
        let Some((frame, slot)) = self.frames.remove(&id) else { return };
        self.free_headers.push(slot);
        if let Some(stack) = &mut self.stack {
            stack.frame_sent(frame);
        }
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
                // Longer than a buffer: none of the frames that this network's MTU allows.
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
                Event::Sent { flow, offset } => self.with(flow, |flow, told| flow.sent(offset, told)),
                Event::Acknowledged { flow, offset } => self.with(flow, |flow, _| flow.acknowledged(offset)),
                Event::Reread { flow, offset, length } => self.lost.push_back((flow, offset, length)),
                Event::Free { owner: Owner::Flow(_), block } => self.free(block),
                Event::Free { owner: Owner::Port(_), block } => self.datagrams_sent(block),
                Event::Unsent { block, .. } => self.unsent(block),
                Event::Datagram { port, from, piece } => self.datagram(bus, (port, from), piece),
                Event::Release { buffer } => {
                    if let Some(frame) = self.received.remove(&buffer) {
                        self.nic.give_back(frame);
                    }
                }
                Event::Closed { flow, reason } => self.closed(flow, reason),
            }
        }
    }

    fn with(&mut self, name: net::Flow, act: impl FnOnce(&mut Flow, &mut VecDeque<Told>)) {
        if let Some(flow) = self.flows.get_mut(&name) {
            act(flow, &mut self.told);
            flow.settle(&mut self.told);
            if flow.is_over() {
                self.flows.remove(&name);
            }
        }
    }

    fn connected(&mut self, flow: net::Flow) {
        self.flows.entry(flow).or_insert_with(|| Flow::new(self.path));
        if let Some(cid) = self.connecting.remove(&flow) {
            self.wishes.push_back(Wish::Connection(cid, Ok((flow, self.peer(flow)))));
        }
    }

    fn peer(&self, flow: net::Flow) -> Ipv4Addr {
        let ends = self.stack.as_ref().and_then(|stack| stack.ends(flow));
        ends.map_or(Ipv4Addr::UNSPECIFIED, |(_, peer)| *peer.ip())
    }

    fn accepted(&mut self, flow: net::Flow, port: u16) {
        self.flows.entry(flow).or_insert_with(|| Flow::new(self.path));
        if let Some(listener) = self.listeners.get_mut(&port) {
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
            self.wishes.push_back(Wish::Connection(cid, Ok((flow, self.peer(flow)))));
        }
    }

    fn closed(&mut self, name: net::Flow, reason: Reason) {
        if let Some(cid) = self.connecting.remove(&name) {
            self.wishes.push_back(Wish::Connection(cid, Err(Status::PeerReset)));
        }
        for listener in self.listeners.values_mut() {
            listener.accepted.retain(|flow| *flow != name);
        }
        self.with(name, |flow, _| flow.closed(reason));
    }

    fn free(&mut self, token: u64) {
        match self.tokens.remove(&token) {
            Some(Token::Write(flow)) => self.with(flow, |flow, told| _ = flow.freed(token, told)),
            Some(Token::Reread(slot)) => self.rereads[slot].wanted = None,
            None => {}
        }
    }

    fn token(&mut self, token: Token) -> u64 {
        self.next_token += 1;
        self.tokens.insert(self.next_token, token);
        self.next_token
    }

    /// Gives the NIC what the stack has for it, as far as there is room.
    fn transmit(&mut self, bus: &mut dyn Bus, now: Nanos) {
        while self.fresh && self.nic.state() == nic::State::Ready && self.nic.link() {
            let Some((frame, slot)) = self.back.take().or_else(|| self.next_frame(now)) else { return };
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
            self.frames.insert(id, (frame.id, slot));
            match self.nic.transmit(bus, now, id, &nic::Frame { data: &data, offload }) {
                Ok(()) => {}
                Err(nic::TransmitError::Full) => {
                    self.frames.remove(&id);
                    self.back = Some((frame, slot));
                    return;
                }
                // None that the NIC can send: as if the wire had lost it.
                Err(_) => return self.frame_is_over(id),
            }
        }
    }

    /// The stack's next frame, and a place for its headers.
    fn next_frame(&mut self, now: Nanos) -> Option<(net::Frame, usize)> {
        let slot = *self.free_headers.last()?;
        let frame = self.stack.as_mut()?.next_frame(now)?;
        self.free_headers.pop();
        Some((frame, slot))
    }

    /// Looks for what was lost where it came from.
    fn read_again(&mut self) {
        while let Some((name, offset, length)) = self.lost.front().copied() {
            let Some(slot) = self.rereads.iter().position(|reread| reread.wanted.is_none()) else { return };
            self.lost.pop_front();
            let Some(flow) = self.flows.get(&name) else { continue };
            let Some(origin) = flow.origin(offset) else {
                // Nobody knows where it came from: the stream has a hole for good.
                if let Some(stack) = &mut self.stack {
                    stack.abort(name);
                }
                continue;
            };
            let now = u64::from(length.min(REREAD)).min(origin.length) as u32;
            if now < length {
                self.lost.push_front((name, offset + u64::from(now), length - now));
            }
            self.rereads[slot].wanted = Some((name, offset, now));
            let origin = Origin { length: now.into(), ..origin };
            self.wishes.push_back(Wish::Reread(slot, origin, self.rereads[slot].region.offset()));
        }
    }

    /// Bytes were read again, so many of those that were wanted; or not.
    pub fn reread(&mut self, slot: usize, read: Option<u32>) {
        let Some((name, offset, length)) = self.rereads[slot].wanted else { return };
        let Some(bytes) = read.filter(|bytes| *bytes > 0).map(|bytes| bytes.min(length)) else {
            self.rereads[slot].wanted = None;
            if let Some(stack) = &mut self.stack {
                stack.abort(name);
            }
            return;
        };
        if bytes < length {
            self.lost.push_front((name, offset + u64::from(bytes), length - bytes));
        }
        let block = self.token(Token::Reread(slot));
        let piece = Piece { offset: self.rereads[slot].region.offset(), length: bytes };
        let chunk = Chunk { piece, block, policy: Policy::Reread, more: false };
        let supplied = self.stack.as_mut().map(|stack| stack.resupply(name, offset, chunk));
        if supplied != Some(Ok(())) {
            // It was acknowledged meanwhile, or the connection is gone.
            self.tokens.remove(&block);
            self.rereads[slot].wanted = None;
        }
    }

    /// Reads from a connection into own memory.
    pub fn read(&mut self, bus: &mut dyn Bus, now: Nanos, name: net::Flow, place: (OperationId, u64, u32)) {
        let (operation, memory, length) = place;
        let Some(flow) = self.flows.get_mut(&name) else {
            return self.fail(operation, self.gone());
        };
        let more = flow.read(bus, operation, memory, length);
        flow.settle(&mut self.told);
        if let Some(stack) = self.stack.as_mut().filter(|_| more > 0) {
            stack.grant(name, more, now);
        }
        self.take_events(bus);
    }

    /// Writes a block's bytes to a connection. Where they came from, if they can be had there again.
    pub fn write(&mut self, name: net::Flow, write: WriteTo<'_>) {
        let WriteTo { operation, block, piece, more, origins } = write;
        let (Some(stack), Some(flow)) = (self.stack.as_mut(), self.flows.get_mut(&name)) else {
            return self.fail(operation, self.gone());
        };
        let policy = if origins.is_empty() { Policy::Hold } else { Policy::Reread };
        self.next_token += 1;
        let token = self.next_token;
        match stack.send(name, Chunk { piece, block: token, policy, more }) {
            Ok(start) => {
                self.tokens.insert(token, Token::Write(name));
                let end = start + u64::from(piece.length);
                flow.wrote(token, operation, block, end, piece.length);
                let mut at = start;
                for origin in origins {
                    flow.came_from(at, *origin);
                    at += origin.length;
                }
            }
            Err(net::SendError::Full) => self.fail(operation, Status::OutOfResources),
            Err(_) => self.fail(operation, self.gone()),
        }
    }

    /// What is said of connections that are gone.
    fn gone(&self) -> Status {
        match self.nic.state() {
            nic::State::Failed(_) => Status::DeviceReset,
            _ => Status::PeerReset,
        }
    }

    fn fail(&mut self, operation: OperationId, status: Status) {
        self.told.push_back(Told::Done(operation, Outcome::Failed(Fault::new(status))));
    }

    /// Stops an operation. What a read already had is kept for the next one. A write cannot be taken out of a stream: its connection
    /// ends.
    pub fn abort(&mut self, bus: &mut dyn Bus, operation: OperationId) {
        if self.abort_datagrams(operation) {
            return self.take_events(bus);
        }
        let mut writing = None;
        for (name, flow) in &mut self.flows {
            if flow.abort_read(bus, operation, &mut self.told) {
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
pub struct WriteTo<'a> {
    /// The engine's operation.
    pub operation: OperationId,
    /// Its block.
    pub block: BlockId,
    /// Where the bytes are.
    pub piece: Piece,
    /// More follow soon.
    pub more: bool,
    /// Where they came from, in order, if they are there still: then the block need not wait for the peer.
    pub origins: &'a [Origin],
}

/// A frame's headers as the NIC wants them, and what it is to put in.
fn prepare(frame: &net::Frame) -> (Vec<u8>, Option<Offload>) {
    let mut header = frame.header.to_vec();
    let Some(checksum) = frame.checksum else { return (header, None) };
    let tcp = checksum.offset == TCP_CHECKSUM;
    let segment = frame.segment.filter(|_| tcp).map(|size| {
        // The NIC makes lengths and checksums of each segment.
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
