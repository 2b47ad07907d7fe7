//! Sessions, requests and transfers: a [`Request`] names a source, a chain and a destination; `submit` makes a 64-byte entry and its
//! descriptor of it and rings the queue's doorbell; a [`Transfer`] waits for the completion. Nothing here moves a byte: the loop in
//! `kernel` does, or a card.

use crate::completion::Completion;
use crate::drive::{Feed, Job, Landing, Near, Work};
use crate::endpoint::{Extents, Range, Side, Sink, Source};
use crate::engine::Spread;
use crate::engine::meter::Meter;
use crate::engine::shared::Shared;
use crate::error::{Error, TransferError};
use crate::op::Op;
use crate::prepared::Prepared;
use crate::queue::{Awaited, Command, Finished, QueuePair, Refused};
use dcs_abi::CHAIN_MAX;
use dcs_abi::descriptor::{self, Builder, EndpointKind, EndpointRole, Mode, Plain};
use dcs_abi::entry::{
    FLAG_ACKNOWLEDGED, FLAG_DURABLE, FLAG_MORE, LENGTH_TO_END, OPCODE_TRANSFER, SubmissionEntry,
};
use dcs_abi::operator::Operator;
use dcs_abi::status::{Stage, Status};
use dcs_devices::Endpoint;
use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use zeroize::Zeroizing;

pub use crate::queue::DEPTH_MAX;

/// A queue pair to an engine. It may be shared by threads. Dropping it aborts its transfers.
#[derive(Debug)]
pub struct Session {
    engine: Arc<Shared>,
    queue: Arc<QueuePair>,
}

/// The settings of a transfer that is not submitted yet: see [`Session::request`].
#[derive(Debug)]
#[must_use = "a request does nothing until it is submitted"]
pub struct Request<'a> {
    to: To<'a>,
    source: Source,
    chain: Vec<Op>,
    sink: Sink,
    prefix: Option<Side>,
    length: u64,
    timeout: Duration,
    rid: u32,
    flags: u16,
}

/// The queue that a request is submitted to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To<'a> {
    Session(&'a Session),
    /// The session is found at the submission.
    Spread(&'a Spread),
}

/// A transfer in flight. Wait for it, await it, or poll it; dropping it cancels it.
#[derive(Debug)]
#[must_use = "dropping a transfer cancels it: wait for it, or detach it"]
pub struct Transfer {
    engine: Arc<Shared>,
    queue: Arc<QueuePair>,
    cid: u16,
    memory: Option<Arc<Mutex<Vec<u8>>>>,
    taken: bool,
}

impl Session {
    pub(crate) fn new(engine: Arc<Shared>, queue: Arc<QueuePair>) -> Session {
        engine.meter.open();
        Session { engine, queue }
    }

    /// Submits a transfer of a source through operators to a sink.
    ///
    /// # Errors
    ///
    /// [`Error`]: nothing was moved.
    pub fn transfer(
        &self,
        source: Source,
        chain: impl IntoIterator<Item = Op>,
        sink: Sink,
    ) -> Result<Transfer, Error> {
        self.request(source, chain, sink).submit()
    }

    /// Begins a transfer with more settings: prefix bytes, a length, a timeout, an order.
    pub fn request(&self, source: Source, chain: impl IntoIterator<Item = Op>, sink: Sink) -> Request<'_> {
        Request::new(To::Session(self), source, chain, sink)
    }

    /// Prepares a transfer that is to be submitted often, with other offsets and lengths each time: see [`Prepared`]. Of
    /// ranges and offsets of source and sink nothing counts: each submission has its own.
    ///
    /// # Errors
    ///
    /// [`Error`], [`Error::NotPrepared`] among them.
    pub fn prepare(
        &self,
        source: Source,
        chain: impl IntoIterator<Item = Op>,
        sink: Sink,
    ) -> Result<Prepared, Error> {
        self.request(source, chain, sink).prepare()
    }

    /// The load of its core.
    pub(crate) fn meter(&self) -> &Meter {
        &self.engine.meter
    }

    /// Returns true if nothing can be submitted.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.is_full()
    }

    /// Waits until some transfer of this session is done and was not taken: [`Transfer::is_done`] shows
    /// which. Returns at once if one is done already, or none is in flight. On an engine without a thread of
    /// its own this drives the engine: one thread can have many transfers in flight, and takes them as they
    /// are done.
    pub fn wait_any(&self) {
        // A thread that takes one of several that are done, and waits for another, drives too.
        self.engine.drive_once();
        self.engine.wait(&self.queue, Awaited::Any);
    }

    /// An eventfd that becomes readable whenever a transfer of this session is done: read it, then ask the
    /// transfers by [`Transfer::try_wait`].
    ///
    /// # Errors
    ///
    /// [`Error::CallerDriven`] if no thread would run the transfers meanwhile; [`Error::Start`] if the
    /// process has no descriptor left; [`Error::Forked`].
    pub fn event_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        if self.engine.is_foreign() {
            return Err(Error::Forked);
        }
        if self.engine.is_caller_driven() {
            return Err(Error::CallerDriven);
        }
        self.queue.event().map(|event| event.as_fd()).map_err(Error::Start)
    }

    /// Makes the eventfd readable, if there is one, for a transfer that ended without the engine.
    #[doc(hidden)]
    pub fn signal(&self) {
        self.queue.signal();
    }

    /// Closes the session, and waits until the engine has released everything of its transfers.
    #[doc(hidden)]
    pub fn close(self) {
        let (engine, queue) = (Arc::clone(&self.engine), Arc::clone(&self.queue));
        drop(self);
        engine.wait(&queue, Awaited::Closed);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.engine.is_foreign() {
            self.engine.meter.close();
        }
        self.engine.delete_queue(&self.queue);
    }
}

