//! The NVMe host of `dcs-drivers`, which is independent of this crate, starts a drive and uses it.

use dcs_csd::storage::ModelStorage;
use dcs_csd::{Chain, Config, Storage, VolumeError};
use dcs_drivers::bus::{Bus, ReadDone, Region, Tag, Window};
use dcs_drivers::nvme::{Config as HostConfig, Nvme, NvmeError, Request, SglUse, State, Status};
use std::collections::VecDeque;
use std::sync::Arc;

use crate::rig::{BASE, Guest, LENGTH, Machine};

const REGISTERS: Window = Window { address: 0x9000_0000, length: 0x4000 };
/// The host's queues and lists; data lie behind.
const OWN: u64 = 2 << 20;
/// Bytes of the volume.
const VOLUME: usize = 4 << 20;

/// The guest's end of the bus.
struct Wires {
    guest: Guest,
    writes: VecDeque<(u64, Vec<u8>)>,
    reads: VecDeque<(u64, u32, Tag)>,
}

impl Bus for Wires {
    fn window(&self) -> Window {
        Window { address: BASE, length: LENGTH }
    }

    fn load(&self, offset: u64, bytes: &mut [u8]) {
        self.guest.memory.load(offset, bytes);
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        self.guest.memory.store(offset, bytes);
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        self.writes.push_back((address - REGISTERS.address, bytes.to_vec()));
    }

    fn read(&mut self, address: u64, length: u32, tag: Tag) {
        self.reads.push_back((address - REGISTERS.address, length, tag));
    }

    fn interrupt(&mut self, vector: u16) {
        panic!("interrupt {vector}");
    }
}

/// A host and a drive.
pub struct Pair<S> {
    pub machine: Machine<S>,
    host: Nvme,
    wires: Wires,
    now: u64,
}

impl<S: Storage> Pair<S> {
    /// A host for the drive's first namespace, and everything that it needs until it is ready.
    pub fn up(machine: Machine<S>, sgl: SglUse, pass: impl FnMut(&mut Machine<S>)) -> Pair<S> {
        let config = HostConfig { queues: 3, depth: 16, sgl, ..HostConfig::new(REGISTERS, 1) };
        let mut all = Region::whole(Window { address: BASE, length: LENGTH });
        let host = Nvme::new(config, all.take(OWN, 4096).unwrap()).unwrap();
        let guest = machine.guest.clone();
        let wires = Wires { guest, writes: VecDeque::new(), reads: VecDeque::new() };
        let mut pair = Pair { machine, host, wires, now: 0 };
        pair.host.start(&mut pair.wires, 0);
        pair.until(pass, |host| host.state() != State::Starting);
        assert_eq!(pair.host.state(), State::Ready);
        pair
    }

    /// Lets both go on until `done`. `pass` lets the storage's time go on.
    pub fn until(&mut self, mut pass: impl FnMut(&mut Machine<S>), done: impl Fn(&Nvme) -> bool) {
        for _ in 0..1_000_000 {
            while let Some((offset, bytes)) = self.wires.writes.pop_front() {
                self.machine.controller().register_write(offset, &bytes);
            }
            if let Some((offset, length, tag)) = self.wires.reads.pop_front() {
                let mut bytes = vec![0; length as usize];
                self.machine.controller().register_read(offset, &mut bytes);
                self.host.read_done(&mut self.wires, self.now, ReadDone { tag, data: Ok(bytes) });
            }
            self.machine.drives.poll();
            pass(&mut self.machine);
            self.host.poll(&mut self.wires, self.now);
            if done(&self.host) {
                return;
            }
            // No timeout of the host's comes: they are 5 seconds and more.
            self.now += 2000;
        }
        panic!("the host waits for ever: {:?}", self.host.state());
    }

    pub fn run(&mut self, pass: impl FnMut(&mut Machine<S>), request: &Request<'_>) -> Result<(), NvmeError> {
        self.host.submit(&mut self.wires, self.now, 1, request).unwrap();
        self.until(pass, |host| host.outstanding() == 0);
        self.host.finished().expect("one that ended").result
    }
}

fn tick(machine: &mut Machine<ModelStorage>) {
    let storage = machine.drives.storage_mut();
    if let Some(due) = storage.deadline() {
        storage.advance(due);
    }
}

fn pair(sgl: SglUse, direct: bool, chain: bool) -> Pair<ModelStorage> {
    let mut storage = ModelStorage::new(10_000);
    let volume = storage.add(VOLUME, 512);
    let machine = Machine::new(Config { buffers: 2, ..Config::new("peer") }, storage, direct);
    let info = machine.drives.storage().volume(volume).unwrap();
    let mut namespace = dcs_csd::Namespace::new(1, volume, &info, 512).unwrap();
    if chain {
        let key = std::array::from_fn(|i| i as u8);
        namespace.chain = Some(Arc::new(Chain::aes256_xts(&key).unwrap()));
    }
    machine.controller().attach(namespace, machine.drives.storage()).unwrap();
    Pair::up(machine, sgl, tick)
}

