//! One request and its answer. Owns the socket meanwhile, with the part of the body that is still in it.
//!
//! Three parties share it: the connection's task, the body that s3s may read, and an operation that has the engine take
//! the body.

use super::head::Framing;
use super::newcomers::Newcomer;
use super::xml_body::XmlBody;
use crate::transfers::{Patience, Piece};
use bytes::Bytes;
use dcs::Traffic;
use http_body::Frame;
use rustix::net::{RecvFlags, recv};
use s3s::{S3Error, S3Result};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// One request and its answer.
#[derive(Debug)]
pub struct Exchange(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Socket; `None` while the engine has it.
    stream: Option<TcpStream>,
    left: BodyLeft,
    /// True if `100 Continue` must be sent before the body is read.
    owes_continue: bool,
    payload: Payload,
    /// Bytes of the body that were read here rather than by the engine.
    read: u64,
    operation: String,
    user: Option<String>,
    /// Set while the connection may be sent away: the request is not authorised yet, or its body has not begun.
    newcomer: Option<Newcomer>,
    authorised: bool,
    begun: bool,
    /// Conditions on a body that is read here.
    xml: Option<XmlBody>,
    /// Error of a body that differs from what was announced.
    damaged: Option<S3Error>,
    /// True if the client kept the server waiting for the body for too long.
    timed_out: bool,
}

/// An answer's body: pieces of an object's files, which the engine sends.
#[derive(Debug, Default)]
pub struct Payload {
    /// Bucket of the object.
    pub bucket: String,
    /// Key of the object.
    pub key: String,
    /// Pieces to send; empty for any other answer.
    pub pieces: Vec<Piece>,
}

/// Part of the body that is in the socket or yet to come.
#[derive(Debug)]
enum BodyLeft {
    Bytes(u64),
    Chunked(Chunks),
    /// An unknown part: a transfer ended early.
    Unknown,
}

/// A body that an operation has taken for the engine.
#[derive(Debug)]
pub struct Incoming {
    /// Socket, which nobody else reads meanwhile.
    pub stream: std::net::TcpStream,
    /// Bytes of the body.
    pub length: u64,
}

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