impl To<'_> {
    fn is_foreign(self) -> bool {
        let session = match self {
            To::Session(session) => Some(session),
            To::Spread(spread) => spread.sessions().first(),
        };
        session.is_some_and(|session| session.engine.is_foreign())
    }
}

impl<'a> Request<'a> {
    pub(crate) fn new(
        to: To<'a>,
        source: Source,
        chain: impl IntoIterator<Item = Op>,
        sink: Sink,
    ) -> Request<'a> {
        Request {
            to,
            source,
            chain: chain.into_iter().collect(),
            sink,
            prefix: None,
            length: LENGTH_TO_END,
            timeout: Duration::ZERO,
            rid: 0,
            flags: 0,
        }
    }

    /// Prepares it for many submissions, each with a length of its own: see [`Prepared`].
    ///
    /// # Errors
    ///
    /// [`Error`], [`Error::NotPrepared`] among them.
    pub fn prepare(self) -> Result<Prepared, Error> {
        let session = self.checked_session()?;
        if self.prefix.is_some() {
            return Err(Error::NotPrepared("a prefix"));
        }
        if self.sink.0.near {
            return Err(Error::NotPrepared("a destination that a virtual drive writes (Sink::near_storage)"));
        }
        let entry = self.entry();
        Prepared::new((&session.engine, &session.queue), (self.source.0, self.sink.0), self.chain, entry)
    }

    /// The session that it goes to, once it is known that its chain can go there.
    fn checked_session(&self) -> Result<&'a Session, Error> {
        if self.to.is_foreign() {
            return Err(Error::Forked);
        }
        let session = match self.to {
            To::Session(session) => session,
            To::Spread(spread) => spread.session_for(&self.chain, self.rid),
        };
        if self.chain.len() > CHAIN_MAX {
            return Err(Error::ChainTooLong);
        }
        let named = |(at, op): (usize, &Op)| Some((at, op.gpu_name()?));
        match self.chain.iter().enumerate().find_map(named).filter(|_| !session.engine.has_gpu()) {
            Some((at, name)) => Err(Error::NoGpu(name, at as u8)),
            None => Ok(session),
        }
    }

    /// Its entry, but for what its queue fills in.
    #[inline]
    fn entry(&self) -> SubmissionEntry {
        let mut op_chain = [0; CHAIN_MAX];
        op_chain.iter_mut().zip(&self.chain).for_each(|(number, op)| *number = op.number());
        let timeout_ms = u32::try_from(self.timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX);
        SubmissionEntry {
            opcode: OPCODE_TRANSFER,
            rid: self.rid,
            op_chain,
            length: self.length,
            timeout_ms,
            flags: self.flags,
            ..Default::default()
        }
    }
}

