//! Man pages, from the definitions of the command line itself.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::io;
use std::path::Path;

/// Writes the page of a command, and those of its subcommands that are not hidden: `dcs.1`, `dcs-send.1` and
/// so on.
pub fn write(folder: &Path, command: &Command) -> io::Result<()> {
    let man = Man::new(command.clone()).manual("dcs");
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
    command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .try_for_each(|command| write(folder, command))
}

/// The text behind the options in the help, line for line: its columns mean something.
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
