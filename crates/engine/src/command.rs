//! One command's state, from the fetch of its entry to its completion.

use crate::interface::{CommandId, Failure, Nanos, QueueId};
use crate::position::Position;
use crate::scoreboard::RowId;
use crate::transfer::TransferSpec;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use dcs_abi::CHAIN_MAX;
use dcs_abi::entry::{LENGTH_TO_END, SubmissionEntry};
use dcs_abi::inline::InlineShape;
use dcs_abi::operator::OperatorKind;
use dcs_abi::result::ResultArea;
use dcs_abi::status::Stage;

/// The progress of a command.
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
    /// All data are delivered; the destination is being made durable, or its peer is waited for.
    Flush,
    /// It failed; operations in flight are awaited.
    Drain,
    /// It failed; its digests are asked for their values.
    Collect,
    /// Finished. Its slot stays taken until its completion is posted and no device has an operation of it.
    Finished,
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
    pub filling: Option<RowId>,
    /// It is in the line for a block.
    pub awaiting_block: bool,
    /// The row that waits to fill a block of this segment.
    pub stalled: Option<RowId>,
    /// First row of its blocks, in order.
    pub head: Option<RowId>,
    /// Last row of its blocks.
    pub tail: Option<RowId>,
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
    /// The transfer asked for, once its descriptor was read. The next command of this slot reuses the memory.
    pub spec: Arc<TransferSpec>,
    /// The descriptor's fetch or the binding is under way: its owner always answers.
    pub awaiting_owner: bool,
    /// Endpoints are bound, operators loaded.
    pub bound: bool,
    /// Source and destination have a path of their own between them, and it is to be used.
    pub direct: bool,
    /// See [`Binding::flush`](crate::Binding::flush).
    pub flush: bool,
    /// Positional source of known length, so that reads may overlap.
    pub parallel_reads: bool,
    pub parallel_writes: bool,
    pub gather: bool,
    /// A block is written only when the one behind it is through the chain: so the last one of a source that
    /// ends by itself waits for the digests that are expected.
    pub withholds: bool,
    /// The source still has what is written.
    pub repeats_source: bool,
    pub segments: [Segment; SEGMENTS_MAX],
    pub segment_count: u8,
    /// The position of the next read (of the next one to be planned, where reads overlap).
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
    /// The position of the next write to be planned.
    pub write_at: Position,
    /// Issued operations.
    pub in_flight: u32,
    /// Its block, while its owner runs it.
    pub short: Option<RowId>,
    /// Shape of the inline entry that the specification was last made of; `None` if it was made of a
    /// descriptor.
    pub shape: Option<InlineShape>,
    /// Its completion is in the ring.
    pub posted: bool,
    /// Blocks that count against its queue's quota.
    pub charged: u32,
    pub deadline: Option<Nanos>,
    /// When a failed command stops waiting for its operations.
    pub grace: Option<Nanos>,
    pub failure: Option<(Stage, u8, Failure)>,
    pub result: Box<ResultArea>,
    /// It is found by its command identifier.
    registered: bool,
    /// The next one in its bucket.
    bucket_next: u16,
}

impl Command {
    fn free() -> Command {
        Command {
            generation: 1,
            phase: Phase::Free,
            queue: QueueId(0),
            entry: SubmissionEntry::default(),
            spec: Arc::default(),
            awaiting_owner: false,
            bound: false,
            direct: false,
            flush: false,
            parallel_reads: false,
            parallel_writes: false,
            gather: false,
            withholds: false,
            repeats_source: false,
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
            in_flight: 0,
            short: None,
            shape: None,
            posted: false,
            charged: 0,
            deadline: None,
            grace: None,
            failure: None,
            result: Box::default(),
            registered: false,
            bucket_next: NOBODY,
        }
    }

