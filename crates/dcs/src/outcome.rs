//! The outcome of a transfer at a virtual drive ([`drive`](crate::drive)), joined with how the kernel backend's
//! transfer of the pipe ended.

use dcs_abi::entry::CompletionEntry;
use dcs_abi::result::{DigestSlot, PATH_NEAR_STORAGE, ResultArea, STAGE_OPERATORS, StageTimes};
use dcs_abi::status::{Stage, Status};
use dcs_abi::{CHAIN_MAX, U48};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The reason for which a transfer failed.
#[derive(Debug)]
pub(crate) struct DriveFailure {
    pub status: Status,
    pub stage: Stage,
    pub operator: u8,
    pub errno: i32,
    pub reason: Option<Box<str>>,
}

impl DriveFailure {
    pub fn new(status: Status, errno: i32) -> DriveFailure {
        DriveFailure { status, stage: Stage::Source, operator: 0, errno, reason: None }
    }

    /// There is no path here, and why.
    pub fn unavailable(errno: i32, reason: impl Into<Box<str>>) -> DriveFailure {
        DriveFailure { reason: Some(reason.into()), ..DriveFailure::new(Status::PathUnavailable, errno) }
    }
}

/// The drive has written nothing yet; it has begun to; it will not, since the transfer ended before.
const BEFORE: u8 = 0;
const WRITING: u8 = 1;
const NEVER: u8 = 2;

/// The outcome of a transfer at the drive. It is set before the pipe ends.
#[derive(Debug, Default)]
pub(crate) struct DriveOutcome {
    ended: OnceLock<Ended>,
    /// The state of a drive that writes a file: [`BEFORE`], [`WRITING`] or [`NEVER`].
    writing: AtomicU8,
    /// The pipe brings what the drive is to write: the drive comes after the kernel backend, not before it.
    is_fed: bool,
    /// The pipe's transfer has ended well: all that the pipe brought is the source's.
    whole: AtomicBool,
    /// Failures that the kernel backend knows nothing of, of all transfers of an engine.
    failures: Arc<AtomicU64>,
}

/// Bytes and digests at the end, and what went wrong.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub failure: Option<DriveFailure>,
    /// Bytes of the file that went into the chain.
    pub taken: u64,
    /// Bytes that came out of it and were dropped, or that the drive has written; none if they go through the pipe.
    pub out: Option<u64>,
    pub digests: [DigestSlot; CHAIN_MAX],
    /// Time that operators worked, and the number of pieces; a drive does not tell when.
    pub operators: [StageTimes; CHAIN_MAX],
}

impl DriveOutcome {
    /// No outcome yet. A failure is counted in `failures`.
    pub fn new(failures: Arc<AtomicU64>) -> DriveOutcome {
        DriveOutcome { failures, ..DriveOutcome::default() }
    }

    /// Makes the outcome of a drive that writes what the pipe brings: the transfer has not ended before the drive has.
    pub fn fed(failures: Arc<AtomicU64>) -> DriveOutcome {
        DriveOutcome { failures, is_fed: true, writing: AtomicU8::new(WRITING), ..DriveOutcome::default() }
    }

    /// Notes how the pipe's transfer ended. Call it before the pipe is closed.
    pub fn pipe_ended(&self, status: Status) {
        self.whole.store(status.is_success(), Ordering::Release);
    }

    /// Returns true if the pipe, which is at its end, has brought all of the source.
    pub fn is_whole(&self) -> bool {
        self.whole.load(Ordering::Acquire)
    }

