//! The registers of the UDP offload engine: a packet's headers as a template. [Table II]
//!
//! Byte i of a register in memory is byte i of the header on the wire: fields of several bytes are in network order.

use crate::checksum::{fold, pseudo_header, sum};
use crate::interface::Nanos;
use alloc::vec::Vec;

/// MAC Dst: bytes 0 to 5.
pub const MAC_DESTINATION: u64 = 0x00;
/// MAC Src: bytes 0 to 5.
pub const MAC_SOURCE: u64 = 0x08;
/// 802.1Q: bytes 0 to 3 are the tag, if the first two are 81h 00h. Bytes 4 and 5, the EtherType, are the
/// NIC's.
pub const TAG: u64 = 0x10;
/// IP Header 1: version and IHL, DSCP and ECN, length, identification, flags and fragment offset.
pub const IP_1: u64 = 0x18;
/// IP Header 2: TTL, protocol, checksum, source address.
pub const IP_2: u64 = 0x20;
/// IP Header 3: bytes 0 to 3 are the destination address.
pub const IP_3: u64 = 0x28;
/// UDP Header: ports, length, checksum.
pub const UDP_HEADER: u64 = 0x30;
/// RTP Header 1: version and flags, marker and payload type, sequence number, timestamp. It is there if the
/// version is 2.
pub const RTP_1: u64 = 0x38;
/// RTP Header 2: bytes 0 to 3 are the SSRC.
pub const RTP_2: u64 = 0x40;
/// Payload bytes of a packet, bits 15:0, without the RTP header. (Not in Table II.)
pub const PAYLOAD: u64 = 0x48;
/// Registers of a stream.
pub const COUNT: usize = 10;

/// IPv4's number of UDP.
pub(crate) const UDP: u8 = 17;
pub(crate) const TPID: [u8; 2] = [0x81, 0x00];
pub(crate) const IPV4: [u8; 2] = [0x08, 0x00];
/// Ticks of RTP's clock in a second, for MPEG. (RFC 2250)
const CLOCK: u128 = 90_000;

/// The registers do not hold a valid template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum TemplateError {
    #[error("the MAC destination is zero, or the source is a group address")]
    Mac,
    #[error("the tag is neither 802.1Q's nor zero")]
    Tag,
    #[error("the IP header is not one of IPv4 without options that carries UDP, unfragmented, with a TTL")]
    Ip,
    #[error("the destination address or port is zero")]
    Destination,
    #[error("the RTP header has a version other than 2, padding, an extension or contributors")]
    Rtp,
    #[error("the payload is zero, or more than a packet of the NIC carries")]
    Payload,
}

/// RTP's part of a template. (RFC 3550)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtp {
    /// Marker, bit 7, and payload type: 33 for MPEG transport streams (RFC 3551).
    pub kind: u8,
    /// Sequence number of the first packet.
    pub sequence: u16,
    /// Timestamp of the first packet.
    pub timestamp: u32,
    /// The synchronization source.
    pub ssrc: u32,
}

/// The headers of a stream's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Template {
    /// Destination MAC address.
    pub mac_destination: [u8; 6],
    /// Source MAC address.
    pub mac_source: [u8; 6],
    /// 802.1Q's tag control information. None: no tag.
    pub tag: Option<u16>,
    /// DSCP and ECN.
    pub service: u8,
    /// Identification of the first packet.
    pub identification: u16,
    /// True if packets must not be fragmented (DF).
    pub dont_fragment: bool,
    /// Time to live.
    pub ttl: u8,
    /// Source IPv4 address.
    pub source: [u8; 4],
    /// Destination IPv4 address.
    pub destination: [u8; 4],
    /// Source UDP port.
    pub source_port: u16,
    /// Destination UDP port.
    pub destination_port: u16,
    /// RTP's part; `None` for packets without RTP.
    pub rtp: Option<Rtp>,
    /// Payload bytes of a packet, without RTP's header: 1,316 for seven packets of an MPEG transport stream.
    pub payload: u16,
}

/// The bytes of the registers, in one row.
type Bytes = [[u8; 8]; COUNT];

fn bytes_of(registers: &[u64; COUNT]) -> Bytes {
    registers.map(u64::to_le_bytes)
}

