//! The Internet checksum. (RFC 1071)

/// Adds bytes to `sum`, as 16-bit words in network order. An odd last byte counts as if a zero followed.
pub(crate) fn sum(sum: u64, bytes: &[u8]) -> u64 {
    let (words, last) = bytes.as_chunks::<2>();
    let last = last.first().map_or(0, |byte| u64::from(*byte) << 8);
    sum + last + words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>()
}

/// Folds a sum to 16 bits, in one's complement. The result is 0xffff if the bytes include their correct checksum.
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Returns the sum of UDP's pseudo-header. (RFC 768)
pub(crate) fn pseudo_header(source: [u8; 4], destination: [u8; 4], length: usize) -> u64 {
    sum(sum(u64::from(crate::uoe::UDP), &source), &destination) + length as u64
}
