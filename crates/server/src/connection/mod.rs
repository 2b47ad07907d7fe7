//! A client's connection: reads requests one after another, gives heads to s3s, and has the engine move bodies between
//! socket and file.
//!
//! | module | contents |
//! |---|---|
//! | `digests` | digests of a small body, which s3s does not check |
//! | `errors` | S3's text, the resource and the request's id in error answers |
//! | `exchange` | one request and its answer; owns the socket meanwhile |
//! | `head` | request heads, read without a byte of the body |
//! | `newcomers` | connections that may be sent away when there are too many |
//! | `pulse` | timers of a core's event loop |
//! | `range` | the Range header |
//! | `response` | heads of answers |
//! | `xml` | names in answers that XML cannot hold |
//! | `xml_body` | a body in XML, checked while it comes |

pub(crate) mod digests;
mod errors;
pub(crate) mod exchange;
mod head;
pub(crate) mod newcomers;
pub(crate) mod pulse;
pub(crate) mod range;
pub(crate) mod response;
mod xml;
pub(crate) mod xml_body;

pub use exchange::{Chunks, Exchange, Incoming, Payload, SocketBody};
pub use head::{Framing, HEAD_MAX, Head, HeadError, parse as parse_head};

use crate::metrics::Answered;
use crate::shared::Shared;
use crate::transfers::{Data, DataPathError, GivenUp, Piece, TICK};
use crate::{signed, status};
use bytes::Bytes;
use dcs::{Op, Operator, Traffic};
use http::{Response, StatusCode, response::Parts};
use http_body_util::BodyExt;
use response::Status;
use rustix::net::SendFlags;
use s3s::{Body, S3Error};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::Instrument;

/// Serves a connection until one side ends it.
///
/// # Errors
///
/// Fails if the connection broke or gave way to a new one. Bytes that the peer has not taken yet are lost.
pub async fn serve(mut stream: TcpStream, peer: SocketAddr, shared: Arc<Shared>) -> io::Result<()> {
    loop {
        match serve_request(stream, peer, &shared).await {
            Ok(Some(next)) => stream = next,
            Ok(None) => return Ok(()),
            Err(error) => {
                tracing::debug!(%error, %peer, "a connection ends");
                return Err(error);
            }
        }
    }
}

/// Waits for the head of the next request. Returns nothing if the client has left, or has sent a head that cannot be read, which is
/// answered here.
async fn next_request(
    stream: TcpStream,
    peer: SocketAddr,
    shared: &Arc<Shared>,
) -> io::Result<Option<(TcpStream, Head)>> {
    let (waiting, away) = shared.newcomers.enter();
    let head = tokio::select! {
        // A request that is already there is answered: no connection gives way while its client is sending.
        biased;
        head = next_head(&stream, peer, shared) => head,
        () = away.notified() => return Err(sent_away(shared)),
    };
    drop(waiting);
    let (_newcomer, away) = shared.newcomers.enter();
    match head {
        Ok(head) => Ok(head.map(|head| (stream, head))),
        Err(error) => {
            if let Some(status) = error.status() {
                let why = error.to_string();
                tokio::select! {
                    refused = refuse(stream, shared, status, &why) => refused?,
                    () = away.notified() => return Err(sent_away(shared)),
                }
            }
            Ok(None)
        }
    }
}

