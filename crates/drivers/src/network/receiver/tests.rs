//! Tests with a receiver that notes what it is asked for.

use super::*;
use crate::bus::Window;
use crate::testbus::TestBus;
use core::cell::RefCell;
use core::net::Ipv4Addr;
use dcs_net::Flow;

const OWN: Window = Window { address: 0x4000_0000, length: 1 << 20 };
/// Place of the buffers.
const BUFFERS: u64 = 0x8000;
/// Place of a block.
const BLOCK: u64 = 0x4_0000;
const RING: LentReceive = LentReceive { descriptors: 0x7000, buffers: BUFFERS, tail: 0x9000_2818, start: 1 };

/// Requests that the receiver has had, and whether it moves bytes.
#[derive(Debug, Default)]
struct Log {
    heard: Vec<(usize, Option<u32>)>,
    moves: Vec<(usize, u64, u32)>,
    returned: Vec<u16>,
    is_broken: bool,
}

thread_local! {
    static LOG: RefCell<Log> = RefCell::default();
}

fn log<T>(act: impl FnOnce(&mut Log) -> T) -> T {
    LOG.with_borrow_mut(act)
}

#[derive(Debug)]
struct Noting;

impl Receiver for Noting {
    fn entries(&self) -> u16 {
        8
    }
    fn keeps(&self) -> u16 {
        4
    }
    fn connections(&self) -> usize {
        2
    }
    fn start(&mut self, _: &mut dyn Bus, _: &LentReceive) {}
    fn stop(&mut self, _: &mut dyn Bus) {}
    fn listen(&mut self, _: &mut dyn Bus, connection: usize, to: Option<&Peer>) {
        log(|log| log.heard.push((connection, to.map(|peer| peer.next))));
    }
    fn receive(&mut self, _: &mut dyn Bus) -> Option<ReceiverEvent> {
        None
    }
    fn give_back(&mut self, _: &mut dyn Bus, buffer: u16) {
        log(|log| log.returned.push(buffer));
    }
    fn gather(&mut self, _: &mut dyn Bus, connection: usize, memory: u64, length: u32) -> bool {
        log(|log| log.moves.push((connection, memory, length)));
        log(|log| !log.is_broken)
    }
    fn ring(&self) -> (u16, u16) {
        (0, 7)
    }
}

struct Rig {
    reception: Reception,
    bus: TestBus,
    /// Place of what nobody reads.
    page: u64,
}

impl Rig {
    fn new() -> Rig {
        let mut memory = Region::whole(OWN);
        let mut reception = Reception::new(Box::new(Noting), &mut memory).unwrap();
        reception.ring = Some(RING);
        let page = reception.page.offset();
        Rig { reception, bus: TestBus::memory(OWN.length), page }
    }

    /// Has it listen; returns what the receiver is asked for.
    fn listen(&mut self, number: u64, next: u32) -> Vec<(usize, Option<u32>)> {
        let local = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 80);
        let remote = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 4000);
        let peer = Peer { mac: [2; 6], local, remote, next };
        self.reception.listen_to(&mut self.bus, Flow::from_number(number), &peer);
        log(|log| core::mem::take(&mut log.heard))
    }

    /// Keeps payload up to the number `next`; returns its place.
    fn keep(&mut self, buffer: u16, connection: usize, next: u32) -> u64 {
        let kept = Some(Kept { connection, acknowledges: 0, window: 0, next });
        let told = ReceiverEvent { buffer, length: 1514, kept };
        self.reception.arrived(&told, buffer.into()).expect("it fits") + HEADERS
    }

    fn gather(&mut self, from: u64, to: u64, length: u32) -> bool {
        self.reception.gather(&mut self.bus, from, to, length)
    }

    fn release(&mut self, buffer: u64) {
        self.reception.release(&mut self.bus, buffer);
    }

    fn moves(&mut self) -> Vec<(usize, u64, u32)> {
        log(|log| core::mem::take(&mut log.moves))
    }
}

#[test]
fn what_is_kept_is_moved_by_the_hardware_in_the_order_of_the_stream() {
    let mut rig = Rig::new();
    assert_eq!(rig.listen(1, u32::MAX - 99), [(0, Some(u32::MAX - 99))]);
    let first = rig.keep(3, 0, 900);
    let second = rig.keep(5, 0, 1400);
    assert_eq!((first, second), (BUFFERS + 3 * 2048 + 54, BUFFERS + 5 * 2048 + 54));
    assert!(!rig.gather(second, BLOCK, 500), "there is something before it");
    assert!(!rig.gather(first + 8, BLOCK, 100), "nor from its middle");
    assert!(rig.moves().is_empty());
    // A place ends within the first frame.
    assert!(rig.gather(first, BLOCK, 600));
    assert!(rig.gather(first + 600, BLOCK + 600, 400));
    assert!(rig.gather(second, BLOCK + 1000, 500));
    assert_eq!(rig.moves(), [(0, BLOCK, 600), (0, BLOCK + 600, 400), (0, BLOCK + 1000, 500)]);
    assert_eq!(rig.reception.counts().gathered, 1500);
    rig.release(3);
    rig.release(5);
    assert!(rig.moves().is_empty() && log(|log| log.returned.is_empty()), "the hardware has them back");
}

