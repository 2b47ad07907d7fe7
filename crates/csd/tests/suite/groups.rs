//! Drives on the same disk and on others: each has its share of a disk, and a disk that hangs holds up
//! neither drives on other disks nor admin commands.

use std::collections::VecDeque;

use dcs_csd::shares::QUANTUM;
use dcs_csd::storage::ModelStorage;
use dcs_csd::{Activity, Config, Request, Response, Storage, VolumeId, VolumeInfo};
use dcs_nvme::command::{Blocks, Command, CreateCompletionQueue, CreateSubmissionQueue, admin, nvm};
use dcs_nvme::{Completion, DataPointer, Status, completion, register};

use crate::rig::{BASE, DATA, ENTRIES, Machine, disk};

/// A storage whose first volume never answers.
struct Hangs(ModelStorage, Vec<Request>);

impl Storage for Hangs {
    fn volume(&self, volume: VolumeId) -> Option<VolumeInfo> {
        self.0.volume(volume)
    }

    fn submit(&mut self, request: Request) {
        match request.volume {
            VolumeId(0) => self.1.push(request),
            _ => self.0.submit(request),
        }
    }

    fn commit(&mut self) {}

    fn reap(&mut self, responses: &mut Vec<Response>) {
        self.0.reap(responses);
    }
}

fn read() -> Command {
    let words = Blocks { first: 0, count: 8, durable: false }.words();
    Command { opcode: nvm::READ, namespace: 1, data: DataPointer::Prp(DATA, 0), words, ..Command::default() }
}

#[test]
fn a_disk_that_hangs_holds_up_its_own_drives_alone() {
    let mut storage = disk(1 << 20);
    let volume = storage.add(1 << 20, 512);
    // The window has room for fewer commands than the first drive sends.
    let window = ENTRIES as usize - 2;
    let hangs = Hangs(storage, Vec::new());
    let mut first = Machine::with_window(Config::new("hangs"), hangs, true, window).up();
    let second = Machine::new(Config::new("goes on"), Hangs(ModelStorage::new(0), Vec::new()), true);
    let mut second = first.beside(second, volume, 1);
    (1..ENTRIES).for_each(|_| _ = first.submit(1, read()));
    first.work();
    assert_eq!((first.drives.under_way(), first.reap(1)), (window, None));
    // Of the same group: plain commands wait, the admin queues do not.
    first.swap(&mut second);
    let identify = Command {
        opcode: admin::IDENTIFY,
        data: DataPointer::Prp(DATA, 0),
        words: [1, 0, 0, 0, 0, 0],
        ..Command::default()
    };
    assert_eq!(second.admin(identify).status, Status::SUCCESS);
    second.submit(1, read());
    second.work();
    assert_eq!(second.reap(1), None);
    // Of another group, they go on.
    second.drives.set_group(second.drive, 1);
    second.work();
    assert_eq!(second.reap(1).map(|done| done.status), Some(Status::SUCCESS));
    for _ in 0..20 {
        assert_eq!(second.run(1, read()).status, Status::SUCCESS);
    }
    assert_eq!(second.drives.under_way(), window, "the first one's are still there");
}

/// A storage that answers at once, and counts its requests.
struct Counts(ModelStorage, usize);

impl Storage for Counts {
    fn volume(&self, volume: VolumeId) -> Option<VolumeInfo> {
        self.0.volume(volume)
    }

    fn submit(&mut self, request: Request) {
        self.1 += 1;
        self.0.submit(request);
    }

    fn commit(&mut self) {}

    fn reap(&mut self, responses: &mut Vec<Response>) {
        self.0.reap(responses);
    }
}

/// A queue pair that is deeper than what a turn of the loop begins.
struct Deep {
    tail: u32,
    head: u32,
    phase: bool,
    under_way: u32,
}

impl Deep {
    const ENTRIES: u32 = 256;
    const QUEUE: u16 = 2;
    /// Where the driver made for tests has nothing.
    const SUBMISSIONS: u64 = BASE + 0x4_0000;
    const COMPLETIONS: u64 = BASE + 0x6_0000;

