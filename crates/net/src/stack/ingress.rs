//! Incoming frames: each is checked layer by layer; bad ones are counted and dropped.

use super::time_wait::Answer;
use super::{Connection, Packet, Stack};
use crate::message::{Event, Nanos, ReceivedFrame, Verdict};
use crate::tcp::receiver::Payload;
use crate::tcp::segment::{Flags, Header, OptionBytes, Segment};
use core::net::{Ipv4Addr, SocketAddrV4};
use core::ops::Range;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, UdpPacket,
};

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// Most ARP replies that wait to be sent.
const REPLIES: usize = 64;

/// An IPv4 packet with a valid header.
struct Ip<'a> {
    /// Ethernet address of the frame's sender: the host itself, or the gateway.
    mac: [u8; 6],
    from: Ipv4Addr,
    to: Ipv4Addr,
    /// First bytes of the packet's content.
    head: &'a [u8],
    /// Range of the content in the frame.
    range: Range<u32>,
}

impl Ip<'_> {
    fn length(&self) -> u32 {
        self.range.end - self.range.start
    }
}

impl Stack {
    /// Processes a frame; returns true if the receive buffer is needed.
    pub(super) fn ingress(&mut self, frame: &ReceivedFrame<'_>, now: Nanos) -> bool {
        let head = &frame.head[..frame.head.len().min(frame.length as usize)];
        let Ok(ethernet) = EthernetFrame::new_checked(head) else {
            self.shared.statistics.malformed += 1;
            return false;
        };
        let to = ethernet.dst_addr();
        let is_unicast = to.0 == self.shared.config.mac;
        if !is_unicast && !to.is_broadcast() {
            self.shared.statistics.not_ours += 1;
            return false;
        }
        match ethernet.ethertype() {
            EthernetProtocol::Arp => self.arp(&head[ETHERNET..], now),
            EthernetProtocol::Ipv4 if is_unicast && ethernet.src_addr().is_unicast() => {
                return self.ipv4(frame, (ethernet.src_addr().0, &head[ETHERNET..]), now);
            }
            _ => self.shared.statistics.not_ours += 1,
        }
        false
    }

