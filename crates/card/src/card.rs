//! The card: the engine core, its controllers and its hosts' queues, over its buses. A state machine without thread and clock.
//!
//! The owner of the bus calls [`Card::read_done`] for each answer and [`Card::poll`] whenever something may have happened: a register was
//! written, a device wrote into the card's memory, or [`Card::deadline`] has come.

use crate::admin::Admin;
use crate::costs::Costs;
use crate::function::{Function, own_memory};
use crate::host::PendingRead;
use crate::registers::{EngineCapabilities, Registers, SharedRegisters};
use crate::timers::Timers;
use crate::work::Bound;
use dcs_abi::operator::OPERATORS;
use dcs_drivers::bus::{Bus, Buses, ReadDone, Region, Window};
use dcs_drivers::network::{Makers, Network, NetworkAction};
use dcs_drivers::ssd::{Controller, Ssd};
use dcs_engine::{Action, Core, Engine, Event, Nanos, OperationId, Outcome, QueueId, Short, Units};
use dcs_ndp::Chains;
use dcs_vfio_user::wake::Wake;
use std::collections::HashMap;

/// Controller number in tags of the card's own reads of host memory.
pub(crate) const HOST_READS: u32 = 0;
/// Controller number of the first SSD; the others follow.
pub(crate) const FIRST_SSD: u32 = 1;
/// Most functions.
const FUNCTIONS_MAX: u16 = 64;
/// Most steps of one [`Card::poll`], and actions of a step, so that its owner gets to its other work: every host's doorbells and resets, and
/// the time.
const STEPS: usize = 16;
const ACTIONS: usize = 64;

/// A core, processing units, controllers of SSDs, and send and receive paths of NICs in the place of those in Rust.
#[derive(Clone, Copy, Debug)]
pub struct Hardware {
    /// Makes a core whose functions have the weights, and whose failed commands have the grace, that these settings say.
    pub core: fn(&dcs_engine::Config) -> Box<dyn Core>,
    /// Makes processing units for a core with these settings.
    pub units: fn(&dcs_engine::Config) -> Box<dyn Units>,
    /// Makes a controller of an SSD.
    pub ssd: fn() -> Box<dyn Controller>,
    /// Makes the send and the receive path of a NIC.
    pub nic: Makers,
}

/// The settings of a card.
#[derive(Clone, Debug)]
pub struct Config {
    /// Sizes of the engine. Its queues are what the hosts can create, each function's host the same number.
    pub engine: dcs_engine::Config,
    /// Its parts in hardware; without any it has those in Rust. The core's sizes are its own, whatever [`Config::engine`] says.
    pub hardware: Option<Hardware>,
    /// Functions, 1 to 64. Function 0 has the card's devices, and lends parts of SSDs to the others.
    pub functions: usize,
    /// Most handles of each function.
    pub handles: usize,
    /// Most SSDs that may be attached.
    pub ssds: usize,
    /// Most NICs that may be attached.
    pub nics: usize,
    /// Secret of TCP's sequence numbers, from a good source of randomness.
    pub key: [u8; 16],
    /// Times that the card's own work takes; [`Costs::NONE`] if it takes real time.
    pub costs: Costs,
    /// Times and sizes of NVMe hosts; each gets its own registers and tags.
    pub nvme: dcs_drivers::nvme::Config,
}

impl Default for Config {
    /// Returns 64 blocks of 64 KiB, at most 8 per segment of a command, 64 commands, 8 queues, 4 SSDs, 4 NICs. The caller must set the key.
    ///
    /// With 4 blocks a lone stream through an operator waits for the SSD: it had 8.9 of 10 Gb/s.
    fn default() -> Config {
        let engine = dcs_engine::Config {
            block_size: 64 << 10,
            blocks: 64,
            cached_blocks: 64,
            window: 8,
            commands: 64,
            queues: 8,
            ..dcs_engine::Config::default()
        };
        let nvme = dcs_drivers::nvme::Config::new(Window { address: 0, length: 0 }, 0);
        Config {
            engine,
            hardware: None,
            functions: 1,
            handles: 1024,
            ssds: 4,
            nics: 4,
            key: [0; 16],
            costs: Costs::NONE,
            nvme,
        }
    }
}

