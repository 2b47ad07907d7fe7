//! The rig: an engine in virtual time, with memory, devices and real operators around it.
//!
//! | module | what it holds |
//! |---|---|
//! | `mod` | the clock, the event heap, the loop |
//! | `host` | rings, descriptors, submission, completions: what an application and its driver do |
//! | `serve` | the engine's actions: fetches, binding, operations, with all contracts checked |
//! | `short` | short commands, which the rig takes as far as chance has it |
//! | `work` | what an operation does to devices, blocks and operators |
//! | `device`, `fault` | devices, the fault injector |
//! | `verdict` | what must be true of a completed command |
//! | `functions` | scenarios of functions |
//! | `garbage` | arbitrary event streams, from bytes |
#![allow(dead_code)] // Not every user of the rig uses all of it.

pub mod device;
pub mod fault;
pub mod functions;
pub mod garbage;
pub mod host;
pub mod serve;
pub mod short;
pub mod verdict;
pub mod work;

use dcs_abi::result::{STAGE_SLOTS, StageTimes};
use dcs_engine::{
    Action, BlockId, CommandId, Config, Engine, Event, Nanos, OperationId, Outcome, QueueConfig, QueueId,
};
use dcs_testkit::Random;
use device::Device;
use fault::Fault;
use host::{Memory, Queue, Submitted};
use serve::{Block, Bound, Flight};
use short::Core;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// After so long even a dropped operation is answered.
pub const LATE: Nanos = 60_000_000_000;

/// The behaviour of the world around the engine.
#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    /// Entries, descriptors and bindings are handed in at once instead of after a while.
    pub immediate: bool,
    /// Longest latency of an operation, nanoseconds.
    pub latency: u64,
    /// There is a direct path where the chain is empty.
    pub direct: bool,
    /// Destinations have to be flushed, whatever the command says.
    pub flush: bool,
    /// The direct path breaks down after this many operations.
    pub direct_lasts: u32,
    /// Bytes move in pieces: files too answer with less than was asked for now and then.
    pub pieces: bool,
    /// The host reads completions as they come.
    pub consume: bool,
    /// Short commands are the owner's to run.
    pub short: bool,
    /// The owner says when it has nothing else to do.
    pub says_idle: bool,
    /// The time of a pass; random where it is not set.
    pub pass_time: Option<Nanos>,
}

impl Default for Options {
    fn default() -> Options {
        let (immediate, direct, pieces) = (false, false, false);
        Options {
            seed: 1,
            immediate,
            latency: 100_000,
            direct,
            flush: false,
            direct_lasts: u32::MAX,
            pieces,
            consume: true,
            short: true,
            says_idle: true,
            pass_time: None,
        }
    }
}

/// An event at a moment.
#[derive(Debug)]
pub enum Due {
    Entry { queue: QueueId, slot: u16 },
    Descriptor { command: CommandId, address: u64, length: u32 },
    Bind { command: CommandId, queue: QueueId, spec: Arc<dcs_engine::TransferSpec> },
    Run { short: dcs_engine::Short },
    Answer { operation: OperationId },
    Again { operation: OperationId, outcome: Outcome },
    Release { block: BlockId, content: Vec<u8> },
}

/// The world.
pub struct Rig<E = Engine> {
    pub engine: E,
    pub now: Nanos,
    pub random: Random,
    pub options: Options,
    pub devices: Vec<Device>,
    pub faults: Vec<Fault>,
    pub queues: BTreeMap<QueueId, Queue>,
    pub submitted: Vec<Submitted>,
    pub memory: Memory,
    due: BTreeMap<(Nanos, u64), Due>,
    serial: u64,
    blocks: Vec<Block>,
    bound: BTreeMap<CommandId, Bound>,
    flights: BTreeMap<OperationId, Flight>,
    units: BTreeSet<(dcs_abi::operator::Operator, u16)>,
    deleted: Vec<QueueId>,
    /// Operations in lanes, with what their faults add to the pass's time.
    in_lanes: Vec<(dcs_abi::operator::Operator, OperationId, Nanos)>,
    /// When operations came into their lanes.
    joined: BTreeMap<OperationId, Nanos>,
    /// Time that each block was in its lane before its pass.
    pub waits: Vec<Nanos>,
    /// Passes: when, of which operator, of how many operations.
    pub passes: Vec<(Nanos, dcs_abi::operator::Operator, usize)>,
    directs: u32,
    /// Writes whose bytes the source has still.
    pub repeated: usize,
    /// Operations issued, in order, with the queue of each.
    pub trace: Vec<(QueueId, dcs_engine::OperationKind)>,
    /// Times of the stages of commands that are over, with the destination of each.
    pub times: Vec<(u32, [StageTimes; STAGE_SLOTS])>,
    /// Most actions that one event led to, fetches of entries aside: these come one for each call.
    pub most_actions: usize,
    /// Short commands that were run to their end at once, and that were not.
    pub ran: (usize, usize),
    /// Those among them of which the core had made no command before.
    pub went: (usize, usize),
    /// The one that is run now meets no device that needs time.
    is_swift: bool,
    /// Commands that were submitted without a descriptor.
    pub inlined: usize,
    /// Engine times out commands when it wants; how often it asked for that.
    pub timeouts: u32,
}

