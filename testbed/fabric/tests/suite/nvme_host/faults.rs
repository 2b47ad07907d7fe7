//! The NVMe host and every fault of the fabric. In each case: each command ends exactly once, no
//! wrong success, nothing is written outside of granted memory, memory that was returned is not written to, and the
//! host works again afterwards.
//!
//! A controller that reports success and did not move the data correctly gives NVMe without protection information
//! no way to notice. Those faults are the table's [`Undetected::Data`]: they are contained, and
//! a digest has to find them.

use super::scenarios::{DATA, Random, Rig};
use super::server::{OWN, Server, server};
use dcs_drivers::bus::Window;
use dcs_drivers::nvme::{Memory, NvmeError, Request, ResetCause, State};
use dcs_fabric::{Access, Fault, Iommu, Rule, When};
use std::time::Duration;

/// Bytes of a command.
const LENGTH: u64 = 8192;
/// Bytes from one command's data to the next: the pages behind each are not granted.
const STRIDE: u64 = 16384;
/// Commands: reads, then as many writes, then a flush.
const EACH: u64 = 6;

/// The trust that a success deserves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Undetected {
    No,
    Data,
}

/// The reach of a fault.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// One command, the others succeed; no reset.
    One,
    /// The controller: it is reset, and works again by itself.
    Reset,
    /// The function: it works again after a reset of the function.
    Function,
}

struct Case {
    rig: Rig<Server>,
    contents: Vec<Vec<u8>>,
}

impl Case {
    fn new() -> Case {
        let mut rig = Rig::ready(server(), |_| {});
        let mut random = Random(5);
        let contents: Vec<Vec<u8>> = (0..2 * EACH).map(|_| random.bytes(LENGTH as usize)).collect();
        for (id, bytes) in (0..EACH).zip(&contents) {
            rig.put(0, bytes);
            assert_eq!(rig.write(lba(id), 0, LENGTH), Ok(()));
        }
        let mut case = Case { rig, contents };
        case.grant();
        case
    }

    /// Grants the controller the host's region and the commands' data, these only in their direction.
    fn grant(&mut self) {
        let mut iommu = Iommu::new();
        let data = self.rig.at(0, DATA);
        let own = Window { address: data.address + DATA, length: OWN - DATA };
        iommu.map(own, own.address, Access::ReadWrite);
        for id in 0..2 * EACH {
            let window = self.rig.at(id * STRIDE, LENGTH);
            iommu.map(window, window.address, if id < EACH { Access::Write } else { Access::Read });
        }
        let ssd = self.rig.world.ssd;
        self.rig.world.fabric.set_iommu(ssd, Some(iommu));
    }

    fn submit_all(&mut self) {
        self.rig.put(0, &vec![0xaa; (2 * EACH * STRIDE) as usize]);
        for id in 0..2 * EACH {
            let data = [self.rig.at(id * STRIDE, LENGTH)];
            let request = if id < EACH {
                Request::Read { lba: lba(id), data: &data }
            } else {
                let bytes = self.contents[id as usize].clone();
                self.rig.put(id * STRIDE, &bytes);
                Request::Write { lba: lba(id), data: &data, durable: false }
            };
            self.rig.submit(id, &request).unwrap();
        }
        self.rig.submit(2 * EACH, &Request::Flush).unwrap();
    }

    /// Checks that a success has moved the right bytes, and that nothing else was written.
    fn check_data(&mut self, lie: Undetected) {
        for id in 0..2 * EACH {
            let ok = self.rig.ended[&id].result.is_ok();
            let got = self.rig.get(id * STRIDE, STRIDE);
            let (data, rest) = got.split_at(LENGTH as usize);
            assert!(rest.iter().all(|byte| *byte == 0xaa), "{id}: written behind the data");
            if id >= EACH || ok && lie == Undetected::No {
                assert!(data == self.contents[id as usize], "{id}: wrong data");
            }
        }
    }

    /// Checks that memory returned to its owner stays unchanged.
    fn check_quiet(&mut self) {
        let mut quiet = Vec::new();
        for id in 0..2 * EACH {
            if self.rig.ended[&id].memory == Memory::Quiet || self.rig.freed.contains(&id) {
                self.rig.put(id * STRIDE, &[0x55; LENGTH as usize]);
                quiet.push(id);
            }
        }
        let later = self.rig.world.fabric.now() + Duration::from_secs(60);
        self.rig.world.fabric.run(later);
        for id in quiet {
            assert!(
                self.rig.get(id * STRIDE, LENGTH).iter().all(|byte| *byte == 0x55),
                "{id}: written to after"
            );
        }
    }

