//! Random commands through both cores: the same of them are refused, with the same status; of what succeeds all is the same.

use crate::plan::{Fate, Plan};
use crate::rig::short::Core;
use crate::rig::{Options, Rig};
use dcs_abi::operator::Operator;
use dcs_abi::result::DigestSlot;
use dcs_abi::status::{Stage, Status};
use dcs_engine::{EndpointRole, Engine, Nanos, OperationKind, QueueConfig, QueueId};
use dcs_rtl::Body;
use dcs_testkit::Random;

/// The end of a command.
#[derive(Debug, PartialEq, Eq)]
struct End {
    told: (Status, Stage, u8),
    /// Of its failure, where it has a result.
    errno: u32,
    delivered: u64,
    /// Bytes in, and digests.
    result: Option<(u64, [DigestSlot; 8])>,
    /// The bytes at its destination.
    bytes: Vec<u8>,
}

/// The results of a scenario, of one core.
struct Ran {
    ends: Vec<End>,
    /// Operations of each queue, in an order of their own.
    operations: Vec<(u16, Vec<u64>)>,
    /// When all was over.
    now: Nanos,
}

/// A scenario: what the world is like, and its commands.
#[derive(Debug)]
struct Scenario {
    options: Options,
    /// Functions that share its four queues.
    functions: u16,
    depth: u16,
    /// All commands succeed, and devices move all that they are asked for: the operations are the same.
    exact: bool,
    plans: Vec<Plan>,
}

impl Scenario {
    fn random(seed: u64) -> Scenario {
        let mut random = Random(seed ^ 0x5ca1_ab1e);
        let exact = random.one_in(3);
        let mut plans: Vec<_> = (0..1 + random.index(14)).map(|_| Plan::random(&mut random)).collect();
        if exact {
            plans.retain(Plan::is_exact);
        }
        let latency = *random.pick(&[10, 1_000, 100_000]);
        let pieces = !exact && random.one_in(2);
        let options = Options { seed, latency, pieces, short: false, ..Options::default() };
        let (depth, functions) = (*random.pick(&[16, 32]), 1 + random.index(4) as u16);
        Scenario { options, functions, depth, exact, plans }
    }

    /// Half of the scenarios have about as many commands as there are slots, which ask for more blocks than there are.
    fn crowded(seed: u64) -> Scenario {
        let (mut scenario, mut random) = (Scenario::random(seed), Random(seed ^ 0xc0de));
        if random.one_in(2) {
            scenario.depth = 64;
            let count = random.index(40);
            scenario.plans.extend((0..count).map(|_| Plan::random(&mut random)));
            // Of so many that are spoiled one may write to another's device.
            scenario.plans.retain(|plan| plan.fate != Fate::Spoiled);
            if scenario.exact {
                scenario.plans.retain(Plan::is_exact);
            }
        }
        scenario
    }

    fn run<E: Core>(&self, engine: E, now: Nanos) -> (E, Ran) {
        let mut rig = Rig::with(engine, self.options.clone());
        rig.now = now;
        let queues: Vec<QueueId> = (0..4)
            .map(|at| {
                let (function, tenant, weight) = (at % self.functions, at % 2, 1 + at);
                rig.queue(QueueConfig { function, tenant, depth: self.depth, weight, number: None })
            })
            .collect();
        let mut tickets = Vec::new();
        for plan in &self.plans {
            tickets.push(plan.submit(&mut rig, &queues));
            rig.run_for(plan.pause);
        }
        rig.settle();
        let ends = tickets.iter().zip(&self.plans).map(|(ticket, plan)| end(&rig, *ticket, plan)).collect();
        let mut operations: Vec<_> = rig.trace.iter().map(|(queue, kind)| (queue.0, words(kind))).collect();
        operations.sort_unstable();
        let counters = rig.engine.counters();
        assert_eq!((counters.stale_events, counters.bad_doorbells), (0, 0));
        for queue in queues {
            rig.delete(queue);
            rig.settle();
            assert!(rig.is_deleted(queue));
        }
        (rig.engine, Ran { ends, operations, now: rig.now })
    }
}

