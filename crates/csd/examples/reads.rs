//! Reads of 4 KiB from a drive in memory, 32 at a time, straight into the guest's memory. Made to be counted by callgrind, whatever else the
//! machine does; what the guest does is not counted, nor is the kernel:
//!
//! ```text
//!   valgrind --tool=callgrind --toggle-collect='*reads::poll*' target/release/examples/reads 200      # 6,400 reads
//! ```

use std::fs::File;
use std::hint::black_box;
use std::time::Duration;

use dcs_csd::storage::FileStorage;
use dcs_csd::{Activity, Config, Drives};
use dcs_nvme::command::{Blocks, Command, CreateCompletionQueue, CreateSubmissionQueue, SIZE, admin, nvm};
use dcs_nvme::{Completion, DataPointer, Status, completion, register};

#[allow(dead_code, reason = "the tests use the rest of it")]
#[path = "../tests/suite/rig.rs"]
mod rig;

use rig::{BASE, Guest, Machine};

/// Commands at a time, and entries of the queue, which has room for two batches.
const DEPTH: u32 = 32;
const ENTRIES: u32 = 64;

/// The namespace's bytes, and those of a command.
const LENGTH: u64 = 4 << 20;
const BYTES: u64 = 4096;

/// Places in the guest's memory.
const SUBMISSIONS: u64 = BASE + 0x4_0000;
const COMPLETIONS: u64 = BASE + 0x5_0000;
const DATA: u64 = BASE + 0x10_0000;

/// The counted part: a process's work for its drives.
#[inline(never)]
fn poll(drives: &mut Drives<Guest, FileStorage>) -> Activity {
    black_box(drives.poll())
}

fn machine() -> Machine<FileStorage> {
    let file: File =
        rustix::fs::memfd_create("disk", rustix::fs::MemfdFlags::CLOEXEC).expect("memory").into();
    let mut storage = FileStorage::new(256).expect("io_uring");
    storage.add(vec![(file, 0)], LENGTH, 0, false).expect("a volume");
    // As the process has it: eight queue pairs, of which the guest has one.
    let mut machine = Machine::with_window(Config::new("reads"), storage, true, 256);
    machine.attach(1, dcs_csd::VolumeId(0), 512.max(BYTES));
    machine.enable();
    let (queue, entries, contiguous) = (1, ENTRIES, true);
    let words = CreateCompletionQueue { queue, entries, contiguous, interrupts: true, vector: 1 }.words();
    let create =
        |opcode, at, words| Command { opcode, data: DataPointer::Prp(at, 0), words, ..Command::default() };
    let done = machine.admin(create(admin::CREATE_COMPLETION_QUEUE, COMPLETIONS, words));
    assert_eq!(done.status, Status::SUCCESS);
    let words =
        CreateSubmissionQueue { queue, entries, contiguous, priority: 0, completion_queue: 1 }.words();
    let done = machine.admin(create(admin::CREATE_SUBMISSION_QUEUE, SUBMISSIONS, words));
    assert_eq!(done.status, Status::SUCCESS);
    machine
}

/// Counts the completions from this one on.
fn ends(machine: &Machine<FileStorage>, first: u32) -> u32 {
    let ended = |number: &u32| {
        let place = u64::from(number % ENTRIES) * completion::SIZE as u64;
        let end = Completion::from_bytes(&machine.guest.load(COMPLETIONS + place));
        assert_eq!(end.status, Status::SUCCESS);
        end.phase == (number / ENTRIES).is_multiple_of(2)
    };
    (first..first + DEPTH).take_while(ended).count() as u32
}

fn main() {
    let batches: u32 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100);
    let mut machine = machine();
    for batch in 0..batches {
        for at in 0..DEPTH {
            let number = batch * DEPTH + at;
            let first = u64::from(number * 7) % (LENGTH / BYTES);
            let command = Command {
                opcode: nvm::READ,
                cid: at as u16,
                namespace: 1,
                data: DataPointer::Prp(DATA + u64::from(at) * BYTES, 0),
                words: Blocks { first, count: 1, durable: false }.words(),
                ..Command::default()
            };
            let place = u64::from(number % ENTRIES) * SIZE as u64;
            machine.guest.store(SUBMISSIONS + place, &command.bytes());
        }
        machine.write32(register::tail_doorbell(1, 4), (batch + 1) * DEPTH % ENTRIES);
        let mut done = 0;
        while done < DEPTH {
            if poll(&mut machine.drives) == Activity::Idle {
                machine.drives.storage_mut().wait(Duration::from_secs(1));
            }
            done += ends(&machine, batch * DEPTH + done);
        }
        machine.write32(register::head_doorbell(1, 4), (batch + 1) * DEPTH % ENTRIES);
        machine.guest.interrupts.lock().expect("one thread").clear();
    }
}
