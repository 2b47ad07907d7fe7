//! The fault matrix: a faulty SSD harms its own commands, and no others. In every cell: a success has the right bytes; a failure names its
//! stage; the neighbour's transfer is not affected; nothing stays lent out; and afterwards the SSD works again, at once or after a reset,
//! if it is still there.
//!
//! Faults that no host can detect are tested elsewhere: an SSD that moves wrong bytes and reports success. The digest is then that of the
//! bytes that were moved ([`a_lie_about_the_data_shows_in_the_digest`]).

use crate::rig::{End, FREE, Rig, Transfer};
use crate::transfers::data;
use dcs_abi::entry::FLAG_DURABLE;
use dcs_abi::operator::Operator::Md5;
use dcs_abi::status::{Stage, Status};
use dcs_card::card::Config;
use dcs_drivers::bus::Window;
use dcs_fabric::{Fault, Rule, When, nvme};
use std::time::Duration;

const LENGTH: u64 = 300_032;

/// NVMe opcodes.
const FLUSH: u8 = 0;
const WRITE: u8 = 1;
const READ: u8 = 2;

/// The state of the SSD after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// The SSD works, perhaps after the card has reset it.
    Works,
    /// The SSD works once its function was reset and it was attached again.
    NeedsReset,
    /// The SSD is gone.
    Gone,
}

fn config() -> Config {
    let mut config = Config::default();
    config.nvme.timeout = 200_000_000;
    config.nvme.admin_timeout = 100_000_000;
    config
}

/// Returns every fault of a command, the status that it leads to (`None`: success), and the state afterwards.
fn faults(opcode: u8) -> Vec<(Fault, Option<Status>, After)> {
    use After::*;
    let failed = if opcode == READ { Status::ReadError } else { Status::WriteError };
    let reset = Some(Status::DeviceReset);
    vec![
        (Fault::DropCompletion, reset, Works),
        (Fault::DelayCompletion(Duration::from_millis(50)), None, Works),
        // Too late, but before the reset.
        (Fault::DelayCompletion(Duration::from_millis(250)), None, Works),
        (Fault::DelayCompletion(Duration::from_millis(800)), reset, Works),
        (Fault::DuplicateCompletion, None, Works),
        (Fault::WrongPhase, reset, Works),
        (Fault::WrongCid(0x100), reset, Works),
        (Fault::WrongQueue(4), reset, Works),
        (Fault::WrongHead(40), reset, Works),
        (Fault::BadStatus(0x281), Some(failed), Works),
        (Fault::BadStatus(0x080), Some(Status::OutOfRange), Works),
        (Fault::FalseStatus(0x006), Some(failed), Works),
        (Fault::LoseCommand, reset, Works),
        (Fault::StallCommand, reset, Works),
        (Fault::Hang, reset, Works),
        (Fault::HangHard, reset, NeedsReset),
        // No register is read while there is no fault.
        (Fault::HangBus, None, Works),
        (Fault::Remove, reset, Gone),
    ]
}

/// Returns a transfer that has the SSD of handle 2 do this, and its stage.
fn victim(opcode: u8) -> (Transfer, Stage) {
    let ssd = End::ssd(2, &[(4096, LENGTH)]);
    let memory = End::memory(1, FREE, LENGTH);
    match opcode {
        READ => (Transfer::new(ssd, memory).through(&[(Md5, &[])]), Stage::Source),
        _ => {
            let transfer = Transfer::new(memory, ssd).through(&[(Md5, &[])]);
            (Transfer { flags: FLAG_DURABLE, ..transfer }, Stage::Destination)
        }
    }
}

/// Runs a victim and a neighbour in parallel; checks the results of both.
fn run(rig: &mut Rig, opcode: u8, expected: Option<(Status, Stage)>, what: &str) {
    let (bytes, other) = (data(LENGTH as usize, 11), data(LENGTH as usize, 12));
    let (victim, _) = victim(opcode);
    if opcode == READ {
        rig.ssds[0].1.store(4096, &bytes);
        rig.store(FREE, &vec![0; LENGTH as usize]);
    } else {
        rig.store(FREE, &bytes);
    }
    rig.ssds[1].1.store(0, &other);
    let neighbour = Transfer::new(End::ssd(3, &[(0, LENGTH)]), End::memory(1, 2 * FREE, LENGTH));
    let victim = rig.submit(&victim);
    let neighbours: Vec<u16> = (0..3).map(|_| rig.submit(&neighbour)).collect();
    let ended = rig.wait(victim);
    let end = (ended.status(), ended.entry.stage());
    assert_eq!(end, expected.unwrap_or((Status::Success, Stage::None)), "{what}");
    let delivered = ended.entry.delivered.value() as usize;
    let mut there = vec![0; delivered];
    if opcode == READ {
        there = rig.load(FREE, delivered);
    } else {
        rig.ssds[0].1.load(4096, &mut there);
    }
    assert!(there == bytes[..delivered], "{what}: the delivered bytes are the beginning");
    assert!(expected.is_some() || delivered == LENGTH as usize, "{what}");
    for neighbour in neighbours {
        let ended = rig.wait(neighbour);
        assert_eq!(ended.status(), Status::Success, "{what}: the neighbour");
    }
    assert!(rig.load(2 * FREE, LENGTH as usize) == other, "{what}: the neighbour");
}

