//! Congestion control: slow start, congestion avoidance, and the reduced window after a loss (RFC 5681), counting bytes rather than
//! acknowledgements (RFC 3465, as peers acknowledge more than two segments at once).

/// The reason why fewer bytes are sent for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// Segments were found lost. Over when everything sent before is acknowledged.
    Fast {
        /// Position of the end of what was sent before.
        until: u64,
    },
    /// The timer expired.
    Timeout {
        /// Position of the end of what was sent before.
        until: u64,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Congestion {
    mss: u64,
    window: u64,
    threshold: u64,
    counted: u64,
    /// Set if the window, not the owner, has limited sending since the last acknowledgement: only then may it grow.
    pub(crate) limited: bool,
    pub(crate) recovery: Option<Recovery>,
    /// Window and threshold before the recovery.
    before: (u64, u64),
}

impl Congestion {
    pub(crate) fn new(mss: u32) -> Congestion {
        let mss = u64::from(mss);
        let window = initial(mss);
        Congestion {
            mss,
            window,
            threshold: u64::MAX,
            counted: 0,
            limited: false,
            recovery: None,
            before: (0, 0),
        }
    }

    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// Grows the window for acknowledged bytes.
    pub(crate) fn acknowledged(&mut self, bytes: u64) {
        if matches!(self.recovery, Some(Recovery::Fast { .. })) || !std::mem::take(&mut self.limited) {
            return;
        }
        if self.window < self.threshold {
            let most = if self.recovery.is_some() { 2 * self.mss } else { u64::MAX };
            self.window =
                self.window.saturating_add(bytes.min(most)).min(self.threshold.max(self.window + self.mss));
            return;
        }
        self.counted += bytes;
        if self.counted >= self.window {
            self.counted -= self.window;
            self.window += self.mss;
        }
    }

    /// Reduces the window: segments are lost while `flight` bytes are in flight. Takes effect once per window.
    pub(crate) fn lost(&mut self, flight: u64, until: u64) {
        self.before = (self.window, self.threshold);
        self.halve(flight);
        self.recovery = Some(Recovery::Fast { until });
    }

    /// Restores the window: nothing was lost after all (RFC 4015).
    pub(crate) fn undo(&mut self) {
        let (window, threshold) = self.before;
        self.window = self.window.max(window);
        self.threshold = self.threshold.max(threshold);
        self.recovery = None;
    }

    /// Halves the window without recovery: a lone loss at the tail was repaired by its probe.
    pub(crate) fn halve(&mut self, flight: u64) {
        self.threshold = (flight / 2).max(2 * self.mss);
        self.window = self.threshold;
        self.counted = 0;
    }

    /// Handles expiry of the retransmission timer; `first` if it is the first in a row.
    pub(crate) fn timed_out(&mut self, flight: u64, until: u64, first: bool) {
        if self.recovery.is_none() {
            self.before = (self.window, self.threshold);
        }
        if first && !matches!(self.recovery, Some(Recovery::Timeout { .. })) {
            self.threshold = (flight / 2).max(2 * self.mss);
        }
        self.window = self.mss;
        self.counted = 0;
        self.recovery = Some(Recovery::Timeout { until });
    }

    /// Ends a recovery if everything up to its end is acknowledged.
    pub(crate) fn reached(&mut self, acknowledged: u64) {
        if let Some(Recovery::Fast { until } | Recovery::Timeout { until }) = self.recovery
            && acknowledged >= until
        {
            self.recovery = None;
        }
    }

    /// Reduces the window after nothing was sent for longer than the retransmission timeout (RFC 5681, 4.1).
    pub(crate) fn idle(&mut self) {
        self.window = self.window.min(initial(self.mss));
    }
}

/// Returns the initial window of RFC 6928.
fn initial(mss: u64) -> u64 {
    (10 * mss).min(14_600.max(2 * mss))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grown(congestion: &mut Congestion, bytes: u64) -> u64 {
        congestion.limited = true;
        congestion.acknowledged(bytes);
        congestion.window()
    }

    #[test]
    fn slow_start_then_avoidance() {
        let mut congestion = Congestion::new(1000);
        assert_eq!(congestion.window(), 10_000);
        congestion.acknowledged(10_000);
        assert_eq!(congestion.window(), 10_000, "it was not used");
        assert_eq!(grown(&mut congestion, 10_000), 20_000);
        congestion.lost(20_000, 7);
        assert_eq!(grown(&mut congestion, 5_000), 10_000, "not while recovering");
        congestion.reached(6);
        assert!(congestion.recovery.is_some());
        congestion.reached(7);
        assert_eq!(congestion.recovery, None);
        assert_eq!(grown(&mut congestion, 9_999), 10_000);
        assert_eq!(grown(&mut congestion, 1), 11_000, "a segment each round trip");
    }

    #[test]
    fn a_timeout_starts_over() {
        let mut congestion = Congestion::new(1000);
        congestion.timed_out(8_000, 100, true);
        assert_eq!(congestion.window(), 1_000);
        congestion.timed_out(1_000, 100, false);
        assert_eq!(grown(&mut congestion, 1_000), 2_000);
        assert_eq!(grown(&mut congestion, 8_000), 4_000, "up to half of what flew");
        assert_eq!(grown(&mut congestion, 4_000), 5_000);
        congestion.reached(100);
        congestion.lost(4_000, 200);
        congestion.undo();
        assert_eq!((congestion.window(), congestion.recovery), (5_000, None));
        congestion.halve(500);
        assert_eq!((congestion.window(), congestion.recovery), (2_000, None));
    }
}
