//! HTTP/1.1 for a client: parsing heads of answers, and a blocking connection.

use crate::harness::connections::dial;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Most headers of an answer; S3 servers send fewer.
const HEADERS: usize = 64;
/// Most bytes of a head.
pub const HEAD_MAX: usize = 16 << 10;
/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// Most bytes of an answer without a length.
const UNMEASURED: u64 = 64 << 10;

/// Head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    /// Bytes of the head itself.
    pub size: usize,
    /// Bytes of the body, if given.
    pub length: Option<u64>,
    /// ETag without quotes.
    pub etag: Option<String>,
    /// True if the connection ends with this answer.
    pub closes: bool,
}

/// Parses a head; `None` if it is incomplete.
pub fn parse(bytes: &[u8]) -> io::Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut answer = httparse::Response::new(&mut headers);
    let size = match answer.parse(bytes).map_err(|error| malformed(&error.to_string()))? {
        httparse::Status::Complete(size) => size,
        httparse::Status::Partial if bytes.len() < HEAD_MAX => return Ok(None),
        httparse::Status::Partial => return Err(malformed("it is too long")),
    };
    let status = answer.code.unwrap_or_default();
    let mut head = Head { status, size, length: None, etag: None, closes: answer.version == Some(0) };
    for header in answer.headers {
        let value = String::from_utf8_lossy(header.value);
        match header.name.to_ascii_lowercase().as_str() {
            "content-length" => {
                let length = value.trim().parse().map_err(|_| malformed("Content-Length is not a number"))?;
                head.length = Some(length);
            }
            "etag" => head.etag = Some(value.trim_start_matches("W/").trim_matches('"').to_string()),
            "connection" => head.closes |= value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    if head.length.is_none() && matches!(head.status, 204 | 304) {
        head.length = Some(0);
    }
    Ok(Some(head))
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the head of an answer: {what}"))
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub head: Head,
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns the explanation of an error answer: S3 servers explain errors in XML.
    pub fn refusal(&self) -> String {
        let said = String::from_utf8_lossy(&self.body);
        let said: String = said.chars().filter(|one| !one.is_control()).take(300).collect();
        format!("status {}: {said}", self.head.status)
    }
}

/// A connection that sends a request and blocks for the answer.
pub struct Peer {
    address: String,
    socket: Option<TcpStream>,
}

impl Peer {
    pub fn new(address: &str) -> Peer {
        Peer { address: address.to_string(), socket: None }
    }

    pub fn ask(&mut self, head: &str, body: &[u8]) -> io::Result<Answer> {
        let mut socket = match self.socket.take() {
            Some(socket) => socket,
            None => dial(&self.address)?,
        };
        // A small body would wait 40 ms for the acknowledgement of the head.
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(head.as_bytes())?;
        socket.write_all(body)?;
        let answer = read(&mut socket)?;
        if !answer.head.closes && answer.head.length.is_some() {
            self.socket = Some(socket);
        }
        Ok(answer)
    }
}

fn read(socket: &mut TcpStream) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    let head = loop {
        let length = socket.read(&mut buffer)?;
        if length == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
        }
        bytes.extend_from_slice(&buffer[..length]);
        match parse(&bytes)? {
            // An interim answer precedes the final one.
            Some(head) if head.status < 200 => drop(bytes.drain(..head.size)),
            Some(head) => break head,
            None => {}
        }
    };
    let mut body = bytes.split_off(head.size);
    let rest = head.length.map_or(UNMEASURED, |length| length.saturating_sub(body.len() as u64));
    socket.take(rest).read_to_end(&mut body)?;
    match head.length {
        Some(length) if length != body.len() as u64 => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("{} bytes of {length} arrived", body.len()),
        )),
        _ => Ok(Answer { head, body }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_whole_or_not_at_all() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"abc\"\r\n\r\nhello";
        for cut in 0..text.len() - 5 {
            assert_eq!(parse(&text[..cut]).unwrap(), None);
        }
        let head = parse(text).unwrap().unwrap();
        assert_eq!((head.status, head.size, head.length), (200, text.len() - 5, Some(5)));
        assert_eq!((head.etag.as_deref(), head.closes), (Some("abc"), false));
        let closes = b"HTTP/1.1 204 No Content\r\nconnection: CLOSE\r\n\r\n";
        let head = parse(closes).unwrap().unwrap();
        assert_eq!((head.length, head.closes), (Some(0), true));
    }

    #[test]
    fn what_is_no_head_is_an_error() {
        assert!(parse(b"SSH-2.0-OpenSSH_9.2\r\n").is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n").is_err());
        let endless = [b"HTTP/1.1 200 OK\r\nx: ".to_vec(), vec![b'y'; HEAD_MAX]].concat();
        assert!(parse(&endless).is_err());
    }
}
