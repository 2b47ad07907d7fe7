//! The server's counters, for Prometheus and for the status page.
//!
//! Events are counted when they happen ([`Metrics::answered`], [`Metrics::moved`]). The state is read when somebody
//! asks for it ([`Metrics::look`]).

mod process;

use crate::store::Usage;
use crate::transfers::DataPathError;
use dcs::{Completion, Statistics};
use prometheus::core::Collector;
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{
    Counter, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, TextEncoder,
};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Media type of [`Metrics::text`].
pub const TEXT: &str = prometheus::TEXT_FORMAT;

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From a client.
    Put,
    /// To a client.
    Get,
    /// From file to file.
    Copy,
    /// To nowhere: the data are read to be checked.
    Check,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Direction::Put => "put",
            Direction::Get => "get",
            Direction::Copy => "copy",
            Direction::Check => "check",
        }
    }
}

/// An answer, sent or not.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    /// Method of the request.
    pub method: &'a http::Method,
    /// S3 operation; empty if it was not found out.
    pub operation: &'a str,
    /// Status of the answer.
    pub status: u16,
    /// Time from the request's head to the answer's last byte.
    pub took: Duration,
}

/// State of the server at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Open connections.
    pub connections: usize,
    /// Most open connections.
    pub connections_max: usize,
    /// Most transfers in the engine.
    pub transfers_max: usize,
    /// Longest wait of a transfer for its place.
    pub longest_wait: Duration,
    /// Statistics of the engine.
    pub engine: Statistics,
    /// Statistics of the store, if it answers.
    pub usage: Option<Usage>,
    /// Free bytes in the store's file system.
    pub free: Option<u64>,
    /// Objects found damaged since the start.
    pub quarantined: u64,
}

/// All counters. Names and meanings: docs/serve.md.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    started: Instant,
    requests: IntCounterVec,
    duration: HistogramVec,
    received: IntCounter,
    sent: IntCounter,
    transfers: IntCounterVec,
    transfer: HistogramVec,
    stages: HistogramVec,
    failures: IntCounterVec,
    pub(crate) waiting: IntGauge,
    waits: Histogram,
    pub(crate) sent_away: IntCounter,
    sampled: Sampled,
}

/// Gauges of the state, set when somebody asks for it.
#[derive(Debug)]
struct Sampled {
    connections: IntGauge,
    connections_max: IntGauge,
    transfers: IntGauge,
    transfers_max: IntGauge,
    longest_wait: Gauge,
    blocks: IntGauge,
    blocks_free: IntGauge,
    operations: IntCounter,
    ignored: IntCounter,
    passes: IntCounter,
    gathered: IntCounter,
    buckets: IntGauge,
    objects: IntGauge,
    uploads: IntGauge,
    bytes: IntGauge,
    stored: IntGauge,
    free: IntGauge,
    quarantined: IntCounter,
    cpu: Counter,
    resident: IntGauge,
}

/// Registers a new counter. Names are this module's own: a duplicate would be a bug here.
fn add<C: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> C {
    let made = made.expect("names are those of Prometheus");
    registry.register(Box::new(made.clone())).expect("each name is there once");
    made
}

/// Returns bounds from 10 us to 80 s, each twice the one before.
fn buckets() -> Vec<f64> {
    prometheus::exponential_buckets(1e-5, 2.0, 24).expect("they grow")
}

impl Default for Metrics {
    fn default() -> Metrics {
        let registry = Registry::new();
        let r = &registry;
        let counters = |name, help, labels| add(r, IntCounterVec::new(Opts::new(name, help), labels));
        let histograms = |name, help, labels| {
            add(r, HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets()), labels))
        };
        let info = Opts::new("dcs_build_info", "The version of dcs, as a label; always 1.");
        let info = add(r, IntGaugeVec::new(info, &["version"]));
        info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let start = "process_start_time_seconds";
        let start = add(r, IntGauge::new(start, "When the process was started, in seconds since 1970."));
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        start.set(since.as_secs() as i64);
        Metrics {
            started: Instant::now(),
            requests: counters(
                "dcs_requests_total",
                "Requests that were answered.",
                &["operation", "method", "status"],
            ),
            duration: histograms(
                "dcs_request_duration_seconds",
                "From a request's head to the last byte of its answer.",
                &["operation"],
            ),
            received: add(r, IntCounter::new("dcs_received_bytes_total", "Bytes of requests' bodies.")),
            sent: add(r, IntCounter::new("dcs_sent_bytes_total", "Bytes of answers, heads included.")),
            transfers: counters("dcs_transfer_bytes_total", "Bytes that left the engine.", &["direction"]),
            transfer: histograms(
                "dcs_transfer_duration_seconds",
                "From a command's start in the engine to its completion.",
                &["direction"],
            ),
            stages: histograms(
                "dcs_transfer_stage_seconds",
                "Time of a transfer's stage: queued, source, each operator, destination. Stages overlap.",
                &["direction", "stage"],
            ),
            failures: counters(
                "dcs_transfer_failures_total",
                "Transfers that failed, by the engine's status.",
                &["direction", "status"],
            ),
            waiting: add(
                r,
                IntGauge::new("dcs_transfers_waiting", "Transfers that wait for a place in the engine."),
            ),
            waits: add(r, {
                let help = "Time that transfers waited for a place in the engine, of those that had to wait.";
                let options = HistogramOpts::new("dcs_transfer_wait_seconds", help);
                Histogram::with_opts(options.buckets(buckets()))
            }),
            sent_away: add(
                r,
                IntCounter::new(
                    "dcs_connections_sent_away_total",
                    "Connections without a request that gave way to new ones.",
                ),
            ),
            sampled: Sampled::new(r),
            registry,
        }
    }
}

