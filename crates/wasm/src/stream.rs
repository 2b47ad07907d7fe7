//! One stream through a module.
//!
//! The module gets a block of input, and reports how much of it it has consumed and how much output it has produced; output that
//! does not fit into the operator's output waits in the module's memory. Fuel is an account: a stream begins with the fuel of a
//! block, a step uses some, and each byte of input or output adds some. So the work for a stream is linear in its bytes, and
//! bounded between two blocks.

use std::ops::Range;

use dcs_ndp::module::{Codec, Step, StepEnd};
use dcs_ndp::{DigestValue, OperatorError};
use wasmi::errors::{ErrorKind, InstantiationError};
use wasmi::{Error, Memory, Store, StoreLimits, TrapCode, TypedFunc};

use crate::block::Layout;
use crate::load::{Limits, LoadError, Module};

/// Answers of `dcs_step`.
const GO_ON: i32 = 0;
const FINISHED: i32 = 1;
const CORRUPT: i32 = 2;
const TRUNCATED: i32 = 3;

/// Fuel that a step costs in addition to the module's own.
const STEP: u64 = 50;
/// Bytes of a step's input that cost one more unit of fuel: a module that consumes a block byte by byte has all of it copied again
/// and again.
const COPIED: u64 = 8;

/// A module's instance: its memory and its functions.
pub(crate) struct Instance {
    store: Store<StoreLimits>,
    memory: Memory,
    operator: TypedFunc<(), i32>,
    start: TypedFunc<i32, i32>,
    step: TypedFunc<(i32, i32), i32>,
}

impl Instance {
    pub fn new(store: Store<StoreLimits>, instance: &wasmi::Instance) -> Result<Instance, OperatorError> {
        let broken = |_| OperatorError::Answer;
        Ok(Instance {
            memory: instance.get_memory(&store, "memory").ok_or(OperatorError::Answer)?,
            operator: instance.get_typed_func(&store, "dcs_operator").map_err(broken)?,
            start: instance.get_typed_func(&store, "dcs_start").map_err(broken)?,
            step: instance.get_typed_func(&store, "dcs_step").map_err(broken)?,
            store,
        })
    }

    /// Returns the places of the module's block and buffers.
    pub fn layout(&mut self) -> Result<Layout, LoadError> {
        let called = self.operator.call(&mut self.store, ());
        let address = called.map_err(|error| LoadError::Start(why(&error)))?;
        Ok(Layout::read(self.memory.data(&self.store), address as u32)?)
    }
}

/// State of a stream.
pub(crate) struct Stream {
    instance: Instance,
    layout: Layout,
    limits: Limits,
    /// Fuel for the next step.
    fuel: u64,
    /// Range of the module's output yet to be handed out.
    ready: Range<usize>,
    /// End of the stream, after that output.
    end: Option<Ended>,
    value: Option<DigestValue>,
}

#[derive(Clone, Copy)]
enum Ended {
    Finished,
    Failed(OperatorError),
}

impl Stream {
    /// Makes an instance, and passes it its parameter.
    pub fn start(module: &Module, parameter: &[u8]) -> Result<Stream, OperatorError> {
        let mut instance = module.instance()?;
        let layout = instance.layout().map_err(|error| match error {
            LoadError::Start(error) => error,
            _ => OperatorError::Answer,
        })?;
        let Instance { store, memory, start, .. } = &mut instance;
        let place = memory.data_mut(&mut *store).get_mut(layout.input.clone());
        let place = place.and_then(|input| input.get_mut(..parameter.len()));
        place.ok_or(OperatorError::BadParameter)?.copy_from_slice(parameter);
        match start.call(&mut *store, parameter.len() as i32).map_err(|error| why(&error))? {
            0 => {}
            _ => return Err(OperatorError::BadParameter),
        }
        let limits = module.limits;
        Ok(Stream { instance, layout, limits, fuel: limits.fuel, ready: 0..0, end: None, value: None })
    }

