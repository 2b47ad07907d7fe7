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
    /// Name of the design.
    pub by: String,
    /// Exact contents of the design.
    pub design: String,
    /// Concurrent processes that spin.
    pub spinners: usize,
    /// CPU seconds of the guest's processor over all processes; `None` with spinners.
    pub guest_cpu_s_per_gib: Option<f64>,
    /// Guest CPU time relative to the host-centric design.
    pub guest_cpu_ratio: Option<f64>,
    /// Guest CPU time relative to the better software-optimised design.
    pub guest_cpu_ratio_to_software: Option<f64>,
    pub process_cpu_s_per_gib: f64,
    pub device_interrupts_per_gib: f64,
    pub system_calls_per_gib: Option<f64>,
    /// Places of the software designs' data.
    pub blocks: Option<Blocks>,
    pub transfers: usize,
    pub bytes_verified: u64,
    pub digests_verified: u64,
    /// Load, if arrivals are given.
    pub asked_mib_per_s: Option<f64>,
    /// Bandwidth by this machine's clock: QEMU's, not a server's.
    pub mib_per_s_in_qemu: f64,
    /// Bandwidth relative to that without spinners: the median of the rounds.
    pub kept: Option<f64>,
    /// `kept` of each round; for sets, guest CPU seconds per GiB relative to one set.
    pub rounds: Vec<f64>,
    /// Sets of an SSD and a NIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sets: Option<Sets>,
}

/// Figures of several concurrent sets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sets {
    pub count: usize,
    /// Guest CPU seconds per GiB relative to one set: the median of the rounds.
    pub of_one_set: f64,
    /// Share of time in which the guest's processor ran.
    pub guest_cpu_share: f64,
    /// Part of an equal share of the set that had least, while all were active: the worst of the rounds.
    pub least: f64,
    /// Part of an equal share of the set that had most, while all were active: the worst of the rounds.
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

/// Returns the rows of one job by each design, with their ratios.
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

/// Rows of an experiment, and the errors found.
pub type Measured = (Vec<Measurement>, Vec<String>);
