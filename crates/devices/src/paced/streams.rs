//! The streams of one engine that have something to send, ordered by when it is due: one timer for all of them.

use crate::endpoint::{Endpoint, Object};
use crate::paced::{Paced, locked, now};
use dcs_engine::OperationId;
use dcs_media::Nanos;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// A stream.
#[derive(Debug)]
struct Stream {
    endpoint: Arc<Endpoint>,
    /// Operations that wait for room, or until the last datagram is sent.
    waiting: Vec<OperationId>,
    /// Time of its next turn.
    turn: Option<Nanos>,
}

/// The streams of an engine.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: HashMap<usize, Stream>,
    /// Turns. An entry that is no longer any stream's turn is skipped when its time comes.
    turns: BinaryHeap<Reverse<(Nanos, usize)>>,
}

impl Streams {
    /// Returns true if there is no stream.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty() && self.turns.is_empty()
    }

    /// Adds a stream that has something to send, and an operation that waits for it, if any.
    pub fn add(&mut self, endpoint: &Arc<Endpoint>, next: Option<Nanos>, waits: Option<OperationId>) {
        let key = Arc::as_ptr(endpoint) as usize;
        let stream = self.streams.entry(key).or_insert_with(|| Stream {
            endpoint: Arc::clone(endpoint),
            waiting: Vec::new(),
            turn: None,
        });
        stream.waiting.extend(waits);
        // A stream with a waiting operation but no time is polled: it may have room.
        let next = next.or_else(|| waits.map(|_| now()));
        if let Some(next) = next
            && stream.turn.is_none_or(|turn| next < turn)
        {
            stream.turn = Some(next);
            self.turns.push(Reverse((next, key)));
        }
    }

    /// Removes an operation that no longer waits.
    pub fn forget(&mut self, operation: OperationId) {
        self.streams.values_mut().for_each(|stream| stream.waiting.retain(|id| *id != operation));
    }

    /// Returns the time until the first turn.
    pub fn until_due(&self) -> Option<Duration> {
        let Reverse((turn, _)) = self.turns.peek()?;
        Some(Duration::from_nanos(turn.saturating_sub(now())))
    }

    /// Sends what is due; operations that may go on are added to `ready`.
    pub fn send_due(&mut self, ready: &mut Vec<OperationId>) {
        // No more turns than there are now: a stream that always has something due takes its next turn later.
        for _ in 0..self.turns.len() {
            let Some(Reverse((turn, key))) = self.turns.peek().copied() else { return };
            let now = now();
            if turn > now {
                return;
            }
            self.turns.pop();
            let Some(stream) = self.streams.get_mut(&key).filter(|stream| stream.turn == Some(turn)) else {
                continue;
            };
            let Object::Paced(Paced::Out(outgoing)) = &stream.endpoint.object else { continue };
            let progress = locked(outgoing).send_due(now);
            stream.turn = progress.next;
            if progress.wants || progress.is_empty {
                ready.append(&mut stream.waiting);
            }
            match progress.next {
                Some(next) => self.turns.push(Reverse((next, key))),
                // It has nothing to do until a transfer writes to it.
                None if stream.waiting.is_empty() => _ = self.streams.remove(&key),
                None => {}
            }
        }
    }
}
