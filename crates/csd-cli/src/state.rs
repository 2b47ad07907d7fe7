//! The state and counters of a process, as sent over the management socket, and printed for people.

use dcs_console::units::human;
use dcs_csd::Counters;
use dcs_csd::latency::{BUCKETS, Histogram, Stage};
use dcs_csd::{DriveId, SlotState, near};
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
    #[serde(with = "CountersForm")]
    pub counted: Counters,
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
    pub slices: Vec<Slice>,
}

/// The place of a namespace or of a part of it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Slice {
    /// A file or a block device.
    pub backing: PathBuf,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// The form of [`Counters`] in a message.
#[derive(Deserialize, Serialize)]
#[serde(remote = "Counters")]
struct CountersForm {
    reads: u64,
    writes: u64,
    flushes: u64,
    near: u64,
    bytes_read: u64,
    bytes_written: u64,
    errors: u64,
    media_errors: u64,
    interrupts: u64,
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
            let slices: Vec<String> = space.slices.iter().map(Slice::to_string).collect();
            let (name, size) = (format!("{}/{}", self.name, space.nsid), human(space.size));
            lines.push(format!(
                "  {name}: {size} in blocks of {}{read_only}{through} on {}",
                space.block,
                slices.join(", ")
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
        let Counters { reads, writes, flushes, near, bytes_read, bytes_written, errors, interrupts, .. } =
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

impl std::fmt::Display for Slice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}", self.backing.display(), self.offset)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A drive, and a slot that does its operators' work.
    pub fn sample() -> (State, Slot) {
        let slices = vec![Slice { backing: "/srv/0".into(), offset: 1 << 20, length: 1 << 30 }];
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
            counted: Counters { reads: 7, bytes_read: 7 << 12, ..Counters::default() },
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
        (state, slot)
    }

    #[test]
    fn people_see_figures_and_places() {
        let (state, slot) = sample();
        assert_eq!(
            slot.figures(),
            "slot 1: static-best, for gzip, md5 of a, c; holds gzip, md5, idle, 7 batches (a 6) in 9.0ns, 2 loads"
        );
        assert!(state.figures().contains("storage 1\u{b5}s, 2\u{b5}s; 2 near"), "{}", state.figures());
        assert!(state.figures().contains("operators: md5 1.00 GiB in 1.5s"), "{}", state.figures());
        let lines = state.lines();
        assert_eq!(lines[0], "a: a guest at /run/dcs/a.sock");
        assert_eq!(lines[1], "  a/2: 1.00 GiB in blocks of 512, read-only on /srv/0 at 1048576");
    }
}
