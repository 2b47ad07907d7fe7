//! The scoreboard: where every block is on its way, and what it waits for (DCS-ctrl section 3.3.2).
//!
//! A block has one *row*. Its stages follow each other, so a row is at one stage at a time and has at most
//! one operation in flight; where order counts, it waits for the row before it to pass the stage first. A few
//! more rows are for operations without a block.

use crate::interface::{BlockId, Nanos, OperationId};
use crate::position::Position;
use alloc::vec::Vec;
use dcs_abi::CHAIN_MAX;
use dcs_abi::result::{STAGE_DESTINATION, STAGE_OPERATORS, STAGE_SOURCE};
use dcs_abi::status::Stage;

/// State of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not in use.
    Free,
    /// Its block is being filled by an operator before it, or waits for the row before it to pass this stage.
    Wait,
    /// In the line of those that wait for nothing.
    Ready,
    /// In line for a unit.
    Unit,
    /// Waits for a block to fill.
    Room,
    /// With its device.
    Issue,
    /// All its stages are done. Rows before it, whose order counts, or its device may still need the block.
    Done,
    /// Its command failed before that.
    Stopped,
}

/// The device of a stage, in the order in which stages follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Device {
    /// Read from prefix or source.
    Source,
    /// The operator at that place of the chain.
    Operator(u8),
    /// Write to the destination.
    Destination,
    /// Copy from source to destination without a block.
    Direct,
    /// Make the destination durable.
    Flush,
    /// Ask a digest for its value.
    Snapshot(u8),
}

impl Device {
    /// The stage, and the operator's place, that a failure names.
    pub fn stage(self) -> (Stage, u8) {
        match self {
            Device::Source => (Stage::Source, 0),
            Device::Operator(at) | Device::Snapshot(at) => (Stage::Operator, at),
            Device::Destination | Device::Direct | Device::Flush => (Stage::Destination, 0),
        }
    }

    /// The place of its times in the result.
    pub fn slot(self) -> usize {
        match self {
            Device::Source => STAGE_SOURCE,
            Device::Operator(at) | Device::Snapshot(at) => STAGE_OPERATORS + at as usize,
            Device::Destination | Device::Direct | Device::Flush => STAGE_DESTINATION,
        }
    }

    /// The index of its row among its command's rows without a block.
    fn blockless(self) -> usize {
        match self {
            Device::Snapshot(at) => at as usize,
            // At most one of the others is in use, and only while no digest is asked for its value.
            _ => 0,
        }
    }
}

/// Names a row; that of a block has the block's number. A device knows an [`OperationId`] instead, a new one
/// each time the row is issued: an answer that comes twice is never taken for the answer to the next issue of
/// the same row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowId(pub u32);

impl RowId {
    /// The block of a row that has one.
    pub fn block(self) -> BlockId {
        BlockId(self.0)
    }
}

/// One row, and all that is known of its block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Counts its issues, so that operation identifiers are unique.
    serial: u32,
    /// Slot of its command; meaningless once it is an orphan.
    pub command: u16,
    /// Its queue.
    pub queue: u16,
    /// The stage it is at.
    pub device: Device,
    pub state: State,
    /// The segment of the command's chain that the block belongs to.
    pub segment: u8,
    /// It ends the stream.
    pub last: bool,
    /// All its stages are done: the block is free as soon as nothing uses it.
    pub retired: bool,
    /// Its command finished without it: a device had it still.
    pub orphan: bool,
    /// Operations with devices that use the block.
    pub busy: u8,
    /// The unit's pool.
    pub pool: u8,
    /// The physical unit.
    pub unit: Option<u16>,
    /// Devices that still read the block after their operation was done.
    pub holds: u32,
    /// Bytes in the block.
    pub length: u32,
    /// First byte of the block that its stage is not through with.
    pub start: u32,
    /// The end of what is to be read into the block.
    pub end: u32,
    /// Its place in its segment, from 0.
    pub sequence: u64,
    /// Bytes asked for by the operation in flight.
    pub asked: u64,
    /// When that was issued.
    pub issued: Nanos,
    /// Its position at the source, if reads overlap.
    pub from: Position,
    /// Its position at the destination, once that is known.
    pub to: Option<Position>,
    /// The block that a resizing operator fills now.
    pub output: Option<RowId>,
    /// Its neighbours in its segment.
    pub previous: Option<RowId>,
    pub next: Option<RowId>,
}

