//! `dcs bench host`: cost of jobs, on the engine and on its alternatives.
//!
//! | module | contents |
//! |---|---|
//! | `job`, `contender`, `plan` | the measurements to make |
//! | `data` | the files |
//! | `measure`, `protocol` | one run: processes, and their messages |
//! | `server`, `contenders`, `library` | the measured process |
//! | `client` | the other end, which measures |
//! | `verify` | the check of what was delivered |
//! | `figures`, `table` | medians and ratios, and their tables |
//! | `cores` | `dcs bench cores`: engines with several cores |
//! | `control`, `step`, `names` | instructions and system calls of one small transfer |

pub mod client;
pub mod contender;
mod contenders;
pub mod control;
pub mod cores;
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
use crate::failure::Failure;
use crate::harness;
use crate::harness::connections::congestion;
use crate::harness::contender::Named;
use crate::harness::folder::{self, Folder};
use crate::harness::load::{MODE, Setting};
use crate::harness::plot::{self, Point};
use crate::harness::turns::Board;
use crate::interrupt;
use crate::report::Report;
use crate::units::human;
use contender::Contender;
use data::Data;
use figures::{Row, Runs};
use measure::Scenario;
use plan::{Plan, Step};
use serde_json::json;
use std::collections::HashMap;
use std::path::Path;

/// Name of the job that counts instructions instead of moving many bytes.
const CONTROL: &str = "control";
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
    let setting = Setting::new(options.server_cores, options.seconds, options.cold)?;
    introduce(options, &setting, report);
    let runs =
        plan.steps.iter().map(|step| step.contenders.len() as u64).sum::<u64>() * u64::from(options.runs);
    let rows = Bench { options, setting, board: Board::new(runs, report) }.all(&plan)?;
    table::summary(&rows, report);
    if let Some(path) = &options.svg {
        let points: Vec<_> = rows.iter().map(point).collect();
        plot::draw(&points, &Contender::names(), ("streams", "CPU s per GiB"), path, report)?;
    }
    report.object(&json!({ "event": "done", "ok": true }));
    Ok(())
}

fn introduce(options: &args::Host, setting: &Setting, report: &Report) {
    let (server, client) = (&setting.server_cores, &setting.client_cores);
    let shared = harness::cores::shared(server, client, "contenders and client");
    let congestion = congestion().unwrap_or_else(|_| "?".into());
    report.text(format_args!(
        "Over TCP (127.0.0.1, {congestion}). Measured process on core {server:?}, client on {client:?}{shared}.\n\
         Client: {}.\n\
         Medians of {} runs in turns, {} s each. CPU time: of all threads, and of kernel threads, of which other\n\
         programs may have some; the client's is told apart. The digest of every object is checked, and in each run\n\
         all bytes of one object a stream. crc32c: OpenSSL has none, so the loops take that of dcs (crc-fast).",
        MODE,
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
        report.text("This is a DEBUG build: its figures mean nothing. Use make bench.");
    }
}

/// Returns a row's point in the plot.
fn point(row: &Row) -> Point<'_> {
    let hogs = table::beside(row);
    let cold = if row.cold { ", cold" } else { "" };
    let panel = format!("{}, {}{hogs}{cold}", row.job, human(row.size));
    Point { panel, series: row.contender, x: row.streams, y: row.cost.cpu_s_per_gib }
}

/// Checks the room for the files, their copies, and the data stored for checking.
fn has_room(folder: &Path, size: u64, streams: usize) -> Result<(), Failure> {
    folder::has_free(folder, 3 * data::total(size, streams), "--size and --streams")
}

/// State that all steps share.
struct Bench<'a> {
    options: &'a args::Host,
    board: Board<'a>,
    setting: Setting,
}

/// Set-up that is the same with and without hogs.
type Key = (String, usize, u64);

impl Bench<'_> {
    fn all(&self, plan: &Plan) -> Result<Vec<Row>, Failure> {
        let failed = |error| Failure::io("data folder", &error);
        let folder = Folder::new(self.options.dir.as_deref(), "dcs-bench.")?;
        let mut rows = Vec::new();
        let mut uncontended: HashMap<Key, Vec<Runs>> = HashMap::new();
        for size in plan.sizes() {
            let place = folder.make(&size.to_string())?;
            self.board.say("making the files");
            has_room(&place, size, plan.most_streams(size))?;
            let data = Data::new(&place, size, plan.most_streams(size)).map_err(failed)?;
            for step in plan.steps.iter().filter(|step| step.size == size) {
                let scenario = self.scenario(step, &data);
                let runs = self.scenario_runs(&scenario, step)?;
                let key = (step.job.name(), step.streams, size);
                let mine = figures::rows(&scenario, &runs, uncontended.get(&key).map(Vec::as_slice));
                if (step.hogs, step.memory_hogs) == (0, 0) {
                    uncontended.insert(key, runs);
                }
                self.board.show(&mine, table::scenario);
                rows.extend(mine);
            }
            std::fs::remove_dir_all(&place).map_err(failed)?;
        }
        Ok(rows)
    }

    fn scenario<'a>(&self, step: &Step, data: &'a Data) -> Scenario<'a> {
        Scenario {
            job: step.job.clone(),
            data,
            streams: step.streams,
            hogs: step.hogs,
            memory_hogs: step.memory_hogs,
            counters: self.options.counters,
            open_once: self.options.open == args::OpenChoice::Once,
            setting: self.setting.clone(),
        }
    }

    fn scenario_runs(&self, scenario: &Scenario<'_>, step: &Step) -> Result<Vec<Runs>, Failure> {
        let what = format!("{}, {} streams", step.job.name(), step.streams);
        let failed = |error| Failure::io(&what, &error);
        let streams = scenario.data.streams(&step.job, step.streams).map_err(failed)?;
        let run = |contender, first| scenario.run(contender, &streams, first);
        let runs = self.board.turns(&what, &step.contenders, self.options.runs, run);
        runs.map_err(|failure| {
            failure.advise("leave this contender out with --contenders, or report a defect")
        })
    }
}
