//! The wait of a bus's owner: it is woken for the host's doorbells and the answers to reads; what devices
//! write into the function's memory it has to look at, less and less often while nothing happens.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Wakes one waiting thread. Clones wake the same one.
#[derive(Clone, Debug)]
pub struct Wake(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    event: OwnedFd,
    asleep: AtomicBool,
}

impl Wake {
    /// # Errors
    ///
    /// Those of eventfd(2).
    pub fn new() -> io::Result<Wake> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Wake(Arc::new(Inner { event, asleep: AtomicBool::new(false) })))
    }

    /// There is something to do: to be called after it can be seen. Costs a system call only where the thread
    /// sleeps.
    pub fn notify(&self) {
        if self.0.asleep.swap(false, Ordering::SeqCst) {
            // Full only where it was signalled already.
            let _ = rustix::io::write(&self.0.event, &1u64.to_ne_bytes());
        }
    }

    /// Sleeps until somebody calls [`Wake::notify`], or so long. Not at all where `ready` says that there is
    /// something to do: it is asked after the last moment at which a call could be missed.
    pub fn sleep(&self, limit: Option<Duration>, ready: impl FnOnce() -> bool) {
        self.sleep_beside(self.0.event.as_fd(), limit, ready);
    }

    /// The same, and no longer than until `other` can be read.
    pub fn sleep_beside(&self, other: BorrowedFd<'_>, limit: Option<Duration>, ready: impl FnOnce() -> bool) {
        self.0.asleep.store(true, Ordering::SeqCst);
        if !ready() {
            let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
            // An interrupted wait is an early end of it.
            let mut both =
                [self.0.event.as_fd(), other].map(|event| PollFd::from_borrowed_fd(event, PollFlags::IN));
            let _ = poll(&mut both, limit.as_ref());
        }
        self.0.asleep.store(false, Ordering::SeqCst);
        let _ = rustix::io::read(&self.0.event, &mut [0; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}

/// The events that an idle owner of the bus waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Only for what wakes it: no device has anything to do.
    Host,
    /// For what devices write into the function's memory too: nobody tells when.
    Memory,
}

/// The idle time of a bus's owner, and the pauses that it makes therefore: it looks again at once for 50 us,
/// then every 20 us, 40 us and so on up to 1 ms.
#[derive(Debug, Default)]
pub struct Idle {
    since: Option<Instant>,
    nap: Duration,
}

impl Idle {
    const SPIN: Duration = Duration::from_micros(50);
    const SHORTEST: Duration = Duration::from_micros(20);
    const LONGEST: Duration = Duration::from_millis(1);

    /// There was something to do.
    pub fn worked(&mut self) {
        self.since = None;
    }

    /// There was nothing to do: waits as is right after so long, at most until `until`.
    pub fn wait(&mut self, wake: &Wake, watch: Watch, until: Option<Instant>, ready: impl FnOnce() -> bool) {
        let now = Instant::now();
        let since = *self.since.get_or_insert_with(|| {
            self.nap = Idle::SHORTEST;
            now
        });
        let left = until.map(|until| until.saturating_duration_since(now));
        if now.duration_since(since) < Idle::SPIN {
            std::thread::yield_now();
            return;
        }
        let limit = match watch {
            Watch::Host => left,
            Watch::Memory => Some(left.map_or(self.nap, |left| left.min(self.nap))),
        };
        wake.sleep(limit, ready);
        self.nap = (self.nap * 2).min(Idle::LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_ends_the_sleep() {
        let wake = Wake::new().unwrap();
        let other = wake.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            other.notify();
        });
        wake.sleep(Some(Duration::from_secs(60)), || false);
        thread.join().unwrap();
    }

    #[test]
    fn what_else_is_waited_for_ends_the_sleep() {
        let (wake, other) = (Wake::new().unwrap(), eventfd(1, EventfdFlags::CLOEXEC).unwrap());
        wake.sleep_beside(other.as_fd(), Some(Duration::from_secs(60)), || false);
    }

    #[test]
    fn nothing_is_missed_between_the_look_and_the_sleep() {
        let wake = Wake::new().unwrap();
        wake.sleep(Some(Duration::from_secs(60)), || {
            wake.notify();
            false
        });
        wake.sleep(Some(Duration::from_secs(60)), || true);
    }

    #[test]
    fn who_watches_memory_looks_again_soon() {
        let (wake, mut idle, start) = (Wake::new().unwrap(), Idle::default(), Instant::now());
        let mut looks = 0;
        while start.elapsed() < Duration::from_millis(20) {
            idle.wait(&wake, Watch::Memory, None, || false);
            looks += 1;
        }
        assert!(looks > 5, "{looks}");
        idle.wait(&wake, Watch::Host, Some(Instant::now()), || false);
    }
}
