//! The GPUs of this machine: what they are, and what they do in which time.
//! [`Builder::gpu`](crate::engine::Builder::gpu) gives one to an engine, and
//! [`Op::on_gpu`](crate::Op::on_gpu) has it do an operator of a chain.

mod files;

use crate::kernel::offload::{answer_of, work_of};
use crate::queue::DEPTH_MAX;
use crate::{Engine, Op, Sink, Source};
use dcs_abi::operator::{Operator, OperatorKind};
use dcs_devices::gpu::Work;
use dcs_devices::gpu::measure::Bench;
use dcs_ndp::{Context, Lanes, Piece};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use crate::kernel::offload::operators;
pub use dcs_devices::gpu::measure::PeakRates;
pub use dcs_devices::gpu::{GpuError, GpuOptions, Properties, Storage, StorageError, find, find_storage};
pub use files::{MeasuredFile, Reading, measure_file};

/// A job to be measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The GPU.
    pub gpu: GpuOptions,
    /// Streams side by side: a piece of each is in a pass.
    pub streams: usize,
    /// Bytes of a piece: a multiple of 64.
    pub size: usize,
    /// Passes.
    pub repetitions: u32,
}

/// The rate of an operator's pass over a piece of each stream, in bytes per second.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The operator's name: `gpu:md5`.
    pub operator: &'static str,
    /// The kernel, on data that are on the GPU, by the GPU's clock.
    pub resident: f64,
    /// The part of the GPU memory's bandwidth, if each byte is read once, and written once where data change.
    /// `None` if the GPU's cache has room for half of the data: then they may never have been fetched from
    /// its memory.
    pub of_floor: Option<f64>,
    /// With the copies in and out, each step after the one before.
    pub apart: f64,
    /// With copies and kernels overlapped.
    pub overlapped: f64,
    /// One core of this machine's CPU, on as many streams.
    pub cpu: f64,
    /// A whole engine, from memory through the operator on the GPU to /dev/null, and the same with the
    /// operator on the engine's own core. `None` if the pieces are not blocks of an engine, or there are more
    /// streams than a session has room for.
    pub engine: Option<(f64, f64)>,
}

/// Reason why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The GPU.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// It computes something else than the CPU.
    #[error("{0}: the GPU computes something else than the CPU")]
    Wrong(&'static str),
    /// The engine could not be started, or a transfer failed.
    #[error("the engine: {0}")]
    Engine(String),
    /// Sizes that are none.
    #[error("pieces are multiples of 64 bytes, and there is at least one stream and one repetition")]
    Plan,
}

/// Measures a GPU's speed with these operators, each compared with the CPU. The results are checked first.
///
/// # Errors
///
/// [`MeasureError`].
pub fn measure(
    plan: &Plan,
    operators: &[Operator],
) -> Result<(Properties, PeakRates, Vec<Measured>), MeasureError> {
    if plan.size == 0 || !plan.size.is_multiple_of(64) || plan.streams == 0 || plan.repetitions == 0 {
        return Err(MeasureError::Plan);
    }
    let mut bench = Bench::open(&plan.gpu, plan.streams, plan.size)?;
    let mut state = 1u64;
    for word in bench.data()?.as_chunks_mut::<8>().0 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *word = (state ^ state >> 29).to_le_bytes();
    }
    let floor = bench.floor(plan.repetitions)?;
    let one = |operator: &Operator| one(plan, &mut bench, &floor, *operator);
    let measured = operators.iter().map(one).collect::<Result<_, _>>()?;
    Ok((bench.properties().clone(), floor, measured))
}

fn parameter(operator: Operator, stream: usize) -> Vec<u8> {
    if operator.digest_size() > 0 {
        return Vec::new();
    }
    (0..48).map(|at| (at * 7 + stream) as u8).collect()
}

fn one(
    plan: &Plan,
    bench: &mut Bench,
    floor: &PeakRates,
    operator: Operator,
) -> Result<Measured, MeasureError> {
    let name = operator.info().gpu.unwrap_or(operator.name());
    let wrong = || MeasureError::Wrong(name);
    let plain = bench.data()?.to_vec();
    let mut contexts = Vec::new();
    let mut work: Vec<Work> = Vec::new();
    for (stream, piece) in plain.chunks_exact(plan.size).enumerate() {
        let mut context = Context::offloaded(operator, &parameter(operator, stream)).map_err(|_| wrong())?;
        let task = context.hand_out(piece).ok().flatten().ok_or_else(wrong)?;
        work.push(work_of(task, plan.size).0);
        contexts.push(context);
    }
    let mut right = true;
    let times = bench.measure(&work, plan.repetitions, |data, answers| {
        for (stream, (context, answer)) in contexts.iter_mut().zip(answers).enumerate() {
            let piece = stream * plan.size..(stream + 1) * plan.size;
            let taken = context.take_in(Some(answer_of(*answer))).is_ok();
            right &= taken && is_right(operator, stream, context, &plain[piece.clone()], &data[piece]);
        }
    })?;
    if !right || !times.agree {
        return Err(wrong());
    }
    bench.data()?.copy_from_slice(&plain);
    let bytes = plain.len() as f64;
    let large = plain.len() as u64 > 2 * bench.properties().cache;
    let traffic = if operator.digest_size() > 0 { 1.0 } else { 2.0 };
    let rate = |time: Duration| bytes / time.as_secs_f64();
    Ok(Measured {
        operator: name,
        resident: rate(times.resident),
        of_floor: large.then(|| traffic * rate(times.resident) / floor.memory),
        apart: rate(times.apart),
        overlapped: rate(times.overlapped),
        engine: on_engine(operator, name, plan)?,
        cpu: rate(on_cpu(operator, plain, plan)),
    })
}

