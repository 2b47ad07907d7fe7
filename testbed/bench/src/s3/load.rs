//! The hidden subcommand that runs the clients, and measures.

use super::connection::{Buffers, Connection};
use super::protocol::{Load, Measured, Pace};
use crate::failure::{Exit, Failure};
use crate::harness::clocks::{Account, KernelThreads};
use crate::harness::connections::say;
use crate::harness::cores::{limit_files, stay_on};
use crate::harness::figures::Marks;
use crate::harness::load::{Mark, PAUSE};
use std::io::{self, BufRead};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pause of a client at a slow pace.
const SLOW_PAUSE: Duration = Duration::from_millis(1);
/// Interval at which the measuring thread polls.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Time without progress after which a server has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Fewest requests of each client in a run, which is prolonged to reach them.
const REQUESTS_EACH: u64 = 2;
/// Longest duration of a prolonged run, in multiples of its seconds.
const SECONDS_MAX: f64 = 10.0;

/// A run, shared by its threads.
struct Shared<'a> {
    load: &'a Load,
    /// True when requests may begin.
    running: AtomicBool,
    /// True when no more requests may begin.
    stop: AtomicBool,
    /// True between the marks.
    counting: AtomicBool,
    bytes: AtomicU64,
    /// Requests begun since the first mark.
    begun: AtomicU64,
    done: AtomicU64,
    latency_ms: Mutex<Vec<f32>>,
}

pub fn run() -> Result<(), Failure> {
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    serve_requests().map_err(|error| Failure::new(Exit::Failed, format!("bench load: {error}")))
}

/// Obeys the parent. An error of the server is reported as a result.
fn serve_requests() -> io::Result<()> {
    // Pauses are to be as short as requested.
    nix::sys::prctl::set_timerslack(1)?;
    limit_files()?;
    for line in io::stdin().lock().lines() {
        let load: Load = serde_json::from_str(&line?)?;
        stay_on(&load.cores)?;
        say(&measure(&load).map_err(|error| error.to_string()))?;
    }
    Ok(())
}

pub fn measure(load: &Load) -> io::Result<Measured> {
    let shared = Shared {
        load,
        running: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        counting: AtomicBool::new(false),
        bytes: AtomicU64::new(0),
        begun: AtomicU64::new(0),
        done: AtomicU64::new(0),
        latency_ms: Mutex::new(Vec::new()),
    };
    let mut shares: Vec<Vec<Connection<'_>>> = load.cores.iter().map(|_| Vec::new()).collect();
    let threads = shares.len().max(1);
    for number in 0..load.clients {
        shares[number % threads].push(Connection::new(load, number)?);
    }
    let (marks, requests) = std::thread::scope(|scope| {
        let work = |share| scope.spawn(|| shared.serve(share));
        let threads: Vec<_> = shares.into_iter().map(work).collect();
        let marks = shared.marks();
        shared.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| io::Error::other("panic"))??;
        }
        marks
    })?;
    let mut latency_ms = shared.latency_ms.into_inner().unwrap_or_else(|error| error.into_inner());
    latency_ms.sort_by(f32::total_cmp);
    Ok(Measured { marks, requests, latency_ms, checks_signatures: false })
}

impl Shared<'_> {
    fn marks(&self) -> io::Result<(Marks, u64)> {
        let kernel = KernelThreads::find();
        if self.load.warm_s > 0.0 {
            self.running.store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_secs_f64(self.load.warm_s));
        }
        let server = || Account::of(self.load.server_pid);
        let (first, done) = (Mark::set(&kernel, server, || self.bytes())?, self.done());
        self.counting.store(true, Ordering::Relaxed);
        self.running.store(true, Ordering::Relaxed);
        while !self.is_over(first.at.elapsed().as_secs_f64(), self.done() - done) {
            std::thread::sleep(POLL_INTERVAL);
        }
        self.counting.store(false, Ordering::Relaxed);
        let done = self.done() - done;
        Ok((first.until_now(server, || self.bytes())?, done))
    }

    fn is_over(&self, elapsed_s: f64, done: u64) -> bool {
        let least = match self.load.limit {
            Some(limit) => done >= limit,
            None => elapsed_s >= self.load.measure_s && done >= REQUESTS_EACH * self.load.clients as u64,
        };
        let most = self.load.limit.is_none() && elapsed_s >= SECONDS_MAX * self.load.measure_s;
        least || most || self.stop.load(Ordering::Relaxed)
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    fn may_begin(&self) -> bool {
        let counts = || self.begun.fetch_add(1, Ordering::Relaxed);
        let is_within = |limit| !self.counting.load(Ordering::Relaxed) || counts() < limit;
        !self.stop.load(Ordering::Relaxed) && self.load.limit.is_none_or(is_within)
    }

    fn serve(&self, mut connections: Vec<Connection<'_>>) -> io::Result<()> {
        let result = self.go_round(&mut connections);
        // The other clients need not continue, nor the measuring thread.
        if result.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        result
    }

    fn go_round(&self, connections: &mut Vec<Connection<'_>>) -> io::Result<()> {
        let mut buffers = Buffers::new(self.load)?;
        let mut latency_ms = Vec::new();
        let mut last = Instant::now();
        while !self.running.load(Ordering::Relaxed) && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE);
        }
        while !connections.is_empty() {
            let (mut moved, mut busy) = (0, false);
            let mut failed = None;
            connections.retain_mut(|connection| {
                if connection.is_idle() {
                    if !self.may_begin() {
                        return false;
                    }
                    connection.begin();
                }
                match connection.step(&mut buffers) {
                    Ok(step) => {
                        (moved, busy) = (moved + step.moved, busy | step.busy);
                        self.note(step.done, &mut latency_ms);
                    }
                    Err(error) => failed = Some(error),
                }
                true
            });
            if let Some(error) = failed {
                return Err(error);
            }
            self.bytes.fetch_add(moved, Ordering::Relaxed);
            if busy {
                last = Instant::now();
            } else {
                if last.elapsed() > PATIENCE {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the server has stopped making progress",
                    ));
                }
                std::thread::sleep(if self.load.pace == Pace::Full { PAUSE } else { SLOW_PAUSE });
            }
        }
        let mut all = self.latency_ms.lock().unwrap_or_else(|error| error.into_inner());
        all.append(&mut latency_ms);
        Ok(())
    }

    fn note(&self, done: Option<Instant>, latency_ms: &mut Vec<f32>) {
        let Some(begun) = done else { return };
        self.done.fetch_add(1, Ordering::Relaxed);
        if self.counting.load(Ordering::Relaxed) {
            latency_ms.push(begun.elapsed().as_secs_f32() * 1e3);
        }
    }
}
