//! The connection that `dcs send` makes. It ends in order only if everything went well. Whatever else ends it, even a
//! kill, the receiver's kernel reports a reset, so that a cut stream is never taken for a whole one.
//!
//! TCP: SO_LINGER is on with no time from before the connection exists until everything is acknowledged, so a
//! close is a reset.
//!
//! Unix sockets have no reset, but closing a socket with unread bytes gives its peer ECONNRESET after the data. So the
//! sender binds an abstract name that begins with [`SENDER`], which other receivers never check. `dcs recv` sends such
//! a peer one byte when it accepts, before it reads, and the sender reads that byte only when it has succeeded.

use crate::address::{Connection, keep_alive, resolve, unix_path};
use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::names::shown;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrStorage, UnixAddr, sockopt};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Beginning of the abstract name of every `dcs send` on a Unix socket.
const SENDER: &[u8] = b"dcs-send/";
/// Byte that the sender leaves unread until it has succeeded.
const SEAL: u8 = 0;
/// Time to wait for a receiver to accept an empty stream: only its answer tells.
const EMPTY: Duration = Duration::from_secs(5);
/// Longest pause between two checks of what is not yet acknowledged.
const PAUSE: Duration = Duration::from_millis(20);

/// A connection that is reset unless it is finished.
pub struct Outgoing {
    to: String,
    connection: Connection,
}

impl AsFd for Outgoing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl Outgoing {
    /// Connects to `HOST:PORT` or `unix:PATH`.
    pub fn connect(to: &OsStr, timeout: Duration) -> Result<Outgoing, Failure> {
        let failed = |error: io::Error| Failure::io(shown(to), &error);
        let connection = match unix_path(to) {
            Some(path) => Connection::Unix(connect_unix(path).map_err(failed)?),
            None => Connection::Tcp(connect_tcp(&resolve(to)?, timeout).map_err(failed)?),
        };
        Ok(Outgoing { to: shown(to).to_string(), connection: connection.without_blocking().map_err(failed)? })
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Ends the stream of `bytes` in order, once the peer's kernel (TCP) or the peer itself (Unix) has taken all of it.
    pub fn finish(self, bytes: u64, limit: Option<Duration>) -> Result<(), Failure> {
        let _guard = interrupt::transferring();
        let until = limit.map(|limit| Instant::now() + limit);
        let failed = |error: io::Error| Failure::io(&self.to, &error);
        match &self.connection {
            Connection::Tcp(stream) => {
                // The call fails if the peer has reset the connection, which it may once it has everything.
                let ended = stream.shutdown(Shutdown::Write);
                let reset = || ended.is_err().then(|| io::ErrorKind::ConnectionReset.into());
                self.until_taken(until, || Ok(stream.take_error()?.or_else(reset)))?;
                let off = libc::linger { l_onoff: 0, l_linger: 0 };
                socket::setsockopt(stream, sockopt::Linger, &off).map_err(|error| failed(error.into()))
            }
            Connection::Unix(stream) => {
                self.until_taken(until, || Ok(None))?;
                // A peer that closes leaves nothing unread either, so only the error tells.
                stream.take_error().and_then(|error| error.map_or(Ok(()), Err)).map_err(failed)?;
                stream.shutdown(Shutdown::Write).map_err(failed)?;
                take_seal(stream, bytes == 0).map_err(failed)
            }
        }
    }

    /// Waits until everything that was sent has left this side.
    fn until_taken(
        &self,
        until: Option<Instant>,
        mut error: impl FnMut() -> io::Result<Option<io::Error>>,
    ) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::io(&self.to, &error);
        let mut pause = Duration::from_micros(100);
        loop {
            let left = not_taken(self.as_fd()).map_err(failed)?;
            if left == 0 {
                return Ok(());
            }
            if let Some(error) = error().map_err(failed)? {
                return Err(failed(error));
            }
            if interrupt::pressed() {
                let line = format!("{}: interrupted; {left} bytes had not been acknowledged", self.to);
                return Err(Failure::new(Exit::Interrupted, line));
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                let line = format!("{}: out of time; {left} bytes had not been acknowledged", self.to);
                return Err(Failure::new(Exit::Timeout, line).advise("give more time, or check the peer"));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE);
        }
    }
}

/// Gives a peer that is a `dcs send` the byte that makes its connection break unless it succeeds. Other peers get
/// nothing.
pub fn seal(stream: &UnixStream) -> io::Result<()> {
    let peer = stream.peer_addr()?;
    if peer.as_abstract_name().is_some_and(|name| name.starts_with(SENDER)) {
        // A sender that is gone already has not succeeded: it would have waited for this.
        (&*stream).write_all(&[SEAL])?;
    }
    Ok(())
}

/// Reads the receiver's byte, which comes before the receiver reads anything. Receivers other than `dcs recv` send
/// none.
fn take_seal(mut stream: &UnixStream, wait: bool) -> io::Result<()> {
    if wait {
        let limit = PollTimeout::try_from(EMPTY).unwrap_or(PollTimeout::MAX);
        poll(&mut [PollFd::new(stream.as_fd(), PollFlags::POLLIN)], limit)?;
    }
    match stream.read(&mut [0]) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

fn connect_tcp(addresses: &[SocketAddr], timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match connect_to(address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect_to(address: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket::socket(family, SockType::Stream, flags, None)?;
    socket::setsockopt(&socket, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?;
    keep_alive(&socket)?;
    match socket::connect(socket.as_raw_fd(), &SockaddrStorage::from(*address)) {
        Err(Errno::EINPROGRESS) => connected(&socket, timeout)?,
        result => result?,
    }
    Ok(TcpStream::from(socket))
}

fn connected(socket: &OwnedFd, timeout: Duration) -> io::Result<()> {
    let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
    if poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)], timeout)? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    match socket::getsockopt(socket, sockopt::SocketError)? {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let mut number = [0; 16];
    getrandom::fill(&mut number).map_err(io::Error::other)?;
    let name = [SENDER, crate::units::to_hex(&number).as_bytes()].concat();
    let socket = socket::socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    socket::bind(socket.as_raw_fd(), &UnixAddr::new_abstract(&name)?)?;
    socket::connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Returns the bytes that the peer's kernel has not acknowledged (TCP), or that take room until the peer reads them
/// (Unix).
#[allow(unsafe_code)]
fn not_taken(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (by its other name) writes one int to `bytes`; the descriptor is open while it is
    // borrowed.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(bytes.unsigned_abs().into()) }
}
