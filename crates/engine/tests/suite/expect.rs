//! Digests that are to have a value: a right one changes nothing, a wrong one keeps the end of the data back.

use crate::chains::{small, tiny};
use crate::rig::device::Device;
use crate::rig::host::{Chain, End, Transfer};
use crate::rig::{Options, Rig};
use dcs_abi::operator::Operator::{self, *};
use dcs_abi::status::{Stage, Status};
use dcs_engine::{Config, QueueConfig};
use dcs_ndp::sequential;

/// One way of the data.
#[derive(Clone, Copy, Debug)]
struct Way {
    length: usize,
    from_stream: bool,
    to_stream: bool,
    operators: &'static [Operator],
    /// The place of the digest that is expected.
    at: usize,
}

/// Every way that is different.
fn ways() -> impl Iterator<Item = Way> {
    let chains: [(&[Operator], usize); 5] = [
        (&[Md5], 0),
        (&[Crc32c, Sha256], 1),
        (&[Gunzip, Md5], 1),
        (&[Md5, Gunzip], 0),
        (&[Md5, Gunzip, Sha1], 2),
    ];
    let lengths = [0, 1, 4095, 4096, 4097, 8192, 50_000];
    chains.into_iter().flat_map(move |(operators, at)| {
        lengths.into_iter().flat_map(move |length| {
            [(false, false), (false, true), (true, false), (true, true)].map(|(from_stream, to_stream)| Way {
                length,
                from_stream,
                to_stream,
                operators,
                at,
            })
        })
    })
}

impl Way {
    /// The transfer, and what comes out of it.
    fn transfer(self, rig: &mut Rig, right: bool) -> (Transfer, Vec<u8>) {
        let plain = rig.random.compressible(self.length);
        let input = match self.operators.contains(&Gunzip) {
            true => sequential::run(&[(Gzip, vec![])], &plain).unwrap().output,
            false => plain,
        };
        let mut chain: Chain = self.operators.iter().map(|operator| (*operator, Vec::new())).collect();
        let outcome = sequential::run(&chain, &input).unwrap();
        chain[self.at].1 = outcome.digests[self.at].unwrap().as_bytes().to_vec();
        chain[self.at].1[3] ^= u8::from(!right);
        let length = input.len() as u64;
        let source = match self.from_stream {
            true => End::stream(rig.device(Device::source(input, 3000))),
            false => End::file(rig.device(Device::file(input)), &[(0, length)]),
        };
        let destination = match self.to_stream {
            true => End::stream(rig.device(Device::sink(5000))),
            false => End::file(rig.device(Device::file(Vec::new())), &[(0, 60_000)]),
        };
        (Transfer { chain, ..Transfer::new(source, destination) }, outcome.output)
    }
}

fn rig(config: Config, seed: u64) -> Rig {
    Rig::new(Config { queues: 1, ..config }, Options { seed, ..Options::default() })
}

#[test]
fn a_wrong_digest_keeps_the_end_of_the_data_back() {
    for (seed, way) in ways().enumerate() {
        for config in [small(), tiny(), Config { multi_lane: vec![Md5, Sha256], ..small() }] {
            let block = config.block_size as usize;
            let mut rig = rig(config, seed as u64);
            let queue = rig.queue(QueueConfig::default());
            let (transfer, output) = way.transfer(&mut rig, false);
            let ticket = rig.submit(queue, &transfer);
            rig.settle();
            rig.verify(ticket);
            assert_eq!(rig.end(ticket), (Status::DigestMismatch, Stage::Operator, way.at as u8), "{way:?}");
            let result = rig.done(ticket).result.as_ref().unwrap();
            let delivered = result.bytes_out as usize;
            assert!(delivered < output.len().max(1), "{way:?}: {delivered} bytes, whole and wrong");
            if !way.from_stream && output.len() <= block {
                assert_eq!(delivered, 0, "{way:?}: what fits into a block is not sent at all");
            }
            assert_eq!(
                result.digests[way.at].operator, way.operators[way.at] as u8,
                "the value that it has is told"
            );
        }
    }
}

