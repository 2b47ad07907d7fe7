//! Policies of slots: the slot that serves each drive's chains, and chains that none serves.

use std::sync::atomic::Ordering;

use dcs_abi::operator::Operator;
use dcs_abi::status::Status as Reason;
use dcs_csd::near::TO_GUEST;
use dcs_csd::placement::{Binding, Placement, PlacementError, Policy};
use dcs_csd::storage::ModelStorage;
use dcs_csd::{Config, DriveId, Drives};
use dcs_nvme::Status;

use crate::near::{BLOCKS, Near, entry, load, open, run};
use crate::rig::Machine;
use crate::tenants::{beside, slots};

/// Drives of one process: the first one has the others' turns, too.
struct Process {
    first: Machine<ModelStorage>,
    others: Vec<Machine<ModelStorage>>,
}

impl Process {
    /// Drives with these loads, a weight of 1 each, and slots with these operators.
    fn new(policy: Policy, bound: &[&str], loads: &[u32]) -> Process {
        let bindings = bound.iter().map(|text| Binding::parse(text).unwrap()).collect();
        let mut storage = ModelStorage::new(0);
        let volume = storage.add(1 << 20, 512);
        let mut drives = Drives::new(storage, 64);
        let placement = Placement::new(policy, bindings).unwrap();
        drives.set_placed_workers(slots(bound.len()), placement).unwrap();
        let mut first = Machine::of(Config::new("placed"), drives, true);
        first.attach(1, volume, 512);
        first.enable();
        first.create(1);
        let others = loads[1..].iter().map(|_| beside(&mut first, 1)).collect();
        let mut process = Process { first, others };
        for (drive, load) in loads.iter().enumerate() {
            let id = process.id(drive);
            process.first.drives.set_load(id, *load);
        }
        process
    }

    fn id(&self, drive: usize) -> DriveId {
        if drive == 0 { self.first.drive } else { self.others[drive - 1].drive }
    }

    /// Acts on a drive, which has all of the process meanwhile.
    fn on<T>(&mut self, drive: usize, act: impl FnOnce(&mut Machine<ModelStorage>) -> T) -> T {
        let Some(other) = drive.checked_sub(1).map(|at| &mut self.others[at]) else {
            return act(&mut self.first);
        };
        self.first.swap(other);
        let result = act(other);
        self.first.swap(other);
        result
    }

    /// Loads a chain at a drive, and digests 1 MiB by it.
    fn digests(&mut self, drive: usize, chain: &[Operator]) {
        self.on(drive, |machine| {
            let handle = handle(machine, chain);
            assert_eq!(run(machine, Near::digest(handle, 2048)).status, Status::SUCCESS);
        });
    }

    /// The drives that each slot has served.
    fn served(&self) -> Vec<Vec<usize>> {
        let number = |id: DriveId| (0..=self.others.len()).find(|drive| self.id(*drive) == id).unwrap();
        let drives = self.first.drives.slots().map(|slot| {
            let begun: u64 = slot.drives.iter().map(|(_, batches)| batches).sum();
            assert_eq!(begun, slot.batches + u64::from(slot.is_busy));
            slot.drives.iter().map(|(drive, _)| number(*drive)).collect()
        });
        drives.collect()
    }
}

fn handle(machine: &mut Machine<ModelStorage>, chain: &[Operator]) -> u64 {
    let chain: Vec<_> = chain.iter().map(|operator| (*operator, vec![])).collect();
    let loaded = load(machine, &chain);
    assert_eq!(loaded.status, Status::SUCCESS);
    loaded.result.into()
}

const UNKNOWN: Reason = Reason::UnknownOperator;

#[test]
fn with_static_policies_each_drive_has_its_slot() {
    for (policy, first, second) in
        [(Policy::StaticWorst, [0, 2], [1, 3]), (Policy::StaticBest, [0, 1], [2, 3])]
    {
        let mut process = Process::new(policy, &["md5", "sha256", "md5"], &[4, 1, 4, 1]);
        for _ in 0..2 {
            (0..4).rev().for_each(|drive| process.digests(drive, &[Operator::Md5]));
        }
        assert_eq!(process.served(), [&first[..], &[], &second[..]], "{policy:?}");
        // They have one of each kind.
        process.digests(3, &[Operator::Sha256]);
        assert_eq!(process.served()[1], [3]);
        let states: Vec<_> = process.first.drives.slots().collect();
        let owners = |slot: usize| states[slot].owners.iter().map(|id| *id == process.id(3));
        let is_owner: Vec<bool> = (0..3).map(|slot| owners(slot).any(|is| is)).collect();
        assert_eq!(is_owner, [false, true, true], "{policy:?}");
        assert!(states.iter().all(|slot| slot.policy == policy && slot.loads == 0));
    }
}

/// Slots are given anew when drives come, go, or have another load.
#[test]
fn the_drives_that_are_there_share_the_slots() {
    let mut process = Process::new(Policy::StaticBest, &["any", "any"], &[1, 1]);
    let owners = |process: &Process| -> Vec<Vec<DriveId>> {
        process.first.drives.slots().map(|slot| slot.owners).collect()
    };
    let [one, other] = [process.id(0), process.id(1)];
    assert_eq!(owners(&process), [[one], [other]]);
    process.digests(1, &[Operator::Md5]);
    assert_eq!(process.served(), [vec![], vec![1]]);
    process.first.drives.set_load(other, 9);
    assert_eq!(owners(&process), [[other], [one]]);
    process.digests(1, &[Operator::Md5]);
    assert_eq!(process.served(), [[1], [1]]);
    process.first.drives.remove(other);
    process.first.work();
    assert_eq!(owners(&process), [vec![one], vec![]]);
    // A removed drive is not reported.
    let states: Vec<_> = process.first.drives.slots().collect();
    assert!(states.iter().all(|slot| slot.drives.is_empty() && slot.batches > 0), "{states:?}");
}

