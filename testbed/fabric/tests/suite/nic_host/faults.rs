//! The NIC driver and every fault of the fabric. In each case: each frame ends exactly once, frames are sent and
//! received unchanged, nothing is written outside of granted memory, memory that was returned is not sent, and
//! the driver works again afterwards.
//!
//! A NIC that reports work that it has not done, or that moved wrong bytes, gives a driver no way to notice. Those
//! faults are the table's [`Undetected::Data`]: they are contained, and the checksum or digest of a higher layer has to
//! find them.

use super::scenarios::{DATA, Random, Rig, World, raw};
use super::server::{MAC, OWN, Server, server};
use dcs_drivers::bus::Window;
use dcs_drivers::nic::{Memory, Model, ResetCause, State};
use dcs_fabric::{Absent, Access, Fault, Iommu, Rule, When};
use std::time::Duration;

/// Bytes from one frame to the next: the page behind each is not granted.
const STRIDE: u64 = 8192;
const LENGTH: u64 = 1400;
const COUNT: u64 = 24;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Undetected {
    No,
    Data,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    /// No reset.
    One,
    /// The NIC is reset, and works again by itself.
    Reset,
    /// The NIC works again after a reset of the function.
    Function,
}

struct Case {
    rig: Rig<Server>,
    out: Vec<Vec<u8>>,
    back: Vec<Vec<u8>>,
}

impl Case {
    fn new(model: Model) -> Case {
        let mut rig = Rig::ready(server(model), |config| config.receive = 64);
        let mut random = Random(1);
        let out = (0..COUNT).map(|_| raw([2, 0, 0, 0, 0, 9], &mut random, LENGTH as usize)).collect();
        let back = (0..COUNT).map(|i| raw(MAC, &mut random, 60 + i as usize * 50)).collect();
        let mut iommu = Iommu::new();
        let data = rig.at(0, DATA);
        let own = Window { address: data.address + DATA, length: OWN - DATA };
        iommu.map(own, own.address, Access::ReadWrite);
        for id in 0..COUNT {
            let page = rig.at(id * STRIDE, 4096);
            iommu.map(page, page.address, Access::Read);
        }
        let nic = rig.world.nic;
        rig.world.fabric.set_iommu(nic, Some(iommu));
        Case { rig, out, back }
    }

    /// Moves frames both ways, one after the other, while faults strike.
    fn run(&mut self) {
        for id in 0..COUNT {
            let frame = self.out[id as usize].clone();
            self.rig.put(id * STRIDE, &frame);
            self.rig.transmit(id, &[self.rig.at(id * STRIDE, LENGTH)], None).unwrap();
            self.rig.world.to_wire(&self.back[id as usize]);
        }
        self.rig.wait(60_000_000_000, |rig| rig.nic.outstanding() == 0);
        // Time to check the link, and for a reset.
        self.rig.wait(1_000_000_000, |_| false);
        self.rig.wait(60_000_000_000, |rig| rig.nic.state() != State::Starting);
    }

    /// Checks that frames were sent and received unchanged, in order, each once.
    fn check_frames(&mut self, lie: Undetected) {
        let ids: Vec<u64> = self.rig.sent.keys().copied().collect();
        assert_eq!(ids, (0..COUNT).collect::<Vec<_>>(), "each ends once");
        for id in 0..COUNT {
            let frame = self.rig.get(id * STRIDE, LENGTH as u32);
            assert!(frame == self.out[id as usize], "the NIC wrote to a frame that is to be sent");
        }
        let wire = self.rig.wire(0);
        let came: Vec<Vec<u8>> =
            std::mem::take(&mut self.rig.came).into_iter().map(|came| came.bytes).collect();
        if lie == Undetected::No {
            assert!(is_part(&wire, &self.out), "other frames came out");
            assert!(is_part(&came, &self.back), "other frames came in");
            for (id, end) in &self.rig.sent {
                assert!(end.result.is_err() || wire.contains(&self.out[*id as usize]), "{id} was not sent");
            }
        }
    }

    /// Checks that memory returned to its owner is not sent.
    fn check_quiet(&mut self) {
        for id in 0..COUNT {
            if self.rig.sent[&id].memory == Memory::Quiet || self.rig.freed.contains(&id) {
                self.rig.put(id * STRIDE, &[0x55; LENGTH as usize]);
            }
        }
        let later = self.rig.world.fabric.now() + Duration::from_secs(30);
        self.rig.world.fabric.run(later);
        self.rig.wait(1_000_000, |_| false);
        assert!(
            self.rig.wire(0).iter().all(|frame| frame[20] != 0x55),
            "sent after its memory was given back"
        );
    }

