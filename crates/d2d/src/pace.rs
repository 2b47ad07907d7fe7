//! The pace of a sender: how many bytes are due by when.

use crate::interface::Nanos;

/// A rate in slots of fixed length. Slot k begins k granularities after the start, when its bytes and those of all slots before are due:
/// floor(rate * (k + 1) * granularity). The sum is computed anew each time, so that rounding never accumulates.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Bytes per second; 0: everything is always due.
    rate: u64,
    /// Length of a slot in nanoseconds.
    slot: u64,
    start: Nanos,
    /// Position in the stream at the start.
    base: u64,
}

const SECOND: u128 = 1_000_000_000;

impl Pace {
    pub fn new(rate: u64, granularity_us: u32, now: Nanos) -> Pace {
        Pace { rate, slot: u64::from(granularity_us) * 1000, start: now, base: 0 }
    }

    /// Restarts the slots at `now`, with the stream at `position`.
    pub fn restart(&mut self, now: Nanos, position: u64) {
        self.start = now;
        self.base = position;
    }

    /// Returns the position up to which bytes are due at `now`.
    pub fn due(&self, now: Nanos) -> u64 {
        if self.rate == 0 {
            return u64::MAX;
        }
        let slots = u128::from(now.saturating_sub(self.start) / self.slot) + 1;
        let bytes = u128::from(self.rate) * slots * u128::from(self.slot) / SECOND;
        self.base.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Returns the time at which the byte at `position` is due.
    pub fn when(&self, position: u64) -> Nanos {
        if self.rate == 0 {
            return self.start;
        }
        let bytes = u128::from(position.saturating_sub(self.base)) + 1;
        let slots = (bytes * SECOND).div_ceil(u128::from(self.rate) * u128::from(self.slot));
        let time = u128::from(self.start) + (slots - 1) * u128::from(self.slot);
        Nanos::try_from(time).unwrap_or(Nanos::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_papers_example_comes_to_4_kib_a_slot() {
        // 20 Mb/s in slots of 1,638 us.
        let pace = Pace::new(2_500_000, 1638, 1_000);
        assert_eq!(pace.due(1_000), 4095);
        assert_eq!(pace.due(1_000 + 1_638_000 - 1), 4095);
        assert_eq!(pace.due(1_000 + 1_638_000), 8190);
        assert_eq!(pace.when(4094), 1_000);
        assert_eq!(pace.when(4095), 1_000 + 1_638_000);
    }

    proptest! {
        #[test]
        fn a_byte_is_due_from_its_time_on(
            rate in 1u64..1 << 40,
            granularity in 1u32..1 << 24,
            position in 0u64..1 << 50,
        ) {
            let pace = Pace::new(rate, granularity, 7);
            let when = pace.when(position);
            prop_assert!(pace.due(when) > position);
            prop_assert!(when == 7 || pace.due(when - 1) <= position);
        }
    }
}
