//! An engine's NIC: over VFIO, with TCP in this process on top of it, and the handles of its connections.

#![forbid(unsafe_code)]

use super::DriveEvent;
use super::bus::VfioBus;
use super::error::DriveError;
use dcs_abi::admin::{Answer, PacedOptions};
use dcs_abi::descriptor::Pace;
use dcs_abi::status::Status;
use dcs_drivers::bus::{Region, Window};
use dcs_drivers::network::{Address, Network, NetworkAction, State, WriteTo};
use dcs_drivers::nic::{self, Model};
use dcs_engine::{BlockId, Nanos, OperationId};
use dcs_net::{Flow, Piece};
use dcs_vfio::Function;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Largest IPv4 packet of an Ethernet without jumbo frames.
const MTU: u16 = 1500;

/// Next handle. Handles are unique in this process, so that no engine takes another one's for its own. A card's are below this range.
static HANDLES: AtomicU32 = AtomicU32::new(1 << 31);

/// A NIC for an engine to drive, and its address on the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicOptions {
    /// The PCI function, as `0000:02:00.0`.
    pub function: String,
    /// IPv4 address.
    pub address: Ipv4Addr,
    /// Prefix length of the network.
    pub prefix: u8,
    /// Gateway to other networks.
    pub gateway: Option<Ipv4Addr>,
}

/// A NIC that an engine drives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Options that it was opened with.
    pub options: NicOptions,
    /// Ethernet address.
    pub mac: [u8; 6],
    /// Model of the NIC.
    pub model: Model,
    /// Set if the memory that it reaches is in huge pages.
    pub huge_pages: bool,
}

/// A request to a NIC, other than to move bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NicRequest {
    /// Wait for connections to a port. Answer: the listener.
    Listen(u16),
    /// The next connection to a listener. Answer: the connection, and the peer's address.
    Accept(u32),
    /// A new connection. Answer: as above.
    Connect(SocketAddrV4),
    /// End a connection's outgoing stream.
    Shutdown(u32),
    /// A media stream. Answer: it.
    OpenPaced(PacedOptions),
    /// Release a listener, a connection or a media stream.
    Release(u32),
}

/// The target that a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandleTarget {
    Listener(u16),
    Flow(Flow),
    Paced(u32),
}

/// A NIC and its connections; see the [module](self).
#[derive(Debug)]
pub(super) struct Link {
    // Dropped in this order: the kernel resets the function before its memory is reused.
    pub function: Function,
    pub network: Network,
    bus: VfioBus,
    pub interface: Arc<Interface>,
    targets: HashMap<u32, HandleTarget>,
    /// Set once it was given up and reset: it reaches nothing any more.
    is_reset: bool,
}

/// Returns the model of a NIC, if it is one that can be driven.
pub(super) fn model(address: &str) -> Result<Model, DriveError> {
    let (vendor, device) = dcs_vfio::id(address).ok_or_else(|| DriveError::Missing(address.to_owned()))?;
    Model::of_function((vendor, device))
        .ok_or_else(|| DriveError::NoDriver(address.to_owned(), vendor, device))
}

/// Returns the driver's settings, with the registers in `registers` and memory of pages of `page` bytes.
pub(super) fn config(model: Model, registers: Window, controller: u32, page: u64) -> nic::Config {
    // A block of many pages has many descriptors.
    nic::Config { interrupts: true, page, transmit: 1024, ..nic::Config::new(registers, controller, model) }
}

