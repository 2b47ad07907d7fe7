//! Connections of helper processes, what they say over their standard output, and their clock.

use nix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Tells the parent process something.
pub fn say(what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    io::stdout().write_all(&line)
}

/// CPU time of all threads of this process, those of the kernel's io_uring workers included.
pub fn cpu_time() -> io::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?.into())
}

/// Connections that say first which stream they carry: the order of arrival says nothing.
pub fn connect(address: &str, streams: usize) -> io::Result<Vec<TcpStream>> {
    let one = |number: usize| {
        let mut socket = TcpStream::connect(address)?;
        socket.write_all(&(number as u32).to_le_bytes())?;
        Ok(socket)
    };
    (0..streams).map(one).collect()
}

/// The connections of so many streams, in the order of their numbers.
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
