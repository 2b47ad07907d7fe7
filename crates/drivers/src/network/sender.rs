//! Frames with data that something else sends, in the place of the NIC's driver: hardware, over a transmit ring that the driver has set up and
//! lends it.
//!
//! The stack decides what is sent when, and makes frames as for the driver. The pieces of their payload become writes of the hardware, which
//! makes headers and descriptors by itself, keeps a write until the peer has acknowledged it, and sends it again from its block. What the
//! hardware has no room for, and frames without data, are the driver's. Nothing waits for the hardware, but for one thing: datagrams stay in
//! their order, so that one waits until the NIC has sent those of its flow that the hardware has, or has room; and the hardware gets the next
//! one only when the driver's are sent.
//!
//! | a frame with | goes to |
//! |---|---|
//! | the next data of a connection, or a datagram, in whole pieces of blocks | the hardware: it is over when its writes are |
//! | data that the hardware has, again | the hardware: it is over at once, as its first frame has the blocks |
//! | options, other flags than ACK and PSH, data from elsewhere, or no data | the driver |

use super::receiver::{Receiver, Reception};
use super::{Address, Network};
use crate::bus::{Bus, Region};
use crate::nic::{self, LentRing, Model, Nic};
use dcs_abi::status::Status;
use dcs_engine::{Failure, Nanos};
use dcs_net::{self as net, FrameId, Piece};
use std::collections::{BTreeMap, VecDeque};

/// Sizes of Ethernet's header, of it with IPv4's, and of both with TCP's or UDP's.
const ETHERNET: usize = 14;
const TRANSPORT: usize = ETHERNET + 20;
const TCP: usize = TRANSPORT + 20;
const UDP: usize = TRANSPORT + 8;
/// Flags of TCP.
const PSH: u8 = 1 << 3;
const ACK: u8 = 1 << 4;

/// Hardware that sends frames by a NIC's ring.
pub trait Sender: core::fmt::Debug + Send {
    /// Returns its sizes.
    fn sizes(&self) -> Sizes;

    /// Notes where a NIC's ring is, which is empty, and at which offset of own memory the first block is.
    fn place(&mut self, bus: &dyn Bus, ring: &LentRing, blocks: u64);

    /// Does what software requests.
    fn request(&mut self, bus: &mut dyn Bus, now: Nanos, request: &Request);

    /// Takes a write. Its number must be free.
    fn write(&mut self, bus: &mut dyn Bus, now: Nanos, write: &Write);

    /// Does everything that is due.
    fn poll(&mut self, bus: &mut dyn Bus, now: Nanos);

    /// Returns its next event.
    fn next_event(&mut self) -> Option<SenderEvent>;

    /// Returns the time since which the NIC has the oldest frame of the ring.
    fn oldest(&self) -> Option<Nanos>;

    /// Returns how many frames the NIC was given, and how many of them it has sent.
    fn frames(&self) -> (u64, u64);
}

/// Makes a sender for a model of NIC.
pub type MakeSender = fn(Model) -> Box<dyn Sender>;

/// An event of a sender, with the number of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderEvent {
    /// The NIC was given a frame of it.
    Given(usize),
    /// The NIC has sent a frame of it.
    Sent(usize),
    /// It has ended: datagrams were sent, and bytes of a connection acknowledged, or not.
    Ended(usize, Result<(), Failure>),
}

/// What makes the hardware of a NIC.
#[derive(Clone, Copy, Debug)]
pub struct Makers {
    /// Makes the send path of a NIC of this model.
    pub sender: MakeSender,
    /// Makes the receive path of a NIC of any model.
    pub receiver: fn() -> Box<dyn Receiver>,
}

/// The sizes of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Descriptors of its ring.
    pub entries: u16,
    /// Connections that it has at once.
    pub connections: usize,
    /// Writes that it has at once.
    pub writes: usize,
    /// Blocks that it reaches.
    pub blocks: u64,
    /// Bytes of each of them.
    pub block_size: u64,
}

