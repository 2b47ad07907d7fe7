//! Media streams of a network: destinations of transfers, whose bytes leave in datagrams, each when it is due.
//!
//! A stream keeps its datagrams until they are due; then they are copied to places that the NIC reads. A batch at a time is with the NIC,
//! and is counted when that has sent it. Without a link, or a way to the peer, datagrams are counted as lost when they are due, and the
//! stream goes on.

use super::Network;
use super::udp::Ends;
use crate::bus::{Bus, Region};
use crate::pacer::Pacer;
use core::net::SocketAddrV4;
use dcs_abi::admin::PacedOptions;
use dcs_abi::descriptor::Pace;
use dcs_abi::status::Status;
use dcs_engine::{DeviceEvent, Nanos, OperationId, Outcome};
use dcs_media::rtp::Header;
use dcs_media::{Framing, rtcp, sender};
use dcs_net::{Chunk, Piece, Stack};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// errno of datagrams that are lost since there is no link, or the NIC was reset (ENETDOWN).
const NO_LINK: u32 = 100;
/// errno if nothing answers at the address of the peer or the gateway (EHOSTUNREACH).
const UNREACHABLE: u32 = 113;

/// Most streams of one NIC.
const STREAMS: usize = 2048;
/// Most datagrams that are with the NIC at once, and the bytes of each one's place.
const PLACES: usize = 256;
const PLACE: u64 = 1536;
/// First local port of streams. A stream has an even one, its reports the next.
const FIRST_PORT: u16 = 49_152;
/// Hops of datagrams to a single host.
const HOPS: u8 = 64;
/// Time for which a datagram waits for the neighbour's address before it is lost, and the interval between two looks.
const PATIENCE: Nanos = 100_000_000;
const LOOK: Nanos = 1_000_000;

/// The bytes that the places of datagrams take.
pub(super) const MEMORY: u64 = PLACES as u64 * PLACE;

/// The streams of a network.
#[derive(Debug, Default)]
pub(super) struct Streams {
    streams: BTreeMap<u32, Stream>,
    /// Turns: when a stream has something to do.
    turns: BTreeSet<(Nanos, u32)>,
    places: Vec<Region>,
    free: Vec<usize>,
    /// Datagrams that the stack or the NIC has, by token.
    in_flight: HashMap<u64, InFlight>,
    last: u32,
    last_port: u16,
    bytes: Vec<u8>,
}

/// A datagram that the stack or the NIC has.
#[derive(Debug)]
struct InFlight {
    stream: u32,
    place: usize,
    kind: Kind,
    /// Reason why it will not be sent.
    errno: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Media,
    Report,
    Goodbye,
}

#[derive(Debug)]
struct Stream {
    pacer: Pacer,
    ends: Ends,
    hops: u8,
    reports: Option<Reports>,
    /// Operations that wait for room, or until the last datagram is sent.
    waiting: VecDeque<Waiting>,
    /// Datagrams of the batch that is with the NIC.
    given: u64,
    turn: Option<Nanos>,
    errno: u32,
    /// Set if no transfer can name it any more: it ends when everything is sent.
    released: bool,
    /// Set once its goodbye is with the NIC.
    leaving: bool,
}

#[derive(Debug)]
struct Reports {
    ends: Ends,
    next: Nanos,
    /// Nanoseconds since 1970 when the network's time began.
    epoch: u64,
}

#[derive(Debug)]
enum Waiting {
    Write(OperationId, Piece),
    Flush(OperationId),
}

impl Waiting {
    fn operation(&self) -> OperationId {
        match self {
            Waiting::Write(operation, _) | Waiting::Flush(operation) => *operation,
        }
    }
}

/// Counts of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sending {
    /// Counts of its datagrams.
    pub counts: sender::Statistics,
    /// Last errno for which some were lost; 0 if none.
    pub errno: u32,
}

/// Returns the settings of a stream's sender.
fn settings(options: &PacedOptions, most: u16) -> Option<sender::Settings> {
    let framing = if options.rtp { Framing::Rtp } else { Framing::Plain };
    let payload = usize::from(options.payload);
    let fits = payload >= dcs_media::ts::PACKET && framing.header() + payload <= most.into();
    fits.then(|| sender::Settings { framing, payload, first: Header::random(options.random) })
}

