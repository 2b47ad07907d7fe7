//! What was done and what went wrong, for people and as JSON.
//!
//! Results go to standard output, unless that carries the data; the rest goes to standard error. A reader who left
//! is no reason to fail; a disk that is full is one.

use crate::args::{Arguments, Command};
use crate::chain::Counter;
use crate::failure::Failure;
use crate::transfer::Done;
use crate::units;
use dcs::Completion;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

/// Where and how to say it.
pub struct Report {
    command: &'static str,
    json: bool,
    quiet: bool,
    stdout_is_data: bool,
    /// Why standard output did not take a result.
    refused: OnceLock<io::Error>,
}

/// A transfer that is done, with its names.
pub struct Finished<'a> {
    pub source: &'a str,
    pub destination: &'a str,
    /// What a digest line ends with.
    pub file: &'a str,
    pub chain: &'a [&'static str],
    pub counters: &'a [Counter],
    pub done: &'a Done,
}

/// See [`Report::step`].
pub struct Step(Option<ProgressBar>);

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(spinner) = &self.0 {
            spinner.finish_and_clear();
        }
    }
}

impl Report {
    pub fn new(arguments: &Arguments) -> Report {
        let (command, stdout_is_data) = match &arguments.command {
            Command::Send(send) => ("send", send.to == "-"),
            Command::Recv(recv) => ("recv", recv.file == "-"),
            Command::Copy(copy) => ("copy", copy.to == "-"),
            Command::Ops(_) => ("ops", false),
            Command::Demo(_) => ("demo", false),
            Command::Bench(_) => ("bench", false),
            Command::BenchControl { .. }
            | Command::BenchServer
            | Command::BenchClient
            | Command::BenchHog { .. }
            | Command::BenchLoad
            | Command::BenchBecome { .. } => ("bench-helper", false),
            Command::Run(_) => ("run", false),
            Command::Serve(_) => ("serve", false),
            Command::Scrub(_) => ("scrub", false),
            Command::Doctor(_) => ("doctor", false),
            Command::Server(_) => ("server", false),
            Command::Card(_) => ("card", false),
            Command::ServerEnvironment { .. } | Command::ServerGuest { .. } | Command::ServerWorker => {
                ("server-helper", false)
            }
            Command::DemoWorker => ("demo-helper", false),
            Command::Pages { .. } => ("pages", false),
        };
        Report {
            command,
            json: arguments.json,
            quiet: arguments.quiet,
            stdout_is_data,
            refused: OnceLock::new(),
        }
    }

    #[cfg(test)]
    pub fn silent() -> Report {
        Report { command: "test", json: false, quiet: true, stdout_is_data: true, refused: OnceLock::new() }
    }

    pub fn shows_progress(&self) -> bool {
        !self.quiet && !self.json && std::io::stderr().is_terminal()
    }

    /// A sign of life while a step runs; gone when it is dropped.
    pub fn step(&self, name: String) -> Step {
        Step(self.shows_progress().then(|| {
            let spinner = ProgressBar::new_spinner().with_message(name);
            spinner.enable_steady_tick(std::time::Duration::from_millis(100));
            spinner
        }))
    }

    /// A result. It may be the only copy of a counter or a digest: what standard output does not take goes to standard error.
    pub fn line(&self, line: impl std::fmt::Display) {
        if !self.stdout_is_data {
            match writeln!(io::stdout(), "{line}") {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => _ = self.refused.set(error),
                _ => return,
            }
        }
        let _ = writeln!(io::stderr(), "{line}");
    }

    /// Fails where a result did not get to standard output.
    pub fn check_told(&self) -> Result<(), Failure> {
        let failed = |error| Err(Failure::io("standard output, which is for the results", error));
        self.refused.get().map_or(Ok(()), failed)
    }

    /// A result for people only.
    pub fn text(&self, line: impl std::fmt::Display) {
        if !self.json {
            self.line(line);
        }
    }

    /// A result for programs only.
    pub fn object(&self, object: &Value) {
        if self.json {
            self.line(object);
        }
    }

    /// A remark for people, beside the results.
    pub fn remark(&self, line: impl std::fmt::Display) {
        if !self.json && !self.quiet {
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }

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

    /// The digests as md5sum prints them, the counters, a summary.
    pub fn finished(&self, finished: &Finished<'_>) {
        let Done { completion, elapsed } = finished.done;
        for digest in &completion.digests {
            self.text(format_args!("{}  {digest}  {}", digest.operator.name(), finished.file));
        }
        for counter in finished.counters.iter().filter(|counter| counter.random) {
            self.text(format_args!("iv  {}  {}", counter.value, finished.file));
        }
        let moved = if completion.bytes_in == completion.bytes_out {
            units::human(completion.bytes_in)
        } else {
            format!("{} -> {}", units::human(completion.bytes_in), units::human(completion.bytes_out))
        };
        self.remark(format_args!(
            "{moved} ({} bytes out) in {:.3} s, {:.3} GiB/s; by {}",
            completion.bytes_out,
            elapsed.as_secs_f64(),
            units::gib_per_s(completion.bytes_in, *elapsed),
            completion.path.names().collect::<Vec<_>>().join(", "),
        ));
        let mut object = json!({
            "event": "done", "ok": true, "command": self.command,
            "source": finished.source, "destination": finished.destination, "chain": finished.chain,
            "iv": finished.counters, "seconds": elapsed.as_secs_f64(),
            "gib_per_s": units::gib_per_s(completion.bytes_in, *elapsed),
        });
        add_completion(&mut object, completion);
        self.object(&object);
    }
}

fn add_completion(object: &mut Value, completion: &Completion) {
    object["bytes_in"] = completion.bytes_in.into();
    object["bytes_out"] = completion.bytes_out.into();
    object["digests"] = digests(completion);
    object["path"] = completion.path.names().collect::<Vec<_>>().into();
    object["breakdown"] = breakdown(completion);
}

/// The digests of a completion as JSON.
pub fn digests(completion: &Completion) -> Value {
    let digest = |digest: &dcs::Digest| {
        json!({
            "operator": digest.operator.name(), "place": digest.place,
            "covered": digest.covered, "value": digest.to_string(),
        })
    };
    completion.digests.iter().map(digest).collect()
}

/// The latency breakdown of a completion as JSON, in nanoseconds.
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
