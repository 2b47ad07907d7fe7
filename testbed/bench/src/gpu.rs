//! `dcs bench gpu`: a GPU's throughput with each operator, compared with the limits of its memory and its bus, and one
//! core of the CPU.

use crate::failure::{Exit, Failure};
use crate::harness::figures::GIB;
use crate::harness::plot::{self, Point};
use crate::harness::table::{Table, number};
use crate::interrupt;
use crate::report::Report;
use crate::units::{self, human};
use clap::Args;
use dcs::Operator;
use dcs::gpu::{self, GpuOptions, MeasureError, Measured, PeakRates, Plan, Properties};
use serde_json::json;
use std::fs::File;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// Operators to measure; by default all that GPUs do
    #[arg(value_name = "OPERATOR")]
    pub operators: Vec<String>,
    /// Number of the GPU, from 0
    #[arg(long, value_name = "N", default_value = "0")]
    pub gpu: u32,
    /// Concurrent streams; a pass processes one piece of each
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = units::count::<1, 65535>, default_value = "1,32,256,1024,4096")]
    pub streams: Vec<usize>,
    /// Bytes of a piece; in the engine, of a block
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "128KiB")]
    pub size: u64,
    /// Passes to measure
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// Also read this file past the page cache, directly to the GPU (GPUDirect Storage) and by way of the host; larger
    /// files give better figures
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Plot GiB/s against streams
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

const HELP: &str = "\
Examples:
  dcs bench gpu
  dcs bench gpu md5 sha256 --streams 1024,8192 --runs 50
  dcs bench gpu --svg gpu.svg --json > gpu.jsonl

on GPU: the kernel on data that are on the GPU already, by the GPU's own clock (events). of memory: the share of the rate that the
GPU's memory shows in a copy within it, measured in the same run, where every byte is read once, and written once by a cipher.
apart: copies in, kernel, copies out, each after the one before; overlapped: in several streams. one core: this machine's CPU, on as
many streams. engine: a whole engine, from memory through the operator to /dev/null, the operator on the GPU and on the engine's own core.
--file: the file in 16 streams through each operator to /dev/null, read with O_DIRECT to the GPU's memory by GPUDirect Storage, and to the host's and copied
from there; GiB/s, and seconds of the CPU for each GiB. What comes out is compared with what the CPU makes of it.
The first pass of each is checked against the CPU, and every digest of an engine: a wrong byte or digest is an error, not a result.
Digests of one stream are one serial chain: a GPU is fast where there are thousands of streams.
The pieces of all streams are in locked memory and on the GPU: --streams times --size on both sides.
With the tests' stand-in for the driver it runs, marks every line, and draws no plot.

Exit codes: 0 measured; 1 no GPU, or it computed something wrong; 2 usage; 130 interrupted";

const SERIES: [&str; 4] = ["on GPU", "overlapped", "apart", "one core"];

pub fn run(options: &Options, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let operators = operators(&options.operators)?;
    let size = usize::try_from(options.size).ok().filter(|size| *size > 0 && size.is_multiple_of(64));
    let size = size.ok_or_else(|| Failure::usage("--size must be a multiple of 64 bytes"))?;
    let gpu_options = GpuOptions { device: options.gpu, ..GpuOptions::default() };
    let mut all: Vec<(usize, Measured)> = Vec::new();
    for (at, &streams) in options.streams.iter().enumerate() {
        if interrupt::pressed() {
            return Err(Failure::new(Exit::Interrupted, "bench gpu: interrupted"));
        }
        let plan = Plan { gpu: gpu_options.clone(), streams, size, repetitions: options.runs };
        let (gpu, floor, measured) = gpu::measure(&plan, &operators).map_err(failed)?;
        if gpu.stand_in && options.svg.is_some() {
            return Err(Failure::usage(
                "--svg: this is a stand-in for tests, not a GPU: its figures are not for publishing",
            )
            .advise("unset DCS_CUDA_LIBRARY on a machine with a GPU"));
        }
        if at == 0 {
            head(&gpu, report);
        }
        table(&plan, &gpu, &floor, &measured, report);
        all.extend(measured.into_iter().map(|measured| (streams, measured)));
    }
    if let Some(path) = &options.file {
        file(path, &gpu_options, options, &operators, report)?;
    }
    if cfg!(debug_assertions) {
        report.remark("dcs: this is a debug build: its CPU figures mean nothing");
    }
    if let Some(path) = &options.svg {
        let points: Vec<Point<'_>> =
            all.iter().flat_map(|(streams, measured)| points(*streams, measured)).collect();
        plot::draw(&points, &SERIES, ("streams", "GiB/s"), path, report)?;
    }
    report.object(&json!({ "event": "done", "ok": true }));
    Ok(())
}

fn operators(names: &[String]) -> Result<Vec<Operator>, Failure> {
    if names.is_empty() {
        return Ok(gpu::operators().collect());
    }
    let find = |name: &String| {
        let bare = name.strip_prefix("gpu:").unwrap_or(name);
        gpu::operators().find(|operator| operator.name() == bare).ok_or_else(|| {
            let all: Vec<_> = gpu::operators().map(Operator::name).collect();
            Failure::usage(format!("no GPU does {name:?}")).advise(format!("GPUs do: {}", all.join(", ")))
        })
    };
    names.iter().map(find).collect()
}

fn failed(error: MeasureError) -> Failure {
    let advice = match &error {
        MeasureError::Gpu(_) => "dcs doctor reports on this machine's GPUs",
        MeasureError::Wrong(_) => "please report it, with the output of dcs doctor",
        MeasureError::Engine(_) => "use fewer --streams, or see dcs doctor",
        MeasureError::Plan => "see dcs bench gpu --help",
    };
    Failure::new(Exit::Failed, format!("bench gpu: {error}")).advise(advice)
}

