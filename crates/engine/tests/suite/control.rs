//! Cancel, timeout and queue deletion, in every phase of a command.

use crate::chains::{chain, small};
use crate::rig::device::Device;
use crate::rig::fault::{Fault, Kind, Where};
use crate::rig::host::{End, Transfer};
use crate::rig::{Options, Rig};
use dcs_abi::entry::{FLAG_DURABLE, SubmissionEntry};
use dcs_abi::operator::Operator::*;
use dcs_abi::status::{Stage, Status};
use dcs_engine::{Config, Event, QueueConfig, QueueId};

fn rig(options: Options) -> (Rig, [QueueId; 2]) {
    let mut rig = Rig::new(Config { blocks: 18, commands: 16, queues: 2, ..small() }, options);
    let queues = [1, 2].map(|tenant| rig.queue(QueueConfig { tenant, ..QueueConfig::default() }));
    (rig, queues)
}

/// A transfer with all stages: read, digest, compress, encrypt, write, flush.
fn long(rig: &mut Rig) -> Transfer {
    let bytes = rig.random.compressible(15_000);
    let (from, to) = (rig.device(Device::file(bytes)), rig.device(Device::file(Vec::new())));
    Transfer {
        chain: chain(&[Crc32, Gzip, Aes256Ctr]),
        flags: FLAG_DURABLE,
        ..Transfer::new(End::file(from, &[(0, 15_000)]), End::file(to, &[(0, 30_000)]))
    }
}

/// A transfer of one block, which the owner runs by itself.
fn short(rig: &mut Rig) -> Transfer {
    let bytes = rig.random.compressible(4000);
    let (from, to) = (rig.device(Device::file(bytes)), rig.device(Device::file(Vec::new())));
    let ends = Transfer::new(End::file(from, &[(0, 4000)]), End::file(to, &[(0, 4000)]));
    Transfer { chain: chain(&[Aes256Ctr]), ..ends }
}

/// A transfer that never gets a byte, and holds its block.
fn stalled(rig: &mut Rig) -> Transfer {
    let (from, to) = (rig.device(Device::Dead), rig.device(Device::sink(100)));
    Transfer::new(End::stream(from), End::stream(to))
}

/// An interference with a command in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    Cancel,
    Timeout,
    Delete,
}

/// Strikes a command after this many steps of its life, or, with a timeout, in a world so much slower; tells
/// whether it was alive, and the stage that its completion names.
fn strike(blow: Blow, after: usize, seed: u64, victim: fn(&mut Rig) -> Transfer) -> (bool, Option<Stage>) {
    let (mut rig, queues) = rig(Options { seed, ..Options::default() });
    let other = long(&mut rig);
    let other = rig.submit(queues[1], &other);
    let mut transfer = victim(&mut rig);
    if blow == Blow::Timeout {
        transfer.timeout_ms = 1;
        rig.options.latency = 1 + after as u64 * 10_000;
    }
    let ticket = rig.submit(queues[0], &transfer);
    if blow != Blow::Timeout {
        for _ in 0..after {
            rig.step();
        }
    }
    let alive = rig.done_yet(ticket).is_none();
    let cancel = (blow == Blow::Cancel).then(|| rig.cancel(queues[0], ticket));
    if blow == Blow::Delete {
        rig.delete(queues[0]);
    }
    rig.settle();
    let struck = match blow {
        Blow::Cancel => Status::Cancelled,
        Blow::Timeout => Status::Timeout,
        Blow::Delete => Status::QueueDeleted,
    };
    assert_eq!(rig.is_deleted(queues[0]), blow == Blow::Delete);
    assert_eq!(rig.verify(other), Status::Success, "the other tenant does not notice");
    if rig.done_yet(ticket).is_none() {
        assert_eq!((blow, after), (Blow::Delete, 0), "an entry that was not fetched goes with its queue");
        return (alive, None);
    }
    let status = rig.verify(ticket);
    assert!(
        status == struck
            || status == Status::Success && (!alive || cancel.is_some() || blow == Blow::Timeout)
    );
    if let Some(cancel) = cancel {
        let aborted = rig.done(cancel).entry.delivered.value();
        assert_eq!(aborted, if status == Status::Cancelled { 1 << 16 } else { 0 });
    }
    (alive, Some(rig.end(ticket).1))
}

