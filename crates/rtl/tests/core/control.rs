//! Commands that are stopped wherever they are: by Abort and Cancel, by time, with their queue. Whatever is not stopped is right, and
//! everything comes back.

use crate::plan::{Fate, Plan};
use crate::rig::device::Device;
use crate::rig::host::{End, Transfer};
use crate::rig::{Options, Rig};
use dcs_abi::operator::Operator::Md5;
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
