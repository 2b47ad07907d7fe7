//! The streams of one engine that have something to send, by when it is due: one timer for all of them.

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
    /// Operations that wait for room, or for the last datagram.
    waiting: Vec<OperationId>,
    /// When its turn is.
    turn: Option<Nanos>,
}

/// All streams.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: HashMap<usize, Stream>,
    /// Turns. What is no stream's turn any more is left out when its time comes.
    turns: BinaryHeap<Reverse<(Nanos, usize)>>,
}

impl Streams {
    /// True where none is known.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty() && self.turns.is_empty()
    }

    /// A stream has something to send; an operation waits for it, or not.
    pub fn add(&mut self, endpoint: &Arc<Endpoint>, next: Option<Nanos>, waits: Option<OperationId>) {
        let key = Arc::as_ptr(endpoint) as usize;
        let stream = self.streams.entry(key).or_insert_with(|| Stream {
            endpoint: Arc::clone(endpoint),
            waiting: Vec::new(),
            turn: None,
        });
        stream.waiting.extend(waits);
        // One that waits, and has no time, is to be looked at: it may have room.
        let next = next.or_else(|| waits.map(|_| now()));
        if let Some(next) = next
            && stream.turn.is_none_or(|turn| next < turn)
        {
            stream.turn = Some(next);
            self.turns.push(Reverse((next, key)));
        }
    }

    /// An operation waits no more.
    pub fn forget(&mut self, operation: OperationId) {
        self.streams.values_mut().for_each(|stream| stream.waiting.retain(|id| *id != operation));
    }

    /// Time until the first turn.
    pub fn until_due(&self) -> Option<Duration> {
        let Reverse((turn, _)) = self.turns.peek()?;
        Some(Duration::from_nanos(turn.saturating_sub(now())))
    }

    /// Sends what is due; operations that may go on are added to `ready`.
    pub fn send_due(&mut self, ready: &mut Vec<OperationId>) {
        // Not more than there are: a stream that always has something due takes its turn again later.
        for _ in 0..self.turns.len() {
            let Some(Reverse((turn, key))) = self.turns.peek().copied() else { return };
            if turn > now() {
                return;
            }
            self.turns.pop();
            let Some(stream) = self.streams.get_mut(&key).filter(|stream| stream.turn == Some(turn)) else {
                continue;
            };
            let Object::Paced(Paced::Out(outgoing)) = &stream.endpoint.object else { continue };
            let progress = locked(outgoing).send_due();
            stream.turn = progress.next;
            if progress.wants || progress.is_empty {
                ready.append(&mut stream.waiting);
            }
            match progress.next {
                Some(next) => self.turns.push(Reverse((next, key))),
                // It has nothing to do before a transfer writes to it.
                None if stream.waiting.is_empty() => _ = self.streams.remove(&key),
                None => {}
            }
        }
    }
}
