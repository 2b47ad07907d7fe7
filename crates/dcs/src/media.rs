//! Media streams in datagrams: a sink whose bytes are sent when they are due, by a socket of the kernel's, or by
//! a NIC that the engine or its card drives; a source that puts what comes into its order, by a socket.
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
use crate::engine::Engine;
use crate::error::Error;
use crate::net::{NetError, OwnedHandle};
use dcs_abi::admin::PacedOptions;
use dcs_abi::descriptor::{Pacing, WINDOW_MAX_US};
use dcs_devices::Endpoint;
use dcs_media::rtp::Header;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use dcs_abi::descriptor::Pace as WirePace;
pub use dcs_devices::{Receiving, Sending};
pub use dcs_media::sender::{DEVIATIONS, LATE_AFTER, SLIP, Statistics};
pub use dcs_media::{Framing, sdp};

/// Default time within which datagrams that are due go together, and for which a missing one is waited for.
pub const WINDOW: Duration = Duration::from_millis(1);
/// The longest span of a window, also for received datagrams.
pub const WINDOW_MAX: Duration = Duration::from_micros(WINDOW_MAX_US as u64);
/// Default time for which a missing datagram is waited for.
pub const PATIENCE: Duration = Duration::from_millis(100);

/// The schedule of bytes.
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

/// A sender's way of making datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    sender: dcs_media::sender::Settings,
    random: u64,
}

impl Settings {
    /// Seven packets of a transport stream, and nothing else.
    pub fn plain() -> Settings {
        Settings { sender: dcs_media::sender::Settings::default(), random: 0 }
    }

    /// The same after RTP's header. `random`: an unpredictable number, from which the stream's number, its
    /// first sequence number and its first timestamp are derived (RFC 3550, 5.1).
    pub fn rtp(random: u64) -> Settings {
        let (framing, first) = (Framing::Rtp, Header::random(random));
        let sender = dcs_media::sender::Settings { framing, first, ..Default::default() };
        Settings { sender, random }
    }

    /// Bytes of a datagram's payload: a multiple of 188 for a transport stream; without this 1,316.
    pub fn payload(mut self, bytes: usize) -> Settings {
        self.sender.payload = bytes;
        self
    }
}

/// A media stream that is sent by a socket, or by a NIC.
#[derive(Clone, Debug)]
pub struct Sender {
    endpoint: Arc<Endpoint>,
    /// The NIC's stream, and the NIC's address.
    nic: Option<(Arc<OwnedHandle>, Ipv4Addr)>,
}

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
        let endpoint =
            Endpoint::outgoing(socket.as_fd(), reports, settings.sender).map_err(Error::Endpoint)?;
        Ok(Sender { endpoint: Arc::new(endpoint), nic: None })
    }

    /// Opens a stream of the NIC by which this host or group is reached: one that the engine drives itself
    /// ([`Builder::nic`](crate::engine::Builder::nic)), or one of its card's. `hops`: how many a datagram to a
    /// group may take. Reports of RTP go to the next port.
    ///
    /// A datagram counts as sent when the NIC has sent it. Without a link, or while ARP gets no answer,
    /// datagrams that are due are lost (ENETDOWN, EHOSTUNREACH), and the stream goes on.
    ///
    /// # Errors
    ///
    /// [`NetError`]: the engine has no NIC, or none that reaches that address; a port is 0, the payload does not fit, or there are 2,048
    /// streams.
    pub fn by_nic(
        engine: &Engine,
        to: SocketAddrV4,
        hops: u8,
        settings: Settings,
    ) -> Result<Sender, NetError> {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let dcs_media::sender::Settings { framing, payload, .. } = settings.sender;
        let (held, local) = engine.open_paced(PacedOptions {
            nic: 0,
            to,
            // More than a datagram's is refused.
            payload: u16::try_from(payload).unwrap_or(u16::MAX),
            hops,
            rtp: framing == Framing::Rtp,
            random: settings.random,
            unix: unix.as_nanos() as u64,
        })?;
        let endpoint = Endpoint::device_paced(held.handle(), Arc::clone(&held) as _);
        Ok(Sender { endpoint: Arc::new(endpoint), nic: Some((held, local)) })
    }

    /// It as the sink of a transfer, which is done when its last datagram was sent.
    pub fn sink(&self, pace: Pace) -> Sink {
        let mut sink = Sink::endpoint(Arc::clone(&self.endpoint), Range::From(0));
        sink.0.pace = pace.0;
        sink
    }

    /// The address of the NIC that sends it, if one does.
    pub fn local(&self) -> Option<Ipv4Addr> {
        self.nic.as_ref().map(|(_, local)| *local)
    }

    /// Returns its statistics; all zero if the NIC's stream is gone.
    pub fn state(&self) -> Sending {
        let state = match &self.nic {
            Some((stream, _)) => stream.paced_sending(),
            None => self.endpoint.sending(),
        };
        state.unwrap_or_default()
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

    /// Returns its state.
    pub fn state(&self) -> Receiving {
        self.0.receiving().unwrap_or_default()
    }
}
