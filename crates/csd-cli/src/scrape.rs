//! Metrics over HTTP, as Prometheus reads them: `GET /metrics`, one connection at a time.

use crate::process::Process;
use dcs_csd_cli::metrics::metrics;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most bytes of a request.
const HEAD_MAX: usize = 8 << 10;
/// Time for a request to come, and for its answer to go, so that no client holds up the next one for longer
/// than both.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Listens at this address and answers on a thread of its own while the process lives. Returns the address,
/// with the port that was chosen if none was given.
pub fn listen(address: SocketAddr, process: Arc<Process>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let bound = listener.local_addr()?;
    std::thread::Builder::new().name("dcs-csd-metrics".into()).spawn(move || {
        for stream in listener.incoming() {
            match stream {
                // A peer that breaks off is no error.
                Ok(stream) => _ = serve(&stream, || metrics(&process.state(), &process.slots())),
                // For example out of descriptors: that may pass.
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    })?;
    Ok(bound)
}

fn serve(mut stream: &TcpStream, metrics: impl FnOnce() -> prometheus::Result<String>) -> io::Result<()> {
    let end = Instant::now() + REQUEST_TIMEOUT;
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    while !request.windows(4).any(|four| four == b"\r\n\r\n") && request.len() < HEAD_MAX {
        stream.set_read_timeout(Some(left(end)?))?;
        match stream.read(&mut piece)? {
            0 => return Ok(()),
            count => request.extend_from_slice(&piece[..count]),
        }
    }
    let (answer, end) = (answer(&request, metrics), Instant::now() + REQUEST_TIMEOUT);
    let mut rest = &answer[..];
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(end)?))?;
        let count = stream.write(rest)?;
        rest = &rest[count..];
    }
    Ok(())
}

/// Returns the time that is left; fails if none is.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Returns the answer to a request's first line; the header fields do not matter.
fn answer(request: &[u8], metrics: impl FnOnce() -> prometheus::Result<String>) -> Vec<u8> {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let (status, more, body) = match words[..] {
        [method, path, version] if version.starts_with(b"HTTP/1.") => {
            let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
            match (method, path, metrics) {
                (b"GET" | b"HEAD", b"/metrics", metrics) => match metrics() {
                    Ok(text) => ("200 OK", "", text),
                    Err(error) => ("500 Internal Server Error", "", format!("{error}\n")),
                },
                (_, b"/metrics", _) => ("405 Method Not Allowed", "Allow: GET, HEAD\r\n", String::new()),
                _ => ("404 Not Found", "", "metrics are at /metrics\n".to_owned()),
            }
        }
        _ => ("400 Bad Request", "", String::new()),
    };
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n{more}Connection: close\r\n\r\n",
        body.len()
    );
    if !line.starts_with(b"HEAD ") {
        answer.push_str(&body);
    }
    answer.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer_to(request: &[u8]) -> String {
        String::from_utf8(answer(request, || Ok("a 1\n".to_owned()))).unwrap()
    }

    #[test]
    fn metrics_are_told_and_nothing_else() {
        let good = answer_to(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(good.starts_with("HTTP/1.1 200 OK\r\n") && good.ends_with("\r\n\r\na 1\n"), "{good}");
        assert!(good.contains("\r\nContent-Length: 4\r\n"), "{good}");
        assert!(answer_to(b"GET /metrics?a=b HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200"));
        let head = answer_to(b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.contains("\r\nContent-Length: 4\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
            (b"GET /metrics/../x HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"GET  /metrics HTTP/1.1\r\n\r\n", "400"),
            (b"GET /metrics HTTP/2\r\n\r\n", "400"),
            (b"\r\n\r\n", "400"),
            (b"", "400"),
            (&[0xff; 9000], "400"),
        ] {
            let answer = answer_to(request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
        }
    }
}
