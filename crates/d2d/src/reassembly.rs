//! Reassembly of IPv4 datagrams, bounded in datagrams, bytes and time. (RFC 791, 3.2)
//!
//! Which stream a datagram belongs to is said by its first fragment, which may come last. So the frames are
//! kept as they came: if it turns out to be nobody's here, they go on to the legacy function, untouched and
//! in their order.

use crate::interface::Nanos;
use crate::wire::{Packet, ports};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

/// Bounds on what fragments may occupy.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Datagrams of which something was seen.
    pub datagrams: usize,
    /// Bytes of frames that are kept.
    pub bytes: usize,
    /// Nanoseconds from a datagram's first fragment to come to its last.
    pub time: Nanos,
}

impl Default for Limits {
    /// 64 datagrams, a mebibyte, and 15 seconds, which RFC 791 names.
    fn default() -> Limits {
        Limits { datagrams: 64, bytes: 1 << 20, time: 15_000_000_000 }
    }
}

/// What tells datagrams apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    vlan: Option<u16>,
    source: [u8; 4],
    destination: [u8; 4],
    identification: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The first fragment has not come.
    Unknown,
    /// It has, and is a stream's.
    Ours,
    /// It is nobody's here: what comes passes.
    Legacy,
    /// It was given up: what comes is dropped.
    Dropped,
}

#[derive(Debug)]
struct Datagram {
    key: Key,
    until: Nanos,
    fate: Fate,
    frames: Vec<Vec<u8>>,
    /// By their place in the datagram: the frame, and the place in it.
    pieces: BTreeMap<usize, (usize, Range<usize>)>,
    /// Bytes of all pieces; none overlap.
    covered: usize,
    /// Bytes of the datagram, once the last fragment has come.
    end: Option<usize>,
}

impl Datagram {
    fn bytes(&self) -> usize {
        self.frames.iter().map(Vec::len).sum()
    }

    /// The whole, if there are no holes.
    fn whole(&self) -> Option<Vec<u8>> {
        let end = self.end.filter(|end| *end == self.covered)?;
        let mut whole = Vec::with_capacity(end);
        for (frame, place) in self.pieces.values() {
            whole.extend_from_slice(&self.frames[*frame][place.clone()]);
        }
        Some(whole)
    }
}

/// A fragment beside those that are there.
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
        // Only the last may have any length, and none is empty.
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

/// What became of a fragment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// It is kept.
    Held,
    /// It is nobody's here, and not kept: the caller has it.
    Legacy,
    /// It was dropped. True: with the datagram, which is counted now.
    Dropped(bool),
    /// The datagram is whole: its payload from UDP's header on.
    Whole(Vec<u8>),
    /// It is nobody's here: these frames, the last being this one.
    Release(Vec<Vec<u8>>),
}

/// The datagrams under way, the oldest first.
#[derive(Debug)]
pub(crate) struct Reassembly {
    limits: Limits,
    datagrams: VecDeque<Datagram>,
    bytes: usize,
}

impl Reassembly {
    pub fn new(limits: Limits) -> Reassembly {
        Reassembly { limits, datagrams: VecDeque::new(), bytes: 0 }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the oldest is given up.
    pub fn deadline(&self) -> Option<Nanos> {
        self.datagrams.front().map(|datagram| datagram.until)
    }

    /// Gives up one datagram whose time is over at `now`. Frames that may be the legacy function's come back;
    /// None: nothing is over. The number says how many datagrams were lost to a stream.
    pub fn expire(&mut self, now: Nanos) -> Option<(Vec<Vec<u8>>, u64)> {
        self.deadline().filter(|until| *until <= now)?;
        let datagram = self.datagrams.pop_front()?;
        self.bytes -= datagram.bytes();
        Some(match datagram.fate {
            Fate::Unknown => (datagram.frames, 0),
            Fate::Ours => (Vec::new(), 1),
            Fate::Legacy | Fate::Dropped => (Vec::new(), 0),
        })
    }

    /// Takes a fragment. `is_ours` tells from the ports, source and destination, whether a stream wants the
    /// datagram.
    pub fn add(
        &mut self,
        packet: &Packet,
        frame: &[u8],
        now: Nanos,
        is_ours: impl FnOnce(u16, u16) -> bool,
    ) -> Disposition {
        let key = Key {
            vlan: packet.vlan,
            source: packet.source,
            destination: packet.destination,
            identification: packet.identification,
        };
        let Some(at) = self.find_or_add(key, now) else { return Disposition::Legacy };
        let datagram = &mut self.datagrams[at];
        match datagram.fate {
            Fate::Legacy => return Disposition::Legacy,
            Fate::Dropped => return Disposition::Dropped(false),
            Fate::Unknown | Fate::Ours => {}
        }
        if packet.offset == 0 && datagram.fate == Fate::Unknown {
            let ours = ports(&frame[packet.body.clone()]).is_some_and(|(from, to)| is_ours(from, to));
            datagram.fate = if ours { Fate::Ours } else { Fate::Legacy };
        }
        if datagram.fate == Fate::Legacy {
            return self.release(at, frame);
        }
        match datagram.fit(packet.offset, &frame[packet.body.clone()], packet.more) {
            Fit::Same => Disposition::Held,
            Fit::Contradicts => self.give_up(at, frame),
            Fit::New if self.bytes + frame.len() > self.limits.bytes => self.give_up(at, frame),
            Fit::New => {
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
        }
    }

    fn find_or_add(&mut self, key: Key, now: Nanos) -> Option<usize> {
        if let Some(at) = self.datagrams.iter().position(|datagram| datagram.key == key) {
            return Some(at);
        }
        if self.datagrams.len() >= self.limits.datagrams {
            // One whose fate is known and whose frames are not kept can be forgotten: the rest of it passes
            // or times out.
            let forgotten = |datagram: &Datagram| matches!(datagram.fate, Fate::Legacy | Fate::Dropped);
            let at = self.datagrams.iter().position(forgotten)?;
            self.datagrams.remove(at);
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
        Some(self.datagrams.len() - 1)
    }

    /// Forgets what is kept of a datagram, and gives the frames out.
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

    /// Gives up a datagram for which there is no room, or whose fragments overlap: a stream's is dropped,
    /// another goes on as it came.
    fn give_up(&mut self, at: usize, frame: &[u8]) -> Disposition {
        if self.datagrams[at].fate == Fate::Unknown {
            return self.release(at, frame);
        }
        self.empty(at, Fate::Dropped);
        Disposition::Dropped(true)
    }
}
