//! Offloads of a NIC: checksums and segmentation. It combines the driver's settings with the frame's bytes, and corrects neither:
//! a wrong partial sum gives a wrong checksum, as on hardware.

/// Offsets of a frame's headers, and the work on them. Offsets are from the frame's start; those beyond its end have no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offload {
    /// Start of the IP header.
    pub(super) ip: usize,
    /// Offset of the IP header's checksum.
    pub(super) ip_sum: usize,
    /// End of the IP header.
    pub(super) ip_end: usize,
    /// Start of the TCP or UDP header.
    pub(super) l4: usize,
    /// Offset of that header's checksum.
    pub(super) l4_sum: usize,
    /// Bytes of headers that are repeated before each segment.
    pub(super) header: usize,
    /// Bytes of payload per segment.
    pub(super) segment: usize,
    pub(super) tcp: bool,
    pub(super) ipv4: bool,
    pub(super) insert_ip: bool,
    pub(super) insert_l4: bool,
}

/// The ones' complement sum of big-endian words, folded [RFC 1071].
pub(super) fn sum(bytes: &[u8]) -> u16 {
    let mut total: u64 = 0;
    for pair in bytes.chunks(2) {
        total += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(target) = bytes.get_mut(at..at + 2) {
        target.copy_from_slice(&value.to_be_bytes());
    }
}

/// Inserts the requested checksums. The fields' contents count: the driver puts zero, or the pseudo header's sum there.
pub(super) fn insert(frame: &mut [u8], offload: &Offload) {
    if offload.insert_ip {
        let end = offload.ip_end.min(frame.len());
        let value = !sum(frame.get(offload.ip..end).unwrap_or_default());
        put(frame, offload.ip_sum, value);
    }
    if offload.insert_l4 {
        let value = !sum(frame.get(offload.l4..).unwrap_or_default());
        // A UDP checksum of zero would mean none [RFC 768].
        put(frame, offload.l4_sum, if value == 0 && !offload.tcp { 0xffff } else { value });
    }
}

/// Cuts a frame into segments: each has the headers and a piece of the payload.
pub(super) fn segments(frame: &[u8], offload: &Offload) -> Vec<Vec<u8>> {
    if offload.header > frame.len() || offload.segment == 0 {
        return Vec::new();
    }
    let (header, payload) = frame.split_at(offload.header);
    let count = payload.len().div_ceil(offload.segment).max(1);
    let mut pieces = payload.chunks(offload.segment);
    let mut found = Vec::with_capacity(count);
    for i in 0..count {
        let piece = pieces.next().unwrap_or_default();
        let mut segment = [header, piece].concat();
        rewrite(&mut segment, offload, i, i + 1 == count);
        insert(&mut segment, offload);
        found.push(segment);
    }
    found
}

/// Adapts the headers of segment `i` [82576 data sheet, 7.2.4.4 to 7.2.4.7].
fn rewrite(segment: &mut [u8], offload: &Offload, i: usize, last: bool) {
    let length = segment.len();
    if offload.ipv4 {
        put(segment, offload.ip + 2, (length - offload.ip.min(length)) as u16);
        let id = word(segment, offload.ip + 4).unwrap_or(0);
        put(segment, offload.ip + 4, id.wrapping_add(i as u16));
    } else {
        put(segment, offload.ip + 4, (length.saturating_sub(offload.ip + 40)) as u16);
    }
    let l4_length = (length - offload.l4.min(length)) as u16;
    if offload.tcp {
        let at = offload.l4 + 4;
        if let Some(field) = segment.get_mut(at..at + 4) {
            let sequence = u32::from_be_bytes(field.try_into().expect("four bytes"));
            let moved = sequence.wrapping_add((i * offload.segment) as u32);
            field.copy_from_slice(&moved.to_be_bytes());
        }
        if let Some(flags) = segment.get_mut(offload.l4 + 13) {
            // FIN and PSH stay in the last segment, CWR in the first.
            *flags &= if last { 0xff } else { !0x09 } & if i == 0 { 0xff } else { !0x80 };
        }
    } else {
        put(segment, offload.l4 + 4, l4_length);
    }
    if offload.insert_l4 {
        // The driver's partial sum lacks the length.
        let partial = word(segment, offload.l4_sum).unwrap_or(0);
        let whole = sum(&[partial.to_be_bytes(), l4_length.to_be_bytes()].concat());
        put(segment, offload.l4_sum, whole);
    }
}

/// A NIC's findings in a received frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parsed {
    /// IP version: 4, 6, or 0 if it is not IP.
    pub(super) ip: u8,
    /// The IPv4 identification.
    pub(super) id: u16,
    /// IP protocol 6 or 17; 0 for another one, or a fragment.
    pub(super) protocol: u8,
    /// True if the IPv4 header's checksum is right.
    pub(super) ip_right: bool,
    /// True if TCP's or UDP's checksum is right; `None` if there is none to check.
    pub(super) l4_right: Option<bool>,
    /// True for a TCP acknowledgement without data.
    pub(super) pure_ack: bool,
    /// Bytes up to the end of the TCP or UDP header; without one, of the IP header; without that, 0.
    pub(super) header: usize,
}

