//! The kernel's counts of a TCP connection: they show whose turn it is, and how fast the peer is.

use rustix::io::ioctl_fionread;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes that a TCP socket has moved since its connection was made, and bytes that are waiting in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that the peer has sent and that have arrived in order.
    pub received: u64,
    /// Bytes that the peer has acknowledged.
    pub acknowledged: u64,
    /// Bytes that have arrived and were not read.
    pub unread: u64,
    /// Bytes that were written and that the peer has not acknowledged.
    pub unacknowledged: u64,
    /// Set if the peer has closed its side, or reset the connection.
    pub peer_closed: bool,
    /// Set if there is no connection any more: both sides have ended it, or it was reset or given up.
    pub is_gone: bool,
}

/// Offsets of fields in `struct tcp_info` (linux/tcp.h), which only ever grows at its end.
const STATE: usize = 0;
const BYTES_ACKED: usize = 120;
const BYTES_RECEIVED: usize = 128;
const KNOWN: usize = 136;

/// States of a connection whose peer has sent its end: TIME_WAIT, CLOSE, CLOSE_WAIT, LAST_ACK, CLOSING
/// (net/tcp_states.h).
const PEER_CLOSED: [u8; 5] = [6, 7, 8, 9, 11];
const CLOSED: u8 = 7;

impl Traffic {
    /// Queries the kernel.
    ///
    /// # Errors
    ///
    /// If it is not a TCP socket, or the kernel is older than 4.2 and does not count (`Unsupported`).
    pub fn of(socket: &impl AsFd) -> io::Result<Traffic> {
        let socket = socket.as_fd();
        let mut info = [0u8; 256];
        let mut length = info.len() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to `info`, which has that many, and stores the count in `length`.
        let answer = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &mut length,
            )
        };
        if answer != 0 {
            return Err(io::Error::last_os_error());
        }
        if (length as usize) < KNOWN {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut unacknowledged: libc::c_int = 0;
        // SAFETY: the kernel writes one int, there.
        if unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &mut unacknowledged) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let number = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| info[at + byte]));
        Ok(Traffic {
            received: number(BYTES_RECEIVED),
            acknowledged: number(BYTES_ACKED),
            unread: ioctl_fionread(socket)?,
            unacknowledged: u64::try_from(unacknowledged).unwrap_or(0),
            peer_closed: PEER_CLOSED.contains(&info[STATE]),
            is_gone: info[STATE] == CLOSED,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    /// Waits until the kernel's counts satisfy `so`, since acknowledgements take time, and returns them.
    fn until(socket: &TcpStream, so: impl Fn(&Traffic) -> bool) -> Traffic {
        loop {
            let traffic = Traffic::of(socket).unwrap();
            if so(&traffic) {
                return traffic;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn both_sides_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        let (here_before, there_before) = (Traffic::of(&here).unwrap(), Traffic::of(&there).unwrap());
        here.write_all(&[1; 1000]).unwrap();
        let sent = until(&here, |traffic| traffic.unacknowledged == 0);
        assert_eq!(sent.acknowledged - here_before.acknowledged, 1000);
        let got = until(&there, |traffic| traffic.unread == 1000);
        assert_eq!(got.received - there_before.received, 1000);
        there.read_exact(&mut [0; 400]).unwrap();
        assert_eq!(until(&there, |traffic| traffic.unread == 600).received, got.received);
        assert!(!Traffic::of(&there).unwrap().peer_closed);
        drop(here);
        until(&there, |traffic| traffic.peer_closed);
    }

    #[test]
    fn what_a_peer_does_not_take_is_not_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_there, _) = listener.accept().unwrap();
        here.set_nonblocking(true).unwrap();
        while here.write(&[1; 64 << 10]).is_ok() {}
        // Buffers grow for a while; eventually nothing moves.
        let mut before = Traffic::of(&here).unwrap();
        let stuck = loop {
            std::thread::sleep(std::time::Duration::from_millis(100));
            let now = Traffic::of(&here).unwrap();
            if now == std::mem::replace(&mut before, now) {
                break now;
            }
        };
        assert!(stuck.unacknowledged > 0);
    }

    #[test]
    fn other_sockets_have_none() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert!(Traffic::of(&one).is_err());
    }
}
