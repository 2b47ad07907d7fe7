//! Tests of connections as endpoints: SSD to NIC and NIC to SSD, with a peer that has its own TCP.

use crate::rig::{End, FREE, HOST_MEMORY, PEER, Rig, Transfer};
use crate::transfers::{data, digest};
use dcs_abi::admin::opcode;
use dcs_abi::entry::{FLAG_ACKNOWLEDGED, FLAG_DURABLE, LENGTH_TO_END};
use dcs_abi::operator::Operator::{self, Aes256Ctr, Crc32c, Md5};
use dcs_abi::status::{Stage, Status};
use dcs_card::card::Config;
use dcs_drivers::bus::Window;
use dcs_fabric::nic::Family;
use dcs_fabric::{Fault, Rule, When, Wire};
use std::time::Duration;

const PORT: u16 = 80;
const LENGTH: usize = 3_000_000;
/// As much as a command may have sent before its peer acknowledges any of it; and a part of that.
const MORE: usize = crate::core::UNACKNOWLEDGED;
const PART: usize = MORE * 3 / 10;

/// Makes a wire on which one frame in twenty is lost, and others are duplicated or late.
fn bad_wire() -> Wire {
    Wire { lose: 50, duplicate: 20, reorder: 50, ..Wire::default() }
}

/// Makes a server with an SSD (handle 2), a NIC (3) and a listener (4).
fn server(family: Family, wire: Wire) -> Rig {
    let mut rig = Rig::ready(Config { key: [7; 16], ..Config::default() }, 1);
    assert_eq!(rig.plug(family, wire), Ok(3));
    assert_eq!(rig.command(opcode::LISTEN, &[3, PORT.into()]), Ok((4, 0)));
    rig
}

fn send_file(family: Family, wire: Wire) {
    let mut rig = server(family, wire);
    let bytes = data(LENGTH, 31);
    rig.ssds[0].1.store(4096, &bytes);
    let (flow, stream) = rig.accepted(4, PORT, 5000);
    let meter = rig.fabric.meter(Window { address: 0, length: HOST_MEMORY });
    let transfer =
        Transfer::new(End::ssd(2, &[(4096, LENGTH as u64)]), End::flow(flow)).through(&[(Md5, &[])]);
    let ended = rig.run(&transfer);
    assert_eq!((ended.status(), ended.entry.delivered.value()), (Status::Success, LENGTH as u64));
    assert_eq!(ended.digest(0), digest(Md5, &bytes));
    assert!(rig.run_until(|rig| rig.stream(stream).got.len() == LENGTH));
    assert!(rig.stream(stream).got == bytes);
    assert!(rig.fabric.metered(meter).bytes() < 4096, "no data through host memory");
    // The flow is kept across commands; this one changes the data, so that blocks wait for the peer.
    let key = dcs_ndp::parameter::aes256_ctr(&[5; 32], &[6; 16]);
    let second = transfer.through(&[(Aes256Ctr, &key), (Crc32c, &[])]);
    let ended = rig.run(&second);
    assert_eq!(ended.status(), Status::Success);
    assert!(rig.run_until(|rig| rig.stream(stream).got.len() == 2 * LENGTH));
    let mut expected = bytes.clone();
    dcs_ndp::Context::new(Aes256Ctr, &key).unwrap().in_place(&mut expected, true).unwrap();
    assert!(rig.stream(stream).got[LENGTH..] == expected);
    assert_eq!(ended.digest(1), digest(Crc32c, &expected));
    rig.command(opcode::SHUTDOWN, &[flow]).unwrap();
    assert!(rig.run_until(|rig| rig.stream(stream).ended));
    rig.stream(stream).close = true;
    rig.command(opcode::RELEASE, &[flow]).unwrap();
    rig.assert_idle();
}

#[test]
fn an_ssd_s_bytes_go_to_the_wire_with_their_digest() {
    send_file(Family::Igb, Wire::default());
    send_file(Family::E1000e, Wire::default());
}

