//! The `dcs` command: moves bytes through an engine, from a shell.
//!
//! | module | what it holds |
//! |---|---|
//! | `args`, `units` | the command line and its help |
//! | `send`, `recv`, `copy`, `ops`, `demo`, `bench`, `preload` (`dcs run`), `serve`, `scrub`, `doctor`, `server` | one subcommand each |
//! | `chain`, `keys` | operators, keys and counters as people give them |
//! | `input`, `target`, `address` | files, pipes and sockets as people name them |
//! | `closed` | standard input and output that were closed from the start |
//! | `identity`, `sparse`, `replace` | what cp promises: same files, holes, owners and modes |
//! | `pages` | man pages and completions, for `make install` |
//! | `outgoing` | the connection of `dcs send`, which is reset unless all went well |
//! | `transfer` | runs one transfer: progress, Ctrl-C |
//! | `card`, `nvme`, `nic` | sending and receiving on a card; SSDs, and a NIC, that the engine drives itself |
//! | `failure`, `report` | what went wrong, what was done; for people and as JSON |
//! | `workload` | what the demo and the benchmark have in common |
//! | `operate` | a chain of operators without an engine |
#![deny(unsafe_code)]

mod address;
mod args;
mod bench;
mod card;
mod chain;
mod closed;
mod copy;
mod demo;
mod doctor;
#[cfg(test)]
mod documents;
mod expect;
mod failure;
mod identity;
mod input;
mod interrupt;
mod keys;
mod nic;
mod nvme;
mod operate;
mod ops;
mod outgoing;
mod pages;
mod preload;
mod recv;
mod replace;
mod report;
mod scrub;
mod send;
mod serve;
mod server;
mod sparse;
mod target;
mod transfer;
mod units;
mod watch;
mod workload;

use args::{Arguments, Command};
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};
use failure::Failure;
use report::Report;

fn main() -> std::process::ExitCode {
    let arguments = Arguments::try_parse().unwrap_or_else(|error| refused(error));
    let report = Report::new(&arguments);
    let result = match &arguments.command {
        Command::Send(send) => send::run(send, &report),
        Command::Recv(recv) => recv::run(recv, &report),
        Command::Copy(copy) => copy::run(copy, &report),
        Command::Ops(ops) => ops::run(ops, &report),
        Command::Run(options) => preload::run(options, &report),
        Command::Serve(options) => serve::run(options, &report),
        Command::Scrub(options) => scrub::run(options, &report),
        Command::Doctor(options) => doctor::run(options, &report),
        Command::Server(options) => server::run(options, &report),
        Command::Card(options) => server::card::run(options, &report),
        Command::Pages { folder } => pages::run(folder),
        Command::Demo(demo) => demo::run(demo, &report),
        Command::Bench(options) => bench::run(options, &report),
        Command::BenchControl { contender, transfers } => bench::control::child(contender, *transfers),
        Command::BenchServer => bench::server::run(),
        Command::BenchClient => bench::client::run(),
        Command::BenchHog { cores } => {
            bench::measure::hog(cores).map_err(|error| Failure::io("bench hog", &error))
        }
        Command::BenchLoad => bench::serve::load::run(),
        Command::BenchBecome { cores, command } => bench::serve::process::become_program(cores, command),
        Command::ServerEnvironment { sets } => server::guest::environment(*sets),
        Command::ServerGuest { orders } => server::guest::run(*orders),
        Command::ServerWorker => server::worker::run(),
        Command::DemoWorker => demo::worker::run(),
    };
    match result.and_then(|()| report.check_told()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(failure) => {
            report.failure(&failure);
            std::process::ExitCode::from(failure.exit as u8)
        }
    }
}

/// Says what is wrong with the command line, or gives the help that was asked for, and ends. Subcommands that are hidden are
/// for this program's own processes, and not suggested.
fn refused(mut error: clap::Error) -> ! {
    if let Some(ContextValue::Strings(mut names)) = error.remove(ContextKind::SuggestedSubcommand) {
        let command = Arguments::command();
        let is_hidden = |name: &String| command.find_subcommand(name).is_some_and(clap::Command::is_hide_set);
        names.retain(|name| !is_hidden(name));
        if !names.is_empty() {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
        }
    }
    error.exit()
}
