//! Descriptors of both formats: encoded for transmission, decoded after reception.

use super::frame::{Checksum, Offload, Transport};
use super::model::Format;

/// Size of a descriptor in bytes, except those of [`Format::PacketSplit`].
pub const LENGTH: u64 = 16;

/// Returns the size of a receive descriptor in bytes.
pub fn receive_length(format: Format) -> u64 {
    if format == Format::PacketSplit { 2 * LENGTH } else { LENGTH }
}

/// A descriptor as it is in memory.
pub type Descriptor = [u8; LENGTH as usize];

fn put(words: [u32; 4]) -> Descriptor {
    let mut bytes = [0; 16];
    for (word, place) in words.iter().zip(bytes.chunks_exact_mut(4)) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Command bits that both formats have in the third word.
const END: u32 = 1 << 24;
const INSERT_FCS: u32 = 1 << 25;
const REPORT: u32 = 1 << 27;
const EXTENSION: u32 = 1 << 29;
/// Bits of the fourth word: insert the IP header's checksum, the transport header's.
const IP_CHECKSUM: u32 = 1 << 8;
const TRANSPORT_CHECKSUM: u32 = 1 << 9;
/// Done bit, in the fourth word of a transmit descriptor and the third one of a receive descriptor.
pub const DONE: u32 = 1;

/// Makes the context that the NIC needs before a frame with `payload` bytes after its headers.
pub fn context(format: Format, offload: &Offload, payload: u32) -> Descriptor {
    let (link, network) = (u32::from(offload.link), u32::from(offload.network));
    let transport = link + network;
    let tcp = offload.transport == Some(Transport::Tcp);
    let (header, size) =
        offload.segment.map_or((0, 0), |segment| (segment.header.into(), segment.size.into()));
    match format {
        Format::Extended | Format::PacketSplit => {
            let end = if offload.ipv4 { transport - 1 } else { 0 };
            let checksum = transport + if tcp { 16 } else { 6 };
            let command = u32::from(tcp) | u32::from(offload.ipv4) << 1 | u32::from(size > 0) << 2;
            put([
                end << 16 | (link + 10) << 8 | link,
                checksum << 8 | transport,
                EXTENSION | command << 24 | if size > 0 { payload } else { 0 },
                size << 16 | if size > 0 { transport + header } else { 0 } << 8,
            ])
        }
        Format::Advanced => put([
            link << 9 | network,
            0,
            EXTENSION | 2 << 20 | u32::from(tcp) << 11 | u32::from(offload.ipv4) << 10,
            size << 16 | header << 8,
        ]),
    }
}

/// The position of a piece in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Set if nothing precedes it.
    pub first: bool,
    /// Set if nothing follows it.
    pub last: bool,
    /// Bytes of the frame, without its headers if it is segmented.
    pub payload: u32,
}

/// Makes the descriptor of a piece of a frame.
pub fn data(
    format: Format,
    address: u64,
    length: u32,
    offload: Option<&Offload>,
    at: Position,
) -> Descriptor {
    let end = if at.last { END | REPORT } else { 0 };
    let common = EXTENSION | INSERT_FCS | end | length;
    let segment = offload.is_some_and(|offload| offload.segment.is_some());
    let insert = offload.map_or(0, |offload| {
        let ip = if offload.ip_checksum { IP_CHECKSUM } else { 0 };
        ip | if offload.transport.is_some() { TRANSPORT_CHECKSUM } else { 0 }
    });
    let (kind, options) = match format {
        Format::Extended | Format::PacketSplit => (1 << 20 | u32::from(segment) << 26, insert),
        Format::Advanced => {
            let first = if at.first { at.payload << 14 | insert } else { 0 };
            (3 << 20 | u32::from(segment) << 31, first)
        }
    };
    put([address as u32, (address >> 32) as u32, common | kind, options])
}

/// A receive descriptor. The second half is used with [`Format::PacketSplit`] alone.
pub type Receive = [u8; 2 * LENGTH as usize];

/// Makes an empty receive descriptor. Without a buffer for headers, `header` is 0.
pub fn empty(format: Format, packet: u64, header: u64) -> Receive {
    let (first, second) = if format == Format::PacketSplit { (header, packet) } else { (packet, header) };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..16].copy_from_slice(&second.to_le_bytes());
    bytes
}

/// The fields of a descriptor that the NIC has written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes in the packet's buffer.
    pub length: u32,
    /// Bytes in the header's buffer. They come before those in the packet's.
    pub header: u32,
    /// Set if the header's buffer has the frame's headers, and nothing else.
    pub split: bool,
    /// Set if the frame ends here. Only then do the following fields hold.
    pub end: bool,
    /// Set if the frame arrived damaged.
    pub damaged: bool,
    pub ip: Checksum,
    pub transport: Checksum,
}