    /// Initializes a free slot for a new command, except for what [`Command::prepare`] sets.
    #[inline]
    fn begin(&mut self, queue: QueueId, entry: SubmissionEntry, now: Nanos) {
        self.phase = Phase::Fetch;
        self.queue = queue;
        self.entry = entry;
        self.awaiting_owner = false;
        self.bound = false;
        self.direct = false;
        self.flush = false;
        self.segment_count = 0;
        self.planned = 0;
        self.source_done = false;
        self.last_block = u64::MAX;
        self.source_short = false;
        self.final_written = false;
        self.reads_in_flight = 0;
        self.short = None;
        self.posted = false;
        self.charged = 0;
        self.deadline = None;
        self.grace = None;
        self.failure = None;
        *self.result = ResultArea::default();
        self.result.queued = now;
    }

    /// Sets it up for its data, by its specification.
    #[inline]
    pub fn prepare(&mut self) {
        let spec = &*self.spec;
        self.segments[0] = Segment::default();
        self.segment_count = 1;
        for (at, operator) in spec.chain.iter().enumerate() {
            let count = self.segment_count as usize;
            let end = at as u8 + 1;
            self.segments[count - 1].end = end;
            if operator.kind == OperatorKind::Resize {
                self.segments[count] = Segment { first: end, end, ..Segment::default() };
                self.segment_count += 1;
            }
        }
        self.read_at = Position::first_in(spec);
        self.write_at = Position::first_out();
        // A source of unknown length (a file of /proc) is read in one go, from front to back.
        self.parallel_reads = spec.source.kind.is_positional() && !spec.source.is_open_ended();
        self.parallel_writes = spec.destination.kind.is_positional();
        self.gather = spec.gathers();
        let expects = spec.expects();
        self.repeats_source = self.parallel_reads && spec.repeats_source();
        self.withholds = expects && !self.certainly_continues();
    }

    /// Blocks that a segment always has: where blocks are withheld there has to be one behind them.
    #[inline]
    pub fn reserved(&self, segment: u8) -> u16 {
        1 + u16::from(self.withholds && segment + 1 == self.segment_count)
    }

    /// Returns true if it is certain, before the last block is there, that more bytes follow a block: only
    /// then may a socket be told to wait for them.
    pub fn certainly_continues(&self) -> bool {
        self.spec.length != LENGTH_TO_END && self.segment_count == 1
    }

    /// The segment whose blocks are written.
    #[inline]
    pub fn last_segment(&self) -> &Segment {
        &self.segments[(self.segment_count as usize).saturating_sub(1)]
    }

    /// The specification may hold keys: it goes when the command is finished, not when the slot is used
    /// again.
    #[inline]
    pub fn forget_spec(&mut self) {
        match Arc::get_mut(&mut self.spec) {
            // That of an inline entry has no parameters, so no keys: the next command of its shape takes it over.
            Some(_) if self.shape.is_some() => {}
            Some(spec) => spec.clear(),
            None => (self.spec, self.shape) = (Arc::default(), None),
        }
    }
}

/// The end of a bucket.
const NOBODY: u16 = u16::MAX;

/// All command slots.
#[derive(Debug)]
pub(crate) struct Commands {
    slots: Vec<Command>,
    free: Vec<u16>,
    /// Commands in flight by queue and command identifier: the first of each bucket.
    buckets: Vec<u16>,
}

impl Commands {
    pub fn new(count: u16) -> Commands {
        Commands {
            slots: (0..count).map(|_| Command::free()).collect(),
            free: (0..count).rev().collect(),
            buckets: alloc::vec![NOBODY; (count as usize).next_power_of_two()],
        }
    }

    /// Takes a slot. A fetched entry has taken a slot from the frontend's quota before, so one is free.
    #[inline]
    pub fn add(&mut self, queue: QueueId, entry: SubmissionEntry, now: Nanos) -> CommandId {
        let index = self.free.pop().expect("the frontend's quota counts command slots");
        let slot = &mut self.slots[index as usize];
        slot.begin(queue, entry, now);
        CommandId { index, generation: slot.generation }
    }

    /// The identifier that [`Commands::add`] would give.
    #[inline]
    pub fn next_free(&self) -> Option<CommandId> {
        self.free.last().map(|index| self.id(*index))
    }

