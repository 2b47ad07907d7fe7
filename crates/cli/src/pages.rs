//! Man pages and shell completions, generated from the definition of the command line: `make install` has them written
//! into a folder and installs each.
//!
//! Programs that `dcs` starts have described their commands there before, and have written their own pages.

use crate::args::Arguments;
use crate::failure::Failure;
use crate::names;
use clap::{Command, CommandFactory};
use clap_complete::aot::{Bash, Fish, Zsh, generate_to};
use dcs_console::pages;
use std::io;
use std::path::Path;

const NAME: &str = "dcs";

/// Writes `dcs.1`, `dcs-send.1` and so on, `dcs.bash`, `_dcs` and `dcs.fish`.
pub fn run(folder: &Path) -> Result<(), Failure> {
    write(folder).map_err(|error| Failure::io(names::shown(folder), &error))
}

fn write(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let (mut whole, described) = with_companions(folder)?;
    generate_to(Bash, &mut whole, NAME, folder)?;
    generate_to(Zsh, &mut whole, NAME, folder)?;
    generate_to(Fish, &mut whole, NAME, folder)?;
    let mut own = shown().disable_help_subcommand(true);
    own.build();
    pages::write(folder, &own, &|name| described.iter().any(|described| described == name))
}

/// Returns the command with those of the programs that it starts, and their names, as far as they are described.
fn with_companions(folder: &Path) -> io::Result<(Command, Vec<String>)> {
    let mut described = Vec::new();
    let mut subcommands = Vec::new();
    for command in shown().get_subcommands() {
        match pages::companion(folder, command.get_name())? {
            Some(companion) => {
                described.push(command.get_name().to_string());
                subcommands.push(companion);
            }
            None => subcommands.push(command.clone()),
        }
    }
    Ok((base().subcommands(subcommands), described))
}

/// Returns the command without its hidden subcommands, which are for this program's own processes: completions would
/// offer them.
fn shown() -> Command {
    let all = Arguments::command();
    base().subcommands(all.get_subcommands().filter(|command| !command.is_hide_set()).cloned())
}

/// Returns the command without any subcommand.
fn base() -> Command {
    let all = Arguments::command();
    Command::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .about(all.get_about().cloned().unwrap_or_default())
        .after_help(all.get_after_help().cloned().unwrap_or_default())
        .args(all.get_arguments().cloned())
        .subcommand_required(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> (tempfile::TempDir, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path()).unwrap();
        let names = std::fs::read_dir(folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        (folder, names)
    }

    #[test]
    fn every_command_that_help_shows_has_a_page_and_no_other() {
        fn visit(command: &Command, name: &str, all: &mut Vec<String>) {
            all.push(format!("{name}.1"));
            for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
                visit(command, &format!("{name}-{}", command.get_name()), all);
            }
        }
        let mut expected = Vec::new();
        visit(&Arguments::command(), NAME, &mut expected);
        let (_folder, names) = written();
        let mut pages: Vec<String> = names.into_iter().filter(|name| name.ends_with(".1")).collect();
        expected.sort();
        pages.sort();
        assert_eq!(pages, expected);
    }

    #[test]
    fn a_page_has_the_options_and_the_examples_as_help_has_them() {
        let (folder, _names) = written();
        let page = std::fs::read_to_string(folder.path().join("dcs-send.1")).unwrap();
        for part in [".SH NAME", ".SH SYNOPSIS", "through", ".EX\nExamples:", "tar c src | dcs send"] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
    }

    #[test]
    fn completions_know_what_a_companion_describes_and_its_pages_stay() {
        let folder = tempfile::tempdir().unwrap();
        let option = clap::Arg::new("clients").long("clients");
        let bench = Command::new("bench").subcommand(Command::new("s3").arg(option));
        pages::write_companion(folder.path(), Command::new(NAME).subcommand(bench), &["bench"]).unwrap();
        let page = std::fs::read(folder.path().join("dcs-bench.1")).unwrap();
        run(folder.path()).unwrap();
        assert_eq!(std::fs::read(folder.path().join("dcs-bench.1")).unwrap(), page);
        for name in ["dcs.bash", "_dcs", "dcs.fish"] {
            let script = std::fs::read_to_string(folder.path().join(name)).unwrap();
            assert!(script.contains("clients") && script.contains("through"), "{name}");
        }
    }

    #[test]
    fn completions_know_commands_and_options_and_nothing_that_is_hidden() {
        let (folder, _names) = written();
        for name in ["dcs.bash", "_dcs", "dcs.fish"] {
            let script = std::fs::read_to_string(folder.path().join(name)).unwrap();
            assert!(script.contains("send") && script.contains("through"), "{name}");
            assert!(!script.contains("pages"), "{name}");
        }
    }
}
