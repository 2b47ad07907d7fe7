//! Doorbells that the owner's loop takes from the sockets itself, instead of a thread that wakes it for each.
//!
//! ```text
//!   client --- socket --- Server's thread --- lends its session, once a doorbell was rung --> Inbox: the loop
//!                                ^                                                              |
//!                                +------ gives it back, at the first message of another kind ---+
//! ```
//!
//! A doorbell is a store to BAR0 without an answer: taking one never waits. Everything else may (an answer waits for the client, an
//! unmapping for the end of what uses the memory), so it is left to the thread, which lends its session again at the next doorbell. A
//! session belongs to either side at a time, and so do its messages: they stay in order.
//!
//! [`Inbox::take`] reads once from each socket, at most 4 KiB: a client that floods its socket takes no more than its part of the loop's
//! time.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{Timespec, epoll};

use crate::server::{Session, lock};
use crate::wake::Wake;

/// Most sockets that are looked at in one call.
const EVENTS: usize = 64;
/// Number of the waker's event, which no session has.
const WAKE: u64 = u64::MAX;

/// A session that the loop may take messages of, until this is dropped.
pub(crate) struct Lent {
    session: Arc<Mutex<Session>>,
    socket: Arc<UnixStream>,
    /// The thread waits for its end.
    _until: Sender<Infallible>,
}

/// Lends sessions to an inbox.
#[derive(Clone)]
pub struct Lender {
    sender: Sender<Lent>,
    wake: Wake,
}

impl Lender {
    /// Lends a session until the loop has no more use for it.
    pub(crate) fn lend(&self, session: Arc<Mutex<Session>>, socket: Arc<UnixStream>) {
        let (until, over) = channel();
        // If there is no loop any more, it is over at once.
        let _ = self.sender.send(Lent { session, socket, _until: until });
        self.wake.notify();
        let _ = over.recv();
    }
}

/// The sessions that are lent to the loop.
pub struct Inbox {
    epoll: OwnedFd,
    coming: Receiver<Lent>,
    lender: Lender,
    lent: HashMap<u64, Lent>,
    next: u64,
}

impl Inbox {
    /// Makes one without sessions, for the thread that `wake` wakes.
    ///
    /// # Errors
    ///
    /// Those of epoll_create(2) and epoll_ctl(2).
    pub fn new(wake: &Wake) -> io::Result<Inbox> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Each call of the waker is one event: nobody needs to read its eventfd.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, wake, epoll::EventData::new_u64(WAKE), flags)?;
        let (sender, coming) = channel();
        let lender = Lender { sender, wake: wake.clone() };
        Ok(Inbox { epoll, coming, lender, lent: HashMap::new(), next: 0 })
    }

    /// Returns what lends sessions to this.
    pub fn lender(&self) -> Lender {
        self.lender.clone()
    }

    /// Takes the doorbells that have come; does not wait. Returns true if there were some.
    pub fn take(&mut self) -> bool {
        let mut busy = false;
        while let Ok(lent) = self.coming.try_recv() {
            busy = true;
            self.add(lent);
        }
        let mut events = [MaybeUninit::uninit(); EVENTS];
        for event in self.wait(&mut events, Some(Duration::ZERO)) {
            let key = event.data.u64();
            let Some(lent) = self.lent.get(&key) else { continue };
            busy = true;
            if !lock(&lent.session).take_doorbells(&lent.socket)
                && let Some(lent) = self.lent.remove(&key)
            {
                let _ = epoll::delete(&self.epoll, &lent.socket);
            }
        }
        busy
    }

    fn add(&mut self, lent: Lent) {
        self.next += 1;
        let data = epoll::EventData::new_u64(self.next);
        // What was read already is not announced again.
        if lock(&lent.session).take_read_doorbells(&lent.socket)
            && epoll::add(&self.epoll, &lent.socket, data, epoll::EventFlags::IN).is_ok()
        {
            self.lent.insert(self.next, lent);
        }
    }

    /// Waits for messages or a call of the waker: the next [`Inbox::take`] takes them.
    pub fn sleep(&self, limit: Option<Duration>) {
        self.wait(&mut [MaybeUninit::uninit(); EVENTS], limit);
    }

    fn wait<'a>(
        &self,
        events: &'a mut [MaybeUninit<epoll::Event>],
        limit: Option<Duration>,
    ) -> &'a [epoll::Event] {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        // An interrupted wait is an early end of it.
        epoll::wait(&self.epoll, events, limit.as_ref()).map_or(&[], |(come, _)| come)
    }
}

/// Readable when there are messages, or the waker was called; [`Inbox::take`] takes both.
impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inbox {{ {} sessions }}", self.lent.len())
    }
}

impl std::fmt::Debug for Lender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lender")
    }
}
