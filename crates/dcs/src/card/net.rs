//! TCP on the card's own address: listeners, and connections that are sources and sinks of transfers.
//!
//! The kernel knows nothing of them: the card makes and takes every segment. A connection is open as long as it, or a transfer that names
//! it, lives.

use crate::endpoint::{Range, Sink, Source};
use crate::engine::{Engine, Shared};
use dcs_abi::admin::{AdminEntry, opcode};
use dcs_abi::status::Status;
use dcs_devices::Endpoint;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

/// Why there is no listener or connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the card cannot {what}: {status}")]
pub struct NetError {
    what: &'static str,
    /// What the card said.
    pub status: Status,
}

/// What the card has a number for, until this is dropped.
#[derive(Debug)]
struct Held {
    engine: Arc<Shared>,
    handle: u32,
}

impl Drop for Held {
    fn drop(&mut self) {
        // It may be the engine's own thread that lets go of it last: nobody waits.
        self.engine.admin_later(entry(opcode::RELEASE, &[self.handle]));
    }
}

fn entry(opcode: u8, words: &[u32]) -> AdminEntry {
    let mut entry = AdminEntry { opcode, ..Default::default() };
    entry.words[..words.len()].copy_from_slice(words);
    entry
}

/// Waits for connections to a port of the card. Dropping it ends that.
#[derive(Debug)]
pub struct Listener(Held);

/// A connection. Dropping it resets it, unless its own stream was ended before ([`Connection::shutdown`]).
#[derive(Clone, Debug)]
pub struct Connection {
    held: Arc<Held>,
    peer: Ipv4Addr,
}

impl Engine {
    /// Waits for connections to a port of the card's address.
    ///
    /// # Errors
    ///
    /// [`NetError`]: the port is taken, or this engine has no card with a NIC.
    pub fn listen(&self, port: u16) -> Result<Listener, NetError> {
        let nic = self.nic("listen")?;
        let (handle, _) = self.ask("listen", &entry(opcode::LISTEN, &[nic, port.into()]))?;
        Ok(Listener(Held { engine: Arc::clone(&self.shared), handle }))
    }

    /// Connects from the card's address.
    ///
    /// # Errors
    ///
    /// [`NetError`]: nobody answers, or refuses; or this engine has no card with a NIC.
    pub fn connect(&self, to: SocketAddrV4) -> Result<Connection, NetError> {
        let nic = self.nic("connect")?;
        let entry = entry(opcode::CONNECT, &[nic, to.ip().to_bits(), to.port().into()]);
        let (handle, _) = self.ask("connect", &entry)?;
        Ok(Connection { held: Arc::new(Held { engine: Arc::clone(&self.shared), handle }), peer: *to.ip() })
    }

    fn nic(&self, what: &'static str) -> Result<u32, NetError> {
        self.shared.nic.ok_or(NetError { what, status: Status::UnsupportedEndpoint })
    }

    fn ask(&self, what: &'static str, entry: &AdminEntry) -> Result<(u32, u32), NetError> {
        self.shared.admin(*entry).map_err(|status| NetError { what, status })
    }
}

impl Listener {
    /// The next connection; waits for one.
    ///
    /// # Errors
    ///
    /// [`NetError`]: the engine has stopped, or the NIC has gone.
    pub fn accept(&self) -> Result<Connection, NetError> {
        let engine = &self.0.engine;
        let accepted = engine.admin(entry(opcode::ACCEPT, &[self.0.handle]));
        let (handle, peer) = accepted.map_err(|status| NetError { what: "accept a connection", status })?;
        let held = Arc::new(Held { engine: Arc::clone(engine), handle });
        Ok(Connection { held, peer: Ipv4Addr::from_bits(peer) })
    }
}

impl Connection {
    /// Who is at the other end.
    pub fn peer(&self) -> Ipv4Addr {
        self.peer
    }

    /// Ends the outgoing stream: the peer sees its end after what was sent.
    ///
    /// # Errors
    ///
    /// [`NetError`]: the connection is gone.
    pub fn shutdown(&self) -> Result<(), NetError> {
        let done = self.held.engine.admin(entry(opcode::SHUTDOWN, &[self.held.handle]));
        done.map(|_| ()).map_err(|status| NetError { what: "end the stream", status })
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::device_flow(self.held.handle, Arc::clone(&self.held) as _)
    }
}

impl Source {
    /// What a connection of the card receives.
    pub fn connection(connection: &Connection) -> Source {
        Source::endpoint(Ok(connection.endpoint()), Range::From(0))
    }
}

impl Sink {
    /// A connection of the card.
    pub fn connection(connection: &Connection) -> Sink {
        Sink::endpoint(Ok(connection.endpoint()), Range::From(0))
    }
}
