//! TCP and UDP on the card's own address: listeners, and connections and datagrams that are sources and sinks of transfers. And TCP on the
//! address of a NIC that the engine drives itself ([`Builder::nic`](crate::engine::Builder::nic)).
//!
//! The kernel knows nothing of them: the card, or the engine, makes and takes every segment. A connection is open as long as it, or a
//! transfer that names it, lives, and as long as the engine does; so are datagrams.

use crate::endpoint::{Range, Sink, Source};
use crate::engine::{Engine, Shared};
use dcs_abi::admin::{AdminEntry, opcode};
use dcs_abi::status::Status;
use dcs_devices::Endpoint;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU16;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Why there is no listener, no connection, or no datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {what}: {status}")]
pub struct NetError {
    what: &'static str,
    /// What the card, or the engine, said.
    pub status: Status,
}

/// What the card, or the engine, has a number for, until this is dropped.
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

/// Waits for connections to a port. Dropping it ends that.
#[derive(Debug)]
pub struct Listener {
    held: Held,
    /// Connections that somebody began to wait for, and gave up: whoever waits next has them.
    given_up: Mutex<Vec<Receiver<Accepted>>>,
}

/// A connection's handle, and the peer's address.
type Accepted = Result<(u32, u32), Status>;

/// A connection. Dropping it resets it, unless its own stream was ended before ([`Connection::shutdown`]).
#[derive(Clone, Debug)]
pub struct Connection {
    held: Arc<Held>,
    peer: Ipv4Addr,
}

/// Datagrams between a port of the card and one of a peer (UDP, RFC 768). Dropping it closes them.
///
/// As a sink, each block of a transfer (64 KiB, unless the card was made otherwise) is cut into datagrams of so many bytes of payload, the
/// last one of what is left, and the transfer is done when the NIC has sent them, as fast as it can. **Nothing is sent again, and nothing
/// is slowed down by a peer or a network that cannot follow**: what is lost is lost, and the transfer succeeds all the same. It fails with
/// `WRITE_ERROR` (errno EHOSTUNREACH) where nobody answers ARP.
///
/// As a source, the payloads of datagrams from that peer to that port are put one behind the other, as they come, until the transfer has
/// the length that it must have been given ([`crate::session::Request::length`], else `INVALID_FIELD`). Where one is lost it waits for others: give it a
/// timeout. A datagram that is longer than what a transfer lacks fails it with `READ_ERROR` (errno EMSGSIZE), and is the next one's; the next
/// one also gets what comes after a transfer that failed, never the rest of a datagram of which that had a part. What comes while no
/// transfer waits is held: 256 datagrams, and 1,024 of all of a NIC's; more are dropped, and counted ([`Datagrams::dropped`]).
/// Empty datagrams are passed over.
#[derive(Clone, Debug)]
pub struct Datagrams(Arc<Held>);

impl Engine {
    /// Opens datagrams between a port of the card's address and a peer. `payload`: bytes of each that is sent, 1 to the MTU less 28 (1,472
    /// of 1,500), or `None` for that. Sizes that divide a block make all of them alike.
    ///
    /// # Errors
    ///
    /// [`NetError`]: they are open already, a port is 0, the payload does not fit, the card has no way to that address, there are 256 of
    /// them, or this engine has no card with a NIC.
    pub fn datagrams(
        &self,
        port: u16,
        remote: SocketAddrV4,
        payload: Option<NonZeroU16>,
    ) -> Result<Datagrams, NetError> {
        const WHAT: &str = "open datagrams";
        let nic = self.nic(WHAT)?;
        let ports = u32::from(remote.port()) | u32::from(port) << 16;
        let payload = payload.map_or(0, |payload| payload.get().into());
        let entry = entry(opcode::DATAGRAMS, &[nic, remote.ip().to_bits(), ports, payload]);
        let (handle, _) = self.ask(WHAT, &entry)?;
        Ok(Datagrams(Arc::new(Held { engine: Arc::clone(&self.shared), handle })))
    }

    /// Waits for connections to a port of the card's address, or of the NIC's.
    ///
    /// # Errors
    ///
    /// [`NetError`]: the port is taken, or this engine has no NIC, nor a card with one.
    pub fn listen(&self, port: u16) -> Result<Listener, NetError> {
        let nic = self.nic("listen")?;
        let (handle, _) = self.ask("listen", &entry(opcode::LISTEN, &[nic, port.into()]))?;
        let held = Held { engine: Arc::clone(&self.shared), handle };
        Ok(Listener { held, given_up: Mutex::default() })
    }