impl Streams {
    /// Makes room for datagrams in own memory.
    pub fn new(memory: &mut Region) -> Option<Streams> {
        let places = (0..PLACES).map(|_| memory.take(PLACE, 64)).collect::<Option<Vec<_>>>()?;
        Some(Streams { free: (0..PLACES).collect(), places, ..Streams::default() })
    }

    /// Forgets what the stack and the NIC had: both are new.
    pub fn renew(&mut self) {
        self.in_flight.clear();
        self.free = (0..PLACES).collect();
    }

    /// Notes that the NIC was reset before it had sent what lies there: it never will.
    pub fn reset_at(&mut self, offset: u64) {
        let places = &self.places;
        let mut in_flight = self.in_flight.values_mut();
        if let Some(given) = in_flight.find(|given| places[given.place].offset() == offset) {
            given.errno = Some(NO_LINK);
        }
    }

    /// Returns the time of the first turn. Without a free place the next one comes when the NIC has sent something.
    pub fn deadline(&self) -> Option<Nanos> {
        self.turns.first().filter(|_| !self.free.is_empty()).map(|(turn, _)| *turn)
    }

    /// Finds two local ports, an even one and the next, that take no datagrams yet.
    fn open_ports(&mut self, stack: &mut Stack) -> Option<u16> {
        const PAIRS: u16 = (u16::MAX - FIRST_PORT) / 2 + 1;
        (0..PAIRS).find_map(|_| {
            self.last_port = (self.last_port + 1) % PAIRS;
            let port = FIRST_PORT + 2 * self.last_port;
            stack.open_udp(port).ok()?;
            match stack.open_udp(port + 1) {
                Ok(()) => Some(port),
                Err(_) => {
                    stack.close_udp(port);
                    None
                }
            }
        })
    }

    /// Sets a stream's next turn.
    fn schedule(&mut self, id: u32, at: Option<Nanos>) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if let Some(before) = core::mem::replace(&mut stream.turn, at) {
            self.turns.remove(&(before, id));
        }
        self.turns.extend(at.map(|at| (at, id)));
    }

    /// Sets a stream's next turn to the time when its next datagrams are due; none while a batch is with the NIC.
    fn schedule_due(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let at = if stream.given == 0 && !stream.leaving { stream.pacer.next_turn() } else { None };
        self.schedule(id, at);
    }

    fn remove(&mut self, id: u32) -> Option<Stream> {
        self.schedule(id, None);
        self.streams.remove(&id)
    }
}

impl Network {
    /// Notes the time, before anything is asked of a stream.
    pub fn set_now(&mut self, now: Nanos) {
        self.now = self.now.max(now);
    }

    /// Opens a media stream to a host or a group. Returns its number.
    pub fn open_paced(&mut self, options: &PacedOptions) -> Result<u32, Status> {
        let now = self.media_now();
        let stack = self.stack.as_mut().filter(|_| self.fresh).ok_or(Status::DeviceReset)?;
        let to = options.to;
        let group = to.ip().is_multicast();
        let ports = 1..=if options.rtp { u16::MAX - 1 } else { u16::MAX };
        let settings =
            settings(options, stack.datagram_max().min(PLACE as u16)).ok_or(Status::InvalidField)?;
        if !ports.contains(&to.port()) || !group && !stack.has_route(*to.ip()) || options.hops == 0 {
            return Err(Status::InvalidField);
        }
        if self.paced.streams.len() == STREAMS {
            return Err(Status::OutOfResources);
        }
        let port = self.paced.open_ports(stack).ok_or(Status::OutOfResources)?;
        // The neighbour's address is asked for now: it is there when the first datagram is due.
        let _ = stack.can_reach(*to.ip(), now);
        let reports = options.rtp.then(|| Reports {
            ends: (port + 1, SocketAddrV4::new(*to.ip(), to.port() + 1)),
            next: 0,
            epoch: options.unix.saturating_sub(now),
        });
        self.paced.last = self.paced.last.wrapping_add(1);
        let id = self.paced.last;
        let stream = Stream {
            pacer: Pacer::new(settings),
            ends: (port, to),
            hops: if group { options.hops } else { HOPS },
            reports,
            waiting: VecDeque::new(),
            given: 0,
            turn: None,
            errno: 0,
            released: false,
            leaving: false,
        };
        self.paced.streams.insert(id, stream);
        Ok(id)
    }

