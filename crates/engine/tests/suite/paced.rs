//! Media streams, in virtual time: destinations that take a datagram when it is due.

use crate::chains::{chain, small};
use crate::rig::device::Device;
use crate::rig::host::{End, Transfer};
use crate::rig::{Options, Rig};
use dcs_abi::operator::Operator::{self, *};
use dcs_abi::status::Status;
use dcs_engine::{Config, QueueConfig};

const DATAGRAM: usize = 1316;
const MILLISECOND: u64 = 1_000_000;

fn stream(rig: &mut Rig, datagrams: usize, interval: u64, operators: &[Operator]) -> (Transfer, u32) {
    let bytes = rig.random.compressible(datagrams * DATAGRAM);
    let from = rig.device(Device::file(bytes));
    let to = rig.device(Device::paced(DATAGRAM, interval));
    let source = End::file(from, &[(0, (datagrams * DATAGRAM) as u64)]);
    (Transfer { chain: chain(operators), ..Transfer::new(source, End::paced(to)) }, to)
}

/// Times for which a stream had no datagram though one was due.
fn idle(rig: &Rig, device: u32) -> &[u64] {
    match &rig.devices[device as usize] {
        Device::Paced { idle, .. } => idle,
        other => panic!("{other:?} is no stream"),
    }
}

/// Streams read ahead: none is ever without a datagram when one is due, however many they are, beside
/// neighbours that take all they can and others that are dead.
#[test]
fn a_stream_has_its_next_datagram_when_it_is_due() {
    let config = Config { commands: 128, queues: 3, blocks: 600, cached_blocks: 600, ..small() };
    let mut rig = Rig::new(config, Options { latency: 200_000, flush: true, ..Options::default() });
    let queues: Vec<_> = (0..3)
        .map(|tenant| rig.queue(QueueConfig { tenant, depth: 256, ..QueueConfig::default() }))
        .collect();
    let streams: Vec<_> = (0..60)
        .map(|number| {
            let operators: &[Operator] = if number % 2 == 0 { &[] } else { &[Md5, Aes256Ctr] };
            let (transfer, device) = stream(&mut rig, 200, 5 * MILLISECOND + number * 10_000, operators);
            (rig.submit(queues[0], &transfer), device)
        })
        .collect();
    for _ in 0..10 {
        let bytes = rig.random.compressible(3_000_000);
        let (from, to) = (rig.device(Device::file(bytes)), rig.device(Device::sink(9000)));
        let greedy = Transfer::new(End::file(from, &[(0, 3_000_000)]), End::stream(to));
        rig.submit(queues[1], &greedy);
        let dead = End::stream(rig.device(Device::Dead));
        rig.submit(queues[2], &Transfer { destination: dead, ..greedy });
    }
    rig.run_for(20_000 * MILLISECOND);
    for (ticket, device) in streams {
        assert!(rig.done_yet(ticket).is_some(), "a stream is not through");
        assert_eq!(rig.verify(ticket), Status::Success);
        let idle = idle(&rig, device);
        assert!(idle.len() >= 199);
        // Between a datagram and the next one of a block no time passes: it is there.
        let longest = idle.iter().max().unwrap();
        assert!(*longest == 0, "a datagram came {longest} ns late");
    }
    rig.delete(queues[2]);
    rig.run();
    rig.settle();
}

/// A stream that is cancelled, or runs out of time, ends soon, and hands everything back.
#[test]
fn a_stream_that_would_take_an_hour_can_be_ended() {
    let mut rig = Rig::new(small(), Options::default());
    let queue = rig.queue(QueueConfig::default());
    let (slow, _) = stream(&mut rig, 100, 40_000 * MILLISECOND, &[Md5]);
    let limited = rig.submit(queue, &Transfer { timeout_ms: 10, ..slow.clone() });
    rig.run_for(6_000 * MILLISECOND);
    assert_eq!(rig.verify(limited), Status::Timeout);
    rig.settle();
}
