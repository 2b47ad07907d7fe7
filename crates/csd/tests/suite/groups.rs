//! Disks that hang: drives on other disks go on, and so do admin commands.

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
