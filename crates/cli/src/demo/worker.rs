//! The hidden subcommand that the demo starts for each run: the measured process, or its peer.

use super::contenders::Prepared;
use super::peer;
use super::syscalls;
use super::task::{Direction, FileOutcome, Order, Outcome, Ready, Task};
use crate::failure::{Exit, Failure};
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

pub fn run() -> Result<(), Failure> {
    // No orphan outlives a demo that was killed.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    obey().map_err(|error| Failure::new(Exit::Failed, format!("demo helper: {error}")))
}

fn obey() -> io::Result<()> {
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    let outcome = match serde_json::from_str(&line)? {
        Order::Task(task) => work(&task)?,
        Order::Peer(peer) => peer::run(&peer)?,
    };
    say(&outcome)
}

/// Tells the demo something.
pub fn say(what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    io::stdout().write_all(&line)
}

fn work(task: &Task) -> io::Result<Outcome> {
    let prepared = Prepared::new(task.contender)?;
    let sockets = match (task.direction, &task.address) {
        (Direction::Send, Some(address)) => connect(address, task.streams.len())?,
        (Direction::Send, None) => return Err(io::ErrorKind::InvalidInput.into()),
        (Direction::Receive, _) => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            say(&Ready { address: Some(listener.local_addr()?.to_string()) })?;
            accept(&listener, task.streams.len())?
        }
    };
    syscalls::mark();
    let (start, cpu) = (Instant::now(), cpu_time()?);
    let files = prepared.run(task, &sockets)?;
    if task.direction == Direction::Send {
        sockets.iter().try_for_each(await_peer)?;
    }
    let (wall, cpu) = (start.elapsed(), cpu_time()?.saturating_sub(cpu));
    syscalls::mark();
    let sum = |bytes: fn(&FileOutcome) -> u64| files.iter().flatten().map(bytes).sum();
    Ok(Outcome {
        wall_s: wall.as_secs_f64(),
        cpu_s: cpu.as_secs_f64(),
        bytes_in: sum(|file| file.bytes_in),
        bytes_out: sum(|file| file.bytes_out),
        files,
    })
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

/// Waits until the peer has read everything: it closes its end then.
pub fn await_peer(mut socket: &TcpStream) -> io::Result<()> {
    socket.shutdown(Shutdown::Write)?;
    match socket.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(io::Error::other("the peer was not to say anything")),
    }
}
