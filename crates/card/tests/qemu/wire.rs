//! Connections between the card's NIC and this guest's own TCP, at the two ends of one cable.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use dcs::Engine;
use dcs::card::Nic;
use dcs::net::{Connection, Listener};

use crate::rig::LIMIT;

const CARD: Ipv4Addr = Ipv4Addr::new(10, 0, 3, 1);
const PORT: u16 = 80;

/// The NIC that the card is to have.
pub fn nic() -> Nic {
    let function =
        dcs_vfio::functions(Some(0x8086), None, Some(0x02_0000)).last().expect("there is one").clone();
    Nic { function, address: CARD, prefix: 24, gateway: None }
}

/// Where the card is called.
pub struct Wire {
    listener: Listener,
    /// Connections are made one at a time: the peer is the one that is accepted.
    one: Mutex<()>,
}

/// A connection, and its peer.
pub struct Line {
    pub card: Connection,
    pub peer: TcpStream,
}

impl Wire {
    pub fn new(engine: &Engine) -> Wire {
        Wire { listener: engine.listen(PORT).unwrap(), one: Mutex::new(()) }
    }

    pub fn connect(&self) -> Line {
        let _one = self.one.lock().unwrap();
        let end = Instant::now() + LIMIT;
        let peer = loop {
            // Before the NIC has its link nobody answers ARP.
            match TcpStream::connect_timeout(&(CARD, PORT).into(), LIMIT) {
                Ok(peer) => break peer,
                Err(error) => assert!(Instant::now() < end, "the card is not reached: {error}"),
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        // So little that a peer which pauses is felt.
        rustix::net::sockopt::set_socket_recv_buffer_size(&peer, 64 << 10).unwrap();
        peer.set_read_timeout(Some(LIMIT)).unwrap();
        peer.set_write_timeout(Some(LIMIT)).unwrap();
        Line { card: self.listener.accept().unwrap(), peer }
    }
}

/// Receives from a peer, up to this many bytes, until its connection ends, with a pause in the middle.
pub fn take(peer: &TcpStream, length: u64, pause: Duration) -> Vec<u8> {
    let mut got = Vec::new();
    // A reset says less than what came before it.
    let _ = peer.take(length / 2).read_to_end(&mut got);
    std::thread::sleep(pause);
    let _ = peer.take(length - length / 2).read_to_end(&mut got);
    got
}

/// Sends all of this, or fails where the connection ends. It pauses amid it where it is said.
pub fn give(mut peer: &TcpStream, bytes: &[u8], pause: Duration) -> io::Result<()> {
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    peer.write_all(first)?;
    std::thread::sleep(pause);
    peer.write_all(rest)
}
