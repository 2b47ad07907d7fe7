//! The core itself: its parts, and `step`, which hands each event to its part and collects the actions. The
//! needs of a command are decided in the parts (`validate`, `dispatch`, `completion`), not here.

use crate::admission::Admission;
use crate::command::Commands;
use crate::config::{Config, ConfigError, QueueConfig};
use crate::frontend::{Frontend, Pick, Queue};
use crate::interface::{Action, CommandId, Event, Nanos, QueueId};
use crate::multi_lane::Occasion;
use crate::order::Order;
use crate::quota::Quota;
use crate::renaming::Renaming;
use crate::scoreboard::{RowId, Scoreboard};
use crate::through::Through;
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use dcs_abi::result::ResultArea;

/// Counts since the engine was made. They are for diagnosis: none of them changes what the engine does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Submission entries fetched.
    pub entries: u64,
    /// Completions posted.
    pub completions: u64,
    /// Completions that a queue had no room for when it was deleted.
    pub dropped: u64,
    /// Completions that reported a failure.
    pub failures: u64,
    /// Operations issued to devices.
    pub operations: u64,
    /// Passes of multi-lane units.
    pub passes: u64,
    /// Blocks in those passes: lanes that were filled.
    pub lanes_filled: u64,
    /// Doorbell writes that made no sense and were ignored.
    pub bad_doorbells: u64,
    /// Events that belong to nothing in flight (late or double answers of devices) and were ignored.
    pub stale_events: u64,
    /// Most commands that were in flight at once.
    pub commands_peak: u64,
    /// Most blocks that were in use at once.
    pub blocks_peak: u64,
}

/// One action in this many fetches a new command, if there is one.
const FETCH_EVERY: u32 = 16;

