//! Takes the body of a PutObject or an UploadPart off the socket, checks it, and writes it to a draft.

use super::Api;
use super::common::{BASE64, algorithm};
use crate::connection::digests::sha256_mismatch;
use crate::connection::exchange::{Exchange, SocketBody};
use crate::encryption::{self, Key};
use crate::store::record::{Algorithm, AtRest, Checksum, Compression, Segment};
use crate::store::{Draft, Target};
use crate::transfers::{DataPathError, Intake, Received, stored_max};
use base64::Engine as _;
use dcs::Status;
use http::{Extensions, HeaderMap};
use http_body_util::BodyExt;
use s3s::auth::Credentials;
use s3s::{S3Error, S3Request, S3Result, s3_error};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;

/// Headers about a request's body, in addition to those that s3s reads.
pub struct Request<'a> {
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    credentials: Option<&'a Credentials>,
}

impl<'a, T> From<&'a S3Request<T>> for Request<'a> {
    fn from(request: &'a S3Request<T>) -> Request<'a> {
        Request {
            headers: &request.headers,
            extensions: &request.extensions,
            credentials: request.credentials.as_ref(),
        }
    }
}

/// Digests that the data must have.
#[derive(Default)]
pub struct GivenDigests<'a> {
    /// Content-MD5.
    pub content_md5: Option<&'a str>,
    /// The additional checksum from a header.
    pub checksum: Option<(Algorithm, Vec<u8>)>,
    /// Algorithm of a checksum to compute even if the request gives none.
    pub wanted: Option<Algorithm>,
}

/// The way in which the body was signed (x-amz-content-sha256).
enum Payload {
    Unsigned,
    /// Its SHA-256.
    Whole([u8; 32]),
    /// aws-chunked: with signed chunks or not, with a trailer or not.
    Chunked {
        signed: bool,
        trailer: bool,
    },
}

/// Largest object or part of one request. S3's own limit.
pub const PUT_MAX: u64 = 5 << 30;

/// Kind of thing that a body becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// A whole object, which shares a file if it is small.
    Object,
    /// A part of an upload, which always has a file of its own.
    Part,
}

impl BodyKind {
    /// Returns the algorithm of the additional checksum, if that one is asked for. A part whose client asks for none
    /// has a CRC-64, as in S3: readers check the part by it.
    pub fn checksum(self, asked: Option<Algorithm>) -> Option<Algorithm> {
        match self {
            BodyKind::Object => asked,
            BodyKind::Part => asked.or(Some(Algorithm::Crc64Nvme)),
        }
    }

    /// Makes a draft for data of this size.
    pub fn draft(self, api: &Api, at_rest: &AtRest, size: u64) -> S3Result<Draft> {
        let room = room(at_rest, size);
        Ok(match self {
            BodyKind::Object => api.store.draft_of(size, stored_max(size, at_rest.compression), room),
            BodyKind::Part => api.store.draft_for(room),
        }?)
    }
}