/// What software requests of a sender. Connections are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Open a connection.
    Open(usize, Template),
    /// Note that the peer has everything before a number, and that the hardware may send up to another one.
    Acknowledged {
        /// The connection.
        connection: usize,
        /// Number of the first byte that is not acknowledged.
        number: u32,
        /// Number of the first byte that may not be sent.
        limit: u32,
    },
    /// Tell the peer this acknowledgement and window from now on.
    Advertise {
        /// The connection.
        connection: usize,
        /// Number that is acknowledged.
        number: u32,
        /// The window as headers have it.
        window: u16,
    },
    /// Send bytes again.
    Resend {
        /// The connection.
        connection: usize,
        /// Number of the first one.
        number: u32,
        /// How many.
        length: u32,
    },
    /// End a connection's writes with a status.
    Fail(usize, Status),
    /// Give the NIC nothing more: it is being stopped.
    WillStop,
    /// Go on: the NIC was stopped, and has nothing. Datagrams that it had end with a status.
    WasStopped(Status),
}

/// The headers of a connection's frames. Addresses and ports are as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Template {
    /// Set for TCP, clear for UDP.
    pub tcp: bool,
    /// Ethernet addresses: destination, source.
    pub macs: [u8; 12],
    /// IPv4 addresses: source, destination.
    pub addresses: [u8; 8],
    /// Ports: source, destination.
    pub ports: [u8; 4],
    /// Type of service.
    pub service: u8,
    /// Time to live.
    pub hops: u8,
    /// Most bytes of payload in a segment or a datagram.
    pub most: u16,
    /// Identification of the next packet.
    pub identification: u16,
    /// Sequence number of the next byte.
    pub number: u32,
    /// Number that is acknowledged.
    pub acknowledges: u32,
    /// The window as headers have it.
    pub window: u16,
}

/// Bytes that a sender is to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Its number, less than [`Sizes::writes`].
    pub number: usize,
    /// Connection of the bytes.
    pub connection: usize,
    /// Place of the bytes, within a block.
    pub piece: Piece,
}

/// Who sends a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// The driver has to.
    Driver,
    /// The hardware, which has it now.
    Hardware,
    /// The hardware, which needs nothing of it.
    Over,
    /// Nobody yet: the NIC has others that come first.
    Later,
}

/// Counts of frames with data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounts {
    /// Frames that the hardware has given to the NIC.
    pub sent: u64,
    /// Times that it was told to send bytes again.
    pub again: u64,
    /// Frames with data that were left to the driver.
    pub left: u64,
}

/// Whose a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Flow(net::Flow),
    Datagrams([u8; 8], [u8; 4]),
    /// Nobody's any more; its writes end.
    Gone,
}

#[derive(Debug)]
struct Connection {
    owner: Owner,
    template: Template,
    /// Offset in the stream that the number of the template has.
    start: u64,
    /// Number of the next byte that it takes.
    next: u32,
    acknowledged: u32,
    writes: usize,
    used: u64,
}

#[derive(Debug)]
struct Pending {
    connection: usize,
    start: u32,
    length: u32,
    frame: u64,
    is_given: bool,
    is_sent: bool,
}

/// A frame that the sender has.
#[derive(Debug)]
struct Taken {
    id: FrameId,
    /// Writes that were not sent yet, and those that have not ended.
    unsent: usize,
    unended: usize,
}

/// A sender, and what it has.
pub(super) struct Transmission {
    make: MakeSender,
    sender: Box<dyn Sender>,
    sizes: Sizes,
    /// Offset of the first block in own memory.
    blocks: u64,
    /// The ring that it uses.
    ring: Option<LentRing>,
    /// Set while the NIC may have frames of a ring that the sender doesn't use any more.
    stops: bool,
    connections: Vec<Option<Connection>>,
    pending: Vec<Option<Pending>>,
    frames: BTreeMap<u64, Taken>,
    frames_taken: u64,
    /// Datagrams that the driver has, and how many of each flow.
    left_datagrams: BTreeMap<FrameId, Owner>,
    left_flows: BTreeMap<Owner, usize>,
    /// Frames that the NIC has sent, and (true) that are over.
    news: VecDeque<(FrameId, bool)>,
    done: u64,
    again: u64,
    left: u64,
    /// The last frame that was left.
    last_left: Option<FrameId>,
}

impl core::fmt::Debug for Transmission {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (counts, frames) = (self.counts(), self.frames.len());
        write!(f, "Transmission {{ {:?}, {counts:?}, with {frames} frames }}", self.sender)
    }
}

