//! The contenders, over the same files and connections: the loop that everybody writes, and the engine.
//!
//! Both have the same operators (`dcs-ndp`), so that libraries are not compared. That the engine has several
//! streams before it at once, and takes their MD5 through lanes together, is its own merit.

use super::task::{FileOutcome, Item, Task};
use crate::harness::data::Direction;
use crate::host::contender::Contender;
use crate::operate::{self, Operators};
use crate::report;
use dcs::{Completion, Engine, Session, Sink, Source, Transfer};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// Transfers that each stream has in flight: while one runs the next is there already.
const AHEAD: usize = 2;

/// The state that a contender has ready before the clock starts.
pub enum Prepared {
    Loop { buffer: usize },
    Engine(Engine),
}

impl Prepared {
    pub fn new(contender: Contender) -> io::Result<Prepared> {
        match contender.is_engine() {
            true => Engine::builder().start().map(Prepared::Engine).map_err(io::Error::other),
            false => Ok(Prepared::Loop { buffer: contender.buffer() }),
        }
    }

    /// Does the job: what became of each file of each stream.
    pub fn run(&self, task: &Task, sockets: &[TcpStream]) -> io::Result<Vec<Vec<FileOutcome>>> {
        match self {
            Prepared::Loop { buffer } => run_loops(task, sockets, *buffer),
            Prepared::Engine(engine) => run_engine(task, sockets, engine),
        }
    }
}

/// A thread for each stream.
fn run_loops(task: &Task, sockets: &[TcpStream], buffer: usize) -> io::Result<Vec<Vec<FileOutcome>>> {
    std::thread::scope(|scope| {
        let one = |(socket, items): (&TcpStream, &Vec<Item>)| -> io::Result<Vec<FileOutcome>> {
            let mut buffer = vec![0; buffer];
            items.iter().map(|item| loop_file(task, socket, item, &mut buffer)).collect()
        };
        let threads: Vec<_> =
            sockets.iter().zip(&task.streams).map(|stream| scope.spawn(move || one(stream))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| io::Error::other("panic"))?).collect()
    })
}

/// read, operators, send; or receive, operators, write.
fn loop_file(task: &Task, socket: &TcpStream, item: &Item, buffer: &mut [u8]) -> io::Result<FileOutcome> {
    let mut operators = Operators::new(&task.ops(item)?)?;
    let (mut from, mut to): (Box<dyn Read + '_>, Box<dyn Write + '_>) = match task.direction {
        Direction::Send => (Box::new(File::open(&item.path)?), Box::new(socket)),
        Direction::Receive => (Box::new(socket), Box::new(open_copy(item)?)),
    };
    let mut outcome = FileOutcome::default();
    loop {
        let room = buffer.len().min((item.size - outcome.bytes_in) as usize);
        let length = from.read(&mut buffer[..room])?;
        outcome.bytes_in += length as u64;
        let last = outcome.bytes_in == item.size;
        if length == 0 && !last {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        operators.pass(&mut buffer[..length], last, &mut |bytes| {
            outcome.bytes_out += bytes.len() as u64;
            to.write_all(bytes)
        })?;
        if last {
            outcome.digests = operators.digests();
            return Ok(outcome);
        }
    }
}

/// Copies are overwritten in place from run to run, by every contender alike.
fn open_copy(item: &Item) -> io::Result<File> {
    File::options().write(true).create(true).truncate(false).open(&item.copy)
}

/// A stream's transfers in flight, and what is left.
struct Stream<'a> {
    number: u32,
    socket: &'a TcpStream,
    left: std::slice::Iter<'a, Item>,
    in_flight: VecDeque<Transfer>,
    done: Vec<FileOutcome>,
}

/// One command for each file; those of one stream have the same request id, so that they go out in order.
fn run_engine(task: &Task, sockets: &[TcpStream], engine: &Engine) -> io::Result<Vec<Vec<FileOutcome>>> {
    let depth = u16::try_from(sockets.len() * AHEAD).map_err(io::Error::other)?;
    let session = engine.session_with_depth(depth).map_err(io::Error::other)?;
    let event = session.event_fd().map_err(io::Error::other)?;
    let mut streams: Vec<Stream<'_>> = Vec::new();
    for (number, (socket, items)) in (1..).zip(sockets.iter().zip(&task.streams)) {
        let (in_flight, done) = (VecDeque::new(), Vec::new());
        streams.push(Stream { number, socket, left: items.iter(), in_flight, done });
    }
    loop {
        let mut busy = false;
        for stream in &mut streams {
            busy |= stream.advance(task, &session)?;
        }
        if !busy {
            return Ok(streams.into_iter().map(|stream| stream.done).collect());
        }
        nix::poll::poll(&mut [PollFd::new(event, PollFlags::POLLIN)], PollTimeout::NONE)?;
        nix::unistd::read(event, &mut [0; 8])?;
    }
}

impl Stream<'_> {
    /// Takes what is done, and submits as much as may be in flight; false at the end.
    fn advance(&mut self, task: &Task, session: &Session) -> io::Result<bool> {
        while self.in_flight.front().is_some_and(Transfer::is_done) {
            if let Some(transfer) = self.in_flight.pop_front() {
                self.done.push(file_outcome(&transfer.wait().map_err(io::Error::other)?));
            }
        }
        while self.in_flight.len() < AHEAD
            && let Some(item) = self.left.next()
        {
            let (source, sink) = match task.direction {
                Direction::Send => (Source::file(&File::open(&item.path)?, ..), Sink::socket(self.socket)),
                Direction::Receive => (Source::socket(self.socket), Sink::file(&open_copy(item)?, 0)),
            };
            let request = session.request(source, task.ops(item)?, sink).length(item.size).rid(self.number);
            self.in_flight.push_back(request.submit().map_err(io::Error::other)?);
        }
        Ok(!self.in_flight.is_empty())
    }
}

fn file_outcome(completion: &Completion) -> FileOutcome {
    FileOutcome {
        bytes_in: completion.bytes_in,
        bytes_out: completion.bytes_out,
        digests: operate::digests_of(&completion.digests),
        breakdown: report::breakdown(completion),
        path: completion.path.names().map(String::from).collect(),
    }
}
