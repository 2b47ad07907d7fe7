//! Tests of a card with several functions: each has a host of its own, whose memory the others cannot reach, and a part of the SSD.

use crate::rig::{End, FREE, HOST_MEMORY, Rig, Transfer};
use crate::transfers::data;
use dcs_abi::admin::{AdminEntry, GRANT_READ, GRANT_WRITE, LentPart, SsdIdentity, SsdIdentityPacket, opcode};
use dcs_abi::operator::Operator::{self, Crc32, Md5};
use dcs_abi::status::Status;
use dcs_card::card::{Card, CardError, Config};
use dcs_card::costs::Costs;
use dcs_drivers::bus::Window;
use dcs_fabric::{Fabric, Fault, Rate, Rule, Timing, When};
use dcs_testkit::Random;
use std::time::Duration;

/// Bytes of a function's part, and of a transfer.
const PART: u64 = 4 << 20;
const LENGTH: u64 = crate::core::SEVERAL;

/// First byte of a function's part on the SSD.
fn first(function: usize) -> u64 {
    (8 * (function as u64 + 1)) << 20
}

fn config(functions: usize) -> Config {
    let mut config = Config { functions, costs: Costs::FPGA, ..Config::default() };
    config.engine.queues *= functions as u16;
    // An engine has two of each for a queue.
    config.engine.commands = config.engine.commands.max(2 * config.engine.queues);
    config.engine.blocks = config.engine.blocks.max(config.engine.commands.into());
    config
}

fn lend(rig: &mut Rig, function: usize, grants: u32) -> Result<(u32, u32), Status> {
    let part = LentPart {
        ssd: 2,
        function: function as u16,
        grants: grants as u16,
        first: first(function),
        length: PART,
    };
    rig.on(0).admin(part.entry())
}

/// Brings up a function's host, with all of its memory (handle 1), a queue, and its part (handle 2).
fn bring_up(rig: &mut Rig, function: usize) {
    rig.on(function).enable();
    assert_eq!(rig.grant(0, HOST_MEMORY), 1);
    rig.create_queues().unwrap();
    assert_eq!(rig.command(opcode::OPEN_PART, &[0]), Ok((2, 512)));
}

/// A server whose SSD is attached to function 0 and lent to all others, which are up.
fn ready(functions: usize) -> Rig {
    ready_with(config(functions), functions)
}

fn ready_with(config: Config, functions: usize) -> Rig {
    let mut rig = Rig::ready(config, 1);
    for function in 1..functions {
        assert_eq!(lend(&mut rig, function, GRANT_READ | GRANT_WRITE), Ok((2 + function as u32, 0)));
        bring_up(&mut rig, function);
    }
    rig
}

fn read() -> Transfer {
    Transfer::new(End::ssd(2, &[(512, LENGTH)]), End::memory(1, FREE, LENGTH)).through(&[(Md5, &[])])
}

/// Puts bytes of its own into each function's part; function 0's are read by it from the same place of the SSD.
fn fill(rig: &mut Rig, function: usize) -> Vec<u8> {
    let bytes = data(LENGTH as usize, 100 + function as u64);
    let from = if function == 0 { 0 } else { first(function) };
    rig.ssds[0].1.store(from + 512, &bytes);
    bytes
}

/// Runs a transfer of a function, and checks its bytes.
fn works(rig: &mut Rig, function: usize) {
    let bytes = fill(rig, function);
    rig.on(function).store(FREE, &vec![0; LENGTH as usize]);
    assert_eq!(rig.run(&read()).status(), Status::Success, "function {function}");
    assert!(rig.load(FREE, LENGTH as usize) == bytes, "function {function}");
}

fn steps(rig: &mut Rig, count: usize) {
    (0..count).for_each(|_| _ = rig.step());
}

