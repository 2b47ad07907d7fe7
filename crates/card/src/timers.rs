//! A queue of things that are due at a time.

use dcs_engine::Nanos;
use std::collections::BTreeMap;

/// A queue of things that are due at a time; things due at the same time keep the order in which they were set.
#[derive(Debug)]
pub struct Timers<T> {
    due: BTreeMap<(Nanos, u64), T>,
    serial: u64,
}

impl<T> Default for Timers<T> {
    fn default() -> Timers<T> {
        Timers { due: BTreeMap::new(), serial: 0 }
    }
}

impl<T> Timers<T> {
    /// Adds a thing that is due at a time.
    pub fn set(&mut self, at: Nanos, what: T) {
        self.serial += 1;
        self.due.insert((at, self.serial), what);
    }

    /// Returns the time of the next thing.
    pub fn next(&self) -> Option<Nanos> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the next thing that is due by now.
    pub fn due(&mut self, now: Nanos) -> Option<T> {
        self.next().filter(|at| *at <= now)?;
        self.due.pop_first().map(|(_, what)| what)
    }
}
