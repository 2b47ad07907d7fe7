//! The state and counters of a process, as sent over the management socket, and printed for people and for
//! Prometheus.

use dcs_console::units::human;
use dcs_csd::Counters;
use dcs_csd::latency::{BUCKETS, Histogram, Stage};
use dcs_csd::{DriveId, SlotState, near};
use prometheus::core::{AtomicU64, GenericCounterVec};
use prometheus::{IntGaugeVec, Opts, Registry, TextEncoder, proto};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// A drive.
#[derive(Debug, Deserialize, Serialize)]
pub struct State {
    /// Its name.
    pub name: String,
    /// Path of the socket to which QEMU connects.
    pub socket: PathBuf,
    /// A client is connected: normally QEMU.
    pub connected: bool,
    /// The subsystem that it shares with other controllers.
    pub subsystem: Option<String>,
    /// Its number in the subsystem.
    pub path: u16,
    /// Its share, relative to the others.
    pub weight: u32,
    /// Most commands a second; 0: no limit.
    pub iops: u64,
    /// Most bytes a second; 0: no limit.
    pub bytes_per_s: u64,
    /// Number of I/O queue pairs.
    pub queues: u16,
    /// It interrupts by MSI.
    pub msi: bool,
    /// Its namespaces, by number.
    pub namespaces: Vec<Space>,
    /// Number of commands that the storage has.
    pub under_way: u64,
    /// Maximum number of commands in progress.
    pub slots: u64,
    /// Number of commands in progress: at the storage, near-storage ones, and those that wait for a buffer.
    pub slots_used: u64,
    /// Maximum bytes of memory of the operators of near-storage commands.
    #[serde(default)]
    pub operator_memory: u64,
    /// Bytes of it that commands and streams have reserved.
    #[serde(default)]
    pub operator_memory_used: u64,
    /// Number of programs that its guest has loaded.
    #[serde(default)]
    pub programs_loaded: u64,
    /// Its counters.
    pub counted: Counted,
    /// Latencies of commands of I/O queues since the drive was added.
    pub latencies: Latencies,
    /// Work of the operators of near-storage commands since the drive was added.
    #[serde(default)]
    pub operators: Vec<Worked>,
}

/// A namespace.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Space {
    /// Its number.
    pub nsid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of a logical block.
    pub block: u64,
    /// The guest cannot write.
    pub read_only: bool,
    /// Bytes on one slice before the next one's turn.
    pub stripe: u64,
    /// The operators that its data pass.
    pub through: Option<String>,
    /// The places of its bytes.
    pub slices: Vec<Lies>,
}

/// The place of a namespace or of a part of it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Lies {
    /// A file or a block device.
    pub backing: PathBuf,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// Counters since the drive was added.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Counted {
    /// Reads and compares.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes, and other commands without data.
    pub flushes: u64,
    /// Near-storage transfers.
    pub near: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Commands that failed.
    pub errors: u64,
    /// Commands that failed because of the medium.
    pub media_errors: u64,
    /// Interrupts raised.
    pub interrupts: u64,
}

/// Commands counted by the time that they took in each stage.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Latencies {
    /// Upper bounds of the buckets, in nanoseconds; the last bucket has none.
    pub bounds_ns: Vec<u64>,
    /// Each stage.
    pub stages: Vec<Times>,
    /// Near-storage commands that took more than 1.5 times as long as they were worked on.
    pub violations: u64,
}

/// Commands counted by the time that they took in one stage.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Times {
    /// Its name.
    pub stage: String,
    /// Commands in each bucket.
    pub counts: Vec<u64>,
    /// Sum for all commands.
    pub sum_ns: u64,
}

/// The work of one operator.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Worked {
    /// Its name.
    pub operator: String,
    /// Time that it worked.
    pub time_ns: u64,
    /// Bytes that went in; bytes that came out, if it changes the length.
    pub bytes: u64,
}

/// A slot: a thread that does operators' work.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Slot {
    /// Its number, from 0 on.
    pub slot: usize,
    /// Rule for the slots that may do a chain's work.
    #[serde(default)]
    pub policy: String,
    /// The operators that it is bound to; empty if it may have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Vec<String>>,
    /// The drives that it belongs to, with a static policy.
    #[serde(default)]
    pub owners: Vec<String>,
    /// The operators of the chain that it holds.
    pub operators: Vec<String>,
    /// It is working.
    pub busy: bool,
    /// Batches of work done.
    pub batches: u64,
    /// Batches of each existing drive.
    #[serde(default)]
    pub drives: BTreeMap<String, u64>,
    /// Number of times that it was loaded with other operators.
    pub loads: u64,
    /// Time that it has worked.
    pub time_ns: u64,
}