/// Handles one request. Returns the connection if another request may follow.
async fn serve_request(
    stream: TcpStream,
    peer: SocketAddr,
    shared: &Arc<Shared>,
) -> io::Result<Option<TcpStream>> {
    let Some((stream, head)) = next_request(stream, peer, shared).await? else { return Ok(None) };
    shared.pulse.keep();
    let (newcomer, away) = shared.newcomers.enter();
    let begun = Instant::now();
    let (method, path) = (head.request.method().clone(), head.request.uri().path().to_string());
    let (close, framing) = (head.close, head.framing);
    let id = errors::request_id();
    let exchange = Exchange::new(stream, head.framing, head.expects_continue, newcomer);
    let span = tracing::info_span!("request", id);
    let mut answer = tokio::select! {
        answer = answer(head, peer, &exchange, shared).instrument(span) => answer,
        () = away.notified() => return Err(sent_away(shared)),
        () = client_left(&exchange) => {
            let us = begun.elapsed().as_micros() as u64;
            tracing::info!(id, client = %peer, %method, path, us, "the client left before its answer");
            return Ok(None);
        }
    };
    xml::escape_characters(&mut answer);
    let error = errors::complete(&mut answer, &path, &id);
    let (stream, payload, left) = exchange.finish();
    let metrics = &shared.path.metrics;
    metrics.received(exchange.read());
    let Some(stream) = stream else { return Ok(None) };
    let left = left.filter(|left| *left <= SKIPPED_MAX && !exchange.timed_out());
    let close = close || left.is_none() || shared.stopping();
    let (parts, body) = answer.into_parts();
    let status = parts.status;
    let bytes_out = length_of(&payload, &body);
    let answered = begun.elapsed();
    // A client that is not authorised may be sent away if it does not take the answer.
    let sent = tokio::select! {
        biased;
        sent = send(stream, shared, parts, body, (&method, close), &payload) => sent,
        () = away.notified(), if exchange.is_newcomer() => Err(sent_away(shared)),
    };
    exchange.leave_newcomers();
    let (operation, took) = (exchange.operation(), begun.elapsed());
    metrics.answered(Answered { method: &method, operation: &operation, status: status.as_u16(), took });
    let us = |time: Duration| time.as_micros() as u64;
    tracing::info!(
        id,
        client = %peer,
        user = exchange.user(),
        %method,
        path,
        operation,
        status = status.as_u16(),
        error,
        bytes_in = framing.length(),
        bytes_out,
        sent = sent.is_ok(),
        answered_us = us(answered),
        us = us(took),
        "request"
    );
    match sent? {
        Some(stream) => finish(stream, shared, close, left).await,
        None => Ok(None),
    }
}

fn length_of(payload: &Payload, body: &Body) -> u64 {
    match payload.pieces.as_slice() {
        [] => body.bytes().map_or(0, |body| body.len() as u64),
        pieces => pieces.iter().map(|piece| piece.length).sum(),
    }
}

/// Ends a request whose client has had its answer: closes the connection, or skips what is left of the body.
async fn finish(
    stream: TcpStream,
    shared: &Arc<Shared>,
    close: bool,
    left: Option<u64>,
) -> io::Result<Option<TcpStream>> {
    let (_newcomer, away) = shared.newcomers.enter();
    let ended = async {
        if close {
            linger(stream).await.map(|()| None)
        } else {
            skip(stream, shared, left.unwrap_or(0)).await
        }
    };
    tokio::select! {
        ended = ended => ended,
        () = away.notified() => Err(sent_away(shared)),
    }
}

/// Returns the error of a connection that gives way to a new one.
fn sent_away(shared: &Shared) -> io::Error {
    shared.path.metrics.sent_away.inc();
    io::Error::new(io::ErrorKind::ConnectionAborted, "the connection gives way to a new one")
}

/// Interval of checks whether the client is still there while its request is answered.
const PRESENCE_INTERVAL: Duration = Duration::from_secs(1);

/// Waits until the client has closed its side, and so does not want its answer.
async fn client_left(exchange: &Exchange) {
    loop {
        tokio::time::sleep(PRESENCE_INTERVAL).await;
        if exchange.is_left() {
            return;
        }
    }
}

/// Answers a request.
async fn answer(head: Head, peer: SocketAddr, exchange: &Arc<Exchange>, shared: &Shared) -> Response<Body> {
    if let Some(answer) = status::answer(&head.request, peer, shared).await {
        return answer;
    }
    // s3s would read all of a form before it checks who sends it.
    if is_form(&head) {
        return error(s3s::s3_error!(NotImplemented, "form uploads (POST) are not supported"));
    }
    let answer = call(head, peer, exchange.clone(), shared).await;
    if exchange.timed_out() {
        return error(s3s::s3_error!(RequestTimeout, "the request's body did not come in time"));
    }
    match exchange.damage() {
        Some(damage) => error(damage),
        None => answer,
    }
}

