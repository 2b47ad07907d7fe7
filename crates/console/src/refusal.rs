//! Refusing a command line.

use clap::error::{ContextKind, ContextValue};

/// Says what is wrong with the command line, or gives the help that was asked for, and ends. Subcommands that
/// are hidden are not for people, and not suggested.
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