impl Slot {
    /// Returns the state of the slot with this number; `name` returns a drive's name by its number in the
    /// loop.
    pub fn new(slot: usize, state: &SlotState, name: impl Fn(DriveId) -> Option<String>) -> Slot {
        let texts = |names: &mut dyn Iterator<Item = &'static str>| names.map(str::to_owned).collect();
        Slot {
            slot,
            policy: state.policy.name().to_owned(),
            bound: state.binding.names().map(|mut names| texts(&mut names)),
            owners: state.owners.iter().filter_map(|drive| name(*drive)).collect(),
            operators: texts(&mut state.operators()),
            busy: state.is_busy,
            batches: state.batches,
            drives: state.drives.iter().filter_map(|(drive, count)| Some((name(*drive)?, *count))).collect(),
            loads: state.loads,
            time_ns: state.nanoseconds,
        }
    }

    /// Returns its line of figures.
    pub fn figures(&self) -> String {
        let Slot { slot, policy, operators, batches, loads, .. } = self;
        let bound = self.bound.as_ref().map_or("any operators".to_owned(), |bound| bound.join(", "));
        let owners = match self.owners.as_slice() {
            [] => String::new(),
            owners => format!(" of {}", owners.join(", ")),
        };
        let holds = if operators.is_empty() { "nothing".to_owned() } else { operators.join(", ") };
        let (busy, time) = (if self.busy { "busy" } else { "idle" }, Duration::from_nanos(self.time_ns));
        let by: Vec<String> = self.drives.iter().map(|(drive, count)| format!("{drive} {count}")).collect();
        let by = if by.is_empty() { String::new() } else { format!(" ({})", by.join(", ")) };
        format!(
            "slot {slot}: {policy}, for {bound}{owners}; holds {holds}, {busy}, {batches} batches{by} in {time:.1?}, {loads} loads"
        )
    }
}

impl Worked {
    /// Makes the work of the operator with this name.
    pub fn new(operator: &str, worked: near::Worked) -> Worked {
        Worked { operator: operator.to_owned(), time_ns: worked.nanoseconds, bytes: worked.bytes }
    }
}

impl From<&dcs_csd::Latencies> for Latencies {
    fn from(all: &dcs_csd::Latencies) -> Latencies {
        let stages = Stage::ALL.map(|stage| {
            let histogram = all.of(stage);
            let (stage, counts) = (stage.name().to_owned(), histogram.counts().to_vec());
            Times { stage, counts, sum_ns: histogram.sum() }
        });
        let bounds_ns = (0..BUCKETS).map(Histogram::bound).collect();
        Latencies { bounds_ns, stages: stages.to_vec(), violations: all.violations }
    }
}

impl Times {
    /// Returns a bound within which this share of the commands, in hundredths, stayed; `None` if there were
    /// none, or the time was longer than all bounds.
    fn within(&self, hundredths: u64, bounds: &[u64]) -> Option<Duration> {
        let all: u64 = self.counts.iter().sum();
        let mut left = (all * hundredths).div_ceil(100);
        for (count, bound) in self.counts.iter().zip(bounds) {
            left = left.saturating_sub(*count);
            if all > 0 && left == 0 {
                return Some(Duration::from_nanos(*bound));
            }
        }
        None
    }

    /// Returns it in Prometheus's format.
    fn histogram(&self, bounds: &[u64]) -> proto::Histogram {
        let mut sum = 0;
        let buckets = bounds.iter().zip(&self.counts).map(|(bound, count)| {
            sum += count;
            let mut bucket = proto::Bucket::default();
            bucket.set_cumulative_count(sum);
            bucket.set_upper_bound(*bound as f64 / 1e9);
            bucket
        });
        let mut histogram = proto::Histogram::default();
        histogram.set_bucket(buckets.collect());
        histogram.set_sample_count(self.counts.iter().sum());
        histogram.set_sample_sum(self.sum_ns as f64 / 1e9);
        histogram
    }
}

impl From<Counters> for Counted {
    fn from(counters: Counters) -> Counted {
        let Counters {
            reads,
            writes,
            flushes,
            near,
            bytes_read,
            bytes_written,
            errors,
            media_errors,
            interrupts,
        } = counters;
        Counted { reads, writes, flushes, near, bytes_read, bytes_written, errors, media_errors, interrupts }
    }
}

