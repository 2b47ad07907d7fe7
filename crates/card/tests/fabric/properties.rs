//! Tests of whole transfers against the plain sequential program: random chains, lengths, extents and ends, many at once, over a wire that
//! loses, duplicates and reorders frames.

use crate::rig::{End, FREE, Rig, Transfer};
use crate::transfers::data;
use dcs_abi::admin::opcode;
use dcs_abi::descriptor::{EndpointKind, Pace};
use dcs_abi::entry::FLAG_DURABLE;
use dcs_abi::operator::Operator::{self, *};
use dcs_abi::status::Status;
use dcs_card::card::Config;
use dcs_card::costs::Costs;
use dcs_fabric::Wire;
use dcs_fabric::nic::Family;
use dcs_ndp::{parameter, sequential};
use proptest::prelude::*;

/// Space for each transfer, on each SSD and in memory, in bytes.
const ROOM: u64 = 1 << 20;
const PORT: u16 = 80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Ssd,
    Memory,
    Flow,
}

#[derive(Clone, Debug)]
struct Plan {
    from: At,
    to: At,
    length: usize,
    /// Cuts of the source's and the destination's extents.
    cuts: Vec<u16>,
    chain: Vec<(Operator, Vec<u8>)>,
    durable: bool,
}

fn chain() -> impl Strategy<Value = Vec<(Operator, Vec<u8>)>> {
    let key = parameter::aes256_ctr(&[5; 32], &[6; 16]).to_vec();
    // The output of gzip at level 1 is not always the same.
    let level = parameter::level(2).to_vec();
    let digests = vec![Md5, Sha1, Sha256, Sha512, Crc32, Crc32c, Crc64Nvme];
    let one = prop_oneof![
        4 => prop::sample::select(digests).prop_map(|operator| vec![(operator, vec![])]),
        2 => Just(vec![(Aes256Ctr, key)]),
        1 => Just(vec![(Gzip, level.clone())]),
        1 => Just(vec![(Zstd, level.clone())]),
        1 => Just(vec![(Gzip, level.clone()), (Gunzip, vec![])]),
        1 => Just(vec![(Zstd, level), (Unzstd, vec![])]),
    ];
    prop::collection::vec(one, 0..4).prop_map(|parts| parts.concat())
}

fn plan() -> impl Strategy<Value = Plan> {
    let at = || prop::sample::select(vec![At::Ssd, At::Memory, At::Flow]);
    let length = prop_oneof![1usize..2000, 1usize..300_000, Just(65_536), Just(131_072)];
    let cuts = prop::collection::vec(any::<u16>(), 0..4);
    (at(), at(), length, cuts, chain(), any::<bool>())
        .prop_map(|(from, to, length, cuts, chain, durable)| Plan { from, to, length, cuts, chain, durable })
}

fn wire() -> impl Strategy<Value = Wire> {
    prop_oneof![
        Just(Wire::default()),
        (0u16..50, 0u16..30, 0u16..50).prop_map(|(lose, duplicate, reorder)| Wire {
            lose,
            duplicate,
            reorder,
            ..Wire::default()
        }),
    ]
}

/// Returns pieces of `length` bytes, each a multiple of `unit` except the last, in descending order of address, from `base` on.
fn extents(base: u64, length: u64, unit: u64, cuts: &[u16]) -> Vec<(u64, u64)> {
    let mut ends: Vec<u64> = cuts.iter().map(|cut| length * u64::from(*cut) / 65_536 / unit * unit).collect();
    ends.extend([0, length]);
    ends.sort_unstable();
    ends.dedup();
    ends.windows(2)
        .map(|pair| {
            (base + length.next_multiple_of(unit) * 2 - pair[1].next_multiple_of(unit), pair[1] - pair[0])
        })
        .collect()
}

/// Returns the bytes of extents.
fn gather(extents: &[(u64, u64)], mut load: impl FnMut(u64, &mut [u8])) -> Vec<u8> {
    let pieces = extents.iter().map(|(at, length)| {
        let mut bytes = vec![0; *length as usize];
        load(*at, &mut bytes);
        bytes
    });
    pieces.collect::<Vec<_>>().concat()
}

/// A transfer in progress.
struct Begun {
    cid: u16,
    expected: sequential::Output,
    to: End,
    stream: Option<usize>,
}

