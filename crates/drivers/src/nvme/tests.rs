//! Tests of exact bytes on the bus, and with a controller that writes anything at all. Whole scenarios are in the fabric's tests.

use super::*;
use crate::bus::{Bus, BusError, ReadDone, Region, Window};
use crate::testbus::TestBus;
use dcs_nvme::bytes::{u16_at, u32_at, u64_at};
use dcs_nvme::register;
use proptest::prelude::*;

const OWN: Window = Window { address: 0x4000_0000, length: 1 << 20 };
const REGISTERS: Window = Window { address: 0x9000_0000, length: 1 << 14 };
/// 4 KiB to 64 KiB pages, the NVM command set, a doorbell stride of 16 bytes, 1 s, 64 entries.
const CAP: u64 = 4 << 52 | 1 << 37 | 2 << 32 | 2 << 24 | 63;

/// A host, with the controller's part played by the test.
struct Rig {
    bus: TestBus,
    nvme: Nvme,
    now: u64,
    /// Completions written to each queue pair.
    done: [usize; 2],
}

impl Rig {
    fn new(change: impl FnOnce(&mut Config)) -> Rig {
        let mut config = Config { depth: 8, max_transfer: 64 << 10, ..Config::new(REGISTERS, 7) };
        change(&mut config);
        let mut all = Region::whole(OWN);
        all.take(0x1800, 1).unwrap();
        let nvme = Nvme::new(config, all).unwrap();
        let bus = TestBus::new(OWN, REGISTERS);
        let mut rig = Rig { bus, nvme, now: 1000, done: [0; 2] };
        rig.nvme.start(&mut rig.bus, rig.now);
        rig
    }

    fn answer(&mut self, register: u64, value: u64) {
        let (address, length, tag) = self.bus.reads.remove(0);
        assert_eq!(address, register);
        assert_eq!(tag.controller(), 7);
        let data = Ok(value.to_le_bytes()[..length as usize].to_vec());
        self.nvme.read_done(&mut self.bus, self.now, ReadDone { tag, data });
    }

    /// Refuses a read: the controller is there, but does not answer.
    fn refuse(&mut self, register: u64) {
        let (address, _, tag) = self.bus.reads.remove(0);
        assert_eq!(address, register);
        let data = Err(BusError::Aborted);
        self.nvme.read_done(&mut self.bus, self.now, ReadDone { tag, data });
    }

    fn written(&mut self) -> Vec<(u64, u64)> {
        self.bus
            .writes
            .drain(..)
            .map(|(at, bytes)| (at, u64_at(&[&bytes[..], &[0; 8]].concat(), 0)))
            .collect()
    }

    fn poll(&mut self) {
        self.nvme.poll(&mut self.bus, self.now);
    }

    fn wait_for_deadline(&mut self) {
        self.now = self.nvme.deadline().unwrap();
        self.poll();
    }

    /// Returns the entry of a submission queue.
    fn entry(&self, pair: usize, index: usize) -> [u8; 64] {
        let base =
            if pair == 0 { self.nvme.layout.admin_submissions() } else { self.nvme.layout.submissions(0) };
        let at = base as usize + index * 64;
        self.bus.memory[at..at + 64].try_into().unwrap()
    }

    /// Returns the cid of an entry.
    fn cid(&self, pair: usize, index: usize) -> u16 {
        u16_at(&self.entry(pair, index), 2)
    }

    /// Writes a completion, and reaps it.
    fn complete(&mut self, pair: usize, cid: u16, head: u16, status: u16, result: u32) {
        self.complete_as(pair, pair as u16, cid, head, status, result);
    }

