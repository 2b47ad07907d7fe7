//! Quotas: the share of a pool that no tenant can take from another.

use alloc::vec;
use alloc::vec::Vec;

/// A pool of equal things, shared by queues. Half of it is split into guarantees: a queue that holds less
/// than its guarantee always finds the rest of it free; everything else goes to the first who comes.
#[derive(Debug)]
pub(crate) struct Quota {
    free: u32,
    guarantee: u32,
    used: Vec<u32>,
    /// Sum over all queues of what they have not taken of their guarantees.
    owed: u32,
    /// Something was given back since this was last asked: who waits may try again.
    returned: bool,
}

impl Quota {
    pub fn new(total: u32, queues: u16) -> Quota {
        let guarantee = total / 2 / u32::from(queues);
        let owed = guarantee * u32::from(queues);
        Quota { free: total, guarantee, used: vec![0; queues as usize], owed, returned: false }
    }

    /// Returns true if a queue may take `count`.
    #[inline]
    pub fn has(&self, queue: usize, count: u32) -> bool {
        let owed_to_others = self.owed - self.guarantee.saturating_sub(self.used[queue]);
        self.free >= count + owed_to_others
    }

    /// Takes `count` for a queue, all or nothing.
    #[inline]
    pub fn take(&mut self, queue: usize, count: u32) -> bool {
        if !self.has(queue, count) {
            return false;
        }
        self.set(queue, self.used[queue] + count);
        self.free -= count;
        true
    }

    /// Gives back what a queue took.
    #[inline]
    pub fn give(&mut self, queue: usize, count: u32) {
        debug_assert!(self.used[queue] >= count);
        self.set(queue, self.used[queue].saturating_sub(count));
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
        self.owed -= self.guarantee.saturating_sub(self.used[queue]);
        self.used[queue] = used;
        self.owed += self.guarantee.saturating_sub(used);
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
}
