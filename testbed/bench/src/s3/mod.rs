//! `dcs bench s3`: S3 object servers side by side.
//!
//! | module | what it holds |
//! |---|---|
//! | `options`, `contender`, `plan` | what is measured |
//! | `programs` | where the servers come from |
//! | `network`, `process` | where they run, and what they cost |
//! | `objects`, `request`, `http` | what goes over the wire |
//! | `load`, `connection`, `protocol` | the clients, in a process of their own |
//! | `measure`, `memory` | one run |
//! | `figures`, `table` | medians and ratios; how they are shown |

mod connection;
pub mod contender;
mod figures;
mod http;
pub mod load;
mod measure;
mod memory;
mod network;
mod objects;
pub mod options;
mod plan;
pub mod process;
mod programs;
mod protocol;
mod request;
mod table;
#[cfg(test)]
mod tests;

use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::plot::{self, Point};
use crate::report::Report;
use crate::units::human;
use contender::Contender;
use figures::{Row, Runs};
use indicatif::ProgressBar;
use measure::Scenario;
use objects::Objects;
use options::{Job, MEMORY_CLIENTS, Options};
use plan::Step;
use programs::Programs;
use serde_json::json;
use std::path::Path;

/// What all steps share.
struct Bench<'a> {
    options: &'a Options,
    report: &'a Report,
    programs: Programs,
    server_cores: Vec<usize>,
    client_cores: Vec<usize>,
    bar: Option<ProgressBar>,
}

pub fn run(options: &Options, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let picked = Contender::picked(options)?;
    if options.list {
        table::list(&Programs::find(&picked, false, report), report);
        return Ok(());
    }
    // What makes no sense is said before anything is built.
    let steps = plan::steps(options, &picked)?;
    let (server_cores, client_cores) = crate::host::cores(options.server_cores)?;
    let programs = Programs::find(&involved(options, &steps, &picked), true, report);
    if !options.contenders.is_empty() && !options.lenient {
        programs.demand()?;
    }
    let steps = with_those(steps, &programs)?;
    let congestion = network::enter();
    introduce(options, (&server_cores, &client_cores), &congestion, &programs, report);
    let runs = steps.iter().map(|step| step.contenders.len() as u64).sum::<u64>() * u64::from(options.runs);
    let bar = (!options.memory).then(|| crate::host::bar(runs, report)).flatten();
    let bench = Bench { options, report, programs, server_cores, client_cores, bar };
    if options.memory {
        bench.memory(&picked)?;
    } else {
        let rows = bench.all(&steps)?;
        bench.draw(&rows)?;
    }
    report.object(&json!({ "event": "done", "ok": true }));
    Ok(())
}

/// Contenders that have anything to do.
fn involved(options: &Options, steps: &[Step], picked: &[Contender]) -> Vec<Contender> {
    let has_part = |contender: &Contender| match options.memory {
        true => memory::can(*contender),
        false => steps.iter().any(|step| step.contenders.contains(contender)),
    };
    picked.iter().copied().filter(has_part).collect()
}

/// The steps without those that are not to be had.
fn with_those(mut steps: Vec<Step>, programs: &Programs) -> Result<Vec<Step>, Failure> {
    for step in &mut steps {
        step.contenders.retain(|contender| programs.has(*contender));
    }
    steps.retain(|step| !step.contenders.is_empty());
    if steps.is_empty() {
        return Err(Failure::new(Exit::NotFound, "no contender is available here")
            .advise("dcs bench s3 --list tells what is missing"));
    }
    Ok(steps)
}

fn introduce(
    options: &Options,
    (server, clients): (&[usize], &[usize]),
    congestion: &str,
    programs: &Programs,
    report: &Report,
) {
    let shared = if server == clients {
        ", which are the same: servers and clients take time from each other"
    } else {
        ""
    };
    table::versions(
        &contender::CONTENDERS.iter().map(|known| known.contender).collect::<Vec<_>>(),
        programs,
        report,
    );
    table::missing(programs, report);
    report.text(format_args!(
        "HTTP/1.1 over TCP (127.0.0.1, {congestion}), presigned URLs with unsigned payload. Servers on core {server:?}, clients on \
         {clients:?}{shared}.\nClients: {}.\n\
         CPU time: of all threads and children of the server, and of kernel threads, of which other programs may have some;\n\
         the clients' is told apart. Status, length and ETag of every answer are checked, and all bytes of some.",
        load::MODE,
    ));
    if !options.memory {
        let until =
            options.requests.map_or(format!("{} s", options.seconds), |count| format!("{count} requests"));
        report.text(format_args!("Medians of {} runs in turns, {until} each.", options.runs));
    }
    if cfg!(debug_assertions) {
        report.text("This is a DEBUG build: the comparison says nothing about dcs. Use a release build.");
    }
}

