//! Every path that bytes can take.

use crate::chains::{chain, small, tiny};
use crate::rig::device::Device;
use crate::rig::host::{End, Transfer};
use crate::rig::{Options, Rig};
use dcs_abi::entry::{FLAG_ACKNOWLEDGED, FLAG_DURABLE, FLAG_MORE};
use dcs_abi::operator::Operator::*;
use dcs_abi::result::PATH_KERNEL_COPY;
use dcs_abi::status::{Stage, Status};
use dcs_engine::{Config, OperationKind, QueueConfig, QueueId};

fn rig(config: Config, options: Options) -> (Rig, QueueId) {
    let mut rig = Rig::new(config, options);
    let queue = rig.queue(QueueConfig::default());
    (rig, queue)
}

fn plain() -> (Rig, QueueId) {
    rig(small(), Options::default())
}

/// Runs one transfer to the end and checks it against the plain program.
fn passes(rig: &mut Rig, queue: QueueId, transfer: &Transfer) -> usize {
    let ticket = rig.submit(queue, transfer);
    rig.settle();
    assert_eq!(rig.verify(ticket), Status::Success, "{:?}", rig.end(ticket));
    ticket
}

/// A file with random bytes, its handle.
fn file(rig: &mut Rig, length: usize) -> u32 {
    let bytes = rig.random.compressible(length);
    rig.device(Device::file(bytes))
}

fn source(rig: &mut Rig, length: usize) -> u32 {
    let bytes = rig.random.compressible(length);
    rig.device(Device::source(bytes, 3000))
}

fn sink(rig: &mut Rig) -> u32 {
    rig.device(Device::sink(5000))
}

#[test]
fn a_file_goes_to_a_socket() {
    for length in [1, 4095, 4096, 4097, 100_000] {
        let (mut rig, queue) = plain();
        let (from, to) = (file(&mut rig, length), sink(&mut rig));
        let transfer = Transfer::new(End::file(from, &[(0, length as u64)]), End::stream(to));
        passes(&mut rig, queue, &transfer);
    }
}

/// The rig compares what each write is said to have at the source with what its block has.
#[test]
fn a_write_tells_where_an_immutable_source_has_its_bytes() {
    for (chain, repeats) in [(chain(&[Md5, Crc32c]), true), (chain(&[Md5, Gzip]), false)] {
        let (mut rig, queue) = plain();
        let (prefix, from, to) = (file(&mut rig, 100), file(&mut rig, 90_000), sink(&mut rig));
        let from = End::file(from, &[(10, 20_000), (30_001, 5), (40_000, 50_000)]);
        let transfer =
            Transfer { prefix: Some(End::memory(prefix, 100)), ..Transfer::new(from, End::stream(to)) };
        passes(&mut rig, queue, &Transfer { chain, ..transfer });
        assert_eq!(rig.repeated > 0, repeats);
    }
}

#[test]
fn a_socket_goes_to_a_file_in_full_blocks() {
    let (mut rig, queue) = plain();
    let (from, to) = (source(&mut rig, 50_000), file(&mut rig, 0));
    let transfer = Transfer::new(End::stream(from), End::file(to, &[(100, 50_000)]));
    passes(&mut rig, queue, &transfer);
    let writes = rig.trace.iter().filter(|(_, kind)| matches!(kind, OperationKind::Write { .. })).count();
    assert_eq!(writes, 50_000usize.div_ceil(4096), "gathered: one write a block");
}

#[test]
fn a_prefix_goes_before_a_stream_and_before_a_file() {
    for (seed, prefix_length) in [(1, 0), (2, 1), (3, 4096), (4, 9000)] {
        for direct in [false, true] {
            let (mut rig, queue) = rig(small(), Options { seed, direct, ..Options::default() });
            let prefix = End::memory(file(&mut rig, prefix_length), prefix_length as u64);
            let from_stream = End::stream(source(&mut rig, 20_000));
            let from_file = End::file(file(&mut rig, 30_000), &[(10, 20_000), (25_000, 5_000)]);
            for from in [from_stream, from_file] {
                let to = sink(&mut rig);
                let transfer =
                    Transfer { prefix: Some(prefix.clone()), ..Transfer::new(from, End::stream(to)) };
                passes(&mut rig, queue, &transfer);
            }
        }
    }
}

