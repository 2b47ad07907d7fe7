//! The paths of the papers' servers, byte for byte: SSD -> md5 -> memory, SSD -> aes256-ctr -> SSD, SSD -> md5 -> NIC, NIC -> crc32c -> SSD.

use crate::rig::{End, FREE, PEER, Rig, Transfer};
use crate::transfers::{data, digest};
use dcs_abi::admin::opcode;
use dcs_abi::operator::Operator::{Aes256Ctr, Crc32c, Gzip, Md5};
use dcs_abi::status::{Stage, Status};
use dcs_card::card::Config;
use dcs_drivers::network::{ReceiverCounts, SenderCounts};
use dcs_fabric::nic::Family;
use dcs_fabric::{Fault, Rule, When, Wire};
use dcs_ndp::{parameter, sequential};

#[test]
fn ssd_to_memory_through_md5() {
    let mut rig = Rig::ready(Config::default(), 1);
    let bytes = data(300_001, 1);
    rig.ssds[0].1.store(0, &bytes);
    let to = End::memory(1, FREE, 300_001);
    let ended = rig.run(&Transfer::new(End::ssd(2, &[(0, 300_001)]), to).through(&[(Md5, &[])]));
    assert_eq!((ended.status(), ended.entry.delivered.value()), (Status::Success, 300_001));
    assert_eq!(ended.digest(0), digest(Md5, &bytes));
    assert_eq!(rig.load(FREE, bytes.len()), bytes);
    rig.assert_idle();
}

#[test]
fn ssd_to_ssd_through_aes256_ctr() {
    let mut rig = Rig::ready(Config::default(), 2);
    let bytes = data(1 << 18, 2);
    rig.ssds[0].1.store(1 << 20, &bytes);
    let key = parameter::aes256_ctr(&[7; 32], &[9; 16]);
    let transfer = Transfer::new(End::ssd(2, &[(1 << 20, 1 << 18)]), End::ssd(3, &[(4096, 1 << 18)]));
    let ended = rig.run(&transfer.through(&[(Aes256Ctr, &key)]));
    assert_eq!(ended.status(), Status::Success);
    let mut written = vec![0; 1 << 18];
    rig.ssds[1].1.load(4096, &mut written);
    let plain = sequential::run(&[(Aes256Ctr, key.to_vec())], &bytes).expect("it takes any bytes");
    assert!(written == plain.output && written != bytes);
    rig.assert_idle();
}

/// A card with an SSD and a NIC to which the peer has connected; the handle and the peer's stream.
fn connected(family: Family) -> (Rig, u32, usize) {
    let mut rig = Rig::ready(Config::default(), 1);
    let nic = rig.plug(family, Wire::default()).expect("it is attached");
    let listener = rig.command(opcode::LISTEN, &[nic, 80]).expect("it listens").0;
    let (flow, stream) = rig.accepted(listener, 80, 4000);
    (rig, flow, stream)
}

#[test]
fn ssd_to_nic_through_md5_and_nic_to_ssd_through_crc32c() {
    let (mut rig, flow, stream) = connected(Family::Igb);
    let bytes = data(200_000, 3);
    rig.ssds[0].1.store(0, &bytes);
    let out = Transfer::new(End::ssd(2, &[(0, 200_000)]), End::flow(flow)).through(&[(Md5, &[])]);
    let ended = rig.run(&out);
    assert_eq!((ended.status(), ended.digest(0)), (Status::Success, &digest(Md5, &bytes)[..]));
    assert!(rig.run_until(|rig| rig.stream(stream).got.len() >= 200_000));
    assert!(rig.stream(stream).got == bytes);

    let answer = data(150_000, 4);
    rig.stream(stream).to_send.extend(&answer);
    let back = Transfer::new(End::flow(flow), End::ssd(2, &[(1 << 20, 150_000)]));
    let ended = rig.run(&Transfer { length: 150_000, ..back }.through(&[(Crc32c, &[])]));
    assert_eq!((ended.status(), ended.digest(0)), (Status::Success, &digest(Crc32c, &answer)[..]));
    let mut written = vec![0; 150_000];
    rig.ssds[0].1.load(1 << 20, &mut written);
    assert!(written == answer);
    rig.assert_idle();
}

/// What hardware and software have sent of data.
fn counts(rig: &Rig) -> SenderCounts {
    rig.card.networks()[0].sender_counts().expect("it has hardware")
}

