//! `dcs demo`, `dcs bench` and `dcs vm` are commands of `dcs-bench`, a program that is not part of an installation. It is
//! started in place of this one, with the same arguments, as git and cargo start theirs.

use crate::failure::{Exit, Failure};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

const PROGRAM: &str = "dcs-bench";
/// Its commands, as the command line here lists them.
const COMMANDS: [&str; 3] = ["demo", "bench", "vm"];

/// Whether the command line is `dcs help COMMAND`, with one of its commands: what else it may say is known there alone.
pub fn is_asked_for_help() -> bool {
    let mut words = std::env::args_os().skip(1);
    words.next().is_some_and(|word| word == "help")
        && words.next().is_some_and(|word| COMMANDS.iter().any(|command| word == *command))
}

/// Becomes `dcs-bench`: the one beside this program, else the first in PATH. Returns where there is none.
pub fn start() -> Failure {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let beside = beside().filter(|path| path.is_file());
    let error = Command::new(beside.unwrap_or_else(|| PROGRAM.into())).args(&arguments).exec();
    match error.kind() {
        ErrorKind::NotFound => Failure::new(
            Exit::NotFound,
            format!(
                "there is no {PROGRAM} beside this dcs, nor in PATH: demo, bench and vm are its commands"
            ),
        )
        .advise("build it in a source tree of dcs: cargo build --release -p dcs-bench"),
        _ => Failure::io(PROGRAM, &error),
    }
}

fn beside() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.with_file_name(PROGRAM))
}
