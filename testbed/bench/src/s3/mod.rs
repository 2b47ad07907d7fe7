//! `dcs bench s3`: compares S3 object servers.
//!
//! | module | contents |
//! |---|---|
//! | `options`, `contender`, `plan` | the measurements to make |
//! | `programs` | finding and building the servers |
//! | `network`, `process` | running them, and measuring their cost |
//! | `objects`, `request`, `http` | data on the wire |
//! | `load`, `connection`, `protocol` | the clients, in a process of their own |
//! | `measure`, `memory` | one run |
//! | `figures`, `table` | medians and ratios, and their tables |

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
use crate::harness::contender::Named;
use crate::harness::cores;
use crate::harness::folder::{self, Folder};
use crate::harness::load::{MODE, Setting};
use crate::harness::plot::{self, Point};
use crate::harness::turns::{self, Board};
use crate::interrupt;
use crate::report::Report;
use crate::units::human;
use contender::Contender;
use figures::Row;
use measure::Scenario;
use objects::Objects;
use options::{Job, MEMORY_CLIENTS, Options};
use plan::Step;
use programs::Programs;
use serde_json::json;
use std::path::Path;

const ADVICE: &str = "leave this contender out with --contenders, or report a defect";

/// State that all steps share.
struct Bench<'a> {
    options: &'a Options,
    report: &'a Report,
    programs: Programs,
    setting: Setting,
    board: Board<'a>,
}

pub fn run(options: &Options, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let picked = Contender::wanted(options)?;
    if options.list {
        table::list(&Programs::find(&picked, false, report), report);
        return Ok(());
    }
    // Usage errors come before anything is built.
    let steps = plan::steps(options, &picked)?;
    let setting = Setting::new(options.server_cores, options.seconds, options.cold)?;
    let programs = Programs::find(&involved(options, &steps, &picked), true, report);
    if !options.contenders.is_empty() && !options.lenient {
        programs.demand()?;
    }
    let steps = with_those(steps, &programs)?;
    let congestion = network::enter();
    introduce(options, &setting, &congestion, &programs, report);
    let runs = steps.iter().map(|step| step.contenders.len() as u64).sum::<u64>() * u64::from(options.runs);
    let board = Board::new(if options.memory { 0 } else { runs }, report);
    let bench = Bench { options, report, programs, setting, board };
    if options.memory {
        bench.memory(&picked)?;
    } else {
        let rows = bench.all(&steps)?;
        bench.draw(&rows)?;
    }
    report.object(&json!({ "event": "done", "ok": true }));
    Ok(())
}

/// Returns the contenders that have anything to do.
fn involved(options: &Options, steps: &[Step], picked: &[Contender]) -> Vec<Contender> {
    let has_part = |contender: &Contender| match options.memory {
        true => memory::can(*contender),
        false => steps.iter().any(|step| step.contenders.contains(contender)),
    };
    picked.iter().copied().filter(has_part).collect()
}

/// Removes contenders that are not available from the steps.
fn with_those(mut steps: Vec<Step>, programs: &Programs) -> Result<Vec<Step>, Failure> {
    for step in &mut steps {
        step.contenders.retain(|contender| programs.has(*contender));
    }
    steps.retain(|step| !step.contenders.is_empty());
    if steps.is_empty() {
        return Err(Failure::new(Exit::NotFound, "no contender is available here")
            .advise("see what is missing with dcs bench s3 --list"));
    }
    Ok(steps)
}

fn introduce(options: &Options, setting: &Setting, congestion: &str, programs: &Programs, report: &Report) {
    let (server, clients) = (&setting.server_cores, &setting.client_cores);
    let shared = cores::shared(server, clients, "servers and clients");
    table::versions(programs, report);
    table::missing(programs, report);
    report.text(format_args!(
        "HTTP/1.1 over TCP (127.0.0.1, {congestion}), presigned URLs with unsigned payload. Servers on core {server:?}, clients on \
         {clients:?}{shared}.\nClients: {}.\n\
         CPU time: of all threads and children of the server, and of kernel threads, of which other programs may have some;\n\
         the clients' is told apart. Status, length and ETag of every answer are checked, and all bytes of some.",
        MODE,
    ));
    if !options.memory {
        let until =
            options.requests.map_or(format!("{} s", options.seconds), |count| format!("{count} requests"));
        report.text(format_args!("Medians of {} runs in turns, {until} each.", options.runs));
    }
    if cfg!(debug_assertions) {
        report.text("This is a DEBUG build: its figures mean nothing for dcs. Use a release build.");
    }
}

