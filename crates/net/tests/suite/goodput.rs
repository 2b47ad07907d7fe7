//! Measures goodput under loss in virtual time, of two cards and of smoltcp's TCP with itself: 1 Gbit/s, 2 ms round trip, windows of 1 MiB,
//! the median of five runs each. `cargo test -p dcs-net --test suite goodput -- --nocapture` prints it.

use crate::rig::pair::{address, config};
use crate::rig::smol::Smol;
use crate::rig::{Card, Faults, MS, Pair, Plan, SECOND, Wire};

const LENGTH: u64 = 8 << 20;
const WINDOW: usize = 1 << 20;

fn wire(seed: u64, faults: Faults) -> Wire {
    let mut wire = Wire::new(seed, MS, faults);
    wire.byte_time = 8;
    wire
}

/// Returns the kilobits per second of a transfer that ends now.
fn kilobits(pair: &Pair) -> u64 {
    LENGTH * 8 * 1_000_000 / (pair.now - SECOND)
}

fn cards(seed: u64, faults: Faults) -> u64 {
    let mut cards = [0, 1].map(|side| Card::with_blocks(config(side), false, 64, 64 << 10));
    cards.iter_mut().for_each(|card| card.nic.byte_time = 0);
    let plan = Plan { place: WINDOW as u64, ..Plan::new(LENGTH) };
    cards[1].stack.listen(80).unwrap();
    cards[1].accepts = Some(plan.reversed(0));
    let flow = cards[0].connect(address(1, 80), plan, SECOND);
    let [a, b] = cards;
    let mut pair = Pair::new(a, b, wire(seed, faults));
    assert!(pair.run_until(600 * SECOND, |pair| pair.card(0).apps[&flow].acknowledged == LENGTH));
    kilobits(&pair)
}

fn smoltcp(seed: u64, faults: Faults) -> u64 {
    let [mut a, mut b] = [0, 1].map(Smol::new);
    b.listen(80, 0, (2, 1), WINDOW);
    a.connect(address(1, 80), 1234, LENGTH, (1, 2), WINDOW);
    let mut pair = Pair::new(a, b, wire(seed, faults));
    let all = |pair: &mut Pair| pair.node::<Smol>(1).streams[0].received == LENGTH;
    assert!(pair.run_until(600 * SECOND, all));
    kilobits(&pair)
}

fn median(run: impl Fn(u64) -> u64) -> u64 {
    let mut runs: Vec<u64> = (0..5).map(run).collect();
    runs.sort_unstable();
    runs[2]
}

#[test]
fn goodput_under_loss() {
    let reordered = Faults { delay: 50, late: 3 * MS, ..Faults::none() };
    let cases = [
        ("no loss", Faults::none(), 700_000),
        ("1 % lost", Faults::loss(10), 50_000),
        ("5 % lost", Faults::loss(50), 10_000),
        ("5 % late by up to 3 ms", reordered, 10_000),
        ("5 % lost, 5 % late, 3 % doubled", Faults::bad(), 5_000),
    ];
    println!("{:>32} {:>8} {:>8}   (Mbit/s)", "", "card", "smoltcp");
    for (name, faults, least) in cases {
        let ours = median(|seed| cards(seed, faults));
        let theirs = median(|seed| smoltcp(seed, faults));
        let [card, smoltcp] = [ours, theirs].map(|kilobits| kilobits as f64 / 1000.0);
        println!("{name:>32} {card:>8.1} {smoltcp:>8.1}");
        assert!(ours >= least && ours >= theirs, "{name}: {ours} against {theirs}");
    }
}