#[test]
fn a_prefix_and_a_stream_go_to_a_file() {
    for prefix_length in [0, 1, 4096, 9000] {
        let (mut rig, queue) = plain();
        let prefix = Some(End::memory(file(&mut rig, prefix_length), prefix_length as u64));
        let (from, to) = (source(&mut rig, 20_000), file(&mut rig, 0));
        let transfer = Transfer::new(End::stream(from), End::file(to, &[(0, 10_000), (20_000, 30_000)]));
        let length = prefix_length as u64 + 20_000;
        passes(&mut rig, queue, &Transfer { prefix, length, ..transfer });
    }
}

#[test]
fn many_extents_go_to_many_extents() {
    let (mut rig, queue) = rig(small(), Options { pieces: true, ..Options::default() });
    let (from, to) = (file(&mut rig, 100_000), file(&mut rig, 200_000));
    let source = [(90_000, 10_000), (0, 1), (5, 4096), (20_000, 3), (30_000, 40_000)];
    let destination = [(150_000, 7), (0, 30_000), (100_000, 1), (60_000, 30_000)];
    let transfer = Transfer::new(End::file(from, &source), End::file(to, &destination));
    passes(&mut rig, queue, &transfer);
    let part = Transfer { length: 41_000, ..transfer.clone() };
    passes(&mut rig, queue, &part);
    passes(&mut rig, queue, &Transfer { chain: chain(&[Sha256, Aes256Ctr]), ..transfer });
}

#[test]
fn a_stream_ends_where_it_ends() {
    for length in [0, 1, 4096, 8192, 12_345] {
        let (mut rig, queue) = plain();
        let (from, to) = (source(&mut rig, length), sink(&mut rig));
        let transfer = Transfer::new(End::stream(from), End::stream(to)).chain(&[(Md5, &[])]);
        passes(&mut rig, queue, &transfer);
        let (from, to) = (source(&mut rig, length), file(&mut rig, 0));
        passes(&mut rig, queue, &Transfer::new(End::stream(from), End::file(to, &[(0, 12_345)])));
    }
}

#[test]
fn nothing_at_all_is_a_transfer_too() {
    for chain_of in [&[][..], &[Md5], &[Gzip], &[Sha1, Aes256Ctr, Md5], &[Gzip, Gunzip, Crc32]] {
        for direct in [false, true] {
            let (mut rig, queue) = rig(small(), Options { direct, ..Options::default() });
            let (from, to) = (file(&mut rig, 0), sink(&mut rig));
            let transfer = Transfer::new(End::file(from, &[(0, 0)]), End::stream(to));
            passes(&mut rig, queue, &Transfer { chain: chain(chain_of), ..transfer });
        }
    }
}

#[test]
fn eight_operators_in_a_row() {
    let operators = [Md5, Sha1, Aes256Ctr, Sha256, Gzip, Crc32, Gunzip, Sha512];
    for config in [small(), tiny()] {
        let (mut rig, queue) = rig(config, Options::default());
        let (from, to) = (file(&mut rig, 70_000), sink(&mut rig));
        let transfer = Transfer::new(End::file(from, &[(0, 70_000)]), End::stream(to));
        passes(&mut rig, queue, &Transfer { chain: chain(&operators), ..transfer });
    }
}

#[test]
fn a_digest_before_and_one_after_encryption() {
    let (mut rig, queue) = plain();
    let (from, to) = (file(&mut rig, 33_333), sink(&mut rig));
    let transfer = Transfer::new(End::file(from, &[(0, 33_333)]), End::stream(to));
    for operators in [[Md5, Aes256Ctr, Md5], [Crc64Nvme, Aes256Xts, Crc32c]] {
        passes(&mut rig, queue, &Transfer { chain: chain(&operators), ..transfer.clone() });
    }
}

#[test]
fn data_are_compressed_and_expanded_on_the_way() {
    for operators in
        [&[Gzip][..], &[Zstd], &[Gzip, Gunzip], &[Md5, Zstd, Sha1, Unzstd, Md5], &[Gzip, Aes256Xts]]
    {
        for config in [small(), tiny()] {
            let (mut rig, queue) = rig(config, Options::default());
            let to_file = End::file(file(&mut rig, 0), &[(0, 200_000)]);
            let to_stream = End::stream(sink(&mut rig));
            for to in [to_file, to_stream] {
                let from = source(&mut rig, 90_000);
                let transfer = Transfer { chain: chain(operators), ..Transfer::new(End::stream(from), to) };
                passes(&mut rig, queue, &transfer);
            }
        }
    }
}

