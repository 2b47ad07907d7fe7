//! Request ids: who waits for whom.

use crate::chains::small;
use crate::rig::device::Device;
use crate::rig::host::{End, Transfer};
use crate::rig::{Options, Rig};
use dcs_abi::status::Status;
use dcs_engine::{Config, QueueConfig, QueueId};

fn rig(seed: u64) -> (Rig, Vec<QueueId>) {
    let config = Config { queues: 4, blocks: 64, ..small() };
    let mut rig = Rig::new(config, Options { seed, ..Options::default() });
    // Queues 0 and 1 are one tenant's, queue 2 is another's.
    let queues = [1, 1, 2].map(|tenant| rig.queue(QueueConfig { tenant, ..QueueConfig::default() }));
    (rig, queues.to_vec())
}

/// A large or a small file to a sink.
fn copy(rig: &mut Rig, length: usize, rid: u32) -> Transfer {
    let bytes = rig.random.compressible(length);
    let (from, to) = (rig.device(Device::file(bytes)), rig.device(Device::sink(4096)));
    Transfer { rid, ..Transfer::new(End::file(from, &[(0, length as u64)]), End::stream(to)) }
}

/// When a command's first and last operation were.
fn span(rig: &Rig, ticket: usize) -> (u64, u64) {
    let result = rig.done(ticket).result.expect("asked for");
    (result.started, result.finished)
}

#[test]
fn commands_of_one_tenant_with_one_rid_go_in_order_across_its_queues() {
    for seed in 0..20 {
        let (mut rig, queues) = rig(seed);
        let tickets: Vec<_> = (0..12)
            .map(|at| {
                let length = if at % 2 == 0 { 60_000 } else { 10 };
                let transfer = copy(&mut rig, length, 7);
                let ticket = rig.submit(queues[at % 2], &transfer);
                rig.run_for(250_000); // its entry is fetched before the next one is written
                ticket
            })
            .collect();
        rig.settle();
        for pair in tickets.windows(2) {
            assert!(span(&rig, pair[0]).1 <= span(&rig, pair[1]).0, "one ends before the next starts");
        }
        assert!(tickets.iter().all(|ticket| rig.verify(*ticket) == Status::Success));
    }
}

#[test]
fn other_tenants_other_rids_and_rid_zero_do_not_wait() {
    let (mut rig, queues) = rig(1);
    let stalled = {
        let (from, to) = (rig.device(Device::Dead), rig.device(Device::sink(10)));
        Transfer { rid: 7, timeout_ms: 1000, ..Transfer::new(End::stream(from), End::stream(to)) }
    };
    let stalled = rig.submit(queues[0], &stalled);
    rig.run_for(10_000_000);
    let waiting = copy(&mut rig, 100, 7);
    let waiting = rig.submit(queues[1], &waiting);
    let free: Vec<_> = [(2, 7), (0, 8), (0, 0), (1, 0)]
        .map(|(queue, rid)| {
            let transfer = copy(&mut rig, 100, rid);
            rig.submit(queues[queue], &transfer)
        })
        .into();
    rig.run_for(100_000_000);
    assert!(free.iter().all(|ticket| rig.verify(*ticket) == Status::Success));
    assert!(rig.submitted[waiting].done.is_none() && rig.submitted[stalled].done.is_none());
    rig.settle();
    assert_eq!(rig.end(stalled).0, Status::Timeout);
    assert_eq!(rig.verify(waiting), Status::Success, "a failed one too makes way");
}

#[test]
fn small_commands_overtake_a_large_one() {
    let (mut rig, queues) = rig(3);
    let large = copy(&mut rig, 500_000, 0);
    let large = rig.submit(queues[0], &large);
    let small: Vec<_> = (0..8)
        .map(|_| {
            let transfer = copy(&mut rig, 100, 0);
            rig.submit(queues[0], &transfer)
        })
        .collect();
    rig.settle();
    assert!(small.iter().all(|ticket| rig.done(*ticket).order < rig.done(large).order));
}

#[test]
fn who_gives_up_in_the_line_makes_way_and_jumps_no_queue() {
    let (mut rig, queues) = rig(4);
    let first = copy(&mut rig, 400_000, 9);
    let transfers: Vec<_> = (0..3).map(|_| copy(&mut rig, 5000, 9)).collect();
    let first = rig.submit(queues[0], &first);
    let line: Vec<_> = transfers.iter().map(|transfer| rig.submit(queues[0], transfer)).collect();
    rig.run_for(1_000_000);
    let cancel = rig.cancel(queues[0], line[1]);
    rig.settle();
    assert_eq!(rig.end(cancel).0, Status::Success);
    assert_eq!(rig.verify(line[1]), Status::Cancelled);
    let orders = [line[1], first, line[0], line[2]].map(|ticket| rig.done(ticket).order);
    assert!(orders.is_sorted(), "{orders:?}");
    assert!([first, line[0], line[2]].iter().all(|ticket| rig.verify(*ticket) == Status::Success));
}