    /// Writes a completion in the name of any submission queue, and reaps it.
    fn complete_as(&mut self, pair: usize, queue: u16, cid: u16, head: u16, status: u16, result: u32) {
        let (base, entries) = match pair {
            0 => (self.nvme.layout.admin_completions(), 32),
            _ => (self.nvme.layout.completions(0), 8),
        };
        let position = self.done[pair];
        self.done[pair] += 1;
        let phase = u16::from((position / entries).is_multiple_of(2));
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&result.to_le_bytes());
        bytes[8..10].copy_from_slice(&head.to_le_bytes());
        bytes[10..12].copy_from_slice(&queue.to_le_bytes());
        bytes[12..14].copy_from_slice(&cid.to_le_bytes());
        bytes[14..16].copy_from_slice(&(status << 1 | phase).to_le_bytes());
        self.bus.store(base + (position % entries) as u64 * 16, &bytes);
        self.poll();
    }

    /// Completes the next step of the setup with success.
    fn step(&mut self, result: u32) -> [u8; 64] {
        let index = self.done[0];
        let entry = self.entry(0, index);
        self.complete(0, u16_at(&entry, 2), index as u16 + 1, 0, result);
        entry
    }

    fn identify(&mut self, change: impl FnOnce(&mut [u8])) {
        let at = self.nvme.layout.identify() as usize;
        change(&mut self.bus.memory[at..at + 4096]);
    }

    /// Starts the controller up to the namespace of 1000 blocks of 4 KiB.
    fn up(change: impl FnOnce(&mut Config)) -> Rig {
        let mut rig = Rig::new(change);
        rig.answer(register::CAP, CAP);
        rig.answer(register::CC, 0);
        rig.answer(register::CSTS, 0);
        rig.answer(register::CSTS, 1);
        rig.identify(|data| {
            (data[512], data[513], data[77], data[258]) = (0x66, 0x44, 4, 3);
            data[536] = 1;
        });
        rig.step(0);
        rig.step(0x0005_0003);
        rig.identify(|data| data[0] = 9);
        rig.step(0);
        rig.identify(|data| {
            data[..2].copy_from_slice(&1000u16.to_le_bytes());
            data[130] = 12;
        });
        for _ in 0..3 {
            rig.step(0);
        }
        assert_eq!(rig.nvme.state(), State::Ready);
        rig.bus.writes.clear();
        rig
    }

    fn read(&mut self, id: u64, lba: u64, data: &[Window]) -> Result<(), SubmitError> {
        self.nvme.submit(&mut self.bus, self.now, id, &Request::Read { lba, data })
    }
}

fn page(number: u64) -> Window {
    Window { address: number << 12, length: 4096 }
}

#[test]
fn a_controller_is_brought_up_in_the_order_of_the_specification() {
    let mut rig = Rig::new(|_| {});
    rig.answer(register::CAP, CAP);
    rig.answer(register::CC, 0x0046_0001);
    // It is enabled, and must become ready before it may be disabled.
    rig.answer(register::CSTS, 0);
    assert!(rig.written().is_empty());
    rig.wait_for_deadline();
    rig.answer(register::CSTS, 1);
    assert_eq!(rig.written(), [(register::CC, 0x0046_0000)]);
    rig.answer(register::CSTS, 1);
    rig.wait_for_deadline();
    rig.answer(register::CSTS, 0);
    let base = OWN.address + 0x2000;
    assert_eq!(
        rig.written(),
        [
            (register::INTMS, 0xffff_ffff),
            (register::AQA, 31 << 16 | 31),
            (register::ASQ, base),
            (register::ACQ, base + 0x1000),
            (register::CC, 0x0046_0001),
        ]
    );
    rig.answer(register::CSTS, 1);
    assert_eq!(rig.written(), [(0x1000, 1)]);
    let identify = rig.entry(0, 0);
    assert_eq!((identify[0], u64_at(&identify, 24), u32_at(&identify, 40)), (6, base + 0x2000, 1));
    rig.identify(|data| (data[512], data[513]) = (0x66, 0x44));
    rig.step(0);
    assert_eq!(rig.written(), [(0x1010, 1), (0x1000, 2)], "the stride is 16 bytes");
    let features = rig.step(0);
    assert_eq!((features[0], u32_at(&features, 40), u32_at(&features, 44)), (9, 7, 0));
    rig.identify(|data| data[0] = 9);
    let active = rig.step(0);
    assert_eq!((active[0], u32_at(&active, 40)), (6, 2));
    rig.identify(|data| (data[0], data[130]) = (1, 9));
    let namespace = rig.step(0);
    assert_eq!((namespace[0], u32_at(&namespace, 4), u32_at(&namespace, 40)), (6, 9, 0));
    let completion = rig.step(0);
    assert_eq!((completion[0], u64_at(&completion, 24)), (5, OWN.address + rig.nvme.layout.completions(0)));
    assert_eq!((u32_at(&completion, 40), u32_at(&completion, 44)), (7 << 16 | 1, 1));
    assert_eq!(rig.nvme.state(), State::Starting);
    let submission = rig.step(0);
    assert_eq!((submission[0], u64_at(&submission, 24)), (1, OWN.address + rig.nvme.layout.submissions(0)));
    assert_eq!((u32_at(&submission, 40), u32_at(&submission, 44)), (7 << 16 | 1, 1 << 16 | 1));
    assert_eq!(rig.nvme.state(), State::Ready);
    assert_eq!(rig.nvme.deadline(), None);
}

