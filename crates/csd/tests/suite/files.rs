//! The storage on real files: the file holds what was written.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dcs_csd::storage::FileStorage;
use dcs_csd::{
    Action, Buffer, Config, Data, Limits, Piece, Request, Response, Storage, Ticket, VolumeError, VolumeId,
};
use dcs_drivers::bus::Window;
use dcs_drivers::nvme::{Request as HostRequest, SglUse};
use dcs_nvme::Status;
use dcs_nvme::command::{Blocks, Command, nvm};
use dcs_vfio::Mapping;

use crate::peer::Pair;
use crate::rig::{BASE, Machine};

/// A file for a volume; on the disk where the tests run.
fn file(folder: &tempfile::TempDir, name: &str) -> File {
    let path = folder.path().join(name);
    File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn buffer(bytes: &[u8]) -> Data {
    let mut buffer = Buffer::new(bytes.len());
    buffer.bytes_mut().copy_from_slice(bytes);
    Data::Buffer(buffer)
}

/// One request, and its answer.
fn run(
    storage: &mut FileStorage,
    volume: VolumeId,
    action: Action,
    offset: u64,
    length: u64,
    data: Data,
) -> Response {
    let ticket = Ticket { drive: 3, slot: 5 };
    storage.submit(Request { ticket, volume, action, offset, length, data });
    storage.commit();
    let mut responses = Vec::new();
    while responses.is_empty() {
        storage.wait(Duration::from_secs(1));
        storage.reap(&mut responses);
    }
    assert_eq!((responses.len(), responses[0].ticket), (1, ticket));
    responses.pop().unwrap()
}

fn bytes_of(response: Response) -> Vec<u8> {
    response.result.unwrap();
    let Data::Buffer(buffer) = response.data else { panic!("no buffer") };
    buffer.bytes().to_vec()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 512 * 7 + at % 512) as u8).collect()
}

#[test]
fn a_slice_of_a_file() {
    let folder = folder();
    let whole = file(&folder, "one");
    let mut storage = FileStorage::new(16).unwrap();
    let second = whole.try_clone().unwrap();
    let volume = storage.add(vec![(whole.try_clone().unwrap(), 1 << 20)], 2 << 20, 0, false).unwrap();
    assert_eq!(second.metadata().unwrap().len(), 3 << 20, "it was made longer");
    let expected = pattern(64 << 10);
    let write = Action::Write { durable: true };
    run(&mut storage, volume, write, 8192, 64 << 10, buffer(&expected)).result.unwrap();
    let mut found = vec![0; 64 << 10];
    second.read_exact_at(&mut found, (1 << 20) + 8192).unwrap();
    assert!(found == expected);
    let response = run(&mut storage, volume, Action::Read, 8192, 64 << 10, buffer(&[0; 64 << 10]));
    assert!(bytes_of(response) == expected);
    run(&mut storage, volume, Action::Flush, 0, 0, Data::None).result.unwrap();
    let beyond = run(&mut storage, volume, Action::Read, 2 << 20, 4096, buffer(&[0; 4096]));
    assert_eq!(beyond.result, Err(VolumeError::Refused));
    storage.resize(volume, 3 << 20).unwrap();
    let response = run(&mut storage, volume, Action::Read, 2 << 20, 4096, buffer(&[1; 4096]));
    assert_eq!(bytes_of(response), [0; 4096]);
    storage.remove(volume);
    let gone = run(&mut storage, volume, Action::Read, 0, 4096, buffer(&[0; 4096]));
    assert_eq!(gone.result, Err(VolumeError::Refused));
}

