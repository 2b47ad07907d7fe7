//! A running server: runs tasks, and has all results checked.

use super::client::{self, Client, Expected, Processor, Received, Verdict};
use super::machine::{Contents, Parts, SEED, Wanted, failure, seed};
use super::task::{Stream, Task, TaskResult};
use crate::failure::{Exit, Failure};
use crate::guest::engine::CardEngine;
use crate::guest::nic::KernelNic;
use crate::harness::contender::Named;
use crate::harness::faults::Faults;
use crate::interrupt;
use crate::report::Report;
use dcs_vm::Guest;
use serde_json::json;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time limit for the guest to boot.
const BOOT: Duration = Duration::from_secs(120);
/// Time limit for one task.
const TASK: Duration = Duration::from_secs(600);
/// Time limit for a client to see the end of its stream.
const ENDING: Duration = Duration::from_secs(60);
/// The same limit after a failed task.
const FAILED: Duration = Duration::from_secs(10);
/// Time after which the guest powers off by itself.
const LIMIT: Duration = Duration::from_secs(3600);

/// The guest, and the connection over which it takes tasks.
pub struct Rig<'a> {
    _child: interrupt::Child,
    guest: Guest,
    requests: TcpStream,
    answers: Receiver<io::Result<String>>,
    pub processor: Processor,
    pub parts: Parts,
    report: &'a Report,
    start: Instant,
    /// Seed of the next task's data.
    seed: u64,
    problems: Vec<String>,
}

/// A finished task.
pub struct Row {
    pub task: Task,
    pub outcome: TaskResult,
    /// Bytes that were moved and compared.
    pub bytes: u64,
    pub digests: u64,
    /// CPU time of the guest's processor, as this machine counts it.
    pub processor_ns: u64,
    /// Time on this machine, from the first to the last byte that the client received.
    pub wall_ns: u64,
    /// Bytes of each set, while all connections were active.
    pub by_set: Vec<u64>,
    /// System calls per byte, from a separate pass.
    pub system_calls: Option<f64>,
}

impl Row {
    pub fn gib(&self) -> f64 {
        self.bytes as f64 / (1u64 << 30) as f64
    }

    /// Returns CPU seconds of the guest's processor per GiB.
    pub fn cpu(&self) -> f64 {
        self.processor_ns as f64 / 1e9 / self.gib()
    }

    /// Returns the share of time in which the guest's processor ran.
    pub fn cpu_share(&self) -> f64 {
        self.processor_ns as f64 / self.wall_ns as f64
    }

    /// Returns MiB per second, by this machine's clock.
    pub fn mib_per_s(&self) -> f64 {
        self.bytes as f64 / (1u64 << 20) as f64 / (self.wall_ns as f64 / 1e9)
    }
}

