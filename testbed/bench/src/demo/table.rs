//! Tables of the demo's results.

use super::measure::Task;
use crate::harness::contender::Named;
use crate::harness::figures::Medians;
use crate::harness::shown::{self, Stage, plural};
use crate::harness::table::{Table, costs, costs_header};
use crate::host::contender::Contender;
use crate::host::protocol::ObjectResult;
use crate::report::Report;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;

/// Figures of one contender in one job.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    event: &'static str,
    job: String,
    contender: &'static str,
    streams: usize,
    size: u64,
    #[serde(flatten)]
    cost: Medians,
    /// System calls in a smaller pass; `None` if they were not counted.
    syscalls_per_gib: Option<f64>,
}

impl Row {
    pub fn new(task: &Task, cost: Medians, syscalls_per_gib: Option<f64>) -> Row {
        Row {
            event: "measurement",
            job: task.job.name(),
            contender: task.contender.name(),
            streams: task.streams.len(),
            size: task.bytes(),
            cost,
            syscalls_per_gib,
        }
    }
}

/// Reports the contenders of one job side by side.
pub fn figures(rows: &[Row], report: &Report) {
    let Some(first) = rows.first() else { return };
    report.text(format_args!("\n{}, {}", first.job, plural(first.streams, "stream")));
    let mut header = vec!["contender".to_string()];
    header.extend(costs_header(Some(Contender::Loop.name())));
    header.push("system calls/GiB".into());
    let mut table = Table::new(header);
    for row in rows {
        let calls = row.syscalls_per_gib.map_or("not counted".into(), |calls| format!("{calls:.0}"));
        let mut cells = vec![row.contender.to_string()];
        cells.extend(costs(&row.cost));
        cells.push(calls);
        table.row(cells);
    }
    table.show(report);
}

/// Reports the latency breakdown of one file: when each stage was busy, and for how much of that time.
pub fn breakdown(task: &Task, path: &Path, file: &ObjectResult, report: &Report) {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let number = |key: &str| file.breakdown[key].as_u64().unwrap_or(0);
    let job = task.job.name();
    report.object(&json!({
        "event": "breakdown", "job": job, "file": name, "bytes": file.bytes_in, "path": file.path,
        "breakdown": file.breakdown,
    }));
    report.text(format_args!(
        "\nWhere the time of one command went: {name}, {} bytes, {job}, queued {:.3} ms, run {:.3} ms",
        file.bytes_in,
        number("queued_ns") as f64 / 1e6,
        number("run_ns") as f64 / 1e6
    ));
    let stages: Value = file.breakdown["stages"].clone();
    let stages: Vec<Stage> = serde_json::from_value(stages).unwrap_or_default();
    shown::stages(&stages, number("run_ns"), report);
    report.text("  a bar runs from a stage's first operation to its last; its shade is the share of that time in which it was busy");
}
