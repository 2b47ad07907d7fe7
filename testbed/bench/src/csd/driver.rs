//! A run by the guest's driver.

use super::figures::Run;
use super::job::{Contender, Job};
use super::options::Options;
use super::served::Served;
use crate::harness::clocks::cpu_of;
use dcs_nvme_client::load::{Check, Mix, Order, Runner, Stop, Workload};
use dcs_nvme_client::{Drive, Error, Options as Opened};
use nix::time::{ClockId, clock_gettime};
use std::io;
use std::path::Path;
use std::time::Duration;

/// The seed of all data.
const SEED: u64 = 0xc5d;
const WARM_UP: Duration = Duration::from_millis(300);
/// Time for which the process of [`Contender::Awake`] looks for work: longer than a disk takes.
const LONG_POLL: &str = "1ms";

fn failed(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        error => io::Error::other(error),
    }
}

fn open(socket: &Path, contender: Contender) -> io::Result<Drive> {
    let interrupts = contender == Contender::Drive;
    let shadow = contender != Contender::Bells;
    let options = Opened { queues: 1, entries: 256, interrupts, shadow, memory: 64 << 20 };
    Drive::open(socket, options).map_err(failed)
}

/// Writes all of a drive, in commands of this many bytes.
pub fn fill(socket: &Path, bytes: u64, size: u64) -> io::Result<()> {
    let mut drive = open(socket, Contender::Drive)?;
    let mut runner = Runner::new(&mut drive, 0, bytes, 64, size, SEED).map_err(failed)?;
    let stop = Stop::Commands(runner.units());
    let (order, mix, check) = (Order::Sequential, Mix::Write, Check::Nothing);
    runner.run(&mut drive, &Workload { order, mix, depth: 64, check, stop }).map_err(failed)?;
    Ok(())
}

/// Returns this thread's CPU time.
fn own() -> io::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

pub fn run(
    job: Job,
    depth: usize,
    contender: Contender,
    options: &Options,
    served: &mut Served<'_>,
) -> io::Result<Run> {
    let (pid, socket, size) = match job.region() {
        Some(region) => {
            let poll = (contender == Contender::Awake).then_some(LONG_POLL);
            let (pid, socket) = served.region(region, poll)?;
            (pid, socket, served.size())
        }
        None => {
            let (socket, size) = served.memory()?;
            fill(&socket, job.bytes(), size)?;
            (std::process::id(), socket, size)
        }
    };
    let mut drive = open(&socket, contender)?;
    let mut runner = Runner::new(&mut drive, 0, job.bytes(), depth as u32, size, SEED).map_err(failed)?;
    runner.is_filled();
    let (order, mix) = match job {
        Job::Read => (Order::Sequential, Mix::Read),
        Job::Write => (Order::Sequential, Mix::Write),
        _ => (Order::Random, Mix::Read),
    };
    let workload =
        |time| Workload { order, mix, depth: depth as u32, check: Check::First, stop: Stop::After(time) };
    runner.run(&mut drive, &workload(WARM_UP)).map_err(failed)?;
    let (process, mine) = (cpu_of(pid)?, own()?);
    let done = runner.run(&mut drive, &workload(Duration::from_secs_f64(options.seconds))).map_err(failed)?;
    let mine = own()?.saturating_sub(mine);
    let mut process = cpu_of(pid)?.saturating_sub(process);
    if job.region().is_none() {
        // The drive of memory is in this process.
        process = process.saturating_sub(mine);
    }
    let mut latencies: Vec<f32> = done.latencies.iter().map(|nanos| *nanos as f32 / 1000.0).collect();
    latencies.sort_by(f32::total_cmp);
    let at = |share: f64| latencies.get((latencies.len() as f64 * share) as usize).map(|us| f64::from(*us));
    let each = |time: Duration| time.as_secs_f64() * 1e6 / done.commands.max(1) as f64;
    Ok(Run {
        per_s: done.rate(),
        drive_cpu_us: each(process),
        client_cpu_us: Some(each(mine)),
        latency_us: at(0.5),
        latency_99_us: at(0.99),
    })
}
