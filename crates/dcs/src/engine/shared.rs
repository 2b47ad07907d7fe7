//! The part of an engine that its sessions share: who drives the backend, and how its driver sleeps and is
//! woken.

use crate::backend::{BackendLoop, Control, Driver, Info};
use crate::drive::Near;
use crate::engine::meter::Meter;
use crate::queue::{Awaited, Finished, QueuePair};
use crate::statistics::Statistics;
use dcs_abi::admin::{AdminEntry, Answer, SsdIdentity};
use dcs_abi::status::Status;
use dcs_devices::Sending;
use dcs_devices::controller::Waker;
use dcs_devices::fork::Process;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, LockResult, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// Steps of the engine that are taken for a caller who does not want to wait.
const STEPS_AT_ONCE: usize = 4;

/// Longest wait for a loop's counters.
const STATISTICS_WAIT: Duration = Duration::from_millis(50);

/// The state that an engine and its sessions share.
#[derive(Debug)]
pub(crate) struct Shared {
    driver: Driver,
    /// The process that made it: no other may drive it.
    process: Process,
    /// The engine's thread holds it for good; without one, the thread that drives at the moment. Only dropped
    /// by the process that made it.
    backend: ManuallyDrop<Mutex<Box<dyn BackendLoop>>>,
    /// `None` once nobody takes it any more.
    control: Mutex<Option<Vec<Control>>>,
    /// There may be something in `control`.
    has_control: AtomicBool,
    /// The driver sleeps, or is about to: it wants to be woken.
    asleep: AtomicBool,
    /// The engine was dropped.
    stopping: AtomicBool,
    waker: Waker,
    spin: Duration,
    /// A thread drives the engine.
    driven: AtomicBool,
    /// Queues whose threads may be waiting for their turn to drive.
    waiting: Mutex<Vec<Arc<QueuePair>>>,
    /// There may be some in `waiting`.
    has_waiting: AtomicBool,
    /// Receives the answer to a request for the counters whose caller did not wait for it.
    unanswered: Mutex<Option<Receiver<()>>>,
    /// Work from its sessions.
    pub meter: Arc<Meter>,
    pub info: Info,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.is_foreign() {
            // SAFETY: no other thread has it any more.
            unsafe { ManuallyDrop::drop(&mut self.backend) };
        }
    }
}

impl Shared {
    /// Shares a backend that was started.
    pub fn new(
        backend: Box<dyn BackendLoop>,
        driver: Driver,
        spin: Duration,
        waker: Waker,
        info: Info,
    ) -> Shared {
        Shared {
            driver,
            process: Process::current(),
            backend: ManuallyDrop::new(Mutex::new(backend)),
            control: Mutex::new(Some(Vec::new())),
            has_control: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            waker,
            spin,
            driven: AtomicBool::new(false),
            waiting: Mutex::new(Vec::new()),
            has_waiting: AtomicBool::new(false),
            unanswered: Mutex::new(None),
            meter: Arc::default(),
            info,
        }
    }

    /// True in a process that was forked from the one that made the engine: nothing of it may be touched
    /// there, not even locks, which threads may hold that the child has not.
    pub fn is_foreign(&self) -> bool {
        !self.process.is_current()
    }

    /// Runs an admin command of a card, or of an engine's own NIC.
    pub fn admin(&self, entry: AdminEntry) -> Answer {
        self.admin_within(entry, None)
    }

    /// The same, waiting for no longer than `limit`.
    pub fn admin_within(&self, entry: AdminEntry, limit: Option<Duration>) -> Answer {
        self.answer(&self.begin_admin(entry), limit)?
    }

    /// Begins an admin command, and returns where its answer will come.
    pub fn begin_admin(&self, entry: AdminEntry) -> Receiver<Answer> {
        let (send, receive) = std::sync::mpsc::channel();
        self.push(Control::Admin(entry, send));
        receive
    }

