//! Functions share slots, blocks and units first, then each one's queues share its part: as in the Rust core.

use crate::rig::device::Device;
use crate::rig::host::{End, Transfer};
use crate::rig::short::Core;
use crate::rig::{Options, Rig};
use dcs_abi::operator::Operator::Crc32;
use dcs_abi::status::Status;
use dcs_engine::{Engine, OperationKind, QueueConfig, QueueId};
use dcs_rtl::Body;
use dcs_testkit::Random;

fn options(seed: u64) -> Options {
    Options { seed, short: false, ..Options::default() }
}

fn queue<E: Core>(rig: &mut Rig<E>, function: u16) -> QueueId {
    rig.queue(QueueConfig { function, depth: 64, ..QueueConfig::default() })
}

/// A file of so many bytes to a device.
fn from_file<E: Core>(rig: &mut Rig<E>, length: usize, to: Device) -> Transfer {
    let source = End::file(rig.device(Device::file(vec![7; length])), &[(0, length as u64)]);
    let destination = match to {
        Device::File { .. } => End::file(rig.device(to), &[(0, length as u64)]),
        _ => End::stream(rig.device(to)),
    };
    Transfer::new(source, destination)
}

fn reads<E: Core>(rig: &Rig<E>, queue: QueueId) -> usize {
    let is_read = |kind: &OperationKind| matches!(kind, OperationKind::Read { .. });
    rig.trace.iter().filter(|(other, kind)| *other == queue && is_read(kind)).count()
}

/// Has one queue after the other ask for more than there is, at devices that never answer; returns the blocks
/// that each gets.
fn shares<E: Core>(engine: E, functions: &[u16]) -> (E, Vec<usize>) {
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
    (rig.engine, taken)
}

#[test]
fn both_cores_share_blocks_alike() {
    let (mut body, mut random) = (Body::new(), Random(11));
    let mut cases = vec![vec![0, 1], vec![0, 0, 0, 5], vec![9, 2, 4, 300], vec![5, 0, 5, 0]];
    cases.extend((0..12).map(|_| {
        let mut functions: Vec<u16> = (0..2 + random.index(3)).map(|_| random.index(3) as u16 * 40).collect();
        // Of one function alone a command's part of all blocks is its window in the Rust core.
        functions[1] = functions[0] + 1;
        functions
    }));
    for functions in cases {
        let config = dcs_engine::Core::config(&body).clone();
        let (_, rust) = shares(Engine::new(config).expect("its sizes are sound"), &functions);
        let (again, rtl) = shares(body, &functions);
        assert_eq!(rust, rtl, "{functions:?}");
        body = again;
    }
}

/// The first function has all but one of the queues, and everything that it can take, and its devices hang.
#[test]
fn a_function_whose_devices_hang_leaves_another_its_part() {
    let mut rig = Rig::with(Body::new(), options(1));
    let floods: [QueueId; 3] = core::array::from_fn(|_| queue(&mut rig, 0));
    for at in 0..60 {
        let transfer = from_file(&mut rig, 50_000, Device::Dead);
        rig.submit(floods[at % 3], &Transfer { timeout_ms: 2_000, ..transfer });
    }
    rig.run_for(100_000_000);
    // What the first holds beyond its part comes back when its commands end, and is not its again.
    let quiet = queue(&mut rig, 1);
    let good: Vec<usize> = (0..20)
        .map(|_| {
            let transfer = from_file(&mut rig, 20_000, Device::sink(4096));
            rig.submit(quiet, &transfer.chain(&[(Crc32, &[])]))
        })
        .collect();
    rig.run_for(4_000_000_000);
    assert!(
        good.iter().all(|ticket| rig.done_yet(*ticket).is_some() && rig.verify(*ticket) == Status::Success)
    );
    floods.iter().for_each(|queue| rig.delete(*queue));
    rig.settle();
}

/// However many commands one function has, a command of another gets every other turn of a unit.
#[test]
fn functions_take_turns_at_a_unit() {
    let mut body = Body::new();
    for seed in 0..4 {
        let mut rig = Rig::with(body, options(seed));
        let copy =
            |rig: &mut Rig<Body>| from_file(rig, 200_000, Device::file(Vec::new())).chain(&[(Crc32, &[])]);
        let floods: [QueueId; 3] = core::array::from_fn(|_| queue(&mut rig, 8));
        let quiet = queue(&mut rig, 4);
        for at in 0..24 {
            let transfer = copy(&mut rig);
            rig.submit(floods[at % 3], &transfer);
        }
        rig.run_for(2_000_000);
        let before = rig.trace.len();
        let one = copy(&mut rig);
        let one = rig.submit(quiet, &one);
        assert!(rig.run_until(one) && rig.verify(one) == Status::Success);
        let processed: Vec<QueueId> = rig.trace[before..]
            .iter()
            .filter(|(_, kind)| matches!(kind, OperationKind::Process { .. }))
            .map(|(queue, _)| *queue)
            .collect();
        let first = processed.iter().position(|queue| *queue == quiet).expect("it was processed");
        let mine = processed[first..].iter().filter(|queue| **queue == quiet).count();
        let others = processed.len() - first - mine;
        println!("{others} blocks of 24 commands beside {mine} of one");
        // A stream's blocks follow one another, so it cannot ask for each turn in time.
        assert!(others <= 3 * mine, "{others} of 24 commands' blocks, {mine} of one's");
        rig.settle();
        for queue in floods.into_iter().chain([quiet]) {
            rig.delete(queue);
            rig.settle();
        }
        body = rig.engine;
    }
}

#[test]
fn functions_have_tenants_and_request_ids_of_their_own() {
    let mut rig = Rig::with(Body::new(), options(1));
    let queues = [0, 1].map(|function| queue(&mut rig, function));
    let stalled = from_file(&mut rig, 10_000, Device::Dead);
    let stalled = rig.submit(queues[0], &Transfer { rid: 7, timeout_ms: 1000, ..stalled });
    rig.run_for(10_000_000);
    let good = from_file(&mut rig, 10_000, Device::sink(4096));
    let good = rig.submit(queues[1], &Transfer { rid: 7, ..good });
    rig.run_for(100_000_000);
    assert!(rig.done_yet(good).is_some() && rig.done_yet(stalled).is_none());
    assert_eq!(rig.verify(good), Status::Success);
    rig.settle();
}
