//! Every fault of the NVMe model does what it says, and nothing else.

use std::time::Duration;

use crate::host::{Cmd, DATA, Done, Host, pattern};
use dcs_drivers::bus::BusError;
use dcs_fabric::nvme::{Config, Namespace, Nvme};
use dcs_fabric::{Fault, Rule, When};

/// Blocks 0 and on hold a pattern; the card's memory holds another one.
fn host() -> (Host, Namespace) {
    let config = Config::default();
    let namespace = config.namespaces[0].clone();
    namespace.store(0, &pattern(1 << 16, 11));
    let mut host = Host::new(config, 1, 16);
    host.store(DATA, &[0xee; 1 << 16]);
    host.wait(Duration::from_millis(1));
    (host, namespace)
}

fn read(host: &mut Host, fault: Fault) -> (u16, Option<Done>) {
    host.fabric.inject(host.ssd, Rule::once(When::opcode(2), fault));
    let at = host.address(DATA);
    let cid = host.submit(1, Cmd::blocks(2, 0, 16, [at, at + 4096]));
    host.wait(Duration::from_millis(1));
    (cid, host.take(1))
}

/// A further command is done right.
fn still_works(host: &mut Host) {
    let at = host.address(DATA + 0x4000);
    assert_eq!(host.run(1, Cmd::blocks(2, 0, 8, [at, 0])).status, 0);
    assert_eq!(host.load(DATA + 0x4000, 4096), pattern(1 << 16, 11)[..4096]);
}

#[test]
fn completions_are_dropped_delayed_and_doubled() {
    let (mut host, _) = host();
    assert_eq!(read(&mut host, Fault::DropCompletion).1, None);
    assert_eq!(host.load(DATA, 8192), pattern(1 << 16, 11)[..8192]);
    let (cid, done) = read(&mut host, Fault::DelayCompletion(Duration::from_millis(10)));
    assert_eq!(done, None);
    host.wait(Duration::from_millis(11));
    assert_eq!(host.take(1).map(|done| done.cid), Some(cid));
    let (cid, done) = read(&mut host, Fault::DuplicateCompletion);
    assert_eq!(done.map(|done| done.cid), Some(cid));
    assert_eq!(host.take(1).map(|done| done.cid), Some(cid));
    still_works(&mut host);
    assert_eq!(host.fabric.faults_struck(host.ssd), 3);
}

#[test]
fn completions_lie() {
    let (mut host, _) = host();
    let (cid, done) = read(&mut host, Fault::WrongCid(0x8000));
    assert_eq!(done.unwrap().cid, cid ^ 0x8000);
    assert_eq!(read(&mut host, Fault::WrongQueue(6)).1.unwrap().queue, 7);
    assert_eq!(read(&mut host, Fault::WrongHead(100)).1.unwrap().head, 103);
    let (_, done) = read(&mut host, Fault::FalseStatus(0x4281));
    assert_eq!(done.unwrap().status, 0x281);
    assert_eq!(host.load(DATA, 8192), pattern(1 << 16, 11)[..8192]);
    host.store(DATA, &[0xee; 8192]);
    assert_eq!(read(&mut host, Fault::BadStatus(0x281)).1.unwrap().status, 0x281);
    assert_eq!(host.load(DATA, 8192), [0xee; 8192]);
    still_works(&mut host);
}

#[test]
fn a_wrong_phase_hides_a_completion_until_the_next_round() {
    let (mut host, _) = host();
    assert_eq!(read(&mut host, Fault::WrongPhase).1, None);
    // The entry is there, with the old phase.
    let entry = host.load(0x1_0000 + 0x8000 + 0x6000, 16);
    assert_eq!((entry[10], entry[14] & 1), (1, 0));
}

#[test]
fn data_fall_short_go_astray_and_change() {
    let right = pattern(1 << 16, 11);
    let (mut host, namespace) = host();
    assert_eq!(read(&mut host, Fault::ShortDma(100)).1.unwrap().status, 0);
    assert_eq!(host.load(DATA, 8092), right[..8092]);
    assert_eq!(host.load(DATA + 8092, 100), [0xee; 100]);
    host.store(DATA, &[0xee; 1 << 16]);
    assert_eq!(read(&mut host, Fault::MisdirectedDma(0x8000)).1.unwrap().status, 0);
    assert_eq!(host.load(DATA, 8192), [0xee; 8192]);
    assert_eq!(host.load(DATA + 0x8000, 8192), right[..8192]);
    assert_eq!(read(&mut host, Fault::CorruptDma).1.unwrap().status, 0);
    assert_eq!(host.load(DATA, 1)[0], right[0] ^ 1);
    // And on the way to the medium.
    host.fabric.inject(host.ssd, Rule::once(When::Blocks(0..1), Fault::CorruptDma));
    host.store(DATA, &[0x10; 512]);
    let at = host.address(DATA);
    assert_eq!(host.run(1, Cmd::blocks(1, 0, 1, [at, 0])).status, 0);
    let mut held = [0; 2];
    namespace.load(0, &mut held);
    assert_eq!(held, [0x11, 0x10]);
}

#[test]
fn lost_commands_are_not_found_and_stalled_ones_are() {
    let (mut host, _) = host();
    let abort = |host: &mut Host, cid: u16| {
        host.admin(Cmd { opcode: 8, dwords: [u32::from(cid) << 16 | 1, 0, 0, 0, 0, 0], ..Cmd::default() })
            .result
    };
    let (cid, done) = read(&mut host, Fault::LoseCommand);
    assert_eq!((done, abort(&mut host, cid)), (None, 1));
    let (cid, done) = read(&mut host, Fault::StallCommand);
    assert_eq!((done, abort(&mut host, cid)), (None, 0));
    let done = host.next(1).unwrap();
    assert_eq!((done.cid, done.status), (cid, 0x07));
    still_works(&mut host);
}

#[test]
fn a_hung_controller_still_shows_registers_and_a_reset_mends_it() {
    let (mut host, _) = host();
    assert_eq!(read(&mut host, Fault::Hang).1, None);
    host.submit(0, Cmd { opcode: 8, ..Cmd::default() });
    host.wait(Duration::from_millis(10));
    assert_eq!(host.take(0), None);
    assert_eq!(host.register(0x1c), 1);
    host.disable();
    host.enable();
    assert_eq!(host.admin(Cmd { opcode: 8, ..Cmd::default() }).status, 0);
}

#[test]
fn one_that_hangs_hard_needs_a_reset_of_its_function() {
    let (mut host, _) = host();
    assert_eq!(read(&mut host, Fault::HangHard).1, None);
    host.set_register(0x14, 0);
    host.set_register(0x14, 0x0046_0001);
    host.wait(Duration::from_millis(10));
    assert_eq!(host.register(0x1c), 1);
    host.fabric.reset(host.ssd);
    host.fabric.set_bus_master(host.ssd, true);
    host.enable();
}

#[test]
fn a_removed_one_is_gone_and_may_come_back() {
    let (mut host, _) = host();
    assert_eq!(read(&mut host, Fault::Remove).1, None);
    let at = host.fabric.bar(host.ssd, 0).address;
    assert_eq!(host.fabric.read(host.card, at, 4), Err(BusError::Unsupported));
    host.fabric.reset(host.ssd);
    host.fabric.set_bus_master(host.ssd, true);
    assert_eq!(host.fabric.device::<Nvme>(host.ssd).outstanding(), 0);
    host.enable();
}
