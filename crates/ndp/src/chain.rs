//! The operators of one command, loaded: an engine's NDP controller runs its blocks through them.
//!
//! It knows the engine's operations and outcomes, but owns no memory: its caller hands the blocks in.

use crate::{Answer, Context, OperatorError, Task};
use dcs_abi::operator::{Operator, OperatorKind};
use dcs_abi::result::DigestSlot;
use dcs_abi::status::Status;
use dcs_engine::{CommandId, Failure, Operation, OperationKind, Outcome, TransferSpec, Units};

/// The operators of one command, with the states of their streams.
#[derive(Debug, Default)]
pub struct Chain {
    operators: Vec<Loaded>,
    /// Number of loaded operators; digests after them are kept for the next command.
    live: usize,
}

/// An operator in a chain.
pub struct Loaded {
    /// State of its stream.
    pub context: Context,
    /// Bytes that went through it, or came out of it if it changes the length.
    pub covered: u64,
}

/// Stream states hold keys, so they are not printed.
impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} after {} bytes", self.context.operator().name(), self.covered)
    }
}

impl Chain {
    /// Loads the operators.
    ///
    /// # Errors
    ///
    /// Returns the operator that cannot be loaded, and the reason.
    #[inline]
    pub fn load(&mut self, spec: &TransferSpec) -> Result<(), (u8, Failure)> {
        self.live = 0;
        for (at, spec) in spec.chain.iter().enumerate() {
            let plain = !spec.on_gpu && spec.parameter.is_empty();
            if let Some(kept) = self.operators.get_mut(at).filter(|_| plain)
                && kept.context.begin_again(spec.operator)
            {
                kept.covered = 0;
                continue;
            }
            let load = if spec.on_gpu { Context::offloaded } else { Context::new };
            let context =
                load(spec.operator, &spec.parameter).map_err(|error| (at as u8, failure(&error)))?;
            self.operators.truncate(at);
            self.operators.push(Loaded { context, covered: 0 });
        }
        self.live = spec.chain.len();
        Ok(())
    }

    /// Unloads the operators, but keeps their memory. Digests without a parameter are kept as they are; everything else
    /// may hold keys.
    pub fn unload(&mut self) {
        let plain = self.operators.iter().take_while(|loaded| loaded.context.is_plain_digest()).count();
        self.operators.truncate(plain);
        self.live = 0;
    }

    #[inline]
    fn get(&self, at: u8) -> Option<&Loaded> {
        self.operators[..self.live].get(at as usize)
    }

    #[inline]
    fn get_mut(&mut self, at: u8) -> Option<&mut Loaded> {
        self.operators[..self.live].get_mut(at as usize)
    }

    /// Returns the operator at that place.
    pub fn operator(&self, at: u8) -> Option<Operator> {
        self.get(at).map(|loaded| loaded.context.operator())
    }

    /// Returns all operators, with their places.
    pub fn loaded_mut(&mut self) -> impl Iterator<Item = (u8, &mut Loaded)> {
        self.operators[..self.live].iter_mut().enumerate().map(|(at, loaded)| (at as u8, loaded))
    }

    /// Returns true if another device processes the blocks of the operator at that place.
    pub fn is_offloaded(&self, at: u8) -> bool {
        self.get(at).is_some_and(|loaded| loaded.context.is_offloaded())
    }

    /// Returns true if [`Chain::hand_out`] reads the block's bytes.
    pub fn looks(&self, at: u8, length: usize) -> bool {
        self.get(at).is_none_or(|loaded| loaded.context.looks(length))
    }

    /// Hands a block to another device. Returns its task; `None` if the outcome is known at once.
    ///
    /// # Errors
    ///
    /// Fails if the operator cannot be handed out.
    pub fn hand_out(&mut self, at: u8, bytes: &[u8]) -> Result<Option<Task>, Failure> {
        let loaded = self.get_mut(at).ok_or(BROKEN)?;
        loaded.covered += bytes.len() as u64;
        loaded.context.hand_out(bytes).map_err(|error| failure(&error))
    }

    /// Takes the device's answer.
    ///
    /// # Errors
    ///
    /// Fails if it does not answer the task that was given.
    pub fn take_in(&mut self, at: u8, answer: Option<Answer>) -> Result<(), Failure> {
        let loaded = self.get_mut(at).ok_or(BROKEN)?;
        loaded.context.take_in(answer).map_err(|error| failure(&error))
    }

    /// Returns the outcome of a block that a pass or another device has processed.
    pub fn after_pass(&self, at: u8, length: u32, last: bool) -> Outcome {
        let done = Outcome::Processed { consumed: length, produced: 0, finished: false };
        let loaded = self.get(at).ok_or(BROKEN);
        let is_digest =
            |loaded: &Loaded| matches!(loaded.context.operator().kind(), OperatorKind::Digest { .. });
        if !last || loaded.is_ok_and(|loaded| !is_digest(loaded)) {
            return done;
        }
        loaded.and_then(Loaded::digest).unwrap_or_else(Outcome::Failed)
    }

    /// Has the digest at that place take a stream that is one block, and writes its value. Returns false, and does nothing, for another
    /// kind of operator, and for a digest with an expected value.
    #[inline]
    pub fn digest_whole(&mut self, at: u8, bytes: &[u8], slot: &mut DigestSlot) -> bool {
        let Some(Loaded { context, covered }) = self.get_mut(at) else { return false };
        slot.operator = context.operator() as u8;
        let Some(digest) = context.plain_digest() else { return false };
        digest.absorb(bytes);
        *covered += bytes.len() as u64;
        slot.covered = *covered;
        slot.size = digest.write(&mut slot.value);
        true
    }

