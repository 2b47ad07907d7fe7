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

/// Returns the NIC for the card.
pub fn nic() -> Nic {
    let function =
        dcs_vfio::functions(Some(0x8086), None, Some(0x02_0000)).last().expect("there is one").clone();
    Nic { function, address: CARD, prefix: 24, gateway: None }
}

/// The listener of the card.
pub struct Wire {
    listener: Listener,
    /// Lock for making connections one at a time, so that the accepted one is the peer.
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
            // Before the NIC has its link, ARP gets no answer.
            match TcpStream::connect_timeout(&(CARD, PORT).into(), LIMIT) {
                Ok(peer) => break peer,
                Err(error) => assert!(Instant::now() < end, "the card is not reached: {error}"),
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        // So small that a peer's pause has an effect.
        rustix::net::sockopt::set_socket_recv_buffer_size(&peer, 64 << 10).unwrap();
        peer.set_read_timeout(Some(LIMIT)).unwrap();
        peer.set_write_timeout(Some(LIMIT)).unwrap();
        Line { card: self.listener.accept().unwrap(), peer }
    }
}

/// Receives from a peer, at most this many bytes, until its connection ends, with a pause in the middle.
pub fn take(peer: &TcpStream, length: u64, pause: Duration) -> Vec<u8> {
    let mut got = Vec::new();
    // A reset says less than the bytes before it.
    let _ = peer.take(length / 2).read_to_end(&mut got);
    std::thread::sleep(pause);
    let _ = peer.take(length - length / 2).read_to_end(&mut got);
    got
}

/// Sends all of this, with a pause in the middle; fails if the connection ends.
pub fn give(mut peer: &TcpStream, bytes: &[u8], pause: Duration) -> io::Result<()> {
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    peer.write_all(first)?;
    std::thread::sleep(pause);
    peer.write_all(rest)
}
