//! A card: own memory, receive buffers, blocks, a NIC, and an owner of the stack that plays the engine. Each byte is checked, and each
//! buffer and block that is returned is overwritten, so that a use after that shows.

use super::nic::{Nic, part};
use super::pair::Node;
use super::{fill, is_filled};
use dcs_net::checksum::verify;
use dcs_net::{Chunk, Config, Event, Flow, HEAD, Owner, Piece, Reason, ReceivedFrame, SendError, Stack};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddrV4;

const BUFFER: usize = 2048;

/// The behaviour of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Bytes to send, from the stream of this seed.
    pub send: u64,
    pub send_seed: u64,
    pub receive_seed: u64,
    /// Size of a chunk in bytes.
    pub chunk: u32,
    /// Most bytes granted at once for reception.
    pub place: u64,
    /// Set to end the stream after the last byte.
    pub shutdown: bool,
}

impl Plan {
    pub fn new(send: u64) -> Plan {
        Plan { send, send_seed: 1, receive_seed: 2, chunk: 64 << 10, place: 1 << 20, shutdown: true }
    }

    /// Returns the plan of the other end.
    pub fn reversed(self, send: u64) -> Plan {
        Plan { send, send_seed: self.receive_seed, receive_seed: self.send_seed, ..self }
    }
}

#[derive(Debug)]
pub struct App {
    pub plan: Plan,
    appended: u64,
    pub sent: u64,
    pub acknowledged: u64,
    pub received: u64,
    /// Bytes delivered beyond `received`: length by offset.
    early: BTreeMap<u64, u64>,
    granted: u64,
    pub ended: Option<u64>,
    pub open: bool,
    pub closed: Option<Reason>,
    shut: bool,
}

pub struct Card {
    pub stack: Stack,
    pub nic: Nic,
    memory: Vec<u8>,
    buffers: Vec<u64>,
    buffers_out: BTreeMap<u64, ()>,
    buffer_count: usize,
    blocks: Vec<u64>,
    block_size: usize,
    block_count: usize,
    blocks_base: usize,
    /// Blocks that are in use.
    blocks_out: BTreeMap<u64, ()>,
    pub apps: BTreeMap<Flow, App>,
    /// Connections that are not closed.
    pub live: BTreeSet<Flow>,
    /// Connections that have changed, or that wait for blocks.
    dirty: BTreeSet<Flow>,
    /// Plan for accepted connections.
    pub accepts: Option<Plan>,
    pub datagrams: Vec<(u16, SocketAddrV4, Vec<u8>)>,
    /// Blocks whose datagrams were not all sent.
    pub unsent: Vec<u64>,
    /// Time before which no chunk is granted: the engine is slow.
    pub stalled_until: u64,
    /// Frames dropped because all buffers were taken.
    pub overruns: u64,
}

impl Card {
    pub fn new(config: Config, checksum_offload: bool) -> Card {
        Card::with_blocks(config, checksum_offload, 64, 64 << 10)
    }

    pub fn with_blocks(
        config: Config,
        checksum_offload: bool,
        block_count: usize,
        block_size: usize,
    ) -> Card {
        let buffer_count = 1024;
        let blocks_base = buffer_count * BUFFER;
        Card {
            stack: Stack::new(config),
            nic: Nic::new(checksum_offload),
            memory: vec![0xee; blocks_base + block_count * block_size],
            buffers: (0..buffer_count as u64).collect(),
            buffers_out: BTreeMap::new(),
            buffer_count,
            blocks: (0..block_count as u64).collect(),
            block_size,
            block_count,
            blocks_base,
            blocks_out: BTreeMap::new(),
            apps: BTreeMap::new(),
            live: BTreeSet::new(),
            dirty: BTreeSet::new(),
            accepts: None,
            datagrams: Vec::new(),
            unsent: Vec::new(),
            stalled_until: 0,
            overruns: 0,
        }
    }

    pub fn connect(&mut self, to: SocketAddrV4, plan: Plan, now: u64) -> Flow {
        let flow = self.stack.connect(to, now).unwrap();
        self.apps.insert(flow, App::new(plan));
        self.live.insert(flow);
        self.dirty.insert(flow);
        flow
    }

    /// Adds bytes to send.
    pub fn extend(&mut self, flow: Flow, send: u64) {
        self.apps.get_mut(&flow).unwrap().plan.send = send;
        self.dirty.insert(flow);
    }

    /// Checks that everything was returned.
    pub fn assert_idle(&self) {
        let usage = self.stack.usage();
        assert_eq!(usage, dcs_net::Usage { time_wait: usage.time_wait, ..Default::default() });
        assert_eq!(self.buffers.len(), self.buffer_count);
        assert_eq!(self.blocks.len(), self.block_count);
    }

