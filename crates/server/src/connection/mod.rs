//! A client's connection: request after request, heads to s3s, bodies between socket and file to the engine.

mod exchange;
mod head;
mod response;

pub use exchange::{Chunks, Exchange, Incoming, Payload, SocketBody};
pub use head::{Framing, HEAD_MAX, Head, HeadError, parse as parse_head};

use crate::metrics::Answered;
use crate::path::{PathError, Piece};
use crate::server::Shared;
use crate::status;
use bytes::Bytes;
use http::{Response, StatusCode, response::Parts};
use http_body_util::BodyExt;
use rustix::net::SendFlags;
use s3s::Body;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Serves a connection until one side ends it.
pub async fn serve(mut stream: TcpStream, peer: SocketAddr, shared: Arc<Shared>) {
    loop {
        match one(stream, peer, &shared).await {
            Ok(Some(next)) => stream = next,
            Ok(None) => return,
            Err(error) => return tracing::debug!(%error, "a connection ends"),
        }
    }
}

/// One request and its answer: the connection again, if another one may follow.
async fn one(stream: TcpStream, peer: SocketAddr, shared: &Arc<Shared>) -> io::Result<Option<TcpStream>> {
    let head = match next_head(&stream, shared).await {
        Ok(Some(head)) => head,
        Ok(None) => return Ok(None),
        Err(error) => {
            if let Some(status) = error.status() {
                refuse(stream, status, &error.to_string()).await?;
            }
            return Ok(None);
        }
    };
    let begun = std::time::Instant::now();
    let (method, path) = (head.request.method().clone(), head.request.uri().path().to_string());
    let close = head.close;
    let exchange = Exchange::new(stream, head.framing, head.expects_continue);
    let answer = match status::answer(&head.request, peer, shared).await {
        Some(answer) => answer,
        None => call(head, exchange.clone(), shared).await,
    };
    let (stream, payload, left) = exchange.finish();
    let metrics = &shared.path.metrics;
    metrics.received(exchange.read());
    let Some(stream) = stream else { return Ok(None) };
    let left = left.filter(|left| *left <= SKIPPED_MAX);
    let close = close || left.is_none() || shared.stopping();
    let (parts, body) = answer.into_parts();
    let status = parts.status;
    let sent = send(stream, shared, parts, body, (&method, close), &payload).await;
    let (operation, took) = (exchange.operation(), begun.elapsed());
    metrics.answered(Answered { method: &method, operation: &operation, status: status.as_u16(), took });
    tracing::info!(%method, path, status = status.as_u16(), sent = sent.is_ok(), us = took.as_micros() as u64, "request");
    let stream = sent?;
    match stream {
        Some(stream) if close => linger(stream).await.map(|()| None),
        Some(stream) => skip(stream, shared, left.unwrap_or(0)).await,
        None => Ok(None),
    }
}

/// So much of a body that nobody wanted is read, so that the connection can go on; with more it ends.
const SKIPPED_MAX: u64 = 256 << 10;

/// Reads the rest of a body that nobody wanted.
async fn skip(stream: TcpStream, shared: &Shared, left: u64) -> io::Result<Option<TcpStream>> {
    let mut body = stream.take(left);
    let skipped =
        timeout(shared.config.head_timeout, tokio::io::copy(&mut body, &mut tokio::io::sink())).await;
    Ok(skipped.is_ok_and(|skipped| skipped.is_ok_and(|read| read == left)).then(|| body.into_inner()))
}

/// Waits for a request: long for its first byte, not long for the rest.
async fn next_head(stream: &TcpStream, shared: &Shared) -> Result<Option<Head>, HeadError> {
    let mut look = [0];
    tokio::select! {
        // That it was readable is remembered from the request before: only a look tells.
        came = timeout(shared.config.idle, stream.peek(&mut look)) => match came {
            Ok(seen) => drop(seen?),
            Err(_) => return Ok(None),
        },
        () = shared.stopped() => return Ok(None),
    }
    match timeout(shared.config.head_timeout, head::read(stream)).await {
        Ok(head) => head,
        Err(_) => Ok(None),
    }
}

