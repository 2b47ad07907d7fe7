//! Running `dcs`, and what the tests need around it.

use dcs_testkit::Random;
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

pub const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
pub const KEY_XTS: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\
                           f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff0";
pub const IV: &str = "ffffffffffffffffffffffffffffff00";

/// A temporary folder for each test.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        std::fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// Returns the names of all files in it, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub fn dcs(&self, line: &str) -> Command {
        let mut command = Command::new(crate::PROGRAM);
        command.current_dir(self.0.path()).args(line.split_whitespace());
        command.env_remove("DCS_KEY").env_remove("DCS_KEY_2").env_remove("DCS_IO");
        command.env("DCS_OPERATORS", self.path("operators"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs to the end.
    pub fn run(&self, line: &str) -> Done {
        Done(self.dcs(line).output().unwrap())
    }

    /// Starts `dcs recv 127.0.0.1:0 REST`, and returns its address.
    pub fn recv(&self, rest: &str, with: impl FnOnce(&mut Command)) -> Receiver {
        let mut command = self.dcs(&format!("recv 127.0.0.1:0 {rest} --json"));
        with(&mut command);
        Receiver::start(command)
    }

    /// Starts a line that listens, which must ask for JSON, and waits until it does.
    pub fn listening(&self, line: &str) -> Receiver {
        Receiver::start(self.dcs(line))
    }
}

/// A `dcs recv` that listens.
pub struct Receiver {
    child: Child,
    output: BufReader<ChildStdout>,
    pub address: String,
}

impl Receiver {
    fn start(mut command: Command) -> Receiver {
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let heard: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(heard["event"], "listening");
        Receiver { child, output, address: heard["address"].as_str().unwrap().to_string() }
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    pub fn end(mut self) -> Done {
        let mut stdout = Vec::new();
        self.output.read_to_end(&mut stdout).unwrap();
        let mut output = self.child.wait_with_output().unwrap();
        output.stdout = stdout;
        Done(output)
    }
}

/// A `dcs` that has ended.
pub struct Done(pub Output);

impl Done {
    pub fn code(&self) -> i32 {
        self.0.status.code().expect("it ended by itself")
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    #[track_caller]
    pub fn ok(self) -> Done {
        assert_eq!(self.code(), 0, "{}{}", self.stdout(), self.stderr());
        self
    }

    /// Checks a failure: its exit code, and each of these words in its message. One line of error, one of advice.
    #[track_caller]
    pub fn fails(self, code: i32, words: &[&str]) -> Done {
        let stderr = self.stderr();
        assert_eq!(self.code(), code, "{stderr}");
        let error = stderr.lines().position(|line| line.starts_with("dcs: ") && !line.contains("listening"));
        let error = error.unwrap_or_else(|| panic!("no error in {stderr:?}"));
        assert!(stderr.lines().count() - error <= 2, "{stderr}");
        for word in words {
            assert!(stderr.contains(word), "{word:?} is not in {stderr:?}");
        }
        self
    }

    /// Returns the last JSON object of the output.
    #[track_caller]
    pub fn json(&self) -> Value {
        self.lines().pop().expect("there is JSON")
    }

    /// Returns every line of the output, which must all be JSON objects.
    #[track_caller]
    pub fn lines(&self) -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{line:?}"));
        self.stdout().lines().map(parse).collect()
    }

    /// Returns the values of the digests in the last JSON object.
    pub fn digests(&self) -> Vec<String> {
        let json = self.json();
        json["digests"]
            .as_array()
            .unwrap()
            .iter()
            .map(|digest| digest["value"].as_str().unwrap().into())
            .collect()
    }
}

/// Returns the process of a `dcs send`, `recv` or `copy` that does the work: the child of the one that was started.
pub fn worker(first: &Child) -> Pid {
    loop {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", first.id())).unwrap();
        if let Ok(child) = children.trim().parse() {
            return Pid::from_raw(child);
        }
    }
}

/// Makes data that compress somewhat, of a length that fits no block.
pub fn data(size: usize) -> Vec<u8> {
    Random(1).compressible(size)
}

/// Returns the output of a line of Python, given the path of a file in `sys.argv[1]`.
pub fn python(script: &str, path: &Path) -> String {
    let output = Command::new("python3").arg("-c").arg(script).arg(path).output().expect("python3 is needed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_string()
}

/// Feeds a child and waits for its end.
pub fn feed(mut command: Command, bytes: &[u8]) -> Done {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A command that fails early does not read on.
            let _ = input.write_all(bytes);
        });
        Done(child.wait_with_output().unwrap())
    })
}
