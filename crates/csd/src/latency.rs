//! Time that commands spend in each stage, as histograms.
//!
//! ```text
//!   entry fetched -- fetch --> the kernel has it -- storage --> answered -- completion --> interrupt raised
//!                                                                  ^  |
//!                                     near-storage commands only: +--+ operators, a piece at a time
//! ```
//!
//! The clock is read once for a batch of commands: a stage ends when its batch is passed on, which is when
//! the kernel or the guest learns of it. The time in the guest's queue before that is not visible.

/// Number of bounded buckets of a histogram: up to 1 us, 2 us, 4 us and so on, the last up to 8.4 s.
pub const BUCKETS: usize = 24;

/// Commands counted by the time that they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BUCKETS + 1],
    sum: u64,
}

impl Histogram {
    /// Counts this many commands that took that many nanoseconds each.
    pub fn record(&mut self, nanoseconds: u64, commands: u64) {
        let microseconds = nanoseconds.div_ceil(1000).max(1);
        let bucket = microseconds.next_power_of_two().trailing_zeros() as usize;
        self.counts[bucket.min(BUCKETS)] += commands;
        self.sum = self.sum.saturating_add(nanoseconds.saturating_mul(commands));
    }

    /// Returns the number of commands in each bucket; the last one has no bound.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns the longest time that is counted in a bucket, in nanoseconds.
    pub fn bound(bucket: usize) -> u64 {
        1000 << bucket
    }

    /// Returns the nanoseconds of all commands together.
    pub fn sum(&self) -> u64 {
        self.sum
    }
}

/// A stage of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From the copy of its entry until the storage has it: its data are found, copied and encrypted; it may
    /// wait for a buffer.
    Fetch,
    /// In the storage; of a near-storage command, the sum of all pieces.
    Storage,
    /// In the operators of a near-storage command; the sum of all pieces.
    Operators,
    /// From the storage's last answer until the guest has the completion and its interrupt.
    Completion,
    /// All of it, including waits between pieces.
    Whole,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Stage; 5] =
        [Stage::Fetch, Stage::Storage, Stage::Operators, Stage::Completion, Stage::Whole];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Fetch => "fetch",
            Stage::Storage => "storage",
            Stage::Operators => "operators",
            Stage::Completion => "completion",
            Stage::Whole => "whole",
        }
    }
}

/// Histograms of commands of I/O queues that reached the storage or operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    stages: [Histogram; Stage::ALL.len()],
    /// Near-storage commands that took more than 1.5 times as long as the storage and their operators worked
    /// on them (FlexCSV's measure, 1.5 T_exec): they waited for others.
    pub violations: u64,
}

impl Latencies {
    /// Returns the histogram of this stage.
    pub fn of(&self, stage: Stage) -> &Histogram {
        &self.stages[stage as usize]
    }

    fn record(&mut self, stage: Stage, nanoseconds: u64, commands: u64) {
        self.stages[stage as usize].record(nanoseconds, commands);
    }
}

/// Times of a command in progress, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub fetched: u64,
    /// Time at which the storage got it, or its last piece.
    handed: Option<u64>,
    /// Time for which the storage has worked on it.
    storage: u64,
    /// Time for which its operators have worked on it.
    pub operators: u64,
}

impl Times {
    /// Makes the times of a command whose entry was copied now.
    pub fn new(fetched: u64) -> Times {
        Times { fetched, ..Times::default() }
    }

    /// The storage has got it, or its next piece: ends the stage before.
    pub fn hand(&mut self, now: u64) -> Times {
        let before = *self;
        self.handed = Some(now);
        before
    }

    /// The storage has answered all requests of the command.
    pub fn answered(&mut self, now: u64) {
        self.storage += self.handed.map_or(0, |handed| now.saturating_sub(handed));
    }
}

/// Commands that have ended and that the guest has not been told of yet: all with these times, as those of a batch often are.
struct Ended {
    times: Times,
    answered: u64,
    is_near: bool,
    commands: u64,
}

/// The latencies of a controller.
#[derive(Default)]
pub(crate) struct Clocked {
    handed: Vec<u16>,
    ended: Vec<Ended>,
    pub latencies: Latencies,
}

impl Clocked {
    /// Makes them for this many commands in progress.
    pub fn new(commands: usize) -> Clocked {
        let (handed, ended) = (Vec::with_capacity(commands), Vec::with_capacity(commands));
        Clocked { handed, ended, latencies: Latencies::default() }
    }

    /// The storage has got a command's next piece.
    pub fn hands(&mut self, slot: u16) {
        self.handed.push(slot);
    }

    /// A command ends.
    pub fn ends(&mut self, times: Times, now: u64, is_near: bool) {
        match self.ended.last_mut() {
            Some(last) if (last.times, last.answered, last.is_near) == (times, now, is_near) => {
                last.commands += 1;
            }
            _ => self.ended.push(Ended { times, answered: now, is_near, commands: 1 }),
        }
    }

    /// Returns true if nothing was passed on and nothing has ended.
    pub fn is_settled(&self) -> bool {
        self.handed.is_empty() && self.ended.is_empty()
    }

    /// Ends a batch: the storage has the requests, and guests have their completions. `hand` calls
    /// [`Times::hand`] of a slot's command.
    pub fn settle(&mut self, now: u64, mut hand: impl FnMut(u16) -> Times) {
        // Those that were fetched together, and their number.
        let (mut fetched, mut commands) = (now, 0);
        for slot in self.handed.drain(..) {
            let times = hand(slot);
            if times.handed.is_none() {
                if times.fetched != fetched && commands > 0 {
                    self.latencies.record(Stage::Fetch, now.saturating_sub(fetched), commands);
                    commands = 0;
                }
                (fetched, commands) = (times.fetched, commands + 1);
            }
        }
        if commands > 0 {
            self.latencies.record(Stage::Fetch, now.saturating_sub(fetched), commands);
        }
        for Ended { times, answered, is_near, commands } in self.ended.drain(..) {
            let whole = now.saturating_sub(times.fetched);
            if times.handed.is_some() {
                self.latencies.record(Stage::Storage, times.storage, commands);
            }
            if is_near {
                self.latencies.record(Stage::Operators, times.operators, commands);
                let worked = times.storage + times.operators;
                self.latencies.violations += if 2 * whole > 3 * worked { commands } else { 0 };
            }
            self.latencies.record(Stage::Completion, now.saturating_sub(answered), commands);
            self.latencies.record(Stage::Whole, whole, commands);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_falls_into_the_bucket_with_the_next_bound() {
        for (time, bucket) in [
            (0, 0),
            (1000, 0),
            (1001, 1),
            (2000, 1),
            (2001, 2),
            (1_000_000, 10),
            (8_388_608_000, 23),
            (8_388_608_001, BUCKETS),
            (u64::MAX, BUCKETS),
        ] {
            let mut histogram = Histogram::default();
            histogram.record(time, 1);
            assert_eq!(histogram.counts().iter().position(|count| *count == 1), Some(bucket), "{time}");
            assert!(bucket == BUCKETS || time <= Histogram::bound(bucket));
            assert!(bucket == 0 || time > Histogram::bound(bucket - 1));
        }
    }
}
