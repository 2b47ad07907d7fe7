//! The sender of one stream: bytes go in as they are read, datagrams come out when they are due.

use crate::clock::{Clock, Pacing, Span};
use crate::continuity::Continuity;
use crate::ring::Ring;
use crate::rtcp::{self, Report};
use crate::rtp::{self, Header};
use crate::ts::{self, Packet};
use crate::{Framing, Nanos};

/// Initial number of datagrams that a sender has room for.
const SLOTS: usize = 64;
/// Most datagrams: there may be that many between two clock references.
pub(crate) const SLOTS_MAX: usize = 8192;
/// Most datagrams of one batch, as limited by UDP in one call (UDP_SEGMENT).
const BATCH: u64 = 64;
/// Most bytes of one batch.
const BATCH_BYTES: usize = 65_000;
/// Packets at a stream's start that must be valid.
const SYNC_PACKETS: u64 = 5;
/// Delay after its time beyond which a datagram counts as late, in nanoseconds.
pub const LATE_AFTER: u64 = 5_000_000;
/// Lateness of the first due datagram, in nanoseconds, beyond which all later ones are postponed instead of being sent in a burst.
pub const SLIP: u64 = 250_000_000;
/// Upper bounds of the classes of [`Statistics::deviations`], in nanoseconds; the last class has none.
pub const DEVIATIONS: [u64; 11] = [
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    100_000_000,
    250_000_000,
];

/// The reason why a sender refuses bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Pacing by PCR is set, and the bytes are not a transport stream.
    #[error("not an MPEG transport stream (expected packets of 188 bytes that begin with 47h)")]
    NotTransportStream,
    /// Pacing by PCR is set, and there is none.
    #[error("the stream has no clock reference (PCR) to pace it by")]
    NoClock,
}

/// The settings of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Header before the payload.
    pub framing: Framing,
    /// Size of a datagram's payload in bytes; a multiple of 188 for a transport stream.
    pub payload: usize,
    /// First header: the stream's identifier, first sequence number and first timestamp; random, if that
    /// matters.
    pub first: Header,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { framing: Framing::Plain, payload: ts::PAYLOAD, first: Header::default() }
    }
}

/// Counts of a stream's datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Datagrams sent.
    pub datagrams: u64,
    /// Bytes of payload sent.
    pub bytes: u64,
    /// Datagrams sent more than [`LATE_AFTER`] after their time.
    pub late: u64,
    /// Largest deviation from the due time, in nanoseconds, early or late.
    pub worst: u64,
    /// Datagrams by their deviation; see [`DEVIATIONS`].
    pub deviations: [u64; DEVIATIONS.len() + 1],
    /// Number of times that all later datagrams were postponed, since the bytes came too late.
    pub slips: u64,
    /// Total time by which they were postponed, in nanoseconds.
    pub slipped: u64,
    /// Datagrams that the network did not take.
    pub lost: u64,
    /// Clock references that jumped without a discontinuity indicator.
    pub jumps: u64,
    /// Bytes skipped because they are not a packet of a transport stream.
    pub skipped: u64,
}

impl Statistics {
    /// Returns the deviation that this part of the datagrams does not exceed: the upper bound of its class, in nanoseconds, or the largest
    /// deviation for the last class.
    pub fn quantile(&self, part: f64) -> u64 {
        let wanted = (self.datagrams as f64 * part).ceil() as u64;
        let mut sum = 0;
        for (count, bound) in self.deviations.iter().zip(DEVIATIONS) {
            sum += count;
            if sum >= wanted {
                return bound.min(self.worst);
            }
        }
        self.worst
    }
}

/// A batch of due datagrams that are adjacent in memory, all of them [`Batch::size`] long except the last.
#[derive(Debug)]
pub struct Batch<'a> {
    /// Bytes of the datagrams.
    pub bytes: &'a [u8],
    /// Size of each datagram in bytes, with its header.
    pub size: usize,
    /// Number of datagrams.
    pub count: u64,
}

