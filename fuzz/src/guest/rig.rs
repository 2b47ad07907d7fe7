//! A small server for a malicious guest: the card, an SSD, a NIC with a peer, host memory. It also has the calls that a
//! well-behaved guest makes.

use super::oracle::{Oracle, Watch};
use super::peer::Peer;
use dcs_abi::admin::{AdminCompletion, AdminCompletionPacket, AdminEntry, GRANT_READ, GRANT_WRITE, opcode};
use dcs_abi::entry::CompletionEntry;
use dcs_abi::register::{cq_head_doorbell, sq_tail_doorbell};
use dcs_abi::status::Status;
use dcs_card::card::{Card, Config};
use dcs_card::registers::AdminQueues;
use dcs_drivers::bus::{Bus, Window};
use dcs_fabric::{Access, Event, Fabric, FunctionId, HOST, Iommu, Rate, Timing, Wire, WireEnd, nic, nvme};
use dcs_vfio_user::pci::Registers as _;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Bytes of host memory.
pub const HOST_MEMORY: u64 = 4 << 20;
/// Bytes of host memory that a well-behaved guest grants.
pub const GRANTED: u64 = 2 << 20;
pub const OWN_MEMORY: u64 = 16 << 20;
pub const REGISTERS: u64 = 0x2000;
/// Entries of queues.
pub const DEPTH: u16 = 32;
/// Address of the admin submission queue.
const ADMIN_SQ: u64 = 0x1000;
/// Address of the admin completion queue.
const ADMIN_CQ: u64 = 0x2000;
/// Offset of the data.
pub const DATA: u64 = 0x4_0000;

pub const CARD: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Most polls at one moment, after which the card must be at rest, for any guest.
const POLLS: usize = 64;
/// Most steps without progress of time.
const STILL: usize = 20_000;

/// A guest's side of a queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct Side {
    pub tail: u16,
    pub head: u16,
    pub turned: bool,
}

pub struct Rig {
    pub fabric: Fabric,
    pub card: Card,
    pub card_id: FunctionId,
    pub ssd: FunctionId,
    pub namespace: nvme::Namespace,
    pub nic: FunctionId,
    pub end: WireEnd,
    pub peer: Peer,
    pub oracle: Oracle,
    /// Admin queue, then the others by number less 1.
    pub sides: [Side; 3],
    pub cid: u16,
    /// Steps since time last advanced.
    still: usize,
    pub steps: usize,
}

fn config() -> Config {
    let mut config = Config { handles: 32, ssds: 2, nics: 1, key: [7; 16], ..Config::default() };
    config.engine.blocks = 32;
    config.engine.cached_blocks = 32;
    config.engine.commands = 8;
    // Two of them are function 1's, whose host is away.
    config.functions = 2;
    config.engine.queues = 4;
    config.nvme.timeout = 200_000_000;
    config.nvme.admin_timeout = 100_000_000;
    config
}

impl Rig {
    pub fn new() -> Rig {
        let mut fabric = Fabric::new(Timing::default(), HOST_MEMORY, 7);
        let card_id = fabric.add_endpoint("card", Rate::GEN2_X8, &[REGISTERS, OWN_MEMORY]);
        let namespace = nvme::Namespace::new(2048, 9);
        // Adjacent logical blocks differ.
        let bytes: Vec<u8> = (0..=250).collect();
        namespace.store(0, &bytes.repeat(400));
        let model = nvme::Config { namespaces: vec![namespace.clone()], ..nvme::Config::default() };
        let ssd = fabric.add_device("ssd", Rate::GEN3_X4, nvme::Nvme::new(model));
        let model = nic::Nic::new(nic::Config::new(nic::Family::Igb, [2, 0, 0, 0, 0, 1]));
        let nic = fabric.add_device("nic", Rate::GEN2_X4, model);
        let [_, end] = fabric.connect(Wire::default(), [Some(nic), None]);
        let own = fabric.bar(card_id, 1);
        for device in [ssd, nic] {
            let mut iommu = Iommu::new();
            iommu.map(own, own.address, Access::ReadWrite);
            fabric.set_iommu(device, Some(iommu));
        }
        for function in [card_id, ssd, nic] {
            fabric.set_bus_master(function, true);
        }
        let devices =
            vec![(fabric.bar(ssd, 0), opcode::ATTACH_SSD), (fabric.bar(nic, 0), opcode::ATTACH_NIC)];
        let oracle = Oracle::new(own, devices);
        let card = Card::new(config(), &fabric.port(card_id), None).expect("the sizes are sound");
        let (peer, sides) = (Peer::new(PEER), Default::default());
        Rig {
            fabric,
            card,
            card_id,
            ssd,
            namespace,
            nic,
            end,
            peer,
            oracle,
            sides,
            cid: 0,
            still: 0,
            steps: 0,
        }
    }

    pub fn now(&self) -> u64 {
        self.fabric.now().as_nanos() as u64
    }

    pub fn bar(&self, function: FunctionId, bar: usize) -> Window {
        self.fabric.bar(function, bar)
    }

    pub fn store(&mut self, address: u64, bytes: &[u8]) {
        self.fabric.port(HOST).store(address, bytes);
    }

