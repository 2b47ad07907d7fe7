//! CPU time of a datagram to this machine itself, the receiving side of loopback included: the floor below which no program that sends
//! videos gets. Nobody reads what comes. First send(2) without a pause, by how many datagrams go in a call (UDP_SEGMENT); then videos of
//! 7.82 Mb/s by ticks of a millisecond, each datagram by a call of its own, and all of a tick in one call (sendmmsg(2) by one socket).
//!
//!     cargo run --release -p dcs-bench --example datagrams -- 120

use nix::sys::socket::{MsgFlags, send, setsockopt, sockopt};
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use rustix::net::addr::SocketAddrArg;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg};
use std::io::IoSlice;
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
/// Ticks of a round of videos, a millisecond each.
const TICKS: u32 = 2_000;
/// Microseconds between two datagrams of a video of 7.82 Mb/s.
const INTERVAL: usize = 1_346;

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

/// Sends datagrams from one socket in one call.
fn send_together(socket: &UdpSocket, to: &SocketAddrAny, payloads: &[&[u8]]) -> nix::Result<usize> {
    let slices: Vec<_> = payloads.iter().map(|payload| [IoSlice::new(payload)]).collect();
    let mut nothing: Vec<_> = payloads.iter().map(|_| SendAncillaryBuffer::new(&mut [])).collect();
    let message = |(slice, nothing)| MMsgHdr::new_with_addr(to, slice, nothing);
    let mut messages: Vec<_> = slices.iter().map(|slice| &slice[..]).zip(&mut nothing).map(message).collect();
    sendmmsg(socket, &mut messages, SendFlags::DONTWAIT)
        .map_err(|error| nix::errno::Errno::from_raw(error.raw_os_error()))
}

/// Microseconds a datagram of videos that begin one after the other: the least of some rounds. `together`: all of a tick go in one call, by
/// that socket.
fn videos(
    sockets: &[UdpSocket],
    together: Option<(&UdpSocket, &SocketAddrAny)>,
    bytes: &[u8],
) -> nix::Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..3 {
        let (mut tick, mut sent) = (clock_gettime(ClockId::CLOCK_MONOTONIC)?, 0);
        let cpu = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
        let start = cpu()?;
        for now in 1..=TICKS as usize {
            tick = tick + Duration::from_millis(1).into();
            clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &tick)?;
            // The number of a video's datagrams that are due by the end of a tick.
            let due =
                |video: usize, tick: usize| (tick * 1_000 + video * INTERVAL / sockets.len()) / INTERVAL;
            let videos = (0..sockets.len()).filter(|video| due(*video, now) > due(*video, now - 1));
            let payload = |video: usize| &bytes[(video * OWN + due(video, now) % OWN) * SIZE..][..SIZE];
            if let Some((socket, to)) = together {
                let payloads: Vec<&[u8]> = videos.map(payload).collect();
                sent += send_together(socket, to, &payloads)?;
                continue;
            }
            for video in videos {
                send(sockets[video].as_raw_fd(), payload(video), MsgFlags::MSG_DONTWAIT)?;
                sent += 1;
            }
        }
        least = least.min((cpu()? - start).as_secs_f64() * 1e6 / sent as f64);
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
    let (alone, to) = (UdpSocket::bind("127.0.0.1:0")?, listener.local_addr()?.as_any());
    let [one, all] = [videos(&sockets, None, &bytes)?, videos(&sockets, Some((&alone, &to)), &bytes)?];
    println!("videos of 7.82 Mb/s, by ticks of 1 ms: a call each {one:.2}; a call a tick {all:.2}");
    Ok(())
}
