//! Tests of failing links and peers, and of the other protocols.

use crate::rig::forge::Forge;
use crate::rig::pair::{address, config};
use crate::rig::smol::Smol;
use crate::rig::{Card, Faults, MS, Pair, Plan, Random, SECOND, Wire};
use dcs_net::checksum::Sum;
use dcs_net::{Config, Event, Reason};
use smoltcp::wire::{IpProtocol, TcpPacket};

const MIB: u64 = 1 << 20;

fn pair(seed: u64, faults: Faults, accepts: Plan) -> Pair {
    let mut pair = Pair::cards(seed, MS, faults, [config(0), config(1)]);
    pair.card(1).stack.listen(80).unwrap();
    pair.card(1).accepts = Some(accepts);
    pair
}

fn connect(pair: &mut Pair, plan: Plan) -> dcs_net::Flow {
    let now = pair.now;
    pair.card(0).connect(address(1, 80), plan, now)
}

fn all_closed(pair: &mut Pair) -> bool {
    (0..2).all(|side| pair.card(side).live.is_empty())
}

fn assert_idle(pair: &mut Pair) {
    pair.run_for(130 * SECOND);
    for side in 0..2 {
        pair.card(side).assert_idle();
        assert_eq!(pair.card(side).stack.usage().time_wait, 0);
        let statistics = pair.card(side).stack.statistics();
        assert_eq!(statistics.opened, statistics.closed);
    }
}

#[test]
fn a_thousand_connections_leave_nothing_behind() {
    let plan = Plan { place: 10_000, ..Plan::new(5_000) };
    // Each has a block from the start.
    let cards = [0, 1].map(|side| Card::with_blocks(config(side), false, 2048, 8192));
    let [a, b] = cards;
    let mut pair = Pair::new(a, b, Wire::new(9, MS, Faults::bad()));
    pair.card(1).stack.listen(80).unwrap();
    pair.card(1).accepts = Some(plan.reversed(3_000));
    let mut random = Random(5);
    for _ in 0..1_000 {
        connect(&mut pair, plan);
        pair.run_for(random.below(2 * MS));
    }
    let opened = |pair: &mut Pair| pair.card(1).apps.len() == 1_000 && all_closed(pair);
    assert!(pair.run_until(300 * SECOND, opened));
    for (side, received) in [(0, 3_000), (1, 5_000)] {
        assert!(pair.card(side).apps.values().all(|app| app.is_done() && app.received == received));
        assert_eq!(pair.card(side).stack.statistics().opened, 1_000);
    }
    assert_idle(&mut pair);
}

/// Returns the initial sequence numbers of both sides.
fn numbers(pair: &Pair) -> [u32; 2] {
    let mut numbers = [None; 2];
    for (side, frame) in pair.wire.tap.as_ref().unwrap() {
        if frame[12..14] == [8, 0] {
            let packet = TcpPacket::new_unchecked(&frame[34..]);
            if packet.syn() {
                numbers[*side] = Some(packet.seq_number().0 as u32);
            }
        }
    }
    numbers.map(Option::unwrap)
}

#[test]
fn sequence_numbers_wrap() {
    for side in 0..2 {
        let mut start = SECOND;
        // Their clock ticks every 4 us: the second run starts when the number is just below the wrap.
        for run in 0..2 {
            let plan = Plan::new(MIB);
            let mut pair = pair(3, Faults::bad(), plan.reversed(MIB));
            pair.now = start;
            pair.wire.tap = Some(Vec::new());
            connect(&mut pair, plan);
            assert!(pair.run_until(100 * SECOND, |pair| pair.card(1).apps.len() == 1 && all_closed(pair)));
            let iss = numbers(&pair)[side];
            assert!(run == 0 || iss > u32::MAX - 600_000, "{iss:#x}");
            start += u64::from((u32::MAX - 300_000).wrapping_sub(iss)) * 4_000;
            for side in 0..2 {
                assert!(pair.card(side).apps.values().all(|app| app.is_done() && app.received == MIB));
            }
            assert_idle(&mut pair);
        }
    }
}