    fn create(machine: &mut Machine<Counts>) -> Deep {
        let (queue, entries, contiguous) = (Deep::QUEUE, Deep::ENTRIES, true);
        let completions =
            CreateCompletionQueue { queue, entries, contiguous, interrupts: false, vector: 0 }.words();
        let submissions =
            CreateSubmissionQueue { queue, entries, contiguous, priority: 0, completion_queue: queue }
                .words();
        for (opcode, address, words) in [
            (admin::CREATE_COMPLETION_QUEUE, Deep::COMPLETIONS, completions),
            (admin::CREATE_SUBMISSION_QUEUE, Deep::SUBMISSIONS, submissions),
        ] {
            let create = Command { opcode, data: DataPointer::Prp(address, 0), words, ..Command::default() };
            assert_eq!(machine.admin(create).status, Status::SUCCESS);
        }
        Deep { tail: 0, head: 0, phase: true, under_way: 0 }
    }

    /// Takes the ends of reads, and fills it with reads again.
    fn flood(&mut self, machine: &mut Machine<Counts>) {
        loop {
            let place = Deep::COMPLETIONS + u64::from(self.head) * completion::SIZE as u64;
            let done = Completion::from_bytes(&machine.guest.load(place));
            if done.phase != self.phase {
                break;
            }
            assert_eq!(done.status, Status::SUCCESS);
            self.head = (self.head + 1) % Deep::ENTRIES;
            self.phase ^= self.head == 0;
            self.under_way -= 1;
        }
        while self.under_way < Deep::ENTRIES - 1 {
            let mut entry = read().bytes();
            entry[2..4].copy_from_slice(&(self.tail as u16).to_le_bytes());
            machine.guest.store(Deep::SUBMISSIONS + u64::from(self.tail) * 64, &entry);
            self.tail = (self.tail + 1) % Deep::ENTRIES;
            self.under_way += 1;
        }
        machine.write32(register::head_doorbell(Deep::QUEUE, 4), self.head);
        machine.write32(register::tail_doorbell(Deep::QUEUE, 4), self.tail);
    }
}

/// Between an admin command and its end the disk gets no more commands than a turn of the loop begins, for
/// each drive that has admin commands; whatever the others' weights are, and however many commands the guest
/// itself has.
#[test]
fn admin_commands_are_answered_whoever_floods() {
    /// Commands that a turn of the loop begins, and those that the disk has at once.
    const TURN: usize = 64;
    const WINDOW: usize = 256;
    let mut light = Machine::with_window(Config::new("light"), Counts(disk(1 << 20), 0), true, WINDOW).up();
    let heavy = Machine::new(Config::new("heavy"), Counts(ModelStorage::new(0), 0), true);
    let mut heavy = light.beside(heavy, VolumeId(0), 1000);
    let mut of_light = Deep::create(&mut light);
    light.swap(&mut heavy);
    let mut of_heavy = Deep::create(&mut heavy);
    light.swap(&mut heavy);
    let words = [1, 0, 0, 0, 0, 0];
    let data = DataPointer::Prp(DATA + 0x10000, 0);
    let identify = Command { opcode: admin::IDENTIFY, data, words, ..Command::default() };
    let mut is_asked = false;
    for others in [0, 1] {
        for _ in 0..20 {
            light.submit(0, identify);
            let before = light.drives.storage().1;
            let done = loop {
                of_light.flood(&mut light);
                of_heavy.flood(&mut heavy);
                if others > 0 && (!is_asked || heavy.reap(0).is_some()) {
                    heavy.submit(0, identify);
                    is_asked = true;
                }
                assert_eq!(light.drives.poll(), Activity::Busy);
                let got = light.drives.storage().1 - before;
                assert!(got <= (1 + others) * TURN, "{got} commands, and no answer");
                if let Some(done) = light.reap(0) {
                    break done;
                }
            };
            assert_eq!(done.status, Status::SUCCESS);
        }
    }
    assert!(light.drives.storage().1 >= 40 * TURN, "they flood");
}