#[test]
fn what_the_wire_loses_is_sent_again() {
    send_file(Family::Igb, bad_wire());
    send_file(Family::E1000e, bad_wire());
}

fn receive_file(family: Family, wire: Wire) {
    let mut rig = server(family, wire);
    let bytes = data(LENGTH, 32);
    let (flow, stream) = rig.accepted(4, PORT, 5000);
    rig.stream(stream).to_send = bytes.clone();
    let room = LENGTH.next_multiple_of(512) as u64;
    let transfer = Transfer::new(End::flow(flow), End::ssd(2, &[(8192, room)])).through(&[(Crc32c, &[])]);
    let transfer = Transfer { length: LENGTH as u64, flags: FLAG_DURABLE, ..transfer };
    let ended = rig.run(&transfer);
    assert_eq!((ended.status(), ended.entry.delivered.value()), (Status::Success, LENGTH as u64));
    assert_eq!(ended.digest(0), digest(Crc32c, &bytes));
    let mut written = vec![0; LENGTH];
    rig.ssds[0].1.load(8192, &mut written);
    assert!(written == bytes);
    // Until the peer ends its stream, into memory.
    let more = data(100_001, 33);
    rig.stream(stream).to_send.extend_from_slice(&more);
    rig.stream(stream).close = true;
    let rest = Transfer::new(End::flow(flow), End::memory(1, FREE, 200_000));
    let ended = rig.run(&Transfer { length: LENGTH_TO_END, ..rest });
    assert_eq!((ended.status(), ended.entry.delivered.value()), (Status::Success, 100_001));
    assert!(rig.load(FREE, 100_001) == more);
    rig.assert_idle();
}

#[test]
fn what_comes_from_the_wire_is_gathered_and_written() {
    receive_file(Family::Igb, Wire::default());
    receive_file(Family::E1000e, Wire::default());
}

#[test]
fn what_came_with_its_end_before_anybody_read_is_not_lost() {
    for family in [Family::Igb, Family::E1000e] {
        let mut rig = server(family, Wire::default());
        let (flow, stream) = rig.accepted(4, PORT, 5000);
        let bytes = data(50_000, 44);
        rig.stream(stream).to_send = bytes.clone();
        rig.stream(stream).close = true;
        // All of it is there, including its end, before the first read.
        let now = rig.now();
        rig.run_until(|rig| rig.now() > now + 2_000_000_000);
        rig.store(FREE, &vec![0xee; 60_000]);
        let receive = Transfer::new(End::flow(flow), End::memory(1, FREE, 60_000)).through(&[(Md5, &[])]);
        let ended = rig.run(&Transfer { length: LENGTH_TO_END, ..receive });
        assert_eq!((ended.status(), ended.entry.delivered.value()), (Status::Success, 50_000));
        assert!(rig.load(FREE, 50_000) == bytes && ended.digest(0) == digest(Md5, &bytes));
        rig.assert_idle();
    }
}

#[test]
fn what_comes_from_a_bad_wire_is_put_in_order() {
    receive_file(Family::Igb, bad_wire());
    receive_file(Family::E1000e, bad_wire());
}

#[test]
fn many_connections_at_once_each_have_their_own_bytes() {
    let mut rig = server(Family::Igb, Wire { lose: 10, ..Wire::default() });
    let bytes = data(4 << 20, 34);
    rig.ssds[0].1.store(0, &bytes);
    let all: Vec<_> = (0..16u16)
        .map(|at| {
            let (flow, stream) = rig.accepted(4, PORT, 6000 + at);
            let from = usize::from(at) * 200_000;
            let source = End::ssd(2, &[(from as u64, 250_000)]);
            (rig.submit(&Transfer::new(source, End::flow(flow)).through(&[(Md5, &[])])), stream, from)
        })
        .collect();
    for (cid, stream, from) in all {
        let ended = rig.wait(cid);
        assert_eq!(ended.status(), Status::Success);
        assert_eq!(ended.digest(0), digest(Md5, &bytes[from..from + 250_000]));
        assert!(rig.run_until(|rig| rig.stream(stream).got.len() == 250_000));
        assert!(rig.stream(stream).got == bytes[from..from + 250_000]);
    }
    rig.assert_idle();
}