/// Decodes a finished receive descriptor.
pub fn written(format: Format, raw: &Receive) -> Written {
    let word = |number: usize| {
        let at = number * 4;
        u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]])
    };
    let (first, status) = (word(0), word(2));
    let bit = |number: u32| status >> number & 1 != 0;
    let checksum = |checked: bool, bad: bool| match (checked, bad) {
        (false, _) => Checksum::Unknown,
        (true, false) => Checksum::Good,
        (true, true) => Checksum::Bad,
    };
    // Sequence, symbol and carrier extension errors have separate bits in the extended format.
    let (damaged, ignore) = match format {
        Format::Extended | Format::PacketSplit => {
            (bit(31) || bit(24) || bit(25) || bit(26) || bit(28), bit(2))
        }
        Format::Advanced => (bit(31), false),
    };
    let (header, split, length) = match format {
        Format::Extended => (0, false, word(3)),
        Format::Advanced if first >> 31 != 0 => (first >> 21 & 0x3ff, true, word(3)),
        Format::Advanced => (0, false, word(3)),
        Format::PacketSplit => (word(3) & 0xffff, word(4) >> 15 & 1 != 0, word(4) >> 16),
    };
    Written {
        length: length & 0xffff,
        header,
        split,
        end: bit(1),
        damaged,
        ip: checksum(bit(6) && !ignore, bit(30)),
        transport: checksum((bit(5) || bit(4)) && !ignore, bit(29)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::Segmentation;
    use super::*;

    fn word(bytes: &Descriptor, number: usize) -> u32 {
        u32::from_le_bytes(bytes[number * 4..][..4].try_into().unwrap())
    }

    const TCP: Offload = Offload {
        link: 14,
        network: 20,
        ipv4: true,
        ip_checksum: true,
        transport: Some(Transport::Tcp),
        segment: Some(Segmentation { header: 32, size: 1448 }),
    };

    #[test]
    fn contexts_lie_as_the_data_sheets_draw_them() {
        let extended = context(Format::Extended, &TCP, 60_000);
        assert_eq!(extended[..8], [14, 24, 33, 0, 34, 50, 0, 0]);
        assert_eq!(word(&extended, 2), 0x2700_0000 | 60_000);
        assert_eq!(word(&extended, 3), 1448 << 16 | 66 << 8);
        let advanced = context(Format::Advanced, &TCP, 60_000);
        assert_eq!((word(&advanced, 0), word(&advanced, 1)), (14 << 9 | 20, 0));
        assert_eq!((word(&advanced, 2), word(&advanced, 3)), (0x2020_0c00, 1448 << 16 | 32 << 8));
        let udp = Offload { transport: Some(Transport::Udp), segment: None, ipv4: false, network: 40, ..TCP };
        let extended = context(Format::Extended, &udp, 1000);
        assert_eq!(extended[..8], [14, 24, 0, 0, 54, 60, 0, 0]);
        assert_eq!((word(&extended, 2), word(&extended, 3)), (0x2000_0000, 0));
        assert_eq!(word(&context(Format::Advanced, &udp, 1000), 2), 0x2020_0000);
    }

    #[test]
    fn pieces_lie_as_the_data_sheets_draw_them() {
        let at = Position { first: true, last: false, payload: 60_000 };
        let address = 0x12_3456_7890;
        let extended = data(Format::Extended, address, 0x1234, Some(&TCP), at);
        assert_eq!(extended[..8], address.to_le_bytes());
        assert_eq!((word(&extended, 2), word(&extended, 3)), (0x2610_1234, 0x300));
        let advanced = data(Format::Advanced, address, 0x1234, Some(&TCP), at);
        assert_eq!((word(&advanced, 2), word(&advanced, 3)), (0xa230_1234, 60_000 << 14 | 0x300));
        let at = Position { first: false, last: true, payload: 60_000 };
        assert_eq!(word(&data(Format::Extended, 0, 60, None, at), 2), 0x2b10_003c);
        let last = data(Format::Advanced, 0, 60, None, at);
        assert_eq!((word(&last, 2), word(&last, 3)), (0x2b30_003c, 0));
    }

    #[test]
    fn what_was_received_is_read_as_it_lies() {
        let put = |words| [put(words), put([0x8036 | 100 << 16, 0, 0, 0])].concat().try_into().unwrap();
        let raw = put([1 << 31 | 54 << 21, 0, 0x63, 0xffff_0100]);
        let good = written(Format::Advanced, &raw);
        assert_eq!((good.length, good.header, good.end, good.damaged), (256, 54, true, false));
        assert_eq!((good.ip, good.transport), (Checksum::Good, Checksum::Good));
        let extended = written(Format::Extended, &raw);
        assert_eq!((extended.header, extended.transport), (0, Checksum::Good));
        let packet = written(Format::PacketSplit, &put([0, 0, 0x63, 0xffff_0036]));
        assert_eq!((packet.length, packet.header, packet.split, packet.end), (100, 54, true, true));
        let bad = written(Format::Extended, &put([0, 0, 0x6000_0053, 60]));
        assert_eq!((bad.ip, bad.transport, bad.damaged), (Checksum::Bad, Checksum::Bad, false));
        let ignored = written(Format::Extended, &put([0, 0, 0x6000_0057, 60]));
        assert_eq!((ignored.ip, ignored.transport), (Checksum::Unknown, Checksum::Unknown));
        assert!(written(Format::Advanced, &put([0, 0, 0x8000_0001, 60])).damaged);
        assert!(!written(Format::Advanced, &put([0, 0, 1, 60])).end);
    }
}