/// Strikes at every step of a command's life; all stages must have been hit.
fn strike_everywhere(blow: Blow) {
    for seed in 0..3 {
        let strikes: Vec<_> =
            (0..).map(|after| strike(blow, after, seed, long)).take_while(|strike| strike.0).collect();
        for stage in [Stage::Queue, Stage::Source, Stage::Operator, Stage::Destination] {
            let hit = strikes.iter().any(|strike| strike.1 == Some(stage));
            assert!(hit, "{blow:?} never struck at {stage:?} in {} strikes", strikes.len());
        }
    }
    let of_short =
        |seed| (0..).map(move |after| strike(blow, after, seed, short)).take_while(|strike| strike.0);
    let strikes: Vec<_> = (0..40).flat_map(of_short).collect();
    assert!(strikes.iter().any(|strike| strike.1 == Some(Stage::Queue)), "{blow:?} before it was run");
}

#[test]
fn a_command_can_be_cancelled_at_every_moment() {
    strike_everywhere(Blow::Cancel);
}

#[test]
fn a_queue_can_be_deleted_at_every_moment() {
    strike_everywhere(Blow::Delete);
}

#[test]
fn a_command_can_time_out_at_every_moment() {
    let stages: Vec<_> = (1..100).map(|slow| strike(Blow::Timeout, slow, slow as u64, long).1).collect();
    for stage in [Stage::None, Stage::Queue, Stage::Source, Stage::Operator, Stage::Destination] {
        assert!(stages.contains(&Some(stage)), "never timed out at {stage:?}");
    }
    let ends: Vec<_> = (1..100).map(|slow| strike(Blow::Timeout, slow, slow as u64, short).1).collect();
    assert!(ends.contains(&Some(Stage::Queue)) && ends.contains(&Some(Stage::None)));
}

/// Commands that take every block of their tenant's share, and one more that waits for some.
fn full(rig: &mut Rig, queue: QueueId) -> (Vec<usize>, usize) {
    let holders: Vec<_> = (0..7).map(|_| stalled(rig)).collect();
    let mut holders: Vec<_> = holders.iter().map(|transfer| rig.submit(queue, transfer)).collect();
    let wide = Transfer { chain: chain(&[Gzip, Gunzip, Gzip]), ..stalled(rig) };
    holders.push(rig.submit(queue, &wide));
    rig.run_for(10_000_000);
    let waiting = Transfer { chain: chain(&[Gzip, Gunzip, Gzip]), ..long(rig) };
    let waiting = rig.submit(queue, &waiting);
    rig.run_for(10_000_000);
    (holders, waiting)
}

#[test]
fn who_waits_for_blocks_can_be_cancelled_or_time_out_or_go_with_its_queue() {
    for blow in [Blow::Cancel, Blow::Timeout, Blow::Delete] {
        let (mut rig, queues) = rig(Options::default());
        let (holders, waiting) = full(&mut rig, queues[0]);
        let bound = rig.engine.commands_in_flight();
        assert_eq!(bound, 9, "eight stalled, one that waits");
        assert!(rig.done_yet(waiting).is_none());
        match blow {
            Blow::Cancel => {
                rig.cancel(queues[0], waiting);
            }
            Blow::Delete => rig.delete(queues[0]),
            Blow::Timeout => {
                let transfer = Transfer { timeout_ms: 5, ..long(&mut rig) };
                let late = rig.submit(queues[0], &Transfer { chain: chain(&[Zstd, Gzip, Zstd]), ..transfer });
                rig.run_for(1_000_000_000);
                assert_eq!(rig.end(late), (Status::Timeout, Stage::Queue, 0));
                rig.cancel(queues[0], waiting);
            }
        }
        rig.run_for(10_000_000);
        if blow != Blow::Delete {
            assert_eq!(rig.end(waiting), (Status::Cancelled, Stage::Queue, 0));
            for ticket in holders {
                rig.cancel(queues[0], ticket);
            }
        }
        rig.settle();
    }
}

const MS: u64 = 1_000_000;

