//! Streams whose input the guest sends, and whose output the drive writes: write through.

use dcs_abi::operator::Operator;
use dcs_csd::VolumeId;
use dcs_csd::near::{ENDED, FED, FROM_GUEST, HUNGRY, NO_DATA, REST};
use dcs_csd::storage::ModelStorage;
use dcs_ndp::sequential;
use dcs_nvme::{Completion, Status};
use dcs_testkit::Random;

use crate::near::{BLOCKS, NOWHERE, Near, RESULTS, STREAM, machine, open, parameters, run, send, take};
use crate::rig::{DATA, Machine};

type Chain = Vec<(Operator, Vec<u8>)>;

fn begin(machine: &mut Machine<ModelStorage>, chain: &[(Operator, Vec<u8>)]) -> u64 {
    let opened = send(machine, 1, STREAM, &parameters(chain, FED));
    assert_eq!(opened.status, Status::SUCCESS);
    opened.result.into()
}

/// Sends input to a stream; the drive writes what comes out to `room` blocks of this namespace from `first` on.
fn feed(
    machine: &mut Machine<ModelStorage>,
    (namespace, handle): (u32, u64),
    (input, last): (&[u8], bool),
    (first, room): (u64, u32),
) -> Completion {
    machine.guest.store(DATA, input);
    let length = input.len() as u32;
    let words = [length.div_ceil(4), length, room, last.into(), first as u32, 0];
    let (opcode, source, destination) = (FROM_GUEST, STREAM, BLOCKS);
    run(machine, Near { opcode, namespace, source, destination, handle, request: 7, words })
}

fn result(done: &Completion) -> u64 {
    u64::from(done.result_high) << 32 | u64::from(done.result)
}

/// Writes all of `content` through a chain to blocks from `first` on, in pieces and with room of any size. Returns the bytes in whole
/// blocks, and those that fill none.
fn write(
    machine: &mut Machine<ModelStorage>,
    (namespace, block, first): (u32, u64, u64),
    handle: u64,
    content: &[u8],
    random: &mut Random,
) -> (u64, Vec<u8>) {
    let (mut at, mut made, mut hungry) = (0, 0, true);
    loop {
        let place = (first + made / block, 1 + random.below(40) as u32);
        let mut fed = 0;
        let done = if hungry {
            let length = (random.below(100_000) as usize).min(content.len() - at);
            let input = (&content[at..at + length], at + length == content.len());
            let done = feed(machine, (namespace, handle), input, place);
            fed = (result(&done) >> 32) & ((1 << 29) - 1);
            assert!(fed <= length as u64);
            at += fed as usize;
            // What it did not take comes again; all of it and the end is taken as soon as there is room.
            hungry = result(&done) & HUNGRY != 0 || (fed as usize) < length;
            done
        } else {
            let words = [place.1, 0, 0, 0, place.0 as u32, 0];
            let (opcode, source, destination) = (NO_DATA, STREAM, BLOCKS);
            let done =
                run(machine, Near { opcode, namespace, source, destination, handle, request: 7, words });
            hungry = result(&done) & HUNGRY != 0;
            done
        };
        assert_eq!(done.status, Status::SUCCESS, "{at} of {}", content.len());
        let bytes =
            if fed > 0 { result(&done) & 0xffff_ffff } else { result(&done) & !(ENDED | REST | HUNGRY) };
        assert!(bytes.is_multiple_of(block) && bytes <= u64::from(place.1) * block);
        made += bytes;
        if result(&done) & ENDED != 0 {
            return (made, Vec::new());
        }
        if result(&done) & REST != 0 {
            let (status, rest, ended) = take(machine, handle, 4096, 0);
            assert!(status.is_success() && ended && (rest.len() as u64) < block);
            return (made, rest);
        }
    }
}

