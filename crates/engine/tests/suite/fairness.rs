//! Who gets what where many want it; and how much work one event may be.

use crate::chains::{chain, small};
use crate::rig::device::Device;
use crate::rig::functions;
use crate::rig::host::{End, Transfer};
use crate::rig::{Options, Rig};
use dcs_abi::CHAIN_MAX;
use dcs_abi::operator::Operator::{self, *};
use dcs_abi::status::Status;
use dcs_engine::{Config, QueueConfig, QueueId};

fn copy(rig: &mut Rig, length: usize, operators: &[Operator]) -> Transfer {
    let bytes = rig.random.compressible(length);
    let (from, to) = (rig.device(Device::file(bytes)), rig.device(Device::sink(9000)));
    let transfer = Transfer::new(End::file(from, &[(0, length as u64)]), End::stream(to));
    Transfer { chain: chain(operators), ..transfer }
}

#[test]
fn a_tenant_with_hundreds_of_dead_sockets_stops_nobody() {
    let config = Config { commands: 64, queues: 2, blocks: 40, ..small() };
    let mut rig = Rig::new(config, Options::default());
    let queues: Vec<QueueId> = (0..2)
        .map(|tenant| rig.queue(QueueConfig { tenant, depth: 512, ..QueueConfig::default() }))
        .collect();
    let stalled: Vec<_> = (0..400)
        .map(|_| {
            let dead = End::stream(rig.device(Device::Dead));
            let transfer = Transfer { destination: dead, ..copy(&mut rig, 50_000, &[]) };
            rig.submit(queues[0], &transfer)
        })
        .collect();
    rig.run_for(100_000_000);
    let operators = [Crc32, Gzip, Gunzip];
    let good: Vec<_> = (0..20)
        .map(|_| {
            let transfer = copy(&mut rig, 20_000, &operators);
            rig.submit(queues[1], &transfer)
        })
        .collect();
    rig.run_for(1_000_000_000);
    assert!(good.iter().all(|ticket| rig.verify(*ticket) == Status::Success));
    assert!(stalled.iter().all(|ticket| rig.done_yet(*ticket).is_none()));
    rig.delete(queues[0]);
    rig.settle();
}

#[test]
fn many_tenants_that_wait_for_blocks_do_not_hide_one_that_need_not() {
    let config = Config { commands: 64, queues: 16, blocks: 64, ..small() };
    let mut rig = Rig::new(config, Options::default());
    let queues: Vec<QueueId> =
        (0..16).map(|tenant| rig.queue(QueueConfig { tenant, ..QueueConfig::default() })).collect();
    // Fifteen tenants with more dead commands than there are blocks for.
    for queue in &queues[..15] {
        for _ in 0..4 {
            let dead = End::stream(rig.device(Device::Dead));
            let transfer = Transfer { destination: dead, ..copy(&mut rig, 50_000, &[Gzip]) };
            rig.submit(*queue, &transfer);
        }
    }
    rig.run_for(100_000_000);
    let good = copy(&mut rig, 20_000, &[Gzip]);
    let good = rig.submit(queues[15], &good);
    rig.run_for(100_000_000);
    assert_eq!(rig.verify(good), Status::Success);
    queues[..15].iter().for_each(|queue| rig.delete(*queue));
    rig.settle();
}

#[test]
fn a_small_command_finishes_within_a_bounded_number_of_operations_of_large_ones() {
    for operators in [&[][..], &[Crc32], &[Crc32, Gzip, Crc32c]] {
        let mut rig = Rig::new(small(), Options::default());
        let queues: Vec<QueueId> =
            (0..2).map(|tenant| rig.queue(QueueConfig { tenant, ..QueueConfig::default() })).collect();
        let large: Vec<_> = (0..4)
            .map(|_| {
                let transfer = copy(&mut rig, 300_000, operators);
                rig.submit(queues[0], &transfer)
            })
            .collect();
        rig.run_for(5_000_000);
        for queue in [queues[0], queues[1]] {
            let before = rig.trace.len();
            let small = copy(&mut rig, 4096, operators);
            let small = rig.submit(queue, &small);
            assert!(rig.run_until(small));
            assert_eq!(rig.verify(small), Status::Success);
            // Its steps: fetches, binding, pieces of its read and write, and for each operator its turn and
            // its work. While each of them lasts, a window of each large command is under way.
            let others = rig.trace.len() - before;
            let bound = 4 * 3 * (16 + 8 * operators.len());
            assert!(others <= bound, "{others} operations went before it, {bound} may");
        }
        assert!(large.iter().all(|ticket| rig.done_yet(*ticket).is_none()), "the large ones are still at it");
        rig.settle();
    }
}

