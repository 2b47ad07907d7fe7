//! The state of a process as metrics in Prometheus's text format.

use crate::state::{Slot, State, Times, Worked};
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Result, TextEncoder};

/// Name, help and value of a metric of `T`.
type Row<T> = (&'static str, &'static str, fn(&T) -> u64);

const DRIVE_COUNTERS: [Row<State>; 10] = [
    ("reads_total", "Read commands that have ended.", |drive| drive.counted.reads),
    ("writes_total", "Write commands that have ended.", |drive| drive.counted.writes),
    ("flushes_total", "Flushes, and other commands without data, that have ended.", |drive| {
        drive.counted.flushes
    }),
    ("near_total", "Near-storage transfers that have ended.", |drive| drive.counted.near),
    ("read_bytes_total", "Bytes that guests have read.", |drive| drive.counted.bytes_read),
    ("written_bytes_total", "Bytes that guests have written.", |drive| drive.counted.bytes_written),
    ("errors_total", "Commands that ended with an error.", |drive| drive.counted.errors),
    ("media_errors_total", "Commands that failed because of the medium.", |drive| drive.counted.media_errors),
    ("interrupts_total", "Interrupts raised.", |drive| drive.counted.interrupts),
    (
        "qos_violations_total",
        "Near-storage commands that took more than 1.5 times as long as the storage and their operators worked on them.",
        |drive| drive.latencies.violations,
    ),
];

const DRIVE_GAUGES: [Row<State>; 9] = [
    ("slots", "Maximum number of a drive's commands in progress.", |drive| drive.slots),
    ("slots_used", "Commands in progress, including those that wait for a buffer.", |drive| drive.slots_used),
    ("operator_memory_bytes", "Memory that a drive's operators may use.", |drive| drive.operator_memory),
    ("operator_memory_used_bytes", "Memory reserved for operators of commands and streams.", |drive| {
        drive.operator_memory_used
    }),
    ("programs_loaded", "Programs that the guest has loaded.", |drive| drive.programs_loaded),
    ("limit_iops", "Most commands a second; 0: no limit.", |drive| drive.iops),
    ("limit_bytes_per_second", "Most bytes a second; 0: no limit.", |drive| drive.bytes_per_s),
    ("connected", "1 if a client is connected to the drive's socket.", |drive| drive.connected.into()),
    ("under_way", "Commands that the storage has.", |drive| drive.under_way),
];

const SLOT_COUNTERS: [Row<Slot>; 3] = [
    ("batches_total", "Batches of operators' work that a slot has done.", |slot| slot.batches),
    ("loads_total", "Number of times that a slot was loaded with other operators.", |slot| slot.loads),
    ("nanoseconds_total", "Time that a slot has worked.", |slot| slot.time_ns),
];

/// Returns everything in Prometheus's text format, version 0.0.4.
///
/// # Errors
///
/// Fails if the encoder refuses a metric.
pub fn metrics(drives: &[State], slots: &[Slot]) -> Result<String> {
    let mut families = Vec::new();
    for (name, help, value) in DRIVE_COUNTERS {
        let values = drives.iter().map(|drive| counter(vec![of_drive(drive)], value(drive) as f64));
        families.push(family(name, help, MetricType::COUNTER, values));
    }
    for (name, help, value) in DRIVE_GAUGES {
        let values = drives.iter().map(|drive| gauge(vec![of_drive(drive)], value(drive)));
        families.push(family(name, help, MetricType::GAUGE, values));
    }
    for (name, help, value) in SLOT_COUNTERS {
        let values = slots.iter().map(|slot| counter(vec![of_slot(slot)], value(slot) as f64));
        families.push(family(&format!("operator_slot_{name}"), help, MetricType::COUNTER, values));
    }
    families.extend([namespaces(drives), batches_by_drive(slots), latencies(drives)]);
    families.extend(operators(drives));
    families.retain(|family| !family.get_metric().is_empty());
    families.sort_by(|one, other| one.name().cmp(other.name()));
    TextEncoder::new().encode_to_string(&families)
}

fn namespaces(drives: &[State]) -> MetricFamily {
    let all = drives.iter().flat_map(|drive| drive.namespaces.iter().map(move |space| (drive, space)));
    let all = all.map(|(drive, space)| {
        gauge(vec![of_drive(drive), label("namespace", &space.nsid.to_string())], space.size)
    });
    family("namespace_bytes", "Bytes of a namespace.", MetricType::GAUGE, all)
}

fn batches_by_drive(slots: &[Slot]) -> MetricFamily {
    let all = slots.iter().flat_map(|slot| slot.drives.iter().map(move |batches| (slot, batches)));
    let all = all
        .map(|(slot, (drive, batches))| counter(vec![label("drive", drive), of_slot(slot)], *batches as f64));
    let help = "Batches of a drive's work that a slot has begun.";
    family("operator_slot_drive_batches_total", help, MetricType::COUNTER, all)
}

