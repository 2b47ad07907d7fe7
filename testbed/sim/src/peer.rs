//! The peer at the far end of a NIC's wire: smoltcp's TCP. It checks every byte that it gets, and sends what
//! it is told to.

use crate::pattern::Pattern;
use dcs_engine::Nanos;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::rc::Rc;

/// Bytes of a socket's buffers: more than a 100 Gb/s wire holds in its round trip.
const BUFFER: usize = 1 << 20;

#[derive(Default)]
struct Link {
    incoming: VecDeque<Vec<u8>>,
    outgoing: Vec<Vec<u8>>,
    checks: bool,
}

struct Received(Vec<u8>);
struct Sent<'a>(&'a mut Vec<Vec<u8>>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let mut frame = vec![0; length];
        let result = f(&mut frame);
        self.0.push(frame);
        result
    }
}

impl Device for Link {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sent<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sent<'_>)> {
        let frame = self.incoming.pop_front()?;
        Some((Received(frame), Sent(&mut self.outgoing)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sent<'_>> {
        (self.outgoing.len() < 64).then_some(Sent(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        if !self.checks {
            // It makes checksums, but believes those of others: every byte of a payload is compared anyway.
            capabilities.checksum = ChecksumCapabilities::ignored();
            capabilities.checksum.ipv4 = smoltcp::phy::Checksum::Tx;
            capabilities.checksum.tcp = smoltcp::phy::Checksum::Tx;
        }
        capabilities
    }
}

/// One connection of the peer's.
pub struct Stream {
    handle: SocketHandle,
    /// The position in the pattern of the bytes that come next, and their number.
    expected: VecDeque<(u64, u64)>,
    /// Undoes what an operator did to the data.
    cipher: Option<dcs_ndp::Context>,
    /// Bytes that came, all told.
    pub received: u64,
    /// A byte was not what it should be, or nobody expected it.
    pub wrong: bool,
    /// When the last byte came.
    pub last: Nanos,
    to_send: VecDeque<(u64, u64)>,
    /// Bytes that the socket has taken.
    pub sent: u64,
}

impl Stream {
    /// The pattern's bytes from `position` on are to come.
    pub fn expect(&mut self, position: u64, length: u64) {
        self.expected.push_back((position, length));
    }

    /// All that comes from now on went through this operator, which undoes itself.
    pub fn undo(&mut self, cipher: Option<dcs_ndp::Context>) {
        self.cipher = cipher;
    }

    /// Sends the pattern's bytes from `position` on.
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
    link: Link,
    interface: Interface,
    sockets: SocketSet<'static>,
    pattern: Rc<Pattern>,
    /// Its connections.
    pub streams: Vec<Stream>,
    /// When it is to be stepped at the latest.
    pub deadline: Option<Nanos>,
}

fn instant(now: Nanos) -> Instant {
    Instant::from_micros((now / 1000) as i64)
}

impl Peer {
    /// One at this address.
    pub fn new(address: Ipv4Addr, pattern: Rc<Pattern>, checks: bool) -> Peer {
        let mut link = Link { checks, ..Link::default() };
        let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress([2, 0, 0, 0, 0, 9])));
        config.random_seed = 7;
        let mut interface = Interface::new(config, &mut link, instant(0));
        interface.update_ip_addrs(|addresses| {
            let _ = addresses.push(IpCidr::new(address.into(), 24));
        });
        let sockets = SocketSet::new(Vec::new());
        Peer { link, interface, sockets, pattern, streams: Vec::new(), deadline: Some(0) }
    }

    /// Makes a connection: its number.
    pub fn connect(&mut self, to: (Ipv4Addr, u16), from: u16) -> usize {
        let [receive, transmit] = [(); 2].map(|()| tcp::SocketBuffer::new(vec![0; BUFFER]));
        let mut socket = tcp::Socket::new(receive, transmit);
        // One acknowledgement for two segments, as TCP's usual; none is sent late.
        socket.set_nagle_enabled(false);
        socket.connect(self.interface.context(), to, from).expect("a new socket can connect");
        let handle = self.sockets.add(socket);
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
        self.deadline = Some(0);
        self.streams.len() - 1
    }

    /// True if a connection is there.
    pub fn is_connected(&self, stream: usize) -> bool {
        self.sockets.get::<tcp::Socket<'_>>(self.streams[stream].handle).may_send()
    }

    /// A frame has come.
    pub fn receive(&mut self, frame: Vec<u8>) {
        self.link.incoming.push_back(frame);
        self.deadline = Some(0);
    }

    /// There is something to send.
    pub fn wake(&mut self) {
        self.deadline = Some(0);
    }

    /// Does what it can; hands out frames.
    pub fn step(&mut self, now: Nanos) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        loop {
            self.interface.poll(instant(now), &mut self.link, &mut self.sockets);
            let sent = !self.link.outgoing.is_empty();
            out.append(&mut self.link.outgoing);
            if !self.work(now) && !sent {
                let at = self.interface.poll_at(instant(now), &self.sockets);
                self.deadline = at.map(|at| (at.total_micros().max(0) as Nanos * 1000).max(now + 1000));
                return out;
            }
        }
    }

    fn work(&mut self, now: Nanos) -> bool {
        let mut moved = false;
        for stream in &mut self.streams {
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(stream.handle);
            while socket.can_recv() {
                let pattern = &self.pattern;
                let taken = socket.recv(|bytes| {
                    stream.check(pattern, bytes, now);
                    (bytes.len(), ())
                });
                stream.wrong |= taken.is_err();
                moved = true;
            }
            while socket.can_send()
                && let Some((position, left)) = stream.to_send.front_mut()
            {
                let room = (socket.send_capacity() - socket.send_queue()).min(*left as usize).min(64 << 10);
                let taken = socket.send_slice(&self.pattern.bytes(*position, room)).unwrap_or(0) as u64;
                (*position, *left, stream.sent) = (*position + taken, *left - taken, stream.sent + taken);
                if *left == 0 {
                    stream.to_send.pop_front();
                }
                moved |= taken > 0;
                if taken == 0 {
                    break;
                }
            }
        }
        moved
    }
}
