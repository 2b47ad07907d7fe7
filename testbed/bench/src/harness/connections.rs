//! Connections of helper processes, their messages over standard output, and their clock.

use nix::sys::socket::sockopt::TcpCongestion;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, connect as connect_socket, getsockopt, setsockopt, socket,
};
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::str::FromStr;
use std::time::Duration;

/// Sends a message to the parent process.
pub fn say(what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    io::stdout().write_all(&line)
}

/// Returns the CPU time of all threads of this process, including the kernel's io_uring workers.
pub fn cpu_time() -> io::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?.into())
}

/// Makes connections that first send the number of their stream, since the order of arrival says nothing.
pub fn connect(address: &str, streams: usize) -> io::Result<Vec<TcpStream>> {
    let one = |number: usize| {
        let mut socket = dial(address)?;
        socket.write_all(&(number as u32).to_le_bytes())?;
        Ok(socket)
    };
    (0..streams).map(one).collect()
}

/// The environment variable that selects the congestion control, and the default.
const CONGESTION: (&str, &str) = ("DCS_CONGESTION", "cubic");

/// Sets the congestion control of a connection: Linux's usual one, whatever this machine's default is. BBR, a default on many
/// servers, paces by timers, and over loopback costs more than all the rest.
fn choose_congestion(socket: &impl AsFd) {
    let name = std::env::var_os(CONGESTION.0).unwrap_or(CONGESTION.1.into());
    // If it is not available, the machine's default stays; [`congestion`] reports it.
    let _ = setsockopt(socket, TcpCongestion, &name);
}

/// Listens on a port of loopback.
pub fn listen() -> io::Result<TcpListener> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    choose_congestion(&listener);
    Ok(listener)
}

/// Returns the congestion control that connections use.
pub fn congestion() -> io::Result<String> {
    let name = getsockopt(&listen()?, TcpCongestion)?;
    Ok(name.to_string_lossy().trim_end_matches('\0').to_owned())
}

/// Returns the default congestion control: that of the route, else the machine's.
pub fn default_congestion() -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let _ours = TcpStream::connect(listener.local_addr()?)?;
    let name = getsockopt(&listener.accept()?.0, TcpCongestion)?;
    Ok(name.to_string_lossy().trim_end_matches('\0').to_owned())
}

/// Makes a connection. Its congestion control is chosen first, since pacing stays once it is enabled.
pub fn dial(address: &str) -> io::Result<TcpStream> {
    let to = SockaddrIn::from_str(address).map_err(|_| io::ErrorKind::InvalidInput)?;
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    choose_congestion(&socket);
    connect_socket(socket.as_raw_fd(), &to)?;
    Ok(TcpStream::from(socket))
}

/// Accepts the connections of this many streams, in the order of their numbers.
pub fn accept(listener: &TcpListener, streams: usize) -> io::Result<Vec<TcpStream>> {
    let mut accepted = Vec::new();
    for _ in 0..streams {
        let (mut socket, _) = listener.accept()?;
        let mut number = [0; 4];
        socket.read_exact(&mut number)?;
        accepted.push((u32::from_le_bytes(number), socket));
    }
    accepted.sort_by_key(|(number, _)| *number);
    Ok(accepted.into_iter().map(|(_, socket)| socket).collect())
}
