//! Numbers and bytes that look drawn. The same seed gives the same, in every build and on every machine.

/// The step of the sequence.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): its state.
///
/// ```
/// use dcs_testkit::Random;
///
/// let mut random = Random(1);
/// assert!(random.below(6) < 6);
/// assert_eq!(Random(7).bytes(3), Random(7).bytes(3));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random(pub u64);

/// The last steps of SplitMix64: a number of which each bit depends on all bits of `z`.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// The next number.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `limit`; 0 where that is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// An index into that many.
    pub fn index(&mut self, count: usize) -> usize {
        self.below(count as u64) as usize
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// A number in `low..=high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// True once in `count` times.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// True this many times in a thousand.
    pub fn chance(&mut self, permille: u32) -> bool {
        self.below(1000) < u64::from(permille)
    }

    /// This many bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }

    /// Bytes that compress a little, as real ones do.
    pub fn compressible(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 24);
        while bytes.len() < length {
            let word = self.next();
            match word & 7 {
                0 => bytes.extend_from_slice(&[word as u8; 24]),
                _ => bytes.extend_from_slice(&word.to_le_bytes()),
            }
        }
        bytes.truncate(length);
        bytes
    }
}

/// This many bytes of a seed.
pub fn bytes(length: usize, seed: u64) -> Vec<u8> {
    Random(seed).bytes(length)
}

/// Fills in the bytes of stream `seed` from `offset` on: no two places look alike, and any can be had by
/// itself.
pub fn fill(seed: u64, offset: u64, bytes: &mut [u8]) {
    let word = |at: u64| mix(seed ^ (at / 8).wrapping_mul(STEP)).to_le_bytes();
    let (mut at, mut rest) = (offset, bytes);
    while !rest.is_empty() {
        let from = &word(at)[(at % 8) as usize..];
        let (now, later) = rest.split_at_mut(from.len().min(rest.len()));
        now.copy_from_slice(&from[..now.len()]);
        at += now.len() as u64;
        rest = later;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of seed 1234567, as the algorithm's authors' program gives them.
    #[test]
    fn the_sequence_is_splitmix64_s() {
        let mut random = Random(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([(); 3].map(|()| random.next()), expected);
    }

    #[test]
    fn a_piece_of_a_stream_is_what_lies_there_in_the_whole() {
        let (mut whole, mut piece) = ([0; 64], [0; 21]);
        fill(9, 0, &mut whole);
        fill(9, 13, &mut piece);
        assert_eq!(piece, whole[13..34]);
    }
}
