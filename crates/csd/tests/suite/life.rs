//! A controller's life: enabled, reset, shut down, its queues made and deleted, full, or short of buffers.

use dcs_csd::Config;
use dcs_csd::storage::ModelStorage;
use dcs_nvme::command::{Abort, Command, CreateSubmissionQueue, admin, nvm};
use dcs_nvme::register::{self, Configuration, ShutdownRequest};
use dcs_nvme::{AdminQueueSizes, Status};

use crate::rig::{
    ADMIN_SUBMISSIONS, BASE, COMPLETIONS, DATA, ENTRIES, LENGTH, Machine, SHADOW, SUBMISSIONS, disk,
};
use crate::rules::{BLOCKS, admin, blocks, io, machine, prp};

#[test]
fn a_controller_that_cannot_be_enabled_says_so() {
    let wrong: [fn(&mut Machine<ModelStorage>); 5] = [
        |machine| machine.write32(register::AQA, 0),
        |machine| machine.write32(register::ASQ, 0x10),
        |machine| machine.write32(register::ACQ, 0x800),
        |machine| machine.write32(register::CC, 6 << 4),
        |machine| machine.write32(register::CC, 1 << 11),
    ];
    for change in wrong {
        let mut machine = Machine::new(Config::new("wrong"), ModelStorage::new(0), true);
        let sizes = AdminQueueSizes { submissions: 8, completions: 8 };
        machine.write32(register::AQA, sizes.bits());
        machine.controller().register_write(register::ASQ, &ADMIN_SUBMISSIONS.to_le_bytes());
        change(&mut machine);
        let cc = machine.read32(register::CC);
        machine.write32(register::CC, cc | 1);
        machine.work();
        assert_eq!(machine.read32(register::CSTS), 2, "CFS");
        machine.write32(register::CC, 0);
        assert_eq!(machine.read32(register::CSTS), 0);
    }
}

#[test]
fn queues_outside_of_memory_are_fatal() {
    let mut machine = machine();
    let words = CreateSubmissionQueue {
        queue: 2,
        entries: ENTRIES,
        contiguous: true,
        priority: 0,
        completion_queue: 1,
    };
    let nowhere = prp(BASE + LENGTH, 0);
    let (opcode, words) = (admin::CREATE_SUBMISSION_QUEUE, words.words());
    admin(&mut machine, Command { opcode, data: nowhere, words, ..Command::default() }, Status::SUCCESS);
    machine.write32(register::tail_doorbell(2, 4), 1);
    machine.work();
    assert_eq!(machine.read32(register::CSTS), 3, "CFS");
    machine.write32(register::CC, 0);
    machine.enable();
}

#[test]
fn a_reset_waits_for_the_storage() {
    let mut machine = machine();
    machine.submit(1, blocks(nvm::READ, 0, 1));
    // Begun, and not answered: that takes another call.
    machine.drives.poll();
    assert_eq!(machine.controller().outstanding(), 1);
    let cc = machine.read32(register::CC);
    machine.write32(register::CC, cc & !1);
    assert_eq!(machine.read32(register::CSTS), 1, "it may still write to the guest's memory");
    machine.write32(register::CC, cc);
    machine.work();
    assert_eq!(machine.read32(register::CSTS), 1);
    assert_eq!(machine.peek(1), None, "nobody is told of a command from before");
    // The function's reset shows at once, and the controller is ready again only when it is over.
    machine.write32(register::CC, 0);
    machine.enable();
    machine.create(1);
    machine.submit(1, blocks(nvm::READ, 0, 1));
    machine.drives.poll();
    machine.controller().reset();
    assert_eq!((machine.read32(register::CSTS), machine.read32(register::CC)), (0, 0));
    machine.enable();
}

#[test]
fn a_shutdown_flushes() {
    let mut machine = machine();
    machine.guest.store(DATA, &[9; 512]);
    io(&mut machine, blocks(nvm::WRITE, 3, 1), Status::SUCCESS);
    let wanted = Configuration { enabled: true, shutdown: ShutdownRequest::Normal, ..Configuration::new(12) };
    machine.write32(register::CC, wanted.bits());
    assert_eq!(machine.read32(register::CSTS), 1 | 1 << 2);
    machine.work();
    assert_eq!(machine.read32(register::CSTS), 1 | 2 << 2);
    machine.drives.storage_mut().lose_power();
    assert_eq!(machine.drives.storage().bytes(dcs_csd::VolumeId(0))[3 * 512], 9);
    machine.write32(register::CC, 0);
    machine.enable();
}

