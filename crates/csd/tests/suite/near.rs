//! Near-storage commands: every way gives the output that the operators make of the source.

use std::sync::Arc;

use dcs_abi::operator::Operator;
use dcs_csd::near::{ENDED, FROM_GUEST, NO_DATA, REST, STREAMS, TO_GUEST};
use dcs_csd::storage::ModelStorage;
use dcs_csd::{Chain, Config, Namespace, Storage, VolumeError, VolumeId};
use dcs_ndp::{parameter, sequential};
use dcs_nvme::{Completion, Status};

use crate::rig::{DATA, Machine};

const GUEST: u32 = 0;
pub const BLOCKS: u32 = 1;
pub const MEMORY: u32 = 2;
pub const PARAMETERS: u32 = 3;
pub const RESULTS: u32 = 4;
pub const STREAM: u32 = 5;
pub const NOWHERE: u32 = 6;

/// The fields of a command, as in the table of `docs/csd.md`.
#[derive(Clone, Copy, Default)]
pub struct Near {
    pub opcode: u8,
    pub namespace: u32,
    pub source: u32,
    pub destination: u32,
    pub handle: u64,
    pub request: u32,
    /// CDW10 to 15.
    pub words: [u32; 6],
}

impl Near {
    /// Digests the first blocks of namespace 1: their bytes go nowhere.
    pub fn digest(handle: u64, blocks: u32) -> Near {
        let (opcode, namespace, source, destination) = (NO_DATA, 1, BLOCKS, NOWHERE);
        let words = [0, blocks, 0, 0, 0, 0];
        Near { opcode, namespace, source, destination, handle, words, request: 0 }
    }
}

/// A machine with a plain namespace 1 and an encrypted one, 2, of 1 MiB each.
pub fn machine() -> Machine<ModelStorage> {
    let mut storage = ModelStorage::new(0);
    let volumes = [storage.add(1 << 20, 512), storage.add(1 << 20, 512)];
    let mut machine = Machine::new(Config { buffers: 2, ..Config::new("near") }, storage, true);
    machine.attach(1, volumes[0], 512);
    let info = machine.drives.storage().volume(volumes[1]).unwrap();
    let mut namespace = Namespace::new(2, volumes[1], &info, 4096).unwrap();
    namespace.chain = Some(Arc::new(Chain::aes256_xts(&std::array::from_fn(|i| i as u8)).unwrap()));
    machine.controller().attach(namespace, machine.drives.storage()).unwrap();
    machine.enable();
    machine.create(1);
    machine
}

pub fn run<S: Storage>(machine: &mut Machine<S>, near: Near) -> Completion {
    run_entry(machine, entry(near))
}

fn run_entry<S: Storage>(machine: &mut Machine<S>, entry: [u8; 64]) -> Completion {
    let cid = machine.submit_bytes(1, entry);
    machine.work();
    let done = machine.reap(1).expect("a completion");
    assert_eq!(done.cid, cid);
    done
}

