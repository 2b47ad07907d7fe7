//! Commands with one request after the other (deallocated ranges, and zeros that pass a chain): changes
//! between two requests, and their cost.

use std::sync::Arc;

use dcs_csd::storage::ModelStorage;
use dcs_csd::{
    Action, Chain, Config, Data, Namespace, Request, Response, Storage, VolumeError, VolumeId, VolumeInfo,
};
use dcs_nvme::command::{Blocks, Command, Datasets, Range, admin, feature, nvm};
use dcs_nvme::{DataPointer, Status, register};

use crate::durable::Late;
use crate::rig::{DATA, Machine, disk};

const VOLUME: VolumeId = VolumeId(0);

/// Deallocates these blocks: first, and how many.
fn deallocate(machine: &Machine<impl Storage>, ranges: &[(u64, u32)]) -> Command {
    let bytes = ranges.iter().flat_map(|(first, count)| Range { first: *first, count: *count }.bytes());
    machine.guest.store(DATA, &bytes.collect::<Vec<u8>>());
    let words = Datasets { ranges: ranges.len() as u16, deallocate: true }.words();
    let data = DataPointer::Prp(DATA, 0);
    Command { opcode: nvm::DATASET_MANAGEMENT, namespace: 1, data, words, ..Command::default() }
}

/// A drive whose volume is full of sevens, and whose storage has the first of two ranges: 8 blocks at 0, and at 1,024.
fn between() -> Machine<Late> {
    let mut storage = disk(1 << 20);
    storage.bytes_mut(VOLUME).fill(7);
    let mut machine = Machine::new(Config::new("between"), Late(storage, Vec::new()), true).up();
    assert_eq!(machine.run(1, flush()).status, Status::SUCCESS);
    let command = deallocate(&machine, &[(0, 8), (1024, 8)]);
    machine.submit(1, command);
    machine.work();
    assert_eq!((machine.reap(1), machine.drives.storage().1.len()), (None, 1));
    machine
}

fn flush() -> Command {
    Command { opcode: nvm::FLUSH, namespace: 1, ..Command::default() }
}

/// The storage does what it has, and says how many requests it has then.
fn answer(machine: &mut Machine<Late>) -> usize {
    let storage = machine.drives.storage_mut();
    std::mem::take(&mut storage.1).into_iter().for_each(|request| storage.0.submit(request));
    machine.work();
    machine.drives.storage().1.len()
}

/// The bytes that only the second range reaches.
fn second(machine: &Machine<Late>) -> &[u8] {
    &machine.drives.storage().0.bytes(VOLUME)[1024 * 512..1032 * 512]
}

/// Blocks that were cut off, or given to another namespace, are not touched by the rest of a command.
#[test]
fn a_range_is_not_touched_that_its_namespace_has_no_more() {
    type Change = fn(&mut Machine<Late>);
    let changes: [(Change, Status); 4] = [
        (
            |machine| machine.controller().resize(1, 1031, &machine.drives.storage().0).unwrap(),
            Status::LBA_OUT_OF_RANGE,
        ),
        (|machine| machine.controller().detach(1).unwrap(), Status::INVALID_FIELD),
        (
            |machine| {
                machine.controller().detach(1).unwrap();
                let other = machine.drives.storage_mut().0.add(1 << 20, 512);
                machine.attach(1, other, 512);
            },
            Status::INVALID_FIELD,
        ),
        (
            |machine| {
                machine.controller().detach(1).unwrap();
                let info = VolumeInfo { read_only: true, ..machine.drives.storage().volume(VOLUME).unwrap() };
                let namespace = Namespace::new(1, VOLUME, &info, 512).unwrap();
                machine.controller().attach(namespace, machine.drives.storage()).unwrap();
            },
            Status::WRITE_PROTECTED,
        ),
    ];
    for (at, (change, expected)) in changes.into_iter().enumerate() {
        let mut machine = between();
        change(&mut machine);
        assert_eq!(answer(&mut machine), 0, "{at}");
        let status = machine.reap(1).expect("a completion").status;
        assert!(status.is(expected) && status.do_not_retry(), "{at}: {status}");
        assert!(second(&machine).iter().all(|byte| *byte == 7), "{at}");
    }
    // One that is cut, and still has it.
    let mut machine = between();
    machine.controller().resize(1, 1032, &machine.drives.storage().0).unwrap();
    assert_eq!((answer(&mut machine), answer(&mut machine)), (1, 0));
    assert_eq!(machine.reap(1).map(|done| done.status), Some(Status::SUCCESS));
}

