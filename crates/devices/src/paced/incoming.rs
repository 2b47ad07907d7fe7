//! A stream that is received.

use crate::attempt::{Attempt, Interest};
use crate::fault;
use crate::paced::{Receiving, now};
use dcs_abi::descriptor::Pace;
use dcs_abi::result::PATH_SYSCALL;
use dcs_media::{Framing, Receiver};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};
use std::time::Duration;

/// Datagrams that are taken in one turn.
const DATAGRAMS_A_TURN: usize = 64;
/// The longest datagram.
const LONGEST: usize = 65_536;
/// While something is missing the socket is looked at so often.
const LOOK: Duration = Duration::from_millis(2);

/// The socket, and what comes in by it.
#[derive(Debug)]
pub(crate) struct Incoming {
    receiver: Option<Receiver>,
    framing: Framing,
    socket: OwnedFd,
    scratch: Box<[u8]>,
    stopped: bool,
}

impl Incoming {
    pub fn new(socket: OwnedFd, framing: Framing) -> Incoming {
        Incoming { receiver: None, framing, socket, scratch: vec![0; LONGEST].into(), stopped: false }
    }

    pub fn state(&self) -> Receiving {
        self.receiver.as_ref().map(Receiver::statistics).unwrap_or_default()
    }

    /// The stream ends with what has come so far. Whoever waits for more is woken.
    pub fn stop(&mut self) {
        self.stopped = true;
        // Of a socket that is not connected it says so, and wakes all the same.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Read);
    }

    /// Reads what there is, in order.
    pub fn read(&mut self, into: &mut [u8], pace: &Pace) -> Attempt {
        let (framing, patience) = (self.framing, u64::from(pace.window_us) * 1000);
        let receiver = self.receiver.get_or_insert_with(|| Receiver::new(framing, patience));
        let mut left = DATAGRAMS_A_TURN;
        let mut count = receiver.read(into);
        while count < into.len() && left > 0 {
            left -= 1;
            let flags = RecvFlags::DONTWAIT;
            match rustix::io::retry_on_intr(|| rustix::net::recv(&self.socket, &mut *self.scratch, flags)) {
                // Its end, or an empty datagram.
                Ok((0, _)) if self.stopped => break,
                Ok((length, _)) => receiver.put(&self.scratch[..length], now()),
                Err(Errno::AGAIN) => break,
                Err(errno) => return Attempt::failed(fault::reading(errno)),
            }
            count += receiver.read(&mut into[count..]);
        }
        receiver.advance(now(), self.stopped);
        count += receiver.read(&mut into[count..]);
        match receiver.deadline() {
            _ if count > 0 || self.stopped => Attempt::moved(count, PATH_SYSCALL),
            Some(deadline) => Attempt::Later(Duration::from_nanos(deadline.saturating_sub(now())).min(LOOK)),
            None if left == 0 => Attempt::Later(Duration::ZERO),
            None => Attempt::NotReady(self.socket.as_raw_fd(), Interest::Readable),
        }
    }
}
