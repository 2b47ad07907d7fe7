//! Blocks on reserve and on credit: who gets the next one, and when one is free again.

use crate::engine::Engine;
use crate::interface::BlockId;
use crate::scoreboard::{RowId, State};

impl Engine {
    /// Takes a block for a segment: a reserved one, or one on credit. If there is none, the segment gets in
    /// line, or, at its window, waits for one of its own.
    #[inline]
    pub(crate) fn take_block(&mut self, index: u16, segment: u8) -> Option<RowId> {
        let in_use = self.commands.in_use() as u64;
        let command = self.commands.at(index);
        let held = command.segments[segment as usize].held;
        // A block on credit: the first one never is.
        if held > 0 && held >= command.reserved(segment) {
            let state = &mut command.segments[segment as usize];
            // Everybody's blocks together are to stay cached_blocks: so its share of them is a command's
            // window, too. Of several functions none has a smaller one for another's commands.
            let share_is_taken =
                !self.has_functions && u64::from(held) * in_use >= u64::from(self.config.cached_blocks);
            if held >= self.config.window || share_is_taken {
                return None;
            }
            if !self.quota.take(command.queue.0 as usize, 1) {
                if !core::mem::replace(&mut state.awaiting_block, true) {
                    let id = self.commands.id(index);
                    self.awaiting_block.push_back((id, segment));
                }
                return None;
            }
            command.charged += 1;
        }
        let state = &mut command.segments[segment as usize];
        let (queue, sequence) = (command.queue.0, state.sequence);
        state.held += 1;
        state.sequence += 1;
        let taken = self.board.take(index, queue, segment, sequence);
        debug_assert!(taken.is_some(), "the quota counts blocks");
        let used = u64::from(self.config.blocks - self.board.blocks_free());
        self.counters.blocks_peak = self.counters.blocks_peak.max(used);
        taken
    }

    /// Gives blocks to segments in line, each one block a turn.
    pub(crate) fn grant_credits(&mut self) {
        for _ in 0..self.awaiting_block.len() {
            if self.quota.free() == 0 {
                return;
            }
            let Some((id, segment)) = self.awaiting_block.pop_front() else { return };
            let Some(command) = self.commands.find(id) else { continue };
            command.segments[segment as usize].awaiting_block = false;
            self.refill(id.index, segment);
        }
    }

    /// A segment may have a block now: reads on, or lets the row go on that waits to fill one.
    #[inline]
    fn refill(&mut self, index: u16, segment: u8) {
        if segment == 0 {
            self.plan(index);
        } else if let Some(id) = self.commands.at(index).segments[segment as usize].stalled.take()
            && self.board.get(id).state == State::Room
        {
            self.make_ready(id);
        }
    }

    /// A block's way is at its end: it is free once no device uses it.
    #[inline]
    pub(crate) fn retire_block(&mut self, id: RowId) {
        self.leave_segment(id);
        let row = self.board.get_mut(id);
        (row.retired, row.state) = (true, State::Done);
        self.free_if_unused(id);
    }

    #[inline]
    pub(crate) fn free_if_unused(&mut self, id: RowId) {
        let row = self.board.get(id);
        if !row.retired || row.busy > 0 || row.holds > 0 {
            return;
        }
        let (queue, index, segment, orphan) = (row.queue as usize, row.command, row.segment, row.orphan);
        self.board.put(id);
        if orphan {
            return self.quota.give(queue, 1);
        }
        let command = self.commands.at(index);
        let state = &mut command.segments[segment as usize];
        state.held -= 1;
        let held = state.held;
        if held > 0 && held >= command.reserved(segment) {
            // It was on credit.
            command.charged -= 1;
            self.quota.give(queue, 1);
            let state = &mut command.segments[segment as usize];
            if !self.awaiting_block.is_empty() {
                // Others are in line: this segment joins them at the end.
                if !core::mem::replace(&mut state.awaiting_block, true) {
                    let id = self.commands.id(index);
                    self.awaiting_block.push_back((id, segment));
                }
                return;
            }
        }
        self.refill(index, segment);
    }

    pub(crate) fn on_released(&mut self, block: BlockId) {
        let Some(id) = self.board.find(block).filter(|id| self.board.get(*id).holds > 0) else {
            self.counters.stale_events += 1;
            return;
        };
        self.board.get_mut(id).holds -= 1;
        self.free_if_unused(id);
    }
}
