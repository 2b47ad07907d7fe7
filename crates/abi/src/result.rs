//! The result area: what a command says when it is done, beyond the sixteen bytes of its completion entry.

use crate::layout::Constant;
use crate::wire::wire_struct;
use crate::{CHAIN_MAX, Wire};
use core::ops::Range;

/// Bytes of the longest digest.
pub const DIGEST_MAX: usize = 64;

/// Places in [`ResultArea::stages`]: the source, the destination, then the operators.
pub const STAGE_SOURCE: usize = 0;
/// See [`STAGE_SOURCE`].
pub const STAGE_DESTINATION: usize = 1;
/// The first operator's place; see [`STAGE_SOURCE`].
pub const STAGE_OPERATORS: usize = 2;
/// Places in all.
pub const STAGE_SLOTS: usize = STAGE_OPERATORS + CHAIN_MAX;

wire_struct! {
    /// The value of one digest operator, or what another operator found in the data.
    DigestSlot, DigestSlotPacket, DIGEST_SLOT, "dcs_digest", 80 {
        /// The operator, DCS_OP_*; 0: this place of the chain tells no value.
        operator: u8 = 0,
        /// Bytes of the value.
        size: u8 = 1,
        /// Bytes that went into the digest, or that came out of another operator: after a failure it may be
        /// more than was delivered.
        covered: u64 = 8,
        /// The value; CRCs most significant byte first.
        value: [u8; 64] = 16,
    }
}

wire_struct! {
    /// Times of one stage, in nanoseconds of the engine's clock.
    StageTimes, StageTimesPacket, STAGE_TIMES, "dcs_stage_times", 32 {
        /// When its first device operation was issued; 0: never.
        first_issue: u64 = 0,
        /// When its last device operation was done.
        last_done: u64 = 8,
        /// Sum of the times from issue to done of all its operations.
        busy: u64 = 16,
        /// Device operations.
        operations: u64 = 24,
    }
}

wire_struct! {
    /// Result area.
    ResultArea, ResultPacket, RESULT, "dcs_result", 1088 {
        /// The status again: bits 14:0 as in the completion entry's bits 15:1.
        status: u16 = 0,
        /// Stage that failed, DCS_STAGE_*.
        stage: u8 = 2,
        /// Which operator failed, where stage is OPERATOR.
        stage_index: u8 = 3,
        /// errno of the system call that failed, 0 where there is none.
        errno: u32 = 4,
        /// DCS_PATH_*: which paths the bytes took.
        path: u32 = 8,
        /// Bytes read from prefix and source.
        bytes_in: u64 = 16,
        /// Bytes the destination took, in order, from the first one.
        bytes_out: u64 = 24,
        /// When the entry was fetched, nanoseconds of the engine's clock.
        queued: u64 = 32,
        /// When the command was let start.
        started: u64 = 40,
        /// When it was finished.
        finished: u64 = 48,
        /// Times: source, destination, then each operator of the chain.
        stages: [StageTimes; 10] = 64,
        /// Digests, at the place of their operator in the chain.
        digests: [DigestSlot; 8] = 384,
    }
}

/// The offsets of [`ResultArea::stages`] and [`ResultArea::digests`].
const STAGES_AT: usize = 64;
const DIGESTS_AT: usize = 384;

impl ResultArea {
    /// The bytes that say anything of a command with this many operators; all others are zero.
    pub fn used(operators: usize) -> [Range<usize>; 2] {
        let operators = operators.min(CHAIN_MAX);
        let stages = STAGES_AT + (STAGE_OPERATORS + operators) * StageTimes::SIZE;
        [0..stages, DIGESTS_AT..DIGESTS_AT + operators * DigestSlot::SIZE]
    }

    /// Hands over the bytes that say anything of a command with this many operators ([`ResultArea::used`]),
    /// piece by piece, each with its offset.
    pub fn each_used(&self, operators: usize, mut piece: impl FnMut(usize, &[u8])) {
        let operators = operators.min(CHAIN_MAX);
        let mut head = [0; STAGES_AT];
        self.status.put(&mut head[0..2]);
        (head[2], head[3]) = (self.stage, self.stage_index);
        self.errno.put(&mut head[4..8]);
        self.path.put(&mut head[8..12]);
        self.bytes_in.put(&mut head[16..24]);
        self.bytes_out.put(&mut head[24..32]);
        self.queued.put(&mut head[32..40]);
        self.started.put(&mut head[40..48]);
        self.finished.put(&mut head[48..56]);
        piece(0, &head);
        for (at, stage) in self.stages[..STAGE_OPERATORS + operators].iter().enumerate() {
            piece(STAGES_AT + at * StageTimes::SIZE, &stage.to_bytes());
        }
        for (at, digest) in self.digests[..operators].iter().enumerate() {
            piece(DIGESTS_AT + at * DigestSlot::SIZE, &digest.to_bytes());
        }
    }

    /// Operators up to the last one of which it says anything.
    pub fn operators(&self) -> usize {
        let says =
            |at: &usize| self.stages[STAGE_OPERATORS + at].operations > 0 || self.digests[*at].size > 0;
        (0..CHAIN_MAX).rev().find(says).map_or(0, |last| last + 1)
    }
}

impl ResultPacket<[u8; ResultArea::SIZE]> {
    /// All zero.
    pub const ZERO: Self = ResultPacket([0; ResultArea::SIZE]);

