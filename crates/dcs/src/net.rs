//! TCP and UDP on the card's own addresses: listeners, and connections and datagrams that are sources and
//! sinks of transfers. And TCP on the address of a NIC that the engine drives itself
//! ([`Builder::nic`](crate::engine::Builder::nic)).
//!
//! A card may have several NICs, each with an address: a local address selects the NIC. Without one, the
//! choice is a kernel's: the NIC on whose network the peer is (of several, the one with the longest prefix),
//! else the first that has a gateway. If there are several NICs, a listening port needs an address.
//!
//! The kernel knows nothing of them: the card, or the engine, makes and takes every segment. A connection is
//! open as long as it, or a transfer that names it, lives, and as long as the engine does; so are datagrams.

use crate::backend::Port;
use crate::endpoint::{Range, Sink, Source};
use crate::engine::Engine;
use crate::engine::shared::Shared;
use dcs_abi::admin::{AdminEntry, PacedOptions, opcode};
use dcs_abi::status::Status;
use dcs_devices::{Endpoint, Sending};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU16;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Reason why there is no listener, no connection, or no datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {what}: {why}")]
pub struct NetError {
    what: &'static str,
    why: Why,
    /// The status of the card's answer, or the engine's. [`Status::UnsupportedEndpoint`]: there is no NIC to
    /// go to.
    pub status: Status,
}

/// The failure in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Why {
    #[error("{0}")]
    Status(Status),
    #[error("the engine has no NIC: name one (DCS_CARD_NIC for a card)")]
    NoNic,
    #[error("{0} is the address of none of the engine's NICs")]
    NotOurs(Ipv4Addr),
    #[error(
        "no NIC of the engine's is on a network with {0}, and none has a gateway: give one a gateway, or say from which address"
    )]
    NoWay(Ipv4Addr),
    #[error("the engine has several NICs: say at which address")]
    Several,
}

impl NetError {
    fn new(what: &'static str, status: Status) -> NetError {
        NetError { what, why: Why::Status(status), status }
    }

    fn no_nic(what: &'static str, why: Why) -> NetError {
        NetError { what, why, status: Status::UnsupportedEndpoint }
    }
}

/// The NIC of an address, or, without an address, the one by which a peer is reached.
fn choose(ports: &[Port], local: Option<Ipv4Addr>, peer: Ipv4Addr) -> Result<&Port, Why> {
    if let Some(local) = local {
        return of(ports, local);
    }
    let near = ports.iter().rev().filter(|port| port.reaches(peer)).max_by_key(|port| port.nic.prefix);
    match ports {
        [] => Err(Why::NoNic),
        // The NIC reports itself what it cannot do.
        [only] => Ok(only),
        _ => near.or_else(|| ports.iter().find(|port| port.nic.gateway.is_some())).ok_or(Why::NoWay(peer)),
    }
}

fn of(ports: &[Port], local: Ipv4Addr) -> Result<&Port, Why> {
    let missing = if ports.is_empty() { Why::NoNic } else { Why::NotOurs(local) };
    ports.iter().find(|port| port.nic.address == local).ok_or(missing)
}

const LISTEN: &str = "listen";

/// A handle of the card's, or the engine's, until this is dropped.
#[derive(Debug)]
pub(crate) struct OwnedHandle {
    engine: Arc<Shared>,
    handle: u32,
}

impl OwnedHandle {
    pub fn new(engine: &Arc<Shared>, handle: u32) -> OwnedHandle {
        OwnedHandle { engine: Arc::clone(engine), handle }
    }

    pub fn handle(&self) -> u32 {
        self.handle
    }

    /// Returns its counts, if it is a media stream that still exists.
    pub fn paced_sending(&self) -> Option<Sending> {
        self.engine.paced_sending(self.handle)
    }
}

