//! The operators of one command, loaded: what an engine's NDP controller runs its blocks through.
//!
//! It knows the engine's operations and outcomes, and no memory: whoever has the blocks hands them in.

use crate::{Answer, Context, OperatorError, Task};
use dcs_abi::operator::{Operator, OperatorKind};
use dcs_abi::result::DigestSlot;
use dcs_abi::status::Status;
use dcs_engine::{Failure, Outcome, TransferSpec};

/// The operators of one command, with their stream states.
#[derive(Debug, Default)]
pub struct Chain {
    operators: Vec<Loaded>,
    /// This many are loaded; digests behind them are kept for the next command.
    live: usize,
}

/// One operator of a chain.
pub struct Loaded {
    /// Its stream's state.
    pub context: Context,
    /// Bytes that went through it; that came out of it, where it changes the length.
    pub covered: u64,
}

/// Stream states, which hold keys, are not printed.
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
    /// The operator that cannot be loaded, and the reason.
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

    /// Lets go of the operators, and keeps the room that they took. Digests without a parameter are kept as they
    /// are; everything else may hold keys.
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

    /// The operator at that place.
    pub fn operator(&self, at: u8) -> Option<Operator> {
        self.get(at).map(|loaded| loaded.context.operator())
    }

    /// All operators, with their places.
    pub fn loaded_mut(&mut self) -> impl Iterator<Item = (u8, &mut Loaded)> {
        self.operators[..self.live].iter_mut().enumerate().map(|(at, loaded)| (at as u8, loaded))
    }

    /// Another device is to process the blocks of the operator at that place.
    pub fn is_offloaded(&self, at: u8) -> bool {
        self.get(at).is_some_and(|loaded| loaded.context.is_offloaded())
    }

    /// True where [`Chain::hand_out`] looks at the block's bytes.
    pub fn looks(&self, at: u8, length: usize) -> bool {
        self.get(at).is_none_or(|loaded| loaded.context.looks(length))
    }

    /// A block that another device processes: what it is to do with it; `None` where the outcome is known at
    /// once.
    ///
    /// # Errors
    ///
    /// A failure where the operator cannot be handed out.
    pub fn hand_out(&mut self, at: u8, bytes: &[u8]) -> Result<Option<Task>, Failure> {
        let loaded = self.get_mut(at).ok_or(BROKEN)?;
        loaded.covered += bytes.len() as u64;
        loaded.context.hand_out(bytes).map_err(|error| failure(&error))
    }

    /// Takes in the device's answer.
    ///
    /// # Errors
    ///
    /// A failure where that is no answer to the task it was given.
    pub fn take_in(&mut self, at: u8, answer: Option<Answer>) -> Result<(), Failure> {
        let loaded = self.get_mut(at).ok_or(BROKEN)?;
        loaded.context.take_in(answer).map_err(|error| failure(&error))
    }

    /// The outcome of a block that a pass or another device has processed.
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

    /// Processes a block by the operator at that place: a digest reads it, a transform in place changes it.
    /// `last`: it is the stream's last one.
    pub fn process(&mut self, at: u8, bytes: &mut [u8], last: bool) -> Outcome {
        let loaded = self.get_mut(at).ok_or(BROKEN);
        loaded.and_then(|loaded| loaded.process(bytes, last)).unwrap_or_else(Outcome::Failed)
    }

    /// Processes a block into another one by the operator at that place, which changes the length of the
    /// data.
    pub fn resize(&mut self, at: u8, input: &[u8], output: &mut [u8], last: bool) -> Outcome {
        let loaded = self.get_mut(at).ok_or(BROKEN);
        loaded.and_then(|loaded| loaded.resize(input, output, last)).unwrap_or_else(Outcome::Failed)
    }

    /// The value of a digest as it stands, whatever is expected.
    pub fn snapshot(&self, at: u8) -> Outcome {
        let value = self.get(at).and_then(Loaded::value);
        value.map_or(Outcome::Failed(BROKEN), Outcome::Digest)
    }
}

/// The engine named an operator that is not there, or one that does something else.
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

    /// The value of a digest at its end, if it is the one expected.
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