    pub fn load(&mut self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.fabric.port(HOST).load(address, &mut bytes);
        bytes
    }

    pub fn write_register(&mut self, offset: u64, bytes: &[u8]) {
        let address = self.bar(self.card_id, 0).address + offset;
        self.fabric.port(HOST).write(address, bytes);
    }

    pub fn register(&self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.card.registers().lock().read(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// Lets the card do everything that it can now.
    fn settle(&mut self) {
        let now = self.now();
        let mut watch = Watch { port: self.fabric.port(self.card_id), oracle: &mut self.oracle };
        let rests = (0..POLLS).any(|_| !self.card.poll(&mut watch, now));
        assert!(rests, "the card comes to no rest: {:?}", self.card);
        for device in [self.ssd, self.nic] {
            let refused = self.fabric.take_refused(device);
            assert!(self.oracle.meddled || refused.is_empty(), "a device was sent to {refused:x?}");
        }
    }

    /// Runs the next event up to `until`; returns false if there is none before that.
    pub fn step(&mut self, until: u64) -> bool {
        self.settle();
        let before = self.now();
        for frame in self.peer.step(before) {
            self.fabric.send(self.end, frame);
        }
        let deadlines = [self.card.deadline(), self.peer.deadline(), Some(until)];
        let deadline = deadlines.into_iter().flatten().min().map(Duration::from_nanos);
        let event = self.fabric.step(deadline);
        let now = self.now();
        self.steps += 1;
        self.still = if now > before { 0 } else { self.still + 1 };
        let deadlines = (self.card.deadline(), self.peer.deadline(), until);
        assert!(self.still < STILL, "time stands still at {now}, {deadlines:?}, {event:?}: {:?}", self.card);
        let over = event.is_none() && now >= until;
        match event {
            Some(Event::Frame { bytes, .. }) => self.peer.receive(now, bytes),
            Some(Event::Read { function, done }) if function == self.card_id => {
                self.oracle.seen(&done);
                let mut watch = Watch { port: self.fabric.port(function), oracle: &mut self.oracle };
                self.card.read_done(&mut watch, now, done);
            }
            Some(Event::Written { function, bar: 0, offset, bytes, .. }) if function == self.card_id => {
                self.register_written(offset, &bytes);
            }
            _ => {}
        }
        self.settle();
        !over
    }

    fn register_written(&mut self, offset: u64, bytes: &[u8]) {
        let before = self.register(0x14) & 1;
        self.card.registers().write(offset, bytes);
        match (before, self.register(0x14) & 1) {
            (0, 1) => {
                let depth = |field: u32| (field & 0xfff) as u16 + 1;
                let long = |at| u64::from(self.register(at)) | u64::from(self.register(at + 4)) << 32;
                let attributes = self.register(0x24);
                self.oracle.start(AdminQueues {
                    submissions: long(0x28),
                    submission_depth: depth(attributes),
                    completions: long(0x30),
                    completion_depth: depth(attributes >> 16),
                });
            }
            (1, 0) => self.oracle.stop(),
            _ => {}
        }
    }

    /// Runs until a condition is true, at most for `time`.
    pub fn run_until(&mut self, time: u64, mut done: impl FnMut(&mut Rig) -> bool) -> bool {
        let end = self.now() + time;
        while !done(self) {
            if !self.step(end) {
                return done(self);
            }
        }
        true
    }

    /// Resets the function by the bus, and the devices with it.
    pub fn reset_function(&mut self) {
        self.reset_devices();
        self.card.registers().reset();
        self.oracle.stop();
        self.settle();
    }

    pub fn reset_devices(&mut self) {
        for device in [self.ssd, self.nic] {
            self.fabric.clear_faults(device);
            self.fabric.reset(device);
            self.fabric.set_bus_master(device, true);
        }
    }

    pub fn disable(&mut self) {
        self.write_register(0x14, &0x0046_0000u32.to_le_bytes());
        assert!(self.run_until(1_000_000, |rig| rig.register(0x14) & 1 == 0 && rig.register(0x1c) & 1 == 0));
        // The answer to a read arrives after the card's earlier writes.
        let address = self.bar(self.card_id, 0).address;
        self.fabric.read(HOST, address, 4).expect("the card answers");
    }

    pub fn enable(&mut self) {
        self.sides = Default::default();
        self.store(ADMIN_CQ, &[0; 0x1000]);
        let depth = u32::from(DEPTH - 1);
        self.write_register(0x24, &(depth | depth << 16).to_le_bytes());
        self.write_register(0x28, &ADMIN_SQ.to_le_bytes());
        self.write_register(0x30, &ADMIN_CQ.to_le_bytes());
        self.write_register(0x14, &0x0046_0001u32.to_le_bytes());
    }

    pub fn is_ready(&mut self) -> bool {
        self.run_until(60_000_000_000, |rig| rig.register(0x1c) == 1)
    }

    /// Returns the places of the rings of queue `number`: submissions, completions.
    pub fn rings(number: u16) -> (u64, u64) {
        match number {
            0 => (ADMIN_SQ, ADMIN_CQ),
            _ => (0x4000 + u64::from(number) * 0x2000, 0x5000 + u64::from(number) * 0x2000),
        }
    }

    /// Puts an entry into the ring of queue `number`, and rings the doorbell.
    pub fn push(&mut self, number: u16, entry: &[u8; 64]) {
        let side = &mut self.sides[usize::from(number)];
        let slot = side.tail;
        side.tail = (slot + 1) % DEPTH;
        let tail = side.tail;
        self.store(Rig::rings(number).0 + u64::from(slot) * 64, entry);
        self.write_register(sq_tail_doorbell(number) as u64, &u32::from(tail).to_le_bytes());
    }

    /// Takes the next completion of a queue, if there is one.
    pub fn reap(&mut self, number: u16) -> Option<[u8; 16]> {
        let side = self.sides[usize::from(number)];
        let bytes = self.load(Rig::rings(number).1 + u64::from(side.head) * 16, 16);
        if (bytes[14] & 1 == 1) == side.turned {
            return None;
        }
        let side = &mut self.sides[usize::from(number)];
        side.head = (side.head + 1) % DEPTH;
        side.turned ^= side.head == 0;
        let head = u32::from(side.head);
        self.write_register(cq_head_doorbell(number) as u64, &head.to_le_bytes());
        bytes.try_into().ok()
    }

    /// Runs an admin command without interference.
    pub fn admin(&mut self, entry: AdminEntry) -> Result<(u32, u32), Status> {
        self.cid = self.cid.wrapping_add(1);
        self.push(0, &AdminEntry { cid: self.cid, ..entry }.to_bytes());
        let mut found = None;
        self.run_until(60_000_000_000, |rig| {
            found = rig.reap(0);
            found.is_some()
        });
        let bytes = found.unwrap_or_else(|| panic!("an admin command is answered: {:?}", self.card));
        let packet = AdminCompletionPacket::new_checked(&bytes[..]).expect("16 bytes");
        let found = AdminCompletion::parse(&packet).expect("no reserved bytes");
        assert_eq!(found.cid, self.cid, "an answer to what was not asked");
        match Status::from_code(found.status >> 1) {
            Status::Success => Ok((found.value, found.extra)),
            status => Err(status),
        }
    }

    pub fn command(&mut self, opcode: u8, address: u64, words: &[u32]) -> Result<(u32, u32), Status> {
        let mut all = [0; 6];
        all[..words.len()].copy_from_slice(words);
        self.admin(AdminEntry { opcode, data_address: address, words: all, ..Default::default() })
    }

    pub fn grant(&mut self, address: u64, length: u64) -> Result<(u32, u32), Status> {
        let words = [length as u32, (length >> 32) as u32, GRANT_READ | GRANT_WRITE];
        self.command(opcode::GRANT_MEMORY, address, &words)
    }

    pub fn create_queues(&mut self, number: u16) -> Result<(), Status> {
        let (submissions, completions) = Rig::rings(number);
        self.store(completions, &[0; 0x1000]);
        self.sides[usize::from(number)] = Side::default();
        let words = [u32::from(number) | u32::from(DEPTH - 1) << 16, 3 | u32::from(number) << 16];
        self.command(opcode::CREATE_CQ, completions, &words)?;
        let words = [words[0], 1 | u32::from(number) << 16, 1];
        self.command(opcode::CREATE_SQ, submissions, &words).map(|_| ())
    }

    pub fn attach_ssd(&mut self) -> Result<(u32, u32), Status> {
        let bar = self.bar(self.ssd, 0);
        self.command(opcode::ATTACH_SSD, bar.address, &[bar.length as u32])
    }

    /// Attaches a device, if necessary after the earlier ones have stopped.
    pub fn patiently(
        &mut self,
        attach: fn(&mut Rig) -> Result<(u32, u32), Status>,
    ) -> Result<(u32, u32), Status> {
        for _ in 0..60 {
            match attach(self) {
                Err(Status::OutOfResources) => _ = self.run_until(1_000_000_000, |_| false),
                other => return other,
            }
        }
        Err(Status::OutOfResources)
    }

    /// Returns the words of the NIC's ATTACH.
    pub fn nic_words(&self) -> [u32; 5] {
        [self.bar(self.nic, 0).length as u32, 0x10c9, CARD.to_bits(), 24 | 1500 << 16, 0]
    }

    pub fn attach_nic(&mut self) -> Result<(u32, u32), Status> {
        let words = self.nic_words();
        self.command(opcode::ATTACH_NIC, self.bar(self.nic, 0).address, &words)
    }

    /// Waits for the completion of a transfer without interference.
    pub fn wait(&mut self, number: u16, cid: u16) -> CompletionEntry {
        let mut found = None;
        self.run_until(300_000_000_000, |rig| {
            found = rig.reap(number);
            found.is_some()
        });
        let bytes = found.unwrap_or_else(|| panic!("a transfer ends: {:?}", self.card));
        let entry = CompletionEntry::if_new(&bytes, bytes[14] & 1 == 1).expect("16 bytes").expect("new");
        assert_eq!(entry.cid, cid, "an answer to what was not asked");
        entry
    }
}
