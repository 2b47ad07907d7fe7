//! Tests of transfers between SSDs and memory, on the fabric.

use crate::rig::{End, FREE, HOST_MEMORY, Rig, Transfer};
use dcs_abi::admin::{AdminEntry, SsdIdentity, SsdIdentityPacket, opcode};
use dcs_abi::entry::FLAG_DURABLE;
use dcs_abi::operator::Operator::{Crc32c, Gzip, Md5, Sha256};
use dcs_abi::result::PATH_PEER_TO_PEER;
use dcs_abi::status::{Stage, Status};
use dcs_card::card::Config;
use dcs_drivers::bus::Window;
pub use dcs_testkit::bytes as data;

pub fn digest(operator: dcs_abi::operator::Operator, bytes: &[u8]) -> Vec<u8> {
    let mut context = dcs_ndp::Context::new(operator, &[]).unwrap();
    context.absorb(bytes);
    context.value().unwrap().as_bytes().to_vec()
}

#[test]
fn an_ssd_s_bytes_come_to_memory_with_their_digest() {
    let mut rig = Rig::ready(Config::default(), 1);
    let bytes = data(1 << 20, 1);
    rig.ssds[0].1.store(4096, &bytes);
    let to = End::memory(1, FREE, 1 << 20);
    let transfer = Transfer::new(End::ssd(2, &[(4096, 1 << 20)]), to).through(&[(Md5, &[]), (Crc32c, &[])]);
    let before = rig.fabric.interrupts(rig.card_id, 1);
    let ended = rig.run(&transfer);
    assert_eq!((ended.status(), ended.entry.delivered.value()), (Status::Success, 1 << 20));
    assert_eq!(ended.digest(0), digest(Md5, &bytes));
    assert_eq!(ended.digest(1), digest(Crc32c, &bytes));
    assert_eq!(rig.load(FREE, 1 << 20), bytes);
    assert!(rig.run_until(|rig| rig.fabric.interrupts(rig.card_id, 1) > before));
    rig.assert_idle();
    assert_eq!(rig.fabric.interrupts(rig.card_id, 1), before + 1, "one submission, one interrupt");
}

#[test]
fn from_ssd_to_ssd_no_byte_of_the_data_goes_through_host_memory() {
    let mut rig = Rig::ready(Config::default(), 2);
    let bytes = data(3 << 20, 2);
    rig.ssds[0].1.store(1 << 20, &bytes);
    let meter = rig.fabric.meter(Window { address: 0, length: HOST_MEMORY });
    let extents = [(2 << 20, 2 << 20), (1 << 20, 1 << 20)];
    let transfer = Transfer::new(End::ssd(2, &extents), End::ssd(3, &[(0, 3 << 20)]));
    let transfer = Transfer { flags: FLAG_DURABLE, ..transfer }.through(&[(Sha256, &[])]);
    let ended = rig.run(&transfer);
    assert_eq!(ended.status(), Status::Success);
    let expected = [&bytes[1 << 20..], &bytes[..1 << 20]].concat();
    assert_eq!(ended.digest(0), digest(Sha256, &expected));
    assert_eq!(ended.result.path, PATH_PEER_TO_PEER);
    let mut written = vec![0; 3 << 20];
    rig.ssds[1].1.load(0, &mut written);
    assert_eq!(written, expected);
    // Only the entry, the descriptor, the result and the completion: nothing that grows with the data.
    let control = rig.fabric.metered(meter).bytes();
    assert!((64 + 256 + 1088 + 16..4096).contains(&control), "{control} bytes of host memory traffic");
}

#[test]
fn pieces_that_begin_and_end_anywhere_are_read() {
    let mut rig = Rig::ready(Config::default(), 1);
    let bytes = data(2 << 20, 3);
    rig.ssds[0].1.store(0, &bytes);
    for (position, length) in
        [(0, 1), (511, 2), (513, 65_536), (1, 200_000), (65_535, 131_073), (1_000_000, 77)]
    {
        let to = End::memory(1, FREE + 3, length);
        let ended = rig.run(&Transfer::new(End::ssd(2, &[(position, length)]), to).through(&[(Md5, &[])]));
        let expected = &bytes[position as usize..(position + length) as usize];
        assert_eq!(ended.status(), Status::Success, "{position}+{length}");
        assert_eq!(ended.digest(0), digest(Md5, expected), "{position}+{length}");
        assert_eq!(rig.load(FREE + 3, length as usize), expected, "{position}+{length}");
    }
    rig.assert_idle();
}

