//! Operator renaming: operators of chains onto physical units (FlexCSV section 4.5.1).
//!
//! A chain names an operator; which unit works on a block is decided block by block, by whichever is free. The
//! stream's state is the command's, not the unit's: a unit is loaded with it for one block.

use crate::scoreboard::EntryId;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use dcs_abi::operator::Operator;

#[derive(Debug)]
struct Pool {
    operator: Operator,
    count: u16,
    free: Vec<u16>,
    waiting: VecDeque<EntryId>,
}

#[derive(Debug)]
pub(crate) struct Renaming {
    pools: Vec<Pool>,
}

impl Renaming {
    pub fn new(units: &[(Operator, u16)]) -> Renaming {
        let pool = |(operator, count): &(Operator, u16)| Pool {
            operator: *operator,
            count: *count,
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
    pub fn rename(&mut self, pool: u8, entry: EntryId) -> Option<u16> {
        let pool = &mut self.pools[pool as usize];
        let unit = pool.free.pop();
        if unit.is_none() {
            pool.waiting.push_back(entry);
        }
        unit
    }

    /// Frees a unit: for the entry that has waited longest for one of this pool, if any does.
    pub fn release(&mut self, pool: u8, unit: u16) -> Option<EntryId> {
        let pool = &mut self.pools[pool as usize];
        let next = pool.waiting.pop_front();
        if next.is_none() {
            pool.free.push(unit);
        }
        next
    }

    /// Takes an entry out of the line of its pool: its command failed.
    pub fn forget(&mut self, pool: u8, entry: EntryId) {
        self.pools[pool as usize].waiting.retain(|other| *other != entry);
    }

    /// True where no unit works and nobody waits for one.
    pub fn all_free(&self) -> bool {
        self.pools.iter().all(|pool| pool.free.len() == pool.count as usize && pool.waiting.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scoreboard::{Device, Scoreboard};

    #[test]
    fn a_freed_unit_goes_to_who_waited_longest() {
        let mut board = Scoreboard::new(5);
        let entries: [EntryId; 5] = core::array::from_fn(|_| board.add(0, Device::Operator(0), None));
        let mut renaming = Renaming::new(&[(Operator::Md5, 2), (Operator::Gzip, 0)]);
        assert_eq!(renaming.pool(Operator::Gzip), None, "no units, no pool");
        let pool = renaming.pool(Operator::Md5).expect("it has units");
        let units: [Option<u16>; 5] = entries.map(|entry| renaming.rename(pool, entry));
        assert_eq!(units, [Some(0), Some(1), None, None, None]);
        renaming.forget(pool, entries[2]);
        assert_eq!(renaming.release(pool, 1), Some(entries[3]));
        assert_eq!(renaming.release(pool, 0), Some(entries[4]));
        assert!(!renaming.all_free());
        assert_eq!([renaming.release(pool, 0), renaming.release(pool, 1)], [None; 2]);
        assert!(renaming.all_free());
    }
}
