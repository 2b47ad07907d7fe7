//! Copy of the NVM command set, into logical blocks: from the same namespace, another one, and local memory.

use dcs_csd::VolumeId;
use dcs_csd::storage::ModelStorage;
use dcs_nvme::command::{Blocks as Place, BlocksCopy, Command, Feature, admin, feature, nvm};
use dcs_nvme::local_memory::{Blocks, Bytes};
use dcs_nvme::{Completion, Status, identify};

use crate::rig::{DATA, Machine};
use crate::sets::{MEMORY, buffer, machine, store, text};

/// Blocks of namespaces 1 (512 bytes) and 2 (4,096 bytes, encrypted).
const BLOCKS: u64 = 2048;

/// Enables forms of sources: bit n, form n.
fn enable_forms(machine: &mut Machine<ModelStorage>, forms: u16) {
    let mut data = [0; 512];
    data[4..6].copy_from_slice(&forms.to_le_bytes());
    machine.guest.store(DATA, &data);
    let words = Feature { number: feature::HOST_BEHAVIOR, ..Feature::default() }.words();
    let set = Command {
        opcode: admin::SET_FEATURES,
        data: crate::rules::prp(DATA, 0),
        words,
        ..Command::default()
    };
    assert_eq!(machine.admin(set).status, Status::SUCCESS);
}

fn ready() -> Machine<ModelStorage> {
    let mut machine = machine(6);
    let content = text(1 << 20);
    machine.drives.storage_mut().bytes_mut(VolumeId(0)).copy_from_slice(&content);
    enable_forms(&mut machine, 1 << 2 | 1 << 4);
    machine
}

fn copy(
    machine: &mut Machine<ModelStorage>,
    namespace: u32,
    copy: BlocksCopy,
    sources: &[[u8; 32]],
) -> Status {
    machine.guest.store(DATA, &sources.concat());
    let words = BlocksCopy { sources: sources.len() as u16, ..copy }.words();
    let data = buffer(sources.concat().len());
    let done = machine.run(1, Command { opcode: nvm::COPY, namespace, data, words, ..Command::default() });
    assert_eq!((done.result, done.result_high), (0, 0));
    done.status
}

fn read(
    machine: &mut Machine<ModelStorage>,
    namespace: u32,
    first: u64,
    count: u32,
    block: usize,
) -> Vec<u8> {
    let (words, length) = (Place { first, count, durable: false }.words(), count as usize * block);
    let read = Command { opcode: nvm::READ, namespace, data: buffer(length), words, ..Command::default() };
    let done: Completion = machine.run(1, read);
    assert_eq!(done.status, Status::SUCCESS);
    machine.guest.bytes(DATA, length)
}

fn blocks(namespace: u32, first: u64, count: u32) -> Blocks {
    Blocks { namespace, first, count, fast_only: false }
}

fn bytes(first: u64, length: u32) -> Bytes {
    Bytes { namespace: MEMORY, first, length, fast_only: false }
}

#[test]
fn what_there_is_of_copies_is_told() {
    let mut machine = machine(6);
    let (_, controller) = machine.identify(identify::CONTROLLER, 0);
    assert_eq!((controller[521] & 1, controller[534], controller[535]), (1, 0b1_0101, 0), "ONCS, CDFS");
    let (_, namespace) = machine.identify(identify::NAMESPACE, 1);
    assert_eq!(namespace[74..81], [0xff, 0xff, 0, 0, 4, 0, 255], "MSSRL, MCL, MSRC");
    let mut plain = machine_without_programs();
    let (_, controller) = plain.identify(identify::CONTROLLER, 0);
    assert_eq!(controller[534], 0b101);
    enable_forms(&mut plain, 1 << 4);
    let from_memory = BlocksCopy { form: 4, ..BlocksCopy::default() };
    assert!(copy(&mut plain, 1, from_memory, &[bytes(0, 512).bytes()]).is(Status::INVALID_FIELD));
}

fn machine_without_programs() -> Machine<ModelStorage> {
    let mut storage = ModelStorage::new(0);
    let volume = storage.add(1 << 20, 512);
    let mut machine = Machine::new(dcs_csd::Config::new("plain"), storage, true);
    machine.attach(1, volume, 512);
    machine.enable();
    machine.create(1);
    machine
}

#[test]
fn blocks_are_copied_within_a_namespace_and_from_memory() {
    let mut machine = ready();
    let content = text(1 << 20);
    let own = BlocksCopy { target: 1000, ..BlocksCopy::default() };
    // The namespace of such sources is not looked at.
    let sources = [blocks(77, 5, 300).bytes(), blocks(0, 2047, 1).bytes()];
    assert_eq!(copy(&mut machine, 1, own, &sources), Status::SUCCESS);
    let back = read(&mut machine, 1, 999, 303, 512);
    assert!(back[512..301 * 512] == content[5 * 512..305 * 512]);
    assert!(back[301 * 512..302 * 512] == content[2047 * 512..]);
    assert!(back[..512] == content[999 * 512..1000 * 512], "the block before it");
    assert!(back[302 * 512..] == content[1301 * 512..1302 * 512], "the block behind it");
    // From memory into both namespaces; the guest of the encrypted one reads what was there.
    let words = text(200_000);
    store(&mut machine, 400, &words);
    let sources = [bytes(400, 100_000).bytes(), bytes(0, 0).bytes(), bytes(100_400, 2_400).bytes()];
    let of_memory = BlocksCopy { target: 10, form: 4, ..BlocksCopy::default() };
    assert_eq!(copy(&mut machine, 1, of_memory, &sources), Status::SUCCESS);
    assert!(read(&mut machine, 1, 10, 200, 512) == words[..102_400]);
    assert_eq!(copy(&mut machine, 2, of_memory, &sources), Status::SUCCESS);
    assert!(read(&mut machine, 2, 10, 25, 4096) == words[..102_400]);
    let there = &machine.drives.storage().bytes(VolumeId(1))[10 * 4096..11 * 4096];
    assert!(*there != words[..4096], "it is encrypted on the disk");
    // Into the encrypted one from itself.
    let own = BlocksCopy { target: 100, form: 2, ..BlocksCopy::default() };
    assert_eq!(copy(&mut machine, 2, own, &[blocks(2, 12, 20).bytes()]), Status::SUCCESS);
    assert!(read(&mut machine, 2, 100, 20, 4096) == words[2 * 4096..22 * 4096]);
}

