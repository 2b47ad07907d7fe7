//! Completion queue entries. [base 3.3.3.2]

use crate::bytes::{put, u16_at, u32_at};
use crate::status::Status;

/// Bytes of an entry.
pub const SIZE: usize = 16;

/// The end of a command, as its controller tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The command's result: double word 0.
    pub result: u32,
    /// The upper half of an answer of 64 bits: double word 1.
    pub result_high: u32,
    /// The submission queue head: entries before it were fetched (SQHD).
    pub submission_head: u16,
    /// The submission queue that the command came from (SQID).
    pub submission_queue: u16,
    /// Which command (CID).
    pub cid: u16,
    /// Changes with each round of the queue: an entry is new where it is not as in the round before (P).
    pub phase: bool,
    /// The command's status.
    pub status: Status,
}

/// The phase of an entry, by its last four bytes: to look for a new one without reading the rest.
pub fn phase(last: [u8; 4]) -> bool {
    last[2] & 1 != 0
}

impl Completion {
    /// Takes an entry apart.
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

    /// Its bytes.
    pub fn bytes(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        put(&mut bytes, 0, &self.result.to_le_bytes());
        put(&mut bytes, 4, &self.result_high.to_le_bytes());
        put(&mut bytes, 8, &self.submission_head.to_le_bytes());
        put(&mut bytes, 10, &self.submission_queue.to_le_bytes());
        put(&mut bytes, 12, &self.cid.to_le_bytes());
        put(&mut bytes, 14, &(self.status.0 << 1 | u16::from(self.phase)).to_le_bytes());
        bytes
    }
}
