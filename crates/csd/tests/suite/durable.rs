//! A write cache that the guest switches off while writes are in progress, a shutdown while near-storage
//! commands have all slots, and the cost of expensive commands.

use dcs_abi::operator::Operator;
use dcs_csd::near::{FROM_GUEST, NO_DATA};
use dcs_csd::storage::ModelStorage;
use dcs_csd::{Action, Config, Limits, Request, Response, Storage, VolumeId, VolumeInfo};
use dcs_nvme::command::{Blocks, Command, Datasets, Range, admin, feature, nvm};
use dcs_nvme::register::{self, Configuration, ShutdownRequest};
use dcs_nvme::{DataPointer, Status, sgl};

use crate::near::{BLOCKS, MEMORY, NOWHERE, Near, STREAM, entry, load, open, run};
use crate::rig::{DATA, LISTS, Machine, disk};

/// A storage that changes a volume only when the test allows it.
pub struct Late(pub ModelStorage, pub Vec<Request>);

impl Storage for Late {
    fn volume(&self, volume: VolumeId) -> Option<VolumeInfo> {
        self.0.volume(volume)
    }

    fn submit(&mut self, request: Request) {
        match request.action {
            Action::Flush | Action::Read => self.0.submit(request),
            _ => self.1.push(request),
        }
    }

    fn commit(&mut self) {}

    fn reap(&mut self, responses: &mut Vec<Response>) {
        self.0.reap(responses);
    }
}

/// Writes that are acknowledged after the cache was said to be off survive a loss of power, whatever was under way.
#[test]
fn writes_under_way_when_the_cache_goes_off_are_safe_when_they_end() {
    let blocks = Blocks { first: 0, count: 8, durable: false }.words();
    let data = DataPointer::Prp(DATA, 0);
    let write = Command { opcode: nvm::WRITE, namespace: 1, data, words: blocks, ..Command::default() };
    let zeroes = Command { opcode: nvm::WRITE_ZEROES, data: DataPointer::default(), ..write };
    let deallocate = Command {
        opcode: nvm::DATASET_MANAGEMENT,
        namespace: 1,
        data,
        words: [0, 4, 0, 0, 0, 0],
        ..Command::default()
    };
    for (command, first, expected) in [(write, 0u8, 7u8), (zeroes, 9, 0), (deallocate, 9, 0)] {
        let (mut storage, volume) = (disk(1 << 20), VolumeId(0));
        storage.bytes_mut(volume).fill(first);
        let mut machine = Machine::new(Config::new("late"), Late(storage, Vec::new()), true).up();
        let flush = Command { opcode: nvm::FLUSH, namespace: 1, ..Command::default() };
        assert_eq!(machine.run(1, flush).status, Status::SUCCESS);
        match command.opcode {
            nvm::DATASET_MANAGEMENT => {
                let range = [0u32.to_le_bytes(), 8u32.to_le_bytes()].concat();
                machine.guest.store(DATA, &[range, 0u64.to_le_bytes().to_vec()].concat());
            }
            _ => machine.guest.store(DATA, &[expected; 4096]),
        }
        machine.submit(1, command);
        machine.work();
        assert_eq!((machine.reap(1), machine.drives.storage().1.len()), (None, 1));
        let words = [u32::from(feature::VOLATILE_WRITE_CACHE), 0, 0, 0, 0, 0];
        let off = Command { opcode: admin::SET_FEATURES, words, ..Command::default() };
        assert_eq!(machine.admin(off).status, Status::SUCCESS);
        let storage = machine.drives.storage_mut();
        let late = std::mem::take(&mut storage.1);
        late.into_iter().for_each(|request| storage.0.submit(request));
        machine.work();
        assert_eq!(machine.reap(1).map(|done| done.status), Some(Status::SUCCESS));
        machine.drives.storage_mut().0.lose_power();
        assert!(machine.drives.storage().0.bytes(volume)[..4096].iter().all(|byte| *byte == expected));
    }
}

#[test]
fn a_shutdown_does_not_wait_for_near_storage_commands() {
    let mut machine = Machine::new(Config { commands: 2, ..Config::new("off") }, disk(1 << 20), true).up();
    let chain = [(Operator::Sha256, Vec::new())];
    let handles = [(); 2].map(|()| u64::from(open(&mut machine, 1, &chain, &[(0, 1 << 20)]).result));
    for handle in handles {
        let near = Near { opcode: NO_DATA, source: STREAM, destination: NOWHERE, handle, ..Near::default() };
        machine.submit_bytes(1, entry(near));
    }
    machine.drives.poll();
    assert_eq!(machine.controller().slots_used(), 2);
    assert_eq!(machine.reap(1), None);
    let wanted = Configuration { enabled: true, shutdown: ShutdownRequest::Normal, ..Configuration::new(12) };
    machine.write32(register::CC, wanted.bits());
    machine.work();
    assert_eq!(machine.read32(register::CSTS), 1 | 2 << 2, "it is complete");
}

