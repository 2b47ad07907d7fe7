//! The results of a transfer that is done.

use crate::queue::Finished;
use dcs_abi::operator::Operator;
use dcs_abi::result::{
    self, DigestSlot, ResultArea, STAGE_DESTINATION, STAGE_OPERATORS, STAGE_SOURCE, StageTimes,
};
use std::time::Duration;

/// The results of a transfer.
#[derive(Clone, Debug, Default)]
pub struct Completion {
    /// Bytes that came from prefix and source.
    pub bytes_in: u64,
    /// Bytes that the destination took, in order, from the first one.
    pub bytes_out: u64,
    /// The digests, and the trailing checksums that [`Op::AwsChunked`](crate::Op) found, in the order of
    /// their operators in the chain.
    pub digests: Vec<Digest>,
    /// The latency breakdown.
    pub breakdown: Breakdown,
    /// The paths that the bytes took.
    pub path: Path,
    /// The bytes, if the sink was [`Sink::memory`](crate::Sink::memory).
    pub memory: Option<Vec<u8>>,
}

/// The value of one digest operator, or a value that another operator found in the data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    /// The operator.
    pub operator: Operator,
    /// Its place in the chain, from 0.
    pub place: usize,
    /// Bytes that it covers (of a trailing checksum: of the data that it came with): after a failure, perhaps
    /// more than were delivered.
    pub covered: u64,
    size: usize,
    value: [u8; result::DIGEST_MAX],
}

impl Digest {
    fn new(place: usize, slot: &DigestSlot) -> Option<Digest> {
        let operator = Operator::from_number(slot.operator)?;
        let size = slot.size as usize;
        (size > 0 && size <= slot.value.len()).then_some(Digest {
            operator,
            place,
            covered: slot.covered,
            size,
            value: slot.value,
        })
    }

    /// Its bytes; CRCs most significant byte first.
    pub fn bytes(&self) -> &[u8] {
        &self.value[..self.size]
    }
}

/// Lower-case hexadecimal, as md5sum prints it.
impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {self} over {} bytes", self.operator.name(), self.covered)
    }
}

/// The times of a transfer (the papers' latency breakdown).
#[derive(Clone, Debug, Default)]
pub struct Breakdown {
    /// From the fetch of the command to its start: order, blocks, binding.
    pub queued: Duration,
    /// From the start to the completion.
    pub run: Duration,
    /// Source, each operator, destination.
    pub stages: Vec<StageTime>,
}

/// The time of one stage.
#[derive(Clone, Debug)]
pub struct StageTime {
    /// `source`, an operator's name, or `destination`.
    pub name: &'static str,
    /// From the start to its first device operation.
    pub first: Duration,
    /// From the start to the end of its last device operation.
    pub last: Duration,
    /// Sum over its operations of the time from issue to done. Operations may overlap: it can exceed `run`.
    pub busy: Duration,
    /// Device operations.
    pub operations: u64,
}

/// The paths that the bytes of a transfer took: `PATH_*` bits of the command set.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Path(pub u32);

const PATH_NAMES: &[(u32, &str)] = &[
    (result::PATH_SOURCE_CACHED, "source through the page cache"),
    (result::PATH_SOURCE_DIRECT, "source by O_DIRECT"),
    (result::PATH_DESTINATION_CACHED, "destination through the page cache"),
    (result::PATH_DESTINATION_DIRECT, "destination by O_DIRECT"),
    (result::PATH_KERNEL_COPY, "the kernel's own copy"),
    (result::PATH_ZERO_COPY, "zero-copy send"),
    (result::PATH_IO_URING, "io_uring"),
    (result::PATH_SYSCALL, "system calls"),
    (result::PATH_PEER_TO_PEER, "peer-to-peer"),
    (result::PATH_VFIO, "VFIO"),
    (result::PATH_GPU, "GPU"),
    (result::PATH_GPU_STORAGE, "GPUDirect Storage"),
    (result::PATH_NEAR_STORAGE, "beside the disk"),
];

impl Path {
    /// Returns true if all bits of `path` are set.
    pub fn has(self, path: u32) -> bool {
        self.0 & path == path
    }

    /// The paths in words.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        PATH_NAMES.iter().filter(move |(bit, _)| self.has(*bit)).map(|(_, name)| *name)
    }
}

impl std::fmt::Debug for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(", "))
    }
}

impl Completion {
    pub(crate) fn new(finished: &Finished<'_>) -> Completion {
        let operators = finished.operators().len();
        let stages = Vec::with_capacity(STAGE_OPERATORS + operators);
        let mut completion = Completion {
            digests: Vec::with_capacity(operators),
            breakdown: Breakdown { stages, ..Default::default() },
            ..Default::default()
        };
        completion.refill(finished);
        completion
    }

    /// Becomes another one, in the same memory.
    pub(crate) fn refill(&mut self, finished: &Finished<'_>) {
        let (area, chain) = (finished.result, finished.operators());
        (self.bytes_in, self.bytes_out, self.path) = (area.bytes_in, area.bytes_out, Path(area.path));
        self.digests.clear();
        for (place, slot) in area.digests[..chain.len()].iter().enumerate() {
            if slot.size > 0
                && let Some(digest) = Digest::new(place, slot)
            {
                self.digests.push(digest);
            }
        }
        self.breakdown.refill(area, chain);
        self.memory = None;
    }
}

impl Breakdown {
    fn refill(&mut self, area: &ResultArea, chain: &[u8]) {
        let started = if area.started == 0 { area.finished } else { area.started };
        let stages = &mut self.stages;
        stages.clear();
        stages.reserve(STAGE_OPERATORS + chain.len());
        let mut add = |name, times: &StageTimes| {
            if times.operations > 0 {
                stages.push(StageTime {
                    name,
                    first: duration(times.first_issue.saturating_sub(started)),
                    last: duration(times.last_done.saturating_sub(started)),
                    busy: duration(times.busy),
                    operations: times.operations,
                });
            }
        };
        add("source", &area.stages[STAGE_SOURCE]);
        for (at, number) in chain.iter().enumerate() {
            let name = Operator::chain_name(*number).unwrap_or("operator");
            add(name, &area.stages[STAGE_OPERATORS + at]);
        }
        add("destination", &area.stages[STAGE_DESTINATION]);
        self.queued = duration(started.saturating_sub(area.queued));
        self.run = duration(area.finished.saturating_sub(started));
    }
}

/// Nanoseconds as a duration: mostly less than a second, and then nothing is divided.
#[inline(always)]
fn duration(nanos: u64) -> Duration {
    const SECOND: u64 = 1_000_000_000;
    if nanos < SECOND { Duration::new(0, nanos as u32) } else { Duration::from_nanos(nanos) }
}
