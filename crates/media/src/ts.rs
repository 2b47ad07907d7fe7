//! Packets of an MPEG transport stream (ISO/IEC 13818-1, 2.4.3).

/// Size of a packet in bytes.
pub const PACKET: usize = 188;
/// First byte of each packet.
pub const SYNC: u8 = 0x47;
/// Packets per datagram: as many as fit into 1,500 bytes with the headers of IP, UDP and RTP.
pub const PACKETS: usize = 7;
/// Size of a datagram's payload in bytes.
pub const PAYLOAD: usize = PACKET * PACKETS;
/// PID of null packets.
pub const NULL: u16 = 0x1fff;
/// Ticks of the system clock per second.
pub const CLOCK: u64 = 27_000_000;
/// Value at which the clock reference wraps: 2^33 times 300.
pub const WRAP: u64 = (1 << 33) * 300;

/// Flags in bytes 3 and 5 for the fields that are present.
const HAS_PAYLOAD: u8 = 0x10;
const HAS_ADAPTATION: u8 = 0x20;
const DISCONTINUITY: u8 = 0x80;
const HAS_PCR: u8 = 0x10;

/// The fields of a packet's header that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Packet identifier.
    pub pid: u16,
    /// Continuity counter, 0 to 15.
    pub counter: u8,
    /// Set if it carries payload: only then is it counted.
    pub has_payload: bool,
    /// Set if its clock, or its counter, starts over.
    pub discontinuity: bool,
    /// Program clock reference, in ticks of 27 MHz.
    pub pcr: Option<u64>,
}

impl Packet {
    /// Reads a packet; returns `None` if it does not begin with the sync byte.
    pub fn parse(bytes: &[u8; PACKET]) -> Option<Packet> {
        if bytes[0] != SYNC {
            return None;
        }
        // Byte 4 is the length of the adaptation field after it; with length 0 it has no flags.
        let flags = if bytes[3] & HAS_ADAPTATION != 0 && bytes[4] > 0 { bytes[5] } else { 0 };
        let has_pcr = flags & HAS_PCR != 0 && bytes[4] >= 7;
        Some(Packet {
            pid: u16::from_be_bytes([bytes[1] & 0x1f, bytes[2]]),
            counter: bytes[3] & 0xf,
            has_payload: bytes[3] & HAS_PAYLOAD != 0,
            discontinuity: flags & DISCONTINUITY != 0,
            pcr: has_pcr.then(|| pcr(bytes)),
        })
    }
}

/// Reads a PCR: 33 bits of 90 kHz, 6 reserved, 9 bits of 27 MHz.
fn pcr(bytes: &[u8; PACKET]) -> u64 {
    let word = u64::from_be_bytes([0, 0, bytes[6], bytes[7], bytes[8], bytes[9], bytes[10], bytes[11]]);
    (word >> 15) * 300 + (word & 0x1ff)
}

/// Sets a packet's continuity counter.
pub fn set_counter(bytes: &mut [u8], counter: u8) {
    bytes[3] = bytes[3] & 0xf0 | counter & 0xf;
}

/// Sets the indicator that the clock starts over with this packet, which has a PCR.
pub fn set_discontinuity(bytes: &mut [u8]) {
    bytes[5] |= DISCONTINUITY;
}

/// Returns the ticks from one clock reference to a later one.
pub fn ticks(from: u64, to: u64) -> u64 {
    (to % WRAP + WRAP - from % WRAP) % WRAP
}

/// Makes a packet, for tests and examples: with a clock reference and no payload, or with payload of this byte.
pub fn make(pid: u16, counter: u8, pcr: Option<u64>, fill: u8) -> [u8; PACKET] {
    let mut bytes = [fill; PACKET];
    bytes[0] = SYNC;
    bytes[1..3].copy_from_slice(&(pid & 0x1fff).to_be_bytes());
    bytes[3] = counter & 0xf | if pcr.is_some() { HAS_ADAPTATION } else { HAS_PAYLOAD };
    if let Some(pcr) = pcr {
        bytes[4] = (PACKET - 5) as u8;
        bytes[5] = HAS_PCR;
        let (base, extension) = (pcr % WRAP / 300, pcr % 300);
        let word = base << 15 | 0x3f << 9 | extension;
        bytes[6..12].copy_from_slice(&word.to_be_bytes()[2..]);
        bytes[12..].fill(0xff);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_packet_of_the_specification_is_read() {
        // Table 2-2 and 2-6: PID 0x100, adaptation field alone, PCR base 1, extension 2.
        let mut bytes = [0xff; PACKET];
        bytes[..12].copy_from_slice(&[0x47, 0x01, 0x00, 0x25, 183, 0x90, 0, 0, 0, 0, 0xfe, 0x02]);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!((packet.pid, packet.counter, packet.has_payload), (0x100, 5, false));
        assert!(packet.discontinuity);
        assert_eq!(packet.pcr, Some(302));
        bytes[4] = 6;
        assert_eq!(Packet::parse(&bytes).unwrap().pcr, None, "no room for one");
        bytes[4] = 0;
        assert!(!Packet::parse(&bytes).unwrap().discontinuity, "no flags");
        bytes[0] = 0x48;
        assert_eq!(Packet::parse(&bytes), None);
    }

    #[test]
    fn the_clock_wraps() {
        assert_eq!(ticks(WRAP - 1, 1), 2);
        assert_eq!(ticks(5, 5), 0);
        assert_eq!(ticks(6, 5), WRAP - 1);
    }

    proptest! {
        #[test]
        fn what_is_made_is_read(pid in 0u16..0x2000, counter in 0u8..16, pcr in prop::option::of(0..WRAP), fill: u8) {
            let mut bytes = make(pid, counter, pcr, fill);
            let packet = Packet::parse(&bytes).unwrap();
            prop_assert_eq!((packet.pid, packet.counter, packet.pcr), (pid, counter, pcr));
            prop_assert_eq!(packet.has_payload, pcr.is_none());
            set_counter(&mut bytes, counter + 3);
            prop_assert_eq!(Packet::parse(&bytes).unwrap().counter, (counter + 3) & 15);
            if pcr.is_some() {
                set_discontinuity(&mut bytes);
                let again = Packet::parse(&bytes).unwrap();
                prop_assert_eq!((again.discontinuity, again.pcr), (true, pcr));
            }
        }

        #[test]
        fn any_bytes_are_read(bytes: [u8; PACKET]) {
            let _ = Packet::parse(&bytes);
        }
    }
}
