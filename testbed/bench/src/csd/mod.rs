//! `dcs bench csd`: what virtual drives cost, beside io_uring on the same file.
//!
//! | module | what it holds |
//! |---|---|
//! | `job` | what is measured: jobs and contenders |
//! | `served` | the process of the drives, and a drive of memory in this one |
//! | `driver` | one run by the guest's driver |
//! | `fio` | one run by fio |
//! | `idle` | what a process costs whose guests do nothing |
//! | `figures` | medians and ratios; how they are shown |

mod driver;
mod figures;
mod fio;
mod idle;
mod job;
mod served;

use crate::failure::{Exit, Failure};
use crate::harness::contender::Named;
use crate::harness::cores::{self, ServerCores};
use crate::harness::place::{self, Folder};
use crate::harness::turns::Board;
use crate::interrupt;
use crate::report::Report;
use crate::units::{self, human};
use clap::Args;
use figures::Row;
use job::{Contender, Job};
use serde_json::json;
use served::Served;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// Jobs to measure; all where none is given
    #[arg(value_name = "JOB", value_enum)]
    pub jobs: Vec<Job>,
    /// Contenders: those that suit the job where none are given
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub contenders: Vec<String>,
    /// Commands under way at once, of the jobs that have many
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = units::count::<1, 128>, default_value = "32")]
    pub depth: Vec<usize>,
    /// Bytes that each job reads or writes, again and again; the file has three times as many
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "256MiB")]
    pub size: u64,
    /// Seconds that are measured in each run, after a warm-up
    #[arg(long, value_name = "S", value_parser = units::seconds, default_value = "2")]
    pub seconds: f64,
    /// Runs of each contender, of which the median counts
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: u32,
    /// Plot the process's CPU time of a command by depth
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Folder of the file: on the disk that is to be measured
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
}

const HELP: &str = "\
Examples:
  dcs bench csd                                     # all jobs: three minutes
  dcs bench csd random --depth 1,8,32,128 --svg csd.svg --dir /mnt/nvme
  dcs bench csd memory --seconds 5 --json | jq -r '[.contender, .per_s, .drive_cpu_us] | @tsv'
  dcs bench csd idle                                # 16 drives whose guests do nothing

Jobs: random (4 KiB reads), latency (the same, one at a time), read, write (128 KiB, sequential), memory (4 KiB reads of a
drive that is memory, no disk), idle. Contenders: fio (io_uring, O_DIRECT, on the same part of the same file), drive (dcs csd run, by a guest's
driver that sleeps until an interrupt), polled (the same driver looks for completions), bells (the same, without shadow doorbells: each
doorbell is a message). The driver is a vfio-user client: what a guest's is, without a virtual machine.
CPU time is that of the process that moves the data: dcs csd run, or fio (by its own account, which includes drawing places). The driver's
is told apart. Ratios are to fio, within a repetition. All file data were written by the driver and are checked by their first word in
each read. A release build on a quiet machine is needed; on a busy one ratios and CPU times hold better than throughputs.
QEMU's storage daemon is no contender: its clients of vhost-user-blk are QEMU itself and libblkio.

Exit codes: 0 measured; 1 a contender failed or delivered wrong bytes; 2 usage; 4 no space; 7 a contender that was named is not there;
130 interrupted";

/// Contenders whose ratios to it are told.
const BASE: Contender = Contender::Fio;

pub fn run(options: &Options, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let wanted = |job: &Job| options.jobs.is_empty() || options.jobs.contains(job);
    let jobs: Vec<Job> = Job::ALL.into_iter().filter(wanted).collect();
    let picked = Contender::picked(&options.contenders)?;
    if !options.size.is_multiple_of(1 << 20) || options.size < 16 << 20 {
        return Err(Failure::usage("--size is a multiple of 1MiB, and at least 16MiB"));
    }
    let has_fio = fio::is_there();
    if picked.contains(&Contender::Fio) && !has_fio {
        return Err(Failure::new(Exit::NotFound, "there is no fio").advise("apt-get install fio"));
    }
    let (server, client) = cores::deal(ServerCores::Some(1))?;
    cores::stay_on(&client).map_err(|error| Failure::io("affinity", &error))?;
    report.text(format_args!(
        "The process on core {server:?}, the driver on {client:?}{}.",
        cores::shared(&server, &client, "driver and process")
    ));
    if !has_fio {
        report.text("Without fio, which is not installed (apt-get install fio): no ratios.");
        report.object(&json!({ "event": "skipped", "contender": "fio", "why": "not installed" }));
    }
    let folder = Folder::new(options.dir.as_deref(), "dcs-bench-csd-")?;
    if jobs.iter().any(|job| job.region().is_some()) {
        place::has_free(folder.path(), 3 * options.size, "--size")?;
    }
    let plan = plan(&jobs, &picked, options, has_fio);
    let runs: usize = plan.iter().map(|(_, _, contenders)| contenders.len() * options.runs as usize).sum();
    let board = Board::new(runs as u64, report);
    let file = match plan.iter().any(|(job, ..)| job.region().is_some()) {
        true => Some(served::fill(&folder, options.size, &server, &board)?),
        false => None,
    };
    let mut rows: Vec<Row> = Vec::new();
    for (job, depth, contenders) in plan {
        let what = format!("{} of {}, depth {depth}", job.name(), human(job.bytes()));
        let mut served = Served::none(&folder, file.as_deref(), options.size, &server);
        let all = board.turns(&what, &contenders, options.runs, |contender, _| {
            if interrupt::pressed() {
                return Err(std::io::Error::other("interrupted"));
            }
            match contender {
                Contender::Fio => fio::run(job, depth, options, &served),
                _ => driver::run(job, depth, contender, options, &mut served),
            }
        })?;
        drop(served);
        let some = figures::rows(job, depth, &all);
        board.show(&some, figures::show);
        rows.extend(some);
    }
    drop(board);
    if jobs.contains(&Job::Idle) {
        idle::run(&folder, &server, report)?;
    }
    if let Some(svg) = &options.svg {
        figures::plot(&rows, svg, report)?;
    }
    report.object(&json!({ "event": "done", "ok": true }));
    Ok(())
}

/// Jobs with their depths and contenders.
fn plan(
    jobs: &[Job],
    picked: &[Contender],
    options: &Options,
    has_fio: bool,
) -> Vec<(Job, usize, Vec<Contender>)> {
    let mut plan = Vec::new();
    for job in jobs {
        let suits = |one: &&Contender| {
            (picked.is_empty() || picked.contains(one)) && (**one != Contender::Fio || has_fio)
        };
        let contenders: Vec<Contender> = job.contenders().iter().filter(suits).copied().collect();
        for depth in job.depths(&options.depth) {
            if !contenders.is_empty() {
                plan.push((*job, depth, contenders.clone()));
            }
        }
    }
    plan
}
