//! The interposer between the NVMe host and the fabric's controller: without a fault nothing changes; with
//! one, the named command is struck, ends accordingly, and the host works again.

use super::scenarios::{self, Random, Rig, World};
use super::server::{Server, server};
use dcs_drivers::bus::{Bus, ReadDone, Region};
use dcs_drivers::nvme::{Config, Memory, NvmeError, Request, ResetCause, State, Status};
use dcs_fabric::{FaultPlan, Interposer, nvme};

/// Bytes of a command: more than two pages, so that there is a list.
const LENGTH: u64 = 16384;
/// Reads, then as many writes.
const EACH: u64 = 4;

struct Between {
    server: Server,
    interposer: Interposer,
}

impl World for Between {
    fn config(&self) -> Config {
        self.server.config()
    }

    fn memory(&mut self) -> Region {
        self.server.memory()
    }

    fn bus(&mut self, with: &mut dyn FnMut(&mut dyn Bus)) {
        self.server.bus(&mut |bus| with(&mut self.interposer.on(bus)));
    }

    fn now(&self) -> u64 {
        self.server.now()
    }

    fn advance(&mut self, until: Option<u64>) -> Option<ReadDone> {
        let until = [until, self.interposer.deadline()].into_iter().flatten().min();
        let done = self.server.advance(until);
        let now = self.now();
        self.server.bus(&mut |bus| self.interposer.poll(bus, now));
        done.map(|done| self.interposer.answered(done))
    }
}

fn between(server: Server, plans: &[&str]) -> Between {
    let plans: Vec<FaultPlan> = plans.iter().map(|plan| plan.parse().unwrap()).collect();
    let mut interposer = Interposer::new(&plans, 1).unwrap();
    interposer.attach(server.fabric.bar(server.ssd, 0), Some(512));
    Between { server, interposer }
}

#[test]
fn without_a_fault_the_host_finds_the_controller_that_is_there() {
    let without = || between(server(), &[]);
    scenarios::what_was_written_is_read_back(without());
    scenarios::many_commands_are_outstanding(without());
    scenarios::a_reset_under_load(without());
    scenarios::shutdown_and_start(without());
    scenarios::aborted_commands_end(without());
    let strange = nvme::Config { stride: 4, mdts: 0, ..nvme::Config::default() };
    let world = between(Server::new(strange), &[]);
    scenarios::random_requests_against_an_array(world, 1, 30, |config| config.queues = 4);
}

/// Reads and writes, of which one may be struck.
struct Case {
    rig: Rig<Between>,
    contents: Vec<Vec<u8>>,
    began: u64,
}

fn lba(id: u64) -> u64 {
    id * LENGTH / 512
}

/// Contents of memory and medium beforehand.
const BEFORE: u8 = 0xaa;

impl Case {
    fn new(plan: &str) -> Case {
        let mut rig = Rig::ready(between(server(), &[plan]), |_| {});
        let mut random = Random(5);
        let contents: Vec<Vec<u8>> = (0..2 * EACH).map(|_| random.bytes(LENGTH as usize)).collect();
        let medium = rig.world.server.medium();
        (0..EACH).zip(&contents).for_each(|(id, bytes)| medium.store(lba(id) * 512, bytes));
        (EACH..2 * EACH).for_each(|id| medium.store(lba(id) * 512, &vec![BEFORE; LENGTH as usize]));
        for id in 0..2 * EACH {
            let bytes = if id < EACH { vec![BEFORE; LENGTH as usize] } else { contents[id as usize].clone() };
            rig.put(id * LENGTH, &bytes);
        }
        let began = rig.world.now();
        for id in 0..2 * EACH {
            let data = [rig.at(id * LENGTH, LENGTH)];
            let request = if id < EACH {
                Request::Read { lba: lba(id), data: &data }
            } else {
                Request::Write { lba: lba(id), data: &data, durable: false }
            };
            rig.submit(id, &request).unwrap();
        }
        rig.run();
        Case { rig, contents, began }
    }

    /// Returns the data of a command: of a read in memory, of a write on the medium.
    fn found(&mut self, id: u64) -> Vec<u8> {
        let mut bytes = vec![0; LENGTH as usize];
        if id < EACH {
            return self.rig.get(id * LENGTH, LENGTH);
        }
        self.rig.world.server.medium().load(lba(id) * 512, &mut bytes);
        bytes
    }

    /// Checks that all commands but these are right.
    fn others_are_right(&mut self, but: &[u64]) {
        for id in (0..2 * EACH).filter(|id| !but.contains(id)) {
            assert_eq!(self.rig.ended[&id].result, Ok(()), "{id}");
            assert!(self.found(id) == self.contents[id as usize], "{id}");
        }
        let struck: Vec<u64> = self.rig.world.interposer.struck().iter().map(|one| one.struck).collect();
        assert_eq!(struck, [1]);
    }

    fn works_again(&mut self) {
        assert_eq!(self.rig.nvme.state(), State::Ready);
        self.rig.ended.clear();
        self.rig.put(0, &vec![0; LENGTH as usize]);
        assert_eq!(self.rig.read(lba(1), 0, LENGTH), Ok(()));
        assert!(self.rig.get(0, LENGTH) == self.contents[1]);
    }
}

