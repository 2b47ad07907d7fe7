//! `dcs bench csd`: cost of virtual drives, compared with io_uring on the same file.
//!
//! | module | contents |
//! |---|---|
//! | `options` | the command line |
//! | `job` | jobs and contenders |
//! | `served` | the process of the drives, and a drive in memory in this process |
//! | `driver` | a run by the guest's driver |
//! | `fio` | a run by fio |
//! | `idle` | cost of a process whose guests do nothing |
//! | `figures` | medians and ratios, and their tables and plots |

mod driver;
mod figures;
mod fio;
mod idle;
mod job;
mod options;
mod served;

use crate::failure::{Exit, Failure};
use crate::harness::contender::Named;
use crate::harness::cores::{self, ServerCores};
use crate::harness::folder::{self, Folder};
use crate::harness::turns::Board;
use crate::interrupt;
use crate::report::Report;
use crate::units::human;
use figures::Row;
use job::{Contender, Job};
pub use options::Options;
use serde_json::json;
use served::Served;

pub fn run(options: &Options, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let wanted = |job: &Job| options.jobs.is_empty() || options.jobs.contains(job);
    let jobs: Vec<Job> = Job::ALL.into_iter().filter(wanted).collect();
    let picked = Contender::picked(&options.contenders)?;
    if !options.size.is_multiple_of(1 << 20) || options.size < 16 << 20 {
        return Err(Failure::usage("--size must be a multiple of 1MiB, and at least 16MiB"));
    }
    let has_fio = fio::is_there();
    if picked.contains(&Contender::Fio) && !has_fio {
        return Err(Failure::new(Exit::NotFound, "fio was not found").advise("apt-get install fio"));
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
        folder::has_free(folder.path(), 3 * options.size, "--size")?;
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

/// Returns the jobs with their depths and contenders.
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
