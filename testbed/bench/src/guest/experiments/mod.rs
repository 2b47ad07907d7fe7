//! `dcs bench guest`: the papers' experiments that a guest in QEMU can show, each design on the same devices.
//!
//! | module | contents |
//! |---|---|
//! | `contention` | bandwidth with spinning processes in the guest |
//! | `scaling` | 1 to 4 sets of an SSD and a NIC on one card |
//! | `super::drives` | md5 and grep on a paravirtual disk, a virtual drive, and near storage |
//! | `object`, `balancer` | the patterns of `dcs bench sim`, at equal throughput |
//! | `measurement` | a row: writing and reading it |
//! | `shown` | tables, figures and bars of rows: here, and on the report's page |
//! | `options` | the command line |
//! | `pin` | threads and cores of the outer machine |

mod balancer;
mod contention;
pub mod measurement;
mod object;
mod options;
mod pin;
mod scaling;
pub mod shown;

use super::rig;
use crate::failure::Failure;
use crate::harness::plot;
use crate::interrupt;
use crate::report::Report;
use crate::sim::{bars, show};
pub use options::{Experiment, Options};
use std::time::Instant;

pub fn run(options: &Options, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    if options.experiment == Experiment::Drives {
        return super::drives::designs(options, report);
    }
    let chosen = match options.experiment {
        Experiment::All => {
            vec![Experiment::Contention, Experiment::Object, Experiment::Balancer, Experiment::Scaling]
        }
        one => vec![one],
    };
    let (start, mut problems) = (Instant::now(), Vec::new());
    for experiment in &chosen {
        let measure = match experiment {
            Experiment::Contention => contention::measure,
            Experiment::Object => object::measure,
            Experiment::Scaling => scaling::measure,
            _ => balancer::measure,
        };
        let (rows, found) = measure(options, report)?;
        for shown in shown::all(&rows) {
            show::experiment(&shown, report);
            if let Some(path) = &options.svg {
                let path = if chosen.len() > 1 { plot::named(path, shown.name) } else { path.clone() };
                bars::draw(&shown.chart, &path, report)?;
            }
        }
        problems.extend(found);
    }
    rig::conclude(&problems, start.elapsed().as_secs_f64(), report)?;
    report.text("\nSeconds are QEMU's, which emulates every instruction of the guest: they mean nothing. Ratios of one run do.");
    Ok(())
}
