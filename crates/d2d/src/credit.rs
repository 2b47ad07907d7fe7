//! Credits, and numbers that wrap. (RFC 1982)

/// Bytes of one credit.
pub const CREDIT: u64 = 4096;

/// Returns the count whose low 32 bits are `bits`, if it is later than `last`; `None` if it is the same or earlier.
pub(crate) fn later(last: u64, bits: u32) -> Option<u64> {
    let ahead = bits.wrapping_sub(last as u32);
    (ahead != 0 && ahead < 1 << 31).then(|| last + u64::from(ahead))
}

/// Returns true if epoch `other` comes after `epoch`.
pub(crate) fn is_after(other: u16, epoch: u16) -> bool {
    let ahead = other.wrapping_sub(epoch);
    ahead != 0 && ahead < 1 << 15
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_on_where_their_bits_wrap() {
        assert_eq!(later(5, 7), Some(7));
        assert_eq!(later(5, 5), None);
        assert_eq!(later(5, 4), None);
        assert_eq!(later(0xffff_fffe, 1), Some(0x1_0000_0001));
        assert_eq!(later(0x3_0000_0001, 0xffff_fffe), None);
        assert_eq!(later(7, 7u32.wrapping_add(1 << 31)), None);
    }

    #[test]
    fn epochs_wrap() {
        assert!(is_after(1, 0) && !is_after(0, 1) && !is_after(3, 3));
        assert!(is_after(2, 0xfffe) && !is_after(0xfffe, 2));
    }
}