#[test]
fn stripes_over_three_files() {
    let folder = folder();
    let files: Vec<File> = ["a", "b", "c"].map(|name| file(&folder, name)).into();
    let mut storage = FileStorage::new(16).unwrap();
    let slices = files.iter().map(|file| (file.try_clone().unwrap(), 4096)).collect();
    let (stripe, length) = (8192usize, 192 << 10);
    let volume = storage.add(slices, length as u64, stripe as u64, false).unwrap();
    let expected = pattern(length);
    // In the guest's memory, in pieces; unlike the stripes.
    let memory = Arc::new(Mapping::anonymous(1 << 20).unwrap());
    let pieces = |at: u64, lengths: &[u64]| {
        let mut at = at;
        let piece = |length: &u64| {
            at += length + 4096;
            Piece::new(memory.clone(), at - length - 4096, *length).unwrap()
        };
        lengths.iter().map(piece).collect::<Vec<_>>()
    };
    let mut done = 0;
    for lengths in [&[4096, 12 << 10, 4096][..], &[28 << 10], &[144 << 10]] {
        let total: u64 = lengths.iter().sum::<u64>().min((length - done) as u64);
        let lengths = if lengths.iter().sum::<u64>() == total { lengths.to_vec() } else { vec![total] };
        let data = pieces(0, &lengths);
        let mut at = done;
        for piece in &data {
            piece.store(&expected[at..at + piece.length()]);
            at += piece.length();
        }
        let write = Action::Write { durable: false };
        run(&mut storage, volume, write, done as u64, total, Data::Pieces(data)).result.unwrap();
        done = at;
    }
    assert_eq!(done, length);
    for (row, chunk) in expected.chunks(stripe).enumerate() {
        let mut found = vec![0; stripe];
        files[row % 3].read_exact_at(&mut found, 4096 + (row / 3 * stripe) as u64).unwrap();
        assert!(found == chunk, "row {row}");
    }
    let response = run(&mut storage, volume, Action::Read, 4096, 100 << 10, buffer(&[0; 100 << 10]));
    assert!(bytes_of(response) == expected[4096..4096 + (100 << 10)]);
    run(&mut storage, volume, Action::Flush, 0, 0, Data::None).result.unwrap();
    let zero = Action::Zero { deallocate: false, durable: true };
    run(&mut storage, volume, zero, 4096, 40 << 10, Data::None).result.unwrap();
    let response = run(&mut storage, volume, Action::Read, 0, length as u64, buffer(&vec![1; length]));
    let mut zeroed = expected.clone();
    zeroed[4096..44 << 10].fill(0);
    assert!(bytes_of(response) == zeroed);
    // Cut: what is behind its end may be another volume's.
    let (row, end) = (3 * stripe as u64, length as u64);
    assert!(storage.resize(volume, end - row + stripe as u64).is_err());
    storage.resize(volume, end - row).unwrap();
    for action in [Action::Deallocate, zero, Action::Write { durable: false }, Action::Read] {
        let data = buffer(&[9; 4096]);
        let refused = run(&mut storage, volume, action, end - row, 4096, data);
        assert_eq!(refused.result, Err(VolumeError::Refused), "{action:?}");
    }
    storage.resize(volume, end).unwrap();
    let response = run(&mut storage, volume, Action::Read, 0, end, buffer(&vec![1; length]));
    assert!(bytes_of(response) == zeroed);
}

#[test]
fn deallocated_room_is_given_back() {
    let folder = folder();
    let whole = file(&folder, "thin");
    let mut storage = FileStorage::new(16).unwrap();
    let volume = storage.add(vec![(whole.try_clone().unwrap(), 0)], 4 << 20, 0, false).unwrap();
    if !storage.volume(volume).unwrap().thin {
        println!("skipped: the file system has no holes");
        return;
    }
    let write = Action::Write { durable: true };
    run(&mut storage, volume, write, 0, 1 << 20, buffer(&vec![7; 1 << 20])).result.unwrap();
    let before = whole.metadata().unwrap().blocks();
    run(&mut storage, volume, Action::Deallocate, 0, 1 << 20, Data::None).result.unwrap();
    assert!(whole.metadata().unwrap().blocks() < before);
    assert_eq!(whole.metadata().unwrap().len(), 4 << 20);
    let response = run(&mut storage, volume, Action::Read, 0, 4096, buffer(&[1; 4096]));
    assert_eq!(bytes_of(response), [0; 4096]);
}

