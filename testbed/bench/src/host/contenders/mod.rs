//! A contender's work in a round.
//!
//! | module | contents |
//! |---|---|
//! | `engine` | the engine |
//! | `lanes` | the engine's work without the engine |
//! | `loops` | the ordinary loops, and sendfile(2) |
//! | `server.py` | the contender in Python, a program of its own |

mod engine;
mod lanes;
mod loops;

use super::contender::Contender;
use super::library::{self, Libraries, libraries};
use super::protocol::{Extent, Item, Serve, StreamAccount};
use super::server::Work;
use crate::units::from_hex;
use dcs::{Handle, Op};
use nix::libc;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;

/// Source of the program in Python.
pub const PYTHON: &str = include_str!("server.py");

/// State that a contender prepares before the first round.
pub struct Prepared {
    /// Operators with their keys.
    ops: Vec<Op>,
    /// Libraries that the loops take their operators from.
    libraries: &'static Libraries,
    files: Vec<Vec<Object>>,
    engine: Option<engine::Prepared>,
}

/// A file of a stream.
pub struct Object {
    item: Item,
    /// Operators, if they differ from those of other objects.
    ops: Option<Vec<Op>>,
    /// Descriptor, if opened beforehand.
    open: Option<File>,
    /// The engine's handle for it.
    handle: Option<Handle>,
    /// Digests as bytes; `None` if not known beforehand.
    expected: Option<Vec<Vec<u8>>>,
}

/// A descriptor, opened for one object or for all.
pub enum Opened<'a> {
    Before(&'a File),
    Now(File),
}

impl std::ops::Deref for Opened<'_> {
    type Target = File;

    fn deref(&self) -> &File {
        match self {
            Opened::Before(file) => file,
            Opened::Now(file) => file,
        }
    }
}

impl Prepared {
    pub fn new(serve: &Serve) -> io::Result<Prepared> {
        let ops = serve.job.ops().map_err(|failure| io::Error::other(failure.line))?;
        let is_engine = serve.contender.is_engine();
        let object = |item: &Item| -> io::Result<Object> {
            let open = serve.open_once.then(|| open(serve, item)).transpose()?;
            let handle = open.as_ref().filter(|_| is_engine).map(Handle::new);
            let handle = handle.transpose().map_err(io::Error::other)?;
            let decoded: Option<Vec<_>> = item.expected.iter().map(|hex| from_hex(hex.as_bytes())).collect();
            let own = |counter| with_counter(&ops, counter);
            Ok(Object {
                item: item.clone(),
                ops: item.counter.map(own),
                open,
                handle,
                expected: decoded.filter(|all| !all.is_empty()),
            })
        };
        let stream = |items: &Vec<Item>| items.iter().map(object).collect();
        let files = serve.streams.iter().map(stream).collect::<io::Result<_>>()?;
        let engine = is_engine.then(|| engine::Prepared::new(serve)).transpose()?;
        let libraries = if serve.same_operators { library::own() } else { libraries() };
        Ok(Prepared { ops, libraries, files, engine })
    }

    /// Names the library of its operators.
    pub fn library(&self, serve: &Serve) -> io::Result<String> {
        Ok(match serve.contender {
            _ if self.ops.is_empty() => "none".into(),
            Contender::Sendfile => "none".into(),
            contender if contender.is_engine() || contender == Contender::Lanes => "dcs-ndp".into(),
            _ => self.libraries.names(&self.ops),
        })
    }

    pub fn run(&self, work: &Work<'_>) -> io::Result<Vec<StreamAccount>> {
        match &self.engine {
            Some(engine) => engine.run(self, work),
            None if work.serve.contender == Contender::Lanes => lanes::run(self, work),
            None => loops::run(self, work),
        }
    }
}

impl Object {
    pub fn opened(&self, serve: &Serve) -> io::Result<Opened<'_>> {
        match &self.open {
            Some(file) => Ok(Opened::Before(file)),
            None => open(serve, &self.item).map(Opened::Now),
        }
    }

    /// Returns the bytes of the object to move.
    pub fn length(&self, work: &Work<'_>) -> u64 {
        self.item.length.min(work.round.length)
    }

    /// Returns the digests that an object of this length must have.
    pub fn expected(&self, work: &Work<'_>) -> Option<&[Vec<u8>]> {
        self.expected.as_deref().filter(|_| work.round.extent == Extent::UntilStopped)
    }
}

fn with_counter(ops: &[Op], counter: [u8; 16]) -> Vec<Op> {
    let own = |op: &Op| match op.clone() {
        Op::Aes256Ctr { key, .. } => Op::Aes256Ctr { key, counter },
        other => other,
    };
    ops.iter().map(own).collect()
}

fn open(serve: &Serve, item: &Item) -> io::Result<File> {
    use crate::harness::data::Direction;

    let is_loop = serve.contender == Contender::LoopDirect;
    let flags = if is_loop { libc::O_DIRECT } else { 0 };
    match serve.job.direction {
        Direction::Send => File::options().read(true).custom_flags(flags).open(&item.path),
        Direction::Receive => {
            File::options().write(true).create(true).truncate(false).custom_flags(flags).open(&item.path)
        }
    }
}