/// PMRCAP with RDS, WDS, BAR 4, 1 s, addresses.
const PMRCAP: u64 = 1 << 24 | 2 << 16 | 4 << 5 | 3 << 3;
const NOT_READY: u64 = 1 << 8;

fn with_pmr(config: &mut Config) {
    let window = Window { address: 0x12_3456_7000, length: 1 << 20 };
    config.pmr = Some(PmrBar { bar: 4, window });
}

/// Starts the controller up to where PMRCAP is read.
fn before_pmr() -> Rig {
    let mut rig = Rig::new(with_pmr);
    rig.answer(register::CAP, CAP | 1 << 56);
    rig.answer(register::CC, 0);
    rig.answer(register::CSTS, 0);
    assert!(rig.written().is_empty());
    rig
}

#[test]
fn the_persistent_memory_region_is_switched_on_before_the_controller() {
    let mut rig = before_pmr();
    rig.answer(register::PMRCAP, PMRCAP);
    assert_eq!(rig.written(), [(register::PMRCTL, 1)]);
    rig.answer(register::PMRSTS, NOT_READY);
    rig.wait_for_deadline();
    // The earlier content may be lost.
    rig.answer(register::PMRSTS, 1 << 9);
    assert_eq!(rig.written(), [(register::PMRMSCU, 0x12), (register::PMRMSCL, 0x3456_7002)]);
    rig.answer(register::PMRSTS, 0);
    assert_eq!(rig.written().last(), Some(&(register::CC, 0x0046_0001)));
}

/// Checks that the controller is stopped and given up; returns why.
fn given_up(mut rig: Rig) -> ResetCause {
    rig.answer(register::CAP, CAP | 1 << 56);
    rig.answer(register::CC, 0);
    rig.answer(register::CSTS, 0);
    let State::Failed(failure) = rig.nvme.state() else { panic!("{:?}", rig.nvme) };
    failure
}

fn lacks(rig: Rig) -> &'static str {
    let ResetCause::Unsupported(lacks) = given_up(rig) else { panic!("another failure") };
    lacks
}

#[test]
fn a_persistent_memory_region_of_no_use_is_not_used() {
    let mut rig = Rig::new(with_pmr);
    rig.answer(register::CAP, CAP);
    rig.answer(register::CC, 0);
    rig.answer(register::CSTS, 0);
    assert!(lacks(rig).contains("CAP.PMRS"));
    // Another BAR, no addresses, no data into it.
    for capabilities in [PMRCAP ^ 1 << 5, PMRCAP & !(1 << 24), PMRCAP & !(1 << 3), PMRCAP & !(1 << 4), 0] {
        let mut rig = before_pmr();
        rig.answer(register::PMRCAP, capabilities);
        assert!(rig.written().is_empty());
        assert!(lacks(rig).contains("PMRCAP"), "{capabilities:#x}");
    }
    // An error, read-only, unreliable.
    for status in [1, 2 << 9, 3 << 9] {
        let mut rig = before_pmr();
        rig.answer(register::PMRCAP, PMRCAP);
        rig.answer(register::PMRSTS, status);
        assert!(lacks(rig).contains("works"), "{status:#x}");
    }
    let mut rig = before_pmr();
    rig.answer(register::PMRCAP, PMRCAP);
    rig.answer(register::PMRSTS, 0);
    rig.answer(register::PMRSTS, 1 << 12);
    assert!(lacks(rig).contains("CBAI"));
}

#[test]
fn a_persistent_memory_region_that_never_becomes_ready_is_given_up() {
    let mut rig = before_pmr();
    // A controller that fails so is reset, and tried again.
    rig.nvme.config.resets = 0;
    rig.answer(register::PMRCAP, PMRCAP);
    let since = rig.now;
    while rig.bus.reads.last().is_none_or(|read| read.0 == register::PMRSTS) {
        if !rig.bus.reads.is_empty() {
            rig.answer(register::PMRSTS, NOT_READY);
        }
        rig.wait_for_deadline();
    }
    // An answer that is no longer awaited has no effect.
    rig.bus.reads.retain(|read| read.0 == register::CAP);
    let waited = rig.now - since;
    assert_eq!(given_up(rig), ResetCause::MemoryNeverReady);
    assert_eq!(waited, 1_000_000_000, "PMRCAP.PMRTO");
}