#[test]
fn a_slow_ssd_closes_the_window() {
    let plan = Plan { place: 100_000, ..Plan::new(MIB) };
    let mut pair = pair(4, Faults::bad(), plan.reversed(0));
    let stall = pair.now + 20 * SECOND;
    pair.card(1).stalled_until = stall;
    connect(&mut pair, plan);
    pair.run_for(15 * SECOND);
    let app = pair.card(1).apps.values().next().unwrap();
    assert_eq!((app.received, app.closed), (0, None));
    let held = pair.card(1).stack.usage().buffers;
    assert!((40..=64).contains(&held), "{held}");
    assert!(pair.card(0).stack.statistics().probes > 2);
    assert!(pair.run_until(100 * SECOND, all_closed));
    assert!(pair.card(1).apps.values().all(|app| app.is_done() && app.received == MIB));
    assert_idle(&mut pair);
}

#[test]
fn a_slow_ssd_closes_the_window_of_smoltcp_too() {
    let mut card = Card::new(config(0), false);
    card.stack.listen(80).unwrap();
    card.accepts = Some(Plan { place: 100_000, ..Plan::new(0) });
    card.stalled_until = 20 * SECOND;
    let mut smol = Smol::new(1);
    smol.connect(address(0, 80), 1234, MIB, (2, 1), 64 << 10);
    let mut pair = Pair::new(card, smol, Wire::new(1, MS, Faults::bad()));
    pair.run_for(15 * SECOND);
    assert_eq!(pair.card(0).apps.values().next().unwrap().received, 0);
    let closed = |pair: &mut Pair| pair.card(0).apps.values().all(|app| app.is_done() && app.received == MIB);
    assert!(pair.run_until(100 * SECOND, closed));
    pair.run_for(SECOND);
    pair.card(0).assert_idle();
}

#[test]
fn a_link_that_dies_ends_its_connections() {
    let plan = Plan::new(100 * MIB);
    let mut pair = pair(4, Faults::none(), plan.reversed(100 * MIB));
    connect(&mut pair, plan);
    pair.run_for(100 * MS);
    pair.wire.faults = Faults::loss(1000);
    assert!(pair.run_until(200 * SECOND, all_closed));
    for side in 0..2 {
        let app = pair.card(side).apps.values().next().unwrap();
        assert!(app.received > 0);
        assert_eq!(app.closed, Some(Reason::TimedOut));
    }
    pair.wire.faults = Faults::none();
    assert_idle(&mut pair);
}

#[test]
fn an_abort_gives_everything_back_and_resets_the_peer() {
    for side in 0..2 {
        let plan = Plan::new(100 * MIB);
        let mut pair = pair(4, Faults::bad(), plan.reversed(100 * MIB));
        connect(&mut pair, plan);
        pair.run_for(100 * MS);
        let flow = *pair.card(side).apps.keys().next().unwrap();
        pair.card(side).stack.abort(flow);
        assert!(pair.run_until(200 * SECOND, all_closed));
        let reasons = [0, 1].map(|side| pair.card(side).apps.values().next().unwrap().closed);
        assert_eq!(reasons[side], Some(Reason::Aborted));
        assert_eq!(reasons[1 - side], Some(Reason::Reset));
        assert_idle(&mut pair);
    }
}

#[test]
fn a_port_that_is_not_open_refuses() {
    let mut pair = pair(4, Faults::none(), Plan::new(0));
    pair.card(1).stack.unlisten(80);
    connect(&mut pair, Plan::new(MIB));
    assert!(pair.run_until(10 * SECOND, all_closed));
    assert_eq!(pair.card(0).apps.values().next().unwrap().closed, Some(Reason::Refused));
    pair.run_for(SECOND);
    (0..2).for_each(|side| pair.card(side).assert_idle());
}

#[test]
fn a_flow_carries_many_commands() {
    let plan = Plan { shutdown: false, ..Plan::new(MIB) };
    let mut pair = pair(6, Faults::bad(), plan.reversed(0));
    let flow = connect(&mut pair, plan);
    for command in 1..=5 {
        pair.card(0).extend(flow, command * MIB);
        let sent = |pair: &mut Pair| pair.card(0).apps[&flow].acknowledged == command * MIB;
        assert!(pair.run_until(100 * SECOND, sent));
        pair.run_for(SECOND);
        assert_eq!(pair.card(0).stack.usage().chunks, 0, "no block is held between commands");
        assert_eq!(pair.card(1).apps.values().next().unwrap().received, command * MIB);
    }
}

