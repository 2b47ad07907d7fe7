//! The fault matrix of the NIC, as `faults` is the SSD's: faults in its rings, on its bus and on its wire harm its own connections, and
//! nothing else. In every cell: a success has the right bytes; a failure names its end of the transfer, and the delivered bytes are the
//! beginning; the neighbour, which does not use the NIC, is not affected; nothing stays lent out; and afterwards new connections carry
//! data: at once, or after the NIC was attached again, or after a reset of its function.
//!
//! Lies that no host can detect are in [`lies_about_the_data_harm_nobody_else`].

use crate::rig::{CARD, End, FREE, Rig, Transfer};
use crate::transfers::{data, digest};
use dcs_abi::admin::{AdminEntry, opcode};
use dcs_abi::operator::Operator::Md5;
use dcs_abi::status::{Stage, Status};
use dcs_card::card::Config;
use dcs_drivers::bus::Window;
use dcs_fabric::nic::Family;
use dcs_fabric::{Fault, Rule, When, Wire};
use std::time::Duration;

const LENGTH: usize = 200_192;
const PORT: u16 = 80;
const SECOND: u64 = 1_000_000_000;
/// Time limit that suffices to detect and reset a NIC that hangs, and to resend what it lost.
const TIMEOUT_MS: u32 = 40_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// SSD to NIC.
    Out,
    /// NIC to SSD.
    In,
}

/// The step that makes the NIC work again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Nothing,
    Attach,
    Reset,
}

fn server(family: Family) -> Rig {
    let mut rig = Rig::ready(Config { key: [7; 16], ..Config::default() }, 2);
    assert_eq!(rig.plug(family, Wire::default()), Ok(4));
    assert_eq!(rig.command(opcode::LISTEN, &[4, PORT.into()]), Ok((5, 0)));
    rig
}

/// Makes a connection to a listening port, if possible.
fn connection(rig: &mut Rig, listener: u32, port: u16, from: u16) -> Option<(u32, usize)> {
    let stream = rig.net().connect((CARD, port), from);
    let words = [listener, 0, 0, 0, 0, 0];
    rig.push_admin(AdminEntry { opcode: opcode::ACCEPT, words, ..Default::default() });
    let (mut answer, end) = (None, rig.now() + 30 * SECOND);
    rig.run_until(|rig| {
        answer = rig.reap_admin();
        answer.is_some() || rig.now() > end
    });
    let answer = answer.filter(|answer| answer.status >> 1 == 0)?;
    Some((answer.value, stream))
}

/// Runs a transfer over a connection, in parallel with an unrelated one. Returns its status; checks everything that was reported, except
/// the bytes if `lies`.
fn exchange(rig: &mut Rig, way: Way, (flow, stream): (u32, usize), lies: bool, what: &str) -> Status {
    let (bytes, other) = (data(LENGTH, 61), data(LENGTH, 62));
    rig.ssds[0].1.store(4096, &if way == Way::Out { bytes.clone() } else { vec![0; LENGTH] });
    rig.ssds[1].1.store(0, &other);
    let ssd = End::ssd(2, &[(4096, LENGTH as u64)]);
    let (source, destination, stage) = match way {
        Way::Out => (ssd, End::flow(flow), Stage::Destination),
        Way::In => (End::flow(flow), ssd, Stage::Source),
    };
    if way == Way::In {
        rig.stream(stream).to_send = bytes.clone();
    }
    let transfer =
        Transfer { length: LENGTH as u64, timeout_ms: TIMEOUT_MS, ..Transfer::new(source, destination) };
    let neighbour = Transfer::new(End::ssd(3, &[(0, LENGTH as u64)]), End::memory(1, FREE, LENGTH as u64));
    let victim = rig.submit(&transfer.through(&[(Md5, &[])]));
    let neighbours: Vec<u16> = (0..3).map(|_| rig.submit(&neighbour)).collect();
    for neighbour in neighbours {
        assert_eq!(rig.wait(neighbour).status(), Status::Success, "{what}: the neighbour");
    }
    assert!(rig.load(FREE, LENGTH) == other, "{what}: the neighbour");
    let ended = rig.wait(victim);
    let delivered = ended.entry.delivered.value() as usize;
    if ended.status().is_success() {
        assert_eq!(delivered, LENGTH, "{what}");
    } else {
        assert_eq!(ended.entry.stage(), stage, "{what}: {}", ended.status());
    }
    let end = rig.now() + 60 * SECOND;
    let there = match way {
        Way::Out => {
            rig.run_until(|rig| rig.stream(stream).got.len() >= delivered || rig.now() > end);
            rig.stream(stream).got.clone()
        }
        Way::In => {
            let mut there = vec![0; delivered];
            rig.ssds[0].1.load(4096, &mut there);
            there
        }
    };
    if !lies {
        assert!(there.len() <= LENGTH && there == bytes[..there.len()], "{what}: the beginning arrived");
        if ended.status().is_success() {
            assert_eq!(there.len(), LENGTH, "{what}: all of it arrived");
            assert_eq!(ended.digest(0), digest(Md5, &bytes), "{what}");
        }
    }
    ended.status()
}

