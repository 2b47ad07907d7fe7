//! A guest in memory, and a driver made for tests: it writes entries, rings doorbells, and reads completions.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use dcs_csd::storage::ModelStorage;
use dcs_csd::{
    Activity, Config, Controller, Direction, DriveId, Drives, HostError, HostPort, Namespace, Piece, Storage,
    VolumeId, Workers,
};
use dcs_nvme::command::{self, Command, CreateCompletionQueue, CreateSubmissionQueue, admin};
use dcs_nvme::register::{self, Configuration};
use dcs_nvme::{AdminQueueSizes, Completion, DataPointer, Status, completion, identify};
use dcs_vfio::Mapping;

/// First address and size of the guest's memory.
pub const BASE: u64 = 0x1_0000_0000;
pub const LENGTH: u64 = 8 << 20;

/// Addresses in it.
pub const ADMIN_SUBMISSIONS: u64 = BASE;
pub const ADMIN_COMPLETIONS: u64 = BASE + 0x1000;
pub const SUBMISSIONS: u64 = BASE + 0x1_0000;
pub const COMPLETIONS: u64 = BASE + 0x2_0000;
pub const LISTS: u64 = BASE + 0x3_0000;
pub const SHADOW: u64 = BASE + 0x8_0000;
pub const DATA: u64 = BASE + 0x10_0000;

/// Entries of the queues that the driver makes.
pub const ENTRIES: u32 = 8;

/// The guest, as the controller reaches it.
#[derive(Clone)]
pub struct Guest {
    pub memory: Arc<Mapping>,
    pub interrupts: Arc<Mutex<Vec<u16>>>,
    /// Its port's clock, in nanoseconds.
    pub clock: Arc<AtomicU64>,
    /// Time that each reading of the clock takes.
    pub tick: Arc<AtomicU64>,
    /// Address of a page that cannot be reached for now; 0: none.
    pub gone: Arc<AtomicU64>,
    /// The kernel may reach the memory.
    pub direct: bool,
}

impl Guest {
    pub fn new(direct: bool) -> Guest {
        // Of a file in memory: only what is used takes room.
        let file = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, LENGTH).unwrap();
        let memory = Arc::new(Mapping::file(file.as_fd(), 0, LENGTH, true).unwrap());
        let (interrupts, clock, tick, gone) = Default::default();
        Guest { memory, interrupts, clock, tick, gone, direct }
    }

    fn place(&self, address: u64, length: u64) -> Result<u64, HostError> {
        let offset = address.checked_sub(BASE).ok_or(HostError)?;
        let end = offset.checked_add(length).ok_or(HostError)?;
        let gone = self.gone.load(Ordering::Relaxed);
        let is_there = gone == 0 || address + length <= gone || gone + 4096 <= address;
        if end <= LENGTH && is_there { Ok(offset) } else { Err(HostError) }
    }

    pub fn load<const N: usize>(&self, address: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.load(address - BASE, &mut bytes);
        bytes
    }

    pub fn bytes(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.load(address - BASE, &mut bytes);
        bytes
    }

    pub fn store(&self, address: u64, bytes: &[u8]) {
        self.memory.store(address - BASE, bytes);
    }
}

impl HostPort for Guest {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), HostError> {
        self.memory.load(self.place(address, bytes.len() as u64)?, bytes);
        Ok(())
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), HostError> {
        self.memory.store(self.place(address, bytes.len() as u64)?, bytes);
        Ok(())
    }

    fn direct(&mut self, address: u64, length: u64, _: Direction) -> Option<Piece> {
        let offset = self.place(address, length).ok().filter(|_| self.direct)?;
        Piece::new(self.memory.clone(), offset, length)
    }

    fn uptime(&mut self) -> u64 {
        self.clock.fetch_add(self.tick.load(Ordering::Relaxed), Ordering::Relaxed)
    }

    fn interrupt(&mut self, vector: u16) {
        self.interrupts.lock().unwrap().push(vector);
    }
}

/// Makes a storage in memory that answers at once, with one volume of this many bytes.
pub fn disk(length: usize) -> ModelStorage {
    let mut storage = ModelStorage::new(0);
    storage.add(length, 512);
    storage
}

/// A drive, its guest and its storage.
pub struct Machine<S> {
    pub drives: Drives<Guest, S>,
    pub drive: DriveId,
    pub controller: Arc<Mutex<Controller>>,
    pub guest: Guest,
    /// Of each queue: tail of submissions, head of completions, phase.
    queues: [(u32, u32, bool); 4],
    cid: u16,
}

