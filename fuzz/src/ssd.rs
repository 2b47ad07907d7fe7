//! Target for the NVMe host: a controller that reports and writes arbitrary data.

use dcs_drivers::bus::{Bus, BusError, ReadDone, Region, Tag, Window};
use dcs_drivers::nvme::{Config, Memory, Nvme, PmrBar, Request, State};
use std::collections::{BTreeMap, VecDeque};

const OWN: Window = Window { address: 0x1_0000_0000, length: 2 << 20 };
const REGISTERS: Window = Window { address: 0xfe00_0000, length: 16 << 10 };
/// Offset of the requests' data.
const DATA: u64 = 1 << 20;
/// Window of the controller's persistent memory region.
const PMR: Window = Window { address: 0x80_0000_0000, length: 1 << 20 };
/// BAR of the persistent memory region.
const PMR_BAR: u8 = 4;
/// CAP of an ordinary controller: 1,024 entries, 10 s, the NVM command set, a persistent memory region.
const CAPABILITIES: u64 = 1 << 56 | 1 << 37 | 20 << 24 | 1023;

/// The input as numbers; zeros after its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    fn number(&mut self, bytes: usize) -> u64 {
        (0..bytes).fold(0, |number, at| number | u64::from(self.byte()) << (8 * at))
    }

    fn below(&mut self, most: u64) -> u64 {
        self.number(4) % most
    }
}

/// The card's own memory; register writes and reads wait for the controller.
struct Wires {
    memory: Vec<u8>,
    writes: VecDeque<(u64, u64)>,
    reads: VecDeque<(u64, u32, Tag)>,
}

impl Bus for Wires {
    fn window(&self) -> Window {
        OWN
    }

    fn load(&self, offset: u64, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.memory[offset as usize..][..bytes.len()]);
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        self.memory[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        assert!(REGISTERS.contains(address, bytes.len() as u64), "a write to {address:#x}");
        let value = bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        self.writes.push_back((address - REGISTERS.address, value));
    }

    fn read(&mut self, address: u64, length: u32, tag: Tag) {
        assert!(REGISTERS.contains(address, length.into()), "a read of {address:#x}");
        self.reads.push_back((address - REGISTERS.address, length, tag));
    }

    fn interrupt(&mut self, vector: u16) {
        panic!("interrupt {vector}");
    }
}

/// A queue pair, as the controller knows it.
#[derive(Clone, Copy, Default)]
struct Pair {
    submissions: u64,
    completions: u64,
    entries: u64,
    tail: u64,
    head: u64,
    next: u64,
}

/// State of an honest controller. The input decides when it behaves as one.
#[derive(Default)]
struct Controller {
    registers: BTreeMap<u64, u64>,
    pairs: [Pair; 3],
    /// Changes to its answers about itself.
    lies: Vec<(usize, u8)>,
    /// True after it may have overwritten its commands, or misreported its registers: it may then find other commands than it was
    /// given.
    confused: bool,
}

impl Controller {
    /// Returns the offset in the card's own memory of an address that the host gave: all of them are there.
    fn place(&self, address: u64, length: u64) -> Option<u64> {
        let own = OWN.contains(address, length);
        assert!(
            own || self.knows_pmr() && PMR.contains(address, length) || self.confused,
            "the controller was sent to {address:#x}"
        );
        own.then(|| address - OWN.address)
    }

    /// Returns true if the host has enabled the region, and set its address.
    fn knows_pmr(&self) -> bool {
        let of = |register| self.registers.get(&register).copied().unwrap_or(0);
        of(0xe04) == 1 && of(0xe18) << 32 | of(0xe14) == PMR.address | 2
    }

    fn take_writes(&mut self, wires: &mut Wires) {
        for (register, value) in wires.writes.drain(..) {
            self.registers.insert(register, value);
            let of = |register: &u64| self.registers.get(register).copied().unwrap_or(0);
            match register {
                0x14 => {
                    let entries = of(&0x24) & 0xfff;
                    let admin = Pair {
                        submissions: of(&0x28),
                        completions: of(&0x30),
                        entries: entries + 1,
                        ..Pair::default()
                    };
                    self.pairs = [admin, Pair::default(), Pair::default()];
                }
                0x1000 | 0x1008 | 0x1010 => self.pairs[(register as usize - 0x1000) / 8].tail = value,
                _ => {}
            }
        }
    }

    fn register(&self, register: u64) -> u64 {
        match register {
            0 => CAPABILITIES,
            0x08 => 0x0001_0400,
            // Ready as soon as it is enabled, shut down as soon as it is told to.
            0x1c => self.registers.get(&0x14).map_or(0, |cc| cc & 1 | (cc >> 14 & 1) << 3),
            // Data, the BAR, half a second, addresses.
            0xe00 => 1 << 24 | 1 << 16 | u64::from(PMR_BAR) << 5 | 3 << 3,
            0xe08 => 0,
            other => self.registers.get(&other).copied().unwrap_or(0),
        }
    }