/// Takes steps until new connections carry data again; returns the last one.
fn mend(rig: &mut Rig, family: Family, way: Way, what: &str) -> After {
    let nic = rig.nic.as_ref().unwrap().0;
    let mut listener = 5;
    for (after, port) in [(After::Nothing, PORT), (After::Attach, 81), (After::Reset, 82)] {
        if after == After::Reset {
            rig.fabric.reset(nic);
            rig.fabric.set_bus_master(nic, true);
        }
        if after != After::Nothing {
            match rig.attach_nic(family) {
                Ok(nic) => listener = rig.command(opcode::LISTEN, &[nic, port.into()]).unwrap().0,
                Err(status) => {
                    assert_eq!((status, after), (Status::DeviceReset, After::Attach), "{what}");
                    continue;
                }
            }
        }
        if let Some(connection) = connection(rig, listener, port, 5000 + port) {
            assert_eq!(exchange(rig, way, connection, false, what), Status::Success, "{what}: {after:?}");
            return after;
        }
        // Waiting commands are answered.
        let words = [listener, 0, 0, 0, 0, 0];
        rig.push_admin(AdminEntry { opcode: opcode::RELEASE, words, ..Default::default() });
        let end = rig.now() + SECOND;
        rig.run_until(|rig| {
            _ = rig.reap_admin();
            rig.now() > end
        });
    }
    panic!("{what}: the NIC stays broken");
}

/// Injects a fault into a connection's transfer; returns its status, and the step that made the NIC work again.
fn cell(family: Family, way: Way, (when, fault): (When, Fault), nth: u64, lies: bool) -> (Status, After) {
    let what = format!("{way:?}: {fault:?} at {when:?} {nth}");
    let mut rig = server(family);
    let nic = rig.nic.as_ref().unwrap().0;
    let pair = rig.accepted(5, PORT, 5000);
    rig.fabric.inject(nic, Rule::once(when, fault).after(nth));
    let status = exchange(&mut rig, way, pair, lies, &what);
    assert_eq!(rig.fabric.faults_struck(nic), 1, "{what}: the fault was injected");
    rig.fabric.clear_faults(nic);
    let after = mend(&mut rig, family, way, &what);
    rig.command(opcode::RELEASE, &[pair.0]).unwrap();
    rig.assert_idle();
    (status, after)
}

/// Returns the results that a fault may lead to.
fn ends(way: Way, fault: Fault) -> &'static [(Status, After)] {
    const MENDED: (Status, After) = (Status::Success, After::Nothing);
    match (way, fault) {
        (_, Fault::Remove) => &[(Status::DeviceReset, After::Reset)],
        // It is detected and given up, or nothing is to be sent and the transfer times out.
        (_, Fault::HangHard) => &[(Status::DeviceReset, After::Reset), (Status::Timeout, After::Reset)],
        // A transfer that waits for a NIC without sending anything can't detect it.
        (Way::In, Fault::Hang) => &[MENDED, (Status::Timeout, After::Attach)],
        _ => &[MENDED],
    }
}

