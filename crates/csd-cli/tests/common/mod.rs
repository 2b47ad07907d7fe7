//! A process under test: `dcs-csd csd run`, as a user starts it.
// Each of the two programs of tests has a use for a part of it.
#![allow(dead_code)]

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_dcs-csd");

/// A process that serves. Dropping it kills it.
pub struct Serving {
    child: Child,
    /// Its first line, which says that it is ready.
    pub said: Value,
    pub sockets: PathBuf,
}

impl Serving {
    /// Starts it, with its sockets in this folder, and waits until it is ready. If it ends instead, fails
    /// with its output.
    pub fn start(sockets: &Path, arguments: &[&str]) -> Result<Serving, String> {
        Serving::start_by(&mut Command::new(PROGRAM), sockets, arguments)
    }

    /// The same, after a command of the shell, which sets limits, say.
    pub fn start_after(before: &str, sockets: &Path, arguments: &[&str]) -> Result<Serving, String> {
        let line = format!("{before}; exec \"$0\" \"$@\"");
        Serving::start_by(Command::new("sh").args(["-c", &line, PROGRAM]), sockets, arguments)
    }

    fn start_by(command: &mut Command, sockets: &Path, arguments: &[&str]) -> Result<Serving, String> {
        let mut child = command
            .args(["csd", "run", "--json", "--sockets"])
            .arg(sockets)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Option<Value> = serde_json::from_str(&line).ok();
        if let Some(said) = said.filter(|said| said["event"] == "listening") {
            return Ok(Serving { child, said, sockets: sockets.to_path_buf() });
        }
        let mut error = String::new();
        child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        let status = child.wait().unwrap();
        Err(format!("{status}: {error}"))
    }

    /// A file about the process, such as `fd` or `status`.
    pub fn about(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.child.id()))
    }

    /// The socket of a drive.
    pub fn socket(&self, drive: &str) -> PathBuf {
        self.sockets.join(format!("{drive}.sock"))
    }

    /// A command for it.
    pub fn command(&self, words: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.arg("csd").args(words).arg("--sockets").arg(&self.sockets);
        command.output().unwrap()
    }

    /// One that works; what it said on standard output.
    pub fn does(&self, words: &[&str]) -> String {
        let output = self.command(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// One that is refused, with an exit code of its own kind and these words.
    pub fn refuses(&self, words: &[&str], said: &str) {
        let output = self.command(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
        assert!(error.contains(said), "{words:?}: {error}");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // SIGKILL: nothing is tidied up.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file of this many bytes, all of them holes.
pub fn disk(folder: &Path, name: &str, bytes: u64) -> PathBuf {
    let path = folder.join(name);
    std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}
