//! TCP segments on the wire: parsed from the first bytes of a frame, and built.

use super::receiver::Payload;
use core::net::SocketAddrV4;
use core::ops::Range;
use smoltcp::wire::{TcpOption, TcpPacket, TcpSeqNumber};

/// A received segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) from: SocketAddrV4,
    pub(crate) to: SocketAddrV4,
    pub(crate) seq: u32,
    pub(crate) ack: Option<u32>,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    pub(crate) options: Options,
    pub(crate) payload: Option<Payload>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) syn: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
    pub(crate) psh: bool,
}

/// A value and its echo (RFC 7323).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timestamp {
    pub(crate) value: u32,
    pub(crate) echo: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) mss: Option<u16>,
    pub(crate) scale: Option<u8>,
    pub(crate) sack_permitted: bool,
    pub(crate) timestamp: Option<Timestamp>,
    pub(crate) sacks: [Option<(u32, u32)>; 3],
}

impl Segment {
    pub(crate) fn length(&self) -> u32 {
        self.payload.map_or(0, |payload| payload.piece.length)
    }

    /// Returns its length in the sequence space.
    pub(crate) fn sequence_length(&self) -> u32 {
        self.length() + u32::from(self.flags.syn) + u32::from(self.flags.fin)
    }

    /// Parses a TCP header; addresses and payload come from the caller. Returns the segment and the header's length, `None` if the header
    /// is invalid.
    pub(crate) fn parse(tcp: &[u8], from: [u8; 4], to: [u8; 4]) -> Option<(Segment, usize)> {
        let packet = TcpPacket::new_checked(tcp).ok()?;
        let flags = Flags { syn: packet.syn(), fin: packet.fin(), rst: packet.rst(), psh: packet.psh() };
        let ports = (packet.src_port(), packet.dst_port());
        let is_nonsense = flags.syn && (flags.fin || flags.rst);
        if ports.0 == 0 || ports.1 == 0 || is_nonsense {
            return None;
        }
        let segment = Segment {
            from: SocketAddrV4::new(from.into(), ports.0),
            to: SocketAddrV4::new(to.into(), ports.1),
            seq: packet.seq_number().0 as u32,
            ack: packet.ack().then(|| packet.ack_number().0 as u32),
            flags,
            window: packet.window_len(),
            options: Options::parse(packet.options(), flags.syn),
            payload: None,
        };
        Some((segment, packet.header_len().into()))
    }
}

impl Options {
    /// Parses options. A malformed option ends the list; those before it are used.
    fn parse(mut bytes: &[u8], syn: bool) -> Options {
        let mut options = Options::default();
        while let Ok((rest, option)) = TcpOption::parse(bytes) {
            bytes = rest;
            match option {
                TcpOption::EndOfList => break,
                TcpOption::MaxSegmentSize(mss) if syn => options.mss = Some(mss),
                TcpOption::WindowScale(scale) if syn => options.scale = Some(scale.min(14)),
                TcpOption::SackPermitted if syn => options.sack_permitted = true,
                TcpOption::SackRange(sacks) => options.sacks = sacks,
                TcpOption::TimeStamp { tsval, tsecr } => {
                    options.timestamp = Some(Timestamp { value: tsval, echo: tsecr });
                }
                _ => {}
            }
        }
        options
    }
}

/// The header of a segment to send.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) ports: (u16, u16),
    pub(crate) seq: u32,
    pub(crate) ack: Option<u32>,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    pub(crate) options: OptionBytes,
}

/// Encoded options, padded to whole words.
#[derive(Clone, Debug)]
pub(crate) struct OptionBytes {
    bytes: [u8; 40],
    length: usize,
}

impl Default for OptionBytes {
    fn default() -> OptionBytes {
        OptionBytes { bytes: [0; 40], length: 0 }
    }
}

impl OptionBytes {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    pub(crate) fn mss(&mut self, mss: u16) {
        self.put(&[2, 4]);
        self.put(&mss.to_be_bytes());
    }

    pub(crate) fn scale(&mut self, scale: u8) {
        self.put(&[1, 3, 3, scale]);
    }

    pub(crate) fn sack_permitted(&mut self) {
        self.put(&[1, 1, 4, 2]);
    }

    pub(crate) fn timestamp(&mut self, timestamp: Timestamp) {
        self.put(&[1, 1, 8, 10]);
        self.put(&timestamp.value.to_be_bytes());
        self.put(&timestamp.echo.to_be_bytes());
    }

    /// Adds as many ranges as fit.
    pub(crate) fn sacks(&mut self, ranges: impl Iterator<Item = Range<u32>>) {
        let room = (40 - self.length).saturating_sub(4) / 8;
        let ranges: Vec<_> = ranges.take(room).collect();
        if ranges.is_empty() {
            return;
        }
        self.put(&[1, 1, 5, 2 + 8 * ranges.len() as u8]);
        for range in ranges {
            self.put(&range.start.to_be_bytes());
            self.put(&range.end.to_be_bytes());
        }
    }
}

impl Header {
    pub(crate) fn len(&self) -> usize {
        20 + self.options.length
    }

    /// Writes the header, with `checksum` in the checksum field.
    pub(crate) fn emit(&self, bytes: &mut [u8], checksum: u16) {
        let mut packet = TcpPacket::new_unchecked(bytes);
        packet.set_src_port(self.ports.0);
        packet.set_dst_port(self.ports.1);
        packet.set_seq_number(TcpSeqNumber(self.seq as i32));
        packet.set_ack_number(TcpSeqNumber(self.ack.unwrap_or(0) as i32));
        packet.clear_flags();
        packet.set_syn(self.flags.syn);
        packet.set_fin(self.flags.fin);
        packet.set_rst(self.flags.rst);
        packet.set_psh(self.flags.psh);
        packet.set_ack(self.ack.is_some());
        packet.set_header_len(self.len() as u8);
        packet.set_window_len(self.window);
        packet.set_urgent_at(0);
        packet.set_checksum(checksum);
        packet.options_mut().copy_from_slice(&self.options.bytes[..self.options.length]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_parses() {
        let mut options = OptionBytes::default();
        options.mss(1460);
        options.scale(7);
        options.sack_permitted();
        options.timestamp(Timestamp { value: 5, echo: 6 });
        options.sacks([1..2, 3..4, 5..6].into_iter());
        assert_eq!(options.length, 36, "one range fits");
        let flags = Flags { syn: true, psh: true, ..Flags::default() };
        let header = Header { ports: (80, 1234), seq: u32::MAX, ack: Some(7), flags, window: 9, options };
        let mut bytes = vec![0xaa; header.len()];
        header.emit(&mut bytes, 0);
        let (segment, length) = Segment::parse(&bytes, [1, 2, 3, 4], [5, 6, 7, 8]).unwrap();
        assert_eq!(length, bytes.len());
        assert_eq!(
            (segment.from, segment.to),
            ("1.2.3.4:80".parse().unwrap(), "5.6.7.8:1234".parse().unwrap())
        );
        assert_eq!((segment.seq, segment.ack, segment.window), (u32::MAX, Some(7), 9));
        assert_eq!(segment.flags, flags);
        let expected = Options {
            mss: Some(1460),
            scale: Some(7),
            sack_permitted: true,
            timestamp: Some(Timestamp { value: 5, echo: 6 }),
            sacks: [Some((1, 2)), None, None],
        };
        assert_eq!(segment.options, expected);
        for cut in 0..bytes.len() {
            assert!(Segment::parse(&bytes[..cut], [1; 4], [2; 4]).is_none());
        }
    }
}
