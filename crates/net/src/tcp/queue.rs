//! The send queue: the places of the stream's bytes, from the first that is not acknowledged to the last that the owner has appended.
//! Positions are in the sequence space: the stream's first byte has position 1.

use crate::message::{Chunk, Piece};
use crate::shared::Shared;
use crate::slab::Key;
use core::ops::Range;
use std::collections::BTreeMap;

/// Most pieces of a frame: NICs limit its descriptors.
const PIECES: usize = 16;

#[derive(Debug)]
struct Extent {
    end: u64,
    /// Position of its first byte.
    offset: u64,
    block: Key,
    more: bool,
}

#[derive(Debug)]
pub(crate) struct Queue {
    extents: BTreeMap<u64, Extent>,
    end: u64,
}

/// Bytes of the queue gathered for a frame.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) blocks: Vec<Key>,
}

impl Queue {
    pub(crate) fn new() -> Queue {
        Queue { extents: BTreeMap::new(), end: 1 }
    }

    /// Returns the position after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn len(&self) -> usize {
        self.extents.len()
    }

    /// Returns true if the owner said that more follows the last byte.
    pub(crate) fn more(&self) -> bool {
        self.extents.last_key_value().is_some_and(|(_, extent)| extent.more)
    }

    pub(crate) fn flush(&mut self) {
        if let Some(mut last) = self.extents.last_entry() {
            last.get_mut().more = false;
        }
    }

    /// Appends a chunk; returns the position of its first byte.
    pub(crate) fn push(&mut self, chunk: &Chunk, block: Key) -> u64 {
        let start = self.end;
        self.end += u64::from(chunk.piece.length);
        let Chunk { piece, more, .. } = *chunk;
        self.extents.insert(start, Extent { end: self.end, offset: piece.offset, block, more });
        start
    }

    fn overlapping(&self, bytes: &Range<u64>) -> impl Iterator<Item = (&u64, &Extent)> {
        let first = self.extents.range(..=bytes.start).next_back().map_or(bytes.start, |(start, _)| *start);
        self.extents.range(first..bytes.end.max(first)).filter(|(_, extent)| extent.end > bytes.start)
    }

    /// Gathers as many bytes as fit in one frame; returns where they end.
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

    /// Drops everything before `upto`, which has arrived.
    pub(crate) fn acknowledge(&mut self, upto: u64, shared: &mut Shared) {
        while let Some(first) = self.extents.first_entry().filter(|first| first.get().end <= upto) {
            shared.unwanted(first.remove().block);
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self, shared: &mut Shared) {
        for extent in std::mem::take(&mut self.extents).into_values() {
            shared.unwanted(extent.block);
        }
    }
}