/// Admin commands out of turn that copy much, as Load Program does, take no more than the drive's share.
#[test]
fn admin_commands_that_copy_much_leave_others_their_share() {
    const BYTES: u64 = 1 << 20;
    let counts = Counts(disk(1 << 20), 0);
    let mut reads = Machine::with_window(Config::new("reads"), counts, true, 256).up();
    let config = Config { programs: true, ..Config::new("loads") };
    let mut loads = Machine::new(config, Counts(ModelStorage::new(0), 0), true);
    loads.drive = reads.drives.add(loads.controller.clone(), loads.guest.clone(), 1);
    let mut of_reads = Deep::create(&mut reads);
    reads.swap(&mut loads);
    loads.enable_sets(6);
    reads.swap(&mut loads);
    let words = [0, 0, 0, 0, BYTES as u32, 0];
    let load = Command { opcode: admin::LOAD_PROGRAM, words, ..Command::default() };
    let (before, mut loaded) = (reads.drives.storage().1, 0);
    for _ in 0..5 {
        loads.submit(0, load);
    }
    for _ in 0..1000 {
        of_reads.flood(&mut reads);
        reads.drives.poll();
        while loads.reap(0).is_some() {
            loaded += 1;
            loads.submit(0, load);
        }
    }
    let got = (reads.drives.storage().1 - before) as u64 * 8192;
    assert!(loaded > 5 && loaded * BYTES <= got + 2 * BYTES, "{loaded} loads, {got} bytes");
}

/// A storage that answers one request at a time, and counts what the commands of each drive cost that it got.
struct OneByOne {
    model: ModelStorage,
    answers: VecDeque<Response>,
    got: [u64; 2],
}

impl OneByOne {
    fn new(model: ModelStorage) -> OneByOne {
        OneByOne { model, answers: VecDeque::new(), got: [0; 2] }
    }
}

impl Storage for OneByOne {
    fn volume(&self, volume: VolumeId) -> Option<VolumeInfo> {
        self.model.volume(volume)
    }

    fn submit(&mut self, request: Request) {
        self.got[request.ticket.drive as usize] += 4096 + request.length;
        self.model.submit(request);
    }

    fn commit(&mut self) {}

    fn reap(&mut self, responses: &mut Vec<Response>) {
        let mut new = Vec::new();
        self.model.reap(&mut new);
        self.answers.extend(new);
        responses.extend(self.answers.pop_front());
    }
}

/// A deep window: answers come while a drive waits at its turn for room.
#[test]
fn answers_do_not_take_their_own_drive_s_turn() {
    const BYTES: [u32; 2] = [4 << 10, 64 << 10];
    const WEIGHTS: [u32; 2] = [4, 1];
    // One less than the commands of a drive's three queues: there is always one that waits.
    let window = 3 * (ENTRIES as usize - 1) - 1;
    let volume = VolumeId(0);
    let mut small =
        Machine::with_window(Config::new("small"), OneByOne::new(disk(1 << 20)), true, window).up();
    let large = Machine::new(Config::new("large"), OneByOne::new(ModelStorage::new(0)), true);
    let mut large = small.beside(large, volume, WEIGHTS[1]);
    small.drives.set_weight(small.drive, WEIGHTS[0]);
    for queue in [2, 3] {
        small.create(queue);
        small.swap(&mut large);
        large.create(queue);
        small.swap(&mut large);
    }
    let read = |of: usize| {
        let words = Blocks { first: 0, count: BYTES[of] / 512, durable: false }.words();
        let data = DataPointer::Sgl(dcs_nvme::sgl::Descriptor::data(DATA, BYTES[of]));
        Command { opcode: nvm::READ, namespace: 1, data, words, ..Command::default() }
    };
    for queue in 1..=3 {
        for _ in 1..ENTRIES {
            small.submit(queue, read(0));
            large.submit(queue, read(1));
        }
    }
    let slack = |of: usize| (4096 + u64::from(BYTES[of])).div_ceil(WEIGHTS[of].into());
    let share = |got: [u64; 2], of: usize| got[of] / u64::from(WEIGHTS[of]);
    for _ in 0..2_000 {
        small.drives.poll();
        for queue in 1..=3 {
            while small.reap(queue).is_some_and(|done| done.status.is_success()) {
                small.submit(queue, read(0));
            }
            while large.reap(queue).is_some_and(|done| done.status.is_success()) {
                large.submit(queue, read(1));
            }
        }
        let got = small.drives.storage().got;
        assert!(share(got, 0).abs_diff(share(got, 1)) <= QUANTUM + slack(0) + slack(1), "{got:?}");
    }
    let got = small.drives.storage().got;
    assert!((0..2).all(|of| share(got, of) > 15 * QUANTUM), "{got:?}");
}
