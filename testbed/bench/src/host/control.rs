//! `dcs bench control`: cost of one transfer of 64 bytes in instructions and system calls, on the engine driven by its caller and
//! in the plain loop: file > crc32c > socket.
//!
//! Instructions are those of the process, without the kernel's. They are counted one by one, so the figure is the same every
//! time, whatever else runs.

use super::names;
use super::step::{self, Steps};
use crate::failure::{Exit, Failure};
use crate::report::Report;
use dcs::{Driver, Engine, Handle, Op, Session, Sink, Source};
use dcs_abi::operator::Operator;
use dcs_ndp::Context;
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::json;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

/// Bytes of the file: one block.
const SIZE: usize = 64;
/// Transfers before counting begins: by then all lazy initialisation is done.
const WARM_UP: usize = 64;
/// Transfers that are counted; in a debug build each takes ten times as many instructions.
const COUNTED: usize = if cfg!(debug_assertions) { 2 } else { 16 };
const CONTENDERS: [&str; 3] = ["loop", "engine-fd", "engine"];

pub fn run(report: &Report) -> Result<(), Failure> {
    report.text(format_args!(
        "file>crc32c>socket, {SIZE} bytes, descriptors open: of one transfer, mean of {COUNTED} after {WARM_UP}.\n\
         Instructions of the process, counted one by one, without those of the kernel.\n\
         loop: pread, crc32c, send. engine: driven by its caller, with handles; engine-fd: with descriptors."
    ));
    for contender in CONTENDERS {
        let step = report.step(format!("{contender}: counting"));
        let steps = count(contender).map_err(|error| {
            Failure::new(Exit::Failed, format!("counting instructions: {error}"))
                .advise("counting needs x86-64, and permission to ptrace a child process")
        })?;
        drop(step);
        print(contender, &steps, report);
    }
    Ok(())
}

/// Counts the instructions. The counting process and the counted one share a core: a switch between cores at each step would take
/// ten times as long.
fn count(contender: &str) -> io::Result<Steps> {
    let counting = || {
        let here = Pid::from_raw(0);
        let mut one = CpuSet::new();
        one.set(sched_getcpu()?)?;
        sched_setaffinity(here, &one)?;
        count_child(contender)
    };
    std::thread::scope(|scope| scope.spawn(counting).join().map_err(|_| io::Error::other("panic"))?)
}

fn count_child(contender: &str) -> io::Result<Steps> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["bench-control", contender, &COUNTED.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    let steps = step::count(child.id(), || drop(child.stdin.take()));
    let status = child.wait();
    let steps = steps?;
    match status {
        // The tracer has already waited for it.
        Ok(status) if !status.success() => {
            Err(io::Error::other(format!("the counted process failed: {status}")))
        }
        _ => Ok(steps),
    }
}

fn print(contender: &str, steps: &Steps, report: &Report) {
    let per = |count: u64| count as f64 / COUNTED as f64;
    report.text(format_args!("\n{contender}: {:.0} instructions", per(steps.instructions)));
    for (object, count) in &steps.objects {
        report.text(format_args!("  {:9.1}  in {object}", per(*count)));
    }
    let calls: u64 = steps.calls.values().sum();
    report.text(format_args!("{contender}: {:.1} system calls", per(calls)));
    let mut named: Vec<(String, u64)> =
        steps.calls.iter().map(|(number, count)| (names::of(*number), *count)).collect();
    named.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    for (name, count) in &named {
        report.text(format_args!("  {:9.1}  {name}", per(*count)));
    }
    let named: serde_json::Map<_, _> =
        named.into_iter().map(|(name, count)| (name, per(count).into())).collect();
    let objects: serde_json::Map<_, _> =
        steps.objects.iter().map(|(name, count)| (name.clone(), per(*count).into())).collect();
    report.object(&json!({
        "event": "control", "job": "file>crc32c>socket", "contender": contender, "size": SIZE, "transfers": COUNTED,
        "instructions_per_transfer": per(steps.instructions), "instructions_by_object": objects,
        "system_calls_per_transfer": per(calls), "system_calls_by_name": named,
    }));
}

