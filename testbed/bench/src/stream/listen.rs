//! Sockets that receive the videos, and each datagram's deviation from its due time.

use nix::cmsg_space;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// Bytes of a socket's queue: half a second of a video.
const RECEIVE_BUFFER: usize = 4 << 20;

/// A datagram's time of arrival in nanoseconds, and its bytes.
pub type Arrival = (u64, u32);

pub struct Listeners {
    heard: Vec<UdpSocket>,
    /// Receives the streams that are not listened to, and drops datagrams once its queue is full.
    rest: UdpSocket,
}

impl Listeners {
    pub fn new(heard: usize) -> io::Result<Listeners> {
        let socket = |room: usize| {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            if setsockopt(&socket, sockopt::RcvBufForce, &room).is_err() {
                setsockopt(&socket, sockopt::RcvBuf, &room)?;
            }
            setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let all: io::Result<Vec<UdpSocket>> = (0..heard).map(|_| socket(RECEIVE_BUFFER)).collect();
        Ok(Listeners { heard: all?, rest: socket(1)? })
    }

    /// Returns the ports of the streams that are listened to, then that of all others.
    pub fn ports(&self) -> Vec<u16> {
        let all = self.heard.iter().chain([&self.rest]);
        all.filter_map(|socket| socket.local_addr().ok()).map(|address| address.port()).collect()
    }

    pub fn empty(&self) -> Vec<Vec<Arrival>> {
        self.heard.iter().map(|_| Vec::new()).collect()
    }

    /// Listens until `end`.
    pub fn until(&self, end: Instant, mut heard: Option<&mut Vec<Vec<Arrival>>>) -> io::Result<()> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let mut fds: Vec<PollFd<'_>> =
                self.heard.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
            let wait = left.min(Duration::from_millis(100)) + Duration::from_millis(1);
            let _ = nix::poll::poll(&mut fds, PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX));
            for (number, socket) in self.heard.iter().enumerate() {
                while let Some(arrival) = receive(socket)? {
                    if let Some(heard) = &mut heard {
                        heard[number].push(arrival);
                    }
                }
            }
        }
    }
}

fn receive(socket: &UdpSocket) -> io::Result<Option<Arrival>> {
    let mut bytes = [0; 2048];
    let mut control = cmsg_space!(TimeSpec);
    let mut pieces = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let message = match recvmsg::<()>(socket.as_raw_fd(), &mut pieces, Some(&mut control), flags) {
        Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Ok(None),
        message => message?,
    };
    let stamp = message.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(stamp) => Some(stamp),
        _ => None,
    });
    let stamp = stamp.ok_or_else(|| io::Error::other("a datagram has no time of arrival"))?;
    let nanos = stamp.tv_sec() as u64 * 1_000_000_000 + stamp.tv_nsec() as u64;
    Ok(Some((nanos, message.bytes as u32)))
}

/// Returns the distances from the constant rate that fits best, in milliseconds, over all streams, sorted.
pub fn deviations(heard: &[Vec<Arrival>], rate: u64) -> Vec<f32> {
    let mut all: Vec<f32> = heard.iter().flat_map(|stream| of_stream(stream, rate)).collect();
    all.sort_by(f32::total_cmp);
    all
}

fn of_stream(stream: &[Arrival], rate: u64) -> Vec<f32> {
    let first = stream.first().map_or(0, |(at, _)| *at);
    let mut bytes = 0;
    let mut ahead: Vec<f64> = stream
        .iter()
        .map(|(at, length)| {
            let due = bytes as f64 * 8e9 / rate as f64;
            bytes += u64::from(*length);
            (*at as f64 - first as f64) - due
        })
        .collect();
    let mut sorted = ahead.clone();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
    ahead.iter_mut().for_each(|one| *one = (*one - middle).abs() / 1e6);
    ahead.into_iter().map(|one| one as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_are_those_from_the_rate() {
        // A datagram every millisecond; the third 0.5 ms late, the fourth 2 ms early.
        let arrivals = [0, 1_000_000, 2_500_000, 1_000_000, 4_000_000].map(|at| (7_000_000_000 + at, 1000));
        let found = deviations(&[arrivals.to_vec(), Vec::new()], 8_000_000);
        assert_eq!(found, [0.0, 0.0, 0.0, 0.5, 2.0]);
    }

    #[test]
    fn what_arrives_is_heard_with_its_time() {
        let listeners = Listeners::new(2).unwrap();
        let ports = listeners.ports();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for (port, length) in [(ports[1], 100), (ports[0], 7), (ports[1], 9), (ports[2], 5)] {
            socket.send_to(&vec![0; length], ("127.0.0.1", port)).unwrap();
        }
        let mut heard = listeners.empty();
        listeners.until(Instant::now() + Duration::from_millis(20), Some(&mut heard)).unwrap();
        let lengths: Vec<Vec<u32>> =
            heard.iter().map(|stream| stream.iter().map(|(_, length)| *length).collect()).collect();
        assert_eq!(lengths, [vec![7], vec![100, 9]]);
        assert!(heard[1][0].0 <= heard[1][1].0);
    }
}
