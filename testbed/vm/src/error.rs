//! Why there is no server.

use std::io;
use std::path::Path;
use std::process::{Command, Output};

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine cannot have it. Says what to do.
    #[error("{0}")]
    Unavailable(String),
    /// A file or a program could not be used.
    #[error("{what}: {source}")]
    Io {
        /// The attempt that failed.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A program failed.
    #[error("{program} failed: {message}")]
    Program {
        /// Which.
        program: String,
        /// Its last words.
        message: String,
    },
    /// The guest ended, or did not say what was waited for.
    #[error("{what}; the console's last lines:\n{console}")]
    Guest {
        /// The event.
        what: String,
        /// The guest's last words.
        console: String,
    },
}

impl Error {
    /// True if this machine cannot have a virtual server at all, for no fault of ours: a test is skipped
    /// then.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Error::Unavailable(_))
    }
}

/// Says what was tried when it failed.
pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source }
}

/// [`io`] for a path.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    io(path.display().to_string())
}

/// Runs a program to its end; its output where it succeeded.
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
