//! The demo's results, drawn.

use super::measure::Figures;
use super::task::{FileOutcome, Task};
use crate::harness::contender::Named;
use crate::harness::shown::{plural, stage as stage_bar};
use crate::host::contender::Contender;
use crate::report::Report;
use serde_json::{Value, json};
use std::path::Path;

/// The contenders of one job side by side; the first one is what the others are compared with.
pub fn figures(task: &Task, rows: &[(Contender, Figures)], report: &Report) {
    let streams = task.streams.len();
    report.text(format_args!("\n{}, {}", task.job(), plural(streams, "stream")));
    report.text("  contender           GiB/s       CPU s/GiB  peer CPU s/GiB  system calls/GiB");
    let base = rows.first().map(|(_, figures)| figures.clone()).unwrap_or_default();
    for (contender, figures) in rows {
        let ratio = |value: f64, base: f64| format!("{value:6.3} ({:5.2}x)", value / base);
        let calls = figures.system_calls_per_gib.map_or("not counted".into(), |calls| format!("{calls:.0}"));
        report.text(format_args!(
            "  {:9} {} {} {:15.3} {calls:>17}",
            contender.name(),
            ratio(figures.gib_per_s, base.gib_per_s),
            ratio(figures.cpu_s_per_gib, base.cpu_s_per_gib),
            figures.client_cpu_s_per_gib,
        ));
        report.object(&json!({
            "event": "measurement", "job": task.job(), "contender": contender.name(), "streams": streams,
            "size": task.bytes(), "gib_per_s": figures.gib_per_s, "cpu_s_per_gib": figures.cpu_s_per_gib,
            "client_cpu_s_per_gib": figures.client_cpu_s_per_gib,
            "syscalls_per_gib": figures.system_calls_per_gib, "runs": figures.runs,
        }));
    }
}

/// The engine's latency breakdown of one file: when each stage was at work, and how much of that time.
pub fn breakdown(task: &Task, path: &Path, file: &FileOutcome, report: &Report) {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let number = |value: &Value, key: &str| value[key].as_u64().unwrap_or(0);
    let run = number(&file.breakdown, "run_ns").max(1);
    report.object(&json!({
        "event": "breakdown", "job": task.job(), "file": name, "bytes": file.bytes_in, "path": file.path,
        "breakdown": file.breakdown,
    }));
    report.text(format_args!(
        "\nWhere the time of one command went: {name}, {} bytes, {}, queued {:.3} ms, run {:.3} ms",
        file.bytes_in,
        task.job(),
        number(&file.breakdown, "queued_ns") as f64 / 1e6,
        run as f64 / 1e6
    ));
    for stage in file.breakdown["stages"].as_array().map_or(&[][..], Vec::as_slice) {
        let (first, last, busy) =
            (number(stage, "first_ns"), number(stage, "last_ns"), number(stage, "busy_ns"));
        report.text(format_args!(
            "  {:12} |{}| busy {:8.3} ms, {:3.0} % of the run, {} operations",
            stage["name"].as_str().unwrap_or("?"),
            stage_bar(first, last, busy, run),
            busy as f64 / 1e6,
            busy as f64 * 100.0 / run as f64,
            number(stage, "operations"),
        ));
    }
    report.text("  a bar reaches from a stage's first to its last operation; its shade is the share of that time it was busy");
}