    /// Waits for what the backend was asked, unless that takes too long, or it has stopped.
    pub fn answer<T>(&self, receive: &Receiver<T>, limit: Option<Duration>) -> Result<T, Status> {
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        if self.driver == Driver::Thread {
            return match limit {
                None => receive.recv().map_err(|_| Status::QueueDeleted),
                Some(limit) => receive.recv_timeout(limit).map_err(|error| match error {
                    RecvTimeoutError::Timeout => Status::Timeout,
                    RecvTimeoutError::Disconnected => Status::QueueDeleted,
                }),
            };
        }
        let answer = RefCell::new(None);
        let is_there = || {
            let mut answer = answer.borrow_mut();
            match receive.try_recv() {
                _ if answer.is_some() => {}
                Ok(found) => *answer = Some(Ok(found)),
                Err(TryRecvError::Disconnected) => *answer = Some(Err(Status::QueueDeleted)),
                // Who ends the engine waits for this turn to end.
                Err(TryRecvError::Empty) if self.stopping.load(Ordering::SeqCst) => {
                    *answer = Some(Err(Status::QueueDeleted));
                }
                Err(TryRecvError::Empty) if end.is_some_and(|end| Instant::now() >= end) => {
                    *answer = Some(Err(Status::Timeout));
                }
                Err(TryRecvError::Empty) => {}
            }
            answer.is_some()
        };
        while !is_there() {
            match self.try_turn() {
                Some(mut turn) => {
                    while !is_there() {
                        self.round(&mut **turn.backend, |_| is_there());
                    }
                }
                // The driving thread does this too; should it stop, it is our turn.
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        answer.into_inner().unwrap_or(Err(Status::QueueDeleted))
    }

    /// Begins an admin command whose answer is not waited for.
    pub fn admin_later(&self, entry: AdminEntry) {
        self.push(Control::Admin(entry, std::sync::mpsc::channel().0));
        self.drive_once();
    }

    /// Returns the counts of a NIC's media stream, by its handle.
    pub fn paced_sending(&self, handle: u32) -> Option<Sending> {
        let (send, receive) = std::sync::mpsc::channel();
        self.push(Control::PacedSending(handle, send));
        self.answer(&receive, None).ok()?.ok()
    }

    /// Returns the identity of a card's SSD, or of a part of one, by its handle.
    pub fn identity(&self, handle: u32) -> Result<SsdIdentity, Status> {
        let (send, receive) = std::sync::mpsc::channel();
        self.push(Control::Identity(handle, send));
        self.answer(&receive, None)?
    }

    /// Returns its counters, as of its last step. A core that does not answer soon has nothing new: the
    /// counters are the last ones that it reported, and later calls do not wait until it has answered.
    pub fn statistics(&self) -> Statistics {
        if self.is_foreign() {
            return Statistics::default();
        }
        if self.info.asks_for_statistics {
            self.update_statistics();
        }
        let mut counted = *self.info.statistics.lock().unwrap_or_else(|error| error.into_inner());
        counted.failed += self.info.near_failures.load(Ordering::Relaxed);
        counted
    }

    fn update_statistics(&self) {
        if self.driver == Driver::Caller
            && let Some(mut turn) = self.try_turn()
        {
            // Without a step: that may take long, and no caller waits for one.
            return turn.backend.control(Control::UpdateStatistics(std::sync::mpsc::channel().0));
        }
        let is_waited_for = |asked: &Receiver<()>| asked.try_recv() == Err(TryRecvError::Empty);
        if self.unanswered().as_ref().is_some_and(is_waited_for) {
            return;
        }
        let (send, seen) = std::sync::mpsc::channel();
        self.push(Control::UpdateStatistics(send));
        let answered = seen.recv_timeout(STATISTICS_WAIT);
        *self.unanswered() = (answered == Err(RecvTimeoutError::Timeout)).then_some(seen);
    }

    fn unanswered(&self) -> MutexGuard<'_, Option<Receiver<()>>> {
        self.unanswered.lock().unwrap_or_else(|error| error.into_inner())
    }

    /// Returns the counter of failures at drives.
    pub fn near_failures(&self) -> &Arc<AtomicU64> {
        &self.info.near_failures
    }

    /// Near storage, if it has any.
    pub fn near(&self) -> Option<&Arc<Near>> {
        self.info.near.as_ref()
    }

    pub fn has_gpu(&self) -> bool {
        self.info.gpu.is_some()
    }

    pub fn is_caller_driven(&self) -> bool {
        self.driver == Driver::Caller
    }

    /// Wakes the engine: there is something new in a queue.
    pub fn ring_doorbell(&self) {
        if !self.is_foreign() && self.asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    pub fn push(&self, control: Control) {
        if self.is_foreign() {
            return;
        }
        let mut all = self.control.lock().unwrap_or_else(|error| error.into_inner());
        // One that nobody takes is dropped, which answers it.
        let Some(waiting) = &mut *all else { return };
        waiting.push(control);
        drop(all);
        self.has_control.store(true, Ordering::SeqCst);
        self.ring_doorbell();
    }

    /// Asks the backend to stop.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.push(Control::Stop);
    }

    pub fn cancel(&self, queue: &Arc<QueuePair>, cid: u16) {
        self.push(Control::Cancel(Arc::clone(queue), cid));
    }

    pub fn delete_queue(&self, queue: &Arc<QueuePair>) {
        if !self.is_foreign()
            && let Some(id) = queue.id.get()
        {
            self.push(Control::DeleteQueue(*id));
            self.drive_once();
        }
    }

    /// The engine's thread, or the last drive of an engine without one: until all queues are gone.
    pub fn run(&self) {
        let mut turn = self.turn(self.backend.lock());
        let stopped = |backend: &dyn BackendLoop| {
            self.stopping.load(Ordering::SeqCst) && backend.is_empty() && !self.has_control()
        };
        while !stopped(&**turn.backend) {
            self.round(&mut **turn.backend, stopped);
        }
        turn.backend.close();
        let mut control = self.control.lock().unwrap_or_else(|error| error.into_inner());
        let rest = control.take();
        drop(control);
        drop(rest);
    }

    /// Drives the engine until the queue has what is awaited; or, where another thread drives it, waits for
    /// that.
    pub fn wait(&self, queue: &Arc<QueuePair>, awaited: Awaited) {
        if self.is_foreign() {
            return;
        }
        if self.driver == Driver::Thread {
            return queue.wait(awaited, || false);
        }
        while !queue.has(awaited) {
            match self.try_turn() {
                Some(mut turn) => {
                    // After a sleep another thread may have taken it in.
                    while !self.round(&mut **turn.backend, |_| queue.has(awaited)) && !queue.has(awaited) {}
                    return;
                }
                None => queue.wait(awaited, || self.may_drive(queue)),
            }
        }
    }

    /// Runs a transfer to its end, where its caller drives, and it is all that there is to do: see [`BackendLoop::run_alone`].
    pub fn run_alone(&self, queue: &Arc<QueuePair>, cid: u16, of: &mut dyn FnMut(&Finished<'_>)) -> bool {
        if self.driver != Driver::Caller || self.is_foreign() || self.has_control() {
            return false;
        }
        let Some(mut turn) = self.try_turn() else { return false };
        turn.backend.run_alone(queue, cid, of)
    }

    /// Does a bounded piece of work without waiting, if no other thread drives.
    pub fn drive_once(&self) {
        if self.driver == Driver::Caller
            && !self.is_foreign()
            && let Some(mut turn) = self.try_turn()
        {
            self.take_control(&mut **turn.backend);
            for _ in 0..STEPS_AT_ONCE {
                if !turn.backend.step() {
                    break;
                }
            }
        }
    }

    /// Returns true if no thread drives. Otherwise this queue will be woken when the driver's turn is over.
    /// Call it under the queue's lock, so that the wake-up cannot come before its thread waits for it.
    fn may_drive(&self, queue: &Arc<QueuePair>) -> bool {
        let mut waiting = self.waiting();
        if !waiting.iter().any(|other| Arc::ptr_eq(other, queue)) {
            waiting.push(Arc::clone(queue));
        }
        drop(waiting);
        // The flag is set before `driven` is read: a thread that ends its turn sees it, or we see no driver.
        self.has_waiting.store(true, Ordering::SeqCst);
        !self.driven.load(Ordering::SeqCst)
    }

    /// Works until there is nothing to do; then spins for a while, then sleeps once. Returns true if the work
    /// was found to be done.
    fn round(&self, backend: &mut dyn BackendLoop, done: impl Fn(&dyn BackendLoop) -> bool) -> bool {
        let mut idle_since = None;
        loop {
            let controlled = self.take_control(backend);
            if backend.step() || controlled {
                idle_since = None;
                if done(backend) {
                    return true;
                }
                continue;
            }
            if done(backend) {
                return true;
            }
            if self.spin.is_zero() || !backend.is_busy() {
                break;
            }
            let now = Instant::now();
            if now - *idle_since.get_or_insert(now) >= self.spin {
                break;
            }
            std::hint::spin_loop();
        }
        self.asleep.store(true, Ordering::SeqCst);
        // A doorbell rung before this line found no sleeping thread: check once more.
        if !backend.has_doorbell() && !self.has_control() {
            backend.sleep();
        }
        self.asleep.store(false, Ordering::SeqCst);
        false
    }

    fn take_control(&self, backend: &mut dyn BackendLoop) -> bool {
        if !self.has_control() || !self.has_control.swap(false, Ordering::SeqCst) {
            return false;
        }
        let control = {
            let mut control = self.control.lock().unwrap_or_else(|error| error.into_inner());
            control.as_mut().map(std::mem::take).unwrap_or_default()
        };
        let any = !control.is_empty();
        control.into_iter().for_each(|control| backend.control(control));
        any
    }

    fn has_control(&self) -> bool {
        self.has_control.load(Ordering::SeqCst)
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Arc<QueuePair>>> {
        self.waiting.lock().unwrap_or_else(|error| error.into_inner())
    }

    /// Wakes waiting threads, since no thread drives now.
    #[cold]
    fn nudge_waiting(&self) {
        // Set before they are taken: a thread that comes meanwhile sees that no thread drives, or is woken
        // next time.
        self.has_waiting.store(false, Ordering::SeqCst);
        let waiting = std::mem::take(&mut *self.waiting());
        waiting.iter().for_each(|queue| queue.nudge());
    }

    #[inline]
    fn try_turn(&self) -> Option<Turn<'_>> {
        match self.backend.try_lock() {
            Ok(backend) => Some(self.turn(Ok(backend))),
            Err(TryLockError::Poisoned(error)) => Some(self.turn(Err(error))),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[inline]
    fn turn<'a>(&'a self, backend: LockResult<MutexGuard<'a, Box<dyn BackendLoop>>>) -> Turn<'a> {
        self.driven.store(true, Ordering::SeqCst);
        let mut backend = backend.unwrap_or_else(|error| {
            // The driver before panicked half-way: nothing that the backend knows can be relied on.
            let mut backend = error.into_inner();
            backend.abandon();
            backend
        });
        backend.begin_turn(self.driver == Driver::Caller);
        Turn { backend, end: EndOfTurn(self) }
    }
}

/// The right to drive the engine. When it ends, threads that wait for theirs are woken.
struct Turn<'a> {
    // Fields are dropped in this order: the backend is free when the others are woken.
    backend: MutexGuard<'a, Box<dyn BackendLoop>>,
    end: EndOfTurn<'a>,
}

struct EndOfTurn<'a>(&'a Shared);

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        self.backend.end_turn();
        // Before the backend is free: afterwards another may drive already.
        self.end.0.driven.store(false, Ordering::SeqCst);
    }
}

impl Drop for EndOfTurn<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.has_waiting.load(Ordering::SeqCst) {
            self.0.nudge_waiting();
        }
    }
}
