//! Shares by weight: whose turn it is.
//!
//! Surplus round robin: a member keeps the turn until its credit is used up, may overdraw it by one job, and
//! gets new credit, by its weight, in the next round. A job's cost need not be known in advance.
//!
//! The bound: between two members that always have had jobs, what each got, divided by its weight, differs by
//! at most [`QUANTUM`] and each one's largest job divided by its weight.

/// Credit for a round at a weight of one.
pub const QUANTUM: u64 = 64 << 10;

/// Members that take turns.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    members: Vec<Option<Member>>,
    /// The member that has the turn.
    turn: usize,
}

#[derive(Clone, Debug)]
struct Member {
    weight: u64,
    credit: i64,
}

impl Shares {
    /// Adds a member at `index` with a weight from 1 to 1,000 (others are clamped), or changes its weight.
    pub fn set(&mut self, index: usize, weight: u32) {
        if self.members.len() <= index {
            self.members.resize(index + 1, None);
        }
        let weight = u64::from(weight.clamp(1, 1000));
        match &mut self.members[index] {
            Some(member) => member.weight = weight,
            empty => *empty = Some(Member { weight, credit: 0 }),
        }
    }

    /// Removes a member.
    pub fn remove(&mut self, index: usize) {
        if let Some(member) = self.members.get_mut(index) {
            *member = None;
        }
    }

    /// Returns the member whose turn it is among those that are ready, to be [charged](Shares::charge) for
    /// what it gets; `None` if none is ready.
    pub fn next(&mut self, mut is_ready: impl FnMut(usize) -> bool) -> Option<usize> {
        let count = self.members.len();
        loop {
            // The number of rounds before the one in which the first ready member has credit.
            let mut rounds: Option<i64> = None;
            for _ in 0..count {
                let index = self.turn;
                if let Some(Some(member)) = self.members.get_mut(index) {
                    if !is_ready(index) {
                        // Credit is not saved up; debt is.
                        member.credit = member.credit.min(0);
                    } else {
                        let quantum = (member.weight * QUANTUM) as i64;
                        if member.credit <= 0 {
                            member.credit += quantum;
                        }
                        if member.credit > 0 {
                            return Some(index);
                        }
                        let needed = member.credit.saturating_neg() / quantum;
                        rounds = Some(rounds.map_or(needed, |rounds| rounds.min(needed)));
                    }
                }
                self.turn = (index + 1) % count;
            }
            // Rounds in which nobody gets anything are counted at once.
            let rounds = rounds?;
            for (index, member) in self.members.iter_mut().enumerate() {
                if let Some(member) = member
                    && is_ready(index)
                {
                    // A member that became ready since then has no debt that such rounds would pay.
                    let credit = rounds.saturating_mul((member.weight * QUANTUM) as i64);
                    member.credit = member.credit.saturating_add(credit).min(0);
                }
            }
        }
    }

    /// Returns true if this member still has the turn.
    pub fn has_credit(&self, index: usize) -> bool {
        matches!(self.members.get(index), Some(Some(member)) if member.credit > 0)
    }

    /// Charges the member for something of this cost. Its turn ends when its credit is used up; a member that
    /// has not got its credit yet keeps the turn, whatever it is charged meanwhile for earlier jobs.
    pub fn charge(&mut self, index: usize, cost: u64) {
        let count = self.members.len();
        if let Some(Some(member)) = self.members.get_mut(index) {
            let had_credit = member.credit > 0;
            member.credit = member.credit.saturating_sub_unsigned(cost);
            if had_credit && member.credit <= 0 && self.turn == index {
                self.turn = (index + 1) % count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guests ring doorbells while their turns are counted.
    #[test]
    fn who_becomes_ready_while_another_pays_off_gets_no_more_than_its_share() {
        let (mut shares, mut got) = (Shares::default(), [0u64; 2]);
        (0..2).for_each(|index| shares.set(index, 1));
        assert_eq!(shares.next(|index| index == 0), Some(0));
        shares.charge(0, 1 << 40);
        // The other member is asked again only when the rounds of the first one's debt are counted.
        let mut asked = 0;
        let next = shares.next(|index| {
            asked += index;
            index == 0 || asked > 1
        });
        assert!(asked > 1 && next.is_some());
        for _ in 0..100 {
            let index = shares.next(|_| true).unwrap();
            shares.charge(index, QUANTUM);
            got[index] += 1;
        }
        assert!(got[0].abs_diff(got[1]) <= 2, "{got:?}");
    }

    /// Late or free charges come while a member waits for its next credit.
    #[test]
    fn who_pays_late_keeps_its_turn() {
        for late in [0, 1, QUANTUM / 2] {
            let mut shares = Shares::default();
            (0..3).for_each(|index| shares.set(index, 1));
            assert_eq!(shares.next(|_| true), Some(0));
            shares.charge(0, QUANTUM);
            shares.charge(1, late);
            assert_eq!(shares.next(|_| true), Some(1), "{late}");
            shares.charge(1, 0);
            assert_eq!(shares.next(|_| true), Some(1), "{late}");
            shares.charge(1, QUANTUM - late);
            assert_eq!(shares.next(|_| true), Some(2), "{late}");
        }
    }

    #[test]
    fn the_largest_debt_is_paid_off() {
        let mut shares = Shares::default();
        [1, 1000].iter().enumerate().for_each(|(index, weight)| shares.set(index, *weight));
        for index in [0, 1] {
            assert_eq!(shares.next(|ready| ready == index), Some(index));
            shares.charge(index, u64::MAX);
        }
        assert!(shares.next(|_| true).is_some());
    }
}