    /// Lets the module work on the next block. Returns the bytes consumed.
    fn block(&mut self, input: &[u8], last: bool) -> Result<usize, OperatorError> {
        let Instance { store, memory, step, .. } = &mut self.instance;
        let place = memory.data_mut(&mut *store).get_mut(self.layout.input.clone());
        let place = place.ok_or(OperatorError::InternalError)?;
        let length = input.len().min(place.len());
        let fuel = self.fuel.checked_sub(STEP + length as u64 / COPIED).ok_or(OperatorError::Fuel)?;
        place[..length].copy_from_slice(&input[..length]);
        let last = last && length == input.len();
        store.set_fuel(fuel).map_err(|error| why(&error))?;
        let answer = step.call(&mut *store, (length as i32, i32::from(last))).map_err(|error| why(&error))?;
        let left = store.get_fuel().map_err(|error| why(&error))?;
        let memory = memory.data(&*store);
        let (consumed, produced) = self.layout.progress(memory).ok_or(OperatorError::Answer)?;
        if consumed > length || produced > self.layout.output.len() {
            return Err(OperatorError::Answer);
        }
        self.end = match answer {
            GO_ON if consumed == 0 && produced == 0 => return Err(OperatorError::Answer),
            GO_ON => None,
            FINISHED if last && consumed == length => {
                self.value = self.layout.value(memory).ok_or(OperatorError::Answer)?;
                Some(Ended::Finished)
            }
            CORRUPT => Some(Ended::Failed(OperatorError::CorruptData)),
            TRUNCATED => Some(Ended::Failed(OperatorError::TruncatedData)),
            _ => return Err(OperatorError::Answer),
        };
        let earned = self.limits.fuel_per_byte.saturating_mul((consumed + produced) as u64);
        self.fuel = left.saturating_add(earned).min(self.limits.fuel);
        self.ready = self.layout.output.start..self.layout.output.start + produced;
        Ok(consumed)
    }

    fn hand_out(&mut self, output: &mut [u8]) -> Result<usize, OperatorError> {
        let length = self.ready.len().min(output.len());
        let from = self.ready.start..self.ready.start + length;
        let memory = self.instance.memory.data(&self.instance.store);
        output[..length].copy_from_slice(memory.get(from).ok_or(OperatorError::InternalError)?);
        self.ready.start += length;
        Ok(length)
    }

    fn try_step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Result<Step, OperatorError> {
        let mut consumed = 0;
        if self.ready.is_empty() && self.end.is_none() {
            if input.is_empty() && !last {
                return Ok(Step { consumed, produced: 0, end: StepEnd::Open });
            }
            consumed = self.block(input, last)?;
        }
        let produced = self.hand_out(output)?;
        let end = match self.end.filter(|_| self.ready.is_empty()) {
            None => StepEnd::Open,
            Some(Ended::Finished) => StepEnd::Finished,
            Some(Ended::Failed(error)) => StepEnd::Failed(error),
        };
        Ok(Step { consumed, produced, end })
    }
}

impl Codec for Stream {
    fn step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Step {
        let step = self.try_step(input, output, last);
        step.unwrap_or_else(|error| Step { consumed: 0, produced: 0, end: StepEnd::Failed(error) })
    }

    fn value(&self) -> Option<DigestValue> {
        self.value
    }
}

/// Returns the error for a failure of the interpreter.
pub(crate) fn why(error: &Error) -> OperatorError {
    if let Some(code) = error.as_trap_code() {
        return match code {
            TrapCode::OutOfFuel => OperatorError::Fuel,
            TrapCode::GrowthOperationLimited => OperatorError::Memory,
            _ => OperatorError::Trap,
        };
    }
    match error.kind() {
        ErrorKind::Fuel(_) => OperatorError::Fuel,
        ErrorKind::Memory(_) | ErrorKind::Table(_) => OperatorError::Memory,
        ErrorKind::Instantiation(error) => match error {
            InstantiationError::ElementSegmentDoesNotFit { .. } => OperatorError::Trap,
            InstantiationError::TooManyTables
            | InstantiationError::TooManyMemories
            | InstantiationError::FailedToInstantiateMemory(_)
            | InstantiationError::FailedToInstantiateTable(_) => OperatorError::Memory,
            _ => OperatorError::Answer,
        },
        _ => OperatorError::Answer,
    }
}
