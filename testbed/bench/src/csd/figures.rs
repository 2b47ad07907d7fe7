//! Medians and ratios, and their tables and plots.

use super::job::{Contender, Job};
use crate::failure::Failure;
use crate::harness::contender::Named;
use crate::harness::figures::Ratio;
use crate::harness::plot::{self, Point};
use crate::harness::shown;
use crate::harness::table::{Table, number};
use crate::harness::turns::Runs;
use crate::report::Report;
use dcs_testkit::median;
use serde::Serialize;
use std::path::Path;

/// The contender to which ratios are given.
const BASE: Contender = Contender::Fio;

/// Results of one run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub per_s: f64,
    /// CPU time per command of the process that moves the data.
    pub drive_cpu_us: f64,
    pub client_cpu_us: Option<f64>,
    pub latency_us: Option<f64>,
    pub latency_99_us: Option<f64>,
}

/// A contender's runs of a job.
#[derive(Debug, Serialize)]
pub struct Row {
    pub event: &'static str,
    pub job: String,
    pub bytes: u64,
    pub depth: usize,
    pub contender: &'static str,
    pub per_s: f64,
    pub mib_per_s: f64,
    pub per_s_of_fio: Option<Ratio>,
    pub drive_cpu_us: f64,
    pub drive_cpu_of_fio: Option<Ratio>,
    pub client_cpu_us: Option<f64>,
    pub latency_us: Option<f64>,
    pub latency_99_us: Option<f64>,
    pub latency_more_us: Option<f64>,
    pub runs: usize,
}

/// Returns a row for each contender.
pub fn rows(job: Job, depth: usize, all: &[Runs<Contender, Run>]) -> Vec<Row> {
    let base = all.iter().find(|runs| runs.contender == BASE).map(|runs| &runs.runs[..]);
    all.iter().map(|runs| row(job, depth, runs.contender, &runs.runs, base)).collect()
}

fn row(job: Job, depth: usize, contender: Contender, runs: &[Run], base: Option<&[Run]>) -> Row {
    let ratio = |value: fn(&Run) -> f64| {
        let base = base.filter(|_| contender != BASE)?;
        Some(Ratio::of(runs.iter().zip(base).map(|(one, other)| value(one) / value(other)).collect()))
    };
    let middle = |value: fn(&Run) -> f64| median(runs.iter().map(value));
    let some = |value: fn(&Run) -> Option<f64>| {
        Some(median(runs.iter().filter_map(value))).filter(|value| value.is_finite())
    };
    let one_at_a_time = if depth == 1 { some(|run| run.latency_us) } else { None };
    let more = base.filter(|_| contender != BASE && depth == 1).map(|base| {
        median(runs.iter().zip(base).filter_map(|(one, other)| Some(one.latency_us? - other.latency_us?)))
    });
    Row {
        event: "measurement",
        job: job.name(),
        bytes: job.bytes(),
        depth,
        contender: contender.name(),
        per_s: middle(|run| run.per_s),
        mib_per_s: middle(|run| run.per_s) * job.bytes() as f64 / f64::from(1 << 20),
        per_s_of_fio: ratio(|run| run.per_s),
        drive_cpu_us: middle(|run| run.drive_cpu_us),
        drive_cpu_of_fio: ratio(|run| run.drive_cpu_us),
        client_cpu_us: some(|run| run.client_cpu_us),
        latency_us: one_at_a_time,
        latency_99_us: one_at_a_time.and_then(|_| some(|run| run.latency_99_us)),
        latency_more_us: more,
        runs: runs.len(),
    }
}

pub fn show(rows: &[Row], report: &Report) {
    let Some(first) = rows.first() else { return };
    report.text(format_args!("\n{}: {} bytes, depth {}", first.job, first.bytes, first.depth));
    let header = [
        "contender",
        "1000/s",
        "MiB/s",
        "x fio (least..most)",
        "CPU us",
        "x fio (least..most)",
        "driver us",
        "p50 us",
        "p99 us",
        "more us",
    ];
    let mut table = Table::new(header);
    for row in rows {
        table.row([
            row.contender.to_string(),
            format!("{:.1}", row.per_s / 1000.0),
            format!("{:.0}", row.mib_per_s),
            shown::ratio(row.per_s_of_fio),
            format!("{:.2}", row.drive_cpu_us),
            shown::ratio(row.drive_cpu_of_fio),
            number(row.client_cpu_us, 2),
            number(row.latency_us, 1),
            number(row.latency_99_us, 1),
            number(row.latency_more_us, 1),
        ]);
    }
    table.show(report);
}

/// Plots CPU time per command against depth.
pub fn plot(rows: &[Row], path: &Path, report: &Report) -> Result<(), Failure> {
    let point = |row: &'_ Row| -> (String, &'static str, usize, f64) {
        (format!("{}, {} bytes", row.job, row.bytes), row.contender, row.depth, row.drive_cpu_us)
    };
    let points: Vec<Point<'_>> =
        rows.iter().map(point).map(|(panel, series, x, y)| Point { panel, series, x, y }).collect();
    plot::draw(&points, &Contender::names(), ("depth", "CPU us a command"), path, report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_the_same_repetition() {
        let run = |per_s: f64, latency: f64| Run {
            per_s,
            drive_cpu_us: 1e6 / per_s,
            client_cpu_us: None,
            latency_us: Some(latency),
            latency_99_us: None,
        };
        let fio = Runs { contender: Contender::Fio, runs: vec![run(100.0, 50.0), run(50.0, 90.0)] };
        let drive = Runs { contender: Contender::Polled, runs: vec![run(90.0, 54.0), run(50.0, 92.0)] };
        let rows = rows(Job::Latency, 1, &[fio, drive]);
        assert_eq!(rows[0].per_s_of_fio, None);
        assert_eq!(rows[1].per_s_of_fio, Some(Ratio { median: 0.95, least: 0.9, most: 1.0 }));
        assert_eq!(rows[1].latency_more_us, Some(3.0));
    }
}