#[test]
fn each_function_has_its_own_memory_queues_interrupts_and_part() {
    let mut rig = ready(4);
    let wanted: Vec<_> = (0..4).map(|function| fill(&mut rig, function)).collect();
    let interrupts =
        |rig: &Rig| rig.functions.iter().map(|at| rig.fabric.interrupts(*at, 1)).collect::<Vec<_>>();
    let before = interrupts(&rig);
    let cids: Vec<u16> = (0..4).map(|function| rig.on(function).submit(&read())).collect();
    for function in 0..4 {
        let ended = rig.on(function).wait(cids[function]);
        assert_eq!(ended.status(), Status::Success);
        assert!(rig.load(FREE, LENGTH as usize) == wanted[function]);
    }
    let more: Vec<u64> = interrupts(&rig).iter().zip(before).map(|(now, before)| now - before).collect();
    assert_eq!(more, [1; 4]);
    // Each writes its part back, a block further: handles and places are the same numbers for all.
    for (function, bytes) in wanted.iter().enumerate().skip(1) {
        let write = Transfer::new(End::memory(1, FREE, LENGTH), End::ssd(2, &[(1 << 20, LENGTH)]));
        assert_eq!(rig.on(function).run(&write).status(), Status::Success);
        let mut there = vec![0; LENGTH as usize];
        rig.ssds[0].1.load(first(function) + (1 << 20), &mut there);
        assert!(there == *bytes);
    }
    for at in rig.functions.clone() {
        assert_eq!(rig.fabric.take_refused(at), []);
    }
    rig.assert_idle();
}

#[test]
fn a_part_is_all_that_a_function_reaches_of_an_ssd() {
    let mut rig = ready(3);
    rig.on(1);
    for (offset, length) in [(PART, 512), (PART - 512, 1024), (u64::MAX - 1023, 512), (1 << 40, 512)] {
        let beyond = End::ssd(2, &[(0, 512), (offset, length)]);
        let there = End::memory(1, FREE, 512 + length.min(1024));
        let ended = rig.run(&Transfer { length: 512, ..Transfer::new(beyond.clone(), there.clone()) });
        assert_eq!(ended.status(), Status::OutOfRange, "{offset:#x}");
        let ended = rig.run(&Transfer { length: 512, ..Transfer::new(there, beyond) });
        assert_eq!(ended.status(), Status::OutOfRange, "{offset:#x}");
    }
    let identity = |rig: &mut Rig| {
        let ask = AdminEntry { opcode: opcode::IDENTIFY_SSD, data_address: FREE, ..Default::default() };
        rig.admin(AdminEntry { words: [2, 0, 0, 0, 0, 0], ..ask }).unwrap();
        let bytes = rig.load(FREE, SsdIdentity::SIZE);
        SsdIdentity::parse(&SsdIdentityPacket::new_checked(&bytes[..]).unwrap()).unwrap()
    };
    let mine = identity(&mut rig);
    assert_eq!((mine.block_size, mine.blocks, mine.nsid), (512, PART / 512, 0));
    assert_eq!((mine.nguid, mine.eui64, mine.serial), ([0; 16], [0; 8], [b' '; 20]));
    assert_eq!(identity(rig.on(0)).blocks, 1 << 17);
    // It has no other devices, and makes none.
    let bar = rig.fabric.bar(rig.ssds[0].0, 0);
    for code in [opcode::ATTACH_SSD, opcode::ATTACH_NIC, opcode::LEND_SSD, opcode::LISTEN, opcode::DATAGRAMS]
    {
        let words = [bar.length as u32, 0, 0, 0, 0, 0];
        let entry = AdminEntry { opcode: code, data_address: bar.address, words, ..Default::default() };
        assert_eq!(rig.on(1).admin(entry), Err(Status::InvalidOpcode), "{code:#x}");
    }
    assert_eq!(rig.command(opcode::OPEN_PART, &[1]), Err(Status::InvalidField));
    assert_eq!(rig.command(opcode::OPEN_PART, &[u32::MAX]), Err(Status::InvalidField));
    assert_eq!(rig.on(0).command(opcode::OPEN_PART, &[0]), Err(Status::InvalidField));
    works(&mut rig, 1);
}

