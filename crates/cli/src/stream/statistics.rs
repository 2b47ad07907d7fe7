//! Statistics of streams: for people, as JSON, and in Prometheus's text format.

use super::channel::Channel;
use crate::failure::Failure;
use crate::names::shown;
use crate::report::Report;
use dcs::media::{DEVIATIONS, Sending, Statistics};
use prometheus::core::{AtomicU64, GenericCounterVec, GenericGaugeVec};
use prometheus::{Opts, Registry, TextEncoder};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

/// Returns the sum of statistics.
pub fn sum(all: impl Iterator<Item = Sending>) -> Statistics {
    let mut sum = Statistics::default();
    for Sending { counts, .. } in all {
        sum.datagrams += counts.datagrams;
        sum.bytes += counts.bytes;
        sum.late += counts.late;
        sum.worst = sum.worst.max(counts.worst);
        sum.slips += counts.slips;
        sum.slipped += counts.slipped;
        sum.lost += counts.lost;
        sum.jumps += counts.jumps;
        sum.skipped += counts.skipped;
        sum.deviations.iter_mut().zip(counts.deviations).for_each(|(sum, count)| *sum += count);
    }
    sum
}

fn ms(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// Returns the counts as JSON.
pub fn object(counts: &Statistics) -> Value {
    json!({
        "datagrams": counts.datagrams, "bytes": counts.bytes, "late": counts.late, "lost": counts.lost,
        "slips": counts.slips, "slipped_ms": ms(counts.slipped), "jumps": counts.jumps, "skipped": counts.skipped,
        "deviation_median_ms": ms(counts.quantile(0.5)), "deviation_99_ms": ms(counts.quantile(0.99)),
        "deviation_most_ms": ms(counts.worst),
    })
}

/// Returns the counts in a line, for people.
pub fn line(streams: usize, counts: &Statistics, errno: i32) -> String {
    let mut line = format!(
        "{streams} {}: {} datagrams, {} late, {} lost; deviation from the due time: 99 % within {:.2} ms, most {:.2} ms",
        if streams == 1 { "stream" } else { "streams" },
        counts.datagrams,
        counts.late,
        counts.lost,
        ms(counts.quantile(0.99)),
        ms(counts.worst),
    );
    if errno != 0 {
        line += &format!("; the network: {}", std::io::Error::from_raw_os_error(errno));
    }
    if counts.slips > 0 {
        line += &format!(
            "; delayed {} times, by {:.0} ms in total, as data came too late",
            counts.slips,
            ms(counts.slipped)
        );
    }
    if counts.jumps > 0 {
        line += &format!("; {} jumps of the clock", counts.jumps);
    }
    if counts.skipped > 0 {
        line += &format!("; {} bytes left out, which are not packets", counts.skipped);
    }
    line
}

/// Reports the statistics of all channels.
pub fn all(event: &str, channels: &[Channel], gone: &Statistics, report: &Report) {
    let states: Vec<Sending> = channels.iter().map(Channel::state).collect();
    let gone = Sending { counts: *gone, ..Sending::default() };
    let errno = states.iter().map(|state| state.errno).find(|errno| *errno != 0).unwrap_or(0);
    let total = sum(states.iter().copied().chain([gone]));
    report.remark(line(channels.len(), &total, errno));
    let each: Vec<Value> = channels
        .iter()
        .zip(&states)
        .map(|(channel, state)| {
            let mut object = object(&state.counts);
            object["channel"] = channel.settings.name.as_str().into();
            object["to"] = channel.settings.to.to_string().into();
            object["files_sent"] = channel.sent.into();
            object["files_failed"] = channel.failed.into();
            object
        })
        .collect();
    report.object(&json!({ "event": event, "command": "stream", "total": object(&total), "channels": each }));
}

/// Returns the statistics in Prometheus's text format.
fn metrics(channels: &[Channel]) -> prometheus::Result<String> {
    let registry = Registry::new();
    let counter =
        |name: &str, help: &str, labels: &[&str]| -> prometheus::Result<GenericCounterVec<AtomicU64>> {
            let made = GenericCounterVec::new(Opts::new(format!("dcs_stream_{name}"), help), labels)?;
            registry.register(Box::new(made.clone()))?;
            Ok(made)
        };
    let labels = &["channel", "to"];
    let counters = [
        counter("datagrams_total", "Datagrams sent.", labels)?,
        counter("bytes_total", "Payload bytes sent.", labels)?,
        counter("late_total", "Datagrams sent more than 5 ms after their due time.", labels)?,
        counter("lost_total", "Datagrams that the network did not accept.", labels)?,
        counter("slips_total", "Delays of a stream because its data came too late.", labels)?,
        counter("slipped_microseconds_total", "Total length of these delays in microseconds.", labels)?,
        counter("jumps_total", "Clock references that jumped without a mark.", labels)?,
        counter("skipped_bytes_total", "Bytes left out, which are not packets.", labels)?,
        counter("files_failed_total", "Files that could not be sent.", labels)?,
    ];
    let within = counter(
        "deviation_total",
        "Datagrams whose deviation from their due time was at most this many microseconds.",
        &["channel", "to", "microseconds"],
    )?;
    let worst: GenericGaugeVec<AtomicU64> = GenericGaugeVec::new(
        Opts::new("dcs_stream_worst_deviation_microseconds", "The greatest deviation from the due time."),
        labels,
    )?;
    registry.register(Box::new(worst.clone()))?;
    for channel in channels {
        let to = channel.settings.to.to_string();
        let label = [channel.settings.name.as_str(), &to];
        let counts = channel.state().counts;
        let values = [
            counts.datagrams,
            counts.bytes,
            counts.late,
            counts.lost,
            counts.slips,
            counts.slipped / 1000,
            counts.jumps,
            counts.skipped,
            channel.failed,
        ];
        counters
            .iter()
            .zip(values)
            .for_each(|(counter, value)| counter.with_label_values(&label).inc_by(value));
        let mut sum = 0;
        for (count, bound) in counts.deviations.iter().zip(DEVIATIONS) {
            sum += count;
            within.with_label_values(&[label[0], label[1], &(bound / 1000).to_string()]).inc_by(sum);
        }
        worst.with_label_values(&label).set(counts.worst / 1000);
    }
    TextEncoder::new().encode_to_string(&registry.gather())
}

/// Writes the metrics to a file, which readers never see half-written.
pub fn write_metrics(path: &Path, channels: &[Channel]) -> Result<(), Failure> {
    let failed = |error| Failure::io(shown(path), &error);
    let text = metrics(channels).map_err(|error| failed(std::io::Error::other(error)))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(readable).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}
