//! Commands that go through: short ones that nothing holds up. Their owner runs them as it hands in their entries, and
//! where all their stages are done then, the core has made no command of them: no slot, no row, no line of actions.
//! Where an operator's lanes may be shared, their owner does what comes before, and a command is made of them then.
//!
//! The rules for other commands hold: who may take a block or a slot, identifiers in flight, request ids, the
//! order of a queue's completions. A command that might not go through takes the usual way, and so does one
//! that its owner could not finish: with its results so far.

use crate::engine::Engine;
use crate::frontend::Pick;
use crate::interface::{
    Action, Binding, BlockId, CommandId, Event, Failure, Nanos, OperationId, QueueId, Ran, SHORT_CHAIN_MAX,
};
use crate::renaming::Renaming;
use crate::scoreboard::RowId;
use crate::transfer::{EndpointSpec, TransferSpec};
use alloc::boxed::Box;
use dcs_abi::descriptor::{EndpointKind, Extent, OPEN_END};
use dcs_abi::entry::{CompletionEntry, FLAG_INLINE, FLAG_MORE, OPCODE_TRANSFER};
use dcs_abi::inline::InlineEntry;
use dcs_abi::operator::OperatorKind;
use dcs_abi::result::ResultArea;
use dcs_abi::status::Stage;
use dcs_abi::{U48, Wire};

/// A short command that its owner takes through all its stages, as far as that goes at once. As
/// [`Short`](crate::Short), of which no command was made yet.
#[derive(Debug)]
pub struct Passage<'a> {
    /// The command that it becomes if it is not finished.
    pub command: CommandId,
    /// Its queue: handles are the queue's own.
    pub queue: QueueId,
    /// The transfer: no prefix, one extent an end at most, and a length that fits into a block.
    pub spec: &'a TransferSpec,
    /// Under this identifier its source is read; each later stage has [`OperationId::later`].
    pub operation: OperationId,
    /// Its block.
    pub block: BlockId,
    /// The stages that its owner may do now: those before an operator whose lanes others may share. If it is
    /// `None`, all.
    pub until: Option<u8>,
}

/// Progress of an owner with a [`Passage`].
#[derive(Debug)]
pub enum Progress {
    /// It was run as far as its [`Ran`] tells, at this time: handled as by [`Event::Ran`].
    Ran(Nanos),
    /// It was bound, and no stage was begun; or it could not be bound: as by [`Event::Bound`].
    Bound(Result<Binding, (Stage, u8, Failure)>),
}

/// The completion of a command that went through: see [`Action::Complete`].
#[derive(Debug)]
pub struct Posted {
    /// The slot of its queue's completion ring.
    pub slot: u16,
    /// The entry, phase bit set.
    pub entry: CompletionEntry,
    /// The bus address of the result area (untrusted).
    pub address: u64,
    /// The result area.
    pub result: Box<ResultArea>,
}

/// An entry that [`Engine::enter_alone`] was given: its fate.
#[derive(Debug)]
pub enum Alone<'a> {
    /// Nothing: it is not the only one, or no such command.
    Not,
    /// Its command went through: the slot of its completion, which is taken in, the entry and the result. No doorbell is
    /// owed for either ring.
    Ended(u16, CompletionEntry, &'a ResultArea),
    /// It was fetched, and its command goes on as every other.
    GoesOn,
}

/// The transfer of the command that goes through now, and what is known of its shape.
#[derive(Debug)]
pub(crate) struct Through {
    spec: TransferSpec,
    /// The shape of the entry of which the specification was made last: operators and kinds, and modes, as they are written.
    shape: Option<(u32, u16)>,
    /// Commands of this shape may go through.
    fits: bool,
    /// The first operator whose unit has lanes, which others might share.
    gathers: Option<u8>,
    /// The owner's notes of it.
    ran: Ran,
    /// The result of the one that was alone. Whatever a command of this shape does not write is zero.
    result: Box<ResultArea>,
}

impl Default for Through {
    fn default() -> Through {
        let (spec, ran) = (TransferSpec::default(), Ran::new(Binding::default(), 0));
        Through { spec, shape: None, fits: false, gathers: None, ran, result: Box::default() }
    }
}