    /// Carries out a queue's next command, and completes it.
    fn serve(&mut self, wires: &mut Wires, queue: usize, status: u16) {
        let pair = self.pairs[queue];
        if pair.entries == 0 || pair.head == pair.tail % pair.entries {
            return;
        }
        let mut entry = [0; 64];
        let Some(at) = self.place(pair.submissions + pair.head * 64, 64) else { return };
        wires.load(at, &mut entry);
        let word = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("four bytes"));
        let data = u64::from_le_bytes(entry[24..32].try_into().expect("eight bytes"));
        let mut result = 0;
        match (queue, entry[0]) {
            (0, 0x06) => {
                let Some(at) = self.place(data, 4096) else { return };
                wires.store(at, &self.identify(word(40)));
            }
            (0, 0x09) => result = word(44),
            (0, 0x05) => {
                let made = &mut self.pairs[word(40) as usize % 3];
                (made.completions, made.entries) = (data, u64::from(word(40) >> 16) + 1);
            }
            (0, 0x01) => self.pairs[word(40) as usize % 3].submissions = data,
            (1.., 0x01 | 0x02) if entry[1] >> 6 == 0 => drop(self.place(data, 512)),
            _ => {}
        }
        self.pairs[queue].head = (pair.head + 1) % pair.entries;
        let mut completion = [0; 16];
        completion[..4].copy_from_slice(&result.to_le_bytes());
        completion[8..10].copy_from_slice(&(self.pairs[queue].head as u16).to_le_bytes());
        completion[10..12].copy_from_slice(&(queue as u16).to_le_bytes());
        completion[12..14].copy_from_slice(&entry[2..4]);
        completion[14..].copy_from_slice(&(status << 1).to_le_bytes());
        self.complete(wires, queue, completion);
    }

    /// Writes a queue's next completion, with the correct phase.
    fn complete(&mut self, wires: &mut Wires, queue: usize, mut completion: [u8; 16]) {
        let pair = self.pairs[queue];
        if pair.entries == 0 || pair.completions == 0 {
            return;
        }
        let phase = (pair.next / pair.entries).is_multiple_of(2);
        completion[14] = completion[14] & !1 | u8::from(phase);
        let Some(at) = self.place(pair.completions + pair.next % pair.entries * 16, 16) else { return };
        wires.store(at, &completion);
        self.pairs[queue].next += 1;
    }

    fn identify(&self, what: u32) -> Vec<u8> {
        let mut data = vec![0; 4096];
        match what & 0xff {
            0 => {
                data[..8].copy_from_slice(&100_000u64.to_le_bytes());
                data[130] = 9;
            }
            1 => (data[77], data[512], data[513]) = (5, 0x66, 0x44),
            _ => data[0] = 1,
        }
        self.lies.iter().for_each(|(at, value)| data[at % 4096] = *value);
        data
    }
}

#[derive(Debug, PartialEq)]
enum Fate {
    Outstanding,
    Held,
    Over,
}

/// The host, its requests, and its permissions.
struct Rig {
    nvme: Nvme,
    wires: Wires,
    controller: Controller,
    /// True if half of the data are in the controller's memory.
    pmr: bool,
    fates: Vec<Fate>,
    now: u64,
}

/// The input encodes a controller's answers, memory writes and completions, and the requests of the host's owner. Checks that
/// each command ends once, its memory is released once, only the controller's own registers are written, and the controller gets
/// only addresses in its host's memory.
pub fn ssd(data: &[u8]) {
    let mut input = Input(data);
    let kind = input.byte();
    let pmr = (kind & 2 != 0).then_some(PmrBar { bar: PMR_BAR, window: PMR });
    let config = Config { depth: 16, queues: 1 + u16::from(kind % 2), pmr, ..Config::new(REGISTERS, 3) };
    let mut memory = Region::whole(OWN);
    let region = memory.take(DATA, 4096).expect("it is there");
    let wires =
        Wires { memory: vec![0; OWN.length as usize], writes: VecDeque::new(), reads: VecDeque::new() };
    let nvme = Nvme::new(config, region).expect("the configuration is sound");
    let mut rig =
        Rig { nvme, wires, controller: Controller::default(), pmr: pmr.is_some(), fates: Vec::new(), now: 1 };
    rig.nvme.start(&mut rig.wires, rig.now);
    for _ in 0..input.byte() {
        rig.honest();
    }
    while !input.0.is_empty() && rig.fates.len() < 500 {
        rig.step(&mut input);
        rig.take();
    }
    rig.finish();
}

impl Rig {
    fn poll(&mut self) {
        self.controller.take_writes(&mut self.wires);
        self.nvme.poll(&mut self.wires, self.now);
        self.controller.take_writes(&mut self.wires);
    }