#[test]
fn what_cannot_be_lent_is_refused_and_what_is_lent_is_taken_back() {
    let mut rig = Rig::ready(config(2), 1);
    let good = LentPart { ssd: 2, function: 1, grants: 1, first: first(1), length: PART };
    for (part, status) in [
        (LentPart { ssd: 1, ..good }, Status::BadHandle),
        (LentPart { ssd: 9, ..good }, Status::BadHandle),
        (LentPart { function: 0, ..good }, Status::InvalidField),
        (LentPart { function: 2, ..good }, Status::InvalidField),
        (LentPart { grants: 4, ..good }, Status::InvalidField),
        (LentPart { first: 100, ..good }, Status::InvalidField),
        (LentPart { length: 100, ..good }, Status::InvalidField),
        (LentPart { length: 0, ..good }, Status::InvalidField),
        (LentPart { length: 64 << 20, ..good }, Status::OutOfRange),
        (LentPart { first: 1 << 63, length: 1 << 63, ..good }, Status::OutOfRange),
    ] {
        assert_eq!(rig.admin(part.entry()), Err(status), "{part:?}");
    }
    assert_eq!(rig.admin(good.entry()), Ok((3, 0)));
    bring_up(&mut rig, 1);
    works(&mut rig, 1);
    let write = Transfer::new(End::memory(1, FREE, LENGTH), End::ssd(2, &[(0, LENGTH)]));
    assert_eq!(rig.run(&write).status(), Status::UnsupportedEndpoint, "it may only read");
    // While a command is under way.
    let cids: Vec<u16> = (0..8).map(|_| rig.submit(&read())).collect();
    steps(&mut rig, 60);
    assert_eq!(rig.on(0).command(opcode::RELEASE, &[3]), Ok((0, 0)));
    for cid in cids {
        let status = rig.on(1).wait(cid).status();
        assert!([Status::Success, Status::DeviceReset].contains(&status), "{status:?}");
    }
    assert_eq!(rig.run(&read()).status(), Status::DeviceReset);
    assert_eq!(rig.command(opcode::OPEN_PART, &[0]), Err(Status::DeviceReset));
    assert_eq!(rig.command(opcode::RELEASE, &[2]), Ok((0, 0)));
    assert_eq!(rig.on(0).admin(good.entry()), Ok((3, 0)));
    assert_eq!(rig.on(1).command(opcode::OPEN_PART, &[0]), Ok((2, 512)));
    works(&mut rig, 1);
    rig.assert_idle();
}

/// Has function 1 write to its part, and returns the command's cid when the SSD has it, and will report its end 20 ms later.
fn write_late(rig: &mut Rig, bytes: &[u8]) -> u16 {
    let ssd = rig.ssds[0].0;
    let late = Fault::DelayCompletion(Duration::from_millis(20));
    rig.fabric.inject(ssd, Rule::once(When::opcode(1), late));
    rig.on(1).store(FREE, bytes);
    let cid = rig.submit(&write(2, bytes));
    assert!(rig.run_until(|rig| rig.fabric.faults_struck(ssd) == 1));
    cid
}

/// Returns bytes of the SSD, from the beginning of function 1's part on.
fn there(rig: &Rig, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    rig.ssds[0].1.load(first(1), &mut bytes);
    bytes
}

fn write(handle: u32, bytes: &[u8]) -> Transfer {
    let length = bytes.len() as u64;
    Transfer::new(End::memory(1, FREE, length), End::ssd(handle, &[(0, length)]))
}

/// A late write of the old owner would destroy what the new one has written: the answer comes when the SSD has ended it.
#[test]
fn a_part_that_was_taken_back_is_written_by_nobody() {
    let mut waited = 0;
    for between in 0..40 {
        let mut rig = ready(2);
        let late = Fault::DelayCompletion(Duration::from_millis(20));
        rig.fabric.inject(rig.ssds[0].0, Rule::once(When::opcode(1), late));
        let bytes = data(4096, 1);
        rig.on(1).store(FREE, &bytes);
        let cid = rig.submit(&write(2, &bytes));
        steps(&mut rig, between);
        let began = rig.now();
        assert_eq!(rig.on(0).command(opcode::RELEASE, &[3]), Ok((0, 0)));
        waited += u32::from(rig.now() - began > 15_000_000);
        let before = there(&rig, 4096);
        assert_eq!(rig.command(opcode::RELEASE, &[3]), Err(Status::BadHandle));
        rig.on(1).wait(cid);
        rig.assert_idle();
        assert!(there(&rig, 4096) == before, "after {between} steps");
    }
    assert!(waited > 0, "the SSD was at work once");
}