/// The hidden subcommand: runs as the counted process.
pub fn child(contender: &str, transfers: usize) -> Result<(), Failure> {
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    // Waits for the tracer, which then closes the pipe.
    let done = io::stdin().read(&mut [0]).and_then(|_| match contender {
        "engine" => engine(transfers),
        "engine-fd" => engine_with_descriptors(transfers),
        _ => plain_loop(transfers),
    });
    done.map_err(|error| Failure::io("counted process", &error))
}

/// Runs the action this often before the first mark, and this often between the marks.
fn marked(
    transfers: usize,
    mut one: impl FnMut(&File, &UnixStream) -> io::Result<[u8; 4]>,
) -> io::Result<()> {
    let mut file = tempfile::tempfile()?;
    let bytes: Vec<u8> = (0..SIZE as u8).collect();
    file.write_all(&bytes)?;
    let (near, mut far) = UnixStream::pair()?;
    // Non-blocking, as a server's sockets are.
    near.set_nonblocking(true)?;
    let mut arrived = [0; SIZE];
    let mut value = [0; 4];
    for _ in 0..WARM_UP {
        value = one(&file, &near)?;
        far.read_exact(&mut arrived)?;
    }
    crate::harness::syscalls::mark();
    for _ in 0..transfers {
        value = one(&file, &near)?;
    }
    crate::harness::syscalls::mark();
    let mut expected = Context::new(Operator::Crc32c, &[]).map_err(io::Error::other)?;
    expected.absorb(&bytes);
    let expected = expected.value().ok_or(io::ErrorKind::InvalidData)?;
    for _ in 0..transfers {
        far.read_exact(&mut arrived)?;
        if arrived != bytes[..] || value != expected.as_bytes() {
            return Err(io::Error::other("wrong bytes were delivered"));
        }
    }
    Ok(())
}

/// Uses handles, as a server does for things that it uses again.
fn engine(transfers: usize) -> io::Result<()> {
    let engine = Engine::builder().driver(Driver::Caller).start().map_err(io::Error::other)?;
    let session = engine.session().map_err(io::Error::other)?;
    let mut handles: Option<(Handle, Handle)> = None;
    marked(transfers, |file, socket| {
        if handles.is_none() {
            let new = |fd: Result<Handle, dcs::Error>| fd.map_err(io::Error::other);
            handles = Some((new(Handle::new(file))?, new(Handle::new(socket))?));
        }
        let (from, to) = handles.as_ref().ok_or(io::ErrorKind::NotFound)?;
        one(&session, Source::handle(from, ..SIZE as u64), Sink::handle(to, 0))
    })
}

/// Uses plain descriptors, which the engine examines for each transfer.
fn engine_with_descriptors(transfers: usize) -> io::Result<()> {
    let engine = Engine::builder().driver(Driver::Caller).start().map_err(io::Error::other)?;
    let session = engine.session().map_err(io::Error::other)?;
    marked(transfers, |file, socket| one(&session, Source::file(file, ..SIZE as u64), Sink::socket(socket)))
}

fn one(session: &Session, source: Source, sink: Sink) -> io::Result<[u8; 4]> {
    let transfer = session.transfer(source, [Op::Crc32c], sink).map_err(io::Error::other)?;
    let done = transfer.wait().map_err(io::Error::other)?;
    let value = done.digests.first().and_then(|digest| digest.bytes().try_into().ok());
    value.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Runs pread, the operator and send.
fn plain_loop(transfers: usize) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    marked(transfers, |file, mut socket| {
        let mut context = Context::new(Operator::Crc32c, &[]).map_err(io::Error::other)?;
        let mut at = 0;
        while at < SIZE {
            let length = file.read_at(&mut buffer, at as u64)?;
            context.absorb(&buffer[..length]);
            socket.write_all(&buffer[..length])?;
            at += length;
        }
        let value = context.value().and_then(|value| value.as_bytes().try_into().ok());
        value.ok_or_else(|| io::ErrorKind::InvalidData.into())
    })
}
