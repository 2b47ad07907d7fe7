//! Prepared transfers: bound once, submitted often.

use crate::completion::Completion;
use crate::endpoint::{Extents, Open, Side};
use crate::engine::shared::Shared;
use crate::error::{Error, TransferError};
use crate::op::Op;
use crate::queue::{Awaited, Command, Endpoints, Finished, OpChain, QueuePair};
use crate::session::{Described, conclude, describe, refused, write_descriptor};
use dcs_abi::descriptor::{EndpointKind, EndpointRole, Extent, OPEN_END, Plain};
use dcs_abi::entry::SubmissionEntry;
use dcs_abi::inline::InlineEntry;
use dcs_abi::operator::{Operator, OperatorKind};
use dcs_devices::Endpoint;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A transfer whose ends and operators were bound once ([`Session::prepare`](crate::Session::prepare)), to be submitted
/// often, each time with other offsets and another length. One submission is under way at a time: prepare as many
/// as there are to be at once. Dropping it cancels what is under way.
///
/// ```
/// use dcs::{Engine, Handle, Op, Sink, Source};
/// # let directory = std::env::temp_dir().join(format!("dcs-prepared-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// # let path = directory.join("file");
/// # std::fs::write(&path, b"hello world")?;
/// let (file, null) = (std::fs::File::open(&path)?, std::fs::File::create("/dev/null")?);
/// let engine = Engine::builder().start()?;
/// let session = engine.session()?;
/// let (from, to) = (Handle::new(&file)?, Handle::new(&null)?);
/// let mut prepared = session.prepare(Source::handle(&from, ..), [Op::Md5], Sink::handle(&to, 0))?;
/// for (offset, length, md5) in
///     [(0, 5, "5d41402abc4b2a76b9719d911017c592"), (6, 5, "7d793037a0760186574b0282f2f435e7")]
/// {
///     prepared.submit(offset, 0, length)?;
///     let done = prepared.wait()?;
///     assert_eq!((done.bytes_out, done.digests[0].to_string()), (5, md5.to_string()));
/// }
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Prepared {
    engine: Arc<Shared>,
    queue: Arc<QueuePair>,
    source: End,
    sink: End,
    chain: Vec<Op>,
    numbers: OpChain,
    entry: SubmissionEntry,
    /// The entry that is submitted, except for offsets and length; `None` if it needs a descriptor.
    inline: Option<InlineEntry>,
    /// The submission under way.
    under_way: Option<u16>,
    completion: Completion,
    /// The failure of the last submission, if it failed.
    failed: Option<Box<TransferError>>,
}

/// One end of a prepared transfer.
#[derive(Debug)]
struct End {
    endpoint: Arc<Endpoint>,
    wire: dcs_abi::descriptor::Endpoint,
    /// Its handle is not closed.
    open: Option<Open>,
    positional: bool,
    /// Bytes that it has, where a destination's extent has to name them.
    size: u64,
}

impl End {
    fn new(side: Side) -> Result<End, Error> {
        let open = side.open.clone();
        let (endpoint, (wire, _)) = describe(side)?;
        let kind = endpoint.kind();
        let size = match kind {
            EndpointKind::File => OPEN_END,
            _ => endpoint.size().map_err(Error::Size)?.unwrap_or(0),
        };
        Ok(End { endpoint, wire, open, positional: kind.is_positional(), size })
    }

    fn check(&self, offset: u64, length: u64) -> Result<(), Error> {
        if self.open.as_ref().is_some_and(|open| !open.is_open()) {
            return Err(Error::Endpoint(dcs_devices::EndpointError::Closed));
        }
        if offset != 0 && !self.positional {
            return Err(Error::NoOffset);
        }
        match offset.checked_add(length) {
            Some(_) => Ok(()),
            None => Err(Error::Range),
        }
    }

    fn extent(&self, offset: u64, length: Option<u64>) -> Result<Option<Extent>, Error> {
        if !self.positional {
            return Ok(None);
        }
        let length = match length {
            Some(length) => length,
            None => self.size.checked_sub(offset).ok_or(Error::Range)?,
        };
        Ok(Some(Extent { offset, length }))
    }

    fn described(&self, extent: Option<Extent>) -> Described {
        (self.wire, extent.map_or(Extents::None, Extents::One))
    }
}

