//! No memory is allocated for a read or a write that goes straight between the disk and the guest's memory, and for a
//! near-storage command no more than was set aside.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use dcs_abi::operator::Operator;
use dcs_csd::near::{Batch, FROM_GUEST, NO_DATA};
use dcs_csd::storage::{FileStorage, ModelStorage};
use dcs_csd::{Activity, Config, Storage, VolumeId, Workers};
use dcs_nvme::command::{Blocks, Command, nvm};
use dcs_nvme::{DataPointer, Status};

#[allow(dead_code, reason = "the other tests use the rest of it")]
#[path = "suite/rig.rs"]
mod rig;

use rig::{DATA, ENTRIES, LISTS, Machine};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that there are now, and that there were at most.
    static LIVE: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

fn change(bytes: i64) {
    LIVE.with(|live| {
        let (now, most) = live.get();
        live.set((now + bytes, most.max(now + bytes)));
    });
}

struct Counting;

// SAFETY: all is passed on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        change(layout.size() as i64);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        change(-(layout.size() as i64));
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
    // Lists grow to their largest size in some rounds, by how many commands happen to end at once. What is allocated for a command is
    // allocated in all of them.
    let mut rounds = |count| {
        let before = ALLOCATIONS.with(Cell::get);
        (0..count).for_each(|_| round(&mut machine, block));
        ALLOCATIONS.with(Cell::get) - before
    };
    rounds(20);
    let counts: Vec<u64> = (0..10).map(|_| rounds(50)).take_while(|count| *count > 0).collect();
    assert!(counts.len() < 10, "allocations in 50 rounds: {counts:?}");
}

/// A slot that does its work when it is asked whether it is done.
struct Slot(Option<Batch>);

impl Workers for Slot {
    fn count(&self) -> usize {
        1
    }

    fn run(&mut self, _: u16, batch: Batch) {
        self.0 = Some(batch);
    }

    fn done(&mut self) -> Option<(u16, Batch)> {
        let mut batch = self.0.take()?;
        batch.run(&mut || 0);
        Some((0, batch))
    }
}

/// An entry of a near-storage command whose buffer, where it has one, is at `DATA`.
fn near(opcode: u8, places: u32, words: [u32; 6]) -> [u8; 64] {
    let mut entry = [0; 64];
    (entry[0], entry[1], entry[4]) = (opcode, 1 << 6, 1);
    entry[8..12].copy_from_slice(&places.to_le_bytes());
    let length = if opcode == FROM_GUEST { words[1] } else { 0 };
    entry[24..40].copy_from_slice(&dcs_nvme::sgl::Descriptor::data(DATA, length).bytes());
    for (place, word) in entry[40..].chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    entry
}

/// A stream with as much as may come with it, whose output is more than its source and goes to logical blocks.
fn stream(machine: &mut Machine<ModelStorage>, packed: usize) -> u64 {
    let (ranges, first) = (1000u32, 32 << 10u32);
    let mut open = vec![2, 0, 0, 0];
    open[1..].copy_from_slice(&u32::to_le_bytes(first)[..3]);
    open.extend_from_slice(&ranges.to_le_bytes());
    for operator in [Operator::Slice, Operator::Gunzip] {
        let parameter = if operator == Operator::Slice { &[u64::from(first), 1 << 40][..] } else { &[] };
        open.extend_from_slice(&[operator as u8, 0, parameter.len() as u8 * 8, 0, 0, 0, 0, 0]);
        parameter.iter().for_each(|word| open.extend_from_slice(&word.to_le_bytes()));
    }
    // The packed bytes, in pieces.
    let each = packed.div_ceil(ranges as usize);
    for at in 0..ranges as usize {
        let from = (at * each).min(packed);
        let length = each.min(packed - from);
        [from, length].iter().for_each(|word| open.extend_from_slice(&(*word as u64).to_le_bytes()));
    }
    open.resize(open.len() + first as usize, 7);
    machine.guest.store(DATA, &open);
    let length = open.len() as u32;
    machine.submit_bytes(1, near(FROM_GUEST, 5 << 4, [length.div_ceil(4), length, 0, 0, 0, 0]));
    machine.work();
    let done = machine.reap(1).expect("a completion");
    assert_eq!(done.status, Status::SUCCESS);
    let mut most = 0;
    machine.submit_bytes(1, near(NO_DATA, 5 | 1 << 4 | done.result << 16, [8000, 0, 0, 0, 8000, 0]));
    let end = loop {
        machine.drives.poll();
        most = most.max(machine.controller().operator_memory());
        if let Some(end) = machine.reap(1) {
            break end;
        }
    };
    assert_eq!((end.status, end.result), (Status::SUCCESS, 8000 * 512));
    machine.submit_bytes(1, near(NO_DATA, 5 | done.result << 16, [0; 6]));
    machine.work();
    assert_eq!(machine.reap(1).expect("a completion").status, Status::SUCCESS);
    assert_eq!(machine.controller().operator_memory(), 0);
    most
}

#[test]
fn a_stream_takes_no_more_than_was_set_aside() {
    let mut machine =
        Machine::with_workers(Config::new("count"), rig::disk(8 << 20), Box::new(Slot(None))).up();
    // Noise of three bits a byte: packed it is less than half as much.
    let mut state = 1u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 61) as u8
    };
    let content: Vec<u8> = (0..5 << 20).map(|_| noise()).collect();
    let packed = dcs_ndp::sequential::run(&[(Operator::Gzip, vec![1])], &content).unwrap().output;
    assert!((150 << 10..4 << 20).contains(&packed.len()), "{}", packed.len());
    machine.drives.storage_mut().bytes_mut(VolumeId(0))[..packed.len()].copy_from_slice(&packed);
    // What is allocated once, is by then.
    stream(&mut machine, packed.len());
    machine.drives.storage_mut().bytes_mut(VolumeId(0))[..packed.len()].copy_from_slice(&packed);
    let (before, _) = LIVE.with(Cell::get);
    LIVE.with(|live| live.set((before, before)));
    let aside = stream(&mut machine, packed.len());
    let most = LIVE.with(Cell::get).1 - before;
    println!("{most} bytes of {aside}");
    assert!(most <= aside as i64 + (16 << 10), "{most} bytes of {aside} that were set aside");
    assert!(10 * most > aside as i64, "{most} bytes of {aside}: far too much");
}
