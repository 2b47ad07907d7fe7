//! Commands that go through ([`Passage`]): run as their entries are fetched, without a route and without a place among those that
//! are bound, as long as nothing has to wait.

use super::{Bound, KernelLoop, entry_cid, is_secret};
use crate::kernel::thread::{Shield, clock};
use crate::kernel::wipe;
use crate::queue::alone::Found;
use crate::queue::{Finished, QueuePair};
use dcs_abi::descriptor::Extent;
use dcs_abi::operator::{Operator, OperatorKind};
use dcs_abi::status::{Stage, Status};
use dcs_devices::controller::Incomplete;
use dcs_devices::{Controller, Ends};
use dcs_engine::{
    Alone, Binding, EndpointRole, Event, Failure, Operation, OperationKind, Outcome, Passage, Posted,
    Progress, QueueId, Ran, Then,
};
use dcs_ndp::Chain;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Everything that a command needs that goes through, or is short.
pub(super) struct Owner<'a> {
    pub pair: &'a QueuePair,
    pub controller: &'a mut Controller,
    pub chain: &'a mut Chain,
    pub spare_chains: &'a mut Vec<Chain>,
    pub bound: &'a mut [Option<Bound>],
    /// Endpoints of these handles, if they are known.
    pub found: Option<Found>,
    /// The driving thread is the application's, and signals would reach it.
    pub unshielded: Option<&'a mut Option<Shield>>,
}

impl KernelLoop {
    /// Fetches the entry in this slot of a queue's ring, and hands it in. Returns true if its command was run.
    #[inline]
    pub(super) fn fetch_entry(&mut self, id: QueueId, slot: u16) -> bool {
        let Some(queue) = self.queues.get_mut(id.0 as usize).and_then(Option::as_mut) else {
            self.handle(Event::Entry { queue: id, bytes: &[0; 64] });
            return false;
        };
        let bytes = queue.pair.read_submission(slot);
        queue.next_fetch = queue.pair.after(slot);
        if !queue.unwanted.is_empty() {
            self.handle(Event::Entry { queue: id, bytes: &bytes });
            self.fetched(id, &bytes);
            return false;
        }
        let mut owner = Owner {
            pair: &queue.pair,
            controller: &mut self.controller,
            chain: &mut self.chain,
            spare_chains: &mut self.spare_chains,
            bound: &mut self.bound,
            found: None,
            unshielded: self.gets_signals.then_some(&mut self.shield),
        };
        let (mut now, mut ran_it) = (self.now, false);
        let posted = self.engine.enter(now, id, &bytes, |passage, ran| {
            let went = owner.run::<false>(passage, ran);
            if let Progress::Ran(at) = went {
                (now, ran_it) = (at, true);
            }
            went
        });
        self.now = now;
        if let Some(Posted { slot, entry, address, result }) = posted {
            let (slow, spare) = queue.pair.complete(slot, entry, Some((address, result)));
            if !slow.is_empty() {
                self.let_go(slow);
            }
            if let Some(area) = spare {
                self.engine.recycle(area);
            }
        }
        ran_it
    }
}

