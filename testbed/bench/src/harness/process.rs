//! Helper processes: started, told what to do, listened to, and not left behind.

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
    /// This same program, with a hidden subcommand, and what it is to do.
    pub fn start(subcommand: &str, order: &impl Serialize) -> io::Result<Helper> {
        let mut helper = Helper::spawn(Command::new(std::env::current_exe()?).arg(subcommand))?;
        helper.tell(order)?;
        Ok(helper)
    }

    /// The same, with its system calls counted.
    pub fn start_traced(subcommand: &str, order: &impl Serialize) -> io::Result<Helper> {
        let mut helper = Helper::spawn(Command::new(std::env::current_exe()?).arg(subcommand))?;
        let (attached, is_attached) = mpsc::channel();
        let pid = helper.pid();
        helper.tracer = Some(std::thread::spawn(move || {
            syscalls::count(pid, move || {
                let _ = attached.send(());
            })
        }));
        // An error means that it could not attach, and then says so at the end.
        let _ = is_attached.recv();
        helper.tell(order)?;
        Ok(helper)
    }

    /// Any program.
    pub fn spawn(command: &mut Command) -> io::Result<Helper> {
        // A group of its own: Ctrl-C is for the parent, which ends its helpers itself.
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

    /// Its system calls. It ends where its standard input does.
    pub fn system_calls(&mut self) -> Option<nix::Result<u64>> {
        drop(self.child.stdin.take());
        self.tracer.take()?.join().ok()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        match self.tracer.take() {
            // Whoever traces it has waited for its end, or kills it with itself.
            Some(tracer) => drop(tracer.join()),
            None => {
                // One that has ended is only waited for.
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
        }
    }
}
