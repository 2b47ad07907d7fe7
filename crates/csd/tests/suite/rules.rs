//! Rules of NVMe, each broken on purpose, with the status that the specification defines. And identify data.

use dcs_csd::storage::ModelStorage;
use dcs_csd::{Config, Namespace, Storage};
use dcs_nvme::command::{
    ALL_NAMESPACES, Abort, Blocks, Command, CreateCompletionQueue, CreateSubmissionQueue, Datasets, Feature,
    GetLogPage, QueueCounts, Range, admin, feature, log, nvm,
};
use dcs_nvme::register;
use dcs_nvme::sgl::Descriptor;
use dcs_nvme::{DataPointer, Status, identify};

use crate::rig::{BASE, COMPLETIONS, DATA, ENTRIES, LENGTH, LISTS, Machine, SUBMISSIONS};

pub const BLOCKS: u64 = 1024;

/// An enabled controller with namespace 1 of 1,024 blocks, and queue pair 1.
pub fn machine() -> Machine<ModelStorage> {
    let mut storage = ModelStorage::new(0);
    let volume = storage.add(BLOCKS as usize * 512, 512);
    storage.add(64 << 10, 512);
    let mut machine = Machine::new(Config::new("rules"), storage, true);
    machine.attach(1, volume, 512);
    machine.enable();
    machine.create(1);
    machine
}

pub fn prp(first: u64, second: u64) -> DataPointer {
    DataPointer::Prp(first, second)
}

pub fn blocks(opcode: u8, first: u64, count: u32) -> Command {
    let words = Blocks { first, count, durable: false }.words();
    Command { opcode, namespace: 1, data: prp(DATA, 0), words, ..Command::default() }
}

pub fn io(machine: &mut Machine<ModelStorage>, command: Command, expected: Status) {
    let done = machine.run(1, command);
    assert!(done.status.is(expected), "{} instead of {expected}, for {command:?}", done.status);
}

pub fn admin(machine: &mut Machine<ModelStorage>, command: Command, expected: Status) -> u32 {
    let done = machine.admin(command);
    assert!(done.status.is(expected), "{} instead of {expected}, for {command:?}", done.status);
    done.result
}

#[test]
fn commands_of_io_queues() {
    let mut machine = machine();
    let table = [
        (blocks(nvm::READ, 0, 8), Status::SUCCESS),
        (blocks(nvm::READ, BLOCKS - 8, 8), Status::SUCCESS),
        (blocks(nvm::READ, BLOCKS - 7, 8), Status::LBA_OUT_OF_RANGE),
        (blocks(nvm::WRITE, u64::MAX, 1), Status::LBA_OUT_OF_RANGE),
        (blocks(nvm::WRITE_ZEROES, BLOCKS, 1), Status::LBA_OUT_OF_RANGE),
        (blocks(nvm::WRITE_ZEROES, 0, 1024), Status::SUCCESS),
        // More than the largest transfer.
        (blocks(nvm::READ, 0, 2049), Status::INVALID_FIELD),
        (Command { opcode: 0x7f, ..blocks(nvm::READ, 0, 1) }, Status::INVALID_OPCODE),
        (Command { fused: 1, ..blocks(nvm::COMPARE, 0, 1) }, Status::INVALID_FIELD),
        (Command { namespace: 0, ..blocks(nvm::READ, 0, 1) }, Status::INVALID_NAMESPACE),
        (Command { namespace: 17, ..blocks(nvm::READ, 0, 1) }, Status::INVALID_NAMESPACE),
        (Command { namespace: 2, ..blocks(nvm::READ, 0, 1) }, Status::INVALID_FIELD),
        (Command { namespace: ALL_NAMESPACES, ..blocks(nvm::READ, 0, 1) }, Status::INVALID_NAMESPACE),
        (Command { opcode: nvm::FLUSH, ..blocks(0, 0, 1) }, Status::SUCCESS),
        (Command { namespace: ALL_NAMESPACES, ..blocks(nvm::FLUSH, 0, 1) }, Status::SUCCESS),
        (Command { namespace: 3, ..blocks(nvm::FLUSH, 0, 1) }, Status::INVALID_FIELD),
        (Command { data: prp(DATA + 2, 0), ..blocks(nvm::READ, 0, 1) }, Status::INVALID_PRP_OFFSET),
        (Command { data: prp(DATA, DATA + 4100), ..blocks(nvm::READ, 0, 16) }, Status::INVALID_PRP_OFFSET),
        (Command { data: prp(DATA, LISTS + 4), ..blocks(nvm::READ, 0, 24) }, Status::INVALID_PRP_OFFSET),
        (Command { data: prp(DATA, BASE + LENGTH), ..blocks(nvm::READ, 0, 24) }, Status::DATA_TRANSFER_ERROR),
        (Command { data: prp(BASE + LENGTH, 0), ..blocks(nvm::READ, 0, 1) }, Status::DATA_TRANSFER_ERROR),
        (Command { data: prp(BASE - 512, 0), ..blocks(nvm::WRITE, 0, 1) }, Status::DATA_TRANSFER_ERROR),
        (Command { data: DataPointer::Reserved([0; 16]), ..blocks(nvm::READ, 0, 1) }, Status::INVALID_FIELD),
    ];
    for (command, expected) in table {
        io(&mut machine, command, expected);
    }
}

