//! The controller: starts operations, tracks those that wait, reaps those that are done, sleeps.
//!
//! | module | contents |
//! |---|---|
//! | `at_once` | operations that are tried before a route is made |
//! | `waits` | waits for descriptors, with and without a ring, and for times |
//! | `with_calls` | calls that may wait, which the controller hands to threads |
//! | `with_drives` | the SSDs and the NIC that a controller drives itself |
//! | `with_gpu` | the GPU: blocks that it processes, files read to it |
//! | `with_paced` | media streams in datagrams |

mod at_once;
mod waits;
mod with_calls;
mod with_drives;
mod with_gpu;
mod with_paced;

pub use at_once::Incomplete;

use crate::attempt::{Attempt, DiskRequest, Interest};
use crate::buffer::BlockPool;
use crate::calls::{self, Calls};
use crate::edge::Edges;
use crate::endpoint::{Endpoint, Object};
use crate::failure;
use crate::gpu::{self, Gpu};
use crate::paced::streams::Streams;
use crate::route::{Route, Side};
use crate::uring::{Reply, Uring};
use crate::vfio_devices::{DirectDevices, DriveEvent, DriveWork};
use crate::{copy, file, flow};
use dcs_abi::admin::Answer;
use dcs_abi::descriptor::Pace;
use dcs_abi::result::{PATH_IO_URING, PATH_ZERO_COPY};
use dcs_abi::status::Status;
use dcs_engine::{
    BlockId, DeviceEvent, EndpointRole, Failure, Operation, OperationId, OperationKind, Outcome,
};
use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The interface to the kernel for calls that take time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// io_uring if available, plain system calls otherwise.
    #[default]
    Auto,
    /// io_uring, or an error if it is not available.
    Uring,
    /// Plain system calls; those that may wait are made on separate threads.
    Plain,
}

/// The settings of a controller.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Blocks, as the engine counts them.
    pub blocks: u32,
    /// Bytes of a block.
    pub block_size: u32,
    /// Interface to the kernel.
    pub io: Io,
    /// Set if the application's own threads drive the controller, and come and go. Requests that they have put into a ring would interrupt
    /// them later, wherever they wait then, and end with them. So with [`Io::Auto`] the ring carries only calls that have no other way.
    pub by_callers: bool,
}

/// An event of a controller.
#[derive(Debug)]
pub enum Event {
    /// An event for the engine: an operation is done, or the kernel or a device has released a block.
    Device(DeviceEvent),
    /// An operation that can continue: pass it to [`Controller::resume`], with its route.
    Retry(Operation),
    /// The answer to [`Controller::ask`], under this ticket.
    Answer(u16, Answer),
    /// The GPU has finished what [`Controller::compute`] gave it; the block is back in the pool.
    Computed(OperationId, Result<gpu::Answer, Failure>),
}

/// An operation that was started and is not done.
#[derive(Debug)]
enum Pending {
    /// Waits for a descriptor to be ready.
    Ready { operation: Operation, fd: RawFd, interest: Interest, aborted: bool },
    /// In the ring.
    Disk { operation: Operation, request: DiskRequest, endpoint: Arc<Endpoint>, aborted: bool },
    /// In a call on another thread.
    Call { operation: Operation, aborted: bool },
    /// On a device that the engine drives directly.
    Drive { block: Option<BlockId> },
    /// A file is being read to the GPU.
    ToGpu { aborted: bool },
    /// Waits until the kernel has released its block.
    Block { operation: Operation, block: BlockId },
    /// A zero-copy send that sent nothing and waits until the kernel has released its block.
    Again { operation: Operation, fd: RawFd, aborted: bool },
    /// Waits for a point in time.
    Later { operation: Operation },
    /// Waits for a paced stream to have room, or to have sent everything.
    Paced { operation: Operation },
    /// Was returned as [`Event::Retry`]; the controller expects it back. `by_host`: must not be read to the GPU again. `copied`: the result
    /// of its copy.
    Retry { aborted: bool, by_host: bool, copied: Option<Box<calls::Copied>> },
}