impl Request<'_> {
    /// Bytes that come first: what was already read off the source socket, or a header for the destination.
    pub fn prefix(mut self, bytes: impl Into<Arc<[u8]>>) -> Self {
        self.prefix = Some(Source::memory(bytes).0);
        self
    }

    /// The same, from an endpoint.
    #[doc(hidden)]
    pub fn prefix_source(mut self, source: Source) -> Self {
        self.prefix = Some(source.0);
        self
    }

    /// Bytes to move in all, those of the prefix included; without it, all that the source has. A source that
    /// ends before that fails with [`Status::EndOfSource`].
    pub fn length(mut self, bytes: u64) -> Self {
        self.length = bytes;
        self
    }

    /// Fails the transfer with [`Status::Timeout`] after so long, rounded up to milliseconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Request id: a transfer does not start before the earlier ones with the same id are finished. Earlier
    /// is what was submitted earlier to this session, or to this [`Spread`]; and of the other sessions on the
    /// same core, what it fetched earlier. Sessions on different cores of an engine know nothing of each
    /// other. 0: no order.
    pub fn rid(mut self, rid: u32) -> Self {
        self.rid = rid;
        self
    }

    /// Makes the destination durable (fdatasync) before the transfer is done.
    pub fn durable(mut self) -> Self {
        self.flags |= FLAG_DURABLE;
        self
    }

    /// The transfer ends when the TCP of the destination's peer has acknowledged every byte; without this,
    /// when all are sent. Acknowledged does not mean read by the peer's application. It fails if the
    /// connection ends before ([`Status::PeerReset`]), and may wait for long: give it a [`Request::timeout`].
    /// For TCP sockets, connections of a card, and connections of a NIC that the engine drives; for other
    /// sinks this is unknown, and the transfer fails with [`Status::PathUnavailable`].
    pub fn acknowledged(mut self) -> Self {
        self.flags |= FLAG_ACKNOWLEDGED;
        self
    }

    /// More data follow on the destination socket soon: its last segment may be held back (MSG_MORE).
    pub fn more(mut self) -> Self {
        self.flags |= FLAG_MORE;
        self
    }

    /// Submits it.
    ///
    /// # Errors
    ///
    /// [`Error`]: nothing was moved.
    pub fn submit(self) -> Result<Transfer, Error> {
        let session = self.checked_session()?;
        let mut entry = self.entry();
        let named = entry.op_chain;
        let memory = self.sink.0.memory.clone();
        let engine = &session.engine;
        // A prefix of no bytes is no prefix.
        let is_empty = |side: &Side| matches!(&side.endpoint, Ok(endpoint) if endpoint.size().is_ok_and(|size| size == Some(0)));
        let prefix = self.prefix.filter(|side| !is_empty(side));
        let lands = self.sink.0.near;
        let (mut source, mut destination) = (describe(self.source.0)?, describe(self.sink.0)?);
        let mut prefix = prefix.map(describe).transpose()?;
        let ends = (&mut source, &mut destination, &mut prefix);
        let work = near_work(engine, &mut entry, ends, &self.chain, lands)?;
        let chain = if work.is_some() { &[] } else { &self.chain[..] };
        let ((source, from), (destination, to)) = (source, destination);
        let (prefix, before) = prefix.unzip();
        let endpoints = [Some(source), Some(destination), prefix];
        let secret = chain.iter().any(Op::has_parameter);
        let plain = if secret || before.is_some() { None } else { plain(&from, &to) };
        let write = |bytes: &mut [u8], handles: &[u32]| {
            let described = [
                Some((EndpointRole::Source, &from)),
                Some((EndpointRole::Destination, &to)),
                before.as_ref().map(|before| (EndpointRole::Prefix, before)),
            ];
            write_descriptor(bytes, handles, &described, chain)
        };
        let near = work.as_ref().map(|work| Arc::clone(&work.outcome));
        if session.queue.is_full() {
            // If callers drive, identifiers of dropped transfers come back only when one does.
            engine.drive_once();
        }
        // No other thread takes the room that is found.
        let (session, placing) = match self.to {
            To::Session(session) => (session, None),
            To::Spread(spread) => {
                let placing = spread.placing();
                (spread.session_for(&self.chain, self.rid), Some(placing))
            }
        };
        let (engine, queue) = (&session.engine, &session.queue);
        let cid = queue
            .submit(Command { entry, chain: named, endpoints, secret, near, plain, describe: &write })
            .map_err(refused)?;
        drop(placing);
        engine.ring_doorbell();
        if let Some(work) = work {
            start(work, engine, queue);
        }
        Ok(Transfer { engine: Arc::clone(engine), queue: Arc::clone(queue), cid, memory, taken: false })
    }
}

