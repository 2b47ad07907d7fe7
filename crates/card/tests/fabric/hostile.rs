//! Attacks by a guest, one at a time, as found by the fuzz target `card` and by a search for such cases.

use crate::rig::{CARD, End, FREE, HOST_MEMORY, Rig, Transfer};
use crate::transfers::data;
use dcs_abi::admin::{AdminEntry, opcode};
use dcs_abi::register::sq_tail_doorbell;
use dcs_abi::status::{Stage, Status};
use dcs_card::card::Config;
use dcs_fabric::nic::Family;
use dcs_fabric::{Fault, Rule, When, Wire};
use std::time::Duration;

const LENGTH: u64 = 300_000;

fn works(rig: &mut Rig, ssd: u32) {
    let bytes = data(LENGTH as usize, 51);
    rig.ssds[0].1.store(512, &bytes);
    let ended = rig.run(&Transfer::new(End::ssd(ssd, &[(512, LENGTH)]), End::memory(1, FREE, LENGTH)));
    assert_eq!(ended.status(), Status::Success);
    assert!(rig.load(FREE, LENGTH as usize) == bytes);
    rig.assert_idle();
}

/// Resets the card, and checks that it works again.
fn works_after_a_reset(rig: &mut Rig) {
    rig.disable();
    rig.enable();
    assert_eq!(rig.grant(0, HOST_MEMORY), 1);
    rig.create_queues().unwrap();
    assert_eq!(rig.attach(0), Ok(2));
    works(rig, 2);
}

fn entry(opcode: u8, data_address: u64, words: &[u32]) -> AdminEntry {
    let mut all = [0; 6];
    all[..words.len()].copy_from_slice(words);
    AdminEntry { opcode, data_address, words: all, ..Default::default() }
}

fn steps(rig: &mut Rig, count: usize) {
    (0..count).for_each(|_| _ = rig.step());
}

/// Revokes all of a ring except its first entry: the entries behind it stop the card, and a reset finds nothing that waits.
#[test]
fn a_ring_that_is_taken_away_piece_by_piece() {
    let mut rig = Rig::ready(Config::default(), 1);
    rig.command(opcode::RELEASE, &[1]).unwrap();
    rig.grant(0x3000, 64);
    let doorbell = sq_tail_doorbell(rig.queue()) as u64;
    rig.write_register(doorbell, &5u32.to_le_bytes());
    assert!(rig.run_until(|rig| rig.read_register(0x1c) & 2 != 0), "CSTS.CFS");
    works_after_a_reset(&mut rig);
}

/// Resets likewise before the first entry has arrived: the entries behind it arrived out of turn.
#[test]
fn a_reset_finds_entries_that_came_before_their_turn() {
    for between in 0..8 {
        let mut rig = Rig::ready(Config::default(), 1);
        rig.command(opcode::RELEASE, &[1]).unwrap();
        rig.grant(0x3000, 64);
        let doorbell = sq_tail_doorbell(rig.queue()) as u64;
        rig.write_register(doorbell, &5u32.to_le_bytes());
        steps(&mut rig, between);
        works_after_a_reset(&mut rig);
    }
}

/// Checks that commands that wait forever are refused at some point, and those that need not wait are not.
#[test]
fn accepts_without_end() {
    let mut rig = Rig::ready(Config { key: [7; 16], ..Config::default() }, 1);
    assert_eq!(rig.plug(Family::Igb, Wire::default()), Ok(3));
    assert_eq!(rig.command(opcode::LISTEN, &[3, 80]), Ok((4, 0)));
    let mut refused = 0;
    for _ in 0..1500 {
        rig.push_admin(entry(opcode::ACCEPT, 0, &[4]));
        steps(&mut rig, 6);
        while let Some(answer) = rig.reap_admin() {
            assert_eq!(Status::from_code(answer.status >> 1), Status::OutOfResources);
            refused += 1;
        }
    }
    assert_eq!(refused, 1500 - 1024);
    rig.command(opcode::LISTEN, &[3, 81]).unwrap();
    // The first one is not forgotten.
    rig.net().connect((CARD, 80), 5000);
    let mut answer = None;
    assert!(rig.run_until(|rig| {
        answer = rig.reap_admin();
        answer.is_some()
    }));
    assert_eq!(answer.map(|answer| answer.status >> 1), Some(0));
    works_after_a_reset(&mut rig);
}

