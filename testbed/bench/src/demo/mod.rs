//! `dcs demo`: the main job on real input, checked byte for byte, and compared with the ordinary loop.
//!
//! | module | what it holds |
//! |---|---|
//! | `dataset` | the generated files |
//! | `task`, `worker`, `peer` | helper processes, and what they are told |
//! | `contenders` | the loop and the engine |
//! | `verify` | the check against Python and OpenSSL |
//! | `measure`, `table` | figures, the tables |

mod contenders;
mod dataset;
mod measure;
pub mod peer;
mod table;
mod task;
mod verify;
pub mod worker;

use crate::args;
use crate::failure::{Exit, Failure};
use crate::harness::contender::Named;
use crate::harness::data::Direction;
use crate::harness::place::{self, Folder};
use crate::harness::shown::plural;
use crate::harness::turns::{self, Board, Runs};
use crate::host::contender::Contender;
use crate::interrupt;
use crate::report::Report;
use crate::units::human;
use dcs::Operator;
use dcs_abi::operator::OperatorKind;
use measure::{Figures, Run};
use serde_json::json;
use std::io;
use std::path::Path;
use std::time::Instant;
use task::{FileOutcome, Item, Task};
use verify::{Tools, Verdict};

const STREAMS: [usize; 2] = [1, 8];
const CONTENDERS: [Contender; 3] = [Contender::Loop, Contender::LoopLarge, Contender::Engine];
/// The system calls are counted on about so many bytes: a traced process is slow.
const SAMPLE: u64 = 64 << 20;
/// Everything that the steps share.
struct Demo<'a> {
    options: &'a args::Demo,
    report: &'a Report,
    items: Vec<Item>,
    tools: Tools,
    /// A job, and what every correct run of it tells of each file.
    verified: Vec<(String, Vec<(Item, FileOutcome)>)>,
    /// Mistakes that were found.
    problems: Vec<String>,
    /// Checks that could not be made, for want of a tool.
    unchecked: Vec<String>,
}

pub fn run(options: &args::Demo, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let start = Instant::now();
    let failed = |what: &'static str| move |error| Failure::io(what, &error);
    let parent = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    std::fs::create_dir_all(&parent).map_err(|error| Failure::io(parent.display(), &error))?;
    // The data, their received copies, and room to breathe.
    place::has_free(&parent, options.size / 2 * 5 + (1 << 20), "--size")?;
    let folder = Folder::new(Some(&parent), "dcs-demo.")?;
    let (data, copies, stored) = (folder.make("data")?, folder.make("copies")?, folder.make("stored")?);
    let items = dataset::generate(&data, &copies, options.size).map_err(failed("generating the data"))?;
    let (verified, problems, unchecked) = (Vec::new(), Vec::new(), Vec::new());
    let mut demo = Demo { options, report, items, tools: Tools::find(), verified, problems, unchecked };
    demo.introduce();
    for (direction, chain) in jobs() {
        // Two runs of a compressor need not write the same bytes, so each contender's are opened; else
        // digests tell.
        let contenders = if keeps_bytes(chain) { &CONTENDERS[2..] } else { &CONTENDERS };
        for contender in contenders {
            demo.check(direction, chain, *contender, &stored).map_err(failed("checking"))?;
        }
    }
    for (direction, chain) in jobs() {
        for streams in STREAMS {
            demo.compare(direction, chain, streams)?;
        }
    }
    demo.conclude(start)
}

fn jobs() -> [(Direction, &'static [&'static str]); 4] {
    [
        (Direction::Send, &["md5"]),
        (Direction::Send, &["md5", "aes256-ctr"]),
        (Direction::Send, &["gzip"]),
        (Direction::Receive, &["md5"]),
    ]
}

fn new_task(direction: Direction, contender: Contender, chain: &[&str], streams: Vec<Vec<Item>>) -> Task {
    let chain = chain.iter().map(ToString::to_string).collect();
    Task { direction, contender, chain, streams, address: None }
}

