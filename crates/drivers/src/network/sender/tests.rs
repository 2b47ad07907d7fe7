//! Tests with a sender that notes what it is given, and ends writes when the test says so.

use super::*;
use crate::bus::{BusError, ReadDone, Window};
use crate::nic::Config;
use crate::testbus::TestBus;
use core::cell::RefCell;
use dcs_net::{ChecksumOffload, Flow, Frame, Header, StreamPart};

const OWN: Window = Window { address: 0x4000_0000, length: 1 << 22 };
const REGISTERS: Window = Window { address: 0x9000_0000, length: 1 << 17 };
/// Offset of the first block.
const BLOCKS: u64 = 0x1000;
const BLOCK: u64 = 4096;
const SIZES: Sizes = Sizes { entries: 64, connections: 2, writes: 4, blocks: 8, block_size: BLOCK };
/// Bytes of a segment.
const MOST: u16 = 1460;

/// What the sender was given since the test looked, and what it tells.
#[derive(Debug, Default)]
struct Log {
    requests: Vec<Request>,
    writes: Vec<Write>,
    places: Vec<(LentRing, u64)>,
    events: VecDeque<SenderEvent>,
    oldest: Option<Nanos>,
    frames: (u64, u64),
    /// Set if there is no room in the NIC's ring.
    is_full: bool,
}

thread_local! {
    static LOG: RefCell<Log> = RefCell::default();
}

fn log<T>(act: impl FnOnce(&mut Log) -> T) -> T {
    LOG.with_borrow_mut(act)
}

#[derive(Debug)]
struct Noting;

impl Sender for Noting {
    fn sizes(&self) -> Sizes {
        SIZES
    }
    fn place(&mut self, _: &dyn Bus, ring: &LentRing, blocks: u64) {
        log(|log| log.places.push((*ring, blocks)));
    }
    fn request(&mut self, _: &mut dyn Bus, _: Nanos, request: &Request) {
        log(|log| log.requests.push(*request));
    }
    fn write(&mut self, _: &mut dyn Bus, _: Nanos, write: &Write) {
        log(|log| {
            log.writes.push(*write);
            let given = Some(SenderEvent::Given(write.number)).filter(|_| !log.is_full);
            log.events.extend(given);
        });
    }
    fn poll(&mut self, _: &mut dyn Bus, _: Nanos) {}
    fn next_event(&mut self) -> Option<SenderEvent> {
        log(|log| log.events.pop_front())
    }
    fn oldest(&self) -> Option<Nanos> {
        log(|log| log.oldest)
    }
    fn frames(&self) -> (u64, u64) {
        log(|log| log.frames)
    }
}

struct Rig {
    transmission: Transmission,
    nic: Nic,
    bus: TestBus,
    now: Nanos,
}

impl Rig {
    /// A sender whose NIC is up.
    fn new() -> Rig {
        let config = Config { lend: SIZES.entries, ..Config::new(REGISTERS, 0, Model::Igb) };
        let nic = Nic::new(config, Region::whole(OWN)).unwrap();
        let transmission = Transmission::new(|_| Box::new(Noting), Model::Igb, BLOCKS);
        let mut rig = Rig { transmission, nic, bus: TestBus::new(OWN, REGISTERS), now: 0 };
        rig.nic.start(&mut rig.bus, 0);
        rig.until(|rig| rig.nic.link());
        rig.poll();
        assert_eq!(rig.requests(), [Request::WasStopped(Status::DeviceReset)]);
        rig
    }

    fn poll(&mut self) {
        self.transmission.poll(&mut self.nic, &mut self.bus, self.now);
    }

    /// Answers as a NIC that works, until this is so.
    fn until(&mut self, is_so: fn(&Rig) -> bool) {
        for _ in 0..100 {
            if is_so(self) {
                return;
            }
            if self.bus.reads.is_empty() {
                self.now = self.nic.deadline().unwrap();
                self.nic.poll(&mut self.bus, self.now);
                continue;
            }
            let (register, length, tag) = self.bus.reads.remove(0);
            let value: u32 = match register {
                // The link, the address with its valid bit, the reset that is over, rings that are on.
                0x08 => 2,
                0x5400 => 0x3322_1102,
                0x5404 => 1 << 31 | 0x5544,
                0x00 => 0,
                _ => 1 << 25,
            };
            let data: Result<Vec<u8>, BusError> = Ok(value.to_le_bytes()[..length as usize].to_vec());
            self.nic.read_done(&mut self.bus, self.now, ReadDone { tag, data });
        }
        panic!("{:?}", self.nic.state());
    }

