//! An incoming stream.

use crate::attempt::{Attempt, Interest};
use crate::failure;
use crate::paced::{Receiving, now};
use dcs_abi::descriptor::Pace;
use dcs_abi::result::PATH_SYSCALL;
use dcs_media::{Framing, Receiver};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};
use std::time::Duration;

/// Most datagrams taken in one turn.
const DATAGRAMS_A_TURN: usize = 64;
/// The longest datagram.
const DATAGRAM_MAX: usize = 65_536;
/// Lower bound of the room that the shortest datagram takes in a socket's buffer, in bytes.
const DATAGRAM_MIN: usize = 512;
/// Interval at which the socket is polled while something is missing.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The socket, and the stream received by it.
#[derive(Debug)]
pub(crate) struct Incoming {
    receiver: Option<Receiver>,
    framing: Framing,
    socket: OwnedFd,
    scratch: Box<[u8]>,
    /// Datagrams that may still be taken after a stop.
    last: Option<usize>,
}

impl Incoming {
    pub fn new(socket: OwnedFd, framing: Framing) -> Incoming {
        Incoming { receiver: None, framing, socket, scratch: vec![0; DATAGRAM_MAX].into(), last: None }
    }

    pub fn state(&self) -> Receiving {
        self.receiver.as_ref().map(Receiver::statistics).unwrap_or_default()
    }

    /// Ends the stream with what has arrived so far, and wakes waiting readers.
    pub fn stop(&mut self) {
        // Linux keeps queueing after a shutdown. No more is taken than there was room for, so that the end comes even if datagrams arrive
        // faster than they are taken.
        let room = || rustix::net::sockopt::socket_recv_buffer_size(&self.socket).unwrap_or(0);
        self.last = Some(self.last.unwrap_or_else(|| room() / DATAGRAM_MIN + DATAGRAMS_A_TURN));
        // A socket that is not connected returns an error, and wakes its readers all the same.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Read);
    }

    /// Reads what is available, in order.
    pub fn read(&mut self, into: &mut [u8], pace: &Pace) -> Attempt {
        let (framing, patience) = (self.framing, u64::from(pace.window_us) * 1000);
        let receiver = self.receiver.get_or_insert_with(|| Receiver::new(framing, patience));
        let stopped = self.last.is_some();
        let mut left = DATAGRAMS_A_TURN.min(self.last.unwrap_or(usize::MAX));
        let mut count = receiver.read(into);
        while count < into.len() && left > 0 {
            left -= 1;
            self.last = self.last.map(|last| last - 1);
            let flags = RecvFlags::DONTWAIT;
            match rustix::io::retry_on_intr(|| rustix::net::recv(&self.socket, &mut *self.scratch, flags)) {
                // The end, or an empty datagram.
                Ok((0, _)) if stopped => break,
                Ok((length, _)) => receiver.put(&self.scratch[..length], now()),
                Err(Errno::AGAIN) => break,
                Err(errno) => return Attempt::failed(failure::reading(errno)),
            }
            count += receiver.read(&mut into[count..]);
        }
        receiver.advance(now(), stopped);
        count += receiver.read(&mut into[count..]);
        match receiver.deadline() {
            _ if count > 0 || stopped => Attempt::moved(count, PATH_SYSCALL),
            Some(deadline) => {
                Attempt::Later(Duration::from_nanos(deadline.saturating_sub(now())).min(POLL_INTERVAL))
            }
            None if left == 0 => Attempt::Later(Duration::ZERO),
            None => Attempt::NotReady(self.socket.as_raw_fd(), Interest::Readable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcs_engine::Outcome;
    use std::net::UdpSocket;

    #[test]
    fn it_ends_after_a_stop_though_datagrams_go_on_coming() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.connect(socket.local_addr().unwrap()).unwrap();
        let mut incoming = Incoming::new(socket.into(), Framing::Plain);
        let send = |byte: u8| (0..100).for_each(|_| _ = peer.send(&[byte]).unwrap());
        send(1);
        incoming.stop();
        let (mut into, mut came) = (vec![0; 4096], Vec::new());
        // More than one turn takes.
        for _ in 0..1000 {
            send(2);
            match incoming.read(&mut into, &Pace::default()) {
                Attempt::Done(Outcome::Moved { bytes: 0, .. }) => {
                    assert!(came.starts_with(&[1; 100]), "datagrams are missing: {}", came.len());
                    return;
                }
                Attempt::Done(Outcome::Moved { bytes, .. }) => {
                    came.extend_from_slice(&into[..bytes as usize])
                }
                other => panic!("{other:?}"),
            }
        }
        panic!("no end after {} datagrams", came.len());
    }
}