#[test]
fn with_a_dynamic_policy_any_slot_that_is_bound_serves() {
    let mut process = Process::new(Policy::Dynamic, &["sha256", "md5", "md5"], &[1, 1]);
    let handle = process.on(1, |machine| handle(machine, &[Operator::Md5]));
    // One after the other: always the first one that is free.
    process.on(1, |machine| assert_eq!(run(machine, Near::digest(handle, 2048)).status, Status::SUCCESS));
    assert_eq!(process.served(), [vec![], vec![1], vec![]]);
    // Two at once: both slots, and no other.
    process.on(1, |machine| {
        (0..2).for_each(|_| _ = machine.submit_bytes(1, entry(Near::digest(handle, 2048))));
        machine.work();
        (0..2).for_each(|_| assert_eq!(machine.reap(1).map(|done| done.status), Some(Status::SUCCESS)));
    });
    assert_eq!(process.served(), [vec![], vec![1], vec![1]]);
    process.digests(0, &[Operator::Sha256]);
    assert_eq!(process.served(), [vec![0], vec![1], vec![1]]);
}

/// With reconfiguration a slot gets what is needed, and says how often.
#[test]
fn with_reconfiguration_one_slot_serves_all_chains() {
    let mut process = Process::new(Policy::Reconfiguration, &["any"], &[1, 1]);
    process.digests(0, &[Operator::Md5]);
    process.digests(1, &[Operator::Sha256, Operator::Md5]);
    let state = process.first.drives.slots().next().unwrap();
    assert_eq!((process.served(), state.loads), (vec![vec![0, 1]], 2));
    assert_eq!(state.operators().collect::<Vec<_>>(), ["sha256", "md5"]);
}

#[test]
fn a_chain_that_no_slot_has_is_refused() {
    for policy in [Policy::StaticWorst, Policy::StaticBest, Policy::Dynamic] {
        let mut process = Process::new(policy, &["md5,sha1", "sha256"], &[1]);
        let machine = &mut process.first;
        for chain in [&[Operator::Gzip][..], &[Operator::Md5, Operator::Sha256]] {
            let chain: Vec<_> = chain.iter().map(|operator| (*operator, vec![])).collect();
            assert_eq!(load(machine, &chain).status, Status(UNKNOWN.code()), "{policy:?} {chain:?}");
            assert_eq!(open(machine, 1, &chain, &[(0, 100)]).status, Status(UNKNOWN.code()));
        }
        assert_eq!(machine.controller().operator_memory(), 0);
        assert_eq!(machine.controller().away(), 0);
        // Others go on, and so does a copy without operators.
        let handle = handle(machine, &[Operator::Sha1, Operator::Md5]);
        assert_eq!(run(machine, Near::digest(handle, 2048)).status, Status::SUCCESS);
        let words = [1024, 8, 0, 0, 0, 0];
        let copy = Near { opcode: TO_GUEST, namespace: 1, source: BLOCKS, words, ..Near::default() };
        assert_eq!(run(machine, copy).status, Status::SUCCESS);
        assert_eq!(process.served(), [vec![0], vec![]]);
    }
}

#[test]
fn a_placement_is_for_the_slots_that_there_are() {
    let mut drives: Drives<crate::rig::Guest, _> = Drives::new(ModelStorage::new(0), 64);
    let placement = Placement::new(Policy::Dynamic, vec![Binding::Any; 3]).unwrap();
    let refused = drives.set_placed_workers(slots(2), placement);
    assert_eq!(refused, Err(PlacementError::Count { slots: 2, bound: 3 }));
}

/// Time that a drive has in its own slot does not count among the drives of another slot.
#[test]
fn a_drive_that_comes_to_a_shared_slot_has_its_share_at_once() {
    let mut process = Process::new(Policy::StaticBest, &["any", "any"], &[10, 1, 1, 1]);
    let handles = [0, 1, 2, 3].map(|drive| process.on(drive, |machine| handle(machine, &[Operator::Crc32c])));
    process.first.guest.tick.store(1_000_000, Ordering::Relaxed);
    // Each has two commands, so that it always has work; the last drive comes later.
    let mut done = [0u32; 4];
    let mut begun = 0;
    while done[3] < 10 {
        let coming = if done[0] < 40 { 3 } else { 4 };
        for (drive, handle) in handles.iter().enumerate().take(coming).skip(begun) {
            let machine = if drive == 0 { &mut process.first } else { &mut process.others[drive - 1] };
            (0..2).for_each(|_| _ = machine.submit_bytes(1, entry(Near::digest(*handle, 2048))));
            done = if drive == 3 { [0; 4] } else { done };
        }
        begun = begun.max(coming);
        process.first.drives.poll();
        for (drive, handle) in handles.iter().enumerate().take(begun) {
            let machine = if drive == 0 { &mut process.first } else { &mut process.others[drive - 1] };
            while let Some(end) = machine.reap(1) {
                assert_eq!(end.status, Status::SUCCESS);
                done[drive] += 1;
                machine.submit_bytes(1, entry(Near::digest(*handle, 2048)));
            }
            assert!(done[1..].iter().all(|count| *count < 100), "{done:?}");
        }
    }
    let [_, one, other, last] = done;
    assert!(last.abs_diff(one) <= 3 && last.abs_diff(other) <= 3, "{done:?}");
    assert_eq!(process.served(), [vec![0], vec![1, 2, 3]]);
}
