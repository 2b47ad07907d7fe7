//! The machine: cores, SSDs, the card with its memory and slots; and virtual time.

use super::parameters::{Operator, Timings};
use crate::cpu::{Component, Cpu};
use crate::executor::World;
use crate::parameters::Parameters;
use crate::pattern::Pattern;
use dcs_drivers::bus::{Bus, Region, Tag, Window};
use dcs_drivers::nvme::{self, Nvme, Request, State};
use dcs_engine::Nanos;
use dcs_fabric::nvme::{Media, Namespace};
use dcs_fabric::{Event, Fabric, FunctionId, HOST, Rate, Timing};
use dcs_ndp::Context;
use dcs_slots::{Action, Config, Job, JobId, OperatorId, Order, Policy, Slots, Tenant};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

/// Bytes of host memory, which includes the guests'.
const HOST_MEMORY: u64 = 128 << 20;
/// Bytes of the card's memory.
const CARD_MEMORY: u64 = 128 << 20;
/// First tag of the SSDs' drivers.
const SSD_TAGS: u32 = 100;
/// Tag of reads by the card's engine.
const ENGINE_TAG: u32 = 1;

/// The part that drives the SSDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drives {
    /// Guests or the host, with queues in host memory.
    Host,
    /// The card's engine, with queues in the card's memory.
    Card,
}

/// Parts of a machine.
#[derive(Clone, Debug)]
pub struct Build {
    /// Costs of the host's software.
    pub parameters: Parameters,
    /// Times of the other parts.
    pub timings: Timings,
    /// The part that drives the SSDs.
    pub drives: Drives,
    /// Number of SSDs.
    pub ssds: usize,
    /// Bytes of each SSD, all filled with the pattern.
    pub ssd_bytes: u64,
    /// Slots, each with its initial operator.
    pub slots: Vec<Option<Operator>>,
    /// Policy that assigns blocks to slots.
    pub policy: Policy,
    /// Order of waiting blocks.
    pub order: Order,
    /// Hysteresis: [`Config::lag`] and [`Config::linger`].
    pub hysteresis: (Nanos, Nanos),
    /// Tenants of the slots.
    pub tenants: Vec<Tenant>,
    /// Time to load a slot.
    pub loading: Nanos,
    /// Rate of the card's link.
    pub card_link: Rate,
    /// True if ciphers compute; otherwise blocks stay unchanged, in the same time.
    pub computes: bool,
    /// Latency of a hop of the bus.
    pub hop: Option<Nanos>,
}

impl Build {
    /// Returns one SSD, one slot for each operator, and as many tenants as guests.
    pub fn new(parameters: Parameters, timings: Timings, drives: Drives) -> Build {
        Build {
            parameters,
            timings,
            drives,
            ssds: 1,
            ssd_bytes: 8 << 20,
            slots: Operator::ALL.map(Some).to_vec(),
            policy: Policy::Dynamic,
            order: Order::Arrival,
            hysteresis: (0, 0),
            tenants: vec![Tenant::default(); 4],
            loading: 0,
            card_link: Rate::GEN3_X4,
            computes: true,
            hop: None,
        }
    }
}

/// An SSD with its driver.
pub struct Ssd {
    function: FunctionId,
    /// Contents of the SSD.
    pub namespace: Namespace,
    nvme: Nvme,
    /// True if it has written completions that were not yet polled.
    pub news: bool,
    finished: HashSet<u64>,
}

/// A block in a slot.
#[derive(Clone, Copy, Debug)]
struct Block {
    operator: Operator,
    /// Offset in the card's memory.
    offset: u64,
    length: u64,
}

/// The next event of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SlotEvent {
    Load,
    Block,
}

/// The machine. See the [module](self).
pub struct Machine {
    /// Parts that it was built of.
    pub build: Build,
    /// The fabric.
    pub fabric: Fabric,
    /// The cores.
    pub cpu: Cpu,
    /// The SSDs.
    pub ssds: Vec<Ssd>,
    /// The card.
    pub card: FunctionId,
    /// Free host memory, and free memory of the card.
    pub memory: [Region; 2],
    /// Initial contents of the SSDs.
    pub pattern: Pattern,
    /// Record of work with its beginning and end, if enabled.
    pub trace: Option<Vec<(Nanos, Nanos, Component)>>,
    slots: Slots,
    blocks: HashMap<u64, Block>,
    over: BTreeSet<(Nanos, u16, SlotEvent)>,
    done: HashSet<u64>,
    timers: BTreeSet<(Nanos, u64)>,
    next: u64,
    reads: HashMap<u32, Vec<u8>>,
    host_reads: u64,
    watched: HashMap<(FunctionId, u64), bool>,
    dirty: bool,
}

