//! Operator renaming: operators of chains onto physical units (FlexCSV section 4.5.1).
//!
//! A chain names an operator; the unit that works on a block is chosen block by block, from those that are
//! free. The stream's state is the command's, not the unit's: a unit is loaded with it for one block.

use crate::interface::Nanos;
use crate::multi_lane::{MultiLaneUnit, Occasion};
use crate::scoreboard::RowId;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use dcs_abi::operator::{ON_GPU, Operator, OperatorKind};

#[derive(Debug)]
struct Pool {
    operator: Operator,
    on_gpu: bool,
    count: u16,
    free: Vec<u16>,
    waiting: VecDeque<RowId>,
    /// Turns in a row, at each unit, of the function whose row it works for.
    turns: Vec<u16>,
    /// Set if the units are the lanes of one.
    multi_lane: Option<MultiLaneUnit>,
}

#[derive(Debug)]
pub(crate) struct Renaming {
    pools: Vec<Pool>,
    /// The pool of each number of a chain; [`NO_POOL`] if there is none.
    by_number: [u8; 256],
    /// Rows in lanes that wait for a pass.
    filled: usize,
    /// Units that work, and rows that wait for one.
    busy: usize,
}

const NO_POOL: u8 = u8::MAX;

/// The number in a chain, as an index.
#[inline]
fn number(operator: Operator, on_gpu: bool) -> usize {
    (operator as u8 | if on_gpu { ON_GPU } else { 0 }) as usize
}

impl Renaming {
    pub fn new(units: &[(Operator, u16)], gpu: &[(Operator, u16)], multi_lane: &[Operator]) -> Renaming {
        let pool = |(operator, count, on_gpu): (Operator, u16, bool)| Pool {
            operator,
            on_gpu,
            count,
            free: (0..count).rev().collect(),
            waiting: VecDeque::new(),
            turns: vec![1; count.into()],
            multi_lane: (!on_gpu
                && multi_lane.contains(&operator)
                && operator.kind() != OperatorKind::Resize)
                .then(|| MultiLaneUnit::new(count)),
        };
        let own = units.iter().map(|unit| (unit.0, unit.1, false));
        let all = own.chain(gpu.iter().map(|unit| (unit.0, unit.1, true)));
        let pools: Vec<Pool> = all.filter(|unit| unit.1 > 0).map(pool).collect();
        let mut by_number = [NO_POOL; 256];
        // Of two pools of one operator the first counts.
        for (at, pool) in pools.iter().enumerate().rev() {
            by_number[number(pool.operator, pool.on_gpu)] = at as u8;
        }
        Renaming { pools, by_number, filled: 0, busy: 0 }
    }

    /// The pool of an operator, if this engine has units of it.
    #[inline]
    pub fn pool(&self, operator: Operator, on_gpu: bool) -> Option<u8> {
        let pool = self.by_number[number(operator, on_gpu)];
        (pool != NO_POOL).then_some(pool)
    }

    /// Maps a row onto a free unit, or lets it wait its turn.
    #[inline]
    pub fn rename(&mut self, pool: u8, row: RowId) -> Option<u16> {
        let pool = &mut self.pools[pool as usize];
        self.busy += 1;
        let unit = pool.free.pop();
        if unit.is_none() {
            pool.waiting.push_back(row);
        }
        unit
    }

    /// Brings the row to the head of a pool's line that gets a unit which is freed: of the function `last`, whose row has
    /// it, as long as that has had fewer turns in a row than its weight, and else of the function next after that. Of
    /// this function's rows it is the one that has waited longest. `function` tells a row's.
    #[cold]
    pub fn pass_turn(
        &mut self,
        pool: u8,
        unit: u16,
        (last, weight): (u16, u16),
        function: impl Fn(RowId) -> u16,
    ) {
        let Pool { waiting, turns, .. } = &mut self.pools[pool as usize];
        let turns = &mut turns[unit as usize];
        let before = if *turns < weight { last } else { last.wrapping_add(1) };
        let distance = |row: RowId| function(row).wrapping_sub(before);
        let next = (0..waiting.len()).min_by_key(|at| distance(waiting[*at]));
        let Some(row) = next.and_then(|at| waiting.remove(at)) else {
            *turns = 1;
            return;
        };
        // A function that is alone in the line has had all its turns when another comes.
        *turns = if function(row) == last { turns.saturating_add(1) } else { 1 };
        waiting.push_front(row);
    }

    /// Frees a unit: for the first row in the line for this pool, if there is one.
    #[inline]
    pub fn release(&mut self, pool: u8, unit: u16) -> Option<RowId> {
        let pool = &mut self.pools[pool as usize];
        self.busy -= 1;
        let next = pool.waiting.pop_front();
        if next.is_none() {
            pool.free.push(unit);
        }
        next
    }

    /// A row is in its lane, where its pool gathers.
    #[inline]
    pub fn join(&mut self, pool: u8, row: RowId, now: Nanos) {
        if let Some(multi_lane) = &mut self.pools[pool as usize].multi_lane {
            multi_lane.join(row, now);
            self.filled += 1;
        }
    }