#[test]
fn a_right_digest_changes_nothing() {
    for (seed, way) in ways().enumerate() {
        for config in [small(), tiny()] {
            let mut rig = rig(config, seed as u64);
            let queue = rig.queue(QueueConfig::default());
            // Several at once, that want each other's blocks.
            let transfers: Vec<_> = (0..4).map(|_| way.transfer(&mut rig, true).0).collect();
            let tickets: Vec<_> = transfers.iter().map(|transfer| rig.submit(queue, transfer)).collect();
            rig.settle();
            for ticket in tickets {
                assert_eq!(rig.verify(ticket), Status::Success, "{way:?}: {:?}", rig.end(ticket));
            }
        }
    }
}

/// A prefix is in the first block: it is not sent either where all fits into one.
#[test]
fn a_prefix_goes_with_its_block() {
    for (length, most) in [(3000, 0), (3996, 0), (4096, 4096), (10_000, 8192)] {
        let mut rig = rig(small(), 1);
        let queue = rig.queue(QueueConfig::default());
        let (prefix, bytes) = (rig.random.compressible(100), rig.random.compressible(length));
        let prefix = End::memory(rig.device(Device::file(prefix)), 100);
        let source = End::file(rig.device(Device::file(bytes)), &[(0, length as u64)]);
        let sink = End::stream(rig.device(Device::sink(5000)));
        let transfer = Transfer::new(source, sink).chain(&[(Md5, &[0; 16])]);
        let ticket = rig.submit(queue, &Transfer { prefix: Some(prefix), ..transfer });
        rig.settle();
        rig.verify(ticket);
        assert_eq!(rig.end(ticket), (Status::DigestMismatch, Stage::Operator, 0));
        assert!(rig.done(ticket).entry.delivered.value() <= most);
    }
}

/// S3's framing comes off, and the trailing checksum is told at the operator's place.
#[test]
fn a_value_found_in_the_data_is_told() {
    let data = vec![b'a'; 9000];
    let crc = sequential::run(&[(Crc32, vec![])], &data).unwrap().digests[0].unwrap();
    let base64 = |bytes: &[u8]| {
        const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let bits = bytes.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte)) << 4;
        let digits = (0..6).rev().map(|at| DIGITS[(bits >> (6 * at)) as usize & 63] as char);
        digits.collect::<String>() + "=="
    };
    let trailer = format!("0\r\nx-amz-checksum-crc32:{}\r\n\r\n", base64(crc.as_bytes()));
    let framed = [b"2328\r\n", &data[..], b"\r\n", trailer.as_bytes()].concat();
    let parameter = dcs_ndp::parameter::AwsChunked {
        decoded_length: 9000,
        trailers: true,
        checksum: Some(Crc32),
        signature: None,
    };
    for (seed, config) in [small(), tiny()].into_iter().enumerate() {
        let mut rig = rig(config, seed as u64);
        let queue = rig.queue(QueueConfig::default());
        let source = End::stream(rig.device(Device::source(framed.clone(), 3000)));
        let file = End::file(rig.device(Device::file(Vec::new())), &[(0, 9000)]);
        let chain = [(AwsChunked, &parameter.block()[..]), (Crc32, crc.as_bytes()), (Slice, &range(5, 8000))];
        let ticket = rig.submit(queue, &Transfer::new(source, file).chain(&chain));
        rig.settle();
        assert_eq!(rig.verify(ticket), Status::Success, "{:?}", rig.end(ticket));
        let result = rig.done(ticket).result.as_ref().unwrap();
        assert_eq!(result.bytes_out, 8000);
        assert_eq!(&result.digests[0].value[..4], crc.as_bytes());
        assert_eq!(result.digests[0].value, result.digests[1].value);
        assert_eq!((result.digests[0].operator, result.digests[0].covered), (AwsChunked as u8, 9000));
    }
}

fn range(skip: u64, take: u64) -> [u8; 16] {
    dcs_ndp::parameter::slice(skip, take)
}
