//! Sequence numbers of a stream's received RTP packets (RFC 3550, A.1). Packets are not reordered: late ones are not taken.

/// Distance behind the expected number within which a packet is late or a duplicate. Farther behind, the sender may have restarted.
/// (MAX_MISORDER of RFC 3550)
const MISORDERED: u16 = 100;

/// The place of a packet in the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The packet is taken. This many are missing before it.
    Next(u64),
    /// The packet is late or a duplicate, or its number needs confirmation by the next one.
    Passed,
}

/// The sequence number expected next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sequence {
    expected: Option<u16>,
    /// Number after one that was far behind. If it comes next, the sender has restarted.
    anew: Option<u16>,
}

impl Sequence {
    /// Places a received packet by its number.
    pub fn place(&mut self, number: u16) -> Place {
        let ahead = number.wrapping_sub(self.expected.unwrap_or(number));
        let is_anew = self.anew.take() == Some(number);
        let missing = match ahead {
            0..0x8000 => ahead,
            _ if ahead.wrapping_neg() <= MISORDERED => return Place::Passed,
            // The packet before was not taken.
            _ if is_anew => 1,
            _ => {
                self.anew = Some(number.wrapping_add(1));
                return Place::Passed;
            }
        };
        self.expected = Some(number.wrapping_add(1));
        Place::Next(missing.into())
    }
}

#[cfg(test)]
mod tests {
    use super::Place::{Next, Passed};
    use super::*;

    #[test]
    fn numbers_go_on_where_they_wrap_and_none_sets_them_back() {
        let mut sequence = Sequence::default();
        let numbers = [65_534, 65_535, 0, 3, 1, 2, 3, 65_500, 4, 40_000, 5, 40_001, 40_002, 40_003, 6, 7, 8];
        let places = numbers.map(|number| sequence.place(number));
        let expected = [
            Next(0),
            Next(0),
            Next(0),
            Next(2),
            Passed,
            Passed,
            Passed,
            Passed,
            Next(0),
            Passed,
            Next(0),
            Passed,
            Next(1),
            Next(0),
            Next(25_538),
            Next(0),
            Next(0),
        ];
        assert_eq!(places, expected);
    }
}
