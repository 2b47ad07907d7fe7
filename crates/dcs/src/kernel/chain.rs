//! The NDP pool of the kernel backend: operators run on the engine's own core, one block at a time;
//! those of multi-lane units by passes of many ([`super::pass`]).

use dcs_abi::operator::{Operator, OperatorKind};
use dcs_abi::result::DigestSlot;
use dcs_abi::status::Status;
use dcs_devices::BlockPool;
use dcs_engine::{Fault, OperationKind, Outcome, TransferSpec};
use dcs_ndp::{Context, OperatorError};

/// The operators of one command, with their stream states.
#[derive(Debug, Default)]
pub(crate) struct Chain(Vec<Loaded>);

pub(super) struct Loaded {
    pub context: Context,
    /// Bytes that went through it.
    pub covered: u64,
}

/// Stream states, which hold keys, are not printed.
impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} after {} bytes", self.context.operator().name(), self.covered)
    }
}

impl Chain {
    /// Loads the operators; on failure tells which one and why.
    pub fn load(&mut self, spec: &TransferSpec) -> Result<(), (u8, Fault)> {
        self.0.clear();
        for (at, spec) in spec.chain.iter().enumerate() {
            let context =
                Context::new(spec.operator, &spec.parameter).map_err(|error| (at as u8, fault(&error)))?;
            self.0.push(Loaded { context, covered: 0 });
        }
        Ok(())
    }

    /// Lets go of the operators, and keeps the room that they took.
    pub fn unload(&mut self) {
        self.0.clear();
    }

    /// The operator at that place.
    pub fn operator(&self, at: u8) -> Option<Operator> {
        self.0.get(at as usize).map(|loaded| loaded.context.operator())
    }

    /// All operators, with their places.
    pub fn loaded_mut(&mut self) -> impl Iterator<Item = (u8, &mut Loaded)> {
        self.0.iter_mut().enumerate().map(|(at, loaded)| (at as u8, loaded))
    }

    /// What came of a digest's block that a pass has processed.
    pub fn after_pass(&self, at: u8, length: u32, last: bool) -> Outcome {
        let done = Outcome::Processed { consumed: length, produced: 0, finished: false };
        let broken = Outcome::Failed(Fault::new(Status::InternalError));
        if last { self.0.get(at as usize).and_then(Loaded::digest).unwrap_or(broken) } else { done }
    }

    /// Processes a block.
    pub fn process(&mut self, kind: &OperationKind, pool: &mut BlockPool) -> Outcome {
        self.try_process(kind, pool).unwrap_or_else(Outcome::Failed)
    }

    fn try_process(&mut self, kind: &OperationKind, pool: &mut BlockPool) -> Result<Outcome, Fault> {
        let broken = Fault::new(Status::InternalError);
        match *kind {
            OperationKind::Process { operator, block, length, last, .. } => {
                let loaded = self.0.get_mut(operator as usize).ok_or(broken)?;
                let buffer = pool.get_mut(block).ok_or(broken)?;
                loaded.process(&mut buffer.bytes_mut()[..length as usize], last)
            }
            OperationKind::Resize {
                operator,
                block,
                start,
                length,
                output,
                output_start,
                output_length,
                last,
                ..
            } => {
                let loaded = self.0.get_mut(operator as usize).ok_or(broken)?;
                let (input, output) = pool.pair_mut(block, output).ok_or(broken)?;
                let input = &input.bytes()[start as usize..(start + length) as usize];
                let output =
                    &mut output.bytes_mut()[output_start as usize..(output_start + output_length) as usize];
                let progress = loaded.context.resize(input, output, last).map_err(|error| fault(&error))?;
                Ok(Outcome::Processed {
                    consumed: progress.consumed as u32,
                    produced: progress.produced as u32,
                    finished: progress.finished,
                })
            }
            OperationKind::Snapshot { operator } => {
                self.0.get(operator as usize).and_then(Loaded::digest).ok_or(broken)
            }
            _ => Err(broken),
        }
    }
}

impl Loaded {
    fn process(&mut self, bytes: &mut [u8], last: bool) -> Result<Outcome, Fault> {
        let done = Outcome::Processed { consumed: bytes.len() as u32, produced: 0, finished: false };
        self.covered += bytes.len() as u64;
        if !matches!(self.context.operator().kind(), OperatorKind::Digest { .. }) {
            self.context.in_place(bytes, last).map_err(|error| fault(&error))?;
            return Ok(done);
        }
        self.context.absorb(bytes);
        if last { self.digest().ok_or(Fault::new(Status::InternalError)) } else { Ok(done) }
    }

    fn digest(&self) -> Option<Outcome> {
        let digest = self.context.value()?;
        let bytes = digest.as_bytes();
        let mut slot = DigestSlot {
            operator: self.context.operator() as u8,
            size: bytes.len() as u8,
            covered: self.covered,
            ..Default::default()
        };
        slot.value[..bytes.len()].copy_from_slice(bytes);
        Some(Outcome::Digest(slot))
    }
}

fn fault(error: &OperatorError) -> Fault {
    Fault::new(error.status())
}
