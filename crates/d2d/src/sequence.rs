//! The order of a stream's received RTP packets. (RFC 3550, A.1) Nothing is put back in order: what comes late is not taken.

/// Numbers behind the next one that are late or come again, and not those of a sender that began anew.
/// (MAX_MISORDER of RFC 3550)
const MISORDERED: u16 = 100;

/// The place of a packet among those that came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It is taken, and as many are missing before it.
    Next(u64),
    /// Its turn has passed: it is late, or came before, or its number is not to be believed yet.
    Passed,
}

/// The sequence number that comes next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sequence {
    expected: Option<u16>,
    /// Far behind: if this number comes at once, the sender has begun anew.
    anew: Option<u16>,
}

impl Sequence {
    /// Takes the number of the packet that has come.
    pub fn place(&mut self, number: u16) -> Place {
        let ahead = number.wrapping_sub(self.expected.unwrap_or(number));
        let is_anew = self.anew.take() == Some(number);
        let missing = match ahead {
            0..0x8000 => ahead,
            _ if ahead.wrapping_neg() <= MISORDERED => return Place::Passed,
            // The packet before, which was not taken.
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
