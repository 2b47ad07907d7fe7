//! Media streams in datagrams.

use super::{Controller, Pending};
use crate::attempt::Attempt;
use crate::endpoint::{Endpoint, Object};
use crate::paced::{Outgoing, Paced, locked};
use crate::route::Route;
use crate::vfio_devices::{DriveWork, Driven};
use dcs_abi::descriptor::Pace;
use dcs_abi::result::PATH_SYSCALL;
use dcs_abi::status::Status;
use dcs_engine::{BlockId, EndpointRole, Failure, OperationId, Outcome};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Reads from a stream.
pub(super) fn read(stream: &Paced, into: &mut [u8], pace: &Pace) -> Attempt {
    match stream {
        Paced::In(incoming) => locked(incoming).read(into, pace),
        Paced::Out(_) | Paced::Device(_) => Attempt::failed(Failure::new(Status::AccessDenied)),
    }
}

/// Returns the stream that a route ends in.
fn outgoing(endpoint: &Endpoint) -> Result<&Mutex<Outgoing>, Attempt> {
    match &endpoint.object {
        Object::Paced(Paced::Out(outgoing)) => Ok(outgoing),
        _ => Err(Attempt::failed(Failure::new(Status::InternalError))),
    }
}

/// Returns the work for the NIC that sends the route's stream, if one does.
fn driven(route: &mut Route, work: DriveWork) -> Option<Attempt> {
    let Object::Paced(Paced::Device(stream)) = &route.side(EndpointRole::Destination).endpoint.object else {
        return None;
    };
    let handle = stream.handle;
    let begin = (!std::mem::replace(&mut route.begun, true)).then_some(route.pace);
    Some(Attempt::Drive(Driven::Paced { handle, begin, more: route.more }, work))
}

impl Controller {
    /// Gives a stream bytes of a block; if it has no room, the operation waits.
    pub(super) fn write_paced(
        &mut self,
        operation: OperationId,
        route: &mut Route,
        block: BlockId,
        range: Range<u32>,
    ) -> Attempt {
        let (start, length) = (range.start, range.end - range.start);
        let work = DriveWork::Write { position: 0, block, start, length, more: false };
        if let Some(attempt) = driven(route, work) {
            return attempt;
        }
        let Some(buffer) = self.pool.get_mut(block) else { return self.without(block) };
        let bytes = &buffer.bytes()[range.start as usize..range.end as usize];
        let begun = std::mem::replace(&mut route.begun, true);
        let endpoint = &route.side(EndpointRole::Destination).endpoint;
        let taken = outgoing(endpoint).map(|outgoing| {
            let mut outgoing = locked(outgoing);
            if !begun {
                outgoing.begin(&route.pace);
            }
            (outgoing.push(bytes), outgoing.next())
        });
        let (taken, next) = match taken {
            Ok(taken) => taken,
            Err(failed) => return failed,
        };
        let waits = matches!(taken, Ok(0)).then_some(operation);
        if next.is_some() || waits.is_some() {
            self.streams.add(endpoint, next, waits);
        }
        match taken {
            Ok(0) => Attempt::Paced,
            Ok(count) => Attempt::moved(count, PATH_SYSCALL),
            Err(failure) => Attempt::failed(failure),
        }
    }

    /// Waits until everything that a stream has taken is sent; if more follows, only notes that.
    pub(super) fn flush_paced(&mut self, operation: OperationId, route: &mut Route) -> Attempt {
        if let Some(attempt) = driven(route, DriveWork::Flush) {
            return attempt;
        }
        let begun = std::mem::replace(&mut route.begun, true);
        if !begun && route.more {
            // Nothing precedes what follows.
            return Attempt::Done(Outcome::Flushed);
        }
        let endpoint = &route.side(EndpointRole::Destination).endpoint;
        let state = outgoing(endpoint).map(|outgoing| {
            let mut outgoing = locked(outgoing);
            // An empty transfer ends the one before it.
            if !begun {
                outgoing.begin(&route.pace);
            }
            let ended = outgoing.end(route.more);
            (ended, outgoing.is_empty(), outgoing.next())
        });
        match state {
            Err(failed) => failed,
            Ok((Err(failure), ..)) => Attempt::failed(failure),
            Ok((Ok(()), is_empty, next)) => {
                let waits = (!is_empty && !route.more).then_some(operation);
                if next.is_some() || waits.is_some() {
                    self.streams.add(endpoint, next, waits);
                }
                if waits.is_some() { Attempt::Paced } else { Attempt::Done(Outcome::Flushed) }
            }
        }
    }

    /// Sends what is due, and resumes operations that waited for that.
    pub(super) fn send_due(&mut self) {
        let mut ready = std::mem::take(&mut self.unpaced);
        self.streams.send_due(&mut ready);
        for id in ready.drain(..) {
            match self.pending.remove(&id) {
                Some(Pending::Paced { operation }) => self.retry(operation),
                Some(other) => drop(self.pending.insert(id, other)),
                None => {}
            }
        }
        self.unpaced = ready;
    }

    /// Ends a transfer on a stream when its endpoint is released: bytes that the stream has taken get their times.
    pub(super) fn let_go_of_paced(&mut self, endpoint: &Arc<Endpoint>) {
        if let (Object::Paced(Paced::Device(stream)), Some(drives)) = (&endpoint.object, &mut self.drives) {
            drives.end_paced(stream.handle);
        }
        if let Object::Paced(Paced::Out(outgoing)) = &endpoint.object {
            let next = {
                let mut outgoing = locked(outgoing);
                // A stream that failed has reported it.
                let _ = outgoing.end(true);
                outgoing.next()
            };
            if next.is_some() {
                self.streams.add(endpoint, next, None);
            }
        }
    }
}