impl Demo<'_> {
    fn introduce(&self) {
        let bytes: u64 = self.items.iter().map(|item| item.size).sum();
        self.report.text(format_args!(
            "{} files, {}: logs, media, images with holes, small files. Over TCP (127.0.0.1), {} cores.",
            self.items.len(),
            human(bytes),
            std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        ));
        if cfg!(debug_assertions) {
            self.report.text("This is a DEBUG build: the comparison says nothing. Use make demo.");
        }
    }

    /// Does a job once, on 8 streams, and has every byte and digest checked.
    fn check(
        &mut self,
        direction: Direction,
        chain: &[&str],
        contender: Contender,
        stored: &Path,
    ) -> io::Result<()> {
        let task = new_task(direction, contender, chain, dataset::deal(&self.items, 8));
        let step = self.report.step(format!("{}: check", task.job()));
        let run = measure::run_stored(&task, stored, self.tools.python)?;
        let job = format!("{}, {}", task.job(), contender.name());
        let missing = self.tools.missing(&task);
        let verdict = match missing {
            None => Some(verify::verify(&task, &run.outcome, stored)?),
            Some(_) => None,
        };
        drop(step);
        self.judge(&job, chain, missing, verdict);
        self.keep(&task, run.outcome.files);
        Ok(())
    }

    /// Remembers what was right, where every run is to come to the same.
    fn keep(&mut self, task: &Task, files: Vec<Vec<FileOutcome>>) {
        if keeps_bytes(&task.chain) {
            let files = task.streams.iter().flatten().cloned().zip(files.into_iter().flatten());
            self.verified.push((task.job(), files.collect()));
        }
    }

    fn judge(&mut self, job: &str, chain: &[&str], missing: Option<&str>, verdict: Option<Verdict>) {
        if let Some(tool) = missing {
            self.report.text(format_args!("NOT CHECKED  {job}: there is no {tool} here"));
            self.report.object(&json!({ "event": "check", "job": job, "ok": null, "missing": tool }));
            self.unchecked.push(format!("{job} could not be checked without {tool}"));
        }
        let Some(verdict) = verdict else { return };
        let ok = verdict.errors.is_empty();
        self.report.text(format_args!(
            "{}  {job}: {} files, {} bytes and {} digests against {}",
            if ok { "checked" } else { "WRONG" },
            verdict.files,
            verdict.bytes,
            verdict.digests,
            judge_of(chain),
        ));
        self.report.object(&json!({
            "event": "check", "job": job, "ok": ok, "files": verdict.files, "bytes": verdict.bytes,
            "digests": verdict.digests, "by": judge_of(chain), "errors": verdict.errors,
        }));
        self.problems.extend(verdict.errors.into_iter().map(|error| format!("{job}: {error}")));
    }

    /// Runs the contenders in turns, so that all of them see the same machine; then counts their system
    /// calls.
    fn compare(&mut self, direction: Direction, chain: &[&str], streams: usize) -> Result<(), Failure> {
        let task =
            |contender, items: &[Item]| new_task(direction, contender, chain, dataset::deal(items, streams));
        let engine = task(Contender::Engine, &self.items);
        let step = self.report.step(format!("{}: {}, runs", engine.job(), plural(streams, "stream")));
        let run = |contender, _| measure::run(&task(contender, &self.items), false);
        let all = Board::new(0, self.report).turns(&engine.job(), &CONTENDERS, self.options.runs, run)?;
        let sample = dataset::sample(&self.items, SAMPLE);
        let mut rows = Vec::new();
        for runs in &all {
            let calls = self.count(&task(runs.contender, &sample));
            let calls = calls.map_err(|error| turns::failure(&engine.job(), runs.contender, &error))?;
            rows.push((runs.contender, Figures::new(&runs.runs, calls)));
        }
        drop(step);
        let of_contender = |runs: &Runs<Contender, Run>| -> Vec<String> {
            let task = task(runs.contender, &self.items);
            runs.runs.iter().flat_map(|run| self.differences(&task, run)).collect()
        };
        let problems: Vec<String> = all.iter().flat_map(of_contender).collect();
        self.problems.extend(problems);
        table::figures(&engine, &rows, self.report);
        if let Some(run) = all.last().and_then(|runs| runs.runs.last()).filter(|_| streams == 1) {
            self.draw_largest(&engine, run);
        }
        Ok(())
    }

    /// System calls per GiB, in a traced pass; `None` where this machine does not allow that.
    fn count(&self, task: &Task) -> io::Result<Option<f64>> {
        let calls = measure::run(task, true)?.system_calls.and_then(Result::ok);
        Ok(calls.map(|calls| calls as f64 * (1u64 << 30) as f64 / task.bytes().max(1) as f64))
    }

    /// Every measured run must tell of the digests and lengths that were checked. Of what was compressed
    /// neither says anything.
    fn differences(&self, task: &Task, run: &Run) -> Vec<String> {
        let job = task.job();
        let Some((_, verified)) = self.verified.iter().find(|(name, _)| *name == job) else {
            return Vec::new();
        };
        let files = task.streams.iter().flatten().zip(run.outcome.files.iter().flatten());
        let differs = |(item, file): &(&Item, &FileOutcome)| {
            !verified.iter().any(|(other, good)| {
                other.path == item.path && good.digests == file.digests && good.bytes_out == file.bytes_out
            })
        };
        let said = |(item, _): (&Item, &FileOutcome)| {
            format!("{job}, {}: {} came out differently", task.contender.name(), item.path.display())
        };
        files.filter(differs).map(said).collect()
    }

    fn draw_largest(&self, task: &Task, run: &Run) {
        let files = task.streams.iter().flatten().zip(run.outcome.files.iter().flatten());
        if let Some((item, file)) = files.max_by_key(|(item, _)| item.size) {
            table::breakdown(task, &item.path, file, self.report);
        }
    }

    fn conclude(self, start: Instant) -> Result<(), Failure> {
        self.report.text(format_args!(
            "\nAll contenders have the same operators (dcs-ndp), so libraries are not compared. But MD5 of several streams\n\
             goes through the engine's lanes together, which a thread for each stream cannot do.\n\
             loop: read + operators + send with 64 KiB, a thread for each stream, so on all cores; loop-1m: with 1 MiB.\n\
             engine: one thread, so one core, for all streams. Medians of {} runs in turns; CPU time of all threads of\n\
             the process, set-up left out. System calls: counted by ptrace in a pass of their own on about {},\n\
             where timing differs.",
            self.options.runs,
            human(SAMPLE.min(self.options.size)),
        ));
        let seconds = start.elapsed().as_secs_f64();
        let ok = self.problems.is_empty() && (self.unchecked.is_empty() || self.options.unverified);
        self.report.object(&json!({
            "event": "done", "ok": ok, "problems": self.problems, "unchecked": self.unchecked, "seconds": seconds,
        }));
        if ok {
            self.report.text(format_args!("\nDone in {seconds:.0} s."));
            return Ok(());
        }
        let all = [self.problems.as_slice(), &self.unchecked].concat();
        let shown = all.iter().take(5).map(String::as_str).collect::<Vec<_>>().join("; ");
        let failure = Failure::new(Exit::Failed, format!("{} problems: {shown}", all.len()));
        Err(match self.problems.len() {
            0 => failure.advise("install python3 and openssl, or accept it with --unverified"),
            _ => failure.advise("this is a defect: please report it"),
        })
    }
}

