//! Streams of a process, by socket, and the thread that ends those whose sockets are closed.

use crate::process;
use crate::setup::{self, Setup};
use crate::stream::Stream;
use crate::sys::{self, Identity};
use crate::units::{Units, without_signals};
use dcs_preload_rules::Counter;
use libc::c_int;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::Thread;
use std::time::Duration;

/// Interval at which streams of closed sockets are ended.
const SWEEP: Duration = Duration::from_millis(250);

/// State of a process, once a chain was applied.
#[derive(Default)]
pub struct State {
    pub units: Units,
    slots: Mutex<HashMap<Identity, Arc<Slot>>>,
    sweeper: Mutex<Option<Thread>>,
}

/// Slot for a socket's stream. A call holds it while it is carried.
#[derive(Default)]
pub struct Slot(Mutex<Option<Open>>);

/// A stream, and its socket's last known number.
pub struct Open {
    pub stream: Stream,
    pub socket: c_int,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|error| error.into_inner())
}

impl Slot {
    /// Locks the stream, as long as the guard lives.
    pub fn hold(&self) -> MutexGuard<'_, Option<Open>> {
        lock(&self.0)
    }

    fn try_hold(&self) -> Option<MutexGuard<'_, Option<Open>>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl State {
    /// Returns the slot of a socket, if it has one.
    pub fn find(&self, socket: Identity) -> Option<Arc<Slot>> {
        lock(&self.slots).get(&socket).cloned()
    }

    /// Returns the slot of a socket. Makes it if there is none.
    pub fn slot(&'static self, socket: Identity) -> Arc<Slot> {
        let slot = Arc::clone(lock(&self.slots).entry(socket).or_default());
        self.wake_sweeper();
        slot
    }

    /// Ends a stream and logs it. Returns false if it had failed by itself.
    pub fn end(&self, setup: &Setup, open: Open, why: &str) -> bool {
        process::count(Counter::Objects, 1);
        open.stream.end(&self.units, &setup.record, why)
    }

    /// Ends all streams that no call holds, because the process ends.
    pub fn end_all(&self, setup: &Setup) {
        let slots: Vec<_> = match self.slots.try_lock() {
            Ok(mut slots) => slots.drain().collect(),
            Err(_) => return,
        };
        for (_, slot) in slots {
            let open = slot.try_hold().and_then(|mut open| open.take());
            open.map(|open| self.end(setup, open, "exit"));
        }
    }

    fn wake_sweeper(&'static self) {
        let mut sweeper = lock(&self.sweeper);
        match &*sweeper {
            Some(thread) => thread.unpark(),
            None => {
                let thread = std::thread::Builder::new().name("dcs-preload".into());
                let started = without_signals(|| thread.spawn(|| self.sweep_for_ever()));
                // Without the thread, streams end when their sockets' numbers are reused, or with the process.
                *sweeper = started.ok().map(|handle| handle.thread().clone());
            }
        }
    }

    fn sweep_for_ever(&self) {
        loop {
            while !lock(&self.slots).is_empty() {
                std::thread::sleep(SWEEP);
                if let Some(setup) = setup::active() {
                    let swept = std::panic::AssertUnwindSafe(|| self.sweep(setup));
                    let _ = std::panic::catch_unwind(swept);
                }
            }
            std::thread::park();
        }
    }

    fn sweep(&self, setup: &Setup) {
        let slots: Vec<_> =
            lock(&self.slots).iter().map(|(socket, slot)| (*socket, Arc::clone(slot))).collect();
        // Sockets by identity, read once a socket was closed: the program may have it under another number.
        let mut others = None;
        for (socket, slot) in &slots {
            let Some(mut open) = slot.try_hold() else { continue };
            let is_gone = |open: &mut Open| {
                if sys::stat(open.socket).map(|stat| sys::identity(&stat)) == Some(*socket) {
                    return false;
                }
                let other = others.get_or_insert_with(|| setup.sockets()).get(socket);
                open.socket = other.copied().unwrap_or(open.socket);
                other.is_none()
            };
            if let Some(open) = open.take_if(is_gone) {
                self.end(setup, open, "closed");
            }
        }
        drop(slots);
        // Only the table knows this slot, and no other thread can find it meanwhile.
        lock(&self.slots).retain(|_, slot| Arc::strong_count(slot) > 1 || lock(&slot.0).is_some());
    }
}
