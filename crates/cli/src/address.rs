//! Sockets as people name them: `HOST:PORT`, `PORT`, `unix:PATH`.

use crate::failure::{Exit, Failure};
use crate::interrupt::{self, Leftover};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// A connected stream socket.
#[derive(Debug)]
pub enum Connection {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket that waits for a connection. A Unix socket's file is removed with it.
pub enum Listener {
    Tcp(TcpListener),
    Unix { listener: UnixListener, path: String, _leftover: Leftover },
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
    pub fn connect(to: &str, timeout: Duration) -> Result<Connection, Failure> {
        let connection = match to.strip_prefix("unix:") {
            Some(path) => {
                UnixStream::connect(path).map(Connection::Unix).map_err(|error| Failure::io(to, &error))?
            }
            None => Connection::Tcp(connect_tcp(to, timeout)?),
        };
        connection.without_blocking().map_err(|error| Failure::io(to, &error))
    }

    /// The engine waits for sockets by itself; the kernel's own copies (sendfile) need sockets that do not.
    fn without_blocking(self) -> io::Result<Connection> {
        match &self {
            Connection::Tcp(stream) => stream.set_nonblocking(true)?,
            Connection::Unix(stream) => stream.set_nonblocking(true)?,
        }
        Ok(self)
    }

    /// Tells the peer that nothing follows.
    pub fn finish(&self) {
        // A peer that is gone already needs no telling.
        let _ = match self {
            Connection::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Connection::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }
}

fn connect_tcp(to: &str, timeout: Duration) -> Result<TcpStream, Failure> {
    let addresses = resolve(to)?;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(Failure::io(to, &last))
}

fn resolve(name: &str) -> Result<Vec<std::net::SocketAddr>, Failure> {
    if name.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
        return Err(Failure::usage(format!("{name:?} is no HOST:PORT, no unix:PATH and not -")));
    }
    let addresses = name.to_socket_addrs().map_err(|error| {
        Failure::new(Exit::Peer, format!("{name}: {error}")).advise("check the host's name")
    })?;
    Ok(addresses.collect())
}

impl Listener {
    /// Listens. A port alone means all addresses, of both families where the machine has them.
    pub fn bind(at: &str) -> Result<Listener, Failure> {
        let failed = |error| Failure::io(at, &error);
        if let Some(path) = at.strip_prefix("unix:") {
            let listener = UnixListener::bind(path).map_err(failed)?;
            let _leftover = interrupt::leftover(Path::new(path));
            return Ok(Listener::Unix { listener, path: path.to_string(), _leftover });
        }
        if let Ok(port) = at.parse::<u16>() {
            let both = TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)));
            return both.map(Listener::Tcp).map_err(failed);
        }
        TcpListener::bind(resolve(at)?.as_slice()).map(Listener::Tcp).map_err(failed)
    }

    /// The address, in the words that `dcs send` takes.
    pub fn address(&self) -> String {
        match self {
            Listener::Tcp(listener) => match listener.local_addr() {
                Ok(address) => address.to_string(),
                Err(error) => error.to_string(),
            },
            Listener::Unix { path, .. } => format!("unix:{path}"),
        }
    }

    /// Waits for one connection, and listens no more.
    pub fn accept(self, timeout: Option<Duration>) -> Result<Connection, Failure> {
        let failed = |error| Failure::io("no connection", &error);
        if let Some(timeout) = timeout {
            self.wait(timeout).map_err(failed)?;
        }
        let accepted = match &self {
            Listener::Tcp(listener) => listener.accept().map(|(stream, _)| Connection::Tcp(stream)),
            Listener::Unix { listener, .. } => listener.accept().map(|(stream, _)| Connection::Unix(stream)),
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