fn begin(rig: &mut Rig, number: u64, plan: &Plan) -> Begun {
    let input = data(plan.length, 100 + number);
    let expected = sequential::run(&plan.chain, &input).expect("a chain that does not fail");
    let connection = |rig: &mut Rig, more: u16| rig.accepted(5, PORT, 5000 + 2 * number as u16 + more);
    let length = plan.length as u64;
    let (ssd, memory) = (number * ROOM, FREE + number * 2 * ROOM);
    let from = match plan.from {
        At::Ssd => {
            let extents = extents(ssd, length, 1, &plan.cuts);
            let mut done = 0;
            for (at, piece) in &extents {
                rig.ssds[0].1.store(*at, &input[done..done + *piece as usize]);
                done += *piece as usize;
            }
            End { kind: EndpointKind::Block, handle: 2, extents, pace: Pace::default() }
        }
        At::Memory => {
            let extents = extents(memory, length, 1, &plan.cuts);
            let mut done = 0;
            for (at, piece) in &extents {
                rig.store(*at, &input[done..done + *piece as usize]);
                done += *piece as usize;
            }
            End { kind: EndpointKind::Memory, handle: 1, extents, pace: Pace::default() }
        }
        At::Flow => {
            let (flow, stream) = connection(rig, 0);
            rig.stream(stream).to_send = input;
            End::flow(flow)
        }
    };
    let room = (expected.output.len() as u64).next_multiple_of(512).max(512);
    let (to, stream) = match plan.to {
        At::Ssd => (
            End {
                kind: EndpointKind::Block,
                handle: 3,
                extents: extents(ssd, room, 512, &plan.cuts),
                pace: Pace::default(),
            },
            None,
        ),
        At::Memory => {
            let extents = extents(memory + ROOM, room, 1, &plan.cuts);
            (End { kind: EndpointKind::Memory, handle: 1, extents, pace: Pace::default() }, None)
        }
        At::Flow => {
            let (flow, stream) = connection(rig, 1);
            (End::flow(flow), Some(stream))
        }
    };
    let flags = if plan.durable && plan.to == At::Ssd { FLAG_DURABLE } else { 0 };
    let chain = plan.chain.clone();
    let transfer = Transfer { length, flags, chain, ..Transfer::new(from, to.clone()) };
    Begun { cid: rig.submit(&transfer), expected, to, stream }
}

fn check(rig: &mut Rig, begun: &Begun, plan: &Plan) {
    let ended = rig.wait(begun.cid);
    let output = &begun.expected.output;
    assert_eq!(
        (ended.status(), ended.entry.delivered.value()),
        (Status::Success, output.len() as u64),
        "{plan:?}"
    );
    for (at, digest) in begun.expected.digests.iter().enumerate() {
        assert_eq!(ended.digest(at), digest.map_or(vec![], |digest| digest.as_bytes().to_vec()), "{plan:?}");
    }
    let there = match (begun.stream, plan.to) {
        (Some(stream), _) => {
            assert!(rig.run_until(|rig| rig.stream(stream).got.len() >= output.len()), "{plan:?}");
            rig.stream(stream).got.clone()
        }
        (None, At::Ssd) => gather(&begun.to.extents, |at, bytes| rig.ssds[1].1.load(at, bytes)),
        (None, _) => gather(&begun.to.extents, |at, bytes| bytes.copy_from_slice(&rig.load(at, bytes.len()))),
    };
    assert!(
        there[..output.len()] == output[..] && (begun.stream.is_none() || there.len() == output.len()),
        "{plan:?}"
    );
    if plan.to == At::Ssd {
        assert!(there[output.len()..].iter().all(|byte| *byte == 0), "{plan:?}: the end of the last block");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_transfers_give_what_the_plain_program_gives(
        plans in prop::collection::vec(plan(), 1..7),
        wire in wire(),
        new in any::<bool>(),
        costs in prop::sample::select(vec![Costs::NONE, Costs::FPGA]),
    ) {
        let mut rig = Rig::ready(Config { key: [7; 16], costs, ..Config::default() }, 2);
        let family = if new { Family::Igb } else { Family::E1000e };
        prop_assert_eq!(rig.plug(family, wire), Ok(4));
        prop_assert_eq!(rig.command(opcode::LISTEN, &[4, PORT.into()]), Ok((5, 0)));
        let begun: Vec<Begun> = plans.iter().enumerate().map(|(at, plan)| begin(&mut rig, at as u64, plan)).collect();
        for (begun, plan) in begun.iter().zip(&plans) {
            check(&mut rig, begun, plan);
        }
        rig.assert_idle();
    }
}