#[test]
fn a_persistent_memory_region_needs_an_address_that_can_be_said() {
    for address in [0x1800, u64::MAX - 0xfff] {
        let mut config = Config::new(REGISTERS, 7);
        config.pmr = Some(PmrBar { bar: 4, window: Window { address, length: 1 << 20 } });
        let nvme = Nvme::new(config, Region::whole(OWN));
        assert_eq!(nvme.map(|_| ()).unwrap_err(), ConfigError::Range, "{address:#x}");
    }
}

#[test]
fn a_batch_is_one_doorbell_and_lists_lie_in_own_memory() {
    let mut rig = Rig::up(|_| {});
    rig.read(1, 5, &[page(3)]).unwrap();
    rig.read(
        2,
        6,
        &[Window { address: 0x3_0800, length: 0x1800 }, Window { address: 0x8_0000, length: 0x2800 }],
    )
    .unwrap();
    let data = [Window { address: 0x7000, length: 4096 }];
    let write = Request::Write { lba: 1 << 3, data: &data, durable: true };
    rig.nvme.submit(&mut rig.bus, rig.now, 3, &write).unwrap();
    rig.nvme.submit(&mut rig.bus, rig.now, 4, &Request::Flush).unwrap();
    assert!(rig.written().is_empty());
    rig.nvme.ring(&mut rig.bus);
    rig.nvme.ring(&mut rig.bus);
    assert_eq!(rig.written(), [(0x1020, 4)]);
    let one = rig.entry(1, 0);
    assert_eq!((one[0], one[1], u32_at(&one, 4), u64_at(&one, 24), u64_at(&one, 32)), (2, 0, 9, 0x3000, 0));
    assert_eq!((u64_at(&one, 40), u32_at(&one, 48)), (5, 0));
    let two = rig.entry(1, 1);
    let list = rig.nvme.layout.list(0, 1);
    assert_eq!((u64_at(&two, 24), u64_at(&two, 32)), (0x3_0800, OWN.address + list));
    assert_eq!(u32_at(&two, 48), 3);
    let entries: Vec<u64> = (0..4).map(|i| u64_at(&rig.bus.memory, (list + i * 8) as usize)).collect();
    assert_eq!(entries, [0x3_1000, 0x8_0000, 0x8_1000, 0x8_2000]);
    assert_eq!((rig.entry(1, 2)[0], u32_at(&rig.entry(1, 2), 48)), (1, 1 << 30));
    assert_eq!((rig.entry(1, 3)[0], u32_at(&rig.entry(1, 3), 4)), (0, 9));

    // Out of order, one of them with an error.
    rig.complete(1, rig.cid(1, 2), 4, 0, 0);
    assert_eq!(rig.written(), [(0x1030, 1)]);
    rig.complete(1, rig.cid(1, 0), 4, 0x4281, 0);
    let done = rig.nvme.finished().unwrap();
    assert_eq!((done.id, done.result, done.memory), (3, Ok(()), Memory::Quiet));
    let done = rig.nvme.finished().unwrap();
    assert_eq!(done.result, Err(NvmeError::Status(Status(0x4281))));
    assert!(!done.result.unwrap_err().may_retry());
    assert_eq!((rig.nvme.finished(), rig.nvme.outstanding()), (None, 2));
}

#[test]
fn requests_that_cannot_be_are_refused() {
    let mut rig = Rig::up(|config| config.sgl = SglUse::Never);
    assert_eq!(rig.read(1, 0, &[]), Err(SubmitError::Empty));
    assert_eq!(rig.read(1, 0, &[Window { address: 0, length: 512 }]), Err(SubmitError::Misaligned));
    assert_eq!(rig.read(1, 0, &[Window { address: 2, length: 4096 }]), Err(SubmitError::Misaligned));
    assert_eq!(rig.read(1, 1000, &[page(1)]), Err(SubmitError::OutOfRange { blocks: 1000 }));
    assert_eq!(rig.read(1, u64::MAX, &[page(1)]), Err(SubmitError::OutOfRange { blocks: 1000 }));
    let max = 64 << 10;
    assert_eq!(
        rig.read(1, 0, &[Window { address: 0, length: max + 4096 }]),
        Err(SubmitError::TooLong { max })
    );
    let endless = [Window { address: 0, length: u64::MAX }; 2];
    assert_eq!(rig.read(1, 0, &endless), Err(SubmitError::TooLong { max }));
    for id in 0..7 {
        rig.read(id, 999, &[page(1)]).unwrap();
    }
    assert_eq!(rig.read(8, 0, &[page(1)]), Err(SubmitError::Full));
    assert_eq!(rig.nvme.counters().submitted, 7);
}

