//! Cost of a process whose guests do nothing.

use super::served::Process;
use crate::failure::Failure;
use crate::harness::clocks::cpu_of;
use crate::harness::folder::Folder;
use crate::report::Report;
use dcs_nvme_client::{Drive, Options};
use serde_json::json;
use std::fs::{self, File};
use std::io;
use std::time::{Duration, Instant};

const DRIVES: u64 = 16;
/// Bytes of a drive.
const SIZE: u64 = 16 << 20;
/// Bytes of device memory that `dcs csd run` gives a drive by default.
const DEVICE_MEMORY: u64 = 1 << 20;
const TIME: Duration = Duration::from_secs(10);

pub fn run(folder: &Folder, cores: &[usize], report: &Report) -> Result<(), Failure> {
    measure(folder, cores, report).map_err(|error| Failure::io("idle", &error))
}

fn measure(folder: &Folder, cores: &[usize], report: &Report) -> io::Result<()> {
    let path = folder.path().join("idle");
    File::create(&path)?.set_len(DRIVES * SIZE)?;
    let drives =
        (0..DRIVES).map(|number| format!("i{number}:size={SIZE},block=4096,backing={}", path.display()));
    let process = Process::start(folder.path(), drives, None, cores)?;
    let options = Options { queues: 8, memory: 4 << 20, ..Options::default() };
    let open =
        |number| Drive::open(&process.socket(&format!("i{number}")), options).map_err(io::Error::other);
    let connected = (0..DRIVES).map(open).collect::<io::Result<Vec<Drive>>>()?;
    // Waits until the work of connecting is over.
    std::thread::sleep(Duration::from_secs(1));
    let (before, begun) = (cpu_of(process.pid())?, Instant::now());
    std::thread::sleep(TIME);
    let share = (cpu_of(process.pid())? - before).as_secs_f64() / begun.elapsed().as_secs_f64();
    let own = own_memory(process.pid())?;
    drop(connected);
    report.text(format_args!(
        "idle: {DRIVES} connected drives of 8 queues: {:.3} % of a core, {:.1} MiB of memory of its own (of which at most {} MiB are device memory)",
        share * 100.0,
        own as f64 / f64::from(1 << 20),
        (DRIVES * DEVICE_MEMORY) >> 20,
    ));
    report.object(&json!({ "event": "idle", "drives": DRIVES, "core_share": share, "bytes": own }));
    Ok(())
}

/// Returns the bytes of memory that belong to a process alone: neither its guests' nor its program file's.
fn own_memory(pid: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other("no RssAnon in /proc"))
}
