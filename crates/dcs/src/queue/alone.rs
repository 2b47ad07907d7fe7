//! The engine's questions to a queue pair for a transfer that goes through, alone or not: its endpoints, and its end.

use super::{Endpoint, Endpoints, OpChain, QueuePair, handle};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The endpoints of source and destination, if they are known.
pub(crate) type BothEnds = [Option<Arc<Endpoint>>; 2];

/// The handles of source and destination, and what is behind them.
pub(crate) type Found = ((u32, u32), BothEnds);

impl QueuePair {
    /// The endpoints behind the handles of a command's source and destination.
    #[inline]
    pub fn find_both(&self, source: u32, destination: u32) -> BothEnds {
        let state = self.state();
        [source, destination].map(|handle| state.endpoint(handle).cloned())
    }

    /// The handles of a transfer's source and destination, and their endpoints; `None` if it must not go
    /// alone: a waker is to be told of its end, or it has the last reference to its endpoints, and closing
    /// them may block.
    pub fn find_shared(&self, cid: u16) -> Option<Found> {
        let state = self.state();
        let slot = state.slots.get(cid as usize)?;
        let is_shared = |at: usize| slot.endpoints[at].as_ref().filter(|end| Arc::strong_count(end) > 1);
        let (source, destination) = (is_shared(0)?, is_shared(1)?);
        let is_plain = slot.near.is_none() && slot.waker.is_none() && slot.secret == 0;
        if !is_plain || !slot.in_flight || slot.detached || slot.cancelling {
            return None;
        }
        let found = [Some(Arc::clone(source)), Some(Arc::clone(destination))];
        Some(((handle(cid, 0), handle(cid, 1)), found))
    }

    /// Passes over this slot of the completion ring, which is the core's number, not the session's. Returns the doorbell's value.
    pub fn pass_head(&self, slot: u16) -> u32 {
        let head = self.after(slot).into();
        self.cq_head.store(head, Ordering::Release);
        head
    }

    /// Ends a transfer whose completion is taken as it comes. Returns its chain, and its endpoints.
    pub fn pass(&self, cid: u16) -> (OpChain, Endpoints) {
        let mut state = self.state();
        let slot = &mut state.slots[cid as usize];
        let chain = slot.chain;
        self.meter.end(&chain);
        let endpoints = std::mem::take(&mut slot.endpoints);
        (slot.in_flight, slot.detached) = (false, true);
        state.release(cid);
        let sleepers = state.sleepers;
        drop(state);
        self.wake(sleepers);
        (chain, endpoints)
    }
}