#[test]
fn memory_goes_to_an_ssd_and_what_lies_behind_its_end_keeps_its_bytes() {
    let mut rig = Rig::ready(Config::default(), 1);
    let bytes = data(100_000, 4);
    rig.store(FREE, &bytes);
    rig.ssds[0].1.store(0, &vec![0xee; 200_000]);
    let transfer = Transfer::new(End::memory(1, FREE, 100_000), End::ssd(2, &[(4096, 100_352)]));
    let ended = rig.run(&transfer);
    assert_eq!((ended.status(), ended.entry.delivered.value()), (Status::Success, 100_000));
    let mut written = vec![0; 110_000];
    rig.ssds[0].1.load(0, &mut written);
    assert!(written[..4096].iter().all(|byte| *byte == 0xee));
    assert_eq!(written[4096..104_096], bytes);
    assert!(written[104_096..].iter().all(|byte| *byte == 0xee));
    // Likewise if the destination ends with the data, in several extents, and if everything is less than a logical block.
    let extents = [(200_704, 65_536), (300_032, 34_464)];
    let ended = rig.run(&Transfer::new(End::memory(1, FREE, 100_000), End::ssd(2, &extents)));
    assert_eq!((ended.status(), ended.entry.delivered.value()), (Status::Success, 100_000));
    rig.ssds[0].1.store(400_384, &[0xdd; 512]);
    let ended = rig.run(&Transfer::new(End::memory(1, FREE, 7), End::ssd(2, &[(400_384, 7)])));
    assert_eq!((ended.status(), ended.entry.delivered.value()), (Status::Success, 7));
    let read = |at, length| {
        let mut found = vec![0; length];
        rig.ssds[0].1.load(at, &mut found);
        found
    };
    assert_eq!(read(300_032, 34_464), bytes[65_536..]);
    assert_eq!(read(300_032 + 34_464, 352), [0; 352], "the block was empty, and still is");
    assert_eq!(read(400_384, 512), [&bytes[..7], &[0xdd; 505]].concat());
    rig.assert_idle();
}

#[test]
fn an_ssd_says_which_one_it_is() {
    let mut rig = Rig::ready(Config::default(), 1);
    let ask = |rig: &mut Rig, handle, at| {
        let words = [handle, 0, 0, 0, 0, 0];
        rig.admin(AdminEntry { opcode: opcode::IDENTIFY_SSD, data_address: at, words, ..Default::default() })
    };
    ask(&mut rig, 2, FREE).unwrap();
    let bytes = rig.load(FREE, SsdIdentity::SIZE);
    let identity = SsdIdentity::parse(&SsdIdentityPacket::new_checked(&bytes[..]).unwrap()).unwrap();
    let namespace = rig.ssds[0].1.clone();
    assert_eq!((identity.nsid, identity.block_size, identity.blocks), (1, 512, namespace.blocks()));
    assert_eq!(&identity.serial, b"FABRIC0001          ");
    // To granted memory, with an SSD as the source.
    assert_eq!(ask(&mut rig, 1, FREE), Err(Status::BadHandle));
    assert_eq!(ask(&mut rig, 2, HOST_MEMORY - 8), Err(Status::DataTransferError));
}

#[test]
fn a_stream_that_ends_early_leaves_the_rest_of_the_logical_block() {
    if crate::core::lacks("operators that change the length") {
        return;
    }
    let mut rig = Rig::ready(Config::default(), 2);
    let bytes = data(10_000, 6);
    rig.ssds[0].1.store(0, &bytes);
    rig.ssds[1].1.store(0, &[0xee; 20_000]);
    // The length is not known in advance: the data are packed, and the destination has room for more.
    let packed = rig.run(
        &Transfer::new(End::ssd(2, &[(0, 10_000)]), End::ssd(3, &[(0, 16_384)]))
            .through(&[(Gzip, &dcs_ndp::parameter::level(1))]),
    );
    let length = packed.entry.delivered.value() as usize;
    assert!(packed.status() == Status::Success && !length.is_multiple_of(512), "{length}");
    let mut written = vec![0; 20_000];
    rig.ssds[1].1.load(0, &mut written);
    assert!(written[length..].iter().all(|byte| *byte == 0xee));
}

