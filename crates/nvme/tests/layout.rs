//! Tests of each field's position, by tables copied from the specification, and that decoding and encoding are inverse.
//!
//! A table's numbers are independent shifts and masks: none is taken from the crate.

use dcs_nvme::command::{
    Abort, Blocks, BlocksCopy, CreateCompletionQueue, CreateSubmissionQueue, Feature, GetLogPage, QueueCounts,
};
use dcs_nvme::identify::{self, AnyNamespace, Controller, EntrySizes, Format, Namespace, Sgl};
use dcs_nvme::register::{Shutdown, ShutdownRequest};
use dcs_nvme::sgl::Descriptor;
use dcs_nvme::{
    AdminQueueSizes, Capabilities, Command, Completion, Configuration, ControllerStatus, DataPointer, Status,
    cmb, local_memory, pmr, programs, register,
};
use proptest::prelude::*;

/// Checks a register's fields: with only these bits set, only this field changes.
macro_rules! table {
    ($type:ty, $bits:ty: $($value:expr => $change:expr;)*) => {
        let rest = <$type>::from_bits(0);
        assert_eq!(rest.bits(), 0);
        let fields: &[($bits, fn(&mut $type))] = &[$(($value, $change),)*];
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
fn offsets_of_registers() {
    let at = [
        (register::CAP, 0x00),
        (register::VS, 0x08),
        (register::INTMS, 0x0c),
        (register::INTMC, 0x10),
        (register::CC, 0x14),
        (register::CSTS, 0x1c),
        (register::AQA, 0x24),
        (register::ASQ, 0x28),
        (register::ACQ, 0x30),
        (register::CMBLOC, 0x38),
        (register::CMBSZ, 0x3c),
        (register::CMBMSC, 0x50),
        (register::CMBSTS, 0x58),
        (register::PMRCAP, 0xe00),
        (register::PMRCTL, 0xe04),
        (register::PMRSTS, 0xe08),
        (register::PMRMSCL, 0xe14),
        (register::PMRMSCU, 0xe18),
        (register::tail_doorbell(0, 4), 0x1000),
        (register::head_doorbell(0, 4), 0x1004),
        (register::tail_doorbell(3, 4), 0x1018),
        (register::head_doorbell(3, 64), 0x11c0),
        (register::head_doorbell(u16::MAX, 4 << 15), 0x1000 + 0x1_ffff * 0x2_0000),
    ];
    for (found, expected) in at {
        assert_eq!(found, expected);
    }
}

#[test]
fn fields_of_cap() {
    table! { Capabilities, u64:
        0x03ff => |cap| cap.max_entries = 1024;
        0xffff => |cap| cap.max_entries = 65536;
        1 << 16 => |cap| cap.contiguous = true;
        0xff << 24 => |cap| cap.timeout = 255;
        0xfu64 << 32 => |cap| cap.stride = 15;
        1u64 << 37 => |cap| cap.nvm_commands = true;
        1u64 << 43 => |cap| cap.command_sets = true;
        1u64 << 44 => |cap| cap.admin_only = true;
        0xfu64 << 48 => |cap| cap.page_shift_min = 27;
        0x4u64 << 52 => |cap| cap.page_shift_max = 16;
        1u64 << 56 => |cap| cap.pmr = true;
        1u64 << 57 => |cap| cap.cmb = true;
    }
    // From a real drive.
    let cap = Capabilities::from_bits(0x0000_0020_3003_3fff);
    assert_eq!((cap.max_entries, cap.timeout_nanos(), cap.doorbell_stride()), (16384, 24_000_000_000, 4));
    assert_eq!((cap.page_shift_min, cap.page_shift_max), (12, 12));
    assert!(cap.nvm_commands && cap.contiguous && !cap.cmb && !cap.pmr && !cap.admin_only);
    assert_eq!(Capabilities::default().timeout_nanos(), 500_000_000);
}

#[test]
fn fields_of_cc() {
    table! { Configuration, u32:
        1 => |cc| cc.enabled = true;
        7 << 4 => |cc| cc.command_set = 7;
        0xf << 7 => |cc| cc.page = 15;
        7 << 11 => |cc| cc.arbitration = 7;
        1 << 14 => |cc| cc.shutdown = ShutdownRequest::Normal;
        2 << 14 => |cc| cc.shutdown = ShutdownRequest::Abrupt;
        3 << 14 => |cc| cc.shutdown = ShutdownRequest::Reserved;
        0xf << 16 => |cc| cc.submission_shift = 15;
        0xf << 20 => |cc| cc.completion_shift = 15;
    }
    let usual = Configuration { enabled: true, ..Configuration::new(13) };
    assert_eq!((usual.bits(), usual.page_bytes()), (0x0046_0081, 8192));
    assert!(usual.has_entry_sizes() && !Configuration::default().has_entry_sizes());
}

#[test]
fn fields_of_csts_and_aqa() {
    table! { ControllerStatus, u32:
        1 => |csts| csts.ready = true;
        2 => |csts| csts.fatal = true;
        1 << 2 => |csts| csts.shutdown = Shutdown::Occurring;
        2 << 2 => |csts| csts.shutdown = Shutdown::Complete;
        3 << 2 => |csts| csts.shutdown = Shutdown::Reserved;
    }
    table! { AdminQueueSizes, u32:
        0xfff => |aqa| aqa.submissions = 4096;
        0x01f << 16 => |aqa| aqa.completions = 32;
    }
}

#[test]
fn fields_of_the_controller_memory_buffer() {
    table! { cmb::Location, u32:
        7 => |location| location.bar = 7;
        0xfffff << 12 => |location| location.offset = 0xfffff;
    }
    table! { cmb::Size, u32:
        1 => |size| size.submission_queues = true;
        1 << 1 => |size| size.completion_queues = true;
        1 << 2 => |size| size.lists = true;
        1 << 3 => |size| size.read_data = true;
        1 << 4 => |size| size.write_data = true;
        0xf << 8 => |size| size.granularity = 15;
        0xfffff << 12 => |size| size.units = 0xfffff;
    }
    table! { cmb::Control, u64:
        1 => |control| control.registers = true;
        2 => |control| control.space = true;
        !0xfffu64 => |control| control.base = !0xfff;
    }
    table! { cmb::Status, u32:
        1 => |status| status.address_invalid = true;
    }
    let size = cmb::Size { granularity: 2, units: 3, ..cmb::Size::default() };
    assert_eq!((size.unit(), size.bytes()), (1 << 20, 3 << 20));
    assert_eq!(cmb::Size { granularity: 15, ..size }.unit(), 64 << 30);
}

#[test]
fn fields_of_the_persistent_memory_region() {
    table! { pmr::Capabilities, u32:
        1 << 3 => |found| found.read_data = true;
        1 << 4 => |found| found.write_data = true;
        7 << 5 => |found| found.bar = 7;
        3 << 8 => |found| found.timeout_unit = 3;
        0xff << 16 => |found| found.timeout = 255;
        1 << 24 => |found| found.space = true;
    }
    table! { pmr::Control, u32:
        1 => |control| control.enabled = true;
    }
    table! { pmr::Status, u32:
        0xff => |status| status.error = 255;
        1 << 8 => |status| status.not_ready = true;
        7 << 9 => |status| status.health = 7;
        1 << 12 => |status| status.address_invalid = true;
    }
    table! { pmr::Space, u64:
        2 => |space| space.enabled = true;
        !0xfffu64 => |space| space.base = !0xfff;
    }
    let found = pmr::Capabilities::from_bits(1 << 24 | 3 << 16 | 1 << 8 | 4 << 5 | 3 << 3);
    assert_eq!((found.valid_bar(), found.timeout_nanos()), (Some(4), 180_000_000_000));
    assert_eq!(pmr::Capabilities::from_bits(2 << 16).timeout_nanos(), 1_000_000_000);
    let bar = |bits| pmr::Capabilities::from_bits(bits).valid_bar();
    assert_eq!(
        (bar(0), bar(1 << 5), bar(2 << 5), bar(5 << 5), bar(6 << 5)),
        (None, None, Some(2), Some(5), None)
    );
}

#[test]
fn a_command_lies_as_the_specification_draws_it() {
    let mut command = Command {
        opcode: 2,
        fused: 0,
        cid: 0x1234,
        namespace: 1,
        data: DataPointer::Prp(0x1122_3344_5566_7788, 0x99),
        words: [0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0],
    };
    let bytes = command.bytes();
    assert_eq!(bytes[..8], [2, 0, 0x34, 0x12, 1, 0, 0, 0]);
    assert_eq!(bytes[8..24], [0; 16]);
    assert_eq!(bytes[24..40], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x99, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((bytes[40], bytes[44], bytes[60]), (0xa0, 0xb0, 0xf0));
    command.data = DataPointer::Sgl(Descriptor::last_segment(0x4000, 32));
    command.fused = 2;
    let bytes = command.bytes();
    assert_eq!(bytes[1], 0x42);
    assert_eq!(bytes[24..40], [0, 0x40, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0x30]);
    assert_eq!(Descriptor::data(1, 2).bytes(), [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_completion_is_read_as_it_lies() {
    let bytes = [7, 0, 0, 0, 9, 0, 0, 0, 5, 0, 2, 0, 0x34, 0x12, 0x05, 0x85];
    let done = Completion::from_bytes(&bytes);
    assert_eq!((done.result, done.result_high), (7, 9));
    assert_eq!((done.submission_head, done.submission_queue), (5, 2));
    assert_eq!((done.cid, done.phase), (0x1234, true));
    assert_eq!((done.status.kind(), done.status.code()), (2, 0x82));
    assert!(done.status.do_not_retry());
    assert_eq!(done.bytes(), bytes);
}

#[test]
fn every_status_has_words() {
    for raw in 0..1 << 15 {
        let status = Status(raw);
        assert!(!status.text().is_empty());
        assert_eq!(status.is_success(), raw & 0x7ff == 0);
    }
    assert_eq!(Status(0x4281).to_string(), "Unrecovered Read Error (SCT 0x2, SC 0x81, DNR)");
    assert_eq!(Status(0x0781).text(), "Vendor Specific");
    assert_eq!(Status(0x04ff).text(), "Reserved Status Code Type");
}

#[test]
fn double_words_of_commands() {
    let blocks = Blocks { first: 0x1_2345_6789, count: 65536, durable: true };
    assert_eq!(blocks.words(), [0x2345_6789, 1, 0x4000_ffff, 0, 0, 0]);
    let copy = BlocksCopy { target: 0x1_2345_6789, sources: 256, form: 4, durable: true };
    assert_eq!(copy.words(), [0x2345_6789, 1, 0x4000_04ff, 0, 0, 0]);
    assert_eq!(BlocksCopy::from_words(&copy.words()), copy);
    let (queue, entries, contiguous) = (3, 16, true);
    let completion = CreateCompletionQueue { queue, entries, contiguous, interrupts: true, vector: 9 };
    assert_eq!(completion.words(), [0x000f_0003, 0x0009_0003, 0, 0, 0, 0]);
    let submission = CreateSubmissionQueue { queue, entries, contiguous, priority: 2, completion_queue: 7 };
    assert_eq!(submission.words(), [0x000f_0003, 0x0007_0005, 0, 0, 0, 0]);
    assert_eq!(Abort { submission_queue: 2, cid: 0x55 }.words(), [0x0055_0002, 0, 0, 0, 0, 0]);
    let log = GetLogPage { page: 2, retain_event: true, bytes: 4 << 17, offset: 0x1_0000_0004 };
    assert_eq!(log.words(), [0xffff_8002, 1, 4, 1, 0, 0]);
    let feature = Feature { number: 7, select: 3, save: true, value: 9 };
    assert_eq!(feature.words(), [0x8000_0307, 9, 0, 0, 0, 0]);
    assert_eq!(QueueCounts { submissions: 4, completions: 2 }.bits(), 0x0001_0003);
}

#[test]
fn identify_data_of_a_controller() {
    let mut data = [0; identify::SIZE];
    data[..2].copy_from_slice(&[0x44, 0x14]);
    data[4..24].fill(b's');
    data[24..64].fill(b'm');
    data[64..72].fill(b'f');
    data[76] = 2;
    data[77] = 5;
    data[78..80].copy_from_slice(&[3, 1]);
    data[80..84].copy_from_slice(&[0, 4, 1, 0]);
    data[93] = 1;
    data[96] = 1;
    data[111] = 1;
    data[257] = 1;
    data[258..263].copy_from_slice(&[3, 7, 0b11, 0b100, 15]);
    data[266..270].copy_from_slice(&[0x57, 1, 0x61, 1]);
    data[320] = 10;
    data[512..514].copy_from_slice(&[0x76, 0x44]);
    data[516] = 9;
    data[520] = 8;
    data[525] = 0b111;
    data[534] = 0x15;
    data[536..540].copy_from_slice(&[2, 0, 1, 0]);
    data[768..771].copy_from_slice(b"nqn");
    data[2048..2050].copy_from_slice(&[0xc4, 9]);
    let found = Controller::from_bytes(&data);
    let mut subsystem = [0; 256];
    subsystem[..3].copy_from_slice(b"nqn");
    let expected = Controller {
        vendor: 0x1444,
        serial: [b's'; 20],
        model: [b'm'; 40],
        firmware: [b'f'; 8],
        sharing: 2,
        max_transfer: 5,
        number: 0x103,
        version: 0x0001_0400,
        events: 0x100,
        attributes: 1,
        kind: 1,
        optional_admin: 0x100,
        aborts: 4,
        event_requests: 8,
        firmware_slots: 3,
        log_pages: 4,
        error_entries: 16,
        warning_temperature: 343,
        critical_temperature: 353,
        keep_alive: 10,
        submission_entries: EntrySizes { least: 6, most: 7 },
        completion_entries: EntrySizes { least: 4, most: 4 },
        namespaces: 9,
        optional_commands: 8,
        copy_forms: 0x15,
        write_cache: true,
        flush_all: 3,
        sgl: Sgl::DoubleWords,
        bit_buckets: true,
        subsystem,
        power: 2500,
    };
    assert_eq!(found, expected);
    assert!(found.bytes() == data);
    assert!(found.submission_entries.contains(7) && !found.submission_entries.contains(5));
}

#[test]
fn identify_data_of_a_namespace() {
    let mut data = [0; identify::SIZE];
    data[0] = 8;
    data[9] = 1;
    data[16] = 7;
    data[24] = 0x11;
    data[26] = 0x21;
    data[30] = 1;
    data[33] = 9;
    [64, 66, 68, 70].iter().for_each(|at| data[*at] = 7);
    data[74..81].copy_from_slice(&[2, 1, 4, 3, 0, 0, 127]);
    data[99] = 1;
    data[104..120].fill(1);
    data[120..128].fill(2);
    data[128 + 4 * 17..132 + 4 * 17].copy_from_slice(&[8, 0, 12, 0]);
    let found = Namespace::from_bytes(&data);
    assert_eq!((found.blocks, found.capacity, found.used, found.format), (8, 256, 7, 17));
    assert_eq!((found.features, found.deallocated, found.granularity), (0x11, 9, 8));
    assert_eq!((found.copy_source, found.copy_length, found.copy_sources), (0x102, 0x304, 128));
    assert_eq!(found.attributes, 1);
    assert_eq!((found.sharing, found.nguid, found.eui64), (1, [1; 16], [2; 8]));
    assert_eq!(found.current_format(), Format { metadata: 8, shift: 12 });
    assert!(found.bytes() == data);
    assert_eq!(Namespace::default().blocks, 0);
}

#[test]
fn the_list_of_active_namespaces_ends_with_the_first_zero() {
    let data = identify::active_namespaces_bytes([1, 7, 0x1_0000]);
    assert_eq!(data[..16], [1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
    assert!(identify::active_namespaces(&data).eq([1, 7, 0x1_0000]));
    assert!(identify::active_namespaces(&identify::active_namespaces_bytes(1..5000)).eq(1..=1024));
    assert_eq!(identify::active_namespaces(&[0; identify::SIZE]).next(), None);
}

#[test]
fn identify_data_of_command_sets() {
    let data = identify::command_sets_bytes(&[0x19, 1]);
    assert_eq!(data[..24], [0x19, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let data = identify::controllers_bytes(&[1, 0x203]);
    assert_eq!(data[..8], [2, 0, 1, 0, 3, 2, 0, 0]);
    assert_eq!(identify::controllers_bytes(&[7; 3000])[..2], [0xff, 7]);
    let any = AnyNamespace { sharing: 1, attributes: 1, ready: true };
    let data = any.bytes();
    assert_eq!((data[1], data[8], data[14]), (1, 1, 1));
    assert_eq!(AnyNamespace::from_bytes(&data), any);
}

#[test]
fn commands_of_local_memory() {
    let mut entry = [0; 64];
    let copy = local_memory::Copy { length: 0x1_0000_0200, target: 0x2_0000_0004, sources: 256, form: 4 };
    copy.put(&mut entry);
    assert_eq!(entry[8..16], [0, 2, 0, 0, 1, 0, 0, 0]);
    assert_eq!(entry[40..52], [4, 0, 0, 0, 2, 0, 0, 0, 0xff, 4, 0, 0]);
    assert_eq!(local_memory::Copy::from_entry(&entry), copy);
    let blocks = local_memory::Blocks { namespace: 2, first: 9, count: 65536, fast_only: true };
    let bytes = blocks.bytes();
    assert_eq!(
        bytes[..24],
        [2, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0x80]
    );
    assert_eq!(local_memory::Blocks::from_bytes(&bytes), blocks);
    let part = local_memory::Bytes { namespace: 17, first: 4, length: 0x1_0002, fast_only: false };
    let bytes = part.bytes();
    assert_eq!(bytes[..24], [17, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0]);
    assert_eq!(local_memory::Bytes::from_bytes(&bytes), part);
}

#[test]
fn commands_of_programs() {
    let mut entry = [0; 64];
    let execute = programs::Execute { program: 0x120, set: 3, ranges: 2, length: 80, parameters: [7, 9] };
    execute.put(&mut entry);
    assert_eq!(entry[8..20], [0x20, 1, 3, 0, 2, 0, 0, 0, 80, 0, 0, 0]);
    assert_eq!((entry[40], entry[48]), (7, 9));
    assert_eq!(programs::Execute::from_entry(&entry), execute);
    let load = programs::LoadProgram { program: 5, kind: 2, unload: true, ..Default::default() };
    assert_eq!(load.words()[0], 0x0102_0005);
    let activation = programs::ProgramActivation { program: 5, select: 1 };
    assert_eq!(activation.words()[0], 0x0001_0005);
    let sets = programs::MemoryRangeSets { select: 1, set: 6, ranges: 8 };
    assert_eq!(sets.words()[..2], [0x0006_0001, 8]);
    let range = programs::MemoryRange { namespace: 17, length: 4096, first: 1 << 33 };
    let bytes = range.bytes();
    assert_eq!(bytes[..16], [17, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(programs::MemoryRange::from_bytes(&bytes), range);
    let own = programs::Descriptor { occupied: 2, activated: true, kind: 0, identifier: Some(0x20) };
    let bytes = own.bytes();
    assert_eq!((bytes[0], bytes[1], bytes[8]), (0b1110, 0, 0x20));
    assert_eq!(programs::Descriptor::from_bytes(&bytes), own);
    let known = programs::Namespace { activated: 40, sets: 64, granularity: 2, ranges: 8, program_bytes: 0 };
    let data = known.bytes();
    assert_eq!(data[..8], [40, 0, 64, 0, 2, 0, 8, 0]);
    assert_eq!(programs::Namespace::from_bytes(&data), known);
}

/// Checks that decoding any bits and encoding them again gives a stable result.
macro_rules! survives {
    ($type:ty, $bits:expr) => {{
        let found = <$type>::from_bits($bits);
        prop_assert_eq!(<$type>::from_bits(found.bits()), found);
        prop_assert_eq!(found.bits() & !$bits, 0, "a bit that was not set");
    }};
}

macro_rules! words_survive {
    ($type:ty, $words:expr) => {{
        let found = <$type>::from_words(&$words);
        prop_assert_eq!(<$type>::from_words(&found.words()), found);
        prop_assert!(found.words().iter().zip($words).all(|(after, before)| after & !before == 0));
    }};
}

fn pointer() -> impl Strategy<Value = DataPointer> {
    let descriptor = (any::<u64>(), any::<u32>(), 0u8..16, 0u8..16)
        .prop_map(|(address, length, kind, subtype)| Descriptor { address, length, kind, subtype });
    prop_oneof![
        (any::<u64>(), any::<u64>()).prop_map(|(first, second)| DataPointer::Prp(first, second)),
        descriptor.clone().prop_map(DataPointer::Sgl),
        descriptor.prop_map(DataPointer::SglWithMetadata),
        any::<[u8; 16]>().prop_map(DataPointer::Reserved),
    ]
}

proptest! {
    #[test]
    fn registers_survive(long in any::<u64>(), short in any::<u32>()) {
        survives!(Capabilities, long);
        survives!(cmb::Control, long);
        survives!(pmr::Space, long);
        survives!(Configuration, short);
        survives!(ControllerStatus, short);
        survives!(AdminQueueSizes, short);
        survives!(cmb::Location, short);
        survives!(cmb::Size, short);
        survives!(cmb::Status, short);
        survives!(pmr::Capabilities, short);
        survives!(pmr::Control, short);
        survives!(pmr::Status, short);
        survives!(QueueCounts, short);
    }

    #[test]
    fn double_words_survive(words in any::<[u32; 6]>()) {
        words_survive!(Blocks, words);
        words_survive!(CreateCompletionQueue, words);
        words_survive!(CreateSubmissionQueue, words);
        words_survive!(Abort, words);
        words_survive!(GetLogPage, words);
        words_survive!(Feature, words);
        words_survive!(local_memory::Range, words);
        words_survive!(programs::LoadProgram, words);
        words_survive!(programs::ProgramActivation, words);
        words_survive!(programs::MemoryRangeSets, words);
    }

    #[test]
    fn commands_survive(
        (opcode, fused, cid, namespace) in (any::<u8>(), 0u8..4, any::<u16>(), any::<u32>()),
        data in pointer(),
        words in any::<[u32; 6]>(),
    ) {
        let command = Command { opcode, fused, cid, namespace, data, words };
        prop_assert_eq!(Command::from_bytes(&command.bytes()), command);
    }

    #[test]
    fn any_entry_is_read(bytes in prop::array::uniform32(any::<u8>()), end in prop::array::uniform16(any::<u8>())) {
        let mut entry = [0; 64];
        entry[..32].copy_from_slice(&bytes);
        entry[32..].copy_from_slice(&bytes);
        let command = Command::from_bytes(&entry);
        prop_assert_eq!(Command::from_bytes(&command.bytes()), command);
        let completion = Completion::from_bytes(&end);
        prop_assert_eq!(completion.bytes(), end);
        prop_assert!(completion.status.0 < 1 << 15);
        prop_assert_eq!(Status::new(completion.status.kind(), completion.status.code()).is(completion.status), true);
    }

    #[test]
    fn identify_data_survive(data in prop::collection::vec(any::<u8>(), identify::SIZE)) {
        let data: [u8; identify::SIZE] = data.try_into().unwrap();
        let controller = Controller::from_bytes(&data);
        prop_assert!(Controller::from_bytes(&controller.bytes()) == controller);
        let namespace = Namespace::from_bytes(&data);
        prop_assert!(Namespace::from_bytes(&namespace.bytes()) == namespace);
    }
}