    fn give(&mut self, frame: &Frame) -> Given {
        self.transmission.give(&mut self.bus, self.now, frame)
    }

    fn requests(&mut self) -> Vec<Request> {
        log(|log| core::mem::take(&mut log.requests))
    }

    fn writes(&mut self) -> Vec<Write> {
        log(|log| core::mem::take(&mut log.writes))
    }

    /// Has the sender tell these events; returns the frames that were sent or are over by them.
    fn told(&mut self, events: &[SenderEvent]) -> Vec<(u64, bool)> {
        log(|log| log.events.extend(events));
        self.poll();
        let news = core::iter::from_fn(|| self.transmission.next_frame());
        news.map(|(frame, is_over)| (frame.number(), is_over)).collect()
    }

    fn ends(&mut self, numbers: &[usize]) -> Vec<(u64, bool)> {
        let events: Vec<_> = numbers.iter().map(|number| SenderEvent::Ended(*number, Ok(()))).collect();
        self.told(&events)
    }
}

fn flow(number: u64) -> Flow {
    Flow::from_number(number)
}

/// A piece of a block.
fn piece(block: u64, start: u64, length: u32) -> Piece {
    Piece { offset: BLOCKS + block * BLOCK + start, length }
}

/// A frame of a connection of which every stream begins at this sequence number.
fn segment(id: u64, (of, begin): (u64, u32), offset: u64, payload: &[Piece]) -> Frame {
    let mut header = vec![0; TCP];
    header[..12].copy_from_slice(&[1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16]);
    header[12..15].copy_from_slice(&[8, 0, 0x45]);
    (header[ETHERNET + 8], header[ETHERNET + 9]) = (64, 6);
    header[ETHERNET + 12..TRANSPORT].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    header[TRANSPORT..TRANSPORT + 4].copy_from_slice(&[0, 80, 0x10, of as u8]);
    header[TRANSPORT + 4..TRANSPORT + 8].copy_from_slice(&begin.wrapping_add(offset as u32).to_be_bytes());
    header[TRANSPORT + 8..TRANSPORT + 12].copy_from_slice(&7777u32.to_be_bytes());
    (header[TCP - 8], header[TCP - 7]) = (0x50, ACK);
    header[TCP - 6..TCP - 4].copy_from_slice(&500u16.to_be_bytes());
    Frame {
        id: FrameId::from_number(id),
        header: Header::of(&header).unwrap(),
        payload: payload.to_vec(),
        checksum: Some(ChecksumOffload { start: TRANSPORT as u16, offset: 16 }),
        segment: None,
        stream: Some(StreamPart { flow: flow(of), offset, most: MOST }),
    }
}

fn datagram(id: u64, port: u8, payload: &[Piece]) -> Frame {
    let tcp = segment(id, (u64::from(port), 0), 0, payload);
    let mut header = tcp.header[..UDP].to_vec();
    header[ETHERNET + 9] = 17;
    Frame { header: Header::of(&header).unwrap(), stream: None, ..tcp }
}

/// The frame, with a byte of its header changed.
fn with(frame: &Frame, at: usize, byte: u8) -> Frame {
    let mut other = frame.clone();
    other.header[at] = byte;
    other
}

fn advertise(connection: usize) -> Request {
    Request::Advertise { connection, number: 7777, window: 500 }
}

/// The first connection, with a stream that begins shortly before the numbers wrap around.
const FIRST: (u64, u32) = (1, u32::MAX - 2000);
const OTHER: (u64, u32) = (2, 50);
const THIRD: (u64, u32) = (3, 60);