#[test]
fn data_are_sent_by_hardware_alone() {
    for family in [Family::Igb, Family::E1000e] {
        let (mut rig, flow, stream) = connected(family);
        let bytes = data(200_000, 5);
        rig.ssds[0].1.store(0, &bytes);
        let ended = rig.run(&Transfer::new(End::ssd(2, &[(0, 200_000)]), End::flow(flow)));
        assert_eq!(ended.status(), Status::Success);
        assert!(rig.run_until(|rig| rig.stream(stream).got.len() >= 200_000));
        assert!(rig.stream(stream).got == bytes);
        let SenderCounts { sent, again, left } = counts(&rig);
        assert!(sent >= 200_000 / 4096, "{family:?}: {sent} frames");
        assert_eq!((again, left), (0, 0), "{family:?}: nothing is lost, and nothing is left to software");
        rig.assert_idle();
    }
}

#[test]
fn what_is_lost_is_sent_again_by_hardware() {
    for family in [Family::Igb, Family::E1000e] {
        let (mut rig, flow, stream) = connected(family);
        let bytes = data(300_000, 6);
        rig.ssds[0].1.store(0, &bytes);
        let nic = rig.nic.as_ref().expect("it is attached").0;
        for nth in [3, 20, 77, 130] {
            rig.fabric.inject(nic, Rule::once(When::Transmit, Fault::DropFrame).after(nth).times(2));
        }
        let transfer = Transfer::new(End::ssd(2, &[(0, 300_000)]), End::flow(flow)).through(&[(Md5, &[])]);
        let ended = rig.run(&transfer);
        assert_eq!((ended.status(), ended.digest(0)), (Status::Success, &digest(Md5, &bytes)[..]));
        assert!(rig.run_until(|rig| rig.stream(stream).got.len() >= 300_000));
        assert!(rig.stream(stream).got == bytes);
        assert_eq!(rig.fabric.faults_struck(nic), 8);
        let SenderCounts { sent, again, left } = counts(&rig);
        assert!(sent > 300_000 / 4096 && again >= 4, "{family:?}: {sent} frames, {again} times again");
        assert_eq!(left, 0, "{family:?}: nothing is left to software");
        rig.assert_idle();
    }
}

/// A card with an SSD, which has these bytes, and a NIC; the handle of datagrams to the peer's port 0.
fn with_datagrams(family: Family, bytes: &[u8]) -> (Rig, u32) {
    let mut rig = Rig::ready(Config::default(), 1);
    let nic = rig.plug(family, Wire::default()).expect("it is attached");
    assert_eq!(rig.net().bind(5000), 0);
    let words = [nic, PEER.to_bits(), 5000 | 4000 << 16, 1000];
    let to = rig.command(opcode::DATAGRAMS, &words).expect("they are opened").0;
    rig.ssds[0].1.store(0, bytes);
    (rig, to)
}

/// All that has come to the peer's port, in the order of its datagrams.
fn got(rig: &mut Rig) -> Vec<u8> {
    rig.net().ports[0].got.iter().flat_map(|(_, datagram)| datagram.clone()).collect()
}

#[test]
fn datagrams_are_sent_by_hardware_too() {
    for family in [Family::Igb, Family::E1000e] {
        let bytes = data(100_000, 7);
        let (mut rig, to) = with_datagrams(family, &bytes);
        let ended = rig.run(&Transfer::new(End::ssd(2, &[(0, 100_000)]), End::flow(to)));
        assert_eq!(ended.status(), Status::Success);
        assert!(rig.run_until(|rig| got(rig).len() >= 100_000));
        assert!(got(&mut rig) == bytes, "{family:?}");
        let SenderCounts { sent, again, left } = counts(&rig);
        assert_eq!((again, left), (0, 0), "{family:?}");
        assert!(sent >= 100, "{family:?}: {sent} datagrams");
        rig.assert_idle();
        assert!(rig.run_until(|rig| received(rig).posted == 31), "{:?}", received(&rig));
    }
}