impl Exchange {
    /// Makes the exchange of a request that came over this connection.
    pub(crate) fn new(
        stream: TcpStream,
        framing: Framing,
        expects_continue: bool,
        newcomer: Newcomer,
    ) -> Arc<Exchange> {
        let begun = framing == Framing::Length(0);
        let left = match framing {
            Framing::Length(length) => BodyLeft::Bytes(length),
            Framing::Chunked => BodyLeft::Chunked(Chunks::default()),
        };
        Arc::new(Exchange(Mutex::new(State {
            stream: Some(stream),
            left,
            owes_continue: expects_continue,
            payload: Payload::default(),
            read: 0,
            operation: String::new(),
            user: None,
            newcomer: Some(newcomer),
            authorised: false,
            begun,
            xml: None,
            damaged: None,
            timed_out: false,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics with it")
    }

    /// Sets the request's S3 operation, and the user who signed it.
    pub fn name(&self, operation: String, user: Option<String>) {
        let mut state = self.state();
        (state.operation, state.user) = (operation, user);
    }

    /// Marks the request as authorised.
    pub fn authorise(&self) {
        let mut state = self.state();
        state.authorised = true;
        state.leave_newcomers_if_begun();
    }

    /// Returns true if the connection may be sent away.
    pub(crate) fn is_newcomer(&self) -> bool {
        self.state().newcomer.is_some()
    }

    /// Marks the connection as answered, so that it is not sent away any more.
    pub(crate) fn leave_newcomers(&self) {
        self.state().newcomer = None;
    }

    /// Has the body checked while it is read here.
    ///
    /// # Errors
    ///
    /// Fails if the body is empty and must not be.
    pub(crate) fn expect(&self, xml: XmlBody) -> S3Result<()> {
        let mut state = self.state();
        if state.left.is_ended() {
            return xml.check();
        }
        state.xml = Some(xml);
        Ok(())
    }

    /// Checks bytes of the body. An error is kept for the answer, because s3s would change it.
    fn check_body(&self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let is_ended = state.left.is_ended();
        let Some(xml) = &mut state.xml else { return Ok(()) };
        let mut looked = xml.update(bytes);
        if is_ended && let Some(xml) = state.xml.take() {
            looked = looked.and_then(|()| xml.check());
        }
        looked.map_err(|error| {
            state.damaged = Some(error);
            io::ErrorKind::InvalidData.into()
        })
    }

    /// Returns the error for a body that differs from what was announced.
    pub fn damage(&self) -> Option<S3Error> {
        self.state().damaged.take()
    }

    /// Returns the access key that signed the request.
    pub fn user(&self) -> Option<String> {
        self.state().user.clone()
    }

    /// Returns true if the client kept the server waiting for the body for too long.
    pub fn timed_out(&self) -> bool {
        self.state().timed_out
    }

    /// Returns true if the client has closed its side. Known only while the engine does not have the socket.
    pub fn is_left(&self) -> bool {
        let state = self.state();
        let traffic = state.stream.as_ref().map(Traffic::of);
        matches!(traffic, Some(Ok(traffic)) if traffic.peer_closed && traffic.unread == 0)
    }

    /// Waits for the body's first byte, after sending `100 Continue` to a client that waits for it.
    ///
    /// # Errors
    ///
    /// Fails if the connection broke, or something else reads the body.
    pub async fn body_begins(&self) -> io::Result<()> {
        self.go_on()?;
        let seen = poll_fn(|context| {
            let state = self.state();
            let Some(stream) = &state.stream else {
                return Poll::Ready(Err(io::Error::other("the body was taken already")));
            };
            stream.poll_peek(context, &mut ReadBuf::new(&mut [0]))
        });
        if seen.await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut state = self.state();
        state.begun = true;
        state.leave_newcomers_if_begun();
        Ok(())
    }

    /// Returns the S3 operation; empty until it is known.
    pub fn operation(&self) -> String {
        self.state().operation.clone()
    }

    /// Returns the bytes of the body that were read here rather than by the engine.
    pub fn read(&self) -> u64 {
        self.state().read
    }

    /// Returns the body's length if the request gives it, `None` for a chunked one.
    pub fn length(&self) -> Option<u64> {
        match self.state().left {
            BodyLeft::Bytes(length) => Some(length),
            _ => None,
        }
    }

    /// Sends `100 Continue` to a client that waits for it. botocore waits even before an empty file, and gets the same
    /// answer, so that it never finds the final answer where it expects this one.
    ///
    /// # Errors
    ///
    /// Fails if the connection broke.
    pub fn go_on(&self) -> io::Result<()> {
        let mut state = self.state();
        let State { stream: Some(stream), owes_continue, .. } = &mut *state else { return Ok(()) };
        // The few bytes always fit: nothing was sent since the client took the previous answer.
        if std::mem::take(owes_continue) && stream.try_write(CONTINUE)? != CONTINUE.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(())
    }

    /// Takes the body for the engine, after sending `100 Continue` to a client that waits for it.
    ///
    /// # Errors
    ///
    /// Fails if the connection broke, or something else reads the body.
    pub fn take_body(&self) -> io::Result<Incoming> {
        self.go_on()?;
        let mut state = self.state();
        let BodyLeft::Bytes(length) = state.left else { return Err(io::Error::other("the body is chunked")) };
        let stream = state.stream.take().ok_or_else(|| io::Error::other("the body was taken already"))?;
        state.left = BodyLeft::Unknown;
        Ok(Incoming { stream: stream.into_std()?, length })
    }

    /// Returns the socket. `whole`: all of the body was read, so that another request can follow.
    ///
    /// # Errors
    ///
    /// Fails if the runtime can't poll the socket any more.
    pub fn give_back(&self, incoming: Incoming, whole: bool) -> io::Result<()> {
        let mut state = self.state();
        state.stream = Some(TcpStream::from_std(incoming.stream)?);
        if whole {
            state.left = BodyLeft::Bytes(0);
        }
        Ok(())
    }

    /// Sets the answer's body to these pieces of an object's files, which the engine sends.
    pub fn answer_with(&self, bucket: &str, key: &str, pieces: Vec<Piece>) {
        self.state().payload = Payload { bucket: bucket.to_string(), key: key.to_string(), pieces };
    }

    /// Ends the exchange, once the answer is known. Returns the socket, the answer's payload, and how much of the body
    /// is yet to come if that is known.
    pub fn finish(&self) -> (Option<TcpStream>, Payload, Option<u64>) {
        let mut state = self.state();
        let left = match state.left {
            // A client that still waits for `100 Continue` may send the body or not, so its body can't be told from its
            // next request.
            BodyLeft::Bytes(left) if !state.owes_continue => Some(left),
            BodyLeft::Chunked(ref chunks) if chunks.ended() => Some(0),
            _ => None,
        };
        (state.stream.take(), std::mem::take(&mut state.payload), left)
    }

    fn poll_body(&self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        self.go_on()?;
        let mut state = self.state();
        let State { stream: Some(stream), left, read: total, newcomer, begun, authorised, .. } = &mut *state
        else {
            return Poll::Ready(Some(Err(io::Error::other("the body was taken already"))));
        };
        let mut room = [0; 16 << 10];
        loop {
            let wanted = match left {
                BodyLeft::Bytes(0) => return Poll::Ready(None),
                BodyLeft::Bytes(length) => usize::try_from(*length).unwrap_or(usize::MAX),
                BodyLeft::Chunked(chunks) if chunks.ended() => return Poll::Ready(None),
                BodyLeft::Chunked(_) => usize::MAX,
                BodyLeft::Unknown => {
                    return Poll::Ready(Some(Err(io::Error::other("the body was cut short"))));
                }
            };
            ready!(stream.poll_read_ready(context))?;
            let room = &mut room[..wanted.min(16 << 10)];
            match stream.try_io(Interest::READABLE, || left.read(stream, room)) {
                Ok((bytes, taken)) => {
                    *total += taken as u64;
                    *begun = true;
                    if *authorised {
                        *newcomer = None;
                    }
                    if !bytes.is_empty() {
                        return Poll::Ready(Some(Ok(bytes.into())));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}

impl State {
    /// Keeps the connection from being sent away once the request is authorised and its body has begun.
    fn leave_newcomers_if_begun(&mut self) {
        if self.begun && self.authorised {
            self.newcomer = None;
        }
    }
}

impl BodyLeft {
    fn is_ended(&self) -> bool {
        match self {
            BodyLeft::Bytes(left) => *left == 0,
            BodyLeft::Chunked(chunks) => chunks.ended(),
            BodyLeft::Unknown => false,
        }
    }

    /// Reads what is there of the body, and nothing after it. Returns the data, which may be empty, and the bytes taken
    /// off the socket.
    fn read(&mut self, stream: &TcpStream, room: &mut [u8]) -> io::Result<(Vec<u8>, usize)> {
        let (seen, _) = recv(stream, &mut *room, RecvFlags::PEEK)?;
        if seen == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (bytes, taken) = match self {
            BodyLeft::Chunked(chunks) => chunks.decode(&room[..seen])?,
            BodyLeft::Bytes(length) => {
                *length -= seen as u64;
                (room[..seen].to_vec(), seen)
            }
            BodyLeft::Unknown => (Vec::new(), 0),
        };
        let (read, _) = recv(stream, &mut room[..taken], RecvFlags::empty())?;
        if read != taken {
            return Err(io::Error::other("the socket has fewer bytes than it showed"));
        }
        Ok((bytes, taken))
    }
}

/// Body as s3s reads it, when it is not an object's data or must be taken out of HTTP's chunks. A client that keeps the
/// server waiting for too long is given up.
#[derive(Debug)]
pub struct SocketBody {
    exchange: Arc<Exchange>,
    patience: Patience,
    /// Time at which waiting for the client began, and timer of the next check.
    waits: Option<(Instant, Pin<Box<Sleep>>)>,
}

/// Interval at which a client that the server waits for is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

impl SocketBody {
    /// Makes the body of a request, with the time that its client has.
    pub fn new(exchange: Arc<Exchange>, patience: Patience) -> SocketBody {
        SocketBody { exchange, patience, waits: None }
    }

    /// Checks how long the client has been silent. Ready when that is too long.
    fn poll_patience(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let (since, look) = self
                .waits
                .get_or_insert_with(|| (Instant::now(), Box::pin(tokio::time::sleep(POLL_INTERVAL))));
            ready!(look.as_mut().poll(context));
            self.patience.waited(since.elapsed());
            self.waits = None;
            if self.patience.is_over() {
                return Poll::Ready(());
            }
        }
    }
}

impl http_body::Body for SocketBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let found = self.exchange.poll_body(context);
        if found.is_pending() {
            ready!(self.poll_patience(context));
            self.exchange.state().timed_out = true;
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        }
        if let Some((since, _)) = self.waits.take() {
            self.patience.waited(since.elapsed());
        }
        let looked = match &found {
            Poll::Ready(Some(Ok(bytes))) => {
                self.patience.moved(bytes.len() as u64);
                self.exchange.check_body(bytes)
            }
            Poll::Ready(None) => self.exchange.check_body(&[]),
            _ => Ok(()),
        };
        if let Err(error) = looked {
            return Poll::Ready(Some(Err(error)));
        }
        found.map(|found| found.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.exchange.length() == Some(0)
    }

    /// Returns the length if it is known. s3s refuses signed requests without one, even if they have no body.
    fn size_hint(&self) -> http_body::SizeHint {
        self.exchange.length().map_or_else(http_body::SizeHint::default, http_body::SizeHint::with_exact)
    }
}

/// Decoder of the chunked transfer coding (RFC 9112 section 7.1). Trailers are skipped.
#[derive(Debug, Default)]
pub struct Chunks {
    /// Line that is being read: a chunk's size, a chunk's end, or a trailer.
    line: Vec<u8>,
    /// Bytes of the chunk that are yet to come.
    data: u64,
    state: ChunkState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
    #[default]
    Size,
    Data,
    AfterData,
    Trailer,
    Ended,
}

/// Longest line of the coding, in bytes.
const LINE_MAX: usize = 4096;

impl Chunks {
    /// Returns true if the whole body has come.
    pub fn ended(&self) -> bool {
        self.state == ChunkState::Ended
    }

    /// Decodes bytes. Returns their data, and how many of the bytes belong to the body.
    ///
    /// # Errors
    ///
    /// Fails if the coding is malformed.
    pub fn decode(&mut self, bytes: &[u8]) -> io::Result<(Vec<u8>, usize)> {
        let (mut input, mut output) = (bytes, Vec::new());
        while !input.is_empty() && !self.ended() {
            if self.state == ChunkState::Data {
                let taken = input.len().min(usize::try_from(self.data).unwrap_or(usize::MAX));
                output.extend_from_slice(&input[..taken]);
                input = &input[taken..];
                self.data -= taken as u64;
                if self.data == 0 {
                    self.state = ChunkState::AfterData;
                }
                continue;
            }
            let end = input.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(input.len(), |end| end + 1);
            self.line.extend_from_slice(&input[..taken]);
            input = &input[taken..];
            if self.line.len() > LINE_MAX {
                return Err(invalid("a line of the chunked coding is too long"));
            }
            if end.is_some() {
                self.line_done()?;
            }
        }
        Ok((output, bytes.len() - input.len()))
    }

    fn line_done(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        self.state = match (self.state, line.as_slice()) {
            (ChunkState::Size, line) => match httparse::parse_chunk_size(line) {
                Ok(httparse::Status::Complete((_, 0))) => ChunkState::Trailer,
                Ok(httparse::Status::Complete((_, size))) => {
                    self.data = size;
                    ChunkState::Data
                }
                _ => return Err(invalid("a chunk's size")),
            },
            (ChunkState::AfterData, b"\r\n") => ChunkState::Size,
            (ChunkState::AfterData, _) => return Err(invalid("a chunk does not end where its size says")),
            (ChunkState::Trailer, b"\r\n") => ChunkState::Ended,
            (state, _) => state,
        };
        Ok(())
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_may_be_cut_anywhere() {
        let input = b"4;name=value\r\nWiki\r\n5\r\npedia\r\n0\r\nA: trailer\r\n\r\nGET";
        for cut in 1..input.len() {
            let mut chunks = Chunks::default();
            let (mut output, mut length) = (Vec::new(), 0);
            for piece in input.chunks(cut) {
                let (bytes, taken) = chunks.decode(piece).unwrap();
                output.extend(bytes);
                length += taken;
            }
            assert!(chunks.ended());
            assert_eq!((output.as_slice(), &input[length..]), (&b"Wikipedia"[..], &b"GET"[..]));
        }
    }

    #[test]
    fn damaged_chunks_are_refused() {
        for bad in ["x\r\n", "4\r\nWikipedia\r\n", "99999999999999999999\r\n", "4\r\nWikiXX\r\n"] {
            assert!(Chunks::default().decode(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(Chunks::default().decode(&vec![b' '; LINE_MAX + 1]).is_err());
    }
}
