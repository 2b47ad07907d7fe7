//! Short commands in the rig: how far each is taken at once is chance's, and faults strike as elsewhere.

use super::Rig;
use super::fault::Where;
use super::serve::Flight;
use dcs_abi::operator::OperatorKind;
use dcs_engine::{EndpointRole, Event, Operation, OperationKind, Outcome, Ran, Short, Then};

impl Rig {
    pub(super) fn run_short(&mut self, short: Short) {
        let Short { command, queue, spec, .. } = &short;
        let binding = match self.bind(*command, *queue, std::sync::Arc::clone(spec)) {
            // A direct path is the core's to take, and some owners want to be asked for each stage.
            Ok(binding) if !binding.direct && !self.random.one_in(5) => binding,
            binding => return self.engine.handle(self.now, Event::Bound { command: *command, binding }),
        };
        let mut ran = Ran::new(binding, self.now);
        while ran.done < short.until && ran.then == Then::Nothing {
            if self.random.one_in(6) {
                break;
            }
            if !self.stage_at_once(&short, &mut ran) {
                break;
            }
        }
        if ran.done == spec.stages() {
            self.ran.0 += 1;
            if !binding.flush {
                self.unbind(*command);
            }
        } else {
            self.ran.1 += 1;
        }
        self.now += u64::from(ran.done);
        self.engine.handle(self.now, Event::Ran { command: *command, ran: &ran });
    }

    /// Does the next stage, or begins it; false where the core is to issue it.
    fn stage_at_once(&mut self, short: &Short, ran: &mut Ran) -> bool {
        let kind = kind(short, ran.done);
        let operation =
            Operation { id: short.operation.later(ran.done.into()), command: short.command, kind };
        let is_operator = matches!(kind, OperationKind::Process { .. });
        let place = Where::of(&kind);
        let faulty = self.faults.iter().any(|fault| fault.place == place);
        if is_operator && faulty {
            // It strikes where the core issues it.
            return false;
        }
        let hangs = !is_operator && self.device_hangs(&kind, &short.spec);
        if !is_operator && (faulty || hangs || self.random.one_in(4)) {
            self.issue(operation);
            ran.then = Then::Begun;
            return true;
        }
        assert!(self.blocks[short.block.index()].user.is_none(), "its block is a short command's own");
        self.trace.push((short.queue, kind));
        let flight = Flight { operation, unit: None, kind: None, hangs: false, aborted: false, reset: false };
        let outcome = self.outcome(&flight);
        let length = short.spec.length;
        match outcome {
            Outcome::Moved { bytes, path, held: false } if bytes == length => {
                ran.pass(self.now + u64::from(ran.done) + 1, path);
            }
            Outcome::Processed { consumed, .. }
                if u64::from(consumed) == length && !is_digest(short, ran.done) =>
            {
                ran.pass(self.now + u64::from(ran.done) + 1, 0);
            }
            Outcome::Digest(value) => {
                ran.digests[usize::from(ran.done) - 1] = value;
                ran.pass(self.now + u64::from(ran.done) + 1, 0);
            }
            outcome => ran.then = Then::Answered(outcome),
        }
        true
    }
}

fn is_digest(short: &Short, stage: u8) -> bool {
    stage > 0 && short.spec.chain[usize::from(stage) - 1].operator.digest_size() > 0
}

/// The operation of a stage.
pub fn kind(short: &Short, stage: u8) -> OperationKind {
    let (spec, block, length) = (&short.spec, short.block, short.spec.length as u32);
    let first = |extents: &[dcs_abi::descriptor::Extent]| extents.first().map_or(0, |extent| extent.offset);
    match stage {
        0 => {
            let offset = first(&spec.source.extents);
            OperationKind::Read { role: EndpointRole::Source, offset, block, start: 0, length }
        }
        at if usize::from(at) <= spec.chain.len() => {
            let operator = at - 1;
            assert_ne!(spec.chain[usize::from(operator)].operator.kind(), OperatorKind::Resize);
            OperationKind::Process { unit: 0, operator, block, length, last: true }
        }
        _ => {
            let (offset, more) = (first(&spec.destination.extents), spec.more);
            OperationKind::Write { offset, block, start: 0, length, origin: None, more }
        }
    }
}