#[test]
fn the_next_data_become_writes_and_their_frame_is_over_with_the_last_of_them() {
    let mut rig = Rig::new();
    let pieces = [piece(0, 96, 4000), piece(1, 0, 1000)];
    assert_eq!(rig.give(&segment(10, FIRST, 0, &pieces)), Given::Hardware);
    let requests = rig.requests();
    let Request::Open(0, template) = requests[0] else { panic!("{requests:?}") };
    assert_eq!((template.tcp, template.number, template.acknowledges), (true, FIRST.1, 7777));
    assert_eq!((template.most, template.window, template.hops, template.service), (MOST, 500, 64, 0));
    assert_eq!(template.macs, [1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16]);
    assert_eq!((template.addresses, template.ports), ([10, 0, 0, 1, 10, 0, 0, 2], [0, 80, 0x10, 1]));
    let limit = FIRST.1.wrapping_add(5000);
    let admitted = Request::Acknowledged { connection: 0, number: FIRST.1, limit };
    assert_eq!(requests[1..], [advertise(0), admitted]);
    let write = |number, piece| Write { number, connection: 0, piece };
    assert_eq!(rig.writes(), [write(0, pieces[0]), write(1, pieces[1])]);

    // It goes on where that ends, without being opened.
    assert_eq!(rig.give(&segment(11, FIRST, 5000, &[piece(1, 1000, 10)])), Given::Hardware);
    let admitted = Request::Acknowledged { connection: 0, number: FIRST.1, limit: limit + 10 };
    assert_eq!(rig.requests(), [advertise(0), admitted]);

    assert_eq!(rig.told(&[SenderEvent::Sent(1), SenderEvent::Sent(1)]), []);
    assert_eq!(rig.told(&[SenderEvent::Sent(0), SenderEvent::Sent(0)]), [(10, false)]);
    assert_eq!(rig.ends(&[0]), []);
    assert_eq!(rig.ends(&[1]), [(10, true)]);
    assert!(!rig.transmission.is_idle());
    assert_eq!(rig.ends(&[2]), [(11, true)]);
    assert!(rig.transmission.is_idle());
}

#[test]
fn what_it_has_is_sent_again_by_it_and_nothing_else() {
    let mut rig = Rig::new();
    rig.give(&segment(10, FIRST, 0, &[piece(0, 0, 2000)]));
    rig.give(&segment(11, FIRST, 2000, &[piece(1, 0, 2000)]));
    rig.requests();
    rig.writes();
    let again = segment(12, FIRST, 1460, &[piece(0, 1460, 540), piece(1, 0, 920)]);
    assert_eq!(rig.give(&again), Given::Over);
    let number = FIRST.1.wrapping_add(1460);
    assert_eq!(rig.requests(), [advertise(0), Request::Resend { connection: 0, number, length: 1460 }]);
    assert_eq!(rig.writes(), []);
    // Of these it has had a part, or will never have one.
    rig.ends(&[0]);
    assert_eq!(rig.give(&again), Given::Driver);
    assert_eq!(rig.give(&segment(13, FIRST, 3000, &[piece(1, 1000, 1001)])), Given::Driver);
    assert_eq!(rig.give(&segment(13, FIRST, 3000, &[piece(1, 1000, 1000)])), Given::Over);
    assert_eq!((rig.transmission.counts().again, rig.transmission.counts().left), (2, 2));
}

#[test]
fn what_it_cannot_send_is_the_driver_s() {
    let mut rig = Rig::new();
    let whole = segment(10, FIRST, 0, &[piece(0, 0, 100)]);
    let mut options = whole.clone();
    options.header = Header::of(&[&whole.header[..], &[1; 12]].concat()).unwrap();
    let frames = [
        segment(10, FIRST, 0, &[]),
        segment(10, FIRST, 0, &[Piece { offset: BLOCKS - 1, length: 1 }]),
        segment(10, FIRST, 0, &[piece(SIZES.blocks, 0, 1)]),
        segment(10, FIRST, 0, &[piece(0, 4000, 97)]),
        segment(10, FIRST, 0, &[piece(0, 0, 4), piece(1, 0, 0)]),
        segment(10, FIRST, 0, &[1, 2, 3, 4, 5].map(|block| piece(block, 0, 1))),
        with(&whole, 13, 0xdd),
        with(&whole, ETHERNET, 0x46),
        with(&whole, TCP - 8, 0x60),
        with(&whole, TCP - 7, ACK | 1),
        with(&whole, TCP - 7, PSH),
        with(&whole, ETHERNET + 9, 17),
        options,
        Frame { stream: None, ..whole.clone() },
        Frame { checksum: None, ..whole.clone() },
        datagram(10, 1, &[piece(0, 0, 4), piece(1, 0, 4)]),
    ];
    for frame in frames {
        assert_eq!(rig.give(&frame), Given::Driver, "{frame:?}");
    }
    assert_eq!((rig.requests(), rig.writes()), (vec![], vec![]));
    assert_eq!(rig.give(&with(&whole, TCP - 7, ACK | PSH)), Given::Hardware);
}

