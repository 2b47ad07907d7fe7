//! The way back: from the network by a NIC to an SSD.

use crate::rig::{End, MS, Rig, SECOND, template};
use dcs_d2d::driver::{Receive, Send, Write};
use dcs_d2d::nic::Received;
use dcs_d2d::register::{self, END_HERE, Error, State, Task, Times};
use dcs_d2d::uoe::{Rtp, Template};
use dcs_d2d::{nic, ssd};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpAddress, IpProtocol, Ipv4Packet,
    Ipv4Repr, UdpPacket, UdpRepr,
};

const TASKS: [Task; 2] = [Task { lba: 20, blocks: 5 }, Task { lba: 3, blocks: 9 }];

/// A packet that smoltcp makes, to the stream of this template.
pub fn frame(template: &Template, payload: &[u8]) -> Vec<u8> {
    let caps = ChecksumCapabilities::default();
    let udp = UdpRepr { src_port: template.source_port, dst_port: template.destination_port };
    let ip = Ipv4Repr {
        src_addr: template.source.into(),
        dst_addr: template.destination.into(),
        next_header: IpProtocol::Udp,
        payload_len: 8 + payload.len(),
        hop_limit: 9,
    };
    let mut bytes = vec![0; 14 + 20 + 8 + payload.len()];
    let mut ethernet = EthernetFrame::new_unchecked(&mut bytes[..]);
    EthernetRepr {
        src_addr: EthernetAddress(template.mac_source),
        dst_addr: EthernetAddress(template.mac_destination),
        ethertype: EthernetProtocol::Ipv4,
    }
    .emit(&mut ethernet);
    let mut packet = Ipv4Packet::new_unchecked(&mut bytes[14..]);
    ip.emit(&mut packet, &caps);
    let mut datagram = UdpPacket::new_unchecked(&mut bytes[34..]);
    let (source, destination) = (IpAddress::from(ip.src_addr), IpAddress::from(ip.dst_addr));
    udp.emit(&mut datagram, &source, &destination, payload.len(), |to| to.copy_from_slice(payload), &caps);
    bytes
}

fn rig(template: &Template) -> Rig {
    let mut rig = Rig::new(ssd::Config::new(1, 32), nic::Config::new(1), 5);
    let writes = rig.layout(End::Nic).template(0, template);
    rig.write_all(End::Nic, writes);
    let writes = rig.layout(End::Ssd).tasks(0, &TASKS).unwrap();
    rig.write_all(End::Ssd, writes);
    rig
}

fn start(rig: &mut Rig, bytes: u64) {
    let receive = Receive { bytes, grants_to: rig.grants_to(End::Nic, 0), ..Receive::default() };
    rig.receive(End::Ssd, 0, &receive);
    let place = rig.place(End::Ssd, 0).unwrap();
    rig.send(End::Nic, 0, &place, &Send { bytes, ..Send::default() });
}

#[test]
fn what_the_network_sends_is_stored_in_whole_blocks() {
    let template = template(0, 1316);
    let mut rig = rig(&template);
    start(&mut rig, 0);
    let mut sent = Vec::new();
    for _ in 0..37 {
        let payload = rig.random.bytes(1316);
        assert_eq!(rig.nic.receive(&frame(&template, &payload), rig.now), Received::Kept);
        sent.extend(payload);
        let until = rig.now + MS / 5;
        rig.run(until);
    }
    rig.run(50 * MS);
    // The network has no end: the driver names it, to the NIC first and then, as it came out, to the SSD.
    let write = rig.layout(End::Nic).end_at(0, END_HERE);
    rig.write(End::Nic, write);
    rig.run(60 * MS);
    let moved = rig.report(End::Nic, 0).moved;
    assert_eq!(moved, sent.len() as u64);
    assert_eq!(rig.status(End::Nic, 0).state, State::Check);
    let write = rig.layout(End::Ssd).end_at(0, moved);
    rig.write(End::Ssd, write);
    assert!(rig.run(10 * SECOND));
    let report = rig.report(End::Ssd, 0);
    assert_eq!((report.status.state, report.taken), (State::Idle, moved));
    assert_eq!(rig.status(End::Nic, 0).state, State::Idle);
    let stored = rig.content(&TASKS);
    assert_eq!(stored[..sent.len()], sent);
    let end = sent.len().next_multiple_of(4096);
    assert!(stored[sent.len()..end].iter().all(|byte| *byte == 0), "the last block is filled with zeros");
    // Nobody's frames any more.
    assert_eq!(rig.nic.receive(&frame(&template, &[1]), rig.now), Received::Legacy);
}