impl Drop for OwnedHandle {
    fn drop(&mut self) {
        // The engine's own thread may drop it last: nothing waits.
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
    held: OwnedHandle,
    local: Ipv4Addr,
    /// Accepts that were given up: the next one takes their connections.
    given_up: Mutex<Vec<Receiver<Accepted>>>,
}

/// A connection's handle, and the peer's address.
type Accepted = Result<(u32, u32), Status>;

/// A connection. Dropping it resets it, unless its own stream was ended before ([`Connection::shutdown`]).
#[derive(Clone, Debug)]
pub struct Connection {
    held: Arc<OwnedHandle>,
    local: Ipv4Addr,
    peer: Ipv4Addr,
}

/// Datagrams between a port of one of the card's addresses and one of a peer (UDP, RFC 768). Dropping it
/// closes them.
///
/// As a sink, each block of a transfer (64 KiB, unless the card was made otherwise) is cut into datagrams of
/// this many bytes of payload, the last one shorter, and the transfer ends when the NIC has sent them, as
/// fast as it can. **Nothing is sent again, and nothing is slowed down for a peer or a network that cannot
/// follow**: lost datagrams are lost, and the transfer succeeds all the same. It fails with `WRITE_ERROR`
/// (errno EHOSTUNREACH) if ARP gets no answer.
///
/// As a source, the payloads of datagrams from that peer to that port are joined as they come, until the
/// transfer has its length, which is required ([`crate::session::Request::length`], else `INVALID_FIELD`). If
/// one is lost it waits for others: give it a timeout. A datagram that is longer than the rest of a transfer
/// fails it with `READ_ERROR` (errno EMSGSIZE), and goes to the next one; the next one also gets datagrams
/// that come after a transfer that failed, but never the rest of a datagram of which that got a part.
/// Datagrams that come while no transfer waits are held: 256, and 1,024 for all of a NIC; further ones are
/// dropped and counted ([`Datagrams::dropped`]). Empty datagrams are skipped.
#[derive(Clone, Debug)]
pub struct Datagrams(Arc<OwnedHandle>);

impl Engine {
    /// The addresses of the card's NICs, or of the engine's own.
    pub fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.first().info.nics.iter().map(|port| port.nic.address)
    }