#[test]
fn what_the_stack_does_not_need_is_dropped_when_its_turn_comes() {
    let mut rig = Rig::new();
    rig.listen(1, 0);
    let first = rig.keep(0, 0, 1000);
    rig.keep(1, 0, 1100);
    let third = rig.keep(2, 0, 1300);
    rig.release(1);
    assert!(rig.moves().is_empty());
    assert!(rig.gather(first, BLOCK, 1000));
    assert_eq!(rig.moves(), [(0, BLOCK, 1000), (0, rig.page, 100)]);
    // Software has taken a part, and the stack needs no more of the rest.
    rig.reception.skip(&mut rig.bus, third, 50);
    rig.release(2);
    assert_eq!(rig.moves(), [(0, rig.page, 50), (0, rig.page, 150)]);
}

#[test]
fn the_nic_has_buffers_whoever_keeps_some() {
    let rig = Rig::new();
    let limits = rig.reception.limits();
    let others = limits.held_total + limits.echoes + usize::from(Noting.keeps());
    assert!(others < usize::from(Noting.entries()) && limits.held_total > 0, "{limits:?}");
}

#[test]
fn what_crosses_a_page_is_software_s() {
    let mut rig = Rig::new();
    rig.listen(1, 0);
    let place = rig.keep(0, 0, 1000);
    assert!(!rig.gather(place, BLOCK + 4000, 1000));
    assert!(rig.gather(place, BLOCK + 3096, 1000));
}

#[test]
fn software_s_buffers_come_back_when_the_stack_returns_them() {
    let mut rig = Rig::new();
    let told = ReceiverEvent { buffer: 4, length: 60, kept: None };
    assert_eq!(rig.reception.arrived(&told, 77), Some(BUFFERS + 4 * 2048));
    rig.release(78);
    assert!(log(|log| log.returned.is_empty()));
    rig.release(77);
    rig.release(77);
    assert_eq!(log(|log| core::mem::take(&mut log.returned)), [4]);
    let kept = Some(Kept { connection: 0, acknowledges: 0, window: 0, next: 1000 });
    rig.listen(1, 0);
    assert_eq!(
        rig.reception.arrived(&ReceiverEvent { buffer: 5, length: 1000, kept }, 80),
        None,
        "nor has a frame"
    );
    rig.release(80);
    assert!(rig.moves().is_empty());
    let told = ReceiverEvent { length: 2049, ..told };
    assert_eq!(rig.reception.arrived(&told, 79), None, "no buffer has so many bytes");
    rig.reception.clear(&mut rig.bus);
    assert_eq!(log(|log| core::mem::take(&mut log.returned)), [4]);
}

#[test]
fn it_listens_again_when_all_that_was_kept_is_read() {
    let mut rig = Rig::new();
    rig.listen(1, 100);
    assert_eq!(rig.listen(1, 100), [], "there it listens");
    let place = rig.keep(0, 0, 300);
    assert_eq!(rig.listen(1, 300), [], "there too");
    assert_eq!(rig.listen(1, 500), [], "something is kept");
    assert!(rig.gather(place, BLOCK, 200));
    assert_eq!(rig.listen(1, 500), [(0, Some(500))]);
    // There are two numbers.
    assert_eq!(rig.listen(2, 7), [(1, Some(7))]);
    assert_eq!(rig.listen(3, 8), []);
    rig.keep(1, 0, 600);
    rig.reception.closed(&mut rig.bus, Flow::from_number(1));
    assert_eq!(log(|log| core::mem::take(&mut log.heard)), [(0, None)], "what is kept is dropped");
    assert_eq!(rig.listen(3, 8), [(0, Some(8))]);
    rig.release(1);
    assert_eq!(rig.moves(), [(0, BLOCK, 200)], "the new connection's bytes are left alone");
}

#[test]
fn a_connection_whose_bytes_cannot_be_moved_is_software_s() {
    let mut rig = Rig::new();
    rig.listen(1, 0);
    let place = rig.keep(0, 0, 300);
    log(|log| log.is_broken = true);
    let second = rig.keep(1, 0, 400);
    assert!(!rig.gather(place, BLOCK, 300));
    assert_eq!(rig.moves(), [(0, BLOCK, 300)]);
    // Software copies them from the buffers, which stay until it has done so.
    assert!(!rig.gather(place, BLOCK, 300) && !rig.gather(second, BLOCK + 300, 100));
    rig.release(0);
    assert!(rig.moves().is_empty() && log(|log| log.heard.is_empty()));
    rig.release(1);
    assert_eq!(log(|log| core::mem::take(&mut log.heard)), [(0, None)]);
    assert_eq!(rig.reception.counts().gathered, 0);
    assert_eq!(rig.listen(1, 400), [(0, Some(400))], "what comes then is kept again");
}
