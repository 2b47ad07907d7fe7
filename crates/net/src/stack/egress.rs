//! Outgoing frames: ARP first, then packets without a connection, then connections and datagrams in turn.

use super::{Connection, Packet, Sending, Stack, Tuple, Turn};
use crate::checksum::pseudo_header;
use crate::message::{ChecksumOffload, Frame, FrameId, Header, Nanos, Piece, Reason, StreamPart};
use crate::slab::Key;
use crate::tcp::{Fate, Outgoing, segment};
use core::net::Ipv4Addr;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, IpProtocol,
    Ipv4Packet, UdpPacket,
};

/// Size of the Ethernet and IPv4 headers, in bytes.
const BEFORE: usize = 14 + 20;
/// Hops that a packet may take (time to live, RFC 791), where nobody says another number.
pub(super) const HOPS: u8 = 64;

/// The content of an IPv4 packet.
struct Body<'a> {
    to: Ipv4Addr,
    protocol: IpProtocol,
    /// Size of the next protocol's header, in bytes.
    header: usize,
    payload: &'a [Piece],
    /// Payload of each frame that the NIC makes, in bytes.
    segment: Option<u16>,
    /// Time to live, in hops.
    hops: u8,
}

impl Body<'_> {
    fn length(&self) -> usize {
        self.header + self.payload.iter().map(|piece| piece.length as usize).sum::<usize>()
    }
}

impl Stack {
    pub(super) fn egress(&mut self, now: Nanos) -> Option<Frame> {
        if let Some((mac, to)) = self.replies.pop_front() {
            return Some(self.arp_frame(ArpOperation::Reply, mac, mac, to));
        }
        loop {
            while let Some(waiting) = self.neighbours.take_evicted() {
                self.unreachable(waiting, now);
            }
            if let Some(address) = self.neighbours.request() {
                return Some(self.arp_frame(ArpOperation::Request, [0xff; 6], [0; 6], address));
            }
            if let Some(packet) = self.packets.pop_front() {
                match self.packet_frame(packet, now) {
                    Some(frame) => return Some(frame),
                    None => continue,
                }
            }
            let frame = match self.ready.pop_front()? {
                Turn::Flow(key) => self.flow_frame(key, now),
                Turn::Sender(ends) => self.datagram_frame(ends, now),
            };
            if frame.is_some() {
                return frame;
            }
        }
    }

    /// Makes a frame of the connection whose turn it is.
    fn flow_frame(&mut self, key: Key, now: Nanos) -> Option<Frame> {
        let Connection { tcb, queued, .. } = self.flows.get_mut(key)?;
        *queued = false;
        let to = *tcb.remote.ip();
        let hop = self.shared.config.next_hop(to)?;
        // Neighbours that strangers caused give way to peers of the owner's choice.
        let own = tcb.is_open() || !tcb.passive;
        let Some(mac) = self.neighbours.find(hop, own, now) else {
            tcb.note_no_route(now);
            match self.neighbours.wait(hop, Turn::Flow(key)) {
                true => self.schedule(key),
                false => self.park_without_neighbour(key, now),
            }
            return None;
        };
        let outgoing = tcb.transmit(now, &mut self.shared);
        self.schedule(key);
        let outgoing = outgoing?;
        // There may be more, after the other senders' turns.
        self.touch(key);
        Some(self.segment_frame(key, outgoing, mac, to))
    }

    /// Handles a connection for whose neighbour there is no room. An open one tries again when there is; others are ended.
    fn park_without_neighbour(&mut self, key: Key, now: Nanos) {
        self.shared.statistics.pending_dropped += 1;
        match self.flows.get(key) {
            Some(connection) if connection.tcb.is_open() => {
                if !self.stranded.contains(&key) {
                    self.stranded.push(key);
                }
                self.schedule(key);
            }
            _ => self.settle(key, Fate::Closed(Reason::Unreachable), now),
        }
    }

    /// Makes one datagram of the sender whose turn it is.
    fn datagram_frame(&mut self, ends: Tuple, now: Nanos) -> Option<Frame> {
        let (port, to) = ends;
        self.senders.get_mut(&ends)?.queued = false;
        let mac = match group_mac(*to.ip()) {
            Some(mac) => mac,
            None => {
                let hop = self.shared.config.next_hop(*to.ip())?;
                let Some(mac) = self.neighbours.find(hop, true, now) else {
                    if !self.neighbours.wait(hop, Turn::Sender(ends)) {
                        self.drop_unroutable(ends);
                    }
                    return None;
                };
                mac
            }
        };
        let (piece, hops, block) = self.next_datagram(ends)?;
        let sending = Sending { blocks: vec![block], ..Sending::default() };
        let payload = Vec::from_iter((piece.length > 0).then_some(piece));
        let body = Body {
            to: *to.ip(),
            protocol: IpProtocol::Udp,
            header: 8,
            payload: &payload,
            segment: None,
            hops,
        };
        let (mut header, sum) = self.ipv4_header(&body, mac);
        let mut udp = UdpPacket::new_unchecked(&mut header[BEFORE..]);
        udp.set_src_port(port);
        udp.set_dst_port(to.port());
        udp.set_len(body.length() as u16);
        udp.set_checksum(sum);
        let checksum = Some(ChecksumOffload { start: BEFORE as u16, offset: 6 });
        Some(self.frame(header, payload, checksum, None, sending))
    }