#[test]
fn datagrams_of_a_nic_that_hangs_are_lost_and_later_ones_are_not() {
    for family in [Family::Igb, Family::E1000e] {
        let bytes = data(100_000, 8);
        let (mut rig, to) = with_datagrams(family, &bytes);
        let nic = rig.nic.as_ref().expect("it is attached").0;
        rig.fabric.inject(nic, Rule::once(When::Transmit, Fault::Hang).after(30));
        let send = Transfer::new(End::ssd(2, &[(0, 100_000)]), End::flow(to));
        assert_eq!(rig.run(&send).status(), Status::Success);
        assert_eq!(rig.fabric.faults_struck(nic), 1);
        rig.assert_idle();
        let end = rig.now() + 1_000_000_000;
        rig.run_until(|rig| rig.now() > end);
        let before = got(&mut rig);
        // One run of them is missing: those that the NIC had.
        let first = before.iter().zip(&bytes).take_while(|(one, other)| one == other).count();
        let rest = &before[first..];
        assert!(first > 20_000 && rest.len() > 20_000, "{family:?}: {first} bytes, then {}", rest.len());
        assert!(before.len() < 100_000 && bytes.ends_with(rest), "{family:?}");
        assert_eq!(rig.run(&send).status(), Status::Success);
        assert!(rig.run_until(|rig| got(rig).len() >= before.len() + 100_000));
        assert!(got(&mut rig)[before.len()..] == bytes, "{family:?}");
        assert_eq!(counts(&rig).left, 0);
        rig.assert_idle();
    }
}

#[test]
fn more_connections_than_hardware_has_are_served_all_the_same() {
    serve_many(Family::Igb, &[]);
}

#[test]
fn more_connections_than_hardware_has_are_served_where_frames_are_lost() {
    let lost: Vec<u64> = (0..60).map(|at| 20 + at * 23).collect();
    serve_many(Family::Igb, &lost);
    serve_many(Family::E1000e, &lost);
}

/// Sends to 14 connections at once, twice; of the frames in both directions those with these numbers are lost.
fn serve_many(family: Family, lost: &[u64]) {
    const LENGTH: usize = 80_000;
    let (mut rig, flow, stream) = connected(family);
    let nic = rig.nic.as_ref().expect("it is attached").0;
    let listener = flow - 1;
    let others = (1..14).map(|at| rig.accepted(listener, 80, 4000 + at));
    let flows: Vec<_> = [(flow, stream)].into_iter().chain(others).collect();
    for (at, _) in flows.iter().enumerate() {
        rig.ssds[0].1.store((at * LENGTH) as u64, &data(LENGTH, 100 + at as u64));
    }
    for when in [When::Transmit, When::Receive] {
        for nth in lost {
            rig.fabric.inject(nic, Rule::once(when.clone(), Fault::DropFrame).after(*nth));
        }
    }
    for round in 1..=2 {
        let send = |(at, (flow, _)): (usize, &(u32, usize))| {
            Transfer::new(End::ssd(2, &[((at * LENGTH) as u64, LENGTH as u64)]), End::flow(*flow))
        };
        let sent: Vec<_> = flows.iter().enumerate().map(send).map(|transfer| rig.submit(&transfer)).collect();
        for cid in sent {
            assert_eq!(rig.wait(cid).status(), Status::Success);
        }
        for (at, (_, stream)) in flows.iter().enumerate() {
            assert!(rig.run_until(|rig| rig.stream(*stream).got.len() >= round * LENGTH));
            let got = &rig.stream(*stream).got;
            assert!(got[(round - 1) * LENGTH..] == data(LENGTH, 100 + at as u64), "stream {at}");
        }
    }
    let SenderCounts { sent, again, left } = counts(&rig);
    assert_eq!(again > 0, !lost.is_empty(), "{again} times again");
    assert!(sent > 0 && left > 0, "{sent} frames by hardware, {left} by software");
    rig.assert_idle();
}

/// What hardware has received, and moved to where it is read.
fn received(rig: &Rig) -> ReceiverCounts {
    rig.card.networks()[0].receiver_counts().expect("it has hardware")
}

/// Reads bytes that a peer sends to the SSD, and compares them.
fn read_to_ssd(rig: &mut Rig, (flow, stream): (u32, usize), bytes: &[u8]) {
    let length = bytes.len() as u64;
    rig.stream(stream).to_send.extend(bytes);
    let transfer = Transfer::new(End::flow(flow), End::ssd(2, &[(0, length)])).through(&[(Crc32c, &[])]);
    let ended = rig.run(&Transfer { length, ..transfer });
    assert_eq!((ended.status(), ended.digest(0)), (Status::Success, &digest(Crc32c, bytes)[..]));
    let mut written = vec![0; bytes.len()];
    rig.ssds[0].1.load(0, &mut written);
    assert!(written == bytes);
}

