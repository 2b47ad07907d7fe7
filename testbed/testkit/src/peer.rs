//! The far end of a NIC's wire: smoltcp, over frames that its owner carries, in its owner's time. The owner adds sockets and
//! drives them.

use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// Frames in both directions.
struct Link {
    incoming: VecDeque<Vec<u8>>,
    outgoing: Vec<Vec<u8>>,
    checksum: ChecksumCapabilities,
    burst: Option<usize>,
}

/// A received frame, for smoltcp.
pub struct Received(Vec<u8>);

/// A place for frames that smoltcp sends.
pub struct Sent<'a>(&'a mut Vec<Vec<u8>>);

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
        capabilities.max_burst_size = self.burst;
        capabilities.checksum = self.checksum.clone();
        capabilities
    }
}

/// The stack, with its wire and its sockets.
pub struct Stack {
    link: Link,
    /// Interface, for sockets that connect.
    pub interface: Interface,
    /// Its sockets.
    pub sockets: SocketSet<'static>,
    /// Latest time for the next step, in nanoseconds.
    pub deadline: Option<u64>,
}

fn instant(now: u64) -> Instant {
    Instant::from_micros((now / 1000) as i64)
}

impl Stack {
    /// Returns a stack with this hardware address, at this address of a /24 network. `checksum` selects the checksums that it
    /// computes, and those that it checks.
    pub fn new(mac: [u8; 6], address: Ipv4Addr, checksum: ChecksumCapabilities) -> Stack {
        let mut link = Link { incoming: VecDeque::new(), outgoing: Vec::new(), checksum, burst: None };
        let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress(mac)));
        config.random_seed = 7;
        let mut interface = Interface::new(config, &mut link, instant(0));
        interface.update_ip_addrs(|addresses| {
            let _ = addresses.push(IpCidr::new(address.into(), 24));
        });
        Stack { link, interface, sockets: SocketSet::new(Vec::new()), deadline: Some(0) }
    }

    /// Limits the frames that its link takes at a time.
    pub fn with_burst(mut self, frames: usize) -> Stack {
        self.link.burst = Some(frames);
        self
    }

    /// Takes a frame from the wire.
    pub fn receive(&mut self, frame: Vec<u8>) {
        self.link.incoming.push_back(frame);
        self.deadline = Some(0);
    }

    /// Does all work that is possible, and lets `work` use the sockets; `work` returns true if it moved anything. Returns frames.
    pub fn step(&mut self, now: u64, mut work: impl FnMut(&mut SocketSet<'static>) -> bool) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        loop {
            self.interface.poll(instant(now), &mut self.link, &mut self.sockets);
            let sent = !self.link.outgoing.is_empty();
            out.append(&mut self.link.outgoing);
            if !work(&mut self.sockets) && !sent {
                let at = self.interface.poll_at(instant(now), &self.sockets);
                self.deadline = at.map(|at| (at.total_micros().max(0) as u64 * 1000).max(now + 1000));
                return out;
            }
        }
    }
}
