//! `dcs bench guest`: the papers' experiments that a guest in QEMU can show, each design on the same devices.
//!
//! | module | what it holds |
//! |---|---|
//! | `contention` | bandwidth beside processes of the guest that spin |
//! | `scaling` | 1 to 4 sets of an SSD and a NIC on one card |
//! | `object`, `balancer` | the patterns of `dcs bench sim`, at equal throughput |
//! | `measurement` | a row, as it is written and read |
//! | `shown` | tables, figures and bars of rows: here, and on the report's page |
//! | `pin` | which thread has which core of the outer machine |

mod balancer;
mod contention;
mod measurement;
mod object;
mod pin;
mod scaling;
pub mod shown;

use super::rig;
use crate::args::KernelNic;
use crate::failure::Failure;
use crate::harness::plot;
use crate::interrupt;
use crate::report::Report;
use crate::sim::{bars, show};
use clap::{Args, Subcommand};
pub use measurement::{Measurement, Sets};
use std::path::PathBuf;
use std::time::Instant;

#[derive(Debug, Args)]
#[command(after_help = HELP, subcommand_required = true, arg_required_else_help = true)]
pub struct Options {
    #[command(subcommand)]
    pub experiment: Experiment,
    /// Draw bars; `all` draws NAME-EXPERIMENT.svg
    #[arg(long, value_name = "NAME.svg", global = true)]
    pub svg: Option<PathBuf>,
    /// Little of each, for a quick look
    #[arg(long, global = true)]
    pub quick: bool,
    /// The NIC that the guest's kernel has
    #[arg(long, value_enum, default_value = "virtio", global = true)]
    pub nic: KernelNic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum Experiment {
    /// Bandwidth beside 0 to 24 processes of the guest that spin, of that beside none
    Contention,
    /// An object server: GET and PUT of 4 KiB to 4 MiB with MD5, Poisson arrivals; guest CPU at equal
    /// throughput
    Object,
    /// The HDFS balancer: sender, and receiver with CRC32; guest CPU at equal throughput
    Balancer,
    /// 1 to 4 sets of an SSD and a NIC, two streams each; guest CPU a GiB, and who had how much
    Scaling,
    /// All of them
    All,
}

const HELP: &str = "\
Examples:
  dcs bench guest object                           # a table, and the papers' figures beside
  dcs bench guest contention --svg contention.svg
  dcs bench guest scaling                          # up to four SSDs and four NICs on one card
  dcs bench guest all --json >guest.json              # for the report: dcs bench sim all --html report.html --guest guest.json
  dcs bench guest balancer --quick --json | jq 'select(.event == \"figure\")'

Each boots a server of its own, as dcs vm demo does: the designs run on the same devices, one after the other, and a client outside
compares every byte and digest.

  host          host-centric: the kernel's NVMe driver, ext4, TCP and NIC driver
  software-tcp  software-optimised: the process drives the SSD itself over VFIO; data in host memory, operators on the processor; the
                kernel's TCP and NIC driver
  software-nic  the same, and the process drives the NIC too, with a TCP of its own
  software-p2p  software-controlled P2P: as software-nic, and data lie in the SSD's own memory, from where the NIC takes them; SSD -> NIC
                without operators, so that it is in contention and the balancer's sender alone
  card          one command to the dcs card

Ratios to the software-optimised design are to the leaner of the two (software-tcp, software-nic).

QEMU emulates each instruction: its seconds mean nothing. Guest CPU seconds per GiB are compared with each other, bandwidth beside
spinners with that beside none, several sets with one. What is in no server of QEMU's (a GPU, an integrated device) is in dcs bench sim, in virtual time.
docs/experiments.md says how it is measured and what it does not show.

Exit codes: 0 done; 1 a check or the guest failed; 2 usage; 9 no virtual server can be had here; 130 interrupted";

pub fn run(options: &Options, report: &Report) -> Result<(), Failure> {
    interrupt::install();
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

/// Rows of an experiment, and what was wrong.
type Measured = (Vec<Measurement>, Vec<String>);
