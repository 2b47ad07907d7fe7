//! A page: 65,536 consecutive bits.

/// Bytes in a page.
pub(super) const PAGE_BYTES: usize = 8192;

/// Bits of a page, the lowest of a word first.
pub(super) struct Page([u64; PAGE_BYTES / 8]);

impl Page {
    /// Makes a page without set bits.
    pub(super) fn new() -> Box<Page> {
        Box::new(Page([0; PAGE_BYTES / 8]))
    }

    pub(super) fn set(&mut self, bit: u16) {
        self.0[usize::from(bit >> 6)] |= 1 << (bit & 63);
    }

    /// Sets the bits from `from` to `to`, both included.
    pub(super) fn set_run(&mut self, from: u16, to: u16) {
        let (first, last) = (usize::from(from >> 6), usize::from(to >> 6));
        let (low, high) = (u64::MAX << (from & 63), u64::MAX >> (63 - (to & 63)));
        if first == last {
            self.0[first] |= low & high;
            return;
        }
        self.0[first] |= low;
        self.0[first + 1..last].fill(u64::MAX);
        self.0[last] |= high;
    }

    /// Reads all bits from as many bytes.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        for (word, bytes) in self.0.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
    }

    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.0.iter().flat_map(|word| word.to_le_bytes()));
    }

    pub(super) fn and(&mut self, other: &Page) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word &= other);
    }

    pub(super) fn or(&mut self, other: &Page) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }

    pub(super) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}