fn end<E: Core>(rig: &Rig<E>, ticket: usize, plan: &Plan) -> End {
    if plan.fate != Fate::Spoiled {
        rig.verify(ticket);
    }
    let (told, done) = (rig.end(ticket), rig.done(ticket));
    let is_good = told.0 == Status::Success;
    if told.0 == Status::DigestMismatch {
        let (delivered, given) = (done.entry.delivered.value(), rig.submitted[ticket].input.len() as u64);
        assert!(delivered < given.max(1), "the end of the data is kept back");
    }
    let transfer = rig.submitted[ticket].transfer.as_ref().expect("a transfer");
    if let Some(area) = &done.result {
        let mut ours = rig.times.iter().filter(|(handle, _)| *handle == transfer.destination.handle);
        let times = ours.next().map_or_else(Default::default, |(_, times)| *times);
        assert_eq!(area.stages, times, "times of stages");
    }
    let device = rig.devices.get(transfer.destination.handle as usize).filter(|_| is_good);
    End {
        told,
        errno: done.result.as_ref().map_or(0, |area| area.errno),
        // How far one came that fails is a matter of time.
        delivered: if is_good { done.entry.delivered.value() } else { 0 },
        result: done.result.as_ref().filter(|_| is_good).map(|area| (area.bytes_in, area.digests)),
        bytes: device.map_or_else(Vec::new, |device| device.bytes().to_vec()),
    }
}

/// An operation, without what depends on time: its block and its unit.
fn words(kind: &OperationKind) -> Vec<u64> {
    match *kind {
        OperationKind::Read { role, offset, start, length, .. } => {
            vec![0, (role == EndpointRole::Prefix).into(), offset, start.into(), length.into()]
        }
        OperationKind::Write { offset, start, length, .. } => vec![1, offset, start.into(), length.into()],
        OperationKind::Process { operator, length, last, .. } => {
            vec![2, operator.into(), length.into(), last.into()]
        }
        OperationKind::Snapshot { operator } => vec![3, operator.into()],
        OperationKind::Flush => vec![4],
        other => panic!("{other:?} of a core without them"),
    }
}

/// Where an operator refuses the data, one after it may be the first to fail: it sees the first blocks before the other sees the last. So
/// may a destination that is full, or a source that ends too early, if an operator refuses the last block too: who is first, time tells.
fn agree(one: &End, other: &End, plan: &Plan) -> bool {
    let fails = [one, other].iter().all(|end| end.told.0 != Status::Success);
    let at_operators = [one, other].iter().all(|end| end.told.1 == Stage::Operator);
    let has_two_reasons = plan.fate != Fate::Good && plan.chain.contains(&Operator::Aes256Xts);
    let races = has_two_reasons && [one, other].iter().any(|end| end.told.1 == Stage::Operator);
    one == other || fails && (at_operators || races)
}

/// Names the scenario in which a check fails.
struct Seed<'a>(u64, &'a Scenario);

impl Drop for Seed<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the scenario of seed {}: {:?}", self.0, self.1);
        }
    }
}

/// Runs scenarios from this seed on until so many commands have been compared; tells how many, and how many operations.
fn compare(seed: u64, count: usize) -> (usize, usize, u64) {
    compare_with(seed, count, Scenario::crowded)
}

fn compare_with(seed: u64, count: usize, make: impl Fn(u64) -> Scenario) -> (usize, usize, u64) {
    let (mut commands, mut operations) = (0, 0);
    // One body for all: a queue that is gone leaves nothing behind.
    let (mut body, mut now) = (Body::default(), 0);
    for seed in seed.. {
        let scenario = make(seed);
        let _named = Seed(seed, &scenario);
        let config = dcs_engine::Core::config(&body).clone();
        let (_, rust) = scenario.run(Engine::new(config).expect("its sizes are sound"), now);
        let (again, rtl) = scenario.run(body, now);
        (body, now) = (again, rtl.now);
        for ((rust, rtl), plan) in rust.ends.iter().zip(&rtl.ends).zip(&scenario.plans) {
            assert!(
                agree(rust, rtl, plan),
                "seed {seed}: {plan:?}: Rust {:?}, RTL {:?}",
                rust.told,
                rtl.told
            );
        }
        // What was under way when a command failed is a matter of time.
        let all_good = rtl.ends.iter().all(|end| end.told.0 == Status::Success);
        if scenario.exact && all_good {
            assert_eq!(rust.operations, rtl.operations, "seed {seed}: {scenario:?}");
            operations += rtl.operations.len();
        }
        commands += scenario.plans.len();
        if commands >= count {
            break;
        }
    }
    (commands, operations, body.cycles())
}

#[test]
fn both_cores_say_the_same() {
    // A longer run: so many commands, from this seed on.
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<usize>().ok());
    let (seed, count) = (number("DCS_RTL_SEED").unwrap_or(1), number("DCS_RTL_COMMANDS").unwrap_or(2_000));
    let (commands, operations, cycles) = compare(seed as u64, count);
    println!("{commands} commands and {operations} operations as in the Rust core, in {cycles} cycles");
}

/// A device holds on to a block, a later one is written to the stream, and then the command fails: both count as delivered.
#[test]
fn what_follows_a_held_block_is_delivered() {
    compare_with(9_242, 1, |seed| Scenario { functions: 1, ..Scenario::random(seed) });
}