/// Polls after which the driver gives up waiting.
pub const POLLS_MAX: usize = 100_000;

impl<S: Storage> Machine<S> {
    /// A drive that is not enabled, with its guest.
    pub fn new(config: Config, storage: S, direct: bool) -> Machine<S> {
        Machine::with_window(config, storage, direct, 64)
    }

    /// The same, whose storage has that many commands at once at most.
    pub fn with_window(config: Config, storage: S, direct: bool, window: usize) -> Machine<S> {
        Machine::of(config, Drives::new(storage, window), direct)
    }

    /// The same, with slots for operators' work.
    pub fn with_workers(config: Config, storage: S, workers: Box<dyn Workers>) -> Machine<S> {
        let mut drives = Drives::new(storage, 64);
        drives.set_workers(workers);
        Machine::of(config, drives, true)
    }

    /// The first drive of these.
    pub fn of(config: Config, mut drives: Drives<Guest, S>, direct: bool) -> Machine<S> {
        let controller = Arc::new(Mutex::new(Controller::new(config).unwrap()));
        let guest = Guest::new(direct);
        let drive = drives.add(controller.clone(), guest.clone(), 1);
        Machine { drives, drive, controller, guest, queues: [(0, 0, true); 4], cid: 0 }
    }

    /// Attaches the storage's first volume as namespace 1, enables the controller, and makes queue pair 1.
    pub fn up(mut self) -> Machine<S> {
        self.attach(1, VolumeId(0), 512);
        self.enable();
        self.create(1);
        self
    }

    /// Resets the controller, and brings it up as [`Machine::up`] does.
    pub fn again(&mut self) {
        self.write32(register::CC, 0);
        self.work();
        self.enable();
        self.create(1);
    }

    /// Adds another machine's drive to this one's, with the volume as its namespace 1, and brings it up. All drives are this machine's
    /// then, unless they are swapped.
    pub fn beside(&mut self, mut other: Machine<S>, volume: VolumeId, weight: u32) -> Machine<S> {
        other.drive = self.drives.add(other.controller.clone(), other.guest.clone(), weight);
        self.swap(&mut other);
        other.attach(1, volume, 512);
        other.enable();
        other.create(1);
        self.swap(&mut other);
        other
    }

    /// Gives the drives to another machine, which runs them then.
    pub fn swap(&mut self, other: &mut Machine<S>) {
        std::mem::swap(&mut self.drives, &mut other.drives);
    }

