//! Man pages and shell completions, written from the definitions of the command line itself: `make install` has them written into a
//! folder and puts each where it belongs.

use crate::args::Arguments;
use crate::failure::Failure;
use clap::{Command, CommandFactory};
use clap_complete::aot::{Bash, Fish, Zsh, generate_to};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::io;
use std::path::Path;

const NAME: &str = "dcs";

/// Writes `dcs.1`, `dcs-send.1` and so on, `dcs.bash`, `_dcs` and `dcs.fish`.
pub fn run(folder: &Path) -> Result<(), Failure> {
    write(folder).map_err(|error| Failure::io(folder.display(), &error))
}

fn write(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut command = shown();
    generate_to(Bash, &mut command, NAME, folder)?;
    generate_to(Zsh, &mut command, NAME, folder)?;
    generate_to(Fish, &mut command, NAME, folder)?;
    let mut command = shown().disable_help_subcommand(true);
    command.build();
    write_pages(folder, &command)
}

/// The command without its hidden subcommands, which are for this program's own processes: completions would offer them.
fn shown() -> Command {
    let all = Arguments::command();
    let subcommands = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    Command::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .about(all.get_about().cloned().unwrap_or_default())
        .after_help(all.get_after_help().cloned().unwrap_or_default())
        .args(all.get_arguments().cloned())
        .subcommands(subcommands)
        .subcommand_required(true)
}

/// The page of a command, and those of its subcommands.
fn write_pages(folder: &Path, command: &Command) -> io::Result<()> {
    let man = Man::new(command.clone()).manual(NAME);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(help) = command.get_after_help() {
        examples(&help.to_string()).to_writer(&mut page)?;
    }
    std::fs::write(folder.join(man.get_filename()), page)?;
    command.get_subcommands().try_for_each(|command| write_pages(folder, command))
}

/// What stands behind the options in the help, line for line: its columns mean something.
fn examples(help: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXAMPLES AND NOTES"]);
    roff.control("EX", []);
    help.lines().for_each(|line| {
        roff.text([roman(line)]);
    });
    roff.control("EE", []);
    roff
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
    fn completions_know_commands_and_options_and_nothing_that_is_hidden() {
        let (folder, _names) = written();
        for name in ["dcs.bash", "_dcs", "dcs.fish"] {
            let script = std::fs::read_to_string(folder.path().join(name)).unwrap();
            assert!(script.contains("send") && script.contains("through"), "{name}");
            assert!(!script.contains("pages"), "{name}");
        }
    }
}