/// Has a drive do its part of a transfer, if there is one that can. The end that the drive has is replaced by
/// a pipe to or from it, and the kernel backend has no operators then.
fn near_work(
    engine: &Shared,
    entry: &mut SubmissionEntry,
    (source, destination, prefix): (&mut DescribedEnd, &mut DescribedEnd, &mut Option<DescribedEnd>),
    chain: &[Op],
    lands: bool,
) -> Result<Option<Work>, Error> {
    let Some(near) = engine.near() else {
        return if lands { Err(Error::NotNear) } else { Ok(None) };
    };
    let landing = lands.then(|| Landing {
        endpoint: Arc::clone(&destination.0),
        ranges: destination.1.1.as_slice().to_vec(),
        durable: entry.flags & FLAG_DURABLE != 0,
    });
    let through = |pipe| describe(Side::shared(Ok(pipe), Range::From(0)));
    let work = match landing {
        // The pipe feeds the chain. The drive ensures that the output is on the disk.
        Some(landing) if Near::feeds(&source.0, &destination.0, chain) => {
            let (work, pipe) = Work::fed(Feed::new(near, chain, landing), engine.near_failures())?;
            *destination = through(pipe)?;
            entry.flags &= !FLAG_DURABLE;
            work
        }
        // The pipe brings the chain's output.
        landing if Near::takes(&source.0, chain) => {
            let first = prefix.take().map(|(memory, (_, extents))| (memory, extents.as_slice().to_vec()));
            let from = (Arc::clone(&source.0), source.1.1.as_slice());
            let job = Job::new(near, from, chain, entry.length, first, landing);
            let (work, pipe) = Work::new(job, destination.0.is_null(), engine.near_failures())?;
            *source = through(pipe)?;
            entry.length = LENGTH_TO_END;
            work
        }
        Some(_) => return Err(Error::NotNear),
        None => return Ok(None),
    };
    entry.op_chain = [0; CHAIN_MAX];
    Ok(Some(work))
}

/// Starts a drive's part of a submitted transfer.
fn start(work: Work, engine: &Arc<Shared>, queue: &Arc<QueuePair>) {
    let (core, pair) = (Arc::clone(engine), Arc::clone(queue));
    work.start(move || {
        drop(pair.landed());
        // The thread that drives the engine may wait for that.
        core.ring_doorbell();
    });
}

/// Reason why a queue took no command.
pub(crate) fn refused(refused: Refused) -> Error {
    match refused {
        Refused::Full => Error::SessionFull,
        Refused::Closed => Error::Stopped,
        Refused::NoRoom => Error::TooManyExtents,
    }
}

/// An endpoint as the descriptor will have it, but for its handle.
pub(crate) type Described = (descriptor::Endpoint, Extents);

/// An endpoint with its description.
type DescribedEnd = (Arc<Endpoint>, Described);

pub(crate) fn describe(side: Side) -> Result<DescribedEnd, Error> {
    let endpoint = match side.endpoint {
        Ok(ref endpoint) => Arc::clone(endpoint),
        Err(error) => return Err(Error::Endpoint(error)),
    };
    let extents = side.extents(&endpoint)?;
    if side.cache == Mode::Off {
        endpoint.prepare_direct();
    }
    let kind = endpoint.kind();
    debug_assert_ne!(kind, EndpointKind::None);
    let wire = descriptor::Endpoint {
        kind: kind as u8,
        cache: side.cache as u8,
        zero_copy: side.zero_copy as u8,
        immutable: side.immutable.into(),
        rate: side.pace.rate,
        window_us: side.pace.window_us,
        pacing: side.pace.pacing as u8,
        ..Default::default()
    };
    Ok((endpoint, (wire, extents)))
}

/// The descriptor of a transfer between these, without a prefix and parameters, but for its handles; `None` where
/// one of them has many extents.
fn plain((source, from): &Described, (destination, to): &Described) -> Option<Plain> {
    Some(Plain { source: (*source, from.at_most_one()?), destination: (*destination, to.at_most_one()?) })
}

pub(crate) fn write_descriptor(
    bytes: &mut [u8],
    handles: &[u32],
    endpoints: &[Option<(EndpointRole, &Described)>],
    chain: &[Op],
) -> Option<usize> {
    let mut builder = Builder::new(bytes).ok()?;
    for (endpoint, handle) in endpoints.iter().zip(handles) {
        if let Some((role, (wire, extents))) = endpoint {
            let wire = descriptor::Endpoint { handle: *handle, ..*wire };
            builder.endpoint(*role, wire, extents.as_slice()).ok()?;
        }
    }
    for (at, op) in chain.iter().enumerate().filter(|(_, op)| op.has_parameter()) {
        builder.parameter(at, &Zeroizing::new(op.parameter())).ok()?;
    }
    Some(builder.finish())
}

impl Transfer {
    /// Waits until it is done. On an engine without a thread of its own this drives the engine.
    ///
    /// # Errors
    ///
    /// [`TransferError`]: stage, status, and what had been done.
    pub fn wait(mut self) -> Result<Completion, TransferError> {
        if !self.queue.has(Awaited::Done(self.cid))
            && let Some(done) = self.run_alone()
        {
            return done;
        }
        loop {
            if let Some(done) = self.take() {
                return done;
            }
            self.engine.wait(&self.queue, Awaited::Done(self.cid));
        }
    }

