//! `dcs server demo`: the same jobs by the card and by the guest's kernel, checked byte for byte.

use super::client::{self, Client, Processor, Verdict};
use super::machine::{Parts, SEED, Wanted, failure};
use super::table;
use super::task::{Direction, OBJECT, Outcome, Task, Who};
use crate::args;
use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::report::Report;
use dcs_vm::Guest;
use serde_json::json;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// System calls are counted on so many objects: a traced process is slow.
const SAMPLE: usize = 8;
/// How long the guest may take to be up, and one task.
const BOOT: Duration = Duration::from_secs(120);
const TASK: Duration = Duration::from_secs(600);

const JOBS: [(Direction, &[&str]); 4] = [
    (Direction::Send, &[]),
    (Direction::Send, &["md5"]),
    (Direction::Send, &["md5", "aes256-ctr"]),
    (Direction::Receive, &["crc32c"]),
];

/// A job as one of the two did it.
pub struct Row {
    pub task: Task,
    pub outcome: Outcome,
    /// CPU time of the guest's processor, as this machine counts it.
    pub processor_ns: u64,
    /// System calls of one object, mean of a pass of their own.
    pub system_calls: f64,
}

/// The guest, and the connection over which it takes orders.
struct Server {
    _child: interrupt::Child,
    guest: Guest,
    orders: TcpStream,
    answers: Receiver<io::Result<String>>,
    processor: Processor,
}

struct Demo<'a> {
    server: Server,
    report: &'a Report,
    objects: usize,
    /// Every task has data of its own.
    seed: u64,
    problems: Vec<String>,
}

pub fn run(options: &args::ServerDemo, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let start = Instant::now();
    let objects = usize::try_from(options.size.div_ceil(OBJECT as u64)).unwrap_or(usize::MAX);
    if !(1..=MOST_OBJECTS).contains(&objects) {
        return Err(Failure::usage(format!("--size is 1MiB to {MOST_OBJECTS}MiB")));
    }
    let listener =
        TcpListener::bind("127.0.0.1:0").map_err(|error| Failure::io("orders for the guest", &error))?;
    let port = listener.local_addr().map_or(0, |address| address.port());
    let script = format!("dcs server-guest {}:{port}\n", super::guest::GATEWAY);
    let limit = Duration::from_secs(1800);
    let parts = Parts::new(&Wanted { objects, nic: options.nic, script: &script, limit }, report)?;
    let server = Server::start(&parts, &listener, report)?;
    let ready = start.elapsed();
    let mut demo = Demo { server, report, objects, seed: SEED, problems: Vec::new() };
    table::introduce(objects, ready, options.nic, report);
    for (direction, chain) in JOBS {
        let rows = [Who::Host, Who::Card]
            .map(|who| demo.row(who, direction, chain))
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?;
        table::job(&rows, report);
    }
    demo.conclude(start)
}

/// Objects at most: they lie in memory here while they are compared.
const MOST_OBJECTS: usize = 1024;

impl Server {
    fn start(parts: &Parts, listener: &TcpListener, report: &Report) -> Result<Server, Failure> {
        let step = report.step("the guest boots".into());
        let guest = parts.machine.start(&parts.tools, parts.initramfs(), parts.folder.path());
        let mut guest = guest.map_err(failure)?;
        let child = interrupt::child(guest.id());
        let orders = accept(&mut guest, listener)?;
        drop(step);
        let (sender, answers) = channel();
        let lines = orders.try_clone().map_err(|error| Failure::io("orders for the guest", &error))?;
        std::thread::spawn(move || {
            for line in BufReader::new(lines).lines() {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let processor = Processor::find(guest.id()).map_err(|error| Failure::io("QEMU", &error))?;
        Ok(Server { _child: child, guest, orders, answers, processor })
    }

    /// Has the guest do a task.
    fn perform(&mut self, task: &Task) -> Result<Outcome, Failure> {
        let failed = |error: io::Error| Failure::io("orders for the guest", &error);
        let mut order = serde_json::to_vec(task).map_err(|error| failed(error.into()))?;
        order.push(b'\n');
        self.orders.write_all(&order).map_err(failed)?;
        let end = Instant::now() + TASK;
        loop {
            match self.answers.recv_timeout(Duration::from_millis(100)) {
                Ok(line) => {
                    let outcome: Result<Outcome, String> =
                        serde_json::from_str(&line.map_err(failed)?).map_err(|error| failed(error.into()))?;
                    return outcome.map_err(|error| {
                        Failure::new(
                            Exit::Failed,
                            format!("{} by the {}: {error}", task.job(), task.who.name()),
                        )
                    });
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => self.listen()?,
                Err(_) => return Err(self.lost()),
            }
        }
    }

    /// What the console says is kept for an error; a server that is off is one.
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
}

/// Waits for the guest's connection.
fn accept(guest: &mut Guest, listener: &TcpListener) -> Result<TcpStream, Failure> {
    let failed = |error| Failure::io("orders for the guest", &error);
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

impl Demo<'_> {
    /// Does a job, and once more with the system calls counted.
    fn row(&mut self, who: Who, direction: Direction, chain: &[&str]) -> Result<Row, Failure> {
        let (task, outcome, processor_ns) = self.task(who, direction, chain, self.objects, false)?;
        let sample = SAMPLE.min(self.objects);
        let (_, counted, _) = self.task(who, direction, chain, sample, true)?;
        let calls = counted
            .system_calls
            .ok_or_else(|| Failure::new(Exit::Failed, "the guest did not count the system calls"))?;
        Ok(Row { task, outcome, processor_ns, system_calls: calls as f64 / sample as f64 })
    }

    fn task(
        &mut self,
        who: Who,
        direction: Direction,
        chain: &[&str],
        objects: usize,
        traced: bool,
    ) -> Result<(Task, Outcome, u64), Failure> {
        let failed = |error| Failure::io("the client", &error);
        let seed = if direction == Direction::Receive { self.next_seed() } else { SEED };
        let client = Client::start(direction, objects, seed, &self.server.processor).map_err(failed)?;
        let gateway = super::guest::GATEWAY.parse().map_err(|_| Failure::usage("a gateway"))?;
        let chain = chain.iter().map(ToString::to_string).collect();
        let client_at = SocketAddrV4::new(gateway, client.port);
        let task = Task { who, direction, chain, objects, client: client_at, traced };
        let step = self.report.step(format!("{} by the {}", task.job(), who.name()));
        let outcome = self.server.perform(&task)?;
        let received = client.end().map_err(failed)?;
        let verdict = client::check(&task, seed, &received.bytes, &outcome).map_err(failed)?;
        drop(step);
        self.judge(&task, verdict);
        Ok((task, outcome, received.processor_ns))
    }

    fn next_seed(&mut self) -> u64 {
        self.seed += 1;
        self.seed
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

    fn conclude(self, start: Instant) -> Result<(), Failure> {
        let seconds = start.elapsed().as_secs_f64();
        let ok = self.problems.is_empty();
        self.report
            .object(&json!({ "event": "done", "ok": ok, "problems": self.problems, "seconds": seconds }));
        if ok {
            table::conclude(seconds, self.report);
            return Ok(());
        }
        let shown = self.problems.iter().take(5).map(String::as_str).collect::<Vec<_>>().join("; ");
        let line = format!("{} problems: {shown}", self.problems.len());
        Err(Failure::new(Exit::Failed, line).advise("this is a defect: please report it"))
    }
}
