//! Finds the `dcs` commands in README, SPECIFICATION, CONTRIBUTING, SECURITY, docs and help, so that the programs' tests can
//! check each of them.
//!
//! # Architecture
//!
//! A line of a code block that names `dcs` is a command: [`Shown`]. The program whose subcommand it is parses it with the parser that its
//! users meet, so that no document shows an option that is not there.
//!
//! # What it doesn't implement
//!
//! Running them: `crates/cli/tests/suite/documents.rs` does that, for those that need neither root nor another machine.
#![forbid(unsafe_code)]

use clap::Parser;
use clap::error::ErrorKind;
use std::path::{Path, PathBuf};

/// Commands of other programs; all others are those of `dcs` itself.
const COMPANIONS: [(&str, &[&str]); 2] = [("dcs-bench", &["demo", "bench", "vm"]), ("dcs-csd", &["csd"])];

/// Returns all commands in README, SPECIFICATION and docs.
fn of_documents() -> Vec<Shown> {
    let text = |path: PathBuf| (path.display().to_string(), std::fs::read_to_string(path).unwrap());
    files().into_iter().map(text).flat_map(|(name, text)| shown(&name, &text)).collect()
}

/// Returns all commands in the help of a program and its subcommands.
fn of_help(command: &clap::Command) -> Vec<Shown> {
    fn visit(command: &clap::Command, name: &str, all: &mut Vec<Shown>) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        all.extend(shown(name, &help));
        for command in command.get_subcommands() {
            visit(command, &format!("{name} {}", command.get_name()), all);
        }
    }
    let mut all = Vec::new();
    visit(command, "dcs", &mut all);
    all
}

impl Shown {
    /// Returns the program that has the command.
    fn program(&self) -> &'static str {
        let named = self.words.iter().find(|word| !word.starts_with('-') && *word != "help");
        let has = |commands: &[&str]| named.is_some_and(|word| commands.contains(&word.as_str()));
        COMPANIONS.iter().find(|(_, commands)| has(commands)).map_or("dcs", |(program, _)| program)
    }
}

/// Words in capitals that stand for values.
const STAND_INS: [(&str, &str); 4] =
    [("COMMAND", "send"), ("JOB", "file>socket"), ("...", "more"), ("ADDRESS/PREFIX", "10.0.0.1/24")];

/// Returns the path of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// Returns every file that shows commands.
fn files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = ["README.md", "SPECIFICATION.md", "CONTRIBUTING.md", "SECURITY.md"]
        .iter()
        .map(|name| root().join(name))
        .collect();
    let docs = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    files.extend(docs.filter(|path| path.extension().is_some_and(|end| end == "md")));
    files
}

/// A command, and its place.
pub struct Shown {
    /// File and line.
    pub at: String,
    /// The words after `dcs`.
    pub words: Vec<String>,
    /// True if it is on a line of its own, to be typed; false for a mention in a sentence.
    pub is_whole: bool,
}

/// Returns all commands in a text.
pub fn shown(name: &str, text: &str) -> Vec<Shown> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        let at = || format!("{name}:{}", number + 1);
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let code = fenced || line.starts_with("    ") || line.starts_with("  dcs ");
        if code {
            let whole = commands(line.trim()).into_iter();
            found.extend(whole.map(|words| Shown { at: at(), words, is_whole: true }));
        } else {
            let spans = line.split('`').skip(1).step_by(2);
            let spans = spans.flat_map(commands);
            found.extend(spans.map(|words| Shown { at: at(), words, is_whole: false }));
        }
    }
    found
}

/// Returns the `dcs` commands in a line of shell, each as its words after `dcs`.
fn commands(line: &str) -> Vec<Vec<String>> {
    let is_dcs = |word: &str| word == "dcs" || word.ends_with("/dcs");
    let first = line.split_whitespace().next().unwrap_or_default();
    let begins = is_dcs(first) || first == "sudo" || first.contains('=') || line.contains("| dcs ");
    if !begins {
        return Vec::new();
    }
    let mut found = Vec::new();
    for part in parts(line) {
        let mut words = part.into_iter().skip_while(|word| word == "sudo" || is_assignment(word));
        if words.next().is_some_and(|word| is_dcs(&word)) {
            let words: Vec<String> = words.collect();
            // The name alone is a mention.
            found.extend(Some(words).filter(|words| !words.is_empty()));
        }
    }
    found
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name);
    !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}

