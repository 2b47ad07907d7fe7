//! Request heads: read off a socket without a byte of the body, and parsed.
//!
//! The body stays in the socket for the engine. A head is peeked at first, and only its own bytes are read.

use http::header::{CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version};
use rustix::net::{RecvFlags, recv};
use std::io;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Longest head, in bytes. S3's own limit is 8 KiB of headers; presigned requests add to it.
pub const HEAD_MAX: usize = 32 << 10;

/// Most header fields.
const FIELDS_MAX: usize = 128;

/// Reason why there is no request.
#[derive(Debug, thiserror::Error)]
pub enum HeadError {
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// The peer closed the connection in the middle of a head.
    #[error("the connection was closed within a request's head")]
    Cut,
    /// The head has more bytes than [`HEAD_MAX`], or more than 128 fields.
    #[error("the request's head is longer than {HEAD_MAX} bytes, or has more than {FIELDS_MAX} fields")]
    TooLong,
    /// The head is not HTTP/1.1 (RFC 9112).
    #[error("not a request: {0}")]
    Malformed(&'static str),
    /// The HTTP version or a coding is not supported.
    #[error("not implemented: {0}")]
    Unsupported(&'static str),
}

impl HeadError {
    /// Returns the status of the answer to the client, if it can get one.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            HeadError::Io(_) | HeadError::Cut => None,
            HeadError::TooLong => Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
            HeadError::Malformed(_) => Some(StatusCode::BAD_REQUEST),
            HeadError::Unsupported(_) => Some(StatusCode::NOT_IMPLEMENTED),
        }
    }
}

/// Length of the body (RFC 9112 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Known length, in bytes.
    Length(u64),
    /// Chunked coding.
    Chunked,
}

impl Framing {
    /// Returns the body's length, if the head gives it.
    pub fn length(self) -> Option<u64> {
        match self {
            Framing::Length(length) => Some(length),
            Framing::Chunked => None,
        }
    }
}

/// A request without its body.
#[derive(Debug)]
pub struct Head {
    /// Method, target and headers.
    pub request: Request<()>,
    /// Framing of the body.
    pub framing: Framing,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// The connection ends after this request.
    pub close: bool,
}

/// The first bytes of a head, which may be all of it.
#[derive(Debug)]
pub struct Begun {
    head: Vec<u8>,
    is_whole: bool,
}

/// Waits for a head's first bytes and reads them. Returns `None` if the peer closed the connection before. If this is
/// given up, nothing has been read.
///
/// # Errors
///
/// [`HeadError::Io`].
pub async fn begin(stream: &TcpStream) -> Result<Option<Begun>, HeadError> {
    let mut head = Vec::new();
    Ok(match more(stream, &mut head).await? {
        Taken::End => None,
        taken => Some(Begun { head, is_whole: matches!(taken, Taken::All) }),
    })
}

/// Reads the rest of a head.
///
/// # Errors
///
/// [`HeadError`]. Nothing more can be read from this connection then.
pub async fn read(stream: &TcpStream, begun: Begun) -> Result<Head, HeadError> {
    let Begun { mut head, is_whole } = begun;
    if is_whole {
        return parse(&head);
    }
    while head.len() < HEAD_MAX {
        match more(stream, &mut head).await? {
            Taken::All => return parse(&head),
            Taken::Some => {}
            Taken::End => return Err(HeadError::Cut),
        }
    }
    Err(HeadError::TooLong)
}

/// Waits for the next bytes of a head and reads them.
async fn more(stream: &TcpStream, head: &mut Vec<u8>) -> io::Result<Taken> {
    loop {
        stream.readable().await?;
        // The runtime may still remember that the socket was readable for the previous request.
        match stream.try_io(Interest::READABLE, || take(stream, head)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            taken => return taken,
        }
    }
}

enum Taken {
    /// The head is whole.
    All,
    Some,
    End,
}

/// Reads the part of a head that has come, and nothing after it.
fn take(stream: &TcpStream, head: &mut Vec<u8>) -> io::Result<Taken> {
    // A peek returns one piece; the rest comes in the next round.
    let mut scratch = [0; 8 << 10];
    let room = scratch.len().min(HEAD_MAX - head.len());
    let (seen, _) = recv(stream, &mut scratch[..room], RecvFlags::PEEK)?;
    if seen == 0 {
        return Ok(Taken::End);
    }
    let before = head.len();
    head.extend_from_slice(&scratch[..seen]);
    let end = end_of_head(head, before);
    let wanted = end.unwrap_or(head.len()) - before;
    let (read, _) = recv(stream, &mut scratch[..wanted], RecvFlags::empty())?;
    if read != wanted {
        return Err(io::Error::other("the socket has fewer bytes than it showed"));
    }
    head.truncate(before + wanted);
    Ok(if end.is_some() { Taken::All } else { Taken::Some })
}

/// Returns the start of the body if the empty line has come. `before`: bytes already searched.
fn end_of_head(head: &[u8], before: usize) -> Option<usize> {
    let from = before.saturating_sub(3);
    head[from..].windows(4).position(|four| four == b"\r\n\r\n").map(|at| from + at + 4)
}

