//! Media streams in datagrams: cuts an MPEG transport stream into datagrams, each with its due time, and restores the order of received
//! ones. No I/O and no clock: the owner passes the time in.
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
//! | [`sender`] | [`Sender`]: takes bytes, returns datagrams when they are due |
//! | [`clock`] | the time at which a position of the stream is due: by PCR, at a constant rate, at once |
//! | `ring` | the sender's datagrams |
//! | `continuity` | continuity counters that continue where one file follows another |
//! | [`receiver`] | [`Receiver`]: takes datagrams, returns bytes in order |
//! | [`window`] | the order of received datagrams |
//! | [`rtp`], [`rtcp`], [`sdp`] | headers (RFC 3550, RFC 2250), sender reports, descriptions (RFC 8866) |
//!
//! # What it doesn't implement
//!
//! Sockets (`dcs-devices`); the tables of a transport stream (PAT, PMT): its programs are not filtered; timestamps of elementary streams
//! (PTS, DTS) are passed on unchanged; forward error correction; SRTP.
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

/// Nanoseconds since a moment of the owner's choice. Never decreases.
pub type Nanos = u64;

/// The format of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// Stream bytes only.
    #[default]
    Plain,
    /// RTP: a header (RFC 3550), payload type 33 (RFC 2250), then the stream bytes.
    Rtp,
}

impl Framing {
    /// Returns the number of bytes before the payload.
    pub fn header(self) -> usize {
        match self {
            Framing::Plain => 0,
            Framing::Rtp => rtp::HEADER,
        }
    }
}
