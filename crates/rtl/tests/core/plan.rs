//! Random commands: what they ask for, the devices behind them, and how they are broken.

use crate::chains::chain;
use crate::rig::Rig;
use crate::rig::device::Device;
use crate::rig::host::{Chain, End, Transfer};
use crate::rig::short::Core;
use dcs_abi::entry::{FLAG_DURABLE, FLAG_INLINE, FLAG_MORE, LENGTH_TO_END, OPCODE_CANCEL};
use dcs_abi::operator::Operator::{self, *};
use dcs_engine::QueueId;
use dcs_ndp::sequential;
use dcs_testkit::Random;

/// The operators that both cores have.
const OPERATORS: [Operator; 8] = [Md5, Sha1, Sha256, Crc32, Crc32c, Crc64Nvme, Aes256Ctr, Aes256Xts];
/// Room of files, so that a broken offset fills no memory.
const ROOM: usize = 1 << 20;
/// Bytes of an entry that may be broken, of either form: no identifier, no handle and no address.
const BOTH: [usize; 20] = [0, 1, 4, 5, 40, 41, 42, 43, 48, 49, 50, 51, 52, 53, 54, 55, 60, 61, 62, 63];
/// And of one form: reserved bytes, the end of the chain; offsets, kinds.
const PLAIN: [usize; 6] = [32, 36, 44, 45, 46, 47];
const INLINE: [usize; 5] = [24, 31, 32, 38, 39];

/// The fate of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It succeeds, or one of its operators refuses its data.
    Good,
    /// Its source has fewer bytes than it was asked for.
    Short,
    /// Its destination has not room for all.
    Full,
    /// Its destination is not there.
    Lost,
    /// Some bytes of its entry and descriptor are others.
    Spoiled,
}

/// A command.
#[derive(Clone, Debug)]
pub struct Plan {
    pub queue: usize,
    length: usize,
    prefix: usize,
    pub from_stream: bool,
    pub to_stream: bool,
    cuts: [Vec<u16>; 2],
    pub chain: Vec<Operator>,
    to_end: bool,
    flags: u16,
    rid: u32,
    holds: bool,
    /// Its first digest is to have its value, or another one.
    expects: Option<bool>,
    pub fate: Fate,
    /// Nanoseconds until the next one is submitted.
    pub pause: u64,
    seed: u64,
}

impl Plan {
    pub fn random(random: &mut Random) -> Plan {
        let most = *random.pick(&[1, 4095, 4096, 4097, 12_000, 20_000]);
        let cuts = |random: &mut Random| (0..random.index(4)).map(|_| random.next() as u16).collect();
        let to_end = random.one_in(3);
        let fate = match random.index(12) {
            0 => Fate::Short,
            1 => Fate::Full,
            2 if random.one_in(2) => Fate::Lost,
            3 | 4 => Fate::Spoiled,
            _ => Fate::Good,
        };
        Plan {
            queue: random.index(4),
            length: if random.one_in(3) { most } else { random.index(most + 1) },
            prefix: if random.one_in(4) { 1 + random.index(6000) } else { 0 },
            from_stream: random.one_in(3),
            to_stream: random.one_in(3),
            cuts: [cuts(random), cuts(random)],
            chain: (0..*random.pick(&[0, 0, 1, 1, 2, 3, 8])).map(|_| *random.pick(&OPERATORS)).collect(),
            to_end,
            flags: *random.pick(&[0, 0, FLAG_DURABLE, FLAG_MORE]),
            rid: random.index(3) as u32,
            holds: random.one_in(2),
            expects: (fate == Fate::Good && random.one_in(5)).then(|| !random.one_in(3)),
            fate,
            pause: if random.one_in(2) { 0 } else { random.range(0, 300_000) },
            seed: random.next(),
        }
    }

    /// It succeeds, and its operations are the same each time.
    pub fn is_exact(&self) -> bool {
        self.fate == Fate::Good && !self.from_stream && !self.to_stream && self.expects != Some(false)
    }

    /// One of its operators may refuse its data, or its value is another one.
    pub fn may_fail(&self) -> bool {
        self.expects == Some(false) || self.chain.contains(&Aes256Xts)
    }

    /// Submits it, with devices of its own. The same is submitted each time.
    pub fn submit<E: Core>(&self, rig: &mut Rig<E>, queues: &[QueueId]) -> usize {
        let mut random = Random(self.seed);
        let transfer = self.transfer(rig, &mut random);
        rig.random = Random(self.seed);
        let ticket = rig.submit(queues[self.queue], &transfer);
        if self.fate == Fate::Spoiled {
            rig.change_last(queues[self.queue], |entry, descriptor| spoil(&mut random, entry, descriptor));
        }
        ticket
    }

