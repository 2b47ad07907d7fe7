//! Operators of several drives: their shares of time and memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dcs_abi::operator::Operator;
use dcs_csd::near::{Batch, NO_DATA, TO_GUEST};
use dcs_csd::storage::ModelStorage;
use dcs_csd::{Config, VolumeId, Workers};
use dcs_nvme::command::{Blocks, Command, nvm};
use dcs_nvme::{DataPointer, Status};

use crate::near::{
    BLOCKS, Near, PARAMETERS, RESULTS, STREAM, entry, load, machine, module, open, opening, parameters, run,
    sending, take,
};
use crate::rig::{DATA, Machine, disk};

/// Between two turns of the plain commands of all guests, operators of any drive do a bounded piece of work.
#[test]
fn plain_reads_go_on_beside_a_neighbours_operators() {
    let mut near = machine();
    let loaded = load(&mut near, &[(Operator::Sha256, vec![]), (Operator::Md5, vec![])]).result;
    let mut plain = beside(&mut near, 1);
    let digest = Near::digest(loaded.into(), 2048);
    const COMMANDS: u64 = 5;
    for _ in 0..COMMANDS {
        near.submit_bytes(1, entry(digest));
    }
    let words = Blocks { first: 8, count: 8, durable: false }.words();
    let read = Command {
        opcode: nvm::READ,
        namespace: 1,
        data: DataPointer::Prp(DATA, 0),
        words,
        ..Command::default()
    };
    let (mut polls, mut reads, mut ended) = (0, 0, 0);
    while ended < COMMANDS {
        plain.submit(1, read);
        // It is begun in the first, and answered in the second.
        for _ in 0..2 {
            near.drives.poll();
            polls += 1;
        }
        assert_eq!(plain.reap(1).expect("the answer to a read").status, Status::SUCCESS);
        reads += 1;
        while let Some(done) = near.reap(1) {
            assert_eq!(done.status, Status::SUCCESS);
            ended += 1;
        }
    }
    assert!(polls >= COMMANDS * 16, "more than 64 KiB of operators at once: {polls} pieces, {reads} reads");
}

/// Makes another drive in the same process, with a namespace on the first one's volume.
pub fn beside(first: &mut Machine<ModelStorage>, weight: u32) -> Machine<ModelStorage> {
    let mut other = Machine::new(Config::new("beside"), ModelStorage::new(0), true);
    other.guest.clock = first.guest.clock.clone();
    other.guest.tick = first.guest.tick.clone();
    first.beside(other, VolumeId(0), weight)
}

/// Operators are made one at a time: a neighbour's plain command waits for one of them at most.
#[test]
fn plain_reads_go_on_while_operators_are_made() {
    let mut near = machine();
    let mut plain = beside(&mut near, 1);
    let slow = module("(i32.const 0)");
    let chain = vec![(Operator::Module, slow); 8];
    // The clock goes on by as much as a context may take at each look.
    near.guest.tick.store(100_000, std::sync::atomic::Ordering::Relaxed);
    let load = sending(&near, 0, PARAMETERS, &parameters(&chain, 0));
    near.submit_bytes(1, load);
    let words = Blocks { first: 8, count: 8, durable: false }.words();
    let data = DataPointer::Prp(DATA, 0);
    let read = Command { opcode: nvm::READ, namespace: 1, data, words, ..Command::default() };
    let mut reads = 0;
    let done = loop {
        plain.submit(1, read);
        (0..2).for_each(|_| _ = near.drives.poll());
        assert_eq!(plain.reap(1).expect("the answer to a read").status, Status::SUCCESS);
        reads += 1;
        if let Some(done) = near.reap(1) {
            break done;
        }
    };
    assert_eq!(done.status, Status::SUCCESS);
    assert!(reads >= 4, "8 operators in {reads} times two turns");
}

