//! A client's connection: one request after the other. It never blocks.

use super::http::{self, Head};
use super::protocol::{Load, Pace, Request};
use crate::harness::connections::dial;
use nix::libc;
use nix::sys::sendfile::sendfile64;
use nix::sys::socket::{MsgFlags, recv, send, setsockopt, sockopt};
use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Instant;

/// Bytes per step at full speed.
const PIECE: u64 = 1 << 20;
/// Bytes per step at a slow pace.
const SLOW_PIECE: u64 = 64 << 10;
/// Bytes of an answer's first piece, which contains its head.
const FIRST: usize = 16 << 10;

/// Source of the bytes to put. Bytes that are got are discarded in the kernel (MSG_TRUNC).
pub struct Buffers {
    pub pool: File,
    pub sink: Vec<u8>,
}

impl Buffers {
    pub fn new(load: &Load) -> io::Result<Buffers> {
        Ok(Buffers { pool: File::open(&load.pool)?, sink: vec![0; PIECE as usize] })
    }
}

pub struct Connection<'a> {
    load: &'a Load,
    socket: TcpStream,
    /// Number of the next request.
    next: usize,
    state: State<'a>,
}

enum State<'a> {
    Idle,
    Head { under_way: UnderWay<'a>, sent: usize },
    Put { under_way: UnderWay<'a>, from: u64, sent: u64 },
    Answer { under_way: UnderWay<'a>, bytes: Vec<u8> },
    Got { under_way: UnderWay<'a>, left: u64 },
}

#[derive(Clone, Copy)]
struct UnderWay<'a> {
    request: &'a Request,
    begun: Instant,
}

/// Outcome of a step.
#[derive(Debug, Default)]
pub struct Step {
    /// Bytes of objects moved.
    pub moved: u64,
    /// True if anything happened.
    pub busy: bool,
    /// Start time of the request that ended, if one did.
    pub done: Option<Instant>,
}

impl<'a> Connection<'a> {
    pub fn new(load: &'a Load, number: usize) -> io::Result<Connection<'a>> {
        let socket = dial(&load.address)?;
        if load.pace != Pace::Full {
            // Data that the client has not read must wait in the server, not in the kernel.
            setsockopt(&socket, sockopt::RcvBuf, &(SLOW_PIECE as usize))?;
        }
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Connection { load, socket, next: number % load.requests.len(), state: State::Idle })
    }

    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Begins the next request.
    pub fn begin(&mut self) {
        let request = &self.load.requests[self.next];
        self.next = (self.next + self.load.clients) % self.load.requests.len();
        self.state = State::Head { under_way: UnderWay { request, begun: Instant::now() }, sent: 0 };
    }

    /// Does what is possible without blocking.
    pub fn step(&mut self, buffers: &mut Buffers) -> io::Result<Step> {
        let mut step = Step::default();
        match self.state {
            State::Idle => {}
            State::Head { .. } => self.send_head(&mut step)?,
            State::Put { .. } => self.send_body(&mut step, &buffers.pool)?,
            State::Answer { .. } => self.receive_head(&mut step, &mut buffers.sink[..FIRST])?,
            State::Got { .. } => self.receive_body(&mut step, &mut buffers.sink)?,
        }
        Ok(step)
    }

    fn send_head(&mut self, step: &mut Step) -> io::Result<()> {
        let State::Head { under_way, sent } = &mut self.state else { return Ok(()) };
        let more = match under_way.request.put {
            Some(_) => MsgFlags::from_bits_retain(libc::MSG_MORE),
            None => MsgFlags::empty(),
        };
        let head = &under_way.request.head.as_bytes()[*sent..];
        let result = send(self.socket.as_raw_fd(), head, more | MsgFlags::MSG_NOSIGNAL);
        let Some(length) = unless_blocked(result)? else { return Ok(()) };
        (step.busy, *sent) = (true, *sent + length);
        if length == head.len() {
            self.state = match under_way.request.put {
                Some(from) => State::Put { under_way: *under_way, from, sent: 0 },
                None => State::Answer { under_way: *under_way, bytes: Vec::new() },
            };
        }
        Ok(())
    }

    fn send_body(&mut self, step: &mut Step, pool: &File) -> io::Result<()> {
        let State::Put { under_way, from, sent } = &mut self.state else { return Ok(()) };
        let most = due(self.load, under_way.begun, *sent);
        if most == 0 {
            return Ok(());
        }
        let mut at = (*from + *sent) as i64;
        let result = sendfile64(&self.socket, pool, Some(&mut at), most as usize);
        let result = unless_blocked(result).map_err(|error| explained(&self.socket, error));
        let Some(length) = result? else { return Ok(()) };
        if length == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the pool is too short"));
        }
        (step.busy, step.moved, *sent) = (true, length as u64, *sent + length as u64);
        if *sent == self.load.size {
            self.state = State::Answer { under_way: *under_way, bytes: Vec::new() };
        }
        Ok(())
    }

    fn receive_head(&mut self, step: &mut Step, first: &mut [u8]) -> io::Result<()> {
        let State::Answer { under_way, bytes } = &mut self.state else { return Ok(()) };
        let Some(length) = received(&self.socket, first, MsgFlags::empty())? else { return Ok(()) };
        step.busy = true;
        bytes.extend_from_slice(&first[..length]);
        let Some(head) = http::parse(bytes)? else { return Ok(()) };
        let body = (bytes.len() - head.size) as u64;
        let length = check(under_way.request, self.load.size, &head, &bytes[head.size..])?;
        if body > length {
            return Err(wrong(format!("{body} bytes of {length} arrived")));
        }
        step.moved = if under_way.request.put.is_none() { body } else { 0 };
        let under_way = *under_way;
        self.got(step, under_way, length - body);
        Ok(())
    }

    fn receive_body(&mut self, step: &mut Step, sink: &mut [u8]) -> io::Result<()> {
        let State::Got { under_way, left } = self.state else { return Ok(()) };
        let is_get = under_way.request.put.is_none();
        let due = due(self.load, under_way.begun, self.load.size.saturating_sub(left)).min(left);
        if is_get && due == 0 {
            return Ok(());
        }
        let most = if is_get { due } else { left.min(PIECE) } as usize;
        let Some(length) = received(&self.socket, &mut sink[..most], MsgFlags::MSG_TRUNC)? else {
            return Ok(());
        };
        step.busy = true;
        step.moved = if is_get { length as u64 } else { 0 };
        self.got(step, under_way, left - length as u64);
        Ok(())
    }

    fn got(&mut self, step: &mut Step, under_way: UnderWay<'a>, left: u64) {
        if left == 0 {
            step.done = Some(under_way.begun);
            self.state = State::Idle;
        } else {
            self.state = State::Got { under_way, left };
        }
    }
}

/// Returns the bytes of an object that may have moved by now.
fn due(load: &Load, begun: Instant, moved: u64) -> u64 {
    let left = load.size - moved;
    match load.pace {
        Pace::Full => left.min(PIECE),
        Pace::Slow { object_s } => {
            let share = (begun.elapsed().as_secs_f64() / object_s).min(1.0);
            let due = (load.size as f64 * share) as u64;
            // A whole piece, or the last one.
            let is_last = share >= 1.0;
            let ready = due.saturating_sub(moved);
            if ready >= SLOW_PIECE || is_last { ready.min(left).min(SLOW_PIECE) } else { 0 }
        }
    }
}

/// Checks the head, and returns the length of the body.
fn check(request: &Request, size: u64, head: &Head, body: &[u8]) -> io::Result<u64> {
    if head.status != 200 {
        let said = String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned();
        return Err(wrong(format!("status {}: {said}", head.status)));
    }
    let Some(length) = head.length else { return Err(wrong("the answer has no Content-Length".into())) };
    if request.put.is_none() && length != size {
        return Err(wrong(format!("an object has {size} bytes, and the answer {length}")));
    }
    if head.closes {
        return Err(wrong("the server does not keep the connection open".into()));
    }
    match (&request.etag, &head.etag) {
        (Some(expected), Some(etag)) if expected == etag => Ok(length),
        (Some(expected), etag) => Err(wrong(format!("the ETag is {etag:?}, not {expected}"))),
        (None, _) => Ok(length),
    }
}

/// Replaces the error by the server's answer, if it sent one before it closed.
fn explained(socket: &TcpStream, error: io::Error) -> io::Error {
    let mut bytes = vec![0; FIRST];
    let length = recv(socket.as_raw_fd(), &mut bytes, MsgFlags::empty()).unwrap_or(0);
    match http::parse(&bytes[..length]) {
        Ok(Some(head)) => {
            let said = String::from_utf8_lossy(&bytes[head.size..length]).into_owned();
            wrong(format!("status {}: {said}", head.status))
        }
        _ => error,
    }
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Receives bytes: nothing where none are there. The end of the connection is an error.
fn received(socket: &TcpStream, sink: &mut [u8], flags: MsgFlags) -> io::Result<Option<usize>> {
    match unless_blocked(recv(socket.as_raw_fd(), sink, flags))? {
        Some(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
        length => Ok(length),
    }
}

fn unless_blocked<T>(result: nix::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(errno) if errno as i32 == libc::EAGAIN => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
