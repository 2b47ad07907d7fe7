//! Memory of operators: a drive has a limit, and commands reserve the maximum that their chains may need.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory that a drive's operators may use, for all commands and streams together.
#[derive(Debug, Default)]
pub struct Budget {
    most: u64,
    held: Arc<Reserved>,
}

/// Reserved bytes, and those of them that streams keep between commands.
#[derive(Debug, Default)]
struct Reserved {
    all: AtomicU64,
    streams: AtomicU64,
}

/// Reserved memory, until this is dropped.
#[derive(Debug)]
pub struct Taken {
    bytes: u64,
    by_stream: bool,
    held: Arc<Reserved>,
}

impl Budget {
    pub fn new(most: u64) -> Budget {
        Budget { most, held: Arc::default() }
    }

    /// Returns the number of reserved bytes.
    pub fn taken(&self) -> u64 {
        self.held.all.load(Ordering::Relaxed)
    }

    /// Reserves memory; `None` if not enough is free.
    pub fn take(&self, bytes: u64, by_stream: bool) -> Option<Taken> {
        if bytes > self.most.saturating_sub(self.taken()) {
            return None;
        }
        let held = self.held.clone();
        held.all.fetch_add(bytes, Ordering::Relaxed);
        if by_stream {
            held.streams.fetch_add(bytes, Ordering::Relaxed);
        }
        Some(Taken { bytes, by_stream, held })
    }

    /// Returns true if this many bytes will be free once the commands in progress have ended.
    pub fn will_fit(&self, bytes: u64) -> bool {
        bytes <= self.most.saturating_sub(self.held.streams.load(Ordering::Relaxed))
    }

    /// Returns true if this many bytes can ever be free.
    pub fn fits(&self, bytes: u64) -> bool {
        bytes <= self.most
    }
}

impl Taken {
    /// Returns the number of reserved bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Marks memory as soon free: its owner is gone.
    pub fn passes(&mut self) {
        if std::mem::take(&mut self.by_stream) {
            self.held.streams.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.held.all.fetch_sub(self.bytes, Ordering::Relaxed);
        if self.by_stream {
            self.held.streams.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_streams_have_is_not_waited_for() {
        let budget = Budget::new(100);
        let stream = budget.take(40, true).unwrap();
        let command = budget.take(50, false).unwrap();
        assert!(budget.take(11, false).is_none() && budget.taken() == 90);
        assert!(budget.will_fit(60) && !budget.will_fit(61) && budget.fits(100) && !budget.fits(101));
        drop(command);
        assert!(budget.take(60, false).is_some());
        drop(stream);
        assert!(budget.taken() == 0 && budget.will_fit(100));
    }
}
