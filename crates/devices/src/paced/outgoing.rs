//! An outgoing stream.

use crate::paced::{Sending, now};
use dcs_abi::descriptor::Pace;
use dcs_drivers::pacer::Pacer;
use dcs_engine::Failure;
use dcs_media::{Nanos, rtcp, sender};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Most batches of one stream in one turn. Other streams wait no longer than these take.
const BATCHES_A_TURN: usize = 4;
/// Pause before a retry when a socket has no room, in nanoseconds.
const FULL: Nanos = 250_000;

/// The socket, and the stream sent by it.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pacer: Pacer,
    socket: OwnedFd,
    /// Sender of reports (RTCP).
    reports: Option<Reports>,
    segments: bool,
    errno: i32,
}

#[derive(Debug)]
struct Reports {
    socket: OwnedFd,
    /// Canonical name.
    name: String,
    next: Nanos,
}

/// State of a stream after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Time of its next turn.
    pub next: Option<Nanos>,
    /// Set if there is ample room for more bytes.
    pub wants: bool,
    /// Set if everything that was taken is sent.
    pub is_empty: bool,
}

impl Outgoing {
    pub fn new(socket: OwnedFd, reports: Option<(OwnedFd, String)>, settings: sender::Settings) -> Outgoing {
        let pacer = Pacer::new(settings);
        let settings = pacer.sender.settings();
        let size = settings.framing.header() + settings.payload;
        let segments = segment(&socket, size);
        let reports = reports.map(|(socket, name)| Reports { socket, name, next: 0 });
        Outgoing { pacer, socket, reports, segments, errno: 0 }
    }

    pub fn state(&self) -> Sending {
        Sending { counts: self.pacer.sender.statistics(), errno: self.errno, segments: self.segments }
    }

    /// Begins another transfer, whose bytes follow.
    pub fn begin(&mut self, pace: &Pace) {
        self.pacer.begin(pace, now());
    }

    /// Takes bytes; returns how many there was room for.
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize, Failure> {
        self.pacer.push(bytes, now())
    }

    /// Ends a transfer: all its bytes are here. `more`: another one joins it.
    pub fn end(&mut self, more: bool) -> Result<(), Failure> {
        self.pacer.end(more, now())
    }

    /// Returns true if nothing is left to send. Once its transfer is ended, every byte that was taken has its time.
    pub fn is_empty(&self) -> bool {
        self.pacer.sender.is_empty()
    }

    /// Returns the time of the next turn: the tick closest to the time when its first datagram is due.
    pub fn next(&mut self) -> Option<Nanos> {
        self.pacer.next_turn()
    }

    /// Sends what is due at this time, which is now.
    pub fn send_due(&mut self, mut at: Nanos) -> Progress {
        let mut full = false;
        for _ in 0..BATCHES_A_TURN {
            match self.send_batch(self.pacer.until(at), at) {
                None => break,
                Some(room) => full = !room,
            }
            let until = self.pacer.until(at);
            if full || self.pacer.sender.next_due().is_none_or(|due| due > until) {
                break;
            }
            at = now();
        }
        self.report(at);
        let next = if full { Some(at + FULL) } else { self.next() };
        Progress { next, wants: self.pacer.sender.wants(), is_empty: self.pacer.sender.is_empty() }
    }

    /// Sends datagrams that are due. `None`: there are none; false: the socket has no room for them.
    fn send_batch(&mut self, until: Nanos, now: Nanos) -> Option<bool> {
        let segments = self.segments;
        let batch = self.pacer.sender.batch(until, now)?;
        let (count, size) = (batch.count, batch.size);
        let pieces = if segments { 1 } else { count };
        let mut sent = 0;
        for bytes in batch.bytes.chunks(if segments { size * count as usize } else { size }) {
            match send(&self.socket, bytes) {
                Ok(()) => sent += 1,
                Err(errno) => return Some(self.refused(errno, (sent, pieces, count), now)),
            }
        }
        self.pacer.sender.sent(count, now);
        Some(true)
    }

    /// Handles an error of the network for the piece that follows `sent` sent ones; `pieces` make up `count` datagrams.
    fn refused(&mut self, errno: Errno, (sent, pieces, count): (u64, u64, u64), now: Nanos) -> bool {
        self.pacer.sender.sent(sent, now);
        match errno {
            Errno::AGAIN | Errno::NOBUFS => return false,
            // The device does not support it, or the path needs shorter ones: send one by one then.
            Errno::MSGSIZE | Errno::INVAL | Errno::IO | Errno::OPNOTSUPP if pieces < count => {
                self.segments = false;
                segment(&self.socket, 0);
            }
            _ => {
                self.pacer.sender.lost(if pieces == 1 { count } else { 1 });
                self.errno = errno.raw_os_error();
            }
        }
        true
    }

    /// Sends a report if one is due.
    fn report(&mut self, now: Nanos) {
        let Some(reports) = self.reports.as_mut().filter(|reports| reports.next <= now) else { return };
        if self.pacer.sender.statistics().datagrams > 0 {
            reports.next = now + rtcp::INTERVAL;
            self.send_report(false);
        }
    }

    /// Sends a report without waiting: if one is lost, another follows.
    fn send_report(&self, last: bool) {
        if let Some(Reports { socket, name, .. }) = &self.reports {
            let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
            let report = self.pacer.sender.report(now(), unix.as_nanos() as u64);
            let _ = send(socket, &report.write(name, last));
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if self.pacer.sender.statistics().datagrams > 0 {
            self.send_report(true);
        }
    }
}

/// Sends bytes. A connected socket reports with its next call that nothing listens at the peer; that call sends nothing.
fn send(socket: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let send = || rustix::io::retry_on_intr(|| rustix::net::send(socket, bytes, flags)).map(|_| ());
    match send() {
        Err(Errno::CONNREFUSED) => send(),
        result => result,
    }
}

/// Has the kernel cut what one call sends into datagrams of this size; 0 turns that off. Returns true on success.
fn segment(socket: &impl AsFd, size: usize) -> bool {
    let size = size as libc::c_int;
    // SAFETY: the kernel reads one int, which is there.
    let code = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const size).cast(),
            size_of_val(&size) as libc::socklen_t,
        )
    };
    code == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcs_abi::descriptor::Pacing;
    use std::net::UdpSocket;

    #[test]
    fn only_what_a_way_cannot_do_ends_segments() {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        for (errno, stays, lost) in [
            (Errno::NETUNREACH, true, 10),
            (Errno::PERM, true, 10),
            (Errno::NOBUFS, true, 0),
            (Errno::MSGSIZE, false, 0),
            (Errno::INVAL, false, 0),
            (Errno::IO, false, 0),
            (Errno::OPNOTSUPP, false, 0),
        ] {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(peer.local_addr().unwrap()).unwrap();
            let mut outgoing = Outgoing::new(socket.into(), None, sender::Settings::default());
            assert!(outgoing.state().segments, "UDP_SEGMENT works: Linux has had it since 4.18");
            outgoing.begin(&Pace { pacing: Pacing::Free, ..Pace::default() });
            outgoing.push(&[7; 10 * 1316]).unwrap();
            // One call of the kernel for ten datagrams.
            outgoing.refused(errno, (0, 1, 10), now());
            let state = outgoing.state();
            assert_eq!((state.segments, state.counts.lost), (stays, lost), "{errno}");
            assert_eq!(state.errno, if lost > 0 { errno.raw_os_error() } else { 0 });
        }
    }
}