impl Bench<'_> {
    fn all(&self, steps: &[Step]) -> Result<Vec<Row>, Failure> {
        let folder = self.folder()?;
        let mut rows = Vec::new();
        for step in steps {
            let mine = self.step(step, folder.path())?;
            self.board.show(&mine, table::scenario);
            rows.extend(mine);
        }
        Ok(rows)
    }

    fn folder(&self) -> Result<Folder, Failure> {
        Folder::new(self.options.dir.as_deref(), "dcs-bench-s3.")
    }

    fn step(&self, step: &Step, parent: &Path) -> Result<Vec<Row>, Failure> {
        let what = format!("{} {}, {} clients", step.job.name(), human(step.size), step.clients);
        let failed = |error| Failure::io(&what, &error);
        let folder = tempfile::tempdir_in(parent).map_err(failed)?;
        let count = objects::count(step.size, step.clients, self.options.cold);
        has_room(folder.path(), step, count)?;
        self.board.say("making the objects");
        let objects = Objects::new(folder.path(), step.size, count).map_err(failed)?;
        let scenario = self.scenario(step.job, step.clients, &objects, folder.path());
        let run = |contender, first| scenario.run(contender, first);
        let all = self.board.turns(&what, &step.contenders, self.options.runs, run);
        let all = all.map_err(|failure| failure.advise(ADVICE))?;
        Ok(figures::rows(&scenario, &all))
    }

    fn scenario<'a>(&'a self, job: Job, clients: usize, objects: &'a Objects, folder: &Path) -> Scenario<'a> {
        Scenario {
            job,
            objects,
            clients,
            setting: self.setting.clone(),
            requests: self.options.requests,
            programs: &self.programs,
            folder: folder.to_path_buf(),
        }
    }

    fn memory(&self, picked: &[Contender]) -> Result<(), Failure> {
        let clients = self.options.clients.first().copied().unwrap_or(MEMORY_CLIENTS);
        let size = self.options.size.first().copied().unwrap_or(memory::SIZE);
        let folder = self.folder()?;
        let objects = Objects::new(folder.path(), size, objects::count(size, 1, false))
            .map_err(|error| Failure::io("data folder", &error))?;
        let scenario = self.scenario(Job::Put, clients, &objects, folder.path());
        let mut peaks = Vec::new();
        for contender in picked.iter().filter(|one| memory::can(**one) && self.programs.has(**one)) {
            let _step = self.report.step(format!("{}: {clients} clients", contender.name()));
            let peak = memory::run(&scenario, *contender);
            let peak = peak.map_err(|error| turns::failure("memory", *contender, &error).advise(ADVICE))?;
            self.report.object(&json!(peak));
            peaks.push(peak);
        }
        table::memory(&peaks, self.report);
        Ok(())
    }

    fn draw(&self, rows: &[Row]) -> Result<(), Failure> {
        let Some(path) = &self.options.svg else { return Ok(()) };
        let point = |row: &Row| {
            let cold = if row.cold { ", cold" } else { "" };
            let panel = format!("{}, {}{cold}", row.job.to_uppercase(), human(row.size));
            Point { panel, series: row.contender, x: row.clients, y: row.cost.cpu_s_per_gib }
        };
        let points: Vec<Point<'_>> = rows.iter().map(point).collect();
        plot::draw(&points, &Contender::names(), ("clients", "CPU s per GiB"), path, self.report)
    }
}

/// Checks the room for the objects: for GET those of all contenders, for PUT those stored and being stored by one.
fn has_room(folder: &Path, step: &Step, objects: usize) -> Result<(), Failure> {
    let needed = match step.job {
        Job::Get => step.size * objects as u64 * step.contenders.len() as u64,
        Job::Put => 3 * step.size * step.clients as u64,
    };
    folder::has_free(folder, needed + step.size, "--size and --clients")
}
