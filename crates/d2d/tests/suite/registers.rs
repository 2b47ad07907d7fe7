//! Where each register and field lies, by tables written off docs/d2d.md, and that reading and writing undo
//! each other.
//!
//! A table's numbers are shifts and masks of their own: none is taken from the crate.

use crate::rig::{End, Rig, template};
use dcs_d2d::driver::{Layout, Write};
use dcs_d2d::register::{self, *};
use dcs_d2d::uoe::{self, Rtp, Template, TemplateError};
use dcs_d2d::{ConfigError, Nic, Ssd, nic, ssd};
use proptest::prelude::*;

/// A register's fields: with only these bits set, only this changes.
macro_rules! table {
    ($type:ty: $($value:expr => $change:expr;)*) => {
        let rest = <$type>::from_bits(0);
        assert_eq!(rest.bits(), 0);
        let fields: &[(u64, fn(&mut $type))] = &[$(($value, $change),)*];
        for (bits, change) in fields.iter().copied() {
            let mut expected = rest;
            change(&mut expected);
            assert_ne!(expected, rest, "{bits:#x}");
            assert_eq!(<$type>::from_bits(bits), expected, "{bits:#x}");
            assert_eq!(expected.bits(), bits, "{expected:?}");
        }
    };
}

#[test]
fn offsets() {
    let at = [
        (register::IDENTITY, 0x00),
        (register::CAPABILITIES, 0x08),
        (register::OFFSETS, 0x10),
        (register::TASK_MEMORY, 0x18),
        (register::MEDIUM, 0x20),
        (register::BLOCKS, 0x28),
        (register::APERTURE_BASE, 0x30),
        (register::EVENT, 0x38),
        (register::STREAMS, 0x1000),
        (register::STRIDE, 0x80),
        (register::TX_ADDRESS, 0x00),
        (register::RX_ADDRESS, 0x08),
        (register::RATE, 0x10),
        (register::BASE_CREDITS, 0x18),
        (register::BYTE_COUNT, 0x20),
        (register::CREDIT_ADDRESS, 0x28),
        (register::GRANT, 0x30),
        (register::STATUS, 0x38),
        (register::MOVED, 0x40),
        (register::TAKEN, 0x48),
        (register::TASK_LIST, 0x50),
        (register::TIMES, 0x58),
        (register::CONTROL, 0x60),
        (register::DROPPED, 0x68),
        (register::PACKETS, 0x70),
        (register::LOST, 0x78),
        (uoe::MAC_DESTINATION, 0x00),
        (uoe::MAC_SOURCE, 0x08),
        (uoe::TAG, 0x10),
        (uoe::IP_1, 0x18),
        (uoe::IP_2, 0x20),
        (uoe::IP_3, 0x28),
        (uoe::UDP_HEADER, 0x30),
        (uoe::RTP_1, 0x38),
        (uoe::RTP_2, 0x40),
        (uoe::PAYLOAD, 0x48),
    ];
    for (number, (offset, expected)) in at.iter().enumerate() {
        assert_eq!(offset, expected, "line {number}");
    }
}

#[test]
fn fields_of_global_registers() {
    table! { Identity:
        0x0000_0000_ffff_ffff => |r| r.magic = u32::MAX;
        0x0000_ffff_0000_0000 => |r| r.version = u16::MAX;
        0x00ff_0000_0000_0000 => |r| r.kind = u8::MAX;
    }
    assert_eq!(Identity::new(Kind::Ssd).bits().to_le_bytes(), *b"D2D\0\x01\0\x01\0");
    assert_eq!(Identity::new(Kind::Nic).bits().to_le_bytes(), *b"D2D\0\x01\0\x02\0");
    table! { Capabilities:
        0x0000_0000_0000_ffff => |r| r.streams = u16::MAX;
        0x0000_0000_00ff_0000 => |r| r.places = u8::MAX;
        0xffff_ffff_0000_0000 => |r| r.aperture = u32::MAX;
    }
    table! { Offsets:
        0x0000_0000_ffff_ffff => |r| r.streams = u32::MAX;
        0xffff_ffff_0000_0000 => |r| r.uoe = u32::MAX;
    }
    table! { TaskMemory:
        0x0000_0000_ffff_ffff => |r| r.offset = u32::MAX;
        0xffff_ffff_0000_0000 => |r| r.tasks = u32::MAX;
    }
    table! { Medium:
        0x0000_0000_0000_00ff => |r| r.block_shift = u8::MAX;
        0x0000_0000_ffff_0000 => |r| r.mtu = u16::MAX;
    }
    table! { Event:
        0x0000_0000_0001_0000 => |r| r.stream = Some(0);
        0x0000_0000_0001_ffff => |r| r.stream = Some(u16::MAX);
    }
}

