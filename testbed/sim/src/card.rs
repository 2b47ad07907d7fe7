//! The card, and the host's side of it: queues in host memory, as in the library. [`crate::design`] charges the library's costs.

use crate::failed::Failed;
use crate::server::{Build, HOST_MEMORY, PORT, Server, address};
use dcs_abi::admin::{AdminCompletion, AdminCompletionPacket, AdminEntry, GRANT_READ, GRANT_WRITE, opcode};
use dcs_abi::descriptor::{Builder, Endpoint, EndpointKind, EndpointRole, Extent};
use dcs_abi::entry::{CompletionEntry, OPCODE_TRANSFER, SubmissionEntry};
use dcs_abi::operator::{OPERATORS, Operator};
use dcs_abi::register::{cq_head_doorbell, sq_tail_doorbell};
use dcs_abi::result::{ResultArea, ResultPacket};
use dcs_abi::status::Status;
use dcs_card::card::{Card, Config};
use dcs_card::costs::Costs;
use dcs_drivers::bus::{Bus, Region};
use dcs_engine::Nanos;
use dcs_fabric::{Event, Fabric, FunctionId, HOST};
use dcs_vfio_user::pci::Registers;
use std::collections::HashMap;

/// Entries of each queue.
const DEPTH: u16 = 512;
/// Bytes reserved for a descriptor.
const DESCRIPTOR: u64 = 1024;
/// Bytes reserved for a result.
const RESULT: u64 = 2048;
/// Bytes of the card's own memory.
const OWN: u64 = 64 << 20;

#[derive(Debug, Default)]
struct Ring {
    tail: u16,
    head: u16,
    turned: bool,
}

/// An end of a transfer.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// Bytes of a set's SSD.
    Ssd(usize, u64),
    /// A connection, by its handle.
    Flow(u32),
}

/// The card and its driver.
pub struct CardHost {
    card: Card,
    /// Function of the card.
    pub id: FunctionId,
    /// True if it has raised an interrupt.
    pub news: bool,
    /// True if it was written to since it was polled.
    stirred: bool,
    bar0: u64,
    places: [u64; 6],
    admin: Ring,
    commands: Ring,
    next_cid: u16,
    seen: HashMap<u16, CompletionEntry>,
    ssds: Vec<u32>,
    listeners: Vec<u32>,
}

impl CardHost {
    /// Plugs in a card.
    pub fn new(build: &Build, fabric: &mut Fabric, memory: &mut Region) -> CardHost {
        let id = fabric.add_endpoint("card", build.card_link, &[0x4000, OWN]);
        fabric.set_bus_master(id, true);
        let units = build.parameters.units * build.sets as u16;
        let engine = dcs_engine::Config {
            blocks: 128 * build.sets as u32,
            cached_blocks: 128 * build.sets as u32,
            commands: 256,
            units: OPERATORS.iter().map(|info| (info.operator, units)).collect(),
            ..Config::default().engine
        };
        let config = Config {
            engine,
            ssds: build.sets,
            nics: build.sets,
            key: [7; 16],
            costs: Costs::FPGA,
            ..Config::default()
        };
        let card = Card::new(config, &fabric.port(id), None).expect("the sizes are sound");
        let bar0 = fabric.bar(id, 0).address;
        let length = [64, 16, 64, 16, DESCRIPTOR, RESULT];
        let places = length.map(|length| {
            memory.take(u64::from(DEPTH) * length, 4096).expect("host memory is large").offset()
        });
        CardHost {
            card,
            id,
            news: false,
            stirred: true,
            bar0,
            places,
            admin: Ring::default(),
            commands: Ring::default(),
            next_cid: 0,
            seen: HashMap::new(),
            ssds: Vec::new(),
            listeners: Vec::new(),
        }
    }

    /// Returns the time of the card's next own action, if any.
    pub fn deadline(&self) -> Option<Nanos> {
        self.card.deadline()
    }

    /// Runs the card as far as possible. `shows`: the host may read its registers.
    pub fn poll(&mut self, fabric: &mut Fabric, now: Nanos, shows: bool) {
        if !self.stirred && self.card.deadline().is_none_or(|at| at > now) {
            return;
        }
        self.stirred = false;
        let mut port = fabric.port(self.id);
        while self.card.poll(&mut port, now) {}
        if shows {
            let registers = self.card.registers().lock().clone();
            for offset in [0, 0xf00] {
                let mut bytes = [0; 0x40];
                registers.read(offset, &mut bytes);
                port.store_bar(0, offset, &bytes);
            }
        }
    }

