//! `dcs demo`: the main job on real input, checked byte for byte, and compared with the ordinary loop.
//!
//! | module | contents |
//! |---|---|
//! | `dataset` | the generated files |
//! | `measure` | a run: [`crate::host`]'s server and client, over every file once |
//! | `verify` | the check against Python and OpenSSL |
//! | `table` | the tables |

mod dataset;
mod measure;
mod table;
mod verify;

use crate::args;
use crate::failure::{Exit, Failure};
use crate::harness::contender::Named;
use crate::harness::figures::{Cost, GIB, Medians};
use crate::harness::folder::{self, Folder};
use crate::harness::shown::plural;
use crate::harness::turns::{self, Board, Runs};
use crate::host::contender::Contender;
use crate::host::job::Job;
use crate::host::protocol::ObjectResult;
use crate::interrupt;
use crate::report::Report;
use crate::units::human;
use dataset::Original;
use measure::{Run, Task};
use serde_json::json;
use std::io;
use std::path::Path;
use std::time::Instant;
use table::Row;
use verify::{Tools, Verdict};

const STREAMS: [usize; 2] = [1, 8];
const CONTENDERS: [Contender; 3] = [Contender::Loop, Contender::LoopLarge, Contender::Engine];
/// Bytes, approximately, on which system calls are counted: a traced process is slow.
const SAMPLE: u64 = 64 << 20;
/// State that the steps share.
struct Demo<'a> {
    options: &'a args::Demo,
    report: &'a Report,
    items: Vec<Original>,
    tools: Tools,
    /// Jobs, and the result that every correct run of them reports for each file.
    verified: Vec<(Job, Vec<(Original, ObjectResult)>)>,
    /// Errors found.
    problems: Vec<String>,
    /// Checks that were not possible because a tool is missing.
    unchecked: Vec<String>,
}

pub fn run(options: &args::Demo, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let start = Instant::now();
    let failed = |what: &'static str| move |error| Failure::io(what, &error);
    let parent = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    std::fs::create_dir_all(&parent).map_err(|error| Failure::io(parent.display(), &error))?;
    // Room for the data, their received copies, and some spare.
    folder::has_free(&parent, options.size / 2 * 5 + (1 << 20), "--size")?;
    let folder = Folder::new(Some(&parent), "dcs-demo.")?;
    let (data, copies, stored) = (folder.make("data")?, folder.make("copies")?, folder.make("stored")?);
    let items = dataset::generate(&data, &copies, options.size).map_err(failed("generating the data"))?;
    let (verified, problems, unchecked) = (Vec::new(), Vec::new(), Vec::new());
    let mut demo = Demo { options, report, items, tools: Tools::find(), verified, problems, unchecked };
    demo.introduce();
    for job in jobs()? {
        // Runs of a compressor may differ in the bytes that they write, so each contender's output is decompressed; for other
        // jobs the digests suffice.
        let contenders = if job.keeps_length() { &CONTENDERS[2..] } else { &CONTENDERS };
        for contender in contenders {
            demo.check(&job, *contender, &stored).map_err(failed("checking"))?;
        }
    }
    if !options.check_only {
        for job in jobs()? {
            for streams in STREAMS {
                demo.compare(&job, streams)?;
            }
        }
        demo.explain();
    }
    demo.conclude(start)
}