/// A list of tiny pieces, and a piece of a program, cost what they take, also if the command fails.
#[test]
fn small_pieces_are_not_cheap() {
    const PIECES: usize = 4096;
    let mut machine = Machine::new(Config::new("pieces"), disk(1 << 20), true).up();
    let list: Vec<u8> =
        (0..PIECES as u64).flat_map(|at| sgl::Descriptor::data(DATA + 2 * at, 1).bytes()).collect();
    machine.guest.store(LISTS, &list);
    let segment =
        sgl::Descriptor { kind: sgl::LAST_SEGMENT, ..sgl::Descriptor::data(LISTS, list.len() as u32) };
    for (count, status) in [(8, Status::SUCCESS), (9, Status::INVALID_SGL_LENGTH)] {
        let words = Blocks { first: 0, count, durable: false }.words();
        let data = DataPointer::Sgl(segment);
        machine.submit(1, Command { opcode: nvm::READ, namespace: 1, data, words, ..Command::default() });
        let controller = machine.controller.clone();
        let cost = controller.lock().unwrap().step(0, &mut machine.guest, machine.drives.storage_mut());
        assert!(cost.unwrap() > 500 * PIECES as u64, "{cost:?}");
        machine.work();
        assert!(machine.reap(1).unwrap().status.is(status));
    }
    // One of whole pages costs its bytes.
    let words = Blocks { first: 0, count: 8, durable: false }.words();
    let data = DataPointer::Prp(DATA, 0);
    machine.submit(1, Command { opcode: nvm::READ, namespace: 1, data, words, ..Command::default() });
    let controller = machine.controller.clone();
    let cost = controller.lock().unwrap().step(0, &mut machine.guest, machine.drives.storage_mut());
    assert_eq!(cost, Some(8192));
}

/// A storage whose volumes cannot deallocate.
struct Thick(ModelStorage);

impl Storage for Thick {
    fn volume(&self, volume: VolumeId) -> Option<VolumeInfo> {
        self.0.volume(volume).map(|info| VolumeInfo { thin: false, ..info })
    }

    fn submit(&mut self, request: Request) {
        self.0.submit(request);
    }

    fn commit(&mut self) {}

    fn reap(&mut self, responses: &mut Vec<Response>) {
        self.0.reap(responses);
    }
}

/// Zeros that the disk has to write cost as much as other bytes, and count for the limit.
#[test]
fn zeros_that_are_written_cost_their_bytes() {
    let mut machine = Machine::new(Config::new("thick"), Thick(disk(1 << 20)), true).up();
    machine.controller().set_limits(Limits { bytes: 1 << 20, ..Limits::default() });
    let words = Blocks { first: 0, count: 1024, durable: false }.words();
    let zeroes = Command { opcode: nvm::WRITE_ZEROES, namespace: 1, words, ..Command::default() };
    machine.submit(1, zeroes);
    let controller = machine.controller.clone();
    let cost = controller.lock().unwrap().step(0, &mut machine.guest, machine.drives.storage_mut());
    assert_eq!(cost, Some(4096 + (512 << 10)));
    machine.work();
    assert_eq!(machine.reap(1).map(|done| done.status), Some(Status::SUCCESS));
    // Half a second's bytes were written: the next command waits.
    machine.submit(1, zeroes);
    machine.work();
    assert_eq!(machine.reap(1), None);
    machine.guest.clock.fetch_add(1_000_000_000, std::sync::atomic::Ordering::Relaxed);
    machine.work();
    assert_eq!(machine.reap(1).map(|done| done.status), Some(Status::SUCCESS));
}

/// A storage that notes who reads from it and writes to it, and how much.
struct Notes(ModelStorage, Vec<(u32, u64)>);

impl Storage for Notes {
    fn volume(&self, volume: VolumeId) -> Option<VolumeInfo> {
        self.0.volume(volume)
    }

    fn submit(&mut self, request: Request) {
        self.1.push((request.ticket.drive, request.length));
        self.0.submit(request);
    }

    fn commit(&mut self) {}

    fn reap(&mut self, responses: &mut Vec<Response>) {
        self.0.reap(responses);
    }
}

