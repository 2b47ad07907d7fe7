//! Edge-triggered waits: a descriptor is reported when something happens to it, not for as long as it lasts.
//!
//! A socket whose error queue holds something (its owner's own MSG_ZEROCOPY, say) is in error for every poll without being ready: a program
//! that waits for bytes by poll alone never sleeps. The queue is the owner's, so the engine does not read it. It waits for the next event
//! instead, with epoll's EPOLLET.

use crate::attempt::Interest;
use dcs_engine::OperationId;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::collections::HashMap;

/// Operations that wait for an event of their descriptor.
#[derive(Debug, Default)]
pub(crate) struct Edges {
    /// Epoll instance, made on first use.
    epoll: Option<OwnedFd>,
    /// Duplicate descriptors, one for each operation: a descriptor can be watched only once.
    watched: HashMap<OperationId, OwnedFd>,
}

impl Edges {
    /// Watches a descriptor for an operation from now on. A caller that examines the descriptor after this misses nothing. Returns false if
    /// that is not available.
    pub fn watch(&mut self, id: OperationId, fd: BorrowedFd<'_>, interest: Interest) -> bool {
        if self.watched.contains_key(&id) {
            return true;
        }
        // A pipe in error has nothing at its other end, and a write will say so.
        if rustix::net::sockopt::socket_type(fd).is_err() {
            return false;
        }
        let Ok(fd) = rustix::io::fcntl_dupfd_cloexec(fd, 3) else { return false };
        if self.epoll.is_none() {
            self.epoll = epoll::create(CreateFlags::CLOEXEC).ok();
        }
        let Some(epoll) = &self.epoll else { return false };
        let flags = EventFlags::ET
            | match interest {
                Interest::Readable => EventFlags::IN | EventFlags::RDHUP,
                Interest::Writable => EventFlags::OUT,
            };
        let added = epoll::add(epoll, &fd, EventData::new_u64(id.to_bits()), flags).is_ok();
        if added {
            self.watched.insert(id, fd);
        }
        added
    }

    /// Returns true if an operation's descriptor is watched.
    pub fn has(&self, id: OperationId) -> bool {
        !self.watched.is_empty() && self.watched.contains_key(&id)
    }

    /// Stops watching for an operation; returns whether it was watched.
    pub fn forget(&mut self, id: OperationId) -> bool {
        if self.watched.is_empty() {
            return false;
        }
        let Some(fd) = self.watched.remove(&id) else { return false };
        if let Some(epoll) = &self.epoll {
            // The open file lives on in its owner's descriptor, and would still be watched.
            let _ = epoll::delete(epoll, &fd);
        }
        true
    }

    /// Returns the descriptor that becomes readable when something has happened, `None` if nothing is watched.
    pub fn event(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.as_ref().filter(|_| !self.watched.is_empty()).map(AsFd::as_fd)
    }

    /// Returns true if it has no descriptor.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.epoll.is_none()
    }

    /// Closes its descriptor if nothing is watched any more. `stop_polling` has a ring stop waiting for it, and returns false if that takes
    /// a while.
    pub fn close_if_spare(&mut self, stop_polling: impl FnOnce() -> bool) {
        if self.epoll.is_some() && self.watched.is_empty() && stop_polling() {
            self.epoll = None;
        }
    }

    /// Returns the same as [`Edges::event`], as a number.
    pub fn raw(&self) -> Option<RawFd> {
        self.event().map(|fd| fd.as_raw_fd())
    }

    /// Takes the operations whose descriptors have had an event.
    pub fn take(&mut self) -> Vec<OperationId> {
        let Some(epoll) = &self.epoll else { return Vec::new() };
        let mut events: Vec<Event> = Vec::with_capacity(self.watched.len().max(1));
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), Some(&now));
        events.iter().map(|event| OperationId::from_bits(event.data.u64())).collect()
    }
}
