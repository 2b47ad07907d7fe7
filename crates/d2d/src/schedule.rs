//! Whose turn it is: streams that may have something to do, in a circle, and those that wait for a time.
//!
//! No poll looks at all streams: a stream is in the circle after something has happened to it, once at most,
//! and has one timer at most.

use crate::interface::Nanos;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

/// A circle of streams: each is in it once, whoever comes first is served first.
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

    /// Takes one stream whose time has come.
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