/// A zero-copy send that is done except for its buffer.
#[derive(Debug)]
struct ZeroCopySend {
    flow: Arc<Endpoint>,
    then: Then,
}

/// The step to take once a zero-copy send's buffer is returned.
#[derive(Debug)]
enum Then {
    /// The send is done: the block is free.
    Released,
    /// The send failed. The failure is reported only now, so that the block is free when its command ends.
    Failed(Failure),
    /// The send must be tried again: nothing was sent.
    Again,
}

/// The controller of all devices of one engine. Used by one thread at a time.
#[derive(Debug)]
pub struct Controller {
    // Dropped before the pool, so that the kernel releases registered blocks first.
    ring: Option<Uring>,
    // As above, since their pages are locked for it.
    gpu: Option<Gpu>,
    /// Block buffers.
    pub pool: BlockPool,
    pending: HashMap<OperationId, Pending>,
    /// Zero-copy sends whose buffers the kernel still has.
    held: HashMap<OperationId, ZeroCopySend>,
    wake: Arc<OwnedFd>,
    replies: Vec<Reply>,
    events: Vec<Event>,
    edges: Edges,
    /// Times at which operations are tried again. Some of the operations may be done or aborted by then.
    later: Vec<(Instant, OperationId)>,
    streams: Streams,
    unpaced: Vec<OperationId>,
    calls: Calls,
    back: Vec<calls::Done>,
    registered: bool,
    /// Set if the ring carries zero-copy sends and nothing else.
    ring_for_few: bool,
    drives: Option<DirectDevices>,
    drive_events: Vec<DriveEvent>,
    computed: Vec<gpu::Done>,
    fetched: Vec<gpu::Fetched>,
}

