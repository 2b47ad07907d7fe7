//! The part of HTTP/1.1 that an honest client needs.

use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub struct Connection {
    stream: TcpStream,
    /// Complete answers that came over this connection.
    answers: usize,
    /// True if part of an answer has come.
    begun: bool,
}

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    /// True if the server ends the connection.
    pub closes: bool,
}

impl Connection {
    pub async fn new(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, answers: 0, begun: false })
    }

    /// Returns true if the connection may have ended while it waited for a request: it was used before, and nothing of
    /// an answer came. Every HTTP client then repeats the request on a new connection (RFC 9112 section 9.3.1).
    pub fn was_idle(&self) -> bool {
        self.answers > 0 && !self.begun
    }

    pub async fn ask(&mut self, method: &str, target: &str, fields: &str, body: &[u8]) -> io::Result<Answer> {
        let length = body.len();
        let head =
            format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{fields}Content-Length: {length}\r\n\r\n");
        self.stream.write_all(head.as_bytes()).await?;
        self.stream.write_all(body).await?;
        let (head, mut body) = self.head().await?;
        let status = head.get(9..12).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no answer: {head:?}")))?;
        let value = |name: &str| Some(head.split_once(name)?.1.split_once("\r\n")?.0.trim().to_string());
        let length = value("\r\ncontent-length:").and_then(|length| length.parse().ok()).unwrap_or(0);
        let length = if method == "HEAD" || status == 204 { 0 } else { length };
        let there = body.len();
        if there > length {
            return Err(io::Error::other("more than an answer came"));
        }
        body.resize(length, 0);
        self.stream.read_exact(&mut body[there..]).await?;
        (self.answers, self.begun) = (self.answers + 1, false);
        let closes = value("\r\nconnection:").is_some_and(|value| value == "close");
        Ok(Answer { status, head, body, closes })
    }

    /// Reads a head, in lower case, and what came after it.
    async fn head(&mut self) -> io::Result<(String, Vec<u8>)> {
        let mut bytes = Vec::new();
        loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                let body = bytes.split_off(end + 4);
                return Ok((String::from_utf8_lossy(&bytes).to_ascii_lowercase(), body));
            }
            if self.stream.read_buf(&mut bytes).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.begun = true;
        }
    }
}
