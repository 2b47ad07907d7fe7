//! The designs in the guest, a module for each, so that they differ in control and data paths alone.

mod card;
mod kernel;
mod software;

use super::task::{Blocks, Item, Stream, Task, Transfer, Who};
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

/// Where the file system is mounted; those of further sets at names with their numbers behind.
const MOUNT: &str = "/mnt";

/// Moves objects over connections, which are numbered as they are made.
pub trait Design {
    /// Makes a connection.
    fn connect(&mut self, stream: Stream) -> io::Result<()>;

    /// Submits a transfer over a connection. A design that blocks has done it then.
    fn submit(&mut self, connection: usize, item: Item, ops: Vec<Op>) -> io::Result<Submission>;

    /// Waits until one of the submitted transfers is done.
    fn wait_any(&self) {}

    /// Ends its side of a stream, and hears from the client that it has everything.
    fn end(&mut self, connection: usize) -> io::Result<()>;

    /// The bytes that went through its blocks so far, where that is known.
    fn blocks(&self) -> Option<Blocks> {
        None
    }

    /// Commands that were given to a device so far.
    fn submissions(&self) -> u64 {
        0
    }
}

/// A transfer that was submitted.
pub enum Submission {
    Done(Transfer),
    Flying {
        transfer: dcs::Transfer,
        start: Instant,
        /// The file that was written past the kernel's cache.
        written: Option<File>,
    },
}

/// The design that does this for one of the task's groups, ready to connect. `set`: that of a group that has
/// one.
pub fn of(task: &Task, set: usize) -> io::Result<Box<dyn Design>> {
    Ok(match task.who {
        Who::Host => Box::new(kernel::Loop::new()),
        Who::SoftwareTcp => Box::new(software::Driver::new(Way::KernelTcp, task.in_flight, set)?),
        Who::SoftwareNic => Box::new(software::Driver::new(Way::Nic, task.in_flight, set)?),
        Who::SoftwareP2p => Box::new(software::Driver::new(Way::PeerToPeer, task.in_flight, set)?),
        Who::Card => Box::new(card::Card::new(task.in_flight, task.sets())?),
    })
}

impl Submission {
    /// True if it need not be waited for.
    pub fn is_done(&self) -> bool {
        match self {
            Submission::Done(_) => true,
            Submission::Flying { transfer, .. } => transfer.is_done(),
        }
    }

    /// Waits for it.
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

/// The file of an object of a set.
pub fn path(set: usize, item: Item) -> PathBuf {
    let folder = if item.direction == Direction::Send { "send" } else { "receive" };
    let number = if set == 0 { String::new() } else { set.to_string() };
    PathBuf::from(format!("{MOUNT}{number}/{folder}/{}", item.file))
}

/// For who goes past the kernel: access mode is what counts.
fn open(set: usize, item: Item) -> io::Result<File> {
    let receives = item.direction == Direction::Receive;
    File::options().read(true).write(receives).open(path(set, item))
}

/// The connection of that number.
fn at<T>(connections: &[T], number: usize) -> io::Result<&T> {
    connections.get(number).ok_or_else(|| io::ErrorKind::NotConnected.into())
}

/// Ends our side of a connection that is not the kernel's; the client says that it has everything.
fn hear_the_end(session: &Session, connection: &Connection) -> io::Result<()> {
    connection.shutdown().map_err(io::Error::other)?;
    let said = session.transfer(Source::connection(connection), [], Sink::memory(1));
    let said = said.map_err(io::Error::other)?.wait().map_err(io::Error::other)?;
    match said.bytes_out {
        1 => Ok(()),
        _ => Err(io::Error::other("the client did not say that it has everything")),
    }
}

/// Transfers of one connection, of which several are in flight, go in their order.
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
