//! The designs in the guest, one module each. They differ only in their control and data paths.

mod card;
mod kernel;
mod software;

use super::task::{Blocks, DesignName, Item, Stream, Task, Transfer};
use crate::harness::data::Direction;
use crate::harness::shown::Stage;
use crate::operate;
use dcs::net::Connection;
use dcs::{Completion, Op, Session, Sink, Source};
use software::Way;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

/// Mount point of the first file system; those of further sets have their numbers appended.
const MOUNT: &str = "/mnt";

/// A design that moves objects over connections, which are numbered in the order of creation.
pub trait Design {
    /// Makes a connection.
    fn connect(&mut self, stream: Stream) -> io::Result<()>;

    /// Submits a transfer over a connection. A design that blocks finishes it before it returns.
    fn submit(&mut self, connection: usize, item: Item, ops: Vec<Op>) -> io::Result<Submission>;

    /// Waits until one of the submitted transfers is done.
    fn wait_any(&self) {}

    /// Ends its side of a stream, and waits for the client's word that everything arrived.
    fn end(&mut self, connection: usize) -> io::Result<()>;

    /// Returns the bytes that its blocks have carried so far, if known.
    fn blocks(&self) -> Option<Blocks> {
        None
    }

    /// Returns the number of commands given to a device so far.
    fn submissions(&self) -> u64 {
        0
    }
}

/// A submitted transfer.
pub enum Submission {
    Done(Transfer),
    Flying {
        transfer: dcs::Transfer,
        start: Instant,
        /// File that was written past the kernel's cache.
        written: Option<File>,
    },
}

/// Returns the design for one of the task's groups, ready to connect. `set` is the group's set, if it has one.
pub fn of(task: &Task, set: usize) -> io::Result<Box<dyn Design>> {
    Ok(match task.who {
        DesignName::Host => Box::new(kernel::Loop::new()),
        DesignName::SoftwareTcp => Box::new(software::Driver::new(Way::KernelTcp, task.in_flight, set)?),
        DesignName::SoftwareNic => Box::new(software::Driver::new(Way::Nic, task.in_flight, set)?),
        DesignName::SoftwareP2p => Box::new(software::Driver::new(Way::PeerToPeer, task.in_flight, set)?),
        DesignName::Card => Box::new(card::Card::new(task.in_flight, task.sets())?),
    })
}

impl Submission {
    /// Returns true if waiting is unnecessary.
    pub fn is_done(&self) -> bool {
        match self {
            Submission::Done(_) => true,
            Submission::Flying { transfer, .. } => transfer.is_done(),
        }
    }

    /// Waits for the transfer.
    pub fn finish(self) -> io::Result<Transfer> {
        let (transfer, start, written) = match self {
            Submission::Done(transfer) => return Ok(transfer),
            Submission::Flying { transfer, start, written } => (transfer, start, written),
        };
        let completion = transfer.wait().map_err(io::Error::other)?;
        if let Some(file) = written {
            let whole = (0, 0, nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED);
            nix::fcntl::posix_fadvise(&file, whole.0, whole.1, whole.2)?;
        }
        Ok(of_completion(&completion, start))
    }
}

/// Returns the path of an object in a set.
pub fn path(set: usize, item: Item) -> PathBuf {
    let folder = if item.direction == Direction::Send { "send" } else { "receive" };
    let number = if set == 0 { String::new() } else { set.to_string() };
    PathBuf::from(format!("{MOUNT}{number}/{folder}/{}", item.file))
}

/// Opens a file for a design that bypasses the kernel, which needs only the access mode.
fn open(set: usize, item: Item) -> io::Result<File> {
    let receives = item.direction == Direction::Receive;
    File::options().read(true).write(receives).open(path(set, item))
}

/// Returns the connection with that number.
fn at<T>(connections: &[T], number: usize) -> io::Result<&T> {
    connections.get(number).ok_or_else(|| io::ErrorKind::NotConnected.into())
}

/// Ends our side of a connection that the kernel does not own; the client confirms that everything arrived.
fn hear_the_end(session: &Session, connection: &Connection) -> io::Result<()> {
    connection.shutdown().map_err(io::Error::other)?;
    let said = session.transfer(Source::connection(connection), [], Sink::memory(1));
    let said = said.map_err(io::Error::other)?.wait().map_err(io::Error::other)?;
    match said.bytes_out {
        1 => Ok(()),
        _ => Err(io::Error::other("the client did not say that it has everything")),
    }
}

/// Returns the ID that keeps transfers of one connection in order while several are in flight.
fn request_id(in_flight: usize, connection: usize) -> u32 {
    if in_flight > 1 { connection as u32 + 1 } else { 0 }
}

fn of_completion(completion: &Completion, start: Instant) -> Transfer {
    let stage = |stage: &dcs::completion::StageTime| Stage {
        name: stage.name.to_owned(),
        first_ns: stage.first.as_nanos() as u64,
        last_ns: stage.last.as_nanos() as u64,
        busy_ns: stage.busy.as_nanos() as u64,
        operations: stage.operations,
    };
    Transfer {
        stream: 0,
        digests: operate::digests_of(&completion.digests),
        bytes_in: completion.bytes_in,
        bytes_out: completion.bytes_out,
        path: completion.path.names().map(str::to_owned).collect(),
        latency_ns: start.elapsed().as_nanos() as u64,
        stages: completion.breakdown.stages.iter().map(stage).collect(),
    }
}
