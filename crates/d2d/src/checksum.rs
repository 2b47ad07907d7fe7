//! The Internet checksum. (RFC 1071)

/// The one's complement sum of bytes as 16-bit words in network order, on top of `sum`; the last odd byte
/// counts as if a zero followed.
pub(crate) fn sum(sum: u64, bytes: &[u8]) -> u64 {
    let (words, last) = bytes.as_chunks::<2>();
    let last = last.first().map_or(0, |byte| u64::from(*byte) << 8);
    sum + last + words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>()
}

/// The 16 bits that a sum comes to. 0xffff: a checksum among the bytes is right.
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The sum of UDP's pseudo header. (RFC 768)
pub(crate) fn pseudo_header(source: [u8; 4], destination: [u8; 4], length: usize) -> u64 {
    sum(sum(u64::from(crate::uoe::UDP), &source), &destination) + length as u64
}
