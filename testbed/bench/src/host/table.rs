//! Tables for people.

use super::contender::Contender;
use super::figures::{Counters, Row};
use super::job::JOBS;
use crate::harness::contender::Named;
use crate::harness::figures::Ratio;
use crate::harness::shown::plural;
use crate::harness::table::{Table, costs, costs_header, number};
use crate::report::Report;
use crate::units::human;
use serde_json::json;

/// Reports the list for `--list`.
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

/// Returns what ran beside, as a part of a sentence.
pub fn beside(row: &Row) -> String {
    let named = [(row.hogs, "hog"), (row.memory_hogs, "memory hog")];
    let some: Vec<_> =
        named.iter().filter(|(count, _)| *count > 0).map(|(count, name)| plural(*count, name)).collect();
    if some.is_empty() { String::new() } else { format!(", beside {}", some.join(" and ")) }
}

/// Reports one scenario: its contenders side by side.
pub fn scenario(rows: &[Row], report: &Report) {
    let Some(first) = rows.first() else { return };
    report.text(format_args!(
        "\n{}, {}, objects of {}{}{}{}",
        first.job,
        plural(first.streams, "stream"),
        human(first.size),
        if first.cold { ", cold" } else { "" },
        if first.open == "once" { ", opened beforehand" } else { "" },
        beside(first),
    ));
    let objects = ["objects/CPU s", "us CPU each", "p50 us", "p99 us"];
    let objects = if first.objects.is_some() { &objects[..] } else { &[] };
    let mut header = vec!["contender".to_string()];
    header.extend(costs_header(Some(Contender::Loop.name())));
    header.extend(objects.iter().map(ToString::to_string));
    let counts = matches!(first.counters, Some(Counters::Counted { .. }));
    if counts {
        header.extend(["instructions/byte", "a cycle", "cache misses/KiB"].map(String::from));
    }
    header.push("library".into());
    let last = header.len() - 1;
    let mut table = Table::new(header).words(&[last]);
    for row in rows {
        let mut cells = vec![row.contender.to_string()];
        cells.extend(costs(&row.cost));
        if let Some(objects) = row.objects {
            cells.push(number(Some(objects.objects_per_cpu_s), 0));
            cells.push(number(Some(objects.cpu_us_per_object), 2));
            // Python may be too busy to handle `Begin`, and then has no latencies.
            cells.push(number(Some(objects.latency_us_p50), 0));
            cells.push(number(Some(objects.latency_us_p99), 0));
        }
        if counts {
            cells.extend(counter_cells(row));
        }
        let kept = row
            .share_of_uncontended
            .map_or(String::new(), |share| format!("; keeps {:.2} of its throughput alone", share.median));
        cells.push(format!("{}{kept}", row.library));
        table.row(cells);
    }
    table.show(report);
    if let Some(Counters::Refused { counters_refused }) = &first.counters {
        report.text(format_args!("counters: skipped: {counters_refused}"));
    }
}

/// Returns what the processor's counters say. Those of Python are not counted.
fn counter_cells(row: &Row) -> [String; 3] {
    let Some(Counters::Counted {
        instructions_per_byte: work,
        instructions_per_cycle: pace,
        cache_misses_per_kib: misses,
        ..
    }) = &row.counters
    else {
        return ["-", "-", "-"].map(String::from);
    };
    [format!("{work:.2}"), format!("{pace:.2}"), format!("{misses:.3}")]
}

/// Reports all scenarios: the engine compared with the loop.
pub fn summary(rows: &[Row], report: &Report) {
    report.text(
        "\nThe engine compared with the loop (medians of paired runs; less CPU and more throughput are better):",
    );
    let header =
        ["job", "streams", "objects of", "hogs", "contender", "CPU s/GiB", "x its loop", "GiB/s x loop"];
    let mut table = Table::new(header);
    for row in rows.iter().filter(|row| row.contender.starts_with("engine")) {
        let ratio = |ratio: Option<Ratio>| number(ratio.map(|ratio| ratio.median), 2);
        table.row([
            row.job.clone(),
            row.streams.to_string(),
            human(row.size),
            row.hogs.to_string(),
            row.contender.to_string(),
            format!("{:.3}", row.cost.cpu_s_per_gib),
            ratio(row.cost.cpu_ratio),
            ratio(row.cost.throughput_ratio),
        ]);
    }
    table.show(report);
}
