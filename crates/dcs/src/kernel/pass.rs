//! Passes of a multi-lane unit: blocks of many streams are processed together.
//!
//! The engine maps the operators of such a unit onto lanes, issues their blocks as they come, and says when a
//! pass starts.

use dcs_devices::BlockPool;
use dcs_engine::{BlockId, CommandId, Failure, Operation, OperationId, OperationKind, Outcome};
use dcs_ndp::{Context, Lanes, Piece};

use super::Bound;
use dcs_abi::operator::{OPERATORS, Operator};
use dcs_abi::status::Status;

/// A block that waits for a pass.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    operation: OperationId,
    command: CommandId,
    operator: u8,
    block: BlockId,
    length: u32,
    last: bool,
}

/// The next pass of one operator's unit.
#[derive(Debug)]
pub(super) struct Pass {
    operator: Operator,
    lanes: Lanes,
    waiting: Vec<Waiting>,
}

impl Pass {
    /// One for each operator that has a unit on this machine.
    pub fn all() -> Vec<Pass> {
        let passes = OPERATORS.iter().map(|info| {
            let (operator, lanes) = (info.operator, Lanes::detect(info.operator));
            Pass { operator, lanes, waiting: Vec::new() }
        });
        passes.filter(|pass| pass.lanes.count() > 1).collect()
    }

    /// The operator, and how many streams its unit takes at once.
    pub fn lanes(&self) -> (Operator, usize) {
        (self.operator, self.lanes.count())
    }

    /// Takes an operation in, if it is one for lanes.
    pub fn take(&mut self, operation: &Operation, bound: &Bound) -> bool {
        let OperationKind::Process { operator, block, length, last, .. } = operation.kind else {
            return false;
        };
        if bound.chain.operator(operator) != Some(self.operator) {
            return false;
        }
        let (id, command) = (operation.id, operation.command);
        self.waiting.push(Waiting { operation: id, command, operator, block, length, last });
        true
    }

    /// Removes an aborted operation; returns false if it is not here.
    pub fn abort(&mut self, operation: OperationId) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.operation != operation);
        self.waiting.len() < before
    }

    /// Processes all that waits, and returns each operation's outcome.
    pub fn run(
        &mut self,
        bound: &mut [Option<Bound>],
        pool: &BlockPool,
        done: &mut Vec<(OperationId, Outcome)>,
    ) {
        // By command and operator: so each one's context can be borrowed beside all the others'.
        self.waiting.sort_unstable_by_key(|waiting| (waiting.command.slot(), waiting.operator));
        let mut pieces = Vec::with_capacity(self.waiting.len());
        let mut next = self.waiting.iter().peekable();
        for (slot, bound) in bound.iter_mut().enumerate() {
            if next.peek().is_none() {
                break;
            }
            let Some(bound) = bound else { continue };
            for (at, loaded) in bound.chain.loaded_mut() {
                let Some(waiting) =
                    next.next_if(|waiting| (waiting.command.slot(), waiting.operator) == (slot, at))
                else {
                    continue;
                };
                let Some(buffer) = pool.get(waiting.block) else { continue };
                loaded.covered += u64::from(waiting.length);
                let data = &buffer.bytes()[..waiting.length as usize];
                pieces.push(Piece { context: &mut loaded.context, data, last: waiting.last });
            }
        }
        let complete = pieces.len() == self.waiting.len();
        Context::absorb_together(self.lanes, &mut pieces);
        drop(pieces);
        for waiting in self.waiting.drain(..) {
            let outcome = match &bound[waiting.command.slot()] {
                Some(bound) if complete => {
                    bound.chain.after_pass(waiting.operator, waiting.length, waiting.last)
                }
                // A command or a block that is not there: the engine broke a rule, and no digest can be
                // trusted.
                _ => Outcome::Failed(Failure::new(Status::InternalError)),
            };
            done.push((waiting.operation, outcome));
        }
    }
}
