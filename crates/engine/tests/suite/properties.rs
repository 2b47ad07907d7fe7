//! Any interleaving gives the bytes and digests of the plain sequential program.

use crate::chains::chain;
use crate::rig::device::Device;
use crate::rig::host::{Chain, End, Transfer};
use crate::rig::{Options, Rig};
use dcs_abi::entry::{FLAG_DURABLE, LENGTH_TO_END};
use dcs_abi::operator::Operator::{self, *};
use dcs_abi::operator::{OPERATORS, OperatorKind};
use dcs_abi::status::{Stage, Status};
use dcs_engine::{Config, Event, QueueConfig, QueueId};
use dcs_ndp::sequential;
use proptest::prelude::*;

#[derive(Clone, Debug, Default)]
struct Plan {
    queue: usize,
    length: usize,
    prefix: Option<usize>,
    from_stream: bool,
    to_stream: bool,
    /// The cuts of the extents: their number and places.
    cuts: Vec<u16>,
    chain: Vec<Operator>,
    to_end: bool,
    durable: bool,
    rid: u32,
    holds: bool,
    /// Its first digest is to have a value: the right one, or another.
    expects: Option<bool>,
    timeout_ms: u32,
    /// It is aborted, nanoseconds after the last one was submitted.
    aborted: Option<u64>,
}

fn operators() -> impl Strategy<Value = Vec<Operator>> {
    let one = prop_oneof![
        6 => prop::sample::select(vec![Md5, Sha1, Sha256, Sha512, Crc32, Crc32c, Crc64Nvme]).prop_map(|op| vec![op]),
        4 => Just(vec![Aes256Ctr]),
        2 => Just(vec![Aes256Xts]),
        2 => Just(vec![Aes256Xts, Aes256XtsDecrypt]),
        2 => Just(vec![Gzip]),
        2 => Just(vec![Zstd]),
        2 => Just(vec![Gzip, Gunzip]),
        2 => Just(vec![Zstd, Unzstd]),
        1 => Just(vec![Gunzip]),
        1 => Just(vec![Slice]),
    ];
    prop::collection::vec(one, 0..6).prop_map(|parts| {
        let mut chain = parts.concat();
        chain.truncate(8);
        chain
    })
}

fn plan() -> impl Strategy<Value = Plan> {
    let lengths = prop_oneof![0usize..40_000, Just(0), Just(4096), Just(16_384)];
    let ends = (prop::option::weighted(0.3, 0usize..9000), any::<bool>(), any::<bool>(), any::<bool>());
    let rest =
        (operators(), any::<bool>(), any::<bool>(), 0u32..3, prop::collection::vec(any::<u16>(), 0..4));
    let rarely = |what: BoxedStrategy<u64>| prop::option::weighted(0.2, what);
    let fate = (
        prop::option::weighted(0.3, any::<bool>()),
        prop_oneof![4 => Just(0u32), 1 => 1u32..4],
        rarely((0u64..3_000_000).boxed()),
    );
    (0usize..4, lengths, ends, rest, fate).prop_map(|(queue, length, ends, rest, fate)| {
        let (prefix, from_stream, to_stream, holds) = ends;
        let (chain, to_end, durable, rid, cuts) = rest;
        let (expects, timeout_ms, aborted) = fate;
        let ends = Plan { expects, timeout_ms, aborted, ..Plan::default() };
        Plan {
            queue,
            length,
            prefix,
            from_stream,
            to_stream,
            cuts,
            chain,
            to_end,
            durable,
            rid,
            holds,
            ..ends
        }
    })
}

fn config() -> impl Strategy<Value = Config> {
    let sizes = (prop::sample::select(vec![4096u32, 8192, 20_480]), 18u32..60, 1u16..5, 8u16..40);
    let multi_lane = prop_oneof![Just(vec![]), Just(vec![Md5, Aes256Ctr, Crc32, Gzip])];
    (sizes, 1u16..4, 1u64..20_000, multi_lane).prop_map(
        |((block_size, blocks, window, commands), units, direct_chunk, multi_lane)| {
            let units = OPERATORS.iter().map(|info| (info.operator, units)).collect();
            let queues = 4;
            Config {
                block_size,
                blocks,
                window,
                commands,
                queues,
                units,
                multi_lane,
                direct_chunk,
                ..Config::default()
            }
        },
    )
}

fn options() -> impl Strategy<Value = Options> {
    let bools = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let direct_lasts = prop_oneof![Just(u32::MAX), 0u32..10];
    (any::<u64>(), bools, 1u64..1_000_000, direct_lasts).prop_map(|(seed, bools, latency, direct_lasts)| {
        let (immediate, direct, pieces, says_idle) = bools;
        Options { seed, immediate, direct, pieces, says_idle, latency, direct_lasts, ..Options::default() }
    })
}

/// Cuts `length` bytes into extents with gaps between them, in an order that is not theirs.
fn extents(length: usize, cuts: &[u16]) -> Vec<(u64, u64)> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| *cut as usize % length.max(1)).collect();
    places.extend([0, length]);
    places.sort_unstable();
    places.dedup();
    let mut extents: Vec<_> = places
        .windows(2)
        .enumerate()
        .map(|(at, pair)| ((pair[0] + at * 100) as u64, (pair[1] - pair[0]) as u64))
        .collect();
    extents.reverse();
    if extents.is_empty() { vec![(0, 0)] } else { extents }
}

