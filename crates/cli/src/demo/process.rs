//! Helper processes: started, told what to do, listened to, and not left behind.

use super::syscalls;
use super::task::{Order, Outcome, Ready};
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;

const RECEIVER: &str = include_str!("receiver.py");

/// A running helper.
pub struct Helper {
    child: Child,
    output: BufReader<ChildStdout>,
    tracer: Option<JoinHandle<nix::Result<u64>>>,
}

impl Helper {
    /// This same program.
    pub fn start(order: &Order) -> io::Result<Helper> {
        let mut helper = Helper::spawn(Command::new(std::env::current_exe()?).arg("demo-worker"))?;
        helper.tell(order)?;
        Ok(helper)
    }

    /// The same, with its system calls counted.
    pub fn start_traced(order: &Order) -> io::Result<Helper> {
        let mut helper = Helper::spawn(Command::new(std::env::current_exe()?).arg("demo-worker"))?;
        let (attached, is_attached) = mpsc::channel();
        let pid = helper.child.id();
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

    /// A receiver that shares no code with this program.
    pub fn python_receiver(connections: usize, folder: &Path) -> io::Result<Helper> {
        let mut command = Command::new("python3");
        Helper::spawn(command.args(["-c", RECEIVER]).arg(connections.to_string()).arg(folder))
    }

    fn spawn(command: &mut Command) -> io::Result<Helper> {
        // A group of its own: Ctrl-C is for the demo, which ends its helpers itself.
        command.process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Helper { child, output: BufReader::new(output), tracer: None })
    }

    fn tell(&mut self, order: &Order) -> io::Result<()> {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        self.child.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(&line)
    }

    fn hear<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err(io::Error::other("a helper process failed")),
            _ => Ok(serde_json::from_str(&line)?),
        }
    }

    /// Where it listens.
    pub fn address(&mut self) -> io::Result<String> {
        self.hear::<Ready>()?.address.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    pub fn outcome(&mut self) -> io::Result<Outcome> {
        self.hear()
    }

    /// Its system calls, once it has ended.
    pub fn system_calls(&mut self) -> Option<nix::Result<u64>> {
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
