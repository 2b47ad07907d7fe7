//! A raw NVMe host in a card's memory, for tests of the model: it builds entries by hand and trusts nothing.

use std::time::Duration;

use dcs_drivers::bus::Bus;
use dcs_fabric::nvme::{Config, Nvme};
use dcs_fabric::{Event, Fabric, FunctionId, Rate, Timing};

/// Offsets in the card's memory.
pub const ASQ: u64 = 0;
pub const ACQ: u64 = 0x1000;
pub const DATA: u64 = 0x10_0000;
const QUEUES: u64 = 0x1_0000;

pub struct Host {
    pub fabric: Fabric,
    pub card: FunctionId,
    pub ssd: FunctionId,
    stride: u64,
    queues: Vec<Pair>,
    next_cid: u16,
}

/// A queue pair as the host keeps it.
#[derive(Clone, Copy)]
struct Pair {
    submission: u64,
    completion: u64,
    size: u16,
    tail: u16,
    head: u16,
    phase: bool,
}

/// A completion queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub result: u32,
    pub head: u16,
    pub queue: u16,
    pub cid: u16,
    /// SCT and SC.
    pub status: u16,
}

/// A command: the fields that tests set.
#[derive(Clone, Copy, Default)]
pub struct Cmd {
    pub opcode: u8,
    /// PSDT and FUSE, in place.
    pub flags: u8,
    pub nsid: u32,
    pub data: [u64; 2],
    pub dwords: [u32; 6],
}

impl Cmd {
    pub fn entry(&self, cid: u16) -> [u8; 64] {
        let mut entry = [0; 64];
        entry[0] = self.opcode;
        entry[1] = self.flags;
        entry[2..4].copy_from_slice(&cid.to_le_bytes());
        entry[4..8].copy_from_slice(&self.nsid.to_le_bytes());
        entry[24..32].copy_from_slice(&self.data[0].to_le_bytes());
        entry[32..40].copy_from_slice(&self.data[1].to_le_bytes());
        for (i, dword) in self.dwords.iter().enumerate() {
            entry[40 + 4 * i..44 + 4 * i].copy_from_slice(&dword.to_le_bytes());
        }
        entry
    }

    /// A read (2) or write (1) of namespace 1.
    pub fn blocks(opcode: u8, lba: u64, count: u32, data: [u64; 2]) -> Cmd {
        let dwords = [lba as u32, (lba >> 32) as u32, count - 1, 0, 0, 0];
        Cmd { opcode, nsid: 1, data, dwords, ..Cmd::default() }
    }
}

impl Host {
    /// A card and an SSD on a fabric, nothing enabled.
    pub fn cold(config: Config) -> Host {
        let mut fabric = Fabric::new(Timing::default(), 1 << 30, 1);
        let card = fabric.add_endpoint("card", Rate::GEN3_X8, &[0x4000, 1 << 24]);
        let stride = 4 << config.stride;
        let ssd = fabric.add_device("ssd", Rate::GEN3_X4, Nvme::new(config));
        fabric.set_bus_master(card, true);
        fabric.set_bus_master(ssd, true);
        Host { fabric, card, ssd, stride, queues: Vec::new(), next_cid: 0 }
    }

    /// Returns a host whose controller is ready, with `pairs` I/O queue pairs of `size` entries.
    pub fn new(config: Config, pairs: u16, size: u16) -> Host {
        let mut host = Host::cold(config);
        host.enable();
        for pair in 1..=pairs {
            host.create(pair, size);
        }
        host
    }

    pub fn address(&mut self, offset: u64) -> u64 {
        self.fabric.port(self.card).window().address + offset
    }

    pub fn store(&mut self, offset: u64, bytes: &[u8]) {
        self.fabric.port(self.card).store(offset, bytes);
    }

    pub fn load(&mut self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.fabric.port(self.card).load(offset, &mut bytes);
        bytes
    }

    pub fn register(&mut self, offset: u64) -> u32 {
        let at = self.fabric.bar(self.ssd, 0).address + offset;
        u32::from_le_bytes(self.fabric.read(self.card, at, 4).unwrap().try_into().unwrap())
    }

    pub fn set_register(&mut self, offset: u64, value: u32) {
        let at = self.fabric.bar(self.ssd, 0).address + offset;
        self.fabric.port(self.card).write(at, &value.to_le_bytes());
    }

    pub fn wait(&mut self, time: Duration) {
        let until = self.fabric.now() + time;
        while self.fabric.step(Some(until)).is_some() {}
    }

    /// Disables the controller, and waits until it says so.
    pub fn disable(&mut self) {
        self.set_register(0x14, 0);
        while self.register(0x1c) & 1 == 1 {
            self.wait(Duration::from_micros(10));
        }
        assert_eq!(self.register(0x1c), 0);
    }

