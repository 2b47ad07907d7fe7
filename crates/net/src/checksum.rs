//! The Internet checksum (RFC 1071), for owners whose NIC does not compute it.

use crate::message::{Frame, Piece, ReceivedFrame, Verdict};
use smoltcp::wire::{EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet};

/// A one's complement sum of bytes that come in pieces of any length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    total: u64,
    odd: bool,
}

impl Sum {
    /// Makes the sum of no bytes.
    pub fn new() -> Sum {
        Sum::default()
    }

    /// Adds the bytes that follow those added before.
    pub fn add(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        if self.odd
            && let Some((first, rest)) = bytes.split_first()
        {
            self.total += u64::from(*first);
            self.odd = false;
            bytes = rest;
        }
        let (words, last) = bytes.as_chunks::<2>();
        self.total += words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
        if let [last] = last {
            self.total += u64::from(*last) << 8;
            self.odd = true;
        }
        self.total = u64::from(fold(self.total));
    }

    /// Returns the folded 16-bit sum.
    pub fn value(self) -> u16 {
        fold(self.total)
    }
}

fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// Returns the sum of the pseudo header of RFC 9293, 3.1, and of RFC 768.
pub(crate) fn pseudo_header(source: [u8; 4], destination: [u8; 4], protocol: IpProtocol, length: u16) -> Sum {
    let mut sum = Sum::new();
    sum.add(&source);
    sum.add(&destination);
    sum.add(&[0, protocol.into()]);
    sum.add(&length.to_be_bytes());
    sum
}

/// Checks the TCP or UDP checksum of a received frame, for a NIC that does not. `add` adds the bytes of a piece of own memory to the sum. A
/// frame that is neither TCP nor UDP has nothing to check here and is good.
pub fn verify(frame: &ReceivedFrame<'_>, mut add: impl FnMut(Piece, &mut Sum)) -> Verdict {
    let head = frame.head;
    let Some(ip) = head.get(EthernetFrame::<&[u8]>::header_len()..).filter(|ip| ip.len() >= 20) else {
        return Verdict::Good;
    };
    if EthernetFrame::new_unchecked(head).ethertype() != EthernetProtocol::Ipv4 {
        return Verdict::Good;
    }
    let packet = Ipv4Packet::new_unchecked(ip);
    let (header, total) = (usize::from(packet.header_len()), usize::from(packet.total_len()));
    let field = match packet.next_header() {
        IpProtocol::Tcp => 16,
        IpProtocol::Udp => 6,
        _ => return Verdict::Good,
    };
    let Some(length) = total.checked_sub(header).filter(|_| total + 14 <= frame.length as usize) else {
        return Verdict::Bad;
    };
    let Some(checksum) = ip.get(header + field..header + field + 2) else {
        return Verdict::Bad;
    };
    if checksum == [0, 0] && packet.next_header() == IpProtocol::Udp {
        return Verdict::Good;
    }
    let addresses = (packet.src_addr().octets(), packet.dst_addr().octets());
    let mut sum = pseudo_header(addresses.0, addresses.1, packet.next_header(), length as u16);
    let here = ip.len().min(total);
    sum.add(&ip[header..here]);
    if here < total {
        let Some(rest) = frame.piece(14 + here as u32..14 + total as u32) else {
            return Verdict::Bad;
        };
        add(rest, &mut sum);
    }
    if sum.value() == 0xffff { Verdict::Good } else { Verdict::Bad }
}

impl Frame {
    /// Fills in the TCP or UDP checksum, for a NIC that does not. `add` adds the bytes of a piece of own memory to the sum. This does not
    /// work for a frame that the NIC must segment: configure a stack without segmentation.
    pub fn fill_checksum(&mut self, mut add: impl FnMut(Piece, &mut Sum)) {
        let Some(offload) = self.checksum.take() else { return };
        let start = usize::from(offload.start);
        let at = start + usize::from(offload.offset);
        let mut sum = Sum::new();
        // The field holds the sum of the pseudo header already.
        sum.add(&self.header[start..]);
        for piece in &self.payload {
            add(*piece, &mut sum);
        }
        // Zero means "no checksum" in UDP; in one's complement both zeros are the same number.
        let value = match !sum.value() {
            0 => 0xffff,
            value => value,
        };
        self.header[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_does_not_matter_how_bytes_are_cut(bytes in prop::collection::vec(any::<u8>(), 0..200), cuts in prop::collection::vec(0usize..20, 0..40)) {
            let mut whole = Sum::new();
            whole.add(&bytes);
            let (mut cut, mut rest) = (Sum::new(), &bytes[..]);
            for length in cuts {
                let (piece, after) = rest.split_at(length.min(rest.len()));
                cut.add(piece);
                rest = after;
            }
            cut.add(rest);
            prop_assert_eq!(cut.value(), whole.value());
            let even: Vec<u8> = bytes.iter().copied().chain((bytes.len() % 2 == 1).then_some(0)).collect();
            prop_assert_eq!(!whole.value(), !smoltcp::wire::checksum::data(&even));
        }
    }
}
