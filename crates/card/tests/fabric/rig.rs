//! A server in memory: the card, SSDs, and a host that speaks the command set to the card, byte by byte, in virtual time.

use crate::peer::Peer;
use dcs_abi::admin::{AdminCompletion, AdminCompletionPacket, AdminEntry, GRANT_READ, GRANT_WRITE, opcode};
use dcs_abi::descriptor::{Builder, Endpoint, EndpointKind, EndpointRole, Extent, Pace};
use dcs_abi::entry::{CompletionEntry, OPCODE_TRANSFER, SubmissionEntry};
use dcs_abi::operator::Operator;
use dcs_abi::register::{cq_head_doorbell, sq_tail_doorbell};
use dcs_abi::result::{ResultArea, ResultPacket};
use dcs_abi::status::Status;
use dcs_card::card::{Card, Config};
use dcs_drivers::bus::{Bus, Buses, Tag, Window};
use dcs_fabric::{Access, Event, Fabric, FunctionId, HOST, Iommu, Rate, Timing, Wire, WireEnd, nic, nvme};
use dcs_vfio_user::pci::{self, Registers};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Size of host memory in bytes.
pub const HOST_MEMORY: u64 = 64 << 20;
/// Size of the card's own memory in bytes.
const OWN_MEMORY: u64 = 16 << 20;
/// Number of the further command queues.
pub const ANOTHER: u16 = 3;
/// Entries of the admin and command queues.
const DEPTH: u16 = 64;
/// Places of one page each in host memory: the admin queues, then the command queues, and the further ones.
const ADMIN_SQ: u64 = 0x1000;
const ADMIN_CQ: u64 = 0x2000;
const SQ: u64 = 0x3000;
const CQ: u64 = 0x4000;
const ANOTHER_SQ: u64 = 0x5000;
const ANOTHER_CQ: u64 = 0x6000;
/// Descriptors and results, one place of each for each cid; the rest is for tests.
const DESCRIPTORS: u64 = 0x10_0000;
const DESCRIPTOR: u64 = 0x1000;
const RESULTS: u64 = 0x20_0000;
const RESULT: u64 = 0x800;
/// Free host memory.
pub const FREE: u64 = 0x40_0000;

/// The card's address, and the peer's.
pub const CARD: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// The host's side of a queue.
#[derive(Debug, Default)]
struct Side {
    tail: u16,
    head: u16,
    turned: bool,
}

/// A pair of command queues: its number, its rings' places, and its positions in them.
#[derive(Debug)]
struct Queue {
    number: u16,
    sq: u64,
    cq: u64,
    side: Side,
}

/// A transfer's source or destination.
#[derive(Clone, Debug)]
pub struct End {
    pub kind: EndpointKind,
    pub handle: u32,
    pub extents: Vec<(u64, u64)>,
    /// The pace of a paced destination.
    pub pace: Pace,
}

impl End {
    pub fn ssd(handle: u32, extents: &[(u64, u64)]) -> End {
        End { kind: EndpointKind::Block, handle, extents: extents.to_vec(), pace: Pace::default() }
    }

    pub fn flow(handle: u32) -> End {
        End { kind: EndpointKind::Flow, handle, extents: Vec::new(), pace: Pace::default() }
    }

    pub fn paced(handle: u32, pace: Pace) -> End {
        End { kind: EndpointKind::Paced, handle, extents: Vec::new(), pace }
    }

    pub fn memory(handle: u32, address: u64, length: u64) -> End {
        End { kind: EndpointKind::Memory, handle, extents: vec![(address, length)], pace: Pace::default() }
    }
}

/// A transfer to make.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub source: End,
    pub destination: End,
    pub chain: Vec<(Operator, Vec<u8>)>,
    pub length: u64,
    pub flags: u16,
    pub timeout_ms: u32,
}

impl Transfer {
    pub fn new(source: End, destination: End) -> Transfer {
        let length = source.extents.iter().map(|extent| extent.1).sum();
        Transfer { source, destination, chain: Vec::new(), length, flags: 0, timeout_ms: 0 }
    }

    pub fn through(self, chain: &[(Operator, &[u8])]) -> Transfer {
        let chain = chain.iter().map(|(operator, parameter)| (*operator, parameter.to_vec())).collect();
        Transfer { chain, ..self }
    }
}

/// The end of a transfer.
#[derive(Debug)]
pub struct Ended {
    pub entry: CompletionEntry,
    pub result: ResultArea,
    /// Time from doorbell to completion, in virtual nanoseconds, as the host sees it.
    pub took: u64,
}