#[test]
fn datagrams_go_both_ways() {
    let mut pair = pair(6, Faults::none(), Plan::new(0));
    (0..2).for_each(|side| pair.card(side).stack.open_udp(9).unwrap());
    for offload in [false, true] {
        pair.card(0).nic.checksum = offload;
        for length in [0, 1, 7, 1472] {
            pair.card(0).send_datagram(9, address(1, 9), 77, length).unwrap();
            pair.run_for(SECOND);
            let (port, from, bytes) = pair.card(1).datagrams.pop().unwrap();
            let mut expected = vec![0; length as usize];
            crate::rig::fill(77, 0, &mut expected);
            assert_eq!((port, from, bytes), (9, address(0, 9), expected));
        }
    }
    pair.card(1).send_datagram(9, address(0, 9), 78, 100).unwrap();
    pair.run_for(SECOND);
    assert_eq!(pair.card(0).datagrams.len(), 1);
    pair.card(1).stack.close_udp(9);
    pair.card(0).send_datagram(9, address(1, 9), 77, 10).unwrap();
    pair.card(0).send_datagram(9, address(1, 9), 77, 1473).unwrap_err();
    pair.run_for(SECOND);
    assert_eq!((pair.card(1).datagrams.len(), pair.card(1).stack.statistics().no_port), (0, 1));
    (0..2).for_each(|side| pair.card(side).assert_idle());
}

#[test]
fn an_echo_comes_back_with_the_right_checksum() {
    for length in [0, 1, 56, 1472] {
        let mut forge = Forge::new(|_| {});
        let mut request = vec![8, 0, 0, 0, 1, 2, 3, 4];
        request.extend((0..length).map(|n| n as u8));
        let mut sum = Sum::new();
        sum.add(&request);
        request[2..4].copy_from_slice(&(!sum.value()).to_be_bytes());
        forge.packet(IpProtocol::Icmp, &request);
        forge.assert_held(1);
        let frames = forge.frames();
        forge.assert_held(0);
        let [(header, payload)] = &frames[..] else { panic!("{frames:?}") };
        assert_eq!(*payload, length);
        let mut reply = header[34..].to_vec();
        assert_eq!((&reply[..2], &reply[4..]), (&[0, 0][..], &request[4..8]));
        reply.extend(&request[8..]);
        let mut sum = Sum::new();
        sum.add(&reply);
        assert_eq!(sum.value(), 0xffff);
    }
}

#[test]
fn what_is_not_for_the_card_is_dropped_and_counted() {
    let mut forge = Forge::new(|_| {});
    forge.packet(IpProtocol::Udp, &[0, 9, 0, 9, 0, 8, 0, 0]);
    forge.packet(IpProtocol::Udp, &[0, 9, 0, 9, 0, 99, 0, 0]);
    forge.packet(IpProtocol::Igmp, &[0; 8]);
    forge.packet(IpProtocol::Tcp, &[0; 19]);
    forge.frame(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8]);
    forge.frame(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0]);
    let statistics = forge.stack.statistics().clone();
    assert_eq!((statistics.no_port, statistics.malformed, statistics.not_ours), (1, 3, 2));
    // A fragment: the first byte of flags and offset, and the header's checksum.
    let mut fragment = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 28, 0, 0, 0x20, 0, 64, 17];
    fragment.extend([0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    let mut sum = Sum::new();
    sum.add(&fragment[14..]);
    fragment[24..26].copy_from_slice(&(!sum.value()).to_be_bytes());
    fragment.extend([0; 8]);
    forge.frame(&fragment);
    fragment[24] ^= 1;
    forge.frame(&fragment);
    assert_eq!((forge.stack.statistics().fragments, forge.stack.statistics().checksum_errors), (1, 1));
    assert!(forge.events().is_empty() && forge.frames().is_empty());
    forge.assert_held(0);
}

#[test]
fn a_gateway_takes_what_goes_further() {
    let gateway = *address(1, 0).ip();
    let mut forge = Forge::new(|config: &mut Config| config.gateway = Some(gateway));
    let away = "192.168.7.7:80".parse().unwrap();
    let flow = forge.stack.connect(away, forge.now).unwrap();
    let frames = forge.frames();
    assert_eq!((&frames[0].0[..6], &frames[0].0[30..34]), (&[2, 0, 0, 0, 0, 2][..], &[192, 168, 7, 7][..]));
    forge.stack.abort(flow);
    assert_eq!(forge.events(), [Event::Closed { flow, reason: Reason::Aborted }]);
}