impl Config {
    /// Returns the default with this many functions: each host can create two queue pairs at least, and slots and blocks suffice for that.
    pub fn for_functions(functions: usize) -> Config {
        let mut config = Config { functions, ..Config::default() };
        let engine = &mut config.engine;
        engine.queues = engine.queues.max(u16::try_from(2 * functions).unwrap_or(u16::MAX));
        engine.commands = engine.commands.max(engine.queues.saturating_mul(2));
        engine.blocks = engine.blocks.max(engine.commands.into());
        engine.cached_blocks = engine.blocks;
        config
    }

    /// Returns the queue pairs that each function's host can create; `None` if the sizes do not allow as many functions.
    pub fn queue_pairs(&self) -> Option<u16> {
        let functions =
            u16::try_from(self.functions).ok().filter(|count| (1..=FUNCTIONS_MAX).contains(count))?;
        Some(self.engine.queues / functions).filter(|pairs| *pairs > 0)
    }
}

/// The reason why a card cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// The engine refuses its sizes.
    #[error(transparent)]
    Engine(#[from] dcs_engine::ConfigError),
    /// There is not one queue pair for each function.
    #[error(
        "{functions} functions cannot be had with {queues} queue pairs: there are 1 to 64, each with a queue pair at least"
    )]
    Functions {
        /// Number of functions.
        functions: usize,
        /// Number of queue pairs of the engine.
        queues: u16,
    },
    /// The blocks don't fit into the card's memory.
    #[error("{blocks} bytes of blocks do not fit into the card's own memory of {memory} bytes")]
    Memory {
        /// Size of all blocks in bytes.
        blocks: u64,
        /// Size of the card's memory in bytes.
        memory: u64,
    },
}

/// The card.
#[derive(Debug)]
pub struct Card {
    pub(crate) config: Config,
    pub(crate) engine: Box<dyn Core>,
    pub(crate) units: Box<dyn Units>,
    pub(crate) functions: Vec<Function>,
    /// The function of each queue of the engine.
    pub(crate) owners: Vec<usize>,
    pub(crate) ssds: Vec<Ssd>,
    pub(crate) networks: Vec<Network>,
    /// Free part of own memory.
    pub(crate) memory: Region,
    pub(crate) blocks: Region,
    pub(crate) bound: Vec<Option<Bound>>,
    /// Reads of hosts' memory, each with its function.
    pub(crate) pending_reads: HashMap<u32, (usize, PendingRead)>,
    pub(crate) next_read: u32,
    pub(crate) next_entry: u32,
    pub(crate) timers: Timers<(OperationId, Outcome)>,
    /// Time until which the engine is busy with its next action.
    pub(crate) busy_until: Nanos,
    /// Next action, while the engine is busy with it.
    pub(crate) next_action: Option<Action>,
    pub(crate) now: Nanos,
}

impl Card {
    /// Makes a card whose own memory is the bus's window; `wake` wakes the thread that runs it after a register write.
    ///
    /// # Errors
    ///
    /// [`CardError`] if the sizes are not possible.
    pub fn new(mut config: Config, bus: &dyn Bus, wake: Option<Wake>) -> Result<Card, CardError> {
        let engine: Box<dyn Core> = match config.hardware {
            Some(hardware) => (hardware.core)(&config.engine),
            None => Box::new(Engine::new(config.engine.clone())?),
        };
        config.engine = engine.config().clone();
        config.engine.check()?;
        let units: Box<dyn Units> = match config.hardware {
            Some(hardware) => (hardware.units)(&config.engine),
            None => Box::new(Chains::new(config.engine.commands)),
        };
        let pairs = config
            .queue_pairs()
            .ok_or(CardError::Functions { functions: config.functions, queues: config.engine.queues })?;
        let window = bus.window();
        let mut memory = Region::whole(window);
        let length = u64::from(config.engine.blocks) * u64::from(config.engine.block_size);
        let blocks =
            memory.take(length, 4096).ok_or(CardError::Memory { blocks: length, memory: window.length })?;
        let function = |_| {
            let registers = Registers::new(capabilities(&config), pairs + 1);
            Function::new(SharedRegisters::new(registers, wake.clone()), pairs, config.handles)
        };
        Ok(Card {
            engine,
            units,
            functions: (0..config.functions).map(function).collect(),
            owners: vec![0; config.engine.queues.into()],
            ssds: Vec::new(),
            networks: Vec::new(),
            memory,
            blocks,
            bound: (0..config.engine.commands).map(|_| None).collect(),
            pending_reads: HashMap::new(),
            next_read: 0,
            next_entry: 0,
            timers: Timers::default(),
            busy_until: 0,
            next_action: None,
            now: 0,
            config,
        })
    }

