//! Marks of a run, medians, and ratios within a repetition.

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
    /// Summarises the ratios of all pairs.
    pub fn of(pairs: Vec<f64>) -> Ratio {
        Ratio {
            median: median(pairs.iter().copied()),
            least: pairs.iter().copied().fold(f64::INFINITY, f64::min),
            most: pairs.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// Cost of one run.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub gib_per_s: f64,
    /// CPU time per GiB of the measured process and of kernel threads.
    pub cpu_s_per_gib: f64,
    pub kernel_cpu_s_per_gib: f64,
    pub client_cpu_s_per_gib: f64,
}

impl Cost {
    /// Computes the cost per byte over the wire.
    pub fn new(marks: &Marks) -> Cost {
        Cost::of(marks, marks.bytes as f64)
    }

    /// Computes the cost per byte of the job, which may differ from the bytes over the wire.
    pub fn of(marks: &Marks, bytes: f64) -> Cost {
        let gib = bytes / GIB;
        Cost {
            gib_per_s: gib / marks.wall_s,
            cpu_s_per_gib: (marks.server_cpu_s + marks.kernel_cpu_s) / gib,
            kernel_cpu_s_per_gib: marks.kernel_cpu_s / gib,
            client_cpu_s_per_gib: marks.client_cpu_s / gib,
        }
    }
}

pub fn throughput(cost: &Cost) -> f64 {
    cost.gib_per_s
}

pub fn cpu(cost: &Cost) -> f64 {
    cost.cpu_s_per_gib
}

/// Returns the ratios of one contender's runs to another's, each within its repetition.
pub fn ratio(mine: &[Cost], other: &[Cost], value: fn(&Cost) -> f64) -> Ratio {
    Ratio::of(mine.iter().zip(other).map(|(one, other)| value(one) / value(other)).collect())
}

/// The part of a row that all benchmarks share: medians of a contender's runs, and ratios to another contender's.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Medians {
    pub gib_per_s: f64,
    pub cpu_s_per_gib: f64,
    pub kernel_cpu_s_per_gib: f64,
    pub client_cpu_s_per_gib: f64,
    pub cpu_ratio: Option<Ratio>,
    pub throughput_ratio: Option<Ratio>,
    pub runs: usize,
}

impl Medians {
    /// Computes the medians. `base`: the runs of the contender for comparison, if it took part.
    pub fn new(runs: &[Cost], base: Option<&[Cost]>) -> Medians {
        let middle = |value: fn(&Cost) -> f64| median(runs.iter().map(value));
        Medians {
            gib_per_s: middle(throughput),
            cpu_s_per_gib: middle(cpu),
            kernel_cpu_s_per_gib: middle(|cost| cost.kernel_cpu_s_per_gib),
            client_cpu_s_per_gib: middle(|cost| cost.client_cpu_s_per_gib),
            cpu_ratio: base.map(|base| ratio(runs, base, cpu)),
            throughput_ratio: base.map(|base| ratio(runs, base, throughput)),
            runs: runs.len(),
        }
    }
}

/// Returns the median, over runs, of a percentile of each run's sorted latencies; NaN if no run has any.
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
    fn ratios_are_of_the_same_repetition() {
        let cost = |cpu_s: f64| {
            Cost::new(&Marks { wall_s: cpu_s, bytes: 1 << 30, server_cpu_s: cpu_s, ..Marks::default() })
        };
        // The machine became half as fast in the second repetition, for both.
        let (mine, base) = ([1.0, 2.0, 1.5].map(cost), [4.0, 8.0, 3.0].map(cost));
        let medians = Medians::new(&mine, Some(&base));
        assert_eq!(medians.cpu_ratio, Some(Ratio { median: 0.25, least: 0.25, most: 0.5 }));
        assert_eq!(medians.throughput_ratio.map(|ratio| ratio.median), Some(4.0));
        assert_eq!((medians.cpu_s_per_gib, medians.runs), (1.5, 3));
    }

    #[test]
    fn a_percentile_is_of_each_run_s_own() {
        let (one, other): (Vec<f32>, Vec<f32>) = ((0..=100).map(|n| n as f32).collect(), vec![7.0]);
        let runs = || [&one[..], &[], &other].into_iter();
        assert_eq!((percentile(runs(), 0.5), percentile(runs(), 0.99)), (28.5, 53.0));
        assert!(percentile([&[][..]].into_iter(), 0.5).is_nan());
    }
}
