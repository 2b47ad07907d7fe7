//! Target for the D2D functions of `dcs-d2d`.

use dcs_d2d::driver::{Layout, Receive, Send, Write};
use dcs_d2d::register::{self, Rate, Task, Times};
use dcs_d2d::ssd::MediumError;
use dcs_d2d::uoe::{Rtp, Template};
use dcs_d2d::{Action, Limits, Nic, Origin, Ssd, Token, nic, ssd};
use std::collections::VecDeque;

const STREAMS: u16 = 3;
const BLOCKS: u64 = 40;
const PAYLOAD: u32 = 128;
const SSD_BAR: u64 = 0x1_0000_0000;
const NIC_BAR: u64 = 0x2_0000_0000;
const SSD_APERTURE: u64 = 0x10_0000_0000;
const NIC_APERTURE: u64 = 0x20_0000_0000;
const HELD: usize = 3_000;

/// The input as numbers; zeros after its end.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    fn number(&mut self, bytes: usize) -> u64 {
        (0..bytes).fold(0, |number, at| number | u64::from(self.byte()) << (8 * at))
    }

    fn bytes(&mut self, length: usize) -> &'a [u8] {
        self.0.split_off(..length.min(self.0.len())).unwrap_or_default()
    }
}

/// Both functions, and everything in progress between them.
struct Bench {
    ssd: Ssd,
    nic: Nic,
    now: u64,
    bus: VecDeque<(u64, Vec<u8>)>,
    reads: Vec<(Token, u32)>,
    stores: Vec<(Token, u64, Vec<u8>)>,
}

fn template(stream: u16) -> Template {
    Template {
        mac_destination: [2, 0, 0, 0, 0, 2],
        mac_source: [2, 0, 0, 0, 0, 1],
        tag: (stream == 2).then_some(5),
        service: 0,
        identification: 0,
        dont_fragment: false,
        ttl: 9,
        source: [10, 0, 0, 1],
        destination: [10, 0, 0, 2],
        source_port: 5004,
        destination_port: 5004 + stream,
        rtp: (stream == 1).then_some(Rtp { kind: 33, sequence: 7, timestamp: 9, ssrc: 1 }),
        payload: 300,
    }
}

