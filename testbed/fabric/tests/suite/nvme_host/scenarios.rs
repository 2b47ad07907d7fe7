//! Scenarios that an NVMe host has to pass on any bus, with any controller, over a [`World`].

use dcs_drivers::bus::{Bus, ReadDone, Region, Window};
use dcs_drivers::nvme::{
    Config, Finished, Memory, Namespace, Nvme, NvmeError, Request, ResetCause, State, SubmitError,
};
pub use dcs_testkit::Random;
use std::collections::BTreeMap;

/// A bus with a controller on it, and time.
pub trait World {
    /// Returns the controller's registers, and other configuration that depends on the world.
    fn config(&self) -> Config;
    /// Returns all of the card's own memory: at least 8 MiB.
    fn memory(&mut self) -> Region;
    /// Lends the card's bus.
    fn bus(&mut self, with: &mut dyn FnMut(&mut dyn Bus));
    /// Returns the time in nanoseconds.
    fn now(&self) -> u64;
    /// Advances time to the next event, at most to `until`.
    fn advance(&mut self, until: Option<u64>) -> Option<ReadDone>;
}

/// A host in a world, with memory for data in addition to its own.
pub struct Rig<W: World> {
    pub world: W,
    pub nvme: Nvme,
    /// Offset of the data in the card's own memory.
    data: u64,
    address: u64,
    /// Ends by id; when it was, and whether the memory is quiet.
    pub ended: BTreeMap<u64, Finished>,
    pub freed: Vec<u64>,
}

/// Bytes of the memory for data.
pub const DATA: u64 = 4 << 20;
/// Time limit of a scenario: 10 minutes.
const LONG: u64 = 600_000_000_000;

impl<W: World> Rig<W> {
    /// Returns a host that is not started, with the world's configuration, changed.
    pub fn new(mut world: W, change: impl FnOnce(&mut Config)) -> Rig<W> {
        let mut config = world.config();
        change(&mut config);
        let mut memory = world.memory();
        let data = memory.take(DATA, 4096).expect("8 MiB").offset();
        let nvme = Nvme::new(config, memory).expect("a good set-up");
        let mut address = 0;
        world.bus(&mut |bus| address = bus.window().address + data);
        Rig { world, nvme, data, address, ended: BTreeMap::new(), freed: Vec::new() }
    }

    /// Returns a host that is ready.
    pub fn ready(world: W, change: impl FnOnce(&mut Config)) -> Rig<W> {
        let mut rig = Rig::new(world, change);
        rig.start();
        rig
    }

    pub fn with(&mut self, what: impl FnOnce(&mut Nvme, &mut dyn Bus, u64)) {
        let (now, nvme) = (self.world.now(), &mut self.nvme);
        let mut what = Some(what);
        self.world.bus(&mut |bus| what.take().expect("once")(nvme, bus, now));
    }

    pub fn start(&mut self) {
        self.with(|nvme, bus, now| nvme.start(bus, now));
        self.run();
        assert_eq!(self.nvme.state(), State::Ready);
    }

    pub fn namespace(&self) -> Namespace {
        *self.nvme.namespace().expect("a controller that was ready")
    }

    /// Returns the bus address of the data from `offset` on.
    pub fn at(&self, offset: u64, length: u64) -> Window {
        assert!(offset + length <= DATA);
        Window { address: self.address + offset, length }
    }

    pub fn put(&mut self, offset: u64, bytes: &[u8]) {
        let at = self.data + offset;
        self.world.bus(&mut |bus| bus.store(at, bytes));
    }

    pub fn get(&mut self, offset: u64, length: u64) -> Vec<u8> {
        let (at, mut bytes) = (self.data + offset, vec![0; length as usize]);
        self.world.bus(&mut |bus| bus.load(at, &mut bytes));
        bytes
    }

    pub fn submit(&mut self, id: u64, request: &Request<'_>) -> Result<(), SubmitError> {
        let mut result = Err(SubmitError::NotReady);
        self.with(|nvme, bus, now| result = nvme.submit(bus, now, id, request));
        result
    }