/// Returns operators' times and bytes, by drive.
fn operators(drives: &[State]) -> [MetricFamily; 2] {
    let of = |name: &str, help: &str, value: fn(&Worked) -> f64| {
        let all = drives.iter().flat_map(|drive| drive.operators.iter().map(move |worked| (drive, worked)));
        let all = all.map(|(drive, worked)| {
            counter(vec![of_drive(drive), label("operator", &worked.operator)], value(worked))
        });
        family(name, help, MetricType::COUNTER, all)
    };
    [
        of(
            "operator_seconds_total",
            "Time that an operator has worked on near-storage commands.",
            |worked| worked.time_ns as f64 / 1e9,
        ),
        of(
            "operator_bytes_total",
            "Bytes that went into an operator; bytes that came out, if it changes the length.",
            |worked| worked.bytes as f64,
        ),
    ]
}

/// Returns histograms, by drive and stage.
fn latencies(drives: &[State]) -> MetricFamily {
    let all = drives.iter().flat_map(|drive| drive.latencies.stages.iter().map(move |times| (drive, times)));
    let all = all.map(|(drive, times)| {
        let mut metric = Metric::from_label(vec![of_drive(drive), label("stage", &times.stage)]);
        metric.set_histogram(histogram(times, &drive.latencies.bounds_ns));
        metric
    });
    let help = "Time of commands of I/O queues, by stage; time in the guest's queue is not visible.";
    family("latency_seconds", help, MetricType::HISTOGRAM, all)
}

fn family(name: &str, help: &str, kind: MetricType, all: impl Iterator<Item = Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(format!("dcs_csd_{name}"));
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(all.collect());
    family
}

fn counter(labels: Vec<LabelPair>, value: f64) -> Metric {
    let (mut metric, mut counter) = (Metric::from_label(labels), Counter::default());
    counter.set_value(value);
    metric.set_counter(counter);
    metric
}

fn gauge(labels: Vec<LabelPair>, value: u64) -> Metric {
    let (mut metric, mut gauge) = (Metric::from_label(labels), Gauge::default());
    gauge.set_value(value as f64);
    metric.set_gauge(gauge);
    metric
}

fn histogram(times: &Times, bounds: &[u64]) -> Histogram {
    let mut sum = 0;
    let buckets = bounds.iter().zip(&times.counts).map(|(bound, count)| {
        sum += count;
        let mut bucket = Bucket::default();
        bucket.set_cumulative_count(sum);
        bucket.set_upper_bound(*bound as f64 / 1e9);
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(times.counts.iter().sum());
    histogram.set_sample_sum(times.sum_ns as f64 / 1e9);
    histogram
}

fn of_drive(drive: &State) -> LabelPair {
    label("drive", &drive.name)
}

fn of_slot(slot: &Slot) -> LabelPair {
    label("slot", &slot.slot.to_string())
}

fn label(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::sample;

    #[test]
    fn metrics_name_the_drive() {
        let (state, slot) = sample();
        let text = metrics(&[state], &[slot]).unwrap();
        for line in [
            "dcs_csd_reads_total{drive=\"a\"} 7",
            "dcs_csd_read_bytes_total{drive=\"a\"} 28672",
            "# TYPE dcs_csd_connected gauge",
            "dcs_csd_connected{drive=\"a\"} 1",
            "dcs_csd_under_way{drive=\"a\"} 3",
            "dcs_csd_slots{drive=\"a\"} 256",
            "dcs_csd_slots_used{drive=\"a\"} 4",
            "dcs_csd_operator_slot_batches_total{slot=\"1\"} 7",
            "dcs_csd_operator_slot_loads_total{slot=\"1\"} 2",
            "dcs_csd_operator_slot_nanoseconds_total{slot=\"1\"} 9",
            "dcs_csd_operator_slot_drive_batches_total{drive=\"a\",slot=\"1\"} 6",
            "dcs_csd_operator_memory_used_bytes{drive=\"a\"} 3145728",
            "dcs_csd_programs_loaded{drive=\"a\"} 5",
            "dcs_csd_limit_iops{drive=\"a\"} 500",
            "dcs_csd_qos_violations_total{drive=\"a\"} 2",
            "# TYPE dcs_csd_operator_seconds_total counter",
            "dcs_csd_operator_seconds_total{drive=\"a\",operator=\"md5\"} 1.5",
            "dcs_csd_operator_bytes_total{drive=\"a\",operator=\"md5\"} 1073741824",
            "# TYPE dcs_csd_latency_seconds histogram",
            "dcs_csd_latency_seconds_bucket{drive=\"a\",stage=\"storage\",le=\"0.000001\"} 98",
            "dcs_csd_latency_seconds_bucket{drive=\"a\",stage=\"storage\",le=\"0.000002\"} 99",
            "dcs_csd_latency_seconds_bucket{drive=\"a\",stage=\"storage\",le=\"+Inf\"} 100",
            "dcs_csd_latency_seconds_sum{drive=\"a\",stage=\"storage\"} 0.003",
            "dcs_csd_latency_seconds_count{drive=\"a\",stage=\"storage\"} 100",
            "dcs_csd_namespace_bytes{drive=\"a\",namespace=\"2\"} 1073741824",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
    }
}