#[test]
fn a_completion_counts_once_and_only_if_it_is_due() {
    let mut rig = Rig::up(|_| {});
    rig.read(1, 0, &[page(1)]).unwrap();
    rig.poll();
    for cid in [1, 8, 0xffff] {
        rig.complete(1, cid, 1, 0, 0);
    }
    rig.complete_as(1, 2, rig.cid(1, 0), 1, 0, 0);
    assert_eq!((rig.nvme.finished(), rig.nvme.counters().unknown), (None, 4));
    rig.complete(1, 0, 1, 0, 0);
    assert_eq!(rig.nvme.finished().map(|done| done.id), Some(1));
    // Around the ring, many times. Each completion is delivered twice.
    for turn in 2..200u64 {
        rig.read(turn, 0, &[page(1)]).unwrap();
        rig.poll();
        let position = (turn as usize - 1) % 8;
        let cid = u16_at(&rig.entry(1, position), 2);
        let head = (position as u16 + 1) % 8;
        rig.complete(1, cid, head, 0, 0);
        rig.complete(1, cid, head, 0, 0);
        assert_eq!(rig.nvme.finished().map(|done| (done.id, done.result)), Some((turn, Ok(()))));
        assert_eq!(rig.nvme.finished(), None);
    }
}

#[test]
fn a_controller_that_fetched_what_was_not_there_is_reset() {
    for head in [2, 3, 7, 8, 0xffff] {
        let mut rig = Rig::up(|_| {});
        rig.read(1, 0, &[page(1)]).unwrap();
        rig.poll();
        rig.read(2, 0, &[page(1)]).unwrap();
        rig.complete(1, rig.cid(1, 0), head, 0, 0);
        let ends: Vec<_> = core::iter::from_fn(|| rig.nvme.finished()).map(|end| end.result).collect();
        assert_eq!(ends, [Err(NvmeError::Reset(ResetCause::Impossible)); 2]);
        assert_eq!(rig.nvme.state(), State::Starting);
    }
}

#[test]
fn memory_is_held_until_the_controller_has_stopped() {
    let mut rig = Rig::up(|_| {});
    rig.read(1, 0, &[page(1)]).unwrap();
    rig.read(2, 0, &[page(2)]).unwrap();
    rig.poll();
    rig.wait_for_deadline();
    rig.answer(register::CSTS, 1);
    let abort = rig.entry(0, 6);
    assert_eq!((abort[0], u32_at(&abort, 40)), (8, u32::from(rig.cid(1, 0)) << 16 | 1));
    assert_eq!(rig.nvme.counters().aborts, 2);
    rig.complete(0, u16_at(&abort, 2), 8, 0, 1);
    rig.complete(0, u16_at(&rig.entry(0, 7), 2), 8, 0, 0);
    rig.complete(1, rig.cid(1, 1), 2, 0x07, 0);
    let done = rig.nvme.finished().unwrap();
    assert_eq!((done.id, done.result, done.memory), (2, Err(NvmeError::TimedOut), Memory::Quiet));
    assert_eq!(rig.nvme.finished(), None);
    rig.wait_for_deadline();
    let done = rig.nvme.finished().unwrap();
    assert_eq!((done.id, done.result, done.memory), (1, Err(NvmeError::TimedOut), Memory::Held));
    assert_eq!(rig.read(3, 0, &[page(1)]), Err(SubmitError::NotReady));
    rig.answer(register::CAP, CAP);
    rig.answer(register::CC, 0x0046_0001);
    rig.answer(register::CSTS, 1);
    rig.answer(register::CSTS, 1);
    assert_eq!(rig.nvme.freed(), None);
    rig.wait_for_deadline();
    rig.answer(register::CSTS, 0);
    assert_eq!((rig.nvme.freed(), rig.nvme.freed()), (Some(1), None));
    assert_eq!(rig.nvme.state(), State::Starting);
}

