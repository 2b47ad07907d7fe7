//! Tests of datagrams as endpoints: SSD to NIC and NIC to SSD, with a peer that has its own UDP.

use crate::rig::{CARD, End, FREE, HOST_MEMORY, PEER, Rig, Transfer};
use crate::transfers::{data, digest};
use dcs_abi::admin::opcode;
use dcs_abi::entry::{FLAG_DURABLE, LENGTH_TO_END};
use dcs_abi::operator::Operator::{Aes256Ctr, Crc32c, Md5};
use dcs_abi::status::{Stage, Status};
use dcs_card::card::Config;
use dcs_drivers::bus::Window;
use dcs_fabric::Wire;
use dcs_fabric::nic::Family;

const HERE: u16 = 4000;
const THERE: u16 = 5000;
const LENGTH: usize = 300_000;
const NIC: u32 = 3;
const BLOCK: usize = 64 << 10;

/// Makes a server with an SSD (handle 2), a NIC (3) and a peer that has a port.
fn server(family: Family, wire: Wire) -> Rig {
    let mut rig = Rig::ready(Config { key: [7; 16], ..Config::default() }, 1);
    assert_eq!(rig.plug(family, wire), Ok(NIC));
    assert_eq!(rig.net().bind(THERE), 0);
    rig
}

fn words(here: u16, there: u16, payload: u32) -> [u32; 4] {
    [NIC, PEER.to_bits(), u32::from(there) | u32::from(here) << 16, payload]
}

fn open(rig: &mut Rig, payload: u32) -> u32 {
    rig.command(opcode::DATAGRAMS, &words(HERE, THERE, payload)).expect("they are opened").0
}

fn got(rig: &mut Rig) -> usize {
    rig.net().ports[0].got.iter().map(|(_, bytes)| bytes.len()).sum()
}

/// Has the peer send the bytes, `payload` in each datagram.
fn say(rig: &mut Rig, bytes: &[u8], payload: usize) {
    let datagrams = bytes.chunks(payload).map(|chunk| ((CARD, HERE), chunk.to_vec()));
    rig.net().ports[0].to_send.extend(datagrams);
}

fn wait(rig: &mut Rig, nanos: u64) {
    let end = rig.now() + nanos;
    rig.run_until(|rig| rig.now() > end);
}

fn send_file(family: Family, payload: u32) {
    let mut rig = server(family, Wire::default());
    let bytes = data(LENGTH, 31);
    rig.ssds[0].1.store(4096, &bytes);
    let flow = open(&mut rig, payload);
    let meter = rig.fabric.meter(Window { address: 0, length: HOST_MEMORY });
    let transfer =
        Transfer::new(End::ssd(2, &[(4096, LENGTH as u64)]), End::flow(flow)).through(&[(Crc32c, &[])]);
    let ended = rig.run(&transfer);
    assert_eq!((ended.status(), ended.entry.delivered.value()), (Status::Success, LENGTH as u64));
    assert_eq!(ended.digest(0), digest(Crc32c, &bytes));
    assert!(rig.run_until(|rig| got(rig) == LENGTH));
    // Each block is cut separately. The peer has checked every checksum.
    let size = if payload == 0 { 1472 } else { payload as usize };
    let expected: Vec<_> =
        bytes.chunks(BLOCK).flat_map(|block| block.chunks(size)).map(|part| (HERE, part.to_vec())).collect();
    assert!(rig.net().ports[0].got == expected);
    assert!(rig.fabric.metered(meter).bytes() < 4096, "no data through host memory");
    // Also data that the card has produced.
    let key = dcs_ndp::parameter::aes256_ctr(&[5; 32], &[6; 16]);
    rig.net().ports[0].got.clear();
    assert_eq!(rig.run(&transfer.through(&[(Aes256Ctr, &key)])).status(), Status::Success);
    assert!(rig.run_until(|rig| got(rig) == LENGTH));
    let mut expected = bytes;
    dcs_ndp::Context::new(Aes256Ctr, &key).unwrap().in_place(&mut expected, true).unwrap();
    let came: Vec<u8> = rig.net().ports[0].got.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    assert!(came == expected);
    rig.command(opcode::RELEASE, &[flow]).unwrap();
    rig.assert_idle();
}

