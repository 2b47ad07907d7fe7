//! Reassembly of IPv4 datagrams, bounded in datagrams, bytes and time. (RFC 791, 3.2)
//!
//! The first fragment, which may arrive last, tells which stream a datagram belongs to. So frames are kept as they came: those of no stream
//! go to the legacy function, unchanged and in order.

use crate::interface::{Nanos, Origin};
use crate::wire::{Packet, ports};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

/// Limits on fragments. At a limit the oldest datagram makes room: one that was given up, else one of unknown owner, else a stream's.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Number of datagrams in progress. One source may have half of them.
    pub datagrams: usize,
    /// Bytes of all frames kept.
    pub bytes: usize,
    /// Nanoseconds from the arrival of a datagram's first fragment to that of its last.
    pub time: Nanos,
}

impl Limits {
    /// Returns the usual limits: two datagrams per stream, but 64 to 1,024; 16 KiB for each; 15 seconds (RFC 791).
    pub fn for_streams(streams: u16) -> Limits {
        let datagrams = (2 * usize::from(streams)).clamp(64, 1024);
        Limits { datagrams, bytes: datagrams << 14, time: 15_000_000_000 }
    }
}

impl Default for Limits {
    /// Returns the limits for a single stream.
    fn default() -> Limits {
        Limits::for_streams(1)
    }
}

/// The identity of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    vlan: Option<u16>,
    source: [u8; 4],
    destination: [u8; 4],
    identification: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The first fragment has not arrived.
    Unknown,
    /// The datagram is this run's.
    Ours(Origin),
    /// The datagram is of no stream: further fragments pass.
    Legacy,
    /// The datagram was given up: further fragments are dropped.
    Dropped,
}

#[derive(Debug)]
struct Datagram {
    key: Key,
    until: Nanos,
    fate: Fate,
    frames: Vec<Vec<u8>>,
    /// Frame and range in it of each fragment, by offset in the datagram.
    pieces: BTreeMap<usize, (usize, Range<usize>)>,
    /// Bytes of all pieces, which do not overlap.
    covered: usize,
    /// Length of the datagram, known when the last fragment has arrived.
    end: Option<usize>,
}

impl Datagram {
    fn bytes(&self) -> usize {
        self.frames.iter().map(Vec::len).sum()
    }

    /// Returns the whole datagram, if it has no holes.
    fn whole(&self) -> Option<Vec<u8>> {
        let end = self.end.filter(|end| *end == self.covered)?;
        let mut whole = Vec::with_capacity(end);
        for (frame, place) in self.pieces.values() {
            whole.extend_from_slice(&self.frames[*frame][place.clone()]);
        }
        Some(whole)
    }
}

/// The relation of a fragment to those already kept.
enum Fit {
    New,
    Same,
    Contradicts,
}

impl Datagram {
    fn fit(&self, offset: usize, bytes: &[u8], more: bool) -> Fit {
        let until = offset + bytes.len();
        let last = self.pieces.last_key_value().map_or(0, |(at, (_, place))| at + place.len());
        let ends = match self.end {
            Some(end) if more => until > end,
            Some(end) => until != end,
            None => !more && last > until,
        };
        // All but the last have a multiple of 8 bytes, and none is empty.
        if ends || bytes.is_empty() || until > 65_515 || (more && !bytes.len().is_multiple_of(8)) {
            return Fit::Contradicts;
        }
        let before = self.pieces.range(..until).next_back();
        match before {
            Some((at, (frame, place))) if at + place.len() > offset => {
                let same = *at == offset && self.frames[*frame][place.clone()] == *bytes;
                if same { Fit::Same } else { Fit::Contradicts }
            }
            _ => Fit::New,
        }
    }
}

/// The result of a fragment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// The fragment is kept.
    Held,
    /// The fragment is of no stream, and was not kept.
    Legacy,
    /// The fragment was dropped with its datagram.
    Dropped,
    /// The datagram is complete: its payload, from UDP's header on.
    Whole(Vec<u8>),
    /// The datagram is of no stream: its frames, the last of which is this one.
    Release(Vec<Vec<u8>>),
}

/// The datagrams in progress, the oldest first.
#[derive(Debug)]
pub(crate) struct Reassembly {
    limits: Limits,
    datagrams: VecDeque<Datagram>,
    bytes: usize,
    /// Runs that have lost a datagram, once per datagram. The owner removes them.
    pub lost: Vec<Origin>,
    /// Frames of datagrams that are not known to be a stream's. The owner removes them.
    pub released: Vec<Vec<u8>>,
    /// Datagrams of unknown owner that made room for others. The owner resets the count.
    pub passed: u64,
}

