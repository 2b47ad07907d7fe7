//! Tests of streams in both directions, with every byte checked, on good and bad links.

use crate::rig::pair::{address, config};
use crate::rig::smol::Smol;
use crate::rig::{Card, Faults, MS, Pair, Plan, Random, SECOND, Wire};
use dcs_net::Config;

const MIB: u64 = 1 << 20;

/// Has two cards send each other this many bytes; both are idle afterwards.
fn both_ways(seed: u64, faults: Faults, configs: [Config; 2], plan: Plan, back: u64) -> Pair {
    let mut pair = Pair::cards(seed, MS, faults, configs);
    pair.card(1).stack.listen(80).unwrap();
    pair.card(1).accepts = Some(plan.reversed(back));
    let now = pair.now;
    pair.card(0).connect(address(1, 80), plan, now);
    finish(&mut pair, plan.send, back);
    pair
}

fn finish(pair: &mut Pair, there: u64, back: u64) {
    let done = pair.run_until(600 * SECOND, |pair| {
        (0..2).all(|side| {
            let card = pair.card(side);
            !card.apps.is_empty() && card.apps.values().all(|app| app.closed.is_some())
        })
    });
    for (side, received) in [(0, back), (1, there)] {
        let card = pair.card(side);
        for app in card.apps.values() {
            assert!(done && app.is_done(), "side {side}: {app:?} {:?}", card.stack.statistics());
            assert_eq!((app.received, app.ended), (received, Some(received)));
            assert_eq!((app.sent, app.acknowledged), (app.plan.send, app.plan.send));
        }
    }
    pair.run_for(70 * SECOND);
    for side in 0..2 {
        pair.card(side).assert_idle();
        assert_eq!(pair.card(side).stack.usage().time_wait, 0);
    }
}

#[test]
fn a_clean_link() {
    let mut pair = both_ways(1, Faults::none(), [config(0), config(1)], Plan::new(4 * MIB), 3 * MIB);
    for side in 0..2 {
        let statistics = pair.card(side).stack.statistics().clone();
        assert_eq!((statistics.retransmissions, statistics.timeouts, statistics.out_of_order), (0, 0, 0));
    }
}

#[test]
fn many_that_wait_for_their_owner_are_promised_no_more_than_there_is_place_for() {
    for connections in [8, 30, 60] {
        let mut pair = Pair::cards(2, MS, Faults::none(), [config(0), config(1)]);
        pair.card(1).stack.listen(80).unwrap();
        pair.card(1).accepts = Some(Plan { place: 8 << 10, ..Plan::new(MIB / 8).reversed(0) });
        pair.card(1).stalled_until = SECOND + 300 * MS;
        for _ in 0..connections {
            let now = pair.now;
            pair.card(0).connect(address(1, 80), Plan::new(MIB / 8), now);
        }
        finish(&mut pair, MIB / 8, 0);
        let [sender, receiver] = [0, 1].map(|side| pair.card(side).stack.statistics().clone());
        assert_eq!((receiver.bytes_dropped, sender.timeouts), (0, 0), "{connections} connections");
    }
}

#[test]
fn a_bad_link() {
    for seed in 0..8 {
        both_ways(seed, Faults::bad(), [config(0), config(1)], Plan::new(MIB), MIB / 2);
    }
}

#[test]
fn segmentation_offload_on_a_bad_link() {
    for seed in 0..4 {
        let configs = [0, 1].map(|side| Config { segmentation: Some(64 << 10), ..config(side) });
        both_ways(seed, Faults::bad(), configs, Plan::new(2 * MIB), 2 * MIB);
    }
}

#[test]
fn corrupted_frames_are_as_good_as_lost() {
    let faults = Faults { corrupt: 50, ..Faults::none() };
    let mut pair = both_ways(3, faults, [config(0), config(1)], Plan::new(MIB), MIB);
    assert!(pair.card(1).stack.statistics().checksum_errors > 10);
}

#[test]
fn without_selective_acknowledgements_and_timestamps() {
    for (sack, timestamps) in [(false, true), (true, false), (false, false)] {
        let mut plain = config(0);
        plain.tcp.sack = sack;
        plain.tcp.timestamps = timestamps;
        both_ways(5, Faults::bad(), [plain, config(1)], Plan::new(MIB), MIB / 2);
    }
}

fn with_smoltcp(seed: u64, faults: Faults, active: bool, there: u64, back: u64) -> Pair {
    let mut card = Card::new(config(0), false);
    let mut smol = Smol::new(1);
    let plan = Plan::new(there);
    let seeds = (plan.receive_seed, plan.send_seed);
    if active {
        smol.listen(80, back, seeds, 64 << 10);
        card.connect(address(1, 80), plan, SECOND);
    } else {
        card.stack.listen(80).unwrap();
        card.accepts = Some(plan);
        smol.connect(address(0, 80), 1234, back, seeds, 64 << 10);
    }
    let mut pair = Pair::new(card, smol, Wire::new(seed, MS, faults));
    let done = pair.run_until(600 * SECOND, |pair| {
        let card = pair.card(0);
        !card.apps.is_empty() && card.apps.values().all(|app| app.closed.is_some())
    });
    let smol: &mut Smol = pair.node(1);
    let stream = &smol.streams[0];
    assert_eq!((stream.received, stream.sent, stream.ended), (there, back, true));
    let card = pair.card(0);
    for app in card.apps.values() {
        assert!(done && app.is_done(), "{app:?} {:?}", card.stack);
        assert_eq!((app.received, app.ended), (back, Some(back)));
    }
    pair.run_for(SECOND);
    pair.card(0).assert_idle();
    pair
}

#[test]
fn smoltcp_on_a_clean_link() {
    with_smoltcp(1, Faults::none(), true, MIB, MIB);
    with_smoltcp(1, Faults::none(), false, MIB, MIB);
}

#[test]
fn smoltcp_on_a_bad_link() {
    for seed in 0..4 {
        with_smoltcp(seed, Faults::bad(), seed % 2 == 0, MIB / 2, MIB / 2);
    }
}

/// Tries any mix of faults, sizes, offloads and options. `SOAK=1000` in the environment tries that many.
#[test]
fn any_link_and_any_settings() {
    let count = std::env::var("SOAK").ok().and_then(|count| count.parse().ok()).unwrap_or(20);
    let first = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    for seed in first..first + count {
        let mut random = Random(seed);
        let mut below = |limit: u32| random.below(limit.into()) as u32;
        let faults = Faults {
            lose: below(120),
            double: below(60),
            delay: below(200),
            late: u64::from(below(8_000_000)),
            corrupt: below(30),
        };
        let configs = [0, 1].map(|side| {
            let mut config = config(side);
            config.segmentation = (below(2) == 0).then(|| 3_000 + below(60_000));
            config.mtu = [576, 1280, 1500][below(3) as usize];
            config.tcp.sack = below(4) > 0;
            config.tcp.timestamps = below(4) > 0;
            config.limits.buffer = 1_000 + below(100_000);
            config.limits.held = 1 + below(64) as usize;
            config.limits.ranges = 1 + below(64) as usize;
            config.limits.window = 2_000 + below(2_000_000);
            config.limits.chunks = 1 + below(40) as usize;
            config
        });
        let plan = Plan {
            chunk: 100 + below(64 << 10),
            place: 1 + u64::from(below(1 << 20)),
            ..Plan::new(below(200_000).into())
        };
        let back = below(200_000);
        println!("seed {seed}: {faults:?} {plan:?} {back}");
        both_ways(seed, faults, configs, plan, back.into());
    }
}