#[test]
fn without_room_and_without_order_the_driver_sends() {
    let mut rig = Rig::new();
    let data = |at: u64| segment(at, FIRST, at * 10, &[piece(0, at * 10, 10)]);
    for at in 0..4 {
        assert_eq!(rig.give(&data(at)), Given::Hardware);
    }
    assert_eq!(rig.give(&data(4)), Given::Driver, "it has four writes");
    assert_eq!(rig.ends(&[0, 1]), [(0, true), (1, true)]);
    assert_eq!(rig.give(&data(5)), Given::Driver, "the driver has sent what comes before");
    rig.ends(&[2, 3]);
    rig.requests();
    assert_eq!(rig.give(&data(6)), Given::Hardware);
    let Request::Open(0, template) = rig.requests()[0] else { panic!("it is opened there") };
    assert_eq!(template.number, FIRST.1.wrapping_add(60));
    // Numbers begin there.
    rig.transmission.acknowledged(&mut rig.bus, 0, flow(1), 65);
    let (number, limit) = (FIRST.1.wrapping_add(65), FIRST.1.wrapping_add(70));
    assert_eq!(rig.requests(), [Request::Acknowledged { connection: 0, number, limit }]);
    rig.transmission.acknowledged(&mut rig.bus, 0, flow(1), 59);
    assert_eq!(rig.requests(), [], "that is the driver's");
}

#[test]
fn connections_that_rest_give_way() {
    let mut rig = Rig::new();
    rig.give(&segment(1, FIRST, 0, &[piece(0, 0, 1)]));
    rig.give(&segment(2, OTHER, 0, &[piece(1, 0, 1)]));
    let third = segment(3, THIRD, 0, &[piece(2, 0, 1)]);
    assert_eq!(rig.give(&third), Given::Driver, "both have writes");
    rig.ends(&[0, 1]);
    // The second one is used last.
    rig.give(&segment(4, FIRST, 1, &[piece(0, 1, 1)]));
    rig.ends(&[0]);
    rig.requests();
    assert_eq!(rig.give(&third), Given::Hardware);
    assert!(matches!(rig.requests()[0], Request::Open(1, _)));
    // A peer that moves to another Ethernet address is opened again.
    let moved = with(&segment(5, FIRST, 2, &[piece(0, 2, 1)]), 0, 99);
    assert_eq!(rig.give(&moved), Given::Hardware);
    assert!(matches!(rig.requests()[0], Request::Open(0, _)));
    assert_eq!(rig.give(&segment(6, FIRST, 3, &[piece(0, 3, 1)])), Given::Driver, "not while it has writes");
}

#[test]
fn a_connection_that_is_gone_ends_and_its_place_is_free_behind_that() {
    let mut rig = Rig::new();
    rig.give(&segment(1, FIRST, 0, &[piece(0, 0, 1), piece(3, 0, 1)]));
    rig.give(&segment(2, OTHER, 0, &[piece(1, 0, 1)]));
    rig.requests();
    rig.transmission.closed(&mut rig.bus, 0, flow(1));
    rig.transmission.closed(&mut rig.bus, 0, flow(1));
    assert_eq!(rig.requests(), [Request::Fail(0, Status::PeerReset)]);
    let third = segment(3, THIRD, 0, &[piece(2, 0, 1)]);
    assert_eq!(rig.give(&third), Given::Driver, "the NIC may have its frame");
    let failed = Err(Failure::new(Status::PeerReset));
    assert_eq!(rig.told(&[SenderEvent::Ended(0, failed)]), []);
    assert_eq!(rig.give(&third), Given::Driver, "or a part of it");
    assert_eq!(rig.told(&[SenderEvent::Ended(1, failed)]), [(1, true)]);
    assert_eq!(rig.give(&third), Given::Hardware);
    rig.requests();
    rig.transmission.end_all(&mut rig.bus, 0);
    let failed = [0, 1].map(|connection| Request::Fail(connection, Status::DeviceReset));
    assert_eq!(rig.requests(), failed);
}

