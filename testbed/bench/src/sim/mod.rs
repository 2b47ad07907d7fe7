//! `dcs bench sim`: the papers' experiments on whole servers, in virtual time.
//!
//! | module | contents |
//! |---|---|
//! | `bars` | stacked bars, a panel for each job, as SVG, in the papers' form |
//! | `drives` | tables, JSON and charts of FlexCSV's experiments |
//! | `faults` | `dcs bench sim faults`: transfers while devices fail |
//! | `hardware` | the engine in SystemVerilog beside the papers' hardware |
//! | `page` | the report's page |
//! | `real` | what was measured on real programs and processors, for the report's page |
//! | `results` | results of an experiment |
//! | `show` | tables, JSON and charts of the experiments |
//!
//! The servers are those of [`dcs_sim`]: this module chooses the size, and shows tables, figures compared with the papers', JSON
//! and plots.

pub mod bars;
mod drives;
mod faults;
mod hardware;
mod page;
mod real;
pub mod results;
pub mod show;

use crate::failure::Failure;
use crate::harness::plot;
use crate::report::Report;
use clap::{Args, Subcommand};
use dcs_sim::drives::Timings;
use dcs_sim::experiments::drives::{Setting, breakdown, native, qos, speedup, ssds, times};
use dcs_sim::experiments::{balancer, contention, d2d, encrypted, latency, object, projection, scaling};
use dcs_sim::parameters::Parameters;
use page::Page;
use results::Results;
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = HELP, subcommand_required = true, arg_required_else_help = true)]
pub struct Options {
    #[command(subcommand)]
    pub experiment: Experiment,
    /// Draw plots in the papers' form; `all` writes NAME-EXPERIMENT.svg
    #[arg(long, value_name = "NAME.svg", global = true)]
    pub svg: Option<PathBuf>,
    /// Write one page with tables, plots, the papers' figures for comparison, every parameter with its source, and the data
    #[arg(long, value_name = "FILE.html", global = true)]
    pub html: Option<PathBuf>,
    /// Output of `dcs vm demo --json` and `dcs bench guest all --json`, the designs in QEMU, to include in the page
    #[arg(long, value_name = "FILE", global = true, requires = "html")]
    pub guest: Option<PathBuf>,
    /// Output of `integrations/hdfs/grep.py --json` and `dcs bench --counters --json`, real programs, to include in the page
    #[arg(long, value_name = "FILE", global = true, requires = "html")]
    pub real: Option<PathBuf>,
    /// Run only a few transfers, for a quick look: figures differ a little
    #[arg(long, global = true)]
    pub quick: bool,
    /// Change a parameter; `dcs bench sim parameters` lists names and units
    #[arg(long = "set", value_name = "NAME=NUMBER", global = true)]
    pub set: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Experiment {
    /// 4 KiB from the SSD to the far end of the wire, without and with MD5, by component
    Latency,
    /// Bandwidth and CPU with 0 to 24 spinning processes, and with processes that take memory bandwidth
    Contention,
    /// Object server: GET and PUT of many sizes with MD5, Poisson arrivals, CPU at equal throughput
    Object,
    /// The HDFS balancer: sender, and receiver with CRC32, CPU at equal throughput
    Balancer,
    /// One object of 512 MiB, encrypted and sent
    EncryptedSendfile,
    /// 1 to 4 sets of an SSD and a NIC
    Scaling,
    /// Faster devices: an SSD of 10 us, 40 and 100 Gb/s, ideal ones
    Projection,
    /// D2D streams: a packet from NIC to NIC compared with descriptor DMA, a pair's throughput, punctuality of 1,000 videos
    D2d,
    /// Virtual drives: a near-storage request of a guest by component, paravirtual devices to FlexCSV
    CsdBreakdown,
    /// Virtual drives: near-storage processing by eight operators in five designs
    CsdSpeedup,
    /// Virtual drives: SSD and operators compared with the same without virtualization
    CsdNative,
    /// Virtual drives: guests that share one SSD, and guests with one each
    CsdSsds,
    /// Virtual drives: operators shared by guests: latencies, QoS violations by slot policy, fairness
    CsdQos,
    /// Virtual drives: path to an SSD, loading an operator, renaming
    CsdSteps,
    /// The resources of FlexCSV's FPGA (tables 1 to 3), and those of the SystemVerilog of this repository
    CsdArea,
    /// The engine in SystemVerilog: area, cycles and clocks beside DCS-ctrl's and FlexCSV's
    Rtl,
    /// All experiments
    All,
    /// List every parameter, with its source
    Parameters,
    /// Transfers of each design while devices fail as --fault says
    Faults(faults::Options),
}

const EXPERIMENTS: [Experiment; 16] = [
    Experiment::Latency,
    Experiment::Contention,
    Experiment::Object,
    Experiment::Balancer,
    Experiment::EncryptedSendfile,
    Experiment::Scaling,
    Experiment::Projection,
    Experiment::D2d,
    Experiment::CsdBreakdown,
    Experiment::CsdSpeedup,
    Experiment::CsdNative,
    Experiment::CsdSsds,
    Experiment::CsdQos,
    Experiment::CsdSteps,
    Experiment::CsdArea,
    Experiment::Rtl,
];

const HELP: &str = "\
Examples:
  dcs bench sim latency                            # a table, with the papers' figures
  dcs bench sim contention --svg contention.svg
  dcs bench sim d2d                                # an SSD that feeds a NIC by itself
  dcs bench sim csd-speedup                        # virtual drives of guests: paravirtual devices to FlexCSV
  dcs bench sim csd-qos --set bitstream=67108864   # the same with another parameter: operators that take long to load
  dcs bench sim all --json | jq 'select(.event == \"figure\")'
  dcs bench sim all --html report.html             # everything on one page
  dcs bench sim parameters                         # the time of every step, and its source
  dcs bench sim faults --fault ssd:read:3:late=20ms   # devices that fail: dcs bench sim faults --help

The servers are models in virtual time: a PCIe fabric with NVMe, NIC and GPU models, a TCP peer at the far end, a processor
with cores and a run queue. The programs on them are real: each design moves the bytes, by the same NVMe host, NIC driver and
TCP, and every byte and digest is checked. What a step of software costs is a parameter; all are in one file, each with
its source, and none was chosen for what comes out. The same build gives the same figures on any machine.

