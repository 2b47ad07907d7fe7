//! The state and counters of a process, as they go over the management socket; for people, and for
//! Prometheus.

use dcs_console::units::human;
use dcs_csd::Counters;
use prometheus::core::{AtomicU64, GenericCounterVec};
use prometheus::{IntGaugeVec, Opts, Registry, TextEncoder};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A drive.
#[derive(Debug, Deserialize, Serialize)]
pub struct State {
    pub name: String,
    pub socket: PathBuf,
    /// A client is connected: QEMU, most of the time.
    pub connected: bool,
    pub weight: u32,
    pub queues: u16,
    pub msi: bool,
    pub namespaces: Vec<Space>,
    /// Commands that the storage has.
    pub under_way: u64,
    pub counted: Counted,
}

/// A namespace.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Space {
    pub nsid: u32,
    pub size: u64,
    pub block: u64,
    pub read_only: bool,
    pub stripe: u64,
    /// The operators that its data pass.
    pub through: Option<String>,
    pub slices: Vec<Lies>,
}

/// Where a namespace, or a part of it, lies.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Lies {
    pub backing: PathBuf,
    pub offset: u64,
    pub length: u64,
}

/// Since the drive was added.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Counted {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub near: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub errors: u64,
    pub media_errors: u64,
    pub interrupts: u64,
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
    /// Its lines in a list.
    pub fn lines(&self) -> Vec<String> {
        let guest = if self.connected { "a guest" } else { "no guest" };
        let mut lines = vec![format!("{}: {guest} at {}", self.name, self.socket.display())];
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

    /// Its line of figures.
    pub fn figures(&self) -> String {
        let Counted { reads, writes, flushes, near, bytes_read, bytes_written, errors, interrupts, .. } =
            self.counted;
        let (read, written) = (human(bytes_read), human(bytes_written));
        format!(
            "{}: {reads} reads ({read}), {writes} writes ({written}), {flushes} flushes, {near} near storage, {errors} errors, {interrupts} interrupts, \
             {} under way",
            self.name, self.under_way
        )
    }
}

impl std::fmt::Display for Lies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}", self.backing.display(), self.offset)
    }
}

/// All of it in Prometheus's text format, version 0.0.4.
pub fn metrics(drives: &[State]) -> prometheus::Result<String> {
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
        connected.with_label_values(&label).set(drive.connected.into());
        under_way.with_label_values(&label).set(drive.under_way.cast_signed());
        for space in &drive.namespaces {
            let labels = [drive.name.clone(), space.nsid.to_string()];
            sizes.with_label_values(&labels).set(space.size.cast_signed());
        }
    }
    TextEncoder::new().encode_to_string(&registry.gather())
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
            weight: 1,
            queues: 8,
            msi: false,
            namespaces: vec![space],
            under_way: 3,
            counted: Counted { reads: 7, bytes_read: 7 << 12, ..Counted::default() },
        };
        let text = metrics(std::slice::from_ref(&state)).unwrap();
        for line in [
            "dcs_csd_reads_total{drive=\"a\"} 7",
            "dcs_csd_read_bytes_total{drive=\"a\"} 28672",
            "dcs_csd_connected{drive=\"a\"} 1",
            "dcs_csd_namespace_bytes{drive=\"a\",namespace=\"2\"} 1073741824",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
        let lines = state.lines();
        assert_eq!(lines[0], "a: a guest at /run/dcs/a.sock");
        assert_eq!(lines[1], "  a/2: 1.00 GiB in blocks of 512, read-only on /srv/0 at 1048576");
    }
}