#[test]
fn fields_of_stream_registers() {
    table! { TxAddress:
        0x0000_0000_0000_0001 => |r| r.start = true;
        0x0000_0000_0000_0002 => |r| r.clear = true;
        0x0000_0000_0000_0004 => |r| r.pause = true;
        0xffff_ffff_ffff_fff8 => |r| r.address = !7;
    }
    table! { Rate:
        0x0000_00ff_ffff_ffff => |r| r.bytes_per_second = (1 << 40) - 1;
        0xffff_ff00_0000_0000 => |r| r.granularity_us = (1 << 24) - 1;
    }
    table! { BaseCredits:
        0x0000_0000_ffff_ffff => |r| r.tx = u32::MAX;
        0xffff_ffff_0000_0000 => |r| r.rx = u32::MAX;
    }
    table! { Grant:
        0x0000_0000_ffff_ffff => |r| r.taken = u32::MAX;
        0x0000_ffff_0000_0000 => |r| r.epoch = u16::MAX;
        0x0001_0000_0000_0000 => |r| r.failed = true;
        0x0002_0000_0000_0000 => |r| r.paused = true;
    }
    table! { TaskList:
        0x0000_0000_ffff_ffff => |r| r.tail = u32::MAX;
        0xffff_ffff_0000_0000 => |r| r.head = u32::MAX;
    }
    table! { Times:
        0x0000_0000_ffff_ffff => |r| r.stall_us = u32::MAX;
        0xffff_ffff_0000_0000 => |r| r.refresh_us = u32::MAX;
    }
    table! { Control:
        0x0000_0000_0000_ffff => |r| r.epoch = u16::MAX;
        0x0000_0000_0001_0000 => |r| r.interrupt_at_end = true;
        0x0000_0000_0002_0000 => |r| r.interrupt_at_grant = true;
        0xffff_ffff_0000_0000 => |r| r.aperture = u32::MAX;
    }
    table! { Dropped:
        0x0000_0000_ffff_ffff => |r| r.late = u32::MAX;
        0xffff_ffff_0000_0000 => |r| r.packets = u32::MAX;
    }
    table! { Status:
        0x1 => |r| r.state = State::Parse;
        0x2 => |r| r.state = State::Send;
        0x3 => |r| r.state = State::Wait;
        0x4 => |r| r.state = State::Check;
        0x5 => |r| r.state = State::Idle;
        0x6 => |r| r.state = State::Fetch;
        0x7 => |r| r.state = State::Calc;
        0x8 => |r| r.state = State::Failed;
        0x10 => |r| r.role = Role::Sender;
        0x20 => |r| r.role = Role::Receiver;
        0x40 => |r| r.paused = true;
        0x80 => |r| r.starved = true;
        0xffff_0000 => |r| r.epoch = u16::MAX;
    }
    let errors = [
        Error::Rate,
        Error::Credits,
        Error::Tasks,
        Error::Template,
        Error::Epoch,
        Error::Read,
        Error::Store,
        Error::Bus,
        Error::Link,
        Error::Peer,
        Error::Restarted,
        Error::Grant,
        Error::Sequence,
        Error::Overrun,
        Error::Stalled,
        Error::Address,
        Error::Duplicate,
    ];
    for (at, error) in errors.into_iter().enumerate() {
        let bits = (at as u64 + 1) << 8;
        assert_eq!(Status::from_bits(bits).error, Some(error));
        assert_eq!(Status { error: Some(error), ..Status::default() }.bits(), bits);
    }
    assert_eq!(Status::from_bits(0xff0f).error, None);
    assert_eq!(Task::from_bits([7, 0xffff_ffff_0000_0009]), Task { lba: 7, blocks: 9 });
    assert_eq!(Task { lba: 7, blocks: 9 }.bits(), [7, 9]);
}

proptest! {
    #[test]
    fn any_bits_keep_their_fields(bits in any::<u64>()) {
        fn again<T: PartialEq + std::fmt::Debug>(bits: u64, from: fn(u64) -> T, to: fn(T) -> u64) {
            assert_eq!(from(to(from(bits))), from(bits));
        }
        again(bits, Identity::from_bits, Identity::bits);
        again(bits, Capabilities::from_bits, Capabilities::bits);
        again(bits, Offsets::from_bits, Offsets::bits);
        again(bits, TaskMemory::from_bits, TaskMemory::bits);
        again(bits, Medium::from_bits, Medium::bits);
        again(bits, Event::from_bits, Event::bits);
        again(bits, TxAddress::from_bits, TxAddress::bits);
        again(bits, Rate::from_bits, Rate::bits);
        again(bits, BaseCredits::from_bits, BaseCredits::bits);
        again(bits, Grant::from_bits, Grant::bits);
        again(bits, Status::from_bits, Status::bits);
        again(bits, TaskList::from_bits, TaskList::bits);
        again(bits, Times::from_bits, Times::bits);
        again(bits, Control::from_bits, Control::bits);
        again(bits, Dropped::from_bits, Dropped::bits);
    }
}

