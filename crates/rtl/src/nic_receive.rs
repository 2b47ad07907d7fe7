//! What receives by a NIC: `rtl/nic_receive.sv`, which has the receive ring and its buffers. What it writes on its bus goes to the card's
//! memory, or is a write to the tail of the NIC's ring; what it reads comes from the card's memory.

use crate::model::nic_receive::{self, In, Out};
use crate::model::{
    self, Model, NIC_ASSIGN, NIC_BUFFERS, NIC_CONNECTIONS, NIC_LISTEN, NIC_MOST_KEPT, NIC_RING_STOPPED,
    NIC_RING_STOPS,
};
use dcs_drivers::bus::Bus;
use dcs_drivers::network::{Kept, Peer, Receiver, ReceiverEvent};
use dcs_drivers::nic::LentReceive;
use std::collections::VecDeque;

/// Bytes of a beat on its bus, and of a descriptor.
const BEAT: u64 = 16;
/// Byte of a descriptor that has the done bit.
const DONE: u64 = 8;
/// Bytes of a block, within which a read is.
const PAGE: u64 = 4096;
/// Cycles without a sign of life after which nothing happens by itself: it looks at its ring every 16.
const CALM: u32 = 48;
/// Cycles in which it has told of a frame that the NIC has written.
const TOLD: u32 = 256;
/// Cycles in which everything that one call leads to is done.
const MOST: u32 = 1_000_000;

/// The receive path of a NIC in SystemVerilog.
pub struct NicReceiver {
    model: Model<In, Out>,
    input: In,
    /// Its outputs in the last cycle.
    out: Out,
    layout: model::NicReceiveLayout,
    /// Addresses of the card's memory on the bus begin here.
    base: u64,
    /// Where the bursts under way are: the write, and the read with the beats that are left of it.
    write_at: u64,
    read_at: u64,
    read_left: u64,
    /// Set while it was not told that a write is done.
    is_written: bool,
    told: VecDeque<ReceiverEvent>,
    /// The outcome of a read that has ended: bytes, if it succeeded.
    outcome: Option<Option<u64>>,
    /// Position of the next frame in the ring, and the tail that the NIC knows.
    head: u64,
    tail: u64,
    is_on: bool,
    cycles: u64,
}

impl core::fmt::Debug for NicReceiver {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "NicReceiver after {} cycles, with its ring from {} to {}",
            self.cycles, self.head, self.tail
        )
    }
}

impl Default for NicReceiver {
    fn default() -> NicReceiver {
        NicReceiver::new()
    }
}

impl NicReceiver {
    /// Makes one, after a reset. Its sizes are those of `rtl/tools/body.py`.
    pub fn new() -> NicReceiver {
        let mut receiver = NicReceiver {
            model: Model::new(&nic_receive::MODELS[0]),
            input: In { outcome_ready_i: true, event_ready_i: true, ..In::default() },
            out: Out::default(),
            layout: Default::default(),
            base: 0,
            write_at: 0,
            read_at: 0,
            read_left: 0,
            is_written: false,
            told: VecDeque::new(),
            outcome: None,
            head: 0,
            tail: 0,
            is_on: false,
            cycles: 0,
        };
        (0..3).for_each(|_| receiver.edge());
        receiver.input.rst_ni = true;
        // It has no ring yet, and so nothing to do on its bus.
        receiver.offer(&model::NicReceiveRequest { kind: NIC_RING_STOPS, ..Default::default() });
        // A command for each connection.
        for at in 0..NIC_CONNECTIONS {
            let (kind, connection, command) = (NIC_ASSIGN, at, at);
            receiver.offer(&model::NicReceiveRequest { kind, connection, command, ..Default::default() });
        }
        receiver
    }

    /// Cycles of the clock so far.
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    /// Offers a request until it is taken, with nothing on its bus.
    fn offer(&mut self, asked: &model::NicReceiveRequest) {
        self.input.request_i = asked.pack();
        self.input.request_valid_i = true;
        while !self.out.request_ready_o {
            self.edge();
        }
        self.input.request_valid_i = false;
        self.edge();
    }

    // ---- The clock ----

    /// Clocks until nothing goes on any more.
    fn run(&mut self, bus: &mut dyn Bus) {
        let (mut calm, mut cycles) = (0, 0);
        while calm < CALM {
            calm = if self.clock(bus) { 0 } else { calm + 1 };
            cycles += 1;
            assert!(cycles < MOST, "the receive path runs in circles: {self:?}");
        }
    }

