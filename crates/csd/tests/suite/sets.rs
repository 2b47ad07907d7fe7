//! The standard's command sets: subsystem local memory, and computational programs.

use std::sync::Arc;

use dcs_abi::operator::{OPERATORS, Operator, OperatorKind};
use dcs_csd::near::CHAIN;
use dcs_csd::storage::ModelStorage;
use dcs_csd::{Chain, Config, Namespace, Storage, VolumeError, VolumeId};
use dcs_ndp::{parameter, sequential};
use dcs_nvme::command::{Command, Feature, GetLogPage, admin, feature, log, nvm};
use dcs_nvme::identify::{self, set};
use dcs_nvme::local_memory::{self, Blocks, Bytes, Copy, Range};
use dcs_nvme::programs::{
    self, Descriptor, EXECUTE, Execute, LoadProgram, MemoryRange, MemoryRangeSets, ProgramActivation,
};
use dcs_nvme::sgl;
use dcs_nvme::{Completion, DataPointer, Status, register};

use crate::rig::{DATA, Machine};
use crate::rules::prp;

/// The namespaces, behind the 16 that there may be of logical blocks.
pub const MEMORY: u32 = 17;
pub const PROGRAMS: u32 = 18;

/// Bytes of local memory.
pub const LENGTH: u32 = 1 << 20;

/// A machine with a plain namespace 1 and an encrypted one, 2, that has selected these command sets.
pub fn machine(sets: u8) -> Machine<ModelStorage> {
    let mut storage = ModelStorage::new(0);
    let volumes = [storage.add(1 << 20, 512), storage.add(1 << 20, 512)];
    let config = Config { buffers: 2, programs: true, memory: LENGTH, ..Config::new("sets") };
    let mut machine = Machine::new(config, storage, true);
    machine.attach(1, volumes[0], 512);
    let info = machine.drives.storage().volume(volumes[1]).unwrap();
    let mut namespace = Namespace::new(2, volumes[1], &info, 4096).unwrap();
    namespace.chain = Some(Arc::new(Chain::aes256_xts(&std::array::from_fn(|i| i as u8)).unwrap()));
    machine.controller().attach(namespace, machine.drives.storage()).unwrap();
    machine.enable_sets(sets);
    machine.create(1);
    machine
}

fn all() -> Machine<ModelStorage> {
    machine(6)
}

/// The buffer as one piece.
pub fn buffer(length: usize) -> DataPointer {
    DataPointer::Sgl(sgl::Descriptor::data(DATA, length as u32))
}

fn memory_command(opcode: u8, first: u64, length: u32) -> Command {
    let data = if opcode == local_memory::FILL { DataPointer::default() } else { buffer(length as usize) };
    let words = Range { first, length }.words();
    Command { opcode, namespace: MEMORY, data, words, ..Command::default() }
}

pub fn store(machine: &mut Machine<ModelStorage>, first: u64, bytes: &[u8]) {
    machine.guest.store(DATA, bytes);
    let done = machine.run(1, memory_command(local_memory::WRITE, first, bytes.len() as u32));
    assert_eq!((done.status, done.result), (Status::SUCCESS, 0));
}

pub fn load(machine: &mut Machine<ModelStorage>, first: u64, length: usize) -> Vec<u8> {
    machine.guest.store(DATA, &vec![0xee; length]);
    let done = machine.run(1, memory_command(local_memory::READ, first, length as u32));
    assert_eq!((done.status, done.result), (Status::SUCCESS, 0));
    machine.guest.bytes(DATA, length)
}

fn run_entry(machine: &mut Machine<ModelStorage>, entry: [u8; 64]) -> Completion {
    let cid = machine.submit_bytes(1, entry);
    machine.work();
    let done = machine.reap(1).expect("a completion");
    assert_eq!(done.cid, cid);
    done
}

fn copy(machine: &mut Machine<ModelStorage>, copy: Copy, sources: &[[u8; 32]]) -> Status {
    machine.guest.store(DATA, &sources.concat());
    let data = buffer(sources.concat().len());
    let mut entry =
        Command { opcode: local_memory::COPY, namespace: MEMORY, data, ..Command::default() }.bytes();
    Copy { sources: sources.len() as u16, ..copy }.put(&mut entry);
    run_entry(machine, entry).status
}

/// An entry that executes a program, whose data are in place.
fn execute_entry(machine: &mut Machine<ModelStorage>, execute: Execute, data: &[u8]) -> [u8; 64] {
    machine.guest.store(DATA, data);
    let pointer = if data.is_empty() { DataPointer::default() } else { buffer(data.len()) };
    let mut entry =
        Command { opcode: EXECUTE, namespace: PROGRAMS, data: pointer, ..Command::default() }.bytes();
    Execute { length: data.len() as u32, ..execute }.put(&mut entry);
    entry
}

