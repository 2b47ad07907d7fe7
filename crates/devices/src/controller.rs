//! The controller: starts operations, remembers those that wait, reaps what is done, sleeps.

mod with_gpu;

use crate::attempt::{Attempt, DiskRequest, Interest};
use crate::buffer::BlockPool;
use crate::drives::{
    Answer, Ask, DriveError, DriveWork, Driven, Drives, Heard, Interface, Moved, Namespace, Wanted, WantedNic,
};
use crate::endpoint::{Endpoint, Object};
use crate::fault;
use crate::gpu::{self, Gpu};
use crate::ring::{Reply, Ring};
use crate::route::Route;
use crate::{copy, file, flow};
use dcs_abi::result::{PATH_IO_URING, PATH_SYSCALL, PATH_ZERO_COPY};
use dcs_abi::status::Status;
use dcs_engine::{BlockId, Fault, Operation, OperationId, OperationKind, Outcome, Place};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How the kernel is asked to do what takes time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// io_uring where it is to be had, plain system calls otherwise.
    #[default]
    Auto,
    /// io_uring; an error where it is not to be had.
    Uring,
    /// Plain system calls: disk reads and writes make the engine wait.
    Plain,
}

/// How a controller is made.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Blocks, as the engine counts them.
    pub blocks: u32,
    /// Bytes of a block.
    pub block_size: u32,
    /// io_uring or not.
    pub io: Io,
}

/// What a controller has to tell.
#[derive(Debug)]
pub enum Event {
    /// An operation is done.
    Done(OperationId, Outcome),
    /// An operation can go on: give it to [`Controller::resume`], with its route.
    Retry(Operation),
    /// The kernel, or a device, has let go of a block that an operation left with it.
    Released(BlockId),
    /// What comes of [`Controller::ask`], under this ticket.
    Answer(u16, Answer),
    /// The GPU is done with what [`Controller::compute`] gave it; the block is back in the pool.
    Computed(OperationId, Result<gpu::Answer, Fault>),
}

/// An operation that was started and is not done.
#[derive(Debug)]
enum Pending {
    /// Waits for a descriptor to be ready.
    Ready { operation: Operation, fd: RawFd, interest: Interest, aborted: bool },
    /// With the ring.
    Disk { operation: Operation, request: DiskRequest, flow: Option<Arc<Endpoint>>, aborted: bool },
    /// With a device that we drive ourselves.
    Drive { block: Option<BlockId> },
    /// A file is being read to the GPU.
    ToGpu { aborted: bool },
    /// Waits until the kernel has let go of its block.
    Block { operation: Operation, block: BlockId },
    /// Was given back as [`Event::Retry`] and is awaited. `by_host`: not to be read to the GPU again.
    Retry { aborted: bool, by_host: bool },
}

/// A zero-copy send that is done but for its buffer.
#[derive(Debug)]
struct Held {
    flow: Arc<Endpoint>,
    /// It failed: that is told when the buffer is back, so that the block is free when its command has ended.
    failure: Option<Fault>,
}

/// The controller of all devices of one engine. It lives on one thread at a time.
#[derive(Debug)]
pub struct Controller {
    // Dropped before the pool: the kernel lets go of registered blocks first.
    ring: Option<Ring>,
    // As above, since their pages are locked for it.
    gpu: Option<Gpu>,
    /// The blocks.
    pub pool: BlockPool,
    pending: HashMap<OperationId, Pending>,
    /// Zero-copy sends whose buffers the kernel still has.
    held: HashMap<OperationId, Held>,
    wake: Arc<OwnedFd>,
    replies: Vec<Reply>,
    events: Vec<Event>,
    registered: bool,
    drives: Option<Drives>,
    heard: Vec<Heard>,
    computed: Vec<gpu::Done>,
    fetched: Vec<gpu::Fetched>,
}