impl Through {
    /// Becomes the transfer of an entry of another shape, and checks whether such commands may go through.
    /// Returns false if they may not.
    #[cold]
    fn learn(&mut self, inline: &InlineEntry, units: &Renaming) -> bool {
        let is_read = self.spec.read_inline(inline, &inline.entry(), units).is_ok();
        let chain = &self.spec.chain;
        let in_place = |kind| kind != OperatorKind::Resize;
        let fits = chain.len() <= SHORT_CHAIN_MAX
            && chain.iter().all(|operator| in_place(operator.kind) && !operator.on_gpu);
        // Bytes that the source still has may be sent from there.
        self.fits = is_read && fits && !self.spec.repeats_source();
        self.gathers = (0..).zip(chain).find(|(_, operator)| units.gathers(operator.pool)).map(|(at, _)| at);
        *self.result = ResultArea::default();
        is_read
    }

    /// Becomes the transfer of an entry, if such a one may go through: what it takes for that is checked here, and what is
    /// wrong with others is found out where all are checked. The entry is read field by field: most of it is never looked at.
    #[inline]
    fn take_up(&mut self, bytes: &[u8; 64], units: &Renaming, block_size: u32) -> bool {
        let flags = half(bytes, 60);
        // No fused command, no namespace, no order, no time: these are for others.
        let is_plain = long(bytes, 0) & 0xffff_ffff_0000_ffff == u64::from(OPCODE_TRANSFER)
            && word(bytes, 8) | word(bytes, 56) == 0
            && flags & !FLAG_MORE == FLAG_INLINE;
        let length = long(bytes, 48);
        if !is_plain || long(bytes, 16) == 0 || length.wrapping_sub(1) >= u64::from(block_size) {
            return false;
        }
        let shape = (word(bytes, 40), half(bytes, 62));
        if self.shape != Some(shape) {
            self.shape = self.learn(&InlineEntry::get(bytes), units).then_some(shape);
        }
        self.spec.length = length;
        self.spec.more = flags & FLAG_MORE != 0;
        let (from, to) = (long(bytes, 24), long(bytes, 32));
        let room = match self.spec.destination.kind {
            EndpointKind::File => OPEN_END.saturating_sub(to),
            _ => length,
        };
        // Of unknown length or end.
        let ends = |offset: u64| offset < OPEN_END && length < OPEN_END - offset;
        self.fits
            && ends(from)
            && ends(to)
            && self.spec.source.is_aimed(word(bytes, 12), from, length)
            && self.spec.destination.is_aimed(word(bytes, 44), to, room)
    }
}

#[inline(always)]
fn long(bytes: &[u8; 64], at: usize) -> u64 {
    u64::get(&bytes[at..at + 8])
}

#[inline(always)]
fn word(bytes: &[u8; 64], at: usize) -> u32 {
    u32::get(&bytes[at..at + 4])
}

#[inline(always)]
fn half(bytes: &[u8; 64], at: usize) -> u16 {
    u16::get(&bytes[at..at + 2])
}

impl Through {
    /// Writes the result of the command that was alone; returns false if its owner reported invalid results.
    #[inline]
    fn write_result(&mut self, since: Nanos) -> bool {
        let Through { spec, ran, result, .. } = self;
        result.path = 0;
        (result.queued, result.started) = (since, ran.times[0]);
        result.finished = since.max(ran.times[usize::from(ran.done)]);
        ran.write_result(spec, result)
    }
}

impl EndpointSpec {
    /// Becomes another end of the same kind and modes; returns false if such an end cannot have this extent.
    #[inline]
    fn is_aimed(&mut self, handle: u32, offset: u64, length: u64) -> bool {
        self.handle = handle;
        match self.extents.first_mut() {
            Some(extent) => *extent = Extent { offset, length },
            None if offset != 0 => return false,
            None => {}
        }
        true
    }
}

