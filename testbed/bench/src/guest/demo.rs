//! `dcs vm demo`: the same jobs by each design, checked byte for byte.

use super::machine::Contents;
use super::rig::{self, Rig};
use super::table;
use super::task::{OBJECT, Task, Who};
use crate::args;
use crate::failure::Failure;
use crate::harness::data::Direction;
use crate::interrupt;
use crate::report::Report;

/// System calls are counted on so many objects.
const SAMPLE: usize = 8;
/// Objects at most: they lie in memory here while they are compared.
const MOST_OBJECTS: usize = 1024;

const JOBS: [(Direction, &[&str]); 4] = [
    (Direction::Send, &[]),
    (Direction::Send, &["md5"]),
    (Direction::Send, &["md5", "aes256-ctr"]),
    (Direction::Receive, &["crc32c"]),
];

pub fn run(options: &args::VmDemo, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let objects = usize::try_from(options.size.div_ceil(OBJECT)).unwrap_or(usize::MAX);
    if !(1..=MOST_OBJECTS).contains(&objects) {
        return Err(Failure::usage(format!("--size is 1MiB to {MOST_OBJECTS}MiB")));
    }
    let contents = Contents { send: vec![OBJECT; objects], receive: vec![OBJECT; objects] };
    let mut rig = Rig::boot(&contents, 1, options.nic, report)?;
    table::introduce(objects, rig.elapsed(), options.nic, report);
    for (direction, chain) in JOBS {
        let rows = Who::all(direction == Direction::Receive, chain)
            .map(|who| rig.run_and_trace(Task::objects(who, direction, chain, objects), SAMPLE))
            .collect::<Result<Vec<_>, _>>()?;
        table::job(&rows, report);
    }
    let seconds = rig.elapsed().as_secs_f64();
    rig::conclude(&rig.problems(), seconds, report)?;
    table::conclude(seconds, report);
    Ok(())
}
