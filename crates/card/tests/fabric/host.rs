//! Tests of a host's actions at any time: resetting the card, deleting queues, writing garbage everywhere.

use crate::rig::{End, FREE, HOST_MEMORY, Rig, Transfer};
use crate::transfers::data;
use dcs_abi::admin::{AdminEntry, opcode};
use dcs_abi::entry::SubmissionEntry;
use dcs_abi::operator::Operator::Crc32c;
use dcs_abi::status::Status;
use dcs_card::card::Config;
use dcs_card::costs::Costs;
use dcs_drivers::bus::Window;
use dcs_fabric::nic::Family;
use dcs_fabric::{Event, Wire};
use dcs_testkit::Random;

const LENGTH: u64 = 400_000;

fn read() -> Transfer {
    Transfer::new(End::ssd(2, &[(512, LENGTH)]), End::memory(1, FREE, LENGTH)).through(&[(Crc32c, &[])])
}

fn works(rig: &mut Rig) {
    let bytes = data(LENGTH as usize, 21);
    rig.ssds[0].1.store(512, &bytes);
    assert_eq!(rig.run(&read()).status(), Status::Success);
    assert!(rig.load(FREE, LENGTH as usize) == bytes);
    rig.assert_idle();
}

#[test]
fn a_reset_at_any_moment_ends_everything_and_the_card_starts_again() {
    for steps in [0, 1, 5, 20, 60, 100, 150, 200, 300] {
        let mut rig = Rig::ready(Config::default(), 1);
        (0..8).for_each(|_| _ = rig.submit(&read()));
        (0..steps).for_each(|_| _ = rig.step());
        rig.disable();
        let late = rig.load(FREE, LENGTH as usize);
        rig.enable();
        rig.assert_idle();
        // Handles are gone: earlier commands reach nothing of the host's.
        assert!(rig.run_until(|rig| rig.now() > 1_000_000_000) || rig.load(FREE, LENGTH as usize) == late);
        assert_eq!(rig.create_queues(), Err(Status::DataTransferError), "nothing is granted");
        assert_eq!(rig.grant(0, HOST_MEMORY), 1);
        rig.create_queues().unwrap();
        assert_eq!(rig.attach(0), Ok(2));
        works(&mut rig);
    }
}

/// Checks that the number is the host's, not the engine's, which counts from 0: completions carry it too (`Rig::wait` checks).
#[test]
fn a_command_is_cancelled_by_the_host_s_number_of_its_queue() {
    let mut rig = Rig::ready(Config::default(), 1);
    assert_eq!(rig.plug(Family::Igb, Wire::default()), Ok(3));
    assert_eq!(rig.command(opcode::LISTEN, &[3, 80]), Ok((4, 0)));
    let (flow, _) = rig.accepted(4, 80, 5000);
    let silent = Transfer { length: 100, ..Transfer::new(End::flow(flow), End::memory(1, FREE, 100)) };
    let cid = rig.submit(&silent);
    let last = rig.queue();
    for (own, queue, found) in [
        (900, 0, Err(Status::InvalidField)),
        (901, 1, Err(Status::InvalidField)),
        (902, last, Ok(true)),
        (903, last, Ok(false)),
    ] {
        rig.submit_raw(&SubmissionEntry::cancel(own, queue, cid).to_bytes());
        let ended = rig.wait(own);
        let said = match ended.status() {
            Status::Success => Ok(ended.entry.delivered.value() != 0),
            status => Err(status),
        };
        assert_eq!(said, found, "queue {queue}");
    }
    assert_eq!(rig.wait(cid).status(), Status::Cancelled);
    rig.assert_idle();
}

/// Checks INTMS and INTMC, which NVMe defines for every kind of interrupt.
#[test]
fn a_masked_interrupt_comes_when_the_mask_is_gone() {
    let mut rig = Rig::ready(Config::default(), 1);
    let interrupts = |rig: &Rig| rig.fabric.interrupts(rig.card_id, 1);
    works(&mut rig);
    let before = interrupts(&rig);
    assert!(before > 0);
    rig.write_register(0x0c, &2u32.to_le_bytes());
    works(&mut rig);
    assert_eq!((interrupts(&rig), rig.read_register(0x0c)), (before, 2));
    rig.write_register(0x10, &2u32.to_le_bytes());
    assert!(rig.run_until(|rig| interrupts(rig) == before + 1));
    works(&mut rig);
    assert!(rig.run_until(|rig| interrupts(rig) == before + 2));
}

#[test]
fn a_reset_that_the_card_sees_late_does_not_strike_the_next_host() {
    for steps in [0, 5, 60, 150] {
        let mut rig = Rig::ready(Config::default(), 1);
        (0..8).for_each(|_| _ = rig.submit(&read()));
        (0..steps).for_each(|_| _ = rig.step());
        rig.reset_and_start();
        // Its devices were reset with it.
        let ssd = rig.ssds[0].0;
        rig.fabric.reset(ssd);
        rig.fabric.set_bus_master(ssd, true);
        assert_eq!(rig.grant(0, HOST_MEMORY), 1, "after {steps} steps");
        rig.create_queues().unwrap();
        assert_eq!(rig.attach(0), Ok(2));
        works(&mut rig);
    }
}

