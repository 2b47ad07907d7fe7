//! Blocks on reserve and on credit: who gets the next one, and when one is free again.

use crate::blocks::Block;
use crate::engine::Engine;
use crate::message::BlockId;

impl Engine {
    /// Takes a block for a segment: its reserved one, or one on credit. Where there is none the segment gets in line,
    /// or, at its window, waits for one of its own.
    pub(crate) fn take_block(&mut self, index: u16, segment: u8) -> Option<BlockId> {
        let id = self.commands.id(index);
        let command = self.commands.at(index);
        let state = &mut command.segments[segment as usize];
        if state.held >= self.config.window {
            return None;
        }
        let on_credit = state.held > 0;
        if on_credit && !self.blocks.quota.take(command.queue.0 as usize, 1) {
            if !core::mem::replace(&mut state.hungry, true) {
                self.hungry.push_back((id, segment));
            }
            return None;
        }
        command.charged += u32::from(on_credit);
        let (queue, sequence) = (command.queue.0, state.sequence);
        state.held += 1;
        state.sequence += 1;
        let block = Block { command: index, queue, segment, sequence, ..Block::default() };
        let taken = self.blocks.take(block);
        debug_assert!(taken.is_some(), "the quota counts blocks");
        taken
    }

    /// Gives blocks to segments in line, each one block a turn.
    pub(crate) fn feed(&mut self) {
        for _ in 0..self.hungry.len() {
            if self.blocks.quota.free() == 0 {
                return;
            }
            let Some((id, segment)) = self.hungry.pop_front() else { return };
            let Some(command) = self.commands.find(id) else { continue };
            command.segments[segment as usize].hungry = false;
            self.refill(id.index, segment);
        }
    }

    /// A segment may have a block now: reads on, or lets the entry go on that waits to fill one.
    fn refill(&mut self, index: u16, segment: u8) {
        if segment == 0 {
            self.plan(index);
        } else if let Some(entry) = self.commands.at(index).segments[segment as usize].stalled.take() {
            self.ready.push_back(entry);
        }
    }

    /// A block's row is done: it is free once no device uses it.
    pub(crate) fn retire_block(&mut self, id: BlockId) {
        self.blocks.get_mut(id).retired = true;
        self.free_if_unused(id);
    }

    pub(crate) fn free_if_unused(&mut self, id: BlockId) {
        let block = *self.blocks.get(id);
        if !block.retired || block.busy > 0 || block.holds > 0 {
            return;
        }
        self.blocks.put(id);
        if block.orphan {
            return self.blocks.quota.give(block.queue as usize, 1);
        }
        let generation = self.commands.id(block.command);
        let command = self.commands.at(block.command);
        let state = &mut command.segments[block.segment as usize];
        state.held -= 1;
        let was_credit = state.held > 0;
        if was_credit {
            command.charged -= 1;
            self.blocks.quota.give(block.queue as usize, 1);
        }
        if was_credit && !self.hungry.is_empty() {
            // Others are in line: this segment joins them at the end.
            if !core::mem::replace(&mut state.hungry, true) {
                self.hungry.push_back((generation, block.segment));
            }
        } else {
            self.refill(block.command, block.segment);
        }
    }

    pub(crate) fn on_released(&mut self, id: BlockId) {
        if self.blocks.find(id).is_none_or(|block| block.holds == 0) {
            self.counters.stale_events += 1;
            return;
        }
        self.blocks.get_mut(id).holds -= 1;
        self.free_if_unused(id);
    }
}