    fn transfer<E: Core>(&self, rig: &mut Rig<E>, random: &mut Random) -> Transfer {
        let has = if self.fate == Fate::Short { self.length / 2 } else { self.length };
        let bytes = random.bytes(self.length + 500);
        let source = if self.from_stream {
            End::stream(rig.device(Device::source(bytes[..has].to_vec(), 6000)))
        } else {
            let whole = if self.fate == Fate::Short { has } else { bytes.len() };
            End::file(rig.device(Device::file(bytes[..whole].to_vec())), &extents(self.length, &self.cuts[0]))
        };
        let bytes = random.bytes(self.prefix);
        let prefix =
            (self.prefix > 0).then(|| End::memory(rig.device(Device::file(bytes)), self.prefix as u64));
        let input = self.length + self.prefix;
        let mut destination = if self.to_stream {
            let (bytes, more) = (Vec::new(), Vec::new());
            End::stream(rig.device(Device::Sink { bytes, piece: 7000, holds: self.holds, more }))
        } else {
            let capacity = if self.fate == Fate::Full { input / 2 } else { ROOM };
            let file = Device::File { bytes: Vec::new(), capacity, flushes: 0 };
            End::file(rig.device(file), &extents(input, &self.cuts[1]))
        };
        if self.fate == Fate::Lost {
            destination.handle = 1 << 20;
        }
        let chain = self.expecting(rig, chain(&self.chain), [prefix.as_ref(), Some(&source)]);
        let length = if self.to_end { LENGTH_TO_END } else { input as u64 };
        let (rid, flags) = (self.rid, self.flags);
        Transfer { prefix, source, destination, chain, length, rid, timeout_ms: 0, flags }
    }

    /// The chain, with the value that its first digest is to have.
    fn expecting<E: Core>(&self, rig: &Rig<E>, mut chain: Chain, ends: [Option<&End>; 2]) -> Chain {
        let Some(right) = self.expects else { return chain };
        let Some(at) = chain.iter().position(|(operator, _)| operator.digest_size() > 0) else {
            return chain;
        };
        let mut input = Vec::new();
        for end in ends.into_iter().flatten() {
            let bytes = rig.devices[end.handle as usize].bytes();
            if end.extents.is_empty() {
                input.extend_from_slice(bytes);
            }
            for extent in &end.extents {
                input.extend(bytes.iter().skip(extent.offset as usize).take(extent.length as usize));
            }
        }
        // Where the operators before it fail there is no value.
        if let Ok(plain) = sequential::run(&chain[..=at], &input)
            && let Some(value) = plain.digests[at]
        {
            chain[at].1 = value.as_bytes().to_vec();
            chain[at].1[0] ^= u8::from(!right);
        }
        chain
    }
}

/// Breaks a few bytes of what the host says, but not where things are: no identifier, no handle and no address.
fn spoil(random: &mut Random, entry: &mut [u8; 64], descriptor: &mut [u8]) {
    let is_inline = descriptor.is_empty();
    for _ in 0..*random.pick(&[1, 1, 1, 2]) {
        let value = *random.pick(&[0, 1, 2, 3, 4, 7, 8, 9, 16, 63, 255]);
        let at = random.index(256);
        let is_handle = (16..112).contains(&at) && (4..8).contains(&((at - 16) % 32));
        if is_inline || random.one_in(3) {
            let form = if is_inline { &INLINE[..] } else { &PLAIN };
            let places = if random.one_in(5) { form } else { &BOTH };
            entry[*random.pick(places)] = value;
        } else if !is_handle {
            descriptor[at] = value;
        }
    }
    if entry[0] == OPCODE_CANCEL {
        entry[0] = 0;
    }
    if is_inline {
        // Without the flag it would name a descriptor that nobody wrote.
        entry[60] |= FLAG_INLINE as u8;
    }
}

/// Cuts so many bytes into extents with gaps between them, in an order that is not theirs.
fn extents(length: usize, cuts: &[u16]) -> Vec<(u64, u64)> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| *cut as usize % length.max(1)).collect();
    places.extend([0, length]);
    places.sort_unstable();
    places.dedup();
    let pieces = places.windows(2).enumerate();
    let pieces = pieces.map(|(at, pair)| ((pair[0] + at * 100) as u64, (pair[1] - pair[0]) as u64));
    let extents: Vec<_> = pieces.rev().collect();
    if extents.is_empty() { vec![(0, 0)] } else { extents }
}