#[test]
fn a_queue_pair_is_lent_until_the_controller_has_stopped() {
    let mut rig = Rig::new(|config| (config.lend, config.depth) = (true, 65));
    rig.answer(register::CAP, CAP);
    assert!(rig.written().is_empty(), "it has no queues of that length, and is not started");

    let mut rig = Rig::up(|config| config.lend = true);
    let pair = rig.nvme.queue_pair().unwrap();
    assert_eq!((pair.number, pair.namespace, pair.block_size), (1, 9, 4096));
    assert_eq!(
        (pair.tail_doorbell, pair.head_doorbell),
        (REGISTERS.address + 0x1020, REGISTERS.address + 0x1030)
    );
    let zeroes = [0; 8 * 16];
    assert_eq!(rig.bus.memory[pair.completions as usize..][..zeroes.len()], zeroes);
    assert_eq!(rig.read(1, 0, &[page(1)]), Err(SubmitError::Full));
    // What is in its rings is the holder's.
    rig.bus.memory[pair.completions as usize + 14] = 1;
    rig.poll();
    assert!(rig.written().is_empty());
    rig.nvme.abort_lent(&mut rig.bus, rig.now, 0x1234);
    let abort = rig.entry(0, 6);
    assert_eq!((abort[0], u32_at(&abort, 40)), (8, 0x1234 << 16 | 1));

    rig.nvme.lent_is_broken(&mut rig.bus, rig.now);
    assert_eq!((rig.nvme.state(), rig.nvme.queue_pair()), (State::Starting, None));
    rig.answer(register::CAP, CAP);
    rig.answer(register::CC, 0x0046_0001);
    rig.answer(register::CSTS, 1);
    rig.answer(register::CSTS, 1);
    assert!(rig.nvme.is_lent());
    rig.wait_for_deadline();
    rig.answer(register::CSTS, 0);
    assert!(!rig.nvme.is_lent());
}

#[test]
fn a_controller_that_is_gone_keeps_its_memory_until_its_owner_knows_better() {
    let mut rig = Rig::up(|_| {});
    rig.read(1, 0, &[page(1)]).unwrap();
    rig.poll();
    rig.wait_for_deadline();
    rig.answer(register::CSTS, u64::MAX);
    assert_eq!(rig.nvme.state(), State::Failed(ResetCause::Gone));
    assert_eq!((rig.nvme.deadline(), rig.nvme.freed()), (None, None));
    assert_eq!(rig.nvme.finished().unwrap().memory, Memory::Held);
    rig.nvme.on_reset();
    assert_eq!(rig.nvme.freed(), Some(1));
    rig.nvme.start(&mut rig.bus, rig.now);
    assert_eq!(rig.nvme.state(), State::Starting);
}

#[test]
fn a_controller_that_is_busy_with_its_reset_is_asked_again() {
    let mut rig = Rig::new(|_| {});
    for (register, value) in [(register::CAP, CAP), (register::CC, 0), (register::CSTS, 0)] {
        for _ in 0..20 {
            rig.refuse(register);
            assert_eq!(rig.nvme.state(), State::Starting);
            assert!(rig.bus.reads.is_empty(), "not at once");
            rig.wait_for_deadline();
        }
        rig.answer(register, value);
    }
    assert_eq!(rig.written().last(), Some(&(register::CC, 0x0046_0001)));
    // But not forever: it is reset, and given up.
    while rig.nvme.state() == State::Starting {
        match rig.bus.reads.first() {
            Some((register, ..)) => rig.refuse(*register),
            None => rig.wait_for_deadline(),
        }
    }
    assert_eq!(rig.nvme.state(), State::Failed(ResetCause::NoAnswer));
    // A controller that is ready gets no patience: it is reset.
    let mut rig = Rig::up(|_| {});
    rig.read(1, 0, &[page(1)]).unwrap();
    rig.poll();
    rig.wait_for_deadline();
    rig.refuse(register::CSTS);
    let end = rig.nvme.finished().unwrap();
    assert_eq!(end.result, Err(NvmeError::TimedOut));
    assert_eq!(rig.nvme.state(), State::Starting);
}