/// Wakes a controller that sleeps in [`Controller::wait`], from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Makes a waker that is not attached to a controller: the thread that sleeps on it polls [`Waker::event`].
    ///
    /// # Errors
    ///
    /// If the process has no descriptor left.
    pub fn new() -> std::io::Result<Waker> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker(Arc::new(event)))
    }

    /// Returns the eventfd, which becomes readable on a wake-up.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Clears the eventfd.
    pub fn drain(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }

    /// Wakes the sleeper, or makes its next sleep end at once.
    pub fn wake(&self) {
        // EAGAIN: the counter is full of wake-ups already.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

impl Controller {
    /// Makes a controller.
    ///
    /// # Errors
    ///
    /// If [`Io::Uring`] is demanded and not available, or if an eventfd cannot be made.
    pub fn new(setup: Setup) -> std::io::Result<Controller> {
        let ring = match setup.io {
            Io::Plain => None,
            Io::Auto => Uring::new(setup.by_callers).ok(),
            Io::Uring => Some(Uring::new(setup.by_callers)?),
        };
        let wake = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Controller {
            calls: Calls::new(Arc::clone(&wake)),
            back: Vec::new(),
            ring_for_few: setup.by_callers && setup.io == Io::Auto,
            ring,
            gpu: None,
            pool: BlockPool::new(setup.blocks, setup.block_size),
            pending: HashMap::new(),
            held: HashMap::new(),
            wake,
            replies: Vec::new(),
            events: Vec::new(),
            edges: Edges::default(),
            later: Vec::new(),
            streams: Streams::default(),
            unpaced: Vec::new(),
            registered: false,
            drives: None,
            drive_events: Vec::new(),
            computed: Vec::new(),
            fetched: Vec::new(),
        })
    }

    /// Returns true if io_uring carries all calls that take time.
    pub fn has_ring(&self) -> bool {
        self.ring.is_some() && !self.ring_for_few
    }

    /// Returns the ring, if it carries everything that it can.
    fn full_ring(&mut self) -> Option<&mut Uring> {
        self.ring.as_mut().filter(|_| !self.ring_for_few)
    }

    /// Returns a handle that wakes the controller.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.wake))
    }

    /// Starts a device operation; returns `None` if its outcome comes later as an [`Event`]. Operations of NDP units fail: they are not for
    /// this controller.
    pub fn start(&mut self, operation: &Operation, route: &mut Route) -> Option<Outcome> {
        if self.read_to_gpu(operation, route) { None } else { self.start_by_host(operation, route) }
    }

    fn start_by_host(&mut self, operation: &Operation, route: &mut Route) -> Option<Outcome> {
        let brought = match operation.kind {
            OperationKind::Read { block, start, .. } => self.bring_back(block, start == 0),
            OperationKind::Write { block, .. } => self.bring_back(block, false),
            _ => Ok(()),
        };
        if let Err(failure) = brought {
            return Some(Outcome::Failed(failure));
        }
        let attempt = self.attempt(operation, route);
        self.settle(operation, route, attempt)
    }

    /// Acts on an attempt's result.
    fn settle(&mut self, operation: &Operation, route: &mut Route, attempt: Attempt) -> Option<Outcome> {
        if !matches!(attempt, Attempt::NotReady(..)) {
            self.edges.forget(operation.id);
        }
        match attempt {
            Attempt::Done(outcome) => Some(outcome),
            Attempt::BlockIsLent(block) => {
                self.pending.insert(operation.id, Pending::Block { operation: *operation, block });
                None
            }
            Attempt::NotReady(fd, interest) => {
                if !self.edges.has(operation.id)
                    && let Some(ring) = self.full_ring()
                {
                    ring.poll(operation.id, fd, interest);
                }
                let pending = Pending::Ready { operation: *operation, fd, interest, aborted: false };
                self.pending.insert(operation.id, pending);
                None
            }
            Attempt::Drive(driven, work) => self.drive(operation, &driven, work),
            Attempt::Disk(request) => self.disk(operation, request, route),
            Attempt::Call(request) => self.call(operation, request, route),
            Attempt::Copy => self.call_copy(operation, route),
            Attempt::Later(pause) => self.retry_after(operation, pause),
            Attempt::Paced => {
                self.pending.insert(operation.id, Pending::Paced { operation: *operation });
                None
            }
        }
    }

    /// Resumes an operation that was returned as [`Event::Retry`], as [`Controller::start`] does; `route` is `None` if its command is no
    /// longer bound.
    pub fn resume(&mut self, operation: &Operation, route: Option<&mut Route>) -> Option<Outcome> {
        let (aborted, by_host, copied) = match self.pending.remove(&operation.id) {
            Some(Pending::Retry { aborted, by_host, copied }) => (aborted, by_host, copied),
            _ => (false, false, None),
        };
        if let Some(copied) = copied {
            return self.copied(operation, route, *copied, aborted);
        }
        match route {
            Some(route) if by_host && !aborted => self.start_by_host(operation, route),
            Some(route) if !aborted => self.start(operation, route),
            _ => {
                self.edges.forget(operation.id);
                Some(Outcome::Failed(Failure::new(Status::Cancelled)))
            }
        }
    }

    fn attempt(&mut self, operation: &Operation, route: &mut Route) -> Attempt {
        match operation.kind {
            OperationKind::Read { role, offset, block, start, length } => {
                self.read(route, role, offset, (block, start, length))
            }
            OperationKind::Write { offset, block, start, length, origin, more } => {
                if let Some(attempt) =
                    origin.and_then(|origin| copy::resend_from_cache(route, origin, length))
                {
                    return attempt;
                }
                if matches!(route.side(EndpointRole::Destination).endpoint.object, Object::Paced(_)) {
                    return self.write_paced(operation.id, route, block, start..start + length);
                }
                self.write(route, offset, (block, start, length), more)
            }
            OperationKind::Direct { source, length, .. } if route.copy_may_wait(source, length) => {
                copy::source_waits(route).unwrap_or(Attempt::Copy)
            }
            OperationKind::Direct { source, destination, length, more } => {
                copy::copy(route, source, destination, length, more)
            }
            OperationKind::Flush
                if matches!(route.side(EndpointRole::Destination).endpoint.object, Object::Paced(_)) =>
            {
                self.flush_paced(operation.id, route)
            }
            OperationKind::Flush => flush(route),
            OperationKind::Process { .. } | OperationKind::Resize { .. } | OperationKind::Snapshot { .. } => {
                Attempt::failed(Failure::new(Status::InternalError))
            }
        }
    }

    /// Reads `length` bytes of a side at `offset` into the block at `start`.
    fn read(
        &mut self,
        route: &mut Route,
        role: EndpointRole,
        offset: u64,
        (block, start, length): (BlockId, u32, u32),
    ) -> Attempt {
        if role == EndpointRole::Source
            && let Some(errno) = route.source_error.take()
        {
            return Attempt::failed(failure::reading(errno));
        }
        self.read_from(route.side(role), &route.pace, offset, (block, start, length))
    }

    /// Reads from this end into the block.
    #[inline]
    fn read_from(
        &mut self,
        side: &Side,
        pace: &Pace,
        offset: u64,
        (block, start, length): (BlockId, u32, u32),
    ) -> Attempt {
        let Some(buffer) = self.pool.get_mut(block) else { return self.without(block) };
        let bytes = buffer.bytes_mut();
        let range = start as usize..(start + length) as usize;
        match &side.endpoint.object {
            Object::File(file) => file::read(file, side.direct_io, offset, bytes, start, length),
            Object::Flow(flow) => flow::receive(flow, &mut bytes[range]),
            Object::Stream(stream) => flow::read(stream, &mut bytes[range]),
            Object::Memory(memory) => Attempt::moved(memory.read(offset, &mut bytes[range]), 0),
            Object::Paced(stream) => with_paced::read(stream, &mut bytes[range], pace),
            Object::Namespace(_) | Object::Device(_) | Object::Part(_) => {
                side.driven(DriveWork::Read { position: offset, block, start, length })
            }
        }
    }

    /// Writes `length` bytes of the block from `start` on to the destination at `offset`.
    fn write(
        &mut self,
        route: &mut Route,
        offset: u64,
        (block, start, length): (BlockId, u32, u32),
        more: bool,
    ) -> Attempt {
        let copy_error = route.copy_error;
        let side = route.side(EndpointRole::Destination);
        let attempt = self.write_to(side, offset, (block, start, length), more);
        match &side.endpoint.object {
            Object::Flow(_) => copy::restore_error(copy_error, attempt),
            _ => attempt,
        }
    }

    /// Writes to this end from the block.
    #[inline]
    fn write_to(
        &mut self,
        side: &Side,
        offset: u64,
        (block, start, length): (BlockId, u32, u32),
        more: bool,
    ) -> Attempt {
        let ring = self.ring.as_ref().is_some_and(|ring| ring.zero_copy);
        let Some(buffer) = self.pool.get_mut(block) else { return self.without(block) };
        let bytes = &buffer.bytes()[start as usize..(start + length) as usize];
        match &side.endpoint.object {
            Object::File(file) => file::write(file, side.direct_io, offset, bytes, start),
            Object::Flow(flow) => flow::send(flow, bytes, start, more, side.zero_copy, ring),
            Object::Stream(stream) => flow::write(stream, bytes),
            Object::Memory(memory) => match memory.write(offset, bytes) {
                0 => Attempt::failed(Failure::new(Status::CapacityExceeded)),
                written => Attempt::moved(written, 0),
            },
            // `write_paced` does it.
            Object::Paced(_) => Attempt::failed(Failure::new(Status::InternalError)),
            Object::Namespace(_) | Object::Device(_) | Object::Part(_) => {
                side.driven(DriveWork::Write { position: offset, block, start, length, more })
            }
        }
    }

    /// Returns the result for a block that is not in the pool: it will be, or never.
    fn without(&self, block: BlockId) -> Attempt {
        match self.pool.is_lost(block) {
            true => Attempt::failed(Failure::new(Status::DeviceReset)),
            false => Attempt::BlockIsLent(block),
        }
    }

    /// Hands a request to the ring, or to a thread if there is no ring.
    fn disk(&mut self, operation: &Operation, request: DiskRequest, route: &Route) -> Option<Outcome> {
        if !matches!(request, DiskRequest::SendZeroCopy { .. }) && self.full_ring().is_none() {
            return self.call(operation, request, route);
        }
        self.register_once();
        let buffer = self.take_block(operation);
        let endpoint = with_calls::endpoint_of(operation, route);
        let pending = Pending::Disk { operation: *operation, request, endpoint, aborted: false };
        self.pending.insert(operation.id, pending);
        if let Some(ring) = &mut self.ring {
            ring.start(operation.id, request, buffer);
        }
        None
    }

    /// Registers the blocks, when the first request needs one: an engine that only moves cached files and sockets pins no memory. Pinning
    /// 64 MiB takes some 18 ms, during which nothing else is done. If that is too long, call this before the first operation.
    pub fn register_once(&mut self) {
        if !std::mem::replace(&mut self.registered, true)
            && let Some(ring) = &mut self.ring
        {
            ring.register(&self.pool);
        }
    }

    /// Aborts an operation soon. Its outcome still comes, once.
    pub fn abort(&mut self, id: OperationId) {
        match self.pending.get_mut(&id) {
            Some(Pending::Ready { aborted, .. }) => {
                *aborted = true;
                match (self.edges.forget(id), self.full_ring()) {
                    (false, Some(ring)) => ring.cancel(id),
                    _ => self.finish_aborted(id),
                }
            }
            Some(Pending::Disk { aborted, .. }) => {
                *aborted = true;
                if let Some(ring) = &mut self.ring {
                    ring.cancel(id);
                }
            }
            Some(Pending::Drive { .. }) => {
                if let Some(drives) = &mut self.drives {
                    drives.abort(id);
                }
            }
            Some(Pending::Block { .. } | Pending::Later { .. }) => self.finish_aborted(id),
            Some(Pending::Paced { .. }) => {
                self.streams.forget(id);
                self.finish_aborted(id);
            }
            Some(Pending::Call { .. }) => self.abort_call(id),
            Some(Pending::Retry { aborted, .. } | Pending::Again { aborted, .. }) => *aborted = true,
            Some(Pending::ToGpu { aborted }) => {
                *aborted = true;
                if let Some(gpu) = &mut self.gpu
                    && gpu.abort_read(id, &mut self.pool)
                {
                    self.finish_aborted(id);
                }
            }
            // Work that a GPU has begun is soon done.
            None => {
                if let Some(gpu) = &mut self.gpu
                    && gpu.abort(id, &mut self.pool)
                {
                    self.events.push(Event::Computed(id, Err(Failure::new(Status::Cancelled))));
                }
            }
        }
    }

    fn retry(&mut self, operation: Operation) {
        let pending = Pending::Retry { aborted: false, by_host: false, copied: None };
        self.pending.insert(operation.id, pending);
        self.events.push(Event::Retry(operation));
    }

    fn done(&mut self, id: OperationId, outcome: Outcome) {
        self.events.push(Event::Device(DeviceEvent::Done(id, outcome)));
    }

    fn finish_aborted(&mut self, id: OperationId) {
        self.pending.remove(&id);
        self.done(id, Outcome::Failed(Failure::new(Status::Cancelled)));
    }

    /// Hands started operations to the kernel, and reports those that are done.
    pub fn poll(&mut self, events: &mut Vec<Event>) {
        if self.is_quiet() {
            return;
        }
        self.reap();
        if !self.has_ring() && !self.pending.is_empty() {
            self.poll_plain(Some(Duration::ZERO));
        }
        self.retry_due();
        self.send_due();
        self.reap_calls();
        self.reap_drives();
        self.reap_gpu();
        let ring = self.ring.as_mut();
        self.edges.close_if_spare(|| ring.is_none_or(Uring::stop_edges));
        events.append(&mut self.events);
    }

    /// Returns true if nothing is in progress that could report anything.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        let nothing = self.pending.is_empty() && self.held.is_empty() && self.events.is_empty();
        let nobody = self.drives.is_none() && self.gpu.is_none() && self.streams.is_empty();
        let quiet_ring = self.ring.as_ref().is_none_or(Uring::is_quiet);
        nothing && nobody && quiet_ring && self.calls.is_quiet() && self.edges.is_closed()
    }

    /// Sleeps until something is done, the waker is used, or the timeout expires.
    pub fn wait(&mut self, timeout: Option<Duration>) {
        if !self.events.is_empty() {
            return;
        }
        // A device's interrupt wakes too.
        if self.drives.as_mut().is_some_and(DirectDevices::arm) {
            return;
        }
        let drives = self.drives.as_ref().and_then(DirectDevices::timeout);
        let gpu = self.gpu.as_mut().and_then(Gpu::before_sleep);
        let later = self.until_due();
        let paced = self.streams.until_due();
        let timeout = [timeout, drives, gpu, later, paced, self.calls.timeout()].into_iter().flatten().min();
        let wake = self.wake.as_raw_fd();
        if self.calls.before_sleep() {
            match self.full_ring() {
                Some(ring) => ring.wait(wake, timeout),
                None => self.poll_plain(timeout),
            }
        }
        self.calls.after_sleep();
        self.drives.iter_mut().for_each(DirectDevices::disarm);
    }

    /// Returns true if operations are in progress whose end the kernel will report.
    #[inline]
    pub fn is_busy(&self) -> bool {
        let gpu = self.gpu.as_ref().is_some_and(Gpu::is_busy);
        !self.pending.is_empty() || gpu || self.ring.as_ref().is_some_and(Uring::is_busy)
    }

    fn clear_wake(&self) {
        let mut count = [0; 8];
        // EAGAIN: no wake-up came.
        let _ = rustix::io::read(&*self.wake, &mut count);
    }

    fn reap(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        ring.submit();
        let mut replies = std::mem::take(&mut self.replies);
        let woken = ring.reap(&mut replies);
        if woken {
            self.clear_wake();
        }
        for reply in replies.drain(..) {
            self.on_reply(reply);
        }
        self.replies = replies;
    }

    fn on_reply(&mut self, reply: Reply) {
        match reply {
            Reply::Ready { operation, only_error } => self.is_ready(operation, only_error),
            Reply::Edges => {
                for id in self.edges.take() {
                    self.is_ready(id, false);
                }
                self.arm_edges();
            }
            Reply::Done { operation, result, buffer, held } => {
                if let Some((block, buffer)) = buffer {
                    self.pool.put(block, buffer);
                }
                self.disk_done(operation, result, held);
            }
            Reply::Released { operation, block, buffer, copied } => {
                self.pool.put(block, buffer);
                let held = self.held.remove(&operation);
                if let Some(ZeroCopySend { flow, .. }) = &held
                    && let Object::Flow(flow) = &flow.object
                {
                    flow.note_zero_copy(copied);
                }
                match held.map(|held| held.then) {
                    Some(Then::Failed(failure)) => {
                        self.done(operation, Outcome::Failed(failure));
                    }
                    Some(Then::Again) => self.send_again(operation),
                    Some(Then::Released) | None => {
                        self.events.push(Event::Device(DeviceEvent::Released(block)))
                    }
                }
                self.retry_block(block);
            }
        }
    }

    fn disk_done(&mut self, id: OperationId, result: i32, held: bool) {
        let Some(Pending::Disk { operation, request, endpoint, aborted }) = self.pending.remove(&id) else {
            return;
        };
        let result = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
        let again = match (result, request) {
            _ if aborted => false,
            // Requests of a thread that ends are cancelled, and a calling thread that drove may end any time.
            (Err(Errno::CANCELED | Errno::INTR), _) => true,
            (Err(Errno::AGAIN), DiskRequest::SendZeroCopy { .. }) => true,
            // A socket that cannot (MPTCP), or no memory that may be locked: zero copy was not demanded.
            (
                Err(Errno::OPNOTSUPP | Errno::NOMEM | Errno::NOBUFS),
                DiskRequest::SendZeroCopy { demanded: false, .. },
            ) => {
                if let Object::Flow(flow) = &endpoint.object {
                    flow.note_zero_copy(true);
                }
                true
            }
            _ => false,
        };
        match (request, result) {
            // It cannot be done without waiting (a file system without support for it, O_NONBLOCK); or it is not done that way: FUSE files
            // that report no size return nothing to a read that does not wait.
            (_, Err(Errno::AGAIN)) | (DiskRequest::Read { .. }, Ok(0)) if !again && !aborted => {
                self.call_at(&operation, request, endpoint);
            }
            _ if !again => {
                let outcome = calls::outcome(request, result, path(request, &endpoint));
                self.complete_disk(id, outcome, held.then_some(endpoint));
            }
            (DiskRequest::SendZeroCopy { fd, .. }, _) if held => {
                self.pending.insert(id, Pending::Again { operation, fd, aborted });
                self.held.insert(id, ZeroCopySend { flow: endpoint, then: Then::Again });
            }
            (DiskRequest::SendZeroCopy { fd, .. }, _) => self.await_room(operation, fd),
            _ => self.retry(operation),
        }
    }

    /// Processes the end of a request. `held`: the socket that still has the buffer.
    fn complete_disk(&mut self, id: OperationId, mut outcome: Outcome, held: Option<Arc<Endpoint>>) {
        if let Some(flow) = held {
            match &mut outcome {
                Outcome::Failed(failure) => {
                    self.held.insert(id, ZeroCopySend { flow, then: Then::Failed(*failure) });
                    return;
                }
                Outcome::Moved { held, .. } => *held = true,
                _ => {}
            }
            self.held.insert(id, ZeroCopySend { flow, then: Then::Released });
        }
        self.done(id, outcome);
    }

    /// Repeats a zero-copy send that sent nothing, now that its buffer is returned.
    fn send_again(&mut self, id: OperationId) {
        match self.pending.remove(&id) {
            Some(Pending::Again { aborted: true, .. }) => self.finish_aborted(id),
            Some(Pending::Again { operation, fd, .. }) => self.await_room(operation, fd),
            Some(other) => drop(self.pending.insert(id, other)),
            None => {}
        }
    }

    fn await_room(&mut self, operation: Operation, fd: RawFd) {
        if let Some(ring) = self.full_ring() {
            ring.poll(operation.id, fd, Interest::Writable);
        }
        let pending = Pending::Ready { operation, fd, interest: Interest::Writable, aborted: false };
        self.pending.insert(operation.id, pending);
    }

    /// Resumes operations that waited for this block.
    fn retry_block(&mut self, released: BlockId) {
        let waiting: Vec<OperationId> = self
            .pending
            .iter()
            .filter(|(_, pending)| matches!(pending, Pending::Block { block, .. } if *block == released))
            .map(|(id, _)| *id)
            .collect();
        for id in waiting {
            if let Some(Pending::Block { operation, .. }) = self.pending.remove(&id) {
                self.retry(operation);
            }
        }
    }
}

