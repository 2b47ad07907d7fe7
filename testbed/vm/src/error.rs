//! Errors of virtual servers.

use std::io;
use std::path::Path;
use std::process::{Command, Output};

/// Errors of virtual servers.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something is missing on this machine. The text says what to do.
    #[error("{0}")]
    Unavailable(String),
    /// A file or a program could not be used.
    #[error("{what}: {source}")]
    Io {
        /// Description of the attempt.
        what: String,
        /// Cause of the failure.
        source: io::Error,
    },
    /// A program failed.
    #[error("{program} failed: {message}")]
    Program {
        /// Name of the program.
        program: String,
        /// Its last messages.
        message: String,
    },
    /// The guest ended, or did not print an expected line.
    #[error("{what}; the console's last lines:\n{console}")]
    Guest {
        /// Description of the event.
        what: String,
        /// The guest's last output.
        console: String,
    },
}

impl Error {
    /// Returns true if this machine cannot run a virtual server at all, which is not a defect of dcs: tests are skipped then.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Error::Unavailable(_))
    }
}

/// Returns a conversion of errors that adds the attempt.
pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source }
}

/// Returns [`io`] for a path.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    io(path.display().to_string())
}

/// Runs a program to its end, and returns its output on success.
pub(crate) fn run(command: &mut Command) -> Result<Output, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(io(&program))?;
    if output.status.success() {
        return Ok(output);
    }
    let said =
        String::from_utf8_lossy(if output.stderr.is_empty() { &output.stdout } else { &output.stderr });
    let lines: Vec<&str> = said.lines().rev().take(4).collect();
    let message = lines.into_iter().rev().collect::<Vec<_>>().join("; ");
    Err(Error::Program { program, message: format!("{}: {message}", output.status) })
}