    /// Clocks until this is so.
    fn until(&mut self, bus: &mut dyn Bus, is_so: fn(&NicReceiver) -> bool) {
        for _ in 0..MOST {
            self.clock(bus);
            if is_so(self) {
                return;
            }
        }
        unreachable!("the receive path does not answer: {self:?}")
    }

    /// A cycle, in which its bus takes what it writes and asks for, and answers in the next ones. Returns true if it writes anything.
    fn clock(&mut self, bus: &mut dyn Bus) -> bool {
        let (is_read, is_written) = (self.read_left > 0, self.is_written);
        self.edge();
        let asked = model::BusRequest::unpack(self.out.bus_o);
        if is_read && asked.r_ready == 1 {
            self.read_at += BEAT;
            self.read_left -= 1;
        }
        self.is_written = is_written && asked.b_ready == 0;
        if asked.aw_valid == 1 {
            self.write_at = asked.aw_addr - asked.aw_addr % BEAT;
        }
        if asked.w_valid == 1 {
            self.write_beat(bus, &asked);
            self.is_written |= asked.w_last == 1;
        }
        if asked.ar_valid == 1 {
            self.read_at = asked.ar_addr - asked.ar_addr % BEAT;
            self.read_left = asked.ar_len + 1;
        }
        let mut answer = model::BusResponse { aw_ready: 1, w_ready: 1, ar_ready: 1, ..Default::default() };
        answer.b_valid = self.is_written.into();
        if self.read_left > 0 {
            let mut beat = [0; BEAT as usize];
            bus.load(self.read_at - self.base, &mut beat);
            let data = u128::from_le_bytes(beat);
            (answer.r_data_0, answer.r_data_1) = (data as u64, (data >> 64) as u64);
            (answer.r_valid, answer.r_last) = (1, (self.read_left == 1).into());
        }
        self.input.bus_i = answer.pack();
        asked.w_valid == 1
    }

    /// A cycle: what it tells before the edge is taken then.
    fn edge(&mut self) {
        self.out = self.model.settle(&self.input);
        self.model.edge();
        self.cycles += 1;
        if self.out.event_valid_o {
            self.head = (self.head + 1) % NIC_BUFFERS;
            self.told.push_back(told(&model::NicReceived::unpack(self.out.event_o)));
        }
        if self.out.outcome_valid_o {
            let outcome = model::Outcome::unpack(self.out.outcome_o);
            self.outcome = Some((outcome.kind == model::MOVED).then_some(outcome.bytes));
        }
    }

    /// Takes a beat of what it writes: descriptors and payload to memory, the tail to the NIC.
    fn write_beat(&mut self, bus: &mut dyn Bus, asked: &model::BusRequest) {
        let data = u128::from(asked.w_data_0) | u128::from(asked.w_data_1) << 64;
        let from = asked.w_strb.trailing_zeros() as usize;
        let to = (u64::BITS - asked.w_strb.leading_zeros()) as usize;
        let (address, bytes) = (self.write_at + from as u64, &data.to_le_bytes()[from..to]);
        if address == self.layout.tail {
            bus.write(address, bytes);
            self.tail = asked.w_data_0 % NIC_BUFFERS;
        } else {
            bus.store(address - self.base, bytes);
        }
        self.write_at += BEAT;
    }

    // ---- Its ports ----

    fn ask(&mut self, bus: &mut dyn Bus, asked: &model::NicReceiveRequest) {
        self.offer_on(bus, asked);
        self.run(bus);
    }

    /// Offers a request until it is taken.
    fn offer_on(&mut self, bus: &mut dyn Bus, asked: &model::NicReceiveRequest) {
        self.input.request_i = asked.pack();
        self.input.request_valid_i = true;
        self.until(bus, |receiver| receiver.out.request_ready_o);
        self.input.request_valid_i = false;
    }

    /// Returns true if the NIC has written the next frame.
    fn has_come(&self, bus: &dyn Bus) -> bool {
        let mut byte = [0];
        if self.is_on && self.head != self.tail {
            bus.load(self.layout.ring - self.base + self.head * BEAT + DONE, &mut byte);
        }
        byte[0] & 1 == 1
    }
}

