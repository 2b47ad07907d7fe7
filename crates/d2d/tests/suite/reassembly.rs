//! Fragments in any cut and order; what contradicts itself, comes too late, or has no room.

use crate::reverse::frame;
use crate::rig::{End, Rig, SECOND, template};
use dcs_d2d::driver::{Receive, Send};
use dcs_d2d::nic::Received;
use dcs_d2d::register::Task;
use dcs_d2d::uoe::Template;
use dcs_d2d::{Action, Limits, nic, ssd};
use dcs_testkit::Random;
use proptest::prelude::*;
use smoltcp::wire::Ipv4Packet;

fn rig(reassembly: Limits) -> Rig {
    rig_of(&template(0, 1316), reassembly)
}

fn rig_of(ours: &Template, reassembly: Limits) -> Rig {
    let nic = nic::Config { reassembly, queue: 1 << 20, ..nic::Config::new(1) };
    let mut rig = Rig::new(ssd::Config::new(1, 64), nic, 5);
    let writes = rig.layout(End::Nic).template(0, ours);
    rig.write_all(End::Nic, writes);
    let writes = rig.layout(End::Ssd).tasks(0, &[Task { lba: 0, blocks: 64 }]).unwrap();
    rig.write_all(End::Ssd, writes);
    let receive = Receive { grants_to: rig.grants_to(End::Nic, 0), ..Receive::default() };
    rig.receive(End::Ssd, 0, &receive);
    let place = rig.place(End::Ssd, 0).unwrap();
    rig.send(End::Nic, 0, &place, &Send::default());
    rig
}

/// Bytes `from..to` of a frame's datagram, as a fragment.
fn fragment(whole: &[u8], identification: u16, from: usize, to: usize) -> Vec<u8> {
    let mut bytes = whole[..34].to_vec();
    bytes.extend(&whole[34 + from..34 + to]);
    let mut packet = Ipv4Packet::new_unchecked(&mut bytes[14..]);
    packet.set_total_len((20 + to - from) as u16);
    packet.set_ident(identification);
    packet.set_dont_frag(false);
    packet.set_more_frags(34 + to < whole.len());
    packet.set_frag_offset(from as u16);
    packet.fill_checksum();
    bytes
}

/// The datagram in pieces that end at multiples of eight.
fn cut(whole: &[u8], identification: u16, cuts: &[usize]) -> Vec<Vec<u8>> {
    let length = whole.len() - 34;
    let mut ends: Vec<usize> = cuts.iter().map(|cut| 8 * (1 + cut % (length / 8))).collect();
    ends.retain(|end| *end < length);
    ends.push(length);
    ends.sort_unstable();
    ends.dedup();
    let starts = [0].into_iter().chain(ends.clone());
    starts.zip(ends.clone()).map(|(from, to)| fragment(whole, identification, from, to)).collect()
}

fn shuffle<T>(values: &mut [T], random: &mut Random) {
    for at in (1..values.len()).rev() {
        values.swap(at, random.below(at as u64 + 1) as usize);
    }
}

