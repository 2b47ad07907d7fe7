//! In the guest: the measured process, which does one task.

use super::counters::{self, Snapshot};
use super::designs::{self, Design, Submission};
use super::task::{Blocks, DesignName, Item, Task, TaskResult, Transfer};
use crate::failure::{Exit, Failure};
use crate::harness::connections::say;
use crate::harness::data::Direction;
use crate::harness::process::Helper;
use crate::harness::syscalls;
use crate::operate::Operators;
use dcs::Op;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Time limit for spinners to start.
const SPINNING: Duration = Duration::from_secs(60);
/// CPU time after which a spinner counts as started.
const SPUN: Duration = Duration::from_millis(20);

/// The hidden subcommand.
pub fn run() -> Result<(), Failure> {
    // Ends with the process that started it.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    let outcome = serve_requests().map_err(|error| error.to_string());
    say(&outcome).map_err(|error| Failure::new(Exit::Failed, format!("server helper: {error}")))
}

fn serve_requests() -> io::Result<TaskResult> {
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    let task: Task = serde_json::from_str(&line)?;
    let mut outcome = match &task.groups()[..] {
        [all] => {
            let mut design = designs::of(&task, 0)?;
            let _spinners = spinners(task.spinners)?;
            // An SSD driven in user space is stopped when the design is dropped.
            count(|| connected(&task, &mut *design, all))?
        }
        groups => {
            let _spinners = spinners(task.spinners)?;
            side_by_side(&task, groups)?
        }
    };
    let items = (0..outcome.transfers.len()).map(|transfer| task.item(transfer));
    let received = items.filter(|item| item.direction == Direction::Receive);
    outcome.stored = received.map(stored).collect::<io::Result<_>>()?;
    Ok(outcome)
}

/// Runs a thread for each group of connections. They begin when all are ready.
fn side_by_side(task: &Task, groups: &[Vec<usize>]) -> io::Result<TaskResult> {
    let (ready, begun) = (Barrier::new(groups.len() + 1), Barrier::new(groups.len() + 1));
    let work = |group: &[usize]| {
        let design = designs::of(task, task.streams[group[0]].set);
        ready.wait();
        begun.wait();
        connected(task, &mut *design?, group)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = groups.iter().map(|group| scope.spawn(|| work(group))).collect();
        ready.wait();
        count(|| {
            begun.wait();
            let mut all = Moved::default();
            for thread in threads {
                let moved = thread.join().map_err(|_| io::Error::other("a thread failed"))??;
                all.transfers.extend(moved.transfers);
                all.submissions += moved.submissions;
                all.vfio_interrupts += moved.vfio_interrupts;
                all.blocks = moved.blocks.map(|blocks| blocks.and(all.blocks.unwrap_or_default()));
            }
            Ok(all)
        })
    })
}

