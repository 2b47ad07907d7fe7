//! Connections that wait for a request, or whose request is not authorised yet or announces a body that does
//! not come: where there are too many connections, those go first that have been at it longest.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Time for which no connection is sent away: a request that has just come is on its way through.
const SETTLING: Duration = Duration::from_secs(1);

/// All of them, in the order in which they began.
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

    /// Registers a connection that begins to wait. It is told when it has to go.
    pub(crate) fn enter(self: &Arc<Newcomers>) -> (Newcomer, Arc<Notify>) {
        let told = Arc::new(Notify::new());
        let mut line = self.line();
        let number = line.next;
        line.next += 1;
        line.waiting.insert(number, (Instant::now(), told.clone()));
        (Newcomer { all: self.clone(), number }, told)
    }

    /// Since when the one has been waiting that has been longest.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.line().waiting.first_key_value().map(|(_, (since, _))| *since)
    }

    /// Tells the one that has been waiting longest to go, if it has had its time. True if there was one.
    pub(crate) fn send_one_away(&self) -> bool {
        let mut line = self.line();
        let Some(first) = line.waiting.first_entry().filter(|first| first.get().0.elapsed() >= SETTLING)
        else {
            return false;
        };
        // It is told even where it does not listen yet.
        first.remove().1.notify_one();
        true
    }
}

/// A connection that may be sent away while this is there.
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
