//! Waits until a peer has acknowledged what a socket was given. The kernel sends no notification of this, so it is polled at growing
//! intervals.
//!
//! Acknowledged does not mean read: the bytes are in the peer's kernel, and over loopback in pages that the sender's file shares
//! (docs/architecture.md, *Lent pages*).

use crate::attempt::Attempt;
use crate::endpoint::Flow;
use crate::failure;
use crate::traffic::Traffic;
use dcs_engine::Outcome;
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use rustix::net::{ipproto, sockopt};
use std::io;
use std::time::Duration;

/// Pause between two polls.
const FIRST: Duration = Duration::from_micros(100);
const LONGEST: Duration = Duration::from_millis(20);

/// The condition that a flush waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    /// Count of acknowledged bytes to wait for, as the kernel counts them over the connection.
    upto: u64,
    pause: Duration,
}

/// Returns true if the kernel can say what the peer has acknowledged: on a TCP connection with nothing between its stream and the
/// application's (TLS in the kernel, several paths).
pub(crate) fn is_supported(flow: &Flow) -> bool {
    let is_tcp = sockopt::socket_protocol(&flow.fd).is_ok_and(|protocol| protocol == Some(ipproto::TCP));
    is_tcp && !has_layer(flow) && Traffic::of(&flow.fd).is_ok()
}

/// Returns true if a layer sits between the application and TCP (TCP_ULP).
fn has_layer(flow: &Flow) -> bool {
    let mut name = [0u8; 16];
    let mut length = name.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `name`, which has that many, and stores the count in `length`.
    let code = unsafe {
        libc::getsockopt(
            flow.fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_ULP,
            name.as_mut_ptr().cast(),
            &mut length,
        )
    };
    code == 0 && length > 0
}

/// Checks whether the peer has acknowledged everything that was in the socket at the first check. Does not wait for what others have sent
/// since.
pub(crate) fn look(flow: &Flow, awaited: &mut Option<Awaited>) -> Attempt {
    match ask(flow, awaited) {
        Ok(attempt) => attempt,
        Err(error) => Attempt::failed(failure::writing(Errno::from_io_error(&error).unwrap_or(Errno::IO))),
    }
}

fn ask(flow: &Flow, awaited: &mut Option<Awaited>) -> io::Result<Attempt> {
    let now = Traffic::of(&flow.fd)?;
    let awaited = match awaited {
        Some(awaited) => awaited,
        None => {
            // Bytes acknowledged between the two reads are counted twice, so this is never too low. If it is too high, everything is
            // acknowledged before it is reached.
            let upto = Traffic::of(&flow.fd)?.acknowledged + now.unacknowledged;
            awaited.insert(Awaited { upto, pause: FIRST })
        }
    };
    if now.unacknowledged == 0 || now.acknowledged >= awaited.upto {
        return Ok(Attempt::Done(Outcome::Flushed));
    }
    if now.is_gone {
        let said = sockopt::socket_error(&flow.fd)?.err();
        return Ok(Attempt::failed(failure::writing(said.unwrap_or(Errno::CONNRESET))));
    }
    let pause = awaited.pause;
    awaited.pause = (pause * 2).min(LONGEST);
    Ok(Attempt::Later(pause))
}