/// Commands that take every slot that their queue can have.
fn crowd(rig: &mut Rig, queue: QueueId) -> Vec<usize> {
    let holders: Vec<_> = (0..12).map(|_| stalled(rig)).collect();
    let holders = holders.iter().map(|transfer| rig.submit(queue, transfer)).collect();
    rig.run_for(MS);
    assert_eq!(rig.engine.commands_in_flight(), 12, "all but the other queue's guarantee");
    holders
}

#[test]
fn the_time_of_who_waits_for_a_slot_runs() {
    let (mut rig, queues) = rig(Options::default());
    let holders = crowd(&mut rig, queues[0]);
    let submitted = rig.now;
    let mut late = |timeout_ms| {
        let transfer = Transfer { timeout_ms, ..stalled(&mut rig) };
        rig.submit(queues[0], &transfer)
    };
    // The first gets a slot in the end, and has had most of its time by then; the others never get one.
    let [first, never, second, shortest] = [50, 0, 20, 5].map(&mut late);
    rig.run_for(30 * MS);
    rig.tell(Event::Abort { queue: queues[0], cid: rig.submitted[holders[0]].cid });
    rig.run_for(100 * MS);
    for (ticket, timeout, stage) in
        [(shortest, 5, Stage::Queue), (second, 20, Stage::Queue), (first, 50, Stage::Source)]
    {
        assert_eq!(rig.end(ticket), (Status::Timeout, stage, 0));
        let done = rig.done(ticket);
        let (took, result) = (done.at - submitted, done.result.expect("asked for"));
        assert!((timeout * MS..(timeout + 1) * MS).contains(&took), "{timeout} ms took {took} ns");
        assert!((submitted..submitted + MS).contains(&result.queued) && result.finished >= result.queued);
    }
    assert!(rig.done_yet(never).is_none(), "it got the first one's slot, and has no timeout");
    for ticket in holders[1..].iter().chain([&never]) {
        rig.tell(Event::Abort { queue: queues[0], cid: rig.submitted[*ticket].cid });
    }
    rig.settle();
}

#[test]
fn who_waits_for_a_slot_can_be_cancelled_or_go_with_its_queue() {
    for delete in [false, true] {
        let (mut rig, queues) = rig(Options::default());
        let holders = crowd(&mut rig, queues[0]);
        let waiting = [0; 3].map(|_| {
            let transfer = long(&mut rig);
            rig.submit(queues[0], &transfer)
        });
        rig.run_for(MS);
        rig.tell(Event::Abort { queue: queues[0], cid: rig.submitted[waiting[1]].cid });
        rig.run_for(MS);
        assert_eq!(rig.end(waiting[1]), (Status::Cancelled, Stage::Queue, 0));
        if delete {
            rig.delete(queues[0]);
            rig.settle();
            assert_eq!([0, 2].map(|at| rig.end(waiting[at]).0), [Status::QueueDeleted; 2]);
            continue;
        }
        for ticket in holders {
            rig.tell(Event::Abort { queue: queues[0], cid: rig.submitted[ticket].cid });
        }
        rig.settle();
        assert_eq!([0, 2].map(|at| rig.verify(waiting[at])), [Status::Success; 2]);
        let started = [0, 2].map(|at| rig.done(waiting[at]).result.expect("asked for").started);
        assert!(started[0] <= started[1], "they began in their order");
    }
}

#[test]
fn commands_of_one_queue_get_blocks_in_order() {
    let (mut rig, queues) = rig(Options::default());
    let (holders, wide) = full(&mut rig, queues[0]);
    let narrow = Transfer { chain: Vec::new(), ..long(&mut rig) };
    let narrow = rig.submit(queues[0], &narrow);
    rig.run_for(100_000_000);
    assert!(rig.done_yet(narrow).is_none(), "it needs less, and waits behind who came first");
    rig.cancel(queues[0], holders[7]);
    rig.run_for(100_000_000);
    assert!([wide, narrow].iter().all(|ticket| rig.verify(*ticket) == Status::Success));
    for ticket in &holders[..7] {
        rig.cancel(queues[0], *ticket);
    }
    rig.settle();
}

