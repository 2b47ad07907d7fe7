//! Heads of answers.

use http::StatusCode;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, SERVER, TRANSFER_ENCODING};
use http::response::Parts;
use std::time::SystemTime;

/// Status that replaces the one that s3s gives an answer, in the answer's extensions: for HEAD of a part.
#[derive(Clone, Copy, Debug)]
pub struct Status(pub StatusCode);

/// Returns an answer's head: status line, fields, and the empty line. Its body has `length` bytes; `None` if the fields
/// say how long a body would be, or the status allows none (RFC 9110 sections 6.4.1 and 8.6).
pub fn head(parts: &Parts, length: Option<u64>, close: bool) -> Vec<u8> {
    let mut head = Vec::with_capacity(512);
    let reason = parts.status.canonical_reason().unwrap_or("");
    head.extend_from_slice(format!("HTTP/1.1 {} {reason}\r\n", parts.status.as_str()).as_bytes());
    for (name, value) in &parts.headers {
        // The connection sets these.
        let ours = [CONNECTION, TRANSFER_ENCODING, DATE, SERVER];
        if ours.contains(name) || (*name == CONTENT_LENGTH && length.is_some()) {
            continue;
        }
        field(&mut head, name.as_str(), value.as_bytes());
    }
    field(&mut head, "date", httpdate::fmt_http_date(SystemTime::now()).as_bytes());
    field(&mut head, "server", b"dcs");
    if let Some(length) = length {
        field(&mut head, "content-length", length.to_string().as_bytes());
    }
    if close {
        field(&mut head, "connection", b"close");
    }
    head.extend_from_slice(b"\r\n");
    head
}

fn field(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_one_length() {
        let (parts, ()) = http::Response::builder()
            .status(200)
            .header("content-length", "5")
            .body(())
            .unwrap()
            .into_parts();
        let text = String::from_utf8(head(&parts, Some(7), true)).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\n"));
        assert!(text.contains("content-length: 7\r\n") && !text.contains("content-length: 5"));
        assert!(text.contains("connection: close\r\n"));
        assert!(String::from_utf8(head(&parts, None, false)).unwrap().contains("content-length: 5\r\n"));
    }
}