    /// Connects from the card's address, or from the NIC's.
    ///
    /// # Errors
    ///
    /// [`NetError`]: nobody answers, or refuses; or this engine has no NIC, nor a card with one.
    pub fn connect(&self, to: SocketAddrV4) -> Result<Connection, NetError> {
        self.connect_within(to, None)
    }

    /// The same, and gives up after so long ([`Status::Timeout`]).
    ///
    /// # Errors
    ///
    /// As [`Engine::connect`].
    pub fn connect_timeout(&self, to: SocketAddrV4, limit: Duration) -> Result<Connection, NetError> {
        self.connect_within(to, Some(limit))
    }

    fn connect_within(&self, to: SocketAddrV4, limit: Option<Duration>) -> Result<Connection, NetError> {
        const WHAT: &str = "connect";
        let entry = entry(opcode::CONNECT, &[self.nic(WHAT)?, to.ip().to_bits(), to.port().into()]);
        let made = self.shared.admin_within(entry, limit);
        let (handle, _) = made.map_err(|status| NetError { what: WHAT, status })?;
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
        self.accept_within(None)
    }

    /// The same, and waits no longer than so ([`Status::Timeout`]).
    ///
    /// # Errors
    ///
    /// As [`Listener::accept`].
    pub fn accept_timeout(&self, limit: Duration) -> Result<Connection, NetError> {
        self.accept_within(Some(limit))
    }

    fn accept_within(&self, limit: Option<Duration>) -> Result<Connection, NetError> {
        let Held { engine, handle } = &self.held;
        let given_up = || self.given_up.lock().unwrap_or_else(|error| error.into_inner());
        let before = given_up().pop();
        let asked = before.unwrap_or_else(|| engine.begin_admin(entry(opcode::ACCEPT, &[*handle])));
        let accepted = engine.answer(&asked, limit);
        if matches!(accepted, Err(Status::Timeout)) {
            given_up().push(asked);
        }
        let failed = |status| NetError { what: "accept a connection", status };
        let (handle, peer) = accepted.and_then(|accepted| accepted).map_err(failed)?;
        let held = Arc::new(Held { engine: Arc::clone(engine), handle });
        Ok(Connection { held, peer: Ipv4Addr::from_bits(peer) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let given_up = std::mem::take(self.given_up.get_mut().unwrap_or_else(|error| error.into_inner()));
        for (handle, _) in given_up.into_iter().filter_map(|asked| asked.try_recv().ok()?.ok()) {
            self.held.engine.admin_later(entry(opcode::RELEASE, &[handle]));
        }
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
}

impl Datagrams {
    /// Datagrams that came when there was no room for them, modulo 2^32.
    ///
    /// # Errors
    ///
    /// [`NetError`]: the NIC is gone.
    pub fn dropped(&self) -> Result<u32, NetError> {
        let asked = self.0.engine.admin(entry(opcode::DROPPED, &[self.0.handle]));
        asked.map(|(dropped, _)| dropped).map_err(|status| NetError { what: "count datagrams", status })
    }
}

fn endpoint(held: &Arc<Held>) -> Endpoint {
    Endpoint::device_flow(held.handle, Arc::clone(held) as _)
}

impl Source {
    /// What a connection of the card, or of the engine's NIC, receives.
    pub fn connection(connection: &Connection) -> Source {
        Source::endpoint(Ok(endpoint(&connection.held)), Range::From(0))
    }

    /// What comes in datagrams of the card. The transfer needs a length ([`crate::session::Request::length`]).
    pub fn datagrams(datagrams: &Datagrams) -> Source {
        Source::endpoint(Ok(endpoint(&datagrams.0)), Range::From(0))
    }
}

impl Sink {
    /// A connection of the card, or of the engine's NIC.
    pub fn connection(connection: &Connection) -> Sink {
        Sink::endpoint(Ok(endpoint(&connection.held)), Range::From(0))
    }

    /// Datagrams of the card.
    pub fn datagrams(datagrams: &Datagrams) -> Sink {
        Sink::endpoint(Ok(endpoint(&datagrams.0)), Range::From(0))
    }
}
