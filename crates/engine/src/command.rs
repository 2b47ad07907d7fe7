//! One command's state, from the fetch of its entry to its completion.

use crate::message::{BlockId, CommandId, Fault, Nanos, QueueId};
use crate::position::Position;
use crate::scoreboard::EntryId;
use crate::spec::TransferSpec;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use dcs_abi::CHAIN_MAX;
use dcs_abi::entry::SubmissionEntry;
use dcs_abi::result::{DigestSlot, ResultArea};
use dcs_abi::status::Stage;

/// How far a command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The slot is free.
    Free,
    /// Its descriptor is being fetched.
    Fetch,
    /// Waits for an earlier command with its request id.
    Order,
    /// Waits for blocks.
    Admission,
    /// Its endpoints are being bound.
    Bind,
    /// Data move.
    Run,
    /// All data are delivered; the destination is being made durable.
    Flush,
    /// It failed; operations in flight are awaited.
    Drain,
    /// It failed; its digests are asked for their values.
    Collect,
    /// Finished. Its slot stays taken until its completion is posted and no device has an operation of it.
    Over,
}

/// The part of a chain between two operators that change the length of the data.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Segment {
    /// First operator whose input are this segment's blocks.
    pub first: u8,
    /// One past the last such operator.
    pub end: u8,
    /// Blocks that it holds.
    pub held: u16,
    /// The block that the operator before it is filling.
    pub filling: Option<BlockId>,
    /// It is in the line for a block.
    pub hungry: bool,
    /// The entry that waits to fill a block of this segment.
    pub stalled: Option<EntryId>,
    /// Sequence number of its next block.
    pub sequence: u64,
}

/// Most segments of a chain.
pub(crate) const SEGMENTS_MAX: usize = CHAIN_MAX + 1;

#[derive(Debug)]
pub(crate) struct Command {
    pub generation: u32,
    pub phase: Phase,
    pub queue: QueueId,
    pub entry: SubmissionEntry,
    pub spec: Option<Arc<TransferSpec>>,
    /// The descriptor's fetch or the binding is under way: its owner always answers.
    pub awaiting: bool,
    /// Endpoints are bound, operators loaded.
    pub bound: bool,
    /// Source and destination have a path of their own between them, and it is to be used.
    pub direct: bool,
    /// Positional source, so that reads may overlap.
    pub parallel_reads: bool,
    pub parallel_writes: bool,
    pub gather: bool,
    pub segments: [Segment; SEGMENTS_MAX],
    pub segment_count: u8,
    /// Where reading is (or has been planned to, where reads overlap).
    pub read_at: Position,
    /// Bytes for which reads are planned.
    pub planned: u64,
    /// The last block is planned, or the source has ended.
    pub source_done: bool,
    /// The block with which the source ended: later ones are dropped.
    pub last_block: u64,
    /// The source ended before the length that was asked for.
    pub source_short: bool,
    /// The last block was written.
    pub final_written: bool,
    pub reads_in_flight: u16,
    /// Where writing is planned to.
    pub write_at: Position,
    /// Writes by order, until those before them are done.
    pub writes: VecDeque<EntryId>,
    /// The newest entry of each operator, and of the destination (last).
    pub tails: [Option<EntryId>; CHAIN_MAX + 1],
    /// Issued operations.
    pub in_flight: u32,
    /// Its completion is in the ring.
    pub posted: bool,
    /// Blocks that count against its queue's quota.
    pub charged: u32,
    pub deadline: Option<Nanos>,
    /// When a failed command stops waiting for its operations.
    pub grace: Option<Nanos>,
    pub failure: Option<(Stage, u8, Fault)>,
    pub digests: [Option<DigestSlot>; CHAIN_MAX],
    pub result: ResultArea,
}

impl Command {
    fn free() -> Command {
        Command {
            generation: 1,
            phase: Phase::Free,
            queue: QueueId(0),
            entry: SubmissionEntry::default(),
            spec: None,
            awaiting: false,
            bound: false,
            direct: false,
            parallel_reads: false,
            parallel_writes: false,
            gather: false,
            segments: [Segment::default(); SEGMENTS_MAX],
            segment_count: 0,
            read_at: Position::START,
            planned: 0,
            source_done: false,
            last_block: u64::MAX,
            source_short: false,
            final_written: false,
            reads_in_flight: 0,
            write_at: Position::first_out(),
            writes: VecDeque::new(),
            tails: [None; CHAIN_MAX + 1],
            in_flight: 0,
            posted: false,
            charged: 0,
            deadline: None,
            grace: None,
            failure: None,
            digests: [None; CHAIN_MAX],
            result: ResultArea::default(),
        }
    }

    /// The specification of a command that has one.
    pub fn spec(&self) -> &Arc<TransferSpec> {
        self.spec.as_ref().expect("a command past its fetch has a specification")
    }
}

/// All command slots.
#[derive(Debug)]
pub(crate) struct Commands {
    slots: Vec<Command>,
    free: Vec<u16>,
}

impl Commands {
    pub fn new(count: u16) -> Commands {
        Commands { slots: (0..count).map(|_| Command::free()).collect(), free: (0..count).rev().collect() }
    }

    /// Takes a slot. Whoever fetches an entry has first taken a slot from the frontend's quota, so one is free.
    pub fn add(&mut self, queue: QueueId, entry: SubmissionEntry, now: Nanos) -> CommandId {
        let index = self.free.pop().expect("the frontend's quota counts command slots");
        let slot = &mut self.slots[index as usize];
        let generation = slot.generation;
        let writes = core::mem::take(&mut slot.writes);
        *slot = Command { generation, phase: Phase::Fetch, queue, entry, writes, ..Command::free() };
        slot.result.queued = now;
        CommandId { index, generation }
    }

    /// The command of that identifier, unless it is finished.
    pub fn find(&mut self, id: CommandId) -> Option<&mut Command> {
        let command = self.slots.get_mut(id.index as usize)?;
        let live = !matches!(command.phase, Phase::Free | Phase::Over);
        (command.generation == id.generation && live).then_some(command)
    }

    /// The command in that slot.
    pub fn at(&mut self, index: u16) -> &mut Command {
        &mut self.slots[index as usize]
    }

    pub fn id(&self, index: u16) -> CommandId {
        CommandId { index, generation: self.slots[index as usize].generation }
    }

    pub fn remove(&mut self, index: u16) {
        let command = &mut self.slots[index as usize];
        command.generation = command.generation.wrapping_add(1);
        command.phase = Phase::Free;
        command.writes.clear();
        self.free.push(index);
    }

    pub fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