    /// The command of that identifier, unless it is finished.
    #[inline]
    pub fn find(&mut self, id: CommandId) -> Option<&mut Command> {
        let command = self.slots.get_mut(id.index as usize)?;
        let live = !matches!(command.phase, Phase::Free | Phase::Finished);
        (command.generation == id.generation && live).then_some(command)
    }

    /// The command in that slot.
    #[inline]
    pub fn at(&mut self, index: u16) -> &mut Command {
        &mut self.slots[index as usize]
    }

    #[inline]
    pub fn id(&self, index: u16) -> CommandId {
        CommandId { index, generation: self.slots[index as usize].generation }
    }

    pub fn remove(&mut self, index: u16) {
        let command = &mut self.slots[index as usize];
        command.generation = command.generation.wrapping_add(1);
        command.phase = Phase::Free;
        self.free.push(index);
    }

    pub fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn bucket(&self, queue: QueueId, cid: u16) -> usize {
        // Identifiers of one queue are near each other; queues are spread by an odd number.
        (cid as usize + queue.0 as usize * 61) & (self.buckets.len() - 1)
    }

    /// Lets a command be found by its command identifier.
    #[inline]
    pub fn register(&mut self, index: u16) {
        let command = &self.slots[index as usize];
        let bucket = self.bucket(command.queue, command.entry.cid);
        let next = core::mem::replace(&mut self.buckets[bucket], index);
        let command = &mut self.slots[index as usize];
        (command.registered, command.bucket_next) = (true, next);
    }

    /// Frees a command's identifier; returns false if it was not registered.
    #[inline]
    pub fn unregister(&mut self, index: u16) -> bool {
        let command = &mut self.slots[index as usize];
        if !core::mem::take(&mut command.registered) {
            return false;
        }
        let (next, queue, cid) = (command.bucket_next, command.queue, command.entry.cid);
        let bucket = self.bucket(queue, cid);
        let mut before = self.buckets[bucket];
        if before == index {
            self.buckets[bucket] = next;
            return true;
        }
        while self.slots[before as usize].bucket_next != index {
            before = self.slots[before as usize].bucket_next;
        }
        self.slots[before as usize].bucket_next = next;
        true
    }

    /// The command in flight of that queue and command identifier.
    #[inline]
    pub fn find_by_cid(&self, queue: QueueId, cid: u16) -> Option<CommandId> {
        let mut at = self.buckets[self.bucket(queue, cid)];
        while let Some(command) = self.slots.get(at as usize) {
            if command.queue == queue && command.entry.cid == cid {
                return Some(self.id(at));
            }
            at = command.bucket_next;
        }
        None
    }

    /// Every command in flight of a queue.
    pub fn of_queue(&self, queue: QueueId) -> Vec<CommandId> {
        let mine = |index: &u16| {
            let command = &self.slots[*index as usize];
            command.registered && command.queue == queue
        };
        (0..self.slots.len() as u16).filter(mine).map(|index| self.id(index)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_by_their_identifiers_while_they_are_listed() {
        let mut commands = Commands::new(5);
        // In a table of eight buckets three of these share one.
        let all = [(0, 3), (0, 11), (0, 19), (1, 3), (1, 4)];
        let ids = all.map(|(queue, cid)| {
            let entry = SubmissionEntry { cid, ..Default::default() };
            let id = commands.add(QueueId(queue), entry, 0);
            assert_eq!(commands.find_by_cid(QueueId(queue), cid), None);
            commands.register(id.index);
            id
        });
        for out in [1, 2, 0, 4, 3] {
            assert_eq!(commands.find_by_cid(QueueId(all[out].0), all[out].1), Some(ids[out]));
            assert!(commands.unregister(ids[out].index) && !commands.unregister(ids[out].index));
            assert_eq!(commands.find_by_cid(QueueId(all[out].0), all[out].1), None);
        }
        assert!(commands.buckets.iter().all(|first| *first == NOBODY));
        assert_eq!(commands.of_queue(QueueId(0)), []);
    }
}
