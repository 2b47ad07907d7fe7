//! Quotas: the share of a pool that no tenant can take from another.

use alloc::vec;
use alloc::vec::Vec;

/// Least number kept out of all guarantees, unless that is over half: as many as one command may need at once.
const SURPLUS: u32 = 10;

/// A pool of equal things, shared by queues. A queue that holds less than its guarantee always finds the rest
/// of it free; what is no guarantee goes to whoever comes first.
#[derive(Debug)]
pub(crate) struct Quota {
    total: u32,
    free: u32,
    queues: Vec<Usage>,
    /// Sum over all queues of what they have not taken of their guarantees.
    owed: u32,
    /// Something was given back since this was last asked: who waits may try again.
    returned: bool,
    /// Claim of a queue that needs more at once than it is guaranteed.
    claim: Option<Claim>,
}

/// A claim to things that are nobody's guarantee: they are kept for it as they come back.
#[derive(Clone, Copy, Debug)]
struct Claim {
    queue: usize,
    count: u32,
}

/// A queue's use of the pool, and its guarantee.
#[derive(Clone, Copy, Debug)]
struct Usage {
    used: u32,
    guarantee: u32,
}

impl Usage {
    #[inline]
    fn owed(self) -> u32 {
        self.guarantee.saturating_sub(self.used)
    }
}

impl Quota {
    /// Makes a pool, half of which is guaranteed to its queues in equal parts.
    pub fn new(total: u32, queues: u16) -> Quota {
        let guarantee = total / 2 / u32::from(queues);
        let owed = guarantee * u32::from(queues);
        let held = Usage { used: 0, guarantee };
        Quota { total, free: total, queues: vec![held; queues as usize], owed, returned: false, claim: None }
    }

    /// Shares the pool among the functions that have queues; `functions` names each queue's. All but an
    /// eighth of it, ten at least and half at most, is guaranteed to the functions, and each one's part to
    /// its queues, in equal parts. Functions of equal weights have equal parts. If the weights differ, or an
    /// equal part is too small for one to each of its queues, each queue has one, and the functions have the
    /// rest in proportion to their weights. While only one function has queues, half of the pool is
    /// guaranteed to all queues, as in [`Quota::new`].
    pub fn share(&mut self, functions: &[Option<u16>], weight: impl Fn(u16) -> u16) {
        let of = |function| functions.iter().filter(|other| **other == Some(function)).count() as u32;
        let first = |at: usize| functions[..at].iter().all(|other| *other != functions[at]);
        let sharing: Vec<u16> =
            (0..functions.len()).filter(|at| first(*at)).filter_map(|at| functions[at]).collect();
        let weights: u32 = sharing.iter().map(|function| u32::from(weight(*function))).sum();
        let surplus = (self.total / 8).max(SURPLUS).min(self.total / 2);
        let guaranteed = self.total - surplus;
        let equal = guaranteed / (sharing.len() as u32).max(1);
        let are_equal = sharing.windows(2).all(|pair| weight(pair[0]) == weight(pair[1]))
            && sharing.iter().all(|function| of(*function) <= equal);
        // The sizes are such that each queue can have one.
        let open = functions.iter().flatten().count() as u32;
        let rest = u64::from(guaranteed.saturating_sub(open));
        let part = |function| match are_equal {
            true => equal,
            false => of(function) + (rest * u64::from(weight(function)) / u64::from(weights)) as u32,
        };
        for (held, function) in self.queues.iter_mut().zip(functions) {
            let guarantee = match function {
                _ if sharing.len() < 2 => self.total / 2 / functions.len() as u32,
                Some(function) => part(*function) / of(*function),
                None => 0,
            };
            // A larger guarantee of one may be free for it now, a smaller one of another for all.
            self.returned |= held.guarantee != guarantee;
            held.guarantee = guarantee;
        }
        self.owed = self.queues.iter().map(|held| held.owed()).sum();
    }

    /// Returns true if a queue may take `count`.
    #[inline]
    pub fn has(&self, queue: usize, count: u32) -> bool {
        let own = self.queues[queue];
        let claimed = match self.claim {
            // A guarantee goes before a claim. The queue's own copies, one block at a time, do not.
            Some(claim) if own.owed() < count && (claim.queue != queue || count < claim.count) => {
                claim.count.saturating_sub(self.queues[claim.queue].owed())
            }
            _ => 0,
        };
        self.free >= count + (self.owed - own.owed()) + claimed
    }

    /// Keeps for a queue what it needs at once, if that is more than it is guaranteed, and nothing is kept for another: else who needs one
    /// at a time could take each that comes back, for ever.
    pub fn claim(&mut self, queue: usize, count: u32) {
        if self.claim.is_none() && count > self.queues[queue].guarantee {
            self.claim = Some(Claim { queue, count });
        }
    }

    /// Ends a queue's claim, if it has one.
    pub fn unclaim(&mut self, queue: usize) {
        if self.claim.take_if(|claim| claim.queue == queue).is_some() {
            self.returned = true;
        }
    }