fn cell(opcode: u8, nth: u64, fault: Fault, expected: Option<Status>, after: After) {
    let what = format!("{fault:?} at command {nth} of opcode {opcode}");
    let mut rig = Rig::ready(config(), 2);
    let ssd = rig.ssds[0].0;
    rig.fabric.inject(ssd, Rule::once(When::opcode(opcode), fault).after(nth));
    let stage = victim(opcode).1;
    run(&mut rig, opcode, expected.map(|status| (status, stage)), &what);
    assert_eq!(rig.fabric.faults_struck(ssd), 1, "{what}: the fault was injected");
    rig.fabric.clear_faults(ssd);
    match after {
        After::Works => run(&mut rig, opcode, None, &format!("after {what}")),
        After::NeedsReset | After::Gone => {
            run(&mut rig, opcode, Some((Status::DeviceReset, stage)), &format!("after {what}"));
        }
    }
    if after == After::NeedsReset {
        rig.fabric.reset(ssd);
        rig.fabric.set_bus_master(ssd, true);
        let handle = rig.attach(0).unwrap_or_else(|status| panic!("{what}: {status}"));
        assert_ne!(handle, 2, "another handle for the same SSD");
        run(&mut rig, opcode, None, &format!("after a reset after {what}"));
    }
    if after != After::Gone {
        rig.assert_idle();
    }
}

#[test]
fn every_fault_of_a_read() {
    for (fault, expected, after) in faults(READ) {
        for nth in [0, 3] {
            cell(READ, nth, fault, expected, after);
        }
    }
}

#[test]
fn every_fault_of_a_write() {
    for (fault, expected, after) in faults(WRITE) {
        for nth in [0, 3] {
            cell(WRITE, nth, fault, expected, after);
        }
    }
}

#[test]
fn every_fault_of_a_flush() {
    for (fault, expected, after) in faults(FLUSH) {
        // A flush has no out of range status.
        if !matches!(fault, Fault::BadStatus(0x080)) {
            cell(FLUSH, 0, fault, expected, after);
        }
    }
}

/// Loses, delays and misdirects writes of the SSD over the bus.
#[test]
fn every_fault_of_the_ssd_s_transactions() {
    let all = Window { address: 0, length: u64::MAX };
    let cases = [
        (When::Write(all), Fault::DelayTransaction(Duration::from_millis(20)), None),
        (When::Read(all), Fault::DelayTransaction(Duration::from_millis(20)), None),
        // A failed read of an entry is fatal to the controller, which reports it.
        (When::Read(all), Fault::AbortTransaction, Some((Status::DeviceReset, Stage::Source))),
        (When::Read(all), Fault::DropTransaction, Some((Status::DeviceReset, Stage::Source))),
    ];
    for (when, fault, expected) in cases {
        let mut rig = Rig::ready(config(), 2);
        let ssd = rig.ssds[0].0;
        rig.fabric.inject(ssd, Rule::once(when.clone(), fault));
        run(&mut rig, READ, expected, &format!("{fault:?} at {when:?}"));
        assert_eq!(rig.fabric.faults_struck(ssd), 1);
        run(&mut rig, READ, None, &format!("after {fault:?} at {when:?}"));
        rig.assert_idle();
    }
}

#[test]
fn a_lie_about_the_data_shows_in_the_digest() {
    let mut rig = Rig::ready(config(), 2);
    let ssd = rig.ssds[0].0;
    rig.fabric.inject(ssd, Rule::once(When::opcode(READ), Fault::CorruptDma));
    let bytes = data(LENGTH as usize, 11);
    rig.ssds[0].1.store(4096, &bytes);
    let ended = rig.run(&victim(READ).0);
    assert_eq!(ended.status(), Status::Success, "the fault is not detectable");
    let there = rig.load(FREE, LENGTH as usize);
    assert!(there != bytes);
    let md5 = |bytes: &[u8]| {
        let mut context = dcs_ndp::Context::new(Md5, &[]).unwrap();
        context.absorb(bytes);
        context.value().unwrap().as_bytes().to_vec()
    };
    assert_eq!(ended.digest(0), md5(&there), "the digest is that of what was delivered");
    assert_ne!(ended.digest(0), md5(&bytes), "so the digest shows it");
}

/// Loses a command of the SSD, so that it is unknown if it may still write: its block stays out of use until the SSD is reset.
#[test]
fn an_ssd_that_cannot_be_stopped_keeps_its_blocks_and_harms_no_other() {
    let mut rig = Rig::ready(config(), 2);
    let ssd = rig.ssds[0].0;
    rig.fabric.inject(ssd, Rule::once(When::opcode(READ), Fault::HangBus));
    rig.fabric.inject(ssd, Rule::once(When::opcode(READ), Fault::LoseCommand).after(1));
    let failed = Some((Status::DeviceReset, Stage::Source));
    run(&mut rig, READ, failed, "a command is lost, and no register is to be read");
    run(&mut rig, READ, failed, "given up");
    assert!(!rig.card.engine().is_idle(), "blocks are with the SSD");
    let half = rig.card.config().engine.blocks / 2;
    assert!(rig.card.engine().blocks_free() >= half, "half of all blocks at most");
    rig.fabric.clear_faults(ssd);
    rig.fabric.reset(ssd);
    rig.fabric.set_bus_master(ssd, true);
    rig.attach(0).unwrap();
    rig.assert_idle();
    run(&mut rig, READ, None, "after a reset of the function");
}