impl Transmission {
    /// Makes a sender for a model of NIC. `blocks`: offset of the first block in own memory.
    pub fn new(make: MakeSender, model: Model, blocks: u64) -> Transmission {
        let sender = make(model);
        let sizes = sender.sizes();
        Transmission {
            make,
            sender,
            sizes,
            blocks,
            ring: None,
            stops: false,
            connections: (0..sizes.connections).map(|_| None).collect(),
            pending: (0..sizes.writes).map(|_| None).collect(),
            frames: BTreeMap::new(),
            frames_taken: 0,
            left_datagrams: BTreeMap::new(),
            left_flows: BTreeMap::new(),
            news: VecDeque::new(),
            done: 0,
            again: 0,
            left: 0,
            last_left: None,
        }
    }

    /// Returns true if it has no frame.
    pub fn is_idle(&self) -> bool {
        self.frames.is_empty() && self.news.is_empty()
    }

    /// Returns its counts.
    pub fn counts(&self) -> SenderCounts {
        SenderCounts { sent: self.sender.frames().0, again: self.again, left: self.left }
    }

    /// Begins again with a NIC of another model. It must be idle.
    pub fn relocate(&mut self, model: Model) {
        *self = Transmission {
            again: self.again,
            left: self.left,
            ..Transmission::new(self.make, model, self.blocks)
        };
    }

    /// Follows what the driver does with the NIC, and does everything that is due.
    pub fn poll(&mut self, nic: &mut Nic, bus: &mut dyn Bus, now: Nanos) {
        let lent = nic.lent();
        if self.ring.is_some() && self.ring != lent {
            self.request(bus, now, Request::WillStop);
            (self.ring, self.stops) = (None, true);
        }
        if self.stops && (lent.is_some() || !nic.is_lent()) {
            self.request(bus, now, Request::WasStopped(Status::DeviceReset));
            // There is no ring for what it has yet.
            self.request(bus, now, Request::WillStop);
            self.stops = false;
        }
        if let Some(ring) = lent.filter(|_| self.ring.is_none()) {
            self.sender.place(bus, &ring, self.blocks);
            self.request(bus, now, Request::WasStopped(Status::DeviceReset));
            self.ring = lent;
        }
        self.run(bus, now);
        let done = self.sender.frames().1;
        nic.note_lent(self.sender.oldest(), done != self.done);
        self.done = done;
    }

    fn request(&mut self, bus: &mut dyn Bus, now: Nanos, request: Request) {
        self.sender.request(bus, now, &request);
    }

    /// Has it do what is due, and takes what has ended.
    fn run(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.sender.poll(bus, now);
        while let Some(event) = self.sender.next_event() {
            match event {
                SenderEvent::Given(number) => {
                    self.pending[number].iter_mut().for_each(|pending| pending.is_given = true)
                }
                SenderEvent::Sent(number) => self.sent(number),
                SenderEvent::Ended(number, _) => self.ended(number),
            }
        }
    }

    fn sent(&mut self, number: usize) {
        let Some(pending) = self.pending[number].as_mut().filter(|pending| !pending.is_sent) else { return };
        pending.is_sent = true;
        if let Some(taken) = self.frames.get_mut(&pending.frame) {
            taken.unsent -= 1;
            if taken.unsent == 0 {
                self.news.push_back((taken.id, false));
            }
        }
    }

    fn ended(&mut self, number: usize) {
        let Some(Pending { connection, frame, .. }) = self.pending[number].take() else { return };
        if let Some(at) = self.connections[connection].as_mut() {
            at.writes -= 1;
            if at.writes == 0 && at.owner == Owner::Gone {
                self.connections[connection] = None;
            }
        }
        if let Some(taken) = self.frames.get_mut(&frame) {
            taken.unended -= 1;
            if taken.unended == 0 {
                self.news.push_back((taken.id, true));
                self.frames.remove(&frame);
            }
        }
    }

    /// Returns the next frame that the NIC has sent, and whether that frame is over.
    pub fn next_frame(&mut self) -> Option<(FrameId, bool)> {
        self.news.pop_front()
    }

    /// Gives it a frame, if it can send that.
    pub fn give(&mut self, bus: &mut dyn Bus, now: Nanos, frame: &net::Frame) -> Given {
        let template = Template::of(frame);
        let given = match &template {
            Some(template) if self.ring.is_some() && self.fits(frame) => {
                self.give_data(bus, now, frame, template)
            }
            _ => Given::Driver,
        };
        if given == Given::Driver {
            // It may come again, as the driver's ring is full.
            let is_other = self.last_left.replace(frame.id) != Some(frame.id);
            self.left += u64::from(is_other && !frame.payload.is_empty());
            if let Some(template) = template.filter(|template| !template.tcp) {
                self.leave(frame.id, template.owner(None));
            }
        }
        given
    }