pub fn range(first: u64, length: u32) -> MemoryRange {
    MemoryRange { namespace: MEMORY, length, first }
}

/// Executes a program on memory ranges of its own data.
pub fn execute(
    machine: &mut Machine<ModelStorage>,
    program: u16,
    taken: u64,
    ranges: &[MemoryRange],
    parameter: &[u8],
) -> Completion {
    let mut data: Vec<u8> = ranges.iter().flat_map(|range| range.bytes()).collect();
    data.extend_from_slice(parameter);
    let wanted =
        Execute { program, ranges: ranges.len() as u32, parameters: [taken, 0], ..Execute::default() };
    let entry = execute_entry(machine, wanted, &data);
    run_entry(machine, entry)
}

pub fn text(length: usize) -> Vec<u8> {
    (0..length).map(|at| b"a line of the log, number \n"[at % 27].wrapping_add((at / 9000) as u8)).collect()
}

fn numbers(data: &[u8; identify::SIZE]) -> Vec<u32> {
    identify::active_namespaces(data).collect()
}

#[test]
fn a_guest_that_knows_only_nvm_sees_nothing_of_them() {
    let mut machine = machine(0);
    assert_eq!(machine.read32(register::CAP + 4) >> 5 & 0xff, 1 | 1 << 6, "CAP.CSS");
    assert_eq!(numbers(&machine.identify(identify::ACTIVE_NAMESPACES, 0).1), [1, 2]);
    for number in [MEMORY, PROGRAMS] {
        assert_eq!(machine.identify(identify::NAMESPACE, number), (Status::SUCCESS, [0; identify::SIZE]));
        assert!(machine.identify(identify::NAMESPACE_DESCRIPTORS, number).0.is(Status::INVALID_FIELD));
    }
    assert!(machine.identify(identify::NAMESPACE, PROGRAMS + 1).0.is(Status::INVALID_NAMESPACE));
    let done = machine.run(1, memory_command(local_memory::READ, 0, 512));
    assert!(done.status.is(Status::INVALID_FIELD), "{}", done.status);
    for opcode in [admin::LOAD_PROGRAM, admin::PROGRAM_ACTIVATION, admin::MEMORY_RANGE_SETS] {
        let done = machine.admin(Command { opcode, namespace: PROGRAMS, ..Command::default() });
        assert!(done.status.is(Status::INVALID_OPCODE));
    }
    let words = GetLogPage { page: log::PROGRAMS, retain_event: false, bytes: 64, offset: 0 }.words();
    let page = Command {
        opcode: admin::GET_LOG_PAGE,
        namespace: PROGRAMS,
        data: prp(DATA, 0),
        words,
        ..Command::default()
    };
    assert!(machine.admin(page).status.is(Status::INVALID_LOG_PAGE));
}

#[test]
fn a_drive_without_them_does_not_take_them() {
    let mut machine = Machine::new(Config::new("none"), ModelStorage::new(0), true);
    assert_eq!(machine.read32(register::CAP + 4) >> 5 & 0xff, 1, "CAP.CSS");
    machine.enable();
    assert!(machine.identify_of(identify::COMMAND_SETS, 1, 0, 0).0.is(Status::INVALID_FIELD));
    let wanted = Feature { number: feature::COMMAND_SETS, ..Feature::default() }.words();
    let get = Command { opcode: admin::GET_FEATURES, words: wanted, ..Command::default() };
    assert!(machine.admin(get).status.is(Status::INVALID_FIELD));
    // With CC.CSS = 110b it fails, as with any value that it does not offer.
    machine.write32(register::CC, 0);
    machine.work();
    machine.write32(register::CC, 6 << 4 | 6 << 16 | 4 << 20 | 1);
    machine.work();
    assert_eq!(machine.read32(register::CSTS) & 3, 2, "CSTS.CFS");
}