    fn block_offset(&self, block: u64) -> usize {
        self.blocks_base + block as usize * self.block_size
    }

    /// Takes a block and fills it with a stream's bytes.
    fn block(&mut self, seed: u64, offset: u64, length: u32) -> Option<(u64, Piece)> {
        let block = self.blocks.pop()?;
        assert!(self.blocks_out.insert(block, ()).is_none());
        let at = self.block_offset(block);
        fill(seed, offset, &mut self.memory[at..at + length as usize]);
        Some((block, Piece { offset: at as u64, length }))
    }

    fn give_back(&mut self, block: u64) {
        assert!(self.blocks_out.remove(&block).is_some(), "block {block} was freed twice");
        let at = self.block_offset(block);
        self.memory[at..at + self.block_size].fill(0xee);
        self.blocks.push(block);
    }

    pub fn send_datagram(
        &mut self,
        port: u16,
        to: SocketAddrV4,
        seed: u64,
        length: u32,
    ) -> Result<(), SendError> {
        let (block, piece) = self.block(seed, 0, length).unwrap();
        let chunk = Chunk { piece, block, more: false };
        let result = self.stack.send_udp(port, to, chunk);
        if result.is_err() {
            self.give_back(block);
        }
        result
    }

    /// Sends a block's bytes in datagrams of `payload` bytes; returns the block.
    pub fn send_datagrams(
        &mut self,
        port: u16,
        to: SocketAddrV4,
        seed: u64,
        length: u32,
        payload: u16,
    ) -> Result<u64, SendError> {
        let (block, piece) = self.block(seed, 0, length).unwrap();
        let chunk = Chunk { piece, block, more: false };
        let result = self.stack.send_datagrams(port, to, chunk, payload);
        if result.is_err() {
            self.give_back(block);
        }
        result.map(|()| block)
    }

    fn event(&mut self, event: Event, now: u64) {
        match event {
            Event::Connected { flow } => self.opened(flow, now),
            Event::Accepted { flow, .. } => {
                let plan = self.accepts.expect("no connection was expected");
                assert!(self.apps.insert(flow, App::new(plan)).is_none());
                self.live.insert(flow);
                self.opened(flow, now);
            }
            Event::Deliver { flow, offset, piece } => {
                let app = self.apps.get_mut(&flow).unwrap();
                let bytes = part(&self.memory, piece);
                assert!(is_filled(app.plan.receive_seed, offset, bytes), "wrong bytes at {offset}");
                app.deliver(offset, piece.length.into());
            }
            Event::Received { flow, offset } => self.app(flow).received(offset),
            Event::Ended { flow, offset } => assert!(self.app(flow).ended.replace(offset).is_none()),
            Event::Sent { flow, offset } => {
                let app = self.app(flow);
                assert!(offset > app.sent && offset <= app.appended);
                app.sent = offset;
            }
            Event::Acknowledged { flow, offset } => {
                let app = self.app(flow);
                assert!(offset > app.acknowledged && offset <= app.appended);
                app.acknowledged = offset;
            }
            Event::Free { owner, block } => {
                assert!(matches!(owner, Owner::Flow(_) | Owner::Port(_)));
                self.give_back(block);
            }
            Event::Unsent { block, .. } => {
                assert!(self.blocks_out.contains_key(&block), "its block is returned after that");
                self.unsent.push(block);
            }
            Event::Release { buffer } => {
                assert!(self.buffers_out.remove(&buffer).is_some(), "buffer {buffer} was released twice");
                let at = buffer as usize * BUFFER;
                self.memory[at..at + BUFFER].fill(0xee);
                self.buffers.push(buffer);
            }
            Event::Datagram { port, from, piece } => {
                self.datagrams.push((port, from, part(&self.memory, piece).to_vec()));
            }
            Event::Closed { flow, reason } => {
                self.live.remove(&flow);
                assert!(self.app(flow).closed.replace(reason).is_none());
            }
        }
    }

    fn app(&mut self, flow: Flow) -> &mut App {
        self.dirty.insert(flow);
        let app = self.apps.get_mut(&flow).expect("an event of an unknown flow");
        assert_eq!(app.closed, None, "an event of a flow that is gone");
        app
    }

    fn opened(&mut self, flow: Flow, now: u64) {
        self.app(flow).open = true;
        if now >= self.stalled_until {
            self.grant(flow, now);
        }
    }

