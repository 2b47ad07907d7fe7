//! Drives on SSDs that the process drives itself: models, in virtual time.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use dcs_csd::storage::{SsdBus, SsdStorage};
use dcs_csd::{Config, Storage};
use dcs_drivers::bus::{Bus, ReadDone, Tag, Window};
use dcs_drivers::nvme::State;
use dcs_fabric::{Event, Fabric, Fault, FunctionId, Rate, Rule, Timing, When, nvme};
use dcs_nvme::command::{Blocks, Command, nvm};
use dcs_nvme::{Completion, DataPointer, Status};
use dcs_testkit::Random;

use crate::rig::{DATA, LISTS, Machine};

/// Bytes of the memory that the SSD reaches.
const OWN: u64 = 16 << 20;

/// A process that drives an SSD of the fabric's.
#[derive(Clone)]
struct Process {
    fabric: Rc<RefCell<Fabric>>,
    own: FunctionId,
    ssd: FunctionId,
}

impl Bus for Process {
    fn window(&self) -> Window {
        self.fabric.borrow_mut().port(self.own).window()
    }

    fn load(&self, offset: u64, bytes: &mut [u8]) {
        self.fabric.borrow_mut().port(self.own).load(offset, bytes);
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        self.fabric.borrow_mut().port(self.own).store(offset, bytes);
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        self.fabric.borrow_mut().port(self.own).write(address, bytes);
    }

    fn read(&mut self, address: u64, length: u32, tag: Tag) {
        self.fabric.borrow_mut().port(self.own).read(address, length, tag);
    }

    fn interrupt(&mut self, _: u16) {}
}

impl SsdBus for Process {
    /// Lets the fabric do one thing.
    fn answer(&mut self) -> Option<ReadDone> {
        let until = self.now() + 100_000;
        match self.fabric.borrow_mut().step(Some(Duration::from_nanos(until))) {
            Some(Event::Read { done, .. }) => Some(done),
            _ => None,
        }
    }

    fn now(&mut self) -> u64 {
        self.fabric.borrow().now().as_nanos() as u64
    }
}

/// An SSD that is up, and the process that drives it.
fn ssd(config: nvme::Config) -> (SsdStorage<Process>, Process) {
    let mut fabric = Fabric::new(Timing::default(), 1 << 20, 1);
    let own = fabric.add_endpoint("process", Rate::GEN3_X4, &[OWN]);
    let ssd = fabric.add_device("ssd", Rate::GEN3_X4, nvme::Nvme::new(config));
    fabric.set_bus_master(own, true);
    fabric.set_bus_master(ssd, true);
    let registers = fabric.bar(ssd, 0);
    let process = Process { fabric: Rc::new(RefCell::new(fabric)), own, ssd };
    assert!(SsdStorage::<Process>::memory() <= OWN);
    let mut storage = SsdStorage::new(process.clone(), registers, None).unwrap();
    storage.start();
    while storage.state() == State::Starting {
        storage.look();
    }
    assert_eq!(storage.state(), State::Ready);
    (storage, process)
}

/// A drive with a namespace of this many bytes at this place of the SSD.
fn drive(
    mut storage: SsdStorage<Process>,
    (offset, length): (u64, u64),
    block: u64,
    direct: bool,
) -> Machine<SsdStorage<Process>> {
    let volume = storage.add(offset, length, false).unwrap();
    let mut machine = Machine::new(Config::new("ssd"), storage, direct);
    machine.attach(1, volume, block);
    machine.enable();
    machine.create(1);
    machine
}

fn run(machine: &mut Machine<SsdStorage<Process>>, command: Command) -> Completion {
    machine.submit(1, command);
    for _ in 0..1_000_000 {
        machine.drives.poll();
        if let Some(done) = machine.reap(1) {
            return done;
        }
    }
    panic!("the drive never answers");
}

/// Moves this many bytes between `DATA` and this place of the namespace.
fn moves(opcode: u8, (first, count): (u64, u32), bytes: usize) -> Command {
    // The second of two pages stands in the command itself.
    let second = if bytes <= 8192 { DATA + 4096 } else { LISTS };
    let words = Blocks { first, count, durable: false }.words();
    Command { opcode, namespace: 1, data: DataPointer::Prp(DATA, second), words, ..Command::default() }
}

