//! Memory of operators: a drive has so much, and commands take of it what their chains may need.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory that a drive's operators may take, all its commands and streams together.
#[derive(Debug, Default)]
pub struct Budget {
    most: u64,
    held: Arc<Held>,
}

/// Bytes that are taken; those of them that streams have, between their commands too.
#[derive(Debug, Default)]
struct Held {
    all: AtomicU64,
    streams: AtomicU64,
}

/// Memory that is taken until this is dropped.
#[derive(Debug)]
pub struct Taken {
    bytes: u64,
    by_stream: bool,
    held: Arc<Held>,
}

impl Budget {
    pub fn new(most: u64) -> Budget {
        Budget { most, held: Arc::default() }
    }

    /// Bytes that are taken.
    pub fn taken(&self) -> u64 {
        self.held.all.load(Ordering::Relaxed)
    }

    /// Takes this many bytes; nothing where they are not there.
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

    /// True where this many bytes are there once the commands under way have ended.
    pub fn will_fit(&self, bytes: u64) -> bool {
        bytes <= self.most.saturating_sub(self.held.streams.load(Ordering::Relaxed))
    }

    /// True where this many bytes are ever there.
    pub fn fits(&self, bytes: u64) -> bool {
        bytes <= self.most
    }
}

impl Taken {
    /// Bytes that are taken.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whoever had them is gone, and they come back soon.
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
