//! Media streams in datagrams: a socket, and the state that persists from transfer to transfer.
//!
//! ```text
//!   write: bytes --> Outgoing: dcs_media::Sender --+--> datagrams that are due, in one call (UDP_SEGMENT)
//!   read:  bytes <-- Incoming: dcs_media::Receiver +<-- datagrams that have arrived
//! ```
//!
//! A NIC that the engine drives itself has streams of its own (`dcs_drivers::network`): they are known here by number.
//!
//! The owner of an engine's streams ([`streams`]) calls [`Outgoing::send_due`] when the first of them is due.

pub(crate) mod streams;

mod incoming;
mod outgoing;

pub(crate) use incoming::Incoming;
pub(crate) use outgoing::Outgoing;

use crate::endpoint::DeviceFlow;
use dcs_media::{Nanos, receiver, sender};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A media stream in one direction.
#[derive(Debug)]
pub(crate) enum Paced {
    /// An outgoing stream.
    Out(Box<Mutex<Outgoing>>),
    /// An incoming stream.
    In(Box<Mutex<Incoming>>),
    /// An outgoing stream of a NIC that a card or the engine drives.
    Device(DeviceFlow),
}

/// State of an outgoing stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sending {
    /// Counts of its datagrams.
    pub counts: sender::Statistics,
    /// Last errno with which the network refused some of them; 0 if none.
    pub errno: i32,
    /// Set if one call to the kernel sends several datagrams (UDP_SEGMENT).
    pub segments: bool,
}

/// State of an incoming stream.
pub type Receiving = receiver::Statistics;

/// Locks a stream. A panic while it was locked left counts and bytes that are each consistent.
pub(crate) fn locked<T>(stream: &Mutex<T>) -> MutexGuard<'_, T> {
    stream.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the time against which datagrams are due, in nanoseconds; never 0.
pub(crate) fn now() -> Nanos {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as Nanos + 1
}