    /// Checks that the controller works again, and that data it reported as written are there.
    fn check_after(&mut self, lie: Undetected, reach: Reach) {
        let ssd = self.rig.world.ssd;
        self.rig.world.fabric.clear_faults(ssd);
        if reach == Reach::Function {
            self.rig.world.fabric.reset(ssd);
            self.rig.nvme.on_reset();
            self.rig.round();
            self.rig.world.fabric.set_bus_master(ssd, true);
            self.rig.with(|nvme, bus, now| nvme.reset(bus, now));
            self.rig.run();
        }
        assert_eq!(self.rig.nvme.state(), State::Ready);
        let held = self.rig.ended.values().filter(|end| end.memory == Memory::Held).count();
        assert_eq!(self.rig.freed.len(), held);
        self.rig.world.fabric.set_iommu(ssd, None);
        let written: Vec<u64> = (EACH..2 * EACH).filter(|id| self.rig.ended[id].result.is_ok()).collect();
        for id in (0..EACH).chain(written) {
            assert_eq!(self.rig.read(lba(id), 0, LENGTH), Ok(()));
            let got = self.rig.get(0, LENGTH);
            assert!(
                got == self.contents[id as usize] || lie == Undetected::Data,
                "{id}: wrong on the medium"
            );
        }
        self.rig.put(0, &[0x77; LENGTH as usize]);
        assert_eq!(self.rig.write(9, 0, LENGTH), Ok(()));
        assert_eq!(self.rig.read(9, STRIDE, LENGTH), Ok(()));
        assert!(self.rig.get(STRIDE, LENGTH).iter().all(|byte| *byte == 0x77));
    }
}

fn lba(id: u64) -> u64 {
    100 + id * 32
}

/// Runs a case with one rule.
fn strike(name: &str, rule: impl FnOnce(&Rig<Server>) -> Rule, lie: Undetected, reach: Reach) {
    println!("{name}");
    let mut case = Case::new();
    let (rule, ssd) = (rule(&case.rig), case.rig.world.ssd);
    case.rig.world.fabric.inject(ssd, rule);
    case.submit_all();
    case.rig.run();
    assert!(case.rig.world.fabric.faults_struck(ssd) > 0, "{name}: nothing went wrong");
    assert_eq!(case.rig.ended.len() as u64, 2 * EACH + 1, "{name}: each ends once");
    let failed: Vec<NvmeError> = case.rig.ended.values().filter_map(|end| end.result.err()).collect();
    for error in &failed {
        assert!(error.to_string().len() > 10);
    }
    match reach {
        Reach::One => {
            assert!(failed.len() <= 1 && case.rig.nvme.counters().resets == 0, "{name}: {failed:?}")
        }
        Reach::Reset => assert_eq!(case.rig.nvme.state(), State::Ready, "{name}"),
        Reach::Function => {
            // It may have done all its work before anyone noticed.
            let failed = matches!(case.rig.nvme.state(), State::Failed(_));
            assert!(failed || case.rig.ended.values().all(|end| end.result.is_ok()), "{name}");
        }
    }
    case.check_data(lie);
    case.check_quiet();
    case.check_after(lie, reach);
}

#[test]
fn faults_of_commands() {
    let second = Duration::from_secs(1);
    let faults = [
        (Fault::DropCompletion, Undetected::No, Reach::Reset),
        (Fault::DelayCompletion(second), Undetected::No, Reach::One),
        (Fault::DelayCompletion(12 * second), Undetected::No, Reach::One),
        (Fault::DelayCompletion(40 * second), Undetected::No, Reach::Reset),
        (Fault::DuplicateCompletion, Undetected::No, Reach::One),
        (Fault::WrongPhase, Undetected::No, Reach::Reset),
        (Fault::WrongCid(1), Undetected::No, Reach::Reset),
        (Fault::WrongCid(4), Undetected::No, Reach::Reset),
        (Fault::WrongCid(0x8000), Undetected::No, Reach::Reset),
        (Fault::WrongQueue(1), Undetected::No, Reach::Reset),
        (Fault::WrongHead(1000), Undetected::No, Reach::Reset),
        (Fault::WrongHead(60), Undetected::No, Reach::Reset),
        (Fault::BadStatus(0x0281), Undetected::No, Reach::One),
        (Fault::BadStatus(0x0182), Undetected::No, Reach::One),
        (Fault::FalseStatus(0x0004), Undetected::No, Reach::One),
        (Fault::ShortDma(512), Undetected::Data, Reach::One),
        (Fault::MisdirectedDma(LENGTH), Undetected::Data, Reach::One),
        (Fault::CorruptDma, Undetected::Data, Reach::One),
        (Fault::LoseCommand, Undetected::No, Reach::Reset),
        (Fault::StallCommand, Undetected::No, Reach::One),
        (Fault::Hang, Undetected::No, Reach::Reset),
        (Fault::HangHard, Undetected::No, Reach::Function),
        (Fault::HangBus, Undetected::No, Reach::Function),
        (Fault::Remove, Undetected::No, Reach::Function),
    ];
    for (fault, lie, reach) in faults {
        for opcode in [2, 1, 0] {
            for after in [0, 4] {
                let data = matches!(fault, Fault::ShortDma(_) | Fault::MisdirectedDma(_) | Fault::CorruptDma);
                if opcode == 0 && (data || after > 0) {
                    continue;
                }
                let when = When::Command { queue: Some(1), opcode: Some(opcode) };
                let name = format!("{fault:?}, opcode {opcode}, after {after}");
                strike(&name, |_| Rule::once(when, fault).after(after), lie, reach);
            }
        }
    }
}

