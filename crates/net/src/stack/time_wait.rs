//! Remains of connections in TIME-WAIT (RFC 9293, 3.3.2; RFC 6191).

use super::Tuple;
use crate::message::Nanos;
use crate::tcp::segment::{Flags, Header, OptionBytes, Segment, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug)]
pub(super) struct TimeWait {
    pub(super) snd_nxt: u32,
    pub(super) rcv_nxt: u32,
    /// TS.Recent, and the offset of our clock.
    pub(super) stamps: Option<(u32, u32)>,
    pub(super) until: Nanos,
}

/// The effect of a segment on a connection in TIME-WAIT.
#[derive(Debug)]
pub(super) enum Answer {
    Nothing,
    Acknowledge(Header),
    /// The segment opens a new connection.
    Open,
}

#[derive(Debug, Default)]
pub(super) struct TimeWaits {
    entries: BTreeMap<Tuple, TimeWait>,
    ends: BTreeSet<(Nanos, Tuple)>,
}

impl TimeWaits {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn contains(&self, tuple: &Tuple) -> bool {
        self.entries.contains_key(tuple)
    }

    /// Adds an entry; if there are `most`, evicts the one that ends first.
    pub(super) fn insert(&mut self, tuple: Tuple, entry: TimeWait, most: usize) {
        self.remove(&tuple);
        while self.entries.len() >= most.max(1) {
            let Some((_, first)) = self.ends.first().copied() else { break };
            self.remove(&first);
        }
        self.ends.insert((entry.until, tuple));
        self.entries.insert(tuple, entry);
    }

    pub(super) fn remove(&mut self, tuple: &Tuple) {
        if let Some(entry) = self.entries.remove(tuple) {
            self.ends.remove(&(entry.until, *tuple));
        }
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.ends.first().map(|(until, _)| *until)
    }

    pub(super) fn poll(&mut self, now: Nanos) {
        while let Some((_, tuple)) = self.ends.first().copied().filter(|(until, _)| *until <= now) {
            self.remove(&tuple);
        }
    }

    /// Handles a segment for an entry. Resets are ignored (RFC 1337).
    pub(super) fn segment(
        &mut self,
        tuple: &Tuple,
        segment: &Segment,
        now: Nanos,
        lifetime: Nanos,
    ) -> Answer {
        let Some(entry) = self.entries.get(tuple).copied() else { return Answer::Nothing };
        if segment.flags.rst {
            return Answer::Nothing;
        }
        if segment.flags.syn && segment.ack.is_none() {
            let later = (segment.seq.wrapping_sub(entry.rcv_nxt) as i32) > 0;
            let stamp = segment.options.timestamp.zip(entry.stamps);
            let newer =
                stamp.is_some_and(|(stamp, (recent, _))| (stamp.value.wrapping_sub(recent) as i32) > 0);
            if later || newer {
                self.remove(tuple);
                return Answer::Open;
            }
        }
        if segment.sequence_length() == 0 {
            return Answer::Nothing;
        }
        if segment.flags.fin {
            let until = now.saturating_add(lifetime);
            self.insert(*tuple, TimeWait { until, ..entry }, usize::MAX);
        }
        let mut options = OptionBytes::default();
        if let Some((recent, offset)) = entry.stamps {
            let value = ((now / 1_000_000) as u32).wrapping_add(offset);
            options.timestamp(Timestamp { value, echo: recent });
        }
        Answer::Acknowledge(Header {
            ports: (segment.to.port(), segment.from.port()),
            seq: entry.snd_nxt,
            ack: Some(entry.rcv_nxt),
            flags: Flags::default(),
            window: 0xffff,
            options,
        })
    }
}
