//! Functions share slots, blocks and units first, then each one's queues share its part: as in the Rust core.

use crate::chains::chain;
use crate::rig::device::Device;
use crate::rig::functions::{self, from_file, queue};
use crate::rig::short::Core;
use crate::rig::{Options, Rig};
use dcs_abi::operator::Operator::Crc32;
use dcs_engine::{Config, Engine, OperationKind, QueueId};
use dcs_rtl::Body;
use dcs_testkit::Random;

fn options(seed: u64) -> Options {
    Options { seed, short: false, ..Options::default() }
}

/// A core with these weights of functions.
fn weighted(weights: &[u16]) -> Body {
    Body::new(&Config { weights: weights.to_vec(), ..Config::default() })
}

fn reads<E: Core>(rig: &Rig<E>, queue: QueueId) -> usize {
    let is_read = |kind: &OperationKind| matches!(kind, OperationKind::Read { .. });
    rig.trace.iter().filter(|(other, kind)| *other == queue && is_read(kind)).count()
}

/// Has one queue after the other ask for more than there is, at devices that never answer; returns the blocks
/// that each gets.
fn shares<E: Core>(engine: E, functions: &[u16]) -> Vec<usize> {
    let mut rig = Rig::with(engine, options(3));
    // A queue that is gone takes its function along.
    let gone = queue(&mut rig, 77);
    let mut queues = Vec::new();
    for (at, function) in functions.iter().enumerate() {
        if at == functions.len() - 1 {
            rig.delete(gone);
            rig.settle();
        }
        queues.push(queue(&mut rig, *function));
    }
    let mut taken = Vec::new();
    for queue in &queues {
        for _ in 0..20 {
            let transfer = from_file(&mut rig, 8 * 4096, Device::Dead);
            rig.submit(*queue, &transfer);
        }
        rig.run_for(50_000_000);
        taken.push(reads(&rig, *queue));
    }
    queues.iter().for_each(|queue| rig.delete(*queue));
    rig.settle();
    assert!(rig.engine.is_idle());
    taken
}

#[test]
fn both_cores_share_blocks_alike() {
    let mut random = Random(11);
    let mut cases = vec![vec![0, 1], vec![0, 0, 0, 5], vec![9, 2, 4, 300], vec![5, 0, 5, 0]];
    cases.extend((0..12).map(|_| {
        let mut functions: Vec<u16> = (0..2 + random.index(8)).map(|_| random.index(6) as u16).collect();
        // Of one function alone a command's part of all blocks is its window in the Rust core.
        functions[1] = functions[0] + 1;
        functions
    }));
    for functions in cases {
        let most = *random.pick(&[1, 3, 256]);
        let weights: Vec<u16> = (0..6).map(|_| 1 + random.index(most) as u16).collect();
        let body = weighted(&weights);
        let config = dcs_engine::Core::config(&body).clone();
        let rust = shares(Engine::new(config).expect("its sizes are sound"), &functions);
        let rtl = shares(body, &functions);
        assert_eq!(rust, rtl, "{functions:?} by {weights:?}");
    }
}

/// The first function has all but one of the queues, and everything that it can take, and its devices hang.
#[test]
fn a_function_whose_devices_hang_leaves_another_its_part() {
    functions::devices_hang(&mut Rig::with(Body::default(), options(1)), 60, &chain(&[Crc32]));
}

/// However many commands one function has, a command of another gets every other turn of a unit.
#[test]
fn functions_take_turns_at_a_unit() {
    for seed in 0..4 {
        let mut rig = Rig::with(Body::default(), options(seed));
        let (others, own) = functions::turns(&mut rig, 24, 200_000, 2_000_000);
        println!("{others} blocks of 24 commands beside {own} of one");
        // A stream's blocks follow one another, so it cannot ask for each turn in time.
        assert!(others <= 3 * own, "{others} of 24 commands' blocks, {own} of one's");
    }
}

#[test]
fn functions_have_a_unit_s_time_by_their_weights() {
    for weights in [[1, 2, 4], [3, 1, 1], [2, 2, 2]] {
        functions::by_weights(&mut Rig::with(weighted(&weights), options(1)), &weights);
    }
}

#[test]
fn functions_have_tenants_and_request_ids_of_their_own() {
    functions::request_ids(&mut Rig::with(Body::default(), options(1)));
}