/// A driver that asks a disabled drive to shut down, as one that ends early may, gets a drive that runs afterwards.
#[test]
fn a_drive_that_was_shut_down_while_it_was_disabled_begins_anew() {
    let mut machine = machine();
    machine.write32(register::CC, 0);
    machine.work();
    let asked = Configuration { shutdown: ShutdownRequest::Normal, ..Configuration::new(12) };
    machine.write32(register::CC, asked.bits());
    machine.work();
    assert_eq!(machine.read32(register::CSTS), 2 << 2);
    machine.enable();
    machine.create(1);
    io(&mut machine, blocks(nvm::WRITE, 3, 1), Status::SUCCESS);
}

#[test]
fn one_interrupt_for_a_batch() {
    let mut machine = machine();
    machine.guest.interrupts.lock().unwrap().clear();
    for lba in 0..5 {
        machine.submit(1, blocks(nvm::READ, lba, 1));
    }
    machine.work();
    assert_eq!((0..5).filter_map(|_| machine.reap(1)).count(), 5);
    assert_eq!(*machine.guest.interrupts.lock().unwrap(), [1]);
}

#[test]
fn a_full_completion_queue_holds_commands_back() {
    let mut machine = machine();
    let mut done = 0;
    for lba in 0..7 {
        machine.submit(1, blocks(nvm::READ, lba, 1));
    }
    machine.work();
    // Seven of eight entries are full; the guest reads none of them, and submits more.
    for lba in 0..3 {
        machine.submit(1, blocks(nvm::READ, lba, 1));
    }
    machine.work();
    for _ in 0..10 {
        done += usize::from(machine.reap(1).is_some());
        machine.work();
    }
    assert_eq!(done, 10);
}

#[test]
fn shadow_doorbells() {
    let mut machine = machine();
    let config = |first, second| Command {
        opcode: admin::DOORBELL_BUFFER_CONFIG,
        data: prp(first, second),
        ..Command::default()
    };
    admin(&mut machine, config(SHADOW + 8, SHADOW), Status::INVALID_FIELD);
    machine.guest.store(SHADOW, &[0; 8192]);
    admin(&mut machine, config(SHADOW, SHADOW + 4096), Status::SUCCESS);
    // The entry without a doorbell, but for the shadow.
    machine.guest.store(SUBMISSIONS + 0x1000, &blocks(nvm::READ, 0, 1).bytes());
    machine.guest.store(SHADOW + 8, &1u32.to_le_bytes());
    machine.work();
    assert!(machine.peek(1).is_some_and(|done| done.status == Status::SUCCESS));
    // From there on the real doorbell is requested.
    assert_eq!(machine.guest.load(SHADOW + 4096 + 8), 1u32.to_le_bytes());
    // A late write of the real doorbell does not undo anything.
    machine.write32(register::tail_doorbell(1, 4), 0);
    machine.work();
    assert_eq!(machine.peek(1), None);
}

/// The guest says by its shadow alone that it has read completions, just when the drive wants to sleep.
#[test]
fn a_head_that_is_seen_late_is_work() {
    let mut machine = machine();
    machine.guest.store(SHADOW, &[0; 8192]);
    let (opcode, data) = (admin::DOORBELL_BUFFER_CONFIG, prp(SHADOW, SHADOW + 4096));
    admin(&mut machine, Command { opcode, data, ..Command::default() }, Status::SUCCESS);
    for at in 0..ENTRIES {
        machine.guest.store(SUBMISSIONS + 0x1000 + u64::from(at) * 64, &blocks(nvm::READ, 0, 1).bytes());
    }
    // Seven completions fill the queue, three wait.
    for tail in [7u32, 2] {
        machine.guest.store(SHADOW + 8, &tail.to_le_bytes());
        machine.work();
    }
    let last = COMPLETIONS + 0x1000 + 7 * 16 + 14;
    assert_eq!(machine.guest.bytes(last, 1)[0] & 1, 0);
    machine.guest.store(SHADOW + 12, &7u32.to_le_bytes());
    assert!(machine.drives.arm(), "there is room: look again");
    machine.work();
    assert_eq!(machine.guest.bytes(last, 1)[0] & 1, 1);
}