/// A drive pays for what its near-storage commands read and write, also if that is far more than their source: its next command waits until
/// its neighbour has had as much. Its limit counts it, too.
#[test]
fn output_on_logical_blocks_is_paid_for() {
    const OUTPUT: usize = 4 << 20;
    let zeros = dcs_ndp::sequential::run(&[(Operator::Gzip, vec![])], &vec![0; OUTPUT]).unwrap().output;
    let storage = Notes(disk(8 << 20), Vec::new());
    let mut first = Machine::new(Config::new("writes"), storage, true).up();
    let second = Machine::new(Config::new("reads"), Notes(ModelStorage::new(0), Vec::new()), true);
    let mut second = first.beside(second, VolumeId(0), 1);
    let handle = load(&mut first, &[(Operator::Gunzip, vec![])]).result.into();
    first.guest.store(DATA, &zeros);
    let length = zeros.len() as u32;
    let words = [length.div_ceil(4), length, length, 0, 0, 0];
    let store = Near { opcode: FROM_GUEST, destination: MEMORY, words, ..Near::default() };
    assert_eq!(run(&mut first, store).status, Status::SUCCESS);
    let words = [OUTPUT as u32 / 512, length, 0, 0, 100, 0];
    let (source, destination) = (MEMORY, BLOCKS);
    let unpack =
        Near { opcode: NO_DATA, namespace: 1, source, destination, handle, words, ..Near::default() };
    assert_eq!(run(&mut first, unpack).status, Status::SUCCESS);
    // Both have commands now.
    let read = |count: u32| {
        let words = Blocks { first: 0, count, durable: false }.words();
        let data = DataPointer::Sgl(sgl::Descriptor::data(DATA, count * 512));
        Command { opcode: nvm::READ, namespace: 1, data, words, ..Command::default() }
    };
    (0..7).for_each(|_| _ = second.submit(1, read(2048)));
    first.submit(1, read(8));
    first.drives.storage_mut().1.clear();
    first.work();
    let notes = &first.drives.storage().1;
    let before: u64 = notes.iter().take_while(|(_, length)| *length > 4096).map(|(_, length)| length).sum();
    assert_eq!(notes.len(), 8);
    // But for a credit of each, and a command.
    assert!(before >= OUTPUT as u64 - (2 << 20), "{before} bytes of the other one's first: {notes:?}");
    // The limit: four megabytes take four seconds.
    first.reap(1).expect("a completion");
    first.controller().set_limits(Limits { bytes: 1 << 20, ..Limits::default() });
    first.guest.clock.fetch_add(1_000_000_000, std::sync::atomic::Ordering::Relaxed);
    first.submit_bytes(1, entry(unpack));
    let mut waited = 0;
    first.work();
    while first.reap(1).is_none() {
        first.guest.clock.fetch_add(10_000_000, std::sync::atomic::Ordering::Relaxed);
        waited += 10;
        first.work();
    }
    assert!((3800..4200).contains(&waited), "{waited} ms");
}

/// Each range that is deallocated costs what a command does, and its bytes; the storage has one of a command's at a time.
#[test]
fn each_range_is_paid_for_and_waits_for_the_one_before() {
    const RANGES: u64 = 256;
    let (mut storage, volume) = (disk(1 << 20), VolumeId(0));
    storage.bytes_mut(volume).fill(7);
    let mut machine = Machine::new(Config::new("ranges"), Late(storage, Vec::new()), true).up();
    machine.controller().set_limits(Limits { commands: 1000, ..Limits::default() });
    machine.guest.clock.fetch_add(1_000_000_000, std::sync::atomic::Ordering::Relaxed);
    machine.work();
    // Every second pair of blocks.
    let ranges = (0..RANGES).flat_map(|at| Range { first: 4 * at, count: 2 }.bytes());
    machine.guest.store(DATA, &ranges.collect::<Vec<u8>>());
    let words = Datasets { ranges: RANGES as u16, deallocate: true }.words();
    let data = DataPointer::Prp(DATA, 0);
    let deallocate =
        Command { opcode: nvm::DATASET_MANAGEMENT, namespace: 1, data, words, ..Command::default() };
    machine.submit(1, deallocate);
    let controller = machine.controller.clone();
    let cost = controller.lock().unwrap().step(0, &mut machine.guest, machine.drives.storage_mut());
    assert_eq!(cost, Some(RANGES * (4096 + 1024 / 64)));
    for at in 0..RANGES {
        machine.work();
        assert_eq!((machine.reap(1), machine.drives.storage().1.len()), (None, 1), "range {at}");
        let storage = machine.drives.storage_mut();
        let next = storage.1.remove(0);
        assert_eq!((next.action, next.offset, next.length), (Action::Deallocate, at * 2048, 1024));
        storage.0.submit(next);
    }
    machine.work();
    assert_eq!(machine.reap(1).map(|done| done.status), Some(Status::SUCCESS));
    let bytes = machine.drives.storage().0.bytes(volume);
    for (at, pair) in bytes.chunks(1024).enumerate() {
        let expected = if at < 2 * RANGES as usize && at % 2 == 0 { 0 } else { 7 };
        assert!(pair.iter().all(|byte| *byte == expected), "pair {at}");
    }
    // So many commands take a quarter of a second.
    machine.submit(1, Command { opcode: nvm::FLUSH, namespace: 1, ..Command::default() });
    for (pass, status) in [(0, None), (240_000_000, None), (10_000_000, Some(Status::SUCCESS))] {
        machine.guest.clock.fetch_add(pass, std::sync::atomic::Ordering::Relaxed);
        machine.work();
        assert_eq!(machine.reap(1).map(|done| done.status), status);
    }
}
