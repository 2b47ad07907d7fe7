//! A peer with smoltcp's TCP.

use super::pair::{ADDRESSES, Node};
use super::{fill, is_filled};
use dcs_testkit::peer::Stack;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, ChecksumCapabilities};
use smoltcp::socket::tcp;
use std::any::Any;
use std::net::SocketAddrV4;

/// A connection's work.
pub struct Stream {
    handle: SocketHandle,
    pub send: u64,
    pub send_seed: u64,
    pub receive_seed: u64,
    pub sent: u64,
    pub received: u64,
    pub ended: bool,
}

pub struct Smol {
    stack: Stack,
    pub streams: Vec<Stream>,
}

impl Smol {
    pub fn new(side: usize) -> Smol {
        let mut checksums = ChecksumCapabilities::default();
        checksums.tcp = Checksum::Both;
        let mut stack =
            Stack::new([2, 0, 0, 0, 0, side as u8 + 1], ADDRESSES[side], checksums).with_burst(32);
        // It sends only in reply.
        stack.deadline = None;
        Smol { stack, streams: Vec::new() }
    }

    fn socket(&mut self, send: u64, seeds: (u64, u64), buffer: usize) -> SocketHandle {
        let buffers = [(); 2].map(|()| tcp::SocketBuffer::new(vec![0; buffer]));
        let [receive, transmit] = buffers;
        let mut socket = tcp::Socket::new(receive, transmit);
        socket.set_congestion_control(tcp::CongestionControl::Reno);
        let handle = self.stack.sockets.add(socket);
        let (send_seed, receive_seed) = seeds;
        self.streams.push(Stream {
            handle,
            send,
            send_seed,
            receive_seed,
            sent: 0,
            received: 0,
            ended: false,
        });
        handle
    }

    pub fn listen(&mut self, port: u16, send: u64, seeds: (u64, u64), buffer: usize) {
        let handle = self.socket(send, seeds, buffer);
        self.stack.sockets.get_mut::<tcp::Socket>(handle).listen(port).unwrap();
    }

    pub fn connect(&mut self, to: SocketAddrV4, port: u16, send: u64, seeds: (u64, u64), buffer: usize) {
        let handle = self.socket(send, seeds, buffer);
        let Stack { sockets, interface, .. } = &mut self.stack;
        let socket = sockets.get_mut::<tcp::Socket>(handle);
        socket.connect(interface.context(), to, port).unwrap();
    }

    pub fn state(&self, stream: usize) -> tcp::State {
        self.stack.sockets.get::<tcp::Socket>(self.streams[stream].handle).state()
    }
}

impl Stream {
    fn work(&mut self, sockets: &mut SocketSet<'static>) -> bool {
        let (socket, mut moved) = (sockets.get_mut::<tcp::Socket>(self.handle), false);
        while socket.can_recv() {
            let take = |bytes: &mut [u8]| {
                assert!(is_filled(self.receive_seed, self.received, bytes));
                (bytes.len(), bytes.len())
            };
            self.received += socket.recv(take).unwrap() as u64;
            moved = true;
        }
        self.ended |= matches!(
            socket.state(),
            tcp::State::CloseWait | tcp::State::LastAck | tcp::State::TimeWait | tcp::State::Closing
        );
        while self.sent < self.send && socket.can_send() {
            let left = self.send - self.sent;
            let give = |room: &mut [u8]| {
                let count = room.len().min(left as usize);
                fill(self.send_seed, self.sent, &mut room[..count]);
                (count, count)
            };
            self.sent += socket.send(give).unwrap() as u64;
            moved = true;
        }
        if self.sent == self.send && socket.may_send() {
            socket.close();
            moved = true;
        }
        moved
    }
}

impl Node for Smol {
    fn receive(&mut self, frame: &[u8], _: u64) {
        self.stack.receive(frame.to_vec());
    }

    fn step(&mut self, now: u64) -> Vec<Vec<u8>> {
        let Smol { stack, streams } = self;
        stack
            .step(now, |sockets| streams.iter_mut().fold(false, |moved, stream| stream.work(sockets) | moved))
    }

    fn deadline(&self) -> Option<u64> {
        self.stack.deadline
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
