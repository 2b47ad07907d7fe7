//! Short commands: an owner that takes them through their stages by itself changes nothing but who is asked.

use crate::chains::{chain, small};
use crate::rig::device::Device;
use crate::rig::host::{End, Transfer};
use crate::rig::{Options, Rig};
use dcs_abi::operator::Operator::*;
use dcs_abi::status::Status;
use dcs_engine::QueueConfig;

/// Every pair of ends and every chain that a short command may have, wherever chance has the owner stop: the bytes and
/// digests are those of the plain program, and some commands ran to their end at once, others not.
#[test]
fn wherever_the_owner_stops_the_bytes_are_the_same() {
    let (mut ran, mut inlined) = ((0, 0), 0);
    for seed in 0..60 {
        let mut rig = Rig::new(small(), Options { seed, ..Options::default() });
        let queue = rig.queue(QueueConfig::default());
        for of in [&[][..], &[Md5], &[Crc32c], &[Aes256Ctr], &[Sha256, Aes256Ctr], &[Aes256Ctr, Crc32c]] {
            for length in [1, 100, 4095, 4096] {
                let bytes = rig.random.compressible(length);
                let file = rig.device(Device::file(bytes.clone()));
                let stream = rig.device(Device::source(bytes, 3000));
                let (sink, grows) = (rig.device(Device::sink(5000)), rig.device(Device::file(Vec::new())));
                let length = length as u64;
                for (from, to) in [
                    (End::file(file, &[(0, length)]), End::stream(sink)),
                    (End::file(file, &[(0, length)]), End::file(grows, &[(7, length)])),
                    (End::stream(stream), End::stream(sink)),
                ] {
                    let transfer = Transfer { length, chain: chain(of), ..Transfer::new(from, to) };
                    let ticket = rig.submit(queue, &transfer);
                    rig.settle();
                    assert_eq!(rig.verify(ticket), Status::Success, "{:?}", rig.end(ticket));
                }
            }
        }
        ran = (ran.0 + rig.ran.0, ran.1 + rig.ran.1);
        inlined += rig.inlined;
    }
    assert!(ran.0 > 100 && ran.1 > 100 && inlined > 100, "all ways are taken: {ran:?}, {inlined}");
}

/// What is too long, or needs a flush, or lanes that others are in, is asked for stage by stage.
#[test]
fn others_are_asked_for_stage_by_stage() {
    let mut rig = Rig::new(small(), Options::default());
    let queue = rig.queue(QueueConfig::default());
    let bytes = rig.random.compressible(4097);
    let file = rig.device(Device::file(bytes));
    let to = rig.device(Device::file(Vec::new()));
    let long = Transfer::new(End::file(file, &[(0, 4097)]), End::file(to, &[(0, 4097)]));
    let durable = Transfer {
        flags: dcs_abi::entry::FLAG_DURABLE,
        ..Transfer::new(End::file(file, &[(0, 10)]), End::file(to, &[(0, 10)]))
    };
    let longer_chain = Transfer {
        chain: chain(&[Crc32c, Crc32, Sha1]),
        ..Transfer::new(End::file(file, &[(0, 10)]), End::file(to, &[(0, 10)]))
    };
    for transfer in [long, durable, longer_chain] {
        let ticket = rig.submit(queue, &transfer);
        rig.settle();
        assert_eq!(rig.verify(ticket), Status::Success);
    }
    assert_eq!(rig.ran, (0, 0));
}
