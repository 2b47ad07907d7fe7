//! A bounded piece of a chain's work, done by the loop that drives the controllers, or by a slot.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dcs_abi::status::Status as Reason;
use dcs_nvme::Status;

use super::loads::Build;
use super::pipeline::{Clock, Pipeline, Pulled, UNIT};
use super::program::status_of;
use crate::storage::Ticket;

/// Time for which operators are made before other drives have their turn, in nanoseconds. The last one made,
/// such as a module, may take longer.
const PREPARATION: u64 = 20_000;

/// Time for which a slot works on one batch, in nanoseconds; the piece in progress is finished.
const BATCH_TIME_MAX: u64 = 1_000_000;

/// A chain on loan from its command while a slot or the loop works on it.
pub struct Batch {
    pub(crate) ticket: Ticket,
    pub(super) pipeline: Pipeline,
    /// Only makes a program.
    pub(super) build: Option<Build>,
    /// Only makes operators; no data pass them yet.
    prepares: bool,
    /// Maximum number of bytes of output.
    most: usize,
    pub(super) out: Vec<u8>,
    pub(super) end: Result<End, Status>,
    pub(super) took: u64,
}

/// The outcome of a command's step.
#[derive(Debug)]
pub struct Operated {
    /// Time that it took, in nanoseconds.
    pub cost: u64,
    /// Work for a slot.
    pub batch: Option<Batch>,
}

/// The reason why a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// There is more to do.
    More,
    /// All operators are made.
    Prepared,
    /// The chain needs more input.
    Hungry,
    /// The chain has ended.
    Last,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({:?}, {:?})", self.ticket, self.end)
    }
}

impl Batch {
    /// Makes the batch of a command's chain, until at most this many bytes, [`UNIT`] at least, have come out.
    pub(super) fn new(ticket: Ticket, pipeline: Pipeline, prepares: bool, most: usize) -> Batch {
        let (build, out) = (None, Vec::new());
        Batch { ticket, pipeline, build, prepares, most, out, end: Ok(End::More), took: 0 }
    }

    /// Makes the batch that makes a program.
    pub(super) fn of_build(ticket: Ticket, build: Build) -> Batch {
        Batch { build: Some(build), ..Batch::new(ticket, Pipeline::of_module(), true, 0) }
    }

    /// Returns the numbers of its operators, then zeros.
    pub fn chain(&self) -> [u8; 8] {
        self.pipeline.chain
    }

    /// Does the work. `clock` returns the time in nanoseconds. An operator that panics fails only its own
    /// command, wherever it runs.
    pub fn run(&mut self, clock: &mut dyn FnMut() -> u64) {
        let began = clock();
        match catch_unwind(AssertUnwindSafe(|| self.work(began, clock))) {
            Ok(end) => self.end = end,
            Err(_) => self.fail(),
        }
        self.took = clock().saturating_sub(began);
    }

    /// Fails the command. Drops the chain, since its operators may have panicked, and its output.
    pub fn fail(&mut self) {
        let failed = std::mem::take(&mut self.pipeline);
        self.pipeline.chain = failed.chain;
        // The chain may panic again when it is dropped.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(failed)));
        self.build = None;
        self.out.clear();
        self.end = Err(Status::INTERNAL_ERROR);
    }

    /// Fails the command with this status: no slot may do the work.
    pub(crate) fn refuse(&mut self, reason: Reason) {
        self.fail();
        self.end = Err(status_of(reason).with_do_not_retry());
    }

    fn work(&mut self, began: u64, clock: Clock<'_>) -> Result<End, Status> {
        if let Some(build) = &mut self.build {
            return build.run().map(|()| End::Prepared);
        }
        while !self.pipeline.prepare(clock).map_err(Status::with_do_not_retry)? {
            if clock().saturating_sub(began) >= PREPARATION {
                return Ok(End::More);
            }
        }
        if self.prepares {
            return Ok(End::Prepared);
        }
        let mut made = 0;
        let end = self.pull(&mut made, began, clock);
        self.out.truncate(made);
        end
    }

    /// Pulls output until there is enough; `made` counts its bytes.
    fn pull(&mut self, made: &mut usize, began: u64, clock: Clock<'_>) -> Result<End, Status> {
        loop {
            let end = *made + UNIT;
            if self.out.len() < end {
                self.out.resize(end, 0);
            }
            match self.pipeline.pull(&mut self.out[*made..end], clock)? {
                Pulled::Bytes(length) => *made += length,
                Pulled::Last(length) => {
                    *made += length;
                    return Ok(End::Last);
                }
                Pulled::Hungry => return Ok(End::Hungry),
            }
            if *made + UNIT > self.most || clock().saturating_sub(began) >= BATCH_TIME_MAX {
                return Ok(End::More);
            }
        }
    }
}