#[test]
fn an_ssd_s_bytes_go_to_the_wire_in_datagrams() {
    if crate::core::lacks("blocks of 64 KiB") {
        return;
    }
    for family in [Family::Igb, Family::E1000e] {
        send_file(family, 0);
        send_file(family, 1024);
        send_file(family, 777);
    }
}

fn receive_file(family: Family, payload: usize) {
    let mut rig = server(family, Wire::default());
    let bytes = data(LENGTH, 32);
    let flow = open(&mut rig, 0);
    let room = LENGTH.next_multiple_of(512) as u64;
    let transfer = Transfer::new(End::flow(flow), End::ssd(2, &[(8192, room)])).through(&[(Md5, &[])]);
    let transfer = Transfer { length: LENGTH as u64, flags: FLAG_DURABLE, ..transfer };
    let meter = rig.fabric.meter(Window { address: 0, length: HOST_MEMORY });
    for _ in 0..2 {
        let cid = rig.submit(&transfer);
        say(&mut rig, &bytes, payload);
        let ended = rig.wait(cid);
        assert_eq!((ended.status(), ended.entry.delivered.value()), (Status::Success, LENGTH as u64));
        assert_eq!(ended.digest(0), digest(Md5, &bytes));
        let mut written = vec![0; LENGTH];
        rig.ssds[0].1.load(8192, &mut written);
        assert!(written == bytes);
    }
    assert!(rig.fabric.metered(meter).bytes() < 8192, "no data through host memory");
    assert_eq!(rig.command(opcode::DROPPED, &[flow]), Ok((0, 0)));
    rig.assert_idle();
}

#[test]
fn what_comes_in_datagrams_is_put_together_and_written() {
    for family in [Family::Igb, Family::E1000e] {
        receive_file(family, 1472);
        receive_file(family, 1000);
    }
}

#[test]
fn what_comes_before_a_command_is_held_and_dropped_beyond_a_bound() {
    let mut rig = server(Family::Igb, Wire::default());
    let flow = open(&mut rig, 0);
    let bytes = data(300 * 100, 33);
    say(&mut rig, &bytes, 100);
    // Datagrams from other senders are not taken, even at the same port.
    let other = rig.net().bind(THERE + 1);
    rig.net().ports[other].to_send.push_back(((CARD, HERE), vec![1; 50]));
    rig.net().ports[other].to_send.push_back(((CARD, HERE + 1), vec![1; 50]));
    wait(&mut rig, 5_000_000_000);
    assert_eq!(rig.command(opcode::DROPPED, &[flow]), Ok((44, 0)));
    let take = |length| Transfer { length, ..Transfer::new(End::flow(flow), End::memory(1, FREE, length)) };
    assert_eq!(rig.run(&take(25_600)).status(), Status::Success);
    assert!(rig.load(FREE, 25_600) == bytes[..25_600], "the first 256 are there");
    // What was dropped is lost: the command that waits for it times out.
    let ended = rig.run(&Transfer { timeout_ms: 50, ..take(100) });
    assert_eq!((ended.status(), ended.entry.stage()), (Status::Timeout, Stage::Source));
    say(&mut rig, &bytes[..100], 100);
    assert_eq!(rig.run(&take(100)).status(), Status::Success, "the next command gets the next datagram");
    rig.assert_idle();
}

#[test]
fn a_datagram_that_is_too_long_for_a_command_is_the_next_one_s() {
    let mut rig = server(Family::Igb, Wire::default());
    let flow = open(&mut rig, 0);
    let bytes = data(3000, 34);
    say(&mut rig, &bytes, 1000);
    let take = |length| Transfer { length, ..Transfer::new(End::flow(flow), End::memory(1, FREE, length)) };
    let ended = rig.run(&take(1500));
    assert_eq!((ended.status(), ended.entry.stage()), (Status::ReadError, Stage::Source));
    assert_eq!(ended.result.errno, 90, "EMSGSIZE");
    assert_eq!(rig.run(&take(2000)).status(), Status::Success);
    assert!(rig.load(FREE, 2000) == bytes[1000..]);
    rig.assert_idle();
}

