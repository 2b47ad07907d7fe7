//! Planning: which blocks a command gets, and which entries they wait for.

use crate::command::Phase;
use crate::engine::Engine;
use crate::message::{BlockId, Place};
use crate::scoreboard::{Device, EntryId};
use dcs_abi::CHAIN_MAX;

/// A row of entries as it grows.
struct Row {
    first: Option<EntryId>,
    newest: Option<EntryId>,
}

/// Place of the destination in `Command::tails`.
pub(crate) const TAIL_DESTINATION: usize = CHAIN_MAX;

impl Engine {
    /// Plans as many reads as window and credits allow.
    pub(crate) fn plan(&mut self, index: u16) {
        loop {
            let command = self.commands.at(index);
            if command.phase != Phase::Run || command.source_done {
                return;
            }
            if command.direct && command.read_at.place == Place::Source {
                return self.plan_direct(index);
            }
            if !command.parallel_reads && command.reads_in_flight > 0 {
                return;
            }
            let Some(block) = self.take_block(index, 0) else { return };
            self.plan_read(index, block);
        }
    }

    fn plan_read(&mut self, index: u16, block: BlockId) {
        let block_size = u64::from(self.config.block_size);
        let command = self.commands.at(index);
        let spec = command.spec();
        let mut wanted = block_size.min(spec.length - command.planned);
        if command.direct {
            // Only the prefix goes by blocks; the source follows by itself.
            let prefix = spec.prefix.as_ref().map_or(0, |prefix| prefix.length());
            wanted = wanted.min(prefix - command.planned);
        }
        let at = command.read_at;
        if command.parallel_reads {
            command.read_at = at.advance(spec, wanted);
        }
        command.planned += wanted;
        command.source_done = command.planned == command.spec().length;
        command.reads_in_flight += 1;
        self.blocks.get_mut(block).last = command.source_done;
        let read = self.board.add(index, Device::Source, Some(block));
        let entry = self.board.get(read);
        (entry.position, entry.end) = (at, wanted as u32);
        self.add_row(index, 0, block, Some(read));
    }

    /// Adds the entries of a block's way through its segment, behind its read if there is one.
    pub(crate) fn add_row(&mut self, index: u16, segment: u8, block: BlockId, read: Option<EntryId>) {
        let command = self.commands.at(index);
        let (first, end) = (command.segments[segment as usize].first, command.segments[segment as usize].end);
        let is_last = segment + 1 == command.segment_count;
        let mut row = Row { first: read, newest: read };
        for at in first..end {
            let entry = self.add_to_row(index, Device::Operator(at), block, &mut row);
            self.wait_for_tail(index, at as usize, entry);
        }
        if is_last {
            let entry = self.add_to_row(index, Device::Destination, block, &mut row);
            self.add_write(index, segment, entry, read);
        }
        // The first of a row without a read may have nothing to wait for.
        if let Some(first) = row.first
            && self.board.get(first).waits == 0
        {
            self.ready.push_back(first);
        }
    }

    /// Adds one entry to a row: it waits for the one before it.
    fn add_to_row(&mut self, index: u16, device: Device, block: BlockId, row: &mut Row) -> EntryId {
        let entry = self.board.add(index, device, Some(block));
        if let Some(before) = row.newest {
            self.board.get(before).next_stage = Some(entry);
            self.board.get(entry).waits += 1;
        }
        row.first = row.first.or(Some(entry));
        row.newest = Some(entry);
        entry
    }

    /// A row's write: in order where the destination is a stream, else at its place.
    fn add_write(&mut self, index: u16, segment: u8, entry: EntryId, read: Option<EntryId>) {
        if !self.commands.at(index).parallel_writes {
            self.wait_for_tail(index, TAIL_DESTINATION, entry);
        }
        let command = self.commands.at(index);
        command.writes.push_back(entry);
        if command.parallel_reads && segment == 0 {
            // Reads of blocks may overtake each other: each block's place at the destination is fixed now.
            let length = u64::from(read.map_or(0, |read| self.board.get(read).end));
            self.board.get(entry).position = command.write_at;
            command.write_at = command.write_at.advance(command.spec(), length);
        }
    }

    /// Lets an entry wait for the same stage's entry of the block before.
    fn wait_for_tail(&mut self, index: u16, tail: usize, entry: EntryId) {
        let before = self.commands.at(index).tails[tail].replace(entry);
        if let Some(before) = before {
            self.board.get(before).next_block = Some(entry);
            self.board.get(entry).waits += 1;
        }
    }

    /// The source follows by the direct path once the prefix is through.
    fn plan_direct(&mut self, index: u16) {
        let command = self.commands.at(index);
        if command.in_flight > 0 || command.reads_in_flight > 0 || !command.writes.is_empty() {
            return;
        }
        command.source_done = true;
        let entry = self.board.add(index, Device::Direct, None);
        self.ready.push_back(entry);
    }
}
