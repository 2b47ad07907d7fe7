//! `dcs bench guest drives`: the same jobs on the ways that a guest has to its disk, one guest with both disks.
//!
//! | design | the guest's disk | where operators work |
//! |---|---|---|
//! | paravirtual | QEMU's virtio-blk on a file | in the guest |
//! | virtual drive | a drive of `dcs csd` on a file, plain I/O | in the guest |
//! | near storage | the same drive, near-storage commands | in the slots of `dcs csd` |

use super::demo::{Booted, Drives, Expected, Row, expected_of, measure, seed};
use super::protocol::{Contender, Job, Request, VIRTIO};
use crate::failure::Failure;
use crate::guest::experiments::Options;
use crate::guest::machine::failure;
use crate::harness::figures::median;
use crate::harness::folder::Folder;
use crate::report::Report;
use crate::sim::bars::{self, Bar, Chart};
use crate::sim::results::Results;
use crate::sim::show;
use dcs_sim::cpu::Component;
use dcs_sim::experiments::figure::Figure;
use dcs_vm::Tools;
use dcs_vm::tools::Flavour;
use serde_json::{Value, json};
use std::time::Instant;

/// Name of the experiment.
const NAME: &str = "guest-drives";
/// Rounds in which each job is measured by each design.
const ROUNDS: usize = 3;

/// A design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Paravirtual,
    Drive,
    Near,
}

impl Way {
    const ALL: [Way; 3] = [Way::Paravirtual, Way::Drive, Way::Near];

    fn name(self) -> &'static str {
        match self {
            Way::Paravirtual => "paravirtual disk (virtio-blk), software in the guest",
            Way::Drive => "virtual drive, software in the guest",
            Way::Near => "virtual drive, near storage",
        }
    }

    /// Returns a word for a bar's label.
    fn label(self) -> &'static str {
        match self {
            Way::Paravirtual => "virtio-blk",
            Way::Drive => "drive",
            Way::Near => "near storage",
        }
    }

    fn folder(self) -> usize {
        if self == Way::Paravirtual { VIRTIO } else { 0 }
    }

    fn request(self, job: Job) -> Request {
        let who = if self == Way::Near { Contender::Drive } else { Contender::Guest };
        Request::Do { job, who, folder: self.folder() }
    }
}

/// Medians of a job's rounds by a design.
#[derive(Clone, Debug)]
struct Measured {
    job: Job,
    way: Way,
    guest_cpu: f64,
    /// CPU seconds per GiB of QEMU's other threads and of the drives' process.
    host_cpu: f64,
    seconds: f64,
    delivered: u64,
    rounds: Vec<f64>,
}