    /// Notes that the driver has a datagram.
    fn leave(&mut self, frame: FrameId, owner: Owner) {
        if self.left_datagrams.insert(frame, owner).is_none() {
            *self.left_flows.entry(owner).or_default() += 1;
        }
    }

    /// Notes that the driver is done with a frame.
    pub fn driver_is_done(&mut self, frame: FrameId) {
        let Some(owner) = self.left_datagrams.remove(&frame) else { return };
        if let Some(count) = self.left_flows.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                self.left_flows.remove(&owner);
            }
        }
    }

    /// Returns true if each piece of a frame's payload is within a block, and a datagram in one piece.
    fn fits(&self, frame: &net::Frame) -> bool {
        let Sizes { blocks, block_size, .. } = self.sizes;
        let within = |piece: &Piece| {
            let place = piece.offset.checked_sub(self.blocks).filter(|place| place / block_size < blocks);
            let is_whole = |place| place % block_size + u64::from(piece.length) <= block_size;
            piece.length > 0 && place.is_some_and(is_whole)
        };
        let count = frame.payload.len();
        count > 0 && (frame.stream.is_some() || count == 1) && frame.payload.iter().all(within)
    }

    fn give_data(&mut self, bus: &mut dyn Bus, now: Nanos, frame: &net::Frame, template: &Template) -> Given {
        let length = frame.payload.iter().map(|piece| piece.length).sum();
        let owner = template.owner(frame.stream);
        if self.left_flows.contains_key(&owner) {
            return Given::Driver;
        }
        let known = self.of(owner);
        if let Some(connection) = known.filter(|_| template.tcp)
            && self.goes_on(connection, template)
            && self.has(connection, template.number, length)
        {
            let Template { number, acknowledges, window, .. } = *template;
            self.request(bus, now, Request::Advertise { connection, number: acknowledges, window });
            self.request(bus, now, Request::Resend { connection, number, length });
            self.again += 1;
            return Given::Over;
        }
        let free = self.pending.iter().filter(|pending| pending.is_none()).count();
        // The sender has no order of datagrams before the NIC has them.
        let waits =
            |pending: &Pending| !template.tcp && Some(pending.connection) == known && !pending.is_given;
        let has_room = free >= frame.payload.len() && !self.pending.iter().flatten().any(waits);
        match has_room.then(|| self.connection(bus, now, owner, template, frame)).flatten() {
            Some(connection) => {
                self.take(bus, now, connection, template, frame);
                if !template.tcp {
                    self.run(bus, now);
                }
                Given::Hardware
            }
            None if !template.tcp && known.is_some_and(|known| self.has_writes(known)) => Given::Later,
            None => Given::Driver,
        }
    }

    /// Returns the connection of an owner.
    fn of(&self, owner: Owner) -> Option<usize> {
        self.connections.iter().position(|at| at.as_ref().is_some_and(|at| at.owner == owner))
    }

    fn has_writes(&self, connection: usize) -> bool {
        self.connections[connection].as_ref().is_some_and(|known| known.writes > 0)
    }

    /// Returns true if a connection's next frames go where a frame with this template does.
    fn goes_on(&self, connection: usize, template: &Template) -> bool {
        self.connections[connection].as_ref().is_some_and(|at| at.template.goes_as(template))
    }

    /// Returns true if a connection's writes have all of these bytes.
    fn has(&self, connection: usize, number: u32, length: u32) -> bool {
        let bytes = |pending: &Pending| {
            let ahead = i64::from(number.wrapping_sub(pending.start) as i32);
            let end = (ahead + i64::from(length)).min(pending.length.into());
            (end - ahead.max(0)).max(0)
        };
        let of_it = self.pending.iter().flatten().filter(|pending| pending.connection == connection);
        of_it.map(bytes).sum::<i64>() == i64::from(length)
    }

    /// Finds or opens the connection whose next bytes a frame has; `None` if there is none that is free.
    fn connection(
        &mut self,
        bus: &mut dyn Bus,
        now: Nanos,
        owner: Owner,
        template: &Template,
        frame: &net::Frame,
    ) -> Option<usize> {
        let at = match self.of(owner) {
            Some(at) => {
                let known = self.connections[at].as_ref()?;
                if known.template.goes_as(template) && (!template.tcp || known.next == template.number) {
                    return Some(at);
                }
                Some(at).filter(|_| known.writes == 0)?
            }
            None => {
                let free = self.connections.iter().position(Option::is_none);
                let rests = self.connections.iter().enumerate();
                let rests = rests.filter_map(|(at, known)| Some((at, known.as_ref()?)));
                let rests = rests.filter(|(_, known)| known.writes == 0);
                free.or_else(|| Some(rests.min_by_key(|(_, known)| known.used)?.0))?
            }
        };
        self.request(bus, now, Request::Open(at, *template));
        self.connections[at] = Some(Connection {
            owner,
            template: *template,
            start: frame.stream.map_or(0, |part| part.offset),
            next: template.number,
            acknowledged: template.number,
            writes: 0,
            used: 0,
        });
        Some(at)
    }

    /// Makes writes of a frame's pieces.
    fn take(
        &mut self,
        bus: &mut dyn Bus,
        now: Nanos,
        connection: usize,
        template: &Template,
        frame: &net::Frame,
    ) {
        let Some(known) = self.connections[connection].as_mut() else { return };
        self.frames_taken += 1;
        let count = frame.payload.len();
        self.frames.insert(self.frames_taken, Taken { id: frame.id, unsent: count, unended: count });
        let mut start = known.next;
        (known.used, known.writes) = (self.frames_taken, known.writes + frame.payload.len());
        known.next = frame.payload.iter().fold(start, |next, piece| next.wrapping_add(piece.length));
        let (number, limit) = (known.acknowledged, known.next);
        if template.tcp {
            let Template { acknowledges, window, .. } = *template;
            self.request(bus, now, Request::Advertise { connection, number: acknowledges, window });
        }
        let free = self.pending.iter().enumerate().filter(|(_, pending)| pending.is_none());
        let free: Vec<usize> = free.map(|(number, _)| number).take(frame.payload.len()).collect();
        for (number, piece) in free.into_iter().zip(&frame.payload) {
            let length = piece.length;
            self.pending[number] = Some(Pending {
                connection,
                start,
                length,
                frame: self.frames_taken,
                is_given: false,
                is_sent: false,
            });
            start = start.wrapping_add(length);
            self.sender.write(bus, now, &Write { number, connection, piece: *piece });
        }
        if template.tcp {
            self.request(bus, now, Request::Acknowledged { connection, number, limit });
        }
    }

    /// Notes that the peer has all bytes of a connection's stream before this offset.
    pub fn acknowledged(&mut self, bus: &mut dyn Bus, now: Nanos, flow: net::Flow, offset: u64) {
        let Some(connection) = self.of(Owner::Flow(flow)) else { return };
        let Some(known) = self.connections[connection].as_mut() else { return };
        let Some(ahead) = offset.checked_sub(known.start) else { return };
        let number = known.template.number.wrapping_add(ahead as u32);
        (known.acknowledged, known.used) = (number, self.frames_taken);
        let limit = known.next;
        if known.writes > 0 {
            self.request(bus, now, Request::Acknowledged { connection, number, limit });
        }
    }

    /// Ends what it has of a connection that is gone.
    pub fn closed(&mut self, bus: &mut dyn Bus, now: Nanos, flow: net::Flow) {
        if let Some(connection) = self.of(Owner::Flow(flow)) {
            self.end(bus, now, connection, Status::PeerReset);
        }
    }

    /// Ends everything that it has: at once, or when the NIC has sent it or was stopped.
    pub fn end_all(&mut self, bus: &mut dyn Bus, now: Nanos) {
        for connection in 0..self.connections.len() {
            self.end(bus, now, connection, Status::DeviceReset);
        }
    }

    fn end(&mut self, bus: &mut dyn Bus, now: Nanos, connection: usize, status: Status) {
        let Some(known) = self.connections[connection].as_mut() else { return };
        match known.writes {
            0 => self.connections[connection] = None,
            _ => {
                known.owner = Owner::Gone;
                self.request(bus, now, Request::Fail(connection, status));
            }
        }
    }
}