impl State {
    /// Returns its lines of a list.
    pub fn lines(&self) -> Vec<String> {
        let guest = if self.connected { "a guest" } else { "no guest" };
        let subsystem = self.subsystem.iter().map(|name| format!(", path {} of {name}", self.path));
        let subsystem = subsystem.collect::<String>();
        let mut lines = vec![format!("{}: {guest} at {}{subsystem}", self.name, self.socket.display())];
        for space in &self.namespaces {
            let read_only = if space.read_only { ", read-only" } else { "" };
            let through =
                space.through.iter().map(|operator| format!(" through {operator}")).collect::<String>();
            let lies: Vec<String> = space.slices.iter().map(Lies::to_string).collect();
            let (name, size) = (format!("{}/{}", self.name, space.nsid), human(space.size));
            lines.push(format!(
                "  {name}: {size} in blocks of {}{read_only}{through} on {}",
                space.block,
                lies.join(", ")
            ));
        }
        lines
    }

    /// Returns its lines of figures.
    pub fn figures(&self) -> String {
        let Latencies { bounds_ns, stages, violations } = &self.latencies;
        let times = stages.iter().filter_map(|times| {
            let (half, most) = (times.within(50, bounds_ns)?, times.within(99, bounds_ns)?);
            Some(format!("{} {half:?}, {most:?}", times.stage))
        });
        let times: Vec<String> = times.collect();
        let mut text = self.counts();
        if !times.is_empty() {
            text += &format!(
                "\n  50 %, 99 % of the commands within: {}; {violations} near storage waited for others",
                times.join("; ")
            );
        }
        let work = |one: &Worked| {
            format!("{} {} in {:.1?}", one.operator, human(one.bytes), Duration::from_nanos(one.time_ns))
        };
        if !self.operators.is_empty() {
            let work: Vec<String> = self.operators.iter().map(work).collect();
            text += &format!("\n  operators: {}", work.join("; "));
        }
        text
    }

    fn counts(&self) -> String {
        let Counted { reads, writes, flushes, near, bytes_read, bytes_written, errors, interrupts, .. } =
            self.counted;
        let (read, written) = (human(bytes_read), human(bytes_written));
        format!(
            "{}: {reads} reads ({read}), {writes} writes ({written}), {flushes} flushes, {near} near storage, {errors} errors, {interrupts} interrupts, \
             {} under way, {} of {} command slots used, {} of {} of operators' memory, {} programs loaded",
            self.name,
            self.under_way,
            self.slots_used,
            self.slots,
            human(self.operator_memory_used),
            human(self.operator_memory),
            self.programs_loaded
        )
    }
}

impl std::fmt::Display for Lies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}", self.backing.display(), self.offset)
    }
}