#[test]
fn eight_resizing_operators_pass_with_the_fewest_blocks() {
    let operators = [Gzip, Gunzip, Zstd, Unzstd, Gzip, Gunzip, Zstd, Unzstd];
    let (mut rig, queue) = rig(tiny(), Options::default());
    let tickets: Vec<_> = (0..4)
        .map(|_| {
            let (from, to) = (file(&mut rig, 60_000), sink(&mut rig));
            let transfer = Transfer::new(End::file(from, &[(0, 60_000)]), End::stream(to));
            rig.submit(queue, &Transfer { chain: chain(&operators), ..transfer })
        })
        .collect();
    rig.settle();
    assert!(tickets.iter().all(|ticket| rig.verify(*ticket) == Status::Success));
}

#[test]
fn durable_and_acknowledged_mean_flushed_after_the_last_write() {
    for flags in [FLAG_DURABLE, FLAG_ACKNOWLEDGED, FLAG_DURABLE | FLAG_ACKNOWLEDGED] {
        let (mut rig, queue) = plain();
        let (from, to) = (file(&mut rig, 20_000), file(&mut rig, 0));
        let transfer = Transfer::new(End::file(from, &[(0, 20_000)]), End::file(to, &[(0, 20_000)]));
        passes(&mut rig, queue, &Transfer { flags, ..transfer });
        let flushes = rig.trace.iter().filter(|(_, kind)| *kind == OperationKind::Flush).count();
        let last = rig.trace.last().map(|(_, kind)| *kind);
        assert_eq!((last, flushes), (Some(OperationKind::Flush), 1));
    }
}

#[test]
fn a_destination_that_tells_late_is_flushed_once() {
    for flags in [0, FLAG_DURABLE] {
        for direct in [false, true] {
            let options = Options { flush: true, direct, ..Options::default() };
            let (mut rig, queue) = rig(small(), options);
            let (from, to) = (file(&mut rig, 20_000), file(&mut rig, 0));
            let transfer = Transfer::new(End::file(from, &[(0, 20_000)]), End::file(to, &[(0, 20_000)]));
            passes(&mut rig, queue, &Transfer { flags, ..transfer });
            let flushes = rig.trace.iter().filter(|(_, kind)| *kind == OperationKind::Flush).count();
            let last = rig.trace.last().map(|(_, kind)| *kind);
            assert_eq!((last, flushes), (Some(OperationKind::Flush), 1));
        }
    }
}

#[test]
fn the_direct_path_is_taken_where_there_is_one() {
    let options = Options { direct: true, ..Options::default() };
    let (mut rig, queue) = rig(Config { direct_chunk: 10_000, ..small() }, options);
    let (from, to) = (file(&mut rig, 100_000), sink(&mut rig));
    let transfer = Transfer::new(End::file(from, &[(0, 50_000), (60_000, 40_000)]), End::stream(to));
    let ticket = passes(&mut rig, queue, &transfer);
    assert!(rig.trace.iter().all(|(_, kind)| matches!(kind, OperationKind::Direct { .. })));
    assert_eq!(rig.done(ticket).result.map(|result| result.path), Some(PATH_KERNEL_COPY));
    let with_chain = Transfer { chain: chain(&[Md5]), ..transfer };
    passes(&mut rig, queue, &with_chain);
    assert!(matches!(rig.trace.last(), Some((_, OperationKind::Write { .. }))), "a chain needs blocks");
}

#[test]
fn a_direct_path_that_breaks_off_is_left_for_blocks() {
    for direct_lasts in [0, 1, 5] {
        let options = Options { direct: true, direct_lasts, ..Options::default() };
        let (mut rig, queue) = rig(Config { direct_chunk: 4000, ..small() }, options);
        let prefix = Some(End::memory(file(&mut rig, 5000), 5000));
        let from_file = End::file(file(&mut rig, 60_000), &[(0, 60_000)]);
        let from_stream = End::stream(source(&mut rig, 60_000));
        for from in [from_file, from_stream] {
            let to = file(&mut rig, 0);
            let transfer = Transfer::new(from, End::file(to, &[(0, 20_000), (30_000, 45_000)]));
            passes(&mut rig, queue, &Transfer { prefix: prefix.clone(), length: 65_000, ..transfer });
        }
    }
}