#[test]
fn the_page_size_is_one_that_the_controller_has() {
    for (wanted, least, expected) in [(4096, 0, 0), (16384, 0, 2), (1 << 17, 0, 4), (4096, 1, 1)] {
        let mut rig = Rig::new(|config| (config.page, config.max_transfer, config.depth) = (wanted, 4096, 2));
        rig.answer(register::CAP, CAP | least << 48);
        rig.answer(register::CC, 0);
        rig.answer(register::CSTS, 0);
        let written = rig.written();
        let (_, cc) = written[written.len() - 1];
        assert_eq!(cc >> 7 & 0xf, expected);
        assert_eq!(written[2].1 % (4096 << expected), 0);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Answer(u64),
    AnswerSmall(u8),
    Error,
    Bytes(u16, Vec<u8>),
    Completion(u8, u8, u16, u16),
    Submit(u16),
    Wait,
    Reset,
    Abort(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => any::<u64>().prop_map(Step::Answer),
        4 => (0u8..4).prop_map(Step::AnswerSmall),
        1 => Just(Step::Error),
        2 => (any::<u16>(), proptest::collection::vec(any::<u8>(), 1..64)).prop_map(|(at, bytes)| Step::Bytes(at, bytes)),
        6 => (0u8..2, any::<u8>(), 0u16..16, prop_oneof![Just(0u16), any::<u16>()])
            .prop_map(|(pair, at, cid, status)| Step::Completion(pair, at, cid, status)),
        3 => (0u16..3).prop_map(Step::Submit),
        2 => Just(Step::Wait),
        1 => Just(Step::Reset),
        1 => any::<u8>().prop_map(Step::Abort),
    ]
}

/// Checks that every command that was taken ends once, and memory is returned once, whatever the controller reports.
fn survives(up: bool, steps: Vec<Step>) {
    let mut rig = if up { Rig::up(|_| {}) } else { Rig::new(|_| {}) };
    let (mut taken, mut ended, mut freed) = (0u64, Vec::new(), 0);
    let mut held = 0;
    for step in steps {
        match step {
            Step::Answer(_) | Step::AnswerSmall(_) | Step::Error if rig.bus.reads.is_empty() => {}
            Step::Error => {
                let (_, _, tag) = rig.bus.reads.remove(0);
                let data = Err(BusError::Timeout);
                rig.nvme.read_done(&mut rig.bus, rig.now, ReadDone { tag, data });
            }
            Step::Answer(value) => rig.answer(rig.bus.reads[0].0, value),
            Step::AnswerSmall(value) => {
                let register = rig.bus.reads[0].0;
                rig.answer(register, if register == register::CAP { CAP } else { value.into() });
            }
            Step::Bytes(at, bytes) => rig.bus.store(0x2000 + u64::from(at), &bytes),
            Step::Completion(pair, at, cid, status) => {
                rig.done[usize::from(pair)] = at.into();
                // Usually a command that is outstanding, or was.
                let cid = if cid < 12 { rig.cid(pair.into(), usize::from(cid) % 8) } else { cid };
                rig.complete(pair.into(), cid, u16::from(at) % 8, status, 0);
            }
            Step::Submit(pages) => {
                let data = [Window { address: 1 << 30, length: u64::from(pages) << 12 }];
                taken += u64::from(rig.read(taken, 0, &data).is_ok());
            }
            Step::Wait => rig.now = rig.nvme.deadline().unwrap_or(rig.now).max(rig.now),
            Step::Reset => rig.nvme.reset(&mut rig.bus, rig.now),
            Step::Abort(id) => _ = rig.nvme.abort(&mut rig.bus, rig.now, id.into()),
        }
        rig.poll();
        while let Some(done) = rig.nvme.finished() {
            held += u64::from(done.memory == Memory::Held);
            ended.push(done.id);
        }
        freed += core::iter::from_fn(|| rig.nvme.freed()).count() as u64;
        assert!(freed <= held);
        assert_eq!(taken, ended.len() as u64 + rig.nvme.outstanding() as u64);
    }
    rig.nvme.on_reset();
    ended.extend(core::iter::from_fn(|| rig.nvme.finished()).map(|done| {
        assert_eq!((done.result.is_err(), done.memory), (true, Memory::Quiet));
        done.id
    }));
    freed += core::iter::from_fn(|| rig.nvme.freed()).count() as u64;
    ended.sort_unstable();
    assert_eq!(ended, (0..taken).collect::<Vec<_>>(), "each ends once");
    assert_eq!(freed, held);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn whatever_a_controller_writes(up in any::<bool>(), steps in proptest::collection::vec(step(), 1..120)) {
        survives(up, steps);
    }
}
