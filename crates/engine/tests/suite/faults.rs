//! The fault matrix: where something goes wrong, how, and when. In every cell three things hold: success
//! means the right bytes and digests; nothing is written outside what was granted, and others do not notice;
//! a failure names its stage, has a defined status, and what it says was delivered is a right prefix.
//! Afterwards nothing is missing.

use crate::chains::{chain, small};
use crate::rig::device::Device;
use crate::rig::fault::{self, Fault, KINDS, Kind, Where};
use crate::rig::host::{End, Transfer};
use crate::rig::{Options, Rig};
use dcs_abi::entry::FLAG_DURABLE;
use dcs_abi::operator::Operator::{self, *};
use dcs_abi::operator::{OPERATORS, OperatorKind};
use dcs_abi::status::{Stage, Status};
use dcs_engine::{Config, QueueConfig, QueueId};

const LENGTH: usize = 20_000;

#[derive(Clone, Copy, Debug)]
struct Scenario {
    from_stream: bool,
    to_stream: bool,
    chain: &'static [Operator],
    direct: bool,
    durable: bool,
}

const fn scenario(from_stream: bool, to_stream: bool, chain: &'static [Operator]) -> Scenario {
    Scenario { from_stream, to_stream, chain, direct: false, durable: !to_stream }
}

const SCENARIOS: &[Scenario] = &[
    scenario(false, true, &[]),
    scenario(false, false, &[]),
    scenario(true, false, &[]),
    Scenario { direct: true, ..scenario(false, true, &[]) },
    Scenario { direct: true, ..scenario(true, false, &[]) },
    scenario(false, true, &[Md5, Aes256Ctr, Crc32]),
    scenario(false, false, &[Crc64Nvme, Crc64Nvme, Crc64Nvme]),
    scenario(true, true, &[Crc32c, Aes256Xts]),
    scenario(false, true, &[Gzip]),
    scenario(true, false, &[Crc32, Gzip, Crc64Nvme, Gunzip, Crc32c]),
    scenario(false, false, &[Zstd, Aes256Ctr]),
];

impl Scenario {
    fn resizes(&self) -> bool {
        self.chain.iter().any(|operator| operator.kind() == OperatorKind::Resize)
    }

    /// All places where something can go wrong.
    fn places(&self) -> Vec<Where> {
        let mut places = vec![Where::Source, Where::Destination];
        if self.direct {
            places = vec![Where::Direct];
        }
        places.extend((0..self.chain.len() as u8).map(Where::Operator));
        places.extend(self.durable.then_some(Where::Flush));
        places
    }

    fn transfer(&self, rig: &mut Rig) -> Transfer {
        let bytes = rig.random.compressible(LENGTH + if self.from_stream { 0 } else { 2_000 });
        let source = match self.from_stream {
            true => End::stream(rig.device(Device::source(bytes, 5000))),
            false => End::file(rig.device(Device::file(bytes)), &[(0, 10_000), (12_000, 10_000)]),
        };
        let destination = match self.to_stream {
            true => End::stream(rig.device(Device::sink(6000))),
            false => End::file(rig.device(Device::file(Vec::new())), &[(7, 9_000), (50_000, 90_000)]),
        };
        let flags = if self.durable { FLAG_DURABLE } else { 0 };
        Transfer { chain: chain(self.chain), flags, timeout_ms: 1000, ..Transfer::new(source, destination) }
    }
}