impl Machine {
    /// Returns a machine whose SSDs are up.
    pub fn new(build: Build) -> Machine {
        let hop = build.hop.map_or(Timing::default().hop, Duration::from_nanos);
        let mut fabric = Fabric::new(Timing { hop, ..Timing::default() }, HOST_MEMORY, 7);
        let card = fabric.add_endpoint("fcsv", build.card_link, &[CARD_MEMORY]);
        fabric.set_bus_master(card, true);
        let whole = |length| Region::whole(Window { address: 0, length });
        let mut memory = [whole(HOST_MEMORY), whole(CARD_MEMORY)];
        let pattern = Pattern::default();
        let ssds = (0..build.ssds).map(|at| ssd(&build, &mut fabric, &mut memory, &pattern, at)).collect();
        let parameters = Parameters { cores: build.timings.vm_cores, ..build.parameters };
        let slots = slots(&build);
        let mut machine = Machine {
            cpu: Cpu::new(parameters.cores, &parameters),
            build,
            fabric,
            ssds,
            card,
            memory,
            pattern,
            trace: None,
            slots,
            blocks: HashMap::new(),
            over: BTreeSet::new(),
            done: HashSet::new(),
            timers: BTreeSet::new(),
            next: 0,
            reads: HashMap::new(),
            host_reads: 0,
            watched: HashMap::new(),
            dirty: true,
        };
        for at in 0..machine.ssds.len() {
            machine.with_ssd(at, |nvme, port, now| nvme.start(port, now));
        }
        while machine.ssds.iter().any(|ssd| ssd.nvme.state() != State::Ready) {
            assert!(machine.step(), "the SSDs do not come up");
            (0..machine.ssds.len()).for_each(|at| machine.reap(at));
        }
        machine
    }

