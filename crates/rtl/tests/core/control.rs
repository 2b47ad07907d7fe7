//! Commands that are stopped wherever they are: by Abort and Cancel, by time, with their queue. Whatever is not stopped is right, and
//! everything comes back.

use crate::plan::{Fate, Plan};
use crate::rig::device::Device;
use crate::rig::fault::{Fault, KINDS, Kind, Where};
use crate::rig::host::{End, Transfer};
use crate::rig::{Options, Rig};
use dcs_abi::entry::FLAG_DURABLE;
use dcs_abi::operator::Operator::{Crc32c, Md5};
use dcs_abi::status::{Stage, Status};
use dcs_engine::{Core, Event, QueueConfig, QueueId};
use dcs_rtl::Body;
use dcs_testkit::Random;

fn rig(body: Body, options: Options) -> (Rig<Body>, [QueueId; 4]) {
    let mut rig = Rig::with(body, options);
    let queue = QueueConfig { depth: 32, ..QueueConfig::default() };
    let queues = core::array::from_fn(|_| rig.queue(queue));
    (rig, queues)
}

fn options(seed: u64) -> Options {
    Options { seed, short: false, ..Options::default() }
}

#[test]
fn what_is_stopped_leaves_nothing_behind() {
    let (mut body, mut stopped) = (Body::default(), [0; 3]);
    for seed in 0..60 {
        let mut random = Random(seed ^ 0xdead);
        let (mut rig, queues) = rig(body, Options { pieces: random.one_in(2), ..options(seed) });
        let mut plans: Vec<_> = (0..12).map(|_| Plan::random(&mut random)).collect();
        plans.retain(|plan| plan.fate == Fate::Good);
        let tickets: Vec<_> = plans.iter().map(|plan| plan.submit(&mut rig, &queues)).collect();
        for ticket in &tickets {
            rig.run_for(random.range(0, 300_000));
            let (queue, cid) = (rig.submitted[*ticket].queue, rig.submitted[*ticket].cid);
            match random.index(3) {
                0 => rig.tell(Event::Abort { queue, cid }),
                1 => _ = rig.cancel(queue, *ticket),
                _ => {}
            }
        }
        // The queue and whatever is in it.
        rig.delete(queues[0]);
        rig.settle();
        assert!(rig.is_deleted(queues[0]) && rig.engine.is_idle());
        for ticket in tickets.into_iter().filter(|ticket| rig.done_yet(*ticket).is_some()) {
            match rig.verify(ticket) {
                Status::Cancelled => stopped[0] += 1,
                Status::QueueDeleted => stopped[1] += 1,
                _ => stopped[2] += 1,
            }
        }
        queues[1..].iter().for_each(|queue| rig.delete(*queue));
        rig.settle();
        body = rig.engine;
    }
    println!("{stopped:?} cancelled, deleted, ended");
    assert!(stopped.iter().all(|count| *count > 10));
}

#[test]
fn a_device_that_hangs_is_given_up_by_time_and_with_its_queue() {
    let (mut rig, queues) = rig(Body::default(), options(7));
    for timeout_ms in [2, 0] {
        let source = End::stream(rig.device(Device::Dead));
        let destination = End::stream(rig.device(Device::sink(4096)));
        let transfer = Transfer { timeout_ms, ..Transfer::new(source, destination).chain(&[(Md5, &[])]) };
        let ticket = rig.submit(queues[0], &transfer);
        let start = rig.now;
        if timeout_ms > 0 {
            assert!(rig.run_until(ticket));
            assert!((1_000_000..4_000_000).contains(&(rig.now - start)), "{} ns", rig.now - start);
            assert_eq!(rig.end(ticket), (Status::Timeout, Stage::Source, 0));
        } else {
            rig.run_for(10_000_000);
            assert!(rig.done_yet(ticket).is_none() && !rig.engine.is_idle());
            rig.delete(queues[0]);
            rig.settle();
            assert_eq!(rig.end(ticket), (Status::QueueDeleted, Stage::Source, 0));
            assert!(rig.is_deleted(queues[0]));
        }
    }
    assert!(rig.engine.is_idle());
}

#[test]
fn a_queue_that_is_gone_can_be_made_again_and_completions_without_room_are_dropped() {
    let mut body = Body::default();
    for round in 0..3 {
        let mut rig = Rig::with(body, Options { consume: false, ..options(round) });
        let queue = rig.queue(QueueConfig { depth: 4, ..QueueConfig::default() });
        for _ in 0..5 {
            let source = End::file(rig.device(Device::file(vec![9; 5000])), &[(0, 5000)]);
            let destination = End::file(rig.device(Device::file(Vec::new())), &[(0, 5000)]);
            rig.submit(queue, &Transfer::new(source, destination));
            rig.run();
        }
        assert_eq!(rig.submitted.iter().filter(|command| command.done.is_some()).count(), 3);
        let before = rig.engine.counters().dropped;
        rig.delete(queue);
        rig.settle();
        assert!(rig.is_deleted(queue));
        assert_eq!(rig.engine.counters().dropped, before + 2);
        body = rig.engine;
    }
}