fn matrix(way: Way, when: When, faults: &[Fault]) {
    for fault in faults {
        for nth in [0, 9] {
            let end = cell(Family::Igb, way, (when.clone(), *fault), nth, false);
            assert!(ends(way, *fault).contains(&end), "{way:?}: {fault:?} at {when:?} {nth}: {end:?}");
        }
    }
}

/// Faults that affect the NIC as a whole.
const WHOLE: [Fault; 4] = [Fault::Hang, Fault::HangHard, Fault::HangBus, Fault::Remove];
/// Write-backs that are lost, late, or repeated.
const TOLD: [Fault; 4] = [
    Fault::DropCompletion,
    Fault::DelayCompletion(Duration::from_millis(50)),
    Fault::DelayCompletion(Duration::from_secs(20)),
    Fault::DuplicateCompletion,
];
/// Write-backs that lie.
const STORED: [Fault; 6] = [
    Fault::WrongLength(0),
    Fault::WrongLength(60),
    Fault::WrongLength(1500),
    Fault::WrongLength(2048),
    Fault::WrongLength(60_000),
    Fault::ReceiveError,
];
const BUS: [Fault; 3] =
    [Fault::DropTransaction, Fault::DelayTransaction(Duration::from_millis(20)), Fault::AbortTransaction];
const ALL: Window = Window { address: 0, length: u64::MAX };

#[test]
fn every_fault_of_the_rings_while_it_sends() {
    matrix(Way::Out, When::Fetch, &WHOLE);
    matrix(Way::Out, When::Fetch, &TOLD);
    matrix(Way::Out, When::Store, &WHOLE);
    matrix(Way::Out, When::Store, &TOLD);
    matrix(Way::Out, When::Store, &STORED);
}

#[test]
fn every_fault_of_the_rings_while_it_receives() {
    matrix(Way::In, When::Fetch, &WHOLE);
    matrix(Way::In, When::Fetch, &TOLD);
    matrix(Way::In, When::Store, &WHOLE);
    matrix(Way::In, When::Store, &TOLD);
    matrix(Way::In, When::Store, &STORED);
}

#[test]
fn every_fault_of_the_nic_s_transactions() {
    for way in [Way::Out, Way::In] {
        for when in [When::Read(ALL), When::Write(ALL)] {
            matrix(way, when.clone(), &BUS);
            matrix(way, when, &[Fault::HangBus, Fault::Remove]);
        }
    }
}

/// Injects faults into single frames. Frames that are lost, duplicated, late or damaged are tested in `flows`.
#[test]
fn a_nic_that_goes_with_a_frame() {
    for way in [Way::Out, Way::In] {
        for when in [When::Transmit, When::Receive] {
            matrix(way, when, &[Fault::Hang, Fault::HangHard, Fault::Remove]);
        }
    }
}

/// Repeats the matrix with the older NIC, whose rings differ.
#[test]
fn the_other_nic_s_rings_too() {
    for way in [Way::Out, Way::In] {
        let faults = [
            Fault::DropCompletion,
            Fault::DuplicateCompletion,
            Fault::WrongLength(60_000),
            Fault::ReceiveError,
        ];
        for fault in faults {
            let end = cell(Family::E1000e, way, (When::Store, fault), 3, false);
            assert_eq!(end, (Status::Success, After::Nothing), "{way:?}: {fault:?}");
        }
    }
}

/// Has a NIC move other bytes than it reports, with valid checksums, which nothing on the way can detect. It harms its own connection, and
/// works afterwards.
#[test]
fn lies_about_the_data_harm_nobody_else() {
    let lies = [Fault::CorruptDma, Fault::ShortDma(100), Fault::MisdirectedDma(1 << 40)];
    for way in [Way::Out, Way::In] {
        for when in [When::Fetch, When::Store] {
            for fault in lies {
                let (_, after) = cell(Family::Igb, way, (when.clone(), fault), 9, true);
                assert_ne!(after, After::Reset, "{way:?}: {fault:?} at {when:?}");
            }
        }
        for when in [When::Read(ALL), When::Write(ALL)] {
            let fault = Fault::MisdirectTransaction(1 << 40);
            let (_, after) = cell(Family::Igb, way, (when.clone(), fault), 9, true);
            assert_ne!(after, After::Reset, "{way:?}: {fault:?} at {when:?}");
        }
    }
}
