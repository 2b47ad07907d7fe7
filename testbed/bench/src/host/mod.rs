//! `dcs bench host`: what jobs cost, on the engine and on what a user would otherwise run.
//!
//! | module | what it holds |
//! |---|---|
//! | `job`, `contender`, `plan` | what is measured |
//! | `data` | the files |
//! | `measure`, `protocol` | one run: processes, and what they tell each other |
//! | `server`, `contenders`, `library` | the measured process |
//! | `client`, `clocks` | the other end, which measures |
//! | `verify` | the check of what was delivered |
//! | `figures`, `table` | medians and ratios; how they are shown |
//! | `control`, `step`, `names` | instructions and system calls of one small transfer |

pub mod client;
pub mod clocks;
mod contender;
mod contenders;
pub mod control;
mod data;
pub mod figures;
pub mod job;
mod library;
pub mod measure;
mod names;
mod plan;
pub mod protocol;
pub mod server;
mod step;
pub mod table;
mod verify;

use crate::args;
use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::plot::{self, Point};
use crate::report::Report;
use crate::units::human;
use crate::workload::wire::congestion;
use contender::CONTENDERS;
use data::Data;
use figures::{Row, Runs};
use indicatif::{ProgressBar, ProgressStyle};
use measure::Scenario;
use nix::sched::sched_getaffinity;
use nix::unistd::Pid;
use plan::{Plan, Step};
use serde_json::json;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// The job that counts instructions instead of moving many bytes.
const CONTROL: &str = "control";
/// Seconds before the first mark. Many threads on many young connections take several times the CPU until
/// windows have grown; in less than half a second they do not get there.
pub const WARM_UP_S: f64 = 1.0;

pub fn run(options: &args::Host, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    if options.list {
        table::list(report);
        return Ok(());
    }
    let (control, jobs): (Vec<String>, Vec<String>) =
        options.jobs.iter().cloned().partition(|job| job == CONTROL);
    if !control.is_empty() {
        control::run(report)?;
        if jobs.is_empty() {
            return Ok(());
        }
    }
    let plan = Plan::new(options, &jobs)?;
    let (server_cores, client_cores) = cores(options.server_cores)?;
    introduce(options, &server_cores, &client_cores, report);
    let runs =
        plan.steps.iter().map(|step| step.contenders.len() as u64).sum::<u64>() * u64::from(options.runs);
    let rows = Bench { options, report, server_cores, client_cores, bar: bar(runs, report) }.all(&plan)?;
    table::summary(&rows, report);
    if let Some(path) = &options.svg {
        let points: Vec<_> = rows.iter().map(point).collect();
        let names: Vec<_> = CONTENDERS.iter().map(|(_, name, _)| *name).collect();
        plot::draw(&points, &names, ("streams", "CPU s per GiB"), path, report)?;
    }
    report.object(&json!({ "event": "done", "ok": true }));
    Ok(())
}

/// Cores of the server, and of the client: all others, or where there are none the same.
pub fn cores(wanted: args::ServerCores) -> Result<(Vec<usize>, Vec<usize>), Failure> {
    let set = sched_getaffinity(Pid::from_raw(0)).map_err(|errno| Failure::io("affinity", &errno.into()))?;
    let all: Vec<usize> =
        (0..nix::sched::CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false)).collect();
    match wanted {
        args::ServerCores::Some(count) if count > all.len() => {
            Err(Failure::usage(format!("--server-cores {count}: there are {}", all.len()))
                .advise("say fewer, or all"))
        }
        args::ServerCores::Some(count) if count < all.len() => {
            let (client, server) = all.split_at(all.len() - count);
            Ok((server.to_vec(), client.to_vec()))
        }
        _ => Ok((all.clone(), all)),
    }
}

fn introduce(options: &args::Host, server: &[usize], client: &[usize], report: &Report) {
    let shared = if server == client {
        ", which are the same: contenders and client take time from each other"
    } else {
        ""
    };
    let congestion = congestion().unwrap_or_else(|_| "?".into());
    report.text(format_args!(
        "Over TCP (127.0.0.1, {congestion}). Measured process on core {server:?}, client on {client:?}{shared}.\n\
         Client: {}.\n\
         Medians of {} runs in turns, {} s each. CPU time: of all threads, and of kernel threads, of which other\n\
         programs may have some; the client's is told apart. The digest of every object is checked, and in each run\n\
         all bytes of one object a stream. crc32c: OpenSSL has none, so the loops take that of dcs (crc-fast).",
        client::MODE,
        options.runs,
        options.seconds,
    ));
    if options.cold {
        report.text(
            "Cold: O_DIRECT for engine and loop-direct; the others drop each object from the page cache after it was\n\
             sent (posix_fadvise), and that is counted.",
        );
    }
    if cfg!(debug_assertions) {
        report.text("This is a DEBUG build: the comparison says nothing. Use make bench.");
    }
}

/// Where a row is in the plot.
fn point(row: &Row) -> Point<'_> {
    let hogs =
        if row.hogs > 0 { format!(", beside {}", table::plural(row.hogs, "hog")) } else { String::new() };
    let cold = if row.cold { ", cold" } else { "" };
    let panel = format!("{}, {}{hogs}{cold}", row.job, human(row.size));
    Point { panel, series: row.contender, x: row.streams, y: row.cpu_s_per_gib }
}