#[test]
fn scatter_gather_lists() {
    let mut machine = machine();
    let sgl = |first| Command { data: DataPointer::Sgl(first), ..blocks(nvm::READ, 0, 2) };
    let of_kind = |kind| Descriptor { kind, ..Descriptor::data(DATA, 1024) };
    let table = [
        (sgl(Descriptor::data(DATA, 1024)), Status::SUCCESS),
        (sgl(Descriptor::data(DATA, 1023)), Status::INVALID_SGL_LENGTH),
        (sgl(Descriptor::data(DATA, 1025)), Status::INVALID_SGL_LENGTH),
        (sgl(Descriptor { subtype: 1, ..Descriptor::data(DATA, 1024) }), Status::INVALID_SGL_TYPE),
        (sgl(of_kind(1)), Status::INVALID_SGL_TYPE),
        (sgl(of_kind(9)), Status::INVALID_SGL_TYPE),
        (sgl(Descriptor::last_segment(LISTS, 15)), Status::INVALID_SGL_SEGMENT),
        (sgl(Descriptor::last_segment(LISTS, 0)), Status::INVALID_SGL_SEGMENT),
        (sgl(Descriptor::last_segment(BASE + LENGTH, 16)), Status::DATA_TRANSFER_ERROR),
    ];
    for (command, expected) in table {
        io(&mut machine, command, expected);
    }
    let segment = |list: &[Descriptor]| list.iter().flat_map(|one| one.bytes()).collect::<Vec<u8>>();
    let halves = [Descriptor::data(DATA, 512), Descriptor::data(DATA + 4096, 512)];
    machine.guest.store(LISTS, &segment(&halves));
    io(&mut machine, sgl(Descriptor::last_segment(LISTS, 32)), Status::SUCCESS);
    io(&mut machine, sgl(Descriptor::last_segment(LISTS, 16)), Status::INVALID_SGL_LENGTH);
    // A segment that is not the last has to lead on; a last one must not.
    let on = |kind| Descriptor { kind, ..Descriptor::last_segment(LISTS, 32) };
    io(&mut machine, sgl(on(2)), Status::INVALID_SGL_COUNT);
    machine.guest.store(LISTS, &segment(&[halves[0], Descriptor::last_segment(LISTS + 64, 16)]));
    machine.guest.store(LISTS + 64, &segment(&halves[1..]));
    io(&mut machine, sgl(on(2)), Status::SUCCESS);
    io(&mut machine, sgl(on(3)), Status::INVALID_SGL_SEGMENT);
    // A list that leads to itself ends.
    machine.guest.store(LISTS, &segment(&[Descriptor::data(0, 0), on(2)]));
    io(&mut machine, sgl(on(2)), Status::INVALID_SGL_COUNT);
}

