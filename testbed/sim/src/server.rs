//! A server: processor, host memory, SSDs, NICs with a peer each, a GPU, the card; and virtual time.
//!
//! It is independent of the designs: the host's software is in [`crate::host`] and [`crate::design`]. Only that software polls
//! the host's controllers ([`Nvme`], [`Network`]), once they are up: arrivals are unknown until then.

use crate::card::CardHost;
use crate::cpu::{Component, Cpu};
use crate::egress::Egress;
use crate::failed::Failed;
use crate::integrated::Integrated;
use crate::parameters::Parameters;
use crate::pattern::Pattern;
use crate::peer::Peer;
use dcs_abi::status::Status;
use dcs_drivers::bus::{Bus, ReadDone, Region, Window};
use dcs_drivers::network::{Address, Network, NetworkAction, State};
use dcs_drivers::nic::{self, Model};
use dcs_drivers::nvme::{self, Memory, Nvme, NvmeError};
use dcs_engine::{DeviceEvent, Nanos, Outcome};
use dcs_fabric::gpu::Gpu;
use dcs_fabric::{Event, Fabric, FunctionId, HOST, Rate, Timing, Wire, WireEnd};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

/// Bytes of host memory.
pub const HOST_MEMORY: u64 = 512 << 20;
/// The port that peers connect to.
pub const PORT: u16 = 80;
/// Bytes of a logical block: 1 << 9.
const SHIFT: u8 = 9;
/// Bytes of received frames that a NIC has room for.
const FIFO: usize = 512 << 10;
/// First tag of the NVMe hosts' register reads.
const NVME_TAGS: u32 = 100;
/// First tag of the networks' register reads.
const NIC_TAGS: u32 = 200;

/// Parts of a server.
#[derive(Clone, Debug)]
pub struct Build {
    /// The parameters.
    pub parameters: Parameters,
    /// Number of SSDs, each with a NIC.
    pub sets: usize,
    /// True if the host drives SSDs and NICs itself; otherwise the card does.
    pub host_drives: bool,
    /// True if SSD and NIC of a set are one device, which drives itself.
    pub integrated: bool,
    /// True if there is a GPU.
    pub gpu: bool,
    /// Bytes of each SSD, all filled with the pattern.
    pub ssd_bytes: u64,
    /// Rate of the links of the card and the GPU.
    pub card_link: Rate,
    /// Rate of each NIC's link.
    pub nic_link: Rate,
    /// Rate of each SSD's link.
    pub ssd_link: Rate,
    /// True if the peers check every checksum, in addition to every byte.
    pub checks: bool,
}

impl Build {
    /// Returns a server with one SSD of 64 MiB and one NIC, and links as in DCS-ctrl's prototype.
    pub fn new(host_drives: bool) -> Build {
        Build {
            parameters: Parameters::default(),
            sets: 1,
            host_drives,
            integrated: false,
            gpu: false,
            ssd_bytes: 64 << 20,
            card_link: Rate::GEN2_X8,
            nic_link: Rate::GEN2_X8,
            ssd_link: Rate::GEN3_X4,
            checks: false,
        }
    }
}

/// An SSD and a NIC, with their drivers if the host drives them.
pub struct Set {
    /// The SSD.
    pub ssd: FunctionId,
    /// Contents of the SSD.
    pub namespace: dcs_fabric::nvme::Namespace,
    /// The NIC.
    pub nic: FunctionId,
    /// The peer's end of its wire.
    pub wire: WireEnd,
    /// The peer.
    pub peer: Peer,
    /// Its frames on their way into the wire.
    pub egress: Egress,
    /// The host's driver of the SSD.
    pub nvme: Option<Nvme>,
    /// The host's driver of the NIC, and its TCP.
    pub network: Option<Network>,
    /// True if the SSD has written completions that were not yet polled.
    pub ssd_news: bool,
    /// Commands that ended.
    pub finished: HashMap<u64, Ended>,
    /// Failed commands whose memory the SSD may still access.
    held: HashMap<u64, NvmeError>,
    /// Frames received, and frames sent, that were not yet handled.
    pub frames: (u64, u64),
    /// True if a TCP timer is due.
    pub timer: bool,
    /// True if a task is about to serve the network.
    pub attended: bool,
    /// Finished operations of the network, with their bytes.
    pub moved: HashMap<u64, Result<u64, Status>>,
    /// Blocks that the network has released.
    pub released: HashSet<u64>,
    /// Connections on which operations of the network send.
    pub sending: HashMap<u64, usize>,
    accepted: Vec<dcs_net::Flow>,
    /// True after a wait for a connection in vain: a later one may belong to that.
    pub unreachable: bool,
    /// Commands of an integrated device: the address and contents of each completion.
    pub commands: Vec<(u64, u64)>,
}