const FREE: Row = Row {
    serial: 0,
    command: 0,
    queue: 0,
    device: Device::Source,
    state: State::Free,
    segment: 0,
    last: false,
    retired: false,
    orphan: false,
    busy: 0,
    pool: 0,
    unit: None,
    holds: 0,
    length: 0,
    start: 0,
    end: 0,
    sequence: 0,
    asked: 0,
    issued: 0,
    from: Position::START,
    to: None,
    output: None,
    previous: None,
    next: None,
};

#[derive(Debug)]
pub(crate) struct Scoreboard {
    /// Those of the blocks, then [`CHAIN_MAX`] for each command.
    rows: Vec<Row>,
    blocks: u32,
    /// Number of free blocks.
    free: Vec<RowId>,
    /// Rows without a block that are in use.
    blockless: usize,
}

impl Row {
    /// So many identifiers were given away.
    #[inline]
    pub fn skip(&mut self, identifiers: u32) {
        self.serial = self.serial.wrapping_add(identifiers);
    }

    /// An operation that was begun under one of them is this row's.
    pub fn adopt(&mut self, operation: OperationId) {
        self.serial = operation.generation;
    }
}

impl Scoreboard {
    pub fn new(blocks: u32, commands: u16) -> Scoreboard {
        let size = blocks as usize + commands as usize * CHAIN_MAX;
        let free = (0..blocks).rev().map(RowId).collect();
        Scoreboard { rows: alloc::vec![FREE; size], blocks, free, blockless: 0 }
    }

    /// Takes a free block for a segment of a command; the quota was asked before.
    #[inline]
    pub fn take(&mut self, command: u16, queue: u16, segment: u8, sequence: u64) -> Option<RowId> {
        let id = self.free.pop()?;
        let row = &mut self.rows[id.0 as usize];
        *row = Row { serial: row.serial, command, queue, segment, sequence, state: State::Wait, ..FREE };
        Some(id)
    }

    /// The block that [`Scoreboard::take`] would take.
    #[inline]
    pub fn next_free(&self) -> Option<RowId> {
        self.free.last().copied()
    }

    /// Puts a block back.
    #[inline]
    pub fn put(&mut self, id: RowId) {
        let row = self.get_mut(id);
        debug_assert!(row.state != State::Free && row.busy == 0 && row.holds == 0);
        (row.state, row.orphan) = (State::Free, false);
        self.free.push(id);
    }

    /// The row of a command's operation that has no block.
    pub fn add_blockless(&mut self, command: u16, device: Device) -> RowId {
        let id = RowId(self.blocks + u32::from(command) * CHAIN_MAX as u32 + device.blockless() as u32);
        let row = self.get_mut(id);
        debug_assert_eq!(row.state, State::Free);
        *row = Row { serial: row.serial, command, device, state: State::Wait, ..FREE };
        self.blockless += 1;
        id
    }

    /// Frees a row without a block.
    pub fn remove(&mut self, id: RowId) {
        debug_assert!(!self.has_block(id));
        let row = self.get_mut(id);
        debug_assert_ne!(row.state, State::Free);
        (row.state, row.orphan) = (State::Free, false);
        self.blockless -= 1;
    }

    pub fn has_block(&self, id: RowId) -> bool {
        id.0 < self.blocks
    }

    #[inline]
    pub fn get(&self, id: RowId) -> &Row {
        &self.rows[id.0 as usize]
    }

    #[inline]
    pub fn get_mut(&mut self, id: RowId) -> &mut Row {
        &mut self.rows[id.0 as usize]
    }