/// Frames that the NIC hands to the legacy function now.
fn legacy(rig: &mut Rig) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Some(action) = rig.nic.poll(rig.now) {
        match action {
            Action::Legacy { frame } => frames.push(frame),
            action => rig.act(End::Nic, action),
        }
    }
    frames
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A datagram of the stream and one of somebody else at the same address, cut, mixed, doubled.
    #[test]
    fn any_fragments_in_any_order_make_the_datagram(
        seed in any::<u64>(),
        length in 9usize..9_000,
        cuts in prop::collection::vec(any::<usize>(), 1..20),
        other_cuts in prop::collection::vec(any::<usize>(), 1..20),
        doubled in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut rig = rig(Limits::default());
        let mut random = Random(seed);
        let payload = random.bytes(length);
        let ours = template(0, 1316);
        let other = Template { destination_port: 9, ..ours };
        let mut mine = cut(&frame(&ours, &payload), 1, &cuts);
        prop_assume!(mine.len() > 1);
        if let Some(index) = doubled {
            let again = index.get(&mine).clone();
            mine.push(again);
        }
        let theirs = cut(&frame(&other, &random.bytes(length)), 2, &other_cuts);
        prop_assume!(theirs.len() > 1);
        let mut all: Vec<Vec<u8>> = mine.iter().chain(&theirs).cloned().collect();
        shuffle(&mut all, &mut random);
        let mut passed = Vec::new();
        let mut expected = Vec::new();
        for fragment in &all {
            if theirs.contains(fragment) {
                expected.push(fragment.clone());
            }
            match rig.nic.receive(fragment, 0) {
                Received::Legacy => passed.push(fragment.clone()),
                Received::Kept => passed.extend(legacy(&mut rig)),
            }
        }
        prop_assert_eq!(passed, expected, "the frames of others come as they came");
        prop_assert_eq!(rig.report(End::Nic, 0).packets, 1);
        rig.run(SECOND);
        let moved = rig.report(End::Ssd, 0).moved;
        prop_assert_eq!(moved, length as u64);
        let write = rig.layout(End::Ssd).end_at(0, moved);
        rig.write(End::Ssd, write);
        rig.run(2 * SECOND);
        prop_assert_eq!(&rig.medium[..length], &payload[..]);
        rig.run(60 * SECOND);
        prop_assert_eq!(rig.nic.bytes_held(), 0);
    }

    /// Anything at all: no more is held than the limits allow, and it is held no longer.
    #[test]
    fn any_fragments_keep_to_the_limits(
        seed in any::<u64>(),
        pieces in prop::collection::vec((0u16..6, 0usize..200, 1usize..40, any::<bool>()), 1..200),
    ) {
        let limits = Limits { datagrams: 3, bytes: 2_000, time: SECOND };
        let mut rig = rig(limits);
        let mut random = Random(seed);
        let whole = frame(&template(0, 1316), &random.bytes(1_993));
        let mut held = 0;
        let mut back = 0;
        for (identification, from, length, ours) in pieces {
            let (from, to) = (from * 8, ((from + length) * 8).min(2_001));
            if from >= to {
                continue;
            }
            let mut bytes = fragment(&whole, identification, from, to);
            if !ours && from == 0 {
                // The destination port.
                bytes[36] ^= 1;
            }
            match rig.nic.receive(&bytes, rig.now) {
                Received::Kept => held += 1,
                Received::Legacy => {}
            }
            back += legacy(&mut rig).len();
            prop_assert!(rig.nic.bytes_held() <= 2_000);
            rig.now += random.below(SECOND / 20);
        }
        rig.now += 2 * SECOND;
        back += legacy(&mut rig).len();
        prop_assert_eq!(rig.nic.bytes_held(), 0);
        prop_assert!(back <= held);
    }
}

#[test]
fn fragments_that_contradict_each_other_drop_the_datagram() {
    let whole = frame(&template(0, 1316), &[7; 1000]);
    let mut other = whole.clone();
    other[200] ^= 1;
    let first = fragment(&whole, 1, 0, 160);
    let cases = [
        ("it overlaps", fragment(&whole, 1, 152, 400)),
        ("the same place and other bytes", fragment(&other, 1, 0, 168)),
        ("more in front", fragment(&whole, 1, 0, 168)),
        ("behind the end", fragment(&whole, 1, 64, 1008)),
    ];
    for (name, second) in cases {
        let mut rig = rig(Limits::default());
        for bytes in [&first, &second] {
            assert_eq!(rig.nic.receive(bytes, 0), Received::Kept, "{name}");
        }
        assert_eq!(rig.nic.statistics().datagrams_lost, 1, "{name}");
        assert_eq!(rig.report(End::Nic, 0).dropped.packets, 1, "{name}");
        // The rest of it is dropped as well, and counted once.
        for (from, to) in [(160, 400), (400, 1008)] {
            assert_eq!(rig.nic.receive(&fragment(&whole, 1, from, to), 0), Received::Kept);
        }
        assert_eq!(rig.nic.statistics().datagrams_lost, 1);
        assert_eq!(rig.report(End::Nic, 0).packets, 0);
        assert_eq!(rig.nic.bytes_held(), 0);
        // Another datagram is not touched by it.
        for (from, to) in [(0, 504), (504, 1008)] {
            rig.nic.receive(&fragment(&whole, 2, from, to), 0);
        }
        assert_eq!(rig.report(End::Nic, 0).packets, 1);
    }
}

#[test]
fn what_is_never_whole_is_given_up_in_time() {
    let whole = frame(&template(0, 1316), &[7; 1000]);
    let mut rig = rig(Limits { time: SECOND, ..Limits::default() });
    // Ours by its first fragment; and one of which nobody knows.
    rig.nic.receive(&fragment(&whole, 1, 0, 504), 0);
    let unknown = fragment(&whole, 2, 504, 1008);
    assert_eq!(rig.nic.receive(&unknown, 0), Received::Kept);
    rig.now = SECOND - 1;
    assert_eq!(legacy(&mut rig), Vec::<Vec<u8>>::new());
    rig.now = SECOND;
    assert_eq!(legacy(&mut rig), [unknown]);
    assert_eq!(rig.nic.statistics().datagrams_lost, 1);
    assert_eq!(rig.nic.bytes_held(), 0);
}