pub fn run(options: &Options, report: &Report) -> Result<(), Failure> {
    let (size, rounds) = if options.quick { (16 << 20, 1) } else { (64 << 20, ROUNDS) };
    let start = Instant::now();
    let tools = Tools::find(Flavour::Cloud, &|step| report.remark(format_args!("dcs: {step}")));
    let tools = tools.map_err(failure)?;
    let folder = Folder::new(None, "dcs-designs")?;
    let drives = Drives::start(folder.path(), size)?;
    let step = report.step("booting a guest, which makes file systems, writes and reads back".into());
    let mut guest = [Booted::start(&tools, &drives, folder.path(), (0, "one"), size, true)?];
    guest[0].answer()?;
    drop(step);
    let expected = [expected_of(seed(0), size)?, expected_of(seed(0) + VIRTIO as u64, size)?];
    let mut all = Vec::new();
    for job in [Job::Md5, Job::Grep] {
        let mut rows: Vec<(Way, Row)> = Vec::new();
        // The first round is not counted: the emulator translates code when it first runs.
        for round in 0..=rounds {
            for way in Way::ALL {
                let step = report.step(format!("{}: {}", job.name(), way.name()));
                let row = measure(&mut guest, &drives, way.request(job), size)?;
                drop(step);
                check(&row, &expected, job, way)?;
                if round > 0 {
                    rows.push((way, row));
                }
            }
        }
        all.extend(Way::ALL.map(|way| median_of(job, way, &rows, size)));
    }
    let [mut guest] = guest;
    guest.end()?;
    let shown = results(&all, size);
    show::experiment(&shown, report);
    if let Some(path) = &options.svg {
        bars::draw(&shown.chart, path, report)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    report
        .object(&json!({ "event": "done", "command": "bench guest drives", "ok": true, "seconds": seconds }));
    report.text(
        "\nThere is no KVM here: QEMU emulates each instruction of the guest, ten to thirty times as slow as a processor, and its devices\nat full speed. Ratios of guest CPU time mean something; seconds, and guest CPU time beside host CPU time, do not.",
    );
    Ok(())
}

/// Checks that the digest is that of the file, and was computed in the right place.
fn check(row: &Row, expected: &[Expected; 2], job: Job, way: Way) -> Result<(), Failure> {
    let file = usize::from(way == Way::Paravirtual);
    row.check_one(0, &expected[file], job, way == Way::Near)
}

fn median_of(job: Job, way: Way, rows: &[(Way, Row)], size: u64) -> Measured {
    let own: Vec<&Row> = rows.iter().filter(|(of, _)| *of == way).map(|(_, row)| row).collect();
    let of = |figure: fn(&Row) -> f64| median(own.iter().map(|row| figure(row)));
    let gib = size as f64 / (1u64 << 30) as f64;
    Measured {
        job,
        way,
        guest_cpu: of(|row| row.guest_cpu),
        host_cpu: of(|row| row.drive_cpu + row.qemu_cpu),
        seconds: of(|row| row.seconds) / gib,
        delivered: own.first().map_or(0, |row| row.answers[0].delivered),
        rounds: own.iter().map(|row| row.guest_cpu).collect(),
    }
}

fn results(all: &[Measured], size: u64) -> Results {
    let base = |job: Job| {
        let found = all.iter().find(|row| row.job == job && row.way == Way::Paravirtual);
        found.map_or(f64::NAN, |row| row.guest_cpu)
    };
    let cells = |row: &Measured| {
        vec![
            row.way.name().to_owned(),
            row.job.name().to_owned(),
            format!("{:.2}", row.guest_cpu),
            format!("{:.3}", row.guest_cpu / base(row.job)),
            format!("{:.2}", row.host_cpu),
            format!("{:.1}", row.seconds),
            format!("{:.3}", row.delivered as f64 / size as f64),
        ]
    };
    let object = |row: &Measured| {
        json!({
            "event": "design", "experiment": NAME, "design": row.way.name(), "job": row.job.name(),
            "guest_cpu_s_per_gib": row.guest_cpu, "of_paravirtual": row.guest_cpu / base(row.job),
            "host_cpu_s_per_gib": row.host_cpu, "seconds_per_gib_in_qemu": row.seconds,
            "delivered_share": row.delivered as f64 / size as f64, "bytes": size, "rounds": row.rounds,
        })
    };
    let bar = |row: &Measured| Bar {
        panel: format!("CPU s/GiB in QEMU: {}", row.job.name()),
        label: row.way.label().to_owned(),
        parts: vec![(Component::Guest, row.guest_cpu), (Component::Hypervisor, row.host_cpu)],
    };
    let near = |job: Job, what| {
        let found = all.iter().find(|row| row.job == job && row.way == Way::Near);
        Figure {
            what,
            ours: found.map_or(f64::NAN, |row| row.guest_cpu / base(job)),
            paper: None,
            reach: None,
            why: "The paper's figure 16 is throughput, on a processor that is not emulated; in virtual time: dcs bench sim csd-speedup.",
        }
    };
    Results {
        name: NAME,
        title: "In QEMU, without KVM: a file through an operator, by the guest's way to its disk",
        header: vec![
            "design",
            "job",
            "guest CPU s/GiB",
            "of paravirtual",
            "host CPU s/GiB",
            "s/GiB in QEMU",
            "of the bytes crossed",
        ],
        rows: all.iter().map(cells).collect(),
        objects: all.iter().map(object).collect(),
        figures: vec![
            near(Job::Md5, "in QEMU: guest CPU, near storage of paravirtual: md5"),
            near(Job::Grep, "in QEMU: guest CPU, near storage of paravirtual: grep"),
        ],
        chart: Chart { unit: "", bars: all.iter().map(bar).collect() },
    }
}

impl Measured {
    /// Reads the object of [`results`] again; returns the bytes of the file too.
    fn of(object: &Value) -> Option<(Measured, u64)> {
        let number = |field: &str| object[field].as_f64();
        let size = object["bytes"].as_u64()?;
        let measured = Measured {
            job: [Job::Md5, Job::Grep].into_iter().find(|job| object["job"] == job.name())?,
            way: Way::ALL.into_iter().find(|way| object["design"] == way.name())?,
            guest_cpu: number("guest_cpu_s_per_gib")?,
            host_cpu: number("host_cpu_s_per_gib")?,
            seconds: number("seconds_per_gib_in_qemu")?,
            delivered: (number("delivered_share")? * size as f64).round() as u64,
            rounds: object["rounds"].as_array()?.iter().filter_map(Value::as_f64).collect(),
        };
        Some((measured, size))
    }
}

/// Returns what a run with `--json` measured, for the report's page: of the last run, if there are several; `None` if these are no rows of
/// one.
pub fn shown(rows: &[Value]) -> Option<Results> {
    let all: Vec<(Measured, u64)> = rows.iter().map(Measured::of).collect::<Option<_>>()?;
    let size = all.last()?.1;
    let last = |(job, way)| all.iter().rfind(|(row, _)| (row.job, row.way) == (job, way));
    let ways = [Job::Md5, Job::Grep].into_iter().flat_map(|job| Way::ALL.map(|way| (job, way)));
    let all: Vec<Measured> = ways.filter_map(last).map(|(row, _)| row.clone()).collect();
    Some(results(&all, size))
}