/// The time of operators is shared by the drives' weights.
#[test]
fn drives_have_shares_of_the_operators_time() {
    let mut first = machine();
    let mut second = beside(&mut first, 3);
    // The first one's chains are longer: a piece of its work takes more time.
    let mut commands = Vec::new();
    for (machine, operators) in [(0, 8), (1, 2)] {
        let one = if machine == 0 { &mut first } else { &mut second };
        let chain = vec![(Operator::Crc32c, vec![]); operators];
        let load = sending(one, 0, PARAMETERS, &parameters(&chain, 0));
        one.submit_bytes(1, load);
        first.work();
        let one = if machine == 0 { &mut first } else { &mut second };
        let handle = one.reap(1).expect("parameters").result.into();
        commands.push(entry(Near::digest(handle, 2048)));
    }
    first.guest.tick.store(10_000, std::sync::atomic::Ordering::Relaxed);
    for _ in 0..6 {
        first.submit_bytes(1, commands[0]);
        second.submit_bytes(1, commands[1]);
    }
    for _ in 0..12_000 {
        first.drives.poll();
        while first.reap(1).is_some() {
            first.submit_bytes(1, commands[0]);
        }
        while second.reap(1).is_some() {
            second.submit_bytes(1, commands[1]);
        }
    }
    let worked = |machine: &Machine<ModelStorage>| -> u64 {
        machine.controller().latencies().of(dcs_csd::latency::Stage::Operators).sum()
    };
    let (one, three) = (worked(&first), worked(&second));
    assert!(2 * one < three && three < 4 * one, "{one} ns for a weight of 1, {three} ns for one of 3");
}

/// Slots that do their work when they are polled, the last batch first. They fail while `fails` is set, like
/// a slot whose operator panics.
pub struct Slots(Vec<Option<Batch>>, Arc<AtomicBool>);

impl Workers for Slots {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn run(&mut self, slot: u16, batch: Batch) {
        assert!(self.0[usize::from(slot)].replace(batch).is_none(), "a slot works on one batch at a time");
    }

    fn done(&mut self) -> Option<(u16, Batch)> {
        let slot = self.0.iter().rposition(Option::is_some)?;
        let mut batch = self.0[slot].take()?;
        batch.run(&mut || 0);
        if self.1.load(Ordering::Relaxed) {
            batch.fail();
        }
        Some((slot as u16, batch))
    }
}

pub fn slots(count: usize) -> Box<Slots> {
    Box::new(Slots((0..count).map(|_| None).collect(), Arc::default()))
}

/// A storage, whose drive has slots.
fn with_slots(count: usize) -> Machine<ModelStorage> {
    with_workers(slots(count))
}

fn with_workers(workers: Box<Slots>) -> Machine<ModelStorage> {
    Machine::with_workers(Config::new("slots"), disk(1 << 20), workers).up()
}

/// Transfers of all kinds give in slots what they give without.
#[test]
fn slots_give_what_the_loop_gives() {
    let content: Vec<u8> = (0..1u32 << 20).map(|at| (at / 100 * 7) as u8).collect();
    for count in [1, 3] {
        let mut machine = with_slots(count);
        machine.drives.storage_mut().bytes_mut(VolumeId(0)).copy_from_slice(&content);
        let chain = vec![(Operator::Gzip, vec![]), (Operator::Gunzip, vec![]), (Operator::Sha256, vec![])];
        let handle = u64::from(load(&mut machine, &chain).result);
        // Into device memory, and into the guest's, several at once.
        let words = [256 << 10, 1024, 0, 0, 0, 0];
        let read = Near { opcode: 0xc2, namespace: 1, source: BLOCKS, handle, words, ..Near::default() };
        for _ in 0..4 {
            machine.submit_bytes(1, entry(read));
        }
        machine.work();
        for _ in 0..4 {
            let done = machine.reap(1).expect("a completion");
            assert_eq!((done.status, done.result), (Status::SUCCESS, 512 << 10));
        }
        assert!(machine.guest.bytes(DATA, 512 << 10) == content[..512 << 10]);
        // What there is no room for, and what no operator takes.
        let words = [1024, 1024, 0, 0, 0, 0];
        assert_eq!(run(&mut machine, Near { words, ..read }).status, Status::CAPACITY_EXCEEDED);
        let broken = vec![(Operator::Aes256Ctr, vec![1])];
        assert_eq!(load(&mut machine, &broken).status.kind(), 7);
        // A stream, in odd pieces.
        let stream = open(&mut machine, 1, &chain[..2], &[(1000, 300_000), (5, 77)]).result.into();
        let mut out = Vec::new();
        loop {
            let (status, bytes, ended) = take(&mut machine, stream, 50_000, 70_000);
            assert_eq!(status, Status::SUCCESS);
            out.extend_from_slice(&bytes);
            if ended {
                break;
            }
        }
        assert!(out == [&content[1000..301_000], &content[5..82]].concat());
        let states: Vec<_> = machine.drives.slots().collect();
        assert_eq!(states.len(), count);
        assert!(states.iter().all(|slot| !slot.is_busy));
        let held = [Operator::Gzip as u8, Operator::Gunzip as u8, 0, 0, 0, 0, 0, 0];
        assert!(
            states.iter().any(|slot| slot.chain == held && slot.loads > 0 && slot.batches > 0),
            "{states:?}"
        );
    }
}

