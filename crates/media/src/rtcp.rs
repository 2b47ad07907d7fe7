//! Sender reports (RFC 3550, 6.4.1), with the canonical name (6.5.1) and, at the end, a goodbye (6.6).

/// Seconds from 1900, where NTP's time begins, to 1970.
const NTP_EPOCH: u64 = 2_208_988_800;
const SENDER_REPORT: u8 = 200;
const DESCRIPTION: u8 = 202;
const GOODBYE: u8 = 203;
const CNAME: u8 = 1;

/// Interval between two reports in nanoseconds. (RFC 3550, 6.2: the least that is recommended)
pub const INTERVAL: u64 = 5_000_000_000;

/// A sender report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Identifier of the stream.
    pub ssrc: u32,
    /// Wall clock time: seconds since 1900 in the upper half, their fraction in the lower.
    pub ntp: u64,
    /// Timestamp of the same moment by RTP's clock.
    pub timestamp: u32,
    /// Packets sent.
    pub packets: u32,
    /// Bytes of payload sent.
    pub octets: u32,
}

/// Returns NTP's time of this many nanoseconds since 1970.
pub fn ntp(unix: u64) -> u64 {
    let (seconds, nanos) = (unix / 1_000_000_000 + NTP_EPOCH, unix % 1_000_000_000);
    (seconds << 32) + (nanos << 32) / 1_000_000_000
}

impl Report {
    /// Writes a compound packet: the report, the sender's canonical name, and a goodbye if it is the last.
    pub fn write(&self, name: &str, last: bool) -> Vec<u8> {
        let mut packet = Vec::with_capacity(64);
        head(&mut packet, 0, SENDER_REPORT, 6);
        packet.extend(self.ssrc.to_be_bytes());
        packet.extend(self.ntp.to_be_bytes());
        for word in [self.timestamp, self.packets, self.octets] {
            packet.extend(word.to_be_bytes());
        }
        let name = &name.as_bytes()[..name.len().min(255)];
        // A zero ends the list; zeros fill the word.
        let text = (2 + name.len() + 1).next_multiple_of(4);
        head(&mut packet, 1, DESCRIPTION, 1 + text / 4);
        packet.extend(self.ssrc.to_be_bytes());
        let from = packet.len();
        packet.extend([CNAME, name.len() as u8]);
        packet.extend(name);
        packet.resize(from + text, 0);
        if last {
            head(&mut packet, 1, GOODBYE, 1);
            packet.extend(self.ssrc.to_be_bytes());
        }
        packet
    }

    /// Reads the report of a compound packet; returns `None` if it does not begin with one.
    pub fn parse(packet: &[u8]) -> Option<Report> {
        let bytes: &[u8; 28] = packet.first_chunk()?;
        if bytes[0] >> 6 != 2 || bytes[1] != SENDER_REPORT {
            return None;
        }
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Some(Report {
            ssrc: word(4),
            ntp: u64::from(word(8)) << 32 | u64::from(word(12)),
            timestamp: word(16),
            packets: word(20),
            octets: word(24),
        })
    }
}

/// Writes a packet's header, which `words` words follow.
fn head(packet: &mut Vec<u8>, count: u8, kind: u8, words: usize) {
    packet.extend([0x80 | count, kind]);
    packet.extend((words as u16).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ntp_counts_from_1900() {
        assert_eq!(ntp(0), NTP_EPOCH << 32);
        assert_eq!(ntp(500_000_000), NTP_EPOCH << 32 | 0x8000_0000);
    }

    proptest! {
        #[test]
        fn packets_are_as_long_as_they_say(
            ssrc: u32, ntp: u64, timestamp: u32, packets: u32, octets: u32, name in "[a-z@.]{0,300}", last: bool,
        ) {
            let report = Report { ssrc, ntp, timestamp, packets, octets };
            let bytes = report.write(&name, last);
            prop_assert_eq!(Report::parse(&bytes), Some(report));
            let (mut rest, mut kinds) = (&bytes[..], Vec::new());
            while !rest.is_empty() {
                prop_assert_eq!(rest[0] >> 6, 2);
                kinds.push(rest[1]);
                rest = &rest[4 + usize::from(u16::from_be_bytes([rest[2], rest[3]])) * 4..];
            }
            prop_assert_eq!(kinds, if last { vec![200, 202, 203] } else { vec![200, 202] });
        }
    }
}