#[test]
fn zeros_are_not_written_behind_the_end_of_an_encrypted_namespace_that_was_cut() {
    let mut storage = disk(1 << 20);
    storage.bytes_mut(VOLUME).fill(7);
    let config = Config { transfer_shift: 12, ..Config::new("zeros") };
    let mut machine = Machine::new(config, Late(storage, Vec::new()), true).up();
    machine.controller().detach(1).unwrap();
    let info = machine.drives.storage().volume(VOLUME).unwrap();
    let mut namespace = Namespace::new(1, VOLUME, &info, 512).unwrap();
    namespace.chain = Some(Arc::new(Chain::aes256_xts(&std::array::from_fn(|at| at as u8)).unwrap()));
    machine.controller().attach(namespace, machine.drives.storage()).unwrap();
    let words = Blocks { first: 0, count: 64, durable: false }.words();
    machine.submit(1, Command { opcode: nvm::WRITE_ZEROES, namespace: 1, words, ..Command::default() });
    machine.work();
    assert_eq!((answer(&mut machine), machine.reap(1)), (1, None));
    machine.controller().resize(1, 16, &machine.drives.storage().0).unwrap();
    assert_eq!(answer(&mut machine), 0);
    assert!(machine.reap(1).expect("a completion").status.is(Status::LBA_OUT_OF_RANGE));
    assert!(machine.drives.storage().0.bytes(VOLUME)[16 * 512..].iter().all(|byte| *byte == 7));
}

#[test]
fn a_reset_and_an_error_end_a_command_between_its_ranges() {
    let mut machine = between();
    machine.write32(register::CC, 0);
    machine.work();
    assert_eq!(machine.read32(register::CSTS), 1, "the storage has a request");
    assert_eq!(answer(&mut machine), 0);
    assert_eq!(machine.read32(register::CSTS), 0);
    assert!(second(&machine).iter().all(|byte| *byte == 7));
    let mut machine = between();
    machine.drives.storage_mut().0.fail_next(VolumeError::Medium(5));
    assert_eq!(answer(&mut machine), 0);
    assert!(machine.reap(1).expect("a completion").status.is(Status::WRITE_FAULT));
    assert!(second(&machine).iter().all(|byte| *byte == 7));
}

#[test]
fn ranges_are_safe_whose_command_ends_after_the_cache_went_off() {
    let mut machine = between();
    let words = [u32::from(feature::VOLATILE_WRITE_CACHE), 0, 0, 0, 0, 0];
    let off = Command { opcode: admin::SET_FEATURES, words, ..Command::default() };
    assert_eq!(machine.admin(off).status, Status::SUCCESS);
    assert_eq!((answer(&mut machine), machine.reap(1)), (1, None));
    assert_eq!(answer(&mut machine), 0);
    assert_eq!(machine.reap(1).map(|done| done.status), Some(Status::SUCCESS));
    machine.drives.storage_mut().0.lose_power();
    let bytes = machine.drives.storage().0.bytes(VOLUME);
    assert!([0, 1024 * 512].iter().all(|at| bytes[*at..at + 4096].iter().all(|byte| *byte == 0)));
}

/// A storage of four terabytes, which answers and does nothing.
#[derive(Default)]
struct Vast(Vec<Response>);

impl Storage for Vast {
    fn volume(&self, _: VolumeId) -> Option<VolumeInfo> {
        let mut small = ModelStorage::new(0);
        let volume = small.add(512, 512);
        small.volume(volume).map(|info| VolumeInfo { length: 4 << 40, ..info })
    }

    fn submit(&mut self, request: Request) {
        assert!(matches!((request.action, &request.data), (Action::Deallocate, Data::None)));
        let (ticket, data) = (request.ticket, request.data);
        self.0.push(Response { ticket, data, result: Ok(()), written: 0 });
    }

    fn commit(&mut self) {}

    fn reap(&mut self, responses: &mut Vec<Response>) {
        responses.append(&mut self.0);
    }
}

/// Linux deallocates two terabytes with one range. Its drive's next command waits for what that costs, and Linux for half a minute.
#[test]
fn a_range_of_terabytes_costs_no_more_than_a_large_read() {
    let mut machine = Machine::new(Config::new("vast"), Vast::default(), true).up();
    for (ranges, cost) in [
        (vec![(8, u32::MAX)], 4096 + (1 << 20)),
        (vec![(0, 1 << 17), (1 << 20, 1 << 18)], 2 * (4096 + (1 << 20))),
        (vec![(0, (1 << 17) - 128)], 4096 + (1 << 20) - 1024),
        (vec![(8, u32::MAX); 256], 256 * (4096 + (1 << 20))),
    ] {
        let command = deallocate(&machine, &ranges);
        machine.submit(1, command);
        let controller = machine.controller.clone();
        let charged = controller.lock().unwrap().step(0, &mut machine.guest, machine.drives.storage_mut());
        assert_eq!(charged, Some(cost), "{} ranges", ranges.len());
        machine.work();
        assert_eq!(machine.reap(1).map(|done| done.status), Some(Status::SUCCESS));
    }
}