    /// Returns function 0's registers, for its host's side.
    pub fn registers(&self) -> SharedRegisters {
        self.functions[0].registers.clone()
    }

    /// Returns the registers of every function, for their hosts' sides.
    pub fn all_registers(&self) -> Vec<SharedRegisters> {
        self.functions.iter().map(|function| function.registers.clone()).collect()
    }

    /// Returns its settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the engine, for inspection.
    pub fn engine(&self) -> &dyn Core {
        &*self.engine
    }

    /// Returns the SSDs that it drives, or has driven.
    pub fn ssds(&self) -> &[Ssd] {
        &self.ssds
    }

    /// Returns the NICs that it drives, or has driven.
    pub fn networks(&self) -> &[Network] {
        &self.networks
    }

    /// Returns the number of connections of all NICs.
    pub fn connections(&self) -> usize {
        self.networks.iter().map(Network::connections).sum()
    }

    /// Processes the answer to a read over the bus.
    pub fn read_done(&mut self, bus: &mut dyn Buses, now: Nanos, done: ReadDone) {
        self.now = self.now.max(now);
        // Answers to reads from before a reset are ignored.
        for at in 0..self.functions.len() {
            if self.functions[at].registers.lock().is_stopped() {
                self.take_requests(bus, at);
            }
        }
        match done.tag.controller() {
            HOST_READS => self.host_read_done(bus, done),
            other => {
                let at = (other - FIRST_SSD) as usize;
                if let Some(ssd) = self.ssds.get_mut(at) {
                    ssd.read_done(bus, now, done);
                } else if let Some(network) =
                    at.checked_sub(self.config.ssds).and_then(|at| self.networks.get_mut(at))
                {
                    network.read_done(bus, now, done);
                }
            }
        }
    }

    /// Does everything that is due; returns true if there may be more right away.
    pub fn poll(&mut self, bus: &mut dyn Buses, now: Nanos) -> bool {
        self.now = self.now.max(now);
        (0..self.functions.len()).for_each(|at| self.take_requests(bus, at));
        let mut is_busy = true;
        for _ in 0..STEPS {
            let mut any = self.act(bus);
            if !any {
                any = self.look_at_devices(bus);
            }
            any |= self.take_timers();
            if self.engine.next_timeout().is_some_and(|at| at <= self.now) {
                self.engine.handle_timeout(self.now);
                any = true;
            }
            if !any {
                is_busy = false;
                break;
            }
        }
        // Also while other functions keep the card busy: admin commands wait for nobody's load.
        for at in 0..self.functions.len() {
            self.start(bus, at);
            self.settle_admin(bus, at);
        }
        self.show_load();
        is_busy
    }

    /// Returns the latest time for the next call of [`Card::poll`].
    pub fn deadline(&self) -> Option<Nanos> {
        let devices = self.ssds.iter().filter_map(Ssd::deadline);
        let action = self.next_action.as_ref().map(|_| self.busy_until);
        let devices = devices.chain(self.networks.iter().filter_map(Network::deadline));
        devices.chain(self.engine.next_timeout()).chain(self.timers.next()).chain(action).min()
    }

