//! The frontend: rings, doorbells, phases, refusals.

use crate::chains::{chain, small};
use crate::rig::device::Device;
use crate::rig::host::{End, Transfer};
use crate::rig::{Options, Rig};
use dcs_abi::descriptor::{EndpointKind, Extent};
use dcs_abi::entry::{OPCODE_TRANSFER, SubmissionEntry};
use dcs_abi::operator::Operator::{self, *};
use dcs_abi::status::{Stage, Status};
use dcs_engine::{Config, Event, QueueConfig, QueueId};

fn rig(depth: u16) -> (Rig, QueueId) {
    let mut rig = Rig::new(small(), Options::default());
    let queue = rig.queue(QueueConfig { depth, ..QueueConfig::default() });
    (rig, queue)
}

fn copy(rig: &mut Rig, length: usize) -> Transfer {
    let bytes = rig.random.compressible(length);
    let (from, to) = (rig.device(Device::file(bytes)), rig.device(Device::sink(4096)));
    Transfer::new(End::file(from, &[(0, length as u64)]), End::stream(to))
}

#[test]
fn the_phase_turns_with_every_round() {
    for depth in [2, 3, 7] {
        let (mut rig, queue) = rig(depth);
        for _ in 0..5 * depth {
            let transfer = copy(&mut rig, 100);
            let ticket = rig.submit(queue, &transfer);
            assert!(rig.run_until(ticket));
            assert_eq!(rig.verify(ticket), Status::Success);
        }
        rig.settle();
    }
}

#[test]
fn a_full_completion_ring_holds_completions_back_until_the_host_reads() {
    let (mut rig, queue) = rig(4);
    rig.options.consume = false;
    let mut tickets = Vec::new();
    for _ in 0..10 {
        let transfer = copy(&mut rig, 100);
        tickets.push(rig.submit(queue, &transfer));
        rig.run();
    }
    let posted = |rig: &Rig| tickets.iter().filter(|ticket| rig.done_yet(**ticket).is_some()).count();
    assert_eq!(posted(&rig), 3, "a ring of four holds three");
    assert_eq!(rig.engine.commands_in_flight(), 7, "the others keep their slots");
    for expected in [6, 9, 10] {
        rig.consume(queue);
        rig.tell(Event::CompletionDoorbell { queue, head: 77 });
        assert_eq!(posted(&rig), expected);
    }
    rig.settle();
    assert!(tickets.iter().all(|ticket| rig.verify(*ticket) == Status::Success));
}

#[test]
fn a_queue_that_is_deleted_with_a_full_ring_writes_over_nothing() {
    let (mut rig, queue) = rig(4);
    rig.options.consume = false;
    for _ in 0..8 {
        let transfer = copy(&mut rig, 100);
        rig.submit(queue, &transfer);
        rig.run();
    }
    rig.delete(queue);
    rig.settle();
    assert!(rig.is_deleted(queue));
    let counters = rig.engine.counters();
    assert_eq!((counters.completions, counters.dropped), (3, 5));
    let next = rig.queue(QueueConfig::default());
    rig.options.consume = true;
    let transfer = copy(&mut rig, 5000);
    let ticket = rig.submit(next, &transfer);
    rig.settle();
    assert_eq!((next, rig.verify(ticket)), (queue, Status::Success), "its number is used again");
}

#[test]
fn doorbells_that_make_no_sense_are_counted_and_ignored() {
    let (mut rig, queue) = rig(8);
    let transfer = copy(&mut rig, 5000);
    let ticket = rig.submit(queue, &transfer);
    let nowhere = QueueId(3);
    for (queue, value) in [(queue, 8), (queue, u32::MAX), (nowhere, 0), (QueueId(999), 0)] {
        rig.tell(Event::SubmissionDoorbell { queue, tail: value });
        rig.tell(Event::CompletionDoorbell { queue, head: value });
    }
    rig.tell(Event::CompletionDoorbell { queue, head: 1 });
    assert_eq!(rig.engine.counters().bad_doorbells, 9);
    rig.tell(Event::DeleteQueue { queue: nowhere });
    assert_eq!(rig.engine.counters().stale_events, 1);
    rig.settle();
    assert_eq!(rig.verify(ticket), Status::Success);
}