impl Rig {
    pub fn new(mut config: Config, options: Options) -> Rig {
        config.short |= options.short;
        Rig::with(Engine::new(config).expect("the test's sizes are sound"), options)
    }
}

impl<E: Core> Rig<E> {
    /// A world around this core.
    pub fn with(engine: E, options: Options) -> Rig<E> {
        let config = engine.config();
        let blocks = (0..config.blocks).map(|_| Block::new(config.block_size)).collect();
        Rig {
            engine,
            now: 0,
            random: Random(options.seed),
            options,
            devices: Vec::new(),
            faults: Vec::new(),
            queues: BTreeMap::new(),
            submitted: Vec::new(),
            memory: Memory::default(),
            due: BTreeMap::new(),
            serial: 0,
            blocks,
            bound: BTreeMap::new(),
            flights: BTreeMap::new(),
            units: BTreeSet::new(),
            deleted: Vec::new(),
            in_lanes: Vec::new(),
            joined: BTreeMap::new(),
            waits: Vec::new(),
            passes: Vec::new(),
            directs: 0,
            repeated: 0,
            trace: Vec::new(),
            times: Vec::new(),
            most_actions: 0,
            ran: (0, 0),
            went: (0, 0),
            is_swift: false,
            inlined: 0,
            timeouts: 0,
        }
    }

    /// Adds a device; its handle is what endpoints name.
    pub fn device(&mut self, device: Device) -> u32 {
        self.devices.push(device);
        self.devices.len() as u32 - 1
    }

    /// Adds a queue pair.
    pub fn queue(&mut self, config: QueueConfig) -> QueueId {
        let id = self.engine.add_queue(config).expect("there is room for another queue");
        self.queues.insert(id, Queue::new(config));
        id
    }

    /// Deletes a queue pair; [`Rig::is_deleted`] tells when it is gone.
    pub fn delete(&mut self, queue: QueueId) {
        self.tell(Event::DeleteQueue { queue });
    }

    pub fn is_deleted(&self, queue: QueueId) -> bool {
        self.deleted.contains(&queue)
    }

    /// Hands an event in, does what the engine then wants, checks its bounds.
    pub fn tell(&mut self, event: Event<'_>) {
        self.engine.handle(self.now, event);
        self.act();
    }

    fn act(&mut self) {
        let mut actions = 0;
        while let Some(action) = self.engine.poll_action() {
            actions += usize::from(!matches!(action, Action::FetchEntry { .. }));
            self.serve(action);
        }
        self.most_actions = self.most_actions.max(actions);
    }

    fn later(&mut self, delay: Nanos, due: Due) {
        self.serial += 1;
        self.due.insert((self.now + delay, self.serial), due);
    }

    /// Lets the next thing happen, the engine's own deadline included; false where nothing is left.
    pub fn step(&mut self) -> bool {
        let event = self.due.first_key_value().map(|(key, _)| *key);
        if self.options.says_idle && event.is_none_or(|(at, _)| at > self.now) {
            let passes = self.passes.len();
            self.engine.handle_idle(self.now);
            self.act();
            if self.passes.len() > passes {
                return true;
            }
        }
        let timeout = self.engine.next_timeout();
        match (event, timeout) {
            (None, None) => return false,
            (Some((at, _)), Some(timeout)) if at > timeout => self.time_out(timeout),
            (None, Some(timeout)) => self.time_out(timeout),
            (Some(key), _) => {
                self.now = self.now.max(key.0);
                if let Some(due) = self.due.remove(&key) {
                    self.happen(due);
                }
            }
        }
        true
    }

    fn time_out(&mut self, at: Nanos) {
        self.now = self.now.max(at);
        self.timeouts += 1;
        self.engine.handle_timeout(self.now);
        self.act();
    }

    /// Runs until nothing more happens.
    pub fn run(&mut self) {
        let mut steps = 0u64;
        while self.step() {
            steps += 1;
            assert!(steps < 20_000_000, "the engine runs in circles");
        }
    }

    /// Runs until that command is completed; false where the world stands still before that.
    pub fn run_until(&mut self, ticket: usize) -> bool {
        while self.submitted[ticket].done.is_none() {
            if !self.step() {
                return false;
            }
        }
        true
    }

    /// Runs for so long.
    pub fn run_for(&mut self, time: Nanos) {
        let end = self.now + time;
        let event = |rig: &Rig<E>| rig.due.first_key_value().map(|(key, _)| key.0);
        while event(self).into_iter().chain(self.engine.next_timeout()).min().is_some_and(|at| at <= end) {
            self.step();
        }
        self.now = end;
    }

    /// Runs to the end; then nothing may be left anywhere.
    pub fn settle(&mut self) {
        self.run();
        let waiting: Vec<_> = self.submitted.iter().filter(|command| command.is_owed()).collect();
        assert!(waiting.is_empty(), "never completed: {waiting:?}");
        assert!(self.flights.is_empty() && self.bound.is_empty() && self.units.is_empty());
        assert!(self.in_lanes.is_empty(), "every filled lane is processed");
        assert!(self.engine.is_idle(), "leak: {:#?}", self.engine);
    }

    /// Operations in lanes that wait for a pass.
    pub fn in_lanes(&self) -> usize {
        self.in_lanes.len()
    }

    /// Operations with devices now.
    pub fn operations_in_flight(&self) -> usize {
        self.flights.len()
    }
}