#[test]
fn identify_data_name_the_command_sets() {
    let mut machine = all();
    let (status, data) = machine.identify_of(identify::COMMAND_SETS, 0xffff, 0, 0);
    assert_eq!(
        (status, &data[..16]),
        (Status::SUCCESS, &[0b11001, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..])
    );
    assert_eq!(machine.identify_of(identify::COMMAND_SETS, 1, 0, 0).1, data);
    assert!(machine.identify_of(identify::COMMAND_SETS, 2, 0, 0).0.is(Status::INVALID_FIELD));
    let known = identify::Controller::from_bytes(&machine.identify(identify::CONTROLLER, 0).1);
    assert_eq!(known.namespaces, PROGRAMS);
    assert_eq!(numbers(&machine.identify(identify::ACTIVE_NAMESPACES, 0).1), [1, 2, MEMORY, PROGRAMS]);
    assert_eq!(numbers(&machine.identify(identify::ACTIVE_NAMESPACES, MEMORY).1), [PROGRAMS]);
    assert_eq!(numbers(&machine.identify(identify::ALLOCATED_NAMESPACES, 1).1), [2, MEMORY, PROGRAMS]);
    for (set, expected) in
        [(set::NVM, &[1, 2][..]), (set::LOCAL_MEMORY, &[MEMORY]), (set::PROGRAMS, &[PROGRAMS])]
    {
        let (status, data) = machine.identify_of(identify::ACTIVE_NAMESPACES_OF_SET, 0, set, 0);
        assert_eq!((status, numbers(&data)), (Status::SUCCESS, expected.to_vec()));
        assert_eq!(
            machine.identify_of(identify::CONTROLLER_OF_SET, 0, set, 0),
            (Status::SUCCESS, [0; identify::SIZE])
        );
        let (status, data) = machine.identify(identify::ANY_NAMESPACE, expected[0]);
        assert!(status.is_success() && identify::AnyNamespace::from_bytes(&data).ready);
        // The last descriptor is that of the command set.
        let (status, data) = machine.identify(identify::NAMESPACE_DESCRIPTORS, expected[0]);
        let at = if set == set::NVM { 0 } else { 20 };
        assert_eq!((status, &data[at..at + 5], data[at + 5]), (Status::SUCCESS, &[4, 1, 0, 0, set][..], 0));
        for other in [set::NVM, set::LOCAL_MEMORY, set::PROGRAMS] {
            let (status, _) = machine.identify_of(identify::NAMESPACE_OF_SET, 0, other, expected[0]);
            assert_eq!(status.is_success(), other == set);
            assert!(other == set || status.is(Status::INVALID_COMMAND_SET));
        }
    }
    for structure in
        [identify::NAMESPACE_OF_SET, identify::CONTROLLER_OF_SET, identify::ACTIVE_NAMESPACES_OF_SET]
    {
        assert!(machine.identify_of(structure, 0, 2, 1).0.is(Status::INVALID_FIELD), "zoned");
    }
    for number in [MEMORY, PROGRAMS] {
        assert!(machine.identify(identify::NAMESPACE, number).0.is(Status::INVALID_COMMAND_SET));
        assert!(machine.identify(identify::ALLOCATED_NAMESPACE, number).0.is(Status::INVALID_COMMAND_SET));
        let (_, data) = machine.identify(identify::CONTROLLERS_OF_NAMESPACE, number);
        assert_eq!(data[..6], [1, 0, 1, 0, 0, 0]);
    }
    let (_, data) = machine.identify_of(identify::NAMESPACE_OF_SET, 0, set::LOCAL_MEMORY, MEMORY);
    assert_eq!(data[..8], u64::from(LENGTH).to_le_bytes());
    let (_, data) = machine.identify_of(identify::NAMESPACE_OF_SET, 0, set::PROGRAMS, PROGRAMS);
    let known = programs::Namespace::from_bytes(&data);
    assert_eq!((known.sets, known.ranges, known.granularity, known.program_bytes), (64, 8, 2, 0));
    let profile = |value| Feature { number: feature::COMMAND_SETS, value, ..Feature::default() }.words();
    let set = |words| Command { opcode: admin::SET_FEATURES, words, ..Command::default() };
    assert_eq!(machine.admin(set(profile(0))).status, Status::SUCCESS);
    assert!(machine.admin(set(profile(1))).status.is(Status::COMMAND_SETS_REJECTED));
    let get = Command { opcode: admin::GET_FEATURES, words: profile(0), ..Command::default() };
    assert_eq!(machine.admin(get).result, 0);
}