    /// Makes one round: reaps, then advances time.
    pub fn round(&mut self) {
        self.with(|nvme, bus, now| nvme.poll(bus, now));
        while let Some(end) = self.nvme.finished() {
            assert_eq!(self.ended.insert(end.id, end), None, "{} ended twice", end.id);
        }
        while let Some(id) = self.nvme.freed() {
            assert_eq!(self.ended.get(&id).map(|end| end.memory), Some(Memory::Held));
            assert!(!self.freed.contains(&id), "the memory of {id} was freed twice");
            self.freed.push(id);
        }
    }

    /// Runs until nothing is outstanding and the host is idle.
    pub fn run(&mut self) {
        let limit = self.world.now() + LONG;
        loop {
            self.round();
            if self.nvme.outstanding() == 0 && self.nvme.state() != State::Starting {
                return;
            }
            let until = self.nvme.deadline();
            assert!(self.world.now() < limit, "it never comes to rest: {:?}", self.nvme.state());
            if let Some(done) = self.world.advance(until) {
                self.with(|nvme, bus, now| nvme.read_done(bus, now, done));
            }
        }
    }

    /// Takes the end of `id`.
    pub fn end(&mut self, id: u64) -> Finished {
        self.ended.remove(&id).unwrap_or_else(|| panic!("{id} did not end"))
    }

    /// Does one request.
    pub fn one(&mut self, request: &Request<'_>) -> Result<(), NvmeError> {
        const ID: u64 = u64::MAX;
        self.submit(ID, request).expect("taken");
        self.run();
        self.end(ID).result
    }

    pub fn read(&mut self, lba: u64, offset: u64, length: u64) -> Result<(), NvmeError> {
        self.one(&Request::Read { lba, data: &[self.at(offset, length)] })
    }

    pub fn write(&mut self, lba: u64, offset: u64, length: u64) -> Result<(), NvmeError> {
        self.one(&Request::Write { lba, data: &[self.at(offset, length)], durable: false })
    }
}

/// Checks that written data are read back, for lengths and offsets around every edge.
pub fn what_was_written_is_read_back(world: impl World) {
    let mut rig = Rig::ready(world, |_| {});
    let namespace = rig.namespace();
    let (block, mut random) = (u64::from(namespace.block_size), Random(1));
    for length in [block, 4096, 8192, 12288, 16384 + block, namespace.max_transfer] {
        let length = length.next_multiple_of(block).min(namespace.max_transfer);
        for offset in [0, 4, 2048, 4092] {
            let (bytes, lba) =
                (random.bytes(length as usize), random.below(namespace.blocks - length / block));
            rig.put(offset, &bytes);
            assert_eq!(rig.write(lba, offset, length), Ok(()));
            let at = (2 << 20) + offset;
            rig.put(at - 4, &vec![0xaa; length as usize + 8]);
            assert_eq!(rig.read(lba, at, length), Ok(()));
            assert!(rig.get(at, length) == bytes, "{length} bytes at {offset}");
            assert_eq!(rig.get(at - 4, 4), [0xaa; 4]);
            assert_eq!(rig.get(at + length, 4), [0xaa; 4]);
        }
    }
    assert_eq!(rig.one(&Request::Flush), Ok(()));
}