fn rig() -> Rig {
    Rig::new(ssd::Config { tasks: 8, ..ssd::Config::new(3, 1000) }, nic::Config::new(3), 1)
}

#[test]
fn global_registers_tell_what_there_is() {
    let rig = rig();
    let values = |end| Layout::READS.map(|at| rig.read(end, at));
    assert_eq!(values(End::Ssd), [0x0001_0001_0044_3244, 0x40_0004_0003, 0x1000, 0x8_0000_2000, 12, 1000]);
    assert_eq!(values(End::Nic), [0x0002_0001_0044_3244, 0x40_0004_0003, 0x2000_0000_1000, 0, 1500 << 16, 0]);
    assert!(Layout::from_values([0; 6]).is_err());
    assert!(Layout::from_values([0x0001_0002_0044_3244, 0, 0, 0, 0, 0]).is_err(), "another version");
}

#[test]
fn registers_keep_what_is_written_and_no_other_changes() {
    // What is written, and what is read: bits that are read only, or commands, stay as they are.
    let ssd = [
        (register::APERTURE_BASE, 0xffff_ffff_ffff_f000),
        (0x1000 + register::RATE, u64::MAX),
        (0x1000 + register::BASE_CREDITS, 32 << 32 | 0xffff_ffff),
        (0x1000 + register::BYTE_COUNT, u64::MAX),
        (0x1000 + register::CREDIT_ADDRESS, !7),
        (0x1000 + register::TIMES, u64::MAX),
        (0x1000 + register::CONTROL, 0xffff_ffff_0003_ffff),
        (0x1000 + register::TASK_LIST, 8),
        // The second stream's third task.
        (0x2000 + 16 * 8 + 32, u64::MAX),
    ];
    let nic = [(0x2080 + uoe::MAC_SOURCE, u64::MAX), (0x2080 + uoe::PAYLOAD, u64::MAX)];
    let all = ssd.map(|(at, value)| (End::Ssd, at, value));
    for (end, at, value) in all.into_iter().chain(nic.map(|(at, value)| (End::Nic, at, value))) {
        let mut rig = rig();
        let before: Vec<u64> = (0..0x400).map(|word| rig.read(end, word * 8)).collect();
        rig.write(end, Write { offset: at, value: u64::MAX });
        assert_eq!(rig.read(end, at), value, "{at:#x}");
        for (word, before) in before.iter().enumerate() {
            let offset = word as u64 * 8;
            // The base decides of all Rx Addresses.
            let follows =
                at == register::APERTURE_BASE && offset % 0x80 == register::RX_ADDRESS && offset >= 0x1000;
            assert!(
                offset == at || follows || rig.read(end, offset) == *before,
                "{at:#x} changed {offset:#x}"
            );
        }
    }
    let read_only =
        [0x00, 0x08, 0x10, 0x18, 0x20, 0x28, 0x38, 0x1008, 0x1038, 0x1040, 0x1048, 0x1068, 0x1070, 0x1078];
    for at in read_only {
        for end in [End::Ssd, End::Nic] {
            let mut rig = rig();
            let before = rig.read(end, at);
            rig.write(end, Write { offset: at, value: !before });
            assert_eq!(rig.read(end, at), before, "{at:#x}");
        }
    }
}

#[test]
fn halves_are_written_by_themselves_and_other_sizes_have_no_effect() {
    let mut rig = rig();
    let at = 0x1000 + register::RATE;
    rig.ssd.write(at + 4, &[1, 2, 3, 4], 0);
    rig.ssd.write(at, &[5, 6, 7, 8], 0);
    assert_eq!(rig.read(End::Ssd, at), 0x0403_0201_0807_0605);
    for (offset, length) in [(at, 1), (at, 2), (at + 2, 4), (at + 1, 8), (at + 4, 8), (at, 16), (at, 0)] {
        rig.ssd.write(offset, &vec![0xee; length], 0);
    }
    assert_eq!(rig.read(End::Ssd, at), 0x0403_0201_0807_0605);
    // Reads have any size and place.
    let mut bytes = [0; 11];
    rig.ssd.read(at - 1, &mut bytes);
    assert_eq!(bytes, [0, 5, 6, 7, 8, 1, 2, 3, 4, 0, 0]);
    let mut end = [9; 16];
    rig.ssd.read(u64::MAX - 3, &mut end);
    rig.ssd.write(u64::MAX - 7, &[1; 8], 0);
    assert_eq!(end, [0; 16]);
}

