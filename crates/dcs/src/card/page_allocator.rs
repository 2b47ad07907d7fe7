//! Allocates pages of the buffer that the card reaches: first fit.

/// Contiguous pages of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    /// Offset of its first byte.
    pub offset: u64,
    /// In bytes.
    pub length: u64,
}

const PAGE: u64 = 4096;

/// The free pages, by offset, neighbours joined.
#[derive(Debug)]
pub(super) struct PageAllocator {
    free: Vec<Pages>,
    all: u64,
}

impl PageAllocator {
    /// An allocator of all these pages, which are free.
    pub fn new(all: Pages) -> PageAllocator {
        PageAllocator { free: vec![all], all: all.length }
    }

    /// True if this many bytes would fit with all pages free.
    pub fn could_hold(&self, length: u64) -> bool {
        length <= self.all
    }

    /// Allocates this many bytes, rounded up to pages; `None` if no gap is large enough.
    pub fn allocate(&mut self, length: u64) -> Option<Pages> {
        let length = length.max(1).checked_next_multiple_of(PAGE)?;
        let at = self.free.iter().position(|free| free.length >= length)?;
        let free = &mut self.free[at];
        let taken = Pages { offset: free.offset, length };
        (free.offset, free.length) = (free.offset + length, free.length - length);
        if free.length == 0 {
            self.free.remove(at);
        }
        Some(taken)
    }

    /// Frees pages.
    pub fn free(&mut self, pages: Pages) {
        let at = self.free.partition_point(|free| free.offset < pages.offset);
        self.free.insert(at, pages);
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
        let all = Pages { offset: 0x1000, length: 0x5000 };
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1], [1, 2, 0], [2, 0, 1]] {
            let mut allocator = PageAllocator::new(all);
            let parts = [
                allocator.allocate(1).unwrap(),
                allocator.allocate(0x2000).unwrap(),
                allocator.allocate(0x1fff).unwrap(),
            ];
            assert_eq!(allocator.allocate(1), None);
            assert_eq!(parts[1], Pages { offset: 0x2000, length: 0x2000 });
            order.into_iter().for_each(|at| allocator.free(parts[at]));
            assert_eq!(allocator.allocate(0x5000), Some(all));
        }
        assert_eq!(PageAllocator::new(all).allocate(u64::MAX), None);
    }
}
