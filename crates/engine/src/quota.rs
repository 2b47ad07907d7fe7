//! Quotas: the share of a pool that no tenant can take from another.

use alloc::vec;
use alloc::vec::Vec;

/// Fewest things that are nobody's guarantee, if that is not more than half: as many as one command may need at once.
const SURPLUS: u32 = 10;

/// A pool of equal things, shared by queues. A queue that holds less than its guarantee always finds the rest
/// of it free; what is no guarantee goes to whoever comes first.
#[derive(Debug)]
pub(crate) struct Quota {
    total: u32,
    free: u32,
    queues: Vec<Held>,
    /// Sum over all queues of what they have not taken of their guarantees.
    owed: u32,
    /// Something was given back since this was last asked: who waits may try again.
    returned: bool,
}

/// A queue's things.
#[derive(Clone, Copy, Debug)]
struct Held {
    used: u32,
    guarantee: u32,
}

impl Held {
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
        let held = Held { used: 0, guarantee };
        Quota { total, free: total, queues: vec![held; queues as usize], owed, returned: false }
    }

    /// Shares the pool among the functions that have queues; `functions` names each queue's. All but an eighth of it, ten
    /// at least and half at most, is guaranteed to the functions in equal parts, and each one's part to its queues.
    /// While only one function has queues, half of the pool is guaranteed to all queues, as in [`Quota::new`].
    pub fn share(&mut self, functions: &[Option<u16>]) {
        let of = |function| functions.iter().filter(|other| **other == Some(function)).count() as u32;
        let first = |at: usize| functions[..at].iter().all(|other| *other != functions[at]);
        let sharing = (0..functions.len()).filter(|at| functions[*at].is_some() && first(*at)).count() as u32;
        let surplus = (self.total / 8).max(SURPLUS).min(self.total / 2);
        for (held, function) in self.queues.iter_mut().zip(functions) {
            let guarantee = match function {
                _ if sharing < 2 => self.total / 2 / functions.len() as u32,
                Some(function) => (self.total - surplus) / sharing / of(*function),
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
        let owed_to_others = self.owed - self.queues[queue].owed();
        self.free >= count + owed_to_others
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
        quota.share(&[Some(0), Some(0), Some(0), None, None]);
        assert_eq!(quota.owed, 5 * 8, "one function alone has what it had");
        quota.share(&[Some(0), Some(0), Some(0), Some(7), None]); // 35 each: 11 to each queue of the first
        let mut greedy = 0;
        while [0, 1, 2].into_iter().any(|queue| quota.take(queue, 1)) {
            greedy += 1;
        }
        assert_eq!(greedy, 80 - 35);
        assert!(quota.take(3, 35) && !quota.take(3, 1));
        quota.give(3, 35);
        // A third function comes: what is owed to it comes as others give back, and they get no more until then.
        quota.share(&[Some(0), Some(0), Some(0), Some(7), Some(2)]); // 23 each
        assert!(!quota.take(0, 1) && quota.take(4, 12) && !quota.take(4, 1));
        quota.give(0, 11);
        assert!(!quota.take(1, 1) && quota.take(4, 11) && quota.take(3, 23));
        assert_eq!(quota.free(), 0);
        quota.give(3, 23);
        quota.share(&[Some(0), Some(0), Some(0), None, Some(2)]);
        assert!(quota.take(4, 12), "its part is larger again");
    }

    /// A command with the longest chain always finds its blocks in the end, however many functions there are.
    #[test]
    fn what_one_command_needs_at_once_is_nobody_s_guarantee() {
        for (total, functions) in [(18, 4), (64, 2), (64, 8), (256, 16)] {
            let mut quota = Quota::new(total, functions);
            quota.share(&(0..functions).map(Some).collect::<Vec<_>>());
            assert!(quota.take(0, 9), "{total} {functions}");
        }
    }
}
