//! Short commands in the rig: how far each is taken at once is chance's, and faults strike as elsewhere.

use super::Rig;
use super::fault::Where;
use super::serve::Flight;
use dcs_abi::operator::OperatorKind;
use dcs_engine::{
    Action, Binding, Config, EndpointRole, Engine, Event, Operation, OperationKind, Outcome, Passage, Posted,
    Progress, QueueId, Ran, Short, Then,
};

/// A core in the rig: those that run short commands have another way of handing entries in.
pub trait Core: dcs_engine::Core + Sized {
    /// Hands in an entry.
    fn enter(rig: &mut Rig<Self>, queue: QueueId, bytes: &[u8; 64]) {
        rig.engine.handle(rig.now, Event::Entry { queue, bytes });
    }

    /// Runs a short command.
    fn run(_rig: &mut Rig<Self>, short: Short) {
        panic!("{short:?} was not offered");
    }
}

impl Core for Engine {
    fn enter(rig: &mut Rig, queue: QueueId, bytes: &[u8; 64]) {
        rig.enter(queue, bytes);
    }

    fn run(rig: &mut Rig, short: Short) {
        rig.run_short(short);
    }
}

impl Rig {
    fn run_short(&mut self, short: Short) {
        let mut ran = Ran::new(Binding::default(), self.now);
        let command = short.command;
        let went = self.take_short(&short, &mut ran);
        self.now += u64::from(ran.done);
        match went {
            Progress::Ran(_) => self.engine.handle(self.now, Event::Ran { command, ran: &ran }),
            Progress::Bound(binding) => self.engine.handle(self.now, Event::Bound { command, binding }),
        }
    }

    /// Hands in an entry: the one way or the other, and what goes through is run at once.
    fn enter(&mut self, queue: QueueId, bytes: &[u8; 64]) {
        if self.random.one_in(3) {
            return self.engine.handle(self.now, Event::Entry { queue, bytes });
        }
        // The rig that runs it has no engine to ask meanwhile.
        let tiny = Config { blocks: 100, commands: 2, queues: 1, ..self.engine.config().clone() };
        let mut engine = std::mem::replace(&mut self.engine, Engine::new(tiny).expect("its sizes are sound"));
        let mut past = 0;
        let posted = engine.enter(self.now, queue, bytes, |passage, ran| {
            let Passage { command, queue, operation, block, until, .. } = *passage;
            let spec = std::sync::Arc::new(passage.spec.clone());
            let until = until.unwrap_or(spec.stages());
            let went = self.take_short(&Short { command, queue, spec, operation, block, until }, ran);
            past = u64::from(ran.done);
            let stages = passage.spec.stages();
            self.went.0 += usize::from(ran.done == stages);
            self.went.1 += usize::from(ran.done < stages);
            went
        });
        self.now += past;
        self.engine = engine;
        if let Some(Posted { slot, entry, address, result }) = posted {
            self.serve(Action::Complete { queue, slot, entry, result: Some((address, result)) });
        }
    }

    /// Takes a short command as far as chance has it.
    fn take_short(&mut self, short: &Short, ran: &mut Ran) -> Progress {
        let Short { command, queue, spec, .. } = short;
        let binding = match self.bind(*command, *queue, std::sync::Arc::clone(spec)) {
            // A direct path is the core's to take, and some owners want to be asked for each stage.
            Ok(binding) if !binding.direct && !self.random.one_in(5) => binding,
            binding => return Progress::Bound(binding),
        };
        ran.binding = binding;
        self.is_swift = self.random.one_in(2);
        while ran.done < short.until && ran.then == Then::Nothing {
            if !self.is_swift && self.random.one_in(6) {
                break;
            }
            if !self.stage_at_once(short, ran) {
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
        Progress::Ran(self.now + u64::from(ran.done))
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
        if !is_operator && (faulty || hangs || !self.is_swift && self.random.one_in(4)) {
            self.issue(operation);
            ran.then = Then::Begun;
            return true;
        }
        assert!(self.blocks[short.block.index()].user.is_none(), "its block is a short command's own");
        self.trace.push((short.queue, kind));
        let (hangs, aborted, reset, issued) = (false, false, false, self.now);
        let flight = Flight { operation, unit: None, kind: None, hangs, aborted, reset, issued };
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