fn jobs() -> Result<Vec<Job>, Failure> {
    ["file>md5>socket", "file>md5,aes256-ctr>socket", "file>gzip>socket", "socket>md5>file"]
        .into_iter()
        .map(Job::parse)
        .collect()
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
            self.report.text("This is a DEBUG build: its figures mean nothing. Use make demo.");
        }
    }

    /// Runs a job once, on 8 streams, and has every byte and digest checked.
    fn check(&mut self, job: &Job, contender: Contender, stored: &Path) -> io::Result<()> {
        let task = Task { job: job.clone(), contender, streams: dataset::deal(&self.items, 8) };
        let step = self.report.step(format!("{}: check", job.name()));
        let run = task.run_stored(stored, self.tools.python)?;
        let missing = self.tools.missing(&task);
        let verdict = match missing {
            None => Some(verify::verify(&task, &run, stored)?),
            Some(_) => None,
        };
        drop(step);
        self.judge(&task, missing, verdict);
        self.keep(&task, run.files);
        Ok(())
    }

    /// Keeps the results, if every run has to give the same.
    fn keep(&mut self, task: &Task, files: Vec<Vec<ObjectResult>>) {
        if task.job.keeps_length() {
            let files = task.streams.iter().flatten().cloned().zip(files.into_iter().flatten());
            self.verified.push((task.job.clone(), files.collect()));
        }
    }

    fn judge(&mut self, task: &Task, missing: Option<&str>, verdict: Option<Verdict>) {
        let job = format!("{}, {}", task.job.name(), task.contender.name());
        let by = verifier_names(&task.job);
        if let Some(tool) = missing {
            self.report.text(format_args!("NOT CHECKED  {job}: {tool} was not found"));
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
            by,
        ));
        self.report.object(&json!({
            "event": "check", "job": job, "ok": ok, "files": verdict.files, "bytes": verdict.bytes,
            "digests": verdict.digests, "by": by, "errors": verdict.errors,
        }));
        self.problems.extend(verdict.errors.into_iter().map(|error| format!("{job}: {error}")));
    }

    /// Runs the contenders in turns, so that all of them see the same state of the machine; then counts their system calls.
    fn compare(&mut self, job: &Job, streams: usize) -> Result<(), Failure> {
        let task = |contender, items: &[Original]| Task {
            job: job.clone(),
            contender,
            streams: dataset::deal(items, streams),
        };
        let name = job.name();
        let step = self.report.step(format!("{name}: {}, runs", plural(streams, "stream")));
        let run = |contender, _| task(contender, &self.items).run();
        let board = Board::new(0, self.report);
        let all = board.turns(&name, &CONTENDERS, self.options.runs, run)?;
        let costs = |runs: &Runs<Contender, Run>| -> Vec<Cost> {
            let task = task(runs.contender, &self.items);
            runs.runs.iter().filter_map(|run| task.cost(run)).collect()
        };
        let base = all.first().map(costs);
        let sample = dataset::sample(&self.items, SAMPLE);
        let mut rows = Vec::new();
        for runs in &all {
            let calls = count(&task(runs.contender, &sample));
            let calls = calls.map_err(|error| turns::failure(&name, runs.contender, &error))?;
            let medians = Medians::new(&costs(runs), base.as_deref());
            rows.push(Row::new(&task(runs.contender, &self.items), medians, calls));
        }
        drop(step);
        let of_contender = |runs: &Runs<Contender, Run>| -> Vec<String> {
            let task = task(runs.contender, &self.items);
            runs.runs.iter().flat_map(|run| self.differences(&task, run)).collect()
        };
        let problems: Vec<String> = all.iter().flat_map(of_contender).collect();
        self.problems.extend(problems);
        board.show(&rows, table::figures);
        if let Some(runs) = all.last().filter(|_| streams == 1) {
            let task = task(runs.contender, &self.items);
            runs.runs.last().into_iter().for_each(|run| self.draw_largest(&task, run));
        }
        Ok(())
    }

    /// Compares a measured run with the digests and lengths that were checked. Compressed data have neither to compare.
    fn differences(&self, task: &Task, run: &Run) -> Vec<String> {
        let Some((_, verified)) = self.verified.iter().find(|(job, _)| *job == task.job) else {
            return Vec::new();
        };
        let files = task.streams.iter().flatten().zip(run.files.iter().flatten());
        let differs = |(item, file): &(&Original, &ObjectResult)| {
            !verified.iter().any(|(other, good)| {
                other.path == item.path && good.digests == file.digests && good.bytes_out == file.bytes_out
            })
        };
        let said = |(item, _): (&Original, &ObjectResult)| {
            let (job, who) = (task.job.name(), task.contender.name());
            format!("{job}, {who}: {} came out differently", item.path.display())
        };
        files.filter(differs).map(said).collect()
    }

    fn draw_largest(&self, task: &Task, run: &Run) {
        let files = task.streams.iter().flatten().zip(run.files.iter().flatten());
        if let Some((item, file)) = files.max_by_key(|(item, _)| item.size) {
            table::breakdown(task, &item.path, file, self.report);
        }
    }

    fn explain(&self) {
        self.report.text(format_args!(
            "\nAll contenders have the same operators (dcs-ndp), so libraries are not compared. But MD5 of several streams\n\
             goes through the engine's lanes together, which separate threads cannot do.\n\
             loop: read + operators + send with 64 KiB buffers, a thread per stream, on all cores; loop-1m: with 1 MiB.\n\
             engine: one thread, on one core, for all streams. Medians of {} runs in turns; CPU time of all threads of\n\
             the process and of kernel threads, set-up left out. System calls: counted by ptrace in a pass of their own on about {},\n\
             where timing differs.",
            self.options.runs,
            human(SAMPLE.min(self.options.size)),
        ));
    }

    fn conclude(self, start: Instant) -> Result<(), Failure> {
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
            0 => failure.advise("install python3 and openssl, or skip these checks with --unverified"),
            _ => failure.advise("this is a defect: please report it"),
        })
    }
}

