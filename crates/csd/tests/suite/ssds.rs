//! Drives on SSDs that the process drives itself: models, in virtual time.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use dcs_csd::storage::{Ssd, SsdBus, SsdStorage};
use dcs_csd::{Config, Storage};
use dcs_drivers::bus::{Bus, ReadDone, Tag, Window};
use dcs_drivers::nvme::State;
use dcs_fabric::{Event, Fabric, Fault, FunctionId, Rate, Rule, Timing, When, nvme};
use dcs_nvme::command::{Blocks, Command, Datasets, Range, admin, nvm};
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
    assert!(Ssd::<Process>::memory() <= OWN);
    let mut ssd = Ssd::new(process.clone(), registers, None).unwrap();
    ssd.start();
    while ssd.state() == State::Starting {
        ssd.look();
    }
    assert_eq!(ssd.state(), State::Ready);
    let mut storage = SsdStorage::default();
    assert_eq!(storage.add_ssd(ssd), 0);
    (storage, process)
}

/// A drive with a namespace of this many bytes at this place of the SSD.
fn drive(
    mut storage: SsdStorage<Process>,
    (offset, length): (u64, u64),
    block: u64,
    direct: bool,
) -> Machine<SsdStorage<Process>> {
    let volume = storage.add(&[(0, offset)], 0, length, false).unwrap();
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
        let (size, _) = storage.ssd(0).and_then(Ssd::size).unwrap();
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
    let (size, block) = storage.ssd(0).and_then(Ssd::size).unwrap();
    for (offset, length) in
        [(0, 0), (0, size + block), (size, block), (u64::MAX - 511, 512), (1, block), (0, block + 1)]
    {
        assert!(storage.add(&[(0, offset)], 0, length, false).is_none(), "{offset} {length}");
    }
    let volume = storage.add(&[(0, block)], 0, size - block, true).unwrap();
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

/// SSDs that are up, on one fabric, and the process that drives them.
fn several(kinds: Vec<nvme::Config>) -> (SsdStorage<Process>, Vec<FunctionId>, Rc<RefCell<Fabric>>) {
    let mut fabric = Fabric::new(Timing::default(), 1 << 20, 1);
    let places: Vec<(FunctionId, FunctionId)> = kinds
        .into_iter()
        .map(|kind| {
            let own = fabric.add_endpoint("process", Rate::GEN3_X4, &[OWN]);
            let ssd = fabric.add_device("ssd", Rate::GEN3_X4, nvme::Nvme::new(kind));
            fabric.set_bus_master(own, true);
            fabric.set_bus_master(ssd, true);
            (own, ssd)
        })
        .collect();
    let registers: Vec<_> = places.iter().map(|(_, ssd)| fabric.bar(*ssd, 0)).collect();
    let fabric = Rc::new(RefCell::new(fabric));
    let mut storage = SsdStorage::default();
    for ((own, ssd), registers) in places.iter().zip(registers) {
        let process = Process { fabric: fabric.clone(), own: *own, ssd: *ssd };
        let mut ssd = Ssd::new(process, registers, None).unwrap();
        ssd.start();
        while ssd.state() == State::Starting {
            ssd.look();
        }
        storage.add_ssd(ssd);
    }
    (storage, places.into_iter().map(|(_, ssd)| ssd).collect(), fabric)
}

/// An SSD that is dead, and does not come back: its drive ends commands with the statuses that the
/// specification names, and answers admin commands, resets and is removed as ever, also while nobody knows
/// yet that the SSD is dead. A drive on another SSD goes on.
#[test]
fn a_drive_on_a_dead_ssd_answers_and_others_go_on() {
    let identify = Command {
        opcode: admin::IDENTIFY,
        data: DataPointer::Prp(DATA, 0),
        words: [1, 0, 0, 0, 0, 0],
        ..Command::default()
    };
    let read = moves(nvm::READ, (0, 8), 4096);
    let compare = moves(nvm::COMPARE, (0, 8), 4096);
    let flush = Command { opcode: nvm::FLUSH, namespace: 1, ..Command::default() };
    for fault in [Fault::HangHard, Fault::Remove] {
        let (mut storage, ssds, fabric) = several(vec![nvme::Config::default(); 2]);
        let volume = [0, 1].map(|ssd| storage.add(&[(ssd, 0)], 0, 1 << 20, false).unwrap());
        let mut dead = Machine::new(Config::new("dead"), storage, true);
        dead.attach(1, volume[0], 512);
        dead.enable();
        dead.create(1);
        let other = Machine::new(Config::new("other"), SsdStorage::default(), true);
        let mut other = dead.beside(other, volume[1], 1);
        let mut others_go_on = |dead: &mut Machine<_>| {
            dead.swap(&mut other);
            assert_eq!(other.admin(identify).status, Status::SUCCESS);
            assert_eq!(run(&mut other, read).status, Status::SUCCESS);
            dead.swap(&mut other);
        };
        fabric.borrow_mut().inject(ssds[0], Rule::once(When::Io(None), fault));
        dead.submit(1, read);
        (0..100).for_each(|_| _ = dead.drives.poll());
        for _ in 0..10 {
            assert_eq!(dead.reap(1), None, "nobody knows yet");
            assert_eq!(dead.admin(identify).status, Status::SUCCESS);
            others_go_on(&mut dead);
        }
        let first = std::iter::repeat_with(|| (dead.drives.poll(), dead.reap(1)).1).take(3_000_000).flatten();
        assert!(first.take(1).all(|done| done.status.is(Status::UNRECOVERED_READ_ERROR)), "{fault:?}");
        assert_eq!(dead.controller().outstanding(), 0);
        for _ in 0..2 {
            for (command, status) in [
                (read, Status::UNRECOVERED_READ_ERROR),
                (compare, Status::UNRECOVERED_READ_ERROR),
                (moves(nvm::WRITE, (0, 8), 4096), Status::WRITE_FAULT),
                (moves(nvm::WRITE_ZEROES, (0, 8), 4096), Status::WRITE_FAULT),
                (flush, Status::WRITE_FAULT),
            ] {
                let done = run(&mut dead, command);
                assert!(done.status.is(status), "{fault:?}, {:#x}: {}", command.opcode, done.status);
                assert_eq!(dead.admin(identify).status, Status::SUCCESS);
                others_go_on(&mut dead);
            }
            dead.again();
        }
        dead.drives.remove(dead.drive);
        assert!(dead.drives.is_removed(dead.drive));
        others_go_on(&mut dead);
    }
}

/// The bytes of a volume over three SSDs lie in stripes, at the place of each, and nowhere else; flushes go to all.
#[test]
fn a_striped_drive_has_its_bytes_on_all_ssds_in_turn() {
    const STRIPE: u64 = 16 << 10;
    let kinds: Vec<nvme::Config> = (0..3).map(|_| nvme::Config::default()).collect();
    let media: Vec<_> = kinds.iter().map(|kind| kind.namespaces[0].clone()).collect();
    let (mut storage, ssds, fabric) = several(kinds);
    let places = [(2, 1 << 20), (0, 0), (1, 5 << 20)];
    let (row, length) = (3 * STRIPE, 3 * STRIPE * 40);
    for (slices, stripe, length) in [
        (&places[..], STRIPE, length + 512),
        (&places, 0, length),
        (&places, 100, length),
        (&[(0, 0), (7, 0)], STRIPE, 2 * STRIPE),
        (&[(0, 0), (1, 1 << 40)], STRIPE, 2 * STRIPE),
        (&[], STRIPE, STRIPE),
    ] {
        assert!(storage.add(slices, stripe, length, false).is_none(), "{slices:?} {stripe} {length}");
    }
    let volume = storage.add(&places, STRIPE, length, false).unwrap();
    assert!(
        !storage.resize(volume, length - 512)
            && storage.resize(volume, row)
            && storage.resize(volume, length)
    );
    let mut machine = Machine::new(Config::new("ssd"), storage, true);
    machine.attach(1, volume, 512);
    machine.enable();
    machine.create(1);
    let list: Vec<u8> = (1..200u64).flat_map(|page| (DATA + page * 4096).to_le_bytes()).collect();
    machine.guest.store(LISTS, &list);
    let (mut array, mut random) = (vec![0; length as usize], Random(4));
    for _ in 0..60 {
        let first = random.below(length / 512);
        let count = (1 + random.below(1000)).min(length / 512 - first);
        let (at, bytes) = ((first * 512) as usize, (count * 512) as usize);
        if random.below(2) == 0 {
            let content = random.bytes(bytes);
            machine.guest.store(DATA, &content);
            let done = run(&mut machine, moves(nvm::WRITE, (first, count as u32), bytes));
            assert_eq!(done.status, Status::SUCCESS);
            array[at..at + bytes].copy_from_slice(&content);
        } else {
            let done = run(&mut machine, moves(nvm::READ, (first, count as u32), bytes));
            assert_eq!(done.status, Status::SUCCESS);
            assert!(machine.guest.bytes(DATA, bytes) == array[at..at + bytes]);
        }
    }
    for (at, stripe) in array.chunks_exact(STRIPE as usize).enumerate() {
        let (ssd, offset) = places[at % 3];
        let mut there = vec![0; STRIPE as usize];
        media[ssd].load(offset + (at / 3) as u64 * STRIPE, &mut there);
        assert!(there == stripe, "stripe {at}");
    }
    let flushes = || {
        ssds.iter()
            .map(|ssd| fabric.borrow_mut().device::<nvme::Nvme>(*ssd).counts().flushes)
            .collect::<Vec<_>>()
    };
    let before = flushes();
    let flush = Command { opcode: nvm::FLUSH, namespace: 1, ..Command::default() };
    assert_eq!(run(&mut machine, flush).status, Status::SUCCESS);
    assert!(flushes().iter().zip(before).all(|(now, before)| *now == before + 1));
    assert!(!machine.drives.storage().is_busy());
}

/// A guest's hints reach the SSDs, those of its blocks alone; a namespace says nothing of what is read then.
#[test]
fn deallocation_is_passed_on() {
    for stripes in [1, 2] {
        let kinds: Vec<nvme::Config> = (0..stripes).map(|_| nvme::Config::default()).collect();
        let media: Vec<_> = kinds.iter().map(|kind| kind.namespaces[0].clone()).collect();
        let (mut storage, ssds, fabric) = several(kinds);
        let (offset, length) = (1u64 << 20, 1u64 << 20);
        let slices: Vec<_> = (0..stripes).map(|ssd| (ssd, offset)).collect();
        media.iter().for_each(|medium| medium.store(0, &vec![7; 4 << 20]));
        let volume = storage.add(&slices, 4096, length, false).unwrap();
        assert!(storage.volume(volume).unwrap().takes_hints);
        let mut machine = Machine::new(Config::new("ssd"), storage, true);
        machine.attach(1, volume, 512);
        machine.enable();
        machine.create(1);
        let identity = machine.identify(0, 1).1;
        assert_eq!(
            (identity[24] & 1, identity[33]),
            (0, 0),
            "it is not thin, and says nothing of deallocated blocks"
        );
        let ranges = [(8, 16), (100, 0), (1024, 512)].map(|(first, count)| Range { first, count }.bytes());
        machine.guest.store(DATA, &ranges.concat());
        let words = Datasets { ranges: 3, deallocate: true }.words();
        let data = DataPointer::Prp(DATA, 0);
        let trim =
            Command { opcode: nvm::DATASET_MANAGEMENT, namespace: 1, data, words, ..Command::default() };
        assert_eq!(run(&mut machine, trim).status, Status::SUCCESS);
        let counted =
            |ssd: &FunctionId| fabric.borrow_mut().device::<nvme::Nvme>(*ssd).counts().blocks_deallocated;
        assert_eq!(ssds.iter().map(counted).sum::<u64>(), 16 + 512);
        // The model's blocks read as zeros then: exactly those of the ranges.
        for block in 0..length / 512 {
            let stripe = block * 512 / 4096;
            let place = offset + stripe / stripes as u64 * 4096 + block * 512 % 4096;
            let (mut there, gone) = ([0; 512], (8..24).contains(&block) || (1024..1536).contains(&block));
            let (ssd, place) =
                if stripes == 1 { (0, offset + block * 512) } else { (stripe as usize % 2, place) };
            media[ssd].load(place, &mut there);
            assert_eq!(there, [if gone { 0 } else { 7 }; 512], "block {block} of {stripes}");
        }
        for medium in &media {
            let (mut before, mut behind) = (vec![0; offset as usize], vec![0; 1 << 20]);
            medium.load(0, &mut before);
            medium.load(offset + length, &mut behind);
            assert!(before.iter().chain(&behind).all(|byte| *byte == 7), "beside the volume");
        }
    }
}