#[test]
fn commands_and_their_effects_are_of_a_set() {
    let mut machine = all();
    let mut page = |number, bytes, namespace, set: u8| {
        let mut words = GetLogPage { page: number, retain_event: false, bytes, offset: 0 }.words();
        words[4] = u32::from(set) << 24;
        let data = buffer(0);
        let command = Command { opcode: admin::GET_LOG_PAGE, namespace, data, words, ..Command::default() };
        let done = machine.admin(Command { data: prp(DATA, DATA + 4096), ..command });
        (done.status, machine.guest.bytes(DATA, bytes as usize))
    };
    let (_, nvm) = page(log::EFFECTS, 4096, 0, set::NVM);
    let (_, memory) = page(log::EFFECTS, 4096, 0, set::LOCAL_MEMORY);
    let (_, programs) = page(log::EFFECTS, 4096, 0, set::PROGRAMS);
    let io = |page: &[u8], opcode: u8| page[1024 + 4 * usize::from(opcode)];
    assert_eq!((io(&nvm, nvm::READ), io(&nvm, 0xc0), io(&nvm, local_memory::FILL)), (1, 3, 0));
    assert_eq!(
        (io(&memory, local_memory::READ), io(&memory, local_memory::FILL), io(&memory, 0xc0)),
        (1, 3, 0)
    );
    assert_eq!((io(&programs, EXECUTE), io(&programs, nvm::READ)), (3, 0));
    assert_eq!((programs[4 * 0x89], nvm[4 * 0x89], memory[4 * 6]), (1, 0, 1));
    assert!(page(log::EFFECTS, 4096, 0, 2).0.is(Status::INVALID_FIELD));
    let (_, pages) = page(log::SUPPORTED, 1024, 0, 0);
    let there: Vec<usize> = (0..256).filter(|number| pages[4 * number] & 1 != 0).collect();
    assert_eq!(there, [0, 1, 2, 3, 4, 5, 0x12, 0x82, 0x83]);
    assert!(page(log::PROGRAMS, 64, 1, 0).0.is(Status::INVALID_NAMESPACE));
    let (status, list) = page(log::PROGRAMS, 64 + 64 * 8, PROGRAMS, 0);
    assert_eq!((status, &list[..4]), (Status::SUCCESS, &(u32::from(CHAIN) + 1).to_le_bytes()[..]));
    let descriptor = |index: usize| Descriptor::from_bytes(&list[64 + 64 * index..]);
    assert_eq!(descriptor(0), Descriptor::default());
    let md5 = Descriptor { occupied: 2, activated: true, kind: 0, identifier: Some(1) };
    assert_eq!(descriptor(Operator::Md5 as usize), md5);
    assert_eq!(page(log::PROGRAM_TYPES, 64, PROGRAMS, 0), (Status::SUCCESS, vec![0; 64]));
}