#[test]
fn compare_and_deallocate() {
    let mut machine = machine();
    machine.guest.store(DATA, &[5; 8192]);
    io(&mut machine, blocks(nvm::WRITE, 0, 8), Status::SUCCESS);
    io(&mut machine, blocks(nvm::COMPARE, 0, 8), Status::SUCCESS);
    machine.guest.store(DATA + 4095, &[6]);
    io(&mut machine, blocks(nvm::COMPARE, 0, 8), Status::COMPARE_FAILURE);
    let manage = |ranges, deallocate| Command {
        words: Datasets { ranges, deallocate }.words(),
        ..blocks(nvm::DATASET_MANAGEMENT, 0, 1)
    };
    let ranges = |list: &[Range]| list.iter().flat_map(|range| range.bytes()).collect::<Vec<u8>>();
    machine.guest.store(DATA, &ranges(&[Range { first: 0, count: 2 }, Range { first: 4, count: 1 }]));
    io(&mut machine, manage(2, false), Status::SUCCESS);
    let volume = dcs_csd::VolumeId(0);
    assert_eq!(machine.drives.storage().bytes(volume)[..4096], [5; 4096]);
    io(&mut machine, manage(2, true), Status::SUCCESS);
    let bytes = machine.drives.storage().bytes(volume);
    assert_eq!([bytes[0], bytes[1024], bytes[2048], bytes[2560]], [0, 5, 0, 5]);
    machine.guest.store(DATA, &ranges(&[Range { first: 0, count: 8 }, Range { first: BLOCKS, count: 1 }]));
    io(&mut machine, manage(2, true), Status::LBA_OUT_OF_RANGE);
    assert_eq!(machine.drives.storage().bytes(volume)[1024], 5);
}

#[test]
fn a_namespace_that_is_read_only() {
    let mut machine = machine();
    let info = machine.drives.storage().volume(dcs_csd::VolumeId(1)).unwrap();
    let namespace = Namespace::new(4, dcs_csd::VolumeId(1), &info, 512).unwrap();
    let namespace = Namespace { read_only: true, nguid: [7; 16], ..namespace };
    machine.controller().attach(namespace, machine.drives.storage()).unwrap();
    let of = |command| Command { namespace: 4, ..command };
    io(&mut machine, of(blocks(nvm::READ, 0, 1)), Status::SUCCESS);
    for opcode in [nvm::WRITE, nvm::WRITE_ZEROES] {
        io(&mut machine, of(blocks(opcode, 0, 1)), Status::WRITE_PROTECTED);
    }
    let (status, data) = machine.identify(identify::NAMESPACE_DESCRIPTORS, 4);
    assert_eq!((status, &data[..4], &data[4..20]), (Status::SUCCESS, &[2, 16, 0, 0][..], &[7; 16][..]));
    assert_eq!(data[20..25], [4, 1, 0, 0, 0]);
}