pub fn bar(runs: u64, report: &Report) -> Option<ProgressBar> {
    let bar = report.shows_progress().then(|| ProgressBar::new(runs))?;
    bar.enable_steady_tick(Duration::from_millis(100));
    let style = ProgressStyle::with_template("[{bar:30}] {pos}/{len} runs, {eta} left  {msg}");
    Some(match style {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    })
}

/// The files, their copies, and what is stored to be checked.
fn has_room(folder: &Path, size: u64, streams: usize) -> Result<(), Failure> {
    has_free(folder, 3 * data::total(size, streams), "--size and --streams")
}

/// Whether a file system has so many bytes free. `by`: the options that ask for less.
pub fn has_free(folder: &Path, needed: u64, by: &str) -> Result<(), Failure> {
    let what = folder.display();
    let room = nix::sys::statvfs::statvfs(folder).map_err(|errno| Failure::io(&what, &errno.into()))?;
    let free = room.blocks_available() * room.fragment_size();
    if free >= needed {
        return Ok(());
    }
    let line = format!("{what} has {} free; the benchmark needs {}", human(free), human(needed));
    Err(Failure::new(Exit::NoSpace, line).advise(format!("choose another folder by --dir, or less by {by}")))
}

/// What all steps share.
struct Bench<'a> {
    options: &'a args::Host,
    report: &'a Report,
    server_cores: Vec<usize>,
    client_cores: Vec<usize>,
    bar: Option<ProgressBar>,
}

/// What is the same with and without hogs.
type Key = (String, usize, u64);

impl Bench<'_> {
    fn all(&self, plan: &Plan) -> Result<Vec<Row>, Failure> {
        let parent = self.options.dir.clone().unwrap_or_else(std::env::temp_dir);
        let failed = |error| Failure::io("data folder", &error);
        let folder = tempfile::Builder::new().prefix("dcs-bench.").tempdir_in(&parent).map_err(failed)?;
        let _leftover = interrupt::leftover(folder.path());
        let mut rows = Vec::new();
        let mut uncontended: HashMap<Key, Vec<Runs>> = HashMap::new();
        for size in plan.sizes() {
            let place = folder.path().join(size.to_string());
            std::fs::create_dir(&place).map_err(failed)?;
            self.say("making the files");
            has_room(&parent, size, plan.most_streams(size))?;
            let data = Data::new(&place, size, plan.most_streams(size)).map_err(failed)?;
            for step in plan.steps.iter().filter(|step| step.size == size) {
                let scenario = self.scenario(step, &data);
                let runs = self.scenario_runs(&scenario, step)?;
                let key = (step.job.name(), step.streams, size);
                let mine = figures::rows(&scenario, &runs, uncontended.get(&key).map(Vec::as_slice));
                if step.hogs == 0 {
                    uncontended.insert(key, runs);
                }
                self.show(&mine);
                rows.extend(mine);
            }
            std::fs::remove_dir_all(&place).map_err(failed)?;
        }
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        Ok(rows)
    }

    fn scenario<'a>(&self, step: &Step, data: &'a Data) -> Scenario<'a> {
        Scenario {
            job: step.job.clone(),
            data,
            streams: step.streams,
            hogs: step.hogs,
            open_once: self.options.open == args::OpenChoice::Once,
            cold: self.options.cold,
            warm_s: (2.0 * self.options.seconds).min(WARM_UP_S),
            measure_s: self.options.seconds,
            server_cores: self.server_cores.clone(),
            client_cores: self.client_cores.clone(),
        }
    }

    /// In each repetition every contender runs once; another one begins each time.
    fn scenario_runs(&self, scenario: &Scenario<'_>, step: &Step) -> Result<Vec<Runs>, Failure> {
        let what = format!("{}, {} streams", step.job.name(), step.streams);
        let failed = |error| Failure::io(&what, &error);
        let streams = scenario.data.streams(&step.job, step.streams).map_err(failed)?;
        let mut all: Vec<Runs> =
            step.contenders.iter().map(|one| Runs { contender: *one, runs: Vec::new() }).collect();
        for repetition in 0..self.options.runs as usize {
            for turn in 0..all.len() {
                let count = all.len();
                let next = &mut all[(turn + repetition) % count];
                self.say(&format!("{what}: {}", next.contender.name()));
                let run = scenario.run(next.contender, &streams, repetition == 0).map_err(|error| {
                    let who = next.contender.name();
                    Failure::new(Exit::Failed, format!("{what}, {who}: {error}"))
                        .advise("leave it out with --contenders, or report it as a defect")
                })?;
                next.runs.push(run);
                if let Some(bar) = &self.bar {
                    bar.inc(1);
                }
            }
        }
        Ok(all)
    }

    fn say(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_string());
        }
    }

    fn show(&self, rows: &[Row]) {
        let show = || {
            table::scenario(rows, self.report);
            for row in rows {
                self.report.object(&table::object(row));
            }
        };
        match &self.bar {
            Some(bar) => bar.suspend(show),
            None => show(),
        }
    }
}
