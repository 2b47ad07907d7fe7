//! Counters of the traffic on the bus.

use std::ops::Add;
use std::time::Duration;

use crate::fabric::FunctionId;

/// Transactions as their requester made them, without packet overhead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Writes, each within a page.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Reads, each within a page.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
}

impl Traffic {
    /// Returns the bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.bytes_written + self.bytes_read
    }

    pub(crate) fn count(&mut self, write: bool, length: u64) {
        if write {
            self.writes += 1;
            self.bytes_written += length;
        } else {
            self.reads += 1;
            self.bytes_read += length;
        }
    }
}

impl Add for Traffic {
    type Output = Traffic;

    fn add(self, other: Traffic) -> Traffic {
        Traffic {
            writes: self.writes + other.writes,
            bytes_written: self.bytes_written + other.bytes_written,
            reads: self.reads + other.reads,
            bytes_read: self.bytes_read + other.bytes_read,
        }
    }
}

/// A counter of the transactions to a range of bus addresses: see [`crate::Fabric::meter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter(pub(crate) usize);

/// A recorded transaction: see [`crate::Fabric::record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time at which it was made.
    pub at: Duration,
    /// Requester.
    pub from: FunctionId,
    /// Function at the address; `None` if the requester may not reach it.
    pub to: Option<FunctionId>,
    /// Address, as the requester gave it.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// True for a write, false for a read.
    pub write: bool,
}
