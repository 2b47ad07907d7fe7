//! The NIC. As a receiver it makes frames of the data written to it; as a sender it passes on received packets.

use crate::interface::{Action, ConfigError, Nanos, Operator, Origin};
use crate::reassembly::{Disposition, Limits, Reassembly};
use crate::register::{END_HERE, Error, Kind, Medium, Role};
use crate::schedule::Circle;
use crate::sequence::{Place, Sequence};
use crate::streams::{Access, Command, Decoded, Settings, Stream, Streams, read};
use crate::uoe::{self, Demands, Filter, Packets, Template};
use crate::wire::{self, Packet, Rtp};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::collections::btree_map::{BTreeMap, Entry};
use alloc::vec::Vec;

/// The settings of a NIC.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Number of streams.
    pub streams: u16,
    /// Credits of an Rx queue.
    pub window: u32,
    /// Places in the aperture that a stream's runs use in turn.
    pub places: u8,
    /// Epoch before each stream's first run. Choose it at random: a sender refuses the epoch that it used last at the same address.
    pub epoch: u16,
    /// Bytes of a write to another function, at most.
    pub payload: u32,
    /// Largest IPv4 packet on the link, in bytes.
    pub mtu: u16,
    /// Bytes of a stream's Tx queue: received and not yet sent on.
    pub queue: u32,
    /// Legacy frames that wait for the wire.
    pub legacy: usize,
    /// Bounds on fragments.
    pub reassembly: Limits,
}

impl Config {
    /// Returns the usual settings: 128 KiB of credits, writes of 256 bytes, an MTU of 1,500, a Tx queue of 256 KiB.
    pub fn new(streams: u16) -> Config {
        Config {
            streams,
            window: 32,
            places: 4,
            epoch: 0,
            payload: 256,
            mtu: 1500,
            queue: 256 << 10,
            legacy: 256,
            reassembly: Limits::for_streams(streams),
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            kind: Kind::Nic,
            streams: self.streams,
            window: self.window,
            places: self.places,
            epoch: self.epoch,
            payload: self.payload,
            tasks: 0,
            medium: Medium { block_shift: 0, mtu: self.mtu },
            blocks: 0,
        }
    }

    /// Returns the size of BAR0 in bytes.
    pub fn registers(&self) -> u64 {
        self.settings().bar()
    }

    /// Returns the size of the aperture in bytes.
    pub fn aperture(&self) -> u64 {
        self.settings().place() * u64::from(self.places) * u64::from(self.streams)
    }
}

/// A frame for the wire, without padding and frame check sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Number of the stream; `None` for a legacy frame.
    pub stream: Option<u16>,
    /// Contents of the frame.
    pub bytes: Vec<u8>,
}

/// The result of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The frame is the legacy function's.
    Legacy,
    /// The frame is a stream's, or may be. If it turns out not to be, [`Action::Legacy`] returns it.
    Kept,
}

/// Counts that belong to no stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Fragmented datagrams of streams that stayed incomplete, contradicted themselves, or had to make room.
    pub datagrams_lost: u64,
    /// Fragmented datagrams of unknown owner that went to the legacy function to make room for others.
    pub datagrams_passed: u64,
}

/// The network's side of a stream.
#[derive(Default)]
struct Network {
    registers: [u64; uoe::COUNT],
    packets: Option<Packets>,
    filter: Option<(Filter, Demands)>,
    sequence: Sequence,
    /// RTP source of the run: the one that its template names, else that of the first packet.
    ssrc: Option<u32>,
}

/// The part of a filter that all fragments have: VLAN, destination, source (0: any).
type Ends = (Option<u16>, [u8; 4], [u8; 4]);

/// A NIC's D2D function, next to its legacy function.
pub struct Nic {
    config: Config,
    streams: Streams,
    networks: Vec<Network>,
    filters: BTreeMap<Filter, u16>,
    /// Number of filters for a VLAN, destination and source.
    ends: BTreeMap<Ends, u16>,
    reassembly: Reassembly,
    /// Frames that were held and turned out to be the legacy function's.
    held: VecDeque<Vec<u8>>,
    legacy: VecDeque<Vec<u8>>,
    /// Streams that may have a packet.
    wire: Circle,
    link: bool,
    statistics: Statistics,
}