#[test]
fn what_changes_its_length_is_written_whole() {
    if crate::core::lacks("operators that change the length") {
        return;
    }
    let mut rig = Rig::ready(Config::default(), 2);
    let bytes: Vec<u8> = (0..1_000_000u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
    rig.ssds[0].1.store(0, &bytes);
    let level = dcs_ndp::parameter::level(1);
    let to = End::ssd(3, &[(0, 8 << 20)]);
    let transfer =
        Transfer::new(End::ssd(2, &[(0, bytes.len() as u64)]), to).through(&[(Md5, &[]), (Gzip, &level)]);
    let ended = rig.run(&transfer);
    assert_eq!(ended.status(), Status::Success);
    let length = ended.entry.delivered.value();
    assert!(length < bytes.len() as u64 && ended.digest(0) == digest(Md5, &bytes));
    // And back.
    let gunzip = dcs_abi::operator::Operator::Gunzip;
    let back = Transfer::new(End::ssd(3, &[(0, length)]), End::memory(1, FREE, 8 << 20));
    let ended = rig.run(&Transfer { length, ..back }.through(&[(gunzip, &[])]));
    assert_eq!((ended.status(), ended.entry.delivered.value()), (Status::Success, bytes.len() as u64));
    assert_eq!(rig.load(FREE, bytes.len()), bytes);
}

#[test]
fn many_transfers_at_once_each_have_their_own_bytes() {
    let mut rig = Rig::ready(Config::default(), 2);
    let bytes = data(8 << 20, 5);
    rig.ssds[0].1.store(0, &bytes);
    rig.ssds[1].1.store(0, &bytes);
    let transfers: Vec<(u16, usize)> = (0..40)
        .map(|at| {
            let (from, to) = (at * 190_000, FREE + at as u64 * 262_144);
            let source = End::ssd(2 + (at % 2) as u32, &[(from as u64, 180_001)]);
            let transfer = Transfer::new(source, End::memory(1, to, 180_001)).through(&[(Md5, &[])]);
            (rig.submit(&transfer), from)
        })
        .collect();
    for (at, (cid, from)) in transfers.into_iter().enumerate() {
        let ended = rig.wait(cid);
        assert_eq!(ended.status(), Status::Success);
        assert_eq!(ended.digest(0), digest(Md5, &bytes[from..from + 180_001]));
        assert_eq!(rig.load(FREE + at as u64 * 262_144, 180_001), &bytes[from..from + 180_001]);
    }
    rig.assert_idle();
}

#[test]
fn what_may_not_be_touched_is_refused_where_it_is_named() {
    let mut rig = Rig::ready(Config::default(), 1);
    let memory = || End::memory(1, FREE, 4096);
    let ssd = |position, length| End::ssd(2, &[(position, length)]);
    let size = (1 << 17) * 512;
    let own = rig.fabric.bar(rig.card_id, 1).address;
    let cases = [
        (ssd(size - 512, 1024), memory(), Status::OutOfRange, Stage::Source),
        (ssd(u64::MAX - 4096, 4096), memory(), Status::OutOfRange, Stage::Source),
        (memory(), ssd(100, 4096), Status::InvalidField, Stage::Destination),
        (memory(), ssd(4197, 4700), Status::InvalidField, Stage::Destination),
        (
            ssd(0, 4096),
            End::memory(1, HOST_MEMORY - 100, 4096),
            Status::DataTransferError,
            Stage::Destination,
        ),
        (ssd(0, 4096), End::memory(1, own, 4096), Status::DataTransferError, Stage::Destination),
        (ssd(0, 4096), End::memory(2, FREE, 4096), Status::UnsupportedEndpoint, Stage::Destination),
        (End::ssd(1, &[(0, 4096)]), memory(), Status::UnsupportedEndpoint, Stage::Source),
        (End::ssd(77, &[(0, 4096)]), memory(), Status::BadHandle, Stage::Source),
        (End::ssd(0, &[(0, 4096)]), memory(), Status::BadHandle, Stage::Source),
    ];
    for (source, destination, status, stage) in cases {
        let what = format!("{source:?} {destination:?}");
        let ended = rig.run(&Transfer { length: 4096, ..Transfer::new(source, destination) });
        assert_eq!((ended.status(), ended.entry.stage()), (status, stage), "{what}");
        assert_eq!(ended.entry.delivered.value(), 0);
    }
    rig.assert_idle();
}