#[test]
fn a_command_identifier_in_flight_is_not_taken_twice() {
    let (mut rig, queue) = rig(16);
    let (from, to) = (rig.device(Device::Dead), rig.device(Device::sink(10)));
    let first = rig.submit(queue, &Transfer::new(End::stream(from), End::stream(to)));
    rig.run_for(1_000_000);
    let cid = rig.submitted[first].cid;
    let entry = SubmissionEntry { opcode: OPCODE_TRANSFER, cid, ..Default::default() };
    let second = rig.submit_raw(queue, entry.to_bytes(), 0);
    rig.ring_doorbell(queue);
    rig.run_for(1_000_000);
    assert_eq!(rig.end(second), (Status::CommandIdConflict, Stage::Frontend, 0));
    assert!(rig.done_yet(first).is_none(), "the first one goes on");
    rig.cancel(queue, first);
    rig.settle();
    assert_eq!(rig.end(first).0, Status::Cancelled);
}

/// Submits a changed transfer; tells how it ends.
fn refused(change: impl FnOnce(&mut Rig, &mut Transfer)) -> (Status, Stage, u8) {
    let (mut rig, queue) = rig(16);
    let mut transfer = copy(&mut rig, 10_000);
    change(&mut rig, &mut transfer);
    let ticket = rig.submit(queue, &transfer);
    rig.settle();
    rig.verify(ticket);
    rig.end(ticket)
}

#[test]
fn each_refusal_has_its_status_and_its_stage() {
    let frontend = |status| (status, Stage::Frontend, 0);
    let source = |status| (status, Stage::Source, 0);
    let destination = |status| (status, Stage::Destination, 0);
    let operator = |status, at| (status, Stage::Operator, at);
    let file = |handle, extents: &[(u64, u64)]| End::file(handle, extents);
    let check = |expected, change: &dyn Fn(&mut Rig, &mut Transfer)| assert_eq!(refused(change), expected);
    check((Status::Success, Stage::None, 0), &|_, _| {});
    check(frontend(Status::InvalidField), &|_, transfer| transfer.flags = 1 << 15);
    check(frontend(Status::InvalidField), &|_, transfer| transfer.source.kind = EndpointKind::None);
    check(frontend(Status::InvalidField), &|_, transfer| {
        transfer.source.extents.push(Extent { offset: u64::MAX, length: 2 });
    });
    check(frontend(Status::InvalidField), &|rig, transfer| {
        let prefix = rig.device(Device::file(vec![1; 100]));
        transfer.prefix = Some(End::memory(prefix, 100));
        transfer.length = 99;
    });
    check(source(Status::OutOfRange), &|_, transfer| transfer.length = 10_001);
    check(source(Status::OutOfRange), &|_, transfer| transfer.source = file(0, &[(1, 10_000)]));
    check(source(Status::BadHandle), &|_, transfer| transfer.source.handle = 99);
    check(source(Status::UnsupportedEndpoint), &|_, transfer| transfer.source = End::stream(0));
    check(destination(Status::BadHandle), &|_, transfer| transfer.destination.handle = 99);
    check(destination(Status::UnsupportedEndpoint), &|_, transfer| {
        transfer.destination = file(1, &[(0, 20_000)])
    });
    check(destination(Status::OutOfRange), &|rig, transfer| {
        transfer.destination = file(rig.device(Device::file(Vec::new())), &[(0, 9_999)]);
    });
    check(destination(Status::CapacityExceeded), &|rig, transfer| {
        let full = Device::File { bytes: Vec::new(), capacity: 6000, flushes: 0 };
        transfer.destination = file(rig.device(full), &[(0, 20_000)]);
    });
    check(destination(Status::CapacityExceeded), &|rig, transfer| {
        transfer.chain = chain(&[Gzip, Gunzip]);
        transfer.destination = file(rig.device(Device::file(Vec::new())), &[(0, 9_999)]);
    });
    check(operator(Status::BadParameter, 1), &|_, transfer| {
        transfer.chain = vec![(Md5, Vec::new()), (Aes256Ctr, vec![0; 47])];
    });
    check(operator(Status::BadParameter, 0), &|_, transfer| transfer.chain = vec![(Aes256Xts, vec![0; 80])]);
    check(operator(Status::OutOfResources, 1), &|_, transfer| {
        let units_of_two_blocks =
            dcs_ndp::parameter::aes256_xts(&core::array::from_fn(|at| at as u8), 8192, 0);
        transfer.chain = vec![(Md5, Vec::new()), (Aes256Xts, units_of_two_blocks.to_vec())];
    });
    check(operator(Status::CorruptData, 1), &|_, transfer| transfer.chain = chain(&[Md5, Gunzip]));
    check(operator(Status::TruncatedData, 0), &|_, transfer| {
        (transfer.chain, transfer.length) = (chain(&[Aes256Xts]), 4096 + 7);
    });
    check(source(Status::EndOfSource), &|rig, transfer| {
        (transfer.source, transfer.length) = (End::stream(rig.device(Device::source(vec![5; 300], 99))), 301);
    });
}