fn changes_length(op: &Op) -> bool {
    Operator::from_chain(op.number()).is_none_or(|(operator, _)| operator.kind() == OperatorKind::Resize)
}

impl Prepared {
    pub(crate) fn new(
        (engine, queue): (&Arc<Shared>, &Arc<QueuePair>),
        (source, sink): (Side, Side),
        chain: Vec<Op>,
        entry: SubmissionEntry,
    ) -> Result<Prepared, Error> {
        if sink.memory.is_some() {
            return Err(Error::NotPrepared("memory that each completion hands back (Sink::memory)"));
        }
        let (source, sink) = (End::new(source)?, End::new(sink)?);
        if engine.near().is_some() && !chain.is_empty() {
            return Err(Error::NotPrepared("a chain that a virtual drive may run (Backend::Drive)"));
        }
        for (at, op) in chain.iter().enumerate() {
            if Operator::from_chain(op.number()).is_none() {
                return Err(Error::UnknownOperator(op.number(), at as u8));
            }
        }
        let resizes = chain.iter().any(changes_length);
        let mut prepared = Prepared {
            engine: Arc::clone(engine),
            queue: Arc::clone(queue),
            numbers: entry.op_chain,
            source,
            sink,
            chain,
            entry,
            inline: None,
            under_way: None,
            completion: Completion::default(),
            failed: None,
        };
        let ends_itself = prepared.sink.positional && prepared.sink.endpoint.kind() != EndpointKind::File;
        let described = prepared.chain.iter().any(Op::has_parameter) || (resizes && ends_itself);
        if !described {
            // A byte, to see whether such a transfer needs a descriptor.
            let room = if prepared.sink.endpoint.kind() == EndpointKind::Memory { 1 } else { OPEN_END };
            let plain = Plain {
                source: (prepared.source.wire, prepared.source.extent(0, Some(1))?),
                destination: (prepared.sink.wire, prepared.sink.extent(0, Some(room))?),
            };
            prepared.inline = InlineEntry::new(&SubmissionEntry { length: 1, ..entry }, &plain);
        }
        Ok(prepared)
    }

    /// Submits it: `length` bytes from `from` on at the source, to `to` on at the sink. Ends without positions have offset
    /// 0. A source that ends before that fails with [`Status::EndOfSource`](crate::Status) or
    /// [`Status::OutOfRange`](crate::Status).
    ///
    /// # Errors
    ///
    /// [`Error`]: nothing was moved. [`Error::UnderWay`] if the previous submission was not waited for;
    /// [`EndpointError::Closed`](crate::EndpointError) if a handle was closed.
    pub fn submit(&mut self, from: u64, to: u64, length: u64) -> Result<(), Error> {
        if self.engine.is_foreign() {
            return Err(Error::Forked);
        }
        if self.under_way.is_some() {
            return Err(Error::UnderWay);
        }
        self.source.check(from, length)?;
        self.sink.check(to, length)?;
        let endpoints = self.endpoints();
        let cid = if let Some(inline) = &mut self.inline {
            if self.sink.positional && to > self.sink.size {
                return Err(Error::Range);
            }
            (inline.source_offset, inline.destination_offset, inline.length) = (from, to, length);
            match self.queue.submit_inline(inline, self.numbers, endpoints) {
                Ok(cid) => cid,
                Err(reason) => return Err(self.not_submitted(refused(reason))),
            }
        } else {
            self.submit_described(from, to, length).map_err(|error| self.not_submitted(error))?
        };
        self.under_way = Some(cid);
        self.engine.ring_doorbell();
        Ok(())
    }

    #[cold]
    fn not_submitted(&self, error: Error) -> Error {
        if matches!(error, Error::SessionFull) && self.engine.is_caller_driven() {
            // Identifiers of dropped transfers come back only when a thread drives.
            self.engine.drive_once();
        }
        error
    }

    #[inline]
    fn endpoints(&self) -> Endpoints {
        [Some(Arc::clone(&self.source.endpoint)), Some(Arc::clone(&self.sink.endpoint)), None]
    }