fn head(gpu: &Properties, report: &Report) {
    let (major, minor) = gpu.capability;
    report.text(format_args!(
        "GPU {}: {}, {}, {} multiprocessors, compute capability {major}.{minor}; CUDA {}.{}",
        gpu.device,
        gpu.name,
        human(gpu.memory),
        gpu.multiprocessors,
        gpu.driver.0,
        gpu.driver.1
    ));
    if gpu.stand_in {
        report.text(
            "STAND-IN, NO GPU: the figures below are of a test double on the CPU and say nothing of any GPU.",
        );
    }
}

fn table(plan: &Plan, gpu: &Properties, floor: &PeakRates, measured: &[Measured], report: &Report) {
    let mark = if gpu.stand_in { "  (stand-in, no GPU)" } else { "" };
    report.text(format_args!(
        "\n{} stream{}, pieces of {}; memory of the GPU {:.1} GiB/s, copies in {:.1}, out {:.1}{mark}",
        plan.streams,
        if plan.streams == 1 { "" } else { "s" },
        human(plan.size as u64),
        floor.memory / GIB,
        floor.copy_in / GIB,
        floor.copy_out / GIB,
    ));
    let header = [
        "operator",
        "on GPU",
        "of memory",
        "apart",
        "overlapped",
        "one core",
        "x core",
        "engine, GPU",
        "engine, CPU",
    ];
    let mut table = Table::new(header);
    report.object(&json!({
        "event": "floor", "stand_in": gpu.stand_in, "gpu": gpu.name, "streams": plan.streams, "size": plan.size,
        "memory_gib_per_s": floor.memory / GIB, "copy_in_gib_per_s": floor.copy_in / GIB, "copy_out_gib_per_s": floor.copy_out / GIB,
    }));
    for one in measured {
        let engine = |of: fn((f64, f64)) -> f64| one.engine.map(|rates| of(rates) / GIB);
        let (there, here) = (engine(|rates| rates.0), engine(|rates| rates.1));
        table.row([
            format!("{}{mark}", one.operator),
            number(Some(one.resident / GIB), 2),
            one.of_floor.map_or("-".into(), |share| format!("{:.1}%", 100.0 * share)),
            number(Some(one.apart / GIB), 2),
            number(Some(one.overlapped / GIB), 2),
            number(Some(one.cpu / GIB), 2),
            number(Some(one.overlapped / one.cpu), 2),
            number(there, 2),
            number(here, 2),
        ]);
        report.object(&json!({
            "event": "measurement", "stand_in": gpu.stand_in, "gpu": gpu.name, "operator": one.operator,
            "streams": plan.streams, "size": plan.size, "runs": plan.repetitions,
            "on_gpu_gib_per_s": one.resident / GIB, "of_memory": one.of_floor, "apart_gib_per_s": one.apart / GIB,
            "overlapped_gib_per_s": one.overlapped / GIB, "one_core_gib_per_s": one.cpu / GIB,
            "engine_gpu_gib_per_s": there, "engine_cpu_gib_per_s": here,
        }));
    }
    table.show(report);
}

/// Measures a file that is read to the GPU both ways.
fn file(
    path: &Path,
    gpu_options: &GpuOptions,
    options: &Options,
    operators: &[Operator],
    report: &Report,
) -> Result<(), Failure> {
    let file = File::open(path).map_err(|error| Failure::io(path.display(), &error))?;
    let stand_in = gpu::find(gpu_options).is_ok_and(|found| found.iter().any(|gpu| gpu.stand_in));
    let mark = if stand_in { "  (stand-in, no GPU)" } else { "" };
    let measured = gpu::measure_file(gpu_options, &file, options.runs, operators).map_err(failed)?;
    report.text(format_args!("\n{}, past the page cache{mark}", path.display()));
    let mut table = Table::new(["operator", "direct", "by host", "direct, s/GiB", "by host, s/GiB"]);
    for one in &measured {
        let by_host = (one.by_host.rate / GIB, one.by_host.cpu * GIB);
        let direct = one.direct.as_ref().map(|read| (read.rate / GIB, read.cpu * GIB));
        let read = direct.as_ref().ok();
        table.row([
            format!("{}{mark}", one.operator),
            number(read.map(|read| read.0), 2),
            number(Some(by_host.0), 2),
            number(read.map(|read| read.1), 3),
            number(Some(by_host.1), 3),
        ]);
        report.object(&json!({
            "event": "file", "stand_in": stand_in, "operator": one.operator, "runs": options.runs,
            "direct_gib_per_s": direct.as_ref().ok().map(|read| read.0),
            "direct_cpu_s_per_gib": direct.as_ref().ok().map(|read| read.1),
            "by_host_gib_per_s": by_host.0, "by_host_cpu_s_per_gib": by_host.1,
            "not_direct": direct.as_ref().err().map(ToString::to_string),
        }));
    }
    table.show(report);
    if let Some(Err(error)) = measured.first().map(|one| &one.direct) {
        report.text(format_args!("  not direct: {error}"));
    }
    Ok(())
}

fn points(streams: usize, one: &Measured) -> [Point<'static>; 4] {
    let rates = [one.resident, one.overlapped, one.apart, one.cpu];
    std::array::from_fn(|at| Point {
        panel: one.operator.into(),
        series: SERIES[at],
        x: streams,
        y: rates[at] / GIB,
    })
}
