//! The hidden subcommand that the demo starts for each run: the measured process, or its peer.

use super::contenders::Prepared;
use super::peer;
use super::task::{FileOutcome, Order, Outcome, Ready, Task};
use crate::failure::{Exit, Failure};
use crate::harness::data::Direction;
use crate::harness::syscalls;
use crate::harness::wire::{accept, connect, cpu_time, listen, say};
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

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

fn work(task: &Task) -> io::Result<Outcome> {
    let prepared = Prepared::new(task.contender)?;
    let sockets = match (task.direction, &task.address) {
        (Direction::Send, Some(address)) => connect(address, task.streams.len())?,
        (Direction::Send, None) => return Err(io::ErrorKind::InvalidInput.into()),
        (Direction::Receive, _) => {
            let listener = listen()?;
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

/// Waits until the peer has read everything: it closes its end then.
pub fn await_peer(mut socket: &TcpStream) -> io::Result<()> {
    socket.shutdown(Shutdown::Write)?;
    match socket.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(io::Error::other("the peer was not to say anything")),
    }
}
