//! A bounded piece of a chain's work, wherever it is done: by the loop that drives the controllers, or by a slot.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dcs_abi::status::Status as Reason;
use dcs_nvme::Status;

use super::loads::Build;
use super::pipeline::{Clock, Pipeline, Pulled, UNIT};
use super::program::status_of;
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
    /// A program is made, and that is all.
    pub(super) build: Option<Build>,
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
        let (build, out) = (None, Vec::new());
        Batch { ticket, pipeline, build, prepares, most, out, end: Ok(End::More), took: 0 }
    }

    /// A program is made.
    pub(super) fn of_build(ticket: Ticket, build: Build) -> Batch {
        Batch { build: Some(build), ..Batch::new(ticket, Pipeline::of_module(), true, 0) }
    }

    /// The numbers of its operators, then zeros.
    pub fn chain(&self) -> [u8; 8] {
        self.pipeline.chain
    }

    /// Does the work. `clock` tells the time, in nanoseconds. An operator that panics fails its own command, wherever it
    /// works.
    pub fn run(&mut self, clock: &mut dyn FnMut() -> u64) {
        let began = clock();
        match catch_unwind(AssertUnwindSafe(|| self.work(began, clock))) {
            Ok(end) => self.end = end,
            Err(_) => self.fail(),
        }
        self.took = clock().saturating_sub(began);
    }

    /// The work cannot be done: its command fails. Nothing is left of the chain, whose operators may have panicked, nor
    /// of what came out of it.
    pub fn fail(&mut self) {
        let failed = std::mem::take(&mut self.pipeline);
        self.pipeline.chain = failed.chain;
        // What panicked in its work may do so again when it goes.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(failed)));
        self.build = None;
        self.out.clear();
        self.end = Err(Status::INTERNAL_ERROR);
    }

    /// No slot may do the work: its command fails for this reason.
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

    /// Pulls output, `made` bytes of it, until there is enough.
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