impl KernelLoop {
    /// Runs the transfer of that identifier through, if it is all that there is to do, and hands over how it ended. Returns false if it
    /// did not: then a round does the rest.
    pub(super) fn go_alone(
        &mut self,
        pair: &Arc<QueuePair>,
        cid: u16,
        of: &mut dyn FnMut(&Finished<'_>),
    ) -> bool {
        let Some(id) = pair.id.get().copied().filter(|_| self.is_at_rest()) else { return false };
        let Some(Some(queue)) = self.queues.get_mut(id.0 as usize) else { return false };
        let (tail, head) = (pair.sq_tail.load(Ordering::SeqCst), pair.cq_head.load(Ordering::Acquire));
        let next = pair.after(queue.next_fetch);
        if u32::from(next) != tail || !Arc::ptr_eq(&queue.pair, pair) || !queue.unwanted.is_empty() {
            return false;
        }
        let bytes = pair.read_submission(queue.next_fetch);
        if entry_cid(&bytes) != cid {
            return false;
        }
        let Some(found) = pair.find_shared(cid) else { return false };
        if std::mem::replace(&mut queue.seen_head, head) != head {
            self.engine.handle(self.now, Event::CompletionDoorbell { queue: id, head });
        }
        let mut owner = Owner {
            pair,
            controller: &mut self.controller,
            chain: &mut self.chain,
            spare_chains: &mut self.spare_chains,
            bound: &mut self.bound,
            found: Some(found),
            unshielded: self.gets_signals.then_some(&mut self.shield),
        };
        self.now = clock();
        let alone = self
            .engine
            .enter_alone(self.now, (id, tail), &bytes, |passage, ran| owner.run::<true>(passage, ran));
        if matches!(alone, Alone::Not) {
            return false;
        }
        (queue.seen_tail, queue.next_fetch) = (tail, next);
        self.unpublished = true;
        let Alone::Ended(slot, entry, result) = alone else {
            self.now = clock();
            return false;
        };
        queue.seen_head = pair.pass_head(slot);
        self.now = result.finished;
        let (chain, [source, destination, prefix]) = pair.pass(cid);
        of(&Finished { entry, chain, result, reason: None });
        if let (Some(source), Some(destination)) = (source, destination) {
            self.controller.let_go_of_ends([source, destination]);
        }
        if let Some(prefix) = prefix {
            self.controller.let_go(prefix);
        }
        true
    }

    /// Returns true if nothing is under way, and no session has rung but perhaps one.
    fn is_at_rest(&self) -> bool {
        let is_open = !self.closed && !self.stopping && self.opening.is_empty() && self.open.len() == 1;
        is_open && self.controller.is_quiet()
    }
}

fn offset(extents: &[Extent]) -> u64 {
    extents.first().map_or(0, |extent| extent.offset)
}

impl Owner<'_> {
    /// Takes a command through its stages, as far as it may go now and that is possible at once; `ALL`: it may go to its
    /// end. The path of a command that is alone is the shortest.
    #[inline]
    pub fn run<const ALL: bool>(&mut self, passage: &Passage<'_>, ran: &mut Ran) -> Progress {
        let (spec, length) = (passage.spec, passage.spec.length as u32);
        let handles = (spec.source.handle, spec.destination.handle);
        let found = self.found.take().filter(|(of, _)| *of == handles).map(|(_, found)| found);
        let found = found.unwrap_or_else(|| self.pair.find_both(handles.0, handles.1));
        let ends = match Ends::bind(spec, found) {
            Ok(ends) => ends,
            Err(refusal) => return self.refuse(passage, refusal),
        };
        ran.binding = ends.binding(spec);
        // A copy within the kernel is done in pieces of its own, and a flush is a stage that short commands have not.
        if (ran.binding.direct && spec.chain.is_empty()) || ran.binding.flush {
            return self.only_bind(passage, ends, ran.binding);
        }
        if let Err((at, failure)) = self.chain.load(spec) {
            wipe::stack();
            let sized = ends.check_size(spec).map_err(|(stage, failure)| (stage, 0, failure));
            return Progress::Bound(Err(sized.err().unwrap_or((Stage::Operator, at, failure))));
        }
        match self.controller.try_read(&ends, offset(&spec.source.extents), passage.block, length) {
            Ok(path) => ran.pass(clock(), path),
            Err(tried) => return self.read_later(passage, ends, tried, ran),
        }
        for (at, operator) in (0..).zip(&spec.chain) {
            if !ALL && passage.until == Some(ran.done) {
                return self.stop(passage, ends, ran);
            }
            if let Some(outcome) = self.operate(passage, (at, operator.operator), ran) {
                ran.then = Then::Answered(outcome);
                self.keep(passage, ends);
                return Progress::Ran(clock());
            }
        }
        if !ALL && passage.until == Some(ran.done) {
            return self.stop(passage, ends, ran);
        }
        if let Some(shield) = self.unshielded.take_if(|shield| shield.is_none() && ends.may_signal()) {
            *shield = Some(Shield::raise());
        }
        let to = offset(&spec.destination.extents);
        match self.controller.try_write(&ends, to, passage.block, length, spec.more) {
            Ok(path) => ran.pass(clock(), path),
            Err(tried) => return self.write_later(passage, ends, tried, ran),
        }
        self.controller.let_go_of_ends(ends.into_endpoints());
        Progress::Ran(ran.times[usize::from(ran.done)])
    }