    /// The bytes, to be written.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8; ResultArea::SIZE] {
        &mut self.0
    }
}

impl<T: AsRef<[u8]>> ResultPacket<T> {
    /// One of [`ResultArea::stages`]; all zero where there is no such place.
    pub fn stage_times(&self, at: usize) -> StageTimes {
        self.element(STAGES_AT, at, STAGE_SLOTS)
    }

    /// One of [`ResultArea::digests`]; all zero where there is no such place.
    pub fn digest_slot(&self, at: usize) -> DigestSlot {
        self.element(DIGESTS_AT, at, CHAIN_MAX)
    }

    fn element<E: Wire>(&self, start: usize, at: usize, count: usize) -> E {
        if at >= count {
            return E::ZERO;
        }
        let from = start + at * E::SIZE;
        E::get(&self.as_bytes()[from..from + E::SIZE])
    }
}

/// Source bytes came through the page cache.
pub const PATH_SOURCE_CACHED: u32 = 1 << 0;
/// Source bytes were read with O_DIRECT, past the page cache.
pub const PATH_SOURCE_DIRECT: u32 = 1 << 1;
/// Bytes were written through the page cache.
pub const PATH_DESTINATION_CACHED: u32 = 1 << 2;
/// Bytes were written with O_DIRECT.
pub const PATH_DESTINATION_DIRECT: u32 = 1 << 3;
/// The kernel moved the bytes itself (sendfile, splice, copy_file_range): no block of the engine held them.
pub const PATH_KERNEL_COPY: u32 = 1 << 4;
/// Bytes were sent without a copy into socket buffers.
pub const PATH_ZERO_COPY: u32 = 1 << 5;
/// io_uring carried at least one operation.
pub const PATH_IO_URING: u32 = 1 << 6;
/// Plain system calls carried at least one operation.
pub const PATH_SYSCALL: u32 = 1 << 7;
/// Bytes went device to device over the bus, past host memory.
pub const PATH_PEER_TO_PEER: u32 = 1 << 8;
/// A controller was driven from user space (VFIO), past the kernel's driver.
pub const PATH_VFIO: u32 = 1 << 9;
/// A GPU did an operator of the chain.
pub const PATH_GPU: u32 = 1 << 10;
/// A GPU's storage library (cuFile) read source bytes into the GPU's memory, past the page cache.
pub const PATH_GPU_STORAGE: u32 = 1 << 11;
/// The chain was run by a virtual drive, beside its disk.
pub const PATH_NEAR_STORAGE: u32 = 1 << 12;

/// Paths, for generators.
pub const PATHS: &[Constant] = &[
    Constant {
        name: "SOURCE_CACHED",
        value: PATH_SOURCE_CACHED as u64,
        doc: "source bytes came through the page cache",
    },
    Constant {
        name: "SOURCE_DIRECT",
        value: PATH_SOURCE_DIRECT as u64,
        doc: "source bytes were read with O_DIRECT",
    },
    Constant {
        name: "DESTINATION_CACHED",
        value: PATH_DESTINATION_CACHED as u64,
        doc: "bytes were written through the page cache",
    },
    Constant {
        name: "DESTINATION_DIRECT",
        value: PATH_DESTINATION_DIRECT as u64,
        doc: "bytes were written with O_DIRECT",
    },
    Constant {
        name: "KERNEL_COPY",
        value: PATH_KERNEL_COPY as u64,
        doc: "the kernel moved the bytes itself (sendfile, splice, copy_file_range)",
    },
    Constant {
        name: "ZERO_COPY",
        value: PATH_ZERO_COPY as u64,
        doc: "bytes were sent without a copy into socket buffers",
    },
    Constant {
        name: "IO_URING",
        value: PATH_IO_URING as u64,
        doc: "io_uring carried at least one operation",
    },
    Constant {
        name: "SYSCALL",
        value: PATH_SYSCALL as u64,
        doc: "plain system calls carried at least one operation",
    },
    Constant {
        name: "PEER_TO_PEER",
        value: PATH_PEER_TO_PEER as u64,
        doc: "bytes went device to device over the bus",
    },
    Constant {
        name: "VFIO",
        value: PATH_VFIO as u64,
        doc: "a controller was driven from user space, past the kernel's driver",
    },
    Constant { name: "GPU", value: PATH_GPU as u64, doc: "a GPU did an operator of the chain" },
    Constant {
        name: "GPU_STORAGE",
        value: PATH_GPU_STORAGE as u64,
        doc: "source bytes were read into a GPU's memory, by GPUDirect Storage",
    },
    Constant {
        name: "NEAR_STORAGE",
        value: PATH_NEAR_STORAGE as u64,
        doc: "a virtual drive ran the chain beside its disk",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_are_the_bytes_that_are_used() {
        let mut bytes = [0; ResultArea::SIZE];
        bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8 + 1);
        let area = ResultArea::get(&bytes);
        let whole = area.to_bytes();
        for operators in 0..=CHAIN_MAX {
            let (mut expected, mut found) = ([0; ResultArea::SIZE], [0; ResultArea::SIZE]);
            ResultArea::used(operators)
                .into_iter()
                .for_each(|range| expected[range.clone()].copy_from_slice(&whole[range]));
            area.each_used(operators, |at, piece| found[at..at + piece.len()].copy_from_slice(piece));
            assert_eq!(found, expected, "{operators} operators");
        }
    }
}
