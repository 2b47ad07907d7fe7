//! Checks that this program takes every `dcs demo`, `dcs bench` and `dcs vm` command in README, docs and help.

use crate::args::{Arguments, BenchCommand, Command};
use crate::host::job::Job;
use dcs_documents::Program;

const PROGRAM: Program<Arguments> = Program { name: "dcs-bench", unfit };

/// Checks the jobs, which clap does not parse.
fn unfit(arguments: &Arguments) -> Option<String> {
    let Command::Bench(bench) = &arguments.command else { return None };
    let host = match &bench.command {
        None => &bench.host,
        Some(BenchCommand::Host(host)) => host,
        _ => return None,
    };
    let jobs = host.jobs.iter().filter(|job| *job != "control");
    jobs.filter_map(|job| Job::parse(job).err()).map(|failure| failure.line).next()
}

#[test]
fn commands_of_readme_and_docs_are_understood() {
    PROGRAM.check_documents(30);
}

#[test]
fn commands_of_help_are_understood() {
    PROGRAM.check_help(30);
}

#[test]
fn a_wrong_command_is_found() {
    PROGRAM.check_finds(&[
        "dcs bench 'file>md6>socket'",
        "dcs bench host 'file>md6>socket'",
        "dcs bench guest everything",
        "dcs bench serve",
        "dcs help vm shel",
        "dcs demo --sise 1M",
    ]);
}
