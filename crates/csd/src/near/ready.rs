//! Near-storage commands that can go on: the drive's submission queues take turns, by the time that their
//! operators take.

use std::collections::VecDeque;

use crate::shares::Shares;

/// Slots of commands, by their queue.
#[derive(Debug, Default)]
pub struct Ready {
    queues: Vec<VecDeque<u16>>,
    shares: Shares,
    count: usize,
}

impl Ready {
    pub fn len(&self) -> usize {
        self.count
    }

    /// Adds a command after the others of its queue.
    pub fn push(&mut self, queue: u16, slot: u16) {
        self.queue(queue).push_back(slot);
    }

    /// Adds it before the others: it had its turn, and could not go on.
    pub fn push_first(&mut self, queue: u16, slot: u16) {
        self.queue(queue).push_front(slot);
    }

    fn queue(&mut self, queue: u16) -> &mut VecDeque<u16> {
        let at = usize::from(queue);
        if self.queues.len() <= at {
            self.queues.resize_with(at + 1, VecDeque::new);
        }
        self.shares.set(at, 1);
        self.count += 1;
        &mut self.queues[at]
    }

    /// Returns the next command of the queue whose turn it is.
    pub fn pop(&mut self) -> Option<u16> {
        let queues = &self.queues;
        let queue = self.shares.next(|queue| queues.get(queue).is_some_and(|queue| !queue.is_empty()))?;
        let slot = self.queues[queue].pop_front()?;
        self.count -= 1;
        Some(slot)
    }

    /// Charges a queue for its command's turn.
    pub fn charge(&mut self, queue: u16, cost: u64) {
        self.shares.charge(queue.into(), cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One queue's commands take ten times as long as the other's, and there are more of them.
    #[test]
    fn queues_get_the_same_time() {
        let (mut ready, mut time) = (Ready::default(), [0; 2]);
        (0..8).for_each(|slot| ready.push(u16::from(slot > 0), slot));
        for _ in 0..10_000 {
            let slot = ready.pop().unwrap();
            let (queue, cost) = if slot > 0 { (1, 1_000_000) } else { (0, 100_000) };
            ready.charge(queue, cost);
            time[usize::from(queue)] += cost;
            ready.push(queue, slot);
        }
        assert!(time[0].abs_diff(time[1]) <= 1_100_000 + crate::shares::QUANTUM, "{time:?}");
    }
}