fn start<const N: usize>(register: [u8; 8]) -> [u8; N] {
    core::array::from_fn(|at| register[at])
}

fn word(register: [u8; 8], at: usize) -> u16 {
    u16::from_be_bytes([register[at], register[at + 1]])
}

fn tag_of(register: [u8; 8]) -> Result<Option<u16>, TemplateError> {
    match start::<2>(register) {
        TPID => Ok(Some(word(register, 2))),
        [0, 0] => Ok(None),
        _ => Err(TemplateError::Tag),
    }
}

fn rtp_of(bytes: &Bytes) -> Result<Option<Rtp>, TemplateError> {
    let head = bytes[7];
    match head[0] {
        0x80 => Ok(Some(Rtp {
            kind: head[1],
            sequence: word(head, 2),
            timestamp: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
            ssrc: u32::from_be_bytes(start(bytes[8])),
        })),
        0 => Ok(None),
        _ => Err(TemplateError::Rtp),
    }
}

impl Template {
    /// Parses the registers' values, and checks that a NIC with this MTU can send such packets.
    pub fn from_registers(registers: &[u64; COUNT], mtu: u16) -> Result<Template, TemplateError> {
        let bytes = bytes_of(registers);
        let (first, second) = (bytes[3], bytes[4]);
        let flags = word(first, 6);
        if first[0] != 0x45 || second[1] != UDP || flags & !0x4000 != 0 || second[0] == 0 {
            return Err(TemplateError::Ip);
        }
        let template = Template {
            mac_destination: start(bytes[0]),
            mac_source: start(bytes[1]),
            tag: tag_of(bytes[2])?,
            service: first[1],
            identification: word(first, 4),
            dont_fragment: flags != 0,
            ttl: second[0],
            source: [second[4], second[5], second[6], second[7]],
            destination: start(bytes[5]),
            source_port: word(bytes[6], 0),
            destination_port: word(bytes[6], 2),
            rtp: rtp_of(&bytes)?,
            payload: registers[9] as u16,
        };
        if template.mac_destination == [0; 6] || template.mac_source[0] & 1 != 0 {
            return Err(TemplateError::Mac);
        }
        if template.destination == [0; 4] || template.destination_port == 0 {
            return Err(TemplateError::Destination);
        }
        let largest = usize::from(mtu).saturating_sub(template.ip_headers());
        if template.payload == 0 || usize::from(template.payload) > largest {
            return Err(TemplateError::Payload);
        }
        Ok(template)
    }

