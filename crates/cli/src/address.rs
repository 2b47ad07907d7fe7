//! Sockets as users name them: `HOST:PORT`, `PORT`, `unix:PATH`.

use crate::failure::{Exit, Failure};
use crate::interrupt::{self, Leftover};
use crate::names::shown;
use crate::outgoing;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{setsockopt, sockopt};
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A connected stream socket.
#[derive(Debug)]
pub enum Connection {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A listening socket. A Unix socket's file is removed with it.
pub enum Listener {
    Tcp(TcpListener),
    Unix { listener: UnixListener, path: PathBuf, _leftover: Leftover },
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Connection::Tcp(stream) => stream.as_fd(),
            Connection::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Connection {
    /// Makes the socket non-blocking: the engine waits for sockets by itself, and the kernel's own copies (sendfile) need
    /// that.
    pub fn without_blocking(self) -> io::Result<Connection> {
        match &self {
            Connection::Tcp(stream) => stream.set_nonblocking(true)?,
            Connection::Unix(stream) => stream.set_nonblocking(true)?,
        }
        Ok(self)
    }
}

/// Seconds of silence after which the kernel asks a peer whether it is still there.
const SILENCE: u32 = 60;
/// Seconds that the kernel waits for each answer, and the number of times that it asks.
const ANSWER: u32 = 10;
const QUESTIONS: u32 = 6;

/// Has the kernel end a TCP connection whose peer vanished: its machine lost power, or the network was cut.
pub fn keep_alive(socket: &impl AsFd) -> io::Result<()> {
    setsockopt(socket, sockopt::KeepAlive, &true)?;
    setsockopt(socket, sockopt::TcpKeepIdle, &SILENCE)?;
    setsockopt(socket, sockopt::TcpKeepInterval, &ANSWER)?;
    Ok(setsockopt(socket, sockopt::TcpKeepCount, &QUESTIONS)?)
}

/// Returns the path of `unix:PATH`, which may have any bytes.
pub fn unix_path(name: &OsStr) -> Option<&Path> {
    name.as_bytes().strip_prefix(b"unix:").map(|path| Path::new(OsStr::from_bytes(path)))
}

/// Resolves `HOST:PORT` to addresses.
pub fn resolve(name: &OsStr) -> Result<Vec<std::net::SocketAddr>, Failure> {
    let name = &*name.to_string_lossy();
    if name.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
        return Err(Failure::usage(format!("{name:?} is not HOST:PORT, unix:PATH or -"))
            .advise("for example there:9000"));
    }
    let addresses = name.to_socket_addrs().map_err(|error| {
        Failure::new(Exit::Peer, format!("{name}: {error}")).advise("check the host's name")
    })?;
    Ok(addresses.collect())
}

impl Listener {
    /// Listens. A port alone means all addresses, of both families if the machine has them.
    pub fn bind(at: &OsStr) -> Result<Listener, Failure> {
        let failed = |error| Failure::io(shown(at), &error);
        if let Some(path) = unix_path(at) {
            let (listener, _leftover) =
                interrupt::leftover_of(path, || UnixListener::bind(path)).map_err(failed)?;
            return Ok(Listener::Unix { listener, path: path.to_path_buf(), _leftover });
        }
        if let Some(port) = at.to_str().and_then(|at| at.parse::<u16>().ok()) {
            let both = TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)));
            return both.map(Listener::Tcp).map_err(failed);
        }
        let addresses = resolve(at).map_err(|failure| match failure.exit {
            Exit::Usage => Failure::usage(format!("{at:?} is not PORT, HOST:PORT or unix:PATH"))
                .advise("for example 9000 for all addresses, 127.0.0.1:9000 for this machine only"),
            _ => failure,
        })?;
        TcpListener::bind(addresses.as_slice()).map(Listener::Tcp).map_err(failed)
    }

    /// Returns the address as `dcs send` takes it.
    pub fn address(&self) -> OsString {
        match self {
            Listener::Tcp(listener) => match listener.local_addr() {
                Ok(address) => address.to_string().into(),
                Err(error) => error.to_string().into(),
            },
            Listener::Unix { path, .. } => {
                let mut address = OsString::from("unix:");
                address.push(path);
                address
            }
        }
    }

    /// Waits for one connection, and stops listening.
    pub fn accept(self, timeout: Option<Duration>) -> Result<Connection, Failure> {
        let failed = |error| Failure::io("no connection", &error);
        if let Some(timeout) = timeout {
            self.wait(timeout).map_err(failed)?;
        }
        let accepted = match &self {
            Listener::Tcp(listener) => listener
                .accept()
                .and_then(|(stream, _)| keep_alive(&stream).map(|()| Connection::Tcp(stream))),
            Listener::Unix { listener, .. } => listener
                .accept()
                .and_then(|(stream, _)| outgoing::seal(&stream).map(|()| Connection::Unix(stream))),
        };
        accepted.and_then(Connection::without_blocking).map_err(failed)
    }

    fn wait(&self, timeout: Duration) -> io::Result<()> {
        let fd = match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix { listener, .. } => listener.as_fd(),
        };
        let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        match nix::poll::poll(&mut fds, timeout)? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix { path, .. } = self {
            let _ = std::fs::remove_file(path);
        }
    }
}