/// A command that a reset ends may end before its operations. The function starts when these have ended, too: its next host's data stay.
#[test]
fn a_part_is_not_written_late_after_a_reset_of_its_function() {
    let mut waited = 0;
    for between in 0..20 {
        let mut config = config(3);
        config.engine.abort_grace = 1_000_000;
        let mut rig = ready_with(config, 3);
        // The SSD reads the entry late, and writes then.
        let late = Fault::DelayTransaction(Duration::from_millis(4));
        let all = Window { address: 0, length: u64::MAX };
        rig.fabric.inject(rig.ssds[0].0, Rule::once(When::Read(all), late));
        let (old, new) = (data(4096, 1), data(4096, 2));
        rig.on(1).store(FREE, &old);
        rig.submit(&write(2, &old));
        steps(&mut rig, between);
        // A neighbour's work goes on, so that the card looks at its clock.
        let long = Transfer::new(End::ssd(2, &[(0, PART / 4)]), End::memory(1, FREE, PART / 4));
        let others: Vec<u16> = (0..12).map(|_| rig.on(2).submit(&long)).collect();
        let began = rig.now();
        rig.on(1).disable();
        bring_up(&mut rig, 1);
        waited += u32::from(rig.now() - began > 2_000_000);
        let before = there(&rig, 4096);
        for cid in others {
            assert_eq!(rig.on(2).wait(cid).status(), Status::Success);
        }
        let end = began + 20_000_000;
        rig.run_until(|rig| rig.now() > end);
        assert!(there(&rig, 4096) == before, "after {between} steps");
        rig.on(1).store(FREE, &new);
        assert_eq!(rig.run(&write(2, &new)).status(), Status::Success);
        rig.assert_idle();
        assert!(there(&rig, 4096) == new);
    }
    assert!(waited > 0, "the SSD was at work once");
}

/// Function 0 is answered, whatever its SSD does; and operations of others on the bytes, which go on without end, do not matter.
#[test]
fn a_part_is_taken_back_in_the_end() {
    for fault in [Fault::LoseCommand, Fault::Hang, Fault::HangHard, Fault::Remove] {
        let mut rig = ready(2);
        let ssd = rig.ssds[0].0;
        rig.fabric.inject(ssd, Rule::once(When::opcode(1), fault));
        let cid = rig.on(1).submit(&write(2, &[1; 4096]));
        assert!(rig.run_until(|rig| rig.fabric.faults_struck(ssd) == 1));
        assert_eq!(rig.on(0).command(opcode::RELEASE, &[3]), Ok((0, 0)), "{fault:?}");
        assert_eq!(rig.on(1).wait(cid).status(), Status::DeviceReset, "{fault:?}");
    }
    let mut rig = ready(3);
    write_late(&mut rig, &[1; 4096]);
    let part = LentPart { ssd: 2, function: 2, grants: 1, first: first(1), length: PART };
    assert_eq!(rig.on(0).admin(part.entry()), Ok((5, 1)));
    assert_eq!(rig.on(2).command(opcode::OPEN_PART, &[1]), Ok((3, 512)));
    let read = Transfer::new(End::ssd(3, &[(0, 4096)]), End::memory(1, FREE, 4096));
    let release = AdminEntry { opcode: opcode::RELEASE, words: [3, 0, 0, 0, 0, 0], ..Default::default() };
    rig.on(0).push_admin(release);
    let mut under_way: Vec<u16> = (0..8).map(|_| rig.on(2).submit(&read)).collect();
    let answered = rig.run_until(|rig| {
        for cid in &mut under_way {
            if rig.on(2).is_done(*cid) {
                assert_eq!(rig.wait(*cid).status(), Status::Success);
                *cid = rig.submit(&read);
            }
        }
        rig.on(0).reap_admin().is_some()
    });
    assert!(answered && rig.now() < 1_000_000_000);
}

