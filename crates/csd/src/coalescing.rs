//! Interrupt coalescing: an interrupt for several completions of I/O queues. [base 5.27.1.6, 5.27.1.7]
//!
//! A vector is raised when this many completions wait for it as the guest set, or when the first of them has
//! waited for so long. One with an error is told of at once, and so are those of the admin queue.

use crate::queue::CompletionQueue;

/// Unit of the time, in nanoseconds.
const UNIT: u64 = 100_000;

/// Completions that no interrupt told of yet, of one vector.
#[derive(Clone, Copy, Default)]
struct Waiting {
    count: u32,
    /// When the first of them came.
    since: u64,
    /// One of them is not to wait.
    urgent: bool,
}

/// Vectors whose completions wait for others.
#[derive(Default)]
pub(crate) struct Coalescing {
    vectors: Vec<Waiting>,
}

/// Completions and nanoseconds that a vector waits for; nothing where none waits: a time of 0.
fn wanted(feature: u32) -> Option<(u32, u64)> {
    let (threshold, time) = (feature & 0xff, feature >> 8 & 0xff);
    (time > 0).then_some((threshold + 1, u64::from(time) * UNIT))
}

impl Coalescing {
    /// A batch is through: raises the vectors that are due. `features`: the feature's value for a vector, 0
    /// where its completions do not wait.
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
            let (most, time) = wanted(features(vector)).unwrap_or((1, 0));
            let is_due = held.urgent || held.count >= most || now.saturating_sub(held.since) >= time;
            if held.count > 0 && is_due {
                *held = Waiting::default();
                raise(vector);
            }
        }
    }

    /// Completions wait for others, or will.
    pub fn is_wanted(&self, feature: u32) -> bool {
        wanted(feature).is_some() || self.vectors.iter().any(|held| held.count > 0)
    }

    /// When the next vector is due, by the port's clock.
    pub fn deadline(&self, feature: u32) -> Option<u64> {
        let (_, time) = wanted(feature)?;
        let waiting = self.vectors.iter().filter(|held| held.count > 0);
        waiting.map(|held| held.since.saturating_add(time)).min()
    }
}
