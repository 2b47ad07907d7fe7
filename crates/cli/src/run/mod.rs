//! `dcs run`: starts a program with `libdcs-preload.so`, so that its sendfile(2) calls go through chains.

mod library;
mod program;

use crate::failure::Failure;
use crate::names::shown;
use crate::report::Report;
use clap::Args;
use dcs_preload_rules::config::{
    Config, ConfigError, FILE_VARIABLE, File, OneOrMany, RuleText, TEXT_VARIABLE,
};
use dcs_preload_rules::{counters, path};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Run a program that uses sendfile(2), with its files going through a chain of operators
#[derive(Debug, Args)]
#[command(after_help = HELP, override_usage = "dcs run [OPTIONS] -- PROGRAM [ARGUMENTS]...\n       dcs run --show FILE")]
pub struct Run {
    /// Rules for several kinds of files, log and counters, as TOML (docs/preload.md)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["through", "path", "port", "key_file", "iv", "until_close"])]
    pub config: Option<PathBuf>,
    /// Operators that the files pass, in order: md5,crc32c
    #[arg(long, value_name = "OPERATORS", value_delimiter = ',')]
    pub through: Vec<String>,
    /// Only files whose path matches: * stands for any characters
    #[arg(long, value_name = "PATTERN")]
    pub path: Vec<OsString>,
    /// Only sockets with this local port
    #[arg(long, value_name = "PORT")]
    pub port: Vec<u16>,
    /// Key of aes256-ctr: raw bytes or hexadecimal digits
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// First counter block of aes256-ctr: xattr:user.NAME of each file, or 32 hexadecimal digits
    #[arg(long, value_name = "WHERE")]
    pub iv: Option<String>,
    /// The receiver reads until the connection is closed, and expects the operators' output instead of the file: allows
    /// gzip
    #[arg(long)]
    pub until_close: bool,
    /// File for the log, a JSON object per line (default: standard error)
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// File in which the program's processes count their calls
    #[arg(long, value_name = "FILE")]
    pub counters: Option<PathBuf>,
    /// Path of libdcs-preload.so (default: DCS_PRELOAD, else the usual places)
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// Print a file of counters, and run nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "config", "through", "counters"])]
    pub show: Option<PathBuf>,
    /// Program to run, with its arguments
    #[arg(last = true, value_name = "PROGRAM", required_unless_present = "show")]
    pub command: Vec<OsString>,
}

const HELP: &str = "\
Examples:
  dcs run --through md5 --log /var/log/sent.jsonl -- nginx -g 'daemon off;'
  dcs run --through sha256 --path '/srv/*' --port 80 --counters /run/sent -- lighttpd -D -f lighttpd.conf
  dcs run --through aes256-ctr --path '/srv/sealed/*' --key-file key --iv xattr:user.dcs.counter -- nginx
  dcs run --config /etc/dcs/preload.toml -- java -jar server.jar
  dcs run --show /run/sent

The program is not changed. Calls to which no rule applies go to the kernel's own sendfile; the counters, and the line that
each process logs at its end, tell how many went which way. A digest covers what one connection got of one file, over all
calls: the log has its offset and bytes. Paths of files and log may be absolute, or relative to the current folder.
Programs that are statically linked, setuid, setgid or have file capabilities cannot load the library, and are refused. If
PROGRAM starts one of those, no rule applies to it. docs/preload.md tells more.

Exit codes: those of PROGRAM; 2 usage, bad configuration or key; 6 PROGRAM not permitted; 7 PROGRAM or the library not found";

pub fn run(run: &Run, report: &Report) -> Result<(), Failure> {
    if let Some(file) = &run.show {
        return show(file, report);
    }
    let file = rules(run)?;
    check(&file)?;
    let library = library::find(run.library.as_deref())?;
    let (name, arguments) = run.command.split_first().ok_or_else(|| Failure::usage("name a program"))?;
    let program = program::find(name)?;
    program::check(&program)?;
    let mut command = Command::new(&program);
    command.arg0(name).args(arguments).env("LD_PRELOAD", library::preload(&library)?);
    let text = file.to_text().map_err(|error| Failure::usage(error.to_string()))?;
    command.env_remove(FILE_VARIABLE).env(TEXT_VARIABLE, text);
    let error = command.exec();
    Err(Failure::io(shown(&program), &error))
}

/// Returns the settings of the command line and the file, with absolute paths, because the program may change its
/// folder.
fn rules(run: &Run) -> Result<File, Failure> {
    let mut file = match &run.config {
        Some(path) => File::read(path).map_err(refused)?,
        None => from_options(run)?,
    };
    for (given, place) in [(&run.log, &mut file.log), (&run.counters, &mut file.counters)] {
        if given.is_some() {
            place.clone_from(given);
        }
    }
    let keys = file.rule.iter_mut().map(|rule| &mut rule.key_file);
    for path in keys.chain([&mut file.log, &mut file.counters]).flatten() {
        *path = std::path::absolute(&*path).map_err(|error| Failure::io(shown(&path), &error))?;
    }
    Ok(file)
}

fn from_options(run: &Run) -> Result<File, Failure> {
    let one_rule = RuleText {
        name: None,
        path: OneOrMany::Many(run.path.iter().map(|pattern| path::to_text(pattern)).collect()),
        port: OneOrMany::Many(run.port.clone()),
        through: OneOrMany::Many(run.through.clone()),
        key_file: run.key_file.clone(),
        counter: run.iv.clone(),
        until_close: run.until_close,
    };
    let conditions = !run.path.is_empty() || !run.port.is_empty() || run.key_file.is_some();
    if run.through.is_empty() && conditions {
        return Err(Failure::usage("these files have no chain").advise("say --through OPERATORS"));
    }
    let rule = if run.through.is_empty() { Vec::new() } else { vec![one_rule] };
    Ok(File { rule, ..File::default() })
}

/// Checks everything that can be checked before the program runs.
fn check(file: &File) -> Result<(), Failure> {
    let config = Config::parse(file).map_err(refused)?;
    for rule in &config.rules {
        rule.key().map_err(Failure::usage)?;
    }
    let log = config
        .log
        .as_deref()
        .map(|path| (path, std::fs::OpenOptions::new().append(true).create(true).open(path)));
    if let Some((path, Err(error))) = log {
        return Err(Failure::io(format!("log {}", shown(&path)), &error));
    }
    config.counters.as_deref().map_or(Ok(()), check_counters)
}

/// Checks the file of counters. The program makes one that does not exist yet.
fn check_counters(path: &Path) -> Result<(), Failure> {
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
    let wrong = match counters::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData && metadata.len() > 0 => {
            Some(error.to_string())
        }
        _ => counters::refusal(&metadata, nix::unistd::Uid::effective().as_raw()).map(str::to_string),
    };
    wrong.map_or(Ok(()), |wrong| {
        Err(Failure::usage(format!("counters {}: {wrong}", shown(&path))).advise("name another file"))
    })
}

fn refused(error: ConfigError) -> Failure {
    match error {
        ConfigError::Read(path, error) => Failure::io(shown(&path), &error),
        other => Failure::usage(other.to_string().trim()).advise("docs/preload.md has examples"),
    }
}

fn show(file: &Path, report: &Report) -> Result<(), Failure> {
    let counted = counters::read(file).map_err(|error| Failure::io(shown(file), &error))?;
    let fields = counted.iter().map(|(counter, value)| (counter.name().to_string(), (*value).into()));
    report.object(&serde_json::Value::Object(fields.collect()));
    for (counter, value) in counted {
        report.text(format_args!("{:<16}{value:>16}  {}", counter.name(), counter.meaning()));
    }
    Ok(())
}
