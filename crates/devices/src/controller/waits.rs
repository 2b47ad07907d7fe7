//! Waits for descriptors, with and without a ring, and for times.

use super::{Controller, Pending, borrow};
use crate::attempt::Interest;
use dcs_engine::{Operation, OperationId, Outcome};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Controller {
    /// Resumes an operation whose descriptor is ready, or only in error.
    pub(super) fn is_ready(&mut self, id: OperationId, only_error: bool) {
        match self.pending.remove(&id) {
            Some(Pending::Ready { aborted: true, .. }) => self.finish_aborted(id),
            Some(Pending::Ready { operation, fd, interest, .. }) => {
                if only_error && self.edges.watch(id, borrow(fd), interest) {
                    self.arm_edges();
                }
                self.retry(operation);
            }
            Some(other) => drop(self.pending.insert(id, other)),
            None => {}
        }
    }

    pub(super) fn arm_edges(&mut self) {
        if let Some(event) = self.edges.raw()
            && let Some(ring) = self.full_ring()
        {
            ring.poll_edges(event);
        }
    }

    /// Schedules an operation to be tried again after `pause`.
    pub(super) fn retry_after(&mut self, operation: &Operation, pause: Duration) -> Option<Outcome> {
        self.pending.insert(operation.id, Pending::Later { operation: *operation });
        self.later.push((Instant::now() + pause, operation.id));
        None
    }

    /// Returns the time until the next of them is due.
    pub(super) fn until_due(&self) -> Option<Duration> {
        let first = self.later.iter().map(|(at, _)| *at).min()?;
        Some(first.saturating_duration_since(Instant::now()))
    }

    /// Tries operations again whose time has come.
    pub(super) fn retry_due(&mut self) {
        if self.later.is_empty() {
            return;
        }
        let now = Instant::now();
        for (_, id) in self.later.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
            match self.pending.remove(&id) {
                Some(Pending::Later { operation }) => self.retry(operation),
                Some(other) => drop(self.pending.insert(id, other)),
                // It was aborted.
                None => {}
            }
        }
    }

    /// Sleeps until the waker is used; nothing else ends the sleep.
    pub fn rest(&self) {
        let mut fds = [PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN)];
        let _ = rustix::event::poll(&mut fds, None);
        self.clear_wake();
    }

    /// Waits without a ring: poll(2) on every descriptor that an operation waits for, and on the waker.
    pub(super) fn poll_plain(&mut self, timeout: Option<Duration>) {
        let mut ids = Vec::with_capacity(self.pending.len());
        let mut fds = Vec::with_capacity(self.pending.len() + 1);
        let wake = Arc::clone(&self.wake);
        fds.push(PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN));
        for (id, pending) in &self.pending {
            if let Pending::Ready { fd, interest, .. } = pending
                && !self.edges.has(*id)
            {
                let flags = if *interest == Interest::Readable { PollFlags::IN } else { PollFlags::OUT };
                fds.push(PollFd::from_borrowed_fd(borrow(*fd), flags));
                ids.push(*id);
            }
        }
        if let Some(event) = self.edges.event() {
            fds.push(PollFd::from_borrowed_fd(event, PollFlags::IN));
        }
        if let Some(ring) = self.ring.as_ref().filter(|ring| ring.is_busy()) {
            fds.push(PollFd::from_borrowed_fd(borrow(ring.fd()), PollFlags::IN));
        }
        if fds.len() == 1 && timeout == Some(Duration::ZERO) {
            return;
        }
        let timespec = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        if !matches!(rustix::event::poll(&mut fds, timespec.as_ref()), Ok(1..)) {
            return;
        }
        if !fds[0].revents().is_empty() {
            self.clear_wake();
        }
        let told = ids.iter().zip(&fds[1..]).map(|(id, fd)| (*id, fd.revents()));
        let ready: Vec<(OperationId, PollFlags)> = told.filter(|(_, told)| !told.is_empty()).collect();
        drop(fds);
        for (id, told) in ready {
            self.is_ready(id, told == PollFlags::ERR);
        }
        for id in self.edges.take() {
            self.is_ready(id, false);
        }
    }
}