/// Function 0 resets and attaches its SSD again before that has stopped: writes from before that waited for the SSD are not carried out.
#[test]
fn nothing_from_before_a_reset_is_written_after_it() {
    for between in [60, 120, 250] {
        let mut rig = ready(2);
        let bytes = data(2 << 20, 3);
        rig.on(1).store(FREE, &bytes);
        let cids: Vec<u16> = (0..3).map(|_| rig.submit(&write(2, &bytes))).collect();
        steps(&mut rig, between);
        rig.on(0).disable();
        rig.enable();
        assert_eq!(rig.grant(0, HOST_MEMORY), 1);
        assert_eq!(rig.attach(0), Ok(2));
        let before = there(&rig, bytes.len());
        let statuses: Vec<Status> = cids.iter().map(|cid| rig.on(1).wait(*cid).status()).collect();
        assert!(statuses.iter().any(|status| *status != Status::Success), "after {between} steps");
        rig.assert_idle();
        assert!(there(&rig, bytes.len()) == before, "after {between} steps");
    }
}

/// A reset ends reads of the host's memory. The function that starts again has not failed by that.
#[test]
fn a_reset_while_entries_are_fetched_is_no_failure() {
    // Doorbells that come after the reset would be those of the next queues.
    for between in 4..20 {
        let mut rig = ready(2);
        rig.on(1).submit(&read());
        rig.push_admin(AdminEntry { opcode: opcode::OPEN_PART, ..Default::default() });
        steps(&mut rig, between);
        rig.reset_and_start();
        // Its registers are the old ones until the card has looked.
        steps(&mut rig, 1);
        assert!(rig.run_until(|rig| rig.read_register(0x1c) & 1 != 0));
        assert_eq!(rig.read_register(0x1c), 1, "after {between} steps");
        assert_eq!(rig.grant(0, HOST_MEMORY), 1);
        rig.create_queues().unwrap();
        assert_eq!(rig.command(opcode::OPEN_PART, &[0]), Ok((2, 512)));
        works(&mut rig, 1);
    }
}

/// Resets one function at many moments, by CC.EN or as the bus does; the others notice nothing, and it starts again.
#[test]
fn a_reset_of_one_function_leaves_the_others_running() {
    for by_bus in [false, true] {
        for between in [0, 1, 7, 30, 90, 200, 400] {
            let mut rig = ready(3);
            let wanted: Vec<_> = (0..3).map(|function| fill(&mut rig, function)).collect();
            let mut cids = Vec::new();
            for function in 0..3 {
                rig.on(function);
                cids.push((0..8).map(|_| rig.submit(&read())).collect::<Vec<u16>>());
            }
            steps(&mut rig, between);
            rig.on(2);
            match by_bus {
                false => rig.disable(),
                true => rig.reset_and_start(),
            }
            let late = rig.load(FREE, LENGTH as usize);
            for function in 0..2 {
                for cid in &cids[function] {
                    let status = rig.on(function).wait(*cid).status();
                    assert_eq!(status, Status::Success, "function {function}, after {between} steps");
                }
                assert!(rig.load(FREE, LENGTH as usize) == wanted[function]);
            }
            assert!(
                by_bus || rig.on(2).load(FREE, LENGTH as usize) == late,
                "nothing is written after a reset"
            );
            rig.on(2);
            if by_bus {
                assert_eq!(rig.grant(0, HOST_MEMORY), 1);
                rig.create_queues().unwrap();
                assert_eq!(rig.command(opcode::OPEN_PART, &[0]), Ok((2, 512)));
            } else {
                bring_up(&mut rig, 2);
            }
            works(&mut rig, 2);
            rig.assert_idle();
        }
    }
}