    /// Opens datagrams between a port of the card's address and a peer. `payload`: bytes of each that is
    /// sent, 1 to the MTU less 28 (1,472 of 1,500), or `None` for that. Sizes that divide a block make all of
    /// them alike. Of several NICs it is the one by which the peer is reached.
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
        let nic = self.choose(WHAT, None, *remote.ip())?;
        let ports = u32::from(remote.port()) | u32::from(port) << 16;
        let payload = payload.map_or(0, |payload| payload.get().into());
        let entry = entry(opcode::DATAGRAMS, &[nic.handle, remote.ip().to_bits(), ports, payload]);
        let (handle, _) = self.ask(WHAT, &entry)?;
        Ok(Datagrams(Arc::new(OwnedHandle { engine: Arc::clone(self.first()), handle })))
    }

    /// Opens a media stream of the NIC by which its peer is reached; a group is reached by the first. Returns its address
    /// too.
    pub(crate) fn open_paced(&self, options: PacedOptions) -> Result<(Arc<OwnedHandle>, Ipv4Addr), NetError> {
        const WHAT: &str = "open a media stream";
        let ports = &self.first().info.nics;
        let nic = match ports.first() {
            Some(first) if options.to.ip().is_multicast() => first,
            _ => self.choose(WHAT, None, *options.to.ip())?,
        };
        let (handle, _) = self.ask(WHAT, &PacedOptions { nic: nic.handle, ..options }.entry())?;
        Ok((Arc::new(OwnedHandle { engine: Arc::clone(self.first()), handle }), nic.nic.address))
    }

    /// Waits for connections to a port of the card's only address, or of the NIC's.
    ///
    /// # Errors
    ///
    /// [`NetError`]: the port is taken, this engine has no NIC, nor a card with one, or it has several: [`Engine::listen_at`].
    pub fn listen(&self, port: u16) -> Result<Listener, NetError> {
        match &self.first().info.nics[..] {
            [] => Err(NetError::no_nic(LISTEN, Why::NoNic)),
            [only] => self.listen_by(only, port),
            _ => Err(NetError::no_nic(LISTEN, Why::Several)),
        }
    }

    /// Waits for connections to a port of this address, which is one of [`Engine::addresses`].
    ///
    /// # Errors
    ///
    /// [`NetError`]: the port is taken, or the address is none of this engine's.
    pub fn listen_at(&self, local: SocketAddrV4) -> Result<Listener, NetError> {
        let nic = of(&self.first().info.nics, *local.ip()).map_err(|why| NetError::no_nic(LISTEN, why))?;
        self.listen_by(nic, local.port())
    }

    fn listen_by(&self, nic: &Port, port: u16) -> Result<Listener, NetError> {
        let (handle, _) = self.ask(LISTEN, &entry(opcode::LISTEN, &[nic.handle, port.into()]))?;
        let held = OwnedHandle { engine: Arc::clone(self.first()), handle };
        Ok(Listener { held, local: nic.nic.address, given_up: Mutex::default() })
    }

    /// Connects from the card's address, or from the NIC's; of several, from the one by which that peer is
    /// reached.
    ///
    /// # Errors
    ///
    /// [`NetError`]: the peer does not answer, or refuses; this engine has no NIC, nor a card with one; or
    /// none of several reaches the peer.
    pub fn connect(&self, to: SocketAddrV4) -> Result<Connection, NetError> {
        self.connect_within(None, to, None)
    }

    /// The same, with a limit ([`Status::Timeout`]).
    ///
    /// # Errors
    ///
    /// As [`Engine::connect`].
    pub fn connect_timeout(&self, to: SocketAddrV4, limit: Duration) -> Result<Connection, NetError> {
        self.connect_within(None, to, Some(limit))
    }

    /// Connects from this address, which is one of [`Engine::addresses`], and gives up after so long, if that
    /// is said.
    ///
    /// # Errors
    ///
    /// As [`Engine::connect`], or the address is none of this engine's.
    pub fn connect_from(
        &self,
        local: Ipv4Addr,
        to: SocketAddrV4,
        limit: Option<Duration>,
    ) -> Result<Connection, NetError> {
        self.connect_within(Some(local), to, limit)
    }

    fn connect_within(
        &self,
        local: Option<Ipv4Addr>,
        to: SocketAddrV4,
        limit: Option<Duration>,
    ) -> Result<Connection, NetError> {
        const WHAT: &str = "connect";
        let nic = self.choose(WHAT, local, *to.ip())?;
        let entry = entry(opcode::CONNECT, &[nic.handle, to.ip().to_bits(), to.port().into()]);
        let made = self.first().admin_within(entry, limit);
        let (handle, _) = made.map_err(|status| NetError::new(WHAT, status))?;
        let held = Arc::new(OwnedHandle { engine: Arc::clone(self.first()), handle });
        Ok(Connection { held, local: nic.nic.address, peer: *to.ip() })
    }

    fn choose(&self, what: &'static str, local: Option<Ipv4Addr>, peer: Ipv4Addr) -> Result<&Port, NetError> {
        choose(&self.first().info.nics, local, peer).map_err(|why| NetError::no_nic(what, why))
    }

    fn ask(&self, what: &'static str, entry: &AdminEntry) -> Result<(u32, u32), NetError> {
        self.first().admin(*entry).map_err(|status| NetError::new(what, status))
    }
}

impl Listener {
    /// The address at which it waits.
    pub fn local(&self) -> Ipv4Addr {
        self.local
    }

    /// The next connection; waits for one.
    ///
    /// # Errors
    ///
    /// [`NetError`]: the engine has stopped, or the NIC has gone.
    pub fn accept(&self) -> Result<Connection, NetError> {
        self.accept_within(None)
    }

    /// The same, with a limit ([`Status::Timeout`]).
    ///
    /// # Errors
    ///
    /// As [`Listener::accept`].
    pub fn accept_timeout(&self, limit: Duration) -> Result<Connection, NetError> {
        self.accept_within(Some(limit))
    }

    fn accept_within(&self, limit: Option<Duration>) -> Result<Connection, NetError> {
        let OwnedHandle { engine, handle } = &self.held;
        let given_up = || self.given_up.lock().unwrap_or_else(|error| error.into_inner());
        let before = given_up().pop();
        let asked = before.unwrap_or_else(|| engine.begin_admin(entry(opcode::ACCEPT, &[*handle])));
        let accepted = engine.answer(&asked, limit);
        if matches!(accepted, Err(Status::Timeout)) {
            given_up().push(asked);
        }
        let failed = |status| NetError::new("accept a connection", status);
        let (handle, peer) = accepted.and_then(|accepted| accepted).map_err(failed)?;
        let held = Arc::new(OwnedHandle { engine: Arc::clone(engine), handle });
        Ok(Connection { held, local: self.local, peer: Ipv4Addr::from_bits(peer) })
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
    /// The local address.
    pub fn local(&self) -> Ipv4Addr {
        self.local
    }

    /// The peer's address.
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
        done.map(|_| ()).map_err(|status| NetError::new("end the stream", status))
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
        asked.map(|(dropped, _)| dropped).map_err(|status| NetError::new("count datagrams", status))
    }
}