/// Takes the body into a draft. Returns the draft, its segment, and the additional checksum.
///
/// # Errors
///
/// Fails if the data did not come, or differ from what was announced. Nothing is kept then.
pub async fn take(
    api: &Api,
    of: BodyKind,
    request: Request<'_>,
    given: GivenDigests<'_>,
    at_rest: &AtRest,
    key: Option<&Key>,
) -> S3Result<(Draft, Segment, Option<Checksum>)> {
    let exchange = request.extensions.get::<Arc<Exchange>>();
    let exchange = exchange.ok_or_else(|| s3_error!(InternalError, "the request has no connection"))?;
    let length = exchange.length();
    let payload = payload(request.headers)?;
    let announced = announced(request.headers)?;
    let has_trailer = matches!(payload, Payload::Chunked { trailer: true, .. });
    if announced.is_some() && (!has_trailer || given.checksum.is_some()) {
        return Err(s3_error!(
            InvalidRequest,
            "x-amz-trailer announces a checksum, and a header gives one: send one, not both"
        ));
    }
    let framing = match payload {
        Payload::Chunked { signed, trailer } => {
            let announced = announced.filter(|_| trailer);
            let op =
                super::framing::operator(request.headers, request.credentials, signed, trailer, announced)?;
            Some(op)
        }
        _ => None,
    };
    let size = framing.as_ref().map(|(_, size)| *size).or(length);
    let size = size.ok_or_else(|| s3_error!(MissingContentLength))?;
    if size > PUT_MAX {
        return Err(s3_error!(EntityTooLarge));
    }
    api.store.check_room(room(at_rest, size))?;
    if length != Some(0) {
        begins(api, exchange).await?;
    }
    let mut draft = of.draft(api, at_rest, size)?;
    let checksum = given.checksum.as_ref().map(|(algorithm, _)| *algorithm).or(announced).or(given.wanted);
    let intake = Intake {
        framing,
        sha256: matches!(payload, Payload::Whole(_)),
        checksum: of.checksum(checksum),
        crc64: of == BodyKind::Object,
        compression: at_rest.compression,
        cipher: key.map(|key| (**key, encryption::counter(draft.id()))),
    };
    let mut received = receive(api, exchange, length, &intake, draft.target()).await?;
    check(&received, &payload, &given)?;
    draft.fill(std::mem::take(&mut received.bytes))?;
    let (segment, checksum) = segment(&draft, received, intake.checksum);
    Ok((draft, segment, checksum))
}

/// Makes the segment of data that were received into a draft. Also returns their additional checksum, of that
/// algorithm.
///
/// A whole object's segment has a CRC-64, by which readers check it; the additional checksum is in the object's record.
pub fn segment(
    draft: &Draft,
    received: Received,
    algorithm: Option<Algorithm>,
) -> (Segment, Option<Checksum>) {
    let of = |(value, algorithm)| Checksum { algorithm, value, parts: None };
    let checksum = received.checksum.zip(algorithm).map(of);
    let crc64 = received.crc64.map(|value| of((value, Algorithm::Crc64Nvme)));
    let segment = Segment {
        id: draft.id(),
        size: received.size,
        stored: received.stored,
        md5: received.md5,
        checksum: crc64.or_else(|| checksum.clone()),
    };
    (segment, checksum)
}

/// Returns the bytes that must be free on the disk for a body. The store's reserve covers small bodies; the size of
/// compressed ones is not known yet.
pub fn room(at_rest: &AtRest, size: u64) -> u64 {
    const SMALL: u64 = 1 << 20;
    if at_rest.compression == Compression::None && size >= SMALL { size } else { 0 }
}

/// Waits for the body's first byte, so that a client that only announces a body takes no place in the engine.
async fn begins(api: &Api, exchange: &Exchange) -> S3Result<()> {
    match tokio::time::timeout(api.path.patience().most(), exchange.body_begins()).await {
        Ok(begun) => begun.map_err(|error| s3_error!(error, IncompleteBody)),
        Err(_) => Err(s3_error!(RequestTimeout, "no byte of the body came in time")),
    }
}

async fn receive(
    api: &Api,
    exchange: &Arc<Exchange>,
    length: Option<u64>,
    intake: &Intake,
    target: Target<'_>,
) -> S3Result<Received> {
    let Some(length) = length else { return receive_chunked(api, exchange, intake, target).await };
    if length == 0 {
        exchange.go_on().map_err(|error| s3_error!(error, IncompleteBody))?;
        return api.path.take_nothing(intake, target).await.map_err(|error| failure(&error));
    }
    let incoming = exchange.take_body().map_err(|error| s3_error!(error, IncompleteBody))?;
    let received = api.path.receive(&incoming.stream, length, intake, target).await;
    exchange.give_back(incoming, received.is_ok()).map_err(S3Error::internal_error)?;
    received.map_err(|error| failure(&error))
}

