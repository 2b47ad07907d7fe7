//! Builds and parses frames in software, for comparison with a NIC's work.

use dcs_drivers::nic::{Offload, Segmentation, Transport};

/// The ones' complement sum of big-endian words, folded. [RFC 1071]
pub fn sum(parts: &[&[u8]]) -> u16 {
    let bytes: Vec<u8> = parts.concat();
    let mut total: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// The parts of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub ipv4: bool,
    pub transport: Transport,
}

pub const KINDS: [Kind; 4] = [
    Kind { ipv4: true, transport: Transport::Tcp },
    Kind { ipv4: true, transport: Transport::Udp },
    Kind { ipv4: false, transport: Transport::Tcp },
    Kind { ipv4: false, transport: Transport::Udp },
];

impl Kind {
    fn protocol(self) -> u8 {
        if self.transport == Transport::Tcp { 6 } else { 17 }
    }

    pub fn network(self) -> usize {
        if self.ipv4 { 20 } else { 40 }
    }

    /// Returns the length of the transport header; TCP's has 12 bytes of options.
    pub fn transport_header(self) -> usize {
        if self.transport == Transport::Tcp { 32 } else { 8 }
    }

    pub fn headers(self) -> usize {
        14 + self.network() + self.transport_header()
    }

    /// Returns the offset of the transport header's checksum in a frame.
    fn checksum_at(self) -> usize {
        14 + self.network() + if self.transport == Transport::Tcp { 16 } else { 6 }
    }

    fn addresses(self, frame: &[u8]) -> &[u8] {
        if self.ipv4 { &frame[26..34] } else { &frame[22..54] }
    }

    fn pseudo(self, frame: &[u8], length: u16) -> u16 {
        sum(&[self.addresses(frame), &[0, self.protocol()], &length.to_be_bytes()])
    }

    pub fn offload(self, segment: Option<u16>) -> Offload {
        Offload {
            link: 14,
            network: self.network() as u16,
            ipv4: self.ipv4,
            ip_checksum: self.ipv4,
            transport: Some(self.transport),
            segment: segment.map(|size| Segmentation { header: self.transport_header() as u8, size }),
        }
    }

    /// Returns a frame with correct lengths and no checksums yet.
    fn plain(self, to: [u8; 6], payload: &[u8]) -> Vec<u8> {
        let mut frame =
            [&to[..], &[2, 0, 0, 0, 0, 9], if self.ipv4 { &[8, 0] } else { &[0x86, 0xdd] }].concat();
        let length = (self.transport_header() + payload.len()) as u16;
        if self.ipv4 {
            frame.extend([0x45, 0]);
            frame.extend((20 + u32::from(length)).min(0xffff).to_be_bytes()[2..].iter());
            frame.extend([0x12, 0x34, 0x40, 0, 64, self.protocol(), 0, 0, 10, 0, 2, 15, 10, 0, 2, 2]);
        } else {
            frame.extend([0x60, 0, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([self.protocol(), 64]);
            frame.extend((0..32).map(|i| i * 7));
        }
        frame.extend([0x1f, 0x90, 0xc0, 0x01]);
        match self.transport {
            Transport::Tcp => {
                frame.extend([0xff, 0xff, 0xf0, 0, 1, 2, 3, 4, 0x80, 0x19, 0x20, 0, 0, 0, 0, 0]);
                frame.extend([1, 1, 8, 10, 0, 1, 2, 3, 4, 5, 6, 7]);
            }
            Transport::Udp => {
                frame.extend(length.to_be_bytes());
                frame.extend([0, 0]);
            }
        }
        frame.extend(payload);
        frame
    }

    /// Returns a frame as it is on the wire.
    pub fn finished(self, to: [u8; 6], payload: &[u8]) -> Vec<u8> {
        let mut frame = self.plain(to, payload);
        if self.ipv4 {
            let checksum = !sum(&[&frame[14..34]]);
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        }
        let length = (frame.len() - 14 - self.network()) as u16;
        let checksum = !sum(&[&self.pseudo(&frame, length).to_be_bytes(), &frame[14 + self.network()..]]);
        let at = self.checksum_at();
        let checksum = if checksum == 0 && self.transport == Transport::Udp { 0xffff } else { checksum };
        frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    /// Returns a frame for a NIC to add checksums to, or to segment.
    pub fn prepared(self, to: [u8; 6], payload: &[u8], segment: bool) -> Vec<u8> {
        let mut frame = self.plain(to, payload);
        let length = if segment { 0 } else { (frame.len() - 14 - self.network()) as u16 };
        if segment {
            let at = if self.ipv4 { 16 } else { 18 };
            frame[at..at + 2].fill(0);
        }
        let at = self.checksum_at();
        let pseudo = self.pseudo(&frame, length);
        frame[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
        frame
    }

    /// Returns true if a frame's checksums are right.
    pub fn right(self, frame: &[u8]) -> bool {
        let network = 14 + self.network();
        let length = (frame.len() - network) as u16;
        let ip = !self.ipv4 || sum(&[&frame[14..34]]) == 0xffff;
        ip && sum(&[&self.pseudo(frame, length).to_be_bytes(), &frame[network..]]) == 0xffff
    }
}
