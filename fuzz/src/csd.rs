//! Target for a virtual drive: a guest that writes registers, entries and lists as it likes.

use std::sync::{Arc, Mutex};

use dcs_csd::near::Builder;
use dcs_csd::storage::ModelStorage;
use dcs_csd::{
    Activity, Chain, Config, Controller, Direction, Drives, HostError, HostPort, Namespace, Piece, Storage,
    VolumeError, VolumeId,
};
use dcs_vfio::Mapping;
use dcs_wasm::{Limits, Module};

/// Addresses in the guest's memory.
const BASE: u64 = 0x4000_0000;
const LENGTH: u64 = 1 << 20;
const ADMIN: u64 = BASE;
const QUEUES: u64 = BASE + 0x4000;
const LISTS: u64 = BASE + 0x1_0000;
const DATA: u64 = BASE + 0x4_0000;

/// Bytes of the namespaces' volumes; the bytes behind them belong to no namespace.
const VOLUME: usize = 64 << 10;
const GUARD: usize = 16 << 10;
const NOBODYS: u8 = 0xa7;

/// Entries of queues.
const ENTRIES: u32 = 8;

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

/// The guest's memory, which changes only where the drive may write.
#[derive(Clone)]
struct Guest {
    memory: Arc<Mapping>,
    direct: bool,
    vectors: u16,
}

impl Guest {
    fn place(address: u64, length: u64) -> Result<u64, HostError> {
        let offset = address.checked_sub(BASE).ok_or(HostError)?;
        let end = offset.checked_add(length).ok_or(HostError)?;
        if end <= LENGTH { Ok(offset) } else { Err(HostError) }
    }

    fn store(&self, address: u64, bytes: &[u8]) {
        if let Ok(offset) = Guest::place(address, bytes.len() as u64) {
            self.memory.store(offset, bytes);
        }
    }
}

impl HostPort for Guest {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), HostError> {
        self.memory.load(Guest::place(address, bytes.len() as u64)?, bytes);
        Ok(())
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), HostError> {
        self.memory.store(Guest::place(address, bytes.len() as u64)?, bytes);
        Ok(())
    }

    fn direct(&mut self, address: u64, length: u64, _: Direction) -> Option<Piece> {
        let offset = Guest::place(address, length).ok().filter(|_| self.direct)?;
        Piece::new(self.memory.clone(), offset, length)
    }

    fn uptime(&mut self) -> u64 {
        0
    }

    fn interrupt(&mut self, vector: u16) {
        assert!(vector < self.vectors, "interrupt {vector}");
    }
}

/// Makes operators from programs that the guest loads, with small limits, so that a run is short.
fn builder() -> Builder {
    Arc::new(|bytes| {
        let limits = Limits { fuel: 20_000, fuel_per_byte: 10, memory: 2 << 16 };
        let module = Module::load(bytes, limits).ok()?;
        Some((*module.name(), Arc::new(module)))
    })
}

/// A drive and its guest.
struct Machine {
    drives: Drives<Guest, ModelStorage>,
    controller: Arc<Mutex<Controller>>,
    guest: Guest,
    /// True if it has the standard's command sets, and the guest has selected them.
    programs: bool,
    tails: [u32; 3],
}

impl Machine {
    fn new(direct: bool, chain: bool, programs: bool) -> Machine {
        let mut storage = ModelStorage::new(0);
        let config = Config {
            queues: 2,
            commands: 6,
            buffers: 2,
            memory: 8192,
            // Local memory is namespace 3, programs are namespace 4.
            namespaces: 2,
            programs,
            ..Config::new("fuzz")
        };
        let controller = Arc::new(Mutex::new(Controller::new(config).expect("a good one")));
        if programs {
            controller.lock().unwrap().set_builder(builder());
        }
        for number in [1, 2] {
            let volume = storage.add(VOLUME + GUARD, 512);
            storage.bytes_mut(volume)[VOLUME..].fill(NOBODYS);
            let info = storage.volume(volume).expect("it is there");
            let mut namespace = Namespace::new(number, volume, &info, 512).expect("a good one");
            namespace.blocks = VOLUME as u64 / 512;
            if chain && number == 2 {
                let key = std::array::from_fn(|at| at as u8);
                namespace.chain = Some(Arc::new(Chain::aes256_xts(&key).expect("two halves")));
            }
            controller.lock().unwrap().attach(namespace, &storage).expect("room for it");
        }
        let memory = Arc::new(Mapping::anonymous(LENGTH).expect("memory"));
        let vectors = controller.lock().unwrap().vectors();
        let guest = Guest { memory, direct, vectors };
        let mut drives = Drives::new(storage, 16);
        drives.add(controller.clone(), guest.clone(), 1);
        Machine { drives, controller, guest, programs, tails: [0; 3] }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        self.controller.lock().unwrap().register_write(offset, bytes);
    }

    /// Runs the drive until it is idle.
    fn work(&mut self) {
        for _ in 0..100_000 {
            if self.drives.poll() == Activity::Idle && !self.drives.arm() {
                return;
            }
        }
        panic!("the drive never rests");
    }

    fn submit(&mut self, queue: u16, entry: &[u8; 64]) {
        let tail = &mut self.tails[usize::from(queue)];
        let base = if queue == 0 { ADMIN } else { QUEUES + u64::from(queue) * 0x2000 };
        self.guest.store(base + u64::from(*tail) * 64, entry);
        *tail = (*tail + 1) % ENTRIES;
        let value = *tail;
        self.write(0x1000 + 8 * u64::from(queue), &value.to_le_bytes());
        // The guest takes all completions that it knows of.
        for head in 0..ENTRIES {
            self.write(0x1004, &head.to_le_bytes());
            self.write(0x1004 + 8 * u64::from(queue), &head.to_le_bytes());
        }
    }

