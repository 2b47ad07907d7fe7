//! Reports of results and failures, for people and as JSON.
//!
//! Results go to standard output, unless that carries the data; the rest goes to standard error. A reader that has left
//! is not a reason to fail; a full disk is.

use crate::failure::Failure;
use clap::Args;
use dcs::Completion;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

/// Form in which results are reported.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Options {
    /// Print results as JSON, one object per line
    #[arg(long, global = true)]
    pub json: bool,
    /// Print no progress, no summary: only digests, counters and errors
    #[arg(long, short, global = true)]
    pub quiet: bool,
}

/// Reports results and failures of a command.
pub struct Report {
    command: &'static str,
    json: bool,
    quiet: bool,
    stdout_is_data: bool,
    /// Error for which standard output did not take a result.
    refused: OnceLock<io::Error>,
}

/// A step under way: see [`Report::step`].
pub struct Step(Option<ProgressBar>);

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(spinner) = &self.0 {
            spinner.finish_and_clear();
        }
    }
}

impl Report {
    /// Makes the report of a command of that name.
    pub fn new(command: &'static str, options: &Options) -> Report {
        let Options { json, quiet } = *options;
        Report { command, json, quiet, stdout_is_data: false, refused: OnceLock::new() }
    }

    /// Makes a report that prints nothing, for tests.
    pub fn silent() -> Report {
        Report { stdout_is_data: true, ..Report::new("test", &Options { json: false, quiet: true }) }
    }

    /// Returns a report whose results go to standard error, because standard output carries the data.
    pub fn results_to_stderr(self) -> Report {
        Report { stdout_is_data: true, ..self }
    }

    /// Returns the command's name.
    pub fn command(&self) -> &'static str {
        self.command
    }

    /// Returns true if progress is drawn: for people, on a terminal.
    pub fn shows_progress(&self) -> bool {
        !self.quiet && !self.json && std::io::stderr().is_terminal()
    }

    /// Shows a sign of life while a step runs, until it is dropped.
    pub fn step(&self, name: String) -> Step {
        Step(self.shows_progress().then(|| {
            let spinner = ProgressBar::new_spinner().with_message(name);
            spinner.enable_steady_tick(std::time::Duration::from_millis(100));
            spinner
        }))
    }

    /// Prints a result. It may be the only copy of a counter or a digest, so what standard output does not take goes to
    /// standard error.
    pub fn line(&self, line: impl std::fmt::Display) {
        if !self.stdout_is_data {
            match writeln!(io::stdout(), "{line}") {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => _ = self.refused.set(error),
                _ => return,
            }
        }
        let _ = writeln!(io::stderr(), "{line}");
    }

    /// Fails if a result did not get to standard output.
    pub fn check_printed(&self) -> Result<(), Failure> {
        let failed = |error| Err(Failure::io("standard output, which is for the results", error));
        self.refused.get().map_or(Ok(()), failed)
    }

    /// Prints a result for people only.
    pub fn text(&self, line: impl std::fmt::Display) {
        if !self.json {
            self.line(line);
        }
    }

    /// Prints a result for programs only.
    pub fn object(&self, object: &Value) {
        if self.json {
            self.line(object);
        }
    }

    /// Prints a remark for people, in addition to the results.
    pub fn remark(&self, line: impl std::fmt::Display) {
        if !self.json && !self.quiet {
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }

    /// Prints a failure on standard error, and as JSON if requested.
    pub fn failure(&self, failure: &Failure) {
        let _ = writeln!(std::io::stderr(), "dcs: {}", failure.line);
        if let Some(advice) = &failure.advice {
            let _ = writeln!(std::io::stderr(), "     {advice}");
        }
        let mut object = json!({
            "event": "error", "ok": false, "command": self.command, "exit": failure.exit as u8,
            "message": failure.line, "advice": failure.advice,
        });
        if let Some(error) = &failure.transfer {
            object["stage"] = error.stage.name().into();
            object["status"] = error.status.name().into();
            object["operator"] = error.operator.map(|(_, operator)| operator.name()).into();
            object["errno"] = error.errno.into();
            add_completion(&mut object, &error.completion);
        }
        self.object(&object);
    }
}

/// Adds a completion's fields to a JSON object.
pub fn add_completion(object: &mut Value, completion: &Completion) {
    object["bytes_in"] = completion.bytes_in.into();
    object["bytes_out"] = completion.bytes_out.into();
    object["digests"] = digests(completion);
    object["path"] = completion.path.names().collect::<Vec<_>>().into();
    object["breakdown"] = breakdown(completion);
}

/// Formats the digests of a completion as JSON.
fn digests(completion: &Completion) -> Value {
    let digest = |digest: &dcs::Digest| {
        json!({
            "operator": digest.operator.name(), "place": digest.place,
            "covered": digest.covered, "value": digest.to_string(),
        })
    };
    completion.digests.iter().map(digest).collect()
}

/// Formats the latency breakdown of a completion as JSON, in nanoseconds.
pub fn breakdown(completion: &Completion) -> Value {
    let stage = |stage: &dcs::completion::StageTime| {
        json!({
            "name": stage.name, "first_ns": stage.first.as_nanos() as u64, "last_ns": stage.last.as_nanos() as u64,
            "busy_ns": stage.busy.as_nanos() as u64, "operations": stage.operations,
        })
    };
    json!({
        "queued_ns": completion.breakdown.queued.as_nanos() as u64,
        "run_ns": completion.breakdown.run.as_nanos() as u64,
        "stages": completion.breakdown.stages.iter().map(stage).collect::<Vec<_>>(),
    })
}