/// Submits raw bytes; tells how they end.
fn raw(change: impl FnOnce(&mut SubmissionEntry, &mut [u8; 64])) -> (Status, Stage, u8) {
    let (mut rig, queue) = rig(16);
    let mut entry = SubmissionEntry { opcode: OPCODE_TRANSFER, cid: 5, ..Default::default() };
    let mut bytes = [0; 64];
    change(&mut entry, &mut bytes);
    let emitted = entry.to_bytes();
    bytes.iter_mut().zip(emitted).for_each(|(byte, emitted)| *byte |= emitted);
    let ticket = rig.submit_raw(queue, bytes, entry.result_address);
    rig.ring_doorbell(queue);
    rig.settle();
    rig.end(ticket)
}

#[test]
fn malformed_entries_are_answered_under_their_identifier() {
    let refused = |status| (status, Stage::Frontend, 0);
    assert_eq!(raw(|entry, _| entry.opcode = 0), refused(Status::InvalidOpcode));
    assert_eq!(raw(|entry, _| entry.opcode = 0xff), refused(Status::InvalidOpcode));
    assert_eq!(raw(|_, bytes| bytes[33] = 1), refused(Status::InvalidField));
    assert_eq!(raw(|_, bytes| *bytes = [0xff; 64]), refused(Status::InvalidField));
    assert_eq!(raw(|entry, _| entry.descriptor_length = 65_537), refused(Status::InvalidField));
    let nowhere = |entry: &mut SubmissionEntry, _: &mut [u8; 64]| {
        (entry.descriptor_length, entry.descriptor_address) = (256, 0xdead_0000);
    };
    assert_eq!(raw(nowhere), refused(Status::DataTransferError));
}

#[test]
fn an_operator_that_is_not_there_is_named() {
    let units = vec![(Md5, 1), (Gzip, 0)];
    let mut rig = Rig::new(Config { units, ..small() }, Options::default());
    let queue = rig.queue(QueueConfig::default());
    for (operators, expected) in [
        (&[Md5][..], (Status::Success, Stage::None, 0)),
        (&[Md5, Sha1], (Status::UnknownOperator, Stage::Operator, 1)),
        (&[Gzip], (Status::UnknownOperator, Stage::Operator, 0)),
    ] {
        let operators: &[Operator] = operators;
        let transfer = Transfer { chain: chain(operators), ..copy(&mut rig, 100) };
        let ticket = rig.submit(queue, &transfer);
        rig.settle();
        assert_eq!(rig.end(ticket), expected);
    }
}
