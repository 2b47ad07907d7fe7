//! Parsing of received frames. Frames are untrusted: each length is checked before it is used.

use crate::checksum::{fold, pseudo_header, sum};
use crate::uoe::{IPV4, TPID, UDP};
use core::ops::Range;

/// An IPv4 packet that carries UDP, or a fragment of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub mac_destination: [u8; 6],
    pub vlan: Option<u16>,
    pub source: [u8; 4],
    pub destination: [u8; 4],
    pub identification: u16,
    /// Offset of its bytes in the datagram.
    pub offset: usize,
    /// True if more fragments follow.
    pub more: bool,
    /// Range of its bytes in the frame, after IPv4's header.
    pub body: Range<usize>,
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

impl Packet {
    /// Parses a frame. Returns `None` if it is anything else, or its IPv4 header is wrong.
    pub fn of(frame: &[u8]) -> Option<Packet> {
        let (vlan, ip) = match array(frame, 12)? {
            TPID => {
                (array(frame, 16)? == IPV4).then_some(())?;
                (Some(u16::from_be_bytes(array(frame, 14)?) & 0xfff), 18)
            }
            IPV4 => (None, 14),
            _ => return None,
        };
        let [version, _] = array(frame, ip)?;
        let length = usize::from(version & 15) * 4;
        let header = frame.get(ip..ip + length)?;
        let total = usize::from(u16::from_be_bytes(array(header, 2)?));
        let is_whole = version >> 4 == 4 && length >= 20 && total >= length && ip + total <= frame.len();
        if !is_whole || header[9] != UDP || fold(sum(0, header)) != 0xffff {
            return None;
        }
        let flags = u16::from_be_bytes(array(header, 6)?);
        Some(Packet {
            mac_destination: array(frame, 0)?,
            vlan,
            source: array(header, 12)?,
            destination: array(header, 16)?,
            identification: u16::from_be_bytes(array(header, 4)?),
            offset: usize::from(flags & 0x1fff) * 8,
            more: flags & 0x2000 != 0,
            body: ip + length..ip + total,
        })
    }

    pub fn is_fragment(&self) -> bool {
        self.more || self.offset != 0
    }
}

/// Returns the ports of UDP's header, source and destination; `None` if the bytes end before.
pub(crate) fn ports(udp: &[u8]) -> Option<(u16, u16)> {
    Some((u16::from_be_bytes(array(udp, 0)?), u16::from_be_bytes(array(udp, 2)?)))
}

/// Returns the payload of a UDP datagram; `None` if its length or checksum is wrong.
pub(crate) fn payload<'a>(packet: &Packet, udp: &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::from(u16::from_be_bytes(array(udp, 4)?));
    let datagram = udp.get(..length).filter(|_| length >= 8)?;
    let unchecked = array(udp, 6)? == [0, 0];
    let pseudo = pseudo_header(packet.source, packet.destination, length);
    (unchecked || fold(sum(pseudo, datagram)) == 0xffff).then_some(&datagram[8..])
}

/// RTP's header and payload. (RFC 3550, 5.1)
pub(crate) struct Rtp<'a> {
    pub sequence: u16,
    pub ssrc: u32,
    pub payload: &'a [u8],
}

impl<'a> Rtp<'a> {
    /// Parses a packet. Returns `None` if it is not RTP version 2, or ends before its header does.
    pub fn of(bytes: &'a [u8]) -> Option<Rtp<'a>> {
        let [first, _] = array(bytes, 0)?;
        let mut start = 12 + usize::from(first & 15) * 4;
        if first >> 6 != 2 {
            return None;
        }
        if first & 0x10 != 0 {
            let words = u16::from_be_bytes(array(bytes, start + 2)?);
            start += 4 + usize::from(words) * 4;
        }
        let padding = if first & 0x20 != 0 { usize::from(*bytes.last()?) } else { 0 };
        let end = bytes.len().checked_sub(padding).filter(|end| first & 0x20 == 0 || *end < bytes.len())?;
        Some(Rtp {
            sequence: u16::from_be_bytes(array(bytes, 2)?),
            ssrc: u32::from_be_bytes(array(bytes, 8)?),
            payload: bytes.get(start..end)?,
        })
    }
}
