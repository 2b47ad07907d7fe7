//! Limits on waiting for an engine that makes no progress.

use crate::units::Permit;
use dcs::{Completion, Transfer, TransferError};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Milliseconds between two checks.
pub const CHECK_INTERVAL_MS: libc::c_int = 20;

/// Checks of an engine that does nothing at all before it is given up: 10 seconds. Checks are counted instead of time,
/// so that a process that was stopped meanwhile gives nothing up.
const IDLE_LOOKS: u32 = 500;

/// Checks of an engine that works on other streams but not on this one: two minutes.
const LOOKS_MAX: u32 = 6000;

/// Patience in waiting for one thing.
#[derive(Default)]
pub struct Patience {
    looks: u32,
    idle_looks: u32,
    operations: u64,
}

impl Patience {
    /// Notes progress.
    pub fn renew(&mut self) {
        self.looks = 0;
        self.idle_looks = 0;
    }

    /// Notes another [`CHECK_INTERVAL_MS`] without progress. Returns true if the engine must be given up.
    pub fn is_over(&mut self, place: &Permit) -> bool {
        let operations = place.operations();
        self.idle_looks = if operations == self.operations { self.idle_looks + 1 } else { 0 };
        self.operations = operations;
        self.looks += 1;
        let is_over = self.idle_looks > IDLE_LOOKS || self.looks > LOOKS_MAX || place.is_stuck();
        if is_over {
            place.give_up();
        }
        is_over
    }

    /// Waits for a transfer that is almost done. Returns `None` if the engine is given up: it may end the transfer
    /// later.
    pub fn finish(
        &mut self,
        mut transfer: Transfer,
        place: &Permit,
    ) -> Option<Result<Completion, TransferError>> {
        if place.caller_drives() {
            return Some(transfer.wait());
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let look = Duration::from_millis(CHECK_INTERVAL_MS as u64);
        loop {
            if let Poll::Ready(done) = Pin::new(&mut transfer).poll(&mut Context::from_waker(&waker)) {
                return Some(done);
            }
            let begun = Instant::now();
            std::thread::park_timeout(look);
            if begun.elapsed() >= look && self.is_over(place) {
                return None;
            }
        }
    }
}

/// Waker of the waiting thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
