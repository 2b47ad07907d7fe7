//! Operator renaming: operators of chains onto physical units (FlexCSV section 4.5.1).
//!
//! A chain names an operator; which unit works on a block is decided block by block, by whichever is free. The
//! stream's state is the command's, not the unit's: a unit is loaded with it for one block.

use crate::message::OperationId;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use dcs_abi::operator::Operator;

#[derive(Debug)]
struct Pool {
    operator: Operator,
    free: Vec<u16>,
    waiting: VecDeque<OperationId>,
}

#[derive(Debug)]
pub(crate) struct Renaming {
    pools: Vec<Pool>,
}

impl Renaming {
    pub fn new(units: &[(Operator, u16)]) -> Renaming {
        let pool = |(operator, count): &(Operator, u16)| Pool {
            operator: *operator,
            free: (0..*count).rev().collect(),
            waiting: VecDeque::new(),
        };
        Renaming { pools: units.iter().filter(|unit| unit.1 > 0).map(pool).collect() }
    }

    /// The pool of an operator, if this engine has units of it.
    pub fn pool(&self, operator: Operator) -> Option<u8> {
        self.pools.iter().position(|pool| pool.operator == operator).map(|at| at as u8)
    }

    /// Maps an entry onto a free unit, or lets it wait its turn.
    pub fn rename(&mut self, pool: u8, entry: OperationId) -> Option<u16> {
        let pool = &mut self.pools[pool as usize];
        let unit = pool.free.pop();
        if unit.is_none() {
            pool.waiting.push_back(entry);
        }
        unit
    }

    /// The entry that has waited longest for a unit of this pool. It may be gone by now.
    pub fn next_waiting(&mut self, pool: u8) -> Option<OperationId> {
        self.pools[pool as usize].waiting.pop_front()
    }

    /// Frees a unit for which nobody waits.
    pub fn release(&mut self, pool: u8, unit: u16) {
        self.pools[pool as usize].free.push(unit);
    }
}