    fn check_after(&mut self, reach: Reach) {
        let nic = self.rig.world.nic;
        self.rig.world.fabric.clear_faults(nic);
        if reach == Reach::Function {
            self.rig.world.fabric.reset(nic);
            self.rig.nic.on_reset();
            self.rig.round();
            self.rig.world.fabric.set_bus_master(nic, true);
            self.rig.with(|nic, bus, now| nic.reset(bus, now));
        }
        self.rig.until("a link", 60_000_000_000, |rig| rig.nic.link());
        // That a descriptor was passed over, or that the NIC hangs, shows by the next frame.
        let mut random = Random(2);
        self.rig.world.to_wire(&raw(MAC, &mut random, 100));
        let _ = self.rig.transmit(COUNT, &[self.rig.at(0, 60)], None);
        self.rig.drain();
        self.rig.wait(1_000_000_000, |_| false);
        self.rig.until("a link", 60_000_000_000, |rig| rig.nic.link());
        self.rig.sent.remove(&COUNT);
        self.rig.freed.retain(|id| *id != COUNT);
        let held = self.rig.sent.values().filter(|end| end.memory == Memory::Held).count();
        assert_eq!(self.rig.freed.len(), held);
        self.rig.came.clear();
        let _ = self.rig.wire(0);
        for _ in 0..3 {
            let frame = raw([2, 0, 0, 0, 0, 9], &mut random, 500);
            assert!(self.rig.send(&frame, None, 1) == [frame]);
            let frames: Vec<Vec<u8>> = (0..80).map(|_| raw(MAC, &mut random, 100)).collect();
            let came = self.rig.receive(&frames);
            assert!(came.iter().map(|came| &came.bytes).eq(&frames));
        }
    }
}

/// Returns true if `part` is `all` with some left out.
fn is_part(part: &[Vec<u8>], all: &[Vec<u8>]) -> bool {
    let mut all = all.iter();
    part.iter().all(|one| all.any(|other| other == one))
}

fn strike(name: &str, model: Model, rule: impl FnOnce(&Rig<Server>) -> Rule, lie: Undetected, reach: Reach) {
    println!("{name}, {model:?}");
    let mut case = Case::new(model);
    let (rule, nic) = (rule(&case.rig), case.rig.world.nic);
    case.rig.world.fabric.inject(nic, rule);
    case.run();
    assert!(case.rig.world.fabric.faults_struck(nic) > 0, "{name}: nothing went wrong");
    let (state, counters) = (case.rig.nic.state(), case.rig.nic.counters());
    match reach {
        Reach::One => {
            assert!(counters.resets == 0 && state == State::Ready, "{name}: {state:?}, {counters:?}")
        }
        Reach::Reset => assert_eq!(state, State::Ready, "{name}"),
        // A NIC that hangs but answers register reads seems fine until it has frames to send.
        Reach::Function => {
            let all_sent = case.rig.sent.values().all(|end| end.result.is_ok());
            assert!(
                state != State::Ready || counters.hung > 0 || all_sent,
                "{name}: {state:?}, {counters:?}"
            );
        }
    }
    case.check_frames(lie);
    case.check_quiet();
    case.check_after(reach);
}

const MODELS: [Model; 2] = [Model::E1000e, Model::Igb];

