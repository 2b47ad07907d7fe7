//! System calls that may wait, on separate threads.
//!
//! A write to a file system that is frozen or slow, a copy of a file that is not cached, the close of a socket that lingers: each may take
//! forever, and nothing stops it. So the engine's thread makes none of them.
//!
//! Each file system has a *pool*: a few threads, started on demand, and more if all of them are stuck, up to a bound. A file system that
//! hangs holds up its own calls and no others.

use crate::attempt::{Attempt, DiskRequest};
use crate::buffer::Buffer;
use crate::copy;
use crate::endpoint::{Endpoint, LINGERING, Object};
use crate::route::Route;
use crate::{failure, file};
use dcs_abi::result::{PATH_DESTINATION_CACHED, PATH_SYSCALL};
use dcs_abi::status::Status;
use dcs_engine::{BlockId, Failure, OperationId, Outcome};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Threads of a pool that has work for them.
const THREADS_USUAL: usize = 4;
/// Most threads of a pool.
const THREADS_MAX: usize = 64;
/// Time for which all of a pool's threads must be busy before it gets another.
const STUCK_AFTER: Duration = Duration::from_millis(10);
/// Time for which an engine that ends waits for calls in progress.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for which an idle thread stays.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Stack size of such a thread, in bytes.
const STACK: usize = 128 * 1024;

/// A call that may wait, with everything that it needs: nothing of it is closed or otherwise used before the call returns.
#[derive(Debug)]
pub(crate) enum Work {
    /// A read, write or flush of a file.
    Disk { request: DiskRequest, endpoint: Arc<Endpoint>, block: Option<(BlockId, Buffer)> },
    /// A copy within the kernel, from and to these positions.
    Copy { route: Box<Route>, source: u64, destination: u64, length: u64, more: bool },
    /// Release of an endpoint: dropping it closes it.
    Close { _endpoint: Endpoint },
}

/// A call, and the operation that it belongs to.
#[derive(Debug)]
struct Job {
    operation: Option<OperationId>,
    work: Work,
}

/// A call that has returned.
#[derive(Debug)]
pub(crate) struct Done {
    pub operation: OperationId,
    pub attempt: Attempt,
    pub work: Work,
}

/// A copy that has returned, with the parts of the route that it used.
#[derive(Debug)]
pub(crate) struct Copied {
    pub attempt: Attempt,
    pub route: Route,
}

/// The pools of one controller.
#[derive(Debug)]
pub(crate) struct Calls(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Jobs that no thread has taken up.
    queued: AtomicUsize,
    /// Threads that have not ended.
    threads: Arc<AtomicUsize>,
    has_done: AtomicBool,
    /// Set while the controller sleeps, or is about to, and needs to be woken.
    asleep: AtomicBool,
    wake: Arc<OwnedFd>,
}

#[derive(Debug, Default)]
struct State {
    pools: HashMap<u64, Pool>,
    done: Vec<Done>,
    closed: bool,
}

#[derive(Debug)]
struct Pool {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads that are waiting for a job.
    idle: usize,
    /// Time at which a job was last taken up.
    moved: Instant,
    signal: Arc<Condvar>,
}

impl Calls {
    /// Makes the pools. `wake`: the eventfd on which the controller sleeps.
    pub fn new(wake: Arc<OwnedFd>) -> Calls {
        Calls(Arc::new(Shared {
            state: Mutex::default(),
            queued: AtomicUsize::new(0),
            threads: Arc::default(),
            has_done: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            wake,
        }))
    }

    /// Queues a call; [`Calls::take`] reports its end.
    pub fn make(&self, pool: u64, operation: OperationId, work: Work) {
        self.push(pool, Job { operation: Some(operation), work });
    }

    /// Releases an endpoint whose close may wait.
    pub fn close(&self, pool: u64, endpoint: Endpoint) {
        self.push(pool, Job { operation: None, work: Work::Close { _endpoint: endpoint } });
    }

    fn push(&self, number: u64, job: Job) {
        let mut state = self.0.state();
        let pool = state.pools.entry(number).or_insert_with(|| Pool {
            jobs: VecDeque::new(),
            threads: 0,
            idle: 0,
            moved: Instant::now(),
            signal: Arc::default(),
        });
        if pool.jobs.is_empty() {
            pool.moved = Instant::now();
        }
        pool.jobs.push_back(job);
        self.0.queued.fetch_add(1, Ordering::SeqCst);
        if pool.jobs.len() <= pool.idle {
            return pool.signal.notify_one();
        }
        let few = if number == LINGERING { THREADS_MAX } else { THREADS_USUAL };
        if pool.threads < few && !self.add_thread(number, pool) && pool.threads == 0 {
            // No thread is available, so the caller waits.
            drop(state);
            self.0.run_jobs(number);
        }
    }