#[test]
fn a_flood_of_fragments_costs_no_datagram_of_a_stream() {
    let whole = frame(&template(0, 1316), &[7; 1000]);
    let any = Template { source: [0; 4], source_port: 0, ..template(0, 1316) };
    // Small ones, which take the places, and large ones, which take the room.
    for size in [8, 1000] {
        let mut rig = rig_of(&any, Limits::default());
        for flood in 0..200u16 {
            // From the stream's own source, and from others.
            let others = Template { source: [10, 7, 0, (flood % 50) as u8], ..template(0, 1316) };
            for source in [template(0, 1316), others] {
                let theirs = frame(&source, &[9; 3000]);
                assert_eq!(
                    rig.nic.receive(&fragment(&theirs, 1000 + flood, 1000, 1000 + size), 0),
                    Received::Kept
                );
            }
            assert_eq!(rig.nic.receive(&fragment(&whole, flood, 0, 504), 0), Received::Kept);
            assert_eq!(rig.nic.receive(&fragment(&whole, flood, 504, 1008), 0), Received::Kept);
        }
        let report = rig.report(End::Nic, 0);
        assert_eq!((report.packets, report.dropped.packets), (200, 0), "{size}");
        let statistics = rig.nic.statistics();
        assert!(statistics.datagrams_lost == 0 && statistics.datagrams_passed > 100, "{statistics:?}");
        assert_eq!(legacy(&mut rig).len() as u64, statistics.datagrams_passed);
    }
}

#[test]
fn where_there_is_no_room_the_oldest_makes_it_and_a_streams_loss_is_counted() {
    let whole = frame(&template(0, 1316), &[7; 1000]);
    let mut rig = rig(Limits { datagrams: 4, ..Limits::default() });
    let tail = |identification| fragment(&whole, identification, 504, 1008);
    // One source has half of the places.
    for identification in 0..2 {
        rig.nic.receive(&tail(identification), 0);
    }
    assert_eq!(rig.nic.receive(&tail(2), 0), Received::Kept);
    assert_eq!(legacy(&mut rig), [tail(0)]);
    assert_eq!(rig.nic.statistics().datagrams_passed, 1);
    // Two are the stream's now: the older one goes, and is missed.
    for identification in [1, 2] {
        rig.nic.receive(&fragment(&whole, identification, 0, 160), 0);
    }
    assert_eq!(rig.nic.receive(&tail(3), 0), Received::Kept);
    assert_eq!(rig.report(End::Nic, 0).dropped.packets, 1);
    let statistics = rig.nic.statistics();
    assert_eq!((statistics.datagrams_lost, statistics.datagrams_passed), (1, 1));
    // At an address of nobody's here, or from a source that no stream takes, nothing is held.
    for other in [
        Template { destination: [10, 9, 9, 9], ..template(0, 1316) },
        Template { source: [10, 9, 9, 9], ..template(0, 1316) },
    ] {
        let bytes = fragment(&frame(&other, &[7; 1000]), 1, 504, 1008);
        assert_eq!(rig.nic.receive(&bytes, 0), Received::Legacy);
    }
}

#[test]
fn what_was_given_up_does_not_spoil_the_next_datagram_of_its_number() {
    let whole = frame(&template(0, 1316), &[7; 1000]);
    let other = frame(&Template { destination_port: 9, ..template(0, 1316) }, &[7; 1000]);
    let mut rig = rig(Limits::default());
    // Dropped, and of nobody here.
    for (identification, first) in [(1, &whole), (2, &other)] {
        rig.nic.receive(&fragment(first, identification, 0, 160), 0);
        rig.nic.receive(&fragment(first, identification, 152, 400), 0);
        for (from, to) in [(0, 504), (504, 1008)] {
            assert_eq!(rig.nic.receive(&fragment(&whole, identification, from, to), 0), Received::Kept);
        }
    }
    let report = rig.report(End::Nic, 0);
    assert_eq!((report.packets, report.dropped.packets), (2, 1));
    assert_eq!(rig.nic.statistics().datagrams_lost, 1);
}

#[test]
fn a_datagram_that_is_not_whole_before_the_end_is_a_hole_and_one_behind_it_is_none() {
    let whole = frame(&template(0, 1316), &[7; 1000]);
    let mut rig = rig(Limits::default());
    let first = |identification| fragment(&whole, identification, 0, 504);
    rig.nic.receive(&first(1), 0);
    let end = rig.layout(End::Nic).end_at(0, 1500);
    rig.write(End::Nic, end);
    for _ in 0..2 {
        rig.nic.receive(&whole, 0);
    }
    assert_eq!(rig.report(End::Nic, 0).dropped.packets, 1);
    // The sender goes on, and damaged, and in fragments.
    let mut damaged = whole.clone();
    damaged[60] ^= 1;
    for bytes in [&whole, &damaged, &first(2)] {
        assert_eq!(rig.nic.receive(bytes, 0), Received::Kept);
    }
    rig.now = 20 * SECOND;
    legacy(&mut rig);
    let report = rig.report(End::Nic, 0);
    assert_eq!((report.packets, report.dropped.packets), (2, 1));
}