/// Zeros that a file system cannot make are written, and the storage says so: a drive pays for them like for other bytes, the first time too.
#[test]
fn zeros_that_the_file_system_cannot_make_are_paid_for() {
    const LENGTH: u64 = 512 << 10;
    let memory: File = rustix::fs::memfd_create("disk", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into();
    let zeros = rustix::fs::FallocateFlags::ZERO_RANGE | rustix::fs::FallocateFlags::KEEP_SIZE;
    if rustix::fs::fallocate(&memory, zeros, 0, 4096).is_ok() {
        println!("skipped: files in memory can make zeros here");
        return;
    }
    let mut storage = FileStorage::new(16).unwrap();
    let volume = storage.add(vec![(memory.try_clone().unwrap(), 0)], 1 << 20, 0, false).unwrap();
    assert!(storage.volume(volume).unwrap().thin && !storage.volume(volume).unwrap().writes_zeros);
    memory.write_all_at(&[7; 1 << 20], 0).unwrap();
    let block = storage.volume(volume).unwrap().alignment.max(512);
    let mut machine = Machine::new(Config::new("memory"), storage, true);
    machine.attach(1, volume, block);
    machine.enable();
    machine.create(1);
    machine.controller().set_limits(Limits { bytes: 1 << 20, ..Limits::default() });
    machine.guest.clock.fetch_add(1_000_000_000, Ordering::Relaxed);
    // The drive reads the clock here: the steps below do not.
    machine.work();
    let finish = |machine: &mut Machine<FileStorage>| loop {
        machine.work();
        if let Some(done) = machine.reap(1) {
            return done.status;
        }
        machine.drives.storage_mut().wait(Duration::from_secs(1));
    };
    for (first, paid, unpaid) in [(0, LENGTH / 64, LENGTH), (LENGTH / block, LENGTH, 0)] {
        let words = Blocks { first, count: (LENGTH / block) as u32, durable: false }.words();
        machine.submit(1, Command { opcode: nvm::WRITE_ZEROES, namespace: 1, words, ..Command::default() });
        let controller = machine.controller.clone();
        let cost = controller.lock().unwrap().step(0, &mut machine.guest, machine.drives.storage_mut());
        assert_eq!(cost, Some(4096 + paid));
        let (storage, mut responses) = (machine.drives.storage_mut(), Vec::new());
        storage.commit();
        while responses.is_empty() {
            storage.wait(Duration::from_secs(1));
            storage.reap(&mut responses);
        }
        assert!(storage.volume(volume).unwrap().writes_zeros, "it has found out");
        let response = responses.remove(0);
        assert_eq!((response.written, responses.len()), (LENGTH, 0));
        let mut held = controller.lock().unwrap();
        held.complete(&mut machine.guest, storage, response);
        assert_eq!(held.take_unpaid(), unpaid);
        drop(held);
        assert_eq!(machine.reap(1).map(|done| done.status), Some(Status::SUCCESS));
        machine.submit(1, Command { opcode: nvm::FLUSH, namespace: 1, ..Command::default() });
        machine.work();
        assert_eq!(machine.reap(1), None, "half a second's bytes were written");
        machine.guest.clock.fetch_add(480_000_000, Ordering::Relaxed);
        machine.work();
        assert_eq!(machine.reap(1), None);
        machine.guest.clock.fetch_add(20_000_000, Ordering::Relaxed);
        assert_eq!(finish(&mut machine), Status::SUCCESS);
    }
    let mut found = vec![1; 1 << 20];
    memory.read_exact_at(&mut found, 0).unwrap();
    assert!(found.iter().all(|byte| *byte == 0));
}

/// Things that a volume keeps are dropped when its requests of that time have ended, or when it is taken out.
#[test]
fn what_is_kept_for_requests_goes_with_the_last_of_them() {
    let folder = folder();
    let mut storage = FileStorage::new(16).unwrap();
    let volume = storage.add(vec![(file(&folder, "kept"), 0)], 1 << 20, 0, false).unwrap();
    let read = |storage: &mut FileStorage| {
        let (ticket, data) = (Ticket { drive: 0, slot: 0 }, buffer(&[1; 4096]));
        storage.submit(Request { ticket, volume, action: Action::Read, offset: 0, length: 4096, data });
    };
    let kept = [(); 3].map(|()| Arc::new(()));
    let is_there = || kept.each_ref().map(|kept| Arc::strong_count(kept) > 1);
    read(&mut storage);
    storage.keep(volume, vec![kept[0].clone()]);
    read(&mut storage);
    read(&mut storage);
    assert_eq!(is_there(), [true, false, false]);
    storage.commit();
    let mut responses = Vec::new();
    while responses.len() < 3 {
        storage.wait(Duration::from_secs(1));
        storage.reap(&mut responses);
    }
    assert!(responses.iter().all(|response| response.result.is_ok()));
    assert_eq!(is_there(), [false; 3]);
    // At once, if it has none.
    storage.keep(volume, vec![kept[1].clone()]);
    assert_eq!(is_there(), [false; 3]);
    read(&mut storage);
    storage.keep(volume, vec![kept[2].clone()]);
    storage.remove(volume);
    assert_eq!(is_there(), [false, false, true], "a request is under way");
    while responses.len() < 4 {
        storage.wait(Duration::from_secs(1));
        storage.reap(&mut responses);
    }
    assert_eq!(is_there(), [false; 3]);
}

#[test]
fn volumes_that_cannot_be_are_refused() {
    let folder = folder();
    let one = || (file(&folder, "some"), 0);
    let mut storage = FileStorage::new(16).unwrap();
    assert!(storage.add(vec![], 4096, 0, false).is_err());
    assert!(storage.add(vec![one()], 0, 0, false).is_err());
    assert!(storage.add(vec![one()], 1000, 0, false).is_err());
    assert!(storage.add(vec![one(), one()], 8192, 512, false).is_err());
    assert!(storage.add(vec![one(), one()], 12_288, 4096, false).is_err());
    assert!(storage.add(vec![one()], 4096, 0, true).is_err(), "a short file is not made longer");
    let short = file(&folder, "short");
    short.set_len(4096).unwrap();
    let volume = storage.add(vec![(short, 0)], 4096, 0, true).unwrap();
    let write = run(&mut storage, volume, Action::Write { durable: false }, 0, 4096, buffer(&[1; 4096]));
    assert_eq!(write.result, Err(VolumeError::Refused));
}

#[test]
fn a_file_that_got_shorter_is_a_medium_that_fails() {
    let folder = folder();
    let whole = file(&folder, "cut");
    let mut storage = FileStorage::new(16).unwrap();
    let volume = storage.add(vec![(whole.try_clone().unwrap(), 0)], 64 << 10, 0, false).unwrap();
    whole.set_len(32 << 10).unwrap();
    let response = run(&mut storage, volume, Action::Read, 16 << 10, 32 << 10, buffer(&[0; 32 << 10]));
    assert!(matches!(response.result, Err(VolumeError::Medium(_))), "{:?}", response.result);
}

#[test]
fn a_host_writes_to_the_file() {
    let folder = folder();
    let whole = file(&folder, "disk");
    let mut storage = FileStorage::new(64).unwrap();
    let volume = storage.add(vec![(whole.try_clone().unwrap(), 0)], 4 << 20, 0, false).unwrap();
    let block = storage.volume(volume).unwrap().alignment.max(512);
    let mut machine = Machine::new(Config::new("file"), storage, true);
    machine.attach(1, volume, block);
    let wait = |machine: &mut Machine<FileStorage>| {
        let storage = machine.drives.storage_mut();
        if storage.is_busy() {
            storage.wait(Duration::from_millis(100));
        }
    };
    let mut pair = Pair::up(machine, SglUse::Never, wait);
    let expected = pattern(1 << 20);
    let data = [Window { address: BASE + (2 << 20), length: 1 << 20 }];
    pair.machine.guest.store(data[0].address, &expected);
    let lba = (1 << 20) / block;
    pair.run(wait, &HostRequest::Write { lba, data: &data, durable: false }).unwrap();
    pair.run(wait, &HostRequest::Flush).unwrap();
    let mut found = vec![0; 1 << 20];
    whole.read_exact_at(&mut found, 1 << 20).unwrap();
    assert!(found == expected);
    pair.machine.guest.store(data[0].address, &vec![0; 1 << 20]);
    pair.run(wait, &HostRequest::Read { lba, data: &data }).unwrap();
    assert!(pair.machine.guest.bytes(data[0].address, 1 << 20) == expected);
}
