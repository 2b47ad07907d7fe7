//! Commands of other programs: `dcs demo`, `dcs bench` and `dcs vm` are of `dcs-bench`, which is not part of an
//! installation; `dcs csd` is of `dcs-csd`. Such a program is started in place of this one, with the same arguments, as
//! git and cargo start theirs.

use crate::failure::{Exit, Failure};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// A program with its own commands.
struct Program {
    name: &'static str,
    /// Commands, as the command line here lists them.
    commands: &'static [&'static str],
}

const PROGRAMS: [Program; 2] = [
    Program { name: "dcs-bench", commands: &["demo", "bench", "vm"] },
    Program { name: "dcs-csd", commands: &["csd"] },
];

/// Returns the other program's command that `dcs help COMMAND` asks about, if it does. Only that program knows the
/// rest.
pub fn is_asked_for_help() -> Option<&'static str> {
    let mut words = std::env::args_os().skip(1);
    words.next().filter(|word| word == "help")?;
    let word = words.next()?;
    PROGRAMS.iter().flat_map(|program| program.commands).copied().find(|command| word == *command)
}

/// Becomes the program that has this command: the one next to this program, else the first in PATH. Returns only if
/// there is none.
pub fn start(command: &str) -> Failure {
    let has = |program: &&Program| program.commands.contains(&command);
    let Program { name, commands } =
        PROGRAMS.iter().find(has).expect("the command line lists the commands of these programs");
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let beside = beside(name).filter(|path| path.is_file());
    let error = Command::new(beside.unwrap_or_else(|| name.into())).args(&arguments).exec();
    match error.kind() {
        ErrorKind::NotFound => Failure::new(
            Exit::NotFound,
            format!("no {name} next to this dcs or in PATH, which has {}", listed(commands)),
        )
        .advise(format!("build it in a source tree of dcs: cargo build --release -p {}", package(name))),
        _ => Failure::io(name, &error),
    }
}

/// Returns the package of a program.
fn package(program: &str) -> &str {
    if program == "dcs-csd" { "dcs-csd-cli" } else { program }
}

fn listed(commands: &[&str]) -> String {
    let all: Vec<String> = commands.iter().map(|command| format!("dcs {command}")).collect();
    match all.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => all.concat(),
    }
}

fn beside(program: &str) -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.with_file_name(program))
}
