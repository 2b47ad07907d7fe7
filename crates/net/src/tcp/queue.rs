//! The send queue: where the bytes of the stream lie, from the first that is not acknowledged to the last that the owner has
//! appended. Positions are those of the sequence space: the stream's first byte has position 1.

use super::scoreboard::Scoreboard;
use crate::message::{Chunk, Piece, Policy};
use crate::ranges::Ranges;
use crate::shared::{Blocks, Shared};
use crate::slab::Key;
use core::ops::Range;
use std::collections::BTreeMap;

/// A frame has no more pieces than this: NICs bound the descriptors of one.
const PIECES: usize = 16;

#[derive(Debug)]
struct Extent {
    end: u64,
    /// Of its first byte.
    offset: u64,
    block: Key,
    policy: Policy,
    more: bool,
    wanted: bool,
}

#[derive(Debug)]
pub(crate) struct Queue {
    extents: BTreeMap<u64, Extent>,
    end: u64,
    /// Before this position no block can be given up that is not.
    released: u64,
    /// What was asked for and has not come.
    asked: Ranges,
}

/// Bytes of the queue for a frame.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) blocks: Vec<Key>,
}

impl Queue {
    pub(crate) fn new() -> Queue {
        Queue { extents: BTreeMap::new(), end: 1, released: 0, asked: Ranges::default() }
    }

    /// Position after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn len(&self) -> usize {
        self.extents.len()
    }

    /// Whether the owner said that more follows the last byte.
    pub(crate) fn more(&self) -> bool {
        self.extents.last_key_value().is_some_and(|(_, extent)| extent.more)
    }

    pub(crate) fn flush(&mut self) {
        if let Some(mut last) = self.extents.last_entry() {
            last.get_mut().more = false;
        }
    }

    /// Appends a chunk. The position of its first byte.
    pub(crate) fn push(&mut self, chunk: &Chunk, block: Key) -> u64 {
        let start = self.end;
        self.end += u64::from(chunk.piece.length);
        self.extents.insert(start, Extent::new(chunk, block, self.end));
        start
    }

    fn overlapping(&self, bytes: &Range<u64>) -> impl Iterator<Item = (&u64, &Extent)> {
        let first = self.extents.range(..=bytes.start).next_back().map_or(bytes.start, |(start, _)| *start);
        self.extents.range(first..bytes.end.max(first)).filter(|(_, extent)| extent.end > bytes.start)
    }

    /// How far from `bytes.start` bytes are here, or gone, without a change: the end of that run, and which it is.
    pub(crate) fn run(&self, bytes: Range<u64>, blocks: &Blocks) -> (u64, bool) {
        let mut here = None;
        let mut end = bytes.start;
        for (_, extent) in self.overlapping(&bytes) {
            let is_here = blocks.is_here(extent.block);
            if *here.get_or_insert(is_here) != is_here {
                break;
            }
            end = extent.end;
        }
        (end.min(bytes.end), here.unwrap_or(false))
    }

    /// Gathers bytes that are here, as many as fit in one frame: where it ended.
    pub(crate) fn gather(&self, bytes: Range<u64>, gathered: &mut Gathered) -> u64 {
        let mut end = bytes.start;
        for (start, extent) in self.overlapping(&bytes).take(PIECES) {
            let upto = extent.end.min(bytes.end);
            let from = end.max(*start);
            let whole = Piece { offset: extent.offset, length: 0 };
            gathered.pieces.push(whole.part(from - start, (upto - from) as u32));
            gathered.blocks.push(extent.block);
            end = upto;
        }
        end
    }

    /// Everything before `upto` has arrived.
    pub(crate) fn acknowledge(&mut self, upto: u64, shared: &mut Shared) {
        while let Some(first) = self.extents.first_entry().filter(|first| first.get().end <= upto) {
            let extent = first.remove();
            if extent.wanted {
                shared.unwanted(extent.block);
            }
        }
        self.asked.remove(0..upto);
    }

    /// Gives up the blocks that are needed only until they are sent, where everything before `sent` has been handed to the NIC.
    pub(crate) fn release(&mut self, sent: u64, scoreboard: &Scoreboard, shared: &mut Shared) {
        let mut released = None;
        for (start, extent) in self.extents.range_mut(self.released..sent.max(self.released)) {
            if !extent.wanted || extent.policy == Policy::Hold {
                continue;
            }
            if extent.end <= sent && !scoreboard.is_lost(&(*start..extent.end)) {
                extent.wanted = false;
                shared.unwanted(extent.block);
            } else {
                released.get_or_insert(*start);
            }
        }
        self.released = released.unwrap_or(sent);
    }

    /// Notes that bytes are asked for: those that had not been.
    pub(crate) fn ask(&mut self, bytes: Range<u64>) -> Vec<Range<u64>> {
        let new = self.asked.missing(bytes.clone());
        self.asked.insert(bytes);
        new
    }

    /// Bytes asked for and not come.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.bytes()
    }

    pub(crate) fn is_asked(&self, bytes: &Range<u64>) -> bool {
        self.asked.contains(bytes)
    }

    /// Bytes that were asked for are here again.
    pub(crate) fn resupply(&mut self, chunk: &Chunk, bytes: &Range<u64>, block: Key) {
        self.asked.remove(bytes.clone());
        self.released = self.released.min(bytes.start);
        self.split(bytes.start);
        self.split(bytes.end);
        // These are of blocks that are gone.
        let old: Vec<u64> = self.extents.range(bytes.clone()).map(|(start, _)| *start).collect();
        for start in old {
            self.extents.remove(&start);
        }
        self.extents.insert(bytes.start, Extent { more: false, ..Extent::new(chunk, block, bytes.end) });
    }

    fn split(&mut self, at: u64) {
        let Some((&start, extent)) = self.extents.range_mut(..at).next_back() else { return };
        if extent.end > at {
            let offset = extent.offset.wrapping_add(at - start);
            let right = Extent { offset, ..*extent };
            extent.end = at;
            self.extents.insert(at, right);
        }
    }

    /// Gives up everything.
    pub(crate) fn clear(&mut self, shared: &mut Shared) {
        for extent in std::mem::take(&mut self.extents).into_values().filter(|extent| extent.wanted) {
            shared.unwanted(extent.block);
        }
        self.asked.clear();
    }
}

impl Extent {
    fn new(chunk: &Chunk, block: Key, end: u64) -> Extent {
        let Chunk { piece, policy, more, .. } = *chunk;
        Extent { end, offset: piece.offset, block, policy, more, wanted: true }
    }
}