#[test]
fn queues_are_made_by_the_rules() {
    let mut machine = machine();
    let completion =
        CreateCompletionQueue { queue: 2, entries: ENTRIES, contiguous: true, interrupts: true, vector: 2 };
    let submission = CreateSubmissionQueue {
        queue: 2,
        entries: ENTRIES,
        contiguous: true,
        priority: 0,
        completion_queue: 2,
    };
    let at = |opcode, words, address| Command { opcode, data: prp(address, 0), words, ..Command::default() };
    let make = |wanted: CreateCompletionQueue| {
        at(admin::CREATE_COMPLETION_QUEUE, wanted.words(), COMPLETIONS + 0x2000)
    };
    let feed = |wanted: CreateSubmissionQueue| {
        at(admin::CREATE_SUBMISSION_QUEUE, wanted.words(), SUBMISSIONS + 0x2000)
    };
    let delete = |opcode, queue: u32| Command { opcode, words: [queue, 0, 0, 0, 0, 0], ..Command::default() };
    let table = [
        (make(CreateCompletionQueue { queue: 0, ..completion }), Status::INVALID_QUEUE_ID),
        (make(CreateCompletionQueue { queue: 1, ..completion }), Status::INVALID_QUEUE_ID),
        (make(CreateCompletionQueue { queue: 9, ..completion }), Status::INVALID_QUEUE_ID),
        (make(CreateCompletionQueue { entries: 1, ..completion }), Status::INVALID_QUEUE_SIZE),
        (make(CreateCompletionQueue { entries: 1025, ..completion }), Status::INVALID_QUEUE_SIZE),
        (make(CreateCompletionQueue { contiguous: false, ..completion }), Status::INVALID_FIELD),
        (make(CreateCompletionQueue { vector: 9, ..completion }), Status::INVALID_VECTOR),
        (at(admin::CREATE_COMPLETION_QUEUE, completion.words(), COMPLETIONS + 4), Status::INVALID_PRP_OFFSET),
        (feed(submission), Status::INVALID_COMPLETION_QUEUE),
        (make(completion), Status::SUCCESS),
        (feed(CreateSubmissionQueue { queue: 0, ..submission }), Status::INVALID_QUEUE_ID),
        (feed(CreateSubmissionQueue { queue: 1, ..submission }), Status::INVALID_QUEUE_ID),
        (feed(CreateSubmissionQueue { completion_queue: 0, ..submission }), Status::INVALID_QUEUE_ID),
        (feed(CreateSubmissionQueue { completion_queue: 99, ..submission }), Status::INVALID_QUEUE_ID),
        (feed(CreateSubmissionQueue { entries: 1, ..submission }), Status::INVALID_QUEUE_SIZE),
        (feed(CreateSubmissionQueue { contiguous: false, ..submission }), Status::INVALID_FIELD),
        (feed(submission), Status::SUCCESS),
        (delete(admin::DELETE_COMPLETION_QUEUE, 2), Status::INVALID_QUEUE_DELETION),
        (delete(admin::DELETE_SUBMISSION_QUEUE, 0), Status::INVALID_QUEUE_ID),
        (delete(admin::DELETE_SUBMISSION_QUEUE, 5), Status::INVALID_QUEUE_ID),
        (delete(admin::DELETE_SUBMISSION_QUEUE, 2), Status::SUCCESS),
        (delete(admin::DELETE_SUBMISSION_QUEUE, 2), Status::INVALID_QUEUE_ID),
        (delete(admin::DELETE_COMPLETION_QUEUE, 2), Status::SUCCESS),
        (delete(admin::DELETE_COMPLETION_QUEUE, 2), Status::INVALID_QUEUE_ID),
        (delete(admin::DELETE_COMPLETION_QUEUE, 0), Status::INVALID_QUEUE_ID),
    ];
    for (command, expected) in table {
        admin(&mut machine, command, expected);
    }
}

#[test]
fn admin_commands_and_features() {
    let mut machine = machine();
    let set = |number, value| Command {
        opcode: admin::SET_FEATURES,
        words: Feature { number, value, ..Feature::default() }.words(),
        ..Command::default()
    };
    let get = |number, select| Command {
        opcode: admin::GET_FEATURES,
        words: Feature { number, select, ..Feature::default() }.words(),
        ..Command::default()
    };
    let saved = Feature { number: feature::ARBITRATION, save: true, ..Feature::default() };
    let table = [
        (Command { opcode: 0x80, ..Command::default() }, Status::INVALID_OPCODE),
        (Command { fused: 2, opcode: admin::IDENTIFY, ..Command::default() }, Status::INVALID_FIELD),
        (
            Command {
                data: DataPointer::Sgl(Descriptor::data(DATA, 4096)),
                opcode: admin::IDENTIFY,
                ..Command::default()
            },
            Status::INVALID_FIELD,
        ),
        (set(0x7f, 0), Status::INVALID_FIELD),
        (Command { words: saved.words(), ..set(0, 0) }, Status::FEATURE_NOT_SAVEABLE),
        (Command { namespace: 1, ..set(feature::ARBITRATION, 0) }, Status::FEATURE_NOT_NAMESPACE_SPECIFIC),
        (set(feature::POWER_MANAGEMENT, 1), Status::INVALID_FIELD),
        (set(feature::INTERRUPT_VECTOR, 9), Status::INVALID_FIELD),
        (set(feature::NUMBER_OF_QUEUES, 0), Status::SEQUENCE_ERROR),
        (get(feature::ARBITRATION, 5), Status::INVALID_FIELD),
    ];
    for (command, expected) in table {
        admin(&mut machine, command, expected);
    }
    let counts = QueueCounts { submissions: 8, completions: 8 }.bits();
    assert_eq!(admin(&mut machine, get(feature::NUMBER_OF_QUEUES, 0), Status::SUCCESS), counts);
    for (number, value, usual) in [
        (feature::ARBITRATION, 0x0102_0303, 0),
        (feature::TEMPERATURE_THRESHOLD, 300, 343),
        (feature::ERROR_RECOVERY, 5, 0),
        (feature::VOLATILE_WRITE_CACHE, 0, 1),
        (feature::INTERRUPT_COALESCING, 0x105, 0),
        (feature::INTERRUPT_VECTOR, 1 << 16, 0),
        (feature::WRITE_ATOMICITY, 1, 0),
        (feature::ASYNCHRONOUS_EVENTS, 0x100, 0),
    ] {
        assert_eq!(admin(&mut machine, get(number, 0), Status::SUCCESS), usual, "{number:#x}");
        admin(&mut machine, set(number, value), Status::SUCCESS);
        assert_eq!(admin(&mut machine, get(number, 0), Status::SUCCESS), value, "{number:#x}");
        assert_eq!(admin(&mut machine, get(number, 1), Status::SUCCESS), usual, "{number:#x}");
        assert_eq!(admin(&mut machine, get(number, 3), Status::SUCCESS) & 4, 4);
    }
    let abort = Abort { submission_queue: 1, cid: 77 }.words();
    let abort = Command { opcode: admin::ABORT, words: abort, ..Command::default() };
    assert_eq!(admin(&mut machine, abort, Status::SUCCESS), 1, "there is none to be aborted");
}