    /// Returns true if there is such a stream.
    pub fn has_paced(&self, id: u32) -> bool {
        self.paced.streams.get(&id).is_some_and(|stream| !stream.released)
    }

    /// Returns what a stream has sent.
    pub fn sending(&self, id: u32) -> Option<Sending> {
        let stream = self.paced.streams.get(&id)?;
        Some(Sending { counts: stream.pacer.sender.statistics(), errno: stream.errno })
    }

    /// Gives a stream bytes of a block, which are done when the stream has taken some of them. `begin`: they are the first of a transfer
    /// with this pace.
    pub fn write_paced(
        &mut self,
        bus: &mut dyn Bus,
        id: u32,
        (operation, piece): (OperationId, Piece),
        begin: Option<&Pace>,
    ) {
        let now = self.media_now();
        let Some(stream) = self.paced.streams.get_mut(&id) else { return self.fail(operation, self.gone()) };
        if let Some(pace) = begin {
            stream.pacer.begin(pace, now);
        }
        stream.waiting.push_back(Waiting::Write(operation, piece));
        if stream.waiting.len() == 1 {
            self.serve_paced(bus, id);
        }
    }

    /// Ends a transfer's bytes, and waits until everything is sent; if another one joins it (`more`), only notes that. `begin`: it had none.
    pub fn flush_paced(
        &mut self,
        bus: &mut dyn Bus,
        id: u32,
        operation: OperationId,
        more: bool,
        begin: Option<&Pace>,
    ) {
        let now = self.media_now();
        let Some(stream) = self.paced.streams.get_mut(&id) else { return self.fail(operation, self.gone()) };
        if begin.is_some() && more {
            // Nothing precedes what follows.
            return self.events.push_back(DeviceEvent::Done(operation, Outcome::Flushed));
        }
        // An empty transfer ends the one before it.
        if let Some(pace) = begin {
            stream.pacer.begin(pace, now);
        }
        match stream.pacer.end(more, now) {
            Err(failure) => self.events.push_back(DeviceEvent::Done(operation, Outcome::Failed(failure))),
            Ok(()) if more => self.events.push_back(DeviceEvent::Done(operation, Outcome::Flushed)),
            Ok(()) => stream.waiting.push_back(Waiting::Flush(operation)),
        }
        self.serve_paced(bus, id);
    }

    /// Ends a transfer that will bring no more bytes, whatever it was to bring: those that the stream has taken get their times.
    pub fn end_paced(&mut self, id: u32) {
        let now = self.media_now();
        if let Some(stream) = self.paced.streams.get_mut(&id) {
            // A stream that failed has reported it.
            let _ = stream.pacer.end(true, now);
            self.paced.schedule_due(id);
        }
    }

    /// Releases a stream: it ends when everything that it has taken is sent, in its time.
    pub fn release_paced(&mut self, bus: &mut dyn Bus, id: u32) {
        self.end_paced(id);
        if let Some(stream) = self.paced.streams.get_mut(&id) {
            stream.released = true;
            for waiting in core::mem::take(&mut stream.waiting) {
                self.fail(waiting.operation(), Status::PeerReset);
            }
            self.leave_if_empty(bus, id);
        }
    }

    /// Ends all streams, whatever they have yet to send, with their goodbyes. Returns true as long as one of these is not sent.
    pub(super) fn finish_paced(&mut self, bus: &mut dyn Bus) -> bool {
        for id in self.paced.streams.keys().copied().collect::<Vec<_>>() {
            self.leave(bus, id);
        }
        !self.paced.streams.is_empty()
    }

    /// Drops all streams: the NIC is reset or gone.
    pub(super) fn drop_all_paced(&mut self) {
        let status = self.gone();
        for id in self.paced.streams.keys().copied().collect::<Vec<_>>() {
            if let Some(stream) = self.close_paced(id) {
                stream.waiting.iter().for_each(|waiting| self.fail(waiting.operation(), status));
            }
        }
    }

    /// Aborts an operation; returns false if no stream has it. Bytes that a stream has taken are sent all the same.
    pub(super) fn abort_paced(&mut self, operation: OperationId) -> bool {
        for stream in self.paced.streams.values_mut() {
            if let Some(at) = stream.waiting.iter().position(|waiting| waiting.operation() == operation) {
                stream.waiting.remove(at);
                self.fail(operation, Status::Cancelled);
                return true;
            }
        }
        false
    }

