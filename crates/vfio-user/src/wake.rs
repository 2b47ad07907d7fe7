//! The wait of a bus's owner: the host's doorbells and the answers to reads wake it; writes of devices into the function's memory must be
//! polled for, less and less often while nothing happens.

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
    /// Makes a waker.
    ///
    /// # Errors
    ///
    /// Those of eventfd(2).
    pub fn new() -> io::Result<Wake> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Wake(Arc::new(Inner { event, asleep: AtomicBool::new(false) })))
    }

    /// Wakes the owner. Call it after making the work visible. Costs a system call only if the thread sleeps.
    pub fn notify(&self) {
        if self.0.asleep.swap(false, Ordering::SeqCst) {
            // The counter is full only if it was signalled already.
            let _ = rustix::io::write(&self.0.event, &1u64.to_ne_bytes());
        }
    }

    /// Sleeps until [`Wake::notify`] is called, or `limit` has passed. Does not sleep if `ready` returns true; it is called after the last
    /// moment at which a notification could be missed.
    pub fn sleep(&self, limit: Option<Duration>, ready: impl FnOnce() -> bool) {
        let wait = |_: &mut ()| {
            let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
            // An interrupted wait is an early end of it.
            let _ = poll(&mut [PollFd::new(&self.0.event, PollFlags::IN)], limit.as_ref());
        };
        self.sleep_by(&mut (), |()| ready(), wait);
        let _ = rustix::io::read(&self.0.event, &mut [0; 8]);
    }

    /// The same for a thread that waits for other things too, `of` which both functions get. `ready` may take everything that has arrived, what
    /// the eventfd of this waker says too. `sleep` must end when [`Wake::notify`] writes to the eventfd after that. Returns what `ready`
    /// returned.
    pub fn sleep_by<T>(
        &self,
        of: &mut T,
        ready: impl FnOnce(&mut T) -> bool,
        sleep: impl FnOnce(&mut T),
    ) -> bool {
        self.0.asleep.store(true, Ordering::SeqCst);
        let ready = ready(of);
        // A call notifies once for each announcement: if that was before or while `ready` looked, its write may be gone, and no later call
        // writes. There may be work that `ready` did not see.
        if !ready && self.0.asleep.load(Ordering::SeqCst) {
            sleep(of);
        }
        self.0.asleep.store(false, Ordering::SeqCst);
        ready
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
    /// Only wake-ups: no device has anything to do.
    Host,
    /// Wake-ups, and writes of devices into the function's memory, which are not signalled.
    Memory,
}

/// The idle time of a bus's owner, and the resulting pauses: it polls again at once for 50 us, then every 20 us, 40 us and so on up to 1
/// ms.
#[derive(Debug, Default)]
pub struct Idle {
    since: Option<Instant>,
    nap: Duration,
}

impl Idle {
    const SPIN: Duration = Duration::from_micros(50);
    const SLEEP_MIN: Duration = Duration::from_micros(20);
    const SLEEP_MAX: Duration = Duration::from_millis(1);

    /// Notes that there was work.
    pub fn worked(&mut self) {
        self.since = None;
    }

    /// Notes that there was no work, and waits for the appropriate time, at most until `until`.
    pub fn wait(&mut self, wake: &Wake, watch: Watch, until: Option<Instant>, ready: impl FnOnce() -> bool) {
        let now = Instant::now();
        let since = *self.since.get_or_insert_with(|| {
            self.nap = Idle::SLEEP_MIN;
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
        self.nap = (self.nap * 2).min(Idle::SLEEP_MAX);
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
    fn a_call_writes_once_to_who_sleeps_by_other_means() {
        let (wake, mut written) = (Wake::new().unwrap(), [0; 8]);
        wake.notify();
        assert!(rustix::io::read(&wake, &mut written).is_err(), "no thread sleeps");
        let sleep = |(): &mut ()| (0..2).for_each(|_| wake.notify());
        assert!(!wake.sleep_by(&mut (), |()| false, sleep));
        rustix::io::read(&wake, &mut written).unwrap();
        assert_eq!(u64::from_ne_bytes(written), 1);
        assert!(wake.sleep_by(&mut (), |()| true, |()| panic!("it is ready")));
    }

    /// Two calls come while the thread looks: it takes the first one's event with everything else, before the work of the second is there.
    #[test]
    fn who_has_taken_a_call_s_event_does_not_sleep() {
        let wake = Wake::new().unwrap();
        let look = |(): &mut ()| {
            wake.notify();
            rustix::io::read(&wake, &mut [0; 8]).unwrap();
            wake.notify();
            assert!(rustix::io::read(&wake, &mut [0; 8]).is_err(), "written once");
            false
        };
        wake.sleep_by(&mut (), look, |()| panic!("nothing would wake it"));
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
        // Nobody wakes it, and it does not sleep for ever.
        (0..6).for_each(|_| idle.wait(&wake, Watch::Memory, None, || false));
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        idle.wait(&wake, Watch::Host, Some(Instant::now()), || false);
    }
}