#[test]
fn a_queue_is_deleted_with_its_commands_and_made_again() {
    let mut rig = Rig::ready(Config::default(), 1);
    (0..5).for_each(|_| _ = rig.submit(&read()));
    (0..40).for_each(|_| _ = rig.step());
    let last = rig.queue().into();
    let delete = |opcode| AdminEntry { opcode, words: [last, 0, 0, 0, 0, 0], ..Default::default() };
    assert_eq!(
        rig.admin(delete(opcode::DELETE_CQ)),
        Err(Status::InvalidField),
        "its submission queue is there"
    );
    rig.admin(delete(opcode::DELETE_SQ)).unwrap();
    rig.assert_idle();
    assert_eq!(rig.admin(delete(opcode::DELETE_SQ)), Err(Status::InvalidField));
    rig.admin(delete(opcode::DELETE_CQ)).unwrap();
    rig.forget_queues();
    rig.create_queues().unwrap();
    works(&mut rig);
}

#[test]
fn memory_that_was_released_is_out_of_reach_at_once() {
    let mut rig = Rig::ready(Config::default(), 1);
    let extra = rig.grant(FREE, LENGTH);
    let transfer = Transfer::new(End::ssd(2, &[(0, LENGTH)]), End::memory(extra, FREE, LENGTH));
    rig.ssds[0].1.store(0, &vec![0xaa; LENGTH as usize]);
    let cid = rig.submit(&transfer);
    rig.run_until(|rig| rig.load(FREE, 1) == [0xaa]);
    let release = AdminEntry { opcode: opcode::RELEASE, words: [extra, 0, 0, 0, 0, 0], ..Default::default() };
    rig.admin(release).unwrap();
    let there = rig.load(FREE, LENGTH as usize);
    let ended = rig.wait(cid);
    assert_eq!(ended.status(), Status::BadHandle);
    assert!(ended.entry.delivered.value() < LENGTH);
    assert!(rig.load(FREE, LENGTH as usize) == there, "nothing came after the release was answered");
    assert_eq!(rig.admin(release), Err(Status::BadHandle));
    works(&mut rig);
}

/// Fills registers, doorbells, rings and entries with garbage. The card continues, touches nothing but what was granted, and works after a
/// reset.
#[test]
fn a_host_that_writes_rubbish_harms_itself_alone() {
    let mut numbers = Random(1);
    let mut random = move || numbers.next();
    for _round in 0..60 {
        let mut rig = Rig::ready(Config::default(), 1);
        // The card may not touch half of host memory.
        let forbidden = Window { address: HOST_MEMORY / 2, length: HOST_MEMORY / 2 };
        let meter = rig.fabric.meter(forbidden);
        rig.admin(AdminEntry { opcode: opcode::RELEASE, words: [1, 0, 0, 0, 0, 0], ..Default::default() })
            .unwrap();
        assert_eq!(rig.grant(0, HOST_MEMORY / 2), 1);
        for _ in 0..80 {
            let value = random();
            match random() % 8 {
                0 => rig.write_register((random() % 0x2000) & !3, &(value as u32).to_le_bytes()),
                1 => rig.write_register(0x1000 + random() % 16 * 4, &(value as u32 % 70).to_le_bytes()),
                2 => rig.write_register(random() % 0x1ff8, &value.to_le_bytes()),
                // Rings and descriptors are at the start of memory.
                3 => rig.store(0x1000 + random() % 0x3f00, &value.to_le_bytes()),
                4 => rig.store(0x10_0000 + random() % 0x8000, &value.to_le_bytes()),
                5 => {
                    let mut entry = [0; 64];
                    entry
                        .chunks_mut(8)
                        .for_each(|word| word.copy_from_slice(&(random() & random()).to_le_bytes()));
                    entry[0] = [0x81, 0x18, 0, 0x42][value as usize % 4];
                    rig.submit_raw(&entry);
                }
                6 => _ = rig.submit(&read()),
                _ => (0..value % 30).for_each(|_| _ = rig.step()),
            }
        }
        (0..3000).for_each(|_| _ = rig.step());
        assert_eq!(rig.fabric.metered(meter).bytes(), 0, "what was not granted was not touched");
        rig.disable();
        rig.enable();
        assert_eq!(rig.grant(0, HOST_MEMORY), 1);
        rig.create_queues().unwrap();
        assert_eq!(rig.attach(0), Ok(2));
        works(&mut rig);
    }
}

/// Checks that with the costs of an FPGA at 250 MHz the engine adds less than two microseconds to a block: the time from the SSD's
/// completion to the first byte's arrival in memory, in addition to the links' own.
#[test]
fn the_engine_adds_less_than_two_microseconds_to_a_block() {
    let took = |costs: Costs| {
        let mut rig = Rig::ready(Config { costs, ..Config::default() }, 1);
        let one = Transfer::new(End::ssd(2, &[(0, 4096)]), End::memory(1, FREE, 4096));
        rig.run(&one);
        rig.run(&one).took
    };
    let (ideal, real) = (took(Costs::NONE), took(Costs::FPGA));
    println!("a block of 4 KiB, SSD to memory: {ideal} ns, with an engine at 250 MHz {real} ns");
    assert!(real > ideal && real - ideal < 2000, "{ideal} {real}");
}

#[test]
fn interrupts_and_registers_are_there_for_whoever_looks() {
    let mut rig = Rig::ready(Config::default(), 1);
    assert_eq!(rig.read_register(0xf00), 0x4443_5331);
    assert_eq!(rig.read_register(0x08), 0x0002_0100);
    let blocks = rig.card.config().engine.blocks;
    assert_eq!(rig.read_register(0xf10), blocks, "all blocks are free");
    let cid = rig.submit(&read());
    assert!(rig.run_until(|rig| rig.read_register(0xf10) < blocks), "some are in use");
    rig.wait(cid);
    let mut seen = false;
    while let Some(event) = rig.fabric.step(None) {
        seen |= matches!(event, Event::Interrupt { vector: 1, .. });
    }
    assert!(seen || rig.fabric.interrupts(rig.card_id, 1) > 0);
}