    fn arp(&mut self, bytes: &[u8], now: Nanos) {
        let repr = ArpPacket::new_checked(bytes).and_then(|packet| ArpRepr::parse(&packet));
        let Ok(ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: mac,
            source_protocol_addr: from,
            target_protocol_addr: target,
            ..
        }) = repr
        else {
            self.shared.statistics.malformed += 1;
            return;
        };
        let config = &self.shared.config;
        let is_for_us = target == config.address;
        if !mac.is_unicast() || mac.0 == config.mac {
            self.shared.statistics.malformed += 1;
            return;
        }
        // A probe has no sender (RFC 5227); every other request is from a host of this link.
        if config.next_hop(from) == Some(from) {
            let waiting = self.neighbours.learn(from, mac.0, is_for_us, now);
            waiting.turns.into_iter().for_each(|turn| self.take_turn(turn));
            // An entry whose address is now known can be evicted.
            self.retry_stranded();
            waiting.packets.into_iter().rev().for_each(|packet| self.packets.push_front(packet));
        }
        if is_for_us && operation == ArpOperation::Request && self.replies.len() < REPLIES {
            self.replies.push_back((mac.0, from));
        }
    }

    fn ipv4(&mut self, frame: &ReceivedFrame<'_>, (mac, bytes): ([u8; 6], &[u8]), now: Nanos) -> bool {
        let room = frame.length as usize - ETHERNET;
        let packet = Ipv4Packet::new_unchecked(bytes);
        if bytes.len() < 20 || packet.version() != 4 {
            self.shared.statistics.malformed += 1;
            return false;
        }
        let (header, total) = (usize::from(packet.header_len()), usize::from(packet.total_len()));
        if header < 20 || header > bytes.len() || header > total || total > room {
            self.shared.statistics.malformed += 1;
            return false;
        }
        if !packet.verify_checksum() {
            self.shared.statistics.checksum_errors += 1;
            return false;
        }
        let (from, to) = (packet.src_addr(), packet.dst_addr());
        if to != self.shared.config.address || !self.shared.config.is_host(from) || from == to {
            self.shared.statistics.not_ours += 1;
            return false;
        }
        if packet.more_frags() || packet.frag_offset() != 0 {
            self.shared.statistics.fragments += 1;
            return false;
        }
        let range = (ETHERNET + header) as u32..(ETHERNET + total) as u32;
        let ip = Ip { mac, from, to, head: &bytes[header..total.min(bytes.len())], range };
        let protocol = packet.next_header();
        if frame.checksum == Verdict::Bad && matches!(protocol, IpProtocol::Tcp | IpProtocol::Udp) {
            self.shared.statistics.checksum_errors += 1;
            return false;
        }
        match protocol {
            IpProtocol::Tcp => return self.tcp(frame, &ip, now),
            IpProtocol::Udp => self.udp(frame, &ip),
            IpProtocol::Icmp => return self.icmp(frame, &ip),
            _ => self.shared.statistics.not_ours += 1,
        }
        false
    }

    /// Answers an echo request from its own receive buffer, to the frame's sender: no address must be requested, and no buffer waits for
    /// that. The answer's checksum follows from the request's (RFC 1624): if that was wrong, so is the answer's, and the requester sees it.
    fn icmp(&mut self, frame: &ReceivedFrame<'_>, ip: &Ip<'_>) -> bool {
        let Some(mut icmp) = ip.head.first_chunk::<8>().copied().filter(|_| ip.length() >= 8) else {
            self.shared.statistics.malformed += 1;
            return false;
        };
        let payload = frame.piece(ip.range.start + 8..ip.range.end);
        let fits = ip.length() + 20 <= self.shared.config.mtu.into();
        let (true, Some(piece)) = (icmp[..2] == [8, 0] && fits, payload) else {
            self.shared.statistics.not_ours += 1;
            return false;
        };
        let limits = &self.shared.config.limits;
        if self.packets.len() >= limits.pending || self.echoes >= limits.echoes {
            self.shared.statistics.pending_dropped += 1;
            return false;
        }
        let sum = u32::from(u16::from_be_bytes([icmp[2], icmp[3]])) + 0x0800;
        let sum = (sum & 0xffff) + (sum >> 16);
        icmp[0] = 0;
        icmp[2..4].copy_from_slice(&(sum as u16).to_be_bytes());
        self.shared.statistics.echoes += 1;
        self.echoes += 1;
        self.packets.push_back(Packet::Echo { to: (ip.from, ip.mac), icmp, piece, buffer: frame.buffer });
        true
    }

    fn udp(&mut self, frame: &ReceivedFrame<'_>, ip: &Ip<'_>) {
        let length = ip.head.get(..8).map(|head| u32::from(UdpPacket::new_unchecked(head).len()));
        let Some(length) = length.filter(|length| (8..=ip.length()).contains(length)) else {
            self.shared.statistics.malformed += 1;
            return;
        };
        let packet = UdpPacket::new_unchecked(ip.head);
        let (source, port) = (packet.src_port(), packet.dst_port());
        if !self.ports.contains(&port) {
            self.shared.statistics.no_port += 1;
            return;
        }
        match frame.piece(ip.range.start + 8..ip.range.start + length) {
            Some(piece) => {
                self.shared.event(Event::Datagram { port, from: SocketAddrV4::new(ip.from, source), piece });
            }
            None => self.shared.statistics.malformed += 1,
        }
    }

    fn tcp(&mut self, frame: &ReceivedFrame<'_>, ip: &Ip<'_>, now: Nanos) -> bool {
        let parsed = Segment::parse(ip.head, ip.from.octets(), ip.to.octets());
        let payload = parsed.and_then(|(segment, header)| {
            let start = ip.range.start + header as u32;
            let length = ip.range.end.checked_sub(start)?;
            // Without payload its place does not matter.
            let piece = if length == 0 { None } else { Some(frame.piece(start..ip.range.end)?) };
            Some((segment, piece))
        });
        let Some((mut segment, piece)) = payload else {
            self.shared.statistics.malformed += 1;
            return false;
        };
        segment.payload = piece.map(|piece| Payload { piece, buffer: frame.buffer });
        self.shared.statistics.segments_in += 1;
        let tuple = (segment.to.port(), segment.from);
        if let Some(key) = self.tuples.get(&tuple).copied() {
            return self.connected(key, &segment, now);
        }
        if self.time_waits.contains(&tuple) {
            let lifetime = self.shared.config.tcp.time_wait;
            match self.time_waits.segment(&tuple, &segment, now, lifetime) {
                Answer::Nothing => return false,
                Answer::Acknowledge(header) => {
                    self.reply((ip.from, Some(ip.mac)), header);
                    return false;
                }
                Answer::Open => {}
            }
        }
        let is_open = self.listeners.contains_key(&segment.to.port());
        match (is_open, segment.flags.syn && segment.ack.is_none()) {
            (true, true) => self.accept(&segment, now),
            _ => self.refuse(&segment, ip.mac),
        }
        false
    }

    fn connected(&mut self, key: crate::slab::Key, segment: &Segment, now: Nanos) -> bool {
        let Some(Connection { tcb, .. }) = self.flows.get_mut(key) else { return false };
        let was_open = tcb.is_open();
        let (fate, held) = tcb.segment(segment, now, &mut self.shared);
        if !was_open && tcb.is_open() && tcb.passive {
            let port = tcb.local.port();
            self.no_longer_half_open(port, key);
        }
        self.settle(key, fate, now);
        held
    }

    /// Refuses a segment of a connection that does not exist (RFC 9293, 3.10.7.1).
    fn refuse(&mut self, segment: &Segment, mac: [u8; 6]) {
        self.shared.statistics.no_port += 1;
        if segment.flags.rst {
            return;
        }
        let (seq, ack) = match segment.ack {
            Some(ack) => (ack, None),
            None => (0, Some(segment.seq.wrapping_add(segment.sequence_length()))),
        };
        let flags = Flags { rst: true, ..Flags::default() };
        let ports = (segment.to.port(), segment.from.port());
        self.reply(
            (*segment.from.ip(), Some(mac)),
            Header { ports, seq, ack, flags, window: 0, options: OptionBytes::default() },
        );
    }
}