impl Set {
    /// Returns true if the network needs to be served.
    pub fn has_news(&self) -> bool {
        self.frames != (0, 0) || self.timer
    }
}

/// End of a command of an SSD.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Result of the command.
    pub result: Result<(), NvmeError>,
    /// True if the SSD no longer accesses its memory.
    pub is_quiet: bool,
}

/// A connection that the peer is establishing.
#[derive(Clone, Copy, Debug)]
pub struct PendingConnection {
    set: usize,
    stream: usize,
    /// Connections of an integrated device beforehand.
    before: usize,
}

/// A connection.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// Set whose NIC it uses.
    pub set: usize,
    /// The host's name of it.
    pub flow: Option<dcs_net::Flow>,
    /// The card's handle of it.
    pub handle: u32,
    /// The peer's number of it.
    pub stream: usize,
    /// Failure of the host's network to send on it.
    pub broken: Option<Failed>,
}

/// The server. See the [module](self).
pub struct Server {
    /// Parts that it was built of.
    pub build: Build,
    /// The fabric.
    pub fabric: Fabric,
    /// The processor.
    pub cpu: Cpu,
    /// SSDs and NICs.
    pub sets: Vec<Set>,
    /// The card.
    pub card: Option<CardHost>,
    /// The GPU.
    pub gpu: Option<FunctionId>,
    /// The connections.
    pub connections: Vec<Connection>,
    /// Pattern that the SSDs hold and the peers send.
    pub pattern: Rc<Pattern>,
    /// Free host memory.
    pub memory: Region,
    /// True if something happened that software may be waiting for.
    pub dirty: bool,
    /// Record of work with its beginning and end, if enabled.
    pub trace: Option<Vec<(Nanos, Nanos, Component)>>,
    booted: bool,
    /// True while a new connection is awaited.
    pub is_dialling: bool,
    timers: BTreeSet<(Nanos, u64)>,
    next: u64,
    /// Address of the GPU's fences and digests: 256 bytes for each of 2048 runs.
    pub slots: u64,
    /// Free pairs of such places.
    pub free_slots: Vec<u64>,
    /// Fences that are watched, and whether each was set.
    fences: BTreeMap<u64, bool>,
}

impl Server {
    /// Returns a server that is up, without connections.
    pub fn new(build: Build) -> Server {
        let parameters = build.parameters;
        let mut fabric = Fabric::new(Timing::default(), HOST_MEMORY, 7);
        let window = Window { address: 0, length: HOST_MEMORY };
        let mut memory = Region::whole(window);
        // Address 0 stays unused: as a fence it means none.
        memory.take(4096, 4096);
        let slots = memory.take(2048 * 256, 4096).expect("host memory is large").offset();
        let pattern = Rc::new(Pattern::default());
        let sets = (0..build.sets).map(|at| set(&build, &mut fabric, &mut memory, &pattern, at)).collect();
        let gpu = build.gpu.then(|| {
            let config = dcs_fabric::gpu::Config {
                memory: 256 << 20,
                start: Duration::from_nanos(parameters.gpu_start),
            };
            let kernels = crate::kernels::Operators::new(parameters);
            let gpu = fabric.add_device("gpu", Rate::GEN2_X8, Gpu::new(config, kernels));
            fabric.set_bus_master(gpu, true);
            gpu
        });
        let card = (!build.host_drives && !build.integrated)
            .then(|| CardHost::new(&build, &mut fabric, &mut memory));
        let mut server = Server {
            cpu: Cpu::new(parameters.cores, &parameters),
            build,
            fabric,
            sets,
            card,
            gpu,
            connections: Vec::new(),
            pattern,
            memory,
            dirty: true,
            trace: None,
            booted: false,
            is_dialling: false,
            timers: BTreeSet::new(),
            next: 0,
            slots,
            free_slots: (0..1024).rev().collect(),
            fences: BTreeMap::new(),
        };
        server.boot();
        server
    }

