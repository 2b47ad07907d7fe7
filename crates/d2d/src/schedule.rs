//! Turns and timers of streams. No poll looks at all streams: a stream is in the circle, once at most, after something has happened to it,
//! and has at most one timer.

use crate::interface::Nanos;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

/// A queue of streams, each of which is in it at most once.
#[derive(Debug)]
pub(crate) struct Circle {
    order: VecDeque<u16>,
    inside: Vec<bool>,
}

impl Circle {
    pub fn new(streams: u16) -> Circle {
        Circle { order: VecDeque::new(), inside: vec![false; streams.into()] }
    }

    pub fn add(&mut self, stream: u16) {
        let inside = &mut self.inside[usize::from(stream)];
        if !core::mem::replace(inside, true) {
            self.order.push_back(stream);
        }
    }

    pub fn next(&mut self) -> Option<u16> {
        let stream = self.order.pop_front()?;
        self.inside[usize::from(stream)] = false;
        Some(stream)
    }

    pub fn first(&self) -> Option<u16> {
        self.order.front().copied()
    }

    pub fn clear(&mut self) {
        self.order.clear();
        self.inside.fill(false);
    }
}

/// The streams' timers.
#[derive(Debug)]
pub(crate) struct Timers {
    order: BTreeSet<(Nanos, u16)>,
    of: Vec<Option<Nanos>>,
}

impl Timers {
    pub fn new(streams: u16) -> Timers {
        Timers { order: BTreeSet::new(), of: vec![None; streams.into()] }
    }

    pub fn set(&mut self, stream: u16, time: Option<Nanos>) {
        let old = &mut self.of[usize::from(stream)];
        if *old == time {
            return;
        }
        if let Some(old) = old.take() {
            self.order.remove(&(old, stream));
        }
        if let Some(time) = time {
            self.order.insert((time, stream));
        }
        *old = time;
    }

    /// Takes a stream whose timer has expired.
    pub fn expired(&mut self, now: Nanos) -> Option<u16> {
        let (_, stream) = self.order.first().copied().filter(|(time, _)| *time <= now)?;
        self.set(stream, None);
        Some(stream)
    }

    pub fn first(&self) -> Option<Nanos> {
        self.order.first().map(|(time, _)| *time)
    }

    pub fn clear(&mut self) {
        self.order.clear();
        self.of.fill(None);
    }
}
