//! At random: endpoints, chains, sizes, limits, cancels. Every outcome is checked against the sequential
//! program.

use crate::ends::{Kind, Rest, drain, feed};
use crate::oracle::{self, Expected};
use crate::rig::{BACKENDS, BLOCK, Backend, Bench, noise, watched};
use dcs::{Completion, Mode, Op, Status, Transfer, TransferError};
use dcs_testkit::Random;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// For how long on each backend.
const TIME: Duration = Duration::from_millis(2500);

const SOURCES: [Kind; 7] =
    [Kind::File, Kind::Tcp4, Kind::Tcp6, Kind::Unix, Kind::Pipe, Kind::Fifo, Kind::Memory];
const SINKS: [Kind; 8] =
    [Kind::File, Kind::Tcp4, Kind::Tcp6, Kind::Unix, Kind::Pipe, Kind::Fifo, Kind::Memory, Kind::Device];

struct Flying {
    what: String,
    chain: Vec<Op>,
    input: Vec<u8>,
    expected: Expected,
    transfer: Transfer,
    rest: Rest,
    feeder: Option<JoinHandle<()>>,
    /// It may be cut short.
    disturbed: bool,
}

fn chain(random: &mut Random) -> Vec<Op> {
    let ops = [
        Op::Md5,
        Op::Sha256,
        Op::Crc32c,
        Op::Crc64Nvme,
        Op::Aes256Ctr { key: [3; 32], counter: [4; 16] },
        Op::Gzip { level: 2 },
        Op::Zstd { level: 1 },
    ];
    let mut chain: Vec<Op> = (0..random.index(5)).map(|_| random.pick(&ops).clone()).collect();
    if random.index(4) == 0 {
        chain.extend([Op::Gzip { level: 2 }, Op::Crc32, Op::Gunzip, Op::Md5]);
    }
    // What comes out at level 1 is not always the same bytes: only that it is restored can be checked.
    if random.index(4) == 0 {
        chain.extend([Op::Gzip { level: 1 }, Op::Gunzip, Op::Sha256]);
    }
    chain.truncate(8);
    if chain.last() == Some(&Op::Gzip { level: 1 }) {
        chain.pop();
    }
    chain
}

fn launch(bench: &Bench, random: &mut Random) -> Option<Flying> {
    let size =
        [0, 1, random.index(BLOCK), random.index(4 * BLOCK), random.index(20 * BLOCK)][random.index(5)];
    let (input, chain) = (noise(random.next(), size), chain(random));
    let (from, to) = (*random.pick(&SOURCES), *random.pick(&SINKS));
    let expected = oracle::sequential(&chain, &input);
    let (source, feeder) = feed(from, &input, None)?.split();
    let end = drain(to, expected.output.len(), None)?;
    let modes = [Mode::Auto, Mode::Auto, Mode::On, Mode::Off];
    let mut sink = end.sink.zero_copy(*random.pick(&[Mode::Auto, Mode::Off]));
    if matches!(to, Kind::File) {
        sink = sink.cache(*random.pick(&modes[..3]));
    }
    let mut request =
        bench.session.request(source.zero_copy(*random.pick(&[Mode::Auto, Mode::Off])), chain.clone(), sink);
    let disturbed = random.index(4) == 0;
    if disturbed {
        request = request.timeout(Duration::from_millis(1 + random.index(5) as u64));
    }
    if random.index(3) == 0 {
        request = request.rid(random.index(3) as u32);
    }
    let what = format!("{from:?} to {to:?}, {size} bytes through {chain:?}, {}", bench.backend.name);
    let transfer = request.submit().unwrap();
    Some(Flying { what, chain, input, expected, transfer, rest: end.rest, feeder, disturbed })
}

impl Flying {
    fn land(self) {
        let what = self.what;
        match self.transfer.wait() {
            Ok(mut done) => {
                let memory = done.memory.take();
                let received = self.rest.received(done.bytes_out, memory);
                self.expected.check(&what, self.input.len(), &done, received.as_deref());
            }
            Err(mut error) => {
                assert!(self.disturbed, "{what}: {error}");
                assert!(matches!(error.status, Status::Cancelled | Status::Timeout), "{what}: {error}");
                let memory = error.completion.memory.take();
                let received = self.rest.received(error.completion.bytes_out, memory);
                cut_short(&what, &self.chain, &self.input, &self.expected, &error, received);
            }
        }
        self.feeder.into_iter().for_each(|feeder| feeder.join().unwrap());
    }
}

/// Checks that the part which a transfer had done when it was cut short is right.
fn cut_short(
    what: &str,
    chain: &[Op],
    input: &[u8],
    expected: &Expected,
    error: &TransferError,
    received: Option<Vec<u8>>,
) {
    let done: &Completion = &error.completion;
    if let Some(received) = received {
        assert_eq!(received.len() as u64, done.bytes_out, "{what}: {error}");
        assert!(expected.output.starts_with(&received), "{what}: {error}");
    }
    // Digests before the first operator that changes lengths or bytes cover a prefix of the input.
    let plain = chain.iter().take_while(|op| matches!(op, Op::Md5 | Op::Sha256 | Op::Crc32c | Op::Crc64Nvme));
    for (op, digest) in plain.zip(&done.digests) {
        let covered = &input[..digest.covered as usize];
        let right = oracle::sequential(std::slice::from_ref(op), covered).digests.remove(0);
        assert_eq!(digest.to_string(), right.0, "{what}: {error}");
    }
}

fn stress(backend: &Backend, seed: u64) {
    let engine = backend.start();
    let session = engine.session().unwrap();
    let bench = Bench { backend: backend.clone(), engine, session };
    let mut random = Random(seed);
    let mut flying: Vec<Flying> = Vec::new();
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < TIME {
        while flying.len() < 12 {
            flying.extend(launch(&bench, &mut random));
        }
        let mut one = flying.swap_remove(random.index(flying.len()));
        if random.index(6) == 0 {
            one.disturbed = true;
            one.transfer.cancel();
        }
        one.land();
        count += 1;
    }
    flying.into_iter().for_each(Flying::land);
    bench.assert_sound();
    println!("{}: {count} transfers, seed {seed:#x}", backend.name);
}

#[test]
fn at_random() {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = std::env::var("DCS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(clock.as_nanos() as u64);
    println!("DCS_SEED={seed} repeats this");
    for backend in BACKENDS {
        watched(backend.name, || stress(&backend, seed));
    }
}