#[test]
fn the_card_connects_to_its_peer() {
    let mut rig = server(Family::E1000e, Wire::default());
    assert_eq!(
        rig.command(opcode::CONNECT, &[3, PEER.to_bits(), 99]),
        Err(Status::PeerReset),
        "nobody listens"
    );
    let stream = rig.net().listen(99);
    let (flow, peer) = rig.command(opcode::CONNECT, &[3, PEER.to_bits(), 99]).unwrap();
    assert_eq!(peer, PEER.to_bits());
    rig.store(FREE, b"good morning");
    let hello = Transfer::new(End::memory(1, FREE, 12), End::flow(flow));
    assert_eq!(rig.run(&hello).status(), Status::Success);
    assert!(rig.run_until(|rig| rig.stream(stream).got == b"good morning"));
    rig.command(opcode::RELEASE, &[flow]).unwrap();
    rig.assert_idle();
}

#[test]
fn a_peer_that_goes_away_is_said() {
    let mut rig = server(Family::Igb, Wire::default());
    rig.ssds[0].1.store(0, &data(LENGTH, 35));
    let (flow, stream) = rig.accepted(4, PORT, 5000);
    rig.stream(stream).most = 100_000;
    let send = Transfer::new(End::ssd(2, &[(0, LENGTH as u64)]), End::flow(flow));
    let cid = rig.submit(&send);
    assert!(rig.run_until(|rig| rig.stream(stream).got.len() == 100_000));
    rig.net().abort(stream);
    let ended = rig.wait(cid);
    assert_eq!((ended.status(), ended.entry.stage()), (Status::PeerReset, Stage::Destination));
    assert!((100_000..LENGTH as u64).contains(&ended.entry.delivered.value()));
    rig.assert_idle();
    assert_eq!(rig.run(&send).status(), Status::PeerReset, "the connection is gone");
    // Other connections are not.
    let (flow, stream) = rig.accepted(4, PORT, 5001);
    let send = Transfer::new(End::ssd(2, &[(0, 70_000)]), End::flow(flow));
    assert_eq!(rig.run(&send).status(), Status::Success);
    assert!(rig.run_until(|rig| rig.stream(stream).got.len() == 70_000));
}

#[test]
fn a_peer_that_takes_nothing_costs_its_own_transfer_its_time_and_no_other() {
    let mut rig = server(Family::Igb, Wire::default());
    rig.ssds[0].1.store(0, &data(LENGTH, 36));
    let (slow, stream) = rig.accepted(4, PORT, 5000);
    rig.stream(stream).most = 0;
    let send = |flow| Transfer::new(End::ssd(2, &[(0, LENGTH as u64)]), End::flow(flow));
    let stuck = rig.submit(&Transfer { timeout_ms: 2000, ..send(slow) });
    let (fast, other) = rig.accepted(4, PORT, 5001);
    let ended = rig.run(&send(fast));
    assert_eq!(ended.status(), Status::Success);
    assert!(rig.run_until(|rig| rig.stream(other).got.len() == LENGTH));
    let ended = rig.wait(stuck);
    assert_eq!((ended.status(), ended.entry.stage()), (Status::Timeout, Stage::Destination));
    rig.assert_idle();
}