fn with_shadows() -> Machine<ModelStorage> {
    let mut machine = machine();
    machine.guest.store(SHADOW, &[0; 8192]);
    let (opcode, data) = (admin::DOORBELL_BUFFER_CONFIG, prp(SHADOW, SHADOW + 4096));
    admin(&mut machine, Command { opcode, data, ..Command::default() }, Status::SUCCESS);
    machine.work();
    machine
}

/// The guest's memory cannot be reached for a while, so that it cannot be asked to ring: its commands are
/// found all the same.
#[test]
fn a_guest_that_cannot_be_told_to_ring_is_looked_after() {
    let mut machine = with_shadows();
    let events = SHADOW + 4096;
    assert_eq!(machine.drives.rest(), None);
    machine.guest.store(SUBMISSIONS + 0x1000, &blocks(nvm::READ, 0, 1).bytes());
    machine.guest.store(SUBMISSIONS + 0x1040, &blocks(nvm::READ, 1, 1).bytes());
    machine.guest.store(SHADOW + 8, &1u32.to_le_bytes());
    machine.guest.gone.store(events, std::sync::atomic::Ordering::Relaxed);
    machine.work();
    assert!(machine.peek(1).is_some());
    assert!(!machine.drives.arm());
    assert!(machine.drives.rest().is_some_and(|rest| rest.as_millis() <= 1), "nobody would ring");
    // Without a doorbell; the index still requests none.
    machine.guest.store(SHADOW + 8, &2u32.to_le_bytes());
    machine.work();
    assert!(machine.peek(1).is_some());
    machine.guest.gone.store(0, std::sync::atomic::Ordering::Relaxed);
    machine.work();
    assert_eq!((machine.drives.rest(), machine.guest.load(events + 8)), (None, 2u32.to_le_bytes()));
}

/// The doorbells cannot be reached just when the guest has been asked to ring: it may have written one before
/// that.
#[test]
fn a_doorbell_that_cannot_be_read_is_looked_at_again() {
    let mut machine = with_shadows();
    assert_eq!(machine.drives.rest(), None);
    machine.guest.gone.store(SHADOW, std::sync::atomic::Ordering::Relaxed);
    machine.work();
    assert!(machine.drives.rest().is_some_and(|rest| rest.as_millis() <= 1), "nobody would look");
    machine.guest.gone.store(0, std::sync::atomic::Ordering::Relaxed);
    machine.work();
    assert_eq!(machine.drives.rest(), None);
}

/// While the drive polls, a guest never rings, even if the drive sees a doorbell before the guest reads its
/// index, as Linux does (`nvme_dbbuf_need_event`).
#[test]
fn nobody_rings_who_is_looked_after() {
    let mut machine = with_shadows();
    let event = |machine: &Machine<ModelStorage>, number: u64| {
        u32::from_le_bytes(machine.guest.load(SHADOW + 4096 + 4 * number)) as u16
    };
    let rings = |event: u16, old: u32, new: u32| {
        (new as u16).wrapping_sub(event).wrapping_sub(1) < (new as u16).wrapping_sub(old as u16)
    };
    // The first ring is requested: the drive was not polling.
    let mut counts = [0; 2];
    for round in 0..4 * ENTRIES {
        let (old, new) = (round % ENTRIES, (round + 1) % ENTRIES);
        let at = SUBMISSIONS + 0x1000 + u64::from(old) * 64;
        let mut entry = blocks(nvm::READ, 0, 1).bytes();
        entry[2..4].copy_from_slice(&(round as u16).to_le_bytes());
        machine.guest.store(at, &entry);
        machine.guest.store(SHADOW + 8, &new.to_le_bytes());
        // It is begun, and answered.
        (0..2).for_each(|_| _ = machine.drives.poll());
        counts[0] += u32::from(rings(event(&machine, 2), old, new));
        assert!(machine.peek(1).is_some_and(|done| done.status == Status::SUCCESS), "{round}");
        machine.guest.store(SHADOW + 12, &new.to_le_bytes());
        counts[1] += u32::from(rings(event(&machine, 3), old, new));
    }
    assert_eq!(counts, [0, 0]);
}

