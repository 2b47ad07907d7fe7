//! Who has which part of the buffer that the card reaches: pages, first fit.

/// Some of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Offset of its first byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

const PAGE: u64 = 4096;

/// What is free.
#[derive(Debug)]
pub(super) struct Room {
    free: Vec<Part>,
    all: u64,
}

impl Room {
    /// All of this is free.
    pub fn new(all: Part) -> Room {
        Room { free: vec![all], all: all.length }
    }

    /// Whether so many bytes would find room if nobody had any.
    pub fn could_hold(&self, length: u64) -> bool {
        length <= self.all
    }

    /// Takes so many bytes, rounded up to pages.
    pub fn take(&mut self, length: u64) -> Option<Part> {
        let length = length.max(1).checked_next_multiple_of(PAGE)?;
        let at = self.free.iter().position(|free| free.length >= length)?;
        let free = &mut self.free[at];
        let taken = Part { offset: free.offset, length };
        (free.offset, free.length) = (free.offset + length, free.length - length);
        if free.length == 0 {
            self.free.remove(at);
        }
        Some(taken)
    }

    /// Gives a part back.
    pub fn give(&mut self, part: Part) {
        let at = self.free.partition_point(|free| free.offset < part.offset);
        self.free.insert(at, part);
        // With what follows, then with what comes before.
        for at in [at, at.wrapping_sub(1)] {
            if let (Some(one), Some(next)) =
                (self.free.get(at).copied(), self.free.get(at.wrapping_add(1)).copied())
                && one.offset + one.length == next.offset
            {
                self.free[at].length += next.length;
                self.free.remove(at + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_grows_together_in_any_order() {
        let all = Part { offset: 0x1000, length: 0x5000 };
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1], [1, 2, 0], [2, 0, 1]] {
            let mut room = Room::new(all);
            let parts = [room.take(1).unwrap(), room.take(0x2000).unwrap(), room.take(0x1fff).unwrap()];
            assert_eq!(room.take(1), None);
            assert_eq!(parts[1], Part { offset: 0x2000, length: 0x2000 });
            order.into_iter().for_each(|at| room.give(parts[at]));
            assert_eq!(room.take(0x5000), Some(all));
        }
        assert_eq!(Room::new(all).take(u64::MAX), None);
    }
}