#[test]
fn a_cache_that_is_off_makes_every_write_durable() {
    let mut machine = machine();
    let set = Command {
        opcode: admin::SET_FEATURES,
        words: Feature { number: feature::VOLATILE_WRITE_CACHE, ..Feature::default() }.words(),
        ..Command::default()
    };
    machine.guest.store(DATA, &[1; 512]);
    io(&mut machine, blocks(nvm::WRITE, 0, 1), Status::SUCCESS);
    // What was written before is safe too, when the feature is set.
    admin(&mut machine, set, Status::SUCCESS);
    machine.guest.store(DATA, &[2; 512]);
    io(&mut machine, blocks(nvm::WRITE, 1, 1), Status::SUCCESS);
    let storage = machine.drives.storage_mut();
    storage.lose_power();
    let bytes = storage.bytes(dcs_csd::VolumeId(0));
    assert_eq!((bytes[0], bytes[512]), (1, 2));
}

/// Without a cache a guest needs no flush, and is told so.
#[test]
fn a_drive_that_writes_through_loses_nothing_with_its_power() {
    let mut storage = ModelStorage::new(0);
    let volume = storage.add(64 << 10, 512);
    let config = Config { write_through: true, ..Config::new("through") };
    let mut machine = Machine::new(config, storage, true);
    machine.attach(1, volume, 512);
    for _ in 0..2 {
        machine.enable();
        machine.create(1);
        let known = identify::Controller::from_bytes(&machine.identify(identify::CONTROLLER, 0).1);
        assert!(!known.write_cache);
        let words = Feature { number: feature::VOLATILE_WRITE_CACHE, ..Feature::default() }.words();
        let get = Command { opcode: admin::GET_FEATURES, words, ..Command::default() };
        assert!(machine.admin(get).status.is(Status::INVALID_FIELD));
        machine.guest.store(DATA, &[7; 1024]);
        io(&mut machine, blocks(nvm::WRITE, 0, 2), Status::SUCCESS);
        let range = Range { first: 1, count: 1 }.bytes();
        machine.guest.store(DATA, &range);
        let words = Datasets { ranges: 1, deallocate: true }.words();
        let trim = Command { words, ..blocks(nvm::DATASET_MANAGEMENT, 0, 1) };
        io(&mut machine, trim, Status::SUCCESS);
        let storage = machine.drives.storage_mut();
        storage.lose_power();
        assert_eq!((storage.bytes(volume)[0], storage.bytes(volume)[512]), (7, 0));
        machine.write32(register::CC, 0);
        machine.work();
    }
}