#[test]
fn commands_take_turns_and_a_datagram_is_one_command_s() {
    let mut rig = server(Family::Igb, Wire::default());
    let flow = open(&mut rig, 0);
    let bytes = data(2 * LENGTH, 35);
    let take = |at: u64| {
        let to = End::memory(1, FREE + at * LENGTH as u64, LENGTH as u64);
        Transfer { length: LENGTH as u64, ..Transfer::new(End::flow(flow), to) }
    };
    let both = [rig.submit(&take(0)), rig.submit(&take(1))];
    say(&mut rig, &bytes, 1000);
    for cid in both {
        assert_eq!(rig.wait(cid).status(), Status::Success);
    }
    let came = rig.load(FREE, 2 * LENGTH);
    let (first, second) = came.split_at(LENGTH);
    assert!(first == &bytes[..LENGTH] && second == &bytes[LENGTH..]);
    rig.assert_idle();
}

#[test]
fn what_is_lost_on_the_way_ends_by_the_command_s_time() {
    let mut rig = server(Family::Igb, Wire { lose: 50, ..Wire::default() });
    let flow = open(&mut rig, 1000);
    rig.ssds[0].1.store(0, &data(LENGTH, 36));
    let send = Transfer::new(End::ssd(2, &[(0, LENGTH as u64)]), End::flow(flow));
    // The sender does not notice.
    assert_eq!(rig.run(&send).status(), Status::Success);
    wait(&mut rig, 1_000_000_000);
    let there = got(&mut rig);
    assert!((LENGTH / 2..LENGTH).contains(&there), "{there}");
    let take = Transfer::new(End::flow(flow), End::memory(1, FREE, LENGTH as u64));
    let cid = rig.submit(&Transfer { length: LENGTH as u64, timeout_ms: 3000, ..take });
    say(&mut rig, &data(LENGTH, 37), 1000);
    assert_eq!(rig.wait(cid).status(), Status::Timeout);
    rig.assert_idle();
}

#[test]
fn parameters_that_cannot_be_are_refused() {
    let mut rig = server(Family::Igb, Wire::default());
    let flow = open(&mut rig, 0);
    let open = |rig: &mut Rig, words: [u32; 4]| rig.command(opcode::DATAGRAMS, &words);
    assert_eq!(open(&mut rig, words(HERE, THERE, 0)), Err(Status::InvalidField), "they are open");
    for wrong in [words(0, THERE, 0), words(HERE, 0, 0), words(HERE + 1, THERE, 1473), words(1, 1, 1 << 16)] {
        assert_eq!(open(&mut rig, wrong), Err(Status::InvalidField), "{wrong:?}");
    }
    for nobody in [0, u32::MAX, 0x0a00_00ff, 0x0808_0808, 0x7f00_0001, 0xe000_0001] {
        let [nic, _, ports, payload] = words(HERE + 1, THERE, 0);
        assert_eq!(open(&mut rig, [nic, nobody, ports, payload]), Err(Status::InvalidField), "{nobody:x}");
    }
    for handle in [0, 1, 2, flow, 77] {
        let [_, peer, ports, payload] = words(HERE + 1, THERE, 0);
        assert_eq!(open(&mut rig, [handle, peer, ports, payload]), Err(Status::BadHandle));
    }
    for handle in [0, 1, 2, NIC, 77] {
        assert_eq!(rig.command(opcode::DROPPED, &[handle]), Err(Status::BadHandle));
    }
    for wrong in [opcode::ACCEPT, opcode::SHUTDOWN] {
        assert_eq!(rig.command(wrong, &[flow]), Err(Status::BadHandle));
    }
    // There is no end for a command to wait for.
    let endless = Transfer::new(End::flow(flow), End::memory(1, FREE, 1000));
    let ended = rig.run(&Transfer { length: LENGTH_TO_END, ..endless });
    assert_eq!((ended.status(), ended.entry.stage()), (Status::InvalidField, Stage::Source));
    // Peers may share ports; the number of endpoints is limited.
    let most = (1..1000u16).take_while(|at| open(&mut rig, words(HERE, THERE + at, 0)).is_ok()).count();
    assert_eq!(most, 255);
    assert_eq!(open(&mut rig, words(HERE + 1, THERE, 0)), Err(Status::OutOfResources));
    rig.command(opcode::RELEASE, &[flow]).unwrap();
    assert_eq!(open(&mut rig, words(HERE, THERE, 0)), Ok((flow, 0)));
    rig.assert_idle();
}

