//! Figures of runs: medians, and ratios within each repetition.

use super::contender::Contender;
use super::measure::{Run, Scenario};
use crate::harness::contender::Named;
use crate::harness::counters::{Counted, Counts};
use crate::harness::data::Direction;
use crate::harness::figures::{Cost, GIB, Medians, Ratio, cpu, median, percentile, ratio, throughput};
use crate::harness::turns;
use serde::Serialize;

/// Figures of one contender in one scenario: medians of its runs.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub event: &'static str,
    pub job: String,
    pub contender: &'static str,
    pub streams: usize,
    pub size: u64,
    pub hogs: usize,
    pub memory_hogs: usize,
    pub cold: bool,
    #[serde(flatten)]
    pub cost: Medians,
    /// Loop that takes the least CPU time.
    pub best_loop: Option<&'static str>,
    /// CPU time relative to that loop.
    pub cpu_ratio_to_best_loop: Option<Ratio>,
    pub throughput_ratio_to_best_loop: Option<Ratio>,
    /// Throughput relative to that without hogs.
    pub share_of_uncontended: Option<Ratio>,
    /// Output bytes per input byte.
    pub output_ratio: f64,
    #[serde(flatten)]
    pub objects: Option<Objects>,
    /// The processor's counters, if they were wanted.
    #[serde(flatten)]
    pub counters: Option<Counters>,
    pub library: String,
    pub open: &'static str,
    pub server_cores: Vec<usize>,
    pub client: serde_json::Value,
}

/// Figures of small objects.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Objects {
    pub objects_per_cpu_s: f64,
    pub cpu_us_per_object: f64,
    pub latency_us_p50: f64,
    pub latency_us_p99: f64,
}

/// Values of the processor's counters: medians, or the reason why there are none.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Counters {
    Counted {
        instructions_per_byte: f64,
        instructions_per_cycle: f64,
        cache_references_per_kib: f64,
        cache_misses_per_kib: f64,
    },
    Refused {
        counters_refused: String,
    },
}

/// All runs of one contender in one scenario.
pub type Runs = turns::Runs<Contender, Run>;

/// Returns the cost of each run. For a compressor it is per input byte.
fn costs(direction: Direction, runs: &Runs) -> Vec<Cost> {
    let cost = |run: &Run| {
        let ratio = if direction == Direction::Send { run.output_ratio } else { 1.0 };
        Cost::of(&run.marks, run.marks.bytes as f64 / ratio)
    };
    runs.runs.iter().map(cost).collect()
}

/// Returns the rows of a scenario. `uncontended`: the runs of the same scenario without hogs.
pub fn rows(scenario: &Scenario<'_>, all: &[Runs], uncontended: Option<&[Runs]>) -> Vec<Row> {
    let direction = scenario.job.direction;
    let of = |runs: &[Runs], contender: Contender| {
        runs.iter().find(|runs| runs.contender == contender).map(|runs| costs(direction, runs))
    };
    let base = of(all, Contender::Loop);
    let middle = |costs: &[Cost]| median(costs.iter().map(cpu));
    let best = [Contender::Loop, Contender::LoopLarge, Contender::LoopDirect]
        .into_iter()
        .filter_map(|contender| Some((contender, of(all, contender)?)))
        .min_by(|(_, one), (_, other)| middle(one).total_cmp(&middle(other)));
    let row = |runs: &Runs| {
        let mine = costs(direction, runs);
        let cost = Medians::new(&mine, base.as_deref());
        let to_best = |value| best.as_ref().map(|(_, best)| ratio(&mine, best, value));
        let without = uncontended.and_then(|runs_| of(runs_, runs.contender));
        Row {
            event: "measurement",
            job: scenario.job.name(),
            contender: runs.contender.name(),
            streams: scenario.streams,
            size: scenario.data.pool.size,
            hogs: scenario.hogs,
            memory_hogs: scenario.memory_hogs,
            cold: scenario.setting.cold,
            cost,
            best_loop: best.as_ref().map(|(contender, _)| contender.name()),
            cpu_ratio_to_best_loop: to_best(cpu),
            throughput_ratio_to_best_loop: to_best(throughput),
            share_of_uncontended: without.map(|without| ratio(&mine, &without, throughput)),
            output_ratio: median(runs.runs.iter().map(|run| run.output_ratio)),
            objects: scenario.is_small().then(|| objects(runs, cost.cpu_s_per_gib)),
            counters: counters(runs),
            library: runs.runs.first().map(|run| run.library.clone()).unwrap_or_default(),
            open: if scenario.open_once { "once" } else { "each" },
            server_cores: scenario.setting.server_cores.clone(),
            client: scenario.setting.client(),
        }
    };
    all.iter().map(row).collect()
}

fn objects(runs: &Runs, cpu_s_per_gib: f64) -> Objects {
    let size = runs.runs.first().map_or(1, |run| run.size) as f64;
    let cpu_us_per_object = cpu_s_per_gib * size / GIB * 1e6;
    let percentile = |share| percentile(runs.runs.iter().map(|run| &run.latency_us[..]), share);
    Objects {
        objects_per_cpu_s: 1e6 / cpu_us_per_object,
        cpu_us_per_object,
        latency_us_p50: percentile(0.5),
        latency_us_p99: percentile(0.99),
    }
}

fn counters(runs: &Runs) -> Option<Counters> {
    if let Counted::Refused(why) = runs.runs.first()?.counted.as_ref()? {
        return Some(Counters::Refused { counters_refused: why.clone() });
    }
    let median = |of: fn(&Counts, f64) -> f64| {
        median(runs.runs.iter().filter_map(|run| match &run.counted {
            Some(Counted::Counts(counts)) => Some(of(counts, run.marks.bytes as f64)),
            _ => None,
        }))
    };
    Some(Counters::Counted {
        instructions_per_byte: median(|counts, bytes| counts.instructions / bytes),
        instructions_per_cycle: median(|counts, _| counts.instructions / counts.cycles.max(1.0)),
        cache_references_per_kib: median(|counts, bytes| counts.cache_references / bytes * 1024.0),
        cache_misses_per_kib: median(|counts, bytes| counts.cache_misses / bytes * 1024.0),
    })
}
