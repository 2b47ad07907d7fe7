//! A row of an experiment: a JSON line, which the report's page reads again.

use crate::guest::rig::Row;
use crate::guest::table::{Figures, ratios};
use crate::guest::task::Blocks;
use crate::harness::contender::Named;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurement {
    pub event: String,
    pub experiment: String,
    pub job: String,
    /// The design's name.
    pub by: String,
    /// Its exact contents.
    pub design: String,
    /// Processes beside that spin.
    pub spinners: usize,
    /// CPU seconds of the guest's processor. Of all processes: not where others spin.
    pub guest_cpu_s_per_gib: Option<f64>,
    /// Of those of the host-centric design, and of the leaner of the software-optimised ones.
    pub guest_cpu_ratio: Option<f64>,
    pub guest_cpu_ratio_to_software: Option<f64>,
    pub process_cpu_s_per_gib: f64,
    pub device_interrupts_per_gib: f64,
    pub system_calls_per_gib: Option<f64>,
    /// Where the software designs had the data.
    pub blocks: Option<Blocks>,
    pub transfers: usize,
    pub bytes_verified: u64,
    pub digests_verified: u64,
    /// The load, where arrivals are given.
    pub asked_mib_per_s: Option<f64>,
    /// By this machine's clock: QEMU's, not a server's.
    pub mib_per_s_in_qemu: f64,
    /// Bandwidth, of that beside no spinner: the median of the rounds.
    pub kept: Option<f64>,
    /// The same, of each round; of sets, guest CPU seconds per GiB against those of one set.
    pub rounds: Vec<f64>,
    /// Sets of an SSD and a NIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sets: Option<Sets>,
}

/// The figures of several sets side by side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sets {
    pub count: usize,
    /// Guest CPU seconds per GiB, of those of one set: the median of the rounds.
    pub of_one_set: f64,
    /// The time of the guest's processor of all time.
    pub guest_cpu_share: f64,
    /// The part of an equal share of the set that had least, while all were at it; of the one that had most.
    /// The worst of the rounds.
    pub least: f64,
    pub most: f64,
}

impl Measurement {
    pub fn new(experiment: &str, row: &Row) -> Measurement {
        let figures = Figures::new(row);
        Measurement {
            event: "measurement".into(),
            experiment: experiment.into(),
            job: row.task.job(),
            by: row.task.who.name().into(),
            design: row.task.who.what().into(),
            spinners: row.task.spinners,
            guest_cpu_s_per_gib: (row.task.spinners == 0).then_some(figures.cpu),
            guest_cpu_ratio: None,
            guest_cpu_ratio_to_software: None,
            process_cpu_s_per_gib: figures.process,
            device_interrupts_per_gib: figures.interrupts,
            system_calls_per_gib: figures.system_calls,
            blocks: row.outcome.blocks,
            transfers: row.outcome.transfers.len(),
            bytes_verified: row.bytes,
            digests_verified: row.digests,
            asked_mib_per_s: None,
            mib_per_s_in_qemu: row.mib_per_s(),
            kept: None,
            rounds: Vec::new(),
            sets: None,
        }
    }
}

/// Rows of one job by each design, with their ratios.
pub fn rows(experiment: &str, job: &str, asked: f64, rows: &[Row]) -> Vec<Measurement> {
    let one = |row: &Row| {
        let [to_host, to_software] = ratios(row, rows);
        Measurement {
            job: job.into(),
            asked_mib_per_s: Some(asked),
            guest_cpu_ratio: to_host,
            guest_cpu_ratio_to_software: to_software,
            ..Measurement::new(experiment, row)
        }
    };
    rows.iter().map(one).collect()
}

/// Rows of an experiment, and what was wrong.
pub type Measured = (Vec<Measurement>, Vec<String>);
