//! Every kind of source with every kind of destination, through chains of every kind, at the sizes that
//! matter.

use crate::ends::{KINDS, Kind, drain, feed, loop_device};
use crate::oracle::{self, Expected};
use crate::rig::{BLOCK, Bench, data, for_each_backend, skip};
use dcs::Op;
use std::fs::File;

const SIZES: [usize; 10] =
    [0, 1, 4095, 4096, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 5 * BLOCK + 321, 70_003];

fn chains() -> [Vec<Op>; 5] {
    let cipher = Op::Aes256Ctr { key: [7; 32], counter: [0xff; 16] };
    [
        vec![],
        vec![Op::Md5],
        vec![Op::Md5, cipher, Op::Sha256],
        vec![Op::Crc32c, Op::Gzip { level: 2 }],
        vec![Op::Gunzip, Op::Sha1],
    ]
}

/// An input, a chain, and the output that must come.
struct Case {
    chain: Vec<Op>,
    input: Vec<u8>,
    expected: Expected,
}

impl Case {
    fn new(plain: &[u8], chain: Vec<Op>) -> Case {
        let is_gunzip = chain.first() == Some(&Op::Gunzip);
        let zip = |plain| oracle::sequential(&[Op::Gzip { level: 1 }], plain).output;
        let input = if is_gunzip { zip(plain) } else { plain.to_vec() };
        Case { expected: oracle::expect(&chain, &input), input, chain }
    }

    /// For a source that knows nothing but zeros.
    fn of_zeros(size: usize) -> Vec<Case> {
        chains()[..4].iter().map(|chain| Case::new(&vec![0; size], chain.clone())).collect()
    }

    fn of_data(size: usize) -> Vec<Case> {
        chains().map(|chain| Case::new(&data(size), chain)).into()
    }
}

fn pair(bench: &Bench, from: Kind, to: Kind, case: &Case, devices: &Option<[File; 2]>) -> Option<()> {
    let device = |at: usize| devices.as_ref().map(|devices| &devices[at]);
    let Case { chain, input, expected } = case;
    let name = bench.backend.name;
    let what = format!("{from:?} to {to:?}, {} bytes through {chain:?}, {name}", input.len());
    let (source, feeder) = feed(from, input, device(0))?.split();
    let sink = drain(to, expected.output.len(), device(1))?;
    let mut request = bench.session.request(source, chain.clone(), sink.sink);
    if from == Kind::Device {
        request = request.length(input.len() as u64);
    }
    let mut done = request.submit().unwrap().wait().unwrap_or_else(|error| panic!("{what}: {error}"));
    let memory = done.memory.take();
    let received = sink.rest.received(done.bytes_out, memory);
    expected.check(&what, input.len(), &done, received.as_deref());
    feeder.into_iter().for_each(|feeder| feeder.join().unwrap());
    Some(())
}

fn from(kinds: &[Kind]) {
    let devices = || Ok::<_, String>([loop_device(1 << 20)?, loop_device(1 << 20)?]);
    let devices = devices().map_err(|why| skip("block devices", &why)).ok();
    let (data, zeros) = (SIZES.map(Case::of_data), SIZES.map(Case::of_zeros));
    for_each_backend(|bench| {
        // One mode sees every size, the others every third.
        let step = if bench.backend.has_thread() && bench.backend.has_ring() { 1 } else { 3 };
        for (from, to) in kinds.iter().flat_map(|from| KINDS.map(|to| (*from, to))) {
            let cases = if from == Kind::Device { &zeros } else { &data };
            let cases = cases.iter().step_by(step).flatten();
            let done: Option<Vec<()>> = cases.map(|case| pair(bench, from, to, case, &devices)).collect();
            if done.is_none() {
                skip(&format!("{from:?} to {to:?}"), "not available on this machine");
            }
        }
    });
}

#[test]
fn from_files_and_block_devices_to_everything() {
    from(&[Kind::File, Kind::Block]);
}

#[test]
fn from_sockets_to_everything() {
    from(&[Kind::Tcp4, Kind::Tcp6, Kind::Unix]);
}

#[test]
fn from_pipes_memory_and_character_devices_to_everything() {
    from(&[Kind::Pipe, Kind::Fifo, Kind::Memory, Kind::Device]);
}