#[test]
fn datagrams_are_over_when_they_are_sent() {
    let mut rig = Rig::new();
    for id in [1, 2] {
        assert_eq!(rig.give(&datagram(id, 1, &[piece(0, id * 100, 100)])), Given::Hardware);
    }
    let requests = rig.requests();
    let Request::Open(0, template) = requests[0] else { panic!("{requests:?}") };
    assert_eq!((requests.len(), template.tcp, template.most), (1, false, u16::MAX), "one is whole");
    assert_eq!(rig.ends(&[1, 0]), [(2, true), (1, true)]);
    // They stay in their order: one waits until the NIC has those before it, and those that find no room wait for those before them.
    let next = |id| datagram(id, 1, &[piece(0, id * 10, 10)]);
    log(|log| log.is_full = true);
    assert_eq!((rig.give(&next(8)), rig.give(&next(9))), (Given::Hardware, Given::Later));
    log(|log| log.is_full = false);
    rig.told(&[SenderEvent::Given(0)]);
    assert_eq!(rig.give(&next(9)), Given::Hardware);
    rig.ends(&[0, 1]);
    for id in 10..14 {
        assert_eq!(rig.give(&next(id)), Given::Hardware);
    }
    assert_eq!(rig.give(&next(14)), Given::Later);
    assert_eq!(rig.give(&datagram(20, 3, &[piece(1, 0, 10)])), Given::Driver, "it has nothing of this flow");
    rig.ends(&[0]);
    assert_eq!(rig.give(&next(14)), Given::Hardware);
    assert_eq!(rig.give(&datagram(21, 3, &[piece(1, 10, 10)])), Given::Driver);
    rig.ends(&[0, 1, 2, 3]);
    assert_eq!(rig.give(&datagram(22, 3, &[piece(1, 20, 10)])), Given::Driver, "the driver has some yet");
    [20, 21, 22].iter().for_each(|id| rig.transmission.driver_is_done(FrameId::from_number(*id)));
    rig.requests();
    assert_eq!(rig.give(&datagram(23, 3, &[piece(1, 30, 10)])), Given::Hardware);
    assert!(matches!(rig.requests()[..], [Request::Open(1, _)]));
    rig.ends(&[0]);
    // Others have other ports.
    rig.give(&datagram(3, 2, &[piece(0, 0, 100)]));
    assert!(matches!(rig.requests()[..], [Request::Open(0, _)]));
}

#[test]
fn it_stands_still_from_the_first_sign_of_a_reset_to_the_new_ring() {
    let mut rig = Rig::new();
    let ring = rig.nic.lent().unwrap();
    assert_eq!(log(|log| core::mem::take(&mut log.places)), [(ring, BLOCKS)]);
    rig.give(&segment(1, FIRST, 0, &[piece(0, 0, 1)]));
    rig.requests();
    // Its frame is not sent in time.
    log(|log| log.oldest = Some(0));
    rig.poll();
    rig.now += Config::new(REGISTERS, 0, Model::Igb).timeout;
    rig.nic.poll(&mut rig.bus, rig.now);
    rig.poll();
    assert_eq!(rig.requests(), [Request::WillStop]);
    assert_eq!(rig.give(&segment(2, FIRST, 1, &[piece(0, 1, 1)])), Given::Driver);
    rig.poll();
    assert_eq!(rig.requests(), [], "the NIC may reach memory yet");
    log(|log| log.oldest = None);
    rig.until(|rig| !rig.nic.is_lent());
    rig.poll();
    let stopped = Request::WasStopped(Status::DeviceReset);
    assert_eq!(rig.requests(), [stopped, Request::WillStop]);
    rig.until(|rig| rig.nic.link());
    rig.poll();
    assert_eq!(rig.requests(), [stopped]);
    let again = rig.nic.lent().unwrap();
    assert_eq!(log(|log| core::mem::take(&mut log.places)), [(again, BLOCKS)]);
    assert_eq!(rig.give(&segment(3, FIRST, 0, &[piece(0, 0, 1)])), Given::Over, "it has kept it");
}

#[test]
fn a_nic_that_was_set_up_again_unseen_has_nothing_either() {
    let mut rig = Rig::new();
    rig.nic.reset(&mut rig.bus, rig.now);
    rig.until(|rig| rig.nic.link());
    rig.poll();
    let stopped = Request::WasStopped(Status::DeviceReset);
    assert_eq!(rig.requests(), [Request::WillStop, stopped, Request::WillStop, stopped]);
    assert_eq!(log(|log| log.places.len()), 2);
    // Gone: nothing has to be waited for.
    rig.nic.on_reset();
    rig.poll();
    assert_eq!(rig.requests(), [Request::WillStop, stopped, Request::WillStop]);
}