impl Rig<'_> {
    /// Boots a server with this many sets of an SSD and NICs.
    pub fn boot<'a>(
        contents: &Contents,
        sets: usize,
        (nic, faults, engine): (KernelNic, &Faults, CardEngine),
        report: &'a Report,
    ) -> Result<Rig<'a>, Failure> {
        let start = Instant::now();
        let listener =
            TcpListener::bind("127.0.0.1:0").map_err(|error| Failure::io("requests to the guest", &error))?;
        let port = listener.local_addr().map_or(0, |address| address.port());
        let script = format!("dcs-bench guest-agent {}:{port}\n", super::agent::gateway(0));
        let parts = Parts::new(
            &Wanted { contents, sets, nic, dcs: None, script: &script, limit: LIMIT, faults, engine },
            report,
        )?;
        let step = report.step("booting the guest".into());
        let boot = || parts.machine.start(&parts.tools, parts.initramfs(), parts.folder.path());
        let (mut guest, child) = interrupt::child_of(boot, Guest::id).map_err(failure)?;
        let requests = accept(&mut guest, &listener)?;
        drop(step);
        let (sender, answers) = channel();
        let lines = requests.try_clone().map_err(|error| Failure::io("requests to the guest", &error))?;
        std::thread::spawn(move || {
            for line in BufReader::new(lines).lines() {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let processor = Processor::find(guest.id()).map_err(|error| Failure::io("QEMU", &error))?;
        let (seed, problems) = (SEED, Vec::new());
        Ok(Rig { _child: child, guest, requests, answers, processor, parts, report, start, seed, problems })
    }

    /// Returns the ID of QEMU's process.
    pub fn qemu(&self) -> u32 {
        self.guest.id()
    }

    /// Returns the time since the boot began.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Runs a task, and checks it.
    pub fn run(&mut self, task: Task) -> Result<Row, Failure> {
        let what = format!("{} by the {}", task.job(), task.who.name());
        self.attempt(task)?.map_err(|error| Failure::new(Exit::Failed, format!("{what}: {error}")))
    }

    /// Runs a task, and checks it. The inner error is the guest's reason; data that the client received until then were checked.
    pub fn attempt(&mut self, task: Task) -> Result<Result<Row, String>, Failure> {
        let failed = |error| Failure::io("the client", &error);
        self.seed += 1;
        let of_set = |set| Expected::new(&task, self.seed, seed(set)).map(Arc::new);
        let expected = (0..task.sets()).map(of_set).collect::<io::Result<Vec<_>>>().map_err(failed)?;
        let (mut clients, mut streams) = (Vec::new(), Vec::new());
        for Stream { set, .. } in &task.streams {
            let client = Client::start(&expected[*set], &self.processor).map_err(failed)?;
            streams.push(Stream {
                client: SocketAddrV4::new(super::agent::gateway(*set), client.port),
                set: *set,
            });
            clients.push((Arc::clone(&expected[*set]), client));
        }
        let task = Task { streams, ..task };
        let step = self.report.step(format!("{} by the {}", task.job(), task.who.name()));
        let outcome = match self.perform(&task)? {
            Ok(outcome) => outcome,
            Err(error) => {
                let ended = clients.into_iter().filter_map(|(_, client)| client.end(FAILED).ok());
                let wrong = ended.flat_map(|received| received.wrong);
                let wrong = wrong.map(|number| format!("object {number} of a failed task has wrong bytes"));
                self.problems.extend(wrong);
                return Ok(Err(error));
            }
        };
        let received = clients.into_iter().map(|(expected, client)| Ok((expected, client.end(ENDING)?)));
        let received = received.collect::<io::Result<Vec<_>>>().map_err(failed)?;
        drop(step);
        let verdict = client::check(&task, &received, &outcome);
        let (bytes, digests) = (verdict.bytes, verdict.digests);
        self.judge(&task, verdict);
        let received: Vec<Received> = received.into_iter().map(|(_, received)| received).collect();
        let (processor_ns, wall_ns) = (processor(&received), wall(&received));
        let by_set = by_set(&task, &received);
        Ok(Ok(Row { task, outcome, bytes, digests, processor_ns, wall_ns, by_set, system_calls: None }))
    }

    /// Runs a task, then its first `sample` transfers once more with system calls counted: a traced process is slow.
    pub fn run_and_trace(&mut self, task: Task, sample: usize) -> Result<Row, Failure> {
        let mut sampled = Task { traced: true, ..task.clone() };
        sampled.items.truncate(sample);
        sampled.items.iter_mut().for_each(|item| item.at_ns = 0);
        let row = self.run(task)?;
        let counted = self.run(sampled)?;
        let calls = counted.outcome.system_calls;
        let calls =
            calls.ok_or_else(|| Failure::new(Exit::Failed, "the guest did not count the system calls"))?;
        Ok(Row { system_calls: Some(calls as f64 / counted.bytes as f64), ..row })
    }

    /// Has the guest run a task. The inner error is the guest's.
    fn perform(&mut self, task: &Task) -> Result<Result<TaskResult, String>, Failure> {
        let failed = |error: io::Error| Failure::io("requests to the guest", &error);
        let mut request = serde_json::to_vec(task).map_err(|error| failed(error.into()))?;
        request.push(b'\n');
        self.requests.write_all(&request).map_err(failed)?;
        let end = Instant::now() + TASK;
        loop {
            match self.answers.recv_timeout(Duration::from_millis(100)) {
                Ok(line) => {
                    let line = line.map_err(failed)?;
                    return serde_json::from_str(&line).map_err(|error| failed(error.into()));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => self.listen()?,
                Err(_) => return Err(self.lost()),
            }
        }
    }

    /// Keeps the console's output for an error. Fails if the server is off.
    fn listen(&mut self) -> Result<(), Failure> {
        while self.guest.line(Duration::ZERO).map_err(failure)?.is_some() {}
        Ok(())
    }

    fn lost(&mut self) -> Failure {
        let waited = self.guest.wait_for("guest: the end", Duration::from_secs(2));
        match waited {
            Err(error) => failure(error),
            Ok(_) => Failure::new(Exit::Failed, "the guest has ended before its time")
                .advise("DCS_VM_CONSOLE=1 shows its console"),
        }
    }

    fn judge(&mut self, task: &Task, verdict: Verdict) {
        let (job, who) = (task.job(), task.who.name());
        let ok = verdict.errors.is_empty();
        self.report.object(&json!({
            "event": "check", "job": job, "by": who, "traced": task.traced, "ok": ok, "bytes": verdict.bytes,
            "digests": verdict.digests, "errors": verdict.errors,
        }));
        if !ok {
            self.report.text(format_args!("WRONG  {job} by the {who}: {}", verdict.errors.join("; ")));
        }
        self.problems.extend(verdict.errors.into_iter().map(|error| format!("{job} by the {who}: {error}")));
    }

    /// Returns the errors in all tasks.
    pub fn problems(self) -> Vec<String> {
        self.problems
    }
}

/// Returns CPU time of the guest's processor, from the first connection to the end of the last stream.
fn processor(received: &[Received]) -> u64 {
    let first = received.iter().map(|one| one.processor_ns[0]).min();
    let last = received.iter().map(|one| one.processor_ns[1]).max();
    last.unwrap_or(0).saturating_sub(first.unwrap_or(0))
}

fn wall(received: &[Received]) -> u64 {
    let times = || received.iter().filter_map(Received::time);
    let (first, last) = (times().map(|time| time[0]).min(), times().map(|time| time[1]).max());
    first.zip(last).map_or(0, |(first, last)| last.duration_since(first).as_nanos() as u64)
}

/// Returns the bytes of each set from the start of the last stream to the end of the first.
fn by_set(task: &Task, received: &[Received]) -> Vec<u64> {
    let times = || received.iter().filter_map(Received::time);
    let window = times().map(|time| time[0]).max().zip(times().map(|time| time[1]).min());
    let mut sets = vec![0; task.sets()];
    for (Stream { set, .. }, one) in task.streams.iter().zip(received) {
        if let Some((from, to)) = window {
            sets[*set] += one.until(to).saturating_sub(one.until(from));
        }
    }
    sets
}

/// Ends with the errors, if there were any.
pub fn conclude(problems: &[String], seconds: f64, report: &Report) -> Result<(), Failure> {
    let ok = problems.is_empty();
    report.object(&json!({ "event": "done", "ok": ok, "problems": problems, "seconds": seconds }));
    if ok {
        return Ok(());
    }
    let shown = problems.iter().take(5).map(String::as_str).collect::<Vec<_>>().join("; ");
    let line = format!("{} problems: {shown}", problems.len());
    Err(Failure::new(Exit::Failed, line).advise("this is a defect: please report it"))
}

/// Waits for the guest's connection.
fn accept(guest: &mut Guest, listener: &TcpListener) -> Result<TcpStream, Failure> {
    let failed = |error| Failure::io("requests to the guest", &error);
    listener.set_nonblocking(true).map_err(failed)?;
    let end = Instant::now() + BOOT;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(failed)?;
                return Ok(stream);
            }
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(failed(error)),
            Err(_) if Instant::now() < end => {
                guest.line(Duration::from_millis(20)).map_err(failure)?;
            }
            Err(_) => {
                return Err(Failure::new(Exit::Timeout, "the guest was not up within two minutes")
                    .advise("DCS_VM_CONSOLE=1 shows its console"));
            }
        }
    }
}
