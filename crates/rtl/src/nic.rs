//! What sends by a NIC: writes become operations at the ports of `rtl/nic_controller.sv`, and what it writes on its bus goes to the card's
//! memory, or is a write to the tail of the NIC's ring.

use crate::model::nic_controller::{self, In, Out};
use crate::model::{self, BLOCK_SIZE, BLOCKS, Model, NIC_BIND, NIC_CONNECTIONS, NIC_ENTRIES, NIC_PENDING};
use core::ops::Range;
use dcs_abi::status::Status;
use dcs_drivers::bus::Bus;
use dcs_drivers::network::{Request, Sender, SenderEvent, Sizes, Template, Write};
use dcs_drivers::nic;
use dcs_engine::{Failure, Nanos};
use std::collections::VecDeque;

/// Bytes of a beat on its bus, and of a descriptor.
const BEAT: usize = 16;
/// Descriptors of a frame: of the last one the done bit is looked at.
const FRAME: u64 = 3;
/// Byte of a descriptor that has the done bit.
const DONE: usize = 12;
/// Cycles without a sign of life after which nothing happens by itself: by then it has looked at all operations, and at its ring.
const CALM: u32 = 64;
/// Cycles in which everything that one call leads to is done.
const MOST: u32 = 1_000_000;

/// The send path of a NIC in SystemVerilog.
pub struct NicSender {
    model: Model<In, Out>,
    input: In,
    /// Its outputs in the last cycle.
    out: Out,
    layout: model::NicLayout,
    /// Addresses of the card's memory on the bus begin here.
    base: u64,
    /// What its bus answers in this cycle.
    answer: model::BusResponse,
    /// Where the burst under way goes.
    at: u64,
    /// Frames that the NIC has, the oldest first: when it was given each, and of which write it is.
    given: VecDeque<(Nanos, usize)>,
    /// Write of the frame that is being made.
    made: usize,
    /// Last descriptor of the oldest one.
    oldest: u64,
    /// Bytes of the writes that it has, by their addresses.
    writes: [Range<u64>; NIC_PENDING as usize],
    events: VecDeque<SenderEvent>,
    sent: u64,
    done: u64,
    is_stirred: bool,
    now: Nanos,
    cycles: u64,
}

impl core::fmt::Debug for NicSender {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let writes = self.writes.iter().filter(|bytes| !bytes.is_empty()).count();
        let frames = self.given.len();
        write!(f, "NicSender after {} cycles, with {writes} writes, {frames} frames at the NIC", self.cycles)
    }
}

impl NicSender {
    /// Makes one for a NIC of this model, after a reset. Its sizes are those of `rtl/tools/body.py`.
    pub fn new(model: nic::Model) -> NicSender {
        let functions = &nic_controller::MODELS[usize::from(model == nic::Model::Igb)];
        let mut sender = NicSender {
            model: Model::new(functions),
            input: In { outcome_ready_i: true, ..In::default() },
            out: Out::default(),
            layout: Default::default(),
            base: 0,
            answer: Default::default(),
            at: 0,
            given: VecDeque::new(),
            made: 0,
            oldest: 0,
            writes: Default::default(),
            events: VecDeque::new(),
            sent: 0,
            done: 0,
            is_stirred: false,
            now: 0,
            cycles: 0,
        };
        (0..3).for_each(|_| sender.edge());
        sender.input.rst_ni = true;
        (0..CALM).for_each(|_| sender.edge());
        // A command for each connection.
        for at in 0..NIC_CONNECTIONS {
            let bind =
                model::NicRequest { kind: NIC_BIND, connection: at, command: at, ..Default::default() };
            sender.input.request_i = bind.pack();
            sender.input.request_valid_i = true;
            while !sender.out.request_ready_o {
                sender.edge();
            }
            sender.input.request_valid_i = false;
            sender.edge();
        }
        sender
    }

    /// Cycles of the clock so far.
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    // ---- The clock ----

    /// Clocks until nothing goes on any more.
    fn run(&mut self, bus: &mut dyn Bus) {
        self.is_stirred = false;
        let (mut calm, mut cycles) = (0, 0);
        while calm < CALM && !(calm > 0 && self.out.idle_o) {
            let moves = self.clock(bus);
            calm = if moves || self.out.outcome_valid_o { 0 } else { calm + 1 };
            cycles += 1;
            assert!(cycles < MOST, "the send path runs in circles: {self:?}");
        }
    }

