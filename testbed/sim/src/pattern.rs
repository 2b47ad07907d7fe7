//! The bytes that are moved: known for any position, so that both ends can be checked without storing them.

/// Length of the pattern: a prime, so that consecutive pages or segments have different bytes at the same offset.
const LENGTH: usize = 1_048_573;

/// Bytes that differ by position.
pub struct Pattern(Vec<u8>);

impl Default for Pattern {
    fn default() -> Pattern {
        Pattern(dcs_testkit::bytes(LENGTH, 1))
    }
}

impl Pattern {
    /// Returns the bytes from `position`, piece by piece.
    fn pieces(&self, mut position: u64, mut length: usize) -> impl Iterator<Item = &[u8]> {
        std::iter::from_fn(move || {
            let at = (position % LENGTH as u64) as usize;
            let piece = &self.0[at..(at + length).min(LENGTH)];
            position += piece.len() as u64;
            length -= piece.len();
            (!piece.is_empty()).then_some(piece)
        })
    }

    /// Returns the bytes from `position`.
    pub fn bytes(&self, position: u64, length: usize) -> Vec<u8> {
        self.pieces(position, length).flatten().copied().collect()
    }

    /// Returns true if these are the bytes from `position`.
    pub fn is(&self, position: u64, bytes: &[u8]) -> bool {
        let mut at = 0;
        self.pieces(position, bytes.len()).all(|piece| {
            at += piece.len();
            piece == &bytes[at - piece.len()..at]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_known_again_and_a_wrong_one_is_seen() {
        let pattern = Pattern::default();
        let mut bytes = pattern.bytes(LENGTH as u64 * 3 - 10, 5000);
        assert!(pattern.is(LENGTH as u64 - 10, &bytes));
        assert!(!pattern.is(LENGTH as u64 - 9, &bytes));
        bytes[4999] ^= 1;
        assert!(!pattern.is(LENGTH as u64 - 10, &bytes));
    }
}