    /// The same, where operators have parameters, or ends what needs a descriptor.
    fn submit_described(&self, from: u64, to: u64, length: u64) -> Result<u16, Error> {
        let source = self.source.described(self.source.extent(from, Some(length))?);
        let sink = self.sink.described(self.sink.extent(to, None)?);
        let chain = &self.chain;
        let write = |bytes: &mut [u8], handles: &[u32]| {
            let described =
                [Some((EndpointRole::Source, &source)), Some((EndpointRole::Destination, &sink)), None];
            write_descriptor(bytes, handles, &described, chain)
        };
        let command = Command {
            entry: SubmissionEntry { length, ..self.entry },
            chain: self.numbers,
            endpoints: self.endpoints(),
            secret: self.chain.iter().any(Op::has_parameter),
            near: None,
            plain: None,
            describe: &write,
        };
        self.queue.submit(command).map_err(refused)
    }

    /// Waits until the submission is done. On an engine without a thread of its own this drives the engine.
    /// The result stays until the next submission is done: further calls return the same. Before the first
    /// submission it is an empty completion.
    ///
    /// # Errors
    ///
    /// [`TransferError`]: stage, status, and what had been done.
    pub fn wait(&mut self) -> Result<&Completion, TransferError> {
        if let Some(cid) = self.under_way {
            if self.run_alone(cid) {
                return Ok(&self.completion);
            }
            loop {
                self.engine.wait(&self.queue, Awaited::Done(cid));
                if self.take(cid) {
                    break;
                }
            }
        }
        self.outcome()
    }

    /// Runs the submission to its end, if it is all that the engine has to do. Such a one has not failed.
    #[inline]
    fn run_alone(&mut self, cid: u16) -> bool {
        let completion = &mut self.completion;
        let ended = self.engine.run_alone(&self.queue, cid, &mut |finished| completion.refill(finished));
        if ended {
            (self.under_way, self.failed) = (None, None);
        }
        ended
    }

    /// Returns how the last submission ended.
    fn outcome(&self) -> Result<&Completion, TransferError> {
        match &self.failed {
            Some(error) => Err(TransferError::clone(error)),
            None => Ok(&self.completion),
        }
    }

    /// As [`Prepared::wait`], without waiting: `None` if it is not done. On an engine without a thread of its
    /// own this does a bounded piece of work.
    ///
    /// # Errors
    ///
    /// As [`Prepared::wait`].
    pub fn try_wait(&mut self) -> Option<Result<&Completion, TransferError>> {
        if let Some(cid) = self.under_way {
            self.engine.drive_once();
            if !self.take(cid) {
                return None;
            }
        }
        Some(self.outcome())
    }