/// Parses a frame's headers. No VLANs, no IPv6 extension headers.
pub(super) fn parse(frame: &[u8]) -> Parsed {
    match word(frame, 12) {
        Some(0x0800) => parse_v4(frame).unwrap_or_default(),
        Some(0x86dd) => parse_v6(frame).unwrap_or_default(),
        _ => Parsed::default(),
    }
}

fn parse_v4(frame: &[u8]) -> Option<Parsed> {
    let header = usize::from(frame.get(14)? & 15) * 4;
    let total = usize::from(word(frame, 16)?);
    if frame[14] >> 4 != 4 || header < 20 || total < header {
        return None;
    }
    let ip = frame.get(14..14 + header)?;
    let fragment = word(ip, 6)? & 0x3fff != 0;
    let parsed = Parsed {
        ip: 4,
        id: word(ip, 4)?,
        ip_right: sum(ip) == 0xffff,
        header: 14 + header,
        ..Parsed::default()
    };
    let pseudo = [&ip[12..20], &[0, ip[9]], &((total - header) as u16).to_be_bytes()].concat();
    if fragment {
        return Some(parsed);
    }
    Some(parse_l4(parsed, ip[9], &pseudo, frame.get(14 + header..14 + total)))
}

fn parse_v6(frame: &[u8]) -> Option<Parsed> {
    let ip = frame.get(14..54)?;
    let length = usize::from(word(ip, 4)?);
    let parsed = Parsed { ip: 6, ip_right: true, header: 54, ..Parsed::default() };
    let pseudo = [&ip[8..40], &(length as u32).to_be_bytes(), &[0, 0, 0, ip[6]]].concat();
    Some(parse_l4(parsed, ip[6], &pseudo, frame.get(54..54 + length)))
}

fn parse_l4(mut parsed: Parsed, protocol: u8, pseudo: &[u8], l4: Option<&[u8]>) -> Parsed {
    let Some(l4) = l4 else { return parsed };
    let header = match protocol {
        6 if l4.len() >= 20 => usize::from(l4[12] >> 4) * 4,
        17 if l4.len() >= 8 => 8,
        _ => return parsed,
    };
    if header > l4.len() || header < 8 {
        return parsed;
    }
    parsed.protocol = protocol;
    parsed.header += header;
    parsed.pure_ack = protocol == 6 && l4.len() == header && l4[13] & 0x17 == 0x10;
    let without = protocol == 17 && word(l4, 6) == Some(0);
    let total = sum(&[sum(pseudo).to_be_bytes(), sum(l4).to_be_bytes()].concat());
    parsed.l4_right = (!without).then_some(total == 0xffff);
    parsed
}

