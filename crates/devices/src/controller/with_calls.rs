//! Calls that may wait, which the controller hands to threads.

use super::{Controller, Event, Pending};
use crate::attempt::{Attempt, DiskRequest};
use crate::buffer::Buffer;
use crate::calls::{Copied, Done, Work};
use crate::endpoint::{Closing, Endpoint};
use crate::route::Route;
use dcs_abi::status::Status;
use dcs_engine::{BlockId, EndpointRole, Failure, Operation, OperationId, OperationKind, Outcome};
use std::sync::Arc;

/// Returns the endpoint that an operation acts on.
pub(super) fn endpoint_of(operation: &Operation, route: &Route) -> Arc<Endpoint> {
    let role = match operation.kind {
        OperationKind::Read { role, .. } => role,
        _ => EndpointRole::Destination,
    };
    Arc::clone(&route.side(role).endpoint)
}

impl Controller {
    /// Takes an operation's block, if it has one, out of the pool.
    pub(super) fn take_block(&mut self, operation: &Operation) -> Option<(BlockId, Buffer)> {
        let (OperationKind::Read { block, .. } | OperationKind::Write { block, .. }) = operation.kind else {
            return None;
        };
        self.pool.take(block).map(|buffer| (block, buffer))
    }

    /// Hands an operation's call to a thread.
    pub(super) fn call(
        &mut self,
        operation: &Operation,
        request: DiskRequest,
        route: &Route,
    ) -> Option<Outcome> {
        self.call_at(operation, request, endpoint_of(operation, route));
        None
    }

    pub(super) fn call_at(&mut self, operation: &Operation, request: DiskRequest, endpoint: Arc<Endpoint>) {
        let block = self.take_block(operation);
        let pool = endpoint.pool();
        self.pending.insert(operation.id, Pending::Call { operation: *operation, aborted: false });
        self.calls.make(pool, operation.id, Work::Disk { request, endpoint, block });
    }

    /// Hands a copy within the kernel to a thread.
    pub(super) fn call_copy(&mut self, operation: &Operation, route: &mut Route) -> Option<Outcome> {
        let OperationKind::Direct { source, destination, length, more } = operation.kind else {
            return Some(Outcome::Failed(Failure::new(Status::InternalError)));
        };
        // The call may wait for the destination's file system, if the destination is a file.
        let sides = [EndpointRole::Destination, EndpointRole::Source].map(|role| &route.side(role).endpoint);
        let pool = sides.iter().find(|side| side.closing() == Closing::OnDisk).map_or(0, |side| side.pool());
        let route = Box::new(route.lend());
        self.pending.insert(operation.id, Pending::Call { operation: *operation, aborted: false });
        self.calls.make(pool, operation.id, Work::Copy { route, source, destination, length, more });
        None
    }

    /// Withdraws a call that no thread has begun; one that has begun runs to its end.
    pub(super) fn abort_call(&mut self, id: OperationId) {
        if let Some(Pending::Call { aborted, .. }) = self.pending.get_mut(&id) {
            *aborted = true;
        }
        let Some(work) = self.calls.withdraw(id) else { return };
        match work {
            Work::Disk { endpoint, block, .. } => {
                self.take_back(block);
                self.let_go(endpoint);
            }
            Work::Copy { route, .. } => self.let_go_of(*route),
            Work::Close { .. } => {}
        }
        self.finish_aborted(id);
    }

    fn take_back(&mut self, block: Option<(BlockId, Buffer)>) {
        if let Some((block, buffer)) = block {
            self.pool.put(block, buffer);
        }
    }

    /// Processes the calls that have returned.
    pub(super) fn reap_calls(&mut self) {
        self.calls.grow_stuck_pools();
        let mut back = std::mem::take(&mut self.back);
        self.calls.take(&mut back);
        for Done { operation, attempt, work } in back.drain(..) {
            let Some(Pending::Call { operation: asked, aborted }) = self.pending.remove(&operation) else {
                continue;
            };
            match work {
                Work::Disk { endpoint, block, .. } => {
                    self.take_back(block);
                    self.let_go(endpoint);
                    let broken = Outcome::Failed(Failure::new(Status::InternalError));
                    let outcome = if let Attempt::Done(outcome) = attempt { outcome } else { broken };
                    self.done(operation, outcome);
                }
                Work::Copy { route, .. } => {
                    let copied = Some(Box::new(Copied { attempt, route: *route }));
                    let pending = Pending::Retry { aborted, by_host: false, copied };
                    self.pending.insert(operation, pending);
                    self.events.push(Event::Retry(asked));
                }
                Work::Close { .. } => {}
            }
        }
        self.back = back;
    }

    /// Processes a copy that has returned; `route` is the command's, if that is still bound.
    pub(super) fn copied(
        &mut self,
        operation: &Operation,
        route: Option<&mut Route>,
        copied: Copied,
        aborted: bool,
    ) -> Option<Outcome> {
        let Copied { attempt, route: mut lent } = copied;
        match (route, attempt) {
            (_, Attempt::Done(outcome)) if aborted => {
                self.let_go_of(lent);
                Some(outcome)
            }
            (Some(route), attempt) if !aborted => {
                route.take_back(&mut lent);
                self.settle(operation, route, attempt)
            }
            _ => {
                self.let_go_of(lent);
                Some(Outcome::Failed(Failure::new(Status::Cancelled)))
            }
        }
    }

    /// Releases both ends of a command that is done, neither of which is paced.
    #[inline(always)]
    pub fn let_go_of_ends(&self, [source, destination]: [Arc<Endpoint>; 2]) {
        if let Some(source) = Arc::into_inner(source) {
            self.close_aside(source);
        }
        if let Some(destination) = Arc::into_inner(destination) {
            self.close_aside(destination);
        }
    }

    /// Closes an endpoint that has no other user, on a thread if that may block.
    #[cold]
    fn close_aside(&self, endpoint: Endpoint) {
        if endpoint.closing() != Closing::AtOnce {
            self.calls.close(endpoint.pool(), endpoint);
        }
    }

    fn let_go_of(&mut self, route: Route) {
        route.into_endpoints().for_each(|endpoint| self.let_go(endpoint));
    }

    /// Releases an endpoint without waiting.
    pub fn let_go(&mut self, endpoint: Arc<Endpoint>) {
        self.let_go_of_paced(&endpoint);
        if let Some(endpoint) = Arc::into_inner(endpoint) {
            self.close_aside(endpoint);
        }
    }
}