impl Link {
    /// Makes a NIC that is not started yet.
    pub fn new(
        (options, huge_pages): (&NicOptions, bool),
        config: nic::Config,
        (function, bus): (Function, VfioBus),
        path: u32,
        region: &mut Region,
    ) -> Result<Link, DriveError> {
        let NicOptions { address, prefix, gateway, .. } = *options;
        let host =
            prefix <= 32 && !(address.is_unspecified() || address.is_loopback() || address.is_multicast());
        if !host {
            return Err(DriveError::Host(address, prefix));
        }
        let mut key = [0; 16];
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| DriveError::Random(errno.into()))?;
        let at = Address { ip: address, prefix, gateway, mtu: MTU };
        let network = Network::new(config, at, (key, path), region);
        let network = network.ok_or_else(|| DriveError::Registers(options.function.clone()))?;
        let interface = Interface { options: options.clone(), mac: [0; 6], model: config.model, huge_pages };
        let (interface, targets) = (Arc::new(interface), HashMap::new());
        Ok(Link { function, network, bus, interface, targets, is_reset: false })
    }

    /// Returns its bus.
    pub fn bus(&self) -> &VfioBus {
        &self.bus
    }

    /// Starts it.
    pub fn start(&mut self, now: Nanos) {
        let NicOptions { address, prefix, gateway, .. } = self.interface.options;
        self.network.start(&mut self.bus, now, Address { ip: address, prefix, gateway, mtu: MTU });
    }

    /// Returns true if it is up; an error if it will not be. `late`: it took too long.
    pub fn is_up(&mut self, late: bool) -> Result<bool, DriveError> {
        let name = || self.interface.options.function.clone();
        match (self.network.state(), self.network.failure(), self.network.mac()) {
            (State::Failed, Some(failure), _) => Err(DriveError::StartNic(name(), failure)),
            (State::Ready, _, Some(mac)) if self.network.link() => {
                self.interface = Arc::new(Interface { mac, ..(*self.interface).clone() });
                Ok(true)
            }
            (State::Ready, ..) if late => Err(DriveError::NoLink(name())),
            _ if late => Err(DriveError::Slow(name())),
            _ => Ok(false),
        }
    }

    /// Does everything that is due: frames in both directions, timers.
    pub fn look(&mut self, now: Nanos) {
        self.network.poll(&mut self.bus, now);
        while let Some(done) = self.bus.answer() {
            self.network.read_done(&mut self.bus, now, done);
            self.network.poll(&mut self.bus, now);
        }
        if self.network.failure().is_some() && !self.is_reset {
            // Without bus mastering it reaches nothing, whatever it does: the blocks that it had are free.
            self.is_reset = self.function.enable(false).is_ok();
            let _ = self.function.reset();
            if self.is_reset {
                self.network.on_reset(&mut self.bus);
            }
        }
    }

    /// Returns the next event.
    pub fn next_event(&mut self) -> Option<DriveEvent> {
        match self.network.next_action()? {
            NetworkAction::Device(event) => Some(DriveEvent::Device(event)),
            NetworkAction::Connection(ticket, found) => {
                let answer =
                    found.map(|(flow, peer)| (self.handle(HandleTarget::Flow(flow)), peer.to_bits()));
                Some(DriveEvent::Answer(ticket, answer))
            }
        }
    }

    fn handle(&mut self, target: HandleTarget) -> u32 {
        let handle = HANDLES.fetch_add(1, Ordering::Relaxed) | 1 << 31;
        self.targets.insert(handle, target);
        handle
    }

    /// Carries out a request. `None`: the answer comes later, under this ticket.
    pub fn ask(&mut self, now: Nanos, ticket: u16, ask: NicRequest) -> Option<Answer> {
        let answer = match ask {
            NicRequest::Listen(port) => {
                self.network.listen(port).map(|()| (self.handle(HandleTarget::Listener(port)), 0))
            }
            NicRequest::Connect(to) => match self.network.connect(now, to, ticket) {
                Ok(()) => return self.looked(now),
                Err(status) => Err(status),
            },
            NicRequest::Accept(handle) => match self.targets.get(&handle) {
                Some(HandleTarget::Listener(port)) => match self.network.accept(*port, ticket) {
                    Ok(()) => return self.looked(now),
                    Err(status) => Err(status),
                },
                _ => Err(Status::BadHandle),
            },
            NicRequest::Shutdown(handle) => match self.targets.get(&handle) {
                Some(HandleTarget::Flow(flow)) if self.network.has(*flow) => {
                    self.network.shutdown(*flow);
                    Ok((0, 0))
                }
                Some(HandleTarget::Flow(_)) => Err(Status::PeerReset),
                _ => Err(Status::BadHandle),
            },
            NicRequest::OpenPaced(options) => {
                self.network.set_now(now);
                self.network.open_paced(&options).map(|stream| (self.handle(HandleTarget::Paced(stream)), 0))
            }
            NicRequest::Release(handle) => match self.targets.remove(&handle) {
                Some(HandleTarget::Listener(port)) => {
                    self.network.unlisten(port);
                    Ok((0, 0))
                }
                Some(HandleTarget::Flow(flow)) => {
                    self.network.release(&mut self.bus, flow);
                    Ok((0, 0))
                }
                Some(HandleTarget::Paced(stream)) => {
                    self.network.set_now(now);
                    self.network.release_paced(&mut self.bus, stream);
                    Ok((0, 0))
                }
                None => Err(Status::BadHandle),
            },
        };
        self.looked(now);
        Some(answer)
    }

    fn looked(&mut self, now: Nanos) -> Option<Answer> {
        self.look(now);
        None
    }

    /// Returns the connection of a handle.
    pub fn flow(&self, handle: u32) -> Option<Flow> {
        match self.targets.get(&handle) {
            Some(HandleTarget::Flow(flow)) => Some(*flow),
            _ => None,
        }
    }

    /// Receives into own memory.
    pub fn read(&mut self, now: Nanos, flow: Flow, place: (OperationId, u64, u32)) {
        self.network.read(&mut self.bus, now, flow, place);
    }

    /// Sends a block's bytes.
    pub fn write(
        &mut self,
        now: Nanos,
        flow: Flow,
        (operation, block): (OperationId, BlockId),
        piece: Piece,
        more: bool,
    ) {
        self.network.write(flow, WriteTo { operation, block, piece, more });
        self.look(now);
    }

    /// Begins a flush, which is done when the peer has acknowledged everything sent so far.
    pub fn flush(&mut self, flow: Flow, operation: OperationId) {
        self.network.flush(flow, operation);
    }

    /// Returns the media stream of a handle.
    pub fn paced(&self, handle: u32) -> Option<u32> {
        match self.targets.get(&handle) {
            Some(HandleTarget::Paced(stream)) => Some(*stream),
            _ => None,
        }
    }

    /// Gives a media stream a block's bytes.
    pub fn write_paced(
        &mut self,
        now: Nanos,
        stream: u32,
        write: (OperationId, Piece),
        begin: Option<&Pace>,
    ) {
        self.network.set_now(now);
        self.network.write_paced(&mut self.bus, stream, write, begin);
        self.look(now);
    }

    /// Waits until a media stream has sent everything, unless another transfer joins it.
    pub fn flush_paced(
        &mut self,
        now: Nanos,
        stream: u32,
        (operation, more): (OperationId, bool),
        begin: Option<&Pace>,
    ) {
        self.network.set_now(now);
        self.network.flush_paced(&mut self.bus, stream, operation, more, begin);
        self.look(now);
    }

    /// Ends a transfer to a media stream.
    pub fn end_paced(&mut self, now: Nanos, stream: u32) {
        self.network.set_now(now);
        self.network.end_paced(stream);
    }

    pub fn abort(&mut self, operation: OperationId) {
        self.network.abort(&mut self.bus, operation);
    }

    /// Enables the interrupt of the next frame; returns true if there is something to do before that.
    pub fn arm(&mut self, now: Nanos) -> bool {
        // Frames that were seen already must not interrupt.
        self.network.quiet(&mut self.bus);
        self.bus.flush();
        self.look(now);
        let busy = self.network.has_action();
        if !busy {
            self.network.arm(&mut self.bus);
        }
        busy
    }

    /// Disables interrupts of frames.
    pub fn disarm(&mut self) {
        self.network.disarm(&mut self.bus);
    }

    /// Ends all connections: finishes those that were shut down, resets the others. Returns true as long as that is not done.
    pub fn finish(&mut self) -> bool {
        !self.is_reset && self.network.finish(&mut self.bus)
    }

    /// Tells the NIC to stop.
    pub fn detach(&mut self) {
        self.network.detach(&mut self.bus);
    }
}
