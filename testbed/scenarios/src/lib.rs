//! Scenarios that every backend has to pass, independent of backends: they run on the kernel backend (`cargo test -p
//! dcs-scenarios`) and on the card in a guest (`crates/card/tests/qemu`).
//!
//! # Architecture
//!
//! A [`World`] has an engine, a folder on a disk that the engine drives, and connections whose peer uses the kernel's TCP.
//! [`all`] lists the scenarios; each panics if the engine misbehaves.
//!
//! # What it doesn't implement
//!
//! * Features of only one backend: pipes, files that grow, the page cache's modes, the kernel's sockets; and listeners, extents
//!   and reach of the card. These have separate tests.
#![forbid(unsafe_code)]

mod scenarios;

use dcs::media::{Sender, Settings};
use dcs::{Engine, Sink, Source};
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

/// Services of a backend's test.
pub trait World {
    /// Returns the engine.
    fn engine(&self) -> &Engine;

    /// Returns a folder whose files the engine can access.
    fn folder(&self) -> &Path;

    /// Makes a connection, and returns the engine's end and its peer.
    fn connect(&self) -> (Box<dyn Flow>, TcpStream);

    /// Prepares a file for the engine to write this many bytes.
    fn prepare(&self, file: &File, length: u64);

    /// Returns true if transfers with operators can be prepared.
    fn prepares_chains(&self) -> bool {
        true
    }

    /// Makes a media stream, and returns its sender and its receiver: a socket of the kernel.
    fn media(&self, settings: Settings) -> (Sender, UdpSocket) {
        let peer = receiver(Ipv4Addr::LOCALHOST);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(peer.local_addr().unwrap()).unwrap();
        (Sender::new(&socket, None, settings).unwrap(), peer)
    }
}

/// The engine's end of a connection.
pub trait Flow {
    /// Returns the source of received bytes.
    fn source(&self) -> Source;

    /// Returns the sink for bytes to send.
    fn sink(&self) -> Sink;
}

/// Makes a socket at this address that receives datagrams.
pub fn receiver(at: Ipv4Addr) -> UdpSocket {
    let socket = UdpSocket::bind((at, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

/// Makes a connection of the kernel from this machine to itself, and returns the engine's end and the other.
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

/// Returns every scenario, with its name.
pub fn all() -> Vec<(&'static str, Scenario)> {
    scenarios::ALL.to_vec()
}
