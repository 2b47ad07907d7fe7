//! Tables, figures and bars of measurements in a guest.

mod sets;

use super::measurement::Measurement;
use crate::guest::task::DesignName;
use crate::harness::contender::Named;
use crate::sim::bars::{Bar, Chart};
use crate::sim::results::Results;
use dcs_sim::cpu::Component;
use dcs_sim::experiments::figure::{Figure, Reach};

/// Names of the experiments; the same in virtual time lack `guest-`.
pub const CONTENTION: &str = "guest-contention";
pub const OBJECT: &str = "guest-object";
pub const BALANCER: &str = "guest-balancer";
pub const SCALING: &str = "guest-scaling";
/// The balancer's sides.
pub const SENDER: &str = "sender: SSD -> NIC";
pub const RECEIVER: &str = "receiver: NIC -> crc32 -> SSD";

/// Returns the results of every experiment that has rows.
pub fn all(rows: &[Measurement]) -> Vec<Results> {
    let of = |name: &str| rows.iter().filter(|row| row.experiment == name).collect::<Vec<_>>();
    let experiments = [
        (CONTENTION, contention as fn(&[&Measurement]) -> Results),
        (OBJECT, object),
        (BALANCER, balancer),
        (SCALING, sets::scaling),
    ];
    let there = experiments.into_iter().map(|(name, shown)| (of(name), shown));
    there.filter(|(rows, _)| !rows.is_empty()).map(|(rows, shown)| shown(&rows)).collect()
}

fn lines(rows: &[&Measurement]) -> Vec<serde_json::Value> {
    rows.iter().filter_map(|row| serde_json::to_value(row).ok()).collect()
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".into(), |value| format!("{value:.digits$}"))
}

fn contention(rows: &[&Measurement]) -> Results {
    let cells = |row: &&Measurement| {
        vec![
            row.by.clone(),
            row.spinners.to_string(),
            number(row.kept, 3),
            row.rounds.iter().map(|kept| format!("{kept:.2}")).collect::<Vec<_>>().join(" "),
            format!("{:.1}", row.mib_per_s_in_qemu),
            format!("{:.2}", row.process_cpu_s_per_gib),
            format!("{:.0}", row.device_interrupts_per_gib),
            (row.bytes_verified >> 20).to_string(),
        ]
    };
    let bar = |row: &&Measurement| Bar {
        panel: format!("bandwidth beside spinners, of that beside none: {}", row.by),
        label: row.spinners.to_string(),
        parts: vec![(Component::Network, row.kept.unwrap_or(0.0))],
    };
    let kept = |is_it: fn(DesignName) -> bool| {
        let them = rows.iter().filter(|row| row.spinners == 24 && is(row, is_it));
        them.filter_map(|row| row.kept).max_by(f64::total_cmp)
    };
    let figure =
        |what, is_it, paper, reach, why| kept(is_it).map(|ours| Figure { what, ours, paper, reach, why });
    let figures = [
        figure(
            "in QEMU: bandwidth beside 24 spinning guest processes, card",
            |who| who == DesignName::Card,
            Some(0.71),
            Some(Reach::AtLeast(0.95)),
            "The card has its next command before the last is done. A 25th of an emulated processor suffices for the library where a command is of 8 MiB, and not where it is of 4 (0.82).",
        ),
        figure(
            "in QEMU: bandwidth beside 24 spinning guest processes, host-centric",
            |who| who == DesignName::Host,
            Some(0.14),
            None,
            "One processor, a 25th of it. An emulated processor limits the bandwidth already without spinners, which a real one need not.",
        ),
        figure(
            "in QEMU: bandwidth beside 24 spinning guest processes, the better software-optimised",
            DesignName::is_software,
            None,
            None,
            "As host-centric: TCP and the data's way through host memory take the processor.",
        ),
    ];
    Results {
        name: CONTENTION,
        title: "In QEMU: SSD -> NIC, 8 MiB a command (4 with --quick), beside processes of the guest that spin on its only processor",
        header: vec![
            "design",
            "spinners",
            "bandwidth kept",
            "rounds",
            "MiB/s in QEMU",
            "process CPU s/GiB",
            "device interrupts/GiB",
            "MiB verified",
        ],
        rows: rows.iter().map(cells).collect(),
        objects: lines(rows),
        figures: figures.into_iter().flatten().collect(),
        chart: Chart { unit: "of bandwidth alone", bars: rows.iter().map(bar).collect() },
    }
}

const HEADER: [&str; 10] = [
    "design",
    "job",
    "guest CPU s/GiB",
    "of host's",
    "of software's",
    "device interrupts/GiB",
    "system calls/GiB",
    "MiB/s asked",
    "had",
    "MiB verified",
];