/// Wakes a controller that sleeps in [`Controller::wait`], from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// One that wakes nobody yet: whoever sleeps on it polls [`Waker::event`].
    ///
    /// # Errors
    ///
    /// Where the process has no descriptor left.
    pub fn new() -> std::io::Result<Waker> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker(Arc::new(event)))
    }

    /// The eventfd that becomes readable.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Takes note that it has woken.
    pub fn drain(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }

    /// Wakes it, or makes its next sleep end at once.
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
    /// Where [`Io::Uring`] is demanded and not to be had, or an eventfd cannot be made.
    pub fn new(setup: Setup) -> std::io::Result<Controller> {
        let ring = match setup.io {
            Io::Plain => None,
            Io::Auto => Ring::new().ok(),
            Io::Uring => Some(Ring::new()?),
        };
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Controller {
            ring,
            gpu: None,
            pool: BlockPool::new(setup.blocks, setup.block_size),
            pending: HashMap::new(),
            held: HashMap::new(),
            wake: Arc::new(wake),
            replies: Vec::new(),
            events: Vec::new(),
            registered: false,
            drives: None,
            heard: Vec::new(),
            computed: Vec::new(),
            fetched: Vec::new(),
        })
    }

    /// Drives these SSDs and this NIC from now on, and has its blocks in memory that they reach. To be called before anything was started.
    ///
    /// # Errors
    ///
    /// [`DriveError`]; the controller has no device then.
    pub fn attach(
        &mut self,
        setup: Setup,
        wanted: &[Wanted],
        nic: Option<&WantedNic>,
    ) -> Result<Vec<Arc<Namespace>>, DriveError> {
        let (drives, pool) = Drives::open((wanted, nic), setup.blocks, setup.block_size, self.wake.as_fd())?;
        let namespaces = drives.namespaces().cloned().collect();
        self.pool = pool;
        self.drives = Some(drives);
        Ok(namespaces)
    }

    /// What went between its blocks and the devices that it drives itself.
    pub fn moved(&self) -> Moved {
        self.drives.as_ref().map_or_else(Moved::default, Drives::moved)
    }

    /// Its blocks lie in an SSD's memory: what moves is to come from an SSD and to go to the NIC.
    pub fn is_peer_to_peer(&self) -> bool {
        self.drives.as_ref().is_some_and(Drives::is_peer_to_peer)
    }

    /// What its NIC is, where it drives one.
    pub fn interface(&self) -> Option<&Arc<Interface>> {
        self.drives.as_ref().and_then(Drives::interface)
    }

    /// Asks something of its NIC. No answer: it comes later as an [`Event::Answer`], under this ticket.
    pub fn ask(&mut self, ticket: u16, ask: Ask) -> Option<Answer> {
        match &mut self.drives {
            Some(drives) => drives.ask(ticket, ask),
            None => Some(Err(Status::UnsupportedEndpoint)),
        }
    }

    /// Lets go of its devices, where none has anything to do: they are stopped, and reset. What connections of the NIC have sent and
    /// was not acknowledged is waited for, a while.
    pub fn detach(&mut self) {
        if self.pending.is_empty() {
            self.drives = None;
        }
    }

    /// Whether io_uring carries what takes time.
    pub fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// What wakes it.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.wake))
    }

    /// Starts a device operation; `None` where its outcome comes later as an [`Event`]. Operations of NDP units are
    /// not for this controller: they fail.
    pub fn start(&mut self, operation: &Operation, route: &mut Route) -> Option<Outcome> {
        if self.read_to_gpu(operation, route) { None } else { self.start_by_host(operation, route) }
    }

    fn start_by_host(&mut self, operation: &Operation, route: &mut Route) -> Option<Outcome> {
        let brought = match operation.kind {
            OperationKind::Read { block, start, .. } => self.bring_back(block, start == 0),
            OperationKind::Write { block, .. } => self.bring_back(block, false),
            _ => Ok(()),
        };
        if let Err(fault) = brought {
            return Some(Outcome::Failed(fault));
        }
        match self.attempt(operation, route) {
            Attempt::Done(outcome) => Some(outcome),
            Attempt::BlockIsLent(block) => {
                self.pending.insert(operation.id, Pending::Block { operation: *operation, block });
                None
            }
            Attempt::NotReady(fd, interest) => {
                if let Some(ring) = &mut self.ring {
                    ring.poll(operation.id, fd, interest);
                }
                let pending = Pending::Ready { operation: *operation, fd, interest, aborted: false };
                self.pending.insert(operation.id, pending);
                None
            }
            Attempt::Drive(driven, work) => self.drive(operation, &driven, work),
            Attempt::Disk(request) => self.disk(operation, request, route),
        }
    }

    /// Hands an operation, and its block, to a device.
    fn drive(&mut self, operation: &Operation, driven: &Driven, work: DriveWork) -> Option<Outcome> {
        let block = match work {
            DriveWork::Read { block, .. } | DriveWork::Write { block, .. } => Some(block),
            DriveWork::Flush => None,
        };
        let Some(drives) = &mut self.drives else {
            return Some(Outcome::Failed(Fault::new(Status::BadHandle)));
        };
        let buffer = block.and_then(|block| self.pool.take(block));
        self.pending.insert(operation.id, Pending::Drive { block });
        match drives.submit(driven, operation.id, work, buffer) {
            Ok(()) => None,
            Err((fault, buffer)) => {
                self.pending.remove(&operation.id);
                if let (Some(block), Some(buffer)) = (block, buffer) {
                    self.pool.put(block, buffer);
                }
                Some(Outcome::Failed(fault))
            }
        }
    }

    /// Takes in what the devices have done.
    fn hear_drives(&mut self) {
        let Some(drives) = &mut self.drives else { return };
        let block = |operation| match self.pending.get(&operation) {
            Some(Pending::Drive { block }) => *block,
            _ => None,
        };
        drives.poll(&mut self.pool, block, &mut self.heard);
        for heard in std::mem::take(&mut self.heard) {
            match heard {
                Heard::Done(operation, outcome) => {
                    self.pending.remove(&operation);
                    self.events.push(Event::Done(operation, outcome));
                }
                Heard::Released(block) => {
                    self.events.push(Event::Released(block));
                    self.retry_block(block);
                }
                Heard::Answer(ticket, answer) => self.events.push(Event::Answer(ticket, answer)),
            }
        }
    }

    /// Goes on with an operation that came back as [`Event::Retry`], as [`Controller::start`] does; `route` is `None`
    /// where its command is bound no more.
    pub fn resume(&mut self, operation: &Operation, route: Option<&mut Route>) -> Option<Outcome> {
        let (aborted, by_host) = match self.pending.remove(&operation.id) {
            Some(Pending::Retry { aborted, by_host }) => (aborted, by_host),
            _ => (false, false),
        };
        match route {
            Some(route) if by_host && !aborted => self.start_by_host(operation, route),
            Some(route) if !aborted => self.start(operation, route),
            _ => Some(Outcome::Failed(Fault::new(Status::Cancelled))),
        }
    }

    fn attempt(&mut self, operation: &Operation, route: &mut Route) -> Attempt {
        let ring = self.ring.as_ref().is_some_and(|ring| ring.zero_copy);
        match operation.kind {
            OperationKind::Read { place, offset, block, start, length } => {
                if place == Place::Source
                    && let Some(errno) = route.source_error.take()
                {
                    return Attempt::failed(fault::reading(errno));
                }
                let Some(buffer) = self.pool.get_mut(block) else { return self.without(block) };
                let side = route.side(place);
                let bytes = buffer.bytes_mut();
                let range = start as usize..(start + length) as usize;
                match &side.endpoint.object {
                    Object::File(file) => file::read(file, side.direct_io, offset, bytes, start, length),
                    Object::Flow(flow) => flow::receive(flow, &mut bytes[range]),
                    Object::Stream(stream) => flow::read(stream, &mut bytes[range]),
                    Object::Memory(memory) => Attempt::moved(memory.read(offset, &mut bytes[range]), 0),
                    Object::Namespace(_) | Object::Device(_) => {
                        side.driven(DriveWork::Read { position: offset, block, start, length })
                    }
                }
            }
            OperationKind::Write { offset, block, start, length, origin, more } => {
                if let Some(attempt) = origin.and_then(|origin| copy::again(route, origin, length)) {
                    return attempt;
                }
                let Some(buffer) = self.pool.get_mut(block) else { return self.without(block) };
                let side = route.side(Place::Destination);
                let bytes = &buffer.bytes()[start as usize..(start + length) as usize];
                match &side.endpoint.object {
                    Object::File(file) => file::write(file, side.direct_io, offset, bytes, start),
                    Object::Flow(flow) => flow::send(flow, bytes, start, more, side.zero_copy, ring),
                    Object::Stream(stream) => flow::write(stream, bytes),
                    Object::Memory(memory) => match memory.write(offset, bytes) {
                        0 => Attempt::failed(Fault::new(Status::CapacityExceeded)),
                        written => Attempt::moved(written, 0),
                    },
                    Object::Namespace(_) | Object::Device(_) => {
                        side.driven(DriveWork::Write { position: offset, block, start, length, more })
                    }
                }
            }
            OperationKind::Direct { source, destination, length, more } => {
                copy::copy(route, source, destination, length, more)
            }
            OperationKind::Flush => match &route.side(Place::Destination).endpoint.object {
                Object::File(file) => Attempt::Disk(DiskRequest::Sync { fd: file.fd.as_raw_fd() }),
                Object::Namespace(_) => route.side(Place::Destination).driven(DriveWork::Flush),
                _ => Attempt::Done(Outcome::Flushed),
            },
            OperationKind::Process { .. } | OperationKind::Resize { .. } | OperationKind::Snapshot { .. } => {
                Attempt::failed(Fault::new(Status::InternalError))
            }
        }
    }

    /// A block is not here: it will be, or never.
    fn without(&self, block: BlockId) -> Attempt {
        match self.pool.is_lost(block) {
            true => Attempt::failed(Fault::new(Status::DeviceReset)),
            false => Attempt::BlockIsLent(block),
        }
    }

    /// Hands a request to the ring; without one, does it now and waits.
    fn disk(&mut self, operation: &Operation, request: DiskRequest, route: &Route) -> Option<Outcome> {
        let block = match operation.kind {
            OperationKind::Read { block, .. } | OperationKind::Write { block, .. } => Some(block),
            _ => None,
        };
        if self.ring.is_none() {
            return Some(self.disk_now(request, block));
        }
        self.register_once();
        let buffer = block.and_then(|block| self.pool.take(block).map(|buffer| (block, buffer)));
        let zero_copy = matches!(request, DiskRequest::SendZeroCopy { .. });
        let flow = zero_copy.then(|| Arc::clone(&route.side(Place::Destination).endpoint));
        let pending = Pending::Disk { operation: *operation, request, flow, aborted: false };
        self.pending.insert(operation.id, pending);
        if let Some(ring) = &mut self.ring {
            ring.start(operation.id, request, buffer);
        }
        None
    }

    /// Blocks are registered when the first request needs one: an engine that only moves cached files and sockets
    /// pins no memory.
    fn register_once(&mut self) {
        if !std::mem::replace(&mut self.registered, true)
            && let Some(ring) = &mut self.ring
        {
            ring.register(&self.pool);
        }
    }

    fn disk_now(&mut self, request: DiskRequest, block: Option<BlockId>) -> Outcome {
        let buffer = block.and_then(|block| self.pool.get_mut(block));
        let (result, path) = match (request, buffer) {
            (DiskRequest::Read { fd, offset, start, length, path, .. }, Some(buffer)) => {
                let into = &mut buffer.bytes_mut()[start as usize..(start + length) as usize];
                (rustix::io::retry_on_intr(|| rustix::io::pread(borrow(fd), &mut *into, offset)), path)
            }
            (DiskRequest::Write { fd, offset, start, length, path }, Some(buffer)) => {
                let from = &buffer.bytes()[start as usize..(start + length) as usize];
                (rustix::io::retry_on_intr(|| rustix::io::pwrite(borrow(fd), from, offset)), path)
            }
            (DiskRequest::Sync { fd }, _) => (rustix::fs::fdatasync(borrow(fd)).map(|()| 0), 0),
            _ => (Err(Errno::INVAL), 0),
        };
        outcome(request, result, path | PATH_SYSCALL)
    }

    /// Stops an operation soon. Its outcome still comes, once.
    pub fn abort(&mut self, id: OperationId) {
        match self.pending.get_mut(&id) {
            Some(Pending::Ready { aborted, .. }) => {
                *aborted = true;
                match &mut self.ring {
                    Some(ring) => ring.cancel(id),
                    None => self.finish_aborted(id),
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
            Some(Pending::Block { .. }) => self.finish_aborted(id),
            Some(Pending::Retry { aborted, .. }) => *aborted = true,
            Some(Pending::ToGpu { aborted }) => {
                *aborted = true;
                if let Some(gpu) = &mut self.gpu
                    && gpu.abort_read(id, &mut self.pool)
                {
                    self.finish_aborted(id);
                }
            }
            // What a GPU has begun is soon done.
            None => {
                if let Some(gpu) = &mut self.gpu
                    && gpu.abort(id, &mut self.pool)
                {
                    self.events.push(Event::Computed(id, Err(Fault::new(Status::Cancelled))));
                }
            }
        }
    }

    fn retry(&mut self, operation: Operation) {
        self.pending.insert(operation.id, Pending::Retry { aborted: false, by_host: false });
        self.events.push(Event::Retry(operation));
    }

    fn finish_aborted(&mut self, id: OperationId) {
        self.pending.remove(&id);
        self.events.push(Event::Done(id, Outcome::Failed(Fault::new(Status::Cancelled))));
    }

    /// Hands what was started to the kernel, and tells what is done by now.
    pub fn poll(&mut self, events: &mut Vec<Event>) {
        if self.ring.is_some() {
            self.reap();
        } else if !self.pending.is_empty() {
            self.poll_plain(Some(Duration::ZERO));
        }
        self.hear_drives();
        self.hear_gpu();
        events.append(&mut self.events);
    }

    /// Sleeps until something is done, the waker is used, or the time is up.
    pub fn wait(&mut self, timeout: Option<Duration>) {
        if !self.events.is_empty() {
            return;
        }
        // An interrupt of a device wakes too.
        if self.drives.as_mut().is_some_and(Drives::arm) {
            return;
        }
        let drives = self.drives.as_ref().and_then(Drives::timeout);
        let gpu = self.gpu.as_mut().and_then(Gpu::before_sleep);
        let timeout = [timeout, drives, gpu].into_iter().flatten().min();
        match &mut self.ring {
            Some(ring) => ring.wait(self.wake.as_raw_fd(), timeout),
            None => self.poll_plain(timeout),
        }
        self.drives.iter_mut().for_each(Drives::disarm);
    }

    /// True where operations are under way whose end the kernel will tell.
    pub fn is_busy(&self) -> bool {
        let gpu = self.gpu.as_ref().is_some_and(Gpu::is_busy);
        !self.pending.is_empty() || gpu || self.ring.as_ref().is_some_and(Ring::is_busy)
    }

    fn clear_wake(&self) {
        let mut count = [0; 8];
        // EAGAIN: nobody woke us.
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
            Reply::Ready(id) => match self.pending.remove(&id) {
                Some(Pending::Ready { aborted: true, .. }) => self.finish_aborted(id),
                Some(Pending::Ready { operation, .. }) => self.retry(operation),
                Some(other) => drop(self.pending.insert(id, other)),
                None => {}
            },
            Reply::Done { operation, result, buffer, held } => {
                if let Some((block, buffer)) = buffer {
                    self.pool.put(block, buffer);
                }
                self.disk_done(operation, result, held);
            }
            Reply::Released { operation, block, buffer, copied } => {
                self.pool.put(block, buffer);
                let held = self.held.remove(&operation);
                if let Some(Held { flow, .. }) = &held
                    && let Object::Flow(flow) = &flow.object
                {
                    flow.note_zero_copy(copied);
                }
                match held.and_then(|held| held.failure) {
                    Some(fault) => self.events.push(Event::Done(operation, Outcome::Failed(fault))),
                    None => self.events.push(Event::Released(block)),
                }
                self.retry_block(block);
            }
        }
    }

    fn disk_done(&mut self, id: OperationId, result: i32, held: bool) {
        let Some(Pending::Disk { operation, request, flow, aborted }) = self.pending.remove(&id) else {
            return;
        };
        let result = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
        let is_send = matches!(request, DiskRequest::SendZeroCopy { .. });
        match result {
            // Requests of a thread that ends are cancelled, and a caller that drove may end any time.
            Err(Errno::CANCELED | Errno::INTR) if !aborted && !held => return self.retry(operation),
            Err(Errno::AGAIN) if is_send && !aborted && !held => return self.await_room(operation, request),
            _ => {}
        }
        let mut outcome = match result {
            // Without waiting it cannot be done (a file system without support for it, O_NONBLOCK).
            Err(Errno::AGAIN) if !is_send && !aborted => {
                let block = match operation.kind {
                    OperationKind::Read { block, .. } | OperationKind::Write { block, .. } => Some(block),
                    _ => None,
                };
                self.disk_now(request, block)
            }
            result => outcome(request, result, path(request, &flow)),
        };
        if let Some(flow) = flow.filter(|_| held) {
            match &mut outcome {
                Outcome::Failed(fault) => {
                    self.held.insert(id, Held { flow, failure: Some(*fault) });
                    return;
                }
                Outcome::Moved { held, .. } => *held = true,
                _ => {}
            }
            self.held.insert(id, Held { flow, failure: None });
        }
        self.events.push(Event::Done(id, outcome));
    }

    fn await_room(&mut self, operation: Operation, request: DiskRequest) {
        if let (Some(ring), DiskRequest::SendZeroCopy { fd, .. }) = (&mut self.ring, request) {
            ring.poll(operation.id, fd, Interest::Writable);
            let pending = Pending::Ready { operation, fd, interest: Interest::Writable, aborted: false };
            self.pending.insert(operation.id, pending);
        }
    }

    /// Operations that waited for this block can go on.
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

    /// Without a ring: poll(2) on all that waits, and on the waker.
    fn poll_plain(&mut self, timeout: Option<Duration>) {
        let mut ids = Vec::with_capacity(self.pending.len());
        let mut fds = Vec::with_capacity(self.pending.len() + 1);
        let wake = Arc::clone(&self.wake);
        fds.push(PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN));
        for (id, pending) in &self.pending {
            if let Pending::Ready { fd, interest, .. } = pending {
                let flags = if *interest == Interest::Readable { PollFlags::IN } else { PollFlags::OUT };
                fds.push(PollFd::from_borrowed_fd(borrow(*fd), flags));
                ids.push(*id);
            }
        }
        let timespec = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        if !matches!(rustix::event::poll(&mut fds, timespec.as_ref()), Ok(1..)) {
            return;
        }
        if !fds[0].revents().is_empty() {
            self.clear_wake();
        }
        let ready: Vec<OperationId> =
            ids.iter().zip(&fds[1..]).filter(|(_, fd)| !fd.revents().is_empty()).map(|(id, _)| *id).collect();
        for id in ready {
            if let Some(Pending::Ready { operation, .. }) = self.pending.remove(&id) {
                self.retry(operation);
            }
        }
    }
}

