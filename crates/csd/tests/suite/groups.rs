//! Drives on the same disk and on others: each has its share of a disk, and a disk that hangs holds up
//! neither drives on other disks nor admin commands.

use std::collections::VecDeque;

use dcs_csd::shares::QUANTUM;
use dcs_csd::storage::ModelStorage;
use dcs_csd::{Config, Request, Response, Storage, VolumeId, VolumeInfo};
use dcs_nvme::command::{Blocks, Command, admin, nvm};
use dcs_nvme::{DataPointer, Status};

use crate::rig::{DATA, ENTRIES, Machine, disk};

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