impl Reassembly {
    pub fn new(limits: Limits) -> Reassembly {
        let (lost, released) = (Vec::new(), Vec::new());
        Reassembly { limits, datagrams: VecDeque::new(), bytes: 0, lost, released, passed: 0 }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the time at which the oldest datagram is given up.
    pub fn deadline(&self) -> Option<Nanos> {
        self.datagrams.front().map(|datagram| datagram.until)
    }

    /// Gives up the datagrams whose time has ended at `now`.
    pub fn expire(&mut self, now: Nanos) {
        while self.deadline().is_some_and(|until| until <= now) {
            self.remove(0);
        }
    }

    /// Gives up the datagrams of a run. Returns how many.
    pub fn end(&mut self, run: Origin) -> u64 {
        let before = self.datagrams.len();
        self.datagrams.retain(|datagram| datagram.fate != Fate::Ours(run));
        self.bytes = self.datagrams.iter().map(Datagram::bytes).sum();
        (before - self.datagrams.len()) as u64
    }

    fn remove(&mut self, at: usize) {
        let Some(datagram) = self.datagrams.remove(at) else { return };
        self.bytes -= datagram.bytes();
        match datagram.fate {
            Fate::Unknown => self.released.extend(datagram.frames),
            Fate::Ours(run) => self.lost.push(run),
            Fate::Legacy | Fate::Dropped => {}
        }
    }

    /// Removes one of these datagrams to make room. Returns false if there is none.
    fn evict(&mut self, among: impl Fn(&Datagram) -> bool) -> bool {
        let candidates = self.datagrams.iter().enumerate().filter(|(_, datagram)| among(datagram));
        let worth = |fate| match fate {
            Fate::Legacy | Fate::Dropped => 0,
            Fate::Unknown => 1,
            Fate::Ours(_) => 2,
        };
        let Some((at, datagram)) = candidates.min_by_key(|(_, datagram)| worth(datagram.fate)) else {
            return false;
        };
        self.passed += u64::from(datagram.fate == Fate::Unknown);
        self.remove(at);
        true
    }

    fn find(&self, key: Key) -> Option<usize> {
        self.datagrams.iter().position(|datagram| datagram.key == key)
    }

    /// Takes a fragment. `whose` finds the run that receives the datagram, by its source and destination ports.
    pub fn add(
        &mut self,
        packet: &Packet,
        frame: &[u8],
        now: Nanos,
        whose: impl FnOnce(u16, u16) -> Option<Origin>,
    ) -> Disposition {
        let key = Key {
            vlan: packet.vlan,
            source: packet.source,
            destination: packet.destination,
            identification: packet.identification,
        };
        let at = self.find_or_add(key, packet.offset == 0, now);
        let datagram = &mut self.datagrams[at];
        match datagram.fate {
            Fate::Legacy => return Disposition::Legacy,
            Fate::Dropped => return Disposition::Dropped,
            Fate::Unknown | Fate::Ours(_) => {}
        }
        if packet.offset == 0 && datagram.fate == Fate::Unknown {
            let run = ports(&frame[packet.body.clone()]).and_then(|(from, to)| whose(from, to));
            datagram.fate = run.map_or(Fate::Legacy, Fate::Ours);
        }
        if datagram.fate == Fate::Legacy {
            return self.release(at, frame);
        }
        match datagram.fit(packet.offset, &frame[packet.body.clone()], packet.more) {
            Fit::Same => Disposition::Held,
            Fit::Contradicts => self.give_up(at, frame),
            Fit::New => match self.room(key, frame.len()) {
                Ok(at) => self.keep(at, packet, frame),
                Err(at) => self.give_up(at, frame),
            },
        }
    }

    /// Makes room for a frame of this datagram. Returns the datagram's new index, as an error if there is no room.
    fn room(&mut self, key: Key, bytes: usize) -> Result<usize, usize> {
        let others = |datagram: &Datagram| datagram.key != key && !datagram.frames.is_empty();
        while self.bytes + bytes > self.limits.bytes && self.evict(others) {}
        let at = self.find(key).unwrap_or_default();
        if self.bytes + bytes > self.limits.bytes { Err(at) } else { Ok(at) }
    }

    fn keep(&mut self, at: usize, packet: &Packet, frame: &[u8]) -> Disposition {
        let datagram = &mut self.datagrams[at];
        self.bytes += frame.len();
        datagram.covered += packet.body.len();
        datagram.pieces.insert(packet.offset, (datagram.frames.len(), packet.body.clone()));
        datagram.frames.push(frame.to_vec());
        if !packet.more {
            datagram.end = Some(packet.offset + packet.body.len());
        }
        match datagram.whole() {
            Some(whole) => {
                self.bytes -= datagram.bytes();
                self.datagrams.remove(at);
                Disposition::Whole(whole)
            }
            None => Disposition::Held,
        }
    }

    fn find_or_add(&mut self, key: Key, is_first: bool, now: Nanos) -> usize {
        let source = |datagram: &Datagram| datagram.key.source == key.source;
        if let Some(at) = self.find(key) {
            let is_done_with = matches!(self.datagrams[at].fate, Fate::Legacy | Fate::Dropped);
            if !(is_first && is_done_with) {
                return at;
            }
            // Another datagram has its identification now.
            self.remove(at);
        } else if self.datagrams.iter().filter(|datagram| source(datagram)).count()
            >= self.limits.datagrams.div_ceil(2)
        {
            self.evict(source);
        } else if self.datagrams.len() >= self.limits.datagrams {
            self.evict(|_| true);
        }
        self.datagrams.push_back(Datagram {
            key,
            until: now.saturating_add(self.limits.time),
            fate: Fate::Unknown,
            frames: Vec::new(),
            pieces: BTreeMap::new(),
            covered: 0,
            end: None,
        });
        self.datagrams.len() - 1
    }

    /// Empties a datagram and returns its frames.
    fn empty(&mut self, at: usize, fate: Fate) -> Vec<Vec<u8>> {
        let datagram = &mut self.datagrams[at];
        self.bytes -= datagram.bytes();
        datagram.fate = fate;
        datagram.pieces.clear();
        core::mem::take(&mut datagram.frames)
    }

    fn release(&mut self, at: usize, frame: &[u8]) -> Disposition {
        let mut frames = self.empty(at, Fate::Legacy);
        frames.push(frame.to_vec());
        Disposition::Release(frames)
    }

    /// Gives up a datagram for which there is no room, or whose fragments overlap. A stream's is dropped and counted; any other goes to the
    /// legacy function.
    fn give_up(&mut self, at: usize, frame: &[u8]) -> Disposition {
        match self.datagrams[at].fate {
            Fate::Ours(run) => {
                self.lost.push(run);
                self.empty(at, Fate::Dropped);
                Disposition::Dropped
            }
            _ => self.release(at, frame),
        }
    }
}