    /// Returns a unique number.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn driver(&self) -> FunctionId {
        if self.build.drives == Drives::Card { self.card } else { HOST }
    }

    fn with_ssd<T>(&mut self, at: usize, act: impl FnOnce(&mut Nvme, &mut dyn Bus, Nanos) -> T) -> T {
        let (driver, now) = (self.driver(), self.now());
        act(&mut self.ssds[at].nvme, &mut self.fabric.port(driver), now)
    }

    /// Submits a command to an SSD; returns false if its queue is full.
    pub fn submit(&mut self, at: usize, number: u64, writes: bool, position: u64, data: Window) -> bool {
        let data = [data];
        let lba = position / 512;
        self.with_ssd(at, |nvme, port, now| {
            let request = match writes {
                true => Request::Write { lba, data: &data, durable: false },
                false => Request::Read { lba, data: &data },
            };
            let taken = nvme.submit(port, now, number, &request).is_ok();
            nvme.ring(port);
            taken
        })
    }

    /// Polls an SSD's completions.
    pub fn reap(&mut self, at: usize) {
        self.with_ssd(at, |nvme, port, now| nvme.poll(port, now));
        let ssd = &mut self.ssds[at];
        ssd.news = false;
        while let Some(found) = ssd.nvme.finished() {
            assert!(found.result.is_ok(), "an SSD failed: {found:?}");
            ssd.finished.insert(found.id);
        }
        self.dirty = true;
    }

    /// Returns true, once, when a command is done and its completion was polled.
    pub fn take_finished(&mut self, at: usize, number: u64) -> bool {
        self.ssds[at].finished.remove(&number)
    }

    /// Returns the bus address of an offset in the card's memory.
    pub fn card_address(&self, offset: u64) -> u64 {
        self.fabric.bar(self.card, 0).address + offset
    }

    /// Starts a read of host memory by the card's DMA. [`Machine::take_read`] returns the data.
    pub fn card_reads(&mut self, address: u64, length: u64) -> u32 {
        let number = self.number() as u32;
        self.fabric.port(self.card).read(address, length as u32, Tag::new(ENGINE_TAG, number));
        number
    }

    /// Returns the number of the host's own reads that were answered.
    pub fn host_reads(&self) -> u64 {
        self.host_reads
    }

    /// Takes the data that the card has read.
    pub fn take_read(&mut self, number: u32) -> Option<Vec<u8>> {
        self.reads.remove(&number)
    }

    /// Writes into host memory by the card, or into the card's memory by the host. [`Machine::has_landed`] tells when the last
    /// bytes arrive.
    pub fn write(&mut self, by: FunctionId, address: u64, bytes: &[u8]) {
        self.fabric.port(by).write(address, bytes);
    }

    /// Registers a place whose writes will be waited for.
    pub fn watch(&mut self, function: FunctionId, offset: u64) {
        self.watched.insert((function, offset), false);
    }

    /// Returns true, once, when a watched place was written to.
    pub fn has_landed(&mut self, function: FunctionId, offset: u64) -> bool {
        let landed = self.watched.get(&(function, offset)) == Some(&true);
        if landed {
            self.watched.remove(&(function, offset));
        }
        landed
    }

    /// Queues a block in the card's memory for a slot. The number returned tells when it is done ([`Machine::is_done`]).
    pub fn operate(&mut self, tenant: u16, operator: Operator, offset: u64, length: u64) -> u64 {
        let (number, now) = (self.number(), self.now());
        self.blocks.insert(number, Block { operator, offset, length });
        let job = Job { id: JobId(number), tenant, operator: id(operator) };
        self.slots.request(job, now).expect("a slot holds it, or is loaded");
        self.dispatch();
        number
    }

    /// Returns true, once, when a block is done.
    pub fn is_done(&mut self, number: u64) -> bool {
        self.done.remove(&number)
    }

    /// Returns the slots.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    fn dispatch(&mut self) {
        let now = self.now();
        while let Some(action) = self.slots.next(now) {
            match action {
                Action::Load { slot, .. } => {
                    self.over.insert((now + self.build.loading, slot, SlotEvent::Load));
                }
                Action::Run { slot, job } => self.run(slot, job),
            }
        }
        if let Some(at) = self.slots.next_deadline(now) {
            self.remind(at);
        }
        self.dirty = true;
    }

    fn run(&mut self, slot: u16, job: Job) {
        let Block { operator, length, .. } = self.blocks[&job.id.0];
        let time = self.build.timings.working(operator, length);
        let from = self.now();
        self.over.insert((from + time, slot, SlotEvent::Block));
        if let Some(trace) = &mut self.trace {
            trace.push((from, from + time, Component::Ndp));
        }
    }

    fn settle_slots(&mut self) {
        let now = self.now();
        while self.over.first().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, slot, over)) = self.over.pop_first() else { break };
            if over == SlotEvent::Load {
                let job = self.slots.loaded(slot, now);
                self.run(slot, job);
                continue;
            }
            let job = self.slots.done(slot, now);
            if let Some(block) = self.blocks.remove(&job.id.0) {
                self.transform(block);
            }
            self.done.insert(job.id.0);
            self.dirty = true;
        }
    }

    /// Applies the operator to a block.
    fn transform(&mut self, block: Block) {
        if !self.build.computes || !matches!(block.operator, Operator::Encryption | Operator::Decryption) {
            return;
        }
        let mut port = self.fabric.port(self.card);
        let mut bytes = vec![0; block.length as usize];
        port.load(block.offset, &mut bytes);
        encrypt(&mut bytes);
        port.store(block.offset, &bytes);
    }

    fn take(&mut self, event: Event) {
        self.dirty = true;
        match event {
            Event::Written { function, offset, bytes, by, .. } => {
                let driver = self.driver();
                let short = bytes.len() <= 16;
                for ssd in
                    self.ssds.iter_mut().filter(|ssd| short && ssd.function == by && function == driver)
                {
                    ssd.news = true;
                }
                if let Some(landed) = self.watched.get_mut(&(function, offset)) {
                    *landed = true;
                }
            }
            Event::Read { done, .. } => {
                let number = done.tag.controller();
                if number == ENGINE_TAG {
                    self.reads.insert(done.tag.number(), done.data.expect("the memory is there"));
                } else if number < SSD_TAGS {
                    self.host_reads += 1;
                } else {
                    let at = (number - SSD_TAGS) as usize;
                    self.with_ssd(at, |nvme, port, now| nvme.read_done(port, now, done));
                }
            }
            _ => {}
        }
    }
}