/// Its devices go with function 0. The others lose what they were lent, and nothing else.
#[test]
fn function_0_takes_its_devices_along() {
    for between in [0, 20, 100, 300] {
        let mut rig = ready(2);
        let cids: Vec<u16> = (0..8).map(|_| rig.on(1).submit(&read())).collect();
        steps(&mut rig, between);
        rig.on(0).disable();
        for cid in cids {
            let status = rig.on(1).wait(cid).status();
            let known = [Status::Success, Status::DeviceReset, Status::BadHandle];
            assert!(known.contains(&status), "{status:?} after {between} steps");
        }
        assert_eq!(rig.run(&read()).status(), Status::DeviceReset);
        let copy = Transfer::new(End::memory(1, FREE, LENGTH), End::memory(1, 2 * FREE, LENGTH));
        let bytes = data(LENGTH as usize, 7);
        rig.store(FREE, &bytes);
        assert_eq!(rig.run(&copy.through(&[(Md5, &[])])).status(), Status::Success);
        assert!(rig.load(2 * FREE, LENGTH as usize) == bytes);
        rig.on(0).enable();
        assert_eq!(rig.grant(0, HOST_MEMORY), 1);
        rig.create_queues().unwrap();
        assert_eq!(rig.attach(0), Ok(2));
        lend(&mut rig, 1, GRANT_READ).unwrap();
        assert_eq!(rig.on(1).command(opcode::OPEN_PART, &[0]), Ok((3, 512)), "handle 2 names what is gone");
        assert_eq!(rig.run(&read()).status(), Status::DeviceReset);
        rig.command(opcode::RELEASE, &[2]).unwrap();
        assert_eq!(rig.command(opcode::OPEN_PART, &[0]), Ok((2, 512)));
        works(&mut rig, 1);
        rig.on(0);
        works(&mut rig, 0);
        rig.assert_idle();
    }
}

/// An SSD that is attached again with larger logical blocks does not have the parts any more, whose ends are amid such blocks: nothing is
/// written to what lies beside them, whenever that happens. With blocks of the same size it has them.
#[test]
fn a_part_s_ssd_that_is_attached_again() {
    for (shift, between) in [(12, 0), (12, 40), (12, 200), (12, 2000), (9, 200), (9, 2000)] {
        let mut rig = ready(2);
        // Its last logical block but one, which is in the middle of one of 4 KiB.
        let first = first(1) + PART + 512;
        let part = LentPart { ssd: 2, function: 1, grants: 3, first, length: 512 };
        let (_, number) = rig.on(0).admin(part.entry()).unwrap();
        assert_eq!(rig.on(1).command(opcode::OPEN_PART, &[number]), Ok((3, 512)));
        let medium = dcs_fabric::nvme::Namespace::new(1 << (26 - shift), shift);
        medium.store(first - 512, &data(4096, 5));
        rig.store(FREE, &[0xee; 512]);
        let write = Transfer::new(End::memory(1, FREE, 512), End::ssd(3, &[(0, 512)]));
        let cids: Vec<u16> = (0..6).map(|_| rig.submit(&write)).collect();
        steps(&mut rig, between);
        let ssd = rig.ssds[0].0;
        rig.fabric.device::<dcs_fabric::nvme::Nvme>(ssd).format(1, medium.clone());
        let bar = rig.fabric.bar(ssd, 0);
        let words = [bar.length as u32, 0, 0, 0, 0, 0];
        let attach =
            AdminEntry { opcode: opcode::ATTACH_SSD, data_address: bar.address, words, ..Default::default() };
        let (handle, size) = rig.on(0).admin(attach).unwrap();
        assert_eq!(size, 1 << shift);
        rig.on(1);
        for cid in cids {
            let status = rig.wait(cid).status();
            assert!(
                [Status::Success, Status::DeviceReset].contains(&status),
                "{status:?} after {between} steps"
            );
        }
        let mut there = vec![0; 4096];
        medium.load(first - 512, &mut there);
        there[512..1024].copy_from_slice(&data(4096, 5)[512..1024]);
        assert!(there == data(4096, 5), "what lies beside the part, after {between} steps");
        let (wanted, part) = if shift == 9 {
            (Status::Success, Ok((4, 512)))
        } else {
            (Status::DeviceReset, Err(Status::DeviceReset))
        };
        assert_eq!(rig.run(&write).status(), wanted, "{shift}");
        assert_eq!(rig.command(opcode::OPEN_PART, &[number]), part);
        // Lent again, it has whole ones of the new blocks.
        let lent = LentPart { ssd: handle, function: 1, grants: 3, first: first & !4095, length: 4096 };
        let (_, number) = rig.on(0).admin(lent.entry()).unwrap();
        let (handle, size) = rig.on(1).command(opcode::OPEN_PART, &[number]).unwrap();
        assert_eq!(size, 1 << shift);
        let write = Transfer::new(End::memory(1, FREE, 4096), End::ssd(handle, &[(0, 4096)]));
        assert_eq!(rig.run(&write).status(), Status::Success);
        rig.assert_idle();
    }
}