#[test]
fn a_count_cuts_the_last_datagram() {
    let template = template(0, 1316);
    let mut rig = rig(&template);
    start(&mut rig, 3_000);
    let payload = rig.random.bytes(3_948);
    for part in payload.chunks(1316) {
        rig.nic.receive(&frame(&template, part), rig.now);
    }
    assert!(rig.run(10 * SECOND));
    assert_eq!(rig.status(End::Ssd, 0).state, State::Idle);
    assert_eq!(rig.status(End::Nic, 0).state, State::Idle);
    assert_eq!(rig.content(&TASKS)[..3_000], payload[..3_000]);
}

#[test]
fn frames_of_others_pass() {
    let ours = template(0, 1316);
    let mut rig = rig(&ours);
    let good = frame(&ours, &[1, 2, 3]);
    assert_eq!(rig.nic.receive(&good, 0), Received::Legacy, "before the start");
    start(&mut rig, 0);
    type Change = fn(&mut Template);
    let others: [Change; 5] = [
        |t| t.mac_destination[5] ^= 1,
        |t| t.source[3] ^= 1,
        |t| t.destination[3] ^= 1,
        |t| t.source_port ^= 1,
        |t| t.destination_port ^= 1,
    ];
    for change in others {
        let mut other = ours;
        change(&mut other);
        assert_eq!(rig.nic.receive(&frame(&other, &[1, 2, 3]), 0), Received::Legacy, "{other:?}");
    }
    let changed = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    // IPv6's type, another protocol, a header with a wrong sum, a header longer than the frame.
    for (at, value) in [(12, 0x86), (23, 6), (24, 0), (14, 0x4f)] {
        assert_eq!(rig.nic.receive(&changed(at, value), 0), Received::Legacy, "{at}");
    }
    for length in 0..42 {
        assert_eq!(rig.nic.receive(&good[..length], 0), Received::Legacy);
    }
    assert_eq!(rig.nic.receive(&good, 0), Received::Kept);
    // Ours by its header, and damaged.
    assert_eq!(rig.nic.receive(&changed(44, 9), 0), Received::Kept);
    let report = rig.report(End::Nic, 0);
    assert_eq!((report.packets, report.dropped.packets), (1, 1));
}

#[test]
fn zero_matches_any_source_and_one_that_names_it_comes_first() {
    let mut rig = Rig::new(ssd::Config::new(3, 32), nic::Config::new(3), 5);
    let exact = template(0, 1316);
    let any = Template { source: [0; 4], source_port: 0, mac_destination: [0; 6], ..exact };
    for (stream, template) in [(0, exact), (1, any), (2, any)] {
        let writes = rig.layout(End::Nic).template(stream, &template);
        rig.write_all(End::Nic, writes);
        let writes = rig.layout(End::Ssd).tasks(stream, &TASKS[..1]).unwrap();
        rig.write_all(End::Ssd, writes);
        rig.receive(End::Ssd, stream, &Receive::default());
        let place = rig.place(End::Ssd, stream).unwrap();
        rig.send(End::Nic, stream, &place, &Send::default());
    }
    assert_eq!(rig.status(End::Nic, 2).error, Some(Error::Duplicate));
    rig.nic.receive(&frame(&exact, &[1]), 0);
    rig.nic.receive(&frame(&Template { source: [9, 9, 9, 9], ..exact }, &[1]), 0);
    rig.nic.receive(&frame(&Template { source_port: 9, ..exact }, &[1]), 0);
    assert_eq!([0, 1].map(|stream| rig.report(End::Nic, stream).packets), [1, 2]);
}