#[test]
fn what_a_cancelled_transfer_had_of_a_stream_is_the_next_one_s() {
    if crate::core::lacks("blocks of 64 KiB") {
        return;
    }
    let mut rig = server(Family::Igb, Wire::default());
    let (flow, stream) = rig.accepted(4, PORT, 5000);
    let bytes = data(50_000, 37);
    rig.stream(stream).to_send = bytes[..20_000].to_vec();
    let receive = Transfer::new(End::flow(flow), End::memory(1, FREE, 50_000));
    let ended = rig.run(&Transfer { length: 50_000, timeout_ms: 100, ..receive.clone() });
    assert_eq!((ended.status(), ended.entry.delivered.value()), (Status::Timeout, 0));
    rig.stream(stream).to_send = bytes.clone();
    let ended = rig.run(&Transfer { length: 50_000, ..receive });
    assert_eq!((ended.status(), ended.entry.delivered.value()), (Status::Success, 50_000));
    assert!(rig.load(FREE, 50_000) == bytes, "no byte was lost, and none was repeated");
}

#[test]
fn a_nic_that_hangs_is_reset_and_the_connections_live() {
    let mut rig = server(Family::Igb, Wire::default());
    let bytes = data(LENGTH, 38);
    rig.ssds[0].1.store(0, &bytes);
    let (flow, stream) = rig.accepted(4, PORT, 5000);
    let nic = rig.nic.as_ref().unwrap().0;
    rig.fabric.inject(nic, Rule::once(When::Transmit, Fault::Hang).after(200));
    let send = Transfer::new(End::ssd(2, &[(0, LENGTH as u64)]), End::flow(flow)).through(&[(Md5, &[])]);
    let ended = rig.run(&send);
    assert_eq!((ended.status(), rig.fabric.faults_struck(nic)), (Status::Success, 1));
    assert!(rig.run_until(|rig| rig.stream(stream).got.len() == LENGTH));
    assert!(rig.stream(stream).got == bytes && ended.digest(0) == digest(Md5, &bytes));
    rig.assert_idle();
}

#[test]
fn every_fault_of_frames_is_mended_by_tcp() {
    let faults = [
        Fault::DropFrame,
        Fault::DuplicateFrame,
        Fault::DelayFrame(Duration::from_millis(5)),
        Fault::CorruptFrame { undetected: false },
        Fault::CorruptFrame { undetected: true },
    ];
    for fault in faults {
        for when in [When::Transmit, When::Receive] {
            let mut rig = server(Family::Igb, Wire::default());
            let bytes = data(LENGTH, 39);
            rig.ssds[0].1.store(0, &bytes);
            let (flow, stream) = rig.accepted(4, PORT, 5000);
            let nic = rig.nic.as_ref().unwrap().0;
            rig.fabric.inject(nic, Rule::once(when.clone(), fault).after(50).times(6));
            let send = Transfer::new(End::ssd(2, &[(0, LENGTH as u64)]), End::flow(flow));
            assert_eq!(rig.run(&send).status(), Status::Success, "{fault:?} {when:?}");
            assert!(rig.run_until(|rig| rig.stream(stream).got.len() == LENGTH), "{fault:?} {when:?}");
            assert!(rig.stream(stream).got == bytes, "{fault:?} {when:?}");
        }
    }
}

/// Checks that retransmissions come from the card's memory: the peer is not affected by changes to the file after the command, however long
/// it withholds its acknowledgements.
#[test]
fn a_peer_that_loses_bytes_after_success_gets_the_same_ones_again() {
    for chain in [&[][..], &[(Md5, &[][..])]] {
        let mut rig = server(Family::Igb, Wire::default());
        let bytes = data(LENGTH, 31);
        rig.ssds[0].1.store(4096, &bytes);
        let (flow, stream) = rig.accepted(4, PORT, 5000);
        let send = |length: usize| {
            Transfer::new(End::ssd(2, &[(4096, length as u64)]), End::flow(flow)).through(chain)
        };
        assert_eq!(rig.run(&send(LENGTH)).status(), Status::Success);
        assert!(rig.run_until(|rig| rig.stream(stream).got.len() == LENGTH));
        // Everything that arrives now is lost; the transfer is done all the same, and its file's blocks are reused for another file.
        rig.net().deaf = true;
        let ended = rig.run(&send(MORE));
        assert_eq!((ended.status(), ended.entry.delivered.value()), (Status::Success, MORE as u64));
        rig.ssds[0].1.store(4096, &vec![b'S'; LENGTH]);
        let now = rig.now();
        rig.run_until(|rig| rig.now() > now + 3_000_000_000);
        rig.net().deaf = false;
        assert!(rig.run_until(|rig| rig.stream(stream).got.len() == LENGTH + MORE));
        assert!(rig.stream(stream).got[LENGTH..] == bytes[..MORE], "other bytes than were sent first");
        if !chain.is_empty() {
            assert_eq!(ended.digest(0), digest(Md5, &bytes[..MORE]));
        }
        rig.assert_idle();
    }
}

