//! A pass: many streams' blocks through the lanes of a vector unit.

use super::{BLOCK, Md5};

/// The widest vector unit for MD5 that this machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// None: streams go one after the other.
    Scalar,
    /// 8 lanes of 256 bits, two sets of them interleaved.
    Avx2,
    /// 16 lanes of 512 bits, two sets of them interleaved.
    Avx512,
}

/// Most lanes of any unit.
pub(crate) const LANES_MAX: usize = 32;

/// One stream in a pass: its state, and the whole blocks that it still has.
pub(crate) struct Job<'a> {
    pub state: &'a mut [u32; 4],
    pub blocks: &'a [u8],
}

impl Lanes {
    /// What this machine has.
    pub fn detect() -> Lanes {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                return Lanes::Avx512;
            }
            if is_x86_feature_detected!("avx2") {
                return Lanes::Avx2;
            }
        }
        Lanes::Scalar
    }

    /// Every unit that this machine has, the widest first.
    pub fn available() -> Vec<Lanes> {
        let all = [Lanes::Avx512, Lanes::Avx2, Lanes::Scalar];
        let widest = Lanes::detect();
        all.into_iter().skip_while(|lanes| *lanes != widest).collect()
    }

    /// Streams that go side by side.
    pub fn count(self) -> usize {
        match self {
            Lanes::Scalar => 1,
            Lanes::Avx2 => 16,
            Lanes::Avx512 => 32,
        }
    }

    /// Fewest streams for which a pass of the lanes is faster than the scalar unit for each: measured, see
    /// `docs/operators.md`. A pass costs the same however few lanes are in use.
    fn worthwhile(self) -> usize {
        match self {
            Lanes::Scalar => usize::MAX,
            Lanes::Avx2 => 3,
            Lanes::Avx512 => 2,
        }
    }

    /// Takes all streams' bytes in.
    pub(crate) fn absorb(self, streams: &mut [(&mut Md5, &[u8])]) {
        let mut jobs: Vec<Job<'_>> = Vec::with_capacity(streams.len());
        for (md5, data) in streams {
            let blocks = md5.take_ends(data);
            jobs.push(Job { state: &mut md5.state, blocks });
        }
        // The longest first: lanes that run dry are filled from the rest, and the pass ends evenly.
        jobs.sort_by_key(|job| std::cmp::Reverse(job.blocks.len()));
        while !jobs.is_empty() {
            self.pass(&mut jobs);
        }
    }

    /// Moves the first streams on by as many blocks as the shortest of them has; then drops those that are done.
    fn pass(self, jobs: &mut Vec<Job<'_>>) {
        jobs.retain(|job| !job.blocks.is_empty());
        if jobs.len() < self.worthwhile() {
            for job in jobs.drain(..) {
                ::md5::block_api::compress(job.state, job.blocks.as_chunks().0);
            }
            return;
        }
        let active = jobs.len().min(self.count());
        let blocks = jobs[..active].iter().map(|job| job.blocks.len() / BLOCK).min().unwrap_or(0);
        match self {
            Lanes::Scalar => {}
            #[cfg(target_arch = "x86_64")]
            Lanes::Avx2 => super::x86::avx2(&mut jobs[..active], blocks),
            #[cfg(target_arch = "x86_64")]
            Lanes::Avx512 => super::x86::avx512(&mut jobs[..active], blocks),
            #[cfg(not(target_arch = "x86_64"))]
            Lanes::Avx2 | Lanes::Avx512 => {}
        }
        for job in &mut jobs[..active] {
            job.blocks = &job.blocks[blocks * BLOCK..];
        }
    }
}
