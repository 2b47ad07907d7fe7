//! Events: those that the fabric returns to its caller, and those that are pending.

use std::cmp::Ordering;

use dcs_drivers::bus::{BusError, ReadDone};

use crate::fabric::FunctionId;
use crate::link::Ps;

/// An event at a function that the caller plays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The answer to a read that was made through the function's port.
    Read {
        /// Function whose port it is.
        function: FunctionId,
        /// The answer.
        done: ReadDone,
    },
    /// A write by another function to a BAR. The memory already holds the bytes.
    Written {
        /// Function that the BAR belongs to.
        function: FunctionId,
        /// Number of the BAR.
        bar: usize,
        /// Offset in the BAR.
        offset: u64,
        /// Bytes written. The memory may hold newer ones by the time the event is seen.
        bytes: Vec<u8>,
        /// Writer.
        by: FunctionId,
    },
    /// An interrupt that is not programmed as a memory write.
    Interrupt {
        /// Function that raised it.
        function: FunctionId,
        /// MSI-X vector.
        vector: u16,
    },
    /// The end of the time given to [`crate::Port::wake`].
    Wake {
        /// Function whose port it is.
        function: FunctionId,
        /// Token, as given.
        token: u64,
    },
    /// A frame at an end of a wire that no device holds.
    Frame {
        /// End of the wire.
        end: crate::WireEnd,
        /// Frame without its frame check sequence.
        bytes: Vec<u8>,
    },
}

/// A pending action of the fabric.
#[derive(Debug)]
pub(crate) enum Pending {
    /// A write arrives.
    Write { by: FunctionId, to: Target, bytes: Vec<u8> },
    /// A read request arrives.
    Request { to: Target, length: u64, part: Part },
    /// The target sends an answer.
    Reply { from: FunctionId, part: Part, data: Result<Vec<u8>, BusError> },
    /// An answer arrives at the requester.
    Answer { part: Part, data: Result<Vec<u8>, BusError> },
    /// A device's timer fires.
    Timer { function: FunctionId, token: u64 },
    /// A port's wake-up is due.
    Wake { function: FunctionId, token: u64 },
    /// An interrupt message arrives at the root.
    Interrupt { function: FunctionId, vector: u16 },
    /// A frame arrives.
    Frame { end: crate::WireEnd, bytes: Vec<u8> },
    /// A frame that a fault delayed or duplicated goes into the wire.
    Send { end: crate::WireEnd, bytes: Vec<u8> },
    /// A delayed or duplicated frame arrives at a function.
    Receive { function: FunctionId, bytes: Vec<u8> },
    /// A carrier appears or disappears.
    Carrier { end: crate::WireEnd, up: bool },
}

/// The target of a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) function: FunctionId,
    pub(crate) bar: usize,
    pub(crate) offset: u64,
}

/// A piece of a read: the read's number, and the piece's place in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) read: u64,
    pub(crate) at: u64,
    pub(crate) length: u64,
    pub(crate) deadline: Ps,
}

/// A pending action and its time. Actions at the same time happen in the order in which they were scheduled.
#[derive(Debug)]
pub(crate) struct Scheduled {
    pub(crate) at: Ps,
    pub(crate) sequence: u64,
    pub(crate) what: Pending,
}

impl Ord for Scheduled {
    /// Reversed, since a heap returns its greatest element first.
    fn cmp(&self, other: &Scheduled) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Scheduled) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Scheduled) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}
