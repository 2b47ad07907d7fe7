//! `dcs vm demo`: the same jobs with each design, checked byte for byte.

use super::machine::Contents;
use super::rig::{self, Rig};
use super::table;
use super::task::{DesignName, OBJECT, Task};
use crate::args;
use crate::failure::Failure;
use crate::harness::contender::Named;
use crate::harness::data::Direction;
use crate::harness::faults::{Faults, report_strikes};
use crate::interrupt;
use crate::report::Report;
use serde_json::json;

/// Objects over which system calls are counted.
const SAMPLE: usize = 8;
/// Most objects: they are kept in memory here while they are compared.
const OBJECTS_MAX: usize = 1024;

const JOBS: [(Direction, &[&str]); 4] = [
    (Direction::Send, &[]),
    (Direction::Send, &["md5"]),
    (Direction::Send, &["md5", "aes256-ctr"]),
    (Direction::Receive, &["crc32c"]),
];

pub fn run(options: &args::VmDemo, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let objects = usize::try_from(options.size.div_ceil(OBJECT)).unwrap_or(usize::MAX);
    if !(1..=OBJECTS_MAX).contains(&objects) {
        return Err(Failure::usage(format!("--size must be 1MiB to {OBJECTS_MAX}MiB")));
    }
    let contents = Contents { send: vec![OBJECT; objects], receive: vec![OBJECT; objects] };
    let mut rig = Rig::boot(&contents, 1, (options.nic, &options.faults, options.engine), report)?;
    table::introduce(objects, rig.elapsed(), options.nic, report);
    if !options.faults.plans.is_empty() {
        return with_faults(rig, objects, &options.faults, report);
    }
    for (direction, chain) in JOBS {
        let rows = DesignName::all(direction == Direction::Receive, chain)
            .map(|who| rig.run_and_trace(Task::objects(who, direction, chain, objects), SAMPLE))
            .collect::<Result<Vec<_>, _>>()?;
        table::job(&rows, report);
    }
    let seconds = rig.elapsed().as_secs_f64();
    rig::conclude(&rig.problems(), seconds, report)?;
    table::conclude(seconds, report);
    Ok(())
}

/// Runs the jobs on the card alone, whose SSD has the faults. A failure is reported, and the next job runs.
fn with_faults(mut rig: Rig<'_>, objects: usize, faults: &Faults, report: &Report) -> Result<(), Failure> {
    for (direction, chain) in JOBS {
        let task = Task::objects(DesignName::Card, direction, chain, objects);
        let (job, by) = (task.job(), task.who.name());
        match rig.attempt(task)? {
            Ok(row) => table::job(&[row], report),
            Err(error) => {
                report.text(format_args!("\n{job}\n  {by}: FAILED: {error}"));
                report.object(&json!({ "event": "failed", "job": job, "by": by, "why": error }));
            }
        }
    }
    report.text("");
    report_strikes(None, &rig.parts.struck()?, report);
    let seconds = rig.elapsed().as_secs_f64();
    let mut problems = rig.problems();
    if faults.plans.iter().any(|plan| plan.corrupts_silently()) {
        problems.drain(..).for_each(|problem| report.text(format_args!("as the SSD lied: {problem}")));
    }
    rig::conclude(&problems, seconds, report)
}