fn cells(row: &&Measurement) -> Vec<String> {
    vec![
        row.by.clone(),
        row.job.clone(),
        number(row.guest_cpu_s_per_gib, 2),
        number(row.guest_cpu_ratio, 3),
        number(row.guest_cpu_ratio_to_software, 3),
        format!("{:.0}", row.device_interrupts_per_gib),
        number(row.system_calls_per_gib, 0),
        number(row.asked_mib_per_s, 1),
        format!("{:.1}", row.mib_per_s_in_qemu),
        (row.bytes_verified >> 20).to_string(),
    ]
}

fn bar(row: &&Measurement) -> Bar {
    let cpu = row.guest_cpu_s_per_gib.unwrap_or(0.0);
    Bar { panel: row.job.clone(), label: row.by.clone(), parts: vec![(Component::Kernel, cpu)] }
}

/// Returns true if a row is of such a design.
fn is(row: &Measurement, is_it: fn(DesignName) -> bool) -> bool {
    DesignName::ALL.iter().any(|(who, name, _)| is_it(*who) && *name == row.by)
}

/// Returns the card's guest CPU time over all these jobs, relative to another design's. For the software-optimised ones it is
/// relative to the better one in each job.
fn ratio(rows: &[&Measurement], jobs: &[&str], to: fn(DesignName) -> bool) -> f64 {
    let cpu = |job: &&str, is_it| {
        let them = rows.iter().filter(|row| row.job == **job && is(row, is_it));
        them.filter_map(|row| row.guest_cpu_s_per_gib).min_by(f64::total_cmp).unwrap_or(f64::NAN)
    };
    let card: f64 = jobs.iter().map(|job| cpu(job, |who| who == DesignName::Card)).sum();
    card / jobs.iter().map(|job| cpu(job, to)).sum::<f64>()
}

/// Returns the names of the jobs in order.
fn jobs<'a>(rows: &[&'a Measurement]) -> Vec<&'a str> {
    let mut jobs: Vec<&str> = Vec::new();
    for row in rows {
        if !jobs.contains(&row.job.as_str()) {
            jobs.push(&row.job);
        }
    }
    jobs
}

const HOST: fn(DesignName) -> bool = |who| who == DesignName::Host;

fn object(rows: &[&Measurement]) -> Results {
    let jobs = jobs(rows);
    let (mix, others) = jobs.split_at(1.min(jobs.len()));
    let figure = |what, ours, paper, reach, why| Figure { what, ours, paper, reach, why };
    let mut figures = vec![
        figure(
            "in QEMU: guest CPU at equal throughput, object server, card / the leaner software-optimised",
            ratio(rows, mix, DesignName::is_software),
            Some(0.48),
            Some(Reach::AtMost(0.3)),
            "The data path alone: no HTTP, no Python.",
        ),
        figure(
            "in QEMU: guest CPU at equal throughput, object server, card / host-centric",
            ratio(rows, mix, HOST),
            None,
            None,
            "",
        ),
    ];
    if !others.is_empty() {
        figures.push(figure(
            "in QEMU: the same with objects of 4 to 64 KiB alone, card / the leaner software-optimised",
            ratio(rows, others, DesignName::is_software),
            None,
            None,
            "What a transfer costs whatever its size weighs more: opening the file, asking where it lies, submitting.",
        ));
    }
    Results {
        name: OBJECT,
        title: "In QEMU: an object server, GET and PUT with MD5, Poisson arrivals; CPU time of the guest's processor",
        header: HEADER.to_vec(),
        rows: rows.iter().map(cells).collect(),
        objects: lines(rows),
        figures,
        // Small objects have a different scale.
        chart: Chart {
            unit: "guest CPU s/GiB",
            bars: rows.iter().filter(|row| mix.contains(&row.job.as_str())).map(bar).collect(),
        },
    }
}

fn balancer(rows: &[&Measurement]) -> Results {
    let both = jobs(rows);
    let figure = |what, ours, paper, reach, why| Figure { what, ours, paper, reach, why };
    Results {
        name: BALANCER,
        title: "In QEMU: the HDFS balancer, pieces of 8 MiB, sender, and receiver with CRC32; CPU time of the guest's processor",
        header: HEADER.to_vec(),
        rows: rows.iter().map(cells).collect(),
        objects: lines(rows),
        figures: vec![
            figure(
                "in QEMU: guest CPU at equal throughput, balancer, sender and receiver, card / the leaner software-optimised",
                ratio(rows, &both, DesignName::is_software),
                Some(0.49),
                Some(Reach::AtMost(0.3)),
                "The data path alone: no Java.",
            ),
            figure(
                "in QEMU: the same, sender",
                ratio(rows, &[SENDER], DesignName::is_software),
                None,
                None,
                "",
            ),
            figure(
                "in QEMU: the same, receiver",
                ratio(rows, &[RECEIVER], DesignName::is_software),
                None,
                None,
                "",
            ),
            figure(
                "in QEMU: sender and receiver, card / host-centric",
                ratio(rows, &both, HOST),
                None,
                None,
                "",
            ),
        ],
        chart: Chart { unit: "guest CPU s/GiB", bars: rows.iter().map(bar).collect() },
    }
}