impl Nic {
    /// Creates a NIC as after power-on, with a link.
    pub fn new(config: Config) -> Result<Nic, ConfigError> {
        if config.mtu < 68 {
            return Err(ConfigError::Mtu);
        }
        Ok(Nic {
            config,
            streams: Streams::new(config.settings())?,
            networks: (0..config.streams).map(|_| Network::default()).collect(),
            filters: BTreeMap::new(),
            ends: BTreeMap::new(),
            reassembly: Reassembly::new(config.reassembly),
            held: VecDeque::new(),
            legacy: VecDeque::new(),
            wire: Circle::new(config.streams),
            link: true,
            statistics: Statistics::default(),
        })
    }

    /// Sets the operator of a stream that sends to another function, from its next start on.
    pub fn set_operator(&mut self, stream: u16, operator: Option<Box<dyn Operator + Send>>) {
        self.streams.set_operator(stream, operator);
    }

    /// Resets the D2D function. Epochs go on; legacy frames and the link stay.
    pub fn reset(&mut self) {
        self.streams.reset();
        self.networks.iter_mut().for_each(|network| *network = Network::default());
        self.filters.clear();
        self.ends.clear();
        self.reassembly = Reassembly::new(self.config.reassembly);
        self.wire.clear();
    }

    /// Returns the counts since power-on.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Returns the bytes of frames that wait for the rest of their datagrams.
    pub fn bytes_held(&self) -> usize {
        self.reassembly.bytes()
    }

