//! Parameters that were loaded: operators, and what each was given.

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
/// ones.
const OPERATOR: usize = 8;

/// Bytes of parameters at most.
pub const PARAMETERS_MAX: usize = 64 << 10;

/// The largest window of a frame that `unzstd` takes in a drive, as a power of two: 8 MiB, which all decoders have (RFC 8878,
/// 3.1.1.1.2), and no level of `zstd` exceeds unless it is told to. Each chain sets that aside, whatever its data are.
const WINDOW: u8 = 23;

/// Operators, with their parameter blocks. Those that cannot be are found out when their contexts are made.
#[derive(Default)]
pub struct Program(Vec<Given>);

/// An operator, and what it is given.
struct Given {
    operator: Operator,
    parameter: Vec<u8>,
    /// It is a program that the guest has loaded; the parameter is its own.
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

/// The NVMe status for why a chain cannot be.
pub fn status_of(reason: Reason) -> Status {
    Status(reason.code())
}

impl Program {
    /// Reads parameters, which may name what the guest has loaded.
    ///
    /// # Errors
    ///
    /// Invalid Field in Command for bytes that are no parameters; a status of the vendor's type (7h) for
    /// operators that are not there.
    pub fn read(bytes: &[u8], loads: &Loads) -> Result<Program, Status> {
        let (header, rest) = bytes.split_at_checked(HEADER).ok_or(Status::INVALID_FIELD)?;
        let count = usize::from(header[0]);
        if !(1..=CHAIN_MAX).contains(&count) || header[1..] != [0; HEADER - 1] {
            return Err(Status::INVALID_FIELD);
        }
        Program::operators(count, rest, loads).map(|(program, _)| program)
    }

    /// Reads what opens a stream: the same, where there may be no operator, and behind them ranges, whose
    /// number is in bytes 4 to 7 of the header, and bytes that come before the ranges', whose number is in
    /// bytes 1 to 3. The operators, the ranges, and the bytes that come first.
    ///
    /// # Errors
    ///
    /// As [`Program::read`].
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

    /// Reads this many operators; what lies behind them.
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
            program.0.push(Given::new(operator, parameter, loads));
            rest = after.get(length.next_multiple_of(8)..).unwrap_or_default();
        }
        Ok((program, rest))
    }

    #[cfg(test)]
    pub fn new(operators: Vec<(Operator, Vec<u8>)>) -> Program {
        let given = |(operator, parameter)| Given { operator, parameter, loaded: None };
        Program(operators.into_iter().map(given).collect())
    }

    /// One operator.
    pub fn of(operator: Operator, parameter: &[u8]) -> Program {
        Program(vec![Given { operator, parameter: parameter.to_vec(), loaded: None }])
    }

    /// One that the guest has loaded.
    pub fn of_loaded(loaded: Arc<Loaded>, parameter: &[u8]) -> Program {
        let parameter = parameter.to_vec();
        Program(vec![Given { operator: Operator::Module, parameter, loaded: Some(loaded) }])
    }

    /// The status where no handle is free.
    pub fn too_many() -> Status {
        status_of(Reason::OutOfResources)
    }

    /// Operators.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Their numbers, then zeros.
    pub fn numbers(&self) -> [u8; CHAIN_MAX] {
        std::array::from_fn(|at| self.0.get(at).map_or(0, |given| given.operator as u8))
    }

    /// The programs that the guest has loaded among them.
    pub(super) fn loaded(&self) -> Vec<Arc<Loaded>> {
        self.0.iter().filter_map(|given| given.loaded.clone()).collect()
    }

    /// Bytes of memory that the operators of a stream take at most.
    pub fn memory(&self) -> u64 {
        let memory = |given: &Given| match (&given.loaded, given.operator) {
            (Some(loaded), _) => loaded.module().memory(),
            (None, Operator::Unzstd) => memory_of_unzstd(WINDOW),
            (None, operator) => memory(operator, &given.parameter),
        };
        self.0.iter().map(memory).sum()
    }

    /// The operator at this place, at the beginning of its stream.
    ///
    /// # Errors
    ///
    /// A status of the vendor's type (7h) where it does not take its parameter.
    pub fn context(&self, place: usize) -> Result<Context, Status> {
        let Given { operator, parameter, loaded } = self.0.get(place).ok_or(Status::INTERNAL_ERROR)?;
        let context = match (loaded, operator) {
            (Some(loaded), _) => Context::of_module(loaded.module(), parameter),
            (None, Operator::Unzstd) if parameter.is_empty() => Context::unzstd(WINDOW),
            (None, operator) => Context::new(*operator, parameter),
        };
        context.map_err(|error| status_of(error.status()))
    }
}

impl Given {
    /// A module is the guest's own, where it has loaded that; else the process's.
    fn new(operator: Operator, parameter: &[u8], loads: &Loads) -> Given {
        let module = (operator == Operator::Module).then(|| module::split(parameter).ok()).flatten();
        match module.and_then(|(name, own)| Some((loads.named(name)?.clone(), own.to_vec()))) {
            Some((loaded, parameter)) => Given { operator, parameter, loaded: Some(loaded) },
            None => Given { operator, parameter: parameter.to_vec(), loaded: None },
        }
    }
}