    /// Takes `count` for a queue, all or nothing.
    #[inline]
    pub fn take(&mut self, queue: usize, count: u32) -> bool {
        if !self.has(queue, count) {
            return false;
        }
        self.set(queue, self.queues[queue].used + count);
        self.free -= count;
        true
    }

    /// Gives back what a queue took.
    #[inline]
    pub fn give(&mut self, queue: usize, count: u32) {
        debug_assert!(self.queues[queue].used >= count);
        self.set(queue, self.queues[queue].used.saturating_sub(count));
        self.free += count;
        self.returned |= count > 0;
    }

    /// Returns true if [`Quota::take_returned`] would return true.
    pub fn has_returned(&self) -> bool {
        self.returned
    }

    /// True once after something was given back.
    pub fn take_returned(&mut self) -> bool {
        core::mem::take(&mut self.returned)
    }

    #[inline]
    fn set(&mut self, queue: usize, used: u32) {
        let held = &mut self.queues[queue];
        self.owed -= held.owed();
        held.used = used;
        self.owed += held.owed();
    }

    pub fn free(&self) -> u32 {
        self.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcs_testkit::Random;

    fn equal(_: u16) -> u16 {
        1
    }

    #[test]
    fn a_greedy_queue_leaves_every_other_its_guarantee() {
        let mut quota = Quota::new(40, 4); // guarantee 5 each
        let mut greedy = 0;
        while quota.take(0, 1) {
            greedy += 1;
        }
        assert_eq!(greedy, 40 - 3 * 5);
        for queue in 1..4 {
            assert!(quota.take(queue, 5), "the whole guarantee at once");
            assert!(!quota.take(queue, 1), "and no more");
        }
        assert_eq!(quota.free(), 0);
        quota.give(0, 1);
        assert!(quota.take(1, 1), "what is nobody's guarantee is for all");
    }

    #[test]
    fn functions_have_equal_parts_and_their_queues_parts_of_these() {
        let mut quota = Quota::new(80, 5); // guarantee 8 each
        quota.share(&[Some(0), Some(0), Some(0), None, None], equal);
        assert_eq!(quota.owed, 5 * 8, "one function alone has what it had");
        quota.share(&[Some(0), Some(0), Some(0), Some(7), None], equal); // 35 each: 11 to each queue of the first
        let mut greedy = 0;
        while [0, 1, 2].into_iter().any(|queue| quota.take(queue, 1)) {
            greedy += 1;
        }
        assert_eq!(greedy, 80 - 35);
        assert!(quota.take(3, 35) && !quota.take(3, 1));
        quota.give(3, 35);
        // A third function comes: what is owed to it comes as others give back, and they get no more until then.
        quota.share(&[Some(0), Some(0), Some(0), Some(7), Some(2)], equal); // 23 each
        assert!(!quota.take(0, 1) && quota.take(4, 12) && !quota.take(4, 1));
        quota.give(0, 11);
        assert!(!quota.take(1, 1) && quota.take(4, 11) && quota.take(3, 23));
        assert_eq!(quota.free(), 0);
        quota.give(3, 23);
        quota.share(&[Some(0), Some(0), Some(0), None, Some(2)], equal);
        assert!(quota.take(4, 12), "its part is larger again");
    }

    /// Keeps blocks that come back for a queue that needs several at once; guarantees go before it.
    #[test]
    fn a_queue_that_needs_more_than_its_guarantee_gets_it_from_who_takes_one_at_a_time() {
        let mut quota = Quota::new(40, 4); // guarantee 5 each
        let taken = (0..).take_while(|_| quota.take(0, 1)).count();
        quota.claim(1, 5);
        quota.give(0, 1);
        assert!(quota.take(0, 1), "it is guaranteed that many");
        quota.claim(1, 8);
        quota.claim(2, 9);
        for _ in 0..3 {
            assert!(!quota.take(1, 8));
            quota.give(0, 1);
            assert!(!quota.take(0, 1) && quota.take(2, 5), "a guarantee goes before");
            quota.give(2, 5);
        }
        assert!(quota.take(1, 8) && taken == 25);
        quota.unclaim(2);
        quota.give(0, 1);
        assert!(!quota.take(0, 1), "it is the queue's until that says otherwise");
        quota.unclaim(1);
        assert!(quota.take(0, 1) && quota.take_returned());
    }

    /// A claim holds against the queue's own copies too: else these alone would have all that is nobody's guarantee.
    #[test]
    fn a_queue_s_copies_do_not_take_what_its_chain_claims() {
        let mut quota = Quota::new(40, 4); // guarantee 5 each
        assert!(quota.take(1, 5));
        let taken = (0..).take_while(|_| quota.take(0, 1)).count();
        quota.claim(1, 8);
        for _ in 0..8 {
            assert!(!quota.take(1, 8) && !quota.take(1, 1) && !quota.take(0, 1));
            quota.give(0, 1);
        }
        assert!(quota.take(1, 8) && taken == 25);
    }

    /// A command with the longest chain always finds its blocks in the end, however many functions there are.
    #[test]
    fn what_one_command_needs_at_once_is_nobody_s_guarantee() {
        for (total, functions) in [(18, 4), (64, 2), (64, 8), (256, 16)] {
            let mut quota = Quota::new(total, functions);
            quota.share(&(0..functions).map(Some).collect::<Vec<_>>(), equal);
            assert!(quota.take(0, 9), "{total} {functions}");
        }
    }
    #[test]
    fn functions_have_parts_by_their_weights() {
        let mut quota = Quota::new(80, 4);
        quota.share(&[Some(0), Some(0), Some(1), Some(2)], |function| [6, 1, 1][usize::from(function)]);
        // 70 are guaranteed, one to each queue, the other 66 by weights: 51, for two queues, 9 and 9.
        let guarantees: Vec<u32> = quota.queues.iter().map(|held| held.guarantee).collect();
        assert_eq!(guarantees, [25, 25, 9, 9]);
    }

    /// Two functions of equal weights, one of which has so many queues that half of what is guaranteed is
    /// less than one to each.
    #[test]
    fn each_of_very_many_queues_is_guaranteed_one() {
        let mut quota = Quota::new(40, 20);
        quota.share(&(0..20).map(|at| Some(u16::from(at == 7))).collect::<Vec<_>>(), equal);
        // 30 are guaranteed, one to each queue, and half of the other 10 to each function.
        assert_eq!((quota.queues[7].guarantee, quota.queues[0].guarantee), (6, 1));
        while quota.take(7, 1) {}
        assert!((0..20).filter(|at| *at != 7).all(|at| quota.take(at, 1)));
        assert_eq!(quota.free(), 0);
    }

    /// With all sizes that an engine may have, and whatever functions' weights are, each queue that is there
    /// is guaranteed one; and no more is guaranteed than what is left beside the longest chain's blocks.
    #[test]
    fn each_queue_is_guaranteed_one_and_no_more_than_there_is() {
        let mut random = Random(5);
        for _ in 0..2000 {
            let queues = 1 + random.below(64) as u16;
            let total = u32::from(queues) * 2 + random.below(80) as u32;
            let functions = 1 + random.below(u64::from(queues));
            // A few functions have most of the queues.
            let mut of = Vec::new();
            for _ in 0..queues {
                let last = random.below(functions);
                of.push(Some(random.below(last + 1) as u16).filter(|_| random.below(8) > 0));
            }
            let weights: Vec<u16> = (0..functions).map(|_| 1 + random.below(256) as u16).collect();
            for are_equal in [true, false] {
                let mut quota = Quota::new(total, queues);
                quota.share(&of, |function| if are_equal { 1 } else { weights[usize::from(function)] });
                let there = quota.queues.iter().zip(&of).filter(|(_, of)| of.is_some());
                assert!(there.clone().all(|(held, _)| held.guarantee > 0), "{total}, {of:?}, {weights:?}");
                assert!(quota.owed <= total - SURPLUS.min(total / 2), "{total}, {of:?}, {weights:?}");
            }
        }
    }

    /// Whatever the others take, a function gets its part, which is at least what its weight is of all weights, less what is
    /// nobody's and what does not divide; and with equal weights, whatever they are, all is as without.
    #[test]
    fn a_part_is_what_the_weight_says_whoever_floods() {
        let mut random = Random(18);
        for _ in 0..2000 {
            let (total, queues) = (20 + random.below(300) as u32, 2 + random.below(8) as u16);
            let weights: Vec<u16> = (0..4).map(|_| 1 + random.below(256) as u16).collect();
            let weight = |function: u16| weights[usize::from(function)];
            let of: Vec<Option<u16>> =
                (0..queues).map(|_| Some(random.below(5) as u16).filter(|function| *function < 4)).collect();
            let mut quota = Quota::new(total, queues);
            quota.share(&of, weight);
            let there: Vec<u16> = (0..4).filter(|function| of.contains(&Some(*function))).collect();
            if there.len() < 2 {
                continue;
            }
            let guaranteed = total - (total / 8).max(SURPLUS).min(total / 2);
            let quiet = there[random.below(there.len() as u64) as usize];
            let own = |at: &usize| of[*at] == Some(quiet);
            while (0..of.len()).filter(|at| of[*at].is_some() && !own(at)).any(|at| quota.take(at, 1)) {}
            let taken =
                (0..of.len()).filter(own).map(|at| (0..).take_while(|_| quota.take(at, 1)).count() as u32);
            let taken: u32 = taken.sum();
            let sum: u32 = there.iter().map(|function| u32::from(weight(*function))).sum();
            let queues = (0..of.len()).filter(own).count() as u32;
            let open = of.iter().flatten().count() as u32;
            let by_weight = (guaranteed - open) * u32::from(weight(quiet)) / sum + queues;
            assert!(
                taken + queues > by_weight,
                "{taken} of {total}, {by_weight} by weights {weights:?}, {of:?}"
            );

            let (mut plain, mut same) = (Quota::new(total, queues as u16), Quota::new(total, queues as u16));
            let of = &of[..queues as usize];
            plain.share(of, equal);
            same.share(of, |_| weights[0]);
            let guarantees =
                |quota: &Quota| quota.queues.iter().map(|held| held.guarantee).collect::<Vec<_>>();
            assert_eq!(guarantees(&plain), guarantees(&same));
        }
    }
}
