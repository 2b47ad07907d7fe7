//! Runs tasks in processes of their own, and makes figures of what they tell.

use super::task::{Order, Outcome, Peer, Ready, Task};
use crate::harness::data::Direction;
use crate::harness::figures::{GIB, median};
use crate::harness::process::Helper;
use std::io;
use std::path::Path;
use std::process::Command;

const RECEIVER: &str = include_str!("receiver.py");
/// The hidden subcommand.
const WORKER: &str = "demo-worker";

/// One run: the measured process and the one at the other end.
pub struct Run {
    pub outcome: Outcome,
    pub peer: Outcome,
    /// Where they were counted.
    pub system_calls: Option<nix::Result<u64>>,
}

/// The figures of one contender at one job: medians.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub gib_per_s: f64,
    pub cpu_s_per_gib: f64,
    pub client_cpu_s_per_gib: f64,
    /// Of a smaller pass; `None` where they could not be counted.
    pub system_calls_per_gib: Option<f64>,
    pub runs: usize,
}

/// Runs a task. What is sent is forgotten.
pub fn run(task: &Task, traced: bool) -> io::Result<Run> {
    match task.direction {
        Direction::Send => {
            let peer = Peer::Discard { connections: task.streams.len() };
            send_to(task, Helper::start(WORKER, &Order::Peer(peer))?, traced)
        }
        Direction::Receive => receive(task, traced),
    }
}

/// Runs a task. What is sent is stored, by Python where there is one.
pub fn run_stored(task: &Task, folder: &Path, python: bool) -> io::Result<Run> {
    let connections = task.streams.len();
    match task.direction {
        Direction::Send if python => send_to(task, python_receiver(connections, folder)?, false),
        Direction::Send => {
            let peer = Peer::Store { connections, folder: folder.to_path_buf() };
            send_to(task, Helper::start(WORKER, &Order::Peer(peer))?, false)
        }
        Direction::Receive => receive(task, false),
    }
}

/// A receiver that shares no code with this program.
fn python_receiver(connections: usize, folder: &Path) -> io::Result<Helper> {
    Helper::spawn(Command::new("python3").args(["-c", RECEIVER]).arg(connections.to_string()).arg(folder))
}

/// Where it listens.
fn address_of(helper: &mut Helper) -> io::Result<String> {
    helper.hear::<Ready>()?.address.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn start(task: Task, traced: bool) -> io::Result<Helper> {
    let order = Order::Task(task);
    if traced { Helper::start_traced(WORKER, &order) } else { Helper::start(WORKER, &order) }
}

fn send_to(task: &Task, mut peer: Helper, traced: bool) -> io::Result<Run> {
    let address = Some(address_of(&mut peer)?);
    let mut worker = start(Task { address, ..task.clone() }, traced)?;
    finish(task, &mut worker, &mut peer)
}

fn receive(task: &Task, traced: bool) -> io::Result<Run> {
    let mut worker = start(task.clone(), traced)?;
    let address = address_of(&mut worker)?;
    let mut peer =
        Helper::start(WORKER, &Order::Peer(Peer::Feed { address, streams: task.streams.clone() }))?;
    finish(task, &mut worker, &mut peer)
}

/// Both ends must tell of the same bytes.
fn finish(task: &Task, worker: &mut Helper, peer: &mut Helper) -> io::Result<Run> {
    let outcome = worker.hear::<Outcome>()?;
    let peer = peer.hear::<Outcome>()?;
    let over_the_wire = if task.direction == Direction::Send { outcome.bytes_out } else { outcome.bytes_in };
    let files: Vec<usize> = outcome.files.iter().map(Vec::len).collect();
    if files != task.streams.iter().map(Vec::len).collect::<Vec<_>>() {
        return Err(io::Error::other("not every file has a result"));
    }
    if peer.bytes_in != over_the_wire || outcome.bytes_in != task.bytes() {
        let text = format!("{} bytes of {} left, {} arrived", over_the_wire, task.bytes(), peer.bytes_in);
        return Err(io::Error::other(text));
    }
    Ok(Run { outcome, peer, system_calls: worker.system_calls() })
}

impl Figures {
    pub fn new(runs: &[Run], system_calls_per_gib: Option<f64>) -> Figures {
        let gib = |run: &Run| run.outcome.bytes_in as f64 / GIB;
        let median_of = |value: &dyn Fn(&Run) -> f64| median(runs.iter().map(value));
        Figures {
            gib_per_s: median_of(&|run| gib(run) / run.outcome.wall_s.max(1e-9)),
            cpu_s_per_gib: median_of(&|run| run.outcome.cpu_s / gib(run)),
            client_cpu_s_per_gib: median_of(&|run| run.peer.cpu_s / gib(run)),
            system_calls_per_gib,
            runs: runs.len(),
        }
    }
}
