//! Loaded parameters: operators, and the parameter block of each.

use std::sync::Arc;

use dcs_abi::operator::Operator;
use dcs_abi::status::Status as Reason;
use dcs_abi::{CHAIN_MAX, operator};
use dcs_ndp::{Context, memory, memory_of_unzstd, module};
use dcs_nvme::Status;
use dcs_nvme::bytes::{u16_at, u32_at};

use super::loads::{Loaded, Loads};
use super::ranges::Ranges;

/// Bytes before the first operator: the number of operators, then reserved ones.
const HEADER: usize = 8;
/// Bytes before an operator's parameter: its number, a reserved byte, the parameter's length, four reserved
/// bytes.
const OPERATOR: usize = 8;

/// Maximum number of bytes of parameters.
pub const PARAMETERS_MAX: usize = 64 << 10;

/// The largest window of a frame that `unzstd` accepts in a drive, as a power of two: 8 MiB, which all
/// decoders support (RFC 8878, 3.1.1.1.2), and no level of `zstd` exceeds by default. Each chain reserves
/// that much, whatever its data are.
const WINDOW: u8 = 23;

/// Operators with their parameter blocks. Invalid ones are detected when their contexts are made.
#[derive(Default)]
pub struct Program(Vec<Step>);

/// An operator and its parameter block.
struct Step {
    operator: Operator,
    parameter: Vec<u8>,
    /// It is a program that the guest has loaded; the parameter is the program's.
    loaded: Option<Arc<Loaded>>,
}

impl Drop for Program {
    /// Keys are wiped.
    fn drop(&mut self) {
        for given in &mut self.0 {
            given.parameter.fill(0);
            std::hint::black_box(&given.parameter);
        }
    }
}

/// Returns the NVMe status for a failed chain.
pub fn status_of(reason: Reason) -> Status {
    Status(reason.code())
}

impl Program {
    /// Reads parameters, which may name programs that the guest has loaded.
    ///
    /// # Errors
    ///
    /// Returns Invalid Field in Command if the bytes are malformed; a status of the vendor's type (7h) for
    /// operators that do not exist.
    pub fn read(bytes: &[u8], loads: &Loads) -> Result<Program, Status> {
        let (header, rest) = bytes.split_at_checked(HEADER).ok_or(Status::INVALID_FIELD)?;
        let count = usize::from(header[0]);
        if !(1..=CHAIN_MAX).contains(&count) || header[1..] != [0; HEADER - 1] {
            return Err(Status::INVALID_FIELD);
        }
        Program::operators(count, rest, loads).map(|(program, _)| program)
    }