/// A controller that is reset, or taken out, while a slot has its work waits for that.
#[test]
fn a_reset_waits_for_slots() {
    let mut machine = with_slots(1);
    let handle = u64::from(load(&mut machine, &[(Operator::Sha256, vec![])]).result);
    let digest = Near::digest(handle, 2048);
    (0..2).for_each(|_| _ = machine.submit_bytes(1, entry(digest)));
    while machine.controller().away() == 0 {
        machine.drives.poll();
    }
    machine.write32(dcs_nvme::register::CC, 0);
    assert_eq!(machine.read32(dcs_nvme::register::CSTS), 1, "slots have its work");
    machine.work();
    assert_eq!(machine.read32(dcs_nvme::register::CSTS), 0);
    assert_eq!(machine.controller().away(), 0);
    assert_eq!(machine.controller().operator_memory(), 0);
    machine.enable();
    machine.create(1);
    let handle = u64::from(load(&mut machine, &[(Operator::Sha256, vec![])]).result);
    machine.submit_bytes(1, entry(Near { handle, ..digest }));
    while machine.controller().away() == 0 {
        machine.drives.poll();
    }
    let drive = machine.drive;
    machine.drives.remove(drive);
    assert!(!machine.drives.is_removed(drive));
    machine.work();
    assert!(machine.drives.is_removed(drive));
}

/// Work that has no slot yet does not hold up a reset: it is not done at all.
#[test]
fn a_reset_does_not_wait_for_work_that_waits_for_a_slot() {
    let mut machine = with_slots(1);
    let handle = u64::from(load(&mut machine, &[(Operator::Sha256, vec![])]).result);
    let digest = Near::digest(handle, 2048);
    (0..6).for_each(|_| _ = machine.submit_bytes(1, entry(digest)));
    while machine.controller().away() < 2 {
        machine.drives.poll();
    }
    machine.write32(dcs_nvme::register::CC, 0);
    machine.drives.poll();
    assert_eq!((machine.read32(dcs_nvme::register::CSTS), machine.controller().away()), (0, 0));
    machine.enable();
    machine.create(1);
    let handle = load(&mut machine, &[(Operator::Sha256, vec![])]).result.into();
    assert_eq!(run(&mut machine, Near { handle, ..digest }).status, Status::SUCCESS);
}

