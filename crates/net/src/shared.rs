//! State that connections share: settings, counters, events, and the blocks to be returned.

use crate::config::Config;
use crate::message::{BlockId, Event, Owner};
use crate::slab::{Key, Slab};
use crate::statistics::Statistics;
use std::collections::VecDeque;

/// A chunk's block.
#[derive(Debug)]
struct Block {
    owner: Owner,
    block: BlockId,
    /// Number of frames at the NIC that contain some of its bytes.
    frames: u32,
    /// Set while a send queue has it.
    wanted: bool,
}

/// The blocks that the stack has, each until no queue wants it and no frame has it.
#[derive(Debug)]
pub(crate) struct Blocks(Slab<Block>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) statistics: Statistics,
    pub(crate) events: VecDeque<Event>,
    pub(crate) blocks: Blocks,
    /// Receive buffers that hold bytes that were not granted, for all connections.
    pub(crate) held: usize,
    /// Receive buffers promised to peers for such bytes.
    pub(crate) promised: usize,
}

impl Blocks {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Notes that a frame has it.
    pub(crate) fn framed(&mut self, key: Key) {
        if let Some(block) = self.0.get_mut(key) {
            block.frames += 1;
        }
    }
}

impl Shared {
    pub(crate) fn new(config: Config) -> Shared {
        let blocks = Blocks(Slab::new());
        Shared {
            config,
            statistics: Statistics::default(),
            events: VecDeque::new(),
            blocks,
            held: 0,
            promised: 0,
        }
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Adds a block that a queue wants.
    pub(crate) fn block(&mut self, owner: Owner, block: BlockId) -> Key {
        self.blocks.0.insert(Block { owner, block, frames: 0, wanted: true })
    }

    /// Notes that the queue no longer wants it.
    pub(crate) fn unwanted(&mut self, key: Key) {
        if let Some(block) = self.blocks.0.get_mut(key) {
            block.wanted = false;
        }
        self.free(key);
    }

    /// Notes that a frame that had it is gone.
    pub(crate) fn unframed(&mut self, key: Key) {
        if let Some(block) = self.blocks.0.get_mut(key) {
            block.frames -= 1;
        }
        self.free(key);
    }

    fn free(&mut self, key: Key) {
        let free = self.blocks.0.get(key).is_some_and(|block| !block.wanted && block.frames == 0);
        if free && let Some(Block { owner, block, .. }) = self.blocks.0.remove(key) {
            self.event(Event::Free { owner, block });
        }
    }
}