/// The path that a request of the ring takes.
fn path(request: DiskRequest, flow: &Option<Arc<Endpoint>>) -> u32 {
    let without_copy = || match flow.as_ref().map(|endpoint| &endpoint.object) {
        Some(Object::Flow(flow)) => flow.zero_copy_works.load(Ordering::Relaxed),
        _ => false,
    };
    match request {
        DiskRequest::Read { path, .. } | DiskRequest::Write { path, .. } => PATH_IO_URING | path,
        DiskRequest::SendZeroCopy { .. } if without_copy() => PATH_IO_URING | PATH_ZERO_COPY,
        DiskRequest::SendZeroCopy { .. } | DiskRequest::Sync { .. } => PATH_IO_URING,
    }
}

/// The outcome of a disk request.
fn outcome(request: DiskRequest, result: Result<usize, Errno>, path: u32) -> Outcome {
    match (request, result) {
        (DiskRequest::Read { wanted, .. }, Ok(bytes)) => {
            Outcome::Moved { bytes: bytes.min(wanted as usize) as u64, path, held: false }
        }
        (DiskRequest::Read { .. }, Err(errno)) => Outcome::Failed(fault::reading(errno)),
        (DiskRequest::Sync { .. }, Ok(_)) => Outcome::Flushed,
        (_, Ok(bytes)) => Outcome::Moved { bytes: bytes as u64, path, held: false },
        // A socket without zero copy: a Unix socket.
        (DiskRequest::SendZeroCopy { .. }, Err(errno @ Errno::OPNOTSUPP)) => {
            Outcome::Failed(fault::fault(Status::PathUnavailable, errno))
        }
        (_, Err(errno)) => Outcome::Failed(fault::writing(errno)),
    }
}

/// A descriptor of a pending operation.
fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the descriptor belongs to an endpoint of the operation's route, which its owner keeps until the
    // operation is answered (the engine unbinds a command after its operations).
    unsafe { BorrowedFd::borrow_raw(fd) }
}