impl Template {
    /// Returns the headers of a frame of TCP without options and with no other flags than ACK and PSH, or of UDP; `None` of any other.
    fn of(frame: &net::Frame) -> Option<Template> {
        let header = &*frame.header;
        let ipv4 = header.get(12..=ETHERNET)? == [8, 0, 0x45];
        let protocol = *header.get(ETHERNET + 9)?;
        let tcp = match (protocol, header.len(), frame.stream) {
            (6, TCP, Some(_)) => header[TCP - 8] == 0x50 && header[TCP - 7] | PSH == ACK | PSH,
            (17, UDP, None) => true,
            _ => return None,
        };
        if !ipv4 || !tcp || frame.checksum.is_none() {
            return None;
        }
        let tcp = protocol == 6;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let number = |at: usize| if tcp { u32::from(word(at)) << 16 | u32::from(word(at + 2)) } else { 0 };
        Some(Template {
            tcp,
            macs: header[..12].try_into().ok()?,
            addresses: header[ETHERNET + 12..TRANSPORT].try_into().ok()?,
            ports: header[TRANSPORT..TRANSPORT + 4].try_into().ok()?,
            service: header[ETHERNET + 1],
            hops: header[ETHERNET + 8],
            // A datagram was cut before.
            most: frame.stream.map_or(u16::MAX, |part| part.most),
            identification: word(ETHERNET + 4),
            number: number(TRANSPORT + 4),
            acknowledges: number(TRANSPORT + 8),
            window: if tcp { word(TCP - 6) } else { 0 },
        })
    }

