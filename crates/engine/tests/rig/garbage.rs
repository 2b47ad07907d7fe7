//! Arbitrary event streams: whatever the bytes say, the engine neither panics nor breaks its promises.

/// Placeholder until written.
pub fn run(_data: &[u8]) {}