    /// Has an operator process the block; returns the outcome if the command does not go on.
    #[inline]
    fn operate(
        &mut self,
        passage: &Passage<'_>,
        (at, operator): (u8, Operator),
        ran: &mut Ran,
    ) -> Option<Outcome> {
        let place = usize::from(at);
        let Some(buffer) = self.controller.pool.get_mut(passage.block) else {
            return Some(Outcome::Failed(Failure::new(Status::InternalError)));
        };
        let bytes = &mut buffer.bytes_mut()[..passage.spec.length as usize];
        if self.chain.digest_whole(at, bytes, &mut ran.digests[place]) {
            ran.pass(clock(), 0);
            return None;
        }
        let is_digest = matches!(operator.kind(), OperatorKind::Digest { .. });
        match self.chain.process(at, bytes, true) {
            Outcome::Digest(value) => ran.digests[place] = value,
            Outcome::Processed { .. } if !is_digest => {}
            outcome => return Some(outcome),
        }
        ran.pass(clock(), 0);
        None
    }

    /// Returns the reason why a command cannot be bound. A source without the bytes comes first, whatever
    /// else is wrong.
    #[cold]
    fn refuse(&self, passage: &Passage<'_>, (stage, failure): (Stage, Failure)) -> Progress {
        let spec = passage.spec;
        let again = match stage {
            Stage::Source => None,
            _ => dcs_devices::Route::bind(spec, |handle| self.pair.find(handle)).err(),
        };
        let (stage, failure) = again.unwrap_or((stage, failure));
        Progress::Bound(Err((stage, 0, failure)))
    }

    #[cold]
    fn only_bind(&mut self, passage: &Passage<'_>, ends: Ends, binding: Binding) -> Progress {
        let spec = passage.spec;
        if let Err((stage, failure)) = ends.check_size(spec) {
            return Progress::Bound(Err((stage, 0, failure)));
        }
        if let Err((at, failure)) = self.chain.load(spec) {
            wipe::stack();
            return Progress::Bound(Err((Stage::Operator, at, failure)));
        }
        self.keep(passage, ends);
        Progress::Bound(Ok(binding))
    }

    /// Reads the rest later, because not all came at once. A source that is too short is refused, as before a read.
    #[cold]
    fn read_later(
        &mut self,
        passage: &Passage<'_>,
        ends: Ends,
        tried: Incomplete,
        ran: &mut Ran,
    ) -> Progress {
        let (spec, block) = (passage.spec, passage.block);
        if let Err((stage, failure)) = ends.check_size(spec) {
            return Progress::Bound(Err((stage, 0, failure)));
        }
        let (role, offset) = (EndpointRole::Source, offset(&spec.source.extents));
        let kind = OperationKind::Read { role, offset, block, start: 0, length: spec.length as u32 };
        self.go_on(passage, ends, (kind, tried), ran)
    }

    #[cold]
    fn write_later(
        &mut self,
        passage: &Passage<'_>,
        ends: Ends,
        tried: Incomplete,
        ran: &mut Ran,
    ) -> Progress {
        let (spec, block) = (passage.spec, passage.block);
        let (offset, length) = (offset(&spec.destination.extents), spec.length as u32);
        let kind = OperationKind::Write { offset, block, start: 0, length, origin: None, more: spec.more };
        self.go_on(passage, ends, (kind, tried), ran)
    }

    /// Goes on with an operation that was tried, and was not done with at once.
    fn go_on(
        &mut self,
        passage: &Passage<'_>,
        ends: Ends,
        (kind, tried): (OperationKind, Incomplete),
        ran: &mut Ran,
    ) -> Progress {
        let id = passage.operation.later(u32::from(ran.done));
        let operation = Operation { id, command: passage.command, kind };
        let mut bound = self.bind(passage, ends);
        ran.then = match self.controller.go_on(&operation, &mut bound.route, tried) {
            Some(outcome) => Then::Answered(outcome),
            None => Then::Begun,
        };
        self.bound[passage.command.slot()] = Some(bound);
        Progress::Ran(clock())
    }

    /// Goes no further now.
    #[inline(never)]
    fn stop(&mut self, passage: &Passage<'_>, ends: Ends, ran: &Ran) -> Progress {
        self.keep(passage, ends);
        Progress::Ran(ran.times[usize::from(ran.done)])
    }

    /// Keeps what is bound for the command that goes on.
    fn keep(&mut self, passage: &Passage<'_>, ends: Ends) {
        let bound = self.bind(passage, ends);
        self.bound[passage.command.slot()] = Some(bound);
    }

    fn bind(&mut self, passage: &Passage<'_>, ends: Ends) -> Bound {
        let fresh = self.spare_chains.pop().unwrap_or_default();
        let (chain, route) = (std::mem::replace(self.chain, fresh), ends.into_route(passage.spec));
        Bound { command: passage.command, route, chain, secret: is_secret(passage.spec) }
    }
}