/// Returns the frame check sequence [IEEE 802.3, 3.2.9], as it follows the frame.
pub(super) fn frame_check(frame: &[u8]) -> [u8; 4] {
    let mut crc = u32::MAX;
    for byte in frame {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    (!crc).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds an IPv4 frame of TCP or UDP with correct checksums, the simple way.
    fn right(protocol: u8, id: u16, sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let l4_header = if protocol == 6 { 20 } else { 8 };
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend(((20 + l4_header + payload.len()) as u16).to_be_bytes());
        frame.extend(id.to_be_bytes());
        frame.extend([0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x12, 0x34, 0x56, 0x78]);
        if protocol == 6 {
            frame.extend(sequence.to_be_bytes());
            frame.extend([0, 0, 0, 9, 0x50, flags, 1, 0, 0, 0, 0, 0]);
        } else {
            frame.extend(((8 + payload.len()) as u16).to_be_bytes());
            frame.extend([0, 0]);
        }
        frame.extend(payload);
        let value = !sum(&frame[14..34]);
        put(&mut frame, 24, value);
        let pseudo = pseudo(protocol, (l4_header + payload.len()) as u16);
        let value = !sum(&[&frame[34..], &[0][..(payload.len() % 2)], &pseudo[..]].concat());
        put(&mut frame, if protocol == 6 { 50 } else { 40 }, value);
        frame
    }

    fn pseudo(protocol: u8, length: u16) -> Vec<u8> {
        [&[10, 0, 0, 1, 10, 0, 0, 2, 0, protocol][..], &length.to_be_bytes()].concat()
    }

    fn offload(protocol: u8, segment: usize) -> Offload {
        let tcp = protocol == 6;
        Offload {
            ip: 14,
            ip_sum: 24,
            ip_end: 34,
            l4: 34,
            l4_sum: if tcp { 50 } else { 40 },
            header: if tcp { 54 } else { 42 },
            segment,
            tcp,
            ipv4: true,
            insert_ip: true,
            insert_l4: true,
        }
    }

    /// Prepares a frame as a driver does: the IP checksum is zero, the other one is that of the pseudo header.
    fn handed_over(mut frame: Vec<u8>, protocol: u8, with_length: bool) -> Vec<u8> {
        let offload = offload(protocol, 0);
        put(&mut frame, 24, 0);
        let length = if with_length { (frame.len() - 34) as u16 } else { 0 };
        put(&mut frame, offload.l4_sum, sum(&pseudo(protocol, length)));
        frame
    }

    #[test]
    fn inserted_checksums_are_the_right_ones() {
        for protocol in [6, 17] {
            for length in [0, 1, 2, 777, 1400] {
                let payload: Vec<u8> = (0..length).map(|i| (i * 7) as u8).collect();
                let frame = right(protocol, 5, 1000, 0x18, &payload);
                let mut given = handed_over(frame.clone(), protocol, true);
                insert(&mut given, &offload(protocol, 0));
                assert_eq!(given, frame, "{protocol} {length}");
                let parsed = parse(&frame);
                assert_eq!((parsed.ip, parsed.protocol, parsed.id), (4, protocol, 5));
                assert_eq!((parsed.ip_right, parsed.l4_right), (true, Some(true)));
                given[22] ^= 1;
                let last = given.len() - 1;
                given[last] ^= 1;
                assert!(!parse(&given).ip_right);
                assert_eq!(parse(&given).l4_right, Some(false));
            }
        }
    }

    #[test]
    fn segments_are_the_frames_that_software_would_have_made() {
        for (protocol, length, size) in [(6, 5000, 1460), (6, 1460, 1460), (6, 3, 1), (17, 4001, 1000)] {
            let payload: Vec<u8> = (0..length).map(|i| (i * 13 + i / 256) as u8).collect();
            let whole = right(protocol, 0xfffe, 0xffff_ff00, 0x99, &payload);
            let given = handed_over(whole, protocol, false);
            let pieces = payload.chunks(size).enumerate();
            let count = pieces.len();
            let expected: Vec<Vec<u8>> = pieces
                .map(|(i, piece)| {
                    let flags = 0x10 | if i == 0 { 0x80 } else { 0 } | if i + 1 == count { 0x09 } else { 0 };
                    let sequence = 0xffff_ff00u32.wrapping_add((i * size) as u32);
                    right(protocol, 0xfffeu16.wrapping_add(i as u16), sequence, flags, piece)
                })
                .collect();
            assert_eq!(segments(&given, &offload(protocol, size)), expected);
        }
    }

    #[test]
    fn ipv6_is_summed_and_cut_up_too() {
        let frame = |sequence: u32, flags: u8, payload: &[u8]| {
            let mut frame = vec![2; 12];
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((20 + payload.len() as u16).to_be_bytes());
            frame.extend([6, 64]);
            frame.extend((0..32u8).map(|i| i.wrapping_mul(9)));
            frame.extend([0, 80, 0, 81]);
            frame.extend(sequence.to_be_bytes());
            frame.extend([0, 0, 0, 1, 0x50, flags, 4, 0, 0, 0, 0, 0]);
            frame.extend(payload);
            let pseudo =
                [&frame[22..54], &[0, 0], &(20 + payload.len() as u16).to_be_bytes(), &[0, 0, 0, 6]].concat();
            let value = !sum(&[&pseudo[..], &frame[54..]].concat());
            put(&mut frame, 70, value);
            frame
        };
        let payload: Vec<u8> = (0..2501).map(|i| (i * 3) as u8).collect();
        let mut given = frame(7, 0x18, &payload);
        let parsed = parse(&given);
        assert_eq!((parsed.ip, parsed.protocol, parsed.header, parsed.l4_right), (6, 6, 74, Some(true)));
        let partial = sum(&[&given[22..54], &[0, 6]].concat());
        put(&mut given, 70, partial);
        put(&mut given, 18, 0);
        let offload = Offload {
            ip: 14,
            ip_end: 54,
            l4: 54,
            l4_sum: 70,
            header: 74,
            segment: 1000,
            tcp: true,
            insert_l4: true,
            ..Offload::default()
        };
        let flags = [0x10, 0x10, 0x18];
        let pieces = payload.chunks(1000).zip(flags).enumerate();
        let expected: Vec<_> =
            pieces.map(|(i, (piece, flags))| frame(7 + 1000 * i as u32, flags, piece)).collect();
        assert_eq!(segments(&given, &offload), expected);
    }

    #[test]
    fn no_offsets_and_no_frames_make_it_panic() {
        let odd = Offload { ip: 70, ip_end: 20, l4: 400, l4_sum: 399, header: 60, ..offload(6, 10) };
        assert_eq!(segments(&[0; 80], &odd).len(), 2);
        assert!(segments(&[0; 10], &odd).is_empty());
        let frame = right(6, 1, 2, 3, b"abc");
        for end in 0..frame.len() {
            parse(&frame[..end]);
        }
        parse(&[0xff; 100]);
    }

    #[test]
    fn the_frame_check_sequence_is_that_of_ethernet() {
        assert_eq!(frame_check(b"123456789"), 0xcbf4_3926u32.to_le_bytes());
    }
}
