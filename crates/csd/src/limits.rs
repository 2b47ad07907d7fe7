//! Limits of a drive's rate: commands and bytes a second.
//!
//! A drive that has exceeded its limit begins no command until the average is kept again. After a pause it
//! may make up for [`BURST`]: in any time `t` it begins at most `rate * (t + BURST)` and one command more.

/// Pause that a drive may make up for, in nanoseconds.
pub const BURST: u64 = 10_000_000;

/// Limits of a drive; zero means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Most commands of I/O queues a second.
    pub commands: u64,
    /// Most bytes read and written on namespaces a second.
    pub bytes: u64,
}

/// The part of its limits that a drive has used.
#[derive(Default)]
pub(crate) struct Limiter {
    limits: Limits,
    /// Times, by the port's clock, at which commands and bytes so far are within the limits again.
    due: [u64; 2],
}

impl Limiter {
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Changes the limits, and forgets the debt.
    pub fn set(&mut self, limits: Limits) {
        *self = Limiter { limits, due: [0; 2] };
    }

    pub fn is_on(&self) -> bool {
        self.limits != Limits::default()
    }

    /// Returns the time at which the next command may begin.
    pub fn due(&self) -> u64 {
        self.due[0].max(self.due[1])
    }

    /// Returns true if a command may begin.
    pub fn is_free(&self, now: u64) -> bool {
        self.due() <= now
    }

    fn take(&mut self, which: usize, rate: u64, now: u64, amount: u64) {
        if rate > 0 {
            let time = u128::from(amount) * 1_000_000_000 / u128::from(rate);
            let from = self.due[which].max(now.saturating_sub(BURST));
            self.due[which] = from.saturating_add(u64::try_from(time).unwrap_or(u64::MAX));
        }
    }

    /// Counts commands that begin.
    pub fn commands(&mut self, now: u64, count: u64) {
        self.take(0, self.limits.commands, now, count);
    }

    /// Counts bytes that are read or written.
    pub fn bytes(&mut self, now: u64, bytes: u64) {
        self.take(1, self.limits.bytes, now, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// In any interval no more begins than the limit allows, at whatever times it is asked.
        #[test]
        fn no_time_has_more_than_its_limit(
            rate in 1..1_000_000u64,
            bytes in 0..10_000_000u64,
            steps in prop::collection::vec((0..20_000_000u64, 0..50u32, 0..1_000_000u64), 1..60),
        ) {
            let mut limiter = Limiter::default();
            limiter.set(Limits { commands: rate, bytes });
            let mut begun: Vec<(u64, u64)> = Vec::new();
            let mut now = 1_000_000_000;
            for (pause, tries, size) in steps {
                now += pause;
                for _ in 0..tries {
                    if limiter.is_free(now) {
                        limiter.commands(now, 1);
                        limiter.bytes(now, size);
                        begun.push((now, size));
                    }
                }
            }
            for first in 0..begun.len() {
                let mut sum = 0;
                for last in first..begun.len() {
                    let window = u128::from(begun[last].0 - begun[first].0 + BURST);
                    let count = (last - first) as u128;
                    // Each command's time is rounded down to a nanosecond.
                    prop_assert!(count * 999_999_999 / u128::from(rate) <= window + count);
                    if bytes > 0 {
                        prop_assert!(sum * 1_000_000_000 / u128::from(bytes) <= window + count);
                    }
                    sum += u128::from(begun[last].1);
                }
            }
        }
    }

    #[test]
    fn a_drive_that_always_has_commands_gets_all_of_its_limit() {
        let mut limiter = Limiter::default();
        limiter.set(Limits { commands: 1000, bytes: 0 });
        let mut begun = 0;
        for now in (5_000_000_000..15_000_000_000u64).step_by(100_000) {
            while limiter.is_free(now) {
                limiter.commands(now, 1);
                begun += 1;
            }
        }
        assert!((10_000..=10_012).contains(&begun), "{begun}");
    }
}
