//! Media streams in datagrams: an MPEG transport stream is cut into datagrams, each with the time when it is
//! due, and what was received is put into its order again. No I/O and no clock: time is handed in.
//!
//! # Architecture
//!
//! ```text
//!   bytes -> Sender: packets (ts) -> clock: when each is due -> ring of datagrams, RTP's headers -> batch()
//!   datagrams -> Receiver: RTP's headers -> window: the order, losses -> bytes
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`ts`] | packets of a transport stream: sync, PID, continuity counter, PCR (ISO/IEC 13818-1) |
//! | [`sender`] | [`Sender`]: takes bytes, gives datagrams when they are due |
//! | [`clock`] | the time at which a position of the stream is due: by PCR, at a constant rate, at once |
//! | `ring` | the sender's datagrams |
//! | `continuity` | continuity counters that go on where one file follows another |
//! | [`receiver`] | [`Receiver`]: takes datagrams, gives bytes in order |
//! | [`window`] | the order of what was received |
//! | [`rtp`], [`rtcp`], [`sdp`] | headers (RFC 3550, RFC 2250), sender reports, descriptions (RFC 8866) |
//!
//! # What it doesn't implement
//!
//! Sockets (`dcs-devices`); the tables of a transport stream (PAT, PMT): nothing is chosen among its programs;
//! timestamps of elementary streams (PTS, DTS) are passed on as they are; forward error correction; SRTP.
#![forbid(unsafe_code)]

pub mod clock;
mod continuity;
pub mod receiver;
mod ring;
pub mod rtcp;
pub mod rtp;
pub mod sdp;
pub mod sender;
pub mod ts;
pub mod window;

pub use receiver::Receiver;
pub use sender::Sender;

/// Nanoseconds since a moment of the owner's choice. Never goes back.
pub type Nanos = u64;

/// How bytes lie in a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// The bytes alone.
    #[default]
    Plain,
    /// Behind a header of RTP (RFC 3550), payload type 33 (RFC 2250).
    Rtp,
}

impl Framing {
    /// Bytes before the payload.
    pub fn header(self) -> usize {
        match self {
            Framing::Plain => 0,
            Framing::Rtp => rtp::HEADER,
        }
    }
}