    /// Returns true if the drive may write a file from now on; false if the transfer has ended.
    pub fn begin_to_write(&self) -> bool {
        self.writing.compare_exchange(BEFORE, WRITING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The pipe's transfer has ended. Returns false if the drive still writes a file: the transfer ends when
    /// it has finished.
    pub fn has_let_go(&self) -> bool {
        let before = self.writing.compare_exchange(BEFORE, NEVER, Ordering::AcqRel, Ordering::Acquire);
        before != Err(WRITING) || self.ended.get().is_some()
    }

    pub(crate) fn set(&self, ended: Ended) {
        let _ = self.ended.set(ended);
    }

    /// The pipe's transfer has ended; called once. Counts a failure that only the drive's part has.
    pub fn count(&self, status: Status) {
        if status.is_success() && self.ended.get().is_none_or(|ended| ended.failure.is_some()) {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Joins it with the end of the pipe's transfer. A failure there, at the sink, is what counts; if there is none, the drive's is: a pipe
    /// just ends. A pipe that feeds a drive breaks when the drive fails: then the drive's failure counts.
    pub fn join(&self, entry: &mut CompletionEntry, area: &mut ResultArea, reason: &mut Option<Box<str>>) {
        let lost = Ended { failure: Some(DriveFailure::new(Status::InternalError, 0)), ..Ended::default() };
        let ended = self.ended.get().unwrap_or(&lost);
        let ok = entry.status().is_success() || self.is_fed && ended.failure.is_some();
        (area.bytes_in, area.digests) = (ended.taken, ended.digests);
        area.stages[STAGE_OPERATORS..].copy_from_slice(&ended.operators);
        area.path |= PATH_NEAR_STORAGE;
        // Bytes that the pipe brought to a drive are not yet in the file.
        if let Some(out) = ended.out.or(self.is_fed.then_some(0)) {
            area.bytes_out = out;
            entry.delivered = U48::saturating(out);
        }
        if let (true, Some(failure)) = (ok, &ended.failure) {
            let index = if failure.stage == Stage::Operator { failure.operator } else { 0 };
            (area.status, area.stage, area.stage_index) = (failure.status.code(), failure.stage as u8, index);
            area.errno = failure.errno as u32;
            entry.set_status(failure.status, entry.phase());
            (entry.stage, entry.stage_index) = (failure.stage as u8, index);
            reason.clone_from(&failure.reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of a pipe's transfer of 7 bytes, joined with what a drive said.
    fn joined(status: Status, outcome: &DriveOutcome) -> (CompletionEntry, ResultArea) {
        let mut entry = CompletionEntry::default();
        entry.set_status(status, true);
        let mut area = ResultArea { bytes_in: 7, bytes_out: 7, status: status.code(), ..Default::default() };
        outcome.join(&mut entry, &mut area, &mut None);
        (entry, area)
    }

    #[test]
    fn a_pipe_that_ends_is_not_the_end_of_a_file() {
        // The thread died: it is not known whether that was all.
        let (entry, _) = joined(Status::Success, &DriveOutcome::default());
        assert_eq!(entry.status(), Status::InternalError);
        // The drive failed: its word.
        let outcome = DriveOutcome::default();
        let failure =
            DriveFailure { stage: Stage::Operator, operator: 2, ..DriveFailure::new(Status::CorruptData, 0) };
        outcome.set(Ended { failure: Some(failure), taken: 100, ..Ended::default() });
        let (entry, area) = joined(Status::Success, &outcome);
        assert_eq!((entry.status(), entry.stage_index, entry.phase()), (Status::CorruptData, 2, true));
        assert_eq!((area.bytes_in, area.bytes_out), (100, 7));
        // It is a failure of the engine's transfer, though the pipe's ended well.
        outcome.count(Status::Success);
        outcome.count(Status::PeerReset);
        assert_eq!(
            outcome.failures.load(Ordering::Relaxed),
            1,
            "the other one the kernel backend has counted"
        );
        // The sink failed: that is why the drive could not go on.
        assert_eq!(joined(Status::PeerReset, &outcome).0.status(), Status::PeerReset);
        // All went well, and the bytes were to be discarded.
        let outcome = DriveOutcome::default();
        let mut operators = [StageTimes::default(); CHAIN_MAX];
        operators[1] = StageTimes { busy: 5000, operations: 2, ..StageTimes::default() };
        outcome.set(Ended { taken: 100, out: Some(90), operators, ..Ended::default() });
        let (entry, area) = joined(Status::Success, &outcome);
        assert_eq!(area.stages[STAGE_OPERATORS + 1], operators[1]);
        assert_eq!((entry.status(), area.bytes_out), (Status::Success, 90));
        assert_ne!(area.path & PATH_NEAR_STORAGE, 0);
        outcome.count(Status::Success);
        assert_eq!(outcome.failures.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn bytes_that_a_drive_has_not_written_are_not_delivered() {
        // The source ended early, with bytes that fill no buffer of the drive's.
        let fed = || DriveOutcome::fed(Arc::default());
        let outcome = fed();
        outcome.set(Ended { taken: 5, out: Some(3), ..Ended::default() });
        let (entry, area) = joined(Status::EndOfSource, &outcome);
        assert_eq!((area.bytes_in, area.bytes_out), (5, 3));
        assert_eq!((entry.status(), entry.delivered.value()), (Status::EndOfSource, 3));
        // The drive refused, or its thread died.
        let outcome = fed();
        let refused = Some(DriveFailure::new(Status::AccessDenied, 0));
        outcome.set(Ended { failure: refused, ..Ended::default() });
        assert_eq!(joined(Status::Success, &outcome).1.bytes_out, 0);
        assert_eq!(joined(Status::Success, &fed()).1.bytes_out, 0);
        // A drive that reads and writes was cancelled amid it.
        let outcome = DriveOutcome::default();
        outcome.set(Ended { taken: 100, out: Some(64), ..Ended::default() });
        assert_eq!(joined(Status::Cancelled, &outcome).1.bytes_out, 64);
    }
}