/// A stream's sender.
#[derive(Debug)]
pub struct Sender {
    settings: Settings,
    ring: Ring,
    clock: Clock,
    continuity: Option<Continuity>,
    /// Bytes in the datagram that is being filled.
    fill: usize,
    /// Total number of bytes so far.
    position: u64,
    /// Number of packets since the transfer began.
    packets: u64,
    /// Set if the clock of the following bytes starts over: its first reference must say so.
    renewed: bool,
    /// Set if the next bytes follow without a pause.
    joined: bool,
    /// Time that timestamps count from.
    origin: Option<Nanos>,
    /// Number of the first datagram after a slip: its timestamp jumps.
    marked: Option<u64>,
    statistics: Statistics,
}

impl Sender {
    /// Makes a sender that has nothing to send.
    pub fn new(settings: Settings) -> Sender {
        let payload = settings.payload.clamp(ts::PACKET, BATCH_BYTES - rtp::HEADER);
        Sender {
            settings: Settings { payload, ..settings },
            ring: Ring::new(SLOTS, settings.framing.header(), payload),
            clock: Clock::new(),
            continuity: None,
            fill: 0,
            position: 0,
            packets: 0,
            renewed: false,
            joined: false,
            origin: None,
            marked: None,
            statistics: Statistics::default(),
        }
    }

    /// Returns its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the counts so far.
    pub fn statistics(&self) -> Statistics {
        Statistics { jumps: self.clock.jumps, ..self.statistics }
    }

    /// Begins another transfer. If the previous one ended with `more`, it follows without a pause.
    pub fn begin(&mut self, pacing: Pacing) {
        let joined = std::mem::take(&mut self.joined);
        self.clock.begin(pacing, self.position, joined);
        self.packets = 0;
        self.renewed = self.continuity.is_some();
        match &mut self.continuity {
            Some(continuity) => continuity.join(),
            None if pacing == Pacing::Pcr => self.continuity = Some(Continuity::new()),
            None => {}
        }
    }

    /// Takes bytes; returns how many there was room for.
    ///
    /// # Errors
    ///
    /// [`Error`]: the transfer is over then; bytes taken before are sent.
    pub fn push(&mut self, mut bytes: &[u8], now: Nanos) -> Result<usize, Error> {
        let (given, paced) = (bytes.len(), self.clock.pacing() == Pacing::Pcr);
        while !bytes.is_empty() && self.has_room(now)? {
            if self.fill == 0 {
                self.ring.slot(self.ring.tail).position = self.position;
            }
            let room = match paced {
                true => ts::PACKET - self.fill % ts::PACKET,
                false => self.settings.payload - self.fill,
            };
            let (piece, rest) = bytes.split_at(room.min(bytes.len()));
            let fill = self.fill;
            self.ring.payload(self.ring.tail)[fill..fill + piece.len()].copy_from_slice(piece);
            self.fill += piece.len();
            self.position += piece.len() as u64;
            bytes = rest;
            if paced && self.fill.is_multiple_of(ts::PACKET) {
                self.packet(now)?;
            }
            let is_full = match paced {
                true => {
                    self.fill.is_multiple_of(ts::PACKET) && self.fill + ts::PACKET > self.settings.payload
                }
                false => self.fill == self.settings.payload,
            };
            if is_full {
                self.close(now);
            }
        }
        Ok(given - bytes.len())
    }

    /// Ends a transfer: all its bytes are here. `more`: another one follows without a pause, and fills up the last datagram.
    ///
    /// # Errors
    ///
    /// [`Error`] if there were too few bytes to identify them, or nothing gave the pace of several datagrams.
    pub fn end(&mut self, more: bool, now: Nanos) -> Result<(), Error> {
        let paced = self.clock.pacing() == Pacing::Pcr;
        let cut = if paced { self.fill % ts::PACKET } else { 0 };
        self.fill -= cut;
        self.position -= cut as u64;
        self.statistics.skipped += cut as u64;
        let untimed = (self.ring.tail + u64::from(self.fill > 0)).saturating_sub(self.ring.timed);
        let clockless = paced && untimed > 1 && !self.clock.has_rate();
        let span = self.clock.finish(self.position, now);
        self.time(span);
        self.joined = more;
        if !more && self.fill > 0 {
            self.close(now);
        }
        if paced && cut > 0 && self.packets == 0 {
            return Err(Error::NotTransportStream);
        }
        if clockless { Err(Error::NoClock) } else { Ok(()) }
    }

