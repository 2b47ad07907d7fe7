//! Bit fields of registers.

/// Returns `width` bits of a register, from bit `first` on.
pub(crate) const fn field(bits: u64, first: u32, width: u32) -> u64 {
    bits >> first & ((1 << width) - 1)
}

/// Returns `value` as `width` bits of a register, from bit `first` on. A larger value is truncated.
pub(crate) const fn place(value: u64, first: u32, width: u32) -> u64 {
    (value & ((1 << width) - 1)) << first
}
