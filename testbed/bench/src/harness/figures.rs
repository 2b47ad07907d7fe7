//! Marks of a run, medians, and ratios of runs of the same repetition.

pub use dcs_testkit::median;
use serde::{Deserialize, Serialize};

pub const GIB: f64 = (1u64 << 30) as f64;

/// Counters between a run's two marks.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Marks {
    pub wall_s: f64,
    /// Bytes over the wire.
    pub bytes: u64,
    pub server_cpu_s: f64,
    pub kernel_cpu_s: f64,
    pub client_cpu_s: f64,
}

/// A ratio of paired runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Ratio {
    /// Of the ratios of all pairs.
    pub fn of(pairs: Vec<f64>) -> Ratio {
        Ratio {
            median: median(pairs.iter().copied()),
            least: pairs.iter().copied().fold(f64::INFINITY, f64::min),
            most: pairs.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// The median, over runs, of a percentile of each run's latencies, which are sorted; NaN where no run has
/// any.
pub fn percentile<'a>(runs: impl Iterator<Item = &'a [f32]>, share: f64) -> f64 {
    let of = |latencies: &[f32]| {
        let last = latencies.len().checked_sub(1)?;
        latencies.get((last as f64 * share).round() as usize).map(|latency| f64::from(*latency))
    };
    median(runs.filter_map(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_of_each_run_s_own() {
        let (one, other): (Vec<f32>, Vec<f32>) = ((0..=100).map(|n| n as f32).collect(), vec![7.0]);
        let runs = || [&one[..], &[], &other].into_iter();
        assert_eq!((percentile(runs(), 0.5), percentile(runs(), 0.99)), (28.5, 53.0));
        assert!(percentile([&[][..]].into_iter(), 0.5).is_nan());
    }
}