    fn answer(&mut self, data: impl FnOnce(&Controller, u64, u32) -> Result<Vec<u8>, BusError>) {
        let Some((register, length, tag)) = self.wires.reads.pop_front() else { return };
        let data = data(&self.controller, register, length);
        self.nvme.read_done(&mut self.wires, self.now, ReadDone { tag, data });
    }

    /// Does everything that a good controller does with its commands.
    fn honest(&mut self) {
        self.poll();
        self.answer(|controller, register, length| {
            Ok(controller.register(register).to_le_bytes()[..length.min(8) as usize].to_vec())
        });
        self.poll();
        (0..3).for_each(|queue| self.controller.serve(&mut self.wires, queue, 0));
        self.now += 1_000_000;
        self.poll();
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 16 {
            0..=2 => self.honest(),
            3 => {
                let (kind, value) = (input.byte(), input.number(8));
                self.controller.confused |= self.wires.reads.front().is_some_and(|read| read.0 == 0);
                self.answer(|_, _, length| match kind % 8 {
                    0 => Err(BusError::Unsupported),
                    1 => Err(BusError::Aborted),
                    2 => Err(BusError::Timeout),
                    3 => Ok(value.to_le_bytes()[..usize::from(kind >> 4).min(8)].to_vec()),
                    _ => Ok(value.to_le_bytes()[..length.min(8) as usize].to_vec()),
                });
            }
            4 => {
                let (queue, status) = (input.byte() % 3, input.number(2) as u16);
                self.controller.serve(&mut self.wires, queue.into(), status);
            }
            5 => {
                let queue = input.byte() % 3;
                let completion = input.number(8).to_le_bytes();
                let rest = input.number(8).to_le_bytes();
                let completion = [completion, rest].concat().try_into().expect("sixteen bytes");
                self.controller.complete(&mut self.wires, queue.into(), completion);
            }
            6 => {
                let (at, bytes) = (input.below(DATA - 8), input.number(8).to_le_bytes());
                self.wires.store(at, &bytes);
                self.controller.confused = true;
            }
            7 => self.controller.lies.push((input.number(2) as usize, input.byte())),
            8..=10 => self.submit(input),
            11 => self.nvme.reset(&mut self.wires, self.now),
            12 => {
                let id = input.below(self.fates.len() as u64 + 1);
                self.nvme.abort(&mut self.wires, self.now, id);
            }
            13 => {
                self.now = self.nvme.deadline().unwrap_or(self.now).max(self.now);
                self.poll();
            }
            14 => {
                self.nvme.on_reset();
                self.take();
                assert!(!self.fates.contains(&Fate::Outstanding) && !self.fates.contains(&Fate::Held));
                self.nvme.reset(&mut self.wires, self.now);
            }
            _ => match input.byte() % 3 {
                0 => self.nvme.stop(&mut self.wires, self.now),
                1 => self.nvme.halt(&mut self.wires, self.now),
                _ => self.nvme.start(&mut self.wires, self.now),
            },
        }
    }

    fn submit(&mut self, input: &mut Input<'_>) {
        let (kind, lba) = (input.byte(), input.number(4));
        let pmr = self.pmr && kind & 8 != 0;
        let piece = |input: &mut Input<'_>| {
            let (at, length) = (input.below(0x100) << 12, u64::from(input.byte() % 64 + 1) * 512);
            let length = length.min(OWN.length - DATA - at);
            Window { address: if pmr { PMR.address } else { OWN.address + DATA } + at, length }
        };
        let data: Vec<Window> = (0..kind >> 4).map(|_| piece(input)).collect();
        let request = match kind % 4 {
            0 => Request::Flush,
            1 => Request::Write { lba, data: &data, durable: kind & 4 != 0 },
            _ => Request::Read { lba, data: &data },
        };
        let id = self.fates.len() as u64;
        if self.nvme.submit(&mut self.wires, self.now, id, &request).is_ok() {
            self.fates.push(Fate::Outstanding);
        }
    }

    fn take(&mut self) {
        while let Some(ended) = self.nvme.finished() {
            let fate = &mut self.fates[ended.id as usize];
            assert_eq!(*fate, Fate::Outstanding, "{ended:?} ended twice");
            *fate = if ended.memory == Memory::Held { Fate::Held } else { Fate::Over };
        }
        while let Some(id) = self.nvme.freed() {
            let fate = &mut self.fates[id as usize];
            assert_eq!(*fate, Fate::Held, "{id} is free twice");
            *fate = Fate::Over;
        }
    }

    /// Silences the controller: all outstanding commands must end anyway.
    fn finish(&mut self) {
        for _ in 0..1000 {
            if self.nvme.outstanding() == 0 && !matches!(self.nvme.state(), State::Starting) {
                break;
            }
            self.now = self.nvme.deadline().expect("somebody waits for ever").max(self.now) + 500_000_000;
            self.poll();
            self.take();
        }
        self.take();
        assert!(!self.fates.contains(&Fate::Outstanding), "{:?} {:?}", self.nvme.state(), self.fates);
    }
}
