//! Activated programs, sets of memory ranges, and the parts of both that an execution holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use dcs_abi::operator::{OPERATORS, Operator};
use dcs_nvme::Status;
use dcs_nvme::programs::{MemoryRange, ProgramActivation};

use super::loads::Loads;

/// Index of the program that is a chain of operators.
pub const CHAIN: u16 = 0x100;
/// Maximum number of sets of memory ranges.
pub const SETS: usize = 64;
/// Maximum number of memory ranges in a set.
pub const RANGES: usize = 8;
/// Addresses and lengths in local memory are multiples of this.
pub const GRANULARITY: u64 = 4;

/// Returns the number of programs.
pub fn program_count() -> u16 {
    OPERATORS.len() as u16 + 1
}

/// Checks that there is a program with this index.
pub(super) fn exists(loads: &Loads, program: u16) -> Result<(), Status> {
    match program {
        CHAIN => Ok(()),
        program if program > loads.last() => Err(Status::INVALID_PROGRAM_INDEX),
        program if program > CHAIN => loads.get(program).map(|_| ()).ok_or(Status::NO_PROGRAM),
        program => match u8::try_from(program).ok().and_then(Operator::from_number) {
            // Modules have no index of their own here.
            Some(Operator::Module) | None => Err(Status::NO_PROGRAM),
            Some(_) => Ok(()),
        },
    }
}

/// Activated programs, and sets of memory ranges.
pub struct Programs {
    /// Shared with running executions.
    pub(super) activated: BTreeMap<u16, Arc<()>>,
    /// Shared with the executions that use them.
    pub(super) sets: BTreeMap<u16, Arc<Vec<MemoryRange>>>,
}

impl Default for Programs {
    /// Makes it with all of the controller's own programs activated.
    fn default() -> Programs {
        let indexes = OPERATORS.iter().map(|info| info.operator as u16).chain([CHAIN]);
        Programs { activated: indexes.map(|index| (index, Arc::default())).collect(), sets: BTreeMap::new() }
    }
}

impl Programs {
    pub(super) fn activate(&mut self, loads: &Loads, wanted: ProgramActivation) -> Result<(), Status> {
        exists(loads, wanted.program)?;
        match wanted.select {
            1 => drop(self.activated.entry(wanted.program).or_default()),
            0 => match self.activated.get(&wanted.program) {
                Some(running) if Arc::strong_count(running) > 1 => return Err(Status::PROGRAM_IN_USE),
                _ => drop(self.activated.remove(&wanted.program)),
            },
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok(())
    }

    pub(super) fn create(&mut self, ranges: Vec<MemoryRange>) -> Result<u16, Status> {
        let free = (1..=SETS as u16).find(|set| !self.sets.contains_key(set));
        let set = free.ok_or(Status::TOO_MANY_MEMORY_RANGE_SETS)?;
        self.sets.insert(set, Arc::new(ranges));
        Ok(set)
    }

    pub(super) fn delete(&mut self, set: u16) -> Result<(), Status> {
        match self.sets.get(&set) {
            None => Err(Status::INVALID_MEMORY_RANGE_SET_ID),
            Some(ranges) if Arc::strong_count(ranges) > 1 => Err(Status::MEMORY_RANGE_SET_IN_USE),
            Some(_) => {
                self.sets.remove(&set);
                Ok(())
            }
        }
    }
}

/// The parts that an execution holds while it runs, and the place of its result page.
pub struct Execution {
    pub(super) _running: Arc<()>,
    pub(super) _set: Arc<Vec<MemoryRange>>,
    /// The places of a digest's value and of the result page.
    pub(super) digest: Option<u64>,
    pub(super) page: Option<u64>,
}
