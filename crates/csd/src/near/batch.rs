//! A bounded piece of a chain's work, wherever it is done: by the loop that drives the controllers, or by a slot.

use dcs_nvme::Status;

use super::pipeline::{Clock, Pipeline, Pulled, UNIT};
use crate::storage::Ticket;

/// How long operators are made before others have their turn, in nanoseconds: one that takes longer, as a module may, is
/// the last.
const PREPARATION: u64 = 20_000;

/// How long a slot works on one batch, in nanoseconds, but for the piece that it is at then.
const BATCH_TIME_MAX: u64 = 1_000_000;

/// A chain, taken from its command for as long as somebody works on it.
pub struct Batch {
    pub(crate) ticket: Ticket,
    pub(super) pipeline: Pipeline,
    /// Operators are made, and nothing is to pass them yet.
    prepares: bool,
    /// Bytes that are to come out at most.
    most: usize,
    pub(super) out: Vec<u8>,
    pub(super) end: Result<End, Status>,
    pub(super) took: u64,
}

/// The outcome of a step of a command.
#[derive(Debug)]
pub struct Operated {
    /// The time that it took, in nanoseconds.
    pub cost: u64,
    /// Work for a slot.
    pub batch: Option<Batch>,
}

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// There is more to do.
    More,
    /// All operators are made.
    Prepared,
    /// Nothing comes out before more goes in.
    Hungry,
    /// All has come out.
    Last,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({:?}, {:?})", self.ticket, self.end)
    }
}

impl Batch {
    /// Work on the chain of a command, until at most this many bytes, one [`UNIT`] at least, have come out.
    pub(super) fn new(ticket: Ticket, pipeline: Pipeline, prepares: bool, most: usize) -> Batch {
        Batch { ticket, pipeline, prepares, most, out: Vec::new(), end: Ok(End::More), took: 0 }
    }

    /// The numbers of its operators, then zeros.
    pub fn chain(&self) -> [u8; 8] {
        self.pipeline.chain
    }

    /// Does the work. `clock` tells the time, in nanoseconds.
    pub fn run(&mut self, clock: &mut dyn FnMut() -> u64) {
        let began = clock();
        self.end = self.work(began, clock);
        self.took = clock().saturating_sub(began);
    }

    /// The work cannot be done: its command fails. Nothing is left of the chain, whose operators may have panicked, nor
    /// of what came out of it.
    pub fn fail(&mut self) {
        let failed = std::mem::take(&mut self.pipeline);
        self.pipeline.chain = failed.chain;
        self.out.clear();
        self.end = Err(Status::INTERNAL_ERROR);
    }

    fn work(&mut self, began: u64, clock: Clock<'_>) -> Result<End, Status> {
        while !self.pipeline.prepare(clock).map_err(Status::with_do_not_retry)? {
            if clock().saturating_sub(began) >= PREPARATION {
                return Ok(End::More);
            }
        }
        if self.prepares {
            return Ok(End::Prepared);
        }
        loop {
            let at = self.out.len();
            self.out.resize(at + UNIT, 0);
            let pulled = self.pipeline.pull(&mut self.out[at..], clock);
            let (length, end) = match pulled {
                Ok(Pulled::Bytes(length)) => (length, None),
                Ok(Pulled::Last(length)) => (length, Some(Ok(End::Last))),
                Ok(Pulled::Hungry) => (0, Some(Ok(End::Hungry))),
                Err(status) => (0, Some(Err(status))),
            };
            self.out.truncate(at + length);
            if let Some(end) = end {
                return end;
            }
            if self.out.len() + UNIT > self.most || clock().saturating_sub(began) >= BATCH_TIME_MAX {
                return Ok(End::More);
            }
        }
    }
}