#[test]
fn a_stream_that_just_fits_is_a_success_on_either_path() {
    for direct in [false, true] {
        for (length, fits) in [(8192, true), (8193, false)] {
            let (mut rig, queue) = rig(small(), Options { direct, ..Options::default() });
            let (from, to) = (source(&mut rig, length), file(&mut rig, 0));
            let transfer = Transfer::new(End::stream(from), End::file(to, &[(0, 8192)]));
            let ticket = rig.submit(queue, &transfer);
            rig.settle();
            rig.verify(ticket);
            let full = (Status::CapacityExceeded, Stage::Destination, 0);
            assert_eq!(rig.end(ticket), if fits { (Status::Success, Stage::None, 0) } else { full });
        }
    }
}

#[test]
fn what_a_full_destination_had_room_for_counts() {
    for seed in 0..1000 {
        let (mut rig, queue) = rig(small(), Options { seed, ..Options::default() });
        let (from, to) = (source(&mut rig, 30_000), file(&mut rig, 0));
        let ticket = rig.submit(queue, &Transfer::new(End::stream(from), End::file(to, &[(0, 6000)])));
        rig.settle();
        rig.verify(ticket);
        assert_eq!(rig.end(ticket), (Status::CapacityExceeded, Stage::Destination, 0));
        assert_eq!(rig.done(ticket).result.map(|result| result.bytes_out), Some(6000), "seed {seed}");
    }
}

/// The hints that a sink was given with each piece: does more follow soon?
fn told(rig: &Rig, handle: u32) -> Vec<bool> {
    match &rig.devices[handle as usize] {
        Device::Sink { more, .. } => more.clone(),
        other => panic!("no sink: {other:?}"),
    }
}

#[test]
fn a_socket_is_told_to_wait_only_where_more_certainly_follows() {
    for direct in [false, true] {
        for flags in [0, FLAG_MORE] {
            let options = Options { direct, ..Options::default() };
            let (mut rig, queue) = rig(Config { direct_chunk: 4096, ..small() }, options);
            let (from, to) = (file(&mut rig, 20_000), rig.device(Device::sink(usize::MAX)));
            let transfer = Transfer::new(End::file(from, &[(0, 20_000)]), End::stream(to));
            passes(&mut rig, queue, &Transfer { flags, ..transfer });
            let told = told(&rig, to);
            let (last, before) = told.split_last().expect("something was sent");
            assert!(before[0] && *last == (flags == FLAG_MORE));
        }
        let (mut rig, queue) = rig(small(), Options { direct, ..Options::default() });
        let (from, to) = (source(&mut rig, 20_000), sink(&mut rig));
        passes(&mut rig, queue, &Transfer::new(End::stream(from), End::stream(to)));
        assert!(!told(&rig, to).contains(&true), "nobody knows whether a stream goes on");
    }
}

#[test]
fn a_block_that_is_still_being_sent_is_not_used_again() {
    let (mut rig, queue) = plain();
    let from = file(&mut rig, 200_000);
    let to = rig.device(Device::Sink { bytes: Vec::new(), piece: 10, holds: true, more: Vec::new() });
    let transfer = Transfer::new(End::file(from, &[(0, 20_000)]), End::stream(to));
    passes(&mut rig, queue, &transfer);
    assert!(rig.engine.counters().operations > 2000, "some blocks were held more than 255 times");
}

#[test]
fn times_and_counts_tell_where_the_time_went() {
    let (mut rig, queue) = plain();
    let (from, to) = (file(&mut rig, 40_000), sink(&mut rig));
    let transfer = Transfer::new(End::file(from, &[(0, 40_000)]), End::stream(to)).chain(&[(Md5, &[])]);
    let ticket = passes(&mut rig, queue, &transfer);
    let done = rig.done(ticket);
    let result = done.result.expect("asked for");
    assert!(0 < result.queued && result.queued < result.started && result.started < result.finished);
    assert_eq!(result.finished, done.at);
    for stage in &result.stages[..3] {
        assert!(result.started <= stage.first_issue && stage.first_issue < stage.last_done);
        assert!(stage.last_done <= result.finished && stage.busy > 0);
    }
    assert_eq!(result.stages[0].operations, 10);
    assert_eq!(result.stages[2].operations, 10);
    let issued: u64 = result.stages.iter().map(|stage| stage.operations).sum();
    assert_eq!(issued, rig.engine.counters().operations);
}
