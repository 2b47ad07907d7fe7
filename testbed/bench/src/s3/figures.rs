//! Figures of runs: medians, and ratios to versitygw, or else nginx, within each repetition.

use super::contender::Contender;
use super::measure::Scenario;
use super::protocol::Measured;
use crate::harness::contender::Named;
use crate::harness::figures::{Cost, GIB, Medians, percentile};
use crate::harness::turns;
use serde::Serialize;

/// Contenders for ratios: the first that is available.
const BASES: [Contender; 2] = [Contender::Versitygw, Contender::Nginx];

/// Figures of one contender in one scenario: medians of its runs.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub event: &'static str,
    pub job: &'static str,
    pub contender: &'static str,
    pub version: String,
    pub clients: usize,
    pub size: u64,
    pub cold: bool,
    /// State of the disk when a PUT is answered.
    pub durability: &'static str,
    pub signing: &'static str,
    /// CPU time of the server, its children, and kernel threads.
    #[serde(flatten)]
    pub cost: Medians,
    /// Rate by bytes moved: part of a request counts as that part.
    pub requests_per_s: f64,
    pub requests_per_cpu_s: f64,
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    /// Contender that the ratios are to.
    pub base: Option<&'static str>,
    pub server_cores: Vec<usize>,
    pub client: serde_json::Value,
}

/// All runs of one contender in one scenario.
pub type Runs = turns::Runs<Contender, Measured>;

fn costs(runs: &Runs) -> Vec<Cost> {
    runs.runs.iter().map(|run| Cost::new(&run.marks)).collect()
}

fn signing(runs: &Runs) -> &'static str {
    match (runs.contender.is_s3(), runs.runs.iter().all(|run| run.checks_signatures)) {
        (false, _) => "unsigned",
        (true, true) => "presigned",
        (true, false) => "presigned, and not checked by the server",
    }
}

pub fn rows(scenario: &Scenario<'_>, all: &[Runs]) -> Vec<Row> {
    let of = |contender| all.iter().find(|runs: &&Runs| runs.contender == contender);
    let base = BASES.into_iter().find_map(of);
    let base_name = base.map(|runs| runs.contender.name());
    let base = base.map(costs);
    let row = |runs: &Runs| {
        let cost = Medians::new(&costs(runs), base.as_deref());
        let latency = |share| {
            Some(percentile(runs.runs.iter().map(|run| &run.latency_ms[..]), share))
                .filter(|ms| ms.is_finite())
        };
        let per_gib = GIB / scenario.objects.pool.size as f64;
        Row {
            event: "measurement",
            job: scenario.job.name(),
            contender: runs.contender.name(),
            version: scenario.programs.version(runs.contender).to_string(),
            clients: scenario.clients,
            size: scenario.objects.pool.size,
            cold: scenario.setting.cold,
            durability: runs.contender.durability(),
            signing: signing(runs),
            requests_per_s: cost.gib_per_s * per_gib,
            requests_per_cpu_s: per_gib / cost.cpu_s_per_gib,
            cost,
            p50_ms: latency(0.5),
            p99_ms: latency(0.99),
            base: base_name,
            server_cores: scenario.setting.server_cores.clone(),
            client: scenario.setting.client(),
        }
    };
    all.iter().map(row).collect()
}