impl Receiver for NicReceiver {
    fn entries(&self) -> u16 {
        NIC_BUFFERS as u16
    }

    fn keeps(&self) -> u16 {
        NIC_MOST_KEPT as u16
    }

    fn connections(&self) -> usize {
        NIC_CONNECTIONS as usize
    }

    fn start(&mut self, bus: &mut dyn Bus, ring: &LentReceive) {
        self.base = bus.window().address;
        self.layout = model::NicReceiveLayout {
            blocks: self.base,
            buffers: self.base + ring.buffers,
            ring: self.base + ring.descriptors,
            tail: ring.tail,
        };
        self.input.place_i = self.layout.pack();
        (self.head, self.tail, self.is_on) = (0, 0, true);
        self.ask(bus, &model::NicReceiveRequest { kind: NIC_RING_STOPPED, ..Default::default() });
    }

    fn stop(&mut self, bus: &mut dyn Bus) {
        self.ask(bus, &model::NicReceiveRequest { kind: NIC_RING_STOPS, ..Default::default() });
        self.is_on = false;
    }

    fn listen(&mut self, bus: &mut dyn Bus, connection: usize, to: Option<&Peer>) {
        let asked = model::NicReceiveRequest {
            kind: NIC_LISTEN,
            connection: connection as u64,
            ..Default::default()
        };
        // No frame has addresses that are zero.
        let asked = to.map_or(asked, |peer| heard(asked, peer));
        self.offer_on(bus, &asked);
        // Whatever it has kept of the earlier one until then is dropped.
        self.told.retain(|told| told.kept.is_none_or(|kept| kept.connection != connection));
        self.run(bus);
    }

    fn receive(&mut self, bus: &mut dyn Bus) -> Option<ReceiverEvent> {
        if self.has_come(bus) {
            // A NIC that takes a done bit back is not waited for.
            let mut cycles = 0;
            while self.told.is_empty() && cycles < TOLD {
                self.clock(bus);
                cycles += 1;
            }
        }
        self.told.pop_front()
    }

    fn give_back(&mut self, bus: &mut dyn Bus, buffer: u16) {
        self.input.return_i = buffer.into();
        self.input.return_valid_i = true;
        self.until(bus, |receiver| receiver.out.return_ready_o);
        self.input.return_valid_i = false;
        self.run(bus);
    }

    fn gather(&mut self, bus: &mut dyn Bus, connection: usize, memory: u64, length: u32) -> bool {
        // Only of a read: the first row's place is that of the block.
        self.layout.blocks = self.base + memory - memory % PAGE;
        self.input.place_i = self.layout.pack();
        let id = model::OperationId { command: connection as u64, ..Default::default() };
        let operation = model::Operation {
            kind: model::DO_READ,
            id: id.pack(),
            start: memory % PAGE,
            length: length.into(),
            ..Default::default()
        };
        self.outcome = None;
        self.input.operation_i = operation.pack();
        self.input.operation_valid_i = true;
        self.until(bus, |receiver| receiver.out.operation_ready_o);
        self.input.operation_valid_i = false;
        self.until(bus, |receiver| receiver.outcome.is_some());
        let is_moved = self.outcome.flatten() == Some(length.into());
        self.run(bus);
        is_moved
    }

    fn ring(&self) -> (u16, u16) {
        (self.head as u16, self.tail as u16)
    }
}

fn told(event: &model::NicReceived) -> ReceiverEvent {
    let kept = (event.kept == 1).then_some(Kept {
        connection: event.connection as usize,
        acknowledges: event.acknowledges as u32,
        window: event.window as u16,
        next: event.next as u32,
    });
    ReceiverEvent { buffer: event.place as u16, length: event.length as u32, kept }
}

/// Completes the request to listen to a connection.
fn heard(request: model::NicReceiveRequest, peer: &Peer) -> model::NicReceiveRequest {
    // Byte 0 is in the lowest bits.
    let wire = |bytes: &[u8]| bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    model::NicReceiveRequest {
        opened_tcp: 1,
        opened_mac_source: wire(&peer.mac),
        opened_source: wire(&peer.local.ip().octets()),
        opened_destination: wire(&peer.remote.ip().octets()),
        opened_source_port: wire(&peer.local.port().to_be_bytes()),
        opened_destination_port: wire(&peer.remote.port().to_be_bytes()),
        opened_next: peer.next.into(),
        ..request
    }
}
