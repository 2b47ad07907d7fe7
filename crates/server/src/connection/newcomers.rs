//! Connections that may be sent away: they wait for a request, or their request is not authorised yet or announces a
//! body that does not come. If there are too many connections, the one that has waited longest goes first.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Time for which no connection is sent away, because a request that has just come needs it to get through.
const SETTLING: Duration = Duration::from_secs(1);

/// All newcomers, in the order in which they began.
#[derive(Debug, Default)]
pub(crate) struct Newcomers(Mutex<Line>);

#[derive(Debug, Default)]
struct Line {
    next: u64,
    waiting: BTreeMap<u64, (Instant, Arc<Notify>)>,
}

impl Newcomers {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.lock().expect("no code that holds it panics")
    }

    /// Registers a connection that begins to wait. The returned [`Notify`] tells it when to go.
    pub(crate) fn enter(self: &Arc<Newcomers>) -> (Newcomer, Arc<Notify>) {
        let told = Arc::new(Notify::new());
        let mut line = self.line();
        let number = line.next;
        line.next += 1;
        line.waiting.insert(number, (Instant::now(), told.clone()));
        (Newcomer { all: self.clone(), number }, told)
    }

    /// Returns the time since which the oldest newcomer has been waiting.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.line().waiting.first_key_value().map(|(_, (since, _))| *since)
    }

    /// Tells the oldest newcomer to go, if it has had its time. Returns true if there was one.
    pub(crate) fn evict_oldest(&self) -> bool {
        let mut line = self.line();
        let Some(first) = line.waiting.first_entry().filter(|first| first.get().0.elapsed() >= SETTLING)
        else {
            return false;
        };
        // The notice is kept if the connection does not listen yet.
        first.remove().1.notify_one();
        true
    }
}

/// Registration of a connection that may be sent away. Dropping it ends that.
#[derive(Debug)]
pub(crate) struct Newcomer {
    all: Arc<Newcomers>,
    number: u64,
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.all.line().waiting.remove(&self.number);
    }
}
