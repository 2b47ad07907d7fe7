//! RTP's header (RFC 3550, 5.1) for transport streams (RFC 2250, RFC 3551: payload type 33, 90 kHz).

/// Size of the header that is written, in bytes.
pub const HEADER: usize = 12;
/// Payload type of an MPEG transport stream. (RFC 3551, table 5)
pub const MP2T: u8 = 33;
/// Ticks of the timestamp per second.
pub const CLOCK: u64 = 90_000;

/// An RTP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Set if the timestamp jumps here (RFC 2250, 2.1).
    pub marker: bool,
    /// Type of the payload.
    pub payload_type: u8,
    /// Sequence number.
    pub sequence: u16,
    /// Timestamp, 90 kHz.
    pub timestamp: u32,
    /// Synchronisation source: the stream.
    pub ssrc: u32,
}

impl Header {
    /// Makes a stream's first header: its identifier, first sequence number and first timestamp are derived
    /// from an unpredictable number (RFC 3550, 5.1).
    pub fn random(number: u64) -> Header {
        Header {
            ssrc: number as u32,
            sequence: (number >> 32) as u16,
            timestamp: (number >> 16) as u32 ^ (number >> 48) as u32,
            ..Header::default()
        }
    }

    /// Writes the header: version 2, no padding, no extension, no contributors.
    pub fn write(&self, into: &mut [u8; HEADER]) {
        into[0] = 0x80;
        into[1] = u8::from(self.marker) << 7 | self.payload_type & 0x7f;
        into[2..4].copy_from_slice(&self.sequence.to_be_bytes());
        into[4..8].copy_from_slice(&self.timestamp.to_be_bytes());
        into[8..].copy_from_slice(&self.ssrc.to_be_bytes());
    }

    /// Reads a packet: returns its header and its payload, without contributors, extension and padding; `None` if it is not RTP version 2.
    pub fn parse(packet: &[u8]) -> Option<(Header, &[u8])> {
        let head: &[u8; HEADER] = packet.first_chunk()?;
        if head[0] >> 6 != 2 {
            return None;
        }
        let mut payload = packet.get(HEADER + usize::from(head[0] & 15) * 4..)?;
        if head[0] & 0x10 != 0 {
            let extension: &[u8; 4] = payload.first_chunk()?;
            let words = usize::from(u16::from_be_bytes([extension[2], extension[3]]));
            payload = payload.get(4 + words * 4..)?;
        }
        if head[0] & 0x20 != 0 {
            let padding = usize::from(*payload.last()?);
            let kept = payload.len().checked_sub(padding).filter(|_| padding > 0)?;
            payload = &payload[..kept];
        }
        let header = Header {
            marker: head[1] & 0x80 != 0,
            payload_type: head[1] & 0x7f,
            sequence: u16::from_be_bytes([head[2], head[3]]),
            timestamp: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
            ssrc: u32::from_be_bytes([head[8], head[9], head[10], head[11]]),
        };
        Some((header, payload))
    }
}

/// Returns the ticks of RTP's clock in this many nanoseconds.
pub fn ticks(nanos: u64) -> u32 {
    (u128::from(nanos) * u128::from(CLOCK) / 1_000_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn contributors_extension_and_padding_come_off() {
        let mut packet = vec![0xb1, 0xa1, 0, 7, 0, 0, 0, 9, 0, 0, 0, 3];
        packet.extend([1, 1, 1, 1]);
        packet.extend([0xbe, 0xde, 0, 1, 5, 5, 5, 5]);
        packet.extend([10, 11, 0, 2]);
        let (header, payload) = Header::parse(&packet).unwrap();
        let expected = Header { marker: true, payload_type: 33, sequence: 7, timestamp: 9, ssrc: 3 };
        assert_eq!((header, payload), (expected, &[10u8, 11][..]));
        for length in 0..packet.len() - 1 {
            // In a truncated packet, the last byte is a different padding length, which may still fit.
            if let Some((_, payload)) = Header::parse(&packet[..length]) {
                assert!(payload.len() < 4, "{length}");
            }
        }
        packet[0] = 0x71;
        assert_eq!(Header::parse(&packet), None, "another version");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            marker: bool, payload_type in 0u8..128, sequence: u16, timestamp: u32, ssrc: u32, payload: Vec<u8>,
        ) {
            let header = Header { marker, payload_type, sequence, timestamp, ssrc };
            let mut packet = [0; HEADER];
            header.write(&mut packet);
            let packet = [&packet[..], &payload].concat();
            prop_assert_eq!(Header::parse(&packet), Some((header, &payload[..])));
        }

        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>) {
            if let Some((_, payload)) = Header::parse(&bytes) {
                prop_assert!(payload.len() + HEADER <= bytes.len());
            }
        }
    }
}