#[test]
fn a_tag_and_rtp_are_taken_off_and_what_is_missing_is_counted() {
    let rtp = Rtp { kind: 33, sequence: 0, timestamp: 0, ssrc: 0x1122_3344 };
    let ours = Template { tag: Some(0x6005), rtp: Some(rtp), ..template(0, 1316) };
    let mut rig = rig(&ours);
    start(&mut rig, 0);
    let packet = |tag: u16, head: &[u8], sequence: u16, ssrc: u32, payload: &[u8]| {
        let mut bytes = head.to_vec();
        bytes[2..4].copy_from_slice(&sequence.to_be_bytes());
        bytes[8..12].copy_from_slice(&ssrc.to_be_bytes());
        bytes.extend(payload);
        let mut frame = frame(&ours, &bytes);
        frame.splice(12..12, [0x81, 0, (tag >> 8) as u8, tag as u8]);
        frame
    };
    let plain = [0x80, 33, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    // Two contributors, an extension of one word, and padding of three bytes.
    let mut full = vec![0xb2, 33, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    full.extend([7; 8]);
    full.extend([0, 0, 0, 1, 6, 6, 6, 6]);
    let ssrc = rtp.ssrc;
    // Another priority on the same VLAN is the same; another VLAN is not.
    assert_eq!(rig.nic.receive(&packet(0x0005, &plain, 65_534, ssrc, b"one"), 0), Received::Kept);
    assert_eq!(rig.nic.receive(&packet(0x0006, &plain, 65_535, ssrc, b"not"), 0), Received::Legacy);
    assert_eq!(rig.nic.receive(&packet(5, &full, 65_535, ssrc, b"two\0\0\x03"), 0), Received::Kept);
    // Two are missing. A late one of them does not come after all, nor does one twice; and neither sets the count back.
    assert_eq!(rig.nic.receive(&packet(5, &plain, 2, ssrc, b"three"), 0), Received::Kept);
    assert_eq!(rig.nic.receive(&packet(5, &plain, 0, ssrc, b"late"), 0), Received::Kept);
    assert_eq!(rig.nic.receive(&packet(5, &plain, 2, ssrc, b"three"), 0), Received::Kept);
    assert_eq!(rig.nic.receive(&packet(5, &plain, 3, ssrc, b"four"), 0), Received::Kept);
    // Another source, and no RTP.
    assert_eq!(rig.nic.receive(&packet(5, &plain, 3, 9, b"not"), 0), Received::Kept);
    assert_eq!(rig.nic.receive(&packet(5, &[0; 12], 3, ssrc, b"not"), 0), Received::Kept);
    let report = rig.report(End::Nic, 0);
    assert_eq!((report.packets, report.lost, report.dropped.packets), (4, 2, 2));
    assert_eq!(report.dropped.late, 2);
    rig.run(MS);
    let moved = rig.report(End::Ssd, 0).moved;
    assert_eq!(moved, 15);
    let write = rig.layout(End::Ssd).end_at(0, moved);
    rig.write(End::Ssd, write);
    rig.run(10 * MS);
    assert_eq!(rig.content(&TASKS)[..15], *b"onetwothreefour");
}

#[test]
fn where_any_rtp_source_is_taken_it_is_the_first_one_that_comes() {
    let rtp = Rtp { kind: 33, sequence: 0, timestamp: 0, ssrc: 0 };
    let ours = Template { rtp: Some(rtp), ..template(0, 1316) };
    let mut rig = rig(&ours);
    start(&mut rig, 0);
    for (ssrc, sequence) in [(7u32, 100u16), (8, 50), (7, 101)] {
        let mut bytes = vec![0x80, 33];
        bytes.extend(sequence.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(ssrc.to_be_bytes());
        bytes.push(ssrc as u8);
        rig.nic.receive(&frame(&ours, &bytes), 0);
    }
    let report = rig.report(End::Nic, 0);
    assert_eq!((report.packets, report.lost, report.dropped.packets), (2, 0, 1));
}

#[test]
fn a_slow_medium_costs_datagrams_which_are_counted() {
    let ours = template(0, 1316);
    let mut rig = rig(&ours);
    rig.medium_time = SECOND / 5;
    start(&mut rig, 0);
    let mut last = 0;
    for round in 0..400 {
        rig.nic.receive(&frame(&ours, &[round as u8; 1316]), rig.now);
        let until = rig.now + MS / 10;
        rig.run(until);
        last = rig.report(End::Nic, 0).dropped.packets;
    }
    let report = rig.report(End::Nic, 0);
    assert!(last > 50, "{report:?}");
    assert_eq!(report.packets + u64::from(last), 400);
}

#[test]
fn a_store_that_fails_and_a_list_that_is_full_are_said() {
    for (fails, blocks, error) in [(1000, 14, Error::Store), (0, 15, Error::Tasks)] {
        let ours = template(0, 1400);
        let mut rig = rig(&ours);
        rig.faults.store_fails = fails;
        start(&mut rig, 0);
        for _ in 0..blocks * 3 {
            rig.nic.receive(&frame(&ours, &[7; 1400]), rig.now);
            let until = rig.now + MS;
            rig.run(until);
        }
        assert_eq!(rig.status(End::Ssd, 0).error, Some(error));
        assert_eq!(rig.status(End::Nic, 0).error, Some(Error::Peer));
    }
}

#[test]
fn a_new_run_does_not_overtake_a_store_of_the_last() {
    let ours = template(0, 1316);
    let mut rig = rig(&ours);
    rig.medium_time = 50 * MS;
    start(&mut rig, 4096);
    rig.nic.receive(&frame(&ours, &[1; 1400]), rig.now);
    rig.nic.receive(&frame(&ours, &[1; 1400]), rig.now);
    rig.nic.receive(&frame(&ours, &[1; 1296]), rig.now);
    rig.run(MS);
    assert_eq!(rig.status(End::Ssd, 0).state, State::Send);
    let clear = rig.layout(End::Nic).clear(0);
    rig.write(End::Nic, clear);
    // The medium is quicker now: without care, the old block would come after the new one.
    rig.medium_time = 1000;
    let receive = Receive {
        bytes: 4096,
        grants_to: rig.grants_to(End::Nic, 0),
        times: Times { refresh_us: 1_000, ..Times::default() },
        ..Receive::default()
    };
    rig.receive(End::Ssd, 0, &receive);
    let place = rig.place(End::Ssd, 0).unwrap();
    rig.send(End::Nic, 0, &place, &Send { bytes: 4096, ..Send::default() });
    for length in [1400, 1400, 1296] {
        rig.nic.receive(&frame(&ours, &vec![2; length]), rig.now);
    }
    assert!(rig.run(10 * SECOND));
    assert_eq!(rig.status(End::Ssd, 0).state, State::Idle);
    assert!(rig.content(&TASKS)[..4096].iter().all(|byte| *byte == 2));
}

/// How a run ends whose store is under way.
#[derive(Clone, Copy, Debug)]
enum Over {
    Reset,
    Cleared,
    Failed,
}

#[test]
fn a_new_run_does_not_overtake_a_store_of_another_stream() {
    for over in [Over::Reset, Over::Cleared, Over::Failed] {
        let mut rig = Rig::new(ssd::Config::new(2, 32), nic::Config::new(2), 5);
        rig.medium_time = 50 * MS;
        let run = |rig: &mut Rig, stream: u16, fill: u8, stall_us: u32| {
            for (end, base) in [(End::Ssd, 0x10_0000_0000), (End::Nic, 0x20_0000_0000)] {
                rig.write(end, Write { offset: register::APERTURE_BASE, value: base });
            }
            let ours = template(stream, 1316);
            let writes = rig.layout(End::Nic).template(stream, &ours);
            rig.write_all(End::Nic, writes);
            let writes = rig.layout(End::Ssd).tasks(stream, &TASKS[..1]).unwrap();
            rig.write_all(End::Ssd, writes);
            let times = Times { stall_us, refresh_us: 1_000 };
            let receive = Receive {
                bytes: 4096,
                grants_to: rig.grants_to(End::Nic, stream),
                times,
                ..Receive::default()
            };
            rig.receive(End::Ssd, stream, &receive);
            let place = rig.place(End::Ssd, stream).unwrap();
            rig.send(End::Nic, stream, &place, &Send { bytes: 4096, ..Send::default() });
            for length in [1400, 1400, 1296] {
                rig.nic.receive(&frame(&ours, &vec![fill; length]), rig.now);
            }
        };
        run(&mut rig, 1, 1, 5_000);
        rig.run(MS);
        assert_eq!(rig.status(End::Ssd, 1).state, State::Send, "{over:?}");
        match over {
            Over::Reset => {
                rig.ssd.reset();
                rig.nic.reset();
            }
            Over::Cleared => {
                for end in [End::Ssd, End::Nic] {
                    let clear = rig.layout(end).clear(1);
                    rig.write(end, clear);
                }
            }
            Over::Failed => {
                rig.run(10 * MS);
                assert_eq!(rig.status(End::Ssd, 1).error, Some(Error::Stalled));
            }
        }
        // The medium is quicker now: without care, stream 1's block would come after stream 0's.
        rig.medium_time = 1000;
        run(&mut rig, 0, 2, 0);
        rig.run(30 * MS);
        assert_eq!(rig.status(End::Ssd, 0).state, State::Calc, "{over:?}: it waits");
        assert!(rig.run(10 * SECOND));
        assert_eq!(rig.status(End::Ssd, 0).state, State::Idle, "{over:?}");
        assert!(rig.content(&TASKS)[..4096].iter().all(|byte| *byte == 2), "{over:?}");
    }
}

#[test]
fn a_base_that_the_driver_writes_is_where_senders_write() {
    let mut rig = rig(&template(0, 1316));
    rig.write(End::Ssd, Write { offset: register::APERTURE_BASE, value: 0x1234_5000_0fff });
    rig.receive(End::Ssd, 0, &Receive::default());
    let place = rig.place(End::Ssd, 0).unwrap();
    // The first run has epoch 1: the second of the stream's places.
    assert_eq!(place.address, 0x1234_5000_0000 + 2 * 32 * 4096);
}
