//! `dcs bench`: what jobs cost, on the engine and on what a user would otherwise run.
//!
//! | module | what it holds |
//! |---|---|
//! | `control` | instructions and system calls of one small transfer |
//! | `step` | counting them: a child process run one instruction at a time |
//! | `names` | names of system calls |

pub mod control;
mod names;
mod step;

use crate::args;
use crate::failure::Failure;
use crate::interrupt;
use crate::report::Report;

/// The job that counts instructions instead of moving many bytes.
const CONTROL: &str = "control";

pub fn run(options: &args::Bench, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    match options.jobs.iter().find(|job| *job != CONTROL) {
        Some(job) => {
            Err(Failure::usage(format!("there is no job {job:?}")).advise("there is: dcs bench control"))
        }
        None => control::run(report),
    }
}
