//! Checks what was sent and received with implementations that share no code with this program.

use super::measure::{Run, Task};
use crate::harness::data::{Direction, KEY};
use crate::units::to_hex;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

const SCRIPT: &str = include_str!("verify.py");

/// Programs that check.
#[derive(Clone, Copy, Debug)]
pub struct Tools {
    pub python: bool,
    pub openssl: bool,
}

/// Result of a check.
#[derive(Debug, Deserialize)]
pub struct Verdict {
    pub files: u64,
    pub bytes: u64,
    pub digests: u64,
    pub errors: Vec<String>,
}

impl Tools {
    pub fn find() -> Tools {
        let works = |name: &str, argument: &str| {
            let mut command = Command::new(name);
            let quiet =
                command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            quiet.status().is_ok_and(|status| status.success())
        };
        Tools { python: works("python3", "--version"), openssl: works("openssl", "version") }
    }

    /// Returns the missing program that this job needs, if any.
    pub fn missing(self, task: &Task) -> Option<&'static str> {
        let needs_openssl = task.job.chain.iter().any(|name| name == "aes256-ctr");
        match self {
            Tools { python: false, .. } => Some("python3"),
            Tools { openssl: false, .. } if needs_openssl => Some("openssl"),
            _ => None,
        }
    }
}

/// Checks one run. `stored` is the folder to which the receiver wrote each connection's bytes, if files were sent.
pub fn verify(task: &Task, run: &Run, stored: &Path) -> io::Result<Verdict> {
    let manifest = serde_json::to_vec(&manifest(task, run, stored))?;
    let mut python =
        Command::new("python3").args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    python.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?.write_all(&manifest)?;
    let output = python.wait_with_output()?;
    let mut verdict: Verdict = serde_json::from_slice(&output.stdout)?;
    let expected = task.streams.iter().flatten().count() as u64;
    if verdict.files != expected {
        verdict.errors.push(format!("{} files of {expected} were checked", verdict.files));
    }
    Ok(verdict)
}

fn manifest(task: &Task, run: &Run, stored: &Path) -> Vec<Value> {
    let (mut files, names) = (Vec::new(), task.job.digests());
    for (number, (items, results)) in task.streams.iter().zip(&run.files).enumerate() {
        let mut offset = 0;
        for (item, result) in items.iter().zip(results) {
            let (stored, at) = match task.job.direction {
                Direction::Send => (stored.join(number.to_string()), offset),
                Direction::Receive => (item.copy.clone(), 0),
            };
            let digests: Vec<_> = names.iter().zip(&result.digests).collect();
            files.push(json!({
                "original": item.path, "stored": stored, "offset": at, "length": result.bytes_out,
                "chain": task.job.chain, "key": to_hex(&KEY), "counter": to_hex(&item.counter),
                "digests": digests,
            }));
            offset += result.bytes_out;
        }
    }
    files
}
