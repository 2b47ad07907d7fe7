//! The fault matrix: where something goes wrong, how, and when. In every cell three things hold: success means the
//! right bytes and digests; nothing is written outside what was granted, and others do not notice; a failure names
//! its stage, has a defined status, and what it says was delivered is a right prefix. Afterwards nothing is missing.

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
        let bytes = rig.random.bytes(LENGTH + if self.from_stream { 0 } else { 2_000 });
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
    // Every other seed gathers.
    let gather = if seed.is_multiple_of(2) { Vec::new() } else { vec![Operator::Md5, Operator::Aes256Ctr] };
    let config = Config { window: 3, direct_chunk: 3000, queues: 2, units, gather, ..small() };
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
    let mut cells = 0;
    for scenario in scenarios {
        for place in scenario.places() {
            for kind in KINDS {
                for (nth, seed) in [(0, 1), (1, 2), (1, 3), (4, 4)] {
                    cells += u32::from(cell(scenario, place, kind, nth, seed));
                }
            }
        }
    }
    assert!(cells > 300, "{cells} cells are too few to mean anything");
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