#[test]
fn data_are_received_by_hardware_alone() {
    for family in [Family::Igb, Family::E1000e] {
        let (mut rig, flow, stream) = connected(family);
        let bytes = data(150_000, 7);
        read_to_ssd(&mut rig, (flow, stream), &bytes);
        let ReceiverCounts { kept, gathered, .. } = received(&rig);
        assert!(kept >= 150_000 / 1460, "{family:?}: {kept} frames");
        assert_eq!(gathered, 150_000, "{family:?}: software moves nothing");
        rig.assert_idle();
        assert!(rig.run_until(|rig| received(rig).posted == 31), "{:?}", received(&rig));
    }
}

#[test]
fn what_hardware_does_not_keep_is_received_all_the_same() {
    for family in [Family::Igb, Family::E1000e] {
        let (mut rig, flow, stream) = connected(family);
        let bytes = data(300_000, 8);
        let nic = rig.nic.as_ref().expect("it is attached").0;
        for nth in [10, 40, 41, 120] {
            rig.fabric.inject(nic, Rule::once(When::Receive, Fault::DropFrame).after(nth));
        }
        read_to_ssd(&mut rig, (flow, stream), &bytes);
        assert_eq!(rig.fabric.faults_struck(nic), 4);
        let ReceiverCounts { gathered, .. } = received(&rig);
        // What comes out of order is software's; then the hardware listens again.
        assert!((150_000..300_000).contains(&gathered), "{family:?}: {gathered} bytes by the hardware");
        rig.assert_idle();
    }
}

#[test]
fn buffers_that_nobody_reads_come_back_with_the_end_of_their_connection() {
    for family in [Family::Igb, Family::E1000e] {
        let (mut rig, flow, stream) = connected(family);
        rig.stream(stream).to_send.extend(data(100_000, 9));
        assert!(rig.run_until(|rig| received(rig).posted < 31 && received(rig).kept >= 8));
        rig.command(opcode::RELEASE, &[flow]).expect("it is released");
        assert!(rig.run_until(|rig| received(rig).posted == 31), "{family:?}: {:?}", received(&rig));
        rig.assert_idle();
    }
}

#[test]
fn a_connection_that_ends_while_its_peer_sends_costs_no_other() {
    for family in [Family::Igb, Family::E1000e] {
        let (mut rig, flow, stream) = connected(family);
        let listener = flow - 1;
        let bytes = data(60_000, 10);
        for at in 0..24 {
            let (other, others) = rig.accepted(listener, 80, 4100 + at);
            rig.stream(others).to_send.extend(&bytes);
            let transfer = Transfer::new(End::flow(other), End::ssd(2, &[(1 << 20, 60_000)]));
            rig.submit(&Transfer { length: 60_000, ..transfer });
            let before = received(&rig).gathered;
            assert!(rig.run_until(|rig| received(rig).gathered >= before + 700 * u64::from(at)));
            rig.command(opcode::RELEASE, &[other]).expect("it is released");
        }
        read_to_ssd(&mut rig, (flow, stream), &bytes);
        assert!(rig.run_until(|rig| received(rig).posted == 31), "{family:?}: {:?}", received(&rig));
        let network = format!("{:?}", rig.card.networks()[0]);
        assert!(network.contains("resets: 0,"), "{network}");
        rig.assert_idle();
    }
}

#[test]
fn what_the_core_has_not_is_refused() {
    let mut rig = Rig::ready(Config::default(), 1);
    let transfer = || Transfer::new(End::ssd(2, &[(0, 4096)]), End::memory(1, FREE, 8192));
    let ended = rig.run(&transfer().through(&[(Md5, &[]), (Gzip, &[])]));
    assert_eq!(
        (ended.status(), ended.entry.stage(), ended.entry.stage_index),
        (Status::UnknownOperator, Stage::Operator, 1)
    );
    // More extents than it keeps.
    let many: Vec<_> = (0..17).map(|at| (at * 8192, 512)).collect();
    let ended = rig.run(&Transfer::new(End::ssd(2, &many), End::memory(1, FREE, 17 * 512)));
    assert_eq!((ended.status(), ended.entry.stage()), (Status::OutOfResources, Stage::Frontend));
    rig.assert_idle();
}