    /// Runs it to its end, if it is all that the engine has to do.
    fn run_alone(&mut self) -> Option<Result<Completion, TransferError>> {
        if self.taken {
            return None;
        }
        let (mut done, memory) = (None, &mut self.memory);
        let mut of = |finished: &Finished<'_>| done = Some(conclude(finished, memory.take()));
        self.taken = self.engine.run_alone(&self.queue, self.cid, &mut of);
        done
    }

    /// Its completion if it is done.
    fn take(&mut self) -> Option<Result<Completion, TransferError>> {
        let Transfer { engine, queue, cid, memory, taken } = self;
        if engine.is_foreign() {
            *taken = true;
            return Some(Finished::elsewhere(|finished| conclude(finished, None)));
        }
        let done = queue.take(*cid, |finished| conclude(finished, memory.take()));
        *taken |= done.is_some();
        done
    }

    /// Its completion if it is done, else the transfer again. On an engine without a thread of its own this
    /// does a bounded piece of what can be done without waiting.
    pub fn try_wait(mut self) -> Result<Result<Completion, TransferError>, Transfer> {
        self.engine.drive_once();
        self.take().ok_or(self)
    }

    /// Its completion if it is done, which stays to be taken; else does what can be done without waiting.
    #[doc(hidden)]
    pub fn peek<R>(&self, of: impl FnOnce(&Finished<'_>) -> R) -> Option<R> {
        if self.engine.is_foreign() {
            return Some(Finished::elsewhere(of));
        }
        self.engine.drive_once();
        self.queue.peek(self.cid, of)
    }

    /// Waits until it is done, and leaves its completion to be taken.
    #[doc(hidden)]
    pub fn wait_done(&self) {
        while !self.is_done() {
            self.engine.wait(&self.queue, Awaited::Done(self.cid));
        }
    }

    /// Returns true if [`Transfer::wait`] would return at once.
    pub fn is_done(&self) -> bool {
        self.taken || self.engine.is_foreign() || self.queue.has(Awaited::Done(self.cid))
    }

    /// Asks the engine to abort it. It is done soon after, with [`Status::Cancelled`] unless it was faster.
    pub fn cancel(&self) {
        if !self.taken && !self.engine.is_foreign() && self.queue.cancel(self.cid) {
            self.engine.cancel(&self.queue, self.cid);
        }
    }

    /// Detaches it: it goes on without anybody waiting for it.
    pub fn detach(mut self) {
        if !std::mem::replace(&mut self.taken, true) && !self.engine.is_foreign() {
            self.queue.detach(self.cid);
        }
    }
}

/// Makes the result of a transfer. `memory`: that of its sink.
pub(crate) fn conclude(
    finished: &Finished<'_>,
    memory: Option<Arc<Mutex<Vec<u8>>>>,
) -> Result<Completion, TransferError> {
    let entry = &finished.entry;
    let mut completion = Completion::new(finished);
    completion.memory = memory.map(|memory| {
        let mut bytes = std::mem::take(&mut *memory.lock().unwrap_or_else(|error| error.into_inner()));
        bytes.truncate(usize::try_from(completion.bytes_out).unwrap_or(usize::MAX));
        bytes
    });
    let status = entry.status();
    if status == Status::Success {
        return Ok(completion);
    }
    let stage = entry.stage();
    let number = finished.chain.get(entry.stage_index as usize).copied().unwrap_or(0);
    let operator = Operator::from_chain(number).filter(|_| stage == Stage::Operator);
    let on_gpu = operator.is_some_and(|(_, on_gpu)| on_gpu);
    let operator = operator.map(|(operator, _)| (entry.stage_index, operator));
    let errno = finished.result.errno as i32;
    let (reason, completion) = (finished.reason.map(Box::from), Box::new(completion));
    Err(TransferError { status, stage, operator, on_gpu, errno, reason, completion })
}

impl Future for Transfer {
    type Output = Result<Completion, TransferError>;

    /// # Panics
    ///
    /// On an engine that is driven by its callers ([`Driver::Caller`](crate::Driver)), where nothing would
    /// wake the task; and when it is polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(!self.engine.is_caller_driven(), "{}", Error::CallerDriven);
        // Its identifier may be another transfer's by now.
        assert!(!self.taken, "polled after it was done");
        if !self.engine.is_foreign() && self.queue.wake_when_done(self.cid, context.waker()) {
            return Poll::Pending;
        }
        self.take().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if !self.taken && !self.engine.is_foreign() {
            self.cancel();
            self.queue.detach(self.cid);
        }
    }
}
