//! A NIC of an engine: over VFIO, with TCP of this process behind it, and the numbers by which its connections are known.

#![forbid(unsafe_code)]

use super::bus::VfioBus;
use super::error::DriveError;
use dcs_abi::status::Status;
use dcs_drivers::bus::{Region, Window};
use dcs_drivers::network::{Address, Network, State, Wish, WriteTo};
use dcs_drivers::nic::{self, Model};
use dcs_drivers::ssd::Told;
use dcs_engine::{BlockId, Nanos, OperationId};
use dcs_net::{Flow, Piece};
use dcs_vfio::Function;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Largest IPv4 packet of an Ethernet without larger frames.
const MTU: u16 = 1500;
/// A block shorter than this may wait a little for the next one of its stream, to go in one segment with it (MSG_MORE).
const WORTH_WAITING: u32 = 8192;

/// Handles are this process's, whichever engine has them: no engine takes another one's for its own. A card's are below.
static HANDLES: AtomicU32 = AtomicU32::new(1 << 31);

/// Which NIC an engine is to drive, and who it is on its network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedNic {
    /// The PCI function, as `0000:02:00.0`.
    pub function: String,
    /// Its IPv4 address.
    pub address: Ipv4Addr,
    /// Length of the network's prefix.
    pub prefix: u8,
    /// The way to other networks.
    pub gateway: Option<Ipv4Addr>,
}

/// A NIC that an engine drives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// What was wanted.
    pub wanted: WantedNic,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// What it is.
    pub model: Model,
    /// The memory that it reaches is of huge pages.
    pub huge_pages: bool,
}

/// What is asked of a NIC, beside moving bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Wait for connections to a port. Answer: the listener.
    Listen(u16),
    /// The next connection to a listener. Answer: the connection, and the peer's address.
    Accept(u32),
    /// A new connection. Answer: as above.
    Connect(SocketAddrV4),
    /// End a connection's outgoing stream.
    Shutdown(u32),
    /// Let go of a listener or a connection.
    Release(u32),
}

/// What comes of it: two numbers, or why not.
pub type Answer = Result<(u32, u32), Status>;

/// What a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thing {
    Listener(u16),
    Flow(Flow),
}

/// What a link tells.
#[derive(Debug)]
pub(super) enum Spoken {
    Told(Told),
    Answer(u16, Answer),
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Link {
    // Dropped in this order: the kernel resets the function before its memory is anybody else's.
    pub function: Function,
    pub network: Network,
    bus: VfioBus,
    pub interface: Arc<Interface>,
    things: HashMap<u32, Thing>,
    /// It was given up, and reset: it reaches nothing any more.
    silent: bool,
}

/// What a NIC is, if it is one that can be driven.
pub(super) fn model(address: &str) -> Result<Model, DriveError> {
    let (vendor, device) = dcs_vfio::id(address).ok_or_else(|| DriveError::Missing(address.to_owned()))?;
    Model::of_function((vendor, device))
        .ok_or_else(|| DriveError::NoDriver(address.to_owned(), vendor, device))
}

/// How it is set up, with its registers there, and memory of pages of that size.
pub(super) fn config(model: Model, registers: Window, controller: u32, page: u64) -> nic::Config {
    // A block of many pages has many descriptors.
    nic::Config { interrupts: true, page, transmit: 1024, ..nic::Config::new(registers, controller, model) }
}

impl Link {
    /// A NIC that is yet to be started.
    pub fn new(
        (wanted, huge_pages): (&WantedNic, bool),
        config: nic::Config,
        (function, bus): (Function, VfioBus),
        path: u32,
        region: &mut Region,
    ) -> Result<Link, DriveError> {
        let WantedNic { address, prefix, gateway, .. } = *wanted;
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
        let network = network.ok_or_else(|| DriveError::Registers(wanted.function.clone()))?;
        let interface = Interface { wanted: wanted.clone(), mac: [0; 6], model: config.model, huge_pages };
        let (interface, things) = (Arc::new(interface), HashMap::new());
        Ok(Link { function, network, bus, interface, things, silent: false })
    }

    /// Its bus.
    pub fn bus(&self) -> &VfioBus {
        &self.bus
    }

    /// Brings it up.
    pub fn start(&mut self, now: Nanos) {
        let WantedNic { address, prefix, gateway, .. } = self.interface.wanted;
        self.network.start(&mut self.bus, now, Address { ip: address, prefix, gateway, mtu: MTU });
    }