#[test]
fn configurations_that_cannot_be_are_refused() {
    let ssd = |change: fn(&mut ssd::Config)| {
        let mut config = ssd::Config::new(2, 64);
        change(&mut config);
        Ssd::new(config).err()
    };
    assert_eq!(ssd(|_| {}), None);
    assert_eq!(ssd(|c| c.streams = 0), Some(ConfigError::Streams));
    assert_eq!(ssd(|c| c.tasks = 0), Some(ConfigError::Streams));
    assert_eq!(ssd(|c| c.tasks = u32::MAX), Some(ConfigError::Streams));
    assert_eq!(ssd(|c| c.places = 3), Some(ConfigError::Places));
    assert_eq!(ssd(|c| c.payload = 100), Some(ConfigError::Payload));
    assert_eq!(ssd(|c| c.payload = 8192), Some(ConfigError::Payload));
    assert_eq!(ssd(|c| c.block_shift = 13), Some(ConfigError::Blocks));
    assert_eq!(ssd(|c| c.transfer = 5000), Some(ConfigError::Blocks));
    assert_eq!(ssd(|c| c.read_ahead = 4096), Some(ConfigError::Blocks));
    assert_eq!(ssd(|c| c.outstanding = 0), Some(ConfigError::Blocks));
    let nic = |change: fn(&mut nic::Config)| {
        let mut config = nic::Config::new(2);
        change(&mut config);
        Nic::new(config).err()
    };
    assert_eq!(nic(|_| {}), None);
    assert_eq!(nic(|c| c.window = 1), Some(ConfigError::Window));
    assert_eq!(nic(|c| c.mtu = 60), Some(ConfigError::Mtu));
}

#[test]
fn bytes_of_a_template() {
    let template = Template {
        tag: Some(0xa123),
        rtp: Some(Rtp { kind: 0xa1, sequence: 0x1234, timestamp: 0x5678_9abc, ssrc: 0xdef0_1122 }),
        ..template(3, 1316)
    };
    let bytes = template.registers().map(u64::to_le_bytes);
    let expected: [[u8; 8]; 10] = [
        [2, 0, 0, 0, 0, 3, 0, 0],
        [2, 0, 0, 1, 0, 1, 0, 0],
        [0x81, 0, 0xa1, 0x23, 0, 0, 0, 0],
        [0x45, 0xb8, 0, 0, 0xff, 0xfe, 0x40, 0],
        [64, 17, 0, 0, 10, 0, 0, 1],
        [10, 1, 0, 3, 0, 0, 0, 0],
        [0x13, 0x8c, 0x17, 0x73, 0, 0, 0, 0],
        [0x80, 0xa1, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc],
        [0xde, 0xf0, 0x11, 0x22, 0, 0, 0, 0],
        [0x24, 0x05, 0, 0, 0, 0, 0, 0],
    ];
    assert_eq!(bytes, expected);
    assert_eq!(Template::from_registers(&template.registers(), 1500), Ok(template));
}

#[test]
fn a_template_that_cannot_be_is_refused() {
    let rtp = Rtp { kind: 33, sequence: 0, timestamp: 0, ssrc: 0 };
    let good = Template { rtp: Some(rtp), ..template(3, 1316) }.registers();
    // A register, a byte of it, its value.
    let cases = [
        (0, 0, 0, TemplateError::Mac),
        (1, 0, 1, TemplateError::Mac),
        (2, 0, 0x88, TemplateError::Tag),
        (3, 0, 0x46, TemplateError::Ip),
        (3, 0, 0x65, TemplateError::Ip),
        (3, 6, 0x20, TemplateError::Ip),
        (3, 7, 1, TemplateError::Ip),
        (4, 0, 0, TemplateError::Ip),
        (4, 1, 6, TemplateError::Ip),
        (7, 0, 0x81, TemplateError::Rtp),
        (7, 0, 0x90, TemplateError::Rtp),
        (7, 0, 0xa0, TemplateError::Rtp),
        (7, 0, 0x40, TemplateError::Rtp),
        (9, 1, 6, TemplateError::Payload),
    ];
    for (register, byte, value, error) in cases {
        let mut registers = good;
        let mut bytes = registers[register].to_le_bytes();
        bytes[byte] = value;
        if (register, byte) == (0, 0) {
            bytes = [0; 8];
        }
        registers[register] = u64::from_le_bytes(bytes);
        assert_eq!(Template::from_registers(&registers, 1500), Err(error), "{register} {byte}");
    }
    for (register, error) in
        [(5, TemplateError::Destination), (6, TemplateError::Destination), (9, TemplateError::Payload)]
    {
        let mut registers = good;
        registers[register] = 0;
        assert_eq!(Template::from_registers(&registers, 1500), Err(error), "{register}");
    }
    // The largest payload: an MTU less the headers.
    for (payload, is_good) in [(1460, true), (1461, false)] {
        let registers = Template { rtp: Some(rtp), ..template(3, payload) }.registers();
        assert_eq!(Template::from_registers(&registers, 1500).is_ok(), is_good);
    }
}
