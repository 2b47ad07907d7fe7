//! Frames that leave, compared with those that smoltcp makes, byte for byte; and their order.

use crate::reverse::frame;
use crate::rig::{End, MS, Rig, SECOND, streams_of, template};
use dcs_d2d::driver::{Receive, Send};
use dcs_d2d::register::{Error, State, Task};
use dcs_d2d::uoe::{Rtp, Template};
use dcs_d2d::{nic, ssd};
use proptest::prelude::*;
use smoltcp::wire::{Ipv4Packet, UdpPacket};

fn rig(bytes: usize) -> Rig {
    let blocks = bytes.div_ceil(4096) as u64;
    Rig::new(ssd::Config::new(2, blocks), nic::Config::new(2), 1)
}

fn send_all(rig: &mut Rig, template: &Template, bytes: u64) {
    let blocks = bytes.div_ceil(4096) as u32;
    rig.prepare(0, template, &[Task { lba: 0, blocks }]);
    rig.start(0, bytes, &Send::default());
    rig.run(100 * SECOND);
    assert_eq!(rig.status(End::Ssd, 0).state, State::Idle);
}

/// The frame as smoltcp makes it: number `number` of the stream, which leaves `elapsed` nanoseconds after the
/// first.
fn expected(template: &Template, number: u16, elapsed: u64, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    if let Some(rtp) = template.rtp {
        let timestamp = rtp.timestamp.wrapping_add((elapsed * 9 / 100_000) as u32);
        body.extend([0x80, rtp.kind]);
        body.extend(rtp.sequence.wrapping_add(number).to_be_bytes());
        body.extend(timestamp.to_be_bytes());
        body.extend(rtp.ssrc.to_be_bytes());
    }
    body.extend(payload);
    let mut bytes = frame(template, &body);
    let mut packet = Ipv4Packet::new_unchecked(&mut bytes[14..]);
    packet.set_dscp(template.service >> 2);
    packet.set_ecn(template.service & 3);
    packet.set_ident(template.identification.wrapping_add(number));
    packet.set_dont_frag(template.dont_fragment);
    packet.set_hop_limit(template.ttl);
    packet.fill_checksum();
    if let Some(tag) = template.tag {
        bytes.splice(12..12, [0x81, 0, (tag >> 8) as u8, tag as u8]);
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn frames_are_those_of_smoltcp(
        (macs, tag, service) in (any::<[u8; 10]>(), prop::option::of(any::<u16>()), any::<u8>()),
        (identification, dont_fragment, ttl) in (any::<u16>(), any::<bool>(), 1u8..),
        (source, destination) in (any::<[u8; 4]>(), (1u32..).prop_map(u32::to_be_bytes)),
        (source_port, destination_port) in (any::<u16>(), 1u16..),
        rtp in prop::option::of((any::<u8>(), any::<u16>(), any::<u32>(), any::<u32>())),
        payload in 1u16..1461,
        bytes in 1u64..20_000,
    ) {
        let mut template = template(0, payload);
        template.mac_destination[1..].copy_from_slice(&macs[..5]);
        template.mac_source[1..].copy_from_slice(&macs[5..]);
        let rtp = rtp.map(|(kind, sequence, timestamp, ssrc)| Rtp { kind, sequence, timestamp, ssrc });
        let template = Template {
            tag, service, identification, dont_fragment, ttl, source, destination, source_port, destination_port, rtp, ..template
        };
        let mut rig = rig(20_000);
        send_all(&mut rig, &template, bytes);
        let content = &rig.medium[..bytes as usize];
        let first = rig.frames[0].0;
        prop_assert_eq!(rig.frames.len(), content.chunks(payload.into()).len());
        for (number, (payload, (time, _, frame))) in content.chunks(payload.into()).zip(&rig.frames).enumerate() {
            prop_assert_eq!(frame, &expected(&template, number as u16, time - first, payload), "{}", number);
        }
    }
}

#[test]
fn a_checksum_of_zero_is_sent_as_ffff() {
    // All payloads of two bytes: one of them gives it.
    let mut rig = rig(1 << 17);
    rig.medium = (0..=u16::MAX).flat_map(u16::to_be_bytes).collect();
    send_all(&mut rig, &template(0, 2), 1 << 17);
    let mut found = 0;
    for (_, _, frame) in &rig.frames {
        let packet = Ipv4Packet::new_checked(&frame[14..]).unwrap();
        let datagram = UdpPacket::new_checked(packet.payload()).unwrap();
        assert!(packet.verify_checksum());
        assert!(datagram.verify_checksum(&packet.src_addr().into(), &packet.dst_addr().into()));
        assert_ne!(datagram.checksum(), 0);
        found += u32::from(datagram.checksum() == 0xffff);
    }
    assert_eq!((rig.frames.len(), found), (1 << 16, 1));
}

#[test]
fn rtp_timestamps_are_those_of_leaving() {
    let rtp = Rtp { kind: 33, sequence: 65_535, timestamp: u32::MAX, ssrc: 1 };
    let template = Template { rtp: Some(rtp), ..template(0, 1316) };
    let mut rig = rig(4096);
    // Some 1,394 bytes of a frame with what belongs to it take about 11 ms.
    rig.wire_ps = 8_000_000;
    send_all(&mut rig, &template, 4096);
    let (start, _, _) = rig.frames[0];
    let stamps: Vec<u32> = rig
        .frames
        .iter()
        .map(|(_, _, frame)| u32::from_be_bytes(frame[46..50].try_into().unwrap()))
        .collect();
    assert_eq!(stamps[0], u32::MAX);
    for ((time, _, _), stamp) in rig.frames.iter().zip(&stamps) {
        assert_eq!(*stamp, u32::MAX.wrapping_add((u128::from(time - start) * 90_000 / 1_000_000_000) as u32));
    }
    assert!(stamps[1] > 900);
}

#[test]
fn legacy_frames_go_first_and_streams_in_turn() {
    let mut rig = rig(8 * 4096);
    for stream in [0, 1] {
        rig.prepare(stream, &template(stream, 1316), &[Task { lba: 0, blocks: 8 }]);
        rig.start(stream, 8 * 4096, &Send::default());
    }
    // The wire is busy with the first frame until both streams have many.
    rig.wire_ps = 1 << 24;
    rig.run(MS);
    assert_eq!(rig.frames.len(), 1);
    for number in 0..3 {
        rig.nic.send_legacy(vec![number; 60]).unwrap();
    }
    rig.wire_ps = 800;
    rig.run(SECOND);
    let order: Vec<Option<u16>> = rig.frames.iter().map(|(_, stream, _)| *stream).collect();
    assert_eq!(order[1..4], [None; 3]);
    assert_eq!(rig.frames[1].2, [0; 60]);
    // Then one of each, until the ends.
    for pair in order[4..44].chunks(2) {
        assert_ne!(pair[0], pair[1], "{order:?}");
    }
    assert_eq!(streams_of(&rig.frames).len(), 2);
    let room = nic::Config::new(2).legacy;
    for number in 0..room {
        assert!(rig.nic.send_legacy(vec![number as u8]).is_ok());
    }
    assert_eq!(rig.nic.send_legacy(vec![1, 2, 3]), Err(vec![1, 2, 3]));
    rig.nic.set_link(false);
    assert_eq!(rig.nic.next_frame(SECOND), None);
}

#[test]
fn a_template_that_cannot_be_is_said_at_the_start_alone() {
    let mut rig = rig(4096);
    let bad = Template { ttl: 0, ..template(0, 1316) };
    rig.prepare(0, &bad, &[Task { lba: 0, blocks: 1 }]);
    assert_eq!(rig.status(End::Nic, 0).error, None);
    rig.receive(End::Nic, 0, &Receive::default());
    let status = rig.status(End::Nic, 0);
    assert_eq!((status.state, status.error), (State::Failed, Some(Error::Template)));
    assert_eq!(rig.place(End::Nic, 0), Err(status));
}