impl World for Machine {
    fn step(&mut self) -> bool {
        self.cpu.settle();
        let times = [
            self.cpu.deadline(),
            self.timers.first().map(|(at, _)| *at),
            self.over.first().map(|(at, ..)| *at),
            self.ssds.iter().filter_map(|ssd| ssd.nvme.deadline()).min(),
        ];
        let deadline = times.into_iter().flatten().min();
        let event = self.fabric.step(deadline.map(Duration::from_nanos));
        let now = self.now();
        self.dirty |= self.cpu.advance(now);
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            self.timers.pop_first();
            self.dirty = true;
        }
        self.settle_slots();
        self.dispatch_idle();
        for at in 0..self.ssds.len() {
            if self.ssds[at].nvme.deadline().is_some_and(|at| at <= now) {
                self.reap(at);
            }
        }
        match event {
            None => deadline.is_some(),
            Some(event) => {
                self.take(event);
                true
            }
        }
    }

    fn now(&self) -> Nanos {
        self.fabric.now().as_nanos() as Nanos
    }

    fn remind(&mut self, at: Nanos) {
        let number = self.number();
        self.timers.insert((at, number));
    }

    fn dirty(&mut self) -> &mut bool {
        &mut self.dirty
    }

    fn cpu(&mut self) -> &mut Cpu {
        &mut self.cpu
    }

    fn note(&mut self, from: Nanos, what: Component) {
        let now = self.now();
        if let Some(trace) = &mut self.trace {
            trace.push((from, now, what));
        }
    }
}

impl Machine {
    /// Dispatches to slots that have become free, or can be loaded now.
    fn dispatch_idle(&mut self) {
        if self.slots.waiting() > 0 {
            let dirty = self.dirty;
            self.dispatch();
            self.dirty |= dirty;
        }
    }
}

/// Returns the slots' number of an operator.
pub fn id(operator: Operator) -> OperatorId {
    OperatorId(operator as u32)
}

/// Encrypts or decrypts a block with Blowfish in counter mode.
pub fn encrypt(bytes: &mut [u8]) {
    let parameter = dcs_ndp::parameter::blowfish_ctr(&[0x5a; 16], &[0x17; 8]);
    let mut context =
        Context::new(dcs_abi::operator::Operator::BlowfishCtr, &parameter).expect("a sound key");
    context.in_place(bytes, true).expect("counter mode takes any length");
}

fn slots(build: &Build) -> Slots {
    let config = Config {
        slots: build.slots.iter().map(|operator| operator.map(id)).collect(),
        policy: build.policy,
        order: build.order,
        lag: build.hysteresis.0,
        linger: build.hysteresis.1,
    };
    let mut slots = Slots::new(&config).expect("there are slots");
    for (at, tenant) in build.tenants.iter().enumerate() {
        slots.set_tenant(at as u16, *tenant).expect("tenants are sound");
    }
    slots
}

fn ssd(build: &Build, fabric: &mut Fabric, memory: &mut [Region; 2], pattern: &Pattern, at: usize) -> Ssd {
    let timings = &build.timings;
    let namespace = Namespace::new(build.ssd_bytes / 512, 9);
    for position in (0..build.ssd_bytes).step_by(1 << 20) {
        let length = (build.ssd_bytes - position).min(1 << 20) as usize;
        namespace.store(position, &pattern.bytes(position, length));
    }
    // The given latency is that of 4 KiB, which includes transfer at the medium's rate.
    let page = 4096 * 1_000_000_000 / timings.drive_ssd_rate;
    let latency = Duration::from_nanos(timings.drive_ssd_latency.saturating_sub(page));
    let media = Media {
        read: latency,
        write: latency,
        flush: latency,
        jitter: Duration::ZERO,
        rate: timings.drive_ssd_rate,
    };
    let config = dcs_fabric::nvme::Config {
        namespaces: vec![namespace.clone()],
        media,
        firmware: Duration::ZERO,
        ..dcs_fabric::nvme::Config::default()
    };
    let function = fabric.add_device("ssd", Rate::GEN3_X4, dcs_fabric::nvme::Nvme::new(config));
    fabric.set_bus_master(function, true);
    let config = nvme::Config::new(fabric.bar(function, 0), SSD_TAGS + at as u32);
    let place = usize::from(build.drives == Drives::Card);
    let region = memory[place].take(config.memory(), config.page).expect("memory is large");
    let nvme = Nvme::new(config, region).expect("the set-up is sound");
    Ssd { function, namespace, nvme, news: false, finished: HashSet::new() }
}
