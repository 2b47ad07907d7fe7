//! State that a controller keeps for its guest: the time, its identifier, and the keep alive timer.

use std::sync::atomic::Ordering;

use dcs_csd::storage::ModelStorage;
use dcs_nvme::command::{Command, Feature, GetLogPage, admin, feature, log, nvm};
use dcs_nvme::{Status, identify, register};

use crate::rig::{DATA, Machine};
use crate::rules::{blocks, io, machine, prp};

fn pass(machine: &Machine<ModelStorage>, milliseconds: u64) {
    machine.guest.clock.fetch_add(milliseconds * 1_000_000, Ordering::Relaxed);
}

fn feature(opcode: u8, number: u8, select: u8, value: u32) -> Command {
    let words = Feature { number, select, value, ..Feature::default() }.words();
    Command { opcode, data: prp(DATA, 0), words, ..Command::default() }
}

fn set(machine: &mut Machine<ModelStorage>, number: u8, value: u32, data: &[u8]) -> Status {
    machine.guest.store(DATA, data);
    machine.admin(feature(admin::SET_FEATURES, number, 0, value)).status
}

fn get(machine: &mut Machine<ModelStorage>, number: u8, value: u32) -> (Status, [u8; 16]) {
    machine.guest.store(DATA, &[0; 16]);
    let status = machine.admin(feature(admin::GET_FEATURES, number, 0, value)).status;
    (status, machine.guest.load(DATA))
}

fn timestamp(machine: &mut Machine<ModelStorage>) -> (u64, u8) {
    let (status, data) = get(machine, feature::TIMESTAMP, 0);
    assert_eq!(status, Status::SUCCESS);
    (u64::from_le_bytes(data[..8].try_into().unwrap()) & 0xffff_ffff_ffff, data[6])
}

#[test]
fn the_timestamp_goes_on() {
    let mut machine = machine();
    let known = identify::Controller::from_bytes(&machine.identify(identify::CONTROLLER, 0).1);
    assert_eq!(known.optional_commands >> 6 & 1, 1, "ONCS");
    pass(&machine, 1500);
    assert_eq!(timestamp(&mut machine), (1500, 0), "since the reset");
    let now = 1_790_000_000_000u64;
    assert_eq!(set(&mut machine, feature::TIMESTAMP, 0, &now.to_le_bytes()), Status::SUCCESS);
    pass(&machine, 250);
    assert_eq!(timestamp(&mut machine), (now + 250, 1 << 1), "set by the guest");
    machine.write32(register::CC, 0);
    machine.work();
    machine.enable();
    assert_eq!(timestamp(&mut machine), (0, 0));
}

#[test]
fn a_host_identifier_has_8_or_16_bytes() {
    let mut machine = machine();
    let known = identify::Controller::from_bytes(&machine.identify(identify::CONTROLLER, 0).1);
    assert_eq!(known.attributes & 1, 1, "CTRATT");
    for value in [0, 1] {
        assert_eq!(get(&mut machine, feature::HOST_IDENTIFIER, value), (Status::SUCCESS, [0; 16]));
    }
    assert_eq!(set(&mut machine, feature::HOST_IDENTIFIER, 1, &[7; 16]), Status::SUCCESS);
    assert_eq!(get(&mut machine, feature::HOST_IDENTIFIER, 1), (Status::SUCCESS, [7; 16]));
    assert!(get(&mut machine, feature::HOST_IDENTIFIER, 0).0.is(Status::INCONSISTENT_HOST_ID));
    assert_eq!(set(&mut machine, feature::HOST_IDENTIFIER, 0, &[5; 16]), Status::SUCCESS);
    let expected = std::array::from_fn(|at| if at < 8 { 5 } else { 0 });
    assert_eq!(get(&mut machine, feature::HOST_IDENTIFIER, 0), (Status::SUCCESS, expected));
}

