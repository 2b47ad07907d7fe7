//! The tables that `dcs bench s3` shows to people.

use super::contender::Contender;
use super::figures::Row;
use super::memory::Peak;
use super::options::Job;
use super::programs::Programs;
use crate::harness::contender::Named;
use crate::harness::shown::{self, plural};
use crate::report::Report;
use crate::units::human;
use serde_json::json;

/// `--list`.
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

/// Those that take no part.
pub fn missing(programs: &Programs, report: &Report) {
    for (contender, why) in &programs.missing {
        report.text(format_args!("Without {}: {why}.", contender.name()));
        report.object(&json!({ "event": "skipped", "contender": contender.name(), "why": why }));
    }
}

/// One scenario: its contenders side by side.
pub fn scenario(rows: &[Row], report: &Report) {
    let Some(first) = rows.first() else { return };
    report.text(format_args!(
        "\n{}, {}, objects of {}{}",
        first.job.to_uppercase(),
        plural(first.clients, "client"),
        human(first.size),
        if first.cold { ", cold" } else { "" },
    ));
    let ratio = first.base.map_or("-".into(), |base| format!("x {base} (least..most)"));
    report.text(format_args!(
        "  {:13}{:>7} {ratio:>29} {:>10} {ratio:>29} {:>7} {:>7} {:>9} {:>11} {:>8} {:>8}  {}",
        "contender",
        "GiB/s",
        "CPU s/GiB",
        "kernel",
        "client",
        "req/s",
        "req/CPU s",
        "p50 ms",
        "p99 ms",
        if first.job == Job::Put.name() { "when answered" } else { "requests" },
    ));
    for row in rows {
        let ms = |ms: Option<f64>| ms.map_or("-".into(), |ms| format!("{ms:.2}"));
        report.text(format_args!(
            "  {:13}{:7.3} {:>29} {:10.3} {:>29} {:7.3} {:7.3} {:9.0} {:11.0} {:>8} {:>8}  {}",
            row.contender,
            row.gib_per_s,
            shown::ratio(row.throughput_ratio),
            row.cpu_s_per_gib,
            shown::ratio(row.cpu_ratio),
            row.kernel_cpu_s_per_gib,
            row.client_cpu_s_per_gib,
            row.requests_per_s,
            row.requests_per_cpu_s,
            ms(row.p50_ms),
            ms(row.p99_ms),
            if row.job == Job::Put.name() { row.durability } else { row.signing },
        ));
    }
}

/// `--memory`.
pub fn memory(peaks: &[Peak], report: &Report) {
    let Some(first) = peaks.first() else { return };
    report.text(format_args!(
        "\nPeak memory, {}, half of them with PUT and half with GET, objects of {} in {} s each",
        plural(first.clients, "client"),
        human(first.size),
        first.object_s,
    ));
    report.text(format_args!("  {:11}{:>10} {:>10} {:>10}", "contender", "peak MiB", "requests", "GiB/s"));
    for peak in peaks {
        report.text(format_args!(
            "  {:11}{:10.1} {:10} {:10.3}",
            peak.contender, peak.peak_rss_mib, peak.requests, peak.gib_per_s
        ));
    }
}

/// The introduction, before anything is measured.
pub fn versions(programs: &Programs, report: &Report) {
    let mut told: Vec<String> = Vec::new();
    for (contender, name, _) in Contender::ALL.iter().filter(|(contender, ..)| programs.has(*contender)) {
        told.push(format!("{name} {}", programs.version(*contender)));
    }
    report.text(format_args!("Servers: {}.", told.join(", ")));
}