    /// Reads the bytes that open a stream: parameters, possibly without operators, then ranges, whose number
    /// is in bytes 4 to 7 of the header, then prefix bytes, whose number is in bytes 1 to 3. Returns the
    /// operators, the ranges and the prefix.
    ///
    /// # Errors
    ///
    /// Those of [`Program::read`].
    pub fn read_stream<'a>(bytes: &'a [u8], loads: &Loads) -> Result<(Program, [&'a [u8]; 2]), Status> {
        let (header, rest) = bytes.split_at_checked(HEADER).ok_or(Status::INVALID_FIELD)?;
        let count = usize::from(header[0]);
        if count > CHAIN_MAX {
            return Err(Status::INVALID_FIELD);
        }
        let (program, rest) = Program::operators(count, rest, loads)?;
        let ranges = Ranges::length(u32_at(header, 4));
        let (ranges, rest) = rest.split_at_checked(ranges).ok_or(Status::INVALID_FIELD)?;
        let first = rest.get(..(u32_at(header, 0) >> 8) as usize).ok_or(Status::INVALID_FIELD)?;
        Ok((program, [ranges, first]))
    }

    /// Reads this many operators; returns the bytes after them.
    fn operators<'a>(count: usize, mut rest: &'a [u8], loads: &Loads) -> Result<(Program, &'a [u8]), Status> {
        let mut program = Program(Vec::with_capacity(count));
        for _ in 0..count {
            let (head, after) = rest.split_at_checked(OPERATOR).ok_or(Status::INVALID_FIELD)?;
            let length = usize::from(u16_at(head, 2));
            let parameter = after.get(..length).ok_or(Status::INVALID_FIELD)?;
            if head[1] != 0 || head[4..] != [0; 4] {
                return Err(Status::INVALID_FIELD);
            }
            let operator = operator::Operator::from_number(head[0]);
            let operator = operator.ok_or(status_of(Reason::UnknownOperator))?;
            program.0.push(Step::new(operator, parameter, loads));
            rest = after.get(length.next_multiple_of(8)..).unwrap_or_default();
        }
        Ok((program, rest))
    }

    #[cfg(test)]
    pub fn new(operators: Vec<(Operator, Vec<u8>)>) -> Program {
        let given = |(operator, parameter)| Step { operator, parameter, loaded: None };
        Program(operators.into_iter().map(given).collect())
    }

    /// Makes a program of one operator.
    pub fn of(operator: Operator, parameter: &[u8]) -> Program {
        Program(vec![Step { operator, parameter: parameter.to_vec(), loaded: None }])
    }

    /// Makes a program of one operator that the guest has loaded.
    pub fn of_loaded(loaded: Arc<Loaded>, parameter: &[u8]) -> Program {
        let parameter = parameter.to_vec();
        Program(vec![Step { operator: Operator::Module, parameter, loaded: Some(loaded) }])
    }

    /// Returns the status for a load when no handle is free.
    pub fn too_many() -> Status {
        status_of(Reason::OutOfResources)
    }

    /// Returns the number of operators.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns their numbers, then zeros.
    pub fn numbers(&self) -> [u8; CHAIN_MAX] {
        std::array::from_fn(|at| self.0.get(at).map_or(0, |given| given.operator as u8))
    }

    /// Returns the guest's programs among them.
    pub(super) fn loaded(&self) -> Vec<Arc<Loaded>> {
        self.0.iter().filter_map(|given| given.loaded.clone()).collect()
    }

    /// Returns the maximum number of bytes of memory that the operators of a stream take.
    pub fn memory(&self) -> u64 {
        let memory = |given: &Step| match (&given.loaded, given.operator) {
            (Some(loaded), _) => loaded.module().memory(),
            (None, Operator::Unzstd) => memory_of_unzstd(WINDOW),
            (None, operator) => memory(operator, &given.parameter),
        };
        self.0.iter().map(memory).sum()
    }

    /// Makes the context of the operator at this place, at the beginning of its stream.
    ///
    /// # Errors
    ///
    /// Returns a status of the vendor's type (7h) if it does not accept its parameter.
    pub fn context(&self, place: usize) -> Result<Context, Status> {
        let Step { operator, parameter, loaded } = self.0.get(place).ok_or(Status::INTERNAL_ERROR)?;
        let context = match (loaded, operator) {
            (Some(loaded), _) => Context::of_module(loaded.module(), parameter),
            (None, Operator::Unzstd) if parameter.is_empty() => Context::unzstd(WINDOW),
            (None, operator) => Context::new(*operator, parameter),
        };
        context.map_err(|error| status_of(error.status()))
    }
}

impl Step {
    /// Returns a module: the guest's own if it has loaded it, else the process's.
    fn new(operator: Operator, parameter: &[u8], loads: &Loads) -> Step {
        let module = (operator == Operator::Module).then(|| module::split(parameter).ok()).flatten();
        match module.and_then(|(name, own)| Some((loads.named(name)?.clone(), own.to_vec()))) {
            Some((loaded, parameter)) => Step { operator, parameter, loaded: Some(loaded) },
            None => Step { operator, parameter: parameter.to_vec(), loaded: None },
        }
    }
}
