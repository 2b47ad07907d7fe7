//! The scoreboard: every device operation of every command, and what it waits for (DCS-ctrl section 3.3.2).

use crate::message::{BlockId, Nanos, OperationId};
use crate::position::Position;
use alloc::vec::Vec;
use dcs_abi::result::{STAGE_DESTINATION, STAGE_OPERATORS, STAGE_SOURCE};
use dcs_abi::status::Stage;

/// State of an entry. Done is the state of an entry whose row goes on without it, just before it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not in use.
    Free,
    /// Waits for other entries.
    Wait,
    /// Waits for nothing but its device, a unit or a block.
    Ready,
    /// With its device.
    Issue,
    /// Done, but entries before it, whose order counts, are not.
    Done,
}

/// The device of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

/// Names an entry inside the engine. A device knows an [`OperationId`] instead, a new one each time the entry is
/// issued: an answer that comes twice is never taken for the answer to the next issue of the same entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryId {
    index: u32,
    generation: u32,
}

/// One entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    generation: u32,
    /// How often this slot was issued: what makes operation identifiers unique.
    serial: u32,
    /// Slot of the command.
    pub command: u16,
    /// Device, and with it read or write.
    pub device: Device,
    pub state: State,
    /// Other entries that must be done first.
    pub waits: u8,
    /// Source (of a read) or destination (of a write) on the device.
    pub position: Position,
    /// The block, except for Direct, Flush and Snapshot.
    pub block: Option<BlockId>,
    /// The block that a resizing operator fills.
    pub output: Option<BlockId>,
    /// Auxiliary: first byte of the block that is not yet done.
    pub start: u32,
    /// Auxiliary: byte of the block to stop at (reads: how far to fill it).
    pub end: u32,
    /// Auxiliary: bytes asked for by the operation in flight.
    pub asked: u64,
    /// Auxiliary: the physical unit,
    pub unit: Option<u16>,
    /// of this pool.
    pub pool: u8,
    /// When it was issued.
    pub issued: Nanos,
    /// Same block, next stage.
    pub next_stage: Option<EntryId>,
    /// Same stage, next block, where order counts.
    pub next_block: Option<EntryId>,
    /// Its command finished without it: it was hung when it was aborted.
    pub orphan: bool,
}

const FREE: Entry = Entry {
    generation: 1,
    serial: 0,
    command: 0,
    device: Device::Flush,
    state: State::Free,
    waits: 0,
    position: Position::START,
    block: None,
    output: None,
    start: 0,
    end: 0,
    asked: 0,
    unit: None,
    pool: 0,
    issued: 0,
    next_stage: None,
    next_block: None,
    orphan: false,
};

#[derive(Debug)]
pub(crate) struct Scoreboard {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

impl Scoreboard {
    pub fn new(size: usize) -> Scoreboard {
        Scoreboard { entries: alloc::vec![FREE; size], free: (0..size as u32).rev().collect() }
    }

    /// Adds an entry in state Wait that waits for nothing yet.
    ///
    /// There is room for a full row of every block, blocks live until their row is done, and a command without
    /// blocks has at most a snapshot for each operator: the scoreboard is never full.
    pub fn add(&mut self, command: u16, device: Device, block: Option<BlockId>) -> EntryId {
        let index = self.free.pop().expect("the scoreboard has room for every block's row");
        let entry = &mut self.entries[index as usize];
        let (generation, serial) = (entry.generation, entry.serial);
        *entry = Entry { generation, serial, command, device, block, state: State::Wait, ..FREE };
        EntryId { index, generation }
    }

    /// The entry of that identifier, unless it is gone.
    pub fn find(&mut self, id: EntryId) -> Option<&mut Entry> {
        let entry = &mut self.entries[id.index as usize];
        (entry.generation == id.generation && entry.state != State::Free).then_some(entry)
    }

    /// An entry that is known to be there.
    pub fn get(&mut self, id: EntryId) -> &mut Entry {
        debug_assert_eq!(self.entries[id.index as usize].generation, id.generation);
        &mut self.entries[id.index as usize]
    }

    /// Notes that an entry goes to its device, under the identifier that is returned.
    pub fn issue(&mut self, id: EntryId, asked: u64, now: Nanos) -> OperationId {
        let entry = self.get(id);
        (entry.state, entry.asked, entry.issued) = (State::Issue, asked, now);
        entry.serial = entry.serial.wrapping_add(1);
        OperationId { index: id.index, generation: entry.serial }
    }

    /// The entry that a device has under that identifier, which may be any number. (A number comes again after 2^32
    /// issues of its slot.)
    pub fn issued(&self, operation: OperationId) -> Option<EntryId> {
        let entry = self.entries.get(operation.index as usize)?;
        let known = entry.state == State::Issue && entry.serial == operation.generation;
        known.then_some(EntryId { index: operation.index, generation: entry.generation })
    }

    /// The identifier under which a device has this entry.
    pub fn operation(&self, id: EntryId) -> OperationId {
        OperationId { index: id.index, generation: self.entries[id.index as usize].serial }
    }

    /// Frees an entry; its identifier is not valid any more.
    pub fn remove(&mut self, id: EntryId) {
        let entry = &mut self.entries[id.index as usize];
        debug_assert!(entry.state != State::Free && entry.generation == id.generation);
        let (generation, serial) = (entry.generation.wrapping_add(1), entry.serial);
        *entry = Entry { generation, serial, ..FREE };
        self.free.push(id.index);
    }

    /// Every entry of a command that is not finished.
    pub fn of_command(&self, command: u16) -> impl Iterator<Item = (EntryId, &Entry)> + '_ {
        self.entries.iter().enumerate().filter_map(move |(index, entry)| {
            let mine = entry.state != State::Free && !entry.orphan && entry.command == command;
            mine.then_some((EntryId { index: index as u32, generation: entry.generation }, entry))
        })
    }

    /// Entries in use, and in all.
    pub fn occupancy(&self) -> (usize, usize) {
        (self.entries.len() - self.free.len(), self.entries.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_for_no_other_issue_of_its_entry_or_slot() {
        let mut board = Scoreboard::new(1);
        let entry = board.add(3, Device::Source, None);
        let first = board.issue(entry, 100, 5);
        assert_eq!(board.issued(first), Some(entry));
        board.get(entry).state = State::Ready;
        assert_eq!(board.issued(first), None, "it is answered");
        let second = board.issue(entry, 60, 9);
        assert_eq!((board.issued(first), board.issued(second)), (None, Some(entry)));
        board.remove(entry);
        let other = board.add(4, Device::Flush, None);
        assert!(board.find(entry).is_none() && board.issued(second).is_none());
        let third = board.issue(other, 0, 10);
        assert_eq!(
            [first, second, third].map(|operation| board.issued(operation)),
            [None, None, Some(other)]
        );
        assert_eq!(board.issued(OperationId::from_bits(u64::MAX)), None);
        assert_eq!(OperationId::from_bits(third.to_bits()), third);
    }

    #[test]
    fn a_command_owns_its_entries_until_they_are_orphans() {
        let mut board = Scoreboard::new(8);
        let mine: Vec<EntryId> = (0..3).map(|at| board.add(1, Device::Operator(at), None)).collect();
        board.add(2, Device::Source, None);
        assert_eq!(board.of_command(1).map(|(id, _)| id).collect::<Vec<_>>(), mine);
        board.get(mine[1]).orphan = true;
        board.remove(mine[0]);
        assert_eq!(board.of_command(1).count(), 1);
        assert_eq!(board.occupancy(), (3, 8));
    }
}
