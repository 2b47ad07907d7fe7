//! `dcs serve` with many connections, some of which stall, drip, reset or lie: the honest ones are all served,
//! correctly and in bounded time.
//!
//! A short run is part of the tests. A long one, as in docs/serve.md:
//!
//!     DCS_SOAK_SECONDS=3600 cargo test --release -p dcs-cli --test soak -- --nocapture

mod honest;
mod hostile;
mod http;

use dcs_testkit::Random;
use honest::{Honest, Report};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::cell::RefCell;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest time of an honest request; a client gives up after a minute.
const LATENCY_MAX: Duration = Duration::from_secs(30);

/// Size of the run.
struct Plan {
    seconds: u64,
    honest: usize,
    hostile: usize,
    /// Approximate requests a second of all honest clients together.
    rate: u64,
    options: Vec<String>,
}

impl Plan {
    /// The short run has few places, and more hostile clients than places. The long one has 2,000 connections, a tenth
    /// of them hostile, and the server's defaults.
    fn new() -> Plan {
        let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect(name));
        let Some(seconds) = number("DCS_SOAK_SECONDS") else {
            let options = ["--transfers", "16", "--patience", "24s"].map(String::from).to_vec();
            return Plan { seconds: 15, honest: 60, hostile: 56, rate: 40, options };
        };
        let all = number("DCS_SOAK_CONNECTIONS").unwrap_or(2000);
        let hostile = all / 10;
        let rate = number("DCS_SOAK_RATE").unwrap_or(200);
        let (honest, hostile) = ((all - hostile) as usize, hostile as usize);
        Plan { seconds, honest, hostile, rate, options: Vec::new() }
    }
}

struct Server {
    child: Child,
    address: SocketAddr,
    folder: tempfile::TempDir,
}

impl Server {
    fn start(options: &[String], cores: &str) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_dcs"))
            .current_dir(folder.path())
            .args(["serve", "store", "--listen", "127.0.0.1:0", "--anonymous", "all"])
            .args(["--cores", cores])
            .args(options)
            .env("DCS_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| Some(line.ok()?.split_once("http://")?.1.to_string()));
        let address = address.expect("it starts").parse().unwrap();
        Server { child, address, folder }
    }

    fn log(&self) -> String {
        let log = std::fs::read(self.folder.path().join("log")).unwrap_or_default();
        let end = log.len().saturating_sub(4000);
        String::from_utf8_lossy(&log[end..]).into_owned()
    }

    /// Stops the server as an operator does, and checks every object.
    fn stop(mut self) {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.log());
        let scrub = Command::new(env!("CARGO_BIN_EXE_dcs"))
            .current_dir(self.folder.path())
            .args(["scrub", "store"])
            .output()
            .unwrap();
        assert!(scrub.status.success(), "{scrub:?}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn honest_clients_are_served_among_hostile_ones() {
    run(Plan::new(), "1");
}

#[test]
fn and_so_they_are_on_two_cores() {
    run(Plan::new(), "2");
}

/// The runs go one at a time, so that each has the machine for itself.
static ONE: Mutex<()> = Mutex::new(());

fn run(plan: Plan, cores: &str) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let server = Server::start(&plan.options, cores);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let report = Rc::new(RefCell::new(Report::default()));
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, soak(&plan, server.address, report.clone()));
    drop(local);
    drop(runtime);
    let report = report.borrow();
    println!("{report}");
    assert!(report.failures.is_empty(), "{report}\n{}", server.log());
    assert!(report.slowest() < LATENCY_MAX, "{report}");
    assert!(report.requests() as u64 >= plan.seconds, "{report}");
    // Kept connections end for no other reason.
    assert!(report.gave_way as f64 <= report.sent_away, "{report}");
    // The test only means something with fewer places than hostile clients.
    assert!(plan.options.is_empty() || report.waits > 0.0, "{report}");
    assert!(report.figures_of_hostile.values().all(|count| *count > 0), "{report}");
    server.stop();
}

async fn soak(plan: &Plan, address: SocketAddr, report: Rc<RefCell<Report>>) {
    honest::prepare(address).await;
    let until = Instant::now() + Duration::from_secs(plan.seconds);
    let pause = Duration::from_millis(1000 * plan.honest as u64 / plan.rate);
    for number in 0..plan.hostile {
        tokio::task::spawn_local(hostile::run(address, number, report.clone()));
    }
    let honest = (0..plan.honest).map(|number| {
        let honest = Honest::new(address, number, pause, report.clone());
        tokio::task::spawn_local(honest.run(until))
    });
    let mut tasks: Vec<_> = honest.collect();
    tasks.push(tokio::task::spawn_local(honest::watch_health(address, until, report.clone())));
    for task in tasks {
        task.await.unwrap();
    }
    let waits = honest::figure(address, "dcs_transfer_wait_seconds_count").await;
    let sent_away = honest::figure(address, "dcs_connections_sent_away_total").await;
    let mut report = report.borrow_mut();
    (report.waits, report.sent_away) = (waits, sent_away);
}

/// Returns a random time with this average.
fn about(random: &mut Random, time: Duration) -> Duration {
    Duration::from_micros(random.below(2 * time.as_micros() as u64 + 1))
}