    /// Gives a pool another thread.
    fn add_thread(&self, number: u64, pool: &mut Pool) -> bool {
        let shared = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name("dcs-call".into()).stack_size(STACK);
        self.0.threads.fetch_add(1, Ordering::SeqCst);
        let hired = thread.spawn(move || shared.run(number)).is_ok();
        if !hired {
            self.0.threads.fetch_sub(1, Ordering::SeqCst);
        }
        pool.threads += usize::from(hired);
        pool.moved = Instant::now();
        hired
    }

    /// Adds threads to pools whose threads are all stuck.
    pub fn grow_stuck_pools(&self) {
        if self.0.queued.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut state = self.0.state();
        for (number, pool) in &mut state.pools {
            let stuck = !pool.jobs.is_empty() && pool.idle == 0 && pool.moved.elapsed() >= STUCK_AFTER;
            if stuck && pool.threads < THREADS_MAX {
                self.add_thread(*number, pool);
            }
        }
    }

    /// Returns true if no job waits for a thread and no thread has anything to report.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.0.queued.load(Ordering::SeqCst) == 0 && !self.0.has_done.load(Ordering::SeqCst)
    }

    /// Returns the time until the next check, if jobs wait for threads.
    pub fn timeout(&self) -> Option<Duration> {
        (self.0.queued.load(Ordering::SeqCst) > 0).then_some(STUCK_AFTER)
    }

    /// Withdraws a call that no thread has begun.
    pub fn withdraw(&self, operation: OperationId) -> Option<Work> {
        let mut state = self.0.state();
        for pool in state.pools.values_mut() {
            if let Some(at) = pool.jobs.iter().position(|job| job.operation == Some(operation)) {
                self.0.queued.fetch_sub(1, Ordering::SeqCst);
                return pool.jobs.remove(at).map(|job| job.work);
            }
        }
        None
    }

    /// Takes the calls that have returned.
    pub fn take(&self, done: &mut Vec<Done>) {
        if self.0.has_done.swap(false, Ordering::SeqCst) {
            done.append(&mut self.0.state().done);
        }
    }

    /// Notes that the controller is about to sleep; returns false if it must not, since calls have returned.
    pub fn before_sleep(&self) -> bool {
        self.0.asleep.store(true, Ordering::SeqCst);
        !self.0.has_done.load(Ordering::SeqCst)
    }

    /// Notes that the controller is awake.
    pub fn after_sleep(&self) {
        self.0.asleep.store(false, Ordering::SeqCst);
    }
}

impl Drop for Calls {
    /// Waits a while for the threads, which end when they have nothing left to do. Those that are stuck keep everything that their calls
    /// use.
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.closed = true;
        state.pools.values().for_each(|pool| pool.signal.notify_all());
        drop(state);
        let end = Instant::now() + DRAIN_TIMEOUT;
        while self.0.threads.load(Ordering::SeqCst) > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|error| error.into_inner())
    }

    /// Runs a thread's body.
    fn run(self: Arc<Shared>, number: u64) {
        block_signals();
        loop {
            self.run_jobs(number);
            if !self.rest(number) {
                break;
            }
        }
        // Counted out last: the thread then holds no descriptor of the engine's any more.
        let threads = Arc::clone(&self.threads);
        drop(self);
        threads.fetch_sub(1, Ordering::SeqCst);
    }

    /// Waits for a job; returns false if the thread should end.
    fn rest(&self, number: u64) -> bool {
        let mut state = self.state();
        let end = Instant::now() + IDLE_TIMEOUT;
        loop {
            let (closed, now) = (state.closed, Instant::now());
            let Some(pool) = state.pools.get_mut(&number) else { return false };
            if !pool.jobs.is_empty() {
                return true;
            }
            if closed || now >= end {
                pool.threads -= 1;
                return false;
            }
            pool.idle += 1;
            let signal = Arc::clone(&pool.signal);
            (state, _) = signal.wait_timeout(state, end - now).unwrap_or_else(|error| error.into_inner());
            if let Some(pool) = state.pools.get_mut(&number) {
                pool.idle -= 1;
            }
        }
    }

    /// Makes the calls of a pool until none is left.
    fn run_jobs(&self, number: u64) {
        while let Some(job) = self.next(number) {
            let Job { operation, mut work } = job;
            let attempt = catch_unwind(AssertUnwindSafe(|| perform(&mut work)))
                .unwrap_or_else(|_| Attempt::failed(Failure::new(Status::InternalError)));
            match operation {
                Some(operation) => self.finish(Done { operation, attempt, work }),
                // Dropping it closes the endpoint.
                None => drop(work),
            }
        }
    }

    fn next(&self, number: u64) -> Option<Job> {
        let mut state = self.state();
        let pool = state.pools.get_mut(&number)?;
        let job = pool.jobs.pop_front()?;
        pool.moved = Instant::now();
        self.queued.fetch_sub(1, Ordering::SeqCst);
        Some(job)
    }

    fn finish(&self, done: Done) {
        self.state().done.push(done);
        self.has_done.store(true, Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            // EAGAIN: the counter is full of wake-ups already.
            let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        }
    }
}