    fn arp_frame(
        &mut self,
        operation: ArpOperation,
        mac: [u8; 6],
        target: [u8; 6],
        address: Ipv4Addr,
    ) -> Frame {
        let repr = ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: EthernetAddress(self.shared.config.mac),
            source_protocol_addr: self.shared.config.address,
            target_hardware_addr: EthernetAddress(target),
            target_protocol_addr: address,
        };
        let mut header = Header::zeroed(14 + repr.buffer_len());
        self.ethernet(&mut header, mac, EthernetProtocol::Arp);
        repr.emit(&mut ArpPacket::new_unchecked(&mut header[14..]));
        let id = FrameId(self.sending.insert(Sending::default()));
        Frame { id, header, payload: Vec::new(), checksum: None, segment: None, stream: None }
    }

    fn ethernet(&self, header: &mut [u8], mac: [u8; 6], protocol: EthernetProtocol) {
        let mut frame = EthernetFrame::new_unchecked(header);
        frame.set_dst_addr(EthernetAddress(mac));
        frame.set_src_addr(EthernetAddress(self.shared.config.mac));
        frame.set_ethertype(protocol);
    }

    /// Makes the frame of a packet without a connection, if its neighbour is known. Otherwise the packet waits or is dropped.
    fn packet_frame(&mut self, packet: Packet, now: Nanos) -> Option<Frame> {
        let (to, mac) = match &packet {
            Packet::Tcp(to, mac, _) => (*to, *mac),
            Packet::Echo { to: (to, mac), .. } => (*to, Some(*mac)),
        };
        let Some(hop) = self.shared.config.next_hop(to) else {
            self.drop_packet(packet);
            return None;
        };
        let Some(mac) = mac.or_else(|| self.neighbours.find(hop, false, now)) else {
            if let Err(packet) = self.neighbours.wait_packet(hop, packet) {
                self.drop_packet(packet);
            }
            return None;
        };
        Some(match packet {
            Packet::Tcp(_, _, header) => {
                self.tcp_frame(&header, Vec::new(), None, mac, to, Sending::default())
            }
            Packet::Echo { icmp, piece, buffer, .. } => {
                let sending = Sending { buffer: Some(buffer), ..Sending::default() };
                let payload = Vec::from_iter((piece.length > 0).then_some(piece));
                let body = Body {
                    to,
                    protocol: IpProtocol::Icmp,
                    header: 8,
                    payload: &payload,
                    segment: None,
                    hops: HOPS,
                };
                let (mut header, _) = self.ipv4_header(&body, mac);
                header[BEFORE..].copy_from_slice(&icmp);
                self.frame(header, payload, None, None, sending)
            }
        })
    }

    fn segment_frame(&mut self, key: Key, outgoing: Outgoing, mac: [u8; 6], to: Ipv4Addr) -> Frame {
        let Outgoing { header, payload, segment, new, stream } = outgoing;
        let flow = new.map(|_| crate::message::Flow(key));
        let sending = Sending { flow, blocks: payload.blocks, buffer: None };
        let mut frame = self.tcp_frame(&header, payload.pieces, segment, mac, to, sending);
        frame.stream =
            stream.map(|(offset, most)| StreamPart { flow: crate::message::Flow(key), offset, most });
        if let (Some(end), Some(connection)) = (new, self.flows.get_mut(key)) {
            connection.tcb.frame_taken(frame.id, end);
        }
        frame
    }

    fn tcp_frame(
        &mut self,
        tcp: &segment::Header,
        payload: Vec<Piece>,
        segment: Option<u16>,
        mac: [u8; 6],
        to: Ipv4Addr,
        sending: Sending,
    ) -> Frame {
        self.shared.statistics.segments_out += 1;
        let (protocol, header) = (IpProtocol::Tcp, tcp.len());
        let body = Body { to, protocol, header, payload: &payload, segment, hops: HOPS };
        let (mut header, sum) = self.ipv4_header(&body, mac);
        tcp.emit(&mut header[BEFORE..], sum);
        let checksum = Some(ChecksumOffload { start: BEFORE as u16, offset: 16 });
        self.frame(header, payload, checksum, segment, sending)
    }

    fn frame(
        &mut self,
        header: Header,
        payload: Vec<Piece>,
        checksum: Option<ChecksumOffload>,
        segment: Option<u16>,
        sending: Sending,
    ) -> Frame {
        let id = FrameId(self.sending.insert(sending));
        Frame { id, header, payload, checksum, segment, stream: None }
    }

    /// Makes Ethernet and IPv4 headers, with room for the next one; returns them with the sum of the pseudo header.
    fn ipv4_header(&mut self, body: &Body<'_>, mac: [u8; 6]) -> (Header, u16) {
        let mut header = Header::zeroed(BEFORE + body.header);
        self.ethernet(&mut header, mac, EthernetProtocol::Ipv4);
        let from = self.shared.config.address;
        let length = body.length();
        let mut packet = Ipv4Packet::new_unchecked(&mut header[14..]);
        packet.set_version(4);
        packet.set_header_len(20);
        packet.set_total_len((20 + length) as u16);
        packet.set_ident(self.identification);
        packet.set_hop_limit(body.hops);
        packet.set_next_header(body.protocol);
        packet.set_src_addr(from);
        packet.set_dst_addr(body.to);
        packet.fill_checksum();
        // The NIC numbers the packets that it makes from one.
        let packets =
            body.segment.map_or(1, |segment| (length - body.header).div_ceil(segment.into()) as u16);
        self.identification = self.identification.wrapping_add(packets);
        let counted = if body.segment.is_some() { 0 } else { length as u16 };
        (header, pseudo_header(from.octets(), body.to.octets(), body.protocol, counted).value())
    }
}

/// Returns the Ethernet address of a group (RFC 1112, 6.4); `None` if the address is a host's.
fn group_mac(address: Ipv4Addr) -> Option<[u8; 6]> {
    let [_, b, c, d] = address.octets();
    address.is_multicast().then_some([0x01, 0x00, 0x5e, b & 0x7f, c, d])
}
