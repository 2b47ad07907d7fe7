//! CPU time of send(2) for a datagram to this machine itself, by how many go in a call (UDP_SEGMENT): the floor below
//! which no program that sends videos gets, the receiving side of loopback included. Nobody reads what comes.
//!
//!     cargo run --release -p dcs-bench --example datagrams -- 120

use nix::sys::socket::{MsgFlags, send, setsockopt, sockopt};
use nix::time::{ClockId, clock_gettime};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Bytes of a datagram: seven packets of a transport stream.
const SIZE: usize = 1316;
/// Datagrams' bytes that each socket has of its own.
const OWN: usize = 128;
/// Datagrams of a measurement.
const SENT: usize = 40_000;
const ROUNDS: usize = 7;

/// Microseconds a datagram: the least of some rounds. `cold`: each socket sends bytes of its own, from one place after
/// the other; else all send the same ones again.
fn measure(sockets: &[UdpSocket], bytes: &[u8], count: usize, cold: bool) -> nix::Result<f64> {
    let now = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let (start, mut calls, mut turn) = (now()?, 0, 0);
        while calls * count < SENT {
            let within = turn * count % (OWN / 2);
            for (number, socket) in sockets.iter().enumerate() {
                let first = if cold { number * OWN + within } else { 0 };
                let payload = &bytes[first * SIZE..][..count * SIZE];
                send(socket.as_raw_fd(), payload, MsgFlags::MSG_DONTWAIT)?;
                calls += 1;
            }
            turn += 1;
        }
        least = least.min((now()? - start).as_secs_f64() * 1e6 / (calls * count) as f64);
    }
    Ok(least)
}

fn main() -> std::io::Result<()> {
    let wanted = std::env::args().nth(1).map_or(Ok(120), |text| text.parse());
    let wanted: usize = wanted.map_err(|_| std::io::Error::other("expected a number of sockets"))?;
    let listener = UdpSocket::bind("127.0.0.1:0")?;
    let open = |_| {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(listener.local_addr()?)?;
        setsockopt(&socket, sockopt::UdpGsoSegment, &(SIZE as i32))?;
        Ok(socket)
    };
    let sockets: Vec<UdpSocket> = (0..wanted.clamp(1, 1000)).map(open).collect::<std::io::Result<_>>()?;
    let bytes = vec![7; sockets.len() * OWN * SIZE];
    println!("{} sockets; us of CPU a datagram of {SIZE} bytes", sockets.len());
    println!("{:>20} {:>12} {:>12}", "datagrams a call", "same bytes", "other bytes");
    for count in [1, 2, 3, 4, 7, 16, 32] {
        let [hot, cold] = [false, true].map(|cold| measure(&sockets, &bytes, count, cold));
        println!("{count:>20} {:>12.2} {:>12.2}", hot?, cold?);
    }
    Ok(())
}