fn is_form(head: &Head) -> bool {
    let kind = head.request.headers().get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    *head.request.method() == http::Method::POST
        && kind.is_some_and(|kind| kind.eq_ignore_ascii_case("multipart/form-data"))
}

/// Converts an error to S3's answer.
fn error(error: S3Error) -> Response<Body> {
    error.to_http_response().unwrap_or_else(|error| internal_error(&error))
}

/// Most bytes of an unwanted body that are read to keep the connection. With more the connection ends.
const SKIPPED_MAX: u64 = 256 << 10;

/// Reads the rest of an unwanted body.
async fn skip(stream: TcpStream, shared: &Shared, left: u64) -> io::Result<Option<TcpStream>> {
    let mut body = stream.take(left);
    let skipped =
        timeout(shared.config.head_timeout, tokio::io::copy(&mut body, &mut tokio::io::sink())).await;
    Ok(skipped.is_ok_and(|skipped| skipped.is_ok_and(|read| read == left)).then(|| body.into_inner()))
}

/// Waits for a request: long for its first byte, less long for the rest.
async fn next_head(stream: &TcpStream, peer: SocketAddr, shared: &Shared) -> Result<Option<Head>, HeadError> {
    let begun = tokio::select! {
        came = timeout(shared.config.idle, head::begin(stream)) => match came {
            Ok(begun) => begun?,
            Err(_) => None,
        },
        () = shared.stopped() => None,
        () = log_untaken_answer(stream, peer) => None,
    };
    let Some(begun) = begun else { return Ok(None) };
    match timeout(shared.config.head_timeout, head::read(stream, begun)).await {
        Ok(head) => head.map(Some),
        Err(_) => Ok(None),
    }
}

/// Time without a request after which the server checks whether the client has taken its last answer.
const UNTAKEN: Duration = Duration::from_secs(10);

/// Logs a client that does not take its answer.
async fn log_untaken_answer(stream: &TcpStream, peer: SocketAddr) {
    tokio::time::sleep(UNTAKEN).await;
    if let Ok(traffic) = Traffic::of(stream) {
        let bytes = traffic.unacknowledged;
        if bytes > 0 {
            tracing::warn!(%peer, bytes, "an answer was given 10 s ago, and the client has not taken all of it");
        } else {
            tracing::debug!(%peer, "the client has had its answer for 10 s, and asks for nothing");
        }
    }
    std::future::pending().await
}

/// Has s3s answer a request.
async fn call(mut head: Head, peer: SocketAddr, exchange: Arc<Exchange>, shared: &Shared) -> Response<Body> {
    if let Err(error) = signed::check(&mut head.request, shared.is_secure(peer)) {
        return self::error(error);
    }
    let patience = shared.path.patience().of(shared.config.head_timeout);
    let mut request =
        head.request.map(|()| Body::http_body_unsync(SocketBody::new(exchange.clone(), patience)));
    request.extensions_mut().insert(exchange);
    match shared.service.call(request).await {
        Ok(mut response) => {
            if let Some(Status(status)) = response.extensions_mut().remove() {
                *response.status_mut() = status;
            }
            response
        }
        Err(error) => internal_error(&error),
    }
}