#[test]
fn a_transfer_that_is_to_be_acknowledged_waits_for_its_peer() {
    let mut rig = server(Family::Igb, Wire::default());
    let bytes = data(LENGTH, 40);
    rig.ssds[0].1.store(0, &bytes);
    let (flow, stream) = rig.accepted(4, PORT, 5000);
    let send = Transfer::new(End::ssd(2, &[(0, LENGTH as u64)]), End::flow(flow));
    let send = Transfer { flags: FLAG_ACKNOWLEDGED, length: PART as u64, ..send };
    let ended = rig.run(&send);
    assert_eq!((ended.status(), rig.stream(stream).got.len()), (Status::Success, PART));
    // From now on the congestion window has room for two of them.
    assert_eq!(rig.run(&Transfer { length: LENGTH as u64, ..send.clone() }).status(), Status::Success);
    rig.net().deaf = true;
    let (acknowledged, sent) = (rig.submit(&send), rig.submit(&Transfer { flags: 0, ..send.clone() }));
    assert_eq!(rig.wait(sent).status(), Status::Success, "the bytes were sent");
    let now = rig.now();
    rig.run_until(|rig| rig.now() > now + 2_000_000_000);
    assert!(!rig.is_done(acknowledged), "the peer has not acknowledged it");
    rig.net().deaf = false;
    assert_eq!(rig.wait(acknowledged).status(), Status::Success);
    assert!(rig.run_until(|rig| rig.stream(stream).got.len() == LENGTH + 3 * PART));
    // Its time limit can cancel it, and leaves the connection alone.
    rig.net().deaf = true;
    let ended = rig.run(&Transfer { timeout_ms: 100, ..send.clone() });
    assert_eq!((ended.status(), ended.entry.stage()), (Status::Timeout, Stage::Destination));
    rig.net().deaf = false;
    assert_eq!(rig.run(&send).status(), Status::Success);
    assert_eq!(rig.stream(stream).got.len(), LENGTH + 5 * PART);
    // A peer that is gone has not acknowledged; a destination that is not a connection never does.
    rig.net().deaf = true;
    let cid = rig.submit(&send);
    let now = rig.now();
    rig.run_until(|rig| rig.now() > now + 50_000_000);
    rig.net().deaf = false;
    rig.net().abort(stream);
    let ended = rig.wait(cid);
    assert_eq!((ended.status(), ended.entry.stage()), (Status::PeerReset, Stage::Destination));
    let memory = Transfer::new(End::ssd(2, &[(0, 100)]), End::memory(1, FREE, 100));
    let ended = rig.run(&Transfer { flags: FLAG_ACKNOWLEDGED, ..memory });
    assert_eq!((ended.status(), ended.entry.stage()), (Status::PathUnavailable, Stage::Destination));
    rig.assert_idle();
}