    /// Sends what is due.
    pub(super) fn send_paced(&mut self, bus: &mut dyn Bus) {
        let now = self.media_now();
        while let Some((turn, id)) = self.paced.turns.first().copied()
            && turn <= now
            && !self.paced.free.is_empty()
        {
            self.paced.schedule(id, None);
            let again = self.send_batch(bus, id, now);
            if again.is_some() {
                self.paced.schedule(id, again);
            } else {
                self.paced.schedule_due(id);
            }
            self.serve_if_room(bus, id);
            self.leave_if_empty(bus, id);
        }
    }

    /// Gives the NIC one stream's due datagrams, as many as there are places for. Returns the time of another look at the neighbour.
    fn send_batch(&mut self, bus: &mut dyn Bus, id: u32, now: Nanos) -> Option<Nanos> {
        let link = self.nic.link();
        let (stack, paced) = (self.stack.as_mut()?, &mut self.paced);
        let stream = paced.streams.get_mut(&id)?;
        let (due, until) = (stream.pacer.sender.next_due()?, stream.pacer.until(now));
        let reached = link && stack.can_reach(*stream.ends.1.ip(), now);
        if link && !reached && now.saturating_sub(due) < PATIENCE {
            return Some(now + LOOK);
        }
        let Some(batch) = stream.pacer.sender.batch(until, now) else { return Some(now + LOOK) };
        if !reached {
            let count = batch.count;
            stream.pacer.sender.lost(count);
            stream.errno = if link { UNREACHABLE } else { NO_LINK };
            return None;
        }
        for bytes in batch.bytes.chunks(batch.size) {
            let Some(place) = paced.free.pop() else { break };
            let offset = paced.places[place].offset();
            bus.store(offset, bytes);
            self.next_token += 1;
            let token = self.next_token;
            let piece = Piece { offset, length: bytes.len() as u32 };
            let chunk = Chunk { piece, block: token, more: false };
            if stack.send_to(stream.ends.0, stream.ends.1, chunk, stream.hops).is_err() {
                paced.free.push(place);
                break;
            }
            paced.in_flight.insert(token, InFlight { stream: id, place, kind: Kind::Media, errno: None });
            stream.given += 1;
        }
        if stream.given == 0 {
            // The stack takes no more of this stream's: it is a defect, and costs one datagram.
            stream.pacer.sender.lost(1);
        }
        self.report(bus, id, now);
        None
    }

    /// Notes that not all of a datagram will be sent; returns false if it is no stream's.
    pub(super) fn paced_unsent(&mut self, token: u64) -> bool {
        let Some(given) = self.paced.in_flight.get_mut(&token) else { return false };
        given.errno = Some(UNREACHABLE);
        true
    }

    /// Takes the place of a datagram back, which the NIC has sent, or never will; returns false if it is no stream's.
    pub(super) fn paced_sent(&mut self, bus: &mut dyn Bus, token: u64) -> bool {
        let Some(given) = self.paced.in_flight.remove(&token) else { return false };
        let (id, now) = (given.stream, self.media_now());
        self.paced.free.push(given.place);
        if given.kind == Kind::Goodbye {
            self.close_paced(id);
            return true;
        }
        let Some(stream) = self.paced.streams.get_mut(&id).filter(|_| given.kind == Kind::Media) else {
            return true;
        };
        stream.given -= 1;
        match given.errno {
            None => stream.pacer.sender.sent(1, now),
            Some(errno) => {
                stream.pacer.sender.lost(1);
                stream.errno = errno;
            }
        }
        if stream.given == 0 && !stream.leaving {
            self.paced.schedule_due(id);
            self.serve_if_room(bus, id);
            self.leave_if_empty(bus, id);
        }
        true
    }

    fn serve_if_room(&mut self, bus: &mut dyn Bus, id: u32) {
        let stream = self.paced.streams.get(&id);
        let has_room = |stream: &Stream| stream.pacer.sender.wants() || stream.pacer.sender.is_empty();
        if stream.is_some_and(|stream| !stream.waiting.is_empty() && has_room(stream)) {
            self.serve_paced(bus, id);
        }
    }