#[test]
fn a_guest_that_is_not_heard_of_in_time_loses_its_controller() {
    let mut machine = machine();
    let known = identify::Controller::from_bytes(&machine.identify(identify::CONTROLLER, 0).1);
    assert_eq!(known.keep_alive, 1, "KAS");
    // Without the timer it may be as long as it likes.
    pass(&machine, 1 << 32);
    io(&mut machine, blocks(nvm::READ, 0, 1), Status::SUCCESS);
    assert_eq!(set(&mut machine, feature::KEEP_ALIVE, 1950, &[]), Status::SUCCESS);
    let timeout = machine.admin(feature(admin::GET_FEATURES, feature::KEEP_ALIVE, 0, 0)).result;
    assert_eq!(timeout, 2000, "in units of 100 ms");
    let alive = Command { opcode: admin::KEEP_ALIVE, ..Command::default() };
    for _ in 0..3 {
        pass(&machine, 2000);
        io(&mut machine, blocks(nvm::READ, 0, 1), Status::SUCCESS);
        assert_eq!(machine.admin(alive).status, Status::SUCCESS);
    }
    pass(&machine, 2001);
    machine.submit(1, blocks(nvm::READ, 0, 1));
    machine.work();
    assert_eq!((machine.reap(1), machine.read32(register::CSTS)), (None, 0b11), "CSTS.CFS");
    // After a reset it is as new, and the timer is off.
    machine.again();
    pass(&machine, 1 << 30);
    io(&mut machine, blocks(nvm::READ, 0, 1), Status::SUCCESS);
}

#[test]
fn a_second_command_of_the_same_identifier_is_refused() {
    let mut machine = machine();
    let mut entry = blocks(nvm::READ, 0, 1).bytes();
    machine.submit_bytes(1, entry);
    machine.step();
    let again = machine.same_identifier_again();
    entry[24..32].copy_from_slice(&(DATA + 4096).to_le_bytes());
    let cid = machine.submit_bytes(1, entry);
    assert_eq!(cid, again);
    machine.step();
    machine.work();
    let (first, second) = (machine.reap(1).unwrap(), machine.reap(1).unwrap());
    assert_eq!((first.cid, second.cid), (cid, cid));
    assert!(first.status.is(Status::ID_CONFLICT), "{}", first.status);
    assert_eq!(second.status, Status::SUCCESS);
    // It is free again; another queue's are its own.
    machine.same_identifier_again();
    machine.create(2);
    io(&mut machine, blocks(nvm::READ, 0, 1), Status::SUCCESS);
    // Events that wait have theirs too.
    let event = Command { opcode: admin::ASYNCHRONOUS_EVENT_REQUEST, ..Command::default() };
    machine.submit(0, event);
    machine.work();
    machine.same_identifier_again();
    machine.submit(0, event);
    machine.work();
    assert!(machine.reap(0).unwrap().status.is(Status::ID_CONFLICT));
}

#[test]
fn features_are_listed() {
    let mut machine = machine();
    let words = GetLogPage { page: log::FEATURES, retain_event: false, bytes: 1024, offset: 0 }.words();
    let page = Command { opcode: admin::GET_LOG_PAGE, data: prp(DATA, 0), words, ..Command::default() };
    assert_eq!(machine.admin(page).status, Status::SUCCESS);
    let listed: [u8; 1024] = machine.guest.load(DATA);
    for number in 0..=255u8 {
        let there = machine.admin(feature(admin::GET_FEATURES, number, 0, 0)).status;
        assert_eq!(listed[4 * usize::from(number)] & 1 != 0, there.is_success(), "{number:#x}: {there}");
    }
    // Of a namespace, of the controller.
    assert_eq!((listed[4 * 5 + 2], listed[4 + 2]), (0x10, 0x20));
}

#[test]
fn controllers_are_listed() {
    let mut machine = machine();
    let mut list = |structure, least, namespace| {
        let (status, data) = machine.identify_of(structure, least, 0, namespace);
        (status.is_success(), data[0], data[2])
    };
    assert_eq!(list(identify::CONTROLLERS, 0, 0), (true, 1, 1));
    assert_eq!(list(identify::CONTROLLERS, 2, 0), (true, 0, 0));
    assert_eq!(list(identify::CONTROLLERS_OF_NAMESPACE, 1, 1), (true, 1, 1));
    assert_eq!(list(identify::CONTROLLERS_OF_NAMESPACE, 0, 2), (true, 0, 0));
    assert!(!list(identify::CONTROLLERS_OF_NAMESPACE, 0, u32::MAX).0);
    assert!(machine.identify(identify::ALLOCATED_NAMESPACES, u32::MAX).0.is(Status::INVALID_NAMESPACE));
    let active = machine.identify(identify::ACTIVE_NAMESPACES, 0);
    assert_eq!(machine.identify(identify::ALLOCATED_NAMESPACES, 0), active);
    let one = machine.identify(identify::NAMESPACE, 1);
    assert_eq!(machine.identify(identify::ALLOCATED_NAMESPACE, 1), one);
}
