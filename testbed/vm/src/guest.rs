//! A running QEMU and its console.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{self, Error};

/// Number of the console's last lines that an error shows.
const SHOWN: usize = 30;

/// A server that is running. Dropping it powers it off, without asking the guest.
#[derive(Debug)]
pub struct Guest {
    qemu: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    last: VecDeque<String>,
    echo: bool,
    monitor: PathBuf,
}

impl Guest {
    pub(crate) fn start(mut command: Command, monitor: PathBuf) -> Result<Guest, Error> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let what = command.get_program().to_string_lossy().into_owned();
        let mut qemu = command.spawn().map_err(error::io(what))?;
        let (sender, lines) = channel();
        let (input, output, errors) = match (qemu.stdin.take(), qemu.stdout.take(), qemu.stderr.take()) {
            (Some(input), Some(output), Some(errors)) => (input, output, errors),
            _ => unreachable!("all three were asked for"),
        };
        read(output, sender.clone(), "");
        read(errors, sender, "qemu: ");
        let echo = std::env::var_os("DCS_VM_CONSOLE").is_some();
        Ok(Guest { qemu, input, lines, last: VecDeque::new(), echo, monitor })
    }

    /// Returns the ID of QEMU's process.
    pub fn id(&self) -> u32 {
        self.qemu.id()
    }

    /// Returns the next line of the console, or of QEMU's own messages; `None` if none arrives within `limit`.
    ///
    /// # Errors
    ///
    /// [`Error::Guest`] if the server is off.
    pub fn line(&mut self, limit: Duration) -> Result<Option<String>, Error> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => {
                if self.echo {
                    eprintln!("guest: {line}");
                }
                self.last.push_back(line.clone());
                if self.last.len() > SHOWN {
                    self.last.pop_front();
                }
                Ok(Some(line))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.failure("the server is off")),
        }
    }

    /// Waits for a line that contains `marker`, and returns the text after that.
    ///
    /// # Errors
    ///
    /// [`Error::Guest`] if it does not arrive in time.
    pub fn wait_for(&mut self, marker: &str, limit: Duration) -> Result<String, Error> {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.line(left)? {
                Some(line) => {
                    if let Some((_, rest)) = line.split_once(marker) {
                        return Ok(rest.trim().to_owned());
                    }
                }
                None => {
                    return Err(self.failure(&format!("the guest did not print {marker:?} within {limit:?}")));
                }
            }
        }
    }

    /// Types a line on the console.
    ///
    /// # Errors
    ///
    /// If the server is off.
    pub fn send(&mut self, line: &str) -> Result<(), Error> {
        self.input.write_all(format!("{line}\n").as_bytes()).map_err(error::io("the console"))
    }

    /// Sends a command to QEMU's own monitor (`set_link net0 off` pulls a cable), and returns its output.
    ///
    /// # Errors
    ///
    /// If the server is off.
    pub fn monitor(&self, command: &str) -> Result<String, Error> {
        const PROMPT: &str = "(qemu) ";
        let tell = || -> io::Result<String> {
            let mut stream = UnixStream::connect(&self.monitor)?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            let answer = |stream: &mut UnixStream| -> io::Result<String> {
                let (mut text, mut bytes) = (String::new(), [0; 1024]);
                while !text.ends_with(PROMPT) {
                    match stream.read(&mut bytes)? {
                        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                        count => text.push_str(&String::from_utf8_lossy(&bytes[..count])),
                    }
                }
                Ok(text)
            };
            answer(&mut stream)?;
            stream.write_all(format!("{command}\n").as_bytes())?;
            let text = answer(&mut stream)?;
            // The command is echoed, as on a terminal.
            let said = text.split_once('\n').map_or("", |(_, said)| said);
            Ok(said.trim_end_matches(PROMPT).trim().to_owned())
        };
        tell().map_err(error::io("QEMU's monitor"))
    }

    /// Waits until the guest has powered off.
    ///
    /// # Errors
    ///
    /// [`Error::Guest`] if it does not.
    pub fn wait(&mut self, limit: Duration) -> Result<(), Error> {
        let end = Instant::now() + limit;
        loop {
            match self.line(end.saturating_duration_since(Instant::now())) {
                Ok(Some(_)) => {}
                Ok(None) => {
                    return Err(self.failure(&format!("the guest did not switch off within {limit:?}")));
                }
                Err(_) => return Ok(()),
            }
        }
    }

    fn failure(&self, what: &str) -> Error {
        let console = self.last.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n");
        Error::Guest { what: what.to_owned(), console }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// Reads lines until the other side ends, on a separate thread.
fn read(from: impl Read + Send + 'static, to: Sender<String>, prefix: &'static str) {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            if to.send(format!("{prefix}{text}")).is_err() {
                break;
            }
        }
    });
}