    /// Clocks until this is so.
    fn until(&mut self, bus: &mut dyn Bus, is_so: fn(&Out) -> bool) {
        for _ in 0..MOST {
            self.clock(bus);
            if is_so(&self.out) {
                return;
            }
        }
        unreachable!("the send path does not answer: {self:?}")
    }

    /// A cycle, in which its bus takes what it writes, and answers in the next one. Returns true if anything is moved: a look at a frame that
    /// the NIC has not sent is no move.
    fn clock(&mut self, bus: &mut dyn Bus) -> bool {
        self.edge();
        let asked = model::BusRequest::unpack(self.out.bus_o);
        let mut moves = asked.aw_valid == 1 || asked.w_valid == 1;
        let mut answer = model::BusResponse { aw_ready: 1, w_ready: 1, ar_ready: 1, ..Default::default() };
        if asked.aw_valid == 1 {
            self.at = asked.aw_addr;
        }
        if asked.w_valid == 1 {
            self.write_beat(bus, &asked);
            answer.b_valid = asked.w_last;
        }
        if asked.ar_valid == 1 {
            let mut beat = [0; BEAT];
            bus.load(asked.ar_addr - self.base, &mut beat);
            let data = u128::from_le_bytes(beat);
            (answer.r_data_0, answer.r_data_1) = (data as u64, (data >> 64) as u64);
            (answer.r_valid, answer.r_last) = (1, 1);
            if beat[DONE] & 1 == 1 {
                let sent = self.given.pop_front();
                self.events.extend(sent.map(|(_, write)| SenderEvent::Sent(write)));
                self.oldest = (self.oldest + FRAME) % NIC_ENTRIES;
                self.done += 1;
                moves = true;
            }
        }
        if self.answer != answer {
            self.answer = answer;
            self.input.bus_i = answer.pack();
        }
        moves
    }

    /// A cycle: what it tells before the edge is taken then.
    fn edge(&mut self) {
        self.out = self.model.settle(&self.input);
        self.model.edge();
        self.cycles += 1;
        if self.out.outcome_valid_o {
            let outcome = model::Outcome::unpack(self.out.outcome_o);
            let number = model::OperationId::unpack(outcome.id).serial as usize;
            let result = match outcome.kind {
                model::FAILED => Err(Failure::new(Status::from_code(outcome.status as u16))),
                _ => Ok(()),
            };
            self.writes[number] = Range::default();
            self.events.push_back(SenderEvent::Ended(number, result));
        }
    }

    /// Takes a beat of what it writes: headers and descriptors to memory, the tail to the NIC.
    fn write_beat(&mut self, bus: &mut dyn Bus, asked: &model::BusRequest) {
        let data = u128::from(asked.w_data_0) | u128::from(asked.w_data_1) << 64;
        let from = asked.w_strb.trailing_zeros() as usize;
        let to = (u64::BITS - asked.w_strb.leading_zeros()) as usize;
        let address = self.at - self.at % BEAT as u64 + from as u64;
        let bytes = &data.to_le_bytes()[from..to];
        if address == self.layout.tail {
            bus.write(address, bytes);
            self.given.push_back((self.now, self.made));
            self.events.push_back(SenderEvent::Given(self.made));
            self.sent += 1;
        } else {
            bus.store(address - self.base, bytes);
            if address.wrapping_sub(self.layout.ring) < NIC_ENTRIES * BEAT as u64 {
                // The last descriptor of a frame names bytes of a write.
                let named = self.writes.iter().position(|bytes| bytes.contains(&asked.w_data_0));
                self.made = named.unwrap_or(self.made);
            }
        }
        self.at += BEAT as u64;
    }

    // ---- Its ports ----

    fn ask(&mut self, bus: &mut dyn Bus, asked: &model::NicRequest) {
        self.input.request_i = asked.pack();
        self.input.request_valid_i = true;
        self.until(bus, |out| out.request_ready_o);
        self.input.request_valid_i = false;
        self.is_stirred = true;
    }

    /// Returns true if the NIC has sent the oldest frame that it has.
    fn has_sent(&self, bus: &dyn Bus) -> bool {
        let mut byte = [0];
        if !self.given.is_empty() {
            bus.load(self.layout.ring - self.base + self.oldest * BEAT as u64 + DONE as u64, &mut byte);
        }
        byte[0] & 1 == 1
    }
}

