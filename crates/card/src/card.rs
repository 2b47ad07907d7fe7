//! The card: the engine core, its controllers and its host's queues, over one bus. A state machine without thread and clock.
//!
//! Whoever owns the bus calls [`Card::read_done`] for each answer and [`Card::poll`] whenever something may have happened: a
//! register was written, a device wrote into the card's memory, or [`Card::deadline`] has come.

use crate::admin::Admin;
use crate::costs::Costs;
use crate::handles::Handles;
use crate::host::Asked;
use crate::registers::{AdminQueues, Facts, Front, Registers};
use crate::rings::Pair;
use crate::timers::Timers;
use crate::work::Bound;
use dcs_abi::operator::OPERATORS;
use dcs_drivers::bus::{Bus, ReadDone, Region, Tag, Window};
use dcs_drivers::network::{Network, Wish};
use dcs_drivers::ssd::{Ssd, Told};
use dcs_engine::{Action, Engine, Event, Nanos, OperationId, Outcome, QueueId};
use dcs_vfio_user::wake::Wake;
use std::collections::HashMap;

/// Whose reads a tag names: the card's own reads of host memory.
pub(crate) const HOST_READS: u32 = 0;
/// The first SSD's; the others follow.
pub(crate) const FIRST_SSD: u32 = 1;
/// Steps that one [`Card::poll`] takes at most, so that nobody keeps the owner from looking elsewhere.
const STEPS: usize = 4096;

/// How a card is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// The engine's sizes. Its queues are what the host can create.
    pub engine: dcs_engine::Config,
    /// Handles that may be given out.
    pub handles: usize,
    /// SSDs that may be attached.
    pub ssds: usize,
    /// NICs that may be attached.
    pub nics: usize,
    /// Secret of TCP's sequence numbers, from a good source of randomness.
    pub key: [u8; 16],
    /// What the card's own work costs; nothing where it takes the time that it takes.
    pub costs: Costs,
    /// Times and sizes of NVMe hosts; each gets its own registers and tags.
    pub nvme: dcs_drivers::nvme::Config,
}

impl Default for Config {
    /// 64 blocks of 64 KiB, at most 8 for a segment of a command, 64 commands, 8 queues, 4 SSDs, 4 NICs. The key is to be set.
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
        Config { engine, handles: 1024, ssds: 4, nics: 4, key: [0; 16], costs: Costs::NONE, nvme }
    }
}

/// Why a card cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// The engine's sizes make no engine.
    #[error(transparent)]
    Engine(#[from] dcs_engine::ConfigError),
    /// The blocks don't fit into the card's memory.
    #[error("{blocks} bytes of blocks do not fit into own memory of {memory} bytes")]
    Memory {
        /// Bytes of all blocks.
        blocks: u64,
        /// Bytes of the card's memory.
        memory: u64,
    },
}

/// The card.
#[derive(Debug)]
pub struct Card {
    pub(crate) config: Config,
    pub(crate) engine: Engine,
    pub(crate) front: Front,
    pub(crate) admin: Option<Admin>,
    pub(crate) handles: Handles,
    /// By the host's queue number, less 1.
    pub(crate) pairs: Vec<Option<Pair>>,
    /// Queues of the engine that a reset left to be deleted; and what is to be started then.
    pub(crate) leaving: Vec<QueueId>,
    pub(crate) starting: Option<AdminQueues>,
    pub(crate) ssds: Vec<Ssd>,
    pub(crate) networks: Vec<Network>,
    /// What is left of own memory.
    pub(crate) memory: Region,
    pub(crate) blocks: Region,
    pub(crate) bound: Vec<Option<Bound>>,
    pub(crate) asked: HashMap<u32, Asked>,
    pub(crate) next_read: u32,
    pub(crate) next_entry: u32,
    pub(crate) timers: Timers<(OperationId, Outcome)>,
    /// The engine is at its next action until then.
    pub(crate) busy_until: Nanos,
    /// The next action, while the engine is at it.
    pub(crate) next_action: Option<Action>,
    pub(crate) now: Nanos,
}

impl Card {
    /// A card with own memory as `bus` has it; `wake` wakes whoever runs it when a register was written.
    ///
    /// # Errors
    ///
    /// Sizes that cannot be.
    pub fn new(config: Config, bus: &dyn Bus, wake: Option<Wake>) -> Result<Card, CardError> {
        let engine = Engine::new(config.engine.clone())?;
        let window = bus.window();
        let mut memory = Region::whole(window);
        let length = u64::from(config.engine.blocks) * u64::from(config.engine.block_size);
        let blocks =
            memory.take(length, 4096).ok_or(CardError::Memory { blocks: length, memory: window.length })?;
        let front = Front::new(Registers::new(facts(&config), config.engine.queues + 1), wake);
        Ok(Card {
            engine,
            front,
            admin: None,
            handles: Handles::new(config.handles),
            pairs: (0..config.engine.queues).map(|_| None).collect(),
            leaving: Vec::new(),
            starting: None,
            ssds: Vec::new(),
            networks: Vec::new(),
            memory,
            blocks,
            bound: (0..config.engine.commands).map(|_| None).collect(),
            asked: HashMap::new(),
            next_read: 0,
            next_entry: 0,
            timers: Timers::default(),
            busy_until: 0,
            next_action: None,
            now: 0,
            config,
        })
    }

