//! A session on each core.

use super::Engine;
use super::meter;
use crate::endpoint::{Sink, Source};
use crate::error::Error;
use crate::op::Op;
use crate::queue::DEPTH;
use crate::session::{Request, Session, Transfer};
use std::sync::{Mutex, MutexGuard};

/// A session on each core of an engine, for a program that gives its transfers to the engine from one place:
/// each goes to one core, whole, and which one is found when it is submitted.
///
/// It is the core with the fewest transfers in flight. Streams that can share lanes are gathered, unless
/// [`Builder::gather`](super::Builder::gather) forbids it: if the chain has an operator whose unit takes many
/// streams side by side, as md5's does, the transfer goes to the core with most such streams, until its lanes
/// are full. Transfers with one request id ([`Request::rid`]), other than 0, go to one core, where they keep
/// their order.
///
/// ```
/// use dcs::engine::Cores;
/// use dcs::{Engine, Op, Sink, Source};
///
/// let engine = Engine::builder().cores(Cores::All).start()?;
/// let spread = engine.spread()?;
/// let done = spread.transfer(Source::memory(*b"hello"), [Op::Md5], Sink::memory(5))?.wait()?;
/// assert_eq!(done.digests[0].to_string(), "5d41402abc4b2a76b9719d911017c592");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Spread {
    sessions: Vec<Session>,
    gather: bool,
    /// Held while a session with room is found for a transfer, until that has taken it.
    placing: Mutex<()>,
}

impl Engine {
    /// Opens a session on each core, each with room for 64 transfers in flight.
    ///
    /// # Errors
    ///
    /// [`Error::NoSessions`], [`Error::Forked`].
    pub fn spread(&self) -> Result<Spread, Error> {
        self.spread_with_depth(DEPTH)
    }

    /// Opens a session on each core, each with room for `depth` transfers in flight.
    ///
    /// # Errors
    ///
    /// [`Error::NoSessions`], [`Error::Depth`], [`Error::Forked`].
    pub fn spread_with_depth(&self, depth: u16) -> Result<Spread, Error> {
        let sessions = self.cores.iter().map(|core| Engine::open(&core.shared, depth));
        let sessions = sessions.collect::<Result<_, _>>()?;
        Ok(Spread { sessions, gather: self.gather, placing: Mutex::new(()) })
    }
}

impl Spread {
    /// Its sessions, one for each core.
    pub fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    /// Submits a transfer of a source through operators to a sink.
    ///
    /// # Errors
    ///
    /// [`Error`]: nothing was moved. [`Error::SessionFull`]: no core has room for it.
    pub fn transfer(
        &self,
        source: Source,
        chain: impl IntoIterator<Item = Op>,
        sink: Sink,
    ) -> Result<Transfer, Error> {
        self.request(source, chain, sink).submit()
    }

    /// Begins a transfer with more settings.
    pub fn request(&self, source: Source, chain: impl IntoIterator<Item = Op>, sink: Sink) -> Request<'_> {
        Request::new(crate::session::To::Spread(self), source, chain, sink)
    }

    /// The right to place a transfer: while it is held, room is only made.
    pub(crate) fn placing(&self) -> MutexGuard<'_, ()> {
        self.placing.lock().unwrap_or_else(|error| error.into_inner())
    }

    /// The session for a transfer.
    pub(crate) fn session_for(&self, chain: &[Op], rid: u32) -> &Session {
        if rid != 0 {
            return &self.sessions[rid as usize % self.sessions.len()];
        }
        let with_room = self.sessions.iter().enumerate().filter(|(_, session)| !session.is_full());
        let meters = with_room.map(|(at, session)| (at, session.meter()));
        // If none has room, the first reports it.
        let at = meter::place(meters, chain.iter().map(Op::number), self.gather).unwrap_or(0);
        &self.sessions[at]
    }
}