fn endpoint(held: &Arc<OwnedHandle>) -> Endpoint {
    Endpoint::device_flow(held.handle, Arc::clone(held) as _)
}

impl Source {
    /// Reads from a connection of the card, or of the engine's NIC.
    pub fn connection(connection: &Connection) -> Source {
        Source::endpoint(Arc::new(endpoint(&connection.held)), Range::From(0))
    }

    /// Reads from datagrams of the card. The transfer needs a length ([`crate::session::Request::length`]).
    pub fn datagrams(datagrams: &Datagrams) -> Source {
        Source::endpoint(Arc::new(endpoint(&datagrams.0)), Range::From(0))
    }
}

impl Sink {
    /// A connection of the card, or of the engine's NIC.
    pub fn connection(connection: &Connection) -> Sink {
        Sink::endpoint(Arc::new(endpoint(&connection.held)), Range::From(0))
    }

    /// Datagrams of the card.
    pub fn datagrams(datagrams: &Datagrams) -> Sink {
        Sink::endpoint(Arc::new(endpoint(&datagrams.0)), Range::From(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcs_devices::vfio_devices::NicOptions;

    fn port(handle: u32, address: [u8; 4], prefix: u8, gateway: Option<[u8; 4]>) -> Port {
        let (address, gateway) = (address.into(), gateway.map(Ipv4Addr::from));
        Port { handle, nic: NicOptions { function: String::new(), address, prefix, gateway } }
    }

    #[test]
    fn a_flow_is_the_nic_s_whose_address_or_network_it_is_of() {
        let ports = [
            port(1, [10, 0, 0, 1], 8, None),
            port(2, [10, 0, 2, 15], 24, Some([10, 0, 2, 2])),
            port(3, [10, 0, 3, 15], 24, Some([10, 0, 3, 2])),
            port(4, [10, 0, 3, 16], 24, None),
            port(5, [192, 168, 7, 7], 32, None),
        ];
        let by = |local: Option<[u8; 4]>, peer: [u8; 4]| {
            choose(&ports, local.map(Ipv4Addr::from), peer.into()).map(|port| port.handle)
        };
        // The longest prefix, of equal ones the first; the first gateway.
        assert_eq!(by(None, [10, 9, 9, 9]), Ok(1));
        assert_eq!(by(None, [10, 0, 2, 2]), Ok(2));
        assert_eq!(by(None, [10, 0, 3, 2]), Ok(3));
        assert_eq!(by(None, [192, 168, 7, 7]), Ok(5));
        assert_eq!(by(None, [192, 168, 7, 8]), Ok(2));
        // An address that was given decides.
        assert_eq!(by(Some([10, 0, 3, 16]), [10, 0, 2, 2]), Ok(4));
        let other = Ipv4Addr::new(10, 0, 2, 16);
        assert_eq!(by(Some(other.octets()), [10, 0, 2, 2]), Err(Why::NotOurs(other)));
    }

    #[test]
    fn where_no_nic_fits_it_is_said_what_to_do() {
        let far = Ipv4Addr::new(10, 0, 9, 2);
        let (one, other) = (port(1, [10, 0, 2, 15], 24, None), port(2, [10, 0, 3, 15], 24, None));
        assert_eq!(choose(&[], None, far).unwrap_err(), Why::NoNic);
        // The only one reports itself why not.
        assert_eq!(choose(std::slice::from_ref(&one), None, far).unwrap().handle, 1);
        let why = choose(&[one, other], None, far).unwrap_err();
        let text = NetError::no_nic("connect", why).to_string();
        assert!(
            text.contains("cannot connect") && text.contains("10.0.9.2") && text.contains("gateway"),
            "{text}"
        );
        // Every address is on a network of all.
        assert_eq!(
            choose(&[port(7, [1, 2, 3, 4], 0, None), port(8, [1, 2, 3, 5], 32, None)], None, far)
                .unwrap()
                .handle,
            7
        );
    }
}