impl Engine {
    /// Takes an entry that was fetched, as [`Event::Entry`] does; a short command that nothing holds up is
    /// run by `owner` before this returns. `owner` is called at most once. It binds the command and goes on
    /// as with [`Action::Run`], through all stages if that is possible at once, and notes its results in the
    /// [`Ran`]. If all stages are done, and the binding needs no flush, it has released endpoints and
    /// operators; the completion is returned, and has to be delivered as for [`Action::Complete`].
    #[inline]
    pub fn enter(
        &mut self,
        now: Nanos,
        queue: QueueId,
        bytes: &[u8; 64],
        owner: impl FnOnce(&Passage<'_>, &mut Ran) -> Progress,
    ) -> Option<Posted> {
        self.now = self.now.max(now);
        let Some((row, command)) = self.may_go_through(queue, bytes) else {
            self.handle(now, Event::Entry { queue, bytes });
            return None;
        };
        let until = self.may_do();
        let operation = self.board.operation(row).later(1);
        let Through { spec, ran, .. } = &mut self.through;
        ran.begin_again(self.now);
        let passage = Passage { command, queue, spec, operation, block: row.block(), until };
        match owner(&passage, ran) {
            Progress::Ran(_) if ran.done == spec.stages() && !ran.binding.flush => {
                self.post_through(queue, bytes, row)
            }
            went => {
                self.make_command(queue, bytes, operation, &went);
                None
            }
        }
    }

    /// Takes the only entry that there is, as far as its owner knows: the next one of its queue's ring, whose
    /// doorbell was not passed on yet. If nothing is in progress and it goes through, no other call is needed
    /// for it; `tail`: the doorbell's value.
    #[inline]
    pub fn enter_alone(
        &mut self,
        now: Nanos,
        (queue, tail): (QueueId, u32),
        bytes: &[u8; 64],
        owner: impl FnOnce(&Passage<'_>, &mut Ran) -> Progress,
    ) -> Alone<'_> {
        self.now = self.now.max(now);
        let since = self.now;
        let Some((row, command)) = self.may_go_alone(queue, tail, bytes) else { return Alone::Not };
        let operation = self.board.operation(row).later(1);
        let Through { spec, ran, .. } = &mut self.through;
        ran.begin_again(since);
        let passage = Passage { command, queue, spec, operation, block: row.block(), until: None };
        let went = owner(&passage, ran);
        if !matches!(went, Progress::Ran(_))
            || ran.done != spec.stages()
            || ran.binding.flush
            || !self.through.write_result(since)
        {
            self.frontend.submission_doorbell(queue, tail);
            let picked = self.frontend.pick();
            debug_assert!(matches!(picked, Some(Pick::Fetch(of, _)) if of == queue), "{picked:?}");
            self.make_command(queue, bytes, operation, &went);
            return Alone::GoesOn;
        }
        let (slot, entry) = self.end_alone(queue, bytes, row);
        Alone::Ended(slot, entry, &self.through.result)
    }

    /// Tells the same as [`Engine::may_go_through`], where nothing else may be under way.
    #[inline]
    fn may_go_alone(&mut self, queue: QueueId, tail: u32, bytes: &[u8; 64]) -> Option<(RowId, CommandId)> {
        let is_next = self.frontend.get(queue)?.is_next(tail);
        // Fetches in progress, of any queue, have slots already.
        let is_alone = self.frontend.slots.free() == u32::from(self.config.commands) && self.is_alone();
        if !is_next || !is_alone || !self.actions.is_empty() || !self.ready.is_empty() {
            return None;
        }
        self.take_up(queue, bytes)
    }

    /// Counts a command that was alone, and makes its completion.
    #[inline]
    fn end_alone(&mut self, queue: QueueId, bytes: &[u8; 64], row: RowId) -> (u16, CompletionEntry) {
        let Through { spec, ran, result, .. } = &self.through;
        self.now = result.finished;
        let entry = CompletionEntry {
            delivered: U48::saturating(spec.length),
            cid: u16::from_le_bytes([bytes[2], bytes[3]]),
            ..Default::default()
        };
        let operations = ran.done;
        self.board.get_mut(row).skip(u32::from(operations));
        self.count_through(operations.into(), 0);
        match self.frontend.get_mut(queue) {
            Some(state) => state.pass(queue, entry),
            None => (0, entry),
        }
    }

    /// Tells whether a command goes through, and which block and slot it would have. It becomes [`Engine::through`] then.
    fn may_go_through(&mut self, queue: QueueId, bytes: &[u8; 64]) -> Option<(RowId, CommandId)> {
        let cid = u16::from_le_bytes([bytes[2], bytes[3]]);
        // Pending actions may be about the slot that this command would get: its owner has not released the
        // last command there.
        let goes_first = self.actions.is_empty() && self.admission.is_empty();
        let goes_first = goes_first && self.frontend.get(queue)?.lets_through();
        if !goes_first || self.commands.find_by_cid(queue, cid).is_some() {
            return None;
        }
        self.take_up(queue, bytes)
    }

    /// The stages that the owner of the command that goes through may do: see [`Passage::until`].
    #[inline]
    fn may_do(&self) -> Option<u8> {
        self.through.gathers.filter(|_| !self.is_alone()).map(|at| at + 1)
    }

    /// Takes up an entry's transfer, if such a one may go through.
    #[inline]
    fn take_up(&mut self, queue: QueueId, bytes: &[u8; 64]) -> Option<(RowId, CommandId)> {
        let may = self.config.short && self.quota.has(queue.0 as usize, 1);
        if !may || !self.through.take_up(bytes, &self.units, self.config.block_size) {
            return None;
        }
        Some((self.board.next_free()?, self.commands.next_free()?))
    }

    /// Returns true if a command that is fetched now would be the only one.
    fn is_alone(&self) -> bool {
        self.commands.in_use() == 0 && self.frontend.is_quiet() && !self.units.has_filled_lanes()
    }

    /// Posts the completion of a command that went through.
    fn post_through(&mut self, queue: QueueId, bytes: &[u8; 64], row: RowId) -> Option<Posted> {
        let mut result = self.areas.pop().unwrap_or_default();
        *result = ResultArea::default();
        let since = self.now;
        let Through { spec, ran, .. } = &self.through;
        if !ran.write_result(spec, &mut result) {
            // A value that is none: its owner broke a rule, and the command fails of it.
            let operation = self.board.operation(row).later(1);
            self.areas.push(result);
            self.make_command(queue, bytes, operation, &Progress::Ran(since));
            return None;
        }
        // Answers to identifiers that were given away are none to a later command.
        self.board.get_mut(row).skip(u32::from(ran.done));
        self.now = since.max(ran.times[usize::from(ran.done)]);
        (result.queued, result.started, result.finished) = (since, ran.times[0], self.now);
        let (delivered, operations) = (U48::saturating(spec.length), u64::from(ran.done));
        self.frontend.fetched(queue);
        self.frontend.slots.give(queue.0 as usize, 1);
        self.count_through(operations, self.commands.in_use());
        let entry = CompletionEntry {
            delivered,
            cid: u16::from_le_bytes([bytes[2], bytes[3]]),
            ..Default::default()
        };
        let (slot, entry) = self.frontend.get_mut(queue)?.next_completion(queue, entry);
        Some(Posted { slot, entry, address: u64::get(&bytes[16..24]), result })
    }

    /// Counts a command that went through, beside that many others.
    #[inline]
    fn count_through(&mut self, operations: u64, others: usize) {
        let counters = &mut self.counters;
        counters.entries += 1;
        counters.completions += 1;
        counters.operations += operations;
        counters.commands_peak = counters.commands_peak.max(others as u64 + 1);
        let blocks = u64::from(self.config.blocks - self.board.blocks_free());
        counters.blocks_peak = counters.blocks_peak.max(blocks + 1);
    }

    /// Makes a command of one that its owner did not finish, and goes on where it stopped.
    #[inline(never)]
    fn make_command(&mut self, queue: QueueId, bytes: &[u8; 64], operation: OperationId, went: &Progress) {
        let (now, ran) = (self.now, self.through.ran);
        self.on_entry(queue, bytes);
        let Some(Action::Run(short)) = self.actions.pop_back() else {
            unreachable!("what was certain to go through is a short command");
        };
        debug_assert_eq!(short.operation, operation, "it has the block that its owner used");
        let id = short.command;
        // The core reuses its memory, if it is the core's alone when the command ends.
        drop(short);
        match went {
            Progress::Ran(at) => self.handle(*at, Event::Ran { command: id, ran: &ran }),
            Progress::Bound(binding) => self.handle(now, Event::Bound { command: id, binding: *binding }),
        }
    }
}