    /// Reads BAR0.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        read(offset, bytes, |at| match self.streams.decode(at) {
            Decoded::Global(at) => self.streams.read_global(at),
            Decoded::Stream(stream, at) => self.streams.read_stream(stream, at, 0),
            Decoded::Uoe(stream, number) => self.networks[usize::from(stream)].registers[number],
            Decoded::Task(..) | Decoded::Nothing => 0,
        });
    }

    /// Writes BAR0: eight bytes, or either half of them. Other writes have no effect.
    pub fn write(&mut self, offset: u64, bytes: &[u8], now: Nanos) {
        let Some(access) = Access::of(offset, bytes) else { return };
        match self.streams.decode(access.at) {
            Decoded::Global(_) => self.streams.write_global(access),
            Decoded::Stream(stream, _) => {
                let command = self.streams.write_stream(stream, access, now);
                self.obey(stream, command, now);
            }
            Decoded::Uoe(stream, number) => {
                let register = &mut self.networks[usize::from(stream)].registers[number];
                *register = access.into(*register);
            }
            Decoded::Task(..) | Decoded::Nothing => {}
        }
    }

    fn obey(&mut self, number: u16, command: Command, now: Nanos) {
        if command.clear {
            self.streams.clear(number);
            self.forget(number);
        }
        if command.start {
            self.start(number, now);
        }
        if let Some(count) = command.end {
            let stream = self.streams.stream(number);
            match stream.role {
                Role::Sender if count == END_HERE => {
                    let here = stream.sender.sent() + stream.sender.queue.len();
                    stream.sender.end_at(here, now);
                }
                Role::Sender => stream.sender.end_at(count, now),
                Role::Receiver => stream.receiver.end_at(if count == END_HERE { 0 } else { count }),
                Role::None => {}
            }
            self.settle_end(number);
        }
    }

    fn start(&mut self, number: u16, now: Nanos) {
        let role = self.streams.begin(number);
        self.forget(number);
        let link = if self.link { Ok(()) } else { Err(Error::Link) };
        let stream = self.streams.stream(number);
        let network = &mut self.networks[usize::from(number)];
        match role {
            Role::Sender => {
                let filter = Filter::from_registers(&network.registers).map_err(|_| Error::Template);
                let filter = filter.and_then(|filter| match self.filters.contains_key(&filter.0) {
                    true => Err(Error::Duplicate),
                    false => Ok(filter),
                });
                let end = (stream.count != 0).then_some(stream.count);
                let plan = link.and(filter).map(|_| stream.sender_plan(end, true));
                self.streams.start_sender(number, plan, now);
                if let Ok(filter) = filter.as_ref()
                    && self.streams.stream(number).is_running()
                {
                    self.filters.insert(filter.0, number);
                    *self.ends.entry(ends(&filter.0)).or_default() += 1;
                    network.filter = Some(*filter);
                }
            }
            Role::Receiver | Role::None => {
                let template = Template::from_registers(&network.registers, self.config.mtu);
                let template = template.map_err(|_| Error::Template);
                let plan = link.and(template).map(|template| stream.receiver_plan(template.payload.into()));
                network.packets = template.ok().map(Packets::new);
                self.streams.start_receiver(number, plan, now);
            }
        }
    }

    /// Ends a stream's part in the network: it no longer sends or receives packets.
    fn forget(&mut self, number: u16) {
        let network = &mut self.networks[usize::from(number)];
        network.packets = None;
        (network.sequence, network.ssrc) = (Sequence::default(), None);
        if let Some((filter, _)) = network.filter.take() {
            self.filters.remove(&filter);
            if let Entry::Occupied(mut count) = self.ends.entry(ends(&filter)) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }

    /// Sets the state of the link. Without a link, all runs fail.
    pub fn set_link(&mut self, up: bool) {
        self.link = up;
        for number in 0..self.config.streams {
            let stream = self.streams.stream(number);
            if !up && stream.is_running() {
                stream.fail(Error::Link);
                self.streams.circle.add(number);
            }
        }
    }

    /// Takes a write to the aperture.
    pub fn data(&mut self, offset: u64, bytes: &[u8], now: Nanos) {
        if let Some(stream) = self.streams.data(offset, bytes, now) {
            self.wire.add(stream);
        }
    }

    /// Returns the next action; `None` if there is nothing to do before an event or [`Nic::next_deadline`].
    pub fn poll(&mut self, now: Nanos) -> Option<Action> {
        self.reassembly.expire(now);
        self.settle_fragments();
        if let Some(frame) = self.held.pop_front() {
            return Some(Action::Legacy { frame });
        }
        while let Some(number) = self.streams.turn(now) {
            if let Some(action) = self.step(number, now) {
                self.streams.circle.add(number);
                return Some(action);
            }
            let stream = self.streams.stream(number);
            if stream.role == Role::Receiver && stream.receiver.ready(u64::MAX) > 0 {
                self.wire.add(number);
            }
            if !stream.is_running() {
                self.forget(number);
            }
            self.streams.rest(number);
        }
        None
    }

    fn step(&mut self, stream: u16, now: Nanos) -> Option<Action> {
        let grant = self.streams.grant_action(stream, now);
        grant.or_else(|| self.streams.data_action(stream, now)).or_else(|| self.streams.end_action(stream))
    }

    /// Returns the time to poll again if nothing happens before. 0: at once.
    pub fn next_deadline(&self) -> Option<Nanos> {
        if !self.held.is_empty() {
            return Some(0);
        }
        [self.streams.next_deadline(), self.reassembly.deadline()].into_iter().flatten().min()
    }

    // The wire.

    /// Queues a frame of the legacy function.
    ///
    /// # Errors
    ///
    /// The frame, if the queue is full.
    pub fn send_legacy(&mut self, frame: Vec<u8>) -> Result<(), Vec<u8>> {
        if self.legacy.len() >= self.config.legacy {
            return Err(frame);
        }
        self.legacy.push_back(frame);
        Ok(())
    }

    /// Returns the frame to send now that the wire is free: legacy frames first, then streams in turn.
    pub fn next_frame(&mut self, now: Nanos) -> Option<Frame> {
        if !self.link {
            return None;
        }
        if let Some(bytes) = self.legacy.pop_front() {
            return Some(Frame { stream: None, bytes });
        }
        while let Some(number) = self.wire.next() {
            let stream = self.streams.stream(number);
            let Some(packets) = &mut self.networks[usize::from(number)].packets else { continue };
            let count = stream.receiver.ready(packets.template.payload.into());
            if stream.role != Role::Receiver || count == 0 {
                continue;
            }
            let payload = stream.receiver.take(count, 0);
            let bytes = packets.frame(&payload, now);
            stream.packets += 1;
            stream.receiver.consume(count, now);
            self.wire.add(number);
            self.streams.circle.add(number);
            return Some(Frame { stream: Some(number), bytes });
        }
        None
    }

    /// Takes a frame from the network. [Parse Control]
    pub fn receive(&mut self, frame: &[u8], now: Nanos) -> Received {
        let Some(packet) = Packet::of(frame) else { return Received::Legacy };
        if !packet.is_fragment() {
            return self.take(&packet, &frame[packet.body.clone()]);
        }
        if !self.may_be_ours(&packet) {
            return Received::Legacy;
        }
        let (filters, networks, streams) = (&self.filters, &self.networks, &mut self.streams);
        let disposition = self.reassembly.add(&packet, frame, now, |from, to| {
            let (stream, _) = find(filters, networks, &packet, from, to)?;
            Some(Origin { stream, run: streams.stream(stream).run })
        });
        self.settle_fragments();
        match disposition {
            Disposition::Legacy => return Received::Legacy,
            Disposition::Held | Disposition::Dropped => {}
            // The stream may have ended in between, and not take it any more.
            Disposition::Whole(datagram) => drop(self.take(&packet, &datagram)),
            Disposition::Release(frames) => self.held.extend(frames),
        }
        Received::Kept
    }

    /// Returns true if a stream receives at the packet's address, from its source.
    fn may_be_ours(&self, packet: &Packet) -> bool {
        let from = |source| self.ends.contains_key(&(packet.vlan, packet.destination, source));
        from(packet.source) || from([0; 4])
    }

    /// Counts the datagrams that were lost, and passes on those of no stream.
    fn settle_fragments(&mut self) {
        self.held.extend(self.reassembly.released.drain(..));
        self.statistics.datagrams_passed += core::mem::take(&mut self.reassembly.passed);
        for run in self.reassembly.lost.drain(..) {
            self.statistics.datagrams_lost += 1;
            let stream = self.streams.stream(run.stream);
            if stream.run == run.run && wanted(stream) > 0 {
                stream.dropped = stream.dropped.saturating_add(1);
            }
        }
    }

    /// If a run has all its bytes, counts its incomplete datagrams as lost.
    fn settle_end(&mut self, number: u16) {
        let stream = self.streams.stream(number);
        if stream.role == Role::Sender && wanted(stream) == 0 {
            let lost = self.reassembly.end(Origin { stream: number, run: stream.run });
            self.statistics.datagrams_lost += lost;
            stream.dropped = stream.dropped.saturating_add(lost as u32);
        }
    }

    /// Takes a complete datagram.
    fn take(&mut self, packet: &Packet, datagram: &[u8]) -> Received {
        let Some((from, to)) = wire::ports(datagram) else { return Received::Legacy };
        let Some((number, demands)) = find(&self.filters, &self.networks, packet, from, to) else {
            return Received::Legacy;
        };
        let network = &mut self.networks[usize::from(number)];
        let stream = self.streams.stream(number);
        let wanted = wanted(stream);
        if wanted == 0 {
            return Received::Kept;
        }
        let payload = wire::payload(packet, datagram).and_then(|payload| match demands.ssrc {
            None => Some((payload, Place::Next(0))),
            Some(ssrc) => {
                let ssrc = network.ssrc.or((ssrc != 0).then_some(ssrc));
                let rtp = Rtp::of(payload).filter(|rtp| ssrc.is_none_or(|ssrc| ssrc == rtp.ssrc))?;
                network.ssrc = Some(rtp.ssrc);
                Some((rtp.payload, network.sequence.place(rtp.sequence)))
            }
        });
        let room = u64::from(self.config.queue).saturating_sub(stream.sender.queue.len());
        match payload {
            Some((_, Place::Passed)) => stream.late = stream.late.saturating_add(1),
            Some((payload, Place::Next(missing))) if payload.len() as u64 <= room => {
                let count = wanted.min(payload.len() as u64) as usize;
                stream.sender.queue.push(&payload[..count]);
                stream.packets += 1;
                stream.lost += missing;
            }
            Some((_, Place::Next(missing))) => {
                stream.dropped = stream.dropped.saturating_add(1);
                stream.lost += missing;
            }
            None => stream.dropped = stream.dropped.saturating_add(1),
        }
        self.settle_end(number);
        self.streams.circle.add(number);
        Received::Kept
    }

    /// Reports that a write could not be delivered.
    pub fn write_failed(&mut self, origin: Origin) {
        self.streams.write_failed(origin);
    }
}