    /// Ends everything of a function: it was reset by the bus, or lost its host. Function 0 can reach no device.
    fn on_reset(&mut self, bus: &mut dyn Buses, function: usize) {
        if function == 0 {
            self.ssds.iter_mut().for_each(Ssd::on_reset);
            self.networks.iter_mut().for_each(|network| network.on_reset(bus));
        }
        self.end_host_reads(function);
    }

    /// Returns true if devices may write into own memory soon, so that polling is worthwhile.
    pub fn is_busy(&self) -> bool {
        self.networks.iter().any(Network::is_busy)
            || !self.engine.is_idle()
            || self.ssds.iter().any(|ssd| ssd.is_busy() || ssd.deadline().is_some())
    }

    fn take_requests(&mut self, bus: &mut dyn Buses, at: usize) {
        let requests = self.functions[at].registers.lock().take();
        if requests.reset {
            self.on_reset(bus, at);
        }
        if requests.stop {
            self.stop(bus, at);
        }
        if requests.start.is_some() {
            self.functions[at].starting = requests.start;
        }
        self.start(bus, at);
        (0..32)
            .filter(|vector| requests.interrupts >> vector & 1 == 1)
            .for_each(|vector| bus.interrupt_host(at, vector));
        for (queue, tail) in requests.tails {
            match queue {
                0 => self.admin_doorbell(bus, at, tail),
                _ => self.ring((at, queue), |queue| Event::SubmissionDoorbell { queue, tail }),
            }
        }
        for (queue, head) in requests.heads {
            match queue {
                0 => self.admin_head(at, head),
                _ => self.ring((at, queue), |queue| Event::CompletionDoorbell { queue, head }),
            }
        }
    }