    fn boot(&mut self) {
        if self.build.host_drives {
            for at in 0..self.sets.len() {
                let now = self.now();
                let Server { fabric, sets, .. } = self;
                let mut port = fabric.port(HOST);
                if let Set { nvme: Some(nvme), network: Some(network), .. } = &mut sets[at] {
                    nvme.start(&mut port, now);
                    network.start(&mut port, now, address(at));
                }
            }
            self.step_until(|server| server.sets.iter().all(is_up));
            for set in &mut self.sets {
                let network = set.network.as_mut().expect("the host drives it");
                network.listen(PORT).expect("nobody has the port");
            }
        } else {
            CardHost::boot(self);
        }
    }

    /// Runs until a condition is true.
    ///
    /// # Panics
    ///
    /// If nothing is pending before that.
    pub fn step_until(&mut self, mut done: impl FnMut(&mut Server) -> bool) {
        while !done(self) {
            if !self.step() {
                assert!(done(self), "the world stands still");
            }
        }
    }

    /// Begins to charge time: from now on all work needs software.
    pub fn start(&mut self) {
        self.booted = true;
        for set in &mut self.sets {
            (set.frames, set.timer, set.ssd_news) = ((0, 0), false, false);
        }
    }

    /// Makes a connection from the peer of a set, and returns its number. Only before [`Server::start`].
    pub fn connect(&mut self, set: usize) -> usize {
        let dialled = self.dial(set).expect("the port is listened to");
        let mut found = None;
        self.step_until(|server| {
            found = found.or_else(|| server.connected(&dialled));
            found.is_some()
        });
        found.expect("it is there")
    }

    /// Has the peer of a set make a connection. [`Server::connected`] tells when it is established; until then make no other at
    /// the set. `None` if the host's network has failed.
    pub fn dial(&mut self, set: usize) -> Option<PendingConnection> {
        let from = 5000 + self.connections.len() as u16;
        let to = address(set).ip;
        let stream = self.sets[set].peer.connect((to, PORT), from);
        let mut before = 0;
        if self.build.host_drives {
            let network = self.sets[set].network.as_mut().expect("the host drives it");
            network.accept(PORT, from).ok()?;
        } else if self.build.integrated {
            before = self.fabric.device::<Integrated>(self.sets[set].nic).connections();
        } else {
            CardHost::accept(self, set);
        }
        self.dirty = true;
        Some(PendingConnection { set, stream, before })
    }

    /// Returns the number of a new connection, once both ends have it.
    pub fn connected(&mut self, dialled: &PendingConnection) -> Option<usize> {
        let PendingConnection { set, stream, before } = *dialled;
        if !self.sets[set].peer.is_connected(stream) {
            return None;
        }
        let (flow, handle) = if self.build.host_drives {
            (Some(self.sets[set].accepted.pop()?), 0)
        } else if self.build.integrated {
            let device = self.sets[set].nic;
            if self.fabric.device::<Integrated>(device).connections() == before {
                return None;
            }
            (None, before as u32)
        } else {
            (None, CardHost::answer(self)?)
        };
        self.connections.push(Connection { set, flow, handle, stream, broken: None });
        Some(self.connections.len() - 1)
    }

    /// Returns the time since the start.
    pub fn now(&self) -> Nanos {
        self.fabric.now().as_nanos() as Nanos
    }

    /// Returns a unique number.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Makes time stop at `at`, if not before.
    pub fn remind(&mut self, at: Nanos) {
        let number = self.number();
        self.timers.insert((at, number));
    }

    /// Returns the peer's side of a connection.
    pub fn stream(&mut self, connection: usize) -> &mut crate::peer::Stream {
        let Connection { set, stream, .. } = self.connections[connection];
        let peer = &mut self.sets[set].peer;
        peer.wake();
        &mut peer.streams[stream]
    }

    /// Records a component's work, if enabled.
    pub fn note(&mut self, from: Nanos, what: Component) {
        let now = self.now();
        if let Some(trace) = &mut self.trace {
            trace.push((from, now, what));
        }
    }

    /// Polls the SSD's completions.
    pub fn reap_ssd(&mut self, set: usize) {
        let now = self.now();
        let Server { fabric, sets, .. } = self;
        let Set { nvme: Some(nvme), finished, held, ssd_news, .. } = &mut sets[set] else { return };
        *ssd_news = false;
        nvme.poll(&mut fabric.port(HOST), now);
        while let Some(found) = nvme.finished() {
            match (found.result, found.memory) {
                (Err(error), Memory::Held) => _ = held.insert(found.id, error),
                (result, _) => _ = finished.insert(found.id, Ended { result, is_quiet: true }),
            }
        }
        while let Some(id) = nvme.freed() {
            if let Some(error) = held.remove(&id) {
                finished.insert(id, Ended { result: Err(error), is_quiet: true });
            }
        }
        if matches!(nvme.state(), nvme::State::Failed(_)) {
            // The SSD has failed for good: there will be no report that it has stopped.
            let lost = held.drain().map(|(id, error)| (id, Ended { result: Err(error), is_quiet: false }));
            finished.extend(lost);
        }
        self.dirty = true;
    }

