//! A client at the other end of the wire, with smoltcp's TCP and UDP: sends the bytes of a test and keeps what it receives.

use dcs_testkit::peer::Stack;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::{tcp, udp};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// A connection.
pub struct Stream {
    handle: SocketHandle,
    /// Bytes to send.
    pub to_send: Vec<u8>,
    /// Number of bytes sent.
    pub sent: usize,
    /// Set to end its stream after the last byte.
    pub close: bool,
    /// Received bytes.
    pub got: Vec<u8>,
    /// Most bytes to receive.
    pub most: usize,
    /// Set once the card has ended its stream.
    pub ended: bool,
}

/// A port for datagrams.
pub struct Port {
    handle: SocketHandle,
    /// Datagrams to send, and their destinations.
    pub to_send: VecDeque<((Ipv4Addr, u16), Vec<u8>)>,
    /// Received datagrams, and the card's ports that they came from.
    pub got: Vec<(u16, Vec<u8>)>,
}

pub struct Peer {
    stack: Stack,
    pub streams: Vec<Stream>,
    pub ports: Vec<Port>,
    /// Frames of IPv4 that have arrived, with their times, where they are kept.
    pub frames: Option<Vec<(u64, Vec<u8>)>>,
    /// Set to ignore everything that arrives, as if the wire lost it.
    pub deaf: bool,
}

impl Peer {
    pub fn new(address: Ipv4Addr) -> Peer {
        // It checks and computes all checksums, so that the NIC's checksums are verified independently.
        let stack = Stack::new([2, 0, 0, 0, 0, 9], address, ChecksumCapabilities::default());
        Peer { stack, streams: Vec::new(), ports: Vec::new(), frames: None, deaf: false }
    }

    pub fn deadline(&self) -> Option<u64> {
        self.stack.deadline
    }

    fn socket(&mut self) -> SocketHandle {
        let [receive, transmit] = [(); 2].map(|()| tcp::SocketBuffer::new(vec![0; 256 << 10]));
        self.stack.sockets.add(tcp::Socket::new(receive, transmit))
    }

    fn add(&mut self, handle: SocketHandle) -> usize {
        let (to_send, got) = Default::default();
        self.streams.push(Stream {
            handle,
            to_send,
            sent: 0,
            close: false,
            got,
            most: usize::MAX,
            ended: false,
        });
        self.streams.len() - 1
    }

    pub fn connect(&mut self, to: (Ipv4Addr, u16), from: u16) -> usize {
        let handle = self.socket();
        self.stack
            .sockets
            .get_mut::<tcp::Socket>(handle)
            .connect(self.stack.interface.context(), to, from)
            .unwrap();
        self.add(handle)
    }

    pub fn listen(&mut self, port: u16) -> usize {
        let handle = self.socket();
        self.stack.sockets.get_mut::<tcp::Socket>(handle).listen(port).unwrap();
        self.add(handle)
    }

    pub fn bind(&mut self, port: u16) -> usize {
        let [receive, transmit] = [(); 2]
            .map(|()| udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 256], vec![0; 512 << 10]));
        let handle = self.stack.sockets.add(udp::Socket::new(receive, transmit));
        self.stack.sockets.get_mut::<udp::Socket>(handle).bind(port).unwrap();
        self.ports.push(Port { handle, to_send: VecDeque::new(), got: Vec::new() });
        self.ports.len() - 1
    }

    pub fn abort(&mut self, stream: usize) {
        self.stack.sockets.get_mut::<tcp::Socket>(self.streams[stream].handle).abort();
    }

    pub fn is_reset(&mut self, stream: usize) -> bool {
        self.stack.sockets.get_mut::<tcp::Socket>(self.streams[stream].handle).state() == tcp::State::Closed
    }

    pub fn receive(&mut self, now: u64, frame: Vec<u8>) {
        if self.deaf {
            return;
        }
        if let Some(frames) = self.frames.as_mut().filter(|_| frame[12..14] == [8, 0]) {
            frames.push((now, frame.clone()));
        }
        self.stack.receive(frame);
    }

    /// Does what it can; returns its frames.
    pub fn step(&mut self, now: u64) -> Vec<Vec<u8>> {
        let Peer { stack, streams, ports, .. } = self;
        stack.step(now, |sockets| {
            let moved = ports.iter_mut().fold(false, |moved, port| port.work(sockets) | moved);
            streams.iter_mut().fold(moved, |moved, stream| stream.work(sockets) | moved)
        })
    }
}

impl Port {
    fn work(&mut self, sockets: &mut SocketSet<'static>) -> bool {
        let (socket, mut moved) = (sockets.get_mut::<udp::Socket>(self.handle), false);
        while let Ok((bytes, from)) = socket.recv() {
            self.got.push((from.endpoint.port, bytes.to_vec()));
            moved = true;
        }
        while socket.can_send()
            && let Some((to, bytes)) = self.to_send.front()
            && socket.send_slice(bytes, *to).is_ok()
        {
            self.to_send.pop_front();
            moved = true;
        }
        moved
    }
}

impl Stream {
    fn work(&mut self, sockets: &mut SocketSet<'static>) -> bool {
        let (socket, mut moved) = (sockets.get_mut::<tcp::Socket>(self.handle), false);
        while socket.can_recv() && self.got.len() < self.most {
            let room = self.most - self.got.len();
            let take = |bytes: &mut [u8]| {
                let count = bytes.len().min(room);
                self.got.extend_from_slice(&bytes[..count]);
                (count, ())
            };
            socket.recv(take).unwrap();
            moved = true;
        }
        self.ended |= matches!(
            socket.state(),
            tcp::State::CloseWait | tcp::State::LastAck | tcp::State::TimeWait | tcp::State::Closing
        );
        while self.sent < self.to_send.len() && socket.can_send() {
            self.sent += socket.send_slice(&self.to_send[self.sent..]).unwrap();
            moved = true;
        }
        if self.close && self.sent == self.to_send.len() && socket.may_send() {
            socket.close();
            moved = true;
        }
        moved
    }
}