/// A host's memory goes away under its commands: its function fails, alone.
#[test]
fn a_function_whose_memory_is_gone_fails_alone() {
    for between in [0, 5, 40, 150] {
        let mut rig = ready(3);
        for function in [1, 2] {
            rig.on(function);
            (0..8).for_each(|_| _ = rig.submit(&read()));
        }
        steps(&mut rig, between);
        let gone = rig.functions[2];
        rig.fabric.iommu(gone).unwrap().unmap(0);
        rig.on(2).submit(&read());
        assert!(rig.run_until(|rig| rig.read_register(0x1c) & 2 != 0), "CSTS.CFS after {between} steps");
        assert_eq!(rig.on(1).read_register(0x1c), 1);
        assert_eq!(rig.on(0).read_register(0x1c), 1);
        works(&mut rig, 1);
        works(&mut rig, 0);
        // It is unplugged, too.
        rig.on(2).take_away();
        works(&mut rig, 1);
        rig.assert_idle();
    }
}

/// One host fills its registers, doorbells, rings and entries with garbage, and resets now and then. Its neighbour's transfers go on, and
/// its neighbour's memory, load and part stay its own.
#[test]
fn a_host_that_writes_rubbish_beside_an_honest_one() {
    let mut numbers = Random(5);
    let mut random = move || numbers.next();
    for _round in 0..12 {
        let mut rig = ready(3);
        let honest = data(1 << 20, 9);
        rig.on(1).store(HOST_MEMORY - (1 << 20), &honest);
        rig.ssds[0].1.store(first(1) + (2 << 20), &honest);
        for _ in 0..6 {
            rig.on(1);
            let bytes = fill(&mut rig, 1);
            let cids: Vec<u16> = (0..4).map(|_| rig.submit(&read())).collect();
            rig.on(2);
            for _ in 0..40 {
                let value = random();
                match random() % 9 {
                    0 => rig.write_register((random() % 0x2000) & !3, &(value as u32).to_le_bytes()),
                    1 => rig.write_register(0x1000 + random() % 16 * 4, &(value as u32 % 70).to_le_bytes()),
                    2 => rig.write_register(random() % 0x1ff8, &value.to_le_bytes()),
                    3 => rig.store(0x1000 + random() % 0x3f00, &value.to_le_bytes()),
                    4 => rig.store(0x10_0000 + random() % 0x8000, &value.to_le_bytes()),
                    5 => {
                        let mut words = [0; 6];
                        words.iter_mut().for_each(|word| *word = (random() & random()) as u32 % 9);
                        let known = [0xc0, 0xc4, 0xc8, 0xcc, 0xd0, 0xea, 0xf4, 0xf8, 0x00, 0x01, 0x05, 0x08];
                        let opcode = known[random() as usize % known.len()];
                        rig.push_admin(AdminEntry {
                            opcode,
                            data_address: value,
                            words,
                            ..Default::default()
                        });
                    }
                    6 => _ = rig.submit(&read()),
                    7 if value % 8 == 0 => rig.write_register(0x14, &0x0046_0000u32.to_le_bytes()),
                    _ => (0..value % 30).for_each(|_| _ = rig.step()),
                }
            }
            rig.on(1);
            for cid in cids {
                assert_eq!(rig.wait(cid).status(), Status::Success);
            }
            assert!(rig.load(FREE, LENGTH as usize) == bytes);
            assert_eq!(rig.read_register(0xf10), 64, "another's load is not shown");
            assert_eq!(rig.read_register(0x1c), 1);
        }
        assert!(rig.load(HOST_MEMORY - (1 << 20), 1 << 20) == honest);
        let mut there = vec![0; 1 << 20];
        rig.ssds[0].1.load(first(1) + (2 << 20), &mut there);
        assert!(there == honest);
        rig.on(2).disable();
        bring_up(&mut rig, 2);
        works(&mut rig, 2);
        rig.assert_idle();
    }
}