/// A drive in the place of a removed one has a share like any other, whatever its predecessor had.
#[test]
fn a_place_s_next_drive_has_no_debt_in_the_slots() {
    let mut first = with_slots(1);
    let mut other = beside(&mut first, 1);
    let chain = [(Operator::Crc32c, vec![])];
    let digest = |handle: u64| Near::digest(handle, 2048);
    let handle = load(&mut first, &chain).result.into();
    // Each look at the clock takes 10 ms: the first drive has a slot for seconds.
    first.guest.tick.store(10_000_000, Ordering::Relaxed);
    for _ in 0..20 {
        assert_eq!(run(&mut first, digest(handle)).status, Status::SUCCESS);
    }
    first.guest.tick.store(1000, Ordering::Relaxed);
    let drive = first.drive;
    first.drives.remove(drive);
    first.work();
    assert!(first.drives.is_removed(drive));
    let mut next = beside(&mut first, 1);
    // Both have work all the time: for a while, each as much as the other.
    let mut done = [0; 2];
    for machine in [&mut next, &mut other] {
        let load = sending(machine, 0, PARAMETERS, &parameters(&chain, 0));
        machine.submit_bytes(1, load);
        first.drives.poll();
    }
    first.work();
    let handles =
        [&mut next, &mut other].map(|machine| u64::from(machine.reap(1).expect("parameters").result));
    for _ in 0..3 {
        next.submit_bytes(1, entry(digest(handles[0])));
        other.submit_bytes(1, entry(digest(handles[1])));
    }
    while done.iter().sum::<u32>() < 40 {
        first.drives.poll();
        for (at, machine) in [&mut next, &mut other].into_iter().enumerate() {
            while let Some(end) = machine.reap(1) {
                assert_eq!(end.status, Status::SUCCESS);
                done[at] += 1;
                machine.submit_bytes(1, entry(digest(handles[at])));
            }
        }
    }
    assert!(done[0].abs_diff(done[1]) <= 4, "{done:?}");
}

/// A chain that failed in a slot is not used any more, not even its digests.
#[test]
fn a_chain_that_fails_in_a_slot_is_gone() {
    let workers = slots(1);
    let fails = workers.1.clone();
    let mut machine = with_workers(workers);
    let chain = [(Operator::Sha256, vec![])];
    let stream = open(&mut machine, 1, &chain, &[(0, 1 << 20)]).result.into();
    assert!(take(&mut machine, stream, 4096, 0).0.is_success());
    fails.store(true, Ordering::Relaxed);
    assert_eq!(take(&mut machine, stream, 1 << 20, 0).0, Status::INTERNAL_ERROR);
    fails.store(false, Ordering::Relaxed);
    assert_eq!(take(&mut machine, stream, 4096, 0).0, Status::INTERNAL_ERROR);
    let words = [192, 0, 0, 0, 0, 0];
    let page = Near { opcode: TO_GUEST, source: RESULTS, handle: stream, words, ..Near::default() };
    assert!(run(&mut machine, page).status.is_success());
    let page: [u8; 8] = machine.guest.load(DATA);
    assert_eq!((u16::from_le_bytes([page[4], page[5]]), page[7]), (Status::INTERNAL_ERROR.0, 0));
    let other = open(&mut machine, 1, &chain, &[(0, 100)]).result.into();
    assert!(take(&mut machine, other, 4096, 0).0.is_success());
}

/// A drive with many commands hands over a few at a time; the rest waits with it, and all end.
#[test]
fn a_drive_hands_over_no_more_than_slots_soon_take() {
    let mut machine = with_slots(1);
    machine.create(2);
    let chains = [Operator::Sha256, Operator::Md5, Operator::Crc32c, Operator::Sha1];
    let handles = chains.map(|operator| u64::from(load(&mut machine, &[(operator, vec![])]).result));
    for (number, handle) in handles.into_iter().cycle().take(14).enumerate() {
        let digest = Near::digest(handle, 64);
        machine.submit_bytes(1 + number as u16 % 2, entry(digest));
    }
    let (mut most, mut ended) = (0, 0);
    while ended < 14 {
        assert_eq!(machine.drives.poll(), dcs_csd::Activity::Busy, "{ended} ended");
        most = most.max(machine.controller().away());
        for queue in [1, 2] {
            ended += std::iter::from_fn(|| machine.reap(queue)).count();
        }
    }
    assert_eq!(most, 2);
}

const MIB: u64 = 1 << 20;

/// A drive whose operators have so much memory.
fn with_memory(operator_memory: u64) -> Machine<ModelStorage> {
    Machine::new(Config { operator_memory, ..Config::new("small") }, disk(1 << 20), true).up()
}

