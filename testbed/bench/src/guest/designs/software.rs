//! The software-optimised design: this process drives the SSD itself, over VFIO, and optionally the NIC: the same controller and
//! NIC as the card's.
//!
//! Data go to memory of the process (huge pages if some are free), operators run on the processor, and a TCP sends from there:
//! the kernel's, or the process's own. The engine runs in the waiting thread, and sleeps until an interrupt when it has nothing
//! to do.

use super::{Design, Submission, at, open, request_id};
use crate::guest::task::{Blocks, Item, Stream};
use crate::harness::data::Direction;
use dcs::card::Options;
use dcs::card::extents::{self, Purpose};
use dcs::net::Connection;
use dcs::{Backend, Engine, Handle, Namespace, Op, Session, Sink, Source};
use std::fs::File;
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

/// Bytes of a block, and of one read. Larger than the engine's default, so that there are fewer completions and less CPU time.
const BLOCK: u32 = 256 << 10;
const BLOCKS: u32 = 128;
/// Most pieces of a file.
const PIECES: usize = 16;

pub struct Driver {
    wires: Vec<(Wire, Stream)>,
    way: Way,
    namespace: Namespace,
    session: Session,
    in_flight: usize,
    // Dropped last: it stops the devices.
    engine: Engine,
}

/// Path of the data from the SSD on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Host memory, then the kernel's TCP and NIC.
    KernelTcp,
    /// Host memory, then the NIC reads it there.
    Nic,
    /// The SSD's own memory, then the NIC reads it there.
    PeerToPeer,
}

/// The TCP in use.
enum Wire {
    Kernel(TcpStream, Handle),
    Own(Connection),
}

impl Driver {
    /// Drives the SSD, and the NIC, of that set.
    pub fn new(way: Way, in_flight: usize, set: usize) -> io::Result<Driver> {
        let options = Options::from_environment().map_err(io::Error::other)?;
        let disk =
            options.disks.get(set).ok_or_else(|| io::Error::other("DCS_CARD_DISKS names too few SSDs"))?;
        dcs_vfio::bind(&disk.function).map_err(io::Error::other)?;
        let mut builder = Engine::builder().backend(Backend::Kernel).driver(dcs::Driver::Caller);
        builder = builder.block_size(BLOCK).blocks(BLOCKS).nvme(disk.function.as_str(), None);
        if way == Way::PeerToPeer {
            builder = builder.peer_to_peer();
        }
        let nic = way != Way::KernelTcp;
        if nic {
            let nic = options.nics.get(set).cloned();
            let nic = nic.ok_or_else(|| io::Error::other("DCS_CARD_NIC names too few NICs"))?;
            dcs_vfio::bind(&nic.function).map_err(io::Error::other)?;
            builder = builder.nic(nic);
        }
        let engine = builder.start().map_err(io::Error::other)?;
        let namespace = engine.namespaces().first().cloned();
        let namespace = namespace.ok_or_else(|| io::Error::other("the SSD has no namespace"))?;
        let session = engine.session().map_err(io::Error::other)?;
        Ok(Driver { wires: Vec::new(), way, namespace, session, in_flight, engine })
    }

    /// Returns the places of a file. The whole disk is one file system, so its blocks are the namespace's.
    fn places(file: &File, item: Item) -> io::Result<Vec<(u64, u64)>> {
        let purpose = if item.direction == Direction::Send { Purpose::Read } else { Purpose::Write };
        let found = extents::of(file, 0, item.length, purpose, PIECES).map_err(io::Error::other)?;
        Ok(found.iter().map(|extent| (extent.offset, extent.length)).collect())
    }
}

impl Wire {
    fn source(&self) -> Source {
        match self {
            Wire::Kernel(_, handle) => Source::handle(handle, ..),
            Wire::Own(connection) => Source::connection(connection),
        }
    }

    fn sink(&self) -> Sink {
        match self {
            Wire::Kernel(_, handle) => Sink::handle(handle, 0),
            Wire::Own(connection) => Sink::connection(connection),
        }
    }
}

impl Design for Driver {
    fn connect(&mut self, stream: Stream) -> io::Result<()> {
        let wire = match self.way {
            Way::Nic | Way::PeerToPeer => {
                Wire::Own(self.engine.connect(stream.client).map_err(io::Error::other)?)
            }
            Way::KernelTcp => {
                let socket = TcpStream::connect(stream.client)?;
                let handle = Handle::new(&socket).map_err(io::Error::other)?;
                Wire::Kernel(socket, handle)
            }
        };
        self.wires.push((wire, stream));
        Ok(())
    }

    fn submit(&mut self, connection: usize, item: Item, ops: Vec<Op>) -> io::Result<Submission> {
        let start = Instant::now();
        let rid = request_id(self.in_flight, connection);
        let (wire, stream) = at(&self.wires, connection)?;
        let file = open(stream.set, item)?;
        let places = Driver::places(&file, item)?;
        let (request, written) = match item.direction {
            Direction::Send => {
                let source = Source::namespace_extents(&self.namespace, &places);
                (self.session.request(source, ops, wire.sink()), None)
            }
            Direction::Receive => {
                let sink = Sink::namespace_extents(&self.namespace, &places);
                (self.session.request(wire.source(), ops, sink).durable(), Some(file))
            }
        };
        let transfer = request.length(item.length).rid(rid).submit().map_err(io::Error::other)?;
        Ok(Submission::Flying { transfer, start, written })
    }

    fn wait_any(&self) {
        self.session.wait_any();
    }

    fn blocks(&self) -> Option<Blocks> {
        let counted = self.engine.statistics();
        Some(Blocks {
            host_bytes: counted.host_bytes,
            ssd_bytes: counted.peer_bytes,
            copied_bytes: counted.peer_copied,
        })
    }

    fn end(&mut self, connection: usize) -> io::Result<()> {
        match &at(&self.wires, connection)?.0 {
            Wire::Kernel(socket, _) => {
                let mut socket = socket;
                socket.shutdown(Shutdown::Write)?;
                socket.read_exact(&mut [0])
            }
            Wire::Own(connection) => super::hear_the_end(&self.session, connection),
        }
    }
}