/// Returns everything in Prometheus's text format, version 0.0.4.
///
/// # Errors
///
/// Fails if the registry refuses a metric.
pub fn metrics(drives: &[State], slots_of_operators: &[Slot]) -> prometheus::Result<String> {
    let registry = Registry::new();
    let counter = |name: &str, help: &str| -> prometheus::Result<GenericCounterVec<AtomicU64>> {
        let made = GenericCounterVec::new(Opts::new(format!("dcs_csd_{name}"), help), &["drive"])?;
        registry.register(Box::new(made.clone()))?;
        Ok(made)
    };
    let gauge = |name: &str, help: &str, labels: &[&str]| -> prometheus::Result<IntGaugeVec> {
        let made = IntGaugeVec::new(Opts::new(format!("dcs_csd_{name}"), help), labels)?;
        registry.register(Box::new(made.clone()))?;
        Ok(made)
    };
    let counters = [
        counter("reads_total", "Read commands that have ended.")?,
        counter("writes_total", "Write commands that have ended.")?,
        counter("flushes_total", "Flushes, and other commands without data, that have ended.")?,
        counter("near_total", "Near-storage transfers that have ended.")?,
        counter("read_bytes_total", "Bytes that guests have read.")?,
        counter("written_bytes_total", "Bytes that guests have written.")?,
        counter("errors_total", "Commands that ended with an error.")?,
        counter("media_errors_total", "Commands that the medium failed.")?,
        counter("interrupts_total", "Interrupts that were raised.")?,
    ];
    let violations = counter(
        "qos_violations_total",
        "Near-storage commands that took more than 1.5 times what the storage and their operators worked on them.",
    )?;
    let slots = gauge("slots", "Commands that a drive may have under way.", &["drive"])?;
    let used =
        gauge("slots_used", "Commands that it has under way, those that wait for a buffer too.", &["drive"])?;
    let memory = gauge("operator_memory_bytes", "Memory that a drive's operators may take.", &["drive"])?;
    let memory_used = gauge(
        "operator_memory_used_bytes",
        "Memory that is set aside for operators of commands and streams.",
        &["drive"],
    )?;
    let loaded = gauge("programs_loaded", "Programs that the guest has loaded.", &["drive"])?;
    let iops = gauge("limit_iops", "Commands a second at most; 0: any.", &["drive"])?;
    let bytes = gauge("limit_bytes_per_second", "Bytes a second at most; 0: any.", &["drive"])?;
    let connected = gauge("connected", "1 where a client is connected to the drive's socket.", &["drive"])?;
    let under_way = gauge("under_way", "Commands that the storage has.", &["drive"])?;
    let sizes = gauge("namespace_bytes", "Bytes of a namespace.", &["drive", "namespace"])?;
    for drive in drives {
        let Counted {
            reads,
            writes,
            flushes,
            near,
            bytes_read,
            bytes_written,
            errors,
            media_errors,
            interrupts,
        } = drive.counted;
        let values =
            [reads, writes, flushes, near, bytes_read, bytes_written, errors, media_errors, interrupts];
        let label = [drive.name.as_str()];
        counters
            .iter()
            .zip(values)
            .for_each(|(counter, value)| counter.with_label_values(&label).inc_by(value));
        violations.with_label_values(&label).inc_by(drive.latencies.violations);
        for (gauge, value) in [
            (&slots, drive.slots),
            (&used, drive.slots_used),
            (&memory, drive.operator_memory),
            (&memory_used, drive.operator_memory_used),
            (&loaded, drive.programs_loaded),
            (&iops, drive.iops),
            (&bytes, drive.bytes_per_s),
        ] {
            gauge.with_label_values(&label).set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        connected.with_label_values(&label).set(drive.connected.into());
        under_way.with_label_values(&label).set(drive.under_way.cast_signed());
        for space in &drive.namespaces {
            let labels = [drive.name.clone(), space.nsid.to_string()];
            sizes.with_label_values(&labels).set(space.size.cast_signed());
        }
    }
    let by_slot = |name: &str, help: &str| -> prometheus::Result<GenericCounterVec<AtomicU64>> {
        let made =
            GenericCounterVec::new(Opts::new(format!("dcs_csd_operator_slot_{name}"), help), &["slot"])?;
        registry.register(Box::new(made.clone()))?;
        Ok(made)
    };
    let batches = by_slot("batches_total", "Batches of operators' work that a slot has done.")?;
    let loads = by_slot("loads_total", "How often a slot was loaded with other operators.")?;
    let worked = by_slot("nanoseconds_total", "How long a slot has worked.")?;
    let name = "dcs_csd_operator_slot_drive_batches_total";
    let by_drive: GenericCounterVec<AtomicU64> = GenericCounterVec::new(
        Opts::new(name, "Batches of a drive's work that a slot has begun."),
        &["slot", "drive"],
    )?;
    registry.register(Box::new(by_drive.clone()))?;
    for slot in slots_of_operators {
        let number = slot.slot.to_string();
        for (counter, value) in [(&batches, slot.batches), (&loads, slot.loads), (&worked, slot.time_ns)] {
            counter.with_label_values(&[number.as_str()]).inc_by(value);
        }
        for (drive, batches) in &slot.drives {
            by_drive.with_label_values(&[number.as_str(), drive]).inc_by(*batches);
        }
    }
    let mut families = registry.gather();
    // Counted elsewhere: the registry's own histograms would count themselves.
    families.push(latencies(drives));
    families.extend(operators(drives));
    families.retain(|family| !family.get_metric().is_empty());
    families.sort_by(|one, other| one.name().cmp(other.name()));
    TextEncoder::new().encode_to_string(&families)
}

fn label(name: &str, value: &str) -> proto::LabelPair {
    let mut pair = proto::LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

/// Returns operators' times and bytes, by drive.
fn operators(drives: &[State]) -> [proto::MetricFamily; 2] {
    let family = |name: &str, help: &str, value: fn(&Worked) -> f64| {
        let all = drives.iter().flat_map(|drive| drive.operators.iter().map(move |worked| (drive, worked)));
        let all = all.map(|(drive, worked)| {
            let labels = vec![label("drive", &drive.name), label("operator", &worked.operator)];
            let mut metric = proto::Metric::from_label(labels);
            let mut counter = proto::Counter::default();
            counter.set_value(value(worked));
            metric.set_counter(counter);
            metric
        });
        let mut family = proto::MetricFamily::default();
        family.set_name(format!("dcs_csd_operator_{name}_total"));
        family.set_help(help.into());
        family.set_field_type(proto::MetricType::COUNTER);
        family.set_metric(all.collect());
        family
    };
    [
        family("seconds", "Time that an operator has worked on near-storage commands.", |worked| {
            worked.time_ns as f64 / 1e9
        }),
        family(
            "bytes",
            "Bytes that went into an operator; that came out, where it changes the length.",
            |worked| worked.bytes as f64,
        ),
    ]
}

/// Returns histograms, by drive and stage.
fn latencies(drives: &[State]) -> proto::MetricFamily {
    let all = drives.iter().flat_map(|drive| drive.latencies.stages.iter().map(move |times| (drive, times)));
    let all = all.map(|(drive, times)| {
        let labels = vec![label("drive", &drive.name), label("stage", &times.stage)];
        let mut metric = proto::Metric::from_label(labels);
        metric.set_histogram(times.histogram(&drive.latencies.bounds_ns));
        metric
    });
    let mut family = proto::MetricFamily::default();
    family.set_name("dcs_csd_latency_seconds".into());
    family
        .set_help("Time of commands of I/O queues, by stage; that in the guest's queue is not seen.".into());
    family.set_field_type(proto::MetricType::HISTOGRAM);
    family.set_metric(all.collect());
    family
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_name_the_drive() {
        let slices = vec![Lies { backing: "/srv/0".into(), offset: 1 << 20, length: 1 << 30 }];
        let space = Space {
            nsid: 2,
            size: 1 << 30,
            block: 512,
            read_only: true,
            stripe: 4096,
            through: None,
            slices,
        };
        let state = State {
            name: "a".into(),
            socket: "/run/dcs/a.sock".into(),
            connected: true,
            subsystem: None,
            path: 1,
            weight: 1,
            queues: 8,
            msi: false,
            namespaces: vec![space],
            iops: 500,
            bytes_per_s: 0,
            under_way: 3,
            slots: 256,
            slots_used: 4,
            operator_memory: 512 << 20,
            operator_memory_used: 3 << 20,
            programs_loaded: 5,
            counted: Counted { reads: 7, bytes_read: 7 << 12, ..Counted::default() },
            latencies: Latencies {
                bounds_ns: vec![1000, 2000],
                stages: vec![Times { stage: "storage".into(), counts: vec![98, 1, 1], sum_ns: 3_000_000 }],
                violations: 2,
            },
            operators: vec![Worked { operator: "md5".into(), time_ns: 1_500_000_000, bytes: 1 << 30 }],
        };
        let held = vec!["gzip".to_owned(), "md5".to_owned()];
        let (policy, drives) = ("static-best".to_owned(), BTreeMap::from([("a".to_owned(), 6)]));
        let (bound, owners) =
            (Some(vec!["gzip".to_owned(), "md5".to_owned()]), vec!["a".to_owned(), "c".to_owned()]);
        let slot = Slot {
            slot: 1,
            policy,
            bound,
            owners,
            drives,
            operators: held,
            batches: 7,
            loads: 2,
            time_ns: 9,
            busy: false,
        };
        assert_eq!(
            slot.figures(),
            "slot 1: static-best, for gzip, md5 of a, c; holds gzip, md5, idle, 7 batches (a 6) in 9.0ns, 2 loads"
        );
        let text = metrics(std::slice::from_ref(&state), &[slot]).unwrap();
        for line in [
            "dcs_csd_reads_total{drive=\"a\"} 7",
            "dcs_csd_read_bytes_total{drive=\"a\"} 28672",
            "dcs_csd_connected{drive=\"a\"} 1",
            "dcs_csd_slots{drive=\"a\"} 256",
            "dcs_csd_slots_used{drive=\"a\"} 4",
            "dcs_csd_operator_slot_loads_total{slot=\"1\"} 2",
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
        assert!(state.figures().contains("storage 1\u{b5}s, 2\u{b5}s; 2 near"), "{}", state.figures());
        assert!(state.figures().contains("operators: md5 1.00 GiB in 1.5s"), "{}", state.figures());
        let lines = state.lines();
        assert_eq!(lines[0], "a: a guest at /run/dcs/a.sock");
        assert_eq!(lines[1], "  a/2: 1.00 GiB in blocks of 512, read-only on /srv/0 at 1048576");
    }
}