/// Returns the path that a request of the ring takes.
fn path(request: DiskRequest, endpoint: &Endpoint) -> u32 {
    let without_copy = || match &endpoint.object {
        Object::Flow(flow) => flow.zero_copy_works.load(Ordering::Relaxed),
        _ => false,
    };
    match request {
        DiskRequest::Read { path, .. } | DiskRequest::Write { path, .. } => PATH_IO_URING | path,
        DiskRequest::SendZeroCopy { .. } if without_copy() => PATH_IO_URING | PATH_ZERO_COPY,
        DiskRequest::SendZeroCopy { .. } | DiskRequest::Sync { .. } => PATH_IO_URING,
    }
}

/// Borrows a descriptor of a pending operation.
fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the descriptor belongs to an endpoint of the operation's route, which its owner keeps until the
    // operation is answered (the engine unbinds a command after its operations).
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Flushes a destination that is not paced.
fn flush(route: &mut Route) -> Attempt {
    match &route.side(EndpointRole::Destination).endpoint.object {
        // Memory has nothing to flush to.
        Object::File(file) if file.in_memory => Attempt::Done(Outcome::Flushed),
        Object::File(file) => Attempt::Call(DiskRequest::Sync {
            fd: file.fd.as_raw_fd(),
            data: route.durable,
            close: file.reports_at_close,
        }),
        Object::Namespace(_) => route.side(EndpointRole::Destination).driven(DriveWork::Flush),
        Object::Device(_) | Object::Flow(_) if route.acknowledged => route.poll_acknowledged(),
        _ => Attempt::Done(Outcome::Flushed),
    }
}
