//! The tables that a benchmark shows to people.

use super::contender::Contender;
use super::figures::Row;
use super::job::JOBS;
use crate::harness::contender::Named;
use crate::harness::figures::Ratio;
use crate::harness::shown::{self, plural};
use crate::report::Report;
use crate::units::human;
use serde_json::json;

/// `--list`.
pub fn list(report: &Report) {
    report.text(
        "Jobs (any other chain can be written the same way; dcs ops --no-measure lists the operators):",
    );
    for (job, what) in JOBS {
        report.text(format_args!("  {job:30} {what}"));
        report.object(&json!({ "event": "job", "job": job, "what": what }));
    }
    let control = "instructions and system calls of one small transfer";
    report.text(format_args!("  {:30} {control}", super::CONTROL));
    report.object(&json!({ "event": "job", "job": super::CONTROL, "what": control }));
    report.text("\nContenders:");
    for (_, name, what) in Contender::ALL {
        report.text(format_args!("  {name:30} {what}"));
        report.object(&json!({ "event": "contender", "contender": name, "what": what }));
    }
}

/// One scenario: its contenders side by side.
pub fn scenario(rows: &[Row], report: &Report) {
    let Some(first) = rows.first() else { return };
    report.text(format_args!(
        "\n{}, {}, objects of {}{}{}{}",
        first.job,
        plural(first.streams, "stream"),
        human(first.size),
        if first.cold { ", cold" } else { "" },
        if first.open == "once" { ", opened before" } else { "" },
        if first.hogs > 0 { format!(", beside {}", plural(first.hogs, "hog")) } else { String::new() },
    ));
    let small = first.objects.is_some();
    report.text(format_args!(
        "  {:14}{:>7} {:>25} {:>10} {:>25} {:>7} {:>7}{}  library",
        "contender",
        "GiB/s",
        "x loop (least..most)",
        "CPU s/GiB",
        "x loop (least..most)",
        "kernel",
        "client",
        if small { "  objects/CPU s  us CPU each  p50 us  p99 us" } else { "" },
    ));
    for row in rows {
        let objects = row.objects.map_or(String::new(), |objects| {
            format!(
                "{:15.0} {:12.2} {:>7} {:>7}",
                objects.objects_per_cpu_s,
                objects.cpu_us_per_object,
                whole(objects.latency_us_p50),
                whole(objects.latency_us_p99)
            )
        });
        report.text(format_args!(
            "  {:14}{:7.3} {:>25} {:10.3} {:>25} {:7.3} {:7.3}{objects}  {}{}",
            row.contender,
            row.gib_per_s,
            shown::ratio(row.throughput_ratio),
            row.cpu_s_per_gib,
            shown::ratio(row.cpu_ratio),
            row.kernel_cpu_s_per_gib,
            row.client_cpu_s_per_gib,
            row.library,
            row.share_of_uncontended.map_or(String::new(), |share| {
                format!("; keeps {:.2} of its throughput without hogs", share.median)
            }),
        ));
    }
}

/// Python may be too busy to hear that latencies count.
fn whole(number: f64) -> String {
    if number.is_finite() { format!("{number:.0}") } else { "-".into() }
}

/// All scenarios: the engine beside the loop.
pub fn summary(rows: &[Row], report: &Report) {
    report.text(
        "\nThe engine beside the loop (medians of paired runs; less CPU and more throughput are better):",
    );
    report.text(format_args!(
        "  {:30} {:>7} {:>10} {:>4}  {:>13} {:>9} {:>10} {:>12}",
        "job", "streams", "objects of", "hogs", "contender", "CPU s/GiB", "x its loop", "GiB/s x loop"
    ));
    for row in rows.iter().filter(|row| row.contender.starts_with("engine")) {
        let ratio = |ratio: Option<Ratio>| ratio.map_or("-".into(), |ratio| format!("{:.2}", ratio.median));
        report.text(format_args!(
            "  {:30} {:>7} {:>10} {:>4}  {:>13} {:9.3} {:>10} {:>12}",
            row.job,
            row.streams,
            human(row.size),
            row.hogs,
            row.contender,
            row.cpu_s_per_gib,
            ratio(row.cpu_ratio),
            ratio(row.throughput_ratio),
        ));
    }
}