#[test]
fn a_command_times_out_while_it_waits_for_its_turn() {
    let (mut rig, queues) = rig(Options::default());
    let first = Transfer { rid: 3, ..stalled(&mut rig) };
    let second = Transfer { rid: 3, timeout_ms: 20, ..long(&mut rig) };
    let first = rig.submit(queues[0], &first);
    let second = rig.submit(queues[0], &second);
    rig.run_for(100_000_000);
    assert_eq!(rig.end(second), (Status::Timeout, Stage::Queue, 0));
    rig.cancel(queues[0], first);
    rig.settle();
}

#[test]
fn a_hung_device_is_given_up_after_the_grace() {
    for (place, stage) in [
        (Where::Source, (Stage::Source, 0)),
        (Where::Operator(0), (Stage::Operator, 0)),
        (Where::Operator(1), (Stage::Operator, 1)),
        (Where::Destination, (Stage::Destination, 0)),
        (Where::Flush, (Stage::Destination, 0)),
    ] {
        let (mut rig, queues) = rig(Options::default());
        rig.faults.push(Fault::new(queues[0], place, 0, Kind::Drop));
        let transfer = Transfer { timeout_ms: 100, ..long(&mut rig) };
        let ticket = rig.submit(queues[0], &transfer);
        assert!(rig.run_until(ticket));
        assert_eq!(rig.end(ticket), (Status::Timeout, stage.0, stage.1));
        let grace = rig.engine.config().abort_grace;
        let took = rig.now - grace;
        assert!((100_000_000..150_000_000).contains(&took), "the timeout, then the grace: {took}");
        assert_eq!(rig.operations_in_flight(), 1, "the device still has it");
        assert_eq!(rig.engine.commands_in_flight(), 1, "and so its slot stays taken");
        rig.settle();
    }
}

#[test]
fn devices_that_hang_for_ever_cost_their_tenant_its_slots_and_nobody_else_anything() {
    let options = Options { direct: true, ..Options::default() };
    let (mut rig, queues) = rig(options);
    let mut hung = Vec::new();
    for at in 0..40 {
        rig.faults.push(Fault::new(queues[0], Where::Direct, at, Kind::Drop));
        let transfer = Transfer { chain: Vec::new(), timeout_ms: 1, flags: 0, ..long(&mut rig) };
        let transfer = Transfer { destination: End::stream(rig.device(Device::sink(100))), ..transfer };
        hung.push(rig.submit(queues[0], &transfer));
    }
    rig.run_for(30_000_000_000);
    assert_eq!(rig.engine.commands_in_flight(), 16 - 4, "all that are not the other's guarantee");
    let other = long(&mut rig);
    let other = rig.submit(queues[1], &other);
    rig.run_for(1_000_000_000);
    assert_eq!(rig.verify(other), Status::Success);
    rig.settle();
    assert!(hung.iter().all(|ticket| rig.verify(*ticket) == Status::Timeout));
}

#[test]
fn cancel_finds_only_what_is_in_flight_in_its_own_queue() {
    let (mut rig, queues) = rig(Options::default());
    let target = stalled(&mut rig);
    let target = rig.submit(queues[0], &target);
    rig.run_for(10_000_000);
    let cid = rig.submitted[target].cid;
    let nobody = rig.submit_entry(queues[0], SubmissionEntry::cancel(0, queues[0].0, cid + 100));
    let foreign = rig.submit_entry(queues[1], SubmissionEntry::cancel(0, queues[0].0, cid));
    let itself = rig.submit_entry(queues[0], SubmissionEntry::cancel(0, queues[0].0, cid + 2));
    assert_eq!(rig.submitted[itself].cid, cid + 2);
    queues.iter().for_each(|queue| rig.ring_doorbell(*queue));
    rig.run_for(10_000_000);
    let refused = (Status::InvalidField, Stage::Frontend, 0);
    assert_eq!(rig.end(nobody), (Status::Success, Stage::None, 0));
    assert_eq!(rig.done(nobody).entry.delivered.value(), 0, "there was nothing to abort");
    assert_eq!((rig.end(foreign), rig.end(itself)), (refused, refused));
    assert!(rig.done_yet(target).is_none());
    rig.cancel(queues[0], target);
    rig.settle();
    assert_eq!(rig.end(target), (Status::Cancelled, Stage::Source, 0));
}
