//! A write cache that the guest switches off while writes are under way, and a shutdown while operators are at work.

use dcs_csd::storage::ModelStorage;
use dcs_csd::{Action, Config, Request, Response, Storage, VolumeId, VolumeInfo};
use dcs_nvme::command::{Blocks, Command, admin, feature, nvm};
use dcs_nvme::{DataPointer, Status};

use crate::rig::{DATA, Machine};

/// A storage that does what changes a volume only when it is told to.
struct Late(ModelStorage, Vec<Request>);

impl Storage for Late {
    fn volume(&self, volume: VolumeId) -> Option<VolumeInfo> {
        self.0.volume(volume)
    }

    fn submit(&mut self, request: Request) {
        match request.action {
            Action::Flush | Action::Read => self.0.submit(request),
            _ => self.1.push(request),
        }
    }

    fn commit(&mut self) {}

    fn reap(&mut self, responses: &mut Vec<Response>) {
        self.0.reap(responses);
    }
}

/// What is acknowledged after the cache was said to be off survives a loss of power, whatever was under way.
#[test]
fn writes_under_way_when_the_cache_goes_off_are_safe_when_they_end() {
    let blocks = Blocks { first: 0, count: 8, durable: false }.words();
    let data = DataPointer::Prp(DATA, 0);
    let write = Command { opcode: nvm::WRITE, namespace: 1, data, words: blocks, ..Command::default() };
    let zeroes = Command { opcode: nvm::WRITE_ZEROES, data: DataPointer::default(), ..write };
    let deallocate = Command {
        opcode: nvm::DATASET_MANAGEMENT,
        namespace: 1,
        data,
        words: [0, 4, 0, 0, 0, 0],
        ..Command::default()
    };
    for (command, first, expected) in [(write, 0u8, 7u8), (zeroes, 9, 0), (deallocate, 9, 0)] {
        let mut storage = ModelStorage::new(0);
        let volume = storage.add(1 << 20, 512);
        storage.bytes_mut(volume).fill(first);
        let mut machine = Machine::new(Config::new("late"), Late(storage, Vec::new()), true);
        machine.attach(1, volume, 512);
        machine.enable();
        machine.create(1);
        let flush = Command { opcode: nvm::FLUSH, namespace: 1, ..Command::default() };
        assert_eq!(machine.run(1, flush).status, Status::SUCCESS);
        match command.opcode {
            nvm::DATASET_MANAGEMENT => {
                let range = [0u32.to_le_bytes(), 8u32.to_le_bytes()].concat();
                machine.guest.store(DATA, &[range, 0u64.to_le_bytes().to_vec()].concat());
            }
            _ => machine.guest.store(DATA, &[expected; 4096]),
        }
        machine.submit(1, command);
        machine.work();
        assert_eq!((machine.reap(1), machine.drives.storage().1.len()), (None, 1));
        let words = [u32::from(feature::VOLATILE_WRITE_CACHE), 0, 0, 0, 0, 0];
        let off = Command { opcode: admin::SET_FEATURES, words, ..Command::default() };
        assert_eq!(machine.admin(off).status, Status::SUCCESS);
        let storage = machine.drives.storage_mut();
        let late = std::mem::take(&mut storage.1);
        late.into_iter().for_each(|request| storage.0.submit(request));
        machine.work();
        assert_eq!(machine.reap(1).map(|done| done.status), Some(Status::SUCCESS));
        machine.drives.storage_mut().0.lose_power();
        assert!(machine.drives.storage().0.bytes(volume)[..4096].iter().all(|byte| *byte == expected));
    }
}