    /// Enables the controller and takes the admin queue into use.
    pub fn enable(&mut self) {
        let size = 32;
        let (asq, acq) = (self.address(ASQ), self.address(ACQ));
        self.store(ACQ, &[0; 0x1000]);
        self.set_register(0x24, u32::from(size - 1) << 16 | u32::from(size - 1));
        for (offset, value) in [(0x28, asq), (0x30, acq)] {
            self.set_register(offset, value as u32);
            self.set_register(offset + 4, (value >> 32) as u32);
        }
        self.set_register(0x14, 0x0046_0001);
        while self.register(0x1c) & 1 == 0 {
            self.wait(Duration::from_micros(100));
        }
        self.queues = vec![Pair { submission: ASQ, completion: ACQ, size, tail: 0, head: 0, phase: true }];
    }

    fn create(&mut self, number: u16, size: u16) {
        let submission = QUEUES + u64::from(number) * 0x8000;
        let completion = submission + 0x6000;
        self.store(completion, &[0; 0x2000]);
        let pair = Pair { submission, completion, size, tail: 0, head: 0, phase: true };
        let dword = u32::from(size - 1) << 16 | u32::from(number);
        let (sq, cq) = (self.address(submission), self.address(completion));
        let made = self.admin(Cmd {
            opcode: 5,
            data: [cq, 0],
            dwords: [dword, u32::from(number) << 16 | 3, 0, 0, 0, 0],
            ..Cmd::default()
        });
        assert_eq!(made.status, 0);
        let made = self.admin(Cmd {
            opcode: 1,
            data: [sq, 0],
            dwords: [dword, u32::from(number) << 16 | 1, 0, 0, 0, 0],
            ..Cmd::default()
        });
        assert_eq!(made.status, 0);
        assert_eq!(self.queues.len(), usize::from(number));
        self.queues.push(pair);
    }

    pub fn doorbell(&mut self, number: u64, value: u32) {
        self.set_register(0x1000 + number * self.stride, value);
    }

    /// Puts a command into a queue, without telling the controller.
    pub fn put(&mut self, queue: u16, command: Cmd) -> u16 {
        let cid = self.next_cid;
        self.next_cid = self.next_cid.wrapping_add(1) & 0x7fff;
        let pair = &mut self.queues[usize::from(queue)];
        let at = pair.submission + u64::from(pair.tail) * 64;
        pair.tail = (pair.tail + 1) % pair.size;
        self.store(at, &command.entry(cid));
        cid
    }

    pub fn ring(&mut self, queue: u16) {
        let tail = self.queues[usize::from(queue)].tail;
        self.doorbell(u64::from(queue) * 2, tail.into());
    }

    pub fn submit(&mut self, queue: u16, command: Cmd) -> u16 {
        let cid = self.put(queue, command);
        self.ring(queue);
        cid
    }

    /// Takes the next completion, if there is one, without telling the controller.
    pub fn peek(&mut self, queue: u16) -> Option<Done> {
        let pair = self.queues[usize::from(queue)];
        let entry = self.load(pair.completion + u64::from(pair.head) * 16, 16);
        let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        if (half(14) & 1 == 1) != pair.phase {
            return None;
        }
        let pair = &mut self.queues[usize::from(queue)];
        pair.head += 1;
        if pair.head == pair.size {
            pair.head = 0;
            pair.phase = !pair.phase;
        }
        Some(Done {
            result: u32::from_le_bytes(entry[..4].try_into().unwrap()),
            head: half(8),
            queue: half(10),
            cid: half(12),
            status: half(14) >> 1 & 0x7ff,
        })
    }

    pub fn take(&mut self, queue: u16) -> Option<Done> {
        let done = self.peek(queue)?;
        let head = self.queues[usize::from(queue)].head;
        self.doorbell(u64::from(queue) * 2 + 1, head.into());
        Some(done)
    }

    /// Waits for the next completion of a queue. Returns `None` if nothing is pending.
    pub fn next(&mut self, queue: u16) -> Option<Done> {
        loop {
            if let Some(done) = self.take(queue) {
                return Some(done);
            }
            self.fabric.step(None)?;
        }
    }

    pub fn run(&mut self, queue: u16, command: Cmd) -> Done {
        let cid = self.submit(queue, command);
        let done = self.next(queue).expect("a completion");
        assert_eq!((done.cid, done.queue), (cid, queue));
        done
    }

    pub fn admin(&mut self, command: Cmd) -> Done {
        self.run(0, command)
    }

    /// Returns the SSD's interrupts up to a time.
    pub fn interrupts(&mut self, until: Duration) -> Vec<u16> {
        let mut found = Vec::new();
        while let Some(event) = self.fabric.step(Some(until)) {
            if let Event::Interrupt { function, vector } = event {
                assert_eq!(function, self.ssd);
                found.push(vector);
            }
        }
        found
    }
}

/// Returns bytes that depend on their position.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    (0..length as u64).map(|i| (i.wrapping_mul(seed | 1).wrapping_add(seed) >> 3) as u8 ^ i as u8).collect()
}
