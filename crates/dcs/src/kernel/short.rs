//! Short commands ([`Short`]): taken through their stages in one go, as far as nothing has to wait.

use super::{Bound, KernelLoop};
use crate::kernel::thread::{Shield, clock};
use crate::kernel::wipe;
use dcs_abi::operator::OperatorKind;
use dcs_abi::status::Status;
use dcs_engine::{EndpointRole, Event, Failure, Operation, OperationKind, Outcome, Ran, Short, Then};
use dcs_ndp::Chain;

impl KernelLoop {
    pub(super) fn run_short(&mut self, short: Short) {
        let (command, spec) = (short.command, &*short.spec);
        let (mut bound, binding) = match self.prepare(command, short.queue, spec) {
            Ok(prepared) => prepared,
            Err(refusal) => return self.handle(Event::Bound { command, binding: Err(refusal) }),
        };
        // A copy within the kernel is done in pieces of its own, and a flush is a stage that short commands have not.
        if (binding.direct && spec.chain.is_empty()) || binding.flush {
            self.bound[command.slot()] = Some(bound);
            return self.handle(Event::Bound { command, binding: Ok(binding) });
        }
        let mut ran = Ran::new(binding, self.now);
        while ran.done < short.until && ran.then == Then::Nothing {
            self.run_stage(&short, &mut bound, &mut ran);
        }
        let is_done = ran.done == spec.stages();
        // The core reuses its memory, if it is the core's alone when the command ends.
        drop(short);
        if is_done {
            self.unbind(bound);
        } else {
            self.bound[command.slot()] = Some(bound);
        }
        self.now = ran.times[usize::from(ran.done)];
        if matches!(ran.then, Then::Answered(_)) {
            self.now = clock();
        }
        self.handle(Event::Ran { command, ran: &ran });
    }

    /// Does the next stage, or begins it.
    #[inline]
    fn run_stage(&mut self, short: &Short, bound: &mut Bound, ran: &mut Ran) {
        let (spec, length) = (&*short.spec, short.spec.length as u32);
        let first = |extents: &[dcs_abi::descriptor::Extent]| extents.first().map_or(0, |first| first.offset);
        let (block, operators) = (short.block, spec.chain.len());
        let stage = usize::from(ran.done);
        if (1..=operators).contains(&stage) {
            return self.run_operator(short, &mut bound.chain, ran);
        }
        let kind = if stage == 0 {
            let offset = first(&spec.source.extents);
            OperationKind::Read { role: EndpointRole::Source, offset, block, start: 0, length }
        } else {
            let (offset, more) = (first(&spec.destination.extents), spec.more);
            OperationKind::Write { offset, block, start: 0, length, origin: None, more }
        };
        if self.gets_signals && self.shield.is_none() && bound.route.may_signal(&kind) {
            self.shield = Some(Shield::raise());
        }
        let operation = Operation { id: short.operation.later(stage as u32), command: short.command, kind };
        match self.controller.start(&operation, &mut bound.route) {
            Some(Outcome::Moved { bytes, path, held: false }) if bytes == u64::from(length) => {
                ran.pass(clock(), path);
            }
            Some(outcome) => ran.then = Then::Answered(outcome),
            None => ran.then = Then::Begun,
        }
    }

    fn run_operator(&mut self, short: &Short, chain: &mut Chain, ran: &mut Ran) {
        let at = ran.done - 1;
        let is_digest =
            matches!(short.spec.chain[usize::from(at)].operator.kind(), OperatorKind::Digest { .. });
        let Some(buffer) = self.controller.pool.get_mut(short.block) else {
            ran.then = Then::Answered(Outcome::Failed(Failure::new(Status::InternalError)));
            return;
        };
        let bytes = &mut buffer.bytes_mut()[..short.spec.length as usize];
        match chain.process(at, bytes, true) {
            Outcome::Digest(value) => ran.digests[usize::from(at)] = value,
            Outcome::Processed { .. } if !is_digest => {}
            outcome => {
                ran.then = Then::Answered(outcome);
                return;
            }
        }
        ran.pass(clock(), 0);
    }

    /// Lets go of a command's endpoints and operators.
    #[inline]
    pub(super) fn unbind(&mut self, Bound { route, mut chain, secret, .. }: Bound) {
        route.into_endpoints().for_each(|endpoint| self.controller.let_go(endpoint));
        chain.unload();
        self.spare_chains.push(chain);
        if secret {
            wipe::stack();
        }
    }
}