impl Sampled {
    fn new(r: &Registry) -> Sampled {
        let gauge = |name: &str, help: &str| add(r, IntGauge::new(name, help));
        let counter = |name: &str, help: &str| add(r, IntCounter::new(name, help));
        Sampled {
            connections: gauge("dcs_connections_open", "Connections that are open."),
            connections_max: gauge("dcs_connections_max", "Connections that may be open."),
            transfers: gauge("dcs_transfers_in_flight", "Commands that the engine has."),
            transfers_max: gauge("dcs_transfers_max", "Transfers that the engine may have."),
            longest_wait: add(
                r,
                Gauge::new(
                    "dcs_transfers_longest_wait_seconds",
                    "Longest time that a waiting transfer has waited for a place; 0 if none waits.",
                ),
            ),
            blocks: gauge("dcs_engine_blocks", "Blocks of the engine: rows of its scoreboard with data."),
            blocks_free: gauge("dcs_engine_blocks_free", "Blocks of the engine that are free."),
            operations: counter(
                "dcs_engine_operations_total",
                "Operations that devices and operators were given.",
            ),
            ignored: counter(
                "dcs_engine_ignored_total",
                "Invalid doorbells and answers that the engine got.",
            ),
            passes: counter("dcs_engine_passes_total", "Passes of the multi-lane units."),
            gathered: counter("dcs_engine_gathered_blocks_total", "Blocks in those passes: lanes filled."),
            buckets: gauge("dcs_store_buckets", "Buckets."),
            objects: gauge("dcs_store_objects", "Objects."),
            uploads: gauge("dcs_store_uploads", "Multipart uploads that are going on."),
            bytes: gauge("dcs_store_bytes", "Plain bytes of all objects."),
            stored: gauge("dcs_store_stored_bytes", "Bytes of their files."),
            free: gauge("dcs_store_free_bytes", "Bytes that are free in the store's file system."),
            quarantined: counter(
                "dcs_store_quarantined_total",
                "Objects that were found damaged since the start.",
            ),
            cpu: add(
                r,
                Counter::new("process_cpu_seconds_total", "Processor time of all threads, in seconds."),
            ),
            resident: gauge("process_resident_memory_bytes", "Memory that the process has."),
        }
    }
}