    pub fn controller(&self) -> MutexGuard<'_, Controller> {
        self.controller.lock().unwrap()
    }

    /// A namespace with all of a volume.
    pub fn attach(&mut self, number: u32, volume: VolumeId, block: u64) {
        let storage = self.drives.storage();
        let info = storage.volume(volume).unwrap();
        let namespace = Namespace::new(number, volume, &info, block).unwrap();
        self.controller.lock().unwrap().attach(namespace, storage).unwrap();
    }

    pub fn write32(&mut self, offset: u64, value: u32) {
        self.controller().register_write(offset, &value.to_le_bytes());
    }

    pub fn read32(&self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.controller().register_read(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// Runs the drive until it has nothing to do.
    pub fn work(&mut self) {
        for _ in 0..POLLS_MAX {
            if self.drives.poll() == Activity::Idle && !self.drives.arm() {
                return;
            }
        }
        panic!("the drive never rests");
    }

    /// Runs the drive for one command; the storage answers none.
    pub fn step(&mut self) {
        let mut controller = self.controller.lock().unwrap();
        assert!(controller.step(0, &mut self.guest, self.drives.storage_mut()).is_some());
    }

    /// Enables the controller, with admin queues of 8 entries.
    pub fn enable(&mut self) {
        self.enable_sets(0);
    }

    /// The same, with these command sets (CC.CSS).
    pub fn enable_sets(&mut self, command_set: u8) {
        let sizes = AdminQueueSizes { submissions: ENTRIES as u16, completions: ENTRIES as u16 };
        self.write32(register::AQA, sizes.bits());
        for (register, address) in [(register::ASQ, ADMIN_SUBMISSIONS), (register::ACQ, ADMIN_COMPLETIONS)] {
            self.controller().register_write(register, &address.to_le_bytes());
        }
        self.write32(
            register::CC,
            Configuration { enabled: true, command_set, ..Configuration::new(12) }.bits(),
        );
        self.work();
        assert_eq!(self.read32(register::CSTS), 1);
        self.queues = [(0, 0, true); 4];
        self.guest.store(ADMIN_COMPLETIONS, &[0; 4096]);
    }

    /// Creates queue pair `queue`, 1 to 3.
    pub fn create(&mut self, queue: u16) {
        let at = u64::from(queue) * 0x1000;
        self.guest.store(COMPLETIONS + at, &[0; 4096]);
        let (entries, contiguous) = (ENTRIES, true);
        let words =
            CreateCompletionQueue { queue, entries, contiguous, interrupts: true, vector: queue }.words();
        let pointer = |address| DataPointer::Prp(address, 0);
        let (opcode, data) = (admin::CREATE_COMPLETION_QUEUE, pointer(COMPLETIONS + at));
        assert_eq!(self.admin(Command { opcode, data, words, ..Command::default() }).status, Status::SUCCESS);
        let words =
            CreateSubmissionQueue { queue, entries, contiguous, priority: 0, completion_queue: queue }
                .words();
        let (opcode, data) = (admin::CREATE_SUBMISSION_QUEUE, pointer(SUBMISSIONS + at));
        assert_eq!(self.admin(Command { opcode, data, words, ..Command::default() }).status, Status::SUCCESS);
        self.queues[usize::from(queue)] = (0, 0, true);
    }

    /// Writes an entry, and rings; its cid.
    pub fn submit(&mut self, queue: u16, command: Command) -> u16 {
        self.submit_bytes(queue, command.bytes())
    }

    /// The same, of any bytes; the cid is put in.
    pub fn submit_bytes(&mut self, queue: u16, mut entry: [u8; command::SIZE]) -> u16 {
        let cid = self.cid;
        entry[2..4].copy_from_slice(&cid.to_le_bytes());
        self.cid = self.cid.wrapping_add(1);
        let base = match queue {
            0 => ADMIN_SUBMISSIONS,
            queue => SUBMISSIONS + u64::from(queue) * 0x1000,
        };
        let tail = &mut self.queues[usize::from(queue)].0;
        let at = base + u64::from(*tail) * command::SIZE as u64;
        *tail = (*tail + 1) % ENTRIES;
        let tail = *tail;
        self.guest.store(at, &entry);
        self.write32(register::tail_doorbell(queue, 4), tail);
        cid
    }

    /// The next command has the identifier of the last one.
    pub fn same_identifier_again(&mut self) -> u16 {
        self.cid = self.cid.wrapping_sub(1);
        self.cid
    }

    /// Takes the next completion of a queue, if there is one, and rings the head doorbell.
    pub fn reap(&mut self, queue: u16) -> Option<Completion> {
        let done = self.peek(queue)?;
        let head = self.queues[usize::from(queue)].1;
        self.write32(register::head_doorbell(queue, 4), head);
        Some(done)
    }

    /// The same without ringing.
    pub fn peek(&mut self, queue: u16) -> Option<Completion> {
        let base = match queue {
            0 => ADMIN_COMPLETIONS,
            queue => COMPLETIONS + u64::from(queue) * 0x1000,
        };
        let (_, head, phase) = &mut self.queues[usize::from(queue)];
        let entry = self.guest.load(base + u64::from(*head) * completion::SIZE as u64);
        let done = Completion::from_bytes(&entry);
        if done.phase != *phase {
            return None;
        }
        *head = (*head + 1) % ENTRIES;
        *phase ^= *head == 0;
        Some(done)
    }

    /// A command, and its end.
    pub fn run(&mut self, queue: u16, command: Command) -> Completion {
        let cid = self.submit(queue, command);
        self.work();
        let done = self.reap(queue).expect("a completion");
        assert_eq!((done.cid, done.submission_queue), (cid, queue));
        done
    }

    pub fn admin(&mut self, command: Command) -> Completion {
        self.run(0, command)
    }

    /// Identify data, and how the command ended.
    pub fn identify(&mut self, structure: u8, namespace: u32) -> (Status, [u8; identify::SIZE]) {
        self.identify_of(structure, 0, 0, namespace)
    }

    /// The same, with CNTID and CSI.
    pub fn identify_of(
        &mut self,
        structure: u8,
        controller: u16,
        set: u8,
        namespace: u32,
    ) -> (Status, [u8; identify::SIZE]) {
        self.guest.store(DATA, &[0xee; identify::SIZE]);
        let done = self.admin(Command {
            opcode: admin::IDENTIFY,
            namespace,
            data: DataPointer::Prp(DATA, 0),
            words: [u32::from(controller) << 16 | u32::from(structure), u32::from(set) << 24, 0, 0, 0, 0],
            ..Command::default()
        });
        (done.status, self.guest.load(DATA))
    }
}
