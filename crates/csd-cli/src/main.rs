//! `dcs-csd`: gives virtual machines NVMe drives from files and disks. `dcs csd` starts it.
//!
//! # Architecture
//!
//! ```text
//!   QEMU, a guest --- NAME.sock ---+
//!   QEMU, a guest --- NAME.sock ---+--- dcs csd run --- files, block devices, SSDs over VFIO
//!   dcs csd add, list ... --- csd.control
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `args` | the command line and its help |
//! | `layout` | the bytes of files that belong to each namespace |
//! | `encryption` | keys of encrypted namespaces |
//! | `ssds` | starts SSDs that the process drives itself |
//! | `process` | `dcs csd run`: the loop, drives, their sockets |
//! | `refused` | requests that are refused: why, and what to do |
//! | `pace` | when the loop looks for work again, and when it sleeps |
//! | `modules` | users' own operators, which the chains of all drives may name |
//! | `slots` | the slots that do operators' work, and the checks of what drives ask of them |
//! | `descriptors` | file descriptors: how many drives may need, and how many there may be |
//! | `control` | the management socket |
//! | `scrape` | metrics for Prometheus, by HTTP |
//! | `manage` | `dcs csd add`, `remove`, `resize`, `set`, `list`, `stats` |
//! | in the library: `spec` | drives as users write them |
//! | `request`, `state` | the messages of the management socket: requests; the state and the counters of a
//! process |
//! | `port` | a controller behind its function |
//! | `backings` | files and SSDs that volumes are on |
//!
//! # What it doesn't implement
//!
//! * Guests on other machines: sockets and shared memory are local.
//! * Operators on a namespace other than aes256-xts.
//! * Reloading a configuration: `dcs csd add`, `remove` and `resize` change the running process, not the
//!   file.
#![forbid(unsafe_code)]

mod args;
mod control;
mod descriptors;
#[cfg(test)]
mod documents;
mod encryption;
mod layout;
mod manage;
mod modules;
mod pace;
mod process;
mod refused;
mod scrape;
mod slots;
mod ssds;

use args::{Arguments, Command, CsdCommand, Run};
use clap::{CommandFactory, Parser};
use dcs_console::failure::{Exit, Failure};
use dcs_console::interrupt;
use dcs_console::refusal::refuse;
use dcs_console::report::Report;
use dcs_csd_cli::spec::Configuration;
use process::Process;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default time for which the loop looks for work before it sleeps.
const POLL: Duration = Duration::from_micros(50);

fn main() -> std::process::ExitCode {
    let arguments = Arguments::try_parse().unwrap_or_else(|error| refuse(error, &Arguments::command()));
    let report = arguments.report();
    match run(&arguments.command, &report).and_then(|()| report.check_printed()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(failure) => {
            report.failure(&failure);
            std::process::ExitCode::from(failure.exit as u8)
        }
    }
}

fn run(command: &Command, report: &Report) -> Result<(), Failure> {
    let csd = match command {
        Command::Csd(csd) => csd,
        Command::CsdPages { folder } => return pages(folder),
    };
    match &csd.command {
        CsdCommand::Run(options) => serve(options, report),
        CsdCommand::Add(options) => manage::add(options, report),
        CsdCommand::Remove(options) => manage::remove(options, report),
        CsdCommand::Resize(options) => manage::resize(options, report),
        CsdCommand::Set(options) => manage::set(options, report),
        CsdCommand::Load(options) => manage::load(options, report),
        CsdCommand::List(to) => manage::list(to, report),
        CsdCommand::Stats(options) => manage::stats(options, report),
        CsdCommand::Demo(_) => Err(demo()),
    }
}

/// Starts the program that boots guests, which is not part of an installation. Returns only if it is missing.
fn demo() -> Failure {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name("dcs-bench"));
    let program = beside.filter(|path| path.is_file()).unwrap_or_else(|| "dcs-bench".into());
    let error = std::process::Command::new(program).args(std::env::args_os().skip(1)).exec();
    match error.kind() {
        std::io::ErrorKind::NotFound => Failure::new(
            Exit::NotFound,
            "there is no dcs-bench beside this program, nor in PATH: it does the demo",
        )
        .advise("build it in a source tree of dcs: cargo build --release -p dcs-bench"),
        _ => Failure::io("dcs-bench", &error),
    }
}

/// Returns the man pages and the description of `dcs csd` and its commands.
fn pages(folder: &Path) -> Result<(), Failure> {
    dcs_console::pages::write_companion(folder, Arguments::command(), &["csd"])
        .map_err(|error| Failure::io(folder.display(), &error))
}

fn serve(options: &Run, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let mut wanted = match &options.config {
        Some(path) => Configuration::read(path)?,
        None => Configuration::default(),
    };
    wanted.drives.extend(options.drive.iter().cloned());
    let slots = slots::placement(options, &wanted)?;
    let sockets = options.sockets.clone().or(wanted.sockets).unwrap_or_else(|| PathBuf::from("/run/dcs"));
    let poll = options.poll.unwrap_or(POLL);
    let process = Process::start(&sockets, poll, slots, ssds::Ssds::new()).map_err(no_storage)?;
    for drive in wanted.drives {
        let name = drive.name.clone();
        process.add(drive).map_err(|refused| refused.into_failure(&format!("drive {name}: ")))?;
    }
    let control = sockets.join(control::NAME);
    let listen = || control::listen(&sockets, process.clone());
    let ((), _leftover) =
        interrupt::leftover_of(&control, listen).map_err(|error| Failure::io(control.display(), &error))?;
    let metrics = match options.metrics {
        Some(address) => Some(
            scrape::listen(address, process.clone())
                .map_err(|error| Failure::io(format_args!("metrics at {address}"), &error))?,
        ),
        None => None,
    };
    report.object(&serde_json::json!({
        "event": "listening", "command": "csd", "drives": process.state(), "metrics": metrics,
    }));
    for state in process.state() {
        state.lines().iter().for_each(|line| report.remark(format_args!("dcs: {line}")));
    }
    report.remark(format_args!("dcs: commands at {}", control.display()));
    if let Some(address) = metrics {
        report.remark(format_args!("dcs: metrics at http://{address}/metrics"));
    }
    // Serves until a signal ends the process.
    loop {
        std::thread::park();
    }
}

fn no_storage(error: std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("the storage cannot be used: {error}"))
        .advise("it needs io_uring: see the sysctl kernel.io_uring_disabled")
}