/// Checks that a peer that acknowledges nothing is reset after 5 s if others wait for its blocks. A queue has 36 commands in progress at
/// once: behind 60 such peers the next one waits for two rounds of them.
#[test]
fn peers_that_acknowledge_nothing_do_not_stall_others() {
    if crate::core::lacks("blocks of 64 KiB") {
        return;
    }
    for (peers, rounds) in [(8u16, 1), (60, 2)] {
        let mut rig = server(Family::Igb, Wire::default());
        rig.ssds[0].1.store(0, &data(LENGTH, 31));
        let key = dcs_ndp::parameter::aes256_ctr(&[5; 32], &[6; 16]);
        let flows: Vec<_> = (0..peers).map(|at| rig.accepted(4, PORT, 5000 + at)).collect();
        rig.net().deaf = true;
        let send = |flow, chain: &[(Operator, &[u8])]| {
            Transfer::new(End::ssd(2, &[(0, LENGTH as u64)]), End::flow(flow)).through(chain)
        };
        let stuck: Vec<_> =
            flows.iter().map(|(flow, _)| rig.submit(&send(*flow, &[(Aes256Ctr, &key)]))).collect();
        let now = rig.now();
        rig.run_until(|rig| rig.now() > now + 1_000_000_000);
        let other = Transfer::new(End::ssd(2, &[(0, 100_000)]), End::memory(1, FREE, 100_000));
        for _ in 0..3 {
            let ended = rig.run(&other);
            assert_eq!(ended.status(), Status::Success);
            assert!(ended.took < rounds * 5_500_000_000, "{peers} peers: {} ms", ended.took / 1_000_000);
        }
        for cid in stuck {
            let ended = rig.wait(cid);
            assert_eq!((ended.status(), ended.entry.stage()), (Status::PeerReset, Stage::Destination));
        }
        rig.assert_idle();
    }
}

/// Checks that silent peers only hold up their own queue. A command that waits for a peer's next bytes has a block, and a queue has at most
/// 36 of those: other queues have theirs, whatever these peers do. In its own queue others wait, for as long as the commands may.
#[test]
fn peers_that_say_nothing_hold_up_the_queue_that_waits_for_them_alone() {
    if crate::core::lacks("blocks of 64 KiB") {
        return;
    }
    const PEERS: u16 = 60;
    let mut rig = server(Family::Igb, Wire::default());
    let other = Transfer::new(End::ssd(2, &[(0, 100_000)]), End::memory(1, FREE, 100_000));
    let alone = rig.run(&other).took;
    let flows: Vec<_> = (0..PEERS).map(|at| rig.accepted(4, PORT, 5000 + at)).collect();
    let receive = |flow, timeout_ms| {
        let transfer = Transfer::new(End::flow(flow), End::memory(1, FREE + (1 << 20), 1000));
        Transfer { length: 1000, timeout_ms, ..transfer }
    };
    // A command with a time limit frees its place in the queue then.
    let waiting: Vec<_> = flows.iter().map(|(flow, _)| rig.submit(&receive(*flow, 1000))).collect();
    let ended = rig.run(&other);
    assert_eq!(ended.status(), Status::Success);
    assert!(ended.took < 1_100_000_000, "{} ms", ended.took / 1_000_000);
    for cid in waiting {
        assert_eq!(rig.wait(cid).status(), Status::Timeout);
    }
    // Commands without one wait, and only they do.
    let waiting: Vec<_> = flows.iter().map(|(flow, _)| rig.submit(&receive(*flow, 0))).collect();
    let behind = rig.submit(&other);
    let now = rig.now();
    rig.run_until(|rig| rig.now() > now + 60_000_000_000);
    assert!(!rig.is_done(behind) && !waiting.iter().any(|cid| rig.is_done(*cid)));
    rig.create_another().unwrap();
    for _ in 0..20 {
        let ended = rig.run(&other);
        assert_eq!(ended.status(), Status::Success);
        assert!(ended.took < 2 * alone, "{} µs, alone {} µs", ended.took / 1000, alone / 1000);
    }
    // They still get their bytes when these arrive.
    for (_, stream) in &flows {
        rig.stream(*stream).to_send = data(1000, 7);
    }
    for cid in waiting.into_iter().chain([behind]) {
        assert_eq!(rig.wait(cid).status(), Status::Success);
    }
    rig.assert_idle();
}