#[test]
fn copies_that_break_a_rule_change_nothing() {
    let mut machine = ready();
    let before = machine.drives.storage().bytes(VolumeId(0)).to_vec();
    let fast = Blocks { fast_only: true, ..blocks(1, 0, 1) };
    for (target, form, source, expected) in [
        (100, 0, blocks(0, BLOCKS, 1).bytes(), Status::LBA_OUT_OF_RANGE),
        (BLOCKS, 0, blocks(0, 0, 1).bytes(), Status::LBA_OUT_OF_RANGE),
        (u64::MAX, 0, blocks(0, 0, 1).bytes(), Status::LBA_OUT_OF_RANGE),
        (100, 0, blocks(0, 99, 2).bytes(), Status::OVERLAPPING_IO_RANGE),
        (100, 2, blocks(1, 100, 1).bytes(), Status::OVERLAPPING_IO_RANGE),
        (100, 1, blocks(0, 0, 1).bytes(), Status::INVALID_FIELD),
        (100, 3, blocks(1, 0, 1).bytes(), Status::INVALID_FIELD),
        (100, 5, blocks(1, 0, 1).bytes(), Status::INVALID_FIELD),
        (100, 2, fast.bytes(), Status::FAST_COPY_NOT_POSSIBLE),
        (100, 2, blocks(2, 0, 1).bytes(), Status::INCOMPATIBLE_NAMESPACE),
        (100, 2, blocks(3, 0, 1).bytes(), Status::INVALID_FIELD),
        (100, 2, blocks(0, 0, 1).bytes(), Status::INVALID_NAMESPACE),
        (100, 2, blocks(u32::MAX, 0, 1).bytes(), Status::INVALID_NAMESPACE),
        (100, 2, blocks(MEMORY, 0, 1).bytes(), Status::INVALID_NAMESPACE),
        (100, 0, blocks(0, 0, 65_536).bytes(), Status::SIZE_LIMIT_EXCEEDED),
        (100, 4, bytes(0, 510).bytes(), Status::INVALID_FIELD),
        (100, 4, bytes(0, 516).bytes(), Status::INVALID_FIELD),
        (100, 4, bytes(0, 0).bytes(), Status::INVALID_FIELD),
        (100, 4, bytes(1 << 20, 512).bytes(), Status::INVALID_FIELD),
        (100, 4, Bytes { namespace: 1, ..bytes(0, 512) }.bytes(), Status::INVALID_NAMESPACE),
        (100, 4, Bytes { fast_only: true, ..bytes(0, 512) }.bytes(), Status::FAST_COPY_NOT_POSSIBLE),
    ] {
        let wanted = BlocksCopy { target, form, ..BlocksCopy::default() };
        let status = copy(&mut machine, 1, wanted, &[source]);
        assert!(status.is(expected), "{status} instead of {expected}: {wanted:?}");
    }
    // Into what is not there.
    for (namespace, expected) in [(3, Status::INVALID_FIELD), (0, Status::INVALID_NAMESPACE)] {
        let status = copy(&mut machine, namespace, BlocksCopy::default(), &[blocks(0, 0, 1).bytes()]);
        assert!(status.is(expected), "{status}");
    }
    // Forms that were not enabled are not there.
    enable_forms(&mut machine, 0);
    for (form, source) in [(2, blocks(1, 0, 1).bytes()), (4, bytes(0, 512).bytes())] {
        let wanted = BlocksCopy { target: 100, form, ..BlocksCopy::default() };
        assert!(copy(&mut machine, 1, wanted, &[source]).is(Status::INVALID_FIELD));
    }
    assert!(machine.drives.storage().bytes(VolumeId(0)) == before);
    assert_eq!(machine.controller().slots_used(), 0);
}

/// A copy with FUA is on the medium when it ends.
#[test]
fn a_durable_copy_survives_a_power_cut() {
    for durable in [true, false] {
        let mut machine = ready();
        let flush = Command { opcode: nvm::FLUSH, namespace: 1, ..Command::default() };
        assert_eq!(machine.run(1, flush).status, Status::SUCCESS);
        let before = machine.drives.storage().bytes(VolumeId(0)).to_vec();
        let wanted = BlocksCopy { target: 1000, durable, ..BlocksCopy::default() };
        assert_eq!(copy(&mut machine, 1, wanted, &[blocks(0, 5, 300).bytes()]), Status::SUCCESS);
        machine.drives.storage_mut().lose_power();
        let there = &machine.drives.storage().bytes(VolumeId(0))[1000 * 512..1300 * 512];
        let (copied, old) = (&before[5 * 512..305 * 512], &before[1000 * 512..1300 * 512]);
        assert!(there == if durable { copied } else { old }, "durable: {durable}");
    }
}