#[test]
fn what_a_guest_sends_passes_the_chain_on_its_way_to_the_disk() {
    let mut random = Random(7);
    let text: Vec<u8> = (0..300_000u32).map(|at| (at / 7 % 251) as u8).collect();
    let packed = sequential::run(&[(Operator::Gzip, vec![])], &text).unwrap().output;
    let aes = [&[5u8; 32][..], &[9; 16]].concat();
    let chains: [(&[u8], Chain); 5] = [
        (&text, vec![(Operator::Md5, vec![])]),
        (&text, vec![(Operator::Md5, vec![]), (Operator::Aes256Ctr, aes)]),
        (&text, vec![(Operator::Sha256, vec![]), (Operator::Gzip, vec![]), (Operator::Md5, vec![])]),
        (&packed, vec![(Operator::Gunzip, vec![]), (Operator::Md5, vec![])]),
        (&[], vec![(Operator::Md5, vec![])]),
    ];
    for (round, (content, chain)) in chains.iter().cycle().take(15).enumerate() {
        let mut machine = machine();
        let (namespace, block) = if round % 2 == 0 { (1, 512) } else { (2, 4096) };
        let handle = begin(&mut machine, chain);
        let first = 3;
        let (made, rest) = write(&mut machine, (namespace, block, first), handle, content, &mut random);
        let expected = sequential::run(chain, content).unwrap();
        let read = Near {
            opcode: dcs_csd::near::TO_GUEST,
            namespace,
            source: BLOCKS,
            words: [made as u32 / 4, (made / block) as u32, first as u32, 0, 0, 0],
            ..Near::default()
        };
        let mut written = Vec::new();
        if made > 0 {
            assert_eq!(run(&mut machine, read).status, Status::SUCCESS);
            written = machine.guest.bytes(DATA, made as usize);
        }
        written.extend(rest);
        assert!(written == expected.output, "round {round}: {} of {}", written.len(), expected.output.len());
        // Digests are in the stream's page, and nothing beside its place has changed.
        let page = Near {
            opcode: dcs_csd::near::TO_GUEST,
            source: RESULTS,
            handle,
            words: [192, 0, 0, 0, 0, 0],
            ..Near::default()
        };
        assert_eq!(run(&mut machine, page).status, Status::SUCCESS);
        let page = machine.guest.bytes(DATA, 768);
        for (place, digest) in expected.digests.iter().enumerate() {
            let Some(digest) = digest else { continue };
            assert_eq!(
                &page[80 + 80 * place..][..digest.as_bytes().len()],
                digest.as_bytes(),
                "round {round}"
            );
        }
        let volume = machine.drives.storage().bytes(VolumeId(namespace - 1));
        assert!(volume[..(first * block) as usize].iter().all(|byte| *byte == 0));
        assert!(volume[(first * block + made) as usize..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn input_that_a_stream_does_not_take_is_refused_and_changes_nothing() {
    let mut machine = machine();
    let refused = |done: Completion| assert!(done.status.is(Status::INVALID_FIELD), "{}", done.status);
    // Bytes that come first, and ranges, are for streams of ranges.
    let mut bytes = parameters(&[], FED);
    bytes[1] = 8;
    bytes.extend_from_slice(&[0; 8]);
    refused(send(&mut machine, 1, STREAM, &bytes));
    let ranged = open(&mut machine, 1, &[(Operator::Md5, vec![])], &[(0, 512)]).result.into();
    refused(feed(&mut machine, (1, ranged), (&[1; 512], false), (0, 1)));
    let fed = begin(&mut machine, &[(Operator::Md5, vec![])]);
    let near = Near {
        opcode: FROM_GUEST,
        namespace: 1,
        source: STREAM,
        destination: BLOCKS,
        handle: fed,
        ..Near::default()
    };
    for words in [[1, 5, 1, 0, 0, 0], [1, 4, 1, 2, 0, 0]] {
        refused(run(&mut machine, Near { words, ..near }));
    }
    let done = feed(&mut machine, (1, fed), (&[1; 512], false), (2048, 1));
    assert!(done.status.is(Status::LBA_OUT_OF_RANGE), "{}", done.status);
    let done = feed(&mut machine, (1, fed), (&[1; 700], false), (0, 4));
    assert_eq!((done.status, result(&done)), (Status::SUCCESS, 700 << 32 | HUNGRY | 512));
    // Input alone: the output stays for later, or is dropped.
    let done = run(&mut machine, Near { destination: 0, words: [1, 4, 0, 0, 0, 0], ..near });
    assert_eq!((done.status, result(&done) >> 32), (Status::SUCCESS, 4));
    let done = run(
        &mut machine,
        Near { opcode: dcs_csd::near::TO_GUEST, destination: 0, words: [128, 0, 0, 0, 0, 0], ..near },
    );
    assert_eq!((done.status, result(&done)), (Status::SUCCESS, HUNGRY | 192));
    assert!(machine.guest.bytes(DATA, 188).iter().all(|byte| *byte == 1));
    // Its output may be taken meanwhile, but there is none.
    let done = run(&mut machine, Near { opcode: NO_DATA, words: [4, 0, 0, 0, 1, 0], ..near });
    assert_eq!((done.status, result(&done)), (Status::SUCCESS, HUNGRY));
    let done = run(&mut machine, Near { destination: NOWHERE, words: [0, 0, 0, 1, 0, 0], ..near });
    assert_eq!((done.status, result(&done) & ENDED), (Status::SUCCESS, ENDED));
    refused(feed(&mut machine, (1, fed), (&[1; 4], false), (0, 1)));
    let volume = machine.drives.storage().bytes(VolumeId(0));
    assert!(volume[..512].iter().all(|byte| *byte == 1) && volume[512..].iter().all(|byte| *byte == 0));
}