pub fn entry(near: Near) -> [u8; 64] {
    let mut entry = [0; 64];
    entry[0] = near.opcode;
    entry[4..8].copy_from_slice(&near.namespace.to_le_bytes());
    let places = near.source | near.destination << 4 | (near.handle as u32) << 16;
    entry[8..12].copy_from_slice(&places.to_le_bytes());
    entry[12..16].copy_from_slice(&near.request.to_le_bytes());
    // The buffer as one piece: a descriptor of a scatter gather list.
    let length = if near.opcode == NO_DATA { 0 } else { near.words[0] * 4 };
    entry[1] = 1 << 6;
    entry[24..40].copy_from_slice(&dcs_nvme::sgl::Descriptor::data(DATA, length).bytes());
    for (place, word) in entry[40..].chunks_exact_mut(4).zip(near.words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    entry
}

/// A chain as parameters, with this many ranges to follow.
pub fn parameters(chain: &[(Operator, Vec<u8>)], ranges: u32) -> Vec<u8> {
    let mut bytes = vec![chain.len() as u8, 0, 0, 0];
    bytes.extend_from_slice(&ranges.to_le_bytes());
    for (operator, parameter) in chain {
        bytes.extend_from_slice(&[*operator as u8, 0]);
        bytes.extend_from_slice(&(parameter.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(parameter);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
    bytes
}

/// The command that sends these bytes, which are put into the guest's memory.
pub fn sending<S: Storage>(machine: &Machine<S>, namespace: u32, destination: u32, bytes: &[u8]) -> [u8; 64] {
    machine.guest.store(DATA, bytes);
    let length = bytes.len() as u32;
    let words = [length / 4, length, 0, 0, 0, 0];
    entry(Near { opcode: FROM_GUEST, namespace, destination, words, ..Near::default() })
}

pub fn send<S: Storage>(
    machine: &mut Machine<S>,
    namespace: u32,
    destination: u32,
    bytes: &[u8],
) -> Completion {
    let entry = sending(machine, namespace, destination, bytes);
    run_entry(machine, entry)
}

pub fn load<S: Storage>(machine: &mut Machine<S>, chain: &[(Operator, Vec<u8>)]) -> Completion {
    send(machine, 0, PARAMETERS, &parameters(chain, 0))
}

/// Opens a stream over these ranges, in bytes.
pub fn open(
    machine: &mut Machine<ModelStorage>,
    namespace: u32,
    chain: &[(Operator, Vec<u8>)],
    ranges: &[(u64, u64)],
) -> Completion {
    send(machine, namespace, STREAM, &opening(chain, ranges))
}

/// A chain and ranges, as they open a stream.
pub fn opening(chain: &[(Operator, Vec<u8>)], ranges: &[(u64, u64)]) -> Vec<u8> {
    let mut bytes = parameters(chain, ranges.len() as u32);
    for (first, length) in ranges {
        bytes.extend_from_slice(&first.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
    }
    bytes
}

/// The next output of a stream: at most so much room, and bytes of the source. The status, what came out, and true
/// where that was all.
pub fn take(
    machine: &mut Machine<ModelStorage>,
    handle: u64,
    room: u32,
    limit: u32,
) -> (Status, Vec<u8>, bool) {
    let words = [room / 4, limit, 0, 0, 0, 0];
    let done = run(machine, Near { opcode: TO_GUEST, source: STREAM, handle, words, ..Near::default() });
    let length = done.result as usize;
    (done.status, machine.guest.bytes(DATA, length), u64::from(done.result_high) << 32 & ENDED != 0)
}

fn page(machine: &mut Machine<ModelStorage>, request: u32) -> Vec<u8> {
    let words = [192, 0, 0, 0, 0, 0];
    let done = run(machine, Near { opcode: TO_GUEST, source: RESULTS, request, words, ..Near::default() });
    assert_eq!(done.status, Status::SUCCESS);
    machine.guest.bytes(DATA, 768)
}

fn long(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

fn text(length: usize) -> Vec<u8> {
    (0..length).map(|at| b"a line of the log, number \n"[at % 27].wrapping_add((at / 9000) as u8)).collect()
}

#[test]
fn read_through() {
    let mut machine = machine();
    let content = text(1 << 20);
    machine.drives.storage_mut().bytes_mut(VolumeId(0)).copy_from_slice(&content);
    let chain = vec![(Operator::Md5, vec![]), (Operator::Gzip, vec![])];
    let handle = u64::from(load(&mut machine, &chain).result);
    assert_ne!(handle, 0);
    // 900 KiB and half a piece from block 3 on; 512 KiB of room.
    let (first, blocks) = (3usize, 1801usize);
    let words = [128 << 10, blocks as u32, first as u32, 0, 0, 0];
    let near = Near {
        opcode: TO_GUEST,
        namespace: 1,
        source: BLOCKS,
        handle,
        request: 77,
        words,
        ..Near::default()
    };
    let done = run(&mut machine, near);
    assert_eq!(done.status, Status::SUCCESS);
    let source = &content[first * 512..(first + blocks) * 512];
    let packed = machine.guest.bytes(DATA, done.result as usize);
    let back = sequential::run(&[(Operator::Gunzip, vec![])], &packed).unwrap();
    assert!(back.output == source);
    let page = page(&mut machine, 77);
    let md5 = sequential::run(&chain[..1], source).unwrap().digests[0].unwrap();
    assert_eq!((long(&page[8..]), long(&page[16..])), (source.len() as u64, done.result.into()));
    assert_eq!((page[6], page[7], &page[80..96]), (0xff, 2, md5.as_bytes()));
    // No operators: as a read, and of an encrypted namespace what the guest wrote there.
    let words = [1024, 1, 0, 0, 0, 0];
    let near = Near { opcode: TO_GUEST, namespace: 1, source: BLOCKS, words, ..Near::default() };
    let done = run(&mut machine, near);
    assert_eq!((done.status, done.result), (Status::SUCCESS, 512));
    assert!(machine.guest.bytes(DATA, 512) == content[..512]);
}

/// Lines of a file, found near storage: its last block is cut to the file's length.
#[test]
fn grep_through() {
    let mut machine = machine();
    let line = |number: usize| format!("{number} {}\n", if number % 50 == 7 { "ERROR" } else { "fine" });
    let content: String = (0..10_000).map(line).collect();
    machine.drives.storage_mut().bytes_mut(VolumeId(0))[8 * 512..][..content.len()]
        .copy_from_slice(content.as_bytes());
    let grep = parameter::Grep { pattern: "^[0-9]*7 ERR".into(), ..Default::default() };
    let length = content.len() as u64;
    let chain = [(Operator::Slice, parameter::slice(0, length).to_vec()), (Operator::Grep, grep.block())];
    let handle = u64::from(load(&mut machine, &chain).result);
    let words = [16 << 10, content.len().div_ceil(512) as u32, 8, 0, 0, 0];
    let near = Near { opcode: TO_GUEST, namespace: 1, source: BLOCKS, handle, words, ..Near::default() };
    let done = run(&mut machine, near);
    assert_eq!(done.status, Status::SUCCESS);
    let expected: String = (0..10_000).filter(|number| number % 50 == 7).map(line).collect();
    assert_eq!(machine.guest.bytes(DATA, done.result as usize), expected.as_bytes());
    // An invalid pattern is refused when it is loaded.
    let broken = parameter::Grep { pattern: "(".into(), ..Default::default() };
    assert_ne!(load(&mut machine, &[(Operator::Grep, broken.block())]).status, Status::SUCCESS);
}

#[test]
fn write_through_and_back() {
    let mut machine = machine();
    let content = text(300_000);
    let handle =
        u64::from(load(&mut machine, &[(Operator::Zstd, vec![]), (Operator::Sha256, vec![])]).result);
    machine.guest.store(DATA, &content);
    // Onto the encrypted namespace, from block 5 on; 100 blocks of room.
    let words = [75_000, 300_000, 100, 0, 5, 0];
    let write = Near {
        opcode: FROM_GUEST,
        namespace: 2,
        destination: BLOCKS,
        handle,
        request: 1,
        words,
        ..Near::default()
    };
    let done = run(&mut machine, write);
    assert_eq!(done.status, Status::SUCCESS);
    let packed = done.result;
    assert!(packed > 0 && packed < 300_000);
    // The plain bytes are nowhere on the volume.
    let magic = [0x28, 0xb5, 0x2f, 0xfd];
    assert_ne!(machine.drives.storage().bytes(VolumeId(1))[5 * 4096..5 * 4096 + 4], magic);
    // Back, beside the disk: into device memory, cut to its length, and unpacked there.
    let chain = [(Operator::Slice, parameter::slice(0, packed.into()).to_vec())];
    let slice = u64::from(load(&mut machine, &chain).result);
    let copy = Near {
        opcode: NO_DATA,
        namespace: 2,
        source: BLOCKS,
        destination: MEMORY,
        handle: slice,
        words: [packed, packed.div_ceil(4096), 5, 0, 0, 0],
        ..Near::default()
    };
    let done = run(&mut machine, copy);
    assert_eq!((done.status, done.result), (Status::SUCCESS, packed));
    let unpack = u64::from(load(&mut machine, &[(Operator::Unzstd, vec![])]).result);
    let words = [300_000, packed, 0, 0, 500_000, 0];
    let there = Near {
        opcode: NO_DATA,
        source: MEMORY,
        destination: MEMORY,
        handle: unpack,
        words,
        ..Near::default()
    };
    let done = run(&mut machine, there);
    assert_eq!((done.status, done.result), (Status::SUCCESS, 300_000));
    let words = [75_000, 300_000, 500_000, 0, 0, 0];
    let done = run(&mut machine, Near { opcode: TO_GUEST, source: MEMORY, words, ..Near::default() });
    assert_eq!((done.status, done.result), (Status::SUCCESS, 300_000));
    assert!(machine.guest.bytes(DATA, 300_000) == content);
}

#[test]
fn copy_through() {
    let mut machine = machine();
    let content = text(1 << 20);
    machine.drives.storage_mut().bytes_mut(VolumeId(0)).copy_from_slice(&content);
    let key: [u8; 64] = std::array::from_fn(|i| 255 - i as u8);
    let chain = vec![(Operator::Aes256Xts, parameter::aes256_xts(&key, 512, 0).to_vec())];
    let handle = u64::from(load(&mut machine, &chain).result);
    let words = [1000, 1000, 0, 0, 1040, 0];
    let copy = Near {
        opcode: NO_DATA,
        namespace: 1,
        source: BLOCKS,
        destination: BLOCKS,
        handle,
        words,
        ..Near::default()
    };
    let done = run(&mut machine, copy);
    assert_eq!((done.status, done.result), (Status::SUCCESS, 512_000));
    let expected = sequential::run(&chain, &content[..512_000]).unwrap().output;
    let bytes = machine.drives.storage().bytes(VolumeId(0));
    assert!(bytes[1040 * 512..2040 * 512] == expected && bytes[..1040 * 512] == content[..1040 * 512]);
}

#[test]
fn what_cannot_be_is_refused() {
    let mut machine = machine();
    let near = Near {
        opcode: TO_GUEST,
        namespace: 1,
        source: BLOCKS,
        words: [1024, 1, 0, 0, 0, 0],
        ..Near::default()
    };
    let words = |words| Near { words, ..near };
    let table = [
        (Near { source: 9, ..near }, Status::INVALID_FIELD),
        (Near { destination: BLOCKS, ..near }, Status::INVALID_FIELD),
        (Near { source: GUEST, ..near }, Status::INVALID_FIELD),
        (Near { handle: 1, ..near }, Status::INVALID_FIELD),
        (Near { namespace: 3, ..near }, Status::INVALID_FIELD),
        (Near { namespace: 0, ..near }, Status::INVALID_NAMESPACE),
        (Near { source: RESULTS, ..near }, Status::INVALID_FIELD),
        (Near { source: MEMORY, words: [1024, 2, (1 << 20) - 1, 0, 0, 0], ..near }, Status::INVALID_FIELD),
        (words([1024, 1, 2048, 0, 0, 0]), Status::LBA_OUT_OF_RANGE),
        (words([1 << 20, 1, 0, 0, 0, 0]), Status::INVALID_FIELD),
        (words([127, 1, 0, 0, 0, 0]), Status::CAPACITY_EXCEEDED),
        (Near { opcode: NO_DATA, source: PARAMETERS, handle: 4, ..near }, Status::INVALID_FIELD),
        (
            Near {
                opcode: FROM_GUEST,
                source: GUEST,
                destination: BLOCKS,
                words: [1, 5, 1, 0, 0, 0],
                ..near
            },
            Status::INVALID_FIELD,
        ),
    ];
    for (number, (near, expected)) in table.into_iter().enumerate() {
        let done = run(&mut machine, near);
        assert!(done.status.is(expected), "{number}: {}", done.status);
    }
    machine.guest.store(DATA, &[0; 64]);
    let done = load(&mut machine, &[]);
    assert!(done.status.is(Status::INVALID_FIELD));
    let done = load(&mut machine, &[(Operator::Aes256Ctr, vec![1; 5])]);
    assert_eq!((done.status.kind(), done.status.is_success()), (7, false), "parameters of the wrong length");
    // An expected digest that is another: the vendor's status, and the operator that says so.
    let handle =
        u64::from(load(&mut machine, &[(Operator::Crc32c, vec![]), (Operator::Md5, vec![0; 16])]).result);
    let done = run(&mut machine, Near { handle, request: 5, ..near });
    assert_eq!(done.status.kind(), dcs_nvme::Status(dcs_abi::status::Status::DigestMismatch.code()).kind());
    assert_eq!(page(&mut machine, 5)[6], 1);
    // A failing medium gives a media status, here too.
    machine.drives.storage_mut().fail_next(VolumeError::Medium(5));
    assert!(run(&mut machine, near).status.is(Status::UNRECOVERED_READ_ERROR));
    // A forgotten handle is invalid.
    let forget = Near { opcode: NO_DATA, source: PARAMETERS, handle, ..Near::default() };
    assert_eq!(run(&mut machine, forget).status, Status::SUCCESS);
    assert!(run(&mut machine, Near { handle, ..near }).status.is(Status::INVALID_FIELD));
    for _ in 0..dcs_csd::near::HANDLES {
        assert_eq!(load(&mut machine, &[(Operator::Md5, vec![])]).status, Status::SUCCESS);
    }
    assert_eq!(load(&mut machine, &[(Operator::Md5, vec![])]).status.kind(), 7);
    // And a reset forgets all of them.
    machine.again();
    assert!(run(&mut machine, Near { handle: 2, ..near }).status.is(Status::INVALID_FIELD));
}

/// Ranges that begin and end anywhere pass one chain, though the namespace is encrypted, and are taken in pieces
/// that are smaller than what comes out at once.
#[test]
fn a_stream_is_taken_by_several_commands() {
    let mut machine = machine();
    let content = text(1 << 20);
    for at in (0..1 << 20).step_by(256 << 10) {
        machine.guest.store(DATA, &content[at..at + (256 << 10)]);
        let words = [64 << 10, 256 << 10, 64, 0, (at >> 12) as u32, 0];
        let near = Near { opcode: FROM_GUEST, namespace: 2, destination: BLOCKS, words, ..Near::default() };
        assert_eq!(run(&mut machine, near).status, Status::SUCCESS);
    }
    let ranges = [(5000, 300_001), (0, 1), (700_000, 0), (1_000_000, 48_576), (4096, 8192), (4095, 2)];
    let expected: Vec<u8> = ranges
        .iter()
        .flat_map(|(first, length)| &content[*first as usize..(*first + *length) as usize])
        .copied()
        .collect();
    let chain = vec![(Operator::Md5, vec![]), (Operator::Crc32c, vec![])];
    for (room, limit) in [(4096, 0), (100_000, 70_000), (512 << 10, 0), (64 << 10, 4096)] {
        let handle = u64::from(open(&mut machine, 2, &chain, &ranges).result);
        assert_ne!(handle, 0);
        let mut taken = Vec::new();
        loop {
            let (status, bytes, ended) = take(&mut machine, handle, room, limit);
            assert_eq!(status, Status::SUCCESS);
            assert!(ended || limit > 0 || bytes.len() == room as usize);
            taken.extend_from_slice(&bytes);
            if ended {
                break;
            }
        }
        assert!(taken == expected, "room {room}, limit {limit}");
        let words = [192, 0, 0, 0, 0, 0];
        let near = Near { opcode: TO_GUEST, source: RESULTS, handle, words, ..Near::default() };
        assert_eq!(run(&mut machine, near).status, Status::SUCCESS);
        let page = machine.guest.bytes(DATA, 768);
        let md5 = sequential::run(&chain[..1], &expected).unwrap().digests[0].unwrap();
        assert_eq!((long(&page[8..]), &page[80..96]), (expected.len() as u64, md5.as_bytes()));
        let close = Near { opcode: NO_DATA, source: STREAM, handle, ..Near::default() };
        assert_eq!(run(&mut machine, close).status, Status::SUCCESS);
        assert!(run(&mut machine, close).status.is(Status::INVALID_FIELD), "it is closed");
        assert!(take(&mut machine, handle, 4096, 0).0.is(Status::INVALID_FIELD));
    }
    // Unpacked bytes beyond the requested ones are kept for the next command.
    let handle = u64::from(open(&mut machine, 1, &[(Operator::Gzip, vec![])], &[(0, 1 << 20)]).result);
    let (mut packed, mut ended) = (Vec::new(), false);
    while !ended {
        let (status, bytes, all) = take(&mut machine, handle, 100, 0);
        assert_eq!(status, Status::SUCCESS);
        packed.extend_from_slice(&bytes);
        ended = all;
    }
    let back = sequential::run(&[(Operator::Gunzip, vec![])], &packed).unwrap();
    assert!(back.output == vec![0; 1 << 20]);
}

/// Bytes that come first pass the chain before those of the ranges; the result page tells each operator's work.
#[test]
fn a_stream_begins_with_bytes_that_came_with_it() {
    let mut machine = machine();
    let content = text(1 << 20);
    machine.drives.storage_mut().bytes_mut(VolumeId(0)).copy_from_slice(&content);
    let chain = vec![(Operator::Md5, vec![]), (Operator::Gzip, vec![])];
    for (first, ranges) in [
        (&content[7..20_007], &[(100u64, 300_000u64), (512, 5)][..]),
        (&content[..1], &[(0, 1)]),
        (&content[9..50_000], &[]),
    ] {
        let mut bytes = parameters(&chain, ranges.len() as u32);
        bytes[1..4].copy_from_slice(&(first.len() as u32).to_le_bytes()[..3]);
        for (first, length) in ranges {
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&length.to_le_bytes());
        }
        bytes.extend_from_slice(first);
        bytes.resize(bytes.len().next_multiple_of(4), 0xee);
        let handle = u64::from(send(&mut machine, 1, STREAM, &bytes).result);
        let (mut taken, mut is_all) = (Vec::new(), false);
        while !is_all {
            let (status, bytes, ended) = take(&mut machine, handle, 512 << 10, 10_000);
            assert_eq!(status, Status::SUCCESS);
            taken.extend_from_slice(&bytes);
            is_all = ended;
        }
        let mut expected = first.to_vec();
        for (first, length) in ranges {
            expected.extend_from_slice(&content[*first as usize..(*first + *length) as usize]);
        }
        assert!(sequential::run(&[(Operator::Gunzip, vec![])], &taken).unwrap().output == expected);
        let words = [192, 0, 0, 0, 0, 0];
        let near = Near { opcode: TO_GUEST, source: RESULTS, handle, words, ..Near::default() };
        assert_eq!(run(&mut machine, near).status, Status::SUCCESS);
        let page = machine.guest.bytes(DATA, 768);
        let md5 = sequential::run(&chain[..1], &expected).unwrap().digests[0].unwrap();
        assert_eq!((long(&page[8..]), &page[80..96]), (expected.len() as u64, md5.as_bytes()));
        let pieces = |at: usize| u32::from_le_bytes(page[24 + 4 * at..][..4].try_into().unwrap());
        assert!(pieces(0) > 0 && pieces(1) > 0 && pieces(2) == 0);
    }
    // More than there are.
    let mut bytes = parameters(&chain, 0);
    bytes[1] = 5;
    bytes.extend_from_slice(&[1; 4]);
    assert!(send(&mut machine, 1, STREAM, &bytes).status.is(Status::INVALID_FIELD));
    let worked: Vec<_> = machine.controller().operators().collect();
    let total = 20_000 + 300_005 + 2 + 49_991;
    let [(Operator::Md5, md5), (Operator::Gzip, gzip)] = worked[..] else { panic!("{worked:?}") };
    assert!(md5.bytes == total && gzip.bytes < total && md5.pieces > 4, "{worked:?}");
}

/// The output of a stream goes to logical blocks of another namespace, which is encrypted: whole blocks, from
/// several commands, however these are cut; what fills none is taken by the guest.
#[test]
fn a_stream_goes_to_blocks_and_its_rest_to_the_guest() {
    let mut machine = machine();
    let content = text(1 << 20);
    machine.drives.storage_mut().bytes_mut(VolumeId(0)).copy_from_slice(&content);
    let chain = vec![(Operator::Crc32c, vec![])];
    for (length, room, limit) in
        [(300_001u64, 7u32, 0u32), (300_001, 100, 5000), (4096, 1, 0), (4095, 3, 100), (409_600, 100, 0)]
    {
        let handle = u64::from(open(&mut machine, 1, &chain, &[(5, length)]).result);
        let (mut block, mut out, mut commands) = (3u32, Vec::new(), 0);
        let has_rest = loop {
            let near = Near {
                opcode: NO_DATA,
                namespace: 2,
                source: STREAM,
                destination: BLOCKS,
                handle,
                words: [room, limit, 0, 0, block, 0],
                ..Near::default()
            };
            let done = run(&mut machine, near);
            assert_eq!(done.status, Status::SUCCESS);
            assert!(done.result.is_multiple_of(4096) && done.result <= room * 4096, "{}", done.result);
            (block, commands) = (block + done.result / 4096, commands + 1);
            let high = u64::from(done.result_high) << 32;
            if high & (ENDED | REST) != 0 {
                break high & REST != 0;
            }
            assert!(limit > 0 || done.result == room * 4096);
        };
        assert!(commands >= length.div_ceil(u64::from(room) * 4096));
        let blocks = (block - 3) * 8;
        if blocks > 0 {
            let words = [blocks * 128, block - 3, 3, 0, 0, 0];
            let near =
                Near { opcode: TO_GUEST, namespace: 2, source: BLOCKS, request: 3, words, ..Near::default() };
            assert_eq!(run(&mut machine, near).status, Status::SUCCESS);
            out = machine.guest.bytes(DATA, (block - 3) as usize * 4096);
        }
        assert_eq!(has_rest, length % 4096 > 0);
        if has_rest {
            let (status, rest, ended) = take(&mut machine, handle, 4096, 0);
            assert!(status == Status::SUCCESS && ended);
            out.extend(rest);
        }
        assert!(out == content[5..5 + length as usize], "{length} in {room} blocks, {limit}");
    }
    // Without any room, nothing is lost.
    let handle = u64::from(open(&mut machine, 1, &[], &[(0, 100)]).result);
    let to = |first, room| Near {
        opcode: NO_DATA,
        namespace: 2,
        source: STREAM,
        destination: BLOCKS,
        handle,
        words: [room, 0, 0, 0, first, 0],
        ..Near::default()
    };
    assert!(run(&mut machine, to(u32::MAX, 1)).status.is(Status::LBA_OUT_OF_RANGE));
    assert_eq!(u64::from(run(&mut machine, to(0, 1)).result_high) << 32, REST);
    assert_eq!(take(&mut machine, handle, 4096, 0).1, content[..100]);
}

#[test]
fn digests_alone_need_no_buffer() {
    let mut machine = machine();
    let content = text(1 << 20);
    machine.drives.storage_mut().bytes_mut(VolumeId(0)).copy_from_slice(&content);
    let chain = vec![(Operator::Sha256, vec![])];
    let sha256 = |bytes: &[u8]| sequential::run(&chain, bytes).unwrap().digests[0].unwrap();
    let handle = u64::from(open(&mut machine, 1, &chain, &[(100, 1_000_000)]).result);
    let words = [0, 400_000, 0, 0, 0, 0];
    let near = Near {
        opcode: NO_DATA,
        source: STREAM,
        destination: NOWHERE,
        handle,
        request: 8,
        words,
        ..Near::default()
    };
    let mut commands = 0;
    loop {
        let done = run(&mut machine, near);
        commands += 1;
        assert_eq!(done.status, Status::SUCCESS);
        if u64::from(done.result_high) << 32 & ENDED != 0 {
            break;
        }
    }
    // Four pieces of 128 KiB, then the rest.
    assert_eq!(commands, 2);
    assert_eq!(page(&mut machine, 8)[80..112], *sha256(&content[100..1_000_100]).as_bytes());
    // Of blocks, without a stream.
    let handle = u64::from(load(&mut machine, &chain).result);
    let near = Near { namespace: 1, source: BLOCKS, handle, request: 9, words: [0, 3, 1, 0, 0, 0], ..near };
    let done = run(&mut machine, near);
    assert_eq!((done.status, done.result), (Status::SUCCESS, 1536));
    assert_eq!(page(&mut machine, 9)[80..112], *sha256(&content[512..2048]).as_bytes());
}

/// A long command ends with its output so far, so that its owner can look around.
/// A stream's command takes its share of the storage for what it may move before its turn is over, not for all that is
/// left of the stream; and nothing for a stream that has failed.
#[test]
fn a_stream_s_command_costs_what_it_may_move() {
    let mut machine = machine();
    let cost = |machine: &mut Machine<ModelStorage>, stream| {
        let (opcode, source, destination) = (NO_DATA, STREAM, NOWHERE);
        let handle = u64::from(stream);
        machine.submit_bytes(1, entry(Near { opcode, source, destination, handle, ..Near::default() }));
        let controller = machine.controller.clone();
        let mut controller = controller.lock().unwrap();
        controller.step(0, &mut machine.guest, machine.drives.storage_mut()).unwrap()
    };
    let broken = open(&mut machine, 1, &[(Operator::Gunzip, vec![])], &[(0, 1 << 20)]).result;
    assert_eq!(cost(&mut machine, broken), 4096 + (1 << 20));
    machine.work();
    assert!(machine.reap(1).is_some_and(|done| !done.status.is_success()));
    assert_eq!(cost(&mut machine, broken), 4096);
    machine.work();
    assert!(machine.reap(1).is_some_and(|done| !done.status.is_success()));
    let long = open(&mut machine, 1, &[(Operator::Crc32c, vec![])], &[(0, 1 << 20); 4000]).result;
    assert_eq!(cost(&mut machine, long), 4096 + (1 << 30));
}

#[test]
fn a_slow_stream_s_commands_end_all_the_same() {
    let mut machine = machine();
    let content = text(1 << 20);
    machine.drives.storage_mut().bytes_mut(VolumeId(0)).copy_from_slice(&content);
    let chain = vec![(Operator::Sha256, vec![])];
    let digest = sequential::run(&chain, &content).unwrap().digests[0].unwrap();
    let handle = open(&mut machine, 1, &chain, &[(0, 1 << 20)]).result.into();
    let near =
        Near { opcode: NO_DATA, source: STREAM, destination: NOWHERE, handle, request: 8, ..Near::default() };
    let mut commands = 0;
    loop {
        machine.submit_bytes(1, entry(near));
        let done = loop {
            machine.guest.clock.fetch_add(300_000_000, std::sync::atomic::Ordering::Relaxed);
            machine.drives.poll();
            if let Some(done) = machine.reap(1) {
                break done;
            }
        };
        commands += 1;
        assert_eq!(done.status, Status::SUCCESS);
        if u64::from(done.result_high) << 32 & ENDED != 0 {
            break;
        }
    }
    assert!(commands > 2, "{commands}");
    assert_eq!(page(&mut machine, 8)[80..112], *digest.as_bytes());
}

#[test]
fn streams_that_cannot_be_are_refused_and_abandoned_ones_make_room() {
    let mut machine = machine();
    for (namespace, ranges, expected) in [
        (1, &[((1 << 20) - 1, 2)][..], Status::LBA_OUT_OF_RANGE),
        (1, &[(u64::MAX, 2)], Status::INVALID_FIELD),
        (1, &[(0, u64::MAX / 2), (0, u64::MAX / 2), (0, 5)], Status::INVALID_FIELD),
        (3, &[(0, 1)], Status::INVALID_FIELD),
        (0, &[(0, 1)], Status::INVALID_NAMESPACE),
    ] {
        let done = open(&mut machine, namespace, &[], ranges);
        assert!(done.status.is(expected), "{ranges:?}: {}", done.status);
    }
    // More ranges than there are bytes.
    let done = send(&mut machine, 1, STREAM, &parameters(&[], 1000));
    assert!(done.status.is(Status::INVALID_FIELD));
    // The one that was not used for longest goes.
    let handles: Vec<u64> = (0..STREAMS)
        .map(|_| open(&mut machine, 1, &[(Operator::Md5, vec![])], &[(0, 100)]).result.into())
        .collect();
    assert_eq!(take(&mut machine, handles[0], 64, 0).1.len(), 64);
    let next = u64::from(open(&mut machine, 1, &[], &[(0, 7)]).result);
    assert_ne!(next, handles[1], "its place, not its number");
    assert!(take(&mut machine, handles[1], 64, 0).0.is(Status::INVALID_FIELD));
    assert_eq!(take(&mut machine, handles[0], 64, 0).1.len(), 36);
    assert_eq!(take(&mut machine, next, 64, 0).1.len(), 7);
    // A failure stays.
    let digest = open(&mut machine, 1, &[(Operator::Md5, vec![0; 16])], &[(0, 100)]).result.into();
    for _ in 0..2 {
        let (status, ..) = take(&mut machine, digest, 4096, 0);
        assert_eq!(status.kind(), 7, "{status}");
    }
    // The namespace was cut meanwhile.
    let cut = open(&mut machine, 1, &[], &[(1000, 4), (900_000, 4)]).result.into();
    assert_eq!(take(&mut machine, cut, 4, 0).1.len(), 4);
    machine.controller().resize(1, 1000, machine.drives.storage()).unwrap();
    assert!(take(&mut machine, cut, 4096, 0).0.is(Status::LBA_OUT_OF_RANGE));
    // And a reset forgets all of them.
    machine.again();
    assert!(take(&mut machine, next, 64, 0).0.is(Status::INVALID_FIELD));
}

/// A command is counted if it waits more than half as long as the storage and its operators work on it.
#[test]
fn commands_that_wait_for_others_are_counted() {
    let mut machine = machine();
    let handle = load(&mut machine, &[(Operator::Md5, vec![])]).result.into();
    let digest = Near::digest(handle, 256);
    // 128 KiB are a piece. The storage takes 5 ms for it, and that is all.
    let pass = |machine: &Machine<ModelStorage>, ms: u64| {
        machine.guest.clock.fetch_add(ms * 1_000_000, std::sync::atomic::Ordering::Relaxed);
    };
    let run = |machine: &mut Machine<ModelStorage>, wait: u64| {
        machine.submit_bytes(1, entry(digest));
        machine.drives.poll();
        pass(machine, 5);
        // The storage's answer; the operators have their turn after that.
        machine.drives.poll();
        pass(machine, wait);
        machine.work();
        assert_eq!(machine.reap(1).expect("a completion").status, Status::SUCCESS);
        machine.controller().latencies().violations
    };
    assert_eq!(run(&mut machine, 0), 0);
    assert_eq!(run(&mut machine, 2), 0, "7 ms for 5");
    assert_eq!(run(&mut machine, 3), 1, "8 ms for 5");
}

/// A module whose `dcs_step` has that body, which chains may name.
pub fn module(body: &str) -> Vec<u8> {
    let module = dcs_wasm::Module::load(&module_bytes(body), dcs_wasm::Limits::of_drive()).unwrap();
    let name = *module.name();
    assert!(module.install());
    dcs_ndp::module::parameter(&name, b"")
}

/// The body of a module that turns each byte's bits round.
pub const TURNS: &str = "(i32.store (i32.const 20) (local.get $n)) (i32.store (i32.const 24) (local.get $n))
    (block $done (loop $next (br_if $done (i32.eq (local.get $at) (local.get $n)))
        (i32.store8 offset=1024 (local.get $at) (i32.xor (i32.load8_u offset=1024 (local.get $at)) (i32.const 255)))
        (local.set $at (i32.add (local.get $at) (i32.const 1))) (br $next)))
    (local.get $last)";

/// The bytes of a module whose `dcs_step` has that body.
pub fn module_bytes(body: &str) -> Vec<u8> {
    let text = format!(
        r#"(module (memory (export "memory") 3)
        (data (i32.const 0) "\01\00\00\00\00\04\00\00\00\00\01\00\00\04\00\00\00\00\01\00")
        (func (export "dcs_operator") (result i32) (i32.const 0))
        (func (export "dcs_start") (param i32) (result i32) (i32.const 0))
        (func (export "dcs_step") (param $n i32) (param $last i32) (result i32) (local $at i32) {body}))"#
    );
    wat::parse_str(text).unwrap()
}

#[test]
fn modules_are_operators_of_a_drive() {
    let mut machine = machine();
    let (data, length) = (text(391 * 512), 391 * 512u32);
    machine.guest.store(DATA, &data);
    let words = [length / 4, length, 391, 0, 0, 0];
    let near = Near { opcode: FROM_GUEST, namespace: 1, destination: BLOCKS, words, ..Near::default() };
    assert_eq!(run(&mut machine, near).status, Status::SUCCESS);
    let turns = module(TURNS);
    let chain = [(Operator::Module, turns.clone()), (Operator::Crc32c, vec![]), (Operator::Module, turns)];
    assert_eq!(through(&mut machine, &chain, data.len()), Ok(data.clone()));
    let once = through(&mut machine, &chain[..1], data.len()).unwrap();
    assert!(once == data.iter().map(|byte| !byte).collect::<Vec<_>>());

    // A module that loops fails its own stream; the drive goes on. One that was not loaded is refused.
    let loops = module("(loop $again (br $again)) (unreachable)");
    let failed = through(&mut machine, &[(Operator::Module, loops)], data.len());
    assert_eq!(failed, Err(Status(dcs_abi::status::Status::ModuleFuel.code())));
    let nobody = dcs_ndp::module::parameter(&[7; 32], b"");
    let failed = through(&mut machine, &[(Operator::Module, nobody)], data.len());
    assert_eq!(failed, Err(Status(dcs_abi::status::Status::UnknownOperator.code())));
    assert_eq!(through(&mut machine, &[], data.len()), Ok(data));
}

/// This many bytes of namespace 1 through a chain, as a stream.
pub fn through(
    machine: &mut Machine<ModelStorage>,
    chain: &[(Operator, Vec<u8>)],
    length: usize,
) -> Result<Vec<u8>, Status> {
    let opened = open(machine, 1, chain, &[(0, length as u64)]);
    if !opened.status.is_success() {
        return Err(opened.status);
    }
    let mut out = Vec::new();
    loop {
        let (status, bytes, ended) = take(machine, opened.result.into(), 50_000, 0);
        out.extend_from_slice(&bytes);
        match (status.is_success(), ended) {
            (true, false) => {}
            (true, true) => return Ok(out),
            _ => return Err(status),
        }
    }
}