/// Returns the answer when s3s itself fails.
fn internal_error(error: &dyn std::fmt::Debug) -> Response<Body> {
    tracing::error!(?error, "a request failed");
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

/// Sends an answer. Returns the connection if it can be used again.
async fn send(
    stream: TcpStream,
    shared: &Arc<Shared>,
    parts: Parts,
    body: Body,
    (method, close): (&http::Method, bool),
    payload: &Payload,
) -> io::Result<Option<TcpStream>> {
    if !payload.pieces.is_empty() {
        return send_payload(stream, shared, &parts, close, payload).await;
    }
    let body = match body.bytes() {
        Some(bytes) => bytes,
        None => body.collect().await.map_err(io::Error::other)?.to_bytes(),
    };
    let bodiless = parts.status == StatusCode::NO_CONTENT || parts.status == StatusCode::NOT_MODIFIED;
    let no_body = bodiless || method == http::Method::HEAD;
    let mut bytes = response::head(&parts, (!no_body).then_some(body.len() as u64), close);
    if !no_body {
        bytes.extend_from_slice(&body);
    }
    write(stream, shared, &bytes).await.map(Some)
}

/// Writes to a client. The client has as long as for a head, and gains time with each byte that it takes.
async fn write(mut stream: TcpStream, shared: &Shared, mut bytes: &[u8]) -> io::Result<TcpStream> {
    let mut patience = shared.path.patience().of(shared.config.head_timeout);
    while !bytes.is_empty() {
        let begun = Instant::now();
        match timeout(TICK, stream.write(bytes)).await {
            Ok(written) => {
                let written = written?;
                bytes = &bytes[written..];
                shared.path.metrics.sent(written as u64);
                patience.moved(written as u64);
                patience.waited(begun.elapsed());
            }
            Err(_) => {
                patience.waited(begun.elapsed());
                if patience.is_over() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
    }
    Ok(stream)
}

/// Most bytes of a processed answer that go through memory, so that they are known to be right before the head is sent.
const SMALL: u64 = 128 << 10;

/// Has the engine send an answer's pieces, with the head before the first.
async fn send_payload(
    stream: TcpStream,
    shared: &Arc<Shared>,
    parts: &Parts,
    close: bool,
    payload: &Payload,
) -> io::Result<Option<TcpStream>> {
    let pieces = payload.pieces.as_slice();
    let length = pieces.iter().map(|piece| piece.length).sum();
    let mut head = response::head(parts, Some(length), close);
    let mut stream = stream;
    match pieces {
        // Bytes in memory are sent at once: the engine has nothing to do.
        [piece] if length <= SMALL && from_memory(piece, &mut head) => {
            return write(stream, shared, &head).await.map(Some);
        }
        // A command's leading bytes pass its operators too. Data in a shared file may become a hole as soon as this
        // request is given up, so the socket gets a copy.
        [piece, ..] if piece.chain.is_empty() && !piece.data.is_packed() => {}
        [piece] if length <= SMALL => {
            let body = match unless_left(&stream, shared.path.fetch(piece)).await {
                None => return Ok(None),
                Some(Ok(body)) => body,
                Some(Err(error)) => {
                    keep_from_readers(shared, payload, piece, &error).await;
                    return failed(stream, shared, (payload, parts), &error).await;
                }
            };
            head.extend_from_slice(&body);
            return write(stream, shared, &head).await.map(Some);
        }
        _ => stream = begin(stream, shared, &std::mem::take(&mut head)).await?,
    }
    let socket = stream.into_std()?;
    for (at, piece) in pieces.iter().enumerate() {
        let more = at + 1 < pieces.len();
        let prefix = std::mem::take(&mut head);
        let begun = at > 0 || prefix.is_empty();
        let sent = shared.path.send(&socket, prefix, piece, more).await;
        if let Err(error) = sent {
            tracing::warn!(%error, "an answer was cut short");
            keep_from_readers(shared, payload, piece, &error).await;
            let gone = matches!(error, DataPathError::GivenUp { why: GivenUp::Gone, .. });
            return if !begun && error.sent_nothing() && !gone {
                failed(TcpStream::from_std(socket)?, shared, (payload, parts), &error).await
            } else {
                // Closes at once, without waiting for the client to take what it has got.
                Err(io::Error::other("the answer was cut short"))
            };
        }
    }
    TcpStream::from_std(socket).map(Some)
}

/// Appends a piece's bytes if they are in memory, and are right where that is to be checked by their CRC-64. Returns
/// true if it did. Of wrong ones the engine tells what there is to tell.
fn from_memory(piece: &Piece, to: &mut Vec<u8>) -> bool {
    let Data::Open(opened) = &piece.data else { return false };
    let expected = match piece.chain.as_slice() {
        [] => None,
        [Op::Expect { digest: Operator::Crc64Nvme, value }] => Some(value),
        _ => return false,
    };
    let begin = to.len();
    if !opened.from_memory(piece.range.clone(), to) {
        return false;
    }
    let crc = |bytes| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes).to_be_bytes();
    let right = expected.is_none_or(|expected| crc(&to[begin..])[..] == expected[..]);
    if !right {
        to.truncate(begin);
    }
    right
}

/// Runs a task for a client, until the client has closed its side.
async fn unless_left<T>(stream: &TcpStream, work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    loop {
        match timeout(PRESENCE_INTERVAL, &mut work).await {
            Ok(done) => return Some(done),
            Err(_) if Traffic::of(stream).is_ok_and(|traffic| traffic.peer_closed) => return None,
            Err(_) => {}
        }
    }
}

/// Quarantines an object whose data were found to be wrong, so that later readers get an error before any data.
async fn keep_from_readers(shared: &Shared, payload: &Payload, piece: &Piece, error: &DataPathError) {
    if !error.is_damage() {
        return;
    }
    let reason = format!("damaged: {}: {error}", crate::store::place(piece.segment));
    crate::scrub::quarantine(&shared.store, &payload.bucket, &payload.key, piece.segment, reason).await;
}

/// Sends a head whose body follows at once.
async fn begin(stream: TcpStream, shared: &Shared, head: &[u8]) -> io::Result<TcpStream> {
    let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
    let sent = stream.try_io(Interest::WRITABLE, || Ok(rustix::net::send(&stream, head, flags)?));
    if let Ok(sent) = sent {
        shared.path.metrics.sent(sent as u64);
    }
    match sent {
        Ok(sent) if sent == head.len() => Ok(stream),
        Ok(sent) => write(stream, shared, &head[sent..]).await,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => write(stream, shared, head).await,
        Err(error) => Err(error),
    }
}

/// Answers a client that has not been sent anything yet.
async fn failed(
    stream: TcpStream,
    shared: &Shared,
    (payload, answer): (&Payload, &Parts),
    error: &DataPathError,
) -> io::Result<Option<TcpStream>> {
    let id = answer.headers.get(errors::REQUEST_ID).and_then(|id| id.to_str().ok()).unwrap_or_default();
    let error = s3s::s3_error!(InternalError, "the object can't be read: {error}");
    let mut response = self::error(error);
    let resource = format!("/{}/{}", payload.bucket, payload.key);
    errors::complete(&mut response, &resource, id);
    xml::escape_characters(&mut response);
    let (parts, body) = response.into_parts();
    let body = body.bytes().unwrap_or_default();
    let mut bytes = response::head(&parts, Some(body.len() as u64), true);
    bytes.extend_from_slice(&body);
    linger(write(stream, shared, &bytes).await?).await.map(|()| None)
}

/// Answers a malformed request, and ends the connection.
async fn refuse(stream: TcpStream, shared: &Arc<Shared>, status: StatusCode, why: &str) -> io::Result<()> {
    let body = Bytes::from(format!("{why}\n"));
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = status;
    parts
        .headers
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    let mut bytes = response::head(&parts, Some(body.len() as u64), true);
    bytes.extend_from_slice(&body);
    linger(write(stream, shared, &bytes).await?).await
}

/// Ends a connection so that a peer that still sends gets the answer: closing a socket with unread data would reset the
/// connection and drop the answer on its way (RFC 9112 section 9.6).
async fn linger(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    let mut sink = [0; 4096];
    let drained = async {
        while stream.read(&mut sink).await? > 0 {}
        io::Result::Ok(())
    };
    timeout(Duration::from_secs(2), drained).await.unwrap_or(Ok(()))
}