#[test]
fn a_peer_that_is_not_there_is_said() {
    let mut rig = server(Family::Igb, Wire::default());
    rig.ssds[0].1.store(0, &data(LENGTH, 38));
    let [nic, _, ports, payload] = words(HERE, THERE, 0);
    let nobody = PEER.to_bits() + 5;
    let (flow, _) = rig.command(opcode::DATAGRAMS, &[nic, nobody, ports, payload]).unwrap();
    let send = Transfer::new(End::ssd(2, &[(0, LENGTH as u64)]), End::flow(flow));
    let ended = rig.run(&send);
    assert_eq!((ended.status(), ended.entry.stage()), (Status::WriteError, Stage::Destination));
    assert_eq!((ended.result.errno, ended.entry.delivered.value()), (113, 0), "EHOSTUNREACH");
    // A command's own time limit, or its owner, may end it first.
    let ended = rig.run(&Transfer { timeout_ms: 100, ..send.clone() });
    assert_eq!((ended.status(), ended.entry.stage()), (Status::Timeout, Stage::Destination));
    let cid = rig.submit(&send);
    wait(&mut rig, 100_000_000);
    rig.command(opcode::RELEASE, &[flow]).unwrap();
    let ended = rig.wait(cid);
    assert_eq!((ended.status(), ended.entry.stage()), (Status::PeerReset, Stage::Destination));
    rig.assert_idle();
}

#[test]
fn resets_with_datagrams_open_leave_nothing() {
    let mut rig = server(Family::Igb, Wire::default());
    let bytes = data(LENGTH, 39);
    rig.ssds[0].1.store(0, &bytes);
    let send = |flow| Transfer::new(End::ssd(2, &[(0, LENGTH as u64)]), End::flow(flow));
    let take = |flow| Transfer { length: 1000, ..Transfer::new(End::flow(flow), End::memory(1, FREE, 1000)) };
    let flow = open(&mut rig, 100);
    let both = [rig.submit(&send(flow)), rig.submit(&take(flow))];
    (0..2000).for_each(|_| _ = rig.step());
    // The NIC is attached again: everything from before is over.
    assert_eq!(rig.attach_nic(Family::Igb), Ok(5));
    for cid in both {
        assert_eq!(rig.wait(cid).status(), Status::PeerReset);
    }
    assert_eq!(rig.run(&take(flow)).status(), Status::PeerReset);
    assert_eq!(rig.command(opcode::DROPPED, &[flow]), Err(Status::PeerReset));
    rig.command(opcode::RELEASE, &[flow]).unwrap();
    rig.assert_idle();
    // The card is reset, with transfers in both directions in progress and datagrams held.
    let flow = open(&mut rig, 100);
    rig.submit(&send(flow));
    rig.submit(&Transfer { length: 5000, ..take(flow) });
    say(&mut rig, &bytes[..3000], 1000);
    (0..2000).for_each(|_| _ = rig.step());
    rig.disable();
    rig.enable();
    assert_eq!(rig.grant(0, HOST_MEMORY), 1);
    rig.create_queues().unwrap();
    assert_eq!((rig.attach(0), rig.attach_nic(Family::Igb)), (Ok(2), Ok(3)));
    let flow = open(&mut rig, 0);
    let ended = rig.run(&Transfer { timeout_ms: 100, ..take(flow) });
    assert_eq!(ended.status(), Status::Timeout, "nothing is left from before");
    rig.net().ports[0].got.clear();
    assert_eq!(rig.run(&send(flow)).status(), Status::Success);
    assert!(rig.run_until(|rig| got(rig) == LENGTH));
    rig.assert_idle();
}