/// The engine core: a state machine without I/O, threads or a clock.
///
/// # Calling contract
///
/// An engine has one owner, which calls it and carries out what it asks for. No call blocks. The owner's loop
/// is:
///
/// 1. [`Engine::handle`] for each [`Event`] that has happened, in the order in which they happened.
/// 2. [`Engine::poll_action`] until it returns `None`. Carry out every [`Action`], in order. Answers that are
///    known at once may be handed in between two polls; all others come with a later round.
/// 3. If there is still nothing to do (no doorbell, no answer), [`Engine::handle_idle`], then step 2 again:
///    blocks that waited in a multi-lane unit for company now go without it. An owner that sleeps without
///    this call leaves them waiting for the timeout of step 4.
/// 4. [`Engine::next_timeout`]. Sleep until an event or that moment, whichever comes first. When the moment
///    comes, call [`Engine::handle_timeout`], then step 2. Any other call may change the moment: ask again
///    before each sleep. Calling [`Engine::handle_timeout`] early is harmless.
///
/// `now` is in nanoseconds since a moment of the owner's choice; a value lower than an earlier one counts as
/// that one.
///
/// # What each action obliges the owner to
///
/// | action | answer owed |
/// |---|---|
/// | [`Action::FetchEntry`] | one [`Event::Entry`], or [`Engine::enter`]; those of one queue in the order of their actions. Zeroes where the entry cannot be read |
/// | [`Action::FetchDescriptor`] | one [`Event::Descriptor`], with `None` where it cannot be read |
/// | [`Action::Bind`] | one [`Event::Bound`]. After `Ok`, one [`Action::Unbind`] follows when the command ends |
/// | [`Action::Run`] | one [`Event::Ran`] or [`Event::Bound`]. After the latter, and where stages or a flush are left, as [`Action::Bind`] |
/// | [`Action::Unbind`] | none: release endpoints and operators |
/// | [`Action::Issue`] | one [`Event::Done`], however late |
/// | [`Action::StartPass`] | none of its own: it has the operations issued to that multi-lane operator processed, each with its [`Event::Done`] |
/// | [`Action::Abort`] | none of its own: the [`Event::Done`] of that operation, soon if possible |
/// | [`Action::Complete`] | none: write the result area, then the entry, then notify the host. The box may go back through [`Engine::recycle`] |
/// | [`Action::QueueDeleted`] | none: the queue's memory may go, and [`Engine::add_queue`] may reuse its number |
///
/// No timeout, abort or deletion of a queue cancels an answer that is owed. From [`Action::Issue`] to its
/// [`Event::Done`] the operation's blocks belong to the device. An answer with `held` (or
/// [`Outcome::FailedHeld`]) leaves the block with the device until [`Event::Released`]. A command that fails,
/// times out or is aborted waits for its operations for [`Config::abort_grace`] at most; then it completes
/// without them. An operation that never ends keeps its block and its command's slot.
///
/// # What the engine tolerates
///
/// Entries, descriptors and doorbells come from a host that is not trusted: they may hold anything. Answers
/// that match nothing in flight (late, twice, invented) are ignored. [`Counters`] counts them. An answer that
/// claims more than was asked for fails its command.
///
/// # Stopping
///
/// Hand in [`Event::DeleteQueue`] for every queue, run the loop until [`Engine::is_idle`], then drop the
/// engine. Dropped earlier it stops nothing: devices may still be using blocks.
///
/// [`Outcome::FailedHeld`]: crate::Outcome::FailedHeld
///
/// # Example
///
/// One command copies 12 bytes of memory. The owner answers every action at once, so one round is enough.
///
/// ```
/// use dcs_abi::descriptor::{Builder, Endpoint, EndpointKind, EndpointRole, Extent};
/// use dcs_abi::entry::{OPCODE_TRANSFER, SubmissionEntry};
/// use dcs_engine::{Action, Binding, Config, Engine, Event, OperationKind, Outcome, QueueConfig};
///
/// // The host's side: a descriptor (from handle 1 to handle 2) and the entry that names it.
/// let mut descriptor = [0; 512];
/// let mut builder = Builder::new(&mut descriptor)?;
/// let memory = |handle| Endpoint { kind: EndpointKind::Memory as u8, handle, ..Default::default() };
/// let extent = [Extent { offset: 0, length: 12 }];
/// builder.endpoint(EndpointRole::Source, memory(1), &extent)?;
/// builder.endpoint(EndpointRole::Destination, memory(2), &extent)?;
/// let length = builder.finish();
/// let entry = SubmissionEntry {
///     opcode: OPCODE_TRANSFER,
///     cid: 7,
///     descriptor_length: length as u32,
///     length: 12,
///     ..Default::default()
/// };
///
/// // The owner's side: the blocks, and what the handles stand for.
/// let config = Config::default();
/// let mut blocks = vec![vec![0; config.block_size as usize]; config.blocks as usize];
/// let (source, mut destination) = (*b"hello engine", [0; 12]);
/// let mut engine = Engine::new(config)?;
/// let queue = engine.add_queue(QueueConfig::default()).expect("the first queue");
///
/// let now = 0;
/// let mut completed = None;
/// engine.handle(now, Event::SubmissionDoorbell { queue, tail: 1 });
/// while let Some(action) = engine.poll_action() {
///     match action {
///         Action::FetchEntry { queue, .. } => {
///             engine.handle(now, Event::Entry { queue, bytes: &entry.to_bytes() });
///         }
///         Action::FetchDescriptor { command, .. } => {
///             engine.handle(now, Event::Descriptor { command, bytes: Some(&descriptor[..length]) });
///         }
///         Action::Bind { command, .. } => {
///             engine.handle(now, Event::Bound { command, binding: Ok(Binding::default()) });
///         }
///         Action::Issue(operation) => {
///             let moved = match operation.kind {
///                 OperationKind::Read { offset, block, start, length, .. } => {
///                     let (from, to, length) = (offset as usize, start as usize, length as usize);
///                     blocks[block.index()][to..to + length].copy_from_slice(&source[from..from + length]);
///                     length
///                 }
///                 OperationKind::Write { offset, block, start, length, .. } => {
///                     let (to, from, length) = (offset as usize, start as usize, length as usize);
///                     destination[to..to + length].copy_from_slice(&blocks[block.index()][from..from + length]);
///                     length
///                 }
///                 other => unreachable!("a copy has no {other:?}"),
///             };
///             let outcome = Outcome::Moved { bytes: moved as u64, path: 0, held: false };
///             engine.handle(now, Event::Done { operation: operation.id, outcome });
///         }
///         Action::Unbind { .. } => {}
///         Action::Complete { entry, .. } => completed = Some(entry),
///         other => unreachable!("a success has no {other:?}"),
///     }
/// }
///
/// let completion = completed.expect("every command completes once");
/// assert!(completion.status().is_success());
/// assert_eq!((completion.cid, destination), (7, *b"hello engine"));
/// assert!(engine.is_idle());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) frontend: Frontend,
    pub(crate) commands: Commands,
    pub(crate) board: Scoreboard,
    pub(crate) units: Renaming,
    /// Blocks: who may take how many.
    pub(crate) quota: Quota,
    /// More than one function has queues.
    pub(crate) has_functions: bool,
    pub(crate) order: Order,
    /// Commands that wait for the blocks that they need at least.
    pub(crate) admission: Admission,
    /// Segments that wait for a block on credit.
    pub(crate) awaiting_block: VecDeque<(CommandId, u8)>,
    /// Rows that wait for nothing and are to be dispatched.
    pub(crate) ready: VecDeque<RowId>,
    pub(crate) deadlines: BTreeSet<(Nanos, CommandId)>,
    pub(crate) actions: VecDeque<Action>,
    /// Actions that were asked for.
    polled: u32,
    /// Memory of result areas, to be used again.
    #[expect(clippy::vec_box, reason = "the boxes themselves are given away")]
    pub(crate) areas: Vec<Box<ResultArea>>,
    /// The command that goes through now.
    pub(crate) through: Through,
    pub(crate) counters: Counters,
    pub(crate) now: Nanos,
}