    /// Returns the registers' values. Fields that the NIC fills are zero.
    pub fn registers(&self) -> [u64; COUNT] {
        let mut bytes: Bytes = [[0; 8]; COUNT];
        bytes[0][..6].copy_from_slice(&self.mac_destination);
        bytes[1][..6].copy_from_slice(&self.mac_source);
        if let Some(tag) = self.tag {
            bytes[2][..2].copy_from_slice(&TPID);
            bytes[2][2..4].copy_from_slice(&tag.to_be_bytes());
        }
        let ip = self.ip_header(self.identification, 0, false);
        bytes[3].copy_from_slice(&ip[..8]);
        bytes[4].copy_from_slice(&ip[8..16]);
        bytes[5][..4].copy_from_slice(&self.destination);
        bytes[6][..2].copy_from_slice(&self.source_port.to_be_bytes());
        bytes[6][2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        if let Some(rtp) = self.rtp {
            bytes[7] = rtp.head(rtp.sequence, rtp.timestamp);
            bytes[8][..4].copy_from_slice(&rtp.ssrc.to_be_bytes());
        }
        bytes[9][..2].copy_from_slice(&self.payload.to_le_bytes());
        bytes.map(u64::from_le_bytes)
    }

    /// Returns the size of the headers from IPv4's on.
    fn ip_headers(&self) -> usize {
        20 + 8 + if self.rtp.is_some() { 12 } else { 0 }
    }

    /// Returns IPv4's header, with its checksum if `whole`.
    fn ip_header(&self, identification: u16, length: u16, whole: bool) -> [u8; 20] {
        let mut header = [0; 20];
        header[0] = 0x45;
        header[1] = self.service;
        header[2..4].copy_from_slice(&length.to_be_bytes());
        header[4..6].copy_from_slice(&identification.to_be_bytes());
        header[6] = if self.dont_fragment { 0x40 } else { 0 };
        header[8] = self.ttl;
        header[9] = UDP;
        header[12..16].copy_from_slice(&self.source);
        header[16..].copy_from_slice(&self.destination);
        if whole {
            let checksum = !fold(sum(0, &header));
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        header
    }
}

impl Rtp {
    fn head(&self, sequence: u16, timestamp: u32) -> [u8; 8] {
        let ([a, b], [c, d, e, f]) = (sequence.to_be_bytes(), timestamp.to_be_bytes());
        [0x80, self.kind, a, b, c, d, e, f]
    }
}

/// A template in use: counts packets, and keeps the time of the first.
#[derive(Clone, Debug)]
pub(crate) struct Packets {
    pub template: Template,
    count: u64,
    first: Nanos,
}

impl Packets {
    pub fn new(template: Template) -> Packets {
        Packets { template, count: 0, first: 0 }
    }

    /// Returns the frame of a packet that leaves at `now`, without the frame check sequence and padding, which are the MAC's.
    pub fn frame(&mut self, payload: &[u8], now: Nanos) -> Vec<u8> {
        if self.count == 0 {
            self.first = now;
        }
        let template = &self.template;
        let number = self.count as u16;
        self.count += 1;
        let total = template.ip_headers() + payload.len();
        let mut frame = Vec::with_capacity(18 + total);
        frame.extend(template.mac_destination);
        frame.extend(template.mac_source);
        if let Some(tag) = template.tag {
            frame.extend(TPID);
            frame.extend(tag.to_be_bytes());
        }
        frame.extend(IPV4);
        frame.extend(template.ip_header(template.identification.wrapping_add(number), total as u16, true));
        let udp = frame.len();
        frame.extend(template.source_port.to_be_bytes());
        frame.extend(template.destination_port.to_be_bytes());
        frame.extend((total as u16 - 20).to_be_bytes());
        frame.extend([0; 2]);
        if let Some(rtp) = template.rtp {
            let ticks = u128::from(now.saturating_sub(self.first)) * CLOCK / 1_000_000_000;
            frame.extend(
                rtp.head(rtp.sequence.wrapping_add(number), rtp.timestamp.wrapping_add(ticks as u32)),
            );
            frame.extend(rtp.ssrc.to_be_bytes());
        }
        frame.extend_from_slice(payload);
        let pseudo = pseudo_header(template.source, template.destination, total - 20);
        // Zero means no checksum; 0xffff is the same number in one's complement. (RFC 768)
        let checksum = match !fold(sum(pseudo, &frame[udp..])) {
            0 => 0xffff,
            checksum => checksum,
        };
        frame[udp + 6..udp + 8].copy_from_slice(&checksum.to_be_bytes());
        frame
    }
}

/// The packets that a stream receives, from the same registers. Zero matches anything, except in the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Filter {
    /// VLAN. None: packets without a tag.
    pub vlan: Option<u16>,
    pub destination: [u8; 4],
    pub destination_port: u16,
    pub source: [u8; 4],
    pub source_port: u16,
}

/// Further demands on a stream's packets. A packet that does not meet them is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demands {
    pub mac_destination: [u8; 6],
    /// SSRC of RTP's header (0: any); `None` for packets without RTP.
    pub ssrc: Option<u32>,
}

impl Filter {
    /// Parses the registers' values, for a stream that receives.
    pub fn from_registers(registers: &[u64; COUNT]) -> Result<(Filter, Demands), TemplateError> {
        let bytes = bytes_of(registers);
        let second = bytes[4];
        let filter = Filter {
            vlan: tag_of(bytes[2])?.map(|tag| tag & 0xfff),
            destination: start(bytes[5]),
            destination_port: word(bytes[6], 2),
            source: [second[4], second[5], second[6], second[7]],
            source_port: word(bytes[6], 0),
        };
        if filter.destination == [0; 4] || filter.destination_port == 0 {
            return Err(TemplateError::Destination);
        }
        let demands = Demands { mac_destination: start(bytes[0]), ssrc: rtp_of(&bytes)?.map(|rtp| rtp.ssrc) };
        Ok((filter, demands))
    }
}