/// As in the Rust core: a command that has failed waits for its devices for so long, and no longer; its slot and its blocks are free when
/// they have answered.
#[test]
fn a_hung_device_is_given_up_after_the_grace() {
    let (mut body, mut now) = (Body::default(), 0);
    for (seed, (place, stage)) in [
        (Where::Source, (Stage::Source, 0)),
        (Where::Operator(0), (Stage::Operator, 0)),
        (Where::Operator(1), (Stage::Operator, 1)),
        (Where::Destination, (Stage::Destination, 0)),
        (Where::Flush, (Stage::Destination, 0)),
        (Where::Snapshot(1), (Stage::Source, 0)),
    ]
    .into_iter()
    .enumerate()
    {
        let (mut rig, queues) = rig(body, options(seed as u64));
        rig.now = now;
        rig.faults.push(Fault::new(queues[0], place, 0, Kind::Drop));
        let is_late = matches!(place, Where::Snapshot(_));
        if is_late {
            rig.faults.push(Fault::new(queues[0], Where::Source, 3, Kind::BadStatus));
        }
        let copy = |rig: &mut Rig<Body>| {
            let source = End::file(rig.device(Device::file(vec![seed as u8; 30_000])), &[(0, 30_000)]);
            let destination = End::file(rig.device(Device::file(Vec::new())), &[(0, 30_000)]);
            Transfer { flags: FLAG_DURABLE, ..Transfer::new(source, destination) }
                .chain(&[(Md5, &[]), (Crc32c, &[])])
        };
        let transfer = Transfer { timeout_ms: 100, ..copy(&mut rig) };
        let began = rig.now;
        let ticket = rig.submit(queues[0], &transfer);
        assert!(rig.run_until(ticket));
        let status = if is_late { Status::ReadError } else { Status::Timeout };
        assert_eq!(rig.end(ticket), (status, stage.0, stage.1));
        let took = rig.now - began - rig.engine.config().abort_grace;
        let expected = if is_late { 0..50_000_000 } else { 100_000_000..150_000_000 };
        assert!(expected.contains(&took), "{place:?}: the timeout, then the grace: {took}");
        assert_eq!(rig.operations_in_flight(), 1, "the device still has it");
        assert!(!rig.engine.is_idle(), "and so its slot stays taken");
        let next = copy(&mut rig);
        let next = rig.submit(queues[0], &next);
        assert!(rig.run_until(next));
        assert_eq!(rig.verify(next), Status::Success);
        rig.delete(queues[0]);
        assert!(rig.is_deleted(queues[0]) && rig.operations_in_flight() == 1, "a queue goes without them");
        rig.settle();
        queues[1..].iter().for_each(|queue| rig.delete(*queue));
        rig.settle();
        (body, now) = (rig.engine, rig.now);
    }
}

/// Whatever goes wrong at whichever place, whoever meets no fault is right, what fails tells what is so, and everything comes back.
#[test]
fn faults_leave_nothing_behind() {
    let (mut body, mut now, mut struck, mut ends) = (Body::default(), 0, 0, [0; 2]);
    for seed in 0..80 {
        let mut random = Random(seed ^ 0xfa17);
        let (mut rig, queues) = rig(body, Options { pieces: random.one_in(2), ..options(seed) });
        rig.now = now;
        let mut plans: Vec<_> = (0..8).map(|_| Plan::random(&mut random)).collect();
        plans.retain(|plan| plan.fate == Fate::Good);
        for _ in 0..3 {
            let places =
                [Where::Source, Where::Destination, Where::Flush, Where::Snapshot(0), Where::Operator(0)];
            let (place, kind) = (*random.pick(&places), *random.pick(&KINDS));
            // What a file becomes that changes under its command is another test's.
            if !matches!(kind, Kind::Truncate | Kind::Hole | Kind::Reset) {
                rig.faults.push(Fault::new(queues[random.index(2)], place, random.index(3) as u32, kind));
            }
        }
        let tickets: Vec<_> = plans.iter().map(|plan| plan.submit(&mut rig, &queues)).collect();
        rig.settle();
        for (ticket, plan) in tickets.into_iter().zip(&plans) {
            let status = rig.verify(ticket);
            assert!(status.is_success() || plan.queue < 2 || plan.may_fail(), "{plan:?}: {status:?}");
            ends[usize::from(!status.is_success())] += 1;
        }
        struck += rig.faults.iter().filter(|fault| fault.struck).count();
        queues.iter().for_each(|queue| rig.delete(*queue));
        rig.settle();
        (body, now) = (rig.engine, rig.now);
    }
    println!("{ends:?} good and failed, by {struck} faults");
    assert!(ends[0] > 100 && ends[1] > 20 && struck > 60);
}