/// Checks that a host that takes no completions gets no more than there is room for, and nothing is stored for it.
#[test]
fn completions_that_nobody_takes() {
    let mut rig = Rig::ready(Config::default(), 1);
    let grant = entry(opcode::GRANT_MEMORY, 0, &[4096, 0, 1]);
    for _ in 0..300 {
        rig.push_admin(grant);
        steps(&mut rig, 6);
    }
    // 63 completions fit and one waits; then come those that the ring still holds. Handles 1 and 2 were issued before.
    let mut last = None;
    assert!(rig.run_until(|rig| {
        last = rig.reap_admin().or(last);
        last.is_some_and(|last| last.value == 2 + 64 + 300 % 64)
    }));
    steps(&mut rig, 100);
    assert!(rig.reap_admin().is_none());
    works(&mut rig, 2);
}

/// Checks that a reset drops commands in flight to the admin queue, and those that wait for a connection.
#[test]
fn a_reset_forgets_the_admin_queue_s_commands() {
    for between in 0..12 {
        let mut rig = Rig::ready(Config { key: [7; 16], ..Config::default() }, 1);
        assert_eq!(rig.plug(Family::Igb, Wire::default()), Ok(3));
        assert_eq!(rig.command(opcode::LISTEN, &[3, 80]), Ok((4, 0)));
        rig.push_admin(entry(opcode::ACCEPT, 0, &[4]));
        steps(&mut rig, 40);
        rig.push_admin(entry(opcode::GRANT_MEMORY, 0, &[4096, 0, 3]));
        steps(&mut rig, between);
        rig.write_register(0x14, &0x0046_0000u32.to_le_bytes());
        rig.enable();
        steps(&mut rig, 200);
        assert!(rig.reap_admin().is_none(), "an answer to an earlier request, after {between} steps");
        assert_eq!(rig.grant(0, HOST_MEMORY), 1, "a handle from before the reset");
        rig.create_queues().unwrap();
        assert_eq!(rig.attach(0), Ok(2));
        works(&mut rig, 2);
    }
}

#[test]
fn rings_that_end_beyond_all_addresses_or_lie_in_the_card() {
    let mut rig = Rig::ready(Config::default(), 1);
    let own = rig.fabric.bar(rig.card_id, 1).address;
    for (at, base) in [(0x28, u64::MAX), (0x30, u64::MAX), (0x28, own), (0x30, own - 0x1000 + 1)] {
        rig.disable();
        rig.write_register(0x24, &0x0fff_0fffu32.to_le_bytes());
        rig.write_register(0x28, &0x1000u64.to_le_bytes());
        rig.write_register(0x30, &0x1_0000u64.to_le_bytes());
        rig.write_register(at, &base.to_le_bytes());
        rig.write_register(0x14, &0x0046_0001u32.to_le_bytes());
        assert!(rig.run_until(|rig| rig.read_register(0x1c) == 2), "CSTS.CFS for {base:#x}");
        rig.write_register(sq_tail_doorbell(0) as u64, &4095u32.to_le_bytes());
        steps(&mut rig, 20);
    }
    works_after_a_reset(&mut rig);
}

/// Checks that missing devices, and windows that are too small, use up nothing that a reset does not return.
#[test]
fn devices_that_are_not_there_leave_their_places_at_a_reset() {
    let mut rig = Rig::ready(Config { ssds: 2, ..Config::default() }, 1);
    for _ in 0..40 {
        let small = entry(opcode::ATTACH_SSD, 0x10_0000, &[0x1008]);
        assert_eq!(rig.admin(small), Err(Status::InvalidField));
    }
    let bar = rig.fabric.bar(rig.ssds[0].0, 0).address;
    for _ in 0..5 {
        works_after_a_reset(&mut rig);
        let none = entry(opcode::ATTACH_SSD, 0x10_0000, &[0x4000]);
        assert_eq!(rig.admin(none), Err(Status::DeviceReset));
        let other = entry(opcode::ATTACH_SSD, 0x20_0000, &[0x4000]);
        assert_eq!(rig.admin(other), Err(Status::OutOfResources));
        let across = entry(opcode::ATTACH_SSD, bar - 0x1000, &[0x4000]);
        assert_eq!(rig.admin(across), Err(Status::InvalidField), "it is in use");
        assert_eq!(rig.admin(entry(opcode::ATTACH_SSD, bar, &[0x4000, 7])), Err(Status::InvalidField));
        works(&mut rig, 2);
        // The next reset finds the SSD at another address than the card expects.
        rig.disable();
        rig.enable();
        assert_eq!(rig.admin(across), Err(Status::DeviceReset));
    }
}