    /// Returns whose a frame with these headers is.
    fn owner(&self, part: Option<net::StreamPart>) -> Owner {
        part.map_or(Owner::Datagrams(self.addresses, self.ports), |part| Owner::Flow(part.flow))
    }

    /// Returns true if all that stays the same from frame to frame is the same.
    fn goes_as(&self, other: &Template) -> bool {
        let Template { identification, number, acknowledges, window, .. } = *other;
        Template { identification, number, acknowledges, window, ..*self } == *other
    }
}

impl Network {
    /// Makes the driver of a NIC with hardware of these makers: it sends frames with data from blocks, of which the first is at the offset
    /// `blocks` of own memory, and receives all frames. Else as [`Network::new`].
    pub fn with_hardware(
        config: nic::Config,
        address: Address,
        secret: ([u8; 16], u32),
        (makers, blocks): (Makers, u64),
        memory: &mut Region,
    ) -> Option<Network> {
        let transmission = Transmission::new(makers.sender, config.model, blocks);
        let reception = Reception::new((makers.receiver)(), memory)?;
        let entries = reception.entries();
        let config = nic::Config {
            lend: transmission.sizes.entries,
            lend_receive: true,
            receive: entries,
            buffers: entries,
            ..config
        };
        let network = Network::new(config, address, secret, memory)?;
        Some(Network { transmission: Some(transmission), reception: Some(reception), ..network })
    }

    /// Returns counts of the frames with data, if hardware sends them.
    pub fn sender_counts(&self) -> Option<SenderCounts> {
        self.transmission.as_ref().map(Transmission::counts)
    }

    /// Has the hardware do what is due, and tells the stack what is over.
    pub(super) fn poll_sender(&mut self, bus: &mut dyn Bus) {
        let Some(transmission) = &mut self.transmission else { return };
        transmission.poll(&mut self.nic, bus, self.now);
        while let Some((frame, is_over)) = transmission.next_frame() {
            let Some(stack) = &mut self.stack else { continue };
            if is_over { stack.frame_sent(frame) } else { stack.frame_left(frame) }
        }
    }

    /// Gives the hardware a frame, if it can send that.
    pub(super) fn give_sender(&mut self, bus: &mut dyn Bus, frame: &net::Frame) -> Given {
        let Some(transmission) = &mut self.transmission else { return Given::Driver };
        let given = transmission.give(bus, self.now, frame);
        if given == Given::Over {
            self.stack.iter_mut().for_each(|stack| stack.frame_sent(frame.id));
        }
        given
    }

    /// Returns true if neither the NIC nor the hardware has a frame.
    pub(super) fn has_no_frames(&self) -> bool {
        self.frames.is_empty() && self.transmission.as_ref().is_none_or(Transmission::is_idle)
    }
}

#[cfg(test)]
mod tests;
