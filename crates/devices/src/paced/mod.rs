//! Media streams in datagrams: a socket, and the state that goes on from transfer to transfer.
//!
//! ```text
//!   write: bytes --> Outgoing: dcs_media::Sender --+--> datagrams that are due, in one call (UDP_SEGMENT)
//!   read:  bytes <-- Incoming: dcs_media::Receiver +<-- datagrams that have come
//! ```
//!
//! Whoever owns an engine's streams ([`streams`]) calls [`Outgoing::send_due`] when the first of them is due.

pub(crate) mod streams;

mod incoming;
mod outgoing;

pub(crate) use incoming::Incoming;
pub(crate) use outgoing::Outgoing;

use dcs_media::{Nanos, receiver, sender};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A media stream, one way.
#[derive(Debug)]
pub(crate) enum Paced {
    /// It is sent.
    Out(Box<Mutex<Outgoing>>),
    /// It is received.
    In(Box<Mutex<Incoming>>),
}

/// How a stream that is sent fares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sending {
    /// What became of its datagrams.
    pub counts: sender::Statistics,
    /// The last errno for which the network did not take some of them; 0: none.
    pub errno: i32,
    /// Several datagrams go in one call of the kernel (UDP_SEGMENT).
    pub segments: bool,
}

/// How a stream that is received fares.
pub type Receiving = receiver::Statistics;

/// Locks a stream. Whatever panicked with it left counts and bytes, each of which is sound.
pub(crate) fn locked<T>(stream: &Mutex<T>) -> MutexGuard<'_, T> {
    stream.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time by which datagrams are due, in nanoseconds; never 0.
pub(crate) fn now() -> Nanos {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as Nanos + 1
}
