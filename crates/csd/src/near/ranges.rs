//! Ranges of a namespace, read block by block.

use std::collections::VecDeque;

use dcs_nvme::Status;
use dcs_nvme::bytes::u64_at;

/// Bytes of a range's description: its first byte in the namespace, and its length in bytes.
const RANGE: usize = 16;

/// Flag in the result of a stream's command: there is no more output.
pub const ENDED: u64 = 1 << 63;
/// Flag in the result of a stream's command to logical blocks: the rest of the output is less than a block.
pub const REST: u64 = 1 << 62;
/// Flag in the result of a stream's command with input from the guest: the chain needs more.
pub const HUNGRY: u64 = 1 << 61;
/// Number of ranges that stands for a stream whose input the guest sends.
pub const FED: u32 = u32::MAX;

/// Ranges of a namespace, in order.
#[derive(Debug)]
pub struct Ranges {
    pub namespace: u32,
    /// First byte and length of the ranges that are left.
    ranges: VecDeque<(u64, u64)>,
    /// Number of bytes that are left.
    pub left: u64,
    /// Of the blocks that are being read: the number of bytes before the wanted ones, and the number of
    /// those.
    pub reading: (u64, u64),
}

impl Ranges {
    /// Reads ranges, as little-endian numbers.
    ///
    /// # Errors
    ///
    /// Returns Invalid Field in Command if they are too long together.
    pub fn read(namespace: u32, bytes: &[u8]) -> Result<Ranges, Status> {
        let range = |bytes: &[u8]| (u64_at(bytes, 0), u64_at(bytes, 8));
        let ranges: VecDeque<_> =
            bytes.chunks_exact(RANGE).map(range).filter(|(_, length)| *length > 0).collect();
        let add = |sum: u64, (first, length): &(u64, u64)| {
            first.checked_add(*length)?;
            sum.checked_add(*length)
        };
        let left = ranges.iter().try_fold(0, add).filter(|left| *left < ENDED);
        Ok(Ranges { namespace, ranges, left: left.ok_or(Status::INVALID_FIELD)?, reading: (0, 0) })
    }

    /// Returns the number of bytes that describe this many ranges; [`FED`] has none.
    pub fn length(count: u32) -> usize {
        if count == FED { 0 } else { count as usize * RANGE }
    }

    /// Returns all of them, in order.
    pub fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter().copied()
    }

    /// Returns the next blocks of `1 << shift` bytes to be read, for at most `most` bytes, which must be
    /// several blocks: the first byte and the length.
    pub fn next(&mut self, most: u64, shift: u8) -> Option<(u64, u64)> {
        let (first, length) = *self.ranges.front()?;
        let block = 1 << shift;
        let begin = first / block * block;
        let end = (first + length).next_multiple_of(block).min(begin + most / block * block);
        let wanted = length.min(end - first);
        self.reading = (first - begin, wanted);
        Some((begin, end - begin))
    }

    /// Returns the first byte of the blocks that are being read.
    pub fn first(&self, shift: u8) -> u64 {
        self.ranges.front().map_or(0, |(first, _)| first >> shift << shift)
    }

    /// Takes the blocks of the last `next`, and returns the wanted bytes.
    pub fn advance(&mut self) {
        let (_, wanted) = self.reading;
        self.left -= wanted;
        let Some((first, length)) = self.ranges.front_mut() else { return };
        (*first, *length) = (*first + wanted, *length - wanted);
        if *length == 0 {
            self.ranges.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_are_read_and_the_bytes_of_the_ranges_are_told() {
        let bytes: Vec<u8> =
            [1000, 2000, 5, 0, 4096, 512u64].iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut ranges = Ranges::read(1, &bytes).unwrap();
        let mut read = Vec::new();
        while let Some(blocks) = ranges.next(1024, 9) {
            read.push((blocks, ranges.reading));
            ranges.advance();
        }
        // 1000 is 488 bytes into its block; 3000 ends 440 bytes into the last one.
        let expected = [
            ((512, 1024), (488, 536)),
            ((1536, 1024), (0, 1024)),
            ((2560, 512), (0, 440)),
            ((4096, 512), (0, 512)),
        ];
        assert_eq!((read, ranges.left), (expected.to_vec(), 0));
        let long: Vec<u8> = [1, u64::MAX].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert!(Ranges::read(1, &long).is_err());
    }
}