/// Makes a frame of a stream's, or of one to the next port: the identification, the fragment field, the payload.
fn frame(stream: u16, next: bool, identification: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let template = template(stream);
    let length = 8 + payload.len() as u16;
    let mut ip = vec![0x45, 0];
    ip.extend((20 + length).to_be_bytes());
    ip.extend([0, identification]);
    ip.extend(fragment.to_be_bytes());
    ip.extend([9, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if stream == 2 {
        frame.extend([0x81, 0, 0x20, 5]);
    }
    frame.extend([8, 0]);
    frame.extend(ip);
    frame.extend(template.source_port.to_be_bytes());
    frame.extend((template.destination_port + u16::from(next)).to_be_bytes());
    frame.extend(length.to_be_bytes());
    frame.extend([0; 2]);
    frame.extend(payload);
    frame
}

impl Bench {
    fn new() -> Bench {
        let ssd = ssd::Config {
            tasks: 4,
            window: 3,
            payload: PAYLOAD,
            transfer: 8192,
            read_ahead: 8192,
            outstanding: 3,
            ..ssd::Config::new(STREAMS, BLOCKS)
        };
        let nic = nic::Config {
            window: 3,
            payload: PAYLOAD,
            mtu: 600,
            queue: 2_000,
            legacy: 3,
            reassembly: Limits { datagrams: 3, bytes: HELD, time: 5_000_000 },
            ..nic::Config::new(STREAMS)
        };
        let (ssd, nic) = (Ssd::new(ssd).expect("a good one"), Nic::new(nic).expect("a good one"));
        let mut bench =
            Bench { ssd, nic, now: 0, bus: VecDeque::new(), reads: Vec::new(), stores: Vec::new() };
        bench.prepare();
        bench
    }

    fn read(&self, nic: bool, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        if nic {
            self.nic.read(offset, &mut bytes)
        } else {
            self.ssd.read(offset, &mut bytes)
        }
        u64::from_le_bytes(bytes)
    }

    fn write(&mut self, nic: bool, offset: u64, bytes: &[u8]) {
        if nic { self.nic.write(offset, bytes, self.now) } else { self.ssd.write(offset, bytes, self.now) }
    }

    fn write_all(&mut self, nic: bool, writes: Vec<Write>) {
        for write in writes {
            self.write(nic, write.offset, &write.value.to_le_bytes());
        }
    }

    fn layout(&self, nic: bool) -> Layout {
        Layout::from_values(Layout::READS.map(|at| self.read(nic, at))).expect("a D2D function")
    }

    fn prepare(&mut self) {
        self.write(false, register::APERTURE_BASE, &SSD_APERTURE.to_le_bytes());
        self.write(true, register::APERTURE_BASE, &NIC_APERTURE.to_le_bytes());
        for stream in 0..STREAMS {
            let writes = self.layout(true).template(stream, &template(stream));
            self.write_all(true, writes);
            let tasks = [Task { lba: 7, blocks: 2 }, Task { lba: 0, blocks: 3 }];
            let writes = self.layout(false).tasks(stream, &tasks).expect("room");
            self.write_all(false, writes);
        }
    }

    /// Starts both ends of a stream, as a driver does. `back`: from the NIC to the SSD.
    fn start(&mut self, stream: u16, back: bool, bytes: u64, rate: Rate) {
        let (to, from) = (!back, back);
        let bar = if from { NIC_BAR } else { SSD_BAR };
        let grants_to = bar + self.layout(from).register(stream, register::GRANT);
        let times = Times { stall_us: 3_000, refresh_us: 700 };
        let receive = Receive { bytes, grants_to, times: Times { stall_us: 0, ..times }, interrupt: true };
        let writes = self.layout(to).receive(stream, &receive);
        self.write_all(to, writes);
        let layout = self.layout(to);
        if let Ok(place) = layout.place(layout.place_reads(stream).map(|at| self.read(to, at))) {
            let send = Send { bytes, rate, credits: 0, times, interrupt: true };
            let writes = self.layout(from).send(stream, &place, &send);
            self.write_all(from, writes);
        }
    }

    /// Takes an action, and checks that it is permitted.
    fn take(&mut self, nic: bool, action: Action) {
        match action {
            Action::Read { token, lba, blocks } => {
                assert!(
                    !nic && blocks > 0 && lba + u64::from(blocks) <= BLOCKS,
                    "a read of {blocks} at {lba}"
                );
                self.reads.push((token, blocks));
            }
            Action::Store { token, lba, data } => {
                let blocks = data.len() as u64 / 4096;
                assert!(
                    !nic && data.len() % 4096 == 0 && blocks > 0 && lba + blocks <= BLOCKS,
                    "a store at {lba}"
                );
                self.stores.push((token, lba, data));
            }
            Action::Write { address, data, origin } => {
                assert!(origin.stream < STREAMS);
                assert!(!data.is_empty() && data.len() <= PAYLOAD as usize);
                assert!(
                    address % u64::from(PAYLOAD) + data.len() as u64 <= u64::from(PAYLOAD),
                    "{address:#x}"
                );
                if self.bus.len() < 2_000 {
                    self.bus.push_back((address, data));
                }
            }
            Action::Interrupt { stream } => assert!(stream < STREAMS),
            Action::Legacy { frame } => assert!(nic && frame.len() > 34),
        }
        assert!(self.reads.len() + self.stores.len() <= 3, "more at the medium than may be");
    }

    fn settle(&mut self) {
        for nic in [false, true] {
            let mut turns = 0;
            while let Some(action) = if nic { self.nic.poll(self.now) } else { self.ssd.poll(self.now) } {
                self.take(nic, action);
                turns += 1;
                assert!(turns < 100_000, "it never comes to rest");
            }
            let next = if nic { self.nic.next_deadline() } else { self.ssd.next_deadline() };
            assert!(next.is_none_or(|next| next > self.now), "a deadline stands still");
        }
        assert!(self.nic.bytes_held() <= HELD);
    }

    fn deliver(&mut self, address: u64, data: &[u8]) {
        match address {
            NIC_APERTURE.. => self.nic.data(address - NIC_APERTURE, data, self.now),
            SSD_APERTURE.. => self.ssd.data(address - SSD_APERTURE, data, self.now),
            NIC_BAR.. => self.nic.write(address - NIC_BAR, data, self.now),
            SSD_BAR.. => self.ssd.write(address - SSD_BAR, data, self.now),
            _ => {}
        }
    }

    /// Sends a packet to a stream, with correct tag and header except for the input's changes.
    fn packet(&mut self, input: &mut Input<'_>) {
        let flags = input.byte();
        let stream = u16::from(flags & 3) % STREAMS;
        let fragment = input.number(2) as u16;
        let identification = input.byte();
        let length = usize::from(input.byte());
        let fragment = if flags & 8 != 0 { fragment & 0x3fff } else { 0 };
        let frame = frame(stream, flags & 4 != 0, identification, fragment, input.bytes(length));
        self.nic.receive(&frame, self.now);
    }

    /// Runs a stream from the SSD to the NIC, and checks what leaves.
    fn check_sending(&mut self) {
        self.start(1, false, 9_000, Rate::default());
        let mut left = Vec::new();
        for _ in 0..100 {
            self.settle();
            while let Some((token, blocks)) = self.reads.pop() {
                self.ssd.read_done(token, Ok(vec![5; blocks as usize * 4096]), self.now);
            }
            while let Some((address, data)) = self.bus.pop_front() {
                self.deliver(address, &data);
            }
            while let Some(frame) = self.nic.next_frame(self.now) {
                if frame.stream.is_some() {
                    // Behind the headers of Ethernet, IPv4, UDP and RTP.
                    left.push(frame.bytes[54..].to_vec());
                }
            }
            self.now += 1000;
        }
        assert_eq!(left.len(), 30);
        assert!(left.concat() == [5; 9_000]);
        self.expect_idle(1);
    }

    /// Runs a stream from the NIC to the SSD, and checks what is stored.
    fn check_storing(&mut self) {
        let bytes: Vec<u8> = (0..9_000u32).map(|at| (at * 7 / 8) as u8).collect();
        let mut medium = vec![0xee; BLOCKS as usize * 4096];
        self.start(0, true, bytes.len() as u64, Rate::default());
        let mut datagrams = bytes.chunks(500);
        for number in 0..100 {
            if let Some(payload) = datagrams.next() {
                self.nic.receive(&frame(0, false, number, 0, payload), self.now);
            }
            self.settle();
            while let Some((address, data)) = self.bus.pop_front() {
                self.deliver(address, &data);
            }
            self.settle();
            for (token, lba, data) in std::mem::take(&mut self.stores) {
                medium[lba as usize * 4096..][..data.len()].copy_from_slice(&data);
                self.ssd.store_done(token, Ok(()), self.now);
            }
            self.now += 1000;
        }
        // The tasks are two blocks from 7 on, then one more at 0, whose rest is zeros.
        assert!(medium[7 * 4096..9 * 4096] == bytes[..8192]);
        assert!(medium[..4096] == [&bytes[8192..], &[0; 3 * 4096 - 9_000]].concat());
        assert!(medium[4096..7 * 4096].iter().chain(&medium[9 * 4096..]).all(|byte| *byte == 0xee));
        self.expect_idle(0);
    }

    fn expect_idle(&self, stream: u16) {
        for nic in [false, true] {
            let status = self.read(nic, self.layout(nic).register(stream, register::STATUS));
            assert_eq!(register::Status::from_bits(status).state, register::State::Idle);
        }
    }

    fn act(&mut self, input: &mut Input<'_>) {
        let what = input.byte();
        let (nic, stream) = (what & 0x10 != 0, u16::from(what >> 5) % STREAMS);
        match what & 15 {
            0 => self.now += 1 + input.number(2) * 10_000,
            1 => {
                let (offset, length) = (input.number(2), usize::from(input.byte() % 12));
                let bytes = input.bytes(length).to_vec();
                self.write(nic, offset, &bytes);
                let mut read = [0; 19];
                if nic { self.nic.read(offset, &mut read) } else { self.ssd.read(offset, &mut read) }
            }
            2 => {
                let offset = self.layout(nic).register(stream, u64::from(input.byte() % 16) * 8);
                let value = input.number(8).to_le_bytes();
                self.write(nic, offset, &value);
            }
            3 => {
                let rate = Rate { bytes_per_second: input.number(3), granularity_us: input.number(2) as u32 };
                let bytes = input.number(2);
                self.start(stream, nic, bytes, rate);
            }
            4 => {
                let offset = self.layout(nic).register(stream, register::TX_ADDRESS);
                let value = self.read(nic, offset) & !7 | u64::from(input.byte() & 7);
                self.write(nic, offset, &value.to_le_bytes());
            }
            5 => {
                let (offset, length) = (input.number(4), usize::from(input.byte()));
                let address = if nic { NIC_APERTURE } else { SSD_APERTURE } + offset;
                self.deliver(address, &vec![7; length]);
            }
            6 => {
                let length = usize::from(input.byte());
                self.nic.receive(input.bytes(length), self.now);
            }
            7 => self.packet(input),
            8 => {
                let at = usize::from(input.byte());
                if !self.reads.is_empty() {
                    let (token, blocks) = self.reads.swap_remove(at % self.reads.len());
                    let bytes = vec![at as u8; blocks as usize * 4096];
                    let data = match at >> 6 {
                        0..3 => Ok(bytes),
                        _ if nic => Err(MediumError),
                        _ => Ok(bytes[1..].to_vec()),
                    };
                    self.ssd.read_done(token, data, self.now);
                    // A second answer is ignored.
                    self.ssd.read_done(token, Err(MediumError), self.now);
                }
            }
            9 => {
                if let Some((token, ..)) = self.stores.pop() {
                    self.ssd.store_done(token, if nic { Err(MediumError) } else { Ok(()) }, self.now);
                    self.ssd.store_done(token, Err(MediumError), self.now);
                }
            }
            10 | 11 => {
                for _ in 0..1 + u32::from(input.byte()) {
                    let Some((address, data)) = self.bus.pop_front() else { break };
                    self.deliver(address, &data);
                    if nic {
                        self.deliver(address, &data);
                    }
                    self.settle();
                }
            }
            12 => match input.byte() % 4 {
                0 => self.nic.set_link(nic),
                1 if nic => self.nic.reset(),
                1 => self.ssd.reset(),
                2 => drop(self.bus.pop_front()),
                _ => self.prepare(),
            },
            13 => {
                let _ = self.nic.send_legacy(vec![1; 60]);
                for _ in 0..input.byte() {
                    let Some(frame) = self.nic.next_frame(self.now) else { break };
                    assert!(frame.bytes.len() <= 600 + 18);
                }
            }
            14 => {
                let origin = Origin { stream: input.number(2) as u16, run: input.number(1) as u32 };
                if nic { self.nic.write_failed(origin) } else { self.ssd.write_failed(origin) }
            }
            _ => {
                let offset = self.layout(nic).register(stream, register::GRANT);
                let value = input.number(7).to_le_bytes();
                self.write(nic, offset, &value);
            }
        }
    }
}

/// Writes arbitrary registers and apertures, receives arbitrary packets, and answers for the medium. Checks that nothing panics,
/// actions are within bounds, both functions come to rest, and after a reset a stream works each way, with the right bytes.
///
/// Each step is a byte with the action (low 4 bits), the function (bit 4) and the stream, and its operands: `act`.
pub fn d2d(data: &[u8]) {
    let mut input = Input(data);
    let mut bench = Bench::new();
    while !input.0.is_empty() {
        bench.act(&mut input);
        bench.settle();
    }
    bench.ssd.reset();
    bench.nic.reset();
    bench.nic.set_link(true);
    bench.bus.clear();
    bench.prepare();
    for (token, _) in std::mem::take(&mut bench.reads) {
        bench.ssd.read_done(token, Err(MediumError), bench.now);
    }
    for (token, ..) in std::mem::take(&mut bench.stores) {
        bench.ssd.store_done(token, Ok(()), bench.now);
    }
    bench.check_sending();
    bench.check_storing();
}
