//! In the guest: the measured process, which does one task by the card or by the guest's kernel.

use super::counters::{self, Snapshot};
use super::task::{Direction, OBJECT, Outcome, Stage, Task, Transfer, Who};
use crate::failure::{Exit, Failure};
use crate::operate::{self, Operators};
use crate::workload::syscalls;
use crate::workload::wire::say;
use dcs::card::Options;
use dcs::card::net::Connection;
use dcs::{Backend, Completion, Driver, Engine, Op, Session, Sink, Source};
use nix::libc::O_DIRECT;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::Instant;

/// Where the file system is mounted.
const MOUNT: &str = "/mnt";

/// The hidden subcommand.
pub fn run() -> Result<(), Failure> {
    // No orphan outlives who gave the order.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    let outcome = obey().map_err(|error| error.to_string());
    say(&outcome).map_err(|error| Failure::new(Exit::Failed, format!("server helper: {error}")))
}

fn obey() -> io::Result<Outcome> {
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    let task: Task = serde_json::from_str(&line)?;
    let mut outcome = match task.who {
        Who::Card => by_card(&task)?,
        Who::Host => by_kernel(&task)?,
    };
    if task.direction == Direction::Receive {
        outcome.stored = (0..task.objects).map(stored).collect::<io::Result<_>>()?;
    }
    Ok(outcome)
}

fn path(direction: Direction, object: usize) -> PathBuf {
    let folder = if direction == Direction::Send { "send" } else { "receive" };
    PathBuf::from(format!("{MOUNT}/{folder}/{object}"))
}

/// For the card: access mode is what counts.
fn open(direction: Direction, object: usize) -> io::Result<File> {
    File::options().read(true).write(direction == Direction::Receive).open(path(direction, object))
}

fn by_card(task: &Task) -> io::Result<Outcome> {
    let options = Options::from_environment().map_err(io::Error::other)?;
    // Who waits drives: no thread is woken to wake another.
    let builder = Engine::builder().backend(Backend::Card).driver(Driver::Caller).card(options);
    let engine = builder.start().map_err(io::Error::other)?;
    let session = engine.session().map_err(io::Error::other)?;
    syscalls::mark();
    let snapshot = Snapshot::take()?;
    let connection = engine.connect(task.client).map_err(io::Error::other)?;
    let before = (engine.statistics().fetched, counters::vfio_interrupts()?);
    let one = |object| card_object(task, &session, &connection, object);
    let transfers = (0..task.objects).map(one).collect::<io::Result<Vec<_>>>()?;
    let submissions = engine.statistics().fetched - before.0;
    let card_interrupts = counters::vfio_interrupts()? - before.1;
    connection.shutdown().map_err(io::Error::other)?;
    // The client says that it has everything.
    let said = session.transfer(Source::connection(&connection), [], Sink::memory(1));
    let said = said.map_err(io::Error::other)?.wait().map_err(io::Error::other)?;
    if said.bytes_out != 1 {
        return Err(io::Error::other("the client did not say that it has everything"));
    }
    let counted = snapshot.until_now()?;
    syscalls::mark();
    Ok(Outcome { transfers, counted, submissions, card_interrupts, ..Outcome::default() })
}

fn card_object(
    task: &Task,
    session: &Session,
    connection: &Connection,
    object: usize,
) -> io::Result<Transfer> {
    let ops = task.ops(object)?;
    let start = Instant::now();
    let file = open(task.direction, object)?;
    let request = match task.direction {
        Direction::Send => session.request(Source::file(&file, ..), ops, Sink::connection(connection)),
        Direction::Receive => {
            session.request(Source::connection(connection), ops, Sink::file(&file, 0)).durable()
        }
    };
    let transfer = request.length(OBJECT as u64).submit().map_err(io::Error::other)?;
    let completion = transfer.wait().map_err(io::Error::other)?;
    Ok(of_completion(&completion, start))
}