/// Checks that the CPU makes of a piece what the GPU has made of it.
fn is_right(operator: Operator, stream: usize, there: &Context, plain: &[u8], after: &[u8]) -> bool {
    let Ok(mut here) = Context::new(operator, &parameter(operator, stream)) else { return false };
    if matches!(operator.kind(), OperatorKind::Digest { .. }) {
        here.absorb(plain);
        return here.value() == there.value() && plain == after;
    }
    let mut bytes = plain.to_vec();
    here.in_place(&mut bytes, false).is_ok() && bytes == after
}

/// One pass on one core, as an engine does it; the shortest of several.
fn on_cpu(operator: Operator, mut data: Vec<u8>, plan: &Plan) -> Duration {
    let lanes = Lanes::detect(operator);
    let parameter = parameter(operator, 0);
    let make = |_: usize| Context::new(operator, &parameter).ok();
    let mut contexts: Vec<Context> = (0..plan.streams).filter_map(make).collect();
    let mut least = Duration::MAX;
    for _ in 0..plan.repetitions.clamp(2, 5) {
        let start = Instant::now();
        if operator.digest_size() > 0 {
            let pieces = contexts.iter_mut().zip(data.chunks_exact(plan.size));
            let mut pieces: Vec<Piece<'_>> =
                pieces.map(|(context, data)| Piece { context, data, last: false }).collect();
            Context::absorb_together(lanes, &mut pieces);
        } else {
            for (context, piece) in contexts.iter_mut().zip(data.chunks_exact_mut(plan.size)) {
                let _ = context.in_place(piece, false);
            }
        }
        least = least.min(start.elapsed());
    }
    std::hint::black_box(&data);
    least
}

/// Pieces of each stream that go through an engine.
const PIECES: usize = 8;

/// Bytes per second of an engine that has a GPU: done by that, and by its own core.
fn on_engine(
    operator: Operator,
    name: &'static str,
    plan: &Plan,
) -> Result<Option<(f64, f64)>, MeasureError> {
    let depth = u16::try_from(plan.streams).ok().filter(|depth| *depth <= DEPTH_MAX);
    let size = u32::try_from(plan.size).ok().filter(|size| size.is_multiple_of(4096));
    let (Some(depth), Some(size)) = (depth, size) else { return Ok(None) };
    let failed = |error: crate::Error| MeasureError::Engine(error.to_string());
    let mut builder = Engine::builder().block_size(size).blocks((2 * u32::from(depth)).max(64)).sessions(1);
    builder = builder.commands(depth.max(64)).window(2).gpu(plan.gpu.device);
    if let Some(library) = &plan.gpu.library {
        builder = builder.gpu_library(library);
    }
    let engine = builder.start().map_err(failed)?;
    let session = engine.session_with_depth(depth).map_err(failed)?;
    let bytes: Arc<[u8]> = (0..PIECES * plan.size).map(|at| (at ^ at >> 9) as u8).collect();
    let null = std::fs::File::options().write(true).open("/dev/null");
    let null = null.map_err(|error| MeasureError::Engine(format!("/dev/null: {error}")))?;
    let parameter = parameter(operator, 0);
    let mut here = Context::new(operator, &parameter).map_err(|_| MeasureError::Wrong(name))?;
    here.absorb(&bytes);
    let value = here.value();
    let pass = |on_gpu: bool| -> Result<Duration, MeasureError> {
        let op = Op::Raw { number: operator as u8, parameter: parameter.clone() };
        let op = if on_gpu { op.on_gpu() } else { op };
        let start = Instant::now();
        let submit = |_| session.transfer(Source::memory(Arc::clone(&bytes)), [op.clone()], Sink::fd(&null));
        let running = (0..depth).map(submit).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        for transfer in running {
            let done = transfer.wait().map_err(|error| MeasureError::Engine(error.to_string()))?;
            let right =
                done.digests.iter().all(|digest| Some(digest.bytes()) == value.as_ref().map(AsRef::as_ref));
            if !right {
                return Err(MeasureError::Wrong(name));
            }
        }
        Ok(start.elapsed())
    };
    let best = |on_gpu| -> Result<f64, MeasureError> {
        let passes = (0..plan.repetitions.clamp(2, 4)).map(|_| pass(on_gpu));
        let least = passes.reduce(|one, other| Ok(one?.min(other?))).unwrap_or(Ok(Duration::MAX))?;
        Ok((usize::from(depth) * bytes.len()) as f64 / least.as_secs_f64())
    };
    Ok(Some((best(true)?, best(false)?)))
}