/// Checks that old handles name nothing of a NIC that was attached again: no other connection, no other port; and that commands waiting by
/// one are answered.
#[test]
fn handles_of_a_nic_that_was_attached_anew() {
    let mut rig = Rig::ready(Config { key: [7; 16], ..Config::default() }, 1);
    assert_eq!(rig.plug(Family::Igb, Wire::default()), Ok(3));
    assert_eq!(rig.command(opcode::LISTEN, &[3, 80]), Ok((4, 0)));
    let (old, _) = rig.accepted(4, 80, 5000);
    let nic = entry(
        opcode::ATTACH_NIC,
        rig.fabric.bar(rig.nic.as_ref().unwrap().0, 0).address,
        &[0x2_0000, 0x10c9, CARD.to_bits(), 24 | 1500 << 16],
    );
    rig.push_admin(nic);
    // While the NIC is being started, there is nothing to listen with.
    rig.push_admin(entry(opcode::LISTEN, 0, &[3, 81]));
    rig.push_admin(entry(opcode::ACCEPT, 0, &[4]));
    rig.push_admin(entry(opcode::SHUTDOWN, 0, &[old]));
    let mut answers = Vec::new();
    assert!(rig.run_until(|rig| {
        answers.extend(rig.reap_admin().map(|answer| Status::from_code(answer.status >> 1)));
        answers.len() == 4
    }));
    assert_eq!(answers, [Status::DeviceReset, Status::DeviceReset, Status::PeerReset, Status::Success]);
    let (listener, _) = rig.command(opcode::LISTEN, &[3, 80]).unwrap();
    let (flow, stream) = rig.accepted(listener, 80, 5001);
    assert_ne!(flow, old);
    rig.store(FREE, b"good morning");
    let send = |flow| Transfer::new(End::memory(1, FREE, 12), End::flow(flow));
    assert_eq!(rig.run(&send(old)).status(), Status::PeerReset);
    assert_eq!(rig.run(&send(flow)).status(), Status::Success);
    assert!(rig.run_until(|rig| rig.stream(stream).got == b"good morning"));
    rig.command(opcode::RELEASE, &[old]).unwrap();
    rig.command(opcode::RELEASE, &[4]).unwrap();
    assert_eq!(rig.run(&send(flow)).status(), Status::Success, "it belongs to another target");
}

/// Releases a connection while a transfer to it waits for its SSD, and reuses its handle.
#[test]
fn a_handle_that_is_another_s_by_now() {
    let mut rig = Rig::ready(Config { key: [7; 16], ..Config::default() }, 1);
    assert_eq!(rig.plug(Family::Igb, Wire::default()), Ok(3));
    assert_eq!(rig.command(opcode::LISTEN, &[3, 80]), Ok((4, 0)));
    let (old, _) = rig.accepted(4, 80, 5000);
    let ssd = rig.ssds[0].0;
    let late = Fault::DelayCompletion(Duration::from_millis(500));
    rig.fabric.inject(ssd, Rule::once(When::opcode(2), late));
    let cid = rig.submit(&Transfer::new(End::ssd(2, &[(0, 4096)]), End::flow(old)));
    assert!(rig.run_until(|rig| rig.fabric.faults_struck(ssd) == 1), "the SSD is working on it");
    rig.command(opcode::RELEASE, &[old]).unwrap();
    let (new, stream) = rig.accepted(4, 80, 5001);
    assert_eq!(new, old, "the same number");
    let ended = rig.wait(cid);
    assert_eq!((ended.status(), ended.entry.stage()), (Status::BadHandle, Stage::Destination));
    let end = rig.now() + 1_000_000_000;
    rig.run_until(|rig| rig.now() > end);
    assert!(rig.stream(stream).got.is_empty(), "bytes for another target");
    assert_eq!(rig.run(&Transfer::new(End::ssd(2, &[(0, 4096)]), End::flow(new))).status(), Status::Success);
    rig.assert_idle();
}

/// Checks that after a reset the peers are told, the devices stop, and nothing is left to poll.
#[test]
fn a_reset_brings_the_devices_to_rest() {
    let mut rig = Rig::ready(Config { key: [7; 16], ..Config::default() }, 1);
    assert_eq!(rig.plug(Family::Igb, Wire::default()), Ok(3));
    assert_eq!(rig.command(opcode::LISTEN, &[3, 80]), Ok((4, 0)));
    let (flow, stream) = rig.accepted(4, 80, 5000);
    rig.submit(&Transfer::new(End::ssd(2, &[(0, LENGTH)]), End::flow(flow)));
    assert!(rig.run_until(|rig| rig.stream(stream).got.len() > 10_000));
    assert!(rig.card.is_busy());
    rig.disable();
    assert!(rig.run_until(|rig| !rig.card.is_busy() && rig.card.connections() == 0), "{:?}", rig.card);
    assert!(rig.net().is_reset(stream), "the peer was told");
    works_after_a_reset(&mut rig);
}