/// Starts processes that spin. They are spinning when this returns.
fn spinners(count: usize) -> io::Result<Vec<Helper>> {
    let start = |_| Helper::spawn(Command::new(std::env::current_exe()?).args(["bench-hog", "0"]));
    let spinners = (0..count).map(start).collect::<io::Result<Vec<_>>>()?;
    let end = Instant::now() + SPINNING;
    for spinner in &spinners {
        while cpu_time(spinner.pid())? < SPUN {
            if Instant::now() > end {
                return Err(io::Error::other("the spinners did not start to spin"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(spinners)
}

/// Returns the CPU time of a process's first thread. [Linux: Documentation/scheduler/sched-stats.rst]
fn cpu_time(process: u32) -> io::Result<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{process}/schedstat"))?;
    let first = text.split_whitespace().next().and_then(|word| word.parse().ok());
    first.map(Duration::from_nanos).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The transfers over some connections.
#[derive(Default)]
struct Moved {
    transfers: Vec<Transfer>,
    submissions: u64,
    vfio_interrupts: u64,
    blocks: Option<Blocks>,
}

/// Runs the transfers, and counts their cost.
fn count(act: impl FnOnce() -> io::Result<Moved>) -> io::Result<TaskResult> {
    syscalls::mark();
    let snapshot = Snapshot::take()?;
    let Moved { transfers, submissions, vfio_interrupts, blocks } = act()?;
    let counted = snapshot.until_now()?;
    syscalls::mark();
    Ok(TaskResult { transfers, counted, submissions, vfio_interrupts, blocks, ..TaskResult::default() })
}

/// Makes connections, does a task over them, ends them.
fn connected(task: &Task, design: &mut dyn Design, streams: &[usize]) -> io::Result<Moved> {
    let vfio = || if task.who == DesignName::Card { counters::vfio_interrupts() } else { Ok(0) };
    streams.iter().try_for_each(|stream| design.connect(task.streams[*stream]))?;
    let before = (design.submissions(), vfio()?, design.blocks().unwrap_or_default());
    let mut transfers = match streams.len() {
        1 => transfers(task, design)?,
        count => interleaved(task, design, count)?,
    };
    transfers.iter_mut().for_each(|transfer| transfer.stream = streams[transfer.stream]);
    let (submissions, vfio_interrupts) = (design.submissions() - before.0, vfio()? - before.1);
    let blocks = design.blocks().map(|blocks| blocks.since(before.2));
    (0..streams.len()).try_for_each(|connection| design.end(connection))?;
    Ok(Moved { transfers, submissions, vfio_interrupts, blocks })
}

/// Moves all objects over each of several connections. A connection's next object is submitted when one of its own is done.
fn interleaved(task: &Task, design: &mut dyn Design, connections: usize) -> io::Result<Vec<Transfer>> {
    let mut lanes: Vec<(usize, VecDeque<Submission>)> =
        (0..connections).map(|_| Default::default()).collect();
    let mut done = Vec::new();
    loop {
        for (connection, (next, flying)) in lanes.iter_mut().enumerate() {
            while flying.front().is_some_and(Submission::is_done)
                && let Some(first) = flying.pop_front()
            {
                done.push(Transfer { stream: connection, ..first.finish()? });
            }
            while flying.len() < task.in_flight && *next < task.items.len() {
                flying.push_back(design.submit(connection, task.item(*next), task.ops(*next)?)?);
                *next += 1;
            }
        }
        if lanes.iter().all(|(_, flying)| flying.is_empty()) {
            return Ok(done);
        }
        design.wait_any();
    }
}

fn transfers(task: &Task, design: &mut dyn Design) -> io::Result<Vec<Transfer>> {
    let (start, mut flying, mut done) = (Instant::now(), VecDeque::<Submission>::new(), Vec::new());
    for number in 0.. {
        let item = task.item(number);
        match task.lasting_ns {
            Some(time) if start.elapsed() >= Duration::from_nanos(time) => break,
            None if number == task.items.len() => break,
            Some(_) => {}
            // No sleep if everything is due at once.
            None if item.at_ns == 0 => {}
            None => std::thread::sleep(Duration::from_nanos(item.at_ns).saturating_sub(start.elapsed())),
        }
        if flying.len() >= task.in_flight
            && let Some(first) = flying.pop_front()
        {
            done.push(first.finish()?);
        }
        flying.push_back(design.submit(0, item, task.ops(number)?)?);
        // Without other transfers in flight, waits for this one before the next is due.
        if task.in_flight == 1
            && let Some(only) = flying.pop_front()
        {
            done.push(only.finish()?);
        }
    }
    for asked in flying {
        done.push(asked.finish()?);
    }
    Ok(done)
}

/// Returns the MD5 of a file as the kernel reads it from the disk.
fn stored(item: Item) -> io::Result<String> {
    let mut file = File::open(designs::path(0, item))?;
    // Not from the page cache.
    nix::fcntl::posix_fadvise(file.as_fd(), 0, 0, nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    let (mut operators, mut buffer) = (Operators::new(&[Op::Md5])?, vec![0; 256 << 10]);
    loop {
        let count = file.read(&mut buffer)?;
        operators.pass(&mut buffer[..count], count == 0, &mut |_| Ok(()))?;
        if count == 0 {
            break;
        }
    }
    let digests = operators.digests();
    digests.into_iter().next().map(|(_, value)| value).ok_or(io::ErrorKind::InvalidData.into())
}