    /// Handles an event at the card.
    pub fn take(&mut self, fabric: &mut Fabric, now: Nanos, event: Event) {
        match event {
            Event::Read { function, done } if function == self.id => {
                self.card.read_done(&mut fabric.port(function), now, done);
                self.stirred = true;
            }
            Event::Written { function, bar: 0, offset, bytes, .. } if function == self.id => {
                self.card.registers().write(offset, &bytes);
                self.stirred = true;
            }
            // Completions and descriptors are short; data need no handling.
            Event::Written { bytes, .. } => self.stirred |= bytes.len() <= 16,
            _ => {}
        }
    }

    fn write_register(&self, fabric: &mut Fabric, offset: u64, value: u32) {
        fabric.port(HOST).write(self.bar0 + offset, &value.to_le_bytes());
    }

    /// Starts the card and attaches all devices.
    pub fn boot(server: &mut Server) {
        let Server { fabric, card: Some(card), .. } = server else { return };
        let depth = u32::from(DEPTH - 1);
        card.write_register(fabric, 0x24, depth | depth << 16);
        for (offset, place) in [(0x28, card.places[0]), (0x30, card.places[1])] {
            fabric.port(HOST).write(card.bar0 + offset, &place.to_le_bytes());
        }
        card.write_register(fabric, 0x14, 0x0046_0001);
        server.step_until(|server| {
            let Server { fabric, card: Some(card), .. } = server else { return false };
            let mut bytes = [0; 4];
            fabric.port(card.id).load_bar(0, 0x1c, &mut bytes);
            u32::from_le_bytes(bytes) & 3 == 1
        });
        let grant = [HOST_MEMORY as u32, (HOST_MEMORY >> 32) as u32, GRANT_READ | GRANT_WRITE, 0, 0, 0];
        command(server, opcode::GRANT_MEMORY, 0, grant);
        let [.., sq, cq, _, _] = server.card.as_ref().map(|card| card.places).unwrap_or_default();
        let size = 1 | depth << 16;
        command(server, opcode::CREATE_CQ, cq, [size, 3 | 1 << 16, 0, 0, 0, 0]);
        command(server, opcode::CREATE_SQ, sq, [size, 1 | 1 << 16, 0, 0, 0, 0]);
        for at in 0..server.sets.len() {
            let bar = server.fabric.bar(server.sets[at].ssd, 0);
            let ssd = command(server, opcode::ATTACH_SSD, bar.address, [bar.length as u32, 0, 0, 0, 0, 0]);
            let bar = server.fabric.bar(server.sets[at].nic, 0);
            let words = [bar.length as u32, 0x10c9, address(at).ip.to_bits(), 24 | 1500 << 16, 0, 0];
            let nic = command(server, opcode::ATTACH_NIC, bar.address, words);
            let listener = command(server, opcode::LISTEN, 0, [nic, PORT.into(), 0, 0, 0, 0]);
            let card = server.card.as_mut().expect("it was there");
            card.ssds.push(ssd);
            card.listeners.push(listener);
        }
    }

    /// Requests the next incoming connection on a set's NIC. [`CardHost::answer`] returns its handle.
    pub fn accept(server: &mut Server, set: usize) {
        let listener = server.card.as_ref().map_or(0, |card| card.listeners[set]);
        ask(server, opcode::ACCEPT, 0, [listener, 0, 0, 0, 0, 0]);
    }

    /// Submits a transfer with one doorbell, and returns its identifier.
    pub fn submit(
        &mut self,
        fabric: &mut Fabric,
        (source, destination): (End, End),
        length: u64,
        operator: Option<(Operator, &[u8])>,
    ) -> u16 {
        self.next_cid = (self.next_cid + 1) % DEPTH;
        let cid = self.next_cid;
        let [.., sq, _, descriptors, results] = self.places;
        let (at, result) = (descriptors + u64::from(cid) * DESCRIPTOR, results + u64::from(cid) * RESULT);
        let descriptor = self.descriptor(source, destination, length, operator);
        let mut op_chain = [0; 8];
        op_chain[0] = operator.map_or(0, |(operator, _)| operator as u8);
        let entry = SubmissionEntry {
            opcode: OPCODE_TRANSFER,
            cid,
            descriptor_length: descriptor.len() as u32,
            descriptor_address: at,
            result_address: result,
            op_chain,
            length,
            ..Default::default()
        };
        let mut port = fabric.port(HOST);
        port.store(at, &descriptor);
        port.store(sq + u64::from(self.commands.tail) * 64, &entry.to_bytes());
        self.commands.tail = (self.commands.tail + 1) % DEPTH;
        self.write_register(fabric, sq_tail_doorbell(1) as u64, self.commands.tail.into());
        cid
    }