    /// Tells the engine of a doorbell of a function's queue.
    fn ring<'a>(&mut self, (at, queue): (usize, u16), event: impl FnOnce(QueueId) -> Event<'a>) {
        if let Some(Some(pair)) = self.functions[at].pairs.get(queue as usize - 1) {
            let event = event(pair.id);
            self.handle(event);
        }
    }

    /// Starts a function, once its queues from before are gone, and its parts are accessed by nothing from before.
    fn start(&mut self, bus: &dyn Bus, at: usize) {
        if self.functions[at].starting.is_none() {
            return;
        }
        self.forget_ended(at);
        let function = &mut self.functions[at];
        if function.leaving.is_empty()
            && function.ending.is_empty()
            && let Some(queues) = function.starting.take()
        {
            function.admin = Admin::new(queues, own_memory(bus, at));
            match function.admin {
                Some(_) => function.registers.lock().set_ready(),
                None => function.registers.lock().set_fatal(),
            }
        }
    }

    /// Stops a function: its host's queues and handles are removed. If it is function 0, the devices are told to stop, and their parts are
    /// taken back from the others. The engine is kept: it knows what devices still do to its blocks, and mistakes no late answer for that
    /// of another operation.
    fn stop(&mut self, bus: &mut dyn Buses, at: usize) {
        if at == 0 {
            self.networks.iter_mut().for_each(|network| network.detach(bus));
            let now = self.now;
            self.ssds.iter_mut().for_each(|ssd| ssd.detach(bus, now));
            self.functions.iter_mut().for_each(Function::take_all_back);
        }
        self.note_ending(at);
        let function = &mut self.functions[at];
        function.admin = None;
        // An admin entry that is still in flight does not belong to the next queue.
        self.pending_reads.retain(|_, (of, read)| *of != at || !matches!(read, PendingRead::AdminEntry));
        function.starting = None;
        function.handles.clear();
        let pairs: Vec<_> = function.pairs.iter_mut().filter_map(Option::take).collect();
        for pair in pairs {
            self.functions[at].leaving.push(pair.id);
            self.handle(Event::DeleteQueue { queue: pair.id });
            // The engine waits for entries that arrived out of turn; the others are still to come.
            for _ in pair.fetches.iter().filter(|(_, entry)| entry.is_some()) {
                self.handle(Event::Entry { queue: pair.id, bytes: &[0; 64] });
            }
        }
    }

    /// Gives a function up: the card cannot reach its host's memory.
    pub(crate) fn give_up(&mut self, at: usize) {
        self.functions[at].registers.lock().set_fatal();
        self.functions[at].admin = None;
    }

    pub(crate) fn handle(&mut self, event: Event<'_>) {
        self.engine.handle(self.now, event);
    }

    pub(crate) fn done(&mut self, operation: OperationId, outcome: Outcome) {
        self.handle(Event::Done { operation, outcome });
    }

    /// Shows function 0 the engine's load. The others see none: it is their neighbours', too.
    fn show_load(&self) {
        let blocks = self.engine.blocks_free();
        let rows = self.config.engine.blocks;
        let field = |rows: u32| rows.min(u16::MAX.into()) as u16;
        self.functions[0].registers.lock().set_load(blocks, field(rows - blocks), field(rows));
    }

    /// Performs the engine's actions, as far as the card is free for them.
    fn act(&mut self, bus: &mut dyn Buses) -> bool {
        let mut any = false;
        for _ in 0..ACTIONS {
            let action = match self.next_action.take() {
                Some(action) => action,
                None => {
                    let Some(action) = self.engine.poll_action() else { return any };
                    self.busy_until = self.now + self.config.costs.of(&action);
                    action
                }
            };
            if self.busy_until > self.now {
                self.next_action = Some(action);
                return any;
            }
            self.perform(bus, action);
            any = true;
        }
        any
    }

    fn take_timers(&mut self) -> bool {
        let mut any = false;
        while let Some((operation, outcome)) = self.timers.due(self.now) {
            self.done(operation, outcome);
            any = true;
        }
        any
    }

    fn look_at_devices(&mut self, bus: &mut dyn Buses) -> bool {
        let mut any = false;
        for at in 0..self.ssds.len() {
            self.ssds[at].poll(bus, self.now);
            while let Some(event) = self.ssds[at].next_event() {
                any = true;
                self.handle(event.into());
            }
        }
        let short = self.engine.is_short_of_blocks();
        for at in 0..self.networks.len() {
            self.networks[at].short_of_blocks(short);
            self.networks[at].poll(bus, self.now);
            while let Some(action) = self.networks[at].next_action() {
                any = true;
                match action {
                    NetworkAction::Device(event) => self.handle(event.into()),
                    NetworkAction::Connection(cid, connection) => self.connection(bus, at, cid, connection),
                }
            }
        }
        any
    }

    fn perform(&mut self, bus: &mut dyn Buses, action: Action) {
        match action {
            Action::FetchEntry { queue, slot } => self.fetch_entry(bus, queue, slot),
            Action::FetchDescriptor { command, queue, address, length } => {
                self.fetch_descriptor(bus, (queue, command), address, length);
            }
            Action::Bind { command, queue, spec } | Action::Run(Short { command, queue, spec, .. }) => {
                let binding = self.bind(command, queue, spec);
                self.handle(Event::Bound { command, binding });
            }
            Action::Unbind { command } => self.unbind(bus, command),
            Action::Issue(operation) => self.issue(bus, &operation),
            // No operator of a card gathers: its units work in parallel.
            Action::StartPass { .. } => {}
            Action::Abort { operation } => {
                for ssd in &mut self.ssds {
                    ssd.abort(bus, self.now, operation);
                }
                for network in &mut self.networks {
                    network.abort(bus, operation);
                }
            }
            Action::Complete { queue, slot, entry, result } => {
                if let Some((address, area)) = result {
                    self.write_result(bus, queue, address, &area);
                    self.engine.recycle(area);
                }
                self.complete(bus, queue, slot, &entry.to_bytes());
            }
            Action::QueueDeleted { queue } => self.queue_deleted(bus, queue),
        }
    }
}

fn capabilities(config: &Config) -> EngineCapabilities {
    let engine = &config.engine;
    let there = |operator| engine.units.iter().any(|(other, count)| *other == operator && *count > 0);
    let operators = OPERATORS.iter().filter(|info| there(info.operator));
    EngineCapabilities {
        block_size: engine.block_size,
        blocks: engine.blocks,
        commands: engine.commands.into(),
        operators: operators.fold(0, |bits, info| bits | 1 << info.operator as u8),
        depth: 1024,
    }
}