impl Bench<'_> {
    fn all(&self, steps: &[Step]) -> Result<Vec<Row>, Failure> {
        let mut rows = Vec::new();
        self.in_folder(|folder| {
            for step in steps {
                let mine = self.step(step, folder)?;
                self.show(&mine);
                rows.extend(mine);
            }
            Ok(())
        })?;
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        Ok(rows)
    }

    fn in_folder(&self, work: impl FnOnce(&Path) -> Result<(), Failure>) -> Result<(), Failure> {
        let parent = self.options.dir.clone().unwrap_or_else(std::env::temp_dir);
        let failed = |error| Failure::io("data folder", &error);
        let parent = parent.canonicalize().map_err(failed)?;
        let folder =
            tempfile::Builder::new().prefix("dcs-bench-serve.").tempdir_in(parent).map_err(failed)?;
        let _leftover = interrupt::leftover(folder.path());
        work(folder.path())
    }

    /// In each repetition every contender runs once; another one begins each time.
    fn step(&self, step: &Step, parent: &Path) -> Result<Vec<Row>, Failure> {
        let what = format!("{} {}, {} clients", step.job.name(), human(step.size), step.clients);
        let failed = |error| Failure::io(&what, &error);
        let folder = tempfile::tempdir_in(parent).map_err(failed)?;
        let count = objects::count(step.size, step.clients, self.options.cold);
        has_room(folder.path(), step, count)?;
        self.say("making the objects");
        let objects = Objects::new(folder.path(), step.size, count).map_err(failed)?;
        let scenario = self.scenario(step.job, step.clients, &objects, folder.path());
        let mut all: Vec<Runs> =
            step.contenders.iter().map(|one| Runs { contender: *one, runs: Vec::new() }).collect();
        for repetition in 0..self.options.runs as usize {
            for turn in 0..all.len() {
                let count = all.len();
                let next = &mut all[(turn + repetition) % count];
                self.say(&format!("{what}: {}", next.contender.name()));
                let run = scenario.run(next.contender, repetition == 0);
                next.runs.push(run.map_err(|error| failure(&what, next.contender, &error))?);
                if let Some(bar) = &self.bar {
                    bar.inc(1);
                }
            }
        }
        Ok(figures::rows(&scenario, &all))
    }

    fn scenario<'a>(&'a self, job: Job, clients: usize, objects: &'a Objects, folder: &Path) -> Scenario<'a> {
        Scenario {
            job,
            objects,
            clients,
            cold: self.options.cold,
            warm_s: (2.0 * self.options.seconds).min(crate::host::WARM_UP_S),
            measure_s: self.options.seconds,
            requests: self.options.requests,
            programs: &self.programs,
            folder: folder.to_path_buf(),
            server_cores: self.server_cores.clone(),
            client_cores: self.client_cores.clone(),
        }
    }

    fn memory(&self, picked: &[Contender]) -> Result<(), Failure> {
        let clients = self.options.clients.first().copied().unwrap_or(MEMORY_CLIENTS);
        let size = self.options.size.first().copied().unwrap_or(memory::SIZE);
        let mut peaks = Vec::new();
        self.in_folder(|folder| {
            let failed = |error| Failure::io("data folder", &error);
            let objects = Objects::new(folder, size, objects::count(size, 1, false)).map_err(failed)?;
            let scenario = self.scenario(Job::Put, clients, &objects, folder);
            for contender in picked.iter().filter(|one| memory::can(**one) && self.programs.has(**one)) {
                let _step = self.report.step(format!("{}: {clients} clients", contender.name()));
                let peak = memory::run(&scenario, *contender);
                let peak = peak.map_err(|error| failure("memory", *contender, &error))?;
                self.report.object(&json!(peak));
                peaks.push(peak);
            }
            Ok(())
        })?;
        table::memory(&peaks, self.report);
        Ok(())
    }

    fn draw(&self, rows: &[Row]) -> Result<(), Failure> {
        let Some(path) = &self.options.svg else { return Ok(()) };
        let point = |row: &Row| {
            let cold = if row.cold { ", cold" } else { "" };
            let panel = format!("{}, {}{cold}", row.job.to_uppercase(), human(row.size));
            Point { panel, series: row.contender, x: row.clients, y: row.cpu_s_per_gib }
        };
        let points: Vec<Point<'_>> = rows.iter().map(point).collect();
        plot::draw(&points, &table::names(), ("clients", "CPU s per GiB"), path, self.report)
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
                self.report.object(&crate::host::table::object(row));
            }
        };
        match &self.bar {
            Some(bar) => bar.suspend(show),
            None => show(),
        }
    }
}

fn failure(what: &str, contender: Contender, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("{what}, {}: {error}", contender.name()))
        .advise("leave it out with --contenders, or report it as a defect")
}

/// For what is got, of all contenders; or for what is put, and being put, of one.
fn has_room(folder: &Path, step: &Step, objects: usize) -> Result<(), Failure> {
    let needed = match step.job {
        Job::Get => step.size * objects as u64 * step.contenders.len() as u64,
        Job::Put => 3 * step.size * step.clients as u64,
    };
    crate::host::has_free(folder, needed + step.size, "--size and --clients")
}