/// Fills the queues again and again, with one doorbell write per batch.
pub fn many_commands_are_outstanding(world: impl World) {
    let mut rig = Rig::ready(world, |_| {});
    let block = u64::from(rig.namespace().block_size);
    let mut random = Random(2);
    let all = random.bytes((256 * block) as usize);
    let most = rig.namespace().max_transfer;
    for at in (0..256 * block).step_by(most as usize) {
        let length = most.min(256 * block - at);
        rig.put(0, &all[at as usize..(at + length) as usize]);
        assert_eq!(rig.write(at / block, 0, length), Ok(()));
    }
    for turn in 0..4 {
        rig.put(0, &vec![0; (256 * block) as usize]);
        let mut taken = 0;
        while taken < 256 {
            let request = Request::Read { lba: taken, data: &[rig.at(taken * block, block)] };
            match rig.submit(turn * 256 + taken, &request) {
                Ok(()) => taken += 1,
                Err(SubmitError::Full) => rig.run(),
                Err(error) => panic!("{error}"),
            }
        }
        rig.run();
        assert!(rig.get(0, 256 * block) == all);
    }
    assert_eq!(rig.ended.len(), 4 * 256);
    assert!(rig.ended.values().all(|end| end.result.is_ok() && end.memory == Memory::Quiet));
    assert_eq!(rig.nvme.counters().unknown, 0);
}

/// Compares random requests in random pieces with a plain array.
pub fn random_requests_against_an_array(
    world: impl World,
    seed: u64,
    steps: u32,
    change: impl FnOnce(&mut Config),
) {
    let mut rig = Rig::ready(world, change);
    let namespace = rig.namespace();
    let (block, most) = (u64::from(namespace.block_size), namespace.max_transfer.min(256 << 10));
    let blocks = namespace.blocks.min((1 << 20) / block);
    let (mut random, mut disk) = (Random(seed), vec![0; (blocks * block) as usize]);
    for at in (0..blocks * block).step_by(most as usize) {
        rig.put(0, &vec![0; most as usize]);
        rig.write(at / block, 0, most.min(blocks * block - at)).unwrap();
    }
    for _ in 0..steps {
        // Requests of one batch touch different blocks: among themselves they have no order.
        let (mut batch, mut lba, mut offset) = (Vec::new(), 0, 0);
        for id in 0..random.below(12) + 1 {
            lba += random.below(blocks / 16);
            let length = (random.below(most / block) + 1).min(blocks.saturating_sub(lba + 1)) * block;
            if length == 0 || offset + length + 8192 > DATA {
                break;
            }
            let (pieces, end) = pieces(&rig, &mut random, offset, length);
            batch.push((id, random.below(3), lba, length, pieces));
            (lba, offset) = (lba + length / block, end);
        }
        for (id, kind, lba, length, pieces) in &batch {
            let bytes = &mut disk[(lba * block) as usize..][..*length as usize];
            let request = match kind {
                0 => Request::Read { lba: *lba, data: pieces },
                _ => {
                    bytes.copy_from_slice(&random.bytes(*length as usize));
                    let mut done = 0;
                    for piece in pieces {
                        let part = &bytes[done..done + piece.length as usize];
                        rig.put(piece.address - rig.address, part);
                        done += part.len();
                    }
                    Request::Write { lba: *lba, data: pieces, durable: *kind == 2 }
                }
            };
            while let Err(error) = rig.submit(*id, &request) {
                assert_eq!(error, SubmitError::Full);
                rig.run();
            }
        }
        rig.submit(99, &Request::Flush)
            .or_else(|error| if error == SubmitError::Full { Ok(()) } else { Err(error) })
            .unwrap();
        rig.run();
        for (id, _, lba, length, pieces) in &batch {
            assert_eq!(rig.end(*id).result, Ok(()));
            let address = rig.address;
            let got: Vec<u8> = pieces.iter().flat_map(|p| rig.get(p.address - address, p.length)).collect();
            assert!(got == disk[(lba * block) as usize..][..*length as usize], "{length} bytes at {lba}");
        }
        rig.ended.clear();
    }
}

/// `length` bytes in pieces that a page list can name, from `offset` on; also where they end.
fn pieces<W: World>(rig: &Rig<W>, random: &mut Random, offset: u64, length: u64) -> (Vec<Window>, u64) {
    let (mut all, mut left, mut at) = (Vec::new(), length, offset + random.below(1024) * 4);
    while left > 0 {
        let room = 4096 - at % 4096 + random.below(4) * 4096;
        let piece = room.min(left);
        all.push(rig.at(at, piece));
        left -= piece;
        at += piece;
    }
    // In any order where they are whole pages.
    if all.len() > 3 {
        let last = all.len() - 2;
        let other = 1 + random.below(last as u64) as usize;
        all.swap(1, other.min(last));
    }
    (all, at.next_multiple_of(4096))
}