impl Ended {
    pub fn status(&self) -> Status {
        self.entry.status()
    }

    pub fn digest(&self, at: usize) -> &[u8] {
        let slot = &self.result.digests[at];
        &slot.value[..slot.size as usize]
    }
}

/// The server.
pub struct Rig {
    pub fabric: Fabric,
    pub card: Card,
    pub card_id: FunctionId,
    /// The host whose turn it is: its function of the card, and its memory's place on the bus.
    function: usize,
    base: u64,
    /// Functions of the card, by number; the first one is `card_id`.
    pub functions: Vec<FunctionId>,
    /// The other hosts' queues and commands.
    others: Vec<HostSide>,
    pub ssds: Vec<(FunctionId, nvme::Namespace)>,
    /// NIC, with the peer at the other end of its wire.
    pub nic: Option<(FunctionId, WireEnd, Peer)>,
    host: HostSide,
}

/// A host's side of its queues.
#[derive(Debug, Default)]
struct HostSide {
    admin: Side,
    /// Command queues; transfers are submitted to the last one.
    queues: Vec<Queue>,
    next_cid: u16,
    /// Completions that were reaped, with their cids and times.
    seen: Vec<(u16, CompletionEntry, u64)>,
    submitted: Vec<(u16, u64)>,
}

/// The card's buses: its own, and its functions'.
struct Ports<'a> {
    fabric: &'a mut Fabric,
    functions: &'a [FunctionId],
}

impl Bus for Ports<'_> {
    fn window(&self) -> Window {
        let own = self.functions[0];
        self.fabric.bar(own, 1)
    }
    fn load(&self, offset: u64, bytes: &mut [u8]) {
        self.fabric.load_bar(self.functions[0], 1, offset, bytes);
    }
    fn store(&mut self, offset: u64, bytes: &[u8]) {
        self.fabric.port(self.functions[0]).store(offset, bytes);
    }
    fn write(&mut self, address: u64, bytes: &[u8]) {
        self.write_host(0, address, bytes);
    }
    fn read(&mut self, address: u64, length: u32, tag: Tag) {
        self.read_host(0, address, length, tag);
    }
    fn interrupt(&mut self, vector: u16) {
        self.interrupt_host(0, vector);
    }
}

impl Buses for Ports<'_> {
    fn write_host(&mut self, function: usize, address: u64, bytes: &[u8]) {
        self.fabric.port(self.functions[function]).write(address, bytes);
    }
    fn read_host(&mut self, function: usize, address: u64, length: u32, tag: Tag) {
        self.fabric.port(self.functions[function]).read(address, length, tag);
    }
    fn interrupt_host(&mut self, function: usize, vector: u16) {
        self.fabric.port(self.functions[function]).interrupt(vector);
    }
}

impl Rig {
    /// Makes a server whose card is up, with this many SSDs of 64 MiB plugged in.
    pub fn new(config: Config, ssds: usize) -> Rig {
        let hosts = config.functions;
        let mut fabric = Fabric::new(Timing::default(), HOST_MEMORY * hosts as u64, 7);
        let card_id = fabric.add_endpoint("card", Rate::GEN2_X8, &[0x2000, OWN_MEMORY]);
        let mut functions = vec![card_id];
        functions.extend((1..hosts).map(|_| fabric.add_endpoint("function", Rate::GEN2_X8, &[0x2000])));
        for (at, function) in functions.iter().enumerate() {
            fabric.set_bus_master(*function, true);
            // A host's memory begins at 0 for its function, which reaches nothing else.
            if at > 0 {
                let mut iommu = Iommu::new();
                let window = Window { address: 0, length: HOST_MEMORY };
                iommu.map(window, HOST_MEMORY * at as u64, Access::ReadWrite);
                fabric.set_iommu(*function, Some(iommu));
            }
        }
        let ssds = (0..ssds)
            .map(|_| {
                let namespace = nvme::Namespace::new(1 << 17, 9);
                let model = nvme::Nvme::new(nvme::Config {
                    namespaces: vec![namespace.clone()],
                    ..nvme::Config::default()
                });
                let id = fabric.add_device("ssd", Rate::GEN3_X4, model);
                fabric.set_bus_master(id, true);
                (id, namespace)
            })
            .collect();
        let card =
            Card::new(crate::core::of(config), &fabric.port(card_id), None).expect("the sizes are sound");
        let others = (0..hosts).map(|_| HostSide::default()).collect();
        let (function, base, nic, host) = (0, 0, None, HostSide::default());
        let mut rig = Rig { fabric, card, card_id, function, base, functions, others, ssds, nic, host };
        rig.enable();
        rig
    }

