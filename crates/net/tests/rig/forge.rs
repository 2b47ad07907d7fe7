//! A hand-made peer that sends whatever segment a test wants.

use super::SECOND;
use super::pair::{ADDRESSES, config};
use dcs_net::{Config, Event, FrameId, HEAD, ReceivedFrame, Stack, Verdict};
use smoltcp::wire::{EthernetProtocol, IpProtocol, Ipv4Packet, TcpPacket, TcpSeqNumber};

/// A hand-made segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seg {
    pub seq: u32,
    pub ack: Option<u32>,
    /// Letters of S, F, R, P.
    pub flags: &'static str,
    pub window: u16,
    /// A value and an echo.
    pub stamp: Option<(u32, u32)>,
    pub mss: Option<u16>,
    pub length: u32,
}

impl Seg {
    pub fn new(flags: &'static str, seq: u32, ack: impl Into<Option<u32>>) -> Seg {
        Seg { seq, ack: ack.into(), flags, window: 20_000, ..Seg::default() }
    }

    pub fn data(seq: u32, ack: u32, length: u32) -> Seg {
        Seg { length, ..Seg::new("", seq, ack) }
    }

    fn emit(&self, ports: (u16, u16)) -> Vec<u8> {
        self.with_options(ports, &[])
    }

    /// Returns its bytes with additional options, in whole words.
    pub fn with_options(&self, ports: (u16, u16), more: &[u8]) -> Vec<u8> {
        let mut options = more.to_vec();
        if let Some(mss) = self.mss {
            options.extend([2, 4]);
            options.extend(mss.to_be_bytes());
        }
        if let Some((value, echo)) = self.stamp {
            options.extend([1, 1, 8, 10]);
            options.extend(value.to_be_bytes());
            options.extend(echo.to_be_bytes());
        }
        let header = 20 + options.len();
        let mut bytes = vec![0; header + self.length as usize];
        let mut packet = TcpPacket::new_unchecked(&mut bytes);
        packet.set_src_port(ports.0);
        packet.set_dst_port(ports.1);
        packet.set_seq_number(TcpSeqNumber(self.seq as i32));
        packet.set_ack_number(TcpSeqNumber(self.ack.unwrap_or(0) as i32));
        packet.set_ack(self.ack.is_some());
        packet.set_syn(self.flags.contains('S'));
        packet.set_fin(self.flags.contains('F'));
        packet.set_rst(self.flags.contains('R'));
        packet.set_psh(self.flags.contains('P'));
        packet.set_header_len(header as u8);
        packet.set_window_len(self.window);
        packet.options_mut().copy_from_slice(&options);
        bytes
    }

    fn parse(bytes: &[u8], length: usize) -> Seg {
        let packet = TcpPacket::new_checked(bytes).unwrap();
        let flags = match (packet.syn(), packet.fin(), packet.rst()) {
            (true, false, false) => "S",
            (false, true, false) => "F",
            (false, false, true) => "R",
            (false, false, false) => "",
            _ => panic!("these flags do not go together"),
        };
        Seg {
            seq: packet.seq_number().0 as u32,
            ack: packet.ack().then(|| packet.ack_number().0 as u32),
            flags,
            window: packet.window_len(),
            stamp: None,
            mss: None,
            length: (length - usize::from(packet.header_len())) as u32,
        }
    }
}

/// A stack and the peer at 10.0.0.2.
pub struct Forge {
    pub stack: Stack,
    pub now: u64,
    pub ports: (u16, u16),
    /// Verdict of the NIC on the checksums of frames.
    pub verdict: Verdict,
    /// Set to send a wrong IP checksum.
    pub damaged: bool,
    buffers: u64,
    pub released: u64,
    pub sent: Vec<FrameId>,
    pub events: Vec<Event>,
}

pub const LOCAL: u16 = 80;
pub const REMOTE: u16 = 4000;

impl Forge {
    pub fn new(change: impl FnOnce(&mut Config)) -> Forge {
        let mut config = config(0);
        change(&mut config);
        let stack = Stack::new(config);
        let ports = (REMOTE, LOCAL);
        let mut forge = Forge {
            stack,
            now: SECOND,
            ports,
            verdict: Verdict::Good,
            damaged: false,
            buffers: 0,
            released: 0,
            sent: Vec::new(),
            events: Vec::new(),
        };
        // The card learns the address of the requester.
        forge.arp(1);
        assert_eq!(forge.frames().len(), 1);
        forge
    }