    /// Processes a block with the operator at that place: a digest reads it, a transform in place changes it. `last`:
    /// it is the stream's last block.
    pub fn process(&mut self, at: u8, bytes: &mut [u8], last: bool) -> Outcome {
        let loaded = self.get_mut(at).ok_or(BROKEN);
        loaded.and_then(|loaded| loaded.process(bytes, last)).unwrap_or_else(Outcome::Failed)
    }

    /// Processes a block into another with the operator at that place, which changes the length of the data.
    pub fn resize(&mut self, at: u8, input: &[u8], output: &mut [u8], last: bool) -> Outcome {
        let loaded = self.get_mut(at).ok_or(BROKEN);
        loaded.and_then(|loaded| loaded.resize(input, output, last)).unwrap_or_else(Outcome::Failed)
    }

    /// Returns the current value of a digest, without comparing it with an expected one.
    pub fn snapshot(&self, at: u8) -> Outcome {
        let value = self.get(at).and_then(Loaded::value);
        value.map_or(Outcome::Failed(BROKEN), Outcome::Digest)
    }
}

/// The operators of all commands of a core, in software.
#[derive(Debug)]
pub struct Chains(Vec<Chain>);

impl Chains {
    /// Makes room for the operators of so many commands at once.
    pub fn new(commands: u16) -> Chains {
        Chains((0..commands).map(|_| Chain::default()).collect())
    }
}

impl Units for Chains {
    fn load(&mut self, command: CommandId, spec: &TransferSpec) -> Result<(), (u8, Failure)> {
        let chain = &mut self.0[command.slot()];
        // Those before the one that is refused may hold keys.
        chain.load(spec).inspect_err(|_| chain.unload())
    }

    fn process(&mut self, operation: &Operation, bytes: &mut [u8]) -> Outcome {
        match operation.kind {
            OperationKind::Process { operator, last, .. } => {
                self.0[operation.command.slot()].process(operator, bytes, last)
            }
            _ => Outcome::Failed(BROKEN),
        }
    }

    fn resize(&mut self, operation: &Operation, input: &[u8], output: &mut [u8]) -> Outcome {
        match operation.kind {
            OperationKind::Resize { operator, last, .. } => {
                self.0[operation.command.slot()].resize(operator, input, output, last)
            }
            _ => Outcome::Failed(BROKEN),
        }
    }

    fn snapshot(&mut self, operation: &Operation) -> Outcome {
        match operation.kind {
            OperationKind::Snapshot { operator } => self.0[operation.command.slot()].snapshot(operator),
            _ => Outcome::Failed(BROKEN),
        }
    }

    fn unload(&mut self, command: CommandId) {
        self.0[command.slot()].unload();
    }
}

/// Failure for a bug: the engine named an operator that is not there, or one of another kind.
const BROKEN: Failure = Failure { status: Status::InternalError, errno: 0 };

impl Loaded {
    fn process(&mut self, bytes: &mut [u8], last: bool) -> Result<Outcome, Failure> {
        let done = Outcome::Processed { consumed: bytes.len() as u32, produced: 0, finished: false };
        self.covered += bytes.len() as u64;
        if !matches!(self.context.operator().kind(), OperatorKind::Digest { .. }) {
            self.context.in_place(bytes, last).map_err(|error| failure(&error))?;
            return Ok(done);
        }
        self.context.absorb(bytes);
        if last { self.digest() } else { Ok(done) }
    }

    /// Returns the final value of a digest, after comparing it with the expected one.
    fn digest(&self) -> Result<Outcome, Failure> {
        self.context.check().map_err(|error| failure(&error))?;
        self.value().map(Outcome::Digest).ok_or(BROKEN)
    }

    fn resize(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Result<Outcome, Failure> {
        let progress = self.context.resize(input, output, last).map_err(|error| failure(&error))?;
        let (consumed, produced) = (progress.consumed as u32, progress.produced as u32);
        self.covered += progress.produced as u64;
        Ok(match self.value() {
            Some(value) => Outcome::Concluded { produced, value },
            None => Outcome::Processed { consumed, produced, finished: progress.finished },
        })
    }

    fn value(&self) -> Option<DigestSlot> {
        let digest = self.context.value()?;
        let bytes = digest.as_bytes();
        let mut slot = DigestSlot {
            operator: self.context.operator() as u8,
            size: bytes.len() as u8,
            covered: self.covered,
            ..Default::default()
        };
        slot.value[..bytes.len()].copy_from_slice(bytes);
        Some(slot)
    }
}

fn failure(error: &OperatorError) -> Failure {
    Failure::new(error.status())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcs_engine::OperatorSpec;

    #[test]
    fn a_refused_chain_leaves_no_key() {
        let key =
            OperatorSpec::new(Operator::Aes256Ctr, vec![7; Operator::Aes256Ctr.info().parameter.1].into());
        // Two keys that are the same, and no data unit.
        let refused = OperatorSpec::new(Operator::Aes256Xts, vec![7; 80].into());
        let spec = TransferSpec { chain: vec![key, refused], ..TransferSpec::default() };
        let mut chains = Chains::new(1);
        let (at, _) = chains.load(CommandId::new(0, 0), &spec).unwrap_err();
        assert_eq!((at, chains.0[0].operators.len()), (1, 0));
    }
}