impl Sender for NicSender {
    fn sizes(&self) -> Sizes {
        Sizes {
            entries: NIC_ENTRIES as u16,
            connections: NIC_CONNECTIONS as usize,
            writes: NIC_PENDING as usize,
            blocks: BLOCKS,
            block_size: BLOCK_SIZE,
        }
    }

    fn place(&mut self, bus: &dyn Bus, ring: &nic::LentRing, blocks: u64) {
        self.base = bus.window().address;
        self.layout = model::NicLayout {
            blocks: self.base + blocks,
            headers: self.base + ring.headers,
            ring: self.base + ring.descriptors,
            tail: ring.tail,
        };
        self.input.place_i = self.layout.pack();
    }

    fn request(&mut self, bus: &mut dyn Bus, now: Nanos, request: &Request) {
        self.now = now;
        let to =
            |connection: usize| model::NicRequest { connection: connection as u64, ..Default::default() };
        let asked = match *request {
            Request::Open(connection, template) => opened(to(connection), &template),
            Request::Acknowledged { connection, number, limit } => model::NicRequest {
                kind: model::NIC_ACKNOWLEDGED,
                first: number.into(),
                second: limit.into(),
                ..to(connection)
            },
            Request::Advertise { connection, number, window } => model::NicRequest {
                kind: model::NIC_ADVERTISE,
                first: number.into(),
                second: window.into(),
                ..to(connection)
            },
            Request::Resend { connection, number, length } => model::NicRequest {
                kind: model::NIC_RESEND,
                first: number.into(),
                second: length.into(),
                ..to(connection)
            },
            Request::Fail(connection, status) => {
                model::NicRequest { kind: model::NIC_FAIL, first: u64::from(status.code()), ..to(connection) }
            }
            Request::WillStop => model::NicRequest { kind: model::NIC_WILL_STOP, ..to(0) },
            Request::WasStopped(status) => {
                self.given.clear();
                self.oldest = FRAME - 1;
                let first = u64::from(status.code());
                model::NicRequest { kind: model::NIC_WAS_STOPPED, first, ..to(0) }
            }
        };
        self.ask(bus, &asked);
    }

    fn write(&mut self, bus: &mut dyn Bus, now: Nanos, write: &Write) {
        self.now = now;
        let place = self.base + write.piece.offset - self.layout.blocks;
        let id = model::OperationId {
            serial: write.number as u64,
            row: place / BLOCK_SIZE,
            command: write.connection as u64,
            ..Default::default()
        };
        let operation = model::Operation {
            kind: model::DO_WRITE,
            id: id.pack(),
            start: place % BLOCK_SIZE,
            length: write.piece.length.into(),
            ..Default::default()
        };
        let first = self.layout.blocks + place;
        self.writes[write.number] = first..first + u64::from(write.piece.length);
        self.input.operation_i = operation.pack();
        self.input.operation_valid_i = true;
        self.until(bus, |out| out.operation_ready_o);
        self.input.operation_valid_i = false;
        self.is_stirred = true;
    }

    fn poll(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.now = now;
        if self.is_stirred || self.has_sent(bus) {
            self.run(bus);
        }
    }

    fn next_event(&mut self) -> Option<SenderEvent> {
        self.events.pop_front()
    }

    fn oldest(&self) -> Option<Nanos> {
        self.given.front().map(|(since, _)| *since)
    }

    fn frames(&self) -> (u64, u64) {
        (self.sent, self.done)
    }
}

/// Completes the request to open a connection.
fn opened(request: model::NicRequest, template: &Template) -> model::NicRequest {
    // Byte 0 is in the lowest bits.
    let wire = |bytes: &[u8]| bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    let number = template.number.into();
    model::NicRequest {
        kind: model::NIC_OPEN,
        opened_tcp: template.tcp.into(),
        opened_mac_destination: wire(&template.macs[..6]),
        opened_mac_source: wire(&template.macs[6..]),
        opened_source: wire(&template.addresses[..4]),
        opened_destination: wire(&template.addresses[4..]),
        opened_source_port: wire(&template.ports[..2]),
        opened_destination_port: wire(&template.ports[2..]),
        opened_service: template.service.into(),
        opened_ttl: template.hops.into(),
        opened_most: template.most.into(),
        opened_identification: template.identification.into(),
        opened_next: number,
        opened_sent: number,
        opened_acknowledged: number,
        opened_limit: number,
        opened_acknowledges: template.acknowledges.into(),
        opened_window: template.window.into(),
        ..request
    }
}
