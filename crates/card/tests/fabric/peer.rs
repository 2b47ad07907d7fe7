//! A client on the other end of the wire, with smoltcp's TCP and UDP: it sends what it is given and keeps
//! what it gets.

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::{tcp, udp};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

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
        // It checks and makes all checksums: those that the NIC makes are seen by somebody who did not make
        // them.
        capabilities.checksum = ChecksumCapabilities::default();
        capabilities
    }
}

/// One connection.
pub struct Stream {
    handle: SocketHandle,
    /// The bytes to be sent, and how far it is.
    pub to_send: Vec<u8>,
    pub sent: usize,
    /// Ends its stream when all is sent.
    pub close: bool,
    /// The bytes that came.
    pub got: Vec<u8>,
    /// Takes no more than so many bytes.
    pub most: usize,
    /// The card has ended its stream.
    pub ended: bool,
}

/// A port for datagrams.
pub struct Port {
    handle: SocketHandle,
    /// The datagrams to be sent, and where to.
    pub to_send: VecDeque<((Ipv4Addr, u16), Vec<u8>)>,
    /// The datagrams that came, and from which port of the card's.
    pub got: Vec<(u16, Vec<u8>)>,
}

pub struct Peer {
    link: Link,
    interface: Interface,
    sockets: SocketSet<'static>,
    pub streams: Vec<Stream>,
    pub ports: Vec<Port>,
    /// Hears nothing of what comes: as if the wire lost it.
    pub deaf: bool,
    pub deadline: Option<u64>,
}

fn instant(now: u64) -> Instant {
    Instant::from_micros((now / 1000) as i64)
}

impl Peer {
    pub fn new(address: Ipv4Addr) -> Peer {
        let mut link = Link::default();
        let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress([2, 0, 0, 0, 0, 9])));
        config.random_seed = 7;
        let mut interface = Interface::new(config, &mut link, instant(0));
        interface.update_ip_addrs(|addresses| addresses.push(IpCidr::new(address.into(), 24)).unwrap());
        let (streams, ports) = Default::default();
        Peer {
            link,
            interface,
            sockets: SocketSet::new(Vec::new()),
            streams,
            ports,
            deaf: false,
            deadline: None,
        }
    }

    fn socket(&mut self) -> SocketHandle {
        let [receive, transmit] = [(); 2].map(|()| tcp::SocketBuffer::new(vec![0; 256 << 10]));
        self.sockets.add(tcp::Socket::new(receive, transmit))
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
        self.sockets.get_mut::<tcp::Socket>(handle).connect(self.interface.context(), to, from).unwrap();
        self.add(handle)
    }

    pub fn listen(&mut self, port: u16) -> usize {
        let handle = self.socket();
        self.sockets.get_mut::<tcp::Socket>(handle).listen(port).unwrap();
        self.add(handle)
    }

    pub fn bind(&mut self, port: u16) -> usize {
        let [receive, transmit] = [(); 2]
            .map(|()| udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 256], vec![0; 512 << 10]));
        let handle = self.sockets.add(udp::Socket::new(receive, transmit));
        self.sockets.get_mut::<udp::Socket>(handle).bind(port).unwrap();
        self.ports.push(Port { handle, to_send: VecDeque::new(), got: Vec::new() });
        self.ports.len() - 1
    }

    pub fn abort(&mut self, stream: usize) {
        self.sockets.get_mut::<tcp::Socket>(self.streams[stream].handle).abort();
    }

    pub fn is_reset(&mut self, stream: usize) -> bool {
        self.sockets.get_mut::<tcp::Socket>(self.streams[stream].handle).state() == tcp::State::Closed
    }

    pub fn receive(&mut self, frame: Vec<u8>) {
        if self.deaf {
            return;
        }
        self.link.incoming.push_back(frame);
    }

    /// Does what it can; hands out frames.
    pub fn step(&mut self, now: u64) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        loop {
            self.interface.poll(instant(now), &mut self.link, &mut self.sockets);
            let sent = !self.link.outgoing.is_empty();
            out.append(&mut self.link.outgoing);
            if !self.work() && !sent {
                let at = self.interface.poll_at(instant(now), &self.sockets);
                self.deadline = at.map(|at| (at.total_micros().max(0) as u64 * 1000).max(now + 1000));
                return out;
            }
        }
    }

    fn exchange_datagrams(&mut self) -> bool {
        let mut moved = false;
        for port in &mut self.ports {
            let socket = self.sockets.get_mut::<udp::Socket>(port.handle);
            while let Ok((bytes, from)) = socket.recv() {
                port.got.push((from.endpoint.port, bytes.to_vec()));
                moved = true;
            }
            while socket.can_send()
                && let Some((to, bytes)) = port.to_send.front()
                && socket.send_slice(bytes, *to).is_ok()
            {
                port.to_send.pop_front();
                moved = true;
            }
        }
        moved
    }

    fn work(&mut self) -> bool {
        let mut moved = self.exchange_datagrams();
        for stream in &mut self.streams {
            let socket = self.sockets.get_mut::<tcp::Socket>(stream.handle);
            while socket.can_recv() && stream.got.len() < stream.most {
                let room = stream.most - stream.got.len();
                let got = &mut stream.got;
                socket
                    .recv(|bytes| {
                        let count = bytes.len().min(room);
                        got.extend_from_slice(&bytes[..count]);
                        (count, ())
                    })
                    .unwrap();
                moved = true;
            }
            let state = socket.state();
            stream.ended |= matches!(
                state,
                tcp::State::CloseWait | tcp::State::LastAck | tcp::State::TimeWait | tcp::State::Closing
            );
            while stream.sent < stream.to_send.len() && socket.can_send() {
                stream.sent += socket.send_slice(&stream.to_send[stream.sent..]).unwrap();
                moved = true;
            }
            if stream.close && stream.sent == stream.to_send.len() && socket.may_send() {
                socket.close();
                moved = true;
            }
        }
        moved
    }
}
