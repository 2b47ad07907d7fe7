//! Figures of runs: medians, and ratios within each repetition.

use super::contender::Contender;
use super::measure::{Run, Scenario};
use crate::harness::contender::Named;
use crate::harness::data::Direction;
use crate::harness::figures::{GIB, Ratio, median, percentile};
use crate::harness::turns;
use serde::Serialize;

/// The figures of one contender in one scenario: medians of its runs.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub event: &'static str,
    pub job: String,
    pub contender: &'static str,
    pub streams: usize,
    pub size: u64,
    pub hogs: usize,
    pub cold: bool,
    pub gib_per_s: f64,
    /// Of the measured process and of kernel threads.
    pub cpu_s_per_gib: f64,
    pub kernel_cpu_s_per_gib: f64,
    pub client_cpu_s_per_gib: f64,
    pub cpu_ratio: Option<Ratio>,
    pub throughput_ratio: Option<Ratio>,
    /// The loop that takes least CPU time, and the ratios to it.
    pub best_loop: Option<&'static str>,
    pub cpu_ratio_to_best_loop: Option<Ratio>,
    pub throughput_ratio_to_best_loop: Option<Ratio>,
    /// Of the throughput without hogs.
    pub share_of_uncontended: Option<Ratio>,
    /// Bytes out for each byte in.
    pub output_ratio: f64,
    #[serde(flatten)]
    pub objects: Option<Objects>,
    pub runs: usize,
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

/// All runs of one contender in one scenario.
pub type Runs = turns::Runs<Contender, Run>;

/// Of one run.
struct Figures {
    gib_per_s: f64,
    cpu_s_per_gib: f64,
    kernel_cpu_s_per_gib: f64,
    client_cpu_s_per_gib: f64,
}

impl Figures {
    fn new(run: &Run, direction: Direction) -> Figures {
        let marks = &run.marks;
        // What goes into a compressor is the job, not what comes out.
        let ratio = if direction == Direction::Send { run.output_ratio } else { 1.0 };
        let gib = marks.bytes as f64 / ratio / GIB;
        Figures {
            gib_per_s: gib / marks.wall_s,
            cpu_s_per_gib: (marks.server_cpu_s + marks.kernel_cpu_s) / gib,
            kernel_cpu_s_per_gib: marks.kernel_cpu_s / gib,
            client_cpu_s_per_gib: marks.client_cpu_s / gib,
        }
    }
}

/// The rows of a scenario. `uncontended`: the runs of the same one without hogs.
pub fn rows(scenario: &Scenario<'_>, all: &[Runs], uncontended: Option<&[Runs]>) -> Vec<Row> {
    let direction = scenario.job.direction;
    let figures =
        |runs: &Runs| -> Vec<Figures> { runs.runs.iter().map(|run| Figures::new(run, direction)).collect() };
    let of = |runs: &[Runs], contender: Contender| {
        runs.iter().find(|runs| runs.contender == contender).map(figures)
    };
    let base = of(all, Contender::Loop);
    let best = [Contender::Loop, Contender::LoopLarge, Contender::LoopDirect]
        .into_iter()
        .filter_map(|contender| Some((contender, of(all, contender)?)))
        .min_by(|(_, one), (_, other)| cpu(one).total_cmp(&cpu(other)));
    let row = |runs: &Runs| {
        let mine = figures(runs);
        let against = |other: &Option<&Vec<Figures>>, value: fn(&Figures) -> f64| {
            other.as_ref().map(|other| ratio(&mine, other, value))
        };
        let best_figures = best.as_ref().map(|(_, figures)| figures);
        let without = uncontended.and_then(|runs_| of(runs_, runs.contender));
        let throughput: fn(&Figures) -> f64 = |run| run.gib_per_s;
        let cpu_time: fn(&Figures) -> f64 = |run| run.cpu_s_per_gib;
        Row {
            event: "measurement",
            job: scenario.job.name(),
            contender: runs.contender.name(),
            streams: scenario.streams,
            size: scenario.data.size,
            hogs: scenario.hogs,
            cold: scenario.cold,
            gib_per_s: median(mine.iter().map(throughput)),
            cpu_s_per_gib: cpu(&mine),
            kernel_cpu_s_per_gib: median(mine.iter().map(|run| run.kernel_cpu_s_per_gib)),
            client_cpu_s_per_gib: median(mine.iter().map(|run| run.client_cpu_s_per_gib)),
            cpu_ratio: against(&base.as_ref(), cpu_time),
            throughput_ratio: against(&base.as_ref(), throughput),
            best_loop: best.as_ref().map(|(contender, _)| contender.name()),
            cpu_ratio_to_best_loop: against(&best_figures, cpu_time),
            throughput_ratio_to_best_loop: against(&best_figures, throughput),
            share_of_uncontended: against(&without.as_ref(), throughput),
            output_ratio: median(runs.runs.iter().map(|run| run.output_ratio)),
            objects: scenario.is_small().then(|| objects(runs, cpu(&mine))),
            runs: runs.runs.len(),
            library: runs.runs.first().map(|run| run.library.clone()).unwrap_or_default(),
            open: if scenario.open_once { "once" } else { "each" },
            server_cores: scenario.server_cores.clone(),
            client: scenario.client_mode(),
        }
    };
    all.iter().map(row).collect()
}

fn cpu(figures: &[Figures]) -> f64 {
    median(figures.iter().map(|run| run.cpu_s_per_gib))
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

/// Of the runs of the same repetition.
fn ratio(mine: &[Figures], other: &[Figures], value: fn(&Figures) -> f64) -> Ratio {
    Ratio::of(mine.iter().zip(other).map(|(one, other)| value(one) / value(other)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(cpu_s_per_gib: f64) -> Figures {
        Figures {
            gib_per_s: 1.0 / cpu_s_per_gib,
            cpu_s_per_gib,
            kernel_cpu_s_per_gib: 0.0,
            client_cpu_s_per_gib: 0.0,
        }
    }

    #[test]
    fn ratios_are_of_the_same_repetition() {
        // The machine became twice as slow for the second repetition: both felt it.
        let (mine, base) = ([1.0, 2.0, 1.5].map(figures), [4.0, 8.0, 3.0].map(figures));
        let cpu = ratio(&mine, &base, |run| run.cpu_s_per_gib);
        assert_eq!(cpu, Ratio { median: 0.25, least: 0.25, most: 0.5 });
        assert_eq!(ratio(&mine, &base, |run| run.gib_per_s).median, 4.0);
    }
}
