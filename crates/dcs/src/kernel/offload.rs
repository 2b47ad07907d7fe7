//! Operations that the GPU does: blocks go to it as they come, and it takes those together that wait.

use super::Bound;
use dcs_abi::operator::{OPERATORS, Operator};
use dcs_devices::Controller;
use dcs_devices::gpu::{self, Job, Work};
use dcs_engine::{BlockId, CommandId, Failure, Operation, OperationId, OperationKind, Outcome};
use dcs_ndp::{Answer, Chain, Task};
use std::collections::HashMap;
use std::ops::Range;

/// Operators that a GPU does.
pub fn operators() -> impl Iterator<Item = Operator> {
    OPERATORS.iter().filter(|info| info.gpu.is_some()).map(|info| info.operator)
}

/// An operation that the GPU has.
#[derive(Clone, Copy, Debug)]
struct Out {
    command: CommandId,
    operator: u8,
    length: u32,
    last: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Offloads(HashMap<OperationId, Out>);

impl Offloads {
    /// Takes an operation, if it is one for the GPU. Returns its outcome if it is known already, otherwise
    /// `None` inside.
    pub fn take(
        &mut self,
        operation: &Operation,
        chain: &mut Chain,
        controller: &mut Controller,
    ) -> Option<Option<Outcome>> {
        let OperationKind::Process { operator, block, length, last, .. } = operation.kind else {
            return None;
        };
        if !chain.is_offloaded(operator) {
            return None;
        }
        let out = Out { command: operation.command, operator, length, last };
        let job = match job(operation.id, &out, block, chain, controller) {
            Ok(Some(job)) => job,
            Ok(None) => return Some(Some(chain.after_pass(operator, length, last))),
            Err(failure) => return Some(Some(Outcome::Failed(failure))),
        };
        if let Err(failure) = controller.compute(job) {
            return Some(Some(failed(chain, operator, failure)));
        }
        self.0.insert(operation.id, out);
        Some(None)
    }

    /// The GPU has finished one; `None` if it is not known.
    pub fn done(
        &mut self,
        operation: OperationId,
        result: Result<gpu::Answer, Failure>,
        bound: &mut [Option<Bound>],
    ) -> Option<Outcome> {
        let out = self.0.remove(&operation)?;
        // A GPU that took too long may answer when its command has long ended, and another one is in its
        // place.
        let bound = bound[out.command.slot()].as_mut().filter(|bound| bound.command == out.command)?;
        let chain = &mut bound.chain;
        let taken = match result {
            Ok(answer) => chain.take_in(out.operator, Some(answer_of(answer))),
            Err(failure) => return Some(failed(chain, out.operator, failure)),
        };
        Some(match taken {
            Ok(()) => chain.after_pass(out.operator, out.length, out.last),
            Err(failure) => Outcome::Failed(failure),
        })
    }
}

fn failed(chain: &mut Chain, operator: u8, failure: Failure) -> Outcome {
    // That there is no value any more is what this says.
    let _ = chain.take_in(operator, None);
    Outcome::Failed(failure)
}

fn job(
    operation: OperationId,
    out: &Out,
    block: BlockId,
    chain: &mut Chain,
    controller: &Controller,
) -> Result<Option<Job>, Failure> {
    let length = out.length as usize;
    let bytes = &controller.bytes_for_gpu(block, chain.looks(out.operator, length))?[..length];
    let Some(task) = chain.hand_out(out.operator, bytes)? else { return Ok(None) };
    let (work, piece) = work_of(task, bytes.len());
    Ok(Some(Job { operation, block, piece, work }))
}

/// The GPU's work for an operator, and the bytes that it is about, of a piece of that length.
pub(crate) fn work_of(task: Task, length: usize) -> (Work, Range<usize>) {
    match task {
        Task::Md5 { state, blocks } => (Work::Md5(state), blocks),
        Task::Sha256 { state, blocks } => (Work::Sha256(state), blocks),
        Task::Crc32 { polynomial } => (Work::Crc32 { polynomial }, 0..length),
        Task::Aes256Ctr { keys, counter, skip } => (Work::Aes256Ctr { keys, counter, skip }, 0..length),
    }
}

/// The GPU's answer as the operator takes it in.
pub(crate) fn answer_of(answer: gpu::Answer) -> Answer {
    match answer {
        gpu::Answer::Md5(state) => Answer::Md5(state),
        gpu::Answer::Sha256(state) => Answer::Sha256(state),
        gpu::Answer::Crc32(remainder) => Answer::Crc32(remainder),
        gpu::Answer::Changed => Answer::Changed,
    }
}