#[test]
fn faults_that_do_not_pass() {
    for (fault, reach) in [
        (Fault::DropCompletion, Reach::Reset),
        (Fault::WrongPhase, Reach::Reset),
        (Fault::WrongCid(0x4000), Reach::Reset),
        (Fault::WrongHead(1000), Reach::Reset),
        (Fault::BadStatus(0x0006), Reach::Reset),
        (Fault::LoseCommand, Reach::Reset),
        (Fault::Hang, Reach::Reset),
    ] {
        let when = When::Command { queue: Some(1), opcode: None };
        strike(&format!("{fault:?}, always"), |_| Rule::always(when, fault), Undetected::No, reach);
    }
}

#[test]
fn faults_of_transactions() {
    let second = Duration::from_secs(1);
    let queues = |rig: &Rig<Server>| {
        let data = rig.at(0, DATA);
        Window { address: data.address + DATA, length: OWN - DATA }
    };
    let data = |rig: &Rig<Server>| rig.at(0, DATA);
    for (fault, lie) in [
        (Fault::DropTransaction, Undetected::Data),
        (Fault::DelayTransaction(second), Undetected::No),
        (Fault::DelayTransaction(12 * second), Undetected::No),
        (Fault::MisdirectTransaction(LENGTH), Undetected::Data),
        (Fault::AbortTransaction, Undetected::Data),
    ] {
        for after in [0, 3] {
            let rule = |when| Rule::once(when, fault).after(after);
            let name = format!("{fault:?} after {after}");
            // A missing completion is not a success; missing data may be.
            strike(
                &format!("{name}, write to a queue"),
                |rig| rule(When::Write(queues(rig))),
                Undetected::No,
                Reach::Reset,
            );
            strike(&format!("{name}, write of data"), |rig| rule(When::Write(data(rig))), lie, Reach::Reset);
            strike(
                &format!("{name}, read of data"),
                |rig| rule(When::Read(data(rig))),
                Undetected::No,
                Reach::Reset,
            );
        }
        // All entries are fetched by one read.
        let name = format!("{fault:?}, read of a queue");
        strike(&name, |rig| Rule::once(When::Read(queues(rig)), fault), Undetected::No, Reach::Reset);
    }
}

/// Checks that with a fault in each admin command the controller starts anyway, or is abandoned with a reason.
#[test]
fn faults_while_it_comes_up() {
    let faults = [
        Fault::DropCompletion,
        Fault::DelayCompletion(Duration::from_secs(30)),
        Fault::DuplicateCompletion,
        Fault::WrongPhase,
        Fault::WrongCid(1),
        Fault::WrongQueue(1),
        Fault::WrongHead(17),
        Fault::BadStatus(0x0006),
        Fault::BadStatus(0x4002),
        Fault::ShortDma(4096),
        Fault::MisdirectedDma(1 << 40),
        Fault::LoseCommand,
        Fault::Hang,
        Fault::HangHard,
        Fault::HangBus,
        Fault::Remove,
    ];
    for fault in faults {
        for after in 0..6 {
            for always in [false, true] {
                let mut rig = Rig::new(server(), |_| {});
                let ssd = rig.world.ssd;
                let when = When::Command { queue: Some(0), opcode: None };
                let rule = Rule::once(when, fault).after(after).times(if always { u64::MAX } else { 1 });
                rig.world.fabric.inject(ssd, rule);
                rig.with(|nvme, bus, now| nvme.start(bus, now));
                rig.run();
                if !always
                    && !matches!(
                        fault,
                        Fault::HangHard | Fault::HangBus | Fault::Remove | Fault::BadStatus(_)
                    )
                {
                    let lied = matches!(fault, Fault::ShortDma(_) | Fault::MisdirectedDma(_));
                    assert!(
                        lied || rig.nvme.state() == State::Ready,
                        "{fault:?} after {after}: {:?}",
                        rig.nvme.state()
                    );
                }
                rig.world.fabric.clear_faults(ssd);
                rig.world.fabric.reset(ssd);
                rig.world.fabric.set_bus_master(ssd, true);
                rig.with(|nvme, bus, now| nvme.reset(bus, now));
                rig.run();
                assert_eq!(rig.nvme.state(), State::Ready, "{fault:?} after {after}");
                rig.put(0, &[7; 512]);
                assert_eq!(rig.write(1, 0, 512), Ok(()));
            }
        }
    }
}

#[test]
fn a_controller_that_was_pulled_out_is_known_as_gone() {
    for absent in [dcs_fabric::Absent::Unsupported, dcs_fabric::Absent::Ones] {
        let mut case = Case::new();
        case.submit_all();
        let ssd = case.rig.world.ssd;
        case.rig.world.fabric.absent(absent);
        case.rig.world.fabric.remove(ssd);
        case.rig.run();
        assert_eq!(case.rig.nvme.state(), State::Failed(ResetCause::Gone));
        assert!(
            case.rig
                .ended
                .values()
                .all(|end| end.result == Err(NvmeError::TimedOut) && end.memory == Memory::Held)
        );
        assert!(case.rig.freed.is_empty(), "nobody knows yet that it is quiet");
    }
}