/// Splits a line at pipes and semicolons, and each part into words as a shell does. Leaves out redirections, comments, and
/// remarks, which follow a wide gap.
fn parts(line: &str) -> Vec<Vec<String>> {
    let mut parts = vec![Vec::new()];
    let mut word = String::new();
    let (mut quote, mut quoted, mut depth, mut skip) = (None, false, 0, false);
    let mut rest = line.chars().peekable();
    let mut gap = 0;
    while let Some(c) = rest.next() {
        gap = if c == ' ' && quote.is_none() { gap + 1 } else { 0 };
        match c {
            _ if quote == Some(c) => quote = None,
            _ if quote.is_some() => word.push(c),
            '\'' | '"' => (quote, quoted) = (Some(c), true),
            '(' if word.ends_with('$') => (depth, word) = (depth + 1, word + "("),
            ')' if depth > 0 => (depth, word) = (depth - 1, word + ")"),
            _ if depth > 0 => word.push(if c == ' ' { '_' } else { c }),
            '#' if word.is_empty() => break,
            ' ' if gap > 3 => break,
            ' ' => end(&mut word, &mut quoted, &mut skip, &mut parts),
            '|' | ';' | '&' => {
                end(&mut word, &mut quoted, &mut skip, &mut parts);
                parts.push(Vec::new());
            }
            '>' | '<' => {
                end(&mut word, &mut quoted, &mut skip, &mut parts);
                skip = true;
                while rest.next_if_eq(&' ').is_some() {}
            }
            _ => word.push(c),
        }
    }
    end(&mut word, &mut quoted, &mut skip, &mut parts);
    parts
}

/// Ends a word. It belongs to the last part, unless it is the file of a redirection.
fn end(word: &mut String, quoted: &mut bool, skip: &mut bool, parts: &mut [Vec<String>]) {
    let word = std::mem::take(word);
    let is_word = std::mem::take(quoted) || !word.is_empty();
    if is_word
        && !std::mem::take(skip)
        && let Some(part) = parts.last_mut()
    {
        part.push(word);
    }
}

/// Replaces stand-ins by values.
fn filled_in(words: &[String]) -> Vec<String> {
    let fill = |word: &String| {
        let stand_in = STAND_INS.iter().find(|(name, _)| word == name);
        let word = stand_in.map_or(word.as_str(), |(_, value)| value);
        word.replace("$iv", &"0".repeat(32)).replace("$sum", &"0".repeat(32))
    };
    words.iter().map(fill).collect()
}

/// Returns the error in a command, if any, found by the parser of its program's command line, or by `unfit`, which checks the
/// rest.
pub fn wrong<A: Parser>(shown: &Shown, unfit: fn(&A) -> Option<String>) -> Option<String> {
    let words = filled_in(&shown.words);
    match A::try_parse_from(std::iter::once("dcs".to_string()).chain(words)) {
        Ok(arguments) => unfit(&arguments),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
            // The name of a command, or of one of its options, in a sentence.
            ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                if !shown.is_whole =>
            {
                None
            }
            ErrorKind::InvalidValue if !shown.is_whole && error.to_string().contains("none was supplied") => {
                None
            }
            _ => Some(error.to_string()),
        },
    }
}

/// A program, which checks its own commands.
pub struct Program<A> {
    /// Name of its file.
    pub name: &'static str,
    /// Checks what its parser does not, and returns the error.
    pub unfit: fn(&A) -> Option<String>,
}

impl<A: Parser> Program<A> {
    /// Checks its commands in the documents, at least this many whole lines.
    ///
    /// # Panics
    ///
    /// If one is wrong, or there are fewer.
    pub fn check_documents(&self, least: usize) {
        self.check(of_documents(), least);
    }

    /// Checks its commands in its help, at least this many whole lines.
    ///
    /// # Panics
    ///
    /// If one is wrong, or there are fewer.
    pub fn check_help(&self, least: usize) {
        self.check(of_help(&A::command()), least);
    }

    /// Checks that the error in each of these commands is found.
    ///
    /// # Panics
    ///
    /// If one is not found.
    pub fn check_finds(&self, wrong_ones: &[&str]) {
        for line in wrong_ones {
            let found = shown("here", &format!("    {line}"));
            assert!(found.len() == 1 && wrong(&found[0], self.unfit).is_some(), "{line}");
        }
    }

    fn check(&self, all: Vec<Shown>, least: usize) {
        let all: Vec<Shown> = all.into_iter().filter(|shown| shown.program() == self.name).collect();
        let whole = all.iter().filter(|shown| shown.is_whole).count();
        assert!(whole >= least, "only {whole} commands were found");
        let said = |shown: &Shown| {
            Some(format!("{}: dcs {}: {}", shown.at, shown.words.join(" "), wrong(shown, self.unfit)?))
        };
        let wrong: Vec<String> = all.iter().filter_map(said).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_lines() {
        let all = |line: &str| commands(line).iter().map(|words| words.join(" ")).collect::<Vec<_>>();
        assert_eq!(all("sudo dcs doctor --bind 01:00.0   # takes it"), ["doctor --bind 01:00.0"]);
        assert_eq!(all("tar c src | dcs send - there:9000 > log"), ["send - there:9000"]);
        assert_eq!(all("DCS_KEY=$(openssl rand -hex 32) dcs send a b:1"), ["send a b:1"]);
        assert_eq!(
            all("dcs bench 'file>md5>socket' --json | jq -r '.x | .y'"),
            ["bench file>md5>socket --json"]
        );
        assert_eq!(all("dcs vm demo            guest: stock Linux"), ["vm demo"]);
        assert_eq!(all("leave out gpu:; dcs doctor tells of GPUs"), [""; 0]);
        assert_eq!(all("iv=$(openssl rand -hex 16); dcs recv 9000 b"), ["recv 9000 b"]);
    }
}