    /// The row of a block whose number came from outside.
    pub fn find(&self, block: BlockId) -> Option<RowId> {
        let row = self.rows[..self.blocks as usize].get(block.index())?;
        (row.state != State::Free).then_some(RowId(block.0))
    }

    /// Notes that a row goes to its device, under the identifier that is returned.
    #[inline]
    pub fn issue(&mut self, id: RowId, asked: u64, now: Nanos) -> OperationId {
        let row = self.get_mut(id);
        (row.state, row.asked, row.issued) = (State::Issue, asked, now);
        row.busy += 1;
        row.serial = row.serial.wrapping_add(1);
        OperationId { index: id.0, generation: row.serial }
    }

    /// The row that a device has under that identifier, which may be any number. (A number comes again after
    /// 2^32 issues of its row.)
    #[inline]
    pub fn issued(&self, operation: OperationId) -> Option<RowId> {
        let row = self.rows.get(operation.index as usize)?;
        let known = row.state == State::Issue && row.serial == operation.generation;
        known.then_some(RowId(operation.index))
    }

    /// The identifier under which a device has this row.
    #[inline]
    pub fn operation(&self, id: RowId) -> OperationId {
        OperationId { index: id.0, generation: self.get(id).serial }
    }

    /// Every row of a command that is not finished, those of blocks first.
    pub fn of_command(&self, command: u16) -> impl Iterator<Item = RowId> + '_ {
        let first_blockless = self.blocks + u32::from(command) * CHAIN_MAX as u32;
        let mine = move |id: &RowId| {
            let row = self.get(*id);
            row.state != State::Free && !row.orphan && row.command == command
        };
        (0..self.blocks).chain(first_blockless..first_blockless + CHAIN_MAX as u32).map(RowId).filter(mine)
    }

    /// Blocks that are free.
    pub fn blocks_free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Rows in use.
    pub fn in_use(&self) -> usize {
        self.blocks as usize - self.free.len() + self.blockless
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_for_no_other_issue_of_its_row() {
        let mut board = Scoreboard::new(1, 1);
        let row = board.take(0, 0, 0, 0).expect("a block is free");
        let first = board.issue(row, 100, 5);
        assert_eq!(board.issued(first), Some(row));
        (board.get_mut(row).state, board.get_mut(row).busy) = (State::Wait, 0);
        assert_eq!(board.issued(first), None, "it is answered");
        let second = board.issue(row, 60, 9);
        assert_eq!((board.issued(first), board.issued(second)), (None, Some(row)));
        board.get_mut(row).busy = 0;
        board.put(row);
        assert!(board.find(row.block()).is_none() && board.issued(second).is_none());
        assert_eq!(board.take(0, 0, 0, 1), Some(row), "the same block again");
        let third = board.issue(row, 0, 10);
        assert_eq!([first, second, third].map(|operation| board.issued(operation)), [None, None, Some(row)]);
        assert_eq!(board.issued(OperationId::from_bits(u64::MAX)), None);
        assert_eq!(OperationId::from_bits(third.to_bits()), third);
    }

    #[test]
    fn a_command_owns_its_rows_until_they_are_orphans() {
        let mut board = Scoreboard::new(4, 3);
        let blocks: Vec<RowId> = (0..2).filter_map(|sequence| board.take(1, 0, 0, sequence)).collect();
        let flush = board.add_blockless(1, Device::Flush);
        board.take(2, 0, 0, 0);
        let other = board.add_blockless(2, Device::Snapshot(3));
        assert_eq!(board.of_command(1).collect::<Vec<_>>(), [blocks[0], blocks[1], flush]);
        board.get_mut(blocks[1]).orphan = true;
        board.remove(flush);
        assert_eq!(board.of_command(1).collect::<Vec<_>>(), [blocks[0]]);
        assert_eq!((board.in_use(), board.blocks_free()), (4, 1));
        assert!(board.has_block(blocks[0]) && !board.has_block(other));
        assert_eq!(board.find(BlockId(4)), None, "no block, though a row");
    }
}