/// One buffer, and a guest whose memory the kernel cannot reach: the second command waits.
fn short_of_buffers() -> Machine<ModelStorage> {
    Machine::new(Config { buffers: 1, ..Config::new("short") }, disk(BLOCKS as usize * 512), false).up()
}

#[test]
fn commands_that_wait_for_a_buffer() {
    let mut machine = short_of_buffers();
    let [_, second, third] = [0, 1, 2].map(|lba| machine.submit(1, blocks(nvm::READ, lba, 1)));
    machine.drives.poll();
    assert_eq!(machine.controller().outstanding(), 1);
    // The second one waits, and can be aborted; the first cannot; the third was not even taken.
    for (cid, kept) in [(second, 0), (third, 1)] {
        let words = Abort { submission_queue: 1, cid }.words();
        machine.submit(0, Command { opcode: admin::ABORT, words, ..Command::default() });
        machine.step();
        assert_eq!(machine.reap(0).map(|done| (done.status, done.result)), Some((Status::SUCCESS, kept)));
    }
    let aborted = machine.reap(1).unwrap();
    assert_eq!((aborted.cid, aborted.status), (second, Status::ABORT_REQUESTED));
    machine.work();
    let done: Vec<_> = std::iter::from_fn(|| machine.reap(1)).collect();
    assert!(done.len() == 2 && done.iter().all(|done| done.status == Status::SUCCESS));
}

/// All slots are used: Abort and Keep Alive are taken all the same.
#[test]
fn admin_commands_need_no_slot() {
    let mut machine = Machine::new(Config { commands: 2, ..Config::new("busy") }, disk(1 << 20), true).up();
    let cids = [0, 1, 2].map(|block| machine.submit(1, blocks(nvm::READ, block, 1)));
    (0..2).for_each(|_| machine.step());
    assert_eq!(machine.controller().slots_used(), 2);
    assert!(!machine.controller().is_ready());
    let words = Abort { submission_queue: 1, cid: cids[0] }.words();
    let abort = machine.submit(0, Command { opcode: admin::ABORT, words, ..Command::default() });
    machine.step();
    // The storage has that command.
    assert!(machine.reap(0).is_some_and(|done| (done.cid, done.result & 1) == (abort, 1)));
    let alive = machine.submit(0, Command { opcode: admin::KEEP_ALIVE, ..Command::default() });
    machine.step();
    assert!(machine.reap(0).is_some_and(|done| (done.cid, done.status) == (alive, Status::SUCCESS)));
    machine.work();
    assert!(cids.iter().all(|_| machine.reap(1).is_some_and(|done| done.status.is_success())));
}

#[test]
fn a_queue_is_deleted_when_its_last_command_has_ended() {
    let mut machine = short_of_buffers();
    let cids = [0, 1].map(|lba| machine.submit(1, blocks(nvm::READ, lba, 1)));
    machine.drives.poll();
    let words = [1, 0, 0, 0, 0, 0];
    machine.submit(0, Command { opcode: admin::DELETE_SUBMISSION_QUEUE, words, ..Command::default() });
    machine.step();
    assert_eq!(machine.reap(0), None, "one is under way");
    let dropped = machine.reap(1).unwrap();
    assert_eq!((dropped.cid, dropped.status), (cids[1], Status::QUEUE_DELETED));
    machine.work();
    let last = machine.reap(1).unwrap();
    assert_eq!((last.cid, last.status), (cids[0], Status::SUCCESS));
    assert_eq!(machine.reap(0).unwrap().status, Status::SUCCESS);
    let delete = Command { opcode: admin::DELETE_COMPLETION_QUEUE, words, ..Command::default() };
    admin(&mut machine, delete, Status::SUCCESS);
}

#[test]
fn a_drive_that_is_taken_out_ends() {
    let mut machine = machine();
    machine.submit(1, blocks(nvm::READ, 0, 1));
    machine.drives.poll();
    let drive = machine.drive;
    machine.drives.remove(drive);
    machine.work();
    assert!(machine.drives.is_removed(drive));
    assert_eq!(machine.controller().outstanding(), 0);
}