#[test]
fn identify_data_and_logs() {
    let mut machine = machine();
    let (status, data) = machine.identify(identify::CONTROLLER, 0);
    let known = identify::Controller::from_bytes(&data);
    assert_eq!(
        (status, known.serial.starts_with(b"rules  "), known.max_transfer),
        (Status::SUCCESS, true, 8)
    );
    assert!(known.write_cache && known.events == 0x100 && known.optional_admin == 0x100);
    let (_, data) = machine.identify(identify::NAMESPACE, 1);
    let namespace = identify::Namespace::from_bytes(&data);
    assert_eq!((namespace.blocks, namespace.current_format().shift), (BLOCKS, 9));
    assert_eq!(machine.identify(identify::NAMESPACE, 2), (Status::SUCCESS, [0; identify::SIZE]));
    for number in [0, 17, ALL_NAMESPACES] {
        assert!(machine.identify(identify::NAMESPACE, number).0.is(Status::INVALID_NAMESPACE));
    }
    let (_, data) = machine.identify(identify::ACTIVE_NAMESPACES, 0);
    assert!(identify::active_namespaces(&data).eq([1]));
    assert!(machine.identify(identify::ACTIVE_NAMESPACES, u32::MAX - 1).0.is(Status::INVALID_NAMESPACE));
    assert!(machine.identify(0x55, 0).0.is(Status::INVALID_FIELD));
    let page = |page, bytes| Command {
        opcode: admin::GET_LOG_PAGE,
        data: prp(DATA, DATA + 4096),
        words: GetLogPage { page, retain_event: false, bytes, offset: 0 }.words(),
        ..Command::default()
    };
    // The failures from above, the newest first.
    admin(&mut machine, page(log::ERRORS, 64), Status::SUCCESS);
    let entry: [u8; 64] = machine.guest.load(DATA);
    assert_eq!((entry[0], entry[8], u16::from_le_bytes([entry[12], entry[13]]) & 0x3ff), (5, 0, 2 << 1));
    for (number, bytes) in [(log::HEALTH, 512), (log::FIRMWARE, 512), (log::EFFECTS, 4096)] {
        admin(&mut machine, page(number, bytes), Status::SUCCESS);
    }
    let effects: [u8; 4096] = machine.guest.load(DATA);
    assert_eq!((effects[4 * 6], effects[1024 + 4], effects[1024 + 8]), (1, 3, 1));
    admin(&mut machine, page(0x7f, 512), Status::INVALID_LOG_PAGE);
    admin(&mut machine, page(log::ERRORS, 2 << 20), Status::INVALID_FIELD);
}

#[test]
fn namespaces_come_and_go() {
    let mut machine = machine();
    let event = Command { opcode: admin::ASYNCHRONOUS_EVENT_REQUEST, ..Command::default() };
    let wanted = Feature { number: feature::ASYNCHRONOUS_EVENTS, value: 0x100, ..Feature::default() };
    let wanted = Command { opcode: admin::SET_FEATURES, words: wanted.words(), ..Command::default() };
    admin(&mut machine, wanted, Status::SUCCESS);
    let cid = machine.submit(0, event);
    machine.work();
    assert_eq!(machine.reap(0), None);
    machine.attach(2, dcs_csd::VolumeId(1), 512);
    machine.work();
    let told = machine.reap(0).unwrap();
    assert_eq!((told.cid, told.result), (cid, 0x0004_0002));
    let (_, data) = machine.identify(identify::ACTIVE_NAMESPACES, 0);
    assert!(identify::active_namespaces(&data).eq([1, 2]));
    let page = Command {
        opcode: admin::GET_LOG_PAGE,
        data: prp(DATA, 0),
        words: GetLogPage { page: log::CHANGED_NAMESPACES, retain_event: false, bytes: 4096, offset: 0 }
            .words(),
        ..Command::default()
    };
    machine.submit(0, event);
    admin(&mut machine, page, Status::SUCCESS);
    assert_eq!(machine.guest.load(DATA), [2, 0, 0, 0, 0, 0, 0, 0]);
    machine.controller().detach(2).unwrap();
    machine.controller().resize(1, 100, machine.drives.storage()).unwrap();
    machine.work();
    assert_eq!(machine.reap(0).unwrap().result, 0x0004_0002);
    admin(&mut machine, page, Status::SUCCESS);
    assert_eq!(machine.guest.load(DATA), [1, 0, 0, 0, 2, 0, 0, 0]);
    io(&mut machine, blocks(nvm::READ, 99, 1), Status::SUCCESS);
    io(&mut machine, blocks(nvm::READ, 100, 1), Status::LBA_OUT_OF_RANGE);
    io(&mut machine, Command { namespace: 2, ..blocks(nvm::READ, 0, 1) }, Status::INVALID_FIELD);
    // One more than may wait.
    for _ in 0..4 {
        machine.submit(0, event);
    }
    machine.work();
    assert_eq!(machine.reap(0), None);
    let refused = machine.admin(event);
    assert!(refused.status.is(Status::EVENT_REQUEST_LIMIT_EXCEEDED));
}

