//! The sender of a media stream with the transfers that feed it, for whatever takes its datagrams: a socket, or a NIC.

use dcs_abi::descriptor::{Pace, Pacing};
use dcs_abi::status::Status;
use dcs_engine::{Failure, Nanos};
use dcs_media::{Sender, clock, sender};

/// errno for bytes that are not a transport stream (EBADMSG).
const NOT_TRANSPORT_STREAM: u32 = 74;
/// errno for a transport stream without a clock (ENODATA).
const NO_CLOCK: u32 = 61;

/// A stream's datagrams, and the transfer whose bytes arrive.
#[derive(Debug)]
pub struct Pacer {
    /// The stream's datagrams.
    pub sender: Sender,
    /// Span within which due datagrams are sent together, in nanoseconds.
    window: Nanos,
    /// Set while a transfer's bytes are arriving.
    open: bool,
}

impl Pacer {
    /// Makes a stream that has nothing to send.
    pub fn new(settings: sender::Settings) -> Pacer {
        Pacer { sender: Sender::new(settings), window: 0, open: false }
    }

    /// Begins another transfer, whose bytes follow.
    pub fn begin(&mut self, pace: &Pace, now: Nanos) {
        let pacing = match pace.pacing {
            Pacing::Free => clock::Pacing::Free,
            Pacing::Constant => clock::Pacing::Constant(pace.rate),
            Pacing::Pcr => clock::Pacing::Pcr,
        };
        if self.open {
            // The previous transfer was not ended, since its destination was not flushed: this one joins it.
            let _ = self.end(true, now);
        }
        self.window = u64::from(pace.window_us) * 1000;
        self.sender.begin(pacing);
        self.open = true;
    }

    /// Takes bytes; returns how many there was room for.
    ///
    /// # Errors
    ///
    /// CORRUPT_DATA, with EBADMSG or ENODATA: nothing tells their pace.
    pub fn push(&mut self, bytes: &[u8], now: Nanos) -> Result<usize, Failure> {
        self.sender.push(bytes, now).map_err(refused)
    }

    /// Ends a transfer: all its bytes are here. `more`: another one joins it.
    ///
    /// # Errors
    ///
    /// As [`Pacer::push`].
    pub fn end(&mut self, more: bool, now: Nanos) -> Result<(), Failure> {
        if !core::mem::take(&mut self.open) {
            return Ok(());
        }
        self.sender.end(more, now).map_err(refused)
    }

    /// Returns the time of the next turn: the tick closest to the time when its first datagram is due.
    pub fn next_turn(&mut self) -> Option<Nanos> {
        let due = self.sender.next_due()?;
        Some(match self.window {
            0 => due,
            window => due.saturating_add(window / 2) / window * window,
        })
    }

    /// Returns the time up to which datagrams belong to a turn now. Streams with the same window share ticks: half of the window belongs to
    /// this one.
    pub fn until(&self, now: Nanos) -> Nanos {
        now.saturating_add(self.window / 2)
    }
}

fn refused(error: sender::Error) -> Failure {
    let errno = match error {
        sender::Error::NotTransportStream => NOT_TRANSPORT_STREAM,
        sender::Error::NoClock => NO_CLOCK,
    };
    Failure { status: Status::CorruptData, errno }
}
