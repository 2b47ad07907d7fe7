//! Fork detection: an engine's threads, and the rings that the kernel shares with it, do not belong to a child.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process that made something: this one, or an ancestor that it was forked from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// Returns the calling process. A child that was made without the C library's fork(3) (by a bare system call) is taken for its parent.
    pub fn current() -> Process {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(|| {
            // SAFETY: the handler changes an atomic number and nothing else, which a child may do. If there is no memory for it, forks are
            // not noticed.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Returns false in a child that was forked since.
    #[inline]
    pub fn is_current(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}