#[test]
fn wrong_doorbells_are_events() {
    let mut machine = machine();
    let event = Command { opcode: admin::ASYNCHRONOUS_EVENT_REQUEST, ..Command::default() };
    machine.submit(0, event);
    machine.write32(register::tail_doorbell(1, 4), ENTRIES);
    machine.work();
    assert_eq!(machine.reap(0).unwrap().result, 0x0001_0100);
    machine.write32(register::tail_doorbell(5, 4), 1);
    machine.write32(register::head_doorbell(1, 4), 3);
    let page = GetLogPage { page: log::ERRORS, retain_event: false, bytes: 64, offset: 0 }.words();
    let page = Command { opcode: admin::GET_LOG_PAGE, data: prp(DATA, 0), words: page, ..Command::default() };
    machine.submit(0, event);
    admin(&mut machine, page, Status::SUCCESS);
    assert_eq!(machine.reap(0).unwrap().result, 0x0001_0000);
    io(&mut machine, blocks(nvm::READ, 0, 1), Status::SUCCESS);
}

#[test]
fn zeros_and_compares_pass_the_chain() {
    let mut machine = machine();
    let info = machine.drives.storage().volume(dcs_csd::VolumeId(1)).unwrap();
    let mut namespace = Namespace::new(2, dcs_csd::VolumeId(1), &info, 512).unwrap();
    let key = std::array::from_fn(|at| at as u8);
    namespace.chain = Some(std::sync::Arc::new(dcs_csd::Chain::aes256_xts(&key).unwrap()));
    machine.controller().attach(namespace, machine.drives.storage()).unwrap();
    let of = |command| Command { namespace: 2, ..command };
    let (_, data) = machine.identify(identify::NAMESPACE, 2);
    assert_eq!(identify::Namespace::from_bytes(&data).deallocated, 0, "nobody says what they read as");
    machine.guest.store(DATA, &[7; 4096]);
    io(&mut machine, of(blocks(nvm::WRITE, 0, 8)), Status::SUCCESS);
    io(&mut machine, of(blocks(nvm::COMPARE, 0, 8)), Status::SUCCESS);
    io(&mut machine, of(blocks(nvm::WRITE_ZEROES, 1, 127)), Status::SUCCESS);
    io(&mut machine, of(blocks(nvm::COMPARE, 0, 8)), Status::COMPARE_FAILURE);
    io(&mut machine, of(blocks(nvm::READ, 0, 8)), Status::SUCCESS);
    assert_eq!(machine.guest.bytes(DATA, 512), [7; 512]);
    assert_eq!(machine.guest.bytes(DATA + 512, 4096 - 512), [0; 4096 - 512]);
    // What lies there is neither.
    let bytes = machine.drives.storage().bytes(dcs_csd::VolumeId(1));
    assert!(bytes.chunks(512).all(|block| block != [0; 512] && block != [7; 512]));
}

#[test]
fn zeros_that_pass_a_chain_are_more_than_a_buffer() {
    let mut storage = ModelStorage::new(0);
    let volume = storage.add(1 << 20, 512);
    let config = Config { transfer_shift: 14, ..Config::new("zeros") };
    let mut machine = Machine::new(config, storage, true);
    let info = machine.drives.storage().volume(volume).unwrap();
    let mut namespace = Namespace::new(1, volume, &info, 512).unwrap();
    let key = std::array::from_fn(|at| at as u8);
    let chain = dcs_csd::Chain::aes256_xts(&key).unwrap();
    namespace.chain = Some(std::sync::Arc::new(chain));
    machine.controller().attach(namespace, machine.drives.storage()).unwrap();
    machine.enable();
    machine.create(1);
    io(&mut machine, blocks(nvm::WRITE_ZEROES, 0, 2048), Status::SUCCESS);
    let mut expected = vec![0; 1 << 20];
    let parameter = dcs_ndp::parameter::aes256_xts(&key, 512, 0);
    let operator = dcs_abi::operator::Operator::Aes256Xts;
    let mut cipher = dcs_ndp::Context::new(operator, &parameter).unwrap();
    cipher.in_place(&mut expected, true).unwrap();
    assert!(machine.drives.storage().bytes(volume) == expected);
}