    /// Sends an ARP request (1) or reply (2) from the peer.
    fn arp(&mut self, operation: u8) {
        let mut arp = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 6, 0, 1, 8, 0, 6, 4, 0, operation];
        arp.extend([2, 0, 0, 0, 0, 2]);
        arp.extend(ADDRESSES[1].octets());
        arp.extend([2, 0, 0, 0, 0, 1]);
        arp.extend(ADDRESSES[0].octets());
        self.frame(&arp);
    }

    /// Delivers a frame as it is.
    pub fn frame(&mut self, bytes: &[u8]) {
        self.buffers += 1;
        let frame = ReceivedFrame {
            buffer: self.buffers,
            head: &bytes[..bytes.len().min(HEAD)],
            length: bytes.len() as u32,
            offset: self.buffers << 16,
            split: None,
            checksum: self.verdict,
        };
        self.stack.receive(&frame, self.now);
        self.take_events();
    }

    /// Delivers an IPv4 packet from the peer.
    pub fn packet(&mut self, protocol: IpProtocol, body: &[u8]) {
        let mut bytes = vec![0; 34];
        bytes[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        bytes[12..14].copy_from_slice(&u16::from(EthernetProtocol::Ipv4).to_be_bytes());
        let mut packet = Ipv4Packet::new_unchecked(&mut bytes[14..]);
        packet.set_version(4);
        packet.set_header_len(20);
        packet.set_total_len((20 + body.len()) as u16);
        packet.set_hop_limit(64);
        packet.set_next_header(protocol);
        packet.set_src_addr(ADDRESSES[1]);
        packet.set_dst_addr(ADDRESSES[0]);
        packet.fill_checksum();
        bytes[24] ^= u8::from(self.damaged);
        bytes.extend(body);
        self.frame(&bytes);
    }

    pub fn send(&mut self, segment: Seg) {
        let bytes = segment.emit(self.ports);
        self.packet(IpProtocol::Tcp, &bytes);
    }

    fn take_events(&mut self) {
        while let Some(event) = self.stack.next_event() {
            self.released += u64::from(matches!(event, Event::Release { .. }));
            self.events.push(event);
        }
    }

    /// Takes the frames that the stack sends now, as bytes of headers and lengths of payload.
    pub fn frames(&mut self) -> Vec<(Vec<u8>, usize)> {
        let mut frames = Vec::new();
        while let Some(frame) = self.stack.next_frame(self.now) {
            frames.push((frame.header.to_vec(), frame.length() - frame.header.len()));
            self.stack.frame_sent(frame.id);
            let header = &frame.header;
            if header[12..14] == [8, 6] && header[21] == 1 && header[38..42] == ADDRESSES[1].octets() {
                self.arp(2);
            }
        }
        self.take_events();
        frames
    }

    /// Takes the TCP segments that the stack sends now.
    pub fn segments(&mut self) -> Vec<Seg> {
        let frames =
            self.frames().into_iter().filter(|(header, _)| header[12..14] == [8, 0] && header[23] == 6);
        frames.map(|(header, payload)| Seg::parse(&header[34..], header.len() - 34 + payload)).collect()
    }

    /// Takes the only segment that the stack sends now.
    pub fn segment(&mut self) -> Seg {
        let mut segments = self.segments();
        assert_eq!(segments.len(), 1, "{segments:?}");
        segments.remove(0)
    }

    pub fn pass(&mut self, time: u64) {
        let end = self.now + time;
        while let Some(at) = self.stack.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.stack.poll(self.now);
            if self.stack.deadline() == Some(at) {
                break;
            }
        }
        self.now = end;
        self.stack.poll(end);
        self.take_events();
    }

    /// Takes the events since the last call, without those about receive buffers.
    pub fn events(&mut self) -> Vec<Event> {
        self.take_events();
        self.events.drain(..).filter(|event| !matches!(event, Event::Release { .. })).collect()
    }

    /// Checks that all buffers but this many are returned.
    pub fn assert_held(&self, held: u64) {
        assert_eq!(self.buffers - self.released, held);
    }
}