/// Lets an SSD come back from a reset with larger logical blocks than a transfer was begun with. None of its bytes go to the wrong place;
/// it works once it is attached with its new block size.
#[test]
fn an_ssd_that_comes_back_as_another_one() {
    for opcode in [READ, WRITE] {
        let mut rig = Rig::ready(config(), 2);
        let ssd = rig.ssds[0].0;
        rig.fabric.inject(ssd, Rule::once(When::opcode(opcode), Fault::Hang));
        let (transfer, stage) = victim(opcode);
        let cid = rig.submit(&transfer);
        assert!(rig.run_until(|rig| rig.fabric.faults_struck(ssd) == 1));
        rig.fabric.device::<nvme::Nvme>(ssd).format(1, nvme::Namespace::new(1 << 14, 12));
        let ended = rig.wait(cid);
        assert_eq!((ended.status(), ended.entry.stage()), (Status::DeviceReset, stage));
        run(&mut rig, opcode, Some((Status::DeviceReset, stage)), "as it is");
        rig.assert_idle();
        let bar = rig.fabric.bar(ssd, 0);
        let words = [bar.length as u32, 0, 0, 0, 0, 0];
        let opcode = dcs_abi::admin::opcode::ATTACH_SSD;
        let entry =
            dcs_abi::admin::AdminEntry { opcode, data_address: bar.address, words, ..Default::default() };
        let (handle, size) = rig.admin(entry).unwrap();
        assert_eq!(size, 4096);
        let ended =
            rig.run(&Transfer::new(End::ssd(handle, &[(8192, 65_536)]), End::memory(1, FREE, 65_536)));
        assert_eq!(ended.status(), Status::Success);
    }
}

#[test]
fn an_ssd_that_goes_during_many_transfers_fails_each_once() {
    let mut rig = Rig::ready(config(), 2);
    let transfers: Vec<u16> = (0..20).map(|_| rig.submit(&victim(READ).0)).collect();
    let ssd = rig.ssds[0].0;
    rig.fabric.inject(ssd, Rule::once(When::opcode(READ), Fault::Remove).after(17));
    let mut failed = 0;
    for cid in transfers {
        let ended = rig.wait(cid);
        match ended.status() {
            Status::Success => {}
            status => {
                assert_eq!((status, ended.entry.stage()), (Status::DeviceReset, Stage::Source));
                failed += 1;
            }
        }
    }
    assert!(failed > 10, "{failed}");
    run(&mut rig, READ, Some((Status::DeviceReset, Stage::Source)), "it is gone");
}

#[test]
fn a_transfer_is_cancelled_while_its_ssd_hangs() {
    let mut rig = Rig::ready(config(), 2);
    let ssd = rig.ssds[0].0;
    rig.fabric.inject(ssd, Rule::once(When::opcode(READ), Fault::StallCommand));
    let transfer = Transfer { timeout_ms: 20, ..victim(READ).0 };
    let ended = rig.run(&transfer);
    assert_eq!((ended.status(), ended.entry.stage()), (Status::Timeout, Stage::Source));
    assert!(ended.took < 150_000_000, "an abort is enough: {}", ended.took);
    rig.assert_idle();
    run(&mut rig, READ, None, "afterwards");
}

#[test]
fn an_ssd_that_is_not_one_is_refused() {
    let mut rig = Rig::ready(config(), 2);
    let mute = nvme::Nvme::new(nvme::Config::default());
    let id = rig.fabric.add_device("mute", dcs_fabric::Rate::GEN3_X4, mute);
    rig.fabric.set_bus_master(id, true);
    // Identify.
    rig.fabric.inject(id, Rule::always(When::opcode(6), Fault::DropCompletion));
    rig.ssds.push((id, nvme::Namespace::new(1, 9)));
    assert_eq!(rig.attach(2), Err(Status::DeviceReset));
    // Host memory is not a controller.
    let entry = |address, length| dcs_abi::admin::AdminEntry {
        opcode: dcs_abi::admin::opcode::ATTACH_SSD,
        data_address: address,
        words: [length, 0, 0, 0, 0, 0],
        ..Default::default()
    };
    assert_eq!(rig.admin(entry(0x10_0000, 0x4000)), Err(Status::DeviceReset));
    let own = rig.fabric.bar(rig.card_id, 1).address;
    for (address, length) in [(own, 0x4000), (0x1001, 0x4000), (u64::MAX - 0xfff, 0x4000), (0x8000, 8)] {
        assert_eq!(rig.admin(entry(address, length)), Err(Status::InvalidField), "{address:#x}");
    }
    run(&mut rig, READ, None, "the others work");
}
