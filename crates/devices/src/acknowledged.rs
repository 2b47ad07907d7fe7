//! Waiting until a peer has acknowledged what a socket was given. The kernel tells nobody when that is: it is
//! asked, at growing intervals.
//!
//! To be acknowledged is not to be read: the bytes lie in the peer's kernel, and over loopback in pages that
//! the sender's file has too (docs/architecture.md, *Lent pages*).

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

/// Pauses between two looks.
const FIRST: Duration = Duration::from_micros(100);
const LONGEST: Duration = Duration::from_millis(20);

/// The condition that a flush waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    /// Bytes of the connection that have been acknowledged then, as the kernel counts them.
    upto: u64,
    pause: Duration,
}

/// True if the kernel can say what the peer has acknowledged: of a TCP connection with nothing between its
/// stream and the application's (TLS in the kernel, several paths).
pub(crate) fn is_told(flow: &Flow) -> bool {
    let is_tcp = sockopt::socket_protocol(&flow.fd).is_ok_and(|protocol| protocol == Some(ipproto::TCP));
    is_tcp && !has_layer(flow) && Traffic::of(&flow.fd).is_ok()
}

/// True if something lies between the application and TCP (TCP_ULP).
fn has_layer(flow: &Flow) -> bool {
    let mut name = [0u8; 16];
    let mut length = name.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `name`, which has that many, and how many to
    // `length`.
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

/// Looks whether the peer has acknowledged all that was in the socket at the first look. What others have
/// sent since is not waited for.
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
            // What comes in between is counted twice, so that this is never too little. If it is too much,
            // all is acknowledged first.
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