/// Guests' commands of all sizes against an array, on SSDs of several kinds, straight and by a copy.
#[test]
fn a_drive_on_an_ssd_has_what_was_written() {
    let kinds = [
        (nvme::Config::default(), 512, true),
        (nvme::Config { mdts: 1, entries: 2, ..nvme::Config::default() }, 4096, false),
        (
            nvme::Config { namespaces: vec![nvme::Namespace::new(1 << 14, 12)], ..nvme::Config::default() },
            4096,
            true,
        ),
    ];
    for (seed, (kind, block, direct)) in kinds.into_iter().enumerate() {
        let medium = kind.namespaces[0].clone();
        let (storage, _) = ssd(kind);
        let (size, _) = storage.size().unwrap();
        let (offset, length) = (1 << 20, 2 << 20);
        assert!(offset + length < size, "{size}");
        let mut machine = drive(storage, (offset, length), block, direct);
        let (_, identity) = machine.identify(0, 1);
        assert_eq!(identity[33], 0, "nothing is said of deallocated blocks, which stay as they are");
        // Whatever lay there.
        let mut array = vec![0; length as usize];
        medium.load(offset, &mut array);
        let mut before = vec![0; size as usize];
        medium.load(0, &mut before);
        let mut random = Random(seed as u64);
        // All pages of the buffer, one after the other.
        let list: Vec<u8> = (1..200u64).flat_map(|page| (DATA + page * 4096).to_le_bytes()).collect();
        machine.guest.store(LISTS, &list);
        for _ in 0..60 {
            let blocks = length / block;
            let first = random.below(blocks);
            let count = (1 + random.below((600 << 10) / block)).min(blocks - first);
            let (at, bytes) = ((first * block) as usize, (count * block) as usize);
            let count = count as u32;
            match random.below(8) {
                0..3 => {
                    let content = random.bytes(bytes);
                    machine.guest.store(DATA, &content);
                    assert_eq!(
                        run(&mut machine, moves(nvm::WRITE, (first, count), bytes)).status,
                        Status::SUCCESS
                    );
                    array[at..at + bytes].copy_from_slice(&content);
                }
                3 => {
                    assert_eq!(
                        run(&mut machine, moves(nvm::WRITE_ZEROES, (first, count), bytes)).status,
                        Status::SUCCESS
                    );
                    array[at..at + bytes].fill(0);
                }
                4 => {
                    let flush = Command { opcode: nvm::FLUSH, namespace: 1, ..Command::default() };
                    assert_eq!(run(&mut machine, flush).status, Status::SUCCESS);
                }
                _ => {
                    assert_eq!(
                        run(&mut machine, moves(nvm::READ, (first, count), bytes)).status,
                        Status::SUCCESS
                    );
                    assert!(machine.guest.bytes(DATA, bytes) == array[at..at + bytes]);
                }
            }
        }
        let mut after = vec![0; size as usize];
        medium.load(0, &mut after);
        before[offset as usize..][..array.len()].copy_from_slice(&array);
        assert!(after == before, "something beside the volume has changed, or it is not on the SSD");
        assert!(!machine.drives.storage().is_busy());
    }
}

#[test]
fn volumes_that_an_ssd_does_not_have_are_refused() {
    let (mut storage, _) = ssd(nvme::Config::default());
    let (size, block) = storage.size().unwrap();
    for (offset, length) in
        [(0, 0), (0, size + block), (size, block), (u64::MAX - 511, 512), (1, block), (0, block + 1)]
    {
        assert!(storage.add(offset, length, false).is_none(), "{offset} {length}");
    }
    let volume = storage.add(block, size - block, true).unwrap();
    assert!(!storage.resize(volume, size) && storage.resize(volume, block));
    let info = storage.volume(volume).unwrap();
    assert!((info.length, info.read_only, info.thin) == (block, true, false));
}

/// An SSD that fails, hangs or is removed fails its own commands, each once, and memory that it may still
/// write is not used again.
#[test]
fn an_ssd_that_fails_fails_its_own_commands() {
    for fault in [Fault::BadStatus(0x281), Fault::LoseCommand, Fault::Hang, Fault::HangHard, Fault::Remove] {
        let (storage, process) = ssd(nvme::Config::default());
        let mut machine = drive(storage, (0, 1 << 20), 512, true);
        let rule = Rule::once(When::Io(None), fault);
        process.fabric.borrow_mut().inject(process.ssd, rule);
        let cids: Vec<u16> =
            (0..4).map(|at| machine.submit(1, moves(nvm::READ, (at * 8, 8), 4096))).collect();
        let mut ended = Vec::new();
        for _ in 0..3_000_000 {
            machine.drives.poll();
            ended.extend(std::iter::from_fn(|| machine.reap(1)).map(|done| (done.cid, done.status)));
            if ended.len() == cids.len() {
                break;
            }
        }
        ended.sort_unstable_by_key(|(cid, _)| *cid);
        assert!(ended.iter().map(|(cid, _)| *cid).eq(cids), "{fault:?}: {ended:?}");
        let bad = ended.iter().filter(|(_, status)| status.is(Status::UNRECOVERED_READ_ERROR)).count();
        assert!(
            bad > 0 && ended.iter().all(|(_, status)| status.is_success() || status.kind() == 2),
            "{fault:?}: {ended:?}"
        );
        assert_eq!(machine.controller().outstanding(), 0);
    }
}