    /// Its registers, for the host's side.
    pub fn front(&self) -> Front {
        self.front.clone()
    }

    /// How it was made.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The engine, to look at.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The SSDs that it drives, or has driven.
    pub fn ssds(&self) -> &[Ssd] {
        &self.ssds
    }

    /// Connections that are known, of all NICs.
    pub fn connections(&self) -> usize {
        self.networks.iter().map(Network::connections).sum()
    }

    /// An answer to a read that was made over the bus.
    pub fn read_done(&mut self, bus: &mut dyn Bus, now: Nanos, done: ReadDone) {
        self.now = self.now.max(now);
        // What was asked before a reset is answered to nobody.
        if self.front.lock().is_stopped() {
            self.take_wishes(bus);
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

    /// Does what there is to do. True where there may be more at once.
    pub fn poll(&mut self, bus: &mut dyn Bus, now: Nanos) -> bool {
        self.now = self.now.max(now);
        self.take_wishes(bus);
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
                self.start(bus);
                self.settle_admin(bus);
                self.show_load();
                return false;
            }
        }
        true
    }

    /// When [`Card::poll`] is to be called at the latest, whatever else happens.
    pub fn deadline(&self) -> Option<Nanos> {
        let devices = self.ssds.iter().filter_map(Ssd::deadline);
        let action = self.next_action.as_ref().map(|_| self.busy_until);
        let devices = devices.chain(self.networks.iter().filter_map(Network::deadline));
        devices.chain(self.engine.next_timeout()).chain(self.timers.next()).chain(action).min()
    }

    /// The function was reset by the bus, or lost its host: the devices can be told nothing.
    fn silenced(&mut self, bus: &mut dyn Bus) {
        self.ssds.iter_mut().for_each(Ssd::silenced);
        self.networks.iter_mut().for_each(|network| network.silenced(bus));
        for number in self.asked.keys().copied().collect::<Vec<_>>() {
            let data = Err(dcs_drivers::bus::BusError::Timeout);
            self.host_read_done(bus, ReadDone { tag: Tag::new(HOST_READS, number), data });
        }
    }

    /// Whether devices may write into own memory soon, so that it is worth looking.
    pub fn is_busy(&self) -> bool {
        self.networks.iter().any(Network::is_busy)
            || !self.engine.is_idle()
            || self.ssds.iter().any(|ssd| ssd.is_busy() || ssd.deadline().is_some())
    }

    fn take_wishes(&mut self, bus: &mut dyn Bus) {
        let wanted = self.front.lock().take();
        if wanted.silenced {
            self.silenced(bus);
        }
        if wanted.stop {
            self.stop(bus);
        }
        if wanted.start.is_some() {
            self.starting = wanted.start;
        }
        self.start(bus);
        (0..32)
            .filter(|vector| wanted.interrupts >> vector & 1 == 1)
            .for_each(|vector| bus.interrupt(vector));
        for (queue, tail) in wanted.tails {
            match queue {
                0 => self.admin_doorbell(bus, tail),
                _ => self.ring(queue, |queue| Event::SubmissionDoorbell { queue, tail }),
            }
        }
        for (queue, head) in wanted.heads {
            match queue {
                0 => self.admin_head(head),
                _ => self.ring(queue, |queue| Event::CompletionDoorbell { queue, head }),
            }
        }
    }