fn of_completion(completion: &Completion, start: Instant) -> Transfer {
    let stage = |stage: &dcs::completion::StageTime| Stage {
        name: stage.name.to_owned(),
        first_ns: stage.first.as_nanos() as u64,
        last_ns: stage.last.as_nanos() as u64,
        busy_ns: stage.busy.as_nanos() as u64,
        operations: stage.operations,
    };
    Transfer {
        digests: operate::digests_of(&completion.digests),
        bytes_in: completion.bytes_in,
        bytes_out: completion.bytes_out,
        path: completion.path.names().map(str::to_owned).collect(),
        latency_ns: start.elapsed().as_nanos() as u64,
        stages: completion.breakdown.stages.iter().map(stage).collect(),
    }
}

/// The ordinary loop, as sparing as it can be: one read past the page cache, the operators in place, one send.
fn by_kernel(task: &Task) -> io::Result<Outcome> {
    let mut memory = vec![0; OBJECT + ALIGNMENT];
    let from = memory.as_ptr().align_offset(ALIGNMENT);
    let buffer = &mut memory[from..from + OBJECT];
    syscalls::mark();
    let snapshot = Snapshot::take()?;
    let mut socket = TcpStream::connect(task.client)?;
    let mut transfers = Vec::with_capacity(task.objects);
    for object in 0..task.objects {
        transfers.push(kernel_object(task, &mut socket, object, buffer)?);
    }
    socket.shutdown(Shutdown::Write)?;
    socket.read_exact(&mut [0])?;
    let counted = snapshot.until_now()?;
    syscalls::mark();
    Ok(Outcome { transfers, counted, ..Outcome::default() })
}

/// Of a buffer for O_DIRECT.
const ALIGNMENT: usize = 4096;

fn kernel_object(
    task: &Task,
    socket: &mut TcpStream,
    object: usize,
    buffer: &mut [u8],
) -> io::Result<Transfer> {
    let ops = task.ops(object)?;
    let mut stages = Stages { start: Instant::now(), stages: Vec::new() };
    let receives = task.direction == Direction::Receive;
    let file = File::options()
        .read(!receives)
        .write(receives)
        .custom_flags(O_DIRECT)
        .open(path(task.direction, object))?;
    stages.time("source", || match receives {
        true => socket.read_exact(buffer),
        false => file.read_exact_at(buffer, 0),
    })?;
    let mut digests = Vec::new();
    for op in &ops {
        let name = dcs::Operator::from_number(op.number()).map_or("operator", dcs::Operator::name);
        digests.extend(stages.time(name, || in_place(op, buffer))?);
    }
    stages.time("destination", || match receives {
        true => file.write_all_at(buffer, 0).and_then(|()| file.sync_data()),
        false => socket.write_all(buffer),
    })?;
    let bytes = buffer.len() as u64;
    Ok(Transfer {
        digests,
        bytes_in: bytes,
        bytes_out: bytes,
        path: vec!["system calls".into()],
        latency_ns: stages.start.elapsed().as_nanos() as u64,
        stages: stages.stages,
    })
}

/// One operator over the whole buffer.
fn in_place(op: &Op, buffer: &mut [u8]) -> io::Result<Vec<(String, String)>> {
    let mut operators = Operators::new(std::slice::from_ref(op))?;
    operators.pass(buffer, true, &mut |_| Ok(()))?;
    Ok(operators.digests())
}

/// The clock of the ordinary loop.
struct Stages {
    start: Instant,
    stages: Vec<Stage>,
}

impl Stages {
    fn time<T>(&mut self, name: &str, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let first_ns = self.start.elapsed().as_nanos() as u64;
        let done = work()?;
        let last_ns = self.start.elapsed().as_nanos() as u64;
        let busy_ns = last_ns - first_ns;
        self.stages.push(Stage { name: name.to_owned(), first_ns, last_ns, busy_ns, operations: 1 });
        Ok(done)
    }
}

/// MD5 of what the kernel reads from the disk.
fn stored(object: usize) -> io::Result<String> {
    let mut file = File::open(path(Direction::Receive, object))?;
    // Not from what the page cache may still have.
    nix::fcntl::posix_fadvise(file.as_fd(), 0, 0, nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    let mut bytes = Vec::with_capacity(OBJECT);
    file.read_to_end(&mut bytes)?;
    let digests = in_place(&Op::Md5, &mut bytes)?;
    digests.into_iter().next().map(|(_, value)| value).ok_or(io::ErrorKind::InvalidData.into())
}
