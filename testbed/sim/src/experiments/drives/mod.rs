//! FlexCSV's experiments (ATC 2021): virtual computational drives in four designs.
//!
//! | module | contents |
//! |---|---|
//! | `area` | the FPGA's resources (tables 1 to 3) |
//! | `breakdown` | the time of one request by component (figures 1 and 5) |
//! | `native` | a drive with and without virtualization (figure 15) |
//! | `qos` | slots shared by guests (figures 7, 8 and 18), and fairness |
//! | `speedup` | four designs over paravirtual devices (figure 16) |
//! | `ssds` | guests that share one SSD (figures 6 and 17) |
//! | `times` | single steps (figures 13 and 14, table 1) |

pub mod area;
pub mod breakdown;
pub mod native;
pub mod qos;
pub mod speedup;
pub mod ssds;
pub mod times;

use crate::drives::Timings;
use crate::parameters::Parameters;

/// Conditions of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Costs of the host's software.
    pub parameters: Parameters,
    /// Times of the other parts.
    pub timings: Timings,
    /// Approximate number of requests of each guest.
    pub count: u64,
}

/// Draws a wait from the exponential distribution with this mean.
pub(crate) fn wait(random: &mut dcs_testkit::Random, mean: f64) -> u64 {
    let part = (random.below(1 << 53) as f64 + 0.5) / (1_u64 << 53) as f64;
    (-part.ln() * mean) as u64
}