#[test]
fn local_memory_is_bytes() {
    let mut machine = all();
    let content = text(300_000);
    store(&mut machine, 4, &content);
    assert!(load(&mut machine, 4, 300_000) == content);
    let done = machine.run(1, memory_command(local_memory::FILL, 100, 200_000));
    assert_eq!(done.status, Status::SUCCESS);
    let back = load(&mut machine, 0, 300_004);
    assert!(back[..4] == [0; 4] && back[4..100] == content[..96]);
    assert!(back[100..200_100].iter().all(|byte| *byte == 0) && back[200_100..] == content[200_096..]);
    // The vendor's commands have the same memory.
    let mut entry = [0; 64];
    (entry[0], entry[8]) = (dcs_csd::near::TO_GUEST, 2);
    entry[1] = 1 << 6;
    entry[24..40].copy_from_slice(&sgl::Descriptor::data(DATA, 512).bytes());
    for (at, word) in [(40, 128u32), (44, 512), (48, 200_100)] {
        entry[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    assert_eq!(run_entry(&mut machine, entry).status, Status::SUCCESS);
    assert!(machine.guest.bytes(DATA, 512) == content[200_096..200_608]);
    let flush = Command { opcode: nvm::FLUSH, namespace: MEMORY, ..Command::default() };
    assert_eq!(machine.run(1, flush).status, Status::SUCCESS);
    assert_eq!(machine.run(1, memory_command(local_memory::READ, 0, 0)).status, Status::SUCCESS);
    let end = u64::from(LENGTH);
    for (command, expected) in [
        (memory_command(local_memory::READ, end - 512, 512), Status::SUCCESS),
        (memory_command(local_memory::READ, end - 508, 512), Status::INVALID_FIELD),
        (memory_command(local_memory::FILL, u64::MAX - 3, 512), Status::INVALID_FIELD),
        (memory_command(local_memory::READ, 2, 512), Status::INVALID_FIELD),
        (memory_command(local_memory::WRITE, 0, 510), Status::INVALID_FIELD),
        (memory_command(0x7f, 0, 512), Status::INVALID_OPCODE),
        (
            Command { data: buffer(508), ..memory_command(local_memory::READ, 0, 512) },
            Status::INVALID_SGL_LENGTH,
        ),
        (Command { fused: 1, ..memory_command(local_memory::READ, 0, 512) }, Status::INVALID_FIELD),
    ] {
        let done = machine.run(1, command);
        assert!(done.status.is(expected), "{} instead of {expected}, for {command:?}", done.status);
    }
    // A reset leaves nothing of it.
    machine.write32(register::CC, 0);
    machine.work();
    machine.enable_sets(6);
    machine.create(1);
    assert!(load(&mut machine, 0, 4096) == [0; 4096]);
}

#[test]
fn copies_come_from_blocks_and_from_memory() {
    let mut machine = all();
    let content = text(1 << 20);
    machine.drives.storage_mut().bytes_mut(VolumeId(0)).copy_from_slice(&content);
    // The encrypted one, as its guest writes it.
    machine.guest.store(DATA, &content[..8192]);
    let words = dcs_nvme::command::Blocks { first: 3, count: 2, durable: false }.words();
    let write = Command { opcode: nvm::WRITE, namespace: 2, data: buffer(8192), words, ..Command::default() };
    assert_eq!(machine.run(1, write).status, Status::SUCCESS);
    let blocks = |namespace, first, count| Blocks { namespace, first, count, fast_only: false };
    let wanted = |length| Copy { length, target: 4, form: 2, ..Copy::default() };
    let sources = [blocks(1, 5, 600).bytes(), blocks(2, 3, 2).bytes(), blocks(1, 2047, 1).bytes()];
    let length = 600 * 512 + 8192 + 512;
    assert_eq!(copy(&mut machine, wanted(length), &sources), Status::SUCCESS);
    let back = load(&mut machine, 4, length as usize);
    assert!(back[..600 * 512] == content[5 * 512..605 * 512]);
    assert!(back[600 * 512..600 * 512 + 8192] == content[..8192]);
    assert!(back[600 * 512 + 8192..] == content[2047 * 512..]);
    let part = |first, length| Bytes { namespace: MEMORY, first, length, fast_only: false };
    let within = |length| Copy { length, target: 400_000, form: 4, ..Copy::default() };
    let sources = [part(1024, 100_000).bytes(), part(4, 8).bytes(), part(0, 0).bytes()];
    assert_eq!(copy(&mut machine, within(100_008), &sources), Status::SUCCESS);
    let twice = load(&mut machine, 400_000, 100_008);
    assert!(twice[..100_000] == back[1020..101_020] && twice[100_000..] == back[..8]);
    let fast = Blocks { fast_only: true, ..blocks(1, 0, 1) };
    for (form, source, expected) in [
        (2, blocks(1, 2048, 1).bytes(), Status::LBA_OUT_OF_RANGE),
        (2, blocks(3, 0, 1).bytes(), Status::INVALID_FIELD),
        (2, blocks(0, 0, 1).bytes(), Status::INVALID_NAMESPACE),
        (2, blocks(MEMORY, 0, 1).bytes(), Status::INCOMPATIBLE_NAMESPACE),
        (2, blocks(1, 0, 2).bytes(), Status::INVALID_FIELD),
        (2, fast.bytes(), Status::FAST_COPY_NOT_POSSIBLE),
        (3, blocks(1, 0, 1).bytes(), Status::INVALID_FIELD),
        (4, Bytes { namespace: 1, ..part(600_000, 512) }.bytes(), Status::INVALID_NAMESPACE),
        (4, part(601_000, 510).bytes(), Status::INVALID_FIELD),
        (4, part(u64::from(LENGTH), 512).bytes(), Status::INVALID_FIELD),
        (4, part(500_256, 512).bytes(), Status::OVERLAPPING_IO_RANGE),
        (4, part(499_744, 512).bytes(), Status::OVERLAPPING_IO_RANGE),
        (4, part(499_488, 512).bytes(), Status::SUCCESS),
    ] {
        let status = copy(&mut machine, Copy { length: 512, target: 500_000, form, sources: 1 }, &[source]);
        assert!(status.is(expected), "{status} instead of {expected}");
    }
    let beyond = Copy { length: 512, target: u64::from(LENGTH) - 508, form: 2, sources: 1 };
    assert!(copy(&mut machine, beyond, &[blocks(1, 0, 1).bytes()]).is(Status::INVALID_FIELD));
    machine.drives.storage_mut().fail_next(VolumeError::Medium(5));
    let status = copy(&mut machine, wanted(512), &[blocks(1, 0, 1).bytes()]);
    assert!(status.is(Status::UNRECOVERED_READ_ERROR));
}

#[test]
fn every_operator_is_a_program() {
    let mut machine = all();
    let source = text(200_001);
    let parameters = |operator: Operator| match operator {
        Operator::Aes256Ctr => parameter::aes256_ctr(&[7; 32], &[9; 16]).to_vec(),
        Operator::Aes256Xts | Operator::Aes256XtsDecrypt => {
            parameter::aes256_xts(&std::array::from_fn(|i| i as u8), 512, 0).to_vec()
        }
        Operator::BlowfishCtr => parameter::blowfish_ctr(&[7; 16], &[9; 8]),
        Operator::Slice => parameter::slice(1000, 5000).to_vec(),
        Operator::Grep => parameter::Grep { pattern: "[0-4]".to_string(), ..Default::default() }.block(),
        Operator::Filter => b"-w3:u8@1>105".to_vec(),
        Operator::Aggregate => b"-w3:count;sum(u16be@1);mean(u8@0)".to_vec(),
        Operator::Knn => {
            parameter::Knn { element: parameter::Element::U8, k: 20, query: b"the".to_vec() }.block()
        }
        _ => Vec::new(),
    };
    let mut tried = 0;
    for info in OPERATORS {
        let chain = [(info.operator, parameters(info.operator))];
        // Whole data units for XTS; for what unpacks, what packs.
        let input = match info.operator {
            Operator::Aes256Xts | Operator::Aes256XtsDecrypt => source[..199_680].to_vec(),
            Operator::Gunzip => sequential::run(&[(Operator::Gzip, vec![])], &source).unwrap().output,
            Operator::Unzstd => sequential::run(&[(Operator::Zstd, vec![])], &source).unwrap().output,
            // One container of two runs: RoaringFormatSpec.
            Operator::Bitmap => {
                [&12347u32.to_le_bytes()[..], &[1, 0, 0, 107, 0, 2, 0, 7, 0, 99, 0, 200, 0, 7, 0]].concat()
            }
            _ => source.clone(),
        };
        let Ok(expected) = sequential::run(&chain, &input) else { continue };
        let expected = match info.kind {
            OperatorKind::Digest { .. } => expected.digests[0].unwrap().as_bytes().to_vec(),
            _ => expected.output,
        };
        let mut whole = input.clone();
        whole.resize(input.len().next_multiple_of(4), 0);
        store(&mut machine, 0, &whole);
        let ranges = [range(0, whole.len() as u32), range(512 << 10, 400_000)];
        let done = execute(&mut machine, info.operator as u16, input.len() as u64, &ranges, &chain[0].1);
        assert_eq!((done.status, done.result as usize), (Status::SUCCESS, expected.len()), "{}", info.name);
        let back = load(&mut machine, 512 << 10, expected.len().next_multiple_of(4));
        assert!(back[..expected.len()] == expected, "{}", info.name);
        tried += 1;
    }
    assert!(tried >= 15, "{tried}");
}

#[test]
fn a_chain_is_a_program_with_a_result_page() {
    let mut machine = all();
    let source = text(100_000);
    store(&mut machine, 0, &source);
    let create = |select, set, ranges| Command {
        opcode: admin::MEMORY_RANGE_SETS,
        namespace: PROGRAMS,
        data: prp(DATA, 0),
        words: MemoryRangeSets { select, set, ranges }.words(),
        ..Command::default()
    };
    let ranges = [range(0, 100_000), range(200_000, 100_000), range(300_000, 768)];
    machine.guest.store(DATA, &ranges.iter().flat_map(|range| range.bytes()).collect::<Vec<u8>>());
    let done = machine.admin(create(0, 0, 3));
    assert_eq!((done.status, done.result), (Status::SUCCESS, 1));
    // md5, then gzip: as parameters of the vendor's commands are.
    let chain = [2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0];
    let wanted = Execute { program: CHAIN, set: 1, ..Execute::default() };
    let entry = execute_entry(&mut machine, wanted, &chain);
    let done = run_entry(&mut machine, entry);
    assert_eq!(done.status, Status::SUCCESS);
    let packed = load(&mut machine, 200_000, (done.result as usize).next_multiple_of(4));
    let back = sequential::run(&[(Operator::Gunzip, vec![])], &packed[..done.result as usize]).unwrap();
    assert!(back.output == source);
    let page = load(&mut machine, 300_000, 768);
    let md5 = sequential::run(&[(Operator::Md5, vec![])], &source).unwrap().digests[0].unwrap();
    assert_eq!((page[6], page[7], &page[80..96]), (0xff, 2, md5.as_bytes()));
    assert_eq!(page[8..16], 100_000u64.to_le_bytes());
    // Under way, neither the set nor the program can be taken away.
    let entry = execute_entry(&mut machine, wanted, &chain);
    machine.submit_bytes(1, entry);
    machine.step();
    let activation = |program, select| Command {
        opcode: admin::PROGRAM_ACTIVATION,
        namespace: PROGRAMS,
        words: ProgramActivation { program, select }.words(),
        ..Command::default()
    };
    machine.submit(0, create(1, 1, 0));
    machine.step();
    assert!(machine.reap(0).unwrap().status.is(Status::MEMORY_RANGE_SET_IN_USE));
    machine.submit(0, activation(CHAIN, 0));
    machine.step();
    assert!(machine.reap(0).unwrap().status.is(Status::PROGRAM_IN_USE));
    machine.work();
    assert_eq!(machine.reap(1).unwrap().status, Status::SUCCESS);
    assert_eq!(machine.admin(activation(CHAIN, 0)).status, Status::SUCCESS);
    let entry = execute_entry(&mut machine, wanted, &chain);
    assert!(run_entry(&mut machine, entry).status.is(Status::PROGRAM_NOT_ACTIVATED));
    assert_eq!(machine.admin(activation(CHAIN, 1)).status, Status::SUCCESS);
    assert_eq!(machine.admin(create(1, 1, 0)).status, Status::SUCCESS);
    let entry = execute_entry(&mut machine, wanted, &chain);
    assert!(run_entry(&mut machine, entry).status.is(Status::INVALID_MEMORY_RANGE_SET_ID));
    assert!(machine.admin(create(1, 1, 0)).status.is(Status::INVALID_MEMORY_RANGE_SET_ID));
    machine.guest.store(DATA, &ranges[0].bytes());
    for set in 1..=64 {
        assert_eq!(machine.admin(create(0, 0, 1)).result, set);
    }
    assert!(machine.admin(create(0, 0, 1)).status.is(Status::TOO_MANY_MEMORY_RANGE_SETS));
}

#[test]
fn programs_that_cannot_be_are_refused() {
    let mut machine = all();
    let md5 = Operator::Md5 as u16;
    let two = [range(0, 4096), range(4096, 4096)];
    type Row<'a> = (u16, u64, &'a [MemoryRange], &'a [u8], Status);
    let table: &[Row] = &[
        (CHAIN + 1, 0, &two, &[], Status::INVALID_PROGRAM_INDEX),
        (0, 0, &two, &[], Status::NO_PROGRAM),
        (md5, 4097, &two, &[], Status::INVALID_FIELD),
        (md5, 0, &two[..1], &[], Status::INVALID_FIELD),
        (md5, 0, &[], &[], Status::INVALID_FIELD),
        (md5, 0, &[two[0], range(4096, 12)], &[], Status::CAPACITY_EXCEEDED),
        (md5, 0, &[two[0], two[1], range(9000, 700)], &[], Status::INVALID_FIELD),
        (md5, 0, &[two[0], range(4092, 16)], &[], Status::OVERLAPPING_MEMORY_RANGES),
        (md5, 0, &[two[0], range(4098, 16)], &[], Status::INVALID_MEMORY_RANGE_SET),
        (md5, 0, &[two[0], range(4096, 0)], &[], Status::INVALID_MEMORY_RANGE_SET),
        (md5, 0, &[two[0], range(u64::from(LENGTH), 16)], &[], Status::INVALID_MEMORY_RANGE_SET),
        (md5, 0, &[two[0], range(u64::MAX - 3, 16)], &[], Status::INVALID_MEMORY_RANGE_SET),
        (md5, 0, &[two[0], MemoryRange { namespace: 1, ..two[1] }], &[], Status::INVALID_MEMORY_NAMESPACE),
        (md5, 0, &[two[0]; 9], &[], Status::TOO_MANY_MEMORY_RANGES),
        (CHAIN, 0, &two, &[], Status::INVALID_FIELD),
        // What comes out does not fit.
        (
            Operator::Slice as u16,
            0,
            &[two[0], range(4096, 8)],
            &parameter::slice(0, 100),
            Status::CAPACITY_EXCEEDED,
        ),
    ];
    for (place, (program, taken, ranges, parameter, expected)) in table.iter().enumerate() {
        let done = execute(&mut machine, *program, *taken, ranges, parameter);
        assert!(done.status.is(*expected), "{place}: {} instead of {expected}", done.status);
    }
    let done = execute(&mut machine, Operator::Aes256Ctr as u16, 0, &two, &[1; 5]);
    assert_eq!(done.status.kind(), 7, "a parameter that the operator does not take");
    // A set and ranges of its own; ranges that are more than the data; another opcode; another second word.
    let mut wanted = Execute { program: md5, set: 1, ranges: 1, ..Execute::default() };
    let entry = execute_entry(&mut machine, wanted, &two[0].bytes());
    assert!(run_entry(&mut machine, entry).status.is(Status::INVALID_FIELD));
    (wanted.set, wanted.ranges) = (0, 2);
    let entry = execute_entry(&mut machine, wanted, &two[0].bytes());
    assert!(run_entry(&mut machine, entry).status.is(Status::INVALID_FIELD));
    let data = [two[0].bytes(), two[1].bytes()].concat();
    let entry = execute_entry(&mut machine, Execute { parameters: [0, 1], ..wanted }, &data);
    assert!(run_entry(&mut machine, entry).status.is(Status::INVALID_FIELD));
    let mut entry = execute_entry(&mut machine, wanted, &data);
    assert_eq!(run_entry(&mut machine, entry).status, Status::SUCCESS);
    entry[0] = 2;
    assert!(run_entry(&mut machine, entry).status.is(Status::INVALID_OPCODE));
    let admin_table = [
        (
            admin::LOAD_PROGRAM,
            LoadProgram { program: md5, ..LoadProgram::default() }.words(),
            Status::PROGRAM_INDEX_NOT_DOWNLOADABLE,
        ),
        (
            admin::LOAD_PROGRAM,
            LoadProgram { unload: true, ..LoadProgram::default() }.words(),
            Status::PROGRAM_INDEX_NOT_DOWNLOADABLE,
        ),
        (
            admin::LOAD_PROGRAM,
            LoadProgram { program: CHAIN + 1, kind: 1, ..LoadProgram::default() }.words(),
            Status::INVALID_PROGRAM_INDEX,
        ),
        (admin::PROGRAM_ACTIVATION, ProgramActivation { program: 0, select: 1 }.words(), Status::NO_PROGRAM),
        (
            admin::PROGRAM_ACTIVATION,
            ProgramActivation { program: 500, select: 1 }.words(),
            Status::INVALID_PROGRAM_INDEX,
        ),
        (
            admin::PROGRAM_ACTIVATION,
            ProgramActivation { program: md5, select: 2 }.words(),
            Status::INVALID_FIELD,
        ),
        (
            admin::MEMORY_RANGE_SETS,
            MemoryRangeSets { select: 2, ..MemoryRangeSets::default() }.words(),
            Status::INVALID_FIELD,
        ),
        (admin::MEMORY_RANGE_SETS, MemoryRangeSets::default().words(), Status::INVALID_FIELD),
        (
            admin::MEMORY_RANGE_SETS,
            MemoryRangeSets { ranges: 9, ..MemoryRangeSets::default() }.words(),
            Status::TOO_MANY_MEMORY_RANGES,
        ),
    ];
    for (opcode, words, expected) in admin_table {
        let command =
            Command { opcode, namespace: PROGRAMS, data: prp(DATA, 0), words, ..Command::default() };
        let done = machine.admin(command);
        assert!(done.status.is(expected), "{} instead of {expected}, for {command:?}", done.status);
        let done = machine.admin(Command { namespace: MEMORY, ..command });
        assert!(done.status.is(Status::INVALID_NAMESPACE));
    }
}

/// Executions whose parameters take the memory that the first of them waits for: they end, all of them.
#[test]
fn executions_do_not_wait_for_each_other_s_parameters() {
    let mut storage = ModelStorage::new(0);
    let volume = storage.add(1 << 20, 512);
    let config = Config { programs: true, memory: 1 << 20, operator_memory: 1 << 20, ..Config::new("tight") };
    let mut machine = Machine::new(config, storage, true);
    machine.attach(1, volume, 512);
    machine.enable_sets(6);
    machine.create(1);
    let ranges = [range(0, 4096), range(65_536, 4096)];
    let mut data: Vec<u8> = ranges.iter().flat_map(|range| range.bytes()).collect();
    // The operator takes no parameter: they are refused when it is made, which needs memory.
    data.resize(data.len() + (64 << 10), 0);
    for _ in 0..7 {
        let execute = Execute { program: Operator::Md5 as u16, ranges: 2, ..Execute::default() };
        let entry = execute_entry(&mut machine, execute, &data);
        machine.submit_bytes(1, entry);
    }
    machine.work();
    let ended: Vec<_> = std::iter::from_fn(|| machine.reap(1)).map(|done| done.status).collect();
    assert_eq!(ended.len(), 7, "{ended:?}");
    assert!(ended.iter().any(|status| status.kind() == 7), "some had their turn: {ended:?}");
    assert!(ended.iter().all(|status| status.kind() == 7 || *status == Status::INTERRUPTED), "{ended:?}");
    let controller = machine.controller();
    assert_eq!((controller.slots_used(), controller.operator_memory()), (0, 0));
}
