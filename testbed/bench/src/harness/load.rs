//! The other end of a measurement: its duration, the cores of each side, and the marks at which counters are read.
//!
//! Clients stand for other machines: nothing that they do may cost the measured process a wake-up. So they never sleep on a
//! socket. A thread on each of their cores polls its connections until there is nothing to do, and then pauses.

use super::clocks::{Account, KernelThreads};
use super::connections::cpu_time;
use super::cores::{self, ServerCores};
use super::figures::Marks;
use crate::failure::Failure;
use serde_json::{Value, json};
use std::io;
use std::time::{Duration, Instant};

/// Description of how clients wait, for the results.
pub const MODE: &str = "never sleeps on a socket; pauses 50 us when there is nothing to do";
pub const PAUSE: Duration = Duration::from_micros(50);
/// Seconds before the first mark. Many threads on many young connections take several times the CPU until windows have grown,
/// which takes more than half a second.
const WARM_UP_S: f64 = 1.0;

/// Conditions that are the same for all contenders of a benchmark.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Keeps data out of the page cache.
    pub cold: bool,
    pub warm_s: f64,
    pub measure_s: f64,
    pub server_cores: Vec<usize>,
    pub client_cores: Vec<usize>,
}

impl Setting {
    pub fn new(server_cores: ServerCores, seconds: f64, cold: bool) -> Result<Setting, Failure> {
        let (server_cores, client_cores) = cores::deal(server_cores)?;
        let warm_s = (2.0 * seconds).min(WARM_UP_S);
        Ok(Setting { cold, warm_s, measure_s: seconds, server_cores, client_cores })
    }

    /// Describes how the clients work, for the results.
    pub fn client(&self) -> Value {
        json!({ "cores": self.client_cores, "mode": MODE })
    }
}

/// The first mark of a measurement.
pub struct Mark<'a> {
    kernel: &'a KernelThreads,
    kernel_cpu_s: f64,
    server: Account,
    client: Duration,
    pub at: Instant,
    pub bytes: u64,
}

impl Mark<'_> {
    /// Reads the counters: of kernel threads found before, of the server, of this process, and of `bytes`.
    pub fn set(
        kernel: &KernelThreads,
        server: impl FnOnce() -> io::Result<Account>,
        bytes: impl FnOnce() -> u64,
    ) -> io::Result<Mark<'_>> {
        let (kernel_cpu_s, server, client) = (kernel.cpu_s(), server()?, cpu_time()?);
        Ok(Mark { kernel, kernel_cpu_s, server, client, at: Instant::now(), bytes: bytes() })
    }

    /// Returns the counts from this mark to another.
    pub fn until(&self, later: &Mark<'_>) -> Marks {
        Marks {
            wall_s: later.at.duration_since(self.at).as_secs_f64(),
            bytes: later.bytes - self.bytes,
            server_cpu_s: later.server.since(&self.server).as_secs_f64(),
            kernel_cpu_s: (later.kernel_cpu_s - self.kernel_cpu_s).max(0.0),
            client_cpu_s: (later.client - self.client).as_secs_f64(),
        }
    }

    /// Returns the counts from this mark until now.
    pub fn until_now(
        &self,
        server: impl FnOnce() -> io::Result<Account>,
        bytes: impl FnOnce() -> u64,
    ) -> io::Result<Marks> {
        let (at, bytes) = (Instant::now(), bytes());
        let now = Mark { at, bytes, ..Mark::set(self.kernel, server, || 0)? };
        Ok(self.until(&now))
    }
}
