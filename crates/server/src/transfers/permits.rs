//! Permits in the engine, and the queue for them.
//!
//! A transfer takes as many permits as it needs blocks, at least two, and takes all of them at once. The engine has a
//! block for every permit, so nothing waits inside the engine, where the wait would not be seen.

use crate::metrics::Metrics;
use dcs::Op;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Permits of the smallest transfer.
pub(super) const TRANSFER_MIN: u32 = 2;

/// Returns the permits of a transfer: the blocks that it always has. Each operator that changes the length of the data
/// begins a segment of the chain, and an expected digest holds a block back.
pub(super) fn needed(chain: &[Op]) -> u32 {
    let more = chain.iter().filter(|op| {
        let resizes = matches!(op, Op::Gzip { .. } | Op::Gunzip | Op::Zstd { .. } | Op::Unzstd);
        resizes || matches!(op, Op::AwsChunked(_) | Op::Slice { .. } | Op::Expect { .. })
    });
    (1 + more.count() as u32).max(TRANSFER_MIN)
}

/// Permits, and the transfers that wait for some.
#[derive(Debug)]
pub(crate) struct Permits {
    free: Semaphore,
    all: u32,
    line: Mutex<Line>,
    metrics: Arc<Metrics>,
}

/// Waiting transfers: the start of each wait, in order.
#[derive(Debug, Default)]
struct Line {
    next: u64,
    since: BTreeMap<u64, Instant>,
}

impl Permits {
    pub(super) fn new(all: u32, metrics: Arc<Metrics>) -> Permits {
        Permits { free: Semaphore::new(all as usize), all, line: Mutex::default(), metrics }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().expect("no code that holds it panics")
    }

    /// Takes this many at once, in turn.
    pub(super) async fn take(&self, count: u32) -> SemaphorePermit<'_> {
        let count = count.min(self.all);
        if let Ok(taken) = self.free.try_acquire_many(count) {
            return taken;
        }
        // A guard, because the waiting future may be dropped.
        let _waiting = Waiting::new(self);
        self.free.acquire_many(count).await.expect("it is never closed")
    }

    /// Returns the wait of the first in line.
    pub(super) fn longest_wait(&self) -> Option<Duration> {
        self.line().since.first_key_value().map(|(_, since)| since.elapsed())
    }

    /// Returns true if a transfer waits.
    pub(super) fn is_wanted(&self) -> bool {
        !self.line().since.is_empty()
    }
}

struct Waiting<'a> {
    permits: &'a Permits,
    number: u64,
}

impl<'a> Waiting<'a> {
    fn new(permits: &'a Permits) -> Waiting<'a> {
        let mut line = permits.line();
        let number = line.next;
        line.next += 1;
        line.since.insert(number, Instant::now());
        permits.metrics.waiting.inc();
        Waiting { permits, number }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let since = self.permits.line().since.remove(&self.number);
        self.permits.metrics.waiting.dec();
        self.permits.metrics.waited(since.map(|since| since.elapsed()).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn who_needs_many_gets_them_at_once_and_in_turn() {
        let metrics = Arc::new(Metrics::default());
        let permits = Permits::new(4, metrics.clone());
        let context = &mut Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(permits.take(3)).poll(context) else { panic!("it is free") };
        let mut copy = pin!(permits.take(4));
        assert!(copy.as_mut().poll(context).is_pending());
        let mut small = pin!(permits.take(1));
        assert!(small.as_mut().poll(context).is_pending(), "it does not overtake");
        assert!(permits.is_wanted() && metrics.waiting.get() == 2);
        drop(first);
        let Poll::Ready(all) = copy.as_mut().poll(context) else { panic!("it is its turn") };
        assert!(small.as_mut().poll(context).is_pending());
        drop(all);
        assert!(small.as_mut().poll(context).is_ready());
        assert!(!permits.is_wanted() && permits.longest_wait().is_none() && metrics.waiting.get() == 0);
    }

    #[test]
    fn chains_need_their_blocks() {
        assert_eq!(needed(&[]), 2);
        assert_eq!(needed(&[Op::Md5, Op::Zstd { level: 1 }]), 2);
        assert_eq!(needed(&[Op::Unzstd, Op::Slice { skip: 1, take: 1 }]), 3);
    }
}
