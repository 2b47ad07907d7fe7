//! Scenarios of functions, which end alike with any core.

use super::Rig;
use super::device::Device;
use super::host::{Chain, End, Transfer};
use super::short::Core;
use dcs_abi::operator::Operator::Crc32;
use dcs_abi::status::Status;
use dcs_engine::{Nanos, OperationKind, QueueConfig, QueueId};

/// A queue of a function.
pub fn queue<E: Core>(rig: &mut Rig<E>, function: u16) -> QueueId {
    rig.queue(QueueConfig { function, depth: 256, ..QueueConfig::default() })
}

/// A file of so many bytes to a device.
pub fn from_file<E: Core>(rig: &mut Rig<E>, length: usize, to: Device) -> Transfer {
    let bytes = rig.random.compressible(length);
    let source = End::file(rig.device(Device::file(bytes)), &[(0, length as u64)]);
    let destination = match to {
        Device::File { .. } => End::file(rig.device(to), &[(0, length as u64)]),
        _ => End::stream(rig.device(to)),
    };
    Transfer::new(source, destination)
}

/// Function 0 comes first, with all but one of the core's queues, and floods them for some time: returns these, and a queue of
/// function 1.
fn flood<E: Core>(
    rig: &mut Rig<E>,
    commands: usize,
    time: Nanos,
    make: impl Fn(&mut Rig<E>) -> Transfer,
) -> (Vec<QueueId>, QueueId) {
    let floods: Vec<QueueId> = (1..rig.engine.config().queues).map(|_| queue(rig, 0)).collect();
    for at in 0..commands {
        let transfer = make(rig);
        rig.submit(floods[at % floods.len()], &transfer);
    }
    rig.run_for(time);
    (floods, queue(rig, 1))
}

/// A function whose devices hang, with everything that it could take, leaves another its part.
pub fn devices_hang<E: Core>(rig: &mut Rig<E>, commands: usize, chain: &Chain) {
    let (floods, quiet) = flood(rig, commands, 100_000_000, |rig| {
        let transfer = from_file(rig, 50_000, Device::Dead);
        Transfer { timeout_ms: 2_000, ..transfer }
    });
    let good: Vec<usize> = (0..20)
        .map(|_| {
            let transfer = from_file(rig, 20_000, Device::sink(9000));
            rig.submit(quiet, &Transfer { chain: chain.clone(), ..transfer })
        })
        .collect();
    // What the other one holds beyond its part comes back when its commands end, and is not its again.
    rig.run_for(5_000_000_000);
    assert!(good.iter().all(|ticket| rig.verify(*ticket) == Status::Success));
    floods.iter().for_each(|queue| rig.delete(*queue));
    rig.settle();
}

/// Has a function flood a unit, then another one copy a file; returns the blocks of others that the unit processed from the
/// other one's first block to the copy's end, and its own.
pub fn turns<E: Core>(rig: &mut Rig<E>, commands: usize, length: usize, time: Nanos) -> (usize, usize) {
    // Files let go of a block when it is written; sockets hold it for longer.
    let copy = |rig: &mut Rig<E>| from_file(rig, length, Device::file(Vec::new())).chain(&[(Crc32, &[])]);
    let (floods, quiet) = flood(rig, commands, time, copy);
    let before = rig.trace.len();
    let one = copy(rig);
    let one = rig.submit(quiet, &one);
    assert!(rig.run_until(one) && rig.verify(one) == Status::Success);
    let is_process = |kind: &OperationKind| matches!(kind, OperationKind::Process { .. });
    let processed = rig.trace[before..].iter().filter(|(_, kind)| is_process(kind)).map(|(queue, _)| *queue);
    let (own, others): (Vec<_>, Vec<_>) =
        processed.skip_while(|queue| *queue != quiet).partition(|queue| *queue == quiet);
    assert!(!own.is_empty());
    floods.iter().for_each(|queue| rig.delete(*queue));
    rig.settle();
    (others.len(), own.len())
}

/// Has each function ask a unit for more than it can do, and checks that each has its time in proportion to its weight.
pub fn by_weights<E: Core>(rig: &mut Rig<E>, weights: &[u16]) {
    let queues: Vec<QueueId> = (0..weights.len()).map(|function| queue(rig, function as u16)).collect();
    for at in 0..60 * queues.len() {
        let transfer = from_file(rig, 100_000, Device::file(Vec::new())).chain(&[(Crc32, &[])]);
        rig.submit(queues[at % queues.len()], &transfer);
    }
    let processed = |rig: &Rig<E>, queue: QueueId| {
        let is_one = |(of, kind): &&(QueueId, OperationKind)| {
            *of == queue && matches!(kind, OperationKind::Process { .. })
        };
        rig.trace.iter().filter(is_one).count()
    };
    // Until one has had about half of what it has.
    let all = 60 * 100_000usize.div_ceil(rig.engine.config().block_size as usize);
    while queues.iter().all(|queue| processed(rig, *queue) < all / 2) {
        rig.run_for(1_000_000);
    }
    let counts: Vec<usize> = queues.iter().map(|queue| processed(rig, *queue)).collect();
    let (total, sum) = (counts.iter().sum::<usize>(), weights.iter().sum::<u16>());
    for (count, weight) in counts.iter().zip(weights) {
        let due = total * usize::from(*weight) / usize::from(sum);
        assert!(count.abs_diff(due) <= due / 10, "{counts:?} by {weights:?}");
    }
    queues.iter().for_each(|queue| rig.delete(*queue));
    rig.settle();
}

/// Functions have tenants and request ids of their own: a command waits for no other function's with its number.
pub fn request_ids<E: Core>(rig: &mut Rig<E>) {
    let queues = [0, 1].map(|function| queue(rig, function));
    let stalled = from_file(rig, 10_000, Device::Dead);
    let stalled = rig.submit(queues[0], &Transfer { rid: 7, timeout_ms: 1000, ..stalled });
    rig.run_for(10_000_000);
    let good = from_file(rig, 10_000, Device::sink(9000));
    let good = rig.submit(queues[1], &Transfer { rid: 7, ..good });
    rig.run_for(100_000_000);
    assert_eq!(rig.verify(good), Status::Success);
    assert!(rig.done_yet(stalled).is_none());
    rig.settle();
}