    /// The operation of a row was answered.
    #[inline]
    pub fn answered(&mut self, pool: u8, row: RowId, now: Nanos, processed: bool) {
        if let Some(multi_lane) = &mut self.pools[pool as usize].multi_lane
            && multi_lane.answered(row, now, processed)
        {
            self.filled -= 1;
        }
    }

    /// Rows with operators of this pool wait for each other.
    #[inline]
    pub fn gathers(&self, pool: u8) -> bool {
        self.pools[pool as usize].multi_lane.is_some()
    }

    /// Rows are in lanes and wait for a pass.
    #[inline]
    pub fn has_filled_lanes(&self) -> bool {
        self.filled > 0
    }

    /// Starts a pass that is due, if there is one; tells of which operator, and of how many rows.
    pub fn start_pass(&mut self, now: Nanos, occasion: Occasion) -> Option<(Operator, usize)> {
        self.pools.iter_mut().find_map(|pool| {
            let started = pool.multi_lane.as_mut()?.start(now, occasion)?;
            self.filled -= started;
            Some((pool.operator, started))
        })
    }

    /// When the next pass is due at the latest.
    #[inline]
    pub fn next_pass(&self) -> Option<Nanos> {
        if self.filled == 0 {
            return None;
        }
        self.pools.iter().filter_map(|pool| pool.multi_lane.as_ref()?.deadline()).min()
    }

    /// Takes a row out of the line of its pool: its command failed.
    pub fn forget(&mut self, pool: u8, row: RowId) {
        let waiting = &mut self.pools[pool as usize].waiting;
        let before = waiting.len();
        waiting.retain(|other| *other != row);
        self.busy -= before - waiting.len();
    }

    /// Returns true if no unit works and nothing waits for one.
    pub fn all_free(&self) -> bool {
        let free = |pool: &Pool| pool.free.len() == pool.count as usize && pool.waiting.is_empty();
        debug_assert_eq!(self.busy == 0, self.pools.iter().all(free));
        self.filled == 0 && self.busy == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_unit_goes_to_who_waited_longest() {
        let rows: [RowId; 5] = core::array::from_fn(|at| RowId(at as u32));
        let mut renaming =
            Renaming::new(&[(Operator::Md5, 2), (Operator::Gzip, 0)], &[(Operator::Md5, 1)], &[]);
        assert_eq!(renaming.pool(Operator::Gzip, false), None, "no units, no pool");
        let pool = renaming.pool(Operator::Md5, false).expect("it has units");
        assert_ne!(renaming.pool(Operator::Md5, true), Some(pool));
        let units: [Option<u16>; 5] = rows.map(|row| renaming.rename(pool, row));
        assert_eq!(units, [Some(0), Some(1), None, None, None]);
        renaming.forget(pool, rows[2]);
        assert_eq!(renaming.release(pool, 1), Some(rows[3]));
        assert_eq!(renaming.release(pool, 0), Some(rows[4]));
        assert!(!renaming.all_free());
        assert_eq!([renaming.release(pool, 0), renaming.release(pool, 1)], [None; 2]);
        assert!(renaming.all_free());
    }

    #[test]
    fn functions_take_turns_however_many_rows_wait_of_each() {
        let mut renaming = Renaming::new(&[(Operator::Md5, 1)], &[], &[]);
        let function = |row: RowId| [9, 9, 9, 9, 2, 4, 9][row.0 as usize];
        (0..7).for_each(|row| _ = renaming.rename(0, RowId(row)));
        let (mut last, mut order) = (9, Vec::new());
        loop {
            renaming.pass_turn(0, 0, (last, 1), function);
            let Some(row) = renaming.release(0, 0) else { break };
            last = function(row);
            order.push(row.0);
        }
        assert_eq!(order, [4, 5, 1, 2, 3, 6]);
    }
    #[test]
    fn a_function_has_as_many_turns_in_a_row_as_its_weight() {
        let mut renaming = Renaming::new(&[(Operator::Md5, 2)], &[], &[]);
        let function = |row: RowId| row.0 as u16 % 3;
        let weight = |function: u16| [1, 3, 2][function as usize];
        (0..80).for_each(|row| _ = renaming.rename(0, RowId(row)));
        // Row 0 has unit 0, row 1 unit 1, and they are freed in turn.
        let (mut at, mut order) = ([0, 1], [Vec::new(), Vec::new()]);
        for unit in (0..2).cycle().take(24) {
            renaming.pass_turn(0, unit as u16, (at[unit], weight(at[unit])), function);
            at[unit] = function(renaming.release(0, unit as u16).expect("one waits"));
            order[unit].push(at[unit]);
        }
        assert_eq!(order[0], [1, 1, 1, 2, 2, 0, 1, 1, 1, 2, 2, 0]);
        assert_eq!(order[1], [1, 1, 2, 2, 0, 1, 1, 1, 2, 2, 0, 1]);
    }
}