/// The chain, with the value that its first digest is to have.
fn expecting(rig: &Rig, mut chain: Chain, plan: &Plan, ends: [&Option<End>; 2]) -> Chain {
    let Some(right) = plan.expects else { return chain };
    let Some(at) = chain.iter().position(|(operator, _)| operator.digest_size() > 0) else { return chain };
    let mut input = Vec::new();
    for end in ends.into_iter().flatten() {
        let bytes = rig.devices[end.handle as usize].bytes();
        if end.extents.is_empty() {
            input.extend_from_slice(bytes);
        }
        for extent in &end.extents {
            input.extend(bytes.iter().skip(extent.offset as usize).take(extent.length as usize));
        }
    }
    // Where the operators before it fail there is no value.
    if let Ok(plain) = sequential::run(&chain[..=at], &input)
        && let Some(value) = plain.digests[at]
    {
        chain[at].1 = value.as_bytes().to_vec();
        chain[at].1[0] ^= u8::from(!right);
    }
    chain
}

fn transfer(rig: &mut Rig, plan: &Plan) -> Transfer {
    let bytes = rig.random.compressible(plan.length + 500);
    let source = if plan.from_stream {
        End::stream(rig.device(Device::source(bytes[..plan.length].to_vec(), 6000)))
    } else {
        End::file(rig.device(Device::file(bytes)), &extents(plan.length, &plan.cuts))
    };
    let prefix_bytes = plan.prefix.map(|length| rig.random.compressible(length));
    let prefix = prefix_bytes.map(|bytes| {
        let length = bytes.len() as u64;
        End::memory(rig.device(Device::file(bytes)), length)
    });
    let input = plan.length + plan.prefix.unwrap_or(0);
    let resizes = plan.chain.iter().any(|operator| operator.kind() == OperatorKind::Resize);
    let chain = expecting(rig, chain(&plan.chain), plan, [&prefix, &Some(source.clone())]);
    let room = if resizes { input * 2 + 10_000 } else { input };
    let destination = if plan.to_stream {
        let (bytes, more) = (Vec::new(), Vec::new());
        End::stream(rig.device(Device::Sink { bytes, piece: 7000, holds: plan.holds, more }))
    } else {
        End::file(rig.device(Device::file(Vec::new())), &extents(room, &plan.cuts))
    };
    Transfer {
        prefix,
        source,
        destination,
        chain,
        length: if plan.to_end { LENGTH_TO_END } else { input as u64 },
        rid: plan.rid,
        timeout_ms: plan.timeout_ms,
        flags: if plan.durable { FLAG_DURABLE } else { 0 },
    }
}

/// The engine ends as the plain program does. Where the plain one fails at an operator, one after it may be
/// the first to fail here: it sees the first blocks before the other sees the last. One that was aborted, or
/// whose time was up, may have been faster.
fn check_end(rig: &Rig, ticket: usize, plan: &Plan) {
    let command = &rig.submitted[ticket];
    let chain = &command.transfer.as_ref().expect("a transfer").chain;
    let (status, stage, index) = rig.end(ticket);
    if plan.aborted.is_some() && status == Status::Cancelled
        || plan.timeout_ms > 0 && status == Status::Timeout
    {
        return;
    }
    match sequential::run(chain, &command.input) {
        Ok(_) => assert_eq!((status, stage), (Status::Success, Stage::None)),
        Err((at, error)) => {
            assert_eq!(stage, Stage::Operator);
            let later = index as usize > at && !status.is_success();
            assert!(later || (status, index as usize) == (error.status(), at), "{status:?} at {index}");
        }
    }
}

fn check(config: Config, options: Options, plans: &[Plan]) {
    let blocks = u64::from(config.blocks);
    let mut rig = Rig::new(config, options);
    let queues: Vec<QueueId> = (0..4)
        .map(|at| {
            rig.queue(QueueConfig {
                function: at / 2,
                tenant: at % 2,
                depth: 16,
                weight: 1 + at,
                number: None,
            })
        })
        .collect();
    let mut tickets = Vec::new();
    for plan in plans {
        let transfer = transfer(&mut rig, plan);
        tickets.push(rig.submit(queues[plan.queue], &transfer));
        let pause = rig.random.range(0, 300_000);
        rig.run_for(pause);
    }
    let started = rig.now;
    let mut aborts: Vec<_> =
        plans.iter().zip(&tickets).filter_map(|(plan, ticket)| Some((plan.aborted?, *ticket))).collect();
    aborts.sort_unstable();
    for (after, ticket) in aborts {
        rig.run_for((started + after).saturating_sub(rig.now));
        let (queue, cid) = (rig.submitted[ticket].queue, rig.submitted[ticket].cid);
        rig.tell(Event::Abort { queue, cid });
    }
    rig.settle();
    for (ticket, plan) in tickets.into_iter().zip(plans) {
        rig.verify(ticket);
        check_end(&rig, ticket, plan);
    }
    let counters = rig.engine.counters();
    assert!(counters.blocks_peak <= blocks && counters.stale_events == 0 && counters.bad_doorbells == 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_interleaving_gives_the_plain_programs_bytes(
        config in config(),
        options in options(),
        plans in prop::collection::vec(plan(), 1..10),
    ) {
        check(config, options, &plans);
    }
}