/// Makes a call, however long it takes.
fn perform(work: &mut Work) -> Attempt {
    match work {
        Work::Disk { request, block, endpoint } => {
            Attempt::Done(disk(*request, block.as_mut().map(|(_, buffer)| buffer), endpoint))
        }
        Work::Copy { route, source, destination, length, more } => {
            copy::copy(route, *source, *destination, *length, *more)
        }
        Work::Close { .. } => Attempt::Done(Outcome::Flushed),
    }
}

fn disk(request: DiskRequest, buffer: Option<&mut Buffer>, endpoint: &Endpoint) -> Outcome {
    let (result, path) = match (request, buffer) {
        (DiskRequest::Read { fd, offset, start, length, path, .. }, Some(buffer)) => {
            let into = &mut buffer.bytes_mut()[start as usize..(start + length) as usize];
            (rustix::io::retry_on_intr(|| rustix::io::pread(borrow(fd), &mut *into, offset)), path)
        }
        (DiskRequest::Write { fd, offset, start, length, path }, Some(buffer)) => {
            let from = &buffer.bytes()[start as usize..(start + length) as usize];
            let write = || match &endpoint.object {
                Object::File(file) if path == PATH_DESTINATION_CACHED => file::write_at(file, from, offset),
                _ => rustix::io::pwrite(borrow(fd), from, offset),
            };
            (rustix::io::retry_on_intr(write), path)
        }
        (DiskRequest::Sync { fd, data, close }, _) => (sync(fd, (data, close), endpoint).map(|()| 0), 0),
        _ => (Err(Errno::INVAL), 0),
    };
    outcome(request, result, path | PATH_SYSCALL)
}

/// Makes data durable, then closes a duplicate to learn of the errors that only a close reports.
fn sync(fd: std::os::fd::RawFd, (data, close): (bool, bool), endpoint: &Endpoint) -> Result<(), Errno> {
    if data {
        rustix::fs::fdatasync(borrow(fd))?;
    }
    match &endpoint.object {
        Object::File(file) if close => file.close_aside(),
        _ => Ok(()),
    }
}

/// Returns the outcome of a disk request.
pub(crate) fn outcome(request: DiskRequest, result: Result<usize, Errno>, path: u32) -> Outcome {
    match (request, result) {
        (DiskRequest::Read { wanted, .. }, Ok(bytes)) => {
            Outcome::Moved { bytes: bytes.min(wanted as usize) as u64, path, held: false }
        }
        (DiskRequest::Read { .. }, Err(errno)) => Outcome::Failed(failure::reading(errno)),
        (DiskRequest::Sync { .. }, Ok(_)) => Outcome::Flushed,
        (_, Ok(0)) => Outcome::Failed(failure::writing(Errno::IO)),
        (_, Ok(bytes)) => Outcome::Moved { bytes: bytes as u64, path, held: false },
        // Only a socket without zero copy does this: a Unix socket.
        (DiskRequest::SendZeroCopy { .. }, Err(errno @ Errno::OPNOTSUPP)) => {
            Outcome::Failed(failure::with_errno(Status::PathUnavailable, errno))
        }
        (_, Err(errno)) => Outcome::Failed(failure::writing(errno)),
    }
}

/// Borrows a descriptor of a request's endpoint.
fn borrow<'a>(fd: std::os::fd::RawFd) -> BorrowedFd<'a> {
    // SAFETY: the descriptor belongs to the endpoint that the request's `Work::Disk` holds until the call returns.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Blocks signals, which are for the application's threads. SIGPIPE and SIGXFSZ of these calls become errors of one transfer.
fn block_signals() {
    // SAFETY: the set is initialised by sigfillset before it is used; pthread_sigmask changes only this
    // thread.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&mut set);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}
