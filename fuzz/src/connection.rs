//! Target for a connection to the object server: everything that a client may send on one, to a whole server.

#[path = "../../crates/server/tests/http/rig.rs"]
#[allow(dead_code, reason = "the server's tests need more of it")]
mod rig;

use rig::Rig;
use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Placeholder for the name of an upload in progress, which the server chooses.
const UPLOAD: &[u8] = b"{upload}";

/// Inputs for which a server is used: each finds what the one before left.
const INPUTS: usize = 64;

/// Panics of all threads; the runtime catches those of its tasks.
static PANICS: AtomicUsize = AtomicUsize::new(0);
static COUNT_PANICS: Once = Once::new();

/// Sends unsigned requests of a client. Checks that each gets an answer or none, the connection ends when the client ends it,
/// nothing panics, and the server stays healthy.
pub fn connection(data: &[u8]) {
    COUNT_PANICS.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |what| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            before(what);
        }));
    });
    let panics = PANICS.load(Ordering::Relaxed);
    SERVER.with_borrow_mut(|server| {
        server.take_if(|server| server.inputs == INPUTS);
        server.get_or_insert_with(Server::new).take(data);
    });
    assert_eq!(PANICS.load(Ordering::Relaxed), panics, "the server panicked");
}

thread_local! {
    static SERVER: RefCell<Option<Server>> = const { RefCell::new(None) };
}

struct Server {
    rig: Rig,
    upload: String,
    inputs: usize,
}

impl Server {
    fn new() -> Server {
        let rig = Rig::new();
        let mut client = rig.client();
        assert_eq!(client.ask("PUT", "/bucket/key", &[], b"0123456789").status, 200);
        let begun = client.ask("POST", "/bucket/parts?uploads", &[], b"").text();
        let (_, id) = begun.split_once("<UploadId>").expect("it is begun");
        let upload = id[..id.find('<').expect("it is XML")].to_string();
        Server { rig, upload, inputs: 0 }
    }

    fn take(&mut self, data: &[u8]) {
        self.inputs += 1;
        let mut stream = self.rig.client().stream;
        let mut sending = stream.try_clone().unwrap();
        let data = self.named(data);
        let thread = std::thread::spawn(move || {
            // The server may close before it has read everything.
            let _ = sending.write_all(&data);
            let _ = sending.shutdown(Shutdown::Write);
        });
        let mut answer = Vec::new();
        if let Err(error) = stream.read_to_end(&mut answer) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the connection does not end");
        }
        thread.join().unwrap();
        let shown = String::from_utf8_lossy(&answer[..answer.len().min(200)]);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 "), "{shown}");
        assert_eq!(self.rig.client().ask("GET", "/_dcs/health", &[], b"").status, 200);
    }

    /// Returns the input with the upload's name inserted.
    fn named(&self, data: &[u8]) -> Vec<u8> {
        match data.windows(UPLOAD.len()).position(|bytes| bytes == UPLOAD) {
            Some(at) => [&data[..at], self.upload.as_bytes(), &data[at + UPLOAD.len()..]].concat(),
            None => data.to_vec(),
        }
    }
}