/// Returns a method's label. Unknown methods share one, so that clients can't make new series.
fn method(method: &http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "PUT" => "PUT",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Metrics {
    /// Counts an answer.
    pub fn answered(&self, answered: Answered<'_>) {
        let Answered { operation, status, took, .. } = answered;
        let operation = if operation.is_empty() { "none" } else { operation };
        let labels = [operation, method(answered.method), &status.to_string()];
        self.requests.with_label_values(&labels).inc();
        self.duration.with_label_values(&[operation]).observe(took.as_secs_f64());
    }

    /// Counts bytes of a request's body that bypassed the engine.
    pub fn received(&self, bytes: u64) {
        self.received.inc_by(bytes);
    }

    /// Counts bytes of an answer that bypassed the engine.
    pub fn sent(&self, bytes: u64) {
        self.sent.inc_by(bytes);
    }

    /// Counts a transfer's wait for its place.
    pub fn waited(&self, time: Duration) {
        self.waits.observe(time.as_secs_f64());
    }

    /// Counts a transfer.
    pub fn moved(&self, direction: Direction, done: &Result<Completion, DataPathError>) {
        let name = direction.name();
        let completion = match done {
            Ok(completion) => completion,
            Err(error) => {
                let status = error.status().map_or("not submitted", dcs::Status::name);
                self.failures.with_label_values(&[name, status]).inc();
                let Some(completion) = error.completion() else { return };
                completion
            }
        };
        match direction {
            Direction::Put => self.received.inc_by(completion.bytes_in),
            Direction::Get => self.sent.inc_by(completion.bytes_out),
            Direction::Copy | Direction::Check => {}
        }
        self.transfers.with_label_values(&[name]).inc_by(completion.bytes_out);
        if done.is_err() {
            return;
        }
        let times = &completion.breakdown;
        self.transfer.with_label_values(&[name]).observe(times.run.as_secs_f64());
        self.stages.with_label_values(&[name, "queued"]).observe(times.queued.as_secs_f64());
        for stage in &times.stages {
            self.stages.with_label_values(&[name, stage.name]).observe(stage.busy.as_secs_f64());
        }
    }

    /// Sets the gauges to the state at the moment.
    fn look(&self, now: &Now) {
        let s = &self.sampled;
        s.connections.set(gauge(now.connections as u64));
        s.connections_max.set(gauge(now.connections_max as u64));
        s.transfers.set(gauge(now.engine.transfers as u64));
        s.transfers_max.set(gauge(now.transfers_max as u64));
        s.longest_wait.set(now.longest_wait.as_secs_f64());
        s.blocks.set(now.engine.blocks.into());
        s.blocks_free.set(now.engine.blocks_free.into());
        let counters = [
            (&s.operations, now.engine.operations),
            (&s.ignored, now.engine.ignored),
            (&s.passes, now.engine.passes),
            (&s.gathered, now.engine.lanes_filled),
            (&s.quarantined, now.quarantined),
        ];
        for (counter, value) in counters {
            counter.inc_by(value.saturating_sub(counter.get()));
        }
        if let Some(usage) = now.usage {
            s.buckets.set(gauge(usage.buckets));
            s.objects.set(gauge(usage.objects));
            s.uploads.set(gauge(usage.uploads));
            s.bytes.set(gauge(usage.bytes));
            s.stored.set(gauge(usage.stored));
        }
        if let Some(free) = now.free {
            s.free.set(gauge(free));
        }
        s.cpu.inc_by((process::cpu_seconds() - s.cpu.get()).max(0.0));
        s.resident.set(gauge(process::resident_bytes()));
    }

    /// Returns all metrics in Prometheus's text format, version 0.0.4.
    pub fn text(&self, now: &Now) -> String {
        self.look(now);
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_default()
    }

    /// Returns all metrics as JSON: for each name an array of `{labels, value}`, or of `{labels, sum, count}` for a
    /// histogram.
    pub fn json(&self, now: &Now) -> Value {
        self.look(now);
        let families = self.registry.gather();
        let metrics: Map<String, Value> =
            families.iter().map(|family| (family.name().to_string(), samples(family))).collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_seconds": self.started.elapsed().as_secs_f64(),
            "metrics": metrics,
        })
    }
}

fn samples(family: &MetricFamily) -> Value {
    let samples = family.get_metric().iter().map(|metric| {
        let labels = metric.get_label().iter().map(|label| (label.name().to_string(), label.value().into()));
        let labels: Map<String, Value> = labels.collect();
        match family.get_field_type() {
            MetricType::HISTOGRAM => {
                let histogram = metric.get_histogram();
                let (sum, count) = (histogram.get_sample_sum(), histogram.get_sample_count());
                json!({"labels": labels, "sum": sum, "count": count})
            }
            MetricType::COUNTER => json!({"labels": labels, "value": metric.get_counter().get_value()}),
            _ => json!({"labels": labels, "value": metric.get_gauge().get_value()}),
        }
    });
    samples.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_told_in_both_forms() {
        let metrics = Metrics::default();
        let made_up = http::Method::from_bytes(b"MADEUP").unwrap();
        for method in [&http::Method::GET, &made_up] {
            let took = Duration::from_millis(3);
            metrics.answered(Answered { method, operation: "", status: 400, took });
        }
        metrics.sent(7);
        let engine = Statistics::default();
        let text = metrics.text(&Now { connections: 5, engine, ..Now::default() });
        for line in [
            r#"dcs_requests_total{method="GET",operation="none",status="400"} 1"#,
            r#"dcs_requests_total{method="other",operation="none",status="400"} 1"#,
            r#"dcs_request_duration_seconds_count{operation="none"} 2"#,
            "dcs_connections_open 5",
            "dcs_sent_bytes_total 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        let json = metrics.json(&Now::default());
        let requests = &json["metrics"]["dcs_request_duration_seconds"][0];
        assert_eq!(requests["count"], 2);
        assert!((requests["sum"].as_f64().unwrap() - 0.006).abs() < 1e-9);
        assert_eq!(json["metrics"]["dcs_connections_open"][0]["value"], 0.0);
    }
}
