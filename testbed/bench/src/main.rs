//! `dcs-bench`: the demo, the benchmarks and the virtual server. `dcs demo`, `dcs bench`, `dcs vm` and `dcs csd demo`
//! start it.
//!
//! # Architecture
//!
//! ```text
//!   a job --> contenders, in turns (harness) --> runs: time, CPU time, calls --> medians --> table, plot, JSON
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `args` | the command line and its help |
//! | `demo` | `dcs demo` |
//! | `host` | `dcs bench host`: jobs of the engine on this machine |
//! | `s3` | `dcs bench s3`: object servers |
//! | `sim` | `dcs bench sim`: servers in virtual time |
//! | `guest` | `dcs vm` and `dcs bench guest`: a server in QEMU; `dcs csd demo` |
//! | `csd` | `dcs bench csd`: virtual drives |
//! | `stream` | `dcs bench stream`: videos in datagrams |
//! | `apps`, `gpu` | `dcs bench apps`, `dcs bench gpu` |
//! | `harness` | parts that all have in common |
//! | `command` | finds the `dcs` next to this program |
//!
//! # What it doesn't implement
//!
//! Contenders: they are programs and libraries that users would take otherwise, installed or built in pinned versions.
//!
//! The feature `benchmarks` adds all but the demo, `dcs vm demo`, `dcs vm shell`, `dcs bench host` and `dcs bench
//! cores`.
#![deny(unsafe_code)]
// The demo alone uses only a part of the harness.
#![cfg_attr(not(feature = "benchmarks"), allow(dead_code))]

#[cfg(feature = "benchmarks")]
mod apps;
mod args;
mod command;
#[cfg(feature = "benchmarks")]
mod csd;
mod demo;
#[cfg(test)]
mod documents;
#[cfg(feature = "benchmarks")]
mod gpu;
mod guest;
mod harness;
mod host;
#[cfg(feature = "benchmarks")]
mod s3;
#[cfg(feature = "benchmarks")]
mod sim;
#[cfg(feature = "benchmarks")]
mod stream;

use args::{Arguments, BenchCommand, Command, CsdCommand, VmCommand};
use clap::{CommandFactory, Parser};
use dcs_console::refusal::refuse;
use dcs_console::{failure, interrupt, operate, pages, report, units};
use failure::Failure;
use report::Report;

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
    match command {
        Command::Demo(options) => demo::run(options, report),
        Command::Bench(bench) => match &bench.command {
            None => host::run(&bench.host, report),
            Some(BenchCommand::Host(options)) => host::run(options, report),
            Some(BenchCommand::Cores(options)) => host::cores::run(options, report),
            #[cfg(feature = "benchmarks")]
            Some(BenchCommand::S3(options)) => s3::run(options, report),
            #[cfg(feature = "benchmarks")]
            Some(BenchCommand::Sim(options)) => sim::run(options, report),
            #[cfg(feature = "benchmarks")]
            Some(BenchCommand::Guest(options)) => guest::experiments::run(options, report),
            #[cfg(feature = "benchmarks")]
            Some(BenchCommand::Apps(options)) => apps::run(options, report),
            #[cfg(feature = "benchmarks")]
            Some(BenchCommand::Csd(options)) => csd::run(options, report),
            #[cfg(feature = "benchmarks")]
            Some(BenchCommand::Gpu(options)) => gpu::run(options, report),
            #[cfg(feature = "benchmarks")]
            Some(BenchCommand::Stream(options)) => stream::run(options, report),
        },
        Command::Vm(vm) => match &vm.command {
            VmCommand::Demo(options) => guest::demo::run(options, report),
            VmCommand::Shell(options) => guest::shell::run(options, report),
            #[cfg(feature = "benchmarks")]
            VmCommand::D2d(options) => guest::d2d::run(options, report),
        },
        Command::Csd(csd) => match &csd.command {
            CsdCommand::Demo(options) => guest::drives::run(options, report),
        },
        Command::BenchPages { folder } => {
            pages::write_companion(folder, Arguments::command(), &["demo", "bench", "vm"])
                .map_err(|error| Failure::io(folder.display(), &error))
        }
        Command::GuestCard { socket, engine, faults } => guest::card::run(socket, *engine, faults),
        Command::GuestEnvironment { sets } => guest::agent::environment(*sets),
        Command::GuestAgent { from } => guest::agent::run(*from),
        Command::GuestWorker => guest::worker::run(),
        Command::GuestDrive { seed, bytes, virtio } => guest::drives::agent(*seed, *bytes, *virtio),
        Command::BenchControl { contender, transfers } => host::control::child(contender, *transfers),
        Command::BenchServer => host::server::run(),
        Command::BenchClient => host::client::run(),
        Command::BenchHog { cores } => {
            host::measure::hog(cores).map_err(|error| Failure::io("bench hog", &error))
        }
        Command::BenchMemoryHog { cores } => {
            host::measure::memory_hog(cores).map_err(|error| Failure::io("bench memory hog", &error))
        }
        #[cfg(feature = "benchmarks")]
        Command::BenchLoad => s3::load::run(),
        #[cfg(feature = "benchmarks")]
        Command::BenchBecome { cores, command } => s3::process::become_program(cores, command),
    }
}