    /// Whether it is up, or why it will not be. `late`: it took too long.
    pub fn is_up(&mut self, late: bool) -> Result<bool, DriveError> {
        let name = || self.interface.wanted.function.clone();
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

    /// Looks after it: frames in both directions, timers.
    pub fn look(&mut self, now: Nanos) {
        self.network.poll(&mut self.bus, now);
        while let Some(done) = self.bus.answer() {
            self.network.read_done(&mut self.bus, now, done);
            self.network.poll(&mut self.bus, now);
        }
        if self.network.failure().is_some() && !self.silent {
            // Without bus mastering it reaches nothing, whatever it does: blocks that it had are free.
            self.silent = self.function.enable(false).is_ok();
            let _ = self.function.reset();
            if self.silent {
                self.network.silenced(&mut self.bus);
            }
        }
    }

    /// The next thing that it tells.
    pub fn spoken(&mut self) -> Option<Spoken> {
        match self.network.wish()? {
            Wish::Tell(told) => Some(Spoken::Told(told)),
            Wish::Connection(ticket, found) => {
                let answer = found.map(|(flow, peer)| (self.handle(Thing::Flow(flow)), peer.to_bits()));
                Some(Spoken::Answer(ticket, answer))
            }
        }
    }

    fn handle(&mut self, thing: Thing) -> u32 {
        let handle = HANDLES.fetch_add(1, Ordering::Relaxed) | 1 << 31;
        self.things.insert(handle, thing);
        handle
    }

    /// Does what is asked. No answer: it comes later, under this ticket.
    pub fn ask(&mut self, now: Nanos, ticket: u16, ask: Ask) -> Option<Answer> {
        let answer = match ask {
            Ask::Listen(port) => self.network.listen(port).map(|()| (self.handle(Thing::Listener(port)), 0)),
            Ask::Connect(to) => match self.network.connect(now, to, ticket) {
                Ok(()) => return self.looked(now),
                Err(status) => Err(status),
            },
            Ask::Accept(handle) => match self.things.get(&handle) {
                Some(Thing::Listener(port)) => match self.network.accept(*port, ticket) {
                    Ok(()) => return self.looked(now),
                    Err(status) => Err(status),
                },
                _ => Err(Status::BadHandle),
            },
            Ask::Shutdown(handle) => match self.things.get(&handle) {
                Some(Thing::Flow(flow)) if self.network.has(*flow) => {
                    self.network.shutdown(*flow);
                    Ok((0, 0))
                }
                Some(Thing::Flow(_)) => Err(Status::PeerReset),
                _ => Err(Status::BadHandle),
            },
            Ask::Release(handle) => match self.things.remove(&handle) {
                Some(Thing::Listener(port)) => {
                    self.network.unlisten(port);
                    Ok((0, 0))
                }
                Some(Thing::Flow(flow)) => {
                    self.network.release(&mut self.bus, flow);
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

    /// The connection of a handle.
    pub fn flow(&self, handle: u32) -> Option<Flow> {
        match self.things.get(&handle) {
            Some(Thing::Flow(flow)) => Some(*flow),
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
        // The end of a large block waits for no other: the next one may be waiting for just this one to be acknowledged.
        let more = more && piece.length < WORTH_WAITING;
        self.network.write(flow, WriteTo { operation, block, piece, more });
        self.look(now);
    }

    /// Is done when the peer has acknowledged what was sent so far.
    pub fn flush(&mut self, flow: Flow, operation: OperationId) {
        self.network.flush(flow, operation);
    }

    pub fn abort(&mut self, operation: OperationId) {
        self.network.abort(&mut self.bus, operation);
    }

    /// Has the next frame interrupt; or tells that there is something to do before that.
    pub fn arm(&mut self, now: Nanos) -> bool {
        // What is known already shall not interrupt.
        self.network.quiet(&mut self.bus);
        self.bus.flush();
        self.look(now);
        let busy = self.network.has_wish();
        if !busy {
            self.network.arm(&mut self.bus);
        }
        busy
    }

    /// Has no frame interrupt.
    pub fn disarm(&mut self) {
        self.network.disarm(&mut self.bus);
    }

    /// The engine ends. Connections that were ended are seen off, the others reset; true as long as that is not done.
    pub fn finish(&mut self) -> bool {
        !self.silent && self.network.finish(&mut self.bus)
    }

    /// Has it stop.
    pub fn leave(&mut self) {
        self.network.leave(&mut self.bus);
    }
}
