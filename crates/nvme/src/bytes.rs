//! Little-endian numbers in byte slices, and bit fields of registers.

/// Returns the little-endian 16-bit number at `offset`; 0 past the end.
#[inline]
pub fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, offset))
}

/// Returns the little-endian 32-bit number at `offset`; 0 past the end.
#[inline]
pub fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, offset))
}

/// Returns the little-endian 64-bit number at `offset`; 0 past the end.
#[inline]
pub fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, offset))
}

/// Returns the bytes at `offset`; zeros past the end.
#[inline]
pub fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    if let Some(found) = bytes.get(offset..).and_then(<[u8]>::first_chunk) {
        return *found;
    }
    let mut found = [0; N];
    for (to, from) in found.iter_mut().zip(bytes.iter().skip(offset)) {
        *to = *from;
    }
    found
}

/// Stores `value` at `offset`.
///
/// # Panics
///
/// If the value reaches past the end.
pub(crate) fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    bytes[offset..offset + value.len()].copy_from_slice(value);
}

/// Returns `width` bits of a register, starting at bit `first`.
pub(crate) const fn field(bits: u64, first: u32, width: u32) -> u64 {
    bits >> first & ((1 << width) - 1)
}

/// Returns `value` as `width` bits of a register, starting at bit `first`. Excess bits are cut off.
pub(crate) const fn place(value: u64, first: u32, width: u32) -> u64 {
    (value & ((1 << width) - 1)) << first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_past_the_end_are_zero() {
        assert_eq!(u64_at(&[1, 2, 3], 0), 0x03_0201);
        assert_eq!(u16_at(&[1, 2, 3], 2), 3);
        assert_eq!(u32_at(&[], 0), 0);
        assert_eq!(u32_at(&[1], usize::MAX), 0);
    }

    #[test]
    fn fields_are_cut_to_their_width() {
        assert_eq!(field(0xabcd, 4, 8), 0xbc);
        assert_eq!(place(0x1ff, 4, 8), 0xff0);
    }
}
