//! Target for the TCP/IP stack of `dcs-net`.

use dcs_net::{
    Chunk, Config, Event, Flow, Frame, FrameId, HEAD, Owner, Piece, ReceivedFrame, Stack, Usage, Verdict,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const CARD: [u8; 4] = [10, 0, 0, 1];
const PEER: [u8; 4] = [10, 0, 0, 2];
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Sends arbitrary frames from a peer, with calls of an owner that follows the rules. Checks that every byte is delivered once
/// and only where it was granted, every receive buffer and block is returned once, deadlines advance, and nothing is left when
/// everything is aborted.
///
/// Each step is a byte with the action, and its operands:
///
/// | low 4 bits | action | operands |
/// |---|---|---|
/// | 0 | time passes | 2 bytes: milliseconds |
/// | 1 | a frame, as it is | 1 byte: its length; the bytes |
/// | 2 | a packet of any protocol | protocol, length, the bytes |
/// | 3 to 8 | a TCP segment of the peer | see `Segment` |
/// | 9 | connect | |
/// | 10 | send | flow, 2 bytes: length; `more` |
/// | 11 | grant | flow, 2 bytes: how much |
/// | 12 | shutdown | flow |
/// | 13 | abort, or release | flow; top bit: release |
/// | 14 | the NIC has sent a frame | which |
/// | 15 | a datagram | its length |
pub fn net(data: &[u8]) {
    let mut bench = Bench::new();
    let mut bytes = Bytes(data);
    while bench.step(&mut bytes).is_some() {
        bench.settle();
    }
    bench.end();
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn word(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
}

/// The owner's view of a flow.
#[derive(Default)]
struct Stream {
    appended: u64,
    sent: u64,
    acknowledged: u64,
    granted: u64,
    received: u64,
    delivered: BTreeMap<u64, u64>,
    ended: Option<u64>,
}

struct Bench {
    stack: Stack,
    now: u64,
    buffers: BTreeSet<u64>,
    blocks: BTreeSet<u64>,
    count: u64,
    streams: BTreeMap<Flow, Stream>,
    nic: VecDeque<FrameId>,
    /// The peer's view of connections by ports: the correct next sequence numbers.
    peers: Vec<(u16, u16, u32, u32)>,
}

impl Bench {
    fn new() -> Bench {
        let mut config = Config::new(MAC, CARD.into(), 24, [7; 16]);
        config.segmentation = Some(8_000);
        config.tcp.keep_alive = Some(20_000_000_000);
        config.limits.flows = 8;
        config.limits.backlog = 3;
        config.limits.time_wait = 3;
        config.limits.held = 5;
        config.limits.ranges = 4;
        config.limits.chunks = 6;
        config.limits.orphans = 2;
        config.limits.echoes = 2;
        config.limits.neighbours = 4;
        config.limits.pending = 5;
        config.limits.buffer = 8_000;
        let mut stack = Stack::new(config);
        stack.listen(80).unwrap();
        stack.open_udp(9).unwrap();
        let mut bench = Bench {
            stack,
            now: 0,
            buffers: BTreeSet::new(),
            blocks: BTreeSet::new(),
            count: 0,
            streams: BTreeMap::new(),
            nic: VecDeque::new(),
            peers: Vec::new(),
        };
        bench.arp(1);
        bench.settle();
        bench
    }

    fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn arp(&mut self, operation: u8) {
        let mut arp = [&MAC[..], &[2, 0, 0, 0, 0, 2, 8, 6, 0, 1, 8, 0, 6, 4, 0, operation]].concat();
        arp.extend([2, 0, 0, 0, 0, 2]);
        arp.extend(PEER);
        arp.extend(MAC);
        arp.extend(CARD);
        self.frame(&arp);
    }

    fn frame(&mut self, bytes: &[u8]) {
        let buffer = self.number();
        self.buffers.insert(buffer);
        let head = &bytes[..bytes.len().min(HEAD)];
        let (length, offset) = (bytes.len() as u32, buffer << 16);
        let frame = ReceivedFrame { buffer, head, length, offset, split: None, checksum: Verdict::Good };
        self.stack.receive(&frame, self.now);
    }

    /// Sends an IPv4 packet with a correct header.
    fn packet(&mut self, protocol: u8, body: &[u8]) {
        let mut frame = [&MAC[..], &[2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0]].concat();
        frame.extend((20 + body.len() as u16).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
        frame.extend(PEER);
        frame.extend(CARD);
        let mut sum = dcs_net::checksum::Sum::new();
        sum.add(&frame[14..]);
        frame[24..26].copy_from_slice(&(!sum.value()).to_be_bytes());
        frame.extend(body);
        self.frame(&frame);
    }

    /// Sends a segment near the correct sequence numbers:
    ///
    /// | bytes | meaning |
    /// |---|---|
    /// | 1 | number of the connection; or a new one |
    /// | 1 | flags as in TCP; top bit: the next two are here, else they are 0; the bit below: so are those after |
    /// | 2, 2 | what to add to sequence number and acknowledgement |
    /// | 2, 2 | a selectively acknowledged range: how far before the last byte sent it starts, and its length |
    /// | 2 | window |
    /// | 2 | bytes of payload, modulo 3,000 |
    /// | 1 | words of options |
    /// | this many | them |
    fn segment(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        let which = usize::from(bytes.byte()?);
        let flags = bytes.byte()?;
        let near = flags & 0x80 == 0;
        let (seq, ack) = if near { (0, 0) } else { (bytes.word()? as i16, bytes.word()? as i16) };
        let sack = if flags & 0x40 == 0 { None } else { Some((bytes.word()?, bytes.word()?)) };
        let (window, length) = (bytes.word()?, bytes.word()? % 3_000);
        let words = bytes.byte()? % 8;
        let mut options = bytes.take(usize::from(words) * 4)?.to_vec();
        if which >= self.peers.len() && self.peers.len() < 12 {
            self.peers.push((4_000 + self.peers.len() as u16, 80, 5_000, 0));
        }
        let count = self.peers.len();
        let (port, to, next, expected) = self.peers[which % count];
        let seq = next.wrapping_add_signed(seq.into());
        let ack = expected.wrapping_add_signed(ack.into());
        if let Some((before, length)) = sack {
            let start = expected.wrapping_sub(before.into());
            options.extend([1, 1, 5, 10]);
            options.extend(start.to_be_bytes());
            options.extend(start.wrapping_add(length.into()).to_be_bytes());
        }
        let words = (options.len() / 4) as u8;
        let mut tcp = [port.to_be_bytes(), to.to_be_bytes()].concat();
        tcp.extend(seq.to_be_bytes());
        tcp.extend(ack.to_be_bytes());
        tcp.extend([(5 + words) << 4, flags & 0x3f]);
        tcp.extend(window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(options);
        tcp.resize(tcp.len() + usize::from(length), 0);
        self.packet(6, &tcp);
        Some(())
    }

    fn flow(&self, which: u8) -> Option<Flow> {
        let count = self.streams.len().max(1);
        self.streams.keys().nth(usize::from(which) % count).copied()
    }

    /// Runs the next step; `None` at the end of the input.
    fn step(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        match bytes.byte()? % 16 {
            0 => self.pass(u64::from(bytes.word()?) * 1_000_000),
            1 => {
                let length = bytes.byte()?;
                let frame = bytes.take(length.into())?;
                self.frame(frame);
            }
            2 => {
                let (protocol, length) = (bytes.byte()?, bytes.byte()?);
                let body = bytes.take(length.into())?;
                self.packet(protocol, body);
            }
            3..=8 => self.segment(bytes)?,
            9 => {
                if let Ok(flow) = self.stack.connect("10.0.0.2:443".parse().unwrap(), self.now) {
                    assert!(self.streams.insert(flow, Stream::default()).is_none());
                }
            }
            10 => {
                let (which, length, how) = (bytes.byte()?, bytes.word()?, bytes.byte()?);
                self.send(which, length.into(), how);
            }
            11 => {
                let (which, more) = (bytes.byte()?, bytes.word()?);
                if let Some(flow) = self.flow(which) {
                    self.streams.get_mut(&flow).unwrap().granted += u64::from(more);
                    self.stack.grant(flow, more.into(), self.now);
                }
            }
            12 => {
                let which = bytes.byte()?;
                self.flow(which).into_iter().for_each(|flow| self.stack.shutdown(flow));
            }
            13 => {
                let which = bytes.byte()?;
                let flow = self.flow(which & 0x7f);
                match which & 0x80 {
                    0 => flow.into_iter().for_each(|flow| self.stack.abort(flow)),
                    _ => flow.into_iter().for_each(|flow| self.stack.release(flow, self.now)),
                }
            }
            14 => {
                let which = usize::from(bytes.byte()?) % self.nic.len().max(1);
                self.nic.remove(which).into_iter().for_each(|frame| self.stack.frame_sent(frame));
            }
            _ => {
                let which = bytes.byte()?;
                self.datagrams(which);
            }
        }
        Some(())
    }

    fn chunk(&mut self, length: u32, how: u8) -> Chunk {
        let block = self.number();
        Chunk { piece: Piece { offset: block << 20, length }, block, more: how & 2 != 0 }
    }

    fn send(&mut self, which: u8, length: u32, how: u8) {
        let chunk = self.chunk(length, how);
        let Some(flow) = self.flow(which) else { return };
        if let Ok(at) = self.stack.send(flow, chunk) {
            self.blocks.insert(chunk.block);
            let stream = self.streams.get_mut(&flow).unwrap();
            assert_eq!(at, stream.appended);
            stream.appended += u64::from(length);
        }
    }

    fn datagrams(&mut self, length: u8) {
        let chunk = self.chunk(length.into(), 1);
        let to = "10.0.0.2:9".parse().unwrap();
        let payload = if length < 16 { u16::from(length) } else { 7 * u16::from(length) };
        if self.stack.send_datagrams(9, to, chunk, payload).is_ok() {
            self.blocks.insert(chunk.block);
            if length & 7 == 7 {
                self.stack.recall(9, to, chunk.block);
            }
        }
    }

    fn pass(&mut self, time: u64) {
        let end = self.now + time;
        while let Some(at) = self.stack.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.stack.poll(self.now);
            self.settle();
            assert!(self.stack.deadline().is_none_or(|next| next > self.now), "time stands still");
        }
        self.now = end;
    }

    /// Takes all events and frames.
    fn settle(&mut self) {
        self.events();
        while self.nic.len() < 16
            && let Some(frame) = self.stack.next_frame(self.now)
        {
            self.learn(&frame);
            self.nic.push_back(frame.id);
            if frame.header[12..14] == [8, 6] && frame.header[21] == 1 {
                self.arp(2);
            }
        }
        self.events();
        let usage = self.stack.usage();
        // Whatever the peer sends, it gets at most its share of everything.
        assert!(usage.flows <= 8 && usage.time_wait <= 3 && usage.buffers <= 8 * 5, "{usage:?}");
        assert!(usage.orphans <= 2 && usage.echoes <= 2 && usage.asked <= 4, "{usage:?}");
        // Chunks that wait for a port count here too: 6 for each peer.
        assert!(usage.pending <= 5 + 4 * 8 + 6, "{usage:?}");
        let most = 6 * 65_535 / 48 + 16;
        assert!(usage.segments <= most, "{usage:?}");
        assert_eq!(self.buffers.len(), usage.buffers + usage.echoes, "every other receive buffer is back");
    }

    /// Updates the peer's view from a frame.
    fn learn(&mut self, frame: &Frame) {
        let payload: u32 = frame.payload.iter().map(|piece| piece.length).sum();
        assert!(frame.segment.is_some() || frame.length() <= 1514);
        assert!(frame.segment.is_none_or(|mss| payload > mss.into() && payload <= 8_000));
        if frame.header[12..14] != [8, 0] || frame.header[23] != 6 {
            return;
        }
        let tcp = &frame.header[34..];
        let word = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let number = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
        let length = payload + u32::from(tcp[13] & 1) + u32::from(tcp[13] & 2 != 0);
        let (ours, theirs) = (word(0), word(2));
        let expected = number(4).wrapping_add(length);
        let count = self.peers.len();
        match self.peers.iter_mut().find(|peer| (peer.0, peer.1) == (theirs, ours)) {
            Some(peer) if tcp[13] & 16 != 0 => (peer.2, peer.3) = (number(8), expected),
            Some(peer) => peer.3 = expected,
            None if count < 12 => self.peers.push((theirs, ours, 9_000, expected)),
            None => {}
        }
    }

    fn events(&mut self) {
        while let Some(event) = self.stack.next_event() {
            self.event(event);
        }
    }

    fn stream(&mut self, flow: Flow) -> &mut Stream {
        self.streams.get_mut(&flow).expect("the flow is there")
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Connected { flow } => assert_eq!(self.stream(flow).received, 0),
            Event::Accepted { flow, port, .. } => {
                assert_eq!(port, 80);
                assert!(self.streams.insert(flow, Stream::default()).is_none());
            }
            Event::Deliver { flow, offset, piece } => {
                let end = offset + u64::from(piece.length);
                assert!(
                    self.buffers.contains(&(piece.offset >> 16)),
                    "it lies in a buffer that the stack has"
                );
                let stream = self.stream(flow);
                assert!(piece.length > 0 && end <= stream.granted && offset >= stream.received);
                let before = stream.delivered.range(..end).next_back();
                assert!(before.is_none_or(|(_, before)| *before <= offset), "delivered twice");
                stream.delivered.insert(offset, end);
            }
            Event::Received { flow, offset } => {
                let stream = self.stream(flow);
                assert!(offset > stream.received);
                while stream.received < offset {
                    stream.received = stream.delivered.remove(&stream.received).expect("it was delivered");
                }
                assert_eq!(stream.received, offset);
            }
            Event::Ended { flow, offset } => {
                let stream = self.stream(flow);
                assert!(stream.ended.replace(offset).is_none() && stream.received <= offset);
            }
            Event::Sent { flow, offset } => {
                let stream = self.stream(flow);
                assert!(offset > stream.sent && offset <= stream.appended);
                stream.sent = offset;
            }
            Event::Acknowledged { flow, offset } => {
                let stream = self.stream(flow);
                assert!(offset > stream.acknowledged && offset <= stream.appended);
                stream.acknowledged = offset;
            }
            Event::Free { owner, block } => {
                assert!(self.blocks.remove(&block), "freed twice");
                assert!(matches!(owner, Owner::Flow(_) | Owner::Port(9)));
            }
            Event::Unsent { port, block } => assert!(port == 9 && self.blocks.contains(&block)),
            Event::Release { buffer } => assert!(self.buffers.remove(&buffer), "released twice"),
            Event::Datagram { port, piece, .. } => {
                assert!(port == 9 && self.buffers.contains(&(piece.offset >> 16)));
            }
            Event::Closed { flow, .. } => {
                assert!(self.streams.remove(&flow).is_some());
            }
        }
    }

    /// Aborts everything, and sends all that the NIC has.
    fn end(&mut self) {
        self.events();
        for flow in Vec::from_iter(self.streams.keys().copied()) {
            self.stack.abort(flow);
        }
        self.stack.unlisten(80);
        for _ in 0..1_000 {
            self.settle();
            self.nic.drain(..).for_each(|frame| self.stack.frame_sent(frame));
            self.pass(1_000_000_000);
        }
        assert_eq!(self.stack.usage(), Usage::default());
        assert!(self.streams.is_empty() && self.buffers.is_empty() && self.blocks.is_empty());
    }
}
