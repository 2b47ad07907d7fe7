//! Counters of an engine.

/// Counters of an engine, now and since it was started: see [`Engine::statistics`](crate::Engine).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Transfers (and cancels) in flight in all sessions.
    pub transfers: usize,
    /// Block buffers.
    pub blocks: u32,
    /// Block buffers that are free now.
    pub blocks_free: u32,
    /// Nothing is in flight, and all that transfers were lent has come back: blocks, units, scoreboard
    /// entries.
    pub is_idle: bool,
    /// Commands that were fetched, cancels included.
    pub fetched: u64,
    /// Completions that were posted.
    pub completed: u64,
    /// Completions that reported a failure.
    pub failed: u64,
    /// Operations that devices and operators were given.
    pub operations: u64,
    /// Passes of multi-lane units (the card does not tell).
    pub passes: u64,
    /// Blocks in those passes: lanes that were filled.
    pub lanes_filled: u64,
    /// Batches that the GPU was given.
    pub gpu_batches: u64,
    /// Blocks in those batches.
    pub gpu_blocks: u64,
    /// Bytes that SSDs and the NIC, if the engine drives them itself, moved between blocks in host memory and
    /// themselves.
    pub host_bytes: u64,
    /// The same for blocks in an SSD's memory
    /// ([`Builder::peer_to_peer`](crate::engine::Builder::peer_to_peer)).
    pub peer_bytes: u64,
    /// Bytes that the processor copied into an SSD's memory, or out of it.
    pub peer_copied: u64,
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
            passes: counters.passes,
            lanes_filled: counters.lanes_filled,
            gpu_batches: 0,
            gpu_blocks: 0,
            host_bytes: 0,
            peer_bytes: 0,
            peer_copied: 0,
            ignored: counters.bad_doorbells + counters.stale_events,
        }
    }
}

/// Those of two cores, or of two engines, together.
impl std::ops::Add for Statistics {
    type Output = Statistics;

    fn add(self, other: Statistics) -> Statistics {
        Statistics {
            transfers: self.transfers + other.transfers,
            blocks: self.blocks + other.blocks,
            blocks_free: self.blocks_free + other.blocks_free,
            is_idle: self.is_idle && other.is_idle,
            fetched: self.fetched + other.fetched,
            completed: self.completed + other.completed,
            failed: self.failed + other.failed,
            operations: self.operations + other.operations,
            passes: self.passes + other.passes,
            lanes_filled: self.lanes_filled + other.lanes_filled,
            gpu_batches: self.gpu_batches + other.gpu_batches,
            gpu_blocks: self.gpu_blocks + other.gpu_blocks,
            host_bytes: self.host_bytes + other.host_bytes,
            peer_bytes: self.peer_bytes + other.peer_bytes,
            peer_copied: self.peer_copied + other.peer_copied,
            ignored: self.ignored + other.ignored,
        }
    }
}