#[test]
fn connections_that_nobody_accepts_have_a_bound() {
    let mut rig = server(Family::Igb, Wire::default());
    let streams: Vec<usize> =
        (0..136).map(|at| rig.net().connect((crate::rig::CARD, PORT), 5000 + at)).collect();
    let now = rig.now();
    rig.run_until(|rig| rig.now() > now + 2_000_000_000);
    assert_eq!(rig.card.connections(), 128);
    let reset = streams.iter().filter(|stream| rig.net().is_reset(**stream)).count();
    assert_eq!(reset, 8);
    for _ in 0..128 {
        let (flow, _) = rig.command(opcode::ACCEPT, &[4]).unwrap();
        rig.command(opcode::RELEASE, &[flow]).unwrap();
    }
    let (flow, stream) = rig.accepted(4, PORT, 6000);
    let memory = Transfer::new(End::memory(1, FREE, 12), End::flow(flow));
    assert_eq!(rig.run(&memory).status(), Status::Success);
    assert!(rig.run_until(|rig| rig.stream(stream).got.len() == 12));
    rig.assert_idle();
}

#[test]
fn a_peer_that_pauses_keeps_its_connection_while_nobody_needs_its_blocks() {
    let mut rig = server(Family::Igb, Wire::default());
    let bytes = data(LENGTH, 36);
    rig.ssds[0].1.store(0, &bytes);
    let (flow, stream) = rig.accepted(4, PORT, 5000);
    rig.stream(stream).most = 0;
    let cid = rig.submit(&Transfer::new(End::ssd(2, &[(0, LENGTH as u64)]), End::flow(flow)));
    let now = rig.now();
    rig.run_until(|rig| rig.now() > now + 60_000_000_000);
    rig.stream(stream).most = usize::MAX;
    assert_eq!(rig.wait(cid).status(), Status::Success);
    assert!(rig.run_until(|rig| rig.stream(stream).got.len() == LENGTH));
    assert!(rig.stream(stream).got == bytes);
    rig.assert_idle();
}

#[test]
fn a_nic_that_is_pulled_out_fails_transfers_when_their_time_is_over() {
    let mut rig = server(Family::Igb, Wire::default());
    rig.ssds[0].1.store(0, &data(LENGTH, 41));
    let (flow, _) = rig.accepted(4, PORT, 5000);
    let nic = rig.nic.as_ref().unwrap().0;
    let send = Transfer::new(End::ssd(2, &[(0, LENGTH as u64)]), End::flow(flow));
    let cid = rig.submit(&send);
    (0..2000).for_each(|_| _ = rig.step());
    rig.fabric.remove(nic);
    let ended = rig.wait(cid);
    assert_eq!(ended.entry.stage(), Stage::Destination);
    assert!(!ended.status().is_success(), "{}", ended.status());
    let to_memory = Transfer::new(End::ssd(2, &[(0, 100_000)]), End::memory(1, FREE, 100_000));
    assert_eq!(rig.run(&to_memory).status(), Status::Success, "the SSD works");
    rig.assert_idle();
}