    /// Resets and enables the controller, and creates both queue pairs.
    fn enable(&mut self) {
        self.write(0x14, &[0; 4]);
        self.work();
        self.tails = [0; 3];
        self.write(0x24, &((7u32 << 16) | 7).to_le_bytes());
        self.write(0x28, &ADMIN.to_le_bytes());
        self.write(0x30, &(ADMIN + 0x1000).to_le_bytes());
        let sets = if self.programs { 6 << 4 } else { 0 };
        self.write(0x14, &((4u32 << 20) | (6 << 16) | sets | 1).to_le_bytes());
        self.work();
        for queue in [1u16, 2] {
            for opcode in [5, 1] {
                let mut entry = [0; 64];
                entry[0] = opcode;
                let at = QUEUES + u64::from(queue) * 0x2000 + if opcode == 5 { 0x1000 } else { 0 };
                entry[24..32].copy_from_slice(&at.to_le_bytes());
                entry[40..44].copy_from_slice(&((7u32 << 16) | u32::from(queue)).to_le_bytes());
                entry[44..48].copy_from_slice(&((u32::from(queue) << 16) | 3).to_le_bytes());
                self.submit(0, &entry);
                self.work();
            }
        }
    }

    /// Returns an entry whose fields are mostly meaningful.
    fn entry(&self, input: &mut Input<'_>) -> [u8; 64] {
        let mut entry = [0; 64];
        entry[0] = input.byte();
        entry[1] = input.byte() & 0xc3;
        entry[2] = input.byte();
        entry[4] = input.byte() % if self.programs { 5 } else { 4 };
        entry[8..16].copy_from_slice(&input.number(8).to_le_bytes());
        if self.programs {
            entry[16..18].copy_from_slice(&(input.number(2) as u16).to_le_bytes());
        }
        let place = |input: &mut Input<'_>| match input.byte() {
            0 => 0,
            1 => LISTS + input.number(1) * 8,
            2 => input.number(8),
            3 => BASE + LENGTH - input.number(2),
            _ => DATA + input.number(1) * 512,
        };
        entry[24..32].copy_from_slice(&place(input).to_le_bytes());
        let second = match entry[1] >> 6 {
            0 => place(input),
            _ => input.number(3) | u64::from(input.byte() & 0x3f) << 56,
        };
        entry[32..40].copy_from_slice(&second.to_le_bytes());
        for word in entry[40..].chunks_exact_mut(4) {
            let size = match input.byte() & 7 {
                4 => 4,
                size => usize::from(size & 3),
            };
            word.copy_from_slice(&(input.number(size) as u32).to_le_bytes());
        }
        entry
    }

    fn act(&mut self, input: &mut Input<'_>) {
        match input.byte() % 12 {
            0 => {
                let (offset, length) = (input.number(2), usize::from(input.byte() % 12));
                let bytes = input.bytes(length).to_vec();
                self.write(offset, &bytes);
                let mut read = [0; 16];
                self.controller.lock().unwrap().register_read(offset, &mut read);
            }
            1 => {
                let (at, length) = (LISTS + input.number(1) * 8, usize::from(input.byte()));
                self.guest.store(at, input.bytes(length));
            }
            2 => {
                let (at, length) = (DATA + input.number(1) * 8, usize::from(input.byte()));
                self.guest.store(at, input.bytes(length));
            }
            3 => self.enable(),
            4 => self.controller.lock().unwrap().reset(),
            5 => drop(self.controller.lock().unwrap().detach(u32::from(input.byte()) & 3)),
            6 => {
                let (number, blocks) = (u32::from(input.byte()) & 3, input.number(1));
                let storage = self.drives.storage();
                let _ = self.controller.lock().unwrap().resize(number, blocks % 129, storage);
            }
            7 => self.drives.storage_mut().fail_next(match input.byte() % 3 {
                0 => VolumeError::Medium(5),
                1 => VolumeError::Full,
                _ => VolumeError::Refused,
            }),
            8 => drop(self.drives.poll()),
            9 => self.work(),
            _ => {
                let queue = u16::from(input.byte() % 3);
                let entry = self.entry(input);
                self.submit(queue, &entry);
            }
        }
    }
}

/// Checks that for any guest nothing panics, nothing outside of the namespaces changes, and after a reset the drive is as new.
pub fn csd(data: &[u8]) {
    let mut input = Input(data);
    let flags = input.byte();
    let mut machine = Machine::new(flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
    machine.enable();
    while !input.0.is_empty() {
        machine.act(&mut input);
    }
    machine.work();
    for volume in [0, 1] {
        let bytes = machine.drives.storage().bytes(VolumeId(volume));
        assert!(bytes[VOLUME..].iter().all(|byte| *byte == NOBODYS), "beyond the namespace");
    }
    machine.controller.lock().unwrap().reset();
    machine.work();
    assert_eq!(machine.controller.lock().unwrap().outstanding(), 0);
    assert_eq!(machine.controller.lock().unwrap().loaded(), (0, 0));
    assert_eq!(machine.controller.lock().unwrap().operator_memory(), 0);
    machine.enable();
    let mut status = [0; 4];
    machine.controller.lock().unwrap().register_read(0x1c, &mut status);
    assert_eq!(status, [1, 0, 0, 0], "CSTS");
}