/// Writes all of the volume in pieces of all kinds, and reads it again in others.
fn whole_volume(mut pair: Pair<ModelStorage>, unaligned: bool) -> Pair<ModelStorage> {
    let expected = dcs_testkit::bytes(VOLUME, 7);
    let (mut lba, mut size) = (0, 1);
    let from = OWN + if unaligned { 20 } else { 0 };
    while (lba as usize) * 512 < VOLUME {
        let blocks = size.min(VOLUME as u64 / 512 - lba);
        let bytes = &expected[lba as usize * 512..(lba + blocks) as usize * 512];
        pair.machine.guest.memory.store(from, bytes);
        let data = [Window { address: BASE + from, length: blocks * 512 }];
        pair.run(tick, &Request::Write { lba, data: &data, durable: lba % 2 == 0 }).unwrap();
        (lba, size) = (lba + blocks, (size * 3 + 1) % 2048 + 1);
    }
    pair.run(tick, &Request::Flush).unwrap();
    for lba in (0..VOLUME as u64 / 512).step_by(1024) {
        // Two pieces that do not follow each other.
        let data = [
            Window { address: BASE + OWN, length: 256 << 10 },
            Window { address: BASE + OWN + (1 << 20), length: 256 << 10 },
        ];
        pair.run(tick, &Request::Read { lba, data: &data }).unwrap();
        let at = lba as usize * 512;
        for (data, expected) in data.iter().zip(expected[at..at + (512 << 10)].chunks(256 << 10)) {
            assert!(pair.machine.guest.bytes(data.address, 256 << 10) == expected, "from block {lba} on");
        }
    }
    pair
}

#[test]
fn all_is_read_as_it_was_written() {
    let pair = whole_volume(pair(SglUse::Never, true, false), false);
    assert!(pair.machine.drives.storage().bytes(dcs_csd::VolumeId(0)) == dcs_testkit::bytes(VOLUME, 7));
    let counters = pair.machine.controller().counters();
    assert_eq!((counters.bytes_read, counters.bytes_written), (VOLUME as u64, VOLUME as u64));
    assert_eq!((counters.errors, counters.flushes), (0, 1));
}

#[test]
fn the_same_where_there_are_command_sets_that_the_host_does_not_know() {
    let mut storage = ModelStorage::new(10_000);
    let volume = storage.add(VOLUME, 512);
    let mut machine = Machine::new(Config { programs: true, ..Config::new("peer") }, storage, true);
    machine.attach(1, volume, 512);
    whole_volume(Pair::up(machine, SglUse::Never, tick), false);
}

#[test]
fn the_same_by_scatter_gather_lists() {
    whole_volume(pair(SglUse::Preferred, true, false), false);
}

#[test]
fn the_same_where_the_kernel_cannot_reach_the_memory() {
    whole_volume(pair(SglUse::WhereNeeded, false, false), true);
}

#[test]
fn the_same_through_a_chain() {
    let pair = whole_volume(pair(SglUse::WhereNeeded, true, true), false);
    let mut expected = dcs_testkit::bytes(VOLUME, 7);
    let key: [u8; 64] = std::array::from_fn(|i| i as u8);
    let parameter = dcs_ndp::parameter::aes256_xts(&key, 512, 0);
    let operator = dcs_abi::operator::Operator::Aes256Xts;
    let mut cipher = dcs_ndp::Context::new(operator, &parameter).unwrap();
    cipher.in_place(&mut expected, true).unwrap();
    assert!(pair.machine.drives.storage().bytes(dcs_csd::VolumeId(0)) == expected);
}

#[test]
fn what_the_medium_fails_is_a_media_error() {
    let mut pair = pair(SglUse::Never, true, false);
    let data = [Window { address: BASE + OWN, length: 4096 }];
    let requests = [
        (Request::Read { lba: 0, data: &data }, VolumeError::Medium(5), Status::UNRECOVERED_READ_ERROR),
        (Request::Write { lba: 0, data: &data, durable: false }, VolumeError::Medium(5), Status::WRITE_FAULT),
        (Request::Write { lba: 0, data: &data, durable: true }, VolumeError::Full, Status::CAPACITY_EXCEEDED),
        (Request::Flush, VolumeError::Medium(5), Status::WRITE_FAULT),
    ];
    for (request, error, expected) in requests {
        pair.machine.drives.storage_mut().fail_next(error);
        match pair.run(tick, &request) {
            Err(NvmeError::Status(status)) => assert!(status.is(expected), "{status}"),
            other => panic!("{other:?} instead of {expected}"),
        }
    }
    assert_eq!(pair.machine.controller().counters().media_errors, 3);
}

#[test]
fn what_was_flushed_is_there_after_power_was_lost() {
    let mut pair = pair(SglUse::Never, true, false);
    let data = [Window { address: BASE + OWN, length: 4096 }];
    let fill = |pair: &mut Pair<ModelStorage>, byte| pair.machine.guest.memory.store(OWN, &[byte; 4096]);
    fill(&mut pair, 1);
    pair.run(tick, &Request::Write { lba: 0, data: &data, durable: false }).unwrap();
    pair.run(tick, &Request::Flush).unwrap();
    fill(&mut pair, 2);
    pair.run(tick, &Request::Write { lba: 8, data: &data, durable: true }).unwrap();
    fill(&mut pair, 3);
    pair.run(tick, &Request::Write { lba: 16, data: &data, durable: false }).unwrap();
    let storage = pair.machine.drives.storage_mut();
    storage.lose_power();
    let bytes = storage.bytes(dcs_csd::VolumeId(0));
    assert_eq!([bytes[0], bytes[4096], bytes[8192]], [1, 2, 0]);
}
