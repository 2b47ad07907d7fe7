//! Interrupt coalescing: one interrupt for several completions of I/O queues. [base 5.27.1.6, 5.27.1.7]
//!
//! A vector is raised when the number of completions that the guest has set are pending, or when the first of
//! them has waited for the time that it has set. Errors and completions of the admin queue are reported at
//! once.

use crate::queue::CompletionQueue;

/// Unit of the time, in nanoseconds.
const UNIT: u64 = 100_000;

/// Completions of one vector for which no interrupt was raised yet.
#[derive(Clone, Copy, Default)]
struct Waiting {
    count: u32,
    /// Time at which the first of them was posted.
    since: u64,
    /// One of them must not wait.
    urgent: bool,
}

/// Vectors with pending completions.
#[derive(Default)]
pub(crate) struct Coalescing {
    vectors: Vec<Waiting>,
}

/// Completions and nanoseconds that a vector waits for; `None` if it does not wait (a time of 0).
fn settings(feature: u32) -> Option<(u32, u64)> {
    let (threshold, time) = (feature & 0xff, feature >> 8 & 0xff);
    (time > 0).then_some((threshold + 1, u64::from(time) * UNIT))
}

impl Coalescing {
    /// Ends a batch: raises the vectors that are due. `features` returns the feature's value for a vector, 0
    /// if its completions do not wait.
    pub fn settle(
        &mut self,
        completions: &mut [Option<CompletionQueue>],
        now: u64,
        features: impl Fn(u16) -> u32,
        mut raise: impl FnMut(u16),
    ) {
        let vectors = &mut self.vectors;
        vectors.resize(completions.len(), Waiting::default());
        for (number, queue) in completions.iter_mut().enumerate() {
            let Some(queue) = queue else { continue };
            let (fresh, urgent) = (std::mem::take(&mut queue.fresh), std::mem::take(&mut queue.urgent));
            let Some(held) = queue.vector.and_then(|vector| vectors.get_mut(usize::from(vector))) else {
                continue;
            };
            if fresh > 0 && held.count == 0 {
                held.since = now;
            }
            held.count += fresh;
            held.urgent |= fresh > 0 && (urgent || number == 0);
        }
        for (vector, held) in (0u16..).zip(vectors.iter_mut()) {
            let (most, time) = settings(features(vector)).unwrap_or((1, 0));
            let is_due = held.urgent || held.count >= most || now.saturating_sub(held.since) >= time;
            if held.count > 0 && is_due {
                *held = Waiting::default();
                raise(vector);
            }
        }
    }

    /// Returns true if completions are pending, or the next ones will be.
    pub fn is_on(&self, feature: u32) -> bool {
        settings(feature).is_some() || self.vectors.iter().any(|held| held.count > 0)
    }

    /// Returns the time at which the next vector is due, by the port's clock.
    pub fn deadline(&self, feature: u32) -> Option<u64> {
        let (_, time) = settings(feature)?;
        let waiting = self.vectors.iter().filter(|held| held.count > 0);
        waiting.map(|held| held.since.saturating_add(time)).min()
    }
}
