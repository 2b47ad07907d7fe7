//! A peer with smoltcp's TCP.

use super::pair::{ADDRESSES, Node};
use super::{fill, is_filled};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};
use std::any::Any;
use std::collections::VecDeque;
use std::net::SocketAddrV4;

/// Frames in, frames out.
#[derive(Default)]
struct Link {
    incoming: VecDeque<Vec<u8>>,
    outgoing: Vec<Vec<u8>>,
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
        capabilities.max_burst_size = Some(32);
        let mut checksums = ChecksumCapabilities::default();
        checksums.tcp = Checksum::Both;
        capabilities.checksum = checksums;
        capabilities
    }
}

/// One connection's work.
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
    link: Link,
    interface: Interface,
    sockets: SocketSet<'static>,
    pub streams: Vec<Stream>,
    deadline: Option<u64>,
}

fn instant(now: u64) -> Instant {
    Instant::from_micros((now / 1_000) as i64)
}

impl Smol {
    pub fn new(side: usize) -> Smol {
        let mac = EthernetAddress([2, 0, 0, 0, 0, side as u8 + 1]);
        let mut link = Link::default();
        let mut config = Config::new(HardwareAddress::Ethernet(mac));
        config.random_seed = 7;
        let mut interface = Interface::new(config, &mut link, instant(0));
        interface
            .update_ip_addrs(|addresses| addresses.push(IpCidr::new(ADDRESSES[side].into(), 24)).unwrap());
        Smol { link, interface, sockets: SocketSet::new(Vec::new()), streams: Vec::new(), deadline: None }
    }

    fn socket(&mut self, send: u64, seeds: (u64, u64), buffer: usize) -> SocketHandle {
        let buffers = [(); 2].map(|()| tcp::SocketBuffer::new(vec![0; buffer]));
        let [receive, transmit] = buffers;
        let mut socket = tcp::Socket::new(receive, transmit);
        socket.set_congestion_control(tcp::CongestionControl::Reno);
        let handle = self.sockets.add(socket);
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
        self.sockets.get_mut::<tcp::Socket>(handle).listen(port).unwrap();
    }

    pub fn connect(&mut self, to: SocketAddrV4, port: u16, send: u64, seeds: (u64, u64), buffer: usize) {
        let handle = self.socket(send, seeds, buffer);
        let socket = self.sockets.get_mut::<tcp::Socket>(handle);
        socket.connect(self.interface.context(), to, port).unwrap();
    }

    pub fn state(&self, stream: usize) -> tcp::State {
        self.sockets.get::<tcp::Socket>(self.streams[stream].handle).state()
    }

    fn work(&mut self) -> bool {
        let mut moved = false;
        for stream in &mut self.streams {
            let socket = self.sockets.get_mut::<tcp::Socket>(stream.handle);
            while socket.can_recv() {
                let count = socket
                    .recv(|bytes| {
                        assert!(is_filled(stream.receive_seed, stream.received, bytes));
                        (bytes.len(), bytes.len())
                    })
                    .unwrap();
                stream.received += count as u64;
                moved = true;
            }
            if matches!(
                socket.state(),
                tcp::State::CloseWait | tcp::State::LastAck | tcp::State::TimeWait | tcp::State::Closing
            ) {
                stream.ended = true;
            }
            while stream.sent < stream.send && socket.can_send() {
                let left = stream.send - stream.sent;
                let count = socket
                    .send(|room| {
                        let count = room.len().min(left as usize);
                        fill(stream.send_seed, stream.sent, &mut room[..count]);
                        (count, count)
                    })
                    .unwrap();
                stream.sent += count as u64;
                moved = true;
            }
            if stream.sent == stream.send && socket.may_send() {
                socket.close();
                moved = true;
            }
        }
        moved
    }
}

impl Node for Smol {
    fn receive(&mut self, frame: &[u8], _: u64) {
        self.link.incoming.push_back(frame.to_vec());
    }

    fn step(&mut self, now: u64) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        loop {
            self.interface.poll(instant(now), &mut self.link, &mut self.sockets);
            let sent = !self.link.outgoing.is_empty();
            out.append(&mut self.link.outgoing);
            if !self.work() && !sent {
                let at = self.interface.poll_at(instant(now), &self.sockets);
                self.deadline = at.map(|at| (at.total_micros().max(0) as u64 * 1_000).max(now + 1_000));
                return out;
            }
        }
    }

    fn deadline(&self) -> Option<u64> {
        self.deadline
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