    fn descriptor(
        &self,
        source: End,
        destination: End,
        length: u64,
        operator: Option<(Operator, &[u8])>,
    ) -> Vec<u8> {
        let mut bytes = vec![0; DESCRIPTOR as usize];
        let mut builder = Builder::new(&mut bytes).expect("a header fits");
        for (role, end) in [(EndpointRole::Source, source), (EndpointRole::Destination, destination)] {
            let room = length.next_multiple_of(512);
            let (kind, handle, extents) = match end {
                End::Ssd(set, position) => {
                    let length = if role == EndpointRole::Source { length } else { room };
                    (EndpointKind::Block, self.ssds[set], vec![Extent { offset: position, length }])
                }
                End::Flow(handle) => (EndpointKind::Flow, handle, Vec::new()),
            };
            let endpoint = Endpoint { kind: kind as u8, handle, ..Default::default() };
            builder.endpoint(role, endpoint, &extents).expect("they fit");
        }
        if let Some((_, parameter)) = operator {
            builder.parameter(0, parameter).expect("it fits");
        }
        let length = builder.finish();
        bytes.truncate(length);
        bytes
    }

    /// Polls the completion queue.
    pub fn reap(&mut self, fabric: &mut Fabric) {
        self.news = false;
        let before = self.commands.head;
        loop {
            let mut bytes = [0; 16];
            fabric.port(HOST).load(self.places[3] + u64::from(self.commands.head) * 16, &mut bytes);
            let Ok(Some(entry)) = CompletionEntry::if_new(&bytes, !self.commands.turned) else { break };
            self.commands.head = (self.commands.head + 1) % DEPTH;
            self.commands.turned ^= self.commands.head == 0;
            self.seen.insert(entry.cid, entry);
        }
        if self.commands.head != before {
            self.write_register(fabric, cq_head_doorbell(1) as u64, self.commands.head.into());
        }
    }

    /// Returns true if a transfer has ended. [`CardHost::finish`] returns its outcome.
    pub fn is_done(&self, cid: u16) -> bool {
        self.seen.contains_key(&cid)
    }

    /// Returns the outcome of a transfer; for a failed one, also the bytes that its destination has taken.
    ///
    /// # Panics
    ///
    /// If it did not end.
    pub fn finish(&mut self, fabric: &mut Fabric, cid: u16) -> Result<ResultArea, (Failed, u64)> {
        let entry = self.seen.remove(&cid).expect("it has ended");
        if entry.status() != Status::Success {
            let failed = Failed::Card { status: entry.status(), stage: entry.stage() };
            return Err((failed, entry.delivered.value()));
        }
        let mut bytes = vec![0; ResultArea::SIZE];
        fabric.port(HOST).load(self.places[5] + u64::from(cid) * RESULT, &mut bytes);
        let packet = ResultPacket::new_checked(&bytes[..]).expect("as many bytes as there are");
        Ok(ResultArea::parse(&packet).expect("no reserved bytes"))
    }

    /// Returns the answer to the last admin command, once it is there.
    ///
    /// # Panics
    ///
    /// If it failed.
    pub fn answer(server: &mut Server) -> Option<u32> {
        let Server { fabric, card: Some(card), .. } = server else { panic!("there is a card") };
        let mut bytes = [0; 16];
        fabric.port(HOST).load(card.places[1] + u64::from(card.admin.head) * 16, &mut bytes);
        let packet = AdminCompletionPacket::new_checked(&bytes[..]).expect("16 bytes");
        let found = AdminCompletion::parse(&packet).expect("no reserved bytes");
        if (found.status & 1 == 1) == card.admin.turned {
            return None;
        }
        assert_eq!(Status::from_code(found.status >> 1), Status::Success, "an admin command");
        card.admin.head = (card.admin.head + 1) % DEPTH;
        card.admin.turned ^= card.admin.head == 0;
        card.write_register(fabric, cq_head_doorbell(0) as u64, card.admin.head.into());
        Some(found.value)
    }
}

/// Issues an admin command.
fn ask(server: &mut Server, opcode: u8, data_address: u64, words: [u32; 6]) {
    let Server { fabric, card: Some(card), .. } = server else { panic!("there is a card") };
    let entry = AdminEntry { opcode, cid: card.admin.tail, data_address, words };
    fabric.port(HOST).store(card.places[0] + u64::from(card.admin.tail) * 64, &entry.to_bytes());
    card.admin.tail = (card.admin.tail + 1) % DEPTH;
    card.write_register(fabric, sq_tail_doorbell(0) as u64, card.admin.tail.into());
}

/// Runs an admin command and waits for it.
fn command(server: &mut Server, opcode: u8, data_address: u64, words: [u32; 6]) -> u32 {
    ask(server, opcode, data_address, words);
    let mut found = None;
    server.step_until(|server| {
        found = found.or_else(|| CardHost::answer(server));
        found.is_some()
    });
    found.expect("it was answered")
}