/// Takes a body in HTTP's chunked coding, as SDKs send it over TLS, with aws-chunked inside. The HTTP chunks are
/// decoded here, and their data reach the engine through a pair of sockets.
async fn receive_chunked(
    api: &Api,
    exchange: &Arc<Exchange>,
    intake: &Intake,
    target: Target<'_>,
) -> S3Result<Received> {
    let (to, from) = UnixStream::pair().map_err(S3Error::internal_error)?;
    to.set_nonblocking(true).and(from.set_nonblocking(true)).map_err(S3Error::internal_error)?;
    let pump = async {
        let mut to = tokio::net::UnixStream::from_std(to)?;
        let mut body = SocketBody::new(exchange.clone(), api.path.patience_with_a_place());
        while let Some(frame) = body.frame().await {
            to.write_all(&frame?.into_data().unwrap_or_default()).await?;
        }
        std::io::Result::Ok(())
    };
    let mut take = std::pin::pin!(api.path.receive_framed(&from, intake, target));
    let received = tokio::select! {
        // The transfer has failed: one that succeeds sees the end of the stream, which only the pump makes.
        received = &mut take => received,
        pumped = pump => {
            let received = take.await;
            pumped.map_err(|error| match error.kind() {
                std::io::ErrorKind::TimedOut => s3_error!(error, RequestTimeout),
                _ => s3_error!(error, IncompleteBody),
            })?;
            received
        }
    };
    received.map_err(|error| failure(&error))
}

/// Converts a transfer's failure to the error that the client gets.
pub fn failure(error: &DataPathError) -> S3Error {
    tracing::debug!(%error, "a body was not taken");
    if error.is_full() {
        return super::common::full();
    }
    match error.status() {
        Some(Status::EndOfSource | Status::PeerReset | Status::TruncatedData) => s3_error!(IncompleteBody),
        Some(Status::Timeout) => s3_error!(RequestTimeout),
        Some(Status::SignatureMismatch) => {
            s3_error!(SignatureDoesNotMatch, "a chunk's signature does not match")
        }
        Some(Status::FramingError) => {
            s3_error!(InvalidRequest, "the body is not aws-chunked as announced: {error}")
        }
        _ => {
            tracing::error!(%error, "a body was not taken");
            s3_error!(InternalError, "{error}")
        }
    }
}

fn payload(headers: &HeaderMap) -> S3Result<Payload> {
    let Some(value) = headers.get("x-amz-content-sha256") else { return Ok(Payload::Unsigned) };
    let value = value.to_str().unwrap_or_default();
    match value {
        "UNSIGNED-PAYLOAD" => Ok(Payload::Unsigned),
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Ok(Payload::Chunked { signed: false, trailer: true }),
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => Ok(Payload::Chunked { signed: true, trailer: false }),
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => Ok(Payload::Chunked { signed: true, trailer: true }),
        _ => {
            let bytes = super::common::unhex(value).and_then(|bytes| bytes.try_into().ok());
            bytes
                .map(Payload::Whole)
                .ok_or_else(|| s3_error!(InvalidRequest, "x-amz-content-sha256: {value}"))
        }
    }
}

/// Returns the algorithm of the checksum that comes in the trailer.
fn announced(headers: &HeaderMap) -> S3Result<Option<Algorithm>> {
    let Some(value) = headers.get("x-amz-trailer") else { return Ok(None) };
    algorithm(value.to_str().unwrap_or_default()).map(Some)
}

/// Compares the body's digests with the announced ones.
fn check(received: &Received, payload: &Payload, given: &GivenDigests<'_>) -> S3Result<()> {
    if let Some(text) = given.content_md5 {
        let expected = BASE64.decode(text).ok().filter(|md5| md5.len() == 16);
        let expected = expected.ok_or_else(|| s3_error!(InvalidDigest))?;
        if expected != received.md5 {
            return Err(s3_error!(BadDigest, "the data's MD5 differs from Content-MD5"));
        }
    }
    if let Payload::Whole(expected) = payload
        && received.sha256.as_ref() != Some(expected)
    {
        return Err(sha256_mismatch());
    }
    let expected = given.checksum.as_ref().map(|(_, value)| value).or(received.trailer.as_ref());
    if expected.is_some() && expected != received.checksum.as_ref() {
        return Err(s3_error!(BadDigest, "the data's checksum differs from the given one"));
    }
    Ok(())
}