impl Engine {
    /// Makes an engine of these sizes.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] for invalid sizes.
    pub fn new(config: Config) -> Result<Engine, ConfigError> {
        config.check()?;
        Ok(Engine {
            frontend: Frontend::new(config.queues, config.commands),
            commands: Commands::new(config.commands),
            board: Scoreboard::new(config.blocks, config.commands),
            units: Renaming::new(&config.units, &config.gpu, &config.multi_lane),
            quota: Quota::new(config.blocks, config.queues),
            has_functions: false,
            order: Order::default(),
            admission: Admission::new(config.queues),
            awaiting_block: VecDeque::new(),
            ready: VecDeque::new(),
            deadlines: BTreeSet::new(),
            actions: VecDeque::new(),
            polled: 0,
            areas: Vec::new(),
            through: Through::default(),
            counters: Counters::default(),
            now: 0,
            config,
        })
    }

    /// Adds a queue pair; `None` where all are in use or its sizes are out of range ([`QueueConfig`]).
    pub fn add_queue(&mut self, config: QueueConfig) -> Option<QueueId> {
        let added = self.frontend.add(config)?;
        self.share_pools();
        Some(added)
    }

    /// The core's sizes.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Its counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Command slots in use.
    pub fn commands_in_flight(&self) -> usize {
        self.commands.in_use()
    }

    /// Blocks that are free now.
    pub fn blocks_free(&self) -> u32 {
        self.board.blocks_free()
    }

    /// Returns true if a command waits for a block that others have.
    pub fn is_short_of_blocks(&self) -> bool {
        !self.admission.is_empty() || !self.awaiting_block.is_empty()
    }

    /// Returns true if no command is in flight and everything that commands had has come back: blocks,
    /// credits, slots, units, scoreboard rows. An owner that stops waits for that.
    pub fn is_idle(&self) -> bool {
        let pools_full = self.quota.free() == self.config.blocks
            && self.board.blocks_free() == self.config.blocks
            && self.frontend.slots.free() == u32::from(self.config.commands)
            && self.units.all_free();
        let nobody_waits = self.order.is_empty()
            && self.admission.is_empty()
            && self.frontend.nobody_waits()
            && self.awaiting_block.is_empty()
            && self.ready.is_empty()
            && self.deadlines.is_empty();
        pools_full && nobody_waits && self.board.in_use() == 0 && self.commands.in_use() == 0
    }

    /// Takes in one event. Its work is bounded by the windows of one command and by the blocks that it gives
    /// back to those who wait; where a command fails or a queue is deleted, by the size of the scoreboard.
    // Inlined, so that an event whose kind its owner knows is never put together in memory.
    #[inline(always)]
    pub fn handle(&mut self, now: Nanos, event: Event<'_>) {
        self.now = self.now.max(now);
        match event {
            Event::SubmissionDoorbell { queue, tail } => {
                let sound = self.frontend.submission_doorbell(queue, tail);
                self.counters.bad_doorbells += u64::from(!sound);
                return;
            }
            Event::CompletionDoorbell { queue, head } => {
                let sound = self.frontend.completion_doorbell(queue, head);
                self.counters.bad_doorbells += u64::from(!sound);
                if !self.frontend.get(queue).is_some_and(Queue::has_postings) {
                    return;
                }
                self.post_completions(queue);
            }
            Event::Entry { queue, bytes } => self.on_entry(queue, bytes),
            Event::Descriptor { command, bytes } => self.on_descriptor(command, bytes),
            Event::Bound { command, binding } => self.on_bound(command, binding),
            Event::Ran { command, ran } => self.on_ran(command, ran),
            Event::Done { operation, outcome } => self.on_done(operation, &outcome),
            Event::Released { block } => self.on_released(block),
            Event::Abort { queue, cid } => _ = self.abort(queue, cid),
            Event::DeleteQueue { queue } => self.on_delete_queue(queue),
        }
        if !self.ready.is_empty() || self.quota.has_returned() {
            self.settle();
        }
        self.start_passes(Occasion::Step);
    }

