//! Memory of any size that holds only the pages that were written. It is independent of bus addresses.

use std::collections::HashMap;

const PAGE: u64 = 4096;

/// Sparse memory: bytes that were never written read as zero.
#[derive(Clone, Default)]
pub struct Memory {
    pages: HashMap<u64, Box<[u8; PAGE as usize]>>,
}

impl Memory {
    /// Copies from `offset`.
    pub fn load(&self, offset: u64, bytes: &mut [u8]) {
        for (page, within, piece) in pieces(offset, bytes.len()) {
            let target = &mut bytes[piece];
            match self.pages.get(&page) {
                Some(held) => target.copy_from_slice(&held[within..within + target.len()]),
                None => target.fill(0),
            }
        }
    }

    /// Copies to `offset`.
    pub fn store(&mut self, offset: u64, bytes: &[u8]) {
        for (page, within, piece) in pieces(offset, bytes.len()) {
            let source = &bytes[piece];
            let held = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE as usize]));
            held[within..within + source.len()].copy_from_slice(source);
        }
    }

    /// Saves the pages of a range in `kept`, unless they are saved already.
    pub(crate) fn keep_in(&self, kept: &mut Memory, offset: u64, length: u64) {
        for page in offset / PAGE..(offset + length).div_ceil(PAGE) {
            kept.pages.entry(page).or_insert_with(|| match self.pages.get(&page) {
                Some(held) => held.clone(),
                None => Box::new([0; PAGE as usize]),
            });
        }
    }

    /// Restores saved pages.
    pub(crate) fn restore(&mut self, kept: Memory) {
        self.pages.extend(kept.pages);
    }

    /// Copies to `offset`, only on existing pages.
    pub(crate) fn store_where_kept(&mut self, offset: u64, bytes: &[u8]) {
        for (page, within, piece) in pieces(offset, bytes.len()) {
            if let Some(held) = self.pages.get_mut(&page) {
                let source = &bytes[piece];
                held[within..within + source.len()].copy_from_slice(source);
            }
        }
    }

    /// Makes `length` bytes from `offset` read as zero.
    pub fn clear(&mut self, offset: u64, length: u64) {
        let end = offset + length;
        let (first, last) = (offset.next_multiple_of(PAGE), end / PAGE * PAGE);
        if first < last {
            self.pages.retain(|page, _| !(first / PAGE..last / PAGE).contains(page));
            self.store(offset, &vec![0; (first - offset) as usize]);
            self.store(last, &vec![0; (end - last) as usize]);
        } else {
            self.store(offset, &vec![0; length as usize]);
        }
    }
}

/// Splits a range at pages: page, offset in the page, and range of the caller's bytes.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % PAGE) as usize;
        let count = (length - done).min(PAGE as usize - within);
        let piece = done..done + count;
        done += count;
        (count > 0).then_some((at / PAGE, within, piece))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_across_pages_is_loaded_and_the_rest_is_zero() {
        let mut memory = Memory::default();
        let bytes: Vec<u8> = (0..9000).map(|i| (i % 251) as u8).collect();
        memory.store(4000, &bytes);
        let mut back = vec![1; 9100];
        memory.load(3950, &mut back);
        assert!(back[..50].iter().all(|byte| *byte == 0));
        assert_eq!(&back[50..9050], &bytes[..]);
        assert!(back[9050..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn cleared_bytes_are_zero_and_their_neighbours_stay() {
        for (offset, length) in [(10, 20), (4000, 200), (100, 20_000), (4096, 8192), (5, 0)] {
            let mut memory = Memory::default();
            memory.store(0, &[7; 30_000]);
            memory.clear(offset, length);
            let mut back = vec![0; 30_000];
            memory.load(0, &mut back);
            for (i, byte) in back.iter().enumerate() {
                let inside = (offset..offset + length).contains(&(i as u64));
                assert_eq!(*byte, if inside { 0 } else { 7 }, "{offset}+{length} at {i}");
            }
        }
    }
}
