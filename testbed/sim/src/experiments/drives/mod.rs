//! FlexCSV's experiments (ATC 2021): virtual computational drives in four designs.

pub mod breakdown;
pub mod native;
pub mod qos;
pub mod speedup;
pub mod ssds;
pub mod times;

use crate::drives::Timings;
use crate::parameters::Parameters;

/// What an experiment is measured at.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Of the host's software.
    pub parameters: Parameters,
    /// Of the rest.
    pub timings: Timings,
    /// Requests of each guest, about.
    pub count: u64,
}

/// The exponential distribution: a wait of this mean.
pub(crate) fn wait(random: &mut dcs_testkit::Random, mean: f64) -> u64 {
    let part = (random.below(1 << 53) as f64 + 0.5) / (1_u64 << 53) as f64;
    (-part.ln() * mean) as u64
}