    /// Takes the completion. Returns false if it has not come yet.
    fn take(&mut self, cid: u16) -> bool {
        let completion = &mut self.completion;
        let conclude = |finished: &Finished<'_>| {
            if finished.entry.status().is_success() {
                completion.refill(finished);
                return None;
            }
            conclude(finished, None).err().map(Box::new)
        };
        let taken = if self.engine.is_foreign() {
            Some(Finished::elsewhere(conclude))
        } else {
            self.queue.take(cid, conclude)
        };
        let Some(failed) = taken else { return false };
        (self.under_way, self.failed) = (None, failed);
        true
    }

    /// Polls it in a task: the task is woken when the submission is done.
    ///
    /// # Errors
    ///
    /// As [`Prepared::wait`].
    ///
    /// # Panics
    ///
    /// On an engine that is driven by its callers ([`Driver::Caller`](crate::Driver)), where nothing would
    /// wake the task.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<&Completion, TransferError>> {
        assert!(!self.engine.is_caller_driven(), "{}", Error::CallerDriven);
        if let Some(cid) = self.under_way {
            if !self.engine.is_foreign() && self.queue.wake_when_done(cid, context.waker()) {
                return Poll::Pending;
            }
            if !self.take(cid) {
                return Poll::Pending;
            }
        }
        Poll::Ready(self.outcome())
    }

    /// Takes the completion of what is under way, and applies `of` to it, if it is there; else does what can be done
    /// without waiting.
    #[doc(hidden)]
    pub fn take_with<R>(&mut self, of: impl FnOnce(&Finished<'_>) -> R) -> Option<R> {
        let cid = self.under_way?;
        let taken = if self.engine.is_foreign() {
            Some(Finished::elsewhere(of))
        } else {
            self.engine.drive_once();
            self.queue.take(cid, of)
        };
        if taken.is_some() {
            self.under_way = None;
        }
        taken
    }

    /// Waits until what is under way is done, and leaves its completion to be taken.
    #[doc(hidden)]
    pub fn wait_done(&self) {
        if let Some(cid) = self.under_way {
            self.engine.wait(&self.queue, Awaited::Done(cid));
        }
    }

    /// Returns true if a submission is in progress that was not waited for.
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Returns true if [`Prepared::wait`] would return at once.
    pub fn is_done(&self) -> bool {
        self.under_way.is_none_or(|cid| self.engine.is_foreign() || self.queue.has(Awaited::Done(cid)))
    }

    /// Asks the engine to abort what is under way. It is done soon after, with
    /// [`Status::Cancelled`](crate::Status) unless it was faster.
    pub fn cancel(&self) {
        if let Some(cid) = self.under_way
            && !self.engine.is_foreign()
            && self.queue.cancel(cid)
        {
            self.engine.cancel(&self.queue, cid);
        }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.cancel();
        if let Some(cid) = self.under_way.filter(|_| !self.engine.is_foreign()) {
            self.queue.detach(cid);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::endpoint::{Handle, Namespace, Sink, Source};
    use crate::engine::{Driver, Engine};
    use crate::error::Error;
    use crate::op::Op;
    use dcs_abi::status::{Stage, Status};
    use dcs_devices::vfio_devices;
    use std::sync::Arc;

    /// A failure is returned again, not the success of an older submission; a range with an invalid end is
    /// refused, and so is an invalid operator.
    #[test]
    fn a_failure_stays_one() {
        let engine = Engine::builder().driver(Driver::Caller).start().unwrap();
        let session = engine.session().unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        let file = Handle::new(&file).unwrap();
        let null = Handle::new(&std::fs::File::create("/dev/null").unwrap()).unwrap();
        let mut prepared =
            session.prepare(Source::handle(&file, ..), [Op::Md5], Sink::handle(&null, 0)).unwrap();
        prepared.submit(0, 0, 100).unwrap();
        assert_eq!(prepared.wait().unwrap().bytes_out, 100);
        prepared.submit(200, 0, 10).unwrap();
        for _ in 0..2 {
            assert_eq!(prepared.wait().unwrap_err().status, Status::OutOfRange);
        }
        assert!(prepared.try_wait().unwrap().is_err());
        assert!(matches!(prepared.submit(u64::MAX - 5, 0, 10), Err(Error::Range)));
        prepared.submit(0, 0, 50).unwrap();
        assert_eq!(prepared.wait().unwrap().bytes_out, 50);
        let none = Op::Raw { number: 100, parameter: Vec::new() };
        let refused = session.prepare(Source::handle(&file, ..), [none], Sink::handle(&null, 0));
        assert!(matches!(refused, Err(Error::UnknownOperator(100, 0))));
    }

    /// A range of an SSD is whole logical blocks, however many bytes are written there: where no SSD is attached, a
    /// write is refused for that, not for its length.
    #[test]
    fn a_range_of_an_ssd_is_named_as_it_is() {
        let engine = Engine::builder().driver(Driver::Caller).start().unwrap();
        let session = engine.session().unwrap();
        let function = "0000:01:00.0".into();
        let ssd =
            vfio_devices::Namespace { function, number: 1, block_size: 512, blocks: 64, huge_pages: false };
        let ssd = Namespace::new(&Arc::new(ssd));
        let bytes: Arc<[u8]> = vec![7; 5000].into();
        let source = || Source::memory(Arc::clone(&bytes));
        let written = session.transfer(source(), [], Sink::namespace(&ssd, 512..8192)).unwrap().wait();
        let error = written.unwrap_err();
        assert_eq!((error.stage, error.status), (Stage::Destination, Status::BadHandle));
        let mut prepared = session.prepare(source(), [], Sink::namespace(&ssd, ..)).unwrap();
        prepared.submit(0, 512, 5000).unwrap();
        let error = prepared.wait().unwrap_err();
        assert_eq!((error.stage, error.status), (Stage::Destination, Status::BadHandle));
    }
}
