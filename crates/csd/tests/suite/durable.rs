//! A write cache that the guest switches off while writes are under way, a shutdown while near-storage commands have all slots, and the cost
//! of what a guest makes costly.

use dcs_abi::operator::Operator;
use dcs_csd::near::NO_DATA;
use dcs_csd::storage::ModelStorage;
use dcs_csd::{Action, Config, Limits, Request, Response, Storage, VolumeId, VolumeInfo};
use dcs_nvme::command::{Blocks, Command, admin, feature, nvm};
use dcs_nvme::register::{self, Configuration, ShutdownRequest};
use dcs_nvme::{DataPointer, Status, sgl};

use crate::near::{NOWHERE, Near, STREAM, entry, open};
use crate::rig::{DATA, LISTS, Machine};

/// A storage that does what changes a volume only when it is told to.
struct Late(ModelStorage, Vec<Request>);

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
        let mut storage = ModelStorage::new(0);
        let volume = storage.add(1 << 20, 512);
        storage.bytes_mut(volume).fill(first);
        let mut machine = Machine::new(Config::new("late"), Late(storage, Vec::new()), true);
        machine.attach(1, volume, 512);
        machine.enable();
        machine.create(1);
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
    let mut storage = ModelStorage::new(0);
    let volume = storage.add(1 << 20, 512);
    let mut machine = Machine::new(Config { commands: 2, ..Config::new("off") }, storage, true);
    machine.attach(1, volume, 512);
    machine.enable();
    machine.create(1);
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
    let mut storage = ModelStorage::new(0);
    let volume = storage.add(1 << 20, 512);
    let mut machine = Machine::new(Config::new("pieces"), storage, true);
    machine.attach(1, volume, 512);
    machine.enable();
    machine.create(1);
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
    let mut storage = ModelStorage::new(0);
    let volume = storage.add(1 << 20, 512);
    let mut machine = Machine::new(Config::new("thick"), Thick(storage), true);
    machine.attach(1, volume, 512);
    machine.enable();
    machine.create(1);
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
