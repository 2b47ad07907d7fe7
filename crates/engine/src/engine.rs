//! The engine itself: what it owns, and its step.

use crate::admit::Admission;
use crate::command::Commands;
use crate::config::{Config, ConfigError, QueueConfig};
use crate::frontend::{Frontend, Pick};
use crate::gather::Occasion;
use crate::message::{Action, CommandId, Event, Nanos, QueueId};
use crate::order::Order;
use crate::quota::Quota;
use crate::renaming::Renaming;
use crate::scoreboard::{RowId, Scoreboard};
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use dcs_abi::result::ResultArea;

/// What an engine counted since it was made. All of it is diagnosis: nothing of it changes what the engine does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Submission entries fetched.
    pub entries: u64,
    /// Completions posted.
    pub completions: u64,
    /// Completions that a queue had no room for when it was deleted.
    pub dropped: u64,
    /// Completions that told of a failure.
    pub failures: u64,
    /// Operations issued to devices.
    pub operations: u64,
    /// Passes of multi-lane units.
    pub passes: u64,
    /// Blocks in those passes: lanes that were filled.
    pub gathered: u64,
    /// Doorbell writes that made no sense and were ignored.
    pub bad_doorbells: u64,
    /// Events that belong to nothing in flight (late or double answers of devices) and were ignored.
    pub stale_events: u64,
    /// Most commands that were in flight at once.
    pub commands_peak: u64,
    /// Most blocks that were in use at once.
    pub blocks_peak: u64,
}

/// One action in so many is the fetch of a new command, where there is any.
const FETCH_EVERY: u32 = 16;

/// The engine core. See the crate's documentation.
#[derive(Debug)]
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) frontend: Frontend,
    pub(crate) commands: Commands,
    pub(crate) board: Scoreboard,
    pub(crate) units: Renaming,
    /// Blocks: who may take how many.
    pub(crate) quota: Quota,
    pub(crate) order: Order,
    /// Commands that wait for the blocks that they need at least.
    pub(crate) admission: Admission,
    /// Segments that wait for a block on credit.
    pub(crate) hungry: VecDeque<(CommandId, u8)>,
    /// Rows that wait for nothing and are to be dispatched.
    pub(crate) ready: VecDeque<RowId>,
    pub(crate) deadlines: BTreeSet<(Nanos, CommandId)>,
    pub(crate) actions: VecDeque<Action>,
    /// Actions that were asked for.
    polled: u32,
    /// Memory of result areas, to be used again.
    #[expect(clippy::vec_box, reason = "the boxes themselves are given away")]
    pub(crate) areas: Vec<Box<ResultArea>>,
    pub(crate) counters: Counters,
    pub(crate) now: Nanos,
}

impl Engine {
    /// Makes an engine of these sizes.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] where the sizes make no engine.
    pub fn new(config: Config) -> Result<Engine, ConfigError> {
        config.check()?;
        Ok(Engine {
            frontend: Frontend::new(config.queues, config.commands),
            commands: Commands::new(config.commands),
            board: Scoreboard::new(config.blocks, config.commands),
            units: Renaming::new(&config.units, &config.gpu, &config.gather),
            quota: Quota::new(config.blocks, config.queues),
            order: Order::default(),
            admission: Admission::new(config.queues),
            hungry: VecDeque::new(),
            ready: VecDeque::new(),
            deadlines: BTreeSet::new(),
            actions: VecDeque::new(),
            polled: 0,
            areas: Vec::new(),
            counters: Counters::default(),
            now: 0,
            config,
        })
    }

    /// Adds a queue pair; `None` where all are in use or its sizes are out of range ([`QueueConfig`]).
    pub fn add_queue(&mut self, config: QueueConfig) -> Option<QueueId> {
        self.frontend.add(config)
    }

    /// The engine's sizes.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What it counted.
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

    /// True where a command waits for a block that somebody else has.
    pub fn is_short_of_blocks(&self) -> bool {
        !self.admission.is_empty() || !self.hungry.is_empty()
    }

    /// True where no command is in flight and all that commands had has come back: blocks, credits, slots, units,
    /// scoreboard rows. An owner that stops waits for it.
    pub fn is_idle(&self) -> bool {
        let pools_full = self.quota.free() == self.config.blocks
            && self.board.blocks_free() == self.config.blocks
            && self.frontend.slots.free() == u32::from(self.config.commands)
            && self.units.all_free();
        let nobody_waits = self.order.is_empty()
            && self.admission.is_empty()
            && self.frontend.nobody_waits()
            && self.hungry.is_empty()
            && self.ready.is_empty()
            && self.deadlines.is_empty();
        pools_full && nobody_waits && self.board.in_use() == 0 && self.commands.in_use() == 0
    }

    /// Takes in one event. Its work is bounded by the windows of one command and by the blocks that it gives back
    /// to those who wait; where a command fails or a queue is deleted, by the size of the scoreboard.
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
                self.post_completions(queue);
            }
            Event::Entry { queue, bytes } => self.on_entry(queue, bytes),
            Event::Descriptor { command, bytes } => self.on_descriptor(command, bytes),
            Event::Bound { command, binding } => self.on_bound(command, binding),
            Event::Done { operation, outcome } => self.on_done(operation, &outcome),
            Event::Released { block } => self.on_released(block),
            Event::Abort { queue, cid } => _ = self.abort(queue, cid),
            Event::DeleteQueue { queue } => self.on_delete_queue(queue),
        }
        if !self.ready.is_empty() || self.quota.has_given() {
            self.settle();
        }
        self.start_passes(Occasion::Step);
    }

    /// The owner has nothing else to do: no action is left, no doorbell was rung and no device has answered since it last
    /// looked. What waits only for company goes without it.
    pub fn handle_idle(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        self.start_passes(Occasion::Idle);
    }

    #[inline]
    fn start_passes(&mut self, occasion: Occasion) {
        while self.units.gathers()
            && let Some((operator, rows)) = self.units.start_pass(self.now, occasion)
        {
            self.counters.passes += 1;
            self.counters.gathered += rows as u64;
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
        self.actions.pop_front().or_else(|| if self.frontend.is_quiet() { None } else { self.next_command() })
    }

    /// The next thing to do for a new command.
    #[inline]
    fn next_command(&mut self) -> Option<Action> {
        loop {
            match self.frontend.pick()? {
                Pick::Fetch(queue, slot) => return Some(Action::FetchEntry { queue, slot }),
                Pick::Begin(queue) => self.begin_waiting(queue),
            }
            if let Some(action) = self.actions.pop_front() {
                return Some(action);
            }
        }
    }

    /// Takes back the memory of a result area that was written where it belongs. An owner that has no use for the box
    /// of [`Action::Complete`] saves the next command an allocation.
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
            if !self.quota.was_given() {
                return;
            }
            self.admit();
            self.feed();
        }
    }
}
