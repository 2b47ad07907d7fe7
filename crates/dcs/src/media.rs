//! Media streams in datagrams: a sink whose bytes are sent when they are due, a source that puts what comes
//! into its order. On the kernel backend alone.
//!
//! ```no_run
//! use dcs::media::{Pace, Sender, Settings};
//! use dcs::{Engine, Op, Source};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = std::fs::File::open("video.ts")?;
//! let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
//! socket.connect("239.1.1.1:5004")?;
//!
//! let engine = Engine::builder().start()?;
//! let sender = Sender::new(&socket, None, Settings::rtp(0x1234_5678))?;
//! let done = engine.session()?.transfer(Source::file(&file, ..), [Op::Md5], sender.sink(Pace::pcr()))?.wait()?;
//! println!("{} bytes, md5 {}, worst {} ns", done.bytes_out, done.digests[0], sender.state().counts.worst);
//! # Ok(())
//! # }
//! ```
//!
//! A sender outlives its transfers: sequence numbers, timestamps and continuity counters go on. Where a
//! transfer is submitted with [`Request::more`](crate::Request::more), the next one joins it without a pause.

use crate::endpoint::{Range, Sink, Source};
use crate::error::Error;
use dcs_abi::descriptor::Pacing;
use dcs_devices::Endpoint;
use dcs_media::rtp::Header;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

pub use dcs_abi::descriptor::Pace as WirePace;
pub use dcs_devices::{Receiving, Sending};
pub use dcs_media::sender::{DEVIATIONS, LATE_AFTER, SLIP, Statistics};
pub use dcs_media::{Framing, sdp};

/// Time within which datagrams that are due go together, and for which a missing one is waited for, where
/// nobody says another.
pub const WINDOW: Duration = Duration::from_millis(1);
/// Time for which a missing datagram is waited for, where nobody says another.
pub const PATIENCE: Duration = Duration::from_millis(100);

/// What says when bytes are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace(WirePace);

impl Pace {
    /// The clock references (PCR) of the MPEG transport stream that they are.
    pub fn pcr() -> Pace {
        Pace(WirePace { pacing: Pacing::Pcr, rate: 0, window_us: 0 }).window(WINDOW)
    }

    /// This many bits a second, without the headers of datagrams. 0 is refused by the engine.
    pub fn constant(rate: u64) -> Pace {
        Pace(WirePace { pacing: Pacing::Constant, rate, window_us: 0 }).window(WINDOW)
    }

    /// As fast as they can be sent.
    pub fn free() -> Pace {
        Pace(WirePace::default())
    }

    /// Datagrams that are due within this time go together: each is sent at most half of it too early or, but
    /// for what the machine adds, too late. At most 10 s.
    pub fn window(mut self, window: Duration) -> Pace {
        self.0.window_us = u32::try_from(window.as_micros()).unwrap_or(u32::MAX);
        self
    }
}

/// How a sender makes datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings(dcs_media::sender::Settings);

impl Settings {
    /// Seven packets of a transport stream, and nothing else.
    pub fn plain() -> Settings {
        Settings(dcs_media::sender::Settings::default())
    }

    /// The same behind RTP's header. `random`: a number that nobody guesses; the stream's number, its first
    /// sequence number and its first timestamp come of it (RFC 3550, 5.1).
    pub fn rtp(random: u64) -> Settings {
        let first = Header {
            ssrc: random as u32,
            sequence: (random >> 32) as u16,
            timestamp: (random >> 16) as u32 ^ (random >> 48) as u32,
            ..Header::default()
        };
        let settings = dcs_media::sender::Settings { framing: Framing::Rtp, first, ..Default::default() };
        Settings(settings)
    }

    /// Bytes of a datagram's payload: a multiple of 188 for a transport stream; without this 1,316.
    pub fn payload(mut self, bytes: usize) -> Settings {
        self.0.payload = bytes;
        self
    }
}

/// A media stream that is sent by a socket.
#[derive(Clone, Debug)]
pub struct Sender(Arc<Endpoint>);

impl Sender {
    /// Duplicates a connected socket of datagrams. `reports`: another one, to which reports about the stream
    /// go (RTCP), and the sender's canonical name in them.
    ///
    /// # Errors
    ///
    /// [`Error::Endpoint`].
    pub fn new(
        socket: &impl AsFd,
        reports: Option<(&dyn AsFd, &str)>,
        settings: Settings,
    ) -> Result<Sender, Error> {
        let reports = reports.map(|(socket, name)| (socket.as_fd(), name.to_string()));
        let endpoint = Endpoint::outgoing(socket.as_fd(), reports, settings.0).map_err(Error::Endpoint)?;
        Ok(Sender(Arc::new(endpoint)))
    }

    /// It as the sink of a transfer, which is done when its last datagram was sent.
    pub fn sink(&self, pace: Pace) -> Sink {
        let mut sink = Sink::endpoint(Arc::clone(&self.0), Range::From(0));
        sink.0.pace = pace.0;
        sink
    }

    /// How it fares.
    pub fn state(&self) -> Sending {
        self.0.sending().unwrap_or_default()
    }
}

/// A media stream that is received by a socket.
#[derive(Clone, Debug)]
pub struct Receiver(Arc<Endpoint>);

impl Receiver {
    /// Duplicates a socket of datagrams.
    ///
    /// # Errors
    ///
    /// [`Error::Endpoint`].
    pub fn new(socket: &impl AsFd, framing: Framing) -> Result<Receiver, Error> {
        let endpoint = Endpoint::incoming(socket.as_fd(), framing).map_err(Error::Endpoint)?;
        Ok(Receiver(Arc::new(endpoint)))
    }

    /// It as the source of a transfer, which goes on until [`Receiver::stop`]. A missing datagram is waited
    /// for so long.
    pub fn source(&self, patience: Duration) -> Source {
        let mut source = Source::endpoint(Arc::clone(&self.0), Range::From(0));
        source.0.pace.window_us = u32::try_from(patience.as_micros()).unwrap_or(u32::MAX);
        source
    }

    /// Ends the stream: its transfer succeeds with what has come.
    pub fn stop(&self) {
        self.0.stop_receiving();
    }

    /// How it fares.
    pub fn state(&self) -> Receiving {
        self.0.receiving().unwrap_or_default()
    }
}
