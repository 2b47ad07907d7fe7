//! The hidden subcommand that is measured: runs one contender, round after round, until its standard input ends.

use super::contenders::Prepared;
use super::protocol::{Account, Extent, Listening, ObjectResult, Round, Serve, Signal, StreamAccount};
use crate::failure::{Exit, Failure};
use crate::harness::connections::{accept, listen, say};
use crate::harness::cores::{limit_files, stay_on};
use crate::harness::counters::{Counted, Counters};
use crate::harness::data::Direction;
use crate::harness::syscalls;
use crate::units::to_hex;
use serde_json::Value;
use std::io::{self, BufRead};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Requests to a running round.
#[derive(Default)]
pub struct Control {
    stop: AtomicBool,
    counting: AtomicBool,
    /// True until a latency is recorded: the next one counts however late it is.
    owed: AtomicBool,
    latency_us: Mutex<Vec<f32>>,
}

/// A round, as its contender sees it.
pub struct Work<'a> {
    pub serve: &'a Serve,
    pub round: Round,
    pub sockets: &'a [TcpStream],
    pub control: &'a Control,
}

/// Latencies of one thread.
pub struct Latencies<'a> {
    control: &'a Control,
    us: Vec<f32>,
}

pub fn run() -> Result<(), Failure> {
    // Ends with a benchmark that is killed.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    serve_requests().map_err(|error| Failure::new(Exit::Failed, format!("bench server: {error}")))
}

fn serve_requests() -> io::Result<()> {
    let mut lines = io::stdin().lock().lines();
    let Some(line) = lines.next() else { return Ok(()) };
    let serve: Serve = serde_json::from_str(&line?)?;
    stay_on(&serve.cores)?;
    limit_files()?;
    let listener = listen()?;
    // Threads that are started from here on are counted too.
    let mut counters = serve.counters.then(Counters::open);
    let prepared = Prepared::new(&serve)?;
    say(&Listening { address: listener.local_addr()?.to_string(), library: prepared.library(&serve)? })?;
    while let Some(line) = lines.next() {
        let round: Round = serde_json::from_str(&line?)?;
        let sockets = accept(&listener, serve.streams.len())?;
        // Set as servers do that send more than one message on a connection.
        sockets.iter().try_for_each(|socket| socket.set_nodelay(true))?;
        let control = Control::default();
        let work = Work { serve: &serve, round, sockets: &sockets, control: &control };
        let (streams, counted) = std::thread::scope(|scope| {
            // A tracer counts between the marks.
            let running = scope.spawn(|| {
                syscalls::mark();
                let streams = prepared.run(&work);
                syscalls::mark();
                streams
            });
            let counted = match round.extent {
                Extent::UntilStopped => hear(&mut lines, &control, &mut counters)?,
                _ => None,
            };
            let streams = running.join().map_err(|_| io::Error::other("panic"))??;
            Ok::<_, io::Error>((streams, counted))
        })?;
        // The other end may wait for this, and the reader of the account for the other end.
        drop(sockets);
        let latency_us = control.latency_us.into_inner().unwrap_or_else(|error| error.into_inner());
        say(&Account { streams, latency_us, counted })?;
    }
    Ok(())
}

/// Reads requests until the one to stop. Returns what was counted, or why not, if that is wanted.
fn hear(
    lines: &mut impl Iterator<Item = io::Result<String>>,
    control: &Control,
    counters: &mut Option<Result<Counters, String>>,
) -> io::Result<Option<Counted>> {
    let mut counted = None;
    for line in lines {
        match serde_json::from_str(&line?)? {
            Signal::Begin => {
                control.owed.store(true, Ordering::Relaxed);
                control.counting.store(true, Ordering::Relaxed);
                if let Some(Ok(counters)) = counters {
                    counters.begin()?;
                }
            }
            Signal::End => {
                counted = match counters {
                    Some(Ok(counters)) => Some(Counted::Counts(counters.end()?)),
                    Some(Err(why)) => Some(Counted::Refused(why.clone())),
                    None => None,
                };
                control.counting.store(false, Ordering::Relaxed);
            }
            Signal::Stop => break,
        }
    }
    control.stop.store(true, Ordering::Relaxed);
    Ok(counted)
}

impl Work<'_> {
    /// Returns true if a stream that has begun this many objects begins another one. A receiver continues as long as the other
    /// end.
    pub fn goes_on(&self, begun: usize, objects: usize) -> bool {
        match self.round.extent {
            Extent::First => begun == 0,
            Extent::All => begun < objects,
            Extent::UntilStopped => {
                self.serve.job.direction == Direction::Receive || !self.control.stop.load(Ordering::Relaxed)
            }
        }
    }
}

impl Control {
    pub fn latencies(&self) -> Latencies<'_> {
        Latencies { control: self, us: Vec::new() }
    }
}

impl Latencies<'_> {
    /// Records that an object begun at `begun` is done now.
    pub fn done(&mut self, begun: Instant) {
        let is_owed = self.control.owed.swap(false, Ordering::Relaxed);
        if is_owed || self.control.counting.load(Ordering::Relaxed) {
            self.us.push(begun.elapsed().as_secs_f32() * 1e6);
        }
    }
}

impl Drop for Latencies<'_> {
    fn drop(&mut self) {
        let mut all = self.control.latency_us.lock().unwrap_or_else(|error| error.into_inner());
        all.append(&mut self.us);
    }
}

impl StreamAccount {
    /// Adds an object. If it was a whole one, compares its digests with the expected ones.
    pub fn add(&mut self, bytes_in: u64, bytes_out: u64, digests: &[Vec<u8>], expected: Option<&[Vec<u8>]>) {
        self.objects += 1;
        self.bytes_in += bytes_in;
        self.bytes_out += bytes_out;
        match expected {
            Some(expected) => self.wrong += u64::from(digests != expected),
            None => self.digests = digests.iter().map(|digest| to_hex(digest)).collect(),
        }
    }

    /// Records the results of the object added last.
    pub fn tell(&mut self, bytes_in: u64, bytes_out: u64, breakdown: Value, path: Vec<String>) {
        self.each.push(ObjectResult { bytes_in, bytes_out, digests: self.digests.clone(), breakdown, path });
    }
}
