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
use task::{Contender, Direction, FileOutcome, Item, Task};
use verify::{Tools, Verdict};

const STREAMS: [usize; 2] = [1, 8];
const CONTENDERS: [Contender; 3] =
    [Contender::Loop { buffer: 64 << 10 }, Contender::Loop { buffer: 1 << 20 }, Contender::Engine];
/// The system calls are counted on about so many bytes: a traced process is slow.
const SAMPLE: u64 = 64 << 20;
/// The key of SP 800-38A, F.5.5. It is no secret, and the openssl command takes keys on its command line only.
const KEY: [u8; 32] = [
    0x60, 0x3d, 0xeb, 0x10, 0x15, 0xca, 0x71, 0xbe, 0x2b, 0x73, 0xae, 0xf0, 0x85, 0x7d, 0x77, 0x81, 0x1f,
    0x35, 0x2c, 0x07, 0x3b, 0x61, 0x08, 0xd7, 0x2d, 0x98, 0x10, 0xa3, 0x09, 0x14, 0xdf, 0xf4,
];

/// Everything that the steps share.
struct Demo<'a> {
    options: &'a args::Demo,
    report: &'a Report,
    items: Vec<Item>,
    tools: Tools,
    /// A job, and what every correct run of it tells of each file.
    verified: Vec<(String, Vec<(Item, FileOutcome)>)>,
    /// What is wrong.
    problems: Vec<String>,
    /// What could not be checked, for want of a tool.
    unchecked: Vec<String>,
}

pub fn run(options: &args::Demo, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let start = Instant::now();
    let failed = |what: &'static str| move |error| Failure::io(what, &error);
    let parent = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    std::fs::create_dir_all(&parent).map_err(|error| Failure::io(parent.display(), &error))?;
    has_room(&parent, options.size)?;
    let folder =
        tempfile::Builder::new().prefix("dcs-demo.").tempdir_in(&parent).map_err(failed("data folder"))?;
    let _leftover = interrupt::leftover(folder.path());
    let (data, copies, stored) =
        (folder.path().join("data"), folder.path().join("copies"), folder.path().join("stored"));
    for new in [&data, &copies, &stored] {
        std::fs::create_dir(new).map_err(failed("data folder"))?;
    }
    let items = dataset::generate(&data, &copies, options.size).map_err(failed("generating the data"))?;
    let (verified, problems, unchecked) = (Vec::new(), Vec::new(), Vec::new());
    let mut demo = Demo { options, report, items, tools: Tools::find(), verified, problems, unchecked };
    demo.introduce();
    for (direction, chain) in jobs() {
        // Two runs of a compressor need not write the same bytes, so each contender's are opened; else digests tell.
        let contenders = if keeps_bytes(chain) { &CONTENDERS[2..] } else { &CONTENDERS };
        for contender in contenders {
            demo.check(direction, chain, *contender, &stored).map_err(failed("checking"))?;
        }
    }
    for (direction, chain) in jobs() {
        for streams in STREAMS {
            demo.compare(direction, chain, streams).map_err(failed("measuring"))?;
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

/// The data, their received copies, and room to breathe.
fn has_room(folder: &Path, size: u64) -> Result<(), Failure> {
    let what = folder.display();
    let room = nix::sys::statvfs::statvfs(folder).map_err(|errno| Failure::io(&what, &errno.into()))?;
    let (free, needed) = (room.blocks_available() * room.fragment_size(), size / 2 * 5 + (1 << 20));
    if free >= needed {
        return Ok(());
    }
    let line = format!("{what} has {} free; the demo needs {}", human(free), human(needed));
    Err(Failure::new(Exit::NoSpace, line).advise("choose another folder by --dir, or fewer bytes by --size"))
}

fn new_task(direction: Direction, contender: Contender, chain: &[&str], streams: Vec<Vec<Item>>) -> Task {
    let chain = chain.iter().map(ToString::to_string).collect();
    Task { direction, contender, chain, key: KEY, streams, address: None }
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

    /// Runs the contenders in turns, so that all of them see the same machine; then counts their system calls.
    fn compare(&mut self, direction: Direction, chain: &[&str], streams: usize) -> io::Result<()> {
        let task =
            |contender, items: &[Item]| new_task(direction, contender, chain, dataset::deal(items, streams));
        let engine = task(Contender::Engine, &self.items);
        let step = self.report.step(format!("{}, {streams} streams: runs", engine.job()));
        let mut runs: Vec<Vec<Run>> = CONTENDERS.iter().map(|_| Vec::new()).collect();
        for _ in 0..self.options.runs {
            for (contender, runs) in CONTENDERS.iter().zip(&mut runs) {
                let task = task(*contender, &self.items);
                let run = measure::run(&task, false)?;
                self.same_results(&task, &run);
                runs.push(run);
            }
        }
        let sample = dataset::sample(&self.items, SAMPLE);
        let mut rows = Vec::new();
        for (contender, runs) in CONTENDERS.iter().zip(&runs) {
            let calls = self.count(&task(*contender, &sample))?;
            rows.push((*contender, Figures::new(runs, calls)));
        }
        drop(step);
        table::figures(&engine, &rows, self.report);
        if let Some(run) = runs.last().and_then(|runs| runs.last()).filter(|_| streams == 1) {
            self.draw_largest(&engine, run);
        }
        Ok(())
    }

    /// System calls per GiB, in a traced pass; `None` where this machine does not allow that.
    fn count(&self, task: &Task) -> io::Result<Option<f64>> {
        let calls = measure::run(task, true)?.system_calls.and_then(Result::ok);
        Ok(calls.map(|calls| calls as f64 * (1u64 << 30) as f64 / task.bytes().max(1) as f64))
    }

    /// Every measured run must tell of the digests and lengths that were checked. Of what was compressed neither says anything.
    fn same_results(&mut self, task: &Task, run: &Run) {
        let job = task.job();
        let Some((_, verified)) = self.verified.iter().find(|(name, _)| *name == job) else { return };
        for (item, file) in task.streams.iter().flatten().zip(run.outcome.files.iter().flatten()) {
            let is_same = verified.iter().any(|(other, good)| {
                other.path == item.path && good.digests == file.digests && good.bytes_out == file.bytes_out
            });
            if !is_same {
                let name = item.path.display();
                self.problems.push(format!("{job}, {}: {name} came out differently", task.contender.name()));
            }
        }
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

/// Who checks such a chain.
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
        demo.same_results(&task, &Run { outcome, peer: Outcome::default(), system_calls: None });
        demo.problems.len()
    }

    #[test]
    fn compressed_lengths_may_differ_and_digests_may_not() {
        assert_eq!(problems(&["gzip"], [(500, ""), (501, "")]), 0);
        assert_eq!(problems(&["md5"], [(1000, "x"), (1000, "x")]), 0);
        assert_eq!(problems(&["md5"], [(1000, "x"), (1000, "y")]), 1);
        assert_eq!(problems(&["md5"], [(1000, "x"), (999, "x")]), 1);
    }
}
