//! Events: those that the fabric hands to whoever steps it, and those that are still to come.

use std::cmp::Ordering;

use dcs_drivers::bus::{BusError, ReadDone};

use crate::fabric::FunctionId;
use crate::link::Ps;

/// Something that happened at a function whose far end is in the caller's hands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A read that was made through the function's port is answered.
    Read {
        /// Whose port.
        function: FunctionId,
        /// The answer.
        done: ReadDone,
    },
    /// Another function wrote to a BAR. The memory holds the bytes already.
    Written {
        /// Whose BAR.
        function: FunctionId,
        /// The BAR.
        bar: usize,
        /// The offset in the BAR.
        offset: u64,
        /// The bytes written. The memory may hold newer ones when the event is seen.
        bytes: Vec<u8>,
        /// The writer.
        by: FunctionId,
    },
    /// A function raised an interrupt that is not programmed as a memory write.
    Interrupt {
        /// The function that raised it.
        function: FunctionId,
        /// MSI-X vector.
        vector: u16,
    },
    /// The time that [`crate::Port::wake`] was asked for.
    Wake {
        /// Whose port.
        function: FunctionId,
        /// As it was given.
        token: u64,
    },
    /// A frame came to an end of a wire that no device holds.
    Frame {
        /// The end.
        end: crate::WireEnd,
        /// Without its frame check sequence.
        bytes: Vec<u8>,
    },
}

/// Something that the fabric has yet to do.
#[derive(Debug)]
pub(crate) enum Happening {
    /// A write arrives.
    Write { by: FunctionId, to: Target, bytes: Vec<u8> },
    /// A read request arrives.
    Request { to: Target, length: u64, part: Part },
    /// The target sends an answer off.
    Reply { from: FunctionId, part: Part, data: Result<Vec<u8>, BusError> },
    /// An answer arrives at who asked.
    Answer { part: Part, data: Result<Vec<u8>, BusError> },
    /// A device's timer.
    Timer { function: FunctionId, token: u64 },
    /// A port's.
    Wake { function: FunctionId, token: u64 },
    /// An interrupt message arrives at the root.
    Interrupt { function: FunctionId, vector: u16 },
    /// A frame arrives.
    Frame { end: crate::WireEnd, bytes: Vec<u8> },
    /// A frame that a fault held back or doubled goes into the wire.
    Send { end: crate::WireEnd, bytes: Vec<u8> },
    /// One that comes to a function.
    Receive { function: FunctionId, bytes: Vec<u8> },
    /// A carrier comes or goes.
    Carrier { end: crate::WireEnd, up: bool },
}

/// The target of a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) function: FunctionId,
    pub(crate) bar: usize,
    pub(crate) offset: u64,
}

/// A piece of a read: which read, and where in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) read: u64,
    pub(crate) at: u64,
    pub(crate) length: u64,
    pub(crate) deadline: Ps,
}

/// A happening at its time. Those of the same time happen in the order in which they were made.
#[derive(Debug)]
pub(crate) struct Scheduled {
    pub(crate) at: Ps,
    pub(crate) sequence: u64,
    pub(crate) what: Happening,
}

impl Ord for Scheduled {
    /// Reversed: a heap gives its greatest first.
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