/// Counts system calls per GiB in a traced pass; `None` if this machine does not permit tracing.
fn count(task: &Task) -> io::Result<Option<f64>> {
    let calls = task.run_traced()?.system_calls.and_then(Result::ok);
    Ok(calls.map(|calls| calls as f64 * GIB / task.bytes().max(1) as f64))
}

/// Returns the programs that check such a chain.
fn verifier_names(job: &Job) -> &'static str {
    match &job.chain[..] {
        [one] if one == "md5" => "Python's hashlib",
        [one] if one == "gzip" => "Python's gzip",
        _ => "Python's hashlib and OpenSSL",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of differences found in a run of a job that reports this of its one file.
    fn problems(job: &str, told: [(u64, &str); 2]) -> usize {
        let item = Original { path: "a".into(), size: 1000, copy: "b".into(), counter: [0; 16] };
        let outcome = |(bytes_out, digest): (u64, &str)| {
            vec![vec![ObjectResult {
                bytes_in: 1000,
                bytes_out,
                digests: vec![digest.into()],
                ..ObjectResult::default()
            }]]
        };
        let report = &Report::silent();
        let options = &args::Demo { size: 1000, dir: None, runs: 1, check_only: false, unverified: false };
        let tools = Tools { python: false, openssl: false };
        let items = vec![item.clone()];
        let (verified, problems, unchecked) = (Vec::new(), Vec::new(), Vec::new());
        let mut demo = Demo { options, report, items, tools, verified, problems, unchecked };
        let job = Job::parse(job).unwrap();
        let task = Task { job, contender: CONTENDERS[0], streams: vec![vec![item]] };
        demo.keep(&task, outcome(told[0]));
        let run = Run { files: outcome(told[1]), marks: None, system_calls: None };
        demo.differences(&task, &run).len()
    }

    #[test]
    fn compressed_lengths_may_differ_and_digests_may_not() {
        assert_eq!(problems("file>gzip>socket", [(500, ""), (501, "")]), 0);
        assert_eq!(problems("file>md5>socket", [(1000, "x"), (1000, "x")]), 0);
        assert_eq!(problems("file>md5>socket", [(1000, "x"), (1000, "y")]), 1);
        assert_eq!(problems("file>md5>socket", [(1000, "x"), (999, "x")]), 1);
    }
}