#[test]
fn operators_take_no_more_memory_than_there_is() {
    let mut machine = with_memory(200 * MIB);
    let largest = (Operator::Zstd, vec![19]);
    let one = dcs_ndp::memory(largest.0, &largest.1);
    assert!(90 * MIB < one && one < 98 * MIB);
    // Three of them never fit; two do; of two commands with two each, one waits for the other.
    let refused = load(&mut machine, &vec![largest.clone(); 3]).status;
    assert_eq!(refused, Status(dcs_abi::status::Status::OutOfResources.code()));
    let handle = load(&mut machine, &vec![largest.clone(); 2]).result.into();
    let parameters = parameters(&vec![largest.clone(); 2], 0).len() as u64;
    assert_eq!(machine.controller().operator_memory(), parameters, "they are kept");
    let digest = entry(Near::digest(handle, 2048));
    let [first, _, third] = [(); 3].map(|()| machine.submit_bytes(1, digest));
    let mut most = 0;
    (0..3).for_each(|_| _ = machine.drives.poll());
    // One that waits can be aborted.
    let words = dcs_nvme::command::Abort { submission_queue: 1, cid: third }.words();
    let abort = Command { opcode: dcs_nvme::command::admin::ABORT, words, ..Command::default() };
    machine.submit(0, abort);
    let mut ended = Vec::new();
    while ended.len() < 3 {
        machine.drives.poll();
        most = most.max(machine.controller().operator_memory());
        ended.extend(std::iter::from_fn(|| machine.reap(1)).map(|done| (done.cid, done.status)));
    }
    assert_eq!(ended[0], (third, Status::ABORT_REQUESTED));
    assert!(ended[1] == (first, Status::SUCCESS) && ended[2].1 == Status::SUCCESS, "{ended:?}");
    assert!((2 * one..200 * MIB).contains(&most), "{most}");
    machine.work();
    assert_eq!(machine.controller().operator_memory(), parameters);
}

/// A stream that is opened waits for commands under way, as commands do.
#[test]
fn a_stream_waits_for_the_memory_of_commands() {
    let mut machine = with_memory(200 * MIB);
    let largest = vec![(Operator::Zstd, vec![19]); 2];
    let handle = load(&mut machine, &largest).result.into();
    let digest = Near::digest(handle, 2048);
    let open = sending(&machine, 1, STREAM, &opening(&largest, &[(0, 100)]));
    let cids = [entry(digest), open].map(|entry| machine.submit_bytes(1, entry));
    machine.work();
    let ends = [(); 2].map(|()| machine.reap(1).map(|done| (done.cid, done.status)));
    assert_eq!(ends, cids.map(|cid| Some((cid, Status::SUCCESS))));
}

#[test]
fn a_stream_s_memory_is_its_own_until_it_is_closed_or_abandoned() {
    let mut machine = with_memory(200 * MIB);
    let largest = vec![(Operator::Zstd, vec![19]); 2];
    let stream = u64::from(open(&mut machine, 1, &largest, &[(0, 100)]).result);
    // It may last for ever: commands that do not fit beside it do not wait.
    let refused = open(&mut machine, 1, &largest, &[(0, 100)]).status;
    assert_eq!(refused, Status::INTERRUPTED);
    assert_eq!(load(&mut machine, &largest).status, Status::INTERRUPTED);
    let small = u64::from(open(&mut machine, 1, &[(Operator::Md5, vec![])], &[(0, 100)]).result);
    assert!(take(&mut machine, stream, 4096, 0).0.is_success());
    // After ten seconds its owner may have been killed; but a command that needs no memory closes no stream.
    let pass = |machine: &Machine<ModelStorage>| {
        machine.guest.clock.fetch_add(10_000_000_000, std::sync::atomic::Ordering::Relaxed);
    };
    pass(&machine);
    assert!(take(&mut machine, small, 64, 0).0.is_success());
    let next = open(&mut machine, 1, &largest, &[(0, 100)]);
    assert_eq!(next.status, Status::SUCCESS);
    assert!(take(&mut machine, stream, 4096, 0).0.is(Status::INVALID_FIELD));
    assert!(take(&mut machine, small, 64, 0).0.is_success());
    let close = Near { opcode: NO_DATA, source: STREAM, handle: next.result.into(), ..Near::default() };
    assert_eq!(run(&mut machine, close).status, Status::SUCCESS);
    let left = machine.controller().operator_memory();
    assert!(0 < left && left < MIB, "{left}");
    machine.write32(dcs_nvme::register::CC, 0);
    machine.work();
    assert_eq!(machine.controller().operator_memory(), 0);
}