/// The end that a fault leads to; none where it cannot happen there.
fn expected(scenario: &Scenario, place: Where, kind: Kind) -> Option<(Status, Stage, u8)> {
    let (stage, at) = match place {
        Where::Source => (Stage::Source, 0),
        Where::Operator(at) | Where::Snapshot(at) => (Stage::Operator, at),
        Where::Destination | Where::Direct | Where::Flush => (Stage::Destination, 0),
    };
    match kind {
        Kind::Delay | Kind::Duplicate | Kind::Short => Some((Status::Success, Stage::None, 0)),
        Kind::Drop => Some((Status::Timeout, stage, at)),
        Kind::Stuck if !matches!(place, Where::Source | Where::Destination) => None,
        Kind::BadStatus | Kind::Stuck => Some((fault::failure(place).status, stage, at)),
        Kind::FalseSuccess | Kind::Lie => Some((Status::InternalError, stage, at)),
        Kind::Reset => Some((Status::DeviceReset, stage, at)),
        // That a direct copy moves nothing once is not the end.
        Kind::Hole if place == Where::Direct => Some((Status::Success, Stage::None, 0)),
        Kind::Truncate | Kind::Hole if scenario.from_stream => None,
        Kind::Truncate | Kind::Hole if !matches!(place, Where::Source | Where::Direct) => None,
        // What some operators make of half a file is no prefix of anything that is known.
        Kind::Hole if scenario.resizes() => None,
        Kind::Truncate | Kind::Hole => Some((Status::EndOfSource, Stage::Source, 0)),
    }
}

/// One cell: the fault strikes a command while others run; then another command runs in its place.
fn cell(scenario: &Scenario, place: Where, kind: Kind, nth: u32, seed: u64) -> bool {
    let Some(expected) = expected(scenario, place, kind) else { return false };
    let what = format!("{scenario:?} {place:?} {kind:?} {nth} {seed}");
    println!("{what}"); // shown where an assertion of the rig fails
    let says_idle = seed % 4 < 2;
    let options = Options { seed, direct: scenario.direct, says_idle, ..Options::default() };
    // Two units of each operator: one may hang.
    let units = OPERATORS.iter().map(|info| (info.operator, 2)).collect();
    // Every other seed has multi-lane units.
    let multi_lane =
        if seed.is_multiple_of(2) { Vec::new() } else { vec![Operator::Md5, Operator::Aes256Ctr] };
    let config = Config { window: 3, direct_chunk: 3000, queues: 2, units, multi_lane, ..small() };
    let mut rig = Rig::new(config, options);
    let queues: Vec<QueueId> = (0..2).map(|_| rig.queue(QueueConfig::default())).collect();
    rig.faults.push(Fault::new(queues[0], place, nth, kind));
    let victim = scenario.transfer(&mut rig);
    let bystanders: Vec<_> = (0..2).map(|at| SCENARIOS[at * 5].transfer(&mut rig)).collect();
    let victim = rig.submit(queues[0], &victim);
    let bystanders: Vec<_> = bystanders.iter().map(|transfer| rig.submit(queues[1], transfer)).collect();
    rig.settle();
    if !rig.faults[0].struck {
        assert!(nth > 0, "{what}: the first operation of every stage is hit");
        return false;
    }
    rig.verify(victim);
    assert_eq!(rig.end(victim), expected, "{what}");
    for bystander in bystanders {
        assert_eq!(rig.verify(bystander), Status::Success, "{what}: bystander {:?}", rig.end(bystander));
    }
    rig.faults.clear();
    let next = scenario.transfer(&mut rig);
    let next = rig.submit(queues[0], &next);
    rig.settle();
    assert_eq!(rig.verify(next), Status::Success, "{what}: the next command");
    true
}

/// All cells of these scenarios.
fn matrix(scenarios: &[Scenario]) {
    let mut cells = 0usize;
    for scenario in scenarios {
        for place in scenario.places() {
            for kind in KINDS {
                // Every operation of the stage, however many there are; the first ones in more worlds than
                // one.
                let more = [(0, 7), (1, 3)].map(|(nth, seed)| cell(scenario, place, kind, nth, seed));
                let each = (0..).take_while(|nth| cell(scenario, place, kind, *nth, u64::from(*nth) + 1));
                cells += each.count() + more.into_iter().filter(|struck| *struck).count();
            }
        }
    }
    assert!(cells > 600, "{cells} cells are too few to mean anything");
}

#[test]
fn every_fault_at_every_place() {
    let plain: Vec<_> = SCENARIOS.iter().copied().filter(|scenario| !scenario.resizes()).collect();
    matrix(&plain);
}

#[test]
fn every_fault_at_every_place_where_lengths_change() {
    let resizing: Vec<_> = SCENARIOS.iter().copied().filter(Scenario::resizes).collect();
    matrix(&resizing);
}

