//! The `dcs` command: moves bytes through an engine, from a shell.
//!
//! # Architecture
//!
//! ```text
//!   arguments --args--> a subcommand --source, chain, sink--> a request --transfer--> dcs: the engine of this process
//!                          |                                     |
//!                          +-- companion: another program        +-- progress, Ctrl-C, a deadline; then summary
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `args` | the command line and its help |
//! | `send`, `recv`, `copy`, `stream`, `record`, `ops`, `run`, `serve`, `scrub`, `doctor` | one subcommand each |
//! | `serve_card`, `lend` | `dcs card`, and what its function 0 lends to the others |
//! | `d2d` | `dcs d2d`: an SSD and a NIC for QEMU, and their driver |
//! | `companion` | `dcs demo`, `dcs bench`, `dcs vm` and `dcs csd`, which are other programs' |
//! | `chain`, `keys`, `expect` | operators, keys and counters as people give them; expected digests |
//! | `modules` | users' own operators, in a folder |
//! | `source`, `sink`, `address` | files, pipes and sockets as people name them |
//! | `closed_stdio` | standard input and output that were closed from the start |
//! | `identity`, `sparse`, `replace`, `temp_file` | what cp promises: holes, owners, modes, no half file |
//! | `pages` | man pages and completions, for `make install` |
//! | `outgoing` | the connection of `dcs send`, which is reset unless all went well |
//! | `transfer` | runs one transfer: progress, Ctrl-C |
//! | `deadline` | ends a command whose time is up, whatever the kernel does |
//! | `card`, `nvme`, `nic` | a card; SSDs, and a NIC, that the engine drives itself |
//! | `summary` | what was done; for people and as JSON |
//!
//! Code that it shares with `dcs-bench` is in `dcs_console`: sizes and times, failures, Ctrl-C, reports.
//!
//! # What it doesn't implement
//!
//! * Data paths: every byte of a transfer is moved by the engine ([`dcs`]), the server (`dcs_server`) or the card (`dcs_card`).
//! * Names of parts of a card's SSDs: `dcs lend` lends them, the library opens them.
#![deny(unsafe_code)]

mod address;
mod args;
mod card;
mod chain;
mod closed_stdio;
mod companion;
mod copy;
mod d2d;
mod deadline;
mod doctor;
#[cfg(test)]
mod documents;
mod expect;
mod identity;
mod keys;
mod lend;
mod modules;
mod nic;
mod nvme;
mod ops;
mod outgoing;
mod pages;
mod progress;
mod record;
mod recv;
mod replace;
mod run;
mod scrub;
mod send;
mod serve;
mod serve_card;
mod sink;
mod source;
mod sparse;
mod stream;
mod summary;
mod temp_file;
mod transfer;

use args::{Arguments, Command};
use clap::{CommandFactory, Parser};
use dcs_console::refusal::refuse;
use dcs_console::report::{self, Report};
use dcs_console::{failure, interrupt, names, operate, units};

fn main() -> std::process::ExitCode {
    if let Some(command) = companion::is_asked_for_help() {
        return ended(&Report::new("help", &Default::default()), Err(companion::start(command)));
    }
    let arguments = Arguments::try_parse().unwrap_or_else(|error| refuse(error, &Arguments::command()));
    let report = arguments.report();
    let result = limit(&arguments).and_then(|()| run(&arguments.command, &report));
    ended(&report, result)
}

/// Has a command with a time limit end in time.
fn limit(arguments: &Arguments) -> Result<(), failure::Failure> {
    let moving = match &arguments.command {
        Command::Send(send) => &send.moving,
        Command::Recv(recv) => &recv.moving,
        Command::Copy(copy) => &copy.moving,
        _ => return Ok(()),
    };
    let Some(timeout) = moving.timeout else { return Ok(()) };
    deadline::begin(timeout, arguments.report()).map_err(|error| failure::Failure::io("--timeout", &error))
}

fn run(command: &Command, report: &Report) -> Result<(), failure::Failure> {
    match command {
        Command::Send(send) => send::run(send, report),
        Command::Recv(recv) => recv::run(recv, report),
        Command::Copy(copy) => copy::run(copy, report),
        Command::Stream(options) => stream::run(options, report),
        Command::Record(options) => record::run(options, report),
        Command::Ops(ops) => ops::run(ops, report),
        Command::Run(options) => run::run(options, report),
        Command::Serve(options) => serve::run(options, report),
        Command::Scrub(options) => scrub::run(options, report),
        Command::Doctor(options) => doctor::run(options, report),
        Command::Pages { folder } => pages::run(folder),
        Command::Card(options) => serve_card::run(options, report),
        Command::Lend(options) => lend::run(options, report),
        Command::D2d(options) => d2d::run(options, report),
        Command::Demo(_) => Err(companion::start("demo")),
        Command::Bench(_) => Err(companion::start("bench")),
        Command::Vm(_) => Err(companion::start("vm")),
        Command::Csd(_) => Err(companion::start("csd")),
    }
}

/// Prints a failure. Returns the exit code for its kind.
fn ended(report: &Report, result: Result<(), failure::Failure>) -> std::process::ExitCode {
    let code = match result.and_then(|()| report.check_printed()) {
        Ok(()) => 0,
        Err(failure) => {
            report.failure(&failure);
            failure.exit as u8
        }
    };
    deadline::over(code);
    std::process::ExitCode::from(code)
}
