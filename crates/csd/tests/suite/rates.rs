//! Latencies of commands, limits of a drive's rate, interrupt coalescing, and work that is due by the clock
//! alone.

use std::sync::atomic::Ordering;
use std::time::Duration;

use dcs_csd::latency::{Histogram, Stage};
use dcs_csd::storage::ModelStorage;
use dcs_csd::{Activity, Limits};
use dcs_nvme::Status;
use dcs_nvme::command::{Command, Feature, admin as opcode, feature, nvm};

use crate::rig::Machine;
use crate::rules::{blocks, io, machine};

const MS: u64 = 1_000_000;

fn pass(machine: &Machine<ModelStorage>, nanoseconds: u64) {
    machine.guest.clock.fetch_add(nanoseconds, Ordering::Relaxed);
}

fn set(machine: &mut Machine<ModelStorage>, number: u8, value: u32) {
    let words = Feature { number, value, ..Feature::default() }.words();
    let done = machine.admin(Command { opcode: opcode::SET_FEATURES, words, ..Command::default() });
    assert_eq!(done.status, Status::SUCCESS);
}

/// Returns the number of commands of a stage, and the bucket of all of them.
fn stage(machine: &Machine<ModelStorage>, stage: Stage) -> (u64, usize) {
    let histogram = *machine.controller().latencies().of(stage);
    let bucket = histogram.counts().iter().rposition(|count| *count > 0).unwrap_or(0);
    (histogram.counts().iter().sum(), bucket)
}

#[test]
fn a_command_s_time_is_told_by_stage() {
    let mut machine = machine();
    machine.submit(1, blocks(nvm::READ, 0, 1));
    // The storage has it, and answers 5 ms later.
    machine.drives.poll();
    pass(&machine, 5 * MS);
    machine.work();
    assert!(machine.reap(1).is_some());
    for (of, count, bucket) in [
        (Stage::Fetch, 1, 0),
        (Stage::Storage, 1, 13),
        (Stage::Operators, 0, 0),
        (Stage::Completion, 1, 0),
        (Stage::Whole, 1, 13),
    ] {
        assert_eq!(stage(&machine, of), (count, bucket), "{}", of.name());
    }
    assert_eq!(Histogram::bound(13), 8_192_000);
    let (sum, whole) = {
        let controller = machine.controller();
        (controller.latencies().of(Stage::Storage).sum(), controller.latencies().of(Stage::Whole).sum())
    };
    assert_eq!((sum, whole), (5 * MS, 5 * MS));
    // Admin commands, and those that are refused at once, wait for nothing and are not counted.
    set(&mut machine, feature::ARBITRATION, 0);
    io(&mut machine, blocks(nvm::READ, 1 << 40, 1), Status::LBA_OUT_OF_RANGE);
    assert_eq!(stage(&machine, Stage::Whole).0, 1);
}

/// Reads of this many blocks, always more than a second's worth: how many ended within it.
fn for_a_second(machine: &mut Machine<ModelStorage>, count: u32) -> usize {
    let (mut done, mut begun) = (0, 0);
    for _ in 0..1000 {
        while begun - done < 6 {
            machine.submit(1, blocks(nvm::READ, 0, count));
            begun += 1;
        }
        machine.work();
        done += std::iter::from_fn(|| machine.reap(1)).count();
        pass(machine, MS);
    }
    done
}

#[test]
fn a_limit_of_commands_holds_the_next_ones_back_until_it_is_time() {
    let mut machine = machine();
    machine.controller().set_limits(Limits { commands: 100, bytes: 0 });
    pass(&machine, 1000 * MS);
    let done = for_a_second(&mut machine, 1);
    assert!((99..=103).contains(&done), "{done} in a second");
    // Admin commands go on, and the deadline shows when the next I/O command may begin.
    set(&mut machine, feature::ARBITRATION, 0);
    let rest = machine.drives.rest().expect("commands wait");
    assert!(rest <= Duration::from_millis(10), "{rest:?}");
    machine.controller().set_limits(Limits::default());
    machine.work();
    assert_eq!(machine.drives.rest(), None);
}

#[test]
fn a_limit_of_bytes_counts_what_is_read_and_written() {
    let mut machine = machine();
    machine.controller().set_limits(Limits { commands: 0, bytes: 409_600 });
    pass(&machine, 1000 * MS);
    let done = for_a_second(&mut machine, 8);
    assert!((99..=103).contains(&done), "{done} times 4 KiB in a second");
}

/// Interrupts of the I/O queue so far.
fn raised(machine: &Machine<ModelStorage>) -> usize {
    machine.guest.interrupts.lock().unwrap().iter().filter(|vector| **vector == 1).count()
}

#[test]
fn interrupts_are_coalesced_by_number_and_by_time() {
    let mut machine = machine();
    // Four completions, or 2 ms.
    set(&mut machine, feature::INTERRUPT_COALESCING, 20 << 8 | 3);
    for round in 0..2 {
        for command in 0..4 {
            assert_eq!(raised(&machine), round);
            io(&mut machine, blocks(nvm::READ, command, 1), Status::SUCCESS);
        }
        assert_eq!(raised(&machine), round + 1, "four are there");
    }
    io(&mut machine, blocks(nvm::READ, 0, 1), Status::SUCCESS);
    pass(&machine, MS);
    assert_eq!(machine.drives.rest(), Some(Duration::from_millis(1)));
    machine.work();
    assert_eq!(raised(&machine), 2);
    pass(&machine, MS);
    machine.work();
    assert_eq!((raised(&machine), machine.drives.rest()), (3, None), "the first has waited long enough");
    // Errors are told at once, and so is everything of a vector that is not coalesced.
    io(&mut machine, blocks(nvm::READ, 1 << 40, 1), Status::LBA_OUT_OF_RANGE);
    assert_eq!(raised(&machine), 4);
    set(&mut machine, feature::INTERRUPT_VECTOR, 1 << 16 | 1);
    io(&mut machine, blocks(nvm::READ, 0, 1), Status::SUCCESS);
    assert_eq!(raised(&machine), 5);
    set(&mut machine, feature::INTERRUPT_VECTOR, 1);
    io(&mut machine, blocks(nvm::READ, 0, 1), Status::SUCCESS);
    assert_eq!(raised(&machine), 5);
    // Switched off: what waits is told.
    set(&mut machine, feature::INTERRUPT_COALESCING, 0);
    assert_eq!(raised(&machine), 6);
    // A time of 0 is no delay, whatever the threshold.
    set(&mut machine, feature::INTERRUPT_COALESCING, 200);
    io(&mut machine, blocks(nvm::READ, 0, 1), Status::SUCCESS);
    assert_eq!(raised(&machine), 7);
}

#[test]
fn the_end_of_a_keep_alive_is_known_beforehand() {
    let mut machine = machine();
    assert_eq!(machine.drives.rest(), None);
    set(&mut machine, feature::KEEP_ALIVE, 5000);
    pass(&machine, 2000 * MS);
    let rest = machine.drives.rest().unwrap();
    assert_eq!(rest, Duration::from_secs(3) + Duration::from_nanos(1));
    pass(&machine, rest.as_nanos() as u64 - 1);
    machine.work();
    assert_eq!(machine.read32(dcs_nvme::register::CSTS), 0b01);
    // Only the clock advances.
    pass(&machine, 1);
    assert_eq!(machine.drives.rest(), Some(Duration::ZERO));
    assert_eq!(machine.drives.poll(), Activity::Idle);
    assert_eq!((machine.read32(dcs_nvme::register::CSTS), machine.drives.rest()), (0b11, None), "CSTS.CFS");
}