#[test]
fn a_nic_and_a_card_that_are_reset_make_new_connections() {
    let mut rig = server(Family::Igb, Wire::default());
    let bytes = data(LENGTH, 42);
    rig.ssds[0].1.store(0, &bytes);
    let send = |flow| Transfer::new(End::ssd(2, &[(0, LENGTH as u64)]), End::flow(flow));
    let (flow, _) = rig.accepted(4, PORT, 5000);
    let cid = rig.submit(&send(flow));
    (0..2000).for_each(|_| _ = rig.step());
    // Attached again while it sends: everything from before is over.
    let nic = rig.attach_nic(Family::Igb).unwrap();
    let ended = rig.wait(cid);
    assert_eq!((ended.status(), ended.entry.stage()), (Status::PeerReset, Stage::Destination));
    rig.assert_idle();
    let (listener, _) = rig.command(opcode::LISTEN, &[nic, 81]).unwrap();
    let (flow, stream) = rig.accepted(listener, 81, 5001);
    assert_eq!(rig.run(&send(flow)).status(), Status::Success);
    assert!(rig.run_until(|rig| rig.stream(stream).got.len() == LENGTH));
    // The card is reset with a transfer in progress.
    rig.submit(&send(flow));
    (0..2000).for_each(|_| _ = rig.step());
    rig.disable();
    rig.enable();
    assert_eq!(rig.grant(0, HOST_MEMORY), 1);
    rig.create_queues().unwrap();
    assert_eq!(rig.attach(0), Ok(2));
    assert_eq!(rig.attach_nic(Family::Igb), Ok(3));
    assert_eq!(rig.command(opcode::LISTEN, &[3, 81]), Ok((4, 0)));
    let (flow, stream) = rig.accepted(4, 81, 5002);
    assert_eq!(rig.run(&send(flow)).status(), Status::Success);
    assert!(rig.run_until(|rig| rig.stream(stream).got.len() == LENGTH));
    assert!(rig.stream(stream).got == bytes);
    rig.assert_idle();
}

#[test]
fn connections_come_and_go_and_nothing_is_left() {
    let mut rig = server(Family::E1000e, Wire::default());
    rig.ssds[0].1.store(0, &data(4096, 43));
    for at in 0..200u16 {
        let (flow, stream) = rig.accepted(4, PORT, 10_000 + at);
        let send = Transfer::new(End::ssd(2, &[(0, 1000)]), End::flow(flow));
        assert_eq!(rig.run(&send).status(), Status::Success, "{at}");
        if at % 3 > 0 {
            rig.command(opcode::SHUTDOWN, &[flow]).unwrap();
            rig.stream(stream).close = true;
        }
        rig.command(opcode::RELEASE, &[flow]).unwrap();
        assert_eq!(flow, 5, "the handle is used again");
    }
    let now = rig.now();
    rig.run_until(|rig| rig.now() > now + 300_000_000_000);
    rig.assert_idle();
    assert_eq!(rig.card.connections(), 0);
}

/// Checks the throughput in virtual time, which is exact: a wire of 1 Gbit/s takes 3,000,000 bytes in 24 ms, and any waiting of the engine
/// is added to that.
#[test]
fn a_wire_without_losses_is_kept_full() {
    if crate::core::lacks("blocks of 64 KiB") {
        return;
    }
    for chain in [&[][..], &[Aes256Ctr]] {
        let mut rig = server(Family::Igb, Wire::default());
        rig.ssds[0].1.store(0, &data(LENGTH, 45));
        let (flow, _) = rig.accepted(4, PORT, 5000);
        let key = dcs_ndp::parameter::aes256_ctr(&[5; 32], &[6; 16]);
        let chain: Vec<_> = chain.iter().map(|operator| (*operator, &key[..])).collect();
        let transfer = Transfer::new(End::ssd(2, &[(0, LENGTH as u64)]), End::flow(flow)).through(&chain);
        let ended = rig.run(&transfer);
        assert_eq!(ended.status(), Status::Success);
        assert!((22_000_000..27_000_000).contains(&ended.took), "{} ns", ended.took);
    }
    for room in [End::ssd(2, &[(0, 3_000_320)]), End::memory(1, FREE, LENGTH as u64)] {
        let mut rig = server(Family::Igb, Wire::default());
        let (flow, stream) = rig.accepted(4, PORT, 5000);
        rig.stream(stream).to_send = data(LENGTH, 46);
        let transfer = Transfer { length: LENGTH as u64, ..Transfer::new(End::flow(flow), room) };
        let ended = rig.run(&transfer.through(&[(Crc32c, &[])]));
        assert_eq!(ended.status(), Status::Success);
        // The peer, whose order of work varies, occasionally has to wait for delayed acknowledgements of 40 ms each.
        assert!((22_000_000..150_000_000).contains(&ended.took), "{} ns", ended.took);
    }
}
