//! What an engine counts.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// What an engine has, and what it has done since it was started: see [`Engine::statistics`](crate::Engine).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Transfers (and cancels) in flight in all sessions.
    pub transfers: usize,
    /// Block buffers.
    pub blocks: u32,
    /// Block buffers that are free now.
    pub blocks_free: u32,
    /// Nothing is in flight, and all that transfers were lent has come back: blocks, units, scoreboard entries.
    pub is_idle: bool,
    /// Commands that were fetched, cancels included.
    pub fetched: u64,
    /// Completions that were posted.
    pub completed: u64,
    /// Completions that told of a failure.
    pub failed: u64,
    /// Operations that devices and operators were given.
    pub operations: u64,
    /// Doorbells and device answers that made no sense and were ignored.
    pub ignored: u64,
}

impl Statistics {
    pub(crate) fn of(engine: &dcs_engine::Engine) -> Statistics {
        let counters = engine.counters();
        let transfers = engine.commands_in_flight();
        Statistics {
            transfers,
            blocks: engine.config().blocks,
            blocks_free: engine.blocks_free(),
            is_idle: transfers == 0 && engine.is_idle(),
            fetched: counters.entries,
            completed: counters.completions,
            failed: counters.failures,
            operations: counters.operations,
            ignored: counters.bad_doorbells + counters.stale_events,
        }
    }
}

/// Statistics where other threads find them. Each figure is right by itself; together they may be of two moments.
#[derive(Debug, Default)]
pub(crate) struct Published {
    transfers: AtomicUsize,
    blocks: AtomicU32,
    blocks_free: AtomicU32,
    is_idle: AtomicBool,
    fetched: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    operations: AtomicU64,
    ignored: AtomicU64,
}

impl Published {
    pub fn publish(&self, statistics: &Statistics) {
        self.transfers.store(statistics.transfers, Relaxed);
        self.blocks.store(statistics.blocks, Relaxed);
        self.blocks_free.store(statistics.blocks_free, Relaxed);
        self.is_idle.store(statistics.is_idle, Relaxed);
        self.fetched.store(statistics.fetched, Relaxed);
        self.completed.store(statistics.completed, Relaxed);
        self.failed.store(statistics.failed, Relaxed);
        self.operations.store(statistics.operations, Relaxed);
        self.ignored.store(statistics.ignored, Relaxed);
    }

    pub fn read(&self) -> Statistics {
        Statistics {
            transfers: self.transfers.load(Relaxed),
            blocks: self.blocks.load(Relaxed),
            blocks_free: self.blocks_free.load(Relaxed),
            is_idle: self.is_idle.load(Relaxed),
            fetched: self.fetched.load(Relaxed),
            completed: self.completed.load(Relaxed),
            failed: self.failed.load(Relaxed),
            operations: self.operations.load(Relaxed),
            ignored: self.ignored.load(Relaxed),
        }
    }
}
