//! No memory is allocated for a read or a write that goes straight between the disk and the guest's memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use dcs_csd::storage::FileStorage;
use dcs_csd::{Activity, Config, Storage};
use dcs_nvme::command::{Blocks, Command, nvm};
use dcs_nvme::{DataPointer, Status};

#[allow(dead_code, reason = "the other tests use the rest of it")]
#[path = "suite/rig.rs"]
mod rig;

use rig::{DATA, ENTRIES, LISTS, Machine};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: all is passed on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A queue full of commands, and their ends.
fn round(machine: &mut Machine<FileStorage>, block: u64) {
    for at in 1..ENTRIES {
        let count = (20_480 / block) as u32;
        let words = Blocks { first: u64::from(at) * 64, count, durable: at == 3 }.words();
        let opcode = if at % 2 == 0 { nvm::READ } else { nvm::WRITE };
        let data = DataPointer::Prp(DATA + u64::from(at) * 0x8000, LISTS);
        machine.submit(1, Command { opcode, namespace: 1, data, words, ..Command::default() });
    }
    let mut done = 0;
    while done < ENTRIES - 1 {
        if machine.drives.poll() == Activity::Idle {
            machine.drives.storage_mut().wait(Duration::from_secs(1));
        }
        while let Some(end) = machine.reap(1) {
            assert_eq!(end.status, Status::SUCCESS);
            done += 1;
        }
    }
    machine.guest.interrupts.lock().unwrap().clear();
}

#[test]
fn plain_commands_allocate_nothing() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("disk");
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(path).unwrap();
    let mut storage = FileStorage::new(64).unwrap();
    let volume = storage.add(vec![(file, 0)], 8 << 20, 0, false).unwrap();
    let block = storage.volume(volume).unwrap().alignment.max(512);
    let mut machine = Machine::new(Config::new("count"), storage, true);
    machine.attach(1, volume, block);
    machine.enable();
    machine.create(1);
    // Four pages that do not follow each other, so that a request has several pieces.
    let list: Vec<u8> = (0..4u64).flat_map(|page| (DATA + 0x10_0000 + page * 0x2000).to_le_bytes()).collect();
    machine.guest.store(LISTS, &list);
    // What is allocated once, is by then.
    for _ in 0..20 {
        round(&mut machine, block);
    }
    let before = ALLOCATIONS.with(Cell::get);
    for _ in 0..50 {
        round(&mut machine, block);
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
}