fn ends(filter: &Filter) -> Ends {
    (filter.vlan, filter.destination, filter.source)
}

/// Returns how many bytes a sender's run still needs from the network.
fn wanted(stream: &Stream) -> u64 {
    let here = stream.sender.sent() + stream.sender.queue.len();
    let end = stream.sender.end().unwrap_or(u64::MAX);
    if stream.is_running() { end.saturating_sub(here) } else { 0 }
}

/// Finds the stream that receives a packet. One that names its source precedes one that takes any.
fn find(
    filters: &BTreeMap<Filter, u16>,
    networks: &[Network],
    packet: &Packet,
    from: u16,
    to: u16,
) -> Option<(u16, Demands)> {
    let with = |source, source_port| {
        let filter = Filter {
            vlan: packet.vlan,
            destination: packet.destination,
            destination_port: to,
            source,
            source_port,
        };
        let number = *filters.get(&filter)?;
        let (_, demands) = networks[usize::from(number)].filter?;
        let is_mac = demands.mac_destination == [0; 6] || demands.mac_destination == packet.mac_destination;
        is_mac.then_some((number, demands))
    };
    let (any, source) = ([0; 4], packet.source);
    with(source, from).or_else(|| with(source, 0)).or_else(|| with(any, from)).or_else(|| with(any, 0))
}