    /// Keeps as many bytes granted as the plan says.
    fn grant(&mut self, flow: Flow, now: u64) {
        let app = self.apps.get_mut(&flow).unwrap();
        let place = app.plan.place.saturating_sub(app.granted - app.received);
        if app.closed.is_none() && place * 2 > app.plan.place {
            app.granted += place;
            self.stack.grant(flow, place, now);
        }
    }

    /// Plays the engine: reads bytes to be sent, as there are blocks.
    fn run_apps(&mut self, now: u64) -> bool {
        let mut moved = false;
        for flow in std::mem::take(&mut self.dirty).intersection(&self.live.clone()).copied() {
            moved |= self.run_app(flow, now);
        }
        moved
    }

    fn run_app(&mut self, flow: Flow, now: u64) -> bool {
        let mut moved = false;
        let app = &self.apps[&flow];
        if app.appended < app.plan.send || now < self.stalled_until {
            self.dirty.insert(flow);
        }
        // Leaves some blocks for others.
        while self.blocks.len() > self.block_count / 4 {
            let app = &self.apps[&flow];
            let plan = app.plan;
            let length =
                plan.send.saturating_sub(app.appended).min(plan.chunk.into()).min(self.block_size as u64)
                    as u32;
            if length == 0 || app.shut {
                break;
            }
            let (seed, offset) = (plan.send_seed, app.appended);
            let (block, piece) = self.block(seed, offset, length).unwrap();
            let more = offset + u64::from(length) < plan.send;
            match self.stack.send(flow, Chunk { piece, block, more }) {
                Ok(at) => assert_eq!(at, offset),
                Err(SendError::Full) => {
                    self.give_back(block);
                    break;
                }
                Err(error) => panic!("{error}"),
            }
            self.apps.get_mut(&flow).unwrap().appended += u64::from(length);
            moved = true;
        }
        if now >= self.stalled_until && self.apps[&flow].open {
            self.grant(flow, now);
        }
        let app = self.apps.get_mut(&flow).unwrap();
        if app.plan.shutdown && app.appended == app.plan.send && !std::mem::replace(&mut app.shut, true) {
            self.stack.shutdown(flow);
            moved = true;
        }
        moved
    }
}

impl App {
    fn new(plan: Plan) -> App {
        App {
            plan,
            appended: 0,
            sent: 0,
            acknowledged: 0,
            received: 0,
            early: BTreeMap::new(),
            granted: 0,
            ended: None,
            open: false,
            closed: None,
            shut: false,
        }
    }

    /// Checks that no byte arrives twice, and none that was not granted.
    fn deliver(&mut self, offset: u64, length: u64) {
        assert!(offset >= self.received && offset + length <= self.granted, "not granted");
        let before = self.early.range(..offset + length).next_back();
        assert!(before.is_none_or(|(start, length)| start + length <= offset), "delivered twice");
        self.early.insert(offset, length);
    }

    fn received(&mut self, upto: u64) {
        assert!(upto > self.received);
        while self.received < upto {
            let length = self.early.remove(&self.received).expect("all before has been delivered");
            self.received += length;
        }
    }

    pub fn is_done(&self) -> bool {
        self.closed == Some(Reason::Finished)
    }
}

impl Node for Card {
    fn receive(&mut self, bytes: &[u8], now: u64) {
        let Some(buffer) = self.buffers.pop() else {
            self.overruns += 1;
            return;
        };
        assert!(self.buffers_out.insert(buffer, ()).is_none());
        let at = buffer as usize * BUFFER;
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
        let mut frame = ReceivedFrame {
            buffer,
            head: &bytes[..bytes.len().min(HEAD)],
            length: bytes.len() as u32,
            offset: at as u64,
            split: None,
            checksum: dcs_net::Verdict::Good,
        };
        frame.checksum = verify(&frame, |piece, sum| sum.add(part(&self.memory, piece)));
        self.stack.receive(&frame, now);
    }

    fn step(&mut self, now: u64) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        self.stack.poll(now);
        loop {
            let mut moved = false;
            while let Some(event) = self.stack.next_event() {
                self.event(event, now);
                moved = true;
            }
            moved |= self.run_apps(now);
            while self.nic.has_room()
                && let Some(frame) = self.stack.next_frame(now)
            {
                self.nic.take(frame, now);
                moved = true;
            }
            while let Some((id, frames)) = self.nic.sent(&self.memory, now) {
                out.extend(frames);
                self.stack.frame_sent(id);
                moved = true;
            }
            if !moved {
                return out;
            }
        }
    }

    fn deadline(&self) -> Option<u64> {
        [self.stack.deadline(), self.nic.deadline()].into_iter().flatten().min()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
