//! Target of `dcs-card` as a guest sees it: registers, queues, memory, devices, a wire; and a malicious guest.
//!
//! The input decides the guest's actions: half of them are plausible with some errors, so that they reach deep; the rest are
//! rubbish. The promises are checked all the time: the card never panics or runs endlessly, and touches only what it was
//! permitted to ([`oracle`]). At the end, a reset restores everything: the SSD's bytes arrive with the right digest, and a
//! connection carries data.

mod oracle;
#[path = "../../../crates/card/tests/fabric/peer.rs"]
#[allow(dead_code, reason = "the tests of the fabric use all of it")]
mod peer;
mod rig;

use dcs_abi::admin::{ADMIN_OPCODES, AdminEntry, GRANT_READ, GRANT_WRITE, opcode};
use dcs_abi::descriptor::{Builder, Endpoint, EndpointKind, EndpointRole, Extent};
use dcs_abi::entry::{OPCODE_CANCEL, OPCODE_TRANSFER, SubmissionEntry};
use dcs_abi::operator::{OPERATORS, Operator};
use dcs_abi::status::Status;
use dcs_drivers::bus::Bus;
use dcs_fabric::{Fault, HOST, Rule, When, Wire};
use rig::{CARD, DATA, DEPTH, GRANTED, HOST_MEMORY, OWN_MEMORY, PEER, REGISTERS, Rig};
use std::time::Duration;

/// Most steps of a case before its end, to limit its time.
const STEPS: usize = 30_000;
/// Most connections that a peer makes.
const STREAMS: usize = 6;
const DESCRIPTORS: u64 = 0x1_0000;
const RESULTS: u64 = 0x2_0000;
const PORT: u16 = 80;

/// Does what the input says, then what a well-behaved guest does.
pub fn card(data: &[u8]) {
    let mut guest = Guest { bytes: data, rig: Rig::new() };
    guest.set_up();
    while !guest.bytes.is_empty() && guest.rig.steps < STEPS {
        guest.act();
    }
    guest.recover();
}

struct Guest<'a> {
    bytes: &'a [u8],
    rig: Rig,
}

