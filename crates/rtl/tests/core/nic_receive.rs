//! The receive path of a NIC between a ring and the software that is told of frames.

use core::net::{Ipv4Addr, SocketAddrV4};
use dcs_drivers::bus::{Bus, Tag, Window};
use dcs_drivers::network::{Peer, Receiver};
use dcs_drivers::nic::LentReceive;
use dcs_rtl::NicReceiver;

const BASE: u64 = 0x4000_0000;
const RING: LentReceive = LentReceive { descriptors: 0x1000, buffers: 0x1_0000, tail: 0x9000_2818, start: 1 };
/// Where payload is moved to.
const BLOCK: u64 = 0x3_0000;
const PEER: Peer = Peer {
    mac: [2, 0, 0, 0, 0, 9],
    local: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 80),
    remote: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 4000),
    next: u32::MAX - 149,
};
/// Bytes of payload in a frame.
const PAYLOAD: usize = 100;

/// The card's memory, and a NIC that puts frames into it.
struct Memory {
    bytes: Vec<u8>,
    head: u64,
    tail: u64,
}

impl Bus for Memory {
    fn window(&self) -> Window {
        Window { address: BASE, length: self.bytes.len() as u64 }
    }
    fn load(&self, offset: u64, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.bytes[offset as usize..][..bytes.len()]);
    }
    fn store(&mut self, offset: u64, bytes: &[u8]) {
        self.bytes[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    fn write(&mut self, address: u64, bytes: &[u8]) {
        assert_eq!(address, RING.tail);
        self.tail = u32::from_le_bytes(bytes.try_into().expect("a register")).into();
    }
    fn read(&mut self, address: u64, _: u32, _: Tag) {
        panic!("a read of {address:#x}");
    }
    fn interrupt(&mut self, _: u16) {}
}

impl Memory {
    /// Puts the frame into the ring that has these bytes of the peer's stream.
    fn deliver(&mut self, at: usize) {
        assert_ne!(self.head, self.tail, "the NIC has a descriptor");
        let place = RING.descriptors + 16 * self.head;
        let mut buffer = [0; 8];
        self.load(place, &mut buffer);
        self.store(u64::from_le_bytes(buffer) - BASE, &frame(at));
        // Done, a whole frame, both checksums right.
        let status = [0; 8].into_iter().chain(0x63_u32.to_le_bytes());
        let length = (54 + PAYLOAD as u16).to_le_bytes();
        self.store(place, &status.chain(length).chain([0; 2]).collect::<Vec<_>>());
        self.head = (self.head + 1) % 32;
    }
}

fn frame(at: usize) -> Vec<u8> {
    let mut frame = [&PEER.mac[..], &[2, 0, 0, 0, 0, 1], &[8, 0, 0x45, 0]].concat();
    frame.extend((40 + PAYLOAD as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    frame.extend([PEER.remote.ip().octets(), PEER.local.ip().octets()].concat());
    frame.extend([PEER.remote.port().to_be_bytes(), PEER.local.port().to_be_bytes()].concat());
    frame.extend(PEER.next.wrapping_add(at as u32).to_be_bytes());
    frame.extend([0, 0, 1, 0, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]);
    frame.extend((at..at + PAYLOAD).map(|at| at as u8));
    frame
}

fn started(connection: usize) -> (NicReceiver, Memory) {
    let mut memory = Memory { bytes: vec![0; 1 << 18], head: 0, tail: 0 };
    let mut receiver = NicReceiver::new();
    receiver.start(&mut memory, &RING);
    receiver.listen(&mut memory, connection, Some(&PEER));
    (receiver, memory)
}

#[test]
fn payload_is_kept_and_moved_in_the_order_of_the_stream() {
    let (mut receiver, mut memory) = started(3);
    (0..5).for_each(|at| memory.deliver(at * PAYLOAD));
    for at in 1..=5_u32 {
        let told = receiver.receive(&mut memory).expect("it is told of each");
        let kept = told.kept.expect("it is the next");
        assert_eq!((kept.connection, kept.acknowledges, kept.window), (3, 0x100, 0x2000));
        assert_eq!(kept.next, PEER.next.wrapping_add(at * PAYLOAD as u32));
    }
    assert_eq!(receiver.receive(&mut memory), None);
    let mut at = 0;
    for length in [1, 98, 101, 250, 50] {
        assert!(receiver.gather(&mut memory, 3, BLOCK + at, length));
        at += u64::from(length);
    }
    let moved = &memory.bytes[BLOCK as usize..][..501];
    assert!(moved[..500].iter().enumerate().all(|(at, byte)| *byte == at as u8) && moved[500] == 0);
}

#[test]
fn nothing_is_told_as_kept_that_was_dropped() {
    // By the connection's number it stands elsewhere in the frames that wait, when software has given a buffer back.
    for connection in 0..8 {
        for to in [None, Some(&Peer { next: 1, ..PEER })] {
            let (mut receiver, mut memory) = started(connection);
            memory.deliver(7 * PAYLOAD);
            (0..6).for_each(|at| memory.deliver(at * PAYLOAD));
            let other = receiver.receive(&mut memory).expect("it has come");
            assert_eq!(other.kept, None, "it is not the next");
            receiver.give_back(&mut memory, other.buffer);
            receiver.listen(&mut memory, connection, to);
            while let Some(told) = receiver.receive(&mut memory) {
                assert_eq!(told.kept, None, "connection {connection}");
                receiver.give_back(&mut memory, told.buffer);
            }
            let (next, tail) = receiver.ring();
            assert_eq!((tail + 32 - next) % 32, 31, "all buffers of connection {connection} are back");
        }
    }
}

#[test]
fn a_done_bit_that_is_taken_back_is_not_waited_for() {
    let (mut receiver, mut memory) = started(3);
    memory.deliver(0);
    // It is taken back between the look that sees it and the hardware's own.
    struct Fickle<'a>(&'a mut Memory, core::cell::Cell<u32>);
    impl Bus for Fickle<'_> {
        fn window(&self) -> Window {
            self.0.window()
        }
        fn load(&self, offset: u64, bytes: &mut [u8]) {
            self.0.load(offset, bytes);
            self.1.set(self.1.get() + 1);
            if self.1.get() > 1 {
                bytes.fill(0);
            }
        }
        fn store(&mut self, offset: u64, bytes: &[u8]) {
            self.0.store(offset, bytes);
        }
        fn write(&mut self, address: u64, bytes: &[u8]) {
            self.0.write(address, bytes);
        }
        fn read(&mut self, address: u64, length: u32, tag: Tag) {
            self.0.read(address, length, tag);
        }
        fn interrupt(&mut self, _: u16) {}
    }
    assert_eq!(receiver.receive(&mut Fickle(&mut memory, Default::default())), None);
    assert!(receiver.receive(&mut memory).expect("it is there again").kept.is_some());
}
