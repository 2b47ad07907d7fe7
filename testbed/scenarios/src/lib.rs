//! Scenarios that every backend has to pass, and that know no backend: the same ones run on the kernel
//! backend (`cargo test -p dcs-scenarios`) and on the card in a guest (`crates/card/tests/qemu`).
//!
//! # Architecture
//!
//! A [`World`] has an engine, a folder on a disk that the engine drives, and connections with a peer that the
//! kernel's TCP runs.
//! [`all`] lists the scenarios; each panics where the engine does something else than it should.
//!
//! # What it doesn't implement
//!
//! * What only one backend has: pipes, files that grow, the page cache's modes, sockets of the kernel; and listeners, extents,
//!   reach of the card. These have tests of their own.
#![forbid(unsafe_code)]

mod scenarios;

use dcs::{Engine, Sink, Source};
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

/// The services of a backend's test.
pub trait World {
    /// The engine.
    fn engine(&self) -> &Engine;

    /// A folder whose files the engine can have.
    fn folder(&self) -> &Path;

    /// A new connection: the engine's end, and its peer.
    fn connect(&self) -> (Box<dyn Flow>, TcpStream);

    /// Makes a file ready to be written by the engine: this many bytes.
    fn prepare(&self, file: &File, length: u64);

    /// Media streams in datagrams go out by sockets of the kernel.
    fn paces(&self) -> bool {
        true
    }
}

/// The engine's end of a connection.
pub trait Flow {
    /// The bytes that it receives.
    fn source(&self) -> Source;

    /// The bytes that it sends.
    fn sink(&self) -> Sink;
}

/// A connection of the kernel's, of this machine with itself: the engine's end, and the other.
pub fn loopback(timeout: Duration) -> (Box<dyn Flow>, TcpStream) {
    struct Socket(TcpStream);

    impl Flow for Socket {
        fn source(&self) -> Source {
            Source::socket(&self.0)
        }
        fn sink(&self) -> Sink {
            Sink::socket(&self.0)
        }
    }

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.set_read_timeout(Some(timeout)).unwrap();
    (Box::new(Socket(listener.accept().unwrap().0)), peer)
}

/// A scenario.
pub type Scenario = fn(&dyn World);

/// Every scenario, with its name.
pub fn all() -> Vec<(&'static str, Scenario)> {
    scenarios::ALL.to_vec()
}
