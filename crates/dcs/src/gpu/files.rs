//! Costs of reading files to a GPU: directly, and by the host, which copies them there.

use super::{GpuOptions, MeasureError, StorageError};
use crate::{Engine, Mode, Op, Sink, Source};
use dcs_abi::operator::Operator;
use std::fs::File;
use std::time::{Duration, Instant};

/// Streams that a file is divided into: a lone one waits for each block.
const STREAMS: u64 = 16;
/// Bytes of a block.
const BLOCK: u32 = 1 << 20;

/// The way by which a file was read.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Bytes per second.
    pub rate: f64,
    /// Seconds of the CPU per byte, of the whole process.
    pub cpu: f64,
}

/// A file that went through an operator on the GPU.
#[derive(Clone, Debug)]
pub struct MeasuredFile {
    /// The operator's name: `gpu:md5`.
    pub operator: &'static str,
    /// By GPUDirect Storage, if available.
    pub direct: Result<Reading, StorageError>,
    /// With O_DIRECT to the host's memory, and copied from there.
    pub by_host: Reading,
}

/// Reads a file, past the page cache, through each of these operators; what comes of it is compared with the
/// CPU's.
///
/// # Errors
///
/// [`MeasureError`].
pub fn measure_file(
    gpu: &GpuOptions,
    file: &File,
    repetitions: u32,
    operators: &[Operator],
) -> Result<Vec<MeasuredFile>, MeasureError> {
    let failed = |error: crate::Error| MeasureError::Engine(error.to_string());
    let start = |storage| {
        let mut builder =
            Engine::builder().block_size(BLOCK).blocks(64).sessions(2).gpu(gpu.device).gpu_storage(storage);
        if let Some(library) = &gpu.library {
            builder = builder.gpu_library(library);
        }
        if let Some(library) = &gpu.storage_library {
            builder = builder.gpu_storage_library(library);
        }
        builder.start().map_err(failed)
    };
    let (direct, by_host) = (start(Mode::Auto)?, start(Mode::Off)?);
    let one = |operator: &Operator| {
        let name = operator.info().gpu.unwrap_or(operator.name());
        let op = Op::Raw { number: *operator as u8, parameter: super::parameter(*operator, 0) };
        // The CPU's digest of what comes out.
        let chain = [op.clone().on_gpu(), Op::Crc32c];
        let (_, right) = best(&by_host, file, &[op, Op::Crc32c], 1)?;
        let checked = |engine: &Engine| {
            let (reading, values) = best(engine, file, &chain, repetitions)?;
            if values == right { Ok(reading) } else { Err(MeasureError::Wrong(name)) }
        };
        let by_host = checked(&by_host)?;
        let direct = match direct.gpu_storage() {
            Some(Err(error)) => Err(error.clone()),
            _ => Ok(checked(&direct)?),
        };
        Ok(MeasuredFile { operator: name, direct, by_host })
    };
    operators.iter().map(one).collect()
}

/// The shortest of several passes, and the digests of its streams.
fn best(
    engine: &Engine,
    file: &File,
    chain: &[Op],
    repetitions: u32,
) -> Result<(Reading, Vec<String>), MeasureError> {
    let passes = (0..repetitions.clamp(1, 5)).map(|_| pass(engine, file, chain));
    let least = passes.reduce(|one, other| {
        let (one, other) = (one?, other?);
        Ok(if one.0.rate > other.0.rate { one } else { other })
    });
    least.unwrap_or(Err(MeasureError::Plan))
}

fn pass(engine: &Engine, file: &File, chain: &[Op]) -> Result<(Reading, Vec<String>), MeasureError> {
    let failed = |error: String| MeasureError::Engine(error);
    let null = File::options().write(true).open("/dev/null");
    let null = null.map_err(|error| failed(format!("/dev/null: {error}")))?;
    let length = file.metadata().map_err(|error| failed(error.to_string()))?.len();
    let part = length.div_ceil(STREAMS).next_multiple_of(BLOCK.into());
    let session = engine.session().map_err(|error| failed(error.to_string()))?;
    let (began, before) = (Instant::now(), cpu_time());
    let parts = (0..length).step_by(part as usize).map(|from| from..length.min(from + part));
    let start = |part| {
        let source = Source::file(file, part).cache(Mode::Off);
        session.transfer(source, chain.to_vec(), Sink::fd(&null))
    };
    let running =
        parts.map(start).collect::<Result<Vec<_>, _>>().map_err(|error| failed(error.to_string()))?;
    let mut values = Vec::new();
    for transfer in running {
        let done = transfer.wait().map_err(|error| failed(error.to_string()))?;
        values.extend(done.digests.iter().map(ToString::to_string));
    }
    let (took, worked) = (began.elapsed(), cpu_time() - before);
    let bytes = length as f64;
    Ok((Reading { rate: bytes / took.as_secs_f64(), cpu: worked.as_secs_f64() / bytes }, values))
}

/// CPU time of all threads of the process.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the timespec is valid for the write; the clock is one that every Linux has.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