/// The status of an answer to which s3s gives another one, in its extensions: HEAD of a part.
#[derive(Clone, Copy, Debug)]
pub struct Status(pub StatusCode);

/// Has s3s answer.
async fn call(head: Head, exchange: Arc<Exchange>, shared: &Shared) -> Response<Body> {
    let mut request = head.request.map(|()| Body::http_body_unsync(SocketBody(exchange.clone())));
    request.extensions_mut().insert(exchange);
    match shared.service.call(request).await {
        Ok(mut response) => {
            if let Some(Status(status)) = response.extensions_mut().remove() {
                *response.status_mut() = status;
            }
            response
        }
        Err(error) => {
            tracing::error!(?error, "a request failed");
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        }
    }
}

/// Sends an answer: the connection again, if it is whole.
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

async fn write(mut stream: TcpStream, shared: &Shared, bytes: &[u8]) -> io::Result<TcpStream> {
    match timeout(shared.config.head_timeout, stream.write_all(bytes)).await {
        Ok(written) => {
            shared.path.metrics.sent(bytes.len() as u64);
            written.map(|()| stream)
        }
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// So much of an answer that is processed goes through memory: it is known to be right before its head is sent.
const SMALL: u64 = 128 << 10;

/// Has the engine send an answer's pieces, the head before the first one.
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
        // What comes before the first byte of a command passes its operators too.
        [piece, ..] if piece.chain.is_empty() => {}
        [piece] if length <= SMALL => {
            let body = match shared.path.fetch(piece).await {
                Ok(body) => body,
                Err(error) => {
                    keep_from_readers(shared, payload, piece, &error).await;
                    return failed(stream, shared, &error).await;
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
            return if !begun && error.sent_nothing() {
                failed(TcpStream::from_std(socket)?, shared, &error).await
            } else {
                Ok(None)
            };
        }
    }
    TcpStream::from_std(socket).map(Some)
}

/// Where the data were found to be wrong, readers after this one get an error before they get data.
async fn keep_from_readers(shared: &Shared, payload: &Payload, piece: &Piece, error: &PathError) {
    if !error.is_damage() {
        return;
    }
    let reason = format!("damaged: data file {:016x}: {error}", piece.segment);
    crate::scrub::quarantine(&shared.store, &payload.bucket, &payload.key, piece.segment, reason).await;
}

/// Sends a head that more follows at once.
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

/// Tells a client that has not had anything yet.
async fn failed(stream: TcpStream, shared: &Shared, error: &PathError) -> io::Result<Option<TcpStream>> {
    let error = s3s::s3_error!(InternalError, "the object can't be read: {error}");
    let response = error.to_http_response().map_err(io::Error::other)?;
    let (parts, body) = response.into_parts();
    let body = body.bytes().unwrap_or_default();
    let mut bytes = response::head(&parts, Some(body.len() as u64), true);
    bytes.extend_from_slice(&body);
    linger(write(stream, shared, &bytes).await?).await.map(|()| None)
}

/// Answers what is no request, and ends the connection.
async fn refuse(mut stream: TcpStream, status: StatusCode, why: &str) -> io::Result<()> {
    let body = Bytes::from(format!("{why}\n"));
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = status;
    parts
        .headers
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    let mut bytes = response::head(&parts, Some(body.len() as u64), true);
    bytes.extend_from_slice(&body);
    stream.write_all(&bytes).await?;
    linger(stream).await
}

/// Ends a connection so that the peer gets the answer though it still sends: closing a socket with unread data would reset the
/// connection, and with it what is on the way (RFC 9112 section 9.6).
async fn linger(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    let mut sink = [0; 4096];
    let drained = async {
        while stream.read(&mut sink).await? > 0 {}
        io::Result::Ok(())
    };
    timeout(Duration::from_secs(2), drained).await.unwrap_or(Ok(()))
}
