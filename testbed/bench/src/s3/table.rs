//! Tables of `dcs bench s3` for people.

use super::contender::Contender;
use super::figures::Row;
use super::memory::Peak;
use super::options::Job;
use super::programs::Programs;
use crate::harness::contender::Named;
use crate::harness::shown::plural;
use crate::harness::table::{Table, costs, costs_header, number};
use crate::report::Report;
use crate::units::human;
use serde_json::json;

/// Reports the list for `--list`.
pub fn list(programs: &Programs, report: &Report) {
    for (contender, name, what) in Contender::ALL {
        let missing = programs.missing.iter().find(|(missing, _)| missing == contender);
        let (version, durability) = (programs.version(*contender), contender.durability());
        let state = missing.map_or(version.to_string(), |(_, why)| format!("not here: {why}"));
        report.text(format_args!("{name:11} {what} ({state})"));
        report.text(format_args!("{:11}   when a PUT is answered: {durability}", ""));
        report.object(&json!({
            "event": "contender", "contender": name, "what": what, "durability": durability,
            "version": version, "missing": missing.map(|(_, why)| why),
            "put": contender.can(Job::Put), "get": contender.can(Job::Get),
        }));
    }
}

/// Reports the contenders that take no part.
pub fn missing(programs: &Programs, report: &Report) {
    for (contender, why) in &programs.missing {
        report.text(format_args!("Without {}: {why}.", contender.name()));
        report.object(&json!({ "event": "skipped", "contender": contender.name(), "why": why }));
    }
}

/// Reports one scenario: its contenders side by side.
pub fn scenario(rows: &[Row], report: &Report) {
    let Some(first) = rows.first() else { return };
    report.text(format_args!(
        "\n{}, {}, objects of {}{}",
        first.job.to_uppercase(),
        plural(first.clients, "client"),
        human(first.size),
        if first.cold { ", cold" } else { "" },
    ));
    let is_put = first.job == Job::Put.name();
    let mut header = vec!["contender".to_string()];
    header.extend(costs_header(first.base));
    let last = if is_put { "when answered" } else { "requests" };
    header.extend(["req/s", "req/CPU s", "p50 ms", "p99 ms", last].map(String::from));
    let words = header.len() - 1;
    let mut table = Table::new(header).words(&[words]);
    for row in rows {
        let mut cells = vec![row.contender.to_string()];
        cells.extend(costs(&row.cost));
        cells.extend([
            format!("{:.0}", row.requests_per_s),
            format!("{:.0}", row.requests_per_cpu_s),
            number(row.p50_ms, 2),
            number(row.p99_ms, 2),
            if is_put { row.durability } else { row.signing }.to_string(),
        ]);
        table.row(cells);
    }
    table.show(report);
}

/// Reports the results of `--memory`.
pub fn memory(peaks: &[Peak], report: &Report) {
    let Some(first) = peaks.first() else { return };
    report.text(format_args!(
        "\nPeak memory, {}, half of them with PUT and half with GET, objects of {} in {} s each",
        plural(first.clients, "client"),
        human(first.size),
        first.object_s,
    ));
    let mut table = Table::new(["contender", "peak MiB", "requests", "GiB/s"]);
    for peak in peaks {
        table.row([
            peak.contender.to_string(),
            format!("{:.1}", peak.peak_rss_mib),
            peak.requests.to_string(),
            format!("{:.3}", peak.gib_per_s),
        ]);
    }
    table.show(report);
}

/// Reports the introduction, before the measurements.
pub fn versions(programs: &Programs, report: &Report) {
    let mut told: Vec<String> = Vec::new();
    for (contender, name, _) in Contender::ALL.iter().filter(|(contender, ..)| programs.has(*contender)) {
        told.push(format!("{name} {}", programs.version(*contender)));
    }
    report.text(format_args!("Servers: {}.", told.join(", ")));
}
