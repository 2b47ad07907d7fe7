//! The peer at the far end of a NIC's wire: smoltcp's TCP. It checks every byte that it receives, and sends what it is told to.

use crate::pattern::Pattern;
use dcs_engine::Nanos;
use dcs_testkit::peer::Stack;
use smoltcp::iface::SocketHandle;
use smoltcp::phy::{Checksum, ChecksumCapabilities};
use smoltcp::socket::tcp;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::rc::Rc;

/// Bytes of a socket's buffers: more than a 100 Gb/s wire holds in a round trip.
const BUFFER: usize = 1 << 20;

/// A connection of the peer.
pub struct Stream {
    handle: SocketHandle,
    /// Position in the pattern, and number, of the bytes expected next.
    expected: VecDeque<(u64, u64)>,
    /// Cipher that reverses an operator on the data.
    cipher: Option<dcs_ndp::Context>,
    /// Bytes received in total.
    pub received: u64,
    /// True if a byte was wrong or not expected.
    pub wrong: bool,
    /// Time at which the last byte arrived.
    pub last: Nanos,
    to_send: VecDeque<(u64, u64)>,
    /// Bytes that the socket has taken.
    pub sent: u64,
}

impl Stream {
    /// Expects the pattern's bytes from `position`.
    pub fn expect(&mut self, position: u64, length: u64) {
        self.expected.push_back((position, length));
    }

    /// Reverses this operator, which is its own inverse, for all data from now on.
    pub fn undo(&mut self, cipher: Option<dcs_ndp::Context>) {
        self.cipher = cipher;
    }

    /// Sends the pattern's bytes from `position`.
    pub fn send(&mut self, position: u64, length: u64) {
        self.to_send.push_back((position, length));
    }

    fn check(&mut self, pattern: &Pattern, bytes: &mut [u8], now: Nanos) {
        (self.received, self.last) = (self.received + bytes.len() as u64, now);
        if let Some(cipher) = &mut self.cipher {
            self.wrong |= cipher.in_place(bytes, false).is_err();
        }
        let mut rest = &*bytes;
        while !rest.is_empty() {
            let Some((position, left)) = self.expected.front_mut() else {
                self.wrong = true;
                return;
            };
            let (piece, others) = rest.split_at((*left).min(rest.len() as u64) as usize);
            self.wrong |= !pattern.is(*position, piece);
            (*position, *left) = (*position + piece.len() as u64, *left - piece.len() as u64);
            if *left == 0 {
                self.expected.pop_front();
            }
            rest = others;
        }
    }
}

/// The peer.
pub struct Peer {
    stack: Stack,
    pattern: Rc<Pattern>,
    /// Its connections.
    pub streams: Vec<Stream>,
}

impl Peer {
    /// Returns a peer at this address.
    pub fn new(address: Ipv4Addr, pattern: Rc<Pattern>, checks: bool) -> Peer {
        let mut checksum = ChecksumCapabilities::default();
        if !checks {
            // It computes checksums, but ignores those of others: every byte of a payload is compared anyway.
            checksum = ChecksumCapabilities::ignored();
            (checksum.ipv4, checksum.tcp) = (Checksum::Tx, Checksum::Tx);
        }
        let stack = Stack::new([2, 0, 0, 0, 0, 9], address, checksum);
        Peer { stack, pattern, streams: Vec::new() }
    }

    /// Returns the latest time for the next step.
    pub fn deadline(&self) -> Option<Nanos> {
        self.stack.deadline
    }

    /// Makes a connection, and returns its number.
    pub fn connect(&mut self, to: (Ipv4Addr, u16), from: u16) -> usize {
        let [receive, transmit] = [(); 2].map(|()| tcp::SocketBuffer::new(vec![0; BUFFER]));
        let mut socket = tcp::Socket::new(receive, transmit);
        // One acknowledgement for two segments, as is usual for TCP; none is delayed.
        socket.set_nagle_enabled(false);
        // Otherwise features of smoltcp that another crate of the build enables would decide.
        socket.set_congestion_control(tcp::CongestionControl::None);
        socket.connect(self.stack.interface.context(), to, from).expect("a new socket can connect");
        let handle = self.stack.sockets.add(socket);
        self.streams.push(Stream {
            handle,
            expected: VecDeque::new(),
            cipher: None,
            received: 0,
            wrong: false,
            last: 0,
            to_send: VecDeque::new(),
            sent: 0,
        });
        self.wake();
        self.streams.len() - 1
    }

    /// Returns true if a connection is established.
    pub fn is_connected(&self, stream: usize) -> bool {
        self.stack.sockets.get::<tcp::Socket<'_>>(self.streams[stream].handle).may_send()
    }

    /// Takes a frame from the wire.
    pub fn receive(&mut self, frame: Vec<u8>) {
        self.stack.receive(frame);
    }

    /// Notes that there is something to send.
    pub fn wake(&mut self) {
        self.stack.deadline = Some(0);
    }

    /// Does all work that is possible, and returns frames.
    pub fn step(&mut self, now: Nanos) -> Vec<Vec<u8>> {
        let Peer { stack, pattern, streams } = self;
        stack.step(now, |sockets| {
            streams.iter_mut().fold(false, |moved, stream| {
                let socket = sockets.get_mut::<tcp::Socket<'_>>(stream.handle);
                stream.work(socket, pattern, now) | moved
            })
        })
    }
}

impl Stream {
    /// Takes received data, and sends pending data. Returns true if anything moved.
    fn work(&mut self, socket: &mut tcp::Socket<'_>, pattern: &Pattern, now: Nanos) -> bool {
        let mut moved = false;
        while socket.can_recv() {
            let taken = socket.recv(|bytes| {
                self.check(pattern, bytes, now);
                (bytes.len(), ())
            });
            self.wrong |= taken.is_err();
            moved = true;
        }
        while socket.can_send()
            && let Some((position, left)) = self.to_send.front_mut()
        {
            let room = (socket.send_capacity() - socket.send_queue()).min(*left as usize).min(64 << 10);
            let taken = socket.send_slice(&pattern.bytes(*position, room)).unwrap_or(0) as u64;
            (*position, *left, self.sent) = (*position + taken, *left - taken, self.sent + taken);
            if *left == 0 {
                self.to_send.pop_front();
            }
            moved |= taken > 0;
            if taken == 0 {
                break;
            }
        }
        moved
    }
}