    /// Returns true if everything that was taken was sent.
    pub fn is_empty(&self) -> bool {
        self.ring.head == self.ring.tail
    }

    /// Returns true if there is ample room: half of it, or nothing can be sent before more bytes come.
    pub fn wants(&self) -> bool {
        let used = (self.ring.tail - self.ring.head) as usize;
        used * 2 <= self.ring.capacity() || self.ring.timed <= self.ring.head
    }

    /// Returns the time at which the next datagram is due.
    pub fn next_due(&mut self) -> Option<Nanos> {
        let head = self.ring.head;
        (head < self.ring.timed.min(self.ring.tail)).then(|| self.ring.slot(head).due)
    }

    /// Returns datagrams that are due until then, to be sent at `now`. Returns the same again until [`Sender::sent`] or [`Sender::lost`] is
    /// called.
    pub fn batch(&mut self, until: Nanos, now: Nanos) -> Option<Batch<'_>> {
        let first = self.ring.head;
        let due = self.next_due().filter(|due| *due <= until)?;
        let late = now.saturating_sub(due);
        if late > SLIP {
            self.slip(late);
        }
        let size = self.settings.framing.header() + self.settings.payload;
        let most = BATCH.min((BATCH_BYTES / size).max(1) as u64).min(self.ring.contiguous(first));
        let end = (first + most).min(self.ring.timed).min(self.ring.tail);
        let mut count = 0;
        while first + count < end {
            let slot = *self.ring.slot(first + count);
            if slot.due > until.max(due + late) {
                break;
            }
            self.write_header(first + count, slot.due);
            count += 1;
            if slot.length < self.settings.payload {
                break;
            }
        }
        Some(Batch { bytes: self.ring.run(first, count), size, count })
    }

    /// Notes that this many datagrams of the last batch were sent at `now`.
    pub fn sent(&mut self, count: u64, now: Nanos) {
        for _ in 0..count.min(self.ring.tail - self.ring.head) {
            let slot = *self.ring.slot(self.ring.head);
            self.ring.head += 1;
            let deviation = now.abs_diff(slot.due);
            let class = DEVIATIONS.iter().position(|bound| deviation <= *bound).unwrap_or(DEVIATIONS.len());
            let counted = &mut self.statistics;
            counted.datagrams += 1;
            counted.bytes += slot.length as u64;
            counted.deviations[class] += 1;
            counted.worst = counted.worst.max(deviation);
            counted.late += u64::from(now > slot.due && deviation > LATE_AFTER);
        }
        self.give_back();
    }

    /// Notes that this many datagrams of the last batch were refused, and are not tried again.
    pub fn lost(&mut self, count: u64) {
        let count = count.min(self.ring.tail - self.ring.head);
        self.ring.head += count;
        self.statistics.lost += count;
        self.give_back();
    }

    /// Gives back the memory in which datagrams waited for a clock, once all of them are gone.
    fn give_back(&mut self) {
        if self.fill == 0 && self.is_empty() {
            self.ring.shrink();
        }
    }

    /// Returns a report about what was sent, for the receivers; `unix`: nanoseconds since 1970, at `now`.
    pub fn report(&self, now: Nanos, unix: u64) -> Report {
        Report {
            ssrc: self.settings.first.ssrc,
            ntp: rtcp::ntp(unix),
            timestamp: self.timestamp(now),
            packets: self.statistics.datagrams as u32,
            octets: self.statistics.bytes as u32,
        }
    }

    fn timestamp(&self, due: Nanos) -> u32 {
        let since = due.saturating_sub(self.origin.unwrap_or(due));
        self.settings.first.timestamp.wrapping_add(rtp::ticks(since))
    }

    fn write_header(&mut self, number: u64, due: Nanos) {
        self.origin.get_or_insert(due);
        if self.settings.framing != Framing::Rtp {
            return;
        }
        let header = Header {
            marker: self.marked == Some(number),
            payload_type: rtp::MP2T,
            sequence: self.settings.first.sequence.wrapping_add(number as u16),
            timestamp: self.timestamp(due),
            ssrc: self.settings.first.ssrc,
        };
        if let Some(bytes) = self.ring.header(number).first_chunk_mut() {
            header.write(bytes);
        }
    }

    /// Returns true if there is room in the datagram that is being filled.
    fn has_room(&mut self, now: Nanos) -> Result<bool, Error> {
        if !self.ring.is_full() {
            return Ok(true);
        }
        if self.ring.timed > self.ring.head {
            return Ok(false);
        }
        // Nothing can be sent before the next clock reference arrives.
        if self.ring.capacity() >= SLOTS_MAX || !self.ring.grow() {
            let span = self.clock.finish(self.position, now);
            self.time(span);
            return Err(Error::NoClock);
        }
        Ok(true)
    }

    /// Processes the packet that was just filled in.
    fn packet(&mut self, now: Nanos) -> Result<(), Error> {
        let (tail, fill) = (self.ring.tail, self.fill);
        let bytes = &mut self.ring.payload(tail)[fill - ts::PACKET..fill];
        let parsed = bytes.first_chunk().and_then(Packet::parse);
        let Some(packet) = parsed else { return self.resynchronise() };
        self.packets += 1;
        if packet.pcr.is_some() && std::mem::take(&mut self.renewed) {
            ts::set_discontinuity(bytes);
        }
        if let Some(continuity) = &mut self.continuity {
            continuity.adjust(&packet, bytes);
        }
        if packet.pcr.is_some() {
            let span = self.clock.reference(&packet, self.position - ts::PACKET as u64, now);
            self.time(span);
        }
        Ok(())
    }

    /// Skips the bytes before the next sync byte.
    fn resynchronise(&mut self) -> Result<(), Error> {
        if self.packets < SYNC_PACKETS {
            self.fill -= ts::PACKET;
            self.position -= ts::PACKET as u64;
            return Err(Error::NotTransportStream);
        }
        let (tail, fill) = (self.ring.tail, self.fill);
        let bytes = &mut self.ring.payload(tail)[fill - ts::PACKET..fill];
        let skipped = bytes.iter().skip(1).position(|byte| *byte == ts::SYNC).map_or(ts::PACKET, |at| at + 1);
        bytes.copy_within(skipped.., 0);
        self.fill -= skipped;
        self.position -= skipped as u64;
        self.statistics.skipped += skipped as u64;
        Ok(())
    }

    /// Closes the datagram, which is full or must be sent as it is.
    fn close(&mut self, now: Nanos) {
        let length = std::mem::take(&mut self.fill);
        let tail = self.ring.tail;
        self.ring.slot(tail).length = length;
        self.ring.tail += 1;
        let span = self.clock.advance(self.position, now);
        self.time(span);
    }

    /// Sets the times of datagrams.
    fn time(&mut self, span: Option<Span>) {
        let Some(span) = span else { return };
        let open = u64::from(self.fill > 0);
        while self.ring.timed < self.ring.tail + open {
            let slot = self.ring.slot(self.ring.timed);
            if slot.position >= span.until {
                return;
            }
            slot.due = span.due(slot.position);
            self.ring.timed += 1;
        }
    }

    /// Postpones everything that follows, since the bytes came too late.
    fn slip(&mut self, by: u64) {
        for number in self.ring.head..self.ring.timed {
            self.ring.slot(number).due += by;
        }
        self.clock.shift(by);
        self.marked = Some(self.ring.head);
        self.statistics.slips += 1;
        self.statistics.slipped += by;
    }
}
