//! Man pages and completions, generated from the definition of the command line.
//!
//! A program that `dcs` starts ([`write_companion`]) writes its own pages, and describes its commands in a file. `dcs`
//! reads that ([`companion`]) when it writes the completions of all commands.

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};

/// Writes the page of a command, and those of its subcommands that are neither hidden nor excluded by name: `dcs.1`,
/// `dcs-send.1` and so on.
pub fn write(folder: &Path, command: &Command, leave_out: &dyn Fn(&str) -> bool) -> io::Result<()> {
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
        .filter(|command| !command.is_hide_set() && !leave_out(command.get_name()))
        .try_for_each(|command| write(folder, command, leave_out))
}

/// Formats the text after the options in the help, line by line, because its columns mean something.
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

/// Writes the pages of a program that `dcs` starts, for these of its commands, and their descriptions.
pub fn write_companion(folder: &Path, all: Command, names: &[&str]) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for name in names {
        let command = all.find_subcommand(name).ok_or(io::ErrorKind::NotFound)?;
        std::fs::write(description(folder, name), described(command).to_string())?;
    }
    let mut all = all.disable_help_subcommand(true);
    all.build();
    let commands = names.iter().filter_map(|name| all.find_subcommand(name));
    commands.into_iter().try_for_each(|command| write(folder, command, &|_| false))
}

/// Returns the command of that name as a program that `dcs` starts has described it in the folder; `None` if none has.
/// It is only for completions, and parses nothing.
pub fn companion(folder: &Path, name: &str) -> io::Result<Option<Command>> {
    match std::fs::read(description(folder, name)) {
        Ok(text) => Ok(Some(rebuilt(&serde_json::from_slice(&text)?))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn description(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.json"))
}

/// Describes the part of a command that completions need, without what help hides.
fn described(command: &Command) -> Value {
    let argument = |argument: &Arg| {
        let values = argument.get_possible_values();
        let value = |value: &PossibleValue| json!({ "name": value.get_name(), "help": value.get_help().map(ToString::to_string) });
        json!({
            "id": argument.get_id().as_str(),
            "long": argument.get_long(),
            "short": argument.get_short(),
            "help": argument.get_help().map(ToString::to_string),
            "global": argument.is_global_set(),
            "takes_value": argument.get_action().takes_values(),
            "repeated": matches!(argument.get_action(), ArgAction::Append),
            "value_name": argument.get_value_names().and_then(|names| names.first()).map(|name| name.as_str()),
            "values": values.iter().filter(|value| !value.is_hide_set()).map(value).collect::<Vec<_>>(),
        })
    };
    json!({
        "name": command.get_name(),
        "about": command.get_about().map(ToString::to_string),
        "arguments": command.get_arguments().filter(|one| !one.is_hide_set()).map(argument).collect::<Vec<_>>(),
        "subcommands": command.get_subcommands().filter(|one| !one.is_hide_set()).map(described).collect::<Vec<_>>(),
    })
}

fn rebuilt(described: &Value) -> Command {
    // clap keeps names as long as the program runs.
    let text = |value: &Value| value.as_str().map(|text| &*text.to_string().leak());
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let argument = |value: &Value| {
        let mut argument = Arg::new(text(&value["id"]).unwrap_or_default())
            .help(text(&value["help"]).unwrap_or_default())
            .global(value["global"] == true);
        if let Some(long) = text(&value["long"]) {
            argument = argument.long(long);
        }
        if let Some(short) = text(&value["short"]).and_then(|text| text.chars().next()) {
            argument = argument.short(short);
        }
        if value["takes_value"] != true {
            return argument.action(ArgAction::SetTrue);
        }
        if let Some(name) = text(&value["value_name"]) {
            argument = argument.value_name(name);
        }
        let known = |value: &Value| {
            let known = PossibleValue::new(text(&value["name"]).unwrap_or_default());
            known.help(text(&value["help"]).unwrap_or_default())
        };
        let known: Vec<PossibleValue> = list(&value["values"]).iter().map(known).collect();
        if !known.is_empty() {
            argument = argument.value_parser(known);
        }
        argument.action(if value["repeated"] == true { ArgAction::Append } else { ArgAction::Set })
    };
    Command::new(text(&described["name"]).unwrap_or_default())
        .about(text(&described["about"]).unwrap_or_default())
        .args(list(&described["arguments"]).iter().map(argument))
        .subcommands(list(&described["subcommands"]).iter().map(rebuilt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_companion_describes_its_commands_and_nothing_that_is_hidden() {
        let size = Arg::new("size").long("size").short('s').value_name("SIZE").help("Bytes");
        let pick = Arg::new("pick").value_parser(["one", "other"]).action(ArgAction::Append);
        let bench =
            Command::new("bench").about("Measures").arg(size).subcommand(Command::new("s3").arg(pick));
        let bench = bench.subcommand(Command::new("secret").hide(true));
        let all = Command::new("dcs").subcommand(bench).subcommand(Command::new("worker").hide(true));
        let folder = tempfile::tempdir().unwrap();
        write_companion(folder.path(), all.clone(), &["bench"]).unwrap();
        let read = companion(folder.path(), "bench").unwrap().unwrap();
        let names = |command: &Command| {
            let arguments = command.get_arguments().map(|one| one.get_id().to_string());
            let names = command.get_subcommands().map(|one| one.get_name().to_string());
            arguments.chain(names).collect::<Vec<_>>()
        };
        assert_eq!(names(&read), ["size", "s3"]);
        let size = read.get_arguments().next().unwrap();
        assert_eq!((size.get_long(), size.get_short()), (Some("size"), Some('s')));
        let pick = read.find_subcommand("s3").unwrap().get_arguments().next().unwrap();
        let values: Vec<_> =
            pick.get_possible_values().iter().map(|one| one.get_name().to_string()).collect();
        assert_eq!(values, ["one", "other"]);
        assert!(folder.path().join("dcs-bench.1").exists() && folder.path().join("dcs-bench-s3.1").exists());
        assert!(!folder.path().join("dcs-bench-secret.1").exists());
        assert!(companion(folder.path(), "vm").unwrap().is_none());
        assert!(write_companion(folder.path(), all, &["fly"]).is_err());
    }
}