/// Checks that a reset while commands are outstanding ends each once, and work continues.
pub fn a_reset_under_load(world: impl World) {
    let mut rig = Rig::ready(world, |_| {});
    let block = u64::from(rig.namespace().block_size);
    let bytes = Random(3).bytes(block as usize);
    rig.put(0, &bytes);
    assert_eq!(rig.write(7, 0, block), Ok(()));
    for turn in 0..3 {
        rig.ended.clear();
        rig.freed.clear();
        for id in 0..16 {
            rig.submit(id, &Request::Read { lba: 7, data: &[rig.at(id * 4096, block)] }).unwrap();
        }
        for _ in 0..turn * 4 {
            rig.round();
            let until = rig.nvme.deadline();
            let _ = rig.world.advance(until);
        }
        rig.with(|nvme, bus, now| nvme.reset(bus, now));
        rig.run();
        assert_eq!(rig.nvme.state(), State::Ready);
        assert_eq!(rig.ended.len(), 16);
        let mut held = Vec::new();
        for end in rig.ended.clone().into_values() {
            match end.result {
                Ok(()) => assert!(rig.get(end.id * 4096, block) == bytes),
                Err(error) => assert_eq!(error, NvmeError::Reset(ResetCause::Asked)),
            }
            if end.memory == Memory::Held {
                held.push(end.id);
            }
        }
        rig.freed.sort_unstable();
        assert_eq!(rig.freed, held, "all of it is free when the controller is up again");
        rig.put(0, &vec![0; 4096]);
        assert_eq!(rig.read(7, 0, block), Ok(()));
        assert!(rig.get(0, block) == bytes);
    }
}

/// Checks that a controller can be started again after an orderly shutdown.
pub fn shutdown_and_start(world: impl World) {
    let mut rig = Rig::ready(world, |_| {});
    let block = u64::from(rig.namespace().block_size);
    let bytes = Random(4).bytes(block as usize);
    rig.put(0, &bytes);
    assert_eq!(rig.write(1, 0, block), Ok(()));
    rig.with(|nvme, bus, now| nvme.stop(bus, now));
    rig.run();
    assert_eq!(rig.nvme.state(), State::Off);
    assert_eq!(rig.submit(1, &Request::Flush), Err(SubmitError::NotReady));
    rig.start();
    rig.put(0, &vec![0; block as usize]);
    assert_eq!(rig.read(1, 0, block), Ok(()));
    assert!(rig.get(0, block) == bytes);
}

/// Checks that aborted commands end once, as the controller reports.
pub fn aborted_commands_end(world: impl World) {
    let mut rig = Rig::ready(world, |_| {});
    let most = rig.namespace().max_transfer;
    for id in 0..20 {
        rig.submit(id, &Request::Read { lba: 0, data: &[rig.at(id * (128 << 10), most.min(128 << 10))] })
            .unwrap();
    }
    for id in (0..20).rev() {
        let mut found = false;
        rig.with(|nvme, bus, now| found = nvme.abort(bus, now, id));
        assert!(found);
    }
    rig.run();
    assert_eq!(rig.ended.len(), 20);
    for end in rig.ended.values() {
        // QEMU's controller calls an aborted read one that failed (Unrecovered Read Error).
        let ended = matches!(end.result, Ok(()) | Err(NvmeError::Aborted | NvmeError::Status(_)));
        assert!(ended, "{:?}", end.result);
        assert_eq!(end.memory, Memory::Quiet);
    }
    let mut found = true;
    rig.with(|nvme, bus, now| found = nvme.abort(bus, now, 3));
    assert!(!found);
    assert_eq!(rig.nvme.state(), State::Ready);
}
