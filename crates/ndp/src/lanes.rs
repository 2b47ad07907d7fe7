//! Passes: blocks of many streams through a unit that takes several streams at once.
//!
//! A hash is one serial chain per stream: a core cannot make one stream faster, but it can work on several at once, in
//! the lanes of its vector registers. Lanes are physical units: a pass takes any streams that have data, each with its
//! own state and length, and streams join and leave lanes at any block.

use dcs_abi::operator::Operator;

use crate::Context;
use crate::digest::Digest;
use crate::hash::{Function, Hash, Job};
use crate::md5::Md5;
use crate::sha256::Sha256;

/// A unit of one operator that takes several streams at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// No such unit: streams go one after the other.
    Alone,
    /// MD5 in 8 lanes of 256 bits, two sets of them interleaved.
    Md5Avx2,
    /// MD5 in 16 lanes of 512 bits, two sets of them interleaved.
    Md5Avx512,
    /// SHA-256 of two streams interleaved, on the SHA instructions of x86.
    Sha256Pair,
}

/// Next bytes of one stream.
pub struct Piece<'a> {
    /// State of the stream.
    pub context: &'a mut Context,
    /// Next bytes of the stream.
    pub data: &'a [u8],
    /// True if the stream ends with them: the same pass completes its value.
    pub last: bool,
}

impl Lanes {
    /// Returns the best unit for that operator on this machine.
    pub fn detect(operator: Operator) -> Lanes {
        Lanes::available(operator)[0]
    }

    /// Returns every unit for that operator on this machine, the best first; the last is [`Lanes::Alone`].
    pub fn available(operator: Operator) -> Vec<Lanes> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        match operator {
            Operator::Md5 => {
                all.extend(is_x86_feature_detected!("avx512f").then_some(Lanes::Md5Avx512));
                all.extend(is_x86_feature_detected!("avx2").then_some(Lanes::Md5Avx2));
            }
            Operator::Sha256 => all.extend(crate::sha256::x86::is_there().then_some(Lanes::Sha256Pair)),
            _ => {}
        }
        all.push(Lanes::Alone);
        all
    }

    /// Returns the number of streams that it takes at once.
    pub fn count(self) -> usize {
        match self {
            Lanes::Alone => 1,
            Lanes::Md5Avx2 => 16,
            Lanes::Md5Avx512 => 32,
            Lanes::Sha256Pair => 2,
        }
    }
}

impl Context {
    /// Takes the next bytes of many digests' streams, at once if `lanes` is a unit of their operator. The result is
    /// that of [`Context::absorb`] for each, in less time.
    pub fn absorb_together(lanes: Lanes, pieces: &mut [Piece<'_>]) {
        match lanes {
            #[cfg(target_arch = "x86_64")]
            Lanes::Md5Avx2 => {
                let compress = crate::md5::x86::avx2;
                Unit { operator: Operator::Md5, lanes, compress, stream: md5 }.absorb(pieces);
            }
            #[cfg(target_arch = "x86_64")]
            Lanes::Md5Avx512 => {
                let compress = crate::md5::x86::avx512;
                Unit { operator: Operator::Md5, lanes, compress, stream: md5 }.absorb(pieces);
            }
            #[cfg(target_arch = "x86_64")]
            Lanes::Sha256Pair => {
                let compress = crate::sha256::x86::pair;
                Unit { operator: Operator::Sha256, lanes, compress, stream: sha256 }.absorb(pieces);
            }
            _ => pieces.iter_mut().for_each(|piece| piece.context.absorb(piece.data)),
        }
    }
}

/// Returns the stream of an MD5.
fn md5(digest: &mut Digest) -> Option<&mut Hash<Md5>> {
    if let Digest::Md5(hash) = digest { Some(hash) } else { None }
}

/// Returns the stream of a SHA-256.
fn sha256(digest: &mut Digest) -> Option<&mut Hash<Sha256>> {
    if let Digest::Sha256(hash) = digest { Some(hash) } else { None }
}

/// A unit that compresses several streams at once.
struct Unit<F: Function> {
    operator: Operator,
    lanes: Lanes,
    /// Advances up to as many streams as there are lanes, by that many blocks.
    compress: fn(&mut [Job<'_, F::State>], usize),
    /// Returns the stream if the digest is of this operator.
    stream: fn(&mut Digest) -> Option<&mut Hash<F>>,
}

impl<F: Function> Unit<F> {
    /// Takes all streams' bytes, then the padding of those that end.
    fn absorb(&self, pieces: &mut [Piece<'_>]) {
        let mut jobs = Vec::with_capacity(pieces.len());
        for piece in pieces.iter_mut() {
            if piece.context.operator != self.operator {
                piece.context.absorb(piece.data);
            } else if let Some(hash) = self.stream(piece.context) {
                let blocks = hash.take_ends(piece.data);
                jobs.push(Job { state: &mut hash.state, blocks });
            }
        }
        self.run(jobs);
        if pieces.iter().any(|piece| piece.last) {
            let ending = pieces.iter_mut().filter(|piece| piece.last);
            let pads = ending.filter_map(|piece| {
                let (state, blocks) = self.stream(piece.context)?.pad();
                Some(Job { state, blocks })
            });
            self.run(pads.collect());
        }
    }

    fn stream<'a>(&self, context: &'a mut Context) -> Option<&'a mut Hash<F>> {
        match &mut context.unit {
            crate::Unit::Digest(digest) => (self.stream)(digest),
            _ => None,
        }
    }

    /// Compresses all blocks of all streams.
    fn run(&self, mut jobs: Vec<Job<'_, F::State>>) {
        if jobs.len() > self.lanes.count() {
            // The longest streams go first: idle lanes are filled from the rest, and the last passes are not of one
            // long stream.
            jobs.sort_unstable_by_key(|job| std::cmp::Reverse(job.blocks.len()));
        }
        while !jobs.is_empty() {
            self.pass(&mut jobs);
        }
    }

    /// Advances the first streams by as many blocks as the shortest of them has, and drops those that are done.
    fn pass(&self, jobs: &mut Vec<Job<'_, F::State>>) {
        jobs.retain(|job| !job.blocks.is_empty());
        // A pass costs the same however few lanes are in use. Every unit is worth that from two streams on, as
        // measured: see `docs/operators.md`.
        if jobs.len() < 2 {
            jobs.drain(..).for_each(|job| F::compress(job.state, job.blocks));
            return;
        }
        let active = jobs.len().min(self.lanes.count());
        let blocks = jobs[..active].iter().map(|job| job.blocks.len()).min().unwrap_or(0);
        (self.compress)(&mut jobs[..active], blocks);
        for job in &mut jobs[..active] {
            job.blocks = &job.blocks[blocks..];
        }
    }
}