  host-centric             the kernel's stacks: sendfile, or read, operator and write
  software-optimised       NVMe, NIC and TCP in user space, data by host memory, operators on a GPU or the processor
  software-controlled P2P  the same, data from device to device where a GPU is between
  card                     one command to the dcs card

docs/experiments.md says what is modelled and what is not, and what differs from the papers and why.

Exit codes: 0 done; 1 a plot or page could not be written; 2 usage; 101 a byte or a digest was wrong, which is a defect";

pub fn run(options: &Options, report: &Report) -> Result<(), Failure> {
    let (parameters, timings) = parameters(&options.set)?;
    let chosen = match &options.experiment {
        Experiment::Parameters => {
            show::parameters(&parameters, &timings, report);
            return Ok(());
        }
        Experiment::Faults(_) if options.svg.is_some() || options.html.is_some() => {
            return Err(Failure::usage("faults draws no plot").advise("leave --svg and --html out"));
        }
        Experiment::Faults(options) => return faults::run(options, parameters, report),
        Experiment::All => EXPERIMENTS.to_vec(),
        one => vec![one.clone()],
    };
    let (guest, real) = (page::guest(options)?, real::read(options.real.as_deref())?);
    let mut all = Vec::new();
    for experiment in &chosen {
        let step = report.step(format!("{experiment:?}"));
        let shown = measure(experiment, (parameters, timings), options.quick);
        drop(step);
        show::experiment(&shown, report);
        if let Some(path) = &options.svg {
            let path = if chosen.len() > 1 { plot::named(path, shown.name) } else { path.clone() };
            bars::draw(&shown.chart, &path, report)?;
        }
        all.push(shown);
    }
    if let Some(path) = &options.html {
        Page { shown: &all, parameters: &parameters, timings: &timings, guest, real, quick: options.quick }
            .write(path, report)?;
    }
    report.object(&json!({ "event": "done", "ok": true }));
    Ok(())
}

/// Returns the parameters, with those changed that are set.
fn parameters(set: &[String]) -> Result<(Parameters, Timings), Failure> {
    let (mut parameters, mut timings) = (Parameters::default(), Timings::default());
    for one in set {
        let found = one.split_once('=').and_then(|(name, value)| Some((name, value.parse().ok()?)));
        let Some((name, value)) = found else {
            return Err(
                Failure::usage(format!("--set {one}: not NAME=NUMBER")).advise("for example --set exit=2000")
            );
        };
        if !parameters.set(name, value) && !timings.set(name, value) {
            return Err(Failure::usage(format!("--set {one}: no parameter has this name"))
                .advise("dcs bench sim parameters lists all of them"));
        }
    }
    Ok((parameters, timings))
}

fn measure(experiment: &Experiment, (parameters, timings): (Parameters, Timings), quick: bool) -> Results {
    let count = |whole: u64, some: u64| if quick { some } else { whole };
    let setting = |whole: u64, some: u64| Setting { parameters, timings, count: count(whole, some) };
    match experiment {
        Experiment::Latency => show::latency(&latency::run(parameters)),
        Experiment::Contention => {
            let cpu = contention::cpu(parameters, count(64, 4));
            show::contention(&cpu, &contention::memory(parameters, count(16, 4)))
        }
        Experiment::Object => show::object(&object::measure(parameters, count(1000, 100) as usize)),
        Experiment::Balancer => show::balancer(&balancer::measure(parameters, count(30, 6))),
        Experiment::EncryptedSendfile => {
            let length = if quick { 16 << 20 } else { encrypted::LENGTH };
            show::encrypted(&encrypted::measure(parameters, length))
        }
        Experiment::Scaling => show::scaling(&scaling::measure(parameters, count(32, 4))),
        Experiment::Projection => {
            let work = projection::measure_work(parameters, count(24, 4) as usize);
            show::projection(&projection::measure(parameters, count(32, 8)), &work)
        }
        Experiment::D2d => show::d2d(&d2d::measure(parameters, count(100, 20))),
        Experiment::CsdBreakdown => drives::breakdown(&breakdown::measure(&setting(1, 1))),
        Experiment::CsdSpeedup => drives::speedup(&speedup::measure(&setting(200, 20))),
        Experiment::CsdNative => drives::native(&native::measure(&setting(400, 40))),
        Experiment::CsdSsds => drives::ssds(&ssds::measure(&setting(200, 20))),
        Experiment::CsdQos => drives::qos(&qos::measure(&setting(1000, 60))),
        Experiment::CsdArea => drives::area(),
        Experiment::Rtl => hardware::results(),
        Experiment::CsdSteps => drives::times(&times::measure(&setting(1, 1)), &setting(1, 1)),
        Experiment::All | Experiment::Parameters | Experiment::Faults(_) => unreachable!("it is none"),
    }
}
