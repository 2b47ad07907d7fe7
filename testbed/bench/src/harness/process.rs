//! Helper processes: starting them, talking to them, ending them.

use super::syscalls;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// A running helper.
pub struct Helper {
    child: Child,
    output: BufReader<ChildStdout>,
    tracer: Option<JoinHandle<nix::Result<u64>>>,
}

impl Helper {
    /// Starts this program with a hidden subcommand and a request.
    pub fn start(subcommand: &str, request: &impl Serialize) -> io::Result<Helper> {
        let mut helper = Helper::spawn(Command::new(std::env::current_exe()?).arg(subcommand))?;
        helper.tell(request)?;
        Ok(helper)
    }

    /// Starts it with its system calls counted.
    pub fn start_traced(subcommand: &str, request: &impl Serialize) -> io::Result<Helper> {
        let mut helper = Helper::spawn(Command::new(std::env::current_exe()?).arg(subcommand))?;
        let (attached, is_attached) = mpsc::channel();
        let pid = helper.pid();
        helper.tracer = Some(std::thread::spawn(move || {
            syscalls::count(pid, move || {
                let _ = attached.send(());
            })
        }));
        // An error means that the tracer could not attach, which it reports at the end.
        let _ = is_attached.recv();
        helper.tell(request)?;
        Ok(helper)
    }

    /// Starts any program.
    pub fn spawn(command: &mut Command) -> io::Result<Helper> {
        // A process group of its own: Ctrl-C goes to the parent, which ends its helpers itself.
        command.process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Helper { child, output: BufReader::new(output), tracer: None })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn tell(&mut self, what: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        self.child.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(&line)
    }

    pub fn hear<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err(io::Error::other("a helper process failed")),
            _ => Ok(serde_json::from_str(&line)?),
        }
    }

    /// Returns its system calls. The helper ends when its standard input does.
    pub fn system_calls(&mut self) -> Option<nix::Result<u64>> {
        drop(self.child.stdin.take());
        self.tracer.take()?.join().ok()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        match self.tracer.take() {
            // The tracer has waited for the helper's end, or kills it by ending.
            Some(tracer) => drop(tracer.join()),
            None => {
                // A helper that has ended only needs waiting for.
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
        }
    }
}