    /// Carries out operations that wait, as far as there is room, and sets the stream's next turn.
    fn serve_paced(&mut self, bus: &mut dyn Bus, id: u32) {
        let (now, path) = (self.media_now(), self.path);
        let Streams { streams, bytes, .. } = &mut self.paced;
        let Some(stream) = streams.get_mut(&id) else { return };
        while let Some(waiting) = stream.waiting.front() {
            let outcome = match waiting {
                Waiting::Write(_, piece) => {
                    bytes.resize(piece.length as usize, 0);
                    bus.load(piece.offset, bytes);
                    match stream.pacer.push(bytes, now) {
                        Ok(0) => break,
                        Ok(count) => Outcome::Moved { bytes: count as u64, path, held: false },
                        Err(failure) => Outcome::Failed(failure),
                    }
                }
                Waiting::Flush(_) if stream.pacer.sender.is_empty() => Outcome::Flushed,
                Waiting::Flush(_) => break,
            };
            self.events.push_back(DeviceEvent::Done(waiting.operation(), outcome));
            stream.waiting.pop_front();
        }
        if stream.given == 0 && stream.turn.is_none() {
            self.paced.schedule_due(id);
        }
    }

    /// Sends a report if one is due.
    fn report(&mut self, bus: &mut dyn Bus, id: u32, now: Nanos) {
        let Some(stream) = self.paced.streams.get_mut(&id) else { return };
        let some = stream.pacer.sender.statistics().datagrams > 0;
        if let Some(reports) = stream.reports.as_mut().filter(|reports| some && reports.next <= now) {
            reports.next = now + rtcp::INTERVAL;
            self.send_report(bus, id, Kind::Report);
        }
    }

    /// Sends a report, if there is a place and a way for it: if one is lost, another follows. Returns true if it is with the NIC.
    fn send_report(&mut self, bus: &mut dyn Bus, id: u32, kind: Kind) -> bool {
        let (now, link) = (self.media_now(), self.nic.link());
        let (Some(stack), Some(stream)) = (self.stack.as_mut(), self.paced.streams.get(&id)) else {
            return false;
        };
        let Some(Reports { ends, epoch, .. }) = &stream.reports else { return false };
        let (port, to) = *ends;
        if !link || !stack.can_reach(*to.ip(), now) {
            return false;
        }
        let Some(place) = self.paced.free.pop() else { return false };
        let report = stream.pacer.sender.report(now, epoch.saturating_add(now));
        let bytes = report.write(&format!("dcs@{}", self.address.ip), kind == Kind::Goodbye);
        let offset = self.paced.places[place].offset();
        bus.store(offset, &bytes);
        self.next_token += 1;
        let piece = Piece { offset, length: bytes.len() as u32 };
        let chunk = Chunk { piece, block: self.next_token, more: false };
        if stack.send_to(port, to, chunk, stream.hops).is_err() {
            self.paced.free.push(place);
            return false;
        }
        self.paced.in_flight.insert(self.next_token, InFlight { stream: id, place, kind, errno: None });
        true
    }

    /// Ends a released stream that has sent everything.
    fn leave_if_empty(&mut self, bus: &mut dyn Bus, id: u32) {
        let is_over =
            |stream: &Stream| stream.released && stream.given == 0 && stream.pacer.sender.is_empty();
        if self.paced.streams.get(&id).is_some_and(is_over) {
            self.leave(bus, id);
        }
    }

    /// Ends a stream with a goodbye, if it has sent anything.
    fn leave(&mut self, bus: &mut dyn Bus, id: u32) {
        self.paced.schedule(id, None);
        match self.paced.streams.get_mut(&id) {
            Some(stream) if !stream.leaving => stream.leaving = true,
            _ => return,
        }
        let sent = self.sending(id).is_some_and(|sending| sending.counts.datagrams > 0);
        if !sent || !self.send_report(bus, id, Kind::Goodbye) {
            self.close_paced(id);
        }
    }

    /// Removes a stream and closes its ports.
    fn close_paced(&mut self, id: u32) -> Option<Stream> {
        let stream = self.paced.remove(id)?;
        if let Some(stack) = &mut self.stack {
            stack.close_udp(stream.ends.0);
            stack.close_udp(stream.ends.0 + 1);
        }
        Some(stream)
    }

    /// Returns the time against which datagrams are due; never 0.
    fn media_now(&self) -> Nanos {
        self.now.max(1)
    }
}