    /// Gives the turn to the host of a function.
    pub fn on(&mut self, function: usize) -> &mut Rig {
        std::mem::swap(&mut self.host, &mut self.others[self.function]);
        std::mem::swap(&mut self.host, &mut self.others[function]);
        (self.function, self.base) = (function, HOST_MEMORY * function as u64);
        self
    }

    /// Returns the function of the host whose turn it is.
    pub fn own_function(&self) -> FunctionId {
        self.functions[self.function]
    }

    /// Makes a server with everything that a transfer needs: granted memory is handle 1, the SSDs follow, and there is a queue pair.
    pub fn ready(config: Config, ssds: usize) -> Rig {
        let mut rig = Rig::new(config, ssds);
        assert_eq!(rig.grant(0, HOST_MEMORY), 1);
        rig.create_queues().unwrap();
        for at in 0..ssds {
            assert_eq!(rig.attach(at), Ok(2 + at as u32));
        }
        rig
    }

    pub fn now(&self) -> u64 {
        self.fabric.now().as_nanos() as u64
    }

    fn bar0(&self) -> u64 {
        self.fabric.bar(self.own_function(), 0).address
    }

    pub fn write_register(&mut self, offset: u64, bytes: &[u8]) {
        let address = self.bar0() + offset;
        self.fabric.port(HOST).write(address, bytes);
    }