    pub(crate) fn ring<'a>(&mut self, queue: u16, event: impl FnOnce(QueueId) -> Event<'a>) {
        if let Some(Some(pair)) = self.pairs.get(queue as usize - 1) {
            let event = event(pair.id);
            self.handle(event);
        }
    }

    /// Starts, once nothing is left of what was before.
    fn start(&mut self, bus: &dyn Bus) {
        if self.leaving.is_empty()
            && let Some(queues) = self.starting.take()
        {
            self.admin = Admin::new(queues, bus.window());
            match self.admin {
                Some(_) => self.front.lock().set_ready(),
                None => self.front.lock().set_fatal(),
            }
        }
    }

    /// Everything that the host had is gone, and the devices are to stop. The engine is not made anew: what devices still do to its
    /// blocks it knows of, and no late answer is taken for that of another operation.
    fn stop(&mut self, bus: &mut dyn Bus) {
        self.networks.iter_mut().for_each(|network| network.leave(bus));
        let now = self.now;
        self.ssds.iter_mut().for_each(|ssd| ssd.leave(bus, now));
        self.admin = None;
        // An admin entry that is still on its way is no command of the queue to come.
        self.asked.retain(|_, asked| !matches!(asked, Asked::AdminEntry));
        self.starting = None;
        self.handles.clear();
        for pair in std::mem::take(&mut self.pairs).into_iter().flatten() {
            self.leaving.push(pair.id);
            self.handle(Event::DeleteQueue { queue: pair.id });
            // The engine waits for those that came before their turn; the others are still to come.
            for _ in pair.fetches.iter().filter(|(_, entry)| entry.is_some()) {
                self.handle(Event::Entry { queue: pair.id, bytes: &[0; 64] });
            }
        }
        self.pairs.resize_with(self.config.engine.queues.into(), || None);
    }

    /// The card can't go on: it cannot reach its host's memory.
    pub(crate) fn give_up(&mut self) {
        self.front.lock().set_fatal();
        self.admin = None;
    }

    pub(crate) fn handle(&mut self, event: Event<'_>) {
        self.engine.handle(self.now, event);
    }

    pub(crate) fn done(&mut self, operation: OperationId, outcome: Outcome) {
        self.handle(Event::Done { operation, outcome });
    }

    fn show_load(&self) {
        let blocks = self.engine.blocks_free();
        let rows = self.config.engine.blocks;
        let field = |rows: u32| rows.min(u16::MAX.into()) as u16;
        self.front.lock().set_load(blocks, field(rows - blocks), field(rows));
    }

    /// Performs what the engine wants, as far as it is free for it.
    fn act(&mut self, bus: &mut dyn Bus) -> bool {
        let mut any = false;
        loop {
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
    }

    fn take_timers(&mut self) -> bool {
        let mut any = false;
        while let Some((operation, outcome)) = self.timers.due(self.now) {
            self.done(operation, outcome);
            any = true;
        }
        any
    }

    fn look_at_devices(&mut self, bus: &mut dyn Bus) -> bool {
        let mut any = false;
        for at in 0..self.ssds.len() {
            self.ssds[at].poll(bus, self.now);
            while let Some(told) = self.ssds[at].told() {
                any = true;
                match told {
                    Told::Done(operation, outcome) => self.done(operation, outcome),
                    Told::Released(block) => self.handle(Event::Released { block }),
                }
            }
        }
        let short = self.engine.is_short_of_blocks();
        for at in 0..self.networks.len() {
            self.networks[at].short_of_blocks(short);
            self.networks[at].poll(bus, self.now);
            while let Some(wish) = self.networks[at].wish() {
                any = true;
                self.fulfil(bus, at, wish);
            }
        }
        any
    }

    fn fulfil(&mut self, bus: &mut dyn Bus, at: usize, wish: Wish) {
        match wish {
            Wish::Tell(Told::Done(operation, outcome)) => self.done(operation, outcome),
            Wish::Tell(Told::Released(block)) => self.handle(Event::Released { block }),
            Wish::Connection(cid, connection) => self.connection(bus, at, cid, connection),
        }
    }

    fn perform(&mut self, bus: &mut dyn Bus, action: Action) {
        match action {
            Action::FetchEntry { queue, slot } => self.fetch_entry(bus, queue, slot),
            Action::FetchDescriptor { command, address, length, .. } => {
                self.fetch_descriptor(bus, command, address, length);
            }
            Action::Bind { command, spec, .. } => {
                let binding = self.bind(command, spec);
                self.handle(Event::Bound { command, binding });
            }
            Action::Unbind { command } => self.unbind(bus, command),
            Action::Issue(operation) => self.issue(bus, &operation),
            // No operator of a card gathers: its units work one beside the other.
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
                    self.write_result(bus, address, &area);
                    self.engine.recycle(area);
                }
                self.complete(bus, queue, slot, &entry.to_bytes());
            }
            Action::QueueDeleted { queue } => self.queue_deleted(bus, queue),
        }
    }
}

fn facts(config: &Config) -> Facts {
    let engine = &config.engine;
    let there = |operator| engine.units.iter().any(|(other, count)| *other == operator && *count > 0);
    let operators = OPERATORS.iter().filter(|info| there(info.operator));
    Facts {
        block_size: engine.block_size,
        blocks: engine.blocks,
        commands: engine.commands.into(),
        operators: operators.fold(0, |bits, info| bits | 1 << info.operator as u8),
        depth: 1024,
    }
}