impl Guest<'_> {
    /// Returns the next byte; 0 after the end.
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        core::array::from_fn(|_| self.byte())
    }

    fn below(&mut self, limit: u64) -> u64 {
        u64::from(u16::from_le_bytes(self.array())) % limit
    }

    /// Sets up as much as a well-behaved guest would before it turns bad.
    fn set_up(&mut self) {
        let how = self.byte();
        let rig = &mut self.rig;
        if how & 1 == 0 {
            rig.enable();
            assert!(rig.is_ready());
            assert_eq!(rig.grant(0, GRANTED), Ok((1, 0)));
            rig.create_queues(1).expect("there is a queue");
        }
        if how & 3 == 0 {
            assert_eq!(rig.attach_ssd(), Ok((2, 512)), "{:?}", rig.card);
        }
        if how & 5 == 0 {
            let (nic, _) = rig.attach_nic().expect("there is a NIC");
            let (listener, _) = rig.command(opcode::LISTEN, 0, &[nic, PORT.into()]).expect("a free port");
            if how & 8 == 0 {
                rig.peer.connect((CARD, PORT), 5000);
                rig.command(opcode::ACCEPT, 0, &[listener]).expect("a connection");
            }
        }
        if how & 17 == 0 {
            rig.create_queues(2).expect("there is another queue");
        }
    }

    fn act(&mut self) {
        match self.byte() % 24 {
            0 => self.known_register(),
            1 => {
                let (at, length) = (self.below(REGISTERS - 16), 1 + usize::from(self.byte() % 16));
                let bytes: [u8; 16] = self.array();
                self.rig.write_register(at, &bytes[..length]);
            }
            2 => {
                let (doorbell, value) = (self.below(8), u32::from(self.byte() % 40));
                self.rig.write_register(0x1000 + doorbell * 4, &value.to_le_bytes());
            }
            3 => {
                let (at, bytes) = (self.below(HOST_MEMORY / 64) * 8, self.array::<8>());
                self.rig.store(at, &bytes);
            }
            4 => self.scribble(),
            5..=8 => self.command(),
            9 => {
                let entry = self.array();
                self.rig.push(0, &entry);
            }
            10..=13 => self.transfer(),
            14 => {
                let (queue, entry) = (1 + u16::from(self.byte() % 2), self.array());
                self.rig.push(queue, &entry);
            }
            15 | 16 => self.run(),
            17 => {
                let end = self.rig.now() + (1 << (self.byte() % 34));
                while self.rig.steps < STEPS && self.rig.step(end) {}
            }
            18 => self.speak(),
            19 => self.frame(),
            20 => self.reset(),
            21 => self.answer(),
            22 => self.fault(),
            _ => self.cancel(),
        }
    }

    fn run(&mut self) {
        let steps = self.byte();
        self.steps(steps);
    }

    /// Runs this many steps, unless nothing happens for a while.
    fn steps(&mut self, count: u8) {
        let end = self.rig.now() + 10_000_000_000;
        for _ in 0..count {
            self.rig.step(end);
        }
    }

    fn known_register(&mut self) {
        const KNOWN: [u64; 10] = [0x14, 0x14, 0x24, 0x28, 0x2c, 0x30, 0x34, 0x0c, 0x1c, 0xf00];
        let at = KNOWN[self.below(KNOWN.len() as u64) as usize];
        let value = self.number();
        self.rig.write_register(at, &(value as u32).to_le_bytes());
        if self.byte() & 1 == 0 {
            self.rig.write_register(at, &value.to_le_bytes());
        }
    }

    /// Writes to the card's own memory, which holds the devices' queues and the blocks.
    fn scribble(&mut self) {
        let [low, middle, high] = self.array();
        let at = u64::from(u32::from_le_bytes([low, middle, high, 0])) % (OWN_MEMORY - 8);
        // The interesting places are behind the blocks and before the NIC's buffers.
        let at = if high & 0x80 == 0 { (1 << 20) + at % (2 << 20) } else { at };
        let address = self.rig.bar(self.rig.card_id, 1).address + at;
        let bytes: [u8; 8] = self.array();
        let length = 1 + usize::from(self.byte() % 8);
        self.rig.fabric.port(HOST).write(address, &bytes[..length]);
        self.rig.oracle.meddled = true;
    }

    /// Returns a number that is worth trying.
    fn number(&mut self) -> u64 {
        let offset = u64::from(self.byte());
        let window = |guest: &Self, which: u8| match which {
            0 => guest.rig.bar(guest.rig.card_id, 0),
            1 => guest.rig.bar(guest.rig.card_id, 1),
            2 => guest.rig.bar(guest.rig.ssd, 0),
            _ => guest.rig.bar(guest.rig.nic, 0),
        };
        match self.byte() % 16 {
            0 | 1 => offset,
            2 => u64::from(u16::from_le_bytes(self.array())),
            3 => u64::from(u32::from_le_bytes(self.array())),
            4 => u64::from_le_bytes(self.array()),
            5 => u64::MAX - offset * 16,
            6 => u64::from(u32::MAX) - offset,
            7 => DATA + offset * 512,
            8 => offset << 12,
            9 => HOST_MEMORY - offset * 64,
            10 => GRANTED - offset * 64,
            11 => 0x0046_0000 | offset,
            12 => 1 << (offset % 64),
            which => window(self, which % 4).address + offset * 16,
        }
    }

    /// Sends a plausible admin command, with up to two of its words wrong.
    fn command(&mut self) {
        let row = &ADMIN_OPCODES[self.below(ADMIN_OPCODES.len() as u64) as usize];
        let number = 1 + u32::from(self.byte() % 2);
        let handle = u32::from(self.byte() % 9);
        let mut entry = AdminEntry { opcode: row.value as u8, ..Default::default() };
        let (submissions, completions) = Rig::rings(number as u16);
        let size = number | u32::from(DEPTH - 1) << 16;
        let (address, words): (u64, Vec<u32>) = match entry.opcode {
            opcode::CREATE_CQ => (completions, vec![size, 3 | number << 16]),
            opcode::CREATE_SQ => (submissions, vec![size, 1 | number << 16, 1]),
            opcode::ABORT => (0, vec![number | u32::from(self.rig.cid) << 16]),
            opcode::GRANT_MEMORY => (0, vec![GRANTED as u32, 0, GRANT_READ | GRANT_WRITE]),
            opcode::ATTACH_SSD => {
                let bar = self.rig.bar(self.rig.ssd, 0);
                (bar.address, vec![bar.length as u32])
            }
            opcode::ATTACH_NIC => (self.rig.bar(self.rig.nic, 0).address, self.rig.nic_words().to_vec()),
            opcode::LISTEN => (0, vec![handle, u32::from(PORT) + number]),
            opcode::CONNECT => (0, vec![handle, PEER.to_bits(), u32::from(PORT) + number]),
            opcode::DATAGRAMS => {
                let port = u32::from(PORT) + number;
                (0, vec![handle, PEER.to_bits(), port | port << 16, u32::from(self.byte())])
            }
            opcode::LEND_SSD => {
                let grants = u32::from(self.byte() % 4);
                let (first, length) = (u32::from(self.byte()) * 2048, 512 + u32::from(self.byte()) * 512);
                (0, vec![2, number | grants << 16, first, 0, length, 0])
            }
            opcode::OPEN_PART => (0, vec![number - 1]),
            opcode::DELETE_SQ | opcode::DELETE_CQ => (0, vec![number]),
            _ => (0, vec![handle]),
        };
        entry.data_address = address;
        entry.words[..words.len()].copy_from_slice(&words);
        for _ in 0..self.byte() % 3 {
            let (at, value) = (self.byte() % 8, self.number());
            match at {
                at @ 0..6 => entry.words[usize::from(at)] = value as u32,
                _ => entry.data_address = value,
            }
        }
        self.rig.cid = self.rig.cid.wrapping_add(1);
        entry.cid = self.rig.cid;
        for _ in 0..1 + self.byte() / 64 {
            self.rig.push(0, &entry.to_bytes());
        }
    }

    fn end(&mut self) -> (Endpoint, Vec<Extent>) {
        let (kind, handle, offset) = match self.byte() % 8 {
            0..3 => (EndpointKind::Block, 2, self.below(2048) * 512),
            3..6 => (EndpointKind::Memory, 1, DATA + self.below(0x10000)),
            _ => (EndpointKind::Flow, 5, 0),
        };
        let length = self.below(0x8000) * 16;
        let mut extents = match kind {
            EndpointKind::Flow => Vec::new(),
            _ => vec![Extent { offset, length: length.next_multiple_of(512) }],
        };
        for _ in 0..self.byte() % 3 {
            let (offset, length) = (self.number(), self.number());
            extents.push(Extent { offset, length });
        }
        let handle = if self.byte().is_multiple_of(8) { u32::from(self.byte() % 9) } else { handle };
        (Endpoint { kind: kind as u8, handle, ..Default::default() }, extents)
    }

    fn parameter(&mut self, operator: Operator) -> Vec<u8> {
        match self.byte() % 4 {
            0 => Vec::new(),
            1 => (0..self.byte() % 80).map(|at| at.wrapping_mul(37)).collect(),
            _ if operator.digest_size() > 0 => Vec::new(),
            _ if matches!(operator, Operator::Gzip | Operator::Gunzip) => {
                dcs_ndp::parameter::level(1).to_vec()
            }
            _ => dcs_ndp::parameter::aes256_ctr(&[5; 32], &[6; 16]).to_vec(),
        }
    }

    /// Sends a plausible transfer, with some of its bytes wrong.
    fn transfer(&mut self) {
        let queue = 1 + u16::from(self.byte() % 2);
        self.rig.cid = self.rig.cid.wrapping_add(1);
        let cid = self.rig.cid;
        let mut bytes = vec![0; 4096];
        let mut builder = Builder::new(&mut bytes).expect("a header fits");
        for role in [EndpointRole::Source, EndpointRole::Destination] {
            let (endpoint, extents) = self.end();
            builder.endpoint(role, endpoint, &extents).expect("they fit");
        }
        let mut op_chain = [0; 8];
        let operators = usize::from(self.byte() % 4);
        for (at, number) in op_chain.iter_mut().enumerate().take(operators) {
            let operator = OPERATORS[self.below(OPERATORS.len() as u64) as usize].operator;
            *number = operator as u8;
            let parameter = self.parameter(operator);
            if !parameter.is_empty() {
                builder.parameter(at, &parameter).expect("it fits");
            }
        }
        let length = builder.finish();
        bytes.truncate(length);
        for _ in 0..self.byte() % 4 {
            let at = self.below(length as u64) as usize;
            bytes[at] = self.byte();
        }
        let place = u64::from(cid % 16);
        self.rig.store(DESCRIPTORS + place * 0x1000, &bytes);
        let how = self.byte();
        let entry = SubmissionEntry {
            opcode: OPCODE_TRANSFER,
            cid,
            rid: u32::from(how & 1),
            descriptor_length: length as u32,
            descriptor_address: DESCRIPTORS + place * 0x1000,
            result_address: if how & 2 == 0 { RESULTS + place * 0x800 } else { 0 },
            op_chain,
            length: if how & 4 == 0 { dcs_abi::entry::LENGTH_TO_END } else { self.number() },
            timeout_ms: if how & 24 == 24 { u32::from(self.byte()) } else { 0 },
            flags: if how & 32 == 0 { 0 } else { u16::from(self.byte()) },
            ..Default::default()
        };
        let mut entry = entry.to_bytes();
        if how & 192 == 192 {
            let at = usize::from(self.byte() % 64);
            entry[at] = self.byte();
        }
        self.rig.push(queue, &entry);
    }

    fn cancel(&mut self) {
        let queue = 1 + u16::from(self.byte() % 2);
        let target = self.rig.cid.wrapping_sub(u16::from(self.byte() % 8));
        self.rig.cid = self.rig.cid.wrapping_add(1);
        let mut op_chain = [0; 8];
        op_chain[..2].copy_from_slice(&queue.to_le_bytes());
        op_chain[2..4].copy_from_slice(&target.to_le_bytes());
        let entry =
            SubmissionEntry { opcode: OPCODE_CANCEL, cid: self.rig.cid, op_chain, ..Default::default() };
        self.rig.push(queue, &entry.to_bytes());
    }

    /// Lets the peer do something that peers do.
    fn speak(&mut self) {
        let (what, which) = (self.byte() % 7, usize::from(self.byte()));
        let count = self.rig.peer.streams.len();
        let peer = &mut self.rig.peer;
        match what {
            0 if count < STREAMS => _ = peer.connect((CARD, PORT + (which % 3) as u16), 6000 + count as u16),
            1 if count < STREAMS => _ = peer.listen(PORT + (which % 3) as u16),
            6 => {
                let port = PORT + 1 + (which % 2) as u16;
                if peer.ports.is_empty() {
                    (1..3).for_each(|at| _ = peer.bind(PORT + at));
                }
                let datagrams = (0..which % 32).map(|at| ((CARD, port), vec![at as u8; which * 5]));
                peer.ports[which % 2].to_send.extend(datagrams);
            }
            _ if count == 0 => {}
            2 => peer.abort(which % count),
            3 => peer.streams[which % count].close = true,
            4 => peer.streams[which % count].most = which * 100,
            _ => {
                let bytes = (0..which * 300).map(|at| (at / 253) as u8);
                peer.streams[which % count].to_send.extend(bytes);
            }
        }
    }

    /// Sends a frame that no peer sends, or disturbs the wire.
    fn frame(&mut self) {
        let how = self.byte();
        if how & 3 == 3 {
            let wire = Wire { lose: u16::from(how) / 4, duplicate: 10, reorder: 30, ..Wire::default() };
            return self.rig.fabric.set_wire(self.rig.end, wire);
        }
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0];
        let length = usize::from(self.byte());
        if how & 4 == 0 {
            frame.extend([0x45, 0, 0, length as u8, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
            frame.extend([0x13, 0x88, 0, 80]);
        }
        frame.extend((0..length).map(|_| self.byte()));
        self.rig.fabric.send(self.rig.end, frame);
    }

    fn reset(&mut self) {
        let how = self.byte();
        if how & 15 == 15 {
            return self.rig.reset_function();
        }
        self.rig.write_register(0x14, &0x0046_0000u32.to_le_bytes());
        self.steps((how & 3) * 8);
        self.rig.enable();
        // A guest that does not wait.
        let address = Rig::rings(0);
        if how & 4 == 0 {
            self.steps(how >> 4);
            let words = [GRANTED as u32, 0, GRANT_READ | GRANT_WRITE, 0, 0, 0];
            let grant = AdminEntry { opcode: opcode::GRANT_MEMORY, words, ..Default::default() };
            self.rig.push(0, &grant.to_bytes());
        }
        if how & 8 == 0 {
            self.rig.store(address.1, &[0; 512]);
        }
    }

    /// Takes completions as a well-behaved guest does.
    fn answer(&mut self) {
        let queue = u16::from(self.byte() % 3);
        for _ in 0..8 {
            if self.rig.reap(queue).is_none() {
                return;
            }
        }
    }

    fn fault(&mut self) {
        const COMMANDS: [Fault; 9] = [
            Fault::DropCompletion,
            Fault::DuplicateCompletion,
            Fault::WrongPhase,
            Fault::WrongCid(3),
            Fault::WrongHead(40),
            Fault::BadStatus(0x281),
            Fault::Hang,
            Fault::HangBus,
            Fault::Remove,
        ];
        const FRAMES: [Fault; 7] = [
            Fault::DropCompletion,
            Fault::DuplicateCompletion,
            Fault::ShortDma(20),
            Fault::CorruptDma,
            Fault::Hang,
            Fault::HangHard,
            Fault::Remove,
        ];
        let (which, how, after) = (usize::from(self.byte()), self.byte() % 4, u64::from(self.byte() % 32));
        let any = When::Command { queue: None, opcode: None };
        let (device, when, fault) = match how {
            0 | 1 => (self.rig.ssd, any, COMMANDS[which % COMMANDS.len()]),
            2 => (self.rig.nic, When::Fetch, FRAMES[which % FRAMES.len()]),
            _ if which < 32 => (self.rig.nic, When::Store, Fault::WrongLength(which as u16 * 2048)),
            _ if which < 64 => (self.rig.nic, When::Store, Fault::DelayCompletion(Duration::from_millis(9))),
            _ => (self.rig.nic, When::Store, FRAMES[which % FRAMES.len()]),
        };
        self.rig.fabric.inject(device, Rule::once(when, fault).after(after));
    }

    /// Checks that a reset restores everything.
    fn recover(&mut self) {
        let rig = &mut self.rig;
        rig.fabric.set_wire(rig.end, Wire::default());
        rig.reset_devices();
        rig.disable();
        rig.enable();
        assert!(rig.is_ready(), "it does not start again: {:?}", rig.card);
        assert_eq!(rig.grant(0, GRANTED), Ok((1, 0)), "nothing is left of before");
        rig.create_queues(1).expect("no queue is left of before");
        assert_eq!(rig.patiently(Rig::attach_ssd), Ok((2, 512)), "{:?}", rig.card);
        self.read_once();
        let (nic, _) = self.rig.patiently(Rig::attach_nic).expect("the NIC works again");
        self.send_once(nic);
    }

    /// Makes one transfer, from `source` to `destination`, with its digest.
    fn one(
        &mut self,
        source: (EndpointKind, u32, u64),
        destination: (EndpointKind, u32, u64),
        length: u64,
    ) -> Vec<u8> {
        let rig = &mut self.rig;
        rig.cid = rig.cid.wrapping_add(1);
        let mut bytes = vec![0; 4096];
        let mut builder = Builder::new(&mut bytes).expect("a header fits");
        for (role, (kind, handle, offset)) in
            [(EndpointRole::Source, source), (EndpointRole::Destination, destination)]
        {
            let endpoint = Endpoint { kind: kind as u8, handle, ..Default::default() };
            let extents = if kind == EndpointKind::Flow { vec![] } else { vec![Extent { offset, length }] };
            builder.endpoint(role, endpoint, &extents).expect("they fit");
        }
        let made = builder.finish();
        rig.store(DESCRIPTORS, &bytes[..made]);
        let entry = SubmissionEntry {
            opcode: OPCODE_TRANSFER,
            cid: rig.cid,
            descriptor_length: made as u32,
            descriptor_address: DESCRIPTORS,
            result_address: RESULTS,
            op_chain: [Operator::Md5 as u8, 0, 0, 0, 0, 0, 0, 0],
            length,
            ..Default::default()
        };
        rig.push(1, &entry.to_bytes());
        let ended = rig.wait(1, rig.cid);
        assert_eq!((ended.status(), ended.delivered.value()), (Status::Success, length), "{:?}", rig.card);
        let result = rig.load(RESULTS, dcs_abi::result::ResultArea::SIZE);
        let packet = dcs_abi::result::ResultPacket::new_checked(&result[..]).expect("its size");
        let result = dcs_abi::result::ResultArea::parse(&packet).expect("no reserved bytes");
        result.digests[0].value[..16].to_vec()
    }

    fn read_once(&mut self) {
        const LENGTH: u64 = 80_000;
        let digest = self.one((EndpointKind::Block, 2, 4096), (EndpointKind::Memory, 1, DATA), LENGTH);
        let mut expected = vec![0; LENGTH as usize];
        self.rig.namespace.load(4096, &mut expected);
        assert!(self.rig.load(DATA, LENGTH as usize) == expected, "the SSD's bytes");
        assert_eq!(digest, md5(&expected));
    }

    fn send_once(&mut self, nic: u32) {
        const LENGTH: u64 = 20_000;
        let port = 90;
        let (listener, _) = self.rig.command(opcode::LISTEN, 0, &[nic, port]).expect("no port is taken");
        let stream = self.rig.peer.connect((CARD, port as u16), 7000);
        let (flow, _) = self.rig.command(opcode::ACCEPT, 0, &[listener]).expect("a connection comes");
        let digest = self.one((EndpointKind::Block, 2, 8192), (EndpointKind::Flow, flow, 0), LENGTH);
        let came =
            self.rig.run_until(60_000_000_000, |rig| rig.peer.streams[stream].got.len() as u64 == LENGTH);
        let mut expected = vec![0; LENGTH as usize];
        self.rig.namespace.load(8192, &mut expected);
        assert!(came && self.rig.peer.streams[stream].got == expected, "the peer has it");
        assert_eq!(digest, md5(&expected));
    }
}

fn md5(bytes: &[u8]) -> Vec<u8> {
    let mut context = dcs_ndp::Context::new(Operator::Md5, &[]).expect("no parameters");
    context.absorb(bytes);
    context.value().expect("a digest").as_bytes().to_vec()
}
