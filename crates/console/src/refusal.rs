//! Refuses a command line.

use clap::error::{ContextKind, ContextValue};

/// Prints what is wrong with the command line, or the requested help, and ends the process. Hidden subcommands are not
/// for people, and are not suggested.
pub fn refuse(mut error: clap::Error, command: &clap::Command) -> ! {
    if let Some(ContextValue::Strings(mut names)) = error.remove(ContextKind::SuggestedSubcommand) {
        let is_hidden = |name: &String| command.find_subcommand(name).is_some_and(clap::Command::is_hide_set);
        names.retain(|name| !is_hidden(name));
        if !names.is_empty() {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
        }
    }
    error.exit()
}