    /// Polls an integrated device's completions.
    pub fn reap_integrated(&mut self, set: usize) {
        let commands = std::mem::take(&mut self.sets[set].commands);
        let (over, left) = commands
            .into_iter()
            .partition(|(address, number)| self.load(*address, 8) == number.to_le_bytes());
        let held = &mut self.sets[set];
        (held.commands, held.ssd_news) = (left, false);
        let over: Vec<(u64, u64)> = over;
        let ended = Ended { result: Ok(()), is_quiet: true };
        held.finished.extend(over.into_iter().map(|(_, number)| (number, ended)));
        self.dirty = true;
    }

    /// Serves the network: frames in both directions.
    pub fn poll_network(&mut self, set: usize) {
        let now = self.now();
        let Server { fabric, sets, connections, .. } = self;
        let held = &mut sets[set];
        let Some(network) = &mut held.network else { return };
        (held.timer, held.attended) = (false, false);
        network.poll(&mut fabric.port(HOST), now);
        while let Some(action) = network.next_action() {
            match action {
                NetworkAction::Device(DeviceEvent::Done(
                    operation,
                    Outcome::Moved { bytes, held: keeps, .. },
                )) => {
                    held.moved.insert(operation.to_bits(), Ok(bytes));
                    held.sending.remove(&operation.to_bits());
                    if !keeps {
                        held.released.insert(operation.to_bits());
                    }
                }
                NetworkAction::Device(DeviceEvent::Done(operation, outcome)) => {
                    let (fault, keeps) = match outcome {
                        Outcome::Failed(fault) => (fault, false),
                        Outcome::FailedHeld(fault) => (fault, true),
                        other => panic!("a connection neither moves nor fails: {other:?}"),
                    };
                    held.moved.insert(operation.to_bits(), Err(fault.status));
                    if let Some(connection) = held.sending.remove(&operation.to_bits()) {
                        connections[connection].broken = Some(Failed::Connection(fault.status));
                    }
                    if !keeps {
                        held.released.insert(operation.to_bits());
                    }
                }
                NetworkAction::Device(DeviceEvent::Released(block)) => {
                    held.released.insert(block.0.into());
                }
                NetworkAction::Connection(_, found) => {
                    held.accepted.push(found.expect("the peer connects").0);
                }
            }
        }
        self.dirty = true;
    }

    /// Returns the frames that a set's NIC had no room for.
    pub fn missed(&mut self, set: usize) -> u64 {
        if self.build.integrated {
            return 0;
        }
        self.fabric.device::<dcs_fabric::nic::Nic>(self.sets[set].nic).counts().missed
    }

    /// Watches a fence that the GPU is to set.
    pub fn watch_fence(&mut self, address: u64) {
        self.fences.insert(address, false);
    }

    /// Returns true if it was set.
    pub fn is_set(&self, address: u64) -> bool {
        self.fences.get(&address) == Some(&true)
    }

    /// Stops watching it.
    pub fn forget_fence(&mut self, address: u64) {
        self.fences.remove(&address);
    }