#[test]
fn faults_of_frames() {
    let second = Duration::from_secs(1);
    for (when, fault, lie, reach) in [
        (When::Fetch, Fault::DropCompletion, Undetected::No, Reach::Reset),
        (When::Fetch, Fault::DelayCompletion(second), Undetected::No, Reach::One),
        (When::Fetch, Fault::DelayCompletion(20 * second), Undetected::No, Reach::Reset),
        (When::Fetch, Fault::DuplicateCompletion, Undetected::Data, Reach::Reset),
        (When::Fetch, Fault::ShortDma(100), Undetected::Data, Reach::One),
        (When::Fetch, Fault::MisdirectedDma(4096), Undetected::Data, Reach::Reset),
        (When::Fetch, Fault::CorruptDma, Undetected::Data, Reach::One),
        (When::Fetch, Fault::Hang, Undetected::No, Reach::Reset),
        (When::Fetch, Fault::HangHard, Undetected::No, Reach::Function),
        (When::Fetch, Fault::HangBus, Undetected::No, Reach::Function),
        (When::Fetch, Fault::Remove, Undetected::No, Reach::Function),
        (When::Store, Fault::DropCompletion, Undetected::No, Reach::Reset),
        (When::Store, Fault::DelayCompletion(second / 50), Undetected::No, Reach::Reset),
        (When::Store, Fault::DelayCompletion(20 * second), Undetected::No, Reach::Reset),
        (When::Store, Fault::DuplicateCompletion, Undetected::Data, Reach::Reset),
        (When::Store, Fault::WrongLength(0xffff), Undetected::No, Reach::Reset),
        (When::Store, Fault::WrongLength(2049), Undetected::No, Reach::Reset),
        (When::Store, Fault::WrongLength(0), Undetected::No, Reach::One),
        (When::Store, Fault::WrongLength(2048), Undetected::Data, Reach::One),
        (When::Store, Fault::ReceiveError, Undetected::No, Reach::One),
        (When::Store, Fault::ShortDma(50), Undetected::Data, Reach::One),
        (When::Store, Fault::MisdirectedDma(OWN), Undetected::Data, Reach::Reset),
        (When::Store, Fault::CorruptDma, Undetected::Data, Reach::One),
        (When::Store, Fault::Hang, Undetected::No, Reach::Reset),
        (When::Store, Fault::HangHard, Undetected::No, Reach::Function),
        (When::Store, Fault::Remove, Undetected::No, Reach::Function),
        (When::Transmit, Fault::DropFrame, Undetected::Data, Reach::One),
        (When::Transmit, Fault::DuplicateFrame, Undetected::Data, Reach::One),
        (When::Receive, Fault::DropFrame, Undetected::No, Reach::One),
        (When::Receive, Fault::DuplicateFrame, Undetected::Data, Reach::One),
        (When::Receive, Fault::CorruptFrame { undetected: false }, Undetected::No, Reach::One),
    ] {
        for after in [0, 5, COUNT - 1] {
            for model in MODELS {
                let name = format!("{when:?}, {fault:?} after {after}");
                strike(&name, model, |_| Rule::once(when.clone(), fault).after(after), lie, reach);
            }
        }
    }
}

#[test]
fn faults_of_transactions() {
    let own = |rig: &Rig<Server>| {
        let data = rig.at(0, DATA);
        Window { address: data.address + DATA, length: OWN - DATA }
    };
    let delay = |ms| Fault::DelayTransaction(Duration::from_millis(ms));
    for (fault, write, read) in [
        (Fault::DropTransaction, Undetected::Data, Undetected::Data),
        // Within PCIe's completion timeout, and beyond it: then a read has failed.
        (delay(10), Undetected::No, Undetected::No),
        (delay(1000), Undetected::No, Undetected::Data),
        (delay(3000), Undetected::No, Undetected::Data),
        (Fault::MisdirectTransaction(OWN), Undetected::Data, Undetected::Data),
        (Fault::AbortTransaction, Undetected::Data, Undetected::Data),
    ] {
        for model in MODELS {
            for after in [0, 1, 7] {
                let rule = |when| Rule::once(when, fault).after(after);
                let name = format!("{fault:?} after {after}");
                // Frames that come and write-backs; frames to be sent; descriptors.
                let writes = |rig: &Rig<Server>| rule(When::Write(own(rig)));
                strike(&format!("{name}, write"), model, writes, write, Reach::Reset);
                let reads = |rig: &Rig<Server>| rule(When::Read(rig.at(0, DATA)));
                strike(&format!("{name}, read of a frame"), model, reads, read, Reach::Reset);
            }
            let name = format!("{fault:?}, read of a ring");
            strike(&name, model, |rig| Rule::once(When::Read(own(rig)), fault), Undetected::No, Reach::Reset);
        }
    }
}

#[test]
fn a_nic_that_was_pulled_out_is_known_as_gone() {
    for absent in [Absent::Unsupported, Absent::Ones] {
        for model in MODELS {
            let mut case = Case::new(model);
            let nic = case.rig.world.nic;
            case.rig.world.fabric.absent(absent);
            case.rig.world.fabric.remove(nic);
            case.run();
            assert_eq!(case.rig.nic.state(), State::Failed(ResetCause::Gone));
            let ends = case.rig.sent.values();
            assert!(ends.clone().count() as u64 == COUNT);
            assert!(
                ends.clone().all(|end| end.result == Err(ResetCause::Gone) && end.memory == Memory::Held)
            );
            assert!(case.rig.freed.is_empty(), "nobody knows yet that it is quiet");
        }
    }
}
