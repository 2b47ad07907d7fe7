//! Objects over TLS.

use crate::rig::{Rig, Setting};
use dcs_server::access::Anonymous;
use dcs_server::tls::{Tls, TlsError};
use dcs_testkit::bytes as data;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

type Made = rcgen::CertifiedKey<rcgen::KeyPair>;

fn made(folder: &std::path::Path) -> (Made, Tls) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).unwrap();
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    assert!(matches!(Tls::read(&certificate, &key), Err(TlsError::Open(_))), "others may read it");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let tls = Tls::read(&certificate, &key).unwrap();
    (made, tls)
}

fn connect(rig: &Rig, certificate: &Made) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.cert.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TcpStream::connect(rig.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}

/// Reads an answer. Returns its head and its body.
fn answer(stream: &mut impl Read) -> (String, Vec<u8>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).unwrap();
    (head, body)
}

#[test]
fn an_object_goes_in_and_comes_out() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, tls) = made(folder.path());
    let rig = Rig::with(Setting { tls: Some(tls), ..Setting::default() });
    let mut stream = connect(&rig, &certificate);
    assert!(answer_to(&mut stream, "PUT /bucket", b"").0.starts_with("HTTP/1.1 200"));
    // Larger than the buffer between TLS and the connection.
    let body = data(5 << 20, 8);
    for _ in 0..2 {
        let (head, _) = answer_to(&mut stream, "PUT /bucket/key", &body);
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let (head, got) = answer_to(&mut stream, "GET /bucket/key", b"");
        assert!(head.starts_with("HTTP/1.1 200") && got == body, "{head}");
    }
    assert!(
        rig.store.object("bucket", "key").unwrap().is_some_and(|object| object.size == body.len() as u64)
    );
    assert_eq!(stream.conn.alpn_protocol(), None);
    // A connection that ends sends its whole answer, and a proper end.
    let request = "GET /bucket/key HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let (_, got) = answer(&mut stream);
    assert!(got == body);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "close_notify, not a cut");
}

fn answer_to(
    stream: &mut StreamOwned<ClientConnection, TcpStream>,
    what: &str,
    body: &[u8],
) -> (String, Vec<u8>) {
    let length = body.len();
    let head = format!("{what} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    answer(stream)
}

#[test]
fn who_does_not_speak_tls_is_let_go() {
    let folder = tempfile::tempdir().unwrap();
    let (_, tls) = made(folder.path());
    let rig = Rig::with(Setting { tls: Some(tls), ..Setting::default() });
    let mut plain = rig.client();
    plain.stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut got = Vec::new();
    let _ = plain.stream.read_to_end(&mut got);
    assert!(!got.starts_with(b"HTTP"), "{got:?}");
    // The rig gives heads two seconds, and so handshakes too.
    let begun = Instant::now();
    assert!(rig.client().ended());
    assert!(begun.elapsed() < Duration::from_secs(15));
}

#[test]
fn who_may_nothing_and_takes_no_answer_over_tls_keeps_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, tls) = made(folder.path());
    // Longer than an honest client waits here.
    let long = Duration::from_secs(60);
    let anonymous = Anonymous::Nothing;
    let setting = Setting { connections: 1, head_timeout: long, idle: long, anonymous, ..Setting::default() };
    let rig = Rig::with(Setting { tls: Some(tls), ..setting });
    let mut stranger = connect(&rig, &certificate);
    stranger.sock.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let refused = b"GET /bucket/key HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100);
    let mut sent = 0;
    // Until the server takes no more of them, because it waits for its answers to be taken.
    while let Ok(some) = stranger.write(&refused) {
        sent += some;
    }
    assert!(sent > 0);
    let mut honest = connect(&rig, &certificate);
    let (head, _) = answer_to(&mut honest, "GET /bucket/key", b"");
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
}

/// Bytes that the kernel buffers for a peer that takes nothing.
fn kept_by_the_kernel() -> usize {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let _peer = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let (mut kept, mut refused) = (0, 0);
    while refused < 20 {
        match stream.write(&[0; 16 << 10]) {
            Ok(some) => (kept, refused) = (kept + some, 0),
            Err(_) => {
                refused += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
    kept
}

/// A last answer that neither goes out nor holds the engine: the rest of it waits between server and TLS.
#[test]
fn who_does_not_take_a_last_answer_over_tls_keeps_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, tls) = made(folder.path());
    // Longer than an honest client waits here; a sixth of it is not.
    let long = Duration::from_secs(60);
    let setting =
        Setting { connections: 2, head_timeout: long, patience: long, idle: long, ..Setting::default() };
    let rig = Rig::with(Setting { tls: Some(tls), ..setting });
    let body = data(kept_by_the_kernel() + (200 << 10), 7);
    let mut client = connect(&rig, &certificate);
    assert!(answer_to(&mut client, "PUT /bucket", b"").0.starts_with("HTTP/1.1 200"));
    assert!(answer_to(&mut client, "PUT /bucket/key", &body).0.starts_with("HTTP/1.1 200"));
    drop(client);
    let silent = || {
        let mut stream = connect(&rig, &certificate);
        stream
            .write_all(b"GET /bucket/key HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream
    };
    let _silent = [silent(), silent()];
    // Until then the connection behind it lingers, and gives way sooner.
    std::thread::sleep(Duration::from_secs(4));
    let mut honest = connect(&rig, &certificate);
    assert!(answer_to(&mut honest, "HEAD /bucket", b"").0.starts_with("HTTP/1.1 200"));
}

#[test]
fn files_that_are_no_certificate_and_key_are_said_to_be_that() {
    let folder = tempfile::tempdir().unwrap();
    let (_, _) = made(folder.path());
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    assert!(matches!(Tls::read(&empty, &key), Err(TlsError::Empty(_))));
    assert!(matches!(Tls::read(&certificate, &certificate), Err(TlsError::Pem { .. })));
    assert!(matches!(Tls::read(&folder.path().join("none"), &key), Err(TlsError::Pem { .. })));
    let other = tempfile::tempdir().unwrap();
    made(other.path());
    let unfit = Tls::read(&certificate, &other.path().join("key.pem"));
    assert!(matches!(unfit, Err(TlsError::Unfit(_))), "{unfit:?}");
}