    pub fn read_register(&mut self, offset: u64) -> u32 {
        let address = self.bar0() + offset;
        let bytes = self.fabric.read(HOST, address, 4).expect("the card answers");
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    pub fn store(&mut self, address: u64, bytes: &[u8]) {
        self.fabric.port(HOST).store(self.base + address, bytes);
    }

    pub fn load(&mut self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.fabric.port(HOST).load(self.base + address, &mut bytes);
        bytes
    }

    /// Lets the card do what it can now.
    fn poll(&mut self) {
        let now = self.now();
        let mut ports = Ports { fabric: &mut self.fabric, functions: &self.functions };
        while self.card.poll(&mut ports, now) {}
        for (function, registers) in self.functions.iter().zip(self.card.all_registers()) {
            let registers = registers.lock().clone();
            for offset in [0, 0xf00] {
                let mut bytes = [0; 0x40];
                registers.read(offset, &mut bytes);
                self.fabric.port(*function).store_bar(0, offset, &bytes);
            }
        }
    }

    /// Lets the peer do what it can now.
    fn peer(&mut self) {
        let now = self.now();
        let Some((_, end, peer)) = &mut self.nic else { return };
        for frame in peer.step(now) {
            self.fabric.send(*end, frame);
        }
    }

    /// Performs the next event; returns false if there will be none.
    pub fn step(&mut self) -> bool {
        self.poll();
        self.peer();
        let peer = self.nic.as_ref().and_then(|(.., peer)| peer.deadline());
        let deadline = [self.card.deadline(), peer].into_iter().flatten().min();
        let event = self.fabric.step(deadline.map(Duration::from_nanos));
        let now = self.now();
        match event {
            None => return deadline.is_some(),
            Some(Event::Frame { bytes, .. }) => {
                if let Some((.., peer)) = &mut self.nic {
                    peer.receive(now, bytes);
                }
            }
            Some(Event::Read { function, done }) if self.functions.contains(&function) => {
                let mut ports = Ports { fabric: &mut self.fabric, functions: &self.functions };
                self.card.read_done(&mut ports, now, done);
            }
            Some(Event::Written { function, bar: 0, offset, bytes, by }) => {
                if let Some(at) = self.functions.iter().position(|known| *known == function) {
                    assert_eq!(by, HOST, "only hosts write the card's registers");
                    self.card.all_registers()[at].write(offset, &bytes);
                }
            }
            Some(_) => {}
        }
        self.poll();
        true
    }

    /// Runs until `done` holds; returns false if there are no more events, or ten virtual minutes have passed.
    pub fn run_until(&mut self, mut done: impl FnMut(&mut Rig) -> bool) -> bool {
        let end = self.now() + 600_000_000_000;
        while !done(self) {
            if self.now() > end || !self.step() {
                return done(self);
            }
        }
        true
    }

    pub fn enable(&mut self) {
        (self.host.admin, self.host.queues) = Default::default();
        self.store(ADMIN_CQ, &[0; 0x1000]);
        self.store(CQ, &[0; 0x1000]);
        let depth = u32::from(DEPTH - 1);
        self.write_register(0x24, &(depth | depth << 16).to_le_bytes());
        self.write_register(0x28, &ADMIN_SQ.to_le_bytes());
        self.write_register(0x30, &ADMIN_CQ.to_le_bytes());
        self.write_register(0x14, &0x0046_0001u32.to_le_bytes());
        assert!(self.run_until(|rig| rig.read_register(0x1c) & 3 == 1), "CSTS.RDY");
    }

    /// Resets the function and starts it again before the card has polled once.
    pub fn reset_and_start(&mut self) {
        (self.host.admin, self.host.queues) = Default::default();
        self.store(ADMIN_CQ, &[0; 0x1000]);
        self.store(CQ, &[0; 0x1000]);
        let mut registers = self.card.all_registers()[self.function].clone();
        let depth = u32::from(DEPTH - 1);
        pci::Registers::reset(&mut registers);
        registers.write(0x24, &(depth | depth << 16).to_le_bytes());
        registers.write(0x28, &ADMIN_SQ.to_le_bytes());
        registers.write(0x30, &ADMIN_CQ.to_le_bytes());
        registers.write(0x14, &0x0046_0001u32.to_le_bytes());
    }

    /// Unplugs the function of the host whose turn it is.
    pub fn take_away(&mut self) {
        self.fabric.remove(self.own_function());
        pci::Registers::reset(&mut self.card.all_registers()[self.function]);
    }

    pub fn disable(&mut self) {
        self.write_register(0x14, &0x0046_0000u32.to_le_bytes());
        assert!(self.run_until(|rig| rig.read_register(0x1c) & 1 == 0));
    }

    /// Runs an admin command.
    pub fn admin(&mut self, entry: AdminEntry) -> Result<(u32, u32), Status> {
        let cid = self.push_admin(entry);
        let mut found = None;
        let came = self.run_until(|rig| {
            found = rig.reap_admin();
            found.is_some()
        });
        let found = found.filter(|_| came).expect("an admin command is answered");
        assert_eq!(found.cid, cid);
        match Status::from_code(found.status >> 1) {
            Status::Success => Ok((found.value, found.extra)),
            status => Err(status),
        }
    }

    /// Puts an admin command into its ring, and rings; returns its cid.
    pub fn push_admin(&mut self, mut entry: AdminEntry) -> u16 {
        self.host.next_cid += 1;
        entry.cid = self.host.next_cid;
        self.store(ADMIN_SQ + u64::from(self.host.admin.tail) * 64, &entry.to_bytes());
        self.host.admin.tail = (self.host.admin.tail + 1) % DEPTH;
        self.write_register(sq_tail_doorbell(0) as u64, &u32::from(self.host.admin.tail).to_le_bytes());
        entry.cid
    }

    /// Takes the next admin completion, if there is one.
    pub fn reap_admin(&mut self) -> Option<AdminCompletion> {
        let bytes = self.load(ADMIN_CQ + u64::from(self.host.admin.head) * 16, 16);
        let packet = AdminCompletionPacket::new_checked(&bytes[..]).expect("16 bytes");
        let found = AdminCompletion::parse(&packet).expect("no reserved bytes");
        if (found.status & 1 == 1) == self.host.admin.turned {
            return None;
        }
        self.host.admin.head = (self.host.admin.head + 1) % DEPTH;
        self.host.admin.turned ^= self.host.admin.head == 0;
        self.write_register(cq_head_doorbell(0) as u64, &u32::from(self.host.admin.head).to_le_bytes());
        Some(found)
    }

    pub fn grant(&mut self, address: u64, length: u64) -> u32 {
        let words = [length as u32, (length >> 32) as u32, GRANT_READ | GRANT_WRITE, 0, 0, 0];
        let entry =
            AdminEntry { opcode: opcode::GRANT_MEMORY, data_address: address, words, ..Default::default() };
        self.admin(entry).expect("memory is granted").0
    }

    /// Returns the number of the command queues: the last one that the function has.
    pub fn queue(&self) -> u16 {
        self.card.config().queue_pairs().expect("each function has one")
    }

    pub fn create_queues(&mut self) -> Result<(), Status> {
        self.create(self.queue(), SQ, CQ)
    }

    /// Creates another queue pair, which is used from now on.
    pub fn create_another(&mut self) -> Result<(), Status> {
        self.create(ANOTHER, ANOTHER_SQ, ANOTHER_CQ)
    }

    fn create(&mut self, number: u16, sq: u64, cq: u64) -> Result<(), Status> {
        let size = u32::from(number) | u32::from(DEPTH - 1) << 16;
        let words = [size, 3 | 1 << 16, 0, 0, 0, 0];
        self.admin(AdminEntry { opcode: opcode::CREATE_CQ, data_address: cq, words, ..Default::default() })?;
        let words = [size, 1 | u32::from(number) << 16, 0, 0, 0, 0];
        self.admin(AdminEntry { opcode: opcode::CREATE_SQ, data_address: sq, words, ..Default::default() })?;
        self.host.queues.push(Queue { number, sq, cq, side: Side::default() });
        Ok(())
    }

    /// Drops the command queues on the host's side.
    pub fn forget_queues(&mut self) {
        self.host.queues.clear();
        self.store(CQ, &[0; 0x1000]);
    }

    pub fn attach(&mut self, at: usize) -> Result<u32, Status> {
        let bar = self.fabric.bar(self.ssds[at].0, 0);
        let words = [bar.length as u32, 0, 0, 0, 0, 0];
        let entry =
            AdminEntry { opcode: opcode::ATTACH_SSD, data_address: bar.address, words, ..Default::default() };
        self.admin(entry).map(|(handle, block_size)| {
            assert_eq!(block_size, 512);
            handle
        })
    }

    /// Plugs a NIC in, with a peer at the other end of its wire, and attaches it; returns its handle.
    pub fn plug(&mut self, family: nic::Family, wire: Wire) -> Result<u32, Status> {
        let model = nic::Nic::new(nic::Config::new(family, [2, 0, 0, 0, 0, 1]));
        let id = self.fabric.add_device("nic", Rate::GEN2_X4, model);
        self.fabric.set_bus_master(id, true);
        let ends = self.fabric.connect(wire, [Some(id), None]);
        self.nic = Some((id, ends[1], Peer::new(PEER)));
        self.attach_nic(family)
    }

    pub fn attach_nic(&mut self, family: nic::Family) -> Result<u32, Status> {
        let id = self.nic.as_ref().expect("a NIC is plugged in").0;
        let bar = self.fabric.bar(id, 0);
        let device = if family == nic::Family::Igb { 0x10c9 } else { 0x10d3 };
        let words = [bar.length as u32, device, CARD.to_bits(), 24 | 1500 << 16, 0, 0];
        let entry =
            AdminEntry { opcode: opcode::ATTACH_NIC, data_address: bar.address, words, ..Default::default() };
        self.admin(entry).map(|(handle, _)| handle)
    }

    pub fn stream(&mut self, at: usize) -> &mut crate::peer::Stream {
        &mut self.net().streams[at]
    }

    pub fn net(&mut self) -> &mut Peer {
        &mut self.nic.as_mut().expect("a NIC is plugged in").2
    }

    /// Runs an admin command, given by its words.
    pub fn command(&mut self, opcode: u8, words: &[u32]) -> Result<(u32, u32), Status> {
        let mut all = [0; 6];
        all[..words.len()].copy_from_slice(words);
        self.admin(AdminEntry { opcode, words: all, ..Default::default() })
    }

    /// Has the peer connect to a port of the card; returns the connection's handle, and the peer's stream.
    pub fn accepted(&mut self, listener: u32, port: u16, from: u16) -> (u32, usize) {
        let stream = self.net().connect((CARD, port), from);
        let (handle, peer) = self.command(opcode::ACCEPT, &[listener]).expect("a connection comes");
        assert_eq!(peer, PEER.to_bits());
        (handle, stream)
    }

    /// Submits a transfer, and returns its cid.
    pub fn submit(&mut self, transfer: &Transfer) -> u16 {
        self.host.next_cid += 1;
        let cid = self.host.next_cid;
        let place = u64::from(cid % 256);
        let descriptor = descriptor(transfer);
        assert!(descriptor.len() as u64 <= DESCRIPTOR);
        self.store(DESCRIPTORS + place * DESCRIPTOR, &descriptor);
        self.store(RESULTS + place * RESULT, &[0; RESULT as usize]);
        let mut op_chain = [0; 8];
        for (number, (operator, _)) in op_chain.iter_mut().zip(&transfer.chain) {
            *number = *operator as u8;
        }
        let entry = SubmissionEntry {
            opcode: OPCODE_TRANSFER,
            cid,
            descriptor_length: descriptor.len() as u32,
            descriptor_address: DESCRIPTORS + place * DESCRIPTOR,
            result_address: RESULTS + place * RESULT,
            op_chain,
            length: transfer.length,
            timeout_ms: transfer.timeout_ms,
            flags: transfer.flags,
            ..Default::default()
        };
        self.submit_raw(&entry.to_bytes());
        let now = self.now();
        self.host.submitted.push((cid, now));
        cid
    }

    pub fn submit_raw(&mut self, entry: &[u8; 64]) {
        let queue = self.host.queues.last_mut().expect("there is a queue");
        let (number, at) = (queue.number, queue.sq + u64::from(queue.side.tail) * 64);
        queue.side.tail = (queue.side.tail + 1) % DEPTH;
        let tail = u32::from(queue.side.tail).to_le_bytes();
        self.store(at, entry);
        self.write_register(sq_tail_doorbell(number) as u64, &tail);
    }

    /// Reads new completions.
    fn reap(&mut self) {
        (0..self.host.queues.len()).for_each(|at| while self.reap_one(at) {});
    }

    fn reap_one(&mut self, at: usize) -> bool {
        let Queue { number, cq, side: Side { head, turned, .. }, .. } = self.host.queues[at];
        let bytes = self.load(cq + u64::from(head) * 16, 16);
        let Some(entry) = CompletionEntry::if_new(&bytes, !turned).expect("16 bytes") else { return false };
        let side = &mut self.host.queues[at].side;
        side.head = (head + 1) % DEPTH;
        side.turned ^= side.head == 0;
        let head = u32::from(side.head).to_le_bytes();
        self.write_register(cq_head_doorbell(number) as u64, &head);
        assert_eq!(entry.sq_id, number, "the host's number of the queue");
        let now = self.now();
        self.host.seen.push((entry.cid, entry, now));
        true
    }

    /// Returns true if a transfer has ended.
    pub fn is_done(&mut self, cid: u16) -> bool {
        self.reap();
        self.host.seen.iter().any(|seen| seen.0 == cid)
    }

    /// Waits for the end of a transfer and returns it.
    pub fn wait(&mut self, cid: u16) -> Ended {
        let came = self.run_until(|rig| {
            rig.reap();
            rig.host.seen.iter().any(|seen| seen.0 == cid)
        });
        assert!(came, "command {cid} is never completed: {:#?}", self.card.engine());
        let at = self.host.seen.iter().position(|seen| seen.0 == cid).expect("it was there");
        let (_, entry, when) = self.host.seen.remove(at);
        let since =
            self.host.submitted.iter().find(|submitted| submitted.0 == cid).map_or(when, |found| found.1);
        let bytes = self.load(RESULTS + u64::from(cid % 256) * RESULT, ResultArea::SIZE);
        let packet = ResultPacket::new_checked(&bytes[..]).expect("as many bytes as there are");
        let result = ResultArea::parse(&packet).expect("no reserved bytes");
        Ended { entry, result, took: when - since }
    }

    pub fn run(&mut self, transfer: &Transfer) -> Ended {
        let cid = self.submit(transfer);
        self.wait(cid)
    }

    /// Checks that nothing of the engine is lent out.
    pub fn assert_idle(&mut self) {
        assert!(self.run_until(|rig| rig.card.engine().is_idle()), "a leak: {:#?}", self.card.engine());
    }
}

fn descriptor(transfer: &Transfer) -> Vec<u8> {
    let mut bytes = vec![0; DESCRIPTOR as usize];
    let mut builder = Builder::new(&mut bytes).expect("a header fits");
    for (role, end) in
        [(EndpointRole::Source, &transfer.source), (EndpointRole::Destination, &transfer.destination)]
    {
        let Pace { pacing, rate, window_us } = end.pace;
        let (kind, pacing) = (end.kind as u8, pacing as u8);
        let endpoint = Endpoint { kind, handle: end.handle, pacing, rate, window_us, ..Default::default() };
        let extents: Vec<Extent> =
            end.extents.iter().map(|(offset, length)| Extent { offset: *offset, length: *length }).collect();
        builder.endpoint(role, endpoint, &extents).expect("they fit");
    }
    for (at, (_, parameter)) in transfer.chain.iter().enumerate() {
        builder.parameter(at, parameter).expect("it fits");
    }
    let length = builder.finish();
    bytes.truncate(length);
    bytes
}
