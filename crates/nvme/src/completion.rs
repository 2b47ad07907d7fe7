//! Completion queue entries. [base 3.3.3.2]

use crate::bytes::{u16_at, u32_at};
use crate::status::Status;

/// Size of an entry in bytes.
pub const SIZE: usize = 16;

/// The end of a command, as reported by its controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// Result of the command: double word 0.
    pub result: u32,
    /// Upper half of a 64-bit result: double word 1.
    pub result_high: u32,
    /// Submission queue head: entries before it were fetched (SQHD).
    pub submission_head: u16,
    /// Submission queue that the command came from (SQID).
    pub submission_queue: u16,
    /// Command identifier (CID).
    pub cid: u16,
    /// Phase, which changes with each round of the queue: an entry is new if it differs from the round before (P).
    pub phase: bool,
    /// Status of the command.
    pub status: Status,
}

/// Returns the phase of an entry from its last four bytes, to detect a new one without reading the rest.
pub fn phase(last: [u8; 4]) -> bool {
    last[2] & 1 != 0
}

impl Completion {
    /// Decodes an entry.
    pub fn from_bytes(bytes: &[u8; SIZE]) -> Completion {
        let last = u16_at(bytes, 14);
        Completion {
            result: u32_at(bytes, 0),
            result_high: u32_at(bytes, 4),
            submission_head: u16_at(bytes, 8),
            submission_queue: u16_at(bytes, 10),
            cid: u16_at(bytes, 12),
            phase: last & 1 != 0,
            status: Status(last >> 1),
        }
    }

    /// Encodes it as bytes.
    #[inline]
    pub fn bytes(&self) -> [u8; SIZE] {
        let status = self.status.0 << 1 | u16::from(self.phase);
        let low = u64::from(self.result) | u64::from(self.result_high) << 32;
        let high = u64::from(self.submission_head)
            | u64::from(self.submission_queue) << 16
            | u64::from(self.cid) << 32
            | u64::from(status) << 48;
        (u128::from(low) | u128::from(high) << 64).to_le_bytes()
    }
}