/// The time in which function 1 has 24 transfers done, as many at a time as take half of all blocks, while the functions from 2 on, if
/// there is a flood, keep as many as they can under way.
fn time(functions: usize, flood: Option<&Transfer>, one: &Transfer) -> u64 {
    let mut rig = ready(functions);
    let mut under_way: Vec<Vec<u16>> = vec![Vec::new(); functions];
    let at_a_time = 32 / usize::from(rig.card.config().engine.window);
    let start =
        |rig: &mut Rig, function: usize, transfer: &Transfer, under_way: &mut Vec<u16>, most: usize| {
            rig.on(function);
            while under_way.len() < most {
                under_way.push(rig.submit(transfer));
            }
        };
    // The others have filled all that they can fill when it begins.
    let floods = |rig: &mut Rig, under_way: &mut [Vec<u16>]| {
        for (function, mine) in under_way.iter_mut().enumerate().skip(2) {
            flood.inspect(|flood| start(rig, function, flood, mine, 60));
        }
    };
    floods(&mut rig, &mut under_way);
    steps(&mut rig, 2000);
    let (begin, mut done) = (rig.now(), 0);
    while done < 24 {
        start(&mut rig, 1, one, &mut under_way[1], at_a_time);
        floods(&mut rig, &mut under_way);
        steps(&mut rig, 20);
        for (function, mine) in under_way.iter_mut().enumerate().skip(1) {
            rig.on(function);
            let ended: Vec<u16> = mine.iter().copied().filter(|cid| rig.is_done(*cid)).collect();
            for cid in &ended {
                assert_eq!(rig.wait(*cid).status(), Status::Success);
            }
            done += if function == 1 { ended.len() } else { 0 };
            mine.retain(|cid| !ended.contains(cid));
        }
    }
    rig.now() - begin
}

/// However many commands, whatever their sizes and operators: a function that floods leaves another its part of slots, blocks, the SSD and
/// units. A function has seven eighths of its equal part of slots and blocks for sure, and every other turn of a unit.
#[test]
fn one_that_floods_leaves_another_its_share() {
    let memory = |length| End::memory(1, FREE, length);
    let from = |length| Transfer::new(End::ssd(2, &[(0, length)]), memory(length));
    let small = Transfer::new(End::ssd(2, &[(0, 4096)]), memory(4096));
    let block = u64::from(ready(1).card.config().engine.block_size);
    let chains: [&[(Operator, &[u8])]; 2] = [&[], &[(Crc32, &[])]];
    for chain in chains {
        let one = from(8 * block).through(chain);
        let large = from(32 * block).through(chain);
        for (flood, counts) in [(large, &[3, 5][..]), (small.clone().through(chain), &[3][..])] {
            for functions in counts.iter().copied() {
                let [alone, beside] = [None, Some(&flood)].map(|flood| time(functions, flood, &one));
                let active = functions as u64 - 1;
                println!(
                    "{} bytes x 60, {active} functions: {:.2} of its time alone",
                    flood.length,
                    beside as f64 / alone as f64
                );
                assert!(
                    beside < alone * active * 13 / 10,
                    "{beside} ns, alone {alone} ns, {active} functions"
                );
            }
        }
    }
}

#[test]
fn functions_that_cannot_be_are_refused() {
    let mut fabric = Fabric::new(Timing::default(), HOST_MEMORY, 1);
    let id = fabric.add_endpoint("card", Rate::GEN2_X8, &[0x2000, 16 << 20]);
    for functions in [0, 9, 65] {
        let refused = Card::new(Config { functions, ..Config::default() }, &fabric.port(id), None);
        assert!(matches!(refused, Err(CardError::Functions { queues: 8, .. })), "{functions}");
    }
    assert!(Card::new(Config { functions: 8, ..Config::default() }, &fabric.port(id), None).is_ok());
}