/// Parses a head, its empty line included.
///
/// # Errors
///
/// [`HeadError`] if it is malformed.
pub fn parse(head: &[u8]) -> Result<Head, HeadError> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut fields);
    match parsed.parse(head) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Ok(_) => return Err(HeadError::Malformed("the head ends early")),
        Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooLong),
        Err(_) => return Err(HeadError::Malformed("the head is not that of an HTTP/1 request")),
    }
    let malformed = HeadError::Malformed;
    let method = parsed.method.unwrap_or_default();
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| malformed("its method"))?;
    let target = parsed.path.unwrap_or_default();
    let uri: Uri = target.parse().map_err(|_| malformed("its target"))?;
    let version = if parsed.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    let mut request = Request::new(());
    let headers = fields_of(parsed.headers)?;
    let framing = framing(&headers, version)?;
    let close = closes(&headers, version);
    let expects_continue = match headers.get(EXPECT) {
        None => false,
        Some(value) if value.as_bytes().eq_ignore_ascii_case(b"100-continue") => true,
        Some(_) => return Err(HeadError::Unsupported("an expectation that is not 100-continue")),
    };
    if version == Version::HTTP_11 && headers.get_all(HOST).iter().count() != 1 {
        return Err(malformed("one Host field is required"));
    }
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.version_mut() = version;
    *request.headers_mut() = headers;
    Ok(Head { request, framing, expects_continue, close })
}

fn fields_of(fields: &[httparse::Header<'_>]) -> Result<HeaderMap, HeadError> {
    let mut headers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let name = name.map_err(|_| HeadError::Malformed("a field's name"))?;
        let value = HeaderValue::from_bytes(field.value);
        headers.append(name, value.map_err(|_| HeadError::Malformed("a field's value"))?);
    }
    Ok(headers)
}

/// Reads the framing of the body. Refuses headers that two readers could take for different lengths, since that allows
/// request smuggling (RFC 9112 section 11.2).
fn framing(headers: &HeaderMap, version: Version) -> Result<Framing, HeadError> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let length = lengths.next();
    if lengths.next().is_some() {
        return Err(HeadError::Malformed("two Content-Length fields"));
    }
    if let Some(coding) = headers.get(TRANSFER_ENCODING) {
        return match (length, version) {
            (Some(_), _) => Err(HeadError::Malformed("both Content-Length and Transfer-Encoding")),
            (_, Version::HTTP_10) => Err(HeadError::Malformed("Transfer-Encoding in HTTP/1.0")),
            _ if coding.as_bytes().eq_ignore_ascii_case(b"chunked")
                && headers.get_all(TRANSFER_ENCODING).iter().count() == 1 =>
            {
                Ok(Framing::Chunked)
            }
            _ => Err(HeadError::Unsupported("a transfer coding that is not chunked")),
        };
    }
    let Some(length) = length else { return Ok(Framing::Length(0)) };
    let digits = length.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let length = digits.and_then(|text| text.parse().ok());
    length.map(Framing::Length).ok_or(HeadError::Malformed("its Content-Length"))
}

fn closes(headers: &HeaderMap, version: Version) -> bool {
    let has = |word: &str| {
        let values = headers.get_all(http::header::CONNECTION);
        let mut words =
            values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
        words.any(|found| found.trim().eq_ignore_ascii_case(word))
    };
    has("close") || version == Version::HTTP_10 && !has("keep-alive")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    async fn read(stream: &TcpStream) -> Result<Option<Head>, HeadError> {
        match begin(stream).await? {
            Some(begun) => super::read(stream, begun).await.map(Some),
            None => Ok(None),
        }
    }

    fn head(text: &str) -> Result<Head, HeadError> {
        parse(text.replace('\n', "\r\n").as_bytes())
    }

    #[test]
    fn a_head_says_how_its_body_is_framed() {
        let with =
            |fields: &str| head(&format!("PUT /b/k HTTP/1.1\nHost: h\n{fields}\n")).map(|head| head.framing);
        assert_eq!(with("").unwrap(), Framing::Length(0));
        assert_eq!(with("Content-Length: 7\n").unwrap(), Framing::Length(7));
        assert_eq!(with("Transfer-Encoding: chunked\n").unwrap(), Framing::Chunked);
        for bad in [
            "Content-Length: -7\n",
            "Content-Length: +7\n",
            "Content-Length: 7\nContent-Length: 7\n",
            "Content-Length: 7\nTransfer-Encoding: chunked\n",
            "Transfer-Encoding: gzip, chunked\n",
            "Transfer-Encoding: chunked\nTransfer-Encoding: chunked\n",
            "Content-Length: 99999999999999999999\n",
        ] {
            assert!(with(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_head_says_whether_the_connection_goes_on() {
        assert!(!head("GET / HTTP/1.1\nHost: h\n\n").unwrap().close);
        assert!(head("GET / HTTP/1.1\nHost: h\nConnection: Close\n\n").unwrap().close);
        assert!(head("GET / HTTP/1.0\n\n").unwrap().close);
        assert!(!head("GET / HTTP/1.0\nConnection: keep-alive\n\n").unwrap().close);
        assert!(head("GET / HTTP/1.1\n\n").is_err(), "without a Host");
    }

    #[tokio::test]
    async fn the_body_stays_in_the_socket() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let sender = tokio::spawn(async move {
            for piece in ["PUT /b/k HT", "TP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r", "\nbody"] {
                client.write_all(piece.as_bytes()).await.unwrap();
                client.flush().await.unwrap();
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        });
        let head = read(&server).await.unwrap().unwrap();
        assert_eq!((head.request.uri().path(), head.framing), ("/b/k", Framing::Length(4)));
        sender.await.unwrap();
        let mut body = [0; 9];
        assert_eq!(server.try_read(&mut body).unwrap(), 4);
        assert_eq!(&body[..4], b"body");
        assert!(read(&server).await.unwrap().is_none(), "the peer is gone");
    }

    #[tokio::test]
    async fn a_head_without_end_is_refused() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        client.write_all(&vec![b'a'; HEAD_MAX + 1]).await.unwrap();
        assert!(matches!(read(&server).await, Err(HeadError::TooLong)));
    }
}