    /// Advances to the next event; returns false if there is none.
    pub fn step(&mut self) -> bool {
        self.cpu.settle();
        self.work();
        let deadline = self.deadline();
        let event = self.fabric.step(deadline.map(Duration::from_nanos));
        let now = self.now();
        self.dirty |= self.cpu.advance(now);
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            self.timers.pop_first();
            self.dirty = true;
        }
        if self.booted {
            for set in &mut self.sets {
                let due = set.network.as_ref().and_then(Network::deadline).is_some_and(|at| at <= now);
                if due && !set.attended && !set.timer {
                    (set.timer, self.dirty) = (true, true);
                }
            }
            for at in 0..self.sets.len() {
                // A command's time is over, or a step of a reset is due.
                if self.sets[at].nvme.as_ref().and_then(Nvme::deadline).is_some_and(|at| at <= now) {
                    self.reap_ssd(at);
                }
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

    /// Does the work that needs no processor of the host.
    fn work(&mut self) {
        let now = self.now();
        if let Some(card) = &mut self.card {
            card.poll(&mut self.fabric, now, !self.booted);
        }
        let Server { fabric, sets, build, .. } = self;
        // An integrated device receives nothing but acknowledgements.
        let held = |fabric: &mut Fabric, nic| if build.integrated { 0 } else { held_by_nic(fabric, nic) };
        for set in sets {
            if set.peer.deadline().is_some_and(|at| at <= now) {
                set.egress.add(set.peer.step(now));
                self.dirty = true;
            }
            while set.egress.is_waiting()
                && let Some(frame) = set.egress.next(now, held(fabric, set.nic))
            {
                fabric.send(set.wire, frame);
            }
        }
        if !self.booted && self.build.host_drives {
            for at in 0..self.sets.len() {
                self.reap_ssd(at);
                self.poll_network(at);
            }
        }
    }

    fn deadline(&self) -> Option<Nanos> {
        let cpu = self.cpu.deadline();
        let card = self.card.as_ref().and_then(CardHost::deadline);
        let timer = self.timers.first().map(|(at, _)| *at);
        let sets = self.sets.iter().flat_map(|set| {
            let network =
                set.network.as_ref().filter(|_| !set.attended && !set.timer).and_then(Network::deadline);
            let nvme = set.nvme.as_ref().and_then(Nvme::deadline);
            [set.peer.deadline(), set.egress.deadline(), network, nvme]
        });
        sets.chain([cpu, card, timer]).flatten().min()
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Frame { end, bytes } => {
                let set = self.sets.iter_mut().find(|set| set.wire == end).expect("a peer's end");
                set.peer.receive(bytes);
            }
            Event::Written { function: HOST, by, bytes, offset, .. } => self.written(by, offset, bytes.len()),
            Event::Read { function: HOST, done } => self.answered(done),
            Event::Interrupt { .. } => {
                if let Some(card) = &mut self.card {
                    card.news = true;
                }
                self.dirty = true;
            }
            other => {
                let now = self.now();
                if let Some(card) = &mut self.card {
                    card.take(&mut self.fabric, now, other);
                }
            }
        }
    }

    /// Handles a write into host memory. Completions, descriptors and fences are short; data are not.
    fn written(&mut self, by: FunctionId, offset: u64, length: usize) {
        if length > 16 {
            return;
        }
        if Some(by) == self.gpu {
            if let Some(fence) = self.fences.get_mut(&offset) {
                *fence = true;
            }
            self.dirty = true;
        }
        for set in &mut self.sets {
            if set.ssd == by {
                (set.ssd_news, self.dirty) = (true, true);
            } else if set.nic == by {
                // A received frame's descriptor is written back whole, a sent frame's only in its status.
                let count = if length == 16 { &mut set.frames.0 } else { &mut set.frames.1 };
                (*count, self.dirty) = (*count + 1, true);
            }
        }
    }

    fn answered(&mut self, done: ReadDone) {
        let now = self.now();
        let Server { fabric, sets, .. } = self;
        let mut port = fabric.port(HOST);
        let tag = done.tag.controller();
        if let Some(set) = tag.checked_sub(NIC_TAGS).and_then(|at| sets.get_mut(at as usize)) {
            set.network.iter_mut().for_each(|network| network.read_done(&mut port, now, done.clone()));
        } else if let Some(at) = tag.checked_sub(NVME_TAGS).map(|at| at as usize)
            && let Some(set) = sets.get_mut(at)
        {
            set.nvme.iter_mut().for_each(|nvme| nvme.read_done(&mut port, now, done.clone()));
            if self.booted {
                // It is being reset: commands that this ends are done at once.
                self.reap_ssd(at);
            }
        }
    }

    /// Copies from host memory.
    pub fn load(&mut self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.fabric.port(HOST).load(address, &mut bytes);
        bytes
    }
}

/// Returns the address of a set's NIC; each has its own network.
pub fn address(set: usize) -> Address {
    Address { ip: Ipv4Addr::new(10, 0, set as u8, 1), prefix: 24, gateway: None, mtu: 1500 }
}

/// Returns the bytes of frames that a NIC holds and has not stored.
fn held_by_nic(fabric: &mut Fabric, nic: FunctionId) -> usize {
    fabric.device::<dcs_fabric::nic::Nic>(nic).waiting()
}

fn is_up(set: &Set) -> bool {
    let nvme = set.nvme.as_ref().is_some_and(|nvme| nvme.state() == nvme::State::Ready);
    nvme && set.network.as_ref().is_some_and(|network| network.state() == State::Ready)
}

fn set(build: &Build, fabric: &mut Fabric, memory: &mut Region, pattern: &Rc<Pattern>, at: usize) -> Set {
    let parameters = &build.parameters;
    let namespace = dcs_fabric::nvme::Namespace::new(build.ssd_bytes >> SHIFT, SHIFT);
    for position in (0..build.ssd_bytes).step_by(1 << 20) {
        let length = (build.ssd_bytes - position).min(1 << 20) as usize;
        namespace.store(position, &pattern.bytes(position, length));
    }
    let media = dcs_fabric::nvme::Media {
        read: Duration::from_nanos(parameters.ssd_read),
        write: Duration::from_nanos(parameters.ssd_write),
        flush: Duration::from_nanos(parameters.ssd_read),
        jitter: Duration::ZERO,
        rate: parameters.ssd_rate,
    };
    let (ssd, nic) = if build.integrated {
        let device = integrated(build, fabric, namespace.clone(), media, at);
        (device, device)
    } else {
        devices(build, fabric, namespace.clone(), media, at)
    };
    fabric.set_bus_master(ssd, true);
    fabric.set_bus_master(nic, true);
    let wire = Wire { rate: parameters.nic_rate, ..Wire::default() };
    let wire = fabric.connect(wire, [Some(nic), None])[1];
    let peer = Peer::new(Ipv4Addr::new(10, 0, at as u8, 2), Rc::clone(pattern), build.checks);
    let (mut nvme, mut network) = (None, None);
    if build.host_drives {
        let config = nvme::Config::new(fabric.bar(ssd, 0), NVME_TAGS + at as u32);
        let region = memory.take(config.memory(), config.page).expect("host memory is large");
        nvme = Some(Nvme::new(config, region).expect("the set-up is sound"));
        let config = nic_config(fabric.bar(nic, 0), NIC_TAGS + at as u32);
        network =
            Some(Network::new(config, address(at), ([7; 16], 0), memory).expect("host memory is large"));
    }
    Set {
        ssd,
        namespace,
        nic,
        wire,
        peer,
        egress: Egress::new(parameters.nic_rate, FIFO),
        nvme,
        network,
        ssd_news: false,
        finished: HashMap::new(),
        held: HashMap::new(),
        frames: (0, 0),
        timer: false,
        attended: false,
        moved: HashMap::new(),
        released: HashSet::new(),
        sending: HashMap::new(),
        accepted: Vec::new(),
        unreachable: false,
        commands: Vec::new(),
    }
}

fn nic_config(registers: Window, tag: u32) -> nic::Config {
    nic::Config {
        transmit: 1024,
        receive: 2048,
        buffers: 4096,
        ..nic::Config::new(registers, tag, Model::Igb)
    }
}

type Media = dcs_fabric::nvme::Media;
type Namespace = dcs_fabric::nvme::Namespace;

/// Builds an SSD and a NIC.
fn devices(
    build: &Build,
    fabric: &mut Fabric,
    namespace: Namespace,
    media: Media,
    at: usize,
) -> (FunctionId, FunctionId) {
    let config = dcs_fabric::nvme::Config {
        namespaces: vec![namespace],
        media,
        ..dcs_fabric::nvme::Config::default()
    };
    let ssd = fabric.add_device("ssd", build.ssd_link, dcs_fabric::nvme::Nvme::new(config));
    let config = dcs_fabric::nic::Config {
        rate: build.parameters.nic_rate,
        fifo: FIFO,
        ..dcs_fabric::nic::Config::new(dcs_fabric::nic::Family::Igb, mac(at))
    };
    (ssd, fabric.add_device("nic", build.nic_link, dcs_fabric::nic::Nic::new(config)))
}

/// Builds both in one device.
fn integrated(
    build: &Build,
    fabric: &mut Fabric,
    namespace: Namespace,
    media: Media,
    at: usize,
) -> FunctionId {
    let Address { ip, prefix, mtu, .. } = address(at);
    let config = dcs_net::Config { mtu, ..dcs_net::Config::new(mac(at), ip, prefix, [7; 16]) };
    let device = Integrated::new(namespace, media, build.parameters.nic_rate, config);
    fabric.add_device("integrated", build.nic_link, device)
}

fn mac(set: usize) -> [u8; 6] {
    [2, 0, 0, 0, set as u8, 1]
}