#[test]
fn a_status_is_that_of_a_command_which_was_not_carried_out() {
    for (plan, id, status) in
        [("ssd:read:3:status=0x281", 2, 0x281), ("ssd0:write:1:status=0x080", EACH, 0x80)]
    {
        let mut case = Case::new(plan);
        let end = case.rig.ended[&id];
        assert_eq!((end.result, end.memory), (Err(NvmeError::Status(Status(status))), Memory::Quiet));
        assert!(case.found(id) == vec![BEFORE; LENGTH as usize], "{plan}");
        case.others_are_right(&[id]);
        case.works_again();
    }
}

#[test]
fn a_late_completion_comes_so_much_later_and_tells_of_now() {
    let mut case = Case::new("ssd:read:1:late=20ms");
    case.others_are_right(&[]);
    assert!(case.rig.world.now() >= case.began + 20_000_000);
    assert_eq!(case.rig.nvme.counters().resets, 0, "its submission queue head is believed");
    case.works_again();
}

#[test]
fn a_completion_that_comes_twice_counts_once() {
    let mut case = Case::new("ssd:write:2:twice");
    case.others_are_right(&[]);
    case.works_again();
    assert_eq!(case.rig.nvme.counters().unknown, 1);
}

#[test]
fn a_dropped_completion_ends_with_the_driver_s_patience() {
    let mut case = Case::new("ssd:any:2:drop");
    assert_eq!(case.rig.ended[&1].result, Err(NvmeError::TimedOut));
    // The data arrived; the host was not told.
    assert!(case.found(1) == case.contents[1]);
    case.others_are_right(&[1]);
    assert_eq!(case.rig.nvme.counters().resets, 1);
    case.works_again();
}

#[test]
fn damaged_data_come_with_a_success() {
    let mut case = Case::new("ssd:read:2:corrupt");
    let mut expected = case.contents[1].clone();
    expected[0] ^= 1;
    assert!(case.found(1) == expected);
    assert_eq!(case.rig.ended[&1].result, Ok(()));
    case.others_are_right(&[1]);

    let mut case = Case::new("ssd:write:1:corrupt");
    let mut expected = case.contents[EACH as usize].clone();
    expected[0] ^= 1;
    assert!(case.found(EACH) == expected);
    let memory = case.rig.get(EACH * LENGTH, LENGTH);
    assert!(memory == case.contents[EACH as usize], "the host's own bytes are as they were");
    case.others_are_right(&[EACH]);

    let mut case = Case::new("ssd:read:4:short=5000");
    let mut expected = case.contents[3].clone();
    expected[LENGTH as usize - 5000..].fill(BEFORE);
    assert!(case.found(3) == expected);
    assert_eq!(case.rig.ended[&3].result, Ok(()));
    case.others_are_right(&[3]);
}

#[test]
fn a_hang_ends_with_a_reset() {
    let mut case = Case::new("ssd:write:1:hang");
    // Commands begun before are not reported; those not begun are not done.
    for id in 0..2 * EACH {
        assert!(case.rig.ended[&id].result.is_err(), "{id}");
    }
    for id in EACH..2 * EACH {
        assert!(case.found(id) == vec![BEFORE; LENGTH as usize], "{id}");
    }
    assert_eq!(case.rig.nvme.counters().resets, 1);
    case.works_again();
}

#[test]
fn an_ssd_that_was_pulled_out_is_gone() {
    let mut case = Case::new("ssd:read:1:remove");
    assert!((0..2 * EACH).all(|id| case.rig.ended[&id].result.is_err()));
    assert_eq!(case.rig.nvme.state(), State::Failed(ResetCause::Gone));
    let found: Vec<u8> = (EACH..2 * EACH).flat_map(|id| case.found(id)).collect();
    assert!(found.iter().all(|byte| *byte == BEFORE));
    case.rig.with(|nvme, bus, now| nvme.reset(bus, now));
    case.rig.run();
    assert_eq!(case.rig.nvme.state(), State::Failed(ResetCause::Gone));
}

#[test]
fn what_is_late_is_not_shown_after_a_reset() {
    let mut rig = Rig::ready(between(server(), &["ssd:read:1:late=1s"]), |_| {});
    let data = [rig.at(0, LENGTH)];
    rig.submit(1, &Request::Read { lba: 0, data: &data }).unwrap();
    while rig.world.interposer.deadline().is_none() {
        rig.round();
        let until = rig.nvme.deadline();
        assert_eq!(rig.world.advance(until), None);
    }
    rig.with(|nvme, bus, now| nvme.reset(bus, now));
    rig.run();
    assert_eq!(rig.ended[&1].result, Err(NvmeError::Reset(ResetCause::Asked)));
    assert_eq!(rig.world.interposer.deadline(), None);
    assert_eq!((rig.read(0, 0, LENGTH), rig.nvme.counters().unknown), (Ok(()), 0));
}

#[test]
fn what_cannot_be_had_is_refused_with_what_to_write_instead() {
    for (plan, said) in [
        ("nic:transmit:1:drop", "its plans are for an ssd"),
        ("ssd:read:1:hang=hard", "write hang"),
        ("ssd:write:1:short=512", "write ssd:read"),
        ("ssd:any:1:short=512", "write ssd:read"),
    ] {
        let error = Interposer::new(&[plan.parse().unwrap()], 1).unwrap_err().to_string();
        assert!(error.starts_with(plan) && error.contains(said), "{error}");
    }
}