/// Writes of blocks overtake each other, and come short: what is told is all that the destination took
/// without a gap.
#[test]
fn what_was_delivered_is_told_to_the_last_byte() {
    let mut partly = 0;
    for (seed, nth) in (0..60).flat_map(|seed| (1..8).map(move |nth| (seed, nth))) {
        let config = Config { window: 4, ..small() };
        let block = u64::from(config.block_size);
        let mut rig = Rig::new(config, Options { seed, pieces: true, ..Options::default() });
        let queue = rig.queue(QueueConfig::default());
        rig.faults.push(Fault::new(queue, Where::Destination, nth, Kind::BadStatus));
        // No byte is one of a hole.
        let bytes: Vec<u8> = rig.random.compressible(LENGTH).into_iter().map(|byte| byte | 1).collect();
        let from = rig.device(Device::file(bytes.clone()));
        let to = rig.device(Device::file(Vec::new()));
        let length = LENGTH as u64;
        let transfer = Transfer::new(End::file(from, &[(0, length)]), End::file(to, &[(0, length)]));
        let ticket = rig.submit(queue, &transfer);
        rig.settle();
        let status = rig.verify(ticket);
        assert_eq!(status.is_success(), !rig.faults[0].struck);
        let there = rig.devices[to as usize].bytes();
        let taken = there.iter().zip(&bytes).take_while(|(there, sent)| there == sent).count();
        let told = rig.done(ticket).entry.delivered.value();
        assert_eq!(told, taken as u64, "seed {seed}, operation {nth}");
        partly += u32::from(!told.is_multiple_of(block));
    }
    assert!(partly > 50, "{partly} that end inside a block are too few to mean anything");
}

#[test]
fn a_source_that_fails_a_direct_copy_is_named() {
    for to_stream in [true, false] {
        let options = Options { direct: true, direct_lasts: 2, ..Options::default() };
        let mut rig = Rig::new(Config { direct_chunk: 3000, ..small() }, options);
        let queue = rig.queue(QueueConfig::default());
        rig.faults.push(Fault::new(queue, Where::Source, 0, Kind::BadStatus));
        let transfer = scenario(false, to_stream, &[]).transfer(&mut rig);
        let ticket = rig.submit(queue, &transfer);
        rig.settle();
        assert_eq!(rig.verify(ticket), Status::ReadError);
        assert_eq!(rig.end(ticket), (Status::ReadError, Stage::Source, 0));
    }
}

#[test]
fn a_digest_that_cannot_be_is_not_told() {
    for lies in [false, true] {
        let mut rig = Rig::new(small(), Options::default());
        let queue = rig.queue(QueueConfig::default());
        rig.faults.push(Fault::new(queue, Where::Source, 4, Kind::BadStatus));
        if lies {
            rig.faults.push(Fault::new(queue, Where::Snapshot(1), 0, Kind::Lie));
        }
        let transfer = scenario(false, true, &[Aes256Ctr, Crc32]).transfer(&mut rig);
        let ticket = rig.submit(queue, &transfer);
        rig.settle();
        assert_eq!(rig.verify(ticket), Status::ReadError);
        let result = rig.done(ticket).result.expect("asked for");
        assert_eq!(result.errno, 5);
        assert_eq!(result.digests[1].operator, if lies { 0 } else { Crc32 as u8 });
    }
}

#[test]
fn a_unit_on_its_way_to_a_command_that_fails_is_not_lost() {
    for seed in 0..20 {
        let mut rig = Rig::new(small(), Options { seed, ..Options::default() });
        let queue = rig.queue(QueueConfig::default());
        // One unit for two operators: where the second one fails, the first one is next in line for it.
        rig.faults.push(Fault::new(queue, Where::Operator(1), 0, Kind::BadStatus));
        let transfer = scenario(false, true, &[Crc32, Crc32]).transfer(&mut rig);
        let ticket = rig.submit(queue, &transfer);
        rig.settle();
        assert_eq!(rig.end(ticket), (Status::CorruptData, Stage::Operator, 1));
    }
}