#[test]
fn two_equal_commands_share_a_unit_evenly() {
    let mut rig = Rig::new(small(), Options::default());
    let queue = rig.queue(QueueConfig::default());
    let tickets = [0, 1].map(|_| {
        let transfer = copy(&mut rig, 200_000, &[Crc32]);
        rig.submit(queue, &transfer)
    });
    rig.settle();
    let [first, second] = tickets.map(|ticket| {
        let result = rig.done(ticket).result.expect("asked for");
        result.finished - result.started
    });
    assert!(first.abs_diff(second) * 5 < first, "{first} and {second} differ by less than a fifth");
}

#[test]
fn one_event_leads_to_a_bounded_number_of_actions() {
    let window = 3;
    let config = Config { window, commands: 64, blocks: 60, ..small() };
    let mut rig = Rig::new(config, Options { pieces: true, ..Options::default() });
    let queue = rig.queue(QueueConfig { depth: 256, ..QueueConfig::default() });
    let chains: [&[Operator]; 4] =
        [&[], &[Crc32, Crc64Nvme], &[Gzip, Gunzip], &[Zstd, Crc32, Unzstd, Gzip, Gunzip]];
    for at in 0..120 {
        let transfer = copy(&mut rig, 1 + at * 300, chains[at % 4]);
        rig.submit(queue, &transfer);
    }
    rig.settle();
    // A command that ends gives back at most a window of blocks for each of its segments, and each of these
    // lets one other command go on; its own end is a few more.
    let bound = (CHAIN_MAX + 1) * usize::from(window) + 8;
    assert!(rig.most_actions <= bound, "{} actions, {bound} may be", rig.most_actions);
}

/// A function that came first, with all but one of the queues, and everything that it could take.
#[test]
fn a_function_whose_devices_hang_leaves_another_its_part() {
    let config = Config { commands: 64, queues: 6, blocks: 60, ..small() };
    let mut rig = Rig::new(config, Options::default());
    functions::devices_hang(&mut rig, 240, &chain(&[Crc32, Gzip, Gunzip]));
}

/// A chain that needs more blocks at once than its queue is guaranteed: another function takes each one that comes back, one at a time.
#[test]
fn a_long_chain_gets_its_blocks_while_another_function_floods() {
    let config = Config { commands: 64, queues: 8, blocks: 40, window: 8, ..small() };
    let mut rig = Rig::new(config, Options::default());
    let of = |function| QueueConfig { function, depth: 256, ..QueueConfig::default() };
    let quiet: Vec<QueueId> = (0..4).map(|_| rig.queue(of(1))).collect();
    let floods: Vec<QueueId> = (0..4).map(|_| rig.queue(of(0))).collect();
    let plain: Vec<_> = (0..400)
        .map(|at| {
            let transfer = copy(&mut rig, 40_000, &[]);
            rig.submit(floods[at % 4], &transfer)
        })
        .collect();
    rig.run_for(1_000_000);
    let long = copy(&mut rig, 20_000, &[Gzip, Gunzip, Zstd, Unzstd, Gzip, Gunzip]);
    let long = rig.submit(quiet[0], &long);
    assert!(rig.run_until(long));
    assert_eq!(rig.verify(long), Status::Success);
    let left = plain.iter().filter(|ticket| rig.done_yet(**ticket).is_none()).count();
    assert!(left > 200, "{left} plain copies are left");
    rig.settle();
}

/// However many commands one function has, a command of another gets every other turn of a unit.
#[test]
fn functions_take_turns_at_a_unit() {
    for seed in 0..3 {
        let config = Config { commands: 64, queues: 5, blocks: 120, window: 8, ..small() };
        let mut rig = Rig::new(config, Options { seed, short: false, ..Options::default() });
        let (others, own) = functions::turns(&mut rig, 240, 400_000, 100_000_000);
        // A stream's blocks follow one another, so it cannot ask for each turn in time.
        assert!(others <= 2 * own, "{others} of 40 commands' blocks, {own} of one's");
    }
}

/// Functions that all have more than enough to do have a unit's time in proportion to their weights.
#[test]
fn functions_have_a_unit_s_time_by_their_weights() {
    for seed in 0..6 {
        let mut random = dcs_testkit::Random(seed);
        let weights: Vec<u16> = (0..3).map(|_| 1 + random.below(4) as u16).collect();
        let config =
            Config { commands: 64, queues: 3, blocks: 120, window: 4, weights: weights.clone(), ..small() };
        let mut rig = Rig::new(config, Options { seed, short: false, ..Options::default() });
        functions::by_weights(&mut rig, &weights);
    }
}

#[test]
fn functions_have_tenants_and_request_ids_of_their_own() {
    functions::request_ids(&mut Rig::new(Config { queues: 4, ..small() }, Options::default()));
}