/// The same bytes come out in every run: there is no compressor in the chain.
fn keeps_bytes(chain: &[impl AsRef<str>]) -> bool {
    let resizes = |name: &str| Operator::from_name(name).is_some_and(|op| op.kind() == OperatorKind::Resize);
    !chain.iter().any(|name| resizes(name.as_ref()))
}

/// The programs that check such a chain.
fn judge_of(chain: &[&str]) -> &'static str {
    match chain {
        ["md5"] => "Python's hashlib",
        ["gzip"] => "Python's gzip",
        _ => "Python's hashlib and OpenSSL",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use task::Outcome;

    /// A run of a job that tells this of its one file.
    fn problems(chain: &'static [&'static str], told: [(u64, &str); 2]) -> usize {
        let item = Item { path: "a".into(), size: 1000, copy: "b".into(), counter: [0; 16] };
        let outcome = |(bytes_out, digest): (u64, &str)| {
            let digests = vec![("md5".to_string(), digest.to_string())];
            FileOutcome { bytes_in: 1000, bytes_out, digests, ..FileOutcome::default() }
        };
        let report = &Report::silent();
        let options = &args::Demo { size: 1000, dir: None, runs: 1, unverified: false };
        let tools = Tools { python: false, openssl: false };
        let items = vec![item.clone()];
        let (verified, problems, unchecked) = (Vec::new(), Vec::new(), Vec::new());
        let mut demo = Demo { options, report, items, tools, verified, problems, unchecked };
        let task = new_task(Direction::Send, CONTENDERS[0], chain, vec![vec![item.clone()]]);
        demo.keep(&task, vec![vec![outcome(told[0])]]);
        let outcome = Outcome { files: vec![vec![outcome(told[1])]], ..Outcome::default() };
        demo.differences(&task, &Run { outcome, peer: Outcome::default(), system_calls: None }).len()
    }

    #[test]
    fn compressed_lengths_may_differ_and_digests_may_not() {
        assert_eq!(problems(&["gzip"], [(500, ""), (501, "")]), 0);
        assert_eq!(problems(&["md5"], [(1000, "x"), (1000, "x")]), 0);
        assert_eq!(problems(&["md5"], [(1000, "x"), (1000, "y")]), 1);
        assert_eq!(problems(&["md5"], [(1000, "x"), (999, "x")]), 1);
    }
}
