//! The retransmission timeout (RFC 6298).

use crate::config::TcpConfig;
use crate::message::Nanos;

/// Clock granularity G of RFC 6298.
const GRANULARITY: Nanos = 1_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    /// Smoothed round-trip time and its variation, once measured.
    smoothed: Option<(Nanos, Nanos)>,
    least: Nanos,
    rto: Nanos,
    backoff: u32,
    bounds: (Nanos, Nanos),
}

impl Rtt {
    pub(crate) fn new(config: &TcpConfig) -> Rtt {
        let bounds = (config.least_rto, config.most_rto.max(config.least_rto));
        let first = 1_000_000_000;
        Rtt { smoothed: None, least: Nanos::MAX, rto: first.clamp(bounds.0, bounds.1), backoff: 0, bounds }
    }

    /// Takes a measurement of bytes that were sent only once (Karn).
    pub(crate) fn sample(&mut self, rtt: Nanos) {
        self.least = self.least.min(rtt);
        self.coarse(rtt);
    }

    /// Takes a measurement to the millisecond, from timestamps; also of bytes that were retransmitted.
    pub(crate) fn coarse(&mut self, rtt: Nanos) {
        let (smoothed, variation) = match self.smoothed {
            None => (rtt, rtt / 2),
            Some((smoothed, variation)) => {
                let variation = (3 * variation + smoothed.abs_diff(rtt)) / 4;
                ((7 * smoothed + rtt) / 8, variation)
            }
        };
        self.smoothed = Some((smoothed, variation));
        let rto = smoothed.saturating_add(GRANULARITY.max(4 * variation));
        self.rto = rto.clamp(self.bounds.0, self.bounds.1);
    }

    pub(crate) fn smoothed(&self) -> Option<Nanos> {
        self.smoothed.map(|(smoothed, _)| smoothed)
    }

    /// Returns the shortest round trip seen.
    pub(crate) fn least(&self) -> Option<Nanos> {
        (self.least < Nanos::MAX).then_some(self.least)
    }

    /// Returns the timeout, doubled for each expiry in a row.
    pub(crate) fn timeout(&self) -> Nanos {
        self.rto.saturating_mul(1 << self.backoff.min(20)).min(self.bounds.1)
    }

    pub(crate) fn back_off(&mut self) {
        self.backoff += 1;
    }

    pub(crate) fn backoff(&self) -> u32 {
        self.backoff
    }

    /// Notes that something new was acknowledged.
    pub(crate) fn progress(&mut self) {
        self.backoff = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_rfc_6298() {
        let ms = 1_000_000;
        let mut rtt =
            Rtt::new(&TcpConfig { least_rto: 10 * ms, most_rto: 1_000 * ms, ..TcpConfig::default() });
        assert_eq!(rtt.timeout(), 1_000 * ms, "before a measurement");
        rtt.sample(100 * ms);
        assert_eq!(rtt.timeout(), (100 + 4 * 50) * ms);
        rtt.sample(60 * ms);
        // RTTVAR = 3/4 * 50 + 1/4 * 40 = 47.5, SRTT = 7/8 * 100 + 1/8 * 60 = 95
        assert_eq!(rtt.timeout(), (95 + 190) * ms);
        rtt.back_off();
        assert_eq!(rtt.timeout(), 570 * ms);
        rtt.back_off();
        assert_eq!(rtt.timeout(), 1_000 * ms, "bounded");
        rtt.progress();
        assert_eq!((rtt.timeout(), rtt.least()), (285 * ms, Some(60 * ms)));
        (0..50).for_each(|_| rtt.sample(ms));
        assert_eq!(rtt.timeout(), 10 * ms);
    }
}