    /// Call it when there is nothing else to do: no action is left, no doorbell was rung, and no device has
    /// answered since the last check. Blocks that only wait for company go on without it.
    pub fn handle_idle(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        self.start_passes(Occasion::Idle);
    }

    #[inline]
    pub(crate) fn start_passes(&mut self, occasion: Occasion) {
        while self.units.has_filled_lanes()
            && let Some((operator, rows)) = self.units.start_pass(self.now, occasion)
        {
            self.counters.passes += 1;
            self.counters.lanes_filled += rows as u64;
            self.actions.push_back(Action::StartPass { operator });
        }
    }

    /// The next thing to do, if there is any. Call it until there is none, after each event or after several.
    #[inline]
    pub fn poll_action(&mut self) -> Option<Action> {
        self.polled = self.polled.wrapping_add(1);
        // Devices that answer at once always leave something to do: new commands must not wait for its end.
        if self.polled.is_multiple_of(FETCH_EVERY)
            && !self.frontend.is_quiet()
            && let Some(action) = self.next_command()
        {
            return Some(action);
        }
        if self.actions.is_empty() && !self.frontend.is_quiet() {
            return self.next_command();
        }
        self.pop_action()
    }

    /// The next action in line.
    #[inline(always)]
    fn pop_action(&mut self) -> Option<Action> {
        let action = self.actions.pop_front();
        if let Some(Action::Run(short)) = &action
            && self.is_stopped(short.command)
        {
            return self.pass_over(action);
        }
        action
    }

    /// Ends a short command that was stopped meanwhile, of which nothing was begun; tells what is next instead.
    #[cold]
    fn pass_over(&mut self, stopped: Option<Action>) -> Option<Action> {
        if let Some(Action::Run(short)) = stopped {
            self.end_stopped(short);
        }
        self.poll_action()
    }

    /// The next thing to do for a new command.
    #[inline]
    fn next_command(&mut self) -> Option<Action> {
        loop {
            match self.frontend.pick()? {
                Pick::Fetch(queue, slot) => return Some(Action::FetchEntry { queue, slot }),
                Pick::Begin(queue) => self.begin_waiting(queue),
            }
            if let Some(action) = self.pop_action() {
                return Some(action);
            }
        }
    }

    /// Takes back the memory of a result area after it was written to its address. An owner that does not
    /// need the box of [`Action::Complete`] saves the next command an allocation.
    pub fn recycle(&mut self, area: Box<ResultArea>) {
        if self.areas.len() < self.config.commands as usize {
            self.areas.push(area);
        }
    }

    /// When [`Engine::handle_timeout`] is to be called, if ever.
    pub fn next_timeout(&self) -> Option<Nanos> {
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        let earliest = |one: Option<Nanos>, other: Option<Nanos>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        earliest(earliest(deadline, self.frontend.deadlines.first()), self.units.next_pass())
    }

    /// Fails what has run out of time; starts passes that have waited long enough.
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        while let Some((_, command)) = self.deadlines.first().filter(|(at, _)| *at <= self.now).copied() {
            self.deadlines.pop_first();
            self.on_deadline(command);
        }
        self.on_deadlines_of_waiting();
        self.settle();
        self.start_passes(Occasion::Step);
    }

    /// Dispatches ready rows; hands blocks that came back to those who wait for them.
    pub(crate) fn settle(&mut self) {
        loop {
            while let Some(row) = self.ready.pop_front() {
                self.dispatch(row);
            }
            if !self.quota.take_returned() {
                return;
            }
            self.admit();
            self.grant_credits();
        }
    }
}
