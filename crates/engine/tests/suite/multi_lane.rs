//! When passes of multi-lane units start.

use crate::chains::{chain, small};
use crate::rig::device::Device;
use crate::rig::host::{End, Transfer};
use crate::rig::{Options, Rig};
use dcs_abi::operator::OPERATORS;
use dcs_abi::operator::Operator::{self, *};
use dcs_abi::status::Status;
use dcs_engine::{Config, Nanos, QueueConfig, QueueId};

const LANES: u16 = 8;
/// The time of a pass: much longer than any other operation.
const PASS: Nanos = 2_000_000;
const LATENCY: Nanos = 20_000;

fn rig(seed: u64) -> (Rig, QueueId) {
    let units = OPERATORS.iter().map(|info| (info.operator, LANES)).collect();
    let config = Config { blocks: 200, commands: 40, queues: 1, units, multi_lane: vec![Md5], ..small() };
    let options = Options { seed, latency: LATENCY, pass_time: Some(PASS), ..Options::default() };
    let mut rig = Rig::new(config, options);
    let queue = rig.queue(QueueConfig::default());
    (rig, queue)
}

fn stream(rig: &mut Rig, queue: QueueId, blocks: usize, operators: &[Operator]) -> usize {
    let bytes = rig.random.compressible(blocks * 4096);
    let (from, to) = (rig.device(Device::file(bytes)), rig.device(Device::sink(usize::MAX)));
    let transfer = Transfer::new(End::file(from, &[(0, blocks as u64 * 4096)]), End::stream(to));
    rig.submit(queue, &Transfer { chain: chain(operators), ..transfer })
}

fn filled(rig: &Rig) -> Vec<usize> {
    rig.passes.iter().map(|pass| pass.2).collect()
}

#[test]
fn a_lone_stream_is_never_delayed() {
    let (mut rig, queue) = rig(1);
    // Others that do not want the unit are no company.
    let others: Vec<_> = (0..3).map(|_| stream(&mut rig, queue, 20, &[Sha1])).collect();
    let lone = stream(&mut rig, queue, 20, &[Md5]);
    let mut since = None;
    while rig.step() {
        let joined = since.filter(|_| rig.in_lanes() > 0).unwrap_or(rig.now);
        assert_eq!(joined, rig.now, "each block starts a pass at the moment at which it took its lane");
        since = (rig.in_lanes() > 0).then_some(joined);
    }
    rig.settle();
    assert_eq!(filled(&rig), [1; 20]);
    assert!(others.iter().chain([&lone]).all(|ticket| rig.verify(*ticket) == Status::Success));
}

#[test]
fn streams_that_keep_pace_go_together_and_full_lanes_wait_for_nobody() {
    for (streams, least) in [(2, 1.5), (5, 3.5), (8, 5.5), (24, 6.5)] {
        let (mut rig, queue) = rig(streams);
        let all: Vec<_> = (0..streams).map(|_| stream(&mut rig, queue, 30, &[Md5])).collect();
        rig.settle();
        assert!(all.iter().all(|ticket| rig.verify(*ticket) == Status::Success));
        let filled = filled(&rig);
        let mean = filled.iter().sum::<usize>() as f64 / filled.len() as f64;
        assert!(mean >= least, "{streams} streams: {mean} lanes of a pass, {filled:?}");
    }
}

#[test]
fn a_stream_whose_source_stalls_holds_nobody_up() {
    // An owner that always has something else to do lets a block wait for four passes' time.
    for (says_idle, patience) in [(true, 0), (false, 4)] {
        let (mut rig, queue) = rig(3);
        rig.options.says_idle = says_idle;
        let open = Device::Source { bytes: vec![7; 4096], at: 0, open: true, piece: 4096 };
        let (from, to) = (rig.device(open), rig.device(Device::sink(usize::MAX)));
        let stalled = Transfer::new(End::stream(from), End::stream(to)).chain(&[(Md5, &[])]);
        let stalled = rig.submit(queue, &stalled);
        rig.run_for(20_000_000);
        let before = rig.now;
        let passes = rig.passes.len();
        let other = stream(&mut rig, queue, 40, &[Md5]);
        assert!(rig.run_until(other));
        let took = rig.now - before;
        assert_eq!(rig.passes.len() - passes, 40, "alone in each pass");
        let longest = rig.waits.iter().max().copied().unwrap_or(0);
        assert!(longest <= patience * PASS, "a block waited for {longest} ns");
        assert!(took < 40 * (PASS + patience * PASS + LATENCY) + 20 * LATENCY, "{took}");
        rig.cancel(queue, stalled);
        rig.settle();
        assert_eq!(rig.verify(other), Status::Success);
    }
}

#[test]
fn who_is_cancelled_in_its_lane_leaves_it_and_the_others_go_on() {
    for seed in 0..20 {
        let (mut rig, queue) = rig(seed);
        let all: Vec<_> = (0..6).map(|_| stream(&mut rig, queue, 12, &[Md5, Crc32])).collect();
        while rig.in_lanes() < 2 && rig.step() {}
        rig.cancel(queue, all[(seed % 6) as usize]);
        rig.run_for(seed * 300_000);
        rig.cancel(queue, all[((seed + 1) % 6) as usize]);
        rig.settle();
        let ends: Vec<_> = all.iter().map(|ticket| rig.verify(*ticket)).collect();
        let good = ends.iter().filter(|end| **end == Status::Success).count();
        assert!((4..6).contains(&good), "{ends:?}");
        assert!(ends.iter().all(|end| matches!(end, Status::Success | Status::Cancelled)));
    }
}

#[test]
fn more_streams_than_lanes_get_the_same_share() {
    let (mut rig, queue) = rig(9);
    let all: Vec<_> = (0..20).map(|_| stream(&mut rig, queue, 40, &[Md5])).collect();
    rig.settle();
    let ends: Vec<Nanos> = all.iter().map(|ticket| rig.done(*ticket).at).collect();
    let (first, last) = (ends.iter().min().copied(), ends.iter().max().copied());
    assert!(first.unwrap_or(0) * 10 > last.unwrap_or(0) * 7, "{ends:?}");
}
